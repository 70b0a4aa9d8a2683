"""What a web page's worker calls: sessions by number, tensors as JavaScript's typed arrays. Pyodide only.

Each function answers ``{"result": ...}`` or ``{"error": {"name", "message"}}`` as a JavaScript object, so that errors
arrive in the page with their own names and without a traceback.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from functools import wraps
from itertools import count
from math import prod
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

import js  # type: ignore[import-not-found]
import numpy as np
from pyodide.ffi import JsProxy, to_js  # type: ignore[import-not-found]

from onnxlet import GraphOptimizationLevel, InferenceSession, OrtValue, SessionOptions
from onnxlet.download import gather_external
from onnxlet.errors import FeedError, SessionClosedError, UnsupportedError
from onnxlet.graph.ir import STRING, TensorType
from onnxlet.model.dtypes import bits_of, dtype_of, is_extended, spec_name

WARNING = 2
"""The severity of warnings among `logSeverityLevel`s."""
NAMES = {"float": "float32", "double": "float64"}
"""Names of element types in JavaScript, where they are not those of the specification."""

LEVELS = {
    "disabled": GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "layout": GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    "all": GraphOptimizationLevel.ORT_ENABLE_ALL,
}

BITS = {"float16": np.uint16, "bool": np.uint8}
"""Element types that JavaScript has no array for, and the type that carries them."""
PACKED = {"int4": 22, "uint4": 21}
"""Element types of which a byte carries two, and their numbers in ONNX."""

_sessions: dict[int, InferenceSession] = {}
_values: dict[int, OrtValue] = {}
"""What runs have left on the GPU."""
_numbers = count(1)
_local = False
"""Whether the callers are in this thread, and so can have buffers of the GPU."""


class _Living:
    """The provider option `same_device_as`: all sessions share a GPU device, and so the values there."""

    @property
    def _providers(self) -> list[Any]:
        return [provider for session in _sessions.values() for provider in session._providers]


def _js(value: Any) -> Any:
    return to_js(value, dict_converter=js.Object.fromEntries)


def _failed(error: Exception) -> Any:
    return _js({"error": {"name": type(error).__name__, "message": str(error) or type(error).__name__}})


def _answers(function: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    """Turn what awaiting a function's result gives, or raises, into an answer. Its arguments are read at once."""

    @wraps(function)
    def answer(*args: Any) -> Any:
        try:
            result = function(*args)
        except Exception as error:
            return _failed(error)
        return finished(result)

    async def finished(result: Awaitable[Any]) -> Any:
        try:
            return _js({"result": await result})
        except Exception as error:
            return _failed(error)

    return answer


@_answers
async def create(
    source: Any, settings: JsProxy, files: Any, address: str | None, progress: Callable[..., None]
) -> dict[str, Any]:
    """Make a session from the bytes of a model, which were read from an address, if there is one.

    `settings` are those of `settingsOf` in onnxlet.mjs. `files` are those of external data, ``{path, data}`` each:
    addresses, buffers, `Blob`s or file handles; others are fetched from beside the address.
    """
    global _local
    chosen = settings.to_py()
    _local = chosen["local"]
    options = SessionOptions(graph_optimization_level=LEVELS[chosen["level"]], intra_op_num_threads=chosen["threads"])
    for key, value in chosen["entries"].items():
        options.add_session_config_entry(key, value)
    for name, length in chosen["dimensions"].items():
        options.add_free_dimension_override_by_name(name, length)
    options.enable_profiling = chosen["profile"]
    wanted = [
        (name, {"same_device_as": _Living(), **given} if name == "webgpu" else given)
        for name, given in chosen["providers"]
    ]
    external: Any = {file.path: file.data for file in files}
    if address and address.startswith("http"):
        if external:
            external, _ = await gather_external(source, external, address, progress=progress, cache=chosen["cache"])
        else:
            external = js.URL.new(".", address).href
    with catch_warnings():
        if chosen["severity"] > WARNING:
            simplefilter("ignore")
        session = await InferenceSession.create(
            source,
            options,
            wanted,
            external_data=external or None,
            progress=progress,
            cache=chosen["cache"],
        )
    number = next(_numbers)
    _sessions[number] = session
    return {
        "id": number,
        "inputs": [_described(argument) for argument in session.get_inputs()],
        "outputs": [_described(argument) for argument in session.get_outputs()],
        "providers": session.get_providers(),
    }


def _described(argument: Any) -> dict[str, Any]:
    """What an input or output is, in the words of onnxruntime's JavaScript API."""
    if not argument.type.startswith("tensor("):
        return {"name": argument.name, "isTensor": False}
    type_ = argument.type[7:-1]
    shape = ["" if n is None else n for n in argument.shape]
    return {"name": argument.name, "isTensor": True, "type": NAMES.get(type_, type_), "shape": shape}


@_answers
def run(
    number: int, feeds: JsProxy, names: JsProxy, staying: JsProxy, _progress: Any
) -> Awaitable[list[dict[str, Any]]]:
    """Run a session. Tensors come and go as ``{name, type, dims, data}``; those on the GPU have a `handle`, or a
    `buffer`, instead of data. `staying` says for each of the outputs `names` whether it is left there."""
    session = _session(number)
    given = {feed["name"]: _fed(session, **feed) for feed in feeds.to_py()}
    return _run(session, given, names.to_py(), staying.to_py())


