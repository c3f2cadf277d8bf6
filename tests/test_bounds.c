/* test_bounds.c -- lower bounds of time and memory against full plans: they never exceed them. */
#include "test.h"

#include <stdlib.h>

#include "plan/bounds.h"
#include "tools/price.h"

/* Draws from a few values. */
typedef struct {
    uint64_t seed, at;
} draws;

static int64_t draw(draws *d, const int64_t *values, int n)
{
    return values[test_rand_int(d->seed, d->at++, 0, n - 1)];
}
#define DRAW(d, ...) draw((d), (const int64_t[]){__VA_ARGS__}, ORTH_COUNT(((const int64_t[]){__VA_ARGS__})))

static orth_hardware random_cluster(orth_ctx *ctx, draws *d)
{
    static const char *const names[] = {"h100", "a100-80gb", "v100", "rtx-4090", "tpu-v4", "mi300x"};
    orth_hardware h;
    CHECK_OK(ctx, orth_hardware_find(ctx, &h, names[DRAW(d, 0, 1, 2, 3, 4, 5)]));
    if (h.device_bf16_tflops == 0)
        h.device_bf16_tflops = 100;
    if (h.device_fp32_tflops == 0)
        h.device_fp32_tflops = 20;
    h.node_devices = (double)DRAW(d, 2, 4, 8);
    h.node_GBps *= (double)DRAW(d, 1, 1, 10) / (double)DRAW(d, 1, 1, 50);
    h.network_GBps /= (double)DRAW(d, 1, 1, 100);
    h.node_host_GBps /= (double)DRAW(d, 1, 1, 10, 1000); /* the last: a step is little but copies */
    h.node_memory_GBps *= (double)DRAW(d, 1, 1, 20);
    h.node_file_GBps = (double)DRAW(d, 0, 1, 20);
    h.has_network = true;
    if (h.network_GBps == 0) {
        h.network_GBps = 12;
        h.network_nics = 1;
        h.network_share = 0.8;
        h.network_latency_us = 10;
        h.network_taper = 1;
    }
    return h;
}

/* A random run, which may be invalid. */
static void random_run(orth_ctx *ctx, orth_config *cfg, draws *d, char text[1024])
{
    static const char *const pipelines[] = {"1f1b", "gpipe", "zb-h1", "interleaved", "zb-v", "naive"};
    static const char *const kinds[] = {"all_gather", "ring", "all_to_all"}, *const recompute[] = {"none", "selective", "full"},
                      *const tiers[] = {"none", "host", "file"};
    const int64_t tp = DRAW(d, 1, 1, 2, 4), cp = DRAW(d, 1, 1, 1, 2), pp = DRAW(d, 1, 1, 2, 4), dp = DRAW(d, 1, 2, 4), zero = DRAW(d, 0, 1, 2, 3);
    const int64_t pipeline = DRAW(d, 0, 0, 1, 2, 3, 4, 5), family = DRAW(d, 0, 1), fast = DRAW(d, 0, 1);
    const int64_t chunks = pipeline == 3 ? DRAW(d, 2, 3) : pipeline == 4 ? 2 : 1, micro = DRAW(d, 1, 2, 4), many = DRAW(d, 1, 2, 4, 8);
    const int64_t optimizer = DRAW(d, 0, 0, 1, 2), params = optimizer ? DRAW(d, 0, 1, 2) : 0, gradients = optimizer ? DRAW(d, 0, 1, 2) : 0;
    const int64_t quarters = optimizer && !params && !gradients ? DRAW(d, 4, 4, 3, 2, 1, 0) : 4;
    const bool codes = test_rand_int(d->seed + 1, d->at, 0, 2) == 0;
    snprintf(text, 1024,
             "model: {family: %s, layers: %d, hidden: %d, heads: %d, vocab: %d, max_seq: 512, tied: %s}\ndata: {seq_len: %d}\n"
             "train: {global_batch: %d, micro_batch: %d, clip_norm: %d}\nparallel: {dp: %d, tp: %d, pp: %d, cp: %d, cp_kind: %s, zero: %d, "
             "shard_group: %d, sequence_parallel: %s, pipeline: %s, virtual_stages: %d}\nprecision: {compute: %s, moments: %s}\nnumerics: {mode: %s}\n"
             "memory: {recompute: %s, offload_activations: %s, offload_optimizer: %s, offload_params: %s, offload_gradients: %s, "
             "offload_ratio: %g, packed_weights: %s}\n",
             family ? "llama" : "gpt2", (int)DRAW(d, 4, 8, 13), (int)DRAW(d, 128, 512, 1024), (int)DRAW(d, 4, 8), (int)DRAW(d, 256, 4096, 32000),
             DRAW(d, 0, 1) ? "true" : "false", (int)DRAW(d, 256, 512), (int)(dp * micro * many), (int)micro, (int)DRAW(d, 0, 1), (int)dp, (int)tp,
             (int)pp, (int)cp, kinds[DRAW(d, 0, 1, 2)], (int)zero, zero && dp == 4 ? (int)DRAW(d, 0, 0, 2) : 0, tp > 1 && DRAW(d, 0, 1) ? "true" : "false",
             pipelines[pipeline], (int)(pp == 1 ? 1 : chunks), DRAW(d, 0, 1) ? "bf16" : "fp32", codes ? "8bit" : "fp32", fast ? "fast" : "reproducible",
             recompute[DRAW(d, 0, 0, 1, 2)], tiers[DRAW(d, 0, 0, 1, 2)], tiers[optimizer], tiers[params], tiers[gradients], 0.25 * (double)quarters,
             DRAW(d, 0, 0, 0, 1) ? "true" : "false");
    CHECK_OK(ctx, orth_config_init(ctx, cfg));
    CHECK_OK(ctx, orth_config_parse(ctx, cfg, "run.yaml", text, strlen(text)));
}

