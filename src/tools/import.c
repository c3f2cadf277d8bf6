/* import.c -- see import.h: pairs of their keys and values, and what the rows of imports.def make of them. */
#include "tools/import_impl.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/files.h"

#define GRADIENT_BYTES 4.0     /* of an element in a bucket */

static const struct {
    const char *id, *name;
    orth_import_form form;
} tools[] = {
#define TOOL(id, name, form, what) {#id, name, ORTH_FORM_##form},
#include "config/imports.def"
};

static const orth_import_row rows[] = {
#define SAME(tool, path, key) {ORTH_TOOL_##tool, ORTH_ROW_SAME, path, NULL, key, NULL, ORTH_PART_none},
#define READ(tool, path, value, key, here) {ORTH_TOOL_##tool, ORTH_ROW_READ, path, value, key, here, ORTH_PART_none},
#define GIVES(tool, path, value, key, here) {ORTH_TOOL_##tool, ORTH_ROW_GIVES, path, value, key, here, ORTH_PART_none},
#define ELEMS(tool, path, key) {ORTH_TOOL_##tool, ORTH_ROW_ELEMS, path, NULL, key, NULL, ORTH_PART_none},
#define PART(tool, path, part, key) {ORTH_TOOL_##tool, ORTH_ROW_PART, path, NULL, key, NULL, ORTH_PART_##part},
#define PART_AT(tool, path, value, part, key) {ORTH_TOOL_##tool, ORTH_ROW_PART, path, value, key, NULL, ORTH_PART_##part},
#define NOT(tool, path, why) {ORTH_TOOL_##tool, ORTH_ROW_NOT, path, NULL, NULL, why, ORTH_PART_none},
#define NOT_AT(tool, path, value, why) {ORTH_TOOL_##tool, ORTH_ROW_NOT, path, value, NULL, why, ORTH_PART_none},
#define REFUSED(tool, path, value, why) {ORTH_TOOL_##tool, ORTH_ROW_REFUSED, path, value, NULL, why, ORTH_PART_none},
#include "config/imports.def"
};

static const struct {
    orth_tool tool;
    const char *path, *value, *where;
} absent[] = {
#define ABSENT(tool, path, value, where) {ORTH_TOOL_##tool, path, value, where},
#include "config/imports.def"
};

typedef struct {
    orth_tool tool;
    const char *path;
} key_of_tool;

static const key_of_tool any_case[] = {
#define ANY_CASE(tool, path) {ORTH_TOOL_##tool, path},
#include "config/imports.def"
};

static const key_of_tool as_real[] = {
#define AS_REAL(tool, path) {ORTH_TOOL_##tool, path},
#include "config/imports.def"
};

static const key_of_tool at_most[] = {
#define AT_MOST(tool, path) {ORTH_TOOL_##tool, path},
#include "config/imports.def"
};

static const struct {
    orth_tool tool;
    const char *path, *where;
} sections[] = {
#define SECTION(tool, path, where) {ORTH_TOOL_##tool, path, where},
#include "config/imports.def"
};

static const struct {
    orth_tool tool;
    const char *path, *other;
} exclusions[] = {
#define EXCLUDES(tool, path, other) {ORTH_TOOL_##tool, path, other},
#include "config/imports.def"
};

static const struct {
    orth_tool tool;
    const char *path, *other, *where;
} precedences[] = {
#define PREVAILS(tool, path, other, where) {ORTH_TOOL_##tool, path, other, where},
#include "config/imports.def"
};

const char *orth_tool_id(orth_tool tool)
{
    return tools[tool].id;
}

orth_import_form orth_tool_form(orth_tool tool)
{
    return tools[tool].form;
}

bool orth_tool_has_model(orth_tool tool)
{
    return tool == ORTH_TOOL_megatron || tool == ORTH_TOOL_nemo;
}

const orth_import_row *orth_import_row_at(int i)
{
    return i < ORTH_COUNT(rows) ? &rows[i] : NULL;
}

