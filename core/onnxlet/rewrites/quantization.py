"""Quantised models: operators between DequantizeLinear and QuantizeLinear become operators on the integers themselves,
and what follows a product of dynamically quantised matrices goes into it.

Sums of products of integers are exact, and are rounded once to the result's steps. A result may therefore differ from
the one that float32 gives by one step, where that lies close to the middle between two.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ..graph.ir import Node, TensorType
from .activations import clip_bounds
from .editor import Editor

MICROSOFT = "com.microsoft"
BYTES = (np.dtype(np.uint8), np.dtype(np.int8))
F32, I32 = np.dtype(np.float32), np.dtype(np.int32)

MOVES = frozenset(
    {"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten", "Slice", "MaxPool", "Identity", "DepthToSpace",
     "SpaceToDepth", "Gather", "Resize"}
)  # fmt: skip
"""Operators whose elements are some of their first input's elements."""


@dataclass(frozen=True, slots=True)
class Quantized:
    """An 8-bit tensor with the names of its scale and zero point, which are constants."""

    data: str
    scale: str
    zero: str
    dtype: np.dtype

    @property
    def names(self) -> list[str]:
        return [self.data, self.scale, self.zero]


def text(value: str | bytes) -> str:
    return value.decode() if isinstance(value, bytes) else value


def is_dequantize(editor: Editor, node: Node | None) -> bool:
    """Whether a node makes float32 of bytes, not by blocks, with a constant scale and zero point."""
    if node is None or node.op_type != "DequantizeLinear" or node.domain not in ("", MICROSOFT):
        return False
    return editor.dtype(node.inputs[0]) in BYTES and _constant_parameters(editor, node)


def _constant_parameters(editor: Editor, node: Node) -> bool:
    scale = editor.constant(node.inputs[1])
    zero = editor.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if scale is None or scale.dtype != F32 or len(scale.shape) > 1 or node.attributes.get("block_size"):
        return False
    return not (len(node.inputs) > 2 and node.inputs[2]) or zero is not None


def _zero(editor: Editor, node: Node, dtype: np.dtype) -> str:
    """The name of a node's zero point; where there is none, of zeros."""
    if len(node.inputs) > 2 and node.inputs[2]:
        return node.inputs[2]
    zeros = np.zeros(editor.shape(node.inputs[1]) or (), dtype)  # type: ignore[arg-type]
    name = "_".join(["zero_point", dtype.name, *map(str, zeros.shape)])
    known = editor.constant(name)
    if known is not None and known.dtype == dtype and known.shape == zeros.shape and not known.numpy().any():
        return name
    return editor.add_constant(name, zeros)


def dequantized(editor: Editor, name: str, axis: int | None = None) -> Quantized | None:
    """What a value is dequantised from, with one scale, or one per element of `axis` if that is given; else `None`."""
    node = editor.producer.get(name)
    if node is None or not is_dequantize(editor, node):
        return None
    scale, shape = editor.constant(node.inputs[1]), editor.shape(node.inputs[0])
    assert scale is not None
    if scale.size != 1 and (
        axis is None or shape is None or node.attributes.get("axis", 1) % len(shape) != axis % len(shape)
    ):
        return None
    dtype = editor.dtype(node.inputs[0])
    assert dtype is not None
    return Quantized(node.inputs[0], node.inputs[1], _zero(editor, node, dtype), dtype)


@dataclass(frozen=True, slots=True)
class Ending:
    """What quantises a private value: the nodes, with the activation before them; the parameters; the integers that the
    activation keeps to, where these are not all."""

    nodes: list[Node]
    scale: str
    zero: str
    dtype: np.dtype
    bounds: tuple[int, int] | None

    @property
    def result(self) -> str:
        return self.nodes[-1].outputs[0]


def _ending(editor: Editor, value: str) -> Ending | None:
    nodes: list[Node] = []
    low, high = -math.inf, math.inf
    node = editor.sole_user(value)
    if node is not None and not node.domain and node.op_type in ("Relu", "Clip"):
        bounds = (0.0, math.inf) if node.op_type == "Relu" else clip_bounds(editor, node)
        if bounds is None or bounds[0] > bounds[1]:
            return None
        low, high = bounds
        nodes.append(node)
        node = editor.sole_user(node.outputs[0])
    if node is None or node.op_type != "QuantizeLinear" or node.domain not in ("", MICROSOFT):
        return None
    scale = editor.constant(node.inputs[1])
    if scale is None or scale.size != 1 or not _constant_parameters(editor, node) or node.attributes.get("precision"):
        return None
    if node.attributes.get("output_dtype", 2) not in (2, 3):
        return None
    dtype = BYTES[node.attributes.get("output_dtype", 2) == 3]
    zero = editor.constant(node.inputs[2]) if len(node.inputs) > 2 and node.inputs[2] else None
    if zero is not None:
        dtype = zero.dtype
    if dtype not in BYTES:
        return None
    point = np.zeros((), dtype) if zero is None else zero.numpy()
    from ..ops.quantize import quantize

    kept = quantize(np.array([low, high], F32), scale.numpy(), point).tolist()
    limits = np.iinfo(dtype)
    bounds = None if kept == [limits.min, limits.max] else (kept[0], kept[1])
    if bounds is not None and node.version < 12:  # Clip takes no bytes
        return None
    return Ending([*nodes, node], node.inputs[1], _zero(editor, node, dtype), dtype, bounds)


