// Convolutions, float32, channels last. NumPy twin: ops' Conv. Sums run over the window's taps, then over channels.
//
// Input and output are [batch][depth][height][width][channels]; in two dimensions the depth is 1. A convolution is a
// matrix product whose rows of A are gathered: per output pixel a list of addresses, one per tap of the window, each of
// a run of `c` floats. Addresses outside the image point at zeros. The lists are made for some tiles at a time and used
// for all output channels.
#include "tile.h"

#define BLOCK_ROWS 96  // output pixels whose addresses are made at once

// Packs weights [groups * oc][ic][taps], as ONNX has them, for `conv`: per group panels of [taps * ic][8], with taps
// slower than channels. `panels` holds groups * round_up(oc, 8) * taps * ic floats. Unit: a panel of a group.
KERNEL(pack_conv, w, panels, groups, oc, ic, taps) {
    const word per_group = div_up(a->oc, PANEL), depth = a->ic * a->taps;
    for (word u = begin; u < end; u++) {
        word first = u % per_group * PANEL, width = min_word(PANEL, a->oc - first);
        const float *from = F32(a->w) + (u / per_group * a->oc + first) * depth;
        float *to = F32(a->panels) + u * depth * PANEL;
        for (word tap = 0; tap < a->taps; tap++)
            for (word i = 0; i < a->ic; i++, to += PANEL)
                for (word n = 0; n < PANEL; n++) to[n] = n < width ? from[n * depth + i * a->taps + tap] : 0.0f;
    }
}

// `batch` images of d x h x w pixels, x_step floats apart, of which each group takes c; output pixels y_step apart, of
// which each group gives oc. Packed weights as above; bias has groups * oc floats or is 0; residual is laid out as y, or 0.
// `zeros` points at c zeros. Scratch: 768 * kd * kh * kw bytes. Units: groups * count_pieces(batch * od * oh * ow, oc).
//
// The first layer of a network, with few channels, is best given as kw = 1 with c = (columns of the window) * channels,
// on an image that is padded in memory: then a row of the window is one run.
KERNEL_ARGUMENTS(conv, x, x_step, panels, bias, residual, y, y_step, batch, d, h, w, c, od, oh, ow, oc, groups, kd, kh,
                 kw, stride_d, stride_h, stride_w, pad_front, pad_top, pad_left, dilation_d, dilation_h, dilation_w,
                 zeros, activation, low, high)

typedef struct {
    const conv_args *a;
    const char **rows;  // per tile, per tap, the addresses of the tile's pixels
    word group;
} Gather;

// An output pixel. It is counted on: a division takes as long as a tap's sums.
typedef struct {
    word x, y, z, image;
} Pixel;

INLINE void go_on(Pixel *p, const conv_args *a, word pixels) {
    for (p->x += pixels; p->x >= a->ow; p->x -= a->ow) {
        if (++p->y < a->oh) continue;
        p->y = 0;
        if (++p->z < a->od) continue;
        p->z = 0;
        p->image++;
    }
}

// For `rows` pixels from p on, all in one row, whose windows lie inside the image: their addresses, tap by tap.
static void gather_inside(const conv_args *a, const char *x, word line, word plane, word rows, const char **to) {
    const ptrdiff_t pixel = (ptrdiff_t)a->x_step * 4, step = (ptrdiff_t)a->stride_w * pixel;
    for (word q = 0; q < a->kd; q++, x += a->dilation_d * plane) {
        const char *from_row = x;
        for (word r = 0; r < a->kh; r++, from_row += a->dilation_h * line) {
            const char *from = from_row;
            for (word s = 0; s < a->kw; s++, from += a->dilation_w * pixel) {
                const char *at = from;
                for (ptrdiff_t i = 0; i < (ptrdiff_t)rows; i++, at += step) *to++ = at;
            }
        }
    }
}

