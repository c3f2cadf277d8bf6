/* clock.c -- see clock.h. */
#include "base/clock.h"

#include <time.h>

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
