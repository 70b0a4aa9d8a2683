import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64, of, same

X = f32([[1, 2, 3], [4, 5, 6]])
NAMES = ["Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"]


@pytest.mark.parametrize("name", NAMES)
def test_axes_as_attribute_and_as_input_agree(name):
    by_attribute = call(f"Reduce{name}", 11, X, axes=[-1])
    assert by_attribute.shape == (2, 1)
    same(call(f"Reduce{name}", 18, X, i64([1])), by_attribute)
    same(call(f"Reduce{name}", 18, X, i64([1]), keepdims=0), by_attribute[:, 0])
    assert call(f"Reduce{name}", 1, X).shape == (1, 1)
    assert call(f"Reduce{name}", 18, X, keepdims=0).shape == ()
    assert call(f"Reduce{name}", 18, np.array(2, np.float32)).shape == ()


def test_values():
    expected = {
        "Sum": 15, "Mean": 5, "Max": 6, "Min": 4, "Prod": 120, "L1": 15, "L2": np.sqrt(77), "SumSquare": 77,
        "LogSum": np.log(15), "LogSumExp": np.log(np.exp(4) + np.exp(5) + np.exp(6)),
    }  # fmt: skip
    for name, value in expected.items():
        np.testing.assert_allclose(call(f"Reduce{name}", 18, X, i64([1]), keepdims=0)[1], value, rtol=1e-6)


def test_no_axes():
    same(call("ReduceSum", 13, X), f32([[21]]))
    same(call("ReduceSum", 13, X, i64([])), f32([[21]]))
    same(call("ReduceSum", 13, X, i64([]), noop_with_empty_axes=1), X)
    same(call("ReduceSum", 13, X, noop_with_empty_axes=1), X)
    same(call("ReduceSumSquare", 18, X, noop_with_empty_axes=1), X * X)
    same(call("ReduceL1", 18, -X, noop_with_empty_axes=1), X)
    np.testing.assert_allclose(call("ReduceLogSum", 18, X, noop_with_empty_axes=1), np.log(X), rtol=1e-6)


def test_empty_sets():
    x = np.zeros((2, 0), np.float32)
    values = {"Sum": 0, "Prod": 1, "Max": -np.inf, "Min": np.inf, "L1": 0, "LogSum": -np.inf, "LogSumExp": -np.inf}
    for name, value in values.items():
        same(call(f"Reduce{name}", 18, x, i64([1]), keepdims=0), f32(value, value))
    assert np.isnan(call("ReduceMean", 18, x)).all()
    same(call("ReduceMax", 18, np.zeros((0,), np.int8)), of("int8", [-128]))
    same(call("ReduceMin", 18, np.zeros((0,), np.uint8)), of("uint8", [255]))
    same(call("ReduceMax", 20, np.zeros((0,), bool)), np.array([False]))


def test_types():
    same(call("ReduceMax", 20, np.array([[True, False], [False, False]]), i64([1])), np.array([[True], [False]]))
    same(call("ReduceSum", 13, of("int32", [2**31 - 1, 1])), of("int32", [-(2**31)]))
    same(call("ReduceMean", 18, of("int32", [-3, 0])), of("int32", [-1]))
    same(call("ReduceMean", 18, of("int32", [2**31 - 1, 2**31 - 1])), of("int32", [2**31 - 1]))
    same(call("ReduceL2", 18, of("int32", [3, -4])), of("int32", [5]))
    same(call("ReduceMax", 18, f32(1, np.nan)), f32([np.nan]))


def test_float16_accumulates_in_float32():
    ones = np.ones(4096, np.float16)
    same(call("ReduceSum", 13, ones), of("float16", [4096]))
    same(call("ReduceMean", 13, ones * np.float16(60000)), of("float16", [60000]))
    same(call("CumSum", 14, ones, i64(0))[-1:], of("float16", [4096]))


def test_log_sum_exp_of_large_numbers():
    same(call("ReduceLogSumExp", 18, f32(1000, -np.inf)), f32([1000]))
    same(call("ReduceLogSumExp", 18, f32(-np.inf, -np.inf)), f32([-np.inf]))
    same(call("ReduceLogSumExp", 18, f32(np.inf, 1)), f32([np.inf]))


def test_positions():
    x = f32([[2, 7, 7], [5, 5, 1]])
    same(call("ArgMax", 11, x, axis=1), i64([[1], [0]]))
    same(call("ArgMax", 12, x, axis=-1, select_last_index=1, keepdims=0), i64([2, 1]))
    same(call("ArgMin", 13, x, axis=0, keepdims=0), i64([0, 1, 1]))
    same(call("ArgMax", 13, f32(1, np.nan, 3), axis=0), i64([1]))
    assert call("ArgMax", 13, f32(1, 2), axis=0, keepdims=0).shape == ()
    with pytest.raises(ValueError, match="no extreme"):
        call("ArgMax", 13, np.zeros((2, 0), np.float32), axis=1)


def test_cumulative():
    x = f32([[1, 2, 3], [4, 5, 6]])
    same(call("CumSum", 11, x, np.int32(1)), f32([[1, 3, 6], [4, 9, 15]]))
    same(call("CumSum", 14, x, i64([-1]), exclusive=1), f32([[0, 1, 3], [0, 4, 9]]))
    same(call("CumSum", 14, x, i64(1), reverse=1), f32([[6, 5, 3], [15, 11, 6]]))
    same(call("CumSum", 14, x, i64(1), reverse=1, exclusive=1), f32([[5, 3, 0], [11, 6, 0]]))
    same(call("CumProd", 26, x, i64(0)), f32([[1, 2, 3], [4, 10, 18]]))
    same(call("CumProd", 26, of("int32", [1, 2, 3]), i64(0), exclusive=1, reverse=1), of("int32", [6, 3, 1]))
    assert call("CumSum", 14, np.zeros((2, 0), np.float32), i64(1), exclusive=1).shape == (2, 0)


def test_wrong_axes():
    with pytest.raises(ValueError, match="axis 3 is out of range"):
        call("ReduceSum", 11, X, axes=[3])
    with pytest.raises(ValueError, match="name an axis twice"):
        call("ReduceSum", 13, X, i64([1, -1]))
