// Elementary functions on single float64 numbers, small rather than fast. NumPy twins: the functions of the same names.
//
// Largest errors measured against 80-bit arithmetic, in units in the last place of a float64: exp, log 1, expm1 and
// log1p 2, atan 2, the others 5; tan 1e-14 relative.
#pragma once
#include "kernel.h"

#define INFINITE __builtin_inf()
#define NOT_A_NUMBER __builtin_nan("")

INLINE uint64_t bits_of(double x) {
    union {
        double value;
        uint64_t bits;
    } u = {x};
    return u.bits;
}
INLINE double of_bits(uint64_t bits) {
    union {
        uint64_t bits;
        double value;
    } u = {bits};
    return u.value;
}

INLINE double f64_abs(double x) { return __builtin_fabs(x); }
INLINE double f64_sqrt(double x) { return __builtin_elementwise_sqrt(x); }
INLINE double f64_rint(double x) { return __builtin_elementwise_roundeven(x); }
INLINE double f64_sign_of(double size, double x) { return __builtin_copysign(size, x); }
INLINE double f64_two_to(int64_t n) { return of_bits((uint64_t)(n + 1023) << 52); } // -1022 <= n <= 1023

// exp(x) = 2^n (1 + q) for |x| < 750.
static double f64_exp_parts(double x, int64_t *n) {
    double whole = f64_rint(x * 1.4426950408889634);
    *n = (int64_t)whole;
    double r = x - whole * 0.6931471803691238; // ln 2 in two parts, the first with 32 bits
    r -= whole * 1.9082149292705877e-10;
    double q = 0.0;
    for (int k = 13; k > 1; k--) q = (q + 1.0) * r / k; // r/2 (1 + r/3 (1 + ...))
    return r + r * q;
}

static double f64_exp(double x) {
    if (x != x) return x;
    if (x > 710.0) return INFINITE;
    if (x < -746.0) return 0.0;
    int64_t n;
    double q = f64_exp_parts(x, &n);
    return (1.0 + q) * f64_two_to(n / 2) * f64_two_to(n - n / 2);
}

static double f64_expm1(double x) {
    if (x != x || x == 0.0) return x;
    if (x > 709.0) return f64_exp(x);
    if (x < -40.0) return -1.0;
    int64_t n;
    double q = f64_exp_parts(x, &n), scale = f64_two_to(n);
    return scale * q + (scale - 1.0);
}

static double f64_log(double x) {
    if (!(x > 0.0)) return x == 0.0 ? -INFINITE : NOT_A_NUMBER;
    if (x == INFINITE) return x;
    int64_t e = 0;
    if (x < 2.2250738585072014e-308) x *= 18014398509481984.0, e = -54;
    uint64_t bits = bits_of(x), exponent = (bits - 0x3fe6a09e667f3bcdu) & 0xfff0000000000000u; // to [sqrt 1/2, sqrt 2)
    e += (int64_t)exponent >> 52;
    double f = of_bits(bits - exponent) - 1.0, s = f / (2.0 + f), w = s * s, p = 0.0;
    for (int k = 23; k > 1; k -= 2) p = (p + 1.0 / k) * w; // atanh(s) = s (1 + p); log(1 + f) = 2 atanh(s)
    return (double)e * 0.6931471803691238 + (f - (s * (f - 2.0 * p) - (double)e * 1.9082149292705877e-10));
}

static double f64_log1p(double x) {
    if (x == INFINITE || x == 0.0) return x;
    double sum = 1.0 + x;
    if (!(sum > 0.0)) return f64_log(sum);
    return f64_log(sum) - ((sum - 1.0) - x) / sum;
}

static double f64_tanh(double x) {
    double e = f64_expm1(2.0 * f64_abs(x));
    return f64_sign_of(e > 1e17 ? 1.0 : e / (e + 2.0), x);
}

static double f64_sigmoid(double x) {
    double e = f64_exp(-f64_abs(x)), r = 1.0 / (1.0 + e);
    return x < 0.0 ? e * r : r;
}

static double f64_softplus(double x) { return (x > 0.0 || x != x ? x : 0.0) + f64_log1p(f64_exp(-f64_abs(x))); }

static double f64_sinh(double x) {
    double size = f64_abs(x);
    if (size > 36.0) {
        double half = f64_exp(0.5 * size);
        return f64_sign_of(0.5 * half * half, x);
    }
    double e = f64_expm1(size);
    return f64_sign_of(0.5 * (e + e / (e + 1.0)), x);
}

static double f64_cosh(double x) {
    double half = f64_exp(0.5 * f64_abs(x)), whole = half * half;
    return half > 1e8 ? 0.5 * half * half : 0.5 * (whole + 1.0 / whole);
}

static double f64_atan(double x) {
    double t = f64_abs(x), turn = 0.0, sign = 1.0;
    if (t != t) return x;
    if (t > 1.0) t = 1.0 / t, turn = 1.5707963267948966, sign = -1.0;
    double sixth = 0.0;
    if (t > 0.2679491924311227) { // tan(pi/12): turn by pi/6
        t = (1.7320508075688772 * t - 1.0) / (1.7320508075688772 + t);
        sixth = 0.5235987755982989;
    }
    double w = t * t, p = 0.0;
    for (int k = 31; k > 1; k -= 2) p = (p + (k & 2 ? -1.0 : 1.0) / k) * w;
    return f64_sign_of(turn + sign * (sixth + (t + t * p)), x);
}

static double f64_asin(double x) { return f64_atan(x / f64_sqrt((1.0 - x) * (1.0 + x))); }
static double f64_acos(double x) { return 2.0 * f64_atan(f64_sqrt((1.0 - x) / (1.0 + x))); }

static double f64_asinh(double x) {
    double size = f64_abs(x);
    if (!(size < 1e8)) return f64_sign_of(f64_log(size) + 0.6931471805599453, x);
    double square = size * size;
    return f64_sign_of(f64_log1p(size + square / (1.0 + f64_sqrt(1.0 + square))), x);
}

static double f64_acosh(double x) {
    if (!(x >= 1.0)) return NOT_A_NUMBER;
    if (x > 1e8) return f64_log(x) + 0.6931471805599453;
    double t = x - 1.0;
    return f64_log1p(t + f64_sqrt(2.0 * t + t * t));
}

static double f64_atanh(double x) {
    double size = f64_abs(x);
    return f64_sign_of(0.5 * f64_log1p(2.0 * size / (1.0 - size)), x);
}

// The remainder of x / y with the sign of x, exact: long division, one bit at a time.
static double f64_fmod(double x, double y) {
    double rest = f64_abs(x), divisor = f64_abs(y);
    if (!(rest < INFINITE) || divisor == 0.0 || y != y) return NOT_A_NUMBER;
    if (rest < divisor) return x;
    double high = divisor; // a multiple by a power of two, at first the greatest up to `rest`
    int64_t gap = (int64_t)(bits_of(rest) >> 52) - (int64_t)(bits_of(divisor) >> 52);
    if (gap > 1) high *= f64_two_to(gap / 2), high *= f64_two_to((gap - 1) / 2);
    while (high <= 0.5 * rest) high += high;
    for (;; high *= 0.5) {
        if (rest >= high) rest -= high;
        if (high <= divisor || rest == 0.0) break;
    }
    return f64_sign_of(rest, x);
}

// The remainder with the sign of y.
static double f64_modulo(double x, double y) {
    double rest = f64_fmod(x, y);
    if (rest == 0.0) return f64_sign_of(0.0, y);
    return (rest < 0.0) != (y < 0.0) ? rest + y : rest;
}