const char *orth_import_absent(orth_tool tool, const char *path)
{
    for (int i = 0; i < ORTH_COUNT(absent); i++)
        if (absent[i].tool == tool && strcmp(absent[i].path, path) == 0)
            return absent[i].value;
    return NULL;
}

/* ---- rows and pairs ---- */

static bool fits(const char *pattern, const char *text)
{
    const size_t n = strlen(pattern);
    return n > 0 && pattern[n - 1] == '*' ? strncmp(pattern, text, n - 1) == 0 : strcmp(pattern, text) == 0;
}

static bool is_one_of(const key_of_tool *keys, int num, const orth_import_row *row)
{
    for (int i = 0; i < num; i++)
        if (keys[i].tool == row->tool && strcmp(keys[i].path, row->path) == 0)
            return true;
    return false;
}

static bool is_same_number(const char *a, const char *b)
{
    return !orth_import_not_real(a) && !orth_import_not_real(b) && strtod(a, NULL) == strtod(b, NULL);
}

static bool fits_value(const orth_import_row *row, const char *value)
{
    if (!row->value || !*row->value)
        return true;
    if (is_one_of(any_case, ORTH_COUNT(any_case), row))
        return strcasecmp(row->value, value) == 0;
    return fits(row->value, value) || (row->kind == ORTH_ROW_NOT && is_same_number(row->value, value));
}

const orth_import_row *orth_import_row_of(orth_tool tool, const char *path, const char *value)
{
    for (int i = 0; i < ORTH_COUNT(rows); i++)
        if (rows[i].tool == tool && fits(rows[i].path, path) && fits_value(&rows[i], value))
            return &rows[i];
    return NULL;
}

bool orth_import_is_section(orth_tool tool, const char *path)
{
    const size_t n = strlen(path);
    for (int i = 0; i < ORTH_COUNT(rows); i++)
        if (rows[i].tool == tool && strncmp(rows[i].path, path, n) == 0 && rows[i].path[n] == '.')
            return true;
    return false;
}

bool orth_import_is_key(orth_tool tool, const char *path)
{
    for (int i = 0; i < ORTH_COUNT(rows); i++)
        if (rows[i].tool == tool && strcmp(rows[i].path, path) == 0)
            return true;
    return false;
}

/* Programs in Python write True, False and None; YAML has a short word for the last. */
static const char *plain(const char *value)
{
    static const char *const words[][2] = {{"True", "true"}, {"False", "false"}, {"None", "null"}, {"~", "null"}};
    for (int i = 0; i < ORTH_COUNT(words); i++)
        if (strcmp(value, words[i][0]) == 0)
            return words[i][1];
    return value;
}

bool orth_import_is_named(orth_tool tool, const char *path, const char *value)
{
    const orth_import_row *row = orth_import_row_of(tool, path, value);
    return row && row->value && strcmp(row->value, value) == 0;
}

/* A value where their program expects keys; auto and ${name}, of which rows say for any path that they are not read, may stand there. */
static bool replaces_section(orth_tool tool, const char *path, const char *value)
{
    const orth_import_row *row = orth_import_row_of(tool, path, value);
    const bool of_any_path = row && strcmp(row->path, "*") == 0;
    return !of_any_path && orth_import_is_section(tool, path) && !orth_import_is_key(tool, path);
}

/* The length of the part of a path that is a key with a value of its own, so that it holds no keys; 0: none is. */
static int key_of_value(orth_tool tool, const char *path)
{
    for (const char *dot = strchr(path, '.'); dot; dot = strchr(dot + 1, '.'))
        for (int i = 0; i < ORTH_COUNT(rows); i++) {
            const size_t n = (size_t)(dot - path);
            if (rows[i].tool == tool && strncmp(rows[i].path, path, n) == 0 && !rows[i].path[n] && !orth_import_is_section(tool, rows[i].path))
                return (int)n;
        }
    return 0;
}

