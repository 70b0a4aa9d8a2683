// Functions of quantised tensors, element by element. NumPy twins: DequantizeLinear, an operator or several, and
// QuantizeLinear; QLinearAdd and QLinearMul.
#include "int8.h"

// y[i] = table[x[i]]: any function of one byte. y may be x. Unit: an element.
KERNEL(byte_table, x, table, y) {
    const uint8_t *table = PTR(const uint8_t, a->table), *x = PTR(const uint8_t, a->x);
    uint8_t *y = PTR(uint8_t, a->y);
    word i = begin;
    for (; i + 8 <= end; i += 8) {
        uint64_t from, to = 0;
        __builtin_memcpy(&from, x + i, 8);
        UNROLL for (int k = 0; k < 8; k++) to |= (uint64_t)table[from >> 8 * k & 255] << 8 * k;
        __builtin_memcpy(y + i, &to, 8);
    }
    for (; i < end; i++) y[i] = table[x[i]];
}

enum { BYTES_ADD, BYTES_MULTIPLY };

typedef uint8_t vb __attribute__((ext_vector_type(LANES)));
typedef int8_t vc __attribute__((ext_vector_type(LANES)));
typedef vb vb_unaligned __attribute__((aligned(1), may_alias));

// (byte - zero) * scale. Up to LANES - 1 bytes beyond the last one are read.
INLINE vf number(const uint8_t *from, int is_signed, float zero, float scale) {
    vb bytes = *(const vb_unaligned *)from;
    vi whole = is_signed ? __builtin_convertvector((vc)bytes, vi) : __builtin_convertvector(bytes, vi);
    return (__builtin_convertvector(whole, vf) - zero) * scale;
}

INLINE vf combined(int operation, vf p, vf q, float shift) {
    return operation == BYTES_MULTIPLY ? p * q : shift + (p + q);
}

// y = round(clamp(shift + P + Q or P * Q, low, high) / y_scale) + y_zero, saturated, ties to even, where
// P = (p - p_zero) * p_scale, and so Q. p, q and y are int8 or uint8; zeros, scales, shift and bounds are float32.
// y may be p or q. Unit: 16 elements.
KERNEL(byte_pair, operation, count, p, p_type, p_zero, p_scale, q, q_type, q_zero, q_scale, shift, low, high, y, y_type,
       y_zero, y_scale) {
    const float p_zero = as_f32(a->p_zero), p_scale = as_f32(a->p_scale), shift = as_f32(a->shift);
    const float q_zero = as_f32(a->q_zero), q_scale = as_f32(a->q_scale), y_scale = as_f32(a->y_scale);
    const vf low = vsplat(as_f32(a->low)), high = vsplat(as_f32(a->high));
    const int p_signed = a->p_type == TYPE_I8, q_signed = a->q_type == TYPE_I8, y_signed = a->y_type == TYPE_I8;
    const Rounding rounding = rounding_to(y_signed, (int32_t)as_f32(a->y_zero));
    const int operation = (int)a->operation;
    for (word i = begin * 16; i < min_word(a->count, end * 16); i += PANEL) {
        vi bytes[PER_PANEL];
        UNROLL for (int j = 0; j < PER_PANEL; j++) {
            const word at = i + j * LANES;
            vf value = combined(operation, number(PTR(const uint8_t, a->p) + at, p_signed, p_zero, p_scale),
                                number(PTR(const uint8_t, a->q) + at, q_signed, q_zero, q_scale), shift);
            bytes[j] = rounded(vclamp(value, low, high) / y_scale, &rounding);
        }
        store_bytes(PTR(uint8_t, a->y) + i, bytes, min_word(PANEL, a->count - i), y_signed);
    }
}

typedef uint8_t b16 __attribute__((ext_vector_type(16)));
typedef b16 b16_unaligned __attribute__((aligned(1), may_alias));

// y[i][column][row] = x[i][row][column], bytes. Up to 15 bytes beyond the last one are read. Unit: 16 columns of a
// matrix.
KERNEL(transpose_bytes, x, y, rows, columns) {
    const word blocks = div_up(a->columns, 16);
    for (word u = begin; u < end; u++) {
        const word first = u % blocks * 16, width = min_word(16, a->columns - first);
        const uint8_t *x = PTR(const uint8_t, a->x) + u / blocks * a->rows * a->columns + first;
        uint8_t *y = PTR(uint8_t, a->y) + (u / blocks * a->columns + first) * a->rows;
        word row = 0;
        for (; row + 16 <= a->rows; row += 16) {
            b16 r[16], next[16];
            UNROLL for (int i = 0; i < 16; i++) r[i] = *(const b16_unaligned *)(x + (row + i) * a->columns);
            UNROLL for (int round = 0; round < 4; round++) {  // each brings the halves' elements together in turn
                UNROLL for (int i = 0; i < 8; i++) {
                    next[2 * i] = __builtin_shufflevector(r[i], r[i + 8], 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6,
                                                          22, 7, 23);
                    next[2 * i + 1] = __builtin_shufflevector(r[i], r[i + 8], 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13,
                                                              29, 14, 30, 15, 31);
                }
                UNROLL for (int i = 0; i < 16; i++) r[i] = next[i];
            }
            UNROLL for (int i = 0; i < 16; i++)
                if (i < width) *(b16_unaligned *)(y + i * a->rows + row) = r[i];
        }
        for (; row < a->rows; row++)
            for (word i = 0; i < width; i++) y[i * a->rows + row] = x[row * a->columns + i];
    }
}
