/* json_out.c -- see json_out.h. */
#include "base/json_out.h"

#include <stdarg.h>

static void begin_value(orth_json_out *j, const char *key)
{
    if (j->behind)
        orth_text_add(j->ctx, j->text, ", ");
    if (key) {
        orth_text_quote(j->ctx, j->text, key);
        orth_text_add(j->ctx, j->text, ": ");
    }
    j->behind = true;
}

void orth_json_open(orth_json_out *j, const char *key, char bracket)
{
    begin_value(j, key);
    orth_text_add(j->ctx, j->text, bracket == '{' ? "{" : "[");
    j->behind = false;
}

void orth_json_close(orth_json_out *j, char bracket)
{
    orth_text_add(j->ctx, j->text, bracket == '}' ? "}" : "]");
    j->behind = true;
}

void orth_json_string(orth_json_out *j, const char *key, const char *value)
{
    begin_value(j, key);
    orth_text_quote(j->ctx, j->text, orth_utf8_valid(value) ? value : ORTH_SHOWN(value));
}

void orth_json_bool(orth_json_out *j, const char *key, bool value)
{
    begin_value(j, key);
    orth_text_add(j->ctx, j->text, value ? "true" : "false");
}

void orth_json_print(orth_json_out *j, const char *key, const char *fmt, ...)
{
    va_list args;
    begin_value(j, key);
    va_start(args, fmt);
    orth_text_addv(j->ctx, j->text, fmt, args);
    va_end(args);
}
