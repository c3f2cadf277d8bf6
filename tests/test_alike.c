/* Ranks alike are simulated once (program/check/alike.h): what that says of each rank is what a simulation of all of them says,
 * also where one rank is slower, or never gets on. The calls are made up: a mesh of pipeline, data and tensor parallelism. */
#include "program/check/alike.h"
#include "test.h"

enum { MAX_RANKS = 64, MAX_STAGES = 4, MAX_CALLS = 128 };

typedef struct {
    int pp, dp, tp, num_ranks;
    orth_instance list[3 * MAX_RANKS];
    int32_t members[3 * MAX_RANKS][MAX_RANKS];
    int32_t of[MAX_RANKS][ORTH_NUM_GROUPS], pos[MAX_RANKS][ORTH_NUM_GROUPS];
    orth_instances instances;
    orth_wait_list stage[MAX_STAGES], own[MAX_RANKS];
    const orth_wait_list *lists[MAX_RANKS];
    orth_wait_call calls[MAX_STAGES + MAX_RANKS][MAX_CALLS];
} mesh;

static int rank_of(const mesh *m, int p, int d, int t)
{
    return (p * m->dp + d) * m->tp + t;
}

/* The communicator of `group` with these members, unless it would be one rank. */
static void add_instance(mesh *m, orth_group group, int n, const int *ranks)
{
    const int32_t i = m->instances.num;
    if (n == 1)
        return;
    for (int k = 0; k < n; k++) {
        m->members[i][k] = ranks[k];
        m->of[ranks[k]][group] = i;
        m->pos[ranks[k]][group] = k;
    }
    m->list[m->instances.num++] = (orth_instance){group, n, m->members[i]};
}

static void make_instances(mesh *m)
{
    int ranks[MAX_RANKS];
    memset(m->of, 0xff, sizeof m->of);
    m->instances = (orth_instances){.list = m->list, .of = m->of, .pos = m->pos};
    for (int d = 0; d < m->dp; d++)
        for (int t = 0; t < m->tp; t++) {
            for (int p = 0; p < m->pp; p++)
                ranks[p] = rank_of(m, p, d, t);
            add_instance(m, ORTH_GROUP_PP, m->pp, ranks);
        }
    for (int p = 0; p < m->pp; p++) {
        for (int t = 0; t < m->tp; t++) {
            for (int d = 0; d < m->dp; d++)
                ranks[d] = rank_of(m, p, d, t);
            add_instance(m, ORTH_GROUP_DP, m->dp, ranks);
        }
        for (int d = 0; d < m->dp; d++) {
            for (int t = 0; t < m->tp; t++)
                ranks[t] = rank_of(m, p, d, t);
            add_instance(m, ORTH_GROUP_TP, m->tp, ranks);
        }
    }
}

static void add_call(orth_wait_list *l, orth_op op, orth_group group, int peer, int queue, uint64_t seed)
{
    const int32_t i = l->num_calls;
    const double before = (double)test_rand_int(seed, (uint64_t)i, 1, 9), seconds = (double)test_rand_int(seed + 1, (uint64_t)i, 1, 9);
    l->calls[l->num_calls++] = (orth_wait_call){.before = before, .seconds = seconds, .instr = i, .peer = peer, .queue = queue,
                                                .op = (uint8_t)op, .group = (uint8_t)group};
    l->sends[group] += op == ORTH_OP_send;
    l->collectives[group] += op == ORTH_OP_all_reduce;
    if (queue > 0) {
        l->made[queue]++;
        l->most[queue]++;
    }
}

/* Forward and backward of stage p, then a reduction in a queue of its own and one that holds the rank. */
static void make_stage(const mesh *m, orth_wait_list *l, orth_wait_call *calls, int p, int micro_batches, uint64_t seed)
{
    *l = (orth_wait_list){.calls = calls, .num_queues = 2, .after = (double)test_rand_int(seed + 2, 0, 1, 9)};
    for (int k = 0; k < micro_batches; k++) {
        if (p > 0)
            add_call(l, ORTH_OP_recv, ORTH_GROUP_PP, p - 1, 0, seed);
        if (m->tp > 1)
            add_call(l, ORTH_OP_all_reduce, ORTH_GROUP_TP, 0, 0, seed);
        if (p < m->pp - 1) {
            add_call(l, ORTH_OP_send, ORTH_GROUP_PP, p + 1, 0, seed);
            add_call(l, ORTH_OP_recv, ORTH_GROUP_PP, p + 1, 0, seed);
        }
        if (m->dp > 1)
            add_call(l, ORTH_OP_all_reduce, ORTH_GROUP_DP, 0, 1, seed);
        if (p > 0)
            add_call(l, ORTH_OP_send, ORTH_GROUP_PP, p - 1, 0, seed);
    }
    if (l->made[1] > 0) {
        calls[l->num_calls] = (orth_wait_call){.before = 1, .instr = l->num_calls, .queue = 1, .count = l->made[1], .group = ORTH_GROUP_DP};
        l->num_calls++;
    }
}

