/* test_mpi.c -- processes compute the same bits as threads: both equal the serial tree.
 *
 * Run without arguments it starts itself under mpirun; skipped where MPI is not built or mpirun is missing.
 */
#include "comm_case.h"
#include "mpi_case.h"

#include <sys/wait.h>
#include <unistd.h>

static const sweep sweeps[] = {
    {.max_count = 4099},
    {.max_count = 1000, .async = true},
    {.max_count = 70001, .algo = ORTH_ALGO_TREE},
    {.max_count = 1000, .algo = ORTH_ALGO_RING, .order = ORTH_ORDER_FREE},
    {.max_count = 1000, .algo = ORTH_ALGO_DIRECT, .order = ORTH_ORDER_FREE},
};

/* The last rank makes another call than the others. */
static orth_status differ(orth_ctx *ctx, orth_world *w, void *arg)
{
    (void)arg;
    int ranks[64];
    for (int i = 0; i < orth_world_size(w); i++)
        ranks[i] = i;
    orth_comm *c;
    float x[8] = {0};
    ORTH_TRY(orth_comm_create(ctx, w, &c, "dp", orth_world_size(w), ranks));
    return orth_all_reduce(ctx, c, x, x, orth_world_rank(w) == orth_world_size(w) - 1 ? 5 : 4, ORTH_F32, ORTH_SUM);
}

/* Rank 0 never calls. */
static orth_status stay_away(orth_ctx *ctx, orth_world *w, void *arg)
{
    (void)arg;
    int ranks[64];
    for (int i = 0; i < orth_world_size(w); i++)
        ranks[i] = i;
    orth_comm *c;
    ORTH_TRY(orth_comm_create(ctx, w, &c, "dp", orth_world_size(w), ranks));
    if (orth_world_rank(w) == 0)
        sleep(20);
    return orth_barrier(ctx, c);
}

/* As one of mpirun's processes. */
static int run_rank(const char *what)
{
    orth_ctx ctx;
    orth_world_options o = {.backend = ORTH_BACKEND_MPI};
    orth_status s = orth_ctx_init(&ctx, 1);
    if (s != ORTH_OK)
        return 70;
    if (strcmp(what, "sweep") == 0) {
        for (int i = 0; i < ORTH_COUNT(sweeps) && s == ORTH_OK; i++) {
            sweep one = {.max_count = sweeps[i].max_count, .algo = sweeps[i].algo, .order = sweeps[i].order,
                         .async = sweeps[i].async};
            s = orth_run_ranks(&ctx, 0, sweep_rank, &one, &o);
        }
    } else if (strcmp(what, "differ") == 0) {
        s = orth_run_ranks(&ctx, 0, differ, NULL, &o);
    } else {
        o.timeout_s = o.startup_s = 1;
        s = orth_run_ranks(&ctx, 0, stay_away, NULL, &o);
    }
    if (s == ORTH_OK)
        orth_comm_shutdown();
    else if (!ctx.error.printed_elsewhere)
        fprintf(stderr, "test_mpi: %s\n", ctx.error.message);
    else
        usleep(300000); /* until it has been said */
    orth_ctx_destroy(&ctx);
    return orth_status_exit_code(s);
}

/* Exit status of mpirun of this program, or of one beside it; what it printed is in `text`. */
static int launch_other(int n, const char *program, const char *what, char *text, size_t bytes)
{
    char self[512], command[1024];
    const ssize_t len = readlink("/proc/self/exe", self, sizeof self - 1);
    assert_true(len > 0);
    self[len] = 0;
    *strrchr(self, '/') = 0;
    snprintf(command, sizeof command, MPIRUN(600) "-n %d %s/%s %s 2>&1", n, self, program, what);
    FILE *f = popen(command, "r");
    assert_non_null(f);
    size_t at = fread(text, 1, bytes - 1, f);
    text[at] = 0;
    const int status = pclose(f);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

static int launch(int n, const char *what, char *text, size_t bytes)
{
    return launch_other(n, "test_mpi", what, text, bytes);
}

TEST(processes_equal_the_serial_tree)
{
    static char text[65536];
    if (!mpi_can_run())
        skip();
    for (int n = 2; n <= 4; n++) {
        const int status = launch(n, "sweep", text, sizeof text);
        if (status != 0)
            fail_msg("%d processes: status %d\n%s", n, status, text);
    }
}

TEST(processes_that_differ_are_named)
{
    static char text[65536];
    if (!mpi_can_run())
        skip();
    assert_int_equal(launch(3, "differ", text, sizeof text), 4);
    if (!strstr(text, "rank 2: 'dp' call 2: rank 2 called all_reduce sum fp32 x 5"))
        fail_msg("%s", text);
}

TEST(a_process_that_stays_away_is_named)
{
    static char text[65536];
    if (!mpi_can_run())
        skip();
    assert_int_equal(launch(2, "away", text, sizeof text), 4);
    if (!strstr(text, "rank 0: it is stuck outside of communication") || !strstr(text, "rank 1 has waited"))
        fail_msg("%s", text);
}

/* The layouts of test_layouts.c, of these sizes; each compares with one rank. ORTH_MPI_LAYOUTS=n: n times as many (make soak). */
TEST(random_layouts_over_processes_equal_one_rank)
{
    static char text[65536];
    static const struct {
        int n, count;
    } sizes[] = {{2, 3}, {4, 3}, {8, 2}};
    const char *given = getenv("ORTH_MPI_LAYOUTS");
    const int times = given ? atoi(given) : 1;
    if (!mpi_can_run())
        skip();
    const uint64_t seed = test_seed();
    int equal = 0, wanted = 0;
    for (int i = 0; i < times * ORTH_COUNT(sizes); i++) {
        const int n = sizes[i % ORTH_COUNT(sizes)].n, count = sizes[i % ORTH_COUNT(sizes)].count;
        char what[64];
        snprintf(what, sizeof what, "%d %llu %d", n, (unsigned long long)seed + 10000 * (unsigned long long)(i / ORTH_COUNT(sizes)), count);
        const int status = launch_other(n, "test_layouts", what, text, sizeof text);
        if (status != 0)
            fail_msg("%d processes: status %d\n%s", n, status, text);
        for (const char *at = text; (at = strstr(at, "equal: ")) != NULL; at++)
            equal++;
        wanted += count;
    }
    print_message("%d layouts on 2 to 8 processes have the bits of one rank over 5 steps (3 to 5 with ring attention)\n", equal);
    assert_int_equal(equal, wanted);
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return run_rank(argv[1]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(processes_equal_the_serial_tree),
        cmocka_unit_test(processes_that_differ_are_named),
        cmocka_unit_test(a_process_that_stays_away_is_named),
        cmocka_unit_test(random_layouts_over_processes_equal_one_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
