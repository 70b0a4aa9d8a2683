"""The process that loads and runs wrong models, so that a crash, a hang or a lack of memory is seen from outside.

    python -m tests.robustness.victim CORPUS FIRST LAST

`CORPUS` holds models (`packing.dumps` of a list of bytes and inputs). Case n makes one of them, or its inputs, wrong
with seed n. On stdout: ``> n`` before each case, ``! n text`` for one that ends neither in a result nor in an
`OnnxletError`.
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
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np

import onnxlet
from onnxlet.graph.ir import STRING, SequenceType, TensorType, Type
from onnxlet.limits import Limits
from onnxlet.model.dtypes import is_extended
from onnxlet.model.loader import load_model
from tests.conformance import packing
from tests.robustness.mutations import mutate, mutate_inputs, without_shapes

MEMORY = 4 << 30
"""Bytes of address space that the process may have."""

SECONDS = 30
"""After which a case counts as a hang. The machine may be busy; ordinary cases take milliseconds."""

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


def attempt(data: bytes, inputs: list[Any], seed: int) -> None:
    """Load and run. Raises what the product raises, `OnnxletError` excepted."""
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
            for _ in range(2):
                with contextlib.suppress(onnxlet.OnnxletError):
                    session.run(None, feeds)
            session.explain()
        finally:
            session.close()


def main() -> None:
    corpus_path, first, last = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    with open(corpus_path, "rb") as file:
        corpus = packing.loads(file.read())
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
        data, inputs = corpus[random.Random(seed).randrange(len(corpus))]
        if seed % 3:
            wrong = mutate(data, seed)
        else:
            wrong, inputs = without_shapes(data), mutate_inputs(inputs, seed)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        try:
            attempt(wrong, inputs, seed)
        except BaseException as error:
            where = " <- ".join(
                f"{f.name}:{f.lineno}" for f in reversed(traceback.extract_tb(error.__traceback__)[-4:])
            )
            print("!", seed, f"{type(error).__name__}: {str(error)[:200]!r} in {where}", flush=True)
        finally:
            faulthandler.cancel_dump_traceback_later()


if __name__ == "__main__":
    main()
