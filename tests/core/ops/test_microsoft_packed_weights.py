"""Every packed format against onnxruntime, by rows that are gathered; products by what was gathered."""

import numpy as np
import pytest

from onnxlet.errors import UnsupportedError
from tests.core.ops.calling import call, f32, i64
from tests.core.ops.oracle import Numbers, agrees

MICROSOFT = "com.microsoft"
FLOATS = {0: 4, 1: 2, 30: 2}
BLOCKS = {
    2: (32, 18), 6: (32, 22), 8: (32, 34), 13: (256, 176), 14: (256, 210), 16: (256, 66), 17: (256, 74), 18: (256, 98),
    20: (32, 18), 22: (256, 82), 23: (256, 136), 42: (64, 18),
}  # fmt: skip
"""Numbers and bytes of a block of each format."""
SCALES = {14: (208,), 13: (0, 2)}
"""Where a block's scales are, if not at its beginning."""


def packed(packed_type: int, rows: int, length: int) -> np.ndarray:
    """Rows of random bytes with scales between 0.5 and 1.5."""
    numbers = Numbers(packed_type)
    if packed_type in FLOATS:
        values = numbers.f32(rows, length)
        if packed_type == 30:
            return np.ascontiguousarray(values.view(np.uint8).reshape(rows, length, 4)[..., 2:]).reshape(rows, -1)
        return values.astype("<f4" if packed_type == 0 else "<f2").view(np.uint8).reshape(rows, -1)
    size, count = BLOCKS[packed_type]
    blocks = numbers.u8(rows, length // size, count)
    for at in SCALES.get(packed_type, (0,)):
        scales = (0.5 + numbers.generator.random((rows, length // size, 1))).astype("<f2")
        blocks[..., at : at + 2] = scales.view(np.uint8)
    return blocks.reshape(rows, -1)


def gathered(packed_type: int, data: np.ndarray, length: int) -> np.ndarray:
    rows = np.arange(len(data))
    return call("GatherPacked", 1, data, rows, domain=MICROSOFT, packed_type=packed_type, K=length, output_dtype=1)


@pytest.mark.parametrize("packed_type", [*FLOATS, *BLOCKS])
def test_gather_packed(packed_type):
    data = packed(packed_type, 40, 512)
    indices = i64([[0, 39, 7], [-1, 40, 3]])
    for number, tolerance in ((1, 1e-6), (10, 1e-3)):
        options = {"domain": MICROSOFT, "packed_type": packed_type, "K": 512, "output_dtype": number}
        agrees("GatherPacked", 1, data, indices, rtol=tolerance, **options)
        agrees("GatherPacked", 1, data, indices.astype(np.int32), rtol=tolerance, **options)


@pytest.mark.parametrize("packed_type", [8, 14, 16])
def test_mat_mul_packed(packed_type):
    a, data = Numbers().f32(2, 3, 512).astype(np.float16), packed(packed_type, 5, 512)
    weights = gathered(packed_type, data, 512).astype(np.float16).astype(np.float64)
    options = {"domain": MICROSOFT, "packed_type": packed_type, "K": 512, "N": 5}
    y = call("MatMulPacked", 1, a, data, f32(1e-3), **options)
    product = a.astype(np.float64) @ weights.T * 1e-3
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, product, rtol=2e-3, atol=2e-3)
    for name, function in (("relu2", lambda x: np.maximum(x, 0) ** 2), ("silu", lambda x: x / (1 + np.exp(-x)))):
        y = call("MatMulPacked", 1, a, data, f32(1e-3), activation_type=name, **options)
        np.testing.assert_allclose(y, function(product), rtol=5e-3, atol=5e-3)


@pytest.mark.parametrize("scores", [False, True])
@pytest.mark.parametrize("gated", [False, True])
def test_moe_packed(scores, gated):
    """Expert by expert and token by token, in float64."""
    numbers = Numbers()
    tokens, experts, hidden, inner, k = 6, 4, 64, 32, 2
    x = numbers.f32(tokens, hidden).astype(np.float16)
    blobs = [packed(8, experts * n, size) for n, size in ((inner, hidden), (inner, hidden), (hidden, inner))]
    shapes = [(experts, inner, hidden), (experts, inner, hidden), (experts, hidden, inner)]
    for b in blobs:  # smaller scales
        blocks = b.reshape(-1, 34)
        scale = np.ascontiguousarray(blocks[:, :2]).view("<f2") / 64
        blocks[:, :2] = scale.astype("<f2").view(np.uint8)
    gate, up, down = (
        gathered(8, b, s[2]).astype(np.float16).astype(np.float64).reshape(s)
        for b, s in zip(blobs, shapes, strict=True)
    )
    router, mixing = numbers.f32(tokens, experts), np.abs(numbers.f32(tokens, experts))
    options = {"gate_type": 8, "down_type": 8, "k": k} | ({"up_type": 8} if gated else {"activation_type": "relu2"})
    if scores:
        options |= {"routed_scaling_factor": 1.5, "routing_epsilon": 0.1}
    packed_blobs = [b.reshape(*s[:2], -1) for b, s in zip(blobs, shapes, strict=True)]
    y = call(
        "MoEPacked", 1, x, router, packed_blobs[0], packed_blobs[1] if gated else None, packed_blobs[2],
        *([mixing] if scores else []), domain=MICROSOFT, **options,
    )  # fmt: skip
    expected = np.zeros((tokens, hidden))
    for t in range(tokens):
        chosen = np.argsort(-router[t])[:k]
        shares = mixing[t] if scores else np.exp(router[t])
        shares = shares[chosen] / (shares[chosen].sum() + (0.1 if scores else 0)) * (1.5 if scores else 1)
        for expert, share in zip(chosen, shares, strict=True):
            z = gate[expert] @ x[t]
            z = z / (1 + np.exp(-z)) * (up[expert] @ x[t]) if gated else np.maximum(z, 0) ** 2
            expected[t] += share * (down[expert] @ z)
    np.testing.assert_allclose(y, expected, rtol=2e-3, atol=2e-3 * np.abs(expected).max())


def test_what_can_not_be_read_is_said():
    data, rows = np.zeros((3, 8), np.uint8), i64([0])
    with pytest.raises(UnsupportedError, match="packed in format 40 can't be read; known are 0, 1, 2"):
        call("GatherPacked", 1, data, rows, domain=MICROSOFT, packed_type=40, K=32)
    with pytest.raises(ValueError, match="rows of 8 bytes do not hold 32 numbers in format 2"):
        call("GatherPacked", 1, data, rows, domain=MICROSOFT, packed_type=2, K=32)
