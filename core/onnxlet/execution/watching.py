"""What goes on around a run's instructions where somebody looks: it ends when asked to, and is timed node by node."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter_ns
from typing import TYPE_CHECKING, Any

from ..errors import TerminatedError
from ..options import RunOptions
from .plan import Compiled, Interpreted, Stage

if TYPE_CHECKING:
    from .executor import GraphExecutor, Run
    from .profiling import Profile


class Watch:
    """One for a session, which its executors share: `options` are those of the run under way."""

    __slots__ = ("options", "profile")

    def __init__(self) -> None:
        self.options: RunOptions | None = None
        self.profile: Profile | None = None

    @property
    def active(self) -> bool:
        return self.options is not None or self.profile is not None

    def over(self, run: Run, options: RunOptions | None) -> Run:
        """A run, watched."""
        self.options = options
        since = perf_counter_ns()
        try:
            results = yield from run
        finally:
            self.options = None
        if self.profile is not None:
            self.profile.note("SequentialExecutor::Execute", since)
            self.profile.note("model_run", since)
        return results

    def carry_out(
        self,
        executor: GraphExecutor,
        instruction: Compiled | Interpreted,
        values: dict[str, Any],
        stage: Stage,
        placed: bool,
    ) -> Run:
        """What `executor.carry_out` does, operation by operation where the provider can, so that it can be ended and
        timed between them."""
        self._check()
        rows: list[tuple[str, str, float]] = []
        stepped = getattr(getattr(instruction, "executable", None), "stepped", None)

        def after(*row: Any) -> None:
            rows.append(row)
            self._check()

        def step(given: Sequence[Any]) -> Any:
            assert stepped is not None
            return stepped(given, after)

        since = perf_counter_ns()
        yield from executor.carry_out(instruction, values, stage, placed, stepped and step)
        if self.profile is not None:
            self.profile.add(executor.graph, instruction, stage, values, since, rows)

    def _check(self) -> None:
        if self.options is not None and self.options.terminate:
            raise TerminatedError("the run was ended: RunOptions.terminate is set")
