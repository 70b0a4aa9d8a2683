"""Mixtures of experts: every token goes through the few layers that its router prefers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ...errors import UnsupportedError
from ...model.dtypes import float_values
from ..activations import gelu, relu, sigmoid, softmax, swish
from ..common import to_float32
from ..precision import narrow
from ..registry import op
from .blockwise import unpack_bits

MICROSOFT = "com.microsoft"


def gelu_tanh(x: np.ndarray) -> np.ndarray:
    return gelu(x, approximate="tanh")


ACTIVATIONS = {
    "relu": relu,
    "gelu": gelu_tanh,  # in experts GELU is the approximation
    "silu": swish,
    "relu2": lambda x: np.square(relu(x)),
    "identity": lambda x: x,
}


JITTER = np.float32(0.01)
"""How far logits may be from the greatest one to count as near it, for the sparse mixer."""


def routing(logits: np.ndarray, k: int, normalize: int, weights: np.ndarray | None) -> tuple[np.ndarray, np.ndarray]:
    """The k experts of each token, and their shares of its result.

    Shares are softmax over all experts, or over the chosen ones if they are to be normalised; or given `weights`.
    """
    if not 1 <= k <= logits.shape[1]:
        raise ValueError(f"k is {k}, of {logits.shape[1]} experts")
    chosen = np.argsort(-logits, axis=1, kind="stable")[:, :k]
    if weights is not None:
        shares = np.take_along_axis(weights, chosen, axis=1)
        return chosen, shares / shares.sum(axis=1, keepdims=True) if normalize else shares
    if normalize:
        return chosen, softmax(np.take_along_axis(logits, chosen, axis=1))
    return chosen, np.take_along_axis(softmax(logits), chosen, axis=1)


def mixed(logits: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
    """The two experts of each token by SparseMixer (Liu et al., GRIN: GRadient-INformed MoE, 2024), and their shares.

    Each is the best that is not chosen yet. Its share is softmax over it and those near it, whose logits are less by no
    more than 2 % of the greater of its own and their magnitude.
    """
    if k != 2 or logits.shape[1] < 2:
        raise ValueError(f"the sparse mixer chooses 2 experts, not {k} of {logits.shape[1]}")
    chosen, shares = np.zeros((len(logits), k), np.intp), np.zeros((len(logits), k), np.float32)
    left = logits.copy()
    for rank in range(k):
        at = left.argmax(axis=1)[:, None]
        greatest = np.take_along_axis(left, at, axis=1)
        far = greatest - left > 2 * JITTER * np.maximum(np.abs(logits), greatest)
        share = softmax(np.where(far, -np.inf, left))
        chosen[:, rank], shares[:, rank] = at[:, 0], np.take_along_axis(share, at, axis=1)[:, 0]
        np.put_along_axis(left, at, -np.inf, axis=1)
    return chosen, shares


def swi_glu(
    gate: np.ndarray, linear: np.ndarray, alpha: float, beta: float, limit: float | None, after: int
) -> np.ndarray:
    """gate * sigmoid(alpha * gate) * (linear + beta), both clamped to the limit (the gate from above alone)."""
    if limit is not None:
        linear = np.clip(linear, -limit, limit)
        if not after:
            gate = np.minimum(gate, limit)
    activated = gate * sigmoid(alpha * gate)
    if limit is not None and after:
        activated = np.minimum(activated, limit)
    return activated * (linear + beta)


def mixture(
    x: np.ndarray,
    router_probs: np.ndarray,
    layers: list[tuple[np.ndarray | None, np.ndarray | None]],
    router_weights: np.ndarray | None,
    activation_alpha: float,
    activation_beta: float,
    activation_type: str,
    k: int,
    normalize_routing_weights: int,
    swiglu_fusion: int,
    swiglu_limit: float | None,
    swiglu_limit_after_activation: int,
    use_sparse_mixer: int,
) -> np.ndarray:
    """`layers` are weights (experts, outputs, inputs) and biases of the first, the second and the gate's layer."""
    if activation_type not in (*ACTIVATIONS, "swiglu", "geglu"):
        raise ValueError(f"activation_type is {activation_type!r}; known are {', '.join(ACTIVATIONS)}, swiglu, geglu")
    tokens = to_float32(x).reshape(-1, x.shape[-1])
    if use_sparse_mixer:
        chosen, shares = mixed(to_float32(router_probs), k)
    else:
        chosen, shares = routing(to_float32(router_probs), k, normalize_routing_weights, to_float32(router_weights))

    def apply(layer: int, expert: int, inputs: np.ndarray) -> np.ndarray:
        weights, bias = layers[layer]
        assert weights is not None
        y = np.matmul(inputs, weights[expert].T)
        return y if bias is None else y + to_float32(bias)[expert]

    result = np.zeros_like(tokens)
    for expert in np.unique(chosen):
        row, rank = np.nonzero(chosen == expert)
        first = apply(0, expert, tokens[row])
        if activation_type in ("swiglu", "geglu"):
            if swiglu_fusion == 1:
                gate, linear = first[:, ::2], first[:, 1::2]
            elif swiglu_fusion == 2:
                gate, linear = np.split(first, 2, axis=1)
            else:
                gate, linear = first, apply(2, expert, tokens[row])
            if activation_type == "geglu":
                hidden = gelu_tanh(gate) * linear
            else:
                hidden = swi_glu(
                    gate, linear, activation_alpha, activation_beta, swiglu_limit, swiglu_limit_after_activation
                )
        else:
            hidden = ACTIVATIONS[activation_type](first)
            if layers[2][0] is not None:
                hidden = hidden * apply(2, expert, tokens[row])
        result[row] += apply(1, expert, hidden) * shares[row, rank][:, None]
    return narrow(result.reshape(x.shape), x.dtype)


