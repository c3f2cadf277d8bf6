/* config_text.c -- a configuration as text: run.yaml. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "config/config.h"
#include "base/files.h"
#include "base/text.h"

/* The shortest decimal form that reads back as the same bits. */
static void add_real(orth_ctx *ctx, orth_text *t, double x)
{
    char text[32];
    for (int digits = 6; digits <= 17; digits++) {
        snprintf(text, sizeof text, "%.*g", digits, x);
        if (strtod(text, NULL) == x)
            break;
    }
    orth_text_add(ctx, t, text);
}

/* Words that no YAML reader takes for anything but a string. */
static bool is_plain(const char *s)
{
    static const char *const special[] = {"true", "false", "null", "yes", "no", "on", "off"};
    for (int i = 0; i < ORTH_COUNT(special); i++)
        if (strcmp(s, special[i]) == 0)
            return false;
    bool letter = (*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') || *s == '/';
    return letter && s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-")] == '\0';
}

static void add_string(orth_ctx *ctx, orth_text *t, const char *s)
{
    if (is_plain(s))
        orth_text_add(ctx, t, s);
    else
        orth_text_quote(ctx, t, s);
}

static void add_list(orth_ctx *ctx, orth_text *t, const orth_option *o, const void *field)
{
    const orth_strings *strings = field;
    const orth_reals *reals = field;
    int n = o->type == ORTH_TYPE_STRS ? strings->n : reals->n;
    orth_text_add(ctx, t, "[");
    for (int i = 0; i < n; i++) {
        if (i)
            orth_text_add(ctx, t, ", ");
        if (o->type == ORTH_TYPE_STRS)
            add_string(ctx, t, strings->v[i]);
        else
            add_real(ctx, t, reals->v[i]);
    }
    orth_text_add(ctx, t, "]");
}

static void add_value(orth_ctx *ctx, orth_text *t, const orth_config *cfg, orth_option_id id)
{
    const orth_option *o = orth_option_get(id);
    const void *field = (const char *)cfg + o->offset;
    int choice = 0;
    if (o->type < ORTH_TYPE_STR && !cfg->place[id] && strcmp(o->default_text, "auto") == 0) {
        add_string(ctx, t, "auto");
        return;
    }
    switch (o->type) {
    case ORTH_TYPE_INT:
    case ORTH_TYPE_BYTES: orth_text_addf(ctx, t, "%" PRId64, *(const int64_t *)field); break;
    case ORTH_TYPE_REAL: add_real(ctx, t, *(const double *)field); break;
    case ORTH_TYPE_BOOL: orth_text_add(ctx, t, *(const bool *)field ? "true" : "false"); break;
    case ORTH_TYPE_STR: add_string(ctx, t, *(const char *const *)field); break;
    case ORTH_TYPE_ENUM:
        memcpy(&choice, field, sizeof choice);
        if (strspn(o->choices[choice], "0123456789") == strlen(o->choices[choice])) /* a number stays one */
            orth_text_add(ctx, t, o->choices[choice]);
        else
            add_string(ctx, t, o->choices[choice]);
        break;
    default: add_list(ctx, t, o, field); break;
    }
}

char *orth_option_text(orth_ctx *ctx, const orth_config *cfg, orth_option_id id)
{
    orth_text t = {0};
    add_value(ctx, &t, cfg, id);
    return orth_text_take(ctx, &t);
}

orth_status orth_config_override(orth_ctx *ctx, orth_config *cfg, const orth_config *given)
{
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++) {
        if (!given->place[i])
            continue;
        const orth_option *o = orth_option_get((orth_option_id)i);
        const void *field = (const char *)given + o->offset;
        int choice = 0;
        if (o->type == ORTH_TYPE_ENUM)
            memcpy(&choice, field, sizeof choice);
        /* As it stands on a command line: a list is written out, a word has no quotes. */
        char *text = o->type == ORTH_TYPE_STR || o->type == ORTH_TYPE_ENUM ? NULL : orth_option_text(ctx, given, (orth_option_id)i);
        const char *value = o->type == ORTH_TYPE_STR ? *(const char *const *)field : o->type == ORTH_TYPE_ENUM ? o->choices[choice] : text;
        if (i == ORTH_OPT_parallel_gather_unit)
            value = given->gather_unit_given;
        orth_status s = value ? orth_config_set(ctx, cfg, given->place[i], o->path, value) : ORTH_ERR_NOMEM;
        orth_mem_free(ctx, text);
        ORTH_TRY(s);
    }
    cfg->on_devices = cfg->on_devices || given->on_devices;
    return ORTH_OK;
}

orth_status orth_config_copy(orth_ctx *ctx, orth_config *out, const orth_config *given)
{
    ORTH_TRY(orth_config_init(ctx, out));
    const orth_status s = orth_config_override(ctx, out, given);
    if (s != ORTH_OK)
        orth_config_release(ctx, out);
    return s;
}

/* Parts of a path that two neighbouring rows have in common: "a.b.c", "a.b.d" -> 2. */
static int common_parts(const char *a, const char *b)
{
    int parts = 0;
    for (; *a && *a == *b; a++, b++)
        parts += *a == '.';
    return parts;
}

static int num_parts(const char *path)
{
    int n = 1;
    for (; *path; path++)
        n += *path == '.';
    return n;
}

static const char *part(const char *path, int i, int *len)
{
    while (i-- > 0)
        path = strchr(path, '.') + 1;
    *len = (int)strcspn(path, ".");
    return path;
}

/* The rows of a section stand together in the table, so where a mapping begins follows from what each row has in common with
 * the one before it. */
char *orth_config_yaml(orth_ctx *ctx, const orth_config *cfg)
{
    orth_text t = {0};
    const char *before = "", *line = "";
    int len;
    for (int id = 0; id < ORTH_NUM_OPTIONS; id++) {
        const char *path = orth_option_get((orth_option_id)id)->path;
        const int parts = num_parts(path);
        for (int depth = common_parts(before, path); depth < parts; depth++, line = "\n") {
            const char *name = part(path, depth, &len);
            orth_text_addf(ctx, &t, "%s%*s%.*s:", line, 2 * depth, "", len, name);
        }
        orth_text_add(ctx, &t, " ");
        add_value(ctx, &t, cfg, (orth_option_id)id);
        before = path;
    }
    orth_text_add(ctx, &t, "\n");
    return orth_text_take(ctx, &t);
}

orth_status orth_config_write(orth_ctx *ctx, const orth_config *cfg, const char *path)
{
    char *yaml = orth_config_yaml(ctx, cfg);
    const orth_status s = yaml ? orth_file_write(ctx, path, yaml, strlen(yaml)) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, yaml);
    return s;
}
