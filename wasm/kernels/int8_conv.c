// Convolutions of 8-bit integers, channels last, exact in int32. NumPy twins: onnxlet/ops, QLinearConv and ConvInteger.
//
// Input and output are [batch][height][width][channels]. A convolution is a matrix product (int8.h) whose rows of A are
// gathered: per output pixel the bytes of its window, with the zero point where the window is outside of the image.
#include "int8.h"

typedef uint8_t b16 __attribute__((ext_vector_type(16), aligned(1), may_alias));

// These write up to 15 bytes too many; copy also reads as many.
INLINE void copy_bytes(uint8_t *to, const uint8_t *from, word count) {
    for (word i = 0; i < count; i += 16) *(b16 *)(to + i) = *(const b16 *)(from + i);
}
INLINE int of_bytes(word type) { return type == TYPE_I8 || type == TYPE_U8; }
INLINE void fill_bytes(uint8_t *to, uint8_t value, word count) {
    for (word i = 0; i < count; i += 16) *(b16 *)(to + i) = (b16)value;
}

// `batch` images of h x w pixels of `type`, x_step bytes apart, of which each group takes c; output pixels y_step
// elements apart, of which each group gives oc. `x_zero` is the address of x's zero point, or 0. Weights are packed by
// pack_b_int8: a matrix [taps][c] x [oc] for each group. y is int32 (sums + addend), float32 (activation of these times
// `scale` plus bias), int8 or uint8 (these times `scale`, rounded, plus the zero point at `y_zero`, saturated).
// `scales` is 1 or groups * oc, addend (int32) and bias (float32) have groups * oc elements or are 0.
// Scratch: pieces.int8_scratch(taps * c). Units: groups * count_pieces(batch * oh * ow, oc).
KERNEL_ARGUMENTS(conv_int8, x, type, x_step, x_zero, panels, columns, y, y_step, y_type, scale, scales, addend, y_zero,
                 bias, activation, low, high, batch, h, w, c, oh, ow, oc, groups, kh, kw, stride_h, stride_w, pad_top,
                 pad_left, dilation_h, dilation_w)

// The window of output pixel m, for the channels from x on.
static void gather(const conv_int8_args *a, const uint8_t *x, word m, uint8_t zero, uint8_t *to) {
    const word plane = a->oh * a->ow, n = m / plane, p = m % plane, line = a->w * a->x_step;
    const word top = p / a->ow * a->stride_h - a->pad_top, left = p % a->ow * a->stride_w - a->pad_left;
    const word run = a->kw * a->c;
    const int joined = a->dilation_w == 1 && a->c == a->x_step;  // a row of the window is one run of bytes
    x += n * a->h * line;
    for (word r = 0; r < a->kh; r++, to += run) {
        const word row = top + r * a->dilation_h;
        if (row < 0 || row >= a->h) {
            fill_bytes(to, zero, run);
            continue;
        }
        const uint8_t *from = x + row * line;
        if (joined) {
            const word first = min_word(a->kw, max_word(0, -left)), end = max_word(first, min_word(a->kw, a->w - left));
            fill_bytes(to, zero, first * a->c);
            copy_bytes(to + first * a->c, from + (left + first) * a->c, (end - first) * a->c);
            fill_bytes(to + end * a->c, zero, run - end * a->c);
        } else {
            for (word s = 0, column = left; s < a->kw; s++, column += a->dilation_w) {
                if ((uint64_t)column < (uint64_t)a->w) copy_bytes(to + s * a->c, from + column * a->x_step, a->c);
                else fill_bytes(to + s * a->c, zero, a->c);
            }
        }
    }
}

