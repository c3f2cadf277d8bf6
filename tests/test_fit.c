/* test_fit.c -- `plan --fit` and `plan --ladder`: held against plans of single runs. */
#include <jansson.h>
#include <math.h>
#include <signal.h>

#include "cli/memory.h"
#include "cli/waiting.h"
#include "run_case.h"
#include "tools/fit.h"
#include "tools/ladder.h"

/* A described cluster: no time is measured, so the prices are the same on every machine. */
typedef struct {
    orth_ctx *ctx;
    orth_config cfg;
    orth_place_to_run where;
} fit_case;

static void open_case(fit_case *c, const char *const *words, int n)
{
    static const char *const tiny[] = {"model.preset", "gpt2-tiny", "data.seq_len", "64", "train.global_batch", "32", "train.micro_batch",
                                       "4", "precision.compute", "bf16"};
    c->ctx = test_ctx(1);
    CHECK_OK(c->ctx, orth_config_init(c->ctx, &c->cfg));
    for (int i = 0; i < ORTH_COUNT(tiny); i += 2)
        CHECK_OK(c->ctx, orth_config_set(c->ctx, &c->cfg, "test", tiny[i], tiny[i + 1]));
    for (int i = 0; i < n; i += 2)
        CHECK_OK(c->ctx, orth_config_set(c->ctx, &c->cfg, "test", words[i], words[i + 1]));
    CHECK_OK(c->ctx, orth_place_to_run_find(c->ctx, &c->where, "h100"));
}

static void close_case(fit_case *c)
{
    orth_config_release(c->ctx, &c->cfg);
    test_ctx_free(c->ctx);
}

/* The run with key=value words, planned by itself. */
static orth_price price_with(fit_case *c, const char *words)
{
    char copy[512], *rest = NULL;
    orth_config cfg;
    orth_price p;
    CHECK_OK(c->ctx, orth_config_init(c->ctx, &cfg));
    CHECK_OK(c->ctx, orth_config_override(c->ctx, &cfg, &c->cfg));
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        *value = '\0';
        CHECK_OK(c->ctx, orth_config_set(c->ctx, &cfg, "test", word, value + 1));
    }
    CHECK_OK(c->ctx, orth_price_run(c->ctx, &c->where, &cfg, &p));
    orth_config_release(c->ctx, &cfg);
    return p;
}

static int64_t largest_found(fit_case *c, const char *key, size_t limit)
{
    char *text;
    CHECK_OK(c->ctx, orth_fit(c->ctx, &c->cfg, &c->where, key, limit, true, &text));
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    const json_t *largest = json_object_get(root, "largest");
    const int64_t value = json_is_null(largest) ? 0 : json_integer_value(largest);
    json_decref(root);
    orth_mem_free(c->ctx, text);
    return value;
}

/* Every value is planned here. Larger micro-batches have fewer partial gradients, so memory need not rise with each value. */
TEST(the_largest_value_that_fits_fits_and_the_next_does_not)
{
    static const struct { const char *key, *path; int64_t values[12]; } keys[] = {
        {"micro_batch", "train.micro_batch", {1, 2, 4, 8, 16, 32}},
        {"model.layers", "model.layers", {1, 2, 3, 4, 5, 6, 7, 8, 9}},
        {"seq_len", "data.seq_len", {8, 16, 24, 32, 40, 48, 56, 64, 72, 80, 88, 96}},
        {"hidden", "model.hidden", {8, 16, 24, 32, 40, 48, 56, 64, 72, 80}},
    };
    for (int k = 0; k < ORTH_COUNT(keys); k++) {
        fit_case c;
        size_t bytes[12] = {0}, least = SIZE_MAX;
        int n = 0;
        open_case(&c, NULL, 0);
        for (; n < 12 && keys[k].values[n]; n++) {
            char words[64];
            snprintf(words, sizeof words, "%s=%lld", keys[k].path, (long long)keys[k].values[n]);
            bytes[n] = price_with(&c, words).worst_bytes;
            least = ORTH_MIN(least, bytes[n]);
        }
        for (int i = 0; i + 1 < n; i++) {
            const size_t limits[] = {bytes[i], bytes[i + 1] - 1};
            for (int j = 0; j < 2; j++) {
                const int64_t found = largest_found(&c, keys[k].key, limits[j]);
                int at = 0;
                while (at < n && keys[k].values[at] != found)
                    at++;
                if (found == 0 && least > limits[j])
                    continue;
                if (at == n || bytes[at] > limits[j] || (at + 1 < n && bytes[at + 1] <= limits[j]))
                    fail_msg("%s=%lld, limit %zu", keys[k].path, (long long)found, limits[j]);
            }
        }
        assert_int_equal(largest_found(&c, keys[k].key, least - 1), 0);
        close_case(&c);
    }
}

