/* config.c -- values: from text by the rows of the table, and back to text. config_yaml.c reads files. */
#include "config/config.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/text.h"
#include "config/config_value.h"
#include "base/text.h"

/* What is being set, for the messages. */
typedef struct {
    orth_ctx *ctx;
    const orth_option *option;
    const char *place;
} setting;

static orth_status refuse(const setting *s, const char *text, const char *rule)
{
    return ORTH_FAIL(s->ctx, ORTH_ERR_ARG, "%s: %s=%s: %s", s->place, s->option->path, text, rule);
}

static orth_status check_range(const setting *s, const char *text, double x)
{
    char rule[96];
    if (x >= s->option->min && x <= s->option->max)
        return ORTH_OK;
    if (s->option->max >= 1e15 && x < s->option->min)
        snprintf(rule, sizeof rule, "must be %.10g or more", s->option->min);
    else if (s->option->max >= 1e15)
        snprintf(rule, sizeof rule, "must be at most %.10g", s->option->max);
    else
        snprintf(rule, sizeof rule, "must be between %.10g and %.10g", s->option->min, s->option->max);
    return refuse(s, text, rule);
}

static orth_status parse_int(const setting *s, const char *text, int64_t *out)
{
    char *end;
    double x = strtod(text, &end);
    /* Digits only, or as 1e9: strtoll's own idea of white space and prefixes is wider than a run file's. */
    const bool digits = *text && !text[strspn(text, "+-0123456789")];
    const bool power = strpbrk(text, "eE") && !text[strspn(text, "+-.0123456789eE")] && x == floor(x) && fabs(x) < 0x1p53;
    if ((!digits && !power) || *end)
        return refuse(s, text, s->option->default_text[0] == 'a' ? "must be a whole number or auto"
                                                                 : "must be a whole number");
    ORTH_TRY(check_range(s, text, x));
    *out = power ? (int64_t)x : strtoll(text, NULL, 10);
    return ORTH_OK;
}

static orth_status parse_real(const setting *s, const char *text, double *out)
{
    char *end;
    double x = strtod(text, &end);
    if (!*text || text[strspn(text, "+-.0123456789eE")] || *end)
        return refuse(s, text, "must be a number");
    ORTH_TRY(check_range(s, text, x));
    *out = x;
    return ORTH_OK;
}

static orth_status parse_bool(const setting *s, const char *text, bool *out)
{
    bool yes = strcmp(text, "true") == 0;
    if (!yes && strcmp(text, "false") != 0)
        return refuse(s, text, "must be true or false");
    *out = yes;
    return ORTH_OK;
}

static orth_status parse_bytes(const setting *s, const char *text, int64_t *out)
{
    static const struct { const char *name; double bytes; } units[] = {
        {"", 1}, {"B", 1}, {"KB", 1e3}, {"MB", 1e6}, {"GB", 1e9}, {"TB", 1e12}, {"PB", 1e15},
        {"KiB", 1024.0}, {"MiB", 0x1p20}, {"GiB", 0x1p30}, {"TiB", 0x1p40}, {"PiB", 0x1p50}};
    size_t n = strspn(text, "0123456789.");
    char *end;
    double x = strtod(text, &end);
    if (n > 0 && end == text + n) {
        while (*end == ' ')
            end++;
        for (int i = 0; i < ORTH_COUNT(units); i++) {
            if (strcmp(units[i].name, end) == 0) {
                ORTH_TRY(check_range(s, text, x * units[i].bytes));
                *out = (int64_t)(x * units[i].bytes);
                return ORTH_OK;
            }
        }
    }
    return refuse(s, text, strcmp(s->option->default_text, "auto") == 0 ? "must be auto or a size such as 8GB, 500MiB" : "must be a size such as 8GB, 500MiB");
}

static const struct { const char *path, *name, *here, *kind; } value_names[] = {
#define VALUE(key, name, here) {key, name, here, ""},
#define CLASS(kind, name, here) {"parallel.gather_unit", name, here, kind},
#include "config/aliases.def"
};

/* A row of value_names; -1: none. */
static int find_value(const char *path, const char *name)
{
    int i = 0;
    while (i < ORTH_COUNT(value_names) && (strcmp(value_names[i].path, path) != 0 || strcmp(value_names[i].name, name) != 0))
        i++;
    return i < ORTH_COUNT(value_names) ? i : -1;
}

const char *orth_option_value_called(const char *path, const char *name)
{
    const int i = find_value(path, name);
    return i < 0 ? NULL : value_names[i].here;
}

