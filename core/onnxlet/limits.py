"""What a model may ask for. Models come from strangers: a limit turns a hang or an exhausted machine into an error."""

from __future__ import annotations

import math
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from .errors import LimitError


def host_memory() -> int:
    """Bytes that a single tensor may have by default: the machine's memory; 2 GiB in a browser, whose WebAssembly has
    4 GiB in all."""
    if sys.platform == "emscripten":
        return 1 << 31
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):  # Windows
        return 1 << 36


HOST_MEMORY = host_memory()


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of a session's runs, beyond which a `LimitError` is raised.

    `loop_iterations` of one Loop or Scan; `tensor_bytes` of one tensor that a node makes; `string_length` in
    characters of one string that a node makes.
    """

    loop_iterations: int = 10_000_000
    tensor_bytes: int = HOST_MEMORY
    string_length: int = 1 << 24

    def check_tensor(self, shape: Sequence[int], dtype: np.dtype, what: str) -> None:
        """Raise `LimitError` if a tensor of this shape and type, called `what` in the message, is too large."""
        nbytes = math.prod(shape) * dtype.itemsize
        if nbytes > self.tensor_bytes:
            raise LimitError(
                f"{what} of shape {list(shape)} would take {nbytes:,} bytes; the limit is {self.tensor_bytes:,} "
                "(SessionOptions.limits)"
            )


DEFAULT = Limits()
