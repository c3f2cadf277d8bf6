/* test_train_faults.c -- ranks that do something wrong in the middle of a real run: compiled programs of random layouts, with
 * saves and evaluations, as threads and as processes of MPI. The rank that did it is named.
 *
 * What is drawn follows from a seed: ORTH_SEED, or the clock, printed. ORTH_FAULTS=n: as many faults (make soak).
 */
#include "mpi_case.h"
#include "run_case.h"

#include <signal.h>
#include <time.h>

#include "base/clock.h"
#include "comm/comm.h"
#include "train/run.h"

#if defined(__SANITIZE_ADDRESS__)
#define LIMIT_S 2.0
#else
#define LIMIT_S 0.7
#endif
#define MOST_S 30.0 /* of a run with a fault, on a loaded machine: half of what a watchdog that knew nothing of the run would wait at its start */

/* ---- a run with a fault, in this process or as one of mpirun's ---- */

static const struct {
    const char *options;          /* space between them */
    int ranks;
} layouts[] = {
    {"parallel.dp=2", 2}, {"parallel.tp=2", 2}, {"parallel.pp=2", 2}, {"parallel.dp=2 parallel.zero=3", 2},
    {"parallel.dp=4 parallel.zero=2 train.micro_batch=1", 4}, {"parallel.dp=2 parallel.tp=2 parallel.sequence_parallel=true", 4},
    {"parallel.dp=2 parallel.pp=2 train.micro_batch=1", 4}, {"parallel.cp=2 parallel.cp_kind=all_to_all", 2},
    {"parallel.pp=2 parallel.pipeline=zb-h1 train.micro_batch=1", 2}, {"parallel.tp=2 parallel.pp=2", 4},
};

static const char *const kind_names[] = {"none", "stop", "skip", "swap", "count", "leave"};

/* Trains in `dir`, whose parent holds the shards. stop: NULL, or asked after each step. */
static orth_status train(orth_ctx *ctx, const char *parent, const char *dir, const char *options, const orth_comm_fault *fault,
                         orth_stop_fn stop)
{
    char text[1024];
    orth_config cfg;
    orth_status s = orth_config_init(ctx, &cfg);
    snprintf(text, sizeof text, "model.preset=gpt2-tiny model.vocab=300 data.path=%s/shards data.seq_len=32 train.steps=5 "
             "train.global_batch=8 train.micro_batch=2 train.eval_every=2 checkpoint.every_steps=2 checkpoint.dir=%s "
             "comm.timeout_s=%.2f comm.busy_timeout_s=%.2f run.threads=1 run.probe_s=0.003", parent, dir, LIMIT_S, LIMIT_S);
    run_set_keys(ctx, &cfg, text);
    run_set_keys(ctx, &cfg, options);
    int64_t asked[2] = {0, fault->at};
    const orth_run_options o = {.cfg = &cfg, .fault = *fault, .stop = stop, .stop_user = asked};
    if (s == ORTH_OK)
        s = orth_run_whole(ctx, &o);
    orth_config_release(ctx, &cfg);
    return s;
}

/* ---- faults ---- */

typedef struct {
    int layout;
    orth_comm_fault fault;
} fault_case;

static const fault_case found[] = {
    {0, {.kind = ORTH_COMM_FAULT_SKIP, .rank = 0, .at = 14, .from_step = 3}}, /* left out the sums after a step, waited in a save; once blamed
                                                                                 on the wrong rank */
    {1, {.kind = ORTH_COMM_FAULT_STOP, .rank = 1, .at = 3, .from_step = 1}}, /* in the first step, whose limit is that of the plan */
    {2, {.kind = ORTH_COMM_FAULT_SKIP, .rank = 0, .at = 172, .from_step = 0}}, /* leaves out a message of a save and waits in the barrier behind it */
};

enum { IN_THE_FIRST_STEP = 1 };

static fault_case draw(uint64_t seed, int i)
{
    if (i < ORTH_COUNT(found))
        return found[i];
    const uint64_t at = (uint64_t)i * 5;
    fault_case c = {.layout = (int)test_rand_int(seed, at, 0, ORTH_COUNT(layouts) - 1)};
    c.fault.kind = (orth_comm_fault_kind)(1 + i % 5);
    c.fault.rank = (int)test_rand_int(seed, at + 1, 0, layouts[c.layout].ranks - 1);
    c.fault.at = test_rand_int(seed, at + 2, 1, 200);
    c.fault.from_step = test_rand_int(seed, at + 3, 0, 3);
    if (c.fault.kind == ORTH_COMM_FAULT_COUNT)
        c.fault.from_step = 3 + c.fault.from_step % 2; /* of two members, only what they did before tells who is wrong */
    return c;
}

