// From channels first to channels last and back, float32. NumPy twins: x.transpose(0, 2, 3, 1) with np.pad, and
// x.transpose(0, 3, 1, 2).
#include "kernel.h"

INLINE void transpose_4(const float *x, word x_step, float *y, word y_step) {
    v4f r0 = v4load(x), r1 = v4load(x + x_step), r2 = v4load(x + 2 * x_step), r3 = v4load(x + 3 * x_step);
    v4f low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5), high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
    v4f low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5), high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
    v4store(y, __builtin_shufflevector(low01, low23, 0, 1, 4, 5));
    v4store(y + y_step, __builtin_shufflevector(low01, low23, 2, 3, 6, 7));
    v4store(y + 2 * y_step, __builtin_shufflevector(high01, high23, 0, 1, 4, 5));
    v4store(y + 3 * y_step, __builtin_shufflevector(high01, high23, 2, 3, 6, 7));
}

// y[j][i] = x[i][j] for i < rows, j < columns: a block that fits the first cache.
static void transpose_block(const float *x, word x_step, float *y, word y_step, word rows, word columns) {
    word i = 0;
    for (; i + 4 <= rows; i += 4) {
        word j = 0;
        for (; j + 4 <= columns; j += 4) transpose_4(x + i * x_step + j, x_step, y + j * y_step + i, y_step);
        for (; j < columns; j++)
            for (word k = 0; k < 4; k++) y[j * y_step + i + k] = x[(i + k) * x_step + j];
    }
    for (; i < rows; i++)
        for (word j = 0; j < columns; j++) y[j * y_step + i] = x[i * x_step + j];
}

// Three rows: pictures.
static void interleave_3(const float *x, word x_step, float *y, word columns) {
    const float *green = x + x_step, *blue = green + x_step, *end = x + columns;
    for (; x + 4 <= end; x += 4, green += 4, blue += 4, y += 12) {
        v4f r = v4load(x), g = v4load(green), b = v4load(blue);
        v4f rg = __builtin_shufflevector(r, g, 0, 4, 1, 5), gb = __builtin_shufflevector(g, b, 1, 5, 2, 6);
        v4f br = __builtin_shufflevector(b, r, 2, 7, 3, 3);
        v4store(y, __builtin_shufflevector(rg, b, 0, 1, 4, 2));
        v4store(y + 4, __builtin_shufflevector(gb, r, 0, 1, 6, 2));
        v4store(y + 8, __builtin_shufflevector(br, g, 0, 1, 7, 2));
    }
    for (; x < end; x++, green++, blue++, y += 3) y[0] = *x, y[1] = *green, y[2] = *blue;
}

#define BLOCK 32

// y[n][i][j][:] = x[n][:][i - pad_top][j - pad_left], zeros outside: [batch][c][h][w] to [batch][oh][ow][c].
// Unit: a row of output (batch * oh).
KERNEL(nchw_to_nhwc, x, y, batch, c, h, w, pad_top, pad_left, oh, ow) {
    const word c = a->c, plane = a->h * a->w;
    for (word u = begin; u < end; u++) {
        const word row = u % a->oh - a->pad_top;
        float *y = F32(a->y) + u * a->ow * c;
        word from = max_word(0, a->pad_left), to = min_word(a->ow, a->pad_left + a->w);
        if (row < 0 || row >= a->h || to <= from) from = to = a->ow;
        memset(y, 0, (size_t)(from * c * 4));
        memset(y + to * c, 0, (size_t)((a->ow - to) * c * 4));
        if (from == to) continue;
        const float *x = F32(a->x) + u / a->oh * c * plane + row * a->w - a->pad_left;
        if (c == 3) {
            interleave_3(x + from, plane, y + from * 3, to - from);
            continue;
        }
        for (word j = from; j < to; j += BLOCK) {
            const word width = min_word(BLOCK, to - j);
            for (word i = 0; i < c; i += BLOCK)
                transpose_block(x + i * plane + j, plane, y + j * c + i, c, min_word(BLOCK, c - i), width);
        }
    }
}

// [batch][pixels][c] to [batch][c][pixels]. Unit: 32 pixels of an image (batch * ceil(pixels / 32)).
KERNEL(nhwc_to_nchw, x, y, batch, pixels, c) {
    const word blocks = div_up(a->pixels, BLOCK), c = a->c;
    for (word u = begin; u < end; u++) {
        const word image = u / blocks * a->pixels * c, first = u % blocks * BLOCK;
        const word rows = min_word(BLOCK, a->pixels - first);
        const float *x = F32(a->x) + image + first * c;
        float *y = F32(a->y) + image + first;
        for (word i = 0; i < c; i += BLOCK)
            transpose_block(x + i, c, y + i * a->pixels, a->pixels, rows, min_word(BLOCK, c - i));
    }
}
