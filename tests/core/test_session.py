from __future__ import annotations

import asyncio
import io
import threading
import warnings

import numpy as np
import onnx
import pytest
from onnx import helper

import onnxlet

from .models import BOOL, FLOAT, INT64, graph, model, node

ADD = model([node("Add", ["x", "y"], ["z"])], [("x", FLOAT, ["n", 2]), ("y", FLOAT, [2])], [("z", FLOAT, ["n", 2])])
X = np.array([[1, 2], [3, 4]], np.float32)
Y = np.array([10, 20], np.float32)


def test_the_first_model_of_every_introduction(tmp_path):
    path = tmp_path / "add.onnx"
    onnx.save(ADD, path)
    sources = [str(path), path, path.read_bytes(), ADD, io.BytesIO(path.read_bytes())]
    for source in sources:
        session = onnxlet.InferenceSession(source)
        (z,) = session.run(None, {"x": X, "y": Y})
        assert z.dtype == np.float32
        np.testing.assert_array_equal(z, [[11, 22], [13, 24]])


def test_inputs_and_outputs_are_described():
    session = onnxlet.InferenceSession(ADD)
    x, y = session.get_inputs()
    assert (x.name, x.type, x.shape) == ("x", "tensor(float)", ["n", 2])
    assert (y.name, y.type, y.shape) == ("y", "tensor(float)", [2])
    assert [o.name for o in session.get_outputs()] == ["z"]


def test_metadata():
    made = model([node("Abs", ["x"], ["y"])], [("x", FLOAT, [1])], [("y", FLOAT, [1])])
    made.producer_name, made.model_version, made.doc_string = "someone", 7, "about"
    helper.set_model_props(made, {"key": "value"})
    meta = onnxlet.InferenceSession(made).get_modelmeta()
    assert (meta.producer_name, meta.version, meta.description) == ("someone", 7, "about")
    assert meta.custom_metadata_map == {"key": "value"}
    assert meta.graph_name == "g"


@pytest.mark.parametrize(
    ("feeds", "words"),
    [
        ({"x": X, "y": Y, "w": Y}, ["no input 'w'", "x: float32[n,2]"]),
        ({"x": X}, ["'y' is missing"]),
        ({"x": X.astype(np.float64), "y": Y}, ["'x' must be float32[n,2]", "float64[2,2]", "astype(np.float32)"]),
        ({"x": X[0], "y": Y}, ["'x' must be float32[n,2]", "[2]"]),
        ({"x": X, "y": Y[:1]}, ["'y' must be float32[2]", "[1]"]),
        ({"x": None, "y": Y}, ["'x'", "None"]),
    ],
)
def test_feeds_that_do_not_fit(feeds, words):
    session = onnxlet.InferenceSession(ADD)
    with pytest.raises(onnxlet.FeedError) as caught:
        session.run(None, feeds)
    assert isinstance(caught.value, ValueError)
    for word in words:
        assert word in str(caught.value)
    np.testing.assert_array_equal(session.run(None, {"x": X, "y": Y})[0], X + Y)


def test_feeds_that_fit_in_spirit():
    session = onnxlet.InferenceSession(ADD)
    (z,) = session.run(None, {"x": [[1, 2]], "y": [1, 1]})
    np.testing.assert_array_equal(z, [[2, 3]])
    (z,) = session.run(None, {"x": X.astype(">f4"), "y": np.array([1, 9, 2, 9], np.float32)[::2]})
    np.testing.assert_array_equal(z, X + np.array([1, 2]))


def test_outputs_by_name_and_order():
    two = model(
        [node("Neg", ["x"], ["a"]), node("Abs", ["x"], ["b"])],
        [("x", FLOAT, [2])],
        [("a", FLOAT, [2]), ("b", FLOAT, [2])],
    )
    session = onnxlet.InferenceSession(two)
    b, a = session.run(["b", "a"], {"x": np.array([-1, 2], np.float32)})
    assert (a.tolist(), b.tolist()) == ([1, -2], [1, 2])
    with pytest.raises(onnxlet.FeedError, match=r"no output 'c'.*a, b"):
        session.run(["c"], {"x": X[0]})


