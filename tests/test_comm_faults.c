/* test_comm_faults.c -- what ranks do wrong is reported within the limit, naming the one that did it. */
#include "test.h"

#include <pthread.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/progress.h"
#include "comm/comm.h"

#if defined(__SANITIZE_THREAD__)
#define LIMIT_S 1.0
#else
#define LIMIT_S 0.5
#endif

/* ---- a small training step, repeated: 7 calls on three axes ---- */

enum { STEPS = 4, CALLS = 7, LENGTH = 96 };

typedef struct {
    orth_ctx *ctx;
    orth_comm *tp, *dp, *all;
    bool async;
    int step;
} stepper;

static orth_status call(stepper *s, orth_comm *c, int instr, orth_comm_call k)
{
    k.instr = instr;
    k.tag = s->step * CALLS + instr;
    k.dtype = ORTH_F32;
    if (!s->async)
        return orth_comm_run(s->ctx, c, &k);
    orth_request t;
    ORTH_TRY(orth_comm_start(s->ctx, c, &k, &t));
    return orth_comm_wait(s->ctx, c, t);
}

static orth_status step(stepper *s)
{
    const int n = orth_comm_size(s->all), me = orth_comm_pos(s->all);
    float x[LENGTH * 16] = {0}, y[LENGTH * 16];
    ORTH_TRY(call(s, s->tp, 0, (orth_comm_call){.kind = ORTH_COMM_ALL_REDUCE, .send = x, .recv = x, .count = LENGTH}));
    ORTH_TRY(call(s, s->tp, 1, (orth_comm_call){.kind = ORTH_COMM_REDUCE_SCATTER, .send = x, .recv = y, .count = 8}));
    ORTH_TRY(call(s, s->dp, 2, (orth_comm_call){.kind = ORTH_COMM_ALL_GATHER, .send = x, .recv = y, .count = 8}));
    ORTH_TRY(call(s, s->dp, 3, (orth_comm_call){.kind = ORTH_COMM_ALL_REDUCE, .send = x, .recv = y, .count = 8}));
    const orth_comm_call send = {.kind = ORTH_COMM_SEND, .dtype = ORTH_F32, .send = x, .count = 16,
                                 .peer = (me + 1) % n, .instr = 4, .tag = s->step * CALLS + 4};
    orth_request t;
    ORTH_TRY(orth_comm_start(s->ctx, s->all, &send, &t));
    orth_comm_call recv = send;
    recv.kind = ORTH_COMM_RECV;
    recv.recv = y;
    recv.peer = (me + n - 1) % n;
    recv.instr = 5;
    ORTH_TRY(orth_comm_run(s->ctx, s->all, &recv));
    ORTH_TRY(orth_comm_wait(s->ctx, s->all, t));
    return call(s, s->all, 6, (orth_comm_call){.kind = ORTH_COMM_BARRIER});
}

typedef struct {
    int num_ranks, tp;            /* tp: members of the inner axis */
    bool async;
} shape;

static orth_status train(orth_ctx *ctx, orth_world *w, void *arg)
{
    const shape *sh = arg;
    const int n = sh->num_ranks, me = orth_world_rank(w);
    int ranks[16];
    stepper s = {.ctx = ctx, .async = sh->async};
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    ORTH_TRY(orth_comm_create(ctx, w, &s.all, "all", n, ranks));
    for (int i = 0; i < sh->tp; i++)
        ranks[i] = me / sh->tp * sh->tp + i;
    ORTH_TRY(orth_comm_create(ctx, w, &s.tp, "tp", sh->tp, ranks));
    for (int i = 0; i < n / sh->tp; i++)
        ranks[i] = me % sh->tp + i * sh->tp;
    ORTH_TRY(orth_comm_create(ctx, w, &s.dp, "dp", n / sh->tp, ranks));
    for (s.step = 0; s.step < STEPS; s.step++) {
        orth_world_step(w, s.step);
        ORTH_TRY(step(&s));
    }
    return ORTH_OK;
}

