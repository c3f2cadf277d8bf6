/* search_report.c -- see search_report.h. */
#include "tools/search_report.h"

#include <inttypes.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/text.h"
#include "plan/mixed.h"

#define PLANS_OF_A_KIND 2      /* popular choices, and limits of memory: the best of few plans, not proved */
#define PLANS_OF_THE_NEXT 2    /* likewise, of each of the next nine */
#define PLANS_BESIDE 2         /* likewise, of layouts like the winner and the rows in less memory */
#define NUM_LIMITS 3
#define FAR_BEHIND 1.3         /* a popular choice that loses so much by its bound is not planned: long programs cost most */
#define TOO_SLOW 2             /* with less memory, layouts that take so many times the winner's step are not looked for */
#define NUM_REPRICED 2         /* of the best, on changed clusters */
#define LEAST_LEAD 0.0005      /* on a changed cluster, of another layout over the winner: what is shown as 0.0 % is none */

/* ---- popular choices ---- */

/* All but the last three have everything on the device. */
static bool is_alone(const orth_candidate *c)
{
    return c->tp == 1 && c->cp == 1 && c->pp == 1 && !orth_candidate_offloads(c);
}
static bool is_plain_data_parallel(const orth_search *s, const orth_candidate *c)
{
    (void)s;
    return is_alone(c) && c->zero == 0;
}
static bool is_fsdp(const orth_search *s, const orth_candidate *c)
{
    (void)s;
    return is_alone(c) && c->zero == 3 && c->shard_group == 0;
}
/* Ranks of tp are neighbours: groups of a size that does not divide a node's devices cross nodes, unless all ranks are in one. */
static bool stays_in_a_node(const orth_search *s, const orth_candidate *c)
{
    const int64_t node = (int64_t)s->where.hardware.node_devices;
    return orth_candidate_ranks(c) <= node || node % c->tp == 0;
}
static bool is_tensor_in_a_node(const orth_search *s, const orth_candidate *c)
{
    return c->tp > 1 && stays_in_a_node(s, c) && c->pp == 1 && c->cp == 1 && c->zero <= 1 && !orth_candidate_offloads(c);
}
static bool is_tensor_across_nodes(const orth_search *s, const orth_candidate *c)
{
    return c->tp > 1 && !stays_in_a_node(s, c) && !orth_candidate_offloads(c);
}
static bool is_pipeline(const orth_search *s, const orth_candidate *c)
{
    (void)s;
    return c->tp == 1 && c->cp == 1 && c->pp > 1 && !orth_candidate_offloads(c);
}
static bool is_full_recompute(const orth_search *s, const orth_candidate *c)
{
    (void)s;
    return c->recompute == ORTH_memory_recompute_full && !orth_candidate_offloads(c);
}

/* Whether optimizer, weights and activations are on the host, or all of each on the device. */
static bool is_on_host(const orth_candidate *c, bool optimizer, bool weights, bool activations)
{
    return c->away[ORTH_AWAY_OPTIMIZER] == (optimizer ? ORTH_TIER_HOST : ORTH_TIER_NONE) &&
           c->away[ORTH_AWAY_PARAMS] == (weights ? ORTH_TIER_HOST : ORTH_TIER_NONE) &&
           c->away[ORTH_AWAY_ACTIVATIONS] == (activations ? ORTH_TIER_HOST : ORTH_TIER_NONE);
}
static bool is_optimizer_offload(const orth_search *s, const orth_candidate *c)
{
    return is_on_host(c, true, false, false) && !orth_search_has_many_programs(s, c);
}
static bool is_state_offload(const orth_search *s, const orth_candidate *c)
{
    (void)s;
    return c->tp == 1 && c->cp == 1 && c->pp == 1 && c->zero == 3 && c->away[ORTH_AWAY_GRADIENTS] == ORTH_TIER_HOST && is_on_host(c, true, true, false);
}
static bool is_activation_offload(const orth_search *s, const orth_candidate *c)
{
    (void)s;
    return is_on_host(c, false, false, true);
}