/* Says where in the step the rank is, as a person would. */
static bool has_words(const char *message)
{
    return strstr(message, "step 1, ") && strstr(message, "ward of layer ") && strstr(message, ", micro-batch ");
}

static bool blames(const char *message, int rank)
{
    int named = -1;
    return sscanf(message, "rank %d: ", &named) == 1 && named == rank;
}

/* Runs with the fault; earlier if the run is over before it happens. True: the right rank was named. */
static bool run_fault(run_case *r, fault_case *c, char *message, double *took)
{
    for (;; c->fault.at = (c->fault.at + 1) / 2) {
        char dir[256];
        orth_ctx ctx;
        snprintf(dir, sizeof dir, "%s/fault", r->dir);
        CHECK_OK(r->ctx, orth_path_remove(r->ctx, dir));
        assert_int_equal(orth_ctx_init(&ctx, layouts[c->layout].ranks), ORTH_OK);
        ctx.log.level = ORTH_LOG_ERROR;
        const double start = orth_clock_s();
        const orth_status s = train(&ctx, r->dir, dir, layouts[c->layout].options, &c->fault, NULL);
        *took = orth_clock_s() - start;
        snprintf(message, ORTH_MESSAGE_MAX, "%s", ctx.error.message);
        if (*took > MOST_S)
            fail_msg("a run with a fault took %.1f s: %s", *took, message);
        const orth_status want = c->fault.kind == ORTH_COMM_FAULT_LEAVE ? ORTH_ERR_INTERNAL : ORTH_ERR_COMM;
        orth_ctx_destroy(&ctx);
        /* Outside of a program nothing says which of two counts is right: both ranks are named. */
        if (c->fault.kind == ORTH_COMM_FAULT_COUNT && s == ORTH_ERR_COMM && strstr(message, "(not in a step"))
            return true;
        if (s == ORTH_ERR_INTERNAL && (c->fault.kind == ORTH_COMM_FAULT_SKIP || c->fault.kind == ORTH_COMM_FAULT_SWAP)) /* what it has not received makes no sense to it */
            return blames(message, c->fault.rank);
        if (s != ORTH_OK)
            return s == want && blames(message, c->fault.rank);
        if (c->fault.at == 1)
            return true; /* a call that does not matter: the count of a barrier */
    }
}

TEST(the_rank_that_did_it_is_named_in_runs_of_random_layouts)
{
    const int n = getenv("ORTH_FAULTS") ? atoi(getenv("ORTH_FAULTS")) : 8;
    const uint64_t seed = test_seed();
    int right[ORTH_COUNT(kind_names)] = {0}, all[ORTH_COUNT(kind_names)] = {0}, wrong = 0;
    double slowest = 0;
    run_case *r = run_begin();
    for (int i = 0; i < n; i++) {
        char message[ORTH_MESSAGE_MAX];
        double took;
        fault_case c = draw(seed, i);
        const bool ok = run_fault(r, &c, message, &took);
        if (i == IN_THE_FIRST_STEP && !has_words(message))
            fail_msg("no words for the instruction: %s", message);
        all[c.fault.kind]++;
        right[c.fault.kind] += ok;
        wrong += !ok;
        slowest = took > slowest ? took : slowest;
        if (!ok || i == IN_THE_FIRST_STEP)
            printf("fault %d: rank %d, %s at call %d from step %d, %s: %s\n", i, c.fault.rank, kind_names[c.fault.kind], (int)c.fault.at,
                   (int)c.fault.from_step, layouts[c.layout].options, message);
    }
    for (int k = 1; k < ORTH_COUNT(kind_names); k++)
        printf("%s: %d of %d\n", kind_names[k], right[k], all[k]);
    printf("%d of %d blamed on the right rank, the slowest run took %.1f s\n", n - wrong, n, slowest);
    assert_int_equal(wrong, 0);
    run_end(r);
}

/* ---- processes ---- */

enum { KILLED = 100, HALTED }; /* kinds of faults beside orth_comm_fault_kind: the process itself */

/* Asked after each step. */
static int kill_me(void *asked)
{
    int64_t *n = asked;
    if (++n[0] == n[1])
        raise(SIGKILL);
    return 0;
}

static int halt_me(void *asked)
{
    int64_t *n = asked;
    if (++n[0] == n[1])
        raise(SIGSTOP);
    return 0;
}

