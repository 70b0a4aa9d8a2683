"""The engine: kernels by name, memory, tapes."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from onnxlet.errors import ProviderError
from onnxlet.model.tensors import Tensor
from onnxlet_wasm.engine import Engine, Tape, f32


def test_available():
    assert Engine.available() is None


def test_kernels_are_known_by_name(engine):
    index, names = engine.fields["gemm"]
    assert 0 <= index < len(engine.fields)
    assert names[:5] == ("a", "lda", "b", "c", "ldc")
    assert all(names and all(n.isidentifier() for n in names) for _, names in engine.fields.values())


@pytest.mark.parametrize("nbytes", [0, 1, 63, 64, 65, 1 << 20])
def test_blocks_are_aligned_and_apart(engine, nbytes):
    blocks = [engine.alloc(nbytes) for _ in range(4)]
    assert all(b % 64 == 0 for b in blocks)
    ordered = sorted(blocks)
    assert all(y - x >= nbytes + 64 for x, y in itertools.pairwise(ordered))
    for b in blocks:
        engine.free(b, nbytes)


def test_memory_is_given_back():
    engine = Engine.create()
    before = engine.stats()
    block = engine.alloc(4 << 20)
    grown = engine.stats()
    assert grown > before
    engine.free(block, 4 << 20)
    engine.free(engine.alloc(4 << 20), 4 << 20)
    assert engine.stats() <= grown
    engine.close()
    assert engine.stats() == 0


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8, np.bool_, np.float16])
@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (2, 0, 4)])
def test_what_is_written_is_read(engine, dtype, shape):
    array = np.random.default_rng(0).integers(0, 2, shape).astype(dtype)
    block = engine.alloc(array.nbytes)
    engine.write(block, array)
    result = engine.read(block, dtype, shape)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, array)
    engine.free(block, array.nbytes)


def test_types_without_a_buffer_interface(engine):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    array = np.arange(5).astype(ml_dtypes.bfloat16)
    block = engine.alloc(array.nbytes)
    engine.write(block, array)
    np.testing.assert_array_equal(engine.read(block, ml_dtypes.bfloat16, (5,)), array)
    engine.free(block, array.nbytes)


def test_views_and_tensors(engine):
    array = np.arange(12, dtype=np.float32).reshape(3, 4)
    block = engine.alloc(array.nbytes)
    engine.write(block, array.T)
    np.testing.assert_array_equal(engine.read(block, np.float32, (4, 3)), array.T)
    engine.write(block, Tensor.of(array))
    out = np.empty((3, 4), np.float32)
    engine.read_into(block, out)
    np.testing.assert_array_equal(out, array)
    with pytest.raises(ValueError, match="contiguous"):
        engine.read_into(block, np.empty((4, 3), np.float32).T)
    engine.zero(block, array.nbytes)
    assert not engine.read(block, np.float32, (3, 4)).any()
    engine.free(block, array.nbytes)


def test_words():
    assert f32(1.0) == 0x3F800000
    assert f32(-0.0) == 0x80000000
    assert f32(float("inf")) == 0x7F800000
    assert f32(1e300) == f32(float("inf"))
    assert f32(-1e300) == f32(float("-inf"))


def test_a_wrong_field_is_an_error(engine):
    fields = dict.fromkeys(engine.fields["pack_b"][1], 0)
    with pytest.raises(ProviderError, match="no kernel 'pack_c'"):
        engine.call("pack_c", units=0)
    with pytest.raises(ProviderError, match=r"missing: \['n'\]"):
        engine.call("pack_b", units=0, **{k: v for k, v in fields.items() if k != "n"})
    with pytest.raises(ProviderError, match=r"unknown: \['m'\]"):
        engine.call("pack_b", units=0, m=1, **fields)


def test_a_tape_runs_in_one_call(engine):
    """Two transpositions one after the other give what was there."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((2, 5, 6, 7)).astype(np.float32)
    blocks = [engine.alloc(x.nbytes) for _ in range(3)]
    engine.write(blocks[0], x)
    tape = Tape(engine)
    tape.emit(
        "nchw_to_nhwc", units=2 * 6, x=blocks[0], y=blocks[1], batch=2, c=5, h=6, w=7, pad_top=0, pad_left=0, oh=6, ow=7
    )
    tape.emit("nhwc_to_nchw", units=2 * 2, scratch=128, x=blocks[1], y=blocks[2], batch=2, pixels=42, c=5)
    assert tape.words.dtype == np.int64
    assert tape.scratch == 128
    assert [name for name, _ in tape.operations] == ["nchw_to_nhwc", "nhwc_to_nchw"]
    address = engine.alloc(tape.words.nbytes)
    engine.write(address, tape.words)
    engine.run(address, len(tape.words), 0)
    np.testing.assert_array_equal(engine.read(blocks[1], np.float32, (2, 6, 7, 5)), x.transpose(0, 2, 3, 1))
    np.testing.assert_array_equal(engine.read(blocks[2], np.float32, x.shape), x)
    engine.free(address, tape.words.nbytes)
    for block in blocks:
        engine.free(block, x.nbytes)
