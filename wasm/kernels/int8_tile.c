// The inner loops of products of 8-bit integers: see int8.h. For WebAssembly most are in hot_loops.py.
#include "int8.h"
#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define INT8_VECTORS (INT8_PANELS * PER_PANEL)

typedef int16_t vs __attribute__((ext_vector_type(2 * LANES)));  // LANES pairs
typedef int8_t vc __attribute__((ext_vector_type(2 * LANES)));
typedef int8_t vq __attribute__((ext_vector_type(4 * LANES)));  // LANES quads
typedef vc vc_unaligned __attribute__((aligned(1), may_alias));
typedef vq vq_unaligned __attribute__((aligned(1), may_alias));

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

// total + the sums of the products of quads: a is signed, b has seven bits
#if defined(__x86_64__)
#define HAS_SEVEN_BITS
INLINE vi dot_seven_bits(vq a, vq b, vi total) {
#if defined(__AVX2__)
    return total + (vi)_mm256_madd_epi16(_mm256_maddubs_epi16((__m256i)b, (__m256i)a), _mm256_set1_epi16(1));
#else
    return total + (vi)_mm_madd_epi16(_mm_maddubs_epi16((__m128i)b, (__m128i)a), _mm_set1_epi16(1));
#endif
}
#endif

// A function for each number of rows, up to `QUARTET` (native vectors: 16 registers hold no more).
#define TILE(NAME, STEP, DOT)                                                                                      \
    INLINE void NAME(const int32_t *a, word a_step, const int8_t *b, word b_step, word words, int32_t *totals,     \
                     const int rows) {                                                                             \
        vi total[MOST_ROWS][INT8_VECTORS];                                                                         \
        UNROLL for (int i = 0; i < rows; i++) {                                                                    \
            UNROLL for (int j = 0; j < INT8_VECTORS; j++) total[i][j] = (vi)0;                                     \
        }                                                                                                          \
        for (word k = 0; k < words; k++, a += QUARTET, b += STEP * PANEL) {                                        \
            UNROLL for (int i = 0; i < rows; i++) {                                                                \
                vi x = (vi)a[i / QUARTET * a_step + i % QUARTET];                                                  \
                UNROLL for (int j = 0; j < INT8_VECTORS; j++) {                                                    \
                    const int8_t *from = b + j / PER_PANEL * b_step + j % PER_PANEL * STEP * LANES;                \
                    total[i][j] = DOT;                                                                             \
                }                                                                                                  \
            }                                                                                                      \
        }                                                                                                          \
        UNROLL for (int i = 0; i < rows; i++) {                                                                    \
            UNROLL for (int j = 0; j < INT8_VECTORS; j++)                                                          \
                vstore_i(totals + i * INT8_PANELS * PANEL + j * LANES, total[i][j]);                               \
        }                                                                                                          \
    }
#define ROWS(NAME, rows)                                                                                           \
    static NOINLINE void NAME##_##rows(const int32_t *a, word a_step, const int8_t *b, word b_step, word words,    \
                                       int32_t *totals) {                                                          \
        NAME(a, a_step, b, b_step, words, totals, rows);                                                           \
    }
typedef void TileFunction(const int32_t *a, word a_step, const int8_t *b, word b_step, word words, int32_t *totals);

#define MOST_ROWS QUARTET
TILE(tile_pairs, 2, dot_pairs((vs)x, __builtin_convertvector(*(const vc_unaligned *)from, vs), total[i][j]))
ROWS(tile_pairs, 1) ROWS(tile_pairs, 2) ROWS(tile_pairs, 3) ROWS(tile_pairs, 4)
static TileFunction *const pairs_tiles[] = {tile_pairs_1, tile_pairs_2, tile_pairs_3, tile_pairs_4};

#if defined(HAS_SEVEN_BITS)
TILE(tile_seven, 4, dot_seven_bits((vq)x, *(const vq_unaligned *)from, total[i][j]))
ROWS(tile_seven, 1) ROWS(tile_seven, 2) ROWS(tile_seven, 3) ROWS(tile_seven, 4)
static TileFunction *const seven_tiles[] = {tile_seven_1, tile_seven_2, tile_seven_3, tile_seven_4};
#endif
#undef MOST_ROWS

