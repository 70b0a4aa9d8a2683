"""Lowering: from one step of a plan to kernels, or a refusal that says why not.

An operator's lowering is a function decorated with `@lowering("Name")`. It gets a `Lowering`, reads types and
constants from it, and emits kernels. What it can't do right it refuses by raising `Refusal`: `supports` runs the same
function and throws the kernels away, so that a yes always means that there is a kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any, NoReturn

import numpy as np

from onnxlet.graph.ir import TensorType
from onnxlet.providers.base import Step

from .kernel import CHAIN, Binding, Kernel, Map, Operand, elementwise_kernel, flat_body, flat_groups
from .storage import BITS, ELEMENTS, KINDS, MOVED, element_of, type_name, widened, width_of
from .wgsl import literal

MAX_RANK = 8


NARROWED = {
    "float16": "rounded_to_half({0})",
    "bfloat16": "rounded_to_bfloat({0})",
    **{name: f"extractBits({{0}}, 0u, {bits}u)" for name, bits in BITS.items()},
}
"""What makes a result of 32 bits one of the type that it is stored for."""

WITHOUT_MEANING = frozenset(
    {
        "consumed_inputs", "saturate", "round_mode",  # of old opsets, and of casts to types that are not on the GPU
        "momentum", "spatial", "seed", "is_test",  # of training, and of opsets in which it is the only choice
        "to", "axes", "split", "num_outputs", "shape", "keepdims", "ceil_mode", "allowzero",  # in the output's type
        "stash_type", "output_shape", "output_padding", "allow_broadcast",
    }
)  # fmt: skip
"""Attributes that change nothing in what a kernel computes, given the concrete types of its outputs."""


class Refusal(Exception):
    """Why a step is not computed on the GPU, as a short phrase for people."""


@dataclass(frozen=True, slots=True)
class Target:
    """What lowering needs to know about the device: its limits, and whether it is a CPU that poses as a GPU.

    Software adapters run an invocation's registers fast and workgroup barriers slowly; real GPUs the other way round.
    """

    software: bool = False
    max_binding_bytes: int = 128 << 20
    max_buffer_bytes: int = 256 << 20
    max_bindings: int = 8
    max_groups: int = 65535
    max_invocations: int = 256
    max_shared_bytes: int = 16384
    subgroups: bool = False
    half: bool = False
    """Whether shaders have f16."""
    dots: bool = False
    """Whether they have `dot4I8Packed`."""
    max_steps: int = 0
    """Turns of loops that an invocation may make in all; 0 where that is not limited."""
    choices: Mapping[str, tuple[str, str]] = field(default_factory=dict, hash=False)
    """By class of shapes the variant of a kernel that a trial has found the fastest, and what it has measured."""

    @property
    def flat_groups(self) -> int:
        """The most workgroups of kernels whose invocations can take any number of elements each. A workgroup costs a
        software adapter half a microsecond."""
        return min(self.max_groups, 512) if self.software else self.max_groups


@dataclass(frozen=True, slots=True, eq=False)
class Derived:
    """A constant made from another when it is uploaded (a weight in the order a kernel wants, a narrowed index).

    `tag` tells apart what is made from one source; equal tags must mean equal results. Where it is `half`, float16 is
    kept in 16 bits.
    """

    sources: tuple[str, ...]
    tag: str
    make: Callable[..., np.ndarray]
    half: bool = False


@dataclass(slots=True)
class Tensor:
    """An input or output as a lowering sees it: the name of its value (aliases followed) and its concrete type."""

    value: str
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def element(self) -> str:
        return element_of(self.dtype)

    @property
    def kind(self) -> str:
        """The name of the element type that it is computed with like."""
        name = type_name(self.dtype)
        return KINDS.get(name, name)

    @property
    def size(self) -> int:
        return prod(self.shape)

    def binding(self, name: str, vector: int = 1) -> Binding:
        element = self.element if vector == 1 else f"vec{vector}<{self.element}>"
        return Binding(name, self.value, element, self.size // vector)


@dataclass(slots=True)
class Lowering:
    """One step being lowered. `aliases` and `derived` are shared by all steps of a segment."""

    step: Step
    target: Target
    aliases: dict[str, str] = field(default_factory=dict)
    derived: dict[str, Derived] = field(default_factory=dict)
    kernels: list[Kernel] = field(default_factory=list)
    attributes_read: set[str] = field(default_factory=set)
    index_limits: list[tuple[str, int | tuple[int, ...]]] = field(default_factory=list)
    """Segment inputs that are indices, and the size of the axis that they index, or of one axis for each element of
    the last dimension: checked when they are uploaded."""

    def refuse(self, reason: str) -> NoReturn:
        raise Refusal(reason)

    @property
    def version(self) -> int:
        return self.step.node.version

    def attribute(self, name: str, default: Any = None) -> Any:
        self.attributes_read.add(name)
        value = self.step.node.attributes.get(name, default)
        return value.decode() if isinstance(value, bytes) else value

    def ignore(self, *names: str) -> None:
        """Attributes that change nothing here."""
        self.attributes_read.update(names)

    def has_input(self, index: int) -> bool:
        return index < len(self.step.node.inputs) and bool(self.step.node.inputs[index])

    def input(self, index: int, *kinds: str) -> Tensor:
        """Input `index`, of one of the NumPy element types `kinds` (default float32)."""
        type_ = self.step.inputs[index]
        return self._tensor(self.step.node.inputs[index], type_, f"input {index}", kinds or ("float32",))

    def output(self, index: int = 0, *kinds: str) -> Tensor:
        """Output `index`, of one of the kinds (default: any)."""
        type_ = self.step.outputs[index]
        return self._tensor(self.step.node.outputs[index], type_, f"output {index}", kinds or MOVED)

    @property
    def most_bytes(self) -> int:
        """The most bytes that a kernel may bind as one value."""
        return min(self.target.max_binding_bytes, self.target.max_buffer_bytes)

    def parts(self, index: int, axis: int) -> list[tuple[int, int]] | None:
        """Ranges along `axis` by which constant input `index` can be bound; `None` if it can be bound as a whole."""
        type_ = self.step.inputs[index]
        if type_ is None or not type_.concrete or not self.is_constant(index):
            return None
        element = "f32" if type_.dtype is None or type_name(type_.dtype) not in ELEMENTS else element_of(type_.dtype)
        nbytes = type_.size * width_of(element)
        if nbytes <= self.most_bytes:
            return None
        size = type_.dims[axis]
        most = self.most_bytes // 16 * 16 // (nbytes // size)
        if most < 4:
            self.refuse(f"four slices of input {index} exceed the {self.most_bytes:,} bytes that the device binds")
        step = most // 4 * 4
        return [(start, min(start + step, size)) for start in range(0, size, step)]

    def has_output(self, index: int) -> bool:
        return index < len(self.step.node.outputs) and bool(self.step.node.outputs[index])

    def is_empty(self, index: int) -> bool:
        """Whether input `index` has no elements. Only lowerings that ask may have such an input."""
        type_ = self.step.inputs[index]
        return type_ is not None and type_.concrete and type_.size == 0

    def is_empty_output(self, index: int) -> bool:
        type_ = self.step.outputs[index]
        return type_ is not None and type_.concrete and type_.size == 0

    def single_output(self) -> None:
        """Refuse a node whose further outputs are used."""
        if any(self.step.node.outputs[1:]):
            self.refuse(f"only the first output of {self.step.node.op_type} is computed on the GPU")

    def constant(self, index: int) -> np.ndarray | None:
        """The value of input `index` where it is known."""
        return self.step.constant(index) if self.has_input(index) else None

    def known(self, index: int, what: str) -> np.ndarray:
        """The value of input `index`; refuses where only the run will tell."""
        value = self.constant(index)
        if value is None:
            self.refuse(f"{what} is not known before the run")
        return value

    def is_constant(self, index: int) -> bool:
        return self.has_input(index) and self.step.node.inputs[index] in self.step.constants

    def derive(self, sources: tuple[int, ...], tag: str, make: Callable[..., np.ndarray], half: bool = False) -> str:
        """The name of a constant that `make` computes from the constant inputs `sources`; in 16 bits if `half`."""
        names = tuple(self.step.node.inputs[i] for i in sources)
        name = f"{' '.join(names)}\0{tag}"
        self.derived[name] = Derived(names, tag, make, half)
        return name

    def table(self, tag: str, values: np.ndarray) -> str:
        """The name of a constant that the lowering has computed by itself."""
        name = f"\0{tag} of {next(filter(None, self.step.node.outputs))}"
        self.derived[name] = Derived((), tag, lambda: values)
        return name

    def temporary(self, tag: str, shape: tuple[int, ...], dtype: type = np.float32) -> Tensor:
        """A value between kernels of this node. Refuses one that is too large for the device."""
        limit = self.most_bytes
        made = Tensor(f"{next(filter(None, self.step.node.outputs))}\0{tag}", shape, np.dtype(dtype))
        nbytes = made.size * width_of(made.element)
        if nbytes > limit:
            self.refuse(f"its {tag} need {nbytes:,} bytes, the device binds at most {limit:,}")
        return made

    def operand(self, index: int, *kinds: str, factor: bool = False) -> Operand:
        """Input `index` as an operand of a map: a number in the text where it is a known scalar, else a value.

        A `factor` or divisor of zero or infinity is never written as a number: compilers then make a zero of the whole
        product, also where the other factor is not finite.
        """
        t = self.input(index, *kinds)
        if t.size == 1 and self.is_constant(index):
            value = widened(self.known(index, "").reshape(-1))[0]
            if not factor or (value != 0 and np.isfinite(value)):
                return Operand("", t.shape, t.element, literal(value, t.element))
        return Operand(t.value, t.shape, t.element)

    def emit(self, kernel: Kernel) -> None:
        self.kernels.append(kernel)

    def extend(self, operands: list[Operand], expression: str, element: str = "f32") -> None:
        """Add a map to the store of the last kernel; its operand `CHAIN` is what the kernel computes."""
        kernel = self.kernels[-1]
        kernel.maps.append(Map(tuple(operands), expression, kernel.shape, element))

    def round_narrow(self) -> None:
        """Round or cut what the node stores of a type of fewer than 32 bits, which is computed in 32, to that type."""
        rounding = {
            name: NARROWED[type_name(type_.dtype)]
            for name, type_ in zip(self.step.node.outputs, self.step.outputs, strict=True)
            if type_ is not None and type_.dtype is not None and type_name(type_.dtype) in NARROWED
        }
        for kernel in self.kernels:
            if kernel.output in rounding and not kernel.exact:
                chain = self.chain(kernel)
                kernel.maps.append(Map((chain,), rounding[kernel.output], kernel.shape, kernel.out_element))

    def check_attributes(self) -> None:
        """Refuse a node with an attribute that its lowering has not looked at: a newer opset may give it a meaning."""
        unknown = set(self.step.node.attributes) - self.attributes_read - WITHOUT_MEANING
        if unknown:
            self.refuse(f"the attribute {', '.join(sorted(unknown))} has no GPU kernel")

    def check_limits(self) -> None:
        """Refuse kernels that need more than the device allows."""
        t = self.target
        for kernel in self.kernels:
            buffers = len(kernel.values_read()) + 1
            if buffers > t.max_bindings:
                self.refuse(f"it needs {buffers} buffers, the device allows {t.max_bindings}")
            if t.max_steps:
                from .desktop.long_loops import spread

                reason = spread(kernel, t.max_steps, t.max_groups)
                if reason is not None:
                    self.refuse(reason)
            if max(kernel.groups) > t.max_groups:
                self.refuse(f"it needs {max(kernel.groups)} workgroups in a row, the device allows {t.max_groups}")

    def emit_flat(self, title: str, reads: list[Binding], statements: str, out: Tensor, declarations: str = "") -> None:
        """Add a kernel with one invocation per output element `i`; `statements` end in a call of `store`."""
        groups = flat_groups(out.size, self.target.flat_groups)
        self.emit(
            Kernel(title, reads, out.value, out.shape, out.element, flat_body(statements), groups,
                   declarations=declarations)
        )  # fmt: skip

    def chain(self, kernel: Kernel | None = None) -> Operand:
        """What the last kernel computes, as an operand of `extend`."""
        kernel = kernel or self.kernels[-1]
        return Operand(CHAIN, kernel.shape, kernel.out_element)

    def emit_map(self, operands: list[Operand], expression: str, out: Tensor | None = None) -> None:
        """Add an elementwise operator."""
        out = out or self.output()
        m = Map(tuple(operands), expression, out.shape, out.element)
        inputs = ", ".join(
            "number" if o.text is not None else self._shown(o.element, o.shape, o.value) for o in operands
        )
        title = f"{self.step.node.operator}({inputs}) -> {self._shown(out.element, out.shape, out.value)}"
        self.emit(elementwise_kernel(title, out.value, m, self.target.flat_groups))

    def alias(self, out: Tensor, source: Tensor) -> None:
        """Let an output be the same buffer as an input: only its shape differs."""
        self.aliases[out.value] = source.value

    def title(self, *tensors: Tensor, note: str = "") -> str:
        """The first line of a shader: the operator, its operands' types and what is special about it."""
        types = ", ".join(self._shown(t.element, t.shape, t.value) for t in tensors)
        return f"{self.step.node.operator}({types})" + (f" {note}" if note else "")

    def _shown(self, element: str, shape: tuple[int, ...], value: str) -> str:
        """A type in a title. The first dimension of what is computed is left out: shaders rarely depend on it."""
        if len(shape) < 2 or value in self.step.constants or value in self.derived:
            return f"{element}{list(shape)}"
        return f"{element}[*, {', '.join(map(str, shape[1:]))}]"

    def _tensor(self, name: str, type_: TensorType | None, what: str, kinds: tuple[str, ...]) -> Tensor:
        if not name or type_ is None:
            self.refuse(f"{what} is missing")
        if not type_.concrete:
            self.refuse(f"the shape of {what} is not known before the run")
        dtype = type_.dtype
        assert dtype is not None
        actual = type_name(dtype)
        if KINDS.get(actual, actual) not in kinds:
            self.refuse(f"{actual} {what} has no GPU kernel")
        shape = type_.dims
        if len(shape) > MAX_RANK:
            self.refuse(f"{what} has rank {len(shape)}, the GPU kernels go to {MAX_RANK}")
        size = prod(shape)
        if size == 0:
            self.refuse(f"{what} is empty")
        nbytes = size * width_of(element_of(dtype))
        limit = self.most_bytes
        if nbytes > limit:
            self.refuse(f"{what} has {nbytes:,} bytes, the device binds at most {limit:,}")
        return Tensor(self.aliases.get(name, name), shape, dtype)


