/* tokenizer_section.c -- see the header. */
#include "data/tokenizer_section.h"

#include <string.h>

#define MAX_PATTERN_BYTES 8192

orth_status orth_section_parse(orth_section *s, const char *json, json_t **out)
{
    *out = json_loads(json, JSON_DECODE_ANY | JSON_ALLOW_NUL, NULL);
    if (!*out) /* it was JSON when it was kept */
        return ORTH_FAIL(s->ctx, ORTH_ERR_NOMEM, "tokenizer: no memory to read the sections of %s", s->name);
    return ORTH_OK;
}

const char *orth_section_type(const json_t *j)
{
    const char *type = json_string_value(json_object_get(j, "type"));
    return type ? type : "(none)";
}

orth_status orth_section_flag(orth_section *s, const json_t *j, const char *place, const char *key, bool *out)
{
    const json_t *v = json_object_get(j, key);
    if (!v)
        return ORTH_OK;
    if (!json_is_boolean(v))
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s.%s is not true or false", s->name, place, key);
    *out = json_is_true(v);
    return ORTH_OK;
}

orth_status orth_section_string(orth_section *s, const json_t *j, const char *place, const char *key, const char **out,
                                size_t *out_bytes)
{
    const json_t *v = json_object_get(j, key);
    if (!json_is_string(v))
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s.%s is not a string", s->name, place, key);
    const size_t n = json_string_length(v);
    char *copy = orth_arena_alloc(s->ctx, &s->tok->arena, n + 1);
    if (!copy)
        return ORTH_ERR_NOMEM;
    memcpy(copy, json_string_value(v), n);
    copy[n] = 0;
    *out = copy;
    *out_bytes = n;
    return ORTH_OK;
}

orth_status orth_section_pattern_text(orth_section *s, const json_t *j, const char *place, const char **out,
                                      size_t *out_bytes, bool *out_literal)
{
    const json_t *pattern = json_object_get(j, "pattern"), *regex = json_object_get(pattern, "Regex");
    const json_t *text = regex ? regex : json_object_get(pattern, "String");
    if (!json_is_string(text))
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s.pattern is not {\"Regex\": \"...\"} or {\"String\": \"...\"}", s->name,
                         place);
    *out = json_string_value(text);
    *out_bytes = json_string_length(text);
    *out_literal = !regex;
    if (*out_bytes > MAX_PATTERN_BYTES)
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s.pattern has %zu bytes, the limit is %d", s->name, place, *out_bytes,
                         MAX_PATTERN_BYTES);
    return ORTH_OK;
}
