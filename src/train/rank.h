/* rank.h -- what the files of one rank of a run know of each other; not for the rest of the program.
 *
 *   rank.c       builds its program, fills its weights, steps, evaluates
 *   rank_save.c  checkpoints: back into the rank, and handed in to rank 0
 *   rank_memory.c  memory.json
 */
#ifndef ORTH_TRAIN_RANK_H
#define ORTH_TRAIN_RANK_H

#include "base/progress.h"
#include "train/run.h"
#include "train/saver.h"
#include "train/trainer.h"

typedef struct {
    orth_run *run;
    orth_world *world;
    orth_comm *all;                  /* all ranks; NULL alone */
    orth_comm *comms[ORTH_NUM_GROUPS];
    int rank;
    orth_chunk *chunks;
    orth_model_shape shape;
    orth_trainer trainer;
    bool has_trainer;
    orth_evaluator evaluator;
    bool has_evaluator;
    orth_loader *loader;
    orth_saver *saver;               /* rank 0 of a run that is not watched; else NULL */
    int64_t *indices;                /* [sequences of a step on this rank] */
    int64_t *weights;                /* [updates of a step] targets of each, on all ranks */
    int64_t *clock;                  /* a clock (program.h) of the step of the timeline; NULL: none is asked for */
    int64_t steps_done, tokens_done;
    int signal;                      /* that some rank was sent; all ranks know it after the same step */
    orth_step_result result;         /* of the last step */
    bool sound;                      /* the loss that was computed last, of a step or an evaluation, is finite */
    size_t resident_peak;            /* of the processes of all ranks together, each at its own highest */
} rank_state;

/* What the run is, as events, before its first step: model, data, ranks, plan, folder. Of rank 0. */
orth_status rank_banner(orth_ctx *ctx, orth_run *r, int64_t steps_done);
/* One rank of `run` (an orth_run), from its weights to its end. Collective. */
orth_status rank_main(orth_ctx *ctx, orth_world *world, void *run);

static inline orth_status rank_barrier(orth_ctx *ctx, const rank_state *s)
{
    orth_progress_part(ctx); /* who left a call out waits here, later than who misses it */
    return s->all ? orth_barrier(ctx, s->all) : ORTH_OK;
}

/* Weights, moments and counters of the checkpoint that the run continues. */
orth_status rank_resume(orth_ctx *ctx, rank_state *s);

/* Saves a checkpoint of the steps done, or begins to. Collective; rank 0 writes. */
orth_status rank_save(orth_ctx *ctx, rank_state *s);

/* Rank 0 writes memory.json: what all ranks have used, beside what was planned. Collective. */
orth_status rank_write_memory(orth_ctx *ctx, rank_state *s);

/* The fetch of orth_saver_source; rank: a rank_state. */
orth_status rank_fetch(orth_ctx *ctx, void *rank, orth_bind bind, int64_t index, float *chunk, float *whole);

/* Says that the last save is done, or returns its error; `wait`: waits for it. Nothing to do on other ranks. */
orth_status rank_report_saved(orth_ctx *ctx, const rank_state *s, bool wait);

#endif
