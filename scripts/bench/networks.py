"""Whole models with random weights, written as exporters write them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto

from .graphs import GraphBuilder

INT64 = TensorProto.INT64


class Vision(GraphBuilder):
    """Convolutional networks. With `batch_norm` each convolution is followed by its BatchNormalization, as from
    TensorFlow and torch's training mode; without it is folded, as from torch's legacy exporter."""

    def __init__(self, name: str, batch_norm: bool = False):
        super().__init__(name)
        self.batch_norm = batch_norm

    def conv(
        self, x: str, c_in: int, c_out: int, kernel: int, stride: int = 1, groups: int = 1, gain: float = 1.6
    ) -> str:
        fan = c_in // groups * kernel * kernel
        weights = self.constant(self.normal(c_out, c_in // groups, kernel, kernel, scale=(gain / fan) ** 0.5))
        bias = [] if self.batch_norm else [self.constant(self.normal(c_out, scale=0.1))]
        window: dict[str, Any] = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [kernel // 2] * 4}
        y = self.node("Conv", x, weights, *bias, group=groups, dilations=[1, 1], **window)
        if not self.batch_norm:
            return y
        scale, shift, mean = (
            1 + self.normal(c_out, scale=0.1),
            self.normal(c_out, scale=0.1),
            self.normal(c_out, scale=0.1),
        )
        variance = 1 + np.abs(self.normal(c_out, scale=0.1))
        return self.node("BatchNormalization", y, *map(self.constant, (scale, shift, mean, variance)), epsilon=1e-5)

    def relu6(self, x: str) -> str:
        return self.node("Clip", x, self.constant(np.float32(0)), self.constant(np.float32(6)))

    def classify(self, x: str, channels: int, classes: int = 1000) -> onnx.ModelProto:
        y = self.node("Flatten", self.node("GlobalAveragePool", x), axis=1)
        weights = self.constant(self.normal(classes, channels, scale=channels**-0.5))
        y = self.node("Gemm", y, weights, self.constant(self.normal(classes, scale=0.1)), transB=1)
        self.output(y, [1, classes])
        return self.model()


def mobilenet_v2(batch_norm: bool = False) -> onnx.ModelProto:
    """MobileNetV2 1.0 for pictures of 224x224 (Sandler et al. 2018, table 2)."""
    b = Vision("mobilenet_v2", batch_norm)
    x = b.relu6(b.conv(b.input([1, 3, 224, 224], name="input"), 3, 32, 3, 2))
    c_in = 32
    for expansion, c_out, repeats, first_stride in (
        (1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1),
    ):  # fmt: skip
        for number in range(repeats):
            stride = 1 if number else first_stride
            wide = c_in * expansion
            y = x if expansion == 1 else b.relu6(b.conv(x, c_in, wide, 1))
            y = b.relu6(b.conv(y, wide, wide, 3, stride, wide))
            same = stride == 1 and c_in == c_out
            y = b.conv(y, wide, c_out, 1, gain=0.5 if same else 1.6)
            x = b.node("Add", x, y) if same else y
            c_in = c_out
    return b.classify(b.relu6(b.conv(x, c_in, 1280, 1)), 1280)


def resnet50() -> onnx.ModelProto:
    """ResNet-50 for pictures of 224x224 (He et al. 2015, table 1), strides on the 3x3 convolutions."""
    b = Vision("resnet50")
    x = b.node("Relu", b.conv(b.input([1, 3, 224, 224], name="input"), 3, 64, 7, 2))
    x = b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    c_in = 64
    for width, repeats, first_stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
        for number in range(repeats):
            stride = 1 if number else first_stride
            y = b.node("Relu", b.conv(x, c_in, width, 1))
            y = b.node("Relu", b.conv(y, width, width, 3, stride))
            y = b.conv(y, width, 4 * width, 1, gain=0.5)
            shortcut = x if number else b.conv(x, c_in, 4 * width, 1, stride)
            x = b.node("Relu", b.node("Add", y, shortcut))
            c_in = 4 * width
    return b.classify(x, c_in)


def resnet18(size: int = 224) -> onnx.ModelProto:
    """ResNet-18 for pictures of `size` squared (He et al. 2015, table 1)."""
    b = Vision("resnet18")
    x = b.node("Relu", b.conv(b.input([1, 3, size, size], name="input"), 3, 64, 7, 2))
    x = b.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4)
    c_in = 64
    for width in (64, 128, 256, 512):
        for stride in (1 if width == 64 else 2, 1):
            y = b.node("Relu", b.conv(x, c_in, width, 3, stride))
            y = b.conv(y, width, width, 3, gain=0.5)
            shortcut = x if stride == 1 and c_in == width else b.conv(x, c_in, width, 1, stride)
            x = b.node("Relu", b.node("Add", y, shortcut))
            c_in = width
    return b.classify(x, c_in)


def unet(size: int = 128, width: int = 16, depth: int = 3) -> onnx.ModelProto:
    """A U-Net (Ronneberger et al. 2015) with padded convolutions, for pictures of `size` squared: two 3x3 convolutions
    on each level, pooling on the way down, transposed convolutions and joins with the way down on the way up."""
    b = Vision("unet")

    def twice(x: str, c_in: int, c_out: int) -> str:
        y = b.node("Relu", b.conv(x, c_in, c_out, 3))
        return b.node("Relu", b.conv(y, c_out, c_out, 3))

    x = twice(b.input([1, 3, size, size], name="input"), 3, width)
    down = []
    for level in range(depth):
        down.append(x)
        x = b.node("MaxPool", x, kernel_shape=[2, 2], strides=[2, 2])
        x = twice(x, width << level, width << level + 1)
    for level in reversed(range(depth)):
        c_in, c_out = width << level + 1, width << level
        weights = b.constant(b.normal(c_in, c_out, 2, 2, scale=(1.6 / c_in) ** 0.5))
        x = b.node(
            "ConvTranspose", x, weights, b.constant(b.normal(c_out, scale=0.1)), kernel_shape=[2, 2], strides=[2, 2]
        )
        x = twice(b.node("Concat", x, down[level], axis=1), c_in, c_out)
    b.output(b.node("Sigmoid", b.conv(x, width, 1, 1)), [1, 1, size, size])
    return b.model()


class Transformer(GraphBuilder):
    """Transformers of `width` with `heads` heads."""

    def __init__(self, name: str, width: int, heads: int):
        super().__init__(name)
        self.width, self.heads, self.depth = width, heads, width // heads

    def linear(self, x: str, k: int, n: int) -> str:
        y = self.node("MatMul", x, self.constant(self.normal(k, n, scale=k**-0.5)))
        return self.node("Add", y, self.constant(self.normal(n, scale=0.1)))

    def norm(self, x: str, epsilon: float) -> str:
        scale, bias = 1 + self.normal(self.width, scale=0.1), self.normal(self.width, scale=0.1)
        return self.node("LayerNormalization", x, self.constant(scale), self.constant(bias), axis=-1, epsilon=epsilon)

    def gelu(self, x: str) -> str:
        """As torch exports it: x * (1 + erf(x / sqrt(2))) * 0.5."""
        erf = self.node("Erf", self.node("Div", x, self.constant(np.float32(2**0.5))))
        y = self.node("Mul", x, self.node("Add", erf, self.constant(np.float32(1))))
        return self.node("Mul", y, self.constant(np.float32(0.5)))

    def split_heads(self, x: str, tokens: int, permutation: Sequence[int] = (0, 2, 1, 3)) -> str:
        shape = self.constant(np.array([1, tokens, self.heads, self.depth]))
        return self.node("Transpose", self.node("Reshape", x, shape), perm=permutation)

    def join_heads(self, x: str, tokens: int) -> str:
        y = self.node("Transpose", x, perm=[0, 2, 1, 3])
        return self.node("Reshape", y, self.constant(np.array([1, tokens, self.width])))

    def attend(self, q: str, k_transposed: str, v: str, mask: str | None = None) -> str:
        scores = self.node("Div", self.node("MatMul", q, k_transposed), self.constant(np.float32(self.depth**0.5)))
        if mask is not None:
            scores = self.node("Add", scores, mask)
        return self.node("MatMul", self.node("Softmax", scores, axis=-1), v)


def minilm(tokens: int = 128, layers: int = 6, vocabulary: int = 2000) -> onnx.ModelProto:
    """An encoder of MiniLM-L6's size, with an attention mask, as exported from BERT."""
    b = Transformer("minilm", width=384, heads=12)
    ids = b.input([1, tokens], INT64, "input_ids")
    mask = b.node("Unsqueeze", b.input([1, tokens], INT64, "attention_mask"), b.constant(np.array([1, 2])))
    mask = b.node("Sub", b.constant(np.float32(1)), b.node("Cast", mask, to=TensorProto.FLOAT))
    mask = b.node("Mul", mask, b.constant(np.float32(-10000)))
    x = b.node("Gather", b.constant(b.normal(vocabulary, b.width)), ids)
    x = b.norm(b.node("Add", x, b.constant(b.normal(tokens, b.width, scale=0.3))), 1e-12)
    for _ in range(layers):
        q = b.split_heads(b.linear(x, b.width, b.width), tokens)
        k = b.split_heads(b.linear(x, b.width, b.width), tokens, (0, 2, 3, 1))
        v = b.split_heads(b.linear(x, b.width, b.width), tokens)
        y = b.linear(b.join_heads(b.attend(q, k, v, mask), tokens), b.width, b.width)
        x = b.norm(b.node("Add", y, x), 1e-12)
        y = b.linear(b.gelu(b.linear(x, b.width, 4 * b.width)), 4 * b.width, b.width)
        x = b.norm(b.node("Add", y, x), 1e-12)
    b.output(x, [1, tokens, b.width])
    return b.model()


