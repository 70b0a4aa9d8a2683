"""Cases for the GPU provider that run natively and in a page: one operator against its NumPy definition.

Nothing here needs pytest, so that the page's Python can run it too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from inspect import isawaitable, isgenerator
from typing import Any

import numpy as np

import onnxlet.ops  # noqa: F401  (registers the operators)
from onnxlet.graph.ir import Node, TensorType
from onnxlet.model.dtypes import widen
from onnxlet.model.tensors import Tensor
from onnxlet.ops.registry import find
from onnxlet.providers.base import Segment, Step


@dataclass(slots=True)
class Case:
    """One node: its inputs (`None` for an absent one), which of them are constants, its attributes, the tolerance."""

    op: str
    inputs: Sequence[np.ndarray | None]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    constants: tuple[int, ...] = ()
    version: int = 21
    domain: str = ""
    outputs: int = 1
    rtol: float = 1e-5
    atol: float = 1e-6
    note: str = ""

    def __str__(self) -> str:
        shapes = "-".join("x".join(map(str, a.shape)) or "scalar" for a in self.inputs if a is not None)
        return f"{self.op}-{shapes}-{self.note}".rstrip("-")


def node_of(case: Case) -> Node:
    inputs = ["" if a is None else f"in{i}" for i, a in enumerate(case.inputs)]
    outputs = [f"out{i}" for i in range(case.outputs)]
    return Node(case.op, inputs, outputs, dict(case.attributes), case.domain, case.version, "node")


def erf(x: np.ndarray) -> np.ndarray:
    return np.vectorize(math.erf, otypes=[np.float32])(x)


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + erf(x / np.float32(math.sqrt(2))))


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def rms_norm(x: np.ndarray, scale: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * scale


def layer_norm(x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + bias


def fused_gemm(a: np.ndarray, b: np.ndarray, c: np.ndarray, activation: str, **given: Any) -> np.ndarray:
    y, alpha, beta = a @ b + c, given.get("activation_alpha"), given.get("activation_beta")
    if activation == "LeakyRelu":
        return np.where(y < 0, y * alpha, y)
    if activation == "HardSigmoid":
        return np.clip(y * alpha + beta, 0, 1)
    return np.clip(y, 0 if activation == "Relu" else alpha, beta)


REFERENCES: dict[str, Callable[..., np.ndarray]] = {
    "Gelu": gelu,
    "QuickGelu": lambda x: x / (1 + np.exp(-1.702 * x)),
    "FastGelu": lambda x, bias: gelu_tanh(x + bias),
    "BiasGelu": lambda x, bias: gelu(x + bias),
    "FusedGemm": fused_gemm,
    "SimplifiedLayerNormalization": rms_norm,
    "SkipLayerNormalization": lambda x, skip, scale, bias, added: layer_norm(x + skip + added, scale, bias),
    "SkipSimplifiedLayerNormalization": lambda x, skip, scale: rms_norm(x + skip, scale),
}
"""What operators of other domains mean (contrib operators of onnxruntime, by its documentation)."""


def expected(case: Case) -> list[np.ndarray]:
    """What NumPy's definition of the operator gives."""
    if case.op in REFERENCES and (case.domain or find(case.op, "", case.version) is None):
        return [REFERENCES[case.op](*case.inputs, **case.attributes).astype(np.float32)]
    operator = find(case.op, case.domain, case.version)
    assert operator is not None, case.op
    extra: dict[str, Any] = dict(case.attributes)
    if "n_outputs" in operator.injected:
        extra["n_outputs"] = case.outputs
    if "output_types" in operator.injected:
        extra["output_types"] = [None] * case.outputs
    if "opset" in operator.injected:
        extra["opset"] = case.version
    with np.errstate(all="ignore"):
        result = operator.function(*case.inputs, **extra)
    if isgenerator(result):  # an operator that may have bodies to run
        try:
            next(result)
        except StopIteration as stop:
            result = stop.value
    results = result if isinstance(result, (tuple, list)) else [result]
    return [np.asarray(r) for r in results][: case.outputs]


def step_of(case: Case, results: Sequence[np.ndarray]) -> Step:
    node = node_of(case)
    types = [None if a is None else TensorType(a.dtype, a.shape) for a in case.inputs]
    constants = {f"in{i}": Tensor.of(case.inputs[i]) for i in case.constants}
    return Step(node, types, [TensorType(r.dtype, r.shape) for r in results], constants)


def segment_of(steps: Sequence[Step], outputs: Sequence[str], resident: Sequence[str] = ()) -> Segment:
    """The segment of steps whose node names are consistent: inputs are what no step makes and no constant is."""
    types: dict[str, TensorType] = {}
    constants: dict[str, Tensor] = {}
    made: set[str] = set()
    inputs: dict[str, None] = {}
    for step in steps:
        constants.update(step.constants)
        for name, type_ in zip(step.node.inputs, step.inputs, strict=True):
            if name and type_ is not None:
                types[name] = type_
                if name not in made and name not in constants:
                    inputs[name] = None
        for name, type_ in zip(step.node.outputs, step.outputs, strict=True):
            if name and type_ is not None:
                types[name] = type_
                made.add(name)
    return Segment(list(steps), list(inputs), list(outputs), types, constants, frozenset(resident))


async def compute(provider: Any, segment: Segment, feeds: Mapping[str, np.ndarray]) -> list[Any]:
    """Compile a segment, run it twice (the second run is the warm one), close it."""
    executable = provider.compile(segment)
    try:
        for _ in range(2):
            results = executable.run([feeds[name] for name in segment.inputs])
            if isawaitable(results):
                results = await results
        return list(results)
    finally:
        executable.close()


