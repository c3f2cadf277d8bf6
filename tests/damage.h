/* damage.h -- programs of all ranks of a small layout, and ways to harm them. */
#ifndef ORTH_TESTS_DAMAGE_H
#define ORTH_TESTS_DAMAGE_H

#include "layouts.h"
#include "program/check/check_ranks.h"
#include "program/compile.h"
#include "program/passes/order.h"
#include "program/passes/place.h"

/* The layouts that are harmed. */
typedef enum {
    LAYOUT_PP = 0,   /* two stages, 1F1B, four micro-batches, tied embeddings */
    LAYOUT_PP4, LAYOUT_DP, LAYOUT_TPDP, LAYOUT_SP, LAYOUT_ZERO1, LAYOUT_ZERO1_4, LAYOUT_ZERO2, LAYOUT_ZERO3,
    LAYOUT_CP, LAYOUT_RING, LAYOUT_TRADE, LAYOUT_KV, LAYOUT_UNEVEN,
    LAYOUT_HYBRID1, LAYOUT_HYBRID2, LAYOUT_HYBRID3, /* two replicas of two shards */
    LAYOUT_DELAYED,  /* products=fp8_delayed */
    LAYOUT_BUCKETS, LAYOUT_BUCKETS_ZERO1, LAYOUT_BUCKETS_ZERO3, /* those above: one by one, blocking */
    LAYOUT_INT8_ZERO1 /* gradients reduced in int8 */
} layout_name;

static inline layout_case damage_case(layout_name name)
{
    layout_case c = layout_base_case(5, name == LAYOUT_TPDP || name == LAYOUT_KV);
    c.comm = name >= LAYOUT_BUCKETS ? c.comm : (orth_comm_policy){.overlap = false};
    c.comm.reduce = name == LAYOUT_INT8_ZERO1 ? ORTH_Q8 : ORTH_F32;
    c.layout.reproducible = name != LAYOUT_INT8_ZERO1;
    c.layout.global_batch = name == LAYOUT_PP ? 4 : 8;
    c.model.tied = name == LAYOUT_PP || name == LAYOUT_ZERO3 || name == LAYOUT_INT8_ZERO1;
    c.model.vocab = name == LAYOUT_ZERO3 || name == LAYOUT_INT8_ZERO1 ? 2048 : 131; /* the first: two ranks meet inside the embedding */
    switch (name) {
    case LAYOUT_PP: c.layout.pp = 2; break;
    case LAYOUT_PP4: c.layout.pp = 4; break;
    case LAYOUT_TPDP: c.layout.tp = 2; c.layout.dp = 2; break;
    case LAYOUT_SP: c.layout.tp = 2; c.layout.sequence_parallel = true; break;
    case LAYOUT_RING:
        c.layout.cp = 2;
        c.layout.cp_kind = ORTH_CP_RING;
        c.layout.seq_len = c.model.max_seq = 256;
        break;
    case LAYOUT_TRADE: c.layout.cp = 2; c.layout.cp_kind = ORTH_CP_ALL_TO_ALL; break;
    case LAYOUT_CP: c.layout.cp = 2; c.layout.cp_kind = ORTH_CP_ALL_GATHER; break;
    case LAYOUT_UNEVEN: c.layout.dp = 2; layout_draw_shares(&c.layout, 1); break;
    case LAYOUT_KV: c.layout.tp = 2; c.model.kv_heads = 1; break;
    case LAYOUT_DELAYED:
        c.layout.dp = 2;
        c.products = ORTH_RECIPE_fp8_delayed;
        c.delayed.history = 1;
        break;
    case LAYOUT_ZERO1_4: c.layout.dp = 4; c.layout.zero = 1; break;
    case LAYOUT_HYBRID1:
    case LAYOUT_HYBRID2:
    case LAYOUT_HYBRID3:
        c.layout.dp = 4;
        c.layout.shard_group = 2;
        c.layout.zero = name - LAYOUT_HYBRID1 + 1;
        break;
    default:
        c.layout.dp = 2;
        c.layout.zero = name == LAYOUT_DP || name == LAYOUT_BUCKETS           ? 0
                        : name == LAYOUT_ZERO1 || name == LAYOUT_BUCKETS_ZERO1 || name == LAYOUT_INT8_ZERO1 ? 1
                        : name == LAYOUT_ZERO2                                 ? 2
                                                                               : 3;
    }
    return c;
}

#define MAX_RANKS 16

typedef struct {
    orth_ctx *ctx;
    orth_partition partition;
    int num_ranks;
    orth_model_blocks blocks[MAX_RANKS];
    orth_program p[MAX_RANKS];
    orth_chunk chunks[MAX_RANKS][16];
    int swapped_group;         /* a group that rank 1 lists the other way round; -1 */
    bool events_harmed;        /* else they are derived from the harmed list */
} patient;