/* ---- 200 faults ---- */

enum { FAULTS = 200, DRIVERS = 10, CREATIONS = 3 };

typedef struct {
    pthread_t thread;
    int first;
    int right, wrong;
    double slowest_s;
    char message[ORTH_MESSAGE_MAX]; /* of a wrong one */
} driver;

/* Calls of a rank count from its creations (a barrier each). Faults that do no harm are not drawn: order
 * matters between calls of one communicator only, and a barrier has no count. */
static orth_comm_fault draw(int i, const shape *sh)
{
    orth_comm_fault f = {.kind = (orth_comm_fault_kind)(1 + i % 5)};
    f.rank = (int)test_rand_int(7, (uint64_t)i * 4, 0, sh->num_ranks - 1);
    int64_t instr = test_rand_int(7, (uint64_t)i * 4 + 1, 0, CALLS - 1);
    int64_t at_step = test_rand_int(7, (uint64_t)i * 4 + 2, 0, STEPS - 1);
    if (f.kind == ORTH_COMM_FAULT_SWAP)
        instr = instr % 2 * 2;    /* two calls of tp, or two of dp */
    if (f.kind == ORTH_COMM_FAULT_COUNT) {
        instr = instr % (CALLS - 1);
        at_step = 1 + at_step % (STEPS - 1); /* with two members, only what they did before tells who is wrong */
    }
    f.at = CREATIONS + at_step * CALLS + instr + 1;
    return f;
}

static void *drive(void *p)
{
    driver *d = p;
    static const shape shapes[] = {{4, 2, false}, {6, 2, false}, {8, 2, true}, {6, 3, true}, {4, 2, true}};
    for (int i = d->first; i < FAULTS; i += DRIVERS) {
        orth_ctx ctx;
        if (orth_ctx_init(&ctx, 1) != ORTH_OK)
            return NULL;
        shape sh = shapes[i / 5 % ORTH_COUNT(shapes)];
        const orth_world_options o = {.timeout_s = LIMIT_S, .startup_s = LIMIT_S, .fault = draw(i, &sh)};
        const double start = orth_clock_s();
        const orth_status status = orth_run_ranks(&ctx, sh.num_ranks, train, &sh, &o);
        const double took = orth_clock_s() - start;
        d->slowest_s = took > d->slowest_s ? took : d->slowest_s;
        int named = -1;
        const bool read = sscanf(ctx.error.message, "rank %d: ", &named) == 1;
        const orth_status want = o.fault.kind == ORTH_COMM_FAULT_LEAVE ? ORTH_ERR_INTERNAL : ORTH_ERR_COMM;
        if (status == want && read && named == o.fault.rank) {
            d->right++;
        } else {
            d->wrong++;
            snprintf(d->message, sizeof d->message, "fault %d (kind %d, rank %d of %d, call %d): status %d, %.300s", i,
                     (int)o.fault.kind, o.fault.rank, sh.num_ranks, (int)o.fault.at, (int)status, ctx.error.message);
            fprintf(stderr, "%s\n", d->message);
        }
        orth_ctx_destroy(&ctx);
        if (ctx.heap_bytes != 0)
            d->wrong += 100;
    }
    return NULL;
}

TEST(injected_faults_are_blamed_on_the_right_rank)
{
    driver d[DRIVERS] = {0};
    int right = 0, wrong = 0;
    double slowest = 0;
    for (int i = 0; i < DRIVERS; i++) {
        d[i].first = i;
        assert_int_equal(pthread_create(&d[i].thread, NULL, drive, &d[i]), 0);
    }
    for (int i = 0; i < DRIVERS; i++) {
        pthread_join(d[i].thread, NULL);
        right += d[i].right;
        wrong += d[i].wrong;
        slowest = d[i].slowest_s > slowest ? d[i].slowest_s : slowest;
    }
    printf("%d of %d faults blamed on the right rank, the slowest after %.2f s\n", right, right + wrong, slowest);
    assert_int_equal(right + wrong, FAULTS);
    assert_true(right * 100 >= FAULTS * 99);
    assert_true(slowest < 10 * LIMIT_S);
}

