// The tile of the matrix product: C for native builds, hot_loops.py for WebAssembly.
#include "tile.h"

const float no_bias[64] __attribute__((aligned(64))) = {0};

#if defined(__wasm__)

#define DECLARE(rows) \
    void tile_##rows(const Tile *); \
    void tile_indirect_##rows(const Tile *);
DECLARE(1) DECLARE(2) DECLARE(3) DECLARE(4)
#if TILE_ROWS == 6
DECLARE(5) DECLARE(6)
#define LARGER(name) case 5: name##5(t); break; case 6: name##6(t); break;
#else
#define LARGER(name)
#endif
#define DISPATCH(name) \
    switch (rows) { \
    case 1: name##1(t); break; \
    case 2: name##2(t); break; \
    case 3: name##3(t); break; \
    case 4: name##4(t); break; \
    LARGER(name) \
    }

void tile_run(const Tile *t, word rows, __attribute__((unused)) word panels) { DISPATCH(tile_) }
void tile_run_indirect(const Tile *t, word rows, __attribute__((unused)) word panels) { DISPATCH(tile_indirect_) }

#else

#include "vecmath.h"

#define VECTORS (TILE_COLUMNS / LANES)  // per row of a full tile
#define PER_PANEL (PANEL / LANES)

INLINE void tile_body(const Tile *t, const int rows, const int panels, const int indirect) {
    const int vectors = panels * PER_PANEL;
    vf c[TILE_ROWS][VECTORS];
    if (t->add_to_c) {
        UNROLL for (int i = 0; i < rows; i++) {
            const float *row = (const float *)((const char *)t->c + i * t->c_step);
            UNROLL for (int j = 0; j < vectors; j++) c[i][j] = vload(row + j * LANES);
        }
    } else {
        UNROLL for (int j = 0; j < vectors; j++) {
            vf bias = vload(t->bias + j * LANES);
            UNROLL for (int i = 0; i < rows; i++) c[i][j] = bias;
        }
    }
    const char *b = (const char *)t->b;
    const ptrdiff_t panel_step = t->panel_step, depth = t->depth;
    const char *const *next = t->rows;
    for (ptrdiff_t tap = indirect ? t->taps : 1; tap > 0; tap--) {
        const float *a[TILE_ROWS];
        if (indirect) {
            UNROLL for (int i = 0; i < rows; i++) a[i] = (const float *)next[i];
            next = (const char *const *)((const char *)next + t->rows_step);
        } else {
            UNROLL for (int i = 0; i < rows; i++) a[i] = (const float *)((const char *)t->a + i * t->a_step);
        }
        for (ptrdiff_t k = 0; k < depth; k++, b += PANEL * 4) {
            vf bv[VECTORS];
            UNROLL for (int j = 0; j < vectors; j++)
                bv[j] = vload((const float *)(b + j / PER_PANEL * panel_step) + j % PER_PANEL * LANES);
            UNROLL for (int i = 0; i < rows; i++) {
                vf x = (vf)a[i][k];
                UNROLL for (int j = 0; j < vectors; j++) c[i][j] = vmadd(x, bv[j], c[i][j]);
            }
        }
    }
    if (t->residual) {
        UNROLL for (int i = 0; i < rows; i++) {
            const float *row = (const float *)((const char *)t->residual + i * t->residual_step);
            UNROLL for (int j = 0; j < vectors; j++) c[i][j] += vload(row + j * LANES);
        }
    }
    if (t->clamp) {
        vf low = (vf)t->low, high = (vf)t->high;
        UNROLL for (int i = 0; i < rows; i++) {
            UNROLL for (int j = 0; j < vectors; j++) c[i][j] = vclamp(c[i][j], low, high);
        }
    }
    UNROLL for (int i = 0; i < rows; i++) {
        float *row = (float *)((char *)t->c + i * t->c_step);
        UNROLL for (int j = 0; j < vectors; j++) vstore(row + j * LANES, c[i][j]);
    }
}

#define DEFINE(rows, panels) \
    static NOINLINE void tile_##rows##_##panels(const Tile *t) { tile_body(t, rows, panels, 0); } \
    static NOINLINE void tile_indirect_##rows##_##panels(const Tile *t) { tile_body(t, rows, panels, 1); }
#define DEFINE_PANELS(panels) DEFINE(1, panels) DEFINE(2, panels) DEFINE(3, panels) DEFINE(4, panels)
DEFINE_PANELS(1)
#if TILE_ROWS == 6
DEFINE(5, 1) DEFINE(6, 1)
#define LARGER(name, panels) , name##5##_##panels, name##6##_##panels
#else
#define LARGER(name, panels)
#endif
#define BY_ROWS(name, panels) \
    { name##1##_##panels, name##2##_##panels, name##3##_##panels, name##4##_##panels LARGER(name, panels) }
#if TILE_PANELS == 2
DEFINE_PANELS(2) DEFINE(5, 2) DEFINE(6, 2)
#define TABLE(name) { BY_ROWS(name, 1), BY_ROWS(name, 2) }
#else
#define TABLE(name) { BY_ROWS(name, 1) }
#endif

typedef void TileFunction(const Tile *);
static TileFunction *const direct[TILE_PANELS][TILE_ROWS] = TABLE(tile_);
static TileFunction *const indirect[TILE_PANELS][TILE_ROWS] = TABLE(tile_indirect_);

void tile_run(const Tile *t, word rows, word panels) { direct[panels - 1][rows - 1](t); }
void tile_run_indirect(const Tile *t, word rows, word panels) { indirect[panels - 1][rows - 1](t); }

#endif

// A tile at the right edge: computed aside, so that nothing is written beyond the last column.
NOINLINE void tile_run_ragged(const Tile *t, word rows, word panels, word width, int indirect) {
    float aside[TILE_ROWS * TILE_COLUMNS] __attribute__((aligned(64)));
    char *c = (char *)t->c;
    if (t->add_to_c)
        for (word i = 0; i < rows; i++)
            for (word j = 0; j < TILE_COLUMNS; j++)
                aside[i * TILE_COLUMNS + j] = j < width ? ((const float *)(c + i * t->c_step))[j] : 0.0f;
    Tile moved = *t;
    moved.c = aside;
    moved.c_step = TILE_COLUMNS * 4;
    (indirect ? tile_run_indirect : tile_run)(&moved, rows, panels);
    for (word i = 0; i < rows; i++)
        for (word j = 0; j < width; j++) ((float *)(c + i * t->c_step))[j] = aside[i * TILE_COLUMNS + j];
}