def _replace(editor: Editor, used: list[Node], new: Node, ending: Ending) -> None:
    """Put `new`, which makes the ending's result but for its bounds, in the place of the nodes."""
    result, version = ending.result, ending.nodes[-1].version
    nodes = [new]
    if ending.bounds is not None:
        unbounded = editor.new_name(f"{result}_unbounded")
        new.outputs = [unbounded]
        bounds = [editor.add_constant("bound", np.array(b, ending.dtype)) for b in ending.bounds]
        nodes.append(Node("Clip", [unbounded, *bounds], [result], {}, "", version, new.label))
    else:
        new.outputs = [result]
    editor.replace([*used, *ending.nodes], nodes)


def fuse_quantized(editor: Editor) -> int:
    """Convolutions and products between DequantizeLinear and QuantizeLinear become QLinearConv, QLinearMatMul and
    QGemm; products that stay float32 MatMulIntegerToFloat and QGemm."""
    changes = 0
    for node in editor.nodes(*_FUSIONS):
        changes += _FUSIONS[node.op_type](editor, node)
    return changes


def _fuse_conv(editor: Editor, conv: Node) -> bool:
    x, w = dequantized(editor, conv.inputs[0]), dequantized(editor, conv.inputs[1], 0)
    ending = _ending(editor, conv.outputs[0])
    if x is None or w is None or ending is None or editor.constant(w.data) is None:
        return False
    inputs = [*x.names, *w.names, ending.scale, ending.zero]
    if len(conv.inputs) > 2 and conv.inputs[2]:
        bias = _whole_bias(editor, conv.inputs[2], x, w)
        if bias is None:
            return False
        inputs.append(bias)
    new = Node("QLinearConv", inputs, [], dict(conv.attributes), "", ending.nodes[-1].version, conv.label)
    _replace(editor, [conv], new, ending)
    return True


def _whole_bias(editor: Editor, name: str, x: Quantized, w: Quantized, axis: int = 0) -> str | None:
    """The name of a bias in units of a product of `x` and `w`; `None` if it is not constant, or sums could overflow.

    `axis` is that of the outputs in `w`.
    """
    unit = editor.constant(x.scale).numpy().reshape(-1) * editor.constant(w.scale).numpy().reshape(-1)  # type: ignore[union-attr]
    maker = editor.producer.get(name)
    whole: np.ndarray | None = None
    if maker is not None and maker.op_type == "DequantizeLinear" and _constant_parameters(editor, maker):
        data, scale = editor.constant(maker.inputs[0]), editor.constant(maker.inputs[1])
        zero = editor.constant(maker.inputs[2]) if len(maker.inputs) > 2 and maker.inputs[2] else None
        if data is None or scale is None or len(data.shape) != 1:
            return None
        if (
            data.dtype == I32
            and (zero is None or not zero.numpy().any())
            and np.allclose(scale.numpy().reshape(-1), unit, rtol=1e-5, atol=0)
        ):
            whole = data.numpy()
        from ..ops.quantize import dequantize

        real = dequantize(data.numpy(), scale.numpy(), None if zero is None else zero.numpy(), 0)
    else:
        tensor = editor.constant(name)
        if tensor is None or tensor.dtype != F32 or len(tensor.shape) != 1:
            return None
        real = tensor.numpy()
    weights, zero_point = editor.constant(w.data), editor.constant(w.zero)
    assert weights is not None
    assert zero_point is not None
    values = np.moveaxis(weights.numpy(), axis, 0).astype(np.int64)
    points = zero_point.numpy().astype(np.int64).reshape(-1, *(1,) * (values.ndim - 1))
    largest = 255 * np.abs(values - points).reshape(len(values), -1).sum(axis=1)
    if real.shape != (len(values),):
        return None
    if whole is None:
        with np.errstate(all="ignore"):
            ratio = np.rint(real.astype(np.float64) / unit)
        if not np.isfinite(ratio).all() or (np.abs(ratio) >= 2**31).any():
            return None
        whole = ratio.astype(np.int64)
    if (np.abs(whole.astype(np.int64)) + largest >= 2**31).any():
        return None
    return editor.add_constant("bias_quantized", whole.astype(np.int32))


