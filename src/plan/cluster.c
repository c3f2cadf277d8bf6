/* cluster.c -- see cluster.h. */
#include "plan/cluster.h"

#include <inttypes.h>
#include <math.h>
#include <xxhash.h>

#include "base/json_out.h"
#include "plan/mixed.h"
#include "plan/software.h"
#include "program/ir/comm_call.h"
#include "program/ir/cost.h"
#include "program/ir/instr_memo.h"

/* What the clock of the simulation asks: where the groups of the rank at hand lie. */
typedef struct {
    const orth_hardware *h;
    const orth_partition *partition;
    int *ranks;                             /* [num_ranks] room for a group */
    int rank;                               /* whose places these are; -1 */
    bool known[ORTH_NUM_GROUPS];
    orth_mixed_place place[ORTH_NUM_GROUPS];
    const orth_hardware *timed;             /* the device that these are of: */
    orth_instr_memo computed;
    double seconds[ORTH_MEMO_SLOTS];
} links;

static const orth_mixed_place *place_of(links *x, int rank, orth_group g)
{
    if (rank != x->rank)
        memset(x->known, 0, sizeof x->known);
    x->rank = rank;
    if (!x->known[g]) {
        const int n = orth_partition_group(x->partition, rank, g, x->ranks);
        x->place[g] = orth_mixed_place_of(x->h, x->ranks, n);
        x->known[g] = true;
    }
    return &x->place[g];
}

/* Of a message, whose two ends alone count. */
static orth_mixed_place place_of_message(links *x, int rank, orth_group g, int peer)
{
    orth_partition_group(x->partition, rank, g, x->ranks);
    const int ends[] = {rank, x->ranks[peer]};
    return orth_mixed_place_of(x->h, ends, 2);
}

/* Of the whole tensor, as orth_link_seconds counts. */
static double call_bytes(const orth_comm_call *c, int n)
{
    const bool blocks = c->kind == ORTH_COMM_ALL_GATHER || c->kind == ORTH_COMM_REDUCE_SCATTER || c->kind == ORTH_COMM_ALL_TO_ALL;
    int64_t elems = c->counts ? 0 : c->count * (blocks ? n : 1);
    for (int i = 0; c->counts && i < n; i++)
        elems += c->counts[i];
    return (double)elems * (double)orth_dtype_bytes(c->dtype);
}

/* A copy between memories, or an update by the host. */
static bool is_offloaded(const orth_program *p, const orth_instr *n)
{
    const bool near = n->num_out == 0 || n->out[0].buffer < 0 || p->buffers[n->out[0].buffer].space == p->space;
    return !near || orth_instr_moves(p, n);
}

/* Ranks that share the disks of a node. */
static int64_t file_sharers(const orth_hardware *h, int64_t num_ranks)
{
    return ORTH_MIN((int64_t)h->node_devices, num_ranks);
}

static double offloaded_seconds(const orth_hardware *h, int64_t num_ranks, const orth_program *p, const orth_instr *n)
{
    const double launch = 1e-6 * h->device_launch_us;
    if (!orth_instr_moves(p, n))
        return launch + orth_instr_cost(n).bytes / (1e9 * h->node_memory_GBps);
    if (!orth_instr_moves_file(p, n))
        return launch + (double)orth_operand_bytes(&n->out[0]) / (1e9 * h->node_host_GBps);
    const orth_file_rates file = orth_file_rates_of(h, file_sharers(h, num_ranks));
    return orth_file_seconds(&file, p, n);
}

/* Its shapes change when the program is bound to another rank (passes/views.h). */
static bool has_views(const orth_instr *n)
{
    bool any = false;
    for (int k = 0; k < orth_instr_num_operands(n); k++)
        any = any || orth_instr_operand(n, k)->view != ORTH_VIEW_SAME;
    return any;
}

/* Of a computing instruction. */
static double device_seconds(links *x, const orth_hardware *device, const orth_instr *n)
{
    bool known;
    if (has_views(n))
        return orth_device_seconds(device, n);
    if (x->timed != device)
        x->computed = (orth_instr_memo){{NULL}};
    x->timed = device;
    const int slot = orth_instr_memo_find(&x->computed, n, &known);
    if (!known)
        x->seconds[slot] = orth_device_seconds(device, n);
    return x->seconds[slot];
}

