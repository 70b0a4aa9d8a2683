// Elementwise functions of two operands with broadcasting. NumPy twins: onnxlet/ops, the operators of the same names.
//
// Unit: one element of y. `rank` (0 to 8) and the addresses `shape`, `a_strides`, `b_strides` of int64 arrays describe
// the output's shape and the operands' strides in elements, 0 where an operand is broadcast; y is contiguous. `type` is
// the operands' (types.h): float32, float64, int32, int64, or bytes (uint8, bool). Comparisons and logical functions
// give bytes. y may be an operand that is not broadcast. `activation` (vecmath.h) with `low` and `high` (float32 bits)
// is applied to float32 results of arithmetic.
//
// Integers wrap around. Integer division truncates; dividing by zero gives 0. MOD takes the sign of the divisor, FMOD
// that of the dividend; of floats, float64 alone has them. AND, OR and XOR are logical for bytes and bitwise for wider
// integers. Shifts, of int32 and int64, by a negative amount or by all bits and more give what is shifted in;
// SHIFT_RIGHT_UNSIGNED takes its operands for unsigned.
#include "activation.h"
#include "doubles.h"
#include "strided.h"
#include "types.h"
#include "vecmath.h"

enum {
    ADD, SUB, MUL, DIV, POW, MIN, MAX, MOD, FMOD, PRELU,                        // 0 to 9
    EQUAL, LESS, LESS_EQUAL, GREATER, GREATER_EQUAL,                            // 10 to 14
    AND, OR, XOR, SHIFT_LEFT, SHIFT_RIGHT, SHIFT_RIGHT_UNSIGNED,                // 15 to 20
};

INLINE vf arithmetic(int op, vf p, vf q) {
    switch (op) {
    case ADD: return p + q;
    case SUB: return p - q;
    case MUL: return p * q;
    case DIV: return p / q;
    case POW: return vpow(p, q);
    case MIN: return vmin(p, q);
    case MAX: return vmax(p, q);
    default: return vleakyrelu(p, q);
    }
}

INLINE vi comparison(int op, vf p, vf q) {
    switch (op) {
    case EQUAL: return p == q;
    case LESS: return p < q;
    case LESS_EQUAL: return p <= q;
    case GREATER: return p > q;
    default: return p >= q;
    }
}

typedef int8_t vb __attribute__((ext_vector_type(LANES)));
typedef vb vb_unaligned __attribute__((aligned(1), may_alias));

// Float32 results of n elements, a multiple of LANES. `da` and `db` are LANES, or 0 for an operand that points to LANES
// equal values.
#define ARITHMETIC(op)                                                                                           \
    case op: {                                                                                                   \
        word i = 0;                                                                                              \
        if (da && db)                                                                                            \
            for (; i + 4 * LANES <= n; i += 4 * LANES)                                                           \
                UNROLL for (int k = 0; k < 4 * LANES; k += LANES)                                                \
                    vstore(y + i + k, arithmetic(op, vload(p + i + k), vload(q + i + k)));                       \
        else if (da)                                                                                             \
            for (vf v = vload(q); i + 4 * LANES <= n; i += 4 * LANES)                                            \
                UNROLL for (int k = 0; k < 4 * LANES; k += LANES)                                                \
                    vstore(y + i + k, arithmetic(op, vload(p + i + k), v));                                      \
        p += da ? i : 0, q += db ? i : 0;                                                                        \
        for (; i < n; i += LANES, p += da, q += db) vstore(y + i, arithmetic(op, vload(p), vload(q)));           \
        break;                                                                                                   \
    }

static NOINLINE void f32_arithmetic(int op, const float *p, word da, const float *q, word db, float *y, word n) {
    switch (op) {
        ARITHMETIC(ADD) ARITHMETIC(SUB) ARITHMETIC(MUL) ARITHMETIC(DIV) ARITHMETIC(MIN) ARITHMETIC(MAX)
        ARITHMETIC(PRELU)
    case POW:
        for (word i = 0; i < n; i += LANES, p += da, q += db) vstore(y + i, arithmetic(POW, vload(p), vload(q)));
    }
}

#define COMPARISON(op)                                                                                          \
    case op:                                                                                                    \
        for (word i = 0; i < n; i += LANES, p += da, q += db)                                                   \
            *(vb_unaligned *)(y + i) = __builtin_convertvector(comparison(op, vload(p), vload(q)), vb) & 1;     \
        break;

static NOINLINE void f32_comparison(int op, const float *p, word da, const float *q, word db, uint8_t *y, word n) {
    switch (op) {
        COMPARISON(EQUAL) COMPARISON(LESS) COMPARISON(LESS_EQUAL) COMPARISON(GREATER) COMPARISON(GREATER_EQUAL)
    }
}

enum { BLOCK = 1024 };

