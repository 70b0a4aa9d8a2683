// Threads that wait for each other: a thread sleeps until another one changes a word of memory.
//
// Browsers and Linux have just that (wasm's atomic wait, futex). Elsewhere one lock and one condition stand for all words.
#pragma once

#include "kernel.h"

// sleep_while(word, value) returns once `wake_all(word)` is called after the word changed, at once if it no longer holds
// `value`, and at times for no reason. relax() makes a loop that waits cheaper for the processor.
#if defined(__wasm__)

INLINE void sleep_while(uint32_t *word, uint32_t value) {
    __builtin_wasm_memory_atomic_wait32((int *)word, (int)value, -1);
}
INLINE void wake_all(uint32_t *word) { __builtin_wasm_memory_atomic_notify((int *)word, (unsigned)-1); }

#elif defined(__linux__)

enum { FUTEX_WAIT_PRIVATE = 128, FUTEX_WAKE_PRIVATE = 129, ALL = 0x7fffffff };

// The system call itself, since the library is linked to no C library.
INLINE void futex(uint32_t *address, long operation, long value) {
#if defined(__x86_64__)
    long result = 202;
    register long timeout __asm__("r10") = 0;
    __asm__ volatile("syscall"
                     : "+a"(result)
                     : "D"(address), "S"(operation), "d"(value), "r"(timeout)
                     : "rcx", "r11", "memory");
#elif defined(__aarch64__)
    register long number __asm__("x8") = 98;
    register long x0 __asm__("x0") = (long)address;
    register long x1 __asm__("x1") = operation;
    register long x2 __asm__("x2") = value;
    register long x3 __asm__("x3") = 0;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(number), "r"(x1), "r"(x2), "r"(x3) : "memory");
#else
#error "the number of the futex system call is not known here"
#endif
}
INLINE void sleep_while(uint32_t *word, uint32_t value) { futex(word, FUTEX_WAIT_PRIVATE, value); }
INLINE void wake_all(uint32_t *word) { futex(word, FUTEX_WAKE_PRIVATE, ALL); }

#elif defined(__APPLE__)

#include <pthread.h>

static pthread_mutex_t sleep_lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t sleep_condition = PTHREAD_COND_INITIALIZER;

INLINE void sleep_while(uint32_t *word, uint32_t value) {
    pthread_mutex_lock(&sleep_lock);
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value) pthread_cond_wait(&sleep_condition, &sleep_lock);
    pthread_mutex_unlock(&sleep_lock);
}
INLINE void wake_all(__attribute__((unused)) uint32_t *word) {
    pthread_mutex_lock(&sleep_lock); // whoever has looked at a word is asleep by now
    pthread_mutex_unlock(&sleep_lock);
    pthread_cond_broadcast(&sleep_condition);
}

#elif defined(_WIN32)

// Of kernel32; its header would need a C library's.
__declspec(dllimport) void AcquireSRWLockExclusive(void **lock);
__declspec(dllimport) void ReleaseSRWLockExclusive(void **lock);
__declspec(dllimport) int SleepConditionVariableSRW(void **condition, void **lock, uint32_t milliseconds, uint32_t flags);
__declspec(dllimport) void WakeAllConditionVariable(void **condition);

static void *sleep_lock, *sleep_condition;

INLINE void sleep_while(uint32_t *word, uint32_t value) {
    AcquireSRWLockExclusive(&sleep_lock);
    if (__atomic_load_n(word, __ATOMIC_SEQ_CST) == value)
        SleepConditionVariableSRW(&sleep_condition, &sleep_lock, (uint32_t)-1, 0);
    ReleaseSRWLockExclusive(&sleep_lock);
}
INLINE void wake_all(__attribute__((unused)) uint32_t *word) {
    AcquireSRWLockExclusive(&sleep_lock); // whoever has looked at a word is asleep by now
    ReleaseSRWLockExclusive(&sleep_lock);
    WakeAllConditionVariable(&sleep_condition);
}

#endif

INLINE void relax(void) {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}
