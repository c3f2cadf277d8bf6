/* test_recompute.c -- activations that are made again (program/lower/recompute.h): every policy computes the bits of a plain run in
 * every kind of layout, keeps less, and repeats exactly what it says; and so do chunks of rows (lower/chunks.c). ORTH_SEED: the
 * first of the random layouts; ORTH_CHUNK_CASES: how many have chunks. */
#include <time.h>

#include "layout_run.h"
#include "program/check/check.h"
#include "program/compile.h"
#include "program/ir/cost.h"
#include "program/passes/place.h"

typedef struct {
    layout_case c;
    orth_partition partition;
    orth_chunk chunks[16];
    orth_model_blocks blocks;
    orth_program p;
} compiled;

static void compile(orth_ctx *ctx, const layout_case *c, int rank, compiled *x)
{
    x->c = *c;
    CHECK_OK(ctx, orth_partition_make(ctx, &x->partition, &x->c.layout, &x->c.model));
    orth_model_shape shape = layout_shape(&x->c);
    orth_partition_shape(&x->partition, rank, &shape, x->chunks);
    CHECK_OK(ctx, orth_model_blocks_build(ctx, &x->c.model, &shape, &x->blocks));
    orth_program_init(ctx, &x->p);
    CHECK_OK(ctx, orth_compile(ctx, &x->blocks.spec, &x->p));
    CHECK_OK(ctx, orth_place(ctx, &x->p, 2, ctx->isa, NULL));
    CHECK_OK(ctx, orth_check(ctx, &x->p));
}

static void release(orth_ctx *ctx, compiled *x)
{
    orth_program_release(&x->p);
    orth_model_blocks_release(&x->blocks);
    orth_partition_release(ctx, &x->partition);
}

TEST(every_policy_computes_the_bits_of_a_plain_run)
{
    const uint64_t seed = test_seed();
    for (int i = 1; i < LAYOUT_NUM_RECOMPUTE; i++) {
        layout_case c = layout_random_case(seed * 100 + (uint64_t)i, LAYOUT_ANY);
        for (uint64_t k = 1; orth_layout_ranks(&c.layout) > 16; k++)
            c = layout_random_case(seed * 100 + (uint64_t)i + 1000 * k, LAYOUT_ANY);
        layout_set_recompute(&c, layout_recompute(i));
        c.model.dropout = c.model.attn_dropout = c.model.embed_dropout = 0.1;
        c.steps = 2;
        check_layout(&c);
    }
}

/* A rank of one stage, or of two stages under gpipe, which keeps all micro-batches. */
static layout_case deep_case(int pp)
{
    layout_case c = layout_base_case(1, 1);
    c.model.layers = 16;
    c.layout.pp = pp;
    c.layout.pipeline = "gpipe";
    c.layout.seq_len = 64;
    return c;
}

static size_t region(orth_ctx *ctx, layout_case c, int policy)
{
    compiled x;
    layout_set_recompute(&c, layout_recompute(policy));
    compile(ctx, &c, 0, &x);
    const size_t bytes = x.p.transient_bytes[x.p.space];
    release(ctx, &x);
    return bytes;
}

TEST(policies_keep_as_little_as_they_say)
{
    enum { NONE, SELECTIVE, FULL, TWO, THREE, BLOCK, SQRT, OPS, KEEP, ALL };
    orth_ctx *ctx = test_ctx(1);
    size_t one[LAYOUT_NUM_RECOMPUTE], two[LAYOUT_NUM_RECOMPUTE];
    for (int i = 0; i < LAYOUT_NUM_RECOMPUTE; i++) {
        one[i] = region(ctx, deep_case(1), i);
        two[i] = region(ctx, deep_case(2), i);
        assert_true(i == NONE || (i == ALL ? two[i] < two[NONE] : one[i] < one[NONE] && two[i] < two[NONE]));
    }
    const size_t input = 64 * 32 * sizeof(float); /* of a layer, of one sequence */
    assert_true(one[FULL] < one[NONE] / 4 && one[FULL] < one[SELECTIVE] && one[FULL] < one[KEEP] && one[FULL] < one[BLOCK]);
    assert_true(two[TWO] <= two[FULL] - 8 * 4 * input + one[FULL] && two[SQRT] < two[FULL]);
    assert_true(two[ALL] < two[NONE] / 4); /* eight micro-batches keep an input each, and one has all */
    test_ctx_free(ctx);
}

