/* search.c -- see search.h. */
#include "tools/search.h"

#include <inttypes.h>
#include <math.h>

#include "base/crew.h"

static const char *const goals[] = {[ORTH_GOAL_TIME] = "time", [ORTH_GOAL_COST] = "cost", [ORTH_GOAL_MEMORY] = "memory"};

const char *orth_goal_name(orth_goal g)
{
    return goals[g];
}

orth_status orth_goal_from_name(orth_ctx *ctx, const char *name, orth_goal *out)
{
    for (int i = 0; i < ORTH_COUNT(goals); i++)
        if (strcmp(goals[i], name) == 0) {
            *out = (orth_goal)i;
            return ORTH_OK;
        }
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "search: --goal=%s: must be time, cost or memory", name);
}

orth_status orth_search_make(orth_ctx *ctx, orth_search *out, const orth_config *base, const char *cluster, orth_goal goal)
{
    orth_place_to_run where;
    ORTH_TRY(orth_place_to_run_find(ctx, &where, cluster));
    if (where.host && goal == ORTH_GOAL_COST)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "search: --goal=cost: --cluster=%s is a machine whose ranks share it (section host); its cost is its time", cluster);
    if (where.host)
        return orth_search_make_on(ctx, out, base, &where, (int64_t)where.hardware.host_cores, goal);
    if (where.hardware.num_devices == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "search: --cluster=%s names no number of devices: say %s-64, for example", cluster, cluster);
    const orth_status s = orth_search_make_on(ctx, out, base, &where, where.hardware.num_devices, goal);
    if (s != ORTH_OK)
        orth_place_to_run_release(ctx, &where);
    return s;
}

/* Patterns that no layout would accept are refused before any is looked at. */
static orth_status check_frozen(orth_ctx *ctx, const orth_config *base, const orth_model_config *model)
{
    bool *frozen = ORTH_NEW_ARRAY(ctx, bool, orth_model_num_params(model));
    const orth_status s = frozen ? orth_setup_frozen(ctx, base, model, frozen) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, frozen);
    return s;
}

/* No layout has the keys that were given. */
static orth_status fail_empty(orth_ctx *ctx, orth_search *s, int64_t num_devices)
{
    char why[ORTH_MESSAGE_MAX], dims[192];
    snprintf(why, sizeof why, "%s", s->space.num_left_out ? s->space.why_left_out : s->space.why);
    snprintf(dims, sizeof dims, "tp * cp * pp * dp must be %" PRId64 ", tp divide heads=%" PRId64 ", pp be at most layers=%" PRId64
             ", and dp * micro_batch divide global_batch=%" PRId64, num_devices, (int64_t)s->space.model.heads, (int64_t)s->space.model.layers,
             s->space.layout.global_batch);
    orth_search_space_release(ctx, &s->space);
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "search: no layout is valid with the keys that are given: %s", why[0] ? why : dims);
}

orth_status orth_search_make_on(orth_ctx *ctx, orth_search *out, const orth_config *base, const orth_place_to_run *where,
                                int64_t num_devices, orth_goal goal)
{
    orth_model_config model;
    *out = (orth_search){.goal = goal, .where = *where, .num_threads = orth_price_threads(where)};
    ORTH_TRY(orth_describe_model(ctx, base, &model));
    ORTH_TRY(orth_describe_check_vocab(ctx, base, &model));
    out->num_elems = orth_model_num_elems(&model);
    if (base->optimizer_freeze.n > 0)
        ORTH_TRY(check_frozen(ctx, base, &model));
    if (where->host) {
        ORTH_TRY(orth_search_space_make_on_host(ctx, &out->space, base, &model, &out->where.hardware, num_devices));
    } else {
        out->where.hardware.num_devices = num_devices;
        ORTH_TRY(orth_hardware_use(ctx, &out->where.hardware, num_devices));
        out->where.hardware.num_devices = 0; /* a layout may have fewer */
        ORTH_TRY(orth_search_space_make(ctx, &out->space, base, &model, &out->where.hardware, num_devices, goal == ORTH_GOAL_COST));
    }
    return out->space.num > 0 ? ORTH_OK : fail_empty(ctx, out, num_devices);
}

