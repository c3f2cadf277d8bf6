/* plan_html.c -- see plan_html.h. */
#include "tools/plan_html.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "report/roofline_svg.h"
#include "report/schedule_svg.h"

#define MEMORY_ROWS 32       /* ranks that have a bar each; of more, one of each stage */
#define OP_ROWS 12

static const char style[] =
    "body{font:15px/1.45 sans-serif;color:#222;margin:0}main{max-width:1080px;margin:0 auto;padding:12px}h1{font-size:1.5em}"
    "h2{font-size:1.15em;margin:1.6em 0 .4em}p{margin:.3em 0}.note{color:#666;font-size:.87em}"
    ".cards{display:flex;flex-wrap:wrap;gap:8px}.card{flex:1 1 150px;border:1px solid #ddd;border-radius:6px;padding:8px 10px}"
    ".card b{display:block;font-size:1.2em}.bad b{color:#b4483f}.wide{overflow-x:auto}.wide svg{width:100%;min-width:860px;height:auto}"
    "table{border-collapse:collapse;font-size:.93em}td,th{padding:3px 10px 3px 0;text-align:right;white-space:nowrap;border-bottom:1px solid #eee}"
    "td:first-child,th:first-child{text-align:left}.row{display:flex;align-items:center;margin:3px 0;font-size:.87em}"
    ".row .name{flex:0 0 92px}.row .bar{flex:1;display:flex;background:#f0f0f0;height:16px;position:relative}.row .gib{flex:0 0 86px;text-align:right}"
    ".row i{display:block;height:100%}.limit{position:absolute;top:-2px;bottom:-2px;border-left:2px solid #b4483f}"
    ".legend{font-size:.87em}.item{white-space:nowrap}.legend i{display:inline-block;width:11px;height:11px;margin:0 4px 0 10px}"
    ".p0{background:#4472b4}.p1{background:#d98032}.p2{background:#6a9e58}.p3{background:#b4483f}.p4{background:#8d6bb0}.p5{background:#8c8c8c}";
_Static_assert(ORTH_NUM_CLASSES <= 6, "a colour for each class");

static void add_escaped(orth_ctx *ctx, orth_text *t, const char *s)
{
    for (; *s; s++)
        switch (*s) {
        case '<': orth_text_add(ctx, t, "&lt;"); break;
        case '>': orth_text_add(ctx, t, "&gt;"); break;
        case '&': orth_text_add(ctx, t, "&amp;"); break;
        case '"': orth_text_add(ctx, t, "&quot;"); break;
        default: orth_text_addf(ctx, t, "%c", *s);
        }
}

static double gib(size_t bytes)
{
    return (double)bytes / 0x1p30;
}

/* ---- the answer ---- */

static void add_card(orth_ctx *ctx, orth_text *t, bool bad, const char *name, const char *value, const char *more)
{
    orth_text_addf(ctx, t, "<div class=\"card%s\">%s<b>%s</b><span class=\"note\">%s</span></div>\n", bad ? " bad" : "", name, value, more);
}

static bool is_too_much(const orth_node_use *u)
{
    return u->limit > 0 && u->bytes > u->limit;
}

static void add_answer(orth_ctx *ctx, orth_text *t, const orth_plan_page *x)
{
    const orth_plan *p = &x->plan->total;
    const double s = p->time.step_s;
    char value[96], more[160];
    orth_text_add(ctx, t, "<div class=\"cards\">\n");
    if (is_too_much(&p->node_host))
        snprintf(more, sizeof more, "%.2f of %.6g GiB in the host of a node", gib(p->node_host.bytes), gib(p->node_host.limit));
    else if (is_too_much(&p->node_files))
        snprintf(more, sizeof more, "%.2f of %.6g GiB on the disks of a node", gib(p->node_files.bytes), gib(p->node_files.limit));
    else
        snprintf(more, sizeof more, "%.2f of %.2f GiB%s", gib(p->worst_bytes ? p->worst_bytes : p->total_bytes), gib(p->limit_bytes),
                 x->cluster ? " on the rank that needs the most" : ", all ranks together");
    add_card(ctx, t, !p->fits, "memory (exact)", p->fits ? "fits" : "does not fit", more);
    snprintf(value, sizeof value, "%.4g s", s);
    snprintf(more, sizeof more, "%" PRId64 " tokens a step", p->tokens);
    add_card(ctx, t, false, "step (estimate)", value, more);
    snprintf(value, sizeof value, "%.0f tokens/s", (double)p->tokens / s);
    snprintf(more, sizeof more, "%d ranks", x->plan->num_ranks);
    add_card(ctx, t, false, "speed", value, more);
    snprintf(value, sizeof value, "%.1f %%", 100 * p->cost.model_flops / s / p->peak_flops);
    const bool named = x->cluster && !x->cluster->peak.is_compute;
    snprintf(more, sizeof more, "HFU %.1f %%%s%s%s", 100 * p->cost.hardware_flops / s / p->peak_flops, named ? " of the " : "",
             named ? p->peak_name : "", named ? " peak" : "");
    add_card(ctx, t, false, "MFU", value, more);
    orth_text_add(ctx, t, "</div>\n");
}

