"""Ensembles of decision trees, evaluated for all rows and trees at once, one level per step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..registry import op
from .scores import DOMAIN, as_matrix, class_labels, post_transform_of, prepared, to_float

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
MODES = {
    "BRANCH_LEQ": LEQ,
    "BRANCH_LT": LT,
    "BRANCH_GTE": GTE,
    "BRANCH_GT": GT,
    "BRANCH_EQ": EQ,
    "BRANCH_NEQ": NEQ,
}

COMPARISONS = {
    LEQ: np.less_equal,
    LT: np.less,
    GTE: np.greater_equal,
    GT: np.greater,
    EQ: np.equal,
    NEQ: np.not_equal,
}

AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")

# How many (row, tree) pairs are walked at once, which bounds the memory that takes.
PAIRS_AT_ONCE = 1 << 21


@dataclass(frozen=True, slots=True)
class Trees:
    """All nodes of an ensemble as columns. A leaf is its own child.

    The contributions of node i are ``targets[start[i] : start[i + 1]]`` and the same part of `weights`.
    """

    roots: np.ndarray
    features: np.ndarray
    modes: np.ndarray
    splits: np.ndarray
    true_child: np.ndarray
    false_child: np.ndarray
    missing_is_true: np.ndarray
    leaf: np.ndarray
    start: np.ndarray
    targets: np.ndarray
    weights: np.ndarray
    members: np.ndarray | None = None
    """For nodes of mode MEMBER: the values in the set, padded with NaN, one row per node."""

    def leaves(self, x: np.ndarray) -> np.ndarray:
        """The leaf that each row of `x` reaches in each tree, (rows, trees)."""
        if self.features.size and self.features.max(initial=0) >= x.shape[1]:
            raise ValueError(f"the trees look at feature {self.features.max()}, the input has {x.shape[1]}")
        at = np.broadcast_to(self.roots, (len(x), len(self.roots)))
        rows = np.arange(len(x))[:, None]
        kinds = np.unique(self.modes[~self.leaf])
        for _ in range(len(self.leaf) + 1):
            if self.leaf[at].all():
                return at
            value = x[rows, self.features[at]]
            split = self.splits[at]
            taken = np.zeros(at.shape, bool)
            for kind in kinds:
                if kind == MEMBER:
                    assert self.members is not None
                    passed = (value[..., None] == self.members[at]).any(axis=-1)
                else:
                    passed = COMPARISONS[kind](value, split)
                taken |= passed if len(kinds) == 1 else passed & (self.modes[at] == kind)
            taken |= np.isnan(value) & self.missing_is_true[at]
            at = np.where(taken, self.true_child[at], self.false_child[at])
        raise ValueError("a tree's branches form a cycle")

    def aggregate(self, x: np.ndarray, n_targets: int, function: str) -> tuple[np.ndarray, np.ndarray]:
        """Contributions of the leaves that each row reaches, put together per target, in float64; and which targets
        got any."""
        if function not in AGGREGATES:
            raise ValueError(f"aggregate_function is {function!r}; known are {', '.join(AGGREGATES)}")
        if self.targets.size and not 0 <= self.targets.min() <= self.targets.max() < n_targets:
            raise ValueError(f"leaves contribute to target {self.targets.max()}, there are {n_targets}")
        size = max(1, PAIRS_AT_ONCE // max(1, len(self.roots)))
        parts = [self._aggregate(x[i : i + size], n_targets, function) for i in range(0, max(len(x), 1), size)]
        return np.concatenate([p[0] for p in parts]), np.concatenate([p[1] for p in parts])

    def _aggregate(self, x: np.ndarray, n_targets: int, function: str) -> tuple[np.ndarray, np.ndarray]:
        at = self.leaves(x)
        first, count = self.start[at], self.start[at + 1] - self.start[at]
        row = np.repeat(np.arange(len(x)), count.sum(axis=1).astype(np.intp))
        flat_count = count.reshape(-1).astype(np.intp)
        # Entry numbers first, first + 1, ... of each leaf, one after the other.
        offset = np.arange(flat_count.sum()) - np.repeat(np.cumsum(flat_count) - flat_count, flat_count)
        entry = np.repeat(first.reshape(-1), flat_count) + offset
        cell = row * n_targets + self.targets[entry].astype(np.intp)
        weight = self.weights[entry]
        shape = (len(x), n_targets)
        found = np.bincount(cell, minlength=len(x) * n_targets) > 0
        if function in ("SUM", "AVERAGE"):
            total = np.bincount(cell, weight, len(x) * n_targets)
            if function == "AVERAGE":
                total = total / len(self.roots)
        else:
            extreme, start = (np.minimum, np.inf) if function == "MIN" else (np.maximum, -np.inf)
            total = np.full(len(x) * n_targets, start)
            extreme.at(total, cell, weight)
            total = np.where(found, total, 0)
        return total.reshape(shape), found.reshape(shape)


def contributions(count: int, nodes: np.ndarray, targets: Any, weights: Any) -> tuple[np.ndarray, ...]:
    """Contributions sorted by node, and where each node's begin."""
    order = np.argsort(nodes, kind="stable")
    start = np.zeros(count + 1, np.int64)
    np.cumsum(np.bincount(nodes.astype(np.intp), minlength=count), out=start[1:])
    return start, np.asarray(targets, np.int64)[order], np.asarray(weights, np.float64)[order]


