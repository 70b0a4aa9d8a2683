"""Models in Pyodide in Chromium: the same numbers as natively, in one call of the kernels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.browser.harness import Chromium, PyodideHost
from tests.core.models import FLOAT, INT64, model, node
from tests.models import ZooModel, zoo

COUNT_CALLS = """
(() => {
  // Counts calls that run a tape, alone or shared with threads, from outside: every instance gets a counting twin.
  globalThis.kernelCalls = 0;
  const counting = (run) => (...a) => { globalThis.kernelCalls++; return run(...a); };
  const counted = (exports) => 'run' in exports
    ? {...exports, run: counting(exports.run), run_shared: counting(exports.run_shared)} : exports;
  const Instance = WebAssembly.Instance;
  WebAssembly.Instance = new Proxy(Instance, {construct(target, args) {
    const instance = new target(...args);
    return {exports: counted(instance.exports)};
  }});
  const instantiate = WebAssembly.instantiate;
  WebAssembly.instantiate = async (source, ...rest) => {
    const made = await instantiate(source, ...rest);
    if (made instanceof Instance) return 'run' in made.exports ? {exports: counted(made.exports)} : made;
    return 'run' in made.instance.exports ? {...made, instance: {exports: counted(made.instance.exports)}} : made;
  };
})();
"""

REFUSE_RELAXED = """
// A browser without relaxed SIMD: it finds a module with f32x4.relaxed_madd (FD 85 02) not valid.
const validate = WebAssembly.validate;
WebAssembly.validate = (bytes) => {
  const given = new Uint8Array(bytes.buffer ?? bytes, bytes.byteOffset ?? 0, bytes.byteLength);
  const relaxed = given.some((byte, i) => byte === 0xFD && given[i + 1] === 0x85 && given[i + 2] === 0x02);
  return !relaxed && validate(bytes);
};
"""

RUN = """
import js
import onnxlet
from onnxlet.model.dtypes import widen
session = await onnxlet.InferenceSession.create(url, providers=providers)
feeds = {name: value for name, value in zip(names, [globals()[f"feed{i}"] for i in range(len(names))])}
feeds = {name: value.astype(object) if value.dtype.kind == "U" else value for name, value in feeds.items()}
outputs = await session.run_async(None, feeds)
before = getattr(js, "kernelCalls", 0)
again = await session.run_async(None, feeds)
calls = getattr(js, "kernelCalls", 0) - before
explained = session.explain().to_dict()
names_out = [o.name for o in session.get_outputs()]
session.close()

def plain(value):
    if isinstance(value, list):
        return [list(row.values()) for row in value]
    return value.tolist() if value.dtype == object else widen(value)

