/* word.h -- a counter that threads can wait on: they spin as long as told, then sleep in the kernel.
 *
 * The value carries the synchronization (a bump releases, a wait acquires); the kernel's futex only puts
 * waiters to sleep. So 64 ranks on 2 cores cost nothing while they wait, and 2 ranks on 2 cores meet
 * within a fraction of a microsecond.
 */
#ifndef ORTH_COMM_WORD_H
#define ORTH_COMM_WORD_H

#include <stdatomic.h>
#include <stdint.h>

typedef struct {
    _Atomic uint32_t value;
    _Atomic int32_t sleepers;
} comm_word;

static inline uint32_t comm_word_get(comm_word *w)
{
    return atomic_load_explicit(&w->value, memory_order_acquire);
}

/* value + 1; wakes everyone who waits. */
void comm_word_bump(comm_word *w);

/* Returns once the value is not `old`, or after about max_ns asleep: the caller looks again. */
void comm_word_wait(comm_word *w, uint32_t old, int spins, int64_t max_ns);

#endif
