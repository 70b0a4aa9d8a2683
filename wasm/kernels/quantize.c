// Between float32 and small integers. NumPy twins: onnxlet/ops, QuantizeLinear, DequantizeLinear,
// DynamicQuantizeLinear.
//
// `type` (types.h) is int8, uint8, int16 or uint16, for dequantize also int32. x and y are [outer, axis, inner];
// `scale` and `zero` are addresses of `axis` values (float32, and of `type`; zero may be absent: 0). With one scale for
// all, axis is 1 and inner the number of elements. Unit: one element.
#include "quantize.h"
#include "types.h"

INLINE int32_t integer_at(word type, word x, word i) {
    switch (type) {
    case TYPE_I8: return PTR(const int8_t, x)[i];
    case TYPE_U8: return PTR(const uint8_t, x)[i];
    case TYPE_I16: return PTR(const int16_t, x)[i];
    case TYPE_U16: return PTR(const uint16_t, x)[i];
    default: return PTR(const int32_t, x)[i];
    }
}

// Visits the runs of equal scale in units [begin, end): `at` is the first element, `count` their number, `channel` the
// place along the axis.
#define EACH_RUN                                                                                  \
    for (word at = begin, count, channel; at < end; at += count)                                  \
        if (channel = at / a->inner % a->axis, count = min_word(a->inner - at % a->inner, end - at), 1)

typedef int8_t vc __attribute__((ext_vector_type(LANES)));
typedef int16_t vh __attribute__((ext_vector_type(LANES)));

static const float lowest_of[] = {[TYPE_U8] = 0, [TYPE_I8] = -128, [TYPE_U16] = 0, [TYPE_I16] = -32768};
static const float highest_of[] = {[TYPE_U8] = 255, [TYPE_I8] = 127, [TYPE_U16] = 65535, [TYPE_I16] = 32767};

#if defined(__wasm__)
// quantize of whole groups of 16 to bytes: conversion to integers takes NaN to 0 and narrowing saturates. Returns how
// many elements these are.
static word quantize_groups(const float *x, uint8_t *y, word count, float scale, int zero, int is_signed) {
    v128_t divisor = wasm_f32x4_splat(scale), offset = wasm_i16x8_splat((int16_t)zero);
    word i = 0;
    for (; i + 16 <= count; i += 16) {
        v128_t q[4], h[2];
        UNROLL for (int k = 0; k < 4; k++)
            q[k] = wasm_i32x4_trunc_sat_f32x4(
                wasm_f32x4_nearest(wasm_f32x4_div(wasm_v128_load(x + i + 4 * k), divisor)));
        UNROLL for (int k = 0; k < 2; k++)
            h[k] = wasm_i16x8_add_sat(wasm_i16x8_narrow_i32x4(q[2 * k], q[2 * k + 1]), offset);
        wasm_v128_store(y + i, is_signed ? wasm_i8x16_narrow_i16x8(h[0], h[1]) : wasm_u8x16_narrow_i16x8(h[0], h[1]));
    }
    return i;
}
#endif

void quantize_over_range(const float *x, word count, float *scale, uint8_t *zero) {
    vf low = vsplat(0.0f), high = low;
    for (word i = 0; i < count; i += LANES) {
        vf v = vload_count(x + i, min_word(LANES, count - i));
        low = vsmaller(v, low);
        high = vlarger(v, high);
    }
    float smallest = vmin_lane(low), range = vmax_lane(high) - smallest;
    *scale = range > 0.0f ? range / 255.0f : 1.0f;
    float point = vrint(vclamp(vsplat(-smallest / *scale), vsplat(0.0f), vsplat(255.0f)))[0];
    *zero = point == point ? (uint8_t)point : 0;
}

