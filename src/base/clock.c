/* clock.c -- see clock.h. */
#include "base/clock.h"

static int64_t read_ns(clockid_t id)
{
    struct timespec t;
    clock_gettime(id, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

int64_t orth_clock_ns(void)
{
    return read_ns(CLOCK_MONOTONIC);
}

double orth_clock_busy_s(void)
{
    return 1e-9 * (double)read_ns(CLOCK_PROCESS_CPUTIME_ID);
}

void orth_clock_cond_init(pthread_cond_t *cond)
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(cond, &attributes);
    pthread_condattr_destroy(&attributes);
}

struct timespec orth_clock_deadline(int64_t ns)
{
    const int64_t until = orth_clock_ns() + ns;
    return (struct timespec){.tv_sec = until / 1000000000, .tv_nsec = until % 1000000000};
}
