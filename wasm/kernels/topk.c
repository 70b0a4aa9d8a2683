// The k largest or smallest along one axis, in order. NumPy twin: onnxlet/ops, TopK.
//
// Unit: one line along the axis; x is [outer, axis, inner], `values` and `indices` (int64) are [outer, k, inner].
// `type` (types.h) is float32, float64, int32, int64 or bytes. Of equal elements the first comes first; NaN counts as
// the largest. Scratch: 16 k bytes.
#include "kernel.h"
#include "types.h"

typedef struct {
    int64_t key;    // ordered as the elements are, larger is better
    int64_t index;
} Entry;

// Integers in the order of the floats; both zeros give the same.
INLINE int64_t f32_key(float x) {
    union {
        float value;
        int32_t bits;
    } u = {x == 0 ? 0.0f : x};
    return x != x ? INT64_MAX - 1 : u.bits < 0 ? (int64_t)INT32_MIN - u.bits : u.bits;
}
INLINE int64_t f64_key(double x) {
    union {
        double value;
        int64_t bits;
    } u = {x == 0 ? 0.0 : x};
    return x != x ? INT64_MAX - 1 : u.bits < 0 ? INT64_MIN - u.bits : u.bits;
}

static int64_t key_at(word type, word x, word i) {
    switch (type) {
    case TYPE_F32: return f32_key(PTR(const float, x)[i]);
    case TYPE_F64: return f64_key(PTR(const double, x)[i]);
    case TYPE_I32: return PTR(const int32_t, x)[i];
    case TYPE_I64: return PTR(const int64_t, x)[i];
    case TYPE_I8: return PTR(const int8_t, x)[i];
    default: return PTR(const uint8_t, x)[i];
    }
}

INLINE int worse(Entry s, Entry t) { return s.key < t.key || (s.key == t.key && s.index > t.index); }

// Puts `entry` into the heap of `n`, whose root, the worst, is free, at its right place.
static void sift(Entry *heap, word n, Entry entry) {
    word at = 0;
    for (word child; (child = 2 * at + 1) < n; at = child) {
        if (child + 1 < n && worse(heap[child + 1], heap[child])) child++;
        if (!worse(heap[child], entry)) break;
        heap[at] = heap[child];
    }
    heap[at] = entry;
}

static void copy_value(word type, word y, word to, word x, word from) {
    switch (type_size(type)) {
    case 1: PTR(uint8_t, y)[to] = PTR(const uint8_t, x)[from]; break;
    case 4: PTR(uint32_t, y)[to] = PTR(const uint32_t, x)[from]; break;
    default: PTR(uint64_t, y)[to] = PTR(const uint64_t, x)[from];
    }
}

KERNEL(topk, type, x, values, indices, axis, inner, k, largest) {
    word n = a->axis, inner = a->inner, k = a->k;
    Entry *heap = (Entry *)scratch;
    if (k == 0) return;
    for (word line = begin; line < end; line++) {
        word from = line / inner * n * inner + line % inner, to = line / inner * k * inner + line % inner;
        for (word i = 0; i < k; i++) heap[i] = (Entry){INT64_MIN, INT64_MAX};     // worse than all
        for (word i = 0; i < n; i++) {
            int64_t key = key_at(a->type, a->x, from + i * inner);
            Entry entry = {a->largest ? key : ~key, i};
            if (worse(heap[0], entry)) sift(heap, k, entry);
        }
        for (word left = k; left > 0; left--) {
            Entry entry = heap[0];
            sift(heap, left - 1, heap[left - 1]);
            copy_value(a->type, a->values, to + (left - 1) * inner, a->x, from + entry.index * inner);
            PTR(int64_t, a->indices)[to + (left - 1) * inner] = entry.index;
        }
    }
}
