"""The names of onnxruntime's Python package, and what they do: as in the installed onnxruntime."""

from __future__ import annotations

import inspect
import json
import pickle
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper
from onnxruntime.capi import _pybind_state, onnxruntime_inference_collection, onnxruntime_pybind11_state

import onnxlet
from onnxlet.onnxruntime_face import NAMES, install
from tests.core.models import FLOAT, INT64, graph, model, node

MODULES: dict[str, Any] = {
    "onnxruntime": onnxruntime,
    "onnxruntime.capi.onnxruntime_pybind11_state": onnxruntime_pybind11_state,
    "onnxruntime.capi._pybind_state": _pybind_state,
    "onnxruntime.capi.onnxruntime_inference_collection": onnxruntime_inference_collection,
}
ADDED_AT_IMPORT = {"cuda_version", "package_name", "version", "import_capi_exception"}
IMPORTED = {"Any", "Callable", "IntEnum", "Sequence", "annotations"}
HELPERS = {
    "GetInitializerLocationFunc",
    "GetInitializerLocationWrapperFunc",
    "get_vendor_id_for_device_type",
    "make_get_initializer_location_func_wrapper",
}
BENEATH = {
    "InferenceSession": {
        "create_ortvalue_from_shape_and_onnx_type", "initialize_session", "input_epdevices", "input_meminfos",
        "inputs_meta", "is_webgpu_graph_capture_enabled", "model_meta", "output_meminfos", "outputs_meta",
        "overridable_initializers", "session_options", "webgpu_context_id",
    },
    "OrtValue": {
        "ortvalue_from_shape_and_onnx_type", "ortvalue_from_shape_and_type_for_memory_info",
        "ortvalue_from_shape_and_onnx_type_for_memory_info",
    },
    "OrtValueVector": {"push_back_batch"},
}  # fmt: skip
"""What the extension's classes have for the classes in Python on top of them."""

FACE = SimpleNamespace(**NAMES["onnxruntime"], state=SimpleNamespace(**NAMES["onnxruntime.capi._pybind_state"]))
REAL = SimpleNamespace(**vars(onnxruntime), state=onnxruntime_pybind11_state)
BOTH = pytest.mark.parametrize("library", [FACE, REAL], ids=["onnxlet", "onnxruntime"])
CPU = ["CPUExecutionProvider"]
X = np.array([[1, -2, 3], [4, 5, -6]], np.float32)


def small() -> bytes:
    """``z = (x + x) @ w`` and ``a = |x|``, where w doubles, and x has a symbolic dimension."""
    made = model(
        [node("Add", ["x", "x"], ["y"], name="add"), node("MatMul", ["y", "w"], ["z"], name="product"),
         node("Abs", ["x"], ["a"], name="abs")],
        [("x", FLOAT, ["n", 3])],
        [("z", FLOAT, ["n", 3]), ("a", FLOAT, ["n", 3])],
        {"w": 2 * np.eye(3, dtype=np.float32)},
        opset=17,
    )  # fmt: skip
    made.ir_version = 8
    return made.SerializeToString()


def session_of(library: Any, source: Any = None, options: Any = None, **more: Any) -> Any:
    return library.InferenceSession(small() if source is None else source, options, providers=CPU, **more)


def test_the_api_is_that_of_the_installed_release():
    assert onnxruntime.__version__ == install.VERSION


@pytest.mark.parametrize("module", MODULES)
def test_names(module: str):
    real = MODULES[module]
    names = {n for n in dir(real) if not n.startswith("_") and not inspect.ismodule(getattr(real, n))}
    assert names - {*NAMES[module]} <= ADDED_AT_IMPORT | IMPORTED | HELPERS
    if module == "onnxruntime":
        assert {*NAMES[module]} <= names


CLASSES = [(m, n) for m, real in MODULES.items() for n in NAMES[m] if inspect.isclass(getattr(real, n, None))]


