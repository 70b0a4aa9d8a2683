"""Bodies are plain generators here; what the executor makes of sub-graphs is tested with it."""

import numpy as np
import pytest

from onnxlet.errors import LimitError
from onnxlet.graph.ir import TensorType
from onnxlet.limits import Limits
from onnxlet.ops import registry
from tests.core.ops.calling import f32, i64, same


def run(operator, opset, *inputs, outputs=1, body_types=(), **attributes):
    found = registry.find(operator, "", opset)
    assert found is not None
    given = {"n_outputs": outputs, "body_types": body_types}
    generator = found.function(*inputs, **attributes, **{k: given[k] for k in found.injected if k in given})
    with pytest.raises(StopIteration) as stop:  # bodies never wait, so the first step is the last
        next(generator)
    return [np.asarray(v) if isinstance(v, np.generic) else v for v in stop.value.value]


def body(function):
    """A body from a function of its inputs that returns its outputs."""

    def generator(*inputs):
        return function(*inputs)
        yield

    return generator


def test_if_runs_one_branch():
    def fail():
        raise AssertionError

    chosen = body(lambda: [f32(1), [f32(2)]])
    assert run("If", 1, np.array([True]), then_branch=chosen, else_branch=body(fail), outputs=2)[1] == [f32(2)]
    assert run("If", 25, np.array(False), then_branch=body(fail), else_branch=chosen, outputs=2)[0] == 1
    with pytest.raises(ValueError, match="condition must have one element"):
        run("If", 11, np.array([True, False]), then_branch=chosen, else_branch=chosen)


STEP = body(lambda i, going, total: [np.array(bool(i < 2)), total + i, total * 2])


def test_loop_modes():
    start = i64(1)
    for m, cond, trips in (
        (i64(2), None, 2),
        (i64(9), np.array(True), 3),
        (None, np.array(True), 3),
        (i64(9), None, 9),
    ):
        total, doubled = run("Loop", 11, m, cond, start, body=STEP, outputs=2)
        sums = np.cumsum([1, *range(trips)])
        same(total, i64(sums[-1]))
        same(doubled, 2 * sums[:-1])
    assert run("Loop", 11, i64(0), None, start, body=STEP, outputs=2)[0] is start


def test_no_iteration_gives_no_elements_of_the_declared_type():
    types = [None, None, TensorType(np.dtype(np.int64), (2, "n"))]
    _, scanned = run("Loop", 11, i64(5), np.array(False), i64(1), body=STEP, outputs=2, body_types=types)
    same(scanned, np.zeros((0, 2, 0), np.int64))
    nothing = np.zeros((0, 3), np.float32)
    _, scanned = run(
        "Scan", 9, i64(1), nothing, body=STEP, num_scan_inputs=1, outputs=2, body_types=types[1:], scan_output_axes=[-1]
    )
    same(scanned, np.zeros((2, 0, 0), np.int64))


def test_loop_is_bounded():
    with pytest.raises(LimitError, match="after 10 iterations"):
        run(
            "Loop", 11, None, None, i64(0), body=body(lambda i, going, x: [going, x]), limits=Limits(loop_iterations=10)
        )


def test_loop_output_must_keep_its_shape():
    with pytest.raises(ValueError, match="changes its shape"):
        run("Loop", 11, i64(3), None, body=body(lambda i, going: [going, np.zeros(int(i))]))


def test_scan_axes_and_directions():
    rows = np.arange(6).reshape(2, 3)
    step = body(lambda total, x: [total + x, total])
    end, before = run("Scan", 9, np.zeros(3, np.int64), rows, body=step, num_scan_inputs=1, outputs=2)
    same(end, i64(3, 5, 7))
    same(before, i64([[0, 0, 0], [0, 1, 2]]))
    end, before = run(
        "Scan", 11, np.zeros(2, np.int64), rows, body=step, num_scan_inputs=1, outputs=2, scan_input_axes=[-1],
        scan_input_directions=[1], scan_output_axes=[1], scan_output_directions=[1],
    )  # fmt: skip
    same(end, i64(3, 12))
    same(before, i64([[3, 2, 0], [9, 5, 0]]))


def test_scan_over_a_batch_of_sequences():
    x = np.arange(12, dtype=np.float32).reshape(2, 3, 2)
    step = body(lambda total, v: [total + v, total + v])
    start = np.zeros((2, 2), np.float32)
    end, sums = run("Scan", 8, i64(3, 1), start, x, body=step, num_scan_inputs=1, outputs=2)
    same(end, f32([[6, 9], [6, 7]]))
    same(sums, f32([[[0, 1], [2, 4], [6, 9]], [[6, 7], [0, 0], [0, 0]]]))
    whole, _ = run("Scan", 8, None, start, x, body=step, num_scan_inputs=1, outputs=2, directions=[1])
    same(whole, x.sum(axis=1))


def test_scan_inputs_must_be_equally_long():
    with pytest.raises(ValueError, match="different lengths"):
        run("Scan", 9, f32(1, 2), f32(1, 2, 3), body=STEP, num_scan_inputs=2)


def test_sequence_map():
    add = body(lambda a, b, c: [a + b, a * c])
    sums, products = run("SequenceMap", 17, [f32(1), f32(2)], [f32(10), f32(20)], f32(3), body=add, outputs=2)
    assert [float(v) for v in sums] == [11, 22]
    assert [float(v) for v in products] == [3, 6]
    with pytest.raises(ValueError, match="different lengths"):
        run("SequenceMap", 17, [f32(1)], [], f32(3), body=add)
