from typing import Any

import numpy as np
import pytest

from onnxlet.ops.activations import sigmoid
from tests.core.ops.calling import call, f32, i64, same
from tests.core.ops.oracle import Numbers, agrees

ML = "ai.onnx.ml"
MODES = ["BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ"]


def ensemble(numbers, prefix, targets, *, trees=3, depth=2, modes=("BRANCH_LEQ",), positive=False) -> dict[str, Any]:
    """Attributes of complete trees over five features, whose leaves contribute to all `targets`."""
    keys = ("treeids", "nodeids", "featureids", "modes", "values", "truenodeids", "falsenodeids")
    nodes = {f"nodes_{key}": [] for key in keys}
    leaves = {f"{prefix}_{key}": [] for key in ("treeids", "nodeids", "ids", "weights")}
    inner = 2**depth - 1
    for tree in range(trees):
        for node in range(2 * inner + 1):
            leaf = node >= inner
            row = (
                tree,
                node,
                0 if leaf else int(numbers.generator.integers(5)),
                "LEAF" if leaf else str(numbers.generator.choice(modes)),
                0.0 if leaf else float(np.round(numbers.generator.normal())),
                0 if leaf else 2 * node + 1,
                0 if leaf else 2 * node + 2,
            )
            for column, value in zip(nodes.values(), row, strict=True):
                column.append(value)
            for target in targets if leaf else ():
                weight = float(numbers.generator.uniform(0, 0.3) if positive else numbers.generator.normal())
                for column, value in zip(leaves.values(), (tree, node, target, weight), strict=True):
                    column.append(value)
    return nodes | leaves


@pytest.mark.parametrize("aggregate", ["SUM", "AVERAGE", "MIN", "MAX"])
@pytest.mark.parametrize("targets", [1, 3])
@pytest.mark.parametrize("base", [False, True])
def test_regressor(aggregate, targets, base):
    numbers = Numbers()
    x = np.round(2 * numbers.f32(9, 5))
    attributes = ensemble(numbers, "target", range(targets), trees=4, depth=3, modes=MODES)
    if base:
        attributes["base_values"] = [0.25, -0.4, 0.1][:targets]
    agrees("TreeEnsembleRegressor", 1, x, domain=ML, n_targets=targets, aggregate_function=aggregate, **attributes)


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC", "SOFTMAX"])
@pytest.mark.parametrize("base", [False, True])
def test_classifier_of_three_classes(transform, base):
    numbers = Numbers()
    attributes = ensemble(numbers, "class", range(3))
    if base:
        attributes["base_values"] = [0.25, -0.4, 0.1]
    agrees(
        "TreeEnsembleClassifier", 1, numbers.f32(9, 5), domain=ML, outputs=2, post_transform=transform,
        classlabels_strings=["a", "b", "c"], **attributes,
    )  # fmt: skip


@pytest.mark.parametrize("transform", ["NONE", "LOGISTIC"])
@pytest.mark.parametrize("base", [None, [0.25]])
def test_binary_classifier_with_margins_of_one_class(transform, base):
    numbers = Numbers()
    attributes = ensemble(numbers, "class", [0])
    if base:
        attributes["base_values"] = base
    agrees(
        "TreeEnsembleClassifier", 1, numbers.f32(9, 5), domain=ML, outputs=2, post_transform=transform,
        classlabels_int64s=[0, 1], **attributes,
    )  # fmt: skip


def test_binary_classifier_with_probabilities_of_one_class():
    numbers = Numbers()
    attributes = ensemble(numbers, "class", [0], positive=True)
    x = numbers.f32(9, 5)
    agrees("TreeEnsembleClassifier", 1, x, domain=ML, outputs=2, classlabels_int64s=[0, 1], **attributes)
    # With LOGISTIC positive weights are margins all the same: the likelier class wins.
    label, scores = call(
        "TreeEnsembleClassifier",
        1,
        x,
        domain=ML,
        outputs=2,
        post_transform="LOGISTIC",
        classlabels_int64s=[0, 1],
        **attributes,
    )
    assert (label == 1).all()
    assert (scores[:, 1] > 0.5).all()


SPLIT: dict[str, Any] = {
    "nodes_treeids": [0, 0, 0], "nodes_nodeids": [0, 1, 2], "nodes_featureids": [1, 0, 0],
    "nodes_modes": ["BRANCH_LEQ", "LEAF", "LEAF"], "nodes_values": [1.0, 0.0, 0.0],
    "nodes_truenodeids": [1, 0, 0], "nodes_falsenodeids": [2, 0, 0],
}  # fmt: skip
LEAVES = {"target_treeids": [0, 0], "target_nodeids": [1, 2], "target_ids": [0, 0], "target_weights": [10.0, 20.0]}


