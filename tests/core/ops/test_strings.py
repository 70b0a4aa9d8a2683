import numpy as np
import pytest

from tests.core.ops.calling import call, i64, same


def texts(*values):
    return np.array(values, object)


def test_concat():
    same(call("StringConcat", 20, texts("a", "b"), np.array("!", object)), texts("a!", "b!"))
    same(call("StringConcat", 20, np.array("a", object), np.array("b", object)), np.array("ab", object))


def test_split():
    parts, counts = call("StringSplit", 20, texts("a.b.c", "d", ""), delimiter=".", outputs=2)
    same(parts, np.array([["a", "b", "c"], ["d", "", ""], ["", "", ""]], object))
    same(counts, i64(3, 1, 1))
    parts, counts = call("StringSplit", 20, texts(" a  b c ", ""), maxsplit=1, outputs=2)
    same(parts, np.array([["a", "b c "], ["", ""]], object))
    same(counts, i64(2, 0))
    parts, counts = call("StringSplit", 20, np.empty((0, 2), object), outputs=2)
    assert parts.shape == (0, 2, 0)
    assert counts.shape == (0, 2)


def test_normalizer():
    x = texts("Monday", "tuesday", "MONDAY")
    same(call("StringNormalizer", 10, x, case_change_action="UPPER", stopwords=["monday"]), texts("TUESDAY"))
    got = call("StringNormalizer", 10, x, is_case_sensitive=1, case_change_action="LOWER", stopwords=["Monday"])
    same(got, texts("tuesday", "monday"))
    same(call("StringNormalizer", 10, x.reshape(1, 3), stopwords=["monday", "tuesday"]), texts([""]))
    same(call("StringNormalizer", 10, texts("É"), case_change_action="LOWER"), texts("é"))
    with pytest.raises(ValueError, match=r"\[C\] or \[1, C\]"):
        call("StringNormalizer", 10, np.empty((2, 2), object))


def test_full_match():
    x = texts("www.google.com", "www.google.com/", "account@mail.org")
    same(call("RegexFullMatch", 20, x, pattern=r"www\.[\w.-]+\.\bcom\b"), [True, False, False])
    same(call("RegexFullMatch", 20, x, pattern=r"(?i)ACCOUNT@.*\z"), [False, False, True])
