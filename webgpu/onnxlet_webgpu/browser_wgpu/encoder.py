"""Commands: recorded as numbers in Python, encoded and submitted in one call of JavaScript."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Any

from .bridge import Handle

# Codes of the operations, in the order of `operations` in bridge.js.
PIPELINE, BIND_GROUP, DISPATCH, INDIRECT, COPY, CLEAR, BEGIN, END = range(8)


class GPUCommandBuffer(Handle):
    """Recorded commands. A `reusable` one (not in WebGPU, whose command buffers are spent by `submit`) may be submitted
    any number of times: it is then kept in JavaScript and encoded anew each time."""

    def __init__(self, label: str, operations: array[float], kept: list[Any], device: Any, reusable: bool):
        super().__init__(label, 0, device)
        self.operations: array[float] | None = operations
        self.reusable = reusable
        self._objects = kept


class GPUComputePassEncoder:
    """Records dispatches. Made by `GPUCommandEncoder.begin_compute_pass`."""

    def __init__(self, encoder: GPUCommandEncoder, label: str):
        self.label = label
        self._operations = encoder._operations
        self._objects = encoder._objects
        self._operations.append(BEGIN)

    def set_pipeline(self, pipeline: Any) -> None:
        self._operations.extend((PIPELINE, pipeline._internal))
        self._objects.append(pipeline)

    def set_bind_group(
        self,
        index: int,
        bind_group: Any,
        dynamic_offsets_data: Sequence[int] = (),
        dynamic_offsets_data_start: int | None = None,
        dynamic_offsets_data_length: int | None = None,
    ) -> None:
        start = dynamic_offsets_data_start or 0
        count = dynamic_offsets_data_length
        offsets = dynamic_offsets_data[start : None if count is None else start + count]
        self._operations.extend((BIND_GROUP, index, bind_group._internal, len(offsets), *offsets))
        self._objects.append(bind_group)

    def dispatch_workgroups(
        self, workgroup_count_x: int, workgroup_count_y: int = 1, workgroup_count_z: int = 1
    ) -> None:
        self._operations.extend((DISPATCH, workgroup_count_x, workgroup_count_y, workgroup_count_z))

    def dispatch_workgroups_indirect(self, indirect_buffer: Any, indirect_offset: int) -> None:
        self._operations.extend((INDIRECT, indirect_buffer._internal, indirect_offset))
        self._objects.append(indirect_buffer)

    def push_debug_group(self, group_label: str) -> None:
        """Accepted and not recorded: labels of groups are for debuggers of native APIs."""

    def pop_debug_group(self) -> None:
        """See `push_debug_group`."""

    def insert_debug_marker(self, marker_label: str) -> None:
        """See `push_debug_group`."""

    def end(self) -> None:
        self._operations.append(END)


class GPUCommandEncoder:
    """Records commands. Made by `GPUDevice.create_command_encoder`."""

    def __init__(self, label: str, device: Any):
        self.label = label
        self._device = device
        self._operations: array[float] = array("d")
        self._objects: list[Any] = []

    def begin_compute_pass(self, *, label: str = "", timestamp_writes: Any = None) -> GPUComputePassEncoder:
        if timestamp_writes is not None:
            raise NotImplementedError("timestamps are not a part of this backend")
        return GPUComputePassEncoder(self, label)

    def copy_buffer_to_buffer(
        self, source: Any, source_offset: int, destination: Any, destination_offset: int, size: int | None = None
    ) -> None:
        count = source.size - source_offset if size is None else size
        self._operations.extend(
            (COPY, source._internal, source_offset, destination._internal, destination_offset, count)
        )
        self._objects += (source, destination)

    def clear_buffer(self, buffer: Any, offset: int = 0, size: int | None = None) -> None:
        count = buffer.size - offset if size is None else size
        self._operations.extend((CLEAR, buffer._internal, offset, count))
        self._objects.append(buffer)

    def finish(self, *, label: str = "", reusable: bool = False) -> GPUCommandBuffer:
        """End the recording. `reusable` is this backend's own: see `GPUCommandBuffer`."""
        return GPUCommandBuffer(label or self.label, self._operations, self._objects, self._device, reusable)
