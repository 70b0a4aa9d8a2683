"""How far two ways of computing a model are from each other: `compare`, for outputs and node by node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from ..graph.infer import infer_graph
from ..graph.ir import STRING, Graph, Model, TensorType
from ..model.dtypes import is_extended, spec_name, widen
from ..options import SessionOptions
from .engines import ENGINES, blocks, exposed
from .tables import table

BLOCK_BYTES = 256 << 20
"""Values of nodes that are kept at a time."""


@dataclass(frozen=True, slots=True)
class Tolerance:
    """What a difference may be: `relative` to the value itself, and `scaled` by the largest value of the tensor (sums
    of large terms that cancel are as wrong as their terms)."""

    relative: float
    scaled: float
    reason: str


EXACT = Tolerance(0, 0, "whole numbers, truth values and texts are exact")
TOLERANCES = {
    "float": Tolerance(1e-3, 1e-4, "float32 sums in another order, some hundred terms each, over many layers"),
    "double": Tolerance(1e-7, 1e-9, "float64 sums in another order"),
    "float16": Tolerance(2e-2, 4e-3, "float16 has 11 bits: every rounding is up to 5e-4"),
    "bfloat16": Tolerance(8e-2, 2e-2, "bfloat16 has 8 bits: every rounding is up to 4e-3"),
}
"""By element type, with the reason; types that aren't here are compared exactly."""


@dataclass(frozen=True, slots=True)
class Difference:
    """Of one value: how far apart the two are.

    `largest` is the largest absolute difference and `place` its index, `mean` the mean one, `scale` the largest finite
    magnitude of the second's values, `outside` the share of elements beyond the tolerance. `not_finite` are the numbers
    of NaNs and infinities in the one and the other.
    """

    name: str
    node: str
    operator: str
    type: str
    largest: float
    mean: float
    scale: float
    place: list[int]
    outside: float
    not_finite: tuple[int, int]
    within: bool
    problem: str = ""