@op("MoE", domain=MICROSOFT)
def moe(
    x: np.ndarray,
    router_probs: np.ndarray,
    fc1_weights: np.ndarray,
    fc1_bias: np.ndarray | None,
    fc2_weights: np.ndarray,
    fc2_bias: np.ndarray | None = None,
    fc3_weights: np.ndarray | None = None,
    fc3_bias: np.ndarray | None = None,
    *,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    k: int = 1,
    normalize_routing_weights: int = 0,
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0,
):
    weights = [to_float32(w) for w in (fc1_weights, fc2_weights, fc3_weights)]
    return mixture(
        x, router_probs, list(zip(weights, (fc1_bias, fc2_bias, fc3_bias), strict=True)), None, activation_alpha,
        activation_beta, activation_type, k, normalize_routing_weights, swiglu_fusion, swiglu_limit,
        swiglu_limit_after_activation, use_sparse_mixer,
    )  # fmt: skip


@dataclass(frozen=True)
class Packed:
    """The weights of one layer of experts as they are stored, and what turns them into numbers."""

    weights: np.ndarray | None
    scales: np.ndarray | None
    zero_points: np.ndarray | None
    global_scale: np.ndarray | None
    bits: int

    def numbers(self, quant_type: str, block_size: int, prepacked: int) -> np.ndarray | None:
        """Weights (experts, outputs, inputs)."""
        if self.weights is None or self.weights.size == 0:
            return None
        if quant_type == "fp8" and block_size <= 0:
            return to_float32(self.weights) * self.by_expert()
        if self.scales is None:
            raise ValueError("quantised experts need scales")
        scales = to_float32(self.scales)
        if quant_type == "fp8":  # square blocks
            spread = np.repeat(np.repeat(scales, block_size, axis=1), block_size, axis=2)
            return to_float32(self.weights) * spread[:, : self.weights.shape[1], : self.weights.shape[2]]
        if quant_type == "int":
            return self.integers(scales, block_size)
        values = float_values("float4_e2m1fn")
        if quant_type == "nvfp4" and prepacked != 1:  # (experts, inputs, outputs / 2)
            numbers = values[unpack_bits(self.weights, 4, 2 * self.weights.shape[2])].swapaxes(1, 2)
        else:
            experts, rows = scales.shape[:2]
            packed = self.weights.reshape(experts, rows, -1)
            numbers = values[unpack_bits(packed, 4, 2 * packed.shape[2])]
        block = 16 if quant_type == "nvfp4" else 32
        return numbers * np.repeat(scales, block, axis=2)[:, :, : numbers.shape[2]] * self.by_expert()

    def by_expert(self) -> np.ndarray:
        if self.global_scale is None:
            raise ValueError("experts in narrow floats need a global scale")
        return self.global_scale.reshape(-1, 1, 1)

    def integers(self, scales: np.ndarray, block_size: int) -> np.ndarray:
        """Integers packed along the inputs, with a scale per row or block."""
        assert self.weights is not None
        inputs = self.weights.shape[2] * 8 // self.bits
        scale = scales.reshape(*self.weights.shape[:2], -1)
        block = block_size if block_size > 0 else inputs
        values = unpack_bits(self.weights, self.bits, inputs).astype(np.float32)
        if self.zero_points is None:
            values -= 1 << (self.bits - 1)
        else:
            packed = self.zero_points.reshape(*self.weights.shape[:2], -1)
            zeros = unpack_bits(packed, self.bits, scale.shape[2]).astype(np.float32)
            values -= np.repeat(zeros, block, axis=2)[:, :, :inputs]
        return values * np.repeat(scale, block, axis=2)[:, :, :inputs]


