"""Attention over buffers, against onnxruntime where its CPU has it, else against the same without a buffer."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxlet.errors import UnsupportedError
from tests.core.ops.calling import call, of, same
from tests.core.ops.oracle import Numbers, agrees

MICROSOFT = "com.microsoft"
HEADS = {"num_heads": 2, "domain": MICROSOFT}
NAME = "DecoderMaskedMultiHeadAttention", 1
PAST = of("int32", [3])


def heads(x: np.ndarray, count: int = 2) -> np.ndarray:
    return x.reshape(*x.shape[:2], count, -1).swapaxes(1, 2)


def softmax(x: np.ndarray) -> np.ndarray:
    weights = np.exp(x - x.max(axis=-1, keepdims=True))
    return weights / weights.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("attributes", [{}, {"scale": 0.3}])
@pytest.mark.parametrize("mask", [None, of("int32", [[1, 1, 0, 1], [0, 1, 1, 1]])])
def test_one_token_over_a_buffer(attributes, mask):
    numbers = Numbers()
    q, k, v = numbers.f32(2, 1, 8), numbers.f32(2, 1, 8), numbers.f32(2, 1, 8)
    caches = numbers.f32(2, 2, 6, 4), numbers.f32(2, 2, 6, 4)
    options = {**HEADS, "past_present_share_buffer": 1, "outputs": 3, **attributes}
    agrees(*NAME, q, k, v, mask, None, *caches, PAST, **options)
    agrees(*NAME, q, k, v, mask, numbers.f32(1, 2, 1, 4), *caches, PAST, None, None, numbers.f32(24), **options)
    shown = {**options, "outputs": 4, "output_qk": 1, "types": [None, None, None, 1]}
    agrees(*NAME, q, k, v, mask, None, *caches, PAST, **shown)
    packed = np.concatenate([q, k, v], axis=2)
    whole = call(*NAME, q, k, v, mask, None, *caches, PAST, **options)
    for got, expected in zip(call(*NAME, packed, None, None, mask, None, *caches, PAST, **options), whole, strict=True):
        same(got, expected)
    growing = call(*NAME, q, k, v, mask, None, *(c[:, :, :3] for c in caches), **HEADS, outputs=3, **attributes)
    same(growing[0], whole[0])
    same(growing[1], whole[1][:, :, :4])


def test_across():
    numbers = Numbers()
    inputs = numbers.f32(2, 1, 8), numbers.f32(2, 2, 5, 4), numbers.f32(2, 2, 5, 4)
    agrees(*NAME, *inputs, **HEADS)
    agrees(*NAME, *inputs, of("int32", [[1, 1, 0, 1, 0], [1, 1, 1, 1, 1]]), **HEADS)


def test_beams():
    """Each token of the past comes from the beam that is named: the same as from caches that are put together so."""
    numbers = Numbers()
    q, k, v = numbers.f32(6, 1, 8), numbers.f32(6, 1, 8), numbers.f32(6, 1, 8)
    caches = numbers.f32(6, 2, 6, 4), numbers.f32(6, 2, 6, 4)
    whence = numbers.ints(0, 3, 2, 3, 6, dtype="int32")
    options = {**HEADS, "past_present_share_buffer": 1, "outputs": 3}
    got = call(*NAME, q, k, v, None, None, *caches, PAST, of("int32", [3]), whence, **options)
    put = [c.copy() for c in caches]
    for row in range(6):
        for t in range(3):
            beam = row // 3 * 3 + whence[row // 3, row % 3, t]
            for p, c in zip(put, caches, strict=True):
                p[row, :, t] = c[beam, :, t]
    expected = call(*NAME, q, k, v, None, None, *put, PAST, **options)
    np.testing.assert_allclose(got[0], expected[0], rtol=1e-6)
    for g, c, new in zip(got[1:], caches, (k, v), strict=True):  # the caches themselves are not put together
        c[:, :, 3] = heads(new)[:, :, 0]
        same(g, c)
    mha = call(
        "MultiHeadAttention", 1, q, k, v, None, None, None, *caches, PAST, whence, outputs=3, **HEADS
    )  # the buffers hold the new token already, where it is written again
    np.testing.assert_allclose(mha[0], expected[0], rtol=1e-6)


def test_multi_head_attention_over_a_buffer():
    numbers = Numbers()
    caches = numbers.f32(2, 2, 8, 4), numbers.f32(2, 2, 8, 4)
    for length in (1, 4):
        new = numbers.f32(2, length, 8), numbers.f32(2, length, 8), numbers.f32(2, length, 8)
        options = {**HEADS, "outputs": 3, "unidirectional": 1}
        agrees("MultiHeadAttention", 1, *new, None, None, None, *caches, PAST, **options)


def test_projections_over_a_buffer():
    """Attention and DecoderMaskedSelfAttention over a buffer give what Attention without one gives."""
    numbers = Numbers()
    x, w, b, past = numbers.f32(2, 1, 8), numbers.f32(8, 24), numbers.f32(24), numbers.f32(2, 2, 2, 6, 4)
    plain = call("Attention", 1, x, w, b, None, past[:, :, :, :3], outputs=2, unidirectional=1, **HEADS)
    agrees("Attention", 1, x, w, b, None, past[:, :, :, :3].copy(), outputs=2, unidirectional=1, **HEADS)
    options = {**HEADS, "past_present_share_buffer": 1, "outputs": 2}
    shared = call("Attention", 1, x, w, b, None, past, None, PAST, unidirectional=1, **options)
    one = call("DecoderMaskedSelfAttention", 1, x, w, b, None, past, None, PAST, **options)
    for y, present in (shared, one):
        np.testing.assert_allclose(y, plain[0], rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(present[:, :, :, :4], plain[1], rtol=1e-5, atol=1e-6)
        same(present[:, :, :, 4:], past[:, :, :, 4:])
    with pytest.raises(ValueError, match="a cache of 3 has no room for 1 more after 3"):
        call("DecoderMaskedSelfAttention", 1, x, w, b, None, past[:, :, :, :3], None, PAST, **options)
    with pytest.raises(UnsupportedError, match="do_rotary"):
        call("DecoderMaskedSelfAttention", 1, x, w, b, None, past, None, PAST, do_rotary=1, **options)
    with pytest.raises(ValueError, match="a shared buffer needs past and past_sequence_length"):
        call("Attention", 1, x, w, b, **options)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("cached", [False, True])
@pytest.mark.parametrize("masked", [False, True])
def test_decoder_attention(across, cached, masked):
    """The operator's text, head by head."""
    numbers = Numbers()
    query, key = numbers.f32(2, 3, 8), numbers.f32(5, 3, 8)
    q_weight, kv_weight, bias = numbers.f32(8, 8), numbers.f32(8, 16), numbers.f32(24)
    caches = numbers.f32(3, 2, 4, 4), numbers.f32(3, 2, 4, 4)
    total = (4 if across else 6) if cached else (5 if across else 2)
    hidden = numbers.ints(0, 2, 3, total).astype(bool)
    hidden[:, 0] = False
    flags = [of("bool", [f]) for f in (across, cached, cached, masked)]
    y, k, v = call(
        "DecoderAttention", 1, query, key, q_weight, kv_weight, bias, hidden, *caches, *flags, outputs=3, **HEADS
    )
    source = (key if across else query).swapaxes(0, 1)
    both = source @ kv_weight + bias[8:]
    keys, values = heads(both[..., :8]), heads(both[..., 8:])
    if cached and across:
        keys, values = caches
    elif cached:
        keys, values = (np.concatenate([c, n], axis=2) for c, n in zip(caches, (keys, values), strict=True))
    q = heads(query.swapaxes(0, 1) @ q_weight + bias[:8])
    scores = q @ keys.swapaxes(-1, -2) / 2
    if masked:
        scores = scores + np.where(hidden, -10000.0, 0)[:, None, None]
    expected = (softmax(scores) @ values).swapaxes(1, 2).reshape(3, 2, 8).swapaxes(0, 1)
    for got, wanted in ((y, expected), (k, keys), (v, values)):
        np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)


