/* classes.h -- ranks that share a program, so that one of them is compiled for all.
 *
 * Ranks of one class have the same instructions on the same buffers, in the same calls. They may differ in which heads, rows,
 * slots and parts they work on, which is no more than numbers in attributes, and in the shards that they have, to which a
 * program can be bound (program/passes/views.h). Twins have equal shards, too: sizes, places and costs of one are those of the
 * other. Plans, prices and timelines are made of the programs of the classes; what a rank runs also has its own numbers.
 * Data-parallel ranks with equal shares are of one class (if others have more or less, in fast mode only), unless they have shards that are copied from another space
 * (program/lower/far.c). So are context-parallel ranks, except in ring attention, and tensor-parallel ranks, if their slices
 * are of one shape; the first counts what all of them hold, where the others have the same instructions about no rows.
 */
#ifndef ORTH_PARALLEL_CLASSES_H
#define ORTH_PARALLEL_CLASSES_H

#include "parallel/partition.h"

typedef struct {
    const orth_partition *partition;
    bool own_shards;            /* ranks with other shards have programs of their own */
    int32_t *of_tp;             /* [tp] the lowest tensor-parallel position that is alike */
    orth_model_blocks *blocks;  /* [tp] of the first rank at each position */
    int num_blocks;             /* built so far */
    orth_arena arena;
} orth_classes;

/* `shape`: what is the same on all ranks (mode, sequence length, types, optimizer); orth_partition_shape adds the rest.
 * partition outlives *out. ORTH_ERR_ARG, ORTH_ERR_NOMEM. */
orth_status orth_classes_make(orth_ctx *ctx, orth_classes *out, const orth_partition *partition, const orth_model_config *model,
                              const orth_model_shape *shape);
void orth_classes_release(orth_ctx *ctx, orth_classes *c);

/* The lowest rank of the same class. */
int orth_classes_of(const orth_classes *c, int rank);
/* The lowest twin. */
int orth_classes_twin(const orth_classes *c, int rank);

/* The lowest rank that runs the same program, attributes and all, bound to other shards: that of the class at the rank's
 * tensor- and context-parallel position. */
int orth_classes_program(const orth_classes *c, int rank);

/* The rank's own slices of all parameters. */
const orth_param_desc *orth_classes_params(const orth_classes *c, int rank);

#endif
