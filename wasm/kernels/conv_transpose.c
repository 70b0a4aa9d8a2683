// Transposed convolution, float32, channels last: a matrix product gives what every input pixel adds to its window of
// the output, and `gather_windows` sums that up per output pixel. NumPy twin: ops' ConvTranspose.
#include "tile.h"

// Packs weights [groups * ic][oc][taps], as ONNX has them, into per group a B of ic rows and taps * oc columns, with taps
// slower than channels. `panels` holds groups * round_up(taps * oc, 8) * ic floats. Unit: a panel of a group.
KERNEL(pack_conv_transpose, w, panels, groups, ic, oc, taps) {
    const word columns = a->taps * a->oc, per_group = div_up(columns, PANEL);
    for (word u = begin; u < end; u++) {
        const float *from = F32(a->w) + u / per_group * a->ic * columns;
        float *to = F32(a->panels) + u * a->ic * PANEL;
        for (word k = 0; k < a->ic; k++, from += columns)
            for (word i = 0; i < PANEL; i++, to++) {
                const word n = u % per_group * PANEL + i;
                *to = n < columns ? from[n % a->oc * a->taps + n / a->oc] : 0.0f;
            }
    }
}

// y[oy][ox] = activation(bias + sum of parts[iy * w + ix][group][tap]) over all taps (r, s) and inputs with
// iy * stride_h + r * dilation_h - pad_top = oy, and alike for columns, and for layers in three dimensions (d, od, kd).
// Parts are [batch * d * h * w][groups][taps][oc]; y is [batch][od][oh][ow][groups * oc]; bias has groups * oc floats or
// is 0. Unit: a span of a row of output (batch * od * oh).
KERNEL(gather_windows, parts, bias, y, batch, d, h, w, od, oh, ow, oc, groups, kd, kh, kw, stride_d, stride_h, stride_w,
       pad_front, pad_top, pad_left, dilation_d, dilation_h, dilation_w, activation, low, high) {
    const word oc = a->oc, channels = a->groups * oc, taps = a->kd * a->kh * a->kw, pixel = a->groups * taps * oc;
    while (begin < end) {
        const Span span = next_span(a->ow, SPAN, &begin, end);
        const word layer_at = span.row / a->oh % a->od + a->pad_front, row_at = span.row % a->oh + a->pad_top;
        const float *parts = F32(a->parts) + span.row / a->oh / a->od * a->d * a->h * a->w * pixel;
        float *line = F32(a->y) + span.row * a->ow * channels;
        for (word o = span.from; o < span.to; o++) {
            float *y = line + o * channels;
            for (word i = 0; i < channels; i++) y[i] = a->bias ? F32(a->bias)[i] : 0.0f;
            for (word t = 0; t < a->kd * a->kh; t++) {
                const word layer = layer_at - t / a->kh * a->dilation_d, row = row_at - t % a->kh * a->dilation_h;
                if (layer < 0 || layer % a->stride_d || layer / a->stride_d >= a->d) continue;
                if (row < 0 || row % a->stride_h || row / a->stride_h >= a->h) continue;
                const word source = (layer / a->stride_d * a->h + row / a->stride_h) * a->w;
                for (word s = 0; s < a->kw; s++) {
                    const word column = o + a->pad_left - s * a->dilation_w;
                    if (column < 0 || column % a->stride_w || column / a->stride_w >= a->w) continue;
                    const float *from = parts + (source + column / a->stride_w) * pixel + (t * a->kw + s) * oc;
                    for (word g = 0; g < a->groups; g++, from += taps * oc) {
                        float *to = y + g * oc;
                        word i = 0;
                        for (; i + LANES <= oc; i += LANES) vstore(to + i, vload(to + i) + vload(from + i));
                        for (; i < oc; i++) to[i] += from[i];
                    }
                }
            }
        }
        if (a->activation)
            activate_block(line + span.from * channels, channels, span.to - span.from, channels, (int)a->activation,
                           as_f32(a->low), as_f32(a->high));
    }
}
