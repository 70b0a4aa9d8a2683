import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64, of, same

X = f32([[1, 2, 3], [4, 5, 6]])


def test_gather():
    same(call("Gather", 1, X, i64(1, -1), axis=1), f32([[2, 3], [5, 6]]))
    same(call("Gather", 11, X, i64(0)), f32(1, 2, 3))
    same(call("Gather", 13, f32(1, 2), np.int32(-1)), f32(2))
    same(call("Gather", 13, np.array(["a", "b"], object), i64(1)), np.array("b", object))
    same(call("Gather", 13, X, i64([]), axis=-1), np.zeros((2, 0), np.float32))
    for bad in (3, -4):
        with pytest.raises(ValueError, match=f"index {bad} is out of range for axis 1 of size 3"):
            call("Gather", 13, X, i64(bad), axis=1)


def test_gather_elements():
    same(call("GatherElements", 11, X, i64([[0, -1], [1, 0]]), axis=1), f32([[1, 3], [5, 4]]))
    same(call("GatherElements", 13, X, of("int32", [[1, 0, 1]])), f32([[4, 2, 6]]))
    wide = np.arange(3 * 70, dtype=np.float32).reshape(70, 3)
    same(call("GatherElements", 13, wide, i64([[69, 68, 67]])), f32([[207, 205, 203]]))
    with pytest.raises(ValueError, match="out of range"):
        call("GatherElements", 13, X, i64([[3]]), axis=1)
    with pytest.raises(ValueError, match="ranks must agree"):
        call("GatherElements", 13, X, i64([0]))
    with pytest.raises(ValueError, match="reach outside"):
        call("GatherElements", 13, X, np.zeros((3, 1), np.int64), axis=1)


def test_gather_nd():
    data = np.arange(8, dtype=np.float32).reshape(2, 2, 2)
    same(call("GatherND", 11, data, i64([[0, 1], [1, 0]])), f32([[2, 3], [4, 5]]))
    same(call("GatherND", 11, data, i64([[0, 0, -1]])), f32([1]))
    same(call("GatherND", 11, data, i64(1, 1, 1)), f32(7))
    same(call("GatherND", 12, data, i64([[1], [0]]), batch_dims=1), f32([[2, 3], [4, 5]]))
    same(call("GatherND", 13, data, i64([[[1, 0]], [[0, 1]]]), batch_dims=1), f32([[2], [5]]))
    with pytest.raises(ValueError, match="index 2 is out of range for axis 0"):
        call("GatherND", 13, data, i64([[2]]))
    with pytest.raises(ValueError, match="can't name slices"):
        call("GatherND", 13, data, i64([[0, 0, 0, 0]]))


def test_scatter_elements():
    data, indices, updates = f32([[1, 2, 3, 4, 5]]), i64([[1, -2]]), f32([[1.5, 2.5]])
    expected = f32([[1, 1.5, 3, 2.5, 5]])
    same(call("Scatter", 9, data, indices, updates, axis=1), expected)
    same(call("ScatterElements", 11, data, indices, updates, axis=1), expected)
    twice = i64([[1, 1]])
    for reduction, value in (("add", 6), ("mul", 7.5), ("max", 2.5), ("min", 1.5), ("none", 2.5)):
        got = call("ScatterElements", 18, data, twice, updates, axis=1, reduction=reduction)
        same(got, f32([[1, value, 3, 4, 5]]))
    assert (data == f32([[1, 2, 3, 4, 5]])).all()
    with pytest.raises(ValueError, match="out of range"):
        call("ScatterElements", 11, data, i64([[5, 0]]), updates, axis=1)


def test_scatter_sums_float16_in_float32():
    ones = np.ones(3000, np.float16)
    got = call("ScatterElements", 18, np.zeros(1, np.float16), np.zeros(3000, np.int64), ones, reduction="add")
    same(got, of("float16", [3000]))


def test_scatter_nd():
    data = np.zeros((2, 2), np.float32)
    same(call("ScatterND", 11, data, i64([[1]]), f32([[5, 6]])), f32([[0, 0], [5, 6]]))
    same(call("ScatterND", 18, data, i64([[0, 0], [0, 0]]), f32(5, 6), reduction="add"), f32([[11, 0], [0, 0]]))
    same(call("ScatterND", 13, data, i64([[-1, -1]]), f32([5])), f32([[0, 0], [0, 5]]))
    with pytest.raises(ValueError, match=r"updates must have shape \[1, 2\]"):
        call("ScatterND", 13, data, i64([[1]]), f32([5]))


