"""From decoded messages to the intermediate representation.

On the way, Constant nodes become initializers, calls of model-local functions are replaced by the functions' bodies,
and nodes are sorted. What the specification forbids is an error that names the node and the value.

Specification: docs/IR.md of the onnx project ("Graphs", "Functions", "Names Within a Graph").
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from ..errors import LimitError, ModelError
from ..graph.ir import STRING, Graph, Node, TensorType, Type
from .dtypes import dtype_of
from .external import ExternalData
from .ordering import sort_nodes
from .sources import ByteSource
from .tensors import Tensor, read_sparse, read_tensor
from .types import read_type
from .wire import Message

MAX_NODES = 500_000
"""The most nodes that a model may have once its functions are inlined."""

MAX_CALLS = 64
"""How deep functions may call each other, and sub-graphs may nest."""

FunctionKey = tuple[str, str, str]
"""Domain, name and overload of a function."""

# Attributes of Constant and how each becomes an array.
_CONSTANT_FORMS: dict[str, Any] = {
    "value": np.asarray,
    "sparse_value": np.asarray,
    "value_float": lambda v: np.array(v, np.float32),
    "value_floats": lambda v: np.array(v, np.float32),
    "value_int": lambda v: np.array(v, np.int64),
    "value_ints": lambda v: np.array(v, np.int64),
    "value_string": lambda v: np.array(v, STRING),
    "value_strings": lambda v: np.array(v, STRING),
}

# AttributeProto.AttributeType: the field that holds the value.
_ATTRIBUTE_FIELDS = {
    1: "f", 2: "i", 3: "s", 4: "t", 5: "g", 6: "floats", 7: "ints", 8: "strings", 9: "tensors", 10: "graphs",
    11: "sparse_tensor", 12: "sparse_tensors", 13: "tp", 14: "type_protos",
}  # fmt: skip


@dataclass(slots=True)
class _Scope:
    """Names that the graph being built defines, and the scope around it."""

    names: set[str]
    outer: _Scope | None = None
    initializers: dict[str, Tensor] = field(default_factory=dict)
    types: dict[str, Type | None] = field(default_factory=dict)
    depth: int = 0

    def sees(self, name: str) -> bool:
        scope: _Scope | None = self
        while scope is not None:
            if name in scope.names:
                return True
            scope = scope.outer
        return False


@dataclass(slots=True)
class _Context:
    """What the nodes being built stand in: the model itself, or the body of a function that is being inlined."""

    opsets: dict[str, int]
    renames: dict[str, str] | None = None
    """Inside a function: the body's names -> the graph's names."""
    prefix: str = ""
    arguments: dict[str, Any] | None = None
    """Inside a function: the attributes that the call gives, by name."""
    calls: tuple[FunctionKey, ...] = ()

    def name(self, name: str) -> str:
        return name if self.renames is None else self.renames.get(name, name)


class Builder:
    """Builds the graphs of one model."""

    def __init__(
        self,
        source: ByteSource,
        external: ExternalData,
        opsets: dict[str, int],
        ir_version: int,
        given: Mapping[str, Tensor] | None = None,
    ):
        self.given = given or {}
        """Initializers of the main graph that are not the file's."""
        self.source = source
        self.external = external
        self.opsets = opsets
        self.ir_version = ir_version
        self.functions: dict[FunctionKey, Message] = {}
        self.names: set[str] = set()
        self.suffixes: dict[str, int] = {}
        """The last number that made a name fresh, so that the next one is found at once."""
        self.count = 0

    def build(self, graph: Message, functions: Iterable[Message]) -> Graph:
        """The main graph of a model, its functions inlined."""
        for function in functions:
            key = (domain_of(function), function.name, function.overload)
            if key in self.functions:
                raise ModelError(f"function {function.name!r} of domain {key[0]!r} is defined twice")
            self.functions[key] = function
        if self.functions:
            _collect_names(graph, self.names)
        return self._graph(graph, _Context(self.opsets), None)

    def _graph(self, proto: Message, context: _Context, outer: _Scope | None) -> Graph:
        depth = 0 if outer is None else outer.depth + 1
        if depth > MAX_CALLS:
            raise LimitError(f"sub-graphs nest deeper than {MAX_CALLS}")
        if context.renames is not None:
            context = replace(context, renames=dict(context.renames))
            self._rename(_defined(proto), context)
        name = context.name
        scope = _Scope(set(), outer, depth=depth)
        inputs = [name(info.name) for info in proto.input]
        self._initializers(proto, context, scope)
        duplicate = _first_duplicate(inputs)
        if duplicate is not None:
            raise ModelError(f"graph {proto.name!r} has two inputs named {duplicate!r}")
        for info in (*proto.value_info, *proto.input, *proto.output):
            if info.name and info.type is not None:
                scope.types[name(info.name)] = read_type(info.type, symbols=context.renames is None)
        scope.names.update(inputs, scope.initializers)
        for node in proto.node:
            scope.names.update(name(output) for output in node.output if output)
        nodes: list[Node] = []
        for node in proto.node:
            self._node(node, context, scope, nodes)
        for key, tensor in scope.initializers.items():
            scope.types[key] = TensorType(tensor.dtype, tensor.shape)
        outputs = [name(info.name) for info in proto.output]
        for output in outputs:
            if not scope.sees(output):
                raise ModelError(f"output {output!r} of graph {proto.name!r} is produced by no node")
        given = [n for n in inputs if n not in scope.initializers]
        # Before IR version 4 every initializer had to be an input as well, and was a constant nevertheless.
        defaults = [n for n in inputs if n in scope.initializers] if self.ir_version >= 4 else []
        _check_definitions(proto.name, given, scope.initializers, nodes)
        for node in nodes:
            _check_inputs(node, scope)
        nodes = sort_nodes(nodes, proto.name)
        return Graph(proto.name, given, outputs, nodes, scope.initializers, scope.types, defaults)

    def _initializers(self, proto: Message, context: _Context, scope: _Scope) -> None:
        for tensor in proto.initializer:
            if not tensor.name:
                raise ModelError(f"graph {proto.name!r} has an initializer without a name")
            given = self.given.get(tensor.name) if scope.outer is None else None
            if given is None:
                given = read_tensor(tensor, self.source, self.external)
            elif (given.dtype, given.shape) != (dtype_of(tensor.data_type), tuple(tensor.dims)):
                wanted = TensorType(dtype_of(tensor.data_type), tuple(tensor.dims))
                raise ModelError(
                    f"the initializer {tensor.name!r} is {wanted}, not {TensorType(given.dtype, given.shape)}"
                )
            self._constant(context.name(tensor.name), given, scope)
        for sparse in proto.sparse_initializer:
            key, value = read_sparse(sparse, self.source, self.external)
            if not key:
                raise ModelError(f"graph {proto.name!r} has a sparse initializer without a name")
            self._constant(context.name(key), value, scope)

    def _constant(self, name: str, tensor: Tensor, scope: _Scope) -> None:
        if name in scope.initializers:
            raise ModelError(f"the constant {name!r} is defined twice")
        scope.initializers[name] = tensor

    def _node(self, proto: Message, context: _Context, scope: _Scope, nodes: list[Node]) -> None:
        domain = domain_of(proto)
        if not proto.op_type:
            raise ModelError(f"node {_label(proto)!r} names no operator")
        self.count += 1
        if self.count > MAX_NODES:
            raise LimitError(f"the model has more than {MAX_NODES} nodes once its functions are inlined")
        function = self.functions.get((domain, proto.op_type, proto.overload)) if self.functions else None
        if function is None and domain == "" and proto.op_type == "Constant":
            self._constant_node(proto, context, scope)
            return
        attributes: dict[str, Any] = {}
        for attribute in proto.attribute:
            value = self._attribute(attribute, proto, context, scope)
            if attribute.name in attributes:
                raise ModelError(f"node {_label(proto)!r} has two attributes named {attribute.name!r}")
            if value is not None:
                attributes[attribute.name] = value
        version = context.opsets.get(domain)
        if version is None:
            if domain == "" and function is None:
                raise ModelError(f"node {_label(proto)!r}: the model imports no version of the ai.onnx operators")
            version = 1
        inputs = list(proto.input) if context.renames is None else [context.name(i) for i in proto.input]
        outputs = list(proto.output) if context.renames is None else [context.name(o) for o in proto.output]
        name = context.prefix + proto.name if proto.name else ""
        node = Node(proto.op_type, inputs, outputs, attributes, domain, version, name)
        if function is None:
            nodes.append(node)
        else:
            self._inline(function, node, context, scope, nodes)

    def _constant_node(self, proto: Message, context: _Context, scope: _Scope) -> None:
        label = _label(proto)
        if len(proto.output) != 1 or not proto.output[0]:
            raise ModelError(f"node {label!r} (Constant) must have one output")
        given = [a for a in proto.attribute if a.name in _CONSTANT_FORMS]
        if len(given) != 1:
            raise ModelError(f"node {label!r} (Constant) must have one value, has {len(given)}")
        attribute = given[0]
        if attribute.name == "value" and attribute.t is not None and not attribute.ref_attr_name:
            tensor = read_tensor(attribute.t, self.source, self.external)
        else:
            value = self._attribute(attribute, proto, context, scope)
            if value is None:
                raise ModelError(f"node {label!r} (Constant) takes its value from an attribute that was not given")
            try:
                tensor = Tensor.of(_CONSTANT_FORMS[attribute.name](value))
            except (TypeError, ValueError, OverflowError) as error:
                raise ModelError(f"node {label!r} (Constant): {attribute.name} is not valid: {error}") from None
        self._constant(context.name(proto.output[0]), tensor, scope)

    def _attribute(self, proto: Message, node: Message, context: _Context, scope: _Scope) -> Any:
        """The value of a decoded AttributeProto; `None` if it refers to one that the function's caller left out."""
        if proto.ref_attr_name:
            if context.arguments is None:
                raise ModelError(
                    f"node {_label(node)!r}: attribute {proto.name!r} refers to one of a function "
                    f"({proto.ref_attr_name!r}), but stands outside of any"
                )
            return context.arguments.get(proto.ref_attr_name)
        which = _ATTRIBUTE_FIELDS.get(proto.type) if proto.type else _present_field(proto)
        if which is None:
            raise ModelError(f"node {_label(node)!r}: attribute {proto.name!r} has no known type ({proto.type})")
        value = getattr(proto, which)
        if which in ("f", "i"):
            return value
        if which == "s":
            return _text(value)
        if which in ("floats", "ints"):
            return list(value)
        if which == "strings":
            return [_text(v) for v in value]
        if value is None:
            raise ModelError(f"node {_label(node)!r}: attribute {proto.name!r} has no value")
        if isinstance(value, (list, tuple)):
            return [self._message_value(which, v, context, scope) for v in value]
        return self._message_value(which, value, context, scope)

    def _message_value(self, which: str, value: Message, context: _Context, scope: _Scope) -> Any:
        if which in ("g", "graphs"):
            return self._graph(value, context, scope)
        if which in ("t", "tensors"):
            return read_tensor(value, self.source, self.external).numpy()
        if which in ("sparse_tensor", "sparse_tensors"):
            return read_sparse(value, self.source, self.external)[1].numpy()
        return read_type(value)

    def _inline(self, function: Message, call: Node, context: _Context, scope: _Scope, nodes: list[Node]) -> None:
        key = (call.domain, call.op_type, function.overload)
        if key in context.calls:
            raise ModelError(f"function {call.operator!r} calls itself")
        if len(context.calls) >= MAX_CALLS:
            raise LimitError(f"functions call each other deeper than {MAX_CALLS}")
        if len(call.inputs) > len(function.input) or len(call.outputs) > len(function.output):
            raise ModelError(
                f"node {call.label!r} calls function {call.operator!r} with {len(call.inputs)} inputs and "
                f"{len(call.outputs)} outputs; it has {len(function.input)} and {len(function.output)}"
            )
        inputs = call.inputs + [""] * (len(function.input) - len(call.inputs))
        renames = dict(zip(function.input, inputs, strict=True))
        if len(renames) != len(function.input):
            raise ModelError(f"function {call.operator!r} has two inputs of the same name")
        passed = []
        for formal, actual in zip(function.output, call.outputs, strict=False):
            if not actual:
                continue
            if formal in renames:
                passed.append((formal, actual))
            else:
                renames[formal] = actual
        inner = _Context(
            opsets={**self.opsets, **read_opsets(function.opset_import)},
            renames=renames,
            prefix=self._fresh(f"{call.label}/", prefix=True),
            arguments=self._arguments(function, call, context, scope),
            calls=(*context.calls, key),
        )
        self._rename([o for node in function.node for o in node.output if o], inner, keep=True)
        scope.names.update(renames[o] for node in function.node for o in node.output if o)
        for info in function.value_info:
            if info.name in renames and info.type is not None and renames[info.name] not in scope.types:
                scope.types[renames[info.name]] = read_type(info.type, symbols=False)
        for node in function.node:
            self._node(node, inner, scope, nodes)
        for formal, actual in passed:
            # An output that is also an input, or is listed twice, has two names outside: a copy gives the second.
            if not renames[formal]:
                raise ModelError(f"node {call.label!r}: output {formal!r} of {call.operator!r} is an input not given")
            version = inner.opsets.get("", 1)
            nodes.append(Node("Identity", [renames[formal]], [actual], {}, "", version, f"{inner.prefix}{formal}"))

    def _arguments(self, function: Message, call: Node, context: _Context, scope: _Scope) -> dict[str, Any]:
        defaults = _Context(self.opsets, context.renames, context.prefix, {}, context.calls)
        arguments = {a.name: self._attribute(a, function, defaults, scope) for a in function.attribute_proto}
        return {**arguments, **call.attributes}

    def _rename(self, names: Iterable[str], context: _Context, *, keep: bool = False) -> None:
        """Give fresh names to those that a function's body, or a sub-graph in one, defines. With `keep`, names that
        stand for the call's own inputs and outputs already are left."""
        assert context.renames is not None
        for name in names:
            if not (keep and name in context.renames):
                context.renames[name] = self._fresh(context.prefix + name)

    def _fresh(self, name: str, *, prefix: bool = False) -> str:
        candidate, n = name, self.suffixes.get(name, 1)
        while candidate in self.names:
            n += 1
            candidate = f"{name[:-1]}_{n}/" if prefix else f"{name}_{n}"
        self.suffixes[name] = n
        self.names.add(candidate)
        return candidate


