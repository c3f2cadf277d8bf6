/* run_case.h -- the program itself in a folder of its own, for tests of whole runs.
 *
 * The folder holds text.txt (generated, English-like), shards/ made of it with a small tokenizer, and
 * run.yaml, a run of a tiny model on them; each test says what it changes as key=value.
 */
#ifndef ORTH_TESTS_RUN_CASE_H
#define ORTH_TESTS_RUN_CASE_H

#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "config/config.h"
#include "test.h"

typedef struct {
    orth_ctx *ctx;
    char dir[128];
    char out[1 << 16];  /* what the last run printed, both streams */
} run_case;

#define RUN_VOCAB 300

/* The section `run` of run files of tests. Other programs run beside one, so that threads that work together wait for each other; a
 * run takes less time than the usual probe. */
#define RUN_SECTION "run: {threads: 1, probe_s: 0.003}\n"

/* Words with a skewed distribution, sentences, blank lines between documents. */
static inline void run_write_text(orth_ctx *ctx, const char *path, int documents, uint64_t seed)
{
    static const char *const words[] = {
        "the", "of", "and", "water", "to", "in", "is", "that", "river", "was", "for", "on", "are", "with",
        "his", "they", "stone", "be", "this", "from", "have", "by", "not", "what", "all", "were", "when",
        "mountain",
        "there", "can", "which", "their", "said", "each", "about", "how", "then", "them", "these", "long"};
    char *text = calloc(1, (size_t)documents * 512);
    size_t at = 0;
    uint64_t k = 0;
    for (int d = 0; d < documents; d++) {
        int64_t n = test_rand_int(seed, k++, 12, 50);
        for (int64_t i = 0; i < n; i++) {
            float u = 0.5f + 0.5f * test_rand(seed, k++);
            at += (size_t)sprintf(text + at, "%s%s", i ? " " : "",
                                  words[(int)(u * u * (float)ORTH_COUNT(words))]);
        }
        at += (size_t)sprintf(text + at, ".\n\n");
    }
    CHECK_OK(ctx, orth_file_write(ctx, path, text, at));
    free(text);
}

/* Runs the command, with what it says in out[size]; the exit code, or 128 and the signal. */
static inline int run_shell(const char *command, char *out, size_t size)
{
    char rest[4096];
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t n = fread(out, 1, size - 1, f);
    out[n] = '\0';
    while (fread(rest, 1, sizeof rest, f) > 0)
        ;
    int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* Runs `orthant ARGS` in the folder; the exit code. */
static inline int __attribute__((format(printf, 2, 3))) orthant(run_case *r, const char *fmt, ...)
{
    char args[2048], command[4096];
    va_list list;
    va_start(list, fmt);
    vsnprintf(args, sizeof args, fmt, list);
    va_end(list);
    snprintf(command, sizeof command, "cd %s && %s %s 2>&1", r->dir, ORTH_BINARY, args);
    return run_shell(command, r->out, sizeof r->out);
}

/* Whether this machine has what a run with these options needs. */
static inline bool run_can(const char *options)
{
    return test_has_bf16x6() || !strstr(options, "precision.fp32_products=bf16x6");
}

/* The reason of a failure is what was said last. cmocka would cut the text. */
static inline void run_show_end(const char *said)
{
    const size_t all = strlen(said), shown = ORTH_MIN(all, (size_t)3000);
    fprintf(stderr, "it said:\n%s\n", said + all - shown);
}

/* The run must end with `code` and have said `text`. */
#define RUN(r, code, text, ...)                                                                  \
    do {                                                                                         \
        int got_ = orthant((r), __VA_ARGS__);                                                    \
        if (got_ != (code) || !strstr((r)->out, (text))) {                                       \
            run_show_end((r)->out);                                                              \
            fail_msg("%s:%d: exit %d, wanted %d and \"%s\"", __FILE__, __LINE__, got_, (code), (text)); \
        }                                                                                        \
    } while (0)

/* Text of a file of the folder; free(). */
static inline char *run_read(run_case *r, const char *name, size_t *size)
{
    char path[512], *text;
    size_t n;
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    CHECK_OK(r->ctx, orth_file_read(r->ctx, path, &text, &n));
    char *copy = malloc(n + 1);
    memcpy(copy, text, n + 1);
    orth_mem_free(r->ctx, text);
    if (size)
        *size = n;
    return copy;
}

static inline void run_write(run_case *r, const char *name, const void *bytes, size_t n)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    CHECK_OK(r->ctx, orth_file_write(r->ctx, path, bytes, n));
}