KERNEL_BODY(conv_int8) {
    const word pixels = a->batch * a->oh * a->ow, depth = a->kh * a->kw * a->c, per_group = div_up(a->oc, PANEL);
    const word pieces = count_pieces(pixels, a->oc);
    const word row = ROUND_UP(depth, 16) + 32;
    const int whole = a->kh * a->kw == 1 && a->stride_h == 1 && a->stride_w == 1 && !a->pad_top && !a->pad_left &&
                      a->oh == a->h && a->ow == a->w;
    const Block block = block_of(scratch, depth, a->type, a->x_zero);
    while (begin < end) {
        const word group = begin / pieces, before = group * pieces;
        word first = begin - before;
        const Piece p = next_piece(pixels, a->oc, &first, min_word(pieces, end - before));
        const int8_t *panels = PTR(const int8_t, a->panels) + group * per_group * PANEL_BYTES(depth);
        const Columns *columns = PTR(const Columns, a->columns) + group * per_group;
        const uint8_t *x = PTR(const uint8_t, a->x) + group * a->c;
        const Result result = {
            .c = a->y + group * a->oc * type_size(a->y_type), .ldc = a->y_step, .type = a->y_type,
            .scale = F32(a->scale) + (a->scales > 1 ? group * a->oc : 0), .scale_step = a->scales > 1,
            .addend = a->addend ? PTR(const int32_t, a->addend) + group * a->oc : 0,
            .bias = a->bias ? F32(a->bias) + group * a->oc : 0,
            .zero = of_bytes(a->y_type) ? zero_at(a->y_type, a->y_zero) : 0, .activation = (int)a->activation,
            .low = as_f32(a->low), .high = as_f32(a->high),
        };
        const unsigned formats = formats_of(columns, p.n0, p.n1);
        for (word m = p.m0; m < p.m1; m += INT8_BLOCK) {
            const word rows = min_word(INT8_BLOCK, p.m1 - m);
            for (word i = 0; i < rows; i += QUARTET) {
                const uint8_t *four[QUARTET];
                for (word r = 0; r < QUARTET; r++) {
                    const word pixel = m + min_word(i + r, rows - 1);
                    four[r] = whole ? x + pixel * a->x_step : block.gathered + r * row;
                    if (!whole) gather(a, x, pixel, (uint8_t)block.zero, block.gathered + r * row);
                }
                block_fill(&block, i, four, formats);
            }
            block_multiply(&block, rows, panels, columns, &result, m, p.n0, p.n1);
        }
        begin = before + first;
    }
}

// Depthwise: each channel has a window of its own. Two taps at a time go through the machine's 16-bit dot product.

typedef int16_t vs __attribute__((ext_vector_type(2 * LANES)));
typedef uint8_t vb __attribute__((ext_vector_type(2 * LANES)));
typedef int8_t vc __attribute__((ext_vector_type(2 * LANES)));
typedef vb vb_unaligned __attribute__((aligned(1), may_alias));
typedef vs vs_unaligned __attribute__((aligned(2), may_alias));
typedef uint32_t vu __attribute__((ext_vector_type(LANES)));
enum { CHANNELS = 2 * LANES };  // in a block

// The elements of a and b in turn, half of them; x86 has instructions that do so within 128 bits.
#if LANES == 8
#define LOW_HALVES(a, b) \
    __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 8, 24, 9, 25, 10, 26, 11, 27)
#define HIGH_HALVES(a, b) \
    __builtin_shufflevector(a, b, 4, 20, 5, 21, 6, 22, 7, 23, 12, 28, 13, 29, 14, 30, 15, 31)
#define LOW_CHANNEL(i) ((i) % 4 + (i) / 4 * 8)
#define FIRST_SUMS(low, high) __builtin_shufflevector(low, high, 0, 1, 2, 3, 8, 9, 10, 11)
#define LAST_SUMS(low, high) __builtin_shufflevector(low, high, 4, 5, 6, 7, 12, 13, 14, 15)
#else
#define LOW_HALVES(a, b) __builtin_shufflevector(a, b, 0, 8, 1, 9, 2, 10, 3, 11)
#define HIGH_HALVES(a, b) __builtin_shufflevector(a, b, 4, 12, 5, 13, 6, 14, 7, 15)
#define LOW_CHANNEL(i) (i)
#define FIRST_SUMS(low, high) (low)
#define LAST_SUMS(low, high) (high)
#endif