async def check(provider: Any, case: Case) -> None:
    """Run a case on the provider and compare with NumPy. Raises `AssertionError`."""
    want = expected(case)
    step = step_of(case, want)
    reason = provider.supports(step)
    assert reason is None, f"{case}: {reason}"
    feeds = {f"in{i}": a for i, a in enumerate(case.inputs) if a is not None}
    got = await compute(provider, segment_of([step], step.node.outputs), feeds)
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype, f"{case}: {g.dtype} instead of {w.dtype}"
        assert g.shape == w.shape, f"{case}: {g.shape} instead of {w.shape}"
        g, w = (widen(a) for a in (g, w))
        if w.dtype.kind != "f":
            np.testing.assert_array_equal(g, w, err_msg=str(case))
            continue
        np.testing.assert_allclose(g, w, rtol=case.rtol, atol=case.atol, err_msg=str(case))


def random(*shape: int, seed: int = 0, scale: float = 1.0) -> np.ndarray:
    return (np.random.default_rng(seed + sum(shape) * 31 + len(shape)).standard_normal(shape) * scale).astype(
        np.float32
    )


def integers(*shape: int, low: int = -9, high: int = 10, dtype: Any = np.int32) -> np.ndarray:
    return np.random.default_rng(sum(shape)).integers(low, high, shape).astype(dtype)


SPECIAL = np.array(
    [0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1e-3, -1e-3, 2.5, -2.5, 3.5, 10.0, -10.0, 60.0, -60.0, 1e6, -1e6, 1e-20,
     np.inf, -np.inf, np.nan],
    np.float32,
)  # fmt: skip
"""Numbers at which functions go wrong."""


def unary_cases() -> Iterator[Case]:
    everywhere = [
        "Abs", "Neg", "Relu", "Sigmoid", "Tanh", "Erf", "Floor", "Ceil", "Round", "Softsign", "HardSwish",
        "Sign", "IsNaN", "IsInf", "Elu", "Selu", "Celu", "LeakyRelu", "ThresholdedRelu", "HardSigmoid", "Shrink",
        "Gelu", "Atan", "Asinh",
    ]  # fmt: skip
    for op in everywhere:
        yield Case(op, [np.concatenate([SPECIAL, random(79, scale=3)])], rtol=2e-5, atol=3e-7)
    yield Case("Gelu", [np.concatenate([SPECIAL, random(79, scale=3)])], {"approximate": "tanh"}, atol=1e-6, rtol=1e-5)
    for op in ("Exp", "Log", "Sqrt", "Reciprocal", "Softplus", "Mish"):
        yield Case(op, [np.concatenate([SPECIAL, random(79, scale=3)])], rtol=2e-5, atol=1e-6)
    for op in ("Sin", "Cos"):
        yield Case(op, [np.concatenate([SPECIAL[:15], SPECIAL[17:], random(79, scale=30)])], rtol=1e-5, atol=1e-6)
    yield Case("Tan", [random(100)], rtol=1e-4, atol=1e-5)
    for op in ("Sinh", "Cosh"):
        yield Case(op, [np.concatenate([SPECIAL, random(79, scale=3)])], rtol=2e-5, atol=1e-6)
    for op in ("Asin", "Acos", "Atanh"):
        yield Case(op, [np.linspace(-1.1, 1.1, 101, dtype=np.float32)], rtol=2e-5, atol=1e-6)
    yield Case("Acosh", [np.linspace(0.5, 40, 101, dtype=np.float32)], rtol=2e-5, atol=1e-6)
    yield Case("Not", [integers(7, 3, low=0, high=2, dtype=np.bool_)])
    for op in ("Abs", "Neg", "Relu", "Sign"):
        yield Case(op, [integers(5, 7)], note="i32")
    for shape in ((), (1,), (3, 5, 7), (2, 1, 3, 1, 2, 1, 2, 3)):
        yield Case("Relu", [random(*shape)])
    yield Case("Relu", [random(70000 * 5)], note="many")