/* Bounds of the run, read off its small run and guessed from that of one rank. */
static void bounds_of(orth_ctx *ctx, const orth_config *cfg, const orth_hardware *h, orth_bound *read, orth_bound *guessed)
{
    orth_model_config model;
    orth_bounds b;
    orth_block_costs costs, one;
    const orth_layout l = orth_setup_layout(cfg);
    const orth_model_shape step = orth_setup_shape(cfg, ORTH_MODE_TRAIN);
    orth_layout alone = l;
    CHECK_OK(ctx, orth_describe_model(ctx, cfg, &model));
    CHECK_OK(ctx, orth_bounds_make(ctx, &b, &model, h, &step));
    CHECK_OK(ctx, orth_block_costs_read(ctx, &b, &l, &step.recompute, &costs));
    CHECK_OK(ctx, orth_bound_of(ctx, &b, &costs, &l, &step.offload, read));
    alone.tp = alone.cp = 1;
    alone.sequence_parallel = false;
    alone.parts = l.reproducible ? l.parts : 1;
    CHECK_OK(ctx, orth_block_costs_read(ctx, &b, &alone, &step.recompute, &one));
    orth_block_costs_scale(&b, &one, &l, &costs);
    CHECK_OK(ctx, orth_bound_of(ctx, &b, &costs, &l, &step.offload, guessed));
    orth_bounds_release(ctx, &b);
}

static void check(const char *text, const orth_hardware *h, const char *what, double bound, double price)
{
    if (bound > price)
        fail_msg("%s: bound %.9g exceeds %.9g (x %.5f) on %s, %g a node, %g and %g GB/s, %g to the host, %g of files:\n%s", what, bound, price,
                 bound / price, h->device_name, h->node_devices, h->node_GBps, h->network_GBps, h->node_host_GBps, h->node_file_GBps, text);
}

TEST(no_bound_exceeds_the_full_plan_of_its_layout)
{
    const char *many = getenv("ORTH_BOUNDS");
    const int wanted = many ? atoi(many) : 50;
    draws d = {.seed = (uint64_t)(getenv("ORTH_SEED") ? atoll(getenv("ORTH_SEED")) : 20240917)};
    orth_ctx *ctx = test_ctx(1);
    double time = 0, memory = 0;
    printf("seed %llu\n", (unsigned long long)d.seed);
    for (int n = 0; n < wanted;) {
        orth_config cfg;
        orth_bound read, guessed;
        orth_price price;
        char text[1024];
        orth_place_to_run where = {.described = true, .hardware = random_cluster(ctx, &d)};
        random_run(ctx, &cfg, &d, text);
        CHECK_OK(ctx, orth_price_run(ctx, &where, &cfg, &price));
        if (!price.refused) {
            n++;
            bounds_of(ctx, &cfg, &where.hardware, &read, &guessed);
            check(text, &where.hardware, "time", read.step_s, price.step_s * (1 + 1e-6) + 1e-8);
            check(text, &where.hardware, "guessed time", guessed.step_s, price.step_s);
            check(text, &where.hardware, "memory", read.bytes, (double)price.bytes);
            check(text, &where.hardware, "guessed memory", guessed.bytes, (double)price.bytes);
            check(text, &where.hardware, "host memory", read.node_bytes, (double)price.budgets[ORTH_BUDGET_HOST].bytes);
            check(text, &where.hardware, "guessed host memory", guessed.node_bytes, (double)price.budgets[ORTH_BUDGET_HOST].bytes);
            check(text, &where.hardware, "files", read.node_file_bytes, (double)price.budgets[ORTH_BUDGET_FILES].bytes);
            check(text, &where.hardware, "guessed files", guessed.node_file_bytes, (double)price.budgets[ORTH_BUDGET_FILES].bytes);
            time += read.step_s / price.step_s / wanted;
            memory += read.bytes / (double)price.bytes / wanted;
        }
        orth_config_release(ctx, &cfg);
    }
    printf("bounds are %.3f of the time and %.3f of the memory\n", time, memory);
    test_ctx_free(ctx);
}

