"""onnxlet and onnxruntime-webgpu on this machine: `scripts/bench_webgpu.py --native` calls it with `.venv`'s Python."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import wgpu

import onnxlet
from provision import peers

from . import webgpu_process as process
from . import webgpu_report as report
from .compare import difference
from .report import machine
from .webgpu_cases import GpuCase, chosen, tiny
from .webgpu_report import GpuRow


def main(words: list[str] | None = None) -> int:
    options = report.arguments().parse_args(words)
    cases = chosen(options.only)
    if options.list:
        print("\n".join(case.name for case in cases))
        return 0
    interpreters = {"peer": peers.onnxruntime_webgpu(), "onnxlet": Path(sys.executable)}
    return report.measure_all(cases, lambda case: measure(case, interpreters, options), lambda: about(options), options)


def about(options: argparse.Namespace) -> dict[str, Any]:
    adapter = wgpu.gpu.request_adapter_sync(power_preference="high-performance")
    return {
        "title": "Natively",
        "peer": "onnxruntime-webgpu",
        "how": (
            "Milliseconds of `session.run` with the WebGPU providers of onnxruntime-webgpu and of onnxlet (through "
            "wgpu), from NumPy arrays to NumPy arrays; a cache of keys and values comes from the CPU and then stays on "
            "the GPU. Each engine is a process of its own, newly started "
            f"{options.pages} times for each case, and runs one after the other has: {options.rounds} rounds. The "
            "first run counts from the model's bytes on, with shaders compiled in it; both have run a tiny model on "
            "the GPU before. Times are minimums. A ratio above 1: onnxlet is faster."
        ),
        "machine": machine(
            {
                "onnxlet": onnxlet.__version__,
                "onnxruntime-webgpu": peers.ONNXRUNTIME_WEBGPU,
                "wgpu": wgpu.__version__,
                "Python": sys.version.split()[0],
            }
        )
        | {"adapter": str(adapter.info["device"])},
    }


class Engine:
    """An engine's process."""

    def __init__(self, name: str, interpreter: Path, folder: Path):
        self.outputs = folder / f"{name}.npz"
        command = [str(interpreter), process.__file__, name, str(folder)]
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.first = self._answer()

    def _answer(self) -> float:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            try:
                return float(line)
            except ValueError:
                continue  # something that a library has to say
        raise RuntimeError("the engine's process ended; what it said stands above")

    def run(self) -> float:
        """Run once; returns milliseconds."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{self.outputs}\n")
        self._process.stdin.flush()
        return self._answer()

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


def measure(case: GpuCase, interpreters: dict[str, Path], options: argparse.Namespace) -> GpuRow:
    """Measure one case. Raises what went wrong."""
    row = GpuRow(case.name, tolerance=case.tolerance)
    found = {"peer": row.peer, "onnxlet": row.onnxlet}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_case(case, folder)
        for start in range(options.pages):
            engines: dict[str, Engine] = {}
            try:
                for which in report.order(start):
                    engines[which] = Engine(which, interpreters[which], folder)
                    found[which].first.append(engines[which].first)
                for number in range(options.rounds):
                    for which in report.order(start + number):
                        found[which].rounds.append([engines[which].run()])
                    row.difference = max(row.difference, apart(engines["onnxlet"].outputs, engines["peer"].outputs))
            finally:
                for engine in engines.values():
                    engine.close()
    return row


def write_case(case: GpuCase, folder: Path) -> None:
    """What `webgpu_process` reads."""
    model = case.build()
    (folder / "model.onnx").write_bytes(model.SerializeToString())
    (folder / "tiny.onnx").write_bytes(tiny())
    np.savez(folder / "feeds.npz", **case.feeds())  # type: ignore[arg-type]
    told = {"state": case.state(model), "steps": case.steps, "advancing": case.advancing}
    (folder / "case.json").write_text(json.dumps(told), "utf-8")


def apart(ours: Path, theirs: Path) -> float:
    with np.load(ours) as a, np.load(theirs) as b:
        return max(difference(a[name], b[name]) for name in b)


if __name__ == "__main__":
    sys.exit(main())