static void check_rungs(fit_case *c, const orth_ladder *l, const orth_rung *r, int n)
{
    for (int i = 0; i < n; i++) {
        const orth_price p = price_with(c, r[i].words);
        assert_int_equal(p.worst_bytes, r[i].bytes);
        assert_int_equal((int64_t)l->bytes - r[i].saved_bytes, (int64_t)r[i].bytes);
        assert_true(fabs(l->step_s + r[i].added_s - p.step_s) < 1e-12 && r[i].saved_bytes > 0);
        assert_int_equal(r[i].fits, r[i].bytes <= l->limit_bytes);
    }
}

/* Whatever is promised of a change is what the plan of the changed run says. */
TEST(rungs_of_the_ladder_are_plans_of_the_changed_runs_in_the_order_of_their_time)
{
    static const char *const words[] = {"parallel.dp", "2"};
    fit_case c;
    orth_ladder *l = calloc(1, sizeof *l);
    open_case(&c, words, 2);
    const orth_price plain = price_with(&c, ""), whole = price_with(&c, "train.micro_batch=1 parallel.zero=3 memory.recompute=full");
    const size_t limits[] = {plain.worst_bytes - 1, whole.worst_bytes + 4096, 1024};
    for (int i = 0; i < ORTH_COUNT(limits); i++) {
        CHECK_OK(c.ctx, orth_ladder_find(c.ctx, &c.cfg, &c.where, limits[i], 0, l));
        assert_int_equal(l->bytes, plain.worst_bytes);
        assert_true(l->num_single >= 5 && !l->fits);
        assert_true(l->fast.saved_bytes > 0);
        check_rungs(&c, l, &l->fast, 1);
        check_rungs(&c, l, l->single, l->num_single);
        check_rungs(&c, l, l->together, l->num_together);
        for (int k = 1; k < l->num_single; k++)
            assert_true(l->single[k].added_s >= l->single[k - 1].added_s);
        for (int k = 1; k < l->num_together; k++)
            assert_true(l->together[k - 1].fits ? l->together[k].fits && l->together[k].step_s < l->together[k - 1].step_s
                                                : l->together[k].bytes < l->together[k - 1].bytes);
        bool suffices = false;
        for (int k = 0; k < l->num_single; k++)
            suffices = suffices || l->single[k].fits;
        assert_true(suffices ? i < 2 : i > 0 && l->num_together > 0); /* offload alone may do for i = 1 */
        if (suffices && l->num_together > 0) { /* several are then cheaper than the first that suffices alone */
            const orth_rung *last = &l->together[l->num_together - 1];
            int first = 0;
            while (!l->single[first].fits)
                first++;
            assert_true(l->num_together > 1 && last->fits && last->added_s < l->single[first].added_s);
        }
        if (!suffices)
            assert_int_equal(l->together[l->num_together - 1].fits, i == 1);
    }
    CHECK_OK(c.ctx, orth_ladder_find(c.ctx, &c.cfg, &c.where, plain.worst_bytes, 0, l));
    assert_true(l->fits);
    free(l);
    close_case(&c);
}

