"""Kernels: one dispatch of one shader, and the elementwise maps that are fused into its store.

Every shader writes its results through a function `store(i, value)`, where `i` is the row-major index of the output.
An elementwise operator that follows is a `Map`: a WGSL expression of the value and of other operands at `i`. Fusing it
means adding it to the kernel's chain of maps; the text of `store` is generated at the end. An elementwise operator
alone is a kernel with an empty body and one map.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from textwrap import indent

from .storage import width_of
from .wgsl import broadcast_index, helpers_used

CHAIN = "\0chain"
"""As the value of a map's operand: the result of what comes before it in the kernel."""

WORKGROUP = 64
"""Invocations in a workgroup of a flat kernel (one invocation per output element)."""

SUBGROUP = "subgroup_lanes"
"""What a shader that uses subgroups calls their size."""

ENABLE_SUBGROUPS = ["enable subgroups;"] if sys.platform == "emscripten" else []
"""wgpu's own compiler has them without being asked, and does not know the question."""


@dataclass(frozen=True, slots=True)
class Operand:
    """A value that a map reads: a name and a shape, or a constant number as WGSL text in `text`."""

    value: str
    shape: tuple[int, ...]
    element: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Map:
    """An elementwise operator: `expression` in terms of its operands ``{0}``, ``{1}``, ... at one output element."""

    operands: tuple[Operand, ...]
    expression: str
    shape: tuple[int, ...]
    element: str


@dataclass(frozen=True, slots=True)
class Binding:
    """A storage buffer of a shader: its name there, the value it holds, and its WGSL element type.

    `count` is the number of elements of that type.
    """

    name: str
    value: str
    element: str
    count: int

    @property
    def nbytes(self) -> int:
        return self.count * width_of(self.element)


@dataclass(slots=True)
class Kernel:
    """One dispatch. `groups` is the number of workgroups; `element` the type of the value given to `store`."""

    title: str
    reads: list[Binding]
    output: str
    shape: tuple[int, ...]
    element: str
    body: str
    groups: tuple[int, int, int]
    workgroup: tuple[int, int, int] = (WORKGROUP, 1, 1)
    declarations: str = ""
    maps: list[Map] = field(default_factory=list)
    fusable: bool = True
    """Whether it writes all of its output, each element once."""
    node: str = ""
    """The label of the node that it belongs to."""
    note: str = ""
    """Why it is this kernel, where several would do."""
    exact: bool = False
    """Whether what it stores is of the output's type already: moved, or cut to it."""
    atomic: bool = False
    """Whether it changes its output by atomic operations (a float's bits as a u32) instead of `store`."""

    @property
    def nbytes(self) -> int:
        return self.size * width_of(self.out_element)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def out_element(self) -> str:
        return self.maps[-1].element if self.maps else self.element

    def values_read(self) -> list[str]:
        """Names of all values that the kernel binds for reading, once each."""
        names = dict.fromkeys(b.value for b in self.reads)
        for m in self.maps:
            names.update((o.value, None) for o in m.operands if o.value != CHAIN and o.text is None)
        return list(names)

    def assemble(self) -> tuple[str, list[Binding]]:
        """The shader's text and its bindings in order, the output last."""
        bindings = list(self.reads)
        names: dict[tuple[str, str], str] = {(b.value, b.element): b.name for b in bindings}
        for m in self.maps:
            for o in m.operands:
                if o.value == CHAIN or o.text is not None or (o.value, o.element) in names:
                    continue
                names[o.value, o.element] = name = f"e{len(bindings)}"
                bindings.append(Binding(name, o.value, o.element, prod(o.shape)))
        bindings.append(Binding("y", self.output, self.out_element, self.size))
        lines = [f"// {self.title}"]
        for number, b in enumerate(bindings):
            access, element = ("read_write" if b.name == "y" else "read"), b.element
            if self.atomic and b.name == "y":
                element = f"atomic<{'i32' if element == 'i32' else 'u32'}>"
            lines.append(f"@group(0) @binding({number}) var<storage, {access}> {b.name}: array<{element}>;")
        store = "" if self.atomic else self._store(names)
        code = "\n".join(part for part in (self.declarations, store, self._main()) if part)
        if SUBGROUP in code:
            lines[1:1] = ENABLE_SUBGROUPS
            code = f"var<private> {SUBGROUP}: u32;\n{code}"
        if any("f16" in b.element for b in bindings):
            lines.insert(1, "enable f16;")
        return "\n".join([*lines, *helpers_used(code), code]) + "\n", bindings

    def _store(self, names: dict[tuple[str, str], str]) -> str:
        alone = not self.element
        lines = ["fn store(i: u32) {" if alone else f"fn store(i: u32, v0: {self.element}) {{"]
        value = "v0"
        loaded: dict[str, str] = {}
        for number, m in enumerate(self.maps, 1):
            texts = []
            for o in m.operands:
                if o.value == CHAIN:
                    texts.append(value)
                elif o.text is not None:
                    texts.append(o.text)
                else:
                    place = f"{names[o.value, o.element]}[{broadcast_index(o.shape, m.shape)}]"
                    if place not in loaded:
                        loaded[place] = f"x{len(loaded)}"
                        lines.append(f"    let {loaded[place]} = {place};")
                    texts.append(loaded[place])
            value = f"v{number}"
            lines.append(f"    let {value} = {m.expression.format(*texts)};")
        lines += [f"    y[i] = {value};", "}"]
        return "\n".join(lines)

    def _main(self) -> str:
        x, y, z = self.workgroup
        body, more = self.body.strip("\n"), ""
        if SUBGROUP in self.declarations:
            body, more = f"{SUBGROUP} = lanes;\n{body}", ", @builtin(subgroup_size) lanes: u32"
        return (
            f"@compute @workgroup_size({x}, {y}, {z})\n"
            "fn main(@builtin(global_invocation_id) gid: vec3<u32>, @builtin(workgroup_id) wid: vec3<u32>,\n"
            "        @builtin(local_invocation_index) lane: u32, @builtin(num_workgroups) groups: vec3<u32>"
            f"{more}) {{\n" + "\n".join("    " + line if line else line for line in body.split("\n")) + "\n}"
        )


