/* test_memory.c -- plans of memory and of bytes sent against what runs take: nothing more, and nothing during a step. */
#include <jansson.h>
#include <malloc.h>
#include <time.h>

#include "plan/plan.h"
#include "run_case.h"
#include "train/describe.h"
#include "train/run.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

/* ---- a step allocates nothing ---- */

typedef struct {
    orth_ctx *ctx;
    orth_faults faults;
    int steps;
    int64_t heap;
    size_t libc_bytes;
} guard;

static size_t libc_bytes(void)
{
    struct mallinfo2 m = mallinfo2();
    return m.uordblks + m.hblkhd;
}

/* Asked after each step, and between the batches of the evaluation at the end. From the second step to the sixth, an
 * allocation fails. */
static int watch(void *user)
{
    guard *g = user;
    if (++g->steps == 2) {
        g->faults = (orth_faults){.alloc = 1};
        g->ctx->faults = &g->faults;
        g->heap = g->ctx->heap_bytes;
        g->libc_bytes = libc_bytes();
    }
    if (g->steps > 2 && g->steps <= 7) {
        assert_int_equal(g->ctx->heap_bytes, g->heap);
        assert_int_equal(libc_bytes(), g->libc_bytes);
    }
    if (g->steps == 7) {
        assert_int_equal(g->faults.alloc, 1); /* nobody asked */
        g->ctx->faults = NULL;
    }
    return 0;
}

TEST(an_allocator_that_fails_after_step_1_is_not_noticed)
{
    static const char *const types[] = {"fp32", "bf16"};
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(types); i++) {
        orth_ctx *ctx = test_ctx(2);
        orth_config cfg;
        orth_run run;
        char path[256];
        CHECK_OK(ctx, orth_config_init(ctx, &cfg));
        snprintf(path, sizeof path, "%s/run.yaml", r->dir);
        CHECK_OK(ctx, orth_config_load(ctx, &cfg, path));
        CHECK_OK(ctx, orth_config_set(ctx, &cfg, "test", "precision.compute", types[i]));
        snprintf(path, sizeof path, "%s/shards", r->dir);
        CHECK_OK(ctx, orth_config_set(ctx, &cfg, "test", "data.path", path));
        snprintf(path, sizeof path, "%s/run%d", r->dir, i);
        CHECK_OK(ctx, orth_config_set(ctx, &cfg, "test", "checkpoint.dir", path));
        guard g = {.ctx = ctx};
        orth_run_options options = {.cfg = &cfg, .stop = watch, .stop_user = &g};
        CHECK_OK(ctx, orth_run_open(ctx, &run, &options, NULL));
        CHECK_OK(ctx, orth_run_train(ctx, &run));
        assert_true(g.steps > 8);
        orth_run_close(ctx, &run);
        orth_config_release(ctx, &cfg);
        test_ctx_free(ctx);
    }
    run_end(r);
}

/* ---- planned and counted ---- */

/* The memory objects of all ranks in a text, one to a line; free(). */
static char *memories(const char *text)
{
    char *all = calloc(1, strlen(text) + 1);
    for (const char *at = text; (at = strstr(at, "\"memory\": {")) != NULL; at++) {
        strncat(all, at, (size_t)(strchr(at, '}') - at));
        strcat(all, "\n");
    }
    assert_true(all[0] != '\0');
    return all;
}

static char *memory_of(run_case *r, const char *name)
{
    char *text = run_read(r, name, NULL), *all = memories(text);
    free(text);
    return all;
}

/* "total" of the first rank. */
static long total_of(const char *memory)
{
    const char *at = strstr(memory, "\"total\": ");
    assert_non_null(at);
    return atol(at + 9);
}

/* A workspace for eight threads, which lies in the memory of activations while the run evaluates, and few activations. */
#define EVAL_IS_LARGER "model.layers=1 data.seq_len=8 train.micro_batch=1 run.threads=8"

#define HANDS_IN "train.steps=3 train.global_batch=8 train.micro_batch=1 parallel.dp=2 parallel.zero=3 parallel.tp=2 parallel.pp=2 "

