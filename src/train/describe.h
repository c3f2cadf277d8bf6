/* describe.h -- the program of a run file without its data: for plan, explain and bench. */
#ifndef ORTH_TRAIN_DESCRIBE_H
#define ORTH_TRAIN_DESCRIBE_H

#include "plan/cluster.h"
#include "plan/host.h"
#include "plan/pareto.h"
#include "train/setup.h"

/* Vocabulary that the model would have: model.vocab or the preset's, else that of the tokenizer or the
 * prepared data that the run file names, else what a tokenizer trained for it would have. */
#define ORTH_AUTO_VOCAB 4096
orth_status orth_describe_model(orth_ctx *ctx, const orth_config *cfg, orth_model_config *out);
/* What train says of prepared data with more tokens than the model has: ORTH_ERR_ARG; ORTH_ERR_DATA, ORTH_ERR_IO of the data set. */
orth_status orth_describe_check_vocab(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model);
/* Whether it is that of a tokenizer not trained yet, ORTH_AUTO_VOCAB: nothing that is here says another. */
bool orth_describe_assumes_vocab(const orth_config *cfg);
/* A warning where that is assumed because the data are not there. */
void orth_describe_warn_assumed(orth_ctx *ctx, const orth_config *cfg);

/* Model and compiled program of one training step of `rank`, with the layout that its names live in. */
orth_status orth_describe_step(orth_ctx *ctx, const orth_config *cfg, int rank, orth_model_config *model,
                               orth_partition *partition, orth_compiled *compiled);

/* Whether the data of the run file will have a held-out part, on which a run evaluates. Of text that is not prepared yet
 * data.valid_fraction says so. */
orth_status orth_describe_evaluates(orth_ctx *ctx, const orth_config *cfg, bool *out);

/* Steps of the whole run: train.steps where it is given, or those of train.epochs where the data are prepared; else -1 and *why, a constant, in words. */
orth_status orth_describe_steps(orth_ctx *ctx, const orth_config *cfg, int64_t *steps, const char **why);

/* How often train.steps, or for how many steps train.epochs, see the data of the run file, as a line; *out: heap memory,
 * or NULL where data.path is not set or not all prepared. */
orth_status orth_describe_epochs(orth_ctx *ctx, const orth_config *cfg, char **out);

/* What each of num_ranks ranks that share the threads of ctx->pool has of their measured peaks: an equal part. Takes
 * about a fifth of a second. ORTH_ERR_NOMEM. */
orth_status orth_machine_rates(orth_ctx *ctx, const orth_config *cfg, int num_ranks, orth_rates *out);
/* Of files in memory.offload_dir, what all ranks have together. What orth_probe_file returns. */
orth_status orth_machine_file_rates(orth_ctx *ctx, const orth_config *cfg, orth_file_rates *out);

/* The description that run.hardware names, of a machine with measured times (plan/host.h); *given: it does name one. ORTH_ERR_ARG, ORTH_ERR_IO. */
orth_status orth_describe_host(orth_ctx *ctx, const orth_config *cfg, orth_hardware *out, bool *given);
/* cfg for a plan on such a machine: its threads and instruction set, which ctx gets, and its memory, where the run file does not say. */
orth_status orth_describe_on_host(orth_ctx *ctx, const orth_config *cfg, const orth_hardware *h, orth_config *out);

/* The plan of a run, without the time of a step (orth_run_plan_price). evaluates: see orth_rank_programs. model outlives *p.
 * ORTH_ERR_ARG for an invalid layout, in words. Whether it fits is for the caller to ask. */
orth_status orth_describe_plan(orth_ctx *ctx, orth_run_plan *p, const orth_config *cfg, const orth_model_config *model,
                               bool evaluates);
/* The same of recomputation auto that no limit has room for: the plan with as little kept as possible, instead of ORTH_ERR_NOMEM. */
orth_status orth_describe_least_plan(orth_ctx *ctx, orth_run_plan *p, const orth_config *cfg, const orth_model_config *model,
                                     bool evaluates);

/* cfg for described devices, each of which has a rank: what one holds is the limit for recomputation auto that has none,
 * and what puts a checkpoint together in the memory of hosts is not counted. */
orth_config orth_describe_on_devices(const orth_config *cfg, const orth_hardware *h);

/* The plan from the most memory to the least, whatever memory.recompute says. */
orth_status orth_describe_pareto(orth_ctx *ctx, orth_pareto *p, const orth_config *cfg, const orth_model_config *model, bool evaluates,
                                 orth_pareto_price_fn price, void *user);

/* What reducing, and gathering, micro-batch by micro-batch costs (ZeRO 2 and 3), in words and bytes beside those of
 * ZeRO 1; *out: heap memory, or NULL where there is nothing to say. */
orth_status orth_describe_zero_cost(orth_ctx *ctx, const orth_run_plan *p, const orth_config *cfg,
                                    const orth_model_config *model, char **out);

#endif
