/* live.h -- what lives when: the transient buffers of a placed program, over its instructions. */
#ifndef ORTH_PROGRAM_LIVE_H
#define ORTH_PROGRAM_LIVE_H

#include "program/ir/program.h"

/* Bytes of transient buffers by class. */
typedef struct {
    size_t of[ORTH_NUM_CLASSES];
} orth_live_bytes;

/* *out [num_instrs] in heap memory: what of `space` lives during each instruction, with what aligns it; a chain has the class of its
 * first buffer. At orth_program.peak_instr it is transient_class, which has the gaps between buffers in addition. ORTH_ERR_NOMEM. */
orth_status orth_live_over_step(orth_ctx *ctx, const orth_program *p, orth_space space, orth_live_bytes **out);
size_t orth_live_sum(const orth_live_bytes *b);

/* A buffer that is in memory during an instruction. */
typedef struct {
    int32_t buffer;
    size_t bytes;            /* with what aligns the next */
    int32_t made_by;         /* instruction that first uses it; -1: persistent */
} orth_live_buffer;

/* All of `space` during instruction `at`, persistent ones included, the largest first; *out in heap memory. ORTH_ERR_NOMEM. */
orth_status orth_live_during(orth_ctx *ctx, const orth_program *p, orth_space space, int32_t at, orth_live_buffer **out, int32_t *num);
#endif
