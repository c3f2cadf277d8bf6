/* clock.h -- monotonic time, and processor time. */
#ifndef ORTH_BASE_CLOCK_H
#define ORTH_BASE_CLOCK_H

#include <stdint.h>

int64_t orth_clock_ns(void);
static inline double orth_clock_s(void) { return 1e-9 * (double)orth_clock_ns(); }
/* Processor time of this process, all threads: it does not pass while others have the CPUs. */
double orth_clock_busy_s(void);

#endif
