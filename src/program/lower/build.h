/* build.h -- the state that build.c, blocks.c, compile.c, accumulate.c and update.c share while a program grows. */
#ifndef ORTH_PROGRAM_BUILD_H
#define ORTH_PROGRAM_BUILD_H

#include "program/lower/compile.h"
#include "program/lower/gradtree.h"
#include "program/lower/shard.h"

/* One sum of gradients: a parameter that is used in two blocks (tied embeddings) has two of them,
 * whose results are added at the end, so that no schedule changes the order. */
typedef struct {
    orth_gradtree tree;
    int32_t slot[ORTH_GRADTREE_MAX_DEPTH]; /* buffers; slot 0 of use 0 is the gradient itself */
    int32_t num_slots;
    bool of_tokens;     /* of this rank's tokens only: still to be summed over CP when it is complete (uneven shares) */
} orth_grad_sum;

typedef struct {
    orth_grad_sum step;    /* over the micro-batches */
    orth_grad_sum micro;   /* ZeRO 2 and 3: within one micro-batch, in transient buffers */
    orth_grad_sum sequence; /* context parallelism: of this rank's tokens of one sequence, transient, too */
} orth_grad_use;

/* A tensor of a bucket: what goes into the collective, and what comes out of it here. */
typedef struct {
    int64_t index;         /* parameter */
    bool second_use, last; /* gradients: of a tied one; of the last micro-batch */
    orth_operand in, out;
} orth_bucket_item;

/* Tensors that travel together (bucket.c), in ascending order of their parameters. */
typedef struct {
    orth_op op;
    orth_group group;
    orth_bucket_item *items; /* [2*num_params] */
    int32_t num;
    int64_t bytes;
} orth_bucket;

/* Buckets of gradients that are reduced and not followed up: one, and at the end of a micro-batch the last. */
#define ORTH_MAX_OPEN_BUCKETS 4

/* Sends under way at once. Their buffers live until they are waited for, so few; but a rank that waits
 * too soon for its peer could keep another from ever receiving: check.h looks at all ranks together. */
#define ORTH_MAX_PENDING_SENDS 4

/* Where the rows of a block's gradients lie among the leaves of the step. */
typedef struct {
    int64_t begin, end, total; /* leaves; shares: no leaf is the last */
    int64_t micro_begin, micro_end; /* leaves of the micro-batch */
    int64_t per_sequence;      /* leaves of a sequence on this rank */
    int64_t rows;              /* rows of activations per leaf */
    bool chunk;                /* a chunk of the head: leaves are equal parts of a sequence */
    bool second_use;           /* of a tied parameter */
    int64_t row0;              /* first row of a head chunk in its micro-batch; -1 for other blocks */
} orth_leaf_range;

/* Context parallelism: the gradient of a sequence, being summed over CP, that is to join the next sum. */
typedef struct {
    int64_t index;
    orth_leaf_range leaves;
    orth_operand sum;          /* buffer -1: there is none */
    bool last;
} orth_sequence_grad;

typedef struct {
    orth_ctx *ctx;
    const orth_compile_spec *spec;
    orth_program *p;
    bool *held;                  /* [num_params] parameters of this rank's chunks */
    int32_t *master, *copy;      /* [num_params] buffers; copy == master where there is none; -1: not held */
    orth_zero_shard *shards;          /* [num_params] over the shard axis; NULL: nothing is sharded */
    int32_t data[ORTH_NUM_DATA]; /* buffers of the whole step; -1 */
    orth_grad_use *uses;         /* [2*num_params]: 2*index for the first use, +1 for the head's if tied */
    int32_t *moments;            /* [2*num_params] buffers of m and v of the optimizer; -1: not made yet */
    int32_t version, updates;    /* asynchronous: the weights of the action at hand; updates made so far */
    bool *reread;                /* asynchronous: [num_params] parameters that a backward reads */
    int32_t *stashed;            /* asynchronous: [versions][num_params] buffers of older weights */
    bool tied;
    orth_bucket grads;             /* finished gradients, not reduced yet */
    orth_bucket gathers[2];        /* parameters about to be gathered: fp32, and in the compute type */
    orth_bucket_item *reduced;     /* [num_reduced] reduced, not joined to the step's sum or summed over replicas yet */
    int32_t num_reduced;
    int32_t open[ORTH_MAX_OPEN_BUCKETS]; /* [num_open] where the buckets of these begin */
    int num_open;
    orth_sequence_grad sequence_grad;
    int32_t *gathered;             /* [num_params] buffers that hold whole parameters from now on; -1 */
    orth_operand *cut;             /* [2*num_seqs] room for the sequences of two operands */
    int32_t logits_or_nll;
    int32_t seq_loss, loss;
    int32_t tickets;             /* given out to started calls */
    bool under_way[ORTH_MAX_TICKETS]; /* by ticket, modulo: as the executor keeps them */
    struct {
        orth_operand x;
        orth_group channel;
        int32_t ticket;
    } pending[ORTH_MAX_PENDING_SENDS]; /* of activations: started, not yet waited for, oldest first */
    int32_t num_pending;
    /* Tags of what is being emitted. */
    orth_phase phase;
    int32_t layer, micro_batch, action;
    orth_block_kind block;
    int32_t node;
} orth_builder;

static inline int32_t orth_build_size(const orth_builder *b, orth_group a)
{
    return ORTH_MAX(b->spec->mesh.size[a], 1);
}

/* ---- build.c: buffers, operands ---- */

size_t orth_build_bytes(orth_dtype t, int num_dims, const int64_t *dim);
/* The group of the shard axis: where shards have replicas, that axis of dp, else all of dp. */
static inline orth_group orth_build_shard_group(const orth_builder *b)
{
    return orth_build_size(b, ORTH_GROUP_REPLICATE) > 1 ? ORTH_GROUP_SHARD : ORTH_GROUP_DP;
}

