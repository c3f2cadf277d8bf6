/* test_compiled_once.c -- ranks with equal programs share one that was compiled once. Calls of the compiler are counted where they
 * happen: the linker leads orth_compile here. */
#include <stdatomic.h>

#include "program/compile.h"
#include "run_case.h"
#include "train/run.h"

static _Atomic int num_compiled;

orth_status __real_orth_compile(orth_ctx *ctx, const orth_compile_spec *spec, orth_program *out);
orth_status __wrap_orth_compile(orth_ctx *ctx, const orth_compile_spec *spec, orth_program *out);
orth_status __wrap_orth_compile(orth_ctx *ctx, const orth_compile_spec *spec, orth_program *out)
{
    atomic_fetch_add(&num_compiled, 1);
    return __real_orth_compile(ctx, spec, out);
}

/* Trains in the folder `dir` of r; how often something was compiled. */
static int train(run_case *r, const char *dir, const char *options, int64_t timeline)
{
    char text[1024];
    orth_config cfg;
    CHECK_OK(r->ctx, orth_config_init(r->ctx, &cfg));
    snprintf(text, sizeof text, "model.preset=gpt2-tiny model.vocab=300 model.dropout=0.1 data.path=%s/shards data.seq_len=32 train.steps=3 "
             "train.global_batch=8 train.micro_batch=1 train.eval_every=2 checkpoint.dir=%s/%s run.threads=1 run.probe_s=0.003", r->dir, r->dir, dir);
    run_set_keys(r->ctx, &cfg, text);
    run_set_keys(r->ctx, &cfg, options);
    const orth_run_options o = {.cfg = &cfg, .timeline = timeline};
    atomic_store(&num_compiled, 0);
    CHECK_OK(r->ctx, orth_run_whole(r->ctx, &o));
    orth_config_release(r->ctx, &cfg);
    return atomic_load(&num_compiled);
}

/* A step and an evaluation of each program; plan, check, price, ranks and timeline have them in common. */
TEST(a_run_compiles_each_program_once_for_all_ranks_that_share_it)
{
    static const struct {
        const char *options;
        int programs;
    } layouts[] = {
        {"parallel.dp=4", 1}, {"parallel.dp=4 parallel.zero=1", 1}, {"parallel.dp=4 parallel.zero=2", 1},
        {"parallel.dp=4 parallel.zero=3", 1}, {"parallel.dp=4 parallel.zero=3 parallel.shard_group=2", 1},
        {"parallel.dp=4 parallel.pp=2 parallel.zero=1", 2}, {"parallel.dp=2 parallel.tp=2 parallel.zero=3", 2},
        {"parallel.dp=2 parallel.tp=4 parallel.sequence_parallel=true", 4}, {"parallel.dp=2 parallel.cp=2 parallel.zero=2", 2},
        {"parallel.dp=2 parallel.dp_share=[3,1]", 2},
    };
    run_case *r = run_begin();
    assert_int_equal(train(r, "one", "parallel.dp=1", 0), 2);
    for (int i = 0; i < ORTH_COUNT(layouts); i++) {
        char dir[16];
        snprintf(dir, sizeof dir, "run%d", i);
        const int n = train(r, dir, layouts[i].options, i % 2 ? 2 : 0);
        if (n != 2 * layouts[i].programs)
            fail_msg("%s: %d programs were compiled, %d are distinct", layouts[i].options, n, 2 * layouts[i].programs);
        run_same(r, "one", dir, 3);
    }
    assert_int_equal(train(r, "fast", "parallel.dp=4 parallel.dp_share=[3,3,1,1] numerics.mode=fast", 0), 2 * 2);
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_run_compiles_each_program_once_for_all_ranks_that_share_it)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
