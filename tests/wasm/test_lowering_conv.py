"""Convolutions and pooling through compiled programs, against onnxruntime."""

from __future__ import annotations

import numpy as np
import pytest

from .helpers import check, evaluate, node

RNG = np.random.default_rng(11)


def some(*shape: int) -> np.ndarray:
    return RNG.uniform(-1, 1, shape).astype(np.float32)


def filters(*shape: int) -> np.ndarray:
    """Weights whose products sum to about one."""
    return (some(*shape) / np.sqrt(np.prod(shape[1:]))).astype(np.float32)


# Input channels, output channels, groups, size of the image, kernel, other attributes.
CASES = [
    (3, 8, 1, (9, 11), (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (3, 16, 1, (20, 17), (7, 7), {"strides": [2, 2], "pads": [3, 3, 3, 3]}),
    (1, 5, 1, (8, 8), (3, 5), {"pads": [0, 2, 1, 1]}),
    (8, 16, 1, (7, 9), (1, 1), {}),
    (8, 13, 1, (14, 9), (1, 1), {"strides": [2, 3]}),
    (5, 7, 1, (6, 6), (1, 1), {"pads": [1, 0, 2, 1]}),
    (6, 10, 1, (12, 12), (3, 3), {"pads": [1, 1, 1, 1]}),
    (16, 32, 1, (13, 14), (3, 3), {"pads": [1, 1, 1, 1]}),
    (6, 10, 1, (12, 12), (3, 3), {"dilations": [2, 3], "pads": [2, 3, 2, 3]}),
    (6, 9, 3, (10, 8), (3, 3), {"pads": [1, 1, 1, 1]}),
    (8, 16, 8, (10, 8), (3, 3), {"pads": [1, 1, 1, 1]}),
    (12, 12, 12, (9, 9), (3, 3), {"pads": [1, 1, 1, 1]}),
    (12, 12, 12, (9, 9), (3, 3), {"strides": [2, 2], "pads": [1, 1, 1, 1]}),
    (7, 7, 7, (16, 9), (5, 5), {"strides": [1, 2], "pads": [2, 2, 2, 2]}),
    (20, 20, 20, (15, 13), (7, 3), {"dilations": [2, 1]}),
    (3, 4, 1, (7, 8), (3, 3), {"auto_pad": "SAME_UPPER", "strides": [2, 2]}),
    (6, 4, 1, (7, 8), (4, 4), {"auto_pad": "SAME_LOWER", "strides": [2, 2]}),
    (6, 4, 1, (7, 8), (4, 4), {"auto_pad": "VALID"}),
]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("batch", [1, 2])
def test_conv(provider, case, batch):
    channels, outputs, groups, size, kernel, attributes = case
    x, w, b = some(batch, channels, *size), filters(outputs, channels // groups, *kernel), some(outputs)
    check(provider, node("Conv", "x w b", group=groups, **attributes), {"x": x}, {"w": w, "b": b})
    check(provider, node("Conv", "x w", group=groups, **attributes), {"x": x}, {"w": w})


@pytest.mark.parametrize("case", [CASES[0], CASES[3], CASES[6], CASES[9], CASES[11]], ids=str)
def test_conv_with_computed_weights(provider, case):
    channels, outputs, groups, size, kernel, attributes = case
    feeds = {"x": some(1, channels, *size), "w": filters(outputs, channels // groups, *kernel), "b": some(outputs)}
    check(provider, node("Conv", "x w b", group=groups, **attributes), feeds)


@pytest.mark.parametrize(("groups", "dilation"), [(1, 1), (1, 4), (2, 1), (6, 2)])
def test_conv_in_one_dimension(provider, groups, dilation):
    attributes = {"group": groups, "dilations": [dilation], "pads": [2, 1], "strides": [2]}
    check(
        provider,
        node("Conv", "x w b", **attributes),
        {"x": some(2, 6, 23)},
        {"w": filters(12, 6 // groups, 3), "b": some(12)},
    )


def test_conv_of_an_empty_batch(provider):
    check(provider, node("Conv", "x w"), {"x": some(0, 4, 5, 5)}, {"w": some(3, 4, 3, 3)})


ACTIVATIONS = {
    "Relu": ([], lambda v: np.maximum(v, 0)),
    "Clip": ([0.0, 6.0], lambda v: np.clip(v, 0, 6)),
    "LeakyRelu": ([0.1], lambda v: np.where(v < 0, v * np.float32(0.1), v)),
    "Sigmoid": ([], lambda v: 1 / (1 + np.exp(-v))),
    "Tanh": ([], np.tanh),
    "HardSwish": ([], lambda v: v * np.clip(v / 6 + 0.5, 0, 1)),
    "Silu": ([], lambda v: v / (1 + np.exp(-v))),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("case", [CASES[0], CASES[3], CASES[6], CASES[9], CASES[11]], ids=str)
@pytest.mark.parametrize("residual", [False, True])
def test_fused_conv(provider, name, case, residual):
    channels, outputs, groups, size, kernel, attributes = case
    parameters, function = ACTIVATIONS[name]
    x, w, b = some(2, channels, *size), filters(outputs, channels // groups, *kernel), some(outputs)
    plain = node("Conv", "x w b", group=groups, **attributes)
    expected = evaluate(plain, [x, w, b])[0]
    z = some(*expected.shape)
    feeds = {"x": x, **({"z": z} if residual else {})}
    fused = node("FusedConv", "x w b" + " z" * residual, domain="com.microsoft", version=1, group=groups, **attributes,
                 activation=name, **({"activation_params": parameters} if parameters else {}))  # fmt: skip

    def reference(*inputs, **_):
        return function(expected + (z if residual else 0)).astype(np.float32)

    check(provider, fused, feeds, {"w": w, "b": b}, references={"FusedConv": reference})


POOLS = [
    {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
    {"kernel_shape": [2, 2], "strides": [2, 2]},
    {"kernel_shape": [3, 2], "strides": [2, 1], "ceil_mode": 1},
    {"kernel_shape": [3, 3], "strides": [2, 2], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
    {"kernel_shape": [2, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]},
    {"kernel_shape": [2, 2], "dilations": [2, 2]},
]


@pytest.mark.parametrize("attributes", POOLS, ids=str)
@pytest.mark.parametrize("channels", [1, 5, 16])
def test_max_pool(provider, attributes, channels):
    check(provider, node("MaxPool", "x", **attributes), {"x": some(2, channels, 9, 11)})


@pytest.mark.parametrize("attributes", POOLS[:-1], ids=str)
@pytest.mark.parametrize("count_include_pad", [0, 1])
def test_average_pool(provider, attributes, count_include_pad):
    one = node("AveragePool", "x", count_include_pad=count_include_pad, **attributes)
    check(provider, one, {"x": some(2, 6, 9, 11)})


POOL_KERNELS = {
    "MaxPool": ("pool_max", "pool_planes"),
    "AveragePool": ("pool_average", "pool_planes"),
    "GlobalAveragePool": ("global_pool", "reduce"),
    "GlobalMaxPool": ("global_pool", "reduce"),
}


@pytest.mark.parametrize("operator", POOL_KERNELS)
def test_pools_take_their_input_as_it_lies(provider, operator):
    attributes = {} if operator.startswith("Global") else POOLS[0]
    pool = node(operator, "c", **attributes)
    x, w = some(2, 5, 9, 11), filters(7, 5, 3, 3)
    after_conv = check(provider, [node("Conv", "x w", "c"), pool], {"x": x}, {"w": w})
    alone = check(provider, pool, {"c": x})
    channels_last, planes = POOL_KERNELS[operator]
    assert channels_last in after_conv.kernels
    assert alone.kernels == [planes]


@pytest.mark.parametrize("operator", POOL_KERNELS)
def test_pools_of_not_a_number(provider, operator):
    x = some(2, 3, 9, 11)
    x[0, 1, 4, 4], x[1, 2, 0, 0] = np.nan, np.inf
    attributes = {} if operator.startswith("Global") else {"kernel_shape": (2, 2), "strides": (2, 2)}

    def reference(v, **_):
        if not attributes:
            windows = v.reshape(2, 3, 1, 1, -1)
        else:
            windows = v[:, :, :8, :10].reshape(2, 3, 4, 2, 5, 2).transpose(0, 1, 2, 4, 3, 5).reshape(2, 3, 4, 5, 4)
        return windows.max(-1) if "Max" in operator else windows.mean(-1)

    check(provider, node(operator, "x", **attributes), {"x": x}, references={operator: reference})


def test_pools_in_one_dimension(provider):
    check(provider, node("MaxPool", "x", kernel_shape=[3], strides=[2], pads=[1, 1]), {"x": some(2, 5, 11)})
    check(provider, node("AveragePool", "x", kernel_shape=[3], strides=[2], pads=[1, 1]), {"x": some(2, 5, 11)})


@pytest.mark.parametrize("operator", ["GlobalAveragePool", "GlobalMaxPool"])
@pytest.mark.parametrize("shape", [(2, 5, 7, 9), (1, 40, 3), (2, 3, 4, 5, 6)], ids=str)
def test_global_pools(provider, operator, shape):
    check(provider, node(operator, "x"), {"x": some(*shape)})


@pytest.mark.parametrize("pads", [None, [1, 0, 0, 1]])
def test_an_empty_auto_pad_is_not_set(provider, pads):
    x, w = RNG.standard_normal((1, 3, 8, 8)).astype(np.float32), RNG.standard_normal((4, 3, 2, 2)).astype(np.float32)
    padding = {} if pads is None else {"pads": pads}
    for operator, names, feeds, attributes in (
        ("Conv", "x w", {"x": x, "w": w}, {}),
        ("MaxPool", "x", {"x": x}, {"kernel_shape": [2, 2]}),
        ("AveragePool", "x", {"x": x}, {"kernel_shape": [2, 2]}),
    ):
        expected = evaluate(node(operator, names, **attributes, **padding), list(feeds.values()))
        one = node(operator, names, auto_pad="", **attributes, **padding)
        check(provider, one, feeds, references={operator: lambda *_, result=expected, **__: result})
