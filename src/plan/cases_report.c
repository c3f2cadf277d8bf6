/* cases_report.c -- predictions beside what was measured, as a table and as JSON. */
#include <math.h>
#include <stdlib.h>

#include "plan/cases_impl.h"

static const char *const tiers[] = {"core", "stress"};

static json_t *case_json(const orth_case *x)
{
    const orth_estimate *e = &x->e;
    if (x->impossible[0])
        return json_pack("{s:s,s:n,s:n,s:n,s:n,s:n,s:n,s:{},s:s,s:n}", "id", x->id, "step_s", "tokens_per_s_per_gpu", "mfu", "hfu",
                         "peak_mem_GiB", "fits", "components", "impossible", x->impossible, "claim");
    return json_pack("{s:s,s:f,s:f,s:f,s:f,s:f,s:b,s:{s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f},s:n,s:s?}", "id", x->id, "step_s", e->step_s,
                     "tokens_per_s_per_gpu", x->speed, "mfu", x->mfu, "hfu", x->hfu, "peak_mem_GiB", e->peak_bytes / 0x1p30, "fits",
                     x->fits, "components", "forward_s", e->forward_s, "backward_s", e->backward_s, "bubble_s", e->bubble_s,
                     "data_parallel_s", e->data_parallel_s, "update_s", e->update_s, "layer_forward_s", e->layer_forward_s,
                     "layer_backward_s", e->layer_backward_s, "products_s", e->products_s, "attention_s", e->attention_s, "rows_s", e->rows_s, "params_GiB", e->params_bytes / 0x1p30, "grads_GiB",
                     e->grads_bytes / 0x1p30, "optimizer_GiB", e->optimizer_bytes / 0x1p30, "activations_GiB",
                     e->activation_bytes / 0x1p30, "temporary_GiB", e->temporary_bytes / 0x1p30, "impossible", "claim", x->claim[0] ? x->claim : NULL);
}

static json_t *errors_json(case_errors e)
{
    return json_pack("{s:i,s:f,s:f,s:f}", "cases", e.n, "mean", e.mean, "median", e.median, "p90", e.p90);
}

static json_t *memory_json(const orth_case *list, int n, double *room)
{
    json_t *all = json_object();
    for (int i = 0; i < n; i++)
        if (case_begins_memory_class(list, i)) {
            double bias;
            const case_errors e = cases_memory_errors(list, n, list[i].memory_class, room, &bias);
            json_t *errors = errors_json(e);
            json_object_set_new(errors, "bias", json_real(bias));
            json_object_set_new(all, list[i].memory_class, errors);
        }
    return all;
}

static json_t *order_json(const orth_case *list, int n)
{
    const case_order o = cases_order(list, n);
    return json_pack("{s:i,s:i,s:i,s:i}", "pairs", o.pairs, "right", o.right, "sweeps", o.sweeps, "best_within_3_percent", o.near);
}

static json_t *ran_out_json(const orth_case *list, int n)
{
    int num, fitting;
    cases_ran_out(list, n, &num, &fitting);
    return json_pack("{s:i,s:i}", "cases", num, "called_fitting", fitting);
}

char *cases_as_json(orth_ctx *ctx, const orth_case *list, int n, double *room)
{
    json_t *cases = json_array(), *by_tier = json_object(), *by_family = json_object();
    for (int i = 0; i < n; i++) {
        json_array_append_new(cases, case_json(&list[i]));
        if (case_begins_family(list, i))
            json_object_set_new(by_family, list[i].family, errors_json(cases_time_errors(list, n, NULL, list[i].family, room)));
    }
    for (int t = 0; t < ORTH_COUNT(tiers); t++)
        json_object_set_new(by_tier, tiers[t], errors_json(cases_time_errors(list, n, tiers[t], NULL, room)));
    json_t *root = json_pack("{s:o,s:{s:o,s:o,s:o,s:o,s:o,s:o}}", "cases", cases, "errors", "time_tier", by_tier, "family", by_family, "mfu_points",
                             errors_json(cases_mfu_errors(list, n, "core", room)), "memory", memory_json(list, n, room), "sweeps", order_json(list, n),
                             "ran_out", ran_out_json(list, n));
    char *text = root ? json_dumps(root, JSON_REAL_PRECISION(9)) : NULL, *out = text ? orth_mem_printf(ctx, "%s\n", text) : NULL;
    free(text);
    json_decref(root);
    return out;
}

