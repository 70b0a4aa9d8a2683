"""Every error that onnxlet raises, each naming what was wrong and what would be right.

All derive from `OnnxletError`. Those that come from a wrong argument are `ValueError`s as well, so that code
written for other runtimes, which catches `ValueError`, goes on working.
"""

from __future__ import annotations

from collections.abc import Sequence


class OnnxletError(Exception):
    """Base of all errors raised by onnxlet."""


class ModelError(OnnxletError, ValueError):
    """The bytes are not a valid ONNX model: truncated, foreign, hostile, or against the specification."""


class ExternalDataError(ModelError):
    """External tensor data is missing, too short, or lies outside the model's folder."""


class LimitError(OnnxletError, MemoryError):
    """A model asks for more than a limit allows: memory, nesting, loop iterations, tensor size."""


class UnsupportedError(OnnxletError, NotImplementedError):
    """The model is valid but asks for something onnxlet does not have."""


class MissingOperatorsError(UnsupportedError):
    """Operators that no provider knows. All of them are listed at once, with the reason where they can't be had.

    `missing` holds one `(operator, version, node names)` triple per operator; the operator is written
    with its domain, for example ``com.example::MyOp``.
    """

    def __init__(self, missing: Sequence[tuple[str, int, Sequence[str]]]):
        from .unavailable import REASONS

        self.missing = list(missing)
        rows = []
        for operator, version, nodes in self.missing:
            shown = ", ".join(repr(n) for n in nodes[:5]) + (f" and {len(nodes) - 5} more" if len(nodes) > 5 else "")
            reason = f"; {REASONS[operator]}" if operator in REASONS else ""
            rows.append(f"  {operator} (opset {version}) in {len(nodes)} node(s): {shown}{reason}")
        super().__init__(
            f"{len(self.missing)} operator(s) of this model are not implemented:\n" + "\n".join(rows) + "\n"
            'A custom operator can be added with @onnxlet.op("Name", domain="its.domain").'
        )


class FeedError(OnnxletError, ValueError):
    """An input given to `run` has a wrong name, element type, rank or shape, or is missing."""


class NodeError(OnnxletError, RuntimeError):
    """A node failed while running. Names the node, its operator, the provider, and its inputs' types and shapes."""


class TerminatedError(OnnxletError, RuntimeError):
    """The run was ended by `RunOptions.terminate`."""


class ShapeError(OnnxletError, ValueError):
    """A node's inputs have types or shapes that its operator does not allow."""


class ProviderError(OnnxletError, RuntimeError):
    """An execution provider could not be created, or failed."""


class DeviceLostError(ProviderError):
    """A provider's device is gone: taken away, reset, or destroyed. A session makes a new one, or goes on without."""


class SessionClosedError(OnnxletError, RuntimeError):
    """The session was used after `close()`."""