/* Where changes together end with all of the optimizer's state on the host, a half of it there is not faster, or does not fit. */
TEST(a_half_of_the_optimizer_replaces_all_of_it_where_that_is_faster_and_fits)
{
    static const char whole[] = "memory.offload_optimizer=host", half[] = "memory.offload_optimizer=host memory.offload_ratio=0.5";
    static const char *const words[] = {"model.hidden", "512", "model.heads", "8", "model.vocab", "2000", "data.seq_len", "256", "parallel.dp", "2"};
    fit_case c;
    orth_ladder *l = calloc(1, sizeof *l);
    open_case(&c, words, ORTH_COUNT(words));
    const size_t plain = price_with(&c, "").worst_bytes;
    int halves = 0, wholes = 0;
    static const size_t twentieths[] = {9, 12};
    for (int i = 0; i < ORTH_COUNT(twentieths); i++) {
        const size_t limit = plain / 20 * twentieths[i];
        CHECK_OK(c.ctx, orth_ladder_find(c.ctx, &c.cfg, &c.where, limit, 0, l));
        const orth_rung *last = l->num_together > 0 ? &l->together[l->num_together - 1] : NULL;
        const char *at = last && last->fits ? strstr(last->words, whole) : NULL;
        if (!at)
            continue;
        if (strstr(at, half)) {
            halves++;
            continue;
        }
        char other[ORTH_LADDER_WORDS_MAX + sizeof half];
        snprintf(other, sizeof other, "%.*s%s%s", (int)(at - last->words), last->words, half, at + strlen(whole));
        const orth_price p = price_with(&c, other);
        if (!p.refused && p.worst_bytes <= limit && p.step_s < last->step_s)
            fail_msg("limit %zu: %s takes %g s, %s %g s", limit, last->words, last->step_s, other, p.step_s);
        wholes++;
    }
    assert_true(halves > 0 && wholes > 0);
    free(l);
    close_case(&c);
}

/* Of a preset, another width decides other sizes; its own width decides none. */
TEST(a_row_with_the_width_of_the_preset_is_the_preset)
{
    static const char *const words[] = {"model.preset", "llama3-1b", "data.seq_len", "64"};
    fit_case c;
    open_case(&c, words, ORTH_COUNT(words));
    orth_model_config m;
    CHECK_OK(c.ctx, orth_describe_model(c.ctx, &c.cfg, &m));
    const orth_price preset = price_with(&c, "data.seq_len=64"), same = price_with(&c, "model.hidden=2048 model.heads=32"),
                     other = price_with(&c, "model.hidden=2048 model.ffn=4096");
    assert_int_equal(m.hidden, 2048);
    assert_int_equal(m.heads, 32);
    assert_int_equal(same.bytes, preset.bytes);
    assert_true(other.bytes < preset.bytes);
    close_case(&c);
    run_case *r = run_begin();
    RUN(r, 0, "hidden=4096 and heads=32 are not those of model.preset=llama3-1b, so from them follow model.head_dim=128 (not 64), model.ffn=",
        "plan model.preset=llama3-1b model.hidden=4096 data.seq_len=64 --cluster=h100-1");
    run_end(r);
}

/* From 1,032 tokens on the logits of a sequence are made in more chunks, which need less. */
TEST(a_longer_sequence_that_needs_less_is_found)
{
    static const char title[] = "largest that fits: data.seq_len=";
    run_case *r = run_begin();
    RUN(r, 0, title, "plan model.family=llama model.layers=1 model.hidden=64 model.heads=4 model.vocab=50257 "
        "train.global_batch=8 train.micro_batch=1 data.seq_len=512 --fit=seq_len --limit=320MB");
    long long bytes;
    char fits[8];
    const char *row = strstr(r->out, "\n1024  ");
    assert_true(row && sscanf(row, " 1024 %lld %7s", &bytes, fits) == 2);
    assert_string_equal(fits, "no");
    assert_true(strtol(strstr(r->out, title) + strlen(title), NULL, 10) >= 1032); /* how much longer is a matter of the processor's caches */
    run_end(r);
}

/* Lengths that a layout allows may be farther from each other than 8 tokens, and a rank's limit is one beside those of the host and of files. */
TEST(what_is_found_keeps_all_rules_and_limits)
{
#define TINY "model.family=gpt2 model.layers=3 model.hidden=64 model.heads=4 model.vocab=257 run.probe_s=0.001 "
    run_case *r = run_begin();
    RUN(r, 0, "largest that fits: data.seq_len=5632\n", "plan " TINY "--fit=seq_len --limit=40MB parallel.cp=4 parallel.cp_kind=ring data.seq_len=1536");
    RUN(r, 0, "largest that fits: data.seq_len=1408\n", "plan " TINY "--fit=seq_len --limit=31MB precision.products=nvfp4 data.seq_len=384");
    RUN(r, 0, "largest that fits: model.layers=2\n", "plan " TINY "data.seq_len=64 memory.offload_optimizer=host memory.limit_host=1.5MB --fit=layers --limit=7MB");
    RUN(r, 0, "in the host's memory, limit 1000000 B", "plan " TINY "data.seq_len=64 memory.offload_optimizer=host memory.limit_host=1MB --ladder --limit=5MB");
    assert_null(strstr(r->out, "yes   memory.offload_gradients=host"));
    RUN(r, 0, "parameters", "plan " TINY "data.seq_len=64 memory.recompute=auto memory.recompute_limit=5.9MB memory.limit=5.6MB --require-fit");
    run_end(r);
}