// Packs weights [channels][taps] of `type`, less their zero points (as pack_b_int8 has them), into blocks of channels:
// [channels / CHANNELS][(taps + 1) / 2][2 halves][LANES][2 taps], int16. `sums` are those of a channel's weights, for
// round_up(channels, CHANNELS) channels. `packed` holds 2 * round_up(channels, 16) * round_up(taps, 2) bytes.
// Unit: a channel block.
KERNEL(pack_depthwise_int8, w, type, zero, zeros, packed, sums, channels, taps) {
    const word pairs = div_up(a->taps, 2);
    for (word block = begin; block < min_word(end, div_up(a->channels, CHANNELS)); block++) {
        int16_t *to = PTR(int16_t, a->packed) + block * pairs * 2 * CHANNELS;
        int32_t *sums = PTR(int32_t, a->sums) + block * CHANNELS;
        for (word i = 0; i < CHANNELS; i++) sums[i] = 0;
        for (word pair = 0; pair < pairs; pair++)
            for (word half = 0; half < 2; half++)
                for (word i = 0; i < LANES; i++)
                    for (word tap = 2 * pair; tap < 2 * pair + 2; tap++) {
                        const word in_block = LOW_CHANNEL(i) + half * 4, channel = block * CHANNELS + in_block;
                        int value = 0;
                        if (channel < a->channels && tap < a->taps) {
                            const uint8_t raw = PTR(const uint8_t, a->w)[channel * a->taps + tap];
                            const word z = a->zeros > 1 ? channel : 0;
                            value = a->type == TYPE_I8 ? (int8_t)raw : raw;
                            value -= zero_at(a->type, a->zeros ? a->zero + z : 0);
                        }
                        sums[in_block] += value;
                        *to++ = (int16_t)value;
                    }
    }
}

INLINE vi dot_pairs(vs a, vs b) {
#if defined(__wasm__)
    return (vi)wasm_i32x4_dot_i16x8((v128_t)a, (v128_t)b);
#elif defined(__AVX2__)
    return (vi)__builtin_ia32_pmaddwd256(a, b);
#elif defined(__x86_64__)
    return (vi)__builtin_ia32_pmaddwd128(a, b);
#else
    return __builtin_convertvector(a.even, vi) * __builtin_convertvector(b.even, vi) +
           __builtin_convertvector(a.odd, vi) * __builtin_convertvector(b.odd, vi);
#endif
}

// As conv_int8, with c channels, each of which has a window of its own; weights from pack_depthwise_int8. `scales` is 1
// or c. Up to 64 bytes beyond scales, addends and biases are read. Scratch: 16 * round_up(kh * kw, 2) + round_up(c, 16)
// + 16 bytes. Unit: a span of a row of output (batch * oh).
KERNEL_ARGUMENTS(depthwise_int8, x, type, x_zero, packed, sums, y, y_type, scale, scales, addend, y_zero, bias,
                 activation, low, high, batch, h, w, c, oh, ow, kh, kw, stride_h, stride_w, pad_top, pad_left,
                 dilation_h, dilation_w)

INLINE vs widened(const uint8_t *from, int is_signed) {
    vb bytes = *(const vb_unaligned *)from;
    return is_signed ? __builtin_convertvector((vc)bytes, vs) : __builtin_convertvector(bytes, vs);
}

