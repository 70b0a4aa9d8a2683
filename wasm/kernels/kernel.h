// What every kernel shares: the tape's word, the KERNEL macro, and vectors of float32 whose width is the machine's.
//
// The kernels are freestanding C: no library, no allocation. The same sources become two WebAssembly modules (with and
// without relaxed SIMD) and the native libraries.
#pragma once

#include <stddef.h>
#include <stdint.h>
#if defined(__wasm__)
#include <wasm_simd128.h>
#endif

// A word of the tape: an address, an integer, or the bits of a float32.
typedef int64_t word;

#if defined(_WIN32)
#define EXPORT __attribute__((dllexport, used))
#else
#define EXPORT __attribute__((visibility("default"), used))
#endif
#define INLINE static inline __attribute__((always_inline))
#define NOINLINE __attribute__((noinline))
#define UNROLL _Pragma("clang loop unroll(full)")

// Defines a kernel: its arguments in the order in which they lie on the tape, then its body, which computes the units
// [begin, end), at least one. Units (where there are rounds of them: those of a round) write disjoint memory, and how
// they are cut into pieces never changes a result. `a`
// holds the arguments; `scratch` (64-byte aligned) belongs to the calling thread.
//
//     KERNEL(negate, x, y, count) {
//         for (word i = begin; i < end; i++) ...
//     }
//
// The build collects the names of all kernels by looking for lines that begin with KERNEL( or KERNEL_ARGUMENTS(.
#define KERNEL(name, ...)                                                                                  \
    KERNEL_ARGUMENTS(name, __VA_ARGS__)                                                                    \
    KERNEL_BODY(name)

// The same in two parts, for kernels that want functions of their own between arguments and body.
#define KERNEL_ARGUMENTS(name, ...)                                                                        \
    typedef struct {                                                                                       \
        word __VA_ARGS__;                                                                                  \
    } name##_args;                                                                                         \
    const char name##_fields[] = #name ": " #__VA_ARGS__;                                                  \
    static void name##_body(const name##_args *a, word begin, word end, char *scratch);                    \
    void name##_kernel(const word *words, word begin, word end, char *scratch) {                           \
        if (begin < end) name##_body((const name##_args *)words, begin, end, scratch);                     \
    }
#define KERNEL_BODY(name)                                                                                  \
    static void name##_body(const name##_args *a, __attribute__((unused)) word begin,                      \
                            __attribute__((unused)) word end, __attribute__((unused)) char *scratch)

// Addresses on the tape.
#define PTR(type, w) ((type *)(uintptr_t)(w))
#define F32(w) PTR(float, w)

INLINE float as_f32(word w) {
    union {
        uint32_t bits;
        float value;
    } u = {.bits = (uint32_t)w};
    return u.value;
}

INLINE word min_word(word a, word b) { return a < b ? a : b; }
INLINE word max_word(word a, word b) { return a > b ? a : b; }
INLINE word div_up(word a, word b) { return (a + b - 1) / b; }

// Units that are spans of rows of pixels: up to SPAN pixels, so that one long row falls into many (pieces.py says the
// same).
#define SPAN 64
typedef struct {
    word row, from, to;
} Span;

// As many of the spans [*begin, end), of `size` columns each, as are of the same row, from *begin on, which moves behind
// them.
INLINE Span next_span(word columns, word size, word *begin, word end) {
    const word spans = div_up(columns, size), row = *begin / spans, first = *begin % spans;
    const word last = min_word(spans, first + end - *begin);
    *begin += last - first;
    return (Span){row, first * size, min_word(columns, last * size)};
}

// Vectors. `vf` has LANES float32 lanes, `vi` as many int32 lanes; comparisons of `vf` give a `vi` mask of 0 and -1.
// Arithmetic is the operators +, -, *, /, selection is ?:, and (vf)x makes all lanes x. Elementary functions, minimum,
// maximum and clamping as NumPy has them (NaN goes through) are in vecmath.h.
#if defined(__AVX2__)
#define LANES 8
#else
#define LANES 4
#endif
typedef float vf __attribute__((ext_vector_type(LANES)));
typedef int32_t vi __attribute__((ext_vector_type(LANES)));
typedef float v4f __attribute__((ext_vector_type(4)));
typedef int32_t v4i __attribute__((ext_vector_type(4)));
typedef vf vf_unaligned __attribute__((aligned(4), may_alias));
typedef vi vi_unaligned __attribute__((aligned(4), may_alias));
typedef v4f v4f_unaligned __attribute__((aligned(4), may_alias));
typedef v4i v4i_unaligned __attribute__((aligned(4), may_alias));

INLINE vf vload(const float *p) { return *(const vf_unaligned *)p; }
INLINE void vstore(float *p, vf v) { *(vf_unaligned *)p = v; }
INLINE vi vload_i(const int32_t *p) { return *(const vi_unaligned *)p; }
INLINE void vstore_i(int32_t *p, vi v) { *(vi_unaligned *)p = v; }
INLINE v4f v4load(const float *p) { return *(const v4f_unaligned *)p; }
INLINE void v4store(float *p, v4f v) { *(v4f_unaligned *)p = v; }

// The first `count` (0 <= count < LANES) lanes alone; the others are 0 when loading and left untouched when storing.
INLINE vf vload_part(const float *p, word count) {
    vf v = (vf)0.0f;
    for (word i = 0; i < count; i++) v[i] = p[i];
    return v;
}
INLINE void vstore_part(float *p, vf v, word count) {
    for (word i = 0; i < count; i++) p[i] = v[i];
}

// a * b + c, in one rounding where the machine has it, else in two.
INLINE vf vmadd(vf a, vf b, vf c) {
#if defined(__wasm_relaxed_simd__)
    return (vf)wasm_f32x4_relaxed_madd((v128_t)a, (v128_t)b, (v128_t)c);
#elif defined(__FMA__) || defined(__aarch64__)
    return __builtin_elementwise_fma(a, b, c);
#else
    return a * b + c;
#endif
}

// Sum of all lanes.
INLINE float vsum(vf v) {
#if LANES == 8
    v4f h = v.lo + v.hi;
#else
    v4f h = v;
#endif
    return (h[0] + h[1]) + (h[2] + h[3]);
}

void *memcpy(void *to, const void *from, size_t bytes);
void *memmove(void *to, const void *from, size_t bytes);
void *memset(void *to, int value, size_t bytes);
