/* saved.h -- what the program of a step that makes nothing again keeps of its layers for the backward, and how much less memory it
 * would need without some of it.
 *
 * Read off a compiled and placed program: for each forward node of a layer, the bytes that it leaves to the backward and what
 * making them again costs; and for moments of the step, what lives then, and how much of it waits for the backward, node by node
 * of each layer. What a node made is not needed between its last reader of the forward and its first reader of the backward. A
 * program that makes it again has at least the other bytes live at that moment, so that the largest such sum is a lower bound
 * of what it needs: it is compiled only where the bound is below a limit.
 */
#ifndef ORTH_PLAN_SAVED_H
#define ORTH_PLAN_SAVED_H

#include "program/lower/compile.h"

/* What is computed again: FLOPs, and bytes that are read and written, which decide between equal FLOPs. */
typedef struct {
    double flops, moved;
} orth_again_cost;

typedef struct {
    int32_t num_nodes;          /* forward nodes of a layer */
    orth_again_cost *cost;      /* [num_nodes] of a micro-batch */
    int64_t *bytes;             /* [num_nodes] of a micro-batch of the first layer: what the node makes, but for the layer's output */
    int64_t *kept;              /* [num_nodes] bytes of a micro-batch, of the layer that keeps the most of the node */
    int32_t *layers, num_layers; /* numbers of the rank's layers, ascending */
    int32_t num_moments;
    int64_t *live;              /* [num_moments] bytes of transient buffers */
    int64_t *waiting;           /* [num_moments][num_layers][num_nodes] bytes, of all micro-batches */
} orth_saved;

/* Of a placed program with nothing made again. Of a long step only the moments at which the most lives. Everything is in `arena`.
 * ORTH_ERR_NOMEM. */
orth_status orth_saved_find(orth_ctx *ctx, orth_arena *arena, const orth_program *p, const orth_compile_spec *spec, orth_saved *out);

#endif
