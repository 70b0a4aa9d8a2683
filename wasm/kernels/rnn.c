// Recurrent networks over a whole sequence in one direction, float32. NumPy twins: onnxlet/ops, LSTM, GRU, RNN.
//
// The products of the inputs with W, plus the biases, are computed before (one gemm over all times), and lie in
// `gates`: the row of time t and batch entry b at gates + t * gates_time + b * gates_batch (in elements). Recurrent
// weights are packed by pack_gates. The activations are the defaults: sigmoid for gates, tanh for states.
//
// `lengths` (int32 per batch entry) may be absent (0): then all sequences have `steps`. Results of times past the end
// are 0 in y, and the states stay. With `reverse` 1 a sequence is walked from its end. y, which may be absent, gets the
// states of all times, at y + t * y_time + b * y_batch. `h` and `c` ([batch, hidden]) end as the last states; they begin
// as h0 and c0. `other` is room for as many states as h. `clip` (float32 bits) limits what goes into the activations;
// infinity for none.
//
// Unit: 8 columns of the states at one step; the units of a step are a round. Scratch: round_up(hidden, 8) floats for
// each gate of each batch entry.
#include "int8.h"
#include "quantize.h"

// Packs the recurrent weights of `gates` gates, [gates * hidden][k], so that all that belongs to 8 columns of the states
// lies together: panels [hidden / 8][gates][k][8], filled up with zeros. Unit: a panel.
KERNEL(pack_gates, r, panels, k, hidden, gates) {
    for (word u = begin; u < end; u++) {
        const word first = u / a->gates * PANEL, gate = u % a->gates;
        pack_panels(F32(a->r) + (gate * a->hidden + first) * a->k, a->k, min_word(PANEL, a->hidden - first), 1, a->k,
                    F32(a->panels) + u * a->k * PANEL);
    }
}

// What the kernels have in common; the states before and after a step.
typedef struct {
    word gates, gates_time, gates_batch, lengths, y, y_time, y_batch, steps, hidden, reverse;
    const float *before;
    float *after;
} Sequence;
#define SEQUENCE(a)                                                                                                 \
    (a)->gates, (a)->gates_time, (a)->gates_batch, (a)->lengths, (a)->y, (a)->y_time, (a)->y_batch, (a)->steps,     \
        (a)->hidden, (a)->reverse
// States lie in `other` and `h` in turns, the last ones in `h`.
#define STATES(a, step) (F32(((a)->steps - (step)) % 2 ? (a)->other : (a)->h))
#define SEQUENCE_AT(a, step) {SEQUENCE(a), (step) ? STATES(a, step) : F32((a)->h0), STATES(a, (step) + 1)}

// Columns [from, to) of the states at a step.
typedef struct {
    word step, from, to;
} Slice;

// As many of the units [*unit, end) as belong to the same step.
INLINE Slice next_slice(word hidden, word *unit, word end) {
    const Span span = next_span(hidden, PANEL, unit, end);
    return (Slice){span.row, span.from, span.to};
}

// One batch entry at one step.
typedef struct {
    const float *gates, *before;
    float *after, *y;  // y may be 0
} Entry;

// Returns 0 for an entry whose sequence is over; its states stay, and y is 0.
static int enter(const Sequence *s, word number, const Slice *slice, Entry *entry) {
    word length = s->lengths ? PTR(const int32_t, s->lengths)[number] : s->steps;
    word time = slice->step < length && s->reverse ? length - 1 - slice->step : slice->step;
    entry->gates = F32(s->gates) + time * s->gates_time + number * s->gates_batch;
    entry->before = s->before + number * s->hidden;
    entry->after = s->after + number * s->hidden;
    entry->y = s->y ? F32(s->y) + time * s->y_time + number * s->y_batch : 0;
    if (slice->step < length) return 1;
    for (word j = slice->from; j < slice->to; j++) {
        entry->after[j] = entry->before[j];
        if (entry->y) entry->y[j] = 0.0f;
    }
    return 0;
}

