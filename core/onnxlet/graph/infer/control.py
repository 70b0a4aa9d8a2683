"""Control flow, sequences and optionals.

What a body gives is known here by its declared element types alone: its shapes follow from values around it.
`infer_graph` looks into bodies.
"""

from __future__ import annotations

from ...model.dtypes import dtype_of as element_dtype
from ..ir import Graph, Node, OptionalType, SequenceType, TensorType, Type
from .common import BOOL, INT64, Constants, Inputs, Shape, axis_of, common, dims, tensor
from .registry import infer


def loose(type_: Type | None) -> Type | None:
    """A type without its shapes."""
    if isinstance(type_, TensorType):
        return TensorType(type_.dtype, None)
    if isinstance(type_, SequenceType):
        return SequenceType(loose(type_.element))
    if isinstance(type_, OptionalType):
        return OptionalType(loose(type_.element))
    return type_


def meet(a: Type | None, b: Type | None) -> Type | None:
    """What two possible types of a value have in common."""
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        return TensorType(a.dtype if a.dtype == b.dtype else None, common(a.shape, b.shape))
    if isinstance(a, SequenceType) and isinstance(b, SequenceType):
        return SequenceType(meet(a.element, b.element))
    if isinstance(a, OptionalType) and isinstance(b, OptionalType):
        return OptionalType(meet(a.element, b.element))
    return a if a == b else None


@infer("If")
def if_(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    bodies = [node.attributes.get("then_branch"), node.attributes.get("else_branch")]
    declared = [[loose(b.types.get(o)) for o in b.outputs] for b in bodies if isinstance(b, Graph)]
    if len(declared) < 2 or len(declared[0]) != len(declared[1]):
        return [None] * len(node.outputs)
    return [meet(a, b) for a, b in zip(*declared, strict=True)]


@infer("Loop")
def loop(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    body = node.attributes.get("body")
    if not isinstance(body, Graph):
        return [None] * len(node.outputs)
    carried = len(inputs) - 2
    types: list[Type | None] = [loose(t) for t in inputs[2:]]
    types += [loose(body.types.get(o)) for o in body.outputs[1 + carried :]]
    return types


@infer("Scan")
def scan(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    body = node.attributes.get("body")
    if not isinstance(body, Graph):
        return [None] * len(node.outputs)
    return [loose(body.types.get(o)) for o in body.outputs]


@infer("SequenceEmpty")
def sequence_empty(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [SequenceType(TensorType(element_dtype(node.attributes.get("dtype", 1)), None))]


@infer("SequenceConstruct")
def sequence_construct(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    element = inputs[0]
    for other in inputs[1:]:
        element = meet(element, other)
    return [SequenceType(element)]


def _element(inputs: Inputs, index: int = 0) -> Type | None:
    type_ = inputs[index] if index < len(inputs) else None
    return type_.element if isinstance(type_, SequenceType) else None


@infer("SequenceAt")
def sequence_at(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [_element(inputs)]


@infer("SequenceInsert")
def sequence_insert(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [SequenceType(meet(_element(inputs), inputs[1] if len(inputs) > 1 else None))]


@infer("SequenceErase")
def sequence_erase(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [inputs[0]]


@infer("SequenceLength")
def sequence_length(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(INT64, ())]


@infer("SequenceMap")
def sequence_map(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    body = node.attributes.get("body")
    if not isinstance(body, Graph):
        return [None] * len(node.outputs)
    return [SequenceType(loose(body.types.get(o))) for o in body.outputs]


@infer("SplitToSequence")
def split_to_sequence(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    data = tensor(node, inputs, 0)
    if data.shape is None:
        return [SequenceType(data)]
    axis = axis_of(node, node.attributes.get("axis", 0), len(data.shape))
    whole = len(node.inputs) < 2 or not node.inputs[1]
    sizes = None if whole else dims(constants, 1)
    if whole and not node.attributes.get("keepdims", 1):
        return [SequenceType(TensorType(data.dtype, (*data.shape[:axis], *data.shape[axis + 1 :])))]
    part = 1 if whole else sizes[0] if sizes and len(set(sizes)) == 1 and len(sizes) > 1 else None
    return [SequenceType(TensorType(data.dtype, (*data.shape[:axis], part, *data.shape[axis + 1 :])))]


@infer("ConcatFromSequence")
def concat_from_sequence(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    element = _element(inputs)
    if not isinstance(element, TensorType):
        return [None]
    if element.shape is None:
        return [element]
    rank = len(element.shape)
    shape: Shape
    if node.attributes.get("new_axis", 0):
        axis = axis_of(node, node.attributes["axis"], rank + 1)
        shape = (*element.shape[:axis], None, *element.shape[axis:])
    else:
        axis = axis_of(node, node.attributes["axis"], rank)
        shape = (*element.shape[:axis], None, *element.shape[axis + 1 :])
    return [TensorType(element.dtype, shape)]


@infer("Optional")
def optional(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    declared = node.attributes.get("type")
    return [OptionalType(inputs[0] if inputs and inputs[0] is not None else declared)]


@infer("OptionalGetElement")
def optional_get_element(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    type_ = inputs[0]
    return [type_.element if isinstance(type_, OptionalType) else type_]


@infer("OptionalHasElement")
def optional_has_element(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [TensorType(BOOL, ())]
