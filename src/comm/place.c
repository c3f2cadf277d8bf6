/* place.c -- where a rank is, in words, for messages.
 *
 *   "step 7, backward of layer 3, micro-batch 1: all_reduce of 'dx' over tp (instruction 412)"    in a step
 *   "saving checkpoint step-00000300: model.safetensors"                                          in a phase
 *   "not in a step"                                                                               else
 */
#include "comm/comm_impl.h"

/* What the rank's own words for an instruction are; false: it is not in a program, or has no words. */
static bool name_instr(comm_rank *r, int32_t instr, char *text, size_t n)
{
    const void *program = atomic_load(&r->progress.program);
    if (instr < 0 || !r->name || !program)
        return false;
    r->name(program, instr, text, n);
    return true;
}

static size_t put_step(const comm_rank *r, char *text, size_t n)
{
    const int64_t step = atomic_load(&r->step);
    const int at = step > 0 ? snprintf(text, n, "step %lld, ", (long long)step) : 0;
    return ORTH_MIN((size_t)at, n - 1);
}

void comm_instr_words(comm_shared *s, int rank, int32_t instr, char *text, size_t n)
{
    comm_rank *r = &s->ranks[rank];
    if (instr < 0)
        snprintf(text, n, "not in a step");
    else if (r->remote || !name_instr(r, instr, text, n))
        snprintf(text, n, "instruction %d", instr);
}

void comm_place(comm_shared *s, int rank, const char *group, char *text, size_t n, bool *has_file)
{
    comm_rank *r = &s->ranks[rank];
    *has_file = false;
    if (r->remote) {
        snprintf(text, n, "%s", r->remote_place);
        *has_file = r->remote_file;
        return;
    }
    const bool waits = group != NULL;
    const int32_t instr = waits ? atomic_load(&r->instr) : atomic_load(&r->progress.instr);
    size_t at = 0;
    if (waits)
        at = ORTH_MIN((size_t)snprintf(text, n, "%s on '%s', ", orth_comm_kind_name((orth_comm_kind)atomic_load(&r->kind)),
                                       group), n - 1);
    if (orth_progress_phase(&r->progress, text + at, n - at, has_file)) {
        *has_file = *has_file && !waits;
        return;
    }
    const size_t before = at;
    at += put_step(r, text + at, n - at);
    if (name_instr(r, instr, text + at, n - at))
        return;
    if (waits && instr >= 0)
        snprintf(text + at, n - at, "instruction %d", instr);
    else
        snprintf(text + before, n - before, "not in a step");
}
