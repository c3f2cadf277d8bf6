/* test_verify.c -- `orthant verify`: equal layouts pass, a difference is named. */
#include "run_case.h"

/* The run file of run_case.h with `parallel` (and more sections) added, as NAME. */
static void write_variant(run_case *r, const char *name, const char *more)
{
    char *yaml = run_read(r, "run.yaml", NULL), text[1024];
    int n = snprintf(text, sizeof text, "%s%s\n", yaml, more);
    run_write(r, name, text, (size_t)n);
    free(yaml);
}

/* FROM with `with` in place of the first `text`, which is as long, as NAME. */
static void write_changed(run_case *r, const char *from, const char *name, const char *text, const char *with)
{
    char *yaml = run_read(r, from, NULL), *at = strstr(yaml, text);
    assert_non_null(at);
    memcpy(at, with, strlen(with));
    run_write(r, name, yaml, strlen(yaml));
    free(yaml);
}

TEST(layouts_of_one_problem_are_equal)
{
    static const char *const layouts[] = {
        "parallel: {dp: 2, tp: 2, pp: 2}", "parallel: {dp: 2, zero: 1}", "parallel: {dp: 2, zero: 2}",
        "parallel: {dp: 2, tp: 2, zero: 3, sequence_parallel: true}", "parallel: {tp: 2, pp: 2}",
    };
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(layouts); i++) {
        write_variant(r, "b.yaml", layouts[i]);
        RUN(r, 0, "are equal: loss, gradient norm and all gradients of 2 steps and all weights after them",
            "verify b.yaml run.yaml train.global_batch=8 --steps=2 model.dropout=0.1 precision.compute=bf16");
    }
    write_variant(r, "b.yaml", "parallel: {dp: 3}");
    RUN(r, 0, "keys that differ: parallel.dp", "verify run.yaml b.yaml model.preset=llama-tiny");
    /* Neither run folder nor temporary folder is left. */
    assert_false(run_has(r, "a"));
    RUN(r, 0, "", "verify run.yaml run.yaml --scratch=.");
    RUN(r, 0, "keys that differ: none", "verify run.yaml run.yaml --steps=1 train.steps=1");
    assert_int_equal(orthant(r, "help > /dev/null; ls -d orthant-verify-*"), 2);
    run_end(r);
}

/* Numerics differ from the first step on; the learning rate shows in the gradients of the second. */
TEST(a_difference_is_named_with_step_tensor_element_and_both_values)
{
    run_case *r = run_begin();
    write_variant(r, "b.yaml", "numerics: {parts: 2}");
    RUN(r, 6, "orthant: run.yaml and b.yaml differ first at step 1: ", "verify run.yaml b.yaml");
    if (!strstr(r->out, "gradient of ") || !strstr(r->out, "element [") || !strstr(r->out, "0x1.") ||
        !strstr(r->out, " tensors differ, in ") || !strstr(r->out, "keys that differ: numerics.parts"))
        fail_msg("%s", r->out);
    write_variant(r, "b.yaml", "memory: {limit: 1GB}");
    write_changed(r, "b.yaml", "c.yaml", "1.0e-3", "2.0e-3");
    RUN(r, 6, "b.yaml and c.yaml differ first at step 2: loss 0x", "verify b.yaml c.yaml");
    RUN(r, 6, "step 1: weight of embed.weight, element [0, 0]: ", "verify b.yaml c.yaml --steps=1");
    run_end(r);
}

TEST(other_problems_are_refused_by_the_key)
{
    run_case *r = run_begin();
    write_changed(r, "run.yaml", "b.yaml", "seed: 3", "seed: 4");
    RUN(r, 2, "verify: train.seed is 3 in the first run file and 4 in the second", "verify run.yaml b.yaml");
    RUN(r, 0, "are equal", "verify run.yaml b.yaml train.seed=5 --steps=1");
    RUN(r, 2, "give two run files", "verify run.yaml");
    RUN(r, 2, "none.yaml: there is no such run file", "verify run.yaml none.yaml");
    RUN(r, 2, "steps", "verify run.yaml run.yaml --steps=9");
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layouts_of_one_problem_are_equal),
        cmocka_unit_test(a_difference_is_named_with_step_tensor_element_and_both_values),
        cmocka_unit_test(other_problems_are_refused_by_the_key),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