def test_longformer():
    """Token by token: those near and the global ones, or all for a global one."""
    numbers = Numbers()
    x, w, b, gw, gb = numbers.f32(2, 8, 6), numbers.f32(6, 18), numbers.f32(18), numbers.f32(6, 18), numbers.f32(18)
    mask = np.where(np.arange(8) < [[8], [6]], 0, -10000).astype(np.float32)
    flags = of("int32", [[1, 0, 0, 0, 0, 0, 0, 0], [0, 0, 1, 0, 0, 0, 0, 0]])
    y = call("LongformerAttention", 1, x, w, b, mask, gw, gb, flags, window=2, **HEADS)
    for batch in range(2):
        for t in range(8):
            weights, shift = (gw, gb) if flags[batch, t] else (w, b)
            q, k, v = np.split(x[batch] @ weights + shift, 3, axis=1)
            near = [s for s in range(8) if flags[batch, t] or flags[batch, s] or abs(s - t) <= 2]
            near = [s for s in near if mask[batch, s] == 0 or mask[batch].min() == 0] or near
            for h in range(2):
                part = slice(3 * h, 3 * h + 3)
                p = softmax(q[t, part] @ k[near][:, part].T / np.sqrt(3))
                np.testing.assert_allclose(y[batch, t, part], p @ v[near][:, part], rtol=1e-4, atol=1e-5)


def test_packed_multi_head_attention():
    """Of each sequence alone, what MultiHeadAttention gives."""
    numbers = Numbers()
    q, k, v, bias = numbers.f32(7, 8), numbers.f32(7, 8), numbers.f32(7, 6), numbers.f32(22)
    offsets, edges, added = np.zeros((3, 4), np.int32), of("int32", [0, 1, 3, 7]), numbers.f32(1, 2, 4, 4)
    y = call("PackedMultiHeadAttention", 1, q, k, v, bias, offsets, edges, added, **HEADS)
    for begin, end in ((0, 1), (1, 3), (3, 7)):
        own = [x[None, begin:end] for x in (q, k, v)]
        part = added[:, :, : end - begin, : end - begin].copy()
        plain = call("MultiHeadAttention", 1, *own, bias, None, part, **HEADS)
        np.testing.assert_allclose(y[begin:end], plain[0], rtol=1e-5, atol=1e-6)
    packed = np.stack([x.reshape(7, 2, 4) for x in (q, k, q)], axis=2)
    same(
        call("PackedMultiHeadAttention", 1, packed, None, None, None, offsets, edges, **HEADS),
        call("PackedMultiHeadAttention", 1, q, k, q, None, offsets, edges, **HEADS),
    )