@dataclass(slots=True)
class Comparison:
    """What `compare` found: differences of outputs, and of every node's values where they were asked for.

    `first` is the first node, in order, whose value is beyond the tolerance though all that it reads is within;
    `first_not_finite` the first whose value has NaNs or infinities in one of the two only.
    """

    first_side: str
    second_side: str
    outputs: list[Difference]
    nodes: list[Difference]
    first: Difference | None
    first_not_finite: Difference | None
    tolerances: dict[str, Tolerance]

    @property
    def agree(self) -> bool:
        """Whether all outputs are within the tolerance."""
        return all(d.within for d in self.outputs)

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data, ready for JSON."""
        return {**asdict(self), "agree": self.agree}

    def __str__(self) -> str:
        lines = [f"{self.first_side} against {self.second_side}: {'they agree' if self.agree else 'THEY DIFFER'}", ""]
        lines += _table(self.outputs)
        if self.nodes:
            wrong = sum(not d.within for d in self.nodes)
            lines += ["", f"{len(self.nodes)} values of nodes, {wrong} beyond the tolerance"]
            worst = sorted(self.nodes, key=lambda d: -_relative(d))[:10]
            lines += ["the furthest apart, by their size:", *_table(worst)]
        if self.first is not None:
            lines.append(f"\nfirst divergence: {self.first.name!r}, made by {self.first.operator} {self.first.node!r}")
        if self.first_not_finite is not None:
            found = self.first_not_finite
            lines.append(f"first NaN or infinity of only one: {found.name!r}, made by {found.operator} {found.node!r}")
        lines += ["", "tolerances:"]
        for kind, t in self.tolerances.items():
            lines.append(f"  {kind}: {t.relative:g} of a value, {t.scaled:g} of the largest ({t.reason})")
        return "\n".join(lines)


def _relative(d: Difference) -> float:
    return np.inf if d.problem or d.not_finite[0] != d.not_finite[1] else d.largest / d.scale if d.scale else d.largest


def _table(differences: Sequence[Difference]) -> list[str]:
    rows = [
        (
            d.name,
            d.operator,
            d.type,
            d.problem or f"{d.largest:.3g}",
            f"{d.mean:.3g}",
            f"{d.scale:.3g}",
            f"{d.outside:.2%}",
            "yes" if d.within else "NO",
        )
        for d in differences
    ]
    head = ("value", "operator", "type", "largest", "mean", "of at most", "outside", "within")
    return table(head, rows, right=(3, 4, 5, 6))


def difference(
    name: str, a: Any, b: Any, tolerance: Tolerance | None = None, node: str = "", operator: str = ""
) -> Difference:
    """How far two values are apart. Tensors of different types or shapes, and what is no tensor and not equal, have a
    `problem`."""

    def failed(problem: str, kind: str) -> Difference:
        return Difference(name, node, operator, kind, np.nan, np.nan, np.nan, [], 1.0, (0, 0), False, problem)

    if not isinstance(a, np.ndarray) or not isinstance(b, np.ndarray):
        if repr(a) == repr(b):
            return Difference(name, node, operator, type(b).__name__, 0, 0, 0, [], 0.0, (0, 0), True)
        return failed("not equal", type(b).__name__)
    kind = f"{spec_name(b.dtype)}{list(b.shape)}"
    if a.shape != b.shape or (a.dtype != b.dtype and a.dtype.kind != b.dtype.kind):
        return failed(f"is {spec_name(a.dtype)}{list(a.shape)}", kind)
    chosen = tolerance or TOLERANCES.get(spec_name(b.dtype), EXACT)
    if a.dtype == STRING or a.dtype.kind in "UST":
        outside = float(np.mean(a != b)) if a.size else 0.0
        return Difference(name, node, operator, kind, 0, 0, 0, [], outside, (0, 0), outside == 0)
    if not a.size:
        return Difference(name, node, operator, kind, 0, 0, 0, [], 0.0, (0, 0), True)
    wide_a, wide_b = (_wide(v) for v in (a, b))
    finite = np.isfinite(wide_a) & np.isfinite(wide_b)
    same = finite | (wide_a == wide_b) | (np.isnan(wide_a) & np.isnan(wide_b))
    apart = np.where(finite, _apart(a, b) if a.dtype == b.dtype and a.dtype.kind in "iu" else _apart(wide_a, wide_b), 0)
    magnitude = np.where(np.isfinite(wide_b), np.abs(wide_b), 0)
    scale = float(magnitude.max())
    allowed = chosen.relative * magnitude + chosen.scaled * scale
    outside = float(np.mean((apart > allowed) | ~same))
    place = np.unravel_index(int(np.argmax(np.where(same, apart, np.inf))), apart.shape)
    not_finite = (int((~np.isfinite(wide_a)).sum()), int((~np.isfinite(wide_b)).sum()))
    return Difference(
        name, node, operator, kind, float(apart.max()), float(apart.mean()), scale, [int(i) for i in place], outside,
        not_finite, outside == 0,
    )  # fmt: skip


def _wide(array: np.ndarray) -> np.ndarray:
    if is_extended(array.dtype):
        array = widen(array)
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def _apart(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Absolute differences, exact before they become float64: whole numbers of 64 bits too."""
    if a.dtype.kind not in "iu":
        with np.errstate(invalid="ignore", over="ignore"):
            return np.abs(a - b)
    unsigned = np.dtype(f"u{a.dtype.itemsize}")
    return np.where(a > b, a.view(unsigned) - b.view(unsigned), b.view(unsigned) - a.view(unsigned)).astype(np.float64)


@dataclass(frozen=True, slots=True)
class Side:
    """One of the two that are compared: a model on an engine, or `values` that were saved."""

    label: str
    model: Model | None
    engine: str = "cpu"
    options: SessionOptions | None = None
    values: Mapping[str, Any] | None = None


