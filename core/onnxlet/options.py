"""Session options, under onnxruntime's names."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from .limits import DEFAULT, Limits


class GraphOptimizationLevel(enum.IntEnum):
    """How much of the graph may be rewritten before it runs. Each level includes those below it."""

    ORT_DISABLE_ALL = 0
    ORT_ENABLE_BASIC = 1
    ORT_ENABLE_EXTENDED = 2
    ORT_ENABLE_LAYOUT = 3
    ORT_ENABLE_ALL = 99


class ExecutionMode(enum.IntEnum):
    """Accepted for compatibility: nodes run in one sequence, threads work inside of operators."""

    ORT_SEQUENTIAL = 0
    ORT_PARALLEL = 1


class ExecutionOrder(enum.IntEnum):
    """Accepted for compatibility: plans have an order of their own."""

    DEFAULT = 0
    PRIORITY_BASED = 1
    MEMORY_EFFICIENT = 2


class MissingEntryError(KeyError, RuntimeError):
    """A configuration entry that was never set."""

    __str__ = Exception.__str__


def _entry(entries: Mapping[str, str], key: str) -> str:
    if key not in entries:
        raise MissingEntryError(f"there is no configuration entry {key!r}")
    return entries[key]


@dataclass(slots=True)
class SessionOptions:
    """Options of an `InferenceSession`. A session takes a copy: changes that come later do not reach it.

    `disabled_rewrites` switches single rewrites off by name (`onnxlet.rewrites.names()` lists them). The rewritten
    model is written to `optimized_model_filepath`, if that is set: a file that other runtimes can run too.
    `intra_op_num_threads` is how many threads compute on the CPU; 0 is what the machine has, up to 8. It is 1 in pages
    that are not cross-origin isolated (`onnxlet.features()`). With `enable_profiling`, runs are timed node by node, and
    `InferenceSession.end_profiling` writes a trace to a file whose name begins with `profile_file_prefix`. `limits`
    bounds what a model may ask for. The other attributes are accepted for compatibility, and change nothing.
    """

    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    disabled_rewrites: set[str] = field(default_factory=set)
    optimized_model_filepath: str = ""
    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    execution_order: ExecutionOrder = ExecutionOrder.DEFAULT
    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    enable_mem_reuse: bool = True
    enable_profiling: bool = False
    profile_file_prefix: str = "onnxruntime_profile_"
    use_per_session_threads: bool = True
    use_deterministic_compute: bool = False
    config_entries: dict[str, str] = field(default_factory=dict)
    dimensions: dict[tuple[str, str], int] = field(default_factory=dict)
    """Free dimensions that are given a length, by ("name" or "denotation", which)."""
    initializers: dict[str, Any] = field(default_factory=dict)
    """`OrtValue`s in the place of the model's initializers, by name."""
    external_files: dict[str, Any] = field(default_factory=dict)
    """The contents of files with external data, by name."""
    limits: Limits = DEFAULT

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry.

        `session.disable_cpu_ep_fallback` = "1" makes it an error, with all the reasons, if the first provider does not
        compute every node (`ProviderError`, when a plan is made). Others are kept, and change nothing.
        """
        self.config_entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """The value of a configuration entry. Raises `MissingEntryError`, a `KeyError`, if it was never set."""
        return _entry(self.config_entries, key)

    def add_free_dimension_override_by_name(self, name: str, value: int) -> None:
        """Give the inputs' dimensions of this name a length. They are then as fixed as if the model said so."""
        self.dimensions["name", name] = value

    def add_free_dimension_override_by_denotation(self, denotation: str, value: int) -> None:
        """Give the inputs' free dimensions of this denotation, such as ``DATA_BATCH``, a length."""
        self.dimensions["denotation", denotation] = value

    def add_initializer(self, name: str, value: Any) -> None:
        """Take an `OrtValue` for the model's initializer of this name, whose data are not read then. Sessions can share
        one. A name that the model does not have is passed over."""
        self.initializers[name] = value

    def add_external_initializers(self, names: Sequence[str], values: Sequence[Any]) -> None:
        """Take `OrtValue`s for the model's initializers of these names, which would be read from other files."""
        if len(names) != len(values):
            raise ValueError(f"{len(names)} names but {len(values)} values")
        self.initializers.update(zip(names, values, strict=True))

    def add_external_initializers_from_files_in_memory(
        self, names: Sequence[str], contents: Sequence[Any], lengths: Sequence[int]
    ) -> None:
        """Take these buffers for the files of these names, in which the model keeps external data."""
        if not len(names) == len(contents) == len(lengths):
            raise ValueError(f"{len(names)} names, {len(contents)} contents and {len(lengths)} lengths")
        for name, content, length in zip(names, contents, lengths, strict=True):
            self.external_files[name] = memoryview(content).cast("B")[:length]


@dataclass(slots=True)
class RunOptions:
    """Options of a run. Setting `terminate`, from another thread, ends the runs that were given these options: they
    raise `TerminatedError` before their next node. With `only_execute_path_to_fetches`, nodes that the wanted outputs
    do not need are left out. The other attributes are accepted for compatibility, and change nothing.
    """

    log_severity_level: int = -1
    log_verbosity_level: int = 0
    logid: str = ""
    only_execute_path_to_fetches: bool = False
    terminate: bool = False
    config_entries: dict[str, str] = field(default_factory=dict)

    def add_run_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry. It is kept, and changes nothing."""
        self.config_entries[key] = value

    def get_run_config_entry(self, key: str) -> str:
        """The value of a configuration entry. Raises `MissingEntryError`, a `KeyError`, if it was never set."""
        return _entry(self.config_entries, key)