// The addresses for output pixels [m0, m1), tile by tile.
static void gather(const Gather *g, word m0, word m1) {
    const conv_args *a = g->a;
    const char **to = g->rows;
    const char *zeros = PTR(const char, a->zeros), *x = PTR(const char, a->x) + g->group * a->c * 4;
    const word pixel = a->x_step * 4, line = a->w * pixel, plane = a->h * line;
    const word taps = a->kd * a->kh * a->kw;
    const word wide = (a->kw - 1) * a->dilation_w, tall = (a->kh - 1) * a->dilation_h, deep = (a->kd - 1) * a->dilation_d;
    Pixel p = {m0 % a->ow, m0 / a->ow % a->oh, m0 / a->ow / a->oh % a->od, m0 / a->ow / a->oh / a->od};
    for (word m = m0, rows; m < m1; m += rows) {
        rows = tile_rows(m1 - m);
        word front = p.z * a->stride_d - a->pad_front, top = p.y * a->stride_h - a->pad_top;
        word left = p.x * a->stride_w - a->pad_left;
        if (p.x + rows <= a->ow && front >= 0 && front + deep < a->d && top >= 0 && top + tall < a->h && left >= 0 &&
            left + (rows - 1) * a->stride_w + wide < a->w) {
            gather_inside(a, x + (p.image * a->d + front) * plane + top * line + left * pixel, line, plane, rows, to);
            go_on(&p, a, rows);
            to += rows * taps;
            continue;
        }
        for (word i = 0; i < rows; i++, go_on(&p, a, 1)) {
            front = p.z * a->stride_d - a->pad_front, top = p.y * a->stride_h - a->pad_top;
            left = p.x * a->stride_w - a->pad_left;
            const char **out = to + i;
            for (word q = 0, layer = front; q < a->kd; q++, layer += a->dilation_d) {
                const char *base = x + (p.image * a->d + layer) * plane + top * line + left * pixel;
                for (word r = 0, row = top; r < a->kh; r++, row += a->dilation_h, base += a->dilation_h * line) {
                    const char *from = base;
                    if ((uint64_t)row >= (uint64_t)a->h || (uint64_t)layer >= (uint64_t)a->d) {
                        for (word s = 0; s < a->kw; s++, out += rows) *out = zeros;
                        continue;
                    }
                    for (word s = 0, column = left; s < a->kw; s++, column += a->dilation_w, out += rows) {
                        *out = (uint64_t)column < (uint64_t)a->w ? from : zeros;
                        from += a->dilation_w * pixel;
                    }
                }
            }
        }
        to += rows * taps;
    }
}

static void conv_block(const Gather *g, word m0, word m1, word n0, word n1) {
    const conv_args *a = g->a;
    const word taps = a->kd * a->kh * a->kw, depth = taps * a->c;
    const int activation = (int)a->activation;
    const float low = as_f32(a->low), high = as_f32(a->high);
    const float *panels = F32(a->panels) + g->group * div_up(a->oc, PANEL) * PANEL * depth;
    const float *bias = a->bias ? F32(a->bias) + g->group * a->oc : 0;
    const word offset = g->group * a->oc;
    Tile t = {
        .c_step = a->y_step * 4,
        .residual_step = a->y_step * 4,
        .taps = taps,
        .depth = a->c,
        .clamp = activation == 1,
        .low = low,
        .high = high,
        .panel_step = depth * PANEL * 4,
    };
    for (word n = n0; n < n1; n += TILE_COLUMNS) {
        const word width = min_word(TILE_COLUMNS, n1 - n), count = width > PANEL ? 2 : 1;
        t.b = panels + n * depth;
        t.bias = bias ? bias + n : no_bias;
        t.rows = (const char *const *)g->rows;
        for (word m = m0, rows; m < m1; m += rows) {
            rows = tile_rows(m1 - m);
            const word at = m * a->y_step + offset + n;
            t.c = F32(a->y) + at;
            t.residual = a->residual ? F32(a->residual) + at : 0;
            t.rows_step = rows * (word)sizeof(char *);
            if (width % PANEL)
                tile_run_ragged(&t, rows, count, width, 1);
            else
                tile_run_indirect(&t, rows, count);
            t.rows += rows * taps;
        }
        if (activation > 1)
            activate_block(F32(a->y) + m0 * a->y_step + offset + n, a->y_step, m1 - m0, width, activation, low, high);
    }
}

KERNEL_BODY(conv) {
    const word rows = a->batch * a->od * a->oh * a->ow;
    const word pieces = count_pieces(rows, a->oc);
    while (begin < end) {
        const Gather g = {a, (const char **)scratch, begin / pieces};
        const word before = g.group * pieces;
        word first = begin - before;
        const Piece p = next_piece(rows, a->oc, &first, min_word(pieces, end - before));
        for (word m = p.m0; m < p.m1; m += BLOCK_ROWS) {
            const word stop = min_word(p.m1, m + BLOCK_ROWS);
            gather(&g, m, stop);
            conv_block(&g, m, stop, p.n0, p.n1);
        }
        begin = before + first;
    }
}
