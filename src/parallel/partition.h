/* partition.h -- a layout applied to a model: for each rank its place, its part of the pipeline, its
 * sequences and the groups that it communicates with. The compiler and the run both start from here.
 */
#ifndef ORTH_PARALLEL_PARTITION_H
#define ORTH_PARALLEL_PARTITION_H

#include "model/blocks.h"
#include "parallel/layout.h"
#include "parallel/mesh.h"
#include "parallel/pipeline/schedule.h"
#include "program/check/check_flow.h"

/* Of a whole run. */
typedef struct {
    orth_layout layout;
    orth_mesh mesh;
    orth_schedule schedule;     /* of data-parallel rank 0; its chunks are those of all */
    int64_t *shares;            /* [dp] sequences, where they are uneven (orth_layout_is_uneven); else NULL */
    orth_schedule *schedules;   /* [dp] with shares: they differ in their micro-batches */
    int32_t *first_layer;       /* [num_chunks + 1] */
    int32_t kv_ranks;           /* tensor-parallel ranks that hold the same key and value heads */
    bool tied;
    int32_t kv_heads;
    orth_arena arena;
} orth_partition;

/* Checks the layout (ORTH_ERR_ARG in words) and cuts the model. Layers cost their FLOPs; embedding
 * and head count. */
orth_status orth_partition_make(orth_ctx *ctx, orth_partition *out, const orth_layout *layout, const orth_model_config *c);
void orth_partition_release(orth_ctx *ctx, orth_partition *s);

/* The same cut alone: first_layer [num_chunks + 1]. ORTH_ERR_ARG, ORTH_ERR_NOMEM. */
orth_status orth_partition_cut(orth_ctx *ctx, const orth_layout *layout, const orth_model_config *c, int num_chunks, int32_t *first_layer);

/* Fills the fields of `shape` that depend on the rank: mesh, chunks, actions, micro-batches, rows.
 * chunks [num_chunks of the schedule] is the caller's memory. */
void orth_partition_shape(const orth_partition *s, int rank, orth_model_shape *shape, orth_chunk *chunks);

/* Global ranks of a group of `rank`, in canonical order, into ranks [num_ranks of the mesh]; returns how
 * many. 0 or 1: the rank does not communicate there. */
int orth_partition_group(const orth_partition *s, int rank, orth_group group, int *ranks);

/* Size of each group of `rank` and its position there, as orth_partition_group lists them, but without a list. */
orth_rank_groups orth_partition_groups(const orth_partition *s, int rank);

/* Global index of local sequence i (0 .. num_micro_batches*micro_batch - 1) of the step that starts at
 * sequence `first` of the run. A shard group has a contiguous run; in it each rank has a contiguous run where
 * gradients pile up locally, a strided one where each micro-batch is reduced at once (ZeRO 2 and 3). */
int64_t orth_partition_sequence(const orth_partition *s, int rank, int64_t first, int64_t i);

/* The sequences that update `update` of that step takes together, on all data-parallel ranks: run i of num_runs, each
 * [*begin, *begin + *count). One run of all sequences, unless the schedule is asynchronous. */
int orth_partition_update_runs(const orth_partition *s);
void orth_partition_update_run(const orth_partition *s, int64_t first, int update, int i, int64_t *begin, int64_t *count);

#endif