orth_status orth_import_add(orth_importer *x, const char *where, const char *path, const char *value)
{
    const bool is_file = tools[x->tool].form != ORTH_FORM_WORDS;
    const int of_value = is_file ? key_of_value(x->tool, path) : 0;
    if (of_value > 0)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s: %.*s: must be a value, not a section", where, of_value, path);
    if (is_file && replaces_section(x->tool, path, plain(value)))
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s: %s=%s: must be a section, not a value", where, path, ORTH_SHOWN(value));
    if (is_file && orth_import_is_key(x->tool, path) && orth_import_is_given(x, path))
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s: %s=%s: is given twice, in a section and by a name with dots", where, path, ORTH_SHOWN(value));
    orth_import_pair *p = ORTH_ARENA_ARRAY(x->ctx, &x->arena, orth_import_pair, 1);
    if (!p)
        return ORTH_ERR_NOMEM;
    *p = (orth_import_pair){.path = orth_arena_printf(x->ctx, &x->arena, "%s", path),
                            .value = orth_arena_printf(x->ctx, &x->arena, "%s", plain(value)),
                            .place = orth_arena_printf(x->ctx, &x->arena, "%s: %s", where, path)};
    if (!p->path || !p->value || !p->place)
        return ORTH_ERR_NOMEM;
    p->row = orth_import_row_of(x->tool, p->path, p->value);
    *(x->last ? &x->last->next : &x->first) = p;
    x->last = p;
    return ORTH_OK;
}

orth_status orth_import_add_given(orth_importer *x, const char *where, const char *path, const char *value)
{
    const bool is_none = strcmp(plain(value), "null") == 0 || strcmp(value, "") == 0 || strcmp(value, "{}") == 0;
    return is_none && !orth_import_is_named(x->tool, path, plain(value)) ? ORTH_OK : orth_import_add(x, where, path, value);
}

const orth_import_pair *orth_import_find(const orth_importer *x, orth_import_part part)
{
    const orth_import_pair *found = NULL;
    for (const orth_import_pair *p = x->first; p; p = p->next)
        if (p->row && p->row->part == part)
            found = p;
    return found;
}

bool orth_import_is_true(const orth_import_pair *p)
{
    return p && (strcmp(p->value, "true") == 0 || strcmp(p->value, "1") == 0);
}

bool orth_import_is_word(const orth_import_pair *p, const char *const *words, int num)
{
    for (int i = 0; i < num; i++)
        if (strcmp(words[i], p->value) == 0)
            return true;
    return false;
}

bool orth_import_is_about(const orth_import_row *row, const char *key)
{
    const size_t n = strlen(key);
    return row && row->key && strncmp(row->key, key, n) == 0 && (row->key[n] == '\0' || strchr(" ,=", row->key[n]));
}

const orth_import_pair *orth_import_giving(const orth_importer *x, const char *key)
{
    for (const orth_import_pair *p = x->first; p; p = p->next)
        if (orth_import_is_about(p->row, key))
            return p;
    return NULL;
}

bool orth_import_gives(const orth_importer *x, const char *key)
{
    return orth_import_giving(x, key) != NULL;
}

/* ---- what is done with a pair ---- */

const char *orth_import_place(orth_importer *x, const char *what)
{
    return orth_arena_printf(x->ctx, &x->arena, "%s: %s", x->name, what);
}

bool orth_import_stays(const orth_config *c, const char *key)
{
    const int id = orth_option_find(key);
    return id >= 0 && c->place[id] && strcmp(c->place[id], "command line") == 0;
}

/* Whose place it is, which is that pair's own string; NULL: of several keys together, or of a rule. */
static const orth_import_pair *pair_of_place(const orth_importer *x, const char *place)
{
    for (const orth_import_pair *p = x->first; p; p = p->next)
        if (p->place == place)
            return p;
    return NULL;
}

