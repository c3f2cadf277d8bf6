/* layout.h -- which layouts are valid, and why the others are not: one list of rules for train, plan and
 * search. Plain structs, filled by the callers from options, presets or a search.
 */
#ifndef ORTH_PARALLEL_LAYOUT_H
#define ORTH_PARALLEL_LAYOUT_H

#include "base/ctx.h"

typedef enum {
    ORTH_CP_ALL_GATHER = 0, /* keys and values gathered; zigzag split */
    ORTH_CP_RING,          /* each rank sends its blocks of keys and values to those that see them; zigzag split */
    ORTH_CP_ALL_TO_ALL     /* heads against tokens (Ulysses) */
} orth_cp_kind;

typedef struct {
    int64_t dp, tp, pp, cp;          /* ranks along each axis */
    int64_t num_ranks;               /* ranks there are; 0: as many as the layout needs */
    int64_t zero;                    /* stage, 0 .. 3 */
    bool owner;                      /* dp rank 0 alone has the optimizer state and updates */
    int64_t shard_group;             /* 0: all of dp */
    int64_t keep_whole;              /* zero 3: parameters of up to this many elements on a rank are not gathered */
    bool whole_layers;               /* zero: what is shared out are layers, each with one owner */
    bool sequence_parallel;
    const char *order;               /* of the mesh (mesh.h); NULL: the default */
    orth_cp_kind cp_kind;
    const char *pipeline;            /* name of a schedule, or file:PATH */
    int64_t virtual_stages;
    const double *stage_layers;      /* layers per chunk by hand; NULL: even_stages, or by cost */
    int64_t num_stage_layers;
    bool even_stages;
    int64_t global_batch, micro_batch, seq_len;
    const double *dp_share;          /* [num_dp_share] parts of the batch of the dp ranks, in proportion; NULL: equal */
    int64_t num_dp_share;
    bool reproducible;               /* numerics.mode */
    int64_t parts;                   /* numerics.parts; a power of two */
    bool clips;                      /* clip_norm > 0 */
} orth_layout;

/* dp = tp = pp = cp = 1, "1f1b", one sequence of 1 token, parts = 8, reproducible. */
extern const orth_layout orth_layout_defaults;

typedef struct {
    int64_t layers, hidden, heads, kv_heads, ffn, vocab;
    bool tied;
} orth_model_dims;

/* dp * tp * pp * cp. */
int64_t orth_layout_ranks(const orth_layout *l);
/* `parts` of a layout in fast mode: as few as tp and cp split evenly. */
int64_t orth_layout_fast_parts(const orth_layout *l);
/* Sequences, micro-batches of a dp rank (with equal shares: of each). The layout is valid. */
int64_t orth_layout_share(const orth_layout *l, int64_t dp_rank);
int64_t orth_layout_micro_batches(const orth_layout *l, int64_t dp_rank);
/* Whether shares are other than branches of one size of the tree over sequences: dp ranks then have programs of their own, and combine gradients
 * node by node (program/lower/uneven_shares.c). */
bool orth_layout_is_uneven(const orth_layout *l);
/* Whether they do: in fast mode a gradient is one sum. */
bool orth_layout_exchanges_nodes(const orth_layout *l);

/* Whether dp ranks have different parts of the optimizer state: ZeRO, or one owner. */
bool orth_layout_deals_state(const orth_layout *l);

/* The number of the first broken rule that is >= from, with the reason in why[size]; -1: none. Calling with
 * 0, then the last result + 1, and so on, gives all reasons. Later rules may rest on earlier ones (a size of
 * 0, say): rules that cannot be judged because of an earlier one hold. */
int orth_layout_next_broken(const orth_layout *l, const orth_model_dims *d, int from, char *why, size_t size);
int orth_layout_num_rules(void);

/* The first broken rule as an error: ORTH_ERR_ARG, e.g. "tp=3 does not divide heads=32: ...". */
orth_status orth_layout_check(orth_ctx *ctx, const orth_layout *l, const orth_model_dims *d);

#endif
