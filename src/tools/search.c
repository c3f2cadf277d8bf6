/* search.c -- see search.h. */
#include "tools/search.h"

#include <math.h>

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

orth_status orth_search_make_on(orth_ctx *ctx, orth_search *out, const orth_config *base, const orth_place_to_run *where,
                                int64_t num_devices, orth_goal goal)
{
    orth_model_config model;
    if (base->optimizer_freeze.n > 0) /* the bounds are those of a small model, all of which is trained: too high */
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "search: optimizer.freeze: a search does not know frozen parameters; `orthant plan --compare` compares "
                         "layouts with them");
    *out = (orth_search){.goal = goal, .where = *where};
    ORTH_TRY(orth_describe_model(ctx, base, &model));
    if (where->host)
        return orth_search_space_make_on_host(ctx, &out->space, base, &model, &out->where.hardware, num_devices);
    out->where.hardware.num_devices = num_devices;
    ORTH_TRY(orth_hardware_use(ctx, &out->where.hardware, num_devices));
    out->where.hardware.num_devices = 0; /* a layout may have fewer */
    return orth_search_space_make(ctx, &out->space, base, &model, &out->where.hardware, num_devices, goal == ORTH_GOAL_COST);
}

void orth_search_release(orth_ctx *ctx, orth_search *s)
{
    orth_search_space_release(ctx, &s->space);
    orth_place_to_run_release(ctx, &s->where);
    orth_mem_free(ctx, s->plans);
    orth_mem_free(ctx, s->of);
}

static double goal_key(const orth_search *s, double step_s, double bytes, const orth_candidate *c)
{
    return s->goal == ORTH_GOAL_TIME ? step_s : s->goal == ORTH_GOAL_COST ? step_s * (double)orth_candidate_ranks(c) : bytes;
}

double orth_search_key(const orth_search *s, const orth_candidate *c)
{
    const orth_price *p = c->plan < 0 ? NULL : &s->plans[c->plan];
    return p ? goal_key(s, p->step_s, (double)p->bytes, c) : goal_key(s, c->step_s, c->bytes, c);
}

static double bytes_of(const orth_search *s, const orth_candidate *c)
{
    const orth_price *p = c->plan < 0 ? NULL : &s->plans[c->plan];
    const bool too_small = p && s->where.hardware.mixed && !p->fits; /* a device of some group */
    return !p ? c->bytes : p->refused || too_small ? INFINITY : (double)p->bytes;
}

static bool is_left_out(const orth_search_question *q, int64_t i)
{
    for (int32_t k = 0; k < q->num_without; k++)
        if (q->without[k] == i)
            return true;
    return false;
}

/* The one with the least key that may answer; -1: none. */
static int64_t least(const orth_search *s, const orth_search_question *q, double limit, double *least_bytes)
{
    int64_t best = -1;
    double key = INFINITY;
    *least_bytes = INFINITY;
    for (int64_t i = 0; i < s->space.num; i++) {
        const orth_candidate *c = &s->space.list[i];
        if (q->is && !q->is(s, c))
            continue;
        const double bytes = bytes_of(s, c), mine = orth_search_key(s, c);
        *least_bytes = fmin(*least_bytes, bytes);
        if (bytes <= limit && mine < key && !is_left_out(q, i)) {
            key = mine;
            best = i;
        }
    }
    if (isinf(*least_bytes))
        *least_bytes = 0;
    return best;
}

orth_status orth_search_config(orth_ctx *ctx, const orth_search *s, int32_t candidate, orth_config *cfg)
{
    ORTH_TRY(orth_config_init(ctx, cfg));
    orth_status st = orth_config_override(ctx, cfg, s->space.base);
    if (st == ORTH_OK)
        st = orth_candidate_set(ctx, &s->space.list[candidate], cfg);
    if (st != ORTH_OK)
        orth_config_release(ctx, cfg);
    return st;
}

