/* search.h -- `orthant search`: the best layout of a model on a cluster, proved where the plans allowed suffice.
 *
 *   all layouts (search_space.h), by guessed bounds --the least one--> bounds from a small run --the least one--> full plan
 *
 * The layout with the least key is looked at next: if its bound is a guess, the bound is read off a small run; if it is a bound, the
 * layout is planned in full (programs, simulation). When the least key is a full price, no other layout can be better: it is the best. The
 * next one of a list is found the same way without those before it. A question may leave out layouts (those that need more than
 * a limit of memory, or are not of a kind); its answer is the best of the others.
 *
 * Beside the layout that is planned, the other cores plan those that are likely to be next. What they find is kept for when the search comes to
 * them, so that answers and their counts are the same on any number of cores.
 */
#ifndef ORTH_TOOLS_SEARCH_H
#define ORTH_TOOLS_SEARCH_H

#include "tools/price.h"
#include "tools/search_space.h"
#include "tools/shares.h"

typedef enum { ORTH_GOAL_TIME = 0, ORTH_GOAL_COST, ORTH_GOAL_MEMORY } orth_goal;
/* "time", "cost", "memory". ORTH_ERR_ARG. */
orth_status orth_goal_from_name(orth_ctx *ctx, const char *name, orth_goal *out);
const char *orth_goal_name(orth_goal g);

/* A candidate that was planned. On a cluster of several kinds of devices: with equal shares of the batch or in proportion to how fast they compute,
 * whichever is better. */
typedef struct {
    orth_price price;
    int32_t candidate;
    char dp_share[ORTH_SHARES_LIST_MAX]; /* parallel.dp_share; "": equal */
} orth_search_plan;

typedef struct {
    orth_search_space space;
    orth_place_to_run where;
    orth_goal goal;
    orth_search_plan *plans;    /* [num_plans] */
    int32_t num_plans, capacity;
    orth_search_plan *ahead;    /* [num_ahead] of layouts that the search has not come to */
    int32_t num_ahead, ahead_capacity;
    int num_threads;
    int32_t num_read;           /* small runs */
    int64_t num_elems;          /* of the model */
} orth_search;

/* base: outlives the search. cluster: "h100-64", with a number of devices. ORTH_ERR_ARG, ORTH_ERR_NOMEM. On failure there is
 * nothing to release. */
orth_status orth_search_make(orth_ctx *ctx, orth_search *out, const orth_config *base, const char *cluster, orth_goal goal);
/* The same on num_devices devices of `where`, which the search releases. On a measured machine: up to so many ranks, which are its threads. What is
 * measured there, what a model takes of which a part is frozen, and ranks in another order than tp, cp, dp, pp have no bounds that hold; layouts
 * are looked at in the order of estimates, until all that are estimated at less than twice the best are planned. An answer is then proved only if all layouts were planned. */
orth_status orth_search_make_on(orth_ctx *ctx, orth_search *out, const orth_config *base, const orth_place_to_run *where,
                                int64_t num_devices, orth_goal goal);
void orth_search_release(orth_ctx *ctx, orth_search *s);

/* Which layouts may answer. */
typedef struct {
    bool (*is)(const orth_search *s, const orth_candidate *c);  /* NULL: all */
    const orth_candidate *beside;   /* only those that cut model and batch as this one, whose tp, cp, pp, dp and ZeRO they have; NULL: all */
    const int32_t *without;     /* [num_without] candidates that may not */
    int32_t num_without;
    double limit_bytes;         /* of a rank; 0: what a device has */
    int32_t max_plans;          /* full plans that the answer may cost; one of many programs counts as four */
    double max_key;             /* a layout whose bound is more is not planned if that takes seconds, nor one whose plan takes minutes, nor those
                                   behind it; 0: any is */
} orth_search_question;

typedef struct {
    int32_t candidate;          /* -1: no layout fits, or none was found */
    bool proved;                /* no other one is better */
    double next;                /* not proved: key of the layout that would be looked at next, a bound */
    int32_t too_far;            /* not proved: that layout, if it was left out for max_key; else -1 */
    double least_bytes;         /* without an answer: of all layouts asked about, the least bound; 0: there is no such layout; INFINITY: none
                                 * that no rule refuses and that the hosts have the memory for */
} orth_search_answer;

/* What a rank's device may hold: what it has, or memory.limit_device where that is less. */
double orth_search_limit(const orth_search *s);

/* ORTH_ERR_NOMEM. */
orth_status orth_search_ask(orth_ctx *ctx, orth_search *s, const orth_search_question *q, orth_search_answer *out);

/* Whether each data-parallel rank has a program of its own, which makes plans long: copies of shards (parallel/classes.h). May be the `is` of a
 * question, as its opposite. */
bool orth_search_has_many_programs(const orth_search *s, const orth_candidate *c);

/* Of a planned candidate. */
static inline const orth_price *orth_search_price(const orth_search *s, int32_t candidate)
{
    return &s->plans[s->space.list[candidate].plan].price;
}
/* What num_devices devices take to compute for an hour, as the plan of a run counts it. */
orth_rent orth_search_rent(const orth_search *s, int64_t num_devices);
/* The cheaper of its prices, in USD; device hours where the description has no price, or 0; INFINITY: no progress. */
double orth_search_hour_cost(const orth_search *s, const orth_rent *r, int64_t num_devices);
/* What is minimized: seconds, seconds times what such an hour costs, or bytes. */
double orth_search_key(const orth_search *s, const orth_candidate *c);
/* The same of a candidate at another price, such as that on a changed cluster; INFINITY: refused. */
double orth_search_key_at(const orth_search *s, const orth_candidate *c, const orth_price *p);

/* The run file of a candidate: `cfg` initialized, its keys set. */
orth_status orth_search_config(orth_ctx *ctx, const orth_search *s, int32_t candidate, orth_config *cfg);

#endif
