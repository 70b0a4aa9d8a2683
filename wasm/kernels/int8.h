// Products of 8-bit integers, exact in int32: how the operands are laid out, and what is done with the sums.
//
// B is packed once, in panels of 8 columns. How, a panel says itself (`Columns.format`):
//
// - FORMAT_PAIRS, always possible: signed bytes, [depth / 2][8][2], for the machine's 16-bit dot product of pairs. A is
//   widened to 16 bits, less its zero point.
// - FORMAT_SEVEN_BITS, for columns whose numbers span no more than 7 bits: these less the smallest, as unsigned bytes,
//   [depth / 4][8][4]. A is signed bytes. Machines multiply such bytes and add up two products in 16 bits, which can't
//   overflow: 2 * 127 * 128 < 2^15.
// - FORMAT_EIGHT_BITS, where the machine adds up four products of bytes in 32 bits (AVX-512 VNNI): the same with all
//   8 bits.
//
// What was added to make bytes of A and B fit is put right at the end, from the sums of A's rows and B's columns:
// sum of (a' + alpha) (b' + beta) = sum of a' b' + beta * (sum of a' + alpha) + alpha * sum of b'.
// int32 wraps around where the result itself would.
#pragma once
#include "rows.h"
#include "tile.h"
#include "types.h"

enum { FORMAT_PAIRS, FORMAT_SEVEN_BITS, FORMAT_EIGHT_BITS };

#define PER_PANEL (PANEL / LANES)
#define ROUND_UP(n, to) (((n) + (to) - 1) / (to) * (to))
#define PANEL_BYTES(depth) (ROUND_UP(depth, 4) * PANEL)

// What belongs to the columns of a panel.
typedef struct {
    int32_t offsets[PANEL];  // beta
    int32_t sums[PANEL];     // of b'; 0 for FORMAT_PAIRS, whose alpha is 0
    int32_t format;
    int32_t different;  // whether offsets are
    int32_t unused[14];
} Columns;

// Rows of A that are multiplied together, prepared for each format that a panel asks for: four rows side by side, one
// 32-bit word (two or four elements) of each after the other, filled up with zeros.
enum { INT8_BLOCK = 24, QUARTET = 4 };
typedef struct {
    int32_t *pairs, *quads;  // [rows / 4][depth, rounded up to 16, / 2 or / 4][4]
    int32_t *sums;           // of each row, less the zero point
    int16_t *widened;        // room for a panel of B in 16 bits
    uint8_t *gathered;       // room for four rows
    word depth;
    int is_signed;
    int32_t zero, alpha;  // alpha is that of quads
} Block;

// Bytes of scratch for a Block (pieces.int8_scratch says the same).
#define INT8_SCRATCH(depth) (92 * (ROUND_UP(depth, 16) + 32))

// A Block in scratch memory, for an A of `type` with its zero point at address `zero` (or 0).
Block block_of(char *scratch, word depth, word type, word zero);

// Prepares rows [at, at + 4) of a block, of which those that are not there repeat others. `formats` has a bit for each.
// 16 bytes beyond a row's end are read.
void block_fill(const Block *block, word at, const uint8_t *const rows[QUARTET], unsigned formats);

// Where results go, and what is done to them.
typedef struct {
    word c, ldc;             // address, elements from row to row
    word type;               // int32, float32, int8 or uint8
    const float *a_scale;    // or 0: 1
    const float *scale;      // one or one per column, by `scale_step`; int32 results have none
    word scale_step;
    const float *bias;       // or 0: added to float32 results
    const int32_t *addend;   // or 0: added to the sums
    int32_t zero;            // added to 8-bit results, once they are rounded
    int activation;          // of float32 results
    float low, high;
} Result;

// Multiplies `rows` prepared rows by columns [n0, n1): n0 is a multiple of 8. Row i of the block is row m + i of C. Up
// to 28 bytes beyond the last scale, bias and addend are read.
void block_multiply(const Block *block, word rows, const int8_t *panels, const Columns *columns, const Result *result,
                    word m, word n0, word n1);

// The formats that the panels of columns [n0, n1) ask for, as bits.
unsigned formats_of(const Columns *columns, word n0, word n1);

// The zero point of `type` at an address, or 0.
INLINE int32_t zero_at(word type, word zero) {
    return !zero ? 0 : type == TYPE_I8 ? *PTR(const int8_t, zero) : *PTR(const uint8_t, zero);
}

// Numbers rounded to integers, ties to even, plus `zero`, within the range of bytes. NaN gives the least of these.
typedef struct {
    vf low, high;
    vi shift;
} Rounding;

// Adding this to a small number leaves the number, rounded, in the last bits.
#define ROUNDER 12582912.0f
INLINE Rounding rounding_to(int is_signed, int32_t zero) {
    const int least = is_signed ? -128 : 0, most = is_signed ? 127 : 255;
    const vi bits = (vi)vsplat(ROUNDER);
    return (Rounding){vsplat((float)(least - zero)), vsplat((float)(most - zero)), bits - zero};
}
INLINE vi rounded(vf value, const Rounding *to) {
#if defined(__wasm__)
    value = (vf)wasm_f32x4_pmin((v128_t)to->high, wasm_f32x4_pmax((v128_t)to->low, (v128_t)value));
#else
    value = vselect(value > to->low, value, to->low);
    value = vselect(value < to->high, value, to->high);
#endif
    return (vi)(value + ROUNDER) - to->shift;
}

// Vectors of integers in the range of a byte as a panel of bytes, of which `width` are stored.
INLINE void store_bytes(uint8_t *to, const vi values[PER_PANEL], word width, int is_signed) {
    union {
        uint8_t bytes[PANEL];
        uint64_t all;
    } narrow;
#if defined(__wasm__)
    v128_t halves = wasm_i16x8_narrow_i32x4((v128_t)values[0], (v128_t)values[1]);
    v128_t bytes = is_signed ? wasm_i8x16_narrow_i16x8(halves, halves) : wasm_u8x16_narrow_i16x8(halves, halves);
    narrow.all = (uint64_t)wasm_i64x2_extract_lane(bytes, 0);
#else
    (void)is_signed;
    typedef uint8_t vb __attribute__((ext_vector_type(LANES)));
    UNROLL for (int j = 0; j < PER_PANEL; j++) {
        vb part = __builtin_convertvector(values[j], vb);
        __builtin_memcpy(narrow.bytes + j * LANES, &part, LANES);
    }
#endif
    if (width == PANEL) __builtin_memcpy(to, &narrow.all, PANEL);
    else for (word j = 0; j < width; j++) to[j] = narrow.bytes[j];
}

// The inner loops (int8_tile.c, and hot_loops.py for WebAssembly): totals[row][column] of up to INT8_ROWS rows and
// INT8_PANELS panels. `a` is the first of the quartets, which are `a_step` words apart; `words` are those of a row.
#if defined(__AVX2__)
#define INT8_ROWS 8
#define INT8_PANELS 2
#else
#define INT8_ROWS 4
#define INT8_PANELS 1
#endif
void int8_tile(int format, word rows, const int32_t *a, word a_step, const int8_t *b, word b_step, word words,
               int32_t *totals);
#if defined(__wasm__)
// The same of one panel in pairs of 16 bits; there must be words.
void int8_tile_widened(word rows, const int32_t *a, const int16_t *b, word words, int32_t *totals);
#endif

// Whether the processor has AVX-512 VNNI for vectors of 256 bits (runtime.c).
int has_avx512_vnni(void);
// The best format that this machine has.
int int8_best_format(void);
