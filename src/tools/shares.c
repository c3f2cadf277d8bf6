/* shares.c -- see shares.h. */
#include "tools/shares.h"

#include <inttypes.h>
#include <math.h>

#include "base/json_out.h"

#define MAX_PLANS 16             /* of other shares than equal ones */
#define MAX_WEIGHT 1000          /* of parallel.dp_share */

/* Data-parallel ranks whose ranks lie on the same groups. */
typedef struct {
    uint32_t groups;             /* a bit for each */
    int64_t num;                 /* data-parallel ranks */
    double seconds;              /* of a step on its slowest devices with equal shares */
} kind;

/* Micro-batches of a rank of each kind. */
typedef struct {
    int64_t num[ORTH_MAX_DEVICE_GROUPS];
} deal;

typedef struct {
    orth_ctx *ctx;
    const orth_config *cfg;
    orth_place_to_run *where;
    orth_shares *out;
    int64_t dp, micro_batches;
    kind kinds[ORTH_MAX_DEVICE_GROUPS];
    int num_kinds;
    int kind_of[ORTH_LIST_MAX];  /* [dp] */
    double best_s;               /* of predicted deals */
    deal best;
} finding;

/* ---- kinds ---- */

static orth_status add_kind(finding *x, int64_t d, uint32_t groups)
{
    int k = 0;
    while (k < x->num_kinds && x->kinds[k].groups != groups)
        k++;
    if (k == ORTH_MAX_DEVICE_GROUPS)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "data-parallel ranks lie on groups in more than %d ways", ORTH_MAX_DEVICE_GROUPS);
    if (k == x->num_kinds)
        x->kinds[x->num_kinds++] = (kind){.groups = groups};
    x->kinds[k].num++;
    x->kind_of[d] = k;
    return ORTH_OK;
}

static orth_status find_kinds(finding *x)
{
    const orth_layout l = orth_setup_layout(x->cfg);
    const orth_mesh_options options = {.dp = l.dp, .tp = l.tp, .pp = l.pp, .cp = l.cp, .shard_group = l.shard_group, .order = l.order};
    uint32_t groups[ORTH_LIST_MAX] = {0};
    orth_mesh mesh;
    ORTH_TRY(orth_mesh_init(x->ctx, &mesh, &options));
    for (int r = 0; r < mesh.num_ranks; r++)
        groups[orth_mesh_group_pos(&mesh, r, ORTH_AXES_DP)] |= 1u << orth_mixed_group_of(&x->where->hardware, r);
    for (int64_t d = 0; d < x->dp; d++)
        ORTH_TRY(add_kind(x, d, groups[d]));
    return ORTH_OK;
}

/* ---- plans ---- */

/* The run with other words, on other hardware. */
static orth_status price_with(finding *x, const orth_hardware *h, const char *key, const char *value, const char *shares, orth_price *out)
{
    orth_place_to_run where = *x->where;
    orth_config cfg;
    where.hardware = *h;
    ORTH_TRY(orth_ctx_check_stop(x->ctx));
    ORTH_TRY(orth_config_copy(x->ctx, &cfg, x->cfg));
    orth_status s = orth_config_set(x->ctx, &cfg, "shares", "parallel.dp_share", shares);
    if (s == ORTH_OK && key)
        s = orth_config_set(x->ctx, &cfg, "shares", key, value);
    if (s == ORTH_OK)
        s = orth_price_run(x->ctx, &where, &cfg, out);
    orth_config_release(x->ctx, &cfg);
    return s;
}

static int64_t gcd(int64_t a, int64_t b)
{
    return b == 0 ? a : gcd(b, a % b);
}

static int64_t common_factor(const finding *x, const deal *d)
{
    int64_t f = 0;
    for (int k = 0; k < x->num_kinds; k++)
        f = gcd(f, d->num[k]);
    return f;
}

