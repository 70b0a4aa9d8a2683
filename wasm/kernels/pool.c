// Pooling, float32, channels last. NumPy twins: ops' MaxPool, AveragePool, GlobalAveragePool, GlobalMaxPool.
// NaN in a window gives NaN.
#include "pool.h"
#include "vecmath.h"

#define INFINITE __builtin_inff()

// The maximum of each window; -inf where it lies outside the image altogether. Unit: a span of a row of output (batch * oh).
KERNEL(pool_max, x, y, batch, h, w, c, oh, ow, kh, kw, stride_h, stride_w, pad_top, pad_left, dilation_h, dilation_w) {
    const word c = a->c, right = a->dilation_w * c, down = a->dilation_h * a->w * c;
    while (begin < end) {
        const Span span = next_span(a->ow, SPAN, &begin, end);
        const float *x = F32(a->x) + span.row / a->oh * a->h * a->w * c;
        const word top = span.row % a->oh * a->stride_h - a->pad_top;
        const Range rows = inside(top, a->kh, a->dilation_h, a->h);
        for (word o = span.from; o < span.to; o++) {
            const word left = o * a->stride_w - a->pad_left;
            const Range columns = inside(left, a->kw, a->dilation_w, a->w);
            const word corner = ((top + rows.from * a->dilation_h) * a->w + left + columns.from * a->dilation_w) * c;
            float *y = F32(a->y) + (span.row * a->ow + o) * c;
            for (word i = 0; i < c; i += LANES) {
                const word lanes = min_word(LANES, c - i);
                vf best = (vf)-INFINITE;
                const float *row = x + corner + i;
                for (word r = rows.from; r < rows.to; r++, row += down) {
                    const float *from = row;
                    for (word s = columns.from; s < columns.to; s++, from += right)
                        best = vmax(best, lanes == LANES ? vload(from) : vload_part(from, lanes));
                }
                if (lanes == LANES)
                    vstore(y + i, best);
                else
                    vstore_part(y + i, best, lanes);
            }
        }
    }
}

// The mean of each window, over the taps inside the image, or with `include_pad` over those inside the image padded to
// (pad_top + h + pad_bottom) x (pad_left + w + pad_right). Unit: a span of a row of output (batch * oh).
KERNEL(pool_average, x, y, batch, h, w, c, oh, ow, kh, kw, stride_h, stride_w, pad_top, pad_left, pad_bottom, pad_right,
       dilation_h, dilation_w, include_pad) {
    const word c = a->c, right = a->dilation_w * c, down = a->dilation_h * a->w * c;
    while (begin < end) {
        const Span span = next_span(a->ow, SPAN, &begin, end);
        const float *x = F32(a->x) + span.row / a->oh * a->h * a->w * c;
        const word top = span.row % a->oh * a->stride_h - a->pad_top;
        const Range rows = inside(top, a->kh, a->dilation_h, a->h);
        const Range tall = inside(top + a->pad_top, a->kh, a->dilation_h, a->pad_top + a->h + a->pad_bottom);
        for (word o = span.from; o < span.to; o++) {
            const word left = o * a->stride_w - a->pad_left;
            const Range columns = inside(left, a->kw, a->dilation_w, a->w);
            const Range wide = inside(left + a->pad_left, a->kw, a->dilation_w, a->pad_left + a->w + a->pad_right);
            const word count = a->include_pad ? (tall.to - tall.from) * (wide.to - wide.from)
                                              : (rows.to - rows.from) * (columns.to - columns.from);
            const word corner = ((top + rows.from * a->dilation_h) * a->w + left + columns.from * a->dilation_w) * c;
            const vf divisor = (vf)(float)count;
            float *y = F32(a->y) + (span.row * a->ow + o) * c;
            for (word i = 0; i < c; i += LANES) {
                const word lanes = min_word(LANES, c - i);
                vf total = (vf)0.0f;
                const float *row = x + corner + i;
                for (word r = rows.from; r < rows.to; r++, row += down) {
                    const float *from = row;
                    for (word s = columns.from; s < columns.to; s++, from += right)
                        total += lanes == LANES ? vload(from) : vload_part(from, lanes);
                }
                total /= divisor;
                if (lanes == LANES)
                    vstore(y + i, total);
                else
                    vstore_part(y + i, total, lanes);
            }
        }
    }
}

#define CHANNEL_BLOCK 32
#define RUN 64  // pixels that are summed on their own: the error grows with the longest chain of additions

// Mean (or with `maximum` the largest) over all `pixels` of each channel. Unit: 32 channels of an image
// (batch * ceil(c / 32)).
KERNEL(global_pool, x, y, batch, pixels, c, maximum) {
    const word blocks = div_up(a->c, CHANNEL_BLOCK), c = a->c;
    for (word u = begin; u < end; u++) {
        const word first = u % blocks * CHANNEL_BLOCK, stop = min_word(c, first + CHANNEL_BLOCK);
        const float *x = F32(a->x) + u / blocks * a->pixels * c;
        float *y = F32(a->y) + u / blocks * c;
        for (word i = first; i < stop; i += LANES) {
            const word lanes = min_word(LANES, stop - i);
            const float *from = x + i;
            vf result = (vf)(a->maximum ? -INFINITE : 0.0f);
            for (word p = 0; p < a->pixels;) {
                vf run = result;
                if (!a->maximum) run = (vf)0.0f;
                for (word until = min_word(a->pixels, p + RUN); p < until; p++, from += c) {
                    vf v = lanes == LANES ? vload(from) : vload_part(from, lanes);
                    run = a->maximum ? vmax(run, v) : run + v;
                }
                result = a->maximum ? run : result + run;
            }
            if (!a->maximum) result /= (vf)(float)a->pixels;
            if (lanes == LANES)
                vstore(y + i, result);
            else
                vstore_part(y + i, result, lanes);
        }
    }
}