def test_providers_of_other_runtimes_are_skipped_with_a_warning():
    with pytest.warns(UserWarning, match="CUDAExecutionProvider is not a provider of onnxlet"):
        session = onnxlet.InferenceSession(ADD, providers=["CUDAExecutionProvider", "CPUExecutionProvider"])
    assert session.get_providers() == ["CPUExecutionProvider"]
    np.testing.assert_array_equal(session.run(None, {"x": X, "y": Y})[0], X + Y)
    with pytest.raises(ValueError, match="unknown execution provider 'GPU'"):
        onnxlet.InferenceSession(ADD, providers=["GPU"])
    with pytest.raises(ValueError, match="1 providers but 2 provider_options"):
        onnxlet.InferenceSession(ADD, providers=["cpu"], provider_options=[{}, {}])


def test_all_missing_operators_are_named_at_load():
    made = model(
        [node("Nope", ["x"], ["a"], name="first"), node("Other", ["a"], ["y"], name="second", domain="my.domain")],
        [("x", FLOAT, [1])],
        [("y", FLOAT, [1])],
        domains=["my.domain"],
        check=False,
    )
    with pytest.raises(onnxlet.MissingOperatorsError) as caught:
        onnxlet.InferenceSession(made)
    message = str(caught.value)
    for word in ("Nope (opset 21)", "'first'", "my.domain::Other (opset 1)", "'second'", "2 operator(s)"):
        assert word in message


def test_missing_operators_in_sub_graphs_are_found_too():
    body = graph([node("Nope", ["x"], ["b"], name="inner")], [], [("b", FLOAT, [1])])
    made = model(
        [node("If", ["c"], ["y"], then_branch=body, else_branch=body)],
        [("c", BOOL, []), ("x", FLOAT, [1])],
        [("y", FLOAT, [1])],
        check=False,
    )
    with pytest.raises(onnxlet.MissingOperatorsError, match="'inner'"):
        onnxlet.InferenceSession(made)


def test_a_custom_operator():
    @onnxlet.op("Triple", domain="my.domain")
    def triple(x, *, plus=0.0):
        return (3 * x + plus).astype(x.dtype)

    made = model(
        [node("Triple", ["x"], ["y"], domain="my.domain", plus=1.0)],
        [("x", FLOAT, [2])],
        [("y", FLOAT, [2])],
        domains=["my.domain"],
        check=False,
    )
    np.testing.assert_array_equal(onnxlet.InferenceSession(made).run(None, {"x": Y})[0], [31, 61])


@pytest.mark.parametrize(
    ("nodes", "words"),
    [
        ([node("Relu", ["x"], ["y"], alpha=1.0, name="r")], ["'r'", "Relu (opset 21)", "no attribute alpha"]),
        ([node("LeakyRelu", ["x"], ["y"], beta=1.0, name="r")], ["no attribute beta", "attributes are: alpha"]),
        ([node("Relu", ["x", "x"], ["y"], name="r")], ["at most 1 inputs", "has 2"]),
        ([node("Add", ["x"], ["y"], name="r")], ["needs 2 inputs", "has 1"]),
        ([node("Cast", ["x"], ["y"], name="r")], ["needs the attribute to"]),
    ],
)
def test_misused_operators_are_refused_at_load(nodes, words):
    made = model(nodes, [("x", FLOAT, [2])], [("y", FLOAT, [2])], check=False)
    with pytest.raises(onnxlet.ModelError) as caught:
        onnxlet.InferenceSession(made)
    for word in words:
        assert word in str(caught.value)


def test_a_failing_node_is_named_and_the_session_goes_on():
    made = model(
        [node("Gather", ["x", "i"], ["y"], name="pick")],
        [("x", FLOAT, [3]), ("i", INT64, ["n"])],
        [("y", FLOAT, ["n"])],
    )
    session = onnxlet.InferenceSession(made)
    x = np.array([5, 6, 7], np.float32)
    with pytest.raises(onnxlet.NodeError, match="'pick'"):
        session.run(None, {"x": x, "i": np.array([3])})
    np.testing.assert_array_equal(session.run(None, {"x": x, "i": np.array([-1, 0])})[0], [7, 5])


def test_a_closed_session_says_so():
    with onnxlet.InferenceSession(ADD) as session:
        session.run(None, {"x": X, "y": Y})
    session.close()
    with pytest.raises(onnxlet.SessionClosedError):
        session.run(None, {"x": X, "y": Y})
    with pytest.raises(onnxlet.SessionClosedError):
        session.explain()


