/* null.c -- a back end that only counts calls: they are checked and counted in call.c, and nothing moves. */
#include "comm/comm_impl.h"

static orth_status null_create(orth_ctx *ctx, orth_comm *c)
{
    (void)ctx, (void)c;
    return ORTH_OK;
}

static void null_destroy(orth_ctx *ctx, orth_comm *c)
{
    (void)ctx, (void)c;
}

static bool null_collective(orth_comm *c, const orth_comm_call *call, uint32_t seq)
{
    (void)c, (void)call, (void)seq;
    return true;
}

static bool null_post(orth_comm *c, comm_request *r)
{
    (void)c;
    comm_request_complete(r);
    return true;
}

static void null_quiesce(orth_comm *c)
{
    (void)c;
}

const comm_ops comm_ops_null = {
    .create = null_create,
    .destroy = null_destroy,
    .collective = null_collective,
    .post = null_post,
    .quiesce = null_quiesce,
};
