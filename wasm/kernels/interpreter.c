// Walks a tape: an array of operations [kernel, words, units, grain, rounds, arguments...], each of `words` words.
//
// An operation's units fall into `rounds` of equally many. The units of a round are independent of each other; a round
// may need what the one before it computed.
//
// One call of `run` computes a whole program. The names and the arguments of all kernels can be asked, so that whoever
// writes tapes is checked against these sources.
//
// `run_shared` does the same with the help of threads that are in `help`. It publishes one round after the other as a
// number of chunks; whoever is free claims one by compare-and-swap. Every thread begins with chunks of its own, the same
// ones each time, whose memory its caches know; then it takes what others have left. No one waits for a thread to
// arrive: a thread that is late, or not there at all, leaves its chunks to the others. Only chunks that were claimed are waited
// for, by the caller, before the next round.
#include "kernel.h"
#include "sleep.h"

typedef void Kernel(const word *arguments, word begin, word end, char *scratch);

// kernels.inc is written by the build: one ENTRY(name) for each kernel of the sources.
#define ENTRY(name) \
    Kernel name##_kernel; \
    extern const char name##_fields[];
#include "kernels.inc"
#undef ENTRY

static Kernel *const kernels[] = {
#define ENTRY(name) name##_kernel,
#include "kernels.inc"
#undef ENTRY
};

static const char *const descriptions[] = {
#define ENTRY(name) name##_fields,
#include "kernels.inc"
#undef ENTRY
};

enum { KERNEL_INDEX, WORDS, UNITS, GRAIN, ROUNDS, ARGUMENTS };

// How many kernels there are.
EXPORT int kernel_count(void) { return sizeof kernels / sizeof *kernels; }

// "name: first argument, second argument, ...", ended by a zero byte.
EXPORT const char *kernel_description(int index) { return descriptions[index]; }

EXPORT void run(const word *tape, uintptr_t words, char *scratch) {
    for (const word *end = tape + words; tape < end; tape += tape[WORDS])
        kernels[tape[KERNEL_INDEX]](tape + ARGUMENTS, 0, tape[UNITS], scratch);
}

// Units [begin, end) of the tape's first operation.
EXPORT void run_piece(const word *tape, uintptr_t begin, uintptr_t end, char *scratch) {
    kernels[tape[KERNEL_INDEX]](tape + ARGUMENTS, (word)begin, (word)end, scratch);
}

// Threads

// More chunks than threads, so that one that is held up does not hold up all.
#define CHUNKS_PER_THREAD 4
// A round of fewer grains is over before another thread has taken note of it (engine.py says the same).
#define GRAINS_WORTH_SHARING 2
// How often an idle thread looks for work before it sleeps: about half a millisecond.
#if defined(__x86_64__)
#define SPINS 10000
#else
#define SPINS 200000
#endif

#define LOAD(place) __atomic_load_n(&(place), __ATOMIC_SEQ_CST)
#define STORE(place, value) __atomic_store_n(&(place), value, __ATOMIC_SEQ_CST)
#define ADD(place, value) __atomic_fetch_add(&(place), value, __ATOMIC_SEQ_CST)

// What threads share. What different threads write lies in different cache lines.
typedef struct {
    _Alignas(64) uint64_t turn; // number of the round << 32 | a bit for each chunk that is still to be claimed

    // The round that `turn` speaks of: written while no chunk of it can be claimed.
    _Alignas(64) const word *operation;
    word begin, end; // its units
    word chunk;      // units in a chunk
    word share;      // chunks with which a thread begins
    char *scratch;
    word stride; // from one thread's scratch to the next one's

    _Alignas(64) uint32_t done; // chunks of the round that are computed, and BROKEN
    uint32_t caller_sleeps;

    _Alignas(64) uint32_t wake; // changes when sleepers have to look again
    uint32_t sleepers;          // whether any thread may be asleep
    uint32_t stop;

    _Alignas(64) uint32_t threads; // in `help` now
    uint32_t helped;               // chunks that they computed, in all
    uint32_t may_sleep;            // whether the caller may
    uint32_t broken;
} Control;

