"""Expected values follow the pseudo code of the operators' descriptions."""

import numpy as np
import pytest

from tests.core.ops.calling import call, f32, i64

TRAINING = "ai.onnx.preview.training"
R = f32(0.1)


def test_adagrad_of_two_tensors():
    x, y = f32(1, 2), f32([[3]])
    new_x, new_y, h_x, h_y = call(
        "Adagrad", 1, R, i64(2), x, y, f32(1, -1), f32([[2]]), f32(0, 3), f32([[0]]),
        domain=TRAINING, outputs=4, decay_factor=0.5, epsilon=0.0,
    )  # fmt: skip
    np.testing.assert_allclose(h_x, [1, 4])
    np.testing.assert_allclose(h_y, [[4]])
    np.testing.assert_allclose(new_x, [1 - 0.05, 2 + 0.05 / 2], rtol=1e-6)
    np.testing.assert_allclose(new_y, [[3 - 0.05]], rtol=1e-6)


def test_adam():
    x, v, h = call(
        "Adam",
        1,
        R,
        i64(1),
        f32(2),
        f32(4),
        f32(0),
        f32(0),
        domain=TRAINING,
        outputs=3,
        alpha=0.5,
        beta=0.75,
        epsilon=0.0,
    )
    np.testing.assert_allclose([v, h], [2, 4])
    np.testing.assert_allclose(x, 2 - 0.1 * np.sqrt(0.25) / 0.5 * 2 / 2, rtol=1e-6)


@pytest.mark.parametrize(("mode", "expected"), [("standard", 2 - 0.1 * 5), ("nesterov", 2 - 0.1 * (4 + 0.5 * 5))])
def test_momentum(mode, expected):
    options = {"domain": TRAINING, "alpha": 0.5, "beta": 0.75, "norm_coefficient": 0.0, "mode": mode}
    x, v = call("Momentum", 1, R, i64(3), f32(2), f32(4), f32(4), outputs=2, **options)
    np.testing.assert_allclose(v, 5)
    np.testing.assert_allclose(x, expected, rtol=1e-6)
    _, first = call("Momentum", 1, R, i64(0), f32(2), f32(4), f32(4), outputs=2, **options)
    np.testing.assert_allclose(first, 6)  # at the first step beta counts as 1
