"""The process that makes random valid graphs and compares sessions with the operators' definitions on them.

    python -m tests.robustness.agreeing CORPUS FIRST LAST

`CORPUS` holds cases of single operators, the standard's and ours. Graph n, its inputs, the level, and the threads come
from seed n. The lines on stdout are those of `victim.py`.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import onnx

import onnxlet
from onnxlet import rewrites
from onnxlet.execution.executor import GraphExecutor, drive
from onnxlet.model.dtypes import is_extended, narrow, widen
from onnxlet.model.loader import load_model

from . import victim
from .flows import from_cases, grow
from .graphs import FLOATS, INTEGERS, Builder, Unfit, is_float
from .templates import TEMPLATES

OPSETS = (7, 8, 9, 10, 11, 12, 13, 15, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 28)
PLAIN_STEP = {np.dtype(np.float64): 1e-5, np.dtype(np.float32): 1e-5}
"""Relative differences that sums in another order may make, for types in which they are not rounded away."""


class Case:
    """A model, what to feed it at first and then, its outputs at first, and which of them may differ in places."""

    def __init__(self, seed: int, templates: Sequence[Callable[[Builder], object]]):
        rng = random.Random(seed)
        builder = Builder(rng, rng.choice(OPSETS))
        while not builder.nodes:
            grow(builder, templates, rng.choice((1, 2, 3, 5, 8, 12, 20)))
        dynamic = rng.choice(("static", "static", "symbolic", "unknown"))
        sizes = sorted({d for v in builder.inputs.values() if isinstance(v, np.ndarray) for d in v.shape})
        self.proto = builder.model(
            {"static": tuple, "symbolic": lambda s: [f"d{d}" for d in s], "unknown": lambda s: None}[dynamic]
        )
        self.branches = any(node.op_type == "If" for node in nodes_of(self.proto.graph))
        self.built = [builder.values[o.name] for o in self.proto.graph.output]
        self.rough = [o.name in builder.rough for o in self.proto.graph.output]
        self.feeds = [builder.inputs, {n: other_values(v, rng) for n, v in builder.inputs.items()}]
        if dynamic != "static" and sizes:
            old, new = rng.choice(sizes), rng.choice((1, 2, 3, 5, 6))
            self.feeds.append({n: resized(v, old, new) for n, v in builder.inputs.items()})
            self.feeds.append(builder.inputs)
        self.level = rng.choice(list(onnxlet.GraphOptimizationLevel))
        self.threads = rng.choice((1, 2))
        values = [v for v in builder.values.values() if isinstance(v, np.ndarray) and is_float(v)]
        widths = {2.0**-7 if v.dtype.itemsize == 2 and is_extended(v.dtype) else 2.0**-10 for v in values
                  if v.dtype.itemsize == 2}  # fmt: skip
        self.step = max(widths, default=1e-6)


def nodes_of(graph: onnx.GraphProto) -> Iterator[onnx.NodeProto]:
    """The nodes of a graph and of all its bodies."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            yield from nodes_of(attribute.g)


def other_values(value: Any, rng: random.Random) -> Any:
    """Values of the same type and shape: settings may stay as they are, or say something else."""
    if not isinstance(value, np.ndarray) or not value.size:
        return value
    if value.dtype == bool and rng.random() < 0.5:
        return ~value
    if value.dtype in INTEGERS:
        return value if rng.random() < 0.7 else np.roll(value.ravel(), 1).reshape(value.shape)
    if value.dtype not in FLOATS:
        return value
    return np.flip(value.ravel()).copy().reshape(value.shape)


def resized(value: Any, old: int, new: int) -> Any:
    if not isinstance(value, np.ndarray) or old not in value.shape:
        return value
    return np.resize(value, [new if d == old else d for d in value.shape])


def definitions(data: bytes, feeds: dict[str, Any], whole: bool = True) -> list[Any]:
    """The outputs by the operators' definitions: of all nodes, or without those that nothing needs, which may be wrong
    without anybody's notice."""
    graph = load_model(data).graph
    if not whole:
        others = set(rewrites.names()) - {"remove_dead"}
        graph = rewrites.optimize(graph, onnxlet.SessionOptions(disabled_rewrites=others))
    return drive(GraphExecutor(graph, [], limits=victim.LIMITS).run(feeds))


def nudged(value: Any, step: float, numbers: np.random.Generator) -> Any:
    """A value moved by a relative `step`, to see how much results depend on the last bits."""
    if not isinstance(value, np.ndarray) or value.dtype not in FLOATS:
        return value
    wide = widen(value).astype(np.float64)
    with np.errstate(all="ignore"):
        moved = wide * (1 + step * numbers.choice([-1.0, 1.0], wide.shape))
    return narrow(moved.astype(np.float32), value.dtype) if is_extended(value.dtype) else moved.astype(value.dtype)


