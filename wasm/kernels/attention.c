// Scaled dot-product attention: y = softmax(q k^T * scale + bias) v, float32. NumPy twin: onnxlet/ops, FusedAttention.
//
// q is [batch, heads, queries, depth], k [batch, heads / group, keys, depth], v [batch, heads / group, keys,
// value_depth], y [batch, heads, queries, value_depth]. Each has a stride, in elements, per batch entry, head and row;
// the last dimension is contiguous. So heads need no transposing before or after. `group` query heads share a head of k
// and v. `bias`, added to the scores, and `keep`, bytes, may be absent (0); their strides may be 0, their last dimension
// is contiguous. Where `keep` is 0 the score is `fill`. With `causal` 1, query i sees the keys j <= i + causal_offset.
// `scale` and `fill` are float32 bits. `unseen` says what becomes of a row of scores that are all -inf: 0 NaN, as softmax
// has it; 1 the weights are 0; 2 they are 0, and so they are where softmax gives NaN for another reason.
//
// Unit: up to `span` queries of one head of one batch entry. Scratch: 4 * (round_up(keys, 8) * (depth + 24) + keys *
// round_up(value_depth, 8)) bytes.
#include "rows.h"
#include "tile.h"

typedef int8_t vb __attribute__((ext_vector_type(LANES)));
typedef vb vb_unaligned __attribute__((aligned(1), may_alias));

enum {
    QUERY_BLOCK = 24,   // queries whose scores lie in the cache together
    FEW_QUERIES = 4,    // below, packing k and v costs more than it brings
};

enum { UNSEEN_NAN, UNSEEN_ZERO, NAN_ZERO };

typedef struct {
    const float *q, *k, *v, *bias;
    const uint8_t *keep;
    float *y;
    word q_row, k_row, v_row, y_row, bias_row, keep_row;
    word first, last, keys, depth, value_depth;  // the queries from `first` to before `last`
    word causal, causal_offset, unseen;
    float scale, fill;
} Head;

INLINE word round_up_8(word n) { return (n + 7) & -8; }

// How many keys, from the first on, a query sees.
INLINE word visible_keys(const Head *h, word query) {
    return h->causal ? max_word(0, min_word(h->keys, query + h->causal_offset + 1)) : h->keys;
}

// `fill` in the lanes whose byte is 0.
INLINE vf kept(vf s, const uint8_t *keep, word count, float fill) {
    if (count == LANES) {
        vi mask = __builtin_convertvector(*(const vb_unaligned *)keep != 0, vi);
        return vselect(mask, s, vsplat(fill));
    }
    for (word i = 0; i < count; i++) s[i] = keep[i] ? s[i] : fill;
    return s;
}

// Turns the scores of a query into weights exp(score - largest), in place; keys beyond `visible` get 0. Returns the
// factor by which the weights are to be multiplied.
static NOINLINE float weigh(const Head *h, word query, float *scores, word visible) {
    const float *bias = h->bias ? h->bias + query * h->bias_row : 0;
    const uint8_t *keep = h->keep ? h->keep + query * h->keep_row : 0;
    vf scale = vsplat(h->scale), largest = vsplat(-INFINITY_F32);
    for (word j = 0; j < visible; j += LANES) {
        word count = min_word(LANES, visible - j);
        vf s = vload_count(scores + j, count) * scale;
        if (bias) s += vload_count(bias + j, count);
        if (keep) s = kept(s, keep + j, count, h->fill);
        vstore_count(scores + j, s, count);
        largest = vlarger(count == LANES ? s : vload_or(scores + j, count, -INFINITY_F32), largest);
    }
    float top = vmax_lane(largest);
    vf shift = vsplat(h->unseen && top == -INFINITY_F32 ? 0.0f : top), sum = vsplat(0.0f);
    for (word j = 0; j < visible; j += LANES) {
        word count = min_word(LANES, visible - j);
        vf e = vexp_negative(vload_count(scores + j, count) - shift);
        vstore_count(scores + j, e, count);
        sum += count == LANES ? e : vkeep(e, count);
    }
    float total = vsum(sum);
    if (h->unseen == NAN_ZERO && total != total) total = 0.0f, visible = 0;
    for (word j = visible; j < h->keys; j++) scores[j] = 0.0f;
    return h->unseen && total == 0.0f ? 1.0f : 1.0f / total;
}

static void scale_row(float *y, word n, float factor) {
    for (word i = 0; i < n; i += LANES) {
        word count = min_word(LANES, n - i);
        vstore_count(y + i, vload_count(y + i, count) * factor, count);
    }
}

