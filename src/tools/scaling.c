/* scaling.c -- see scaling.h. */
#include "tools/scaling.h"

#include <inttypes.h>

static const struct {
    int64_t times, over;
} factors[ORTH_SCALING_POINTS] = {{1, 4}, {1, 2}, {1, 1}, {2, 1}, {4, 1}};

static orth_status set_int(orth_ctx *ctx, orth_config *cfg, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return orth_config_set(ctx, cfg, "scaling", key, text);
}

static orth_status refuse(orth_scaling_point *out, const char *why)
{
    out->price = (orth_price){.refused = true};
    snprintf(out->price.why, sizeof out->price.why, "%s", why);
    return ORTH_OK;
}

static orth_status price_point(orth_ctx *ctx, const orth_config *base, orth_place_to_run *where, int k, bool weak, orth_scaling_point *out)
{
    const int64_t times = factors[k].times, over = factors[k].over;
    orth_config cfg;
    *out = (orth_scaling_point){.dp = base->parallel_dp * times / over,
                                .global_batch = weak ? base->train_global_batch * times / over : base->train_global_batch};
    if (base->parallel_dp * times % over != 0 || (weak && base->train_global_batch * times % over != 0))
        return refuse(out, "no whole number of ranks or sequences");
    ORTH_TRY(orth_config_init(ctx, &cfg));
    orth_status s = orth_config_override(ctx, &cfg, base);
    if (s == ORTH_OK)
        s = set_int(ctx, &cfg, "parallel.dp", out->dp);
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
    ORTH_TRY(orth_place_to_run_find(ctx, &where, cluster));
    where.hardware.num_devices = 0;
    orth_status s = ORTH_OK;
    for (int k = 0; k < ORTH_SCALING_POINTS && s == ORTH_OK; k++) {
        s = price_point(ctx, cfg, &where, k, false, &out->strong[k]);
        if (s == ORTH_OK)
            s = price_point(ctx, cfg, &where, k, true, &out->weak[k]);
    }
    orth_place_to_run_release(ctx, &where);
    return s;
}