static inline bool run_has(run_case *r, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    return orth_path_exists(path);
}

static inline void run_remove(run_case *r, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", r->dir, name);
    CHECK_OK(r->ctx, orth_path_remove(r->ctx, path));
}

/* metrics.jsonl without what a clock says and without evaluations: step, loss bits, norm, lr, samples. */
static inline char *run_metrics(run_case *r, const char *run)
{
    char name[256];
    snprintf(name, sizeof name, "%s/metrics.jsonl", run);
    char *text = run_read(r, name, NULL), *out = calloc(1, strlen(text) + 1), *save = NULL;
    for (char *line = strtok_r(text, "\n", &save); line; line = strtok_r(NULL, "\n", &save)) {
        char *time = strstr(line, ", \"step_time_s\""), *skipped = strstr(line, ", \"skipped\"");
        if (!time || !skipped)
            continue;
        strncat(out, line, (size_t)(time - line));
        strcat(out, skipped);
        strcat(out, "\n");
    }
    free(text);
    return out;
}

static inline void run_same_file(run_case *r, const char *a, const char *b)
{
    size_t n = 0, m = 0;
    char *x = run_read(r, a, &n), *y = run_read(r, b, &m);
    if (n != m || memcmp(x, y, n) != 0)
        fail_msg("%s (%zu bytes) and %s (%zu bytes) differ", a, n, b, m);
    free(x);
    free(y);
}

/* Two runs have said the same in every step and saved the same bytes. */
static inline void run_same(run_case *r, const char *a, const char *b, int step)
{
    char *x = run_metrics(r, a), *y = run_metrics(r, b), p[256], q[256];
    if (strcmp(x, y) != 0)
        fail_msg("metrics of %s and %s differ:\n%.1500s\n--\n%.1500s", a, b, x, y);
    assert_true(x[0] != '\0');
    free(x);
    free(y);
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "config.json"};
    for (int i = 0; i < ORTH_COUNT(files); i++) {
        snprintf(p, sizeof p, "%s/checkpoints/step-%08d/%s", a, step, files[i]);
        snprintf(q, sizeof q, "%s/checkpoints/step-%08d/%s", b, step, files[i]);
        run_same_file(r, p, q);
    }
}

/* Words key=value, between spaces. */
static inline void run_set_keys(orth_ctx *ctx, orth_config *cfg, const char *words)
{
    char copy[1024], *save = NULL;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok_r(copy, " ", &save); word; word = strtok_r(NULL, " ", &save)) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        CHECK_OK(ctx, orth_config_set(ctx, cfg, "test", word, value));
    }
}

static inline run_case *run_begin(void)
{
    static const char yaml[] =
        "model: {preset: gpt2-tiny, vocab: 300}\n"
        "data: {path: shards, seq_len: 32}\n"
        "train: {steps: 8, global_batch: 6, micro_batch: 2, seed: 3, log_every: 1}\n"
        "optimizer: {lr: 1.0e-3}\n"
        "schedule: {warmup_steps: 3}\n"
        "checkpoint: {dir: a}\n"
        RUN_SECTION;
    run_case *r = calloc(1, sizeof *r);
    r->ctx = test_ctx(1);
    const char *base = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp"; /* in memory: fsync is free */
    snprintf(r->dir, sizeof r->dir, "%s/orthant-run-XXXXXX", base);
    assert_non_null(mkdtemp(r->dir));
    char path[256];
    snprintf(path, sizeof path, "%s/text.txt", r->dir);
    run_write_text(r->ctx, path, 120, 1);
    run_write(r, "run.yaml", yaml, strlen(yaml));
    RUN(r, 0, "", "data prepare --train-tokenizer=%d --out=shards --valid-fraction=0.1 text.txt", RUN_VOCAB);
    return r;
}

static inline void run_end(run_case *r)
{
    CHECK_OK(r->ctx, orth_path_remove(r->ctx, r->dir));
    test_ctx_free(r->ctx);
    free(r);
}

#endif
