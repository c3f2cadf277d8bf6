/* test_schedule.c -- pipeline schedules: valid, as short as their formulas, as frugal as promised; what the
 * check refuses; the file format; balance of layers; drawings and traces. */
#include "test.h"

#include <jansson.h>
#include <math.h>

#include "base/files.h"
#include "parallel/pipeline/balance.h"
#include "parallel/pipeline/draw.h"
#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/simulate.h"

typedef struct {
    orth_ctx *ctx;
    orth_arena arena;
} pipe_case;

static pipe_case begin(void)
{
    return (pipe_case){.ctx = test_ctx(1)};
}

static void end(pipe_case *k)
{
    orth_arena_release(k->ctx, &k->arena);
    test_ctx_free(k->ctx);
}

static orth_schedule make(pipe_case *k, const char *name, int p, int v, int m)
{
    orth_schedule s;
    CHECK_OK(k->ctx, orth_schedule_make(k->ctx, &k->arena, &s, name, p, v, m));
    return s;
}

/* Every chunk takes f forward, bi + w backward; a message takes `latency`. */
static orth_sim simulate(pipe_case *k, const orth_schedule *s, double f, double bi, double w, double latency)
{
    orth_sim sim;
    orth_chunk_times *t = ORTH_ARENA_ARRAY(k->ctx, &k->arena, orth_chunk_times, s->num_chunks);
    for (int c = 0; c < s->num_chunks; c++)
        t[c] = (orth_chunk_times){{f, bi + w, bi, w}, latency, latency};
    CHECK_OK(k->ctx, orth_schedule_simulate(k->ctx, &k->arena, s, t, &sim));
    return sim;
}

static double bubble(pipe_case *k, const char *name, int p, int v, int m, double f, double bi, double w)
{
    const orth_schedule s = make(k, name, p, v, m);
    return simulate(k, &s, f, bi, w, 0).bubble;
}

static int virtual_of(const orth_schedule_kind *kind)
{
    return kind->min_virtual;
}

/* ---- the schedules ---- */

TEST(every_schedule_is_valid_and_sends_in_order)
{
    pipe_case k = begin();
    const orth_schedule_kind *kind;
    for (int i = 0; (kind = orth_schedule_kind_get(i)); i++) {
        for (int p = 1; p <= 9; p++) {
            for (int m = 1; m <= 3 * p + 1; m++) {
                for (int v = virtual_of(kind); v <= ORTH_MIN(kind->max_virtual, 4); v++) {
                    if (kind->whole_rounds && m % p)
                        continue;
                    const orth_schedule s = make(&k, kind->name, p, v, m);
                    CHECK_OK(k.ctx, orth_schedule_check(k.ctx, &s));
                    CHECK_OK(k.ctx, orth_schedule_check_in_order(k.ctx, &s));
                    assert_int_equal(s.num_chunks, p * v);
                    assert_int_equal(orth_schedule_chunks(&s, p - 1, NULL, 0), v);
                }
            }
        }
        orth_arena_release(k.ctx, &k.arena);
    }
    end(&k);
}

TEST(large_schedules_are_valid)
{
    pipe_case k = begin();
    static const struct {
        const char *name;
        int p, v, m;
    } sizes[] = {{"1f1b", 64, 1, 256}, {"interleaved", 16, 6, 128}, {"zb-h1", 64, 1, 200}, {"zb-v", 48, 2, 200},
                 {"zb-v", 33, 2, 70}, {"pipedream", 32, 1, 300}};
    for (int i = 0; i < ORTH_COUNT(sizes); i++)
        make(&k, sizes[i].name, sizes[i].p, sizes[i].v, sizes[i].m);
    end(&k);
}

/* GPipe, 1F1B: (p-1)(f+b), whatever the ratio. Naive: all ranks but one idle. */
TEST(synchronous_bubbles_equal_their_formulas)
{
    static const double cost[][3] = {{1, 1, 1}, {1, 0.5, 0.5}, {2, 1, 1}, {3, 4, 2}, {5, 1, 2}};
    pipe_case k = begin();
    for (int c = 0; c < ORTH_COUNT(cost); c++) {
        const double f = cost[c][0], b = cost[c][1] + cost[c][2];
        for (int p = 1; p <= 8; p++) {
            for (int m = 1; m <= 4 * p; m++) {
                assert_true(bubble(&k, "gpipe", p, 1, m, f, cost[c][1], cost[c][2]) == (p - 1) * (f + b));
                assert_true(bubble(&k, "1f1b", p, 1, m, f, cost[c][1], cost[c][2]) == (p - 1) * (f + b));
                assert_true(bubble(&k, "naive", p, 1, m, f, cost[c][1], cost[c][2]) == m * (p - 1) * (f + b));
                assert_true(bubble(&k, "pipedream", p, 1, m, f, cost[c][1], cost[c][2]) == (p - 1) * (f + b));
            }
            orth_arena_release(k.ctx, &k.arena);
        }
    }
    end(&k);
}

/* FORMULAS.md section 1: idle share with 4 stages, forward to backward 1:1 or 1:2. */
TEST(idle_share_equals_the_table)
{
    static const struct {
        int m;
        double share, ratio;
    } row[] = {{4, 42.9, 75}, {8, 27.3, 37.5}, {16, 15.8, 18.75}, {32, 8.6, 9.4}};
    static const char *const names[] = {"gpipe", "1f1b"};
    pipe_case k = begin();
    for (int i = 0; i < ORTH_COUNT(row); i++) {
        for (int n = 0; n < 2; n++) {
            for (int twice = 0; twice < 2; twice++) {
                const orth_schedule s = make(&k, names[n], 4, 1, row[i].m);
                const orth_sim sim = simulate(&k, &s, 1, 0.5 + twice * 0.5, 0.5 + twice * 0.5, 0);
                assert_true(fabs(100 * sim.idle_share - row[i].share) < 0.05);
                assert_true(fabs(100 * sim.bubble / sim.ideal - row[i].ratio) < 0.05);
                assert_true(fabs(sim.idle_share - 3.0 / (row[i].m + 3)) < 1e-12);
            }
        }
        const orth_schedule s = make(&k, "naive", 4, 1, row[i].m);
        assert_true(fabs(simulate(&k, &s, 1, 1, 1, 0).idle_share - 0.75) < 1e-12);
    }
    end(&k);
}

