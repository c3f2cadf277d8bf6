/* cluster.c -- see cluster.h. */
#include "plan/cluster.h"

#include <inttypes.h>

#include "plan/device_time.h"
#include "plan/link_time.h"
#include "program/ir/comm_call.h"
#include "program/ir/cost.h"

/* What the clock of the simulation asks: where the groups of the rank at hand lie. */
typedef struct {
    const orth_hardware *h;
    const orth_partition *partition;
    int *ranks;                             /* [num_ranks] room for a group */
    int rank;                               /* whose places these are; -1 */
    bool known[ORTH_NUM_GROUPS];
    orth_link_place place[ORTH_NUM_GROUPS];
} links;

static const orth_link_place *place_of(links *x, int rank, orth_group g)
{
    if (rank != x->rank)
        memset(x->known, 0, sizeof x->known);
    x->rank = rank;
    if (!x->known[g]) {
        const int n = orth_partition_group(x->partition, rank, g, x->ranks);
        x->place[g] = orth_link_place_of(x->h, x->ranks, n);
        x->known[g] = true;
    }
    return &x->place[g];
}

/* Of the whole tensor, as orth_link_seconds counts. */
static double call_bytes(const orth_comm_call *c, int n)
{
    const bool blocks = c->kind == ORTH_COMM_ALL_GATHER || c->kind == ORTH_COMM_REDUCE_SCATTER || c->kind == ORTH_COMM_ALL_TO_ALL;
    double elems = c->counts ? 0 : (double)c->count * (blocks ? n : 1);
    for (int i = 0; c->counts && i < n; i++)
        elems += (double)c->counts[i];
    return elems * (double)orth_dtype_bytes(c->dtype);
}

/* A copy between memories, or an update by the host. */
static bool is_offloaded(const orth_program *p, const orth_instr *n)
{
    const bool near = n->num_out == 0 || n->out[0].buffer < 0 || p->buffers[n->out[0].buffer].space == p->space;
    return !near || (n->op == ORTH_OP_copy && p->buffers[n->in[0].buffer].space != p->space);
}

static double offloaded_seconds(const orth_hardware *h, const orth_program *p, const orth_instr *n)
{
    const double bytes = (double)orth_operand_bytes(&n->out[0]);
    if (n->op != ORTH_OP_copy)
        return orth_instr_cost(n).bytes / (1e9 * h->node_memory_GBps);
    return bytes / (1e9 * (orth_instr_moves_file(p, n) ? h->node_file_GBps : h->node_host_GBps));
}

static double seconds(void *user, const orth_program *p, int32_t instr, int k, int rank, const orth_rank_groups *groups)
{
    links *x = user;
    const orth_instr *n = &p->instrs[instr];
    if (!orth_op_is_comm(n->op))
        return is_offloaded(p, n) ? offloaded_seconds(x->h, p, n) : orth_device_seconds(x->h, n);
    const orth_group g = n->attr.group;
    const orth_comm_call call = orth_instr_call(n, instr, k, groups->size[g]);
    orth_link_place place = *place_of(x, rank, g);
    if (orth_op_is_message(n->op)) {
        const int devices = (int)x->h->node_devices;
        orth_partition_group(x->partition, rank, g, x->ranks);
        place.same_node = x->ranks[call.peer] / devices == rank / devices;
    }
    return orth_link_seconds(x->h, call.kind, call_bytes(&call, groups->size[g]), &place, NULL);
}

size_t orth_cluster_rank_limit(const orth_hardware *h)
{
    return (size_t)(0x1p30 * (h->device_memory_GiB - h->device_reserved_GiB));
}

