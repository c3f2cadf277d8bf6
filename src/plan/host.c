/* host.c -- see host.h. */
#include "plan/host.h"

#include <math.h>
#include <stdlib.h>

#include "plan/device_time.h"
#include "program/ir/comm_call.h"

typedef struct {
    const orth_hardware *h;
    bool bf16;         /* fp16 counts as fp32, in which both compute */
    int num_threads;   /* of a rank */
    double slower;     /* what sharing the cores costs */
    orth_file_rates file; /* of a rank */
} pricing;

/* What was not measured takes its bytes, or its operations, at the rates of the machine. */
static double op_seconds(const pricing *x, const orth_instr *n)
{
    const double s = orth_op_seconds(&x->h->times, x->bf16, x->num_threads, (int)x->h->host_cores, n);
    return s > 0 ? s : orth_device_seconds(x->h, n);
}

static double call_seconds(const pricing *x, const orth_instr *n, int32_t instr, int k, const orth_rank_groups *groups)
{
    const orth_group g = n->attr->group;
    const int members = groups->size[g];
    const orth_comm_call call = orth_instr_call(n, instr, k, members);
    const int64_t received = call.count * (int64_t)orth_dtype_bytes(call.dtype);
    const double bytes = (double)(call.kind == ORTH_COMM_RECV ? received : orth_comm_bytes(members, groups->pos[g], &call));
    const double s = orth_call_seconds(&x->h->times, call.kind, members, bytes);
    return s > 0 ? s : 2 * bytes / (1e9 * x->h->device_memory_GBps);
}

static double seconds(void *user, const orth_program *p, int32_t instr, int k, int rank, const orth_rank_groups *groups)
{
    (void)rank;
    const pricing *x = user;
    const orth_instr *n = &p->instrs[instr];
    if (orth_instr_moves_file(p, n))
        return orth_file_seconds(&x->file, p, n);
    return x->slower * (orth_op_is_comm(n->op) ? call_seconds(x, n, instr, k, groups) : op_seconds(x, n));
}

size_t orth_host_limit(const orth_hardware *h)
{
    return (size_t)orth_hardware_room(h);
}

/* ---- ranks that share cores ---- */

/* A rank begins (+1) or ends (-1) to compute. */
typedef struct {
    int64_t ns;
    int change;
} edge;

static int by_time(const void *a, const void *b)
{
    const edge *x = a, *y = b;
    return (x->ns > y->ns) - (x->ns < y->ns);
}

/* Of a rank's computing instructions, neighbours joined. edges: room for two for each instruction. */
static int64_t add_edges(const orth_program *p, const int64_t *clock, edge *edges)
{
    int64_t n = 0;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const int64_t begin = orth_clock_begin(clock, i), end = orth_clock_end(clock, i);
        if (orth_op_is_comm(p->instrs[i].op) || begin == end)
            continue;
        if (n > 0 && edges[n - 1].ns == begin) {
            edges[n - 1].ns = end;
            continue;
        }
        edges[n++] = (edge){begin, 1};
        edges[n++] = (edge){end, -1};
    }
    return n;
}

/* While k ranks compute at once, all of them take k * threads / cores as long, if that is more than 1. *slower: how much longer that
 * makes the step. What computes together when each rank has cores of its own is taken to do so on shared ones, too. */
static orth_status share_cores(orth_ctx *ctx, orth_run_plan *p, const pricing *x, int64_t *const *clocks, edge *edges, double *slower)
{
    int64_t n = 0;
    for (int r = 0; r < p->num_ranks; r++) {
        const orth_compiled *compiled;
        ORTH_TRY(orth_programs_of(ctx, &p->programs, r, &compiled));
        n += add_edges(&compiled->program, clocks[r], edges + n);
    }
    qsort(edges, (size_t)n, sizeof *edges, by_time);
    double longer = 0;
    int busy = 0;
    for (int64_t k = 0; k + 1 < n; k++) {
        busy += edges[k].change;
        longer += (double)(edges[k + 1].ns - edges[k].ns) * fmax(0, busy * x->num_threads / x->h->host_cores - 1);
    }
    *slower = 1 + 1e-9 * longer / p->ranks[0].time.step_s;
    return ORTH_OK;
}

static orth_status find_slower(orth_ctx *ctx, orth_run_plan *p, pricing *x)
{
    const orth_rank_source source = orth_programs_source(&p->programs);
    const orth_timing timing = {.seconds = seconds, .user = x};
    int64_t **clocks = NULL, room = 0;
    double slower = 1;
    if ((double)p->num_ranks * x->num_threads <= x->h->host_cores)
        return ORTH_OK;
    for (int r = 0; r < p->num_ranks; r++)
        room += 2 * p->ranks[r].num_instrs;
    orth_rank_time *times = ORTH_NEW_ARRAY(ctx, orth_rank_time, p->num_ranks);
    edge *edges = ORTH_NEW_ARRAY(ctx, edge, room);
    orth_status s = times && edges ? orth_run_plan_clocks(ctx, p, &clocks) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = orth_simulate_step(ctx, &source, &timing, times, clocks);
    if (s == ORTH_OK)
        s = share_cores(ctx, p, x, clocks, edges, &slower);
    x->slower = slower;
    orth_mem_free(ctx, clocks);
    orth_mem_free(ctx, edges);
    orth_mem_free(ctx, times);
    return s;
}

orth_status orth_host_price(orth_ctx *ctx, orth_run_plan *p, const orth_hardware *h, orth_dtype compute, const char *timeline)
{
    double peak;
    pricing x = {.h = h, .bf16 = compute == ORTH_BF16, .num_threads = p->programs.spec.num_threads, .slower = 1,
                 .file = orth_file_rates_of(h, p->num_ranks)};
    const orth_timing timing = {.seconds = seconds, .user = &x};
    if (!h->has_host)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: the description has no section `host`: `orthant doctor --calibrate` writes one", h->device_name);
    ORTH_TRY(orth_hardware_peak(ctx, h, compute, &peak));
    ORTH_TRY(orth_run_plan_time(ctx, p, &timing, NULL));
    ORTH_TRY(find_slower(ctx, p, &x));
    if (x.slower > 1 || timeline)
        ORTH_TRY(orth_run_plan_time(ctx, p, &timing, timeline));
    orth_plan_price_total(&p->total, p->ranks, p->num_ranks, peak);
    orth_plan_set_file_floor(&p->total, &x.file, p->num_ranks);
    p->total.times_of = h->device_name;
    return ORTH_OK;
}
