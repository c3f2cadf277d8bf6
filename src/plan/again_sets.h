/* again_sets.h -- which sets of forward nodes of a layer are worth making again, and which mixtures of them over several equal layers.
 *
 * A set is worth it if no other set keeps as little for less computing. All sets are looked at: what a layer keeps is made by a
 * handful of its nodes. Mixtures are built layer by layer, and of those with as many layers only the ones that are worth it are
 * extended: as both bytes and costs are sums over layers, no mixture that is worth it is lost.
 */
#ifndef ORTH_PLAN_AGAIN_SETS_H
#define ORTH_PLAN_AGAIN_SETS_H

#include "plan/saved.h"

/* At most; of more, those that spare the least beside their neighbours are left out. */
#define ORTH_AGAIN_SETS 24
#define ORTH_AGAIN_MIXTURES 2048

typedef struct {
    uint64_t marks;          /* orth_recompute.chosen: all that is made again, none that nobody has use for; what else it reads is held */
    uint64_t held;           /* of what a plain run does not keep, what that is */
    orth_again_cost cost;    /* of a micro-batch */
    int64_t spared;          /* bytes of a micro-batch that are not kept, less those that are held */
} orth_again_set;

typedef struct {
    orth_again_cost cost;
    int64_t spared;
    uint16_t layers[ORTH_AGAIN_SETS]; /* how many have each set */
} orth_again_mixture;

/* FLOPs decide, bytes moved between equal FLOPs. <0, 0, >0 */
int orth_again_compare(orth_again_cost a, orth_again_cost b);

/* What making the marked nodes of a layer again costs and spares. joined: its output is needed, too. */
orth_again_set orth_again_set_of(const orth_saved *saved, const orth_graph *layer, const bool *again, bool joined);

/* The sets that are worth it by ascending cost, of which the first is empty, into out[ORTH_AGAIN_SETS]. sequence_parallel: as the
 * mesh has it. */
int32_t orth_again_sets(const orth_saved *saved, const orth_graph *layer, bool sequence_parallel, orth_again_set *out);
/* All different sets in any order into out[most]; 0 if there may be more. */
int32_t orth_again_all_sets(const orth_saved *saved, const orth_graph *layer, bool sequence_parallel, int32_t most,
                            orth_again_set *out);

/* Leaves of num sets those of which no other, for no more computing, leaves as little live at any of the moments, in the rank's last
 * layer, whose backward comes first: sets that spare what only the end of its backward reads may be worth it there. Returns how many. */
int32_t orth_again_sets_of_last(const orth_saved *saved, orth_again_set *sets, int32_t num);

/* Mixtures over num_layers layers by ascending cost, of which the first is empty. ORTH_ERR_NOMEM. */
orth_status orth_again_mixtures(orth_ctx *ctx, orth_arena *arena, const orth_again_set *sets, int32_t num_sets, int32_t num_layers,
                                orth_again_mixture **out, int32_t *num);

#endif
