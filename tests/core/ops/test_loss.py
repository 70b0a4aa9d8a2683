import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64, same
from tests.core.ops.oracle import Numbers, agrees

LOG_PROB = f32([[-1, -2, -3], [-4, -5, -6]])


@pytest.mark.parametrize("opset", [12, 13, 22])
def test_negative_log_likelihood(opset):
    target, weight = i64(0, 2), f32(1, 9, 3)
    name = "NegativeLogLikelihoodLoss"
    same(call(name, opset, LOG_PROB, target, reduction="none"), f32(1, 6))
    same(call(name, opset, LOG_PROB, target, weight, reduction="sum"), f32(19))
    same(call(name, opset, LOG_PROB, target, weight), f32(19 / 4))
    same(call(name, opset, LOG_PROB, i64(0, -7), ignore_index=-7), f32(1))
    with pytest.raises(ValueError, match="targets reach 0 to 3 of 3 classes"):
        call(name, opset, LOG_PROB, i64(0, 3))


@pytest.mark.parametrize("reduction", ["none", "sum", "mean"])
def test_softmax_cross_entropy(reduction):
    numbers = Numbers()
    scores, labels = numbers.f32(2, 5, 3, 4), numbers.ints(0, 5, 2, 3, 4)
    weights = np.abs(numbers.f32(5))
    agrees("SoftmaxCrossEntropyLoss", 13, scores, labels, weights, outputs=2, reduction=reduction, ignore_index=1)