def build_trees(
    treeids: Sequence[int],
    nodeids: Sequence[int],
    featureids: Sequence[int],
    modes: Sequence[str],
    values: Sequence[float] | np.ndarray,
    truenodeids: Sequence[int],
    falsenodeids: Sequence[int],
    missing: Sequence[int] | None,
    weight_treeids: Sequence[int],
    weight_nodeids: Sequence[int],
    weight_targets: Sequence[int],
    weights: Sequence[float] | np.ndarray,
) -> Trees:
    """Trees from the attributes of TreeEnsembleClassifier and TreeEnsembleRegressor, which name nodes by tree and
    number."""
    tree, node = np.asarray(treeids, np.int64), np.asarray(nodeids, np.int64)
    count = len(tree)
    columns = {"nodeids": nodeids, "featureids": featureids, "modes": modes, "truenodeids": truenodeids}
    columns |= {"falsenodeids": falsenodeids, "values": values}
    for name, column in columns.items():
        if len(column) != count:
            raise ValueError(f"nodes_{name} has {len(column)} entries, nodes_treeids {count}")
    unknown = sorted(set(modes) - set(MODES) - {"LEAF"})
    if unknown:
        raise ValueError(f"nodes_modes has {', '.join(map(repr, unknown))}; known are {', '.join(MODES)} and LEAF")
    width = int(max(node.max(initial=0), 0)) + 1
    key = tree * width + node
    order = np.argsort(key, kind="stable")
    sorted_key = key[order]

    def find(trees: Any, nodes: Any, what: str) -> np.ndarray:
        nodes = np.asarray(nodes, np.int64)
        wanted = np.asarray(trees, np.int64) * width + nodes
        at = np.searchsorted(sorted_key, wanted)
        at = np.minimum(at, max(count - 1, 0))
        if wanted.size and (count == 0 or (sorted_key[at] != wanted).any() or (nodes >= width).any()):
            raise ValueError(f"{what} names a node that does not exist")
        return order[at]

    leaf = np.array([m == "LEAF" for m in modes], bool)
    itself = np.arange(count)
    true_child, false_child = itself.copy(), itself.copy()
    inner = np.flatnonzero(~leaf)
    true_child[inner] = find(tree[inner], np.asarray(truenodeids, np.int64)[inner], "nodes_truenodeids")
    false_child[inner] = find(tree[inner], np.asarray(falsenodeids, np.int64)[inner], "nodes_falsenodeids")
    # A tree's root is the first of its nodes that is nobody's child.
    orphan = np.ones(count, bool)
    orphan[true_child[inner]] = False
    orphan[false_child[inner]] = False
    candidates = np.flatnonzero(orphan)
    _, firsts = np.unique(tree[candidates], return_index=True)
    roots = candidates[firsts]
    if len(roots) != len(np.unique(tree)):
        raise ValueError("a tree has no root: its branches form a cycle")
    start, targets, sorted_weights = contributions(
        count, find(weight_treeids, weight_nodeids, "a leaf's weight"), weight_targets, weights
    )
    features = np.where(leaf, 0, np.asarray(featureids, np.int64))
    if features.min(initial=0) < 0:
        raise ValueError("nodes_featureids has a negative number")
    return Trees(
        roots,
        features,
        np.array([MODES.get(m, LEQ) for m in modes], np.uint8),
        # Split values from a list are float32; those from a tensor keep their type.
        values if isinstance(values, np.ndarray) else np.asarray(values, np.float32),
        true_child,
        false_child,
        np.asarray(missing, bool) if missing else np.zeros(count, bool),
        leaf,
        start,
        targets,
        sorted_weights,
    )


