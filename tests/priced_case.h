/* priced_case.h -- a run that is planned and priced on a cluster. */
#ifndef ORTH_TESTS_PRICED_CASE_H
#define ORTH_TESTS_PRICED_CASE_H

#include "plan/cluster.h"
#include "test.h"
#include "train/describe.h"

typedef struct {
    orth_config cfg;
    orth_model_config model;
    orth_run_plan plan;
    orth_cluster_plan cluster;
} priced;

static inline void price(orth_ctx *ctx, priced *x, const char *text, orth_hardware h)
{
    CHECK_OK(ctx, orth_config_init(ctx, &x->cfg));
    CHECK_OK(ctx, orth_config_parse(ctx, &x->cfg, "run.yaml", text, strlen(text)));
    CHECK_OK(ctx, orth_describe_model(ctx, &x->cfg, &x->model));
    CHECK_OK(ctx, orth_describe_plan(ctx, &x->plan, &x->cfg, &x->model, false));
    CHECK_OK(ctx, orth_hardware_use(ctx, &h, x->plan.num_ranks));
    CHECK_OK(ctx, orth_cluster_price(ctx, &x->plan, &h, ORTH_BF16, 1000, NULL, &x->cluster));
}

static inline void release(orth_ctx *ctx, priced *x)
{
    orth_run_plan_release(ctx, &x->plan);
    orth_config_release(ctx, &x->cfg);
}

#endif
