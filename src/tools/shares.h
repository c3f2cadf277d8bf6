/* shares.h -- parts of the batch for the data-parallel ranks of a cluster with devices of several kinds (plan/mixed.h).
 *
 *   step of each kind of devices alone --in proportion--> shares --exact plans of these and their neighbours--> the fastest
 *
 * As Poplar does (Zhang et al., "Poplar: Efficient Scaling of Distributed DNN Training on Heterogeneous GPU Clusters", arXiv:2408.12596): what
 * each kind of device can do decides how much of the batch its ranks get. Here ranks differ in how many micro-batches they have. Data-parallel
 * ranks on the same groups get the same.
 */
#ifndef ORTH_TOOLS_SHARES_H
#define ORTH_TOOLS_SHARES_H

#include "plan/mixed.h"
#include "tools/price.h"

#define ORTH_SHARES_LIST_MAX 512

typedef struct {
    orth_price equal, proposed;      /* proposed: the fastest that was found; of equal shares, if none is faster */
    char list[ORTH_SHARES_LIST_MAX]; /* parallel.dp_share, "[3, 3, 1, 1]"; "": equal */
    char why_not[ORTH_MESSAGE_MAX];  /* the rule that refuses other shares; "": there is none */
    int num_plans;
    struct {
        int64_t dp;
        orth_price price;            /* of the run on this group alone; refused: there is none, and why */
    } alone[ORTH_MAX_DEVICE_GROUPS];
} orth_shares;

/* where: of a mixed cluster. ORTH_ERR_ARG where the run itself is refused; ORTH_ERR_NOMEM, and what orth_ctx_check_stop returns. */
orth_status orth_shares_find(orth_ctx *ctx, const orth_config *cfg, orth_place_to_run *where, orth_shares *out);

/* The deal in proportion, without a plan, for a search: list as in orth_shares. slower [groups]: how many times as long as on others computing takes on the
 * devices of a group. */
orth_status orth_shares_guess(orth_ctx *ctx, const orth_config *cfg, orth_place_to_run *where, const double *slower, char list[ORTH_SHARES_LIST_MAX]);

/* Steps side by side, and what each group is worth. Heap memory; NULL with the error recorded. */
char *orth_shares_text(orth_ctx *ctx, const orth_shares *s, const orth_mixed *m);
/* The same as a JSON object. */
char *orth_shares_json(orth_ctx *ctx, const orth_shares *s, const orth_mixed *m);

#endif
