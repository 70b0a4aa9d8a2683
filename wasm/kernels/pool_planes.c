// Pooling of planes, float32: channels first. NumPy twins: ops' MaxPool, AveragePool. NaN in a window gives NaN.
//
// A row of output is made in two steps: the rows of its windows are joined, element by element, into one padded line;
// then the taps of each window on that line.
#include "pool.h"
#include "vecmath.h"

// How values are joined. LARGEST passes NaN over; where there is one, all is done again by LARGEST_OR_NAN.
enum { SUM, LARGEST, LARGEST_OR_NAN };

// `total` with v. Lanes in which LARGEST_OR_NAN met NaN are remembered in `unordered`.
INLINE vf join(int how, vf total, vf v, vi *unordered) {
    if (how == SUM) return total + v;
    if (how == LARGEST_OR_NAN) *unordered |= v != v;
    return vlarger(v, total);
}
// All bits set are a NaN.
INLINE vf joined(vf total, vi unordered) { return (vf)((vi)total | unordered); }
INLINE vf nothing(int how) { return vconst(how == SUM ? 0.0f : -INFINITY_F32); }

// `lanes` values at `from`, at `from` + down, ... joined; with LARGEST their sum is added to `seen`.
INLINE vf join_column(int how, ptrdiff_t rows, const float *from, ptrdiff_t down, ptrdiff_t lanes, vf *seen) {
    vf total = nothing(how), sum = (vf)0.0f;
    vi unordered = (vi)0;
    for (ptrdiff_t r = 0; r < rows; r++, from += down) {
        const vf v = lanes == LANES ? vload(from) : vload_part(from, lanes);
        total = join(how, total, v, &unordered);
        sum += v;
    }
    if (how == LARGEST) *seen += sum;
    return how == LARGEST_OR_NAN ? joined(total, unordered) : total;
}