def binary_cases() -> Iterator[Case]:
    pairs = [
        ((3, 4), (3, 4)), ((2, 3, 4), (4,)), ((2, 3, 4), (3, 1)), ((2, 3, 4), ()), ((), (2, 3)), ((1,), (5,)),
        ((2, 1, 4), (1, 3, 1)), ((4, 1), (1, 5)), ((2, 3, 1, 2, 1, 2, 1, 3), (3, 2, 1, 2, 2, 1, 1)),
        ((1, 8, 1, 1), (2, 8, 5, 7)),
    ]  # fmt: skip
    for a, b in pairs:
        yield Case("Add", [random(*a), random(*b, seed=1)])
        yield Case("Sub", [random(*a), random(*b, seed=1)], constants=(1,), note="constant")
    for op in ("Mul", "Div", "Max", "Min", "Equal", "Less", "Greater", "LessOrEqual", "GreaterOrEqual"):
        yield Case(op, [np.repeat(SPECIAL, len(SPECIAL)), np.tile(SPECIAL, len(SPECIAL))], note="special")
    for number in (0.0, -0.0, 3.0, np.inf):
        scalar = np.array(number, np.float32)
        for op in ("Add", "Sub", "Mul", "Div", "Max"):
            yield Case(op, [SPECIAL, scalar], constants=(1,), note=f"by {number}")
            yield Case(op, [scalar, SPECIAL], constants=(0,), note=f"of {number}")
    base = np.array([0.0, 1.0, -1.0, 2.0, -2.0, 0.5, -3.5, 200.0, np.inf, -np.inf, np.nan], np.float32)
    exponent = np.array([0.0, 1.0, 2.0, 3.0, -1.0, -2.0, 0.5, 1.5, -0.5, 7.0, np.inf, -np.inf, np.nan], np.float32)
    yield Case("Pow", [np.repeat(base, len(exponent)), np.tile(exponent, len(base))], rtol=1e-5, note="special")
    for e in (2.0, 3.0, 0.5, -1.0, 1.7, 0.0):
        yield Case("Pow", [np.concatenate([base, random(50)]), np.array(e, np.float32)], constants=(1,), note=str(e))
    yield Case("Pow", [random(40), integers(40, low=-3, high=6)], rtol=1e-5, note="integer exponent")
    yield Case("Pow", [integers(40), integers(40, low=0, high=6)], note="i32")
    nonzero = integers(60, low=1, high=9) * np.where(np.arange(60) % 2, 1, -1).astype(np.int32)
    for op in ("Add", "Sub", "Mul", "Max", "Min", "Equal", "Less", "Greater"):
        yield Case(op, [integers(60), nonzero], note="i32")
    yield Case("Div", [integers(60, low=-100, high=100), nonzero], note="i32")
    yield Case("Mod", [integers(60, low=-100, high=100), nonzero], note="i32")
    yield Case("Mod", [integers(60, low=-100, high=100), nonzero], {"fmod": 1}, note="i32 fmod")
    flags = integers(4, 5, low=0, high=2, dtype=np.bool_), integers(5, low=0, high=2, dtype=np.bool_)
    for op in ("BitwiseAnd", "BitwiseOr", "BitwiseXor"):
        yield Case(op, [integers(60), nonzero], note="i32")
    yield Case("BitwiseNot", [integers(60, low=0, dtype=np.uint32)])
    for op in ("And", "Or", "Xor", "Equal"):
        yield Case(op, list(flags), note="bool")
    yield Case("PRelu", [random(2, 3, 4), random(3, 1, seed=2)])
    for slopes in (random(3), random(1)):  # of each channel, until opset 7
        yield Case("PRelu", [random(2, 3, 3), slopes], version=6, note="6")
        yield Case("PRelu", [random(2, 3), slopes], version=6, note="6")
    yield Case("BitShift", [integers(9, low=0, dtype=np.uint32), integers(9, low=0, high=5, dtype=np.uint32)],
               {"direction": "LEFT"})  # fmt: skip
    for op in ("Max", "Min", "Sum", "Mean"):
        yield Case(op, [random(3, 4), random(4, seed=1), random(3, 1, seed=2)], note="three")
    yield Case("Max", [random(3, 4)], note="one")


def other_elementwise_cases() -> Iterator[Case]:
    x = np.concatenate([SPECIAL, random(19)])
    low, high = np.array(-0.5, np.float32), np.array(1.0, np.float32)
    yield Case("Clip", [x, low, high], note="dynamic")
    yield Case("Clip", [x, low, high], constants=(1, 2), note="constant")
    yield Case("Clip", [x, None, high], constants=(2,), note="high")
    yield Case("Clip", [x, high, low], constants=(1, 2), note="crossed")
    yield Case("Clip", [x], note="none")
    yield Case("Clip", [x], {"min": -0.25, "max": 0.75}, version=6, note="6")
    yield Case("Clip", [integers(20), np.array(-3, np.int32), np.array(4, np.int32)], constants=(1, 2), note="i32")
    condition = integers(3, 1, 5, low=0, high=2, dtype=np.bool_)
    yield Case("Where", [condition, random(4, 1), random(3, 4, 5)])
    yield Case("Where", [condition, integers(4, 5), integers(1)], note="i32")
    for to, source in ((1, integers(20)), (6, random(20, scale=9)), (9, np.concatenate([x[:5], x[-3:]])),
                       (1, condition), (6, condition), (9, integers(30))):  # fmt: skip
        yield Case("Cast", [source], {"to": to}, note=f"{source.dtype} to {to}")
    stats = [random(5, seed=1), random(5, seed=2), random(5, seed=3), np.abs(random(5, seed=4)) + 0.1]
    for shape in ((2, 5), (2, 5, 3), (2, 5, 4, 3)):
        yield Case("BatchNormalization", [random(*shape), *stats], {"epsilon": 1e-3}, constants=(1, 2, 3, 4))
    yield Case("CastLike", [integers(9), random(1)])
    yield Case("Dropout", [random(9)])
    yield Case("Gelu", [random(20)], domain="com.microsoft", version=1)
    yield Case("Swish", [random(20)], version=24, atol=1e-6)
    yield Case("QuickGelu", [random(20)], domain="com.microsoft", version=1)
    yield Case("FastGelu", [random(3, 8), random(8, seed=1)], domain="com.microsoft", version=1)
    yield Case("BiasGelu", [random(3, 8), random(8, seed=1)], domain="com.microsoft", version=1)


