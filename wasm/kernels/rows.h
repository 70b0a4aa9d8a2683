// Sums over contiguous rows of float32, accurate enough for rows of any length: lanes add up short blocks in float32,
// the blocks are added in float64.
#pragma once
#include "vecmath.h"

enum { ROW_BLOCK = 1024 };

// The first `count` lanes from memory, `other` in the rest.
INLINE vf vload_or(const float *p, word count, float other) {
    vf v = vsplat(other);
    for (word i = 0; i < count; i++) v[i] = p[i];
    return v;
}

// The first `count` (at most LANES) lanes; the others are 0 when loading and left untouched when storing.
INLINE vf vload_count(const float *p, word count) { return count == LANES ? vload(p) : vload_part(p, count); }
INLINE void vstore_count(float *p, vf v, word count) {
    if (count == LANES) vstore(p, v);
    else vstore_part(p, v, count);
}

// Zero in the lanes from `count` on.
INLINE vf vkeep(vf v, word count) {
    for (word i = count; i < LANES; i++) v[i] = 0.0f;
    return v;
}

// Sum of EXPRESSION over a row, with vf `v` standing for its elements; `total` is a double to add to.
#define SUM_ROW(total, x, n, EXPRESSION)                                          \
    for (word at_ = 0; at_ < (n); at_ += ROW_BLOCK) {                             \
        const float *p_ = (x) + at_;                                              \
        word count_ = min_word(ROW_BLOCK, (n) - at_), i_ = 0;                     \
        vf sums_[4] = {vsplat(0.0f), vsplat(0.0f), vsplat(0.0f), vsplat(0.0f)};   \
        for (; i_ + 4 * LANES <= count_; i_ += 4 * LANES)                         \
            UNROLL for (int k_ = 0; k_ < 4; k_++) {                               \
                vf v = vload(p_ + i_ + k_ * LANES);                               \
                sums_[k_] += (EXPRESSION);                                        \
            }                                                                     \
        for (; i_ + LANES <= count_; i_ += LANES) {                               \
            vf v = vload(p_ + i_);                                                \
            sums_[0] += (EXPRESSION);                                             \
        }                                                                         \
        if (i_ < count_) {                                                        \
            vf v = vload_part(p_ + i_, count_ - i_);                              \
            sums_[1] += vkeep((EXPRESSION), count_ - i_);                         \
        }                                                                         \
        total += (double)vsum((sums_[0] + sums_[1]) + (sums_[2] + sums_[3]));     \
    }

INLINE float f32_sqrt(float x) { return __builtin_elementwise_sqrt(x); }
