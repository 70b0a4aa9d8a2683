// Small pieces shared by the kernels that move data: copying, and indices with bounds.
#pragma once
#include "kernel.h"

typedef v4i unaligned128 __attribute__((aligned(1), may_alias));
typedef vi unaligned_vi __attribute__((aligned(1), may_alias));
typedef uint32_t unaligned32 __attribute__((aligned(1), may_alias));

#if defined(__wasm__)
#define SHORT_COPY 1024  // memcpy is an instruction here, which costs some 30 ns to start
#else
#define SHORT_COPY 4096
#endif

// memcpy whose short copies are loops. Not inlined: that would be a third of some kernels' code.
static NOINLINE void copy_bytes(void *to, const void *from, word bytes) {
    if (bytes > SHORT_COPY) {
        memcpy(to, from, (size_t)bytes);
        return;
    }
    char *y = to;
    const char *x = from;
    enum { STEP = sizeof(vi) };
    word i = 0;
    for (; i + 4 * STEP <= bytes; i += 4 * STEP) {
        unaligned_vi v[4];
        UNROLL for (int k = 0; k < 4; k++) v[k] = *(const unaligned_vi *)(x + i + STEP * k);
        UNROLL for (int k = 0; k < 4; k++) *(unaligned_vi *)(y + i + STEP * k) = v[k];
    }
    for (; i + 16 <= bytes; i += 16) *(unaligned128 *)(y + i) = *(const unaligned128 *)(x + i);
    for (; i + 4 <= bytes; i += 4) *(unaligned32 *)(y + i) = *(const unaligned32 *)(x + i);
    for (; i < bytes; i++) y[i] = x[i];
}

// Index number `i` of an array of int32 (`size` 4) or int64 (8) indices.
INLINE word index_at(word indices, word size, word i) {
    return size == 4 ? PTR(const int32_t, indices)[i] : PTR(const int64_t, indices)[i];
}

// Wraps a negative index; reports one outside of [-n, n) by setting *error to 1 + its number and returns 0 for it.
INLINE int index_in_bounds(word *index, word n, word number, word error) {
    if (*index < 0) *index += n;
    if (*index >= 0 && *index < n) return 1;
    *PTR(word, error) = 1 + number;
    return 0;
}
