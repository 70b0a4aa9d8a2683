"""Einsum as sums, transpositions and matrix products, two operands at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain
from math import prod

from .common import F32, F64, I32, I64, need_types, text
from .expansion import Expansion, expand
from .registry import Refused


@dataclass(frozen=True, slots=True)
class Labelled:
    """A value whose axes have labels, each another."""

    name: str
    labels: tuple[str, ...]


@expand("Einsum")
def einsum(e: Expansion) -> None:
    names = list(e.step.node.inputs)
    need_types(e.step, (F32, F64, I32, I64))
    operands, result = _labels(text(e.step.attribute("equation")), [e.shape(n) for n in names])
    sizes: dict[str, int] = {}
    for name, labels in zip(names, operands, strict=True):
        for label, size in zip(labels, e.shape(name), strict=True):
            if sizes.setdefault(label, size) != size:
                raise Refused("an Einsum that broadcasts has no kernel")
    if not all(sizes.values()):
        raise Refused("an Einsum of nothing has no kernel")
    left = Labelled(names[0], operands[0])
    for i in range(1, len(names)):
        later = {*result, *chain(*operands[i + 1 :])}
        left = _contracted(e, left, Labelled(names[i], operands[i]), later, sizes)
    left = _summed(e, left, set(result))
    y = _ordered(e, left, result)
    e.reshape(y, [sizes[label] for label in result], e.output())


def _labels(equation: str, shapes: Sequence[tuple[int, ...]]) -> tuple[list[tuple[str, ...]], tuple[str, ...]]:
    """The labels of the operands' axes and of the result's. The axes behind an ellipsis are called 0, 1, ... from the
    last on."""
    given, arrow, wanted = equation.replace(" ", "").partition("->")
    terms = given.split(",")
    if len(terms) != len(shapes):
        raise Refused("an Einsum of other operands than it names has no kernel")
    operands, hidden = [], 0
    for term, shape in zip(terms, shapes, strict=True):
        before, dots, after = term.partition("...")
        more = len(shape) - len(before) - len(after)
        if more < 0 or (more and not dots):
            raise Refused("an Einsum of other axes than it names has no kernel")
        hidden = max(hidden, more)
        labels = (*before, *(str(n) for n in reversed(range(more))), *after)
        if len(set(labels)) < len(labels):
            raise Refused("an Einsum of a diagonal has no kernel")
        operands.append(labels)
    ellipsis = tuple(str(n) for n in reversed(range(hidden)))
    if arrow:
        before, dots, after = wanted.partition("...")
        result = (*before, *(ellipsis if dots else ()), *after)
    else:
        letters = [label for label in chain(*operands) if not label.isdigit()]
        result = (*ellipsis, *sorted(label for label in set(letters) if letters.count(label) == 1))
    return operands, result


def _summed(e: Expansion, x: Labelled, kept: set[str]) -> Labelled:
    """The sum over all axes whose labels are not kept."""
    axes = [i for i, label in enumerate(x.labels) if label not in kept]
    if not axes:
        return x
    shape = [n for i, n in enumerate(e.shape(x.name)) if i not in axes]
    total = e.add("ReduceSum", [x.name, e.literal(axes, I64)], shape, dtype=e.dtype(x.name), keepdims=0)
    return Labelled(total, tuple(label for label in x.labels if label in kept))


def _ordered(e: Expansion, x: Labelled, order: Sequence[str]) -> str:
    axes = [x.labels.index(label) for label in order]
    return x.name if axes == sorted(axes) else e.transpose(x.name, axes)


def _contracted(e: Expansion, a: Labelled, b: Labelled, later: set[str], sizes: dict[str, int]) -> Labelled:
    """The product of two operands, summed over what no one needs `later`."""
    a, b = _summed(e, a, {*later, *b.labels}), _summed(e, b, {*later, *a.labels})
    shared = [label for label in a.labels if label in b.labels]
    stack = [label for label in shared if label in later]
    inner = [label for label in shared if label not in later]
    rows = [label for label in a.labels if label not in shared]
    columns = [label for label in b.labels if label not in shared]

    def size(labels: Sequence[str]) -> int:
        return prod(sizes[label] for label in labels)

    # Where both orders take a transposition, that of the rows does as well as the other.
    flip_a = a.labels == (*stack, *inner, *rows) and bool(inner) and bool(rows)
    flip_b = b.labels == (*stack, *columns, *inner) and bool(inner) and bool(columns)
    first = _ordered(e, a, [*stack, *inner, *rows] if flip_a else [*stack, *rows, *inner])
    second = _ordered(e, b, [*stack, *columns, *inner] if flip_b else [*stack, *inner, *columns])
    m, n, k, outer = size(rows), size(columns), size(inner), size(stack)
    dtype = e.dtype(a.name)
    labels = (*stack, *rows, *columns)
    shape = [sizes[label] for label in labels]
    if not inner:
        y = e.binary("Mul", e.reshape(first, (outer, m, 1)), e.reshape(second, (outer, 1, n)), dtype=dtype)
        return Labelled(e.reshape(y, shape), labels)
    first = e.reshape(first, (outer, k, m) if flip_a else (outer, m, k))
    second = e.reshape(second, (outer, n, k) if flip_b else (outer, k, n))
    if outer == 1:  # a stack of one is none, which lets weights be packed once
        first, second = (e.reshape(x, e.shape(x)[1:]) for x in (first, second))
    product = (m, n) if outer == 1 else (outer, m, n)
    if dtype in (F32, F64):
        y = e.add("FusedMatMul", [first, second], product, dtype=dtype, domain="com.microsoft", version=1,
                  transA=int(flip_a), transB=int(flip_b))  # fmt: skip
    else:
        first, second = (
            e.transpose(x, (*range(len(product) - 2), len(product) - 1, len(product) - 2)) if flip else x
            for x, flip in ((first, flip_a), (second, flip_b))
        )
        y = e.add("MatMul", [first, second], product, dtype=dtype)
    return Labelled(e.reshape(y, shape), labels)
