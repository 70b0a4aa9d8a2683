// Products by weights of 4 or 8 bits, which stay that small in memory. NumPy twins: onnxlet/ops, MatMulNBits, and
// MatMul of what DequantizeLinear makes of a constant. Arithmetic is float32.
//
// Panels of 8 columns: [depth, rounded up to even, / 2][8] bytes, each of them the weights of two rows, the first one
// in the low bits; or [depth, rounded up to even][8] bytes. Weights are signed, in two's complement; those of 4 bits
// count 16 times as much. A weight stands for (bits - zero) * scale, with a zero and a scale per column for each block
// of rows: [panel][blocks][8]. Blocks have an even number of rows, but for the last.
#include "moving.h"
#include "tile.h"
#include "vecmath.h"

typedef int8_t b8 __attribute__((ext_vector_type(8)));
typedef b8 b8_unaligned __attribute__((aligned(1), may_alias));
#define PER_PANEL (PANEL / LANES)

enum { BLOCK_DEPTH = 256, PANELS = PIECE_COLUMNS / PANEL };

typedef struct {
    const int8_t *panel;
    const float *scales, *zeros;  // of the panel; zeros may be 0: then there are none
    word block;
} Weights;

// Rows k and k + 1 of a panel.
INLINE void two_rows(const Weights *w, word k, const int bits, vf rows[2][PER_PANEL]) {
    b8 two[2];
    if (bits == 4) {
        const b8 both = *(const b8_unaligned *)(w->panel + k / 2 * PANEL);
        two[0] = both << 4, two[1] = both & (b8)-16;
    } else {
        UNROLL for (int i = 0; i < 2; i++) two[i] = *(const b8_unaligned *)(w->panel + (k + i) * PANEL);
    }
    UNROLL for (int i = 0; i < 2; i++) {
#if LANES == 8
        rows[i][0] = __builtin_convertvector(__builtin_convertvector(two[i], vi), vf);
#else
        rows[i][0] = __builtin_convertvector(__builtin_convertvector(two[i].lo, vi), vf);
        rows[i][1] = __builtin_convertvector(__builtin_convertvector(two[i].hi, vi), vf);
#endif
    }
}

INLINE void block_parameters(const Weights *w, word block, vf scale[PER_PANEL], vf zero[PER_PANEL]) {
    UNROLL for (int j = 0; j < PER_PANEL; j++) {
        scale[j] = vload(w->scales + block * PANEL + j * LANES);
        zero[j] = w->zeros ? vload(w->zeros + block * PANEL + j * LANES) : vsplat(0.0f);
    }
}

// Rows [k0, k1) of a panel in float32; k0 is even. A row beyond the last one may be written too.
INLINE void widen(const Weights *w, word k0, word k1, float *to, const int bits) {
    for (word k = k0; k < k1;) {
        const word end = min_word(k1, (k / w->block + 1) * w->block);
        vf scale[PER_PANEL], zero[PER_PANEL];
        block_parameters(w, k / w->block, scale, zero);
        for (; k < end; k += 2, to += 2 * PANEL) {
            vf rows[2][PER_PANEL];
            two_rows(w, k, bits, rows);
            UNROLL for (int i = 0; i < 2; i++) {
                UNROLL for (int j = 0; j < PER_PANEL; j++)
                    vstore(to + i * PANEL + j * LANES, (rows[i][j] - zero[j]) * scale[j]);
            }
        }
    }
}
static NOINLINE void widen_4(const Weights *w, word k0, word k1, float *to) { widen(w, k0, k1, to, 4); }
static NOINLINE void widen_8(const Weights *w, word k0, word k1, float *to) { widen(w, k0, k1, to, 8); }

typedef vf Sums[PANELS][2][PER_PANEL];

// Adds x[0] and x[1] times rows k and k + 1 of the panels.
INLINE void add_two_rows(const Weights *w, word k, const float x[2], vf zero[PANELS][PER_PANEL], Sums sum,
                         const int bits, const int zeros) {
    UNROLL for (int p = 0; p < PANELS; p++) {
        vf rows[2][PER_PANEL];
        two_rows(w + p, k, bits, rows);
        UNROLL for (int i = 0; i < 2; i++) {
            UNROLL for (int j = 0; j < PER_PANEL; j++)
                sum[p][i][j] = vmadd(zeros ? rows[i][j] - zero[p][j] : rows[i][j], vsplat(x[i]), sum[p][i][j]);
        }
    }
}