/* Interleaving: 1/v of the bubble of 1F1B over the same stage, whose chunks take 1/v of its time. */
TEST(interleaved_bubble_equals_its_formula)
{
    pipe_case k = begin();
    for (int p = 1; p <= 8; p++) {
        for (int v = 2; v <= 4; v++) {
            for (int m = p; m <= 4 * p; m += p) {
                assert_true(bubble(&k, "interleaved", p, v, m, 1, 1, 1) == (p - 1) * 3);
                assert_true(bubble(&k, "interleaved", p, v, m, 2, 1, 1) == (p - 1) * 4);
                assert_true(bubble(&k, "interleaved", p, v, m, 1, 1, 0) == (p - 1) * 2);
            }
            orth_arena_release(k.ctx, &k.arena);
        }
    }
    end(&k);
}

/* Exact for m >= p where t_W <= t_F, t_BI; elsewhere the formula is a lower bound. */
TEST(zb_h1_bubble_equals_its_formula)
{
    static const double cost[][3] = {{1, 1, 1}, {2, 2, 1}, {2, 3, 2}, {2, 1, 1}, {4, 5, 3}, {1, 1, 2}, {3, 1, 3}, {1, 2, 2}};
    pipe_case k = begin();
    for (int c = 0; c < ORTH_COUNT(cost); c++) {
        const double f = cost[c][0], bi = cost[c][1], w = cost[c][2];
        for (int p = 1; p <= 8; p++) {
            for (int m = 1; m <= 4 * p; m++) {
                const double is = bubble(&k, "zb-h1", p, 1, m, f, bi, w), formula = (p - 1) * (f + bi - w);
                if (m >= p && w <= f && w <= bi)
                    assert_true(is == formula);
                else
                    assert_true(is >= formula);
                assert_true(is <= (p - 1) * (f + bi + w)); /* never worse than 1F1B */
            }
            orth_arena_release(k.ctx, &k.arena);
        }
    }
    end(&k);
}

/* With unit times and m >= p, nothing is idle on the last rank but the time until its first input comes:
 * no schedule of this placement is shorter. */
TEST(zb_v_bubble_is_the_least_possible)
{
    pipe_case k = begin();
    for (int p = 1; p <= 16; p++) {
        for (int m = p; m <= 4 * p; m++) {
            const orth_schedule s = make(&k, "zb-v", p, 2, m);
            const orth_sim sim = simulate(&k, &s, 1, 1, 1, 0);
            assert_true(sim.bubble == p - 1);
            assert_true(sim.ranks[p - 1].first == p - 1);
            assert_true(sim.makespan == 6 * m + p - 1);
        }
        orth_arena_release(k.ctx, &k.arena);
    }
    end(&k);
}

TEST(in_flight_is_as_promised)
{
    pipe_case k = begin();
    for (int p = 1; p <= 8; p++) {
        for (int m = 1; m <= 4 * p; m++) {
            const orth_schedule naive = make(&k, "naive", p, 1, m), gpipe = make(&k, "gpipe", p, 1, m);
            const orth_schedule one = make(&k, "1f1b", p, 1, m), h1 = make(&k, "zb-h1", p, 1, m);
            const orth_schedule v = make(&k, "zb-v", p, 2, m);
            int peak_1f1b = 0, peak_h1 = 0, peak_v = 0;
            for (int r = 0; r < p; r++) {
                assert_int_equal(orth_schedule_peak_in_flight(&naive, r), 1);
                assert_int_equal(orth_schedule_peak_in_flight(&gpipe, r), m);
                assert_int_equal(orth_schedule_peak_in_flight(&one, r), ORTH_MIN(m, p - r));
                peak_1f1b = ORTH_MAX(peak_1f1b, orth_schedule_peak_in_flight(&one, r));
                peak_h1 = ORTH_MAX(peak_h1, orth_schedule_peak_in_flight(&h1, r));
                peak_v = ORTH_MAX(peak_v, orth_schedule_peak_in_flight(&v, r));
            }
            assert_int_equal(peak_h1, peak_1f1b);
            assert_true(peak_v <= 2 * peak_1f1b); /* chunks of half a stage */
            for (int n = 2; n <= 4 && m % p == 0; n++) {
                const orth_schedule s = make(&k, "interleaved", p, n, m);
                for (int r = 0; r < p; r++)
                    assert_int_equal(orth_schedule_peak_in_flight(&s, r),
                                     ORTH_MIN(m * n, 2 * (p - r - 1) + (n - 1) * p + 1));
            }
        }
        orth_arena_release(k.ctx, &k.arena);
    }
    end(&k);
}

/* The counts over time, from the simulation, have the same peak. */
TEST(in_flight_over_time_has_the_same_peak)
{
    pipe_case k = begin();
    const orth_schedule s = make(&k, "zb-h1", 4, 1, 9);
    const orth_sim sim = simulate(&k, &s, 2, 2, 1, 0.5);
    for (int r = 0; r < 4; r++) {
        orth_in_flight_step steps[64];
        const int n = orth_sim_in_flight(&s, &sim, r, steps, 64);
        int peak = 0;
        assert_int_equal(n, 18);
        for (int i = 0; i < n; i++) {
            peak = ORTH_MAX(peak, steps[i].count);
            assert_true(i == 0 || steps[i].time >= steps[i - 1].time);
        }
        assert_int_equal(steps[n - 1].count, 0);
        assert_int_equal(peak, sim.ranks[r].peak_in_flight);
    }
    end(&k);
}

