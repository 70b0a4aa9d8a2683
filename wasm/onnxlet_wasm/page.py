"""What a web page's worker calls: sessions by number, tensors as JavaScript's typed arrays. Pyodide only.

Each function answers ``{"result": ...}`` or ``{"error": {"name", "message"}}`` as a JavaScript object, so that errors
arrive in the page with their own names and without a traceback.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from itertools import count
from typing import Any

import js  # type: ignore[import-not-found]
import numpy as np
from pyodide.ffi import JsProxy, to_js  # type: ignore[import-not-found]

from onnxlet import GraphOptimizationLevel, InferenceSession, SessionOptions
from onnxlet.errors import FeedError
from onnxlet.graph.ir import STRING

LEVELS = {
    "disabled": GraphOptimizationLevel.ORT_DISABLE_ALL,
    "basic": GraphOptimizationLevel.ORT_ENABLE_BASIC,
    "extended": GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    "layout": GraphOptimizationLevel.ORT_ENABLE_LAYOUT,
    "all": GraphOptimizationLevel.ORT_ENABLE_ALL,
}

BITS = {"float16": np.uint16, "bool": np.uint8}
"""Element types that JavaScript has no array for, and the type that carries them."""

_sessions: dict[int, InferenceSession] = {}
_numbers = count(1)


def _js(value: Any) -> Any:
    return to_js(value, dict_converter=js.Object.fromEntries)


def _answers(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn what an asynchronous function returns or raises into an answer."""

    @wraps(function)
    async def answer(*args: Any) -> Any:
        try:
            return _js({"result": await function(*args)})
        except Exception as error:
            return _js({"error": {"name": type(error).__name__, "message": str(error) or type(error).__name__}})

    return answer


@_answers
async def create(source: Any, options: JsProxy, files: Any, progress: Callable[..., None]) -> dict[str, Any]:
    """Make a session from an address or a `Uint8Array`; options are those of JavaScript's `InferenceSession.create`.
    `files` are those of external data, ``{path, data}`` each: addresses, buffers, `Blob`s or file handles."""
    chosen = options.to_py()
    level = chosen.get("graphOptimizationLevel", "all")
    if level not in LEVELS:
        raise ValueError(f"graphOptimizationLevel is one of {', '.join(LEVELS)}, not {level!r}")
    wanted = [p if isinstance(p, str) else (p.pop("name"), p) for p in chosen.get("executionProviders", ["cpu"])]
    session = await InferenceSession.create(
        source,
        SessionOptions(graph_optimization_level=LEVELS[level]),
        wanted,
        external_data={file.path: file.data for file in files} or None,
        progress=progress,
        cache=chosen.get("cache", True),
    )
    number = next(_numbers)
    _sessions[number] = session

    def describe(arguments: list[Any]) -> list[dict[str, Any]]:
        return [{"name": a.name, "type": a.type, "shape": a.shape} for a in arguments]

    return {
        "id": number,
        "inputs": describe(session.get_inputs()),
        "outputs": describe(session.get_outputs()),
        "providers": session.get_providers(),
    }


@_answers
async def run(number: int, feeds: Any, fetches: Any, _progress: Any) -> list[dict[str, Any]]:
    """Run a session; tensors come and go as ``{name, type, dims, data}``."""
    session = _session(number)
    names = list(fetches) or [output.name for output in session.get_outputs()]
    given = {feed.name: _array(feed.name, feed.type, feed.dims.to_py(), feed.data) for feed in feeds}
    outputs = await session.run_async(names, given)
    return [_output(name, value) for name, value in zip(names, outputs, strict=True)]


@_answers
async def explain(number: int, _progress: Any) -> str:
    return json.dumps(_session(number).explain().to_dict())


@_answers
async def release(number: int, _progress: Any) -> None:
    session = _sessions.pop(number, None)
    if session is not None:
        session.close()


def _session(number: int) -> InferenceSession:
    if number not in _sessions:
        raise FeedError("this session was released; create a new one")
    return _sessions[number]


def _array(name: str, type_: str, dims: list[int], data: Any) -> np.ndarray:
    if type_ == "string":
        return np.array(list(data), STRING).reshape(dims)
    array = np.asarray(data.to_py())
    wanted = np.dtype(type_)
    if array.dtype != BITS.get(type_, wanted) and array.dtype.itemsize != wanted.itemsize:
        raise FeedError(f"input {name!r} says {type_} but its data is {array.dtype}")
    return array.reshape(-1).view(wanted).reshape(dims)


def _output(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, np.ndarray):
        return {"name": name, "value": _plain(value)}
    if value.dtype == STRING:
        return {"name": name, "type": "string", "dims": list(value.shape), "data": [str(v) for v in value.ravel()]}
    flat = np.ascontiguousarray(value).reshape(-1)
    bits = BITS.get(value.dtype.name)
    data = to_js(flat if bits is None else flat.view(bits))
    return {"name": name, "type": value.dtype.name, "dims": list(value.shape), "data": data}


def _plain(value: Any) -> Any:
    """Sequences and maps as lists and dicts of plain values."""
    if isinstance(value, dict):
        return {str(key): _plain(v) for key, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(v) for v in value]
    return value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