static void sum_up(orth_run_plan *p, const orth_hardware *h, double peak, orth_cluster_plan *c)
{
    const size_t limit = orth_cluster_rank_limit(h);
    const int n = p->num_ranks;
    for (int r = 0; r < n; r++) {
        const orth_rank_time *t = &p->ranks[r].time;
        p->ranks[r].limit_bytes = limit;
        p->ranks[r].fits = p->ranks[r].device_bytes <= limit;
        if (p->ranks[r].device_bytes > p->ranks[c->worst_rank].device_bytes)
            c->worst_rank = r;
        c->compute_s += (t->compute_s - t->update_s) / n;
        c->update_s += t->update_s / n;
        c->move_s += t->move_s / n;
        c->wait_s += t->wait_s / n;
        for (int g = 0; g < ORTH_NUM_GROUPS; g++)
            c->exposed_s[g] += t->comm_by_group[g] / n;
    }
    orth_plan_price_total(&p->total, p->ranks, n, peak * n);
    p->total.fits = p->ranks[c->worst_rank].fits;
    p->total.limit_bytes = limit;
    p->total.worst_bytes = p->ranks[c->worst_rank].device_bytes;
    c->step_s = p->total.time.step_s;
    c->tokens_per_s = (double)p->total.tokens / c->step_s;
    c->mfu = p->total.cost.model_flops / c->step_s / (peak * n);
    c->hfu = p->total.cost.hardware_flops / c->step_s / (peak * n);
}

orth_status orth_cluster_price(orth_ctx *ctx, orth_run_plan *p, const orth_hardware *h, orth_dtype compute, int64_t steps,
                               const char *timeline, orth_cluster_plan *out)
{
    double peak;
    ORTH_TRY(orth_hardware_peak(ctx, h, compute, &peak));
    links x = {.h = h, .partition = &p->partition, .rank = -1, .ranks = ORTH_NEW_ARRAY(ctx, int, p->num_ranks)};
    if (!x.ranks)
        return ORTH_ERR_NOMEM;
    const orth_status s = orth_run_plan_time(ctx, p, seconds, &x, timeline);
    orth_mem_free(ctx, x.ranks);
    if (s != ORTH_OK)
        return s;
    *out = (orth_cluster_plan){.steps = (double)steps};
    sum_up(p, h, peak, out);
    const double busy = out->steps * out->step_s / 86400, checkpoint = 12.0 * (double)p->total.num_elems; /* fp32 weights and moments */
    if (h->failures_device_hours > 0)
        out->goodput = orth_goodput_on(h, p->num_ranks, checkpoint, false);
    if (h->failures_device_hours > 0 && h->failures_spot_hours > 0)
        out->spot_goodput = orth_goodput_on(h, p->num_ranks, checkpoint, true);
    if ((h->failures_device_hours > 0 && out->goodput.share == 0) || (h->failures_spot_hours > 0 && h->failures_device_hours > 0 && out->spot_goodput.share == 0))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: the section `failures` leaves no time for progress: an interruption in %.3g h, and a checkpoint of "
                         "%.3g GB takes %.3g h", h->device_name, (out->goodput.share == 0 ? out->goodput : out->spot_goodput).between_s / 3600,
                         checkpoint / 1e9, out->goodput.save_s / 3600);
    out->days = h->failures_device_hours > 0 ? busy / out->goodput.share : busy;
    out->on_demand_usd = 24 * out->days * p->num_ranks * h->price_on_demand;
    out->spot_usd = 24 * (out->spot_goodput.share > 0 ? busy / out->spot_goodput.share : out->days) * p->num_ranks * h->price_spot;
    p->total.goodput = out->goodput.share;
    p->total.days = out->days;
    p->total.on_demand_usd = out->on_demand_usd;
    p->total.spot_usd = out->spot_usd;
    return ORTH_OK;
}

orth_status orth_cluster_clocks(orth_ctx *ctx, const orth_rank_source *source, const orth_partition *partition, const orth_hardware *h,
                                int64_t *const *clocks)
{
    links x = {.h = h, .partition = partition, .rank = -1, .ranks = ORTH_NEW_ARRAY(ctx, int, source->num_ranks)};
    orth_rank_time *times = ORTH_NEW_ARRAY(ctx, orth_rank_time, source->num_ranks);
    const orth_status s = x.ranks && times ? orth_simulate_step(ctx, source, seconds, &x, times, clocks) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, times);
    orth_mem_free(ctx, x.ranks);
    return s;
}

