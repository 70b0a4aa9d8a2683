"""Ensembles of decision trees."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from onnxlet.ops.ml.scores import DOMAIN, class_labels, prepared
from onnxlet.ops.ml.trees import (
    AGGREGATES,
    EQ,
    GT,
    GTE,
    LEQ,
    LT,
    MEMBER,
    NEQ,
    POST_TRANSFORM_NUMBERS,
    Trees,
    base,
    build_trees,
    build_trees_5,
    given,
)
from onnxlet.providers.base import Step

from ..compiler import Compiler
from ..engine import f32
from .common import F32, grain, need_float32, shape_of, text
from .registry import Emit, Refused, lower
from .scores import COMPLEMENT, OPPOSITE, Verdict, check_verdict, emit_verdict, transform_number

NODE = np.dtype([("low", np.int32), ("high", np.float32), ("feature", np.int32), ("child", np.int32)])
CONTRIBUTION = np.dtype([("weight", np.float32), ("target", np.int32)])

TREES_AT_ONCE = 8
VECTOR = 4
LEAVES_WEIGHT, LEAVES_VECTOR, LEAVES_RUN = range(3)
DEEPEST = 1024
"""Levels of a tree that has kernels. Those of cyclic branches have no end."""

MISSING = np.int32(-(1 << 31))
"""The bit of `feature` by which missing values pass."""

AGGREGATE_NUMBERS = {"SUM": 0, "AVERAGE": 0, "MIN": 1, "MAX": 2}
STEP_COST = 8
"""Multiply-adds that a step from a node to its child is worth."""


@dataclass(frozen=True, slots=True)
class Flat:
    """The arrays of the kernel `trees`, which says what is in them."""

    nodes: np.ndarray
    roots: np.ndarray
    contributions: np.ndarray
    leaves: int
    depth: int
    test: int


def flatten(trees: Trees, targets: int, sums: bool) -> Flat:
    """The nodes that can be reached, tree by tree, the two children of a node side by side. Raises `Refused`.

    Nodes are visited level by level; one that several branches lead to is visited, and laid down, for each of them.
    """
    if trees.splits.dtype != F32:
        raise Refused(f"splits of {trees.splits.dtype} have no kernel")
    if (trees.modes == MEMBER).any():
        raise Refused("splits by membership have no kernel")
    at, tree = trees.roots, np.arange(len(trees.roots))
    levels, owners, parents, laid = [at], [tree], [np.full(len(at), -1)], len(at)
    while True:
        inner = ~trees.leaf[at]
        if not inner.any():
            break
        # Where NEQ does not hold, EQ does.
        swapped = (trees.modes[at] == NEQ)[inner]
        false, true = trees.false_child[at][inner], trees.true_child[at][inner]
        parents.append(np.repeat(laid - len(at) + np.flatnonzero(inner), 2))
        at = np.stack([np.where(swapped, true, false), np.where(swapped, false, true)], axis=1).reshape(-1)
        tree = np.repeat(tree[inner], 2)
        levels.append(at)
        owners.append(tree)
        laid += len(at)
        if len(levels) > DEEPEST or laid > 2 * len(trees.leaf) + len(trees.roots):
            raise Refused("branches that join have no kernel")
    source, parent = np.concatenate(levels), np.concatenate(parents)
    order = np.argsort(np.concatenate(owners), kind="stable")
    place = np.empty(laid, np.int64)
    place[order] = np.arange(laid)
    first_child = np.arange(laid)
    # Children follow their parent's visit in pairs, the one for "no" first.
    first_child[parent[len(levels[0]) :: 2]] = place[np.arange(len(levels[0]), laid, 2)]
    leaf = trees.leaf[source]
    first_child[leaf] = place[leaf]
    leaves, contributed, contributions = _contributions(trees, targets, sums)
    nodes = np.zeros(laid + 1, NODE)
    low, high, missing = _intervals(trees, source)
    test = 2 if (missing & ~leaf).any() else 1 if (low[~leaf] != -np.inf).any() else 0
    nodes["low"][:-1] = np.where(leaf, contributed[source], low.view(np.int32))[order]
    nodes["high"][:-1] = np.where(leaf, np.float32(np.nan), high)[order]
    feature = trees.features[source].astype(np.int32)
    missing &= ~leaf
    nodes["feature"][:-1] = np.where(missing, feature | MISSING, feature)[order]
    nodes["child"][:-1] = first_child[order]
    # A leaf without contributions, for trees that fill up the last group.
    none = {LEAVES_WEIGHT: 0, LEAVES_VECTOR: len(contributions), LEAVES_RUN: -1}[leaves]
    nodes[-1] = none, np.nan, 0, laid
    if leaves == LEAVES_VECTOR:
        contributions = np.concatenate([contributions, np.zeros((1, VECTOR), np.float32)])
    roots = np.full(-(-len(trees.roots) // TREES_AT_ONCE) * TREES_AT_ONCE, laid, np.int32)
    roots[: len(trees.roots)] = place[: len(trees.roots)]
    return Flat(nodes, roots, contributions, leaves, len(levels), test)


def _intervals(trees: Trees, source: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For nodes: the closed intervals of the values that pass, and whether missing ones do. NaN bounds hold nothing."""
    mode, split = trees.modes[source], trees.splits[source]
    low, high = np.full(split.shape, -np.inf, np.float32), np.full(split.shape, np.inf, np.float32)
    with np.errstate(all="ignore"):  # the neighbours of the extremes
        below, above = np.nextafter(split, np.float32(-np.inf)), np.nextafter(split, np.float32(np.inf))
    # Nothing lies beyond an infinity.
    below[split == -np.inf] = np.nan
    above[split == np.inf] = np.nan
    exact = (mode == EQ) | (mode == NEQ)
    for chosen, bound, values in (
        (mode == LEQ, high, split), (mode == LT, high, below), (mode == GTE, low, split), (mode == GT, low, above),
        (exact, low, split), (exact, high, split),
    ):  # fmt: skip
        bound[chosen] = values[chosen]
    # NaN is not equal to anything: it goes where NEQ holds, so it does not pass EQ.
    return low, high, trees.missing_is_true[source] & (mode != NEQ)