def test_initializers_may_be_overridden():
    made = model(
        [node("Add", ["w", "w"], ["two_w"]), node("Mul", ["x", "two_w"], ["y"])],
        [("x", FLOAT, [2]), ("w", FLOAT, [2])],
        [("y", FLOAT, [2])],
        {"w": Y},
    )
    session = onnxlet.InferenceSession(made)
    x = np.array([1, 2], np.float32)
    assert [i.name for i in session.get_inputs()] == ["x"]
    assert [i.name for i in session.get_overridable_initializers()] == ["w"]
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], [20, 80])
    np.testing.assert_array_equal(session.run(None, {"x": x, "w": x})[0], [2, 8])
    np.testing.assert_array_equal(session.run(None, {"x": x})[0], [20, 80])


def test_outputs_may_be_inputs_or_constants():
    made = model(
        [node("Identity", ["x"], ["y"]), node("Identity", ["w"], ["z"])],
        [("x", FLOAT, [2])],
        [("y", FLOAT, [2]), ("z", FLOAT, [2])],
        {"w": Y},
    )
    x = np.array([1, 2], np.float32)
    y, z = onnxlet.InferenceSession(made).run(None, {"x": x})
    np.testing.assert_array_equal(y, x)
    np.testing.assert_array_equal(z, Y)


def test_outputs_belong_to_the_caller():
    made = model(
        [
            node("Identity", ["x"], ["same"]),
            node("Identity", ["w"], ["constant"]),
            node("Transpose", ["x"], ["turned"]),
            node("Expand", ["x", "shape"], ["expanded"]),
        ],
        [("x", FLOAT, [2, 2])],
        [("same", FLOAT, [2, 2]), ("constant", FLOAT, [2]), ("turned", FLOAT, [2, 2]), ("expanded", FLOAT, [3, 2, 2])],
        {"w": Y, "shape": np.array([3, 2, 2])},
    )
    x = X.copy()
    session = onnxlet.InferenceSession(made)
    for output in session.run(None, {"x": x}):
        assert output.flags.c_contiguous
        output += 1
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(session.run(["constant"], {"x": x})[0], Y)


def test_branches_take_values_from_around_them():
    def branch(operator: str):
        return graph([node(operator, ["x", "w"], ["b"])], [], [("b", FLOAT, ["n"])])

    made = model(
        [node("If", ["c"], ["y"], then_branch=branch("Add"), else_branch=branch("Mul"))],
        [("c", BOOL, []), ("x", FLOAT, ["n"])],
        [("y", FLOAT, ["n"])],
        {"w": np.float32(3)},
    )
    session = onnxlet.InferenceSession(made)
    x = np.array([1, 2, 5], np.float32)
    np.testing.assert_array_equal(session.run(None, {"c": np.array(True), "x": x})[0], [4, 5, 8])
    np.testing.assert_array_equal(session.run(None, {"c": np.array(False), "x": x})[0], [3, 6, 15])
    assert {row.operator for row in session.explain().rows} == {"If", "Mul"}  # of the last run


def test_a_loop_in_a_loop():
    # total starts at 0; for i in range(n): for j in range(i): total += x * j
    inner = graph(
        [
            node("Cast", ["j"], ["jf"], to=FLOAT),
            node("Mul", ["jf", "x"], ["term"]),
            node("Add", ["total_in", "term"], ["total_out"]),
            node("Identity", ["keep"], ["keep_out"]),
        ],
        [("j", INT64, []), ("keep", BOOL, []), ("total_in", FLOAT, [])],
        [("keep_out", BOOL, []), ("total_out", FLOAT, [])],
        name="inner",
    )
    outer = graph(
        [
            node("Loop", ["i", "", "sum_in"], ["sum_out"], body=inner),
            node("Identity", ["go"], ["go_out"]),
            node("Identity", ["sum_out"], ["scanned"]),
        ],
        [("i", INT64, []), ("go", BOOL, []), ("sum_in", FLOAT, [])],
        [("go_out", BOOL, []), ("sum_out", FLOAT, []), ("scanned", FLOAT, [])],
        name="outer",
    )
    made = model(
        [node("Loop", ["n", "", "zero"], ["last", "all"], body=outer)],
        [("n", INT64, []), ("x", FLOAT, [])],
        [("last", FLOAT, []), ("all", FLOAT, ["n"])],
        {"zero": np.float32(0)},
    )
    last, every = onnxlet.InferenceSession(made).run(None, {"n": np.array(5), "x": np.float32(2)})
    totals = np.cumsum([2 * sum(range(i)) for i in range(5)])
    assert last == totals[-1]
    np.testing.assert_array_equal(every, totals)


