// Elementary functions on vectors of float32, the same code for four and eight lanes.
//
// Straight-line code without tables or branches on values. NumPy twins: the functions of the same names in
// onnxlet/ops. Largest errors in units in the last place of the result, measured over the whole range against 80-bit
// references, with and without fused multiply-add:
//
//     exp 1    expm1 1    log 1    softplus 2    sigmoid 3    tanh 6    erf 7    pow 0.51    sin, cos 1.3e-7 absolute
//
// NaN stays NaN, infinities and zeros give the limits, subnormals are flushed neither on input nor on output.
// Integers are taken from the bits of rounded floats, never by a conversion that could overflow.
#pragma once
#include "kernel.h"

typedef double vd __attribute__((vector_size(VF * 8)));
typedef int64_t vl __attribute__((vector_size(VF * 8)));
typedef uint64_t vul __attribute__((vector_size(VF * 8)));

#define INFINITY_F32 __builtin_inff()
#define NAN_F32 __builtin_nanf("")
#define SIGN_BIT INT32_MIN

INLINE vi vi_select(vi mask, vi a, vi b) { return (mask & a) | (~mask & b); }
INLINE vd vd_select(vl mask, vd a, vd b) { return (vd)((mask & (vl)a) | (~mask & (vl)b)); }
INLINE vd vd_splat(double x) { return (vd){} + x; }
INLINE vf vf_floor(vf x) { return __builtin_elementwise_floor(x); }
INLINE vf vf_ceil(vf x) { return __builtin_elementwise_ceil(x); }
INLINE vf vf_rint(vf x) { return __builtin_elementwise_roundeven(x); }  // ties to even
INLINE vf vf_trunc(vf x) { return __builtin_elementwise_trunc(x); }

// Adding 1.5 * 2^23 leaves the nearest integer in the low bits (|x| < 2^22); NaN gives harmless bits.
#define ROUNDER 12582912.0f
INLINE vi integer_bits(vf rounded) { return (vi)((vu)rounded - (vu)vf_splat(ROUNDER)); }
INLINE vf power_of_two(vi n) { return (vf)(((vu)n + 127u) << 23); }  // -126 <= n <= 127

// exp(x) = 2^n (1 + q): returns q and n. x must be within +-105 or NaN.
INLINE vf exp_parts(vf x, vi *n) {
    vf rounded = vf_fma(x, vf_splat(1.44269504f), vf_splat(ROUNDER));
    *n = integer_bits(rounded);
    vf whole = rounded - ROUNDER;
    vf r = vf_fma(whole, vf_splat(-0.693359375f), x);  // ln 2 in two parts, the first with 9 bits
    r = vf_fma(whole, vf_splat(2.12194440e-4f), r);
    vf p = vf_splat(1.97902486e-4f);
    p = vf_fma(p, r, vf_splat(1.39447592e-3f));
    p = vf_fma(p, r, vf_splat(8.33349767e-3f));
    p = vf_fma(p, r, vf_splat(4.16662936e-2f));
    p = vf_fma(p, r, vf_splat(1.66666659e-1f));
    p = vf_fma(p, r, vf_splat(5.00000007e-1f));
    return vf_fma(r * r, p, r);
}

INLINE vf vf_exp(vf x) {
    vi n;
    vf q = exp_parts(vf_clamp(x, vf_splat(-105.0f), vf_splat(89.0f)), &n);
    vi half = n >> 1;  // two factors: 2^n itself may be out of range
    return (q + 1.0f) * power_of_two(half) * power_of_two(n - half);
}

// exp(x) for x <= 0 or NaN where results below 1.2e-38 may become 0: softmax, attention.
INLINE vf vf_exp_negative(vf x) {
    vi n;
    vf q = exp_parts(vf_clamp(x, vf_splat(-88.0f), vf_splat(0.5f)), &n);
    n = vi_select(n < -126, vi_splat(-127), n);
    return (q + 1.0f) * power_of_two(n);
}

// exp(x) - 1 without cancellation, for x <= 88 (larger x are treated as 88).
INLINE vf vf_expm1(vf x) {
    vi n;
    vf q = exp_parts(vf_clamp(x, vf_splat(-87.0f), vf_splat(88.0f)), &n);
    vf scale = power_of_two(n);
    return vf_fma(q, scale, scale - 1.0f);
}

