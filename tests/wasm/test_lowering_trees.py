"""Ensembles of trees through compiled programs, in every build of the kernels, against the NumPy definitions."""

from __future__ import annotations

import numpy as np
import pytest

from onnxlet.ops.registry import find
from onnxlet_wasm.provider import KernelProvider

from .helpers import check, node, refusal

ML = "ai.onnx.ml"
RNG = np.random.default_rng(53)
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]
SPECIAL = [np.nan, np.inf, -np.inf, 0.0, -0.0]
FEATURES = 5


@pytest.fixture
def provider(engine):
    return KernelProvider(engine)


def definition(operator: str, version: int = 3):
    found = find(operator, ML, version)
    assert found is not None, operator
    return {operator: found.function}


def ensemble(modes, trees: int, depth: int, missing: bool = False, special: bool = False) -> dict:
    """Random trees, with nodes in random order and numbers with gaps, as attributes."""
    rows = []
    for tree in range(trees):
        numbers = iter(RNG.permutation(3 << depth).tolist())

        def grow(level: int, number: int, tree: int = tree, numbers=numbers) -> None:
            if level == depth or (level and RNG.random() < 0.3):
                rows.append((tree, number, 0, "LEAF", 0.0, 0, 0))
                return
            yes, no = next(numbers), next(numbers)
            split = RNG.choice(SPECIAL) if special and RNG.random() < 0.3 else float(RNG.integers(-3, 4))
            rows.append((tree, number, int(RNG.integers(FEATURES)), RNG.choice(modes), split, yes, no))
            grow(level + 1, yes)
            grow(level + 1, no)

        grow(0, next(numbers))
    RNG.shuffle(rows)
    columns = ["treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids"]
    kinds = [int, int, int, str, float, int, int]
    result = {f"nodes_{c}": [k(r[i]) for r in rows] for i, (c, k) in enumerate(zip(columns, kinds, strict=True))}
    if missing:
        result["nodes_missing_value_tracks_true"] = RNG.integers(0, 2, len(rows)).tolist()
    return result


def leaves(trees: dict, kind: str, targets, low: float = -1.0, per_leaf: int = 1) -> dict:
    """Random contributions of the leaves: `per_leaf` of `targets`, in random order; some leaves have none."""
    rows = [
        (t, n, int(target), float(np.float32(RNG.uniform(low, 1.0))))
        for t, n, mode in zip(trees["nodes_treeids"], trees["nodes_nodeids"], trees["nodes_modes"], strict=True)
        if mode == "LEAF" and RNG.random() < 0.9
        for target in RNG.choice(targets, per_leaf)
    ]
    RNG.shuffle(rows)
    names = ["treeids", "nodeids", "ids", "weights"]
    kinds = [int, int, int, float]
    return {f"{kind}_{n}": [k(r[i]) for r in rows] for i, (n, k) in enumerate(zip(names, kinds, strict=True))}


def samples(rows: int, special: bool = False) -> np.ndarray:
    x = RNG.integers(-4, 5, (rows, FEATURES)).astype(np.float32)
    if special:
        x = np.where(RNG.random(x.shape) < 0.3, RNG.choice(SPECIAL, x.shape), x).astype(np.float32)
    return x


def compare(provider, operator: str, x: np.ndarray, version: int = 3, outputs: str = "y", **attributes) -> None:
    one = node(operator, "x", outputs, domain=ML, version=version, **attributes)
    with np.errstate(all="ignore"):
        check(provider, one, {"x": x}, references=definition(operator, version), rtol=2e-6, atol=1e-6)


@pytest.mark.parametrize("modes", [[m] for m in MODES] + [MODES], ids=lambda m: m[0] if len(m) == 1 else "all")
@pytest.mark.parametrize("missing", [False, True])
@pytest.mark.parametrize("special", [False, True])
def test_branches(provider, modes, missing, special):
    trees = ensemble(modes, 11, 5, missing, special)
    compare(provider, "TreeEnsembleRegressor", samples(70, True), n_targets=1, **trees, **leaves(trees, "target", [0]))


@pytest.mark.parametrize("targets", [1, 2, 4, 5, 70])
@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("per_leaf", [1, 3])
def test_targets(provider, targets, aggregate, per_leaf):
    trees = ensemble(["BRANCH_LEQ"], 9, 4)
    weights = leaves(trees, "target", np.arange(targets), per_leaf=per_leaf)
    compare(
        provider, "TreeEnsembleRegressor", samples(65), n_targets=targets, aggregate_function=aggregate,
        base_values=RNG.uniform(-1, 1, targets).tolist(), **trees, **weights,
    )  # fmt: skip


@pytest.mark.parametrize("transform", ["NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO"])
@pytest.mark.parametrize("low", [-1.0, 0.0], ids=["signed", "positive"])
@pytest.mark.parametrize(("classes", "targets"), [
    (None, [0]), ([7], [0]), ([3, 9], [0]), ([3, 9], [0, 1]), ([3, 9], [1]), ([5, 2, -8], [0, 1, 2]),
    (list(range(9)), list(range(9))),
])  # fmt: skip
@pytest.mark.parametrize("based", [False, True])
def test_classes(provider, transform, low, classes, targets, based):
    trees = ensemble(["BRANCH_LT"], 5, 4, missing=True)
    weights = leaves(trees, "class", targets, low)
    labels = {} if classes is None else {"classlabels_int64s": classes}
    if based:
        labels["base_values"] = RNG.uniform(-0.3, 0.3, len(classes or [0])).tolist()
    compare(
        provider, "TreeEnsembleClassifier", samples(40, True), 1, "label y", post_transform=transform, **labels,
        **trees, **weights,
    )  # fmt: skip