@pytest.mark.parametrize(("module", "name"), CLASSES)
def test_members_and_signatures(module: str, name: str):
    real, face = getattr(MODULES[module], name), NAMES[module][name]
    members = {n for n in dir(real) if not n.startswith("_")} - BENEATH.get(name, set())
    if not issubclass(real, Exception):
        members -= {*dir(int)} | {"name", "value"} - {*getattr(real, "__members__", ())}
        there = {*dir(face), *getattr(face, "__dataclass_fields__", ()), *getattr(face, "__members__", ())}
        assert name in {**_refused()} or members <= there
    else:
        assert issubclass(face, Exception)
    if hasattr(real, "__members__"):
        assert {k: int(v) for k, v in face.__members__.items()} == {k: int(v) for k, v in real.__members__.items()}
    for member in members:
        given = inspect.getattr_static(real, member, None)
        if (inspect.isfunction(given) or isinstance(given, classmethod | staticmethod)) and name not in _refused():
            theirs = _parameters(getattr(real, member))
            assert theirs is None or _parameters(getattr(face, member))[: len(theirs)] == theirs, member
    if inspect.isfunction(real.__init__) and name not in {*_refused(), "OrtValue", "OrtDevice", "Session"}:
        assert _parameters(face.__init__)[: len(_parameters(real.__init__))] == _parameters(real.__init__)


def _refused() -> dict[str, str]:
    from onnxlet.onnxruntime_face.state import REFUSED

    return REFUSED


def _parameters(function: Any) -> Any:
    try:
        return [(p.name, p.kind) for p in inspect.signature(function).parameters.values()]
    except ValueError:
        return None  # of the extension's


def test_what_is_refused_says_why():
    options = FACE.SessionOptions()
    with pytest.raises(NotImplementedError, match=r"libraries: 'my\.so' is machine code.*@onnxlet\.op"):
        options.register_custom_ops_library("my.so")
    for refused in (
        lambda: FACE.ModelCompiler(options, small()),
        lambda: FACE.LoraAdapter(),
        lambda: FACE.AdapterFormat.read_adapter("x"),
        lambda: FACE.register_execution_provider_library("x", "y.so"),
    ):
        with pytest.raises(FACE.state.NotImplemented, match="onnxlet has no"):
            refused()


# Sessions


@BOTH
def test_runs(library: Any):
    session = session_of(library)
    (x,) = session.get_inputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["n", 3])
    z, a = session.run(None, {"x": X})
    np.testing.assert_array_equal(z, 4 * X)
    np.testing.assert_array_equal(a, np.abs(X))
    np.testing.assert_array_equal(session.run(["a"], {"x": X}, library.RunOptions())[0], np.abs(X))
    assert session.get_providers() == CPU
    assert session.get_provider_options() == {CPU[0]: {}}
    session.set_providers([*CPU])
    np.testing.assert_array_equal(session.run([], {"x": X})[0], 4 * X)
    assert session.get_modelmeta().graph_name == "g"
    (memory, *_) = session.get_input_memory_infos()
    assert (memory.name, memory.device_id) == ("Cpu", 0)
    (device,) = session.get_input_epdevices()
    assert device.ep_name == CPU[0]
    assert session.get_tuning_results() == []


@BOTH
def test_metadata(library: Any):
    made = onnx.ModelProto.FromString(small())
    made.producer_name, made.domain, made.model_version = "someone", "their.domain", 7
    made.doc_string, made.graph.doc_string = "about the model", "about the graph"
    helper.set_model_props(made, {"key": "value"})
    session = session_of(library, made.SerializeToString())
    for each in (session, pickle.loads(pickle.dumps(session)) if library is FACE else session):
        meta = each.get_modelmeta()
        assert (meta.producer_name, meta.domain, meta.version, meta.graph_name) == ("someone", "their.domain", 7, "g")
        assert (meta.description, meta.graph_description) == ("about the model", "about the graph")
        assert meta.custom_metadata_map == {"key": "value"}
    assert str(session.get_inputs()[0]) == "NodeArg(name='x', type='tensor(float)', shape=['n', 3])"