static double seconds(void *user, const orth_program *p, int32_t instr, int k, int rank, const orth_rank_groups *groups)
{
    links *x = user;
    const orth_instr *n = &p->instrs[instr];
    const orth_hardware *device = orth_mixed_device(x->h, rank);
    if (!orth_op_is_comm(n->op))
        return is_offloaded(p, n) ? offloaded_seconds(device, x->partition->mesh.num_ranks, p, n) : device_seconds(x, device, n);
    const orth_group g = n->attr->group;
    const orth_comm_call call = orth_instr_call(n, instr, k, groups->size[g]);
    const double bytes = call_bytes(&call, groups->size[g]);
    if (!orth_op_is_message(n->op))
        return orth_mixed_link_seconds(place_of(x, rank, g), call.kind, bytes);
    const orth_mixed_place place = place_of_message(x, rank, g, call.peer);
    return orth_mixed_link_seconds(&place, call.kind, bytes);
}

/* What the slowest group's links are asked for. */
static orth_port_load load(void *user, const orth_program *p, int32_t instr, int k, int rank, const orth_rank_groups *groups)
{
    links *x = user;
    const orth_instr *n = &p->instrs[instr];
    const orth_group g = n->attr->group;
    const orth_comm_call call = orth_instr_call(n, instr, k, groups->size[g]);
    const bool sends = call.kind != ORTH_COMM_RECV, receives = call.kind != ORTH_COMM_SEND;
    const orth_mixed_place place = orth_op_is_message(n->op) ? place_of_message(x, rank, g, call.peer) : *place_of(x, rank, g);
    double node, network;
    orth_mixed_link_load(&place, call.kind, call_bytes(&call, groups->size[g]), &node, &network);
    const float of[ORTH_NUM_PORTS] = {[ORTH_PORT_NODE_OUT] = sends ? (float)node : 0, [ORTH_PORT_NODE_IN] = receives ? (float)node : 0,
                                      [ORTH_PORT_NETWORK_OUT] = sends ? (float)network : 0, [ORTH_PORT_NETWORK_IN] = receives ? (float)network : 0};
    orth_port_load out = {.used = node > 0 || network > 0};
    memcpy(out.of, of, sizeof of);
    return out;
}

size_t orth_cluster_rank_limit(const orth_hardware *h, int rank)
{
    const orth_hardware *device = orth_mixed_device(h, rank);
    return (size_t)orth_hardware_room(device);
}

/* Of nodes with 8 devices and a figure, it is 1.2 to 3.2 times the memory of the devices. */
size_t orth_cluster_node_limit(const orth_hardware *h, int rank)
{
    const orth_hardware *own = orth_mixed_device(h, rank);
    return (size_t)(0x1p30 * (own->node_memory_GiB > 0 ? own->node_memory_GiB : 2 * own->device_memory_GiB * own->node_devices));
}

size_t orth_cluster_file_limit(const orth_hardware *h, int rank)
{
    return (size_t)(0x1p30 * orth_mixed_device(h, rank)->node_file_GiB);
}

/* The least, or the most, of all kinds of devices. */
static size_t limit_of_groups(const orth_hardware *h, size_t (*limit)(const orth_hardware *h, int rank), bool least)
{
    size_t found = limit(h, 0);
    for (int i = 1; h->mixed && i < h->mixed->num_groups; i++) {
        const size_t own = limit(h, (int)h->mixed->group[i].first);
        found = least ? ORTH_MIN(found, own) : ORTH_MAX(found, own);
    }
    return found;
}

size_t orth_cluster_most_node_limit(const orth_hardware *h)
{
    return limit_of_groups(h, orth_cluster_node_limit, false);
}

size_t orth_cluster_least_node_limit(const orth_hardware *h)
{
    return limit_of_groups(h, orth_cluster_node_limit, true);
}

size_t orth_cluster_most_file_limit(const orth_hardware *h)
{
    const bool known = limit_of_groups(h, orth_cluster_file_limit, true) > 0;
    return known ? limit_of_groups(h, orth_cluster_file_limit, false) : 0;
}

size_t orth_cluster_least_limit(const orth_hardware *h)
{
    return limit_of_groups(h, orth_cluster_rank_limit, true);
}

/* ---- kinds of ranks ---- */

