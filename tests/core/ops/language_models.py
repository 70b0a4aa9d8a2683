"""Small language models as graphs, with random weights: what the operators that generate text search in."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

VOCABULARY, HEADS, SIZE = 11, 2, 3
HIDDEN = HEADS * SIZE
FLOAT, INT32 = TensorProto.FLOAT, TensorProto.INT32


class Sketch:
    """A graph in the making."""

    def __init__(self, seed: int = 0):
        self.generator = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []

    def __call__(self, operator: str, *inputs: Any, name: str = "", **attributes: Any) -> str:
        output = name or f"{operator}_{len(self.nodes)}"
        names = [x if isinstance(x, str) else self.constant(x) for x in inputs]
        self.nodes.append(helper.make_node(operator, names, [output], **attributes))
        return output

    def constant(self, values: Any) -> str:
        name = f"constant_{len(self.weights)}"
        array = np.array(values) if isinstance(values, (np.ndarray, np.generic)) else np.array(values, np.int64)
        self.weights.append(numpy_helper.from_array(array, name))
        return name

    def random(self, *shape: int) -> str:
        return self.constant(self.generator.normal(size=shape).astype(np.float32))

    def heads(self, x: str) -> str:
        """(batch, length, hidden) as (batch, heads, length, size)."""
        return self("Transpose", self("Reshape", x, [0, 0, HEADS, SIZE]), perm=[0, 2, 1, 3])

    def average(self, cache: str, mask: str) -> str:
        """(batch, 1, hidden): the average of a cache (batch, heads, length, size) where a mask (batch, length) is 1."""
        weight = self("Unsqueeze", self("Cast", mask, to=FLOAT), [1, 3])
        total = self("ReduceSum", self("Mul", cache, weight), [2], keepdims=1)
        mean = self("Div", total, self("ReduceSum", weight, [2], keepdims=1))
        return self("Reshape", self("Transpose", mean, perm=[0, 2, 1, 3]), [0, 0, HIDDEN])

    def logits(self, *parts: str) -> str:
        total = parts[0]
        for part in parts[1:]:
            total = self("Add", total, part)
        scaled = self("Mul", self("MatMul", self("Tanh", total), self.random(HIDDEN, VOCABULARY)), np.float32(2.5))
        return self("Identity", scaled, name="logits")

    def graph(self, inputs: list[tuple[str, int, list[Any]]], outputs: list[tuple[str, list[Any]]]) -> onnx.GraphProto:
        return helper.make_graph(
            self.nodes,
            "body",
            [helper.make_tensor_value_info(*i) for i in inputs],
            [helper.make_tensor_value_info(name, FLOAT, shape) for name, shape in outputs],
            self.weights,
        )


def gpt(seed: int = 0) -> onnx.GraphProto:
    """A decoder with one layer, whose cache is (2, batch, heads, length, size)."""
    s = Sketch(seed)
    words = s("Gather", s.random(VOCABULARY, HIDDEN), "input_ids")
    hidden = s("Add", words, s("Gather", s.random(32, HIDDEN), "position_ids"))
    new = s("Unsqueeze", s.heads(hidden), [0])
    cache = s("Concat", "past_0", s("Concat", new, s("Neg", new), axis=0), axis=3, name="present_0")
    keys, values = (s("Gather", cache, np.array(i, np.int64), axis=0) for i in (0, 1))
    s.logits(hidden, s.average(keys, "attention_mask"), s("Mul", s.average(values, "attention_mask"), np.float32(0.3)))
    state = [2, "batch", HEADS, "past", SIZE]
    return s.graph(
        [
            ("input_ids", INT32, ["batch", "length"]),
            ("position_ids", INT32, ["batch", "length"]),
            ("attention_mask", INT32, ["batch", "total"]),
            ("past_0", FLOAT, state),
        ],
        [("logits", ["batch", "length", VOCABULARY]), ("present_0", [*state[:3], "total", SIZE])],
    )


def gpt_with_buffers(seed: int = 0, whence: bool = False) -> tuple[onnx.GraphProto, onnx.GraphProto]:
    """A decoder whose attention grows its cache, and the same over a buffer (2, batch, heads, longest, size).

    The second is told the past's length and, with `whence`, how many beams there are and from which each token comes.
    """
    graphs = []
    for shared in (False, True):
        s = Sketch(seed)
        words = s("Gather", s.random(VOCABULARY, HIDDEN), "input_ids")
        hidden = s("Add", words, s("Gather", s.random(32, HIDDEN), "position_ids"))
        q, k, v = (s("MatMul", hidden, s.random(HIDDEN, HIDDEN)) for _ in range(3))
        past = [s("Gather", "past_0", np.array(i, np.int64), axis=0) for i in (0, 1)]
        total = s("Reshape", s("Cast", "attention_mask", to=FLOAT), [0, 1, 1, -1])
        nothing = s("Mul", s("Unsqueeze", s("ReduceSum", hidden, [2], keepdims=1), [1]), np.float32(0))
        bias = s("Add", s("Mul", s("Sub", np.float32(1), total), np.float32(-1e4)), nothing)  # a row for each query
        extra = [*(["past_sequence_length"] if shared else []), *(["cache_indirection"] if shared and whence else [])]
        names = ["seen", "present_k", "present_v"]
        s.nodes.append(
            helper.make_node(
                "MultiHeadAttention", [q, k, v, "", "", bias, *past, *extra], names, domain="com.microsoft",
                num_heads=HEADS, unidirectional=1,
            )
        )  # fmt: skip
        both = [s("Unsqueeze", n, [0]) for n in names[1:]]
        s("Concat", *both, axis=0, name="present_0")
        s.logits(hidden, "seen")
        state: list[Any] = [2, "batch", HEADS, "past", SIZE]
        inputs: list[tuple[str, int, list[Any]]] = [
            ("input_ids", INT32, ["batch", "length"]),
            ("position_ids", INT32, ["batch", "length"]),
            ("attention_mask", INT32, ["batch", "total"]),
            ("past_0", FLOAT, state),
        ]
        if shared:
            inputs.append(("past_sequence_length", INT32, [1]))
        if shared and whence:
            inputs.append(("beam_width", INT32, [1]))
            inputs.append(("cache_indirection", INT32, ["one", "beams", "longest"]))
        outputs = [("logits", ["batch", "length", VOCABULARY]), ("present_0", [*state[:3], "kept", SIZE])]
        graphs.append(s.graph(inputs, outputs))
    return graphs[0], graphs[1]


def cache_of(name: str, length: str) -> tuple[str, list[Any]]:
    return name, ["batch", HEADS, length, SIZE]


def encoder(first_step: bool, features: bool = False) -> onnx.GraphProto:
    """An encoder that gives the caches to look at across, or also the first step of the decoder.

    With `features` it takes numbers (batch, 4, length) instead of tokens and a mask.
    """
    s = Sketch(1)
    if features:
        hidden = s("MatMul", s("Transpose", "encoder_input_ids", perm=[0, 2, 1]), s.random(4, HIDDEN))
    else:
        hidden = s("Gather", s.random(VOCABULARY, HIDDEN), "encoder_input_ids")
    hidden = s("Identity", hidden, name="encoder_hidden_states")
    across = s("Identity", s.heads(hidden), name="present_key_cross_0")
    s("Neg", across, name="present_value_cross_0")
    ids = ("encoder_input_ids", FLOAT, ["batch", 4, "length"]) if features else (
        "encoder_input_ids", INT32, ["batch", "length"]
    )  # fmt: skip
    inputs = [ids] if features else [ids, ("encoder_attention_mask", INT32, ["batch", "length"])]
    outputs = [cache_of("present_key_cross_0", "length"), cache_of("present_value_cross_0", "length")]
    if first_step:
        word = s("Gather", s.random(VOCABULARY, HIDDEN), "decoder_input_ids")
        own = s("Identity", s.heads(word), name="present_key_self_0")
        s("Neg", own, name="present_value_self_0")
        s.logits(word, s("ReduceMean", "encoder_hidden_states", axes=[1], keepdims=1))
        inputs.append(("decoder_input_ids", INT32, ["batch", "prompt"]))
        outputs = [
            ("logits", ["batch", "prompt", VOCABULARY]),
            ("encoder_hidden_states", ["batch", "length", HIDDEN]),
            cache_of("present_key_self_0", "prompt"),
            cache_of("present_value_self_0", "prompt"),
            *outputs,
        ]
    return s.graph(inputs, outputs)


def decoder(hidden_states: bool, mask: bool = True, tokens: Any = 1, looks: bool = False) -> onnx.GraphProto:
    """A decoder with one layer. If it takes any number of `tokens`, it is given the whole sequence each time.

    It may also give how it looks at the encoder's caches (batch, heads, 1, length).
    """
    s = Sketch(2)
    word = s("Gather", s.random(VOCABULARY, HIDDEN), "input_ids")
    last = word if tokens == 1 else s("Slice", word, [-1], [2**31], [1])
    new = s.heads(last)
    keys = s("Concat", "past_key_self_0", new, axis=2, name="present_key_self_0")
    s("Concat", "past_value_self_0", s("Neg", new), axis=2, name="present_value_self_0")
    own = s("ReduceMean", keys, axes=[2], keepdims=1)
    own = s("Reshape", s("Transpose", own, perm=[0, 2, 1, 3]), [0, 0, HIDDEN])
    if mask:
        across = s.average("past_key_cross_0", "encoder_attention_mask")
    else:
        mean = s("ReduceMean", "past_key_cross_0", axes=[2], keepdims=1)
        across = s("Reshape", s("Transpose", mean, perm=[0, 2, 1, 3]), [0, 0, HIDDEN])
    parts = [last, own, across]
    if hidden_states:
        parts.append(s("ReduceMean", "encoder_hidden_states", axes=[1], keepdims=1))
    s.logits(*parts)
    inputs: list[tuple[str, int, list[Any]]] = [("input_ids", INT32, ["batch", tokens])]
    if mask:
        inputs.append(("encoder_attention_mask", INT32, ["batch", "length"]))
    if hidden_states:
        inputs.append(("encoder_hidden_states", FLOAT, ["batch", "length", HIDDEN]))
    for kind, length in (("self", "past"), ("cross", "length")):
        for part in ("key", "value"):
            name, shape = cache_of(f"past_{part}_{kind}_0", length)
            inputs.append((name, FLOAT, shape))
    outputs = [
        ("logits", ["batch", 1, VOCABULARY]),
        cache_of("present_key_self_0", "total"),
        cache_of("present_value_self_0", "total"),
    ]
    if looks:
        s("MatMul", new, s("Transpose", "past_key_cross_0", perm=[0, 1, 3, 2]), name="output_cross_qk_0")
        outputs.append(("output_cross_qk_0", ["batch", HEADS, 1, "length"]))
    return s.graph(inputs, outputs)


def searching(operator: str, inputs: dict[str, np.ndarray | None], outputs: int, **attributes: Any) -> bytes:
    """A model of one operator that generates text; constant inputs are those without a batch."""
    names = [name if value is not None else "" for name, value in inputs.items()]
    while not names[-1]:
        names.pop()
    results = [f"y{i}" for i in range(outputs)]
    node = helper.make_node(operator, names, results, domain="com.microsoft", **attributes)
    values = [
        helper.make_tensor_value_info(n, helper.np_dtype_to_tensor_dtype(v.dtype), v.shape)
        for n, v in inputs.items()
        if v is not None
    ]
    graph = helper.make_graph([node], "search", values, [onnx.ValueInfoProto(name=y) for y in results])
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8).SerializeToString()
