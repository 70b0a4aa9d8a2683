// Picking elements by indices. NumPy twins: onnxlet/ops, Gather, GatherElements, GatherND.
//
// `indices` are int32 or int64 (`index_size` 4 or 8); negative ones count from the end. One outside of its axis reads
// nothing: 1 + its number in `indices` is written to the int64 at address `error`, which must be 0 before.
#include "moving.h"
#include "strided.h"

// Unit: one piece of `inner_bytes` of y, which is [outer, count, inner]; x is [outer, axis, inner].
KERNEL(gather, x, indices, index_size, y, axis, count, inner_bytes, error) {
    word bytes = a->inner_bytes, number = begin % a->count;
    const char *x = PTR(const char, a->x) + begin / a->count * a->axis * bytes;
    char *to = PTR(char, a->y) + begin * bytes;
    for (word i = begin; i < end; i++, number++, to += bytes) {
        if (number == a->count) {
            number = 0;
            x += a->axis * bytes;
        }
        word index = index_at(a->indices, a->index_size, number);
        if (!index_in_bounds(&index, a->axis, number, a->error)) continue;
        const char *from = x + index * bytes;
        if (bytes == 4) *(unaligned32 *)to = *(const unaligned32 *)from;
        else copy_bytes(to, from, bytes);
    }
}

INLINE void copy_element(word size, word y, word to, word x, word from) {
    switch (size) {
    case 1: PTR(uint8_t, y)[to] = PTR(const uint8_t, x)[from]; break;
    case 2: PTR(uint16_t, y)[to] = PTR(const uint16_t, x)[from]; break;
    case 4: PTR(uint32_t, y)[to] = PTR(const uint32_t, x)[from]; break;
    default: PTR(uint64_t, y)[to] = PTR(const uint64_t, x)[from];
    }
}

// Unit: one element of y. `shape` (of indices and y) and `x_strides` (in elements, 0 for the axis) are addresses of
// int64 arrays of `rank`; the axis has `axis` elements in x, `axis_stride` apart. `size` is the bytes of an element.
KERNEL(gather_elements, size, x, indices, index_size, y, rank, shape, x_strides, axis, axis_stride, error) {
    word n, at = begin;
    Walk w;
    walk_shape(&w, a->rank, a->shape, &a->x_strides, 1);
    walk_to(&w, begin, end, 1);
    word sx = w.strides[0][w.rank - 1];
    for (; (n = walk_count(&w)) > 0; at += n, walk_on(&w, n, 1))
        for (word i = 0; i < n; i++) {
            word index = index_at(a->indices, a->index_size, at + i);
            if (index_in_bounds(&index, a->axis, at + i, a->error))
                copy_element(a->size, a->y, at + i, a->x, w.offset[0] + i * sx + index * a->axis_stride);
        }
}

// Unit: one tuple of `depth` indices, which picks a piece of `inner_bytes` of x. `dims` and `strides` are addresses of
// int64 arrays of `depth`: the sizes of the indexed axes, and what a step along them is in pieces. With batch
// dimensions, each `batch_tuples` tuples belong to the next `batch_pieces` pieces of x.
KERNEL(gather_nd, x, indices, index_size, y, depth, dims, strides, inner_bytes, batch_tuples, batch_pieces, error) {
    word bytes = a->inner_bytes;
    for (word i = begin; i < end; i++) {
        word piece = i / a->batch_tuples * a->batch_pieces;
        int good = 1;
        for (word d = 0; d < a->depth; d++) {
            word number = i * a->depth + d, index = index_at(a->indices, a->index_size, number);
            good &= index_in_bounds(&index, PTR(const word, a->dims)[d], number, a->error);
            piece += index * PTR(const word, a->strides)[d];
        }
        if (good) copy_bytes(PTR(char, a->y) + i * bytes, PTR(const char, a->x) + piece * bytes, bytes);
    }
}
