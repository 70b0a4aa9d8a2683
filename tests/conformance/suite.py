"""The standard's own cases for single operators: collecting them, keeping them, and checking results against them.

`collect` needs `onnx`. What it returns can be handed by `packing` to where there is neither `onnx` nor `ml_dtypes`: to
a page, and to the process that shows that onnxlet leans on neither.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np

from onnxlet import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxlet.execution.executor import GraphExecutor, drive
from onnxlet.graph.ir import STRING
from onnxlet.model.dtypes import widen
from onnxlet.model.loader import load_model

COUNT = 1884
"""How many cases the suite of onnx 1.23 has. Newer ones have more."""

WITHOUT_VALUE = ("test_bernoulli",)
"""Cases that draw random numbers: only types and shapes can be compared."""


@dataclass(frozen=True, slots=True)
class Case:
    name: str
    model: bytes
    sets: list[tuple[list[Any], list[Any]]]
    """Inputs and expected outputs, in the model's order: arrays, lists (sequences) or `None`."""
    rtol: float
    atol: float


Runner = Callable[[bytes, Sequence[Any]], Sequence[Any]]
"""Runs a model on inputs in the model's order and returns its outputs."""


@functools.cache
def collect() -> list[Case]:
    """All cases of `onnx.backend.test.case.node`, made in memory, once. Takes about ten seconds."""
    from onnx.backend.test.case.node import collect_testcases

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = collect_testcases(None)
    return [
        Case(
            case.name,
            cast(Any, case.model).SerializeToString(),
            [([plain(v) for v in inputs], [plain(v) for v in outputs]) for inputs, outputs in case.data_sets or ()],
            case.rtol,
            case.atol,
        )
        for case in found
    ]


def plain(value: Any) -> Any:
    """A value as onnx writes it, as arrays, lists and `None`."""
    import onnx
    from onnx import numpy_helper

    if isinstance(value, onnx.TensorProto):
        value = numpy_helper.to_array(value)
    elif isinstance(value, onnx.SequenceProto):
        value = numpy_helper.to_list(value)
    elif isinstance(value, onnx.OptionalProto):
        value = numpy_helper.to_optional(value)
    if value is None:
        return None
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    array = np.asarray(value)
    return array.astype(STRING) if array.dtype.kind in "UST" else array


def run_definitions(model: bytes, inputs: Sequence[Any]) -> Sequence[Any]:
    """Run a model as it is on the NumPy definitions alone."""
    graph = load_model(model).graph
    feeds: Mapping[str, Any] = dict(zip(graph.inputs, inputs, strict=True))
    return drive(GraphExecutor(graph, []).run(feeds))


def run_session(model: bytes, inputs: Sequence[Any], level: str = "ORT_ENABLE_ALL", threads: int = 0) -> Sequence[Any]:
    """Run a model as users do: optimised, on the kernels where there are some."""
    options = SessionOptions(graph_optimization_level=GraphOptimizationLevel[level], intra_op_num_threads=threads)
    session = InferenceSession(model, options)
    try:
        names = [argument.name for argument in session.get_inputs()]
        return session.run(None, dict(zip(names, inputs, strict=True)))
    finally:
        session.close()


def check(case: Case, run: Runner) -> None:
    """Run a case and compare. Raises AssertionError, or what the run raises."""
    random = case.name.startswith(WITHOUT_VALUE)
    for inputs, expected in case.sets:
        outputs = run(case.model, inputs)
        assert len(outputs) == len(expected), f"{len(outputs)} outputs where {len(expected)} are expected"
        for i, (want, got) in enumerate(zip(expected, outputs, strict=True)):
            compare(want, got, case.rtol, case.atol, f"output {i}", values=not random)


def failures(cases: Sequence[Case], run: Runner) -> list[str]:
    """A line for each case that does not pass."""
    lines = []
    for case in cases:
        try:
            check(case, run)
        except Exception as error:
            lines.append(f"{case.name}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return lines


def compare(want: Any, got: Any, rtol: float, atol: float, where: str, *, values: bool = True) -> None:
    """Compare types, shapes and values; the absolute tolerance is at least 1e-5 of the largest expected value."""
    if isinstance(want, list):
        assert isinstance(got, list), f"{where}: {type(got).__name__} where a sequence is expected"
        assert len(want) == len(got), f"{where}: a sequence of {len(got)}, not {len(want)}"
        for i, (w, g) in enumerate(zip(want, got, strict=True)):
            compare(w, g, rtol, atol, f"{where}[{i}]", values=values)
        return
    if isinstance(want, dict):
        assert isinstance(got, dict), f"{where}: {type(got).__name__} where a map is expected"
        assert list(want) == list(got), f"{where}: keys {list(got)}, not {list(want)}"
        want, got = np.array(list(want.values())), np.array(list(got.values()))
    if want is None:
        assert got is None, f"{where}: a value where none is expected"
        return
    assert isinstance(got, np.ndarray), f"{where}: {type(got).__name__} instead of an array"
    assert got.dtype == want.dtype, f"{where}: {got.dtype} instead of {want.dtype}"
    assert got.shape == want.shape, f"{where}: shape {got.shape} instead of {want.shape}"
    if not values:
        return
    if want.dtype.kind in "Obiu" or "int" in want.dtype.name:
        assert (widen(got) == widen(want)).all(), f"{where}: {got} instead of {want}"
        return
    wide = np.complex128 if want.dtype.kind == "c" else np.float64
    want, got = widen(want).astype(wide), widen(got).astype(wide)
    largest = np.abs(want[np.isfinite(want)]).max(initial=0)
    near = np.isclose(got, want, rtol, max(atol, 1e-5 * largest), equal_nan=True)
    far = ~near
    assert near.all(), f"{where}: {far.sum()} of {far.size} values differ, as {got[far][:5]} from {want[far][:5]}"
