/* program.h -- a rank's training step as data: instructions over buffers.
 *
 *   blocks + schedule --compile--> instructions --check--> --place--> offsets --> plan, run, explain
 *
 * The same list is checked (check.h), placed (place.h), priced (cost.h), printed (print.h) and run
 * (run/executor.h). Nothing about a step is known anywhere else.
 *
 * Invariants of a compiled program:
 *  1. an instruction reads only buffers that are persistent or were written by one before it;
 *  2. persistent buffers keep their bytes between steps, all others die after their last reader;
 *  3. every parameter that trains has one gradient, complete before the first optimizer instruction.
 */
#ifndef ORTH_PROGRAM_PROGRAM_H
#define ORTH_PROGRAM_PROGRAM_H

#include "program/ir/graph.h"

/* Where a buffer's bytes are; run/space/ has a table of functions for each. An instruction works in one space: kernels in the
 * device's or the host's memory, communicators where the program's kernels work. The op `copy` moves bytes between the host's
 * memory and another space. */
typedef enum { ORTH_SPACE_HOST = 0, ORTH_SPACE_DEVICE, ORTH_SPACE_FILE, ORTH_NUM_SPACES } orth_space;
const char *orth_space_name(orth_space s);

/* The classes of the `memory` object of plans and runs. Activations include the step's data and its losses. A transient buffer
 * that a communicator fills, or that only communicators read, is communication, whatever it was made as (place.c). */
typedef enum {
    ORTH_CLASS_PARAMS = 0, ORTH_CLASS_GRADS, ORTH_CLASS_OPTIMIZER, ORTH_CLASS_ACTIVATIONS, ORTH_CLASS_COMM,
    ORTH_CLASS_WORKSPACE, ORTH_NUM_CLASSES
} orth_class;
const char *orth_class_name(orth_class c);

/* Offsets of buffers, but of those inside of a chain, are multiples of it. */
#define ORTH_PLACE_ALIGN 64

/* What a persistent buffer is, for those who fill or read it. `index` is a registry number for the
 * first six, a data slot for DATA, a layer for the caches. */
typedef enum {
    ORTH_BIND_NONE = 0,
    ORTH_BIND_MASTER,    /* the parameter that the optimizer updates; or that is frozen */
    ORTH_BIND_COPY,      /* the parameter in the compute type; absent when the master is of that type */
    ORTH_BIND_GRAD, ORTH_BIND_M, ORTH_BIND_V,
    ORTH_BIND_SCALES,    /* of m and v in 8 bits (orth_param_scales) */
    ORTH_BIND_DATA,      /* all micro-batches of the step, one after the other */
    ORTH_BIND_CACHE_K, ORTH_BIND_CACHE_V,
    ORTH_BIND_LOSS,      /* fp64 [1]: weighted sum of the step */
    ORTH_BIND_SEQ_LOSS,  /* fp64 [sequences]: leaves of the above */
    ORTH_BIND_NLL,       /* fp32 [sequences*T], storage order (evaluation) */
    ORTH_BIND_LOGITS     /* fp32 [rows, V] (decoding) */
} orth_bind;

typedef struct {
    const char *name;
    size_t bytes;
    orth_space space;        /* the program's when it is added */
    orth_class cls;
    bool persistent;
    bool external;           /* lives in another program's arena (weights of an evaluation) */
    bool frozen;             /* a parameter that no instruction updates */
    int32_t shard_elem;      /* holds the rank's shard of parameter `index` (views.h): bytes of an element; 0: it does not */
    int32_t copy_of;         /* 1 + the buffer, in another space, of which this one is a copy for a while (lower/far.c): of its bytes from
                              * copy_at on, which is less than 0 where the copy begins with what is not kept there; 0: of none */
    int64_t copy_at;
    bool staging;            /* room for pieces of parameters, one after the other: as large as the largest view of it (views.h) */
    orth_bind bind;
    orth_dtype dtype;        /* of the elements of a parameter or moment (the first six binds): F32, BF16, F16; U8: codes of moments */
    int64_t index;
    int64_t first_elem;      /* of the parameter's elements on this rank: a shard's begin (ZeRO) */
    int32_t first, last;     /* instructions of the first write and the last use; place.c fills these */
    int32_t alias;           /* buffer whose bytes this one takes over in place; -1 */
    int32_t of;              /* 1 + the buffer whose value it has while that is elsewhere, and behind (offload_activations.h); 0: its own */
    int32_t prev, next;      /* neighbours in memory, without a gap: a chain lives and is placed as one; -1 */
    size_t offset;           /* in the arena of its space, of a transient one in their region of it (orth_buffer_begin); place.c */
} orth_buffer;