/* Whether their program goes by `p` where both are given. Of two that prevail over each other, each by its own `where`, neither does. */
static bool prevails(const orth_importer *x, const orth_import_pair *p, const orth_import_pair *other)
{
    bool first = false, second = false;
    for (int i = 0; i < ORTH_COUNT(precedences); i++) {
        const char *path = precedences[i].path, *over = precedences[i].other, *where = precedences[i].where;
        if (precedences[i].tool != x->tool || (*where && !orth_import_has(x, where)))
            continue;
        first = first || (strcmp(path, p->path) == 0 && strcmp(over, other->path) == 0);
        second = second || (strcmp(path, other->path) == 0 && strcmp(over, p->path) == 0);
    }
    return first && !second;
}

static orth_status say_prevails(orth_importer *x, const orth_import_pair *p, const orth_import_pair *other)
{
    const char *why = orth_arena_printf(x->ctx, &x->arena, "%s goes by %s", tools[x->tool].name, p->path);
    if (!why)
        return ORTH_ERR_NOMEM;
    orth_import_unused(x, other->place, why);
    return ORTH_OK;
}

orth_status orth_import_contradict(orth_importer *x, const orth_import_pair *a, const orth_import_pair *b, const char *key, const char *of_a, const char *of_b)
{
    const char *text = orth_arena_printf(x->ctx, &x->arena, "%s=%s and %s=%s contradict each other: one is %s=%s, the other %s", a->place, ORTH_SHOWN(a->value),
                                         b->path, ORTH_SHOWN(b->value), key, ORTH_SHOWN(of_a), ORTH_SHOWN(of_b));
    if (!text)
        return ORTH_ERR_NOMEM;
    if (!orth_import_is_script(x))
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s", text);
    orth_log(x->ctx, ORTH_LOG_WARN, "import", "%s; all branches of a script are read here, and the last counts", text);
    return ORTH_OK;
}

/* Sets a key that `before` has set already. */
static orth_status set_again(orth_importer *x, const orth_import_pair *before, const orth_import_pair *now, const char *key, const char *value)
{
    const orth_option_id id = (orth_option_id)orth_option_find(key);
    char *old = orth_option_text(x->ctx, x->cfg, id), *new = NULL;
    orth_status s = old ? orth_config_set(x->ctx, x->cfg, now->place, key, value) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK && !(new = orth_option_text(x->ctx, x->cfg, id)))
        s = ORTH_ERR_NOMEM;
    if (s == ORTH_OK && prevails(x, now, before))
        s = say_prevails(x, now, before);
    else if (s == ORTH_OK && strcmp(old, new) != 0)
        s = orth_import_contradict(x, before, now, key, old, new);
    orth_mem_free(x->ctx, old);
    orth_mem_free(x->ctx, new);
    return s;
}

/* What is wrong with a value as it was written there; NULL: nothing that the row of the option does not say. A run file has further ways to write one. */
static const char *not_taken(const orth_importer *x, orth_option_id id, const char *written)
{
    switch (orth_option_get(id)->type) {
    case ORTH_TYPE_INT: return orth_import_not_whole(x, written);
    case ORTH_TYPE_REAL: return orth_import_is_octal(x, written) ? "begins with 0, and YAML reads it as octal" : NULL;
    case ORTH_TYPE_STR: return *written == '[' ? "takes one value, not a list" : NULL;
    default: return NULL;
    }
}

