/* counted.h -- what the instructions of a run were given of its arenas, after the fact.
 *
 * The executor notes which instructions ran. Their calls hold the very addresses that kernels and communicators were given, so extents,
 * lives and the instant at which most was live come from these addresses, not from what placement wrote down. Counted bytes are
 * exact; which pages the machine has backed is asked of the system (base/pages.h).
 */
#ifndef ORTH_RUN_COUNTED_H
#define ORTH_RUN_COUNTED_H

#include "program/ir/program.h"

typedef struct {
    const orth_program *p;
    const orth_op_call *calls;           /* [num_instrs] as they were made */
    const uint8_t *ran;                  /* [num_instrs] whether they were */
    const char *arena[ORTH_NUM_SPACES];  /* where each begins */
} orth_run_record;

typedef struct {
    /* As orth_program.class_bytes: persistent bytes, and those that lived at the instant at which most did; what no buffer had
     * then of the region that transient buffers reached counts as activations. */
    size_t bytes[ORTH_NUM_SPACES][ORTH_NUM_CLASSES];
    size_t persistent[ORTH_NUM_SPACES];  /* in use between two steps */
    size_t peak[ORTH_NUM_SPACES];        /* with those that lived when most did, without the gaps */
    size_t high[ORTH_NUM_SPACES];        /* one past the last byte of the arena that was given */
    size_t pages[ORTH_NUM_SPACES];       /* bytes of the pages in which bytes were given */
} orth_counted;

/* ORTH_ERR_NOMEM. */
orth_status orth_count_run(orth_ctx *ctx, const orth_run_record *r, orth_counted *out);
#endif
