/* history.c -- see history.h. */
#include "report/history.h"

#include <string.h>

#include "base/files.h"
#include "ckpt/json.h"

typedef orth_status (*line_fn)(orth_ctx *ctx, const json_t *line, void *user);

static orth_status find_file(orth_ctx *ctx, const char *run, char **out)
{
    *out = orth_path_is_dir(run) ? orth_path_join(ctx, run, "metrics.jsonl") : orth_mem_strdup(ctx, run);
    if (!*out)
        return ORTH_ERR_NOMEM;
    if (orth_path_exists(*out))
        return ORTH_OK;
    orth_status s = ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: there is no such file: give a run folder or a metrics.jsonl", *out);
    orth_mem_free(ctx, *out);
    return s;
}

static orth_status visit_lines(orth_ctx *ctx, const char *path, const char *text, line_fn visit, void *user)
{
    int number = 1;
    for (const char *line = text, *end; (end = strchr(line, '\n')) != NULL; line = end + 1, number++) {
        char place[512];
        json_t *object = NULL;
        snprintf(place, sizeof place, "%s: line %d", path, number);
        ORTH_TRY(orth_json_parse(ctx, &object, place, line, (size_t)(end - line)));
        orth_status s = visit(ctx, object, user);
        json_decref(object);
        ORTH_TRY(s);
    }
    return ORTH_OK;
}

static orth_status read_lines(orth_ctx *ctx, const char *run, line_fn visit, void *user)
{
    char *path, *text = NULL;
    size_t num_bytes;
    ORTH_TRY(find_file(ctx, run, &path));
    orth_status s = orth_file_read(ctx, path, &text, &num_bytes);
    if (s == ORTH_OK)
        s = visit_lines(ctx, path, text, visit, user);
    orth_mem_free(ctx, text);
    orth_mem_free(ctx, path);
    return s;
}

/* ---- one value over the steps ---- */

typedef struct {
    const char *key;
    orth_series *series;
    int64_t capacity;
} collector;

static orth_status collect(orth_ctx *ctx, const json_t *line, void *user)
{
    collector *c = user;
    orth_series *s = c->series;
    const json_t *step = json_object_get(line, "step"), *value = json_object_get(line, c->key);
    if (!json_is_number(step) || !json_is_number(value))
        return ORTH_OK;
    if (s->num_points == c->capacity) {
        c->capacity = 2 * c->capacity + 64;
        orth_point *more = orth_mem_realloc(ctx, s->points, (size_t)c->capacity * sizeof *more);
        if (!more)
            return ORTH_ERR_NOMEM;
        s->points = more;
    }
    s->points[s->num_points++] = (orth_point){json_number_value(step), json_number_value(value)};
    return ORTH_OK;
}

orth_status orth_history_series(orth_ctx *ctx, orth_series *out, const char *run, const char *key)
{
    orth_series series = {.name = run};
    collector c = {key, &series, 0};
    orth_status s = read_lines(ctx, run, collect, &c);
    if (s != ORTH_OK) {
        orth_series_release(ctx, &series);
        return s;
    }
    *out = series;
    return ORTH_OK;
}

void orth_series_release(orth_ctx *ctx, orth_series *s)
{
    orth_mem_free(ctx, s->points);
    *s = (orth_series){.name = NULL};
}

void orth_series_subtract(orth_series *s, const orth_series *base)
{
    int64_t n = 0;
    for (int64_t i = 0, k = 0; i < s->num_points; i++) {
        const orth_point p = s->points[i];
        while (k < base->num_points && base->points[k].step < p.step)
            k++;
        if (k < base->num_points && base->points[k].step == p.step)
            s->points[n++] = (orth_point){p.step, p.value - base->points[k].value};
    }
    s->num_points = n;
}

/* Each mean is summed anew: a sum that a great value was in has lost the others' digits. From behind, so that means stand where no later one reads. */
void orth_series_average(orth_series *s, int64_t num)
{
    for (int64_t i = s->num_points - 1; i >= num - 1; i--) {
        double sum = 0;
        for (int64_t k = i + 1 - num; k <= i; k++)
            sum += s->points[k].value;
        s->points[i].value = sum / (double)num;
    }
    s->num_points = ORTH_MAX(s->num_points - num + 1, 0);
    if (s->num_points > 0)
        memmove(s->points, s->points + num - 1, (size_t)s->num_points * sizeof *s->points);
}

