/* search_space.h -- the layouts that a search looks through, each with its bounds.
 *
 * All tp x cp x pp x dp that make the number of devices, with every micro-batch that divides, virtual stages (up to 8), pipeline schedules, ZeRO stages,
 * sequence parallelism, shard groups (all of dp, or those of a node), kinds of context parallelism, recomputation, and what is kept in the host's memory, as
 * far as the rules of layouts hold: nothing; the optimizer's state; gradients, too; weights, too; each with and without activations.
 * A key that was given on the command line stays as it is, and what a rule between keys refuses (config/rules.c) is left out. Not tried are
 *   naive                a micro-batch at a time, for teaching: it takes about as many times as long as others as there are stages
 *   asynchronous schedules                   they compute other numbers
 *   gpipe of one micro-batch                 it is 1f1b
 *   weights without gradients elsewhere      a step copies as many bytes of gradients instead, and they are twice as large in 16 bits
 *   files                where the hosts have memory enough, which is faster; else each part of what leaves is. Where the base says file, that is what
 *                        offloading means
 */
#ifndef ORTH_TOOLS_SEARCH_SPACE_H
#define ORTH_TOOLS_SEARCH_SPACE_H

#include "config/config.h"
#include "plan/bounds.h"

/* What may be kept off the device. */
typedef enum { ORTH_AWAY_OPTIMIZER = 0, ORTH_AWAY_GRADIENTS, ORTH_AWAY_PARAMS, ORTH_AWAY_ACTIVATIONS, ORTH_NUM_AWAY } orth_away;

/* A layout, and what is known of it. */
typedef struct {
    int32_t tp, cp, pp, dp, shard_group, virtual_stages, micro_batch;
    int32_t costs;              /* which block costs it has */
    int32_t plan;               /* which full plan; -1: none yet */
    int8_t zero, cp_kind, pipeline, recompute;  /* pipeline: row of schedules.def; recompute: of the option */
    bool sequence_parallel;
    int8_t away[ORTH_NUM_AWAY]; /* orth_tier of each */
    bool read;                  /* the bounds are those of costs that were read; else of guessed ones */
    double step_s, bytes;       /* bounds */
} orth_candidate;

typedef struct {
    const orth_config *base;
    orth_model_config model;
    orth_model_shape step;
    orth_hardware hardware, groups; /* bounds are those of the best devices; groups: the cluster as it is */
    orth_layout layout;         /* of the base */
    orth_bounds bounds;
    orth_candidate *list;
    int64_t num, capacity, num_tried;   /* valid ones; tried: before the rules */
    int64_t num_left_out;       /* of those with a valid layout: that a rule between keys refuses */
    int32_t num_costs;          /* read costs are made when they are wanted */
    int64_t host_ranks;         /* of a measured machine: ranks that `hardware` stands for; 0: a described cluster */
    char why[ORTH_MESSAGE_MAX]; /* the first rule that refused a layout; "": none has */
    char why_left_out[ORTH_MESSAGE_MAX];
    const char *no_bounds;      /* whose bounds do not hold, in words: step_s is half of an estimate; NULL: they hold */
} orth_search_space;

/* Lists the candidates, with guessed bounds. base outlives *out. fewer: also layouts for half of the devices, a quarter, and so on.
 * ORTH_ERR_ARG for a model or cluster that does not hold, ORTH_ERR_NOMEM. On failure there is nothing to release. */
orth_status orth_search_space_make(orth_ctx *ctx, orth_search_space *out, const orth_config *base, const orth_model_config *model,
                                   const orth_hardware *hardware, int64_t num_devices, bool fewer);
/* The same for up to num_ranks ranks that share a measured machine (plan/host.h): num_ranks, a half, a quarter, and so on. step_s is then no bound, but
 * half of an estimate at the peaks of the machine. On a cluster it is half of an estimate where optimizer.freeze is given: bounds are those of a model all
 * of which is trained. */
orth_status orth_search_space_make_on_host(orth_ctx *ctx, orth_search_space *out, const orth_config *base, const orth_model_config *model,
                                           const orth_hardware *host, int64_t num_ranks);
void orth_search_space_release(orth_ctx *ctx, orth_search_space *s);

/* Reads the costs that candidate i has, and bounds all candidates that have the same by them. */
orth_status orth_search_space_read(orth_ctx *ctx, orth_search_space *s, int64_t i);

/* How many times as long as on the best devices computing takes on those of each group, at least, in the layout of candidate i. */
orth_status orth_search_space_slower(orth_ctx *ctx, const orth_search_space *s, int64_t i, double slower[ORTH_MAX_DEVICE_GROUPS]);

/* Whether a key was given on the command line: it stays as it is. */
bool orth_search_fixes(const orth_config *cfg, orth_option_id id);

/* ---- candidates ---- */

int64_t orth_candidate_ranks(const orth_candidate *c);
bool orth_candidate_offloads(const orth_candidate *c);
/* Whether a part of the optimizer may stay: no weights and no gradients leave (memory.offload_ratio). */
bool orth_candidate_splits_update(const orth_candidate *c);
/* The key of run files that says what of a class leaves. */
orth_option_id orth_away_key(orth_away a);
/* Its values into a configuration, and those of the base in keys that only some candidates can have: limits of memory that is used, and what stays of the
 * optimizer. */
void orth_candidate_put(const orth_candidate *c, const orth_config *base, orth_config *cfg);
/* The same, and names the search as the place that they are from. */
void orth_candidate_set(const orth_candidate *c, orth_config *cfg);
/* "tp 4, pp 2 (interleaved x 5), dp 8, ZeRO 1, micro-batch 1, recompute full": what is not 1 or none. */
#define ORTH_CANDIDATE_MAX 224
void orth_candidate_text(const orth_candidate *c, char out[ORTH_CANDIDATE_MAX]);

#endif
