/* comm.h -- ranks, groups of ranks, and what the members of a group do together.
 *
 *   orth_run_ranks --starts--> R ranks, each running fn(ctx, world, arg)
 *   orth_comm_create(world, name, ranks) --> this rank's communicator for one group (one mesh axis)
 *   orth_comm_run(comm, call)            blocking
 *   orth_comm_start(comm, call) --> request ... orth_comm_wait(comm, request)  beside the caller
 *
 * Back ends: `thread` (ranks are threads that read each other's buffers; the reference), `mpi` (one rank
 * per process), `null` (counts only). All give the same bits.
 *
 * Order of sums. ORTH_ORDER_CANONICAL: for every element, the aligned binary tree of tensor/parts.h over
 * the members in group order (position i is leaf i), whatever the algorithm, count or chunking.
 * ORTH_ORDER_FREE: any order. Sums of bf16, fp16 and int8 run in fp32 and are rounded once, at the end, in both. max and
 * min take `a > b ? a : b` (`a < b`) along the same tree. u8 can be moved, not reduced; int8, whose elements are blocks
 * (tensor/q8.h), can be summed.
 *
 * Order of calls. Each member makes the same collectives in the same order on a communicator; calls on
 * different communicators are independent, also while one of them waits. send and recv are matched per
 * (sender, receiver) in order, and wait for nothing else.
 * Memory: a call's buffers and counts arrays belong to the communicator from start until wait returns.
 * Nothing is allocated by calls (they run inside a frozen step).
 *
 * Errors. Every failure here aborts the world: all ranks return ORTH_ERR_COMM with the one cause, which
 * names ranks and instructions; the outputs are then unspecified and communicators of that world are
 * only good for orth_comm_destroy.
 */
#ifndef ORTH_COMM_COMM_H
#define ORTH_COMM_COMM_H

#include "base/ctx.h"
#include "tensor/tensor.h"

#define ORTH_MAX_RANKS 1024       /* of a world that runs; a plan may have more (parallel/layout_limits.c) */
#define ORTH_COMM_NAME_MAX 16     /* with the zero at the end */

typedef struct orth_world orth_world;   /* opaque; one rank's handle of its world */
typedef struct orth_comm orth_comm;     /* opaque; one rank's membership of one group */

typedef enum {
#define KIND(NAME, text, ring, tree) ORTH_COMM_##NAME,
#include "comm/kinds.def"
#undef KIND
    ORTH_NUM_COMM_KINDS
} orth_comm_kind;
const char *orth_comm_kind_name(orth_comm_kind kind); /* "all_reduce", ... as in metrics and plans */

typedef enum { ORTH_SUM = 0, ORTH_MAX_OF, ORTH_MIN_OF, ORTH_NUM_REDUCES } orth_reduce;
typedef enum { ORTH_ORDER_CANONICAL = 0, ORTH_ORDER_FREE } orth_comm_order;
typedef enum {
    ORTH_ALGO_AUTO = 0, ORTH_ALGO_RING, ORTH_ALGO_TREE, ORTH_ALGO_DIRECT, ORTH_NUM_ALGOS
} orth_comm_algo;
typedef enum {
    ORTH_BACKEND_THREAD = 0, ORTH_BACKEND_NULL, ORTH_BACKEND_MPI, ORTH_NUM_BACKENDS
} orth_comm_backend;
const char *orth_comm_backend_name(orth_comm_backend b);
bool orth_comm_backend_built(orth_comm_backend b);

/* ---- worlds ---- */

/* Faults for tests: what rank `rank` does wrong at its `at`-th call (from 1, all communicators). */
typedef enum {
    ORTH_COMM_FAULT_NONE = 0,
    ORTH_COMM_FAULT_STOP,         /* never makes the call, until the world is aborted */
    ORTH_COMM_FAULT_SKIP,         /* goes on as if the call were made */
    ORTH_COMM_FAULT_SWAP,         /* of two collectives of a program, makes the second first */
    ORTH_COMM_FAULT_COUNT,        /* one element more than asked */
    ORTH_COMM_FAULT_LEAVE         /* the call fails, as if the rank had an error of its own */
} orth_comm_fault_kind;

