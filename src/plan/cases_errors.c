/* cases_errors.c -- how far predictions are from what was measured. */
#include <math.h>
#include <stdlib.h>

#include "plan/cases_impl.h"

#define NEAR 0.03      /* speeds nearer than this have no order */

static int ascending(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* values [n] are sorted. */
static case_errors errors_of(double *values, int n)
{
    case_errors e = {.n = n};
    if (n == 0)
        return e;
    for (int i = 0; i < n; i++)
        e.mean += values[i] / n;
    qsort(values, (size_t)n, sizeof *values, ascending);
    e.median = n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
    e.p90 = values[(int)ceil(0.9 * n) - 1];
    return e;
}

bool case_is_timed(const orth_case *x)
{
    return !isnan(x->error) && !x->impossible[0] && !x->claim[0];
}

static bool is_of(const char *wanted, const char *name)
{
    return !wanted || strcmp(wanted, name) == 0;
}

case_errors cases_time_errors(const orth_case *list, int n, const char *tier, const char *family, double *room)
{
    int k = 0;
    for (int i = 0; i < n; i++)
        if (case_is_timed(&list[i]) && is_of(tier, list[i].tier) && is_of(family, list[i].family))
            room[k++] = fabs(list[i].error);
    return errors_of(room, k);
}

case_errors cases_mfu_errors(const orth_case *list, int n, const char *tier, double *room)
{
    int k = 0;
    for (int i = 0; i < n; i++)
        if (case_is_timed(&list[i]) && !isnan(list[i].mfu_points) && is_of(tier, list[i].tier))
            room[k++] = fabs(100 * list[i].mfu - list[i].mfu_points);
    return errors_of(room, k);
}

case_errors cases_memory_errors(const orth_case *list, int n, const char *memory_class, double *room, double *bias)
{
    int k = 0;
    *bias = 0;
    for (int i = 0; i < n; i++)
        if (!list[i].impossible[0] && !isnan(list[i].peak_GiB) && is_of(memory_class, list[i].memory_class)) {
            const double error = list[i].e.peak_bytes / 0x1p30 / list[i].peak_GiB - 1;
            *bias += error;
            room[k++] = fabs(error);
        }
    *bias /= ORTH_MAX(k, 1);
    return errors_of(room, k);
}

/* ---- sweeps ---- */

static bool in_sweep(const orth_case *x, const char *group)
{
    return case_is_timed(x) && *x->group && strcmp(x->group, group) == 0;
}

static void add_pairs(const orth_case *list, int n, int i, case_order *o)
{
    for (int k = i + 1; k < n; k++) {
        const double ratio = list[k].tokens_per_s / list[i].tokens_per_s;
        if (!in_sweep(&list[k], list[i].group) || fabs(log(ratio)) <= log(1 + NEAR))
            continue;
        o->pairs++;
        o->right += (list[k].speed > list[i].speed) == (ratio > 1);
    }
}

static void add_best(const orth_case *list, int n, int first, case_order *o)
{
    int num = 0, predicted = first;
    double best = 0;
    for (int k = first; k < n; k++) {
        if (!in_sweep(&list[k], list[first].group))
            continue;
        num++;
        best = fmax(best, list[k].tokens_per_s);
        predicted = list[k].speed > list[predicted].speed ? k : predicted;
    }
    o->sweeps += num >= 3;
    o->near += num >= 3 && list[predicted].tokens_per_s >= best / (1 + NEAR);
}

case_order cases_order(const orth_case *list, int n)
{
    case_order o = {0};
    for (int i = 0; i < n; i++) {
        bool first = true;
        if (!in_sweep(&list[i], list[i].group))
            continue;
        for (int k = 0; k < i; k++)
            first = first && !in_sweep(&list[k], list[i].group);
        add_pairs(list, n, i, &o);
        if (first)
            add_best(list, n, i, &o);
    }
    return o;
}

void cases_ran_out(const orth_case *list, int n, int *num, int *called_fitting)
{
    *num = *called_fitting = 0;
    for (int i = 0; i < n; i++)
        if (list[i].ran_out && !list[i].impossible[0]) {
            ++*num;
            *called_fitting += list[i].fits;
        }
}

bool case_begins_family(const orth_case *list, int i)
{
    for (int k = 0; k < i; k++)
        if (strcmp(list[k].family, list[i].family) == 0)
            return false;
    return true;
}

bool case_begins_memory_class(const orth_case *list, int i)
{
    for (int k = 0; k < i; k++)
        if (strcmp(list[k].memory_class, list[i].memory_class) == 0)
            return false;
    return *list[i].memory_class != '\0';
}