def flat_body(statements: str, count: str = "arrayLength(&y)") -> str:
    """The body of a kernel that does `statements` for every `i` below `count`, however many invocations there are.

    The default is one `i` per output element. The count is not a number in the text, so that batches of every size
    share a shader.
    """
    head = f"let count = {count};\nfor (var i = gid.x; i < count; i += groups.x * {WORKGROUP}u) {{\n"
    return head + indent(statements.strip("\n"), "    ") + "\n}"


def flat_groups(count: int, limit: int) -> tuple[int, int, int]:
    """Workgroups of a flat kernel with `count` values of `i`: at most `limit`, whose invocations then take several."""
    return min(-(-count // WORKGROUP), limit), 1, 1


def single_body(statements: str, count: str = "arrayLength(&y)") -> str:
    """The body of a kernel whose invocations do `statements` once, for an `i` below `count`.

    For work that keeps much in registers: software adapters spill them where a loop is around it.
    """
    head = f"let i = gid.x + gid.y * groups.x * {WORKGROUP}u;\nif (i >= {count}) {{ return; }}\n"
    return head + statements.strip("\n")


def single_groups(count: int, limit: int) -> tuple[int, int, int]:
    """Workgroups of a kernel with `count` invocations."""
    return grid(-(-count // WORKGROUP), limit)


def grid(count: int, limit: int) -> tuple[int, int, int]:
    """`count` workgroups, spread over two dimensions where one would pass the device's limit."""
    rows = -(-count // limit)
    return -(-count // rows), rows, 1


def elementwise_kernel(title: str, output: str, m: Map, limit: int) -> Kernel:
    """An elementwise operator as a kernel of its own."""
    groups = flat_groups(prod(m.shape), limit)
    return Kernel(title, [], output, m.shape, "", flat_body("store(i);"), groups, maps=[m])


def use(kernels: Sequence[Kernel]) -> dict[str, int]:
    """How many kernels read each value."""
    counts: dict[str, int] = {}
    for kernel in kernels:
        for name in kernel.values_read():
            counts[name] = counts.get(name, 0) + 1
    return counts
