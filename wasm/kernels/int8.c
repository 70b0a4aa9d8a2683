// Products of 8-bit integers, exact in int32. NumPy twins: onnxlet/ops, MatMulInteger, QLinearMatMul, QGemm, and what
// follows MatMulInteger in models that are quantised dynamically: Cast, Mul by the scales, Add of a bias, activations.
// int8.h tells how it is done.
#include "int8.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef uint8_t b16 __attribute__((ext_vector_type(16)));
typedef uint8_t b8 __attribute__((ext_vector_type(8)));
typedef int8_t c8 __attribute__((ext_vector_type(8)));
typedef int16_t v8s __attribute__((ext_vector_type(8)));
typedef uint16_t v8us __attribute__((ext_vector_type(8)));
typedef uint32_t v4u __attribute__((ext_vector_type(4)));
typedef uint32_t vu __attribute__((ext_vector_type(LANES)));
typedef b8 b8_unaligned __attribute__((aligned(1), may_alias));
typedef b16 b16_unaligned __attribute__((aligned(1), may_alias));

// B[k][n] at b + k / inner * step_outer + k % inner * step_inner + n * step_n, `type` int8 or uint8; `zero` is the
// address of its zero points, `zeros` of them: 1, or one per column (0 and 0: none). Fills `panels` (round_up(n, 8) *
// round_up(k, 4) bytes) and `columns` (128 bytes a panel) in the best format up to `best` that the machine has. More
// matrices may follow: the next n columns. Unit: a panel of a matrix.
KERNEL(pack_b_int8, b, type, inner, step_outer, step_inner, step_n, zero, zeros, panels, columns, k, n, best) {
    const int is_signed = a->type == TYPE_I8;
    const word per_group = div_up(a->n, PANEL);
    for (word unit = begin; unit < end; unit++) {
        const word group = unit / per_group, panel = unit % per_group;
        const uint8_t *from = PTR(const uint8_t, a->b) + (group * a->n + panel * PANEL) * a->step_n;
        int8_t *to = PTR(int8_t, a->panels) + unit * PANEL_BYTES(a->k);
        Columns *columns = PTR(Columns, a->columns) + unit;
        word count = min_word(PANEL, a->n - panel * PANEL);
        int least[PANEL], most[PANEL];
        for (word j = 0; j < PANEL; j++) least[j] = 255, most[j] = -128;
        memset(columns, 0, sizeof *columns);
#define EACH_ELEMENT                                                                                            \
    for (word k = 0, outer = 0; k < a->k; outer++)                                                              \
        for (word i = 0; i < a->inner; i++, k++)                                                                \
            for (word j = 0; j < count; j++)
#define ELEMENT                                                                                                 \
    (is_signed ? (int8_t)from[outer * a->step_outer + i * a->step_inner + j * a->step_n]                        \
               : from[outer * a->step_outer + i * a->step_inner + j * a->step_n])
        EACH_ELEMENT {
            int value = ELEMENT;
            least[j] = value < least[j] ? value : least[j];
            most[j] = value > most[j] ? value : most[j];
        }
        int format = int8_best_format();
        if (format > a->best) format = (int)a->best;
        int lowest = 255, highest = -128;  // of all columns
        for (word j = 0; j < count; j++) {
            if (format == FORMAT_SEVEN_BITS && most[j] - least[j] > 127) format = FORMAT_PAIRS;
            lowest = least[j] < lowest ? least[j] : lowest;
            highest = most[j] > highest ? most[j] : highest;
        }
        columns->format = format;
        int base[PANEL];
        for (word j = 0; j < count; j++) {
            base[j] = format != FORMAT_SEVEN_BITS ? (is_signed ? 0 : 128) : highest - lowest > 127 ? least[j] : lowest;
            if (format == FORMAT_EIGHT_BITS) base[j] = is_signed ? -128 : 0;
            int32_t zero = 0;
            word z = a->zeros > 1 ? group * a->n + panel * PANEL + j : 0;
            if (a->zeros) zero = is_signed ? PTR(const int8_t, a->zero)[z] : PTR(const uint8_t, a->zero)[z];
            columns->offsets[j] = base[j] - zero;
            columns->different |= columns->offsets[j] != columns->offsets[0];
        }
        for (word j = count; j < PANEL; j++) columns->offsets[j] = columns->offsets[0];
        const int pairs = format == FORMAT_PAIRS, size = pairs ? 2 : 4;
        memset(to, 0, (size_t)PANEL_BYTES(a->k));
        EACH_ELEMENT {
            int value = ELEMENT - base[j];
            to[k / size * size * PANEL + j * size + k % size] = (int8_t)value;
            if (!pairs) columns->sums[j] += value;
        }
    }
}