TEST(chunks_are_whole_sequences_or_equal_canonical_parts_of_one)
{
    static const struct { int64_t most, seqs, len; int32_t parts; int64_t rows; int32_t of; } cases[] = {
        {1000, 4, 64, 8, 256, 1}, {200, 4, 64, 8, 128, 1}, {64, 4, 64, 8, 64, 1}, {63, 4, 64, 8, 32, 8}, {1, 4, 64, 8, 8, 8},
        {100, 3, 64, 8, 64, 1},   {20, 3, 64, 8, 16, 8},   {10, 1, 60, 8, 60, 1}, {1, 2, 64, 1, 64, 1},
    };
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        int32_t of;
        assert_int_equal(orth_ffn_chunk_rows(cases[i].most, cases[i].seqs, cases[i].len, cases[i].parts, &of), cases[i].rows);
        assert_int_equal(of, cases[i].of);
    }
}

TEST(hidden_values_of_a_feed_forward_in_chunks_never_exist_for_all_tokens)
{
    orth_ctx *ctx = test_ctx(1);
    layout_case c = deep_case(1);
    compiled plain, x;
    int32_t forward = 0, again = 0;
    compile(ctx, &c, 0, &plain);
    c.ffn_chunk_rows = 16;
    compile(ctx, &c, 0, &x);
    for (int32_t i = 0; i < x.p.num_instrs; i++) {
        const orth_instr *n = &x.p.instrs[i];
        if (n->op != ORTH_OP_swiglu)
            continue;
        forward += n->phase == ORTH_PHASE_FORWARD;
        again += n->recomputed;
        assert_int_equal(n->out[0].dim[0], 16);
        assert_int_equal(x.p.buffers[n->out[0].buffer].bytes, 16 * 48 * sizeof(float));
        assert_int_equal(x.p.buffers[n->in[0].buffer].bytes, 16 * 96 * sizeof(float));
    }
    assert_int_equal(forward, 16 * 8 * 4); /* layers, micro-batches, chunks */
    assert_int_equal(again, forward);
    const size_t hidden = 64 * (96 + 48) * sizeof(float); /* of a layer; the layer at the peak has some of its own */
    assert_true(x.p.transient_bytes[x.p.space] <= plain.p.transient_bytes[x.p.space] - 15 * hidden);
    assert_true(orth_program_cost(&x.p).model_flops == orth_program_cost(&plain.p).model_flops);
    release(ctx, &x);
    release(ctx, &plain);
    test_ctx_free(ctx);
}

TEST(a_feed_forward_in_chunks_computes_the_bits_of_a_plain_run)
{
    const uint64_t seed = test_seed();
    const char *given = getenv("ORTH_CHUNK_CASES");
    const int num = given ? atoi(given) : 5;
    for (int i = 0, k = 0; i < num; i++, k++) {
        layout_case c = layout_random_case(seed * 1000 + (uint64_t)k, LAYOUT_ANY);
        while (orth_layout_ranks(&c.layout) > 8)
            c = layout_random_case(seed * 1000 + (uint64_t)++k, LAYOUT_ANY);
        c.products = ORTH_RECIPE_none; /* a rule: rows of chunks would have scales of their own */
        layout_set_recompute(&c, c.recompute);
        c.ffn_chunk_rows = i % 3 == 0 ? 1 : i % 3 == 1 ? 6 : 24;
        c.head_chunk_rows = i % 2 ? 2 : 0;
        c.steps = 2;
        check_layout(&c);
    }
}

/* Eight layers of eight micro-batches wait with half of their inputs each; at the peak one of them has both its half and the whole. */
TEST(ranks_of_tensor_parallelism_keep_a_part_of_each_input)
{
    orth_ctx *ctx = test_ctx(1);
    const size_t half = 64 * 32 * sizeof(float) / 2;
    layout_case c = deep_case(2);
    compiled x;
    size_t bytes[2];
    c.layout.tp = 2;
    c.recompute = (orth_recompute){.kind = ORTH_RECOMPUTE_FULL};
    for (int k = 0; k < 2; k++) {
        c.recompute.split_input = k;
        compile(ctx, &c, 1, &x);
        bytes[k] = x.p.transient_bytes[x.p.space];
        release(ctx, &x);
    }
    assert_true(bytes[1] <= bytes[0] - 8 * 8 * half + 2 * half);
    test_ctx_free(ctx);
}

