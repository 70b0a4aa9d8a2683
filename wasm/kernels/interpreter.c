// Walks a tape: an array of operations [kernel, words, units, grain, arguments...], each of `words` words.
//
// One call of `run` computes a whole program. The names and the arguments of all kernels can be asked, so that whoever
// writes tapes is checked against these sources.
#include "kernel.h"

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

enum { KERNEL_INDEX, WORDS, UNITS, GRAIN, ARGUMENTS };

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