def test_shapes_that_depend_on_data_are_planned_on_the_way():
    made = model(
        [
            node("NonZero", ["mask"], ["where"]),
            node("Transpose", ["where"], ["rows"], perm=[1, 0]),
            node("GatherND", ["x", "rows"], ["picked"]),
            node("MatMul", ["picked", "w"], ["y"]),
            node("Shape", ["picked"], ["s"]),
            node("ConstantOfShape", ["s"], ["zeros"]),
        ],
        [("x", FLOAT, ["n", 3]), ("mask", BOOL, ["n"])],
        [("y", FLOAT, ["k", 2]), ("zeros", FLOAT, ["k", 3])],
        {"w": np.arange(6, dtype=np.float32).reshape(3, 2)},
    )
    session = onnxlet.InferenceSession(made)
    rng = np.random.default_rng(0)
    for n in (1, 4, 9):
        x = rng.standard_normal((n, 3), np.float32)
        for mask in (np.zeros(n, bool), np.ones(n, bool), np.arange(n) % 2 == 0):
            y, zeros = session.run(None, {"x": x, "mask": mask})
            np.testing.assert_allclose(y, x[mask] @ np.arange(6, dtype=np.float32).reshape(3, 2), rtol=1e-5)
            np.testing.assert_array_equal(zeros, np.zeros((mask.sum(), 3), np.float32))


def test_plans_are_kept_within_a_bound():
    from onnxlet.execution.plan import PLANS_KEPT

    session = onnxlet.InferenceSession(ADD)
    for n in [*range(1, 40), *range(1, 40)]:
        x = np.full((n, 2), n, np.float32)
        np.testing.assert_array_equal(session.run(None, {"x": x, "y": Y})[0], x + Y)
    assert len(session._executor.plans) <= PLANS_KEPT


def test_results_stay_right_when_the_next_run_starts():
    session = onnxlet.InferenceSession(ADD)
    first = session.run(None, {"x": X, "y": Y})[0]
    session.run(None, {"x": X * 100, "y": Y})
    np.testing.assert_array_equal(first, X + Y)


def test_overlapping_runs_take_turns():
    session = onnxlet.InferenceSession(ADD)
    results: dict[int, np.ndarray] = {}

    def work(i: int) -> None:
        for _ in range(20):
            results[i] = session.run(None, {"x": X * i, "y": Y})[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for i in range(4):
        np.testing.assert_array_equal(results[i], X * i + Y)

    async def many() -> list[list[np.ndarray]]:
        return await asyncio.gather(*(session.run_async(None, {"x": X * i, "y": Y}) for i in range(8)))

    for i, (z,) in enumerate(asyncio.run(many())):
        np.testing.assert_array_equal(z, X * i + Y)


def test_asynchronous_creation():
    async def run() -> np.ndarray:
        session = await onnxlet.InferenceSession.create(ADD.SerializeToString())
        return (await session.run_async(None, {"x": X, "y": Y}))[0]

    np.testing.assert_array_equal(asyncio.run(run()), X + Y)


def test_explain_tells_before_and_after_a_run():
    fixed = model([node("Tanh", ["x"], ["y"], name="t")], [("x", FLOAT, [2])], [("y", FLOAT, [2])])
    explanation = onnxlet.InferenceSession(fixed).explain()
    assert [(row.node, row.operator) for row in explanation.rows] == [("t", "Tanh")]
    assert "Tanh" in str(explanation)
    assert "<td>Tanh</td>" in explanation._repr_html_()

    session = onnxlet.InferenceSession(ADD)
    assert session.explain().rows == []
    session.run(None, {"x": X, "y": Y})
    (row,) = session.explain().rows
    assert (row.operator, row.outputs) == ("Add", "float32[2,2]")
    assert session.explain().to_dict()["counts"] == {row.provider: 1}


def test_a_warning_free_default():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session = onnxlet.InferenceSession(ADD)
    assert session.get_providers() == ["CPUExecutionProvider"]
    assert onnxlet.get_available_providers()[-1] == "CPUExecutionProvider"
