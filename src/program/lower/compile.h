/* compile.h -- blocks and a schedule become one flat program.
 *
 * Gradients are accumulated in the aligned tree over the sequences of the global batch
 * (tensor/parts.h), whatever the micro-batch: each micro-batch is cut into aligned runs of
 * sequences; the kernel that makes the gradient of a run also adds the finished neighbours to it,
 * in the tree's order (`addends`). So piling up costs no passes of its own and at most
 * log2(micro-batches) partial buffers. In fast mode there is one, to which each run is added as it comes.
 */
#ifndef ORTH_PROGRAM_LOWER_COMPILE_H
#define ORTH_PROGRAM_LOWER_COMPILE_H

#include "program/ir/action.h"
#include "program/ir/comm_policy.h"
#include "program/ir/param.h"
#include "program/ir/program.h"
#include "program/lower/recompute.h"

typedef enum { ORTH_MODE_TRAIN = 0, ORTH_MODE_EVAL, ORTH_MODE_DECODE } orth_mode;

/* A block graph and which parameters of the registry its slots are. */
typedef struct {
    orth_block_kind kind;
    orth_graph *graph;
    const int64_t *param_index;   /* [graph->num_params] */
    const bool *dead;             /* [graph->num_nodes] backward nodes that only frozen parameters would need (frozen.h); NULL: none */
    bool idle;                    /* neither it nor a block before it has a parameter that is trained: it has no backward */
} orth_block;

/* A run of layers that this rank holds: one chunk of the pipeline. */
typedef struct {
    int32_t chunk;               /* number in model order */
    int32_t first_layer, num_layers;
    bool embed, head;            /* it begins with the embedding; it ends with final norm and loss */
    int32_t prev, next;          /* positions on the pipeline axis of the ranks before and after it */
} orth_chunk;

/* Where the rank stands on each axis. All zero: a rank alone. */
typedef struct {
    int32_t size[ORTH_NUM_GROUPS], pos[ORTH_NUM_GROUPS];  /* size 0 counts as 1 */
    int32_t zero;                                     /* ZeRO stage over the shard axis of dp: 0..3 */
    bool owner;                                       /* as ZeRO 1, but dp rank 0 has all that is dealt out */
    bool whole_layers;                                /* ZeRO deals out layers, not blocks of parameters (shard.h) */
    int64_t keep_whole;                               /* ZeRO 3: parameters of up to this many elements are whole */
    bool sequence_parallel;                           /* norms, residuals and dropout split over TP */
    int32_t cp_heads;                                 /* ranks of CP that trade heads against tokens; 0, 1: none */
    bool cp_ring;                                     /* keys and values travel block by block */
    bool fast;                                        /* numerics.mode=fast: a gradient is one running sum, and is summed over
                                                         CP when it is complete (route.h) */
} orth_place_in_mesh;

/* What the optimizer keeps. All zero: fp32. */
typedef struct {
    orth_dtype master;               /* of matrices: F32, or the compute type, of which then no copy is kept */
    orth_dtype moments;              /* F32 or BF16; U8: of some weights in 8 bits (orth_param_desc), else F32 */
    bool stochastic;                 /* what is kept in bf16 is rounded at random (kernels/round.h) */
} orth_state_types;

/* Where something is kept: where kernels work, or in another space. What kernels do not read is updated there (offload.c); of what they
 * do, they read and write copies (far.c). params and gradients need optimizer, params weights that are updated once a step. */
typedef enum { ORTH_TIER_NONE = 0, ORTH_TIER_HOST, ORTH_TIER_FILE } orth_tier;
static inline orth_space orth_tier_space(orth_tier t)
{
    return t == ORTH_TIER_FILE ? ORTH_SPACE_FILE : ORTH_SPACE_HOST;
}
typedef struct {
    orth_tier optimizer;             /* moments, and masters beside copies */
    double stays;                    /* about this share of them does, by elements of whole parameters; 0 to 1 */
    orth_tier params;                /* what kernels read of parameters; evaluation, too */
    orth_tier gradients;             /* sums of gradients that last until the update */
    int64_t sub_group;               /* elements of a parameter that are updated at once, where they are elsewhere */
    orth_tier activations;           /* while nobody reads them (passes/offload_activations.h) */
    int64_t min_bytes;               /* smaller ones stay */
} orth_offload;

typedef struct {
    orth_mode mode;
    orth_block embed, final, head;   /* head: a chunk of head_rows rows */
    const orth_block *layers;        /* [num_layers]; may share one graph */
    int32_t num_layers;
    orth_place_in_mesh mesh;
    orth_comm_policy comm;
    orth_recompute recompute;        /* training */
    const orth_chunk *chunks;        /* [num_chunks]; NULL: the whole model */
    int32_t num_chunks;
    const orth_action *actions;      /* [num_actions] of this rank; NULL: F and B of each micro-batch in turn */
    int32_t num_actions;
    bool async;                      /* PipeDream: parameters are updated after each backward (update.c) */
    const orth_param_desc *params;   /* [num_params], the registry */
    int64_t num_params;
    orth_dtype compute;              /* type of activations and of matrix copies */
    orth_state_types types;
    orth_space space;                /* where kernels work; with offload not the host's memory */
    orth_offload offload;
    int32_t num_micro_batches;
    const int64_t *shares;           /* [DP ranks] sequences of each, where they combine gradients node by node
                                        (uneven_shares.c); NULL: what a rank adds up is one node */
    int32_t num_seqs, seq_len;       /* B, T of a micro-batch; T: the tokens of a sequence that are on this rank, */
    int32_t token_parts;             /* in this many canonical parts */
    int32_t head_chunks;             /* chunks of a sequence: a power of two that divides the leaves */
    int32_t head_leaves;             /* canonical token parts of the head's weight gradient, of a sequence here */
    int32_t chunk_rows, chunk_parts; /* rows of a chunk of the feed-forward, and canonical parts of a sequence of which it has some: 1
                                        where it has whole sequences; rows 0: it is not computed in chunks */
    orth_op optimizer;               /* ORTH_OP_adamw, adam or sgd */
    bool nesterov, no_moments;       /* of sgd: the update keeps nothing, as there is no momentum */
    orth_delayed_scaling delayed;    /* of the operands of products (delayed_scales.c) */
    int64_t cache_rows;              /* decoding: S of the caches */
    bool keep_packed;                /* weights are packed once for the products of a step (keep_packed.h) */
    bool external_params;            /* weights and caches are another program's */
} orth_compile_spec;

/* held [num_params], all false: becomes true for the parameters of the chunks of this rank. */
void orth_compile_held(const orth_compile_spec *spec, bool *held);

/* Appends the step to an initialised program: persistent buffers, instructions. No pass has seen it yet (program/compile.h).
 * ORTH_ERR_NOMEM, ORTH_ERR_INTERNAL. */
orth_status orth_lower(orth_ctx *ctx, const orth_compile_spec *spec, orth_program *out);

#endif
