/* op.h -- what a kernel is: a function over views, attributes and a workspace.
 *
 * ops.def lists the ops and their meaning. A kernel checks nothing about shapes: the program that calls it was held
 * against the signature of the row (signature.h). It allocates nothing, keeps no state, and gives the same bits for any
 * number of threads in ctx->pool.
 */
#ifndef ORTH_KERNELS_OP_H
#define ORTH_KERNELS_OP_H

#include "base/ctx.h"
#include "kernels/recipe.h"
#include "tensor/tensor.h"

#define ORTH_OP_MAX_IN 32
#define ORTH_OP_MAX_OUT 5
#define ORTH_ATTN_BLOCK 64      /* keys visited at once: part of the numbers, not of a kernel's tuning */
#define ORTH_SITES_PER_LAYER 8  /* dropouts in a layer, at most: each layer counts its sites from this times its number */
#define ORTH_PRODUCTS_PER_LAYER 4 /* at most; each has two gradients that may be rounded at random */
#define ORTH_PRODUCT_TENSORS 3  /* rows of delayed scales that each has: activation, weight, gradient */
#define ORTH_DELAYED_ROWS (ORTH_PRODUCTS_PER_LAYER * ORTH_PRODUCT_TENSORS) /* of a layer */
#define ORTH_NORM_BLOCK 65536   /* about as many elements have their squares summed together */

typedef enum {
#define OP(name, ...) ORTH_OP_##name,
#define COMM(name, ...) ORTH_OP_##name,
#define GRAPH(name, ...) ORTH_OP_##name,
#include "kernels/ops.def"
#undef GRAPH
#undef COMM
#undef OP
    ORTH_NUM_OPS
} orth_op;

/* The kinds of ops. Of COMM rows: their form; GRAPH rows are of none of them. */
typedef enum {
    ORTH_OPS_PRODUCT = 0, ORTH_OPS_PACK, ORTH_OPS_EMBED, ORTH_OPS_NORM, ORTH_OPS_ATTENTION, ORTH_OPS_ROWS,
    ORTH_OPS_DROPOUT, ORTH_OPS_LOSS, ORTH_OPS_QUANT, ORTH_OPS_SUMS, ORTH_OPS_OPTIMIZER, ORTH_OPS_MOVE, ORTH_OPS_COLLECTIVE, ORTH_OPS_MESSAGE,
    ORTH_OPS_GRAPH
} orth_op_family;
orth_op_family orth_op_family_of(orth_op op);

/* The column `role` of ops.def. */
typedef enum { ORTH_ROLE_NONE = 0, ORTH_ROLE_SCORES, ORTH_ROLE_SCORES_BWD, ORTH_ROLE_WEIGHTS } orth_op_role;
orth_op_role orth_op_role_of(orth_op op);

static inline bool orth_op_is_message(orth_op op)
{
    return orth_op_family_of(op) == ORTH_OPS_MESSAGE;
}
static inline bool orth_op_sends(orth_op op)
{
    return op == ORTH_OP_send;
}
static inline bool orth_op_receives(orth_op op)
{
    return orth_op_is_message(op) && !orth_op_sends(op);
}

/* Made with other ranks; nodes of block graphs that become such instructions, too. Everything else has kernels. */
#define ORTH_FIRST_COMM_OP ORTH_OP_all_reduce
static inline bool orth_op_is_comm(orth_op op)
{
    return op >= ORTH_FIRST_COMM_OP;
}

/* Groups of ranks that communicate. TP, CP, DP: those that differ in this coordinate of the mesh only. SHARD and
 * REPLICATE: the two axes that dp is made of, which speak in place of DP where there are replicas of shards. PP and
 * PP_BACK: the stages of a pipeline, one channel for activations and one for gradients, which may overtake
 * each other. EMBED: first and last stage. NORM: all that hold different parts of the gradient. KV: the ranks of TP
 * that hold the same key and value heads. CP_HEADS, CP_TOKENS: where there are more CP ranks than key heads, those
 * among which heads are traded against tokens, and those that then have the same heads and gather keys. Those that sums
 * go over are numbered as they are nested, innermost first. */
typedef enum {
    ORTH_GROUP_TP = 0, ORTH_GROUP_KV, ORTH_GROUP_CP_HEADS, ORTH_GROUP_CP_TOKENS, ORTH_GROUP_CP, ORTH_GROUP_DP,
    ORTH_GROUP_SHARD, ORTH_GROUP_REPLICATE, ORTH_GROUP_PP, ORTH_GROUP_PP_BACK, ORTH_GROUP_EMBED, ORTH_GROUP_NORM,
    ORTH_NUM_GROUPS
} orth_group;
const char *orth_group_name(orth_group g);

