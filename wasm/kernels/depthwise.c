// Depthwise convolution, float32, channels last: each channel has a window of its own. NumPy twin: ops' Conv with as
// many groups as channels.
#include "tile.h"
#include "vecmath.h"

// Packs weights [channels][taps] into blocks of as many channels as a vector has lanes: [channels / LANES][taps][LANES],
// the last block filled up with zeros. `packed` holds round_up(channels, 8) * taps floats. Unit: a channel block.
KERNEL(pack_depthwise, w, packed, channels, taps) {
    for (word block = begin; block < min_word(end, div_up(a->channels, LANES)); block++) {
        float *to = F32(a->packed) + block * a->taps * LANES;
        for (word tap = 0; tap < a->taps; tap++)
            for (word i = 0; i < LANES; i++, to++) {
                word channel = block * LANES + i;
                *to = channel < a->channels ? F32(a->w)[channel * a->taps + tap] : 0.0f;
            }
    }
}

// `zeros` points at zeros for a row of input (w * c floats, at least c). Bias has c floats or is 0.
// Unit: a span of a row of output (batch * oh of them).
KERNEL_ARGUMENTS(depthwise, x, packed, bias, y, batch, h, w, c, oh, ow, kh, kw, stride_h, stride_w, pad_top, pad_left,
                 dilation_h, dilation_w, zeros, activation, low, high)

// One output pixel, with the taps [s0, s1) of each row, for channels from `channel` on. Any size, stride, dilation.
static void pixel(const depthwise_args *a, const float *const *rows, word left, word s0, word s1, const float *bias,
                  float *y, word channel, vf low, vf high) {
    const word taps = a->kh * a->kw, c = a->c;
    for (; channel < c; channel += LANES) {
        const float *weights = F32(a->packed) + channel * taps;
        const word lanes = min_word(LANES, c - channel);
        vf total = lanes == LANES ? vload(bias + channel) : vload_part(bias + channel, lanes);
        for (word r = 0; r < a->kh; r++) {
            if (!rows[r]) continue;
            const float *from = rows[r] + (left + s0 * a->dilation_w) * c + channel;
            for (word s = s0; s < s1; s++, from += a->dilation_w * c) {
                vf x = lanes == LANES ? vload(from) : vload_part(from, lanes);
                total = vmadd(x, vload(weights + (r * a->kw + s) * LANES), total);
            }
        }
        total = vclamp(total, low, high);
        if (lanes == LANES)
            vstore(y + channel, total);
        else
            vstore_part(y + channel, total, lanes);
    }
}

// Neighbouring outputs inside the image, all of whose columns exist; all full blocks of channels.
#if defined(__wasm__)
#define PARAMETERS(rows) rows, ptrdiff_t, const float *, const float *, float *, ptrdiff_t, ptrdiff_t, float, float
#define ROW const float *
#define ROWS_3 ROW, ROW, ROW
#define ROWS_5 ROW, ROW, ROW, ROW, ROW
#define DECLARE(size, stride, width) void depthwise_##size##_##stride##_##width(PARAMETERS(ROWS_##size));
#define STRIP(size, stride, width) \
    static void strip_##size##_##stride##_##width(const float *const *r, word column, const float *weights, \
                                                  const float *bias, float *y, word blocks, word y_column, \
                                                  float low, float high) { \
        depthwise_##size##_##stride##_##width(TAKE_##size, (ptrdiff_t)column * 4, weights, bias, y, \
                                              (ptrdiff_t)blocks, (ptrdiff_t)y_column * 4, low, high); \
    }
#define TAKE_3 r[0], r[1], r[2]
#define TAKE_5 r[0], r[1], r[2], r[3], r[4]
#else
#define DECLARE(size, stride, width)
INLINE void strip(const float *const *rows, word column, const float *weights, const float *bias, float *y,
                  word blocks, word y_column, float low, float high, const int size, const int stride,
                  const int width) {
    const vf lowest = (vf)low, highest = (vf)high;
    for (word block = 0; block < blocks; block++) {
        const word channel = block * LANES;
        const float *w = weights + channel * size * size;
        vf total[8];
        vf start = vload(bias + channel);
        UNROLL for (int i = 0; i < width; i++) total[i] = start;
        UNROLL for (int r = 0; r < size; r++) {
            const float *from = rows[r] + channel;
            UNROLL for (int j = 0; j < (width - 1) * stride + size; j++) {
                vf x = vload(from + j * column);
                UNROLL for (int s = 0; s < size; s++) {
                    const int i = (j - s) / stride;
                    if (j >= s && (j - s) % stride == 0 && i < width)
                        total[i] = vmadd(x, vload(w + (r * size + s) * LANES), total[i]);
                }
            }
        }
        UNROLL for (int i = 0; i < width; i++) vstore(y + channel + i * y_column, vclamp(total[i], lowest, highest));
    }
}
#define STRIP(size, stride, width) \
    static NOINLINE void strip_##size##_##stride##_##width(const float *const *r, word column, const float *weights, \
                                                           const float *bias, float *y, word blocks, word y_column, \
                                                           float low, float high) { \
        strip(r, column, weights, bias, y, blocks, y_column, low, high, size, stride, width); \
    }
