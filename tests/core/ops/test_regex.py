"""Regular expressions against Python's `re`, which agrees wherever both can say something."""

from __future__ import annotations

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onnxlet.errors import LimitError
from onnxlet.ops.regex import Regex

TEXTS = ["", "a", "aab", "ab\n", "foo bar", "x@y.com", "x@y.c", "ABC", "aaaaaa", "a-b", "\n", "ä1_"]

PATTERNS = [
    "a*b", "(a+)+b?", r"[^@]+@[^.]+\.\w{2,3}", "(?i)abc|d", r"\bfoo\b.*", "", "(a|b)*?c{2,}", "(?s:.)", ".",
    "(?:a{3}){2}", r"[\w-]+", r"\d+|\D", "a??b", "(?i)[b-y]", r"[^\s]", r"\Ba", r"\Aa|b\Z", "(?a:\\w)", "a{2}",
]  # fmt: skip


@pytest.mark.parametrize("pattern", PATTERNS)
def test_as_python(pattern: str):
    regex = Regex(pattern)
    for text in TEXTS:
        assert regex.fullmatch(text) == (re.fullmatch(pattern, text) is not None), text
        assert list(regex.spans(text)) == [match.span() for match in re.finditer(pattern, text)], text


ATOMS = st.sampled_from(["a", "b", "[ab]", "[^a]", ".", r"\w", "(?:ab)"])
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda pair: f"({pair[0]}|{pair[1]})"),
        st.tuples(ATOMS, st.sampled_from(["+", "*", "?", "+?", "*?", "??", "{2}", "{1,3}", "{2,}"])).map("".join),
    ),
    max_leaves=8,
)


@settings(max_examples=150, deadline=None)
@given(pattern=EXPRESSIONS, text=st.text("abc\n", max_size=8))
def test_any_expression_as_python(pattern: str, text: str):
    regex = Regex(pattern)
    assert regex.fullmatch(text) == (re.fullmatch(pattern, text) is not None)
    if not regex.fullmatch(""):  # Python looks again where it found an empty match
        assert list(regex.spans(text)) == [match.span() for match in re.finditer(pattern, text)]


def test_re2():
    """Where RE2 and Python differ: without (?m), `$` is the very end; `\\z` is known."""
    assert list(Regex("a$").spans("a\n")) == []
    assert list(Regex("(?m)a$").spans("a\nb")) == [(0, 1)]
    assert Regex(r"a\z").fullmatch("a")


def test_expressions_that_take_ages_elsewhere():
    """Exponential and cubic for a matcher that tracks back."""
    assert not Regex("(a+)+b").fullmatch("a" * 20_000)
    assert not Regex("(a|aa)*(a|b)*c").fullmatch("ab" * 10_000)
    assert not Regex("(x*)*(x*)*y").fullmatch("x" * 10_000)


@pytest.mark.parametrize("pattern", [r"(a)\1", "(?=a)", "(?!a)", "(?<=a)b", "(?>a)", "[z-a]", "(", "*", "(?P<"])
def test_refused(pattern: str):
    with pytest.raises(ValueError, match="the regular expression '"):
        Regex(pattern)


@pytest.mark.parametrize("pattern", ["(a{1000}){1000}", "a{60000}", "(((a{99}){99}){99}){99}"])
def test_too_long(pattern: str):
    with pytest.raises(LimitError, match="steps"):
        Regex(pattern)
