// ArgMax and ArgMin along one axis. NumPy twins: onnxlet/ops, ArgMax, ArgMin (numpy.argmax, numpy.argmin).
//
// Unit: one element of y (int64), which is [outer, inner]; x is [outer, axis, inner] of `type` (types.h): float32,
// float64, int32, int64, int8 or bytes. `minimum` is 1 for ArgMin, `last` is 1 for the last of equal extremes. The
// first NaN is the extreme where there is one.
#include "rows.h"
#include "types.h"

enum { BLOCK = 128 };  // neighbouring outputs that are searched together

#define SEARCH(T)                                                                                          \
    {                                                                                                      \
        T best[BLOCK];                                                                                     \
        const T *x = PTR(const T, a->x) + outer * n * inner + column;                                      \
        for (word c = 0; c < count; c++) {                                                                 \
            best[c] = x[c];                                                                                \
            y[c] = 0;                                                                                      \
        }                                                                                                  \
        for (word i = 1; i < n; i++)                                                                       \
            for (word c = 0; c < count; c++) {                                                             \
                T v = x[i * inner + c];                                                                    \
                int better = a->minimum ? v < best[c] : v > best[c];                                       \
                better |= (a->last && v == best[c]) | (v != v);                                            \
                if (better & (best[c] == best[c])) {                                                       \
                    best[c] = v;                                                                           \
                    y[c] = i;                                                                              \
                }                                                                                          \
            }                                                                                              \
        break;                                                                                             \
    }

// The place in a contiguous row of float32: first its extreme, then where that is.
static word search_row(const float *x, word n, int minimum, int last) {
    vf sign = vsplat(minimum ? -1.0f : 1.0f), largest = vsplat(-INFINITY_F32);
    vi unordered = (vi)0;
    for (word i = 0; i < n; i += LANES) {
        vf v = vload_or(x + i, min_word(LANES, n - i), x[0]);
        unordered |= v != v;
        largest = vlarger(v * sign, largest);
    }
    if (__builtin_reduce_or(unordered)) {
        word i = 0;
        while (x[i] == x[i]) i++;
        return i;
    }
    float extreme = vmax_lane(largest) * sign[0];
    if (last) {
        while (x[n - 1] != extreme) n--;
        return n - 1;
    }
    word i = 0;
    while (i + LANES <= n && !__builtin_reduce_or(vload(x + i) == extreme)) i += LANES;
    while (x[i] != extreme) i++;
    return i;
}

KERNEL(arg_reduce, type, minimum, last, x, y, axis, inner) {
    word n = a->axis, inner = a->inner;
    if (n < 1) return;
    if (a->type == TYPE_F32 && inner == 1) {
        for (word row = begin; row < end; row++)
            PTR(int64_t, a->y)[row] = search_row(F32(a->x) + row * n, n, (int)a->minimum, (int)a->last);
        return;
    }
    for (word at = begin; at < end;) {
        word outer = at / inner, column = at % inner;
        word count = min_word(BLOCK, min_word(inner - column, end - at));
        int64_t *y = PTR(int64_t, a->y) + at;
        switch (a->type) {
        case TYPE_F32: SEARCH(float)
        case TYPE_F64: SEARCH(double)
        case TYPE_I32: SEARCH(int32_t)
        case TYPE_I64: SEARCH(int64_t)
        case TYPE_I8: SEARCH(int8_t)
        default: SEARCH(uint8_t)
        }
        at += count;
    }
}
