/* bench_collectives.c -- `bench collectives`: collectives against the machine's own copy bandwidth.
 *
 * Bandwidths as nccl-tests defines them: algorithm bandwidth = size / time, where size is the buffer that
 * one rank holds whole (all_gather, reduce_scatter: of all blocks together); bus bandwidth = that times
 * 2(n-1)/n for all_reduce, (n-1)/n for all_gather, reduce_scatter, all_to_all, 1 for broadcast.
 * Byte optimum: what must be read and written at least, at the rate at which all ranks together copy
 * their buffer into another one (the better of memcpy and streaming stores). Each round takes the best of
 * repeated calls of everything, interleaved (hosts are shared, and a mean would measure the
 * neighbours); shown are medians over rounds, and medians of the rounds' ratios. Over MPI (comm.backend=mpi, under mpirun)
 * ranks are processes.
 */
#include <inttypes.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/json_out.h"
#include "cli/bench.h"
#include "comm/combine.h"
#include "comm/comm.h"

#define MAX_ROUNDS 101 /* below ORTH_BENCH_MAX */
#define MIN_BYTES ((int64_t)1 << 10)
#define REPEAT_BYTES ((int64_t)256 << 20)
#define ALIGN ((size_t)4096)
#define MAX_BENCH_RANKS 64

typedef enum {
    COPY, STREAM, AR_CANONICAL, AR_FREE, AR_OUT, AR_TREE, AR_DIRECT, AR_RING, AR_BF16, REDUCE_SCATTER, ALL_GATHER, BROADCAST,
    BROADCAST_DIRECT, BROADCAST_TREE, ALL_TO_ALL, NUM_MEASURES
} measure;

static const char *const names[NUM_MEASURES] = {
    "copy", "stream", "all_reduce", "all_reduce free", "all_reduce apart", "all_reduce tree", "all_reduce direct",
    "all_reduce ring", "all_reduce bf16", "reduce_scatter", "all_gather", "broadcast", "broadcast direct", "broadcast tree",
    "all_to_all",
};

typedef struct {
    int ranks, rounds;
    int64_t max_bytes;
    bool brief, json;
} setup;

/* Bytes that all ranks together must read and write, for `bytes` per rank. */
static double traffic(measure m, int n, double bytes)
{
    switch (m) {
    case REDUCE_SCATTER:
        return n * bytes + bytes;
    case ALL_GATHER:
        return bytes + n * bytes;
    case BROADCAST:
    case BROADCAST_DIRECT:
    case BROADCAST_TREE:
        return bytes + (n - 1) * bytes;
    default:
        return 2 * n * bytes;
    }
}

static double bus_factor(measure m, int n)
{
    if (m == BROADCAST || m == BROADCAST_DIRECT || m == BROADCAST_TREE || m == COPY || m == STREAM)
        return 1;
    return (m == REDUCE_SCATTER || m == ALL_GATHER || m == ALL_TO_ALL ? 1.0 : 2.0) * (n - 1) / n;
}

static orth_status once(orth_ctx *ctx, orth_comm *c, measure m, char *x, char *y, int64_t bytes)
{
    const int64_t count = bytes / 4, block = count / orth_comm_size(c);
    char *mine = x + (size_t)(block * orth_comm_pos(c) * 4);
    switch (m) {
    case COPY:
    case STREAM:
        comm_copy(ctx->isa, y, x, (size_t)bytes, m == STREAM);
        return orth_barrier(ctx, c);
    case AR_OUT:
        return orth_all_reduce(ctx, c, y, x, count, ORTH_F32, ORTH_SUM);
    case AR_BF16:
        return orth_all_reduce(ctx, c, x, x, 2 * count, ORTH_BF16, ORTH_SUM);
    case REDUCE_SCATTER:
        return orth_reduce_scatter(ctx, c, mine, x, block, NULL, ORTH_F32, ORTH_SUM);
    case ALL_GATHER:
        return orth_all_gather(ctx, c, x, mine, block, NULL, ORTH_F32);
    case BROADCAST:
    case BROADCAST_DIRECT:
    case BROADCAST_TREE:
        return orth_broadcast(ctx, c, x, count, ORTH_F32, 0);
    case ALL_TO_ALL:
        return orth_all_to_all(ctx, c, y, x, block, NULL, NULL, ORTH_F32);
    default:
        return orth_all_reduce(ctx, c, x, x, count, ORTH_F32, ORTH_SUM);
    }
}

static orth_status timed(orth_ctx *ctx, orth_comm *c, measure m, char *x, char *y, int64_t bytes, double *out)
{
    const int repeats = (int)ORTH_MAX(3, ORTH_MIN(400, REPEAT_BYTES / bytes));
    static const orth_comm_algo algo[NUM_MEASURES] = {
        [AR_TREE] = ORTH_ALGO_TREE, [AR_DIRECT] = ORTH_ALGO_DIRECT, [AR_RING] = ORTH_ALGO_RING,
        [BROADCAST_DIRECT] = ORTH_ALGO_DIRECT, [BROADCAST_TREE] = ORTH_ALGO_TREE}; /* the others: ORTH_ALGO_AUTO */
    ORTH_TRY(orth_comm_set(ctx, c, algo[m], m == AR_FREE || m == AR_RING ? ORTH_ORDER_FREE : ORTH_ORDER_CANONICAL));
    memset(x, 0, (size_t)bytes); /* sums of zeros neither overflow nor slow down */
    ORTH_TRY(once(ctx, c, m, x, y, bytes));
    ORTH_TRY(orth_barrier(ctx, c));
    *out = 1e9;
    for (int i = 0; i < repeats; i++) {
        const double start = orth_clock_s();
        ORTH_TRY(once(ctx, c, m, x, y, bytes));
        *out = ORTH_MIN(*out, orth_clock_s() - start);
    }
    return ORTH_OK;
}

