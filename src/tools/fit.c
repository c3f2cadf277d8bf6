/* fit.c -- see fit.h.
 *
 * Values are numbered from 1 on. From the run's own value on, doubling the number finds one that does not fit, bisection the last that
 * does. What is promised is a pair of neighbours: this one fits, the next does not. Sequences are cut into more chunks where they are longer (the head's
 * logits), so that a longer one may need less: of those up to four times as long, some are looked at.
 */
#include "tools/fit.h"

#include <inttypes.h>

#include "base/json_out.h"

#define MAX_TRIES 64

typedef struct {
    int64_t number, value;
    orth_price price;
    bool fits;
} trial;

typedef struct {
    const orth_config *base;
    orth_place_to_run *where;
    const char *key;         /* in the run file */
    int64_t step;            /* between values; 0: divisors of the global batch */
    int64_t first;           /* number of the value to begin with */
    size_t rank_limit;
    trial tries[MAX_TRIES];
    int num_tries;
} search;

/* Value `number`; 0: there are no more. */
static int64_t value_of(const search *x, int64_t number)
{
    if (x->step > 0)
        return number > INT64_MAX / x->step ? 0 : number * x->step;
    const int64_t all = x->base->train_global_batch;
    for (int64_t d = 1; d <= all; d++)
        if (all % d == 0 && --number == 0)
            return d;
    return 0;
}

static orth_status choose_key(orth_ctx *ctx, search *x, const char *key)
{
    orth_model_config model;
    ORTH_TRY(orth_describe_model(ctx, x->base, &model));
    const struct { const char *path; int64_t step, value; } keys[] = {
        {"train.micro_batch", 0, x->base->train_micro_batch}, {"data.seq_len", 8, x->base->data_seq_len},
        {"model.layers", 1, model.layers}, {"model.hidden", 2 * (int64_t)model.heads, model.hidden}};
    for (int i = 0; i < ORTH_COUNT(keys); i++) {
        if (strcmp(key, keys[i].path) != 0 && strcmp(key, strchr(keys[i].path, '.') + 1) != 0)
            continue;
        x->key = keys[i].path;
        x->step = keys[i].step;
        x->first = x->step > 0 ? ORTH_MAX(1, keys[i].value / x->step) : 1;
        return ORTH_OK;
    }
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--fit=%s: the key is one of micro_batch, seq_len, layers, hidden", key);
}

static orth_status price_value(orth_ctx *ctx, const search *x, int64_t value, orth_price *out)
{
    char text[32];
    orth_config cfg;
    snprintf(text, sizeof text, "%" PRId64, value);
    ORTH_TRY(orth_config_copy(ctx, &cfg, x->base));
    orth_status s = orth_config_set(ctx, &cfg, "--fit", x->key, text);
    if (s == ORTH_OK)
        s = orth_price_run(ctx, x->where, &cfg, out);
    else if (s == ORTH_ERR_ARG) { /* out of the key's range */
        *out = (orth_price){.refused = true};
        snprintf(out->why, sizeof out->why, "%s", ctx->error.message);
        orth_ctx_clear_error(ctx);
        s = ORTH_OK;
    }
    orth_config_release(ctx, &cfg);
    return s;
}

static const trial *find_try(const search *x, int64_t number)
{
    for (int i = 0; i < x->num_tries; i++)
        if (x->tries[i].number == number)
            return &x->tries[i];
    return NULL;
}

/* With a limit of each rank in place of those of all ranks and of devices. */
static bool fits_instead(const search *x, const orth_price *p)
{
    return p->worst_bytes <= x->rank_limit && !orth_budget_exceeded(&p->budgets[ORTH_BUDGET_HOST]) && !orth_budget_exceeded(&p->budgets[ORTH_BUDGET_FILES]);
}

/* Prices value `number`, or has done so; *out NULL: no such value, or enough were tried. */
static orth_status look_at(orth_ctx *ctx, search *x, int64_t number, const trial **out)
{
    const int64_t value = value_of(x, number);
    *out = find_try(x, number);
    if (*out || value == 0 || x->num_tries == MAX_TRIES)
        return ORTH_OK;
    trial *t = &x->tries[x->num_tries];
    *t = (trial){.number = number, .value = value};
    ORTH_TRY(price_value(ctx, x, value, &t->price));
    ORTH_TRY(orth_ctx_check_stop(ctx));
    t->fits = !t->price.refused && (x->rank_limit ? fits_instead(x, &t->price) : t->price.fits);
    x->num_tries++;
    *out = t;
    return ORTH_OK;
}

