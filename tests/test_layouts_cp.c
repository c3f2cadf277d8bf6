/* test_layouts_cp.c -- context parallelism of each kind: bits, bytes, memory, fast mode. */
#include <math.h>

#include "layout_run.h"

/* Two or four ranks, and what attention and batches can be like. */
static void vary(layout_case *c, int k)
{
    c->layout.cp = k / 2 % 2 ? 4 : 2;
    c->layout.micro_batch = k % 3 ? 1 : 2;
    c->compute = k % 4 == 3 ? ORTH_BF16 : ORTH_F32;
    c->doc_mask = k % 3 == 1;
    c->model.qk_norm = k % 2 && k > 4;
    c->model.dropout = c->model.embed_dropout = c->model.attn_dropout = k >= 6 ? 0.1 : 0;
    c->layout.zero = k >= 8 ? k % 4 : 0;
}

/* Half of the cases are left out, others each time; none with ORTH_LAYOUTS=100 or more (make soak). */
static bool left_out(uint64_t seed, int k)
{
    const char *given = getenv("ORTH_LAYOUTS");
    return (!given || atoi(given) < 100) && test_rand_int(seed, (uint64_t)k, 0, 1);
}

/* Keys and values gathered; each rank has some token slots of every sequence. */
TEST(context_parallel)
{
    const uint64_t seed = test_seed();
    for (int k = 0; k < 16; k++) {
        if (left_out(seed, k))
            continue;
        layout_case c = layout_base_case(10, k);
        vary(&c, k);
        c.layout.seq_len = k % 5 ? 16 : 40;
        c.model.tied = k % 3 == 2;
        c.layout.dp = k >= 8 ? 2 : 1;
        check_layout(&c);
    }
    for (int k = 0; k < 2; k++) { /* long enough for several chunks of the head */
        layout_case c = layout_base_case(16, k);
        c.model.layers = 1;
        c.model.max_seq = c.layout.seq_len = 2048;
        c.layout.global_batch = c.layout.cp = 2;
        c.steps = 3;
        check_layout(&c);
    }
    for (int k = 0; k < 4; k++) { /* with every other axis */
        layout_case c = layout_base_case(11, k);
        c.layout.cp = c.layout.dp = c.layout.tp = c.layout.pp = 2;
        c.layout.sequence_parallel = k / 2;
        c.layout.zero = 2 * (k % 2) + 1;
        c.model.dropout = c.model.embed_dropout = c.model.attn_dropout = 0.1;
        c.model.tied = k % 2;
        check_layout(&c);
    }
}

/* Heads against tokens: with as many kv heads as ranks or more, and with fewer, where keys are gathered, too. */
TEST(context_parallel_by_all_to_all)
{
    const uint64_t seed = test_seed();
    for (int k = 0; k < 20; k++) {
        if (left_out(seed, k))
            continue;
        layout_case c = layout_base_case(17, k);
        vary(&c, k);
        c.layout.cp_kind = ORTH_CP_ALL_TO_ALL;
        c.layout.seq_len = k % 5 ? 16 : 40;
        c.layout.tp = k >= 12 ? 2 : 1;
        c.layout.sequence_parallel = k >= 16;
        c.layout.dp = k >= 8 && c.layout.tp == 1 ? 2 : 1;
        c.layout.pp = k % 5 == 1 ? 2 : 1;
        if (c.layout.tp * c.layout.cp > 4) { /* fewer heads than that */
            c.model.heads = 8;
            c.model.kv_heads = k % 2 ? 4 : 8;
            c.model.head_dim = 4;
        }
        check_layout(&c);
    }
}

