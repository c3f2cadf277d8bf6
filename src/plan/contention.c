/* contention.c -- see contention.h. */
#include "plan/contention.h"

#include <math.h>
#include <stdlib.h>

#define MAX_ACTIVE 32   /* at once on a device; what comes beyond runs as if alone */

typedef struct {
    orth_transfer *t;
    double left;        /* seconds alone */
    double rate;
} active;

static int by_begin(const void *a, const void *b)
{
    const orth_transfer *x = a, *y = b;
    return (x->begin > y->begin) - (x->begin < y->begin);
}

/* The most that one transfer may have of the port, so that all together have what there is: equal parts, and what some leave is shared by the
 * others, which makes parts larger until nobody else is content. */
static double fair_part(const active *list, int num, int port)
{
    double sum = 0, part = 1.0 / num;
    for (int i = 0; i < num; i++)
        sum += list[i].t->load.of[port];
    if (sum <= 1)
        return 1;
    for (int round = 0; round < num; round++) {
        double content = 0;
        int others = 0;
        for (int i = 0; i < num; i++) {
            const double asked = list[i].t->load.of[port];
            content += asked <= part ? asked : 0;
            others += asked > part;
        }
        if (others == 0 || (1 - content) / others <= part)
            break;
        part = (1 - content) / others;
    }
    return part;
}

static void set_rates(active *list, int num)
{
    for (int i = 0; i < num; i++)
        list[i].rate = 1;
    for (int port = 0; num > 1 && port < ORTH_NUM_PORTS; port++) {
        const double part = fair_part(list, num, port);
        for (int i = 0; i < num; i++)
            if (list[i].t->load.of[port] > part)
                list[i].rate = fmin(list[i].rate, part / list[i].t->load.of[port]);
    }
}

/* Until `then`, or until the first of them ends, which leaves the list. Returns when that is. */
static double advance(active *list, int *num, double now, double then)
{
    int first = 0;
    set_rates(list, *num);
    for (int i = 1; i < *num; i++)
        if (list[i].left / list[i].rate < list[first].left / list[first].rate)
            first = i;
    const double end = now + list[first].left / list[first].rate, until = fmin(end, then);
    for (int i = 0; i < *num; i++)
        list[i].left -= (until - now) * list[i].rate;
    if (end <= then) {
        list[first].t->end = end;
        list[first] = list[--*num];
    }
    return until;
}

void orth_contention_run(orth_transfer *list, int32_t num)
{
    active now_running[MAX_ACTIVE];
    int running = 0;
    double now = 0;
    qsort(list, (size_t)num, sizeof *list, by_begin);
    for (int32_t i = 0; i < num; i++) {
        while (running > 0 && now < list[i].begin)
            now = advance(now_running, &running, now, list[i].begin);
        now = list[i].begin;
        if (running < MAX_ACTIVE)
            now_running[running++] = (active){&list[i], list[i].seconds, 1};
        else
            list[i].end = list[i].begin + list[i].seconds;
    }
    while (running > 0)
        now = advance(now_running, &running, now, INFINITY);
}
