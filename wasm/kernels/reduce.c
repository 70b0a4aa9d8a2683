// Reductions along one axis. NumPy twins: onnxlet/ops, ReduceSum and its family.
//
// Unit: one element of y, which is [outer, inner]; x is [outer, axis, inner]. Several neighbouring axes are one axis;
// others are moved there first. `type` (types.h) is float32 for all of `op`; float64, int32 and int64 have sum, max,
// min and prod, float64 also mean. Integers wrap around. An empty axis gives the operation's neutral element.
//
// Float32 sums are accurate for long axes: short blocks are added up first, then the blocks in
// float64.
#include "rows.h"
#include "types.h"

enum { SUM, MEAN, MAX, MIN, PROD, L1, L2, SUM_SQUARE, LOG_SUM, LOG_SUM_EXP };      // 0 to 9

// What is added up, for an element x: SUM, L1, SUM_SQUARE, or LOG_SUM_EXP, whose `shift` is the maximum.
INLINE vf term(int terms, vf x, vf shift) {
    switch (terms) {
    case L1: return vabs(x);
    case SUM_SQUARE: return x * x;
    case LOG_SUM_EXP: return vexp_negative(x - shift);
    default: return x;
    }
}

// The result from what has been added up.
INLINE vf finish(int op, vf total, word n, vf shift) {
    switch (op) {
    case MEAN: return total / (float)n;
    case L2: return vsqrt(total);
    case LOG_SUM: return vlog(total);
    case LOG_SUM_EXP: return vselect(vabs(shift) == INFINITY_F32, shift, vlog(total) + shift);
    default: return total;
    }
}

// Maximum and minimum pass over NaN here (one instruction); `unordered` remembers the lanes that had one.
INLINE vf fold(int op, vf x, vf result, vi *unordered) {
    *unordered |= x != x;
    return op == MAX ? vlarger(x, result) : op == MIN ? vsmaller(x, result) : x * result;
}
INLINE float neutral(int op) { return op == MAX ? -INFINITY_F32 : op == MIN ? INFINITY_F32 : 1.0f; }

INLINE float fold_row(int op, const float *x, word n) {
    vf first = vsplat(neutral(op)), second = first;
    vi unordered = (vi)0;
    word i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        first = fold(op, vload(x + i), first, &unordered);
        second = fold(op, vload(x + i + LANES), second, &unordered);
    }
    for (; i < n; i += LANES)
        first = fold(op, vload_or(x + i, min_word(LANES, n - i), neutral(op)), first, &unordered);
    first = fold(op, first, second, &unordered);
    vf result = vsplat(first[0]);
    for (int k = 1; k < LANES; k++) result = fold(op, vsplat(first[k]), result, &unordered);
    return __builtin_reduce_or(unordered) ? NAN_F32 : result[0];
}

INLINE double sum_row(int terms, const float *x, word n, vf shift) {
    double total = 0;
    SUM_ROW(total, x, n, term(terms, v, shift))
    return total;
}

enum { COLUMN_BLOCK = 64 };  // elements along the axis that are added up before they join the total

INLINE vf fold_columns(int op, const float *x, word n, word stride, word count) {
    vf result = vsplat(neutral(op));
    vi unordered = (vi)0;
    for (word i = 0; i < n; i++) result = fold(op, vload_count(x + i * stride, count), result, &unordered);
    return vselect(unordered, vsplat(NAN_F32), result);
}

INLINE vf sum_columns(int terms, const float *x, word n, word stride, word count, vf shift) {
    vd total = (vd)0.0;
    for (word at = 0; at < n; at += COLUMN_BLOCK) {
        vf block = vsplat(0.0f);
        for (word i = at; i < min_word(n, at + COLUMN_BLOCK); i++)
            block += term(terms, vload_count(x + i * stride, count), shift);
        total += __builtin_convertvector(block, vd);
    }
    return __builtin_convertvector(total, vf);
}

static float reduce_row(int op, const float *x, word n) {
    vf shift = vsplat(0.0f);
    double total;
    switch (op) {
    case MAX: return fold_row(MAX, x, n);
    case MIN: return fold_row(MIN, x, n);
    case PROD: return fold_row(PROD, x, n);
    case L1: total = sum_row(L1, x, n, shift); break;
    case L2:
    case SUM_SQUARE: total = sum_row(SUM_SQUARE, x, n, shift); break;
    case LOG_SUM_EXP:
        shift = vsplat(reduce_row(MAX, x, n));
        total = sum_row(LOG_SUM_EXP, x, n, shift);
        break;
    default: total = sum_row(SUM, x, n, shift);
    }
    if (op == MEAN) return (float)(total / (double)n);
    return finish(op, vsplat((float)total), n, shift)[0];
}

static vf reduce_columns(int op, const float *x, word n, word stride, word count) {
    vf shift = vsplat(0.0f), total;
    switch (op) {
    case MAX: return fold_columns(MAX, x, n, stride, count);
    case MIN: return fold_columns(MIN, x, n, stride, count);
    case PROD: return fold_columns(PROD, x, n, stride, count);
    case L1: total = sum_columns(L1, x, n, stride, count, shift); break;
    case L2:
    case SUM_SQUARE: total = sum_columns(SUM_SQUARE, x, n, stride, count, shift); break;
    case LOG_SUM_EXP:
        shift = reduce_columns(MAX, x, n, stride, count);
        total = sum_columns(LOG_SUM_EXP, x, n, stride, count, shift);
        break;
    default: total = sum_columns(SUM, x, n, stride, count, shift);
    }
    return finish(op, total, n, shift);
}

#define REDUCE_SCALAR(T, WIDE, lowest, highest)                                                       \
    for (word at = begin; at < end; at++) {                                                           \
        const T *x = PTR(const T, a->x) + at / inner * n * inner + at % inner;                        \
        WIDE total = op == PROD ? 1 : op == MAX ? (WIDE)(lowest) : op == MIN ? (WIDE)(highest) : 0;   \
        for (word i = 0; i < n; i++) {                                                                \
            T v = x[i * inner];                                                                       \
            if (op == PROD) total *= (WIDE)v;                                                         \
            else if (op == MAX) total = v > (T)total || v != v ? (WIDE)v : total;                     \
            else if (op == MIN) total = v < (T)total || v != v ? (WIDE)v : total;                     \
            else total += (WIDE)v;                                                                    \
        }                                                                                             \
        PTR(T, a->y)[at] = (T)(op == MEAN ? total / (WIDE)n : total);                                 \
    }                                                                                                 \
    break;

KERNEL(reduce, op, type, x, y, axis, inner) {
    int op = (int)a->op;
    word n = a->axis, inner = a->inner;
    float *y = F32(a->y);
    switch (a->type) {
    case TYPE_F64: REDUCE_SCALAR(double, double, -__builtin_inf(), __builtin_inf())
    case TYPE_I32: REDUCE_SCALAR(int32_t, uint32_t, INT32_MIN, INT32_MAX)
    case TYPE_I64: REDUCE_SCALAR(int64_t, uint64_t, INT64_MIN, INT64_MAX)
    default:
        if (inner == 1) {
            for (word row = begin; row < end; row++) y[row] = reduce_row(op, F32(a->x) + row * n, n);
            break;
        }
        for (word at = begin; at < end;) {
            word outer = at / inner, column = at % inner;
            word count = min_word(LANES, min_word(inner - column, end - at));
            vstore_count(y + at, reduce_columns(op, F32(a->x) + outer * n * inner + column, n, inner, count), count);
            at += count;
        }
    }
}