/* Before each action: the newest weights, and those that micro-batches in flight were computed with. */
static int count_versions(const orth_schedule *s, int rank)
{
    int peak = 1;
    for (int at = 0; at < s->lists[rank].num_actions; at++) {
        bool live[64] = {false};
        int newest = 0, n = 0;
        for (int i = 0; i < at; i++)
            newest += s->lists[rank].actions[i].kind == ORTH_ACTION_B;
        live[newest] = true;
        for (int i = 0; i < at; i++) {
            const orth_action *a = &s->lists[rank].actions[i];
            if (a->kind == ORTH_ACTION_F && orth_schedule_find(s, ORTH_ACTION_B, rank, a->micro_batch) >= at)
                live[a->version] = true;
        }
        for (int v = 0; v < 64; v++)
            n += live[v];
        peak = ORTH_MAX(peak, n);
    }
    return peak;
}

/* PipeDream as its paper tells it: by the time of a forward on rank r, p - r - 1 backwards are missing. */
TEST(pipedream_stashes_the_versions_of_its_paper)
{
    pipe_case k = begin();
    for (int p = 1; p <= 8; p++) {
        for (int m = 1; m <= 4 * p; m++) {
            const orth_schedule s = make(&k, "pipedream", p, 1, m);
            assert_true(s.async);
            for (int r = 0; r < p; r++) {
                for (int i = 0; i < m; i++) {
                    const int f = orth_schedule_find(&s, ORTH_ACTION_F, r, i);
                    const int b = orth_schedule_find(&s, ORTH_ACTION_B, r, i);
                    assert_int_equal(s.lists[r].actions[f].version, ORTH_MAX(0, i - (p - r - 1)));
                    assert_int_equal(s.lists[r].actions[b].version, s.lists[r].actions[f].version);
                }
                assert_int_equal(orth_schedule_peak_versions(&s, r), count_versions(&s, r));
                assert_true(orth_schedule_peak_versions(&s, r) <= ORTH_MIN(m, p - r));
                if (m >= 2 * (p - r - 1))
                    assert_int_equal(orth_schedule_peak_versions(&s, r), p - r);
            }
        }
        orth_arena_release(k.ctx, &k.arena);
    }
    end(&k);
}

/* ---- the simulation ---- */

/* Independent of the simulator: relaxation of all starts until none moves. */
static double longest_path(const orth_schedule *s, const orth_chunk_times *t)
{
    static double done[ORTH_NUM_ACTION_KINDS][16][32];
    double makespan = 0;
    memset(done, 0, sizeof done);
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < s->num_ranks; r++) {
            double now = 0;
            for (int i = 0; i < s->lists[r].num_actions; i++) {
                const orth_action *a = &s->lists[r].actions[i];
                const int c = a->chunk, u = a->micro_batch;
                double start = now;
                if (a->kind == ORTH_ACTION_F && c > 0)
                    start = fmax(now, done[ORTH_ACTION_F][c - 1][u] +
                                 (s->chunk_rank[c - 1] == r ? 0 : t[c - 1].send_forward));
                if ((a->kind == ORTH_ACTION_B || a->kind == ORTH_ACTION_BI) && c + 1 < s->num_chunks)
                    start = fmax(now, done[a->kind][c + 1][u] +
                                 (s->chunk_rank[c + 1] == r ? 0 : t[c + 1].send_backward));
                now = start + t[c].time[a->kind];
                moved |= now != done[a->kind][c][u];
                done[a->kind][c][u] = now;
            }
            makespan = fmax(makespan, now);
        }
    }
    return makespan;
}

TEST(simulation_equals_the_longest_path_for_uneven_costs)
{
    pipe_case k = begin();
    const orth_schedule_kind *kind;
    for (int seed = 0; seed < 20; seed++) {
        for (int i = 0; (kind = orth_schedule_kind_get(i)); i++) {
            const int p = (int)test_rand_int((uint64_t)seed, 0, 1, 5), v = virtual_of(kind);
            const int m = p * (int)test_rand_int((uint64_t)seed, 1, 1, 4);
            const orth_schedule s = make(&k, kind->name, p, v, m);
            orth_chunk_times t[16];
            orth_sim sim;
            for (int c = 0; c < s.num_chunks; c++) {
                for (int a = 0; a < ORTH_NUM_ACTION_KINDS; a++)
                    t[c].time[a] = (double)test_rand_int((uint64_t)seed, (uint64_t)(10 + 8 * c + a), 1, 50);
                t[c].send_forward = (double)test_rand_int((uint64_t)seed, (uint64_t)(15 + 8 * c), 0, 20);
                t[c].send_backward = (double)test_rand_int((uint64_t)seed, (uint64_t)(16 + 8 * c), 0, 20);
            }
            CHECK_OK(k.ctx, orth_schedule_simulate(k.ctx, &k.arena, &s, t, &sim));
            assert_true(sim.makespan == longest_path(&s, t));
        }
    }
    end(&k);
}

TEST(latency_is_paid_once_per_stage_and_direction_by_gpipe)
{
    pipe_case k = begin();
    for (int p = 1; p <= 6; p++) {
        const orth_schedule s = make(&k, "gpipe", p, 1, 4);
        assert_true(simulate(&k, &s, 4, 4, 4, 1).bubble == (p - 1) * (12 + 2));
    }
    end(&k);
}

/* ---- what is refused ---- */