#define PLAIN_SGD "optimizer.name=sgd optimizer.momentum=0 "

TEST(planned_bytes_of_a_run_are_the_counted_ones)
{
    static const char *const flavours[] = {
        "", "precision.compute=bf16 model.preset=llama-tiny",
        "model.preset=qwen3-tiny model.vocab=300 data.doc_mask=true",
        "model.dropout=0.1 optimizer.name=sgd train.micro_batch=6", "train.micro_batch=1 numerics.mode=fast",
        "model.layers=1 data.seq_len=8", "train.steps=3 checkpoint.every_steps=2",
        "model.attention=full precision.compute=bf16 data.valid_fraction=0.2",
        "train.global_batch=8 parallel.dp=2 parallel.zero=1 run.threads=4", /* two threads for each rank */
        "train.global_batch=8 parallel.dp=4 parallel.zero=HYBRID_SHARD parallel.shard_group=2 parallel.keep_whole=100",
        EVAL_IS_LARGER, "parallel.pp=2 model.layers=2 data.seq_len=8 run.threads=1",
        "parallel.tp=2 parallel.cp=2 model.layers=1 data.seq_len=16 train.micro_batch=1 run.threads=8",
        /* what ranks hand in to rank 0, whole and tensor by tensor */
        HANDS_IN "checkpoint.every_steps=1", HANDS_IN "checkpoint.every_steps=1 checkpoint.async=false",
        HANDS_IN "optimizer.name=sgd checkpoint.every_steps=2 precision.compute=bf16", HANDS_IN "optimizer.name=sgd",
        PLAIN_SGD, HANDS_IN PLAIN_SGD "checkpoint.every_steps=2", HANDS_IN PLAIN_SGD "checkpoint.every_steps=2 precision.compute=bf16",
        "precision.fp32_products=bf16x6", "train.micro_batch=3 memory.packed_weights=true precision.compute=bf16",
    };
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(flavours); i++) {
        char name[64];
        if (!run_can(flavours[i]))
            continue;
        RUN(r, 0, "saved", "train run.yaml train.steps=1 checkpoint.dir=m%d %s", i, flavours[i]);
        snprintf(name, sizeof name, "m%d/plan.json", i);
        char *plan = memory_of(r, name);
        snprintf(name, sizeof name, "m%d/memory.json", i);
        char *counted = memory_of(r, name);
        assert_string_equal(plan, counted);
        RUN(r, 0, "", "plan run.yaml --json %s", flavours[i]);
        char *priced = memories(r->out);
        assert_string_equal(plan, priced);
        free(priced);
        free(plan);
        free(counted);
    }
    run_end(r);
}

static char *planned(run_case *r, const char *words)
{
    RUN(r, 0, "", "plan run.yaml --json %s", words);
    return memories(r->out);
}

TEST(plain_sgd_keeps_no_state)
{
    run_case *r = run_begin();
    char *with = planned(r, "optimizer.name=sgd"), *without = planned(r, PLAIN_SGD), *in_file = planned(r, PLAIN_SGD "memory.offload_optimizer=file");
    assert_null(strstr(with, "\"optimizer\": 0,"));
    assert_non_null(strstr(without, "\"optimizer\": 0,"));
    assert_null(strstr(in_file, "\"file\""));
    free(with);
    free(without);
    free(in_file);
    run_end(r);
}

#define RING "parallel.cp=2 parallel.cp_kind=ring data.seq_len=256 model.max_seq=256 "