static const struct {
    const char *name;
    bool (*is)(const orth_search *s, const orth_candidate *c);
} kinds[] = {{"data parallel alone, ZeRO 0", is_plain_data_parallel},
             {"ZeRO 3 over all ranks (FSDP)", is_fsdp},
             {"tensor parallel in a node, ZeRO 0 or 1", is_tensor_in_a_node},
             {"tensor parallel across nodes", is_tensor_across_nodes},
             {"pipeline without tensor parallel", is_pipeline},
             {"whole layers recomputed", is_full_recompute},
             {"optimizer on the host (ZeRO-Offload)", is_optimizer_offload},
             {"ZeRO 3, all on the host (ZeRO-Infinity)", is_state_offload},
             {"activations on the host", is_activation_offload}};

/* ---- changed clusters ---- */

static void half_network(orth_hardware *h)
{
    h->network_GBps /= 2;
}
static void double_network(orth_hardware *h)
{
    h->network_GBps *= 2;
}
static void slow_messages(orth_hardware *h)
{
    h->network_latency_us *= 10;
}
static void half_links(orth_hardware *h)
{
    h->node_GBps /= 2;
}
static void slow_devices(orth_hardware *h)
{
    h->device_gemm_share *= 0.9;
    h->device_attention_share *= 0.9;
    h->device_memory_share *= 0.9;
}

static const struct {
    const char *name;
    void (*change)(orth_hardware *h);
} changes[] = {{"network at half the bandwidth", half_network}, {"network at twice the bandwidth", double_network},
               {"messages between nodes 10 x as late (jitter)", slow_messages}, {"links in a node at half the bandwidth", half_links},
               {"devices 10 % slower", slow_devices}};

/* ---- what was found ---- */

typedef struct {
    orth_search *s;
    orth_search_answer best[ORTH_SEARCH_BEST];
    int32_t list[ORTH_SEARCH_BEST];
    int num_best;
    orth_search_answer kind[ORTH_COUNT(kinds)], limit[NUM_LIMITS];
    double limit_bytes[NUM_LIMITS];
    int32_t winner_plans;                                  /* full plans until the winner was found, and proved where they sufficed */
    double changed_s[ORTH_COUNT(changes)];                  /* steps of the winner */
    double changed_key[ORTH_COUNT(changes)][NUM_REPRICED];  /* what is minimized, of the best */
} found;

static bool has_few_programs(const orth_search *s, const orth_candidate *c)
{
    return !orth_search_has_many_programs(s, c);
}

/* Bounds of memory are some way below what layouts need, so that the first ones in the order of their bounds often do not fit. One that fits
 * for sure is looked for among those with bounds well below the limit; the proof then has something to compare with. most: plans in all. */
static orth_status ask_well_below(orth_ctx *ctx, found *f, const orth_search_question *q, int32_t most, orth_search_answer *out)
{
    static const double below[] = {0.75, 0.5, 0.25};
    const double limit = q->limit_bytes > 0 ? q->limit_bytes : orth_search_limit(f->s);
    const int32_t before = f->s->num_plans;
    for (int i = 0; i < ORTH_COUNT(below) && out->candidate < 0; i++) {
        orth_search_question lower = *q, planned = *q;
        lower.max_plans = ORTH_MIN(2 * q->max_plans, most - (f->s->num_plans - before));
        lower.limit_bytes = below[i] * limit;
        ORTH_TRY(orth_search_ask(ctx, f->s, &lower, out));
        planned.max_plans = 0;
        ORTH_TRY(orth_search_ask(ctx, f->s, &planned, out));
    }
    return ORTH_OK;
}

/* The best of few plans; where none of them fits, of as many with bounds well below the limit. */
static orth_status ask_few_of(orth_ctx *ctx, found *f, const orth_search_question *q, orth_search_answer *out)
{
    ORTH_TRY(orth_search_ask(ctx, f->s, q, out));
    return out->candidate < 0 && !out->proved && out->too_far < 0 ? ask_well_below(ctx, f, q, INT32_MAX, out) : ORTH_OK;
}

/* Plans are long where there are many programs: of a question about all layouts, those are asked only if no other was found. */
static orth_status ask_few(orth_ctx *ctx, found *f, const orth_search_question *q, orth_search_answer *out)
{
    if (!q->is) {
        orth_search_question few = *q;
        few.is = has_few_programs;
        ORTH_TRY(ask_few_of(ctx, f, &few, out));
        if (out->candidate >= 0)
            return ORTH_OK;
    }
    return ask_few_of(ctx, f, q, out);
}