def test_tensor_scatter():
    past, update = np.zeros((2, 3, 1), np.float32), f32([[[1], [2]], [[3], [4]]])
    same(call("TensorScatter", 24, past, update, axis=1)[..., 0], f32([[1, 2, 0], [3, 4, 0]]))
    got = call("TensorScatter", 24, past, update, i64(2, 1), axis=1, mode="circular")
    same(got[..., 0], f32([[2, 0, 1], [0, 3, 4]]))
    with pytest.raises(ValueError, match="leaves a cache of length 3"):
        call("TensorScatter", 24, past, update, i64(2, 0), axis=1)


def test_one_hot():
    values = f32(2, 5)
    same(call("OneHot", 9, i64(1, -1), i64(3), values), f32([[2, 5, 2], [2, 2, 2]]))
    same(call("OneHot", 11, i64(1, -1, 7, -4), i64([3]), values), f32([[2, 5, 2], [2, 2, 5], [2, 2, 2], [2, 2, 2]]))
    same(call("OneHot", 11, f32(0, 1), f32(2), of("int32", [0, 1]), axis=0), of("int32", [[1, 0], [0, 1]]))
    assert call("OneHot", 11, i64([[0], [1]]), i64(4), values, axis=1).shape == (2, 4, 1)


def test_non_zero():
    same(call("NonZero", 9, f32([[1, 0], [np.nan, 2]])), i64([[0, 1, 1], [0, 0, 1]]))
    assert call("NonZero", 13, f32(5)).shape == (0, 1)
    assert call("NonZero", 13, f32(0)).shape == (0, 0)
    same(call("NonZero", 13, np.array(["", "a"], object)), i64([[1]]))


def test_where_and_compress():
    same(call("Where", 9, np.array([[True], [False]]), f32(1, 2), f32(0)), f32([[1, 2], [0, 0]]))
    same(call("Compress", 9, X, np.array([False, True]), axis=0), X[1:])
    same(call("Compress", 9, X, np.array([False, True, True])), f32(2, 3))
    same(call("Compress", 28, X, np.array([True]), axis=-1), X[:, :1])


def test_top_k():
    x = f32([[3, 1, 3, 2]])
    for got, expected in zip(call("TopK", 1, x, k=3, outputs=2), (f32([[3, 3, 2]]), i64([[0, 2, 3]])), strict=True):
        same(got, expected)
    values, at = call("TopK", 11, x, i64([3]), largest=0, outputs=2)
    same(values, f32([[1, 2, 3]]))
    same(at, i64([[1, 3, 0]]))
    same(call("TopK", 10, of("uint8", [0, 255, 7]), i64([1]), outputs=2)[1], i64([1]))
    same(call("TopK", 24, i64(-(2**63), 5, 2**63 - 1), i64([2]), outputs=2)[0], i64(2**63 - 1, 5))
    same(call("TopK", 11, f32(1, np.nan, 2), i64([2]), outputs=2)[1], i64(1, 2))
    same(call("TopK", 11, X, i64([1]), axis=0, outputs=2)[1], i64([[1, 1, 1]]))
    with pytest.raises(ValueError, match="no 5 greatest of 4"):
        call("TopK", 11, x, i64([5]))


def test_unique():
    x = f32(2, 1, 1, 3, 4, 3)
    expected = f32(1, 2, 3, 4), i64(1, 0, 3, 4), i64(1, 0, 0, 2, 3, 2), i64(2, 1, 2, 1)
    for got, want in zip(call("Unique", 11, x, outputs=4), expected, strict=True):
        same(got, want)
    expected = f32(2, 1, 3, 4), i64(0, 1, 3, 4), i64(0, 1, 1, 2, 3, 2), i64(1, 2, 2, 1)
    for got, want in zip(call("Unique", 11, x, sorted=0, outputs=4), expected, strict=True):
        same(got, want)
    rows = f32([[1, 0, 0], [1, 0, 0], [2, 3, 4]])
    expected = rows[1:], i64(0, 2), i64(0, 0, 1), i64(2, 1)
    for got, want in zip(call("Unique", 11, rows, axis=0, outputs=4), expected, strict=True):
        same(got, want)
    cube = f32([[[1, 1], [0, 1], [2, 1], [0, 1]]] * 2)
    expected = f32([[[0, 1], [1, 1], [2, 1]]] * 2), i64(1, 0, 2), i64(1, 0, 2, 0), i64(2, 1, 1)
    for got, want in zip(call("Unique", 11, cube, axis=1, outputs=4), expected, strict=True):
        same(got, want)
    words = np.array(["b", "a", "b"], object)
    same(call("Unique", 11, words), np.array(["a", "b"], object))
    assert [v.shape for v in call("Unique", 11, np.zeros(0, np.float32), outputs=4)] == [(0,)] * 4
