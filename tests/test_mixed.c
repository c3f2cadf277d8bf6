/* test_mixed.c -- clusters of groups with devices of several kinds: what is read and refused, times against figures worked out by hand, memory
 * of each rank against its own device, and the shares of the batch that are proposed. */
#include "priced_case.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "plan/goodput.h"
#include "plan/mixed.h"
#include "tools/search_report.h"

#define TWO "groups:\n  fast: {hardware: h100, nodes: 2}\n  slow: {hardware: a100-80gb, nodes: 3, devices: 4}\n"
#define LINK "between: {GBps: 50, share: 1, latency_us: 20}\n"

static void read_cluster(orth_ctx *ctx, orth_hardware *h, const char *text)
{
    CHECK_OK(ctx, orth_hardware_parse(ctx, h, "mine.yaml", text, strlen(text)));
}

static void check_near(double a, double b, double tolerance)
{
    if (!(fabs(a - b) <= tolerance * fabs(b)))
        fail_msg("%.12g, wanted %.12g", a, b);
}

TEST(groups_follow_each_other_and_the_cluster_has_the_best_of_them)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    read_cluster(ctx, &h, TWO LINK);
    assert_true(h.mixed && h.mixed->num_groups == 2 && h.num_devices == 28);
    assert_true(h.mixed->group[1].first == 16 && h.mixed->group[1].num_devices == 12 && h.mixed->group[1].own.node_devices == 4);
    assert_true(orth_mixed_group_of(&h, 15) == 0 && orth_mixed_group_of(&h, 16) == 1 && orth_mixed_group_of(&h, 27) == 1);
    assert_string_equal(orth_mixed_device(&h, 20)->device_name, "NVIDIA A100 SXM4 80GB");
    assert_true(h.device_bf16_tflops == 989.5 && h.device_memory_GiB == 79.6 && h.node_devices == 8);
    check_near(h.price_on_demand, (16 * 6.88 + 12 * 3.43) / 28, 1e-12);
    double peak;
    CHECK_OK(ctx, orth_hardware_peak(ctx, &h, ORTH_BF16, &peak));
    check_near(peak, (16 * 989.5e12 + 12 * 312e12) / 28, 1e-12);
    orth_hardware_release(ctx, &h);
    test_ctx_free(ctx);
}

/* 2 nodes of 8 devices and 4 of one: 6 nodes, where all have spot nodes. */
TEST(spot_nodes_are_taken_away_as_often_as_all_groups_have_nodes)
{
    static const char spot[] = "device: {name: spot, memory_GiB: 80, memory_GBps: 2000, bf16_tflops: 300}\nnode: {devices: 8, GBps: 300}\n"
                               "network: {nics: 8, GBps: 25}\nprice: {on_demand: 4, spot: 1}\n"
                               "failures: {device_hours: 3200, storage_GBps: 1, spot_hours: 100}\n";
    char path[] = "/tmp/orthant-XXXXXX.yaml", text[256];
    const int fd = mkstemps(path, 5);
    assert_true(fd >= 0 && write(fd, spot, sizeof spot - 1) == (ssize_t)sizeof spot - 1);
    close(fd);
    snprintf(text, sizeof text, "groups:\n  a: {hardware: %s, nodes: 2}\n  b: {hardware: %s, nodes: 4, devices: 1}\n" LINK, path, path);
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    read_cluster(ctx, &h, text);
    check_near(orth_goodput_on(&h, 20, 1e9, true).between_s, 3600 / (20.0 / 3200 + 6.0 / 100), 1e-12);
    orth_hardware_release(ctx, &h);
    test_ctx_free(ctx);
    unlink(path);
}

static void keep_warning(void *user, int rank, orth_log_level level, const char *component, const char *text)
{
    (void)rank, (void)component;
    char *lines = user;
    if (level == ORTH_LOG_WARN)
        snprintf(lines + strlen(lines), 2048 - strlen(lines), "%s\n", text);
}