@BOTH
def test_unknown_providers_are_passed_over_with_a_warning(library: Any, capsys: pytest.CaptureFixture):
    with pytest.warns(UserWarning, match="'CUDAExecutionProvider' is not in available provider names"):
        session = library.InferenceSession(small(), None, ["CUDAExecutionProvider", *CPU])
    assert session.get_providers() == CPU
    with pytest.warns(UserWarning, match="'TheirExecutionProvider' is not in available provider names"):
        session = library.InferenceSession(small(), None, [("TheirExecutionProvider", {"a": "1"})])
    assert session.get_providers() == CPU
    capsys.readouterr()


@pytest.mark.parametrize(
    ("providers", "options"), [(CPU, [{}, {}]), ([(CPU[0], {})], [{}]), (CPU, [1]), ([3], None), (7, None)]
)
def test_providers_that_make_no_sense(providers: Any, options: Any):
    with pytest.warns(UserWarning, match=r"'provider.*falling back to the CPU"):
        session = FACE.InferenceSession(small(), None, providers, options)
    assert session.get_providers() == CPU
    with pytest.raises(ValueError, match="'provider"):
        FACE.InferenceSession(small(), None, providers, options, enable_fallback=0)


ERRORS: dict[str, tuple[Any, str]] = {
    "no file": (lambda s, n: n.InferenceSession("/not/there.onnx"), "NoSuchFile"),
    "no model": (lambda s, n: n.InferenceSession(b"hello, this is not a model"), "InvalidProtobuf"),
    "nothing": (lambda s, n: n.InferenceSession(b""), "InvalidArgument"),
    "rank": (lambda s, n: s.run(None, {"x": X[0]}), "InvalidArgument"),
    "length": (lambda s, n: s.run(None, {"x": X[:, :2]}), "InvalidArgument"),
    "type": (lambda s, n: s.run(None, {"x": X.astype(np.float64)}), "InvalidArgument"),
    "input": (lambda s, n: s.run(None, {"x": X, "q": X}), "InvalidArgument"),
    "output": (lambda s, n: s.run(["q"], {"x": X}), "InvalidArgument"),
    "operator": (lambda s, n: session_of(n, _strange("Nope")), "InvalidGraph"),
    "domain": (lambda s, n: session_of(n, _strange("Nope", domain="my.domain")), "Fail"),
    "attribute": (lambda s, n: session_of(n, _strange("Relu", foo=1)), "InvalidGraph"),
    "value": (lambda s, n: session_of(n, _strange("Add", second="q")), "InvalidArgument"),
    "shape": (lambda s, n: session_of(n, _reshape()).run(None, {"x": X[0], "s": np.array([2, 2])}), "Fail"),
    "terminated": (lambda s, n: s.run(None, {"x": X}, _terminated(n)), "Fail"),
    "assignment": (lambda s, n: s.get_provider_graph_assignment_info(), "Fail"),
}


def _strange(operator: str, domain: str = "", second: str = "", **attributes: Any) -> bytes:
    inputs = ["x", second] if second else ["x"]
    made = model(
        [node(operator, inputs, ["y"], domain=domain, **attributes)],
        [("x", FLOAT, [1])],
        [("y", FLOAT, [1])],
        domains=[domain] if domain else [],
        opset=17,
        check=False,
    )
    made.ir_version = 8
    return made.SerializeToString()


def _reshape() -> bytes:
    made = model(
        [node("Reshape", ["x", "s"], ["y"])], [("x", FLOAT, ["n"]), ("s", INT64, [2])], [("y", FLOAT, ["a", "b"])],
        opset=17,
    )  # fmt: skip
    made.ir_version = 8
    return made.SerializeToString()


def _terminated(library: Any) -> Any:
    options = library.RunOptions()
    options.terminate = True
    return options


@BOTH
@pytest.mark.parametrize("what", ERRORS)
def test_errors(library: Any, what: str):
    act, name = ERRORS[what]
    session = session_of(library)
    with pytest.raises(getattr(library.state, name)) as caught:
        act(session, library)
    assert str(caught.value).startswith("[ONNXRuntimeError] : ")
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 4 * X)
    with pytest.raises(ValueError, match="x"):
        session.run(None, {})


