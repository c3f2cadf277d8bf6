/* plan.c -- see plan.h. */
#include "plan/plan.h"

#include <inttypes.h>
#include <math.h>

#include "base/text.h"
#include "plan/software.h"

static void count_bytes(orth_plan *plan, const orth_program *p)
{
    plan->total_bytes = orth_program_bytes(p);
    plan->device_bytes = p->space_bytes[p->space];
    plan->peak = orth_peak_moment_of(p, p->space);
    plan->file_bytes = p->space_bytes[ORTH_SPACE_FILE];
    plan->file_moves = orth_file_moves_of(p);
    plan->lower_bound_bytes = p->lower_bound;
    for (int s = 0; s < ORTH_NUM_SPACES; s++)
        plan->arenas[s] = (orth_arena_use){p->transient_offset[s], p->transient_offset[s] + p->peak_bytes[s], p->space_bytes[s]};
    memcpy(plan->memory.of, p->class_bytes, sizeof plan->memory.of);
    plan->fits = plan->limit_bytes == 0 || plan->total_bytes <= plan->limit_bytes;
}

orth_plan orth_plan_of(const orth_program *p, int64_t num_elems, int64_t num_trained, size_t limit_bytes)
{
    orth_plan plan = {.limit_bytes = limit_bytes, .cost = orth_program_cost(p), .tokens = p->num_tokens,
                      .num_elems = num_elems, .num_trained = num_trained, .num_instrs = p->num_instrs};
    count_bytes(&plan, p);
    return plan;
}

orth_plan orth_plan_of_views(const orth_plan *like, const orth_cost *own, const orth_program *p)
{
    orth_plan plan = *like;
    const orth_cost now = orth_program_cost_of_own(p);
    plan.cost.model_flops += now.model_flops - own->model_flops;
    plan.cost.hardware_flops += now.hardware_flops - own->hardware_flops;
    plan.cost.bytes += now.bytes - own->bytes;
    count_bytes(&plan, p);
    return plan;
}

static double gib(size_t bytes)
{
    return (double)bytes / (double)(1 << 30);
}

void orth_plan_budgets(const orth_plan *p, orth_budget out[ORTH_NUM_BUDGETS])
{
    static const orth_budget none[ORTH_NUM_BUDGETS] = {[ORTH_BUDGET_ALL] = {"", "memory.limit"},
                                                       [ORTH_BUDGET_DEVICE] = {"in the device memory of a rank", "memory.limit_device"},
                                                       [ORTH_BUDGET_HOST] = {"in the host's memory", "memory.limit_host"},
                                                       [ORTH_BUDGET_FILES] = {"in files", "memory.limit_file"}};
    memcpy(out, none, sizeof none);
    out[ORTH_BUDGET_ALL].bytes = p->worst_bytes ? p->worst_bytes : p->total_bytes;
    out[ORTH_BUDGET_ALL].limit = p->limit_bytes;
    if (p->worst_bytes) {
        out[ORTH_BUDGET_ALL].where = "on the rank that needs the most";
        out[ORTH_BUDGET_ALL].key = p->device_limit_bytes == p->limit_bytes ? "memory.limit_device" : "the device's memory";
        out[ORTH_BUDGET_HOST] = (orth_budget){"in the host's memory of a node", p->host_limit_bytes == p->node_host.limit ? "memory.limit_host" : "node.memory_GiB",
                                              p->node_host.bytes, p->node_host.limit};
        out[ORTH_BUDGET_FILES] = (orth_budget){"on the disks of a node", p->file_limit_bytes == p->node_files.limit ? "memory.limit_file" : "node.file_GiB",
                                               p->node_files.bytes, p->node_files.limit};
        return;
    }
    if (orth_memory_of_space(&p->memory, ORTH_SPACE_DEVICE) == 0) /* one memory only */
        return;
    out[ORTH_BUDGET_DEVICE].bytes = p->device_bytes;
    out[ORTH_BUDGET_DEVICE].limit = p->device_limit_bytes;
    out[ORTH_BUDGET_HOST].bytes = orth_memory_of_space(&p->memory, ORTH_SPACE_HOST);
    out[ORTH_BUDGET_HOST].limit = p->host_limit_bytes;
    out[ORTH_BUDGET_FILES].bytes = p->file_bytes;
    out[ORTH_BUDGET_FILES].limit = p->file_limit_bytes;
    if (p->file_limit_is_room)
        out[ORTH_BUDGET_FILES].key = "free in memory.offload_dir";
}

