"""A session that runs a small model again and again, and every way in which one run may differ from the last."""

from __future__ import annotations

import threading

import numpy as np
import pytest

import onnxlet

from .models import FLOAT, INT64, model, node

PAIR = model(
    [node("Sub", ["x", "y"], ["d"]), node("Mul", ["x", "y"], ["p"])],
    [("x", FLOAT, ["n", 3]), ("y", FLOAT, [3])],
    [("d", FLOAT, ["n", 3]), ("p", FLOAT, ["n", 3])],
)
PICK = model([node("Gather", ["x", "i"], ["y"])], [("x", FLOAT, [4, 2]), ("i", INT64, [3])], [("y", FLOAT, [3, 2])])


@pytest.fixture
def rng():
    return np.random.default_rng(5)


def feeds_of(rng, rows=2):
    return {"x": rng.normal(size=(rows, 3)).astype(np.float32), "y": rng.normal(size=3).astype(np.float32)}


def check(found, feeds):
    np.testing.assert_array_equal(found[0], feeds["x"] - feeds["y"])
    np.testing.assert_array_equal(found[1], feeds["x"] * feeds["y"])


def warm(session, rng):
    for _ in range(4):
        feeds = feeds_of(rng)
        check(session.run(None, feeds), feeds)


def test_results_are_new_arrays_of_each_run(rng):
    with onnxlet.InferenceSession(PAIR) as session:
        kept = []
        for _ in range(5):
            feeds = feeds_of(rng)
            kept.append((feeds, session.run(None, feeds)))
        for feeds, found in kept:
            check(found, feeds)
            assert all(array.flags.owndata and array.flags.writeable for array in found)


def test_outputs_in_any_choice_and_order(rng):
    with onnxlet.InferenceSession(PAIR) as session:
        warm(session, rng)
        feeds = feeds_of(rng)
        for names in (["p"], ["d"], ["p", "d"], ("d", "p"), ["d", "d"], [], None):
            wanted = [{"d": feeds["x"] - feeds["y"], "p": feeds["x"] * feeds["y"]}[n] for n in names or ["d", "p"]]
            for _ in range(3):
                found = session.run(names, feeds)
                assert len(found) == len(wanted)
                for a, b in zip(found, wanted, strict=True):
                    np.testing.assert_array_equal(a, b)
                assert len({id(a) for a in found}) == len(found)


def test_feeds_of_other_shapes_layouts_and_kinds(rng):
    with onnxlet.InferenceSession(PAIR) as session:
        warm(session, rng)
        feeds = feeds_of(rng)
        others = [
            feeds_of(rng, 5),
            feeds_of(rng, 0),
            {"x": np.asfortranarray(feeds["x"]), "y": feeds["y"]},
            {"x": feeds["x"][::-1, ::-1], "y": feeds["y"][::-1]},
            {"y": feeds["y"], "x": feeds["x"]},
            {"x": feeds["x"], "y": np.ascontiguousarray(feeds["y"][:1]).repeat(3)},
        ]
        for other in others:
            for _ in range(3):
                check(session.run(None, other), other)
        as_list = {"x": feeds["x"].tolist(), "y": feeds["y"]}
        check(session.run(None, as_list), feeds)
        warm(session, rng)


@pytest.mark.parametrize(
    "change",
    [
        lambda f: {**f, "w": f["y"]},
        lambda f: {"x": f["x"]},
        lambda f: {**f, "x": f["x"].astype(np.float64)},
        lambda f: {**f, "x": f["x"][0]},
        lambda f: {**f, "y": f["y"][:2]},
        lambda f: {"x": f["x"], "z": f["y"]},
        lambda f: [*f.items()],
    ],
)
def test_wrong_feeds_are_refused_after_right_ones(rng, change):
    with onnxlet.InferenceSession(PAIR) as session:
        warm(session, rng)
        with pytest.raises(onnxlet.FeedError):
            session.run(None, change(feeds_of(rng)))
        with pytest.raises(onnxlet.FeedError, match="no output"):
            session.run(["q"], feeds_of(rng))
        warm(session, rng)


def test_an_index_out_of_bounds_is_found_in_a_warm_run(rng):
    x, good = rng.normal(size=(4, 2)).astype(np.float32), np.array([3, -1, 0])
    with onnxlet.InferenceSession(PICK) as session:
        for _ in range(3):
            for _ in range(3):
                np.testing.assert_array_equal(session.run(None, {"x": x, "i": good})[0], x[good])
            with pytest.raises(onnxlet.NodeError, match="out of bounds"):
                session.run(None, {"x": x, "i": np.array([0, 4, 1])})


def test_a_closed_session_says_so_after_warm_runs(rng):
    session = onnxlet.InferenceSession(PAIR)
    warm(session, rng)
    session.close()
    with pytest.raises(onnxlet.SessionClosedError):
        session.run(None, feeds_of(rng))


def test_two_warm_threads_get_results_of_their_own(rng):
    feeds = [feeds_of(rng, 7), feeds_of(rng, 7), feeds_of(rng, 3)]
    errors = []

    def work(mine):
        try:
            for _ in range(200):
                check(session.run(None, mine), mine)
        except BaseException as error:
            errors.append(error)

    with onnxlet.InferenceSession(PAIR) as session:
        warm(session, rng)
        threads = [threading.Thread(target=work, args=(f,)) for f in feeds]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not errors
