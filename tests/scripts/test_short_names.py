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


def test_functions_of_other_modules_give_short_names_to_parameters() -> None:
    source = "def f(left, *rest, axis, **more): return left\nclass A:\n def __init__(self, left): pass\n"
    expected = "def f(a, *b, axis, **c): return a\nclass A:\n def __init__(self, left): pass\n"
    assert short_names.shorten(source, set(), public=False) == expected


@pytest.mark.parametrize("public", [True, False])
def test_functions_called_with_any_names_keep_parameters(public: bool) -> None:
    source = "def _f(left): return left\n"
    assert short_names.shorten(source, set(), {"_f"}, public) == source


def test_named_are_keywords_of_calls_and_strings_that_could_be() -> None:
    sources = ["f(x=1)", "d = {'y': z}\nf(**d)", "names = 'u v'.split()", "raise ValueError('no key')"]
    assert short_names.named(sources) == {"x", "y", "u", "v"}


def test_called_with_any_names() -> None:
    assert short_names.called_with_any(["f(**x)\na.g(1, **y)\nh(2)", "partial(k, **z)"]) == {"f", "g", "partial", "k"}


def test_a_module_that_shows_a_name_stays() -> None:
    source = "def f():\n name = 1\n return f'{name=}'\n"
    assert short_names.shorten(source, set()) == source
