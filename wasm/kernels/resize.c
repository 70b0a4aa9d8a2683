// Separable resampling, float32. NumPy twin: ops' Resize.
//
// The plan says, for every output row and column, which input rows and columns it takes and with what weights; so one
// kernel does nearest, linear and cubic interpolation, with and without antialiasing, in all coordinate modes.
#include "moving.h"

// x: [batch][h][w][c], y: [batch][oh][ow][c]; channels first is c = 1 and batch = images * channels. Per output row
// `row_taps` int32 indices and float32 weights ([oh][row_taps]); the same for columns. `column_repeat` is r where
// output columns r * i to r * i + r - 1 take input column i alone, else 0. Unit: a row of output (batch * oh).
// Scratch: 4 * w * max(c, 8) bytes, none where row_taps and column_taps are 1.
KERNEL_ARGUMENTS(resize, x, y, batch, h, w, c, oh, ow, row_taps, row_indices, row_weights, column_taps, column_indices,
                 column_weights, column_repeat)

// The input rows of output row `row` of an image blended: in `to`, or, where there is one alone, where it lies.
static NOINLINE const float *blended_row(const resize_args *a, word image, word row, float *to) {
    const word line = a->w * a->c, taps = a->row_taps;
    const float *x = F32(a->x) + image * a->h * line;
    const int32_t *rows = PTR(int32_t, a->row_indices) + row * taps;
    const float *weights = F32(a->row_weights) + row * taps;
    if (taps == 1) return x + rows[0] * line;
    for (word i = 0; i < line; i += LANES) {
        const word lanes = min_word(LANES, line - i);
        vf total = (vf)0.0f;
        for (word t = 0; t < taps; t++) {
            const float *from = x + rows[t] * line + i;
            total = vmadd(lanes == LANES ? vload(from) : vload_part(from, lanes), (vf)weights[t], total);
        }
        if (lanes == LANES) vstore(to + i, total);
        else vstore_part(to + i, total, lanes);
    }
    return to;
}

#if LANES == 8
#define LOW_TWICE 0, 0, 1, 1, 2, 2, 3, 3
#define HIGH_TWICE 4, 4, 5, 5, 6, 6, 7, 7
#else
#define LOW_TWICE 0, 0, 1, 1
#define HIGH_TWICE 2, 2, 3, 3
#endif

// y[2 i] = y[2 i + 1] = x[i] for i < n, in one row or two that follow each other.
INLINE void double_columns(const float *x, float *y, word n, int rows) {
    word i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf v = vload(x + i);
        vf low = __builtin_shufflevector(v, v, LOW_TWICE), high = __builtin_shufflevector(v, v, HIGH_TWICE);
        UNROLL for (int r = 0; r < rows; r++) {
            vstore(y + 2 * (r * n + i), low);
            vstore(y + 2 * (r * n + i) + LANES, high);
        }
    }
    for (; i < n; i++)
        UNROLL for (int r = 0; r < rows; r++) y[2 * (r * n + i)] = y[2 * (r * n + i) + 1] = x[i];
}

// `rows` output rows of the same single columns.
static void spread_row(const resize_args *a, const float *x, float *y, word rows) {
    const word c = a->c, bytes = 4 * c, line = a->ow * c;
    const int32_t *columns = PTR(int32_t, a->column_indices);
    word done = 1;
    if (a->column_repeat == 1) {
        copy_bytes(y, x, a->ow * bytes);
    } else if (c > 1) {
        for (word o = 0; o < a->ow; o++) copy_bytes(y + o * c, x + columns[o] * c, bytes);
    } else if (a->column_repeat == 2 && rows > 1) {
        double_columns(x, y, a->w, 2);
        done = 2;
    } else if (a->column_repeat == 2) {
        double_columns(x, y, a->w, 1);
    } else
        for (word o = 0; o < a->ow; o++) y[o] = x[columns[o]];
    for (; done < rows; done++) copy_bytes(y + done * line, y, 4 * line);
}

