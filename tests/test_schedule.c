/* test_schedule.c -- pipeline schedules: valid, as short as their formulas, as frugal as promised; the simulation. */
#include "schedule_case.h"
#include "schedule_text.h"

#include <math.h>

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
                    assert_int_equal(schedule_num_chunks(&s, p - 1), v);
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

/* Per cent that p = 4 stages idle, (p-1)/(m+p-1), and the bubble's ratio to useful time, (p-1)/m (docs/pipeline.md), for
 * forward to backward 1:1 and 1:2. */
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

/* Counted over the simulated time: a micro-batch is in flight from the start of its F to the end of its B or W. */
TEST(in_flight_over_time_has_the_same_peak)
{
    pipe_case k = begin();
    const orth_schedule s = make(&k, "zb-h1", 4, 1, 9);
    const orth_sim sim = simulate(&k, &s, 2, 2, 1, 0.5);
    for (int r = 0; r < 4; r++) {
        const orth_action *a = s.lists[r].actions;
        int peak = 0;
        for (int i = 0; i < s.lists[r].num_actions; i++) { /* the count is highest where an F begins */
            const double at = sim.ranks[r].spans[i].start;
            int count = 0;
            for (int j = 0; j < s.lists[r].num_actions; j++) {
                count += a[j].kind == ORTH_ACTION_F && sim.ranks[r].spans[j].start <= at;
                count -= (a[j].kind == ORTH_ACTION_B || a[j].kind == ORTH_ACTION_W) && sim.ranks[r].spans[j].end <= at;
            }
            peak = ORTH_MAX(peak, count);
        }
        assert_int_equal(peak, sim.ranks[r].peak_in_flight);
    }
    end(&k);
}

/* Position of an action in the list of its chunk's rank; -1 if it is not there. */
static int find_action(const orth_schedule *s, orth_action_kind kind, int chunk, int micro_batch)
{
    const orth_action_list *l = &s->lists[s->chunk_rank[chunk]];
    int i = l->num_actions - 1;
    while (i >= 0 && (l->actions[i].kind != kind || l->actions[i].chunk != chunk || l->actions[i].micro_batch != micro_batch))
        i--;
    return i;
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
            if (a->kind == ORTH_ACTION_F && find_action(s, ORTH_ACTION_B, rank, a->micro_batch) >= at)
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
                    const int f = find_action(&s, ORTH_ACTION_F, r, i);
                    const int b = find_action(&s, ORTH_ACTION_B, r, i);
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

/* Prints a table of docs/pipeline.md, and holds the row of GPipe against its formula. */
TEST(late_messages_lengthen_the_bubble)
{
    static const int batches[] = {8, 16, 32, 64};
    pipe_case k = begin();
    const orth_schedule_kind *kind;
    for (int i = 0; (kind = orth_schedule_kind_get(i)); i++) {
        const int p = 8, v = virtual_of(kind);
        printf("late %s", kind->name);
        for (int b = 0; b < ORTH_COUNT(batches); b++) {
            const int m = batches[b];
            const orth_schedule s = make(&k, kind->name, p, v, m);
            const double t = 10.0 * p / s.num_chunks, share = simulate(&k, &s, t, t, t, 1).idle_share;
            printf(" %.1f%%", 100 * share);
            if (strcmp(kind->name, "gpipe") == 0)
                assert_true(fabs(share - (1 - 30.0 * m / (30.0 * (m + p - 1) + 2 * (p - 1)))) < 1e-12);
        }
        printf("\n");
    }
    end(&k);
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
        cmocka_unit_test(late_messages_lengthen_the_bubble),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