TEST(sizes_that_do_not_fit_are_refused_in_words)
{
    static const struct {
        const char *name;
        int p, v, m;
        const char *text;
    } bad[] = {
        {"gpip", 4, 1, 4, "pipeline=gpip: unknown; there are naive, gpipe, 1f1b, interleaved, zb-h1, zb-v, "
                          "pipedream, file:PATH"},
        {"file:", 4, 1, 4, "pipeline=file: needs a path"},
        {"gpipe", 4, 1, 0, "pipeline=gpipe: pp=4, virtual_stages=1 and 0 micro-batches must each be at least 1"},
        {"gpipe", 100000, 1, 100000, "pipeline=gpipe: pp=100000 x virtual_stages=1 x 100000 micro-batches is more than"},
        {"interleaved", 4, 1, 8, "pipeline=interleaved needs virtual_stages >= 2, not 1"},
        {"interleaved", 4, 2, 6, "pipeline=interleaved: 6 micro-batches are not a multiple of pp=4"},
        {"zb-v", 4, 1, 8, "pipeline=zb-v needs virtual_stages=2, not 1"},
        {"zb-v", 4, 3, 8, "pipeline=zb-v needs virtual_stages=2, not 3"},
        {"1f1b", 4, 2, 8, "pipeline=1f1b needs virtual_stages=1, not 2"},
    };
    pipe_case k = begin();
    orth_schedule s;
    for (int i = 0; i < ORTH_COUNT(bad); i++)
        CHECK_FAILS(k.ctx, ORTH_ERR_ARG, bad[i].text,
                    orth_schedule_make(k.ctx, &k.arena, &s, bad[i].name, bad[i].p, bad[i].v, bad[i].m));
    CHECK_OK(k.ctx, orth_schedule_make(k.ctx, &k.arena, &s, "zb-v", 1, 1, 3)); /* nothing to split */
    assert_int_equal(s.num_chunks, 1);
    end(&k);
}

#define HEAD "orthant-schedule 1\nranks 2\nmicro_batches 2\n"
#define WELL HEAD "rank 0: F0 F1 B0 B1\nrank 1: F0 B0 F1 B1\n"

TEST(lists_that_break_a_rule_are_refused_in_words)
{
    static const char *const bad[][2] = {
        {HEAD "rank 0: F0 F1 B0 B1\nrank 1: F0 B0 F1\n", "f: rank 1 has no backward of micro-batch 1 on chunk 1"},
        {HEAD "rank 0: F0 F1 B0 B1\nrank 1: F0 B0 B1 B1\n",
         "f: rank 1, action 3 (backward of micro-batch 1 on chunk 1): it is there already, as action 2"},
        {HEAD "rank 0: F0 F1 B0 B1\nrank 1: F0 B0 B1 F1\n",
         "f: rank 1, action 2 (backward of micro-batch 1 on chunk 1): it stands before the forward on chunk 1, which "
         "it needs and which is action 3"},
        {HEAD "rank 0: F0 B0 F1 B1\nrank 1: F0 F1 B0 B1\n",
         "f: deadlock of 2 ranks: rank 0, action 1 (backward of micro-batch 0 on chunk 0) waits for the backward of "
         "micro-batch 0 on chunk 1; rank 1, action 1 (forward of micro-batch 1 on chunk 1) waits for the forward of "
         "micro-batch 1 on chunk 0"},
        {HEAD "rank 0: F0 F1 I0 W0 B1\nrank 1: F0 B0 F1 B1\n",
         "f: rank 0, action 4 (backward of micro-batch 1 on chunk 0): a schedule has either backwards, or input and "
         "weight gradients"},
        {HEAD "rank 0: F0 F1 W0 I0 I1 W1\nrank 1: F0 I0 W0 F1 I1 W1\n",
         "f: rank 0, action 2 (weight gradient of micro-batch 0 on chunk 0): it stands before the input gradient on "
         "chunk 0"},
        {HEAD "rank 0: F0 F1 I0 W0 I1\nrank 1: F0 I0 W0 F1 I1 W1\n",
         "f: rank 0 has no weight gradient of micro-batch 1 on chunk 0"},
        {HEAD "rank 0: F0@1\n", "f: 1 actions for 2 chunks and 2 micro-batches, which need 8"},
        {HEAD "rank 0: F0 F1 B0 B1@1\nrank 1: F0 B0 F1 B1\n",
         "f: rank 0, action 3 (backward of micro-batch 1 on chunk 1): that chunk is on rank 1"},
        {"orthant-schedule 1\nranks 1\nmicro_batches 1\nchunks 0 0\nrank 0: F0@1 F0@0 B0@1 B0@0\n",
         "f: rank 0, action 0 (forward of micro-batch 0 on chunk 1): it stands before the forward on chunk 0, which "
         "it needs and which is action 1"},
    };
    pipe_case k = begin();
    orth_schedule s;
    for (int i = 0; i < ORTH_COUNT(bad); i++)
        CHECK_FAILS(k.ctx, ORTH_ERR_DATA, bad[i][1],
                    orth_schedule_parse(k.ctx, &k.arena, &s, "f", bad[i][0], strlen(bad[i][0]), 0, 0, 0));
    end(&k);
}

/* Each rank wants its second chunk first. */
TEST(circles_of_many_ranks_are_told_in_short)
{
    char text[1024];
    size_t n = (size_t)snprintf(text, sizeof text, "orthant-schedule 1\nranks 6\nmicro_batches 1\nchunks 0 1 2 3 4 "
                                                   "5 0 1 2 3 4 5\n");
    for (int r = 0; r < 6; r++)
        n += (size_t)snprintf(text + n, sizeof text - n, "rank %d: F0@%d F0@%d B0@%d B0@%d\n", r, r + 6, r, r + 6, r);
    pipe_case k = begin();
    orth_schedule s;
    CHECK_FAILS(k.ctx, ORTH_ERR_DATA,
                "f: deadlock of 6 ranks: rank 0, action 0 (forward of micro-batch 0 on chunk 6) waits for the forward "
                "of micro-batch 0 on chunk 5; rank 5, action 0 (forward of micro-batch 0 on chunk 11) waits for the "
                "forward of micro-batch 0 on chunk 10; rank 4, ",
                orth_schedule_parse(k.ctx, &k.arena, &s, "f", text, n, 0, 0, 0));
    CHECK_FAILS(k.ctx, ORTH_ERR_DATA, "on chunk 8; and so on",
                orth_schedule_parse(k.ctx, &k.arena, &s, "f", text, n, 0, 0, 0));
    end(&k);
}