INLINE void store_state(const Entry *entry, word j, vf state, word count) {
    vstore_count(entry->after + j, state, count);
    if (entry->y) vstore_count(entry->y + j, state, count);
}

// The product of states with the weights of `gates` gates for the columns of a slice: rows of [columns / 8][gates][8].
static void product(const float *states, word hidden, word recurrent, word gates, const Slice *s, word rows, float *to) {
    const word columns = div_up(s->to - s->from, PANEL) * gates * PANEL;
    Product p = {.a = states, .lda = hidden, .b = F32(recurrent) + s->from * gates * hidden, .c = to, .ldc = columns,
                 .columns = columns, .depth = hidden};
    multiply(&p, 0, rows, 0, columns);
}

INLINE vf limit(vf x, vf clip) { return vclamp(x, -clip, clip); }

// What the recurrent products and the gates make of the states of `rows` batch entries. Of an entry the product with
// column j of gate g lies at block * 4 * step + g * step + rest, where j is `width` * block + rest.
INLINE void lstm_cells(const Sequence *s, const float *old_cells, float *cells, const float *peephole, const Slice *slice,
                       word rows, const float *recurrent, word step, word width, float clip_at) {
    const word n = s->hidden, row = div_up(slice->to - slice->from, width) * 4 * step;
    const vf clip = vsplat(clip_at);
    for (word entry = 0; entry < rows; entry++, recurrent += row) {
        Entry e;
        const float *old_c = old_cells + entry * n;
        float *c = cells + entry * n;
        if (!enter(s, entry, slice, &e)) {
            for (word j = slice->from; j < slice->to; j++) c[j] = old_c[j];
            continue;
        }
        for (word j = slice->from; j < slice->to; j += LANES) {
            const word count = min_word(LANES, slice->to - j), at = j - slice->from;
            const float *r = recurrent + at / width * 4 * step + at % width;
            vf old = vload_count(old_c + j, count);
            vf input = vload_count(e.gates + j, count) + vload_count(r, count);
            vf output = vload_count(e.gates + n + j, count) + vload_count(r + step, count);
            vf forget = vload_count(e.gates + 2 * n + j, count) + vload_count(r + 2 * step, count);
            vf cell = vload_count(e.gates + 3 * n + j, count) + vload_count(r + 3 * step, count);
            if (peephole) {
                input += vload_count(peephole + j, count) * old;
                forget += vload_count(peephole + 2 * n + j, count) * old;
            }
            vf added = vsigmoid(limit(input, clip)) * vtanh(limit(cell, clip));
            vf state = vsigmoid(limit(forget, clip)) * old + added;
            if (peephole) output += vload_count(peephole + n + j, count) * state;
            vstore_count(c + j, state, count);
            vf result = vsigmoid(limit(output, clip)) * vtanh(state);
            store_state(&e, j, result, count);
        }
    }
}

// Gates in the order input, output, forget, cell (4 * hidden columns). `peephole` ([3, hidden]: input, output, forget)
// may be absent.
KERNEL(lstm, gates, gates_time, gates_batch, recurrent, peephole, lengths, h0, c0, y, y_time, y_batch, h, other, c,
       steps, batch, hidden, reverse, clip) {
    while (begin < end) {
        const Slice slice = next_slice(a->hidden, &begin, end);
        const Sequence s = SEQUENCE_AT(a, slice.step);
        product(s.before, a->hidden, a->recurrent, 4, &slice, a->batch, (float *)scratch);
        lstm_cells(&s, F32(slice.step ? a->c : a->c0), F32(a->c), F32(a->peephole), &slice, a->batch, (float *)scratch,
                   PANEL, PANEL, as_f32(a->clip));
    }
}

