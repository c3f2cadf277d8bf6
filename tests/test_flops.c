/* test_flops.c -- FLOPs, MFU, HFU and tokens a second are what the formulas and a count by hand say.
 *
 * Model FLOPs per token are 6 N + 6 L H D T, with N the weights of all products (embedding rows are looked up, not
 * multiplied; the head is a product) and causal attention: a query sees half of the keys on average. Sources: Kaplan et al.,
 * arXiv:2001.08361, section 2.1; Chowdhery et al., arXiv:2204.02311, appendix B (whose attention term is not causal: 12 L H D T).
 */
#include <jansson.h>
#include <math.h>

#include "program/ir/cost.h"
#include "run_case.h"

typedef struct {
    const char *options;
    double layers, hidden, q_rows, kv_rows, ffn, ffn_products, vocab, seq_len, batch;
} flops_case;

#define GPT2 "model.family=gpt2 model.layers=3 model.hidden=64 model.heads=4 model.ffn=256 model.vocab=304 data.seq_len=32 train.global_batch=8"
#define LLAMA "model.family=llama model.layers=2 model.hidden=64 model.heads=8 model.kv_heads=2 model.ffn=160 model.vocab=304 data.seq_len=64 " \
    "train.global_batch=8"
#define LONG "model.family=llama model.layers=2 model.hidden=64 model.heads=8 model.kv_heads=2 model.ffn=160 model.vocab=304 data.seq_len=256 " \
    "train.global_batch=2"

static const flops_case gpt2 = {GPT2, 3, 64, 64, 128, 256, 2, 304, 32, 8}, llama = {LLAMA, 2, 64, 64, 32, 160, 3, 304, 64, 8},
    long_sequences = {LONG, 2, 64, 64, 32, 160, 3, 304, 256, 2};

static double product_weights(const flops_case *c)
{
    return c->layers * (c->hidden * (c->q_rows + c->kv_rows) + c->q_rows * c->hidden + c->ffn_products * c->hidden * c->ffn) +
           c->vocab * c->hidden;
}

static double tokens(const flops_case *c)
{
    return c->seq_len * c->batch;
}

/* Scores and their sum with the values, for all pairs that the mask leaves: half of the square. */
static double attention_forward(const flops_case *c)
{
    return 2 * (2 * c->q_rows * c->seq_len * c->seq_len / 2) * c->layers * c->batch;
}

static json_t *plan(run_case *r, const char *options, const char *more)
{
    RUN(r, 0, "", "plan data.path=shards run.probe_s=0.003 %s %s --json", options, more);
    json_t *p = json_loads(strchr(r->out, '{'), JSON_DISABLE_EOF_CHECK, NULL);
    assert_non_null(p);
    return p;
}

static double field(json_t *p, const char *object, const char *name)
{
    json_t *v = json_object_get(object ? json_object_get(p, object) : p, name);
    assert_true(json_is_number(v));
    return json_number_value(v);
}

static double sum_over_ranks(json_t *p, const char *name)
{
    double sum = 0;
    size_t i;
    json_t *rank;
    json_array_foreach(json_object_get(p, "ranks"), i, rank)
        sum += field(rank, "flops", name);
    return sum;
}

static void expect_flops(run_case *r, const flops_case *c, const char *layout, bool replicas)
{
    json_t *p = plan(r, c->options, layout);
    const double model = 6 * product_weights(c) * tokens(c) + 3 * attention_forward(c);
    /* The backward of blocked attention makes the scores again: one product of five. */
    const double hardware = model + attention_forward(c) / 2;
    assert_true(sum_over_ranks(p, "model") == model);
    if (replicas)
        assert_true(sum_over_ranks(p, "hardware") > hardware);
    else
        assert_true(sum_over_ranks(p, "hardware") == hardware);
    assert_true(field(p, NULL, "tokens") == tokens(c));
    json_decref(p);
}

/* ---- each op, counted by its loops ---- */

static orth_operand matrix(int64_t rows, int64_t columns)
{
    return (orth_operand){.num_dims = 2, .dim = {rows, columns}};
}

/* Multiplies and adds of out[n][o] += a[n][k] * b[k][o], one by one. */
static double count_product(int64_t N, int64_t K, int64_t O)
{
    double count = 0;
    for (int64_t n = 0; n < N; n++)
        for (int64_t o = 0; o < O; o++)
            for (int64_t k = 0; k < K; k++)
                count += 2;
    return count;
}

static orth_cost cost_of(orth_op op, orth_operand a, orth_operand b, orth_operand out)
{
    const orth_instr i = {.op = op, .attr = &(orth_attr){0}, .num_in = 2, .in = (orth_operand[]){a, b}, .num_out = 1, .out = &out};
    return orth_instr_cost(&i);
}