static bool is_of_kind(int i, const char *const *kinds)
{
    bool of_any = !kinds || !*value_names[i].kind;
    for (; kinds && *kinds; kinds++)
        of_any = of_any || strcmp(*kinds, value_names[i].kind) == 0;
    return of_any;
}

bool orth_option_value_is_of(const char *path, const char *name, const char *const *kinds)
{
    const int i = find_value(path, name);
    return i < 0 || is_of_kind(i, kinds);
}

void orth_option_value_names(const char *path, const char *const *kinds, char out[ORTH_VALUE_NAMES_MAX])
{
    size_t at = 0;
    out[0] = '\0';
    for (int i = 0; i < ORTH_COUNT(value_names) && at < ORTH_VALUE_NAMES_MAX; i++) {
        if (strcmp(value_names[i].path, path) == 0 && is_of_kind(i, kinds))
            at += (size_t)snprintf(out + at, ORTH_VALUE_NAMES_MAX - at, "%s%s", at ? ", " : "", value_names[i].name);
    }
}

/* What another program's name of a value means here (MEANT in aliases.def); NULL: nothing. */
static const char *value_meant(const char *path, const char *name)
{
    static const struct { const char *keys, *name, *here; } meant[] = {
#define MEANT(keys, name, here) {keys, name, here},
#include "config/aliases.def"
    };
    name += strncmp(name, "torch.", 6) == 0 ? 6 : 0;
    for (int i = 0; i < ORTH_COUNT(meant); i++) {
        const size_t n = strlen(meant[i].keys);
        if (strncmp(meant[i].keys, path, n) == 0 && (path[n] == '.' || path[n] == '\0') && strcasecmp(meant[i].name, name) == 0)
            return meant[i].here;
    }
    return NULL;
}

static const char *same_but_case(const orth_option *o, const char *text)
{
    for (int i = 0; o->choices[i]; i++)
        if (strcasecmp(o->choices[i], text) == 0)
            return o->choices[i];
    return NULL;
}

/* Another option of the same section that has this value; NULL: none. */
static const orth_option *option_with_value(const orth_option *not_this, const char *text)
{
    const size_t section = strcspn(not_this->path, ".");
    for (int id = 0; id < ORTH_NUM_OPTIONS; id++) {
        const orth_option *o = orth_option_get((orth_option_id)id);
        for (int i = 0; o != not_this && o->type == ORTH_TYPE_ENUM && strncmp(o->path, not_this->path, section + 1) == 0 && o->choices[i]; i++)
            if (strcmp(o->choices[i], text) == 0)
                return o;
    }
    return NULL;
}

/* Adds to a rule about an ENUM, in rule[0, size), what the `text` that breaks it is likely to mean. */
static void add_meaning(const orth_option *o, const char *text, char *rule, size_t size)
{
    const orth_option *other = option_with_value(o, text);
    const char *meant = value_meant(o->path, text), *near = same_but_case(o, text);
    int n = 0;
    while (o->choices[n])
        n++;
    if (!near && meant && same_but_case(o, meant))
        near = meant;
    if (!near && !other && !meant)
        near = orth_nearest(text, o->choices, n);
    const size_t used = strlen(rule);
    if (near)
        snprintf(rule + used, size - used, "; did you mean '%s'?", near);
    else if (other)
        snprintf(rule + used, size - used, "; '%s' is a value of %s", text, other->path);
    else if (meant && strchr(meant, '='))
        snprintf(rule + used, size - used, "; '%s' is %s", text, meant);
}

static orth_status parse_enum(const setting *s, const char *text, void *out)
{
    const char *here = orth_option_value_called(s->option->path, text);
    int n = 0;
    if (here)
        text = here;
    for (; s->option->choices[n]; n++) {
        if (strcmp(s->option->choices[n], text) == 0) {
            memcpy(out, &n, sizeof n); /* enums are ints in the C that we compile with */
            return ORTH_OK;
        }
    }
    char rule[256 + ORTH_VALUE_NAMES_MAX] = "must be one of ", names[ORTH_VALUE_NAMES_MAX];
    for (int i = 0; i < n; i++) {
        size_t used = strlen(rule);
        snprintf(rule + used, sizeof rule - used, "%s%s", i ? ", " : "", s->option->choices[i]);
    }
    orth_option_value_names(s->option->path, NULL, names);
    if (*names) {
        size_t used = strlen(rule);
        snprintf(rule + used, sizeof rule - used, ", or by the names of other programs %s", names);
    }
    add_meaning(s->option, text, rule, sizeof rule);
    return refuse(s, text, rule);
}