static inline patient *patient_new(const layout_case *c, bool placed)
{
    patient *x = calloc(1, sizeof *x);
    x->ctx = test_ctx(1);
    x->swapped_group = -1;
    CHECK_OK(x->ctx, orth_partition_make(x->ctx, &x->partition, &c->layout, &c->model));
    x->num_ranks = x->partition.mesh.num_ranks;
    assert_true(x->num_ranks <= MAX_RANKS);
    for (int r = 0; r < x->num_ranks; r++) {
        orth_model_shape shape = layout_shape(c);
        orth_partition_shape(&x->partition, r, &shape, x->chunks[r]);
        CHECK_OK(x->ctx, orth_model_blocks_build(x->ctx, &c->model, &shape, &x->blocks[r]));
        orth_program_init(x->ctx, &x->p[r]);
        CHECK_OK(x->ctx, orth_compile(x->ctx, &x->blocks[r].spec, &x->p[r]));
        if (placed) {
            CHECK_OK(x->ctx, orth_place(x->ctx, &x->p[r], 1, x->ctx->isa, NULL));
            CHECK_OK(x->ctx, orth_order(x->ctx, &x->p[r]));
        }
    }
    return x;
}

static inline void patient_free(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++) {
        orth_program_release(&x->p[r]);
        orth_model_blocks_release(&x->blocks[r]);
    }
    orth_partition_release(x->ctx, &x->partition);
    test_ctx_free(x->ctx);
    free(x);
}

static inline orth_status patient_program(orth_ctx *ctx, void *user, int rank, orth_rank_program *out)
{
    (void)ctx;
    patient *x = user;
    *out = (orth_rank_program){&x->p[rank], x->blocks[rank].spec.params, x->blocks[rank].spec.num_params};
    return ORTH_OK;
}

static inline int patient_group(void *user, int rank, orth_group g, int *ranks)
{
    patient *x = user;
    int n = orth_partition_group(&x->partition, rank, g, ranks);
    if ((int)g == x->swapped_group && rank == 1 && n > 1) {
        int first = ranks[0];
        ranks[0] = ranks[1];
        ranks[1] = first;
    }
    return n;
}

static inline orth_status patient_check(patient *x)
{
    const orth_rank_source source = {.num_ranks = x->num_ranks, .user = x, .program = patient_program,
                                     .group = patient_group};
    return orth_check_ranks(x->ctx, &source);
}

/* ---- instruments ---- */

#define P(r) (&x->p[r])

/* The nth (from 0) instruction with this op, on this group if it communicates. */
static inline int32_t find_op(const orth_program *p, orth_op op, orth_group g, int nth)
{
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if (n->op == op && (!orth_op_is_comm(op) || n->attr->group == g) && nth-- == 0)
            return i;
    }
    fail_msg("no %s on %s", orth_op_name(op), orth_group_name(g));
    return -1;
}

static inline int32_t find_last(const orth_program *p, orth_op op, orth_group g)
{
    for (int32_t i = p->num_instrs - 1; i >= 0; i--)
        if (p->instrs[i].op == op && (!orth_op_is_comm(op) || p->instrs[i].attr->group == g))
            return i;
    fail_msg("no %s on %s", orth_op_name(op), orth_group_name(g));
    return -1;
}

/* The attributes of an instruction, to be harmed: no other's. */
static inline orth_attr *attr_of(orth_program *p, orth_instr *n)
{
    orth_attr *own = orth_program_own_attr(p, n);
    assert_non_null(own);
    return own;
}

/* The last event of a placed program that is about a queue of this kind on this group: to be harmed. */
static inline orth_wait *find_event(patient *x, int rank, orth_queue_kind kind, orth_group g)
{
    const orth_program *p = P(rank);
    x->events_harmed = true;
    for (int32_t i = p->num_instrs - 1; i >= 0; i--)
        for (int k = 0; k < p->instrs[i].num_waits; k++) {
            const orth_queue *q = &p->queues[p->instrs[i].waits[k].queue];
            if (q->kind == kind && q->group == g)
                return (orth_wait *)&p->instrs[i].waits[k];
        }
    fail_msg("nothing waits for a queue of kind %d on %s", (int)kind, orth_group_name(g));
    return NULL;
}

/* Takes that event away. */
static inline void drop_event(patient *x, int rank, orth_queue_kind kind, orth_group g)
{
    orth_wait *w = find_event(x, rank, kind, g);
    orth_instr *n = P(rank)->instrs;
    while (w < n->waits || w >= n->waits + n->num_waits)
        n++;
    *w = n->waits[--n->num_waits];
}

