// Ensembles of decision trees, and what follows scores of classes. NumPy twins: onnxlet/ops/ml/trees.py,
// TreeEnsembleClassifier, TreeEnsembleRegressor, TreeEnsemble; onnxlet/ops/ml/linear.py, LinearClassifier.
#include "rows.h"
#include "types.h"

// A row goes on to `child + 1` where its feature is in [low, high], or is missing (NaN) and `feature` is negative; else
// to `child`. A leaf is its own child, and its interval holds nothing: `high` is NaN, and instead of `low` there is what
// it contributes.
typedef struct {
    union {
        float low;
        float weight;
        int32_t number;
    };
    float high;
    int32_t feature;  // its number in the low 31 bits
    int32_t child;
} TreeNode;

// How leaves say what they contribute: the weight itself, where there is one target; the number of a vector of weights,
// where there are up to 4; or the number of the first of a run of contributions, or -1. The last in a run has ~target.
enum { LEAVES_WEIGHT, LEAVES_VECTOR, LEAVES_RUN };
typedef struct {
    float weight;
    int32_t target;
} Contribution;

typedef double v4d __attribute__((ext_vector_type(4)));

enum { TREES_AT_ONCE = 8, TREE_ROWS = 64, TREE_SCORES = 4096 };
enum { TREES_SUM, TREES_MIN, TREES_MAX };

// How much of a node's test the nodes of an ensemble need: where all `low` are -infinity and no missing value passes,
// the first suffices.
enum { TEST_HIGH, TEST_INTERVAL, TEST_MISSING };

INLINE int32_t next_node(const TreeNode *node, const float *x, const int test) {
    float v = x[test == TEST_MISSING ? node->feature & 0x7fffffff : node->feature];
    int32_t taken = v <= node->high;
    if (test != TEST_HIGH) taken &= v >= node->low;
    if (test == TEST_MISSING) taken |= (v != v) & (node->feature < 0);
    return node->child + taken;
}

// The leaves that one row reaches in trees that are walked side by side, until none of them moves on.
INLINE void walk_trees(const TreeNode *nodes, const float *x, const int32_t *roots, int32_t *leaves, const int test) {
    int32_t at[TREES_AT_ONCE], moved;
    UNROLL for (int i = 0; i < TREES_AT_ONCE; i++) at[i] = next_node(nodes + roots[i], x, test);
    do {
        moved = 0;
        UNROLL for (int i = 0; i < TREES_AT_ONCE; i++) at[i] = next_node(nodes + at[i], x, test);
        UNROLL for (int i = 0; i < TREES_AT_ONCE; i++) {
            int32_t next = next_node(nodes + at[i], x, test);
            moved |= next ^ at[i];
            at[i] = next;
        }
    } while (moved);
    UNROLL for (int i = 0; i < TREES_AT_ONCE; i++) leaves[i] = at[i];
}

// Adds up a run of contributions. Where a minimum or maximum is wanted, NaN is "nothing yet".
INLINE void add_run(const Contribution *from, double *scores, word aggregate) {
    for (int last = 0; !last; from++) {
        last = from->target < 0;
        double *score = scores + (last ? ~from->target : from->target), weight = (double)from->weight;
        if (aggregate == TREES_SUM) *score += weight;
        else if (*score != *score || (aggregate == TREES_MIN ? weight < *score : weight > *score)) *score = weight;
    }
}

// Adds up what the leaves of one row contribute, in the order of the trees.
INLINE void add_leaves(const TreeNode *nodes, const int32_t *leaves, word kind, word contributions, double *scores,
                       word targets, word aggregate) {
    if (kind == LEAVES_WEIGHT) {
        double score = *scores;
        UNROLL for (int i = 0; i < TREES_AT_ONCE; i++) score += (double)nodes[leaves[i]].weight;
        *scores = score;
    } else if (kind == LEAVES_VECTOR) {
        v4d sums = (v4d)0.0;
        for (word i = 0; i < targets; i++) sums[i] = scores[i];
        UNROLL for (int i = 0; i < TREES_AT_ONCE; i++)
            sums += __builtin_convertvector(v4load(F32(contributions) + 4 * nodes[leaves[i]].number), v4d);
        for (word i = 0; i < targets; i++) scores[i] = sums[i];
    } else {
        for (word i = 0; i < TREES_AT_ONCE; i++) {
            int32_t first = nodes[leaves[i]].number;
            if (first >= 0) add_run(PTR(const Contribution, contributions) + first, scores, aggregate);
        }
    }
}

#define WALK(test)                                                                                         \
    for (word row = 0; row < rows; row++) {                                                                \
        int32_t leaves[TREES_AT_ONCE];                                                                     \
        walk_trees(nodes, x + row * a->features, roots + tree, leaves, test);                              \
        add_leaves(nodes, leaves, a->leaves, a->contributions, scores + row * targets, targets, a->aggregate); \
    }

