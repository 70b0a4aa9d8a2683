"""The run of a graph that is one compiled segment, when the inputs' types are those of the run before.

Finding a plan, keeping values by name and carrying instructions out one by one takes longer than a small model's
kernels do. A shortcut is what remains where the plan is known and has one instruction.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..errors import OnnxletError
from .plan import Compiled, Stage


class Shortcut:
    """Runs the one instruction of a stage, for inputs of the types that the stage was made for."""

    __slots__ = ("_checks", "_direct", "_instruction", "_order", "_picks", "_wanted")

    def __init__(
        self,
        instruction: Compiled,
        direct: Any,
        inputs: Mapping[str, np.ndarray],
        fixed: Mapping[str, np.ndarray],
        outputs: Sequence[str],
    ):
        self._instruction = instruction
        self._direct = direct
        self._checks = [
            (name, value.dtype, value.shape, fixed[name].tobytes() if name in fixed else None)
            for name, value in inputs.items()
        ]
        self._wanted = list(outputs)
        names = list(inputs)
        self._order = None if instruction.inputs == names else [names.index(name) for name in instruction.inputs]
        self._picks = None if instruction.outputs == outputs else [instruction.outputs.index(name) for name in outputs]

    @classmethod
    def of(
        cls, stage: Stage, values: Mapping[str, Any], fixed: Mapping[str, np.ndarray], outputs: Sequence[str]
    ) -> Shortcut | None:
        """The shortcut for feeds like `values` and these outputs, or `None` where a run takes more than one step."""
        if stage.deferred or len(stage.instructions) != 1 or len({*outputs}) != len(outputs):
            return None
        instruction = stage.instructions[0]
        direct = getattr(instruction.executable, "direct", None) if isinstance(instruction, Compiled) else None
        if direct is None or not all(type(value) is np.ndarray for value in values.values()):
            return None
        assert isinstance(instruction, Compiled)
        if not all(name in values for name in instruction.inputs) or not {*outputs} <= {*instruction.outputs}:
            return None
        return cls(instruction, direct, values, fixed, outputs)

    def run(self, outputs: Sequence[str] | None, feeds: Any) -> list[np.ndarray] | None:
        """New arrays for the feeds, or `None` where they, or the outputs, are not those of the run before."""
        if type(feeds) is not dict or len(feeds) != len(self._checks) or (outputs and outputs != self._wanted):
            return None
        arrays = []
        try:
            for name, dtype, shape, content in self._checks:
                value = feeds[name]
                if (
                    type(value) is not np.ndarray
                    or value.dtype is not dtype
                    or value.shape != shape
                    or not value.flags.c_contiguous
                    or (content is not None and value.tobytes() != content)
                ):
                    return None
                arrays.append(value)
        except KeyError:
            return None
        if self._order is not None:
            arrays = [arrays[i] for i in self._order]
        try:
            results = self._direct(arrays)
        except OnnxletError:
            raise
        except Exception as error:
            raise self._instruction.error(arrays, error) from error
        return results if self._picks is None else [results[i] for i in self._picks]
