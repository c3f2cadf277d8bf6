/* scaling.c -- see scaling.h. */
#include "tools/scaling.h"

#include <inttypes.h>

#include "base/json_out.h"
#include "plan/software.h"

static const struct {
    int64_t times, over;
} factors[ORTH_SCALING_POINTS] = {{1, 4}, {1, 2}, {1, 1}, {2, 1}, {4, 1}};

static orth_status set_int(orth_ctx *ctx, orth_config *cfg, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return orth_config_set(ctx, cfg, "scaling", key, text);
}

static orth_status price_point(orth_ctx *ctx, const orth_config *base, orth_place_to_run *where, int k, bool weak, orth_scaling_point *out)
{
    const int64_t times = factors[k].times, over = factors[k].over;
    orth_config cfg;
    *out = (orth_scaling_point){.price.refused = true};
    if (base->parallel_dp * times % over != 0 || (weak && base->train_global_batch * times % over != 0))
        return ORTH_OK;
    out->dp = base->parallel_dp * times / over;
    out->global_batch = weak ? base->train_global_batch * times / over : base->train_global_batch;
    ORTH_TRY(orth_config_copy(ctx, &cfg, base));
    orth_status s = set_int(ctx, &cfg, "parallel.dp", out->dp);
    if (s == ORTH_OK)
        s = set_int(ctx, &cfg, "train.global_batch", out->global_batch);
    if (s == ORTH_OK)
        s = orth_price_run(ctx, where, &cfg, &out->price);
    orth_config_release(ctx, &cfg);
    return s;
}

orth_status orth_scaling_find(orth_ctx *ctx, const orth_config *cfg, const char *cluster, orth_scaling *out)
{
    orth_place_to_run where;
    orth_price as_it_is;
    ORTH_TRY(orth_place_to_run_find(ctx, &where, cluster));
    orth_status s = orth_price_run(ctx, &where, cfg, &as_it_is);
    if (s == ORTH_OK && as_it_is.refused)
        s = ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s", as_it_is.why);
    where.hardware.num_devices = 0; /* other numbers of ranks have other numbers of devices */
    out->shared = !where.described;
    for (int k = 0; k < ORTH_SCALING_POINTS && s == ORTH_OK; k++) {
        s = price_point(ctx, cfg, &where, k, false, &out->strong[k]);
        if (s == ORTH_OK)
            s = price_point(ctx, cfg, &where, k, true, &out->weak[k]);
    }
    orth_place_to_run_release(ctx, &where);
    return s;
}

/* ---- output ---- */

static double speed_of(const orth_price *p, bool shared)
{
    return p->tokens_per_s / (shared ? 1 : p->num_ranks);
}

double orth_scaling_efficiency(const orth_scaling_point points[ORTH_SCALING_POINTS], int k, bool shared)
{
    int first = 0;
    while (first < k && points[first].price.refused)
        first++;
    return speed_of(&points[k].price, shared) / speed_of(&points[first].price, shared);
}

static void add_rows(orth_ctx *ctx, orth_text *t, const char *name, const orth_scaling_point points[ORTH_SCALING_POINTS], bool shared)
{
    orth_text_addf(ctx, t, "%-7s ranks     dp  global batch       step s     tokens/s  efficiency      GiB  fits\n", name);
    for (int k = 0; k < ORTH_SCALING_POINTS; k++) {
        const orth_scaling_point *x = &points[k];
        const orth_price *p = &x->price;
        if (x->dp == 0)
            continue;
        if (p->refused)
            orth_text_addf(ctx, t, "%7s %5s %6" PRId64 " %13" PRId64 "  refused: %s\n", "", "", x->dp, x->global_batch, p->why);
        else
            orth_text_addf(ctx, t, "%7s %5d %6" PRId64 " %13" PRId64 " %12.6g %12.6g %9.1f %% %8.2f  %s\n", "", p->num_ranks, x->dp, x->global_batch, p->step_s,
                           p->tokens_per_s, 100 * orth_scaling_efficiency(points, k, shared), (double)p->worst_bytes / 0x1p30, p->fits ? "yes" : "no");
    }
}

char *orth_scaling_text(orth_ctx *ctx, const orth_scaling *s)
{
    orth_text t = {0};
    add_rows(ctx, &t, "strong", s->strong, s->shared);
    orth_text_add(ctx, &t, "\n");
    add_rows(ctx, &t, "weak", s->weak, s->shared);
    orth_text_addf(ctx, &t, "\nstrong: the global batch stays; weak: that of a rank. efficiency: tokens a second%s, over those of the first row. GiB: of the rank that "
                   "needs the most\nexact: GiB; estimates: step s and all that follows from it\n", s->shared ? "" : " and rank");
    if (!s->shared)
        orth_software_add_error(ctx, &t);
    return orth_text_take(ctx, &t);
}

static void add_points(orth_json_out *j, const char *name, const orth_scaling_point points[ORTH_SCALING_POINTS], bool shared)
{
    orth_json_open(j, name, '[');
    for (int k = 0; k < ORTH_SCALING_POINTS; k++) {
        const orth_price *p = &points[k].price;
        if (points[k].dp == 0)
            continue;
        orth_json_open(j, NULL, '{');
        orth_json_print(j, "dp", "%" PRId64, points[k].dp);
        orth_json_print(j, "global_batch", "%" PRId64, points[k].global_batch);
        if (p->refused) {
            orth_json_string(j, "refused", p->why);
        } else {
            orth_json_print(j, "ranks", "%d", p->num_ranks);
            orth_json_print(j, "step_s", "%.9g", p->step_s);
            orth_json_print(j, "tokens_per_s", "%.9g", p->tokens_per_s);
            orth_json_print(j, "efficiency", "%.6g", orth_scaling_efficiency(points, k, shared));
            orth_json_print(j, "worst_rank_bytes", "%zu", p->worst_bytes);
            orth_json_bool(j, "fits", p->fits);
        }
        orth_json_close(j, '}');
    }
    orth_json_close(j, ']');
}

char *orth_scaling_json(orth_ctx *ctx, const orth_scaling *s)
{
    orth_text t = {0};
    orth_json_out j = {ctx, &t};
    orth_json_open(&j, NULL, '{');
    orth_json_print(&j, "terms", "{\"worst_rank_bytes\": \"exact\", \"step_s\": \"estimated\", \"others\": \"estimated\"}");
    add_points(&j, "strong", s->strong, s->shared);
    add_points(&j, "weak", s->weak, s->shared);
    orth_json_close(&j, '}');
    orth_text_add(ctx, &t, "\n");
    return orth_text_take(ctx, &t);
}