static void attend(const Head *h, float *scratch) {
    word width = round_up_8(h->keys);
    float *keys = scratch, *values = keys + width * h->depth, *scores = values + round_up_8(h->value_depth) * h->keys;
    pack_panels(h->k, h->depth, h->keys, 1, h->k_row, keys);
    pack_panels(h->v, h->keys, h->value_depth, h->v_row, 1, values);
    for (word from = h->first; from < h->last; from += QUERY_BLOCK) {
        word rows = min_word(QUERY_BLOCK, h->last - from);
        Product score = {.a = h->q + from * h->q_row, .lda = h->q_row, .b = keys, .c = scores, .ldc = width,
                         .columns = h->keys, .depth = h->depth};
        word needed = round_up_8(visible_keys(h, from + rows - 1));
        multiply(&score, 0, rows, 0, min_word(needed, h->keys));
        float factors[QUERY_BLOCK];
        for (word i = 0; i < rows; i++)
            factors[i] = weigh(h, from + i, scores + i * width, visible_keys(h, from + i));
        Product result = {.a = scores, .lda = width, .b = values, .c = h->y + from * h->y_row, .ldc = h->y_row,
                          .columns = h->value_depth, .depth = h->keys};
        multiply(&result, 0, rows, 0, h->value_depth);
        for (word i = 0; i < rows; i++) scale_row(h->y + (from + i) * h->y_row, h->value_depth, factors[i]);
    }
}

INLINE float dot(const float *x, const float *y, word n) {
    vf first = vsplat(0.0f), second = first;
    word i = 0;
    for (; i + 2 * LANES <= n; i += 2 * LANES) {
        first = vmadd(vload(x + i), vload(y + i), first);
        second = vmadd(vload(x + i + LANES), vload(y + i + LANES), second);
    }
    for (; i < n; i += LANES) {
        word count = min_word(LANES, n - i);
        first = vmadd(vload_count(x + i, count), vload_count(y + i, count), first);
    }
    return vsum(first + second);
}

// y[0 .. n) = sum over rows of weights[row] * rows[row], times factor.
static void add_rows(const float *weights, const float *rows, word step, word count, float *y, word n, float factor) {
    word i = 0;
    for (; i + 4 * LANES <= n; i += 4 * LANES) {
        vf total[4] = {vsplat(0.0f), vsplat(0.0f), vsplat(0.0f), vsplat(0.0f)};
        for (word row = 0; row < count; row++)
            UNROLL for (int k = 0; k < 4; k++)
                total[k] = vmadd(vload(rows + row * step + i + k * LANES), vsplat(weights[row]), total[k]);
        UNROLL for (int k = 0; k < 4; k++) vstore(y + i + k * LANES, total[k] * factor);
    }
    for (; i < n; i += LANES) {
        word lanes = min_word(LANES, n - i);
        vf total = vsplat(0.0f);
        for (word row = 0; row < count; row++)
            total = vmadd(vload_count(rows + row * step + i, lanes), vsplat(weights[row]), total);
        vstore_count(y + i, total * factor, lanes);
    }
}

// The same without packing, query by query.
static void attend_few(const Head *h, float *scores) {
    for (word query = h->first; query < h->last; query++) {
        word visible = visible_keys(h, query);
        for (word j = 0; j < visible; j++) scores[j] = dot(h->q + query * h->q_row, h->k + j * h->k_row, h->depth);
        float factor = weigh(h, query, scores, visible);
        add_rows(scores, h->v, h->v_row, visible, h->y + query * h->y_row, h->value_depth, factor);
    }
}

KERNEL(attention, q, q_batch, q_head, q_row, k, k_batch, k_head, k_row, v, v_batch, v_head, v_row, y, y_batch, y_head,
       y_row, heads, group, queries, keys, depth, value_depth, scale, bias, bias_batch, bias_head, bias_row, keep,
       keep_batch, keep_head, keep_row, fill, causal, causal_offset, unseen, span) {
    word spans = (a->queries + a->span - 1) / a->span;
    for (word unit = begin; unit < end; unit++) {
        word batch = unit / spans / a->heads, head = unit / spans % a->heads, shared = head / a->group;
        word first = unit % spans * a->span;
        const Head h = {
            .q = F32(a->q) + batch * a->q_batch + head * a->q_head,
            .k = F32(a->k) + batch * a->k_batch + shared * a->k_head,
            .v = F32(a->v) + batch * a->v_batch + shared * a->v_head,
            .y = F32(a->y) + batch * a->y_batch + head * a->y_head,
            .bias = a->bias ? F32(a->bias) + batch * a->bias_batch + head * a->bias_head : 0,
            .keep = a->keep ? PTR(const uint8_t, a->keep) + batch * a->keep_batch + head * a->keep_head : 0,
            .q_row = a->q_row, .k_row = a->k_row, .v_row = a->v_row, .y_row = a->y_row, .bias_row = a->bias_row,
            .keep_row = a->keep_row, .first = first, .last = min_word(a->queries, first + a->span), .keys = a->keys,
            .depth = a->depth, .value_depth = a->value_depth, .causal = a->causal, .causal_offset = a->causal_offset,
            .unseen = a->unseen, .scale = as_f32(a->scale), .fill = as_f32(a->fill),
        };
        if (h.last - h.first < FEW_QUERIES) attend_few(&h, (float *)scratch);
        else attend(&h, (float *)scratch);
    }
}