// The same with recurrent weights of 8 bits, packed by pack_b_int8 (k = hidden), which have `scales` (1 or 4 * hidden)
// at `scale`. The states of the whole batch are quantised over their range at each step. NumPy twin: DynamicQuantizeLSTM.
// One unit. Scratch: int8_scratch(hidden) + 17 * batch * hidden + 128 bytes.
KERNEL(lstm_int8, gates, gates_time, gates_batch, panels, columns, scale, scales, peephole, lengths, h0, c0, y, y_time,
       y_batch, h, c, steps, batch, hidden, reverse, clip) {
    const Sequence s = {SEQUENCE(a), F32(a->h), F32(a->h)};
    const word n = a->hidden, batch = a->batch;
    if (end <= begin) return;
    float x_scale;
    uint8_t zero;
    float *recurrent = (float *)(scratch + ROUND_UP(INT8_SCRATCH(n), 64));
    uint8_t *bytes = (uint8_t *)(recurrent + batch * 4 * n);
    const Columns *columns = PTR(const Columns, a->columns);
    const Result result = {
        .c = (word)(uintptr_t)recurrent, .ldc = 4 * n, .type = TYPE_F32, .a_scale = &x_scale, .scale = F32(a->scale),
        .scale_step = a->scales > 1,
    };
    memcpy(F32(a->h), F32(a->h0), (size_t)(batch * n) * sizeof(float));
    memcpy(F32(a->c), F32(a->c0), (size_t)(batch * n) * sizeof(float));
    for (word step = 0; step < a->steps; step++) {
        quantize_over_range(F32(a->h), batch * n, &x_scale, &zero);
        quantize_bytes(F32(a->h), batch * n, x_scale, zero, 0, bytes);
        const Block block = block_of(scratch, n, TYPE_U8, (word)(uintptr_t)&zero);
        for (word m = 0; m < batch; m += INT8_BLOCK) {
            const word rows = min_word(INT8_BLOCK, batch - m);
            for (word i = 0; i < rows; i += QUARTET) {
                const uint8_t *four[QUARTET];
                for (word r = 0; r < QUARTET; r++) four[r] = bytes + (m + min_word(i + r, rows - 1)) * n;
                block_fill(&block, i, four, formats_of(columns, 0, 4 * n));
            }
            block_multiply(&block, rows, PTR(const int8_t, a->panels), columns, &result, m, 0, 4 * n);
        }
        const Slice slice = {step, 0, n};
        lstm_cells(&s, F32(a->c), F32(a->c), F32(a->peephole), &slice, batch, recurrent, n, n, as_f32(a->clip));
    }
}

// Gates in the order update, reset, hidden (3 * hidden columns). `linear_before_reset` 1: `recurrent` is packed from all
// gates, and the reset gate multiplies the product with the state plus `hidden_bias` ([hidden] or absent). 0:
// `recurrent` is packed from the first two gates, `recurrent_hidden` from the last; the reset gate multiplies the state,
// and the bias belongs in `gates`; a step takes two rounds, between which the update gate and the states times the reset
// gate lie in `update` and `reset` ([batch, hidden]).
KERNEL_ARGUMENTS(gru, gates, gates_time, gates_batch, recurrent, recurrent_hidden, hidden_bias, lengths, h0, y, y_time,
                 y_batch, h, other, update, reset, steps, batch, hidden, reverse, linear_before_reset, clip)

// The first round of a step that takes two.
static void gru_gates(const gru_args *a, const Sequence *s, const Slice *slice, const float *recurrent) {
    const word n = a->hidden, row = div_up(slice->to - slice->from, PANEL) * 2 * PANEL;
    const vf clip = vsplat(as_f32(a->clip));
    for (word entry = 0; entry < a->batch; entry++, recurrent += row) {
        Entry e;
        if (!enter(s, entry, slice, &e)) continue;
        for (word j = slice->from; j < slice->to; j += LANES) {
            const word count = min_word(LANES, slice->to - j), at = j - slice->from;
            const float *r = recurrent + at / PANEL * 2 * PANEL + at % PANEL;
            vf update = vload_count(e.gates + j, count) + vload_count(r, count);
            vf reset = vload_count(e.gates + n + j, count) + vload_count(r + PANEL, count);
            vstore_count(F32(a->update) + entry * n + j, vsigmoid(limit(update, clip)), count);
            vstore_count(F32(a->reset) + entry * n + j,
                         vsigmoid(limit(reset, clip)) * vload_count(e.before + j, count), count);
        }
    }
}