/* `note` ends what is said. */
static orth_status set_and_say(orth_importer *x, const char *place, const char *key, const char *value, const char *note)
{
    if (!place)
        return ORTH_ERR_NOMEM; /* of orth_import_place */
    if (orth_import_stays(x->cfg, key)) {
        orth_log(x->ctx, ORTH_LOG_INFO, "import", "%s is not used: the command line gives %s", ORTH_SHOWN(place), key);
        return ORTH_OK;
    }
    const int id = orth_option_find(key);
    const orth_import_pair *now = pair_of_place(x, place), *before = id >= 0 ? x->givers[id] : NULL;
    const bool as_written = id >= 0 && now && value == now->value;
    const char *wrong = as_written ? not_taken(x, (orth_option_id)id, value) : NULL;
    if (as_written && *value == '$' && tools[x->tool].form == ORTH_FORM_WORDS)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: it is a word of the shell, whose value is not known here: give %s on the command line", place,
                         ORTH_SHOWN(value), key);
    if (wrong)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s: %s=%s: %s", place, key, ORTH_SHOWN(value), wrong);
    const bool again = now && before && !now->is_default && !before->is_default && strcmp(now->path, before->path) != 0;
    if (again && prevails(x, before, now))
        return say_prevails(x, before, now);
    ORTH_TRY(again ? set_again(x, before, now, key, value) : orth_config_set(x->ctx, x->cfg, place, key, value));
    if (now)
        x->givers[id] = now;
    orth_log(x->ctx, ORTH_LOG_INFO, "import", "%s is %s=%s%s", ORTH_SHOWN(place), key, ORTH_SHOWN(value), note);
    return ORTH_OK;
}

orth_status orth_import_set(orth_importer *x, const char *place, const char *key, const char *value)
{
    return set_and_say(x, place, key, value, "");
}

orth_status orth_import_set_int(orth_importer *x, const char *place, const char *key, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    return orth_import_set(x, place, key, text);
}

orth_status orth_import_set_real(orth_importer *x, const char *place, const char *key, double value)
{
    char text[32];
    snprintf(text, sizeof text, "%.15g", value);
    return orth_import_set(x, place, key, text);
}

void orth_import_unused(orth_importer *x, const char *place, const char *why)
{
    orth_log(x->ctx, ORTH_LOG_INFO, "import", "%s is not used: %s", ORTH_SHOWN(place), why);
}

static orth_status set_same(orth_importer *x, const orth_import_pair *p)
{
    const orth_import_row *row = p->row;
    const double most = orth_option_get((orth_option_id)orth_option_find(row->key))->max;
    const double given = orth_import_not_real(p->value) ? NAN : strtod(p->value, NULL);
    char text[32];
    if (given > most && is_one_of(at_most, ORTH_COUNT(at_most), row)) {
        snprintf(text, sizeof text, "%.0f", most);
        return set_and_say(x, p->place, row->key, text, ", the most that it takes");
    }
    if (given == floor(given) && fabs(given) <= 1e15 && is_one_of(as_real, ORTH_COUNT(as_real), row)) {
        snprintf(text, sizeof text, "%.0f", given);
        return orth_import_set(x, p->place, row->key, text);
    }
    return orth_import_set(x, p->place, row->key, p->value);
}

static orth_status set_mb_of_elems(orth_importer *x, const orth_import_pair *p)
{
    const double elems = strtod(p->value, NULL);
    if (orth_import_not_whole(x, p->value) || !(elems >= 0 && elems <= 1e15))
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: must be a number of elements", p->place, ORTH_SHOWN(p->value));
    return orth_import_set_int(x, p->place, p->row->key, (int64_t)ceil(GRADIENT_BYTES * elems / 0x1p20));
}

static void say_unknown(orth_importer *x, const orth_import_pair *p)
{
    const char *names[ORTH_COUNT(rows)], *near;
    char why[192];
    int n = 0;
    for (int i = 0; i < ORTH_COUNT(rows); i++)
        if (rows[i].tool == x->tool && !strchr(rows[i].path, '*'))
            names[n++] = rows[i].path;
    near = orth_nearest(p->path, names, n);
    if (near && strcmp(near, p->path) == 0)
        snprintf(why, sizeof why, "its value %.60s is not known here", ORTH_SHOWN(p->value));
    else if (near)
        snprintf(why, sizeof why, "no such key is known here; was '%s' meant?", near);
    else
        snprintf(why, sizeof why, "no such key is known here; what it changes is not in the plan");
    orth_import_unused(x, p->place, why);
}

