/* action.h -- what a pipeline rank does, in order: the whole of a schedule (parallel/pipeline/). */
#ifndef ORTH_PROGRAM_ACTION_H
#define ORTH_PROGRAM_ACTION_H

#include <stdint.h>

typedef enum {
    ORTH_ACTION_F = 0,   /* forward */
    ORTH_ACTION_B,       /* gradients of input and weights together */
    ORTH_ACTION_BI,      /* gradient of the input only: what the stage before waits for */
    ORTH_ACTION_W,       /* gradient of the weights, any time after BI */
    ORTH_NUM_ACTION_KINDS
} orth_action_kind;

typedef struct {
    orth_action_kind kind;
    int32_t chunk;        /* 0 .. num_chunks-1, model order over the whole pipeline */
    int32_t micro_batch;  /* 0 .. num_micro_batches-1 */
    /* Which weights of the chunk it computes with: the number of updates made to them since the schedule
     * began. 0 in every synchronous schedule. */
    int32_t version;
} orth_action;

#endif