def _contributions(trees: Trees, targets: int, sums: bool) -> tuple[int, np.ndarray, np.ndarray]:
    """How leaves say what they contribute; what each node has instead of a lower bound, as bits; and the contributions
    apart from the nodes."""
    weights, count = trees.weights.astype(np.float32), len(trees.leaf)
    if not np.array_equal(weights, trees.weights, equal_nan=True):
        raise Refused("weights of double precision have no kernel")
    first, amount = trees.start[:-1], np.diff(trees.start)
    node = np.repeat(np.arange(count), amount.astype(np.intp))  # 32 bits wide in Pyodide
    distinct = len(np.unique(node * targets + trees.targets)) == len(node)
    if sums and distinct and targets <= VECTOR:
        dense = np.zeros((count, 1 if targets == 1 else VECTOR), np.float32)
        dense[node, trees.targets] = weights
        if targets == 1:
            return LEAVES_WEIGHT, dense[:, 0].view(np.int32), dense[:0]
        leaves = np.flatnonzero(trees.leaf)
        number = np.zeros(count, np.int32)
        number[leaves] = np.arange(len(leaves))
        return LEAVES_VECTOR, number, dense[leaves]
    runs = np.zeros(len(weights), CONTRIBUTION)
    runs["weight"], runs["target"] = weights, trees.targets
    last = (first + amount - 1)[amount > 0]
    runs["target"][last] = ~runs["target"][last]
    return LEAVES_RUN, np.where(amount > 0, first, -1).astype(np.int32), runs


def _flat(step: Step, trees: Trees, targets: int, sums: bool) -> Flat:
    """The checked and flattened trees of a step. Raises `Refused` where the definition finds an error, too."""
    need_float32(step, 0)
    shape = shape_of(step, 0)
    if not 1 <= len(shape) <= 2 or not shape[-1]:
        raise Refused("an input that is no matrix has no kernel")
    columns = (trees.features, trees.modes, trees.splits, trees.true_child, trees.false_child, trees.missing_is_true)
    if any(column.shape != trees.leaf.shape for column in columns) or len(trees.start) != len(trees.leaf) + 1:
        raise Refused("attributes of nodes that differ in length have no kernel")
    if len(trees.weights) != len(trees.targets) or trees.start[-1] != len(trees.targets):
        raise Refused("attributes of leaves that differ in length have no kernel")
    if not len(trees.roots):
        raise Refused("an ensemble without trees has no kernel")
    if not 0 <= trees.features.min(initial=0) <= trees.features.max(initial=0) < shape[-1]:
        raise Refused("the trees look at features that the input lacks")
    if targets < 1 or not 0 <= trees.targets.min(initial=0) <= trees.targets.max(initial=0) < targets:
        raise Refused("leaves contribute to targets that do not exist")
    if max(len(trees.leaf), len(trees.weights)) > 1 << 28:
        raise Refused("an ensemble of this size has no kernel")
    return prepared(flatten, trees, targets, sums)


def _trees_of(step: Step) -> Trees:
    """The ensemble of a step as its definition holds it. Raises `Refused` where it is none."""
    a = step.attribute
    try:
        if step.node.op_type == "TreeEnsemble":
            return prepared(
                build_trees_5, a("tree_roots"), a("nodes_featureids"), a("nodes_modes"), a("nodes_splits"),
                a("nodes_truenodeids"), a("nodes_trueleafs"), a("nodes_falsenodeids"), a("nodes_falseleafs"),
                a("nodes_missing_value_tracks_true"), a("leaf_targetids"), a("leaf_weights"), a("membership_values"),
            )  # fmt: skip
        kind = "class" if step.node.op_type == "TreeEnsembleClassifier" else "target"
        return prepared(
            build_trees, a("nodes_treeids", ()), a("nodes_nodeids", ()), a("nodes_featureids", ()),
            a("nodes_modes", ()), given(a("nodes_values"), a("nodes_values_as_tensor")), a("nodes_truenodeids", ()),
            a("nodes_falsenodeids", ()), a("nodes_missing_value_tracks_true"), a(f"{kind}_treeids", ()),
            a(f"{kind}_nodeids", ()), a(f"{kind}_ids", ()),
            given(a(f"{kind}_weights"), a(f"{kind}_weights_as_tensor")),
        )  # fmt: skip
    except (ValueError, IndexError, TypeError) as error:
        raise Refused(f"no trees: {error}") from None


