"""Getting ready before the first run: shaders are compiled ahead, and their number is told."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

from onnxlet import FeedError, InferenceSession
from onnxlet_webgpu.provider import WebGpuProvider
from tests.core.models import FLOAT, INT64, model, node
from tests.webgpu.cases import random

W = random(6, 5)


def reshaped() -> onnx.ModelProto:
    """A product, a Reshape to a shape that is fed, and a Softmax."""
    nodes = [
        node("MatMul", ["x", "w"], ["a"]),
        node("Reshape", ["a", "shape"], ["b"]),
        node("Softmax", ["b"], ["y"]),
    ]
    inputs = [("x", FLOAT, [None, 6]), ("shape", INT64, [2])]
    return model(nodes, inputs, [("y", FLOAT, [None, None])], {"w": W}, opset=21)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


async def test_the_first_run_compiles_nothing(gpu_provider: WebGpuProvider):
    del gpu_provider  # there is an adapter
    x, shape = random(4, 6), np.array([2, 10], np.int64)
    with InferenceSession(reshaped(), providers=["webgpu"]) as session:
        told: list[tuple[str, int, int]] = []
        session.warmup({"x": (4, 6), "shape": shape}, progress=lambda *words: told.append(words))
        assert [done for _, done, _ in told] == list(range(1, len(told) + 1))
        assert {total for _, _, total in told} == {len(told)}
        assert told[0][0].startswith("MatMul(")
        assert told[-1][0].startswith("Softmax(")
        (provider,) = (p for p in session._providers if isinstance(p, WebGpuProvider))
        before = dict(provider.device._pipelines)
        (y,) = session.run(None, {"x": x, "shape": shape})
        assert provider.device._pipelines == before
        assert provider.progress is None
        np.testing.assert_allclose(y, softmax((x @ W).reshape(2, 10)), rtol=1e-4)
        await session.warmup_async({"x": x, "shape": shape})
        assert provider.device._pipelines == before


def test_unknown_shapes_and_names_are_told():
    with InferenceSession(reshaped()) as session:
        with pytest.raises(FeedError, match="the shape of input 'x'"):
            session.warmup({"shape": (2,)})
        with pytest.raises(FeedError, match="no input 'z'"):
            session.warmup({"z": (2,)})
        session.warmup({"x": (4, 6), "shape": (2,)})