/* What a layer has in place of attention and linear goes by these words, too. */
TEST(words_for_operations_mean_their_variants)
{
    static const char *const pairs[][2] = {
        {"parallel.cp=2 memory.recompute=selective", "parallel.cp=2 memory.recompute=ops memory.recompute_ops=[attention]"},
        {"parallel.cp=2 memory.recompute=keep memory.recompute_ops=[linear,attention_part]",
         "parallel.cp=2 memory.recompute=keep memory.recompute_ops=[linear,attention]"},
        {RING "memory.recompute=selective", RING "memory.recompute=ops memory.recompute_ops=[attention]"},
        {"model.attention=full memory.recompute=selective", "model.attention=full memory.recompute=ops memory.recompute_ops=[attention]"},
        {"precision.products=mxfp8 memory.recompute=keep memory.recompute_ops=[qlinear]", "precision.products=mxfp8 memory.recompute=keep memory.recompute_ops=[linear]"},
    };
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(pairs); i++) {
        char *by_name = planned(r, pairs[i][0]), *by_word = planned(r, pairs[i][1]);
        assert_string_equal(by_name, by_word);
        free(by_name);
        free(by_word);
    }
    RUN(r, 2, "has no 'attention_part'; it has ", "plan run.yaml memory.recompute=ops memory.recompute_ops=[attention_part]");
    run_end(r);
}

/* Of the first rank and of the one that needs the most, in each space that it has. */
TEST(what_is_live_at_the_peak_adds_up_to_the_counted_peak)
{
    static const char *const flavours[] = {"", "parallel.pp=2 model.layers=3", "memory.offload_optimizer=host memory.offload_activations=host precision.compute=bf16"};
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(flavours); i++) {
        char path[256];
        RUN(r, 0, "saved", "train run.yaml train.steps=1 train.global_batch=8 checkpoint.dir=peak%d %s", i, flavours[i]);
        snprintf(path, sizeof path, "%s/peak%d/memory.json", r->dir, i);
        json_t *root = json_load_file(path, 0, NULL);
        const json_t *peaks = json_object_get(root, "live_at_peak");
        assert_true(json_array_size(peaks) > 0);
        for (size_t k = 0; k < json_array_size(peaks); k++) {
            const json_t *peak = json_array_get(peaks, k), *buffers = json_object_get(peak, "buffers");
            const json_t *rank = json_array_get(json_object_get(root, "ranks"), (size_t)json_integer_value(json_object_get(peak, "rank")));
            const json_t *arena = json_object_get(json_object_get(rank, "arenas"), json_string_value(json_object_get(peak, "space")));
            json_int_t sum = json_integer_value(json_object_get(json_object_get(peak, "others"), "bytes"));
            for (size_t b = 0; b < json_array_size(buffers); b++)
                sum += json_integer_value(json_object_get(json_array_get(buffers, b), "bytes"));
            assert_true(sum > 0);
            assert_int_equal(sum, json_integer_value(json_object_get(arena, "peak")));
        }
        json_decref(root);
    }
    run_end(r);
}

/* The copies that measure the memory's bandwidth before a run are no part of its peak. */
TEST(the_resident_peak_of_a_run_does_not_count_what_measures_the_machine)
{
    if (SANITIZED || access("/proc/self/clear_refs", W_OK) != 0)
        skip();
    run_case *r = run_begin();
    char path[256];
    RUN(r, 0, "saved", "train run.yaml train.steps=1 run.probe_s=1 checkpoint.dir=resident");
    snprintf(path, sizeof path, "%s/resident/memory.json", r->dir);
    json_t *root = json_load_file(path, 0, NULL);
    const json_t *process = json_object_get(json_array_get(json_object_get(root, "ranks"), 0), "process");
    assert_in_range(json_integer_value(json_object_get(process, "resident_peak")), 1 << 20, 100 << 20);
    assert_in_range(json_integer_value(json_object_get(process, "heap_peak")), 1, 100 << 20);
    json_decref(root);
    run_end(r);
}

TEST(an_evaluation_that_needs_more_than_training_is_in_the_plan)
{
    run_case *r = run_begin();
    RUN(r, 0, "", "data prepare --tokenizer=shards --out=all --valid-fraction=0 text.txt");
    RUN(r, 0, "fits", "plan run.yaml --json data.path=all " EVAL_IS_LARGER);
    const long without = total_of(r->out);
    RUN(r, 0, "fits", "plan run.yaml --json " EVAL_IS_LARGER);
    const long with = total_of(r->out);
    assert_true(with > without);
    RUN(r, 3, "does not fit", "train run.yaml checkpoint.dir=tight memory.limit=%ld " EVAL_IS_LARGER, with - 1);
    RUN(r, 0, "saved", "train run.yaml checkpoint.dir=tight memory.limit=%ld data.path=all train.steps=1 " EVAL_IS_LARGER,
        with - 1);
    RUN(r, 0, "eval", "train run.yaml checkpoint.dir=enough memory.limit=%ld train.steps=1 " EVAL_IS_LARGER, with);
    run_end(r);
}

