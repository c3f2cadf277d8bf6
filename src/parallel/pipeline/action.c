/* action.c -- see action.h: questions that a schedule's lists answer. */
#include "parallel/pipeline/action.h"

char orth_action_letter(orth_action_kind kind)
{
    static const char letters[ORTH_NUM_ACTION_KINDS] = {'F', 'B', 'I', 'W'};
    return letters[kind];
}

const char *orth_action_name(orth_action_kind kind)
{
    static const char *const names[ORTH_NUM_ACTION_KINDS] = {"forward", "backward", "input gradient",
                                                             "weight gradient"};
    return names[kind];
}

int orth_schedule_peak_in_flight(const orth_schedule *s, int rank)
{
    const orth_action_list *l = &s->lists[rank];
    int now = 0, peak = 0;
    for (int i = 0; i < l->num_actions; i++) {
        if (l->actions[i].kind == ORTH_ACTION_F)
            now++;
        peak = ORTH_MAX(peak, now);
        if (l->actions[i].kind == ORTH_ACTION_B || l->actions[i].kind == ORTH_ACTION_W)
            now--;
    }
    return peak;
}

static bool retires(const orth_action *a, int chunk)
{
    return a->chunk == chunk && (a->kind == ORTH_ACTION_B || a->kind == ORTH_ACTION_W);
}

/* Distinct versions older than `newest` among the next `num_old` backwards on `chunk` that use such a one:
 * those of the micro-batches in flight before action `at`. */
static int old_versions(const orth_action_list *l, int chunk, int at, int newest, int num_old)
{
    int n = 0;
    for (int i = at; num_old > 0 && i < l->num_actions; i++) {
        const orth_action *a = &l->actions[i];
        if (!retires(a, chunk) || a->version >= newest)
            continue;
        bool seen = false;
        for (int k = at; k < i && !seen; k++)
            seen = retires(&l->actions[k], chunk) && l->actions[k].version == a->version;
        n += !seen;
        num_old--;
    }
    return n;
}

static int peak_versions_of_chunk(const orth_action_list *l, int chunk)
{
    int in_flight = 0, newest = 0, peak = 1;
    for (int i = 0; i < l->num_actions; i++) {
        const orth_action *a = &l->actions[i];
        in_flight += a->chunk == chunk && a->kind == ORTH_ACTION_F;
        if (!retires(a, chunk))
            continue;
        in_flight--;
        newest++; /* after an update all that is in flight is older */
        peak = ORTH_MAX(peak, 1 + old_versions(l, chunk, i + 1, newest, in_flight));
    }
    return peak;
}

int orth_schedule_peak_versions(const orth_schedule *s, int rank)
{
    int peak = 1;
    for (int32_t c = 0; s->async && c < s->num_chunks; c++)
        if (s->chunk_rank[c] == rank)
            peak = ORTH_MAX(peak, peak_versions_of_chunk(&s->lists[rank], c));
    return peak;
}
