// Running sums along one axis. NumPy twin: onnxlet/ops, CumSum.
//
// Unit: one line along the axis; x is [outer, axis, inner], and there are outer * inner lines, row-major. `type`
// (types.h) is float32, float64, int32 or int64. `exclusive` 1 leaves an element out of its own sum, `reverse` 1 adds
// up from the end.
#include "kernel.h"
#include "types.h"

#define RUN(T, WIDE)                                                                                \
    {                                                                                               \
        const T *x = PTR(const T, a->x) + offset;                                                   \
        T *y = PTR(T, a->y) + offset;                                                               \
        for (word k = 0; k < n; k++) {                                                              \
            word at_ = (a->reverse ? n - 1 - k : k) * inner, before = a->reverse ? inner : -inner;  \
            for (word c = 0; c < count; c++) {                                                      \
                WIDE sum = k ? (WIDE)y[at_ + before + c] : 0;                                       \
                if (!a->exclusive) sum += (WIDE)x[at_ + c];                                         \
                else if (k) sum += (WIDE)x[at_ + before + c];                                       \
                y[at_ + c] = (T)sum;                                                                \
            }                                                                                       \
        }                                                                                           \
        break;                                                                                      \
    }

KERNEL(cumsum, type, x, y, axis, inner, exclusive, reverse) {
    word n = a->axis, inner = a->inner;
    for (word at = begin; at < end;) {
        word outer = at / inner, column = at % inner, count = min_word(inner - column, end - at);
        word offset = outer * n * inner + column;
        switch (a->type) {
        case TYPE_F32: RUN(float, float)
        case TYPE_F64: RUN(double, double)
        case TYPE_I32: RUN(int32_t, uint32_t)
        default: RUN(int64_t, uint64_t)
        }
        at += count;
    }
}
