/* comm_call.c -- see comm_call.h. */
#include "program/ir/comm_call.h"

int orth_instr_num_calls(const orth_instr *n)
{
    int operands = ORTH_MAX(n->num_in, n->num_out);
    return n->op < ORTH_FIRST_COMM_OP || n->op == ORTH_OP_wait ? 0 : n->joined ? ORTH_MIN(operands, 1) : operands;
}

int64_t orth_program_num_events(const orth_program *p)
{
    int64_t num = 0;
    for (int32_t i = 0; i < p->num_instrs; i++)
        num += p->instrs[i].op == ORTH_OP_wait ? 1 : orth_instr_num_calls(&p->instrs[i]);
    return num;
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
    const orth_operand *blocks = by_output ? n->out : n->in;
    int64_t count = 0;
    for (int j = k; j < (n->joined ? (by_output ? n->num_out : n->num_in) : k + 1); j++) {
        orth_tensor t = orth_operand_tensor(&blocks[j]);
        count += orth_tensor_elems(&t);
    }
    const int64_t row = n->joined ? n->num_in : k; /* the last one holds the sums */
    return (orth_comm_call){
        .kind = kinds[n->op - ORTH_FIRST_COMM_OP],
        .dtype = blocks[k].dtype,
        .op = n->attr.maximum ? ORTH_MAX_OF : ORTH_SUM,
        .count = count / (n->op == ORTH_OP_all_to_all ? group_size : 1),
        .counts = n->counts ? n->counts + row * group_size : NULL,
        .peer = n->attr.peer,
        .instr = index,
    };
}