/* What a view shows on each of the ranks that share a program (passes/views.h): the same, or something of the rank's own. */
typedef enum {
    ORTH_VIEW_SAME = 0,
    ORTH_VIEW_SHARD,       /* the rank's shard of the buffer's parameter, as a vector or one row */
    ORTH_VIEW_SHARD_MATRIX, /* the same as whole rows */
    ORTH_VIEW_PIECE,       /* piece `part` of that shard (orth_param_piece_elems), as a vector or whole rows; in a staging buffer, its beginning */
    ORTH_VIEW_SHARD_ROWS,  /* the rows of row part `part` that are in the shard */
    ORTH_VIEW_SUMS,        /* the sums of squares of these rows */
    ORTH_VIEW_OF_OTHERS,   /* nothing on the first rank of the shard axis */
    ORTH_VIEW_OF_FIRST     /* nothing but on the first tensor-parallel rank, however the program is bound */
} orth_view;

#define ORTH_MAX_PIECES 8192 /* of a step (offload.c): programs of larger models would be little else, and take minutes to compile */

/* A dense view into a buffer. buffer -1: absent. */
typedef struct {
    int32_t buffer;
    int32_t num_dims;
    orth_dtype dtype;
    uint8_t view;            /* orth_view; dim and byte_offset are those of the rank that the program is bound to */
    uint16_t part;           /* < ORTH_MAX_PIECES */
    int64_t dim[ORTH_MAX_DIMS];
    size_t byte_offset;
} orth_operand;

/* Queues run side by side; events order them (passes/order.h). What blocks is in the queue of computing, whatever it is. */
typedef enum {
    ORTH_QUEUE_COMPUTE = 0,
    ORTH_QUEUE_COPY_IN, ORTH_QUEUE_COPY_OUT,    /* to the space of computing, and from it */
    ORTH_QUEUE_FILE,
    ORTH_QUEUE_HOST,                            /* computing in the host's memory: updates of what is offloaded */
    ORTH_QUEUE_COLLECTIVE,                      /* of a group */
    ORTH_QUEUE_SEND,                            /* of a group, to a peer: a slow one holds up no other */
    ORTH_QUEUE_RECV,                            /* of a group, from a peer */
    ORTH_NUM_QUEUE_KINDS
} orth_queue_kind;

typedef struct {
    orth_queue_kind kind;
    orth_group group;
    int32_t peer;            /* of messages */
    int32_t num_instrs;
} orth_queue;
#define ORTH_MAX_QUEUES 128

/* An event: `count` instructions of a queue are complete. */
typedef struct {
    int32_t queue, count;
} orth_wait;

typedef enum { ORTH_PHASE_FORWARD = 0, ORTH_PHASE_BACKWARD, ORTH_PHASE_UPDATE, ORTH_NUM_PHASES } orth_phase;

/* The blocks of a model, each with a graph. */
typedef enum { ORTH_BLOCK_NONE = -1, ORTH_BLOCK_EMBED, ORTH_BLOCK_LAYER, ORTH_BLOCK_FINAL, ORTH_BLOCK_HEAD } orth_block_kind;

