/* recompute_auto.h -- memory.recompute=auto: what is made again so that every rank fits a limit, with the least computing.
 *
 * A choice says for each layer of a pipeline stage which set of nodes is made again. Of a stage with few choices all are looked at.
 * Otherwise, as its layers are equal, a choice is how many of them have which set (again_sets.h); the layers with the sets that
 * spare the most come first, because the first layers of a stage wait the longest for their backward; the last layer, whose backward
 * is the first, may have any set, if that does not make too many choices. Behind all of these, in
 * the order of their costs, come choices that keep the inputs of some layers only: groups of 2, 3, ... layers. The order of choices
 * is fixed and does not know the limit. Of a stage the first choice is taken whose largest rank fits, and to know what a rank needs,
 * its program is compiled, placed and checked: the bytes are those of the run. Of a small stage all divisions into groups beside layers
 * with any set are compiled, and one of them is taken if it fits and its program computes less; likewise of policies that have a name,
 * whose FLOPs are known before they are compiled. So of what fits, nothing that is listed
 * computes less, and the bytes never rise when the limit falls. Choices that cannot fit by their lower bound (saved.h) are not
 * compiled.
 *
 * Where a run offloads, a rank's limit is one of its device's memory, and bytes are those of the device. Activations that leave the device
 * are compiled so: what leaves costs no computing, so nothing is made again as long as it is enough to send away. Lower bounds
 * know what is kept, not where it is meanwhile, so every choice may have to be compiled: there are only those with the same set in every
 * layer, and groups, unless all choices together are few instructions.
 *
 * All ranks of a stage choose alike, and each stage by itself, against the same limit for a rank. Other limits are of all ranks together:
 * all memory (threads of one machine), and of a run whose activations leave what is in the host's memory, and in files. A single stage keeps them as it
 * keeps that of a rank. Of several stages each gets an equal limit, the highest with which the sum of all stages fits; a stage that cannot keep
 * that takes the smallest choice. Beside these, every choice with one set in all layers of the stage is looked at in all stages alike. What is looked at
 * does not depend on the limits, and of it that is taken which fits and computes the least. So here, too, bytes never rise when the limit falls.
 */
#ifndef ORTH_PLAN_RECOMPUTE_AUTO_H
#define ORTH_PLAN_RECOMPUTE_AUTO_H

#include "plan/programs.h"

/* What is limited, in bytes: the rank of a stage that needs the most (of a run that offloads, its device's memory); of all ranks together all memory
 * without files; of a run whose activations leave the device, what they have in the host's memory, and in files. (Of others these two limits are not
 * looked at.) */
typedef enum { ORTH_AGAIN_RANK, ORTH_AGAIN_ALL, ORTH_AGAIN_HOST, ORTH_AGAIN_FILES, ORTH_AGAIN_LIMITS } orth_again_limit;
typedef struct {
    size_t of[ORTH_AGAIN_LIMITS]; /* as limits: 0: none */
} orth_again_bytes;

typedef struct {
    bool fits;
    /* Of what does not fit: the limit that no choice keeps, and the least that is possible, which the choice needs: of ranks, or, beside the limit of a rank
     * (or the least), of all together. ORTH_AGAIN_LIMITS: each can be kept, but no choice that was looked at keeps them all. */
    orth_again_limit broken;
    size_t least_bytes;
    size_t worst_bytes;         /* of the rank that needs the most; of a run that offloads, of its device's memory, */
    int worst_rank;             /* this one */
    size_t total_bytes;         /* of all ranks */
    double added_flops;         /* of all ranks, in a step, beside those of a run that makes nothing again */
} orth_again_result;

typedef struct orth_again_search orth_again_search;

/* What spec points to outlives *out; its recomputation does not count. ORTH_ERR_ARG, ORTH_ERR_NOMEM. */
orth_status orth_again_search_make(orth_ctx *ctx, orth_again_search **out, const orth_programs_spec *spec);
void orth_again_search_release(orth_ctx *ctx, orth_again_search *s);

/* chosen [layers of the model]: orth_recompute.chosen. What was compiled for one limit is known for the next. ORTH_ERR_ARG, ORTH_ERR_NOMEM; that
 * nothing fits is no error. */
orth_status orth_again_choose_within(orth_ctx *ctx, orth_again_search *s, const orth_again_bytes *limits, uint64_t *chosen, orth_again_result *out);
/* With limits of these two kinds only. */
orth_status orth_again_choose(orth_ctx *ctx, orth_again_search *s, size_t rank_limit, size_t total_limit, uint64_t *chosen,
                              orth_again_result *out);

/* Puts the choice for spec's limits in the place of AUTO, *words: what orth_again_text says of it, both in `arena`. Else *words is
 * NULL. ORTH_ERR_NOMEM with the smallest memory that is possible where that is above a limit, or with spec->least_if_none that choice;
 * ORTH_ERR_ARG. */
orth_status orth_again_resolve(orth_ctx *ctx, orth_arena *arena, orth_programs_spec *spec, const char **words);

/* "layers 0-3: attention.norm, attention; layer 4: nothing": what is made again. Heap memory; NULL with the error recorded. */
char *orth_again_text(orth_ctx *ctx, const orth_graph *layer, const uint64_t *chosen, int32_t num_layers);

#endif
