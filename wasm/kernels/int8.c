// Products of 8-bit integers, exact in int32. NumPy twins: onnxlet/ops, MatMulInteger, and what follows it in models
// that are quantised dynamically: Cast, Mul by the scales, Add of a bias, an activation.
//
// A is widened to int16, its zero point subtracted, a block of rows at a time. B is packed once as int8 in pairs of
// rows: panels of 8 columns, each [depth / 2][8][2]; two rows at a time go through the machine's 16-bit dot product.
// B's own zero point, and the 128 that makes uint8 fit int8, are put right at the end: they are `offsets` of a column,
// times the sum of a row of A. int32 wraps around where the result itself would.
#include "rows.h"
#include "tile.h"
#include "types.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define PER_PANEL (PANEL / LANES)
#define PAIRS(depth) (((depth) + 1) / 2)

typedef int16_t vs __attribute__((ext_vector_type(2 * LANES)));     // LANES pairs
typedef int8_t vc __attribute__((ext_vector_type(2 * LANES)));
typedef vc vc_unaligned __attribute__((aligned(1), may_alias));
typedef int32_t i32_unaligned __attribute__((aligned(1), may_alias));

// total + the sums of the products of pairs
INLINE vi dot_pairs(vs a, vs b, vi total) {
#if defined(__wasm__)
    return total + (vi)wasm_i32x4_dot_i16x8((v128_t)a, (v128_t)b);
#elif defined(__AVX2__)
    return total + (vi)_mm256_madd_epi16((__m256i)a, (__m256i)b);
#elif defined(__x86_64__)
    return total + (vi)_mm_madd_epi16((__m128i)a, (__m128i)b);
#else
    return total + __builtin_convertvector(a.even, vi) * __builtin_convertvector(b.even, vi) +
           __builtin_convertvector(a.odd, vi) * __builtin_convertvector(b.odd, vi);
#endif
}

// B[k][n] at b + k * step_k + n * step_n, `type` int8 or uint8; `zero` is the address of its zero points, `zeros` of
// them: 1, or one per column (0 and 0: none). Fills `panels` (round_up(n, 8) * round_up(k, 2) bytes) and `offsets`
// (round_up(n, 8) int32). Unit: a panel.
KERNEL(pack_b_int8, b, type, step_k, step_n, zero, zeros, panels, offsets, k, n) {
    int is_signed = a->type == TYPE_I8;
    for (word panel = begin; panel < end; panel++) {
        int8_t *to = PTR(int8_t, a->panels) + panel * PAIRS(a->k) * 2 * PANEL;
        for (word k = 0; k < 2 * PAIRS(a->k); k += 2)
            for (word j = 0; j < PANEL; j++)
                for (word half = 0; half < 2; half++) {
                    word n = panel * PANEL + j, i = k + half;
                    const uint8_t *from = PTR(const uint8_t, a->b) + i * a->step_k + n * a->step_n;
                    *to++ = n >= a->n || i >= a->k ? 0 : (int8_t)(is_signed ? *from : *from - 128);
                }
        for (word j = 0; j < PANEL; j++) {
            word n = panel * PANEL + j, z = a->zeros > 1 ? n : 0;
            int32_t zero = 0;
            if (a->zeros && n < a->n) zero = is_signed ? PTR(const int8_t, a->zero)[z] : PTR(const uint8_t, a->zero)[z];
            PTR(int32_t, a->offsets)[n] = (is_signed ? 0 : 128) - zero;
        }
    }
}

// Widens one row of A to `pairs` pairs; returns its sum.
static int32_t widen_row(const uint8_t *from, int is_signed, int32_t zero, word depth, int16_t *to) {
    int32_t sum = 0;
    if (is_signed)
        for (word k = 0; k < depth; k++) sum += to[k] = (int16_t)((int8_t)from[k] - zero);
    else
        for (word k = 0; k < depth; k++) sum += to[k] = (int16_t)(from[k] - zero);
    if (depth % 2) to[depth] = 0;
    return sum;
}

#if defined(__AVX2__)
#define INT8_ROWS 4
#define INT8_PANELS 2
#else
#define INT8_ROWS 4
#define INT8_PANELS 1
#endif
#define INT8_VECTORS (INT8_PANELS * PER_PANEL)

// totals[row][column] of `rows` rows (a, a + step, ...) and INT8_PANELS panels.
INLINE void tile_int8(const int16_t *a, word step, const int8_t *b, word panel_bytes, word pairs, const int rows,
                      int32_t *totals) {
    vi total[INT8_ROWS][INT8_VECTORS];
    UNROLL for (int i = 0; i < rows; i++) {
        UNROLL for (int j = 0; j < INT8_VECTORS; j++) total[i][j] = (vi)0;
    }
    for (word k = 0; k < pairs; k++, a += 2, b += 2 * PANEL) {
        vs columns[INT8_VECTORS];
        UNROLL for (int j = 0; j < INT8_VECTORS; j++) {
            const int8_t *from = b + j / PER_PANEL * panel_bytes + j % PER_PANEL * 2 * LANES;
            columns[j] = __builtin_convertvector(*(const vc_unaligned *)from, vs);
        }
        UNROLL for (int i = 0; i < rows; i++) {
            vs pair = (vs)(vi)*(const i32_unaligned *)(a + i * step);
            UNROLL for (int j = 0; j < INT8_VECTORS; j++) total[i][j] = dot_pairs(pair, columns[j], total[i][j]);
        }
    }
    UNROLL for (int i = 0; i < rows; i++) {
        int32_t *row = totals + i * INT8_PANELS * PANEL;
        UNROLL for (int j = 0; j < INT8_VECTORS; j++) vstore_i(row + j * LANES, total[i][j]);
    }
}

