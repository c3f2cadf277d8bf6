/* history.h -- what a run wrote to metrics.jsonl, read back: series of one value over the steps, and all of it as CSV.
 *
 * `run` is a run folder or a metrics.jsonl itself. A last line without its end (the run is writing it) is left out; any other line that
 * is not a JSON object is ORTH_ERR_DATA with its number. ORTH_ERR_ARG if there is no such file.
 */
#ifndef ORTH_REPORT_HISTORY_H
#define ORTH_REPORT_HISTORY_H

#include "base/text.h"

typedef struct {
    double step, value;
} orth_point;

typedef struct {
    const char *name;      /* the run, as given by the caller */
    orth_point *points;    /* heap, ascending steps as written */
    int64_t num_points;
} orth_series;

/* The lines that have the number `key` ("loss", "eval_loss", "lr", ...); none is an empty series. Release after success. */
orth_status orth_history_series(orth_ctx *ctx, orth_series *out, const char *run, const char *key);
void orth_series_release(orth_ctx *ctx, orth_series *s);

/* Each value less that of `base` at the same step. Points whose step `base` lacks are dropped. */
void orth_series_subtract(orth_series *s, const orth_series *base);
/* Each value becomes the mean of the `num` values (at least 1) that end with it. The points before have too few and are dropped. */
void orth_series_average(orth_series *s, int64_t num);

/* A table of all runs: run, then every key of a number, text or truth value in the order in which they first appear. Keys that hold objects
 * (bytes per axis) become KEY.NAME. A key that a line lacks, and null, are empty cells. */
orth_status orth_history_csv(orth_ctx *ctx, orth_text *out, const char *const *runs, int num_runs);

#endif