// line[j] = the rows x, x + down, ... joined, for j < w. Returns NaN if a row has one (or infinities of both signs).
INLINE float join_rows(int how, ptrdiff_t rows, const float *x, ptrdiff_t down, float *line, ptrdiff_t w) {
    vf seen = (vf)0.0f;
    if (w < LANES) {
        vstore_part(line, join_column(how, rows, x, down, w, &seen), w);
        return vsum(seen);
    }
    ptrdiff_t j = 0;
    for (; j + LANES <= w; j += LANES) vstore(line + j, join_column(how, rows, x + j, down, LANES, &seen));
    j = w - LANES;  // the last vector overlaps the one before
    if (w % LANES) vstore(line + j, join_column(how, rows, x + j, down, LANES, &seen));
    return vsum(seen);
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

// The taps of LANES windows, the first of which begins at `from`, joined, and divided by rows * counts where it is a mean.
INLINE vf join_windows(int how, ptrdiff_t taps, word step, const float *from, ptrdiff_t dilation, word rows,
                       const float *counts) {
    vf total = nothing(how);
    vi unordered = (vi)0;
    for (ptrdiff_t s = 0; s < taps; s++, from += dilation) total = join(how, total, every(from, step), &unordered);
    if (how == SUM) total /= (float)rows * vload(counts);
    return how == LARGEST_OR_NAN ? joined(total, unordered) : total;
}

// y[o] = window o of the line, for o < ow.
INLINE void join_taps(int how, ptrdiff_t taps, word step, const float *line, ptrdiff_t dilation, word rows,
                      const float *counts, float *y, ptrdiff_t ow) {
    const ptrdiff_t stride = (ptrdiff_t)step;
    ptrdiff_t o = 0;
    for (; o + LANES <= ow; o += LANES, line += LANES * stride)
        vstore(y + o, join_windows(how, taps, step, line, dilation, rows, counts + o));
    if (o < ow) vstore_part(y + o, join_windows(how, taps, step, line, dilation, rows, counts + o), ow - o);
}

// The same two steps, for common numbers of rows, taps and elements between windows with loops of their own.
INLINE float rows_joined(int how, ptrdiff_t rows, const float *x, ptrdiff_t down, float *line, ptrdiff_t w) {
    if (rows == 3) return join_rows(how, 3, x, down, line, w);
    if (rows == 2) return join_rows(how, 2, x, down, line, w);
    return join_rows(how, rows, x, down, line, w);
}
static NOINLINE float join_any_rows(int how, ptrdiff_t rows, const float *x, ptrdiff_t down, float *line, ptrdiff_t w) {
    return how == SUM ? rows_joined(SUM, rows, x, down, line, w) : rows_joined(LARGEST, rows, x, down, line, w);
}

INLINE void taps_joined(int how, ptrdiff_t taps, word step, const float *line, ptrdiff_t dilation, word rows,
                        const float *counts, float *y, ptrdiff_t ow) {
    if (taps == 3) join_taps(how, 3, step, line, dilation, rows, counts, y, ow);
    else if (taps == 2) join_taps(how, 2, step, line, dilation, rows, counts, y, ow);
    else join_taps(how, taps, step, line, dilation, rows, counts, y, ow);
}
INLINE void steps_joined(int how, ptrdiff_t taps, word step, const float *line, ptrdiff_t dilation, word rows,
                         const float *counts, float *y, ptrdiff_t ow) {
    if (step == 1) taps_joined(how, taps, 1, line, dilation, rows, counts, y, ow);
    else if (step == 2) taps_joined(how, taps, 2, line, dilation, rows, counts, y, ow);
    else join_taps(how, taps, step, line, dilation, rows, counts, y, ow);
}
static NOINLINE void join_any_taps(int how, ptrdiff_t taps, word step, const float *line, ptrdiff_t dilation, word rows,
                                   const float *counts, float *y, ptrdiff_t ow) {
    if (how == SUM) steps_joined(SUM, taps, step, line, dilation, rows, counts, y, ow);
    else steps_joined(LARGEST, taps, step, line, dilation, rows, counts, y, ow);
}

// The maximum, or the mean as in `pool_average`, of each window of [planes][h][w]; y is [planes][oh][ow]. Unit: a row
// of output (planes * oh). Scratch: 4 * (max(pad_left + w, s * stride_w + (kw - 1) * dilation_w + 2) + s) bytes, with
// s = ow rounded up to a multiple of 8.
KERNEL_ARGUMENTS(pool_planes, x, y, planes, h, w, oh, ow, kh, kw, stride_h, stride_w, pad_top, pad_left, pad_bottom,
                 pad_right, dilation_h, dilation_w, include_pad, maximum)

// A row of output in which there is NaN.
static NOINLINE void pool_nan(const pool_planes_args *a, const float *x, word rows, float *line, float *y) {
    join_rows(LARGEST_OR_NAN, rows, x, a->dilation_h * a->w, line + a->pad_left, a->w);
    join_taps(LARGEST_OR_NAN, a->kw, a->stride_w, line, a->dilation_w, 0, 0, y, a->ow);
}

KERNEL_BODY(pool_planes) {
    const int how = a->maximum ? LARGEST : SUM;
    const word step = a->stride_w, ow = div_up(a->ow, 8) * 8, down = a->dilation_h * a->w;
    const word size = max_word(a->pad_left + a->w, ow * step + (a->kw - 1) * a->dilation_w + 2);
    float *counts = (float *)scratch, *line = counts + ow, *y = F32(a->y) + begin * a->ow;
    for (word o = 0; o < ow && how == SUM; o++) {
        const word left = o * step - a->pad_left;
        const Range wide = a->include_pad ? inside(o * step, a->kw, a->dilation_w, a->pad_left + a->w + a->pad_right)
                                          : inside(left, a->kw, a->dilation_w, a->w);
        counts[o] = (float)(wide.to - wide.from);
    }
    for (word i = 0; i < size; i++) line[i] = nothing(how)[0];
    for (word u = begin; u < end; u++, y += a->ow) {
        const word top = u % a->oh * a->stride_h - a->pad_top;
        const Range inner = inside(top, a->kh, a->dilation_h, a->h);
        const Range tall = inside(top + a->pad_top, a->kh, a->dilation_h, a->pad_top + a->h + a->pad_bottom);
        const word rows = inner.to - inner.from, counted = a->include_pad ? tall.to - tall.from : rows;
        const float *x = F32(a->x) + (u / a->oh * a->h + top + inner.from * a->dilation_h) * a->w;
        float *middle = line + a->pad_left;
        const float seen = join_any_rows(how, rows, x, down, middle, a->w);
        if (seen != seen) pool_nan(a, x, rows, line, y);
        else join_any_taps(how, a->kw, step, line, a->dilation_w, counted, counts, y, a->ow);
    }
}
