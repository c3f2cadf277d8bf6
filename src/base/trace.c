/* trace.c -- see trace.h. Events are written as text at once; the array around them at the end. */
#include "base/trace.h"

#include <inttypes.h>
#include <string.h>

#include "base/files.h"
#include "base/json_out.h"

/* An event: what all of them say first. */
static orth_json_out begin_event(orth_ctx *ctx, orth_trace *t, const char *kind, int group)
{
    orth_json_out j = {ctx, &t->text};
    orth_text_add(ctx, &t->text, t->num_events++ ? ",\n" : "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n");
    orth_json_open(&j, NULL, '{');
    orth_json_string(&j, "ph", kind);
    orth_json_print(&j, "pid", "%d", group);
    return j;
}

/* Microseconds with three digits, without passing through a double: exact at any length of a run. */
static void add_us(orth_json_out *j, const char *key, int64_t ns)
{
    const uint64_t size = ns < 0 ? 0 - (uint64_t)ns : (uint64_t)ns;
    orth_json_print(j, key, "%s%" PRIu64 ".%03d", ns < 0 ? "-" : "", size / 1000, (int)(size % 1000));
}

/* Something about a group or row: with a name, or an index. */
static void add_about(orth_ctx *ctx, orth_trace *t, int group, int row, const char *event, const char *name, int index)
{
    orth_json_out j = begin_event(ctx, t, "M", group);
    orth_json_print(&j, "tid", "%d", row);
    orth_json_string(&j, "name", event);
    orth_json_open(&j, "args", '{');
    if (name)
        orth_json_string(&j, "name", name);
    else
        orth_json_print(&j, "sort_index", "%d", index);
    orth_json_close(&j, '}');
    orth_json_close(&j, '}');
}

void orth_trace_group(orth_ctx *ctx, orth_trace *t, int group, const char *name)
{
    add_about(ctx, t, group, 0, "process_name", name, 0);
    add_about(ctx, t, group, 0, "process_sort_index", NULL, group);
}

void orth_trace_row(orth_ctx *ctx, orth_trace *t, int group, int row, const char *name)
{
    add_about(ctx, t, group, row, "thread_name", name, 0);
    add_about(ctx, t, group, row, "thread_sort_index", NULL, row);
}

void orth_trace_span(orth_ctx *ctx, orth_trace *t, int group, int row, const char *name, const char *category,
                     int64_t start_ns, int64_t end_ns, const char *detail)
{
    orth_json_out j = begin_event(ctx, t, "X", group);
    orth_json_print(&j, "tid", "%d", row);
    orth_json_string(&j, "name", name);
    orth_json_string(&j, "cat", category);
    add_us(&j, "ts", start_ns);
    add_us(&j, "dur", end_ns - start_ns);
    if (detail) {
        orth_json_open(&j, "args", '{');
        orth_json_string(&j, "detail", detail);
        orth_json_close(&j, '}');
    }
    orth_json_close(&j, '}');
}

void orth_trace_counter(orth_ctx *ctx, orth_trace *t, int group, const char *name, int64_t at_ns, int num, const char *const *series,
                        const int64_t *values)
{
    orth_json_out j = begin_event(ctx, t, "C", group);
    orth_json_string(&j, "name", name);
    add_us(&j, "ts", at_ns);
    orth_json_open(&j, "args", '{');
    for (int i = 0; i < num; i++)
        orth_json_print(&j, series[i], "%" PRId64, values[i]);
    orth_json_close(&j, '}');
    orth_json_close(&j, '}');
}

char *orth_trace_take(orth_ctx *ctx, orth_trace *t)
{
    orth_json_out j = {ctx, &t->text};
    orth_text_add(ctx, &t->text, t->num_events ? "\n]" : "{\"traceEvents\": []");
    if (t->about) {
        orth_text_add(ctx, &t->text, ",\n\"otherData\": ");
        orth_json_open(&j, NULL, '{');
        orth_json_string(&j, "about", t->about);
        orth_json_close(&j, '}');
    }
    orth_text_add(ctx, &t->text, "}\n");
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