void orth_search_release(orth_ctx *ctx, orth_search *s)
{
    orth_search_space_release(ctx, &s->space);
    orth_place_to_run_release(ctx, &s->where);
    orth_mem_free(ctx, s->plans);
    orth_mem_free(ctx, s->ahead);
}

/* NULL: not planned. */
static const orth_price *price_of(const orth_search *s, const orth_candidate *c)
{
    return c->plan < 0 ? NULL : &s->plans[c->plan].price;
}

orth_rent orth_search_rent(const orth_search *s, int64_t num_devices)
{
    return orth_rent_of(&s->where.hardware, num_devices, s->num_elems);
}

double orth_search_hour_cost(const orth_search *s, const orth_rent *r, int64_t num_devices)
{
    const bool has_price = s->where.hardware.price_on_demand > 0 || s->where.hardware.price_spot > 0;
    const bool spot = r->spot_usd > 0 && (r->on_demand_usd == 0 || r->spot_usd < r->on_demand_usd);
    const double usd = spot ? r->spot_usd : r->on_demand_usd;
    return !has_price ? r->hours * (double)num_devices : usd > 0 ? usd : INFINITY;
}

static double hour_cost(const orth_search *s, const orth_candidate *c)
{
    const int64_t n = orth_candidate_ranks(c);
    const orth_rent r = orth_search_rent(s, n);
    return orth_search_hour_cost(s, &r, n);
}

static double goal_key(const orth_search *s, double step_s, double bytes, const orth_candidate *c)
{
    return s->goal == ORTH_GOAL_TIME ? step_s : s->goal == ORTH_GOAL_COST ? step_s * hour_cost(s, c) : bytes;
}

double orth_search_key(const orth_search *s, const orth_candidate *c)
{
    const orth_price *p = price_of(s, c);
    return p ? goal_key(s, p->step_s, (double)p->bytes, c) : goal_key(s, c->step_s, c->bytes, c);
}

double orth_search_key_at(const orth_search *s, const orth_candidate *c, const orth_price *p)
{
    return p->refused ? INFINITY : goal_key(s, p->step_s, (double)p->bytes, c);
}

static double bytes_of(const orth_search *s, const orth_candidate *c)
{
    const orth_price *p = price_of(s, c);
    const bool too_small = p && (s->where.hardware.mixed ? !p->fits /* a device of some group */
                                                         : orth_budget_exceeded(&p->budgets[ORTH_BUDGET_HOST]) || orth_budget_exceeded(&p->budgets[ORTH_BUDGET_FILES]));
    if (s->goal == ORTH_GOAL_COST && isinf(hour_cost(s, c)))
        return INFINITY;
    return !p ? c->bytes : p->refused || too_small ? INFINITY : (double)p->bytes;
}

static bool is_left_out(const orth_search_question *q, int64_t i)
{
    for (int32_t k = 0; k < q->num_without; k++)
        if (q->without[k] == i)
            return true;
    return false;
}

static bool is_beside(const orth_candidate *a, const orth_candidate *b)
{
    return a->tp == b->tp && a->cp == b->cp && a->pp == b->pp && a->dp == b->dp && a->zero == b->zero;
}

static bool is_asked(const orth_search *s, const orth_search_question *q, const orth_candidate *c)
{
    return (!q->is || q->is(s, c)) && (!q->beside || is_beside(c, q->beside));
}

/* Whether a layout goes before another: of equal keys the one that needs less memory, 1f1b before gpipe for example. Sums in another order may
 * differ in their last digits. */
