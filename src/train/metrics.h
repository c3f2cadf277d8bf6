/* metrics.h -- what is reported of each step: one line for people, one JSON line for programs. */
#ifndef ORTH_TRAIN_METRICS_H
#define ORTH_TRAIN_METRICS_H

#include "plan/plan.h"
#include "train/trainer.h"

/* Where lines for people go. write: text as it is, which never waits for its reader; `progress`: it may be left out when
 * nobody reads; NULL: nothing is printed. columns: of the terminal; 0: there is none. */
typedef struct {
    void (*write)(void *user, bool progress, const char *text);
    size_t (*columns)(void *user);
    void *user;
} orth_print_sink;

typedef struct {
    FILE *file;              /* metrics.jsonl; NULL: none */
    const char *path;
    orth_error failed;       /* why it cannot be written any more; code ORTH_OK: it can */
    orth_plan plan;
    double peak_flops;       /* measured; 0: not known */
    size_t peak_bytes;       /* resident high-water of the processes of all ranks, summed */
    int64_t steps;           /* of the whole run */
    int64_t log_every;
    bool live;               /* a terminal: one line, rewritten */
    size_t width;            /* of the live line that stands there without an end; 0: none */
    orth_print_sink print;
    double smooth_s;         /* smoothed step time */
    double opened_s, refreshed_s; /* clock: when the file was opened, when the live line was last rewritten */
    double window_loss, window_s; /* sums over the steps since the last line that stayed */
    int64_t window_steps;
    size_t told_peak_bytes;  /* as last written */
    orth_traffic told_sent, told_sent_by_all; /* likewise */
    bool has_told;           /* a step was written */
    orth_text lines;         /* not yet in the file: the one that is being put together, behind those that could not be written */
    FILE *events;            /* for TensorBoard; NULL: none */
    double best_eval;        /* least loss of the evaluations of best_targets */
    double best_targets;
    bool other_targets;      /* evaluations over other targets there were, too */
    int64_t best_step;       /* after which step; no evaluation: below 0 */
    int64_t evaluated_step;  /* the last one that has an evaluation in the file; -1: none */
    int64_t num_steps;       /* of this run */
    double after_first_s, exposed_s[ORTH_NUM_GROUPS]; /* sums over the steps but the first */
} orth_metrics;

/* One evaluation: loss in nats per token, bits per byte of text (0: not known), targets scored. */
typedef struct {
    int64_t step;
    double loss, bits_per_byte, num_targets;
} orth_eval_figures;

/* Opens `path` for appending; lines of steps after `resume_step` (left by a run that went further than
 * its checkpoint) and those that cannot be read are dropped first, with a warning; steps up to it that have no line are told, too. resume_step < 0: a new file.
 *
 * A line that cannot be written ends no call below: it is reported once, and m->failed holds the error, so that the run can
 * save before it ends; the line is written with the next one, at the latest by orth_metrics_finish. */
orth_status orth_metrics_open(orth_ctx *ctx, orth_metrics *m, const char *path, int64_t resume_step);
/* From now on every step and evaluation also goes into an event file in the existing folder `dir`. ORTH_ERR_IO. */
orth_status orth_metrics_open_events(orth_ctx *ctx, orth_metrics *m, const char *dir, int64_t steps_done);
/* At the end of a run, before orth_metrics_close: all lines are on the disk, or the error. */
orth_status orth_metrics_finish(orth_ctx *ctx, orth_metrics *m);
void orth_metrics_close(orth_metrics *m);
/* The memory of lines, by the rank that wrote them. */
void orth_metrics_free_lines(orth_ctx *ctx, orth_metrics *m);

/* One optimizer step on sequences [first, end) that took `seconds`; sent by rank 0 and by all ranks in it; time that rank 0
 * spent on communication (run/executor.h). */
void orth_metrics_step(orth_ctx *ctx, orth_metrics *m, const orth_step_result *r, double seconds, int64_t first, int64_t end,
                       const orth_traffic *sent, const orth_traffic *sent_by_all, const double exposed_s[ORTH_NUM_GROUPS]);
void orth_metrics_evaluation(orth_ctx *ctx, orth_metrics *m, const orth_eval_figures *e);
/* The share of communication in the time of the steps, as an event, if there was any. */
void orth_metrics_communication(orth_metrics *m);
/* What the run did, and the command that comes next: `dir` is its folder. */
void orth_metrics_summary(orth_metrics *m, const char *dir, int64_t steps_done);
/* What a person is shown: a NaN has no sign. */
double orth_metrics_shown(double x);
/* A key that a resumed run has otherwise from step + 1 on, as a line and as an event. */
void orth_metrics_override(orth_ctx *ctx, orth_metrics *m, int64_t step, const char *key, const char *was, const char *now);
/* A line for people beside those of steps: of a checkpoint, of the start. */
void orth_metrics_event(orth_metrics *m, const char *text);

#endif