enum { MOST_CHUNKS = 32, BROKEN = 1 << 30 };

// Bytes of memory, 64-byte aligned, that threads share.
EXPORT uintptr_t control_size(void) { return sizeof(Control); }

// Before anything else. `may_sleep` is false on a page's main thread.
EXPORT void control_init(Control *c, int may_sleep) { *c = (Control){.may_sleep = may_sleep != 0}; }

// Threads take scratch memory from `run_shared`'s on, `stride` bytes apart, the caller the first. Not during a run.
EXPORT void control_scratch(Control *c, uintptr_t stride) { c->stride = (word)stride; }

// How many threads are there to help.
EXPORT uint32_t control_threads(Control *c) { return LOAD(c->threads); }

// How many chunks they computed so far.
EXPORT uint32_t control_helped(Control *c) { return LOAD(c->helped); }

INLINE int has_chunks(uint64_t turn) { return (uint32_t)turn != 0; }

// The first chunk from `home` on that is to be claimed, or the first of all.
INLINE word choose_chunk(uint32_t chunks, word home) {
    const uint32_t from_home = home < MOST_CHUNKS ? chunks >> home << home : 0;
    return __builtin_ctz(from_home ? from_home : chunks);
}

// Compute chunks of the published round until all are claimed; returns how many.
//
// What is read between `turn` and its exchange is of one round whenever the exchange succeeds: it succeeds only if
// a chunk was still to be claimed, and the caller changes nothing before all of them are computed.
static uint32_t compute_chunks(Control *c, word thread) {
    uint32_t computed = 0;
    for (;;) {
        uint64_t turn = LOAD(c->turn);
        if (!has_chunks(turn)) return computed;
        const word *operation = LOAD(c->operation);
        word units = LOAD(c->chunk), first = LOAD(c->begin), end = LOAD(c->end);
        word chunk = choose_chunk((uint32_t)turn, thread * LOAD(c->share));
        char *scratch = LOAD(c->scratch) + thread * LOAD(c->stride);
        uint64_t rest = turn & ~(1ull << chunk);
        if (!__atomic_compare_exchange_n(&c->turn, &turn, rest, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST)) continue;
        word begin = first + chunk * units;
        kernels[operation[KERNEL_INDEX]](operation + ARGUMENTS, begin, min_word(begin + units, end), scratch);
        computed++;
        if (thread) ADD(c->helped, 1);
        ADD(c->done, 1);
        if (thread && LOAD(c->caller_sleeps)) wake_all(&c->done);
    }
}

static void wake_sleepers(Control *c) {
    STORE(c->sleepers, 0);
    ADD(c->wake, 1);
    wake_all(&c->wake);
}

// What a thread does: it computes chunks of whatever is published until `control_stop`. Threads are numbered from 1.
EXPORT void help(Control *c, int thread) {
    ADD(c->threads, 1);
    for (uint32_t idle = 0; !LOAD(c->stop);) {
        if (has_chunks(LOAD(c->turn))) {
            compute_chunks(c, thread);
            idle = 0;
        } else if (idle++ < SPINS) {
            relax();
        } else {
            // Whoever publishes looks at `sleepers` afterwards; who wants to sleep says so, then looks once more.
            uint32_t wake = LOAD(c->wake);
            STORE(c->sleepers, 1);
            if (!has_chunks(LOAD(c->turn)) && !LOAD(c->stop)) sleep_while(&c->wake, wake);
            idle = 0;
        }
    }
    ADD(c->threads, (uint32_t)-1);
}

// Send the threads away. They leave when they have done what they are at.
EXPORT void control_stop(Control *c) {
    STORE(c->stop, 1);
    wake_sleepers(c);
}