typedef struct {
    orth_comm_fault_kind kind;
    int rank;
    int64_t at;
    int64_t from_step;            /* calls count from the beginning of this step; 0: from the start */
} orth_comm_fault;

/* All zero: the defaults. */
typedef struct {
    orth_comm_backend backend;
    int threads_per_rank;         /* compute threads; 0: 1. mpi: the given ctx keeps its pool */
    bool pin;                     /* thread: bind ranks to cores when there are enough */
    orth_comm_order order;        /* of the communicators made; orth_comm_set changes one */
    orth_comm_algo algo;
    bool unchecked;               /* mpi: no comparison of headers (thread ranks always compare) */
    double timeout_s;             /* watchdog, see orth_world_step; 0: 5 s; negative: none */
    double startup_s;             /* the same until the second step begins; 0: see orth_world_expect */
    double busy_timeout_s;        /* the same in phases (base/progress.h); 0: 300 s */
    orth_comm_fault fault;
} orth_world_options;

typedef orth_status (*orth_rank_fn)(orth_ctx *ctx, orth_world *world, void *arg);

/* Runs fn as each of `num_ranks` ranks and returns when all are done.
 *   thread: one thread per rank, each with its own ctx (rank, own pool; log, isa and faults as in `ctx`);
 *   null: the ranks run one after the other on this thread, in `ctx`; received data is whatever was there;
 *   mpi: runs this process's rank in `ctx`; num_ranks 0 takes what mpirun started, else it must agree. All
 *     processes of the world call it, and return the same error: ctx->error.printed_elsewhere is false on
 *     the one that should print it. A process that cannot reach rank 0 any more returns its own.
 * When fn fails on a rank the world is aborted. Returns the error that came first in cause, of the lowest
 * rank if there are several; its message starts with "rank N: " (of several ranks). Communicators that fn leaves behind are
 * destroyed. If a stalled rank does not come back within the timeout after an abort, its thread and
 * world are left behind: the caller should end the process.
 * ORTH_ERR_ARG, ORTH_ERR_NOMEM, ORTH_ERR_COMM, or what fn returned. */
orth_status orth_run_ranks(orth_ctx *ctx, int num_ranks, orth_rank_fn fn, void *arg,
                           const orth_world_options *options);

/* mpi: takes leave of the launcher. Call once, before the process ends well; after a failure end it with
 * a non-zero status instead. Does nothing where MPI was not used. */
void orth_comm_shutdown(void);

int orth_world_rank(const orth_world *w);
int orth_world_size(const orth_world *w);
/* Does global rank `rank` run on the same host as this one? (This rank does.) */
bool orth_world_shares_host(const orth_world *w, int rank);

/* The watchdog. A rank moves as long as its ctx->progress ticks: calls, instructions, files, bytes, blocks of memory. It is
 * stuck when it has not ticked for max(timeout_s, 3 * median duration of the last steps), or within a phase for
 * busy_timeout_s. Whoever waits for a rank that moves, or for one that itself waits for one, is not to blame. Time is
 * counted by the watchdog's own looks, so that a program that was stopped for a while is not taken for dead. */

/* Marks the beginning of training step `step` on this rank. */
void orth_world_step(orth_world *w, int64_t step);

/* A step should take about `seconds` (0: not known): until the second one begins, the limit is max(timeout_s, 4 *
 * seconds); 60 s if it is not known, or timeout_s if that is more. Matters on rank 0. */
void orth_world_expect(orth_world *w, double seconds);

/* How this rank's instructions are called in messages: `program` is what ctx->progress shows. NULL: no longer; then no
 * call of it is under way any more, and the programs may be freed. */
typedef void (*orth_instr_name_fn)(const void *program, int32_t instr, char *text, size_t n);
void orth_world_name_instrs(orth_world *w, orth_instr_name_fn name);