typedef struct {
    orth_op op;
    const orth_attr *attr;   /* in the program's arena; instructions with equal ones share them */
    orth_operand *in, *out;  /* [num_in], [num_out], in the program's arena */
    int32_t num_in, num_out;
    int32_t until;           /* a call that goes on beside computing: its operands live until before this instruction; 0: it
                              * holds up computing */
    int32_t queue;           /* 0: computing; passes/order.c */
    const orth_wait *waits;  /* [num_waits] before it begins: the fewest that do; passes/order.c */
    int32_t num_waits;
    orth_phase phase;
    int32_t layer;           /* -1: embedding or step-wide; num_layers: final norm and head */
    int32_t micro_batch;     /* -1: step-wide */
    int32_t action;          /* which of the rank's actions it belongs to; -1: none of a schedule's */
    orth_block_kind block;   /* the graph, and the node of it, that it was lowered from; NONE and -1: messages between */
    int32_t node;            /* stages, parameters that are gathered, sums of gradients over ranks, the update */
    /* Collectives: [num operands][group size] elements; NULL: equal blocks. Joined: one row more, their sums. */
    const int64_t *counts;
    bool coalesced;             /* collectives: the operands are neighbours in memory and travel in one call */
    bool recomputed;         /* repeats forward work: hardware FLOPs, not model FLOPs */
} orth_instr;

/* Times of the instructions of a step in ns: clock[0] is its beginning, then the beginning and the end of each. */
static inline int64_t orth_clock_length(int32_t num_instrs)
{
    return 2 * (int64_t)num_instrs + 1;
}
static inline int64_t orth_clock_begin(const int64_t *clock, int32_t i)
{
    return clock[2 * (int64_t)i + 1];
}
static inline int64_t orth_clock_end(const int64_t *clock, int32_t i)
{
    return clock[2 * (int64_t)i + 2];
}
static inline void orth_clock_set(int64_t *clock, int32_t i, int64_t begin, int64_t end)
{
    clock[2 * (int64_t)i + 1] = begin;
    clock[2 * (int64_t)i + 2] = end;
}

typedef struct orth_program {
    orth_ctx *ctx;
    orth_arena arena;
    orth_buffer *buffers;
    orth_instr *instrs;
    int32_t num_buffers, cap_buffers, num_instrs, cap_instrs;
    const orth_attr **attrs;        /* [cap_attrs] those of the instructions, each once, by their hashes; NULL: a free place */
    int32_t num_attrs, cap_attrs;
    struct orth_bound *bound;       /* [num_bound] of orth_program_index; NULL: there is none yet */
    int32_t num_bound;
    int32_t workspace;              /* the buffer that all instructions of the compute queue share; -1 */
    orth_queue queues[ORTH_MAX_QUEUES]; /* [num_queues], that of computing first; 0: not in queues yet; passes/order.c */
    int32_t num_queues;
    orth_space space;               /* where kernels work: of every buffer that is added, until somebody says otherwise (offload.c) */
    int64_t piece_elems;            /* elements of a parameter that are updated at once (orth_param_piece_elems); 0: all */
    bool placed;                    /* the following is filled; place.c */
    size_t space_bytes[ORTH_NUM_SPACES];   /* arena sizes */
    size_t class_bytes[ORTH_NUM_SPACES][ORTH_NUM_CLASSES]; /* their sum over classes is space_bytes */
    size_t persistent_bytes[ORTH_NUM_SPACES][ORTH_NUM_CLASSES]; /* of which persistent */
    int32_t *persistent, num_persistent;   /* buffers in the order of their spaces and offsets, of a chain the first */
    size_t transient_offset[ORTH_NUM_SPACES], transient_bytes[ORTH_NUM_SPACES]; /* the region of transient buffers */
    size_t transient_class[ORTH_NUM_SPACES][ORTH_NUM_CLASSES]; /* what lives there when most does; with what no buffer fills
                                       then, in ACTIVATIONS, their sum is transient_bytes */
    int32_t peak_instr[ORTH_NUM_SPACES];   /* the first instruction during which most does */
    size_t peak_bytes[ORTH_NUM_SPACES];    /* of transient buffers then */
    size_t lower_bound;             /* persistent bytes + largest sums of live transient bytes; files left out */
    int64_t num_tokens;             /* tokens of one step on this rank */
    /* Where parameters are sharded: elements of each on each rank of the shard axis, and the rank of the axis that the
     * program is bound to (passes/views.h). */
    const int64_t **shard_counts;   /* [num_params][ranks], NULL for those that this rank has nothing to do with; NULL: nothing is sharded */
    int64_t *shard_first;           /* [num_params] where the shards of this rank begin; NULL: it was not bound yet */
    int64_t *first_sum;             /* [num_params + 1] where the sums of squares of each parameter begin */
    int32_t shard;
    int32_t *own, num_own;          /* instructions with views of the rank's own, or blocks of several sizes, in order;
                                     * orth_program_bind lists them */
    int32_t *own_buffers, num_own_buffers; /* those that hold shards, likewise */
    int32_t num_updates;            /* of each parameter in a step; as many orth_step_values: 1 unless asynchronous */
    bool borrows;                   /* buffers and instructions are another program's (passes/views.h) */
    bool failed;                    /* an allocation failed while building */
} orth_program;