TEST(failures_that_one_description_of_two_has_are_dropped_with_a_warning)
{
    static const char with[] = "device: {name: with, memory_GiB: 80, memory_GBps: 2000, bf16_tflops: 300}\nnode: {devices: 8, GBps: 300}\n"
                               "network: {nics: 8, GBps: 25}\nprice: {on_demand: 4}\nfailures: {device_hours: 3200, storage_GBps: 1}\n";
    char path[] = "/tmp/orthant-XXXXXX.yaml", text[512], wanted[256], lines[2048] = "";
    const int fd = mkstemps(path, 5);
    assert_true(fd >= 0 && write(fd, with, sizeof with - 1) == (ssize_t)sizeof with - 1);
    close(fd);
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    ctx->log = (orth_log_sink){keep_warning, lines, ORTH_LOG_INFO};
    snprintf(text, sizeof text, "groups:\n  a: {hardware: %s, nodes: 2}\n  b: {hardware: h100, nodes: 4}\n" LINK, path);
    read_cluster(ctx, &h, text);
    orth_mixed_warn(ctx, &h);
    snprintf(wanted, sizeof wanted, "failures.device_hours is in %s (group a), but not in h100 (group b): the cluster has none", path);
    if (h.failures_device_hours != 0 || !strstr(lines, wanted) || strstr(lines, "price."))
        fail_msg("%s", lines);
    orth_hardware_release(ctx, &h);
    lines[0] = '\0';
    snprintf(text, sizeof text, "groups:\n  a: {hardware: %s, nodes: 2}\n  b: {hardware: %s, nodes: 4}\n" LINK, path, path);
    read_cluster(ctx, &h, text);
    orth_mixed_warn(ctx, &h);
    assert_string_equal(lines, "");
    orth_hardware_release(ctx, &h);
    ctx->log = (orth_log_sink){NULL, NULL, ORTH_LOG_ERROR};
    test_ctx_free(ctx);
    unlink(path);
}

TEST(a_bad_cluster_of_groups_is_refused_with_file_key_value_and_rule)
{
    static const struct { const char *text, *message; } cases[] = {
        {"groups:\n  fast: {hardware: h100, nodes: 0}\n" LINK, "mine.yaml:2:33: groups.fast.nodes=0: must be between 1 and 100000"},
        {"groups:\n  fast: {hardware: h100, nodes: 1.5}\n" LINK, "groups.fast.nodes=1.5: must be a whole number"},
        {"groups:\n  fast: {hardware: h100, nodes: 2}\n" LINK, "mine.yaml: groups: 1 given"},
        {TWO, "mine.yaml: between.GBps is missing: the nodes of the groups fast and slow are linked"},
        {TWO "between: {latency_us: 3}\n", "mine.yaml: between.GBps is missing"},
        {TWO "between: {GBps: 1e9}\n", "mine.yaml:4:17: between.GBps=1e9: must be between 0.01 and 100000 GB/s"},
        {"groups:\n  a: {hardware: h100}\n  b: {hardware: h100, nodes: 1}\n" LINK, "mine.yaml: groups.a.nodes is missing"},
        {"groups:\n  a: {nodes: 1}\n  b: {hardware: h100, nodes: 1}\n" LINK, "mine.yaml: groups.a.hardware is missing"},
        {"groups:\n  a: {hardware: h1000, nodes: 1}\n  b: {hardware: h100, nodes: 1}\n" LINK,
         "mine.yaml:2:17: groups.a.hardware=h1000: must be a .yaml file, or one of a100-40gb"},
        {"groups:\n  a: {hardware: h1000-8, nodes: 1}\n  b: {hardware: h100, nodes: 1}\n" LINK, "groups.a.hardware=h1000-8: must be a .yaml file, or one of"},
        {"groups:\n  a: {hardware: h100-8, nodes: 1}\n  b: {hardware: h100, nodes: 1}\n" LINK, "groups.a.hardware=h100-8: has a number of devices"},
        {"groups:\n  a: {hardware: h100-a100, nodes: 1}\n  b: {hardware: h100, nodes: 1}\n" LINK, "groups.a.hardware=h100-a100: has groups itself"},
        {"groups:\n  a: {hardware: rtx-4090, nodes: 2}\n  b: {hardware: h100, nodes: 1}\n" LINK, "groups.a.nodes=2: rtx-4090 has no link between nodes"},
        {"groups:\n  a: {hardware: h100, nodes: 1, gpus: 4}\n" LINK, "unknown key 'groups.a.gpus' of a cluster of groups"},
        {"groups:\n  a: {hardware: [h100], nodes: 1}\n" LINK, "groups.a.hardware takes one value, not a list"},
    };
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    for (int i = 0; i < ORTH_COUNT(cases); i++)
        CHECK_FAILS(ctx, ORTH_ERR_ARG, cases[i].message, orth_hardware_parse(ctx, &h, "mine.yaml", cases[i].text, strlen(cases[i].text)));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "its groups say how many devices there are", orth_hardware_find(ctx, &h, "h100-a100-64"));
    char path[96], text[256];
    snprintf(path, sizeof path, "/tmp/orthant-test-%ld-groups.yaml", (long)getpid());
    snprintf(text, sizeof text, "groups:\n  a: {hardware: %s, nodes: 1}\n  b: {hardware: h100, nodes: 1}\n" LINK, path); /* itself */
    CHECK_OK(ctx, orth_file_write(ctx, path, text, strlen(text)));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "has groups itself", orth_hardware_find(ctx, &h, path));
    unlink(path);
    read_cluster(ctx, &h, TWO LINK);
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "the layout has 32 ranks (parallel.dp * tp * pp * cp), the groups of --cluster have 28 devices (nodes x devices: fast 2 x 8, "
                "slow 3 x 4): they must be equal", orth_hardware_use(ctx, &h, 32));
    CHECK_OK(ctx, orth_hardware_use(ctx, &h, 28));
    orth_hardware_release(ctx, &h);
    test_ctx_free(ctx);
}