def test_missing_values_go_where_the_node_says():
    x = f32([[0, 1], [0, 2], [0, np.nan]])
    same(call("TreeEnsembleRegressor", 3, x, domain=ML, **SPLIT, **LEAVES), f32([[10], [20], [20]]))
    tracked = SPLIT | {"nodes_missing_value_tracks_true": [1, 0, 0]}
    same(call("TreeEnsembleRegressor", 3, x, domain=ML, **tracked, **LEAVES), f32([[10], [20], [10]]))


def test_thresholds_of_tensors_keep_their_precision():
    split = {k: v for k, v in SPLIT.items() if k != "nodes_values"}
    threshold = 1 + 2.0**-40
    x = np.array([[0, 1.0], [0, threshold], [0, 1 + 2.0**-39]])
    y = call(
        "TreeEnsembleRegressor", 3, x, domain=ML, nodes_values_as_tensor=np.array([threshold, 0, 0]), **split, **LEAVES
    )
    same(y, f32([[10], [10], [20]]))


def test_other_transforms():
    y = call("TreeEnsembleRegressor", 1, f32([[0, 0]]), domain=ML, post_transform="LOGISTIC", **SPLIT, **LEAVES)
    np.testing.assert_allclose(y, sigmoid(f32([[10]])))
    attributes: dict[str, Any] = SPLIT | {k.replace("target", "class"): v for k, v in LEAVES.items()}
    attributes |= {"class_ids": [0, 1], "class_weights": [0.0, 3.0], "classlabels_strings": ["no", "yes", "never"]}
    label, scores = call(
        "TreeEnsembleClassifier", 1, f32([[0, 5]]), domain=ML, outputs=2, post_transform="SOFTMAX_ZERO", **attributes
    )
    assert label.tolist() == ["yes"]
    same(scores, f32([[0, 1, 0]]))  # what is zero stays zero


TREE_5: dict[str, Any] = {
    "tree_roots": [0], "nodes_featureids": [0, 0], "nodes_modes": np.array([6, 0], np.uint8),
    "nodes_splits": np.array([0, 4], np.float32), "nodes_trueleafs": [1, 1], "nodes_truenodeids": [0, 1],
    "nodes_falseleafs": [0, 1], "nodes_falsenodeids": [1, 2], "leaf_targetids": [0, 1, 0],
    "leaf_weights": np.array([1, 10, 100], np.float32), "n_targets": 2,
    "membership_values": np.array([1.2, 3.7, 8, np.nan], np.float32),
}  # fmt: skip


def test_tree_ensemble_with_sets():
    x = f32([[1.2], [3.4], [8], [9]])
    same(call("TreeEnsemble", 5, x, domain=ML, **TREE_5), f32([[1, 0], [0, 10], [1, 0], [100, 0]]))
    two: dict[str, Any] = TREE_5 | {"tree_roots": [0, 1]}
    average = call("TreeEnsemble", 5, x, domain=ML, **two, aggregate_function=0)
    same(average[1], f32(0, 10))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"nodes_truenodeids": [7, 0, 0]}, "nodes_truenodeids names a node that does not exist"),
        ({"nodes_modes": ["BRANCH_IN", "LEAF", "LEAF"]}, "BRANCH_IN"),
        ({"nodes_values": [1.0]}, "nodes_values has 1 entries"),
        ({"nodes_featureids": [5, 0, 0]}, "look at feature 5, the input has 2"),
        ({"target_ids": [0, 3]}, "contribute to target 3, there are 1"),
        (
            {
                "nodes_truenodeids": [0, 0, 0],
                "nodes_falsenodeids": [1, 0, 0],
                "nodes_treeids": [0, 0, 1],
                "target_treeids": [0, 1],
            },
            "cycle",
        ),
    ],
)
def test_malformed_trees_are_refused(changes, message):
    with pytest.raises(ValueError, match=message):
        call("TreeEnsembleRegressor", 1, f32([[0, 0]]), domain=ML, **(SPLIT | LEAVES | changes))


def test_branches_that_never_end_are_refused():
    endless: dict[str, Any] = TREE_5 | {"nodes_trueleafs": [0, 1], "nodes_truenodeids": [0, 1]}
    with pytest.raises(ValueError, match="form a cycle"):
        call("TreeEnsemble", 5, f32([[1.2]]), domain=ML, **endless)


def test_many_rows_are_walked_in_parts(monkeypatch):
    from onnxlet.ops.ml import trees

    numbers = Numbers()
    attributes = ensemble(numbers, "target", [0])
    x = numbers.f32(50, 5)
    whole = call("TreeEnsembleRegressor", 1, x, domain=ML, **attributes)
    monkeypatch.setattr(trees, "PAIRS_AT_ONCE", 10)
    same(call("TreeEnsembleRegressor", 1, x, domain=ML, **attributes), whole)
    assert call("TreeEnsembleRegressor", 1, x[:0], domain=ML, **attributes).shape == (0, 1)
    same(call("TreeEnsembleRegressor", 1, i64([[0, 1]]), domain=ML, **SPLIT, **LEAVES), f32([[10]]))