static double winner_key(const found *f)
{
    return orth_search_key(f->s, &f->s->space.list[f->list[0]]);
}

/* Of at most max_plans. What is planned to look for one that fits counts, too: it leaves half of the plans to the proof. */
static orth_status find_winner(orth_ctx *ctx, found *f, int32_t max_plans)
{
    const int32_t before = f->s->num_plans;
    const orth_search_question near = {.max_plans = (max_plans + 3) / 4};
    ORTH_TRY(ask_well_below(ctx, f, &near, max_plans / 2, &(orth_search_answer){.candidate = -1}));
    const orth_search_question all = {.max_plans = max_plans - (f->s->num_plans - before)};
    ORTH_TRY(orth_search_ask(ctx, f->s, &all, &f->best[0]));
    f->winner_plans = f->s->num_plans - before;
    return ORTH_OK;
}

/* next: plans for each after the first, the best of few; 0: among what is planned. */
static orth_status list_best(orth_ctx *ctx, found *f, int32_t next)
{
    orth_search_question q = {.without = f->list};
    f->num_best = 0;
    while (f->num_best < ORTH_SEARCH_BEST) {
        orth_search_answer *a = &f->best[f->num_best];
        ORTH_TRY(f->num_best > 0 && next > 0 ? ask_few(ctx, f, &q, a) : orth_search_ask(ctx, f->s, &q, a));
        if (a->candidate < 0)
            break;
        f->list[f->num_best++] = a->candidate;
        q.num_without++;
        q.max_plans = next;
        q.max_key = FAR_BEHIND * winner_key(f);
    }
    return ORTH_OK;
}

/* max_plans: 0: among what is planned. */
static orth_status ask_kinds(orth_ctx *ctx, found *f, int32_t max_plans)
{
    for (int k = 0; k < ORTH_COUNT(kinds); k++) {
        const orth_search_question q = {.is = kinds[k].is, .max_plans = max_plans, .max_key = FAR_BEHIND * winner_key(f)};
        ORTH_TRY(ask_few(ctx, f, &q, &f->kind[k]));
    }
    return ORTH_OK;
}

static orth_search_question limit_question(const found *f, int k, int32_t max_plans)
{
    return (orth_search_question){.limit_bytes = f->limit_bytes[k], .max_plans = max_plans, .max_key = TOO_SLOW * winner_key(f)};
}

/* Of few plans those with the least bounds are often of meshes whose bounds are loose. So the mesh and ZeRO stage of the winner and of the rows before it are
 * tried for a limit, too, with other micro-batches, recomputation and offload: what less memory mostly costs. */
static orth_status ask_beside_rows(orth_ctx *ctx, found *f, int k)
{
    for (int row = -1; row < k; row++) {
        const int32_t i = row < 0 ? f->list[0] : f->limit[row].candidate;
        orth_search_answer a;
        if (i < 0)
            continue;
        const orth_candidate beside = f->s->space.list[i];
        orth_search_question q = limit_question(f, k, PLANS_BESIDE);
        q.beside = &beside;
        q.is = has_few_programs;
        ORTH_TRY(ask_few(ctx, f, &q, &a));
    }
    return ORTH_OK;
}

/* What three quarters, a half and a quarter of the winner's memory cost. A row is then the best of all that were planned: a plan for another limit may be
 * better than what was found for this one. */
static orth_status ask_limits(orth_ctx *ctx, found *f)
{
    for (int k = 0; k < NUM_LIMITS; k++) {
        f->limit_bytes[k] = (double)orth_search_price(f->s, f->list[0])->bytes * (double)(NUM_LIMITS - k) / (NUM_LIMITS + 1);
        const orth_search_question q = limit_question(f, k, 2 * PLANS_OF_A_KIND);
        ORTH_TRY(ask_beside_rows(ctx, f, k));
        ORTH_TRY(ask_few(ctx, f, &q, &f->limit[k]));
    }
    for (int k = 0; k < NUM_LIMITS; k++) {
        const orth_search_question q = limit_question(f, k, 0);
        ORTH_TRY(orth_search_ask(ctx, f->s, &q, &f->limit[k]));
    }
    return ORTH_OK;
}