static void add_errors(orth_ctx *ctx, orth_text *t, const char *name, case_errors e)
{
    if (e.n > 0)
        orth_text_addf(ctx, t, "%-34s %5d %9.1f %% %9.1f %% %9.1f %%\n", name, e.n, 100 * e.mean, 100 * e.median, 100 * e.p90);
}

/* What else predictions are judged by. */
static void add_more(orth_ctx *ctx, orth_text *t, const orth_case *list, int n, double *room)
{
    const case_errors mfu = cases_mfu_errors(list, n, "core", room);
    const case_order o = cases_order(list, n);
    int num, fitting;
    cases_ran_out(list, n, &num, &fitting);
    if (mfu.n > 0)
        orth_text_addf(ctx, t, "\n%-34s %5d %9.1f   %9.1f   %9.1f\n", "MFU in points, core", mfu.n, mfu.mean, mfu.median, mfu.p90);
    orth_text_addf(ctx, t, "\n%-34s %5s %11s %11s %11s %8s\n", "error of the peak of memory", "cases", "mean", "median", "p90", "bias");
    for (int i = 0; i < n; i++)
        if (case_begins_memory_class(list, i)) {
            double bias;
            const case_errors e = cases_memory_errors(list, n, list[i].memory_class, room, &bias);
            if (e.n > 0)
                orth_text_addf(ctx, t, "%-34.34s %5d %9.1f %% %9.1f %% %9.1f %% %+6.1f %%\n", list[i].memory_class, e.n, 100 * e.mean, 100 * e.median,
                               100 * e.p90, 100 * bias);
        }
    orth_text_addf(ctx, t, "\npairs of a sweep that differ by more than 3 %%: %d of %d in the right order; predicted best within 3 %% of the best in %d of "
                   "%d sweeps\n%d of %d cases that ran out of memory are predicted to fit\n", o.right, o.pairs, o.near, o.sweeps, fitting, num);
}

char *cases_as_text(orth_ctx *ctx, const orth_case *list, int n, double *room)
{
    orth_text t = {0};
    orth_text_addf(ctx, &t, "%-34s %12s %12s %9s %7s %10s %10s\n", "case", "tokens/s", "measured", "error", "MFU", "GiB", "measured");
    for (int i = 0; i < n; i++) {
        const orth_case *x = &list[i];
        if (x->impossible[0]) {
            orth_text_addf(ctx, &t, "%-34s %s\n", x->id, x->impossible);
            continue;
        }
        orth_text_addf(ctx, &t, "%-34s %12.1f", x->id, x->speed);
        if (isnan(x->error))
            orth_text_addf(ctx, &t, " %12s %9s", "-", "-");
        else
            orth_text_addf(ctx, &t, " %12.1f %+7.1f %%", x->tokens_per_s, 100 * x->error);
        orth_text_addf(ctx, &t, " %7.3f %10.2f", x->mfu, x->e.peak_bytes / 0x1p30);
        if (isnan(x->peak_GiB))
            orth_text_addf(ctx, &t, " %10s", "-");
        else
            orth_text_addf(ctx, &t, " %10.2f", x->peak_GiB);
        orth_text_addf(ctx, &t, "%s%s%s\n", x->fits ? "" : "  does not fit", x->claim[0] ? "  " : "", x->claim);
    }
    orth_text_addf(ctx, &t, "\n%-34s %5s %11s %11s %11s\n", "error of the step's time", "cases", "mean", "median", "p90");
    for (int k = 0; k < ORTH_COUNT(tiers); k++)
        add_errors(ctx, &t, tiers[k], cases_time_errors(list, n, tiers[k], NULL, room));
    for (int i = 0; i < n; i++)
        if (case_begins_family(list, i))
            add_errors(ctx, &t, list[i].family, cases_time_errors(list, n, NULL, list[i].family, room));
    add_more(ctx, &t, list, n, room);
    return orth_text_take(ctx, &t);
}
