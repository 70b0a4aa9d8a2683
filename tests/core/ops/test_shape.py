import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64, of, same

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)


def strings(*values):
    return np.array(values, object)


def test_reshape():
    same(call("Reshape", 1, X, shape=[4, -1]), X.reshape(4, 6))
    same(call("Reshape", 5, X, i64(0, -1)), X.reshape(2, 12))
    same(call("Reshape", 13, X, i64(4, 0, -1)), X.reshape(4, 3, 2))
    same(call("Reshape", 5, f32([7]), i64([])), f32(7))
    empty = np.zeros((0, 3), np.float32)
    assert call("Reshape", 14, empty, i64(3, 0), allowzero=1).shape == (3, 0)
    assert call("Reshape", 14, empty, i64(0, -1)).shape == (0, 0)


@pytest.mark.parametrize(
    ("shape", "attributes", "message"),
    [
        ([5, 5], {}, r"\[2, 3, 4\] \(24 elements\) can't become \[5, 5\]"),
        ([-1, -1], {}, "several -1"),
        ([2, -2], {}, "negative dimension"),
        ([1, 1, 1, 0], {}, "copies dimension 3"),
        ([0, -1], {"allowzero": 1}, "both 0 and -1"),
        ([5, -1], {}, "can't become"),
    ],
)
def test_reshape_errors(shape, attributes, message):
    with pytest.raises(ValueError, match=message):
        call("Reshape", 14, X, i64(shape), **attributes)


def test_flatten():
    assert call("Flatten", 1, X).shape == (2, 12)
    assert call("Flatten", 9, X, axis=0).shape == (1, 24)
    assert call("Flatten", 9, X, axis=3).shape == (24, 1)
    assert call("Flatten", 11, X, axis=-1).shape == (6, 4)
    assert call("Flatten", 13, f32(3), axis=0).shape == (1, 1)


def test_squeeze_and_unsqueeze():
    x = X.reshape(1, 2, 1, 12)
    assert call("Squeeze", 1, x).shape == (2, 12)
    assert call("Squeeze", 11, x, axes=[-2]).shape == (1, 2, 12)
    assert call("Squeeze", 13, x, i64([0])).shape == (2, 1, 12)
    assert call("Unsqueeze", 1, X, axes=[0, 4]).shape == (1, 2, 3, 4, 1)
    assert call("Unsqueeze", 13, X, i64([-1, 0])).shape == (1, 2, 3, 4, 1)
    assert call("Unsqueeze", 13, X, i64(1)).shape == (2, 1, 3, 4)
    with pytest.raises(ValueError, match="not all 1"):
        call("Squeeze", 13, x, i64([1]))
    with pytest.raises(ValueError, match="twice"):
        call("Unsqueeze", 13, X, i64([0, -5]))


def test_shape_and_size():
    same(call("Shape", 1, X), i64(2, 3, 4))
    same(call("Shape", 15, X, start=-1), i64([4]))
    same(call("Shape", 15, X, end=-1), i64(2, 3))
    same(call("Shape", 15, X, start=-10, end=10), i64(2, 3, 4))
    same(call("Shape", 15, X, start=2, end=1), i64([]))
    same(call("Shape", 15, f32(1)), i64([]))
    same(call("Size", 13, X), i64(24))


def test_expand_and_tile():
    same(call("Expand", 8, f32([[1], [2]]), i64(2, 1, 3)), f32([[[1, 1, 1], [2, 2, 2]]] * 2))
    assert call("Expand", 13, f32([[1], [2]]), i64([1])).shape == (2, 1)
    assert call("Expand", 13, f32([[1], [2]]), i64(2, 0)).shape == (2, 0)
    with pytest.raises(ValueError, match="shape"):
        call("Expand", 13, f32(1, 2), i64([3]))
    same(call("Tile", 1, f32([[1, 2]]), f32(2), f32(1)), f32([[1, 2, 1, 2]]))
    same(call("Tile", 6, f32([[1, 2]]), i64(2, 1)), f32([[1, 2], [1, 2]]))
    same(call("Tile", 13, strings("a"), i64([2])), strings("a", "a"))


def test_concat():
    same(call("Concat", 1, f32([[1]]), f32([[2]])), f32([[1, 2]]))
    same(call("Concat", 4, f32([[1]]), f32([[2]]), axis=0), f32([[1], [2]]))
    same(call("Concat", 11, X, X, axis=-1), np.concatenate([X, X], 2))
    same(call("Concat", 13, strings("a"), strings("b"), axis=0), strings("a", "b"))