/* As one of mpirun's processes: PARENT LAYOUT KIND RANK AT STEP. */
static int run_process(char **argv)
{
    const int kind = atoi(argv[2]), rank = atoi(argv[3]);
    const char *mine = getenv("OMPI_COMM_WORLD_RANK");
    const bool is_mine = mine && atoi(mine) == rank;
    char dir[256], options[512];
    orth_ctx ctx;
    orth_comm_fault fault = {.kind = kind < KILLED ? (orth_comm_fault_kind)kind : ORTH_COMM_FAULT_NONE, .rank = rank,
                             .at = atoi(argv[4]), .from_step = atoi(argv[5])};
    if (orth_ctx_init(&ctx, 1) != ORTH_OK)
        return 70;
    ctx.log.level = ORTH_LOG_ERROR;
    snprintf(dir, sizeof dir, "%s/processes", argv[0]);
    snprintf(options, sizeof options, "comm.backend=mpi train.steps=100 checkpoint.every_steps=50 train.eval_every=0 "
             "comm.timeout_s=1 comm.busy_timeout_s=3 %s", layouts[atoi(argv[1])].options);
    const orth_status s = train(&ctx, argv[0], dir, options, &fault,
                                is_mine && kind == KILLED ? kill_me : is_mine && kind == HALTED ? halt_me : NULL);
    if (s == ORTH_OK)
        orth_comm_shutdown();
    else if (!ctx.error.printed_elsewhere)
        fprintf(stderr, "said: %s\n", ctx.error.message);
    else
        usleep(300000); /* until it has been said */
    orth_ctx_destroy(&ctx);
    return orth_status_exit_code(s);
}

/* The exit code of mpirun; what was said is in r->out. */
static int run_processes(run_case *r, int layout, int kind, int rank, int call, int step)
{
    char command[1024], self[256];
    const ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    self[len > 0 ? len : 0] = '\0';
    run_remove(r, "processes");
    snprintf(command, sizeof command, MPIRUN(60) "%s -n %d %s %s %d %d %d %d %d 2>&1", kind == KILLED ? "--enable-recovery" : "",
             layouts[layout].ranks, self, r->dir, layout, kind, rank, call, step);
    return run_shell(command, r->out, sizeof r->out);
}

/* The right rank was named; *call: earlier, if the run was over before it happened. */
static bool is_blamed(run_case *r, int layout, int kind, int rank, int *call, int step)
{
    int code;
    while ((code = run_processes(r, layout, kind, rank, *call, step)) == 0 && *call > 1)
        *call /= 2;
    if (code == 0 && kind == ORTH_COMM_FAULT_SWAP)
        return true; /* two calls of different groups, in an order that serves as well */
    const char *said = strstr(r->out, "said: ");
    return said && blames(said + 6, rank);
}

TEST(the_process_that_did_it_is_named)
{
    static const int kinds[] = {ORTH_COMM_FAULT_STOP, ORTH_COMM_FAULT_SKIP, ORTH_COMM_FAULT_SWAP, ORTH_COMM_FAULT_LEAVE, KILLED, HALTED};
    if (!mpi_can_run())
        skip();
    const int n = getenv("ORTH_FAULTS") ? atoi(getenv("ORTH_FAULTS")) / 2 : ORTH_COUNT(kinds);
    const uint64_t seed = test_seed();
    int wrong = 0;
    run_case *r = run_begin();
    for (int i = 0; i < n; i++) {
        const uint64_t at = 1000000 + (uint64_t)i * 4;
        const int kind = kinds[i % ORTH_COUNT(kinds)], layout = (int)test_rand_int(seed, at, 0, ORTH_COUNT(layouts) - 1);
        const int rank = (int)test_rand_int(seed, at + 1, 0, layouts[layout].ranks - 1);
        const int step = (int)test_rand_int(seed, at + 3, 1, 20);
        int call = (int)test_rand_int(seed, at + 2, 1, kind >= KILLED ? 30 : 200);
        /* Twice: a launcher may end before the message is out. */
        if (is_blamed(r, layout, kind, rank, &call, step) || is_blamed(r, layout, kind, rank, &call, step))
            continue;
        wrong++;
        print_error("kind %d of rank %d at call %d from step %d, %s:\n%.1500s\n", kind, rank, call, step, layouts[layout].options, r->out);
    }
    printf("%d of %d blamed on the right process\n", n - wrong, n);
    assert_int_equal(wrong, 0);
    run_end(r);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_rank_that_did_it_is_named_in_runs_of_random_layouts),
        cmocka_unit_test(the_process_that_did_it_is_named),
    };
    if (argc == 7)
        return run_process(argv + 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
