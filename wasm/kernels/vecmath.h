// Elementary functions on vectors of float32, the same code for four and eight lanes.
//
// Straight-line code without tables or branches on values. NumPy twins: the functions of the same names in
// onnxlet/ops. Largest errors in units in the last place of the result, measured over the whole range against 80-bit
// references, with and without fused multiply-add:
//
//     exp 1.01 expm1 1.3  log 1    softplus 2    sigmoid 2.3  tanh 6    erf 7    pow 0.51    sin, cos 1.3e-7 absolute
//
// NaN stays NaN, infinities and zeros give the limits, subnormals are flushed neither on input nor on output,
// but sigmoid and softplus below 1.2e-38 are 0.
// Integers are taken from the bits of rounded floats, never by a conversion that could overflow.
#pragma once
#include "kernel.h"

typedef uint32_t vu __attribute__((ext_vector_type(LANES)));
typedef double vd __attribute__((ext_vector_type(LANES)));
typedef int64_t vl __attribute__((ext_vector_type(LANES)));
typedef uint64_t vul __attribute__((ext_vector_type(LANES)));

#define INFINITY_F32 __builtin_inff()
#define NAN_F32 __builtin_nanf("")
#define SIGN_BIT INT32_MIN

INLINE vf vsplat(float x) { return (vf)x; }
// A constant of an elementary function. Browsers make a constant vector anew wherever it is named, in loops too, in
// several instructions; what looks like a computed one is made once, before the loop.
INLINE vf vconst(float x) {
    vf v = (vf)x;
#if defined(__wasm__)
    __asm__("" : "+r"(v));
#endif
    return v;
}
// Lanes of `a` where `mask` is all ones, of `b` where it is zero.
INLINE vf vselect(vi mask, vf a, vf b) {
#if defined(__wasm_relaxed_simd__)
    return (vf)wasm_i32x4_relaxed_laneselect((v128_t)a, (v128_t)b, (v128_t)mask);
#elif defined(__wasm__)
    return (vf)(((vi)a & mask) | ((vi)b & ~mask));
#else
    return mask ? a : b;
#endif
}
INLINE vi vselect_i(vi mask, vi a, vi b) { return (a & mask) | (b & ~mask); }
INLINE vd vselect_d(vl mask, vd a, vd b) { return (vd)(((vl)a & mask) | ((vl)b & ~mask)); }
INLINE vf vabs(vf x) { return __builtin_elementwise_abs(x); }
INLINE vf vsqrt(vf x) { return __builtin_elementwise_sqrt(x); }
INLINE vf vfloor(vf x) { return __builtin_elementwise_floor(x); }
INLINE vf vceil(vf x) { return __builtin_elementwise_ceil(x); }
INLINE vf vrint(vf x) { return __builtin_elementwise_roundeven(x); }  // ties to even
INLINE vf vtrunc(vf x) { return __builtin_elementwise_trunc(x); }

// Minimum and maximum as NumPy has them: NaN where either is NaN.
INLINE vf vmax(vf x, vf y) {
#if defined(__wasm__)
    return (vf)wasm_f32x4_max((v128_t)x, (v128_t)y);
#else
    return vselect((x > y) | (x != x), x, y);
#endif
}
INLINE vf vmin(vf x, vf y) {
#if defined(__wasm__)
    return (vf)wasm_f32x4_min((v128_t)x, (v128_t)y);
#else
    return vselect((x < y) | (x != x), x, y);
#endif
}

// The larger and the smaller of the two; y where either is NaN. One instruction on most machines.
INLINE vf vlarger(vf x, vf y) {
#if defined(__wasm__)
    return (vf)wasm_f32x4_pmax((v128_t)y, (v128_t)x);
#else
    return vselect(x > y, x, y);
#endif
}
INLINE vf vsmaller(vf x, vf y) {
#if defined(__wasm__)
    return (vf)wasm_f32x4_pmin((v128_t)y, (v128_t)x);
#else
    return vselect(x < y, x, y);
#endif
}

// x moved into [low, high]; NaN stays NaN; where low > high the result is high.
INLINE vf vclamp(vf x, vf low, vf high) {
#if defined(__wasm__)
    return (vf)wasm_f32x4_pmin(wasm_f32x4_pmax((v128_t)x, (v128_t)low), (v128_t)high);
#else
    return vsmaller(high, vlarger(low, x));
#endif
}

