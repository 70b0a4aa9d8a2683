// Pooling of planes, float32: channels first. NumPy twins: ops' MaxPool, AveragePool. NaN in a window gives NaN.
//
// A row of output is made in two steps: the rows of its windows are joined, element by element, into one padded line;
// then the taps of each window on that line.
#include "pool.h"
#include "vecmath.h"

// `total` with v: their sum, or the larger. Lanes in which a maximum met NaN are remembered in `unordered`.
INLINE vf join(int maximum, vf total, vf v, vi *unordered) {
    if (!maximum) return total + v;
    *unordered |= v != v;
    return vlarger(v, total);
}
// All bits set are a NaN.
INLINE vf joined(vf total, vi unordered) { return (vf)((vi)total | unordered); }
INLINE vf nothing(int maximum) { return vconst(maximum ? -INFINITY_F32 : 0.0f); }

// line[j] = the rows x, x + down, ... joined, for j < w.
INLINE void join_rows(int maximum, word rows, const float *x, word down, float *line, word w) {
    for (word j = 0; j < w;) {
        const word lanes = min_word(LANES, w - j);
        const float *from = x + j;
        vf total = nothing(maximum);
        vi unordered = (vi)0;
        for (word r = 0; r < rows; r++, from += down)
            total = join(maximum, total, lanes == LANES ? vload(from) : vload_part(from, lanes), &unordered);
        total = joined(total, unordered);
        if (lanes == LANES) vstore(line + j, total);
        else vstore_part(line + j, total, lanes);
        // The last vector overlaps the one before.
        j = j + LANES < w && w >= LANES ? min_word(j + LANES, w - LANES) : w;
    }
}

// LANES elements, `step` apart. With a step of 2 one more is read.
INLINE vf every(const float *line, word step) {
    if (step == 1) return vload(line);
    if (step == 2) {
        vf a = vload(line), b = vload(line + LANES);
#if LANES == 8
        return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14);
#else
        return __builtin_shufflevector(a, b, 0, 2, 4, 6);
#endif
    }
    vf v;
    UNROLL for (int i = 0; i < LANES; i++) v[i] = line[i * step];
    return v;
}

// y[o] = the taps of window o joined, divided by rows * counts[o] where it is a mean.
INLINE void join_taps(int maximum, word taps, word step, const float *line, word dilation, word rows,
                      const float *counts, float *y, word ow) {
    for (word o = 0; o < ow; o += LANES) {
        const float *from = line + o * step;
        vf total = nothing(maximum);
        vi unordered = (vi)0;
        for (word s = 0; s < taps; s++, from += dilation) total = join(maximum, total, every(from, step), &unordered);
        total = maximum ? joined(total, unordered) : total / ((float)rows * vload(counts + o));
        if (o + LANES <= ow) vstore(y + o, total);
        else vstore_part(y + o, total, ow - o);
    }
}

// The maximum, or the mean as in `pool_average`, of each window of [planes][h][w]; y is [planes][oh][ow]. Unit: a row
// of output (planes * oh). Scratch: 4 * (max(pad_left + w, s * stride_w + (kw - 1) * dilation_w + 2) + s) bytes, with
// s = ow rounded up to a multiple of 8.
KERNEL_ARGUMENTS(pool_planes, x, y, planes, h, w, oh, ow, kh, kw, stride_h, stride_w, pad_top, pad_left, pad_bottom,
                 pad_right, dilation_h, dilation_w, include_pad, maximum)

INLINE void pool_rows(const pool_planes_args *a, int maximum, word step, word begin, word end, char *scratch) {
    const word ow = div_up(a->ow, 8) * 8, down = a->dilation_h * a->w;
    const word size = max_word(a->pad_left + a->w, ow * a->stride_w + (a->kw - 1) * a->dilation_w + 2);
    float *counts = (float *)scratch, *line = counts + ow, *y = F32(a->y) + begin * a->ow;
    for (word o = 0; o < ow && !maximum; o++) {
        const word left = o * step - a->pad_left;
        const Range wide = a->include_pad ? inside(o * step, a->kw, a->dilation_w, a->pad_left + a->w + a->pad_right)
                                          : inside(left, a->kw, a->dilation_w, a->w);
        counts[o] = (float)(wide.to - wide.from);
    }
    for (word i = 0; i < size; i++) line[i] = nothing(maximum)[0];
    for (word u = begin; u < end; u++, y += a->ow) {
        const word top = u % a->oh * a->stride_h - a->pad_top;
        const Range inner = inside(top, a->kh, a->dilation_h, a->h);
        const Range tall = inside(top + a->pad_top, a->kh, a->dilation_h, a->pad_top + a->h + a->pad_bottom);
        const word rows = inner.to - inner.from, counted = a->include_pad ? tall.to - tall.from : rows;
        const float *x = F32(a->x) + (u / a->oh * a->h + top + inner.from * a->dilation_h) * a->w;
        float *middle = line + a->pad_left;
        if (rows == 3) join_rows(maximum, 3, x, down, middle, a->w);
        else if (rows == 2) join_rows(maximum, 2, x, down, middle, a->w);
        else join_rows(maximum, rows, x, down, middle, a->w);
        if (a->kw == 3) join_taps(maximum, 3, step, line, a->dilation_w, counted, counts, y, a->ow);
        else if (a->kw == 2) join_taps(maximum, 2, step, line, a->dilation_w, counted, counts, y, a->ow);
        else join_taps(maximum, a->kw, step, line, a->dilation_w, counted, counts, y, a->ow);
    }
}

KERNEL_BODY(pool_planes) {
    if (a->maximum) {
        if (a->stride_w == 1) pool_rows(a, 1, 1, begin, end, scratch);
        else if (a->stride_w == 2) pool_rows(a, 1, 2, begin, end, scratch);
        else pool_rows(a, 1, a->stride_w, begin, end, scratch);
    } else {
        if (a->stride_w == 1) pool_rows(a, 0, 1, begin, end, scratch);
        else if (a->stride_w == 2) pool_rows(a, 0, 2, begin, end, scratch);
        else pool_rows(a, 0, a->stride_w, begin, end, scratch);
    }
}