#define EQUAL 1e-12
static bool is_before(double key, double bytes, double other_key, double other_bytes)
{
    return key < other_key * (1 - EQUAL) || (key <= other_key * (1 + EQUAL) && bytes < other_bytes);
}

/* The one with the least key that may answer; -1: none. */
static int64_t least(const orth_search *s, const orth_search_question *q, double limit, double *least_bytes)
{
    int64_t best = -1;
    double key = INFINITY, best_bytes = INFINITY;
    bool any = false;
    *least_bytes = INFINITY;
    for (int64_t i = 0; i < s->space.num; i++) {
        const orth_candidate *c = &s->space.list[i];
        if (!is_asked(s, q, c))
            continue;
        const double bytes = bytes_of(s, c), mine = orth_search_key(s, c);
        any = true;
        *least_bytes = fmin(*least_bytes, bytes);
        if (bytes <= limit && is_before(mine, bytes, key, best_bytes) && !is_left_out(q, i)) {
            key = mine;
            best_bytes = bytes;
            best = i;
        }
    }
    if (!any)
        *least_bytes = 0;
    return best;
}

orth_status orth_search_config(orth_ctx *ctx, const orth_search *s, int32_t candidate, orth_config *cfg)
{
    const orth_candidate *c = &s->space.list[candidate];
    ORTH_TRY(orth_config_copy(ctx, cfg, s->space.base));
    orth_candidate_set(c, cfg);
    if (c->plan < 0 || !s->plans[c->plan].dp_share[0])
        return ORTH_OK;
    const orth_status st = orth_config_set(ctx, cfg, "search", "parallel.dp_share", s->plans[c->plan].dp_share);
    if (st != ORTH_OK)
        orth_config_release(ctx, cfg);
    return st;
}

/* Of different devices: shares of the batch as computing is fast on them, "" where a rule wants equal ones. */
static orth_status guess_shares(orth_ctx *ctx, orth_search *s, int64_t i, const orth_config *cfg, char list[ORTH_SHARES_LIST_MAX])
{
    double slower[ORTH_MAX_DEVICE_GROUPS];
    const orth_layout l = orth_setup_layout(cfg);
    if (!s->where.hardware.mixed || l.dp == 1 || l.zero >= 2 || l.num_dp_share > 0)
        return ORTH_OK;
    ORTH_TRY(orth_search_space_slower(ctx, &s->space, i, slower));
    return orth_shares_guess(ctx, cfg, &s->where, slower, list);
}

/* Whether the layout has it better at price `a` than at `b`. */
static bool is_better(const orth_search *s, const orth_candidate *c, const orth_price *a, const orth_price *b)
{
    if (a->refused || b->refused)
        return !a->refused;
    if (a->fits != b->fits)
        return a->fits;
    return goal_key(s, a->step_s, (double)a->bytes, c) < goal_key(s, b->step_s, (double)b->bytes, c);
}

/* With equal shares or with the guessed ones, whichever is better: proportional shares take more memory on the fast devices, and calls may hide what equal
 * shares cost. */
static orth_status price_plan(orth_ctx *ctx, orth_search *s, orth_config *cfg, orth_search_plan *p)
{
    orth_price guessed;
    ORTH_TRY(orth_price_run(ctx, &s->where, cfg, &p->price));
    if (!p->dp_share[0])
        return ORTH_OK;
    ORTH_TRY(orth_config_set(ctx, cfg, "search", "parallel.dp_share", p->dp_share));
    ORTH_TRY(orth_price_run(ctx, &s->where, cfg, &guessed));
    if (is_better(s, &s->space.list[p->candidate], &guessed, &p->price))
        p->price = guessed;
    else
        p->dp_share[0] = '\0';
    return ORTH_OK;
}

static orth_status plan(orth_ctx *ctx, orth_search *s, orth_search_plan *p)
{
    orth_config cfg;
    ORTH_TRY(orth_search_config(ctx, s, p->candidate, &cfg));
    orth_status st = guess_shares(ctx, s, p->candidate, &cfg, p->dp_share);
    if (st == ORTH_OK)
        st = price_plan(ctx, s, &cfg, p);
    orth_config_release(ctx, &cfg);
    return st;
}

