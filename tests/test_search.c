/* test_search.c -- the search against exhaustion: random small spaces, whose every layout is planned in full. */
#include "search_case.h"

#include <time.h>
#include <unistd.h>
#include <stdlib.h>

#include "base/files.h"
#include "parallel/pipeline/schedule.h"

static const char *const pipelines[] = {"1f1b", "gpipe", "zb-h1", "interleaved", "zb-v"}, *const recompute[] = {"none", "selective", "full"};

/* And together. */
static const bool ladder[][ORTH_COUNT(away)] = {{0, 0, 0, 0}, {1, 0, 0, 0}, {1, 1, 0, 0}, {1, 1, 1, 0},
                                               {0, 0, 0, 1}, {1, 0, 0, 1}, {1, 1, 0, 1}, {1, 1, 1, 1}};

/* Keys that a small space leaves open beside tp, pp, dp, micro-batch and schedule: one to three, so that it stays small; the others are given. */
enum { FREE_ZERO = 1, FREE_AGAIN = 2, FREE_GROUP = 4, FREE_CP_KIND = 8, FREE_AWAY = 16 };
static const int free_keys[] = {FREE_AWAY, FREE_AWAY, FREE_ZERO | FREE_AGAIN, FREE_ZERO | FREE_GROUP, FREE_ZERO | FREE_GROUP | FREE_CP_KIND,
                                FREE_AGAIN | FREE_CP_KIND, FREE_AGAIN | FREE_GROUP | FREE_CP_KIND, FREE_ZERO | FREE_CP_KIND, FREE_ZERO | FREE_AWAY,
                                FREE_AGAIN | FREE_AWAY};
static const char *const zeros[] = {"0", "1", "2", "3"}, *const groups[] = {"0", "2", "4"}, *const cp_kinds[] = {"all_gather", "ring", "all_to_all"};

static void give(orth_ctx *ctx, orth_config *cfg, bool given, const char *key, const char *value)
{
    if (given)
        CHECK_OK(ctx, orth_config_set(ctx, cfg, "command line", key, value));
}

/* What may be offloaded in a small space with FREE_AWAY. */
static const bool free_sets[][ORTH_COUNT(away)] = {{0, 0, 0, 0}, {0, 0, 0, 0}, {0, 0, 0, 0}, {1, 0, 0, 0},
                                                  {0, 0, 0, 1}, {1, 1, 0, 0}, {1, 1, 1, 0}, {1, 1, 1, 1}};

/* A model, a batch, and some keys that are fixed, so that the space is small; open_keys: FREE_... */
static void random_base(orth_ctx *ctx, orth_config *cfg, uint64_t seed, int open_keys)
{
    char text[512];
    snprintf(text, sizeof text, "model: {family: %s, layers: %d, hidden: %d, heads: 4, vocab: %d, max_seq: 128}\ndata: {seq_len: 128}\n"
             "train: {global_batch: %d, steps: 100}\nprecision: {compute: bf16}\nnumerics: {mode: %s}\n", test_rand_int(seed, 0, 0, 1) ? "gpt2" : "llama",
             (int)test_rand_int(seed, 1, 2, 5), 64 << test_rand_int(seed, 2, 0, 3), 256 << test_rand_int(seed, 3, 0, 4), 4 << test_rand_int(seed, 4, 0, 1),
             test_rand_int(seed, 5, 0, 1) ? "fast" : "reproducible");
    read_base(ctx, cfg, text);
    give(ctx, cfg, !(open_keys & FREE_ZERO), "parallel.zero", zeros[test_rand_int(seed, 6, 0, 3)]);
    give(ctx, cfg, !(open_keys & FREE_AGAIN), "memory.recompute", recompute[test_rand_int(seed, 7, 0, 2)]);
    set(ctx, cfg, "parallel.cp", "%d", 1 + (int)(open_keys & FREE_CP_KIND ? test_rand_int(seed, 8, 0, 1) : test_rand_int(seed, 8, 0, 3) == 0));
    give(ctx, cfg, !(open_keys & FREE_GROUP), "parallel.shard_group", "0");
    give(ctx, cfg, !(open_keys & FREE_CP_KIND), "parallel.cp_kind", "all_gather");
    for (int k = 0; k < ORTH_COUNT(away); k++)
        give(ctx, cfg, !(open_keys & FREE_AWAY) || !free_sets[test_rand_int(seed, 15, 0, ORTH_COUNT(free_sets) - 1)][k], away[k], "none");
}

static orth_place_to_run random_place(orth_ctx *ctx, uint64_t seed)
{
    static const char *const names[] = {"h100", "a100-80gb", "mi300x"};
    orth_place_to_run where = {.described = true};
    orth_hardware *h = &where.hardware;
    CHECK_OK(ctx, orth_hardware_find(ctx, h, names[test_rand_int(seed, 9, 0, 2)]));
    h->node_devices = (double)(2 << test_rand_int(seed, 10, 0, 1));
    h->node_GBps /= (double)test_rand_int(seed, 11, 1, 100);
    h->network_GBps /= (double)test_rand_int(seed, 12, 1, 20);
    h->device_launch_us = 0.1 * (double)test_rand_int(seed, 13, 0, 30);
    h->node_host_GBps /= (double)test_rand_int(seed, 16, 1, 40);
    h->node_memory_GBps *= (double)test_rand_int(seed, 17, 1, 40);
    return where;
}

