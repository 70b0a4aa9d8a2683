// Normalisation, float32. NumPy twins: onnxlet/ops, LayerNormalization, RMSNormalization, GroupNormalization,
// InstanceNormalization, BatchNormalization. `epsilon` is float32 bits.
#include "activation.h"
#include "rows.h"

static NOINLINE double row_sum(const float *x, word n) {
    double total = 0;
    SUM_ROW(total, x, n, v)
    return total;
}

// Sum of (x - mean)^2.
static NOINLINE double row_deviation(const float *x, word n, float mean) {
    double total = 0;
    SUM_ROW(total, x, n, (v - mean) * (v - mean))
    return total;
}

// y = x + residual
static void add_rows(const float *x, const float *residual, float *y, word n) {
    word i = 0;
    for (; i + LANES <= n; i += LANES) vstore(y + i, vload(x + i) + vload(residual + i));
    for (; i < n; i++) y[i] = x[i] + residual[i];
}

// y = (x - mean) * factor * scale + bias, where scale and bias are rows or absent.
static void normalize_row(const float *x, float *y, word n, float mean, float factor, const float *scale,
                          const float *bias) {
    word i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf v = (vload(x + i) - mean) * factor;
        if (scale) v *= vload(scale + i);
        if (bias) v += vload(bias + i);
        vstore(y + i, v);
    }
    for (; i < n; i++) y[i] = (x[i] - mean) * factor * (scale ? scale[i] : 1.0f) + (bias ? bias[i] : 0.0f);
}

// Unit: one row of n. y = (t - mean t) / sqrt(var t + epsilon) * scale + bias with t = x + residual. `residual`,
// `scale` and `bias` may be absent (0). With a residual, t is written to `total` (which may be x or residual); without,
// total is not used. `mean` and `inverse` get the mean and 1 / sqrt(var + epsilon) of each row where they are not 0.
KERNEL(layer_norm, x, residual, total, scale, bias, y, n, epsilon, mean, inverse) {
    word n = a->n;
    for (word row = begin; row < end; row++) {
        const float *x = F32(a->x) + row * n;
        if (a->residual) {
            float *total = F32(a->total) + row * n;
            add_rows(x, F32(a->residual) + row * n, total, n);
            x = total;
        }
        float mean = (float)(row_sum(x, n) / (double)n);
        float variance = (float)(row_deviation(x, n, mean) / (double)n);
        float inverse = 1.0f / f32_sqrt(variance + as_f32(a->epsilon));
        normalize_row(x, F32(a->y) + row * n, n, mean, inverse, F32(a->scale), F32(a->bias));
        if (a->mean) F32(a->mean)[row] = mean;
        if (a->inverse) F32(a->inverse)[row] = inverse;
    }
}

// Unit: one row of n. y = t / sqrt(mean(t^2) + epsilon) * scale with t = x + residual, as in layer_norm.
KERNEL(rms_norm, x, residual, total, scale, y, n, epsilon) {
    word n = a->n;
    for (word row = begin; row < end; row++) {
        const float *x = F32(a->x) + row * n;
        if (a->residual) {
            float *total = F32(a->total) + row * n;
            add_rows(x, F32(a->residual) + row * n, total, n);
            x = total;
        }
        float square = (float)(row_deviation(x, n, 0.0f) / (double)n);
        normalize_row(x, F32(a->y) + row * n, n, 0.0f, 1.0f / f32_sqrt(square + as_f32(a->epsilon)), F32(a->scale), 0);
    }
}

// Unit: one group of one image; x and y are [image, channels, spatial] (NCHW). `scale` and `bias` hold one value per
// channel, or are absent (0). With as many groups as channels this is instance normalisation.
KERNEL(group_norm, x, scale, bias, y, channels, groups, spatial, epsilon) {
    word members = a->channels / a->groups, n = members * a->spatial;
    for (word group = begin; group < end; group++) {
        const float *x = F32(a->x) + group * n;
        float *y = F32(a->y) + group * n;
        float mean = (float)(row_sum(x, n) / (double)n);
        float variance = (float)(row_deviation(x, n, mean) / (double)n);
        float inverse = 1.0f / f32_sqrt(variance + as_f32(a->epsilon));
        for (word m = 0; m < members; m++, x += a->spatial, y += a->spatial) {
            word channel = group % a->groups * members + m;
            vf factor = vsplat(inverse * (a->scale ? F32(a->scale)[channel] : 1.0f));
            vf shift = vsplat(a->bias ? F32(a->bias)[channel] : 0.0f);
            word i = 0;
            for (; i + LANES <= a->spatial; i += LANES) vstore(y + i, vmadd(vload(x + i) - mean, factor, shift));
            if (i < a->spatial) {
                word rest = a->spatial - i;
                vstore_part(y + i, vmadd(vload_part(x + i, rest) - mean, factor, shift), rest);
            }
        }
    }
}

// y = x * scale[channel] + shift[channel], then the activation (vecmath.h): batch normalisation whose statistics are
// folded into scale and shift, and every multiplication or addition by channel. Either may be absent (0). Unit: one
// plane of `inner` elements (NCHW, inner = H W), or, where inner is 1, one pixel of `channels` elements (NHWC).
KERNEL_ARGUMENTS(scale_shift, x, scale, shift, y, channels, inner, activation, low, high)

// y = x * factor + offset, elementwise.
static void scale_plane(const float *x, float *y, word n, float factor, float offset) {
    word i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES)
        UNROLL for (int k = 0; k < 4; k++)
            vstore(y + i + k * LANES, vmadd(vload(x + i + k * LANES), vsplat(factor), vsplat(offset)));
    for (; i + LANES <= n; i += LANES) vstore(y + i, vmadd(vload(x + i), vsplat(factor), vsplat(offset)));
    if (i < n) vstore_part(y + i, vmadd(vload_part(x + i, n - i), vsplat(factor), vsplat(offset)), n - i);
}

// y = x * factors + offsets, elementwise; either may be absent.
static void scale_pixel(const float *x, float *y, word n, const float *factors, const float *offsets) {
    word i = 0;
    if (factors && offsets) {
        for (; i + LANES <= n; i += LANES) vstore(y + i, vmadd(vload(x + i), vload(factors + i), vload(offsets + i)));
    } else if (factors) {
        for (; i + LANES <= n; i += LANES) vstore(y + i, vload(x + i) * vload(factors + i));
    } else if (offsets)
        for (; i + LANES <= n; i += LANES) vstore(y + i, vload(x + i) + vload(offsets + i));
    for (; i < n; i++) y[i] = x[i] * (factors ? factors[i] : 1.0f) + (offsets ? offsets[i] : 0.0f);
}

KERNEL_BODY(scale_shift) {
    const word planes = a->inner > 1, length = planes ? a->inner : a->channels;
    const float *scale = F32(a->scale), *shift = F32(a->shift);
    vf low = vsplat(as_f32(a->low)), high = vsplat(as_f32(a->high));
    for (word row = begin; row < end; row++) {
        const float *x = F32(a->x) + row * length;
        float *y = F32(a->y) + row * length;
        const word channel = row % a->channels;
        if (planes) scale_plane(x, y, length, scale ? scale[channel] : 1.0f, shift ? shift[channel] : 0.0f);
        else scale_pixel(x, y, length, scale, shift);
        if (a->activation) activate_all(y, length, (int)a->activation, low, high);
    }
}