/* Inside of a group its own links count. Over both, a gather of 1e12 bytes first passes between 5 nodes, 4/5 of it at 50 GB/s: 16 s; then inside of
 * the nodes: 7/8 at 450 x 0.8 GB/s take 2.43 s, 3/4 at 300 x 0.8 GB/s 3.125 s, which is the slower part. A ring would take 27/28 at 50 GB/s: 19.29 s. */
TEST(a_call_over_two_groups_takes_what_the_slowest_part_takes)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    int all[28];
    for (int r = 0; r < 28; r++)
        all[r] = r;
    read_cluster(ctx, &h, TWO LINK);
    orth_mixed_place p = orth_mixed_place_of(&h, all, 8);
    assert_true(p.num == 1 && p.hardware[0] == &h.mixed->group[0].own && p.place[0].per_node == 8 && p.place[0].same_node);
    p = orth_mixed_place_of(&h, all + 16, 8);
    assert_true(p.num == 1 && p.hardware[0] == &h.mixed->group[1].own && p.place[0].per_node == 4 && p.place[0].num_nodes == 2);
    p = orth_mixed_place_of(&h, all, 28);
    assert_true(p.num == 2 && p.place[0].num_nodes == 5 && p.place[1].num_nodes == 5 && p.place[0].per_node == 8 && p.place[1].per_node == 4);
    check_near(orth_mixed_link_seconds(&p, ORTH_COMM_ALL_GATHER, 1e12), 16 + 3.125, 1e-3);
    const int ends[] = {15, 16};
    p = orth_mixed_place_of(&h, ends, 2);
    check_near(orth_mixed_link_seconds(&p, ORTH_COMM_SEND, 1e9), 1e9 / (50e9 / 4 > 50e9 / 8 ? 50e9 / 8 : 50e9 / 4) + 20e-6, 1e-9);
    orth_hardware_release(ctx, &h);
    test_ctx_free(ctx);
}

/* ---- a step ---- */

/* Links that take nothing, so that only computing counts. */
static void free_links(orth_hardware *h)
{
    h->node_GBps = h->network_GBps = 1e9;
    h->node_latency_us = h->network_latency_us = 0;
}

/* Takes twice as long for everything. */
static void half_speed(orth_hardware *h)
{
    h->device_memory_GBps /= 2;
    h->device_fp32_tflops /= 2;
    h->device_bf16_tflops /= 2;
    h->device_launch_us *= 2;
}

