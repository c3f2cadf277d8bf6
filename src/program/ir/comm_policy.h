/* comm_policy.h -- what a layout says about communication beside its groups: read by lowering and by the overlap pass. */
#ifndef ORTH_PROGRAM_COMM_POLICY_H
#define ORTH_PROGRAM_COMM_POLICY_H

#include <stdbool.h>
#include <stdint.h>

#include "tensor/tensor.h"

/* ZeRO 3: what is gathered by one call for each type of parameter. FSDP's wrapping: by class, by number, by size (lower/gather.c). */
typedef enum {
    ORTH_UNIT_LAYER = 0,             /* a layer */
    ORTH_UNIT_HALF,                  /* its attention, and its feed-forward */
    ORTH_UNIT_LAYERS,                /* unit_size layers of a chunk of the pipeline */
    ORTH_UNIT_ELEMS                  /* as many as have unit_size elements on a rank, or more */
} orth_gather_unit;

/* When and in which pieces data-parallel ranks communicate, which changes no number, and in which type gradients travel, which does. */
typedef struct {
    bool overlap;                    /* beside computing; else where the program stands */
    int64_t bucket_bytes;            /* a bucket of gradients, or of updated parameters, is full from here on */
    int32_t prefetch;                /* ZeRO 3: blocks gathered ahead of the one at work, with overlap */
    int64_t prefetch_elems;          /* of whole parameters, ahead of the block at work, at most; 0: no limit */
    orth_dtype reduce;               /* gradients are reduced over dp in F32, or rounded to BF16 or Q8 (route.h) */
    orth_gather_unit unit;           /* ZeRO 3: beside embedding and head, which are units of their own */
    int64_t unit_size;
    int64_t reuse_elems;             /* ZeRO 3: a layer stays whole from its forward to its backward, if no more elements of others are
                                        used in between (lower/gather.c) */
    int64_t live_elems;              /* of whole parameters at any time, but for those of the block at work: where they are more, no layer
                                        stays whole and none is gathered ahead; 0: no limit */
    bool keep_gathered;              /* ZeRO 3: whole parameters stay from their first use in a step to the last */
} orth_comm_policy;

#endif
