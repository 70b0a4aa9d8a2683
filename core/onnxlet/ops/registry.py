"""How an operator is added: one function, decorated with `@op`.

    @op("HardSwish", since=14)
    def hard_swish(x): ...

Positional parameters are the operator's inputs in order (a default of `None` marks an optional one, `*xs` a
variadic one), keyword-only parameters are its attributes with the specification's defaults: the signature is the
registration. The function gets and returns NumPy arrays (a tuple or list where there are several outputs); sequences
are Python lists, an empty optional is `None`, maps are dicts.

Five keyword-only names are filled in by the executor where a function declares them:

* `n_outputs`: how many outputs the node has (trailing unused ones not counted);
* `output_types`: a list of the element types that the graph declares for the outputs (`None` where unknown);
* `body_types`: a list of the types that the node's sub-graph declares for its outputs (`None` where unknown);
* `graphs`: the graphs among the node's attributes, by name;
* `limits`: the session's `Limits`.

An attribute that is a graph arrives as a callable that takes the body's inputs and is a generator returning the list of
its outputs: an operator that runs a body is itself a generator and writes ``outs = yield from body(a, b)``.

`since` is the first opset version with this meaning. Of several registrations the newest whose `since` is not above
the model's version is taken; `until` ends one early (an operator that was removed).
"""

from __future__ import annotations

import inspect
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

from ..families import Families

F = TypeVar("F", bound=Callable[..., Any])

ATTRIBUTE_KINDS = {
    "int": "an integer",
    "float": "a number",
    "str": "a text",
    "list[int]": "a list of integers",
    "list[float]": "a list of numbers",
    "list[str]": "a list of texts",
    "np.ndarray": "a tensor",
    "Body": "a graph",
}
"""Annotations of attributes that are checked when a model is loaded, and what they ask for."""

INJECTED = ("n_outputs", "output_types", "body_types", "graphs", "limits")


@dataclass(frozen=True, slots=True)
class Operator:
    """One version of an operator: its function and what its signature says."""

    name: str
    domain: str
    since: int
    until: int | None
    function: Callable[..., Any]
    required_inputs: int
    max_inputs: int | None
    """`None` for a variadic operator."""
    attributes: frozenset[str]
    required_attributes: frozenset[str]
    kinds: dict[str, str]
    """For attributes whose annotation says what they hold: a key of `ATTRIBUTE_KINDS`."""
    injected: frozenset[str]


FAMILIES = Families("onnxlet.ops")

_OPERATORS: dict[tuple[str, str], list[Operator]] = {}


def op(name: str, *, since: int = 1, until: int | None = None, domain: str = "") -> Callable[[F], F]:
    """Register the decorated function as operator `name` of `domain` from opset `since` on (to `until`, inclusive).

    Decorators stack: one function may serve several names and versions. Registering the same name, domain and
    `since` again replaces the former, so that users can override an operator.
    """

    def register(function: F) -> F:
        if not (function.__module__ or "").startswith(FAMILIES.package):
            FAMILIES.load(domain, name)  # before, so that what a user registers replaces it
        try:
            entry = Operator(name, domain, since, until, function, *_signature(function))
        except TypeError as error:
            raise TypeError(f"operator {name}: {error}") from None
        versions = [o for o in _OPERATORS.get((domain, name), []) if o.since != since]
        _OPERATORS[domain, name] = sorted([*versions, entry], key=lambda o: o.since)
        return function

    return register


@cache  # one function often serves several names and versions
def _signature(
    function: Callable[..., Any],
) -> tuple[int, int | None, frozenset[str], frozenset[str], dict[str, str], frozenset[str]]:
    """What an operator's function says about it: the last six fields of `Operator`."""
    required = 0
    maximum: int | None = 0
    attributes, needed, injected = set(), set(), set()
    kinds: dict[str, str] = {}
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is parameter.VAR_POSITIONAL:
            maximum = None
        elif parameter.kind is parameter.KEYWORD_ONLY:
            if parameter.name in INJECTED:
                injected.add(parameter.name)
            else:
                attributes.add(parameter.name)
                kind = _kind(parameter.annotation)
                if kind in ATTRIBUTE_KINDS:
                    kinds[parameter.name] = kind
                if parameter.default is parameter.empty:
                    needed.add(parameter.name)
        elif parameter.kind is parameter.VAR_KEYWORD:
            raise TypeError(f"name its attributes instead of **{parameter.name}")
        else:
            maximum = None if maximum is None else maximum + 1
            required += parameter.default is parameter.empty
    return required, maximum, frozenset(attributes), frozenset(needed), kinds, frozenset(injected)


def _kind(annotation: Any) -> str:
    text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
    return text.removesuffix(" | None").replace("Sequence[", "list[")


def find(name: str, domain: str, version: int) -> Operator | None:
    """The operator's registration for a model that imports `version` of `domain`, or `None`."""
    FAMILIES.load(domain, name)
    versions = _OPERATORS.get((domain, name), [])
    i = bisect_right(versions, version, key=lambda o: o.since)
    if i == 0:
        return None
    found = versions[i - 1]
    return None if found.until is not None and version > found.until else found


def registered() -> list[Operator]:
    """All registrations, by domain, name and version."""
    FAMILIES.load_all()
    return [o for key in sorted(_OPERATORS) for o in _OPERATORS[key]]