/* A line at most as often as it is asked for, and none when the work is over. */
TEST(who_waits_is_told_how_far_work_is)
{
    fit_case c;
    orth_ladder *l = calloc(1, sizeof *l);
    orth_waiting often, later;
    char *text = NULL;
    size_t n = 0;
    FILE *out = open_memstream(&text, &n);
    open_case(&c, NULL, 0);
    orth_waiting_begin(c.ctx, &later, out, 1e6, 1e6);
    CHECK_OK(c.ctx, orth_ladder_find(c.ctx, &c.cfg, &c.where, 1024, 0, l));
    fflush(out);
    assert_int_equal(n, 0);
    orth_waiting_begin(c.ctx, &often, out, 0, 0);
    CHECK_OK(c.ctx, orth_ladder_find(c.ctx, &c.cfg, &c.where, 1024, 0, l));
    orth_waiting_end(c.ctx);
    fflush(out);
    const size_t before = n;
    assert_non_null(strstr(text, "changes of the run planned: 0 so far\nchanges of the run planned: 1 so far\n"));
    assert_null(strstr(text, "ranks planned"));
    CHECK_OK(c.ctx, orth_ladder_find(c.ctx, &c.cfg, &c.where, 1024, 0, l));
    fflush(out);
    assert_int_equal(n, before);
    fclose(out);
    free(text);
    free(l);
    close_case(&c);
}

static int interrupted(void *user)
{
    (void)user;
    return SIGINT;
}

/* What was found until then counts; an interrupt is one all the same. */
TEST(a_ladder_without_time_says_that_changes_are_left)
{
    fit_case c;
    orth_ladder *l = calloc(1, sizeof *l);
    open_case(&c, NULL, 0);
    CHECK_OK(c.ctx, orth_ladder_find(c.ctx, &c.cfg, &c.where, 1024, 1e-9, l));
    assert_true(l->cut_short && l->none_tried && l->num_single == 0);
    char *text = orth_ladder_nearest_text(c.ctx, l), *json = orth_ladder_json(c.ctx, l);
    assert_non_null(strstr(text, "not all changes were tried in 10 s of processor time: `plan --ladder` with the same words tries all\n"));
    assert_non_null(strstr(json, "\"all_tried\": false"));
    orth_mem_free(c.ctx, json);
    orth_mem_free(c.ctx, text);
    CHECK_OK(c.ctx, orth_ladder_find(c.ctx, &c.cfg, &c.where, 1024, 1e6, l));
    assert_true(!l->cut_short && l->num_single > 0);
    c.ctx->stop = interrupted;
    CHECK_FAILS(c.ctx, ORTH_ERR_SIGNAL, "stopped by SIGINT", orth_ladder_find(c.ctx, &c.cfg, &c.where, 1024, 1e-9, l));
    assert_true(c.ctx->stop == interrupted);
    free(l);
    close_case(&c);
}

/* Codes and scales leave the device as other moments do. */
TEST(the_ladder_of_a_run_with_moments_in_8_bits_has_offload)
{
    static const char *const words[] = {"precision.moments", "8bit"};
    fit_case c;
    orth_ladder *l = calloc(1, sizeof *l);
    bool away = false;
    open_case(&c, words, 2);
    CHECK_OK(c.ctx, orth_ladder_find(c.ctx, &c.cfg, &c.where, price_with(&c, "").worst_bytes - 1, 0, l));
    check_rungs(&c, l, l->single, l->num_single);
    for (int k = 0; k < l->num_single; k++)
        away = away || strstr(l->single[k].words, "memory.offload_optimizer=host");
    assert_true(away);
    free(l);
    close_case(&c);
}