bool orth_budget_exceeded(const orth_budget *b)
{
    return b->limit > 0 && b->bytes > b->limit;
}

/* NULL: the plan fits. */
static const orth_budget *first_exceeded(const orth_budget b[ORTH_NUM_BUDGETS])
{
    for (int k = 0; k < ORTH_NUM_BUDGETS; k++)
        if (orth_budget_exceeded(&b[k]))
            return &b[k];
    return NULL;
}

typedef struct {
    const char *name;
    double bytes;
    int digits; /* behind the point */
} unit;

/* In which both sides of a comparison show digits, and different ones. */
static unit unit_for(size_t bytes, size_t limit)
{
    const bool small = bytes < (size_t)10 << 30 || limit < (size_t)1 << 30;
    const unit u = small ? (unit){"MiB", 0x1p20, 2} : (unit){"GiB", 0x1p30, 2};
    return limit < (size_t)1 << 20 || fabs((double)bytes - (double)limit) < 0.01 * u.bytes ? (unit){"B", 1, 0} : u;
}

static bool all_fits(const orth_plan *p)
{
    orth_budget b[ORTH_NUM_BUDGETS];
    orth_plan_budgets(p, b);
    return !first_exceeded(b);
}

/* Of the first memory that is too small. */
static void reasons(const orth_plan *p, char *out, size_t n)
{
    orth_budget budgets[ORTH_NUM_BUDGETS];
    orth_plan_budgets(p, budgets);
    const orth_budget *b = p->fits ? NULL : first_exceeded(budgets);
    out[0] = '\0';
    if (!b)
        return;
    const unit u = unit_for(b->bytes, b->limit);
    snprintf(out, n, "%.*f %s planned%s%s exceed the limit of %.*f %s", u.digits, (double)b->bytes / u.bytes, u.name, b->where[0] ? " " : "", b->where,
             u.digits, (double)b->limit / u.bytes, u.name);
}

orth_plan orth_plan_total(const orth_plan *plans, int num_ranks, int64_t tokens, size_t limit_bytes)
{
    orth_plan sum = {.limit_bytes = limit_bytes, .tokens = tokens, .num_elems = plans[0].num_elems, .num_trained = plans[0].num_trained,
                     .recomputed = plans[0].recomputed, .device_limit_bytes = plans[0].device_limit_bytes,
                     .host_limit_bytes = plans[0].host_limit_bytes, .file_limit_bytes = plans[0].file_limit_bytes,
                     .file_limit_is_room = plans[0].file_limit_is_room};
    for (int k = 0; k < num_ranks; k++) {
        for (int s = 0; s < ORTH_NUM_SPACES; s++)
            for (int c = 0; c < ORTH_NUM_CLASSES; c++)
                sum.memory.of[s][c] += plans[k].memory.of[s][c];
        for (int o = 0; o < ORTH_NUM_OUTSIDE; o++)
            sum.outside.of[o] += plans[k].outside.of[o];
        sum.total_bytes += plans[k].total_bytes;
        sum.device_bytes = ORTH_MAX(sum.device_bytes, plans[k].device_bytes);
        sum.file_bytes += plans[k].file_bytes;
        orth_plan_add_file_moves(&sum, &plans[k]);
        sum.lower_bound_bytes += plans[k].lower_bound_bytes;
        sum.cost.model_flops += plans[k].cost.model_flops;
        sum.cost.hardware_flops += plans[k].cost.hardware_flops;
        sum.cost.bytes += plans[k].cost.bytes;
        orth_traffic_add(&sum.traffic, &plans[k].traffic);
    }
    sum.fits = all_fits(&sum);
    return sum;
}

void orth_plan_add_file_moves(orth_plan *sum, const orth_plan *rank)
{
    sum->file_moves.read += rank->file_moves.read;
    sum->file_moves.written += rank->file_moves.written;
}