#define TILE_INT8(rows)                                                                                          \
    static NOINLINE void tile_int8_##rows(const int16_t *a, word step, const int8_t *b, word panel_bytes, word pairs, \
                                          int32_t *totals) {                                                     \
        tile_int8(a, step, b, panel_bytes, pairs, rows, totals);                                                 \
    }
TILE_INT8(1) TILE_INT8(2) TILE_INT8(3) TILE_INT8(4)

static void tile_int8_run(word rows, const int16_t *a, word step, const int8_t *b, word panel_bytes, word pairs,
                          int32_t *totals) {
    switch (rows) {
    case 1: tile_int8_1(a, step, b, panel_bytes, pairs, totals); break;
    case 2: tile_int8_2(a, step, b, panel_bytes, pairs, totals); break;
    case 3: tile_int8_3(a, step, b, panel_bytes, pairs, totals); break;
    default: tile_int8_4(a, step, b, panel_bytes, pairs, totals);
    }
}

// Where results go, and what is done to them: see gemm_int8.
typedef struct {
    const int32_t *offsets;
    word c, ldc;
    const float *a_scale, *b_scale;
    word b_scale_step;  // 0 or 1
    const float *bias;
    int activation;
    float low, high;
} Result;

// Columns [n, n + width) of row m, whose products are `totals` and whose sum in A is `sum`.
INLINE void finish_row(const Result *r, const int32_t *totals, int32_t sum, word m, word n, word width) {
    word place = r->c + (m * r->ldc + n) * 4;
    for (word j = 0; j < width; j += LANES) {
        word count = min_word(LANES, width - j);
        vu exact = (vu)vload_i(totals + j) + (vu)vload_i(r->offsets + n + j) * (vu)(vi)sum;
        if (!r->a_scale) {
            vstore_count(F32(place) + j, (vf)exact, count);
            continue;
        }
        vf scale = *r->a_scale * (r->b_scale_step ? vload_count(r->b_scale + n + j, count) : vsplat(*r->b_scale));
        vf value = __builtin_convertvector((vi)exact, vf) * scale;
        if (r->bias) value += vload_count(r->bias + n + j, count);
        vstore_count(F32(place) + j, value, count);
    }
    if (r->a_scale && r->activation) activate_block(F32(place), r->ldc, 1, width, r->activation, r->low, r->high);
}

enum { INT8_BLOCK = 24 };  // rows that are widened at a time

// The pieces are those of gemm: 12 rows where there are many, else 16 columns (pieces.py).
enum { PIECE_ROWS = 12, PIECE_COLUMNS = 16, MANY_ROWS = 96 };

// C = A B. A (`type` int8 or uint8, rows of lda, zero point at address `a_zero` or 0), B packed by pack_b_int8.
// Without `a_scale` (0), C is int32. With it, the address of one float32, C is float32: activation(A B * (a_scale *
// b_scale) + bias), where `b_scale` is the address of `b_scales` values, 1 or one per column, and bias, one value per
// column, may be absent (0). Units: pieces.gemm. Scratch: 24 * (2 * round_up(k, 2) + 4) bytes.
KERNEL(gemm_int8, a, type, lda, a_zero, b, offsets, c, ldc, m, n, k, a_scale, b_scale, b_scales, bias, activation, low,
       high) {
    word by_rows = a->m >= MANY_ROWS, pairs = PAIRS(a->k), panel_bytes = pairs * 2 * PANEL;
    word m0 = by_rows ? begin * PIECE_ROWS : 0, m1 = by_rows ? min_word(end * PIECE_ROWS, a->m) : a->m;
    word n0 = by_rows ? 0 : begin * PIECE_COLUMNS, n1 = by_rows ? a->n : min_word(end * PIECE_COLUMNS, a->n);
    int is_signed = a->type == TYPE_I8;
    int32_t zero = !a->a_zero ? 0 : is_signed ? *PTR(const int8_t, a->a_zero) : *PTR(const uint8_t, a->a_zero);
    int16_t *widened = (int16_t *)scratch;
    int32_t *sums = (int32_t *)(widened + INT8_BLOCK * 2 * pairs);
    const Result result = {
        .offsets = PTR(const int32_t, a->offsets), .c = a->c, .ldc = a->ldc, .a_scale = F32(a->a_scale),
        .b_scale = F32(a->b_scale), .b_scale_step = a->b_scales > 1, .bias = F32(a->bias),
        .activation = (int)a->activation, .low = as_f32(a->low), .high = as_f32(a->high),
    };
    for (word block = m0; block < m1; block += INT8_BLOCK) {
        word rows = min_word(INT8_BLOCK, m1 - block);
        for (word i = 0; i < rows; i++)
            sums[i] = widen_row(PTR(const uint8_t, a->a) + (block + i) * a->lda, is_signed, zero, a->k,
                                widened + i * 2 * pairs);
        for (word n = n0; n < n1; n += INT8_PANELS * PANEL) {
            word width = min_word(INT8_PANELS * PANEL, n1 - n);
            for (word i = 0; i < rows; i += INT8_ROWS) {
                int32_t totals[INT8_ROWS * INT8_PANELS * PANEL];
                word count = min_word(INT8_ROWS, rows - i);
                const int8_t *b = PTR(const int8_t, a->b) + n / PANEL * panel_bytes;
                word second = width > PANEL ? panel_bytes : 0;  // one that is not there is the first once more
                tile_int8_run(count, widened + i * 2 * pairs, 2 * pairs, b, second, pairs, totals);
                for (word row = 0; row < count; row++)
                    finish_row(&result, totals + row * INT8_PANELS * PANEL, sums[i + row], block + i + row, n, width);
            }
        }
    }
}