/* The words of the first row of the last output that fits, and its bytes. */
static long first_that_fits(const run_case *r, char *words, size_t size)
{
    const char *at = strstr(r->out, "  yes   ");
    assert_non_null(at);
    const char *row = at, *change = at + strlen("  yes   ");
    while (row[-1] != '\n')
        row--;
    snprintf(words, size, "%.*s", (int)strcspn(change, "\n"), change);
    return strtol(row, NULL, 10);
}

static long planned(run_case *r, const char *words, const char *space)
{
    RUN(r, 0, "\"memory\"", "plan run.yaml --json %s", words);
    json_t *root = json_loads(r->out, 0, NULL);
    assert_non_null(root);
    const long bytes = (long)json_integer_value(json_object_get(json_object_get(root, space), "bytes"));
    json_decref(root);
    assert_true(bytes > 0);
    return bytes;
}

#define NO_LISTS "memory.recompute=full memory.offload_optimizer=" /* lists of operations would have to be quoted */

/* Of each memory that has a limit of its own: the plan is compared with that, and the change that is said to fit trains. */
TEST(a_run_too_large_for_one_memory_gets_a_ladder_of_that_memory)
{
    static const struct { const char *words, *space, *key, *where; long less; } cases[] = {
        {NO_LISTS "host", "device", "limit_device", "in the device memory of a rank", 1},
        {NO_LISTS "host", "device", "limit_device", "in the device memory of a rank", 40000}, /* optimizer state is away already */
        {NO_LISTS "host memory.offload_gradients=host", "host", "limit_host", "in the host's memory", 4096},
    };
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        char words[512], want[160];
        const long bytes = planned(r, cases[i].words, cases[i].space), limit = bytes - cases[i].less;
        snprintf(want, sizeof want, "planned %ld B %s, limit %ld B", bytes, cases[i].where, limit);
        RUN(r, 3, want, "train run.yaml checkpoint.dir=tight %s memory.%s=%ld", cases[i].words, cases[i].key, limit);
        char change[256];
        const long then = first_that_fits(r, change, sizeof change);
        assert_null(strstr(r->out, "no combination"));
        snprintf(words, sizeof words, "%s memory.%s=%ld %s", cases[i].words, cases[i].key, limit, change);
        assert_true(then <= limit);
        if (then > 0) /* nothing is apart from the device any more */
            assert_int_equal(planned(r, words, cases[i].space), then);
        RUN(r, 0, "saved", "train run.yaml checkpoint.dir=tight%d train.steps=1 %s", i, words);
    }
    RUN(r, 3, "in files, limit 10240 B", "train run.yaml checkpoint.dir=tight " NO_LISTS "file memory.limit_file=10KiB");
    RUN(r, 3, "also too much: planned ", "train run.yaml checkpoint.dir=tight " NO_LISTS "file memory.limit_file=10KiB memory.limit_device=10KiB");
    run_end(r);
}

/* What saved most for its time at first is given up where that leaves room for what suffices. */
TEST(changes_that_suffice_are_found_though_others_were_made_first)
{
    run_case *r = run_begin();
    RUN(r, 0, "  yes   ", "plan model.preset=gpt2-124m model.vocab=512 model.layers=4 model.hidden=64 model.heads=4 model.ffn=256 data.seq_len=64 "
        "train.global_batch=8 train.micro_batch=4 memory.offload_optimizer=host memory.limit_device=5000000 memory.limit_host=2000000 run.threads=1 run.probe_s=0.003 --ladder");
    assert_null(strstr(r->out, "no combination that was tried suffices"));
    RUN(r, 0, "no combination that was tried suffices: more ranks", "plan run.yaml --ladder --limit=1KB");
    run_end(r);
}

