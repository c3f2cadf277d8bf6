/* emit.h -- what the functions of schedules.def share. Internal to this folder. */
#ifndef ORTH_PARALLEL_PIPELINE_EMIT_H
#define ORTH_PARALLEL_PIPELINE_EMIT_H

#include "parallel/pipeline/action.h"

/* Lists under construction: orth_schedule_make has room for all actions that p, v and m can need. */
typedef struct {
    int32_t num_ranks, num_virtual, num_micro_batches;  /* p, v, m */
    int32_t *chunk_rank;     /* [p*v], filled with chunk % p; a schedule with another placement changes it */
    orth_action **actions;   /* [p], each with room for 3*v*m */
    int32_t *num_actions;    /* [p] */
} orth_emitter;

static inline void orth_emit(orth_emitter *e, int rank, orth_action_kind kind, int chunk, int micro_batch)
{
    e->actions[rank][e->num_actions[rank]++] = (orth_action){kind, chunk, micro_batch, 0};
}

/* ORTH_ERR_NOMEM where scratch memory is needed. */
#define SCHEDULE(id, ...) orth_status orth_emit_##id(orth_ctx *ctx, orth_emitter *e);
#include "parallel/pipeline/schedules.def"
#undef SCHEDULE

/* "pipeline=" and a name, in messages. */
#define ORTH_SCHEDULE_PLACE_MAX 256

/* orth_schedule_check, with `place` ("pipeline=zb-v", or the path of a file) in front of every message and
 * `code` as its status. `lists` are the lists of s, to write: given, the versions are set there instead of
 * checked. What is allocated is in proportion to the number of actions, whatever the sizes claim. */
orth_status orth_schedule_check_as(orth_ctx *ctx, const orth_schedule *s, orth_status code, const char *place,
                                   orth_action *const *lists);

#endif
