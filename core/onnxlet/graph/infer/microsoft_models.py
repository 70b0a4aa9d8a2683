"""Operators of com.microsoft that whole kinds of models are made of: streams, hashes, recurrent states."""

from __future__ import annotations

import numpy as np

from ...model.dtypes import dtype_of as dtype_of_number
from ..ir import Dim, Node, TensorType, Type
from .common import FLOAT, Constants, Inputs, Shape, dtype_of, ints, present, product, shape_of, tensor
from .matrix import part_of
from .registry import infer

MS = "com.microsoft"
INT32, HALF = np.dtype(np.int32), np.dtype(np.float16)

LIKE: dict[str, tuple[int, ...]] = {
    "ScaledSiLU": (0,), "BranchwiseRMSNorm": (0,), "HyperConnectionPostMix": (0,), "EngramGate": (0, 0),
    "LinearAttentionGate": (0, 3), "GemmaRotaryEmbedding": (1, 3), "ConvStateReplay": (2,),
    "GatedDeltaNetStateReplay": (2,),
}  # fmt: skip
"""Operators whose outputs have the types of some of their inputs."""


@infer(*LIKE, domain=MS)
def like(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    return [tensor(node, inputs, i) for i in LIKE[node.op_type]]


@infer("HyperConnectionPreMix", domain=MS)
def pre_mix(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, count = tensor(node, inputs, 0), node.attributes.get("num_branches", 0)
    if not x.shape:
        return [TensorType(x.dtype, None)]
    shape = (*x.shape[:-1], part_of(x.shape[-1], count)) if count else (*x.shape[:-2], x.shape[-1])
    return [TensorType(x.dtype, shape)]


@infer("HyperConnectionLowRankMix", domain=MS)
def low_rank_mix(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, count = tensor(node, inputs, 0), node.attributes["num_branches"]
    if not x.shape:
        return [TensorType(x.dtype, None)] * 3
    return [
        TensorType(x.dtype, (*x.shape[:-1], part_of(x.shape[-1], count))),
        TensorType(x.dtype, (*x.shape[:-1], count)),
        x,
    ]


@infer("MoEGroupRouter", domain=MS)
def moe_group_router(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, bias = tensor(node, inputs, 0), shape_of(node, inputs, 1, rank=1)
    shape = (None if x.shape is None else product(x.shape[:-1]), bias[0] if bias else None)
    return [TensorType(x.dtype, shape), TensorType(FLOAT, shape), TensorType(FLOAT, shape)]


@infer("RouterGateUpProj", domain=MS)
def router_gate_up(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, w = tensor(node, inputs, 0), shape_of(node, inputs, 1, rank=2)
    if x.shape is None:
        return [x, x]
    size, width = node.attributes["router_size"], w[1] if w else None
    rest = (width - size) // 2 if isinstance(width, int) else None
    return [TensorType(x.dtype, (*x.shape[:-1], size)), TensorType(x.dtype, (*x.shape[:-1], rest))]


@infer("RMSNormRotary", domain=MS)
def rms_norm_rotary(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    batch, length, heads, stride = shape_of(node, inputs, 0, rank=4) or (None,) * 4
    width: Dim = node.attributes.get("input_width", 0)
    if not width:
        width = stride - node.attributes.get("input_start", 0) if isinstance(stride, int) else None
    size = product((heads, width))
    shape: Shape = (batch, length, size)
    if node.attributes.get("flatten_batch", 0):
        shape = (1, product((batch, length)), size)
    dtype = HALF if node.attributes.get("output_fp16", 0) else dtype_of_number(16)
    return [TensorType(dtype, shape), TensorType(FLOAT, (batch, length, heads, width))]


@infer("NGramHashMapping", domain=MS)
def n_gram_hash_mapping(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    batch, length = shape_of(node, inputs, 0, rank=2) or (None, None)
    dtype, before = dtype_of(node, inputs, 0), node.attributes["max_ngram_size"] - 1
    hashes = TensorType(dtype, (batch, length, before * node.attributes["n_head_per_ngram"]))
    return [hashes, TensorType(dtype, (batch, before))]


def sequences(node: Node, inputs: Inputs, index: int) -> Dim:
    """How many sequences an input of cumulative lengths names."""
    edges = shape_of(node, inputs, index, rank=1)
    return edges[0] - 1 if edges and isinstance(edges[0], int) else None


@infer("VarlenNGramHashMapping", domain=MS)
def varlen_n_gram_hash_mapping(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    ids, batch = shape_of(node, inputs, 0, rank=1), sequences(node, inputs, 3)
    dtype, before = dtype_of(node, inputs, 0), node.attributes["max_ngram_size"] - 1
    return [
        TensorType(dtype, (ids[0] if ids else None, before * node.attributes["n_head_per_ngram"])),
        TensorType(dtype, (batch, before)),
        TensorType(INT32, (batch, before)),
        TensorType(dtype, (batch, node.attributes.get("state_update_capacity", 0), before)),
    ]


@infer("GatedDeltaNet", domain=MS)
def gated_delta_net(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    q, v, state = tensor(node, inputs, 0), shape_of(node, inputs, 2), shape_of(node, inputs, 6, rank=4)
    batch = state[0] if state else sequences(node, inputs, 3)
    lead = None if q.shape is None else q.shape[:-2] if present(node, 1) else q.shape[:-1]
    heads, value_size = v[-2:] if v else state[1:3] if state else (None, None)
    size = q.shape[-1] if q.shape and present(node, 1) else state[3] if state else None
    if batch is None and lead is not None and len(lead) == 2:
        batch = lead[0]
    return [
        TensorType(q.dtype, None if lead is None else (*lead, heads, value_size)),
        TensorType(FLOAT, (batch, heads, value_size, size)),
        TensorType(FLOAT, (batch, None)),
    ]


@infer("VarlenCausalConvWithState", domain=MS)
def varlen_causal_conv(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, state = tensor(node, inputs, 0), tensor(node, inputs, 4)
    batch, channels = state.shape[:2] if state.shape and len(state.shape) == 3 else (None, None)
    captured = (batch, node.attributes.get("state_update_capacity", 0), channels)
    return [x, state, TensorType(x.dtype, captured)]


@infer("Mamba2Verify", domain=MS)
def mamba2_verify(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    rows = (shape_of(node, inputs, 0, rank=2) or (None,))[0]
    dtype, given = dtype_of(node, inputs, 0), node.attributes
    inner = given["heads"] * given.get("head_dim", 64)
    channels = inner + 2 * given["n_groups"] * given.get("d_state", 128)
    y = TensorType(dtype, (rows, inner))
    mixed, read = TensorType(dtype, (rows, channels)), TensorType(FLOAT, (rows, inner))
    return [y, tensor(node, inputs, 1), tensor(node, inputs, 2), mixed, read]


def only(constants: Constants, index: int) -> Dim:
    """The value of an input with one element, where known."""
    values = ints(constants, index)
    return values[0] if values is not None and len(values) == 1 else None


@infer("GreedySearch", "Sampling", domain=MS)
def search_one(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    ids, vocabulary = shape_of(node, inputs, 0, rank=2), node.attributes.get("vocab_size", -1)
    batch = ids[0] if ids else None
    logits = TensorType(FLOAT, (batch, vocabulary if vocabulary > 0 else None))
    return [TensorType(INT32, (batch, only(constants, 1))), logits]


@infer("BeamSearch", "WhisperBeamSearch", domain=MS)
def search_beams(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    ids, vocabulary = shape_of(node, inputs, 0), node.attributes.get("vocab_size", -1)
    batch, beams, returned = ids[0] if ids else None, only(constants, 3), only(constants, 4)
    scores = dtype_of(node, inputs, 5) if present(node, 5) else FLOAT
    return [
        TensorType(INT32, (batch, returned, only(constants, 1))),
        TensorType(scores, (batch, returned)),
        TensorType(scores, (None, batch, beams, vocabulary if vocabulary > 0 else None)),
        TensorType(FLOAT, (batch, returned, None, None, None)),
        TensorType(scores, (batch,)),
    ]


@infer("SparseAttentionIndexer", domain=MS)
def sparse_attention_indexer(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    batch, length, _ = shape_of(node, inputs, 0, rank=3) or (None, None, None)
    past, ratio = tensor(node, inputs, 7), node.attributes["compress_ratio"]
    new, kept = length, None
    if node.attributes["policy_mode"] == "csa":
        capacity, buffer = node.attributes.get("index_topk"), shape_of(node, inputs, 13, rank=4)
        buffered = buffer[2] if buffer else None
        new = kept_length = None
        if isinstance(buffered, int) and isinstance(length, int):
            new = (buffered % ratio + length) // ratio
            kept_length = (buffered + length) % ratio + (ratio if buffered >= ratio or new else 0)
        width = buffer[3] if buffer else None
        kept = TensorType(dtype_of(node, inputs, 0), (2, batch, kept_length, width))
    else:
        capacity = node.attributes["token_budget"] + ratio - 1
    if not present(node, 12) and past.shape is not None and len(past.shape) == 3:
        before = past.shape[1]
        total = before + new if isinstance(before, int) and isinstance(new, int) else None
        past = TensorType(past.dtype, (past.shape[0], total, past.shape[2]))
    return [TensorType(INT32, (batch, length, capacity)), past, kept]


@infer("PackedSparseAttentionIndexer", domain=MS)
def packed_sparse_attention_indexer(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    q, state = shape_of(node, inputs, 0, rank=2), tensor(node, inputs, 12)
    budget, ratio = node.attributes.get("token_budget"), node.attributes["compress_ratio"]
    tokens, capacity = q[0] if q else None, node.attributes.get("index_topk") if budget is None else budget + ratio - 1
    if present(node, 18):
        capacity = node.attributes.get("max_output_entries")
    batch, size = (state.shape[0], state.shape[2]) if state.shape and len(state.shape) == 3 else (None, None)
    rows = TensorType(INT32, (tokens,))
    captured = TensorType(dtype_of(node, inputs, 0), (batch, node.attributes.get("state_update_capacity", 0), size))
    return [
        TensorType(INT32, (tokens, capacity)), rows, state, tensor(node, inputs, 13), tensor(node, inputs, 14),
        tensor(node, inputs, 15), captured, rows, TensorType(INT32, (batch,)),
    ]  # fmt: skip


@infer("PackedSparseAttentionIndexerMerge", domain=MS)
def packed_sparse_attention_indexer_merge(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    rows = shape_of(node, inputs, 2, rank=1)
    count = rows[0] if rows else None
    table = TensorType(INT32, (count, node.attributes["max_output_entries"]))
    return [table, TensorType(INT32, (count,)), TensorType(INT32, (count,))]


@infer("CausalConvWithState", domain=MS)
def causal_conv(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    x, w, given = tensor(node, inputs, 0), shape_of(node, inputs, 1, least=3), node.attributes
    last, window = given.get("channels_last", 0), given.get("state_window", 0)
    state_last = given.get("state_channels_last", -1)
    state_last = last if state_last < 0 else state_last
    if x.shape is None or len(x.shape) < 3:
        return [x, TensorType(x.dtype, None), TensorType(x.dtype, None)]
    channels = x.shape[2:] if last else (x.shape[1],)
    y = x
    if given.get("input_channels", 0):
        channels = (given["input_channels"],)
        y = TensorType(x.dtype, (*x.shape[:2], *channels))
    reach: Dim = given.get("state_length", 0) or None
    if reach is None and w is not None and isinstance(w[2], int):
        reach = (w[2] - 1) * given.get("dilation", 1)
    state = (x.shape[0], reach, *channels) if state_last else (x.shape[0], *channels, reach)
    captured = (x.shape[0], given.get("state_update_capacity", 0), product(channels))
    return [y, TensorType(x.dtype, (window, *state) if window else state), TensorType(x.dtype, captured)]


@infer("LinearAttention", domain=MS)
def linear_attention(node: Node, inputs: Inputs, constants: Constants) -> list[Type | None]:
    q, v = shape_of(node, inputs, 0, rank=3), shape_of(node, inputs, 2, rank=3)
    queries, heads = node.attributes["q_num_heads"], node.attributes["kv_num_heads"]
    window = node.attributes.get("state_window", 0)
    dtype = dtype_of(node, inputs, 0)
    batch, length, width = q or (None, None, None)
    value_size = part_of(v[2], heads) if v else None
    state: Shape = (batch, heads, part_of(width, queries), value_size)
    y = TensorType(dtype, (batch, length, product((max(queries, heads), value_size))))
    of_state = dtype_of(node, inputs, 3) if present(node, 3) else dtype
    return [y, TensorType(of_state, (window, *state) if window else state)]
