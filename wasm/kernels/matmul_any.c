// Matrix products of types other than float32. NumPy twin: onnxlet/ops, MatMul (np.matmul).
//
// Unit: one row of one product, `m` of which are a product. `type` (types.h) is float64, int32 or int64; integers wrap.
// a_row and a_step are elements from row to row of A and along a row; b_step and b_column those along a column of B and
// from column to column; y is contiguous. `rank` (0 to 8) and the addresses `shape`, `a_strides`, `b_strides` of int64
// arrays describe the stack: strides in elements, 0 where an operand is broadcast.
#include "kernel.h"
#include "types.h"

#define MULTIPLY(T, U)                                                                                    \
    {                                                                                                     \
        const T *x = PTR(const T, a->a) + at_a + row * a->a_row, *b = PTR(const T, a->b) + at_b;          \
        T *y = PTR(T, a->y) + u * n;                                                                      \
        for (word j = 0; j < n; j++) y[j] = 0;                                                            \
        if (a->b_column == 1)                                                                             \
            for (word i = 0; i < a->k; i++, b += a->b_step) {                                             \
                const U s = (U)x[i * a->a_step];                                                          \
                for (word j = 0; j < n; j++) y[j] = (T)((U)y[j] + s * (U)b[j]);                           \
            }                                                                                             \
        else                                                                                              \
            for (word j = 0; j < n; j++, b += a->b_column) {                                              \
                U sum = 0;                                                                                \
                for (word i = 0; i < a->k; i++) sum += (U)x[i * a->a_step] * (U)b[i * a->b_step];         \
                y[j] = (T)sum;                                                                            \
            }                                                                                             \
        break;                                                                                            \
    }

KERNEL(matmul_any, type, a, b, y, m, n, k, a_row, a_step, b_step, b_column, rank, shape, a_strides, b_strides) {
    const word n = a->n;
    for (word u = begin; u < end; u++) {
        word row = u % a->m, product = u / a->m, at_a = 0, at_b = 0;
        for (word d = a->rank - 1; d >= 0; d--) {
            const word size = PTR(const word, a->shape)[d], index = product % size;
            product /= size;
            at_a += index * PTR(const word, a->a_strides)[d];
            at_b += index * PTR(const word, a->b_strides)[d];
        }
        switch (a->type) {
        case TYPE_F64: MULTIPLY(double, double)
        case TYPE_I32: MULTIPLY(int32_t, uint32_t)
        default: MULTIPLY(int64_t, uint64_t)
        }
    }
}
