/* described.c -- see described.h. */
#include "plan/described.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"
#include "base/yaml.h"

static int find_row(const orth_described *d, const char *path)
{
    for (int i = 0; i < d->num_rows; i++)
        if (strcmp(d->rows[i].path, path) == 0)
            return i;
    return -1;
}

static orth_yaml_kind kind(void *user, const char *path)
{
    const orth_described *d = ((orth_described_places *)user)->d;
    for (int i = 0; i < d->num_sections; i++)
        if (strcmp(d->sections[i].name, path) == 0)
            return ORTH_YAML_SECTION;
    return find_row(d, path) >= 0 ? ORTH_YAML_VALUE : ORTH_YAML_UNKNOWN;
}

static orth_status unknown(orth_ctx *ctx, void *user, const char *place, const char *path)
{
    const orth_described *d = ((orth_described_places *)user)->d;
    const char *names[ORTH_DESCRIBED_MAX_ROWS];
    for (int i = 0; i < d->num_rows; i++)
        names[i] = d->rows[i].path;
    const char *near = orth_nearest(path, names, d->num_rows);
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: unknown key '%s' of %s%s%s%s", place, path, d->what, near ? "; did you mean '" : "",
                     near ? near : "", near ? "'?" : "");
}

orth_status orth_described_number(orth_ctx *ctx, const orth_described_row *r, double *out, const char *place, const char *text)
{
    char *end;
    const double v = strtod(text, &end);
    if (*end || end == text || !isfinite(v))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s=%s: is not a number", place, r->path, text);
    if (v < r->min || v > r->max)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s=%s: must be between %.9g and %.9g%s%s", place, r->path, text, r->min, r->max,
                         *r->unit ? " " : "", r->unit);
    *out = v;
    return ORTH_OK;
}

static orth_status put_list(orth_ctx *ctx, const orth_described_row *r, double *fields, const char *place, const orth_written *value)
{
    if (!value->is_list || value->num_items != r->num_items)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s must be a list of %d numbers", place, r->path, r->num_items);
    for (int k = 0; k < r->num_items; k++)
        ORTH_TRY(orth_described_number(ctx, r, &fields[k], place, value->items[k]));
    return ORTH_OK;
}

static orth_status put(orth_ctx *ctx, void *user, const char *path, const char *place, const orth_written *value)
{
    orth_described_places *p = user;
    const int i = find_row(p->d, path);
    const orth_described_row *r = &p->d->rows[i];
    char *field = (char *)p->out + r->offset;
    const char *text = value->items[0];
    snprintf(p->place[i], sizeof p->place[i], "%s", place);
    if (r->num_items > 0)
        return put_list(ctx, r, (double *)(void *)field, place, value);
    if (value->is_list)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s takes one value, not a list", place, path);
    if (!r->is_text)
        return orth_described_number(ctx, r, (double *)(void *)field, place, text);
    if (snprintf(field, ORTH_DESCRIBED_TEXT_MAX, "%s", text) >= ORTH_DESCRIBED_TEXT_MAX)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s has more than %d characters", place, path, ORTH_DESCRIBED_TEXT_MAX - 1);
    return ORTH_OK;
}

const char *orth_described_place(const orth_described_places *p, const char *path)
{
    return p->place[find_row(p->d, path)];
}

bool orth_described_has(const orth_described_places *p, const char *section)
{
    for (int i = 0; i < p->d->num_rows; i++)
        if (strcmp(p->d->rows[i].section, section) == 0 && p->place[i][0])
            return true;
    return false;
}

static bool needs(const orth_described_places *p, const char *section)
{
    for (int i = 0; i < p->d->num_sections; i++)
        if (p->d->sections[i].needed && strcmp(p->d->sections[i].name, section) == 0)
            return true;
    return orth_described_has(p, section);
}

void orth_described_begin(const orth_described *d, void *out, orth_described_places *places)
{
    *places = (orth_described_places){.d = d, .out = out};
    for (int i = 0; i < d->num_rows; i++)
        if (!d->rows[i].is_text && d->rows[i].num_items == 0)
            *(double *)(void *)((char *)out + d->rows[i].offset) = d->rows[i].default_value;
}

orth_status orth_described_read(orth_ctx *ctx, orth_described_places *places, const char *name, const char *text, size_t num_bytes)
{
    char what[64];
    snprintf(what, sizeof what, "a description of %s", places->d->what);
    const orth_yaml_schema schema = {what, places->d->example, kind, put, unknown};
    return orth_yaml_parse(ctx, &schema, places, name, text, num_bytes);
}

orth_status orth_described_check(orth_ctx *ctx, const orth_described_places *places, const char *name)
{
    const orth_described *d = places->d;
    for (int i = 0; i < d->num_rows; i++)
        if (d->rows[i].needed && !places->place[i][0] && needs(places, d->rows[i].section))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s is missing", name, d->rows[i].path);
    return ORTH_OK;
}

orth_status orth_described_parse(orth_ctx *ctx, const orth_described *d, void *out, orth_described_places *places,
                                 const char *name, const char *text, size_t num_bytes)
{
    orth_described_begin(d, out, places);
    ORTH_TRY(orth_described_read(ctx, places, name, text, num_bytes));
    return orth_described_check(ctx, places, name);
}
