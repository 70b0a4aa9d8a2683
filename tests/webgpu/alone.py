"""Which of the standard's cases the GPU computes alone, nothing falling back: measured from outside of the provider.

While a case runs, a segment on another provider and a node on NumPy are errors, and the calls of wgpu's
`dispatch_workgroups` and `copy_buffer_to_buffer` are counted (a Reshape is a copy alone). What the plan has computed
ahead from shapes is not a fall back.

`python -m tests.webgpu.alone` prints what does not run alone, by operator, and rewrites `left_out.txt`: every case that
does not, under the reason why.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from onnxlet import InferenceSession, providers
from onnxlet.execution import plan
from onnxlet.execution.placement import Placement
from onnxlet.providers.base import Step
from onnxlet_webgpu import provider as webgpu
from onnxlet_webgpu.provider import WebGpuProvider
from tests.conformance import suite

LEFT_OUT = Path(__file__).with_name("left_out.txt")

TENSOR_CASES = 1858
"""Cases of the suite whose inputs and outputs are all tensors."""

REASONS = [
    ("computed ahead", "All that is fed tells shapes: the plan holds the result."),
    ("ImageDecoder", "Pictures are decoded by libraries of the host."),
    (("string", "String", "Regex", "TfIdf", "LabelEncoder"), "Strings stay on the host."),
    (("Sequence", "Optional", "not a tensor"), "Sequences and optionals hold tensors, they are none."),
    ("sub-graphs", "Its body is planned by itself: the nodes inside have providers of their own."),
    (("Bernoulli", "Random", "Dropout in training"), "Random numbers are drawn on the host."),
    ("e8m0", "A float8 that is a power of two has no kernel."),
    ("depends on data", "The shape of the result depends on data."),
    (("float64", "rounded twice"), "There is no 64-bit float in WGSL: float64 is only moved and cast."),
    ("", "There is no kernel for this operator, type or attribute."),
]  # fmt: skip
"""What is found in the operator or the refusal, and how the list says it; the first that fits counts."""


class NotAlone(Exception):
    """Something else than the GPU would compute a node."""


class Shared:
    """A provider that sessions may use but not close."""

    name = webgpu.NAME

    def __init__(self, provider: WebGpuProvider):
        self.supports, self.compile = provider.supports, provider.compile
        self.wait, self.memory_stats = provider.wait, provider.memory_stats

    def close(self) -> None:
        pass


@contextmanager
def gpu_first(provider: WebGpuProvider) -> Iterator[None]:
    """Sessions take this provider, and leave single operators on it."""
    info = replace(webgpu.PROVIDER, create=lambda options: Shared(provider))
    with patch.object(webgpu, "PROVIDER", info), patch.object(plan, "demote_islands", lambda *given: False):
        yield


@contextmanager
def nothing_else() -> Iterator[list[str]]:
    """Whatever the GPU does not compute is an error; gives a list that grows with every dispatch and every copy."""
    from wgpu.backends.wgpu_native import GPUCommandEncoder, GPUComputePassEncoder

    dispatch, copy, place = (
        GPUComputePassEncoder.dispatch_workgroups,
        GPUCommandEncoder.copy_buffer_to_buffer,
        plan.place,
    )
    counted: list[str] = []

    def dispatching(self: Any, *groups: int) -> None:
        counted.append("dispatch")
        dispatch(self, *groups)

    def copying(self: Any, *given: Any) -> None:
        counted.append("copy")
        copy(self, *given)

    def alone(step: Step, candidates: Sequence[Any]) -> Placement:
        found = place(step, candidates)
        if found.name != webgpu.NAME:
            raise NotAlone(f"{step.node.operator}: {found.refusals.get(webgpu.NAME, found.name)}")
        return found

    def interpreted(step: Step, *given: Any) -> Any:
        raise NotAlone(f"{step.node.operator}: {_why(step)}")

    with (
        patch.object(GPUComputePassEncoder, "dispatch_workgroups", dispatching),
        patch.object(GPUCommandEncoder, "copy_buffer_to_buffer", copying),
        patch.object(plan, "place", alone),
        patch.object(plan, "_interpreted", interpreted),
    ):
        yield counted


def _why(step: Step) -> str:
    if next(step.node.subgraphs(), None) is not None:
        return "runs sub-graphs"
    if any(name and t is None for name, t in zip(step.node.inputs, step.inputs, strict=True)):
        return "an input is not a tensor of known type"
    return "the shape of its result depends on data"


def run(model: bytes, inputs: Sequence[Any]) -> Sequence[Any]:
    with InferenceSession(model, providers=[providers.WEBGPU]) as session:
        names = [argument.name for argument in session.get_inputs()]
        return session.run(None, dict(zip(names, inputs, strict=True)))


def check_alone(case: suite.Case) -> int:
    """Run a case, compare, and return the number of dispatches. Raises `NotAlone`, with the operator and the reason, or
    what `suite.check` raises."""
    with nothing_else() as counted:
        suite.check(case, run)
    if not counted:
        raise NotAlone("computed ahead")
    return counted.count("dispatch")


def read_left_out() -> dict[str, str]:
    """The names of the cases that are left out, each with its reason."""
    found, reason = {}, ""
    for line in LEFT_OUT.read_text().splitlines():
        if line.startswith("# "):
            reason = line[2:]
        elif line:
            found[line] = reason
    return found


def reason_of(words: str) -> str:
    for known, reason in REASONS:
        if any(part in words for part in ((known,) if isinstance(known, str) else known)):
            return reason
    raise AssertionError(words)


def main() -> int:
    provider = webgpu.create({})
    left: dict[str, list[str]] = {}
    operators, wrong, views = Counter[str](), 0, 0
    with gpu_first(provider):
        for case in suite.collect():
            try:
                views += not check_alone(case)
            except NotAlone as error:
                left.setdefault(reason_of(str(error)), []).append(case.name)
                operators[str(error)] += 1
            except Exception as error:
                wrong += 1
                print(f"wrong: {case.name}: {error}", file=sys.stderr)
    provider.close()
    for words, count in operators.most_common():
        print(f"{count:5} {words}")
    total = sum(map(len, left.values()))
    alone = len(suite.collect()) - total - wrong
    print(f"{alone} run alone ({views} of them are copies only), {total} do not, {wrong} are wrong")
    sections = ["\n".join([f"# {reason}", *names]) for reason, names in sorted(left.items())]
    LEFT_OUT.write_text("\n\n".join(sections) + "\n")
    return int(wrong > 0)


if __name__ == "__main__":
    raise SystemExit(main())