/* Some ranks get a list of their own: slower, or with two calls the wrong way round, so that ranks wait in a circle. */
static void disturb(mesh *m, uint64_t seed, int num, bool swaps)
{
    for (int k = 0; k < num; k++) {
        const int r = (int)test_rand_int(seed + 3, (uint64_t)k, 0, m->num_ranks - 1);
        orth_wait_list *own = &m->own[r];
        if (m->lists[r] == own)
            continue;
        *own = *m->lists[r];
        own->calls = m->calls[MAX_STAGES + r];
        memcpy(own->calls, m->lists[r]->calls, sizeof m->calls[0]);
        if (own->num_calls > 0)
            own->calls[0].before += (double)test_rand_int(seed + 4, (uint64_t)k, 1, 30);
        for (int32_t i = 0; swaps && i + 1 < own->num_calls; i++)
            if (own->calls[i].op == ORTH_OP_send && own->calls[i].count == 0 && own->calls[i + 1].op == ORTH_OP_recv) {
                const orth_wait_call first = own->calls[i];
                own->calls[i] = own->calls[i + 1];
                own->calls[i + 1] = first;
                break;
            }
        m->lists[r] = own;
    }
}

static mesh *make_mesh(uint64_t seed)
{
    mesh *m = calloc(1, sizeof *m);
    m->pp = (int)test_rand_int(seed, 100, 1, MAX_STAGES);
    m->dp = (int)test_rand_int(seed, 101, 1, 4);
    m->tp = (int)test_rand_int(seed, 102, 1, 4);
    m->num_ranks = m->pp * m->dp * m->tp;
    make_instances(m);
    const int micro_batches = (int)test_rand_int(seed, 103, 1, 5);
    for (int p = 0; p < m->pp; p++)
        make_stage(m, &m->stage[p], m->calls[p], p, micro_batches, seed * 7 + (uint64_t)p);
    for (int r = 0; r < m->num_ranks; r++)
        m->lists[r] = &m->stage[r / (m->dp * m->tp)];
    return m;
}

static void assert_same_ends(const orth_rank_waits *a, const orth_rank_waits *b)
{
    assert_int_equal(a->at, b->at);
    assert_int_equal(a->held_by, b->held_by);
    assert_memory_equal(&a->now, &b->now, sizeof a->now);
    assert_memory_equal(&a->comm_s, &b->comm_s, sizeof a->comm_s);
    assert_memory_equal(&a->wait_s, &b->wait_s, sizeof a->wait_s);
    assert_memory_equal(a->comm_by_group, b->comm_by_group, sizeof a->comm_by_group);
    assert_memory_equal(a->ends, b->ends, (size_t)a->at * sizeof *a->ends);
}

/* Simulates all ranks, and one of each colour; every rank has come equally far at the same time. Returns the colours. */
static int32_t compare(orth_ctx *ctx, const mesh *m, bool *all_end)
{
    orth_arena arena = {0};
    orth_waits *all, *few;
    orth_alike alike;
    CHECK_OK(ctx, orth_waits_run(ctx, &arena, &all, &m->instances, m->num_ranks, m->lists, NULL, true));
    CHECK_OK(ctx, orth_alike_find(ctx, &arena, &alike, &m->instances, m->num_ranks, m->lists));
    CHECK_OK(ctx, orth_waits_run(ctx, &arena, &few, &alike.instances, alike.num, alike.lists, NULL, true));
    *all_end = true;
    for (int r = 0; r < m->num_ranks; r++) {
        const orth_rank_waits *a = orth_waits_of(all, r), *b = orth_waits_of(few, alike.of[r]);
        assert_same_ends(a, b);
        *all_end = *all_end && a->at == m->lists[r]->num_calls;
    }
    orth_arena_release(ctx, &arena);
    return alike.num;
}

TEST(ranks_with_equal_lists_in_equal_places_are_one_a_stage)
{
    orth_ctx *ctx = test_ctx(1);
    for (uint64_t seed = 1; seed <= 100; seed++) {
        mesh *m = make_mesh(seed);
        bool all_end;
        assert_int_equal(compare(ctx, m, &all_end), m->pp);
        assert_true(all_end);
        free(m);
    }
    test_ctx_free(ctx);
}

