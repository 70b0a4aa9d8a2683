"""Models of one node each from the calls in the tests of operators: com.microsoft's and old versions are among them."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import helper

from tests.conformance import packing
from tests.conformance.suite import Case

from .graphs import Unfit, loose_type, tensor, type_of


def cases(calls: bytes) -> list[Case]:
    """The calls that gave a result, as cases with that result; those that have no model (bodies that are functions of
    Python) are left out."""
    found = []
    for packed in packing.loads(calls):
        asked, result, error = packing.loads(packed)
        if error is not None:
            continue
        operator, opset, inputs, keywords = packing.loads(asked)
        try:
            found.append(_case(operator, opset, list(inputs), result, **keywords))
        except (Unfit, ValueError, TypeError, AttributeError):
            continue
    return found


def _case(
    operator: str, opset: int, inputs: list[Any], result: Any, domain: str = "", outputs: int = 1, **attributes: Any
) -> Case:
    inputs = [np.asarray(x) if isinstance(x, np.generic) else x for x in inputs]
    names = [f"x{i}" if value is not None else "" for i, value in enumerate(inputs)]
    results = result if outputs > 1 else [result]
    made = {k: tensor(v) if isinstance(v, np.ndarray) else v for k, v in attributes.items() if v is not None}
    node = helper.make_node(operator, names, [f"y{i}" for i in range(outputs)], domain=domain, **made)
    given = [(name, value) for name, value in zip(names, inputs, strict=True) if name]
    graph = helper.make_graph(
        [node],
        operator,
        [helper.make_value_info(name, type_of(value, tuple)) for name, value in given],
        [helper.make_value_info(f"y{i}", loose_type(value)) for i, value in enumerate(results)],
    )
    imports = [helper.make_opsetid("", opset if not domain else 21)]
    if domain:
        imports.append(helper.make_opsetid(domain, opset))
    model = helper.make_model(graph, opset_imports=imports, ir_version=10)
    return Case(f"{operator} {opset}", model.SerializeToString(), [([v for _, v in given], list(results))], 2e-3, 1e-6)