static orth_status apply(orth_importer *x, const orth_import_pair *p)
{
    const orth_import_row *row = p->row;
    if (!row) {
        say_unknown(x, p);
        return ORTH_OK;
    }
    switch (row->kind) {
    case ORTH_ROW_READ: return orth_import_set(x, p->place, row->key, *row->text ? row->text : p->value);
    case ORTH_ROW_SAME: return set_same(x, p);
    case ORTH_ROW_GIVES: return orth_import_set(x, p->place, row->key, row->text);
    case ORTH_ROW_ELEMS: return set_mb_of_elems(x, p);
    case ORTH_ROW_REFUSED: return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: %s", p->place, ORTH_SHOWN(p->value), row->text);
    case ORTH_ROW_NOT: orth_import_unused(x, p->place, row->text); return ORTH_OK;
    case ORTH_ROW_PART: break; /* together with others, later */
    }
    return ORTH_OK;
}

/* ---- keys that a configuration leaves to their defaults ---- */

static const orth_import_pair *find_path(const orth_importer *x, const char *path, size_t len)
{
    const orth_import_pair *found = NULL;
    for (const orth_import_pair *p = x->first; p; p = p->next)
        if (strlen(p->path) == len && strncmp(p->path, path, len) == 0)
            found = p;
    return found;
}

const orth_import_pair *orth_import_at(const orth_importer *x, const char *path)
{
    return find_path(x, path, strlen(path));
}

bool orth_import_is_given(const orth_importer *x, const char *path)
{
    return orth_import_at(x, path) != NULL;
}

bool orth_import_has(const orth_importer *x, const char *pair)
{
    const size_t n = strcspn(pair, "=");
    for (const orth_import_pair *p = x->first; p; p = p->next)
        if (strlen(p->path) == n && strncmp(p->path, pair, n) == 0 && strcmp(p->value, pair + n + 1) == 0)
            return true;
    return false;
}

bool orth_import_is_in(const orth_import_pair *p, const char *section)
{
    const size_t n = strlen(section);
    return strncmp(p->path, section, n) == 0 && p->path[n] == '.';
}

/* Takes the pairs of a section out, with one line for all of them. */
static orth_status drop_section(orth_importer *x, const char *section, const char *where)
{
    const orth_import_pair *kind = find_path(x, where, strcspn(where, "="));
    const size_t len = strlen(section);
    bool said = false;
    if (!kind || orth_import_has(x, where))
        return ORTH_OK;
    orth_import_pair **link = &x->first;
    x->last = NULL;
    for (orth_import_pair *p = x->first; p; p = p->next) {
        if (!orth_import_is_in(p, section)) {
            *link = x->last = p;
            link = &p->next;
            continue;
        }
        if (said)
            continue;
        const char *place = orth_arena_printf(x->ctx, &x->arena, "%.*s", (int)(strlen(p->place) - strlen(p->path) + len), p->place);
        const char *why = orth_arena_printf(x->ctx, &x->arena, "%s=%s, and %s reads this section with %s only", kind->path, ORTH_SHOWN(kind->value),
                                            tools[x->tool].name, where);
        if (!place || !why)
            return ORTH_ERR_NOMEM;
        orth_import_unused(x, place, why);
        said = true;
    }
    *link = NULL;
    return ORTH_OK;
}

static orth_status drop_sections(orth_importer *x)
{
    for (int i = 0; i < ORTH_COUNT(sections); i++)
        if (sections[i].tool == x->tool)
            ORTH_TRY(drop_section(x, sections[i].path, sections[i].where));
    return ORTH_OK;
}

static orth_status check_exclusions(orth_importer *x)
{
    for (int i = 0; i < ORTH_COUNT(exclusions); i++) {
        const char *other = exclusions[i].other;
        const orth_import_pair *p = exclusions[i].tool == x->tool ? orth_import_at(x, exclusions[i].path) : NULL;
        if (!p || !orth_import_is_given(x, other))
            continue;
        if (!orth_import_is_script(x))
            return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s and %s are both given: %s takes one of the two", p->place, other, tools[x->tool].name);
        orth_log(x->ctx, ORTH_LOG_WARN, "import", "%s and %s are both in the script: %s takes one of the two, and all branches are read here", ORTH_SHOWN(p->place),
                 other, tools[x->tool].name);
    }
    return ORTH_OK;
}

