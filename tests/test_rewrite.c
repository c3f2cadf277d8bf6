/* test_rewrite.c -- what passes stand on: who uses a buffer, found by looking at all instructions, and where instructions come
 * from. ORTH_SEED: the first of the random layouts. */
#include <time.h>

#include "layouts.h"
#include "program/compile.h"
#include "program/passes/rewrite.h"

typedef struct {
    layout_case c;
    orth_partition partition;
    orth_chunk chunks[16];
    orth_model_blocks blocks;
    orth_program p;
} compiled;

/* The program of one of the ranks, not placed. */
static void compile(orth_ctx *ctx, uint64_t seed, compiled *x)
{
    x->c = layout_random_case(seed, seed % 4 == 3 ? LAYOUT_FAST : LAYOUT_ANY);
    CHECK_OK(ctx, orth_partition_make(ctx, &x->partition, &x->c.layout, &x->c.model));
    orth_model_shape shape = layout_shape(&x->c);
    const int rank = (int)test_rand_int(seed, 0, 0, x->partition.mesh.num_ranks - 1);
    orth_partition_shape(&x->partition, rank, &shape, x->chunks);
    CHECK_OK(ctx, orth_model_blocks_build(ctx, &x->c.model, &shape, &x->blocks));
    orth_program_init(ctx, &x->p);
    CHECK_OK(ctx, orth_compile(ctx, &x->blocks.spec, &x->p));
}

static void release(orth_ctx *ctx, compiled *x)
{
    orth_program_release(&x->p);
    orth_model_blocks_release(&x->blocks);
    orth_partition_release(ctx, &x->partition);
}

static void put_back(orth_rewrite *r)
{
    for (int32_t i = 0; i < r->num; i++) {
        orth_rewrite_reach(r, i);
        orth_program_append(r->p, &r->old[i]);
    }
    orth_rewrite_reach(r, r->num);
    CHECK_OK(r->ctx, orth_rewrite_end(r));
}

TEST(uses_of_a_buffer_are_the_operands_in_it)
{
    orth_ctx *ctx = test_ctx(1);
    const uint64_t seed = test_seed();
    for (uint64_t i = 0; i < 6; i++) {
        compiled x;
        orth_rewrite r;
        compile(ctx, seed + i, &x);
        CHECK_OK(ctx, orth_rewrite_begin(ctx, &x.p, &r));
        assert_int_equal(x.p.num_instrs, 0);
        for (int32_t b = 0; b < x.p.num_buffers; b++) {
            int32_t u = r.first_use[b];
            for (int32_t n = 0; n < r.num; n++) {
                assert_true(orth_uses_behind(&r, b, n - 1) == u);
                for (int k = 0; k < orth_instr_num_operands(&r.old[n]); k++) {
                    if (orth_instr_operand(&r.old[n], k)->buffer != b)
                        continue;
                    assert_int_equal(r.uses[u].instr, n);
                    assert_int_equal(r.uses[u++].writes, k >= r.old[n].num_in);
                }
            }
            assert_int_equal(u, r.first_use[b + 1]);
        }
        put_back(&r);
        release(ctx, &x);
    }
    test_ctx_free(ctx);
}

/* One of both writes what the other names, by bytes or by whole buffers. */
static bool conflict(const orth_instr *a, const orth_instr *b, bool by_bytes)
{
    for (int i = 0; i < orth_instr_num_operands(a); i++)
        for (int k = 0; k < orth_instr_num_operands(b); k++) {
            const orth_operand *x = orth_instr_operand(a, i), *y = orth_instr_operand(b, k);
            const bool writes = i >= a->num_in || k >= b->num_in;
            if (writes && (by_bytes ? orth_operands_overlap(x, y) : x->buffer >= 0 && x->buffer == y->buffer))
                return true;
        }
    return false;
}