/* ---- messages ---- */

TEST(no_fault_no_report)
{
    orth_ctx *ctx = test_ctx(1);
    shape sh = {8, 2, true};
    CHECK_OK(ctx, orth_run_ranks(ctx, 8, train, &sh, &(orth_world_options){.timeout_s = LIMIT_S}));
    test_ctx_free(ctx);
}

static orth_status own_error(orth_ctx *ctx, orth_world *w, void *arg)
{
    const int ranks[] = {0, 1, 2};
    orth_comm *c;
    float *x = arg;
    ORTH_TRY(orth_comm_create(ctx, w, &c, "dp", 3, ranks));
    if (orth_world_rank(w) == 2)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "shard 7 is damaged");
    return orth_all_reduce(ctx, c, x, x, 0, ORTH_F32, ORTH_SUM);
}

TEST(a_failing_rank_ends_all_with_its_error)
{
    orth_ctx *ctx = test_ctx(1);
    CHECK_FAILS(ctx, ORTH_ERR_DATA, "rank 2: shard 7 is damaged", orth_run_ranks(ctx, 3, own_error, NULL, NULL));
    test_ctx_free(ctx);
}

static orth_status disagree(orth_ctx *ctx, orth_world *w, void *arg)
{
    const int ranks[] = {0, 1, 2}, me = orth_world_rank(w);
    orth_comm *c;
    float x[64] = {0}, y[64];
    const int64_t counts[] = {4, 5, 6}, other[] = {4, 6, 5}, too_many[] = {4, 4, 5};
    ORTH_TRY(orth_comm_create(ctx, w, &c, "dp", 3, ranks));
    const orth_comm_call base = {.dtype = ORTH_F32, .send = x, .recv = y, .count = 4, .instr = 11, .tag = 3};
    orth_comm_call k = base;
    switch (*(int *)arg) {
    case 0:
        k.kind = me == 1 ? ORTH_COMM_ALL_GATHER : ORTH_COMM_ALL_REDUCE;
        break;
    case 1:
        k.kind = ORTH_COMM_ALL_REDUCE;
        k.op = me == 1 ? ORTH_MAX_OF : ORTH_SUM;
        break;
    case 2:
        k.kind = ORTH_COMM_ALL_GATHER;
        k.counts = me == 1 ? other : counts;
        break;
    case 3:
        k.kind = ORTH_COMM_BROADCAST;
        k.peer = me == 1 ? 1 : 0;
        break;
    case 4:
        k.kind = ORTH_COMM_ALL_REDUCE;
        k.tag = me == 1 ? 4 : 3;
        break;
    default: /* rank 1 sends 5 elements to where 4 are expected */
        k.kind = ORTH_COMM_ALL_TO_ALL;
        k.send_counts = me == 1 ? too_many : NULL;
        break;
    }
    return orth_comm_run(ctx, c, &k);
}

TEST(calls_that_differ_are_named_on_both_sides)
{
    const char *const want[] = {
        "rank 1: 'dp' call 2: rank 1 called all_gather fp32 x 4 (instruction 11, tag 3) in step 0 where rank 0 called "
        "all_reduce sum fp32 x 4 (instruction 11, tag 3) in step 0",
        "rank 1 called all_reduce max", "rank 1: ", "rank 1 called broadcast", "tag 4", "rank 1: 'dp' call 2: rank 1 sends 5 elements",
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(want); i++)
        CHECK_FAILS(ctx, ORTH_ERR_COMM, want[i], orth_run_ranks(ctx, 3, disagree, &i, NULL));
    test_ctx_free(ctx);
}

