/* test_calibrate.c -- measured machines: coefficients, the file that holds them, and plans by it. */
#include "test.h"

#include <math.h>

#include "tools/calibrate.h"
#include "tools/price.h"

/* Planted coefficients come back, whatever the terms were; noise of both signs leaves the sum of all times as it is, and one time of a busy
 * machine leaves everything as it is. */
TEST(fitted_terms_are_those_that_made_the_times)
{
    enum { NUM = 40 };
    double terms[NUM * ORTH_OP_TERMS], times[NUM], noisy[NUM], c[ORTH_OP_TERMS], sum = 0, fitted = 0;
    const double planted[ORTH_OP_TERMS] = {200, 0.5, 0, 0.25, 0, 0.01};
    for (int k = 0; k < NUM; k++) {
        times[k] = 0;
        for (int i = 0; i < ORTH_OP_TERMS; i++) {
            terms[k * ORTH_OP_TERMS + i] = i == 0 ? 1 : exp(12 * (double)test_rand((uint64_t)i, (uint64_t)k));
            times[k] += planted[i] * terms[k * ORTH_OP_TERMS + i];
        }
        noisy[k] = times[k] * (1 + 0.05 * (double)(test_rand(99, (uint64_t)k) - 0.5f));
        sum += noisy[k];
    }
    times[7] *= 50;
    orth_fit_terms(ORTH_OP_TERMS, NUM, terms, times, 1.6, c);
    for (int i = 0; i < ORTH_OP_TERMS; i++)
        assert_true(fabs(c[i] - planted[i]) < 0.01 * planted[i] + 1e-4);
    orth_fit_terms(ORTH_OP_TERMS, NUM, terms, noisy, 1.6, c);
    for (int k = 0; k < NUM; k++)
        for (int i = 0; i < ORTH_OP_TERMS; i++) {
            assert_true(c[i] >= 0);
            fitted += c[i] * terms[k * ORTH_OP_TERMS + i];
        }
    assert_true(fabs(fitted / sum - 1) < 1e-3);
}

static const char run_file[] = "model: {family: llama, layers: 2, hidden: 64, heads: 4, kv_heads: 2, ffn: 128, vocab: 256}\n"
                               "data: {seq_len: 32}\ntrain: {global_batch: 8, micro_batch: 2}\n";

static orth_status price(orth_ctx *ctx, const char *hardware, const char *key, const char *value, orth_price *out)
{
    orth_config cfg;
    orth_place_to_run where;
    CHECK_OK(ctx, orth_config_init(ctx, &cfg));
    CHECK_OK(ctx, orth_config_parse(ctx, &cfg, "run.yaml", run_file, strlen(run_file)));
    CHECK_OK(ctx, orth_config_set(ctx, &cfg, "test", "run.hardware", hardware));
    CHECK_OK(ctx, orth_config_set(ctx, &cfg, "test", "run.threads", "1"));
    CHECK_OK(ctx, orth_config_set(ctx, &cfg, "test", key, value));
    CHECK_OK(ctx, orth_place_to_run_find(ctx, &where, NULL));
    const orth_status s = orth_price_run(ctx, &where, &cfg, out);
    orth_config_release(ctx, &cfg);
    return s;
}

static void write_text(const char *path, const char *text)
{
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs(text, f);
    fclose(f);
}

static double sum_of(const double *terms, int n)
{
    double sum = 0;
    for (int k = 0; k < n; k++)
        sum += terms[k];
    return sum;
}

/* The smallest models only: seconds of measuring, whatever they say. */
TEST(a_measured_machine_is_a_file_that_is_read_as_it_was_written_and_every_plan_by_it_is_the_same)
{
    orth_ctx *ctx = test_ctx(2);
    const orth_calibrate_options options = {.max_steps = 3, .model_seconds = 0.01, .brief = true, .file_dir = "."};
    orth_hardware *h = ORTH_NEW(ctx, orth_hardware), *again = ORTH_NEW(ctx, orth_hardware);
    orth_price first, second;
    CHECK_OK(ctx, orth_calibrate(ctx, &options, h));
    char *text = orth_calibrate_yaml(ctx, h);
    CHECK_OK(ctx, orth_hardware_parse(ctx, again, "machine.yaml", text, strlen(text)));
    assert_true(again->has_host && again->host_cores == 2 && again->isa == h->isa && again->device_fp32_tflops > 0);
    assert_true(again->node_file_GBps > 0 && again->node_file_write_GBps > 0);
    char *same = orth_calibrate_yaml(ctx, again);
    assert_string_equal(text, same);
    for (int set = 0; set < ORTH_NUM_TIMES; set++)
        assert_true(sum_of(again->times.of[set][ORTH_OP_linear], ORTH_OP_TERMS) > 0);
    assert_true(sum_of(again->times.call[ORTH_COMM_ALL_REDUCE], ORTH_CALL_TERMS) > 0);
    write_text("test_calibrate.yaml", text);
    CHECK_OK(ctx, price(ctx, "test_calibrate.yaml", "parallel.dp", "2", &first));
    CHECK_OK(ctx, price(ctx, "test_calibrate.yaml", "parallel.dp", "2", &second));
    remove("test_calibrate.yaml");
    assert_true(first.step_s > 0 && isfinite(first.step_s) && memcmp(&first, &second, sizeof first) == 0);
    orth_mem_free(ctx, same);
    orth_mem_free(ctx, text);
    orth_mem_free(ctx, again);
    orth_mem_free(ctx, h);
    test_ctx_free(ctx);
}

