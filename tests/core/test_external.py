"""External data: found, checked, and never outside the model's folder."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from onnxlet.errors import ExternalDataError
from onnxlet.execution.executor import GraphExecutor, drive
from onnxlet.model.loader import load_model
from onnxlet.model.sources import MappedFile, MemorySource

W = np.arange(12, dtype=np.float32).reshape(3, 4)
V = np.array([1, -1, 7], np.int64)


def model(location: str = "weights.bin", **fields: str) -> onnx.ModelProto:
    """Add(x, w) with w, and v after it, in an external file."""
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=W.shape, data_location=TensorProto.EXTERNAL)
    v = TensorProto(name="v", data_type=TensorProto.INT64, dims=V.shape, data_location=TensorProto.EXTERNAL)
    for tensor, offset, length in ((w, 0, W.nbytes), (v, W.nbytes, V.nbytes)):
        entries = {"location": location, "offset": str(offset), "length": str(length), **fields}
        for key, value in entries.items():
            if value:
                tensor.external_data.add(key=key, value=value)
    graph = helper.make_graph(
        [helper.make_node("Add", ["x", "w"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [3, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [3, 4])],
        [w, v],
    )
    return helper.make_model(graph)


def save(folder: Path, proto: onnx.ModelProto, data: str | None = "weights.bin") -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    if data:
        (folder / data).parent.mkdir(parents=True, exist_ok=True)
        (folder / data).write_bytes(W.tobytes() + V.tobytes())
    return path


def check(loaded) -> None:
    np.testing.assert_array_equal(loaded.graph.initializers["w"].numpy(), W)
    np.testing.assert_array_equal(loaded.graph.initializers["v"].numpy(), V)


@pytest.mark.parametrize("location", ["weights.bin", "./weights.bin", "sub/weights.bin", "./sub//deep/./weights.bin"])
def test_beside_the_model(tmp_path, location: str):
    path = save(tmp_path, model(location), location)
    loaded = load_model(path)
    check(loaded)
    source, offset = loaded.graph.initializers["v"].location
    assert isinstance(source, MappedFile)
    assert offset == W.nbytes
    assert loaded.graph.initializers["w"].location[0] is source


def test_as_onnx_saves_it(tmp_path):
    proto = model()
    proto.graph.initializer[0].CopyFrom(numpy_helper.from_array(W, "w"))
    proto.graph.initializer[1].CopyFrom(numpy_helper.from_array(V, "v"))
    onnx.save(proto, tmp_path / "m.onnx", save_as_external_data=True, location="m.data", size_threshold=0)
    check(load_model(tmp_path / "m.onnx"))


def test_without_offset_and_length(tmp_path):
    path = save(tmp_path, model(offset="", length=""))
    np.testing.assert_array_equal(load_model(path).graph.initializers["w"].numpy(), W)


@pytest.mark.parametrize("kind", ["folder", "mapping", "dotted", "source", "callable"])
def test_other_places(tmp_path, kind: str):
    data = W.tobytes() + V.tobytes()
    (tmp_path / "weights.bin").write_bytes(data)
    places = {
        "folder": tmp_path,
        "mapping": {"weights.bin": data},
        "dotted": {"./weights.bin": bytearray(data)},
        "source": {"weights.bin": MemorySource(data)},
        "callable": lambda name: data if name == "weights.bin" else None,
    }
    check(load_model(model("./weights.bin").SerializeToString(), external_data=places[kind]))


def test_bytes_have_no_folder():
    with pytest.raises(ExternalDataError, match=r"'weights\.bin', and was given as bytes: pass external_data="):
        load_model(model().SerializeToString())


def test_a_missing_file_is_named_with_what_was_there(tmp_path):
    path = save(tmp_path, model(), data=None)
    (tmp_path / "wieghts.bin").write_bytes(b"")
    with pytest.raises(ExternalDataError, match=r"'weights\.bin' is missing in .*'model\.onnx', 'wieghts\.bin'"):
        load_model(path)
    with pytest.raises(ExternalDataError, match=r"'weights\.bin' is missing; given were 'other'"):
        load_model(path, external_data={"other": b""})
    for resolve in (lambda name: None, {}.__getitem__):
        with pytest.raises(ExternalDataError, match=r"'weights\.bin' is missing"):
            load_model(path, external_data=resolve)


@pytest.mark.parametrize(
    "location", ["../weights.bin", "/etc/passwd", "sub/../../weights.bin", "", ".", "C:\\w.bin", "..\\w.bin", "a\0b"]
)
def test_locations_outside_the_folder(tmp_path, location: str):
    inner = tmp_path / "inner"
    inner.mkdir()
    (tmp_path / "weights.bin").write_bytes(W.tobytes() + V.tobytes())
    path = save(inner, model(location), data=None)
    with pytest.raises(ExternalDataError, match="not a file inside the model's folder"):
        load_model(path)
    with pytest.raises(ExternalDataError, match="not a file inside the model's folder"):
        load_model(path, external_data=lambda name: W.tobytes())


@pytest.mark.skipif(not hasattr(os, "symlink"), reason="links")
def test_links(tmp_path):
    """A link out of the folder is refused; a model and its data that are both links into one folder are not."""
    outside = tmp_path / "outside"
    outside.mkdir()
    real = save(outside, model())
    inside = tmp_path / "inside"
    inside.mkdir()
    (inside / "weights.bin").symlink_to(outside / "weights.bin")
    (inside / "model.onnx").write_bytes(real.read_bytes())
    with pytest.raises(ExternalDataError, match="leads out of the model's folder"):
        load_model(inside / "model.onnx")
    (inside / "model.onnx").unlink()
    (inside / "model.onnx").symlink_to(real)
    check(load_model(inside / "model.onnx"))
    within = tmp_path / "within"
    within.mkdir()
    path = save(within, model("link"), "real.bin")
    (within / "link").symlink_to("real.bin")
    check(load_model(path))


@pytest.mark.parametrize(
    ("fields", "match"),
    [
        ({"offset": "1000"}, "too short: tensor 'w' lies at bytes 1000 to 1048, the file has 72"),
        ({"length": "4"}, "takes 48 bytes, but its external data in 'weights.bin' is said to be 4"),
        ({"offset": "-4"}, "offset '-4' is not a number"),
        ({"offset": "many"}, "offset 'many' is not a number"),
        ({"length": "9" * 30}, "is not a number"),
    ],
)
def test_wrong_places_in_the_file(tmp_path, fields, match: str):
    path = save(tmp_path, model(**fields))
    with pytest.raises(ExternalDataError, match=match):
        load_model(path)


def test_a_folder_in_place_of_the_file(tmp_path):
    path = save(tmp_path, model(), data=None)
    (tmp_path / "weights.bin").mkdir()
    with pytest.raises(ExternalDataError, match=r"'weights\.bin' can't be read"):
        load_model(path)


def test_a_wrong_kind_of_argument():
    with pytest.raises(TypeError, match="expected a folder, a mapping or a callable"):
        load_model(model().SerializeToString(), external_data=5)


def test_a_model_beyond_2_gigabytes(tmp_path):
    """A weight that starts beyond 2 GiB and one that spans it, in a file that takes no room on the disk."""
    gigabyte = 1 << 30
    path = tmp_path / "weights.bin"
    with open(path, "wb") as file:
        try:
            file.truncate(3 * gigabyte)
        except OSError as error:
            pytest.skip(f"no sparse files here: {error}")
        file.seek(3 * gigabyte - W.nbytes)
        file.write(W.tobytes())
    if hasattr(os.stat_result, "st_blocks") and path.stat().st_blocks * 512 > gigabyte:
        pytest.skip("no sparse files here")
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=W.shape, data_location=TensorProto.EXTERNAL)
    large = TensorProto(name="v", data_type=TensorProto.INT8, dims=[5 * gigabyte // 2], data_location=1)
    for tensor, offset, length in ((w, 3 * gigabyte - W.nbytes, W.nbytes), (large, 0, 5 * gigabyte // 2)):
        for key, value in {"location": "weights.bin", "offset": str(offset), "length": str(length)}.items():
            tensor.external_data.add(key=key, value=value)
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["x", "w"], ["y"]),
            helper.make_node("Gather", ["v", "last"], ["z"], axis=0),
        ],
        "g",
        [helper.make_tensor_value_info("x", 1, [3, 4]), helper.make_tensor_value_info("last", TensorProto.INT64, [])],
        [helper.make_tensor_value_info("y", 1, [3, 4]), helper.make_tensor_value_info("z", TensorProto.INT8, [])],
        [w, large],
    )
    (tmp_path / "model.onnx").write_bytes(helper.make_model(graph).SerializeToString())
    loaded = load_model(tmp_path / "model.onnx")
    assert sum(tensor.nbytes for tensor in loaded.graph.initializers.values()) > 2 * gigabyte
    assert loaded.graph.initializers["w"].location[1] > 2 * gigabyte
    # The definitions read where the bytes lie; engines would copy 2.5 GB.
    y, z = drive(GraphExecutor(loaded.graph, []).run({"x": np.ones_like(W), "last": np.array(-1, np.int64)}))
    np.testing.assert_array_equal(y, W + 1)
    assert z == 0