def matmul_cases() -> Iterator[Case]:
    shapes = [
        ((1, 1), (1, 1)), ((2, 3), (3, 4)), ((8, 8), (8, 8)), ((9, 7), (7, 10)), ((33, 20), (20, 17)),
        ((64, 64), (64, 64)), ((70, 33), (33, 130)), ((1, 64), (64, 100)), ((1, 300), (300, 37)), ((5, 128), (128, 1)),
        ((3, 17, 8), (8, 12)), ((3, 17, 8), (3, 8, 12)), ((2, 1, 5, 8), (3, 8, 6)), ((4, 6, 8), (1, 8, 4)),
        ((7,), (7,)), ((7,), (7, 5)), ((5, 7), (7,)), ((2, 5, 7), (7,)), ((7,), (2, 7, 5)), ((2, 64, 65), (2, 65, 66)),
    ]  # fmt: skip
    for a, b in shapes:
        yield Case("MatMul", [random(*a), random(*b, seed=1)], rtol=1e-4, atol=1e-5, note="dynamic")
        yield Case("MatMul", [random(*a), random(*b, seed=1)], constants=(1,), rtol=1e-4, atol=1e-5, note="constant")
    for ta in (0, 1):
        for tb in (0, 1):
            a = random(*((30, 20) if ta else (20, 30)))
            b = random(*((70, 30) if tb else (30, 70)), seed=1)
            c = random(70, seed=2)
            attributes = {"transA": ta, "transB": tb, "alpha": 0.5, "beta": 2.0}
            for constants in ((), (1, 2)):
                yield Case("Gemm", [a, b, c], attributes, constants, rtol=1e-4, atol=1e-5, note=f"{ta}{tb}{constants}")
    yield Case("Gemm", [random(3, 10), random(10, 6)], {"alpha": 2.0}, (1,), rtol=1e-4, atol=1e-5, note="no C")
    yield Case("Gemm", [random(3, 10), random(10, 6), random(3, 1)], {}, (1,), rtol=1e-4, atol=1e-5, note="column C")
    yield Case("Gemm", [random(3, 10), random(10, 6), random()], {}, (1,), rtol=1e-4, atol=1e-5, note="scalar C")
    yield from fused_gemm_cases()
    yield Case("FusedMatMul", [random(2, 8, 5), random(2, 8, 6)], {"transA": 1, "alpha": 0.3}, domain="com.microsoft",
               version=1, rtol=1e-4, atol=1e-5)  # fmt: skip


def fused_gemm_cases() -> Iterator[Case]:
    inputs = [random(3, 10), random(10, 6), random(6)]
    for name, parameters in (
        ("Relu", {}),
        ("LeakyRelu", {"activation_alpha": 0.3}),
        ("HardSigmoid", {"activation_alpha": 0.3, "activation_beta": 0.4}),
        ("Clip", {"activation_beta": 0.5}),
    ):
        attributes = {"activation": name, **parameters}
        yield Case("FusedGemm", inputs, attributes, (1, 2), 1, "com.microsoft", rtol=1e-4, atol=1e-5, note=name)


def conv_cases() -> Iterator[Case]:
    def conv(x: tuple, w: tuple, bias: bool = True, note: str = "", **attributes: Any) -> Case:
        inputs = [random(*x), random(*w, seed=1), random(w[0], seed=2)][: 3 if bias else 2]
        constants = (1, 2) if bias else (1,)
        return Case("Conv", inputs, attributes, constants, rtol=1e-4, atol=1e-4, note=note)

    yield conv((1, 3, 8, 8), (4, 3, 3, 3))
    yield conv((2, 3, 9, 7), (5, 3, 3, 3), pads=[1, 1, 1, 1], note="pad")
    yield conv((2, 16, 12, 12), (16, 16, 3, 3), pads=[1, 1, 1, 1], strides=[2, 2], note="stride")
    yield conv((1, 3, 17, 19), (8, 3, 7, 7), pads=[3, 3, 3, 3], strides=[2, 2], note="stem")
    yield conv((1, 8, 10, 10), (8, 1, 3, 3), pads=[1, 1, 1, 1], group=8, note="depthwise")
    yield conv((1, 8, 11, 13), (16, 1, 5, 5), pads=[2, 2, 2, 2], strides=[2, 1], group=8, note="multiplier")
    yield conv((1, 8, 9, 9), (12, 2, 3, 3), pads=[1, 0, 2, 1], group=4, note="groups")
    yield conv((1, 4, 14, 14), (6, 4, 3, 3), dilations=[2, 3], pads=[2, 3, 2, 3], note="dilation")
    yield conv((2, 20, 5, 5), (30, 20, 1, 1), bias=False, note="1x1")
    yield conv((2, 20, 8, 8), (70, 20, 1, 1), note="1x1")
    yield conv((1, 20, 8, 8), (10, 20, 1, 1), strides=[2, 2], note="1x1 stride")
    yield conv((1, 5, 30), (6, 5, 4), pads=[2, 1], note="1d")
    yield conv((2, 6, 31), (6, 1, 3), strides=[2], group=6, dilations=[2], note="1d depthwise")
    yield conv((1, 3, 10, 10), (4, 3, 3, 3), auto_pad="SAME_UPPER", strides=[2, 2], note="same upper")
    yield conv((1, 3, 11, 10), (4, 3, 4, 4), auto_pad="SAME_LOWER", strides=[2, 2], note="same lower")
    yield conv((1, 3, 10, 10), (4, 3, 3, 3), auto_pad="VALID", note="valid")
    yield conv((1, 2, 200), (9, 2, 33), strides=[8], pads=[16, 16], note="wide")
    yield conv((1, 1, 100), (4, 1, 20), strides=[10], dilations=[2], note="wide inside")
    yield conv((2, 6, 40, 1), (9, 6, 5, 1), pads=[1, 0, 2, 0], note="column")
    yield conv((1, 64, 16, 16), (64, 64, 3, 3), pads=[1, 1, 1, 1], note="large")
    fed = [random(2, 5, 9, 8), random(7, 5, 3, 2, seed=1), random(7, seed=2)]
    yield Case("Conv", fed, {"pads": [1, 0, 1, 1], "strides": [2, 1]}, rtol=1e-4, atol=1e-5, note="fed weights")
    yield Case("Conv", [random(2, 5, 4, 4), random(7, 5, 1, 1)], rtol=1e-4, atol=1e-5, note="fed weights 1x1")
    infinite = random(1, 2, 6, 6)
    infinite[0, 0, 0, 0] = np.inf
    infinite[0, 1, 5, 5] = np.nan
    yield Case("Conv", [infinite, random(4, 2, 3, 3)], {"pads": [1, 1, 1, 1]}, (1,), rtol=1e-4, atol=1e-5, note="inf")

    def transposed(x: tuple, w: tuple, note: str = "", **attributes: Any) -> Case:
        filters = w[1] * attributes.get("group", 1)
        inputs = [random(*x), random(*w, seed=1), random(filters, seed=2)]
        return Case("ConvTranspose", inputs, attributes, (1, 2), rtol=1e-4, atol=1e-4, note=note)

    yield transposed((1, 3, 5, 6), (3, 4, 3, 3))
    yield transposed((2, 4, 5, 6), (4, 2, 3, 3), group=2, strides=[2, 2], pads=[1, 1, 1, 1], output_padding=[1, 1])
    yield transposed((1, 3, 7), (3, 4, 4), strides=[2], dilations=[2], pads=[1, 2], note="1d")
    yield transposed((1, 2, 4, 4), (2, 3, 3, 3), strides=[2, 2], auto_pad="SAME_UPPER", note="same upper")
    yield transposed((1, 2, 4, 4), (2, 3, 3, 3), strides=[2, 2], auto_pad="SAME_LOWER", note="same lower")
    yield transposed((1, 2, 4, 4), (2, 3, 2, 2), strides=[2, 2], note="up")
    yield transposed((2, 6, 5, 7), (6, 16, 4, 5), strides=[2, 3], pads=[1, 2, 1, 0], note="eights")
    yield transposed((1, 2, 5, 5), (2, 1, 3, 3), strides=[2, 1], dilations=[1, 2], pads=[0, 1, 2, 0], note="one filter")
    yield transposed((1, 2, 5, 5), (2, 4, 3, 3), strides=[2, 2], pads=[-1, 0, 0, -1], note="negative pads")


