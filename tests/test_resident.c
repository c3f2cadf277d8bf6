/* test_resident.c -- the process against the plan: its resident set over random runs, and memory, descriptors and threads over many
 * steps. ORTH_RESIDENT=n draws n runs (make soak: 300, of which a tenth and at least 20 plan more than 300 MB), ORTH_STEPS=n makes n steps. */
#include <dirent.h>
#include <sys/prctl.h>

#include "base/pages.h"
#include "run_case.h"
#include "train/run.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SANITIZED true
#else
#define SANITIZED false
#endif

static int from_environment(const char *name, int otherwise)
{
    const char *text = getenv(name);
    return text ? atoi(text) : otherwise;
}

/* ---- resident set ---- */

static int64_t pick(uint64_t seed, uint64_t *k, const int64_t *from, int n)
{
    return from[test_rand_int(seed, (*k)++, 0, n - 1)];
}
#define PICK(...) pick(seed, &k, (const int64_t[]){__VA_ARGS__}, (int)(sizeof((const int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

/* One of the lines of words, most often the first, which is empty. */
static const char *pick_words(uint64_t seed, uint64_t *k, const char *const *from, int n)
{
    const int64_t at = test_rand_int(seed, (*k)++, -n / 2, n - 1);
    return from[at > 0 ? at : 0];
}
#define PICK_WORDS(list) pick_words(seed, k, list, ORTH_COUNT(list))

/* What the draw of layouts (tests/layouts.h) has besides, as words. */
static void add_others(uint64_t seed, uint64_t *k, bool pipeline, bool sharded, bool apart, char *words, size_t size)
{
    static const char *const numbers[] = {"", "precision.compute=fp16", "precision.compute=bf16 precision.master=bf16", "precision.moments=bf16",
                                          "precision.moments=8bit", "precision.compute=bf16 precision.master=bf16 precision.moments=bf16"};
    static const char *const products[] = {"", "precision.products=fp8_tensor", "precision.products=fp8_block", "precision.products=mxfp8",
                                           "precision.products=nvfp4", "precision.products=fp8_delayed"};
    static const char *const chunks[] = {"", "memory.ffn_chunk_rows=32", "memory.head_chunk_rows=32", "memory.packed_weights=true"};
    static const char *const schedules[] = {"", "parallel.pipeline=gpipe", "parallel.pipeline=interleaved parallel.virtual_stages=2", "parallel.pipeline=zb-h1",
                                            "parallel.pipeline=zb-v parallel.virtual_stages=2", "parallel.pipeline=pipedream"};
    static const char *const shards[] = {"", "parallel.shard_by=layer", "parallel.gather_unit=half", "parallel.reshard_after_forward=false"};
    static const char *const state[] = {"", "memory.offload_gradients=host", "memory.offload_params=host", "memory.offload_gradients=file memory.offload_params=file",
                                        "memory.offload_gradients=host memory.offload_params=file"};
    const char *const lists[] = {PICK_WORDS(numbers), PICK_WORDS(products), PICK_WORDS(chunks), pipeline ? PICK_WORDS(schedules) : "", sharded ? PICK_WORDS(shards) : "",
                                 apart ? PICK_WORDS(state) : "", test_rand_int(seed, (*k)++, 0, 3) ? "" : "data.doc_mask=true"};
    for (int i = 0; i < ORTH_COUNT(lists); i++) {
        const size_t at = strlen(words);
        snprintf(words + at, size - at, "%s%s", *lists[i] ? " " : "", lists[i]);
    }
}

