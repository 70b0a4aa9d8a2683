"""Inference for com.microsoft against what the operators' definitions give."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from onnxruntime.capi import onnxruntime_pybind11_state as onnxruntime_state

from onnxlet.graph.infer import infer_node
from onnxlet.graph.infer.registry import find_inference
from onnxlet.graph.ir import STRING, Node, TensorType
from onnxlet.ops.registry import find, registered

RNG = np.random.default_rng(3)
U8, I8, I16, F16, F64 = np.uint8, np.int8, np.int16, np.float16, np.float64


def f(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return np.asarray(RNG.normal(size=shape)).astype(dtype)


def u(*shape: int, dtype: Any = U8, high: int = 100) -> np.ndarray:
    return RNG.integers(0, high, shape).astype(dtype)


def ids(*values: Any) -> np.ndarray:
    return np.array(values, np.int64)


def i32(*values: Any) -> np.ndarray:
    return np.array(values[0] if len(values) == 1 else values, np.int32)


ONE, ZERO = np.array(0.1, np.float32), np.array(3, U8)
HEADS = {"num_heads": 2}
GROUPED = {"num_heads": 4, "kv_num_heads": 2}
NORM = {"groups": 2, "activation": 1}

# operator, attributes, inputs
CASES: list[tuple[str, dict[str, Any], list[Any]]] = [
    ("Gelu", {}, [f(2, 3)]),
    ("FastGelu", {}, [f(2, 3, dtype=F16), f(3, dtype=F16)]),
    ("QuickGelu", {}, [f(2, 3)]),
    ("BiasGelu", {}, [f(2, 3), f(3)]),
    ("BiasSplitGelu", {}, [f(2, 3, 8), f(8)]),
    ("BiasAdd", {}, [f(2, 3, 8), f(8), f(2, 3, 8)]),
    ("BiasSoftmax", {"axis": 1, "is_inner_broadcast": 1}, [f(2, 3), f(1, 3)]),
    ("GemmFastGelu", {}, [f(2, 3, 4), f(4, 5), f(5)]),
    ("FusedMatMul", {"transA": 1, "transB": 1}, [f(2, 8, 3), f(2, 5, 8)]),
    ("FusedMatMul", {"transBatchA": 1}, [f(3, 2, 2, 4), f(2, 2, 4, 5)]),
    ("FusedMatMul", {"transBatchA": 1, "transA": 1, "transBatchB": 1, "transB": 1}, [f(4, 2, 2, 3), f(5, 2, 2, 4)]),
    ("FusedMatMulActivation", {"activation": "Relu"}, [f(2, 3), f(3, 4)]),
    ("TransposeMatMul", {"transB": 1}, [f(2, 3), f(4, 3)]),
    ("FusedGemm", {"transA": 1, "activation": "Relu"}, [f(3, 2), f(3, 5), f(5)]),
    (
        "FusedConv",
        {"activation": "Relu", "pads": [1, 1, 1, 1], "strides": [2, 2]},
        [f(1, 4, 9, 8), f(6, 4, 3, 3), f(6)],
    ),
    ("SkipLayerNormalization", {}, [f(2, 3, 8), f(2, 3, 8), f(8), f(8), f(8)]),
    ("SkipSimplifiedLayerNormalization", {}, [f(2, 3, 8, dtype=F16), f(2, 3, 8, dtype=F16), f(8, dtype=F16)]),
    ("SimplifiedLayerNormalization", {}, [f(2, 3, 8, dtype=F16), f(8)]),
    (
        "EmbedLayerNormalization",
        {},
        [
            u(2, 5, dtype=np.int32),
            u(2, 5, dtype=np.int32, high=2),
            f(100, 8),
            f(7, 8),
            f(2, 8),
            f(8),
            f(8),
            np.ones((2, 5), np.int32),
        ],
    ),
    (
        "QEmbedLayerNormalization",
        {},
        [
            u(2, 5, dtype=np.int32),
            u(2, 5, dtype=np.int32, high=2),
            u(100, 8),
            u(7, 8),
            u(2, 8),
            u(8),
            u(8),
            None,
            ONE,
            ONE,
            ONE,
            ONE,
            ONE,
            ZERO,
            ZERO,
            ZERO,
            ZERO,
            ZERO,
        ],
    ),
    ("GroupNorm", NORM, [f(1, 4, 4, 8), f(8), f(8)]),
    ("SkipGroupNorm", NORM, [f(1, 4, 4, 8), f(8), f(8), f(1, 4, 4, 8)]),
    ("Attention", HEADS, [f(2, 3, 8), f(8, 24), f(24)]),
    ("Attention", {**HEADS, "unidirectional": 1}, [f(2, 3, 8), f(8, 24), f(24), None, f(2, 2, 2, 5, 4)]),
    ("Attention", {**HEADS, "qkv_hidden_sizes": [8, 8, 6]}, [f(2, 3, 8), f(8, 22), f(22)]),
    (
        "Attention",
        {**HEADS, "past_present_share_buffer": 1},
        [f(2, 3, 8), f(8, 24), f(24), None, f(2, 2, 2, 9, 4), None, i32(4).reshape(1)],
    ),
    (
        "MultiHeadAttention",
        HEADS,
        [*[f(2, 3, 8)] * 3, None, None, None, f(2, 2, 9, 4), f(2, 2, 9, 4), i32(4).reshape(1)],
    ),
    ("QAttention", HEADS, [u(2, 3, 8), u(8, 24), f(24), ONE, ONE]),
    ("MultiHeadAttention", HEADS, [f(2, 3, 8), f(2, 5, 8), f(2, 5, 6)]),
    ("MultiHeadAttention", HEADS, [f(2, 3, 2, 3, 4)]),
    ("MultiHeadAttention", HEADS, [f(2, 3, 8), f(2, 5, 2, 2, 4)]),
    ("MultiHeadAttention", HEADS, [f(2, 3, 8), f(2, 2, 5, 4), f(2, 2, 5, 4)]),
    ("MultiHeadAttention", HEADS, [f(2, 3, 8), f(2, 3, 8), f(2, 3, 8), None, None, None, f(2, 2, 6, 4), f(2, 2, 6, 4)]),
    (
        "GroupQueryAttention",
        GROUPED,
        [f(1, 3, 16), f(1, 3, 8), f(1, 3, 8), None, None, np.array([2], np.int32), np.array([3], np.int32)],
    ),
    (
        "GroupQueryAttention",
        GROUPED,
        [f(1, 3, 32), None, None, None, None, np.array([2], np.int32), np.array([3], np.int32)],
    ),
    (
        "GroupQueryAttention",
        {**GROUPED, "kv_cache_bit_width": 4, "k_quant_type": "PER_TENSOR", "v_quant_type": "PER_TENSOR"},
        [
            *[f(1, 1, 16), f(1, 1, 8), f(1, 1, 8), u(1, 2, 2, 2), u(1, 2, 2, 2)],
            *[i32(2).reshape(1), i32(3).reshape(1), *[None] * 5, f(1), f(1)],
        ],
    ),
    (
        "GroupQueryAttention",
        {**GROUPED, "sliding_window_cache": 1, "local_window_size": 2},
        [f(1, 3, 16), f(1, 3, 8), f(1, 3, 8), f(1, 2, 2, 4), f(1, 2, 2, 4), i32(8).reshape(1), i32(9).reshape(1)],
    ),
    (
        "DecoderMaskedMultiHeadAttention",
        {**HEADS, "past_present_share_buffer": 1},
        [*[f(2, 1, 8)] * 3, None, None, f(2, 2, 6, 4), f(2, 2, 6, 4), i32(3).reshape(1)],
    ),
    ("DecoderMaskedMultiHeadAttention", HEADS, [f(2, 1, 24), None, None, None, None, f(2, 2, 6, 4), f(2, 2, 6, 4)]),
    (
        "DecoderMaskedSelfAttention",
        {**HEADS, "past_present_share_buffer": 1},
        [f(2, 1, 8), f(8, 24), f(24), None, f(2, 2, 2, 6, 4), None, i32(3).reshape(1)],
    ),
    (
        "DecoderAttention",
        HEADS,
        [f(2, 3, 8), f(5, 3, 8), f(8, 8), f(8, 16), f(24), None, None, None, *[np.zeros(1, bool)] * 4],
    ),
    (
        "LongformerAttention",
        {**HEADS, "window": 1},
        [f(1, 4, 8), f(8, 24), f(24), f(1, 4), f(8, 24), f(24), np.zeros((1, 4), np.int32)],
    ),
    (
        "PackedMultiHeadAttention",
        HEADS,
        [f(4, 8), f(4, 8), f(4, 6), None, np.zeros((2, 3), np.int32), i32(0, 1, 4)],
    ),
    (
        "SparseAttention",
        {**GROUPED, "sparse_block_size": 16},
        [
            *[f(1, 3, 32), None, None, f(1, 2, 16, 4), f(1, 2, 16, 4), i32([[0, 1]]), i32([[0]])],
            *[i32(3).reshape(1), i32(3).reshape(1)],
        ],
    ),
    (
        "PagedAttention",
        GROUPED,
        [
            *[f(3, 16, dtype=F16), f(3, 8, dtype=F16), f(3, 8, dtype=F16), *[f(2, 4, 2, 4, dtype=F16)] * 2],
            *[i32(0, 1, 3), i32(2, 0), i32([[0], [1]])],
        ],
    ),
    (
        "PagedAttention",
        {"num_heads": 4, "kv_num_heads": 1, "kv_cache_layout": "LATENT", "v_head_size": 3, "scale": 0.5},
        [
            *[f(3, 16, dtype=F16), f(3, 4, dtype=F16), None, f(2, 4, 1, 4, dtype=F16), None],
            *[i32(0, 1, 3), i32(2, 0), i32([[0], [1]])],
        ],
    ),
    (
        "SparsePagedAttention",
        GROUPED,
        [
            *[f(3, 32, dtype=F16), None, None, *[f(2, 4, 2, 4, dtype=F16)] * 2, i32(0, 1, 3), i32(2, 0)],
            *[i32([[0], [1]]), None, i32([[0], [1], [0]]), i32(1, 1, 1)],
        ],
    ),
    (
        "DynamicSparseAttention",
        GROUPED,
        [
            *[f(1, 3, 16), f(1, 3, 8), f(1, 3, 8), f(1, 2, 6, 4), f(1, 2, 6, 4), None, None],
            *[i32([[0], [1], [2]]), i32(1, 1, 1), i32(2).reshape(1), i32(3).reshape(1)],
        ],
    ),
    (
        "SparseAttentionIndexer",
        {"policy_mode": "qsa", "compress_ratio": 2, "token_budget": 4},
        [f(1, 3, 8), f(1, 3, 4), f(4), f(4), f(9, 2), f(9, 2), None, f(1, 5, 4)],
    ),
    (
        "PackedSparseAttentionIndexer",
        {"policy_mode": "qsa", "compress_ratio": 2, "token_budget": 4, "state_capacity": 3},
        [
            *[f(3, 8), f(3, 4), f(4), f(4), f(9, 2), f(9, 2), i32(0, 3), i32(0).reshape(1), *[None] * 4],
            *[f(1, 3, 4), f(1, 3, 4), f(1, 3, 4), i32([[0, 0]])],
        ],
    ),
    (
        "SparseAttentionIndexer",
        {"policy_mode": "csa", "compress_ratio": 2, "index_topk": 4},
        [
            *[f(1, 3, 8), f(1, 3, 8), f(4), f(4), f(9, 2), f(9, 2), None, f(1, 5, 4), f(1, 3, 8), f(2, 8), f(1, 3, 2)],
            *[ids([13, 14, 15]), None, f(2, 1, 3, 8)],
        ],
    ),
    (
        "PackedSparseAttentionIndexer",
        {"policy_mode": "csa", "compress_ratio": 2, "index_topk": 4, "state_capacity": 3, "max_output_entries": 6},
        [
            *[f(3, 8), f(3, 8), f(4), f(4), f(9, 2), f(9, 2), i32(0, 3), i32(0).reshape(1)],
            *[f(3, 8), f(2, 8), f(3, 2), np.arange(3), f(1, 3, 4), f(1, 3, 8), f(1, 3, 8), i32([[0, 0]])],
            *[None, None, i32(0).reshape(1)],
        ],
    ),
    (
        "PackedSparseAttentionIndexerMerge",
        {"policy_mode": "append_range", "max_output_entries": 4},
        [i32([[0, 1]]), i32(2).reshape(1), i32(0, 0), i32(3, 4), i32(4, 5)],
    ),
    ("RotaryEmbedding", {}, [f(1, 3, 8), ids([0, 1, 2]), f(5, 2), f(5, 2)]),
    ("MatMulNBits", {"K": 64, "N": 10, "bits": 4, "block_size": 32}, [f(2, 3, 64), u(10, 2, 16), f(20)]),
    (
        "MatMulNBitsQkv",
        {"K": 32, "Nq": 4, "Nkv": 2, "block_size": 32},
        [f(2, 3, 32), None, f(32), u(4, 1, 16), f(4), None, u(2, 1, 16), f(2), None, u(2, 1, 16), f(2)],
    ),
    (
        "MatMulNBitsMlp",
        {"K": 32, "N": 4, "block_size": 32, "activation": "silu"},
        [f(3, 32), f(3, 32), f(32), u(4, 1, 16), f(4), None, u(4, 1, 16), f(4)],
    ),
    ("MoE", {"k": 2}, [f(2, 3, 8), f(6, 4), f(4, 5, 8), f(4, 5), f(4, 8, 5)]),
    ("QMoE", {}, [f(6, 8), f(6, 4), u(4, 6, 4), f(4, 6), None, u(4, 8, 3), f(4, 8)]),
    ("MatMulBnb4", {"K": 32, "N": 4, "block_size": 16, "quant_type": 1}, [f(2, 32), u(64), f(8)]),
    ("MatMulFpQ4", {}, [f(2, 3, 40), u(2 * 4 * 21), ids(40, 4)]),
    (
        "MatMulBlockQuantizedFp4Weight",
        {},
        [f(2, 3, 40, dtype=F16), u(6, 20), u(6, 3), f(1)],
    ),
    (
        "MatMulBlockQuantizedFp8Weight",
        {},
        [f(2, 3, 40, dtype=F16), f(6, 40).astype(ml_dtypes.float8_e4m3fn), f(6, 1)],
    ),
    ("GemmFloat8", {"transB": 1, "dtype": 10}, [f(3, 8), f(5, 8)]),
    (
        "MatMulNBitsQLoRA",
        {"K": 64, "N": 5},
        [f(2, 3, 64), u(5, 2, 16), f(5, 2), u(8, 2, 32), f(8, 2), u(5, 1, 32), f(5, 1)],
    ),
    ("GatherPacked", {"packed_type": 8, "K": 64, "output_dtype": 10}, [u(3, 68), ids([0, 1], [2, 1])]),
    ("MatMulPacked", {"packed_type": 8, "K": 64, "N": 3}, [f(2, 64, dtype=F16), u(3, 68, high=1)]),
    (
        "MoEPacked",
        {"gate_type": 8, "down_type": 8, "activation_type": "relu2"},
        [f(2, 32, dtype=F16), f(2, 3), u(3, 32, 34, high=1), None, u(3, 32, 34, high=1)],
    ),
    ("GatherBlockQuantized", {"block_size": 16}, [u(5, 16), ids([1, 2], [0, 3]), f(5, 2)]),
    ("DynamicQuantizeMatMul", {}, [f(2, 3, 4), u(4, 5, dtype=I8), ONE]),
    ("MatMulIntegerToFloat", {}, [u(2, 3), u(3, 4), ONE, ONE]),
    ("MatMulInteger16", {}, [u(2, 3, dtype=I16), u(3, 4, dtype=I16)]),
    ("MulInteger", {}, [u(2, 3), ZERO, u(3)]),
    ("ReduceSumInteger", {"axes": [1], "keepdims": 0}, [u(2, 3)]),
    ("QGemm", {}, [u(2, 3), ONE, ZERO, u(3, 4), ONE, ZERO, None, ONE, ZERO]),
    ("QGemm", {"transB": 1}, [u(2, 3), ONE, ZERO, u(4, 3), ONE, ZERO, u(4, dtype=np.int32)]),
    ("QLinearAdd", {}, [u(2, 3), ONE, ZERO, u(3), ONE, ZERO, ONE, ZERO]),
    ("QLinearMul", {}, [u(2, 1), ONE, ZERO, u(3), ONE, ZERO, ONE, ZERO]),
    ("QLinearSigmoid", {}, [u(2, 3), ONE, ZERO, ONE, ZERO]),
    ("QLinearLeakyRelu", {}, [u(2, 3), ONE, ZERO, ONE, ZERO]),
    ("QLinearSoftmax", {"opset": 13}, [u(2, 3), ONE, ZERO, ONE, ZERO]),
    ("QLinearConcat", {"axis": 1}, [ONE, ZERO, u(2, 3), ONE, ZERO, u(2, 4), ONE, ZERO]),
    ("QLinearWhere", {}, [np.array([[True], [False]]), u(2, 3), ONE, ZERO, u(3), ONE, ZERO, ONE, ZERO]),
    ("QLinearReduceMean", {"axes": [1], "keepdims": 1}, [u(2, 3), ONE, ZERO, ONE, ZERO]),
    ("QLinearAveragePool", {"kernel_shape": [2, 2], "strides": [2, 2]}, [u(1, 3, 5, 4), ONE, ZERO, ONE, ZERO]),
    ("QLinearAveragePool", {"kernel_shape": [2, 2], "channels_last": 1}, [u(1, 5, 4, 3), ONE, ZERO, ONE, ZERO]),
    ("QLinearGlobalAveragePool", {}, [u(1, 3, 5, 4), ONE, ZERO, ONE, ZERO]),
    ("QLinearGlobalAveragePool", {"channels_last": 1}, [u(1, 5, 4, 3), ONE, ZERO, ONE, ZERO]),
    ("NhwcMaxPool", {"kernel_shape": [2, 2], "ceil_mode": 1, "strides": [2, 2]}, [u(1, 5, 4, 3)]),
    (
        "QLinearConv",
        {"channels_last": 1, "pads": [1, 1, 1, 1]},
        [u(1, 5, 4, 3), ONE, ZERO, u(6, 3, 3, 3), ONE, ZERO, ONE, ZERO],
    ),
    (
        "DynamicQuantizeLSTM",
        {"hidden_size": 6},
        [f(7, 2, 4), u(1, 4, 24), u(1, 6, 24), f(1, 48), None, None, None, None, f(1), u(1), f(1), u(1)],
    ),
    ("QuantizeLinear", {}, [f(2, 3), ONE, ZERO]),
    ("DequantizeLinear", {}, [u(2, 3), ONE, ZERO]),
    ("Inverse", {}, [np.eye(3, dtype=np.float32)]),
    ("Trilu", {}, [f(3, 3)]),
    ("GatherND", {}, [f(3, 4), ids([0, 1], [2, 3])]),
    ("Pad", {}, [f(2, 3), ids(0, 1, 2, 0)]),
    ("Range", {}, [ids(2).reshape(()), ids(9).reshape(())]),
    ("Range", {}, [ids(9).reshape(()), ids(2).reshape(()), ids(-2).reshape(())]),
    ("Unique", {}, [np.array([3, 1, 3], np.float32)]),
    ("ExpandDims", {}, [f(2, 3), np.array(-2, np.int32)]),
    ("CDist", {"metric": "euclidean"}, [f(4, 3, dtype=F64), f(5, 3, dtype=F64)]),
    ("GatedRMSNorm", {}, [f(2, 8, dtype=F16), f(4, dtype=F16), f(2, 8, dtype=F16)]),
    ("GatedAdd", {}, [f(2, 3), f(2, 3), f(2, 1)]),
    ("SwiGLU", {}, [f(2, 8)]),
    ("SwiGLU", {}, [f(2, 8), f(2, 8)]),
    ("BiasDropout", {}, [f(2, 8), f(8), f(2, 8)]),
    ("MRotaryEmbedding", {"mrope_section": [1, 1, 0]}, [f(1, 3, 8), np.zeros((3, 1, 3), np.int64), f(5, 2), f(5, 2)]),
    (
        "GatedRelativePositionBias",
        HEADS,
        [f(2, 3, 8), f(8), f(1, 2, 3, 3), f(4, 8), f(8), f(1, 2, 1, 1)],
    ),
    ("RemovePadding", {}, [f(2, 3, 4), np.array([3, 1], np.int32)]),
    ("RestorePadding", {}, [f(4, 5), np.array([[0, 1, 2], [3, 4, 5]], np.int32)]),
    (
        "PackedAttention",
        HEADS,
        [f(4, 6), f(6, 12), f(12), np.array([[0, 1, 2], [3, 4, 5]], np.int32), np.array([0, 3, 4], np.int32)],
    ),
    ("NhwcConv", {"pads": [1, 1, 1, 1]}, [f(1, 5, 6, 4), f(3, 3, 3, 4), f(3)]),
    ("NhwcFusedConv", {"activation": "Relu", "strides": [2, 2]}, [f(1, 5, 6, 4), f(3, 4, 3, 3), f(3)]),
    ("ComplexMul", {}, [f(2, 3, 2), f(3, 2)]),
    ("ComplexMulConj", {}, [f(3, 2), f(3, 2)]),
    ("Rfft", {"signal_ndim": 1, "normalized": 0, "onesided": 1}, [f(2, 9)]),
    ("Rfft", {"signal_ndim": 2, "normalized": 0, "onesided": 1}, [f(2, 6, 8)]),
    ("Irfft", {"signal_ndim": 1, "normalized": 0, "onesided": 1}, [f(2, 5, 2)]),
    ("UnfoldTensor", {"dim": 1, "size": 3, "step": 2}, [f(2, 8, 3)]),
    ("IsAllFinite", {}, [f(2), f(3)]),
    ("TorchEmbedding", {}, [f(10, 4), ids([1, 2, 3])]),
    ("ConvTransposeWithDynamicPads", {"strides": [2, 2]}, [f(1, 3, 4, 4), f(3, 2, 3, 3), ids(1, 1, 0, 0)]),
    (
        "CropAndResize",
        {},
        [f(1, 3, 8, 8), np.array([[0, 0, 1, 1]], np.float32), np.array([0], np.int32), np.array([4, 5], np.int32)],
    ),
    ("GridSample", {}, [f(1, 2, 4, 4), f(1, 3, 5, 2)]),
    ("MurmurHash3", {"positive": 0}, [np.array(["a", "bc"], STRING)]),
    ("NGramRepeatBlock", {"ngram_size": 2}, [ids([1, 2, 1]), f(1, 5)]),
    ("RelativePositionBias", {"max_distance": 20}, [f(8, 4), ids(3), ids(5)]),
    ("DynamicTimeWarping", {}, [f(3, 4)]),
    ("CausalConvWithState", {}, [f(1, 4, 7), f(4, 1, 3)]),
    ("CausalConvWithState", {"channels_last": 1, "dilation": 2, "state_window": 3}, [f(1, 7, 2, 2), f(4, 1, 3)]),
    (
        "CausalConvWithState",
        {"channels_last": 1, "input_channels": 3, "state_length": 4, "state_channels_last": 0},
        [f(1, 7, 5), f(3, 1, 3)],
    ),
    (
        "LinearAttention",
        {"q_num_heads": 1, "kv_num_heads": 2, "update_rule": "linear", "state_window": 3},
        [f(1, 5, 4), f(1, 5, 8), f(1, 5, 6)],
    ),
    ("SampleOp", {}, [f(2, 3)]),
    ("SparseToDenseMatMul", {"transB": 1}, [f(2, 3), f(4, 3)]),
    ("BifurcationDetector", {}, [ids(1, 2, 3), ids(4, 2), ids(0).reshape(1)]),
    ("WordConvEmbedding", {}, [np.ones((5, 4), np.int32), f(6, 1, 2, 3), f(6), f(9, 3)]),
    ("MaxpoolWithMask", {"kernel_shape": [3, 3], "strides": [2, 1]}, [f(1, 2, 7, 8), np.ones((1, 1, 7, 8), np.int32)]),
    ("BitmaskDropout", {}, [f(5, 13)]),
    ("BitmaskBiasDropout", {}, [f(5, 13), f(13)]),
    ("ScaledSiLU", {}, [f(2, 3)]),
    ("BranchwiseRMSNorm", {"num_branches": 3}, [f(2, 12, dtype=F16)]),
    ("HyperConnectionPreMix", {}, [f(2, 3, 4), f(2, 3)]),
    ("HyperConnectionPreMix", {"num_branches": 3}, [f(2, 12), f(2, 3)]),
    ("HyperConnectionPostMix", {"num_branches": 3}, [f(2, 12), f(2, 4), f(2, 3)]),
    ("HyperConnectionLowRankMix", {"num_branches": 3}, [f(2, 12), f(12), f(12, 5), f(5, 12), f(12, 3)]),
    ("EngramGate", {}, [f(1, 2, 3, 4), f(1, 2, 3, 4), f(1, 2, 4), f(3, 4), f(3, 4), f(3, 4)]),
    ("LinearAttentionGate", {}, [f(1, 2, 3), f(3), f(3), f(1, 2, 3)]),
    ("MoEGroupRouter", {"top_k": 2}, [f(2, 3, 8, dtype=F16), f(8)]),
    ("RouterGateUpProj", {"router_size": 3}, [f(2, 4, dtype=F16), f(4, 7, dtype=F16)]),
    ("GemmaRotaryEmbedding", {}, [f(1, 2, 4), *[f(1, 3, 2, 4, dtype=F16)] * 4]),
    (
        "RMSNormRotary",
        {"rotary_embedding_dim": 2, "input_start": 1},
        [f(1, 2, 3, 5, dtype=F16), f(4), ids(0), f(4, 1), f(4, 1)],
    ),
    (
        "RMSNormRotary",
        {"rotary_embedding_dim": 2, "output_fp16": 1, "flatten_batch": 1},
        [f(1, 2, 3, 4, dtype=F16), f(4), ids(0), f(4, 1), f(4, 1)],
    ),
    (
        "NGramHashMapping",
        {"max_ngram_size": 3, "n_head_per_ngram": 1, "pad_id": 0},
        [ids([1, 2]), ids(3, 5, 7), ids(5, 7)],
    ),
    (
        "VarlenNGramHashMapping",
        {"max_ngram_size": 3, "n_head_per_ngram": 1, "pad_id": 0},
        [ids(1, 2), ids(3, 5, 7), ids(5, 7), i32(0, 2)],
    ),
    (
        "AttnLSTM",
        {"hidden_size": 6},
        [
            *[f(5, 2, 4), f(1, 24, 7), f(1, 24, 6)],
            *[None] * 5,
            *[f(1, 6, 5), f(1, 3, 5), f(1, 5), f(2, 8, 3)],
        ],
    ),
    ("GatedDeltaNet", {"update_rule": "linear"}, [f(5, 2, 4), f(5, 2, 4), f(5, 4, 3), i32(0, 2, 5)]),
    (
        "GatedDeltaNet",
        {"update_rule": "linear"},
        [f(2, 3, 28, dtype=F16), None, None, None, None, None, f(2, 4, 3, 4)],
    ),
    (
        "GatedDeltaNetStateReplay",
        {},
        [f(8), f(20), f(9), ids(0, 0, 0, 1, 5, 1, 2, 4, 1, 1, 1)],
    ),
    ("ConvStateReplay", {}, [f(6), f(8), f(9), ids(0, 0, 0, 1, 2, 3, 4, 1)]),
    ("VarlenCausalConvWithState", {}, [f(5, 3), f(3, 1, 4), i32(0, 2, 5), None, f(2, 3, 3)]),
    (
        "Mamba2Verify",
        {"heads": 2, "n_groups": 1, "head_dim": 3, "d_state": 4},
        [f(2, 22), f(3, 14, 3), f(3, 2, 4, 3), f(14, 4), f(14), f(2), f(2), f(2), f(6), i32(0).reshape(1)],
    ),
    (
        "LinearAttention",
        {"q_num_heads": 4, "kv_num_heads": 2, "update_rule": "linear"},
        [f(1, 5, 16), f(1, 5, 8), f(1, 5, 6)],
    ),
]

SEVERAL = {"GroupQueryAttention": 4, "MultiHeadAttention": 4}
UNKNOWN_SHAPE = {
    "DecoderAttention",
    "BifurcationDetector",
    "GatedDeltaNet",
    "DynamicTimeWarping",
    "RemovePadding",
    "Unique",
}


CONTRIBUTED = {s.name: s for s in onnxruntime_state.get_all_operator_schema() if s.domain == "com.microsoft"}
"""Onnxruntime's own schemas."""

