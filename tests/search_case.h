/* search_case.h -- run files and clusters for tests of searches. */
#ifndef ORTH_TESTS_SEARCH_CASE_H
#define ORTH_TESTS_SEARCH_CASE_H

#include "test.h"

#include <jansson.h>
#include <math.h>

#include "cli/memory.h"
#include "tools/search_report.h"

/* What may be offloaded. */
static const char *const away[] = {"memory.offload_optimizer", "memory.offload_gradients", "memory.offload_params", "memory.offload_activations"};

static inline void set(orth_ctx *ctx, orth_config *cfg, const char *key, const char *format, int value)
{
    char text[64];
    snprintf(text, sizeof text, format, value);
    CHECK_OK(ctx, orth_config_set(ctx, cfg, "command line", key, text));
}

static inline void read_base(orth_ctx *ctx, orth_config *cfg, const char *text)
{
    CHECK_OK(ctx, orth_config_init(ctx, cfg));
    CHECK_OK(ctx, orth_config_parse(ctx, cfg, "run.yaml", text, strlen(text)));
}

/* 4 devices fail each 8 minutes to 3 hours, of which each failure costs 10 minutes: fewer may cost less, or all that ends. */
static inline void let_fail(orth_hardware *h, uint64_t seed)
{
    h->price_on_demand = 2;
    h->has_on_demand = true;
    h->failures_device_hours = 0.5 + 0.25 * (double)test_rand_int(seed, 19, 0, 50);
    h->failures_storage_GBps = 1;
    h->failures_restart_s = 600;
}

#endif
