// Conversion of element types. NumPy twin: onnxlet/ops, Cast (x.astype).
//
// Unit: one element. `from` and `to` are types (types.h). Values go through int64 where both sides are integers, else
// through float64, a block at a time. Floats become integers by truncation; what does not fit saturates at int64 and
// then wraps to the narrower type, NaN becomes 0. uint64 is read and written as int64.
#include "kernel.h"
#include "types.h"

enum { BLOCK = 256 };

INLINE double half_to_double(uint16_t h) {
    uint64_t sign = (uint64_t)(h & 0x8000) << 48, exponent = h >> 10 & 31, mantissa = h & 1023;
    union {
        uint64_t bits;
        double value;
    } u;
    if (exponent == 0) {
        u.value = (double)mantissa * (1.0 / (1 << 24));
        u.bits |= sign;
    } else
        u.bits = sign | (exponent == 31 ? 0x7ff0000000000000u : (exponent + 1008) << 52) | mantissa << 42;
    return u.value;
}

// Rounds to nearest, ties to even.
INLINE uint16_t double_to_half(double x) {
    union {
        double value;
        uint64_t bits;
    } u = {x};
    uint16_t sign = (uint16_t)(u.bits >> 48 & 0x8000);
    uint64_t magnitude = u.bits & 0x7fffffffffffffffu;
    if (magnitude > 0x7ff0000000000000u) return sign | 0x7e00;          // NaN
    if (magnitude >= 0x40effe0000000000u) return sign | 0x7c00;         // 65520 and more
    u.bits = magnitude;
    if (magnitude < 0x3f10000000000000u) {                              // below 2^-14: multiples of 2^-24
        u.value += 0x1p28;                                              // whose last bit is 2^-24
        return sign | (uint16_t)(u.bits & 0xffff);
    }
    uint64_t rounded = magnitude + 0x1ffffffffffu + (magnitude >> 42 & 1);
    return sign | (uint16_t)((rounded >> 42) - (1008u << 10));
}

INLINE int64_t to_int64(double x) {
    if (!(x == x)) return 0;
    if (x >= 0x1p63) return INT64_MAX;
    return x < -0x1p63 ? INT64_MIN : (int64_t)x;
}

#define EACH _Pragma("clang loop unroll(disable)") for (word i = 0; i < n; i++)
#define READ(name, type, as) \
    case TYPE_##name: EACH y[i] = (as)((const type *)x)[i]; break;

static void read_integers(word type, const void *x, int64_t *y, word n) {
    switch (type) {
        READ(I8, int8_t, int64_t) READ(U8, uint8_t, int64_t) READ(BOOL, uint8_t, int64_t) READ(I16, int16_t, int64_t)
        READ(U16, uint16_t, int64_t) READ(I32, int32_t, int64_t) READ(U32, uint32_t, int64_t)
        READ(I64, int64_t, int64_t) READ(U64, int64_t, int64_t)
    }
}

static void read_floats(word type, const void *x, double *y, word n) {
    switch (type) {
        READ(F32, float, double) READ(F64, double, double) READ(U8, uint8_t, double) READ(BOOL, uint8_t, double)
        READ(I32, int32_t, double) READ(I64, int64_t, double) READ(U64, uint64_t, double)
    case TYPE_F16: EACH y[i] = half_to_double(((const uint16_t *)x)[i]); break;
    default: {
        int64_t integers[BLOCK];
        read_integers(type, x, integers, n);
        EACH y[i] = (double)integers[i];
    }
    }
}

#define WRITE(name, type, value) \
    case TYPE_##name: EACH ((type *)y)[i] = (type)(value); break;

static void write_integers(word type, const int64_t *x, void *y, word n) {
    switch (type) {
        WRITE(I8, int8_t, x[i]) WRITE(U8, uint8_t, x[i]) WRITE(BOOL, uint8_t, x[i] != 0) WRITE(I16, int16_t, x[i])
        WRITE(U16, uint16_t, x[i]) WRITE(I32, int32_t, x[i]) WRITE(U32, uint32_t, x[i]) WRITE(I64, int64_t, x[i])
        WRITE(U64, int64_t, x[i])
    }
}

static void write_floats(word type, const double *x, void *y, word n) {
    switch (type) {
        WRITE(F32, float, x[i]) WRITE(F64, double, x[i]) WRITE(F16, uint16_t, double_to_half(x[i]))
        WRITE(BOOL, uint8_t, x[i] != 0) WRITE(U8, uint8_t, to_int64(x[i])) WRITE(I32, int32_t, to_int64(x[i]))
        WRITE(I64, int64_t, to_int64(x[i]))
    default: {
        int64_t integers[BLOCK];
        EACH integers[i] = to_int64(x[i]);
        write_integers(type, integers, y, n);
    }
    }
}

INLINE int is_float(word type) { return type == TYPE_F32 || type == TYPE_F64 || type == TYPE_F16; }

KERNEL(cast, from, to, x, y) {
    int integers = !is_float(a->from) && !is_float(a->to);
    word size = type_size(a->from), to_size = type_size(a->to);
    for (word at = begin; at < end; at += BLOCK) {
        word n = min_word(BLOCK, end - at);
        const char *x = PTR(const char, a->x) + at * size;
        char *y = PTR(char, a->y) + at * to_size;
        union {
            int64_t integers[BLOCK];
            double floats[BLOCK];
        } values;
        if (integers) {
            read_integers(a->from, x, values.integers, n);
            write_integers(a->to, values.integers, y, n);
        } else {
            read_floats(a->from, x, values.floats, n);
            write_floats(a->to, values.floats, y, n);
        }
    }
}