TEST(flops_of_products_are_their_multiplies_and_adds)
{
    for (uint64_t s = 1; s <= 20; s++) {
        const int64_t N = test_rand_int(s, 0, 1, 40), K = test_rand_int(s, 1, 1, 40), O = test_rand_int(s, 2, 1, 40);
        const double count = count_product(N, K, O);
        assert_true(cost_of(ORTH_OP_linear, matrix(N, K), matrix(O, K), matrix(N, O)).model_flops == count);
        assert_true(cost_of(ORTH_OP_linear_dx, matrix(N, O), matrix(O, K), matrix(N, K)).model_flops == count);
        assert_true(cost_of(ORTH_OP_linear_dw, matrix(N, O), matrix(N, K), matrix(O, K)).model_flops == count);
        assert_true(cost_of(ORTH_OP_norm, matrix(N, K), matrix(K, 1), matrix(N, K)).hardware_flops == 0); /* pointwise: bytes */
    }
}

/* Of `products` products of D terms for each pair that the mask leaves: 2 in the forward (scores, values), 4 in the backward (dV, dP,
 * dQ, dK), which makes the scores again. The formula takes the diagonal as half seen, so it is below the count by at most 1/T. */
static double count_attention(const orth_attr *a, int products)
{
    double count = 0;
    for (int b = 0; b < a->num_seqs; b++)
        for (int h = 0; h < a->heads; h++)
            for (int q = 0; q < a->seq_len; q++)
                for (int k = 0; k <= q; k++)
                    count += 2.0 * products * a->head_dim;
    return count;
}

static void near_count(double formula, const orth_attr *a, int products)
{
    const double count = count_attention(a, products);
    assert_true(formula < count && count <= formula * (1 + 1.0 / a->seq_len) * (1 + 1e-12));
}

TEST(flops_of_attention_are_those_of_the_pairs_that_the_mask_leaves)
{
    for (uint64_t s = 1; s <= 10; s++) {
        const int T = 128 * (int)test_rand_int(s, 0, 1, 2), parts = 8, block = 64;
        const orth_attr a = {.num_seqs = (int32_t)test_rand_int(s, 1, 1, 3), .seq_len = T, .heads = (int32_t)test_rand_int(s, 2, 1, 4),
                             .head_dim = 8 * (int32_t)test_rand_int(s, 3, 1, 4), .token_parts = parts};
        const orth_cost forward = orth_instr_cost(&(orth_instr){.op = ORTH_OP_attention, .attr = &a});
        const orth_cost backward = orth_instr_cost(&(orth_instr){.op = ORTH_OP_attention_bwd, .attr = &a});
        near_count(forward.model_flops, &a, 2);
        near_count(backward.model_flops, &a, 4);
        near_count(backward.hardware_flops, &a, 5);
        /* By ring: the blocks of keys, for the queries of two ranks, are together the whole. */
        double blocks = 0, blocks_bwd = 0;
        for (int rank = 0; rank < 2; rank++)
            for (int key = 0; key < T; key += block) {
                orth_attr part = a;
                orth_instr i = {.op = ORTH_OP_attention_block, .attr = &part};
                part.full_len = T, part.seq_len = T / 2;
                part.slot_begin = rank * parts / 2, part.slot_count = parts / 2;
                part.key_begin = key, part.num_keys = block;
                blocks += orth_instr_cost(&i).model_flops;
                i.op = ORTH_OP_attention_block_bwd;
                blocks_bwd += orth_instr_cost(&i).hardware_flops;
            }
        assert_true(fabs(blocks / forward.model_flops - 1) < 1e-12);
        assert_true(fabs(blocks_bwd / backward.hardware_flops - 1) < 1e-12);
    }
}

/* Every new token against the whole cache, though it may be fuller than the sequence is long. */
TEST(flops_of_attention_on_a_cache_are_those_of_every_new_token_with_all_of_it)
{
    enum { B = 3, T = 2, S = 9, H = 4, KV = 2, D = 8 };
    const orth_attr a = {.heads = H, .kv_heads = KV, .head_dim = D};
    orth_operand in[4] = {matrix(B * T, (H + 2 * KV) * D), {.num_dims = 1, .dim = {B}}, {.num_dims = 3, .dim = {B, S, KV * D}},
                          {.num_dims = 3, .dim = {B, S, KV * D}}};
    orth_operand out = matrix(B * T, H * D);
    const orth_instr i = {.op = ORTH_OP_attention_cached, .attr = &a, .num_in = 4, .in = in, .num_out = 1, .out = &out};
    double count = 0;
    for (int token = 0; token < B * T; token++)
        for (int head = 0; head < H; head++)
            count += count_product(1, D, S) + count_product(1, S, D); /* scores, and the sum of values */
    const orth_cost c = orth_instr_cost(&i);
    assert_true(c.model_flops == count && c.hardware_flops == count);
}

/* ---- runs ---- */