INLINE vf vf_log(vf x) {
    vi tiny = x < 1.17549435e-38f;
    vf y = vf_select(tiny, x * 8388608.0f, x);
    vu bits = (vu)y;
    vi exponent = (vi)((bits - 0x3f3504f3u) >> 23 << 23);  // mantissa goes to [sqrt 1/2, sqrt 2)
    vf f = (vf)(bits - (vu)exponent) - 1.0f;
    vf e = __builtin_convertvector(exponent >> 23, vf) - (vf)(tiny & (vi)vf_splat(23.0f));
    vf p = vf_splat(0.06746601f);
    p = vf_fma(p, f, vf_splat(-0.11675641f));
    p = vf_fma(p, f, vf_splat(0.11888175f));
    p = vf_fma(p, f, vf_splat(-0.12405591f));
    p = vf_fma(p, f, vf_splat(0.14219551f));
    p = vf_fma(p, f, vf_splat(-0.16667996f));
    p = vf_fma(p, f, vf_splat(0.20002119f));
    p = vf_fma(p, f, vf_splat(-0.2500001f));
    p = vf_fma(p, f, vf_splat(0.33333313f));
    vf square = f * f;
    vf small = vf_fma(p, f * square, e * -2.12194440e-4f);
    small = vf_fma(square, vf_splat(-0.5f), small);
    vf result = vf_fma(e, vf_splat(0.693359375f), f + small);
    result = vf_select(x == 0.0f, vf_splat(-INFINITY_F32), result);
    result = vf_select((x < 0.0f) | (x != x), vf_splat(NAN_F32), result);
    return vf_select(x == INFINITY_F32, x, result);
}

// log(1 + u) for 0 <= u, by the logarithm of the rounded sum and a correction for its rounding.
INLINE vf log1p_positive(vf u) {
    vf sum = u + 1.0f;
    return vf_log(sum) - ((sum - 1.0f) - u) / sum;
}

INLINE vf vf_sigmoid(vf x) {
    vf e = vf_exp(-vf_abs(x));
    vf r = 1.0f / (e + 1.0f);
    return vf_select(x < 0.0f, e * r, r);
}

// x P(x^2) / Q(x^2), fitted for the smallest relative error on [0, 9.02], beyond which tanh rounds to 1.
INLINE vf vf_tanh(vf x) {
    x = vf_clamp(x, vf_splat(-9.02f), vf_splat(9.02f));
    vf u = x * x;
    vf p = vf_fma(vf_splat(1.33190935e-8f), u, vf_splat(2.05835181e-5f));
    p = vf_fma(p, u, vf_splat(3.49403778e-3f));
    p = vf_fma(p, u, vf_splat(1.33797210e-1f));
    p = vf_fma(p, u, vf_splat(1.0f));
    vf q = vf_fma(vf_splat(7.76203446e-7f), u, vf_splat(3.28309740e-4f));
    q = vf_fma(q, u, vf_splat(2.58710865e-2f));
    q = vf_fma(q, u, vf_splat(4.67130363e-1f));
    q = vf_fma(q, u, vf_splat(1.0f));
    return vf_clamp(x * p / q, vf_splat(-1.0f), vf_splat(1.0f));
}

// x P(x^2) / Q(x^2), fitted for the smallest relative error on [0, 4], beyond which erf rounds to 1.
INLINE vf vf_erf(vf x) {
    x = vf_clamp(x, vf_splat(-4.0f), vf_splat(4.0f));
    vf u = x * x;
    vf p = vf_fma(vf_splat(1.98676485e-6f), u, vf_splat(2.84561170e-4f));
    p = vf_fma(p, u, vf_splat(3.88324579e-3f));
    p = vf_fma(p, u, vf_splat(5.31014357e-2f));
    p = vf_fma(p, u, vf_splat(1.93543130e-1f));
    p = vf_fma(p, u, vf_splat(1.12837914f));
    vf q = vf_fma(vf_splat(3.74197441e-5f), u, vf_splat(1.18554258e-3f));
    q = vf_fma(q, u, vf_splat(1.52070569e-2f));
    q = vf_fma(q, u, vf_splat(1.15349152e-1f));
    q = vf_fma(q, u, vf_splat(5.04855690e-1f));
    q = vf_fma(q, u, vf_splat(1.0f));
    return vf_clamp(x * p / q, vf_splat(-1.0f), vf_splat(1.0f));
}

