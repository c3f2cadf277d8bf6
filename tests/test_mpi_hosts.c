/* test_mpi_hosts.c -- two hosts with a network between them: the same bits, the placement of ranks, and the end of a run whose network fails.
 *
 * The hosts are network namespaces with names of their own, joined by a veth pair; mpirun starts its daemon on the
 * second by `ip netns exec` in place of ssh, and messages go over TCP. Skipped where MPI or mpirun is missing, or where
 * the system lets us make no namespaces (they need root and iproute2).
 */
#include <signal.h>
#include <time.h>

#include "comm/comm.h"
#include "run_case.h"

typedef struct {
    run_case *run;
    char host[2][32];            /* names of the namespaces */
} two_hosts;

static int __attribute__((format(printf, 1, 2))) shell(const char *fmt, ...)
{
    char command[4096];
    va_list list;
    va_start(list, fmt);
    vsnprintf(command, sizeof command, fmt, list);
    va_end(list);
    const int status = system(command);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

/* And whatever still runs in them. */
static void remove_hosts(const two_hosts *t)
{
    for (int i = 0; i < 2; i++)
        shell("for p in $(ip netns pids %s 2>/dev/null); do kill -9 $p; done; ip netns del %s 2>/dev/null", t->host[i],
              t->host[i]);
}

/* The two namespaces, agent.sh, which starts mpirun's daemon in the second, and rank.sh, which keeps the exit code of
 * each rank. False: not on this system. */
static bool make_hosts(two_hosts *t)
{
    if (!orth_comm_backend_built(ORTH_BACKEND_MPI) || shell("command -v mpirun ip unshare >/dev/null 2>&1") != 0) {
        printf("skipped: MPI is not in this build, or mpirun, ip or unshare is missing\n");
        return false;
    }
    for (int i = 0; i < 2; i++)
        snprintf(t->host[i], sizeof t->host[i], "o%c%d", 'a' + i, (int)getpid());
    const char *a = t->host[0], *b = t->host[1];
    if (shell("(ip netns add %s && ip netns add %s && ip link add %s netns %s type veth peer name %s netns %s && "
              "unshare --uts true) 2>/dev/null", a, b, a, a, b, b) != 0) {
        printf("skipped: no network namespaces can be made here\n");
        remove_hosts(t);
        return false;
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(shell("ip -n %s addr add 10.77.1.%d/24 dev %s && ip -n %s link set %s up && ip -n %s link set lo up",
                               t->host[i], i + 1, t->host[i], t->host[i], t->host[i], t->host[i]), 0);
    char agent[512], rank[512];
    t->run = run_begin();
    const int n = snprintf(agent, sizeof agent, "#!/bin/sh\nshift\nexec ip netns exec %s unshare --uts sh -c \"hostname %s; "
                           "$*\"\n", b, b);
    run_write(t->run, "agent.sh", agent, (size_t)n);
    const int m = snprintf(rank, sizeof rank, "#!/bin/sh\ntrap '' TERM\n%s train run.yaml \"$@\"\ncode=$?\n"
                           "echo $code >said.$OMPI_COMM_WORLD_RANK && mv said.$OMPI_COMM_WORLD_RANK code.$OMPI_COMM_WORLD_RANK\nexit $code\n", ORTH_BINARY);
    run_write(t->run, "rank.sh", rank, (size_t)m);
    assert_int_equal(shell("chmod +x %s/agent.sh %s/rank.sh", t->run->dir, t->run->dir), 0);
    return true;
}

/* The command that trains on two ranks of each host. */
static void command_for(const two_hosts *t, const char *args, char *out, size_t n)
{
    snprintf(out, n, "cd %s && OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 exec timeout 150 ip netns exec %s "
             "unshare --uts sh -c 'hostname %s; exec mpirun --oversubscribe --mca plm_rsh_agent %s/agent.sh --mca pml ob1 "
             "--mca btl tcp,self --mca btl_tcp_if_include 10.77.1.0/24 --mca oob_tcp_if_include 10.77.1.0/24 "
             "--mca mpi_yield_when_idle 1 --host 10.77.1.1:2,10.77.1.2:2 -n 4 ./rank.sh comm.backend=mpi "
             "train.global_batch=8 train.micro_batch=1 run.threads=1 %s' >log 2>&1", t->run->dir, t->host[0], t->host[0],
             t->run->dir, args);
}

TEST(two_hosts_compute_what_thread_ranks_do)
{
    static const char *const layouts[] = {"parallel.dp=2 parallel.tp=2 parallel.zero=2", "parallel.pp=2 parallel.cp=2"};
    two_hosts t = {.run = NULL};
    if (!make_hosts(&t))
        skip();
    for (int i = 0; i < ORTH_COUNT(layouts); i++) {
        char args[256], command[4096], a[16], b[16];
        snprintf(a, sizeof a, "t%d", i);
        snprintf(b, sizeof b, "m%d", i);
        snprintf(args, sizeof args, "train.steps=4 %s checkpoint.dir=%s", layouts[i], b);
        command_for(&t, args, command, sizeof command);
        const int code = shell("%s", command);
        if (code != 0) {
            char *log = run_read(t.run, "log", NULL);
            remove_hosts(&t);
            fail_msg("exit %d:\n%.3000s", code, log);
        }
        RUN(t.run, 0, "saved", "train run.yaml train.global_batch=8 train.micro_batch=1 train.steps=4 %s checkpoint.dir=%s",
            layouts[i], a);
        run_same(t.run, a, b, 4);
    }
    remove_hosts(&t);
    run_end(t.run);
}

/* Two ranks of each host: tensor parallelism over all four of them, and blocks of three, cannot stay inside. */
TEST(ranks_that_lie_otherwise_on_the_hosts_than_the_layout_wants_are_named)
{
    static const struct { const char *args, *text; int code; } cases[] = {
        {"train.steps=2 parallel.tp=4 checkpoint.dir=p0", "warning: rank 0: placement: parallel.tp=4 lies across hosts: ranks 0 and 2,", 0},
        {"train.steps=2 parallel.tp=2 parallel.dp=2 parallel.ranks_per_host=2 checkpoint.dir=p1", "done: step 2", 0},
        {"train.steps=2 parallel.tp=2 parallel.dp=2 parallel.ranks_per_host=3 checkpoint.dir=p2",
         "parallel.ranks_per_host=3, but rank 0 is on host oa", 2},
    };
    two_hosts t = {.run = NULL};
    if (!make_hosts(&t))
        skip();
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        char command[4096];
        command_for(&t, cases[i].args, command, sizeof command);
        const int code = shell("%s", command);
        char *log = run_read(t.run, "log", NULL);
        const bool warned = strstr(log, "lies across hosts") != NULL;
        if ((code != 0) != (cases[i].code != 0) || !strstr(log, cases[i].text) || warned != (i == 0)) {
            remove_hosts(&t);
            fail_msg("%s: exit %d, wanted %d and \"%s\":\n%.3000s", cases[i].args, code, cases[i].code, cases[i].text, log);
        }
        free(log);
    }
    remove_hosts(&t);
    run_end(t.run);
}

/* Lines of a run's metrics: steps done. */
static int steps_of(const two_hosts *t, const char *dir)
{
    char path[256];
    snprintf(path, sizeof path, "%s/%s/metrics.jsonl", t->run->dir, dir);
    FILE *f = fopen(path, "r");
    int lines = 0;
    for (int c; f && (c = fgetc(f)) != EOF;)
        lines += c == '\n';
    if (f)
        fclose(f);
    return lines;
}

/* Exit codes of the ranks that have ended, "4 4 4 4". */
static int codes_of(const two_hosts *t, char *out, size_t n)
{
    int ended = 0;
    out[0] = '\0';
    for (int rank = 0; rank < 4; rank++) {
        char name[32];
        snprintf(name, sizeof name, "code.%d", rank);
        if (!run_has(t->run, name))
            continue;
        char *code = run_read(t->run, name, NULL);
        const size_t at = strlen(out);
        snprintf(out + at, n - at, "%s%d", at ? " " : "", atoi(code));
        free(code);
        ended++;
    }
    return ended;
}

/* How mpirun ends is its own affair: it may wait for minutes for its daemon on the other host. */
TEST(a_cut_link_ends_all_with_a_report_of_who_is_missing)
{
    two_hosts t = {.run = NULL};
    if (!make_hosts(&t))
        skip();
    char command[4096], codes[64];
    command_for(&t, "train.steps=1000000 train.eval_every=0 schedule.name=constant parallel.dp=2 parallel.tp=2 "
                "checkpoint.dir=cut", command, sizeof command);
    pid_t child = fork();
    if (child == 0) {
        execl("/bin/sh", "sh", "-c", command, (char *)NULL);
        _exit(98);
    }
    for (int tries = 0; tries < 6000 && steps_of(&t, "cut") < 3; tries++)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    struct timespec a, b;
    clock_gettime(CLOCK_MONOTONIC, &a);
    shell("ip -n %s link set %s down", t.host[1], t.host[1]);
    for (int tries = 0; tries < 6000 && codes_of(&t, codes, sizeof codes) < 4; tries++)
        nanosleep(&(struct timespec){0, 10000000}, NULL);
    clock_gettime(CLOCK_MONOTONIC, &b);
    nanosleep(&(struct timespec){0, 500000000}, NULL); /* for mpirun to pass on what they said */
    remove_hosts(&t);
    waitpid(child, NULL, 0);
    char *log = run_read(t.run, "log", NULL);
    print_message("link cut: the ranks ended with %s after %ld s\n", codes, (long)(b.tv_sec - a.tv_sec));
    if (strcmp(codes, "4 4 4 4") != 0 || !strstr(log, "nothing has been heard of ranks 2, 3"))
        fail_msg("%s:\n%.3000s", codes, log);
    free(log);
    run_end(t.run);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_hosts_compute_what_thread_ranks_do),
        cmocka_unit_test(ranks_that_lie_otherwise_on_the_hosts_than_the_layout_wants_are_named),
        cmocka_unit_test(a_cut_link_ends_all_with_a_report_of_who_is_missing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
