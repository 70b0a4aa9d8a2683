"""Shapes that change from run to run: a few shaders serve all of them."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest

from onnxlet import InferenceSession
from onnxlet_webgpu.kernel import Binding
from onnxlet_webgpu.sizes import LONG, Sizes
from tests.core.models import FLOAT, INT64, model, node
from tests.webgpu.cases import random

LENGTHS = (5, 9, 16, 17, 33, 64, 65, 7, 40, 100, 41, 66, 12, 48)


def attention_with_cache() -> onnx.ModelProto:
    """One layer of a decoder, with a cache of any length: products, a join, normalisations, and a loop over rows."""
    weights = {
        "wq": random(8, 8, seed=1), "wk": random(8, 8, seed=2), "wv": random(8, 8, seed=3),
        "scale": random(8, seed=4), "bias": random(8, seed=5), "heads": np.array([0, -1, 2, 4]),
        "flat": np.array([0, -1, 8]), "zero": np.array([0]), "three": np.array([3]), "last": np.array([-1]),
        "table": random(50, 8, seed=6), "two": np.array([2]),
    }  # fmt: skip
    nodes = [
        node("Gather", ["table", "ids"], ["e"]),
        node("LayerNormalization", ["e", "scale", "bias"], ["x"]),
        node("MatMul", ["x", "wq"], ["q0"]),
        node("MatMul", ["x", "wk"], ["k0"]),
        node("MatMul", ["x", "wv"], ["v0"]),
        node("Reshape", ["q0", "heads"], ["q1"]),
        node("Reshape", ["k0", "heads"], ["k1"]),
        node("Reshape", ["v0", "heads"], ["v1"]),
        node("Transpose", ["q1"], ["q"], perm=[0, 2, 1, 3]),
        node("Transpose", ["k1"], ["k2"], perm=[0, 2, 1, 3]),
        node("Transpose", ["v1"], ["v2"], perm=[0, 2, 1, 3]),
        node("Concat", ["past_k", "k2"], ["k"], axis=2),
        node("Concat", ["past_v", "v2"], ["v"], axis=2),
        node("Transpose", ["k"], ["kt"], perm=[0, 1, 3, 2]),
        node("MatMul", ["q", "kt"], ["s"]),
        node("Softmax", ["s"], ["p"], axis=-1),
        node("MatMul", ["p", "v"], ["o0"]),
        node("Transpose", ["o0"], ["o1"], perm=[0, 2, 1, 3]),
        node("Reshape", ["o1", "flat"], ["o"]),
        node("ReduceMean", ["k", "two"], ["m"], keepdims=0),
        node("Slice", ["v", "zero", "last", "two", "three"], ["thin"]),
        node("ReduceMax", ["thin", "two"], ["n"], keepdims=0),
    ]
    cache = [1, 2, "n", 4]
    inputs = [("ids", INT64, [1, "t"]), ("past_k", FLOAT, cache), ("past_v", FLOAT, cache)]
    outputs = [("o", FLOAT, None), ("k", FLOAT, None), ("v", FLOAT, None), ("m", FLOAT, None), ("n", FLOAT, None)]
    return model(nodes, inputs, outputs, weights, opset=18, check=False)


def image() -> onnx.ModelProto:
    """Convolution, pooling and resizing of pictures of any size."""
    weights = {
        "w": random(8, 3, 3, 3, seed=1), "d": random(8, 1, 3, 3, seed=2), "b": random(8, seed=3),
        "up": np.array([1, 1, 2, 2], np.float32), "t": random(8, 4, 2, 2, seed=4),
    }  # fmt: skip
    nodes = [
        node("Conv", ["x", "w", "b"], ["a"], pads=[1, 1, 1, 1], strides=[2, 2]),
        node("Relu", ["a"], ["r"]),
        node("Conv", ["r", "d"], ["c"], group=8, pads=[1, 1, 1, 1]),
        node("MaxPool", ["c"], ["m"], kernel_shape=[2, 2], strides=[1, 1]),
        node("Resize", ["m", "", "up"], ["z"], mode="nearest"),
        node("ConvTranspose", ["m", "t"], ["y"], strides=[2, 2]),
        node("GlobalAveragePool", ["m"], ["g"]),
        node("Sub", ["m", "g"], ["s"]),
    ]
    outputs = [("z", FLOAT, None), ("y", FLOAT, None), ("s", FLOAT, None)]
    return model(nodes, [("x", FLOAT, [1, 3, "h", "w"])], outputs, weights, opset=18, check=False)


def cached(length: int) -> dict[str, np.ndarray]:
    past = random(1, 2, length, 4, seed=length)
    ids = np.random.default_rng(length).integers(0, 50, (1, 1 if length % 2 else 3))
    return {"ids": ids, "past_k": past, "past_v": past * 2}


def pictured(length: int) -> dict[str, np.ndarray]:
    return {"x": random(1, 3, length, length + 3, seed=length)}


@pytest.mark.parametrize("software", [True, False])
@pytest.mark.parametrize(("make", "feeds"), [(attention_with_cache, cached), (image, pictured)])
def test_every_size(gpu_provider, software, make, feeds) -> None:
    """As onnxruntime has it, with few new shaders for sizes like earlier ones."""
    content = make().SerializeToString()
    peer = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
    with InferenceSession(content, providers=["webgpu"], provider_options=[{"software": software}]) as session:
        device = next(p for p in session._providers if p.name == "WebGpuExecutionProvider").device
        made = []
        for length in LENGTHS:
            given = feeds(length)
            for got, want in zip(session.run(None, given), peer.run(None, given), strict=True):
                np.testing.assert_allclose(got, np.asarray(want), rtol=1e-4, atol=1e-4)
            made.append(len(device._pipelines))
    assert made[-1] <= 6 * made[0]
    assert made[-1] - made[-2] <= made[0] // 2


TEXT = (
    "// Copy(f32[{0}])\n@group(0) @binding(0) var<storage, read> x: array<f32>;\n"
    "@group(0) @binding(1) var<storage, read_write> y: array<f32>;\n"
    "var<workgroup> t: array<f32, 64>;\nfn main() {{ let a = {0}u + {1}u; let b = 64u & 0x1fu; let c = 3.0; }}\n"
)


def shader(*numbers: int, output: str = "y") -> tuple[str, list[Binding]]:
    return TEXT.format(*numbers), [Binding("x", "x", "f32", 4), Binding("y", output, "f32", 4)]


def test_the_first_plan_keeps_its_numbers() -> None:
    sizes = Sizes()
    for _ in range(2):
        plan = [shader(7, 9), shader(8, 9, output="z")]
        assert sizes.shared(plan, 8, False) == [(*kernel, []) for kernel in plan]


def test_numbers_that_change_are_read_from_a_buffer() -> None:
    sizes = Sizes()

    def following(*numbers: int) -> tuple[str, list[Binding], list[int]]:
        return sizes.shared([shader(*numbers)], 8, False)[0]

    following(7, 9)
    text, bindings, values = following(8, 9)
    assert "let a = sizes[0] + 9u; let b = 64u & 0x1fu; let c = 3.0;" in text
    assert "@binding(1) var<storage, read> sizes: array<u32>;\n@group(0) @binding(2) var<storage, read_write> y" in text
    assert [b.name for b in bindings] == ["x", "sizes", "y"]
    assert values == [8]
    assert following(12, 9)[::2] == (text, [12])
    both, _, values = following(12, 4)
    assert "let a = sizes[0] + sizes[1];" in both
    assert values == [12, 4]
    assert following(30, 9)[::2] == (both, [30, 9])
    assert following(7, 9) == (*shader(7, 9), [])


def test_long_shaders_are_shared_within_a_plan() -> None:
    plan = [shader(7, 9), shader(8, 9, output="z"), shader(7, 9, output="other")]
    long = [(text + "// long" * LONG, bindings) for text, bindings in plan]
    found = Sizes().shared(long, 8, True)
    assert len({text for text, _, _ in found}) == 1
    assert [values for _, _, values in found] == [[7], [8], [7]]
    assert Sizes().shared(plan, 8, True) == [(*kernel, []) for kernel in plan]


def test_a_shader_with_all_its_bindings_keeps_its_numbers() -> None:
    sizes = Sizes()
    sizes.shared([shader(7, 9)], 2, False)
    assert sizes.shared([shader(8, 9)], 2, False) == [(*shader(8, 9), [])]