static uint64_t add_place(uint64_t hash, const orth_mixed_place *p)
{
    for (int i = 0; i < p->num; i++) {
        const orth_link_place *place = &p->place[i];
        const uint64_t part[] = {hash, (uint64_t)(uintptr_t)p->hardware[i], (uint64_t)place->n, (uint64_t)place->per_node, (uint64_t)place->num_nodes,
                                 (uint64_t)place->fewest, place->leaves_pod};
        hash = XXH64(part, sizeof part, 0);
    }
    return hash;
}

/* How each of the n members in x->ranks lies to `rank`. */
static uint64_t add_pairs(uint64_t hash, const links *x, int rank, int n)
{
    for (int i = 0; i < n; i++) {
        const int ends[] = {rank, x->ranks[i]};
        const orth_mixed_place pair = orth_mixed_place_of(x->h, ends, 2);
        const uint64_t part[] = {hash, (uint64_t)(uintptr_t)pair.hardware[0], (uint64_t)pair.num, pair.place[0].same_node, pair.place[0].leaves_pod};
        hash = XXH64(part, sizeof part, 0);
    }
    return hash;
}

/* Adds to the hashes of all ranks how their groups g lie. A group has one place, whichever member asks for it, and may have all ranks: each is walked
 * once. What messages between members depend on is another for each pair. */
static void add_groups_of(links *x, orth_group g, int num_ranks, uint64_t *hashes, bool *seen)
{
    const bool has_messages = g == ORTH_GROUP_PP || g == ORTH_GROUP_CP;
    memset(seen, 0, (size_t)num_ranks * sizeof *seen);
    for (int r = 0; r < num_ranks; r++) {
        const int n = seen[r] ? 0 : orth_partition_group(x->partition, r, g, x->ranks);
        if (n == 0)
            continue;
        const orth_mixed_place place = orth_mixed_place_of(x->h, x->ranks, n);
        for (int i = 0; i < n; i++) {
            uint64_t *hash = &hashes[x->ranks[i]];
            seen[x->ranks[i]] = true;
            *hash = add_place(*hash, &place);
            *hash = has_messages ? add_pairs(*hash, x, x->ranks[i], n) : *hash;
        }
    }
}

/* kinds [num_ranks]: the first rank whose hash is the same. */
static void number_kinds(int num_ranks, const uint64_t *hashes, int32_t *firsts, int32_t *kinds)
{
    int num = 0;
    for (int r = 0; r < num_ranks; r++) {
        int k = 0;
        while (k < num && hashes[firsts[k]] != hashes[r])
            k++;
        if (k == num)
            firsts[num++] = r;
        kinds[r] = firsts[k];
    }
}

/* Kinds of what the times of a rank depend on beside its program: its device, and how its groups lie. Of groups with messages, how each member
 * lies to it, too. */
static orth_status find_kinds(orth_ctx *ctx, links *x, int num_ranks, int32_t *kinds)
{
    uint64_t *hashes = ORTH_NEW_ARRAY(ctx, uint64_t, num_ranks);
    int32_t *firsts = ORTH_NEW_ARRAY(ctx, int32_t, num_ranks);
    bool *seen = ORTH_NEW_ARRAY(ctx, bool, num_ranks);
    const bool all = hashes && firsts && seen;
    for (int r = 0; all && r < num_ranks; r++)
        hashes[r] = (uint64_t)orth_mixed_group_of(x->h, r);
    for (int g = 0; all && g < ORTH_NUM_GROUPS; g++)
        add_groups_of(x, (orth_group)g, num_ranks, hashes, seen);
    if (all)
        number_kinds(num_ranks, hashes, firsts, kinds);
    orth_mem_free(ctx, hashes);
    orth_mem_free(ctx, firsts);
    orth_mem_free(ctx, seen);
    return all ? ORTH_OK : ORTH_ERR_NOMEM;
}

/* The node whose files take longest. */
static void set_file_floor(orth_run_plan *p, const orth_hardware *h)
{
    p->total.file_floor_s = 0;
    for (int r = 0, next; r < p->num_ranks; r = next) {
        const orth_hardware *device = orth_mixed_device(h, r);
        const int64_t sharers = file_sharers(device, p->num_ranks);
        const orth_file_rates each = orth_file_rates_of(device, sharers);
        orth_plan node = {.total_bytes = 0};
        next = (int)ORTH_MIN(r + sharers, p->num_ranks);
        for (int k = r; k < next; k++)
            orth_plan_add_file_moves(&node, &p->ranks[k]);
        orth_plan_set_file_floor(&node, &each, (double)sharers);
        if (node.file_floor_s > p->total.file_floor_s) {
            p->total.file_rates = node.file_rates;
            p->total.file_floor_s = node.file_floor_s;
        }
    }
}

