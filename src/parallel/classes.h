/* classes.h -- ranks whose programs are alike, so that one of them is compiled for all.
 *
 * Alike: the same instructions on buffers of the same sizes, lives and places, in the same calls. They may differ in which
 * heads, rows, slots and parts they work on, which is no more than numbers in attributes, and where in the sums of squares
 * theirs lie. A plan, a price and a timeline of one are those of all; each runs its own.
 * Data-parallel ranks with equal shares are alike unless shards are dealt out, tensor-parallel ranks if their slices are of
 * one shape and both or neither of them are the first, which counts what all of them hold.
 */
#ifndef ORTH_PARALLEL_CLASSES_H
#define ORTH_PARALLEL_CLASSES_H

#include "parallel/spread.h"

typedef struct {
    const orth_spread *spread;
    int32_t *of_tp;   /* [tp] the lowest tensor-parallel position that is alike */
    orth_arena arena;
} orth_classes;

/* `shape`: what is the same on all ranks, as in orth_check_layout. spread outlives *out. ORTH_ERR_ARG, ORTH_ERR_NOMEM. */
orth_status orth_classes_make(orth_ctx *ctx, orth_classes *out, const orth_spread *spread, const orth_model_config *model,
                              const orth_model_shape *shape);
void orth_classes_release(orth_ctx *ctx, orth_classes *c);

/* The lowest rank that is alike. */
int orth_classes_of(const orth_classes *c, int rank);

/* Lowest rank whose program is the same: ranks that differ in nothing but their data. */
int orth_spread_same_program(const orth_spread *s, int rank);

#endif