def _fuse_matmul(editor: Editor, product: Node) -> bool:
    a, b = dequantized(editor, product.inputs[0]), dequantized(editor, product.inputs[1], -1)
    shapes = [editor.shape(name) for name in product.inputs]
    if a is None or b is None or any(s is None or len(s) < 2 for s in shapes):
        return False
    if editor.constant(b.scale).size != 1 and len(shapes[1] or ()) != 2:  # type: ignore[union-attr]
        return False
    ending = _ending(editor, product.outputs[0])
    if ending is not None:
        inputs = [*a.names, *b.names, ending.scale, ending.zero]
        new = Node("QLinearMatMul", inputs, [], {}, "", ending.nodes[-1].version, product.label)
        _replace(editor, [product], new, ending)
        return True
    inputs = [a.data, b.data, a.scale, b.scale, a.zero, b.zero]
    editor.replace([product], [Node("MatMulIntegerToFloat", inputs, product.outputs, {}, MICROSOFT, 1, product.label)])
    return True


def _fuse_gemm(editor: Editor, product: Node) -> bool:
    attributes = dict(product.attributes)
    transposed = bool(attributes.get("transB", 0))
    a, b = dequantized(editor, product.inputs[0]), dequantized(editor, product.inputs[1], 0 if transposed else 1)
    if a is None or b is None or attributes.pop("beta", 1.0) != 1.0 or attributes.get("alpha", 1.0) != 1.0:
        return False
    if attributes.get("transA", 0) or editor.constant(b.data) is None or product.version < 7:
        return False
    bias = ""
    if len(product.inputs) > 2 and product.inputs[2]:
        found = _whole_bias(editor, product.inputs[2], a, b, 0 if transposed else 1)
        if found is None:
            return False
        bias = found
    ending = _ending(editor, product.outputs[0])
    inputs = [*a.names, *b.names, bias]
    new = Node("QGemm", inputs, product.outputs, attributes, MICROSOFT, 1, product.label)
    if ending is None:
        editor.replace([product], [new])
    else:
        new.inputs += [ending.scale, ending.zero]
        _replace(editor, [product], new, ending)
    return True


_FUSIONS: dict[str, Callable[[Editor, Node], bool]] = {
    "Conv": _fuse_conv, "MatMul": _fuse_matmul, "Gemm": _fuse_gemm
}  # fmt: skip


def _same(editor: Editor, one: str, other: str) -> bool:
    """Whether two constants of one element are equal."""
    if one == other:
        return True
    a, b = editor.constant(one), editor.constant(other)
    return (
        a is not None and b is not None and a.size == b.size == 1 and a.dtype == b.dtype
        and bool(a.numpy().reshape(()) == b.numpy().reshape(()))
    )  # fmt: skip


def sink_dequantize(editor: Editor) -> int:
    """Move the bytes instead of the numbers that they stand for, quantise constants, and quantise again nothing that
    has just been dequantised with the same scale."""
    steps = (_quantize_constant, _transpose_weights, _sink, _cancel)
    return sum(any(step(editor, node) for step in steps) for node in editor.nodes())


def _quantize_constant(editor: Editor, q: Node) -> bool:
    """Weights that are stored as numbers, to be quantised when the model is loaded."""
    values = editor.constant(q.inputs[0]) if q.op_type == "QuantizeLinear" and q.inputs else None
    if values is None or values.dtype != F32 or q.domain or not editor.private(q.outputs[0]):
        return False
    if not _constant_parameters(editor, q) or q.attributes.get("precision") or q.attributes.get("output_dtype"):
        return False
    scale = editor.constant(q.inputs[1])
    zero = editor.constant(_zero(editor, q, BYTES[0]))
    if scale is None or zero is None or zero.dtype not in BYTES:
        return False
    from ..ops.quantize import quantize

    result = quantize(values.numpy(), scale.numpy(), zero.numpy(), q.attributes.get("axis", 1))
    editor.replace([q], [])
    editor.rename_reads(q.outputs[0], editor.add_constant(q.outputs[0], result))
    return True


