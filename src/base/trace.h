/* trace.h -- a timeline as a file that Perfetto (ui.perfetto.dev) and chrome://tracing open.
 *
 * Rows stand for ranks or queues, spans for what they did. Format: "JSON object format" of Chrome's Trace
 * Event documentation; complete events (ph X), times in microseconds with nanosecond digits.
 */
#ifndef ORTH_BASE_TRACE_H
#define ORTH_BASE_TRACE_H

#include "base/text.h"

/* Zero-initialised: empty and ready. Additions that fail are noted; orth_trace_write returns it. */
typedef struct {
    orth_text text;
    int64_t num_events;
    const char *about;   /* a sentence on what the file shows, in its otherData; NULL: none */
} orth_trace;

/* Names row `row` of group `group` (a process of the viewer: a rank; its rows: queues). Groups and rows
 * are shown in ascending order. */
void orth_trace_group(orth_ctx *ctx, orth_trace *t, int group, const char *name);
void orth_trace_row(orth_ctx *ctx, orth_trace *t, int group, int row, const char *name);

/* What a row did from start to end. `category` colours and filters ("compute", "dp"); detail is text that
 * is shown when the span is clicked, NULL for none. */
void orth_trace_span(orth_ctx *ctx, orth_trace *t, int group, int row, const char *name, const char *category,
                     int64_t start_ns, int64_t end_ns, const char *detail);

/* A counter track of the group: from `at_ns` on, num series have these values; the viewer stacks them. */
void orth_trace_counter(orth_ctx *ctx, orth_trace *t, int group, const char *name, int64_t at_ns, int num, const char *const *series,
                        const int64_t *values);

/* The whole file as text, heap memory; NULL with the error recorded. *t is empty afterwards. */
char *orth_trace_take(orth_ctx *ctx, orth_trace *t);
/* Writes it to `path` and empties *t, whatever happens. ORTH_ERR_IO, ORTH_ERR_NOSPACE, ORTH_ERR_NOMEM. */
orth_status orth_trace_write(orth_ctx *ctx, orth_trace *t, const char *path);
void orth_trace_release(orth_ctx *ctx, orth_trace *t);

#endif
