from __future__ import annotations

import numpy as np
import pytest

from onnxlet.errors import FeedError
from onnxlet.graph.ir import STRING, Graph, TensorType
from onnxlet.tools import inputs

F32, I64 = np.dtype(np.float32), np.dtype(np.int64)


def graph(**types: TensorType) -> Graph:
    return Graph("g", list(types), [], [], types=dict(types))


def test_open_dimensions_get_sizes_and_the_same_name_the_same_size():
    made = graph(
        ids=TensorType(I64, ("batch", "length")),
        mask=TensorType(I64, ("batch", "length")),
        image=TensorType(F32, ("n", 3, "height", "width")),
    )
    dims = inputs.choose_dimensions(made, {"length": 7})
    assert dims == {"batch": 1, "length": 7, "n": 1, "height": 224, "width": 224}
    types = inputs.input_types(made, dims)
    assert {n: t.dims for n, t in types.items()} == {"ids": (1, 7), "mask": (1, 7), "image": (1, 3, 224, 224)}


def test_unknown_dimensions_and_shapes_that_contradict_are_errors():
    made = graph(x=TensorType(F32, ("n", 3)))
    with pytest.raises(FeedError, match=r"no input has a dimension called 'm'; the named ones are: 'n'"):
        inputs.choose_dimensions(made, {"m": 1})
    with pytest.raises(FeedError, match=r"no input 'y'; its inputs are: x"):
        inputs.input_types(made, {"n": 1}, {"y": [1, 3]})
    for shape in ([1, 4], [3], [1, 3, 1]):
        with pytest.raises(FeedError, match=r"input 'x' is float32\[n,3\], which the shape .* does not fit"):
            inputs.input_types(made, {"n": 1}, {"x": shape})
    with pytest.raises(FeedError, match="doesn't declare the shape of input 'x'"):
        inputs.input_types(graph(x=TensorType(F32, None)), {})


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.uint64, np.int64, np.bool_])
def test_fills(dtype):
    types = {"x": TensorType(np.dtype(dtype), (2, 3))}
    made = {fill: inputs.make_feeds(types, fill)["x"] for fill in inputs.FILLS}
    assert all(v.dtype == dtype and v.shape == (2, 3) for v in made.values())
    assert not made["zeros"].any()
    assert made["ones"].all()
    ramp = [0, 1, 2, 3, 4, 5] if np.dtype(dtype).kind in "iu" else [0, 0.2, 0.4, 0.6, 0.8, 1]
    np.testing.assert_allclose(made["ramp"].ravel(), np.array(ramp).astype(dtype), rtol=1e-15)
    np.testing.assert_array_equal(made["random"], inputs.make_feeds(types, "random")["x"])  # the same seed
    if np.dtype(dtype).kind in "iu":
        assert set(made["random"].ravel().tolist()) <= {0, 1}


def test_texts():
    made = inputs.make_feeds({"x": TensorType(STRING, (2, 2))})["x"]
    assert made.dtype == STRING
    assert all(isinstance(v, str) for v in made.ravel())


def test_arrays_from_files(tmp_path):
    np.save(tmp_path / "a.npy", np.arange(3))
    np.savez(tmp_path / "all.npz", b=np.ones(2), c=np.zeros(1))
    found = inputs.read_arrays([f"x=y={tmp_path}/a.npy", f"{tmp_path}/all.npz"])
    assert {n: v.tolist() for n, v in found.items()} == {"x=y": [0, 1, 2], "b": [1, 1], "c": [0]}
    with pytest.raises(FeedError, match="holds one array: say of which input"):
        inputs.read_arrays([f"{tmp_path}/a.npy"])
    np.save(tmp_path / "code.npy", np.array([{}], object), allow_pickle=True)
    with pytest.raises(FeedError, match=r"code\.npy: Object arrays cannot be loaded"):
        inputs.read_arrays([f"x={tmp_path}/code.npy"])


def test_what_is_given_is_kept_and_the_rest_made_up():
    made = graph(x=TensorType(F32, (2,)), y=TensorType(F32, (2,)))
    types = inputs.input_types(made, {})
    given = np.array([5, 6], np.float32)
    found = inputs.complete(made, {"x": given}, types, "ones")
    assert found["x"] is given
    assert found["y"].tolist() == [1, 1]
    with pytest.raises(FeedError, match="no input 'z'"):
        inputs.complete(made, {"z": given}, types)
