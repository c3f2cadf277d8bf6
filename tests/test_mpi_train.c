/* test_mpi_train.c -- `orthant train` over MPI: what thread ranks compute, save and say, in as many processes.
 *
 * Skipped where MPI is not built or mpirun is missing.
 */
#include <signal.h>
#include <time.h>

#include "mpi_case.h"
#include "run_case.h"

#define BATCH "train.global_batch=8 train.micro_batch=1 run.threads=1 "

/* mpirun OPTIONS orthant train run.yaml comm.backend=mpi ARGS; its exit status. */
static int __attribute__((format(printf, 3, 4))) over_mpi(run_case *r, const char *options, const char *fmt, ...)
{
    char args[1024], command[4096];
    va_list list;
    va_start(list, fmt);
    vsnprintf(args, sizeof args, fmt, list);
    va_end(list);
    snprintf(command, sizeof command, "cd %s && " MPIRUN(120) "%s %s train run.yaml comm.backend=mpi " BATCH "%s 2>&1", r->dir,
             options, ORTH_BINARY, args);
    return run_shell(command, r->out, sizeof r->out);
}

#define RUN_MPI(r, code, text, ...)                                                                    \
    do {                                                                                               \
        int got_ = over_mpi((r), __VA_ARGS__);                                                         \
        if (got_ != (code) || !strstr((r)->out, (text)))                                               \
            fail_msg("%s:%d: exit %d, wanted %d and \"%s\"; it said:\n%.3000s", __FILE__, __LINE__, got_, \
                     (code), (text), (r)->out);                                                        \
    } while (0)

static int count_of(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)) != NULL; at++)
        n++;
    return n;
}

/* Of each rank, what was planned and counted in its arenas. Pages, heaps and scratch are those of one process, or of several. */
static void same_memory(run_case *r, const char *a, const char *b, int num_ranks)
{
    char *x = run_read(r, a, NULL), *y = run_read(r, b, NULL);
    for (int rank = 0; rank < num_ranks; rank++) {
        char key[48];
        snprintf(key, sizeof key, "\"rank\": %d, \"planned\"", rank);
        const char *p = strstr(x, key), *q = strstr(y, key);
        const char *end = p ? strstr(p, "\"pages\"") : NULL;
        if (!q || !end || strncmp(p, q, (size_t)(end - p)) != 0)
            fail_msg("rank %d has other memory in %s and in %s:\n%.600s\n%.600s", rank, a, b, p ? p : x, q ? q : y);
    }
    free(x);
    free(y);
}

TEST(processes_train_save_and_say_what_thread_ranks_do)
{
    static const struct {
        int n;
        const char *layout;
    } cases[] = {
        {2, "parallel.dp=2 parallel.zero=3 precision.compute=bf16"},
        {3, "parallel.pp=3 model.layers=3 optimizer.name=sgd"},
        {4, "parallel.tp=2 parallel.pp=2 parallel.sequence_parallel=true parallel.pipeline=zb-h1"},
        {8, "parallel.dp=2 parallel.tp=2 parallel.cp=2 parallel.zero=1"},
    };
    if (!mpi_can_run())
        skip();
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        char options[16], t[16], m[16], a[64], b[64];
        snprintf(options, sizeof options, "-n %d", cases[i].n);
        snprintf(t, sizeof t, "t%d", i);
        snprintf(m, sizeof m, "m%d", i);
        const char *batch = BATCH "train.steps=4 train.eval_every=2";
        RUN(r, 0, "saved", "train run.yaml checkpoint.dir=%s %s %s", t, batch, cases[i].layout);
        RUN_MPI(r, 0, "saved", options, "checkpoint.dir=%s train.steps=4 train.eval_every=2 %s", m, cases[i].layout);
        assert_int_equal(count_of(r->out, "saved"), 1); /* only rank 0 speaks */
        assert_int_equal(count_of(r->out, "eval "), 2);
        run_same(r, t, m, 4);
        snprintf(a, sizeof a, "%s/memory.json", t);
        snprintf(b, sizeof b, "%s/memory.json", m);
        same_memory(r, a, b, cases[i].n);
        /* Resumed, too. */
        RUN(r, 0, "saved", "train run.yaml checkpoint.dir=%s " BATCH "train.steps=6 --resume %s", t, cases[i].layout);
        RUN_MPI(r, 0, "saved", options, "checkpoint.dir=%s train.steps=6 --resume %s", m, cases[i].layout);
        run_same(r, t, m, 6);
    }
    run_end(r);
}