// scores[row][target] (float64) of x[row][feature] (float32): the sum, in the order of the trees, or the minimum (1) or
// maximum (2) of the contributions of the leaves; 0 where there is none. `roots` are numbers of nodes, `trees` of them,
// a multiple of 8. `divisor` (float32) divides sums. Unit: a row.
KERNEL(trees, x, features, nodes, test, roots, trees, leaves, contributions, aggregate, divisor, scores, targets) {
    const TreeNode *nodes = PTR(const TreeNode, a->nodes);
    const int32_t *roots = PTR(const int32_t, a->roots);
    word targets = a->targets, most = max_word(1, min_word(TREE_ROWS, TREE_SCORES / max_word(1, targets)));
    double divisor = (double)as_f32(a->divisor), nothing = a->aggregate == TREES_SUM ? 0.0 : (double)__builtin_nanf("");
    for (word at = begin, rows; at < end; at += rows) {
        rows = min_word(most, end - at);
        const float *x = F32(a->x) + at * a->features;
        double *scores = PTR(double, a->scores) + at * targets;
        for (word i = 0; i < rows * targets; i++) scores[i] = nothing;
        for (word tree = 0; tree < a->trees; tree += TREES_AT_ONCE) {
            if (a->test == TEST_HIGH) WALK(TEST_HIGH)
            else if (a->test == TEST_INTERVAL) WALK(TEST_INTERVAL)
            else WALK(TEST_MISSING)
        }
        for (word i = 0; i < rows * targets; i++) {
            if (a->aggregate != TREES_SUM) scores[i] = scores[i] == scores[i] ? scores[i] : 0.0;
            else if (divisor != 1.0) scores[i] /= divisor;
        }
    }
}

enum { SCORES_AS_THEY_ARE, SCORES_COMPLEMENT, SCORES_OPPOSITE };
enum { TRANSFORM_NONE, TRANSFORM_SOFTMAX, TRANSFORM_LOGISTIC, TRANSFORM_SOFTMAX_ZERO };

// y = the exponentials of n scores, over their sum. With `zero`, scores of about 0 are not put through the exponential
// but scaled as it scales them.
static void softmax_scores(const double *scores, float *y, word n, int zero) {
    double top = scores[0], total = 0.0;
    for (word i = 1; i < n; i++) top = scores[i] > top ? scores[i] : top;
    float small = vexp(vsplat((float)-top))[0];
    for (word i = 0; i < n; i++) {
        double s = scores[i];
        int about_zero = zero && s >= -1e-7 && s <= 1e-7;
        y[i] = about_zero ? (float)s * small : vexp(vsplat((float)(s - top)))[0];
        total += (double)y[i];
    }
    for (word i = 0; i < n; i++) y[i] = total == 0.0 ? 0.5f : (float)((double)y[i] / total);
}

// From raw scores to labels and what is shown of the scores. `x` is [rows, count] of `type` (float32 or float64);
// `base`, the address of `count` float64, is added. `pair` makes two scores of one: of a probability itself and what it
// lacks to 1 (1), or of a margin itself and its opposite (2), in reverse order. `labels` is the address of int64 labels
// or 0: of one per score, for the largest; or, with `by_threshold`, of two, the second for a first score above
// `threshold` (float32). `transform` is applied to what goes to `y` (float32, or 0). Scratch: 8 * (count + 1) bytes.
// Unit: a row.
KERNEL(class_scores, type, x, count, base, pair, labels, by_threshold, threshold, transform, label, y) {
    word n = a->count, width = a->pair ? 2 : n;
    double *scores = (double *)scratch;
    const int64_t *labels = PTR(const int64_t, a->labels);
    for (word row = begin; row < end; row++) {
        for (word i = 0; i < n; i++)
            scores[i] = (a->type == TYPE_F64 ? PTR(const double, a->x)[row * n + i] : (double)F32(a->x)[row * n + i]) +
                        (a->base ? PTR(const double, a->base)[i] : 0.0);
        if (labels) {
            word chosen = 0;
            if (a->by_threshold) chosen = scores[0] > (double)as_f32(a->threshold);
            else
                for (word i = 1; i < n; i++) {
                    double s = scores[i], best = scores[chosen];
                    if (best == best && (s > best || s != s)) chosen = i;
                }
            PTR(int64_t, a->label)[row] = labels[chosen];
        }
        if (!a->y) continue;
        float *y = F32(a->y) + row * width;
        if (a->pair) {
            scores[1] = scores[0];
            scores[0] = a->pair == SCORES_COMPLEMENT ? 1.0 - scores[1] : -scores[1];
        }
        if (a->transform == TRANSFORM_SOFTMAX || a->transform == TRANSFORM_SOFTMAX_ZERO) {
            softmax_scores(scores, y, width, a->transform == TRANSFORM_SOFTMAX_ZERO);
            continue;
        }
        for (word i = 0; i < width; i++)
            y[i] = a->transform == TRANSFORM_LOGISTIC ? vsigmoid(vsplat((float)scores[i]))[0] : (float)scores[i];
    }
}