@op("QMoE", domain=MICROSOFT)
def q_moe(
    x: np.ndarray,
    router_probs: np.ndarray,
    fc1_weights: np.ndarray,
    fc1_scales: np.ndarray | None,
    fc1_bias: np.ndarray | None,
    fc2_weights: np.ndarray,
    fc2_scales: np.ndarray | None = None,
    fc2_bias: np.ndarray | None = None,
    fc3_weights: np.ndarray | None = None,
    fc3_scales: np.ndarray | None = None,
    fc3_bias: np.ndarray | None = None,
    fc1_zero_points: np.ndarray | None = None,
    fc2_zero_points: np.ndarray | None = None,
    fc3_zero_points: np.ndarray | None = None,
    router_weights: np.ndarray | None = None,
    fc1_global_scale: np.ndarray | None = None,
    fc2_global_scale: np.ndarray | None = None,
    fc1_act_scale: np.ndarray | None = None,
    fc2_act_scale: np.ndarray | None = None,
    fc1_act_block_scale: np.ndarray | None = None,
    fc2_act_block_scale: np.ndarray | None = None,
    *,
    accuracy_level: int = 0,
    activation_alpha: float = 1.0,
    activation_beta: float = 0.0,
    activation_type: str = "relu",
    block_size: int = 0,
    expert_weight_bits: int = 4,
    fc1_expert_weight_bits: int | None = None,
    fc2_expert_weight_bits: int | None = None,
    fc3_expert_weight_bits: int | None = None,
    k: int = 1,
    normalize_routing_weights: int = 0,
    quant_type: str = "int",
    swiglu_fusion: int = 0,
    swiglu_limit: float | None = None,
    swiglu_limit_after_activation: int = 0,
    use_sparse_mixer: int = 0,
    weights_prepacked: int = -1,
):
    """MoE whose experts' weights are integers of 2, 3, 4 or 8 bits, or floats of 4 or 8."""
    if quant_type not in ("int", "fp4", "nvfp4", "fp8"):
        raise UnsupportedError(f"experts quantised as {quant_type!r} are not implemented")
    layers = []
    for weights, scales, bias, zeros, whole, bits in (
        (fc1_weights, fc1_scales, fc1_bias, fc1_zero_points, fc1_global_scale, fc1_expert_weight_bits),
        (fc2_weights, fc2_scales, fc2_bias, fc2_zero_points, fc2_global_scale, fc2_expert_weight_bits),
        (fc3_weights, fc3_scales, fc3_bias, fc3_zero_points, fc1_global_scale, fc3_expert_weight_bits),
    ):
        packed = Packed(weights, scales, zeros, whole, bits or expert_weight_bits)
        layers.append((packed.numbers(quant_type, block_size, weights_prepacked), bias))
    return mixture(
        x, router_probs, layers, router_weights, activation_alpha, activation_beta, activation_type, k,
        normalize_routing_weights, swiglu_fusion, swiglu_limit, swiglu_limit_after_activation, use_sparse_mixer,
    )  # fmt: skip