/* Whether all keys of the row that offload something are free. */
static bool is_tried(const orth_config *base, bool described, const bool *row)
{
    static const orth_option_id keys[] = {ORTH_OPT_memory_offload_optimizer, ORTH_OPT_memory_offload_gradients, ORTH_OPT_memory_offload_params,
                                          ORTH_OPT_memory_offload_activations};
    bool all = true;
    for (int k = 0; k < ORTH_COUNT(keys); k++)
        all = all && (!row[k] || (described && !base->place[keys[k]]));
    return all;
}

/* What a layout is priced at; INFINITY: it is refused, or does not fit. *crowded: hosts have too little for it. */
static double price_key(orth_ctx *ctx, const orth_config *cfg, orth_place_to_run *where, orth_goal goal, int *planned, bool *crowded)
{
    orth_price p;
    CHECK_OK(ctx, orth_price_run(ctx, where, cfg, &p));
    *planned += !p.refused;
    *crowded = !p.refused && orth_budget_exceeded(&p.budgets[ORTH_BUDGET_HOST]);
    if (p.refused || !p.fits)
        return INFINITY;
    return goal == ORTH_GOAL_TIME ? p.step_s : goal == ORTH_GOAL_MEMORY ? (double)p.bytes : 3600 * p.usd / (double)cfg->train_steps;
}

/* Of what leaves, the classes whose bits are set go to files. False: they do not leave. */
static bool put_away(orth_ctx *ctx, orth_config *cfg, const bool row[ORTH_COUNT(away)], unsigned files)
{
    for (int k = 0; k < ORTH_COUNT(away); k++)
        if (!row[k] && files >> k & 1)
            return false;
    for (int k = 0; k < ORTH_COUNT(away); k++)
        if (row[k])
            CHECK_OK(ctx, orth_config_set(ctx, cfg, "test", away[k], files >> k & 1 ? "file" : "host"));
    return true;
}

/* The least key of a layout with a row of the ladder on the hosts and, if they have too little for that, in files. */
static double exhaust_tiers(orth_ctx *ctx, orth_config *cfg, orth_place_to_run *where, const bool row[ORTH_COUNT(away)], orth_goal goal, int *planned)
{
    bool crowded = true, still;
    double best = INFINITY;
    for (unsigned files = 0; crowded && files < 1u << ORTH_COUNT(away); files++)
        if (put_away(ctx, cfg, row, files))
            best = fmin(best, price_key(ctx, cfg, where, goal, planned, files == 0 ? &crowded : &still));
    return best;
}

/* The least key of all layouts of num ranks that fit and have the other keys of the base, each planned in full; INFINITY: none fits. */
static double exhaust_meshes(orth_ctx *ctx, const orth_config *base, orth_place_to_run *where, int num, orth_goal goal, int *planned)
{
    double best = INFINITY;
    const int cp = (int)base->parallel_cp;
    for (int tp = 1; tp * cp <= num; tp++)
        for (int pp = 1; tp * cp * pp <= num; pp++)
            for (int micro = 1; micro <= 8 && num % (tp * cp * pp) == 0; micro++)
                for (int k = 0; k < (pp == 1 ? 1 : ORTH_COUNT(pipelines)); k++)
                    for (int v = 1; v <= (pp == 1 ? 1 : (int)base->model_layers / pp); v++)
                        for (int sp = 0; sp < 1 + (tp > 1); sp++)
                            for (int row = 0; row < ORTH_COUNT(ladder); row++) {
                                orth_config cfg;
                                if (!is_tried(base, where->described, ladder[row]))
                                    continue;
                                CHECK_OK(ctx, orth_config_init(ctx, &cfg));
                                CHECK_OK(ctx, orth_config_override(ctx, &cfg, base));
                                set(ctx, &cfg, "parallel.tp", "%d", tp);
                                set(ctx, &cfg, "parallel.pp", "%d", pp);
                                set(ctx, &cfg, "parallel.dp", "%d", num / (tp * cp * pp));
                                set(ctx, &cfg, "parallel.virtual_stages", "%d", v);
                                set(ctx, &cfg, "train.micro_batch", "%d", micro);
                                CHECK_OK(ctx, orth_config_set(ctx, &cfg, "test", "parallel.pipeline", pipelines[k]));
                                CHECK_OK(ctx, orth_config_set(ctx, &cfg, "test", "parallel.sequence_parallel", sp ? "true" : "false"));
                                best = fmin(best, exhaust_tiers(ctx, &cfg, where, ladder[row], goal, planned));
                                orth_config_release(ctx, &cfg);
                            }
    return best;
}

/* The least key of all layouts of num ranks, with every value of the keys that the base leaves open. */
static double exhaust(orth_ctx *ctx, const orth_config *base, orth_place_to_run *where, int num, orth_goal goal, int *planned)
{
    const struct {
        orth_option_id key;
        const char *const *values;
        int num;
    } keys[] = {{ORTH_OPT_parallel_zero, zeros, ORTH_COUNT(zeros)}, {ORTH_OPT_memory_recompute, recompute, ORTH_COUNT(recompute)},
                {ORTH_OPT_parallel_shard_group, groups, ORTH_COUNT(groups)}, {ORTH_OPT_parallel_cp_kind, cp_kinds, ORTH_COUNT(cp_kinds)}};
    double best = INFINITY;
    for (int n = 0, all = ORTH_COUNT(zeros) * ORTH_COUNT(recompute) * ORTH_COUNT(groups) * ORTH_COUNT(cp_kinds); n < all; n++) {
        orth_config cfg;
        bool once = true; /* of a key that is given: with the first value only */
        CHECK_OK(ctx, orth_config_init(ctx, &cfg));
        CHECK_OK(ctx, orth_config_override(ctx, &cfg, base));
        for (int k = 0, rest = n; k < ORTH_COUNT(keys); rest /= keys[k++].num) {
            const char *value = keys[k].values[rest % keys[k].num];
            const bool given = base->place[keys[k].key] || (keys[k].key == ORTH_OPT_parallel_cp_kind && base->parallel_cp == 1);
            once = once && (!given || rest % keys[k].num == 0);
            if (!given)
                CHECK_OK(ctx, orth_config_set(ctx, &cfg, "test", orth_option_get(keys[k].key)->path, value));
        }
        if (once)
            best = fmin(best, exhaust_meshes(ctx, &cfg, where, num, goal, planned));
        orth_config_release(ctx, &cfg);
    }
    return best;
}

