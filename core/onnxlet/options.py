"""Session options, under onnxruntime's names."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

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


@dataclass
class SessionOptions:
    """Options of an `InferenceSession`.

    `disabled_rewrites` switches single rewrites off by name (`onnxlet.rewrites.names()` lists them). The rewritten
    model is written to `optimized_model_filepath`, if that is set: a file that other runtimes can run too.
    `intra_op_num_threads` is how many threads compute on the CPU; 0 is what the machine has, up to 8. It is 1 in pages
    that are not cross-origin isolated (`onnxlet.features()`). `limits` bounds what a model may ask for.
    """

    graph_optimization_level: GraphOptimizationLevel = GraphOptimizationLevel.ORT_ENABLE_ALL
    disabled_rewrites: set[str] = field(default_factory=set)
    optimized_model_filepath: str = ""
    intra_op_num_threads: int = 0
    inter_op_num_threads: int = 0
    execution_mode: ExecutionMode = ExecutionMode.ORT_SEQUENTIAL
    log_severity_level: int = 2
    log_verbosity_level: int = 0
    logid: str = ""
    enable_cpu_mem_arena: bool = True
    enable_mem_pattern: bool = True
    config_entries: dict[str, str] = field(default_factory=dict)
    limits: Limits = DEFAULT

    def add_session_config_entry(self, key: str, value: str) -> None:
        """Set a configuration entry.

        `session.disable_cpu_ep_fallback` = "1" makes it an error, with all the reasons, if the first provider does not
        compute every node (`ProviderError`, when a plan is made). Others are kept, and change nothing.
        """
        self.config_entries[key] = value

    def get_session_config_entry(self, key: str) -> str:
        """The value of a configuration entry. Raises `KeyError` if it was never set."""
        return self.config_entries[key]