// A thread (`in_help`), or the caller, died in a kernel: its chunk will never be done. From now on there are no threads.
EXPORT void control_break(Control *c, int in_help) {
    if (in_help) ADD(c->threads, (uint32_t)-1); // it never gets to the end of `help`
    STORE(c->broken, 1);
    STORE(c->turn, 0);
    control_stop(c);
    __atomic_fetch_or(&c->done, BROKEN, __ATOMIC_SEQ_CST);
    wake_all(&c->done);
}

// Until the chunks that others have claimed are computed.
static void await_chunks(Control *c, uint32_t chunks) {
    for (uint32_t spins = 0;; spins++) {
        uint32_t done = LOAD(c->done);
        if (done == chunks) return;
        if (done & BROKEN) __builtin_trap();
        if (spins < SPINS || !c->may_sleep) {
            relax();
            continue;
        }
        // Whoever computes a chunk looks at `caller_sleeps` afterwards.
        STORE(c->caller_sleeps, 1);
        done = LOAD(c->done);
        if (done != chunks && !(done & BROKEN)) sleep_while(&c->done, done);
        STORE(c->caller_sleeps, 0);
    }
}

// As `run`, together with the threads that are there.
EXPORT void run_shared(const word *tape, uintptr_t words, char *scratch, Control *c) {
    word threads = 1 + LOAD(c->threads);
    if (threads == 1 || c->broken) {
        run(tape, words, scratch);
        return;
    }
    for (const word *end = tape + words; tape < end; tape += tape[WORDS]) {
        word all = tape[UNITS], units = all / tape[ROUNDS], grain = tape[GRAIN];
        if (units < GRAINS_WORTH_SHARING * grain) {
            kernels[tape[KERNEL_INDEX]](tape + ARGUMENTS, 0, all, scratch);
            continue;
        }
        word chunk = div_up(units, min_word(units / grain, min_word(CHUNKS_PER_THREAD * threads, MOST_CHUNKS)));
        if (chunk > 256) chunk = div_up(chunk, 64) * 64; // where units are elements: no line written by two threads
        uint32_t chunks = (uint32_t)div_up(units, chunk);
        STORE(c->operation, tape);
        STORE(c->chunk, chunk);
        STORE(c->share, div_up(chunks, threads));
        STORE(c->scratch, scratch);
        for (word begin = 0; begin < all; begin += units) {
            STORE(c->begin, begin);
            STORE(c->end, begin + units);
            STORE(c->done, 0);
            STORE(c->turn, ((LOAD(c->turn) >> 32) + 1) << 32 | 0xffffffff >> (MOST_CHUNKS - chunks));
            if (LOAD(c->sleepers)) wake_sleepers(c);
            compute_chunks(c, 0);
            await_chunks(c, chunks);
        }
    }
}

#if !defined(__wasm__)
// A run as one call: arrays in, the tape, arrays out. An array is given by where Python keeps it, and has its elements'
// address `header` bytes on.
typedef struct {
    word tape, words, scratch, control;
    word flags, flag_count;  // int64 words that kernels set where an index is out of bounds
    word header, inputs, count;
    struct {
        word address, bytes, array;
    } slots[];  // `count`: the inputs, then the outputs
} Call;

// Returns whether a flag is set.
EXPORT int run_call(const Call *call) {
    for (word i = 0; i < call->inputs; i++)
        memcpy(PTR(void, call->slots[i].address), *PTR(void *, call->slots[i].array + call->header),
               (size_t)call->slots[i].bytes);
    if (call->control)
        run_shared(PTR(word, call->tape), (uintptr_t)call->words, PTR(char, call->scratch), PTR(Control, call->control));
    else
        run(PTR(word, call->tape), (uintptr_t)call->words, PTR(char, call->scratch));
    for (word i = call->inputs; i < call->count; i++)
        memcpy(*PTR(void *, call->slots[i].array + call->header), PTR(void, call->slots[i].address),
               (size_t)call->slots[i].bytes);
    int64_t raised = 0;
    for (word i = 0; i < call->flag_count; i++) raised |= PTR(int64_t, call->flags)[i];
    return raised != 0;
}
#endif