void orth_plan_set_file_floor(orth_plan *sum, const orth_file_rates *each, double sharers)
{
    sum->file_rates = orth_file_rates_times(each, sharers);
    sum->file_floor_s = orth_file_floor(&sum->file_rates, &sum->file_moves);
}

void orth_plan_price_total(orth_plan *total, const orth_plan *ranks, int num_ranks, double peak_flops)
{
    total->peak_flops = peak_flops;
    total->time = (orth_rank_time){.step_s = ranks[0].time.step_s};
    for (int r = 0; r < num_ranks; r++) {
        total->time.compute_s += ranks[r].time.compute_s / num_ranks;
        total->time.comm_s += ranks[r].time.comm_s / num_ranks;
        total->time.move_s += ranks[r].time.move_s / num_ranks;
        total->time.wait_s += ranks[r].time.wait_s / num_ranks;
        total->time.update_s += ranks[r].time.update_s / num_ranks;
        for (int g = 0; g < ORTH_NUM_GROUPS; g++)
            total->time.comm_by_group[g] += ranks[r].time.comm_by_group[g] / num_ranks;
    }
}

static void add_exposed(orth_json_out *j, const orth_rank_time *t)
{
    orth_json_open(j, "exposed_comm_by_axis_s", '{');
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        if (t->comm_by_group[g] > 0)
            orth_json_print(j, orth_group_name((orth_group)g), "%.9g", t->comm_by_group[g]);
    orth_json_close(j, '}');
}

/* Nothing if it was not priced. */
static void add_time(orth_json_out *j, const orth_plan *p)
{
    const orth_rank_time *t = &p->time;
    if (t->step_s <= 0)
        return;
    orth_json_open(j, "time", '{');
    orth_json_print(j, "step_s", "%.9g", t->step_s);
    orth_json_print(j, "compute_s", "%.9g", t->compute_s);
    orth_json_print(j, "update_s", "%.9g", t->update_s);
    orth_json_print(j, "exposed_comm_s", "%.9g", t->comm_s);
    add_exposed(j, t);
    if (t->move_s > 0)
        orth_json_print(j, "exposed_copies_s", "%.9g", t->move_s);
    orth_json_print(j, "wait_s", "%.9g", t->wait_s);
    orth_json_print(j, "bubble_fraction", "%.9g", t->wait_s / t->step_s);
    if (p->loading_s > 0) {
        orth_json_print(j, "loading_s", "%.9g", p->loading_s);
        orth_json_print(j, "exposed_loading_s", "%.9g", p->data_s);
    }
    orth_json_close(j, '}');
}

static void add_rank(orth_json_out *j, int rank, const orth_plan *p)
{
    orth_json_open(j, NULL, '{');
    orth_json_print(j, "rank", "%d", rank);
    orth_json_open(j, "coords", '{');
    orth_json_print(j, "dp", "%d", p->coords.dp);
    orth_json_print(j, "tp", "%d", p->coords.tp);
    orth_json_print(j, "pp", "%d", p->coords.pp);
    orth_json_print(j, "cp", "%d", p->coords.cp);
    orth_json_close(j, '}');
    orth_memory_json(j, "memory", &p->memory, p->on_devices);
    orth_arenas_json(j, "arenas", p->arenas, p->on_devices);
    orth_peak_moment_json(j, "peak", &p->peak);
    orth_outside_json(j, "outside", &p->outside);
    orth_traffic_json(j, "comm", &p->traffic, true);
    orth_traffic_json(j, "comm_sent", &p->traffic, false);
    orth_json_open(j, "flops", '{');
    orth_json_print(j, "model", "%.0f", p->cost.model_flops);
    orth_json_print(j, "hardware", "%.0f", p->cost.hardware_flops);
    orth_json_close(j, '}');
    if (p->file_bytes > 0) {
        orth_json_open(j, "file_a_step", '{');
        orth_json_print(j, "read", "%" PRId64, p->file_moves.read);
        orth_json_print(j, "written", "%" PRId64, p->file_moves.written);
        orth_json_close(j, '}');
    }
    add_time(j, p);
    if (p->limit_bytes > 0) { /* of a described cluster */
        orth_json_print(j, "memory_limit", "%zu", p->limit_bytes);
        orth_json_bool(j, "fits", p->fits);
    }
    orth_json_close(j, '}');
}

