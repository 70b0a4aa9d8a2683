// The activation of an epilogue over a block that is still in the cache.
#pragma once
#include "vecmath.h"

#define ACTIVATION(code)                                                                                \
    case code:                                                                                          \
        for (word i = 0; i < count; i += LANES) vstore(y + i, activate(vload(y + i), code, low, high)); \
        break;

// Applies activation `code` (vecmath.h) to y[0 .. count), a multiple of LANES.
static NOINLINE void activate_whole(float *y, word count, int code, vf low, vf high) {
    switch (code) {
        ACTIVATION(1) ACTIVATION(2) ACTIVATION(3) ACTIVATION(4) ACTIVATION(5) ACTIVATION(6) ACTIVATION(7) ACTIVATION(8)
    }
}

// Applies activation `code` to y[0 .. count).
static inline void activate_all(float *y, word count, int code, vf low, vf high) {
    word rest = count % LANES, whole = count - rest;
    activate_whole(y, whole, code, low, high);
    if (rest) {
        float last[LANES];
        vstore(last, vload_part(y + whole, rest));
        activate_whole(last, LANES, code, low, high);
        vstore_part(y + whole, vload(last), rest);
    }
}

#undef ACTIVATION