/* Words of a run on up to 8 ranks: layout, recomputation, offload, precision, model; some are refused. */
static void draw(uint64_t seed, bool large, char *words, size_t size)
{
    static const char *const policies[] = {"none", "none", "selective", "full", "sqrt", "all", "ops memory.recompute_ops=[norm]",
                                           "keep memory.recompute_ops=[linear]", "auto memory.recompute_limit=1GB"};
    static const char *const tiers[] = {"none", "none", "host", "file"};
    uint64_t k = 0;
    const bool llama = test_rand_int(seed, k++, 0, 1);
    const int64_t hidden = large ? PICK(512, 768) : PICK(64, 128, 256), dp = PICK(1, 2, 4), tp = PICK(1, 1, 2), pp = PICK(1, 1, 2), cp = PICK(1, 1, 1, 2);
    const int64_t ranks = dp * tp * pp * cp, used = ranks > 8 ? dp / 2 : dp;
    snprintf(words, size, "model.preset=%s-tiny model.hidden=%d model.layers=%d model.heads=8 model.ffn=%d model.vocab=%d %s data.seq_len=%d "
             "train.global_batch=8 train.micro_batch=%d parallel.dp=%d parallel.tp=%d parallel.pp=%d parallel.cp=%d parallel.zero=%d "
             "precision.compute=%s 'memory.recompute=%s", llama ? "llama" : "gpt2", (int)hidden, (int)(large ? PICK(6, 8) : PICK(2, 3, 4)),
             (int)(3 * hidden), (int)(large ? 16384 : PICK(512, 2048)), llama ? "model.kv_heads=4" : "", (int)PICK(64, 128), (int)PICK(1, 1, 2),
             (int)used, (int)tp, (int)pp, (int)cp, (int)(used > 1 ? PICK(0, 1, 2, 3) : 0), PICK(0, 1) ? "bf16" : "fp32",
             policies[test_rand_int(seed, k++, 0, ORTH_COUNT(policies) - 1)]);
    char *space = strchr(strstr(words, "'memory.recompute="), ' '); /* quoted for the shell */
    if (space) {
        char rest[64];
        snprintf(rest, sizeof rest, "%s", space + 1);
        snprintf(space, size - (size_t)(space - words), "' '%s", rest);
    }
    const size_t at = strlen(words);
    const char *optimizer = tiers[test_rand_int(seed, k++, 0, 3)], *activations = tiers[test_rand_int(seed, k++, 0, 3)];
    snprintf(words + at, size - at, "' memory.offload_optimizer=%s memory.offload_activations=%s memory.offload_min_bytes=1KiB", optimizer, activations);
    add_others(seed, &k, pp > 1, strstr(words, "parallel.zero=3"), strcmp(optimizer, "none") != 0, words, size);
}

static double number_after(const char *text, const char *key)
{
    const char *at = strstr(text, key);
    assert_non_null(at);
    return atof(at + strlen(key));
}

TEST(the_resident_set_is_at_most_64_MB_above_the_plan)
{
    const int num = SANITIZED ? 0 : from_environment("ORTH_RESIDENT", 2);
    const uint64_t first = (uint64_t)from_environment("ORTH_SEED", (int)(time(NULL) / 3600 % 1000000)) * 1000;
    const int num_large = num > 2 ? ORTH_MAX(20, num / 10) : (int)(first / 1000 % 2); /* in make test every other time */
    run_case *r = run_begin();
    int done = 0, large = 0, over_300 = 0, refused = 0;
    double worst = 0;
    if (num > 0)
        printf("ORTH_SEED=%llu\n", (unsigned long long)(first / 1000));
    for (uint64_t seed = first; done < num; seed++) {
        char words[2048];
        const bool is_large = large < num_large;
        draw(seed, is_large, words, sizeof words);
        const int code = orthant(r, "bench step --steps=1 --json run.threads=2 %s", words);
        if (code == 2 || (code == 3 && strstr(r->out, "memory.recompute=auto: rank"))) { /* refused by a rule; nothing keeps so little */
            refused++;
            continue;
        }
        if (code != 0)
            fail_msg("%s: exit %d: %.500s", words, code, r->out);
        const double rss = number_after(r->out, "\"peak_rss_mb\": "), planned = number_after(r->out, "\"arena_mb\": ");
        if (rss > planned + 64)
            fail_msg("%s: resident %.1f MiB, planned %.1f MiB", words, rss, planned);
        worst = ORTH_MAX(worst, rss - planned);
        over_300 += planned * 1.048576 > 300;
        large += is_large;
        done++;
    }
    if (num > 0)
        printf("%d runs, %d of them above 300 MB: at most %.1f MiB above the plan; %d draws are refused by rules\n", done, over_300, worst, refused);
    if (num > 2)
        assert_true(over_300 >= 20);
    run_end(r);
}

/* ---- many steps ---- */

typedef struct {
    int threads, files;
    size_t resident;
    int64_t heap;
} usage;

static int open_files(void)
{
    int files = 0;
    DIR *d = opendir("/proc/self/fd");
    assert_non_null(d);
    while (readdir(d))
        files++;
    closedir(d);
    return files;
}