/* Two devices, and two of the same that are half as fast. */
static void fast_and_half(orth_ctx *ctx, orth_hardware *h)
{
    read_cluster(ctx, h, "groups:\n  fast: {hardware: h100, nodes: 1, devices: 2}\n  slow: {hardware: h100, nodes: 1, devices: 2}\n" LINK);
    for (int g = 0; g < 2; g++) {
        free_links(&h->mixed->group[g].own);
        free_links(&h->mixed->group[g].far);
    }
    free_links(h); /* the best of all, of which bounds are */
    half_speed(&h->mixed->group[1].own);
    half_speed(&h->mixed->group[1].far);
}

#define RUN "model: {family: llama, layers: 4, hidden: 1024, heads: 8, vocab: 512, max_seq: 1024}\ndata: {seq_len: 1024}\n" \
            "train: {global_batch: 12, micro_batch: 1, steps: 1000}\nprecision: {compute: bf16}\n"

static void make_run(orth_ctx *ctx, orth_config *cfg, const char *text)
{
    CHECK_OK(ctx, orth_config_init(ctx, cfg));
    CHECK_OK(ctx, orth_config_parse(ctx, cfg, "run.yaml", text, strlen(text)));
}

TEST(ranks_that_share_a_program_take_the_time_of_their_own_devices)
{
    static const char *const layouts[] = {RUN "parallel: {dp: 4}\n", RUN "parallel: {dp: 4, zero: 1}\n", RUN "parallel: {dp: 2, pp: 2}\n", RUN "parallel: {dp: 2, tp: 2}\n"};
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    priced x;
    fast_and_half(ctx, &h);
    for (int i = 0; i < ORTH_COUNT(layouts); i++) {
        price(ctx, &x, layouts[i], h);
        const orth_plan *r = x.plan.ranks;
        if (i != 2) /* stages differ */
            check_near(r[2].time.compute_s, 2 * r[0].time.compute_s, 1e-3 /* shards of the update */);
        assert_true(r[0].time.wait_s > 0.9 * r[0].time.compute_s);
        if (i == 0 || i == 3) /* with ZeRO, updates wait for each other's shards */
            check_near(x.cluster.step_s, r[2].time.compute_s, 0.01);
        check_near(x.cluster.on_demand_usd, 24 * x.cluster.days * 4 * 6.88, 1e-9);
        release(ctx, &x);
    }
    orth_hardware_release(ctx, &h);
    test_ctx_free(ctx);
}

/* The third group of three ranks lies on two nodes: whoever shares its program does not make it faster. Two groups of the same nodes are the cluster,
 * but that calls over both are timed part by part. */
TEST(a_group_that_lies_across_nodes_is_timed_there)
{
    static const char same[] = "groups:\n  a: {hardware: h100, nodes: 1}\n  b: {hardware: h100, nodes: 2}\nbetween: {GBps: 400, latency_us: 5}\n";
    orth_ctx *ctx = test_ctx(1);
    orth_hardware one, two;
    bool mixed;
    CHECK_OK(ctx, orth_hardware_find_kind(ctx, &one, "h100", &mixed));
    read_cluster(ctx, &two, same);
    for (int tp = 1; tp <= 6; tp++) {
        char text[400];
        priced x, y;
        if (24 % tp != 0)
            continue;
        snprintf(text, sizeof text, "model: {family: llama, layers: 2, hidden: 768, heads: 12, kv_heads: 12, ffn: 2304, vocab: 4096}\ndata: {seq_len: 512}\n"
                 "train: {global_batch: 24, micro_batch: 1}\nprecision: {compute: bf16}\nnumerics: {mode: fast}\nparallel: {tp: %d, dp: %d}\n", tp, 24 / tp);
        price(ctx, &x, text, one);
        price(ctx, &y, text, two);
        if (fabs(x.cluster.step_s - y.cluster.step_s) > (8 % tp == 0 ? 1e-9 : 0.15) * x.cluster.step_s)
            fail_msg("tp=%d: %.9g s on one kind of nodes, %.9g s where they are two groups", tp, x.cluster.step_s, y.cluster.step_s);
        release(ctx, &x);
        release(ctx, &y);
    }
    orth_hardware_release(ctx, &two);
    orth_hardware_release(ctx, &one);
    test_ctx_free(ctx);
}