def check(case: Case) -> str:
    """Run a case and compare."""
    data = case.proto.SerializeToString()
    options = onnxlet.SessionOptions(
        graph_optimization_level=case.level, intra_op_num_threads=case.threads, limits=victim.LIMITS
    )
    numbers = np.random.default_rng(1)
    whole = case.level == onnxlet.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = onnxlet.InferenceSession(data, options)
    ran = "failed"
    try:
        for i, feeds in enumerate(case.feeds):
            got = victim.outcome(lambda: session.run(None, feeds))  # noqa: B023
            want = victim.outcome(lambda: definitions(data, feeds, whole))  # noqa: B023
            if i == 0:
                assert isinstance(want, list), f"the definitions say: {want}"
                # The builder gave each node its operands: nothing of what the file says of them was read.
                for output, w, b, rough in zip(case.proto.graph.output, want, case.built, case.rough, strict=True):
                    compare(f"read back, {output.name}", w, b, b, rough, case.step)
            if not isinstance(got, list) or not isinstance(want, list):
                # What only a branch not taken needs may be wrong.
                if not (case.branches and i > 0 and isinstance(got, list)):
                    one_sided(got, want)
                continue
            ran = "ran"
            moved: Any = want
            if any(isinstance(w, np.ndarray) and is_float(w) for w in want):
                other = {n: nudged(v, case.step, numbers) for n, v in feeds.items()}
                moved = victim.outcome(lambda: definitions(data, other))  # noqa: B023
            for output, g, w, m, rough in zip(
                case.proto.graph.output, got, want, moved if isinstance(moved, list) else want, case.rough, strict=True
            ):
                compare(f"run {i}, {output.name}", g, w, m, rough, case.step)
    finally:
        session.close()
    return ran


def one_sided(got: Any, want: Any) -> None:
    """Both must refuse, but for results without elements."""
    if isinstance(got, list) and any(isinstance(v, np.ndarray) and v.size for v in got):
        raise AssertionError(f"a result, where the definitions say: {want}")
    if isinstance(want, list):
        raise AssertionError(f"the definitions give a result, but: {got}")


def compare(where: str, got: Any, want: Any, moved: Any, rough: bool, step: float) -> None:
    if isinstance(want, list):
        assert len(got) == len(want), f"{where}: {len(got)} elements, {len(want)}"
        for i, (g, w) in enumerate(zip(got, want, strict=True)):
            compare(f"{where}[{i}]", g, w, w, True, step)
        return
    if not isinstance(want, np.ndarray):
        assert got is want, f"{where}: {got}, {want}"
        return
    # A count may depend on values that jump.
    if rough and got.shape != want.shape and got.ndim == want.ndim:
        return
    assert (got.dtype, got.shape) == (want.dtype, want.shape), (
        f"{where}: {got.dtype}{got.shape}, {want.dtype}{want.shape}"
    )
    if not want.size:
        return
    if not is_float(want):
        same = widen(got) == widen(want)
        assert same.all() or (rough and (same.mean() > 0.8 or want.size < 10)), (
            f"{where}: {got[~same][:4]}, {want[~same][:4]}"
        )
        return
    with np.errstate(all="ignore"):
        a, b = widen(got).astype(np.float64), widen(want).astype(np.float64)
        c = widen(moved).astype(np.float64) if isinstance(moved, np.ndarray) and moved.shape == want.shape else b
        largest = np.abs(b[np.isfinite(b)]).max(initial=0)
        own = max(step * 8, 1e-5, {2: 2.0**-7, 1: 0.3}.get(want.dtype.itemsize, 0) if is_extended(want.dtype) else 0)
        swing = np.abs(b - c)
        bound = 2e-6 + own * np.abs(b) + own * largest * 0.5 + 30 * np.where(np.isfinite(swing), swing, np.inf)
        near = (np.abs(a - b) <= bound) | (a == b) | (np.isnan(a) & np.isnan(b))
    fine = near.all() or (rough and (near.mean() > 0.8 or want.size < 10))
    assert fine, f"{where}: {a[~near][:4]}, {b[~near][:4]}; {(~near).sum()} of {near.size}"


def main() -> None:
    from tests.conformance import packing

    with open(sys.argv[1], "rb") as file:
        templates = [*TEMPLATES, *[from_cases(packing.loads(file.read()))] * (len(TEMPLATES) // 6)]

    def attempt(seed: int) -> str:
        try:
            case = Case(seed, templates)
        except Unfit:
            return "unfit"
        return check(case)

    victim.serve(int(sys.argv[2]), int(sys.argv[3]), attempt)


if __name__ == "__main__":
    main()
