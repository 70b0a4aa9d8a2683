"""What a node may look like: checked when the model is loaded, against the signature of the operator's function."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import onnxlet
from onnxlet.ops import registry

from .models import FLOAT, model, node


def load(made: Any) -> onnxlet.InferenceSession:
    return onnxlet.InferenceSession(made.SerializeToString())


@pytest.mark.parametrize(
    ("operator", "attributes", "message"),
    [
        ("Softmax", {"axis": [1]}, "attribute axis must be an integer, but is a list of 1 int"),
        ("Softmax", {"axis": "last"}, "attribute axis must be an integer, but is 'last'"),
        ("Transpose", {"perm": 1.5}, "attribute perm must be a list of integers, but is 1.5"),
        ("Transpose", {"perm": ["a"]}, "attribute perm must be a list of integers, but is a list of 1 str"),
        ("Elu", {"alpha": "big"}, "attribute alpha must be a number, but is 'big'"),
        ("Einsum", {"equation": b"\xff"}, "attribute equation must be a text, but is b'\\xff'"),
        ("Elu", {"beta": 1.0}, r"has no attribute beta; its attributes are: alpha"),
        ("Einsum", {}, "needs the attribute equation"),
    ],
)
def test_attributes_are_checked(operator: str, attributes: dict[str, Any], message: str):
    made = model([node(operator, ["x"], ["y"], **attributes)], [("x", FLOAT, [2])], [("y", FLOAT, [2])], check=False)
    with pytest.raises(onnxlet.ModelError) as caught:
        load(made)
    assert message in str(caught.value)
    assert f"node 'y': {operator} (opset 21)" in str(caught.value)


def test_an_integer_is_a_number():
    made = model([node("Elu", ["x"], ["y"], alpha=2)], [("x", FLOAT, [1])], [("y", FLOAT, [1])], check=False)
    (y,) = load(made).run(None, {"x": np.array([-1], np.float32)})
    np.testing.assert_allclose(y, 2 * (np.exp(-1) - 1), rtol=1e-6)


@pytest.fixture
def own_operators() -> Iterator[None]:
    yield
    for key in [key for key in registry._OPERATORS if key[0] == "my.domain"]:
        del registry._OPERATORS[key]


@pytest.mark.usefixtures("own_operators")
def test_operators_of_users():
    """Annotations are optional; those that say what an attribute holds are checked, whatever their form."""

    @onnxlet.op("Scale", domain="my.domain")
    def scale(x, *, by: float, plus=0.0, names: list[str] | None = None):
        return (x * by + plus).astype(x.dtype)

    def made(**attributes: Any) -> Any:
        scaled = node("Scale", ["x"], ["y"], domain="my.domain", **attributes)
        return model([scaled], [("x", FLOAT, [1])], [("y", FLOAT, [1])], domains=["my.domain"], check=False)

    x = np.array([3], np.float32)
    assert load(made(by=2.0, plus=1.0)).run(None, {"x": x})[0] == [7]
    with pytest.raises(onnxlet.ModelError, match="needs the attribute by"):
        load(made())
    with pytest.raises(onnxlet.ModelError, match="by must be a number, but is 'two'"):
        load(made(by="two"))
    with pytest.raises(onnxlet.ModelError, match="has no attribute minus; its attributes are: by, names, plus"):
        load(made(by=2.0, minus=1.0))


def test_a_signature_that_says_nothing_is_refused():
    with pytest.raises(TypeError, match=r"operator Loose: name its attributes instead of \*\*anything"):

        @onnxlet.op("Loose", domain="my.domain")
        def loose(x, **anything):
            return x
