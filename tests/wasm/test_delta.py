"""Files as differences from others."""

from __future__ import annotations

import random

import pytest

from onnxlet_wasm import delta
from onnxlet_wasm.build import LIB

BASE = bytes(random.Random(1).randbytes(5000))


@pytest.mark.parametrize(
    "wanted",
    [
        b"",
        b"x",
        BASE,
        BASE[:100],
        BASE[3000:] + BASE[:3000],
        b"new" + BASE[:500] + b"?" * 300 + BASE[480:] + b"end",
        bytes(random.Random(2).randbytes(1000)),
        BASE[:64] * 20,
    ],
    ids=["empty", "one byte", "same", "shorter", "turned", "edited", "foreign", "repeated"],
)
@pytest.mark.parametrize("base", [BASE, b"", b"short"], ids=["base", "no base", "short base"])
def test_there_and_back(base: bytes, wanted: bytes) -> None:
    assert delta.apply(base, delta.encode(base, wanted)) == wanted


def test_two_builds_of_the_kernels_differ_little() -> None:
    relaxed, plain = ((LIB / name).read_bytes() for name in ("kernels.wasm", "kernels-plain.wasm"))
    difference = delta.encode(relaxed, plain)
    assert delta.apply(relaxed, difference) == plain
    assert len(difference) < len(plain) / 3


@pytest.mark.parametrize("cut", [1, 5])
def test_a_delta_that_is_cut_off_is_an_error(cut: int) -> None:
    with pytest.raises(ValueError, match="cut off"):
        delta.apply(BASE, delta.encode(BASE, BASE + b"and more")[:-cut])


def test_a_delta_of_another_base_is_an_error() -> None:
    with pytest.raises(ValueError, match="outside its base"):
        delta.apply(BASE[:100], delta.encode(BASE, BASE))