static void add_speed(orth_json_out *j, const orth_plan *p)
{
    const double s = p->time.step_s;
    if (s <= 0)
        return;
    orth_json_print(j, "mfu", "%.6g", p->cost.model_flops / s / p->peak_flops);
    orth_json_print(j, "hfu", "%.6g", p->cost.hardware_flops / s / p->peak_flops);
    if (p->peak_name[0])
        orth_json_string(j, "mfu_peak", p->peak_name);
    orth_json_print(j, "tokens_per_s", "%.9g", (double)p->tokens / s);
}

static void add_fit(orth_json_out *j, const orth_plan *p)
{
    char why[256];
    reasons(p, why, sizeof why);
    orth_json_print(j, "memory_lower_bound", "%zu", p->lower_bound_bytes);
    orth_json_print(j, "memory_limit", "%zu", p->limit_bytes);
    orth_json_bool(j, "fits", p->fits);
    orth_json_open(j, "reasons", '[');
    if (why[0])
        orth_json_string(j, NULL, why);
    orth_json_close(j, ']');
}

static void add_space(orth_json_out *j, const char *key, size_t bytes, size_t limit)
{
    orth_json_open(j, key, '{');
    orth_json_print(j, "bytes", "%zu", bytes);
    orth_json_print(j, "limit", "%zu", limit);
    orth_json_close(j, '}');
}

static void add_files(orth_json_out *j, const orth_plan *p)
{
    orth_json_open(j, "file", '{');
    orth_json_print(j, "bytes", "%zu", p->file_bytes);
    orth_json_print(j, "limit", "%zu", p->file_limit_bytes);
    orth_json_print(j, "read_a_step", "%" PRId64, p->file_moves.read);
    orth_json_print(j, "written_a_step", "%" PRId64, p->file_moves.written);
    if (p->file_floor_s > 0) {
        orth_json_print(j, "read_per_s", "%.6g", p->file_rates.read);
        orth_json_print(j, "written_per_s", "%.6g", p->file_rates.write);
        orth_json_bool(j, "rates_assumed", p->file_rates.assumed);
        orth_json_print(j, "floor_s", "%.9g", p->file_floor_s);
    }
    orth_json_close(j, '}');
}

static void add_cost(orth_json_out *j, const orth_plan *p)
{
    if (!p->worst_bytes)
        return;
    const struct {
        const char *key;
        double value;
        bool free; /* 0 is known */
    } rows[] = {{"days", p->days, p->steps_known}, {"on_demand_usd", p->on_demand_usd, p->has_on_demand && p->steps_known},
                {"spot_usd", p->spot_usd}, {"goodput", p->goodput}, {"spot_goodput", p->spot_goodput}};
    orth_json_open(j, "cost", '{');
    for (int k = 0; k < ORTH_COUNT(rows); k++)
        orth_json_number(j, rows[k].key, rows[k].value > 0 || rows[k].free ? rows[k].value : NAN); /* not known: null */
    if (p->no_steps)
        orth_json_string(j, "not_known", p->no_steps);
    orth_json_close(j, '}');
}

/* How sure each figure is. */
static void add_terms(orth_json_out *j, const orth_plan *p)
{
    static const char *const exact[] = {"memory", "comm", "flops"}, *const estimated[] = {"time", "mfu", "hfu", "tokens_per_s"};
    if (p->time.step_s <= 0)
        return;
    orth_json_open(j, "terms", '{');
    for (int k = 0; k < ORTH_COUNT(exact); k++)
        orth_json_string(j, exact[k], "exact");
    for (int k = 0; k < ORTH_COUNT(estimated); k++)
        orth_json_string(j, estimated[k], "estimated");
    if (p->worst_bytes)
        orth_json_string(j, "cost", "estimated");
    else
        orth_json_string(j, p->times_of ? "times_of_ops" : "peaks", "measured");
    orth_json_close(j, '}');
    if (p->worst_bytes)
        orth_software_error_json(j, "error");
}

