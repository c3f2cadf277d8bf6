/* test_watchdog.c -- whole runs on a slow disk, before a reader that does not read, stopped for a while, on a loaded
 * machine, or with a wall clock that is set: none is blamed. And reads and writes that hang: found within their limit, with rank, phase
 * and file. Ranks are threads, and processes of MPI.
 *
 * A case is drawn from a seed: ORTH_SEED, or the clock, printed. ORTH_ALARMS=n: as many undisturbed runs (make soak).
 */
#include "mpi_case.h"
#include "run_case.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>

#include "base/clock.h"

#if defined(__SANITIZE_ADDRESS__)
#define LIMIT_S 4.0
#define LONG_STEPS 100 /* of runs that are to last while they are disturbed */
#else
#define LIMIT_S 1.0
#define LONG_STEPS 1000
#endif
#define PRELOAD "ASAN_OPTIONS=verify_asan_link_order=0 LD_PRELOAD=" ORTH_SLOW_DISK " "

/* ---- no false alarm ---- */

typedef enum { SLOW_FSYNC, SLOW_WRITE, NOT_READ, STOPPED, LOADED, NUM_NUISANCES } nuisance;

static const char *const layouts[] = {
    "parallel.dp=2", "parallel.tp=2", "parallel.pp=2", "parallel.dp=2 parallel.zero=3", "parallel.dp=2 parallel.pp=2",
    "parallel.cp=2 parallel.cp_kind=all_to_all", "parallel.pp=2 parallel.pipeline=zb-h1", "parallel.dp=1",
};

typedef struct {
    nuisance kind;
    const char *layout;
    int steps, every;
    bool async;
    double seconds;               /* of each call, not reading, or stopped */
} alarm_case;

static alarm_case draw(uint64_t s, int i)
{
    const uint64_t at = (uint64_t)i * 8;
    alarm_case c = {.kind = (nuisance)(i % NUM_NUISANCES)};
    c.layout = layouts[test_rand_int(s, at, 0, ORTH_COUNT(layouts) - 1)];
    c.every = (int)test_rand_int(s, at + 1, 1, 4);
    c.async = test_rand_int(s, at + 2, 0, 3) > 0;
    c.steps = c.kind == NOT_READ ? LONG_STEPS : c.kind == STOPPED ? LONG_STEPS / 2 : (int)test_rand_int(s, at + 3, 2, 6);
    c.seconds = LIMIT_S * (c.kind == SLOW_WRITE ? 0.05 : c.kind == SLOW_FSYNC ? 0.25 : 1.8); /* a save: some 50 writes, 10 fsync */
    c.every = c.kind == NOT_READ || c.kind == STOPPED ? c.every * c.steps / 10 : ORTH_MAX(c.every, (c.steps + 1) / 2);
    return c;
}

static void command_of(const alarm_case *c, run_case *r, char *out, size_t n)
{
    char before[256] = "", after[128] = ">log 2>&1";
    if (c->kind == SLOW_FSYNC || c->kind == SLOW_WRITE)
        snprintf(before, sizeof before, PRELOAD "SLOW_DISK=%s:%.2f ", c->kind == SLOW_FSYNC ? "fsync" : "write", c->seconds);
    if (c->kind == NOT_READ)
        snprintf(after, sizeof after, "2>&1 | (sleep %.1f; cat >log)", c->seconds);
    snprintf(out, n, "set -o pipefail; cd %s && rm -rf a && %s%s train run.yaml %s train.global_batch=8 comm.timeout_s=%.1f comm.busy_timeout_s=%.1f "
             "train.steps=%d checkpoint.every_steps=%d checkpoint.async=%s schedule.name=constant %s", r->dir, before,
             ORTH_BINARY, c->layout, LIMIT_S, 3 * LIMIT_S, c->steps, c->every, c->async ? "true" : "false", after);
}

static void *burn(void *stop)
{
    while (!atomic_load((_Atomic bool *)stop))
        ;
    return NULL;
}