#endif

#define WIDTH 4
#define FOR_ALL(DO) DO(3, 1, 4) DO(3, 1, 1) DO(3, 2, 4) DO(3, 2, 1) DO(5, 1, 4) DO(5, 1, 1) DO(5, 2, 4) DO(5, 2, 1)
FOR_ALL(DECLARE)
FOR_ALL(STRIP)
typedef void Strip(const float *const *, word, const float *, const float *, float *, word, word, float, float);
typedef struct {
    Strip *wide, *single;
} Strips;
static const Strips strips[2][2] = {{{strip_3_1_4, strip_3_1_1}, {strip_3_2_4, strip_3_2_1}},
                                    {{strip_5_1_4, strip_5_1_1}, {strip_5_2_4, strip_5_2_1}}};

#define MAX_ROWS 64  // taller windows read their rows' addresses from scratch

KERNEL_BODY(depthwise) {
    const word c = a->c, full = c / LANES;
    const int activation = (int)a->activation, clamp = activation == 1;
    const float low = clamp ? as_f32(a->low) : -__builtin_inff(), high = clamp ? as_f32(a->high) : __builtin_inff();
    const float *zeros = F32(a->zeros), *bias = a->bias ? F32(a->bias) : zeros;
    const int fast = (a->kh == 3 || a->kh == 5) && a->kw == a->kh && a->dilation_w == 1 && full > 0 &&
                     (a->stride_w == 1 || a->stride_w == 2);
    const Strips *strip_pair = fast ? &strips[a->kh == 5][a->stride_w - 1] : 0;
    const float *near[MAX_ROWS];
    const float **rows = a->kh <= MAX_ROWS ? near : (const float **)scratch;
    while (begin < end) {
        const Span span = next_span(a->ow, SPAN, &begin, end);
        const word image = span.row / a->oh, top = span.row % a->oh * a->stride_h - a->pad_top;
        const float *x = F32(a->x) + image * a->h * a->w * c;
        float *y = F32(a->y) + span.row * a->ow * c;
        for (word r = 0; r < a->kh; r++) {
            const word row = top + r * a->dilation_h;
            rows[r] = row < 0 || row >= a->h ? 0 : x + row * a->w * c;
        }
        // Outputs [first, last) have all their columns inside the image.
        const word reach = (a->kw - 1) * a->dilation_w;
        const word room = a->w - 1 - reach + a->pad_left;
        const word first = min_word(a->ow, div_up(max_word(a->pad_left, 0), a->stride_w));
        const word last = room < 0 ? first : max_word(first, min_word(a->ow, room / a->stride_w + 1));
        word o = span.from;
        while (o < span.to) {
            const word left = o * a->stride_w - a->pad_left;
            if (fast && o >= first && o < last) {
                const word width = min_word(last, span.to) - o >= WIDTH ? WIDTH : 1;
                const float *starts[5];
                for (word r = 0; r < a->kh; r++) starts[r] = rows[r] ? rows[r] + left * c : zeros;
                (width == WIDTH ? strip_pair->wide : strip_pair->single)(starts, c, F32(a->packed), bias, y + o * c,
                                                                         full, c, low, high);
                if (full * LANES < c)
                    for (word i = 0; i < width; i++)
                        pixel(a, rows, left + i * a->stride_w, 0, a->kw, bias, y + (o + i) * c, full * LANES, (vf)low,
                              (vf)high);
                o += width;
                continue;
            }
            word s0 = left < 0 ? div_up(-left, a->dilation_w) : 0;
            word s1 = left >= a->w ? 0 : min_word(a->kw, div_up(a->w - left, a->dilation_w));
            pixel(a, rows, left, s0, max_word(s0, s1), bias, y + o * c, 0, (vf)low, (vf)high);
            o++;
        }
        if (activation > 1)
            activate_block(y + span.from * c, c, span.to - span.from, c, activation, as_f32(a->low), as_f32(a->high));
    }
}
