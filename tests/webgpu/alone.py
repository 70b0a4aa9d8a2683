"""Which of the standard's cases the GPU computes alone, nothing falling back: measured from outside of the provider.

While a case runs, a segment on another provider and a node on NumPy are errors, the functions of all operators raise
but where the plan computes ahead, and dispatches and copies are counted (a Reshape is a copy alone): natively in wgpu,
in a page in JavaScript. What the plan has computed ahead from shapes is not a fall back.

`python -m tests.webgpu.alone` prints what does not run alone, by operator, and rewrites `left_out.txt`: every case that
does not, under the reason why.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

from onnxlet import GraphOptimizationLevel, InferenceSession, SessionOptions, providers
from onnxlet.execution import folding, plan
from onnxlet.execution.placement import Placement
from onnxlet.ops import registry
from onnxlet.ops.registry import Operator
from onnxlet.providers.base import Segment, Step
from onnxlet_wasm.provider import KernelProvider
from onnxlet_webgpu import provider as webgpu
from onnxlet_webgpu.provider import WebGpuProvider
from tests.conformance import suite

LEFT_OUT = Path(__file__).with_name("left_out.txt")

TENSOR_CASES = 1858
"""Cases of the suite whose inputs and outputs are all tensors."""

WHOLE = (
    "torch_mobilenetv2", "torch_mobilenetv3", "torch_resnet18w32", "torch_effnet", "torch_unet", "torch_diffunet",
    "torch_bert_dyn", "torch_gpt", "torch_llama_kv", "torch_swin", "torch_lstm", "torch_wavenet", "q_mobilenetv2_qdq",
    "tf_mobilenetv2",
)  # fmt: skip
"""Models of the collection, by the beginnings of their names, that the GPU computes alone."""

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
def counting() -> Iterator[Counter[str]]:
    """Calls of "dispatch" and "copy" while this lasts; in a page they are known at its end."""
    counted = Counter[str]()
    if sys.platform == "emscripten":
        from pyodide.code import run_js  # type: ignore[import-not-found]

        counts = run_js(COUNTING)
        before = {name: getattr(counts, name) for name in ("dispatch", "copy")}
        try:
            yield counted
        finally:
            counted.update({name: getattr(counts, name) - n for name, n in before.items()})
        return
    from wgpu.backends.wgpu_native import GPUCommandEncoder, GPUComputePassEncoder

    def counted_as(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any) -> Any:
            counted[name] += 1
            return function(*given)

        return call

    dispatch, copy = GPUComputePassEncoder.dispatch_workgroups, GPUCommandEncoder.copy_buffer_to_buffer
    with (
        patch.object(GPUComputePassEncoder, "dispatch_workgroups", counted_as("dispatch", dispatch)),
        patch.object(GPUCommandEncoder, "copy_buffer_to_buffer", counted_as("copy", copy)),
    ):
        yield counted


COUNTING = """
globalThis.gpuCalls ??= (() => {
  const counts = { dispatch: 0, copy: 0 };
  const count = (prototype, name, key) => {
    const original = prototype[name];
    prototype[name] = function (...given) { counts[key]++; return original.apply(this, given); };
  };
  count(GPUComputePassEncoder.prototype, "dispatchWorkgroups", "dispatch");
  count(GPUCommandEncoder.prototype, "copyBufferToBuffer", "copy");
  return counts;
})();
"""


@contextmanager
def broken_cpu() -> Iterator[None]:
    """The CPU's kernels can't be had, and the NumPy definitions of all operators raise, but where a plan computes ahead
    what follows from shapes and constants."""
    depth = 0
    fold = folding.fold

    def folding_fold(*given: Any) -> Any:
        nonlocal depth
        depth += 1
        try:
            return fold(*given)
        finally:
            depth -= 1

    def breakable(operator: Operator) -> Operator:
        def call(*given: Any, **keywords: Any) -> Any:
            if not depth:
                raise NotAlone(f"{operator.name}: NumPy was asked to compute it")
            return operator.function(*given, **keywords)

        return replace(operator, function=call)

    def no_kernels(self: Any, segment: Segment) -> Any:
        raise NotAlone(f"{segment.steps[0].node.operator}: the CPU was asked to compute it")

    registry.registered()  # imports them all
    broken = {key: [breakable(o) for o in versions] for key, versions in registry._OPERATORS.items()}
    with (
        patch.object(KernelProvider, "compile", no_kernels),
        patch.object(folding, "fold", folding_fold),
        patch.dict(registry._OPERATORS, broken),
    ):
        yield


@contextmanager
def nothing_else() -> Iterator[Counter[str]]:
    """Whatever the GPU does not compute is an error; gives the numbers of dispatches and copies (see `counting`)."""
    place = plan.place

    def alone(step: Step, candidates: Sequence[Any]) -> Placement:
        found = place(step, candidates)
        if found.name != webgpu.NAME:
            raise NotAlone(f"{step.node.operator}: {found.refusals.get(webgpu.NAME, found.name)}")
        return found

    def interpreted(step: Step, *given: Any) -> Any:
        raise NotAlone(f"{step.node.operator}: {_why(step)}")

    with (
        counting() as counted,
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


def run(model: bytes, inputs: Sequence[Any], level: str = "ORT_ENABLE_ALL") -> Sequence[Any]:
    """Run a model with the GPU first, after the rewrites of an optimisation level."""
    options = SessionOptions(graph_optimization_level=GraphOptimizationLevel[level])
    with InferenceSession(model, options, providers=[providers.WEBGPU]) as session:
        names = [argument.name for argument in session.get_inputs()]
        return session.run(None, dict(zip(names, inputs, strict=True)))


def check_alone(case: suite.Case) -> int:
    """Run a case, compare, and return the number of dispatches. Raises `NotAlone`, with the operator and the reason, or
    what `suite.check` raises."""
    with broken_cpu(), nothing_else() as counted:
        suite.check(case, run)
    if not counted.total():
        raise NotAlone("computed ahead")
    return counted["dispatch"]


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