static orth_status parse_string(const setting *s, orth_config *cfg, const char *text, const char **out)
{
    if (!orth_utf8_valid(text))
        return refuse(s, text, "must be UTF-8");
    char *copy = orth_arena_printf(s->ctx, &cfg->arena, "%s", text);
    if (!copy)
        return ORTH_ERR_NOMEM;
    *out = copy;
    return ORTH_OK;
}

/* auto: the field is zero and counts as not set. */
static bool is_auto(const orth_option *o, const orth_written *value)
{
    return o->type != ORTH_TYPE_STR && o->type != ORTH_TYPE_ENUM && strcmp(o->default_text, "auto") == 0 &&
           !value->is_list && strcmp(value->items[0], "auto") == 0;
}

static orth_status put_list(const setting *s, orth_config *cfg, void *field, const orth_written *value)
{
    if (s->option->type == ORTH_TYPE_STRS) {
        orth_strings list = {.n = 0};
        for (; list.n < value->num_items; list.n++)
            ORTH_TRY(parse_string(s, cfg, value->items[list.n], &list.v[list.n]));
        if (list.n == 1 && !*list.v[0])
            list.n = 0;
        *(orth_strings *)field = list;
        return ORTH_OK;
    }
    orth_reals list = {.n = 0};
    if (value->num_items == 1 && !*value->items[0])
        list.n = -1; /* the empty default */
    for (int i = 0; list.n >= 0 && i < value->num_items; i++)
        ORTH_TRY(parse_real(s, value->items[i], &list.v[list.n++]));
    list.n = ORTH_MAX(list.n, 0);
    *(orth_reals *)field = list;
    return ORTH_OK;
}

static orth_status put_field(const setting *s, orth_config *cfg, void *field, const orth_written *value)
{
    const char *text = value->items[0];
    switch (s->option->type) {
    case ORTH_TYPE_INT: return parse_int(s, text, field);
    case ORTH_TYPE_REAL: return parse_real(s, text, field);
    case ORTH_TYPE_BOOL: return parse_bool(s, text, field);
    case ORTH_TYPE_BYTES: return parse_bytes(s, text, field);
    case ORTH_TYPE_ENUM: return parse_enum(s, text, field);
    case ORTH_TYPE_STR: return parse_string(s, cfg, text, field);
    default: return put_list(s, cfg, field, value);
    }
}

orth_status orth_config_put(orth_ctx *ctx, orth_config *cfg, orth_option_id id, const char *place,
                            const orth_written *value)
{
    const orth_option *o = orth_option_get(id);
    setting s = {ctx, o, place};
    void *field = (char *)cfg + o->offset;
    bool takes_list = o->type == ORTH_TYPE_STRS || o->type == ORTH_TYPE_REALS;
    if (value->is_list && !takes_list)
        return refuse(&s, "[...]", "takes one value, not a list");
    if (is_auto(o, value)) {
        int64_t zero = 0;
        memcpy(field, &zero, o->type == ORTH_TYPE_BOOL ? sizeof(bool) : sizeof zero);
        cfg->place[id] = NULL;
        return ORTH_OK;
    }
    ORTH_TRY(put_field(&s, cfg, field, value));
    if (id == ORTH_OPT_parallel_gather_unit)
        ORTH_TRY(parse_string(&s, cfg, value->items[0], &cfg->gather_unit_given));
    char *kept = orth_arena_printf(ctx, &cfg->arena, "%s", place);
    if (!kept)
        return ORTH_ERR_NOMEM;
    cfg->place[id] = kept;
    return ORTH_OK;
}

/* A value in text as it stands on the command line: everything but [a, b] is one scalar, taken as it is. */
static orth_status put_text(orth_ctx *ctx, orth_config *cfg, orth_option_id id, const char *place,
                            const char *text)
{
    orth_option_type type = orth_option_get(id)->type;
    orth_written value = {.items = {text}, .num_items = 1};
    if (text[0] == '[' && type != ORTH_TYPE_STR) {
        char *list = orth_arena_printf(ctx, &cfg->arena, "%s: %s=%s", place, orth_option_get(id)->path, text);
        if (!list)
            return ORTH_ERR_NOMEM;
        ORTH_TRY(orth_yaml_list(ctx, &cfg->arena, list, text, &value));
    }
    return orth_config_put(ctx, cfg, id, place, &value);
}

orth_status orth_config_put_accepted(orth_ctx *ctx, orth_config *cfg, const char *place, const char *path, const char *value)
{
    char rule[64] = "must be ";
    size_t at = strlen(rule);
    for (int k = 0; orth_option_accepted(path, k); k++) {
        const orth_accepted *of = orth_option_accepted(path, k);
        if (strcmp(of->value, value) != 0) {
            at += (size_t)snprintf(rule + at, sizeof rule - at, "%s%s", k ? " or " : "", of->value);
            continue;
        }
        if (of->key[0])
            return orth_config_set(ctx, cfg, place, of->key, of->here);
        if (of->says[0])
            orth_log(ctx, ORTH_LOG_INFO, "config", "%s: %s=%s: %s", place, path, value, of->says);
        return ORTH_OK;
    }
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s=%s: %s", place, path, value, rule);
}

