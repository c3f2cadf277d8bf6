/* pool.h -- the compute threads of one rank, sharing out loops dynamically.
 *
 * Dynamic, because hosts are shared: a static half waits for whichever core was slowed. A task's
 * result must not depend on which thread runs it nor on how many there are: then the bits of a
 * kernel do not either.
 */
#ifndef ORTH_BASE_POOL_H
#define ORTH_BASE_POOL_H

#include "base/ctx.h"

typedef struct orth_pool orth_pool;

/* Runs task number `index`; `worker` in [0, num_threads) names the running thread, so that it can
 * use a private slice of a workspace. Cannot fail: check arguments before the loop. */
typedef void (*orth_task_fn)(void *arg, int64_t index, int worker);

/* num_threads >= 1, the caller included. ORTH_ERR_ARG, ORTH_ERR_NOMEM; *out only on success. */
orth_status orth_pool_create(orth_ctx *ctx, orth_pool **out, int num_threads);
void orth_pool_destroy(orth_ctx *ctx, orth_pool *pool); /* NULL is fine */

/* There are more threads than cores, with those of other pools: none spins any more. By itself a pool knows only of its
 * own. */
void orth_pool_share_cores(orth_pool *pool);

int orth_pool_num_threads(const orth_pool *pool);
/* Bytes of the stacks of its threads that are in memory (base/pages.h), that of the caller among them. */
size_t orth_pool_stack_bytes(const orth_pool *pool);

/* Runs fn(arg, i, worker) for all i in [0, n), in any order, on all threads; returns when all are
 * done and their writes are visible. Called by the pool's owner only, never from inside a task. */
void orth_pool_run(orth_pool *pool, int64_t n, orth_task_fn fn, void *arg);

/* memcpy by all threads where it is worth their while. pool NULL: the caller alone. Otherwise as orth_pool_run. */
void orth_pool_copy(orth_pool *pool, void *to, const void *from, size_t bytes);

#endif
