/* schedule_text.h -- a schedule in the form of docs/formats/schedule.md, which parses back to equal lists. Arena memory; NULL
 * with the error recorded. */
#ifndef ORTH_TESTS_SCHEDULE_TEXT_H
#define ORTH_TESTS_SCHEDULE_TEXT_H

#include "base/text.h"
#include "parallel/pipeline/schedule.h"

static inline int schedule_num_chunks(const orth_schedule *s, int rank)
{
    int n = 0;
    for (int c = 0; c < s->num_chunks; c++)
        n += s->chunk_rank[c] == rank;
    return n;
}

static inline void schedule_text_list(orth_ctx *ctx, orth_text *t, const orth_schedule *s, int rank)
{
    const orth_action_list *l = &s->lists[rank];
    const bool several = schedule_num_chunks(s, rank) > 1;
    for (int i = 0; i < l->num_actions; i++) {
        if (i % 16 == 0)
            orth_text_addf(ctx, t, "%srank %d:", i ? "\n" : "", rank);
        orth_text_addf(ctx, t, " %c%d", orth_action_letter(l->actions[i].kind),
                       (int)l->actions[i].micro_batch);
        if (several)
            orth_text_addf(ctx, t, "@%d", (int)l->actions[i].chunk);
    }
    if (l->num_actions)
        orth_text_add(ctx, t, "\n");
}

static inline char *schedule_text(orth_ctx *ctx, orth_arena *arena, const orth_schedule *s)
{
    orth_text t = {0};
    orth_text_addf(ctx, &t, "orthant-schedule 1\n# %s\nranks %d\nmicro_batches %d\nchunks", s->name,
                   (int)s->num_ranks, (int)s->num_micro_batches);
    for (int c = 0; c < s->num_chunks; c++)
        orth_text_addf(ctx, &t, " %d", (int)s->chunk_rank[c]);
    orth_text_add(ctx, &t, s->async ? "\nasync\n" : "\n");
    for (int r = 0; r < s->num_ranks; r++)
        schedule_text_list(ctx, &t, s, r);
    char *text = orth_text_take(ctx, &t);
    char *copy = text ? orth_arena_printf(ctx, arena, "%s", text) : NULL;
    orth_mem_free(ctx, text);
    return copy;
}

#endif