/* In exactly the bytes that a named policy needs of each memory, auto finds room. */
TEST(recomputation_auto_keeps_the_limits_of_the_host_and_of_files)
{
#define LEAVES "data.seq_len=64 train.global_batch=8 memory.offload_min_bytes=1 memory.offload_activations="
    run_case *r = run_begin();
    for (int i = 0; i < 4; i++) {
        const char *tier = i % 2 ? "file" : "host", *rest = i / 2 ? "parallel.pp=2 train.micro_batch=1" : "";
        char words[256];
        snprintf(words, sizeof words, LEAVES "%s %s memory.recompute=keep memory.recompute_ops='[attention]'", tier, rest);
        const long device = planned(r, words, "device"), other = planned(r, words, tier);
        snprintf(words, sizeof words, LEAVES "%s %s memory.recompute=auto memory.limit_device=%ld", tier, rest, device);
        RUN(r, 0, "fits", "plan run.yaml %s memory.limit_%s=%ld --require-fit", words, tier, other);
        if (i >= 2) /* there is a choice of which nothing leaves */
            continue;
        RUN(r, 3, i % 2 ? "bytes in files at least, whatever is made again within the limit of a rank; the limit is 1000 (memory.limit_file, or what is free"
                        : "bytes of the host's memory at least, whatever is made again within the limit of a rank; the limit is 1000 (memory.limit_host)",
            "plan run.yaml %s memory.limit_%s=1KB --require-fit", words, tier);
    }
    run_end(r);
}

/* What offload put there goes elsewhere, and the limit of a memory that is not used any more with it. */
TEST(a_memory_that_offload_fills_is_relieved_of_what_is_there)
{
    static const struct { const char *words, *changes[4]; } cases[] = {
        {"memory.offload_optimizer=file memory.limit_file=1KB",
         {"memory.offload_optimizer=host memory.limit_file=auto", "memory.offload_optimizer=none memory.limit_file=auto"}},
        {"memory.offload_optimizer=host memory.offload_gradients=file memory.limit_file=1KB",
         {"memory.offload_gradients=host memory.limit_file=auto", "memory.offload_gradients=none memory.limit_file=auto"}},
        {"memory.offload_activations=file memory.offload_min_bytes=1KiB memory.limit_file=1KB",
         {"memory.offload_activations=host memory.limit_file=auto", "memory.offload_activations=none memory.limit_file=auto"}},
        {"memory.offload_optimizer=file memory.offload_params=file memory.limit_file=1KB",
         {"memory.offload_params=host", "memory.offload_optimizer=host memory.offload_params=host memory.limit_file=auto",
          "memory.offload_optimizer=none memory.offload_params=none memory.limit_file=auto"}},
        {"memory.offload_optimizer=file memory.offload_activations=file memory.offload_min_bytes=1KiB memory.limit_file=1KB",
         {"memory.offload_optimizer=host", "memory.offload_optimizer=none", "memory.offload_activations=host", "memory.offload_activations=none"}},
        {"memory.offload_optimizer=host memory.offload_gradients=host memory.limit_host=100KiB",
         {"memory.offload_gradients=file", "memory.offload_optimizer=file memory.offload_gradients=file", "memory.offload_gradients=none",
          "memory.offload_optimizer=none memory.offload_gradients=none memory.limit_host=auto"}},
    };
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        char want[256], change[256];
        RUN(r, 0, "one change", "plan run.yaml --ladder memory.recompute=full %s", cases[i].words);
        for (int k = 0; k < ORTH_COUNT(cases[i].changes) && cases[i].changes[k]; k++) {
            snprintf(want, sizeof want, "  %s\n", cases[i].changes[k]);
            if (!strstr(r->out, want))
                fail_msg("%s: no %s in\n%s", cases[i].words, cases[i].changes[k], r->out);
        }
        first_that_fits(r, change, sizeof change);
        RUN(r, 0, "saved", "train run.yaml checkpoint.dir=relieved%d train.steps=1 memory.recompute=full %s %s", i, cases[i].words, change);
    }
    run_end(r);
}