typedef enum { ORTH_ACT_NONE = 0, ORTH_ACT_GELU_TANH, ORTH_ACT_GELU_ERF, ORTH_ACT_SILU } orth_act;
typedef enum { ORTH_NORM_LAYER = 0, ORTH_NORM_RMS } orth_norm_kind;

/* Where elements of a parameter on a rank lie in the whole of it, of which the rank may have some rows or some columns. The first
 * `replica_rows` rows are copies of others from `replica_first` on. */
typedef struct {
    int64_t param;                      /* number of the parameter */
    int64_t first;                      /* element of the rank's that an operand begins with (ZeRO) */
    int64_t cols, whole_cols;           /* of the rank's, and of the whole */
    int64_t row, col;                   /* in the whole, of the first element behind the replicas */
    int64_t replica_rows, replica_first;
} orth_elem_place;

/* Element of the whole parameter, row-major, that element e of an operand is. *run: how many that follow are its neighbours, too. */
static inline int64_t orth_elem_in_whole(const orth_elem_place *p, int64_t e, int64_t *run)
{
    const int64_t row = (p->first + e) / p->cols, col = (p->first + e) % p->cols;
    const bool replica = row < p->replica_rows;
    *run = p->cols - col;
    return (replica ? p->replica_first + row : p->row + row - p->replica_rows) * p->whole_cols + p->col + col;
}

/* Fixed when the program is built. What the first part says, any op may read; each other group of fields belongs to the
 * families that attrs_of names it for (op.c). Nodes and instructions have the groups of their op; the others are zero
 * (orth_attr_for), so that nothing depends on what an op was copied from. */
typedef struct {
    int32_t num_seqs, seq_len;          /* B, T */
    int32_t token_parts;                /* fold slots per sequence (numerics.parts, or 1) */
    uint32_t sum_leaves;                /* groups (1u << group) whose ranks each have some of the tokens, or heads, of a
                                           sequence: parameter gradients per sequence are summed over them in turn */
    orth_split split;                   /* canonical parts of the contraction */
    int64_t replica_rows;               /* leading k and v rows of a fused qkv that count as another rank's */
    int32_t num_addends;
    bool partial;                       /* linear: its dx, head_norm: the gradients of its gains are one rank's
                                           part of a sum over TP, kept in fp32 */
    struct {                            /* PRODUCT */
        orth_act act;
        orth_split split_out;           /* of `linear`: parts of its output dim, which linear_dx contracts; qlinear_dx: of K */
        orth_recipe recipe;             /* of quantised operands, */
        int32_t product;                /* and which of the layer's products this is */
    };
    struct {                            /* NORM */
        orth_norm_kind norm;
        float eps;
    };
    struct {                            /* HEADS */
        int32_t heads, kv_heads, head_dim; /* H, KV, D, local to the rank */
        int32_t first_head;             /* global number of the rank's first query head (dropout) */
        int32_t head_parts;             /* canonical parts of the query heads of a group, local to the rank; 0: one */
        bool shares_kv;                 /* KV ranks have other query heads of the same group */
        bool full;                      /* attention_cached: the numbers of attention_full */
        bool inverse;                   /* rope */
        float scale;
        int32_t full_len, slot_begin, slot_count; /* attention_part: whole sequences have full_len tokens in
                                           token_parts slots; the rank's queries are those of slot_count */
    };
    struct {                            /* KEYS: their positions, of a block of attention or in a message */
        int32_t key_begin, num_keys;
    };
    struct {                            /* DROPOUT */
        float dropout;
        int32_t site;                   /* which dropout of the model this is */
    };
    struct {                            /* VOCAB */
        int64_t first_row;              /* of the vocabulary, on this rank */
    };
    struct {                            /* SUMS */
        int32_t block_rows, first_part; /* grad_square */
        int32_t nodes;                  /* tree_acc: with it the sum over `group` is complete, of so many nodes in all;
                                           0: not */
    };
    struct {                            /* OPTIMIZER */
        float lr_factor, decay_factor;  /* of the step's learning rate and weight decay */
        bool nesterov;
        bool stochastic;                /* what is kept in bf16 is rounded at random (kernels/round.h), */
        orth_elem_place place;          /* and these are the elements; of a piece, param and first always say it */
        int32_t piece, num_pieces;      /* of the rank's elements, which are updated piece by piece; 0 of 0: all at once */
    };
    struct {                            /* QUANT */
        orth_float8 float8;
        int32_t tile_rows, tile_cols;   /* of a block that has a scale of its own; */
        orth_split row_split, col_split; /* rows and columns in whose parts tiles begin anew (recipe.h); parts 0: in none */
        bool power_of_2;                /* scales are */
        int32_t use;                    /* quant_nvfp4 at random: which tensor of a step this is, */
        int64_t first_col;              /* and which of its columns is the first one here */
        uint32_t signs;                 /* hadamard */
        int32_t row;                    /* quant_delayed: of scales and amax */
        orth_float8 gradients;          /* delayed_scales: of each row that is a gradient's; float8: of the others */
        orth_delayed_scaling delayed;   /* delayed_scales; how long the history is its operand says */
    };
    struct {                            /* CALL */
        orth_group group;               /* who takes part */
        int32_t peer;                   /* position in the group */
        bool maximum;                   /* all_reduce: largest instead of sum */
    };
} orth_attr;

