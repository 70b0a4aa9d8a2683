"""Weights in the packed formats of GGUF: GatherPacked, MatMulPacked, MoEPacked.

The formats are those of ggml by their numbers there (https://github.com/ggml-org/ggml, `ggml-common.h`): a row is a run
of blocks, each with a scale of its own in float16 and a few bits for each number.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from ...errors import UnsupportedError
from ...model.dtypes import dtype_of
from ..activations import relu, sigmoid, softmax, swish
from ..common import to_float32
from ..precision import narrow
from ..registry import op
from .layers import MICROSOFT
from .streams import best, rounded


def half(blocks: np.ndarray, at: int) -> np.ndarray:
    """The float16 numbers (..., 1) that begin at a byte of blocks (..., bytes)."""
    return np.ascontiguousarray(blocks[..., at : at + 2]).view("<f2").astype(np.float32)


def words(blocks: np.ndarray, first: int, last: int, dtype: str) -> np.ndarray:
    """The integers that fill the bytes from `first` to `last`."""
    return np.ascontiguousarray(blocks[..., first:last]).view(dtype)


def nibbles(bytes_: np.ndarray) -> np.ndarray:
    """All low halves of the bytes of the last axis, and then all high ones."""
    return np.concatenate([bytes_ & 15, bytes_ >> 4], axis=-1)


def bits(values: np.ndarray, width: int, count: int) -> np.ndarray:
    """`count` numbers of `width` bits from each integer, the lowest first, on a new last axis."""
    shifts = np.arange(count, dtype=values.dtype) * values.dtype.type(width)
    return (values[..., None] >> shifts) & values.dtype.type((1 << width) - 1)


def plain(element_type: int) -> Callable[[np.ndarray], np.ndarray]:
    """Floats that are not packed, by their number in ONNX."""
    return lambda blocks: to_float32(np.ascontiguousarray(blocks).view(dtype_of(element_type)))


def q4_0(blocks: np.ndarray) -> np.ndarray:
    return half(blocks, 0) * (nibbles(blocks[..., 2:]).astype(np.float32) - 8)


def q5_0(blocks: np.ndarray) -> np.ndarray:
    high = bits(words(blocks, 2, 6, "<u4"), 1, 32)[..., 0, :]
    return half(blocks, 0) * (nibbles(blocks[..., 6:]) + 16.0 * high - 16).astype(np.float32)


def q8_0(blocks: np.ndarray) -> np.ndarray:
    return half(blocks, 0) * words(blocks, 2, 34, "i1")


def q5_k(blocks: np.ndarray) -> np.ndarray:
    """Eight parts of 32 numbers of five bits, each with a scale and a minimum of six bits."""
    packed = blocks[..., 4:16]
    low, middle, high = packed[..., :4], packed[..., 4:8], packed[..., 8:]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6 << 4)], axis=-1)
    minima = np.concatenate([middle & 63, (high >> 4) | (middle >> 6 << 4)], axis=-1)
    quants = blocks[..., 48:].reshape(*blocks.shape[:-1], 4, 32)
    quants = np.stack([quants & 15, quants >> 4], axis=-2).reshape(*blocks.shape[:-1], 8, 32)
    fifth = np.moveaxis(bits(blocks[..., 16:48], 1, 8), -1, -2)
    numbers = quants + 16.0 * fifth
    factor, shift = half(blocks, 0) * scales, half(blocks, 2) * minima
    return (factor[..., None] * numbers.astype(np.float32) - shift[..., None]).reshape(*blocks.shape[:-1], -1)


def q6_k(blocks: np.ndarray) -> np.ndarray:
    """Two halves of four runs of 32 numbers of six bits; each 16 have a scale."""
    lead = blocks.shape[:-1]
    low = nibbles(blocks[..., :128].reshape(*lead, 2, 64)).reshape(*lead, 2, 4, 32)
    high = np.moveaxis(bits(blocks[..., 128:192].reshape(*lead, 2, 32), 2, 4), -1, -2)
    numbers = (low + 16.0 * high - 32).astype(np.float32).reshape(*lead, 16, 16)
    scales = half(blocks, 208) * words(blocks, 192, 208, "i1")
    return (scales[..., None] * numbers).reshape(*lead, 256)


def q2_0(blocks: np.ndarray) -> np.ndarray:
    numbers = bits(blocks[..., 2:], 2, 4).reshape(*blocks.shape[:-1], 64)
    return half(blocks, 0) * (numbers.astype(np.float32) - 1)


IQ4 = np.array([-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113], np.float32)
"""The numbers that four bits stand for in the formats IQ4."""


def iq4_nl(blocks: np.ndarray) -> np.ndarray:
    return half(blocks, 0) * IQ4[nibbles(blocks[..., 2:])]


def iq4_xs(blocks: np.ndarray) -> np.ndarray:
    """Eight parts of 32 numbers with scales of six bits."""
    lead = blocks.shape[:-1]
    high = bits(words(blocks, 2, 4, "<u2"), 2, 8)[..., 0, :]
    low = bits(blocks[..., 4:8], 4, 2).reshape(*lead, 8)
    scales = half(blocks, 0) * (low + 16.0 * high - 32).astype(np.float32)
    numbers = IQ4[nibbles(blocks[..., 8:].reshape(*lead, 8, 16))]
    return (scales[..., None] * numbers).reshape(*lead, 256)


LEVELS_2 = np.array([8, 25, 43], np.float32)
LEVELS_3 = np.array([4, 12, 20, 28, 36, 44, 52, 62], np.float32)


def grid(text: str, levels: np.ndarray, size: int) -> np.ndarray:
    """The vectors (vectors, size) of a codebook: each a number whose digits, the lowest first, name levels; the numbers
    ascend and are stored as their differences."""
    steps = np.frombuffer(zlib.decompress(base64.b85decode(text)), "<u2").astype(np.int64)
    return levels[np.cumsum(steps)[:, None] // len(levels) ** np.arange(size) % len(levels)]


IQ2_XXS = grid(
    "c-mEw!AiqG6h*Hxgb;=xA%sE7P$Wnw5<+oNqze}!(nXOjq|1JZOFzJG@mu^J&%BO72{W1Z=HC16dm~-``3jbs&xM@}TVAF8ooYoQPt>T_wPmZB"
    ">+{*qajlk9rC^N6`qlNbe#dRl2Gn!bE5Z3(FCiN;l_u6YGd;R1Ep-Fp$ykjR_;Ey|?kv;k%6zZcC;qP)S8D*<>O@t~&AaaZbzFdVxs%3pQykcX"
    "`H1GBN4+E3>X4C+N-JY-aCYuA_1Cipyp8miJOu4@3$h}=gum6^_yOesZiM0V26EJgzD>Qw#lj~4sF(RI(i@~1blf*+9&|+eJpYmGpa(p)R66R5"
    "seBqXf;p+YnDhhew-^K",
    LEVELS_2,
    8,
)

IQ2_XS = grid(
    "c-n=ML2JV>426XW#+VR72%(HnN*JMx5=t38j2(LDX^fr6PCM<m-?E>)&$1WVrs*(oB~^M)dX|WpIoTE8p4j2@S1avVg-yTJS=8&DNg+<^f0)AU"
    "XE8hoty+b~TUlImlPOy0BnQEzXho)lyW-v?hFe|Olgeoq71)LjV!YzqPqKoQW4EbdkJrdH@sxNqekOw)<zb@fA5S$}mYNkc9TP{El6w!nC!XUy"
    "r`bKYHQhZCUGVjqe@pjE?XJ(9!QoO>q1@B`h}x8D<*Idfu?A}xQ5>fuUZ<JfW;UoDx5mh$EM+%p<5ZXMx)w#PtU+n;a_z8FO^kf&Zp4n9>TTo;"
    "v?W=EylO8Sc?WwZ2dYBl+y*o!x&>~Fs`1s!v16mUR77ex2JT+BuB6&4hLcY?0<s^cEckyxZYwX`HSs%D;Xt*azYnJCdE1q;MV%e!136vNK2(Qp"
    "*7BnmasRf86J9B3-^23@mMj^e",
    LEVELS_2,
    8,
)

IQ2_S = grid(
    "c-oy+OKQVF3>9GzLojAAC757JFvWyWvM3>oE_;Tap^M!A0F^XjXZ~@5u|1ZhXX!m@46rF2YQ;0sRb?YFiBiEEjC>GufY1uEBCCFoM|@!6iz$kF"
    "kT=3M%E-4PbeS4UY;YxQkRMxoL``^%Ypq)tp~+URs`{vE)iovWYqRi!E_Za+e9g}>S@U50l;wS*n@%G843>c%tr($&V^J%cg_aIffktyrVvvm{"
    "U1oNA;YAfYu3i~;)ZpG3m;#>nj%kE%s-hu3?uNIOiu$vF*{pK&Qdeg7#;A_|<vv@}6|(|emeHMft4e%RjBQ10UR|Hs@xnQIt*1G1SRI|S4NC`I"
    "Gw(Ishow3LC+eJZ_wbc0^JM5Nmajv!WBHlzT(GBsAJ@T0`es9Y{0pDKy!tzfzZ0Uj^OX5U=VQIB<(x37SM#W4rY!0;n7~O;dg`$Yog1p96N~aD"
    "r=<2BMH7y-ens4;eRz`04-`2r>RxCy()}j5_K!I4P7|F2<u;0bjQZ|)QVwwx?F{@8j-d?BRP7*t7tZ2?p8f%+y&0h",
    LEVELS_2,
    8,
)

IQ3_XXS = grid(
    "c-l>nT~C8R5JfK_-_RlyslnFP+N2s2qdxnlzBT^;f8&`cA%^TOJ9FmFos~kqn02LqJyot-zg?m!f03W1DrFO$dc>$gi58rRSC=}d(+a}q(BqvN"
    "eP|$Rnmu$gYhO;Q3$*r##a`!pss|K8YI4=om1rDvVsFu{bSAU=r(|Ap-MeNqDU3c@=C_N>n!U!4&Gy3Dqq62+z<#@%L3i_vJ#0L?C^<*(R+DM8"
    "#K|Xn2a(`tq<c%|#9BcwU@Ll@xh?72KwWDKbtG$@dvcMhzteZXX#zDs*ld}ew3+74i2mZ($i^!+5L=WUsrf<es5d%W-d-TUNdsT#8DFt(@NE6|"
    "MD2}Qed!PKX%Cq",
    LEVELS_3,
    4,
)

PARITY = np.bitwise_xor.reduce(bits(np.arange(128, dtype=np.uint8), 1, 7), axis=-1)


def signs(codes: np.ndarray, count: int = 8) -> np.ndarray:
    """Signs (..., 8) by the bits of codes: a set bit is a minus."""
    return 1 - 2 * bits(codes.astype(np.uint8), 1, count).astype(np.float32)


def even_signs(codes: np.ndarray) -> np.ndarray:
    """Signs by seven bits; the eighth makes the number of minuses even."""
    return signs(codes.astype(np.uint8) | PARITY[codes.astype(np.int64)] << 7)


def iq2_xxs(blocks: np.ndarray) -> np.ndarray:
    """Eight parts of four vectors, with seven bits of signs for each and a scale of four bits."""
    lead = blocks.shape[:-1]
    parts = blocks[..., 2:].reshape(*lead, 8, 8)
    rest = words(parts, 4, 8, "<u4")
    scales = half(blocks, 0)[..., None] * (0.5 + (rest >> np.uint32(28))) * 0.25
    numbers = IQ2_XXS[parts[..., :4]] * even_signs(bits(rest, 7, 4)[..., 0, :])
    return (scales[..., None] * numbers).astype(np.float32).reshape(*lead, 256)


def iq2_xs(blocks: np.ndarray) -> np.ndarray:
    """32 vectors with signs of seven bits; each two have a scale of four bits."""
    lead = blocks.shape[:-1]
    codes = words(blocks, 2, 66, "<u2")
    scales = half(blocks, 0) * (0.5 + bits(blocks[..., 66:], 4, 2).reshape(*lead, 16)) * 0.25
    numbers = IQ2_XS[codes & 511] * even_signs(codes >> 9)
    return (np.repeat(scales, 2, axis=-1)[..., None] * numbers).astype(np.float32).reshape(*lead, 256)


def iq2_s(blocks: np.ndarray) -> np.ndarray:
    """32 vectors of a larger codebook with signs of eight bits; each two have a scale of four bits."""
    lead = blocks.shape[:-1]
    high = bits(blocks[..., 66:74], 2, 4).reshape(*lead, 32)
    scales = half(blocks, 0) * (0.5 + bits(blocks[..., 74:], 4, 2).reshape(*lead, 16)) * 0.25
    numbers = IQ2_S[blocks[..., 2:34] + high.astype(np.int64) * 256] * signs(blocks[..., 34:66])
    return (np.repeat(scales, 2, axis=-1)[..., None] * numbers).astype(np.float32).reshape(*lead, 256)


def iq3_xxs(blocks: np.ndarray) -> np.ndarray:
    """Eight parts of eight vectors of four, with seven bits of signs for each two and a scale of four bits."""
    lead = blocks.shape[:-1]
    rest = words(blocks, 66, 98, "<u4")
    scales = half(blocks, 0) * (0.5 + (rest >> np.uint32(28))) * 0.5
    numbers = IQ3_XXS[blocks[..., 2:66]].reshape(*lead, 8, 4, 8) * even_signs(bits(rest, 7, 4))
    return (scales[..., None, None] * numbers).astype(np.float32).reshape(*lead, 256)


@dataclass(frozen=True)
class Format:
    """How numbers are packed into blocks."""

    numbers: int
    bytes: int
    unpack: Callable[[np.ndarray], np.ndarray]
    """Blocks (..., bytes) as float32 (..., numbers)."""


FORMATS = {
    0: Format(1, 4, plain(1)),
    1: Format(1, 2, plain(10)),
    2: Format(32, 18, q4_0),
    6: Format(32, 22, q5_0),
    8: Format(32, 34, q8_0),
    13: Format(256, 176, q5_k),
    14: Format(256, 210, q6_k),
    16: Format(256, 66, iq2_xxs),
    17: Format(256, 74, iq2_xs),
    18: Format(256, 98, iq3_xxs),
    20: Format(32, 18, iq4_nl),
    22: Format(256, 82, iq2_s),
    23: Format(256, 136, iq4_xs),
    30: Format(1, 2, plain(16)),
    42: Format(64, 18, q2_0),
}
"""Formats by their numbers."""


def unpacked(data: np.ndarray, packed_type: int, length: int) -> np.ndarray:
    """Rows (..., bytes) in a packed format as float32 (..., length)."""
    known = FORMATS.get(packed_type)
    if known is None:
        raise UnsupportedError(
            f"weights packed in format {packed_type} can't be read; known are {', '.join(map(str, FORMATS))}"
        )
    if length < 1 or length % known.numbers or data.shape[-1] != length // known.numbers * known.bytes:
        raise ValueError(f"rows of {data.shape[-1]} bytes do not hold {length} numbers in format {packed_type}")
    return known.unpack(data.reshape(*data.shape[:-1], -1, known.bytes)).reshape(*data.shape[:-1], length)


@op("GatherPacked", domain=MICROSOFT)
def gather_packed(data: np.ndarray, indices: np.ndarray, *, K: int, output_dtype: int = 16, packed_type: int):
    """Rows of a packed table; indices outside of it get the first row."""
    there = np.where((indices >= 0) & (indices < len(data)), indices, 0)
    return narrow(unpacked(data[there], packed_type, K), dtype_of(output_dtype))


def squared_relu(x: np.ndarray) -> np.ndarray:
    return np.square(relu(x))


ACTIVATIONS = {"none": lambda x: x, "relu2": squared_relu, "relu_squared": squared_relu, "silu": swish}


@op("MatMulPacked", domain=MICROSOFT)
def mat_mul_packed(
    a: np.ndarray,
    b: np.ndarray,
    global_scale: np.ndarray | None = None,
    *,
    K: int,
    N: int,
    activation_type: str = "none",
    packed_type: int,
):
    """A (..., K) times packed weights (N, bytes), which are rounded to A's type first; then an activation."""
    if activation_type not in ACTIVATIONS:
        raise ValueError(f"activation_type is {activation_type!r}; known are {', '.join(ACTIVATIONS)}")
    if len(b) != N:
        raise ValueError(f"{len(b)} rows of weights are not N = {N}")
    y = np.matmul(to_float32(a), rounded(unpacked(b, packed_type, K), a.dtype).T)
    if global_scale is not None:
        y = y * global_scale.reshape(())
    y = narrow(y, a.dtype)
    return y if activation_type == "none" else narrow(ACTIVATIONS[activation_type](to_float32(y)), a.dtype)