#define TOKEN_BYTES 4 /* of a shard with a large vocabulary; others store 2 */

/* Reading the tokens of a step, of the rank for which it takes longest. Each rank of a node reads for itself. */
static double loading_s(const orth_run_plan *p, const orth_hardware *h)
{
    const orth_layout *l = &p->partition.layout;
    double longest = 0;
    for (int r = 0; r < p->num_ranks; r++) {
        const orth_hardware *device = orth_mixed_device(h, r);
        const int64_t sequences = orth_layout_share(l, p->ranks[r].coords.dp);
        const orth_file_rates rates = orth_file_rates_of(device, file_sharers(device, p->num_ranks));
        longest = fmax(longest, (double)(sequences * l->seq_len / l->cp * TOKEN_BYTES) / rates.read);
    }
    return longest;
}

/* A thread of each rank reads the next step's tokens: only what takes longer than a step is waited for. */
static void add_loading(orth_run_plan *p, const orth_hardware *h)
{
    orth_plan *total = &p->total;
    total->loading_s = loading_s(p, h);
    total->data_s = fmax(0, total->loading_s - total->time.step_s);
    total->time.step_s += total->data_s;
}

static void set_limits(orth_run_plan *p, const orth_hardware *h)
{
    for (int r = 0; r < p->num_ranks; r++) {
        const size_t device = orth_cluster_rank_limit(h, r), given = p->ranks[r].device_limit_bytes;
        p->ranks[r].limit_bytes = given > 0 ? ORTH_MIN(given, device) : device;
        p->ranks[r].fits = p->ranks[r].device_bytes <= p->ranks[r].limit_bytes;
    }
}

/* Of what is not limited next to nothing is used. */
static double part_used(const orth_node_use *u)
{
    return (double)u->bytes / (u->limit > 0 ? (double)u->limit : (double)SIZE_MAX);
}

/* What ranks of a node have in one of its spaces, of the node that has the least left of that. */
static orth_node_use node_use(const orth_run_plan *p, const orth_hardware *h, orth_space space)
{
    orth_node_use most = {0, 0};
    size_t bytes = 0;
    for (int r = 0; r < p->num_ranks; r++) {
        const bool files = space == ORTH_SPACE_FILE;
        const size_t own = files ? orth_cluster_file_limit(h, r) : orth_cluster_node_limit(h, r);
        const size_t given = files ? p->ranks[r].file_limit_bytes : p->ranks[r].host_limit_bytes; /* 0: none */
        if (r > 0 && orth_mixed_node_of(h, r) != orth_mixed_node_of(h, r - 1))
            bytes = 0;
        bytes += orth_memory_of_space(&p->ranks[r].memory, space);
        const orth_node_use now = {bytes, given > 0 && (own == 0 || given < own) ? given : own};
        if (part_used(&now) > part_used(&most))
            most = now;
    }
    return most;
}

static void sum_up(orth_run_plan *p, const orth_hardware *h, orth_cluster_plan *c)
{
    const int n = p->num_ranks;
    const double peak = n * c->peak.flops; /* of all */
    for (int r = 0; r < n; r++) {
        const orth_rank_time *t = &p->ranks[r].time;
        c->compute_s += (t->compute_s - t->update_s) / n;
        c->update_s += t->update_s / n;
        c->move_s += t->move_s / n;
        c->wait_s += t->wait_s / n;
        for (int g = 0; g < ORTH_NUM_GROUPS; g++)
            c->exposed_s[g] += t->comm_by_group[g] / n;
    }
    orth_plan_price_total(&p->total, p->ranks, n, peak);
    snprintf(p->total.peak_name, sizeof p->total.peak_name, "%s", c->peak.name);
    if (orth_memory_of_space(&p->total.memory, ORTH_SPACE_DEVICE) > 0) {
        p->total.node_host = node_use(p, h, ORTH_SPACE_HOST);
        p->total.node_files = node_use(p, h, ORTH_SPACE_FILE);
    }
    p->total.fits = p->ranks[c->worst_rank].fits && part_used(&p->total.node_host) <= 1 && part_used(&p->total.node_files) <= 1;
    p->total.limit_bytes = p->ranks[c->worst_rank].limit_bytes;
    p->total.worst_bytes = p->ranks[c->worst_rank].device_bytes;
    p->total.lower_bound_bytes = p->ranks[c->worst_rank].lower_bound_bytes;
    set_file_floor(p, h);
    add_loading(p, h);
    c->step_s = p->total.time.step_s;
    c->tokens_per_s = (double)p->total.tokens / c->step_s;
    c->mfu = p->total.cost.model_flops / c->step_s / peak;
    c->hfu = p->total.cost.hardware_flops / c->step_s / peak;
}

