// Matrix products, float32. NumPy twins: np.matmul of two matrices or stacks of matrices, plus bias, residual and
// activation. Sums run over k in its order, whatever the blocking, so results do not depend on how work is cut.
#include "tile.h"
#include "vecmath.h"

// The part of B that a tile walks over (DEPTH x TILE_COLUMNS floats, 16 KiB) stays in the first cache while ROWS rows
// of A go by, which stay in the second one.
#define BLOCK_DEPTH (4096 / TILE_COLUMNS)
#define BLOCK_ROWS 96

void pack_panels(const float *b, word depth, word columns, word step_k, word step_n, float *panels) {
    for (word n = 0; n < columns; n += PANEL) {
        word width = min_word(PANEL, columns - n);
        const float *from = b + n * step_n;
        if (width == PANEL && step_n == 1) {
            for (word k = 0; k < depth; k++, from += step_k, panels += PANEL) {
                v4store(panels, v4load(from));
                v4store(panels + 4, v4load(from + 4));
            }
            continue;
        }
        word k = 0;
        if (width == PANEL && step_k == 1) {
            for (; k + 4 <= depth; k += 4, from += 4, panels += 4 * PANEL) {
                for (int half = 0; half < 2; half++) {
                    const float *row = from + half * 4 * step_n;
                    v4f r0 = v4load(row), r1 = v4load(row + step_n);
                    v4f r2 = v4load(row + 2 * step_n), r3 = v4load(row + 3 * step_n);
                    v4f low01 = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
                    v4f high01 = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
                    v4f low23 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
                    v4f high23 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
                    float *to = panels + half * 4;
                    v4store(to, __builtin_shufflevector(low01, low23, 0, 1, 4, 5));
                    v4store(to + PANEL, __builtin_shufflevector(low01, low23, 2, 3, 6, 7));
                    v4store(to + 2 * PANEL, __builtin_shufflevector(high01, high23, 0, 1, 4, 5));
                    v4store(to + 3 * PANEL, __builtin_shufflevector(high01, high23, 2, 3, 6, 7));
                }
            }
        }
        for (; k < depth; k++, from += step_k, panels += PANEL)
            for (word i = 0; i < PANEL; i++) panels[i] = i < width ? from[i * step_n] : 0.0f;
    }
}

// The loop is inside the choice, so that the code is not asked for every vector.
static NOINLINE void activate_vectors(float *c, word ldc, word rows, word vectors, int activation, vf low, vf high) {
    switch (activation) {
#define CASE(code) \
    case code: \
        for (word m = 0; m < rows; m++) \
            for (word i = 0; i < vectors; i++) { \
                float *at = c + m * ldc + i * LANES; \
                vstore(at, activate(vload(at), code, low, high)); \
            } \
        break;
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)
#undef CASE
    }
}

void activate_block(float *c, word ldc, word rows, word columns, int activation, float low, float high) {
    const word vectors = columns / LANES, rest = columns % LANES;
    activate_vectors(c, ldc, rows, vectors, activation, (vf)low, (vf)high);
    if (rest == 0) return;
    c += vectors * LANES;
    for (word m = 0; m < rows; m++, c += ldc) {
        float aside[LANES];
        vstore(aside, vload_part(c, rest));
        activate_vectors(aside, 0, 1, 1, activation, (vf)low, (vf)high);
        vstore_part(c, vload(aside), rest);
    }
}

static void multiply_block(const Product *p, word m0, word m1, word n0, word n1, word k0, word k1) {
    const int last = k1 == p->depth;
    Tile t = {
        .a_step = p->lda * 4,
        .c_step = p->ldc * 4,
        .residual_step = p->ldr * 4,
        .depth = k1 - k0,
        .add_to_c = k0 > 0,
        .clamp = last && p->activation == 1,
        .low = p->low,
        .high = p->high,
        .panel_step = p->depth * PANEL * 4,
    };
    for (word n = n0; n < n1; n += TILE_COLUMNS) {
        word width = min_word(TILE_COLUMNS, n1 - n), panels = width > PANEL ? 2 : 1;
        t.b = p->b + (n * p->depth + k0 * PANEL);
        t.bias = p->bias ? p->bias + n : no_bias;
        for (word m = m0, rows; m < m1; m += rows) {
            rows = tile_rows(m1 - m);
            t.a = p->a + m * p->lda + k0;
            t.c = p->c + m * p->ldc + n;
            t.residual = last && p->residual ? p->residual + m * p->ldr + n : 0;
            if (width % PANEL)
                tile_run_ragged(&t, rows, panels, width, 0);
            else
                tile_run(&t, rows, panels);
        }
        if (last && p->activation > 1)
            activate_block(p->c + m0 * p->ldc + n, p->ldc, m1 - m0, width, p->activation, p->low, p->high);
    }
}