def pool_cases() -> Iterator[Case]:
    windows: list[tuple[tuple, dict[str, Any]]] = [
        ((2, 3, 9, 8), {"kernel_shape": [2, 2], "strides": [2, 2]}),
        ((1, 3, 9, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}),
        ((1, 3, 9, 8), {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1], "ceil_mode": 1}),
        ((1, 2, 10), {"kernel_shape": [4], "strides": [3], "ceil_mode": 1}),
        ((1, 2, 5, 6, 7), {"kernel_shape": [2, 3, 2], "strides": [1, 2, 2]}),
        ((1, 2, 9, 9), {"kernel_shape": [3, 3], "auto_pad": "SAME_UPPER", "strides": [2, 2]}),
        ((1, 2, 11, 11), {"kernel_shape": [3, 2], "dilations": [2, 3]}),
    ]
    for shape, attributes in windows:
        yield Case("MaxPool", [random(*shape)], attributes, note=str(attributes))
        yield Case("AveragePool", [random(*shape)], attributes, note=str(attributes))
        yield Case("AveragePool", [random(*shape)], {**attributes, "count_include_pad": 1}, note=f"all {attributes}")
    holes = random(1, 2, 6, 6)
    holes[0, 0, 2, 2] = np.nan
    holes[0, 1, 1, 1] = -np.inf
    yield Case("MaxPool", [holes], {"kernel_shape": [2, 2]}, note="nan")
    yield Case("LpPool", [random(1, 2, 6, 6)], {"kernel_shape": [2, 2], "p": 3}, rtol=1e-4)
    for op in ("GlobalAveragePool", "GlobalMaxPool"):
        yield Case(op, [random(2, 3, 7, 5)])
        yield Case(op, [random(2, 3, 40, 41)], note="large")
    yield Case("GlobalLpPool", [random(2, 3, 7, 5)], rtol=1e-4)


def reduction_cases() -> Iterator[Case]:
    ops = ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2",
           "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp"]  # fmt: skip
    for op in ops:
        x = np.abs(random(3, 4, 5)) + 0.1
        for axes in ([1], [-1], [0, 2], [0, 1, 2]):
            for keep in (0, 1):
                inputs = [x, np.array(axes, np.int64)]
                yield Case(op, inputs, {"keepdims": keep}, (1,), rtol=1e-4, note=f"{axes} {keep}")
        yield Case(op, [x], {}, note="all", rtol=1e-4)
    yield Case("ReduceMean", [random(4, 5, 6)], {"axes": [1, 2], "keepdims": 0}, version=13, note="13")
    for op in ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceLogSumExp"):
        yield Case(op, [random(3, 5000), np.array([1], np.int64)], {}, (1,), rtol=1e-4, atol=1e-4, note="long")
    holes = random(4, 6)
    holes[0, 1], holes[1, 2], holes[2, 3] = np.nan, np.inf, -np.inf
    holes[3] = -np.inf
    for op in ("ReduceMax", "ReduceMin", "ReduceSum", "ReduceLogSumExp"):
        yield Case(op, [holes, np.array([1], np.int64)], {}, (1,), note="special")
    for op in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"):
        yield Case(op, [integers(3, 7, low=-4, high=5), np.array([1], np.int64)], {}, (1,), note="i32")