TEST(split_inputs_compute_the_bits_of_a_plain_run)
{
    const uint64_t seed = test_seed();
    int n = 0;
    for (uint64_t k = 0; n < 3; k++) {
        layout_case c = layout_random_case(seed * 1000 + k, LAYOUT_ANY);
        if (c.layout.tp == 1 || c.layout.sequence_parallel || orth_layout_ranks(&c.layout) > 8)
            continue;
        layout_set_recompute(&c, layout_recompute(n == 0 ? 2 : n == 1 ? 3 : 6));
        c.recompute.split_input = true;
        c.steps = 2;
        check_layout(&c);
        n++;
    }
}

/* The instruction of the forward that `n` repeats. */
static const orth_instr *original(const orth_program *p, const orth_instr *n)
{
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *o = &p->instrs[i];
        if (!o->recomputed && o->block == n->block && o->node == n->node && o->layer == n->layer && o->op == n->op &&
            o->micro_batch == n->micro_batch && o->attr->key_begin == n->attr->key_begin && o->attr->peer == n->attr->peer)
            return o;
    }
    return NULL;
}

TEST(what_is_made_again_repeats_the_forward_and_counts_as_hardware_flops)
{
    orth_ctx *ctx = test_ctx(1);
    const uint64_t seed = test_seed();
    for (int i = 1; i < LAYOUT_NUM_RECOMPUTE; i++) {
        layout_case c = layout_random_case(seed + (uint64_t)i, LAYOUT_ANY);
        compiled plain, x;
        int32_t again = 0;
        c.freeze.num = 0; /* each layer has a backward, of as many FLOPs */
        layout_set_recompute(&c, layout_recompute(0));
        compile(ctx, &c, 0, &plain);
        layout_set_recompute(&c, layout_recompute(i));
        compile(ctx, &c, 0, &x);
        for (int32_t k = 0; k < x.p.num_instrs; k++) {
            const orth_instr *n = &x.p.instrs[k];
            if (!n->recomputed || orth_op_family_of(n->op) == ORTH_OPS_PACK)
                continue;
            const orth_instr *o = original(&x.p, n);
            again++;
            assert_non_null(o);
            assert_int_equal(n->phase, ORTH_PHASE_BACKWARD);
            assert_true(o->attr->site == n->attr->site && o->attr->dropout == n->attr->dropout && o->attr->group == n->attr->group);
        }
        const orth_cost a = orth_program_cost(&plain.p), b = orth_program_cost(&x.p);
        assert_true(again > 0);
        assert_true(a.model_flops == b.model_flops && a.hardware_flops <= b.hardware_flops);
        assert_true(b.hardware_flops <= a.hardware_flops + a.model_flops / 3 + 1);
        release(ctx, &x);
        release(ctx, &plain);
    }
    test_ctx_free(ctx);
}

TEST(an_op_that_no_layer_has_is_named)
{
    static const char *const wrong[] = {"norm", "conv"};
    orth_ctx *ctx = test_ctx(1);
    layout_case c = layout_base_case(1, 0);
    c.recompute = (orth_recompute){.kind = ORTH_RECOMPUTE_OPS, .ops = wrong, .num_ops = 2};
    orth_model_shape shape = layout_shape(&c);
    orth_model_blocks blocks;
    shape.num_seqs = shape.num_micro_batches = 1;
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "a layer of this model and layout has no 'conv'; it has norm, linear, attention",
                orth_model_blocks_build(ctx, &c.model, &shape, &blocks));
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_policy_computes_the_bits_of_a_plain_run),
        cmocka_unit_test(policies_keep_as_little_as_they_say),
        cmocka_unit_test(chunks_are_whole_sequences_or_equal_canonical_parts_of_one),
        cmocka_unit_test(hidden_values_of_a_feed_forward_in_chunks_never_exist_for_all_tokens),
        cmocka_unit_test(a_feed_forward_in_chunks_computes_the_bits_of_a_plain_run),
        cmocka_unit_test(ranks_of_tensor_parallelism_keep_a_part_of_each_input),
        cmocka_unit_test(split_inputs_compute_the_bits_of_a_plain_run),
        cmocka_unit_test(what_is_made_again_repeats_the_forward_and_counts_as_hardware_flops),
        cmocka_unit_test(an_op_that_no_layer_has_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
