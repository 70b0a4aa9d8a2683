"""A short timed trial of the kernels among which a GPU decides: which is faster on this adapter, for which shapes.

It is made when the first device on an adapter is, with the GPU's own clock, and remembered as long as the process
lives. It ends as soon as it has taken its time: what has not been compared by then keeps the variant that most GPUs are
fastest with.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from ..kernel import Kernel
from ..lowering import Target, Tensor

MILLISECONDS = 5.0
"""How long the trial may take, by default."""

SIZES = {"row": (1, 512, 512), "square": (128, 128, 128)}
"""Classes of shapes, and the rows, the depth and the columns of the product that stands for each."""

REMEMBERED: dict[tuple[Any, ...], dict[str, tuple[str, str]]] = {}
"""What was chosen, by adapter and what it is used with: for each class of shapes the variant, and what was measured."""


def choices(device: Any, milliseconds: float) -> dict[str, tuple[str, str]]:
    """For each class of shapes that could be compared the fastest variant, and the times as text. Nothing on software
    adapters, whose kernels are chosen already, and on devices without a clock."""
    target: Target = device.target
    if target.software or milliseconds <= 0 or "timestamp-query" not in device.handle.features:
        return {}
    key = (device.description, target)
    if key not in REMEMBERED:
        REMEMBERED[key] = _compare(device, target, time.perf_counter() + milliseconds / 1000)
    return REMEMBERED[key]


def _compare(device: Any, target: Target, end: float) -> dict[str, tuple[str, str]]:
    found = {}
    for name in SIZES:
        times = {}
        for variant, kernel in _variants(name, target).items():
            times[variant] = _time(device, kernel)
            if time.perf_counter() > end:
                return found
        best = min(times, key=times.__getitem__)
        others = ", ".join(f"{variant} {t / 1e6:.3f} ms" for variant, t in times.items())
        found[name] = best, f"{best} was the fastest in a trial ({others})"
    return found


def _variants(name: str, target: Target) -> dict[str, Kernel]:
    from ..operators.matmul import VARIANTS, Matrix, Product, candidates

    m, k, n = SIZES[name]
    product = Product(Matrix("a", m * k, k, 1), Matrix("b", k * n, n, 1), m, n, k)
    out = Tensor("y", (m, n), np.dtype(np.float32))
    return {variant: VARIANTS[variant](product, out, "trial", target) for variant in candidates(product, target)[1]}


def _time(device: Any, kernel: Kernel) -> float:
    """Nanoseconds that a kernel takes, the better of two."""
    handle = device.handle
    text, bindings = kernel.assemble()
    pipeline = device.pipeline(text, len(bindings))
    buffers = [handle.create_buffer(size=b.nbytes, usage=device.storage) for b in bindings]
    group = device.bind_group(pipeline, [(buffer, b.nbytes) for buffer, b in zip(buffers, bindings, strict=True)])
    queries = handle.create_query_set(type="timestamp", count=4)
    times = handle.create_buffer(size=32, usage="QUERY_RESOLVE|COPY_SRC")
    encoder = handle.create_command_encoder()
    for start in (0, 2):
        marks = {"query_set": queries, "beginning_of_pass_write_index": start, "end_of_pass_write_index": start + 1}
        work = encoder.begin_compute_pass(timestamp_writes=marks)
        work.set_pipeline(pipeline.handle)
        work.set_bind_group(0, group)
        work.dispatch_workgroups(*kernel.groups)
        work.end()
    encoder.resolve_query_set(queries, 0, 4, times, 0)
    handle.queue.submit([encoder.finish()])
    ticks = np.frombuffer(handle.queue.read_buffer(times), np.uint64).astype(np.int64)
    for buffer in (*buffers, times):
        buffer.destroy()
    return float(min(ticks[1] - ticks[0], ticks[3] - ticks[2]))