def test_errors_are_onnxlets_too_and_can_be_pickled():
    with pytest.raises(onnxlet.FeedError) as caught:
        session_of(FACE).run(None, {"x": X[0]})
    again = pickle.loads(pickle.dumps(caught.value))
    assert type(again) is type(caught.value)
    assert str(again) == str(caught.value)
    with pytest.raises(FACE.state.InvalidArgument, match="INVALID_ARGUMENT : input 'x' must be float32"):
        raise again


@BOTH
def test_a_callback_gets_the_results(library: Any):
    session, told, done = session_of(library), [], threading.Event()

    def callback(results: Any, user_data: Any, error: str) -> None:
        told.append((results, user_data, error))
        done.set()

    session.run_async(None, {"x": X}, callback, "mine")
    assert done.wait(20)
    done.clear()
    session.run_async(["z"], {"x": X[0]}, callback, 7)
    assert done.wait(20)
    ((z, a), mine, nothing), (none, number, error) = told
    np.testing.assert_array_equal(z, 4 * X)
    np.testing.assert_array_equal(a, np.abs(X))
    assert (mine, nothing, list(none), number) == ("mine", "", [], 7)
    assert error


async def test_without_a_callback_a_run_is_awaited():
    (z, _) = await session_of(FACE).run_async(None, {"x": X})
    np.testing.assert_array_equal(z, 4 * X)
    with pytest.raises(FACE.state.InvalidArgument):
        await session_of(FACE).run_async(None, {"x": X[0]})


@BOTH
def test_values_in_and_out(library: Any):
    session, value = session_of(library), library.OrtValue.ortvalue_from_numpy(X)
    z, _ = session.run_with_ort_values(None, {"x": value})
    assert isinstance(z, library.OrtValue)
    np.testing.assert_array_equal(z.numpy(), 4 * X)
    feeds, fetches = library.state.OrtValueVector(), library.state.OrtValueVector()
    feeds.push_back(value._ortvalue)
    device = library.OrtDevice.make("cpu", 0)._get_c_device()
    session.run_with_ortvaluevector(library.RunOptions(), ["x"], feeds, ["a"], fetches, [device])
    assert len(fetches) == 1
    np.testing.assert_array_equal(np.from_dlpack(library.OrtValue(fetches[0])), np.abs(X))
    assert fetches.element_type_at(0) == 1
    binding = session.io_binding()
    binding.bind_cpu_input("x", X)
    binding.bind_output("z")
    session.run_with_iobinding(binding)
    (found,) = binding.get_outputs_as_ortvaluevector()
    np.testing.assert_array_equal(library.OrtValue(found).numpy(), 4 * X)


# Options


@BOTH
def test_defaults_of_options(library: Any):
    for made, like in ((library.SessionOptions(), REAL.SessionOptions()), (library.RunOptions(), REAL.RunOptions())):
        names = [n for n in dir(like) if not n.startswith("_") and not callable(getattr(like, n))]
        assert {n: _plain(getattr(made, n)) for n in names} == {n: _plain(getattr(like, n)) for n in names}
        with pytest.raises(AttributeError):
            made.no_such_option = 1
        with pytest.raises(RuntimeError):
            (made.get_run_config_entry if "terminate" in names else made.get_session_config_entry)("absent")
    options = library.SessionOptions()
    options.add_session_config_entry("key", "value")
    assert options.get_session_config_entry("key") == "value"
    options.graph_optimization_level = library.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_mode = library.ExecutionMode.ORT_PARALLEL
    options.execution_order = library.ExecutionOrder.PRIORITY_BASED
    session = session_of(library, options=options)
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 4 * X)
    assert session.get_session_options().get_session_config_entry("key") == "value"


def _plain(value: Any) -> Any:
    return value if isinstance(value, str | bool) else int(value)


@BOTH
def test_providers_among_the_options(library: Any):
    options = library.SessionOptions()
    assert not options.has_providers()
    options.add_provider(CPU[0], {})
    assert options.has_providers()
    assert library.InferenceSession(small(), options).get_providers() == CPU