/* Memory such that not all layouts fit. */
static void limit_memory(orth_place_to_run *where, const orth_search *s, uint64_t seed)
{
    double least = INFINITY, most = 0;
    for (int64_t i = 0; i < s->space.num; i++) {
        least = fmin(least, s->space.list[i].bytes);
        most = isinf(s->space.list[i].bytes) ? most : fmax(most, s->space.list[i].bytes); /* hosts have too little */
    }
    const double share = 0.1 * (double)test_rand_int(seed, 14, 4, 40);
    where->hardware.device_reserved_GiB = 0;
    where->hardware.device_memory_GiB = (least + share * (most - least)) / 0x1p30;
}

/* Hosts that may have too little, and disks, for what training keeps of a model. */
static void limit_nodes(orth_ctx *ctx, orth_place_to_run *where, const orth_config *base, uint64_t seed)
{
    orth_model_config model;
    CHECK_OK(ctx, orth_describe_model(ctx, base, &model));
    const double state = 16.0 * (double)orth_model_num_elems(&model);
    where->hardware.node_memory_GiB = state / 0x1p30 * 0.1 * (double)test_rand_int(seed, 20, 1, 30);
    where->hardware.node_file_GBps = 0.1 * (double)test_rand_int(seed, 21, 1, 200);
    where->hardware.node_file_GiB = state / 0x1p30 * 0.2 * (double)test_rand_int(seed, 22, 0, 10);
}

/* A search through the layouts of 4 devices of a random place, not all of which fit. */
static void random_search(orth_ctx *ctx, orth_search *s, const orth_config *base, orth_place_to_run *where, uint64_t seed, orth_goal goal)
{
    limit_nodes(ctx, where, base, seed);
    CHECK_OK(ctx, orth_search_make_on(ctx, s, base, where, 4, goal));
    limit_memory(where, s, seed);
    orth_search_release(ctx, s);
    CHECK_OK(ctx, orth_search_make_on(ctx, s, base, where, 4, goal));
}

TEST(the_winner_of_a_search_is_the_best_of_all_layouts_planned_one_by_one)
{
    const char *many = getenv("ORTH_SPACES");
    const int wanted = many ? atoi(many) : 10;
    const uint64_t first = getenv("ORTH_SEED") ? (uint64_t)atoll(getenv("ORTH_SEED")) : 1;
    orth_ctx *ctx = test_ctx(1);
    int equal = 0, planned = 0, all = 0, none = 0;
    for (int n = 0; n < wanted; n++) {
        const uint64_t seed = first + (uint64_t)n;
        const orth_goal goal = n % 4 == 3 ? ORTH_GOAL_MEMORY : n % 4 == 1 ? ORTH_GOAL_COST : ORTH_GOAL_TIME;
        orth_config base;
        orth_search s;
        orth_search_answer a;
        const int open_keys = free_keys[test_rand_int(seed, 18, 0, ORTH_COUNT(free_keys) - 1)];
        orth_place_to_run where = random_place(ctx, seed);
        random_base(ctx, &base, seed, open_keys);
        if (goal == ORTH_GOAL_COST)
            let_fail(&where.hardware, seed);
        random_search(ctx, &s, &base, &where, seed, goal);
        CHECK_OK(ctx, orth_search_ask(ctx, &s, &(orth_search_question){.max_plans = 100000}, &a));
        double best = exhaust(ctx, &base, &where, 4, goal, &all);
        for (int fewer = 2; fewer > 0 && goal == ORTH_GOAL_COST; fewer /= 2)
            best = fmin(best, exhaust(ctx, &base, &where, fewer, goal, &all));
        const double mine = a.candidate < 0 ? INFINITY : orth_search_key(&s, &s.space.list[a.candidate]);
        assert_true(a.proved);
        planned += s.num_plans;
        none += isinf(best);
        if (isinf(mine) ? isinf(best) : mine <= best * (1 + 1e-9))
            equal++;
        else
            printf("seed %d, open keys %d: found %.9g, the best is %.9g\n", (int)seed, open_keys, mine, best);
        orth_search_release(ctx, &s);
        orth_config_release(ctx, &base);
    }
    printf("seeds from %d: %d of %d winners are the best (%d times none fits); %d full plans instead of %d\n", (int)first, equal, wanted, none, planned, all);
    assert_true(equal >= 0.99 * wanted && planned < 0.7 * all);
    test_ctx_free(ctx);
}

static bool has(const orth_candidate *c, const char *pipeline)
{
    return strcmp(orth_schedule_kind_get(c->pipeline)->name, pipeline) == 0;
}

static bool is_unsplit(const orth_search *s, const orth_candidate *c)
{
    (void)s;
    return has(c, "gpipe") || has(c, "1f1b");
}