orth_status orth_config_set(orth_ctx *ctx, orth_config *cfg, const char *place, const char *path,
                            const char *value)
{
    int id = orth_option_find(path);
    if (id < 0 && orth_option_accepted(path, 0))
        return orth_config_put_accepted(ctx, cfg, place, path, value);
    if (id < 0)
        return orth_config_fail_unknown(ctx, place, path);
    return put_text(ctx, cfg, (orth_option_id)id, place, value);
}

static const char *last_word(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

/* Whether another program's name is meant: the name itself, or its last word in another section, where a word such as `type` says too little. */
static bool is_called(const char *name, const char *path)
{
    const char *word = last_word(name);
    return strcmp(name, path) == 0 || (strcmp(word, last_word(path)) == 0 && (word == name || strchr(word, '_')));
}

/* What other programs call a key. */
static const char *alias(const char *path)
{
    static const struct { const char *name, *key, *value, *whole; } aliases[] = {
#define ALIAS(name, key, ...) {name, key, "", NULL},
#include "config/aliases.def"
#define SAME(tool, name, key) {name, key, "", NULL},
#define ELEMS(tool, name, key) {name, key, "", NULL},
#define PART(tool, name, part, key) {name, key, "", NULL},
#define GIVES(tool, name, value, key, here) {name, key, value, key "=" here},
#include "config/imports.def"
    };
    for (int i = 0; i < ORTH_COUNT(aliases); i++)
        if (is_called(aliases[i].name, path) && strcmp(last_word(aliases[i].name), last_word(aliases[i].key)) != 0) /* else it is misplaced only */
            return strcmp(aliases[i].value, "true") == 0 ? aliases[i].whole : aliases[i].key; /* of a switch: what it switches on */
    return NULL;
}

/* The key of a section whose last word is that of `path`; NULL: none. */
static const char *same_word(const char *path)
{
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++) {
        const char *key = orth_option_get((orth_option_id)i)->path;
        if (strcmp(last_word(key), last_word(path)) == 0)
            return key;
    }
    return NULL;
}

/* The likeliest meaning of an unknown key: the right word in another section, a misspelt path, or a misspelt last word. */
static const char *suggestion(const char *path)
{
    const char *names[ORTH_NUM_OPTIONS + 64], *words[ORTH_NUM_OPTIONS];
    int n = 0;
    if (same_word(path))
        return same_word(path);
    for (; n < ORTH_NUM_OPTIONS; n++) {
        names[n] = orth_option_get((orth_option_id)n)->path;
        words[n] = last_word(names[n]);
    }
    for (int i = 0; i < ORTH_MIN(64, orth_option_num_sections()); i++)
        names[n++] = orth_option_section_get(i)->path;
    const char *near = orth_nearest(path, names, n);
    if (near)
        return near;
    near = orth_nearest(last_word(path), words, ORTH_NUM_OPTIONS);
    return near ? same_word(near) : NULL;
}

const char *orth_config_meaning(const char *name)
{
    const char *key = alias(name);
    return key ? key : same_word(name);
}

orth_status orth_config_fail_unknown(orth_ctx *ctx, const char *place, const char *path)
{
    if (orth_option_is_section(path))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: '%s' is a section: `orthant help options %s` lists its keys", place,
                         path, path);
    if (alias(path))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: unknown key '%s'; here it is %s", place, path, alias(path));
    const char *near = suggestion(path);
    if (near)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: unknown key '%s'; did you mean '%s'?", place, path, near);
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: unknown key '%s'; `orthant help options` lists all keys", place,
                     path);
}

orth_status orth_config_init(orth_ctx *ctx, orth_config *cfg)
{
    memset(cfg, 0, sizeof *cfg);
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++) {
        orth_option_id id = (orth_option_id)i;
        orth_status s = put_text(ctx, cfg, id, "options.def", orth_option_get(id)->default_text);
        if (s != ORTH_OK) {
            orth_config_release(ctx, cfg);
            return s;
        }
        cfg->place[i] = NULL;
    }
    return ORTH_OK;
}

void orth_config_release(orth_ctx *ctx, orth_config *cfg)
{
    orth_arena_release(ctx, &cfg->arena);
    memset(cfg, 0, sizeof *cfg);
}
