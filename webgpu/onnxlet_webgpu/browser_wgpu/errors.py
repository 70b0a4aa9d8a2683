"""WebGPU's errors, with wgpu's names. In JavaScript most of them arrive later, through error scopes and promises."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any


class GPUError(Exception):
    """Base of the errors of an error scope."""

    def __init__(self, message: str):
        super().__init__(message)
        self.message = message


class GPUOutOfMemoryError(GPUError, MemoryError):
    """The device has no room for a buffer."""


class GPUValidationError(GPUError):
    """A call broke WebGPU's rules, or a shader WGSL's."""


class GPUInternalError(GPUError):
    """The browser or the driver failed although the call was right."""


class GPUPipelineError(Exception):
    """A pipeline could not be made. `reason` is ``"validation"`` or ``"internal"``."""

    def __init__(self, message: str, options: dict[str, str] | None = None):
        super().__init__(message)
        self.message = message
        self.reason = (options or {}).get("reason", "internal")


class GPUDeviceLostInfo:
    """Why a device was lost: `reason` is ``"destroyed"`` or ``"unknown"``, `message` is for people."""

    def __init__(self, reason: str, message: str):
        self.reason = reason
        self.message = message

    def __repr__(self) -> str:
        return f"<GPUDeviceLostInfo {self.reason}: {self.message}>"


class GPUCompilationMessage:
    """What a shader's compiler says about one place: `type` is ``"error"``, ``"warning"`` or ``"info"``; lines and
    positions count from one."""

    def __init__(self, type: str, message: str, line_num: int, line_pos: int, offset: int, length: int):
        self.type = type
        self.message = message
        self.line_num = line_num
        self.line_pos = line_pos
        self.offset = offset
        self.length = length

    def __repr__(self) -> str:
        return f"<GPUCompilationMessage {self.type} {self.line_num}:{self.line_pos} {self.message}>"


class GPUCompilationInfo:
    def __init__(self, messages: list[GPUCompilationMessage]):
        self.messages = messages


SCOPED = {
    "GPUValidationError": GPUValidationError,
    "GPUOutOfMemoryError": GPUOutOfMemoryError,
    "GPUInternalError": GPUInternalError,
}


def scoped_error(name: str, message: str) -> GPUError:
    """The error of an error scope by its JavaScript class name."""
    return SCOPED.get(name, GPUInternalError)(message)


def compilation_messages(rows: Iterable[Sequence[Any]]) -> list[GPUCompilationMessage]:
    return [GPUCompilationMessage(row[0], row[1], *map(int, row[2:6])) for row in rows]


def shader_report(code: str, messages: Iterable[GPUCompilationMessage]) -> str:
    """The errors of a shader, each with its line of text and a mark under the place."""
    lines = code.split("\n")
    parts = []
    for m in messages:
        if m.type != "error":
            continue
        text = lines[m.line_num - 1] if 0 < m.line_num <= len(lines) else ""
        mark = " " * (m.line_pos - 1) + "^" if m.line_pos else ""
        parts.append(f"line {m.line_num}: {m.message}\n    {text}\n    {mark}".rstrip())
    return "\n".join(parts)