TEST(context_parallel_by_ring)
{
    const uint64_t seed = test_seed();
    for (int k = 0; k < 16; k++) {
        if (left_out(seed, k))
            continue;
        layout_case c = layout_base_case(18, k);
        vary(&c, k);
        c.layout.cp_kind = ORTH_CP_RING;
        c.layout.global_batch = 4;
        c.layout.seq_len = c.model.max_seq = 128 * c.layout.cp * (k % 5 ? 1 : 2);
        c.model.layers = 2;
        c.layout.tp = k % 8 == 5 ? 2 : 1;
        c.layout.sequence_parallel = k % 8 == 5;
        c.layout.dp = k >= 8 && c.layout.tp == 1 ? 2 : 1;
        c.layout.pp = k % 5 == 1 ? 2 : 1;
        c.steps = 3 + k % 3;
        check_layout(&c);
    }
}

/* Elements of all gradients of a rank, a tied embedding counted twice. */
static int64_t gradient_elems(const orth_model_config *m)
{
    int64_t elems = m->tied ? m->vocab * m->hidden : 0;
    for (int64_t i = 0; i < orth_model_num_params(m); i++) {
        orth_param p;
        orth_ctx ctx = {.rank = 0};
        orth_model_param(&ctx, m, i, &p);
        elems += orth_param_elems(&p);
    }
    return elems;
}

/* The formulas of docs/context.md, for the last rank of a cp group. */
TEST(context_parallel_sends_what_its_formulas_say)
{
    for (int k = 0; k < 12; k++) {
        layout_case c = layout_base_case(12, k);
        const orth_model_config *m = &c.model;
        c.layout.cp = 2;
        c.layout.cp_kind = (orth_cp_kind)(k / 4);
        c.layout.global_batch = 4;
        c.layout.seq_len = c.model.max_seq = 256;
        c.compute = k / 2 % 2 ? ORTH_BF16 : ORTH_F32;
        c.model.tied = k % 2;
        c.steps = 3;
        check_layout(&c);
        const int64_t S = c.layout.global_batch * c.steps, N = S * m->layers * c.layout.seq_len, e = k / 2 % 2 ? 2 : 4;
        const int64_t cp = c.layout.cp, kv = N * 2 * m->kv_heads * m->head_dim, q = N * m->heads * m->head_dim;
        const int64_t *got = c.over_cp.ideal;
        const bool gathers = k / 4 == ORTH_CP_ALL_GATHER, trades = k / 4 == ORTH_CP_ALL_TO_ALL;
        assert_int_equal(got[ORTH_COMM_ALL_GATHER], gathers ? 2 * (cp - 1) * kv * e / cp : 0);
        assert_int_equal(got[ORTH_COMM_ALL_TO_ALL], trades ? 2 * (cp - 1) * (2 * q + kv) * e / cp / cp : 0);
        assert_int_equal(got[ORTH_COMM_SEND], gathers || trades ? 0 : 2 * (cp - 1 + (cp - 1)) * kv * e / (2 * cp));
        assert_int_equal(got[ORTH_COMM_REDUCE_SCATTER], trades ? 0 : (cp - 1) * kv * 4 / cp);
        assert_int_equal(got[ORTH_COMM_ALL_REDUCE], S * (4 * gradient_elems(m) + 8));
    }
}

/* Numbers are near those of one rank, whatever pieces a sequence is cut into. */
TEST(context_parallel_in_fast_mode)
{
    const uint64_t seed = test_seed();
    for (int k = 0; k < 12; k++) {
        if (left_out(seed, k))
            continue;
        layout_case c = layout_base_case(15, k);
        orth_layout *l = &c.layout;
        l->cp = k / 2 % 3 + 2;
        l->cp_kind = k < 6 ? ORTH_CP_ALL_GATHER : ORTH_CP_RING;
        l->tp = k % 4 == 3 ? 2 : 1;
        l->sequence_parallel = l->tp > 1;
        l->dp = k % 4 == 1 ? 2 : 1;
        l->zero = k % 4 == 1 ? 3 : 0;
        l->global_batch = 4;
        l->micro_batch = 1 + k % 2;
        l->seq_len = c.model.max_seq = k < 6 ? 24 * l->tp : 128 * l->cp;
        l->reproducible = false;
        l->parts = orth_layout_fast_parts(l);
        c.doc_mask = k % 3 == 1;
        c.steps = 3;
        c.tolerance = 1e-5;
        check_layout(&c);
    }
    for (int k = 0; k < 4; k++) { /* heads against tokens */
        layout_case c = layout_base_case(19, k);
        c.layout.cp = 2 + k / 2 * 2;
        c.layout.cp_kind = ORTH_CP_ALL_TO_ALL;
        c.layout.reproducible = false;
        c.layout.parts = orth_layout_fast_parts(&c.layout);
        c.layout.seq_len = 40;
        c.tolerance = 1e-5;
        check_layout(&c);
    }
}

