"""Plain text for terminals: tables, amounts with units, and a line that shows progress."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence

PREFIXES = ("", "k", "M", "G", "T", "P")
WIDEST = 48
"""Characters of a cell; longer ones end in an ellipsis."""


def amount(value: float, unit: str) -> str:
    """A number with three digits, a decimal prefix and its unit: ``amount(2.5e6, "B")`` is ``2.50 MB``."""
    for prefix in PREFIXES:
        if abs(value) < 1000 or prefix == PREFIXES[-1]:
            digits = f"{value:.0f}" if prefix == "" and value == int(value) else f"{value:.3g}"
            return f"{digits} {prefix}{unit}".rstrip()
        value /= 1000
    raise AssertionError


def table(head: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[int] = ()) -> list[str]:
    """Lines of a table with columns as wide as they need; columns with an index in `right` are flush right."""
    cells = [tuple(_short(str(cell)) for cell in row) for row in (head, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(head))]
    return [
        "  ".join(c.rjust(w) if i in right else c.ljust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True)))
        .rstrip()
        for row in cells
    ]  # fmt: skip


def _short(cell: str) -> str:
    return cell if len(cell) <= WIDEST else cell[: WIDEST - 1] + "…"


def progress(what: str, done: int, total: int | None) -> None:
    """Show how far something is, in place, on a terminal; nothing where the error stream is a file."""
    if not sys.stderr.isatty():
        return
    if total:
        share = min(1.0, done / total)
        bar = "█" * round(share * 24)
        text = f"{what}  {bar:░<24}  {share:4.0%}"
    else:
        text = f"{what}  {amount(done, 'B')}" if done else what
    sys.stderr.write(f"\r\x1b[K{text[:110]}" + ("\r\x1b[K" if total and done >= total else ""))
    sys.stderr.flush()