/* The best of those that were planned. */
static int32_t best_planned(const orth_search *s, const orth_search_question *q, double limit)
{
    int32_t best = -1;
    for (int32_t k = 0; k < s->num_plans; k++) {
        const int32_t i = s->plans[k].candidate;
        const orth_candidate *c = &s->space.list[i], *other = best < 0 ? NULL : &s->space.list[best];
        if (is_asked(s, q, c) && bytes_of(s, c) <= limit && !is_left_out(q, i) &&
            (!other || is_before(orth_search_key(s, c), bytes_of(s, c), orth_search_key(s, other), bytes_of(s, other))))
            best = i;
    }
    return best;
}

bool orth_search_has_many_programs(const orth_search *s, const orth_candidate *c)
{
    (void)s;
    return c->dp > 1 && c->zero > 0 && (c->away[ORTH_AWAY_PARAMS] != ORTH_TIER_NONE || c->away[ORTH_AWAY_GRADIENTS] != ORTH_TIER_NONE);
}

/* Blocks of the programs of a stage: of so many a plan takes seconds, or minutes. */
#define MANY_BLOCKS 1000
#define TOO_MANY_BLOCKS 10000
#define MANY_PLANS 4            /* what one with many programs counts as, of those that an answer may cost */
static int64_t count_blocks(const orth_search *s, const orth_candidate *c)
{
    const int64_t micro_batches = s->space.base->train_global_batch / (c->dp * c->micro_batch);
    return micro_batches * (s->space.model.layers / c->pp) * (orth_search_has_many_programs(s, c) ? c->dp : 1);
}

/* Whether a question is not worth the plan of a layout with this key. */
static bool is_too_far(const orth_search *s, const orth_search_question *q, const orth_candidate *c, double key)
{
    if (q->max_key == 0)
        return false;
    const int64_t blocks = count_blocks(s, c);
    return (key > q->max_key && blocks > MANY_BLOCKS) || (orth_search_has_many_programs(s, c) && blocks > TOO_MANY_BLOCKS);
}

/* ---- plans ahead ---- */

/* Plans of more blocks than this may take more memory than orth_price_threads counts on: they are made one by one. */
#define MAX_BLOCKS_AHEAD 4000

typedef struct {
    orth_search *s;
    orth_search_plan *plans;
} batch;

static orth_status plan_of_batch(orth_ctx *ctx, void *arg, int64_t index)
{
    const batch *b = arg;
    return plan(ctx, b->s, &b->plans[index]);
}

/* -1: none. */
static int32_t find_ahead(const orth_search *s, int64_t candidate)
{
    for (int32_t k = 0; k < s->num_ahead; k++)
        if (s->ahead[k].candidate == candidate)
            return k;
    return -1;
}

/* The layout that a question comes to after those that are planned and those that are ahead, if it needs no small run; -1: none. */
static int64_t next_ahead(const orth_search *s, const orth_search_question *q, double limit)
{
    const int32_t best = best_planned(s, q, limit);
    double key = best < 0 ? INFINITY : orth_search_key(s, &s->space.list[best]);
    int64_t next = -1;
    for (int64_t i = 0; i < s->space.num; i++) {
        const orth_candidate *c = &s->space.list[i];
        if (c->plan < 0 && c->read && c->bytes <= limit && orth_search_key(s, c) < key && is_asked(s, q, c) && !is_left_out(q, i) &&
            count_blocks(s, c) <= MAX_BLOCKS_AHEAD && find_ahead(s, i) < 0) {
            key = orth_search_key(s, c);
            next = i;
        }
    }
    return next >= 0 && is_too_far(s, q, &s->space.list[next], key) ? -1 : next;
}