TEST(wrong_versions_and_sizes_are_refused)
{
    pipe_case k = begin();
    orth_schedule s = make(&k, "pipedream", 2, 1, 4);
    orth_action changed[8];
    orth_action_list lists[2] = {s.lists[0], {changed, 8}};
    memcpy(changed, s.lists[1].actions, sizeof changed);
    s.lists = lists;
    CHECK_OK(k.ctx, orth_schedule_check(k.ctx, &s));
    changed[2].version = 0;
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "rank 1, action 2 (forward of micro-batch 1 on chunk 1): weights of version 0, "
                "but it is version 1 that is the newest then", orth_schedule_check(k.ctx, &s));
    changed[2].version = 1;
    changed[3].version = 2;
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "weights of version 2, but it is version 1 that its forward used",
                orth_schedule_check(k.ctx, &s));
    changed[3] = (orth_action){ORTH_ACTION_B, 2, 0, 0};
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "chunks are 0 to 1", orth_schedule_check(k.ctx, &s));
    changed[3] = (orth_action){ORTH_ACTION_B, 1, 4, 0};
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "micro-batches are 0 to 3", orth_schedule_check(k.ctx, &s));
    changed[3].kind = (orth_action_kind)9;
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "rank 1, action 3: unknown kind 9", orth_schedule_check(k.ctx, &s));
    const int32_t beyond[2] = {0, 2};
    s.chunk_rank = beyond;
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "chunk 1 is on rank 2, but ranks are 0 to 1", orth_schedule_check(k.ctx, &s));
    s.num_ranks = 0;
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "0 ranks, 2 chunks, 4 micro-batches: each must be at least 1",
                orth_schedule_check(k.ctx, &s));
    end(&k);
}

TEST(crossing_messages_are_found)
{
    static const char text[] = HEAD "rank 0: F0 F1 B0 B1\nrank 1: F1 F0 B1 B0\n";
    pipe_case k = begin();
    orth_schedule s;
    CHECK_OK(k.ctx, orth_schedule_parse(k.ctx, &k.arena, &s, "f", text, strlen(text), 0, 0, 0));
    /* Rank 0 waits for B0 while B1 was sent first; rank 1 is the other way round. The first is told. */
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG,
                "pipeline=file:f: rank 0, action 3 (backward of micro-batch 1 on chunk 0) takes what rank 1, action 2 "
                "(backward of micro-batch 1 on chunk 1) sent before a message that was taken already",
                orth_schedule_check_in_order(k.ctx, &s));
    end(&k);
}

/* ---- files ---- */

TEST(a_schedule_as_text_reads_back_equal)
{
    pipe_case k = begin();
    const orth_schedule_kind *kind;
    for (int i = 0; (kind = orth_schedule_kind_get(i)); i++) {
        const orth_schedule s = make(&k, kind->name, 4, virtual_of(kind), 8);
        char *text = orth_schedule_text(k.ctx, &k.arena, &s);
        orth_schedule back;
        CHECK_OK(k.ctx, orth_schedule_parse(k.ctx, &k.arena, &back, "f", text, strlen(text), 4, virtual_of(kind), 8));
        assert_string_equal(back.name, "file:f");
        assert_true(back.async == s.async && back.split == s.split && back.num_chunks == s.num_chunks);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(back.lists[r].num_actions, s.lists[r].num_actions);
            assert_memory_equal(back.lists[r].actions, s.lists[r].actions,
                                (size_t)s.lists[r].num_actions * sizeof(orth_action));
        }
    }
    end(&k);
}

TEST(a_schedule_is_read_from_a_file)
{
    static const char text[] = "orthant-schedule 1 # by hand\r\n\nranks\t2\nmicro_batches 2\nrank 0: F0 F1\nrank 1: F0 "
                               "B0 F1 B1\nrank 0: B0 B1 # goes on";
    pipe_case k = begin();
    orth_schedule s;
    const char *path = "test_schedule.tmp";
    CHECK_OK(k.ctx, orth_file_write(k.ctx, path, text, strlen(text)));
    CHECK_OK(k.ctx, orth_schedule_make(k.ctx, &k.arena, &s, "file:test_schedule.tmp", 2, 1, 2));
    assert_string_equal(s.name, "file:test_schedule.tmp");
    assert_int_equal(s.lists[0].num_actions, 4);
    CHECK_FAILS(k.ctx, ORTH_ERR_DATA, "test_schedule.tmp:3:7: ranks 2, but the run has 3",
                orth_schedule_make(k.ctx, &k.arena, &s, "file:test_schedule.tmp", 3, 1, 2));
    CHECK_FAILS(k.ctx, ORTH_ERR_DATA, "test_schedule.tmp:4:15: micro_batches 2, but the run has 4",
                orth_schedule_make(k.ctx, &k.arena, &s, "file:test_schedule.tmp", 2, 1, 4));
    CHECK_FAILS(k.ctx, ORTH_ERR_DATA, "test_schedule.tmp: 2 chunks, but the run has pp=2 x virtual_stages=2",
                orth_schedule_make(k.ctx, &k.arena, &s, "file:test_schedule.tmp", 2, 2, 2));
    remove(path);
    CHECK_FAILS(k.ctx, ORTH_ERR_IO, path, orth_schedule_make(k.ctx, &k.arena, &s, "file:test_schedule.tmp", 2, 1, 2));
    end(&k);
}