/* A host with avx512bf16, whose products in bf16 have other bits, beside one without. */
TEST(processes_that_measure_take_leave_of_the_launcher)
{
    if (!mpi_can_run())
        skip();
    run_case *r = run_begin();
    const int code = run_shell(MPIRUN(120) "-n 2 " ORTH_BINARY " bench collectives --brief --rounds=1 --max-mb=1 comm.backend=mpi 2>&1", r->out, sizeof r->out);
    if (code != 0)
        fail_msg("exit %d\n%.2000s", code, r->out);
    run_end(r);
}

TEST(processes_agree_on_the_least_instruction_set)
{
    if (!mpi_can_run())
        skip();
    run_case *r = run_begin();
    const char *options = "-n 2 sh -c 'ORTHANT_ISA=avx512$([ $OMPI_COMM_WORLD_RANK = 0 ] && echo bf16) exec \"$@\"' sh";
    const char *layout = "parallel.dp=2 precision.compute=bf16";
    RUN(r, 0, "saved", "train run.yaml checkpoint.dir=t " BATCH "train.steps=3 run.isa=avx512 %s", layout);
    RUN_MPI(r, 0, "saved", options, "checkpoint.dir=m train.steps=3 %s", layout);
    run_same(r, "t", "m", 3);
    run_end(r);
}

TEST(a_run_that_cannot_be_is_refused_once_and_in_words)
{
    if (!mpi_can_run())
        skip();
    run_case *r = run_begin();
    RUN_MPI(r, 2, "the layout has 2 ranks, but 3 processes were started: mpirun -n 2", "-n 3",
            "parallel.dp=2 checkpoint.dir=x");
    assert_int_equal(count_of(r->out, "orthant: "), 1);
    RUN(r, 2, "the layout has 2 ranks, but 1 process was started", "train run.yaml " BATCH "comm.backend=mpi parallel.dp=2");
    RUN_MPI(r, 2, "tp=3 does not divide heads=4", "-n 3", "parallel.tp=3 checkpoint.dir=x");
    assert_int_equal(count_of(r->out, "orthant: "), 1);
    RUN_MPI(r, 3, "does not fit", "-n 2", "parallel.dp=2 memory.limit=1000 checkpoint.dir=x");
    RUN(r, 2, "give comm.backend=thread", "verify run.yaml run.yaml comm.backend=mpi");
    /* Processes with different command lines. */
    RUN_MPI(r, 2, "rank 1: this process has other options", "-n 1",
            "parallel.tp=2 checkpoint.dir=x : -n 1 %s train run.yaml comm.backend=mpi " BATCH
            "parallel.tp=2 checkpoint.dir=x train.seed=4", ORTH_BINARY);
    /* One process is what there is without mpirun. */
    RUN(r, 0, "saved", "train run.yaml comm.backend=mpi checkpoint.dir=alone");
    RUN(r, 0, "saved", "train run.yaml checkpoint.dir=one");
    run_same(r, "alone", "one", 8);
    run_end(r);
}

/* ---- signals and failures ---- */

/* Process ids of the ranks, in no order: the processes whose command line holds `word`. */
static int find_ranks(const char *word, int rank, pid_t *out)
{
    char command[512], line[64], wanted[64];
    snprintf(command, sizeof command, "pgrep -f 'train run.yaml.*%s'", word);
    snprintf(wanted, sizeof wanted, "OMPI_COMM_WORLD_RANK=%d", rank);
    FILE *f = popen(command, "r");
    int found = 0;
    while (f && fgets(line, sizeof line, f)) {
        char path[64], env[16384];
        snprintf(path, sizeof path, "/proc/%d/environ", atoi(line));
        FILE *e = fopen(path, "r");
        size_t n = e ? fread(env, 1, sizeof env - 1, e) : 0;
        env[n] = '\0';
        if (e)
            fclose(e);
        for (char *p = env; p < env + n; p += strlen(p) + 1)
            if (strcmp(p, wanted) == 0) {
                *out = atoi(line);
                found++;
            }
    }
    if (f)
        pclose(f);
    return found;
}

#define LAUNCHER (-1) /* for a rank: mpirun itself */

static pid_t child_of(pid_t parent)
{
    char command[64], line[64] = "";
    snprintf(command, sizeof command, "pgrep -P %d", (int)parent);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    assert_non_null(fgets(line, sizeof line, f));
    pclose(f);
    return atoi(line);
}

/* Starts a run of two processes that would take for ever and does `sig` to one rank after three steps; exit
 * status of mpirun. */