/* The first value from `number` on, below `end`, that no rule refuses; NULL: none, or none near. */
static orth_status look_from(orth_ctx *ctx, search *x, int64_t number, int64_t end, const trial **out)
{
    *out = NULL;
    for (int64_t n = number; n < end && n < number + 8; n++) {
        ORTH_TRY(look_at(ctx, x, n, out));
        if (!*out || !(*out)->price.refused)
            return ORTH_OK;
    }
    *out = NULL;
    return ORTH_OK;
}

/* A larger micro-batch has larger activations and fewer partial gradients, so memory may fall first. The divisors are few: from the largest
 * on, all are looked at until one fits. */
static orth_status scan_divisors(orth_ctx *ctx, search *x)
{
    int64_t n = 1;
    const trial *t = NULL;
    while (value_of(x, n + 1) != 0)
        n++;
    for (; n > 0 && !(t && t->fits); n--)
        ORTH_TRY(look_at(ctx, x, n, &t));
    return ORTH_OK;
}

/* Between one that fits (0: none is known) and one that does not. Below, where nothing is known to fit yet, a refused value is too small; above one that
 * fits it is too large. */
static orth_status halve(orth_ctx *ctx, search *x, int64_t low, int64_t high)
{
    const trial *t;
    bool found = low > 0;
    while (high - low > 1 && x->num_tries < MAX_TRIES) {
        const int64_t middle = low + (high - low) / 2;
        ORTH_TRY(look_from(ctx, x, middle, high, &t));
        if (t && t->fits) {
            low = t->number;
            found = true;
        } else if (!t && !found) {
            low = middle;
        } else {
            high = middle;
        }
    }
    return ORTH_OK;
}

/* A layout may allow multiples of some power of two only: steps to the next length that it does. */
static orth_status find_step(orth_ctx *ctx, search *x, int64_t length)
{
    const int64_t least = x->step;
    for (int64_t step = least; length % step == 0; step *= 2) {
        const trial *t;
        x->step = step;
        x->first = length / step;
        x->num_tries = 0; /* they are numbered by steps */
        ORTH_TRY(look_at(ctx, x, x->first + 1, &t));
        if (!t->price.refused)
            return ORTH_OK;
    }
    x->step = least; /* the length itself is refused, or the next one is by another rule */
    x->first = ORTH_MAX(1, length / least);
    x->num_tries = 0;
    return ORTH_OK;
}

static orth_status bisect(orth_ctx *ctx, search *x)
{
    int64_t low = 0, high = 0, n = x->first;
    const trial *t;
    for (; high == 0; n = ORTH_MAX(2 * n, low + 1)) {
        ORTH_TRY(look_from(ctx, x, n, INT64_MAX, &t));
        if (t && t->fits) {
            low = t->number;
        } else {
            high = t ? t->number : n;
        }
    }
    return halve(ctx, x, low, high);
}

static const trial *largest(const search *x)
{
    const trial *best = NULL;
    for (int i = 0; i < x->num_tries; i++)
        if (x->tries[i].fits && (!best || x->tries[i].number > best->number))
            best = &x->tries[i];
    return best;
}

/* The next number to look at behind n: one behind a power of two, where chunks are added, or an eighth more. */
static int64_t next_beyond(int64_t n)
{
    int64_t power = 1;
    while (power + 1 <= n)
        power *= 2;
    return ORTH_MIN(power + 1, n + n / 8 + 1);
}

/* Above the largest that was found: the last of some that fits, and from there on by halves. */
static orth_status look_beyond(orth_ctx *ctx, search *x)
{
    const trial *best = largest(x), *t;
    const int64_t from = best ? best->number : 0;
    int64_t low = 0, high = 0;
    for (int64_t n = next_beyond(from); best && n <= 4 * from; n = next_beyond(n)) {
        ORTH_TRY(look_from(ctx, x, n, n + 2, &t));
        if (t && t->fits) {
            low = t->number;
            high = 0;
        } else if (low > 0 && high == 0) {
            high = n;
        }
    }
    return low > 0 && high > low ? halve(ctx, x, low, high) : ORTH_OK;
}