/* "[3, 3, 1, 1]"; false: a part is too large, or the list too long. */
static bool write_deal(const finding *x, const deal *d, char out[ORTH_SHARES_LIST_MAX])
{
    const int64_t f = common_factor(x, d);
    size_t at = (size_t)snprintf(out, ORTH_SHARES_LIST_MAX, "[");
    for (int64_t r = 0; r < x->dp; r++) {
        const int64_t part = d->num[x->kind_of[r]] / f;
        if (part > MAX_WEIGHT || at >= ORTH_SHARES_LIST_MAX - 8)
            return false;
        at += (size_t)snprintf(out + at, ORTH_SHARES_LIST_MAX - at, "%s%" PRId64, r > 0 ? ", " : "", part);
    }
    snprintf(out + at, ORTH_SHARES_LIST_MAX - at, "]");
    return true;
}

static bool is_better(const orth_price *a, const orth_price *b)
{
    return a->fits != b->fits ? a->fits : a->step_s < b->step_s;
}

/* Plans the run with these shares, and keeps them if they are the best. *better: they are. */
static orth_status try_deal(finding *x, const deal *d, bool *better)
{
    char text[ORTH_SHARES_LIST_MAX];
    orth_price p;
    *better = false;
    if (!write_deal(x, d, text))
        return ORTH_OK;
    x->out->num_plans++;
    ORTH_TRY(price_with(x, &x->where->hardware, NULL, NULL, text, &p));
    if (p.refused)
        snprintf(x->out->why_not, sizeof x->out->why_not, "%s", p.why);
    if (p.refused || !is_better(&p, &x->out->proposed))
        return ORTH_OK;
    *better = true;
    x->out->proposed = p;
    snprintf(x->out->list, sizeof x->out->list, "%s", text);
    return ORTH_OK;
}

/* ---- prediction ---- */

/* A step where every device is as those of the kind's slowest group. */
static orth_status time_kinds(finding *x)
{
    const orth_mixed *m = x->where->hardware.mixed;
    for (int k = 0; k < x->num_kinds; k++)
        for (int g = 0; g < m->num_groups; g++) {
            orth_hardware h = m->group[g].far;
            orth_price p;
            if (!(x->kinds[k].groups >> g & 1))
                continue;
            h.num_devices = 0;
            ORTH_TRY(price_with(x, &h, NULL, NULL, "[]", &p));
            if (p.refused)
                return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s", p.why);
            x->kinds[k].seconds = fmax(x->kinds[k].seconds, p.step_s);
        }
    return ORTH_OK;
}

/* The deal of the `left` micro-batches to kinds k and on whose slowest rank is the fastest. */
static void predict(finding *x, int k, int64_t left, deal *d, double so_far)
{
    const kind *a = &x->kinds[k];
    const bool last = k + 1 == x->num_kinds;
    for (int64_t n = last ? left / a->num : 1; n > 0 && n * a->num <= left; n++) {
        const double s = fmax(so_far, (double)n * a->seconds);
        if (s >= x->best_s)
            break;
        d->num[k] = n;
        if (!last) {
            predict(x, k + 1, left - n * a->num, d, s);
        } else if (n * a->num == left) {
            x->best_s = s;
            x->best = *d;
        }
        if (last)
            break;
    }
}

/* False: micro-batches cannot be dealt so. */
static bool predict_best(finding *x)
{
    deal d = {{0}};
    x->best_s = INFINITY;
    predict(x, 0, x->micro_batches, &d, 0);
    return isfinite(x->best_s);
}

/* False: micro-batches cannot be dealt equally. */
static bool equal_deal(const finding *x, deal *out)
{
    for (int k = 0; k < x->num_kinds; k++)
        out->num[k] = x->micro_batches / x->dp;
    return x->micro_batches % x->dp == 0;
}

static bool is_equal(const finding *x, const deal *d)
{
    for (int k = 1; k < x->num_kinds; k++)
        if (d->num[k] != d->num[0])
            return false;
    return true;
}

/* ---- exact ---- */

/* The smallest move of micro-batches from kind b to kind a; false: b would have none. */
static bool move(const finding *x, const deal *from, int a, int b, deal *to)
{
    const int64_t f = gcd(x->kinds[a].num, x->kinds[b].num);
    *to = *from;
    to->num[a] += x->kinds[b].num / f;
    to->num[b] -= x->kinds[a].num / f;
    return to->num[b] > 0;
}