@op("TreeEnsembleRegressor", domain=DOMAIN)
def tree_ensemble_regressor(
    x: np.ndarray,
    *,
    aggregate_function: str = "SUM",
    base_values: Sequence[float] | None = None,
    base_values_as_tensor: np.ndarray | None = None,
    n_targets: int = 1,
    nodes_falsenodeids: Sequence[int] = (),
    nodes_featureids: Sequence[int] = (),
    nodes_hitrates: Sequence[float] | None = None,
    nodes_hitrates_as_tensor: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Sequence[int] | None = None,
    nodes_modes: Sequence[str] = (),
    nodes_nodeids: Sequence[int] = (),
    nodes_treeids: Sequence[int] = (),
    nodes_truenodeids: Sequence[int] = (),
    nodes_values: Sequence[float] | None = None,
    nodes_values_as_tensor: np.ndarray | None = None,
    post_transform: str = "NONE",
    target_ids: Sequence[int] = (),
    target_nodeids: Sequence[int] = (),
    target_treeids: Sequence[int] = (),
    target_weights: Sequence[float] | None = None,
    target_weights_as_tensor: np.ndarray | None = None,
):
    trees = prepared(
        build_trees, nodes_treeids, nodes_nodeids, nodes_featureids, nodes_modes,
        given(nodes_values, nodes_values_as_tensor), nodes_truenodeids, nodes_falsenodeids,
        nodes_missing_value_tracks_true, target_treeids, target_nodeids, target_ids,
        given(target_weights, target_weights_as_tensor),
    )  # fmt: skip
    scores, _ = trees.aggregate(to_float(as_matrix(x)), n_targets, aggregate_function)
    scores = scores + base(base_values, base_values_as_tensor, n_targets)
    return post_transform_of(post_transform)(scores).astype(np.float32)


def given(values: Sequence[float] | None, tensor: np.ndarray | None) -> Sequence[float] | np.ndarray:
    """The attribute in the one of its two forms that is there."""
    return tensor if tensor is not None and tensor.size else (values or ())


def base(values: Sequence[float] | None, tensor: np.ndarray | None, count: int) -> np.ndarray:
    """Base values, zero where there are none."""
    start = np.asarray(given(values, tensor), np.float64).reshape(-1)
    if start.size not in (0, 1, count):
        raise ValueError(f"there are {start.size} base values for {count} targets")
    return start if start.size else np.zeros(count)