/* ---- memory ---- */

static void add_bar(orth_ctx *ctx, orth_text *t, int rank, const size_t bytes[ORTH_NUM_CLASSES], size_t limit, size_t full)
{
    size_t sum = 0;
    orth_text_addf(ctx, t, "<div class=\"row\"><span class=\"name\">rank %d</span><span class=\"bar\">", rank);
    for (int c = 0; c < ORTH_NUM_CLASSES; c++) {
        if (bytes[c] > 0)
            orth_text_addf(ctx, t, "<i class=\"p%d\" style=\"width:%.3f%%\" title=\"%s: %.4f GiB\"></i>", c, 100 * (double)bytes[c] / (double)full,
                           orth_class_name((orth_class)c), gib(bytes[c]));
        sum += bytes[c];
    }
    if (limit > 0)
        orth_text_addf(ctx, t, "<span class=\"limit\" style=\"left:%.3f%%\"></span>", 100 * (double)limit / (double)full);
    orth_text_addf(ctx, t, "</span><span class=\"gib\">%.3f GiB</span></div>\n", gib(sum));
}

static size_t limit_of(const orth_plan_page *x, int rank, orth_space s)
{
    return x->cluster && s == orth_memory_of_kernels(&x->plan->total.memory) ? x->plan->ranks[rank].limit_bytes : 0;
}

/* A bar for each rank, of many for one of each stage. */
static void add_space(orth_ctx *ctx, orth_text *t, const orth_plan_page *x, orth_space s)
{
    const orth_run_plan *p = x->plan;
    const bool every = p->num_ranks <= MEMORY_ROWS;
    const int rows = every ? p->num_ranks : p->partition.mesh.size[ORTH_AXIS_PP];
    size_t full = 1;
    for (int r = 0; r < p->num_ranks; r++)
        full = ORTH_MAX(full, ORTH_MAX(limit_of(x, r, s), orth_memory_of_space(&p->ranks[r].memory, s)));
    for (int i = 0; i < rows; i++) {
        const int r = every ? i : orth_run_plan_worst_of_stage(p, i, s);
        add_bar(ctx, t, r, p->ranks[r].memory.of[s], limit_of(x, r, s), full);
    }
}

static void add_memory(orth_ctx *ctx, orth_text *t, const orth_plan_page *x)
{
    static const orth_space order[] = {ORTH_SPACE_DEVICE, ORTH_SPACE_HOST, ORTH_SPACE_FILE};
    static const char *const titles[] = {[ORTH_SPACE_DEVICE] = "device", [ORTH_SPACE_HOST] = "host", [ORTH_SPACE_FILE] = "files"};
    const orth_plan *total = &x->plan->total;
    const bool several = orth_memory_of_kernels(&total->memory) == ORTH_SPACE_DEVICE;
    orth_text_add(ctx, t, "<h2>Memory per rank</h2>\n<p class=\"legend\">");
    for (int c = 0; c < ORTH_NUM_CLASSES; c++)
        orth_text_addf(ctx, t, "<span class=\"item\"><i class=\"p%d\"></i>%s</span> ", c, orth_class_name((orth_class)c));
    orth_text_add(ctx, t, "</p>\n");
    for (int i = 0; i < ORTH_COUNT(order); i++) {
        if (orth_memory_of_space(&total->memory, order[i]) == 0)
            continue;
        if (several)
            orth_text_addf(ctx, t, "<p><b>%s</b></p>\n", titles[order[i]]);
        add_space(ctx, t, x, order[i]);
    }
    if (total->node_host.bytes > 0)
        orth_text_addf(ctx, t, "<p>The ranks of a node have %.2f GiB in the memory of its host, of %.6g GiB.</p>\n", gib(total->node_host.bytes), gib(total->node_host.limit));
    if (total->node_files.bytes > 0) {
        orth_text_addf(ctx, t, "<p>The ranks of a node have %.2f GiB on its disks", gib(total->node_files.bytes));
        if (total->node_files.limit > 0)
            orth_text_addf(ctx, t, ", of %.6g GiB", gib(total->node_files.limit));
        orth_text_add(ctx, t, ".</p>\n");
    }
    orth_text_addf(ctx, t, "<p class=\"note\">%s%s The bytes are exact: read off the programs.</p>\n",
                   x->plan->num_ranks <= MEMORY_ROWS ? "" : "The rank of each pipeline stage that needs the most. ",
                   x->cluster ? "Red line: what a device has for a rank." : "");
}