unsigned formats_of(const Columns *columns, word n0, word n1) {
    unsigned formats = 0;
    for (word panel = n0 / PANEL; panel * PANEL < n1; panel++) formats |= 1u << columns[panel].format;
    return formats;
}

Block block_of(char *scratch, word depth, word type, word zero) {
    const word deep = ROUND_UP(depth, 16);
    Block block = {.depth = depth, .is_signed = type == TYPE_I8, .zero = zero_at(type, zero)};
    block.alpha = (block.is_signed ? 0 : 128) - block.zero;
    block.pairs = (int32_t *)scratch;
    block.quads = block.pairs + INT8_BLOCK * deep / 2;
    block.widened = (int16_t *)(block.quads + INT8_BLOCK * deep / 4);
    block.sums = (int32_t *)(block.widened + deep * PANEL);
    block.gathered = (uint8_t *)(block.sums + INT8_BLOCK);
    return block;
}

// Four rows of four words, turned: words of one place side by side.
INLINE void transpose(v4i r[4]) {
    v4i low01 = __builtin_shufflevector(r[0], r[1], 0, 4, 1, 5);
    v4i high01 = __builtin_shufflevector(r[0], r[1], 2, 6, 3, 7);
    v4i low23 = __builtin_shufflevector(r[2], r[3], 0, 4, 1, 5);
    v4i high23 = __builtin_shufflevector(r[2], r[3], 2, 6, 3, 7);
    r[0] = __builtin_shufflevector(low01, low23, 0, 1, 4, 5);
    r[1] = __builtin_shufflevector(low01, low23, 2, 3, 6, 7);
    r[2] = __builtin_shufflevector(high01, high23, 0, 1, 4, 5);
    r[3] = __builtin_shufflevector(high01, high23, 2, 3, 6, 7);
}

// The sums of neighbours.
INLINE v4i add_pairs(v8s x) {
#if defined(__wasm__)
    return (v4i)wasm_i32x4_extadd_pairwise_i16x8((v128_t)x);
#elif defined(__x86_64__)
    return (v4i)_mm_madd_epi16((__m128i)x, _mm_set1_epi16(1));
#else
    return __builtin_convertvector(x.even, v4i) + __builtin_convertvector(x.odd, v4i);
#endif
}

static const uint8_t places[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};

// Behind a row's end the zero point stands in for what is not there.
static NOINLINE void fill_quads(const Block *block, const uint8_t *const rows[QUARTET], int32_t *to, int32_t *sums) {
    const b16 flip = (b16)(uint8_t)(block->is_signed ? 0 : 128), zero = (b16)(uint8_t)block->zero;
    const word depth = block->depth;
    v4i total = (v4i)0;
    for (word k = 0; k < depth; k += 16, to += 16) {
        v4i r[QUARTET];
        const b16 there = (b16)(*(const b16_unaligned *)places < (uint8_t)min_word(16, depth - k));
        UNROLL for (int i = 0; i < QUARTET; i++) {
            b16 bytes = *(const b16_unaligned *)(rows[i] + k);
            bytes = (bytes & there) | (zero & ~there);
            r[i] = (v4i)(bytes ^ flip);
        }
        transpose(r);
        UNROLL for (int i = 0; i < QUARTET; i++) {
            v8s odd = (v8s)r[i] >> 8, even = (v8s)((v8us)r[i] << 8) >> 8;
            total += add_pairs(odd + even);
            *(v4i_unaligned *)(to + 4 * i) = r[i];
        }
    }
    *(v4i_unaligned *)sums = (v4i)((v4u)total + (uint32_t)block->alpha * (uint32_t)ROUND_UP(depth, 16));
}

static NOINLINE void fill_pairs(const Block *block, const uint8_t *const rows[QUARTET], int32_t *to, int32_t *sums) {
    const v8s zero = (v8s)(int16_t)block->zero;
    const word depth = block->depth;
    v4i total = (v4i)0;
    for (word k = 0; k < depth; k += 8, to += 16) {
        v4i r[QUARTET];
        const b8 there = (b8)(*(const b8_unaligned *)places < (uint8_t)min_word(8, depth - k));
        const v8s mask = __builtin_convertvector((c8)there, v8s);
        UNROLL for (int i = 0; i < QUARTET; i++) {
            b8 bytes = *(const b8_unaligned *)(rows[i] + k);
            v8s wide = block->is_signed ? __builtin_convertvector((c8)bytes, v8s) : __builtin_convertvector(bytes, v8s);
            r[i] = (v4i)((wide - zero) & mask);
        }
        transpose(r);
        UNROLL for (int i = 0; i < QUARTET; i++) {
            total += add_pairs((v8s)r[i]);
            *(v4i_unaligned *)(to + 4 * i) = r[i];
        }
    }
    *(v4i_unaligned *)sums = total;
}

