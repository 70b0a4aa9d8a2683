"""One file as the difference from another: the two builds of the kernels share most of their code.

A page downloads the wheel, and only few browsers need the second build; as a difference it takes a sixth of its size.
A delta is a sequence of unsigned LEB128 numbers, then literal bytes. The numbers: how many steps there are, and for
each step how many literal bytes to take, by how much the place in the base lies after the end of the last copy
(zigzag: even numbers are forward by half, odd ones backward by half), and how many bytes to copy from there.
"""

from __future__ import annotations

from collections.abc import Iterator

SHORTEST = 16
"""The length in bytes from which a copy is worth its step."""


def apply(base: bytes, delta: bytes) -> bytes:
    """The file that `delta` describes. Raises `ValueError` where it does not fit `base`."""
    numbers = _numbers(delta)
    steps = [(next(numbers)[0], next(numbers)[0], next(numbers)) for _ in range(next(numbers)[0])]
    literal = steps[-1][2][1] if steps else 1
    result, place = bytearray(), 0
    for taken, jump, (copied, _) in steps:
        result += delta[literal : literal + taken]
        literal += taken
        place += -(jump >> 1) - 1 if jump & 1 else jump >> 1
        if not 0 <= place <= place + copied <= len(base):
            raise ValueError("a delta that refers to bytes outside its base")
        result += base[place : place + copied]
        place += copied
    if literal != len(delta):
        raise ValueError("a delta that is cut off")
    return bytes(result)


def _numbers(data: bytes) -> Iterator[tuple[int, int]]:
    """The numbers at the start of `data`, each with the offset behind it."""
    number = shift = 0
    for offset, byte in enumerate(data):
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            yield number, offset + 1
            number = shift = 0


def encode(base: bytes, wanted: bytes) -> bytes:
    """A delta such that `apply(base, delta) == wanted`."""
    places: dict[bytes, int] = {}
    for offset in range(len(base) - SHORTEST + 1):
        places.setdefault(base[offset : offset + SHORTEST], offset)
    steps: list[int] = []
    literals = bytearray()
    position = expected = taken = 0
    while position < len(wanted):
        start = wanted[position : position + SHORTEST]
        near = expected + taken  # where the copy would go on if the literals replaced as many bytes
        place = near if len(start) == SHORTEST and base[near : near + SHORTEST] == start else places.get(start)
        if place is None:
            literals.append(wanted[position])
            position, taken = position + 1, taken + 1
            continue
        length = SHORTEST
        while base[place + length : place + length + 1] == wanted[position + length : position + length + 1] != b"":
            length += 1
        jump = place - expected
        steps += [taken, 2 * jump if jump >= 0 else -2 * jump - 1, length]
        position, expected, taken = position + length, place + length, 0
    if taken:
        steps += [taken, 0, 0]
    return b"".join(map(_leb128, [len(steps) // 3, *steps])) + bytes(literals)


def _leb128(number: int) -> bytes:
    result = bytearray()
    while number >= 0x80:
        result.append(number & 0x7F | 0x80)
        number >>= 7
    result.append(number)
    return bytes(result)