def row_cases() -> Iterator[Case]:
    holes = random(6, 5)
    holes[0, 1], holes[1, 2], holes[2, 3] = np.nan, np.inf, -np.inf
    holes[3] = -np.inf
    holes[4] *= 1e4
    for op in ("Softmax", "LogSoftmax"):
        for shape, axis in (((3, 7), -1), ((2, 3, 4, 5), 1), ((2, 3, 4), 0), ((5,), 0), ((2, 1000), 1), ((80, 300), 1)):
            yield Case(op, [random(*shape)], {"axis": axis}, atol=2e-6, note=f"axis {axis}")
        yield Case(op, [random(2, 3, 4)], {"axis": 1}, version=11, note="11")
        yield Case(op, [holes], {"axis": 1}, atol=2e-6, note="special")
    for shape, axis in (((4, 16), -1), ((2, 3, 20), -1), ((2, 3, 4, 5), 2), ((3, 700), -1), ((100, 300), -1)):
        x, s, b = random(*shape), random(*shape[axis:], seed=1), random(*shape[axis:], seed=2)
        yield Case("LayerNormalization", [x, s, b], {"axis": axis}, (1, 2), rtol=1e-4, atol=1e-5, note=f"axis {axis}")
    yield Case("LayerNormalization", [random(4, 16), random(16)], rtol=1e-4, atol=1e-5, note="no bias")
    yield Case("RMSNormalization", [random(4, 16), random(16)], {"epsilon": 1e-6}, version=23, rtol=1e-4, atol=1e-5)
    yield Case("SimplifiedLayerNormalization", [random(4, 16), random(16)], domain="", version=1, rtol=1e-4, atol=1e-5)
    yield Case("InstanceNormalization", [random(2, 3, 6, 7), random(3), random(3, seed=1)], rtol=1e-4, atol=1e-5)
    yield Case("GroupNormalization", [random(2, 6, 4, 5), random(6), random(6, seed=1)], {"num_groups": 3},
               rtol=1e-4, atol=1e-5)  # fmt: skip
    yield Case("GroupNormalization", [random(2, 6, 4, 5), random(3), random(3, seed=1)], {"num_groups": 3},
               version=18, rtol=1e-4, atol=1e-5, note="18")  # fmt: skip
    for p in (1, 2):
        yield Case("LpNormalization", [random(3, 4, 5)], {"axis": 1, "p": p}, note=f"p {p}")
    for op, count in (("SkipLayerNormalization", 5), ("SkipSimplifiedLayerNormalization", 3)):
        inputs = [random(2, 3, 16), random(2, 3, 16, seed=1), *(random(16, seed=i) for i in range(2, count))]
        yield Case(op, inputs, domain="com.microsoft", version=1, rtol=1e-4, atol=1e-5)


def attention_cases() -> Iterator[Case]:
    def heads(batch: int, queries: int, keys: int, q_heads: int, kv_heads: int, size: int) -> list[np.ndarray | None]:
        shapes = (q_heads, queries), (kv_heads, keys), (kv_heads, keys)
        return [random(batch, h, length, size, seed=i) for i, (h, length) in enumerate(shapes)]

    def attend(inputs: Sequence[np.ndarray | None], note: str, outputs: int = 1, **attributes: Any) -> Case:
        return Case("Attention", inputs, attributes, (), 25, outputs=outputs, rtol=1e-4, atol=1e-5, note=note)

    yield attend(heads(2, 5, 7, 3, 3, 8), "apart")
    yield attend(heads(1, 5, 7, 4, 2, 6), "grouped", scale=0.3)
    yield attend([random(2, 5, 24), random(2, 7, 24, seed=1), random(2, 7, 24, seed=2)], "packed",
                 q_num_heads=3, kv_num_heads=3)  # fmt: skip
    yield attend([random(2, 5, 24), random(2, 7, 12, seed=1), random(2, 7, 18, seed=2)], "packed and grouped",
                 q_num_heads=4, kv_num_heads=2)  # fmt: skip
    yield attend(heads(2, 6, 6, 2, 2, 4), "causal", is_causal=1)
    yield attend(heads(2, 9, 9, 2, 2, 4), "window", left_window_size=2, right_window_size=1)
    yield attend(heads(2, 6, 6, 2, 2, 4), "soft cap", softcap=1.5)
    bias = random(5, 7)
    bias[1, 2:] = -np.inf
    bias[3] = -np.inf
    yield attend([*heads(2, 5, 7, 3, 3, 8), bias], "bias")
    yield attend([*heads(2, 5, 7, 3, 3, 8), integers(2, 1, 5, 7, low=0, high=2, dtype=np.bool_)], "mask")
    cache = [random(2, 3, 4, 8, seed=5), random(2, 3, 4, 8, seed=6)]
    yield attend([*heads(2, 5, 5, 3, 3, 8), None, *cache], "cache", outputs=3, is_causal=1)
    packed = [random(2, 5, 24, seed=i) for i in range(3)]
    yield attend([*packed, None, *cache], "packed with a cache", outputs=3, q_num_heads=3, kv_num_heads=3)
    yield attend(packed, "packed, present", outputs=3, q_num_heads=3, kv_num_heads=3)
    yield from fused_attention_cases()
    angles = random(50, 4, seed=7)
    cos, sin = np.cos(angles), np.sin(angles)
    positions = np.array([[3, 1, 4], [1, 5, 49]], np.int64)
    for interleaved in (0, 1):
        for x, attributes in ((random(2, 3, 3, 8), {}), (random(2, 3, 16), {"num_heads": 2})):
            more = {**attributes, "interleaved": interleaved}
            yield Case("RotaryEmbedding", [x, cos, sin, positions], more, version=23, note=f"{interleaved}")
            own = [cos[:6].reshape(2, 3, 4), sin[:6].reshape(2, 3, 4)]
            yield Case("RotaryEmbedding", [x, *own], more, version=23, note=f"{interleaved} own angles")
        part = {"interleaved": interleaved, "rotary_embedding_dim": 4}
        yield Case("RotaryEmbedding", [random(2, 3, 3, 8), cos[:, :2], sin[:, :2], positions], part, version=23,
                   note=f"{interleaved} part")  # fmt: skip