/* Of a copy, which becomes one of its own. */
static orth_status change_hardware(orth_ctx *ctx, orth_hardware *h, void (*change)(orth_hardware *h))
{
    const orth_mixed *shared = h->mixed;
    change(h);
    h->mixed = shared ? ORTH_NEW(ctx, orth_mixed) : NULL;
    if (!shared)
        return ORTH_OK;
    if (!h->mixed)
        return ORTH_ERR_NOMEM;
    *h->mixed = *shared;
    for (int i = 0; i < h->mixed->num_groups; i++) {
        change(&h->mixed->group[i].own);
        change(&h->mixed->group[i].far);
    }
    return ORTH_OK;
}

static orth_status price_changes(orth_ctx *ctx, found *f)
{
    for (int k = 0; k < ORTH_MIN(NUM_REPRICED, f->num_best); k++) {
        orth_config cfg;
        ORTH_TRY(orth_search_config(ctx, f->s, f->list[k], &cfg));
        orth_status st = ORTH_OK;
        for (int i = 0; st == ORTH_OK && i < ORTH_COUNT(changes); i++) {
            orth_place_to_run where = f->s->where;
            orth_price p = {.step_s = 0};
            st = change_hardware(ctx, &where.hardware, changes[i].change);
            if (st == ORTH_OK)
                st = orth_price_run(ctx, &where, &cfg, &p);
            f->changed_s[i] = k == 0 ? p.step_s : f->changed_s[i];
            f->changed_key[i][k] = orth_search_key_at(f->s, &f->s->space.list[f->list[k]], &p);
            orth_place_to_run_release(ctx, &where);
        }
        orth_config_release(ctx, &cfg);
        ORTH_TRY(st);
    }
    return ORTH_OK;
}

/* ---- for people ---- */

/* Of 1e9 tokens, interruptions included; NAN: not known. */
static double usd_of(const found *f, const orth_price *p)
{
    const orth_hardware *h = &f->s->where.hardware;
    const orth_rent r = orth_search_rent(f->s, p->num_ranks);
    const double hour = orth_search_hour_cost(f->s, &r, p->num_ranks);
    if (h->price_on_demand == 0 && h->price_spot == 0)
        return h->has_on_demand ? 0 : NAN;
    return isfinite(hour) ? 1e9 / p->tokens_per_s / 3600 * hour : NAN;
}

/* What the cost of a layout counts beside the price on demand: spot nodes, where they are cheaper, and interruptions. goodput 0: not known. */
typedef struct {
    bool spot;
    double goodput;
} cost_basis;

static cost_basis basis_of(const found *f, const orth_price *p)
{
    const orth_rent r = orth_search_rent(f->s, p->num_ranks);
    const bool spot = r.spot_usd != r.on_demand_usd && orth_search_hour_cost(f->s, &r, p->num_ranks) == r.spot_usd;
    return (cost_basis){spot, spot && r.spot_goodput.share > 0 ? r.spot_goodput.share : r.goodput.share};
}

/* For people, of the winner; nothing where the price on demand is all there is. */
static void add_basis(orth_ctx *ctx, orth_text *t, const found *f)
{
    const orth_price *p = orth_search_price(f->s, f->list[0]);
    const cost_basis b = basis_of(f, p);
    const char *nodes = b.spot ? "on spot nodes, which are cheaper" : "on demand";
    if (!(usd_of(f, p) > 0))
        return;
    if (b.goodput > 0)
        orth_text_addf(ctx, t, "USD/1e9 of the winner: %s; interruptions included, %.1f %% of the time makes progress\n", nodes, 100 * b.goodput);
    else if (b.spot)
        orth_text_addf(ctx, t, "USD/1e9 of the winner: %s; without interruptions\n", nodes);
}

/* parallel.dp_share of a planned candidate; "": equal. */
static const char *shares_of(const found *f, int32_t i)
{
    return f->s->plans[f->s->space.list[i].plan].dp_share;
}

/* more: what its line ends with. */
static void add_candidate(orth_ctx *ctx, orth_text *t, const found *f, int32_t i, const char *more)
{
    char text[ORTH_CANDIDATE_MAX];
    const orth_price *p = orth_search_price(f->s, i);
    orth_candidate_text(&f->s->space.list[i], text);
    char usd[24] = "-";
    if (!isnan(usd_of(f, p)))
        snprintf(usd, sizeof usd, "%.2f", usd_of(f, p));
    orth_text_addf(ctx, t, "%10.5g %8.2f %12.6g %7.3f %9s  %s%s%s\n", p->step_s, (double)p->bytes / 0x1p30, p->tokens_per_s, p->mfu, usd, text,
                   *shares_of(f, i) ? ", unequal shares" : "", more);
}

