"""External data that has to be waited for: fetched from beside a model's address, or from where the caller says."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import onnxlet

from .test_external import V, W, model

BYTES = W.tobytes() + V.tobytes()


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        pass


@pytest.fixture
def address(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A server of a folder with a model whose tensors lie in ``sub/w 1.bin``, and `model.other` with other data."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "served"
    (folder / "sub").mkdir(parents=True)
    (folder / "model.onnx").write_bytes(model("sub/w 1.bin").SerializeToString())
    (folder / "sub" / "w 1.bin").write_bytes(BYTES)
    (folder / "other.bin").write_bytes((W * 2).tobytes() + V.tobytes())
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


def check(session: onnxlet.InferenceSession, weights: np.ndarray = W) -> None:
    with session:
        np.testing.assert_array_equal(session.run(None, {"x": np.ones_like(W)})[0], weights + 1)


@pytest.mark.parametrize("cache", [True, False])
async def test_beside_the_address(address: str, cache: bool):
    stages: list[tuple[str, int]] = []

    def progress(stage: str, done: int, total: int | None) -> None:
        stages.append((stage, done))

    url = f"{address}/model.onnx?version=1#top"
    check(await onnxlet.InferenceSession.create(url, progress=progress, cache=cache))
    assert ("download", len(BYTES)) in stages
    stages.clear()
    check(await onnxlet.InferenceSession.create(url, progress=progress, cache=cache))
    assert (("cache" if cache else "download"), len(BYTES)) in stages


async def test_what_the_caller_gives_comes_first(address: str, tmp_path: Path):
    url = f"{address}/model.onnx"
    path = tmp_path / "w"
    path.write_bytes(BYTES)

    async def later() -> bytes:
        return BYTES

    for given in (f"{address}/other.bin", (W * 2).tobytes() + V.tobytes()):
        check(await onnxlet.InferenceSession.create(url, external_data={"./sub/w 1.bin": given}), W * 2)
    for given in (path, str(path), later()):
        check(await onnxlet.InferenceSession.create(url, external_data={"sub/w 1.bin": given}))
    data = model("sub/w 1.bin")
    for source in (data, data.SerializeToString()):
        check(await onnxlet.InferenceSession.create(source, external_data=address))
        check(await onnxlet.InferenceSession.create(source, external_data={"sub/w 1.bin": path}))


def test_paths_in_a_mapping(tmp_path: Path):
    (tmp_path / "w").write_bytes(BYTES)
    data = model().SerializeToString()
    check(onnxlet.InferenceSession(data, external_data={"weights.bin": tmp_path / "w"}))
    with pytest.raises(onnxlet.ExternalDataError, match=r"'weights\.bin' can't be read"):
        onnxlet.InferenceSession(data, external_data={"weights.bin": str(tmp_path / "none")})


async def test_what_is_missing_is_named(address: str):
    for given in (address, {"lost.bin": f"{address}/lost.bin"}):
        with pytest.raises(
            onnxlet.ExternalDataError, match=r"'lost\.bin': http://.*/lost\.bin could not be downloaded"
        ):
            await onnxlet.InferenceSession.create(model("lost.bin"), external_data=given)
    with pytest.raises(onnxlet.ExternalDataError, match="and was given as bytes"):
        await onnxlet.InferenceSession.create(model("lost.bin"))


async def test_nothing_outside_the_folder_is_fetched(address: str):
    for location in ("../model.onnx", "/etc/passwd", "//elsewhere/w"):
        with pytest.raises(onnxlet.ExternalDataError, match="not a file inside the model's folder"):
            await onnxlet.InferenceSession.create(model(location), external_data=f"{address}/sub/")
    # What looks like an address is the name of a file beside the model.
    with pytest.raises(onnxlet.ExternalDataError, match=rf"{address}/sub/http%3A/elsewhere/w could not be"):
        await onnxlet.InferenceSession.create(model("http://elsewhere/w"), external_data=f"{address}/sub/")


async def test_in_every_corner_of_a_model(address: str):
    """Tensors of attributes, of sub-graphs and of sparse initializers are found too."""
    from onnxlet.model.external import locations
    from onnxlet.model.loader import read_proto
    from onnxlet.model.sources import as_source

    def tensor(name: str, location: str) -> onnx.TensorProto:
        made = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=[1], data_location=TensorProto.EXTERNAL)
        made.external_data.add(key="location", value=location)
        return made

    def branch(location: str) -> onnx.GraphProto:
        constant = helper.make_node("Constant", [], ["c"], value=tensor("", location))
        return helper.make_graph([constant], "b", [], [helper.make_tensor_value_info("c", 1, [1])])

    chosen = helper.make_node("If", ["x"], ["y"], then_branch=branch("a"), else_branch=branch("b"))
    graph = helper.make_graph([chosen], "g", [helper.make_tensor_value_info("x", 9, [])], [])
    graph.sparse_initializer.add(values=tensor("s", "c"), indices=tensor("i", "./d"), dims=[3])
    graph.initializer.append(tensor("w", "a"))
    made = helper.make_model(graph, functions=[
        helper.make_function(
            "d", "f", [], ["o"], [helper.make_node("Constant", [], ["o"], value=tensor("", "e"))],
            [helper.make_opsetid("", 21)],
        )
    ])  # fmt: skip
    assert sorted(locations(read_proto(as_source(made.SerializeToString())))) == ["a", "b", "c", "d", "e"]
