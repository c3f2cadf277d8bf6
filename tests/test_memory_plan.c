/* test_memory_plan.c -- what a plan says of memory: spaces, classes, what lives when most does. */
#include "test.h"

#include "config/config.h"
#include "plan/memory.h"
#include "train/describe.h"

/* A small run with these words, planned; release with close_plan. */
typedef struct {
    orth_ctx *ctx;
    orth_config cfg;
    orth_model_config model;
    orth_run_plan plan;
} plan_case;

static void open_plan(plan_case *c, const char *const *keys, const char *const *values, int n)
{
    c->ctx = test_ctx(1);
    CHECK_OK(c->ctx, orth_config_init(c->ctx, &c->cfg));
    CHECK_OK(c->ctx, orth_config_set(c->ctx, &c->cfg, "test", "model.preset", "gpt2-tiny"));
    CHECK_OK(c->ctx, orth_config_set(c->ctx, &c->cfg, "test", "data.seq_len", "32"));
    for (int i = 0; i < n; i++)
        CHECK_OK(c->ctx, orth_config_set(c->ctx, &c->cfg, "test", keys[i], values[i]));
    CHECK_OK(c->ctx, orth_config_check(c->ctx, &c->cfg));
    CHECK_OK(c->ctx, orth_describe_model(c->ctx, &c->cfg, &c->model));
    CHECK_OK(c->ctx, orth_describe_plan(c->ctx, &c->plan, &c->cfg, &c->model, false));
}

static void close_plan(plan_case *c)
{
    orth_run_plan_release(c->ctx, &c->plan);
    orth_config_release(c->ctx, &c->cfg);
    test_ctx_free(c->ctx);
}

/* ---- spaces and classes ---- */

TEST(each_space_has_its_section_in_text_and_json)
{
    orth_ctx *ctx = test_ctx(1);
    orth_memory m = {.of = {[ORTH_SPACE_HOST] = {[ORTH_CLASS_OPTIMIZER] = 128}, [ORTH_SPACE_DEVICE] = {[ORTH_CLASS_PARAMS] = 64}}};
    char *json = orth_memory_json(ctx, &m);
    assert_string_equal(json, "{\"params\": 64, \"grads\": 0, \"optimizer\": 128, \"activations\": 0, \"comm\": 0, \"workspace\": 0, "
                        "\"total\": 192, \"spaces\": {\"host\": {\"params\": 0, \"grads\": 0, \"optimizer\": 128, \"activations\": 0, "
                        "\"comm\": 0, \"workspace\": 0, \"total\": 128}, \"device\": {\"params\": 64, \"grads\": 0, \"optimizer\": 0, "
                        "\"activations\": 0, \"comm\": 0, \"workspace\": 0, \"total\": 64}}}");
    orth_mem_free(ctx, json);
    orth_text text = {0};
    orth_memory_add_rows(ctx, &text, &m, "rank 0");
    char *rows = orth_text_take(ctx, &text);
    assert_non_null(strstr(rows, "memory of rank 0, space host\n"));
    assert_non_null(strstr(rows, "memory of rank 0, space device\n"));
    orth_mem_free(ctx, rows);
    test_ctx_free(ctx);
}

/* Under ZeRO 2 and 3 a micro-batch's gradients are made, reduced into shards, and gone. */
TEST(gradients_that_live_within_a_step_are_of_the_class_grads)
{
    static const char *const keys[] = {"parallel.dp", "parallel.zero", "train.global_batch", "train.micro_batch"};
    static const char *const zeros[] = {"2", "3"};
    for (int i = 0; i < 2; i++) {
        const char *const values[] = {"2", zeros[i], "8", "1"};
        plan_case c;
        int parts = 0;
        open_plan(&c, keys, values, 4);
        const orth_unit *unit;
        CHECK_OK(c.ctx, orth_programs_of(c.ctx, &c.plan.programs, 0, &unit));
        for (int32_t b = 0; b < unit->program.num_buffers; b++) {
            const orth_buffer *buf = &unit->program.buffers[b];
            if (buf->persistent || strncmp(buf->name, "grad.", 5) != 0)
                continue;
            parts++;
            assert_true(buf->cls == ORTH_CLASS_GRADS || buf->cls == ORTH_CLASS_COMM);
        }
        assert_true(parts > 0);
        assert_true(unit->program.transient_class[ORTH_SPACE_HOST][ORTH_CLASS_GRADS] > 0);
        close_plan(&c);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_space_has_its_section_in_text_and_json),
        cmocka_unit_test(gradients_that_live_within_a_step_are_of_the_class_grads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