def _base_of(step: Step, count: int) -> np.ndarray:
    try:
        start = base(step.attribute("base_values"), step.attribute("base_values_as_tensor"), count)
        return np.broadcast_to(start, (count,))
    except ValueError as error:
        raise Refused(str(error)) from None


def _lowered(step: Step, trees: Trees, aggregate: str, targets: int, verdict: Verdict) -> Emit:
    """Walk the trees, then finish their scores of `targets` targets."""
    if aggregate not in AGGREGATE_NUMBERS:
        raise Refused(f"aggregate_function {aggregate} has no kernel")
    sums = AGGREGATE_NUMBERS[aggregate] == 0
    flat = _flat(step, trees, targets, sums)
    *rows, features = shape_of(step, 0)
    count = rows[0] if rows else 1
    if not sums and np.isnan(trees.weights).any():
        raise Refused("the extremes of NaN have no kernel")
    check_verdict(step, verdict, count, targets)

    def array(c: Compiler, name: str) -> int:
        # The list of features is this node's own, and lives as long as the tensor, which holds the step.
        key = ("trees", name, id(step.attribute("nodes_featureids")))
        known: np.ndarray = getattr(flat, name)
        tensor = c.memory.derivations.get(
            key, (), known.dtype, known.shape, lambda: getattr(_flat(step, _trees_of(step), targets, sums), name)
        )
        return c.memory.constant(tensor)

    def emit(c: Compiler) -> None:
        scores = c.temporary(8 * count * targets)
        c.emit(
            "trees", units=count, grain=grain(count, count * len(flat.roots) * flat.depth * STEP_COST), x=c.input(0),
            features=features, nodes=array(c, "nodes"), test=flat.test, roots=array(c, "roots"),
            trees=len(flat.roots), leaves=flat.leaves, contributions=array(c, "contributions"),
            aggregate=AGGREGATE_NUMBERS[aggregate],
            divisor=f32(len(trees.roots) if aggregate == "AVERAGE" else 1), scores=scores, targets=targets,
        )  # fmt: skip
        emit_verdict(c, verdict, scores, np.dtype(np.float64), count, targets)

    return emit


@lower("TreeEnsembleRegressor", domain=DOMAIN)
def tree_ensemble_regressor(step: Step) -> Emit:
    targets = step.attribute("n_targets", 1)
    transform = transform_number(text(step.attribute("post_transform", "NONE")))
    verdict = Verdict(transform, scores=0, base=_base_of(step, targets))
    return _lowered(step, _trees_of(step), text(step.attribute("aggregate_function", "SUM")), targets, verdict)


@lower("TreeEnsemble", domain=DOMAIN)
def tree_ensemble(step: Step) -> Emit:
    transform, aggregate = step.attribute("post_transform", 0), step.attribute("aggregate_function", 1)
    if not 0 <= transform < len(POST_TRANSFORM_NUMBERS) or not 0 <= aggregate < len(AGGREGATES):
        raise Refused("a transform or aggregate of this number has no kernel")
    verdict = Verdict(transform_number(POST_TRANSFORM_NUMBERS[transform]), scores=0)
    return _lowered(step, _trees_of(step), AGGREGATES[aggregate], step.attribute("n_targets", 1), verdict)


@lower("TreeEnsembleClassifier", domain=DOMAIN)
def tree_ensemble_classifier(step: Step) -> Emit:
    """Two classes where leaves score only the first, and one class alone, are decided by a threshold."""
    trees = _trees_of(step)
    if step.attribute("classlabels_strings"):
        raise Refused("labels that are strings have no kernel")
    labels = class_labels(step.attribute("classlabels_int64s"), None, int(trees.targets.max(initial=0)) + 1).tolist()
    post_transform = text(step.attribute("post_transform", "NONE"))
    transform, start = transform_number(post_transform), _base_of(step, len(labels))
    no_negative = trees.weights.min(initial=0) >= 0
    targets = len(labels)
    if len(labels) == 2 and trees.targets.size and not trees.targets.any():
        targets = 1
        if no_negative and post_transform != "LOGISTIC":
            verdict = Verdict(0, labels, start[-1:], pair=COMPLEMENT, threshold=0.5)
        else:
            verdict = Verdict(transform, labels, start[-1:], pair=OPPOSITE, threshold=0.0)
    elif len(labels) == 1:
        verdict = Verdict(transform, [0, labels[0]], start, threshold=0.5 if no_negative else 0.0)
    else:
        verdict = Verdict(transform, labels, start)
    return _lowered(step, trees, "SUM", targets, verdict)