static double seconds_to_price(orth_ctx *ctx, priced *x, const orth_hardware *h)
{
    const clock_t before = clock();
    CHECK_OK(ctx, orth_cluster_price(ctx, &x->plan, h, ORTH_BF16, 0, NULL, &x->cluster));
    return (double)(clock() - before) / CLOCKS_PER_SEC;
}

/* Groups of up to all 16,384 ranks, whose places must not be looked for by each member anew: that took many seconds. */
TEST(pods_and_groups_of_devices_make_the_price_of_many_ranks_take_little_longer)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware plain, pods, two;
    priced x;
    CHECK_OK(ctx, orth_hardware_find(ctx, &plain, "h100-16384"));
    pods = plain;
    pods.network_pod_nodes = 24;
    read_cluster(ctx, &two, "groups:\n  fast: {hardware: h100, nodes: 1000}\n  slow: {hardware: a100-80gb, nodes: 1048}\n" LINK);
    price(ctx, &x, "model: {preset: llama-tiny}\ndata: {seq_len: 64}\ntrain: {global_batch: 2048, micro_batch: 1}\nprecision: {compute: bf16}\n"
                   "parallel: {dp: 2048, tp: 4, pp: 2, zero: 1}\n", plain);
    const double bare = seconds_to_price(ctx, &x, &plain), with_pods = seconds_to_price(ctx, &x, &pods), with_groups = seconds_to_price(ctx, &x, &two);
    printf("one network %.2f s, pods %.2f s, two groups %.2f s\n", bare, with_pods, with_groups);
    assert_true(fmax(with_pods, with_groups) < 4 * bare + 1);
    release(ctx, &x);
    orth_hardware_release(ctx, &two);
    orth_hardware_release(ctx, &plain);
    test_ctx_free(ctx);
}

TEST(each_rank_is_held_against_the_memory_of_its_own_device)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    priced x;
    fast_and_half(ctx, &h);
    price(ctx, &x, RUN "parallel: {dp: 4}\n", h);
    const double need = (double)x.plan.ranks[2].device_bytes / 0x1p30;
    assert_true(x.plan.total.fits && x.plan.ranks[0].fits);
    release(ctx, &x);
    h.mixed->group[1].own.device_reserved_GiB = 0;
    h.mixed->group[1].own.device_memory_GiB = 0.99 * need;
    price(ctx, &x, RUN "parallel: {dp: 4}\n", h);
    assert_true(x.plan.ranks[0].fits && !x.plan.ranks[2].fits && !x.plan.total.fits && x.cluster.worst_rank >= 2);
    assert_int_equal(orth_cluster_least_limit(&h), (size_t)(0x1p30 * 0.99 * need));
    release(ctx, &x);
    orth_hardware_release(ctx, &h);
    test_ctx_free(ctx);
}

/* Computing and waiting of a row are of one rank: together they are no more than the step. */
TEST(the_row_of_a_group_adds_up_where_its_ranks_have_other_shares)
{
    orth_ctx *ctx = test_ctx(1);
    orth_hardware h;
    priced x;
    double busy, wait;
    fast_and_half(ctx, &h);
    price(ctx, &x, RUN "parallel: {dp: 4, dp_share: [9, 1, 1, 1]}\n", h);
    char *text = orth_cluster_text(ctx, &x.plan, &h, &x.cluster);
    const char *row = strstr(text, "\n  fast "), *name = row ? strstr(row, h.mixed->group[0].own.device_name) : NULL;
    assert_non_null(name);
    assert_int_equal(sscanf(name + strlen(h.mixed->group[0].own.device_name), "%*f %*f %lf %lf", &busy, &wait), 2);
    assert_true(busy > 90 && busy + wait <= 100.2);
    orth_mem_free(ctx, text);
    release(ctx, &x);
    orth_hardware_release(ctx, &h);
    test_ctx_free(ctx);
}

/* 48 micro-batches, t each on a fast device: 12 on each rank take 24 t on the slow ones, as much as 24 on two fast ones alone. Dealt 16, 16, 8, 8 they
 * take 16 t. */
