/* executor.h -- runs a placed program, whose instructions are in queues, on the CPU (step.c): a loop without policy.
 *
 * All addresses are known before the first step; a step allocates nothing (ctx->frozen is set while
 * it runs, so that any attempt is an error). The executor also notes which instructions ran, so that
 * planned and used bytes can be compared.
 */
#ifndef ORTH_RUN_EXECUTOR_H
#define ORTH_RUN_EXECUTOR_H

#include "base/scratch.h"
#include "comm/comm.h"
#include "run/counted.h"

typedef struct orth_executor orth_executor;

/* Maps an arena for each memory space and resolves every operand. kernels: orth_kernels_cpu() or _ref(). External buffers
 * are found in `lender` (NULL if there are none), which outlives *out, as must `p`. With `overlay` the
 * arenas lie in the lender's regions of transient buffers, which orth_place_reserve has made large enough: the two
 * then run by turns, and nothing but weights survives from one turn to the next. ORTH_ERR_NOMEM; ORTH_ERR_INTERNAL if
 * a lent buffer is missing, the region too small, or the program without queues (orth_order). */
orth_status orth_executor_create(orth_ctx *ctx, orth_executor **out, const orth_program *p,
                                 const orth_kernel_fn *kernels, const orth_executor *lender, bool overlay);
void orth_executor_destroy(orth_ctx *ctx, orth_executor *e); /* NULL is fine */

/* The groups that the program's communication goes to, by axis; NULL where it has none. They outlive e. */
void orth_executor_set_comms(orth_executor *e, orth_comm *const comms[ORTH_NUM_GROUPS]);

/* Bytes [at, at + bytes) of a bound buffer. */
typedef struct {
    orth_bind bind;
    int64_t index;
    size_t at, bytes;
} orth_ref;

/* The type of the elements of a buffer of a parameter or moment. */
orth_dtype orth_executor_type(const orth_executor *e, orth_bind bind, int64_t index);
/* Bytes of a bound buffer; 0 if the program has none. */
size_t orth_executor_size(const orth_executor *e, orth_bind bind, int64_t index);
/* Copy bound bytes to and from memory of the caller, between two steps. Large ones are copied by all threads of ctx. Only
 * kernels, copies and communicators have addresses of an arena. ORTH_ERR_INTERNAL if there are no such bytes. */
orth_status orth_executor_read(orth_ctx *ctx, const orth_executor *e, orth_ref ref, void *host);
orth_status orth_executor_write(orth_ctx *ctx, orth_executor *e, orth_ref ref, const void *host);

/* One step. Collective over the groups whose calls the program has; ORTH_ERR_COMM if one of their ranks fails or is missing. The first error of a kernel ends
 * it. */
orth_status orth_executor_run(orth_ctx *ctx, orth_executor *e);

/* Runs the step again (collective as orth_executor_run), looks at every parameter that is read and every fp32, fp64 and bf16 result, and
 * describes the first that holds an infinity or NaN in `where` (left alone if there is none): tensor, op, layer, micro-batch. */
orth_status orth_executor_find_nonfinite(orth_ctx *ctx, orth_executor *e, char *where, size_t where_bytes);

/* What the steps so far were given of the arenas (run/counted.h). Between two steps, with the ctx that ran them. ORTH_ERR_NOMEM. */
orth_status orth_executor_counted(orth_ctx *ctx, const orth_executor *e, orth_counted *out);

/* Of an executor that overlays another: bytes that it was given of the lender's region above what the lender itself was given
 * there. They are to be added to the lender's activations. ORTH_ERR_NOMEM. */
orth_status orth_executor_counted_above(orth_ctx *ctx, const orth_executor *e, size_t above[ORTH_NUM_SPACES]);

/* Bytes of its own arena in a space, as mapped; of its pages that are in memory (base/pages.h), of a file, bytes of the disk that it takes. */
size_t orth_executor_mapped_bytes(const orth_executor *e, orth_space s);
size_t orth_executor_touched_bytes(const orth_executor *e, orth_space s);

/* Of its own file: bytes that were moved so far, between steps, too. */
typedef struct {
    const orth_scratch *file;  /* NULL: it has none, and the rest is 0 */
    size_t room;               /* memory that transfers take */
    int64_t read, written;
} orth_file_use;
orth_file_use orth_executor_file_use(const orth_executor *e);

/* Time that the thread of the last step spent on communication, by group: in calls in the queue of computing, in starting
 * others and in waiting for them. */
void orth_executor_exposed(const orth_executor *e, double seconds[ORTH_NUM_GROUPS]);

/* Instruction `instr` of an executor, in words ("forward of layer 3, micro-batch 1: all_reduce of 'dx' over tp (instruction
 * 412)"): an orth_instr_name_fn. While a step runs, ctx->progress shows the executor and its instruction. */
void orth_executor_name_instr(const void *executor, int32_t instr, char *text, size_t n);

/* Times of the last step (program.h, base/clock.h), valid until the next one. A call in another queue ends when it is known to be
 * complete. And for how long the thread was held by each instruction, in ns: their sum is the step. */
const int64_t *orth_executor_clock(const orth_executor *e);
const int64_t *orth_executor_held(const orth_executor *e);

/* For tests: steps run in orders drawn from `seed`, among all that queues and events allow (shuffle.c). 0: in that of the list. */
void orth_executor_shuffle(orth_executor *e, uint64_t seed);

#endif
