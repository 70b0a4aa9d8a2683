// Walking over N-dimensional blocks whose operands have a stride (in elements, 0 or negative too) per dimension.
//
// On the tape, shapes and strides are addresses of int64 arrays of `rank` (0 to 8) words. A block of shape S is cut
// into units of one element each, in row-major order of S; a walk visits the rows, or parts of rows, of a range of
// units.
#pragma once
#include "kernel.h"

#define MAX_RANK 8
#define MAX_OPERANDS 4

typedef struct {
    word rank;                              // at least 1; dimensions of size 1 are gone, mergeable neighbours merged
    word shape[MAX_RANK];
    word strides[MAX_OPERANDS][MAX_RANK];
    word inner;                             // length of a row: shape[rank - 1]
    word index[MAX_RANK];                   // of the present row
    word offset[MAX_OPERANDS];              // of the present place, in elements
    word column, left;                      // the place in the row; elements left of the range
} Walk;

// A walk over units [begin, end) of a block. `strides` are addresses of `operands` arrays.
INLINE void walk_shape(Walk *w, word rank, word shape, const word *strides, int operands) {
    const word *sizes = PTR(const word, shape);
    w->rank = 0;
    for (word d = 0; d < rank; d++) {
        if (sizes[d] == 1) continue;
        word last = w->rank - 1;
        int merge = w->rank > 0;
        for (int k = 0; merge && k < operands; k++)
            merge = w->strides[k][last] == PTR(const word, strides[k])[d] * sizes[d];
        word to = merge ? last : w->rank++;
        w->shape[to] = merge ? w->shape[to] * sizes[d] : sizes[d];
        for (int k = 0; k < operands; k++) w->strides[k][to] = PTR(const word, strides[k])[d];
    }
    if (w->rank == 0) {
        w->rank = 1;
        w->shape[0] = 1;
        for (int k = 0; k < operands; k++) w->strides[k][0] = 1;
    }
    w->inner = w->shape[w->rank - 1];
}

INLINE void walk_to(Walk *w, word begin, word end, int operands) {
    w->left = end - begin;
    w->column = 0;
    if (w->left <= 0) return;
    word row = begin / w->inner;
    w->column = begin % w->inner;
    for (int k = 0; k < operands; k++) w->offset[k] = w->column * w->strides[k][w->rank - 1];
    for (word d = w->rank - 2; d >= 0; d--) {
        w->index[d] = row % w->shape[d];
        row /= w->shape[d];
        for (int k = 0; k < operands; k++) w->offset[k] += w->index[d] * w->strides[k][d];
    }
}

// How many elements lie at the present place, up to the end of the row or of the range; 0 at the end.
INLINE word walk_count(const Walk *w) { return min_word(w->inner - w->column, w->left); }

// From the first place of a row to that of a row `rows` further on in the last dimension but one.
INLINE void walk_down(Walk *w, word rows, int operands) {
    w->left -= rows * w->inner;
    w->index[w->rank - 2] += rows;
    for (int k = 0; k < operands; k++) w->offset[k] += rows * w->strides[k][w->rank - 2];
}

// Goes on by the `count` that walk_count gave.
INLINE void walk_on(Walk *w, word count, int operands) {
    w->left -= count;
    if (w->left <= 0) {
        w->left = w->inner = w->column = 0;
        return;
    }
    for (int k = 0; k < operands; k++) w->offset[k] -= w->column * w->strides[k][w->rank - 1];
    w->column = 0;
    for (word d = w->rank - 2; d >= 0; d--) {
        for (int k = 0; k < operands; k++) w->offset[k] += w->strides[k][d];
        if (++w->index[d] < w->shape[d]) return;
        for (int k = 0; k < operands; k++) w->offset[k] -= w->shape[d] * w->strides[k][d];
        w->index[d] = 0;
    }
}