/* Where even the smallest choice is too large, other changes are listed, each with the choice of auto. */
TEST(recomputation_auto_that_cannot_fit_ends_with_the_ladder_too)
{
    run_case *r = run_begin();
    char change[256];
    RUN(r, 3, "bytes at least", "plan run.yaml memory.recompute=auto memory.recompute_limit=1KiB --require-fit");
    RUN(r, 0, "does not fit: memory.recompute=auto: rank 0 needs ", "plan run.yaml memory.recompute=auto memory.recompute_limit=1KiB");
    assert_non_null(strstr(r->out, "`plan --ladder` with the same words"));
    RUN(r, 0, "{\"fits\": false, \"reason\": \"memory.recompute=auto: ", "plan run.yaml memory.recompute=auto memory.recompute_limit=1KiB --json");
    const long least = strtol(strstr(r->out, "needs ") + 6, NULL, 10), limit = least - 4096;
    RUN(r, 3, "B on the rank that needs the most, limit ", "train run.yaml checkpoint.dir=tight memory.recompute=auto memory.recompute_limit=%ld", limit);
    assert_non_null(strstr(r->out, "the run does not fit: memory.recompute=auto: rank 0 needs "));
    assert_int_equal(strtol(strstr(r->out, "planned ") + 8, NULL, 10), least);
    assert_true(first_that_fits(r, change, sizeof change) <= limit);
    assert_null(strstr(change, "memory.recompute"));
    RUN(r, 0, "saved", "train run.yaml checkpoint.dir=tight train.steps=1 memory.recompute=auto memory.recompute_limit=%ld %s", limit, change);
    run_end(r);
}

TEST(a_run_that_does_not_fit_ends_with_the_ladder_and_a_rung_of_it_trains)
{
    run_case *r = run_begin();
    const char *at, *words;
    RUN(r, 3, "none suffices", "train run.yaml checkpoint.dir=tight memory.limit=1MiB");
    assert_non_null(strstr(r->out, "the run does not fit"));
    RUN(r, 0, "\"single\"", "plan run.yaml --ladder --json");
    json_t *root = json_loads(r->out, 0, NULL);
    const json_t *bytes = json_object_get(root, "bytes");
    const long limit = (long)json_integer_value(bytes) - 1;
    json_decref(root);
    RUN(r, 3, "  yes   ", "train run.yaml checkpoint.dir=tight memory.limit=%ld", limit);
    at = strstr(r->out, "  yes   ");
    words = at + strspn(at + 5, " ") + 5;
    char change[128];
    snprintf(change, sizeof change, "%.*s", (int)strcspn(words, "\n"), words);
    for (char *c = strchr(change, '['); c; c = NULL)
        *c = '\0'; /* lists are quoted in a shell; the test takes changes without one */
    if (!strstr(change, "recompute_ops"))
        RUN(r, 0, "saved", "train run.yaml checkpoint.dir=tight memory.limit=%ld train.steps=1 %s", limit, change);
    RUN(r, 2, "the key is one of micro_batch, seq_len, layers, hidden", "plan run.yaml --fit=heads");
    RUN(r, 2, "--limit is for --fit and --ladder", "plan run.yaml --limit=1GB");
    RUN(r, 2, "one at a time", "plan run.yaml --fit=layers --ladder");
    run_end(r);
}

int main(void)
{
    orth_keep_freed_memory(); /* as the commands that plan do */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_largest_value_that_fits_fits_and_the_next_does_not),
        cmocka_unit_test(rungs_of_the_ladder_are_plans_of_the_changed_runs_in_the_order_of_their_time),
        cmocka_unit_test(a_row_with_the_width_of_the_preset_is_the_preset),
        cmocka_unit_test(a_half_of_the_optimizer_replaces_all_of_it_where_that_is_faster_and_fits),
        cmocka_unit_test(a_longer_sequence_that_needs_less_is_found),
        cmocka_unit_test(what_is_found_keeps_all_rules_and_limits),
        cmocka_unit_test(who_waits_is_told_how_far_work_is),
        cmocka_unit_test(a_ladder_without_time_says_that_changes_are_left),
        cmocka_unit_test(the_ladder_of_a_run_with_moments_in_8_bits_has_offload),
        cmocka_unit_test(a_run_too_large_for_one_memory_gets_a_ladder_of_that_memory),
        cmocka_unit_test(changes_that_suffice_are_found_though_others_were_made_first),
        cmocka_unit_test(recomputation_auto_keeps_the_limits_of_the_host_and_of_files),
        cmocka_unit_test(a_memory_that_offload_fills_is_relieved_of_what_is_there),
        cmocka_unit_test(recomputation_auto_that_cannot_fit_ends_with_the_ladder_too),
        cmocka_unit_test(a_run_that_does_not_fit_ends_with_the_ladder_and_a_rung_of_it_trains),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
