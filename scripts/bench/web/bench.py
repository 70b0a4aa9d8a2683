"""onnxlet's side of the benchmark, in Pyodide: sessions that the worker's JavaScript calls."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any

import numpy as np
from compare import difference  # type: ignore[import-not-found]

import onnxlet


class Runner:
    """A session with its inputs, as NumPy arrays."""

    def __init__(self, session: onnxlet.InferenceSession, inputs: Any, outputs: Any):
        self.session = session
        self.feeds = {i.name: array(i) for i in inputs}
        self.outputs = list(outputs) if outputs else None

    def run(self, count: int) -> None:
        run, outputs, feeds = self.session.run, self.outputs, self.feeds
        for _ in range(count):
            run(outputs, feeds)

    def difference(self, wanted: Any) -> float:
        """The largest difference from the peer's outputs, over the largest value of each."""
        names = [w.name for w in wanted]
        found = self.session.run(names, self.feeds)
        return max(difference(value, array(w)) for value, w in zip(found, wanted, strict=True))

    def on_numpy(self) -> dict[str, int]:
        return dict(Counter(row.operator for row in self.session.explain().rows if row.provider == "NumPy"))

    def close(self) -> None:
        self.session.close()


def array(tensor: Any) -> np.ndarray:
    data = np.frombuffer(tensor.data.to_bytes(), tensor.type)
    return data.reshape(tensor.dims.to_py())


async def create(model: Any, threads: int, inputs: Any, outputs: Any) -> Runner:
    options = onnxlet.SessionOptions(intra_op_num_threads=threads)
    return Runner(await onnxlet.InferenceSession.create(model, options), inputs, outputs)


SimpleNamespace(create=create)