@BOTH
@pytest.mark.parametrize("by", ["name", "denotation"])
def test_free_dimensions_get_a_length(library: Any, by: str):
    made = onnx.ModelProto.FromString(small())
    made.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    options = library.SessionOptions()
    getattr(options, f"add_free_dimension_override_by_{by}")({"name": "n", "denotation": "DATA_BATCH"}[by], 2)
    getattr(options, f"add_free_dimension_override_by_{by}")("absent", 7)
    session = session_of(library, made.SerializeToString(), options)
    assert [x.shape for x in (*session.get_inputs(), session.get_outputs()[0])] == [[2, 3], [2, 3]]
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], 4 * X)
    with pytest.raises(library.state.InvalidArgument):
        session.run(None, {"x": X[:1]})


@BOTH
def test_an_initializer_is_shared(library: Any):
    options = library.SessionOptions()
    weight = library.OrtValue.ortvalue_from_numpy(10 * np.eye(3, dtype=np.float32))
    options.add_initializer("w", weight)
    options.add_initializer("absent", weight)
    for _ in range(2):
        np.testing.assert_array_equal(session_of(library, options=options).run(["z"], {"x": X})[0], 20 * X)


def external() -> bytes:
    """`small`, its weight in a file that is not there."""
    made = onnx.ModelProto.FromString(small())
    (weight,) = made.graph.initializer
    weight.ClearField("raw_data")
    weight.data_location = TensorProto.EXTERNAL
    for key, value in {"location": "weights.bin", "offset": "4", "length": "36"}.items():
        weight.external_data.add(key=key, value=value)
    return made.SerializeToString()


@BOTH
def test_external_initializers_from_memory(library: Any):
    weight = 10 * np.eye(3, dtype=np.float32)
    options = library.SessionOptions()
    options.add_external_initializers(["w"], [library.OrtValue.ortvalue_from_numpy(weight)])
    np.testing.assert_array_equal(session_of(library, external(), options).run(["z"], {"x": X})[0], 20 * X)
    options = library.SessionOptions()
    content = bytes(4) + weight.tobytes()
    options.add_external_initializers_from_files_in_memory(["weights.bin"], [content], [len(content)])
    np.testing.assert_array_equal(session_of(library, external(), options).run(["z"], {"x": X})[0], 20 * X)


def test_an_initializer_of_another_type_is_refused():
    options = FACE.SessionOptions()
    options.add_initializer("w", FACE.OrtValue.ortvalue_from_numpy(np.eye(2, dtype=np.float32)))
    with pytest.raises(FACE.state.InvalidArgument, match=r"initializer 'w' is float32\[3,3\], not float32\[2,2\]"):
        session_of(FACE, options=options)


def test_only_the_path_to_the_wanted_outputs_runs():
    """The node beside it would fail."""
    made = model(
        [node("Reshape", ["x", "s"], ["y"]), node("Abs", ["x"], ["a"])],
        [("x", FLOAT, ["n"]), ("s", INT64, [2])],
        [("y", FLOAT, ["a", "b"]), ("a", FLOAT, ["n"])],
        opset=17,
    )
    made.ir_version = 8
    session, options = session_of(FACE, made), FACE.RunOptions()
    feeds = {"x": X[0], "s": np.array([2, 2])}
    options.only_execute_path_to_fetches = True
    np.testing.assert_array_equal(session.run(["a"], feeds, options)[0], np.abs(X[0]))
    with pytest.raises(FACE.state.Fail):
        session.run(["y"], feeds, options)


