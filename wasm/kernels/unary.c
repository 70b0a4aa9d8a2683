// Elementwise functions of one float32 operand. NumPy twins: onnxlet/ops, the operators of the same names.
//
// Unit: one element. `y` may be `x`. `alpha` and `beta` are float32 bits, read by the functions that have parameters:
// elu, celu, leaky_relu, thresholded_relu, swish (alpha), selu (alpha, beta = gamma), hard_sigmoid (alpha, beta),
// clip (alpha = low, beta = high), affine (alpha x + beta).
#include "vecmath.h"

enum {
    ABS, NEG, EXP, LOG, SQRT, RSQRT, RECIPROCAL, SIN, COS, TANH,                            // 0 to 9
    SIGMOID, ERF, GELU, GELU_TANH, SILU, RELU, LEAKY_RELU, ELU, SELU, CELU,                 // 10 to 19
    SOFTPLUS, SOFTSIGN, HARD_SIGMOID, HARD_SWISH, MISH, FLOOR, CEIL, ROUND, SIGN, CLIP,     // 20 to 29
    THRESHOLDED_RELU, SWISH, AFFINE, SQUARE, EXPM1, BFLOAT16,                               // 30 to 35
};

INLINE vf sign(vf x) {
    vf one = (vf)(((vi)x & SIGN_BIT) | (vi)vsplat(1.0f));
    return vselect((x > 0.0f) | (x < 0.0f), one, x);        // zeros and NaN stay
}

// alpha (exp(x / scale) - 1) for x < 0
INLINE vf elu(vf x, vf alpha, vf scale) { return vselect(x < 0.0f, alpha * vexpm1(x / scale), x); }

// To the nearest bfloat16, ties to even; too large becomes infinite.
INLINE vf to_bfloat16(vf x) {
    vu bits = (vu)x;
    vu rounded = (bits + 0x7fff + (bits >> 16 & 1)) & 0xffff0000u;
    return vselect(x == x, (vf)rounded, x);
}

INLINE vf apply(int op, vf x, vf alpha, vf beta) {
    switch (op) {
    case ABS: return vabs(x);
    case NEG: return -x;
    case EXP: return vexp(x);
    case LOG: return vlog(x);
    case SQRT: return vsqrt(x);
    case RSQRT: return 1.0f / vsqrt(x);
    case RECIPROCAL: return 1.0f / x;
    case SIN: return vsin(x);
    case COS: return vcos(x);
    case TANH: return vtanh(x);
    case SIGMOID: return vsigmoid(x);
    case ERF: return verf(x);
    case GELU: return vgelu(x);
    case GELU_TANH: return vgelu_tanh(x);
    case SILU: return vsilu(x);
    case RELU: return vclamp(x, vsplat(0.0f), vsplat(INFINITY_F32));
    case LEAKY_RELU: return vleakyrelu(x, alpha);
    case ELU: return elu(x, alpha, vsplat(1.0f));
    case SELU: return beta * elu(x, alpha, vsplat(1.0f));
    case CELU: return elu(x, alpha, alpha);
    case SOFTPLUS: return vsoftplus(x);
    case SOFTSIGN: return x / (vabs(x) + 1.0f);
    case HARD_SIGMOID: return vhardsigmoid(x, alpha, beta);
    case HARD_SWISH: return vhardswish(x);
    case MISH: return vmish(x);
    case FLOOR: return vfloor(x);
    case CEIL: return vceil(x);
    case ROUND: return vrint(x);
    case SIGN: return sign(x);
    case CLIP: return vclamp(x, alpha, beta);
    case THRESHOLDED_RELU: return vselect(x > alpha, x, vsplat(0.0f));  // NaN gives 0
    case SWISH: return x * vsigmoid(alpha * x);
    case AFFINE: return vmadd(alpha, x, beta);
    case SQUARE: return x * x;
    case EXPM1: return vselect(x > 88.0f, vexp(x), vexpm1(x));
    case BFLOAT16: return to_bfloat16(x);
    default: return x;
    }
}