/* Rank 0's share of what is written: 12 bytes a parameter when the steps go on beside it, else room for one tensor. */
TEST(checkpoints_of_several_ranks_take_what_the_largest_tensor_does_if_the_steps_wait)
{
    run_case *r = run_begin();
    long bytes[3];
    const char *const args[] = {"checkpoint.every_steps=0", "checkpoint.every_steps=1 checkpoint.async=false",
                                "checkpoint.every_steps=1"};
    for (int i = 0; i < 3; i++) {
        RUN(r, 0, "fits", "plan run.yaml --json parallel.tp=2 %s", args[i]);
        bytes[i] = total_of(r->out);
    }
    RUN(r, 0, "fits", "plan run.yaml --json");
    const long elems = atol(strstr(r->out, "\"parameters\": ") + 14), largest = RUN_VOCAB * 64; /* of embed */
    assert_int_equal(bytes[0], bytes[1]);
    assert_true(bytes[2] - bytes[1] >= 12 * elems - 4 * largest && bytes[2] - bytes[1] < 12 * elems - 4 * largest + 64 * 200);
    run_end(r);
}

TEST(memory_that_is_resident_is_what_was_planned)
{
    run_case *r = run_begin();
    double rss = 0, arena = 0;
    if (!SANITIZED) {
        RUN(r, 0, "peak_rss_mb",
            "bench step model.preset=gpt2-124m data.seq_len=64 train.global_batch=1 --steps=1 --json");
        char *at = strstr(r->out, "\"peak_rss_mb\": "), *of = strstr(r->out, "\"arena_mb\": ");
        assert_non_null(of);
        rss = atof(at + 15);
        arena = atof(of + 12);
        if (!(arena > 1800 && rss <= arena + 64))
            fail_msg("resident %.1f MiB, planned %.1f MiB", rss, arena);
    }
    run_end(r);
}

/* ---- bytes sent ---- */

/* The object that follows `key` where it comes last or, `first`, where it comes first; free(). */
static char *object_of(const char *text, const char *key, bool first)
{
    const char *found = NULL;
    for (const char *at = text; (at = strstr(at, key)) != NULL && !(first && found); at++)
        found = at;
    assert_non_null(found);
    const char *begin = found + strlen(key) - 1, *at = begin; /* keys end with the brace */
    int depth = 0;
    do
        depth += *at == '{' ? 1 : *at == '}' ? -1 : 0;
    while (*at++ && depth > 0);
    return strndup(begin, (size_t)(at - begin));
}

static long sum_of_numbers(const char *text)
{
    long sum = 0;
    for (const char *at = text; (at = strstr(at, "\": ")) != NULL; at += 3)
        sum += at[3] == '{' ? 0 : atol(at + 3);
    return sum;
}