static void close_timing(orth_ctx *ctx, links *x, orth_timing *timing)
{
    orth_mem_free(ctx, x->ranks);
    orth_mem_free(ctx, (void *)timing->kind_of);
}

/* A clock that asks x, of which hardware and partition are set. */
static orth_status open_timing(orth_ctx *ctx, links *x, int num_ranks, orth_timing *out)
{
    const bool alike = !x->h->mixed && x->h->network_pod_nodes == 0 && orth_mesh_hosts_are_alike(&x->partition->mesh, (int)x->h->node_devices);
    int32_t *kinds = alike ? NULL : ORTH_NEW_ARRAY(ctx, int32_t, num_ranks);
    x->rank = -1;
    x->ranks = ORTH_NEW_ARRAY(ctx, int, num_ranks);
    *out = (orth_timing){.seconds = seconds, .user = x, .kind_of = kinds, .host_is_beside = true};
    orth_status s = x->ranks && (kinds || alike) ? ORTH_OK : ORTH_ERR_NOMEM;
    if (s == ORTH_OK && kinds)
        s = find_kinds(ctx, x, num_ranks, kinds);
    if (s != ORTH_OK)
        close_timing(ctx, x, out);
    return s;
}

orth_status orth_cluster_price(orth_ctx *ctx, orth_run_plan *p, const orth_hardware *h, orth_dtype compute, int64_t steps,
                               const char *timeline, orth_cluster_plan *out)
{
    orth_device_peak peak;
    ORTH_TRY(orth_device_peak_of(ctx, h, compute, p->programs.spec.step.products, &peak));
    links x = {.h = h, .partition = &p->partition};
    orth_timing timing;
    ORTH_TRY(open_timing(ctx, &x, p->num_ranks, &timing));
    timing.load = load;
    set_limits(p, h);
    const orth_status s = orth_run_plan_time(ctx, p, &timing, timeline);
    close_timing(ctx, &x, &timing);
    ORTH_TRY(s);
    *out = (orth_cluster_plan){.steps = (double)steps, .worst_rank = orth_run_plan_worst(p), .peak = peak};
    sum_up(p, h, out);
    const orth_rent rent = orth_rent_of(h, p->num_ranks, p->total.num_elems);
    const double busy_h = fmax(out->steps, 0) * out->step_s / 3600;
    out->goodput = rent.goodput;
    out->spot_goodput = rent.spot_goodput;
    if (isinf(rent.hours))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: the section `failures` leaves no time for progress: an interruption in %.3g h, and a checkpoint of "
                         "%.3g GB takes %.3g h", h->mixed ? h->device_name : h->file, out->goodput.between_s / 3600,
                         out->goodput.save_s * h->failures_storage_GBps, out->goodput.save_s / 3600);
    out->days = busy_h * rent.hours / 24;
    out->on_demand_usd = busy_h * rent.on_demand_usd;
    out->spot_usd = busy_h * rent.spot_usd;
    p->total.goodput = out->goodput.share;
    p->total.steps_known = out->steps >= 0;
    p->total.days = out->days;
    p->total.on_demand_usd = out->on_demand_usd;
    p->total.has_on_demand = h->has_on_demand;
    p->total.spot_usd = out->spot_usd;
    p->total.spot_goodput = out->spot_goodput.share;
    return ORTH_OK;
}