int64_t orth_build_elems(const orth_builder *b, int64_t index);
/* ZeRO 3: this rank keeps a shard of parameter `index`, which is gathered for each use. */
bool orth_build_is_gathered(const orth_builder *b, int64_t index);
/* Elements [first, first+n) of a buffer of fp32 or compute-type elements, as a vector. */
orth_operand orth_build_vector(int32_t buffer, orth_dtype dtype, int64_t first, int64_t n);

/* What is emitted from here on comes from this node; NONE, -1: from none. */
static inline void orth_build_from_node(orth_builder *b, orth_block_kind block, int32_t node)
{
    b->block = block;
    b->node = node;
}
/* Instruction with the builder's tags. */
orth_instr *orth_build_emit(orth_builder *b, orth_op op, const orth_attr *attr, int num_in,
                            const orth_operand *in, int num_out, const orth_operand *out);
/* A transient buffer of the shape of `like`. */
orth_operand orth_build_temp(orth_builder *b, const char *name, orth_operand like);

/* Parameter `index` as the kernels read it: whole, fp32 or in the compute type. */
orth_operand orth_build_param(const orth_builder *b, int64_t index);
/* The data of the micro-batch at hand. */
orth_operand orth_build_data(orth_builder *b, const orth_value_info *v);
/* The buffer of a data slot, made at its first mention: all micro-batches, or one for the step. */
int32_t orth_build_data_buffer(orth_builder *b, const orth_value_info *v);
/* Buffers of parameters; of loss and logits. */
void orth_build_params(orth_builder *b);
void orth_build_results(orth_builder *b);

/* ---- blocks.c: one block for one micro-batch ---- */

/* Operands of a block's values. */
typedef struct {
    orth_operand *of;   /* [num_values]; buffer -2: not made yet */
} orth_block_env;

/* Each returns what the next block reads: the output; the gradient of the input. */
orth_operand orth_build_forward(orth_builder *b, const orth_block *block, orth_block_env *env, orth_operand x);
/* kind: B, or BI, which leaves a part of the nodes to orth_build_weights. */
orth_operand orth_build_backward(orth_builder *b, const orth_block *block, orth_block_env *env, orth_action_kind kind,
                                 orth_operand dy);
void orth_build_weights(orth_builder *b, const orth_block *block, orth_block_env *env);
/* Logits, loss and, when training, their gradients. Returns the gradient of the final norm's output. */
orth_operand orth_build_head(orth_builder *b, orth_operand normed);
/* Logits of the rows of one micro-batch, no loss. */
void orth_build_decode_head(orth_builder *b, orth_operand normed);

/* ---- accumulate.c ---- */

/* The number of a call that is about to be started, and the wait for a call with its `num` operands. Fewer than
 * ORTH_MAX_TICKETS calls may be under way. */
int32_t orth_build_ticket(orth_builder *b);
void orth_build_wait(orth_builder *b, orth_group group, int32_t ticket, int num, const orth_operand *x);

/* Emits the backward node that makes a gradient of parameter `index`, once per aligned run of leaves. */
void orth_build_gradient(orth_builder *b, int64_t index, const orth_node *node, const orth_operand *in,
                         const orth_leaf_range *leaves);

/* The gradient of a sequence that was still being summed over CP joins its sum. */
void orth_build_join_sequence(orth_builder *b);

/* A reduced vector joins the sum over the step, in which it is one leaf. */
void orth_build_join(orth_builder *b, int64_t index, bool second_use, bool last, orth_operand leaf);

/* The finished gradient's buffer: of the first use, or of the head's where the embedding is elsewhere. */
int32_t orth_build_grad_buffer(const orth_builder *b, int64_t index);

/* ---- update.c ---- */

/* ---- bucket.c ---- */

/* ZeRO 2 and 3: the gradients of each micro-batch are reduced by themselves. */
bool orth_build_reduces_at_once(const orth_builder *b);
/* Buffer `buffer` holds the whole gradient of parameter `index`, to be reduced over dp: now, or with those that follow.
 * last: of the step's last micro-batch. */
void orth_build_reduce(orth_builder *b, int64_t index, bool second_use, int32_t buffer, bool last);
/* The bucket that is not full yet: started, and followed up later where communication overlaps. */
void orth_build_reduce_open(orth_builder *b);
/* What the buckets that were reduced last are for. */
void orth_build_follow_up(orth_builder *b);
/* What is left of all that. */
void orth_build_reduce_rest(orth_builder *b);

/* Whether the bucket with this item still is one call. */
bool orth_bucket_fits(const orth_builder *b, const orth_bucket *k, const orth_bucket_item *item);
void orth_bucket_add(orth_bucket *k, const orth_bucket_item *item);
/* The collective; the bucket is empty then. */
void orth_bucket_emit(orth_builder *b, orth_bucket *k);

/* ---- uneven.c ---- */

/* Shares that are no single nodes of the tree over sequences (uneven.c). */
int64_t orth_build_first_sequence(const orth_builder *b);
int64_t orth_build_leaves_per_sequence(const orth_builder *b, int64_t index, bool second_use);
void orth_build_combine(orth_builder *b);
void orth_build_combine_loss(orth_builder *b, orth_operand leaves, orth_operand loss);

/* ---- update.c ---- */

/* Asynchronous: the weights of this rank are updated with the gradients of micro-batch b->micro_batch. Those
 * that a later action of the schedule still needs are copied before. */
void orth_build_update_now(orth_builder *b, bool needed);
/* Gradient norm, clipping, the optimizer's instructions, and (ZeRO 1 and 2) whole parameters again. */
void orth_build_update(orth_builder *b);

#endif