TEST(flops_of_a_step_are_six_n_and_the_causal_attention)
{
    static const char *const layouts[] = {"", "train.micro_batch=2", "parallel.dp=2 parallel.zero=3", "parallel.tp=2",
                                          "parallel.tp=2 parallel.sequence_parallel=true parallel.dp=2", "parallel.pp=2",
                                          "parallel.cp=2 parallel.cp_kind=all_gather",
                                          "parallel.cp=2 parallel.cp_kind=all_to_all"};
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(layouts); i++) {
        expect_flops(r, &gpt2, layouts[i], false);
        expect_flops(r, &llama, layouts[i], false);
    }
    expect_flops(r, &long_sequences, "parallel.cp=2 parallel.cp_kind=ring", false); /* ring attention wants blocks of 64 keys */
    /* 2 heads of keys and values on 4 ranks: their rows are computed twice, and are the model's once. */
    expect_flops(r, &llama, "parallel.tp=4", true);
    run_end(r);
}

TEST(rates_of_a_plan_follow_from_its_flops_and_its_time)
{
    run_case *r = run_begin();
    json_t *p = plan(r, GPT2, "");
    const double s = field(p, "time", "step_s"), mfu = field(p, NULL, "mfu"), hfu = field(p, NULL, "hfu");
    assert_true(fabs(field(p, NULL, "tokens_per_s") * s / tokens(&gpt2) - 1) < 1e-6);
    assert_true(fabs(hfu / mfu * sum_over_ranks(p, "model") / sum_over_ranks(p, "hardware") - 1) < 1e-4);
    json_decref(p);
    run_end(r);
}

/* An H100 SXM multiplies bf16 at 989 TFLOP/s (its data sheet, without sparsity). */
TEST(the_mfu_of_a_plan_is_the_share_of_the_peak_of_its_devices)
{
    run_case *r = run_begin();
    const double peak = 989e12;
    for (int devices = 1; devices <= 4; devices *= 4) {
        char more[128];
        snprintf(more, sizeof more, "precision.compute=bf16 --cluster=h100-%d parallel.dp=%d", devices, devices);
        json_t *p = plan(r, GPT2, more);
        const double want = sum_over_ranks(p, "model") / field(p, "time", "step_s") / (devices * peak);
        assert_true(fabs(field(p, NULL, "mfu") / want - 1) < 1e-3); /* its description here has 989.5 */
        json_decref(p);
    }
    run_end(r);
}

TEST(rates_of_a_run_follow_from_its_flops_and_the_time_of_each_step)
{
    run_case *r = run_begin();
    RUN(r, 0, "", "train data.path=shards checkpoint.dir=a " GPT2 " train.steps=3 --quiet");
    char *text = run_read(r, "a/plan.json", NULL), *save = NULL;
    json_t *p = json_loads(text, 0, NULL);
    const double model = sum_over_ranks(p, "model"), hardware = sum_over_ranks(p, "hardware");
    const double planned_peak = model / field(p, "time", "step_s") / field(p, NULL, "mfu");
    json_decref(p);
    free(text);
    text = run_read(r, "a/metrics.jsonl", NULL);
    int steps = 0;
    double peak = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *row = json_loads(line, 0, NULL);
        if (json_object_get(row, "step_time_s")) {
            const double s = field(row, NULL, "step_time_s"), mfu = field(row, NULL, "mfu"), hfu = field(row, NULL, "hfu");
            assert_true(fabs(field(row, NULL, "tokens_per_s") * s / tokens(&gpt2) - 1) < 1e-3); /* 6 and 1 digits after the point */
            assert_true(fabs(hfu - mfu * hardware / model) < 2e-4); /* 4 digits */
            /* The peak that these fractions are of is one number, measured once; the plan measures its own. */
            peak = steps == 0 ? model / s / mfu : peak;
            assert_true(fabs(mfu - model / s / peak) < 2e-4 + 0.02 * mfu);
            assert_true(peak > planned_peak / 20 && peak < planned_peak * 20); /* a busy machine measures little */
            steps++;
        }
        json_decref(row);
    }
    assert_int_equal(steps, 3);
    free(text);
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(flops_of_products_are_their_multiplies_and_adds),
        cmocka_unit_test(flops_of_attention_are_those_of_the_pairs_that_the_mask_leaves),
        cmocka_unit_test(flops_of_attention_on_a_cache_are_those_of_every_new_token_with_all_of_it),
        cmocka_unit_test(flops_of_a_step_are_six_n_and_the_causal_attention),
        cmocka_unit_test(rates_of_a_plan_follow_from_its_flops_and_its_time),
        cmocka_unit_test(the_mfu_of_a_plan_is_the_share_of_the_peak_of_its_devices),
        cmocka_unit_test(rates_of_a_run_follow_from_its_flops_and_the_time_of_each_step),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
