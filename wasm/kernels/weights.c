// Products by weights of 4 or 8 bits, which stay that small in memory. NumPy twins: onnxlet/ops, MatMulNBits, and
// MatMul of what DequantizeLinear makes of a constant. Arithmetic is float32.
//
// Panels of 8 columns: [depth, rounded up to even, / 2][8] bytes, each of them the weights of two rows, the first one
// in the low bits; or [depth, rounded up to even][8] bytes. A weight stands for (bits - zero) * scale, with a zero and a
// scale per column for each block of rows: [panel][blocks][8]. Blocks have an even number of rows, but for the last.
#include "tile.h"
#include "vecmath.h"

typedef uint8_t b8 __attribute__((ext_vector_type(8)));
typedef b8 b8_unaligned __attribute__((aligned(1), may_alias));
#define PER_PANEL (PANEL / LANES)

enum { BLOCK_DEPTH = 256 };

typedef struct {
    const uint8_t *panel;
    const float *scales, *zeros;  // of the panel; zeros may be 0: then all are `zero`
    float zero;
    word block;
} Weights;

// Rows k and k + 1 of a panel.
INLINE void two_rows(const Weights *w, word k, const int bits, vf rows[2][PER_PANEL]) {
    b8 first, second;
    if (bits == 4) {
        const b8 both = *(const b8_unaligned *)(w->panel + k / 2 * PANEL);
        first = both & 15, second = both >> 4;
    } else {
        first = *(const b8_unaligned *)(w->panel + k * PANEL);
        second = *(const b8_unaligned *)(w->panel + (k + 1) * PANEL);
    }
#if LANES == 8
    rows[0][0] = __builtin_convertvector(__builtin_convertvector(first, vi), vf);
    rows[1][0] = __builtin_convertvector(__builtin_convertvector(second, vi), vf);
#else
    rows[0][0] = __builtin_convertvector(__builtin_convertvector(first.lo, vi), vf);
    rows[0][1] = __builtin_convertvector(__builtin_convertvector(first.hi, vi), vf);
    rows[1][0] = __builtin_convertvector(__builtin_convertvector(second.lo, vi), vf);
    rows[1][1] = __builtin_convertvector(__builtin_convertvector(second.hi, vi), vf);
#endif
}

INLINE void block_parameters(const Weights *w, word block, vf scale[PER_PANEL], vf zero[PER_PANEL]) {
    UNROLL for (int j = 0; j < PER_PANEL; j++) {
        scale[j] = vload(w->scales + block * PANEL + j * LANES);
        zero[j] = w->zeros ? vload(w->zeros + block * PANEL + j * LANES) : vsplat(w->zero);
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

// One row of A by a panel. Blocks are scaled when they are summed up.
INLINE void row_by_panel(const Weights *w, const float *a, word depth, const float *bias, float *c, const int bits) {
    vf total[PER_PANEL];
    UNROLL for (int j = 0; j < PER_PANEL; j++) total[j] = vload(bias + j * LANES);
    for (word k = 0; k < depth;) {
        const word end = min_word(depth, (k / w->block + 1) * w->block);
        vf scale[PER_PANEL], zero[PER_PANEL], sum[2][PER_PANEL];
        block_parameters(w, k / w->block, scale, zero);
        UNROLL for (int j = 0; j < PER_PANEL; j++) sum[0][j] = sum[1][j] = vsplat(0.0f);
        for (; k < end; k += 2) {
            vf rows[2][PER_PANEL];
            two_rows(w, k, bits, rows);
            const vf x[2] = {vsplat(a[k]), vsplat(k + 1 < depth ? a[k + 1] : 0.0f)};
            UNROLL for (int i = 0; i < 2; i++) {
                UNROLL for (int j = 0; j < PER_PANEL; j++) sum[i][j] = vmadd(rows[i][j] - zero[j], x[i], sum[i][j]);
            }
        }
        UNROLL for (int j = 0; j < PER_PANEL; j++) total[j] = vmadd(sum[0][j] + sum[1][j], scale[j], total[j]);
    }
    UNROLL for (int j = 0; j < PER_PANEL; j++) vstore(c + j * LANES, total[j]);
}
static NOINLINE void row_4(const Weights *w, const float *a, word depth, const float *bias, float *c) {
    row_by_panel(w, a, depth, bias, c, 4);
}
static NOINLINE void row_8(const Weights *w, const float *a, word depth, const float *bias, float *c) {
    row_by_panel(w, a, depth, bias, c, 8);
}

// C = activation(A B + bias + residual), as in `gemm`, with B of `bits` (4 or 8) in panels, as above; `block` rows have
// a scale. `zeros` is their address, or 0: all are `zero`, float32. Unit: 16 columns. Scratch: 16 KiB.
KERNEL_ARGUMENTS(gemm_weights, a, lda, b, bits, block, scales, zeros, zero, c, ldc, m, n, k, bias, residual, ldr,
                 activation, low, high)

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
    for (word n = begin * PIECE_COLUMNS; n < min_word(a->n, end * PIECE_COLUMNS); n += TILE_COLUMNS) {
        const word width = min_word(TILE_COLUMNS, a->n - n);
        Weights w[TILE_PANELS];
        for (word i = 0; i < TILE_PANELS; i++)
            w[i] = (Weights){
                .panel = PTR(const uint8_t, a->b) + (n / PANEL + i) * panel_bytes,
                .scales = F32(a->scales) + (n + i * PANEL) * blocks,
                .zeros = a->zeros ? F32(a->zeros) + (n + i * PANEL) * blocks : 0,
                .zero = as_f32(a->zero), .block = a->block,
            };
        float bias[TILE_COLUMNS] = {0};
        if (a->bias)
            for (word j = 0; j < width; j++) bias[j] = F32(a->bias)[n + j];
        if (a->m > 1) {
            rows_by_panels(a, w, n, width, bias, (float *)scratch);
        } else if (a->m == 1) {
            for (word i = 0; i * PANEL < width; i++) {
                float sums[PANEL];
                (a->bits == 4 ? row_4 : row_8)(w + i, F32(a->a), a->k, bias + i * PANEL, sums);
                for (word j = 0, at = n + i * PANEL; j < min_word(PANEL, a->n - at); j++)
                    F32(a->c)[at + j] = a->residual ? sums[j] + F32(a->residual)[at + j] : sums[j];
            }
        }
        if (a->activation)
            activate_block(F32(a->c) + n, a->ldc, a->m, width, (int)a->activation, as_f32(a->low), as_f32(a->high));
    }
}