TEST(shares_are_proposed_as_devices_are_fast_and_the_slow_group_is_priced)
{
    orth_ctx *ctx = test_ctx(1);
    orth_shares s;
    orth_config cfg;
    orth_place_to_run where = {.described = true};
    fast_and_half(ctx, &where.hardware);
    make_run(ctx, &cfg, RUN "parallel: {dp: 4}\n");
    CHECK_OK(ctx, orth_config_set(ctx, &cfg, "test", "train.global_batch", "48"));
    CHECK_OK(ctx, orth_shares_find(ctx, &cfg, &where, &s));
    assert_string_equal(s.list, "[2, 2, 1, 1]");
    check_near(s.proposed.step_s / s.equal.step_s, 16.0 / 24, 0.03);
    check_near(s.alone[0].price.step_s / s.equal.step_s, 1, 0.06);
    check_near(s.alone[1].price.step_s / s.equal.step_s, 2, 0.06);
    char *text = orth_shares_text(ctx, &s, where.hardware.mixed);
    assert_non_null(strstr(text, "slow alone"));
    orth_mem_free(ctx, text);
    text = orth_shares_json(ctx, &s, where.hardware.mixed);
    json_t *root = json_loads(text, 0, NULL), *proposed = json_object_get(root, "proposed");
    check_near(json_number_value(json_object_get(proposed, "step_s")), s.proposed.step_s, 1e-8);
    check_near(json_number_value(json_object_get(json_object_get(root, "equal"), "step_s")), s.equal.step_s, 1e-8);
    assert_true(json_array_size(json_object_get(proposed, "dp_share")) == 4 && json_array_size(json_object_get(root, "alone")) == 2);
    json_decref(root);
    orth_mem_free(ctx, text);
    orth_config_release(ctx, &cfg);
    orth_place_to_run_release(ctx, &where);
    test_ctx_free(ctx);
}

TEST(where_no_other_shares_are_possible_the_rule_is_said)
{
    static const struct { const char *layout, *why; } cases[] = {
        {RUN "parallel: {dp: 4, zero: 2}\nnumerics: {mode: fast}\n", "zero=2 needs equal shares"}, {RUN "parallel: {dp: 2, pp: 2, order: 'dp,pp'}\n", "lies on the same groups"}};
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_shares s;
        orth_config cfg;
        orth_place_to_run where = {.described = true};
        fast_and_half(ctx, &where.hardware);
        make_run(ctx, &cfg, cases[i].layout);
        CHECK_OK(ctx, orth_shares_find(ctx, &cfg, &where, &s));
        assert_true(s.list[0] == '\0' && s.proposed.step_s == s.equal.step_s);
        if (!strstr(s.why_not, cases[i].why))
            fail_msg("'%s', wanted '%s'", s.why_not, cases[i].why);
        orth_config_release(ctx, &cfg);
        orth_place_to_run_release(ctx, &where);
    }
    test_ctx_free(ctx);
}

/* Of every layout the search could have: its step with equal shares or with guessed ones, whichever is shorter. No bound exceeds either. */
static double exhaust(orth_ctx *ctx, orth_search *s)
{
    double best = INFINITY;
    for (int32_t i = 0; i < s->space.num; i++) {
        orth_config cfg;
        orth_price p, shared;
        char list[ORTH_SHARES_LIST_MAX];
        double slower[ORTH_MAX_DEVICE_GROUPS];
        CHECK_OK(ctx, orth_config_init(ctx, &cfg));
        CHECK_OK(ctx, orth_config_override(ctx, &cfg, s->space.base));
        orth_candidate_set(&s->space.list[i], &cfg);
        CHECK_OK(ctx, orth_price_run(ctx, &s->where, &cfg, &p));
        if (!p.refused && s->space.list[i].step_s > p.step_s * (1 + 1e-6) + 1e-8)
            fail_msg("bound %.9g, plan %.9g with equal shares", s->space.list[i].step_s, p.step_s);
        if (!p.refused && cfg.parallel_dp > 1 && orth_setup_layout(&cfg).zero < 2) {
            CHECK_OK(ctx, orth_search_space_slower(ctx, &s->space, i, slower));
            CHECK_OK(ctx, orth_shares_guess(ctx, &cfg, &s->where, slower, list));
            CHECK_OK(ctx, orth_config_set(ctx, &cfg, "test", "parallel.dp_share", list[0] ? list : "[]"));
            CHECK_OK(ctx, orth_price_run(ctx, &s->where, &cfg, &shared));
            if (!shared.refused && s->space.list[i].step_s > shared.step_s * (1 + 1e-6) + 1e-8)
                fail_msg("bound %.9g, plan %.9g", s->space.list[i].step_s, shared.step_s);
            if (!shared.refused && shared.fits && (p.refused || !p.fits || shared.step_s < p.step_s))
                p = shared;
        }
        best = p.refused || !p.fits ? best : fmin(best, p.step_s);
        orth_config_release(ctx, &cfg);
    }
    return best;
}