/* ---- output ---- */

static void sort_tries(search *x)
{
    for (int i = 1; i < x->num_tries; i++)
        for (int k = i; k > 0 && x->tries[k].number < x->tries[k - 1].number; k--) {
            const trial t = x->tries[k];
            x->tries[k] = x->tries[k - 1];
            x->tries[k - 1] = t;
        }
}

static size_t bytes_of(const search *x, const orth_price *p)
{
    return x->rank_limit ? p->worst_bytes : p->bytes;
}

static char *as_text(orth_ctx *ctx, const search *x)
{
    orth_text t = {0};
    const trial *best = largest(x);
    orth_text_addf(ctx, &t, "%-18s %14s  %-4s %12s %12s\n", x->key, "bytes", "fits", "step s", "tokens/s");
    for (int i = 0; i < x->num_tries; i++) {
        const orth_price *p = &x->tries[i].price;
        if (i > 0 && p->refused && x->tries[i - 1].price.refused)
            continue; /* one row of several */
        orth_text_addf(ctx, &t, "%-18" PRId64, x->tries[i].value);
        if (p->refused)
            orth_text_addf(ctx, &t, " refused: %s\n", p->why);
        else
            orth_text_addf(ctx, &t, " %14zu  %-4s %12.6g %12.6g\n", bytes_of(x, p), x->tries[i].fits ? "yes" : "no", p->step_s, p->tokens_per_s);
    }
    if (best)
        orth_text_addf(ctx, &t, "largest that fits: %s=%" PRId64 "\n", x->key, best->value);
    else
        orth_text_add(ctx, &t, "none fits\n");
    return orth_text_take(ctx, &t);
}

static char *as_json(orth_ctx *ctx, const search *x)
{
    orth_text t = {0};
    orth_json_out j = {ctx, &t};
    const trial *best = largest(x);
    orth_json_open(&j, NULL, '{');
    orth_json_string(&j, "key", x->key);
    if (best)
        orth_json_print(&j, "largest", "%" PRId64, best->value);
    else
        orth_json_print(&j, "largest", "null");
    orth_json_open(&j, "tried", '[');
    for (int i = 0; i < x->num_tries; i++) {
        const orth_price *p = &x->tries[i].price;
        orth_json_open(&j, NULL, '{');
        orth_json_print(&j, "value", "%" PRId64, x->tries[i].value);
        if (p->refused) {
            orth_json_string(&j, "refused", p->why);
        } else {
            orth_json_print(&j, "bytes", "%zu", bytes_of(x, p));
            orth_json_bool(&j, "fits", x->tries[i].fits);
            orth_json_print(&j, "step_s", "%.9g", p->step_s);
            orth_json_print(&j, "tokens_per_s", "%.9g", p->tokens_per_s);
        }
        orth_json_close(&j, '}');
    }
    orth_json_close(&j, ']');
    orth_json_close(&j, '}');
    orth_text_add(ctx, &t, "\n");
    return orth_text_take(ctx, &t);
}

orth_status orth_fit(orth_ctx *ctx, const orth_config *base, orth_place_to_run *where, const char *key, size_t rank_limit, bool json,
                     char **out)
{
    search *x = ORTH_NEW(ctx, search);
    if (!x)
        return ORTH_ERR_NOMEM;
    *x = (search){.base = base, .where = where, .rank_limit = rank_limit};
    orth_status s = choose_key(ctx, x, key);
    if (s == ORTH_OK && strcmp(x->key, "data.seq_len") == 0)
        s = find_step(ctx, x, base->data_seq_len);
    if (s == ORTH_OK)
        s = x->step > 0 ? bisect(ctx, x) : scan_divisors(ctx, x);
    if (s == ORTH_OK && strcmp(x->key, "data.seq_len") == 0)
        s = look_beyond(ctx, x);
    if (s == ORTH_OK) {
        sort_tries(x);
        *out = json ? as_json(ctx, x) : as_text(ctx, x);
        s = *out ? ORTH_OK : ORTH_ERR_NOMEM;
    }
    orth_mem_free(ctx, x);
    return s;
}
