// Writing elements by indices. NumPy twins: onnxlet/ops, ScatterND, ScatterElements.
//
// y holds a copy of the data (kernel `copy`) before. `op` says what becomes of an element and its update: 0 the update,
// 1 their sum, 2 product, 3 maximum, 4 minimum; updates are applied in order. `type` (types.h) is float32, float64,
// int32, int64 or bytes; with op 0 only its size matters. Indices and errors as in gather.c.
#include "moving.h"
#include "strided.h"
#include "types.h"

#define COMBINE(T, sum, product)                                     \
    {                                                                \
        T *to = (T *)y + i, old = *to, update = ((const T *)u)[j];   \
        switch (op) {                                                \
        case 0: *to = update; break;                                 \
        case 1: *to = (T)(sum); break;                               \
        case 2: *to = (T)(product); break;                           \
        case 3: *to = old != old || old > update ? old : update; break; \
        default: *to = old != old || old < update ? old : update;    \
        }                                                            \
        break;                                                       \
    }

// y[i] = y[i] op u[j]
static void combine(int op, word type, void *y, word i, const void *u, word j) {
    switch (type) {
    case TYPE_F32: COMBINE(float, old + update, old *update)
    case TYPE_F64: COMBINE(double, old + update, old *update)
    case TYPE_I32:
    case TYPE_U32: COMBINE(int32_t, (uint32_t)old + (uint32_t)update, (uint32_t)old *(uint32_t)update)
    case TYPE_I64:
    case TYPE_U64: COMBINE(int64_t, (uint64_t)old + (uint64_t)update, (uint64_t)old *(uint64_t)update)
    case TYPE_F16:
    case TYPE_I16:
    case TYPE_U16: COMBINE(uint16_t, old + update, (uint32_t)old *update)
    default: COMBINE(uint8_t, old + update, old *update)
    }
}

// Unit: one element of the pieces of `inner` elements that are written (every unit looks at all `tuples`). `dims` and
// `strides` (in elements of y) are addresses of int64 arrays of `depth`.
KERNEL(scatter_nd, op, type, indices, index_size, updates, y, tuples, depth, dims, strides, inner, error) {
    word size = type_size(a->type);
    for (word t = 0; t < a->tuples; t++) {
        word place = begin, from = t * a->inner + begin;
        int good = 1;
        for (word d = 0; d < a->depth; d++) {
            word number = t * a->depth + d, index = index_at(a->indices, a->index_size, number);
            good &= index_in_bounds(&index, PTR(const word, a->dims)[d], number, a->error);
            place += index * PTR(const word, a->strides)[d];
        }
        if (!good) continue;
        if (a->op == 0)
            copy_bytes(PTR(char, a->y) + place * size, PTR(const char, a->updates) + from * size, (end - begin) * size);
        else
            for (word i = 0; i < end - begin; i++)
                combine((int)a->op, a->type, PTR(char, a->y), place + i, PTR(const char, a->updates), from + i);
    }
}

// One unit, because updates may meet in one element. `shape` (of indices and updates) and `y_strides` (in elements, 0
// for the axis) are addresses of int64 arrays of `rank`; `count` is the number of updates.
KERNEL(scatter_elements, op, type, indices, index_size, updates, y, rank, shape, y_strides, count, axis, axis_stride,
       error) {
    word n, at = 0;
    Walk w;
    walk_shape(&w, a->rank, a->shape, &a->y_strides, 1);
    walk_to(&w, 0, end > begin ? a->count : 0, 1);
    word sy = w.strides[0][w.rank - 1];
    for (; (n = walk_count(&w)) > 0; at += n, walk_on(&w, n, 1))
        for (word i = 0; i < n; i++) {
            word index = index_at(a->indices, a->index_size, at + i);
            if (index_in_bounds(&index, a->axis, at + i, a->error))
                combine((int)a->op, a->type, PTR(char, a->y), w.offset[0] + i * sy + index * a->axis_stride,
                        PTR(const char, a->updates), at + i);
        }
}