@pytest.mark.parametrize("outputs", ["label -", "- y"])
def test_one_output_of_a_classifier(provider, outputs):
    trees = ensemble(["BRANCH_LEQ"], 5, 4)
    weights = leaves(trees, "class", [0, 1, 2])
    compare(provider, "TreeEnsembleClassifier", samples(9), 3, outputs, classlabels_int64s=[4, 5, 6], **trees,
            **weights)  # fmt: skip


@pytest.mark.parametrize("rows", [0, 1, 2, 63, 64, 65])
@pytest.mark.parametrize("count", [1, 7, 8, 9])
def test_rows_and_trees(provider, rows, count):
    trees = ensemble(["BRANCH_LEQ"], count, 6)
    compare(provider, "TreeEnsembleRegressor", samples(rows), n_targets=3, **trees,
            **leaves(trees, "target", [0, 1, 2]))  # fmt: skip


def test_a_vector_is_one_row(provider):
    trees = ensemble(["BRANCH_LEQ"], 3, 3)
    compare(provider, "TreeEnsembleRegressor", samples(1)[0], n_targets=1, **trees, **leaves(trees, "target", [0]))


def test_one_ensemble_for_several_numbers_of_rows(provider):
    trees = ensemble(["BRANCH_LEQ"], 3, 3)
    trees |= leaves(trees, "target", [0])
    for rows in (3, 5):
        compare(provider, "TreeEnsembleRegressor", samples(rows), n_targets=1, **trees)


TREE_5 = {
    "tree_roots": [0, 2], "nodes_featureids": [0, 1, 2], "nodes_modes": np.array([0, 3, 4], np.uint8),
    "nodes_splits": np.array([0.5, -1.0, 2.0], np.float32), "nodes_truenodeids": [1, 0, 3],
    "nodes_trueleafs": [0, 1, 1], "nodes_falsenodeids": [1, 2, 2], "nodes_falseleafs": [1, 1, 1],
    "leaf_targetids": [0, 1, 0, 1], "leaf_weights": np.array([1.5, 2.5, -3.0, 4.0], np.float32), "n_targets": 2,
}  # fmt: skip


@pytest.mark.parametrize("aggregate", [0, 1, 2, 3])
def test_tree_ensemble_5(provider, aggregate):
    compare(provider, "TreeEnsemble", samples(20, True), 5, aggregate_function=aggregate, **TREE_5)


def stump(**changes) -> dict:
    return {
        "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [0, 0, 0],
        "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [0.0, 0.0, 0.0],
        "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0], "target_treeids": [0, 0],
        "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [1.0, 2.0], "n_targets": 1, **changes,
    }  # fmt: skip


CYCLE = {
    "nodes_modes": ["BRANCH_LEQ", "BRANCH_LEQ", "LEAF"], "nodes_truenodeids": [1, 1, 0],
    "nodes_falsenodeids": [2, 2, 0],
}  # fmt: skip
WITHOUT_KERNEL = [
    ({"nodes_featureids": [5, 0, 0]}, "features that the input lacks"),
    (CYCLE, "branches that join"),
    ({"nodes_truenodeids": [9, 0, 0]}, "names a node that does not exist"),
    ({"target_ids": [0, 1]}, "targets that do not exist"),
    ({"target_ids": [0, -1]}, "targets that do not exist"),
    ({"nodes_missing_value_tracks_true": [1]}, "differ in length"),
    ({"nodes_values": [0.0]}, "nodes_values has 1 entries"),
    ({"post_transform": "PROBIT"}, "PROBIT has no kernel"),
    ({"nodes_modes": ["BRANCH_ODD", "LEAF", "LEAF"]}, "BRANCH_ODD"),
    ({"nodes_values": None, "nodes_values_as_tensor": np.zeros(3)}, "float64"),
    ({"target_weights": None, "target_weights_as_tensor": np.array([0.1, 0.2])}, "double precision"),
    ({"base_values": [1.0, 2.0]}, "base values"),
]


@pytest.mark.parametrize(("changes", "reason"), WITHOUT_KERNEL, ids=[r for _, r in WITHOUT_KERNEL])
def test_refused(provider, changes, reason):
    one = node("TreeEnsembleRegressor", "x", domain=ML, version=3, **stump(**changes))
    found = refusal(provider, one, {"x": samples(4)}, references={"TreeEnsembleRegressor": lambda x, **_: x[:, :1]})
    assert found is not None
    assert reason in found


def test_integers_and_string_labels_are_refused(provider):
    one = node("TreeEnsembleRegressor", "x", domain=ML, version=3, **stump())
    found = refusal(provider, one, {"x": samples(4).astype(np.int64)}, references=definition("TreeEnsembleRegressor"))
    assert found == "int64 has no kernel here"
    attributes = {k.replace("target_", "class_"): v for k, v in stump().items() if k != "n_targets"}
    one = node(
        "TreeEnsembleClassifier", "x", "label y", domain=ML, version=3, classlabels_strings=["a", "b"], **attributes
    )
    found = refusal(provider, one, {"x": samples(4)}, references=definition("TreeEnsembleClassifier"))
    assert found == "labels that are strings have no kernel"
