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
 * All ranks of a stage choose alike, and each stage by itself, against the same limit for a rank. Where the limit is one for all ranks
 * together (threads of one machine), the limit for a rank is the highest with which their sum fits.
 */
#ifndef ORTH_PLAN_RECOMPUTE_AUTO_H
#define ORTH_PLAN_RECOMPUTE_AUTO_H

#include "plan/programs.h"

typedef struct {
    bool fits;                  /* false: the choice is the one with the smallest largest rank of each stage */
    size_t worst_bytes;         /* of the rank that needs the most; of a run that offloads, of its device's memory, */
    int worst_rank;             /* this one */
    size_t total_bytes;         /* of all ranks */
    double added_flops;         /* of all ranks, in a step, beside those of a run that makes nothing again */
} orth_again_result;

typedef struct orth_again_search orth_again_search;

/* What spec points to outlives *out; its recomputation does not count. ORTH_ERR_ARG, ORTH_ERR_NOMEM. */
orth_status orth_again_search_make(orth_ctx *ctx, orth_again_search **out, const orth_programs_spec *spec);
void orth_again_search_release(orth_ctx *ctx, orth_again_search *s);

/* rank_limit, total_limit: as in orth_programs_spec. chosen [layers of the model]: orth_recompute.chosen. What was compiled for one
 * limit is known for the next. ORTH_ERR_ARG, ORTH_ERR_NOMEM; that nothing fits is no error. */
orth_status orth_again_choose(orth_ctx *ctx, orth_again_search *s, size_t rank_limit, size_t total_limit, uint64_t *chosen,
                              orth_again_result *out);

/* Puts the choice for spec's limits in the place of AUTO, *words: what orth_again_text says of it, both in `arena`. Else *words is
 * NULL. ORTH_ERR_NOMEM with the smallest memory that is possible where that is above a limit, or with spec->least_if_none that choice;
 * ORTH_ERR_ARG. */
orth_status orth_again_resolve(orth_ctx *ctx, orth_arena *arena, orth_programs_spec *spec, const char **words);

/* "layers 0-3: attention.norm, attention; layer 4: nothing": what is made again. Heap memory; NULL with the error recorded. */
char *orth_again_text(orth_ctx *ctx, const orth_graph *layer, const uint64_t *chosen, int32_t num_layers);

#endif
