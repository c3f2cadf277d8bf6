/* build.h -- the state that the files of lower/ share while a program grows, and what they call of each other. */
#ifndef ORTH_PROGRAM_BUILD_H
#define ORTH_PROGRAM_BUILD_H

#include "program/lower/compile.h"
#include "program/lower/gradtree.h"
#include "program/lower/route.h"
#include "program/lower/shard.h"

/* What the optimizer may keep of a parameter beside its master: m, v, their scales, in the order of their binds. */
#define ORTH_STATES (ORTH_BIND_SCALES - ORTH_BIND_M + 1)

/* One sum of gradients that is growing. */
typedef struct {
    orth_gradtree tree;
    int32_t slot[ORTH_GRADTREE_MAX_DEPTH]; /* buffers; of the step's sum, slot 0 is the gradient itself */
    int32_t num_slots;
} orth_grad_sum;

/* One use of a parameter: the path of its gradient, and the sums of the trees on it. */
typedef struct {
    orth_route route;
    orth_grad_sum sum[ORTH_NUM_SPANS]; /* by the moment at which they are complete */
} orth_grad_use;

/* A tensor of a bucket: what goes into the collective, and what comes out of it here. */
typedef struct {
    int64_t use;           /* 2*parameter, + 1: the second use */
    int32_t stage;         /* gradients: of the use's route, at which it is reduced */
    orth_operand in, out;
    int32_t source;        /* gradients: the buffer in fp32, of which `in` may be a rounded copy */
} orth_bucket_item;

/* A gradient that was communicated, and goes on later from `stage` of its route. */
typedef struct {
    int64_t use;
    int32_t stage;
    orth_travels travels;  /* how it was communicated */
    int32_t call;          /* number of the call; those of one bucket have the same */
    orth_operand value;
    int32_t source;        /* as of a bucket */
} orth_waiting_grad;

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

/* The leaves in the rows of a block: sequences, or parts of one. */
typedef struct {
    int64_t num;
    int64_t rows;              /* rows of activations per leaf */
    bool chunk;                /* a chunk of the head: leaves are equal parts of a sequence */
    bool second_use;           /* of a tied parameter */
    int64_t row0;              /* first row of a head chunk in its micro-batch; -1 for other blocks */
} orth_leaves;

/* Gradients on their way to another space at once; each may be two calls, through the host's memory. */
#define ORTH_MAX_PENDING_STORES 2

typedef struct {
    orth_operand near;       /* what goes back */
    int32_t call[2];         /* -1: there is only the second */
} orth_store;

/* A piece of an update whose operands are elsewhere: the gradient, then what the optimizer writes (offload.c). */
#define ORTH_PIECE_OPERANDS 6
typedef struct {
    orth_op op;
    orth_attr attr;
    orth_operand step;
    orth_operand far[ORTH_PIECE_OPERANDS], near[ORTH_PIECE_OPERANDS];
    int32_t call[ORTH_PIECE_OPERANDS];  /* copies under way; -1 */
    int32_t update;                     /* under way */
    int num, copy;                      /* operands; which of them is only written */
} orth_piece;

typedef struct {
    int32_t room[ORTH_PIECE_OPERANDS][2]; /* staging buffers by turns; -1: not made yet */
    int32_t step;                         /* 1 + buffer of the step's values in the host's memory; 0: not made yet */
    int32_t num;                          /* pieces so far */
    bool *leaves;                         /* [num_params] whose state is elsewhere; NULL: none */
    orth_piece waiting, leaving;          /* is copied near; was updated last */
} orth_offloading;

/* Blocks whose parameters are gathered together. */
typedef struct {
    const orth_block *blocks;
    int32_t num;
} orth_unit;