def in_place(inputs: list[np.ndarray | None], attributes: dict[str, Any]) -> list[np.ndarray]:
    """SparseAttention by onnxruntime, which takes caches only where they are written."""
    names = ["" if x is None else f"x{i}" for i, x in enumerate(inputs)]
    node = onnx.helper.make_node("SparseAttention", names, ["y0", "y1", "y2"], domain=MICROSOFT, **attributes)
    values = [
        onnx.helper.make_tensor_value_info(n, onnx.helper.np_dtype_to_tensor_dtype(x.dtype), x.shape)
        for n, x in zip(names, inputs, strict=True)
        if x is not None
    ]
    graph = onnx.helper.make_graph([node], "one", values, [onnx.ValueInfoProto(name=f"y{i}") for i in range(3)])
    opsets = [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid(MICROSOFT, 1)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    binding = session.io_binding()
    for i, (n, x) in enumerate(zip(names, inputs, strict=True)):
        if x is not None:
            value = onnxruntime.OrtValue.ortvalue_from_numpy(x.copy())
            binding.bind_ortvalue_input(n, value)
            if i in (3, 4):
                binding.bind_ortvalue_output(f"y{i - 2}", value)
    binding.bind_output("y0")
    session.run_with_iobinding(binding)
    results = dict(zip(("y1", "y2", "y0"), binding.copy_outputs_to_cpu(), strict=True))
    return [np.asarray(results[f"y{i}"]) for i in range(3)]


@pytest.mark.parametrize("rotary", [0, 1])
def test_sparse_attention(rotary):
    numbers = Numbers()
    columns = of("int32", [[0, 0, 1, 1, 2, 1, 2, 3, -1], [0, 0, 1, 0, 1, 2, 0, 2, 3]])
    rows = of("int32", [[0, 1, 3, 5, 8], [0, 1, 3, 6, 9]])
    angles = [numbers.f32(64, 8), numbers.f32(64, 8)] if rotary else []
    options = {"num_heads": 4, "kv_num_heads": 2, "sparse_block_size": 16, "do_rotary": rotary}

    def compare(*inputs: np.ndarray | None) -> None:
        got = call("SparseAttention", 1, *inputs, domain=MICROSOFT, outputs=3, **options)
        for g, e in zip(got, in_place(list(inputs), options), strict=True):
            np.testing.assert_allclose(g, e, rtol=1e-4, atol=1e-5)

    caches = np.zeros((2, 2, 64, 16), np.float32), np.zeros((2, 2, 64, 16), np.float32)
    prompt = numbers.f32(2, 50, 64), numbers.f32(2, 50, 32), numbers.f32(2, 50, 32)
    lengths = of("int32", 50), of("int32", [50, 50])
    compare(*prompt, *caches, rows, columns, *lengths, *angles)
    packed = np.concatenate(prompt, axis=2)
    compare(packed, None, None, *caches, rows, columns, *lengths, *angles)
    token = numbers.f32(2, 1, 64), numbers.f32(2, 1, 32), numbers.f32(2, 1, 32)
    filled = numbers.f32(2, 2, 64, 16), numbers.f32(2, 2, 64, 16)
    lengths = of("int32", 51), of("int32", [51, 51])
    compare(*token, *filled, rows, columns, *lengths, *angles)
    # Lengths of their own: each as if it were alone, which onnxruntime does not give.
    ragged = of("int32", 51), of("int32", [51, 37])
    y = call(
        "SparseAttention", 1, *token, *filled, rows, columns, *ragged, *angles, domain=MICROSOFT, outputs=3, **options
    )
    alone = [x[1:] for x in (*token, *filled)]
    expected = in_place([*alone, rows, columns, of("int32", 37), of("int32", [37]), *angles], options)
    np.testing.assert_allclose(y[0][1:], expected[0], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(y[1][1:], expected[1], rtol=1e-4, atol=1e-5)


def test_gated_position_bias_of_tokens_without_padding():
    numbers = Numbers()
    x, weights = numbers.f32(2, 3, 8), (numbers.f32(8), numbers.f32(1, 2, 3, 3), numbers.f32(4, 8), numbers.f32(8))
    eco = numbers.f32(1, 2, 1, 1)
    x[1, 2] = 0  # padding
    tokens, offsets = x.reshape(6, 8)[:5], of("int32", [[0, 1, 2], [3, 4, 5]])
    name = "GatedRelativePositionBias", 1
    same(call(*name, tokens, *weights, eco, offsets, **HEADS), call(*name, x, *weights, eco, **HEADS))