static void add_space(orth_ctx *ctx, orth_text *t, const found *f)
{
    const orth_search *s = f->s;
    const orth_search_answer *a = &f->best[0];
    orth_text_addf(ctx, t, "space          %" PRId64 " layouts, %" PRId64 " valid; %d small runs and %d full plans, %d of them for the winner\n", s->space.num_tried,
                   s->space.num, s->num_read, s->num_plans, f->winner_plans);
    if (s->space.num_left_out > 0)
        orth_text_addf(ctx, t, "left out       %" PRId64 " layouts by rules between keys, the first: %s\n", s->space.num_left_out, s->space.why_left_out);
    if (f->num_best == 0)
        orth_text_addf(ctx, t, "winner         %s\n", isinf(a->least_bytes) ? "none: each is refused by a rule, needs more of the hosts' memory (node.memory_GiB) "
                       "or disks (node.file_GiB) than there is, or makes no progress (failures)" : a->proved ? "none fits" : "none was found that fits; more plans (--plans) may find one");
    else if (a->proved)
        orth_text_addf(ctx, t, "winner         proved: %s\n", s->space.no_bounds ? "all layouts were planned"
                       : s->where.hardware.mixed ? "of equal and proportional shares of the batch; the lower bound of every other layout is more"
                                                 : "the lower bound of every other layout is more");
    else if (s->space.no_bounds)
        orth_text_addf(ctx, t, "winner         the best of %d plans; others were estimated to take longer, but no bound holds %s\n", s->num_plans,
                       s->space.no_bounds);
    else
        orth_text_addf(ctx, t, "winner         not proved: others may be up to %.1f %% better by their bounds; more plans (--plans) may tell\n",
                       100 * (1 - a->next / orth_search_key(s, &s->space.list[a->candidate])));
}

/* The parts of a step that take longest beyond those of the winner. */
static void add_reason(orth_ctx *ctx, orth_text *t, const orth_price *p, const orth_price *best)
{
    const char *name = "computing";
    double most = p->compute_s + p->update_s - best->compute_s - best->update_s;
    if (p->wait_s - best->wait_s > most) {
        most = p->wait_s - best->wait_s;
        name = "waiting";
    }
    if (p->move_s - best->move_s > most) {
        most = p->move_s - best->move_s;
        name = "copying from and to the host";
    }
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        if (p->exposed_s[g] - best->exposed_s[g] > most) {
            most = p->exposed_s[g] - best->exposed_s[g];
            name = orth_group_name((orth_group)g);
        }
    if (most > 1e-6 * best->step_s)
        orth_text_addf(ctx, t, "; %s takes %.3g s more", name, most);
}

static void add_kind(orth_ctx *ctx, orth_text *t, const found *f, int k)
{
    const orth_search_answer *a = &f->kind[k];
    const orth_price *best = orth_search_price(f->s, f->list[0]);
    char text[ORTH_CANDIDATE_MAX];
    orth_text_addf(ctx, t, "  %-40s ", kinds[k].name);
    if (a->candidate < 0 && a->too_far >= 0) {
        orth_candidate_text(&f->s->space.list[a->too_far], text);
        orth_text_addf(ctx, t, "at least %+.1f %% %s: %s\n", 100 * (a->next / winner_key(f) - 1), orth_goal_name(f->s->goal), text);
        return;
    }
    if (a->candidate < 0 && isinf(a->least_bytes)) {
        orth_text_add(ctx, t, "is refused by a rule, or its state is more than the hosts or their disks have\n");
        return;
    }
    if (a->candidate < 0 && !a->proved) {
        orth_text_addf(ctx, t, "none was found that fits, in few plans; %.2f GiB at least\n", a->least_bytes / 0x1p30);
        return;
    }
    if (a->candidate < 0) {
        orth_text_addf(ctx, t, a->least_bytes > 0 ? "does not fit: %.2f GiB at least\n" : "no such layout is valid\n", a->least_bytes / 0x1p30);
        return;
    }
    const orth_price *p = orth_search_price(f->s, a->candidate);
    orth_candidate_text(&f->s->space.list[a->candidate], text);
    if (a->candidate == f->list[0]) {
        orth_text_add(ctx, t, "is the winner\n");
        return;
    }
    if (f->s->goal != ORTH_GOAL_TIME)
        orth_text_addf(ctx, t, "%+.1f %% %s, ", 100 * (orth_search_key(f->s, &f->s->space.list[a->candidate]) / winner_key(f) - 1),
                       orth_goal_name(f->s->goal));
    orth_text_addf(ctx, t, "%+.1f %% time, %.2f GiB: %s", 100 * (p->step_s / best->step_s - 1), (double)p->bytes / 0x1p30, text);
    add_reason(ctx, t, p, best);
    orth_text_add(ctx, t, "\n");
}

