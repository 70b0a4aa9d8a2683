// Rotary positions. NumPy twins: onnxlet/ops, RotaryEmbedding of both domains.
//
// Unit: one row of a head, of `size` elements; rows are [batch][length][heads] and x_batch, x_row, x_head (and alike for
// y) say how many elements lie from one to the next along these. The first 2 * half elements are turned in pairs: (even,
// odd) if `interleaved`, else (first half, second half); the rest is copied. `cos` and `sin` have `half` angles per row:
// row batch * angles_batch + place in the sequence, or where `positions` (int64 [batch][length]) is not 0, the row that
// it says, of `rows`. One outside sets the int64 at `error` to 1 + its number, and its row of y is left. y may be x.
#include "kernel.h"

KERNEL(rotary, x, y, cos, sin, positions, rows, error, length, heads, size, half, interleaved, angles_batch, x_batch,
       x_row, x_head, y_batch, y_row, y_head) {
    const word half = a->half, step = a->interleaved ? 2 : 1, apart = a->interleaved ? 1 : half;
    for (word u = begin; u < end; u++) {
        const word head = u % a->heads, row = u / a->heads % a->length, batch = u / a->heads / a->length;
        word at = batch * a->angles_batch + row;
        if (a->positions) {
            at = PTR(const int64_t, a->positions)[batch * a->length + row];
            if (at < 0 || at >= a->rows) {
                *PTR(word, a->error) = 1 + batch * a->length + row;
                continue;
            }
        }
        const float *x = F32(a->x) + batch * a->x_batch + row * a->x_row + head * a->x_head;
        float *y = F32(a->y) + batch * a->y_batch + row * a->y_row + head * a->y_head;
        const float *cosine = F32(a->cos) + at * half, *sine = F32(a->sin) + at * half;
        for (word i = 0; i < half; i++) {
            const float one = x[i * step], two = x[i * step + apart];
            y[i * step] = cosine[i] * one - sine[i] * two;
            y[i * step + apart] = sine[i] * one + cosine[i] * two;
        }
        for (word i = 2 * half; i < a->size; i++) y[i] = x[i];
    }
}