/* Of rank 0 and of all ranks, in every step, whatever the algorithm; the plan's total is the sum of its ranks. */
TEST(bytes_in_metrics_are_those_of_the_plan)
{
    run_case *r = run_begin();
    for (int i = 0; i < 6; i++) {
        char layout[256], name[64];
        const int64_t seed = (int64_t)i * 8;
        int dp = 1 << test_rand_int(9, (uint64_t)seed, 0, 1), tp = 1 << test_rand_int(9, (uint64_t)seed + 1, 0, 1);
        int pp = 1 << test_rand_int(9, (uint64_t)seed + 2, 0, 1), cp = dp * tp * pp == 1 ? 2 : 1;
        static const char *const algorithms[] = {"auto", "tree", "ring numerics.mode=fast"};
        snprintf(layout, sizeof layout, "parallel.dp=%d parallel.tp=%d parallel.pp=%d parallel.cp=%d parallel.zero=%d "
                 "comm.algorithm=%s", dp, tp, pp, cp, dp > 1 ? (int)test_rand_int(9, (uint64_t)seed + 3, 0, 3) : 0,
                 algorithms[i % 3]);
        RUN(r, 0, "saved", "train run.yaml train.steps=2 train.global_batch=8 train.micro_batch=1 run.threads=1 checkpoint.dir=c%d %s",
            i, layout);
        snprintf(name, sizeof name, "c%d/plan.json", i);
        char *plan = run_read(r, name, NULL);
        snprintf(name, sizeof name, "c%d/metrics.jsonl", i);
        char *metrics = run_read(r, name, NULL);
        char *planned = object_of(plan, "\"comm_sent\": {", true), *planned_total = object_of(plan, "\"comm_sent\": {", false);
        char *ring = object_of(plan, "\"comm\": {", false);
        long sum = 0;
        for (const char *at = plan; (at = strstr(at, "\"comm_sent\": {")) != NULL; at++) {
            char *one = object_of(at, "\"comm_sent\": {", true);
            sum += sum_of_numbers(one);
            free(one);
        }
        assert_true(sum > 0);
        assert_int_equal(sum, 2 * sum_of_numbers(planned_total));
        for (int k = 0; k < 2; k++) {
            char *one = object_of(metrics, "\"comm_bytes\": {", k == 0), *all = object_of(metrics, "\"comm_bytes_total\": {", k == 0);
            char *by_ring = object_of(metrics, "\"comm_ring_total\": {", k == 0);
            assert_string_equal(by_ring, ring);
            free(by_ring);
            if (strcmp(one, planned) != 0 || strcmp(all, planned_total) != 0)
                fail_msg("%s: planned %s and %s, sent %s and %s", layout, planned, planned_total, one, all);
            free(one);
            free(all);
        }
        free(planned);
        free(planned_total);
        free(ring);
        free(plan);
        free(metrics);
    }
    run_end(r);
}

/* ---- placement ---- */

TEST(placement_of_gpt2_124m_is_within_2_percent_of_the_lower_bound)
{
    orth_ctx *ctx = test_ctx(2);
    orth_model_config model;
    CHECK_OK(ctx, orth_model_preset(ctx, "gpt2-124m", &model));
    for (int k = 0; k < 16; k++) {
        orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .num_seqs = k & 1 ? 4 : 1, .seq_len = 1024,
                                  .num_micro_batches = k & 2 ? 8 : 1, .parts = k & 8 ? 1 : 8,
                                  .compute = k & 4 ? ORTH_BF16 : ORTH_F32, .optimizer = ORTH_OP_adamw};
        orth_compiled compiled;
        CHECK_OK(ctx, orth_compiled_build(ctx, &model, &shape, &compiled));
        const orth_program *p = &compiled.program;
        size_t total = p->space_bytes[ORTH_SPACE_HOST], sum = 0;
        if ((double)total > 1.02 * (double)p->lower_bound || total < p->lower_bound)
            fail_msg("micro-batch %d, %d of them, %s, %d parts: %zu bytes, lower bound %zu", shape.num_seqs,
                     shape.num_micro_batches, orth_dtype_name(shape.compute), shape.parts, total,
                     p->lower_bound);
        /* Of the transient region alone, where packing happens. */
        size_t persistent = total - p->transient_bytes[ORTH_SPACE_HOST];
        assert_true((double)p->transient_bytes[ORTH_SPACE_HOST] <= 1.02 * (double)(p->lower_bound - persistent));
        for (int c = 0; c < ORTH_NUM_CLASSES; c++)
            sum += p->class_bytes[ORTH_SPACE_HOST][c];
        assert_int_equal(sum, total);
        /* Both uses of the tied embedding pile up in one place. */
        const size_t grads = 4 * (size_t)124439808;
        if (shape.num_seqs == 1 && shape.num_micro_batches == 1)
            assert_in_range(p->class_bytes[ORTH_SPACE_HOST][ORTH_CLASS_GRADS], grads, grads + 64 * 1024);
        orth_compiled_release(&compiled);
    }
    test_ctx_free(ctx);
}

/* ---- large presets ---- */