typedef struct {
    orth_ctx *ctx;
    const orth_compile_spec *spec;
    orth_program *p;
    bool *held;                  /* [num_params] parameters of this rank's chunks */
    int32_t *master, *copy;      /* [num_params] buffers; copy == master where there is none; -1: not held */
    orth_zero_shard *shards;          /* [num_params] over the shard axis; NULL: nothing is sharded */
    int32_t data[ORTH_NUM_DATA]; /* buffers of the whole step; -1 */
    orth_grad_use *uses;         /* [2*num_params]: 2*index for the first use, +1 for the head's if tied */
    orth_offloading offload;
    orth_store stores[ORTH_MAX_PENDING_STORES]; /* [num_stores] gradients on their way out, oldest first */
    int32_t num_stores;
    orth_operand squares;        /* sums of squares of all gradients; buffer -1: not made yet */
    bool *squared;               /* [num_params] those that are made */
    int32_t *moments;            /* [ORTH_STATES*num_params] buffers of m, v and their scales; -1: not made yet */
    int32_t version, updates;    /* asynchronous: the weights of the action at hand; updates made so far */
    bool *read_by_backward;                /* asynchronous: [num_params] parameters that a backward reads */
    int32_t *stashed;            /* asynchronous: [versions][num_params] buffers of older weights */
    orth_bucket grads;             /* finished gradients, not reduced yet */
    orth_bucket together;          /* of one bucket that was reduced, about to be reduced over another group */
    orth_bucket gathers[4];        /* parameters about to be gathered: fp32, and in the compute type; these again, frozen */
    orth_waiting_grad *waiting;    /* [num_waiting], oldest first, of at most 2*num_params + 1 */
    int32_t num_waiting;
    bool holds;                    /* orth_build_hold */
    int32_t calls;                 /* calls whose gradients waited, so far */
    int32_t *gathered;             /* [num_params] buffers that hold whole parameters from now on; -1 */
    orth_unit open;                /* blocks whose parameters these are (gather.c) */
    orth_operand *cut;             /* [2*num_seqs] room for the sequences of two operands */
    int32_t logits_or_nll;
    int32_t seq_loss, loss;
    int32_t pending[ORTH_MAX_PENDING_SENDS]; /* instructions: sends of activations whose operands still live, oldest first */
    int32_t num_pending;
    /* Tags of what is being emitted. */
    orth_phase phase;
    int32_t layer, micro_batch, action;
    orth_block_kind block;
    int32_t node;
    bool recomputed;
} orth_builder;

static inline int32_t orth_build_size(const orth_builder *b, orth_group a)
{
    return ORTH_MAX(b->spec->mesh.size[a], 1);
}

/* ---- build.c: buffers, operands ---- */

size_t orth_build_bytes(orth_dtype t, int num_dims, const int64_t *dim);

/* The shards of each parameter are known, and the routes of the gradients of those that this rank holds are made. */
void orth_build_routes(orth_builder *b);
/* The route that ends in the update of parameter `index`: of its only use, or of that to which the other one is joined. */
const orth_route *orth_build_route(const orth_builder *b, int64_t index);
/* Elements of parameter `index` that this rank updates. */
orth_zero_shard orth_build_own(const orth_builder *b, int64_t index);
/* These, in a buffer that holds all of the parameter, or just them. */
orth_operand orth_build_own_elems(const orth_builder *b, int32_t buffer, orth_dtype dtype, int64_t index);
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

/* The type of a buffer of a parameter, its master or its copy. */
static inline orth_dtype orth_build_param_type(const orth_builder *b, int32_t buffer)
{
    return b->p->failed ? ORTH_F32 : b->p->buffers[buffer].dtype;
}
/* Parameter `index` as the kernels read it: whole, fp32 or in the compute type. */
orth_operand orth_build_param(const orth_builder *b, int64_t index);
/* The data of the micro-batch, or layer, at hand. */
orth_operand orth_build_data(orth_builder *b, const orth_value_info *v);
/* The buffer of a data slot, made at its first mention: all micro-batches, or layers, or one for the step. */
int32_t orth_build_data_buffer(orth_builder *b, const orth_value_info *v);
/* delayed_scales.c: the scales of the next step, if the program has such. */
void orth_build_delayed_scales(orth_builder *b);
/* Buffers of parameters; of loss and logits. */
void orth_build_params(orth_builder *b);
void orth_build_results(orth_builder *b);

/* ---- blocks.c: one block for one micro-batch ---- */

/* Operands of a block's values. */
typedef struct {
    orth_operand *of;   /* [num_values]; buffer -2: not made yet, or forgotten */
    const bool *again;  /* [num_forward] nodes whose outputs are made again for the backward; NULL: none */
} orth_block_env;

