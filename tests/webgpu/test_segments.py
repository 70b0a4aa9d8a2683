"""Segments of several nodes: fusion, views, values that stay on the device, memory, and errors."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from onnxlet.errors import ProviderError
from onnxlet.graph.ir import Node, TensorType
from onnxlet.model.tensors import Tensor
from onnxlet.providers.base import Segment, Step
from onnxlet_webgpu.executable import GpuExecutable
from onnxlet_webgpu.memory import GpuValue, size_class
from onnxlet_webgpu.provider import WebGpuProvider, create
from tests.webgpu.cases import random, segment_of

F32 = np.dtype(np.float32)


def step(
    op: str,
    inputs: Mapping[str, Sequence[int]],
    outputs: Mapping[str, Sequence[int]],
    constants: Mapping[str, np.ndarray] | None = None,
    domain: str = "",
    **attributes: Any,
) -> Step:
    """A float32 node from the names and shapes of its inputs and outputs."""
    node = Node(op, list(inputs), list(outputs), attributes, domain, 21 if not domain else 1, op.lower())
    types = [[TensorType(F32, tuple(shape)) for shape in shapes.values()] for shapes in (inputs, outputs)]
    given = {name: Tensor.of(value) for name, value in (constants or {}).items()}
    for position, name in enumerate(inputs):
        if name in given:
            types[0][position] = TensorType(given[name].dtype, given[name].shape)
    return Step(node, *types, given)  # type: ignore[arg-type]


def compiled(provider: WebGpuProvider, segment: Segment) -> GpuExecutable:
    for s in segment.steps:
        assert provider.supports(s) is None
    executable = provider.compile(segment)
    assert isinstance(executable, GpuExecutable)
    return executable


def run(executable: GpuExecutable, *values: Any) -> list[Any]:
    return list(executable.run(values))  # type: ignore[arg-type]


def test_epilogues_are_fused(gpu_provider: WebGpuProvider):
    """Conv, its bias, BatchNormalization, a residual and Relu are one dispatch."""
    w, bias = random(8, 4, 3, 3), random(8, seed=1)
    x_shape, y_shape = (1, 4, 6, 6), (1, 8, 6, 6)
    stats = {name: np.abs(random(8, seed=i)) + 0.5 for i, name in enumerate("stmv")}
    steps = [
        step("Conv", {"x": x_shape, "w": w.shape, "b": (8,)}, {"c": y_shape}, {"w": w, "b": bias}, pads=[1] * 4),
        step("BatchNormalization", {"c": y_shape, **{k: (8,) for k in stats}}, {"n": y_shape}, stats),
        step("Add", {"n": y_shape, "r": y_shape}, {"a": y_shape}),
        step("Relu", {"a": y_shape}, {"y": y_shape}),
    ]
    executable = compiled(gpu_provider, segment_of(steps, ["y"]))
    assert len(executable.kernels) == 1
    x, r = random(*x_shape, seed=2), random(*y_shape, seed=3)
    (y,) = run(executable, x, r)
    padded = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), axis=(2, 3))
    c = np.einsum("nchwyx,fcyx->nfhw", windows, w) + bias[:, None, None]
    s, t, m, v = (a[:, None, None] for a in stats.values())
    want = np.maximum((c - m) / np.sqrt(v + 1e-5) * s + t + r, 0)
    np.testing.assert_allclose(y, want, rtol=1e-4, atol=1e-4)
    executable.close()


def test_a_value_that_is_read_twice_is_written(gpu_provider: WebGpuProvider):
    shape = (3, 5)
    steps = [
        step("Relu", {"x": shape}, {"a": shape}),
        step("Exp", {"a": shape}, {"b": shape}),
        step("Neg", {"a": shape}, {"c": shape}),
        step("Mul", {"b": shape, "c": shape}, {"y": shape}),
    ]
    executable = compiled(gpu_provider, segment_of(steps, ["y", "a"]))
    x = random(*shape)
    y, a = run(executable, x)
    want = np.maximum(x, 0)
    np.testing.assert_array_equal(a, want)
    np.testing.assert_allclose(y, -np.exp(want) * want, rtol=1e-5)
    executable.close()


def test_broadcast_into_a_larger_result_is_not_fused(gpu_provider: WebGpuProvider):
    steps = [
        step("Relu", {"x": (5,)}, {"a": (5,)}),
        step("Add", {"a": (5,), "z": (3, 5)}, {"y": (3, 5)}),
        step("Mul", {"y": (3, 5), "y2": (3, 5)}, {"p": (3, 5)}),
    ]
    steps[2] = step("Mul", {"y": (3, 5)}, {"p": (3, 5)})
    steps[2].node.inputs = ["y", "y"]
    steps[2].inputs = [TensorType(F32, (3, 5))] * 2
    executable = compiled(gpu_provider, segment_of(steps, ["p"]))
    assert len(executable.kernels) == 2
    x, z = random(5), random(3, 5)
    (p,) = run(executable, x, z)
    np.testing.assert_allclose(p, (np.maximum(x, 0) + z) ** 2, rtol=1e-6)
    executable.close()


def test_views_cost_nothing(gpu_provider: WebGpuProvider):
    """A reshape between an operator and its epilogue is no kernel and does not keep them apart."""
    shape = {"s": np.array([4, 3], np.int64)}
    steps = [
        step("Exp", {"x": (3, 4)}, {"a": (3, 4)}),
        step("Reshape", {"a": (3, 4), "s": (2,)}, {"b": (4, 3)}, shape),
        step("Neg", {"b": (4, 3)}, {"y": (4, 3)}),
    ]
    executable = compiled(gpu_provider, segment_of(steps, ["y"]))
    assert len(executable.kernels) == 1
    x = random(3, 4)
    np.testing.assert_allclose(run(executable, x)[0], -np.exp(x).reshape(4, 3), rtol=1e-5)
    executable.close()


def test_an_output_may_be_a_view_of_an_input(gpu_provider: WebGpuProvider):
    steps = [step("Flatten", {"x": (2, 3, 4)}, {"y": (2, 12)}), step("Relu", {"y": (2, 12)}, {"z": (2, 12)})]
    executable = compiled(gpu_provider, segment_of(steps, ["y", "z"]))
    x = random(2, 3, 4)
    y, z = run(executable, x)
    np.testing.assert_array_equal(y, x.reshape(2, 12))
    np.testing.assert_array_equal(z, np.maximum(x, 0).reshape(2, 12))
    executable.close()


def test_resident_values_stay_on_the_device(gpu_provider: WebGpuProvider):
    first = compiled(gpu_provider, segment_of([step("Exp", {"x": (7,)}, {"a": (7,)})], ["a"], ["a"]))
    second = compiled(gpu_provider, segment_of([step("Neg", {"a": (7,)}, {"y": (7,)})], ["y"]))
    for seed in range(3):
        x = random(7, seed=seed)
        (a,) = run(first, x)
        assert isinstance(a, GpuValue)
        np.testing.assert_allclose(run(second, a)[0], -np.exp(x), rtol=1e-5)
    assert len(second.recordings) == 1
    np.testing.assert_array_equal(run(second, np.ones(7, np.float32))[0], -np.ones(7))
    first.close()
    second.close()


def test_scratch_is_used_again(gpu_provider: WebGpuProvider):
    """A long chain of values that are dead at once needs two buffers, and another segment the same two."""
    shape = (100, 100)
    names = [f"v{i}" for i in range(12)]
    # Transposes keep the chain from being fused.
    steps = [step("Transpose", {a: shape}, {b: shape}, perm=[1, 0]) for a, b in pairwise(names)]
    before = gpu_provider.arena.nbytes
    executables = [compiled(gpu_provider, segment_of(steps, [names[-1]])) for _ in range(2)]
    assert gpu_provider.arena.nbytes - before <= 2 * size_class(40_000)
    x = random(*shape)
    for executable in executables:
        np.testing.assert_array_equal(run(executable, x)[0], x.T)
    for executable in executables:
        executable.close()


def test_weights_are_uploaded_once_and_freed(gpu_provider: WebGpuProvider):
    w = Tensor.of(random(30, 20))
    steps = [step("MatMul", {"x": (4, 30), "w": (30, 20)}, {"y": (4, 20)}, {"w": w.numpy()})]
    steps[0].constants = {"w": w}
    before = gpu_provider.memory_stats()["weights"]
    executables = [compiled(gpu_provider, segment_of(steps, ["y"])) for _ in range(2)]
    assert gpu_provider.memory_stats()["weights"] - before == w.nbytes
    x = random(4, 30)
    for executable in executables:
        np.testing.assert_allclose(run(executable, x)[0], x @ w.numpy(), rtol=1e-4, atol=1e-5)
        executable.close()
    assert gpu_provider.memory_stats()["weights"] == before


def test_sizes_are_allocated_in_classes():
    assert size_class(1) == 256
    assert size_class(257) == 512
    assert size_class(100_000) == 114_688  # 7/8 of 2**17
    assert all(n <= size_class(n) <= n * 1.25 + 256 for n in range(1, 100_000, 97))


def test_fused_convolution_and_product(gpu_provider: WebGpuProvider):
    w, bias = random(6, 4, 1, 1), random(6)
    shapes = {"x": (2, 4, 3, 3), "w": w.shape, "b": (6,), "r": (2, 6, 3, 3)}
    constants = {"w": w, "b": bias}
    out = {"y": (2, 6, 3, 3)}
    conv = step("FusedConv", shapes, out, constants, "com.microsoft", activation="Clip", activation_params=[0.0, 6.0])
    executable = compiled(gpu_provider, segment_of([conv], ["y"]))
    x, r = random(2, 4, 3, 3), random(2, 6, 3, 3)
    want = np.clip(np.einsum("nchw,fc->nfhw", x, w[:, :, 0, 0]) + bias[:, None, None] + r, 0, 6)
    np.testing.assert_allclose(run(executable, x, r)[0], want, rtol=1e-4, atol=1e-5)
    executable.close()

    matrix = random(5, 8)
    shapes = {"x": (2, 3, 5), "w": (5, 8), "b": (8,), "r": (2, 3, 8)}
    product = step("FusedMatMul", shapes, {"y": (2, 3, 8)}, {"w": matrix, "b": random(8)}, "ai.onnxlet",
                   alpha=0.5, activation="Relu")  # fmt: skip
    executable = compiled(gpu_provider, segment_of([product], ["y"]))
    x, r = random(2, 3, 5), random(2, 3, 8)
    want = np.maximum(0.5 * (x @ matrix) + random(8) + r, 0)
    np.testing.assert_allclose(run(executable, x, r)[0], want, rtol=1e-4, atol=1e-5)
    executable.close()


@pytest.mark.parametrize(
    ("name", "parameters", "function"),
    [
        ("Relu", [], lambda x: np.maximum(x, 0)),
        ("Sigmoid", [], lambda x: 1 / (1 + np.exp(-x))),
        ("Tanh", [], np.tanh),
        ("HardSwish", [], lambda x: x * np.clip(x / 6 + 0.5, 0, 1)),
        ("Silu", [], lambda x: x / (1 + np.exp(-x))),
        ("LeakyRelu", [0.2], lambda x: np.where(x < 0, 0.2 * x, x)),
        ("HardSigmoid", [0.1, 0.4], lambda x: np.clip(0.1 * x + 0.4, 0, 1)),
        ("GeluTanh", [], lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))),
    ],
)
def test_activations(gpu_provider: WebGpuProvider, name: str, parameters: list[float], function: Any):
    w = np.eye(6, dtype=np.float32)
    node = step("FusedMatMul", {"x": (5, 6), "w": (6, 6)}, {"y": (5, 6)}, {"w": w}, "ai.onnxlet",
                activation=name, activation_params=parameters)  # fmt: skip
    executable = compiled(gpu_provider, segment_of([node], ["y"]))
    x = random(5, 6, scale=3)
    np.testing.assert_allclose(run(executable, x)[0], function(x), rtol=1e-5, atol=1e-6)
    executable.close()


def test_shaders_are_readable_and_shared(gpu_provider: WebGpuProvider):
    """Equal nodes share a pipeline: their shaders are the same text, which begins with what it computes."""
    steps = [step("Softmax", {"x": (2, 8)}, {"a": (2, 8)}), step("Softmax", {"a": (2, 8)}, {"y": (2, 8)})]
    executable = compiled(gpu_provider, segment_of(steps, ["y"]))
    assert executable.pipelines[0] is executable.pipelines[1]
    # Where another size came before, on the same device, the shader is that of any size.
    assert re.match(r"// Softmax\(f32\[\*, \d+\]\) axis 1( of any size)?\n", executable.pipelines[0].text)
    executable.close()


def test_a_bad_shader_is_named_with_its_line_and_does_no_harm(gpu_provider: WebGpuProvider):
    device = gpu_provider.device
    text = "// Nonsense(f32[1])\n@group(0) @binding(0) var<storage, read_write> y: array<f32>;\nfn main( {\n"
    with pytest.raises(ProviderError, match=r"(?s)Nonsense\(f32\[1\]\).*fn main\( \{"):
        device.pipeline(text, 1)
    executable = compiled(gpu_provider, segment_of([step("Neg", {"x": (3,)}, {"y": (3,)})], ["y"]))
    np.testing.assert_array_equal(run(executable, np.ones(3, np.float32))[0], -np.ones(3))
    executable.close()


def test_after_close_the_provider_says_so(gpu_provider: WebGpuProvider):
    provider = create({})
    segment = segment_of([step("Neg", {"x": (3,)}, {"y": (3,)})], ["y"])
    executable = compiled(provider, segment)
    run(executable, np.ones(3, np.float32))
    executable.close()
    assert provider.memory_stats()["weights"] == 0
    provider.close()
    with pytest.raises(ProviderError, match="closed"):
        provider.compile(segment)
    again = create({})
    executable = compiled(again, segment)
    np.testing.assert_array_equal(run(executable, np.ones(3, np.float32))[0], -np.ones(3))
    executable.close()
    again.close()


def test_a_lost_device_is_reported(gpu_provider: WebGpuProvider):
    provider = create({})
    executable = compiled(provider, segment_of([step("Neg", {"x": (3,)}, {"y": (3,)})], ["y"]))
    run(executable, np.ones(3, np.float32))
    provider.device.handle.destroy()
    with pytest.raises(ProviderError, match=r"was lost: "):
        run(executable, np.ones(3, np.float32))


def test_an_adapter_can_be_chosen_by_name(gpu_provider: WebGpuProvider):
    name = gpu_provider.adapter_info["device"]
    provider = create({"adapter": name[:6]})
    assert provider.adapter_info["device"] == name
    provider.close()
    with pytest.raises(ProviderError, match="no GPU adapter is called 'no such card'"):
        create({"adapter": "no such card"})


def test_other_batch_sizes_share_shaders(gpu_provider: WebGpuProvider):
    """A convolution, a pool, a product and a softmax of five images and of six are the same texts."""
    v, w, matrix = random(4, 4, 1, 1), random(8, 4, 3, 3), random(8, 5)

    def net(batch: int) -> GpuExecutable:
        steps = [
            step("Conv", {"x": (batch, 4, 8, 8), "v": v.shape}, {"i": (batch, 4, 8, 8)}, {"v": v}),
            step("Conv", {"i": (batch, 4, 8, 8), "w": w.shape}, {"c": (batch, 8, 6, 6)}, {"w": w}),
            step("MaxPool", {"c": (batch, 8, 6, 6)}, {"m": (batch, 8, 3, 3)}, kernel_shape=[2, 2], strides=[2, 2]),
            step("GlobalAveragePool", {"m": (batch, 8, 3, 3)}, {"g": (batch, 8, 1, 1)}),
            step("Flatten", {"g": (batch, 8, 1, 1)}, {"f": (batch, 8)}),
            step("MatMul", {"f": (batch, 8), "k": (8, 5)}, {"p": (batch, 5)}, {"k": matrix}),
            step("Softmax", {"p": (batch, 5)}, {"y": (batch, 5)}, axis=-1),
        ]
        return compiled(gpu_provider, segment_of(steps, ["y"]))

    five, six = net(5), net(6)
    assert [p.text for p in five.pipelines] == [p.text for p in six.pipelines]
    x = random(6, 4, 8, 8)
    np.testing.assert_allclose(run(five, x[:5])[0], run(six, x)[0][:5], rtol=1e-5, atol=1e-6)
    one = net(1)
    different = [a.text.split("(")[0] for a, b in zip(one.pipelines, five.pipelines, strict=True) if a is not b]
    assert different == ["// MatMul"]  # of one row
    np.testing.assert_allclose(run(one, x[:1])[0], run(six, x)[0][:1], rtol=1e-5, atol=1e-6)
    for executable in (one, five, six):
        executable.close()
