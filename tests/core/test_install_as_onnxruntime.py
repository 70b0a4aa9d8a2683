"""`import onnxruntime` gives onnxlet, in processes of their own: here the real one is imported."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from onnxlet.tools import stand_in
from tests.readme import block


def run(code: str, *arguments: str) -> str:
    """What a program prints."""
    command = [sys.executable, "-c", textwrap.dedent(code), *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_imports():
    assert run(
        """
        import onnxlet, sys
        assert not any(name.startswith("onnxlet.onnxruntime_face") for name in sys.modules)
        onnxlet.install_as_onnxruntime()
        assert "onnxruntime" not in sys.modules
        from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument
        import onnxruntime, onnxruntime as ort
        from onnxruntime import InferenceSession
        from onnxruntime.capi import _pybind_state as C
        from onnxruntime.capi.onnxruntime_inference_collection import OrtValue
        assert InferenceSession is onnxruntime.InferenceSession
        assert issubclass(InferenceSession, onnxlet.InferenceSession)
        assert onnxruntime.capi._pybind_state.Fail is Fail is C.Fail
        assert OrtValue is onnxruntime.OrtValue is C.OrtValue
        onnxlet.install_as_onnxruntime()
        import onnxruntime
        assert onnxruntime is ort
        print(onnxruntime.__version__, sys.meta_path[0].__class__.__module__, len(sys.meta_path))
        onnxlet.install_as_onnxruntime()
        print(len(sys.meta_path))
        """
    ).split()[:2] == ["1.32.0", "onnxlet.onnxruntime_face.install"]


def test_distributions():
    """The installed onnxruntime, of this environment, is not seen any more."""
    run(
        """
        import importlib.util, onnxlet
        from importlib.metadata import distribution, distributions, requires, version
        onnxlet.install_as_onnxruntime(version="1.20.1")
        assert version("onnxruntime") == version("onnxruntime-gpu") == version("OnnxRuntime_DirectML") == "1.20.1"
        assert distribution("onnxruntime").metadata["Summary"] == "onnxlet in the place of onnxruntime"
        assert not requires("onnxruntime")
        assert [d.version for d in distributions() if d.name == "onnxruntime"][0] == "1.20.1"
        assert version("numpy")
        assert importlib.util.find_spec("onnxruntime").origin == "onnxlet"
        import onnxruntime
        assert onnxruntime.__version__ == "1.20.1"
        onnxlet.install_as_onnxruntime()
        assert version("onnxruntime") == onnxruntime.__version__ == "1.32.0"
        """
    )


@pytest.mark.parametrize("part", ["quantization", "tools.symbolic_shape_infer", "transformers", "training", "datasets"])
def test_parts_that_are_not_there(part: str):
    """They can't be imported, and say why; what is no part of onnxruntime is as absent as ever."""
    told = run(
        """
        import sys, onnxlet
        onnxlet.install_as_onnxruntime()
        try:
            __import__("onnxruntime." + sys.argv[1])
        except ModuleNotFoundError as error:
            print(error.name, error)
        try:
            import onnxruntime.nonsense
        except ModuleNotFoundError as error:
            print(error)
        """,
        part,
    ).splitlines()
    assert told[0].startswith(f"onnxruntime.{part.split('.')[0]} onnxlet stands in for onnxruntime and has no")
    assert told[1] == "No module named 'onnxruntime.nonsense'"


def test_an_onnxruntime_that_is_imported_already_stays():
    told = run(
        """
        import onnxlet, onnxruntime
        from importlib.metadata import distribution
        try:
            onnxlet.install_as_onnxruntime()
        except onnxlet.UnsupportedError as error:
            print(error)
        import onnxruntime.capi.onnxruntime_pybind11_state as state
        assert state.InferenceSession.__module__ == state.__name__ and hasattr(state, "get_all_operator_schema")
        assert distribution("onnxruntime").files
        """
    )
    assert told.startswith("onnxruntime itself is imported already, from ")


def test_a_session_travels_to_a_process_that_has_not_installed_anything(tmp_path: Path):
    path = tmp_path / "session.pickle"
    run(
        """
        import pickle, sys, numpy as np, onnx, onnxlet
        onnxlet.install_as_onnxruntime()
        import onnxruntime
        from onnx import helper, TensorProto
        types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
        graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", types[:1], types[1:])
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        try:
            session.run(None, {})
        except ValueError as caught:
            error = caught
        with open(sys.argv[1], "wb") as file:
            pickle.dump((session, error, onnxruntime.SessionOptions()), file)
        """,
        str(path),
    )
    assert run(
        """
        import pickle, sys, numpy as np
        with open(sys.argv[1], "rb") as file:
            session, error, options = pickle.load(file)
        print(session.run(None, {"x": np.array([-1, 2], np.float32)})[0].tolist(), type(error).__name__)
        """,
        str(path),
    ).split() == ["[1.0,", "2.0]", "InvalidArgument"]


def test_the_wheel_that_stands_in(tmp_path: Path):
    """It installs as onnxruntime, and importing it gives onnxlet."""
    path = Path(stand_in.write(tmp_path, "1.20.1"))
    assert path.name == "onnxruntime-1.20.1-py3-none-any.whl"
    place = tmp_path / "site"
    with zipfile.ZipFile(path) as archive:
        archive.extractall(place)
        assert archive.testzip() is None
    told = run(
        """
        import sys
        sys.path.insert(0, sys.argv[1])
        import onnxruntime.capi.onnxruntime_pybind11_state as state
        import onnxruntime, onnxlet
        from importlib.metadata import version
        assert issubclass(onnxruntime.InferenceSession, onnxlet.InferenceSession)
        assert state.InvalidArgument is onnxruntime.capi._pybind_state.InvalidArgument
        onnxlet.install_as_onnxruntime(version="1.20.1")
        print(onnxruntime.__version__, version("onnxruntime"))
        """,
        str(place),
    )
    assert told.split() == ["1.20.1", "1.20.1"]
    gpu = Path(stand_in.write(tmp_path, name="onnxruntime-gpu"))
    with zipfile.ZipFile(gpu) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("METADATA"))
        assert "Name: onnxruntime-gpu\nVersion: 1.32.0\n" in archive.read(name).decode()
        assert "Requires-Dist: onnxlet" in archive.read(name).decode()


def test_the_example_in_the_documents(tmp_path: Path):
    """The first block of docs/onnxruntime.md, with a model that takes x, and with one that does not fit it."""
    path = tmp_path / "model.onnx"
    run(
        """
        import sys, onnx
        from onnx import helper, TensorProto
        types = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
        graph = helper.make_graph([helper.make_node("Abs", ["x"], ["y"])], "g", types[:1], types[1:])
        onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9), sys.argv[1])
        """,
        str(path),
    )
    example = block("In a process of your own", "python", "docs/onnxruntime.md").replace(
        '"model.onnx"', repr(str(path))
    )
    fed = "import numpy as np\nx = np.array({}, np.float32)\n"
    assert run(fed.format("[-1, 2]") + example + "print(y.tolist())") == "[1.0, 2.0]\n"
    assert run(fed.format("[[-1, 2]]") + example).startswith("[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : input 'x'")