typedef struct {
    double us, algo, bus, percent; /* GB/s of the operation, and of the bytes that it moves; of the optimum */
} figures;

static orth_status print_json(orth_ctx *ctx, const char *what, int64_t bytes, const figures *f)
{
    orth_text text = {0};
    orth_json_out j = {ctx, &text};
    orth_json_open(&j, NULL, '{');
    orth_json_string(&j, "what", what);
    orth_json_print(&j, "bytes", "%" PRId64, bytes);
    orth_json_print(&j, "us", "%.1f", f->us);
    orth_json_print(&j, "algo_gb_s", "%.2f", f->algo);
    orth_json_print(&j, "bus_gb_s", "%.2f", f->bus);
    orth_json_print(&j, "percent_of_optimum", "%.1f", f->percent);
    orth_json_close(&j, '}');
    return orth_json_show(&j, stdout);
}

static orth_status show(orth_ctx *ctx, const setup *s, int n, int64_t bytes, double seconds[NUM_MEASURES][MAX_ROUNDS])
{
    for (int m = 0; m < NUM_MEASURES; m++) {
        double share[MAX_ROUNDS];
        for (int r = 0; r < s->rounds; r++) {
            const double copy = ORTH_MIN(seconds[COPY][r], seconds[STREAM][r]);
            const double rate = traffic(COPY, n, (double)bytes) / copy;
            share[r] = traffic((measure)m, n, (double)bytes) / rate / seconds[m][r];
        }
        const double t = orth_bench_median(seconds[m], s->rounds), algo = (double)bytes / t * 1e-9;
        const figures f = {t * 1e6, algo, algo * bus_factor((measure)m, n), 100 * orth_bench_median(share, s->rounds)};
        if (t > 0 && s->json)
            ORTH_TRY(print_json(ctx, names[m], bytes, &f));
        else if (t > 0)
            printf("%-16s %12" PRId64 " %12.1f %8.2f %8.2f %8.1f %%\n", names[m], bytes, f.us, f.algo, f.bus, f.percent);
    }
    if (s->brief || s->json)
        return ORTH_OK;
    double over[MAX_ROUNDS];
    for (int r = 0; r < s->rounds; r++)
        over[r] = seconds[AR_CANONICAL][r] / seconds[AR_FREE][r];
    printf("canonical / free order: %.3f\n", orth_bench_median(over, s->rounds));
    return ORTH_OK;
}

static orth_status bench(orth_ctx *ctx, orth_world *w, void *arg)
{
    const setup *s = arg;
    const int n = orth_world_size(w);
    int ranks[MAX_BENCH_RANKS];
    if (n > MAX_BENCH_RANKS)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "bench collectives: %d ranks; the most is %d", n, MAX_BENCH_RANKS);
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    orth_comm *c;
    ORTH_TRY(orth_comm_create(ctx, w, &c, "bench", n, ranks));
    char *block = orth_mem_alloc(ctx, 2 * (size_t)s->max_bytes + 2 * ALIGN);
    if (!block)
        return ORTH_ERR_NOMEM;
    memset(block, 0, 2 * (size_t)s->max_bytes + 2 * ALIGN);
    char *x = (char *)(((uintptr_t)block + ALIGN - 1) / ALIGN * ALIGN), *y = x + s->max_bytes;
    if (orth_world_rank(w) == 0 && !s->json)
        printf("%-16s %12s %12s %8s %8s %10s\n", "what", "bytes", "us", "algo", "bus GB/s", "of optimum");
    for (int64_t bytes = MIN_BYTES; bytes <= s->max_bytes; bytes *= 4) {
        double seconds[NUM_MEASURES][MAX_ROUNDS] = {0};
        for (int r = 0; r < s->rounds; r++)
            for (int m = s->brief ? AR_CANONICAL : 0; m < (s->brief ? AR_FREE : NUM_MEASURES); m++)
                ORTH_TRY(timed(ctx, c, (measure)m, x, y, bytes, &seconds[m][r]));
        if (orth_world_rank(w) == 0)
            ORTH_TRY(show(ctx, s, n, bytes, seconds));
        fflush(stdout);
    }
    orth_mem_free(ctx, block);
    return ORTH_OK;
}

orth_status orth_bench_collectives(orth_ctx *ctx, const orth_cmd *cmd)
{
    int64_t ranks = 2, rounds = 7, max_mb = 256;
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "ranks", 1, MAX_BENCH_RANKS, &ranks));
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "rounds", 1, MAX_ROUNDS, &rounds));
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "max-mb", 1, 4096, &max_mb));
    const bool processes = cmd->config.comm_backend == ORTH_comm_backend_mpi;
    setup s = {.ranks = (int)ranks, .rounds = (int)rounds, .max_bytes = max_mb << 20,
               .brief = orth_cmd_flag(cmd, "brief"), .json = orth_cmd_flag(cmd, "json")};
    orth_world_options o = {.pin = true, .timeout_s = -1, .backend = processes ? ORTH_BACKEND_MPI : ORTH_BACKEND_THREAD};
    return orth_run_ranks(ctx, processes ? 0 : s.ranks, bench, &s, &o);
}