// One output row of blended columns, of many channels.
static void blend_columns(const resize_args *a, const float *x, float *y) {
    const word c = a->c, taps = a->column_taps;
    const int32_t *columns = PTR(int32_t, a->column_indices);
    const float *weights = F32(a->column_weights);
    for (word o = 0; o < a->ow; o++, columns += taps, weights += taps, y += c) {
        word i = 0;
        for (; i + LANES <= c; i += LANES) {
            vf total = vload(x + columns[0] * c + i) * weights[0];
            for (word t = 1; t < taps; t++) total = vmadd(vload(x + columns[t] * c + i), (vf)weights[t], total);
            vstore(y + i, total);
        }
        for (; i < c; i++) {
            float total = x[columns[0] * c + i] * weights[0];
            for (word t = 1; t < taps; t++) total += x[columns[t] * c + i] * weights[t];
            y[i] = total;
        }
    }
}

INLINE void transpose_4x4(v4f v[4]) {
    v4f low[2], high[2];
    UNROLL for (int i = 0; i < 2; i++) {
        low[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 0, 4, 1, 5);
        high[i] = __builtin_shufflevector(v[2 * i], v[2 * i + 1], 2, 6, 3, 7);
    }
    v[0] = __builtin_shufflevector(low[0], low[1], 0, 1, 4, 5);
    v[1] = __builtin_shufflevector(low[0], low[1], 2, 3, 6, 7);
    v[2] = __builtin_shufflevector(high[0], high[1], 0, 1, 4, 5);
    v[3] = __builtin_shufflevector(high[0], high[1], 2, 3, 6, 7);
}

// Up to four output rows of blended columns, of one channel: as one row of four channels.
INLINE void blend_planes(const resize_args *a, word taps, word first, word count, float *scratch) {
    const word w = a->w, ow = a->ow;
    const float *lines[4];
    float *crossed = scratch, *y = F32(a->y) + first * ow;
    for (word r = 0, u = first; r < 4; r++, u++)
        lines[r] = r < count ? blended_row(a, u / a->oh, u % a->oh, scratch + (4 + r) * w) : lines[0];
    word i = 0;
    for (; i + 4 <= w; i += 4) {
        v4f v[4];
        UNROLL for (int r = 0; r < 4; r++) v[r] = v4load(lines[r] + i);
        transpose_4x4(v);
        UNROLL for (int r = 0; r < 4; r++) v4store(crossed + 4 * (i + r), v[r]);
    }
    for (; i < w; i++)
        for (word r = 0; r < 4; r++) crossed[4 * i + r] = lines[r][i];
    const int32_t *columns = PTR(int32_t, a->column_indices);
    const float *weights = F32(a->column_weights);
    for (word o = 0; o < ow; o += 4) {
        const word width = min_word(4, ow - o);
        v4f v[4];
        UNROLL for (int k = 0; k < 4; k++) {
            v[k] = (v4f)0.0f;
            if (k >= width) continue;
            for (word t = 0; t < taps; t++) v[k] += v4load(crossed + 4 * columns[t]) * weights[t];
            columns += taps, weights += taps;
        }
        transpose_4x4(v);
        if (width == 4)
            for (word r = 0; r < count; r++) v4store(y + r * ow + o, v[r]);
        else
            for (word r = 0; r < count; r++)
                for (word k = 0; k < width; k++) y[r * ow + o + k] = v[r][k];
    }
}

KERNEL_BODY(resize) {
    const word line = a->ow * a->c;
    if (a->column_taps > 1 && a->c == 1) {
        for (word u = begin; u < end; u += 4) {
            const word count = min_word(4, end - u);
            if (a->column_taps == 2) blend_planes(a, 2, u, count, (float *)scratch);
            else blend_planes(a, a->column_taps, u, count, (float *)scratch);
        }
        return;
    }
    const int32_t *rows = PTR(int32_t, a->row_indices);
    float *y = F32(a->y) + begin * line;
    word image = begin / a->oh, row = begin % a->oh, same;
    for (word u = begin; u < end; u += same, row += same, y += same * line) {
        if (row == a->oh) row = 0, image++;
        const float *x = blended_row(a, image, row, (float *)scratch);
        const word left = min_word(end - u, a->oh - row);
        same = 1;
        if (a->column_taps > 1) {
            blend_columns(a, x, y);
            continue;
        }
        while (a->row_taps == 1 && same < left && rows[row + same] == rows[row]) same++;
        spread_row(a, x, y, same);
    }
}
