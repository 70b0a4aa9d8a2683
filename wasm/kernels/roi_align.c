// Means or maxima of samples of regions of images. NumPy twin: onnxlet/ops, RoiAlign.
//
// x is [images][channels][h][w], `rois` [regions][4] as x1, y1, x2, y2, y is [regions][channels][oh][ow], float32; `batch`
// (int64) says to which image a region belongs: one outside of them sets the int64 at `error` to 1 + its number, one of
// more than 2^24 samples that at `limit`, and its part of y is left. `samples` is how many there are per output along
// each axis, 0 for as many as the region has elements. Unit: one channel of a region.
#include "vecmath.h"

typedef struct {
    word low, high;
    float weight; // of `high`
    int inside;
} Between;

// Positions up to one element outside are moved to the border; those farther out count as zero.
static Between between(float at, word size) {
    Between b = {0, 0, 0.0f, at >= -1.0f && at <= (float)size};
    if (!b.inside) return b;
    at = f32_max(0.0f, f32_min(at, (float)(size - 1)));
    b.low = (word)at;
    b.high = min_word(b.low + 1, size - 1);
    b.weight = at - (float)b.low;
    return b;
}

KERNEL(roi_align, x, rois, batch, y, images, channels, h, w, oh, ow, samples, scale, half_pixel, maximum, error, limit) {
    const float scale = as_f32(a->scale), shift = a->half_pixel ? 0.5f : 0.0f;
    for (word u = begin; u < end; u++) {
        const word region = u / a->channels, image = PTR(const int64_t, a->batch)[region];
        if (image < 0 || image >= a->images) {
            *PTR(word, a->error) = 1 + region;
            continue;
        }
        const float *plane = F32(a->x) + (image * a->channels + u % a->channels) * a->h * a->w;
        const float *corners = F32(a->rois) + region * 4;
        const float left = corners[0] * scale - shift, top = corners[1] * scale - shift;
        float width = corners[2] * scale - shift - left, height = corners[3] * scale - shift - top;
        if (!a->half_pixel) width = f32_max(width, 1.0f), height = f32_max(height, 1.0f);
        const float tall = a->samples ? (float)a->samples : vceil(vsplat(height / (float)a->oh))[0];
        const float wide = a->samples ? (float)a->samples : vceil(vsplat(width / (float)a->ow))[0];
        if ((double)tall * (double)a->oh * (double)wide * (double)a->ow > 16777216.0) {
            *PTR(word, a->limit) = 1 + region;
            continue;
        }
        const word rows = tall >= 1.0f ? (word)tall : 0, columns = wide >= 1.0f ? (word)wide : 0;
        float *y = F32(a->y) + u * a->oh * a->ow;
        for (word o = 0; o < a->oh * a->ow; o++) {
            float result = a->maximum && rows * columns ? -INFINITY_F32 : 0.0f;
            for (word s = 0; s < rows * columns; s++) {
                const word row = o / a->ow * rows + s / columns, column = o % a->ow * columns + s % columns;
                const float down = ((float)row + 0.5f) / (float)rows / (float)a->oh;
                const float right = ((float)column + 0.5f) / (float)columns / (float)a->ow;
                const Between v = between(top + down * height, a->h), k = between(left + right * width, a->w);
                float terms[4] = {0.0f, 0.0f, 0.0f, 0.0f};
                if (v.inside && k.inside) {
                    terms[0] = plane[v.low * a->w + k.low] * ((1.0f - v.weight) * (1.0f - k.weight));
                    terms[1] = plane[v.low * a->w + k.high] * ((1.0f - v.weight) * k.weight);
                    terms[2] = plane[v.high * a->w + k.low] * (v.weight * (1.0f - k.weight));
                    terms[3] = plane[v.high * a->w + k.high] * (v.weight * k.weight);
                }
                if (a->maximum)
                    for (int t = 0; t < 4; t++) result = f32_max(terms[t], result);
                else result += (terms[0] + terms[1]) + (terms[2] + terms[3]);
            }
            if (!a->maximum && rows * columns) result /= (float)(rows * columns);
            y[o] = result;
        }
    }
}