def _transpose_weights(editor: Editor, move: Node) -> bool:
    """Constant bytes whose numbers are transposed lie so from the beginning."""
    if move.domain or move.op_type != "Transpose" or not editor.private(move.outputs[0]):
        return False
    maker = editor.producer.get(move.inputs[0])
    if maker is None or not is_dequantize(editor, maker):
        return False
    data = editor.constant(maker.inputs[0])
    if data is None or len(data.shape) < 2:
        return False
    order = move.attributes.get("perm") or list(range(len(data.shape)))[::-1]
    axis = maker.attributes.get("axis", 1) % len(data.shape)
    name = editor.add_constant(f"{maker.inputs[0]}_transposed", np.transpose(data.numpy(), order))
    attributes = {**maker.attributes, "axis": list(order).index(axis)}
    inputs = [name, *maker.inputs[1:]]
    new = Node("DequantizeLinear", inputs, list(move.outputs), attributes, maker.domain, maker.version, maker.label)
    editor.replace([move], [new])
    return True


def _sink(editor: Editor, move: Node) -> bool:
    if move.domain or not move.inputs or any(move.outputs[1:]) or not editor.private(move.outputs[0]):
        return False
    if move.op_type == "Concat":
        sources = [dequantized(editor, name) for name in move.inputs]
    elif move.op_type in MOVES and _moves_bytes(move):
        sources = [dequantized(editor, move.inputs[0])]
    else:
        return False
    found = [s for s in sources if s is not None]
    if len(found) < len(sources) or any(editor.sole_user(name) is not move for name in move.inputs[: len(found)]):
        return False
    first = found[0]
    if not all(_same(editor, s.scale, first.scale) and _same(editor, s.zero, first.zero) for s in found):
        return False
    makers = [editor.producer[name] for name in move.inputs[: len(found)]]
    moved = editor.new_name(f"{move.outputs[0]}_quantized")
    inputs = [*(s.data for s in found), *move.inputs[len(found) :]]
    new = Node(move.op_type, inputs, [moved], dict(move.attributes), "", move.version, move.label)
    back = Node("DequantizeLinear", [moved, *makers[0].inputs[1:]], list(move.outputs), {}, makers[0].domain,
                makers[0].version, makers[0].label)  # fmt: skip
    editor.replace([*makers, move], [new, back])
    editor.types[moved] = TensorType(first.dtype, editor.shape(move.outputs[0]))
    return True


def _moves_bytes(move: Node) -> bool:
    """Whether an operator among `MOVES` takes bytes and computes nothing."""
    if move.op_type == "MaxPool":
        return move.version >= 12
    return move.op_type != "Resize" or text(move.attributes.get("mode", "nearest")) == "nearest"


def _cancel(editor: Editor, q: Node) -> bool:
    """QuantizeLinear of what DequantizeLinear gives is what there was before."""
    if q.op_type != "QuantizeLinear" or q.domain not in ("", MICROSOFT) or not editor.private(q.outputs[0]):
        return False
    source = dequantized(editor, q.inputs[0])
    if source is None or not _same(editor, source.scale, q.inputs[1]):
        return False
    scale = editor.scalar(source.scale)
    if not _same(editor, source.zero, _zero(editor, q, BYTES[0])) or scale is None or not 0 < scale < math.inf:
        return False
    editor.replace([q], [])
    editor.rename_reads(q.outputs[0], source.data)
    return True


def sink_gather(editor: Editor) -> int:
    """Gather rows of a table of bytes, and then make numbers of these alone."""
    return sum(_sink_gather(editor, node) for node in editor.nodes("Gather"))


def _sink_gather(editor: Editor, gather: Node) -> bool:
    table, rank = gather.inputs[0], 2
    maker = editor.made_by(table, "Mul", "DequantizeLinear")
    shape = editor.shape(table)
    if maker is None or gather.attributes.get("axis", 0) or shape is None or len(shape) != rank:
        return False
    if maker.op_type == "Mul":
        casts = [(editor.made_by(a, "Cast"), b) for a, b in (maker.inputs, maker.inputs[::-1])]
        cast, scale_name = next(((c, b) for c, b in casts if c is not None), (None, ""))
        if cast is None or cast.attributes.get("to") != 1:
            return False
        data, zero, to_float = cast.inputs[0], None, cast
    else:
        if not is_dequantize(editor, maker):
            return False
        data, scale_name, to_float = maker.inputs[0], maker.inputs[1], None
        zero = editor.constant(maker.inputs[2]) if len(maker.inputs) > 2 and maker.inputs[2] else None
    bytes_, scale = editor.constant(data), editor.constant(scale_name)
    if bytes_ is None or scale is None or bytes_.dtype not in BYTES or scale.dtype != F32:
        return False
    if to_float is None and scale.size == 1:
        return False  # sink_dequantize does that
    scales = scale.numpy()
    if to_float is None:
        by_rows = maker.attributes.get("axis", 1) % rank == 0
        scales = scales.reshape((-1, 1) if by_rows else (1, -1))
    if scales.ndim > rank or (zero is not None and zero.numpy().any()):
        return False
    scales = scales.reshape((1,) * (rank - scales.ndim) + scales.shape)
    rows, result = editor.new_name(f"{gather.outputs[0]}_bytes"), gather.outputs[0]
    version, label = gather.version, gather.label
    numbers = editor.new_name(f"{result}_unscaled")
    nodes = [
        Node("Gather", [data, gather.inputs[1]], [rows], {"axis": 0}, "", version, label),
        Node("Cast", [rows], [numbers], {"to": 1}, "", version if to_float is None else to_float.version, label),
    ]
    factor = editor.add_constant(f"{scale_name}_rows", scales)
    if len(scales) > 1:
        picked = editor.new_name(f"{result}_scales")
        nodes.append(Node("Gather", [factor, gather.inputs[1]], [picked], {"axis": 0}, "", version, label))
        factor = picked
    nodes.append(Node("Mul", [numbers, factor], [result], {}, "", version, label))
    editor.replace([gather], nodes)
    return True