INLINE float f32_max(float a, float b) { return a != a || a > b ? a : b; }
INLINE float f32_min(float a, float b) { return a != a || a < b ? a : b; }
// Largest and smallest lane, NaN if there is one.
INLINE float vmax_lane(vf v) {
    float m = v[0];
    UNROLL for (int i = 1; i < LANES; i++) m = f32_max(m, v[i]);
    return m;
}
// The largest lane where none is NaN, in fewer steps.
INLINE float vlargest_lane(vf v) {
#if LANES == 8
    v4i mask = v.lo > v.hi;
    v4f h = (v4f)(((v4i)v.lo & mask) | ((v4i)v.hi & ~mask));
#else
    v4f h = v;
#endif
    float a = h[0] > h[1] ? h[0] : h[1], b = h[2] > h[3] ? h[2] : h[3];
    return a > b ? a : b;
}
INLINE float vmin_lane(vf v) {
    float m = v[0];
    UNROLL for (int i = 1; i < LANES; i++) m = f32_min(m, v[i]);
    return m;
}

// Adding 1.5 * 2^23 leaves the nearest integer in the low bits (|x| < 2^22); NaN gives harmless bits.
#define ROUNDER 12582912.0f
INLINE vi integer_bits(vf rounded) { return (vi)((vu)rounded - (vu)vconst(ROUNDER)); }
// -127 (gives 0) <= n <= 127; only the lowest nine bits of n count.
INLINE vf power_of_two(vi n) { return (vf)(((vu)n << 23) + (vu)vconst(1.0f)); }

// exp(x) = 2^n (1 + q): returns q, and n in the lowest nine bits. x must be within +-105 or NaN.
INLINE vf exp_parts(vf x, vi *n) {
    vf rounded = vmadd(x, vconst(1.44269504f), vconst(ROUNDER));
    *n = (vi)rounded;
    vf whole = rounded - vconst(ROUNDER);
    vf r = vmadd(whole, vconst(-0.693359375f), x);  // ln 2 in two parts, the first with 9 bits
    r = vmadd(whole, vconst(2.12194440e-4f), r);
    vf p = vconst(1.381454e-3f);
    p = vmadd(p, r, vconst(8.368745e-3f));
    p = vmadd(p, r, vconst(4.166839e-2f));
    p = vmadd(p, r, vconst(1.6666521e-1f));
    p = vmadd(p, r, vconst(4.9999994e-1f));
    return vmadd(r * r, p, r);
}

INLINE vf vexp(vf x) {
    vi n;
    vf q = exp_parts(vclamp(x, vconst(-105.0f), vconst(89.0f)), &n);
    // Two factors, of half the exponent: 2^n itself may be out of range.
    vu exponent = (vu)n << 23, half = (vu)((vi)exponent >> 1) & (vu)vconst(-INFINITY_F32);
    vf scale = (vf)(half + (vu)vconst(1.0f));
    return vmadd(q, scale, scale) * (vf)(exponent - half + (vu)vconst(1.0f));
}

// exp(x) for x <= 0 or NaN where results below 1.2e-38 may become 0: softmax, attention.
INLINE vf vexp_negative(vf x) {
    vi n;
    vf q = exp_parts(vlarger(vconst(-88.0f), x), &n);
    vf scale = power_of_two(n);  // 0 for n = -127, which is the least
    return vmadd(q, scale, scale);
}

// exp(x) - 1 without cancellation, for x <= 88 (larger x are treated as 88).
INLINE vf vexpm1(vf x) {
    vi n;
    vf q = exp_parts(vclamp(x, vconst(-87.0f), vconst(88.0f)), &n);
    vf scale = power_of_two(n);
    return vmadd(q, scale, scale - vconst(1.0f));
}

INLINE vf vlog(vf x) {
    vi tiny = x < vconst(1.17549435e-38f);
    vf y = vselect(tiny, x * vconst(8388608.0f), x);
    vu bits = (vu)y;
    vi exponent = (vi)((bits - 0x3f3504f3u) >> 23 << 23);  // mantissa goes to [sqrt 1/2, sqrt 2)
    vf f = (vf)(bits - (vu)exponent) - vconst(1.0f);
    vf e = __builtin_convertvector(exponent >> 23, vf) - (vf)(tiny & (vi)vconst(23.0f));
    vf p = vconst(0.06746601f);
    p = vmadd(p, f, vconst(-0.11675641f));
    p = vmadd(p, f, vconst(0.11888175f));
    p = vmadd(p, f, vconst(-0.12405591f));
    p = vmadd(p, f, vconst(0.14219551f));
    p = vmadd(p, f, vconst(-0.16667996f));
    p = vmadd(p, f, vconst(0.20002119f));
    p = vmadd(p, f, vconst(-0.2500001f));
    p = vmadd(p, f, vconst(0.33333313f));
    vf square = f * f;
    vf small = vmadd(p, f * square, e * vconst(-2.12194440e-4f));
    small = vmadd(square, vconst(-0.5f), small);
    vf result = vmadd(e, vconst(0.693359375f), f + small);
    result = vselect(x == 0.0f, vsplat(-INFINITY_F32), result);
    result = vselect((x < 0.0f) | (x != x), vsplat(NAN_F32), result);
    return vselect(x == INFINITY_F32, x, result);
}

