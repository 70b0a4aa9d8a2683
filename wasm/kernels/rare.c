// Functions of one operand that models seldom ask for, one number at a time in float64. NumPy twins: onnxlet/ops, the
// operators of the same names.
//
// Unit: one element. `type` (types.h) is float32 or float64; y may be x. float32 results are float64 results, rounded.
#include "doubles.h"
#include "types.h"
#include "vecmath.h"

enum {
    ABS, NEG, EXP, LOG, SQRT, RECIPROCAL, TANH, SIGMOID, SOFTPLUS, ERF,     // 0 to 9
    FLOOR, CEIL, ROUND, SIGN, SINH, COSH, ASIN, ACOS, ATAN, ASINH,          // 10 to 19
    ACOSH, ATANH, TAN,                                                      // 20 to 22
};

// tan, for angles that are float32.
static double f32_tan(float x) {
    float size = __builtin_fabsf(x);
    if (!(size < INFINITY_F32)) return NAN_F32;
    double r;
    int32_t quadrant;
    if (size > 8192.0f) r = (double)reduce_large_angle(size, &quadrant);
    else {
        double whole = f64_rint((double)size * 0.6366197723675814);
        quadrant = (int32_t)whole;
        r = (double)size - whole * 1.5707963267341256; // pi/2 in two parts, the first with 33 bits
        r -= whole * 6.077100506506192e-11;
    }
    double w = r * r, s = 0.0, c = 0.0;
    for (int k = 14; k > 0; k -= 2) {
        c = (1.0 - c) * w / (k * (k - 1));
        s = (1.0 - s) * w / (k * (k + 1));
    }
    double sine = r * (1.0 - s), cosine = 1.0 - c;
    return f64_sign_of(1.0, x) * (quadrant & 1 ? -cosine / sine : sine / cosine);
}

static double polynomial(const double *from, int count, double x) {
    double y = 0.0;
    for (int i = 0; i < count; i++) y = y * x + from[i];
    return y;
}

// W. J. Cody, "Rational Chebyshev approximations for the error function", Mathematics of Computation 23 (1969): erf up
// to 0.46875, erfc beyond, one approximation up to 4 and another above.
static double f64_erf(double x) {
    static const double near_p[] = {1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2,
                                    3.77485237685302021e2, 3.20937758913846947e3};
    static const double near_q[] = {1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3,
                                    2.84423683343917062e3};
    static const double middle_p[] = {2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594,
                                      6.61191906371416295e1, 2.98635138197400131e2, 8.81952221241769090e2,
                                      1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3};
    static const double middle_q[] = {1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2,
                                      1.62138957456669019e3, 3.29079923573345963e3, 4.36261909014324716e3,
                                      3.43936767414372164e3, 1.23033935480374942e3};
    static const double far_p[] = {1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1,
                                   1.25781726111229246e-1, 1.60837851487422766e-2, 6.58749161529837803e-4};
    static const double far_q[] = {1.0, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1,
                                   6.05183413124413191e-2, 2.33520497626869185e-3};
    double z = f64_abs(x), w = z * z;
    if (z != z) return x;
    if (z <= 0.46875) return x * polynomial(near_p, 5, w) / polynomial(near_q, 5, w);
    if (z >= 6.0) return f64_sign_of(1.0, x);
    double tail;
    if (z <= 4.0) tail = polynomial(middle_p, 9, z) / polynomial(middle_q, 9, z);
    else {
        double v = 1.0 / w;
        tail = (0.5641895835477562869 - v * polynomial(far_p, 6, v) / polynomial(far_q, 6, v)) / z;
    }
    return f64_sign_of(1.0 - f64_exp(-w) * tail, x);
}

static double of_double(int op, double x) {
    switch (op) {
    case ABS: return f64_abs(x);
    case NEG: return -x;
    case EXP: return f64_exp(x);
    case LOG: return f64_log(x);
    case SQRT: return f64_sqrt(x);
    case RECIPROCAL: return 1.0 / x;
    case TANH: return f64_tanh(x);
    case SIGMOID: return f64_sigmoid(x);
    case SOFTPLUS: return f64_softplus(x);
    case ERF: return f64_erf(x);
    case FLOOR: return __builtin_elementwise_floor(x);
    case CEIL: return __builtin_elementwise_ceil(x);
    case ROUND: return f64_rint(x);
    case SIGN: return x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x;
    case SINH: return f64_sinh(x);
    case COSH: return f64_cosh(x);
    case ASIN: return f64_asin(x);
    case ACOS: return f64_acos(x);
    case ATAN: return f64_atan(x);
    case ASINH: return f64_asinh(x);
    case ACOSH: return f64_acosh(x);
    default: return f64_atanh(x);
    }
}

KERNEL(unary_double, op, type, x, y) {
    const int op = (int)a->op;
    for (word i = begin; i < end; i++) {
        if (a->type == TYPE_F64) PTR(double, a->y)[i] = of_double(op, PTR(const double, a->x)[i]);
        else if (op == TAN) F32(a->y)[i] = (float)f32_tan(F32(a->x)[i]);
        else F32(a->y)[i] = (float)of_double(op, (double)F32(a->x)[i]);
    }
}