/* Where the link to the host is slow, a step is little but copies, and the bound is nearly all of it. */
TEST(a_step_of_copies_is_bounded_closely)
{
    static const struct {
        const char *run;
        int vocab;
        double host_GBps, file_GBps, least, least_bytes; /* of the bound, as parts of the plan */
    } cases[] = {
        {"memory: {offload_optimizer: host}", 256, 0.01, 0, 0.96, 0.95},
        {"memory: {offload_optimizer: host, offload_gradients: host}", 256, 0.01, 0, 0.8, 0.9},
        {"memory: {offload_optimizer: host, offload_gradients: host, offload_params: host}", 256, 0.01, 0, 0.9, 0.8},
        {"memory: {offload_optimizer: host, offload_gradients: host, offload_params: host}\nparallel: {dp: 4, zero: 3}", 256, 0.01, 0, 0.3, 0.5},
        {"memory: {offload_activations: host}", 256, 0.01, 0, 0.9, 0.95},
        {"memory: {offload_optimizer: file}", 256, 25, 0.01, 0.96, 0.95},
        {"memory: {offload_optimizer: host, offload_gradients: host, offload_params: host, offload_activations: host}", 65536, 25, 0, 0.55, 0.3},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < ORTH_COUNT(cases); k++) {
        orth_place_to_run where = {.described = true};
        orth_hardware *h = &where.hardware;
        orth_config cfg;
        orth_bound read, guessed;
        orth_price price;
        char text[1024];
        CHECK_OK(ctx, orth_hardware_find(ctx, h, "h100"));
        h->node_host_GBps = cases[k].host_GBps;
        h->node_file_GBps = cases[k].file_GBps;
        snprintf(text, sizeof text, "model: {family: llama, layers: 24, hidden: 256, heads: 4, vocab: %d, max_seq: 256}\ndata: {seq_len: 256}\n"
                 "train: {global_batch: 32, micro_batch: 1}\nprecision: {compute: bf16}\nnumerics: {mode: fast}\n%s\n", cases[k].vocab, cases[k].run);
        CHECK_OK(ctx, orth_config_init(ctx, &cfg));
        CHECK_OK(ctx, orth_config_parse(ctx, &cfg, "run.yaml", text, strlen(text)));
        CHECK_OK(ctx, orth_price_run(ctx, &where, &cfg, &price));
        assert_false(price.refused);
        bounds_of(ctx, &cfg, h, &read, &guessed);
        check(text, h, "time", read.step_s, price.step_s);
        check(text, h, "memory", read.bytes, (double)price.bytes);
        if (read.step_s < cases[k].least * price.step_s || read.bytes < cases[k].least_bytes * (double)price.bytes)
            fail_msg("bounds are %.3f of the time and %.3f of the memory:\n%s", read.step_s / price.step_s, read.bytes / (double)price.bytes, text);
        orth_config_release(ctx, &cfg);
    }
    test_ctx_free(ctx);
}

/* The host's update of an embedding moves more bytes for each element than that of other matrices; the longer stage has none. */
TEST(a_stage_without_the_embedding_is_bounded_by_its_moments_in_8_bits)
{
    static const char text[] = "model: {family: llama, layers: 24, hidden: 256, heads: 4, vocab: 32000, max_seq: 256, tied: false}\n"
        "data: {seq_len: 256}\ntrain: {global_batch: 2, micro_batch: 1}\nparallel: {pp: 2, stage_layers: [1, 23]}\n"
        "precision: {compute: bf16, moments: 8bit}\nmemory: {offload_optimizer: host}\n";
    orth_ctx *ctx = test_ctx(1);
    orth_place_to_run where = {.described = true};
    orth_config cfg;
    orth_bound read, guessed;
    orth_price price;
    CHECK_OK(ctx, orth_hardware_find(ctx, &where.hardware, "h100"));
    where.hardware.node_devices = 2;
    where.hardware.node_memory_GBps = 1; /* a step is little but the update */
    CHECK_OK(ctx, orth_config_init(ctx, &cfg));
    CHECK_OK(ctx, orth_config_parse(ctx, &cfg, "run.yaml", text, strlen(text)));
    CHECK_OK(ctx, orth_price_run(ctx, &where, &cfg, &price));
    assert_false(price.refused);
    bounds_of(ctx, &cfg, &where.hardware, &read, &guessed);
    check(text, &where.hardware, "time", read.step_s, price.step_s);
    check(text, &where.hardware, "guessed time", guessed.step_s, price.step_s);
    assert_true(read.step_s > 0.8 * price.step_s);
    orth_config_release(ctx, &cfg);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_bound_exceeds_the_full_plan_of_its_layout),
        cmocka_unit_test(a_step_of_copies_is_bounded_closely),
        cmocka_unit_test(a_stage_without_the_embedding_is_bounded_by_its_moments_in_8_bits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
