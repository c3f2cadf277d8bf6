/* comm_call.c -- see comm_call.h. */
#include "program/comm_call.h"

int orth_instr_num_calls(const orth_instr *n)
{
    return n->op < ORTH_FIRST_COMM_OP || n->op == ORTH_OP_wait ? 0 : ORTH_MAX(n->num_in, n->num_out);
}

orth_comm_call orth_instr_call(const orth_instr *n, int32_t index, int k, int group_size)
{
    static const orth_comm_kind kinds[] = {
        [ORTH_OP_all_reduce - ORTH_FIRST_COMM_OP] = ORTH_COMM_ALL_REDUCE,
        [ORTH_OP_reduce_scatter - ORTH_FIRST_COMM_OP] = ORTH_COMM_REDUCE_SCATTER,
        [ORTH_OP_all_gather - ORTH_FIRST_COMM_OP] = ORTH_COMM_ALL_GATHER,
        [ORTH_OP_all_to_all - ORTH_FIRST_COMM_OP] = ORTH_COMM_ALL_TO_ALL,
        [ORTH_OP_send - ORTH_FIRST_COMM_OP] = ORTH_COMM_SEND,
        [ORTH_OP_recv - ORTH_FIRST_COMM_OP] = ORTH_COMM_RECV,
    };
    const bool by_output = n->op == ORTH_OP_reduce_scatter || n->op == ORTH_OP_recv;
    const orth_tensor block = orth_operand_tensor(by_output ? &n->out[k] : &n->in[k]);
    return (orth_comm_call){
        .kind = kinds[n->op - ORTH_FIRST_COMM_OP],
        .dtype = block.dtype,
        .op = n->attr.maximum ? ORTH_MAX_OF : ORTH_SUM,
        .count = orth_tensor_elems(&block) / (n->op == ORTH_OP_all_to_all ? group_size : 1),
        .counts = n->counts ? n->counts + (int64_t)k * group_size : NULL,
        .peer = n->attr.peer,
        .instr = index,
    };
}