// `n` values of a float32 row from p[0], p[stride], ...; the result is where they can be read with steps of LANES, or
// of 0 where all are equal.
INLINE const float *row_block(const float *p, word stride, word n, float *buffer, word *step) {
    *step = stride ? LANES : 0;
    if (stride == 1) return p;
    if (stride == 0) {
        vstore(buffer, vsplat(*p));
        return buffer;
    }
    for (word i = 0; i < n; i++) buffer[i] = p[i * stride];
    return buffer;
}

// x^e for the exponents that models use: squares, roots and the like without logarithms. Returns 0 for others. `da` is
// LANES, or 0 where all x are equal; n is a multiple of LANES.
static int f32_simple_power(const float *p, word da, float exponent, float *y, word n) {
    if (exponent == 2.0f) f32_arithmetic(MUL, p, da, p, da, y, n);
    else if (exponent == 1.0f)
        for (word i = 0; i < n; i += LANES, p += da) vstore(y + i, vload(p));
    else if (exponent == 3.0f)
        for (word i = 0; i < n; i += LANES, p += da) vstore(y + i, vload(p) * vload(p) * vload(p));
    else if (exponent == -1.0f)
        for (word i = 0; i < n; i += LANES, p += da) vstore(y + i, 1.0f / vload(p));
    else if (exponent == 0.5f)
        for (word i = 0; i < n; i += LANES, p += da) {
            vf x = vload(p) + 0.0f;     // -0 becomes 0
            vstore(y + i, vselect(x == -INFINITY_F32, -x, vsqrt(x)));
        }
    else return 0;
    return 1;
}

static void f32_part(int op, const float *p, word da, const float *q, word db, void *y, word n, int one_b) {
    if (op >= EQUAL) f32_comparison(op, p, da, q, db, y, n);
    else if (op != POW || !one_b || !f32_simple_power(p, da, *q, y, n)) f32_arithmetic(op, p, da, q, db, y, n);
}

static void f32_row(int op, const float *p, word sa, const float *q, word sb, void *y, word n, int activation, vf low,
                    vf high) {
    float a_buffer[BLOCK], b_buffer[BLOCK];
    for (word at = 0; at < n; at += BLOCK) {
        word count = min_word(n - at, BLOCK), da, db;
        const float *pa = row_block(p + at * sa, sa, count, a_buffer, &da);
        const float *pb = row_block(q + at * sb, sb, count, b_buffer, &db);
        word size = op >= EQUAL ? 1 : sizeof(float), rest = count % LANES, whole = count - rest;
        char *out = (char *)y + at * size;
        f32_part(op, pa, da, pb, db, out, whole, sb == 0);
        if (rest) {
            float a_last[LANES], b_last[LANES], last[LANES];
            vstore(a_last, vload_part(da ? pa + whole : pa, rest));
            vstore(b_last, vload_part(db ? pb + whole : pb, rest));
            f32_part(op, a_last, LANES, b_last, LANES, last, LANES, sb == 0);
            memcpy(out + whole * size, last, (size_t)(rest * size));
        }
        if (activation && op < EQUAL) activate_all((float *)out, count, activation, low, high);
    }
}

// Types other than float32 seldom come in bulk: small code rather than vectors.
#define EACH(op, type, value)                                                               \
    case op:                                                                                \
        _Pragma("clang loop vectorize(disable) unroll(disable)") for (word i = 0; i < n; i++) { \
            T s = p[i * sa], t = q[i * sb];                                                 \
            ((type *)y)[i] = (value);                                                       \
        }                                                                                   \
        break;
#define EACH_COMPARISON                                                                                    \
    EACH(EQUAL, uint8_t, s == t) EACH(LESS, uint8_t, s < t) EACH(LESS_EQUAL, uint8_t, s <= t)              \
    EACH(GREATER, uint8_t, s > t) EACH(GREATER_EQUAL, uint8_t, s >= t)

#define BITS(T) (8 * (T)sizeof(T))