{
    "outputs": [plain(v) for v in outputs],
    "again": [plain(v) for v in again],
    "names": names_out, "calls": calls, "explained": explained,
}
"""


def run(pyodide: PyodideHost, zoo_model: ZooModel, providers: tuple[str, ...] = ("cpu",)) -> dict[str, Any]:
    """Run a model of the zoo twice in Pyodide, check both results, and return what it said."""
    feeds = zoo_model.values("in")
    answer = pyodide.run_python(
        RUN,
        url=pyodide.url(zoo_model.path),
        providers=list(providers),
        names=list(feeds),
        **{f"feed{i}": value for i, value in enumerate(feeds.values())},
    )
    zoo_model.check(answer["names"], answer["outputs"])
    zoo_model.check(answer["names"], answer["again"])
    return answer


SMALL = [m for m in zoo() if m.path.stat().st_size < 3_000_000]
ON_THE_GPU = zoo("torch_mobilenetv2", "torch_resnet18w32_dyn", "torch_bert")


@pytest.mark.parametrize("zoo_model", SMALL, ids=lambda m: m.name)
def test_model(pyodide_worker: PyodideHost, zoo_model: ZooModel) -> None:
    run(pyodide_worker, zoo_model)


@pytest.mark.parametrize("host", ["pyodide_page", "pyodide_plain_worker", "pyodide_plain_page"])
def test_model_elsewhere(request: pytest.FixtureRequest, host: str) -> None:
    """On the main thread, and in pages without cross-origin isolation."""
    for zoo_model in zoo("torch_mobilenetv2_ts", "tf_lstm"):
        run(request.getfixturevalue(host), zoo_model)


@pytest.mark.parametrize("relaxed", [True, False])
def test_both_builds_run_models_in_one_call(chromium: Chromium, relaxed: bool) -> None:
    pyodide = chromium.pyodide(before=COUNT_CALLS + ("" if relaxed else REFUSE_RELAXED))
    for zoo_model in zoo("torch_mobilenetv2_ts", "torch_unet_ts"):
        answer = run(pyodide, zoo_model)
        assert answer["calls"] == 1
        assert set(answer["explained"]["counts"]) <= {"CPUExecutionProvider", "plan"}


@pytest.mark.parametrize(
    "zoo_model", (zoo("torch_mobilenetv2", "torch_resnet18w32_dyn", "torch_bert")), ids=lambda m: m.name
)
def test_model_on_the_gpu(pyodide_worker: PyodideHost, zoo_model: ZooModel) -> None:
    answer = run(pyodide_worker, zoo_model, ("webgpu", "cpu"))
    nodes = answer["explained"]["nodes"]
    assert sum(n["provider"] == "WebGpuExecutionProvider" for n in nodes) > len(nodes) / 2
    assert all(n["reason"] for n in nodes if n["provider"] in ("CPUExecutionProvider", "NumPy"))


def test_trees_run_on_kernels(pyodide_worker: PyodideHost) -> None:
    (forest,) = zoo("skl_rf_clf")
    assert run(pyodide_worker, forest)["explained"]["counts"] == {"CPUExecutionProvider": 1}


def test_numpy_in_the_middle_of_a_graph(pyodide_worker: PyodideHost) -> None:
    made = model(
        [
            node("MatMul", ["x", "w"], ["a"]),
            node("Relu", ["a"], ["b"]),
            node("Det", ["b"], ["d"]),
            node("Mul", ["b", "d"], ["y"]),
        ],
        [("x", FLOAT, [3, 3])],
        [("y", FLOAT, [3, 3])],
        {"w": np.eye(3, dtype=np.float32) * 2},
    )
    x = np.array([[1, 2, 0], [0, 1, 0], [0, -1, 2]], np.float32)
    y, explained = pyodide_worker.run_python(
        """
        import onnxlet
        session = onnxlet.InferenceSession(model)
        (y,) = session.run(None, {"x": x})
        [y, session.explain().to_dict()]
        """,
        model=made.SerializeToString(),
        x=x,
    )
    b = np.maximum(2 * x, 0)
    np.testing.assert_allclose(y, b * np.linalg.det(b), rtol=1e-6)
    assert [n["provider"] for n in sorted(explained["nodes"], key=lambda n: n["segment"])].count("NumPy") == 1
    assert explained["calls"] == 2


def test_weights_do_not_stay_in_pythons_heap(chromium: Chromium) -> None:
    """A model of 64 MB from an address leaves the heap of Python about as large as it was."""
    weights = np.zeros((4096, 4096), np.float32)
    made = model(
        [node("MatMul", ["x", "w"], ["y"])], [("x", FLOAT, [1, 4096])], [("y", FLOAT, [1, 4096])], {"w": weights}
    )
    grown, y = chromium.pyodide(before="/* a heap of its own */").run_python(
        """
        import numpy as np
        import onnxlet
        from pyodide_js import _module
        before = _module.HEAP8.length
        session = await onnxlet.InferenceSession.create(url, cache=False)
        (y,) = await session.run_async(None, {"x": np.ones((1, 4096), np.float32)})
        session.close()
        [_module.HEAP8.length - before, y]
        """,
        url=chromium.urls[True] + chromium.blobs.put(made.SerializeToString()),
    )
    assert grown < 16 << 20
    assert not y.any()


def test_bad_input_is_named_and_the_next_run_works(pyodide_worker: PyodideHost) -> None:
    good = model([node("Gather", ["x", "i"], ["y"])], [("x", FLOAT, [3]), ("i", INT64, ["n"])], [("y", FLOAT, ["n"])])
    data = good.SerializeToString()
    found = pyodide_worker.run_python(
        """
        import numpy as np
        import onnxlet

        def caught(call):
            try:
                call()
            except onnxlet.OnnxletError as error:
                return [type(error).__name__, str(error)]

        session = onnxlet.InferenceSession(good)
        x = np.arange(3, dtype=np.float32)
        [
            caught(lambda: onnxlet.InferenceSession(b"just some text, not a model")),
            caught(lambda: onnxlet.InferenceSession(good[: len(good) // 2])),
            caught(lambda: session.run(None, {"x": x})),
            caught(lambda: session.run(None, {"x": x, "i": np.array([7], np.int64)})),
            session.run(None, {"x": x, "i": np.array([2], np.int64)})[0],
        ]
        """,
        good=data,
    )
    text, cut, missing, out_of_range, works = found
    assert text[0] == "ModelError"
    assert cut[0] == "ModelError"
    assert missing[0] == "FeedError"
    assert out_of_range[0] == "NodeError"
    assert works == [2]
