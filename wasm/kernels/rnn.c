// Recurrent networks over a whole sequence in one direction, float32. NumPy twins: onnxlet/ops, LSTM, GRU, RNN.
//
// The products of the inputs with W, plus the biases, are computed before (one gemm over all times), and lie in
// `gates`: the row of time t and batch entry b at gates + t * gates_time + b * gates_batch (in elements). Recurrent
// weights are packed by pack_b from R transposed (k = hidden, n = columns). The activations are the defaults: sigmoid
// for gates, tanh for states.
//
// `lengths` (int32 per batch entry) may be absent (0): then all sequences have `steps`. Results of times past the end
// are 0 in y, and the states stay. With `reverse` 1 a sequence is walked from its end. y, which may be absent, gets the
// states of all times, at y + t * y_time + b * y_batch. `h` and `c` ([batch, hidden]) are the states: they begin as h0
// and c0 (0: zeros) and end as the last ones. h0 and c0 may be h and c. `clip` (float32 bits) limits what goes into the
// activations; infinity for none.
//
// Unit: one batch entry. Scratch: 4 * hidden floats per batch entry (lstm, gru), hidden floats (rnn).
#include "int8.h"
#include "quantize.h"

// What the kernels have in common.
typedef struct {
    word gates, gates_time, gates_batch, lengths, y, y_time, y_batch, h, steps, hidden, reverse;
} Sequence;
#define SEQUENCE(a)                                                                                            \
    {(a)->gates, (a)->gates_time, (a)->gates_batch, (a)->lengths, (a)->y, (a)->y_time, (a)->y_batch, (a)->h, \
     (a)->steps, (a)->hidden, (a)->reverse}

// One batch entry at one step.
typedef struct {
    const float *gates;
    float *h, *y;   // y may be 0
} Entry;

// Returns 0 for an entry whose sequence is over, after writing zeros to y.
static int enter(const Sequence *s, word number, word step, Entry *entry) {
    word length = s->lengths ? PTR(const int32_t, s->lengths)[number] : s->steps;
    word time = step < length && s->reverse ? length - 1 - step : step;
    entry->gates = F32(s->gates) + time * s->gates_time + number * s->gates_batch;
    entry->h = F32(s->h) + number * s->hidden;
    entry->y = s->y ? F32(s->y) + time * s->y_time + number * s->y_batch : 0;
    if (step < length) return 1;
    if (entry->y) memset(entry->y, 0, (size_t)s->hidden * sizeof(float));
    return 0;
}

INLINE void store_state(const Entry *entry, word j, vf state, word count) {
    vstore_count(entry->h + j, state, count);
    if (entry->y) vstore_count(entry->y + j, state, count);
}

static void begin_state(word to, word from, word begin, word end, word hidden) {
    float *y = F32(to) + begin * hidden;
    size_t bytes = (size_t)((end - begin) * hidden) * sizeof(float);
    if (!from) memset(y, 0, bytes);
    else if (from != to) memcpy(y, F32(from) + begin * hidden, bytes);
}

static void product(const float *a, word lda, word b, float *c, word ldc, word rows, word columns, word depth) {
    Product p = {.a = a, .lda = lda, .b = F32(b), .c = c, .ldc = ldc, .columns = columns, .depth = depth};
    multiply(&p, 0, rows, 0, columns);
}

INLINE vf limit(vf x, vf clip) { return vclamp(x, -clip, clip); }

