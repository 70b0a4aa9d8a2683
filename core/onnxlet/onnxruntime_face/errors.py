"""Onnxruntime's exceptions, and onnxlet's errors as members of both families.

A session of this face raises an error that `except onnxlet.FeedError` catches, and so does `except InvalidArgument`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from .. import errors

STATE = "onnxruntime.capi.onnxruntime_pybind11_state"

CODES = {
    "Fail": (1, "FAIL"),
    "InvalidArgument": (2, "INVALID_ARGUMENT"),
    "NoSuchFile": (3, "NO_SUCHFILE"),
    "NoModel": (4, "NO_MODEL"),
    "EngineError": (5, "ENGINE_ERROR"),
    "RuntimeException": (6, "RUNTIME_EXCEPTION"),
    "InvalidProtobuf": (7, "INVALID_PROTOBUF"),
    "ModelLoaded": (8, "MODEL_LOADED"),
    "NotImplemented": (9, "NOT_IMPLEMENTED"),
    "InvalidGraph": (10, "INVALID_GRAPH"),
    "EPFail": (11, "EP_FAIL"),
    "ModelLoadCanceled": (12, "MODEL_LOAD_CANCELED"),
    "ModelRequiresCompilation": (13, "MODEL_REQUIRES_COMPILATION"),
    "NotFound": (14, "NOT_FOUND"),
    "DeviceReset": (15, "DEVICE_RESET"),
}
"""The number and the name of each in messages."""

CLASSES: dict[str, type[Exception]] = {name: type(name, (Exception,), {"__module__": STATE}) for name in CODES}

KINDS: tuple[tuple[type[BaseException], str], ...] = (
    (errors.MissingOperatorsError, "NotImplemented InvalidGraph Fail"),
    (errors.UnsupportedError, "NotImplemented Fail"),
    (errors.FeedError, "InvalidArgument"),
    (errors.ExternalDataError, "Fail RuntimeException"),
    (errors.ModelError, "InvalidGraph InvalidArgument Fail"),
    (errors.DeviceLostError, "EPFail DeviceReset"),
    (errors.ProviderError, "EPFail"),
    (errors.TerminatedError, "Fail"),
    (errors.NodeError, "RuntimeException InvalidArgument Fail"),
    (errors.ShapeError, "RuntimeException InvalidArgument Fail"),
    (errors.OnnxletError, "Fail"),
    (FileNotFoundError, "NoSuchFile"),
    (OSError, "Fail"),
)
"""What onnxruntime raises where onnxlet raises one of these; where it depends, all that it may raise."""

UNREADABLE = "InvalidProtobuf InvalidArgument"


@contextmanager
def raising() -> Iterator[None]:
    """Make members of both families of the errors raised inside."""
    try:
        yield
    except (errors.OnnxletError, OSError) as error:
        both = member(error)
        if both is error:
            raise
        raise both from error.__cause__


def member(error: BaseException) -> BaseException:
    """The error as a member of both families: itself, where Python lets its class change."""
    ours = type(error)
    if hasattr(ours, "_ours"):
        return error
    unreadable = isinstance(error, errors.ModelError) and "not an ONNX model" in str(error)
    names = UNREADABLE if unreadable else next(names for kind, names in KINDS if issubclass(ours, kind))
    code, word = CODES[names.split()[0]]
    message = f"[ONNXRuntimeError] : {code} : {word} : {error}"
    both = _class(ours, names)
    if isinstance(error, OSError):
        return both(message)
    error.__class__ = both  # type: ignore[assignment]
    error.args = (message,)
    return error


@functools.cache
def _class(ours: type[BaseException], names: str) -> type[BaseException]:
    bases = [CLASSES[name] for name in names.split()]
    return type(bases[0].__name__, (*bases, ours), {"__module__": STATE, "_ours": (ours, names), "__reduce__": _reduce})


def _reduce(error: Any) -> tuple[Any, ...]:
    return _again, (*error._ours, error.args, vars(error))


def _again(ours: type[BaseException], names: str, args: tuple[Any, ...], state: dict[str, Any]) -> BaseException:
    """An error that was pickled."""
    both = _class(ours, names)
    error = both.__new__(both, *args)
    error.args = args
    vars(error).update(state)
    return error
