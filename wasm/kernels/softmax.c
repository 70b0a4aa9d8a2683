// Softmax and LogSoftmax along one axis, float32. NumPy twins: onnxlet/ops, Softmax, LogSoftmax.
//
// Unit: one line along the axis; x is [outer, axis, inner] and there are outer * inner lines, row-major. y may be x.
// `log` is 1 for LogSoftmax.
#include "rows.h"

// The largest number of a row; NaN is passed over, it reaches the result through its exponential.
static float row_max(const float *x, word n) {
    vf m0 = vsplat(-INFINITY_F32), m1 = m0;
    word i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        m0 = vlarger(vload(x + i), m0);
        m1 = vlarger(vload(x + i + LANES), m1);
    }
    for (; i < n; i += LANES) m0 = vlarger(vload_or(x + i, min_word(LANES, n - i), -INFINITY_F32), m0);
    return vlargest_lane(vlarger(m0, m1));
}

// y = exp(x - shift) of a row, and the sum of it.
static NOINLINE double row_exp(const float *x, float *y, word n, float shift) {
    double total = 0;
    for (word at = 0; at < n; at += ROW_BLOCK) {
        const float *p = x + at;
        float *q = y + at;
        word count = min_word(ROW_BLOCK, n - at), i = 0;
        vf s0 = vsplat(0.0f), s1 = s0;
        for (; i + 2 * LANES <= count; i += 2 * LANES) {
            vf e0 = vexp_negative(vload(p + i) - shift), e1 = vexp_negative(vload(p + i + LANES) - shift);
            vstore(q + i, e0);
            vstore(q + i + LANES, e1);
            s0 += e0;
            s1 += e1;
        }
        for (; i < count; i += LANES) {
            word rest = min_word(LANES, count - i);
            vf e = vexp_negative(vload_or(p + i, rest, -INFINITY_F32) - shift);
            e = vkeep(e, rest);
            vstore_part(q + i, e, rest);
            s0 += e;
        }
        total += (double)vsum(s0 + s1);
    }
    return total;
}

static void softmax_row(const float *x, float *y, word n, int log) {
    float shift = row_max(x, n);
    double total = 0;
    if (log) SUM_ROW(total, x, n, vexp_negative(v - shift))
    else total = row_exp(x, y, n, shift);
    word i = 0;
    if (log) {
        vf offset = vlog(vsplat((float)total));
        for (; i + LANES <= n; i += LANES) vstore(y + i, vload(x + i) - shift - offset);
        for (; i < n; i++) y[i] = x[i] - shift - offset[0];
    } else {
        vf factor = vsplat((float)(1.0 / total));
        for (; i + LANES <= n; i += LANES) vstore(y + i, vload(y + i) * factor);
        for (; i < n; i++) y[i] *= factor[0];
    }
}

// `count` (at most LANES) neighbouring lines.
static void softmax_columns(const float *x, float *y, word n, word stride, word count, int log) {
    vf shift = vsplat(-INFINITY_F32), total = vsplat(0.0f);
    for (word i = 0; i < n; i++) shift = vlarger(vload_count(x + i * stride, count), shift);
    for (word i = 0; i < n; i++) {
        vf e = vexp_negative(vload_count(x + i * stride, count) - shift);
        if (!log) vstore_count(y + i * stride, e, count);
        total += e;
    }
    vf factor = 1.0f / total, offset = vlog(total);
    for (word i = 0; i < n; i++) {
        const float *from = (log ? x : y) + i * stride;
        vf value = vload_count(from, count);
        vstore_count(y + i * stride, log ? value - shift - offset : value * factor, count);
    }
}

KERNEL(softmax, x, y, axis, inner, log) {
    word n = a->axis, inner = a->inner;
    if (inner == 1) {
        for (word row = begin; row < end; row++) softmax_row(F32(a->x) + row * n, F32(a->y) + row * n, n, (int)a->log);
        return;
    }
    for (word at = begin; at < end;) {
        word outer = at / inner, column = at % inner;
        word count = min_word(LANES, min_word(inner - column, end - at)), offset = outer * n * inner + column;
        softmax_columns(F32(a->x) + offset, F32(a->y) + offset, n, inner, count, (int)a->log);
        at += count;
    }
}