/* How far a row in less memory may be off. */
static void describe_doubt(const found *f, const orth_search_answer *a, char *out, size_t n)
{
    out[0] = '\0';
    if (!a->proved && f->s->space.no_bounds)
        snprintf(out, n, "; not proved");
    else if (!a->proved)
        snprintf(out, n, "; not proved: up to %.1f %% better by bounds", 100 * (1 - a->next / orth_search_key(f->s, &f->s->space.list[a->candidate])));
}

static void add_limits(orth_ctx *ctx, orth_text *t, const found *f)
{
    double last = INFINITY;
    char doubt[64];
    const bool cost = f->s->goal == ORTH_GOAL_COST;
    orth_text_addf(ctx, t, "\nmemory against %s found in less memory)\n", cost ? "cost (the cheapest" : "time (the fastest");
    for (int k = -1; k < NUM_LIMITS; k++) {
        const int32_t i = k < 0 ? f->list[0] : f->limit[k].candidate;
        const double bytes = i < 0 ? INFINITY : (double)orth_search_price(f->s, i)->bytes;
        if (i < 0)
            orth_text_addf(ctx, t, "  none %s%.2f GiB%s\n", f->limit[k].proved ? "in " : "was found in ", f->limit_bytes[k] / 0x1p30, f->limit[k].too_far < 0 ? "" : cost ? " for less than twice the cost" : " in less than twice the time");
        else if (bytes < last) {
            describe_doubt(f, k < 0 ? &f->best[0] : &f->limit[k], doubt, sizeof doubt);
            add_candidate(ctx, t, f, i, doubt);
        }
        last = fmin(last, bytes);
    }
}

/* The one of the best that a change puts before the winner; 0: none. Of memory it is never another, as no change has to do with it. */
static int first_after(const found *f, int change)
{
    const double *key = f->changed_key[change];
    int first = 0;
    for (int k = 1; k < ORTH_MIN(NUM_REPRICED, f->num_best); k++)
        if (key[k] < key[first])
            first = k;
    return 1 - key[first] / key[0] >= LEAST_LEAD ? first : 0;
}

static void add_changes(orth_ctx *ctx, orth_text *t, const found *f)
{
    orth_text_add(ctx, t, "\nwhat the answer depends on                     step of the winner\n");
    for (int i = 0; i < ORTH_COUNT(changes); i++) {
        const int first = first_after(f, i);
        orth_text_addf(ctx, t, "  %-44s %+.1f %%", changes[i].name, 100 * (f->changed_s[i] / orth_search_price(f->s, f->list[0])->step_s - 1));
        if (first > 0)
            orth_text_addf(ctx, t, f->s->goal == ORTH_GOAL_COST ? "; number %d then costs %.1f %% less" : "; number %d is then faster by %.1f %%", first + 1,
                           100 * (1 - f->changed_key[i][first] / f->changed_key[i][0]));
        orth_text_add(ctx, t, "\n");
    }
}

