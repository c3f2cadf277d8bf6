/* order.h -- the pass that gives instructions their queues and derives the events that order them: calls of communicators and
 * copies between spaces that go on beside computing (orth_instr.until) have queues of their own.
 *
 *   list      0 linear_dw   1 all_reduce   2 linear   3 all_reduce   4 adamw
 *   compute   0             .              2          .              4 waits for the second of dp
 *   dp                      1 waits for 0             3
 *
 * Queues of a rank run side by side; the instructions of a queue run one after the other, in the order of the list. An
 * instruction begins when the earlier instructions of other queues that it waits for are complete. Waits are derived from
 * what instructions touch, in the placed arena and of communicators (ir/touched.h): whatever conflicts is ordered as in the
 * list. A wait that follows from others is left out, so each that is left is the only path between two instructions that
 * conflict: without it the program is refused (check/happens.h).
 */
#ifndef ORTH_PROGRAM_ORDER_H
#define ORTH_PROGRAM_ORDER_H

#include "program/ir/program.h"

/* After orth_place. May be called again when the list has changed. ORTH_ERR_NOMEM; ORTH_ERR_INTERNAL for more than
 * ORTH_MAX_QUEUES. */
orth_status orth_order(orth_ctx *ctx, orth_program *p);

#endif