/* ---- groups of devices ---- */

static void add_groups(orth_ctx *ctx, orth_text *t, const orth_plan_page *x, const orth_mixed *m)
{
    const double step = x->cluster->step_s;
    orth_text_add(ctx, t, "<h2>Groups of devices</h2>\n<div class=\"wide\"><table><tr><th>group</th><th>devices</th><th>GiB a rank</th><th>there are</th>"
                          "<th>computing</th><th>waiting</th><th>USD</th></tr>\n");
    for (int i = 0; i < m->num_groups; i++) {
        const orth_device_group *g = &m->group[i];
        const orth_group_figures f = orth_cluster_group(x->plan, g, x->cluster);
        orth_text_add(ctx, t, "<tr><td>");
        add_escaped(ctx, t, g->name);
        orth_text_addf(ctx, t, "</td><td>%" PRId64 " x ", g->num_devices);
        add_escaped(ctx, t, g->own.device_name);
        orth_text_addf(ctx, t, "</td><td>%.2f</td><td>%.2f</td><td>%.1f %%</td><td>%.1f %%</td>", gib(f.most), gib(f.limit), 100 * f.busiest->compute_s / step,
                       100 * f.busiest->wait_s / step);
        if (!isnan(f.usd))
            orth_text_addf(ctx, t, "<td>%.0f</td></tr>\n", f.usd);
        else
            orth_text_add(ctx, t, "<td>-</td></tr>\n");
    }
    orth_text_add(ctx, t, "</table></div>\n<p class=\"note\">Computing and waiting: of the step, on the rank of the group that computes longest.</p>\n");
}

static void add_share(orth_ctx *ctx, orth_text *t, const char *name, const char *words, const orth_price *p)
{
    orth_text_add(ctx, t, "<tr><td>");
    add_escaped(ctx, t, name);
    orth_text_addf(ctx, t, "%s%s</td>", *words ? " " : "", words);
    if (p->refused) {
        orth_text_add(ctx, t, "<td>-</td><td>-</td><td>");
        add_escaped(ctx, t, p->why);
        orth_text_add(ctx, t, "</td></tr>\n");
        return;
    }
    orth_text_addf(ctx, t, "<td>%.4g s</td><td>%.0f</td><td>%s</td></tr>\n", p->step_s, p->tokens_per_s, p->fits ? "yes" : "no");
}

static void add_shares(orth_ctx *ctx, orth_text *t, const orth_shares *s, const orth_mixed *m)
{
    orth_text_add(ctx, t, "<div class=\"wide\"><table><tr><th>shares of the batch</th><th>step</th><th>tokens/s</th><th>fits</th></tr>\n");
    add_share(ctx, t, "equal", "", &s->equal);
    if (s->list[0]) {
        char words[ORTH_SHARES_LIST_MAX + 32];
        snprintf(words, sizeof words, "parallel.dp_share=%s", s->list);
        add_share(ctx, t, "proposed:", words, &s->proposed);
    }
    for (int g = 0; g < m->num_groups; g++) {
        char words[48];
        snprintf(words, sizeof words, "alone, parallel.dp=%" PRId64, s->alone[g].dp);
        add_share(ctx, t, m->group[g].name, words, &s->alone[g].price);
    }
    orth_text_add(ctx, t, "</table></div>\n");
}

/* ---- time ---- */

static void add_part(orth_ctx *ctx, orth_text *t, const char *name, double seconds, double step)
{
    if (seconds >= 0.0005 * step)
        orth_text_addf(ctx, t, "<tr><td>%s</td><td>%.4g s</td><td>%.1f %%</td></tr>\n", name, seconds, 100 * seconds / step);
}