@BOTH
def test_a_run_is_ended_from_another_thread(library: Any):
    """A loop that would go on for hours."""
    body = graph(
        [node("Identity", ["on"], ["on_"]), node("Add", ["s", "s"], ["s_"])],
        [("i", INT64, []), ("on", TensorProto.BOOL, []), ("s", FLOAT, [1000, 1000])],
        [("on_", TensorProto.BOOL, []), ("s_", FLOAT, [1000, 1000])],
    )
    made = model(
        [node("Loop", ["times", "", "x"], ["y"], body=body)],
        [("times", INT64, []), ("x", FLOAT, [1000, 1000])],
        [("y", FLOAT, [1000, 1000])],
        opset=17,
    )
    made.ir_version = 8
    session, options = session_of(library, made.SerializeToString()), library.RunOptions()
    timer = threading.Timer(0.3, lambda: setattr(options, "terminate", True))
    timer.start()
    with pytest.raises(library.state.Fail, match=r"terminate"):
        session.run(None, {"times": np.array(9_000_000), "x": np.zeros((1000, 1000), np.float32)}, options)
    timer.join()
    (y,) = session.run(None, {"times": np.array(2), "x": np.ones((1000, 1000), np.float32)})
    assert (y == 4).all()


# Traces


@BOTH
def test_profiles(library: Any, tmp_path: Path):
    options = library.SessionOptions()
    options.enable_profiling = True
    options.profile_file_prefix = str(tmp_path / "trace")
    options.graph_optimization_level = library.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = session_of(library, options=options)
    assert session.get_profiling_start_time_ns() > 0
    session.run(None, {"x": X})
    path = Path(session.end_profiling())
    assert path.parent == tmp_path
    assert path.name.startswith("trace_2")
    assert path.suffix == ".json"
    events = json.loads(path.read_text())
    assert {*events[0]} == {"cat", "pid", "tid", "dur", "ts", "ph", "name", "args"}
    names = [event["name"] for event in events if event["cat"] == "Session"]
    assert {"model_loading_array", "session_initialization", "model_run", "SequentialExecutor::Execute"} <= {*names}
    nodes = {event["name"]: event["args"] for event in events if event["cat"] == "Node"}
    assert {*nodes} >= {"add_kernel_time", "product_kernel_time", "abs_kernel_time"}
    product = nodes["product_kernel_time"]
    assert product["op_name"] == "MatMul"
    assert product["provider"] == CPU[0]
    assert product["node_index"].isdigit()
    assert product["input_type_shape"][0] == {"float": [2, 3]}
    assert product["output_type_shape"] == [{"float": [2, 3]}]
    assert (product["activation_size"], product["output_size"]) == ("24", "24")
    run = next(event for event in events if event["name"] == "model_run")
    for event in events:
        if event["cat"] == "Node":
            assert run["ts"] <= event["ts"] <= run["ts"] + run["dur"] + 1
    assert session_of(library).end_profiling() == ""


def test_profiles_of_interpreted_nodes_and_of_what_follows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """NonZero's shape is known after it has run, and so is what comes after it."""
    monkeypatch.chdir(tmp_path)
    made = model(
        [node("NonZero", ["x"], ["i"], name="find"), node("Cast", ["i"], ["y"], to=FLOAT, name="cast")],
        [("x", FLOAT, [2, 3])],
        [("y", FLOAT, [2, "m"])],
    )
    before = time.monotonic_ns()
    session = onnxlet.InferenceSession(made, onnxlet.SessionOptions(enable_profiling=True))
    assert before <= session.get_profiling_start_time_ns() <= time.monotonic_ns()
    session.run(None, {"x": X})
    events = json.loads(Path(session.end_profiling()).read_text())
    found = {e["args"]["op_name"]: e["args"] for e in events if e["cat"] == "Node"}
    assert found["NonZero"]["output_type_shape"] == [{"int64": [2, 6]}]
    assert found["Cast"]["input_type_shape"] == [{"int64": [2, 6]}]


@BOTH
def test_which_provider_computes_a_node(library: Any):
    options = library.SessionOptions()
    options.add_session_config_entry("session.record_ep_graph_assignment_info", "1")
    options.graph_optimization_level = library.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = session_of(library, options=options)
    session.run(None, {"x": X})
    parts = session.get_provider_graph_assignment_info()
    assert {part.ep_name for part in parts} == {*CPU}
    nodes = [(n.name, n.domain, n.op_type) for part in parts for n in part.get_nodes()]
    assert sorted(nodes) == [("abs", "", "Abs"), ("add", "", "Add"), ("product", "", "MatMul")]