/* The rest is measured, and the file has no figure that was not. */
TEST(a_folder_that_cannot_have_a_file_leaves_the_rates_of_files_out)
{
    orth_ctx *ctx = test_ctx(1);
    const orth_calibrate_options options = {.max_steps = 1, .model_seconds = 0.001, .brief = true, .file_dir = "no/such"};
    orth_hardware *h = ORTH_NEW(ctx, orth_hardware);
    CHECK_OK(ctx, orth_calibrate(ctx, &options, h));
    char *text = orth_calibrate_yaml(ctx, h);
    assert_true(h->node_file_GBps == 0 && !strstr(text, "file_GBps") && h->device_fp32_tflops > 0);
    orth_mem_free(ctx, text);
    orth_mem_free(ctx, h);
    test_ctx_free(ctx);
}

#define MACHINE(cores) \
    "device: {name: X, memory_GiB: 4, memory_GBps: 10, fp32_tflops: 0.1}\nnode: {devices: 1}\nhost: {cores: " cores ", isa: base}\n" \
    "fp32_one:\n  linear: [1000, 0, 0, 0, 0, 0.05]\n  linear_dx: [1000, 0, 0, 0, 0, 0.05]\n  linear_dw: [1000, 0, 0, 0, 0, 0.05]\n" \
    "  adamw: [500, 0.1, 0, 0, 0, 0]\ncalls: {send: [1, 0, 0], recv: [1, 0, 0]}\n"

/* Ranks that compute all the time take as long on one core as one after the other; a pipeline's ranks also use the time in which others
 * wait, so that sharing costs them less, but no more than the cores have is done. */
TEST(ranks_that_share_a_core_take_the_time_of_their_work_together)
{
    orth_ctx *ctx = test_ctx(1);
    orth_price apart, together;
    write_text("test_calibrate_2.yaml", MACHINE("2"));
    write_text("test_calibrate_1.yaml", MACHINE("1"));
    CHECK_OK(ctx, price(ctx, "test_calibrate_2.yaml", "parallel.dp", "2", &apart));
    CHECK_OK(ctx, price(ctx, "test_calibrate_1.yaml", "parallel.dp", "2", &together));
    assert_true(!apart.refused && fabs(together.step_s / apart.step_s - 2) < 0.05);
    CHECK_OK(ctx, price(ctx, "test_calibrate_2.yaml", "parallel.pp", "2", &apart));
    CHECK_OK(ctx, price(ctx, "test_calibrate_1.yaml", "parallel.pp", "2", &together));
    assert_true(apart.wait_s > 0.1 * apart.step_s && together.step_s < 1.95 * apart.step_s);
    assert_true(together.step_s > 0.999 * 2 * apart.compute_s); /* compute_s: mean of both */
    remove("test_calibrate_1.yaml");
    remove("test_calibrate_2.yaml");
    test_ctx_free(ctx);
}

TEST(a_file_that_is_no_measured_machine_is_refused_by_name_and_rule)
{
    static const struct { const char *text, *message; } cases[] = {
        {"device: {name: X, memory_GiB: 4, memory_GBps: 10, fp32_tflops: 0.1}\nnode: {devices: 1}\n", "run.hardware=bad.yaml: has no section `host`"},
        {MACHINE("0"), "bad.yaml:3:15: host.cores=0: must be between 1 and 4096"},
        {MACHINE("1.5"), "bad.yaml:3:15: host.cores=1.5: must be a whole number"},
        {MACHINE("1") "bf16_one: {linear: [1, 2]}\n", "bf16_one.linear must be a list of 6 numbers"},
        {MACHINE("1") "bf16_one: {linear: 3}\n", "bf16_one.linear must be a list of 6 numbers"},
        {MACHINE("1") "bf16_one: {linear: [1, 2, 3, 4, 5, x]}\n", "bf16_one.linear=x: is not a number"},
        {MACHINE("1") "bf16_one: {linear: [1, 2, 3, 4, 5, -1]}\n", "bf16_one.linear=-1: must be between 0 and 1e+15 ns"},
        {MACHINE("1") "bf16_one: {linaer: [1, 2, 3, 4, 5, 6]}\n", "unknown key 'bf16_one.linaer' of hardware; did you mean 'bf16_one.linear'?"},
        {"device: {name: X, memory_GiB: 4, memory_GBps: 10, fp32_tflops: 0.1}\nnode: {devices: 1}\nhost: {cores: 1, isa: base}\n",
         "a host needs times of ops (fp32_one and so on)"},
        {"device: {name: X, memory_GiB: 4, memory_GBps: 10, fp32_tflops: 0.1}\nnode: {devices: 1}\ncalls: {send: [1, 0, 0]}\n",
         "calls are times of a host, and the section `host` is missing"},
        {"device: {name: X, memory_GiB: 4, memory_GBps: 10, fp32_tflops: 0.1}\nnode: {devices: 1}\nhost: {cores: 1, isa: sse}\nfp32_one: {adamw: [1, 0, 0, 0, 0, 0]}\n",
         "host.isa=sse: must be base, avx2, avx512, avx512bf16 or amx"},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_price p;
        write_text("bad.yaml", cases[i].text);
        CHECK_OK(ctx, price(ctx, "bad.yaml", "parallel.dp", "1", &p));
        if (!p.refused || !strstr(p.why, cases[i].message))
            fail_msg("case %d: wanted \"%s\", got \"%s\"", i, cases[i].message, p.why);
    }
    remove("bad.yaml");
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fitted_terms_are_those_that_made_the_times),
        cmocka_unit_test(a_measured_machine_is_a_file_that_is_read_as_it_was_written_and_every_plan_by_it_is_the_same),
        cmocka_unit_test(a_folder_that_cannot_have_a_file_leaves_the_rates_of_files_out),
        cmocka_unit_test(ranks_that_share_a_core_take_the_time_of_their_work_together),
        cmocka_unit_test(a_file_that_is_no_measured_machine_is_refused_by_name_and_rule),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