def test_split():
    x = f32(1, 2, 3, 4, 5, 6, 7)
    for got, expected in zip(call("Split", 1, x, i64(3, 4), outputs=2), (x[:3], x[3:]), strict=True):
        same(got, expected)
    assert [p.size for p in call("Split", 1, x, split=[3, 4], outputs=2)] == [3, 4]
    assert [p.size for p in call("Split", 2, x, split=[2, 5], outputs=2)] == [2, 5]
    assert [p.size for p in call("Split", 11, x[:6], outputs=3)] == [2, 2, 2]
    assert [p.size for p in call("Split", 13, x, i64(0, 7), outputs=2)] == [0, 7]
    assert [p.size for p in call("Split", 18, x, num_outputs=3, outputs=3)] == [3, 3, 1]
    assert [p.size for p in call("Split", 18, x[:5], num_outputs=4, outputs=4)] == [2, 2, 1, 0]
    with pytest.raises(ValueError, match="do not make up axis 0"):
        call("Split", 13, x, i64(1, 2), outputs=2)


INT_MIN, INT_MAX = -(2**63), 2**63 - 1


@pytest.mark.parametrize(
    ("start", "end", "step", "expected"),
    [
        (1, 3, 1, [1, 2]),
        (-3, INT_MAX, 1, [2, 3, 4]),
        (0, -1, 2, [0, 2]),
        (4, 1, -1, [4, 3, 2]),
        (INT_MAX, INT_MIN, -2, [4, 2, 0]),
        (-100, -100, 1, []),
        (10, 20, 1, []),
        # Slice-13 clamps a start before the first element to it; Python's own slices would be empty.
        (-10, INT_MIN, -1, [0]),
        (2, 2, 1, []),
    ],
)
def test_slice_bounds(start, end, step, expected):
    x = np.arange(5, dtype=np.float32)
    got = call("Slice", 13, x, i64([start]), i64([end]), None, i64([step]))
    same(got, f32(expected))


def test_slice_forms():
    same(call("Slice", 1, X, starts=[0, 1], ends=[1000, -1], axes=[0, 2]), X[:, :, 1:-1])
    same(call("Slice", 1, X, starts=[1], ends=[2]), X[1:2])
    same(call("Slice", 10, X, of("int32", [1]), of("int32", [4]), of("int32", [-1]), of("int32", [2])), X[:, :, 1:4:2])
    same(call("Slice", 11, strings("a", "b"), i64([1]), i64([2])), strings("b"))
    assert call("Slice", 13, np.zeros((0,), np.int8), i64([-1]), i64([INT_MIN]), i64([0]), i64([-1])).shape == (0,)
    with pytest.raises(ValueError, match="a step is 0"):
        call("Slice", 13, X, i64([0]), i64([1]), i64([0]), i64([0]))


def test_transpose():
    same(call("Transpose", 1, X), X.transpose())
    same(call("Transpose", 13, X, perm=[1, 0, 2]), X.transpose(1, 0, 2))
    with pytest.raises(ValueError, match="no permutation"):
        call("Transpose", 13, X, perm=[0, 1])


def test_depth_and_space():
    x = np.arange(8, dtype=np.float32).reshape(1, 8, 1, 1)
    same(call("DepthToSpace", 1, x, blocksize=2), f32([[[[0, 2], [4, 6]], [[1, 3], [5, 7]]]]))
    same(call("DepthToSpace", 11, x, blocksize=2, mode="CRD"), f32([[[[0, 1], [2, 3]], [[4, 5], [6, 7]]]]))
    for mode in ("DCR", "CRD"):
        y = call("DepthToSpace", 28, x, blocksize=2, mode=mode)
        same(call("SpaceToDepth", 28, y, blocksize=2, mode=mode), x)
    with pytest.raises(ValueError, match="8 channels can't be made blocks of 3"):
        call("DepthToSpace", 11, x, blocksize=3)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("constant", [0, 0, 1, 2, 3, 0]),
        ("reflect", [3, 2, 1, 2, 3, 2]),
        ("edge", [1, 1, 1, 2, 3, 3]),
        ("wrap", [2, 3, 1, 2, 3, 1]),
    ],
)
def test_pad_modes(mode, expected):
    same(call("Pad", 19, f32(1, 2, 3), i64(2, 1), mode=mode), f32(expected))