static char *as_text(orth_ctx *ctx, const found *f)
{
    orth_text t = {0};
    char split[ORTH_PRICE_SPLIT_MAX];
    add_space(ctx, &t, f);
    if (f->num_best == 0)
        return orth_text_take(ctx, &t);
    orth_text_addf(ctx, &t, "\n%10s %8s %12s %7s %9s  %s\n", "step s", "GiB", "tokens/s", "MFU", "USD/1e9", "layout");
    for (int i = 0; i < f->num_best; i++)
        add_candidate(ctx, &t, f, f->list[i], "");
    const orth_device_peak *peak = &orth_search_price(f->s, f->list[0])->peak; /* the same of all */
    if (!peak->is_compute)
        orth_text_addf(ctx, &t, "MFU: of the %s peak\n", peak->name);
    orth_text_add(ctx, &t, "exact: GiB; estimates: step s and all that follows from it\n");
    add_basis(ctx, &t, f);
    if (f->s->num_plans < f->s->space.num)
        orth_text_addf(ctx, &t, "after the winner: the best of the %d layouts that were planned\n", f->s->num_plans);
    orth_price_split(orth_search_price(f->s, f->list[0]), split);
    orth_text_addf(ctx, &t, "\nwhy it wins    its step: %s\n\npopular choices against it (of each the best of few plans)\n", split);
    for (int k = 0; k < ORTH_COUNT(kinds); k++)
        add_kind(ctx, &t, f, k);
    add_limits(ctx, &t, f);
    if (!f->s->where.host)
        add_changes(ctx, &t, f);
    return orth_text_take(ctx, &t);
}

/* ---- JSON ---- */

/* "offload_optimizer": "host", and the others. */
static void add_away_json(json_t *root, const orth_candidate *c)
{
    for (int k = 0; root && k < ORTH_NUM_AWAY; k++) {
        const orth_option_id key = orth_away_key((orth_away)k);
        json_object_set_new(root, strchr(orth_option_get(key)->path, '.') + 1, json_string(orth_option_choice(key, c->away[k])));
    }
}

static json_t *number_or_null(double x, bool known)
{
    return known && isfinite(x) ? json_real(x) : json_null();
}

/* Where the step goes, and for which axes' calls it waits. The update is a part of computing, on a measured machine not told apart. */
static json_t *time_json(const orth_price *p, bool host)
{
    json_t *by_axis = json_object();
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        if (p->exposed_s[g] > 0)
            json_object_set_new(by_axis, orth_group_name((orth_group)g), json_real(p->exposed_s[g]));
    return json_pack("{s:f,s:o,s:f,s:f,s:o}", "compute_s", p->compute_s + p->update_s, "update_s", number_or_null(p->update_s, !host), "wait_s", p->wait_s, "exposed_copies_s", p->move_s,
                     "exposed_comm_by_axis_s", by_axis);
}

static json_t *candidate_json(const found *f, int32_t i)
{
    char text[ORTH_CANDIDATE_MAX];
    if (i < 0)
        return json_null();
    const orth_candidate *c = &f->s->space.list[i];
    const orth_price *p = orth_search_price(f->s, i);
    orth_candidate_text(c, text);
    json_t *shares = *shares_of(f, i) ? json_loads(shares_of(f, i), 0, NULL) : json_array();
    json_t *root = json_pack("{s:s,s:i,s:b,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:s,s:s,s:s,s:o,s:f,s:o,s:I,s:f,s:f,s:o,s:f,s:I}", "layout", text, "tp", c->tp,
                     "sequence_parallel", c->tp > 1 && c->sequence_parallel, "cp", c->cp, "pp", c->pp, "dp", c->dp, "zero", c->zero, "shard_group", c->shard_group, "virtual_stages", c->virtual_stages, "micro_batch",
                     c->micro_batch, "pipeline", orth_schedule_kind_get(c->pipeline)->name, "recompute",
                     orth_option_choice(ORTH_OPT_memory_recompute, c->recompute), "cp_kind",
                     orth_option_choice(ORTH_OPT_parallel_cp_kind, c->cp_kind), "dp_share", shares, "step_s", p->step_s, "time", time_json(p, f->s->where.host), "memory",
                     (json_int_t)p->bytes, "tokens_per_s", p->tokens_per_s, "mfu", p->mfu, "usd_per_1e9_tokens", number_or_null(usd_of(f, p), true), "bound_s", c->step_s,
                     "memory_bound", (json_int_t)c->bytes);
    const cost_basis basis = basis_of(f, p);
    add_away_json(root, c);
    if (root) {
        if (p->peak.name[0])
            json_object_set_new(root, "mfu_peak", json_string(p->peak.name));
        json_object_set_new(root, "spot", json_boolean(basis.spot));
        json_object_set_new(root, "goodput", number_or_null(basis.goodput, basis.goodput > 0));
    }
    return root;
}

