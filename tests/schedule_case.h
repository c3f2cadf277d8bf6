/* schedule_case.h -- what the tests of pipeline schedules share: schedules in an arena, simulated in plain units. */
#ifndef ORTH_TESTS_SCHEDULE_CASE_H
#define ORTH_TESTS_SCHEDULE_CASE_H

#include "test.h"

#include "parallel/pipeline/schedule.h"
#include "parallel/pipeline/simulate.h"

typedef struct {
    orth_ctx *ctx;
    orth_arena arena;
} pipe_case;

static inline pipe_case begin(void)
{
    return (pipe_case){.ctx = test_ctx(1)};
}

static inline void end(pipe_case *k)
{
    orth_arena_release(k->ctx, &k->arena);
    test_ctx_free(k->ctx);
}

static inline orth_schedule make(pipe_case *k, const char *name, int p, int v, int m)
{
    orth_schedule s;
    CHECK_OK(k->ctx, orth_schedule_make(k->ctx, &k->arena, &s, name, p, v, m));
    return s;
}

/* Every chunk takes f forward, bi + w backward; a message takes `latency`. */
static inline orth_sim simulate(pipe_case *k, const orth_schedule *s, double f, double bi, double w, double latency)
{
    orth_sim sim;
    orth_chunk_times *t = ORTH_ARENA_ARRAY(k->ctx, &k->arena, orth_chunk_times, s->num_chunks);
    for (int c = 0; c < s->num_chunks; c++)
        t[c] = (orth_chunk_times){{f, bi + w, bi, w}, latency, latency};
    CHECK_OK(k->ctx, orth_schedule_simulate(k->ctx, &k->arena, s, t, &sim));
    return sim;
}

static inline double bubble(pipe_case *k, const char *name, int p, int v, int m, double f, double bi, double w)
{
    const orth_schedule s = make(k, name, p, v, m);
    return simulate(k, &s, f, bi, w, 0).bubble;
}

static inline int virtual_of(const orth_schedule_kind *kind)
{
    return kind->min_virtual;
}

#endif