TEST(a_slow_rank_takes_with_it_exactly_those_that_it_holds_up)
{
    orth_ctx *ctx = test_ctx(1);
    int merged = 0, apart = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        mesh *m = make_mesh(seed);
        bool all_end;
        disturb(m, seed, (int)test_rand_int(seed, 104, 1, 3), false);
        const int32_t colours = compare(ctx, m, &all_end);
        assert_true(all_end);
        merged += colours < m->num_ranks;
        apart += colours > m->pp;
        free(m);
    }
    assert_true(merged > 100 && apart > 100);
    test_ctx_free(ctx);
}

TEST(ranks_that_never_get_on_are_found_among_those_alike)
{
    orth_ctx *ctx = test_ctx(1);
    int stuck = 0;
    for (uint64_t seed = 1; seed <= 300; seed++) {
        mesh *m = make_mesh(seed);
        bool all_end;
        disturb(m, seed, (int)test_rand_int(seed, 104, 1, 3), true);
        compare(ctx, m, &all_end);
        stuck += !all_end;
        free(m);
    }
    assert_true(stuck > 50);
    test_ctx_free(ctx);
}

/* From call until[stage] on some ranks take other times. */
static void slow_down(mesh *m, uint64_t seed, const int32_t *until)
{
    for (int r = 0; r < m->num_ranks; r++) {
        const int32_t from = until[r / (m->dp * m->tp)];
        orth_wait_list *own = &m->own[r];
        if (test_rand_int(seed + 5, (uint64_t)r, 0, 2) == 0)
            continue;
        *own = *m->lists[r];
        own->calls = m->calls[MAX_STAGES + r];
        memcpy(own->calls, m->lists[r]->calls, sizeof m->calls[0]);
        for (int32_t k = from; k < own->num_calls; k++) {
            own->calls[k].before += (double)test_rand_int(seed + 6, (uint64_t)(r * 1000 + k), 0, 3);
            own->calls[k].seconds += (double)test_rand_int(seed + 7, (uint64_t)(r * 1000 + k), 0, 3);
        }
        own->after += from < own->num_calls ? 1 : 0;
        m->lists[r] = own;
    }
}

TEST(ranks_run_as_one_up_to_where_they_differ_come_to_the_ends_of_all)
{
    orth_ctx *ctx = test_ctx(1);
    for (uint64_t seed = 1; seed <= 300; seed++) {
        mesh *m = make_mesh(seed);
        orth_arena arena = {0};
        orth_waits *all, *begun, *rest;
        orth_alike stages, alike;
        int32_t stage_until[MAX_STAGES], until[MAX_RANKS], like[MAX_RANKS];
        for (int p = 0; p < m->pp; p++)
            stage_until[p] = (int32_t)test_rand_int(seed + 8, (uint64_t)p, 0, m->stage[p].num_calls);
        CHECK_OK(ctx, orth_alike_find(ctx, &arena, &stages, &m->instances, m->num_ranks, m->lists));
        for (int r = 0; r < m->num_ranks; r++)
            until[stages.of[r]] = stage_until[r / (m->dp * m->tp)];
        CHECK_OK(ctx, orth_waits_run(ctx, &arena, &begun, &stages.instances, stages.num, stages.lists, until, true));
        slow_down(m, seed, stage_until);
        CHECK_OK(ctx, orth_alike_find(ctx, &arena, &alike, &m->instances, m->num_ranks, m->lists));
        for (int r = 0; r < m->num_ranks; r++)
            like[alike.of[r]] = stages.of[r];
        CHECK_OK(ctx, orth_waits_go_on(ctx, &arena, &rest, &alike.instances, alike.num, alike.lists, begun, like, true));
        CHECK_OK(ctx, orth_waits_run(ctx, &arena, &all, &m->instances, m->num_ranks, m->lists, NULL, true));
        for (int r = 0; r < m->num_ranks; r++)
            assert_same_ends(orth_waits_of(all, r), orth_waits_of(rest, alike.of[r]));
        orth_arena_release(ctx, &arena);
        free(m);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_with_equal_lists_in_equal_places_are_one_a_stage),
        cmocka_unit_test(a_slow_rank_takes_with_it_exactly_those_that_it_holds_up),
        cmocka_unit_test(ranks_that_never_get_on_are_found_among_those_alike),
        cmocka_unit_test(ranks_run_as_one_up_to_where_they_differ_come_to_the_ends_of_all),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