/* 1f1b would win if it took as long, since it needs less memory. */
TEST(gpipe_wins_where_it_is_faster)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config base;
    orth_search s;
    orth_search_answer a;
    orth_place_to_run where = random_place(ctx, 110);
    random_base(ctx, &base, 110, FREE_AWAY);
    random_search(ctx, &s, &base, &where, 110, ORTH_GOAL_TIME);
    CHECK_OK(ctx, orth_search_ask(ctx, &s, &(orth_search_question){.max_plans = 100000}, &a));
    assert_true(a.proved && has(&s.space.list[a.candidate], "gpipe"));
    orth_search_release(ctx, &s);
    orth_config_release(ctx, &base);
    test_ctx_free(ctx);
}

TEST(of_schedules_that_take_as_long_the_one_that_needs_less_memory_wins)
{
    static const char text[] = "model: {family: gpt2, layers: 4, hidden: 256, heads: 4, vocab: 512, max_seq: 128}\ndata: {seq_len: 128}\n"
                               "train: {global_batch: 8}\nprecision: {compute: bf16}\nnumerics: {mode: fast}\n";
    static const char *const fixed[][2] = {{"parallel.pp", "4"}, {"parallel.virtual_stages", "1"}, {"train.micro_batch", "1"}, {"memory.recompute", "none"},
                                           {"memory.offload_optimizer", "none"}, {"memory.offload_activations", "none"}};
    orth_ctx *ctx = test_ctx(1);
    orth_config base;
    orth_search s;
    orth_search_answer first, second;
    read_base(ctx, &base, text);
    for (int i = 0; i < ORTH_COUNT(fixed); i++)
        CHECK_OK(ctx, orth_config_set(ctx, &base, "command line", fixed[i][0], fixed[i][1]));
    CHECK_OK(ctx, orth_search_make(ctx, &s, &base, "h100-4", ORTH_GOAL_TIME));
    CHECK_OK(ctx, orth_search_ask(ctx, &s, &(orth_search_question){.is = is_unsplit, .max_plans = 100}, &first));
    CHECK_OK(ctx, orth_search_ask(ctx, &s, &(orth_search_question){.is = is_unsplit, .max_plans = 100, .without = &first.candidate, .num_without = 1}, &second));
    const orth_price *one = orth_search_price(&s, first.candidate), *other = orth_search_price(&s, second.candidate);
    assert_true(has(&s.space.list[first.candidate], "1f1b") && has(&s.space.list[second.candidate], "gpipe"));
    assert_true(fabs(one->step_s / other->step_s - 1) < 1e-12 && one->bytes < other->bytes);
    orth_search_release(ctx, &s);
    orth_config_release(ctx, &base);
    test_ctx_free(ctx);
}

/* The sets of classes that layouts of a search have away, as bits of sets, and one of the layouts. */
static unsigned sets_of(orth_ctx *ctx, const orth_config *base, char text[ORTH_CANDIDATE_MAX])
{
    orth_search s;
    unsigned sets = 0;
    CHECK_OK(ctx, orth_search_make(ctx, &s, base, "a100-80gb-4", ORTH_GOAL_TIME));
    for (int64_t i = 0; i < s.space.num; i++) {
        unsigned bits = 0;
        for (int k = 0; k < ORTH_NUM_AWAY; k++)
            bits |= (unsigned)(s.space.list[i].away[k] != ORTH_TIER_NONE) << k;
        sets |= 1u << bits;
    }
    orth_candidate_text(&s.space.list[s.space.num - 1], text);
    orth_search_release(ctx, &s);
    return sets;
}

/* Optimizer 1, gradients 2, weights 4, activations 8. */
TEST(what_is_offloaded_is_searched_where_no_word_of_the_command_line_says_it)
{
    static const struct {
        const char *key, *value, *base, *last;
        unsigned sets;
    } cases[] = {{"memory.offload_dir", ".", "", "optimizer + gradients + weights + activations on the host", 1u << 0 | 1u << 1 | 1u << 3 | 1u << 7 | 1u << 8 | 1u << 9 | 1u << 11 | 1u << 15},
                 {"memory.offload_activations", "host", "", "on the host", 1u << 8 | 1u << 9 | 1u << 11 | 1u << 15},
                 {"memory.offload_gradients", "none", "", "optimizer + weights + activations on the host", 1u << 0 | 1u << 1 | 1u << 5 | 1u << 8 | 1u << 9 | 1u << 13},
                 {"memory.offload_optimizer", "none", "", "activations on the host", 1u << 0 | 1u << 8},
                 {"memory.offload_ratio", "0.5", "", "optimizer + activations on the host", 1u << 0 | 1u << 1 | 1u << 8 | 1u << 9},
                 {"memory.offload_activations", "none", "memory: {offload_ratio: 0.5}\n", "optimizer + gradients + weights on the host", 1u << 0 | 1u << 1 | 1u << 3 | 1u << 7},
                 {"memory.offload_params", "file", "memory: {offload_optimizer: file}\n", "gradients + activations on the host, optimizer + weights in a file", 1u << 7 | 1u << 15},
                 {"memory.offload_activations", "none", "precision: {moments: 8bit}\n", "optimizer + gradients + weights on the host", 1u << 0 | 1u << 1 | 1u << 3 | 1u << 7}};
    static const char model[] = "model: {preset: llama-tiny, max_seq: 128}\ndata: {seq_len: 128}\ntrain: {global_batch: 8}\n";
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < ORTH_COUNT(cases); k++) {
        orth_config base;
        char text[512], last[ORTH_CANDIDATE_MAX];
        snprintf(text, sizeof text, "%s%s", model, cases[k].base);
        read_base(ctx, &base, text);
        CHECK_OK(ctx, orth_config_set(ctx, &base, "command line", cases[k].key, cases[k].value));
        CHECK_OK(ctx, orth_config_set(ctx, &base, "command line", "memory.recompute", "none"));
        const unsigned sets = sets_of(ctx, &base, last);
        if (sets != cases[k].sets || !strstr(last, cases[k].last))
            fail_msg("%s=%s: sets %#x, not %#x; %s", cases[k].key, cases[k].value, sets, cases[k].sets, last);
        orth_config_release(ctx, &base);
    }
    test_ctx_free(ctx);
}

