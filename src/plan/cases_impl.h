/* cases_impl.h -- a case as it was read and predicted, and how cases are held against what was measured. For cases.c and its parts. */
#ifndef ORTH_PLAN_CASES_IMPL_H
#define ORTH_PLAN_CASES_IMPL_H

#include <jansson.h>

#include "base/text.h"
#include "plan/estimate.h"

typedef struct {
    const json_t *c;            /* the object */
    const char *id, *family, *tier, *group, *memory_class; /* "": not given */
    double tokens_per_s, peak_GiB, error;   /* measured: a device; NAN: not; error: of the step, predicted over measured less 1 */
    orth_job job;
    orth_hardware hardware;
    orth_estimate e;
    double mfu_points;          /* measured, in percent of the peak; NAN: not */
    bool ran_out;               /* measured: it did not fit */
    double tokens, devices, speed, mfu, hfu;
    bool fits;
    char impossible[256];
    char claim[128];       /* why what was measured cannot be; empty: it can */
} orth_case;

/* A number of an object, or `missing` where there is none; a word, or "". */
double case_number(const json_t *o, const char *key, double missing);
const char *case_word(const json_t *o, const char *key);
/* ORTH_ERR_ARG with file, case, key and rule for what cannot be or contradicts itself. */
orth_status case_check(orth_ctx *ctx, const char *path, const json_t *c);

/* Sets x->claim where no run can have had the figures that were measured. x is predicted. */
void case_judge(orth_case *x);

/* Of absolute values. */
typedef struct {
    int n;
    double mean, median, p90;
} case_errors;

/* Whether the step of this case is held against a measured one. */
bool case_is_timed(const orth_case *x);

/* Of the time of a step, of the cases with this tier and family; NULL: all. room [n]. */
case_errors cases_time_errors(const orth_case *list, int n, const char *tier, const char *family, double *room);
/* Of the MFU, in points. */
case_errors cases_mfu_errors(const orth_case *list, int n, const char *tier, double *room);
/* Of the peak of memory, predicted over measured less 1, of the cases whose memory was measured in this way. *bias: their mean with signs. */
case_errors cases_memory_errors(const orth_case *list, int n, const char *memory_class, double *room, double *bias);

/* Sweeps: cases of one group. */
typedef struct {
    int pairs, right;       /* pairs of a sweep whose speeds differ by more than 3 %, and those that are predicted in the right order */
    int sweeps, near;       /* sweeps of three cases or more, and those whose predicted best is within 3 % of the best */
} case_order;
case_order cases_order(const orth_case *list, int n);

/* Cases that ran out of memory, and of them those that were predicted to fit. */
void cases_ran_out(const orth_case *list, int n, int *num, int *called_fitting);

/* Whether case i is the first of its family, or with its way of measuring memory. */
bool case_begins_family(const orth_case *list, int i);
bool case_begins_memory_class(const orth_case *list, int i);

char *cases_as_json(orth_ctx *ctx, const orth_case *list, int n, double *room);
char *cases_as_text(orth_ctx *ctx, const orth_case *list, int n, double *room);

#endif