orth_status orth_cluster_clocks(orth_ctx *ctx, const orth_rank_source *source, const orth_partition *partition, const orth_hardware *h,
                                int64_t *const *clocks)
{
    links x = {.h = h, .partition = partition};
    orth_timing timing;
    ORTH_TRY(open_timing(ctx, &x, source->num_ranks, &timing));
    orth_rank_time *times = ORTH_NEW_ARRAY(ctx, orth_rank_time, source->num_ranks);
    const orth_status s = times ? orth_simulate_step(ctx, source, &timing, times, clocks) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, times);
    close_timing(ctx, &x, &timing);
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

static void add_cost(orth_ctx *ctx, orth_text *t, const orth_run_plan *p, const orth_hardware *h, const orth_cluster_plan *c)
{
    const bool none = orth_goodput_is_none(&c->spot_goodput);
    if (c->steps < 0) {
        orth_text_addf(ctx, t, "the whole run  not known: %s\n", p->total.no_steps);
        return;
    }
    if (c->steps == 0) {
        orth_text_add(ctx, t, "the whole run  0 steps (train.steps=0), which take no time\n");
        return;
    }
    orth_text_addf(ctx, t, "the whole run  %.0f steps take %.3g days (estimate)", c->steps, c->days);
    if (h->has_on_demand)
        orth_text_addf(ctx, t, ", %.0f USD at %.2f USD a device and hour", c->on_demand_usd, h->price_on_demand);
    if (h->price_spot > 0 && none)
        orth_text_addf(ctx, t, "%s on spot nodes it does not end: it makes no progress there", h->has_on_demand ? ";" : ",");
    else if (h->price_spot > 0 && h->price_spot_share < 1)
        orth_text_addf(ctx, t, ", %.0f USD with %.0f %% of the nodes at %.2f USD (spot)", c->spot_usd, 100 * h->price_spot_share, h->price_spot);
    else if (h->price_spot > 0)
        orth_text_addf(ctx, t, ", %.0f USD at %.2f USD (spot)", c->spot_usd, h->price_spot);
    if (h->price_spot > 0 && !none)
        orth_text_addf(ctx, t, ", %s", c->spot_goodput.share > 0 ? "with what is lost when nodes are taken away" : "without interruptions");
    orth_text_add(ctx, t, h->has_on_demand || h->price_spot > 0 ? "\n" : "; the description has no price\n");
}

static void add_goodput(orth_ctx *ctx, orth_text *t, const char *name, const orth_goodput *g, double restart_s)
{
    if (g->share > 0)
        orth_text_addf(ctx, t, "%s %.1f %% of the time makes progress (estimate): an interruption in %.3g h, a checkpoint of %.3g s every %.3g min\n", name,
                       100 * g->share, g->between_s / 3600, g->save_s, g->interval_s / 60);
    else if (orth_goodput_is_none(g))
        orth_text_addf(ctx, t, "%s no progress (estimate): an interruption in %.3g h, a checkpoint of %.3g s, and a restart of %.3g s\n", name, g->between_s / 3600,
                       g->save_s, restart_s);
}

orth_group_figures orth_cluster_group(const orth_run_plan *p, const orth_device_group *g, const orth_cluster_plan *c)
{
    orth_group_figures f = {.busiest = &p->ranks[g->first].time, .limit = orth_cluster_rank_limit(&g->own, 0)};
    for (int64_t r = g->first; r < g->first + g->num_devices; r++) {
        f.busiest = p->ranks[r].time.compute_s > f.busiest->compute_s ? &p->ranks[r].time : f.busiest;
        f.most = ORTH_MAX(f.most, p->ranks[r].device_bytes);
    }
    f.usd = c->days > 0 && g->own.has_on_demand ? 24 * c->days * (double)g->num_devices * g->own.price_on_demand : NAN;
    return f;
}

static void add_group(orth_ctx *ctx, orth_text *t, const orth_run_plan *p, const orth_device_group *g, const orth_cluster_plan *c)
{
    const orth_group_figures f = orth_cluster_group(p, g, c);
    orth_text_addf(ctx, t, "  %-16s %4" PRId64 " x %-32s %9.2f %11.2f %10.1f %9.1f", g->name, g->num_devices, g->own.device_name, gib(f.most),
                   gib(f.limit), 100 * f.busiest->compute_s / c->step_s, 100 * f.busiest->wait_s / c->step_s);
    if (!isnan(f.usd))
        orth_text_addf(ctx, t, " %11.0f\n", f.usd);
    else
        orth_text_addf(ctx, t, " %11s\n", "-");
}