@op("TreeEnsembleClassifier", domain=DOMAIN)
def tree_ensemble_classifier(
    x: np.ndarray,
    *,
    base_values: Sequence[float] | None = None,
    base_values_as_tensor: np.ndarray | None = None,
    class_ids: Sequence[int] = (),
    class_nodeids: Sequence[int] = (),
    class_treeids: Sequence[int] = (),
    class_weights: Sequence[float] | None = None,
    class_weights_as_tensor: np.ndarray | None = None,
    classlabels_int64s: Sequence[int] | None = None,
    classlabels_strings: Sequence[str] | None = None,
    nodes_falsenodeids: Sequence[int] = (),
    nodes_featureids: Sequence[int] = (),
    nodes_hitrates: Sequence[float] | None = None,
    nodes_hitrates_as_tensor: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Sequence[int] | None = None,
    nodes_modes: Sequence[str] = (),
    nodes_nodeids: Sequence[int] = (),
    nodes_treeids: Sequence[int] = (),
    nodes_truenodeids: Sequence[int] = (),
    nodes_values: Sequence[float] | None = None,
    nodes_values_as_tensor: np.ndarray | None = None,
    post_transform: str = "NONE",
):
    trees = prepared(
        build_trees, nodes_treeids, nodes_nodeids, nodes_featureids, nodes_modes,
        given(nodes_values, nodes_values_as_tensor), nodes_truenodeids, nodes_falsenodeids,
        nodes_missing_value_tracks_true, class_treeids, class_nodeids, class_ids,
        given(class_weights, class_weights_as_tensor),
    )  # fmt: skip
    labels = class_labels(classlabels_int64s, classlabels_strings, int(trees.targets.max(initial=0)) + 1)
    count = len(labels)
    start = base(base_values, base_values_as_tensor, count)
    scores, _ = trees.aggregate(to_float(as_matrix(x)), count, "SUM")
    if count == 2 and trees.targets.size and not trees.targets.any():
        return binary_scores(scores, start, trees, labels, post_transform)
    scores = scores + start
    if count == 1:
        positive = scores[:, 0] > (0.5 if trees.weights.min(initial=0) >= 0 else 0)
        chosen = np.where(positive, labels[0], np.zeros((), labels.dtype)[()] if labels.dtype.kind == "i" else "")
        return chosen.astype(labels.dtype), post_transform_of(post_transform)(scores).astype(np.float32)
    return labels[scores.argmax(axis=1)], post_transform_of(post_transform)(scores).astype(np.float32)


def binary_scores(
    scores: np.ndarray, start: np.ndarray, trees: Trees, labels: np.ndarray, post_transform: str
) -> tuple[np.ndarray, np.ndarray]:
    """Two classes where leaves score only the first: exporters mean by that the score of the second class.

    It is a margin, to be transformed together with its opposite; or, if no weight is negative and the transform is
    not LOGISTIC, a probability.
    """
    score = scores[:, 0] + start[-1]
    if trees.weights.min(initial=0) >= 0 and post_transform != "LOGISTIC":
        pair, threshold = np.stack([1 - score, score], axis=1), 0.5
    else:
        pair, threshold = post_transform_of(post_transform)(np.stack([-score, score], axis=1)), 0
    return labels[(score > threshold).astype(np.int64)], pair.astype(np.float32)


