/* import_read.c -- configurations of other programs as pairs of keys and values: JSON and YAML. import_words.c has the words of
 * a command line. */
#include "tools/import_impl.h"

#include <math.h>
#include <string.h>
#include <strings.h>

#include "base/files.h"
#include "base/yaml.h"
#include "ckpt/json.h"

#define MAX_BYTES ((size_t)1 << 20)
#define MAX_PATH 256

/* ---- JSON ---- */

/* A count may be written as 1e9. */
static orth_status add_json(orth_importer *x, const char *path, const json_t *value)
{
    const double real = json_real_value(value);
    char whole[32];
    if (json_is_real(value) && real == floor(real) && fabs(real) <= 1e15) {
        snprintf(whole, sizeof whole, "%.0f", real);
        return orth_import_add(x, x->name, path, whole);
    }
    if (json_is_string(value))
        return orth_import_add(x, x->name, path, json_string_value(value));
    char *text = orth_json_text(x->ctx, value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    const orth_status s = text ? orth_import_add_given(x, x->name, path, text) : ORTH_ERR_NOMEM;
    orth_mem_free(x->ctx, text);
    return s;
}

static orth_status visit(orth_importer *x, const char *prefix, json_t *object);

static orth_status visit_section(orth_importer *x, const char *path, json_t *object)
{
    if (orth_import_is_key(x->tool, path) && !orth_import_is_section(x->tool, path))
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s: %s: must be a value, not a section", x->name, path);
    return json_object_size(object) == 0 ? orth_import_add_given(x, x->name, path, "{}") : visit(x, path, object);
}

static orth_status visit(orth_importer *x, const char *prefix, json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        char path[MAX_PATH];
        if (snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key) >= (int)sizeof path)
            return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s: a key of more than %d bytes: %s", x->name, MAX_PATH - 1, ORTH_SHOWN(path));
        ORTH_TRY(json_is_object(value) ? visit_section(x, path, value) : add_json(x, path, value));
    }
    return ORTH_OK;
}

/* Behind the comment that begins here, # or // or one in stars; `at` itself: none does, or it has no end. */
static const char *end_of_comment(const char *at)
{
    if (at[0] == '#' || (at[0] == '/' && at[1] == '/'))
        return at + strcspn(at, "\n");
    const char *end = at[0] == '/' && at[1] == '*' ? strstr(at + 2, "*/") : NULL;
    return end ? end + 2 : at;
}

static const char *end_of_string(const char *at)
{
    for (at++; *at && *at != '"' && *at != '\n'; at++)
        at += at[0] == '\\' && at[1];
    return at + (*at == '"');
}

/* DeepSpeed reads its file as Hjson. Of that are taken: comments, and a comma behind the last item. In place of each come blanks, a blank for a character,
 * so that messages have lines and columns of the file. */
static void make_strict(char *text)
{
    char *to = text, *comma = NULL; /* comma: nothing came behind it */
    for (const char *at = text; *at;) {
        const char *string = *at == '"' ? end_of_string(at) : at, *comment = end_of_comment(at);
        for (; at < comment; at++)
            if ((*at & 0xc0) != 0x80) /* the first byte of a character */
                *to++ = *at == '\n' ? '\n' : ' ';
        if (comment > string)
            continue;
        if (comma && strchr("]}", *at))
            *comma = ' ';
        if (!strchr(" \t\r\n", *at))
            comma = *at == ',' ? to : NULL;
        do
            *to++ = *at++;
        while (at < string);
    }
    *to = '\0';
}

/* text: ends with a zero byte, and is changed. */
static orth_status parse_json(orth_importer *x, json_t **root, const char *path, char *text)
{
    static const char mark[] = "\xef\xbb\xbf"; /* that the file is UTF-8 */
    char *begin = text + (strncmp(text, mark, 3) == 0 ? 3 : 0);
    if (!*begin)
        return ORTH_FAIL(x->ctx, ORTH_ERR_DATA, "%s: is empty", path);
    make_strict(begin);
    return orth_json_parse(x->ctx, root, path, begin, strlen(begin));
}