/* The command in a process group of its own; a STOPPED one is stopped and goes on. Exit code. */
static int run_disturbed(const alarm_case *c, const char *command)
{
    enum { BURNERS = 8 };
    _Atomic bool stop = c->kind != LOADED;
    pthread_t burner[BURNERS];
    for (int i = 0; i < BURNERS; i++)
        pthread_create(&burner[i], NULL, burn, &stop);
    const pid_t child = fork();
    if (child == 0) {
        setpgid(0, 0);
        execl("/bin/bash", "bash", "-c", command, (char *)NULL);
        _exit(98);
    }
    setpgid(child, child);
    if (c->kind == STOPPED) {
        usleep(150000);
        kill(-child, SIGSTOP);
        usleep((useconds_t)(1e6 * c->seconds));
        kill(-child, SIGCONT);
    }
    int status;
    while (waitpid(child, &status, 0) < 0)
        ;
    stop = true;
    for (int i = 0; i < BURNERS; i++)
        pthread_join(burner[i], NULL);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* metrics.jsonl has a line for each step, whoever read what was printed; the last checkpoint is there. */
static void check_kept(run_case *r, const alarm_case *c)
{
    char name[128];
    int lines = 0;
    char *text = run_read(r, "a/metrics.jsonl", NULL);
    for (const char *at = text; (at = strstr(at, "\"loss_hex\"")) != NULL; at++)
        lines++;
    free(text);
    assert_int_equal(lines, c->steps);
    snprintf(name, sizeof name, "a/checkpoints/step-%08d/state.json", c->steps);
    assert_true(run_has(r, name));
    text = run_read(r, "log", NULL);
    assert_non_null(strstr(text, "saved a/checkpoints"));
    free(text);
}

TEST(slow_disks_readers_that_wait_pauses_and_load_are_no_failures)
{
    static const char *const names[] = {"slow fsync", "slow writes", "output not read", "stopped", "loaded"};
    const int n = getenv("ORTH_ALARMS") ? atoi(getenv("ORTH_ALARMS")) : NUM_NUISANCES;
    const uint64_t s = test_seed();
    run_case *r = run_begin();
    for (int i = 0; i < n; i++) {
        char command[2048];
        const alarm_case c = draw(s, i);
        command_of(&c, r, command, sizeof command);
        const int code = run_disturbed(&c, command);
        char *log = run_read(r, "log", NULL);
        if (code != 0) {
            run_show_end(log);
            fail_msg("case %d (%s): exit %d\n%s", i, names[c.kind], code, command);
        }
        free(log);
        check_kept(r, &c);
    }
    printf("%d runs, no false alarm\n", n);
    run_end(r);
}

/* ---- what hangs is found ---- */
typedef struct {
    const char *disk, *options, *text;
    bool resumes;                 /* from a checkpoint of step 2 */
    bool clock_set;               /* back, by an hour, all the time */
} hang_case;

static const hang_case hangs[] = {
    {"hang:/.tmp-step-00000004/model.safetensors:2", "parallel.dp=2",
     "orthant: rank 0: it is stuck saving checkpoint step-00000004: model.safetensors, no byte for ", false},
    {"hang:/.tmp-step-00000002/optimizer:1", "parallel.pp=2 checkpoint.every_steps=2",
     "rank 0: it is stuck saving checkpoint step-00000004: writing checkpoint step-00000002: optimizer.safetensors, no byte for ", false},
    {"hang:/.tmp-step-00000004/state.json:1", "parallel.tp=2 checkpoint.every_steps=3",
     "rank 0: it is stuck writing checkpoint step-00000004: state.json, no byte for ", false},
    {"hang:plan.json:1", "parallel.dp=2", "orthant: rank 0: it is stuck opening the run: plan.json, no byte for ", false},
    {"hang:metrics.jsonl:2", "parallel.dp=2", "rank 0: it is stuck writing metrics.jsonl, no progress for ", false},
    {"hang:memory.json:1", "parallel.dp=2", "rank 0: it is stuck writing memory.json: memory.json, no byte for ", false},
    {"hang:/.tmp-step-00000002/model:1", "parallel.dp=1 checkpoint.every_steps=2",
     "orthant: rank 0: it is stuck saving checkpoint step-00000004: writing checkpoint step-00000002: model.safetensors, no byte for ", false},
    {"hang:/.tmp-step-00000004/model:1", "parallel.dp=1",
     "orthant: rank 0: it is stuck saving checkpoint step-00000004: model.safetensors, no byte for ", false},
    {"hang:timeline.json:1", "parallel.pp=2 --timeline=2", "rank 0: it is stuck writing the timeline: timeline.json, no byte for ", false},
    {"hang:complete.json:1", "parallel.dp=2", "rank 0: it is stuck writing complete.json: complete.json, no byte for ", false},
    {"dead:shards/train:metrics.jsonl:2", "parallel.pp=2", "rank 0: it is stuck reading the sequences of step ", false},
    {"dead:shards/valid:metrics.jsonl:2", "parallel.dp=2", "it is stuck reading sequences to evaluate, no progress for ", false},
    {"dead:step-00000002:plan.json:1", "parallel.tp=2", "it is stuck opening the run and its checkpoint, no progress for ", true},
    {"hang:/.tmp-step-00000004/model.safetensors:1", "parallel.dp=2 train.seed=4", "rank 0: it is stuck saving checkpoint step-00000004: ",
     .clock_set = true},
};

typedef struct {
    run_case *r;
    int first;                    /* every HANGERS-th from here on */
    pthread_t thread;
    char out[1 << 14];
    char failed[1 << 14];         /* "": none */
} hanger;

enum { HANGERS = 3 };             /* runs that wait at a time */

/* Found within a limit of its own, and in words. */
static void expect_hang(hanger *h, int i)
{
    const hang_case *c = &hangs[i];
    char command[2048], before[64] = "";
    if (c->resumes)
        snprintf(before, sizeof before, "cp -r two h%d && ", i);
    if (c->clock_set)
        snprintf(before, sizeof before, "CLOCK_AHEAD=3600 ");
    snprintf(command, sizeof command, "cd %s && %s" PRELOAD "SLOW_DISK=%s timeout -s KILL 60 %s train run.yaml checkpoint.dir=h%d "
             "train.global_batch=8 comm.timeout_s=%.1f comm.busy_timeout_s=%.1f train.steps=4 %s %s 2>&1", h->r->dir,
             before, c->disk, ORTH_BINARY, i, LIMIT_S, 2 * LIMIT_S, c->options, c->resumes ? "--resume" : "");
    const double start = orth_clock_s();
    const int code = run_shell(command, h->out, sizeof h->out);
    const double took = orth_clock_s() - start;
    printf("%s: found after %.1f s\n", c->disk, took);
    if (code != 4 || !strstr(h->out, c->text) || took > 8 * LIMIT_S + 5)
        snprintf(h->failed, sizeof h->failed, "%s %s: exit %d after %.1f s, wanted 4 and \"%s\":\n%.3000s", c->disk, c->options, code, took,
                 c->text, h->out);
}

static void *drive(void *arg)
{
    hanger *h = arg;
    for (int i = h->first; i < ORTH_COUNT(hangs) && !h->failed[0]; i += HANGERS)
        expect_hang(h, i);
    return NULL;
}

TEST(what_hangs_is_found_in_every_phase_and_named)
{
    run_case *r = run_begin();
    hanger *h = calloc(HANGERS, sizeof *h);
    RUN(r, 0, "saved", "train run.yaml train.global_batch=8 train.steps=2 checkpoint.dir=two");
    for (int i = 0; i < HANGERS; i++) {
        h[i].r = r;
        h[i].first = i;
        assert_int_equal(pthread_create(&h[i].thread, NULL, drive, &h[i]), 0);
    }
    for (int i = 0; i < HANGERS; i++)
        pthread_join(h[i].thread, NULL);
    for (int i = 0; i < HANGERS; i++)
        if (h[i].failed[0])
            fail_msg("%s", h[i].failed);
    free(h);
    run_end(r);
}

/* ---- who does not want to wait ---- */

/* The run hangs in a write of its checkpoint, and the folder of checkpoints does not answer either. */
TEST(a_second_signal_ends_a_run_whose_file_system_hangs)
{
    char command[2048];
    run_case *r = run_begin();
    const double start = orth_clock_s();
    snprintf(command, sizeof command, "cd %s || exit 99; " PRELOAD "SLOW_DISK=hang:/.tmp-step-00000002/model:1 DEAD_FOLDER=/checkpoints %s train "
             "run.yaml train.steps=2 >log 2>&1 & P=$!; for i in $(seq 300); do ls a/checkpoints/.tmp-step-00000002/model* >/dev/null 2>&1 && break; "
             "sleep 0.1; done; sleep 0.5; kill -INT $P; sleep 1.3; kill -INT $P; (sleep 20; kill -KILL $P) >/dev/null 2>&1 & K=$!; "
             "wait $P; C=$?; kill $K; exit $C", r->dir, ORTH_BINARY);
    const int code = run_shell(command, r->out, sizeof r->out);
    char *log = run_read(r, "log", NULL);
    if (code != 130 || !strstr(log, "orthant: ended at once by a second SIGINT; its checkpoints cannot be listed"))
        fail_msg("exit %d after %.1f s:\n%.3000s", code, orth_clock_s() - start, log);
    free(log);
    run_end(r);
}

/* ---- processes ---- */

/* A run of two processes, which saves after step 2, on such a disk (or with CLOCK_AHEAD); the exit code of mpirun. */
static int run_processes(run_case *r, const char *disk)
{
    char command[2048];
    run_remove(r, "p");
    snprintf(command, sizeof command, "cd %s && " MPIRUN(100) "-n 2 env " PRELOAD "%s %s train run.yaml checkpoint.dir=p comm.backend=mpi "
             "parallel.dp=2 train.global_batch=8 comm.timeout_s=%.1f comm.busy_timeout_s=%.1f train.steps=2 2>&1", r->dir, disk, ORTH_BINARY,
             LIMIT_S, 2 * LIMIT_S);
    return run_shell(command, r->out, sizeof r->out);
}

TEST(processes_tell_a_slow_disk_and_a_clock_that_was_set_from_what_hangs)
{
    char disk[64];
    if (!mpi_can_run())
        skip();
    run_case *r = run_begin();
    const double start = orth_clock_s();
    int code = run_processes(r, "SLOW_DISK=hang:/.tmp-step-00000002/model:1");
    if (code != 4 || !strstr(r->out, "rank 0: it is stuck saving checkpoint step-00000002: model.safetensors, no byte for "))
        fail_msg("exit %d:\n%.3000s", code, r->out);
    assert_true(orth_clock_s() - start < 8 * LIMIT_S + 30); /* SILENCE_S of monitor.c, and what mpirun takes */
    /* A save takes several times longer than a step may. */
    snprintf(disk, sizeof disk, "SLOW_DISK=fsync:%.2f", 0.25 * LIMIT_S);
    code = run_processes(r, disk);
    if (code != 0 || !run_has(r, "p/checkpoints/step-00000002") || !run_has(r, "p/complete.json"))
        fail_msg("exit %d:\n%.3000s", code, r->out);
    /* A wall clock that is set stops no monitor: all processes are heard of. */
    code = run_processes(r, "CLOCK_AHEAD=3600");
    if (code != 0 || !run_has(r, "p/complete.json"))
        fail_msg("exit %d:\n%.3000s", code, r->out);
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(slow_disks_readers_that_wait_pauses_and_load_are_no_failures),
        cmocka_unit_test(what_hangs_is_found_in_every_phase_and_named),
        cmocka_unit_test(a_second_signal_ends_a_run_whose_file_system_hangs),
        cmocka_unit_test(processes_tell_a_slow_disk_and_a_clock_that_was_set_from_what_hangs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