#if defined(__AVX2__)
// The same for processors that have more: 32 registers, and four products added up at once.
#define MOST_ROWS INT8_ROWS
#pragma clang attribute push(__attribute__((target("avx512f,avx512vl,avx512vnni"))), apply_to = function)
TILE(tile_eight, 4,
     (vi)_mm256_dpbusd_epi32((__m256i)total[i][j], (__m256i) * (const vq_unaligned *)from, (__m256i)x))
ROWS(tile_eight, 1) ROWS(tile_eight, 2) ROWS(tile_eight, 3) ROWS(tile_eight, 4)
ROWS(tile_eight, 5) ROWS(tile_eight, 6) ROWS(tile_eight, 7) ROWS(tile_eight, 8)
#pragma clang attribute pop
#undef MOST_ROWS
static TileFunction *const eight_tiles[] = {
    tile_eight_1, tile_eight_2, tile_eight_3, tile_eight_4, tile_eight_5, tile_eight_6, tile_eight_7, tile_eight_8,
};
#endif

#if defined(__wasm__)
#define DECLARE(name)                                                                       \
    void name##_1(const int32_t *a, const void *b, ptrdiff_t words, int32_t *totals);       \
    void name##_2(const int32_t *a, const void *b, ptrdiff_t words, int32_t *totals);       \
    void name##_3(const int32_t *a, const void *b, ptrdiff_t words, int32_t *totals);       \
    void name##_4(const int32_t *a, const void *b, ptrdiff_t words, int32_t *totals);
#define CALL(name)                                           \
    switch (rows) {                                          \
    case 1: name##_1(a, b, (ptrdiff_t)words, totals); break; \
    case 2: name##_2(a, b, (ptrdiff_t)words, totals); break; \
    case 3: name##_3(a, b, (ptrdiff_t)words, totals); break; \
    default: name##_4(a, b, (ptrdiff_t)words, totals);       \
    }
DECLARE(dot_pairs)

void int8_tile_widened(word rows, const int32_t *a, const int16_t *b, word words, int32_t *totals) {
    CALL(dot_pairs)
}
#if defined(__wasm_relaxed_simd__)
DECLARE(dot_seven)
#endif
#endif

void int8_tile(__attribute__((unused)) int format, word rows, const int32_t *a, word a_step, const int8_t *b,
               word b_step, word words, int32_t *totals) {
    if (words == 0) {
        memset(totals, 0, (size_t)(rows * INT8_PANELS * PANEL * 4));
        return;
    }
#if defined(__AVX2__)
    if (format == FORMAT_EIGHT_BITS) {
        eight_tiles[rows - 1](a, a_step, b, b_step, words, totals);
        return;
    }
#endif
#if defined(__wasm_relaxed_simd__)
    if (format == FORMAT_SEVEN_BITS) {
        CALL(dot_seven)
        return;
    }
#endif
    TileFunction *const *tiles = pairs_tiles;
#if defined(HAS_SEVEN_BITS)
    if (format == FORMAT_SEVEN_BITS) tiles = seven_tiles;
#endif
    for (word i = 0; i < rows; i += QUARTET) {
        word count = min_word(QUARTET, rows - i);
        tiles[count - 1](a + i / QUARTET * a_step, a_step, b, b_step, words, totals + i * INT8_PANELS * PANEL);
    }
}

int int8_best_format(void) {
#if defined(__AVX2__)
    static int best;  // asking the processor takes microseconds on virtual machines
    int known = __atomic_load_n(&best, __ATOMIC_RELAXED);
    if (!known) {
        known = has_avx512_vnni() ? FORMAT_EIGHT_BITS : FORMAT_SEVEN_BITS;
        __atomic_store_n(&best, known, __ATOMIC_RELAXED);
    }
    return known;
#elif defined(__x86_64__) || defined(__wasm_relaxed_simd__)
    return FORMAT_SEVEN_BITS;
#else
    return FORMAT_PAIRS;
#endif
}