def fused_attention_cases() -> Iterator[Case]:
    def attend(lengths: Sequence[tuple[int, ...]], last: list[int], note: str, *masks: Any, **attributes: Any) -> Case:
        operands = [
            random(*(shape[a] for a in ((0, 2, 1, 3) if flag else (0, 1, 2, 3))), seed=i)
            for i, (shape, flag) in enumerate(zip(lengths, last, strict=False))
        ]
        attributes = {"scale": 0.4, "heads_last": last, **attributes}
        return Case(
            "FusedAttention", [*operands, *masks], attributes, (), 1, "ai.onnxlet", rtol=1e-4, atol=1e-5, note=note
        )

    same = [(2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4)]
    for last in ([0, 0, 0, 0], [1, 0, 1, 0], [0, 1, 0, 1], [1, 1, 1, 1]):
        yield attend(same, last, str(last))
    yield attend([(2, 6, 5, 8), (2, 2, 7, 8), (2, 2, 7, 4)], [1, 1, 0, 1], "shared", causal_offset=2)
    bias = random(5, 7)
    bias[1, 2:] = -np.inf
    keep = integers(2, 1, 5, 7, low=0, high=2, dtype=np.bool_)
    yield attend(same, [1, 1, 1, 1], "bias", bias)
    yield attend(same, [1, 1, 1, 1], "kept", None, keep, fill=-1e4)
    bias = bias.copy()
    bias[3] = -np.inf
    for unseen in range(3):
        yield attend(same, [0, 0, 0, 1], f"unseen {unseen}", bias, keep[:, :, :, :1], unseen=unseen)
    yield Case("FusedAttention", [random(4, 5, 8), random(4, 6, 8, seed=1), random(6, 4, 3, seed=2)],
               {"heads_last": [0, 0, 1, 1]}, (), 1, "ai.onnxlet", rtol=1e-4, atol=1e-5, note="no batch")  # fmt: skip


def movement_cases() -> Iterator[Case]:
    def ints(*values: int) -> np.ndarray:
        return np.array(values, np.int64)

    x = random(2, 3, 4, 5)
    for perm in ([3, 2, 1, 0], [0, 2, 1, 3], [0, 3, 1, 2], [0, 2, 3, 1], [1, 0, 2, 3], [0, 1, 2, 3]):
        yield Case("Transpose", [x], {"perm": perm}, note=str(perm))
    yield Case("Transpose", [integers(3, 4)], note="i32")
    yield Case("Transpose", [random(2, 1, 2, 3, 1, 2, 2, 2)], {"perm": [7, 1, 5, 3, 0, 2, 6, 4]}, note="rank 8")
    yield Case("Reshape", [x, ints(6, -1)], constants=(1,))
    yield Case("Flatten", [x], {"axis": 2})
    yield Case("Squeeze", [random(1, 3, 1), ints(0, 2)], constants=(1,))
    yield Case("Unsqueeze", [random(3, 4), ints(0, 3)], constants=(1,))
    yield Case("Identity", [x])
    yield Case("Concat", [random(2, 3, 4), random(2, 1, 4), random(2, 5, 4)], {"axis": 1})
    yield Case("Concat", [random(2, 3), random(4, 3)], {"axis": 0})
    yield Case("Concat", [random(3, i + 1, seed=i) for i in range(30)], {"axis": -1}, note="thirty")
    yield Case("Concat", [integers(2, 2), integers(2, 3)], {"axis": 1}, note="i32")
    yield Case("Split", [random(2, 9, 3), ints(2, 3, 4)], {"axis": 1}, (1,), outputs=3)
    yield Case("Split", [random(6, 4)], {"axis": 0, "num_outputs": 3}, outputs=3)
    slices = [
        ([0, 1], [2, 3], [0, 2], [1, 1]), ([1], [2**63 - 1], [3], [2]), ([-1], [-(2**63)], [2], [-1]),
        ([3, -1], [0, -6], [2, 3], [-2, -1]), ([-3], [-1], [3], [1]),
    ]  # fmt: skip
    for starts, ends, axes, steps in slices:
        yield Case("Slice", [x, ints(*starts), ints(*ends), ints(*axes), ints(*steps)], constants=(1, 2, 3, 4),
                   note=f"{starts} {steps}")  # fmt: skip
    yield Case("Slice", [x], {"starts": [1], "ends": [3], "axes": [2]}, version=9, note="9")
    yield Case("Expand", [random(3, 1), ints(2, 3, 4)], constants=(1,))
    yield Case("Expand", [random(1), ints(5)], constants=(1,))
    yield Case("Tile", [random(2, 3), ints(2, 3)], constants=(1,))
    yield Case("Tile", [random(2, 1, 3), ints(1, 4, 2)], constants=(1,))
    index = np.array([[0, -1], [2, 1]], np.int64)
    for axis in (0, 1, 2, -1):
        yield Case("Gather", [random(3, 4, 5), index], {"axis": axis}, (1,), note=f"constant {axis}")
        yield Case("Gather", [random(3, 4, 5), index], {"axis": axis}, note=f"fed {axis}")
    yield Case("Gather", [random(3, 4), np.array(1, np.int64)], {"axis": 1}, note="scalar")
    yield Case("Gather", [random(10, 8), index.astype(np.int32)], {}, note="i32")
    yield Case("GatherElements", [random(3, 4), np.array([[0, -1, 2], [1, 1, 0]], np.int64)], {"axis": 1})
    yield Case("GatherElements", [random(3, 4), np.array([[0, -1, 2, 1]], np.int64)], {"axis": 0})
    for mode in ("DCR", "CRD"):
        yield Case("DepthToSpace", [random(2, 12, 3, 4)], {"blocksize": 2, "mode": mode}, note=mode)
    yield Case("SpaceToDepth", [random(2, 3, 4, 6)], {"blocksize": 2})
    pads = ints(1, 0, 2, 2, 1, 0)
    for mode in ("constant", "edge", "reflect", "wrap"):
        yield Case("Pad", [random(3, 4, 5), pads], {"mode": mode}, (1,), note=mode)
    yield Case("Pad", [random(3, 4), ints(1, -1, 0, 2), np.array(7.0, np.float32)], constants=(1, 2), note="crop")
    yield Case("Pad", [random(3, 4), ints(1, 1, 0, 2), np.array(7.0, np.float32)], constants=(1,), note="fed value")
    yield Case("Pad", [random(3, 4), ints(1, 2), None, ints(-1)], constants=(1, 3), version=18, note="axes")
    for upper in (0, 1):
        yield Case("Trilu", [random(2, 4, 5)], {"upper": upper}, note=f"upper {upper}")
        yield Case("Trilu", [random(4, 5), np.array(-1, np.int64)], {"upper": upper}, (1,), note=f"upper {upper} k -1")


