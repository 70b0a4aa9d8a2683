"""Regular expressions in time linear in the text, whatever the expression: no backtracking, as in RE2.

An expression becomes a program of small steps (R. Cox, "Regular Expression Matching: the Virtual Machine Approach",
2009): `split` tries two ways in order of preference, `test` takes a character. All ways are followed at once, as an
ordered list of program positions; such a list and a character lead to the next list, which is remembered, so that a
text is matched by looking up one entry per character. Python's own parser reads the expression; what needs
backtracking (back references, looking ahead and behind, possessive and atomic groups) is refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from re import _constants as codes  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

from ..errors import LimitError

MAX_STEPS = 20_000
"""Steps of the longest program: counted repetitions are written out."""

MAX_KEPT = 5_000
"""Lists of positions that are remembered per expression."""

_TEST, _SPLIT, _JUMP, _AT, _MATCH = range(5)

State = tuple[int, ...]

_WORD = re.compile(r"\w")


def _is_word(character: str) -> bool:
    return bool(character) and _WORD.match(character) is not None


# Where a position may be, from the characters before and after it ("" at an end).
_PLACES: dict[Any, Callable[[str, str], bool]] = {
    codes.AT_BEGINNING: lambda before, after: not before,
    codes.AT_BEGINNING_STRING: lambda before, after: not before,
    codes.AT_BEGINNING_LINE: lambda before, after: before in ("", "\n"),
    codes.AT_END: lambda before, after: not after,
    codes.AT_END_STRING: lambda before, after: not after,
    codes.AT_END_LINE: lambda before, after: after in ("", "\n"),
    codes.AT_BOUNDARY: lambda before, after: _is_word(before) != _is_word(after),
    codes.AT_NON_BOUNDARY: lambda before, after: _is_word(before) == _is_word(after),
}


class Regex:
    """A compiled expression. Raises `ValueError` where it is not valid or needs backtracking, and `LimitError` where
    its program is too long."""

    def __init__(self, pattern: str):
        try:
            parsed = parser.parse(pattern.replace(r"\z", r"\Z"))
        except (re.error, OverflowError, RecursionError) as error:
            raise ValueError(f"the regular expression {_shown(pattern)} is not valid: {error}") from None
        self.pattern = pattern
        self._program: list[tuple[int, Any, Any]] = []
        try:
            self._emit(parsed, parsed.state.flags)
        except RecursionError:
            raise LimitError(f"the regular expression {_shown(pattern)} nests too deep") from None
        self._add(_MATCH)
        self._places = any(step[0] == _AT for step in self._program)
        self._next: dict[tuple[State, str, bool], State] = {}

    def fullmatch(self, text: str) -> bool:
        """Whether the whole text is a match."""
        state = self._closed((0,), "", text[:1], whole=True)
        for i, character in enumerate(text):
            state = self._step(state, text, i, character, whole=True)
            if not state:
                return False
        return any(self._program[p][0] == _MATCH for p in state)

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Start and end of all matches, from left to right, that do not overlap; as Perl's rules choose them."""
        start = 0
        while start <= len(text):
            end = self._longest_preferred(text, start)
            if end is None:
                start += 1
                continue
            yield start, end
            start = end if end > start else start + 1

    def _longest_preferred(self, text: str, start: int) -> int | None:
        """The end of the match at `start` that comes first in order of preference, or `None`."""
        state = self._closed((0,), text[start - 1 : start], text[start : start + 1])
        end = None
        for i in range(start, len(text) + 1):
            if state and self._program[state[-1]][0] == _MATCH:
                end = i  # what stands behind a match in the list has been cut off
            if not state or i == len(text):
                break
            state = self._step(state, text, i, text[i])
        return end

    def _step(self, state: State, text: str, i: int, character: str, whole: bool = False) -> State:
        """The list of positions after the character at `i`."""
        if self._places:  # what follows decides where `$` and the like hold: not remembered
            return self._closed(self._moved(state, character), character, text[i + 1 : i + 2], whole)
        key = (state, character, whole)
        found = self._next.get(key)
        if found is None:
            if len(self._next) >= MAX_KEPT:
                self._next.clear()
            found = self._next[key] = self._closed(self._moved(state, character), character, "", whole)
        return found

    def _moved(self, state: State, character: str) -> list[int]:
        return [p + 1 for p in state if self._program[p][0] == _TEST and self._program[p][1](character)]

    def _closed(self, positions: Any, before: str, after: str, whole: bool = False) -> State:
        """Positions that wait for a character, or match, reached without one, in order of preference.

        Unless the `whole` text must match, nothing behind a match matters.
        """
        seen: set[int] = set()
        found: list[int] = []
        stack = list(reversed(positions))
        while stack:
            p = stack.pop()
            if p in seen:
                continue
            seen.add(p)
            kind, first, second = self._program[p]
            if kind == _SPLIT:
                stack += (second, first)
            elif kind == _JUMP:
                stack.append(first)
            elif kind == _AT:
                if first(before, after):
                    stack.append(p + 1)
            else:
                found.append(p)
                if kind == _MATCH and not whole:
                    break
        return tuple(found)

    # Compiling

    def _add(self, kind: int, first: Any = None, second: Any = None) -> int:
        if len(self._program) >= MAX_STEPS:
            raise LimitError(f"the regular expression {_shown(self.pattern)} takes more than {MAX_STEPS} steps")
        self._program.append((kind, first, second))
        return len(self._program) - 1

    def _emit(self, items: Any, flags: int) -> None:
        for code, value in items:
            if code in (codes.MAX_REPEAT, codes.MIN_REPEAT):
                self._repeat(*value, greedy=code == codes.MAX_REPEAT, flags=flags)
            elif code == codes.SUBPATTERN:
                _, added, removed, inner = value
                self._emit(inner, (flags | added) & ~removed)
            elif code == codes.BRANCH:
                self._branch(value[1], flags)
            elif code == codes.AT:
                if flags & re.MULTILINE:
                    value = {
                        codes.AT_BEGINNING: codes.AT_BEGINNING_LINE,
                        codes.AT_END: codes.AT_END_LINE,
                    }.get(value, value)
                self._add(_AT, _PLACES[value])
            elif code in (codes.LITERAL, codes.NOT_LITERAL, codes.ANY, codes.IN):
                self._add(_TEST, _test(code, value, flags))
            else:
                raise ValueError(f"the regular expression {_shown(self.pattern)} has {str(code).lower()}: not known")

    def _repeat(self, least: int, most: Any, inner: Any, *, greedy: bool, flags: int) -> None:
        for _ in range(least):
            before = len(self._program)
            self._emit(inner, flags)
            if len(self._program) == before:
                return  # nothing, however often
        if most is codes.MAXREPEAT:
            split = self._add(_SPLIT)
            self._emit(inner, flags)
            self._add(_JUMP, split)
            self._choose(split, len(self._program), greedy)
            return
        splits = []
        for _ in range(most - least):
            splits.append(self._add(_SPLIT))
            before = len(self._program)
            self._emit(inner, flags)
            if len(self._program) == before:
                break
        for split in splits:
            self._choose(split, len(self._program), greedy)

    def _choose(self, split: int, end: int, greedy: bool) -> None:
        self._program[split] = (_SPLIT, split + 1, end) if greedy else (_SPLIT, end, split + 1)

    def _branch(self, ways: Any, flags: int) -> None:
        ends = []
        for way in ways[:-1]:
            split = self._add(_SPLIT)
            self._emit(way, flags)
            ends.append(self._add(_JUMP))
            self._program[split] = (_SPLIT, split + 1, len(self._program))
        self._emit(ways[-1], flags)
        for end in ends:
            self._program[end] = (_JUMP, len(self._program), None)