/* Moves from kind b to kind a while that makes the step shorter. *moved: it did once. */
static orth_status move_on(finding *x, deal *at, int a, int b, bool *moved)
{
    deal next;
    bool better = true;
    while (better && x->out->num_plans < MAX_PLANS && move(x, at, a, b, &next)) {
        ORTH_TRY(try_deal(x, &next, &better));
        *moved = *moved || better;
        *at = better ? next : *at;
    }
    return ORTH_OK;
}

/* Goes on from a deal while a move makes the step shorter. */
static orth_status descend(finding *x, deal at)
{
    for (bool moved = true; moved && x->out->num_plans < MAX_PLANS && !x->out->why_not[0];) {
        moved = false;
        for (int a = 0; a < x->num_kinds; a++)
            for (int b = 0; b < x->num_kinds; b++)
                if (a != b)
                    ORTH_TRY(move_on(x, &at, a, b, &moved));
    }
    return ORTH_OK;
}

static orth_status find_deal(finding *x)
{
    if (x->num_kinds < 2) {
        snprintf(x->out->why_not, sizeof x->out->why_not, "every data-parallel rank lies on the same groups, so equal shares are the best");
        return ORTH_OK;
    }
    ORTH_TRY(time_kinds(x));
    if (!predict_best(x)) {
        snprintf(x->out->why_not, sizeof x->out->why_not, "%" PRId64 " micro-batches cannot be dealt so that ranks on the same groups have the same",
                 x->micro_batches);
        return ORTH_OK;
    }
    bool better;
    ORTH_TRY(try_deal(x, &x->best, &better));
    if (!x->out->why_not[0])
        ORTH_TRY(descend(x, x->best));
    return x->out->list[0] || x->out->why_not[0] || !equal_deal(x, &x->best) ? ORTH_OK : descend(x, x->best);
}

/* ---- groups alone ---- */

static orth_status price_alone(finding *x, int g)
{
    const orth_mixed *m = x->where->hardware.mixed;
    const orth_device_group *group = &m->group[g], *last = &m->group[m->num_groups - 1];
    const int64_t total = last->first + last->num_devices;
    orth_price *p = &x->out->alone[g].price;
    char dp[32];
    x->out->alone[g].dp = x->dp * group->num_devices / total;
    if (x->dp * group->num_devices % total != 0 || x->out->alone[g].dp == 0) {
        *p = (orth_price){.refused = true};
        snprintf(p->why, sizeof p->why, "its %" PRId64 " devices make no whole number of data-parallel ranks", group->num_devices);
        return ORTH_OK;
    }
    snprintf(dp, sizeof dp, "%" PRId64, x->out->alone[g].dp);
    return price_with(x, &group->own, "parallel.dp", dp, "[]", p);
}

static finding finding_of(orth_ctx *ctx, const orth_config *cfg, orth_place_to_run *where, orth_shares *out)
{
    return (finding){.ctx = ctx, .cfg = cfg, .where = where, .out = out, .dp = cfg->parallel_dp,
                     .micro_batches = cfg->train_global_batch / cfg->train_micro_batch};
}

orth_status orth_shares_find(orth_ctx *ctx, const orth_config *cfg, orth_place_to_run *where, orth_shares *out)
{
    finding x = finding_of(ctx, cfg, where, out);
    *out = (orth_shares){.num_plans = 0};
    ORTH_TRY(price_with(&x, &where->hardware, NULL, NULL, "[]", &out->equal));
    if (out->equal.refused)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s", out->equal.why);
    out->proposed = out->equal;
    if (x.dp > ORTH_LIST_MAX) {
        snprintf(out->why_not, sizeof out->why_not, "a run file lists the shares of at most %d data-parallel ranks", ORTH_LIST_MAX);
    } else {
        ORTH_TRY(find_kinds(&x));
        ORTH_TRY(find_deal(&x));
    }
    for (int g = 0; g < where->hardware.mixed->num_groups; g++)
        ORTH_TRY(price_alone(&x, g));
    return ORTH_OK;
}

