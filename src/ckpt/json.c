/* json.c -- see json.h. */
#include "ckpt/json.h"

#include <inttypes.h>
#include <string.h>

#include "base/files.h"

orth_status orth_json_parse(orth_ctx *ctx, json_t **out, const char *place, const char *text,
                            size_t num_bytes)
{
    json_error_t error;
    json_t *root = json_loadb(text, num_bytes, JSON_REJECT_DUPLICATES, &error);
    if (!root) {
        /* Where its tables get no memory, it fails without a word. */
        if (json_error_code(&error) == json_error_out_of_memory || error.text[0] == '\0')
            return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "%s: no memory to read its JSON", place);
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s:%d:%d: not valid JSON: %s", place, error.line, error.column,
                         error.text);
    }
    if (!json_is_object(root)) {
        json_decref(root);
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: its JSON is not an object", place);
    }
    *out = root;
    return ORTH_OK;
}

orth_status orth_json_read(orth_ctx *ctx, json_t **out, const char *path, size_t max_bytes)
{
    orth_file_map map = {0};
    ORTH_TRY(orth_file_map_open(ctx, &map, path));
    orth_status s;
    if (map.size == 0)
        s = ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: is empty", path);
    else if (map.size > max_bytes)
        s = ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: its %zu bytes are more than the %zu that such a file may have",
                      path, map.size, max_bytes);
    else
        s = orth_json_parse(ctx, out, path, (const char *)map.data, map.size);
    orth_file_map_close(&map);
    return s;
}

/* NULL: absent or null. */
static const json_t *get(const json_t *object, const char *key)
{
    const json_t *v = json_object_get(object, key);
    return json_is_null(v) ? NULL : v;
}

static orth_status wrong_type(orth_ctx *ctx, const char *place, const char *key, const json_t *v,
                              const char *want)
{
    char shown[80];
    size_t n = json_dumpb(v, shown, sizeof shown - 1, JSON_ENCODE_ANY | JSON_COMPACT);
    if (n < sizeof shown)
        shown[n] = '\0';
    else
        snprintf(shown, sizeof shown, "(a long value)");
    return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: %s=%s is not %s", place, key, shown, want);
}

orth_status orth_json_get_int(orth_ctx *ctx, const json_t *object, const char *place, const char *key,
                              int64_t *out)
{
    const json_t *v = get(object, key);
    if (!v)
        return ORTH_OK;
    if (!json_is_integer(v))
        return wrong_type(ctx, place, key, v, "an integer");
    *out = json_integer_value(v);
    return ORTH_OK;
}

orth_status orth_json_get_real(orth_ctx *ctx, const json_t *object, const char *place, const char *key,
                               double *out)
{
    const json_t *v = get(object, key);
    if (!v)
        return ORTH_OK;
    if (!json_is_number(v))
        return wrong_type(ctx, place, key, v, "a number");
    *out = json_number_value(v);
    return ORTH_OK;
}

orth_status orth_json_get_bool(orth_ctx *ctx, const json_t *object, const char *place, const char *key,
                               bool *out)
{
    const json_t *v = get(object, key);
    if (!v)
        return ORTH_OK;
    if (!json_is_boolean(v))
        return wrong_type(ctx, place, key, v, "true or false");
    *out = json_is_true(v);
    return ORTH_OK;
}

orth_status orth_json_get_string(orth_ctx *ctx, const json_t *object, const char *place, const char *key,
                                 const char **out)
{
    const json_t *v = get(object, key);
    if (!v)
        return ORTH_OK;
    if (!json_is_string(v))
        return wrong_type(ctx, place, key, v, "a string");
    *out = json_string_value(v);
    return ORTH_OK;
}

orth_status orth_json_require(orth_ctx *ctx, const json_t *object, const char *place, const char *key)
{
    if (!get(object, key))
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: %s is missing", place, key);
    return ORTH_OK;
}

char *orth_json_text(orth_ctx *ctx, const json_t *value, size_t flags)
{
    /* jansson allocates while it writes, too: the second pass may end early where the first did not. */
    const size_t n = value ? json_dumpb(value, NULL, 0, flags) : 0;
    char *text = n ? orth_mem_alloc(ctx, n + 1) : NULL;
    if (text && json_dumpb(value, text, n, flags) == n)
        return text;
    orth_mem_free(ctx, text);
    ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "no memory to write JSON");
    return NULL;
}

void orth_json_add(json_t **object, const char *key, json_t *value)
{
    if (*object && json_object_set_new(*object, key, value) == 0)
        return; /* which takes the value whatever happens */
    if (!*object)
        json_decref(value);
    json_decref(*object);
    *object = NULL;
}

void orth_json_append(json_t **array, json_t *value)
{
    if (*array && json_array_append_new(*array, value) == 0)
        return;
    if (!*array)
        json_decref(value);
    json_decref(*array);
    *array = NULL;
}

char *orth_json_lines(orth_ctx *ctx, const json_t *value)
{
    char *text = orth_json_text(ctx, value, JSON_INDENT(2));
    char *lines = text ? orth_mem_printf(ctx, "%s\n", text) : NULL;
    orth_mem_free(ctx, text);
    return lines;
}