// log(1 + u) for 0 <= u, by the logarithm of the rounded sum and a correction for its rounding.
INLINE vf log1p_positive(vf u) {
    vf sum = u + vconst(1.0f);
    return vlog(sum) - ((sum - vconst(1.0f)) - u) / sum;
}

INLINE vf vsigmoid(vf x) {
    vf e = vexp_negative(-vabs(x)), one = vconst(1.0f);
    return vselect(x < 0.0f, e, one) / (e + one);
}

// x P(x^2) / Q(x^2), fitted for the smallest relative error on [0, 9.02], beyond which tanh rounds to 1. From 9.2 on the
// quotient is greater than 1, so that the result is exactly 1 there, and nowhere more.
INLINE vf vtanh(vf x) {
    x = vclamp(x, vconst(-9.2f), vconst(9.2f));
    vf u = x * x;
    vf p = vmadd(vconst(1.33190935e-8f), u, vconst(2.05835181e-5f));
    p = vmadd(p, u, vconst(3.49403778e-3f));
    p = vmadd(p, u, vconst(1.33797210e-1f));
    p = vmadd(p, u, vconst(1.0f));
    vf q = vmadd(vconst(7.76203446e-7f), u, vconst(3.28309740e-4f));
    q = vmadd(q, u, vconst(2.58710865e-2f));
    q = vmadd(q, u, vconst(4.67130363e-1f));
    q = vmadd(q, u, vconst(1.0f));
    return vclamp(x * p / q, vconst(-1.0f), vconst(1.0f));
}

// x P(x^2) / Q(x^2), fitted for the smallest relative error on [0, 4], beyond which erf rounds to 1; from 4.2 on the
// quotient is greater than 1.
INLINE vf verf(vf x) {
    x = vclamp(x, vconst(-4.2f), vconst(4.2f));
    vf u = x * x;
    vf p = vmadd(vconst(1.98676485e-6f), u, vconst(2.84561170e-4f));
    p = vmadd(p, u, vconst(3.88324579e-3f));
    p = vmadd(p, u, vconst(5.31014357e-2f));
    p = vmadd(p, u, vconst(1.93543130e-1f));
    p = vmadd(p, u, vconst(1.12837914f));
    vf q = vmadd(vconst(3.74197441e-5f), u, vconst(1.18554258e-3f));
    q = vmadd(q, u, vconst(1.52070569e-2f));
    q = vmadd(q, u, vconst(1.15349152e-1f));
    q = vmadd(q, u, vconst(5.04855690e-1f));
    q = vmadd(q, u, vconst(1.0f));
    return vclamp(x * p / q, vconst(-1.0f), vconst(1.0f));
}

INLINE vf vgelu(vf x) { return x * vconst(0.5f) * (verf(x * vconst(0.707106781f)) + vconst(1.0f)); }
INLINE vf vgelu_tanh(vf x) {
    vf inner = vconst(0.797884561f) * vmadd(x * x * x, vconst(0.044715f), x);
    return x * vconst(0.5f) * (vtanh(inner) + vconst(1.0f));
}
INLINE vf vsilu(vf x) { return x * vsigmoid(x); }
INLINE vf vhardsigmoid(vf x, vf slope, vf offset) {
    return vclamp(vmadd(x, slope, offset), vconst(0.0f), vconst(1.0f));
}
INLINE vf vhardswish(vf x) { return x * vhardsigmoid(x, vconst(1.0f / 6.0f), vconst(0.5f)); }
INLINE vf vleakyrelu(vf x, vf slope) { return vselect(x < 0.0f, x * slope, x); }
// log(1 + exp(x)) = max(x, 0) + log(1 + exp(-|x|))
INLINE vf vsoftplus(vf x) { return vmax(x, vconst(0.0f)) + log1p_positive(vexp_negative(-vabs(x))); }
// tanh(log(1 + e)) = (e^2 + 2e) / (e^2 + 2e + 2) with e = exp(x); from 20 on it rounds to 1.
INLINE vf vmish(vf x) {
    vf e = vexp(vclamp(x, vconst(-105.0f), vconst(20.0f)));
    vf t = e * (e + vconst(2.0f));
    return x * (t / (t + vconst(2.0f)));
}