/* Offload to the hosts does not fit into them, and without any the devices have too little. */
TEST(where_hosts_have_too_little_the_winner_keeps_the_rest_in_files)
{
    static const char text[] = "model: {family: llama, layers: 4, hidden: 256, heads: 4, vocab: 512, max_seq: 128}\ndata: {seq_len: 128}\n"
                               "train: {global_batch: 4}\nprecision: {compute: bf16}\nnumerics: {mode: fast}\n";
    static const char *const given[][2] = {{"train.micro_batch", "1"}, {"memory.recompute", "full"}, {"memory.offload_activations", "none"}};
    static const struct {
        double device_MB, host_MB, file_MB; /* of disks 0: not known */
        const char *key, *value, *winner;
    } cases[] = {{12, 1000, 1, NULL, NULL, "optimizer + gradients + weights on the host"},
                 {12, 64, 0, NULL, NULL, "optimizer + gradients on the host, weights in a file"},
                 {12, 40, 0, NULL, NULL, "gradients + weights on the host, optimizer in a file"},
                 {12, 40, 50, NULL, NULL, "gradients + weights on the host, optimizer in a file"},
                 {12, 40, 40, NULL, NULL, "none"},
                 {12, 28, 0, NULL, NULL, "gradients on the host, optimizer + weights in a file"},
                 {12, 20, 0, NULL, NULL, "weights on the host, optimizer + gradients in a file"},
                 {12, 17, 67, NULL, NULL, "optimizer + gradients + weights in a file"},
                 {12, 17, 66, NULL, NULL, "none"},
                 {12, 10, 0, NULL, NULL, "none"},
                 {32, 20, 0, "memory.offload_ratio", "0.9", "optimizer in a file"},
                 {12, 40, 0, "optimizer.freeze", "[embed.*]", "optimizer in a file"},
                 {12, 1000, 0, "memory.limit_host", "40MB", "optimizer in a file"},
                 {12, 40, 0, "memory.limit_file", "40MB", "none"},
                 {12, 40, 0, "memory.limit_file", "50MB", "optimizer in a file"},
                 {100, 40, 0, "memory.limit_file", "50MB", "dp 1, micro-batch 1, recompute full"},
                 {100, 40, 0, "memory.limit_host", "1MB", "dp 1, micro-batch 1, recompute full"}};
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < ORTH_COUNT(cases); k++) {
        orth_place_to_run where = {.described = true};
        orth_config base;
        orth_search s;
        orth_search_answer a;
        char winner[ORTH_CANDIDATE_MAX] = "none";
        read_base(ctx, &base, text);
        for (int i = 0; i < ORTH_COUNT(given); i++)
            CHECK_OK(ctx, orth_config_set(ctx, &base, "command line", given[i][0], given[i][1]));
        if (cases[k].key)
            CHECK_OK(ctx, orth_config_set(ctx, &base, "command line", cases[k].key, cases[k].value));
        CHECK_OK(ctx, orth_hardware_find(ctx, &where.hardware, "h100"));
        where.hardware.device_reserved_GiB = 0;
        where.hardware.device_memory_GiB = 1e6 * cases[k].device_MB / 0x1p30;
        where.hardware.node_memory_GiB = 1e6 * cases[k].host_MB / 0x1p30;
        where.hardware.node_file_GiB = 1e6 * cases[k].file_MB / 0x1p30;
        CHECK_OK(ctx, orth_search_make_on(ctx, &s, &base, &where, 1, ORTH_GOAL_TIME));
        CHECK_OK(ctx, orth_search_ask(ctx, &s, &(orth_search_question){.max_plans = 100}, &a));
        if (a.candidate >= 0)
            orth_candidate_text(&s.space.list[a.candidate], winner);
        if (!strstr(winner, cases[k].winner))
            fail_msg("%d: %g MB of the host, %g MB of files: %s, not %s", k, cases[k].host_MB, cases[k].file_MB, winner, cases[k].winner);
        orth_search_release(ctx, &s);
        orth_config_release(ctx, &base);
    }
    test_ctx_free(ctx);
}

