"""`providers=["auto"]`, with a device of the tests' own and a clock that only computing moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest

from onnxlet import InferenceSession, NodeError, ProviderError
from onnxlet.execution import choosing
from onnxlet.execution.choosing import ROUNDS, fingerprint
from onnxlet.model.loader import load_model
from onnxlet.providers import CPU, WEBGPU
from onnxlet_wasm.provider import KernelProvider
from onnxlet_webgpu import provider as webgpu
from tests.core.devices import PretendedDevice, pretend
from tests.core.models import FLOAT, model, node
from tests.readme import block

W = np.arange(6, dtype=np.float32).reshape(2, 3)
X = np.array([[1, -2]], np.float32)


@dataclass
class Device:
    """What the pretended device, and the CPU, take for a run; what went on."""

    seconds: dict[str, list[float]]
    now: float = 0.0
    runs: list[str] = field(default_factory=list)
    closed: int = 0
    failing: Exception | None = None
    refusal: str | None = None
    adapter: str = "a card"

    def after(self, name: str) -> None:
        self.runs.append(name)
        costs = self.seconds[name]
        self.now += costs.pop(0) if len(costs) > 1 else costs[0]
        if name == WEBGPU and self.failing is not None:
            raise self.failing


@pytest.fixture
def device(monkeypatch: pytest.MonkeyPatch) -> Device:
    made = Device({WEBGPU: [0.001], CPU: [0.002]})
    compile_ = KernelProvider.compile

    class Timed:
        def __init__(self, executable: Any, name: str):
            self._executable, self._name = executable, name
            self.close = executable.close

        def run(self, values: Sequence[Any]) -> Any:
            made.after(self._name)
            return self._executable.run(values)

    class WithAdapter(PretendedDevice):
        @property
        def adapter_info(self) -> dict[str, str]:
            return {"device": made.adapter}

        def close(self) -> None:
            made.closed += 1
            super().close()

    pretend(monkeypatch, lambda step: made.refusal, WithAdapter)
    monkeypatch.setattr(KernelProvider, "compile", lambda self, segment: Timed(compile_(self, segment), self.name))
    monkeypatch.setattr(choosing, "clock", lambda: made.now)
    monkeypatch.setattr(choosing, "remembered", {})
    return made


def product(rows: int | None = None) -> bytes:
    nodes = [node("MatMul", ["x", "w"], ["p"]), node("Relu", ["p"], ["y"])]
    made = model(nodes, [("x", FLOAT, [rows, 2])], [("y", FLOAT, [rows, 3])], {"w": W}, opset=21)
    return made.SerializeToString()


def check(session: InferenceSession, x: np.ndarray = X) -> None:
    np.testing.assert_allclose(session.run(None, {"x": x})[0], np.maximum(x @ W, 0))


@pytest.mark.parametrize(("faster", "other"), [(WEBGPU, CPU), (CPU, WEBGPU)])
def test_the_faster_one_is_kept(device: Device, faster: str, other: str) -> None:
    device.seconds = {faster: [9.0, 0.003, 0.001, 0.002], other: [0.0, 0.004, 0.003, 0.005]}
    with InferenceSession(product(), providers=["auto"]) as session:
        assert session.explain().choice is None
        check(session)
        # Once to get warm, then by turns.
        assert device.runs == [WEBGPU, CPU] * (ROUNDS + 1)
        choice = session.explain().choice
        assert choice is not None
        assert choice.provider == faster
        assert choice.seconds == {faster: pytest.approx(0.001), other: pytest.approx(0.003)}
        assert f"{faster} was chosen: a run took" in str(session.explain())
        assert "1 ms on" in choice.reason
        assert "3 ms on" in choice.reason
        assert session.explain().to_dict()["choice"] == {
            "provider": faster, "reason": choice.reason, "seconds": dict(choice.seconds)
        }  # fmt: skip
        assert session.get_providers() == list(dict.fromkeys([faster, CPU]))
        assert {row.provider for row in session.explain().rows} == {faster}
        device.runs.clear()
        check(session, 2 * X)
        check(session, np.ones((5, 2), np.float32))
        assert device.runs == [faster] * 2
        assert device.closed == (faster == CPU)
    assert device.closed == 1


def test_measuring_ends_after_a_second(device: Device) -> None:
    device.seconds = {WEBGPU: [0.6], CPU: [0.7]}
    with InferenceSession(product(), providers=["auto"]) as session:
        check(session)
    assert device.runs == [WEBGPU, CPU] * 2


def test_a_choice_is_remembered(device: Device) -> None:
    for turn in range(3):
        with InferenceSession(product(), providers=["auto"]) as session:
            device.runs.clear()
            check(session)
            assert device.runs == ([WEBGPU, CPU] * (ROUNDS + 1) if turn == 0 else [WEBGPU])
            choice = session.explain().choice
            assert choice is not None
            assert choice.reason.startswith("known from before: ") == (turn > 0)
    device.seconds[WEBGPU] = [1.0]
    for change in ("other shapes", "another adapter"):
        device.adapter = change
        with InferenceSession(product(), providers=["auto"]) as session:
            check(session, np.ones((4, 2), np.float32))
            assert session.get_providers() == [CPU]
    device.runs.clear()
    with InferenceSession(product(), providers=["auto"]) as session:
        check(session, np.ones((4, 2), np.float32))
    assert device.runs == [CPU]


def test_models_are_told_apart_by_what_makes_them_fast() -> None:
    def of(**changes: Any) -> bytes:
        given = {"op": "MatMul", "w": W, "axis": 1, **changes}
        nodes = [
            node(given["op"], ["x", "w"], ["p"]),
            node("Softmax", ["p"], ["s"], axis=given["axis"]),
            node("Reshape", ["s", "shape"], ["y"]),
        ]
        shape = np.array(given.get("shape", [-1]), np.int64)
        made = model(nodes, [("x", FLOAT, [None, 2])], [("y", FLOAT, [None])], {"w": given["w"], "shape": shape})
        return fingerprint(load_model(made.SerializeToString()).graph)

    large = np.zeros((2, 100), np.float32)
    assert of() == of()
    assert of(w=large) == of(w=large + 1)
    different = [{"op": "Gemm"}, {"axis": 0}, {"shape": [1, -1]}, {"w": large}, {"w": W.astype(np.float64)}, {"w": W.T}]
    assert len({of(), *(of(**changes) for changes in different)}) == 1 + len(different)


def test_without_a_device_it_is_the_cpu(device: Device, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webgpu, "PROVIDER", replace(webgpu.PROVIDER, available=lambda: "no card is there"))
    with InferenceSession(product(), providers=["auto"]) as session:  # and no warning
        check(session)
        assert session.get_providers() == [CPU]
        choice = session.explain().choice
        assert choice is not None
        assert choice.provider == CPU
        assert "no card is there" in choice.reason
    assert device.runs == [CPU]


@pytest.mark.parametrize("kind", [ProviderError, ValueError])
def test_a_device_that_fails_is_not_chosen(device: Device, kind: type[Exception]) -> None:
    device.failing = kind("out of order")
    with InferenceSession(product(), providers=["auto"]) as session:
        check(session)
        choice = session.explain().choice
        assert choice is not None
        assert choice.provider == CPU
        assert "WebGpuExecutionProvider failed: " in choice.reason
        assert "out of order" in choice.reason
        check(session)
    device.failing = None
    with InferenceSession(product(), providers=["auto"]) as session:
        check(session)
        assert session.get_providers()[0] == WEBGPU


def test_what_fails_everywhere_chooses_nothing(device: Device) -> None:
    made = model(
        [node("Gather", ["w", "i"], ["g"]), node("Relu", ["g"], ["y"])],
        [("i", 7, [None])], [("y", FLOAT, [None, 3])], {"w": W}, opset=21,
    )  # fmt: skip
    with InferenceSession(made.SerializeToString(), providers=["auto"]) as session:
        with pytest.raises(NodeError):
            session.run(None, {"i": np.array([7], np.int64)})
        assert session.explain().choice is None
        np.testing.assert_array_equal(session.run(None, {"i": np.array([1], np.int64)})[0], W[1:])
        assert session.explain().choice is not None


def test_a_device_with_nothing_to_do_is_given_back(device: Device) -> None:
    device.refusal = "not today"
    with InferenceSession(product(), providers=["auto"]) as session:
        check(session)
        choice = session.explain().choice
        assert choice is not None
        assert choice.provider == CPU
        assert "computes no node" in choice.reason
        assert device.closed == 1


@pytest.mark.parametrize("given", [None, {"x": (3, 2)}, {"x": X}])
def test_warming_up_chooses(device: Device, given: Any) -> None:
    with InferenceSession(product(1 if given is None else None), providers=["auto"]) as session:
        session.warmup(given)
        assert session.explain().choice is not None
        device.runs.clear()
        check(session)
        assert device.runs == [WEBGPU]


async def test_asynchronously(device: Device) -> None:
    device.seconds[CPU] = [0.0001]
    session = await InferenceSession.create(product(), providers=["auto"])
    (y,) = await session.run_async(None, {"x": X})
    np.testing.assert_allclose(y, np.maximum(X @ W, 0))
    assert device.runs == [WEBGPU, CPU] * (ROUNDS + 1)
    assert session.get_providers() == [CPU]
    session.close()


def test_new_providers_choose_anew(device: Device) -> None:
    device.seconds[CPU] = [0.0001]
    with InferenceSession(product(), providers=["auto"]) as session:
        check(session)
        assert session.get_providers() == [CPU]
        session.set_providers(["webgpu"])
        assert session.explain().choice is None
        check(session)
        assert session.get_providers() == [WEBGPU, CPU]


def test_the_example_of_the_documentation(device: Device, capsys: pytest.CaptureFixture[str]) -> None:
    code = block("The faster of the two", "python", "docs/webgpu.md")
    exec(compile(code, "docs/webgpu.md", "exec"), {})
    printed = capsys.readouterr().out
    assert printed.startswith("['WebGpuExecutionProvider', 'CPUExecutionProvider'] Choice(provider='WebGpu")
    assert "a run took 1 ms on WebGpuExecutionProvider, 2 ms on CPUExecutionProvider" in printed