TEST(conflicts_are_those_that_all_pairs_have)
{
    orth_ctx *ctx = test_ctx(1);
    const uint64_t seed = test_seed();
    for (uint64_t c = 0; c < 6; c++) {
        compiled x;
        orth_rewrite r;
        compile(ctx, seed + c, &x);
        CHECK_OK(ctx, orth_rewrite_begin(ctx, &x.p, &r));
        for (int32_t i = (int32_t)(c % 5); i < r.num; i += 5) {
            int32_t before = i - 1, behind = i + 1;
            while (before >= 0 && !conflict(&r.old[before], &r.old[i], false))
                before--;
            while (behind < r.num && !conflict(&r.old[behind], &r.old[i], true))
                behind++;
            assert_int_equal(orth_conflict_before(&r, i), before);
            assert_int_equal(orth_conflict_behind(&r, i), behind);
        }
        put_back(&r);
        release(ctx, &x);
    }
    test_ctx_free(ctx);
}

/* ---- where instructions come from ---- */

static const orth_graph *graph_of(const compiled *x, orth_block_kind kind)
{
    const orth_model_blocks *m = &x->blocks;
    const orth_graph *graphs[] = {&m->embed, &m->layer, &m->final, &m->head};
    return graphs[kind];
}

static bool is_of_no_node(const orth_instr *n)
{
    return n->block == ORTH_BLOCK_NONE && n->node == -1;
}

/* One checkpoint: the final norm, and the gather of its rows, come with the backward. */
static bool is_late(const compiled *x, const orth_instr *n)
{
    return x->c.recompute.kind == ORTH_RECOMPUTE_ALL && n->block == ORTH_BLOCK_FINAL;
}

/* Layers share a graph, and gradients are made run by run. */
static void check_origin(const compiled *x, const orth_instr *n)
{
    const orth_graph *g = graph_of(x, n->block);
    assert_in_range(n->node, 0, g->num_nodes - 1);
    const orth_node *from = &g->nodes[n->node];
    assert_int_equal(n->block == ORTH_BLOCK_LAYER, n->layer >= 0 && n->layer < x->blocks.spec.num_layers);
    if (n->block != ORTH_BLOCK_HEAD && !is_late(x, n))
        assert_int_equal(n->phase == ORTH_PHASE_FORWARD || n->recomputed, from < g->nodes + g->num_forward);
    if (orth_op_family_of(from->op) == ORTH_OPS_GRAPH || orth_op_is_comm(n->op) || orth_op_family_of(n->op) == ORTH_OPS_PACK)
        return;
    assert_int_equal(n->op, from->op);
    assert_true(n->attr->heads == from->attr.heads && n->attr->act == from->attr.act && n->attr->norm == from->attr.norm &&
                n->attr->inverse == from->attr.inverse && n->attr->dropout == from->attr.dropout);
}

TEST(instructions_name_the_nodes_that_they_were_lowered_from)
{
    orth_ctx *ctx = test_ctx(1);
    const uint64_t seed = test_seed();
    for (uint64_t c = 0; c < 12; c++) {
        compiled x;
        compile(ctx, seed + c, &x);
        for (int32_t i = 0; i < x.p.num_instrs; i++) {
            const orth_instr *n = &x.p.instrs[i];
            if (n->block != ORTH_BLOCK_NONE)
                check_origin(&x, n);
            else
                assert_true(is_of_no_node(n));
            if (n->phase == ORTH_PHASE_UPDATE)
                assert_true(is_of_no_node(n));
            const bool keeps_part = n->op == ORTH_OP_copy; /* of a layer's input (memory.recompute_split) */
            /* gradients of the micro-batch before, whose call has taken until then (lower/follow.c) */
            const bool goes_on = n->op == ORTH_OP_tree_acc || n->op == ORTH_OP_widen || n->op == ORTH_OP_widen_int8;
            if (n->phase == ORTH_PHASE_FORWARD && !orth_op_is_comm(n->op) && !goes_on && !keeps_part)
                assert_true(n->node >= 0);
        }
        release(ctx, &x);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(uses_of_a_buffer_are_the_operands_in_it),
        cmocka_unit_test(conflicts_are_those_that_all_pairs_have),
        cmocka_unit_test(instructions_name_the_nodes_that_they_were_lowered_from),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