void quantize_bytes(const float *x, word count, float scale, int zero, int is_signed, uint8_t *y) {
    word i = 0;
#if defined(__wasm__)
    i = quantize_groups(x, y, count, scale, zero, is_signed);
#endif
    vf low = vsplat(lowest_of[is_signed ? TYPE_I8 : TYPE_U8] - (float)zero);
    vf high = vsplat(highest_of[is_signed ? TYPE_I8 : TYPE_U8] - (float)zero);
    for (; i < count; i += LANES) {
        word lanes = min_word(LANES, count - i);
        vf q = vload_count(x + i, lanes) / scale;
        q = vclamp(vselect(q == q, vrint(q), vsplat(0.0f)), low, high) + (float)zero;
        vc bytes = __builtin_convertvector(__builtin_convertvector(q, vi), vc);
        if (lanes == LANES) __builtin_memcpy(y + i, &bytes, sizeof bytes);
        else for (word k = 0; k < lanes; k++) y[i + k] = (uint8_t)bytes[k];
    }
}

// y = saturate(round(x / scale) + zero), ties to even; NaN gives the zero point.
KERNEL(quantize, type, x, scale, zero, y, axis, inner) {
    word size = type_size(a->type);
    EACH_RUN {
        int32_t point = a->zero ? integer_at(a->type, a->zero, channel) : 0;
        float scale = F32(a->scale)[channel];
        if (size == 1) {
            quantize_bytes(F32(a->x) + at, count, scale, point, a->type == TYPE_I8, PTR(uint8_t, a->y) + at);
            continue;
        }
        float zero = (float)point;
        vf low = vsplat(lowest_of[a->type] - zero), high = vsplat(highest_of[a->type] - zero);
        for (word i = 0; i < count; i += LANES) {
            word lanes = min_word(LANES, count - i);
            vf q = vload_count(F32(a->x) + at + i, lanes) / scale;
            q = vclamp(vselect(q == q, vrint(q), vsplat(0.0f)), low, high) + zero;
            vh halves = __builtin_convertvector(__builtin_convertvector(q, vi), vh);
            __builtin_memcpy(PTR(char, a->y) + (at + i) * 2, &halves, (size_t)lanes * 2);
        }
    }
}

// y = (x - zero) * scale
KERNEL(dequantize, type, x, scale, zero, y, axis, inner) {
    EACH_RUN {
        int32_t zero = a->zero ? integer_at(a->type, a->zero, channel) : 0;
        float scale = F32(a->scale)[channel], *y = F32(a->y) + at;
        switch (a->type) {
#define EACH(name, T) \
    case TYPE_##name: for (word i = 0; i < count; i++) y[i] = (float)(PTR(const T, a->x)[at + i] - zero) * scale; break;
            EACH(I8, int8_t) EACH(U8, uint8_t) EACH(I16, int16_t) EACH(U16, uint16_t)
        default:
            for (word i = 0; i < count; i++)
                y[i] = (float)((int64_t)PTR(const int32_t, a->x)[at + i] - zero) * scale;
        }
    }
}

// y = what dequantize, with `y_scale`, makes of what quantize makes of x: x rounded to the numbers that `type` can stand
// for. y may be x.
KERNEL(fake_quantize, type, x, scale, zero, y_scale, y, axis, inner) {
    EACH_RUN {
        float zero = a->zero ? (float)integer_at(a->type, a->zero, channel) : 0.0f;
        vf low = vsplat(lowest_of[a->type] - zero), high = vsplat(highest_of[a->type] - zero);
        vf scale = vsplat(F32(a->scale)[channel]), y_scale = vsplat(F32(a->y_scale)[channel]);
        for (word i = 0; i < count; i += LANES) {
            word lanes = min_word(LANES, count - i);
            vf q = vload_count(F32(a->x) + at + i, lanes) / scale;
            q = vclamp(vselect(q == q, vrint(q), vsplat(0.0f)), low, high) + 0.0f;  // an integer has no -0
            vstore_count(F32(a->y) + at + i, q * y_scale, lanes);
        }
    }
}

// DynamicQuantizeLinear's first half: scale (float32) and zero point (uint8) from the extremes of x, 0 included
// (scale 1 where all is 0); NaN is no extreme. Its second half is quantize. One unit.
KERNEL(quantize_range, x, count, scale, zero) {
    if (end > begin) quantize_over_range(F32(a->x), a->count, F32(a->scale), PTR(uint8_t, a->zero));
}
