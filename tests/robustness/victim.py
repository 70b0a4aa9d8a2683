"""The process that loads and runs wrong models, so that a crash, a hang or a lack of memory is seen from outside.

    python -m tests.robustness.victim CORPUS FIRST LAST

`CORPUS` holds models (`packing.dumps` of a list of bytes and inputs). Case n makes one of them, or its inputs, wrong
with seed n. On stdout: ``> n`` before each case, ``< stage`` after it (how far the model came), ``! n text`` for one
that ends neither in a result nor in an `OnnxletError`.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import random
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import onnxlet
from onnxlet import rewrites
from onnxlet.execution.executor import GraphExecutor, drive
from onnxlet.feeds import check_feeds
from onnxlet.graph.ir import STRING, SequenceType, TensorType, Type
from onnxlet.limits import Limits
from onnxlet.model.dtypes import is_extended, widen
from onnxlet.model.loader import load_model
from tests.conformance import packing
from tests.robustness.mutations import mutate, mutate_inputs, without_shapes

MEMORY = 4 << 30
"""Bytes of address space that the process may have."""

SECONDS = 30
"""After which a case counts as a hang. The machine may be busy; ordinary cases take milliseconds."""

RANDOM = (b"Random", b"Bernoulli", b"Multinomial", b"Dropout")
"""Operators whose values are not compared."""

LIMITS = Limits(loop_iterations=200, tensor_bytes=1 << 26, string_length=1 << 16)


def feed(type_: Type | None, given: Any, rng: np.random.Generator) -> Any:
    """A value of a declared type: the case's own where it fits, else random. `None` if that would be large."""
    if isinstance(type_, SequenceType):
        element = feed(type_.element, None, rng)
        return given if isinstance(given, list) else [element] * 2
    if not isinstance(type_, TensorType) or type_.dtype is None:
        return given
    shape = given.shape if isinstance(given, np.ndarray) else (2,)
    if type_.shape is not None:
        old = [*shape, *[2] * len(type_.shape)]
        shape = tuple(d if isinstance(d, int) else old[i] for i, d in enumerate(type_.shape))
    if isinstance(given, np.ndarray) and given.dtype == type_.dtype and given.shape == shape:
        return given
    if np.prod([max(float(d), 1.0) for d in shape]) > 1e6:
        return None
    if type_.dtype == STRING:
        return np.full(shape, "a b", STRING)
    if is_extended(type_.dtype):
        return np.zeros(shape, type_.dtype)
    return (rng.random(shape) * 4 - 1).astype(type_.dtype)


def attempt(data: bytes, inputs: list[Any], seed: int) -> str:
    """Load and run. Says how far that went: `refused` at loading, `failed` while running, or `ran`. Raises what the
    product raises, `OnnxletError` excepted."""
    rng = np.random.default_rng(seed)
    level = random.Random(seed).choice(list(onnxlet.GraphOptimizationLevel))
    options = onnxlet.SessionOptions(graph_optimization_level=level, limits=LIMITS)
    with contextlib.suppress(onnxlet.OnnxletError):
        session = onnxlet.InferenceSession(data, options)
        try:
            types = load_model(data).graph.types
            names = [argument.name for argument in session.get_inputs()]
            given = dict(zip(names, [*inputs, *[None] * len(names)], strict=False))
            feeds = {name: feed(types.get(name), given[name], rng) for name in names}
            first = outcome(lambda: session.run(None, feeds))
            assert type(outcome(lambda: session.run(None, feeds))) is type(first), "the second run differs"
            session.explain()
            if b"Resize" not in data or all(finite(value) for value in feeds.values()):
                compare(first, outcome(lambda: definitions(data, feeds)), data, level == 0)
            return "ran" if isinstance(first, list) else "failed"
        finally:
            session.close()
    return "refused"


def finite(value: Any) -> bool:
    """Whether there is no infinity and no NaN. A weight of 0 may or may not be multiplied with one."""
    return not isinstance(value, np.ndarray) or value.dtype.kind != "f" or bool(np.isfinite(value).all())