INLINE vf vf_gelu(vf x) { return x * 0.5f * (vf_erf(x * 0.707106781f) + 1.0f); }
INLINE vf vf_gelu_tanh(vf x) {
    vf inner = 0.797884561f * vf_fma(x * x * x, vf_splat(0.044715f), x);
    return x * 0.5f * (vf_tanh(inner) + 1.0f);
}
INLINE vf vf_silu(vf x) { return x * vf_sigmoid(x); }
INLINE vf vf_hardsigmoid(vf x, vf slope, vf offset) {
    return vf_clamp(vf_fma(x, slope, offset), vf_splat(0.0f), vf_splat(1.0f));
}
INLINE vf vf_hardswish(vf x) { return x * vf_hardsigmoid(x, vf_splat(1.0f / 6.0f), vf_splat(0.5f)); }
INLINE vf vf_leakyrelu(vf x, vf slope) { return vf_select(x < 0.0f, x * slope, x); }
// log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|))
INLINE vf vf_softplus(vf x) { return vf_max(x, vf_splat(0.0f)) + log1p_positive(vf_exp(-vf_abs(x))); }
// tanh(log(1 + e)) = (e^2 + 2e) / (e^2 + 2e + 2) with e = exp(x); from 20 on it rounds to 1.
INLINE vf vf_mish(vf x) {
    vf e = vf_exp(vf_clamp(x, vf_splat(-105.0f), vf_splat(20.0f)));
    vf t = e * (e + 2.0f);
    return x * (t / (t + 2.0f));
}

// The activation of the epilogues: 0 none, 1 clamp to [low, high], 2 silu, 3 gelu, 4 sigmoid, 5 tanh, 6 hardswish,
// 7 leakyrelu of slope `low`, 8 gelu by tanh. With a constant `code` only that function remains after inlining.
INLINE vf activate(vf x, int code, vf low, vf high) {
    switch (code) {
    case 1: return vf_clamp(x, low, high);
    case 2: return vf_silu(x);
    case 3: return vf_gelu(x);
    case 4: return vf_sigmoid(x);
    case 5: return vf_tanh(x);
    case 6: return vf_hardswish(x);
    case 7: return vf_leakyrelu(x, low);
    case 8: return vf_gelu_tanh(x);
    default: return x;
    }
}

// Angles over 8192: x = m 2^e is multiplied by the bits of 2/pi that matter, modulo 4 quarter turns. Returns the
// remainder in [-pi/4, pi/4], and the quarter turn modulo 4 in `quadrant`.
INLINE float reduce_large_angle(float x, int32_t *quadrant) {
    static const uint32_t two_over_pi[] = {0x00000000u, 0xa2f9836eu, 0x4e441529u, 0xfc2757d1u, 0xf534ddc0u,
                                           0xdb629599u, 0x3c439041u, 0xfe5163abu};
    union {
        float value;
        uint32_t bits;
    } u = {x};
    int32_t exponent = (int32_t)(u.bits >> 23 & 255) - 150;  // x = mantissa * 2^exponent
    uint64_t mantissa = (u.bits & 0x7fffffu) | 0x800000u;
    int32_t first = (exponent + 30) >> 5, shift = (exponent + 30) & 31;
    // 96 bits of 2/pi from bit `exponent + 30` of the table on; those before only give whole turns
    uint64_t high = (uint64_t)two_over_pi[first] << 32 | two_over_pi[first + 1];
    uint64_t low = (uint64_t)two_over_pi[first + 2] << 32 | two_over_pi[first + 3];
    if (shift) {
        high = high << shift | low >> (64 - shift);
        low <<= shift;
    }
    uint64_t product = mantissa * high + (mantissa * (low >> 32) >> 32);  // modulo 2^64 = 4 quarter turns
    uint64_t turn = (product + 0x2000000000000000u) >> 62;
    int64_t fraction = (int64_t)(product - (turn << 62));
    *quadrant = (int32_t)turn;
    return (float)((double)fraction * 3.4061215800304745e-19);  // pi/2 / 2^62
}

// sin(x + quarter turns): one body for sine (0) and cosine (1).
INLINE vf sine(vf x, int quarter) {
    vf magnitude = vf_abs(x);
    vf rounded = vf_fma(magnitude, vf_splat(0.636619772f), vf_splat(ROUNDER));
    vi quadrant = integer_bits(rounded);
    vf whole = rounded - ROUNDER;
    vf r = vf_fma(whole, vf_splat(-1.5703125f), magnitude);  // pi/2 in three parts; a 13 bit integer
    r = vf_fma(whole, vf_splat(-4.83751297e-4f), r);  // times the first two is exact
    r = vf_fma(whole, vf_splat(-7.54978942e-8f), r);
    vi large = magnitude > 8192.0f;
    if (__builtin_reduce_or(large))
        for (int lane = 0; lane < VF; lane++)
            if (magnitude[lane] > 8192.0f && magnitude[lane] < INFINITY_F32) {
                int32_t turn;
                r[lane] = reduce_large_angle(magnitude[lane], &turn);
                quadrant[lane] = turn;
            }
    vf u = r * r;
    vf s = vf_fma(vf_splat(-1.9517e-4f), u, vf_splat(8.33217e-3f));
    s = vf_fma(s, u, vf_splat(-0.16666655f));
    s = vf_fma(s * u, r, r);
    vf c = vf_fma(vf_splat(2.44324111e-5f), u, vf_splat(-1.38873098e-3f));
    c = vf_fma(c, u, vf_splat(4.16666456e-2f));
    c = vf_fma(u, vf_splat(-0.5f), 1.0f + c * u * u);
    quadrant += quarter;
    vf result = vf_select((quadrant & 1) != 0, c, s);
    vi sign = (vi)((vu)quadrant << 30) & SIGN_BIT;
    if (!quarter) sign ^= (vi)x & SIGN_BIT;  // sine is odd
    result = (vf)((vi)result ^ sign);
    return vf_select(magnitude < INFINITY_F32, result, vf_splat(NAN_F32));
}
INLINE vf vf_sin(vf x) { return sine(x, 0); }
INLINE vf vf_cos(vf x) { return sine(x, 1); }