// What the recurrent products ([rows, 4 * hidden]) and the gates make of the states of batch entries [begin, end).
static void lstm_cells(const Sequence *s, word cells, word peepholes, word step, word begin, word end,
                       const float *recurrent, vf clip) {
    const word n = s->hidden;
    const float *peephole = F32(peepholes);
    for (word entry = begin; entry < end; entry++) {
        Entry e;
        if (!enter(s, entry, step, &e)) continue;
        const float *r = recurrent + (entry - begin) * 4 * n;
        float *c = F32(cells) + entry * n;
        for (word j = 0; j < n; j += LANES) {
            word count = min_word(LANES, n - j);
            vf old = vload_count(c + j, count);
            vf input = vload_count(e.gates + j, count) + vload_count(r + j, count);
            vf output = vload_count(e.gates + n + j, count) + vload_count(r + n + j, count);
            vf forget = vload_count(e.gates + 2 * n + j, count) + vload_count(r + 2 * n + j, count);
            vf cell = vload_count(e.gates + 3 * n + j, count) + vload_count(r + 3 * n + j, count);
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
KERNEL(lstm, gates, gates_time, gates_batch, recurrent, peephole, lengths, h0, c0, y, y_time, y_batch, h, c, steps,
       hidden, reverse, clip) {
    const Sequence s = SEQUENCE(a);
    word n = a->hidden, rows = end - begin;
    if (rows <= 0) return;
    begin_state(a->h, a->h0, begin, end, n);
    begin_state(a->c, a->c0, begin, end, n);
    for (word step = 0; step < a->steps; step++) {
        product(F32(a->h) + begin * n, n, a->recurrent, (float *)scratch, 4 * n, rows, 4 * n, n);
        lstm_cells(&s, a->c, a->peephole, step, begin, end, (const float *)scratch, vsplat(as_f32(a->clip)));
    }
}

// The same with recurrent weights of 8 bits, packed by pack_b_int8 (k = hidden), which have `scales` (1 or 4 * hidden)
// at `scale`. The states of the whole batch are quantised over their range at each step. NumPy twin: DynamicQuantizeLSTM.
// One unit. Scratch: int8_scratch(hidden) + 17 * batch * hidden + 128 bytes.
KERNEL(lstm_int8, gates, gates_time, gates_batch, panels, columns, scale, scales, peephole, lengths, h0, c0, y, y_time,
       y_batch, h, c, steps, batch, hidden, reverse, clip) {
    const Sequence s = SEQUENCE(a);
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
    begin_state(a->h, a->h0, 0, batch, n);
    begin_state(a->c, a->c0, 0, batch, n);
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
        lstm_cells(&s, a->c, a->peephole, step, 0, batch, recurrent, vsplat(as_f32(a->clip)));
    }
}

// Gates in the order update, reset, hidden (3 * hidden columns). `recurrent` is packed from the first two (2 * hidden
// columns), `recurrent_hidden` from the last. `linear_before_reset` 1: the reset gate multiplies the product with the
// state plus `hidden_bias` ([hidden] or absent); 0: it multiplies the state, and the bias belongs in `gates`.
KERNEL(gru, gates, gates_time, gates_batch, recurrent, recurrent_hidden, hidden_bias, lengths, h0, y, y_time, y_batch,
       h, steps, hidden, reverse, linear_before_reset, clip) {
    const Sequence s = SEQUENCE(a);
    word n = a->hidden, rows = end - begin;
    if (rows <= 0) return;
    float *recurrent = (float *)scratch, *candidate = recurrent + rows * 2 * n, *reset_state = candidate + rows * n;
    vf clip = vsplat(as_f32(a->clip));
    begin_state(a->h, a->h0, begin, end, n);
    for (word step = 0; step < a->steps; step++) {
        product(F32(a->h) + begin * n, n, a->recurrent, recurrent, 2 * n, rows, 2 * n, n);
        if (a->linear_before_reset)
            product(F32(a->h) + begin * n, n, a->recurrent_hidden, candidate, n, rows, n, n);
        else {
            for (word entry = begin; entry < end; entry++) {
                Entry e;
                if (!enter(&s, entry, step, &e)) continue;
                const float *r = recurrent + (entry - begin) * 2 * n;
                float *to = reset_state + (entry - begin) * n;
                for (word j = 0; j < n; j += LANES) {
                    word count = min_word(LANES, n - j);
                    vf reset = vload_count(e.gates + n + j, count) + vload_count(r + n + j, count);
                    vstore_count(to + j, vsigmoid(limit(reset, clip)) * vload_count(e.h + j, count), count);
                }
            }
            product(reset_state, n, a->recurrent_hidden, candidate, n, rows, n, n);
        }
        for (word entry = begin; entry < end; entry++) {
            Entry e;
            if (!enter(&s, entry, step, &e)) continue;
            const float *r = recurrent + (entry - begin) * 2 * n, *from_state = candidate + (entry - begin) * n;
            const float *bias = F32(a->hidden_bias);
            for (word j = 0; j < n; j += LANES) {
                word count = min_word(LANES, n - j);
                vf update = vsigmoid(limit(vload_count(e.gates + j, count) + vload_count(r + j, count), clip));
                vf inner = vload_count(from_state + j, count);
                if (a->linear_before_reset) {
                    vf reset = vload_count(e.gates + n + j, count) + vload_count(r + n + j, count);
                    if (bias) inner += vload_count(bias + j, count);
                    inner *= vsigmoid(limit(reset, clip));
                }
                vf fresh = vtanh(limit(vload_count(e.gates + 2 * n + j, count) + inner, clip));
                vf result = (1.0f - update) * fresh + update * vload_count(e.h + j, count);
                store_state(&e, j, result, count);
            }
        }
    }
}

// One layer of states, `hidden` columns; `relu` 1 for the activation Relu instead of tanh.
KERNEL(rnn, gates, gates_time, gates_batch, recurrent, lengths, h0, y, y_time, y_batch, h, steps, hidden, reverse, relu,
       clip) {
    const Sequence s = SEQUENCE(a);
    word n = a->hidden, rows = end - begin;
    if (rows <= 0) return;
    float *recurrent = (float *)scratch;
    vf clip = vsplat(as_f32(a->clip));
    begin_state(a->h, a->h0, begin, end, n);
    for (word step = 0; step < a->steps; step++) {
        product(F32(a->h) + begin * n, n, a->recurrent, recurrent, n, rows, n, n);
        for (word entry = begin; entry < end; entry++) {
            Entry e;
            if (!enter(&s, entry, step, &e)) continue;
            const float *r = recurrent + (entry - begin) * n;
            for (word j = 0; j < n; j += LANES) {
                word count = min_word(LANES, n - j);
                vf x = limit(vload_count(e.gates + j, count) + vload_count(r + j, count), clip);
                vf result = a->relu ? vclamp(x, vsplat(0.0f), vsplat(INFINITY_F32)) : vtanh(x);
                store_state(&e, j, result, count);
            }
        }
    }
}