SEARCHES = {"BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"}
"""Operators with sub-graphs, whose inference the tests of text generation check."""


def array_type(value: np.ndarray) -> TensorType:
    return TensorType(STRING if value.dtype.kind in "USO" else value.dtype, value.shape)


@pytest.mark.parametrize(("op", "attributes", "inputs"), CASES, ids=[f"{i}-{c[0]}" for i, c in enumerate(CASES)])
def test_operator(op: str, attributes: dict[str, Any], inputs: list[Any]):
    operator = find(op, "com.microsoft", 1)
    assert operator is not None
    injected: dict[str, Any] = {"n_outputs": 1, "opset": 1, "output_types": [None] * 4}
    keywords = {**{k: injected[k] for k in operator.injected}, **attributes}
    with np.errstate(all="ignore"):
        result = operator.function(*inputs, **keywords)
    results = list(result if isinstance(result, tuple) else (result,))
    schema = CONTRIBUTED.get(op)
    assert schema is None or len(results) == len(schema.outputs)
    while results[-1] is None:
        results.pop()
    results = [np.asarray(r) for r in results]
    results = results[: SEVERAL.get(op, len(results))]
    names = ["" if v is None else f"i{i}" for i, v in enumerate(inputs)]
    node = Node(op, names, [f"o{i}" for i in range(len(results))], attributes, "com.microsoft")
    types = [None if v is None else array_type(v) for v in inputs]
    found = infer_node(node, types, inputs)
    unknown = infer_node(node, types)
    for type_, weaker, value in zip(found, unknown, results, strict=True):
        assert isinstance(type_, TensorType)
        assert isinstance(weaker, TensorType)
        if op in UNKNOWN_SHAPE or attributes.get("qkv_hidden_sizes"):
            assert type_.dtype == value.dtype
            assert type_.shape is None or all(d in (None, n) for d, n in zip(type_.shape, value.shape, strict=True))
        else:
            assert type_ == array_type(value)
        assert weaker.dtype == value.dtype
        assert weaker.shape is None or all(d in (None, n) for d, n in zip(weaker.shape, value.shape, strict=True))


def test_every_operator_has_inference_and_is_tested():
    names = {o.name for o in registered() if o.domain == "com.microsoft"}
    assert {n for n in names if find_inference(Node(n, [], [], domain="com.microsoft")) is None} == set()
    assert names - {c[0] for c in CASES} <= {"Tokenizer", *SEARCHES}