def test_pad_forms():
    x = f32([[1, 2], [3, 4]])
    same(call("Pad", 1, x, paddings=[0, 1, 0, 0], value=9.0), f32([[9, 1, 2], [9, 3, 4]]))
    same(call("Pad", 2, x, pads=[0, -1, 1, 0]), f32([[2], [4], [0]]))
    same(call("Pad", 11, x, i64(1, 0, 0, 0), f32(7)), f32([[7, 7], [1, 2], [3, 4]]))
    same(call("Pad", 18, x, i64(1, 1), f32([7]), i64([-1])), f32([[7, 1, 2, 7], [7, 3, 4, 7]]))
    same(call("Pad", 13, strings("a"), i64(0, 1)), strings("a", ""))
    same(call("Pad", 13, strings("a"), i64(1, 0), np.array("z", object)), strings("z", "a"))
    same(call("Pad", 13, np.array([True]), i64(1, 1)), np.array([False, True, False]))
    # Longer than the axis: mirrored again and again, as numpy.pad does.
    same(call("Pad", 13, f32(1, 2, 3), i64(5, 4), mode="reflect"), np.pad(f32(1, 2, 3), (5, 4), mode="reflect"))
    same(call("Pad", 13, f32([5]), i64(2, 2), mode="reflect"), f32([5] * 5))
    # What a negative pad cuts off is not mirrored.
    same(call("Pad", 13, f32(1, 2, 3, 4), i64(-2, 1), mode="reflect"), f32(3, 4, 3))
    with pytest.raises(ValueError, match="is empty"):
        call("Pad", 13, np.zeros((0,), np.float32), i64(1, 0), mode="edge")
    with pytest.raises(ValueError, match="two for each"):
        call("Pad", 13, x, i64(1, 1))


def test_reverse_sequence():
    x = np.arange(16, dtype=np.float32).reshape(4, 4).T
    expected = f32([[3, 6, 9, 12], [2, 5, 8, 13], [1, 4, 10, 14], [0, 7, 11, 15]])
    same(call("ReverseSequence", 10, x, i64(4, 3, 2, 1)), expected)
    same(call("ReverseSequence", 10, x.T, i64(4, 3, 2, 1), time_axis=1, batch_axis=0), expected.T)
    with pytest.raises(ValueError, match="from 0 to 4"):
        call("ReverseSequence", 10, x, i64(5, 1, 1, 1))


def test_triangles():
    x = f32([[1, 2, 3], [4, 5, 6]])
    same(call("Trilu", 14, x), f32([[1, 2, 3], [0, 5, 6]]))
    same(call("Trilu", 14, x, i64(1)), f32([[0, 2, 3], [0, 0, 6]]))
    same(call("Trilu", 14, x, i64([-1]), upper=0), f32([[0, 0, 0], [4, 0, 0]]))


def test_center_crop_pad():
    x = f32(1, 2, 3, 4, 5)
    same(call("CenterCropPad", 18, x, i64([2])), f32(2, 3))
    same(call("CenterCropPad", 18, x, i64([8])), f32(0, 1, 2, 3, 4, 5, 0, 0))
    assert call("CenterCropPad", 18, X, i64(5, 1), axes=[-1, 0]).shape == (1, 3, 5)


def test_range():
    same(call("Range", 11, i64(3), i64(9), i64(3)), i64(3, 6))
    same(call("Range", 11, np.int32(10), np.int32(4), np.int32(-2)), of("int32", [10, 8, 6]))
    same(call("Range", 11, i64(2**62), i64(2**62 + 2), i64(1)), i64(2**62, 2**62 + 1))
    same(call("Range", 11, i64(5), i64(1), i64(1)), i64([]))
    same(call("Range", 11, f32(1), f32(0), f32(-0.25)), f32(1, 0.75, 0.5, 0.25))
    # Beyond 2048 float16 can't count by ones: computed in float32, then rounded.
    got = call("Range", 27, *(np.array(v, np.float16) for v in (0, 2060, 1)))
    same(got, np.arange(2060).astype(np.float16))
    with pytest.raises(ValueError, match="delta is 0"):
        call("Range", 11, i64(0), i64(1), i64(0))


def test_constants():
    same(call("ConstantOfShape", 9, i64(2, 1)), f32([[0], [0]]))
    same(call("ConstantOfShape", 9, i64([]), value=i64([7])), i64(7))
    same(call("ConstantOfShape", 9, i64([0]), value=i64([7])), i64([]))
    assert call("ConstantOfShape", 9, i64([2])).flags.writeable
    same(call("Constant", 12, value_ints=[1, 2]), i64(1, 2))
    same(call("Constant", 12, value_int=0), i64(0))
    same(call("Constant", 12, value_float=0.5), f32(0.5))
    same(call("Constant", 12, value_strings=["a", "b"]), strings("a", "b"))
    same(call("Constant", 12, value_string=""), np.array("", object))
    with pytest.raises(ValueError, match="one value, not 0"):
        call("Constant", 12)


def test_eye_like():
    x = np.zeros((2, 3), np.int32)
    same(call("EyeLike", 9, x), of("int32", [[1, 0, 0], [0, 1, 0]]))
    same(call("EyeLike", 9, x, dtype=1, k=1), f32([[0, 1, 0], [0, 0, 1]]))
    same(call("EyeLike", 22, x, dtype=9, k=-1), np.array([[False] * 3, [True, False, False]]))