/* A node of 8 devices and 8 of one: the second stage, with most of the layers, has a host for each of its ranks. */
TEST(what_hosts_have_is_bounded_on_nodes_of_different_sizes)
{
    static const char text[] = "model: {family: llama, layers: 16, hidden: 256, heads: 8, vocab: 512, max_seq: 128}\ndata: {seq_len: 128}\n"
                               "train: {global_batch: 4}\nprecision: {compute: bf16}\nnumerics: {mode: fast}\nparallel: {stage_layers: [2, 14]}\n";
    static const char mixed[] = "groups:\n  big: {hardware: h100, nodes: 1, devices: 8}\n  small: {hardware: h100, nodes: 8, devices: 1}\n"
                                "between: {GBps: 100, latency_us: 10}\n";
    static const char *const given[][2] = {{"parallel.pp", "2"}, {"parallel.tp", "8"}, {"parallel.dp", "1"}, {"parallel.cp", "1"}, {"train.micro_batch", "1"},
                                           {"parallel.virtual_stages", "1"}, {"memory.recompute", "none"}, {"memory.offload_optimizer", "host"},
                                           {"memory.offload_gradients", "none"}, {"memory.offload_params", "none"}, {"memory.offload_activations", "none"}};
    orth_ctx *ctx = test_ctx(1);
    orth_place_to_run where = {.described = true};
    orth_config base;
    orth_search s;
    orth_search_answer a;
    orth_price p;
    char limit[32];
    read_base(ctx, &base, text);
    for (int i = 0; i < ORTH_COUNT(given); i++)
        CHECK_OK(ctx, orth_config_set(ctx, &base, "command line", given[i][0], given[i][1]));
    CHECK_OK(ctx, orth_hardware_parse(ctx, &where.hardware, "mixed.yaml", mixed, strlen(mixed)));
    CHECK_OK(ctx, orth_price_run(ctx, &where, &base, &p));
    assert_false(p.refused);
    snprintf(limit, sizeof limit, "%zu", p.budgets[ORTH_BUDGET_HOST].bytes);
    CHECK_OK(ctx, orth_config_set(ctx, &base, "command line", "memory.limit_host", limit));
    CHECK_OK(ctx, orth_search_make_on(ctx, &s, &base, &where, 16, ORTH_GOAL_TIME));
    CHECK_OK(ctx, orth_search_ask(ctx, &s, &(orth_search_question){.max_plans = 1000}, &a));
    assert_true(a.candidate >= 0 && orth_search_price(&s, a.candidate)->step_s <= p.step_s * (1 + 1e-9));
    orth_search_release(ctx, &s);
    orth_config_release(ctx, &base);
    test_ctx_free(ctx);
}

/* A rule between a key that was given and one that the search chooses leaves layouts out; a rule that no layout can keep is said as it is. */
TEST(layouts_that_a_rule_between_keys_refuses_are_left_out_and_counted)
{
    static const char text[] = "model: {preset: llama-tiny, max_seq: 128}\ndata: {seq_len: 128}\ntrain: {global_batch: 4}\n";
    orth_ctx *ctx = test_ctx(1);
    orth_config base;
    orth_search s;
    char *report;
    int32_t winner;
    read_base(ctx, &base, text);
    CHECK_OK(ctx, orth_config_set(ctx, &base, "command line", "parallel.gather_unit", "half"));
    set(ctx, &base, "parallel.cp", "%d", 1);
    CHECK_OK(ctx, orth_search_make(ctx, &s, &base, "a100-80gb-2", ORTH_GOAL_TIME));
    assert_true(s.space.num > 0 && s.space.num_left_out > s.space.num);
    for (int64_t i = 0; i < s.space.num; i++)
        assert_int_equal(s.space.list[i].zero, 3);
    CHECK_OK(ctx, orth_search_report(ctx, &s, 100, false, &report, &winner));
    if (winner < 0 || !strstr(report, " layouts by rules between keys, the first: command line: parallel.gather_unit=half with parallel.zero=0: only zero=3"))
        fail_msg("%s", report);
    for (int32_t k = 0; k < s.num_plans; k++)
        assert_false(s.plans[k].price.refused);
    orth_mem_free(ctx, report);
    orth_search_release(ctx, &s);
    set(ctx, &base, "parallel.zero", "%d", 1);
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "command line: parallel.gather_unit=half with parallel.zero=1", orth_search_make(ctx, &s, &base, "a100-80gb-2", ORTH_GOAL_TIME));
    set(ctx, &base, "parallel.zero", "%d", 3);
    CHECK_OK(ctx, orth_config_set(ctx, &base, "command line", "optimizer.betas", "[0.9]"));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "command line: optimizer.betas holds 1 numbers, not 2", orth_search_make(ctx, &s, &base, "a100-80gb-2", ORTH_GOAL_TIME));
    orth_config_release(ctx, &base);
    test_ctx_free(ctx);
}

static int64_t count_list(orth_ctx *ctx, const char *model, double *seconds)
{
    orth_config base;
    orth_search s;
    char text[256];
    snprintf(text, sizeof text, "model: {preset: %s}\ndata: {seq_len: 8192}\ntrain: {global_batch: 256}\nprecision: {compute: bf16}\nnumerics: {mode: fast}\n", model);
    read_base(ctx, &base, text);
    const clock_t before = clock();
    CHECK_OK(ctx, orth_search_make(ctx, &s, &base, "h100-256", ORTH_GOAL_TIME));
    *seconds = (double)(clock() - before) / CLOCKS_PER_SEC;
    const int64_t num = s.space.num;
    orth_search_release(ctx, &s);
    orth_config_release(ctx, &base);
    return num;
}

/* On one core it takes a few tenths of a second. */
TEST(a_hundred_thousand_layouts_are_ranked_in_two_seconds_of_processor_time)
{
    orth_ctx *ctx = test_ctx(1);
    double seconds;
    const int64_t num = count_list(ctx, "llama3-70b", &seconds);
    printf("%lld layouts, %.2f s\n", (long long)num, seconds);
    assert_true(num >= 100000 && seconds < 2.0 * (double)num / 1e5);
    test_ctx_free(ctx);
}