static orth_status copy_text(orth_importer *x, const char *path, const orth_file_map *map, char **text)
{
    if (map->size > MAX_BYTES)
        return ORTH_FAIL(x->ctx, ORTH_ERR_DATA, "%s: its %zu bytes are more than the %zu that such a file may have", path, map->size, MAX_BYTES);
    if (memchr(map->data, '\0', map->size))
        return ORTH_FAIL(x->ctx, ORTH_ERR_DATA, "%s: holds a zero byte", path);
    *text = orth_mem_printf(x->ctx, "%.*s", (int)map->size, (const char *)map->data);
    return *text ? ORTH_OK : ORTH_ERR_NOMEM;
}

orth_status orth_import_read_json(orth_importer *x, const char *path)
{
    orth_file_map map = {0};
    json_t *root = NULL;
    char *text = NULL;
    ORTH_TRY(orth_file_map_open(x->ctx, &map, path));
    orth_status s = map.size > 0 ? copy_text(x, path, &map, &text) : ORTH_FAIL(x->ctx, ORTH_ERR_DATA, "%s: is empty", path);
    orth_file_map_close(&map);
    if (s == ORTH_OK)
        s = parse_json(x, &root, path, text);
    if (s == ORTH_OK)
        s = visit(x, "", root);
    json_decref(root);
    orth_mem_free(x->ctx, text);
    return s;
}

/* ---- YAML ---- */

static orth_yaml_kind any_kind(void *user, const char *path)
{
    (void)user, (void)path;
    return ORTH_YAML_ANY;
}

/* The words that YAML 1.1, which PyYAML reads, has for true and false; NULL: it is none. */
static const char *boolean_of(const char *text)
{
    static const char *const words[][2] = {{"yes", "true"}, {"on", "true"}, {"true", "true"}, {"no", "false"}, {"off", "false"}, {"false", "false"}};
    const bool is_lower = !text[strcspn(text, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")], is_upper = !text[strcspn(text, "abcdefghijklmnopqrstuvwxyz")];
    const bool begins_upper = *text >= 'A' && *text <= 'Z' && !text[1 + strcspn(text + 1, "ABCDEFGHIJKLMNOPQRSTUVWXYZ")];
    for (int i = 0; (is_lower || is_upper || begins_upper) && i < ORTH_COUNT(words); i++)
        if (strcasecmp(words[i][0], text) == 0)
            return words[i][1];
    return NULL;
}

/* A number may have _ between its digits. */
static bool is_number_with_lines(const char *text)
{
    const char *digits = text + (*text == '-' || *text == '+');
    return strchr("0123456789", *digits) && strchr(digits, '_') && !digits[strspn(digits, "0123456789_.")];
}

/* A scalar without quotes in the words and digits of the rows. */
static const char *plain_value(orth_importer *x, const char *path, const char *text)
{
    const char *boolean = boolean_of(text);
    if (boolean && !orth_import_is_named(x->tool, path, text))
        return boolean;
    if (!is_number_with_lines(text))
        return text;
    char *number = orth_arena_printf(x->ctx, &x->arena, "%s", text);
    size_t n = 0;
    for (const char *c = text; number && *c; c++)
        if (*c != '_')
            number[n++] = *c;
    if (number)
        number[n] = '\0';
    return number;
}

static orth_status put(orth_ctx *ctx, void *user, const char *path, const char *place, const orth_written *value)
{
    orth_text t = {0};
    const char *items[ORTH_LIST_MAX];
    for (int i = 0; i < value->num_items; i++) {
        items[i] = value->is_quoted[i] ? value->items[i] : plain_value(user, path, value->items[i]);
        if (!items[i])
            return ORTH_ERR_NOMEM;
    }
    if (!value->is_list)
        return orth_import_add_given(user, place, path, items[0]);
    orth_text_add(ctx, &t, "[");
    for (int i = 0; i < value->num_items; i++)
        orth_text_addf(ctx, &t, "%s%s", i ? ", " : "", items[i]);
    orth_text_add(ctx, &t, "]");
    char *list = orth_text_take(ctx, &t);
    const orth_status s = list ? orth_import_add(user, place, path, list) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, list);
    return s;
}

static orth_status unknown(orth_ctx *ctx, void *user, const char *place, const char *path)
{
    (void)user;
    return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "%s: key '%s'", place, path); /* no key is: any_kind */
}

orth_status orth_import_read_yaml(orth_importer *x, const char *path)
{
    static const orth_yaml_schema schema = {"a configuration", "key: value", any_kind, put, unknown};
    return orth_yaml_load(x->ctx, &schema, x, path);
}