/* Ends all waits of all ranks with ORTH_ERR_COMM and this cause, an error of status `code` (the first one stays). For ranks
 * that fail outside of a communicator; orth_run_ranks does it when fn returns an error. */
void orth_world_abort(orth_world *w, orth_status code, const char *cause);
/* Of what status the error is that all ranks end for, whichever had it; ORTH_OK: there is none. */
orth_status orth_world_cause(const orth_world *w);

/* After an abort: the back end (MPI) may still read what a call under way sends, so buffers of calls must stay until the
 * process ends, which it does with an error. */
bool orth_world_keeps_buffers(const orth_world *w);

/* ---- communicators ---- */

/* Collective over the listed global ranks, of which this rank is one: creations that share members come in
 * one order. Position in `ranks` is position in the group, and so leaf of the canonical tree. `name` is
 * the axis ("dp", "tp", ...), for messages and counters. n = 1 is fine.
 * ORTH_ERR_ARG, ORTH_ERR_NOMEM, ORTH_ERR_COMM; *out only on success. */
orth_status orth_comm_create(orth_ctx *ctx, orth_world *w, orth_comm **out, const char *name, int n,
                             const int *ranks);

/* Waits for started calls, then releases. Local; NULL is fine. */
void orth_comm_destroy(orth_ctx *ctx, orth_comm *c);

/* Changes how this communicator works; the same call on all members, between collectives, outside of a
 * step (allocates). ORTH_ERR_ARG for ring in canonical order: its sums start at a different
 * rank for each slice. Where an algorithm cannot do a kind (kinds.def), direct does it. */
orth_status orth_comm_set(orth_ctx *ctx, orth_comm *c, orth_comm_algo algo, orth_comm_order order);

int orth_comm_size(const orth_comm *c);
int orth_comm_pos(const orth_comm *c); /* this rank's position in the group */

/* One call. n = size, me = position; counts in elements of dtype; blocks lie in group order without gaps.
 *
 *   kind            send                  recv                  counts
 *   all_reduce      [count]               [count]               in place: send == recv
 *   reduce_scatter  [sum of counts]       [counts[me]]          in place: recv == my block of send
 *   all_gather      [counts[me]]          [sum of counts]       in place: send == my block of recv
 *   broadcast       -                     [count] in/out        from position `peer`
 *   all_to_all      [sum of send_counts]  [sum of counts]       counts[i]: from i; send_counts[i]: to i
 *   barrier         -                     -
 *   send            [count]               -                     to position `peer` != me
 *   recv            -                     [count]               from position `peer` != me
 *
 * counts (and send_counts) NULL: `count` for each member. Elsewhere they are NULL. Counts may be 0;
 * buffers of 0 elements may be NULL. Except in place, buffers do not overlap.
 * `instr` is the caller's instruction id, for messages. `tag` is compared, like kind, type, op, counts,
 * root and algorithm: members of a group may run different programs, so that ids need not agree;
 * give a tag what they agree on (layer and micro-batch, bucket). */
typedef struct {
    orth_comm_kind kind;
    orth_dtype dtype;
    orth_reduce op;
    const void *send;
    void *recv;
    int64_t count;
    const int64_t *counts, *send_counts;
    int32_t peer;
    int32_t instr;
    int64_t tag;
} orth_comm_call;

orth_status orth_comm_run(orth_ctx *ctx, orth_comm *c, const orth_comm_call *call);

/* The call proceeds beside the caller, whatever the peers' callers do meanwhile. *call is copied, its
 * buffers and arrays are not. At most ORTH_COMM_PENDING calls may be under way; one more waits for
 * the oldest. */
#define ORTH_COMM_PENDING 256
typedef int64_t orth_request;                      /* 0: nothing to wait for */
orth_status orth_comm_start(orth_ctx *ctx, orth_comm *c, const orth_comm_call *call, orth_request *out);
/* Returns when the call is complete: outputs are there and all peers are done with the inputs. A request
 * may be waited for again. */