static inline void drop(orth_program *p, int32_t i)
{
    p->num_instrs--;
    memmove(p->instrs + i, p->instrs + i + 1, (size_t)(p->num_instrs - i) * sizeof *p->instrs);
}

/* A copy of instruction i with operands of its own, at the end of the program. */
static inline int32_t append_copy(orth_program *p, int32_t i)
{
    orth_instr n = p->instrs[i], *added;
    added = orth_program_add_instr(p, n.op, n.attr, n.num_in, n.in, n.num_out, n.out);
    added->counts = n.counts;
    added->phase = n.phase;
    added->layer = n.layer;
    added->micro_batch = n.micro_batch;
    return p->num_instrs - 1;
}

/* Instruction `from` goes to place `to`; those between move by one. */
static inline void move(orth_program *p, int32_t from, int32_t to)
{
    orth_instr n = p->instrs[from];
    int32_t step = from < to ? 1 : -1;
    for (int32_t i = from; i != to; i += step)
        p->instrs[i] = p->instrs[i + step];
    p->instrs[to] = n;
}

static inline void duplicate(orth_program *p, int32_t i)
{
    move(p, append_copy(p, i), i + 1);
}

static inline void swap(orth_program *p, int32_t i, int32_t j)
{
    orth_instr n = p->instrs[i];
    p->instrs[i] = p->instrs[j];
    p->instrs[j] = n;
}

/* `zero` of operand o, at place i. */
static inline void insert_zero(orth_program *p, int32_t i, orth_operand o)
{
    orth_program_add_instr(p, ORTH_OP_zero, &(orth_attr){0}, 0, NULL, 1, &o);
    move(p, p->num_instrs - 1, i);
}

/* The same in a placed program, where lives and events are those of the list before. */
static inline void insert_zero_unseen(patient *x, int rank, int32_t i, orth_operand o)
{
    orth_program *p = P(rank);
    int32_t passed = 0;
    for (int32_t k = 0; k < i; k++)
        passed += p->instrs[k].queue == 0;
    for (int32_t k = i; k < p->num_instrs; k++)
        for (int w = 0; w < p->instrs[k].num_waits; w++) {
            orth_wait *event = (orth_wait *)&p->instrs[k].waits[w];
            event->count += event->queue == 0 && event->count > passed;
        }
    for (int32_t b = 0; b < p->num_buffers; b++) {
        p->buffers[b].first += p->buffers[b].first >= i;
        p->buffers[b].last += p->buffers[b].last >= i;
    }
    p->queues[0].num_instrs++;
    insert_zero(p, i, o);
    x->events_harmed = true;
}

/* A buffer that is one rank's piece of a parameter: as if it began `by` elements later. */
static inline void shift_piece(orth_program *p, int64_t index, int64_t by)
{
    for (int32_t b = 0; b < p->num_buffers; b++) {
        orth_bind k = p->buffers[b].bind;
        bool of_param = k == ORTH_BIND_MASTER || k == ORTH_BIND_COPY || k == ORTH_BIND_GRAD || k == ORTH_BIND_M ||
                        k == ORTH_BIND_V || k == ORTH_BIND_SCALES;
        if (of_param && p->buffers[b].index == index)
            p->buffers[b].first_elem += by;
    }
}

/* ---- what is expected ---- */

typedef struct {
    const char *name;
    layout_name layout;
    bool placed;
    void (*harm)(patient *x);
    const char *says[4];
} damage;

/* False: it was accepted, or refused in other words. */
static inline bool damage_is_refused(const damage *d)
{
    layout_case c = damage_case(d->layout);
    patient *x = patient_new(&c, d->placed);
    CHECK_OK(x->ctx, patient_check(x)); /* in health */
    d->harm(x);
    for (int r = 0; r < x->num_ranks && d->placed && !x->events_harmed; r++)
        CHECK_OK(x->ctx, orth_order(x->ctx, &x->p[r])); /* events as the harmed list asks for */
    bool right = patient_check(x) != ORTH_OK;
    const char *said = right ? x->ctx->error.message : "accepted";
    for (int k = 0; k < ORTH_COUNT(d->says) && d->says[k]; k++)
        right = right && strstr(said, d->says[k]);
    if (!right || getenv("ORTH_SHOW_DAMAGE"))
        print_message("%s%s: %s\n", right ? "" : "WRONG: ", d->name, said);
    patient_free(x);
    return right;
}

static inline void damage_check_all(const damage *damages, int n)
{
    int refused = 0;
    for (int i = 0; i < n; i++)
        refused += damage_is_refused(&damages[i]);
    print_message("%d kinds of damage, %d refused as they should be\n", n, refused);
    assert_int_equal(refused, n);
}

#endif
