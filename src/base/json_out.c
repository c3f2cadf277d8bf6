/* json_out.c -- see json_out.h. */
#include "base/json_out.h"

#include <math.h>
#include <stdarg.h>

static void begin_line(orth_json_out *j)
{
    orth_text_addf(j->ctx, j->text, "\n%*s", 2 * j->depth, "");
}

static void begin_value(orth_json_out *j, const char *key)
{
    const bool line = j->depth > 0 && j->depth <= j->lines;
    if (j->behind)
        orth_text_add(j->ctx, j->text, line ? "," : ", ");
    if (line)
        begin_line(j);
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
    j->depth++;
}

void orth_json_close(orth_json_out *j, char bracket)
{
    j->depth--;
    if (j->behind && j->depth < j->lines)
        begin_line(j);
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

void orth_json_number(orth_json_out *j, const char *key, double x)
{
    if (isfinite(x))
        orth_json_print(j, key, "%.9g", x);
    else
        orth_json_print(j, key, "null");
}

void orth_json_hex(orth_json_out *j, const char *key, double x)
{
    orth_json_print(j, key, "\"%a\"", x);
}

void orth_json_print(orth_json_out *j, const char *key, const char *fmt, ...)
{
    va_list args;
    begin_value(j, key);
    va_start(args, fmt);
    orth_text_addv(j->ctx, j->text, fmt, args);
    va_end(args);
}

orth_status orth_json_show(orth_json_out *j, FILE *file)
{
    orth_text_add(j->ctx, j->text, "\n");
    char *s = orth_text_take(j->ctx, j->text);
    if (!s)
        return ORTH_ERR_NOMEM;
    fputs(s, file);
    orth_mem_free(j->ctx, s);
    return ORTH_OK;
}
