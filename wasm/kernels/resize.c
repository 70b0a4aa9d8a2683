// Separable resampling, float32. NumPy twin: ops' Resize.
//
// The plan says, for every output row and column, which input rows and columns it takes and with what weights; so one
// kernel does nearest, linear and cubic interpolation, with and without antialiasing, in all coordinate modes.
#include "kernel.h"

// x: [batch][h][w][c], y: [batch][oh][ow][c]; channels first is c = 1 and batch = images * channels. Per output row
// `row_taps` int32 indices and float32 weights ([oh][row_taps]); the same for columns. Unit: a row of output
// (batch * oh). Scratch: 4 * w * c bytes, none where row_taps is 1.
KERNEL(resize, x, y, batch, h, w, c, oh, ow, row_taps, row_indices, row_weights, column_taps, column_indices,
       column_weights) {
    const word c = a->c, line = a->w * c;
    for (word u = begin; u < end; u++) {
        const float *x = F32(a->x) + u / a->oh * a->h * line;
        const int32_t *rows = PTR(int32_t, a->row_indices) + u % a->oh * a->row_taps;
        const float *row_weights = F32(a->row_weights) + u % a->oh * a->row_taps;
        const float *blended = x + rows[0] * line;
        if (a->row_taps > 1) {
            float *to = (float *)scratch;
            for (word i = 0; i < line; i += LANES) {
                const word lanes = min_word(LANES, line - i);
                vf total = (vf)0.0f;
                for (word t = 0; t < a->row_taps; t++) {
                    const float *from = x + rows[t] * line + i;
                    total = vmadd(lanes == LANES ? vload(from) : vload_part(from, lanes), (vf)row_weights[t], total);
                }
                if (lanes == LANES)
                    vstore(to + i, total);
                else
                    vstore_part(to + i, total, lanes);
            }
            blended = to;
        }
        const int32_t *columns = PTR(int32_t, a->column_indices);
        const float *weights = F32(a->column_weights);
        float *y = F32(a->y) + u * a->ow * c;
        for (word o = 0; o < a->ow; o++, columns += a->column_taps, weights += a->column_taps, y += c) {
            word i = 0;
            for (; i + LANES <= c; i += LANES) {
                vf total = vload(blended + columns[0] * c + i);
                if (a->column_taps > 1) {
                    total *= weights[0];
                    for (word t = 1; t < a->column_taps; t++)
                        total = vmadd(vload(blended + columns[t] * c + i), (vf)weights[t], total);
                }
                vstore(y + i, total);
            }
            for (; i < c; i++) {
                float total = blended[columns[0] * c + i];
                if (a->column_taps > 1) {
                    total *= weights[0];
                    for (word t = 1; t < a->column_taps; t++) total += blended[columns[t] * c + i] * weights[t];
                }
                y[i] = total;
            }
        }
    }
}