Lower = Callable[[Lowering], None]

_LOWERINGS: dict[tuple[str, str], Lower] = {}

INTERNAL = "ai.onnxlet"
MICROSOFT = "com.microsoft"


def lowering(*names: str, domain: str = "") -> Callable[[Lower], Lower]:
    """Register the decorated function as the lowering of the operators `names` of `domain`, at every version."""

    def register(function: Lower) -> Lower:
        for name in names:
            _LOWERINGS[domain, name] = function
        return function

    return register


def lower(
    step: Step,
    target: Target,
    aliases: dict[str, str] | None = None,
    derived: dict[str, Derived] | None = None,
) -> Lowering:
    """Lower one step. Raises `Refusal`."""
    from . import operators  # noqa: F401  (fills the table)

    found = _LOWERINGS.get((step.node.domain, step.node.op_type))
    if found is None:
        raise Refusal("no GPU kernel for this operator")
    result = Lowering(step, target, {} if aliases is None else aliases, {} if derived is None else derived)
    if all(t is not None and t.concrete and t.size == 0 for t in step.outputs):
        return result
    found(result)
    result.round_narrow()
    result.check_attributes()
    result.check_limits()
    return result


def registered() -> list[tuple[str, str]]:
    """Domain and name of every operator with a lowering."""
    from . import operators  # noqa: F401

    return sorted(_LOWERINGS)


__all__ = [
    "CHAIN", "INTERNAL", "MICROSOFT", "Derived", "Lower", "Lowering", "Mapping", "Operand", "Refusal", "Target",
    "Tensor", "lower", "lowering", "registered",
]  # fmt: skip