# Sparse tensors

SHAPE = np.array([3, 4], np.int64)
VALUES = np.array([1, 2, 3], np.float32)
DENSE = np.array([[0, 1, 0, 0], [0, 0, 0, 0], [2, 0, 0, 3]], np.float32)


def sparse(library: Any) -> dict[str, Any]:
    cpu = library.OrtDevice.make("cpu", 0)
    flat, pairs = np.array([1, 8, 11], np.int64), np.array([[0, 1], [2, 0], [2, 3]], np.int64)
    columns, rows = np.array([1, 0, 3], np.int64), np.array([0, 1, 1, 3], np.int64)
    coo, csr = library.SparseTensor.sparse_coo_from_numpy, library.SparseTensor.sparse_csr_from_numpy
    return {
        "flat": coo(SHAPE, VALUES, flat, cpu),
        "pairs": coo(SHAPE, VALUES, pairs, cpu),
        "csr": csr(SHAPE, VALUES, columns, rows, cpu),
    }


@BOTH
def test_sparse_tensors(library: Any):
    made = sparse(library)
    assert made["flat"].as_coo_view().indices().tolist() == [1, 8, 11]
    assert made["pairs"].as_coo_view().indices().tolist() == [[0, 1], [2, 0], [2, 3]]
    assert made["csr"].as_csrc_view().inner().tolist() == [1, 0, 3]
    assert made["csr"].as_csrc_view().outer().tolist() == [0, 1, 1, 3]
    assert made["csr"].format() == library.OrtSparseFormat.ORT_SPARSE_CSRC
    for tensor in made.values():
        assert list(tensor.dense_shape()) == [3, 4]
        assert (tensor.data_type(), tensor.device_name()) == ("sparse_tensor(float)", "cpu")
        np.testing.assert_array_equal(tensor.values(), VALUES)
        value = library.OrtValue.ort_value_from_sparse_tensor(tensor)
        assert value.is_sparse_tensor()
        assert not value.is_tensor()
        assert (value.data_type(), list(value.shape()), value.element_type()) == ("sparse_tensor(float)", [3, 4], 1)
        np.testing.assert_array_equal(value.as_sparse_tensor().values(), VALUES)
        with pytest.raises((RuntimeError, ValueError)):
            value.numpy()
    with pytest.raises((RuntimeError, ValueError)):
        made["flat"].as_csrc_view()
    cpu = library.OrtDevice.make("cpu", 0)
    with pytest.raises((RuntimeError, ValueError)):
        library.SparseTensor.sparse_coo_from_numpy(SHAPE, VALUES, np.array([0, 4], np.int64), cpu)


@pytest.mark.parametrize(("library", "form"), [(FACE, "flat"), (FACE, "pairs"), (FACE, "csr"), (REAL, "csr")])
def test_sparse_feeds(library: Any, form: str):
    made = helper.make_graph(
        [helper.make_node("SparseToDenseMatMul", ["a", "b"], ["y"], domain="com.microsoft")],
        "g",
        [helper.make_sparse_tensor_value_info("a", FLOAT, [3, 4]), helper.make_tensor_value_info("b", FLOAT, [4, 2])],
        [helper.make_tensor_value_info("y", FLOAT, [3, 2])],
    )
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    session = session_of(library, helper.make_model(made, opset_imports=imports, ir_version=8).SerializeToString())
    b = np.arange(8, dtype=np.float32).reshape(4, 2)
    value = library.OrtValue.ort_value_from_sparse_tensor(sparse(library)[form])
    np.testing.assert_array_equal(session.run(None, {"a": value, "b": b})[0], DENSE @ b)


# Devices, and the rest