TEST(every_preset_can_be_planned_and_explained_at_once)
{
    static const struct { const char *name; int64_t elems; } known[] = {
        {"gpt2-124m", 124439808}, {"gpt2-1558m", 1557611200}, {"llama3-1b", 1235814400},
        {"llama3-3b", 3212749824},
        {"llama3-8b", 8030261248}, {"llama3-70b", 70553706496}, {"llama3-405b", 405853388800},
        {"qwen3-0.6b", 596049920}, {"qwen3-4b", 4022468096}, {"qwen3-8b", 8190735360},
        {"qwen3-32b", 32762123264}};
    run_case *r = run_begin();
    for (int i = 0; orth_model_preset_name(i); i++) {
        RUN(r, 0, "fits", "plan model.preset=%s data.seq_len=256 train.global_batch=1 memory.limit=900TB run.probe_s=0.003",
            orth_model_preset_name(i));
        for (int k = 0; k < ORTH_COUNT(known); k++) {
            char line[64];
            snprintf(line, sizeof line, "parameters     %14lld\n", (long long)known[k].elems);
            if (strcmp(known[k].name, orth_model_preset_name(i)) == 0 && !strstr(r->out, line))
                fail_msg("%s has %lld parameters, not\n%.80s", known[k].name, (long long)known[k].elems,
                         r->out);
        }
    }
    RUN(r, 0, "attention",
        "explain model.preset=llama3-405b data.seq_len=1024 train.global_batch=1 --layer=100");
    run_end(r);
}

/* One micro-batch through one layer, in order; the memory map has the planned sums. */
TEST(explain_shows_the_way_through_a_layer)
{
    static const char *const way[] = {
        " F mb1   L0 ", "norm(", "= linear(attn_norm", "layers.0.attn.qkv.weight[192,64]",
        "= attention(attn.qkv",
        "= linear(attention", "= norm(attn.out", "= linear(mlp_norm", "gelu_tanh", "= linear(mlp.up",
        "= add(",
        " B mb1   L0 ",
        "= linear_dx(", "grad.layers.0.mlp.down.weight", "= attention_bwd(", "grad.layers.0.attn_norm.shift"};
    run_case *r = run_begin();
    RUN(r, 0, way[0], "explain run.yaml --layer=0 --micro-batch=1");
    const char *at = r->out;
    for (int i = 0; i < ORTH_COUNT(way); i++) {
        const char *next = strstr(at, way[i]);
        if (!next)
            fail_msg("'%s' does not come next in\n%.3000s", way[i], at);
        at = next;
    }
    assert_null(strstr(r->out, "L1"));
    assert_null(strstr(r->out, "mb0"));
    RUN(r, 0, "adamw(grad.embed.weight", "explain run.yaml");
    RUN(r, 0, "host arena: ", "explain run.yaml --memory");
    assert_non_null(strstr(r->out, "####"));
    RUN(r, 2, "--layer=3 is not a whole number in [-1, 2]", "explain run.yaml --layer=3");
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_allocator_that_fails_after_step_1_is_not_noticed),
        cmocka_unit_test(planned_bytes_of_a_run_are_the_counted_ones),
        cmocka_unit_test(plain_sgd_keeps_no_state),
        cmocka_unit_test(words_for_operations_mean_their_variants),
        cmocka_unit_test(what_is_live_at_the_peak_adds_up_to_the_counted_peak),
        cmocka_unit_test(the_resident_peak_of_a_run_does_not_count_what_measures_the_machine),
        cmocka_unit_test(an_evaluation_that_needs_more_than_training_is_in_the_plan),
        cmocka_unit_test(checkpoints_of_several_ranks_take_what_the_largest_tensor_does_if_the_steps_wait),
        cmocka_unit_test(bytes_in_metrics_are_those_of_the_plan),
        cmocka_unit_test(memory_that_is_resident_is_what_was_planned),
        cmocka_unit_test(placement_of_gpt2_124m_is_within_2_percent_of_the_lower_bound),
        cmocka_unit_test(every_preset_can_be_planned_and_explained_at_once),
        cmocka_unit_test(explain_shows_the_way_through_a_layer),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