TEST(texts_that_are_no_schedule_are_refused_with_their_place)
{
    static const char *const bad[][2] = {
        {"", "f:1:1: \"\": a schedule begins with: orthant-schedule 1"},
        {"hello", "f:1:1: \"hello\": a schedule begins with"},
        {"orthant-schedule 2\n", "f:1:18: version \"2\" of the format is unknown; this program reads 1"},
        {"orthant-schedule 1 x\n", "f:1:20: \"x\" is too much on this line"},
        {"orthant-schedule 1\n", "f:2:1: ends without a line with rank"},
        {"orthant-schedule 1\nrank 0: F0\n", "f:2:1: rank: a line with ranks must come before"},
        {"orthant-schedule 1\nranks 2\nrank 0: F0\n", "f:3:1: rank: a line with micro_batches must come before"},
        {"orthant-schedule 1\nranks 0\n", "f:2:7: ranks: \"0\" is not a number from 1 to 65536"},
        {"orthant-schedule 1\nranks\n", "f:2:6: ranks: \"\" is not a number"},
        {"orthant-schedule 1\nranks 2x\n", "f:2:7: ranks: \"2x\" is not a number"},
        {"orthant-schedule 1\nranks 2\nranks 2\n", "f:3:1: ranks is given twice"},
        {"orthant-schedule 1\nchunks 0\n", "f:2:1: chunks: a line with ranks must come before"},
        {HEAD "chunks 0 2\n", "f:4:10: chunks: \"2\" is not a rank, which are 0 to 1"},
        {HEAD "chunks\n", "f:4:7: chunks: at least one rank must follow"},
        {HEAD "chunks 0\nchunks 0\n", "f:5:1: chunks is given twice"},
        {HEAD "async yes\n", "f:4:7: \"yes\" is too much on this line"},
        {HEAD "\x1b[2Jgo 0\n", "f:4:1: \"?[2Jgo\" is unknown; there are ranks, micro_batches, chunks, async, rank"},
        {HEAD "a_word_that_is_longer_than_any_key\n", "f:4:1: \"a_word_that_is_longer_th...\" is unknown"},
        {HEAD "rank 2: F0\n", "f:4:6: rank: \"2:\" is not a number from 0 to 1 and a colon"},
        {HEAD "rank 0 F0\n", "f:4:6: rank: \"0\" is not a number from 0 to 1 and a colon"},
        {HEAD "rank 0: G0\n", "f:4:9: \"G0\" is not an action: F, B, I or W and a micro-batch from 0 to 1"},
        {HEAD "rank 0: F\n", "f:4:9: \"F\" is not an action"},
        {HEAD "rank 0: F2\n", "f:4:9: \"F2\" is not an action"},
        {HEAD "rank 0: F99999999999999999999\n", "f:4:9: \"F99999999999999999999\" is not an action"},
        {HEAD "rank 0: F0@\n", "f:4:9: \"F0@\": after the micro-batch may come @ and a chunk from 0 to 1"},
        {HEAD "rank 0: F0@2\n", "f:4:9: \"F0@2\": after the micro-batch may come @ and a chunk from 0 to 1"},
        {HEAD "chunks 0 0\nrank 0: F0\n", "f:5:9: \"F0\": rank 0 does not hold one chunk, so that @ and a chunk must"},
        {HEAD "rank 0: F0\nranks 3\n", "f:5:1: \"ranks\": only lines with rank may follow the first of them"},
    };
    pipe_case k = begin();
    orth_schedule s;
    for (int i = 0; i < ORTH_COUNT(bad); i++)
        CHECK_FAILS(k.ctx, ORTH_ERR_DATA, bad[i][1],
                    orth_schedule_parse(k.ctx, &k.arena, &s, "f", bad[i][0], strlen(bad[i][0]), 0, 0, 0));
    end(&k);
}

TEST(damaged_texts_give_a_schedule_or_a_message)
{
    pipe_case k = begin();
    const orth_schedule s = make(&k, "zb-v", 2, 2, 3);
    const char *text = orth_schedule_text(k.ctx, &k.arena, &s);
    const size_t n = strlen(text);
    char *copy = malloc(n + 1);
    int accepted = 0;
    for (uint64_t i = 0; i < 3000; i++) {
        memcpy(copy, text, n + 1);
        for (int64_t e = test_rand_int(i, 0, 1, 3); e > 0; e--)
            copy[test_rand_int(i, (uint64_t)(2 * e), 0, (int64_t)n - 1)] =
                " \n0129FBIW@:#x"[test_rand_int(i, (uint64_t)(2 * e + 1), 0, 13)];
        orth_schedule out;
        orth_arena arena = {0};
        const orth_status status = orth_schedule_parse(k.ctx, &arena, &out, "f", copy, n, 0, 0, 0);
        assert_true(status == ORTH_OK || (status == ORTH_ERR_DATA && k.ctx->error.message[0]));
        accepted += status == ORTH_OK;
        orth_ctx_clear_error(k.ctx);
        orth_arena_release(k.ctx, &arena);
    }
    assert_in_range(accepted, 1, 2000); /* changes in comments */
    free(copy);
    end(&k);
}

/* ---- balance ---- */

/* All splits: the least maximum, then the least sum of squares, then the first in order of layer counts. */
static void brute_force(const int64_t *cost, int L, int64_t embed, int64_t head, int C, int32_t *best)
{
    int64_t best_max = INT64_MAX, best_squares = INT64_MAX;
    int32_t cut[8] = {0};
    for (int mask = 0; mask < 1 << (L - 1); mask++) {
        if (__builtin_popcount((unsigned)mask) != C - 1)
            continue;
        int c = 0;
        int64_t now = embed, max = 0, squares = 0;
        for (int l = 0; l < L; l++) {
            now += cost[l];
            if (l == L - 1)
                now += head;
            if (l == L - 1 || mask >> l & 1) {
                max = ORTH_MAX(max, now);
                squares += now * now;
                cut[++c] = l + 1;
                now = 0;
            }
        }
        bool less = max < best_max || (max == best_max && squares < best_squares);
        for (int i = 1; max == best_max && squares == best_squares && i <= C && !less; i++) {
            if (cut[i] > best[i])
                break;
            less = cut[i] < best[i];
        }
        if (less) {
            best_max = max;
            best_squares = squares;
            memcpy(best, cut, (size_t)(C + 1) * sizeof *cut);
        }
    }
}

