/* alike.h -- ranks that make the same calls at the same times, of which one is enough (waits.h).
 *
 * Ranks get colours. Two of one colour have the same list of calls, and in each group of theirs the same colours: those of a group
 * with messages position by position, others as a set, since a collective begins with the last and takes as long as the longest.
 * Whatever one of them has posted by a time, so has the other. The coarsest such colours are found by refinement from the lists.
 *
 *   16,384 ranks, 16 stages with two lists each  --alike-->  32 ranks, and the communicators among them
 */
#ifndef ORTH_PROGRAM_ALIKE_H
#define ORTH_PROGRAM_ALIKE_H

#include "program/check/waits.h"

typedef struct {
    int32_t num;                     /* colours */
    int32_t *of;                     /* [num_ranks] */
    const orth_wait_list **lists;    /* [num] */
    orth_instances instances;        /* communicators of the colours, as if they were ranks */
} orth_alike;

/* lists [num_ranks]: equal ones share `calls`, or `tail`. Lives in the arena, with pointers to what it was given. ORTH_ERR_NOMEM. */
orth_status orth_alike_find(orth_ctx *ctx, orth_arena *arena, orth_alike *out, const orth_instances *instances, int num_ranks,
                            const orth_wait_list *const *lists);

#endif
