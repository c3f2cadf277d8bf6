/* schedule.h -- the table of pipeline schedules, and what every schedule must obey.
 *
 *   orth_schedule_make --one function per row of schedules.def, or a file--> lists --check--> schedule
 *
 * A schedule from a file (`file:PATH`, docs/formats/schedule.md) passes through the same check.
 */
#ifndef ORTH_PARALLEL_PIPELINE_SCHEDULE_H
#define ORTH_PARALLEL_PIPELINE_SCHEDULE_H

#include "parallel/pipeline/action.h"

/* What a row of schedules.def says of a schedule. */
typedef struct {
    const char *name;             /* "1f1b" */
    const char *help;
    int32_t min_virtual, max_virtual; /* chunks per rank it is defined for */
    bool whole_rounds;            /* m must be a multiple of p */
    bool async, split;
} orth_schedule_kind;

/* Rows in the order of schedules.def; NULL past the last. */
const orth_schedule_kind *orth_schedule_kind_get(int index);
/* NULL if there is none; a name that starts with "file:" has none. */
const orth_schedule_kind *orth_schedule_kind_find(const char *name);
/* Whether stages update their weights after each micro-batch, as schedules from files never do. */
bool orth_schedule_is_async(const char *name);

/* Whether `name` is defined for these sizes. If not, the reason in words ("pipeline=interleaved: 6
 * micro-batches are not a multiple of pp=4") is put into why[size] and false returned. Of a file only the
 * name is looked at. */
bool orth_schedule_fits(const char *name, int64_t num_ranks, int64_t virtual_stages,
                        int64_t num_micro_batches, char *why, size_t size);

/* Makes the schedule `name` for p ranks of v chunks each and m micro-batches. With one rank and v = 1, a
 * name that is not for v = 1 gives 1f1b. Checked. ORTH_ERR_ARG: what orth_schedule_fits says; for files,
 * which are configuration, also what orth_schedule_parse says, with PATH:LINE:COL. ORTH_ERR_NOMEM. */
orth_status orth_schedule_make(orth_ctx *ctx, orth_arena *arena, orth_schedule *out, const char *name,
                               int num_ranks, int virtual_stages, int num_micro_batches);

/* The text of docs/formats/schedule.md; `place` (a path) starts every message. Checked like the others.
 * Sizes that are not 0 must agree with those of the text. ORTH_ERR_DATA, ORTH_ERR_NOMEM. */
orth_status orth_schedule_parse(orth_ctx *ctx, orth_arena *arena, orth_schedule *out, const char *place,
                                const char *text, size_t num_bytes, int num_ranks, int virtual_stages,
                                int num_micro_batches);

/* The rules, ORTH_ERR_ARG naming rank and action:
 *   1. actions name existing chunks and micro-batches, and stand in the list of their chunk's rank;
 *   2. each (chunk, micro-batch) has exactly one F, and one B throughout, or one BI and one W throughout;
 *   3. in a rank's list: F before B or BI, BI before W, and neighbouring chunks of one rank in order;
 *   4. executed in order, with receives that block and sends that do not, the lists reach their ends;
 *   5. versions are those that the updates before an action leave (0 throughout unless async). */
orth_status orth_schedule_check(orth_ctx *ctx, const orth_schedule *s);

/* Whether each rank consumes the messages of every other rank in the order in which they are sent, forward
 * and backward messages apart: then receives posted in list order match sends in list order on one channel
 * per (sender, receiver, direction). ORTH_ERR_ARG with the first pair that crosses, in words. Holds for every
 * row of schedules.def; a file may break it. The schedule has passed its check. */
orth_status orth_schedule_check_in_order(orth_ctx *ctx, const orth_schedule *s);

#endif