orth_status orth_comm_wait(orth_ctx *ctx, orth_comm *c, orth_request t);
/* Whether orth_comm_wait would return at once. */
bool orth_comm_is_complete(orth_comm *c, orth_request t);

/* Blocking calls in words; counts NULL where all are `count`. */
orth_status orth_all_reduce(orth_ctx *ctx, orth_comm *c, void *recv, const void *send, int64_t count,
                            orth_dtype dtype, orth_reduce op);
orth_status orth_reduce_scatter(orth_ctx *ctx, orth_comm *c, void *recv, const void *send, int64_t count,
                                const int64_t *counts, orth_dtype dtype, orth_reduce op);
orth_status orth_all_gather(orth_ctx *ctx, orth_comm *c, void *recv, const void *send, int64_t count,
                            const int64_t *counts, orth_dtype dtype);
orth_status orth_broadcast(orth_ctx *ctx, orth_comm *c, void *buf, int64_t count, orth_dtype dtype, int root);
orth_status orth_all_to_all(orth_ctx *ctx, orth_comm *c, void *recv, const void *send, int64_t count,
                            const int64_t *counts, const int64_t *send_counts, orth_dtype dtype);
orth_status orth_barrier(orth_ctx *ctx, orth_comm *c);
orth_status orth_send(orth_ctx *ctx, orth_comm *c, const void *send, int64_t count, orth_dtype dtype, int to);
orth_status orth_recv(orth_ctx *ctx, orth_comm *c, void *recv, int64_t count, orth_dtype dtype, int from);

/* ---- counting ---- */

/* Bytes that the member at `pos` of n would send in `call` if the ring were used: the least for most kinds, and what prices
 * and docs/parallel.md go by. Slices s_i = [count*i/n, count*(i+1)/n); everything is 0 for n = 1.
 *   all_reduce      2*count - s_pos - s_(pos+1)   a ring: 2(n-1)/n of the buffer
 *   reduce_scatter  sum of counts - counts[pos]
 *   all_gather      sum of counts - counts[pos+1]
 *   broadcast       count, and 0 for the member before the root (a chain)
 *   all_to_all      sum of send_counts - send_counts[pos]
 *   send            count; recv and barrier 0 */
int64_t orth_comm_bytes(int n, int pos, const orth_comm_call *call);

/* How a communicator moves data. */
typedef struct {
    orth_comm_algo algo;
    bool shares_memory;           /* thread ranks read each other's buffers; processes send messages */
} orth_comm_method;
/* What ORTH_ALGO_AUTO, or an algorithm that the kind does not have, means for this call of n members. */
orth_comm_algo orth_comm_algo_of(orth_comm_method m, int n, const orth_comm_call *call);
/* Bytes that it sends by this method: those of its memory, or that it computed, that others get. The communicator counts
 * exactly these. Summed over the members they are those of orth_comm_bytes, but that the tree sends more of an all-reduce, and that
 * ring and tree carry sums of bf16 and int8 as fp32. */
int64_t orth_comm_sent_bytes(orth_comm_method m, int n, int pos, const orth_comm_call *call);

typedef struct {
    int64_t calls[ORTH_NUM_COMM_KINDS];
    int64_t ideal[ORTH_NUM_COMM_KINDS];            /* orth_comm_bytes of these calls */
    int64_t sent[ORTH_NUM_COMM_KINDS];             /* bytes of this member, counted where they are copied or handed to MPI */
} orth_comm_counts;
/* Since creation: of the calls made; `sent` is complete for those that are. Called by the thread that makes them. */
orth_comm_counts orth_comm_counted(const orth_comm *c);
orth_comm_method orth_comm_method_of(const orth_comm *c);

/* Bytes of heap in which a communicator of several members sums and forwards blocks: what it will take, and what it has taken
 * (NULL: 0). */
size_t orth_comm_scratch_planned(orth_comm_method m);
size_t orth_comm_scratch_bytes(const orth_comm *c);

#endif
