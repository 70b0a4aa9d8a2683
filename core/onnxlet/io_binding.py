"""`IOBinding`: what a run reads and where it leaves its results, said once. Named as in onnxruntime's Python API."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from .errors import FeedError, UnsupportedError
from .values import CPU, OrtValue, at_address

if TYPE_CHECKING:
    from .session import InferenceSession


class IOBinding:
    """Inputs and outputs of a session, by name, for `run_with_iobinding`. Made by `InferenceSession.io_binding`."""

    def __init__(self, session: InferenceSession):
        graph = session._model.graph
        self._names = [*graph.inputs, *graph.defaults]
        self.inputs: dict[str, OrtValue] = {}
        self.outputs: dict[str, str | OrtValue] = {}
        """The type of a device on which to leave an output, or the value that receives it."""
        self._results: list[OrtValue] = []

    # Inputs

    def bind_cpu_input(self, name: str, arr_on_cpu: np.ndarray) -> None:
        """Bind an input to an array. A contiguous one is shared: later changes of it are seen by later runs.

        Raises `FeedError` for a name that the model does not have, or for what is not an array.
        """
        self.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(arr_on_cpu))

    def bind_input(
        self, name: str, device_type: str, device_id: int, element_type: Any, shape: Sequence[int], buffer_ptr: int
    ) -> None:
        """Bind an input to memory of the CPU, from an address on."""
        del device_id
        self.bind_ortvalue_input(name, _value_at(device_type, element_type, shape, buffer_ptr))

    def bind_ortvalue_input(self, name: str, ortvalue: OrtValue) -> None:
        """Bind an input to a value, wherever that is."""
        if name not in self._names:
            raise FeedError(f"the model has no input {name!r}; its inputs are {', '.join(self._names)}")
        if not isinstance(ortvalue, OrtValue):
            raise FeedError(f"input {name!r} must be bound to an OrtValue, not to {type(ortvalue).__name__}")
        self.inputs[name] = ortvalue

    def synchronize_inputs(self) -> None:
        """Nothing to wait for: a device takes uploads and runs in the order in which they are asked for."""

    def clear_binding_inputs(self) -> None:
        self.inputs.clear()

    # Outputs

    def bind_output(
        self,
        name: str,
        device_type: str = CPU,
        device_id: int = 0,
        element_type: Any = None,
        shape: Sequence[int] | None = None,
        buffer_ptr: int | None = None,
    ) -> None:
        """Ask for an output, left on a device of this type; or, with an address, its type and shape, in that memory of
        the CPU. Where the session has no such device the output is on the CPU.

        A name that the model does not have is an error of the run.
        """
        del device_id
        if buffer_ptr is None:
            self.outputs[name] = device_type
        else:
            assert shape is not None, "an address goes with a shape"
            self.outputs[name] = _value_at(device_type, element_type, shape, buffer_ptr)

    def bind_ortvalue_output(self, name: str, ortvalue: OrtValue) -> None:
        """Ask for an output, put in a value of its type and shape."""
        self.outputs[name] = ortvalue

    def synchronize_outputs(self) -> None:
        """Nothing to wait for: whatever reads an output comes after the work that makes it."""

    def get_outputs(self) -> list[OrtValue]:
        """The outputs of the latest run, in the order in which they were bound."""
        return list(self._results)

    def get_outputs_as_ortvaluevector(self) -> list[OrtValue]:
        """The outputs of the latest run, in onnxruntime's kind of a list."""
        from .onnxruntime_face.state import OrtValueVector

        return OrtValueVector(self._results)

    def copy_outputs_to_cpu(self) -> list[Any]:
        """The outputs of the latest run as arrays."""
        return [value.numpy() if value.is_tensor() else value._value for value in self._results]

    async def copy_outputs_to_cpu_async(self) -> list[Any]:
        """Like `copy_outputs_to_cpu`, but waits for a device without blocking."""
        return [await value.numpy_async() if value.is_tensor() else value._value for value in self._results]

    def clear_binding_outputs(self) -> None:
        self.outputs.clear()
        self._results.clear()

    # For sessions

    def staying(self, devices: Collection[str]) -> frozenset[str]:
        """The outputs that are left on a device, of the types that there are."""
        kinds = {n: o._device_type if isinstance(o, OrtValue) else o for n, o in self.outputs.items()}
        return frozenset(name for name, kind in kinds.items() if kind in devices)

    def take(self, results: Sequence[Any], devices: Collection[str]) -> None:
        """Keep a run's results, in the order of `outputs`."""
        taken = []
        for target, result in zip(self.outputs.values(), results, strict=True):
            if isinstance(target, OrtValue):
                target.take(result)
                taken.append(target)
            else:
                taken.append(OrtValue(result, target if target in devices else CPU))
        self._results = taken


def _value_at(device_type: str, element_type: Any, shape: Sequence[int], pointer: int) -> OrtValue:
    if device_type != CPU:
        raise UnsupportedError(f"data on {device_type!r} have no addresses: bind an OrtValue")
    return OrtValue(at_address(pointer, shape, element_type))
