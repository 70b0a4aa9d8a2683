// Pooling in any number of dimensions, with what the faster kernels leave out. NumPy twins: ops' MaxPool with Indices,
// MaxPool, AveragePool, LpPool in one to four dimensions.
//
// x is [planes][sizes], y is [planes][outputs], float32. Unit: one element of y. `window` is the address of int64 arrays
// of `rank`, one after the other: sizes, outputs, kernel, strides, dilations, padding at the begin, padding at the end.
// `op` is 0 for the maximum, 1 for the mean over the taps inside (with `include_pad` also over those in the padding),
// 2 for the p-th root of the sum of the p-th powers. NaN in a window gives NaN.
//
// `indices`, if not 0, is the address of as many int64: of each maximum the number of its first element in x; with
// `by_columns` numbered in each plane with the first axis fastest.
#include "vecmath.h"

enum { MAXIMUM, MEAN, POWERS, MOST_AXES = 4 };

static float power(float x, float p) {
    x = __builtin_fabsf(x);
    return p == 1.0f ? x : p == 2.0f ? x * x : vpow(vsplat(x), vsplat(p))[0];
}
static float root(float x, float p) {
    return p == 1.0f ? x : p == 2.0f ? vsqrt(vsplat(x))[0] : vpow(vsplat(x), vsplat(1.0f / p))[0];
}

KERNEL(pool_any, op, x, y, indices, planes, rank, window, include_pad, power, by_columns) {
    const word rank = a->rank, *size = PTR(const word, a->window), *output = size + rank, *kernel = output + rank,
               *stride = kernel + rank, *dilation = stride + rank, *before = dilation + rank, *after = before + rank;
    const float p = as_f32(a->power);
    word plane_size = 1, outputs = 1;
    for (word d = 0; d < rank; d++) plane_size *= size[d], outputs *= output[d];
    for (word u = begin; u < end; u++) {
        const word plane = u / outputs;
        const float *x = F32(a->x) + plane * plane_size;
        word first[MOST_AXES], tap[MOST_AXES], rest = u % outputs, counted = 1, taps = 1;
        for (word d = rank - 1; d >= 0; d--) {
            first[d] = rest % output[d] * stride[d] - before[d];
            rest /= output[d];
            word inside = 0;
            for (word t = 0; t < kernel[d]; t++) {
                const word at = first[d] + t * dilation[d];
                inside += a->include_pad ? at >= -before[d] && at < size[d] + after[d] : at >= 0 && at < size[d];
            }
            counted *= inside;
            taps *= kernel[d];
            tap[d] = 0;
        }
        float result = a->op == MAXIMUM ? -INFINITY_F32 : 0.0f;
        word chosen = -1;
        for (word t = 0; t < taps; t++) {
            word place = 0, number = 0, step = 1;
            int good = 1;
            for (word d = 0; d < rank; d++) {
                const word at = first[d] + tap[d] * dilation[d];
                good &= at >= 0 && at < size[d];
                place = place * size[d] + at;
                number += at * step;
                step *= size[d];
            }
            for (word d = rank - 1; d >= 0 && ++tap[d] == kernel[d]; d--) tap[d] = 0;
            if (!good) continue;
            const float v = x[place];
            if (a->op == MEAN) result += v;
            else if (a->op == POWERS) result += power(v, p);
            else if (chosen < 0 || v > result || (v != v && result == result)) {
                result = v;
                chosen = a->by_columns ? number : place;
            }
        }
        if (a->op == MEAN) result /= (float)counted;
        if (a->op == POWERS) result = root(result, p);
        F32(a->y)[u] = result;
        if (a->indices) PTR(int64_t, a->indices)[u] = plane * plane_size + chosen;
    }
}
