/* run.h -- a training run: what all its ranks share, opened by one of them before they start.
 *
 * Thread ranks read one orth_run; over MPI each process opens its own, rank 0 first (process.c). Nothing in it
 * changes while ranks run but `metrics`, which is rank 0's: what ranks tell each other goes through
 * communicators, so that there is one way for threads and processes.
 */
#ifndef ORTH_TRAIN_RUN_H
#define ORTH_TRAIN_RUN_H

#include "ckpt/folder.h"
#include "data/data.h"
#include "train/describe.h"
#include "train/eval.h"
#include "train/metrics.h"

/* Asked between steps: the number of a signal that arrived (the run then saves and ends with
 * ORTH_ERR_SIGNAL), 0 if none. */
typedef int (*orth_stop_fn)(void *user);

/* A run that is watched: it ends after step `steps`, without evaluations or checkpoints, and rank 0 calls
 * `show` with whole tensors, one after the other in registry order: after each step the gradients (before
 * clipping; bind GRAD), after the last one also the weights (bind MASTER). An element that no rank handed in
 * has all bits set. An error ends the run. */
typedef struct {
    int64_t steps;
    orth_status (*show)(orth_ctx *ctx, void *user, const orth_model_config *model, const orth_step_result *result,
                        orth_bind bind, const float *values);
    void *user;
} orth_run_watch;

typedef struct {
    const orth_config *cfg;
    const orth_run_watch *watch;    /* NULL: an ordinary run */
    bool resume;                    /* continue; without a valid checkpoint it is an error */
    bool resume_or_start;           /* continue if there is a valid checkpoint, else start */
    bool override;                  /* with resume: learning rate and schedule may be others than the checkpoint's */
    orth_print_sink print;          /* progress and events of rank 0; write NULL: none */
    const char *init_dir;           /* weights to start from; NULL: at random */
    int64_t timeline;               /* step of which timeline.json is written; 0: none */
    orth_comm_fault fault;          /* for tests */
    orth_stop_fn stop;              /* may be NULL */
    void *stop_user;
} orth_run_options;

typedef struct {
    orth_run_options options;
    const orth_config *cfg;
    orth_config resolved;          /* cfg points here where train.epochs became train.steps; shares the strings of the one given */
    orth_world *world;              /* of this process's rank, over MPI; NULL: ranks are threads, or there is one */
    const char *dir;                /* run folder */
    orth_folder_claim folder;       /* dir, locked by the process of rank 0 */
    bool made_dir;                  /* this process did */
    char *checkpoints;              /* dir/checkpoints */
    char *start_from;               /* folder of the weights; NULL: at random */
    int start_lock;                 /* on start_from of --init, whose run may go on; -1: none */
    char *holds;                    /* newest checkpoint of a run that is in the folder already, and is not resumed */
    bool resumed;                   /* start_from is a checkpoint of this run */
    orth_data *data;
    orth_sampler *train, *valid;    /* valid: NULL if nothing is held out */
    orth_model_config model;
    orth_run_plan plan;             /* layout, and what each rank needs */
    int num_ranks;
    int64_t last_step;
    int64_t complete_step;          /* of complete.json when the run was opened, by rank 0's process; -1: there was none */
    orth_metrics metrics;           /* rank 0 writes */
    char *metrics_path;
    orth_bytes tokenizer_json;
    char *tokenizer_config;           /* text of tokenizer_config.json */
    int32_t *token_bytes;           /* [vocab] */
} orth_run;

/* A whole run: opened, trained, closed, as ranks of this process or (comm.backend=mpi) as one rank of many, in
 * which case every process of the run calls it. Errors are those of open and train; over MPI all processes
 * return the same one. */
orth_status orth_run_whole(orth_ctx *ctx, const orth_run_options *options);

/* Opens the data, applies the layout, plans every rank and refuses what does not fit before anything big
 * is allocated; writes run.yaml and plan.json unless this is a later process of a run over MPI. `world`: see
 * orth_run. On failure there is nothing to close. ORTH_ERR_ARG, ORTH_ERR_NOMEM (does not fit), ORTH_ERR_DATA,
 * ORTH_ERR_IO, ORTH_ERR_NOSPACE. */
orth_status orth_run_open(orth_ctx *ctx, orth_run *r, const orth_run_options *options, orth_world *world);
void orth_run_close(orth_ctx *ctx, orth_run *r);

/* Name i of the files that a run keeps in its folder beside checkpoints, run.yaml first; NULL past the last. */
const char *orth_run_file(int i);

/* Trains to train.steps, with evaluations and checkpoints. The checkpoints there are stay valid whatever
 * happens. */
orth_status orth_run_train(orth_ctx *ctx, orth_run *r);

#endif