TEST(balance_equals_brute_force)
{
    orth_ctx *ctx = test_ctx(1);
    for (uint64_t seed = 0; seed < 400; seed++) {
        int64_t cost[10];
        int32_t begin_at[11], want[11] = {0};
        const int L = (int)test_rand_int(seed, 0, 1, 10), C = (int)test_rand_int(seed, 1, 1, ORTH_MIN(L, 7));
        const int64_t spread = seed % 4 == 0 ? 0 : 20; /* every fourth: equal layers */
        for (int l = 0; l < L; l++)
            cost[l] = 10 + test_rand_int(seed, (uint64_t)(10 + l), -spread / 2, spread);
        const int64_t embed = test_rand_int(seed, 2, 0, 15), head = test_rand_int(seed, 3, 0, 40);
        CHECK_OK(ctx, orth_balance_layers(ctx, cost, L, embed, head, C, begin_at));
        brute_force(cost, L, embed, head, C, want);
        assert_memory_equal(begin_at, want, (size_t)(C + 1) * sizeof *want);
    }
    test_ctx_free(ctx);
}

TEST(balance_takes_layers_from_the_stage_with_the_head)
{
    orth_ctx *ctx = test_ctx(1);
    int64_t cost[32];
    int32_t at[5];
    for (int l = 0; l < 32; l++)
        cost[l] = 1000;
    CHECK_OK(ctx, orth_balance_layers(ctx, cost, 32, 10, 3500, 4, at));
    assert_int_equal(at[4] - at[3], 5); /* 5 layers + 3.5 beside 9, 9 and 9 */
    assert_int_equal(at[1], 9);
    CHECK_OK(ctx, orth_balance_layers(ctx, cost, 7, 0, 0, 3, at)); /* uneven counts: few in front */
    assert_int_equal(at[1], 2);
    assert_int_equal(at[2], 4);
    const int64_t hand[3] = {1, 2, 4}, zero[3] = {0, 3, 4}, more[3] = {1, 2, 5};
    CHECK_OK(ctx, orth_balance_by_hand(ctx, hand, 3, 7, 3, at));
    assert_true(at[0] == 0 && at[1] == 1 && at[2] == 3 && at[3] == 7);
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "layers are given for 3 chunks, but pp x virtual_stages is 2",
                orth_balance_by_hand(ctx, hand, 3, 7, 2, at));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "chunk 0 is given 0 layers: it must have 1 to layers=7",
                orth_balance_by_hand(ctx, zero, 3, 7, 3, at));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "the layers given for chunks add up to 8, not to layers=7",
                orth_balance_by_hand(ctx, more, 3, 7, 3, at));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "8 chunks for layers=7: each needs at least one layer",
                orth_balance_layers(ctx, cost, 7, 0, 0, 8, at));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "embedding or head costs -1: costs are not negative",
                orth_balance_layers(ctx, cost, 7, 0, -1, 3, at));
    cost[3] = -5;
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "layer 3 costs -5: costs are not negative",
                orth_balance_layers(ctx, cost, 7, 0, 0, 3, at));
    test_ctx_free(ctx);
}

/* ---- drawings, traces ---- */

TEST(drawings_show_ranks_and_time)
{
    pipe_case k = begin();
    orth_text t = {0};
    const orth_schedule s = make(&k, "1f1b", 2, 1, 3), v = make(&k, "zb-v", 2, 2, 2);
    const orth_sim sim = simulate(&k, &s, 1, 1, 1, 0), sim_v = simulate(&k, &v, 1, 1, 1, 0);
    orth_schedule_draw(k.ctx, &t, &s, &sim, 0, 0);
    assert_string_equal(t.s, "rank 0 |F0 F1 .  .  B0 B0 F2 B1 B1 .  B2 B2\n"
                             "rank 1 |.  F0 B0 B0 F1 B1 B1 F2 B2 B2 .  .\n");
    t.num_bytes = 0;
    orth_schedule_draw(k.ctx, &t, &s, &sim, 0, 3);
    assert_string_equal(t.s, "rank 0 |F0 F1 . ...\nrank 1 |.  F0 B0 ...\n");
    t.num_bytes = 0;
    orth_schedule_draw(k.ctx, &t, &v, &sim_v, 0, 0);
    assert_string_equal(t.s, "rank 0 |F0a F1a .   F0b I0b F1b I1b I0a W0b I1a W1b W0a W1a\n"
                             "rank 1 |.   F0a F0b F1a F1b I0b I0a I1b I1a W0b W0a W1b W1a\n");
    t.num_bytes = 0;
    orth_schedule_report(k.ctx, &t, &s, &sim);
    assert_non_null(strstr(t.s, "time 12, of which bubble 3; ranks idle 25.0% of it on average"));
    orth_mem_free(k.ctx, t.s);
    end(&k);
}

/* The page shows, for each schedule, what is drawn here; on a difference, paste what this prints. */
TEST(docs_show_what_is_drawn)
{
    pipe_case k = begin();
    char *page;
    size_t num_bytes;
    const orth_schedule_kind *kind;
    CHECK_OK(k.ctx, orth_file_read(k.ctx, ORTH_TEST_DIR "/../docs/pipeline.md", &page, &num_bytes));
    for (int i = 0; (kind = orth_schedule_kind_get(i)); i++) {
        const int v = virtual_of(kind), m = strcmp(kind->name, "naive") == 0 ? 2 : 4;
        const orth_schedule s = make(&k, kind->name, 4, v, m);
        const orth_sim sim = simulate(&k, &s, 1, 1, 1, 0);
        orth_text t = {0};
        orth_schedule_draw(k.ctx, &t, &s, &sim, 0, 0);
        orth_schedule_report(k.ctx, &t, &s, &sim);
        if (!strstr(page, t.s))
            fail_msg("docs/pipeline.md: pipeline=%s draws as\n%s", kind->name, t.s);
        orth_mem_free(k.ctx, t.s);
    }
    orth_mem_free(k.ctx, page);
    end(&k);
}

