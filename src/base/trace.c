/* trace.c -- see trace.h. Events are written as text at once; the array around them at the end. */
#include "base/trace.h"

#include <inttypes.h>
#include <string.h>

#include "base/files.h"

static void begin_event(orth_ctx *ctx, orth_trace *t)
{
    orth_text_add(ctx, &t->text,
                  t->num_events++ ? ",\n" : "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n");
}

/* Microseconds with three digits, without passing through a double: exact at any length of a run. */
static void add_us(orth_ctx *ctx, orth_trace *t, const char *key, int64_t ns)
{
    const uint64_t size = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    orth_text_addf(ctx, &t->text, ", \"%s\": %s%" PRIu64 ".%03d", key, ns < 0 ? "-" : "", size / 1000,
                   (int)(size % 1000));
}

static void add_name(orth_ctx *ctx, orth_trace *t, int group, int row, const char *event, const char *name)
{
    begin_event(ctx, t);
    orth_text_addf(ctx, &t->text,
                   "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"%s\", \"args\": {\"name\": ", group,
                   row, event);
    orth_text_quote(ctx, &t->text, name);
    orth_text_add(ctx, &t->text, "}}");
}

static void add_index(orth_ctx *ctx, orth_trace *t, int group, int row, const char *event, int index)
{
    begin_event(ctx, t);
    orth_text_addf(ctx, &t->text,
                   "{\"ph\": \"M\", \"pid\": %d, \"tid\": %d, \"name\": \"%s\", \"args\": {\"sort_index\": "
                   "%d}}",
                   group, row, event, index);
}

void orth_trace_group(orth_ctx *ctx, orth_trace *t, int group, const char *name)
{
    add_name(ctx, t, group, 0, "process_name", name);
    add_index(ctx, t, group, 0, "process_sort_index", group);
}

void orth_trace_row(orth_ctx *ctx, orth_trace *t, int group, int row, const char *name)
{
    add_name(ctx, t, group, row, "thread_name", name);
    add_index(ctx, t, group, row, "thread_sort_index", row);
}

void orth_trace_span(orth_ctx *ctx, orth_trace *t, int group, int row, const char *name, const char *category,
                     int64_t start_ns, int64_t end_ns, const char *detail)
{
    begin_event(ctx, t);
    orth_text_addf(ctx, &t->text, "{\"ph\": \"X\", \"pid\": %d, \"tid\": %d, \"name\": ", group, row);
    orth_text_quote(ctx, &t->text, name);
    orth_text_add(ctx, &t->text, ", \"cat\": ");
    orth_text_quote(ctx, &t->text, category);
    add_us(ctx, t, "ts", start_ns);
    add_us(ctx, t, "dur", end_ns - start_ns);
    if (detail) {
        orth_text_add(ctx, &t->text, ", \"args\": {\"detail\": ");
        orth_text_quote(ctx, &t->text, detail);
        orth_text_add(ctx, &t->text, "}");
    }
    orth_text_add(ctx, &t->text, "}");
}

void orth_trace_counter(orth_ctx *ctx, orth_trace *t, int group, const char *name, int64_t at_ns, int num, const char *const *series,
                        const int64_t *values)
{
    begin_event(ctx, t);
    orth_text_addf(ctx, &t->text, "{\"ph\": \"C\", \"pid\": %d, \"name\": ", group);
    orth_text_quote(ctx, &t->text, name);
    add_us(ctx, t, "ts", at_ns);
    orth_text_add(ctx, &t->text, ", \"args\": {");
    for (int i = 0; i < num; i++)
        orth_text_addf(ctx, &t->text, "%s\"%s\": %" PRId64, i ? ", " : "", series[i], values[i]);
    orth_text_add(ctx, &t->text, "}}");
}

char *orth_trace_take(orth_ctx *ctx, orth_trace *t)
{
    orth_text_add(ctx, &t->text, t->num_events ? "\n]}\n" : "{\"traceEvents\": []}\n");
    char *text = orth_text_take(ctx, &t->text);
    *t = (orth_trace){0};
    return text;
}

orth_status orth_trace_write(orth_ctx *ctx, orth_trace *t, const char *path)
{
    char *text = orth_trace_take(ctx, t);
    const orth_status status = text ? orth_file_write(ctx, path, text, strlen(text)) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, text);
    return status;
}

void orth_trace_release(orth_ctx *ctx, orth_trace *t)
{
    orth_mem_free(ctx, t->text.s);
    *t = (orth_trace){0};
}
