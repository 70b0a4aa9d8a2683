import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64, same

A, B, C = f32(1), f32(2, 3), f32(4)


def test_building_and_taking_apart():
    assert call("SequenceEmpty", 11) == []
    sequence = call("SequenceConstruct", 11, A, B)
    same(call("SequenceLength", 11, sequence), i64(2))
    same(call("SequenceAt", 11, sequence, i64(-1)), B)
    inserted = call("SequenceInsert", 11, sequence, C, i64(-2))
    assert [v is w for v, w in zip(inserted, (C, A, B), strict=True)] == [True] * 3
    assert call("SequenceInsert", 11, sequence, C)[2] is C
    assert call("SequenceInsert", 11, sequence, C, np.int32(2))[2] is C
    assert call("SequenceErase", 11, sequence)[0] is A
    assert call("SequenceErase", 11, sequence, i64(0))[0] is B
    assert len(sequence) == 2


def test_positions_outside():
    for position in (2, -3):
        with pytest.raises(IndexError, match=f"position {position} is out of range for a sequence of 2"):
            call("SequenceAt", 11, [A, B], i64(position))
    with pytest.raises(IndexError, match="out of range"):
        call("SequenceInsert", 11, [A], B, i64(2))
    with pytest.raises(IndexError, match="empty"):
        call("SequenceErase", 11, [])


def test_splitting():
    x = np.arange(6, dtype=np.float32).reshape(3, 2)
    assert [p.shape for p in call("SplitToSequence", 11, x)] == [(1, 2)] * 3
    assert [p.shape for p in call("SplitToSequence", 11, x, axis=-1, keepdims=0)] == [(3,)] * 2
    assert [p.shape for p in call("SplitToSequence", 24, x, i64(2))] == [(2, 2), (1, 2)]
    assert [p.shape for p in call("SplitToSequence", 11, x, i64(1, 2), keepdims=0)] == [(1, 2), (2, 2)]
    same(call("SplitToSequence", 11, f32(5, 6), keepdims=0)[1], f32(6))
    with pytest.raises(ValueError, match="do not make up axis 0"):
        call("SplitToSequence", 11, x, i64(1, 1))


def test_joining():
    same(call("ConcatFromSequence", 11, [f32([[1]]), f32([[2]])], axis=1), f32([[1, 2]]))
    same(call("ConcatFromSequence", 11, [f32(1, 2), f32(3, 4)], axis=-1, new_axis=1), f32([[1, 3], [2, 4]]))
    with pytest.raises(ValueError, match="nothing to join"):
        call("ConcatFromSequence", 11, [], axis=0)


def test_optionals():
    assert call("Optional", 15) is None
    assert call("Optional", 15, A) is A
    same(call("OptionalHasElement", 15, A), np.array(True))
    same(call("OptionalHasElement", 15, None), np.array(False))
    same(call("OptionalHasElement", 18), np.array(False))
    same(call("OptionalHasElement", 18, [A]), np.array(True))
    assert call("OptionalGetElement", 18, A) is A
    assert call("OptionalGetElement", 15, [A, B])[1] is B
    with pytest.raises(ValueError, match="empty"):
        call("OptionalGetElement", 15, None)
