"""Which versions of operators the cases use, and the same cases at other versions of the operator.

The suite has each operator at about its newest version. Most versions differ from the next in the element types that
they take and in nothing else: there a case must give the same at both.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import onnx
from onnx import defs

from onnxlet.ops import registry
from tests.conformance.suite import Case

LEGACY = "consumed_inputs"
"""An attribute of the first versions, about memory, that says nothing about results."""

AT_MOST = 4
"""Cases that are moved to one version."""


class Version(NamedTuple):
    """A version of an operator, by the opset that brought it."""

    domain: str
    operator: str
    since: int


OTHER_MEANING = {
    Version("", "OneHot", 9): "indices below 0 are out of range",
    Version("", "PRelu", 1): "slopes are one, or one for each channel",
    Version("", "PRelu", 6): "slopes are one, or one for each channel",
}
"""Versions with the signature of a later one that mean something else."""


def version(operator: str, domain: str, opset: int) -> Version:
    """The version that a model importing `opset` means: by the standard's schemas, else by our registrations."""
    try:
        since = defs.get_schema(operator, opset, domain).since_version
    except defs.SchemaError:
        found = registry.find(operator, domain, opset)
        since = found.since if found is not None else opset
    return Version(domain, operator, since)


def used(model: onnx.ModelProto) -> set[Version]:
    """All versions that the nodes of a model use, in bodies and functions too."""
    found = _nodes(model.graph.node, {o.domain: o.version for o in model.opset_import})
    for function in model.functions:
        found |= _nodes(function.node, {o.domain: o.version for o in function.opset_import})
    functions = {(f.domain, f.name) for f in model.functions}
    return {v for v in found if (v.domain, v.operator) not in functions}


def _nodes(nodes: Iterable[onnx.NodeProto], opsets: dict[str, int]) -> set[Version]:
    found = set()
    for node in nodes:
        found.add(version(node.op_type, node.domain, opsets.get(node.domain, 1)))
        for attribute in node.attribute:
            graphs = [attribute.g] if attribute.type == onnx.AttributeProto.GRAPH else attribute.graphs
            for graph in graphs:
                found |= _nodes(graph.node, opsets)
    return found


@functools.cache
def histories() -> dict[tuple[str, str], list[defs.OpSchema]]:
    """The schemas of each (domain, operator) of the standard, oldest first."""
    found: dict[tuple[str, str], list[defs.OpSchema]] = {}
    for schema in sorted(defs.get_all_schemas_with_history(), key=lambda s: s.since_version):
        found.setdefault((schema.domain, schema.name), []).append(schema)
    return found


@functools.cache
def signature(operator: str, domain: str, since: int) -> tuple[object, ...]:
    """What must be the same for two versions to mean the same: all of a schema but types and texts."""
    schema = defs.get_schema(operator, since, domain)
    attributes = sorted(
        (name, "required" if a.required else a.default_value.SerializeToString())
        for name, a in schema.attributes.items()
        if name != LEGACY
    )
    inputs = [str(parameter.option) for parameter in schema.inputs]
    outputs = [str(parameter.option) for parameter in schema.outputs]
    return (attributes, inputs, outputs, schema.min_input, schema.max_input)


def moved(cases: Sequence[Case]) -> list[tuple[Version, Case]]:
    """Cases of the suite at versions of which it has none."""
    there = OTHER_MEANING.keys() | {v for case in cases for v in used(onnx.load_model_from_string(case.model))}
    counts, found = Counter[Version](), []
    for case in cases:
        for v, other in at_other_versions(case):
            if v not in there and counts[v] < AT_MOST:
                counts[v] += 1
                found.append((v, other))
    return found


def at_other_versions(case: Case) -> Iterator[tuple[Version, Case]]:
    """A case of one node at the other versions of its operator with the same signature that take its types."""
    model = onnx.load_model_from_string(case.model)
    if len(model.graph.node) != 1 or model.functions:
        return
    (node,) = model.graph.node
    (opset,) = [o for o in model.opset_import if o.domain == node.domain]
    own = version(node.op_type, node.domain, opset.version)
    if (node.domain, node.op_type) not in histories():
        return
    inner = used(model) - {own}
    for schema in histories()[node.domain, node.op_type]:
        since = schema.since_version
        if since == own.since or not _same(own, since) or not _takes(schema, node, model.graph):
            continue
        if not all(_same(other, since) for other in inner):
            continue
        opset.version = since
        yield (
            Version(*own[:2], since),
            Case(f"{case.name} at {since}", model.SerializeToString(), case.sets, case.rtol, case.atol),
        )


def _same(own: Version, opset: int) -> bool:
    """Whether a version's operator means the same at another opset."""
    try:
        other = version(own.operator, own.domain, opset)
        return signature(*_key(own)) == signature(*_key(other))
    except defs.SchemaError:
        return False


def _key(own: Version) -> tuple[str, str, int]:
    return own.operator, own.domain, own.since


def _takes(schema: defs.OpSchema, node: onnx.NodeProto, graph: onnx.GraphProto) -> bool:
    """Whether a schema allows the element types of a node's inputs and outputs."""
    types = {value.name: _type_name(value.type) for value in (*graph.input, *graph.output)}
    allowed = {constraint.type_param_str: set(constraint.allowed_type_strs) for constraint in schema.type_constraints}
    for names, parameters in ((node.input, schema.inputs), (node.output, schema.outputs)):
        for i, name in enumerate(names):
            parameter = parameters[min(i, len(parameters) - 1)]
            choices = allowed.get(parameter.type_str, {parameter.type_str})
            if name and types.get(name) not in choices:
                return False
    return True


def _type_name(type_: onnx.TypeProto) -> str:
    """A type as schemas write it: `tensor(float)`, `seq(tensor(int64))`."""
    kind = type_.WhichOneof("value")
    if kind == "sequence_type":
        return f"seq({_type_name(type_.sequence_type.elem_type)})"
    if kind == "optional_type":
        return f"optional({_type_name(type_.optional_type.elem_type)})"
    return f"tensor({onnx.TensorProto.DataType.Name(type_.tensor_type.elem_type).lower()})"
