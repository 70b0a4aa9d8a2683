"""Every operator of the standard, at every version, is there and takes what the standard says."""

from __future__ import annotations

import inspect

import onnx
import pytest

from onnxlet.execution.numpy_steps import IGNORED_ATTRIBUTES
from onnxlet.ops import registry

SCHEMAS = [
    s
    for s in onnx.defs.get_all_schemas_with_history()
    if s.domain in ("", "ai.onnx.ml", "ai.onnx.preview", "ai.onnx.preview.training")
]
COUNT = 203
"""Operators of ai.onnx at opset 28."""

OTHER_DEFAULTS = {
    # The largest float32, at every element type: a double or an infinity would be cut off. Version 11 says "no bound".
    ("Clip", 6): {"min", "max"},
    # "foward" in the schema.
    ("GRU", 1): {"direction"},
    # The same functions for every direction: filled in when it is known.
    **{("RNN", version): {"activations"} for version in (1, 7, 14, 22)},
}


def label(schema):
    return f"{schema.domain or 'ai.onnx'} {schema.name} {schema.since_version}"


def test_the_operators_of_the_standard():
    names = {s.name for s in SCHEMAS if s.domain == ""}
    assert len(names) >= COUNT
    missing = [s for s in SCHEMAS if registry.find(s.name, s.domain, s.since_version) is None]
    assert [s.name for s in missing] == ["Gradient"], "it alone is replaced by nodes when a model is read"


def test_inputs_and_attributes():
    problems = []
    for schema in SCHEMAS:
        found = registry.find(schema.name, schema.domain, schema.since_version)
        if found is None:
            continue
        if lacking := set(schema.attributes) - IGNORED_ATTRIBUTES - found.attributes:
            problems.append(f"{label(schema)}: lacks {sorted(lacking)}")
        needed = {name for name, attribute in schema.attributes.items() if attribute.required}
        if wrongly := found.required_attributes - needed:
            problems.append(f"{label(schema)}: wrongly requires {sorted(wrongly)}")
        variadic = any(i.option == onnx.defs.OpSchema.FormalParameterOption.Variadic for i in schema.inputs)
        if found.max_inputs is not None and (variadic or found.max_inputs < len(schema.inputs)):
            problems.append(f"{label(schema)}: takes at most {found.max_inputs} inputs, not {len(schema.inputs)}")
        if found.required_inputs > schema.min_input:
            problems.append(f"{label(schema)}: requires {found.required_inputs} inputs, not {schema.min_input}")
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems)


def test_defaults_are_the_standards():
    problems = []
    for schema in SCHEMAS:
        found = registry.find(schema.name, schema.domain, schema.since_version)
        if found is None:
            continue
        parameters = inspect.signature(found.function).parameters
        excepted = IGNORED_ATTRIBUTES | OTHER_DEFAULTS.get((schema.name, schema.since_version), set())
        for name, attribute in schema.attributes.items():
            if name in excepted or name not in parameters or not attribute.default_value.name:
                continue
            want, have = onnx.helper.get_attribute_value(attribute.default_value), parameters[name].default
            if isinstance(want, bytes):
                want = want.decode()
            if isinstance(want, list):
                want, have = [v.decode() if isinstance(v, bytes) else v for v in want], list(have or ())
            if have != (pytest.approx(want, rel=1e-6) if isinstance(want, float) else want):
                problems.append(f"{label(schema)}: {name} is {have!r} by default, not {want!r}")
    assert not problems, f"{len(problems)} problems:\n" + "\n".join(problems)