static const char *const next_keys[] = {[ORTH_GOAL_TIME] = "next_bound_s", [ORTH_GOAL_COST] = "next_bound_usd_per_1e9_tokens", [ORTH_GOAL_MEMORY] = "next_bound_bytes"};

/* Of an answer that is not proved: the least that another layout may take; null where none is known. Costs are in proportion to keys. */
static json_t *next_json(const found *f, const orth_search_answer *a)
{
    const double unit = f->num_best > 0 && f->s->goal == ORTH_GOAL_COST ? usd_of(f, orth_search_price(f->s, f->list[0])) / winner_key(f) : 1;
    return number_or_null(unit * a->next, !a->proved && !f->s->space.no_bounds && isfinite(unit));
}

static char *as_json(orth_ctx *ctx, const found *f)
{
    json_t *best = json_array(), *popular = json_object(), *least = json_object(), *front = json_array(), *depends = json_object();
    for (int i = 0; i < f->num_best; i++)
        json_array_append_new(best, candidate_json(f, f->list[i]));
    for (int k = 0; k < ORTH_COUNT(kinds) && f->num_best > 0; k++)
        json_object_set_new(popular, kinds[k].name, candidate_json(f, f->kind[k].candidate));
    for (int k = 0; k < ORTH_COUNT(kinds) && f->num_best > 0; k++) /* of those that are null above, but for what has no layout */
        if (f->kind[k].candidate < 0 && f->kind[k].least_bytes > 0 && !isinf(f->kind[k].least_bytes))
            json_object_set_new(least, kinds[k].name, json_integer((json_int_t)f->kind[k].least_bytes));
    for (int k = 0; k < NUM_LIMITS && f->num_best > 0; k++)
        json_array_append_new(front, json_pack("{s:f,s:o,s:b,s:o}", "memory_limit", f->limit_bytes[k], "best", candidate_json(f, f->limit[k].candidate), "proved",
                                               f->limit[k].proved, next_keys[f->s->goal], next_json(f, &f->limit[k])));
    for (int i = 0; i < ORTH_COUNT(changes) && f->num_best > 0 && !f->s->where.host; i++)
        json_object_set_new(depends, changes[i].name, json_real(f->changed_s[i]));
    json_t *root = json_pack("{s:s,s:I,s:I,s:I,s:i,s:i,s:i,s:b,s:o,s:o,s:o,s:o,s:o,s:o}", "goal", orth_goal_name(f->s->goal), "layouts",
                             (json_int_t)f->s->space.num_tried, "valid", (json_int_t)f->s->space.num, "left_out", (json_int_t)f->s->space.num_left_out, "small_runs", f->s->num_read, "plans",
                             f->s->num_plans, "winner_plans", f->winner_plans, "proved", f->best[0].proved, next_keys[f->s->goal], next_json(f, &f->best[0]), "best", best,
                             "popular", popular, "popular_memory_bound", least,
                             "memory_against_time", front, "step_s_on_changed_clusters", depends);
    char *text = root ? json_dumps(root, JSON_REAL_PRECISION(9)) : NULL, *out = text ? orth_mem_printf(ctx, "%s\n", text) : NULL;
    free(text);
    json_decref(root);
    return out;
}

orth_status orth_search_report(orth_ctx *ctx, orth_search *s, int32_t max_plans, bool json, char **text, int32_t *winner)
{
    found f = {.s = s};
    ORTH_TRY(find_winner(ctx, &f, max_plans));
    ORTH_TRY(list_best(ctx, &f, PLANS_OF_THE_NEXT));
    if (f.num_best > 0) {
        ORTH_TRY(ask_kinds(ctx, &f, PLANS_OF_A_KIND));
        ORTH_TRY(list_best(ctx, &f, 0)); /* in order; a popular choice may turn out to be better */
        ORTH_TRY(ask_limits(ctx, &f));
        ORTH_TRY(list_best(ctx, &f, 0)); /* all may be planned by now */
        ORTH_TRY(ask_kinds(ctx, &f, 0));
        if (!s->where.host)
            ORTH_TRY(price_changes(ctx, &f));
    }
    *winner = f.num_best > 0 ? f.list[0] : -1;
    *text = json ? as_json(ctx, &f) : as_text(ctx, &f);
    return *text ? ORTH_OK : ORTH_ERR_NOMEM;
}
