/* happens.h -- proves that the events of a program order all that conflicts.
 *
 * An instruction happens before another if a path of queue order and waits leads from the one to the other. Any two
 * instructions that touch the same bytes of the arena, one of them writing, and any two calls on one communicator, must
 * happen one before the other, as in the list. Then every order in which the queues may run gives what the list gives.
 *
 * Vector clocks: Fidge, "Timestamps in message-passing systems that preserve the partial ordering", 1988; Mattern, "Virtual
 * time and global states of distributed systems", 1989. O(A log A + N Q) for A accesses of N instructions in Q queues.
 */
#ifndef ORTH_PROGRAM_HAPPENS_H
#define ORTH_PROGRAM_HAPPENS_H

#include "program/ir/program.h"

/* Also that each call is in a queue of its own communicator, and that instructions wait only for what is before them in
 * the list. A program without queues (orth_order has not seen it) passes. ORTH_ERR_INTERNAL, which names both instructions
 * and the buffer; ORTH_ERR_NOMEM. */
orth_status orth_check_happens(orth_ctx *ctx, const orth_program *p);

#endif