static void add_groups(orth_ctx *ctx, orth_text *t, const orth_run_plan *p, const orth_mixed *m, const orth_cluster_plan *c)
{
    orth_text_addf(ctx, t, "\ngroup of devices %43s %9s %11s %10s %9s %11s\n", "", "GiB", "there are", "computing", "waiting", "USD");
    for (int i = 0; i < m->num_groups; i++)
        add_group(ctx, t, p, &m->group[i], c);
}

char *orth_cluster_groups_json(orth_ctx *ctx, const orth_run_plan *p, const orth_mixed *m, const orth_cluster_plan *c)
{
    orth_text t = {0};
    orth_json_out j = {ctx, &t};
    orth_json_open(&j, NULL, '[');
    for (int i = 0; i < m->num_groups; i++) {
        const orth_group_figures f = orth_cluster_group(p, &m->group[i], c);
        orth_json_open(&j, NULL, '{');
        orth_json_string(&j, "name", m->group[i].name);
        orth_json_string(&j, "device", m->group[i].own.device_name);
        orth_json_print(&j, "devices", "%" PRId64, m->group[i].num_devices);
        orth_json_print(&j, "bytes", "%zu", f.most);
        orth_json_print(&j, "limit", "%zu", f.limit);
        orth_json_print(&j, "compute_s", "%.9g", f.busiest->compute_s);
        orth_json_print(&j, "wait_s", "%.9g", f.busiest->wait_s);
        orth_json_number(&j, "usd", f.usd);
        orth_json_close(&j, '}');
    }
    orth_json_close(&j, ']');
    return orth_text_take(ctx, &t);
}

static void add_products(orth_ctx *ctx, orth_text *t, const orth_run_plan *p, const orth_hardware *h)
{
    orth_text text = {0};
    orth_device_say_products(ctx, &text, h, p->programs.spec.step.products);
    if (text.num_bytes > 0)
        orth_text_addf(ctx, t, "products       %s\n", text.s);
    t->failed = t->failed || text.failed;
    orth_mem_free(ctx, text.s);
}

void orth_cluster_warn_products(orth_ctx *ctx, const orth_run_plan *p, const orth_hardware *h)
{
    orth_text text = {0};
    orth_device_say_products(ctx, &text, h, p->programs.spec.step.products);
    if (text.num_bytes > 0)
        orth_log(ctx, ORTH_LOG_WARN, "products", "precision.products: %s", text.s);
    orth_mem_free(ctx, text.s);
}

/* fp32 is the default of a run: on a device that is many times as fast in bf16, few want it. */
static void add_slow_type(orth_ctx *ctx, orth_text *t, const orth_run_plan *p, const orth_hardware *device)
{
    const double here = device->device_fp32_tflops, there = device->device_bf16_tflops;
    if (p->programs.spec.step.compute == ORTH_F32 && there > 1.5 * here)
        orth_text_addf(ctx, t, "precision      fp32, in which the device computes %.3g TFLOP/s; in bf16 %.4g (precision.compute=bf16)\n", here, there);
}

static void add_nodes(orth_ctx *ctx, orth_text *t, const orth_node_use *host, const orth_node_use *files)
{
    static const char much[] = ", which is too much";
    if (host->bytes > 0)
        orth_text_addf(ctx, t, "host           %.2f GiB in the memory of the host of a node%s, of %.6g GiB\n", gib(host->bytes),
                       part_used(host) > 1 ? much : "", gib(host->limit));
    if (files->bytes > 0 && files->limit > 0)
        orth_text_addf(ctx, t, "files          %.2f GiB on the disks of a node%s, of %.6g GiB\n", gib(files->bytes), part_used(files) > 1 ? much : "",
                       gib(files->limit));
    else if (files->bytes > 0)
        orth_text_addf(ctx, t, "files          %.2f GiB on the disks of a node; what they hold is not known (node.file_GiB)\n", gib(files->bytes));
}