/* Two cores, one of which does a product in half of the time that both together need for it: two ranks with a core each win. */
static const char machine[] =
    "device: {name: X, memory_GiB: 4, memory_GBps: 10, fp32_tflops: 0.1}\nnode: {devices: 1}\nhost: {cores: 2, isa: base}\n"
    "fp32_one:\n  linear: [1000, 0, 0, 0, 0, 0.02]\n  linear_dx: [1000, 0, 0, 0, 0, 0.02]\n  linear_dw: [1000, 0, 0, 0, 0, 0.02]\n"
    "fp32_all:\n  linear: [9000, 0, 0, 0, 0, 0.015]\n  linear_dx: [9000, 0, 0, 0, 0, 0.015]\n  linear_dw: [9000, 0, 0, 0, 0, 0.015]\n"
    "calls: {send: [10, 0, 0], recv: [10, 0, 0]}\n";

TEST(on_a_measured_machine_the_winner_is_the_best_of_all_layouts_of_its_threads)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config base;
    orth_search s;
    orth_search_answer few, a;
    orth_place_to_run where;
    char path[128], *text;
    int planned = 0;
    int32_t winner;
    snprintf(path, sizeof path, "/tmp/orthant-test-%ld-machine.yaml", (long)getpid());
    CHECK_OK(ctx, orth_file_write(ctx, path, machine, strlen(machine)));
    random_base(ctx, &base, 1, FREE_AWAY);
    CHECK_OK(ctx, orth_config_set(ctx, &base, "test", "precision.compute", "fp32"));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "its cost is its time", orth_search_make(ctx, &s, &base, path, ORTH_GOAL_COST));
    CHECK_OK(ctx, orth_search_make(ctx, &s, &base, path, ORTH_GOAL_TIME));
    CHECK_OK(ctx, orth_search_ask(ctx, &s, &(orth_search_question){.max_plans = 1}, &few));
    assert_false(few.proved);
    CHECK_OK(ctx, orth_search_ask(ctx, &s, &(orth_search_question){.max_plans = 100000}, &a));
    CHECK_OK(ctx, orth_place_to_run_find(ctx, &where, path));
    const double best = fmin(exhaust(ctx, &base, &where, 1, ORTH_GOAL_TIME, &planned), exhaust(ctx, &base, &where, 2, ORTH_GOAL_TIME, &planned));
    const double mine = orth_search_key(&s, &s.space.list[a.candidate]);
    if (mine > best * (1 + 1e-9))
        fail_msg("found %.9g s, the best is %.9g s", mine, best);
    assert_true(a.proved == (s.num_plans == s.space.num) && s.num_plans > 1);
    CHECK_OK(ctx, orth_search_report(ctx, &s, 1000, false, &text, &winner));
    const bool all = s.num_plans == s.space.num; /* the report has planned some more */
    assert_non_null(strstr(text, all ? "proved: all layouts were planned" : "no bound holds on a measured machine"));
    assert_true(winner == a.candidate || orth_search_key(&s, &s.space.list[winner]) <= mine);
    orth_mem_free(ctx, text);
    orth_place_to_run_release(ctx, &where);
    orth_search_release(ctx, &s);
    orth_config_release(ctx, &base);
    unlink(path);
    test_ctx_free(ctx);
}

/* A rule of what products need is found when a small run of the layout is compiled: the layout is left out, the search goes on. */
TEST(layouts_that_are_refused_when_they_are_compiled_are_left_out)
{
    static const char text[] = "model: {family: llama, layers: 2, hidden: 256, heads: 8, kv_heads: 2, vocab: 256, max_seq: 128}\ndata: {seq_len: 128}\n"
                               "train: {global_batch: 8}\nprecision: {compute: bf16, products: mxfp8}\nnumerics: {mode: fast}\n"
                               "parallel: {pp: 1, cp: 1, zero: 0, shard_group: 0}\nmemory: {recompute: none, offload_optimizer: none, "
                               "offload_gradients: none, offload_params: none, offload_activations: none}\n";
    orth_ctx *ctx = test_ctx(1);
    orth_config base;
    orth_search s;
    char *report;
    int32_t winner;
    read_base(ctx, &base, text);
    CHECK_OK(ctx, orth_search_make(ctx, &s, &base, "b200-8", ORTH_GOAL_TIME));
    CHECK_OK(ctx, orth_search_report(ctx, &s, 1000, false, &report, &winner));
    assert_true(winner >= 0);
    if (!strstr(report, "by rules between keys, the first: precision.products=mxfp8 with parallel.tp="))
        fail_msg("%s", report);
    orth_mem_free(ctx, report);
    orth_search_release(ctx, &s);
    orth_config_release(ctx, &base);
    test_ctx_free(ctx);
}

/* Few plans prove nothing, and one for a popular choice may turn out better than what was first: the file that --out writes is of that one. */
TEST(what_few_plans_give_is_the_best_of_all_that_were_planned)
{
    orth_ctx *ctx = test_ctx(1);
    int unproved = 0;
    for (uint64_t seed = 1; seed <= 16; seed++) {
        orth_config base;
        orth_search s;
        char *text;
        int32_t winner;
        orth_place_to_run where = random_place(ctx, seed);
        random_base(ctx, &base, seed, FREE_ZERO | FREE_AGAIN | FREE_AWAY);
        random_search(ctx, &s, &base, &where, seed, ORTH_GOAL_TIME);
        CHECK_OK(ctx, orth_search_report(ctx, &s, 1, false, &text, &winner));
        unproved += strstr(text, "not proved") != NULL;
        for (int32_t k = 0; k < s.num_plans && winner >= 0; k++)
            if (s.plans[k].price.fits && s.plans[k].price.step_s < orth_search_price(&s, winner)->step_s)
                fail_msg("seed %d: the winner takes %.9g s, one that was planned %.9g s", (int)seed, orth_search_price(&s, winner)->step_s,
                         s.plans[k].price.step_s);
        orth_mem_free(ctx, text);
        orth_search_release(ctx, &s);
        orth_config_release(ctx, &base);
    }
    assert_true(unproved > 0);
    test_ctx_free(ctx);
}

