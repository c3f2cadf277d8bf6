/* route.h -- the path of a gradient, as a table: from the instructions that make it to the update of its weight.
 *
 * A route is made once for each use of a weight, from its row in weights.def and the layout. The stages follow each other:
 * what one of them completes is the input of the next. Emission follows the table (accumulate.c, follow.c, bucket.c, uneven_shares.c,
 * update.c), and `explain --gradient` prints it (route_words.c). orth_route_make alone knows what ZeRO, context parallelism,
 * shares, asynchrony, replicas, owners and tied weights mean for a gradient.
 *
 *     dense weight, dp=4                            the same, zero=2 cp=2
 *     STEP    TREE        whole, persistent         SEQUENCE     TREE           whole, transient
 *     STEP    REDUCE dp   whole, in a bucket        SEQUENCE     REDUCE cp      whole
 *     UPDATE  OPTIMIZE    whole                     MICRO_BATCH  TREE           whole, transient
 *                                                   MICRO_BATCH  REDUCE dp      shard, in a bucket
 *                                                   STEP         TREE           shard, persistent
 *                                                   UPDATE       OPTIMIZE       shard
 *                                                   UPDATE       GATHER_WEIGHT  whole
 *
 * A tied weight has two uses. Each has a tree of its own, so that no schedule changes the order of its sums; they are joined
 * when both are complete. The route of the use that ends in the update is the weight's.
 */
#ifndef ORTH_PROGRAM_ROUTE_H
#define ORTH_PROGRAM_ROUTE_H

#include "base/text.h"
#include "program/lower/compile.h"

/* What a stage completes one value for. 0 is no moment. */
typedef enum {
    ORTH_MOMENT_SEQUENCE = 1, ORTH_MOMENT_MICRO_BATCH,
    ORTH_MOMENT_STEP,          /* all micro-batches that one update sums */
    ORTH_MOMENT_UPDATE,        /* after the last backward of the step; update.c and uneven_shares.c emit these stages */
    ORTH_MOMENT_USE            /* weights: before each block that reads them */
} orth_moment;
#define ORTH_NUM_SPANS (ORTH_MOMENT_STEP + 1) /* moments at which a tree may be complete */

typedef enum {
    ORTH_ROUTE_TREE = 1,       /* added up in the aligned tree, or in order (gradtree.h) */
    ORTH_ROUTE_REDUCE,         /* summed over a group: all_reduce, or reduce_scatter where whole becomes shard */
    ORTH_ROUTE_WIDEN,          /* what was reduced in bf16 or int8 becomes fp32 again */
    ORTH_ROUTE_EXCHANGE,       /* uneven shares: slices of the nodes of all ranks are exchanged and added (uneven_shares.c) */
    ORTH_ROUTE_GATHER,         /* the slices of a gradient become whole */
    ORTH_ROUTE_JOIN,           /* the other use of a tied weight is added: its sum on this rank, or over EMBED */
    ORTH_ROUTE_GIVE,           /* this sum is added to that of the other use */
    ORTH_ROUTE_OPTIMIZE,       /* gradient norm, clipping, optimizer */
    ORTH_ROUTE_REST,           /* instead of all stages before: the parameter is frozen, and no gradient is made */
    ORTH_ROUTE_GATHER_WEIGHT   /* updated shards of the weight become whole */
} orth_route_op;

typedef enum { ORTH_EXTENT_WHOLE = 1, ORTH_EXTENT_SHARD, ORTH_EXTENT_SLICE } orth_extent;
typedef enum { ORTH_KEEP_TRANSIENT = 1, ORTH_KEEP_PERSISTENT } orth_keep;

/* How a stage that communicates is called. */
typedef enum {
    ORTH_TRAVELS_ALONE = 1,    /* a call for each gradient */
    ORTH_TRAVELS_IN_BUCKET,    /* with others until comm.bucket_bytes are full */
    ORTH_TRAVELS_TOGETHER      /* with those of the bucket that it came in */
} orth_travels;

typedef struct {
    orth_moment when;
    orth_route_op op;
    orth_group over;           /* ORTH_NUM_GROUPS: no other rank takes part */
    orth_extent extent;        /* of what the stage completes */
    orth_keep keep;            /* trees: of the partial sums */
    orth_travels travels;
    bool lag;                  /* goes on when the next stage of its kind has been started: beside computation */
    /* Trees. A leaf is what the stage before completes, or a part of a sequence as the backward pass makes it. */
    int64_t leaves;            /* of a complete node; 0: the rank completes none (uneven shares) */
    int64_t first_leaf;        /* of this rank; 0 unless shares are uneven */
    int64_t per_sequence;      /* leaves of a sequence; 0: a leaf is several sequences */
    bool running;              /* one sum, to which leaves are added in their order (gradtree.h): fast mode */
} orth_route_stage;

#define ORTH_ROUTE_MAX 11

/* num 0: this rank makes no such gradient. */
typedef struct {
    int num;
    orth_route_stage stage[ORTH_ROUTE_MAX];
} orth_route;

/* ZeRO at this stage over a shard group of `ranks`: whether each rank updates a shard of each weight, and whether the gradient
 * of each micro-batch is reduced by itself, so that ranks take micro-batches in turns. */
bool orth_route_is_sharded(int64_t zero, int64_t ranks);
bool orth_route_takes_turns(int64_t zero, int64_t ranks);

/* Whether embedding and head are one weight, whose first use is the embedding. */
bool orth_route_is_tied(const orth_compile_spec *spec);

/* The route of the gradient of parameter `index`, which the rank holds. second: of the head, if the weight is tied. */
void orth_route_make(const orth_compile_spec *spec, int64_t index, bool second, orth_route *out);

/* The route of the loss, whose leaves are the sequences' losses: the same tree, without buckets, and not sharded. */
void orth_route_make_loss(const orth_compile_spec *spec, orth_route *out);

/* ZeRO 3: whether the ranks keep shards of the parameter, which are gathered for each use. */
bool orth_route_gathers_for_use(const orth_compile_spec *spec, int64_t index);
/* Whether the rank updates, or of a frozen parameter keeps, a shard. */
bool orth_route_keeps_shard(const orth_route *r);

/* The first stage with this op; NULL: there is none. */
const orth_route_stage *orth_route_find(const orth_route *r, orth_route_op op);

/* ---- route_words.c ---- */

/* A line for each stage of each use that this rank makes a gradient of. The graphs of `spec` have their backward nodes. */
void orth_route_print(orth_ctx *ctx, orth_text *t, const orth_compile_spec *spec, int64_t index);

#endif