async def _run(
    session: InferenceSession, given: dict[str, Any], names: list[str], staying: list[bool]
) -> list[dict[str, Any]]:
    if not any(staying):
        outputs = await session.run_async(names, given)
    else:
        binding = session.io_binding()
        for name, value in given.items():
            binding.bind_ortvalue_input(name, value if isinstance(value, OrtValue) else OrtValue(value))
        for name, stays in zip(names, staying, strict=True):
            binding.bind_output(name, "webgpu" if stays else "cpu")
        await session.run_with_iobinding_async(binding)
        outputs = [v if _is_there(v) else v._value for v in binding.get_outputs()]
    return [{"name": name, **_given(session, name, value)} for name, value in zip(names, outputs, strict=True)]


def _is_there(value: OrtValue) -> bool:
    """Whether a value is on the GPU, or can be: strings and sequences can't."""
    return value.device_name() != "cpu" and value.is_tensor() and value._value.dtype != STRING


@_answers
async def read(handle: int, _progress: Any) -> Any:
    """The elements of a value on the GPU."""
    if handle not in _values:
        raise FeedError("this tensor was disposed of")
    return _elements("a tensor", await _values[handle].numpy_async())["data"]


@_answers
async def free(handle: int, _progress: Any) -> None:
    """Let go of a value on the GPU."""
    _values.pop(handle, None)


@_answers
async def explain(number: int, _progress: Any) -> str:
    return json.dumps(_session(number).explain().to_dict())


@_answers
async def profile(number: int, start: bool, _progress: Any) -> str:
    """Begin to time nodes, or stop that; then the answer is the trace, as JSON."""
    session = _session(number)
    if start:
        session.get_session_options().enable_profiling = True
        session._start_profile()
        return ""
    path = session.end_profiling()
    if not path:
        return "[]"
    text = Path(path).read_text()
    Path(path).unlink()
    return text


@_answers
async def release(number: int, _progress: Any) -> None:
    session = _sessions.pop(number, None)
    if session is not None:
        session.close()


def _session(number: int) -> InferenceSession:
    if number not in _sessions:
        raise SessionClosedError("this session was released; create a new one")
    return _sessions[number]


def _fed(
    session: InferenceSession,
    name: str,
    type: str = "",
    dims: Sequence[int] = (),
    data: Any = None,
    handle: int = 0,
    buffer: Any = None,
) -> Any:
    """What the page feeds, as an array or an `OrtValue`."""
    if handle:
        if handle not in _values:
            raise FeedError(f"input {name!r} is a tensor that was disposed of")
        return _values[handle]
    if buffer is None:
        return _array(name, type, dims, data)
    for provider in session._providers:
        if hasattr(provider, "adopt"):
            value = provider.adopt(buffer, TensorType(np.dtype(type), tuple(dims)))  # type: ignore[attr-defined]
            return OrtValue(value, value.device_type)
    raise FeedError(f"input {name!r} is in a GPU buffer, but the session has no 'webgpu' among its providers")


def _array(name: str, type_: str, dims: Sequence[int], data: Any) -> np.ndarray:
    if type_ == "string":
        return np.array(data, STRING).reshape(dims)
    array = np.asarray(data)
    if type_ in PACKED:
        halves = array.view(np.uint8)[:, None] >> np.array([0, 4], np.uint8) & 15
        return halves.reshape(-1)[: prod(dims)].view(dtype_of(PACKED[type_])).reshape(dims)
    wanted = np.dtype(type_)
    if array.dtype != BITS.get(type_, wanted) and array.dtype.itemsize != wanted.itemsize:
        raise FeedError(f"input {name!r} says {type_} but its data is {array.dtype}")
    return array.reshape(-1).view(wanted).reshape(dims)


def _given(session: InferenceSession, name: str, value: Any) -> dict[str, Any]:
    """An output, as the page gets it."""
    if isinstance(value, np.ndarray):
        return _elements(f"output {name!r}", value)
    if not isinstance(value, OrtValue):
        return {"value": _plain(value)}
    handle = next(_numbers)
    _values[handle] = value
    held = value.feed(session._providers)
    buffer = getattr(held, "js_buffer", None) if _local else None
    return {"type": _name(held.dtype), "dims": list(held.shape), "handle": handle, "buffer": buffer}


def _elements(what: str, value: np.ndarray) -> dict[str, Any]:
    type_, dims = _name(value.dtype), list(value.shape)
    if type_ == "string":
        return {"type": type_, "dims": dims, "data": [str(v) for v in value.ravel()]}
    flat = np.ascontiguousarray(value).reshape(-1)
    if type_ in PACKED:
        halves = np.append(bits_of(flat) & 15, np.uint8(0))
        flat = halves[:-1:2] | halves[1::2] << 4
    elif is_extended(flat.dtype) or flat.dtype.kind == "c":
        raise UnsupportedError(f"{what} is {type_}, for which JavaScript has no array")
    bits = BITS.get(type_)
    return {"type": type_, "dims": dims, "data": to_js(flat if bits is None else flat.view(bits))}


def _name(dtype: np.dtype) -> str:
    """The name of an element type in JavaScript."""
    spec = spec_name(dtype)
    return NAMES.get(spec, spec)


def _plain(value: Any) -> Any:
    """Sequences and maps as lists and dicts of plain values."""
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