/* ---- for people ---- */

static double gib(size_t bytes)
{
    return (double)bytes / 0x1p30;
}

static void add_exposed(orth_ctx *ctx, orth_text *t, const orth_cluster_plan *c)
{
    const char *sep = "";
    double sum = 0;
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        sum += c->exposed_s[g];
    orth_text_addf(ctx, t, "exposed communication %.1f %%", 100 * sum / c->step_s);
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        if (c->exposed_s[g] >= 0.0005 * c->step_s) {
            orth_text_addf(ctx, t, "%s%s %.1f", *sep ? sep : " (", orth_group_name((orth_group)g), 100 * c->exposed_s[g] / c->step_s);
            sep = ", ";
        }
    orth_text_add(ctx, t, *sep ? ")" : "");
}

static void add_cost(orth_ctx *ctx, orth_text *t, const orth_hardware *h, const orth_cluster_plan *c)
{
    if (c->steps == 0) {
        orth_text_add(ctx, t, "the whole run  not known: train.steps is not set\n");
        return;
    }
    orth_text_addf(ctx, t, "the whole run  %.0f steps take %.3g days", c->steps, c->days);
    if (h->price_on_demand > 0)
        orth_text_addf(ctx, t, ", %.0f USD at %.2f USD a device and hour", c->on_demand_usd, h->price_on_demand);
    if (h->price_spot > 0)
        orth_text_addf(ctx, t, ", %.0f USD at %.2f USD (spot), %s", c->spot_usd, h->price_spot,
                       c->spot_goodput.share > 0 ? "with what is lost when nodes are taken away" : "without interruptions");
    orth_text_add(ctx, t, h->price_on_demand > 0 || h->price_spot > 0 ? "\n" : "; the description has no price\n");
}

static void add_goodput(orth_ctx *ctx, orth_text *t, const char *name, const orth_goodput *g)
{
    if (g->share > 0)
        orth_text_addf(ctx, t, "%s %.1f %% of the time makes progress: an interruption in %.3g h, a checkpoint of %.3g s every %.3g min\n", name,
                       100 * g->share, g->between_s / 3600, g->save_s, g->interval_s / 60);
}

static void add_answer(orth_ctx *ctx, orth_text *t, const orth_run_plan *p, const orth_hardware *h, const orth_cluster_plan *c)
{
    const orth_plan *w = &p->ranks[c->worst_rank];
    const double s = c->step_s;
    orth_text_addf(ctx, t, "%s %.2f GiB on rank %d, the worst, of %.2f GiB (%.1f of the device, %.1f reserved)\n",
                   w->fits ? "fits          " : "does not fit: ", gib(w->device_bytes), c->worst_rank, gib(w->limit_bytes),
                   h->device_memory_GiB, h->device_reserved_GiB);
    orth_text_addf(ctx, t, "step           %.6g s (estimate): computing %.1f %%, update %.1f %%, waiting %.1f %%, ", s,
                   100 * c->compute_s / s, 100 * c->update_s / s, 100 * c->wait_s / s);
    if (c->move_s > 0)
        orth_text_addf(ctx, t, "exposed copies %.1f %%, ", 100 * c->move_s / s);
    add_exposed(ctx, t, c);
    orth_text_addf(ctx, t, "\nspeed          %.6g tokens/s, %.5g a device; MFU %.3f, HFU %.3f\n", c->tokens_per_s,
                   c->tokens_per_s / p->num_ranks, c->mfu, c->hfu);
    add_cost(ctx, t, h, c);
    add_goodput(ctx, t, "goodput       ", &c->goodput);
    add_goodput(ctx, t, "goodput (spot)", &c->spot_goodput);
    orth_text_addf(ctx, t, "cluster        %d x %s, %.0f a node\n", p->num_ranks, h->device_name, h->node_devices);
}

