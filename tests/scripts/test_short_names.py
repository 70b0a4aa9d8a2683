"""Short names are those that no one outside a function sees, and the module does the same."""

from __future__ import annotations

import pytest
import short_names


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(x, y):\n total = x\n return total + y\n", "def f(x, y):\n a = x\n return a + y\n"),
        ("def _f(left, right): return left - right\n", "def _f(a, b): return a - b\n"),
        ("def _f(left, axis): return left\n", "def _f(a, axis): return a\n"),  # a call names it
        ("def f(*, alpha): return alpha\n", "def f(*, alpha): return alpha\n"),
        ("def f(*values, **more): return values\n", "def f(*values, **more): return values\n"),  # in its signature
        ("def _f(*values, **more): return values\n", "def _f(*a, **b): return a\n"),
        ("def f():\n count = a\n return count\n", "def f():\n b = a\n return b\n"),  # `a` is a global
        ("def f():\n global count\n count = 1\n", "def f():\n global count\n count = 1\n"),
        ("def f():\n import os\n return os\n", "def f():\n import os\n return os\n"),
        ("shape = 1\ndef f(x=shape):\n shape = x\n", "shape = 1\ndef f(x=shape):\n a = x\n"),
        ("def f(x):\n return [item.x for item in x]\n", "def f(x):\n return [a.x for a in x]\n"),
        (
            "def f():\n count = 1\n def g(): return count\n return g\n",
            "def f():\n a = 1\n def g(): return a\n return g\n",
        ),
        (
            "def f():\n count = 1\n def g():\n  nonlocal count\n  count = 2\n",
            "def f():\n count = 1\n def g():\n  nonlocal count\n  count = 2\n",
        ),
        ("def f():\n size = 1\n return g(size=size)\n", "def f():\n a = 1\n return g(size=a)\n"),
        # A global where one of two nested functions looks, a variable where the other does: both keep it.
        (
            "def f():\n def g(): return size\n def h():\n  size = 1\n return g\n",
            "def f():\n def g(): return size\n def h():\n  size = 1\n return g\n",
        ),
        ("def f(x):\n class A:\n  size = x\n", "def f(x):\n class A:\n  size = x\n"),
        ("class A:\n def f(self, x):\n  item = x\n", "class A:\n def f(self, x):\n  a = x\n"),
        ("def f():\n é = 'é'; name = é\n return name\n", "def f():\n a = 'é'; b = a\n return b\n"),
        ("def f(x):\n name = x\n return f'{x}{name!r}'\n", "def f(x):\n a = x\n return f'{x}{a!r}'\n"),
        ("f = lambda x, y: y\n", "f = lambda a, b: b\n"),
        ("f = lambda x: lambda z: x\n", "f = lambda x: lambda z: x\n"),
    ],
)
def test_names(source: str, expected: str) -> None:
    assert short_names.shorten(source, {"axis"}) == expected


def test_named_are_keywords_of_calls_and_words_of_strings() -> None:
    assert short_names.named(["f(x=1)", "d = {'y': z}\nf(**d)"]) == {"x", "y"}


def test_a_module_that_shows_a_name_stays() -> None:
    source = "def f():\n name = 1\n return f'{name=}'\n"
    assert short_names.shorten(source, set()) == source