static void add_answer(orth_ctx *ctx, orth_text *t, const orth_run_plan *p, const orth_hardware *h, const orth_cluster_plan *c)
{
    const orth_plan *w = &p->ranks[c->worst_rank];
    const orth_hardware *device = orth_mixed_device(h, c->worst_rank);
    const double s = c->step_s;
    orth_text_addf(ctx, t, "%s %.2f GiB on rank %d, the worst, of %.2f GiB (%.1f of the device, %.1f reserved); the most during %s (",
                   p->total.fits ? "fits          " : "does not fit: ", gib(w->device_bytes), c->worst_rank, gib(w->limit_bytes),
                   device->device_memory_GiB, device->device_reserved_GiB, orth_op_name(w->peak.op));
    orth_peak_add_moment(ctx, t, &w->peak);
    orth_text_add(ctx, t, ")\n");
    add_nodes(ctx, t, &p->total.node_host, &p->total.node_files);
    orth_text_addf(ctx, t, "step           %.6g s (estimate): computing %.1f %%, update %.1f %%, data %.1f %%, waiting %.1f %%, ", s,
                   100 * c->compute_s / s, 100 * c->update_s / s, 100 * p->total.data_s / s, 100 * c->wait_s / s);
    if (c->move_s > 0)
        orth_text_addf(ctx, t, "exposed copies %.1f %%, ", 100 * c->move_s / s);
    add_exposed(ctx, t, c);
    orth_text_addf(ctx, t, "\nspeed          %.6g tokens/s, %.5g a device; MFU %.3f, HFU %.3f", c->tokens_per_s,
                   c->tokens_per_s / p->num_ranks, c->mfu, c->hfu);
    orth_device_peak_say(ctx, t, &c->peak);
    orth_text_add(ctx, t, " (estimates)\n");
    add_slow_type(ctx, t, p, device);
    add_cost(ctx, t, p, h, c);
    add_goodput(ctx, t, "goodput       ", &c->goodput, h->failures_restart_s);
    add_goodput(ctx, t, "goodput (spot)", &c->spot_goodput, h->failures_restart_s);
    add_products(ctx, t, p, h);
    if (h->mixed)
        orth_text_addf(ctx, t, "cluster        %d devices in %d groups: %s\n", p->num_ranks, h->mixed->num_groups, h->device_name);
    else
        orth_text_addf(ctx, t, "cluster        %d x %s, %.0f a node\n", p->num_ranks, h->device_name, h->node_devices);
}

/* A row for each pipeline stage: the rank of it that needs the most. */
static void add_memory(orth_ctx *ctx, orth_text *t, const orth_run_plan *p, const orth_cluster_plan *c)
{
    const int stages = p->partition.mesh.size[ORTH_AXIS_PP];
    const orth_space s = orth_memory_of_kernels(&p->total.memory);
    orth_text_addf(ctx, t, "\nmemory in GiB (exact)%9s", "");
    for (int k = 0; k < ORTH_NUM_CLASSES; k++)
        orth_text_addf(ctx, t, " %11s", orth_class_name((orth_class)k));
    orth_text_addf(ctx, t, " %11s\n", "total");
    for (int stage = 0; stage < stages; stage++) {
        const int worst = orth_run_plan_worst_of_stage(p, stage, s);
        char name[48];
        snprintf(name, sizeof name, "stage %d, rank %d%s", stage, worst, worst == c->worst_rank ? ", worst" : "");
        orth_text_addf(ctx, t, "  %-28s", name);
        for (int k = 0; k < ORTH_NUM_CLASSES; k++)
            orth_text_addf(ctx, t, " %11.3f", gib(p->ranks[worst].memory.of[s][k]));
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
        const orth_link_place place = orth_mixed_place_of(h, ranks, n).place[0];
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
    orth_text_addf(ctx, &t, "\nparameters     %" PRId64 "\ntokens a step  %" PRId64 "\nFLOPs a step   %.4e model, %.4e hardware (exact)\n",
                   p->total.num_elems, p->total.tokens, p->total.cost.model_flops, p->total.cost.hardware_flops);
    if (p->total.recomputed)
        orth_text_addf(ctx, &t, "recomputed     %s\n", p->total.recomputed);
    orth_software_add_error(ctx, &t);
    orth_plan_add_file_floor(ctx, &t, &p->total, true);
    if (h->mixed)
        add_groups(ctx, &t, p, h->mixed, c);
    add_memory(ctx, &t, p, c);
    add_traffic(ctx, &t, p, h);
    return orth_text_take(ctx, &t);
}
