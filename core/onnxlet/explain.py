"""What ran where, and why: the table behind `InferenceSession.explain()`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from .execution.plan import Row, Stage

if TYPE_CHECKING:
    from .execution.choosing import Choice

COLUMNS = ("node", "operator", "provider", "outputs", "reason")


class Explanation:
    """A table with a row per node: its operator, the provider it runs on, and why not on a preferred one.

    Prints as text, shows as HTML in notebooks; `rows` holds the data, `counts` the number of nodes per provider,
    `calls` the number of compiled segments, `absent` the providers that could not be used at all, with the reason,
    `copies` how many values a run brings to a device or back and `copied_bytes` how large they are together, `choice`
    what `providers=["auto"]` chose and why, as soon as it has.
    """

    def __init__(
        self,
        rows: Sequence[Row],
        absent: Mapping[str, str],
        calls: int = 0,
        copies: Sequence[int] = (),
        choice: Choice | None = None,
    ):
        self.rows = list(rows)
        self.absent = dict(absent)
        self.calls = calls
        self.copies = len(copies)
        self.copied_bytes = sum(copies)
        self.choice = choice
        self.counts = dict(Counter(row.provider for row in self.rows))

    def to_dict(self) -> dict[str, object]:
        """The same as plain data, ready for JSON."""
        return {
            "counts": self.counts,
            "calls": self.calls,
            "copies": self.copies,
            "copied_bytes": self.copied_bytes,
            "absent": self.absent,
            "choice": None if self.choice is None else asdict(self.choice),
            "nodes": [asdict(row) for row in self.rows],
        }

    def __str__(self) -> str:
        lines = [", ".join(f"{n} nodes on {p}" for p, n in self.counts.items()) or "no nodes"]
        lines += self._notes()
        table = [COLUMNS, *(tuple(str(getattr(row, c)) for c in COLUMNS) for row in self.rows)]
        widths = [min(40, max(len(r[i]) for r in table)) for i in range(len(COLUMNS))]
        lines += ["  ".join(cell.ljust(w) for cell, w in zip(r, widths, strict=True)).rstrip() for r in table]
        return "\n".join(lines)

    def _notes(self) -> list[str]:
        notes = [f"{name} is not used: {reason}" for name, reason in self.absent.items()]
        if self.copies:
            notes.insert(0, f"a run makes {self.copies} copies to a device or back, of {self.copied_bytes:,} bytes")
        choice = self.choice
        return notes if choice is None else [f"{choice.provider} was chosen: {choice.reason}", *notes]

    def _repr_html_(self) -> str:
        from html import escape  # here: few sessions are explained in notebooks

        head = "".join(f"<th>{c}</th>" for c in COLUMNS)
        body = "".join(
            "<tr>" + "".join(f"<td>{escape(str(getattr(row, c)))}</td>" for c in COLUMNS) + "</tr>" for row in self.rows
        )
        notes = "".join(f"<p>{escape(note)}</p>" for note in self._notes())
        return f"{notes}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def stage_rows(stage: Stage) -> Iterator[Row]:
    """The rows of a stage, of the stages planned after it, and of the bodies of its nodes."""
    yield from stage.rows
    for body in stage.bodies:
        if body.latest is not None:
            yield from stage_rows(body.latest)
    for following in list(stage.following.values())[-1:]:
        yield from stage_rows(following)


def count_calls(stage: Stage) -> int:
    """Number of calls into providers that one run of this stage and those after it makes, bodies not counted."""
    calls = sum(hasattr(instruction, "executable") for instruction in stage.instructions)
    return calls + sum(count_calls(following) for following in list(stage.following.values())[-1:])


def copies_of(stage: Stage) -> list[int]:
    """Bytes of each value that a run of this stage and those after it copies to a device or back, without bodies."""
    return stage.copies + [n for following in list(stage.following.values())[-1:] for n in copies_of(following)]
