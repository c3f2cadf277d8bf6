/* comm_call.c -- see comm_call.h. */
#include "program/ir/comm_call.h"

/* How many elements a call has: those of its input, of its output, of a block of its input for each rank. */
typedef enum { INPUT = 0, OUTPUT, BLOCK } call_count;

static const struct {
    orth_comm_kind kind, whole;
    call_count count;
} calls[ORTH_NUM_OPS] = {
#define OP(name, ...) [ORTH_OP_##name] = {ORTH_NO_CALL, ORTH_NO_CALL, INPUT},
#define COMM(name, in, out, vjp, lower, waits, form, kind, count) [ORTH_OP_##name] = {ORTH_##kind, ORTH_##kind, count},
#define GRAPH(name, in, out, vjp, lower, waits, role, kind, whole) [ORTH_OP_##name] = {ORTH_##kind, ORTH_##whole, INPUT},
#include "kernels/ops.def"
#undef GRAPH
#undef COMM
#undef OP
};

orth_comm_kind orth_op_comm_kind(orth_op op, bool sequence_parallel)
{
    return sequence_parallel ? calls[op].kind : calls[op].whole;
}

int orth_instr_num_calls(const orth_instr *n)
{
    int operands = ORTH_MAX(n->num_in, n->num_out);
    return !orth_op_is_comm(n->op) ? 0 : n->coalesced ? ORTH_MIN(operands, 1) : operands;
}

int64_t orth_program_num_calls(const orth_program *p)
{
    int64_t num = 0;
    for (int32_t i = 0; i < p->num_instrs; i++)
        num += orth_instr_num_calls(&p->instrs[i]);
    return num;
}

orth_comm_call orth_instr_call(const orth_instr *n, int32_t index, int k, int group_size)
{
    const bool by_output = calls[n->op].count == OUTPUT;
    const orth_operand *blocks = by_output ? n->out : n->in;
    int64_t count = 0;
    for (int j = k; j < (n->coalesced ? (by_output ? n->num_out : n->num_in) : k + 1); j++)
        count += orth_operand_elems(&blocks[j]);
    const int64_t row = n->coalesced ? n->num_in : k; /* the last one holds the sums */
    return (orth_comm_call){
        .kind = calls[n->op].kind,
        .dtype = blocks[k].dtype,
        .op = n->attr->maximum ? ORTH_MAX_OF : ORTH_SUM,
        .count = count / (calls[n->op].count == BLOCK ? group_size : 1),
        .counts = n->counts ? n->counts + row * group_size : NULL,
        .peer = n->attr->peer,
        .instr = index,
    };
}