/* `attr` with the groups of fields that `op` has; the others zero. */
orth_attr orth_attr_for(orth_op op, const orth_attr *attr);

/* Values that change from step to step: operands, not reasons to rebuild a program. One per rank, in
 * host memory; as an orth_tensor it is U8 [sizeof]. */
typedef struct {
    uint64_t seed, step;                /* step counts from 1 */
    double beta1, beta2;                /* not float: 1 - beta is what a moment takes in, and a beta near 1 would be 1 */
    float lr, weight_decay, eps, momentum;
    float clip_norm;                    /* <= 0: no clipping */
    float loss_scale;                   /* 1 / (weight of all targets of the global batch), times grad_scale */
    float grad_scale;                   /* loss scaling: gradients are those of the loss times this; 0 counts as 1 */
    float clip_scale;                   /* written by clip_scale: clipping, and 1 / grad_scale */
    int32_t left_out;                   /* steps before this one whose update was left out: the optimizer does not count them */
    int32_t skip;                       /* 1: leave parameters and moments alone */
    int32_t bad;                        /* written by clip_scale */
    double grad_norm;                   /* written by clip_scale */
} orth_step_values;

typedef struct {
    const orth_tensor *in;              /* [num_in] in the order of ops.def, addends last */
    const orth_tensor *out;             /* [num_out] */
    int32_t num_in, num_out;
    const orth_attr *attr;
    void *workspace;                    /* 64-byte aligned, orth_op_workspace_bytes(...) of it, not zeroed */
} orth_op_call;

typedef orth_status (*orth_kernel_fn)(orth_ctx *ctx, const orth_op_call *call);

typedef size_t (*orth_workspace_fn)(const orth_op_call *call, int num_threads, orth_isa isa);

#define OP(name, family, in, out, vjp, flops, sum, alias, workspace, role) \
    orth_status orth_ref_##name(orth_ctx *ctx, const orth_op_call *call); \
    orth_status orth_cpu_##name(orth_ctx *ctx, const orth_op_call *call); \
    size_t orth_workspace_##workspace(const orth_op_call *call, int num_threads, orth_isa isa);
#include "kernels/ops.def"
#undef OP

const char *orth_op_name(orth_op op);

/* The table of a back end, [ORTH_NUM_OPS]. */
const orth_kernel_fn *orth_kernels_ref(void);
const orth_kernel_fn *orth_kernels_cpu(void);

/* Bytes of workspace that the cpu kernel of `op` wants for these shapes (data pointers are not read),
 * with this many threads, at this isa. The reference kernels need none. */
size_t orth_op_workspace_bytes(orth_op op, const orth_op_call *call, int num_threads, orth_isa isa);

/* The op that packs the weight of product `op`; ORTH_NUM_OPS: none does. Such a product has its weight in
 * in[ORTH_IN_WEIGHT], and in in[ORTH_IN_PACKED] what was made of it, if there is such an input. */
orth_op orth_op_packing(orth_op op);
#define ORTH_IN_WEIGHT 1
#define ORTH_IN_PACKED 3

/* Bytes of `packed` of `linear_pack` and `linear_dx_pack`, for the cpu kernels at this isa, where `linear` or `linear_dx` has these first
 * two inputs (data pointers are not read). 0: so few rows gain nothing from a packed weight. */
size_t orth_op_packed_bytes(orth_op op, const orth_tensor in[2], const orth_attr *attr, orth_isa isa);

#endif