/* Plans layout i, and up to most - 1 others on as many other threads. */
static orth_status plan_with_others(orth_ctx *ctx, orth_search *s, const orth_search_question *q, double limit, int64_t i, int32_t most)
{
    const int32_t first = s->num_ahead;
    for (int32_t n = 0; n < most && i >= 0; n++) {
        if (!orth_mem_grow(ctx, (void **)&s->ahead, &s->ahead_capacity, s->num_ahead, sizeof *s->ahead))
            return ORTH_ERR_NOMEM;
        s->ahead[s->num_ahead++] = (orth_search_plan){.candidate = (int32_t)i};
        i = n + 1 < most ? next_ahead(s, q, limit) : -1;
    }
    const int32_t n = s->num_ahead - first;
    batch b = {s, &s->ahead[first]};
    const orth_status st = orth_crew_run(ctx, n, n, plan_of_batch, &b);
    if (st != ORTH_OK)
        s->num_ahead = first;
    return st;
}

/* Where there is no memory for several plans at once, one by one. */
static orth_status plan_next(orth_ctx *ctx, orth_search *s, const orth_search_question *q, double limit, int64_t i, int32_t plans_left)
{
    if (find_ahead(s, i) < 0) {
        const int32_t most = count_blocks(s, &s->space.list[i]) > MAX_BLOCKS_AHEAD ? 1 : ORTH_MIN(s->num_threads, plans_left);
        orth_status st = plan_with_others(ctx, s, q, limit, i, most);
        if (st == ORTH_ERR_NOMEM && most > 1) {
            orth_ctx_clear_error(ctx);
            s->num_threads = 1;
            st = plan_with_others(ctx, s, q, limit, i, 1);
        }
        ORTH_TRY(st);
    }
    if (!orth_mem_grow(ctx, (void **)&s->plans, &s->capacity, s->num_plans, sizeof *s->plans))
        return ORTH_ERR_NOMEM;
    const int32_t k = find_ahead(s, i);
    s->plans[s->num_plans] = s->ahead[k];
    s->ahead[k] = s->ahead[--s->num_ahead];
    s->space.list[i].plan = s->num_plans++;
    return ORTH_OK;
}

double orth_search_limit(const orth_search *s)
{
    const orth_hardware *h = &s->where.hardware;
    const double all = orth_hardware_room(h), given = (double)s->space.base->memory_limit_device;
    return given > 0 ? fmin(given, all) : all;
}

orth_status orth_search_ask(orth_ctx *ctx, orth_search *s, const orth_search_question *q, orth_search_answer *out)
{
    const double device = orth_search_limit(s), limit = q->limit_bytes > 0 ? fmin(q->limit_bytes, device) : device;
    for (int32_t planned = 0;;) {
        double bytes;
        const int64_t i = least(s, q, limit, &bytes);
        *out = (orth_search_answer){.candidate = (int32_t)i, .proved = !s->space.no_bounds || s->num_plans == s->space.num, .too_far = -1,
                                    .least_bytes = bytes};
        if (i < 0 || s->space.list[i].plan >= 0)
            return ORTH_OK;
        if (!s->space.list[i].read) {
            s->num_read++;
            ORTH_TRY(orth_search_space_read(ctx, &s->space, i));
            continue;
        }
        const double key = orth_search_key(s, &s->space.list[i]);
        const bool too_far = is_too_far(s, q, &s->space.list[i], key);
        if (too_far || planned >= q->max_plans) {
            *out = (orth_search_answer){.candidate = best_planned(s, q, limit), .next = key, .too_far = too_far ? (int32_t)i : -1, .least_bytes = bytes};
            return ORTH_OK;
        }
        orth_ctx_tell(ctx, "layouts planned in full", s->num_plans, 0);
        ORTH_TRY(plan_next(ctx, s, q, limit, i, q->max_plans - planned));
        planned += orth_search_has_many_programs(s, &s->space.list[i]) ? MANY_PLANS : 1;
    }
}