/* The operand of a value of all rows: made again where it was forgotten; made where it is not there yet. The instructions of a node. */
orth_operand orth_build_read(orth_builder *b, const orth_block *block, orth_block_env *env, orth_value v);
orth_operand orth_build_make(orth_builder *b, const orth_block *block, orth_block_env *env, orth_value v);
void orth_build_node(orth_builder *b, const orth_block *block, orth_block_env *env, int32_t node, const orth_leaves *leaves);
/* Each returns what the next block reads: the output; the gradient of the input. */
orth_operand orth_build_forward(orth_builder *b, const orth_block *block, orth_block_env *env, orth_operand x);
/* After the forward: what the marked nodes made, and the block's input, is not kept. `again` outlives env. */
void orth_build_forget(orth_builder *b, const orth_block *block, orth_block_env *env, const bool *again, bool forget_input);
/* In the backward: the output of a block whose input x is there again. */
orth_operand orth_build_again(orth_builder *b, const orth_block *block, orth_block_env *env, orth_operand x);
/* kind: B, or BI, which leaves a part of the nodes to orth_build_weights. */
orth_operand orth_build_backward(orth_builder *b, const orth_block *block, orth_block_env *env, orth_action_kind kind,
                                 orth_operand dy);
void orth_build_weights(orth_builder *b, const orth_block *block, orth_block_env *env);
/* Logits, loss and, when training, their gradients. Returns the gradient of the final norm's output. */
orth_operand orth_build_head(orth_builder *b, orth_operand normed);
/* Logits of the rows of one micro-batch, no loss. */
void orth_build_decode_head(orth_builder *b, orth_operand normed);

/* ---- gather.c: parameters where kernels work ---- */

/* What nodes from `first` on read of the block's parameters is there, or will be when it is read. */
void orth_gather_block(orth_builder *b, const orth_block *block, orth_block_env *env, int32_t first);
/* Parameter `index` of the block, which a node reads for the first time. */
orth_operand orth_gather_read(orth_builder *b, const orth_block *block, int64_t index);
/* What was gathered for the block at hand, or for its unit, is not used any more. */
void orth_gather_close(orth_builder *b);
/* Whether the backward of a layer finds the parameters that its forward gathered: DeepSpeed's stage3_max_reuse_distance and
 * stage3_max_live_parameters. In between come the layers behind its unit, twice, the final norm and the head. */
bool orth_gather_is_still_whole(const orth_builder *b, const orth_block *block);

/* ---- chunks.c ---- */

/* The chunked nodes of the forward, or those of the backward with what they need of the forward. */
void orth_build_chunks(orth_builder *b, const orth_block *block, orth_block_env *env, bool backward);

/* Parameters are gathered with those of their type that are dealt out with them. */
static inline orth_bucket *orth_build_gathers(orth_builder *b, int64_t index, orth_dtype dtype)
{
    return &b->gathers[2 * b->spec->params[index].frozen + (dtype != ORTH_F32)];
}

/* Whether this rank updates parameter `index`, or a shard of it. */
static inline bool orth_build_trains(const orth_builder *b, int64_t index)
{
    return b->held[index] && !b->spec->params[index].frozen;
}

/* ---- build.c: calls under way ---- */

/* Emits a call that goes on beside computing; returns its number, -1 on failure. Its operands live until the place where the
 * second function is called with that number. */
int32_t orth_build_start(orth_builder *b, orth_op op, const orth_attr *attr, int num_in, const orth_operand *in, int num_out,
                         const orth_operand *out);
void orth_build_until_here(orth_builder *b, int32_t call);

/* ---- accumulate.c: trees ---- */

/* Emits the backward node that makes a gradient of parameter `index`, once per aligned run of leaves. */
void orth_build_gradient(orth_builder *b, int64_t index, const orth_node *node, const orth_operand *in,
                         const orth_leaves *leaves);
/* `value`, a vector, is a leaf of the tree at `stage`. Returns whether that completes the node, which *value is then. */
bool orth_build_add_leaf(orth_builder *b, int64_t use, int32_t stage, orth_operand *value);
/* A transient buffer of the gradient of a use, in this type. */
orth_operand orth_build_part(orth_builder *b, int64_t use, orth_dtype dtype, int64_t elems);
/* The finished gradient's buffer: of the first use, or of the head's where the embedding is elsewhere. */
int32_t orth_build_grad_buffer(const orth_builder *b, int64_t index);

/* ---- follow.c: along a route ---- */

/* `value` is the input of `stage` of the route of `use`: it goes on until a tree is not complete, a bucket not full, a call
 * is under way, or only the update is left. */
void orth_build_follow(orth_builder *b, int64_t use, int32_t stage, orth_operand value);
/* It goes on from its stage later: at the latest of orth_build_resume and the next call of its kind. */
void orth_build_park(orth_builder *b, const orth_waiting_grad *g);
/* What waits and was communicated like this goes on. */
void orth_build_resume(orth_builder *b, orth_travels travels);
/* From here on (until false) sums over cp that complete a step's gradient are held back, then started in turn: another stage waits for what
 * this chunk computes, and the calls of its layers over cp would stand behind these sums. */
