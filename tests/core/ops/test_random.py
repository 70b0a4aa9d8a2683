import numpy as np
import pytest

from tests.core.ops.calling import call, f32, of


@pytest.mark.parametrize(
    ("name", "inputs", "attributes"),
    [
        ("RandomNormal", (), {"shape": [40, 50], "mean": 3.0, "scale": 2.0}),
        ("RandomUniform", (), {"shape": [40, 50], "low": -1.0, "high": 3.0}),
        ("RandomNormalLike", (np.zeros((40, 50), np.float32),), {"mean": 3.0, "scale": 2.0}),
        ("RandomUniformLike", (np.zeros((40, 50), np.float32),), {"low": -1.0, "high": 3.0}),
    ],
)
def test_distributions_and_seeds(name, inputs, attributes):
    x = call(name, 22, *inputs, seed=1.5, **attributes)
    assert x.shape == (40, 50)
    assert x.dtype == np.float32
    np.testing.assert_array_equal(x, call(name, 1, *inputs, seed=1.5, **attributes))
    assert (x != call(name, 22, *inputs, seed=1.25, **attributes)).any()
    assert (call(name, 22, *inputs, **attributes) != call(name, 22, *inputs, **attributes)).any()
    if "Normal" in name:
        assert abs(x.mean() - 3) < 0.3
        assert abs(x.std() - 2) < 0.2
    else:
        assert x.min() >= -1
        assert x.max() <= 3
        assert abs(x.mean() - 1) < 0.2
    assert call(name, 22, *inputs, dtype=11, **attributes).dtype == np.float64
    assert call(name, 22, *inputs, dtype=10, **attributes).dtype == np.float16


def test_bernoulli():
    p = np.full((1000,), 0.25, np.float32)
    drawn = call("Bernoulli", 15, p, seed=3.0)
    assert drawn.dtype == np.float32
    assert set(np.unique(drawn)) == {0, 1}
    assert 150 < drawn.sum() < 350
    assert call("Bernoulli", 15, p, dtype=9).dtype == np.bool_
    assert call("Bernoulli", 22, f32(0, 1)).tolist() == [0, 1]
    assert call("Bernoulli", 22, of("float16", [1])).dtype == np.float16


def test_multinomial():
    logs = np.log(np.array([[1, 3], [1e-30, 1]], np.float32))
    drawn = call("Multinomial", 7, logs, sample_size=2000, seed=0.0)
    assert drawn.shape == (2, 2000)
    assert drawn.dtype == np.int32
    assert 1400 < drawn[0].sum() < 1600
    assert drawn[1].all()
    assert call("Multinomial", 22, logs, dtype=7).dtype == np.int64
    with pytest.raises(ValueError, match="classes"):
        call("Multinomial", 7, f32(1, 2))