def outcome(run: Callable[[], list[Any]]) -> list[Any] | onnxlet.OnnxletError:
    """What a run gives or raises."""
    try:
        return run()
    except onnxlet.OnnxletError as error:
        return error


def definitions(data: bytes, feeds: dict[str, Any]) -> list[Any]:
    """The outputs by the operators' NumPy definitions alone. Nodes that nothing needs are left out, as in sessions."""
    basic = onnxlet.SessionOptions(graph_optimization_level=onnxlet.GraphOptimizationLevel.ORT_ENABLE_BASIC)
    graph = rewrites.optimize(load_model(data).graph, basic)
    return drive(GraphExecutor(graph, [], limits=LIMITS).run(check_feeds(graph, feeds)))


def compare(session: Any, defined: Any, data: bytes, whole: bool) -> None:
    """Assert that kernels and definitions agree: on what is wrong, on types and shapes, and roughly on values.

    Differences that only say in what order sums were made are far below the bound. `whole` says that the session ran
    the nodes too that nothing needs.
    """
    if isinstance(defined, onnxlet.LimitError):  # a kernel may need less
        return
    if isinstance(session, list) and isinstance(defined, onnxlet.OnnxletError):
        # An operator without elements to compute may be wrong in ways that do not matter.
        if not any(isinstance(value, np.ndarray) and value.size for value in session):
            return
        raise AssertionError(f"a result, where the definitions say: {defined}")
    if isinstance(defined, list) and isinstance(session, onnxlet.OnnxletError) and not whole:
        raise AssertionError(f"the definitions give a result, but: {session}")
    if not isinstance(session, list) or any(name in data for name in RANDOM):
        return
    for got, want in zip(session, defined, strict=True):
        if not (isinstance(got, np.ndarray) and isinstance(want, np.ndarray)):
            continue
        assert (got.dtype, got.shape) == (want.dtype, want.shape), f"{got.dtype}{got.shape}, {want.dtype}{want.shape}"
        if not got.size:
            continue
        if got.dtype.kind == "f" or is_extended(got.dtype):
            a, b = widen(got).astype(np.float64), widen(want).astype(np.float64)
            largest = np.abs(b[np.isfinite(b)]).max(initial=1e-3)
            near = np.isclose(a, b, 2e-2, 1e-2 * largest, equal_nan=True)
            if (
                got.dtype.itemsize < 4
            ):  # rounded to that type in between, or not: 1e-30 is 0, and what it divides infinite
                near |= ~np.isfinite(b)
            if b"Attention" in data:  # kernels mask by adding -inf, which a NaN in a key outlives
                near |= np.isnan(a)
            assert near.mean() > 0.9, f"values differ: {a[~near][:4]}, {b[~near][:4]}"


def serve(first: int, last: int, attempt: Callable[[int], str]) -> None:
    """Try the cases, each by its seed, and print what comes of it."""
    try:
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    except ImportError:  # Windows
        pass
    warnings.simplefilter("ignore")
    faulthandler.enable()
    os.chdir(tempfile.mkdtemp())
    for seed in range(first, last):
        print(">", seed, flush=True)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            print("<", attempt(seed), flush=True)
        except BaseException as error:
            where = " <- ".join(
                f"{f.name}:{f.lineno}" for f in reversed(traceback.extract_tb(error.__traceback__)[-4:])
            )
            print("!", seed, f"{type(error).__name__}: {str(error)[:200]!r} in {where}", flush=True)
        finally:
            faulthandler.cancel_dump_traceback_later()


def main() -> None:
    with open(sys.argv[1], "rb") as file:
        corpus = packing.loads(file.read())

    def wrong(seed: int) -> str:
        data, inputs = corpus[random.Random(seed).randrange(len(corpus))]
        if seed % 3:
            return attempt(mutate(data, seed), inputs, seed)
        return attempt(without_shapes(data), mutate_inputs(inputs, seed), seed)

    serve(int(sys.argv[2]), int(sys.argv[3]), wrong)


if __name__ == "__main__":
    main()