TEST(a_search_over_different_devices_weighs_each_layout_with_the_shares_that_suit_it)
{
    static const char *const fixed[][2] = {{"parallel.cp", "1"}, {"memory.recompute", "none"}, {"train.global_batch", "24"}, {"train.micro_batch", "1"}};
    orth_ctx *ctx = test_ctx(1);
    orth_config base, cfg;
    orth_search s;
    orth_search_answer a;
    orth_place_to_run where = {.described = true};
    orth_price p;
    char *text;
    int32_t winner;
    fast_and_half(ctx, &where.hardware);
    make_run(ctx, &base, RUN);
    for (int i = 0; i < ORTH_COUNT(fixed); i++)
        CHECK_OK(ctx, orth_config_set(ctx, &base, "command line", fixed[i][0], fixed[i][1]));
    CHECK_OK(ctx, orth_search_make_on(ctx, &s, &base, &where, 4, ORTH_GOAL_TIME));
    CHECK_OK(ctx, orth_search_ask(ctx, &s, &(orth_search_question){.max_plans = 10000}, &a));
    const double best = exhaust(ctx, &s), mine = orth_search_key(&s, &s.space.list[a.candidate]);
    if (!a.proved || mine > best * (1 + 1e-9))
        fail_msg("found %.9g, the best is %.9g", mine, best);
    assert_string_equal(s.plans[s.space.list[a.candidate].plan].dp_share, "[2, 2, 1, 1]");
    CHECK_OK(ctx, orth_search_config(ctx, &s, a.candidate, &cfg)); /* what --out writes */
    CHECK_OK(ctx, orth_price_run(ctx, &s.where, &cfg, &p));
    assert_true(p.step_s == mine && cfg.parallel_dp_share.n == 4);
    CHECK_OK(ctx, orth_search_report(ctx, &s, 10000, true, &text, &winner));
    assert_true(winner == a.candidate && strstr(text, "\"dp_share\": [2, 2, 1, 1]") && strstr(text, "\"offload_gradients\": \"none\""));
    orth_mem_free(ctx, text);
    CHECK_OK(ctx, orth_search_report(ctx, &s, 10000, false, &text, &winner));
    assert_non_null(strstr(text, ", unequal shares"));
    orth_mem_free(ctx, text);
    orth_config_release(ctx, &cfg);
    orth_config_release(ctx, &base);
    orth_search_release(ctx, &s);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_follow_each_other_and_the_cluster_has_the_best_of_them),
        cmocka_unit_test(spot_nodes_are_taken_away_as_often_as_all_groups_have_nodes),
        cmocka_unit_test(failures_that_one_description_of_two_has_are_dropped_with_a_warning),
        cmocka_unit_test(a_bad_cluster_of_groups_is_refused_with_file_key_value_and_rule),
        cmocka_unit_test(a_call_over_two_groups_takes_what_the_slowest_part_takes),
        cmocka_unit_test(ranks_that_share_a_program_take_the_time_of_their_own_devices),
        cmocka_unit_test(a_group_that_lies_across_nodes_is_timed_there),
        cmocka_unit_test(pods_and_groups_of_devices_make_the_price_of_many_ranks_take_little_longer),
        cmocka_unit_test(each_rank_is_held_against_the_memory_of_its_own_device),
        cmocka_unit_test(the_row_of_a_group_adds_up_where_its_ranks_have_other_shares),
        cmocka_unit_test(shares_are_proposed_as_devices_are_fast_and_the_slow_group_is_priced),
        cmocka_unit_test(where_no_other_shares_are_possible_the_rule_is_said),
        cmocka_unit_test(a_search_over_different_devices_weighs_each_layout_with_the_shares_that_suit_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
