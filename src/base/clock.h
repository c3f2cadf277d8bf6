/* clock.h -- monotonic time, processor time, and waits by the former. */
#ifndef ORTH_BASE_CLOCK_H
#define ORTH_BASE_CLOCK_H

#include <pthread.h>
#include <stdint.h>
#include <time.h>

int64_t orth_clock_ns(void);
static inline double orth_clock_s(void) { return 1e-9 * (double)orth_clock_ns(); }
/* Processor time of this process, all threads: it does not pass while others have the CPUs. */
double orth_clock_busy_s(void);

/* A condition that is waited for with a limit: pthread_cond_timedwait of it takes deadlines of this clock, which nobody sets. By the
 * wall clock, which pthread_cond_init has, a wait of 10 ms lasts an hour when somebody sets that back by one. */
void orth_clock_cond_init(pthread_cond_t *cond);
/* The deadline `ns` from now, for such a wait. */
struct timespec orth_clock_deadline(int64_t ns);

#endif
