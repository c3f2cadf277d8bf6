/* calls.c -- an instruction as calls of its communicator. */
#include "base/progress.h"
#include "program/ir/comm_call.h"
#include "run/executor_impl.h"

/* Tags: the members of a group make the same collectives in one order, and two ranks the same messages, so the number of a
 * call in that order is what they agree on. A rank that leaves one out is found at the next. */
orth_status executor_number_calls(orth_ctx *ctx, orth_executor *e)
{
    const orth_program *p = e->p;
    int32_t most = 0;
    for (int32_t i = 0; i < p->num_instrs; i++)
        most = ORTH_MAX(most, p->instrs[i].attr->peer);
    enum { COLLECTIVES, SENDS, RECEIVES, NUM };
    int64_t *seen = ORTH_NEW_ARRAY(ctx, int64_t, (int64_t)ORTH_NUM_GROUPS * (most + 1) * NUM);
    if (!seen)
        return ORTH_ERR_NOMEM;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        const int kind = orth_op_sends(n->op) ? SENDS : orth_op_receives(n->op) ? RECEIVES : COLLECTIVES;
        const int64_t peer = kind == COLLECTIVES ? 0 : n->attr->peer;
        const int num = orth_instr_num_calls(n);
        if (num == 0)
            continue;
        int64_t *at = &seen[((int64_t)n->attr->group * (most + 1) + peer) * NUM + kind];
        e->tags[i] = *at + 1;
        *at += num;
    }
    orth_mem_free(ctx, seen);
    return ORTH_OK;
}

/* Where call k begins: coalesced operands begin with the first that is not empty. */
static void *begin_of(const orth_instr *n, const orth_tensor *t, int num, int k)
{
    while (n->coalesced && k + 1 < num && orth_tensor_elems(&t[k]) == 0)
        k++;
    return t[k].data;
}

orth_status executor_call(orth_ctx *ctx, orth_executor *e, int32_t i, orth_request *request)
{
    const orth_instr *n = &e->p->instrs[i];
    const orth_op_call *c = &e->calls[i];
    orth_comm *comm = e->comms[n->attr->group];
    if (!comm)
        return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "instruction %d (%s): no communicator for axis %s", i, orth_op_name(n->op),
                         orth_group_name(n->attr->group));
    for (int k = 0; k < orth_instr_num_calls(n); k++) {
        orth_comm_call call = orth_instr_call(n, i, k, orth_comm_size(comm));
        call.tag = e->tags[i] + k;
        if (ctx->progress)
            atomic_fetch_add_explicit(&ctx->progress->asked, 1, memory_order_relaxed);
        call.send = k < n->num_in ? begin_of(n, c->in, n->num_in, k) : NULL;
        call.recv = k < n->num_out ? begin_of(n, c->out, n->num_out, k) : NULL;
        ORTH_TRY(request ? orth_comm_start(ctx, comm, &call, request) : orth_comm_run(ctx, comm, &call));
    }
    return ORTH_OK;
}