void orth_build_hold(orth_builder *b, bool hold);
/* The backward of a micro-batch is done: calls of single gradients are not left to the next one, and gradients that are
 * reduced in every micro-batch do not wait for those of the next one. */
void orth_build_end_of_gradients(orth_builder *b);
/* All gradients of the step are made, and started to be reduced; with `rest`, what waits goes on. */
void orth_build_finish_gradients(orth_builder *b, bool rest);
/* Whether the gradient of parameter `index` still waits. */
bool orth_build_is_waiting(const orth_builder *b, int64_t index);

/* ---- bucket.c ---- */

/* `value` is to be reduced at `stage` in a bucket: now, or with those that follow. */
void orth_bucket_reduce(orth_builder *b, int64_t use, int32_t stage, orth_operand value);
/* The open bucket of gradients is reduced, full or not. crowded: nothing is computed between this bucket and the one before,
 * which need not be complete yet. */
void orth_bucket_start(orth_builder *b, bool crowded);
/* What of a bucket was to be reduced together over another group. */
void orth_bucket_reduce_together(orth_builder *b);
/* Whether the bucket with this item still is one call. */
bool orth_bucket_fits(const orth_builder *b, const orth_bucket *k, const orth_bucket_item *item);
void orth_bucket_add(orth_bucket *k, const orth_bucket_item *item);
/* The collective; the bucket is empty then. */
void orth_bucket_emit(orth_builder *b, orth_bucket *k);
/* Those of the parameters that are about to be gathered. */
void orth_bucket_emit_gathers(orth_builder *b);

/* ---- uneven_shares.c ---- */

/* Uneven shares: all gradients are combined node by node. */
void orth_build_combine(orth_builder *b);

/* ---- loss.c ---- */

/* The loss of the step, from those of its sequences; computes: this rank has the head. */
void orth_build_loss(orth_builder *b, bool computes);

/* ---- offload.c ---- */

/* Nothing is made yet; how large pieces are. */
void orth_offload_begin(orth_builder *b);
/* Whether the state of parameter `index` is elsewhere, and its update the host's. */
bool orth_offload_leaves(const orth_builder *b, int64_t index);
/* A buffer of optimizer state is kept where the spec says. */
void orth_offload_put(orth_builder *b, int32_t buffer);
/* The step's values in the host's memory. */
orth_operand orth_offload_step(orth_builder *b, orth_operand step);
/* The update of parameter `index`, all but its last piece, which the next call ends, or orth_offload_finish. Operands are those of op: the
 * gradient as a vector or as whole rows, and the step; what the optimizer writes, likewise. */
void orth_offload_update(orth_builder *b, int64_t index, orth_op op, const orth_attr *attr, const orth_operand in[2], int num_out,
                         const orth_operand *out);
void orth_offload_finish(orth_builder *b);

/* ---- far.c ---- */

/* The buffer, of parameters or gradients, is kept in this tier. */
void orth_far_put(orth_builder *b, int32_t buffer, orth_tier tier);
/* Whether kernels work in another space than the buffer's. */
bool orth_is_far(const orth_builder *b, int32_t buffer);
/* A new buffer where kernels work that is a copy of the operand's elements, with nothing in it yet; what is there already remains as
 * it is. */
orth_operand orth_far_room(orth_builder *b, orth_operand o);
/* The elements of o come to `near`, a part of such a copy. */
void orth_far_bring_to(orth_builder *b, orth_operand o, orth_operand near);
/* Both at once. */
orth_operand orth_far_bring(orth_builder *b, orth_operand o);
/* The elements of such a copy go back, beside computing; nothing happens to other operands. */
void orth_far_return(orth_builder *b, orth_operand near);
/* What goes back lives until here at most. */
void orth_far_end_returns(orth_builder *b);
/* At the end of a step: far gradients are as large as what is copied to and from them. */
void orth_far_fit(orth_builder *b);

/* ---- update.c ---- */

/* The gradient of parameter `index` is complete in `g`, a copy that is about to go back: its squares are summed now. */
void orth_build_square_early(orth_builder *b, int64_t index, int32_t g);
/* Asynchronous: the weights of this rank are updated with the gradients of micro-batch b->micro_batch. Those
 * that a later action of the schedule still needs are copied before. */
void orth_build_update_now(orth_builder *b, bool needed);
/* Gradient norm, clipping, the optimizer's instructions, and (ZeRO 1 and 2) whole parameters again. */
void orth_build_update(orth_builder *b);

#endif