def gpt_step(past: int | str = 127, layers: int = 6, vocabulary: int = 8000) -> onnx.ModelProto:
    """One decoding step of a GPT-2-like model: a token in, logits and the grown key-value cache out. `past` may be the
    name of a size that differs from run to run."""
    grown_size = past + 1 if isinstance(past, int) else f"{past} + 1"
    b = Transformer("gpt", width=384, heads=6)
    x = b.node("Gather", b.constant(b.normal(vocabulary, b.width)), b.input([1, 1], INT64, "input_ids"))
    x = b.node("Add", x, b.node("Gather", b.constant(b.normal(256, b.width)), b.input([1, 1], INT64, "position_ids")))
    cache = [1, b.heads, past, b.depth]
    for layer in range(layers):
        y = b.norm(x, 1e-5)
        q, k, v = b.node("Split", b.linear(y, b.width, 3 * b.width), outputs=3, axis=-1, num_outputs=3)
        q, k, v = (b.split_heads(part, 1) for part in (q, k, v))
        k = b.node("Concat", b.input(cache, name=f"past.{layer}.key"), k, axis=2)
        v = b.node("Concat", b.input(cache, name=f"past.{layer}.value"), v, axis=2)
        for grown in (k, v):
            b.output(grown, [1, b.heads, grown_size, b.depth])
        y = b.join_heads(b.attend(q, b.node("Transpose", k, perm=[0, 1, 3, 2]), v), 1)
        x = b.node("Add", x, b.linear(y, b.width, b.width))
        y = b.linear(b.norm(x, 1e-5), b.width, 4 * b.width)
        x = b.node("Add", x, b.linear(b.node("Gelu", y, approximate="tanh"), 4 * b.width, b.width))
    logits = b.node("MatMul", b.norm(x, 1e-5), b.constant(b.normal(b.width, vocabulary, scale=b.width**-0.5)))
    b.output(logits, [1, 1, vocabulary])
    return b.model()


def quantized(model: onnx.ModelProto, feeds: dict[str, np.ndarray]) -> onnx.ModelProto:
    """The model with 8-bit weights and activations in QDQ form, by onnxruntime's static quantiser.

    Weights keep to 7 bits: products of 8-bit activations with them never saturate, whatever the processor.
    """
    import tempfile
    from pathlib import Path

    from onnxruntime import quantization

    class Samples(quantization.CalibrationDataReader):
        def __init__(self) -> None:
            self.left = [feeds]

        def get_next(self) -> dict[str, np.ndarray] | None:  # type: ignore[override]
            return self.left.pop() if self.left else None

    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder) / "model.onnx", Path(folder) / "quantized.onnx"
        onnx.save(model, source)
        quantization.quantize_static(source, target, Samples(), per_channel=True, reduce_range=True)
        return onnx.load(target)