def fuse_dynamic_quantized(editor: Editor) -> int:
    """MatMulInteger, Cast to float32, Mul by the product of both scales, and Add of a bias become
    MatMulIntegerToFloat."""
    changes = sum(_fuse_dynamic(editor, node) for node in editor.nodes("MatMulInteger"))
    products = [n for n in editor.nodes() if n.domain == MICROSOFT and n.op_type == "MatMulIntegerToFloat"]
    return changes + sum(_add_bias(editor, node) for node in products)


def _bias_after(editor: Editor, value: str, columns: object) -> tuple[Node, str] | None:
    """The Add of a constant vector to a private value, and the vector's name."""
    add = editor.sole_user(value)
    if add is None or add.domain or add.op_type != "Add" or add.version < 7 or add.inputs[0] == add.inputs[1]:
        return None
    bias = add.inputs[1] if add.inputs[0] == value else add.inputs[0]
    tensor = editor.constant(bias)
    return None if tensor is None or tensor.shape != (columns,) or tensor.dtype != F32 else (add, bias)


def _add_bias(editor: Editor, product: Node) -> bool:
    shape = editor.shape(product.inputs[1])
    if len(product.inputs) > 6 or shape is None or editor.dtype(product.inputs[2]) != F32:
        return False
    found = _bias_after(editor, product.outputs[0], shape[-1])
    if found is None:
        return False
    add, bias = found
    inputs = [*[*product.inputs, "", ""][:6], bias]
    new = Node(product.op_type, inputs, add.outputs, {}, MICROSOFT, 1, product.label)
    editor.replace([product, add], [new])
    return True


def _fuse_dynamic(editor: Editor, product: Node) -> bool:
    cast = editor.sole_user(product.outputs[0])
    if cast is None or cast.domain or cast.op_type != "Cast" or cast.attributes.get("to") != 1:
        return False
    scaled = editor.sole_user(cast.outputs[0])
    if scaled is None or scaled.domain or scaled.op_type != "Mul" or scaled.version < 7:
        return False
    name = scaled.inputs[1] if scaled.inputs[0] == cast.outputs[0] else scaled.inputs[0]
    scales = editor.made_by(name, "Mul")
    shape, columns = editor.shape(product.inputs[1]), None
    if scales is None or shape is None or len(shape) != 2 or name == cast.outputs[0]:
        return False
    columns = shape[1]
    for a_scale, b_scale in (scales.inputs, scales.inputs[::-1]):
        a_shape, b_shape = editor.shape(a_scale), editor.shape(b_scale)
        if editor.dtype(a_scale) == editor.dtype(b_scale) == F32 and a_shape in ((), (1,)) and (
            b_shape in ((), (1,)) or (b_shape == (columns,) and isinstance(columns, int))
        ):  # fmt: skip
            break
    else:
        return False
    zeros = [*product.inputs[2:], "", ""][:2]
    if not all(not z or editor.shape(z) in ((), (1,)) for z in zeros[:1]):
        return False
    used, result = [product, cast, scaled], scaled
    inputs = [*product.inputs[:2], a_scale, b_scale, *zeros]
    found = _bias_after(editor, scaled.outputs[0], columns)
    if found is not None:
        result = found[0]
        used.append(result)
        inputs.append(found[1])
    editor.replace(used, [Node("MatMulIntegerToFloat", inputs, result.outputs, {}, MICROSOFT, 1, product.label)])
    return True