// The last round of a step.
static void gru_states(const gru_args *a, const Sequence *s, const Slice *slice, const float *recurrent) {
    const word n = a->hidden, gates = a->linear_before_reset ? 3 : 1;
    const word row = div_up(slice->to - slice->from, PANEL) * gates * PANEL;
    const float *bias = F32(a->hidden_bias);
    const vf clip = vsplat(as_f32(a->clip));
    for (word entry = 0; entry < a->batch; entry++, recurrent += row) {
        Entry e;
        if (!enter(s, entry, slice, &e)) continue;
        for (word j = slice->from; j < slice->to; j += LANES) {
            const word count = min_word(LANES, slice->to - j), at = j - slice->from;
            const float *r = recurrent + at / PANEL * gates * PANEL + at % PANEL;
            vf update, inner = vload_count(r + (gates - 1) * PANEL, count);
            if (a->linear_before_reset) {
                update = vsigmoid(limit(vload_count(e.gates + j, count) + vload_count(r, count), clip));
                vf reset = vload_count(e.gates + n + j, count) + vload_count(r + PANEL, count);
                if (bias) inner += vload_count(bias + j, count);
                inner *= vsigmoid(limit(reset, clip));
            } else {
                update = vload_count(F32(a->update) + entry * n + j, count);
            }
            vf fresh = vtanh(limit(vload_count(e.gates + 2 * n + j, count) + inner, clip));
            vf result = (1.0f - update) * fresh + update * vload_count(e.before + j, count);
            store_state(&e, j, result, count);
        }
    }
}

KERNEL_BODY(gru) {
    while (begin < end) {
        Slice slice = next_slice(a->hidden, &begin, end);
        const int two = !a->linear_before_reset, first = two && slice.step % 2 == 0;
        if (two) slice.step /= 2;
        const Sequence s = SEQUENCE_AT(a, slice.step);
        if (first) {
            product(s.before, a->hidden, a->recurrent, 2, &slice, a->batch, (float *)scratch);
            gru_gates(a, &s, &slice, (const float *)scratch);
            continue;
        }
        const word weights = two ? a->recurrent_hidden : a->recurrent;
        product(two ? F32(a->reset) : s.before, a->hidden, weights, two ? 1 : 3, &slice, a->batch, (float *)scratch);
        gru_states(a, &s, &slice, (const float *)scratch);
    }
}

// One layer of states, `hidden` columns; `relu` 1 for the activation Relu instead of tanh.
KERNEL(rnn, gates, gates_time, gates_batch, recurrent, lengths, h0, y, y_time, y_batch, h, other, steps, batch, hidden,
       reverse, relu, clip) {
    const vf clip = vsplat(as_f32(a->clip));
    while (begin < end) {
        const Slice slice = next_slice(a->hidden, &begin, end);
        const Sequence s = SEQUENCE_AT(a, slice.step);
        const float *r = (const float *)scratch - slice.from;
        product(s.before, a->hidden, a->recurrent, 1, &slice, a->batch, (float *)scratch);
        for (word entry = 0; entry < a->batch; entry++, r += div_up(slice.to - slice.from, PANEL) * PANEL) {
            Entry e;
            if (!enter(&s, entry, &slice, &e)) continue;
            for (word j = slice.from; j < slice.to; j += LANES) {
                word count = min_word(LANES, slice.to - j);
                vf x = limit(vload_count(e.gates + j, count) + vload_count(r + j, count), clip);
                vf result = a->relu ? vclamp(x, vsplat(0.0f), vsplat(INFINITY_F32)) : vtanh(x);
                store_state(&e, j, result, count);
            }
        }
    }
}
