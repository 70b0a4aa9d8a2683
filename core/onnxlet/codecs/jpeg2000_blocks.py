"""Code blocks of JPEG 2000: bit planes of coefficients, coded arithmetically (ITU-T T.800, annexes C and D)."""

from __future__ import annotations

import numpy as np

# Table C.2: the probability estimate of each state, and the states after the likelier and the less likely symbol.
_ESTIMATES = [
    (0x5601, 1, 1), (0x3401, 2, 6), (0x1801, 3, 9), (0x0AC1, 4, 12), (0x0521, 5, 29), (0x0221, 38, 33),
    (0x5601, 7, 6), (0x5401, 8, 14), (0x4801, 9, 14), (0x3801, 10, 14), (0x3001, 11, 17), (0x2401, 12, 18),
    (0x1C01, 13, 20), (0x1601, 29, 21), (0x5601, 15, 14), (0x5401, 16, 14), (0x5101, 17, 15), (0x4801, 18, 16),
    (0x3801, 19, 17), (0x3401, 20, 18), (0x3001, 21, 19), (0x2801, 22, 19), (0x2401, 23, 20), (0x2201, 24, 21),
    (0x1C01, 25, 22), (0x1801, 26, 23), (0x1601, 27, 24), (0x1401, 28, 25), (0x1201, 29, 26), (0x1101, 30, 27),
    (0x0AC1, 31, 28), (0x09C1, 32, 29), (0x08A1, 33, 30), (0x0521, 34, 31), (0x0441, 35, 32), (0x02A1, 36, 33),
    (0x0221, 37, 34), (0x0141, 38, 35), (0x0111, 39, 36), (0x0085, 40, 37), (0x0049, 41, 38), (0x0025, 42, 39),
    (0x0015, 43, 40), (0x0009, 44, 41), (0x0005, 45, 42), (0x0001, 45, 43), (0x5601, 46, 46),
]  # fmt: skip
_SWITCHING = (0, 6, 14)
"""States in which the less likely symbol becomes the likelier one when it occurs."""

# Twice the state plus the likelier symbol, so that one lookup gives all: estimate, next after each, symbol.
STATES = [
    (estimate, 2 * likely + symbol, 2 * unlikely + (symbol ^ (state in _SWITCHING)), symbol)
    for state, (estimate, likely, unlikely) in enumerate(_ESTIMATES)
    for symbol in (0, 1)
]

SIGN, REFINEMENT, RUN, UNIFORM = 9, 14, 17, 18
"""Contexts of the same kind begin here; from 0 on are those of significance."""
INITIAL = [2 * 4] + [0] * 16 + [2 * 3, 2 * 46]

BYPASS, RESET, TERMINATE, CAUSAL, SYMBOLS = 1, 2, 4, 8, 32
"""Styles of code blocks, table A.19."""

FIRST_BYPASSED = 10
"""The pass from which on BYPASS leaves out arithmetic coding of all but clean-up passes."""


def _significance(orientation: str, h: int, v: int, d: int) -> int:
    """The context of a coefficient by its significant neighbours beside, above or below, and diagonal: table D.1."""
    if orientation == "HH":
        if d >= 3:
            return 8
        return {2: (6, 7, 7), 1: (3, 4, 5), 0: (0, 1, 2)}[d][min(h + v, 2)]
    if orientation == "HL":
        h, v = v, h
    if h == 2:
        return 8
    if h == 1:
        return 7 if v else 6 if d else 5
    return 2 + v if v else min(d, 2)


