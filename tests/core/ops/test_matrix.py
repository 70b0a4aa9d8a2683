import numpy as np
import pytest

from tests.core.ops.calling import call, f32, of, same

A, B = f32([[1, 2, 3], [4, 5, 6]]), f32([[1, 0], [0, 1], [1, 1]])


def test_mat_mul():
    same(call("MatMul", 1, A, B), f32([[4, 5], [10, 11]]))
    same(call("MatMul", 13, f32(1, 2), f32(3, 4)), f32(11))
    same(call("MatMul", 13, np.zeros((2, 0), np.float32), np.zeros((0, 3), np.float32)), np.zeros((2, 3), np.float32))
    same(call("MatMul", 13, of("int32", [[2**30]]), of("int32", [[4]])), of("int32", [[0]]))
    assert call("MatMul", 13, np.zeros((5, 1, 2, 3), np.float32), np.zeros((4, 3, 1), np.float32)).shape == (5, 4, 2, 1)
    with pytest.raises(ValueError, match="mismatch"):
        call("MatMul", 13, A, A)


def test_products_of_float16_sum_in_float32():
    ones = np.ones((1, 4096), np.float16)
    same(call("MatMul", 13, ones, ones.T), of("float16", [[4096]]))
    same(call("Gemm", 13, ones, ones, transB=1, alpha=0.5), of("float16", [[2048]]))
    same(call("Einsum", 12, ones, ones, equation="ij,ij->"), np.array(4096, np.float16))


def test_gemm():
    same(call("Gemm", 7, A, B, f32(1, 2)), f32([[5, 7], [11, 13]]))
    same(call("Gemm", 11, A, A, transB=1, alpha=2.0), f32([[28, 64], [64, 154]]))
    same(call("Gemm", 13, A, B, f32([[1], [2]]), transA=0, beta=10.0), f32([[14, 15], [30, 31]]))
    same(call("Gemm", 9, A.T, B, f32(0), transA=1), f32([[4, 5], [10, 11]]))
    same(call("Gemm", 11, of("int32", [[3]]), of("int32", [[5]]), of("int32", [1])), of("int32", [[16]]))
    # NaN in C does not count where beta is 0, as in BLAS.
    same(call("Gemm", 11, A, B, f32([np.nan]), beta=0.0), f32([[4, 5], [10, 11]]))


def test_gemm_before_opset_7_broadcasts_on_request():
    same(call("Gemm", 6, A, B, f32(1, 2), broadcast=1), f32([[5, 7], [11, 13]]))
    same(call("Gemm", 1, A, B, np.ones((2, 2), np.float32)), f32([[5, 6], [11, 12]]))
    with pytest.raises(ValueError, match="broadcast is not set"):
        call("Gemm", 6, A, B, f32(1, 2))


def test_gemm_errors():
    with pytest.raises(ValueError, match="must be matrices"):
        call("Gemm", 13, A[0], B)
    with pytest.raises(ValueError, match=r"C of shape \[1, 2, 2\]"):
        call("Gemm", 13, A, B, np.zeros((1, 2, 2), np.float32))


def test_mat_mul_integer():
    a, b = of("uint8", [[11, 7, 3], [10, 6, 2]]), of("int8", [[1, 4], [2, 5], [3, 6]])
    same(call("MatMulInteger", 10, a, b, np.uint8(12)), of("int32", [[-38, -83], [-44, -98]]))
    rows = call("MatMulInteger", 10, a, b, of("uint8", [11, 10]), of("int8", [1, 4]))
    same(rows, of("int32", [[-4 - 16, -4 - 16], [-4 - 16, -4 - 16]]))
    big = np.full((1, 2**17), 255, np.uint8)
    exact = 255 * 255 * 2**17
    wrapped = (exact + 2**31) % 2**32 - 2**31
    same(call("MatMulInteger", 10, big, big.T), of("int32", [[wrapped]]))


def test_einsum():
    same(call("Einsum", 12, A, equation="ij -> ji"), A.T)
    same(call("Einsum", 12, A, equation="i...->..."), A.sum(0))
    same(call("Einsum", 12, A, A, equation="Ab,Ab->A"), f32(14, 77))
    same(call("Einsum", 12, A, equation="ba"), A.T)
    c = f32([[1, 2], [3, 4]])
    same(call("Einsum", 12, A, B, c, equation="ij,jk,kl->il"), A @ B @ c)
    same(call("Einsum", 12, c, equation="ii->i"), f32(1, 4))
    same(call("Einsum", 28, of("int64", [3]), of("int64", [2**40]), equation="i,i->i"), of("int64", [3 * 2**40]))


def test_det():
    np.testing.assert_allclose(call("Det", 11, f32([[1, 2], [3, 4]])), -2, rtol=1e-6)
    assert call("Det", 11, np.zeros((3, 2, 2), np.float32)).shape == (3,)
    assert call("Det", 22, np.eye(2, dtype=np.float16)).dtype == np.float16
    with pytest.raises(ValueError, match="must be equal"):
        call("Det", 11, A)