// The activation of the epilogues: 0 none, 1 clamp to [low, high], 2 silu, 3 gelu, 4 sigmoid, 5 tanh, 6 hardswish,
// 7 leakyrelu of slope `low`, 8 gelu by tanh. With a constant `code` only that function remains after inlining.
INLINE vf activate(vf x, int code, vf low, vf high) {
    switch (code) {
    case 1: return vclamp(x, low, high);
    case 2: return vsilu(x);
    case 3: return vgelu(x);
    case 4: return vsigmoid(x);
    case 5: return vtanh(x);
    case 6: return vhardswish(x);
    case 7: return vleakyrelu(x, low);
    case 8: return vgelu_tanh(x);
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
    vf magnitude = vabs(x);
    vf rounded = vmadd(magnitude, vconst(0.636619772f), vconst(ROUNDER));
    vi quadrant = integer_bits(rounded);
    vf whole = rounded - vconst(ROUNDER);
    vf r = vmadd(whole, vconst(-1.5703125f), magnitude);  // pi/2 in three parts; a 13 bit integer
    r = vmadd(whole, vconst(-4.83751297e-4f), r);  // times the first two is exact
    r = vmadd(whole, vconst(-7.54978942e-8f), r);
    vi large = magnitude > vconst(8192.0f);
    if (__builtin_reduce_or(large))
        for (int lane = 0; lane < LANES; lane++)
            if (magnitude[lane] > 8192.0f && magnitude[lane] < INFINITY_F32) {
                int32_t turn;
                r[lane] = reduce_large_angle(magnitude[lane], &turn);
                quadrant[lane] = turn;
            }
    vf u = r * r;
    vf s = vmadd(vconst(-1.9517e-4f), u, vconst(8.33217e-3f));
    s = vmadd(s, u, vconst(-0.16666655f));
    s = vmadd(s * u, r, r);
    vf c = vmadd(vconst(2.44324111e-5f), u, vconst(-1.38873098e-3f));
    c = vmadd(c, u, vconst(4.16666456e-2f));
    c = vmadd(u, vconst(-0.5f), vconst(1.0f) + c * u * u);
    quadrant += quarter;
    vf result = vselect((quadrant & 1) != 0, c, s);
    vi sign = (vi)((vu)quadrant << 30) & SIGN_BIT;
    if (!quarter) sign ^= (vi)x & SIGN_BIT;  // sine is odd
    result = (vf)((vi)result ^ sign);
    return vselect(magnitude < INFINITY_F32, result, vsplat(NAN_F32));
}
INLINE vf vsin(vf x) { return sine(x, 0); }
INLINE vf vcos(vf x) { return sine(x, 1); }

// x^y through logarithm and exponential in double precision. As C's pow at the corners: x^0 = 1^y = 1 even for NaN,
// (-1)^+-inf = 1, a negative base with a fractional exponent is NaN.
INLINE vf vpow(vf x, vf y) {
    vf magnitude = vabs(x);
    vi tiny = magnitude < 1.17549435e-38f;
    vf scaled = vselect(tiny, magnitude * 8388608.0f, magnitude);
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
    t = vselect_d((vl)(t > 200.0), (vd)(200.0), t);
    t = vselect_d((vl)(t < -200.0), (vd)(-200.0), t);
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
    vd power = (vd)((((vul)rounded - (vul)(vd)(6755399441055744.0)) + 1023u) << 52);
    vf result = __builtin_convertvector(q * power, vf);
    vi integral = vtrunc(y) == y;  // infinities too: they count as even
    vf halved = y * 0.5f;
    vi odd = integral & (vabs(y) < 16777216.0f) & (vtrunc(halved) != halved);
    vi negative = (vi)x < 0;
    result = vselect(magnitude == 0.0f, vselect(y < 0.0f, vsplat(INFINITY_F32), vsplat(0.0f)), result);
    result = vselect(magnitude == INFINITY_F32, vselect(y < 0.0f, vsplat(0.0f), vsplat(INFINITY_F32)), result);
    vi infinite = vabs(y) == INFINITY_F32;
    vi grows = (magnitude > 1.0f) == (y > 0.0f);
    result = vselect(infinite, vselect(grows, vsplat(INFINITY_F32), vsplat(0.0f)), result);
    result = vselect(infinite & (magnitude == 1.0f), vsplat(1.0f), result);
    result = (vf)((vi)result ^ (odd & negative & SIGN_BIT));
    result = vselect(negative & (magnitude > 0.0f) & (magnitude < INFINITY_F32) & ~integral, vsplat(NAN_F32), result);
    result = vselect((x != x) | (y != y), vsplat(NAN_F32), result);
    return vselect((x == 1.0f) | (y == 0.0f), vsplat(1.0f), result);
}