/* With offload, only what is on the device. */
static size_t device_class(const orth_plan *p, orth_class c)
{
    const bool offloads = orth_memory_of_space(&p->memory, ORTH_SPACE_DEVICE) > 0;
    return offloads ? p->memory.of[ORTH_SPACE_DEVICE][c] : orth_memory_of_class(&p->memory, c);
}

/* A row for each pipeline stage: the rank of it that needs the most. */
static void add_memory(orth_ctx *ctx, orth_text *t, const orth_run_plan *p, const orth_cluster_plan *c)
{
    const int stages = p->partition.mesh.size[ORTH_AXIS_PP];
    orth_text_addf(ctx, t, "\nmemory in GiB (exact)%9s", "");
    for (int k = 0; k < ORTH_NUM_CLASSES; k++)
        orth_text_addf(ctx, t, " %11s", orth_class_name((orth_class)k));
    orth_text_addf(ctx, t, " %11s\n", "total");
    for (int stage = 0; stage < stages; stage++) {
        int worst = -1;
        for (int r = 0; r < p->num_ranks; r++)
            if (orth_mesh_coord(&p->partition.mesh, r, ORTH_AXIS_PP) == stage &&
                (worst < 0 || p->ranks[r].device_bytes > p->ranks[worst].device_bytes))
                worst = r;
        char name[48];
        snprintf(name, sizeof name, "stage %d, rank %d%s", stage, worst, worst == c->worst_rank ? ", worst" : "");
        orth_text_addf(ctx, t, "  %-28s", name);
        for (int k = 0; k < ORTH_NUM_CLASSES; k++)
            orth_text_addf(ctx, t, " %11.3f", gib(device_class(&p->ranks[worst], (orth_class)k)));
        orth_text_addf(ctx, t, " %11.3f\n", gib(p->ranks[worst].device_bytes));
    }
}

static void add_traffic(orth_ctx *ctx, orth_text *t, const orth_run_plan *p, const orth_hardware *h)
{
    int *ranks = ORTH_NEW_ARRAY(ctx, int, p->num_ranks);
    bool any = false;
    for (int g = 0; ranks && g < ORTH_NUM_GROUPS; g++) {
        int64_t bytes = 0;
        for (int k = 0; k < ORTH_NUM_COMM_KINDS; k++)
            bytes += p->total.traffic.ideal[g][k];
        if (bytes == 0)
            continue;
        if (!any)
            orth_text_addf(ctx, t, "\nsent by rings (exact)          GiB a rank  members  nodes  a node\n");
        any = true;
        int n = 0; /* of the first rank that has such a group */
        for (int r = 0; r < p->num_ranks && n < 2; r++)
            n = orth_partition_group(&p->partition, r, (orth_group)g, ranks);
        const orth_link_place place = orth_link_place_of(h, ranks, n);
        orth_text_addf(ctx, t, "  %-26s %12.4f %8d %6d %7d\n", orth_group_name((orth_group)g),
                       gib((size_t)bytes) / p->num_ranks, n, place.num_nodes, place.per_node);
    }
    t->failed = t->failed || !ranks;
    orth_mem_free(ctx, ranks);
}

char *orth_cluster_text(orth_ctx *ctx, const orth_run_plan *p, const orth_hardware *h, const orth_cluster_plan *c)
{
    orth_text t = {0};
    add_answer(ctx, &t, p, h, c);
    orth_text_addf(ctx, &t, "\nparameters     %" PRId64 "\ntokens a step  %" PRId64 "\nFLOPs a step   %.4e model, %.4e hardware\n",
                   p->total.num_elems, p->total.tokens, p->total.cost.model_flops, p->total.cost.hardware_flops);
    if (p->total.recomputed)
        orth_text_addf(ctx, &t, "recomputed     %s\n", p->total.recomputed);
    add_memory(ctx, &t, p, c);
    add_traffic(ctx, &t, p, h);
    return orth_text_take(ctx, &t);
}