// One row of A by the panels of a piece. Blocks are scaled when they are summed up.
INLINE void row_by_panels(const Weights *w, const float *a, word depth, const float *bias, float *c, const int bits,
                          const int zeros) {
    vf total[PANELS][PER_PANEL];
    UNROLL for (int p = 0; p < PANELS; p++)
        UNROLL for (int j = 0; j < PER_PANEL; j++) total[p][j] = vload(bias + p * PANEL + j * LANES);
    for (word k = 0; k < depth;) {
        const word end = min_word(depth, (k / w->block + 1) * w->block);
        vf scale[PANELS][PER_PANEL], zero[PANELS][PER_PANEL];
        Sums even = {0}, odd = {0};  // several, so that no sum waits for the one before
        UNROLL for (int p = 0; p < PANELS; p++) block_parameters(w + p, k / w->block, scale[p], zero[p]);
        for (; k + 4 <= end; k += 4) {
            add_two_rows(w, k, a + k, zero, even, bits, zeros);
            add_two_rows(w, k + 2, a + k + 2, zero, odd, bits, zeros);
        }
        for (; k < end; k += 2) {
            const float x[2] = {a[k], k + 1 < depth ? a[k + 1] : 0.0f};
            add_two_rows(w, k, x, zero, even, bits, zeros);
        }
        UNROLL for (int p = 0; p < PANELS; p++) {
            UNROLL for (int j = 0; j < PER_PANEL; j++) {
                const vf sum = (even[p][0][j] + even[p][1][j]) + (odd[p][0][j] + odd[p][1][j]);
                total[p][j] = vmadd(sum, scale[p][j], total[p][j]);
            }
        }
    }
    UNROLL for (int p = 0; p < PANELS; p++)
        UNROLL for (int j = 0; j < PER_PANEL; j++) vstore(c + p * PANEL + j * LANES, total[p][j]);
}
static NOINLINE void row_4(const Weights *w, const float *a, word depth, const float *bias, float *c) {
    if (w->zeros) row_by_panels(w, a, depth, bias, c, 4, 1);
    else row_by_panels(w, a, depth, bias, c, 4, 0);
}
static NOINLINE void row_8(const Weights *w, const float *a, word depth, const float *bias, float *c) {
    if (w->zeros) row_by_panels(w, a, depth, bias, c, 8, 1);
    else row_by_panels(w, a, depth, bias, c, 8, 0);
}

// C = activation(A B + bias + residual), as in `gemm`, with B of `bits` (4 or 8) in panels, as above; `block` rows have
// a scale. `zeros` is their address, or 0: there are none. Unit: 16 columns. Scratch: 16 KiB.
KERNEL_ARGUMENTS(gemm_weights, a, lda, b, bits, block, scales, zeros, c, ldc, m, n, k, bias, residual, ldr, activation,
                 low, high)

// Many rows of A by the panels of up to TILE_COLUMNS columns.
static void rows_by_panels(const gemm_weights_args *a, const Weights *w, word n, word width, const float *bias,
                           float *widened) {
    const word panels = width > PANEL ? 2 : 1;
    Tile t = {
        .b = widened, .bias = bias, .a_step = a->lda * 4, .c_step = a->ldc * 4, .residual_step = a->ldr * 4,
        .panel_step = BLOCK_DEPTH * PANEL * 4,
    };
    word k0 = 0;
    do {  // at least once: without depth, C is the bias
        const word k1 = min_word(a->k, k0 + BLOCK_DEPTH);
        const int last = k1 == a->k;
        for (word i = 0; i < panels; i++)
            (a->bits == 4 ? widen_4 : widen_8)(w + i, k0, k1, widened + i * BLOCK_DEPTH * PANEL);
        t.depth = k1 - k0;
        t.add_to_c = k0 > 0;
        for (word m = 0; m < a->m; m += TILE_ROWS) {
            const word count = min_word(TILE_ROWS, a->m - m);
            t.a = F32(a->a) + m * a->lda + k0;
            t.c = F32(a->c) + m * a->ldc + n;
            t.residual = last && a->residual ? F32(a->residual) + m * a->ldr + n : 0;
            if (width % PANEL) tile_run_ragged(&t, count, panels, width, 0);
            else tile_run(&t, count, panels);
        }
        k0 = k1;
    } while (k0 < a->k);
}

