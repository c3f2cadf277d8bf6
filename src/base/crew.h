/* crew.h -- pieces of long work that know nothing of each other, on several cores: plans of many layouts.
 *
 * Unlike the tasks of a pool (base/pool.h) each piece may allocate, log and fail: each thread has a ctx of its own, with what the caller's
 * has but for the pool, which has one thread.
 */
#ifndef ORTH_BASE_CREW_H
#define ORTH_BASE_CREW_H

#include "base/ctx.h"

/* Piece number index. Leaves nothing allocated, and writes what no other piece does. */
typedef orth_status (*orth_crew_fn)(orth_ctx *ctx, void *arg, int64_t index);

/* All pieces in [0, n) on num_threads threads, the caller's included; with one thread in order, by the caller's ctx. A failed piece ends the work: pieces that
 * were not begun are left out, and the error is that of the failed piece with the least index. ORTH_ERR_NOMEM also where the system refuses a thread. */
orth_status orth_crew_run(orth_ctx *ctx, int num_threads, int64_t n, orth_crew_fn fn, void *arg);

#endif
