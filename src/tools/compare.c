/* compare.c -- see compare.h. */
#include "tools/compare.h"

#include <jansson.h>
#include <stdlib.h>

#include "base/crew.h"
#include "base/text.h"
#include "plan/software.h"

typedef struct {
    char key[128];
    orth_written values;
} axis;

typedef struct {
    const orth_config *base;
    orth_place_to_run where;
    axis axes[ORTH_COMPARE_MAX_KEYS];
    int num_axes, num_rows;
    orth_price *rows;       /* [num_rows] */
    orth_arena arena;
} comparison;

static orth_status read_word(orth_ctx *ctx, comparison *x, const char *word)
{
    axis *a = &x->axes[x->num_axes];
    const size_t n = strcspn(word, "=");
    if (x->num_axes == ORTH_COMPARE_MAX_KEYS)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--compare: more than %d keys", ORTH_COMPARE_MAX_KEYS);
    snprintf(a->key, sizeof a->key, "%.*s", (int)n, word);
    if (orth_option_find(a->key) < 0)
        return orth_config_fail_unknown(ctx, "command line", a->key);
    for (int i = 0; i < x->num_axes; i++)
        if (strcmp(x->axes[i].key, a->key) == 0)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--compare: %s is given twice", a->key);
    if (x->base->on_devices && strcmp(a->key, "memory.limit") == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--compare: memory.limit is one of all ranks together on one machine; with --cluster memory.limit_device limits each rank");
    ORTH_TRY(orth_yaml_list(ctx, &x->arena, "command line", word + n + 1, &a->values));
    if (a->values.num_items == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--compare: %s has no values", a->key);
    x->num_axes++;
    return ORTH_OK;
}

static const char *value_of(const comparison *x, int row, int axis_index)
{
    for (int i = x->num_axes - 1; i > axis_index; i--)
        row /= x->axes[i].values.num_items;
    return x->axes[axis_index].values.items[row % x->axes[axis_index].values.num_items];
}

static orth_status read_words(orth_ctx *ctx, comparison *x, const char *const *words, int num_words)
{
    if (num_words == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--compare needs the values to compare, such as 'parallel.zero=[1, 2, 3]'");
    for (int i = 0; i < num_words; i++)
        ORTH_TRY(read_word(ctx, x, words[i]));
    x->num_rows = 1;
    for (int i = 0; i < x->num_axes; i++) {
        x->num_rows *= x->axes[i].values.num_items;
        if (x->num_rows > ORTH_COMPARE_MAX_ROWS)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--compare: more than %d combinations; `orthant search` looks through many layouts",
                             ORTH_COMPARE_MAX_ROWS);
    }
    x->rows = ORTH_ARENA_ARRAY(ctx, &x->arena, orth_price, x->num_rows);
    return x->rows ? ORTH_OK : ORTH_ERR_NOMEM;
}

static orth_status set_row(orth_ctx *ctx, const comparison *x, int row, orth_config *cfg)
{
    for (int i = 0; i < x->num_axes; i++)
        ORTH_TRY(orth_config_set(ctx, cfg, "command line", x->axes[i].key, value_of(x, row, i)));
    return ORTH_OK;
}

static orth_status price_row(orth_ctx *ctx, void *arg, int64_t row)
{
    comparison *x = arg;
    orth_config cfg;
    ORTH_TRY(orth_config_copy(ctx, &cfg, x->base));
    orth_status s = set_row(ctx, x, (int)row, &cfg);
    if (s == ORTH_OK)
        s = orth_price_run(ctx, &x->where, &cfg, &x->rows[row]);
    orth_config_release(ctx, &cfg);
    return s;
}

/* -1: none fits. */
static int fastest(const comparison *x)
{
    int best = -1;
    for (int r = 0; r < x->num_rows; r++) {
        const orth_price *p = &x->rows[r];
        if (!p->refused && p->fits && (best < 0 || p->step_s < x->rows[best].step_s))
            best = r;
    }
    return best;
}

static double limit_GiB(const comparison *x)
{
    for (int r = 0; r < x->num_rows; r++)
        if (!x->rows[r].refused)
            return (double)x->rows[r].limit_bytes / 0x1p30;
    return 0;
}

/* ---- output ---- */

static void add_values(orth_ctx *ctx, const comparison *x, orth_text *t, int row)
{
    for (int i = 0; i < x->num_axes; i++) {
        int width = (int)strlen(x->axes[i].key);
        for (int k = 0; k < x->axes[i].values.num_items; k++)
            width = ORTH_MAX(width, (int)strlen(x->axes[i].values.items[k]));
        orth_text_addf(ctx, t, "%-*s  ", width, row < 0 ? x->axes[i].key : value_of(x, row, i));
    }
}

static void add_row(orth_ctx *ctx, const comparison *x, orth_text *t, int row)
{
    const orth_price *p = &x->rows[row];
    add_values(ctx, x, t, row);
    if (p->refused) {
        orth_text_addf(ctx, t, "refused: %s\n", p->why);
        return;
    }
    orth_text_addf(ctx, t, "%10.2f  %-4s %12.6g %12.6g %7.3f", (double)p->bytes / 0x1p30, p->fits ? "yes" : "no", p->step_s, p->tokens_per_s,
                   p->mfu);
    if (!isnan(p->usd))
        orth_text_addf(ctx, t, " %12.0f", p->usd);
    if (!p->peak.is_compute)
        orth_text_add(ctx, t, "  MFU");
    orth_device_peak_say(ctx, t, &p->peak);
    orth_text_add(ctx, t, "\n");
}

static char *as_text(orth_ctx *ctx, const comparison *x)
{
    orth_text t = {0};
    const int best = fastest(x);
    add_values(ctx, x, &t, -1);
    orth_text_addf(ctx, &t, "%10s  %-4s %12s %12s %7s%s\n", "GiB", "fits", "step s", "tokens/s", "MFU", x->where.described ? "          USD" : "");
    for (int r = 0; r < x->num_rows; r++)
        add_row(ctx, x, &t, r);
    if (limit_GiB(x) > 0)
        orth_text_addf(ctx, &t, "\nGiB: of %s; there are %.2f\n", x->where.described ? "the rank that needs the most" : "all ranks together",
                       limit_GiB(x));
    orth_text_add(ctx, &t, "exact: GiB; estimates: step s and all that follows from it\n");
    if (x->where.described)
        orth_software_add_error(ctx, &t);
    if (best < 0)
        orth_text_add(ctx, &t, limit_GiB(x) > 0 ? "none fits\n" : "all are refused\n");
    else {
        char split[ORTH_PRICE_SPLIT_MAX];
        orth_price_split(&x->rows[best], split);
        orth_text_add(ctx, &t, "fastest that fits:");
        for (int i = 0; i < x->num_axes; i++)
            orth_text_addf(ctx, &t, " %s=%s", x->axes[i].key, value_of(x, best, i));
        orth_text_addf(ctx, &t, " (%s)\n", split);
    }
    return orth_text_take(ctx, &t);
}

static json_t *known(double x)
{
    return x > 0 ? json_real(x) : json_null();
}

static json_t *row_json(const comparison *x, int row)
{
    const orth_price *p = &x->rows[row];
    json_t *values = json_object(), *exposed = json_object();
    for (int i = 0; i < x->num_axes; i++)
        json_object_set_new(values, x->axes[i].key, json_string(value_of(x, row, i)));
    if (p->refused) {
        json_decref(exposed);
        return json_pack("{s:o,s:s}", "values", values, "refused", p->why);
    }
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        if (p->exposed_s[g] > 0)
            json_object_set_new(exposed, orth_group_name((orth_group)g), json_real(p->exposed_s[g]));
    return json_pack("{s:o,s:i,s:I,s:I,s:b,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:f,s:o,s:o,s:o,s:s*}", "values", values, "ranks", p->num_ranks, "memory",
                     (json_int_t)p->bytes, "memory_limit", (json_int_t)p->limit_bytes, "fits", p->fits, "step_s", p->step_s, "tokens_per_s",
                     p->tokens_per_s, "mfu", p->mfu, "hfu", p->hfu, "compute_s", p->compute_s + p->update_s, "update_s", p->update_s,
                     "exposed_loading_s", p->data_s,
                     "wait_s", p->wait_s, "exposed_copies_s", p->move_s, "exposed_comm_by_axis_s", exposed, "days", known(p->days),
                     "on_demand_usd", isnan(p->usd) ? json_null() : json_real(p->usd), "mfu_peak", p->peak.name[0] ? p->peak.name : NULL);
}

static char *as_json(orth_ctx *ctx, const comparison *x)
{
    const int best = fastest(x);
    json_t *rows = json_array();
    for (int r = 0; r < x->num_rows; r++)
        json_array_append_new(rows, row_json(x, r));
    json_t *terms = json_pack("{s:s,s:s,s:s}", "memory", "exact", "step_s", "estimated", "others", "estimated");
    json_t *root = json_pack("{s:o,s:o,s:o}", "terms", terms, "rows", rows, "fastest", best >= 0 ? json_integer(best) : json_null());
    char *text = root ? json_dumps(root, JSON_REAL_PRECISION(9)) : NULL, *out = text ? orth_mem_printf(ctx, "%s\n", text) : NULL;
    free(text);
    json_decref(root);
    return out;
}

orth_status orth_compare(orth_ctx *ctx, const orth_config *base, const char *cluster, const char *const *words, int num_words,
                         bool json, char **out)
{
    comparison x = {.base = base};
    orth_status s = read_words(ctx, &x, words, num_words);
    if (s == ORTH_OK)
        s = orth_place_to_run_find(ctx, &x.where, cluster);
    if (s == ORTH_OK)
        s = orth_crew_run(ctx, orth_price_threads(&x.where), x.num_rows, price_row, &x);
    if (s == ORTH_OK) {
        *out = json ? as_json(ctx, &x) : as_text(ctx, &x);
        s = *out ? ORTH_OK : ORTH_ERR_NOMEM;
    }
    orth_place_to_run_release(ctx, &x.where);
    orth_arena_release(ctx, &x.arena);
    return s;
}