#define LOOP(op)                                                                                            \
    case op:                                                                                                \
        for (; x < end; x += LANES, y += LANES) vstore(y, apply(op, vload(x), alpha, beta));                \
        break;

// The same for functions of a few instructions, where the loop itself counts.
#define SHORT_LOOP(op)                                                                                      \
    case op:                                                                                                \
        for (; x + 4 * LANES <= end; x += 4 * LANES, y += 4 * LANES)                                        \
            UNROLL for (int k = 0; k < 4 * LANES; k += LANES)                                               \
                vstore(y + k, apply(op, vload(x + k), alpha, beta));                                        \
        for (; x < end; x += LANES, y += LANES) vstore(y, apply(op, vload(x), alpha, beta));                \
        break;

// Applies a function to `count` elements, a multiple of LANES.
static NOINLINE void apply_all(int op, const float *x, float *y, word count, vf alpha, vf beta) {
    const float *end = x + count;
    switch (op) {
        SHORT_LOOP(ABS) SHORT_LOOP(NEG) SHORT_LOOP(SQRT) SHORT_LOOP(RECIPROCAL) SHORT_LOOP(RELU) SHORT_LOOP(LEAKY_RELU)
        SHORT_LOOP(HARD_SIGMOID) SHORT_LOOP(HARD_SWISH) SHORT_LOOP(FLOOR) SHORT_LOOP(CEIL) SHORT_LOOP(ROUND)
        SHORT_LOOP(CLIP) SHORT_LOOP(AFFINE) SHORT_LOOP(SQUARE)
        LOOP(EXP) LOOP(LOG) LOOP(RSQRT) LOOP(SIN) LOOP(COS) LOOP(TANH) LOOP(SIGMOID) LOOP(ERF) LOOP(GELU)
        LOOP(GELU_TANH) LOOP(SILU) LOOP(ELU) LOOP(SELU) LOOP(CELU) LOOP(SOFTPLUS) LOOP(SOFTSIGN) LOOP(MISH) LOOP(SIGN)
        LOOP(THRESHOLDED_RELU) LOOP(SWISH) LOOP(EXPM1) LOOP(BFLOAT16)
    }
}

KERNEL(unary, op, x, y, alpha, beta) {
    const float *x = F32(a->x) + begin;
    float *y = F32(a->y) + begin;
    word rest = (end - begin) % LANES, whole = end - begin - rest;
    vf alpha = vsplat(as_f32(a->alpha)), beta = vsplat(as_f32(a->beta));
    apply_all((int)a->op, x, y, whole, alpha, beta);
    if (rest) {
        float last[LANES];
        vstore(last, vload_part(x + whole, rest));
        apply_all((int)a->op, last, last, LANES, alpha, beta);
        vstore_part(y + whole, vload(last), rest);
    }
}

// Not: bytes, 0 becomes 1 and everything else 0.
KERNEL(logical_not, x, y) {
    const uint8_t *x = PTR(const uint8_t, a->x);
    uint8_t *y = PTR(uint8_t, a->y);
    for (word i = begin; i < end; i++) y[i] = x[i] == 0;
}

// IsNaN (op 0) and IsInf (op 1 both signs, 2 positive, 3 negative) of float32, as bytes.
KERNEL(classify, op, x, y) {
    const float *x = F32(a->x);
    uint8_t *y = PTR(uint8_t, a->y);
    const float positive = a->op == 3 ? NAN_F32 : INFINITY_F32, negative = a->op == 2 ? NAN_F32 : -INFINITY_F32;
    if (a->op == 0)
        for (word i = begin; i < end; i++) y[i] = x[i] != x[i];
    else
        for (word i = begin; i < end; i++) y[i] = (x[i] == positive) | (x[i] == negative);
}