char *orth_plan_json(orth_ctx *ctx, const orth_plan *plans, int num_ranks, const orth_plan *p)
{
    orth_text text = {0};
    orth_json_out j = {ctx, &text};
    orth_json_open(&j, NULL, '{');
    orth_json_open(&j, "ranks", '[');
    for (int k = 0; k < num_ranks && !text.failed; k++)
        add_rank(&j, k, &plans[k]);
    orth_json_close(&j, ']');
    if (p->recomputed)
        orth_json_string(&j, "recomputed", p->recomputed);
    orth_traffic_json(&j, "comm", &p->traffic, true);
    orth_traffic_json(&j, "comm_sent", &p->traffic, false);
    add_time(&j, p);
    add_speed(&j, p);
    orth_json_print(&j, "tokens", "%" PRId64, p->tokens);
    orth_json_print(&j, "parameters", "%" PRId64, p->num_elems);
    orth_json_print(&j, "trained_parameters", "%" PRId64, p->num_trained);
    add_fit(&j, p);
    add_cost(&j, p);
    add_terms(&j, p);
    if (p->node_host.limit > 0)
        add_space(&j, "host_of_a_node", p->node_host.bytes, p->node_host.limit);
    if (p->node_files.bytes > 0)
        add_space(&j, "files_of_a_node", p->node_files.bytes, p->node_files.limit);
    if (orth_memory_of_space(&p->memory, ORTH_SPACE_DEVICE) > 0) {
        add_space(&j, "device", p->device_bytes, p->worst_bytes ? p->limit_bytes : p->device_limit_bytes);
        add_space(&j, "host", orth_memory_of_space(&p->memory, ORTH_SPACE_HOST), p->host_limit_bytes);
        add_files(&j, p);
    }
    if (p->peaks)
        orth_json_print(&j, "live_at_peak", "%s", p->peaks);
    if (p->changes)
        orth_json_print(&j, "changes", "%s", p->changes);
    if (p->shares)
        orth_json_print(&j, "shares_of_the_batch", "%s", p->shares);
    if (p->groups)
        orth_json_print(&j, "groups", "%s", p->groups);
    if (p->warnings)
        orth_json_print(&j, "warnings", "%s", p->warnings);
    orth_json_close(&j, '}');
    orth_text_add(ctx, &text, "\n");
    return orth_text_take(ctx, &text);
}

/* Where something is offloaded: each space against its limit. */
static void add_space_rows(orth_ctx *ctx, orth_text *t, const orth_plan *p)
{
    static const char *const names[ORTH_NUM_BUDGETS] = {NULL, "device memory of a rank", "memory of the host", "files"};
    orth_budget b[ORTH_NUM_BUDGETS];
    orth_plan_budgets(p, b);
    for (int k = 0; k < ORTH_NUM_BUDGETS; k++) {
        if (!names[k] || b[k].bytes == 0 || (k == ORTH_BUDGET_HOST && b[k].limit == 0)) /* the rows of classes have the host's */
            continue;
        orth_text_addf(ctx, t, "%s: %zu B", names[k], b[k].bytes);
        orth_text_addf(ctx, t, b[k].limit ? " of %zu B\n" : "\n", b[k].limit);
    }
}

void orth_plan_add_file_floor(orth_ctx *ctx, orth_text *t, const orth_plan *p, bool of_node)
{
    if (p->file_floor_s <= 0)
        return;
    orth_text_addf(ctx, t, "files a step   %" PRId64 " B read, %" PRId64 " B written%s: %.6g s at least, at %.4g GB/s read and %.4g GB/s written%s (%s)\n",
                   p->file_moves.read, p->file_moves.written, of_node ? " by all ranks" : "", p->file_floor_s, p->file_rates.read / 1e9,
                   p->file_rates.write / 1e9, of_node ? " a node" : "",
                   p->file_rates.assumed         ? "assumed: the description of the hardware has no node.file_GBps"
                   : of_node || p->times_of ? "node.file_GBps of the description"
                                            : "measured");
}

