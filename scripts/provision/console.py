"""What the set-up says on the terminal, and how it fails."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path


class SetupError(Exception):
    """Something that the set-up can't do; the message says what and the remedy."""


def say(text: str) -> None:
    print(text, flush=True)


def megabytes(size: int) -> str:
    """A size in bytes for people: `2.9 MB`, `84 kB`."""
    return f"{size / 1e6:.1f} MB" if size >= 1e6 else f"{max(1, round(size / 1e3))} kB"


@contextmanager
def step(title: str) -> Iterator[None]:
    """Print `title` when a step begins and the seconds it took when it ends; on a terminal, count them meanwhile."""
    start = time.monotonic()
    finished = threading.Event()

    def count() -> None:
        while not finished.wait(1):
            print(f"\r  {title} … {time.monotonic() - start:.0f} s", end="", flush=True)

    terminal = sys.stdout.isatty()
    if terminal:
        print(f"  {title} …", end="", flush=True)
        threading.Thread(target=count, daemon=True).start()
    else:
        say(f"  {title} …")
    try:
        yield
    except BaseException:
        finished.set()
        if terminal:
            say("")
        raise
    finished.set()
    took = f"{time.monotonic() - start:.1f} s"
    say(f"\r  {title} … {took}" if terminal else f"    done in {took}")


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    remedy: str = "",
    timeout: float | None = None,
) -> str:
    """Run a command quietly and return its output; show the end of the output only where it fails.

    Raises `SetupError`, with `remedy` appended, when the command is missing, fails, or takes longer than `timeout`
    seconds.
    """
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            cwd=cwd,
            env={**os.environ, **(env or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=timeout,
        )
    except FileNotFoundError:
        raise SetupError(f"{words[0]} is not there. {remedy}".strip()) from None
    except subprocess.TimeoutExpired:
        raise SetupError(f"{' '.join(words)}\ntook longer than {timeout:.0f} s. {remedy}".strip()) from None
    if done.returncode:
        end = "\n".join("    " + line for line in done.stdout.strip().splitlines()[-25:])
        raise SetupError(f"{' '.join(words)}\nended with status {done.returncode}:\n{end}\n{remedy}".strip())
    return done.stdout


def guarded(main: Callable[[], int]) -> int:
    """Run `main`; a `SetupError` becomes a readable message and the status 1, Ctrl-C the status 130."""
    try:
        return main()
    except SetupError as error:
        say("")
        print(f"Stopped: {error}", file=sys.stderr, flush=True)
        return 1
    except KeyboardInterrupt:
        say("")
        return 130
