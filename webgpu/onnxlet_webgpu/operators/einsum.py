"""Einsum, and the determinant: one invocation computes one output element."""

from __future__ import annotations

from math import prod

from ..lowering import Lowering, lowering
from ..wgsl import contiguous_strides
from .arithmetic import NUMBERS, at, combined, zero


def labels_of(equation: str, ranks: list[int]) -> tuple[list[list[str]], list[str]]:
    """The labels of every operand's dimensions and of the result's; those of an ellipsis are numbers."""
    equation = equation.replace(" ", "")
    left, arrow, right = equation.partition("->")
    terms = left.split(",")
    spread = 0
    for term, rank in zip(terms, ranks, strict=True):
        if "..." in term:
            spread = max(spread, rank - len(term.replace("...", "")))

    def expand(term: str, count: int) -> list[str]:
        before, dots, after = term.partition("...")
        middle = [str(spread - count + k) for k in range(count)] if dots else []
        return [*before, *middle, *after]

    operands = [expand(term, rank - len(term.replace("...", ""))) for term, rank in zip(terms, ranks, strict=True)]
    if arrow:
        return operands, expand(right, spread)
    every = [label for operand in operands for label in operand]
    once = sorted(label for label in set(every) if every.count(label) == 1 and not label.isdigit())
    return operands, [*(str(k) for k in range(spread)), *once]


@lowering("Einsum")
def einsum(n: Lowering) -> None:
    count = len(n.step.node.inputs)
    tensors = [n.input(i, *NUMBERS) for i in range(count)]
    out = n.output(0, *NUMBERS)
    equation = n.attribute("equation")
    operands, result = labels_of(equation, [len(t.shape) for t in tensors])
    sizes: dict[str, int] = {}
    for labels, t in zip(operands, tensors, strict=True):
        for label, size in zip(labels, t.shape, strict=True):
            sizes[label] = max(size, sizes.get(label, 1))
    if tuple(sizes[label] for label in result) != out.shape:
        n.refuse("its equation does not lead to the output's shape")
    summed = [label for label in sizes if label not in result]
    names = {label: f"d{k}" for k, label in enumerate(sizes)}
    lines = [f"let {names[label]} = {at(out.shape, d)};" for d, label in enumerate(result)]
    lines.append(f"var total = {zero(out)};")
    indent = ""
    for label in summed:
        name = names[label]
        lines.append(f"{indent}for (var {name} = 0u; {name} < {sizes[label]}u; {name}++) {{")
        indent += "    "
    product = ""
    for k, (labels, t) in enumerate(zip(operands, tensors, strict=True)):
        terms = [
            f"{names[label]} * {stride}u"
            for label, size, stride in zip(labels, t.shape, contiguous_strides(t.shape), strict=True)
            if size > 1
        ]
        value = f"x{'abcdefgh'[k]}[{' + '.join(terms) or '0u'}]"
        product = value if not product else combined("mul", out.kind, product, value)
    lines.append(f"{indent}total = {combined('add', out.kind, 'total', product)};")
    lines += ["    " * d + "}" for d in reversed(range(len(summed)))]
    lines.append("store(i, total);")
    reads = [t.binding(f"x{'abcdefgh'[k]}") for k, t in enumerate(tensors)]
    n.emit_flat(n.title(*tensors, note=equation.replace(" ", "")), reads, "\n".join(lines), out)


LARGEST_DETERMINANT = 16


@lowering("Det")
def det(n: Lowering) -> None:
    """By elimination with the greatest element of each column as its pivot."""
    x, out = n.input(0), n.output(0, "float32")
    size = x.shape[-1]
    if size > LARGEST_DETERMINANT or prod(x.shape[-2:]) != size * size:
        n.refuse(f"determinants of more than {LARGEST_DETERMINANT} rows have no GPU kernel")
    statements = f"""
var m: array<f32, {size * size}>;
for (var k = 0u; k < {size * size}u; k++) {{ m[k] = x[i * {size * size}u + k]; }}
var result = 1.0;
for (var c = 0u; c < {size}u; c++) {{
    var pivot = c;
    for (var r = c + 1u; r < {size}u; r++) {{
        if (abs(m[r * {size}u + c]) > abs(m[pivot * {size}u + c])) {{ pivot = r; }}
    }}
    let top = m[pivot * {size}u + c];
    result = result * select(top, -top, pivot != c);
    for (var k = c; k < {size}u; k++) {{
        let swapped = m[pivot * {size}u + k];
        m[pivot * {size}u + k] = m[c * {size}u + k];
        m[c * {size}u + k] = swapped;
    }}
    for (var r = c + 1u; r < {size}u; r++) {{
        let factor = select(m[r * {size}u + c] / top, 0.0, top == 0.0);
        for (var k = c; k < {size}u; k++) {{ m[r * {size}u + k] -= factor * m[c * {size}u + k]; }}
    }}
}}
store(i, result);
"""
    n.emit_flat(n.title(x), [x.binding("x")], statements, out)
