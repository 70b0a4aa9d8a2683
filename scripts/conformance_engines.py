"""Runs cases on one engine: the process that `conformance_peers.py` starts, in the engine's own environment.

    python scripts/conformance_engines.py ENGINE CASES FIRST

Prints a line of JSON before and after each case, with what went wrong.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import os
import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from onnxlet.model.dtypes import bits_of, dtype_of, element_type_of, is_extended, narrow
from tests.conformance import packing, suite

SECONDS = 120
"""For one case, before the process ends itself."""


def feeds(model: onnx.ModelProto, inputs: Sequence[Any]) -> dict[str, Any]:
    return dict(zip([i.name for i in model.graph.input], inputs, strict=False))


def onnxlet(model: bytes, inputs: Sequence[Any]) -> Sequence[Any]:
    return suite.run_session(model, inputs)


def reference(model: bytes, inputs: Sequence[Any]) -> Sequence[Any]:
    from onnx.reference import ReferenceEvaluator

    proto = onnx.load_model_from_string(model)
    results = ReferenceEvaluator(proto).run(None, feeds(proto, inputs))
    return [suite.plain(value) for value in results]


def onnxruntime(model: bytes, inputs: Sequence[Any]) -> Sequence[Any]:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.log_severity_level = 4
    session = ort.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    given = {}
    for name, value in feeds(onnx.load_model_from_string(model), inputs).items():
        if is_extended(value.dtype):
            bits = np.ascontiguousarray(bits_of(value))
            given[name] = ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, element_type_of(value.dtype))
        else:
            given[name] = ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(value).reshape(value.shape))
    return [_from_ort(value) for value in session.run_with_ort_values(None, given)]


def _from_ort(value: Any) -> np.ndarray:
    dtype = dtype_of(value.element_type())
    if not is_extended(dtype):
        return suite.plain(value.numpy())
    # NumPy has no such type: the bytes are read from where they lie.
    size = int(np.prod(value.shape())) * dtype.itemsize
    return np.frombuffer(ctypes.string_at(value.data_ptr(), size), dtype).reshape(value.shape())


def tinygrad(model: bytes, inputs: Sequence[Any]) -> Sequence[Any]:
    os.environ.setdefault("DEV", "CPU")
    os.environ.setdefault("CC", clang())
    from tinygrad import Tensor  # type: ignore[import-not-found]
    from tinygrad.nn.onnx import OnnxRunner  # type: ignore[import-not-found]

    proto = onnx.load_model_from_string(model)
    runner = OnnxRunner(Tensor(model))
    results = runner({name: _wide(value) for name, value in feeds(proto, inputs).items()})
    return [_declared(results[o.name].numpy(), o) for o in proto.graph.output]


def clang() -> str:
    """The path of a clang, which tinygrad compiles its kernels with: a program of two lines that calls ziglang's."""
    path = Path(sys.prefix, "bin", "clang")
    if not path.exists():
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m ziglang clang "$@"\n', "utf-8")
        path.chmod(0o755)
    return str(path)


def tract(model: bytes, inputs: Sequence[Any]) -> Sequence[Any]:
    import tract as engine  # type: ignore[import-not-found]

    proto = onnx.load_model_from_string(model)
    with tempfile.NamedTemporaryFile(suffix=".onnx", delete=False) as file:
        file.write(model)
    try:
        runnable = engine.onnx().load(file.name).into_model().into_runnable()
        results = runnable.run([_wide(value) for value in inputs])
        return [_declared(r.to_numpy(), o) for r, o in zip(results, proto.graph.output, strict=True)]
    finally:
        os.unlink(file.name)


def _wide(value: np.ndarray) -> np.ndarray:
    return value if not is_extended(value.dtype) else value.astype(np.float32)


def _declared(value: np.ndarray, output: onnx.ValueInfoProto) -> np.ndarray:
    """A float32 result of a type that NumPy lacks, as that type."""
    dtype = dtype_of(output.type.tensor_type.elem_type)
    return narrow(value, dtype) if is_extended(dtype) and value.dtype == np.float32 else np.asarray(value)


ENGINES = {
    "onnxlet": onnxlet,
    "onnx's reference evaluator": reference,
    "onnxruntime": onnxruntime,
    "tinygrad": tinygrad,
    "tract": tract,
}


def main() -> None:
    engine, corpus, first = sys.argv[1], sys.argv[2], int(sys.argv[3])
    warnings.simplefilter("ignore")
    with open(corpus, "rb") as file:
        cases = packing.loads(file.read())
    for i in range(first, len(cases)):
        print(json.dumps({"case": i}), flush=True)
        faulthandler.dump_traceback_later(SECONDS, exit=True)
        told: dict[str, Any] = {"case": i, "done": True}
        try:
            suite.check(cases[i], ENGINES[engine])
        except Exception as error:
            told["error"] = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    main()