static void add_time(orth_ctx *ctx, orth_text *t, const orth_plan_page *x)
{
    const orth_run_plan *p = x->plan;
    const int n = p->num_ranks;
    double compute = 0, update = 0, move = 0, wait = 0, calls[ORTH_NUM_GROUPS] = {0};
    for (int r = 0; r < n; r++) {
        const orth_rank_time *time = &p->ranks[r].time;
        compute += (time->compute_s - time->update_s) / n;
        update += time->update_s / n;
        move += time->move_s / n;
        wait += time->wait_s / n;
        for (int g = 0; g < ORTH_NUM_GROUPS; g++)
            calls[g] += time->comm_by_group[g] / n;
    }
    const double step = p->total.time.step_s;
    orth_text_add(ctx, t, "<h2>Timeline</h2>\n<div class=\"wide\">\n");
    orth_schedule_svg(ctx, t, &p->partition.schedule, p->detail->spans, step, "s");
    orth_text_add(ctx, t, "</div>\n<p class=\"note\">Forward and backward passes of rank 0's pipeline; gaps are communication, waiting and the update.</p>\n"
                          "<div class=\"wide\"><table><tr><th>mean over ranks</th><th>time</th><th>of the step</th></tr>\n");
    add_part(ctx, t, "computing", compute, step);
    add_part(ctx, t, "update", update, step);
    add_part(ctx, t, "data", p->total.data_s, step);
    add_part(ctx, t, "exposed copies of offload", move, step);
    add_part(ctx, t, "waiting (bubble, imbalance)", wait, step);
    for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
        char name[64];
        snprintf(name, sizeof name, "exposed communication, %s", orth_group_name((orth_group)g));
        add_part(ctx, t, name, calls[g], step);
    }
    orth_text_add(ctx, t, "</table></div>\n");
}

typedef struct {
    orth_op op;
    double seconds;
} timed_op;