// Rows of integers of type T; U is the unsigned type of the same size, whose arithmetic wraps.
#define INTEGER_ROW(name, INTEGER, UNSIGNED)                                                        \
    INLINE INTEGER name##_divide(INTEGER s, INTEGER t) {                                            \
        return t == 0 ? 0 : t == -1 ? (INTEGER)(0 - (UNSIGNED)s) : s / t;                           \
    }                                                                                               \
    INLINE INTEGER name##_remainder(INTEGER s, INTEGER t) { return t == 0 || t == -1 ? 0 : s % t; } \
    INLINE INTEGER name##_modulo(INTEGER s, INTEGER t) {                                            \
        INTEGER r = name##_remainder(s, t);                                                         \
        return r != 0 && (r < 0) != (t < 0) ? r + t : r;                                            \
    }                                                                                               \
    INLINE INTEGER name##_power(INTEGER s, INTEGER t) {                                             \
        if (t < 0) return s == 1 ? 1 : s == -1 ? (t & 1 ? -1 : 1) : 0;                              \
        UNSIGNED result = 1, square = (UNSIGNED)s;                                                  \
        for (; t; t >>= 1, square *= square)                                                        \
            if (t & 1) result *= square;                                                            \
        return (INTEGER)result;                                                                     \
    }                                                                                               \
    static void name##_row(int op, const INTEGER *p, word sa, const INTEGER *q, word sb, void *y, word n) { \
        typedef INTEGER T;                                                                          \
        typedef UNSIGNED U;                                                                         \
        switch (op) {                                                                               \
            EACH(ADD, T, (T)((U)s + (U)t)) EACH(SUB, T, (T)((U)s - (U)t)) EACH(MUL, T, (T)((U)s * (U)t)) \
            EACH(DIV, T, name##_divide(s, t)) EACH(POW, T, name##_power(s, t)) EACH(MIN, T, s < t ? s : t) \
            EACH(MAX, T, s > t ? s : t) EACH(MOD, T, name##_modulo(s, t)) EACH(FMOD, T, name##_remainder(s, t)) \
            EACH_COMPARISON                                                                         \
            EACH(AND, T, s & t) EACH(OR, T, s | t) EACH(XOR, T, s ^ t)                              \
            EACH(SHIFT_LEFT, T, (U)t < BITS(T) ? (T)((U)s << t) : 0)                                \
            EACH(SHIFT_RIGHT, T, s >> ((U)t < BITS(T) ? t : BITS(T) - 1))                           \
            EACH(SHIFT_RIGHT_UNSIGNED, T, (U)t < BITS(T) ? (T)((U)s >> t) : 0)                      \
        }                                                                                           \
    }

INTEGER_ROW(i32, int32_t, uint32_t)
INTEGER_ROW(i64, int64_t, uint64_t)

static void f64_row(int op, const double *p, word sa, const double *q, word sb, void *y, word n) {
    typedef double T;
    switch (op) {
        EACH(ADD, T, s + t) EACH(SUB, T, s - t) EACH(MUL, T, s * t) EACH(DIV, T, s / t)
        EACH(MIN, T, s != s || s < t ? s : t) EACH(MAX, T, s != s || s > t ? s : t) EACH(PRELU, T, s < 0 ? s * t : s)
        EACH(MOD, T, f64_modulo(s, t)) EACH(FMOD, T, f64_fmod(s, t))
        EACH_COMPARISON
    }
}

static void u8_row(int op, const uint8_t *p, word sa, const uint8_t *q, word sb, uint8_t *y, word n) {
    typedef uint8_t T;
    switch (op) {
        EACH(ADD, T, (T)(s + t)) EACH(SUB, T, (T)(s - t)) EACH(MUL, T, (T)(s * t)) EACH(DIV, T, t ? s / t : 0)
        EACH(MIN, T, s < t ? s : t) EACH(MAX, T, s > t ? s : t) EACH(MOD, T, t ? s % t : 0)
        EACH_COMPARISON
        EACH(AND, T, (s != 0) & (t != 0)) EACH(OR, T, (s != 0) | (t != 0)) EACH(XOR, T, (s != 0) ^ (t != 0))
    }
}

KERNEL(binary, op, type, a, b, y, rank, shape, a_strides, b_strides, activation, low, high) {
    int op = (int)a->op, activation = (int)a->activation;
    vf low = vsplat(as_f32(a->low)), high = vsplat(as_f32(a->high));
    const word size = op >= EQUAL && op <= GREATER_EQUAL ? 1 : type_size(a->type);
    word strides[] = {a->a_strides, a->b_strides}, n;
    Walk w;
    walk_shape(&w, a->rank, a->shape, strides, 2);
    walk_to(&w, begin, end, 2);
    word sa = w.strides[0][w.rank - 1], sb = w.strides[1][w.rank - 1], at = begin;
    for (; (n = walk_count(&w)) > 0; at += n, walk_on(&w, n, 2)) {
        word ia = w.offset[0], ib = w.offset[1];
        switch (a->type) {
        case TYPE_F32:
            f32_row(op, F32(a->a) + ia, sa, F32(a->b) + ib, sb, PTR(char, a->y) + at * size, n, activation, low, high);
            break;
        case TYPE_I32:
            i32_row(op, PTR(const int32_t, a->a) + ia, sa, PTR(const int32_t, a->b) + ib, sb,
                    PTR(char, a->y) + at * size, n);
            break;
        case TYPE_I64:
            i64_row(op, PTR(const int64_t, a->a) + ia, sa, PTR(const int64_t, a->b) + ib, sb,
                    PTR(char, a->y) + at * size, n);
            break;
        case TYPE_F64:
            f64_row(op, PTR(const double, a->a) + ia, sa, PTR(const double, a->b) + ib, sb,
                    PTR(char, a->y) + at * size, n);
            break;
        default:
            u8_row(op, PTR(const uint8_t, a->a) + ia, sa, PTR(const uint8_t, a->b) + ib, sb,
                   PTR(uint8_t, a->y) + at, n);
        }
    }
}