// x^y through logarithm and exponential in double precision. As C's pow at the corners: x^0 = 1^y = 1 even for NaN,
// (-1)^+-inf = 1, a negative base with a fractional exponent is NaN.
INLINE vf vf_pow(vf x, vf y) {
    vf magnitude = vf_abs(x);
    vi tiny = magnitude < 1.17549435e-38f;
    vf scaled = vf_select(tiny, magnitude * 8388608.0f, magnitude);
    vu bits = (vu)scaled;
    vi exponent = (vi)((bits - 0x3f3504f3u) >> 23 << 23);
    vd m = __builtin_convertvector((vf)(bits - (vu)exponent), vd);
    vd e = __builtin_convertvector((exponent >> 23) - (tiny & 23), vd);
    vd s = (m - 1.0) / (m + 1.0), w = s * s;  // log2 m = 2/ln2 (s + s^3/3 + s^5/5 + ...)
    vd p = w * (1.0 / 15) + 1.0 / 13;
    p = p * w + 1.0 / 11;
    p = p * w + 1.0 / 9;
    p = p * w + 1.0 / 7;
    p = p * w + 1.0 / 5;
    p = p * w + 1.0 / 3;
    vd logarithm = (p * w * s + s) * 2.885390081777926815 + e;
    vd t = logarithm * __builtin_convertvector(y, vd);
    t = vd_select(t > 200.0, vd_splat(200.0), t);
    t = vd_select(t < -200.0, vd_splat(-200.0), t);
    vd rounded = t + 6755399441055744.0;  // 1.5 * 2^52
    vd whole = rounded - 6755399441055744.0;
    vd z = (t - whole) * 0.6931471805599453094;
    vd q = z * (1.0 / 40320) + 1.0 / 5040;
    q = q * z + 1.0 / 720;
    q = q * z + 1.0 / 120;
    q = q * z + 1.0 / 24;
    q = q * z + 1.0 / 6;
    q = q * z + 0.5;
    q = q * z + 1.0;
    q = q * z + 1.0;
    vd power = (vd)((((vul)rounded - (vul)vd_splat(6755399441055744.0)) + 1023u) << 52);
    vf result = __builtin_convertvector(q * power, vf);
    vi integral = vf_trunc(y) == y;  // infinities too: they count as even
    vf halved = y * 0.5f;
    vi odd = integral & (vf_abs(y) < 16777216.0f) & (vf_trunc(halved) != halved);
    vi negative = (vi)x < 0;
    result = vf_select(magnitude == 0.0f, vf_select(y < 0.0f, vf_splat(INFINITY_F32), vf_splat(0.0f)), result);
    result = vf_select(magnitude == INFINITY_F32, vf_select(y < 0.0f, vf_splat(0.0f), vf_splat(INFINITY_F32)), result);
    vi infinite = vf_abs(y) == INFINITY_F32;
    vi grows = (magnitude > 1.0f) == (y > 0.0f);
    result = vf_select(infinite, vf_select(grows, vf_splat(INFINITY_F32), vf_splat(0.0f)), result);
    result = vf_select(infinite & (magnitude == 1.0f), vf_splat(1.0f), result);
    result = (vf)((vi)result ^ (odd & negative & SIGN_BIT));
    result = vf_select(negative & (magnitude > 0.0f) & (magnitude < INFINITY_F32) & ~integral, vf_splat(NAN_F32), result);
    result = vf_select((x != x) | (y != y), vf_splat(NAN_F32), result);
    return vf_select((x == 1.0f) | (y == 0.0f), vf_splat(1.0f), result);
}
