"""Operators on strings."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..errors import LimitError
from ..graph.ir import STRING
from ..limits import DEFAULT, Limits
from .regex import compiled
from .registry import op


def _mapped(function: Any, x: np.ndarray, dtype: np.dtype = STRING):
    out = np.empty(x.shape, dtype)
    out.reshape(-1)[:] = [function(text) for text in x.reshape(-1)]
    return out


@op("StringConcat", since=20)
def string_concat(x: np.ndarray, y: np.ndarray, *, limits: Limits = DEFAULT):
    longest = max(map(len, x.reshape(-1)), default=0) + max(map(len, y.reshape(-1)), default=0)
    if longest > limits.string_length:
        raise LimitError(
            f"strings of {longest} characters would be made; the limit is {limits.string_length} (SessionOptions)"
        )
    return np.asarray(x + y, STRING)


@op("StringSplit", since=20)
def string_split(x: np.ndarray, *, delimiter: str = "", maxsplit: int | None = None):
    """The parts, padded with empty strings along a new last axis, and how many there are."""
    limit = -1 if maxsplit is None else maxsplit
    parts = [text.split(delimiter or None, limit) for text in x.reshape(-1)]
    longest = max(map(len, parts), default=0)
    out = np.full((len(parts), longest), "", STRING)
    for row, part in zip(out, parts, strict=True):
        row[: len(part)] = part
    counts = np.array([len(part) for part in parts], np.int64)
    return out.reshape(*x.shape, longest), counts.reshape(x.shape)


_CASES = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}


@op("StringNormalizer", since=10)
def string_normalizer(
    x: np.ndarray,
    *,
    case_change_action: str = "NONE",
    is_case_sensitive: int = 0,
    locale: str = "",
    stopwords: list[str] | None = None,
):
    """Leaves out the stop words, then changes the case; Unicode's own rules are used for every locale."""
    if x.ndim not in (1, 2) or (x.ndim == 2 and x.shape[0] != 1):
        raise ValueError(f"the input must have shape [C] or [1, C], but has {list(x.shape)}")
    if case_change_action not in _CASES:
        raise ValueError(f"case_change_action is {', '.join(_CASES)}, not {case_change_action!r}")
    same = str if is_case_sensitive else str.lower
    stopped = {same(word) for word in stopwords or ()}
    change = _CASES[case_change_action]
    kept = [change(word) for word in x.reshape(-1) if same(word) not in stopped]
    return np.array(kept or [""], STRING).reshape((1,) * (x.ndim - 1) + (-1,))


@op("RegexFullMatch", since=20)
def regex_full_match(x: np.ndarray, *, pattern: str = ""):
    """`pattern` is in RE2's syntax; where Python's differs (``\\C``, ``(?U)``), it is an error."""
    return _mapped(compiled(pattern).fullmatch, x, np.dtype(np.bool_))