#if defined(__wasm__)
#define ROW_PANELS 4
void vector_panels_4(const float *a, ptrdiff_t depth, const float *b, ptrdiff_t step, float *c, const float *bias);
#define vector_panels vector_panels_4
#else
#define ROW_PANELS 8
static NOINLINE void vector_panels(const float *a, ptrdiff_t depth, const float *b, ptrdiff_t step, float *c,
                                   const float *bias) {
    vf total[ROW_PANELS * PANEL / LANES];
    const int per_panel = PANEL / LANES, vectors = ROW_PANELS * per_panel;
    UNROLL for (int j = 0; j < vectors; j++) total[j] = vload(bias + j * LANES);
    for (ptrdiff_t k = 0; k < depth; k++, b += PANEL) {
        vf x = (vf)a[k];
        UNROLL for (int j = 0; j < vectors; j++) {
            const float *from = (const float *)((const char *)b + j / per_panel * step) + j % per_panel * LANES;
            total[j] = vmadd(vload(from), x, total[j]);
        }
    }
    UNROLL for (int j = 0; j < vectors; j++) vstore(c + j * LANES, total[j]);
}
#endif

// One row: there is nothing to block, B goes by once, and many panels side by side keep the adders busy.
static word multiply_row(const Product *p, word m, word n0, word n1) {
    const word columns = ROW_PANELS * PANEL;
    word n = n0;
    for (; n + columns <= n1; n += columns) {
        float *c = p->c + m * p->ldc + n;
        vector_panels(p->a + m * p->lda, p->depth, p->b + n * p->depth, p->depth * PANEL * 4, c,
                      p->bias ? p->bias + n : no_bias);
        if (p->residual)
            for (word j = 0; j < columns; j += LANES)
                vstore(c + j, vload(c + j) + vload(p->residual + m * p->ldr + n + j));
        if (p->activation) activate_block(c, p->ldc, 1, columns, p->activation, p->low, p->high);
    }
    return n;
}

void multiply(const Product *p, word m0, word m1, word n0, word n1) {
    if (m1 - m0 == 1) n0 = multiply_row(p, m0, n0, n1);
    if (n0 >= n1) return;
    word k0 = 0;
    do {  // at least once: without depth, C is the bias
        word k1 = min_word(p->depth, k0 + BLOCK_DEPTH);
        for (word m = m0; m < m1; m += BLOCK_ROWS) multiply_block(p, m, min_word(m1, m + BLOCK_ROWS), n0, n1, k0, k1);
        k0 = k1;
    } while (k0 < p->depth);
}

// Packs B into panels. B[k][n] lies at b[k * step_k + n * step_n] (in elements), so that a transposed or a strided B
// is packed alike. `panels` holds round_up(n, 8) * k floats. Unit: a panel.
KERNEL(pack_b, b, step_k, step_n, panels, k, n) {
    word from = begin * PANEL, to = min_word(end * PANEL, a->n);
    if (from < to)
        pack_panels(F32(a->b) + from * a->step_n, a->k, to - from, a->step_k, a->step_n, F32(a->panels) + from * a->k);
}

// C = activation(A B + bias + residual): A row-major with rows of lda elements, B packed by pack_b, C with rows of ldc,
// residual (or 0) with rows of ldr; bias has n elements, or is 0. Units: `pieces.gemm`.
KERNEL(gemm, a, lda, b, c, ldc, m, n, k, bias, residual, ldr, activation, low, high) {
    Product p = {
        .a = F32(a->a), .lda = a->lda, .b = F32(a->b), .c = F32(a->c), .ldc = a->ldc, .columns = a->n, .depth = a->k,
        .bias = F32(a->bias), .residual = F32(a->residual), .ldr = a->ldr,
        .activation = (int)a->activation, .low = as_f32(a->low), .high = as_f32(a->high),
    };
    while (begin < end) {
        const Piece piece = next_piece(a->m, a->n, &begin, end);
        multiply(&p, piece.m0, piece.m1, piece.n0, piece.n1);
    }
}

// A stack of products in which B is not packed: C[i] = activation(A[i] B[i] + bias). B[i][k][n] lies at
// b + i's step + k * step_k + n * step_n. The stack has up to two dimensions, outer and inner, with a step (in
// elements) for each of A, B and C; 0 repeats an operand. Unit: 16 columns of a matrix. Scratch: round_up(n, 8) * k floats.
KERNEL(gemm_batched, a, lda, a_outer, a_inner, b, step_k, step_n, b_outer, b_inner, c, ldc, c_outer, c_inner, inner, m,
       n, k, bias, activation, low, high) {
    const word across = div_up(a->n, PIECE_COLUMNS);
    const float *packed = 0;
    while (begin < end) {
        const word i = begin / across, first = begin % across, last = min_word(across, first + end - begin);
        const word o = i / a->inner, j = i % a->inner, n = first * PIECE_COLUMNS;
        const word width = min_word(a->n, last * PIECE_COLUMNS) - n;
        const float *b = F32(a->b) + o * a->b_outer + j * a->b_inner + n * a->step_n;
        if (b != packed) {
            pack_panels(b, a->k, width, a->step_k, a->step_n, (float *)scratch);
            packed = width == a->n ? b : 0;
        }
        Product p = {
            .a = F32(a->a) + o * a->a_outer + j * a->a_inner, .lda = a->lda, .b = (const float *)scratch,
            .c = F32(a->c) + o * a->c_outer + j * a->c_inner + n, .ldc = a->ldc, .columns = width, .depth = a->k,
            .bias = a->bias ? F32(a->bias) + n : 0, .activation = (int)a->activation, .low = as_f32(a->low),
            .high = as_f32(a->high),
        };
        multiply(&p, 0, a->m, 0, width);
        begin += last - first;
    }
}