def build_trees_5(
    roots: Sequence[int],
    featureids: Sequence[int],
    modes: np.ndarray,
    splits: np.ndarray,
    truenodeids: Sequence[int],
    trueleafs: Sequence[int],
    falsenodeids: Sequence[int],
    falseleafs: Sequence[int],
    missing: Sequence[int] | None,
    leaf_targetids: Sequence[int],
    leaf_weights: np.ndarray,
    membership: np.ndarray | None,
) -> Trees:
    """Trees from the attributes of TreeEnsemble, in which leaves are counted apart; here they follow the nodes."""
    inner, leaves = len(featureids), len(leaf_targetids)
    count = inner + leaves

    def children(ids: Sequence[int], are_leaves: Sequence[int]) -> np.ndarray:
        child = np.asarray(ids, np.int64) + np.where(np.asarray(are_leaves, bool), inner, 0)
        if len(child) != inner or (child.size and not 0 <= child.min() <= child.max() < count):
            raise ValueError("a branch leads to a node or leaf that does not exist")
        return np.concatenate([child, np.arange(inner, count)])

    kinds = np.concatenate([np.asarray(modes, np.uint8), np.zeros(leaves, np.uint8)])
    if kinds.max(initial=0) > MEMBER:
        raise ValueError(f"nodes_modes has {kinds.max()}; 0 to {MEMBER} are known")
    start_targets = contributions(count, np.arange(inner, count), leaf_targetids, leaf_weights)
    start = np.asarray(roots, np.int64)
    if start.size and not 0 <= start.min() <= start.max() < inner:
        raise ValueError("tree_roots names a node that does not exist")
    no = np.zeros(leaves, bool)
    return Trees(
        start,
        np.concatenate([np.asarray(featureids, np.int64), np.zeros(leaves, np.int64)]),
        kinds,
        np.concatenate([splits, np.zeros(leaves, splits.dtype)]),
        children(truenodeids, trueleafs),
        children(falsenodeids, falseleafs),
        np.concatenate([np.asarray(missing, bool) if missing else np.zeros(inner, bool), no]),
        np.concatenate([np.zeros(inner, bool), ~no]),
        *start_targets,
        members=None if membership is None else member_sets(kinds, membership),
    )


def member_sets(kinds: np.ndarray, membership: np.ndarray) -> np.ndarray:
    """The sets of `membership_values`, which NaN separates, one per node of mode MEMBER in order, as rows padded with
    NaN; other nodes have empty rows."""
    ends = np.flatnonzero(np.isnan(membership))
    sets = np.split(membership, ends)
    sets = [s[~np.isnan(s)] for s in sets]
    nodes = np.flatnonzero(kinds == MEMBER)
    if len(nodes) > len(sets):
        raise ValueError(f"membership_values has {len(sets)} sets for {len(nodes)} nodes")
    rows = np.full((len(kinds), max((len(s) for s in sets), default=0)), np.nan, membership.dtype)
    for node, values in zip(nodes, sets, strict=False):
        rows[node, : len(values)] = values
    return rows


POST_TRANSFORM_NUMBERS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")


@op("TreeEnsemble", since=5, domain=DOMAIN)
def tree_ensemble(
    x: np.ndarray,
    *,
    aggregate_function: int = 1,
    leaf_targetids: Sequence[int],
    leaf_weights: np.ndarray,
    membership_values: np.ndarray | None = None,
    n_targets: int = 1,
    nodes_falseleafs: Sequence[int],
    nodes_falsenodeids: Sequence[int],
    nodes_featureids: Sequence[int],
    nodes_hitrates: np.ndarray | None = None,
    nodes_missing_value_tracks_true: Sequence[int] | None = None,
    nodes_modes: np.ndarray,
    nodes_splits: np.ndarray,
    nodes_trueleafs: Sequence[int],
    nodes_truenodeids: Sequence[int],
    post_transform: int = 0,
    tree_roots: Sequence[int],
):
    trees = prepared(
        build_trees_5, tree_roots, nodes_featureids, nodes_modes, nodes_splits, nodes_truenodeids, nodes_trueleafs,
        nodes_falsenodeids, nodes_falseleafs, nodes_missing_value_tracks_true, leaf_targetids, leaf_weights,
        membership_values,
    )  # fmt: skip
    if not 0 <= post_transform < len(POST_TRANSFORM_NUMBERS) or not 0 <= aggregate_function < len(AGGREGATES):
        raise ValueError(f"post_transform {post_transform} or aggregate_function {aggregate_function} is unknown")
    scores, _ = trees.aggregate(as_matrix(x), n_targets, AGGREGATES[aggregate_function])
    return post_transform_of(POST_TRANSFORM_NUMBERS[post_transform])(scores).astype(x.dtype)