void orth_program_init(orth_ctx *ctx, orth_program *p);
void orth_program_release(orth_program *p);

/* Builders note a failed allocation in the program; orth_program_done returns it. */
int32_t orth_program_add_buffer(orth_program *p, const orth_buffer *b);
orth_instr *orth_program_add_instr(orth_program *p, orth_op op, const orth_attr *attr, int num_in,
                                   const orth_operand *in, int num_out, const orth_operand *out);
/* The same instruction, its operands shared with *n. */
orth_instr *orth_program_append(orth_program *p, const orth_instr *n);
/* Gives n, which shares its operands with another instruction, copies of its own, so that they may be changed. False without memory, which
 * p->failed says from then on. */
bool orth_program_own_operands(orth_program *p, orth_instr *n);
/* Gives n, which shares its attributes with others, a copy of its own, and returns it, to be changed. NULL without memory, likewise. */
orth_attr *orth_program_own_attr(orth_program *p, orth_instr *n);
/* n gets the place in the step, and the node, of `like`. */
void orth_instr_tag_as(orth_instr *n, const orth_instr *like);
/* Lays buffers, none of which is in a chain, one after the other: same class, all persistent or all not. */
void orth_program_chain(orth_program *p, const int32_t *buffers, int n);
orth_status orth_program_done(orth_program *p);
/* "compute", "dp", "pp to 1", "cp from 2" into text. */
void orth_queue_name(const orth_queue *q, char *text, size_t size);

/* Sorts the bound buffers, whose names do not change any more: the next function then searches instead of looking at all. */
void orth_program_index(orth_program *p);
/* Elements of a buffer of a parameter or moment. */
static inline int64_t orth_buffer_elems(const orth_buffer *b)
{
    return (int64_t)(b->bytes / orth_dtype_bytes(b->dtype));
}
/* Bytes of all that is memory, which files are not. */
size_t orth_program_bytes(const orth_program *p);

/* The buffer bound to (bind, index); -1 if there is none. */
int32_t orth_program_find(const orth_program *p, orth_bind bind, int64_t index);

/* The buffer that `buffer` takes over from, through all that take over from each other: offsets are its. */
static inline int32_t orth_buffer_root(const orth_program *p, int32_t buffer)
{
    while (p->buffers[buffer].alias >= 0)
        buffer = p->buffers[buffer].alias;
    return buffer;
}

/* Where the buffer begins in the arena of its space. Transient ones lie behind those that are persistent, wherever these end. */
static inline size_t orth_buffer_begin(const orth_program *p, const orth_buffer *b)
{
    return b->offset + (b->persistent ? 0 : p->transient_offset[b->space]);
}