NEIGHBOURS = {
    orientation: [_significance(orientation, i % 3, i // 3 % 3, i // 9) for i in range(45)]
    for orientation in ("LL", "HL", "LH", "HH")
}
"""Contexts by (neighbours beside) + 3 (above and below) + 9 (diagonal)."""


def _sign(h: int, v: int) -> tuple[int, int]:
    """The context of a sign by the signs of the neighbours, and whether it predicts a minus: tables D.2 and D.3."""
    h, v = max(-1, min(1, h)), max(-1, min(1, v))
    minus = h < 0 or (h == 0 and v < 0)
    if minus:
        h, v = -h, -v
    return SIGN + (3 + v if h else v), int(minus)


SIGNS = [_sign(i // 5 - 2, i % 5 - 2) for i in range(25)]
"""By 5 (sum of signs beside, from -2) + (sum above and below, from -2)."""


class Arithmetic:
    """The MQ decoder of annex C over one segment of bytes; beyond its end it reads ones."""

    def __init__(self, data: bytes):
        self.data = data + b"\xff\xff"
        self.at = 0
        self.code = self.data[0] << 16
        self.left = 0
        self.interval = 0x8000
        self._byte()
        self.code <<= 7
        self.left -= 7

    def _byte(self) -> None:
        if self.data[self.at] == 0xFF:
            following = self.data[self.at + 1] if self.at + 1 < len(self.data) else 0xFF
            if following > 0x8F:
                self.code += 0xFF00
                self.left = 8
            else:
                self.at += 1
                self.code += following << 9
                self.left = 7
        else:
            self.at += 1
            self.code += self.data[self.at] << 8
            self.left = 8

    def bit(self, contexts: list[int], context: int) -> int:
        """The next decision in a context, whose state is updated."""
        estimate, likely, unlikely, symbol = STATES[contexts[context]]
        interval = self.interval - estimate
        if self.code >> 16 < estimate:
            is_likely = interval < estimate
            interval = estimate
        else:
            self.code -= estimate << 16
            if interval & 0x8000:
                self.interval = interval
                return symbol
            is_likely = interval >= estimate
        contexts[context] = likely if is_likely else unlikely
        while True:
            if not self.left:
                self._byte()
            interval <<= 1
            self.code = self.code << 1 & 0xFFFFFFFF
            self.left -= 1
            if interval & 0x8000:
                break
        self.interval = interval
        return symbol if is_likely else 1 - symbol


class Raw:
    """Bits as they are, with a bit stuffed after each byte of ones."""

    def __init__(self, data: bytes):
        self.data = data
        self.at = 0
        self.byte = 0
        self.left = 0

    def bit(self, contexts: list[int], context: int) -> int:
        """The next bit; without a context, but in the form of `Arithmetic`."""
        if not self.left:
            self.left = 7 if self.byte == 0xFF else 8
            self.byte = self.data[self.at] if self.at < len(self.data) else 0xFF
            self.at += 1
        self.left -= 1
        return self.byte >> self.left & 1


class Block:
    """The coefficients of a code block while its passes are decoded.

    Lists are flat, with a border of one all around. `beside[i]` counts the significant neighbours of i as `NEIGHBOURS`
    wants them, `signs[i]` adds their signs as `SIGNS` does: both change when a coefficient becomes significant, which
    is rare, and not when they are asked for.
    """

    def __init__(self, width: int, height: int, orientation: str, style: int):
        self.width, self.height, self.style = width, height, style
        self.stride = width + 2
        size = self.stride * (height + 2)
        self.table = NEIGHBOURS[orientation]
        self.beside = [0] * size
        self.signs = [12] * size
        self.magnitude = [0] * size
        self.negative = [0] * size
        self.refined = [0] * size
        self.coded = [-1] * size
        """The bit plane in which a pass before the clean-up has coded a coefficient."""
        self.contexts = list(INITIAL)

    def decode(self, segments: list[tuple[bytes, int]], planes: int) -> tuple[np.ndarray, np.ndarray]:
        """Decode segments of (bytes, number of passes), the first pass being in the highest of `planes` bit planes.

        Returns the coefficients, with their sign, and for each the number of its lowest bits that were not decoded.
        """
        number, plane = 0, planes - 1
        for data, passes in segments:
            raw = self.style & BYPASS and number >= FIRST_BYPASSED and number % 3
            coder = Raw(data) if raw else Arithmetic(data)
            for _ in range(passes):
                if plane < 0:
                    raise ValueError("a damaged JPEG 2000 image (too many passes)")
                kind = number % 3
                if kind == 1:
                    self._propagate(coder, plane)
                elif kind == 2:
                    self._refine(coder, plane)
                else:
                    self._clean_up(coder, plane)
                    plane -= 1
                if self.style & RESET:
                    self.contexts = list(INITIAL)
                number += 1
        lowest = np.full(len(self.magnitude), plane + 1)
        if number % 3 != 1 and plane >= 0:  # the last plane has not seen all of its passes
            refined = np.array(self.coded) == plane
            lowest[refined] = plane
        values = np.where(self.negative, -1, 1) * np.array(self.magnitude, np.int64)
        shape = (self.height + 2, self.stride)
        return values.reshape(shape)[1:-1, 1:-1], lowest.reshape(shape)[1:-1, 1:-1]

    def _columns(self):
        """The indices of each column of each stripe of four rows, in the order of the scan."""
        for top in range(0, self.height, 4):
            rows = min(4, self.height - top)
            begin = (top + 1) * self.stride + 1
            for x in range(self.width):
                yield range(begin + x, begin + x + rows * self.stride, self.stride)

    def _becomes_significant(self, coder: Arithmetic | Raw, i: int, plane: int, first_row: bool) -> None:
        context, predicted = SIGNS[self.signs[i]]
        minus = coder.bit(self.contexts, context)
        if isinstance(coder, Arithmetic):
            minus ^= predicted
        self.magnitude[i] = 1 << plane
        self.negative[i] = minus
        sign, stride, beside = 1 - 2 * minus, self.stride, self.beside
        beside[i - 1] += 1
        beside[i + 1] += 1
        self.signs[i - 1] += 5 * sign
        self.signs[i + 1] += 5 * sign
        beside[i + stride] += 3
        beside[i + stride - 1] += 9
        beside[i + stride + 1] += 9
        self.signs[i + stride] += sign
        if not (first_row and self.style & CAUSAL):  # a stripe then sees nothing of the next
            beside[i - stride] += 3
            beside[i - stride - 1] += 9
            beside[i - stride + 1] += 9
            self.signs[i - stride] += sign

    def _propagate(self, coder: Arithmetic | Raw, plane: int) -> None:
        """D.3.1: coefficients beside significant ones."""
        for column in self._columns():
            for i in column:
                if self.beside[i] and not self.magnitude[i]:
                    self.coded[i] = plane
                    if coder.bit(self.contexts, self.table[self.beside[i]]):
                        self._becomes_significant(coder, i, plane, i == column[0])

    def _refine(self, coder: Arithmetic | Raw, plane: int) -> None:
        """D.3.3: one more bit of those that were significant before this plane."""
        for column in self._columns():
            for i in column:
                if self.magnitude[i] and self.coded[i] != plane:
                    context = REFINEMENT + (2 if self.refined[i] else self.beside[i] > 0)
                    self.magnitude[i] |= coder.bit(self.contexts, context) << plane
                    self.refined[i] = 1
                    self.coded[i] = plane

    def _clean_up(self, coder: Arithmetic | Raw, plane: int) -> None:
        """D.3.4: all others, whole columns at once where nothing near is significant."""
        contexts = self.contexts
        for column in self._columns():
            start = 0
            if len(column) == 4 and not any(self.beside[i] or self.magnitude[i] for i in column):
                if not coder.bit(contexts, RUN):
                    continue
                start = coder.bit(contexts, UNIFORM) << 1
                start |= coder.bit(contexts, UNIFORM)
                self._becomes_significant(coder, column[start], plane, start == 0)
                start += 1
            for row in range(start, len(column)):
                i = column[row]
                if not self.magnitude[i] and self.coded[i] != plane and coder.bit(contexts, self.table[self.beside[i]]):
                    self._becomes_significant(coder, i, plane, row == 0)
        if self.style & SYMBOLS:
            for _ in range(4):
                coder.bit(contexts, UNIFORM)