static int disturbed(run_case *r, const char *options, const char *dir, int rank, int sig)
{
    char command[2048], path[256];
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", r->dir, dir);
    snprintf(command, sizeof command, "cd %s && exec env " MPIRUN(120) "-n 2 %s %s train run.yaml comm.backend=mpi "
             BATCH "parallel.dp=2 train.steps=1000000 schedule.name=constant train.eval_every=0 "
             "checkpoint.dir=%s >child.log 2>&1", r->dir, options, ORTH_BINARY, dir);
    pid_t child = fork(), target = 0;
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(98);
    }
    int lines = 0;
    for (int tries = 0; tries < 6000 && lines < 3; tries++) {
        nanosleep(&(struct timespec){0, 10000000}, NULL);
        FILE *f = fopen(path, "r");
        lines = 0;
        for (int c; f && (c = fgetc(f)) != EOF;)
            lines += c == '\n';
        if (f)
            fclose(f);
    }
    if (rank == LAUNCHER)
        target = child_of(child); /* of `timeout` */
    else
        assert_int_equal(find_ranks(dir, rank, &target), 1);
    kill(target, sig);
    int status;
    waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

TEST(a_signal_to_any_process_or_one_that_mpirun_hands_on_ends_all_in_a_checkpoint)
{
    static const struct {
        int rank, sig, code;
        const char *text;
    } cases[] = {{0, SIGINT, 130, "SIGINT"}, {1, SIGTERM, 143, "SIGTERM"}, {1, SIGUSR1, 143, "SIGUSR1"},
                 {LAUNCHER, SIGUSR1, 143, "SIGUSR1"}}; /* which mpirun hands on */
    if (!mpi_can_run())
        skip();
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        char dir[64], said[32];
        snprintf(dir, sizeof dir, "cut%d-%d", i, (int)getpid());
        const int code = disturbed(r, "", dir, cases[i].rank, cases[i].sig);
        char *log = run_read(r, "child.log", NULL);
        snprintf(said, sizeof said, "stopped by %s", cases[i].text);
        if (code != cases[i].code || count_of(log, said) != 1)
            fail_msg("exit %d, wanted %d and \"%s\" once:\n%.3000s", code, cases[i].code, said, log);
        int step = 0;
        assert_int_equal(sscanf(strstr(log, "after step"), "after step %d;", &step), 1);
        free(log);
        RUN(r, 0, "valid", "ckpt verify %s", dir);
        RUN_MPI(r, 0, "saved", "-n 2", "parallel.dp=2 train.steps=%d schedule.name=constant checkpoint.dir=%s --resume",
                step + 2, dir);
    }
    run_end(r);
}

/* When a process is killed mpirun ends the others itself, with its own report; with --enable-recovery it leaves that to
 * them, but tells nobody their exit code. */
TEST(a_process_that_dies_or_stalls_is_named_and_all_end)
{
    static const struct {
        int rank, sig, code;
        const char *options, *text;
    } cases[] = {{1, SIGKILL, 0, "--enable-recovery", "nothing has been heard of rank 1"},
                 {1, SIGSTOP, 4, "", "nothing has been heard of rank 1"},
                 {0, SIGSTOP, 4, "", "nothing has been heard of rank 0"}};
    if (!mpi_can_run())
        skip();
    run_case *r = run_begin();
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        char dir[64];
        snprintf(dir, sizeof dir, "dead%d-%d", i, (int)getpid());
        struct timespec a, b;
        clock_gettime(CLOCK_MONOTONIC, &a);
        const int code = disturbed(r, cases[i].options, dir, cases[i].rank, cases[i].sig);
        clock_gettime(CLOCK_MONOTONIC, &b);
        char *log = run_read(r, "child.log", NULL);
        print_message("%s: mpirun ended with %d after %ld s\n", cases[i].text, code, (long)(b.tv_sec - a.tv_sec));
        if (code != cases[i].code || !strstr(log, cases[i].text))
            fail_msg("exit %d, wanted %d and \"%s\":\n%.3000s", code, cases[i].code, cases[i].text, log);
        free(log);
    }
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_train_save_and_say_what_thread_ranks_do),
        cmocka_unit_test(processes_that_measure_take_leave_of_the_launcher),
        cmocka_unit_test(processes_agree_on_the_least_instruction_set),
        cmocka_unit_test(a_run_that_cannot_be_is_refused_once_and_in_words),
        cmocka_unit_test(a_signal_to_any_process_or_one_that_mpirun_hands_on_ends_all_in_a_checkpoint),
        cmocka_unit_test(a_process_that_dies_or_stalls_is_named_and_all_end),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
