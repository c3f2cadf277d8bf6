/* touched.h -- who touched each byte last, while a program is walked in its order.
 *
 * All that an instruction touches lies on one line of addresses: the arena of the program, then buffers of other programs,
 * then one address for each communicator and each pair of peers, which every call writes, because members make their
 * calls in one order. Two instructions conflict if both touch an address and one of them writes it.
 *
 *   for each instruction i:  visit(i) names the last of other queues that it conflicts with;  note(i)
 *
 * What conflicts with an earlier instruction than those named conflicts with one of them, too, so that orders of the
 * named pairs order all (transitivity). Used by the pass that derives events (passes/order.h) and by the checker that
 * proves them (check/happens.h). O(A log A) for A accesses.
 */
#ifndef ORTH_PROGRAM_TOUCHED_H
#define ORTH_PROGRAM_TOUCHED_H

#include "base/index_set.h"
#include "program/ir/program.h"

/* Addresses [begin, end) of instruction `instr`: of operand `operand` (inputs first); -1: of its communicator. */
typedef struct {
    int32_t instr, operand;
    bool writes;
    int32_t begin, end;     /* numbers of addresses at which something begins or ends */
} orth_access;

typedef struct {
    const orth_program *p;
    orth_access *accesses;  /* of instruction i: from first[i] on */
    int32_t *first;         /* [num_instrs + 1] */
    orth_index_set begins;  /* addresses at which a segment begins */
    int32_t *last;          /* a row for each segment, by its beginning: 1 + instruction, 0: none */
} orth_touched;

/* Who wrote the segment last, its queue, and of each queue who read it since. */
enum { ORTH_TOUCHED_WRITER, ORTH_TOUCHED_WRITER_QUEUE, ORTH_TOUCHED_READERS };
#define ORTH_TOUCHED_ROW(p) (ORTH_TOUCHED_READERS + (p)->num_queues)

/* Nothing is touched yet. The program is placed, and its instructions have queues. Lives in the arena. ORTH_ERR_NOMEM. */
orth_status orth_touched_make(orth_ctx *ctx, orth_arena *arena, const orth_program *p, orth_touched *out);

/* `access`, of the instruction at hand, conflicts with instruction `earlier` of another queue, which is named once or more often. */
typedef orth_status (*orth_conflict_fn)(void *user, const orth_access *access, int32_t earlier);
orth_status orth_touched_visit(const orth_touched *t, int32_t i, orth_conflict_fn fn, void *user);
/* Instruction i has touched what it touches. */
void orth_touched_note(orth_touched *t, int32_t i);

#endif
