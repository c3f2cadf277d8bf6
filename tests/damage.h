/* damage.h -- programs of all ranks of a small layout, and ways to harm them. */
#ifndef ORTH_TESTS_DAMAGE_H
#define ORTH_TESTS_DAMAGE_H

#include "layouts.h"
#include "program/check_ranks.h"
#include "program/place.h"

#define MAX_RANKS 16

typedef struct {
    orth_ctx *ctx;
    orth_spread spread;
    int num_ranks;
    orth_model_blocks blocks[MAX_RANKS];
    orth_program p[MAX_RANKS];
    orth_chunk chunks[MAX_RANKS][16];
    int swapped_group;         /* a group that rank 1 lists the other way round; -1 */
} patient;

static inline patient *patient_new(const layout_case *c, bool placed)
{
    patient *x = calloc(1, sizeof *x);
    x->ctx = test_ctx(1);
    x->swapped_group = -1;
    CHECK_OK(x->ctx, orth_spread_make(x->ctx, &x->spread, &c->layout, &c->model));
    x->num_ranks = x->spread.mesh.num_ranks;
    assert_true(x->num_ranks <= MAX_RANKS);
    for (int r = 0; r < x->num_ranks; r++) {
        orth_model_shape shape = layout_shape(c);
        orth_spread_shape(&x->spread, r, &shape, x->chunks[r]);
        CHECK_OK(x->ctx, orth_model_blocks_build(x->ctx, &c->model, &shape, &x->blocks[r]));
        orth_program_init(x->ctx, &x->p[r]);
        CHECK_OK(x->ctx, orth_compile(x->ctx, &x->blocks[r].spec, &x->p[r]));
        if (placed)
            CHECK_OK(x->ctx, orth_place(x->ctx, &x->p[r], 1, x->ctx->isa));
    }
    return x;
}

static inline void patient_free(patient *x)
{
    for (int r = 0; r < x->num_ranks; r++) {
        orth_program_release(&x->p[r]);
        orth_model_blocks_release(&x->blocks[r]);
    }
    orth_spread_release(x->ctx, &x->spread);
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
    int n = orth_spread_group(&x->spread, rank, g, ranks);
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

/* The nth (from 0) instruction with this op, on this group if it communicates. */
static inline int32_t find_op(const orth_program *p, orth_op op, orth_group g, int nth)
{
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if (n->op == op && (op < ORTH_FIRST_COMM_OP || n->attr.group == g) && nth-- == 0)
            return i;
    }
    fail_msg("no %s on %s", orth_op_name(op), orth_group_name(g));
    return -1;
}

static inline int32_t find_last(const orth_program *p, orth_op op, orth_group g)
{
    for (int32_t i = p->num_instrs - 1; i >= 0; i--)
        if (p->instrs[i].op == op && (op < ORTH_FIRST_COMM_OP || p->instrs[i].attr.group == g))
            return i;
    fail_msg("no %s on %s", orth_op_name(op), orth_group_name(g));
    return -1;
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
    added = orth_program_add_instr(p, n.op, &n.attr, n.num_in, n.in, n.num_out, n.out);
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

/* A buffer that is one rank's piece of a parameter: as if it began `by` elements later. */
static inline void shift_piece(orth_program *p, int64_t index, int64_t by)
{
    for (int32_t b = 0; b < p->num_buffers; b++) {
        orth_bind k = p->buffers[b].bind;
        bool of_param = k == ORTH_BIND_MASTER || k == ORTH_BIND_COPY || k == ORTH_BIND_GRAD || k == ORTH_BIND_M ||
                        k == ORTH_BIND_V;
        if (of_param && p->buffers[b].index == index)
            p->buffers[b].first_elem += by;
    }
}

#endif