static orth_status make_room(orth_ctx *ctx, orth_search *s)
{
    if (s->num_plans < s->capacity)
        return ORTH_OK;
    const int32_t capacity = ORTH_MAX(64, 2 * s->capacity);
    orth_price *plans = ORTH_NEW_ARRAY(ctx, orth_price, capacity);
    int32_t *of = ORTH_NEW_ARRAY(ctx, int32_t, capacity);
    if (!plans || !of) {
        orth_mem_free(ctx, plans);
        orth_mem_free(ctx, of);
        return ORTH_ERR_NOMEM;
    }
    if (s->num_plans > 0) {
        memcpy(plans, s->plans, (size_t)s->num_plans * sizeof *plans);
        memcpy(of, s->of, (size_t)s->num_plans * sizeof *of);
    }
    orth_mem_free(ctx, s->plans);
    orth_mem_free(ctx, s->of);
    s->plans = plans;
    s->of = of;
    s->capacity = capacity;
    return ORTH_OK;
}

static orth_status plan(orth_ctx *ctx, orth_search *s, int64_t i)
{
    orth_config cfg;
    ORTH_TRY(make_room(ctx, s));
    ORTH_TRY(orth_search_config(ctx, s, (int32_t)i, &cfg));
    const orth_status st = orth_price_run(ctx, &s->where, &cfg, &s->plans[s->num_plans]);
    orth_config_release(ctx, &cfg);
    ORTH_TRY(st);
    s->of[s->num_plans] = (int32_t)i;
    s->space.list[i].plan = s->num_plans++;
    return ORTH_OK;
}

/* The best of those that were planned. */
static int32_t best_planned(const orth_search *s, const orth_search_question *q, double limit)
{
    int32_t best = -1;
    for (int32_t k = 0; k < s->num_plans; k++) {
        const orth_candidate *c = &s->space.list[s->of[k]];
        if ((!q->is || q->is(s, c)) && bytes_of(s, c) <= limit && !is_left_out(q, s->of[k]) &&
            (best < 0 || orth_search_key(s, c) < orth_search_key(s, &s->space.list[best])))
            best = s->of[k];
    }
    return best;
}

/* Whether the program of a rank is so long that its plan takes seconds: the blocks that it runs in a step. */
static bool is_long(const orth_search *s, const orth_candidate *c)
{
    const int64_t micro_batches = s->space.base->train_global_batch / (c->dp * c->micro_batch);
    return micro_batches * (s->space.model.layers / c->pp) > 1000;
}

orth_status orth_search_ask(orth_ctx *ctx, orth_search *s, const orth_search_question *q, orth_search_answer *out)
{
    const orth_hardware *h = &s->where.hardware;
    const double device = 0x1p30 * (h->device_memory_GiB - h->device_reserved_GiB), limit = q->limit_bytes > 0 ? fmin(q->limit_bytes, device) : device;
    for (int32_t planned = 0;;) {
        double bytes;
        const int64_t i = least(s, q, limit, &bytes);
        *out = (orth_search_answer){.candidate = (int32_t)i, .proved = !s->where.host || s->num_plans == s->space.num, .too_far = -1, .least_bytes = bytes};
        if (i < 0 || s->space.list[i].plan >= 0)
            return ORTH_OK;
        if (!s->space.list[i].read) {
            s->num_read++;
            ORTH_TRY(orth_search_space_read(ctx, &s->space, i));
            continue;
        }
        const double key = orth_search_key(s, &s->space.list[i]);
        const bool too_far = q->max_key > 0 && key > q->max_key && is_long(s, &s->space.list[i]);
        if (too_far || planned++ == q->max_plans) {
            *out = (orth_search_answer){.candidate = best_planned(s, q, limit), .next = key, .too_far = too_far ? (int32_t)i : -1, .least_bytes = bytes};
            return ORTH_OK;
        }
        ORTH_TRY(plan(ctx, s, i));
    }
}
