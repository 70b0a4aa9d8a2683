"""Combining the values of a workgroup's invocations, each of which gets the result: by subgroups where a device has
them, else as a tree in shared memory. Both in a fixed order."""

from __future__ import annotations

from .kernel import SUBGROUP, WORKGROUP

BY_SUBGROUPS = {
    "{a} + {b}": "subgroupAdd(value)",
    "max({a}, {b})": "subgroupMax(value)",
    "min({a}, {b})": "subgroupMin(value)",
    "max_nan({a}, {b})": "select(subgroupMax(value), quiet_nan(), subgroupAny(is_nan(value)))",
    "min_nan({a}, {b})": "select(subgroupMin(value), quiet_nan(), subgroupAny(is_nan(value)))",
}
"""Combinations that subgroups have an instruction for. What theirs make of NaN is undefined."""

SMALLEST = 4
"""Invocations in a subgroup, at least."""


def combining(name: str, element: str, combine: str, subgroups: bool) -> str:
    """A WGSL function ``NAME(value, lane)``; `combine` is text of the combination of ``{a}`` and ``{b}``."""
    head = f"fn {name}(value: {element}, lane: u32) -> {element} {{\n    workgroupBarrier();"
    if subgroups and combine in BY_SUBGROUPS:
        return f"""var<workgroup> {name}_parts: array<{element}, {WORKGROUP // SMALLEST}>;
{head}
    let part = {BY_SUBGROUPS[combine]};
    let first = subgroupMin(lane);
    if (first == lane) {{ {name}_parts[first / {SUBGROUP}] = part; }}
    workgroupBarrier();
    var total = {name}_parts[0];
    for (var s = 1u; s * {SUBGROUP} < {WORKGROUP}u; s++) {{
        total = {combine.format(a="total", b=f"{name}_parts[s]")};
    }}
    return total;
}}"""
    own, other = f"{name}_parts[lane]", f"{name}_parts[lane + half]"
    return f"""var<workgroup> {name}_parts: array<{element}, {WORKGROUP}>;
{head}
    {own} = value;
    workgroupBarrier();
    for (var half = {WORKGROUP // 2}u; half > 0u; half = half / 2u) {{
        if (lane < half) {{ {own} = {combine.format(a=own, b=other)}; }}
        workgroupBarrier();
    }}
    return {name}_parts[0];
}}"""