orth_status orth_shares_guess(orth_ctx *ctx, const orth_config *cfg, orth_place_to_run *where, const double *slower, char list[ORTH_SHARES_LIST_MAX])
{
    finding x = finding_of(ctx, cfg, where, NULL);
    list[0] = '\0';
    if (x.dp > ORTH_LIST_MAX)
        return ORTH_OK;
    ORTH_TRY(find_kinds(&x));
    for (int k = 0; k < x.num_kinds; k++)
        for (int g = 0; g < where->hardware.mixed->num_groups; g++)
            x.kinds[k].seconds = x.kinds[k].groups >> g & 1 ? fmax(x.kinds[k].seconds, slower[g]) : x.kinds[k].seconds;
    if (!predict_best(&x) || is_equal(&x, &x.best) || !write_deal(&x, &x.best, list))
        list[0] = '\0';
    return ORTH_OK;
}

/* ---- for people ---- */

static void add_row(orth_ctx *ctx, orth_text *t, const char *name, const orth_price *p, double against, const char *word)
{
    if (p->refused) {
        orth_text_addf(ctx, t, "  %-24s %s\n", name, p->why);
        return;
    }
    orth_text_addf(ctx, t, "  %-24s %9.4g %12.6g %+9.1f %% %5s%s%s\n", name, p->step_s, p->tokens_per_s, 100 * (p->step_s / against - 1),
                   p->fits ? "yes" : "no", *word ? "  " : "", word);
}

char *orth_shares_text(orth_ctx *ctx, const orth_shares *s, const orth_mixed *m)
{
    orth_text t = {0};
    const double step = s->proposed.step_s;
    orth_text_addf(ctx, &t, "\nshares of the batch           step s     tokens/s    against the best  fits\n");
    add_row(ctx, &t, "equal", &s->equal, step, "");
    if (s->list[0]) {
        char word[ORTH_SHARES_LIST_MAX + 32];
        snprintf(word, sizeof word, "parallel.dp_share=%s", s->list);
        add_row(ctx, &t, "proposed", &s->proposed, step, word);
    }
    for (int g = 0; g < m->num_groups; g++) {
        char name[96], dp[32];
        snprintf(name, sizeof name, "%s alone", m->group[g].name);
        snprintf(dp, sizeof dp, "parallel.dp=%" PRId64, s->alone[g].dp);
        add_row(ctx, &t, name, &s->alone[g].price, step, dp);
    }
    for (int g = 0; g < m->num_groups; g++) {
        const orth_price *p = &s->alone[g].price;
        if (!p->refused && p->step_s < step)
            orth_text_addf(ctx, &t, "%s alone %s: the others cost more time than they save\n", m->group[g].name,
                           p->fits ? "is faster than all together" : "would be faster than all together, but does not fit");
    }
    if (s->why_not[0])
        orth_text_addf(ctx, &t, "no other shares: %s\n", s->why_not);
    return orth_text_take(ctx, &t);
}

/* ---- JSON ---- */

static void add_price(orth_json_out *j, const orth_price *p)
{
    if (p->refused) {
        orth_json_string(j, "refused", p->why);
        return;
    }
    orth_json_print(j, "step_s", "%.9g", p->step_s);
    orth_json_print(j, "tokens_per_s", "%.9g", p->tokens_per_s);
    orth_json_bool(j, "fits", p->fits);
}

char *orth_shares_json(orth_ctx *ctx, const orth_shares *s, const orth_mixed *m)
{
    orth_text t = {0};
    orth_json_out j = {ctx, &t};
    orth_json_open(&j, NULL, '{');
    orth_json_open(&j, "equal", '{');
    add_price(&j, &s->equal);
    orth_json_close(&j, '}');
    orth_json_open(&j, "proposed", '{');
    orth_json_print(&j, "dp_share", "%s", s->list[0] ? s->list : "[]");
    add_price(&j, &s->proposed);
    orth_json_close(&j, '}');
    orth_json_open(&j, "alone", '[');
    for (int g = 0; g < m->num_groups; g++) {
        orth_json_open(&j, NULL, '{');
        orth_json_string(&j, "group", m->group[g].name);
        orth_json_print(&j, "dp", "%" PRId64, s->alone[g].dp);
        add_price(&j, &s->alone[g].price);
        orth_json_close(&j, '}');
    }
    orth_json_close(&j, ']');
    if (s->why_not[0])
        orth_json_string(&j, "no_other_shares", s->why_not);
    orth_json_close(&j, '}');
    return orth_text_take(ctx, &t);
}
