/* word.c -- see word.h. */
#include "comm/word.h"

#include <time.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

static void sleep_while(comm_word *w, uint32_t old, int64_t max_ns)
{
    struct timespec ts = {.tv_sec = max_ns / 1000000000, .tv_nsec = max_ns % 1000000000};
#if defined(__linux__)
    syscall(SYS_futex, &w->value, FUTEX_WAIT_PRIVATE, old, &ts, NULL, 0);
#else
    (void)w, (void)old;
    ts = (struct timespec){.tv_nsec = 50000};
    nanosleep(&ts, NULL);
#endif
}

void comm_word_bump(comm_word *w)
{
    atomic_fetch_add(&w->value, 1);
    /* A waiter first counts itself, then lets the kernel compare the value: one of us sees the other. */
    if (atomic_load(&w->sleepers) == 0)
        return;
#if defined(__linux__)
    syscall(SYS_futex, &w->value, FUTEX_WAKE_PRIVATE, INT32_MAX, NULL, NULL, 0);
#endif
}

void comm_word_wait(comm_word *w, uint32_t old, int spins, int64_t max_ns)
{
    for (int i = 0; i < spins; i++) {
        if (comm_word_get(w) != old)
            return;
#if defined(__x86_64__)
        __builtin_ia32_pause();
#endif
    }
    if (comm_word_get(w) != old)
        return;
    atomic_fetch_add(&w->sleepers, 1);
    sleep_while(w, old, max_ns);
    atomic_fetch_sub(&w->sleepers, 1);
}
