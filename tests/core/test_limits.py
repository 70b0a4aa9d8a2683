"""Models that ask for more memory than there is: a typed error, and the next run works."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

import onnxlet

from .models import BOOL, FLOAT, INT64, graph, model, node

TERABYTES = 1 << 20  # a square of this many float32 is 4 TiB


def test_a_constant_larger_than_memory():
    made = model(
        [node("ConstantOfShape", ["n"], ["c"], name="huge"), node("ReduceMax", ["c"], ["y"], keepdims=0)],
        [("n", INT64, [2])],
        [("y", FLOAT, [])],
    )
    session = onnxlet.InferenceSession(made)
    with pytest.raises(onnxlet.LimitError, match="'huge'"):
        session.run(None, {"n": np.array([TERABYTES, TERABYTES])})
    assert session.run(None, {"n": np.array([2, 3])})[0] == 0


def test_a_plan_larger_than_memory():
    made = model(
        [node("Expand", ["x", "shape"], ["e"]), node("Exp", ["e"], ["f"]), node("ReduceMax", ["f"], ["y"], keepdims=0)],
        [("x", FLOAT, [1])],
        [("y", FLOAT, [])],
        {"shape": np.array([TERABYTES, TERABYTES])},
    )
    session = onnxlet.InferenceSession(made)
    with pytest.raises(onnxlet.LimitError):
        session.run(None, {"x": np.ones(1, np.float32)})
    with pytest.raises(onnxlet.LimitError):
        session.run(None, {"x": np.ones(1, np.float32)})


def test_a_loop_without_end_is_stopped():
    body = graph(
        [node("Identity", ["go"], ["go_out"]), node("Identity", ["v"], ["v_out"])],
        [("i", INT64, []), ("go", BOOL, []), ("v", FLOAT, [])],
        [("go_out", BOOL, []), ("v_out", FLOAT, [])],
        name="body",
    )
    made = model(
        [node("Loop", ["", "yes", "x"], ["y"], body=body, name="endless")],
        [("x", FLOAT, [])],
        [("y", FLOAT, [])],
        {"yes": np.array(True)},
    )
    options = onnxlet.SessionOptions(limits=onnxlet.Limits(loop_iterations=1000))
    with pytest.raises(onnxlet.LimitError, match="1000"):
        onnxlet.InferenceSession(made, options).run(None, {"x": np.float32(1)})


@pytest.mark.parametrize(
    ("operator", "feeds", "attributes", "opset"),
    [
        ("ConstantOfShape", [[1000, 1000]], {}, 21),
        ("Expand", [np.float32(1), [1000, 1000]], {}, 21),
        ("Tile", [np.ones(8, np.float32), [10**6]], {}, 21),
        ("Range", [0, 10**9, 1], {}, 21),
        ("Pad", [np.ones(8, np.float32), [0, 10**7]], {}, 21),
        ("Resize", [np.ones((1, 8), np.float32), None, np.array([1, 1e6], np.float32)], {}, 21),
        ("OneHot", [np.zeros(8, np.int64), 10**7, [0, 1]], {}, 21),
        ("CenterCropPad", [np.ones((8, 8), np.float32), [10**4, 10**4]], {}, 21),
        ("HannWindow", [10**8], {}, 21),
        ("Upsample", [np.ones((1, 1), np.float32), np.array([1e4, 1e4], np.float32)], {}, 9),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_tensors_are_limited_before_they_are_made(operator: str, feeds: list, attributes: dict, opset: int):
    """Shapes that the values of inputs tell: nothing is allocated, so the limit holds whatever the machine has."""
    arrays = {f"x{i}": np.asarray(v) for i, v in enumerate(feeds) if v is not None}
    names = [f"x{i}" if v is not None else "" for i, v in enumerate(feeds)]
    made = model(
        [node(operator, names, ["y"], name="grower", **attributes)],
        [(n, onnx.helper.np_dtype_to_tensor_dtype(a.dtype), [None] * a.ndim) for n, a in arrays.items()],
        [("y", FLOAT, None)],
        opset=opset,
        check=False,
    )
    options = onnxlet.SessionOptions(limits=onnxlet.Limits(tensor_bytes=1 << 20))
    with pytest.raises(onnxlet.LimitError, match=r"'grower'.* would take [\d,]+ bytes; the limit is 1,048,576"):
        onnxlet.InferenceSession(made, options).run(None, arrays)


def test_strings_do_not_grow_without_end():
    """Doubled at each iteration, a text would soon fill the memory."""
    text = onnx.TensorProto.STRING
    body = graph(
        [node("Identity", ["go"], ["go_out"]), node("StringConcat", ["s", "s"], ["s_out"])],
        [("i", INT64, []), ("go", BOOL, []), ("s", text, [])],
        [("go_out", BOOL, []), ("s_out", text, [])],
        name="body",
    )
    made = model(
        [node("Loop", ["n", "", "x"], ["y"], body=body)],
        [("n", INT64, []), ("x", text, [])],
        [("y", text, [])],
    )
    session = onnxlet.InferenceSession(made)
    assert session.run(None, {"n": np.int64(3), "x": np.array("ab", object)})[0] == "ab" * 8
    with pytest.raises(onnxlet.LimitError, match="characters would be made"):
        session.run(None, {"n": np.int64(100), "x": np.array("ab", object)})
