// What the compiler expects of a C library, for a module that has none, and what the loader asks of the processor.
#include "kernel.h"

#if defined(__wasm__)
// These become the instructions memory.copy and memory.fill.
void *memcpy(void *to, const void *from, size_t bytes) { return __builtin_memcpy(to, from, bytes); }
void *memmove(void *to, const void *from, size_t bytes) { return __builtin_memmove(to, from, bytes); }
void *memset(void *to, int value, size_t bytes) { return __builtin_memset(to, value, bytes); }
#endif

#if defined(__x86_64__)
static void cpuid(uint32_t leaf, uint32_t out[4]) {
    __asm__ volatile("cpuid" : "=a"(out[0]), "=b"(out[1]), "=c"(out[2]), "=d"(out[3]) : "a"(leaf), "c"(0));
}

// 3 where this machine runs x86-64-v3 code (AVX2, FMA, BMI) and its system saves the wide registers, else 2.
EXPORT int processor_level(void) {
    enum { FMA = 1 << 12, MOVBE = 1 << 22, OSXSAVE = 1 << 27, F16C = 1 << 29 };
    enum { BMI1 = 1 << 3, AVX2 = 1 << 5, BMI2 = 1 << 8, LZCNT = 1 << 5 };
    uint32_t r[4];
    cpuid(0, r);
    if (r[0] < 7) return 2;
    cpuid(1, r);
    const uint32_t first = FMA | MOVBE | OSXSAVE | F16C;
    if ((r[2] & first) != first) return 2;
    uint32_t low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    if ((low & 6) != 6) return 2;
    cpuid(7, r);
    const uint32_t seventh = BMI1 | AVX2 | BMI2;
    if ((r[1] & seventh) != seventh) return 2;
    cpuid(0x80000001, r);
    return r[2] & LZCNT ? 3 : 2;
}

// Whether it multiplies bytes four at a time (AVX-512 VNNI) in vectors of 256 bits. Only asked where the level is 3.
int has_avx512_vnni(void) {
    enum { AVX512F = 1 << 16, AVX512VL = (int)(1u << 31), VNNI = 1 << 11, WIDE_STATE = 0xe6 };
    uint32_t r[4], low, high;
    __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
    cpuid(7, r);
    return (low & WIDE_STATE) == WIDE_STATE && (r[1] & AVX512F) && (r[1] & (uint32_t)AVX512VL) && (r[2] & VNNI);
}
#else
EXPORT int processor_level(void) { return 0; }
#endif

#ifdef _WIN32
// The library needs nothing of a C runtime, so this is all that Windows calls when it loads: "go on".
int DllMainCRTStartup(void *library, unsigned reason, void *reserved) {
    (void)library, (void)reason, (void)reserved;
    return 1;
}
#endif