/* What the last of three ranks does for longer than the limit, while the first two wait in a chain. */
typedef enum { SILENT, ANNOUNCED, TICKING, STUCK_IN_A_PHASE } linger_kind;

typedef struct {
    linger_kind kind;
    _Atomic bool blamed;          /* the wait of rank 0 has ended in an error */
} linger_case;

static orth_status linger_for(orth_ctx *ctx, linger_case *l)
{
    /* In tenths of the limit. One that is to be blamed stays until it is, which takes longer on a loaded machine. */
    const linger_kind kind = l->kind;
    const int parts = kind == STUCK_IN_A_PHASE || kind == SILENT ? 600 : 15;
    if (kind == ANNOUNCED || kind == STUCK_IN_A_PHASE)
        orth_phase_begin(ctx, "saving checkpoint step-%08d", 300);
    if (kind == STUCK_IN_A_PHASE)
        orth_phase_file(ctx, "a/b/model.safetensors");
    for (int i = 0; i < parts && !l->blamed; i++) {
        usleep((useconds_t)(1e5 * LIMIT_S));
        if (kind == TICKING)
            orth_tick(ctx);
    }
    if (kind == ANNOUNCED || kind == STUCK_IN_A_PHASE)
        orth_phase_end(ctx);
    return ORTH_OK;
}

/* Rank 0 waits for rank 1, which waits for rank 2. Afterwards rank 1 computes a little: the wait of rank 0 is over the
 * limit by then, and is nobody's fault. */
static orth_status linger(orth_ctx *ctx, orth_world *w, void *arg)
{
    const int ranks[] = {0, 1, 2}, me = orth_world_rank(w);
    linger_case *l = arg;
    float x = 0;
    orth_comm *c;
    ORTH_TRY(orth_comm_create(ctx, w, &c, "dp", 3, ranks));
    if (me == 0) {
        const orth_status s = orth_recv(ctx, c, &x, 1, ORTH_F32, 1);
        l->blamed = s != ORTH_OK;
        return s;
    }
    if (me == 2) {
        ORTH_TRY(linger_for(ctx, l));
        return orth_send(ctx, c, &x, 1, ORTH_F32, 1);
    }
    ORTH_TRY(orth_recv(ctx, c, &x, 1, ORTH_F32, 2));
    usleep((useconds_t)(5e5 * LIMIT_S));
    return orth_send(ctx, c, &x, 1, ORTH_F32, 0);
}

TEST(work_that_goes_on_is_not_blamed_and_what_stands_still_is)
{
    orth_ctx *ctx = test_ctx(1);
    const orth_world_options o = {.timeout_s = LIMIT_S, .startup_s = LIMIT_S, .busy_timeout_s = 2 * LIMIT_S};
    for (linger_kind kind = ANNOUNCED; kind <= TICKING; kind++)
        CHECK_OK(ctx, orth_run_ranks(ctx, 3, linger, &(linger_case){.kind = kind}, &o));
    CHECK_FAILS(ctx, ORTH_ERR_COMM, "rank 2: it is stuck outside of communication, not in a step, no progress for ",
                orth_run_ranks(ctx, 3, linger, &(linger_case){.kind = SILENT}, &o));
    CHECK_FAILS(ctx, ORTH_ERR_COMM, "rank 2: it is stuck saving checkpoint step-00000300: model.safetensors, no byte for ",
                orth_run_ranks(ctx, 3, linger, &(linger_case){.kind = STUCK_IN_A_PHASE}, &o));
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_fault_no_report),
        cmocka_unit_test(a_failing_rank_ends_all_with_its_error),
        cmocka_unit_test(calls_that_differ_are_named_on_both_sides),
        cmocka_unit_test(work_that_goes_on_is_not_blamed_and_what_stands_still_is),
        cmocka_unit_test(injected_faults_are_blamed_on_the_right_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