void block_fill(const Block *block, word at, const uint8_t *const rows[QUARTET], unsigned formats) {
    const word deep = ROUND_UP(block->depth, 16);
    if (formats & 1u << FORMAT_PAIRS) fill_pairs(block, rows, block->pairs + at * deep / 2, block->sums + at);
    if (formats & ~(1u << FORMAT_PAIRS)) fill_quads(block, rows, block->quads + at * deep / 4, block->sums + at);
}

// The columns of a panel, from n on, of `rows` rows from m on. `totals` are TILE_STEP apart.
#define TILE_STEP (INT8_PANELS * PANEL)
INLINE void finish(const Result *r, const int type, const int different, const Columns *columns, int32_t alpha,
                   const int32_t *totals, const int32_t *sums, word rows, word m, word n) {
    vu base[PER_PANEL], offset[PER_PANEL];
    vf scale[PER_PANEL], bias[PER_PANEL];
    UNROLL for (int j = 0; j < PER_PANEL; j++) {
        offset[j] = (vu)vload_i(columns->offsets + j * LANES);
        base[j] = (vu)vload_i(columns->sums + j * LANES) * (uint32_t)alpha;
        if (r->addend) base[j] += (vu)vload_i(r->addend + n + j * LANES);
        if (type == TYPE_I32) continue;
        scale[j] = r->scale_step ? vload(r->scale + n + j * LANES) : vsplat(*r->scale);
        if (r->a_scale) scale[j] *= *r->a_scale;
        bias[j] = r->bias ? vload(r->bias + n + j * LANES) : vsplat(0.0f);
    }
    const Rounding rounding = rounding_to(r->type == TYPE_I8, r->zero);
    for (word i = 0; i < rows; i++, totals += TILE_STEP) {
        const vu row = (vu)((uint32_t)columns->offsets[0] * (uint32_t)sums[i]);
        const word place = (m + i) * r->ldc + n;
        vi bytes[PER_PANEL];
        UNROLL for (int j = 0; j < PER_PANEL; j++) {
            vu exact = (vu)vload_i(totals + j * LANES) + base[j] + (different ? offset[j] * (uint32_t)sums[i] : row);
            if (type == TYPE_I32) {
                vstore_i(PTR(int32_t, r->c) + place + j * LANES, (vi)exact);
                continue;
            }
            vf value = __builtin_convertvector((vi)exact, vf) * scale[j];
            if (type == TYPE_F32) vstore(F32(r->c) + place + j * LANES, r->bias ? value + bias[j] : value);
            else bytes[j] = rounded(value, &rounding);
        }
        if (type == TYPE_U8) store_bytes(PTR(uint8_t, r->c) + place, bytes, PANEL, r->type == TYPE_I8);
    }
    if (type == TYPE_F32 && r->activation)
        activate_block(F32(r->c) + m * r->ldc + n, r->ldc, rows, PANEL, r->activation, r->low, r->high);
}

typedef void Finish(const Result *, const Columns *, int32_t alpha, const int32_t *totals, const int32_t *sums,
                    word rows, word m, word n);
#define FINISH(name, type)                                                                                        \
    static NOINLINE void name(const Result *r, const Columns *columns, int32_t alpha, const int32_t *totals,      \
                              const int32_t *sums, word rows, word m, word n) {                                   \
        if (columns->different) finish(r, type, 1, columns, alpha, totals, sums, rows, m, n);                     \
        else finish(r, type, 0, columns, alpha, totals, sums, rows, m, n);                                        \
    }
FINISH(finish_sums, TYPE_I32)
FINISH(finish_floats, TYPE_F32)
FINISH(finish_bytes, TYPE_U8)

// A panel of which only `width` columns are there: computed aside, so that nothing is written beyond the last column.
static NOINLINE void finish_ragged(Finish *function, const Result *r, const Columns *columns, int32_t alpha,
                                   const int32_t *totals, const int32_t *sums, word rows, word m, word n, word width) {
    int32_t aside[INT8_ROWS * PANEL];
    const word size = type_size(r->type);
    Result moved = *r;
    moved.c = (word)(uintptr_t)aside - n * size;
    moved.ldc = PANEL;
    function(&moved, columns, alpha, totals, sums, rows, 0, n);
    for (word i = 0; i < rows; i++)
        for (word j = 0; j < width * size; j++)
            PTR(char, r->c)[((m + i) * r->ldc + n) * size + j] = ((const char *)aside)[i * PANEL * size + j];
}