/* What other cores plan ahead changes no answer, nor how many plans it took. */
TEST(a_search_says_the_same_on_any_number_of_threads)
{
    orth_ctx *ctx = test_ctx(1);
    for (uint64_t seed = 1; seed <= 6; seed++) {
        static const int threads[] = {1, 2, 5};
        char *text[3];
        for (int k = 0; k < 3; k++) {
            orth_config base;
            orth_search s;
            int32_t winner;
            orth_place_to_run where = random_place(ctx, seed);
            random_base(ctx, &base, seed, FREE_ZERO | FREE_AGAIN | FREE_AWAY);
            random_search(ctx, &s, &base, &where, seed, ORTH_GOAL_TIME);
            s.num_threads = threads[k];
            CHECK_OK(ctx, orth_search_report(ctx, &s, 6, false, &text[k], &winner));
            assert_true(s.ahead_capacity > 0 && (k > 0 || s.num_ahead == 0));
            orth_search_release(ctx, &s);
            orth_config_release(ctx, &base);
        }
        assert_string_equal(text[0], text[1]);
        assert_string_equal(text[0], text[2]);
        for (int k = 0; k < 3; k++)
            orth_mem_free(ctx, text[k]);
    }
    test_ctx_free(ctx);
}

/* Estimates give the order then. */
static void search_without_bounds(const char *key, const char *value, const char *words)
{
    orth_ctx *ctx = test_ctx(1);
    orth_config base;
    orth_search s;
    orth_search_answer few, a;
    orth_place_to_run where = random_place(ctx, 3);
    char *text;
    int planned = 0;
    int32_t winner;
    random_base(ctx, &base, 3, FREE_AWAY);
    CHECK_OK(ctx, orth_config_set(ctx, &base, "test", key, value));
    CHECK_OK(ctx, orth_search_make_on(ctx, &s, &base, &where, 4, ORTH_GOAL_TIME));
    CHECK_OK(ctx, orth_search_ask(ctx, &s, &(orth_search_question){.max_plans = 1}, &few));
    assert_false(few.proved);
    CHECK_OK(ctx, orth_search_report(ctx, &s, 1000, false, &text, &winner));
    const bool all = s.num_plans == s.space.num;
    const double best = exhaust(ctx, &base, &where, 4, ORTH_GOAL_TIME, &planned);
    CHECK_OK(ctx, orth_search_ask(ctx, &s, &(orth_search_question){.max_plans = 100000}, &a));
    const double mine = orth_search_key(&s, &s.space.list[winner]);
    if (mine > best * (1 + 1e-9) || winner != a.candidate)
        fail_msg("found %.9g s, the best is %.9g s\n%s", mine, best, text);
    if (!strstr(text, all ? "proved: all layouts were planned" : words))
        fail_msg("%s", text);
    orth_mem_free(ctx, text);
    orth_search_release(ctx, &s);
    orth_config_release(ctx, &base);
    test_ctx_free(ctx);
}

TEST(a_search_whose_bounds_do_not_hold_finds_the_best_of_the_layouts_and_claims_no_proof_that_it_does_not_have)
{
    search_without_bounds("optimizer.freeze", "[\"embed.*\", \"layers.0.*\"]", "no bound holds of frozen parameters");
    search_without_bounds("parallel.order", "dp,tp", "no bound holds of another order of ranks (parallel.order)");
    orth_ctx *ctx = test_ctx(1);
    orth_config base;
    orth_search s;
    orth_place_to_run where = random_place(ctx, 3);
    random_base(ctx, &base, 3, FREE_AWAY);
    CHECK_OK(ctx, orth_config_set(ctx, &base, "test", "optimizer.freeze", "[\"layers.99.*\"]"));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "layers.99", orth_search_make_on(ctx, &s, &base, &where, 4, ORTH_GOAL_TIME));
    orth_config_release(ctx, &base);
    test_ctx_free(ctx);
}

int main(void)
{
    orth_keep_freed_memory(); /* as the commands that plan do */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_winner_of_a_search_is_the_best_of_all_layouts_planned_one_by_one),
        cmocka_unit_test(gpipe_wins_where_it_is_faster),
        cmocka_unit_test(of_schedules_that_take_as_long_the_one_that_needs_less_memory_wins),
        cmocka_unit_test(what_is_offloaded_is_searched_where_no_word_of_the_command_line_says_it),
        cmocka_unit_test(where_hosts_have_too_little_the_winner_keeps_the_rest_in_files),
        cmocka_unit_test(what_hosts_have_is_bounded_on_nodes_of_different_sizes),
        cmocka_unit_test(layouts_that_a_rule_between_keys_refuses_are_left_out_and_counted),
        cmocka_unit_test(a_hundred_thousand_layouts_are_ranked_in_two_seconds_of_processor_time),
        cmocka_unit_test(layouts_that_are_refused_when_they_are_compiled_are_left_out),
        cmocka_unit_test(what_few_plans_give_is_the_best_of_all_that_were_planned),
        cmocka_unit_test(a_search_says_the_same_on_any_number_of_threads),
        cmocka_unit_test(a_search_whose_bounds_do_not_hold_finds_the_best_of_the_layouts_and_claims_no_proof_that_it_does_not_have),
        cmocka_unit_test(on_a_measured_machine_the_winner_is_the_best_of_all_layouts_of_its_threads),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
