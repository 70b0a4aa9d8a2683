"""What a node may look like: checked when the model is loaded, against the signature of the operator's function."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime_state

import onnxlet
from onnxlet.ops import registry
from onnxlet.unavailable import REASONS

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


MICROSOFT = "com.microsoft"
CONTRIBUTED = {s.name: s for s in onnxruntime_state.get_all_operator_schema() if s.domain == MICROSOFT}
"""Onnxruntime's own schemas of its operators."""

MORE_ATTRIBUTES = {
    "GatherND": {"batch_dims"},  # of the standard's newer version, which this is
    "QuantizeLinear": {"block_size", "output_dtype", "saturate", "precision"},
    "DequantizeLinear": {"block_size", "output_dtype"},
}
"""Attributes that onnxlet takes too."""

DEFAULTS_OF_TEXTS: dict[str, Any] = {
    "activation": "", "activation_params": (), "axis": 1, "block_size": 0, "decoder_output_cross_qk": 0, "do_rotary": 0,
    "interleaved": 0, "is_packed_batching": 0, "kv_cache_bit_width": 0, "mask_filter_value": -10000.0,
    "mask_index_type": 0, "mrope_layout": 0, "no_speech_token_id": -1, "num_heads": 0, "output_qk": 0,
    "past_present_share_buffer": 0, "qk_norm_epsilon": 1e-6, "rotary_embedding_dim": 0, "rotary_interleaved": 0,
    "rotary_offset": 0, "scale": 1.0, "softcap": 0.0, "v_head_size": 0,
}  # fmt: skip
"""Defaults that a schema leaves out, and its texts tell; for others the default is that there is none."""


def test_contributed_operators_are_there_or_refused_with_a_reason():
    assert len(CONTRIBUTED) > 100
    missing = {name for name in CONTRIBUTED if registry.find(name, MICROSOFT, 1) is None}
    assert {f"{MICROSOFT}::{name}" for name in missing} == {*REASONS}


@pytest.mark.parametrize("name", [name for name in CONTRIBUTED if f"{MICROSOFT}::{name}" not in REASONS])
def test_signatures_of_contributed_operators(name: str):
    schema, found = CONTRIBUTED[name], registry.find(name, MICROSOFT, CONTRIBUTED[name].since_version)
    assert found is not None
    assert found.attributes - MORE_ATTRIBUTES.get(name, set()) == {*schema.attributes}
    assert found.required_attributes == {n for n, a in schema.attributes.items() if a.required}
    variadic = any(i.option.name == "Variadic" for i in schema.inputs)
    assert found.max_inputs == (None if variadic else len(schema.inputs))
    assert found.required_inputs == schema.min_input
    parameters = inspect.signature(found.function).parameters
    for attribute in schema.attributes.values():
        stated = onnx.AttributeProto.FromString(attribute._default_value)
        have = parameters[attribute.name].default
        if attribute.required:
            assert have is inspect.Parameter.empty
        elif not stated.name:
            assert have is None or have == DEFAULTS_OF_TEXTS[attribute.name], attribute.name
        else:
            want = onnx.helper.get_attribute_value(stated)
            want = want.decode() if isinstance(want, bytes) else want
            assert have == (pytest.approx(want, rel=1e-6) if isinstance(want, float) else want), attribute.name


def test_refused_operators_say_why():
    made = model(
        [node("EPContext", ["x"], ["y"], domain=MICROSOFT), node("Unheard", ["x"], ["z"], domain=MICROSOFT)],
        [("x", FLOAT, [2])], [("y", FLOAT, [2]), ("z", FLOAT, [2])], domains=[MICROSOFT], check=False,
    )  # fmt: skip
    with pytest.raises(onnxlet.MissingOperatorsError) as caught:
        load(made)
    lines = str(caught.value).splitlines()
    assert "com.microsoft::EPContext (opset 1) in 1 node(s): 'y'; its contents were compiled for one" in lines[1]
    assert lines[2] == "  com.microsoft::Unheard (opset 1) in 1 node(s): 'z'"


def test_refused_operators_are_in_the_documents():
    text = (Path(__file__).parents[2] / "docs" / "decisions.md").read_text()
    for name, reason in REASONS.items():
        assert f"| `{name.removeprefix('com.microsoft::')}` | {reason} |" in text