INLINE void depthwise_pixel(const depthwise_int8_args *a, const uint8_t *const *taps, word at, int32_t zero,
                            const Rounding *rounding, const int is_signed) {
    const word pairs = div_up(a->kh * a->kw, 2);
    const int16_t *weights = PTR(const int16_t, a->packed);
    for (word channel = 0; channel < a->c; channel += CHANNELS) {
        vi low = (vi)0, high = (vi)0;
        for (word pair = 0; pair < pairs; pair++, weights += 2 * CHANNELS) {
            vs one = widened(taps[2 * pair] + channel, is_signed);
            vs other = widened(taps[2 * pair + 1] + channel, is_signed);
            low += dot_pairs(LOW_HALVES(one, other), *(const vs_unaligned *)weights);
            high += dot_pairs(HIGH_HALVES(one, other), *(const vs_unaligned *)(weights + CHANNELS));
        }
        vu total[2] = {(vu)FIRST_SUMS(low, high), (vu)LAST_SUMS(low, high)};
        vi bytes[2];
        UNROLL for (int j = 0; j < 2; j++) {
            const word first = channel + j * LANES, count = max_word(0, min_word(LANES, a->c - first));
            total[j] -= (vu)vload_i(PTR(const int32_t, a->sums) + first) * (uint32_t)zero;
            if (a->addend) total[j] += (vu)vload_i(PTR(const int32_t, a->addend) + first);
            if (a->y_type == TYPE_I32) {
                vstore_count(F32(a->y) + at + first, (vf)total[j], count);
            } else {
                vf scale = a->scales > 1 ? vload(F32(a->scale) + first) : vsplat(*F32(a->scale));
                vf value = __builtin_convertvector((vi)total[j], vf) * scale;
                if (a->y_type == TYPE_F32) {
                    if (a->bias) value += vload(F32(a->bias) + first);
                    vstore_count(F32(a->y) + at + first, value, count);
                } else {
                    bytes[j] = rounded(value, rounding);
                }
            }
        }
        if (!of_bytes(a->y_type)) continue;
        UNROLL for (int j = 0; j < 2; j += PER_PANEL) {
            const word first = channel + j * LANES, count = max_word(0, min_word(PANEL, a->c - first));
            store_bytes(PTR(uint8_t, a->y) + at + first, bytes + j, count, a->y_type == TYPE_I8);
        }
    }
}

KERNEL_BODY(depthwise_int8) {
    const int32_t zero = zero_at(a->type, a->x_zero);
    const word count = a->kh * a->kw, line = a->w * a->c;
    const uint8_t **taps = (const uint8_t **)scratch;
    uint8_t *outside = (uint8_t *)(taps + ROUND_UP(count, 2));  // a pixel of zero points
    fill_bytes(outside, (uint8_t)zero, ROUND_UP(a->c, 16) + 16);
    taps[ROUND_UP(count, 2) - 1] = outside;
    const int32_t y_zero = of_bytes(a->y_type) ? zero_at(a->y_type, a->y_zero) : 0;
    const Rounding rounding = rounding_to(a->y_type == TYPE_I8, y_zero);
    while (begin < end) {
        const Span span = next_span(a->ow, SPAN, &begin, end);
        const uint8_t *image = PTR(const uint8_t, a->x) + span.row / a->oh * a->h * line;
        const word top = span.row % a->oh * a->stride_h - a->pad_top;
        for (word pixel = span.from; pixel < span.to; pixel++) {
            const word left = pixel * a->stride_w - a->pad_left;
            for (word r = 0, tap = 0; r < a->kh; r++) {
                const word row = top + r * a->dilation_h;
                const int inside = row >= 0 && row < a->h;
                for (word s = 0, column = left; s < a->kw; s++, column += a->dilation_w)
                    taps[tap++] =
                        inside && (uint64_t)column < (uint64_t)a->w ? image + row * line + column * a->c : outside;
            }
            const word at = (span.row * a->ow + pixel) * a->c;
            if (a->type == TYPE_I8) depthwise_pixel(a, taps, at, zero, &rounding, 1);
            else depthwise_pixel(a, taps, at, zero, &rounding, 0);
        }
        if (a->activation)
            activate_block(F32(a->y) + (span.row * a->ow + span.from) * a->c, a->c, span.to - span.from, a->c,
                           (int)a->activation, as_f32(a->low), as_f32(a->high));
    }
}
