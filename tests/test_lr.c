/* test_lr.c -- the learning rate of every step is that of PyTorch's and Transformers' schedulers. */
#include <jansson.h>
#include <math.h>

#include "run_case.h"
#include "train/lr.h"

#define SCHEDULES ORTH_TEST_DIR "/fixtures/schedules/schedules.json"

static void set_options(orth_ctx *ctx, orth_config *cfg, json_t *options)
{
    const char *key;
    json_t *value;
    CHECK_OK(ctx, orth_config_init(ctx, cfg));
    json_object_foreach(options, key, value)
        CHECK_OK(ctx, orth_config_set(ctx, cfg, "fixture", key, json_string_value(value)));
    CHECK_OK(ctx, orth_config_check(ctx, cfg));
}

TEST(rates_are_those_of_pytorch_and_transformers)
{
    orth_ctx *ctx = test_ctx(1);
    json_error_t e;
    json_t *cases = json_load_file(SCHEDULES, 0, &e), *c;
    size_t i;
    assert_non_null(cases);
    assert_true(json_array_size(cases) >= 11);
    json_array_foreach(cases, i, c) {
        orth_config cfg;
        set_options(ctx, &cfg, json_object_get(c, "options"));
        json_t *lr = json_object_get(c, "lr");
        const double tolerance = json_number_value(json_object_get(c, "tolerance"));
        assert_int_equal(json_array_size(lr), cfg.train_steps);
        for (int64_t step = 1; step <= cfg.train_steps; step++) {
            const double want = json_number_value(json_array_get(lr, (size_t)step - 1)), got = orth_lr_at(&cfg, (double)step);
            if (fabs(got - want) > tolerance * cfg.optimizer_lr)
                fail_msg("%s: step %d has %.17g, wanted %.17g", json_string_value(json_object_get(c, "scheduler")), (int)step,
                         got, want);
        }
        orth_config_release(ctx, &cfg);
    }
    json_decref(cases);
    test_ctx_free(ctx);
}

TEST(a_run_takes_the_rates_of_its_schedule_and_reports_them)
{
    run_case *r = run_begin();
    orth_config cfg;
    CHECK_OK(r->ctx, orth_config_init(r->ctx, &cfg));
    char path[256];
    snprintf(path, sizeof path, "%s/run.yaml", r->dir);
    CHECK_OK(r->ctx, orth_config_load(r->ctx, &cfg, path));
    RUN(r, 0, "", "train run.yaml --quiet");
    char *text = run_read(r, "a/metrics.jsonl", NULL), *save = NULL;
    int steps = 0;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        json_t *row = json_loads(line, 0, NULL), *lr = json_object_get(row, "lr");
        assert_non_null(row);
        if (lr) {
            const double step = json_number_value(json_object_get(row, "step")), want = orth_lr_at(&cfg, step);
            assert_true(fabs(json_number_value(lr) - want) < 1e-7 * want); /* the optimizer takes it in fp32 */
            steps++;
        }
        json_decref(row);
    }
    assert_int_equal(steps, cfg.train_steps);
    free(text);
    orth_config_release(r->ctx, &cfg);
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(rates_are_those_of_pytorch_and_transformers),
        cmocka_unit_test(a_run_takes_the_rates_of_its_schedule_and_reports_them),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