def resize_cases() -> Iterator[Case]:
    x = random(1, 2, 4, 5)
    for mode in ("nearest", "linear", "cubic"):
        for transform in ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"):
            scales = np.array([1, 1, 2, 1.6], np.float32)
            yield Case("Resize", [x, None, scales], {"mode": mode, "coordinate_transformation_mode": transform}, (2,),
                       rtol=1e-4, atol=1e-5, note=f"{mode} {transform}")  # fmt: skip
        sizes = np.array([1, 2, 3, 9], np.int64)
        yield Case("Resize", [x, None, None, sizes], {"mode": mode}, (3,), rtol=1e-4, atol=1e-5, note=f"{mode} sizes")
    yield Case("Resize", [x, None, np.array([1, 1, 0.5, 0.6], np.float32)], {"mode": "linear", "antialias": 1}, (2,),
               rtol=1e-4, atol=1e-5, note="antialias")  # fmt: skip
    roi = np.array([0, 0, 0.2, -0.3, 1, 1, 0.7, 0.9], np.float32)
    crop = {"coordinate_transformation_mode": "tf_crop_and_resize", "extrapolation_value": 7.0}
    for mode in ("nearest", "linear", "cubic"):
        yield Case("Resize", [x, roi, None, np.array([1, 2, 5, 6], np.int64)], {"mode": mode, **crop}, (1, 3),
                   rtol=1e-4, atol=1e-5, note=f"{mode} crop")  # fmt: skip
    for dtype in (np.uint8, np.int64, np.bool_):
        pixels = integers(1, 2, 4, 5, low=0, dtype=dtype)
        yield Case("Resize", [pixels, None, np.array([1, 1, 2, 1.5], np.float32)], {}, (2,), note=np.dtype(dtype).name)
    yield Case("Upsample", [x, np.array([1, 1, 2, 3], np.float32)], {}, (1,), version=9)


FAMILIES = {
    "unary": unary_cases,
    "binary": binary_cases,
    "elementwise": other_elementwise_cases,
    "matmul": matmul_cases,
    "conv": conv_cases,
    "pool": pool_cases,
    "reduction": reduction_cases,
    "rows": row_cases,
    "attention": attention_cases,
    "movement": movement_cases,
    "resize": resize_cases,
}
"""Every family of cases by name."""


def in_half(case: Case) -> Case | None:
    """A float32 case in float16, if the operator has that."""
    if case.domain or case.op in REFERENCES or not any(a is not None and a.dtype == np.float32 for a in case.inputs):
        return None
    numbers = 1 if case.op in ("Resize", "Upsample") else len(case.inputs)  # their scales stay float32
    with np.errstate(over="ignore"):
        inputs = [
            a.astype(np.float16) if a is not None and a.dtype == np.float32 and i < numbers else a
            for i, a in enumerate(case.inputs)
        ]
    return replace(case, inputs=inputs, rtol=2e-3, atol=2e-3)


async def check_family(provider: Any, family: str) -> list[str]:
    """Run a family's cases; returns what failed, for a host without pytest."""
    failures = []
    for case in FAMILIES[family]():
        try:
            await check(provider, case)
        except Exception as error:
            failures.append(f"{case}: {type(error).__name__}: {str(error)[:500]}")
    return failures
