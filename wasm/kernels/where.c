// Selection by a mask. NumPy twin: onnxlet/ops, Where.
//
// Unit: one element of y. Broadcasting as in binary.c; the condition is bytes, `size` is the bytes of an element of a,
// b and y: 1, 2, 4 or 8. Strides count elements.
#include "strided.h"
#include "vecmath.h"

typedef int8_t vb __attribute__((ext_vector_type(LANES)));
typedef vb vb_unaligned __attribute__((aligned(1), may_alias));

#define SELECT(type)                                                                                  \
    {                                                                                                 \
        const type *p = PTR(const type, a->a) + w.offset[1], *q = PTR(const type, a->b) + w.offset[2]; \
        type *y = PTR(type, a->y) + at;                                                               \
        for (word i = 0; i < n; i++) y[i] = c[i * sc] ? p[i * sa] : q[i * sb];                        \
        break;                                                                                        \
    }

// Four bytes an element, the condition contiguous, each operand contiguous (step LANES) or one value (step 0).
static void select_vectors(const uint8_t *c, const float *p, word sa, const float *q, word sb, float *y, word n) {
    vf a = vsplat(*p), b = vsplat(*q);
    word i = 0;
    for (; i + LANES <= n; i += LANES) {
        vi mask = __builtin_convertvector(*(const vb_unaligned *)(c + i) != 0, vi);
        vstore(y + i, vselect(mask, sa ? vload(p + i) : a, sb ? vload(q + i) : b));
    }
    for (; i < n; i++) y[i] = c[i] ? p[i * sa] : q[i * sb];
}

KERNEL(where, size, condition, a, b, y, rank, shape, condition_strides, a_strides, b_strides) {
    word strides[] = {a->condition_strides, a->a_strides, a->b_strides}, n;
    Walk w;
    walk_shape(&w, a->rank, a->shape, strides, 3);
    walk_to(&w, begin, end, 3);
    word sc = w.strides[0][w.rank - 1], sa = w.strides[1][w.rank - 1], sb = w.strides[2][w.rank - 1], at = begin;
    int vectors = a->size == 4 && sc == 1 && (sa | sb | 1) == 1;
    for (; (n = walk_count(&w)) > 0; at += n, walk_on(&w, n, 3)) {
        const uint8_t *c = PTR(const uint8_t, a->condition) + w.offset[0];
        if (vectors) {
            select_vectors(c, F32(a->a) + w.offset[1], sa, F32(a->b) + w.offset[2], sb, F32(a->y) + at, n);
            continue;
        }
        switch (a->size) {
        case 1: SELECT(uint8_t)
        case 2: SELECT(uint16_t)
        case 4: SELECT(uint32_t)
        default: SELECT(uint64_t)
        }
    }
}