def domain_of(proto: Message) -> str:
    """The domain of a node, function or import, with the standard's two spellings made one."""
    return "" if proto.domain == "ai.onnx" else proto.domain


def read_opsets(imports: Iterable[Message]) -> dict[str, int]:
    """Versions by domain. Raises `ModelError` for versions below 1."""
    opsets: dict[str, int] = {}
    for entry in imports:
        if entry.version < 1:
            raise ModelError(f"operator set version {entry.version} of domain {entry.domain!r} does not exist")
        domain = domain_of(entry)
        opsets[domain] = max(entry.version, opsets.get(domain, 1))
    return opsets


def _label(proto: Message) -> str:
    outputs = getattr(proto, "output", ())
    return proto.name or next((o for o in outputs if o), "") or getattr(proto, "op_type", "")


def _present_field(proto: Message) -> str | None:
    return next((f for f in _ATTRIBUTE_FIELDS.values() if proto.has(f)), None)


def _text(value: bytes) -> str | bytes:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value


def _defined(graph: Message) -> list[str]:
    """All names that a graph itself defines."""
    names = [info.name for info in graph.input]
    names += [tensor.name for tensor in graph.initializer]
    names += [sparse.values.name for sparse in graph.sparse_initializer if sparse.values is not None]
    names += [output for node in graph.node for output in node.output]
    return [name for name in dict.fromkeys(names) if name]


def _collect_names(graph: Message, names: set[str]) -> None:
    names.update(_defined(graph))
    for node in graph.node:
        for attribute in node.attribute:
            for body in (*(() if attribute.g is None else (attribute.g,)), *attribute.graphs):
                _collect_names(body, names)


def _first_duplicate(names: Sequence[str]) -> str | None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            return name
        seen.add(name)
    return None


def _check_definitions(graph: str, inputs: list[str], constants: dict[str, Tensor], nodes: list[Node]) -> None:
    known = {*inputs, *constants}
    for node in nodes:
        for output in node.outputs:
            if not output:
                continue
            if output in known:
                raise ModelError(
                    f"graph {graph!r} defines the value {output!r} twice; the second time by node {node.label!r} "
                    f"({node.operator})"
                )
            known.add(output)


def _check_inputs(node: Node, scope: _Scope) -> None:
    for i, name in enumerate(node.inputs):
        if name and name not in scope.names and not scope.sees(name):
            raise ModelError(
                f"input {i} of node {node.label!r} ({node.operator}) is {name!r}, which no node, input or initializer "
                "defines"
            )