/* Whether their default decides: nothing gave the key, here or there, and of a model only where the configuration has one. */
static bool default_counts(const orth_importer *x, const orth_import_row *row, const char *where)
{
    if (*where && !orth_import_has(x, where))
        return false;
    char key[64];
    snprintf(key, sizeof key, "%.*s", (int)strcspn(row->key, " ,="), row->key);
    const int id = orth_option_find(key);
    if (id < 0 || x->cfg->place[id] || orth_import_is_given(x, row->path) || (*where && orth_import_gives(x, key)))
        return false;
    return strncmp(key, "model.", 6) != 0 || orth_import_gives(x, "model.layers");
}

static orth_status add_defaults(orth_importer *x)
{
    char *where = orth_arena_printf(x->ctx, &x->arena, "%s: the default of %s", x->name, tools[x->tool].name);
    if (!where)
        return ORTH_ERR_NOMEM;
    for (int i = 0; i < ORTH_COUNT(absent); i++) {
        const orth_import_row *row = absent[i].tool == x->tool ? orth_import_row_of(x->tool, absent[i].path, absent[i].value) : NULL;
        if (!row || !default_counts(x, row, absent[i].where))
            continue;
        ORTH_TRY(orth_import_add(x, where, absent[i].path, absent[i].value));
        x->last->is_default = true;
    }
    return ORTH_OK;
}

static orth_status read_source(orth_importer *x, const char *source)
{
    if (strncmp(source, "--", 2) != 0 && !orth_path_exists(source))
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "--%s=%s: there is no such file", tools[x->tool].id, ORTH_SHOWN(source));
    switch (tools[x->tool].form) {
    case ORTH_FORM_JSON: return orth_import_read_json(x, source);
    case ORTH_FORM_YAML: return orth_import_read_yaml(x, source);
    case ORTH_FORM_WORDS: break;
    }
    return orth_import_read_words(x, source);
}

/* What no key of theirs decides, and their program would not choose as we do. */
static orth_status say_own_defaults(orth_importer *x)
{
    static const orth_option_id ids[] = {ORTH_OPT_optimizer_name, ORTH_OPT_schedule_name};
    for (int i = 0; i < ORTH_COUNT(ids); i++) {
        if (x->cfg->place[ids[i]])
            continue;
        char *value = orth_option_text(x->ctx, x->cfg, ids[i]);
        if (!value)
            return ORTH_ERR_NOMEM;
        orth_log(x->ctx, ORTH_LOG_INFO, "import", "%s: no key gives %s: %s is the default of Orthant", ORTH_SHOWN(x->name),
                 orth_option_get(ids[i])->path, value);
        orth_mem_free(x->ctx, value);
    }
    return ORTH_OK;
}

static orth_status import(orth_importer *x, const char *source)
{
    ORTH_TRY(read_source(x, source));
    ORTH_TRY(drop_sections(x));
    ORTH_TRY(check_exclusions(x));
    ORTH_TRY(add_defaults(x));
    for (const orth_import_pair *p = x->first; p; p = p->next)
        ORTH_TRY(apply(x, p));
    ORTH_TRY(orth_import_combine(x));
    ORTH_TRY(say_own_defaults(x));
    if (ORTH_CONFIG_IS_SET(x->cfg, numerics, mode))
        return ORTH_OK;
    return orth_import_set(x, orth_import_place(x, "sums in any order"), "numerics.mode", "fast");
}

orth_status orth_import(orth_ctx *ctx, orth_config *cfg, orth_tool tool, const char *source, int64_t num_devices)
{
    orth_importer x = {.ctx = ctx, .cfg = cfg, .tool = tool, .name = source, .num_devices = num_devices};
    const orth_status s = import(&x, source);
    orth_arena_release(ctx, &x.arena);
    return s;
}
