"""Losses: NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss.

Their twin is `onnxlet.ops.loss`. A kernel gives the loss and the weight of every target; sums of both make the mean.
"""

from __future__ import annotations

from math import prod

from ..kernel import Operand
from ..lowering import Lowering, Tensor, lowering
from .arithmetic import whole
from .normalization import emit_rows
from .reduction import emit_reduction


@lowering("NegativeLogLikelihoodLoss")
def negative_log_likelihood_loss(n: Lowering) -> None:
    _emit_loss(n, n.input(0), n.output(0, "float32"))


@lowering("SoftmaxCrossEntropyLoss")
def softmax_cross_entropy_loss(n: Lowering) -> None:
    x = n.input(0)
    log_prob = n.output(1, "float32") if n.has_output(1) else n.temporary("log", x.shape)
    length, inner = x.shape[1], prod(x.shape[2:])
    base = f"row / {inner}u * {length * inner}u + row % {inner}u"
    statements = """
var part = -infinity();
each { part = max_nan(part, value); }
let highest = row_max(part, lane);
var sum = 0.0;
each { sum += exponential(value - highest); }
let denominator = logarithm(row_sum(sum, lane));
each { store(at, value - highest - denominator); }
"""
    emit_rows(n, n.title(x, note="log of softmax"), [x.binding("x")], log_prob, x.size // length, length, base, inner,
              statements)  # fmt: skip
    _emit_loss(n, log_prob, n.output(0, "float32"))


def _emit_loss(n: Lowering, log_prob: Tensor, out: Tensor) -> None:
    target = n.input(1, "int64", "int32")
    classes, inner = log_prob.shape[1], prod(log_prob.shape[2:])
    reduction = n.attribute("reduction", "mean")
    ignored = n.attribute("ignore_index")
    reads = [log_prob.binding("x"), target.binding("target_class")]
    weight = "1.0"
    if n.has_input(2):
        reads.append(n.input(2).binding("weight"))
        weight = "weight[k]"
    # A target that is ignored need not be a class.
    counted = f"k >= 0 && k < {classes}" + ("" if ignored is None else f" && k != {ignored}")
    place = f"i / {inner}u * {classes * inner}u + u32(k) * {inner}u + i % {inner}u"
    lines = [f"let k = {whole(n, 'target_class', target, 'i')};"]
    parts = {"loss": f"-x[{place}] * {weight}"}
    if reduction == "mean":
        parts["weight"] = weight
    made: dict[str, Tensor] = {}
    for name, expression in parts.items():
        result = out if reduction == "none" else n.temporary(name, target.shape)
        statements = [*lines, "var value = 0.0;", f"if ({counted}) {{ value = {expression}; }}", "store(i, value);"]
        used = [b for b in reads if name == "loss" or b.name != "x"]
        n.emit_flat(n.title(log_prob, target, note=name), used, "\n".join(statements), result)
        made[name] = result
    if reduction == "none":
        return
    axes = list(range(len(target.shape)))
    if reduction == "sum":
        emit_reduction(n, "ReduceSum", made["loss"], out, axes)
        return
    total = n.temporary("total", ())
    emit_reduction(n, "ReduceSum", made["weight"], total, axes)
    emit_reduction(n, "ReduceSum", made["loss"], out, axes)
    n.extend([n.chain(), Operand(total.value, (), "f32")], "{0} / {1}")