static usage usage_now(const orth_ctx *ctx)
{
    char text[4096] = "";
    FILE *f = fopen("/proc/self/status", "r");
    assert_true(f && fread(text, 1, sizeof text - 1, f) > 0);
    fclose(f);
    usage u = {.threads = (int)number_after(text, "Threads:"), .resident = 1024 * (size_t)number_after(text, "VmRSS:"),
               .heap = ctx->heap_bytes};
    u.files = open_files();
    for (int i = 0; i < 20; i++) { /* the other rank and the watchdog read files of /proc for a moment: the least is what stays open */
        nanosleep(&(struct timespec){.tv_nsec = 500000}, NULL);
        u.files = ORTH_MIN(u.files, open_files());
    }
    return u;
}

typedef struct {
    orth_ctx *ctx;
    _Atomic int asked;
    int from, to;           /* calls between which nothing may grow */
    usage begin, end;
} watch_of_steps;

/* Every rank asks once a step. */
static int look(void *user)
{
    watch_of_steps *w = user;
    const int now = ++w->asked;
    if (now == w->from)
        w->begin = usage_now(w->ctx);
    if (now == w->to)
        w->end = usage_now(w->ctx);
    return 0;
}

/* A run of two ranks with `more` key=value pairs. */
static void check_flat(const char *const (*more)[2], int num_more)
{
    const int steps = from_environment("ORTH_STEPS", 200);
    char path[256], count[32];
    run_case *r = run_begin();
    orth_ctx *ctx = test_ctx(2);
    orth_config cfg;
    orth_run run;
    snprintf(path, sizeof path, "%s/run.yaml", r->dir);
    snprintf(count, sizeof count, "%d", steps);
    CHECK_OK(ctx, orth_config_init(ctx, &cfg));
    CHECK_OK(ctx, orth_config_load(ctx, &cfg, path));
    const char *words[][2] = {{"data.path", "shards"}, {"checkpoint.dir", "flat"}, {"train.steps", count}, {"parallel.dp", "2"},
                              {"parallel.zero", "2"}, {"train.eval_every", "0"}, {"train.global_batch", "4"}, {"train.micro_batch", "1"},
                              {"data.seq_len", "16"}, {"model.layers", "1"}};
    for (int i = 0; i < ORTH_COUNT(words); i++) {
        snprintf(path, sizeof path, i < 2 ? "%s/%s" : "%.0s%s", r->dir, words[i][1]);
        CHECK_OK(ctx, orth_config_set(ctx, &cfg, "test", words[i][0], path));
    }
    for (int i = 0; i < num_more; i++)
        CHECK_OK(ctx, orth_config_set(ctx, &cfg, "test", more[i][0], more[i][1]));
    CHECK_OK(ctx, orth_config_set(ctx, &cfg, "test", "memory.offload_dir", r->dir));
    watch_of_steps w = {.ctx = ctx, .from = 2 * ORTH_MIN(steps / 4, 100), .to = 2 * steps - 1};
    orth_run_options options = {.cfg = &cfg, .stop = look, .stop_user = &w};
    CHECK_OK(ctx, orth_run_open(ctx, &run, &options, NULL));
    w.asked = 0;
    assert_int_equal(prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0), 0); /* else the kernel fills up a region of 2 MiB whenever it likes */
    CHECK_OK(ctx, orth_run_train(ctx, &run));
    prctl(PR_SET_THP_DISABLE, 0, 0, 0, 0);
    orth_run_close(ctx, &run);
    assert_true(w.begin.threads > 2 && w.end.threads == w.begin.threads);
    assert_int_equal(w.end.files, w.begin.files);
    assert_int_equal(w.end.heap, w.begin.heap);
    if (!SANITIZED && w.end.resident > w.begin.resident + ((size_t)1 << 20))
        fail_msg("%d steps: resident %zu bytes, then %zu", steps, w.begin.resident, w.end.resident);
    orth_config_release(ctx, &cfg);
    test_ctx_free(ctx);
    run_end(r);
}

TEST(memory_descriptors_and_threads_are_flat_over_many_steps)
{
    check_flat(NULL, 0);
}

/* The queues of copies and of the file work in each step. */
TEST(the_same_of_a_run_with_its_state_in_a_file_and_its_activations_in_the_host)
{
    static const char *const away[][2] = {{"memory.offload_optimizer", "file"}, {"memory.offload_gradients", "host"}, {"memory.offload_params", "file"},
                                          {"memory.offload_activations", "host"}, {"memory.offload_min_bytes", "1"}};
    check_flat(away, ORTH_COUNT(away));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_resident_set_is_at_most_64_MB_above_the_plan),
        cmocka_unit_test(memory_descriptors_and_threads_are_flat_over_many_steps),
        cmocka_unit_test(the_same_of_a_run_with_its_state_in_a_file_and_its_activations_in_the_host),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