/* Whether it goes on by itself: it copies, or the host computes. No other rank takes part, and who starts an instruction of it does not wait
 * for those of other such queues. */
static inline bool orth_queue_is_alone(const orth_queue *q)
{
    return q->kind >= ORTH_QUEUE_COPY_IN && q->kind <= ORTH_QUEUE_HOST;
}
/* Whether it copies, and between which buffers. */
static inline bool orth_instr_copies(const orth_program *p, const orth_instr *n, const orth_buffer **from, const orth_buffer **to)
{
    if (n->op != ORTH_OP_copy)
        return false;
    *from = &p->buffers[n->in[0].buffer];
    *to = &p->buffers[n->out[0].buffer];
    return true;
}
/* A copy from one memory space to another; */
static inline bool orth_instr_moves(const orth_program *p, const orth_instr *n)
{
    const orth_buffer *from, *to;
    return orth_instr_copies(p, n, &from, &to) && from->space != to->space;
}
/* to or from a file. */
static inline bool orth_instr_moves_file(const orth_program *p, const orth_instr *n)
{
    const orth_buffer *from, *to;
    return orth_instr_copies(p, n, &from, &to) && (from->space == ORTH_SPACE_FILE || to->space == ORTH_SPACE_FILE);
}
/* Whether it gathers parameters (ZeRO 3) from shards, which nobody writes before the update. */
static inline bool orth_instr_gathers_params(const orth_program *p, const orth_instr *n)
{
    return n->op == ORTH_OP_all_gather && n->phase != ORTH_PHASE_UPDATE && p->buffers[n->in[0].buffer].cls == ORTH_CLASS_PARAMS;
}
/* The elements of a parameter that an optimizer's instruction updates. */
typedef struct {
    int64_t index, first, count;
} orth_updated;
orth_updated orth_instr_updates(const orth_program *p, const orth_instr *n);

/* View of `buffer` as a whole. */
orth_operand orth_operand_of(int32_t buffer, orth_dtype dtype, int num_dims, const int64_t *dim);
extern const orth_operand orth_operand_absent;
/* A product that reads its weight as the op that packs it left it, not the weight itself. */
static inline bool orth_instr_reads_packed(const orth_instr *i)
{
    return i->num_in > ORTH_IN_PACKED && i->in[ORTH_IN_PACKED].buffer >= 0 && orth_op_packing(i->op) != ORTH_NUM_OPS;
}
/* Its operands, inputs first. */
static inline int orth_instr_num_operands(const orth_instr *i)
{
    return i->num_in + i->num_out;
}
static inline const orth_operand *orth_instr_operand(const orth_instr *i, int k)
{
    return k < i->num_in ? &i->in[k] : &i->out[k - i->num_in];
}
/* Rows [begin, end) of dim 0. */
orth_operand orth_operand_rows(orth_operand o, int64_t begin, int64_t end);
static inline int64_t orth_operand_elems(const orth_operand *o)
{
    return orth_dims_elems(o->dim, o->num_dims);
}
static inline size_t orth_operand_bytes(const orth_operand *o)
{
    return o->buffer < 0 ? 0 : (size_t)orth_operand_elems(o) * orth_dtype_bytes(o->dtype);
}
/* Of all outputs. */
static inline int64_t orth_instr_output_elems(const orth_instr *n)
{
    int64_t elems = 0;
    for (int k = 0; k < n->num_out; k++)
        elems += n->out[k].buffer < 0 ? 0 : orth_operand_elems(&n->out[k]);
    return elems;
}
/* a ends where b begins, in one buffer or in a chain. */
bool orth_operands_adjoin(const orth_program *p, const orth_operand *a, const orth_operand *b);
/* Both have bytes in common, or may have on another rank that shares the program. */
bool orth_operands_overlap(const orth_operand *a, const orth_operand *b);
/* Shape and type without data, for cost and workspace functions. */
orth_tensor orth_operand_tensor(const orth_operand *o);

#endif