static int longest_first(const void *a, const void *b)
{
    const timed_op *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

static void add_roofline(orth_ctx *ctx, orth_text *t, const orth_plan_page *x)
{
    const orth_step_detail *d = x->plan->detail;
    timed_op ops[ORTH_NUM_OPS];
    orth_roofline_point points[OP_ROWS];
    int n = 0, num = 0;
    for (int op = 0; op < ORTH_NUM_OPS; op++)
        if (d->op[op].calls > 0 && !orth_op_is_comm((orth_op)op))
            ops[n++] = (timed_op){(orth_op)op, d->op[op].seconds};
    qsort(ops, (size_t)n, sizeof *ops, longest_first);
    n = ORTH_MIN(n, OP_ROWS);
    for (int i = 0; i < n; i++) {
        const orth_op op = ops[i].op;
        if (d->op[op].flops > 0 && d->op[op].seconds > 0 && d->op[op].bytes > 0)
            points[num++] = (orth_roofline_point){orth_op_name(op), i + 1, d->op[op].flops, d->op[op].bytes, d->op[op].seconds};
    }
    orth_text_add(ctx, t, "<h2>Roofline</h2>\n<div class=\"wide\">\n");
    orth_roofline_svg(ctx, t, points, num, x->flops, x->bytes);
    orth_text_addf(ctx, t, "</div>\n<p class=\"note\">Rank 0. Roofs: %.0f GFLOP/s and %.0f GB/s a rank. Numbers are those of the table; bytes: operands, each read or written once.</p>\n"
                   "<div class=\"wide\"><table><tr><th>op</th><th>calls</th><th>time</th><th>of the step</th><th>GFLOP/s</th><th>GB/s</th></tr>\n",
                   1e-9 * x->flops, 1e-9 * x->bytes);
    for (int i = 0; i < n; i++) {
        const orth_op op = ops[i].op;
        const double s = fmax(d->op[op].seconds, 1e-12);
        orth_text_addf(ctx, t, "<tr><td>%d %s</td><td>%d</td><td>%.4g s</td><td>%.1f %%</td><td>%.0f</td><td>%.0f</td></tr>\n", i + 1, orth_op_name(op),
                       (int)d->op[op].calls, d->op[op].seconds, 100 * s / x->plan->total.time.step_s, 1e-9 * d->op[op].flops / s, 1e-9 * d->op[op].bytes / s);
    }
    orth_text_add(ctx, t, "</table></div>\n");
}

/* ---- scaling ---- */

/* Tokens a second of a device, or of a machine that all ranks share, over those of the first point that is there. */
static void add_scaling_table(orth_ctx *ctx, orth_text *t, const char *name, const orth_scaling_point *points, bool shared)
{
    orth_text_addf(ctx, t, "<div class=\"wide\"><table><tr><th>%s</th><th>dp</th><th>global batch</th><th>step</th><th>tokens/s</th><th>efficiency</th>"
                           "<th>GiB a rank</th><th>fits</th></tr>\n", name);
    for (int k = 0; k < ORTH_SCALING_POINTS; k++) {
        const orth_scaling_point *p = &points[k];
        if (p->price.refused)
            continue;
        orth_text_addf(ctx, t, "<tr><td>%d ranks</td><td>%" PRId64 "</td><td>%" PRId64 "</td><td>%.4g s</td><td>%.0f</td><td>%.1f %%</td><td>%.2f</td><td>%s</td></tr>\n",
                       p->price.num_ranks, p->dp, p->global_batch, p->price.step_s, p->price.tokens_per_s, 100 * orth_scaling_efficiency(points, k, shared),
                       gib(p->price.worst_bytes), p->price.fits ? "yes" : "no");
    }
    orth_text_add(ctx, t, "</table></div>\n");
}

static void add_scaling(orth_ctx *ctx, orth_text *t, const orth_plan_page *x)
{
    orth_text_add(ctx, t, "<h2>Scaling</h2>\n");
    add_scaling_table(ctx, t, "strong", x->scaling->strong, x->scaling->shared);
    add_scaling_table(ctx, t, "weak", x->scaling->weak, x->scaling->shared);
    orth_text_addf(ctx, t, "<p class=\"note\">Strong: the global batch stays. Weak: the batch of a rank stays. Efficiency: tokens a second%s, over those of the "
                   "first row. Layouts that a rule refuses are left out.</p>\n", x->cluster ? " and rank" : " (all ranks share the machine)");
}

/* ---- cost ---- */

static void add_money(orth_ctx *ctx, orth_text *t, const char *name, double usd, double price, bool known)
{
    if (known)
        orth_text_addf(ctx, t, "<tr><td>%s</td><td>%.0f USD</td><td>%.2f USD a device and hour</td></tr>\n", name, usd, price);
}

static void add_goodput(orth_ctx *ctx, orth_text *t, const char *name, const orth_goodput *g)
{
    if (g->share > 0)
        orth_text_addf(ctx, t, "<tr><td>%s</td><td>%.1f %%</td><td>an interruption in %.3g h, a checkpoint of %.3g s every %.3g min</td></tr>\n", name,
                       100 * g->share, g->between_s / 3600, g->save_s, g->interval_s / 60);
}

static void add_cost(orth_ctx *ctx, orth_text *t, const orth_plan_page *x)
{
    const orth_cluster_plan *c = x->cluster;
    orth_text_add(ctx, t, "<h2>Cost</h2>\n");
    if (!c || c->steps < 0) {
        orth_text_addf(ctx, t, "<p>Not known: %s.</p>\n", c ? x->plan->total.no_steps : "this machine has no price");
        return;
    }
    orth_text_addf(ctx, t, "<div class=\"wide\"><table><tr><td>%.0f steps</td><td>%.3g days</td><td></td></tr>\n", c->steps, c->days);
    add_money(ctx, t, "on demand", c->on_demand_usd, x->hardware->price_on_demand, x->hardware->has_on_demand);
    if (orth_goodput_is_none(&c->spot_goodput))
        orth_text_addf(ctx, t, "<tr><td>spot</td><td>no progress</td><td>an interruption in %.3g h</td></tr>\n", c->spot_goodput.between_s / 3600);
    else
        add_money(ctx, t, "spot", c->spot_usd, orth_spot_price(x->hardware), x->hardware->price_spot > 0);
    add_goodput(ctx, t, "time that makes progress", &c->goodput);
    add_goodput(ctx, t, "the same on spot nodes", &c->spot_goodput);
    orth_text_add(ctx, t, "</table></div>\n");
}

char *orth_plan_html(orth_ctx *ctx, const orth_plan_page *x)
{
    orth_text t = {0};
    orth_text_addf(ctx, &t, "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\"/>\n<meta name=\"viewport\" content=\"width=device-width, "
                   "initial-scale=1\"/>\n<title>Plan of a training run</title>\n<style>%s</style>\n</head>\n<body>\n<main>\n<h1>Plan of a training run</h1>\n<p>", style);
    orth_text_addf(ctx, &t, "%" PRId64 " parameters, %d ranks, ", x->plan->total.num_elems, x->plan->num_ranks);
    add_escaped(ctx, &t, x->hardware ? x->hardware->device_name : "this machine at its measured peaks");
    orth_text_add(ctx, &t, "</p>\n");
    add_answer(ctx, &t, x);
    add_memory(ctx, &t, x);
    if (x->cluster && x->hardware->mixed)
        add_groups(ctx, &t, x, x->hardware->mixed);
    if (x->shares)
        add_shares(ctx, &t, x->shares, x->hardware->mixed);
    add_time(ctx, &t, x);
    add_roofline(ctx, &t, x);
    add_scaling(ctx, &t, x);
    add_cost(ctx, &t, x);
    orth_text_add(ctx, &t, "</main>\n</body>\n</html>\n");
    return orth_text_take(ctx, &t);
}