_CATEGORIES = {
    codes.CATEGORY_DIGIT: r"\d",
    codes.CATEGORY_NOT_DIGIT: r"\D",
    codes.CATEGORY_SPACE: r"\s",
    codes.CATEGORY_NOT_SPACE: r"\S",
    codes.CATEGORY_WORD: r"\w",
    codes.CATEGORY_NOT_WORD: r"\W",
}


def _test(code: Any, value: Any, flags: int) -> Callable[[str], bool]:
    """Whether a character is one that the expression wants there. Python's `re` decides, for this one character."""
    if code == codes.ANY:
        text = "."
    elif code == codes.IN:
        text = f"[{''.join(_class_part(*part) for part in value)}]"
    else:
        text = f"[{'^' if code == codes.NOT_LITERAL else ''}\\U{value:08x}]"
    matches = re.compile(text, flags & (re.IGNORECASE | re.DOTALL | re.ASCII)).match
    return lambda character: matches(character) is not None


def _class_part(code: Any, value: Any) -> str:
    if code == codes.NEGATE:
        return "^"
    if code == codes.RANGE:
        return f"\\U{value[0]:08x}-\\U{value[1]:08x}"
    return _CATEGORIES[value] if code == codes.CATEGORY else f"\\U{value:08x}"


def _shown(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 60 else pattern[:60] + "...")


@lru_cache(maxsize=64)
def compiled(pattern: str) -> Regex:
    """The compiled expression, kept for the next call."""
    return Regex(pattern)
