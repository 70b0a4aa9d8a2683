// Sampling at positions that a grid gives. NumPy twin: onnxlet/ops, GridSample.
//
// x is [batch][channels][sizes], `grid` is [batch][points][rank], y is [batch][channels][points], float32; `sizes` is
// the address of `rank` (1 to 3) int64. The grid lists the innermost axis first. Unit: one point of an image.
// `mode` is 0 nearest, 1 linear, 2 cubic; `padding` 0 zeros, 1 border, 2 reflection; `corners` is align_corners.
#include "vecmath.h"

enum { NEAREST, LINEAR, CUBIC };
enum { ZEROS, BORDER, REFLECTION };
enum { MOST_AXES = 3, MOST_TAPS = 4 };

#define FAR 1099511627776.0f  // 2^40: positions beyond count as there

// Keys' cubic with a = -0.75.
static float cubic(float distance) {
    const float a = -0.75f, t = __builtin_fabsf(distance);
    if (t <= 1.0f) return ((a + 2.0f) * t - (a + 3.0f)) * t * t + 1.0f;
    return t < 2.0f ? ((a * t - 5.0f * a) * t + 8.0f * a) * t - 4.0f * a : 0.0f;
}

// The element that position `at` reads; -1 where that is none.
static word into_range(word at, word size, word padding, word corners) {
    if (padding == BORDER) return at < 0 ? 0 : min_word(at, size - 1);
    if (padding == REFLECTION) {
        const word period = corners ? 2 * (size - 1) : 2 * size;
        if (period == 0) return 0;
        at %= period;
        if (at < 0) at += period;
        return at < size ? at : (corners ? period : period - 1) - at;
    }
    return at < 0 || at >= size ? -1 : at;
}

KERNEL(grid_sample, x, grid, y, sizes, rank, channels, points, mode, padding, corners) {
    const word rank = a->rank, *size = PTR(const word, a->sizes);
    const word taps = a->mode == NEAREST ? 1 : a->mode == LINEAR ? 2 : 4, before = a->mode == CUBIC;
    word plane = 1, neighbours = 1;
    for (word d = 0; d < rank; d++) plane *= size[d], neighbours *= taps;
    for (word u = begin; u < end; u++) {
        const float *position = F32(a->grid) + u * rank;
        word index[MOST_AXES][MOST_TAPS];
        float weight[MOST_AXES][MOST_TAPS];
        for (word d = 0; d < rank; d++) {
            const float given = position[rank - 1 - d], n = (float)size[d];
            float at = a->corners ? (given + 1.0f) / 2.0f * (n - 1.0f) : ((given + 1.0f) * n - 1.0f) / 2.0f;
            const float base = a->mode == NEAREST ? vrint(vsplat(at))[0] : vfloor(vsplat(at))[0];
            const int finite = base - base == 0.0f;
            const float bounded = !finite ? -2.0f : f32_max(-FAR, f32_min(base, FAR));
            for (word t = 0; t < taps; t++) {
                const float offset = (float)(t - before), distance = base + offset - at;
                index[d][t] = into_range((word)bounded + t - before, size[d], a->padding, a->corners);
                weight[d][t] = a->mode == NEAREST  ? 1.0f
                               : a->mode == LINEAR ? f32_max(1.0f - __builtin_fabsf(distance), 0.0f)
                                                   : cubic(distance);
            }
        }
        const word image = u / a->points;
        const float *x = F32(a->x) + image * a->channels * plane;
        float *y = F32(a->y) + image * a->channels * a->points + u % a->points;
        for (word c = 0; c < a->channels; c++) y[c * a->points] = 0.0f;
        for (word k = 0; k < neighbours; k++) {
            word rest = k, place = 0;
            float w = 1.0f;
            int good = 1;
            word step = 1;
            for (word d = rank - 1; d >= 0; d--, rest /= taps) {
                const word t = rest % taps;
                good &= index[d][t] >= 0;
                place += index[d][t] * step;
                step *= size[d];
                w *= weight[d][t];
            }
            for (word c = 0; c < a->channels; c++) y[c * a->points] += (good ? x[c * plane + place] : 0.0f) * w;
        }
    }
}