def compare(
    first: Side,
    second: Side,
    feeds: Mapping[str, Any],
    *,
    nodes: bool = False,
    tolerance: Tolerance | None = None,
    progress: Callable[[str, int, int | None], None] | None = None,
) -> Comparison:
    """Compare outputs of the same names, and with `nodes` every value that both models have a name for.

    A model whose values are all asked for computes them all: what only a fusion changes shows in the outputs alone.
    `tolerance` replaces those of `TOLERANCES`. Raises `ValueError` if the two have no output in common.
    """
    outputs = _common(first, second, lambda model: model.graph.outputs)
    if not outputs:
        raise ValueError("the two have no output in common")
    results = [_values(side, outputs, feeds, progress) for side in (first, second)]
    found = [difference(n, results[0][n], results[1][n], tolerance, *_maker(first, second, n)) for n in outputs]
    inner = _inner(first, second, feeds, tolerance, progress) if nodes else []
    kinds = {d.type.split("[")[0] for d in [*found, *inner]}
    used = {k: tolerance or TOLERANCES.get(k, EXACT) for k in sorted(kinds)}
    watched = inner or found
    finite = next((d for d in watched if d.not_finite[0] != d.not_finite[1]), None)
    return Comparison(first.label, second.label, found, inner, _first(first, second, inner), finite, used)


def _common(first: Side, second: Side, names: Callable[[Model], list[str]]) -> list[str]:
    lists = [names(s.model) if s.model is not None else list(s.values or ()) for s in (first, second)]
    return [name for name in lists[0] if name in set(lists[1])]


def _made(model: Model) -> list[str]:
    return [name for node in model.graph.nodes for name in node.outputs if name]


def _maker(first: Side, second: Side, name: str) -> tuple[str, str]:
    for side in (first, second):
        for node in side.model.graph.nodes if side.model is not None else ():
            if name in node.outputs:
                return node.label, node.operator
    return "", ""


def _values(
    side: Side, names: list[str], feeds: Mapping[str, Any], progress: Callable[[str, int, int | None], None] | None
) -> Mapping[str, Any]:
    if progress is not None:
        progress(f"computing {len(names)} values: {side.label}", 0, None)
    if side.model is None:
        return side.values or {}
    graph = side.model.graph
    model = side.model
    if names != graph.outputs and not set(names) <= set(graph.outputs):
        model = exposed(model, names, _types(graph, feeds))
    return ENGINES[side.engine](model, feeds, names, side.options or SessionOptions())


def _types(graph: Graph, feeds: Mapping[str, Any]) -> dict[str, Any]:
    known = {n: TensorType(v.dtype, v.shape) for n, v in feeds.items() if isinstance(v, np.ndarray)}
    return infer_graph(graph, known)


def _inner(
    first: Side,
    second: Side,
    feeds: Mapping[str, Any],
    tolerance: Tolerance | None,
    progress: Callable[[str, int, int | None], None] | None,
) -> list[Difference]:
    names = _common(first, second, _made)
    sides = [side for side in (first, second) if side.model is not None]
    types = _types(sides[0].model.graph, feeds)  # type: ignore[union-attr]
    found: list[Difference] = []
    for group in blocks(names, types, BLOCK_BYTES):
        a, b = (_values(side, group, feeds, progress) for side in (first, second))
        found += [difference(n, a[n], b[n], tolerance, *_maker(first, second, n)) for n in group]
        if progress is not None:
            progress("comparing nodes", len(found), len(names))
    return found


def _first(first: Side, second: Side, inner: list[Difference]) -> Difference | None:
    """The first value that is wrong although all values that its node reads are right."""
    model = first.model or second.model
    if model is None:
        return None
    by_name = {d.name: d for d in inner}
    for node in model.graph.nodes:
        wrong = [by_name[o] for o in node.outputs if o in by_name and not by_name[o].within]
        if wrong and all(by_name[i].within for i in node.inputs if i in by_name):
            return wrong[0]
    return None
