/* plan.c -- see plan.h. */
#include "plan/plan.h"

#include <inttypes.h>

orth_plan orth_plan_of(const orth_program *p, int64_t num_elems, size_t limit_bytes)
{
    orth_plan plan = {.total_bytes = p->space_bytes[ORTH_SPACE_HOST], .lower_bound_bytes = p->lower_bound,
                      .limit_bytes = limit_bytes, .cost = orth_program_cost(p), .tokens = p->num_tokens,
                      .num_elems = num_elems};
    memcpy(plan.class_bytes, p->class_bytes, sizeof plan.class_bytes);
    plan.fits = limit_bytes == 0 || plan.total_bytes <= limit_bytes;
    return plan;
}

char *orth_memory_json(orth_ctx *ctx, const size_t class_bytes[ORTH_NUM_CLASSES])
{
    char text[512];
    size_t at = 0, total = 0;
    for (int c = 0; c < ORTH_NUM_CLASSES; c++) {
        at += (size_t)snprintf(text + at, sizeof text - at, "\"%s\": %zu, ", orth_class_name((orth_class)c),
                               class_bytes[c]);
        total += class_bytes[c];
    }
    return orth_mem_printf(ctx, "{%s\"total\": %zu}", text, total);
}

static double gib(size_t bytes)
{
    return (double)bytes / (double)(1 << 30);
}

/* The unit in which both sides of a comparison show digits. */
static double unit_of(const orth_plan *p, const char **name)
{
    bool small = p->total_bytes < (size_t)10 << 30 || p->limit_bytes < (size_t)1 << 30;
    *name = small ? "MiB" : "GiB";
    return small ? 0x1p20 : 0x1p30;
}

static void reasons(const orth_plan *p, char *out, size_t n)
{
    const char *unit;
    double u = unit_of(p, &unit);
    out[0] = '\0';
    if (!p->fits)
        snprintf(out, n, "%.2f %s planned exceed the limit of %.2f %s", (double)p->total_bytes / u, unit,
                 (double)p->limit_bytes / u, unit);
}

char *orth_plan_json(orth_ctx *ctx, const orth_plan *p)
{
    char why[256];
    reasons(p, why, sizeof why);
    char *memory = orth_memory_json(ctx, p->class_bytes);
    char *text = memory ? orth_mem_printf(ctx,
        "{\"ranks\": [{\"rank\": 0, \"coords\": {}, \"memory\": %s, \"comm\": {}, "
        "\"flops\": {\"model\": %.0f, \"hardware\": %.0f}}], \"tokens\": %" PRId64 ", \"parameters\": %" PRId64
        ", \"memory_lower_bound\": %zu, \"memory_limit\": %zu, \"fits\": %s, \"reasons\": [%s%s%s]}\n",
        memory, p->cost.model_flops, p->cost.hardware_flops, p->tokens, p->num_elems, p->lower_bound_bytes,
        p->limit_bytes, p->fits ? "true" : "false", why[0] ? "\"" : "", why, why[0] ? "\"" : "") : NULL;
    orth_mem_free(ctx, memory);
    return text;
}

char *orth_plan_text(orth_ctx *ctx, const orth_plan *p)
{
    char rows[1024], why[256];
    size_t at = 0;
    reasons(p, why, sizeof why);
    for (int c = 0; c < ORTH_NUM_CLASSES; c++)
        at += (size_t)snprintf(rows + at, sizeof rows - at, "  %-12s %14zu B %9.3f GiB\n",
                               orth_class_name((orth_class)c), p->class_bytes[c], gib(p->class_bytes[c]));
    return orth_mem_printf(ctx,
        "parameters     %14" PRId64 "\ntokens a step  %14" PRId64 "\nFLOPs a step   %14.4e model, %.4e hardware "
        "(%.4e per token)\nmemory of rank 0\n%s  %-12s %14zu B %9.3f GiB (lower bound %.3f GiB)\n%s%s%s",
        p->num_elems, p->tokens, p->cost.model_flops, p->cost.hardware_flops,
        p->cost.model_flops / (double)ORTH_MAX(p->tokens, 1), rows, "total", p->total_bytes, gib(p->total_bytes),
        gib(p->lower_bound_bytes), p->fits ? "fits" : "does not fit: ", why, "\n");
}

orth_status orth_plan_require_fit(orth_ctx *ctx, const orth_plan *p)
{
    if (p->fits)
        return ORTH_OK;
    const char *unit;
    double u = unit_of(p, &unit), c[ORTH_NUM_CLASSES];
    for (int i = 0; i < ORTH_NUM_CLASSES; i++)
        c[i] = (double)p->class_bytes[i] / u;
    return ORTH_FAIL(ctx, ORTH_ERR_NOMEM,
                     "the run does not fit: %.2f %s planned (params %.2f, grads %.2f, optimizer %.2f, activations "
                     "%.2f, workspace %.2f), limit %.2f %s (memory.limit); nothing was allocated",
                     (double)p->total_bytes / u, unit, c[ORTH_CLASS_PARAMS], c[ORTH_CLASS_GRADS],
                     c[ORTH_CLASS_OPTIMIZER], c[ORTH_CLASS_ACTIVATIONS], c[ORTH_CLASS_WORKSPACE],
                     (double)p->limit_bytes / u, unit);
}
