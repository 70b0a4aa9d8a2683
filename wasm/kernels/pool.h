// Windows of pooling.
#pragma once
#include "kernel.h"

// Taps [from, to) of a window that begins at `start` and lie in [0, size).
typedef struct {
    word from, to;
} Range;

INLINE Range inside(word start, word taps, word dilation, word size) {
    Range r;
    r.from = start < 0 ? div_up(-start, dilation) : 0;
    r.to = start >= size ? 0 : min_word(taps, div_up(size - start, dilation));
    if (r.to < r.from) r.to = r.from;
    return r;
}