/* Llama 3's layout of long sequences has 128 pieces, more than numerics.parts may be (tensor/parts.h). */
TEST(sequences_are_cut_into_more_pieces_than_numerics_parts_may_be)
{
    for (int k = 0; k < 2; k++) {
        layout_case c = layout_base_case(23, k);
        c.model.heads = 8;
        c.model.kv_heads = 8;
        c.model.hidden = 64;
        c.model.ffn = 96;
        c.model.layers = 1;
        c.model.max_seq = 128;
        c.layout.cp = 16;
        c.layout.tp = 8;
        c.layout.sequence_parallel = k;
        c.layout.global_batch = 2;
        c.layout.seq_len = 128;
        c.layout.reproducible = false;
        c.layout.parts = orth_layout_fast_parts(&c.layout);
        assert_int_equal(c.layout.parts, 128);
        c.steps = 3;
        c.tolerance = 1e-5;
        check_layout(&c);
    }
}

static size_t activation_bytes(orth_ctx *ctx, const layout_case *c)
{
    orth_partition partition;
    orth_chunk chunks[8];
    orth_compiled compiled;
    orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .seq_len = (int32_t)c->layout.seq_len,
                              .parts = (int32_t)c->layout.parts, .compute = c->compute, .optimizer = ORTH_OP_adamw};
    CHECK_OK(ctx, orth_partition_make(ctx, &partition, &c->layout, &c->model));
    orth_partition_shape(&partition, 0, &shape, chunks);
    CHECK_OK(ctx, orth_compiled_build(ctx, &c->model, &shape, &compiled));
    size_t bytes = compiled.program.class_bytes[ORTH_SPACE_HOST][ORTH_CLASS_ACTIVATIONS];
    orth_compiled_release(&compiled);
    orth_partition_release(ctx, &partition);
    return bytes;
}

/* What a rank needs beyond parameters, gradients and state, of what one rank needs. By all-gather, one layer's keys and
 * values of whole sequences remain. */
TEST(memory_of_a_rank_falls_with_cp)
{
    static const char *const kinds[] = {"all_gather", "ring", "all_to_all"};
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < 12; k++) {
        layout_case c = layout_base_case(13, k);
        c.compute = k / 2 % 2 ? ORTH_BF16 : ORTH_F32;
        c.layout.seq_len = c.model.max_seq = 2048;
        c.layout.cp_kind = (orth_cp_kind)(k / 4);
        size_t alone = activation_bytes(ctx, &c);
        for (c.layout.cp = 2; c.layout.cp <= 4; c.layout.cp *= 2) {
            size_t bytes = activation_bytes(ctx, &c);
            print_message("activations of a rank, %s, %s, %s, cp=%d: %zu of %zu bytes (%.2f)\n", k % 2 ? "llama" : "gpt2",
                          k / 2 % 2 ? "bf16" : "fp32", kinds[k / 4], (int)c.layout.cp, bytes, alone,
                          (double)bytes / (double)alone);
            assert_true((double)bytes < (c.layout.cp == 2 ? 0.7 : 0.45) * (double)alone);
        }
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(context_parallel),
        cmocka_unit_test(context_parallel_by_all_to_all),
        cmocka_unit_test(context_parallel_by_ring),
        cmocka_unit_test(context_parallel_sends_what_its_formulas_say),
        cmocka_unit_test(context_parallel_in_fast_mode),
        cmocka_unit_test(sequences_are_cut_into_more_pieces_than_numerics_parts_may_be),
        cmocka_unit_test(memory_of_a_rank_falls_with_cp),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
