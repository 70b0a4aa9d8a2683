"""One engine in a process of its own: `webgpu_process.py ENGINE FOLDER`, ENGINE being `peer` or `onnxlet`.

FOLDER has the case: `model.onnx`, `tiny.onnx`, `feeds.npz` and `case.json`. For each line on the standard input it
runs once, saves the outputs to the file named by the line, and answers with the milliseconds that the run took; the
first answer, without a line, is of the session's creation and first run. The peer's environment has NumPy and
onnxruntime only: nothing else is imported here.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

PROVIDER = "WebGpuExecutionProvider"
Outputs = dict[str, np.ndarray]


def peer_session(model: bytes) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    session = onnxruntime.InferenceSession(model, options, providers=[PROVIDER])
    if PROVIDER not in session.get_providers():
        raise SystemExit("onnxruntime-webgpu does not take this machine's adapter")
    return session


def our_session(model: bytes) -> Any:
    import onnxlet

    return onnxlet.InferenceSession(model, providers=["webgpu"])


SESSIONS: dict[str, Callable[[bytes], Any]] = {"peer": peer_session, "onnxlet": our_session}


def run(session: Any, feeds: Outputs, case: dict[str, Any]) -> Outputs:
    """All steps of a run; returns the last one's outputs. What feeds the first step comes from the CPU."""
    state = case["state"]
    names = [o.name for o in session.get_outputs() if o.name not in state]
    if not state:
        return dict(zip(names, session.run(names, feeds), strict=True))
    binding = session.io_binding()
    for name in [*names, *state]:
        binding.bind_output(name, "webgpu" if name in state else "cpu")
    for name, value in feeds.items():
        binding.bind_cpu_input(name, value)
    outputs: list[Any] = []
    for step in range(case["steps"]):
        for name in case["advancing"]:
            binding.bind_cpu_input(name, feeds[name] + step)
        for name, value in zip(state.values(), outputs[len(names) :], strict=False):
            binding.bind_ortvalue_input(name, value)
        session.run_with_iobinding(binding)
        outputs = binding.get_outputs()
    return {name: value.numpy() for name, value in zip(names, outputs, strict=False)}


def main(engine: str, folder: Path) -> None:
    create = SESSIONS[engine]
    case = json.loads((folder / "case.json").read_text("utf-8"))
    model = (folder / "model.onnx").read_bytes()
    with np.load(folder / "feeds.npz") as data:
        feeds = dict(data)
    create((folder / "tiny.onnx").read_bytes()).run(None, {"x": np.zeros(4, np.float32)})
    begin = time.perf_counter()
    session = create(model)
    run(session, feeds, case)
    print(1000 * (time.perf_counter() - begin), flush=True)
    for line in sys.stdin:
        begin = time.perf_counter()
        outputs = run(session, feeds, case)
        ms = 1000 * (time.perf_counter() - begin)
        np.savez(line.strip(), **outputs)  # type: ignore[arg-type]
        print(ms, flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