char *orth_plan_text(orth_ctx *ctx, const orth_plan *p, int num_ranks)
{
    char why[256], whose[48] = "rank 0";
    orth_text text = {0};
    reasons(p, why, sizeof why);
    if (num_ranks > 1)
        snprintf(whose, sizeof whose, "all %d ranks together", num_ranks);
    char time[320] = "", copies[48] = "", trained[48] = "";
    const orth_rank_time *t = &p->time;
    if (t->move_s > 0)
        snprintf(copies, sizeof copies, "exposed copies %.1f %%, ", 100 * t->move_s / t->step_s);
    if (t->step_s > 0)
        snprintf(time, sizeof time, "time a step    %14.6f s (estimate) %s%s: computing %.1f %%, exposed communication %.1f %%, %s"
                 "waiting %.1f %%\n               %14.1f tokens/s, MFU %.3f\n", t->step_s, p->times_of ? "by the times of " : "at measured peaks",
                 p->times_of ? p->times_of : "", 100 * t->compute_s / t->step_s,
                 100 * t->comm_s / t->step_s, copies, 100 * t->wait_s / t->step_s, (double)p->tokens / t->step_s,
                 p->cost.model_flops / t->step_s / p->peak_flops);
    if (p->num_trained < p->num_elems)
        snprintf(trained, sizeof trained, ", %" PRId64 " trained", p->num_trained);
    orth_text_addf(ctx, &text, "parameters     %14" PRId64 "%s\ntokens a step  %14" PRId64 "\nFLOPs a step   %14.4e model, %.4e hardware "
                   "(%.4e per token)\n%s", p->num_elems, trained, p->tokens, p->cost.model_flops, p->cost.hardware_flops,
                   p->cost.model_flops / (double)ORTH_MAX(p->tokens, 1), time);
    if (p->recomputed)
        orth_text_addf(ctx, &text, "recomputed     %s\n", p->recomputed);
    orth_memory_add_rows(ctx, &text, &p->memory, whose);
    orth_text_addf(ctx, &text, "  %-12s %14zu B %9.3f GiB (lower bound %.3f GiB)\n%s%s\n", "total", p->total_bytes, gib(p->total_bytes),
                   gib(p->lower_bound_bytes), p->fits ? "fits" : "does not fit: ", why);
    add_space_rows(ctx, &text, p);
    orth_plan_add_file_floor(ctx, &text, p, false);
    orth_text_add(ctx, &text, "outside of the arenas\n");
    for (int k = 0; k < ORTH_NUM_OUTSIDE; k++)
        orth_text_addf(ctx, &text, "  %-12s %14zu B\n", orth_outside_name((orth_outside_kind)k), p->outside.of[k]);
    orth_text_add(ctx, &text, "  heap         counted by a run (memory.json), not planned\n");
    return orth_text_take(ctx, &text);
}

const char *orth_plan_no_fit(const orth_error *error)
{
    const size_t n = sizeof ORTH_NO_FIT - 1;
    const bool code = error->code == ORTH_ERR_NOMEM || error->code == ORTH_ERR_NOSPACE;
    return code && strncmp(error->message, ORTH_NO_FIT, n) == 0 ? error->message + n : NULL;
}

orth_status orth_plan_require_fit(orth_ctx *ctx, const orth_plan *p)
{
    if (p->fits)
        return ORTH_OK;
    char why[256];
    orth_budget budgets[ORTH_NUM_BUDGETS];
    reasons(p, why, sizeof why);
    orth_plan_budgets(p, budgets);
    const orth_budget *b = first_exceeded(budgets);
    if (p->worst_bytes)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, ORTH_NO_FIT "%s", why);
    if (b != &budgets[ORTH_BUDGET_ALL])
        return ORTH_FAIL(ctx, b == &budgets[ORTH_BUDGET_FILES] ? ORTH_ERR_NOSPACE : ORTH_ERR_NOMEM, ORTH_NO_FIT "%s (%s); nothing was "
                         "allocated", why, b->key);
    char classes[384];
    const unit u = unit_for(b->bytes, b->limit);
    size_t at = 0;
    for (int c = 0; c < ORTH_NUM_CLASSES; c++)
        at += (size_t)snprintf(classes + at, sizeof classes - at, "%s%s %.*f", c ? ", " : "", orth_class_name((orth_class)c), u.digits,
                               (double)orth_memory_of_class(&p->memory, (orth_class)c) / u.bytes);
    return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, ORTH_NO_FIT "%.*f %s planned (%s), limit %.*f %s (%s); nothing was allocated",
                     u.digits, (double)b->bytes / u.bytes, u.name, classes, u.digits, (double)b->limit / u.bytes, u.name, b->key);
}
