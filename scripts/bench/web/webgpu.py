"""onnxlet's side of the benchmark of GPU providers, in Pyodide: sessions that the worker's JavaScript calls."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
from compare import difference  # type: ignore[import-not-found]

import onnxlet


class Runner:
    """A session with its inputs. `state` says which output feeds which input of the next step; these values stay on
    the GPU, between runs too. Inputs in `advancing` grow by one with every step."""

    def __init__(
        self, session: onnxlet.InferenceSession, inputs: Any, state: dict[str, str], steps: int, advancing: list[str]
    ):
        self.session, self.state, self.steps, self.advancing = session, state, steps, advancing
        arrays = {i.name: array(i) for i in inputs}
        self.feeds = {name: value for name, value in arrays.items() if name not in state.values()}
        self.begin = {name: onnxlet.OrtValue.ortvalue_from_numpy(arrays[name], "webgpu") for name in state.values()}
        self.names = [o.name for o in session.get_outputs() if o.name not in state]
        self.results: list[np.ndarray] = []
        self.binding = session.io_binding()
        for name in [*self.names, *state]:
            self.binding.bind_output(name, "webgpu" if name in state else "cpu")

    async def run(self) -> None:
        if not self.state:
            self.results = await self.session.run_async(None, self.feeds)
            return
        binding, count = self.binding, len(self.names)
        for name, value in self.feeds.items():
            binding.bind_cpu_input(name, value)
        given = self.begin
        for step in range(self.steps):
            for name in self.advancing:
                binding.bind_cpu_input(name, self.feeds[name] + step)
            for name, value in given.items():
                binding.bind_ortvalue_input(name, value)
            await self.session.run_with_iobinding_async(binding)
            outputs = binding.get_outputs()
            given = dict(zip(self.state.values(), outputs[count:], strict=True))
        self.results = [value.numpy() for value in binding.get_outputs()[:count]]

    def difference(self, wanted: Any) -> float:
        """The largest difference from the peer's outputs of the latest run, over the largest value of each."""
        found = dict(zip(self.names, self.results, strict=True))
        return max(difference(found[w.name], array(w)) for w in wanted)

    def elsewhere(self) -> dict[str, int]:
        """Operators that the GPU left to others, with their numbers; what the plan computes ahead is not among them."""
        rows = self.session.explain().rows
        return dict(Counter(r.operator for r in rows if r.provider not in ("WebGpuExecutionProvider", "plan")))

    def close(self) -> None:
        self.session.close()


def array(tensor: Any) -> np.ndarray:
    return np.frombuffer(tensor.data.to_bytes(), tensor.type).reshape(tensor.dims.to_py())


async def create(model: Any, inputs: Any, state: Any, steps: int, advancing: Any) -> Runner:
    session = await onnxlet.InferenceSession.create(model, providers=["webgpu"])
    return Runner(session, inputs, state.to_py(), steps, advancing.to_py())


SimpleNamespace(create=create)