KERNEL_BODY(gemm_weights) {
    const word blocks = div_up(a->k, a->block), panel_bytes = div_up(a->k, 2) * 2 * PANEL * a->bits / 8;
    for (word n = begin * PIECE_COLUMNS; n < min_word(a->n, end * PIECE_COLUMNS); n += PIECE_COLUMNS) {
        const word width = min_word(PIECE_COLUMNS, a->n - n);
        Weights w[PANELS];
        for (word i = 0; i < PANELS; i++) {
            // What a piece lacks of panels is the first one again, for nothing.
            const word panel = n / PANEL + (i * PANEL < width ? i : 0);
            w[i] = (Weights){
                .panel = PTR(const int8_t, a->b) + panel * panel_bytes,
                .scales = F32(a->scales) + panel * PANEL * blocks,
                .zeros = a->zeros ? F32(a->zeros) + panel * PANEL * blocks : 0,
                .block = a->block,
            };
        }
        float bias[PIECE_COLUMNS] = {0};
        if (a->bias)
            for (word j = 0; j < width; j++) bias[j] = F32(a->bias)[n + j];
        if (a->m > 1) {
            for (word at = 0; at < width; at += TILE_COLUMNS)
                rows_by_panels(a, w + at / PANEL, n + at, min_word(TILE_COLUMNS, width - at), bias + at,
                               (float *)scratch);
        } else if (a->m == 1) {
            float sums[PIECE_COLUMNS];
            (a->bits == 4 ? row_4 : row_8)(w, F32(a->a), a->k, bias, sums);
            for (word j = 0; j < width; j++)
                F32(a->c)[n + j] = a->residual ? sums[j] + F32(a->residual)[n + j] : sums[j];
        }
        if (a->activation)
            activate_block(F32(a->c) + n, a->ldc, a->m, width, (int)a->activation, as_f32(a->low), as_f32(a->high));
    }
}

// Rows picked from a table of `bits` (2, 4 or 8), made float32. NumPy twin: onnxlet/ops, GatherBlockQuantized.
//
// The table is [axis, inner, columns], packed along its columns, the lowest bits of a byte first; each `block` of
// columns has a scale, and a zero point: [axis, inner, blocks] float32; where `zeros` is 0, the middle of the range is.
// An index outside of the axis picks zeros. Unit: one row of y, which is [indices, inner, columns].
KERNEL(gather_blocks, table, bits, indices, index_size, scales, zeros, y, axis, inner, columns, block) {
    const word blocks = div_up(a->columns, a->block), row_bytes = a->columns * a->bits / 8;
    const uint32_t bits = (uint32_t)a->bits, shift = bits == 8 ? 0 : bits == 4 ? 1 : 2, part = (1u << shift) - 1;
    const uint32_t mask = (1u << bits) - 1;
    for (word i = begin; i < end; i++) {
        float *y = F32(a->y) + i * a->columns;
        word index = index_at(a->indices, a->index_size, i / a->inner);
        if (index < 0) index += a->axis;
        if (index < 0 || index >= a->axis) {
            memset(y, 0, (size_t)a->columns * 4);
            continue;
        }
        const word row = index * a->inner + i % a->inner;
        const uint8_t *from = PTR(const uint8_t, a->table) + row * row_bytes;
        uint32_t column = 0;
        for (word b = row * blocks; b < (row + 1) * blocks; b++) {
            const uint32_t last = (uint32_t)min_word(column + a->block, a->columns);
            const float scale = F32(a->scales)[b], zero = a->zeros ? F32(a->zeros)[b] : (float)(1u << (bits - 1));
            for (; column < last; column++) {
                const uint32_t value = (uint32_t)from[column >> shift] >> (column & part) * bits & mask;
                y[column] = ((float)value - zero) * scale;
            }
        }
    }
}
