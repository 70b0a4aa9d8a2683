"""Graph rewrites: each makes a graph cheaper without changing what it computes.

`REWRITES` orders them. Each has a name, by which a session may switch it off, and the optimisation level from which
on it runs. They are run over the graph and every sub-graph until nothing changes any more.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from ..errors import ShapeError
from ..graph.infer import infer_values
from ..graph.ir import Graph, Model, Type
from ..model.tensors import Tensor
from ..options import GraphOptimizationLevel, SessionOptions
from .activations import fuse_gates, fuse_gelu, fuse_hard_swish
from .attention import fuse_attention
from .cleanup import (
    fold_constants,
    inline_branches,
    merge_views,
    remove_dead,
    remove_no_ops,
    share_constants,
    share_equal_nodes,
)
from .convolution import fold_affine_input, fold_batch_norm, fold_channel_affine, fold_pad
from .editor import Editor
from .epilogues import fuse_epilogues, fuse_matmul_bias
from .normalization import fuse_group_norm, fuse_layer_norm, fuse_skip_norm
from .products import expand_einsum, fuse_transposed_product, multiply_instead
from .quantization import fuse_dynamic_quantized, fuse_quantized, sink_dequantize, sink_gather
from .rotary import fuse_rotary
from .shapes import fold_shapes
from .transposes import merge_transposes, sink_transposes

BASIC = GraphOptimizationLevel.ORT_ENABLE_BASIC
EXTENDED = GraphOptimizationLevel.ORT_ENABLE_EXTENDED

ROUNDS = 10
"""Rounds until the rewrites are taken to be at a fixed point; graphs settle in two or three."""


@dataclass(frozen=True, slots=True)
class Rewrite:
    """`apply` changes the editor's graph and returns how many changes it made."""

    name: str
    level: GraphOptimizationLevel
    apply: Callable[[Editor], int]


REWRITES = (
    # Before constants are folded, since that makes float32 of weights in fewer bits.
    Rewrite("sink_dequantize", EXTENDED, sink_dequantize),
    Rewrite("sink_gather", EXTENDED, sink_gather),
    Rewrite("fuse_quantized", EXTENDED, fuse_quantized),
    Rewrite("fuse_dynamic_quantized", EXTENDED, fuse_dynamic_quantized),
    Rewrite("fold_constants", BASIC, fold_constants),
    Rewrite("fold_shapes", BASIC, fold_shapes),
    Rewrite("inline_branches", BASIC, inline_branches),
    Rewrite("remove_no_ops", BASIC, remove_no_ops),
    Rewrite("share_constants", BASIC, share_constants),
    Rewrite("share_equal_nodes", BASIC, share_equal_nodes),
    Rewrite("merge_views", BASIC, merge_views),
    Rewrite("merge_transposes", BASIC, merge_transposes),
    Rewrite("sink_transposes", BASIC, sink_transposes),
    Rewrite("expand_einsum", BASIC, expand_einsum),
    Rewrite("fold_batch_norm", BASIC, fold_batch_norm),
    Rewrite("fold_channel_affine", BASIC, fold_channel_affine),
    Rewrite("fold_pad", BASIC, fold_pad),
    Rewrite("fuse_layer_norm", EXTENDED, fuse_layer_norm),
    Rewrite("fuse_group_norm", EXTENDED, fuse_group_norm),
    Rewrite("fuse_rotary", EXTENDED, fuse_rotary),
    Rewrite("fuse_attention", EXTENDED, fuse_attention),
    Rewrite("fuse_transposed_product", EXTENDED, fuse_transposed_product),
    Rewrite("fuse_gelu", EXTENDED, fuse_gelu),
    Rewrite("fuse_hard_swish", EXTENDED, fuse_hard_swish),
    Rewrite("fuse_gates", EXTENDED, fuse_gates),
    # After the activations, some of which end in a factor.
    Rewrite("fold_affine_input", BASIC, fold_affine_input),
    Rewrite("multiply_instead", BASIC, multiply_instead),
    Rewrite("fuse_matmul_bias", EXTENDED, fuse_matmul_bias),
    Rewrite("fuse_epilogues", EXTENDED, fuse_epilogues),
    Rewrite("fuse_skip_norm", EXTENDED, fuse_skip_norm),
    Rewrite("remove_dead", BASIC, remove_dead),
)


def names() -> list[str]:
    """The rewrites' names, in the order in which they run."""
    return [rewrite.name for rewrite in REWRITES]


def optimize(graph: Graph, options: SessionOptions) -> Graph:
    """A rewritten copy of `graph`; the original is left as it is.

    Raises `ValueError` for a name in `options.disabled_rewrites` that there is no rewrite of.
    """
    if unknown := options.disabled_rewrites - set(names()):
        raise ValueError(f"no rewrite is called {', '.join(sorted(unknown))}; there are: {', '.join(names())}")
    chosen = [
        r for r in REWRITES if r.level <= options.graph_optimization_level and r.name not in options.disabled_rewrites
    ]
    return _optimize(graph, chosen, {}, {})


def write(model: Model, graph: Graph, path: str) -> None:
    """Write `model` with its rewritten `graph` as a file that other runtimes can run; large tensors go to a file beside
    it where an .onnx file can't hold them.

    Raises `UnsupportedError` where the graph holds something that a file can't say.
    """
    # Rarely needed: not imported before.
    from ..model.writer import MAX_BYTES, save
    from .portable import portable

    large = sum(t.nbytes for t in graph.initializers.values()) > MAX_BYTES - (64 << 20)
    save(portable(model, graph), path, external_data=f"{os.path.basename(path)}.data" if large else None)


def _optimize(
    graph: Graph, chosen: list[Rewrite], outer: Mapping[str, Tensor], outer_types: Mapping[str, Type | None]
) -> Graph:
    copy = replace(
        graph,
        nodes=[replace(node, inputs=list(node.inputs), attributes=dict(node.attributes)) for node in graph.nodes],
        initializers=dict(graph.initializers),
        types=dict(graph.types),
    )
    if not chosen:
        return copy
    # A body sees the constants around it, so that its own rewrites can use them; it keeps those that it reads.
    borrowed = {name: outer[name] for name in copy.captures() if name in outer}
    copy.initializers.update(borrowed)
    for _ in range(ROUNDS):
        inferred = _infer(copy, outer_types)
        editor = Editor(copy, *(inferred or ({}, {})))
        changes = 0
        # Rewrites take a graph to be valid. One that is not stays as it is, but for what nobody reads: the run will say
        # what is wrong with which node.
        for rewrite in chosen if inferred else [r for r in chosen if r.apply is remove_dead]:
            changes += rewrite.apply(editor)
            editor.finish()
        if not changes:
            break
    holders = [node for node in copy.nodes if next(node.subgraphs(), None) is not None]
    inferred = _infer(copy, outer_types) if holders else None
    types = {**outer_types, **(inferred[0] if inferred else copy.types)}
    visible = {**outer, **copy.initializers}
    for node in holders:
        for name, value in node.attributes.items():
            if isinstance(value, Graph):
                node.attributes[name] = _optimize(value, chosen, visible, types)
    return copy


def _infer(
    graph: Graph, outer: Mapping[str, Type | None]
) -> tuple[dict[str, Type | None], Mapping[str, np.ndarray]] | None:
    """What is known of types and values; `None` for a graph that is against the specification."""
    captured = {name: outer.get(name) for name in graph.captures()}
    try:
        inferred, values = infer_values(graph, captured)
    except ShapeError:
        return None
    return {**captured, **graph.types, **inferred}, values


__all__ = ["REWRITES", "Editor", "Rewrite", "names", "optimize", "write"]