@op("MoEPacked", domain=MICROSOFT)
def moe_packed(
    x: np.ndarray,
    router_probs: np.ndarray,
    gate_experts_weights: np.ndarray,
    up_experts_weights: np.ndarray | None,
    down_experts_weights: np.ndarray,
    router_weights: np.ndarray | None = None,
    *,
    activation_type: str = "swiglu",
    down_type: int,
    gate_type: int,
    k: int = 1,
    normalize_routing_weights: int = 1,
    routed_scaling_factor: float = 1.0,
    routing_epsilon: float = 0.0,
    up_type: int = -1,
):
    """A mixture of experts with packed weights. With `router_weights` the experts with the greatest `router_probs` are
    chosen and share as those say; else by the softmax of `router_probs`."""
    if activation_type not in ("swiglu", "relu2", "relu_squared"):
        raise ValueError(f"activation_type is {activation_type!r}; swiglu and relu2 are known")
    if (activation_type == "swiglu") != (up_experts_weights is not None):
        raise ValueError("swiglu takes up_experts_weights, and relu2 takes none")
    tokens = to_float32(x).reshape(-1, x.shape[-1])
    scores = to_float32(router_probs)
    if not 1 <= k <= scores.shape[1]:
        raise ValueError(f"k is {k}, of {scores.shape[1]} experts")
    chosen = best(np.where(np.isnan(scores), -np.inf, scores), k)
    values = softmax(scores) if router_weights is None else to_float32(router_weights)
    shares = np.take_along_axis(values, chosen, axis=1)
    if normalize_routing_weights:
        total = shares.sum(axis=1, keepdims=True) + np.float32(routing_epsilon)
        shares = np.where(total == 0, 0, shares / np.where(total == 0, 1, total))
    shares = shares * np.float32(routed_scaling_factor)
    hidden, inner = tokens.shape[1], gate_experts_weights.shape[1]
    result = np.zeros_like(tokens)
    for expert in np.unique(chosen):
        row, rank = np.nonzero(chosen == expert)
        gate = tokens[row] @ rounded(unpacked(gate_experts_weights[expert], gate_type, hidden), x.dtype).T
        if up_experts_weights is None:
            middle = squared_relu(gate)
        else:
            up = tokens[row] @ rounded(unpacked(up_experts_weights[expert], up_type, hidden), x.dtype).T
            middle = gate * sigmoid(gate) * up
        down = rounded(unpacked(down_experts_weights[expert], down_type, inner), x.dtype)
        result[row] += (middle @ down.T) * shares[row, rank][:, None]
    return narrow(result.reshape(x.shape), x.dtype)