@BOTH
def test_devices(library: Any):
    cpu, cuda = library.OrtDevice.make("cpu", 0), library.OrtDevice.make("cuda", 1)
    assert (cpu.device_type(), cpu.device_id(), cpu.device_vendor_id(), cpu.device_mem_type()) == (0, 0, 0, 0)
    assert (cuda.device_type(), cuda.device_id(), cuda.device_vendor_id()) == (1, 1, 0x10DE)
    state = library.state.OrtDevice
    kinds = [getattr(state, name)() for name in ("cpu", "gpu", "fpga", "npu", "dml", "webgpu", "default_memory")]
    assert kinds == [0, 1, 2, 3, 4, 1, 0]
    assert library.OrtDevice(state(state.cpu(), state.default_memory(), 3)).device_id() == 3
    with pytest.raises(Exception, match="Unsupported device type: toaster"):
        library.OrtDevice.make("toaster", 0)
    with pytest.raises(RuntimeError):
        library.OrtValue.ortvalue_from_numpy(X, "cuda", 0)
    assert library.get_device() == "CPU"
    assert CPU[0] in library.get_available_providers()
    assert library.get_ep_devices()[-1].ep_name == CPU[0]
    assert library.get_version_string() == onnxruntime.__version__
    assert not library.has_collective_ops()


@BOTH
def test_settings_of_the_process(library: Any):
    library.set_default_logger_severity(3)
    library.set_default_logger_verbosity(0)
    library.set_seed(1)
    library.disable_telemetry_events()
    library.preload_dlls()
    for severity in (-1, 5):
        with pytest.raises(RuntimeError):
            library.set_default_logger_severity(severity)


@BOTH
def test_more_of_values(library: Any):
    value = library.OrtValue.ortvalue_from_numpy(X.copy(), "cpu", 0)
    capsule = value._ortvalue.to_dlpack()
    shared = library.OrtValue.from_dlpack(capsule)
    other = library.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32, "cpu", 0, -1)
    value.update_inplace(np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(shared.numpy(), np.ones((2, 3)))
    assert np.asarray(value).dtype == np.float32
    assert np.asarray(value, dtype=np.float64).dtype == np.float64
    assert np.array(value, copy=True) is not value.numpy()
    assert library.OrtValue.from_dlpack(np.zeros(2, np.bool_)).data_type() == "tensor(bool)"
    other.update_inplace(value.numpy())
    np.testing.assert_array_equal(other.numpy(), np.ones((2, 3)))


def test_tensors_are_copied_into_each_other():
    target = FACE.OrtValue.ortvalue_from_shape_and_type([2, 3], np.float32)
    FACE.copy_tensors([FACE.OrtValue.ortvalue_from_numpy(X)], [target])
    np.testing.assert_array_equal(target.numpy(), X)


# Pickles


def test_sessions_pickle(tmp_path: Path):
    path = tmp_path / "model.onnx"
    path.write_bytes(external())
    (tmp_path / "weights.bin").write_bytes(bytes(4) + (10 * np.eye(3, dtype=np.float32)).tobytes())
    options = FACE.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("key", "value")
    for library in (FACE, onnxlet):
        session = library.InferenceSession(str(path), options, providers=[("CPUExecutionProvider", {})])
        content = pickle.dumps(session)
        again = pickle.loads(content)
        assert type(again) is type(session)
        assert again.get_session_options().get_session_config_entry("key") == "value"
        assert again.get_session_options().intra_op_num_threads == 1
        assert again.get_providers() == CPU
        assert [(a.name, a.type, a.shape) for a in again.get_inputs()] == [("x", "tensor(float)", ["n", 3])]
        np.testing.assert_array_equal(again.run(None, {"x": X})[0], 20 * X)
        np.testing.assert_array_equal(session.run(None, {"x": X})[0], 20 * X)
    path.unlink()
    (tmp_path / "weights.bin").unlink()
    np.testing.assert_array_equal(pickle.loads(content).run(None, {"x": X})[0], 20 * X)


def test_values_and_options_pickle():
    value = pickle.loads(pickle.dumps(FACE.OrtValue.ortvalue_from_numpy(X)))
    np.testing.assert_array_equal(value.numpy(), X)
    options = FACE.SessionOptions()
    options.logid = "mine"
    assert pickle.loads(pickle.dumps(options)) == options
