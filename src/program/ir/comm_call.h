/* comm_call.h -- what a communication instruction asks of its communicator: for the executor that asks, the
 * plan that counts and the check that compares.
 */
#ifndef ORTH_PROGRAM_COMM_CALL_H
#define ORTH_PROGRAM_COMM_CALL_H

#include "comm/comm.h"
#include "program/ir/program.h"

/* What an instruction calls, or the instruction that a node of a graph becomes. */
#define ORTH_NO_CALL ORTH_NUM_COMM_KINDS
orth_comm_kind orth_op_comm_kind(orth_op op, bool sequence_parallel);

/* Calls that the instruction makes, one after the other: one for each operand, or one for all if they are coalesced.
 * 0 for computing ops. */
int orth_instr_num_calls(const orth_instr *n);
/* Calls of a whole program. */
int64_t orth_program_num_calls(const orth_program *p);

/* Call k of instruction `index` in a group of `group_size` ranks, without addresses. */
orth_comm_call orth_instr_call(const orth_instr *n, int32_t index, int k, int group_size);

#endif