void block_multiply(const Block *block, word rows, const int8_t *panels, const Columns *columns, const Result *result,
                    word m, word n0, word n1) {
    const word depth = block->depth, deep = ROUND_UP(depth, 16), bytes = PANEL_BYTES(depth);
    Finish *const function =
        result->type == TYPE_I32 ? finish_sums : result->type == TYPE_F32 ? finish_floats : finish_bytes;
    for (word n = n0, width; n < n1; n += width) {
        const Columns *at = columns + n / PANEL;
        const int8_t *b = panels + n / PANEL * bytes;
        const int format = at->format, pairs = format == FORMAT_PAIRS;
        width = min_word(INT8_PANELS * PANEL, n1 - n);
        if (width > PANEL && at[1].format != format) width = PANEL;
        const word second = width > PANEL ? bytes : 0;  // one that is not there is the first once more
        const int32_t *a = pairs ? block->pairs : block->quads;
        const word words = pairs ? (depth + 1) / 2 : (depth + 3) / 4, a_step = pairs ? 2 * deep : deep;
#if defined(__wasm__)
        const int widened = pairs && words && rows > QUARTET;
        if (widened)
            for (word k = 0; k < words * 2 * PANEL; k += 16) {
                v128_t x = wasm_v128_load(b + k);
                wasm_v128_store(block->widened + k, wasm_i16x8_extend_low_i8x16(x));
                wasm_v128_store(block->widened + k + 8, wasm_i16x8_extend_high_i8x16(x));
            }
#endif
        for (word i = 0; i < rows; i += INT8_ROWS) {
            int32_t totals[INT8_ROWS * TILE_STEP];
            const word count = min_word(INT8_ROWS, rows - i);
            const int32_t *first = a + i / QUARTET * a_step;
#if defined(__wasm__)
            if (widened) int8_tile_widened(count, first, block->widened, words, totals);
            else
#endif
                int8_tile(format, count, first, a_step, b, second, words, totals);
            const int32_t alpha = pairs ? 0 : block->alpha, *sums = block->sums + i;
            for (word j = 0; j < width; j += PANEL) {
                if (width - j < PANEL)
                    finish_ragged(function, result, at + j / PANEL, alpha, totals + j, sums, count, m + i, n + j,
                                  width - j);
                else function(result, at + j / PANEL, alpha, totals + j, sums, count, m + i, n + j);
            }
        }
    }
}

// C = A B. A (`type` int8 or uint8, rows of lda, zero point at address `a_zero` or 0), B packed by pack_b_int8. C is
// - int32: A B + addend;
// - float32: activation(A B * (a_scale * b_scale) + bias);
// - int8 or uint8: A B + addend times (a_scale * b_scale), rounded (ties to even), plus the zero point at `c_zero`,
//   saturated.
// `a_scale` is the address of one float32 (or 0: 1), `b_scale` of `b_scales` values, 1 or one per column. addend
// (int32) and bias (float32), one value per column, may be absent (0). Units: pieces.gemm. Scratch: pieces.int8_scratch.
KERNEL(gemm_int8, a, type, lda, a_zero, b, columns, c, ldc, m, n, k, c_type, a_scale, b_scale, b_scales, bias, addend,
       c_zero, activation, low, high) {
    const Result result = {
        .c = a->c, .ldc = a->ldc, .type = a->c_type, .a_scale = F32(a->a_scale), .scale = F32(a->b_scale),
        .scale_step = a->b_scales > 1, .bias = F32(a->bias), .addend = PTR(const int32_t, a->addend),
        .zero = zero_at(a->c_type, a->c_zero), .activation = (int)a->activation, .low = as_f32(a->low),
        .high = as_f32(a->high),
    };
    const Columns *columns = PTR(const Columns, a->columns);
    const Block block = block_of(scratch, a->k, a->type, a->a_zero);
    while (begin < end) {
        const Piece p = next_piece(a->m, a->n, &begin, end);
        const unsigned formats = formats_of(columns, p.n0, p.n1);
        for (word m = p.m0; m < p.m1; m += INT8_BLOCK) {
            word rows = min_word(INT8_BLOCK, p.m1 - m);
            for (word i = 0; i < rows; i += QUARTET) {
                const uint8_t *four[QUARTET];
                for (word r = 0; r < QUARTET; r++)
                    four[r] = PTR(const uint8_t, a->a) + (m + min_word(i + r, rows - 1)) * a->lda;
                block_fill(&block, i, four, formats);
            }
            block_multiply(&block, rows, PTR(const int8_t, a->b), columns, &result, m, p.n0, p.n1);
        }
    }
}