TEST(traces_are_json_with_a_span_per_action)
{
    pipe_case k = begin();
    orth_trace trace = {0};
    const orth_schedule s = make(&k, "zb-h1", 3, 1, 5);
    const orth_sim sim = simulate(&k, &s, 1, 1, 1, 0);
    orth_schedule_trace(k.ctx, &trace, &s, &sim, 1500);
    orth_trace_span(k.ctx, &trace, 3, 1, "a \"quoted\"\nname", "copy", 1234567890123456, 1234567890123457, NULL);
    char *text = orth_trace_take(k.ctx, &trace);
    json_t *root = json_loads(text, 0, NULL);
    assert_non_null(root);
    const json_t *events = json_object_get(root, "traceEvents"), *e;
    size_t i;
    int spans = 0;
    double busy = 0;
    json_array_foreach((json_t *)events, i, e) {
        if (strcmp(json_string_value(json_object_get(e, "ph")), "X") != 0 ||
            json_integer_value(json_object_get(e, "pid")) == 3)
            continue;
        spans++;
        busy += json_number_value(json_object_get(e, "dur"));
    }
    assert_int_equal(spans, 3 * 15);
    assert_true(fabs(busy - 3 * 15 * 1.5) < 1e-9);
    assert_non_null(strstr(text, "\"ts\": 1234567890123.456, \"dur\": 0.001"));
    json_decref(root);
    orth_mem_free(k.ctx, text);
    text = orth_trace_take(k.ctx, &trace); /* empty again */
    assert_string_equal(text, "{\"traceEvents\": []}\n");
    orth_mem_free(k.ctx, text);
    orth_trace_group(k.ctx, &trace, 0, "rank 0");
    orth_trace_release(k.ctx, &trace);
    end(&k);
}

/* ---- failing allocations ---- */

static orth_status all_of_it(orth_ctx *ctx, orth_arena *arena)
{
    orth_schedule s, back;
    orth_sim sim;
    orth_trace trace = {0};
    const orth_chunk_times t[6] = {{{1, 2, 1, 1}, 0, 0}, {{1, 2, 1, 1}, 0, 0}, {{1, 2, 1, 1}, 0, 0},
                                   {{1, 2, 1, 1}, 0, 0}, {{1, 2, 1, 1}, 0, 0}, {{1, 2, 1, 1}, 0, 0}};
    const int64_t cost[6] = {1, 1, 1, 1, 1, 1};
    int32_t at[7];
    ORTH_TRY(orth_schedule_make(ctx, arena, &s, "zb-v", 3, 2, 4));
    ORTH_TRY(orth_schedule_check_in_order(ctx, &s));
    ORTH_TRY(orth_schedule_simulate(ctx, arena, &s, t, &sim));
    const char *text = orth_schedule_text(ctx, arena, &s);
    if (!text)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(orth_schedule_parse(ctx, arena, &back, "f", text, strlen(text), 3, 2, 4));
    ORTH_TRY(orth_balance_layers(ctx, cost, 6, 1, 1, 3, at));
    orth_schedule_trace(ctx, &trace, &s, &sim, 1000);
    char *json = orth_trace_take(ctx, &trace);
    orth_mem_free(ctx, json);
    return json ? ORTH_OK : ORTH_ERR_NOMEM;
}

TEST(every_failed_allocation_is_reported_and_leaks_nothing)
{
    orth_ctx *ctx = test_ctx(1);
    orth_faults faults = {0};
    int n = 1;
    for (orth_status status = ORTH_ERR_NOMEM; status != ORTH_OK; n++) {
        orth_arena arena = {0};
        faults.alloc = n;
        faults.sticky = n % 2;
        ctx->faults = &faults;
        status = all_of_it(ctx, &arena);
        ctx->faults = NULL;
        assert_true(status == ORTH_OK || (status == ORTH_ERR_NOMEM && ctx->error.code == ORTH_ERR_NOMEM));
        orth_arena_release(ctx, &arena);
        orth_ctx_clear_error(ctx);
        assert_in_range(n, 1, 1000);
    }
    assert_true(n > 10);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_schedule_is_valid_and_sends_in_order),
        cmocka_unit_test(large_schedules_are_valid),
        cmocka_unit_test(synchronous_bubbles_equal_their_formulas),
        cmocka_unit_test(idle_share_equals_the_table),
        cmocka_unit_test(interleaved_bubble_equals_its_formula),
        cmocka_unit_test(zb_h1_bubble_equals_its_formula),
        cmocka_unit_test(zb_v_bubble_is_the_least_possible),
        cmocka_unit_test(in_flight_is_as_promised),
        cmocka_unit_test(in_flight_over_time_has_the_same_peak),
        cmocka_unit_test(pipedream_stashes_the_versions_of_its_paper),
        cmocka_unit_test(simulation_equals_the_longest_path_for_uneven_costs),
        cmocka_unit_test(latency_is_paid_once_per_stage_and_direction_by_gpipe),
        cmocka_unit_test(sizes_that_do_not_fit_are_refused_in_words),
        cmocka_unit_test(lists_that_break_a_rule_are_refused_in_words),
        cmocka_unit_test(circles_of_many_ranks_are_told_in_short),
        cmocka_unit_test(wrong_versions_and_sizes_are_refused),
        cmocka_unit_test(crossing_messages_are_found),
        cmocka_unit_test(a_schedule_as_text_reads_back_equal),
        cmocka_unit_test(a_schedule_is_read_from_a_file),
        cmocka_unit_test(texts_that_are_no_schedule_are_refused_with_their_place),
        cmocka_unit_test(damaged_texts_give_a_schedule_or_a_message),
        cmocka_unit_test(balance_equals_brute_force),
        cmocka_unit_test(balance_takes_layers_from_the_stage_with_the_head),
        cmocka_unit_test(drawings_show_ranks_and_time),
        cmocka_unit_test(docs_show_what_is_drawn),
        cmocka_unit_test(traces_are_json_with_a_span_per_action),
        cmocka_unit_test(every_failed_allocation_is_reported_and_leaks_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
