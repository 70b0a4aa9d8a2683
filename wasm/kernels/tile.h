// Matrix products with B packed in panels: the tile at the bottom, the blocked product on top of it (gemm.c).
//
// Packed B: panels of 8 columns, each [depth][8], the last one filled up with zeros: B[k][n] lies at
// panels[(n / 8) * depth * 8 + k * 8 + n % 8].
#pragma once
#include "kernel.h"

#define PANEL 8

// A tile is TILE_ROWS x (TILE_PANELS * 8) elements of C at most: as many as the machine's registers hold.
#if defined(__wasm__)
#if defined(__wasm_relaxed_simd__)
#define TILE_ROWS 6
#else
#define TILE_ROWS 4
#endif
#define TILE_PANELS 1
#elif defined(__AVX2__) || defined(__aarch64__)
#define TILE_ROWS 6
#define TILE_PANELS 2
#else
#define TILE_ROWS 4
#define TILE_PANELS 1
#endif
#define TILE_COLUMNS (TILE_PANELS * PANEL)

// The pieces (units) of a product or a convolution of `rows` x `columns`: blocks of 16 columns and of up to 96 rows, of
// fewer where there are few columns; row of blocks after row of blocks (pieces.py says the same).
#define PIECE_COLUMNS 16
INLINE word piece_rows(word rows, word columns) {
    const word most = min_word(96, 12 * div_up(columns, PIECE_COLUMNS));
    return div_up(div_up(rows, div_up(rows, most)), 4) * 4;
}
INLINE word count_pieces(word rows, word columns) {
    return div_up(rows, piece_rows(rows, columns)) * div_up(columns, PIECE_COLUMNS);
}

// Rows [m0, m1) and columns [n0, n1).
typedef struct {
    word m0, m1, n0, n1;
} Piece;

// As many of the pieces [*begin, end) as make one block, from *begin on, which moves behind them.
INLINE Piece next_piece(word rows, word columns, word *begin, word end) {
    const word across = div_up(columns, PIECE_COLUMNS), height = piece_rows(rows, columns);
    const word down = *begin / across, first = *begin % across, count = end - *begin;
    const word lines = first ? 1 : max_word(1, count / across), last = min_word(across, first + count);
    *begin += lines * (last - first);
    return (Piece){down * height, min_word(rows, (down + lines) * height), first * PIECE_COLUMNS,
                   min_word(columns, last * PIECE_COLUMNS)};
}

// How many rows the next tile takes where `left` are left: the last ones are of about the same height, for low tiles are
// slower per row.
INLINE word tile_rows(word left) {
    if (left >= 5 * TILE_ROWS) return TILE_ROWS;
    const uint32_t rows = (uint32_t)left, tiles = (rows + TILE_ROWS - 1) / TILE_ROWS;
    return tiles > 1 ? (word)((rows + tiles - 1) / tiles) : left;
}

// What a tile needs: c = (c or bias) + sum over taps and depth of a * b, + residual, clamped to [low, high].
// In the WebAssembly build all fields are four bytes long, and hot_loops.py reads them: keep the order.
typedef struct {
    const float *a;           // the tile's first row of A ...
    const char *const *rows;  // ... or, indirect, per tap the addresses of its rows
    const float *b;           // the first panel, at the first k
    float *c;
    const float *bias;      // as many floats as the tile has columns
    const float *residual;  // or 0
    ptrdiff_t a_step, c_step, residual_step;  // bytes from row to row
    ptrdiff_t rows_step;                      // bytes from tap to tap in `rows`
    ptrdiff_t taps, depth;                    // indirect: `taps` runs of `depth` elements
    ptrdiff_t add_to_c, clamp;                // flags
    float low, high;
    ptrdiff_t panel_step;  // bytes from panel to panel of B
} Tile;

void tile_run(const Tile *tile, word rows, word panels);
void tile_run_indirect(const Tile *tile, word rows, word panels);
// A tile of which only `width` columns, no multiple of 8, are there.
void tile_run_ragged(const Tile *tile, word rows, word panels, word width, int indirect);

// A product of row-major A and packed B, and what is done to it: C = activation(A B + bias + residual).
typedef struct {
    const float *a;
    word lda;
    const float *b;
    float *c;
    word ldc;
    word columns, depth;
    const float *bias;      // or 0
    const float *residual;  // or 0
    word ldr;
    int activation;  // see `activate` in vecmath.h
    float low, high;
} Product;

// Rows [m0, m1) and columns [n0, n1) of a product; n0 is a multiple of 8, n1 too or all columns.
void multiply(const Product *product, word m0, word m1, word n0, word n1);

// Packs `columns` columns of B, element (k, n) at b[k * step_k + n * step_n], into panels.
void pack_panels(const float *b, word depth, word columns, word step_k, word step_n, float *panels);

// Applies an activation to a block of C in place.
void activate_block(float *c, word ldc, word rows, word columns, int activation, float low, float high);

// TILE_COLUMNS zeros, for tiles without bias.
extern const float no_bias[64];