/* ---- CSV ---- */

typedef struct {
    json_t *columns;     /* name -> true, in the order of first appearance */
    orth_text *out;      /* NULL while the columns are looked for */
    const char *run;
} table;

/* Text between double quotes where it holds a comma, a quote or a line's end (RFC 4180). */
static void add_cell(orth_ctx *ctx, orth_text *t, const char *s)
{
    if (!strpbrk(s, ",\"\r\n")) {
        orth_text_add(ctx, t, s);
        return;
    }
    orth_text_add(ctx, t, "\"");
    for (; *s; s++)
        orth_text_addf(ctx, t, *s == '"' ? "\"\"" : "%c", *s);
    orth_text_add(ctx, t, "\"");
}

static void add_value(orth_ctx *ctx, orth_text *t, const json_t *v)
{
    if (json_is_integer(v))
        orth_text_addf(ctx, t, "%lld", (long long)json_integer_value(v));
    else if (json_is_real(v))
        orth_text_addf(ctx, t, "%.15g", json_real_value(v)); /* the digits that stand in the file: those of a time are 13 */
    else if (json_is_string(v))
        add_cell(ctx, t, json_string_value(v));
    else if (json_is_boolean(v))
        orth_text_add(ctx, t, json_is_true(v) ? "true" : "false");
}

/* The line with its objects laid out as KEY.NAME; arrays are left out. NULL: no memory. */
static json_t *flatten(const json_t *line, const char *prefix, json_t *into)
{
    const char *key;
    json_t *v;
    json_object_foreach((json_t *)line, key, v) {
        char name[256];
        snprintf(name, sizeof name, "%s%s%s", prefix, *prefix ? "." : "", key);
        if (json_is_object(v) ? !flatten(v, name, into) : !json_is_array(v) && json_object_set(into, name, v) != 0)
            return NULL;
    }
    return into;
}

static orth_status add_row(orth_ctx *ctx, table *t, json_t *flat)
{
    const char *key;
    json_t *v;
    if (!t->out) {
        json_object_foreach(flat, key, v)
            if (!json_object_get(t->columns, key) && json_object_set_new(t->columns, key, json_true()) != 0)
                return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "no memory for the columns of the table");
        return ORTH_OK;
    }
    add_cell(ctx, t->out, t->run);
    json_object_foreach(t->columns, key, v) {
        orth_text_add(ctx, t->out, ",");
        add_value(ctx, t->out, json_object_get(flat, key));
    }
    orth_text_add(ctx, t->out, "\n");
    return t->out->failed ? ORTH_ERR_NOMEM : ORTH_OK;
}

static orth_status tabulate(orth_ctx *ctx, const json_t *line, void *user)
{
    json_t *flat = json_object();
    orth_status s = flat && flatten(line, "", flat) ? add_row(ctx, user, flat)
                                                    : ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "no memory for a row of the table");
    json_decref(flat);
    return s;
}

static orth_status tabulate_all(orth_ctx *ctx, table *t, const char *const *runs, int num_runs)
{
    for (int i = 0; i < num_runs; i++) {
        t->run = runs[i];
        ORTH_TRY(read_lines(ctx, runs[i], tabulate, t));
    }
    return ORTH_OK;
}

static orth_status write_table(orth_ctx *ctx, table *t, orth_text *out, const char *const *runs, int num_runs)
{
    const char *key;
    json_t *v;
    ORTH_TRY(tabulate_all(ctx, t, runs, num_runs));
    t->out = out;
    orth_text_add(ctx, out, "run");
    json_object_foreach(t->columns, key, v) {
        orth_text_add(ctx, out, ",");
        add_cell(ctx, out, key);
    }
    orth_text_add(ctx, out, "\n");
    return tabulate_all(ctx, t, runs, num_runs);
}

orth_status orth_history_csv(orth_ctx *ctx, orth_text *out, const char *const *runs, int num_runs)
{
    table t = {.columns = json_object()};
    if (!t.columns)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "no memory for the columns of the table");
    orth_status s = write_table(ctx, &t, out, runs, num_runs);
    json_decref(t.columns);
    return s;
}
