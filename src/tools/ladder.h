/* ladder.h -- changes of a run that make it need less memory, by what they cost in time: for a run that does not fit.
 *
 * What is compared is the memory that is fullest, as a share of its limit: that of all ranks together, of a device, of the host, or files. A
 * change fits when no memory is too small.
 *
 * Only changes that compute the same numbers are looked at: what is recomputed, chunks of feed-forward and head, the micro-batch, ZeRO, what is kept of gathered parameters,
 * sequence parallelism, where activations are while nobody reads them, the copy for checkpoints; where offload itself fills the host's memory or
 * the files, another place for what is there. Each is planned and priced as a run of its own (tools/price.h). What fast numerics
 * would save is listed apart.
 */
#ifndef ORTH_TOOLS_LADDER_H
#define ORTH_TOOLS_LADDER_H

#include "tools/price.h"

#define ORTH_LADDER_WORDS_MAX 400

/* The run with these key=value words. */
typedef struct {
    char words[ORTH_LADDER_WORDS_MAX];
    size_t bytes;            /* what is compared with the limit */
    size_t over;             /* by which limits are exceeded, all added up; 0: it fits */
    int64_t saved_bytes;
    double step_s, added_s;  /* added may be negative */
    bool fits;
} orth_rung;

#define ORTH_LADDER_RUNGS_MAX 48
#define ORTH_LADDER_BUDGETS (ORTH_NUM_BUDGETS + 1) /* and that of a rank */
typedef struct {
    size_t bytes, limit_bytes, over; /* of the run as it is; what it is compared with; as of a rung */
    orth_budget budgets[ORTH_LADDER_BUDGETS]; /* of the run as it is; limit 0: no limit */
    int compared;                    /* which of them `bytes` are */
    double step_s;
    bool fits;
    orth_rung single[ORTH_LADDER_RUNGS_MAX];   /* [num_single] one change each that saves bytes, the cheapest first */
    int num_single;
    /* [num_together] changes made one after the other, the one that saves most for its time first, and that may replace an earlier one of the same key,
     * until the run fits or nothing saves more, nor with one of them made no more; then those in place of an earlier one with which it is faster. 0 where a single change suffices in less time. */
    orth_rung together[ORTH_LADDER_RUNGS_MAX];
    int num_together;
    bool too_long_for_auto;    /* memory.recompute=auto was left out: it plans hundreds of runs, and this one is long */
    bool cut_short;            /* the time was up before all changes were tried */
    bool none_tried;           /* for the same reason, of a run that has it itself */
    orth_rung fast;            /* numerics.mode=fast, which changes the last bits; saved_bytes 0: saves nothing, or is so already */
} orth_ladder;

/* rank_limit: bytes for each rank; 0: what there is (memory.limit and limit_*, recompute_limit of auto, or on a cluster a device). ORTH_ERR_ARG where the run itself is refused,
 * seconds: of processor time; after so many no further change is tried; 0: all are. ORTH_ERR_NOMEM, and what orth_ctx_check_stop returns. */
orth_status orth_ladder_find(orth_ctx *ctx, const orth_config *cfg, orth_place_to_run *where, size_t rank_limit, double seconds, orth_ladder *out);
/* Seconds of who was not asked for changes, and says them beside something else. */
#define ORTH_LADDER_SECONDS 10.0

/* Heap memory; NULL with the error recorded. */
char *orth_ladder_text(orth_ctx *ctx, const orth_ladder *l);
char *orth_ladder_json(orth_ctx *ctx, const orth_ladder *l);
/* Of a run that does not fit, the nearest changes with which it does, in a few lines. */
char *orth_ladder_nearest_text(orth_ctx *ctx, const orth_ladder *l);
#endif
