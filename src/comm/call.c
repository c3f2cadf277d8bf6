/* call.c -- a call from the program to its completion: checked, counted, numbered, made.
 *
 * A blocking collective runs on the caller's thread unless started ones are still under way, so that
 * there is one order of collectives per communicator.
 */
#include <string.h>

#include "comm/comm_impl.h"

/* ---- checks of the arguments ---- */

static bool is_message(orth_comm_kind k)
{
    return k == ORTH_COMM_SEND || k == ORTH_COMM_RECV;
}

static bool reduces(orth_comm_kind k)
{
    return k == ORTH_COMM_ALL_REDUCE || k == ORTH_COMM_REDUCE_SCATTER;
}

static bool has_counts(orth_comm_kind k)
{
    return k == ORTH_COMM_REDUCE_SCATTER || k == ORTH_COMM_ALL_GATHER || k == ORTH_COMM_ALL_TO_ALL;
}

static int64_t total(const int64_t *counts, int64_t count, int n)
{
    return comm_offset_of(counts, count, n);
}

static orth_status check_buffers(orth_ctx *ctx, const orth_comm *c, const orth_comm_call *call)
{
    const orth_comm_kind k = call->kind;
    const int64_t mine = comm_count_of(call->counts, call->count, c->pos);
    const int64_t all = has_counts(k) ? total(call->counts, call->count, c->n) : call->count;
    int64_t in = call->count;
    int64_t out = in;
    if (k == ORTH_COMM_REDUCE_SCATTER)
        in = all, out = mine;
    else if (k == ORTH_COMM_ALL_GATHER)
        in = mine, out = all;
    else if (k == ORTH_COMM_ALL_TO_ALL)
        in = total(call->send_counts, call->count, c->n), out = all;
    const bool needs_send = k != ORTH_COMM_BROADCAST && k != ORTH_COMM_RECV && k != ORTH_COMM_BARRIER;
    const bool needs_recv = k != ORTH_COMM_SEND && k != ORTH_COMM_BARRIER;
    if ((needs_send && in > 0 && !call->send) || (needs_recv && out > 0 && !call->recv))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s on '%s': %s buffer is NULL", orth_comm_kind_name(k), c->name,
                         needs_send && in > 0 && !call->send ? "send" : "receive");
    return ORTH_OK;
}

static orth_status check_call(orth_ctx *ctx, const orth_comm *c, const orth_comm_call *call)
{
    const char *kind = orth_comm_kind_name(call->kind);
    if ((unsigned)call->kind >= ORTH_NUM_COMM_KINDS || (unsigned)call->dtype >= ORTH_NUM_DTYPES)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "kind %d or type %d is unknown", (int)call->kind,
                         (int)call->dtype);
    if (reduces(call->kind) && !comm_can_reduce(call->dtype, call->op))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s on '%s': %s cannot be reduced", kind, c->name,
                         orth_dtype_name(call->dtype));
    bool negative = call->count < 0;
    for (int i = 0; i < c->n && has_counts(call->kind); i++)
        negative = negative || comm_count_of(call->counts, call->count, i) < 0 ||
                   comm_count_of(call->send_counts, call->count, i) < 0;
    if (negative)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s on '%s': a count is negative", kind, c->name);
    const bool rooted = is_message(call->kind) || call->kind == ORTH_COMM_BROADCAST;
    const bool self = is_message(call->kind) && call->peer == c->pos;
    if (rooted && (call->peer < 0 || call->peer >= c->n || self))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s on '%s': peer %d of %d members", kind, c->name, call->peer,
                         c->n);
    return c->world->s->options.backend == ORTH_BACKEND_NULL ? ORTH_OK : check_buffers(ctx, c, call);
}

/* ---- making it ---- */

/* A group of one: what remains is a copy. */
static void make_alone(const orth_comm_call *call)
{
    const bool moves = call->kind != ORTH_COMM_BARRIER && call->kind != ORTH_COMM_BROADCAST;
    if (!moves || !call->send || !call->recv || call->send == call->recv)
        return;
    const int64_t count = comm_count_of(has_counts(call->kind) ? call->counts : NULL, call->count, 0);
    memcpy(call->recv, call->send, (size_t)count * orth_dtype_bytes(call->dtype));
}

static void note_call(orth_comm *c, const orth_comm_call *call)
{
    c->calls[call->kind]++;
    c->ideal[call->kind] += orth_comm_bytes(c->n, c->pos, call);
    comm_rank *r = c->world->s->ranks ? &c->world->s->ranks[c->world->rank] : NULL;
    if (!r)
        return;
    const int64_t epoch = atomic_load_explicit(&r->progress.epoch, memory_order_relaxed);
    const bool same = epoch == atomic_load_explicit(&r->made_epoch, memory_order_relaxed);
    atomic_store_explicit(&r->made, same ? atomic_load_explicit(&r->made, memory_order_relaxed) + 1 : 1, memory_order_relaxed);
    atomic_store_explicit(&r->made_epoch, epoch, memory_order_relaxed);
    atomic_store_explicit(&r->last_kind, (int32_t)call->kind, memory_order_relaxed);
    atomic_store_explicit(&r->last_instr, call->instr, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->progress.ticks, 1, memory_order_relaxed);
    atomic_fetch_add_explicit(&r->calls, 1, memory_order_release);
}

static orth_status start(orth_ctx *ctx, orth_comm *c, const orth_comm_call *call, orth_request *out)
{
    *out = 0;
    comm_request *r = &c->requests[(c->last_request + 1) % ORTH_COMM_PENDING];
    if (r->request && !atomic_load_explicit(&r->done, memory_order_acquire))
        ORTH_TRY(orth_comm_wait(ctx, c, r->request));
    r->call = *call;
    r->owner = c;
    r->next = NULL;
    r->request = ++c->last_request;
    atomic_store_explicit(&r->done, false, memory_order_relaxed);
    orth_status status = ORTH_OK;
    if (is_message(call->kind)) {
        r->unusual = comm_call_unusual(c, call);
        if (!c->ops->post(c, r))
            status = comm_fail(ctx, c->world);
    } else {
        r->seq = ++c->seq;
        status = comm_queue_push(ctx, c, r);
    }
    if (status == ORTH_OK)
        *out = r->request;
    else
        r->request = 0; /* nobody will complete it: nobody may wait for it */
    return status;
}

static orth_status run(orth_ctx *ctx, orth_comm *c, const orth_comm_call *call)
{
    if (is_message(call->kind) || atomic_load(&c->num_collectives) > 0) {
        orth_request t;
        ORTH_TRY(start(ctx, c, call, &t));
        return orth_comm_wait(ctx, c, t);
    }
    comm_wait_begin(c, call, 0);
    const bool ok = c->ops->collective(c, call, ++c->seq);
    if (!ok)
        c->ops->quiesce(c);
    comm_wait_end(c);
    return ok ? ORTH_OK : comm_fail(ctx, c->world);
}

/* Makes the call, or starts it if `out` is there. */
static orth_status make(orth_ctx *ctx, orth_comm *c, const orth_comm_call *call, orth_request *out)
{
    ORTH_TRY(check_call(ctx, c, call));
    if (comm_aborted(c->world->s))
        return comm_fail(ctx, c->world);
    note_call(c, call);
    if (c->n == 1) {
        make_alone(call);
        return ORTH_OK;
    }
    return out ? start(ctx, c, call, out) : run(ctx, c, call);
}

/* ---- injected faults ---- */

static orth_status stop_here(orth_ctx *ctx, orth_world *w)
{
    comm_word never = {0};
    while (!comm_aborted(w->s))
        comm_word_wait(&never, 0, 0, 1000000);
    return comm_fail(ctx, w);
}

static orth_status make_with_fault(orth_ctx *ctx, orth_comm *c, const orth_comm_call *call, orth_request *out)
{
    orth_world *w = c->world;
    const orth_comm_fault *f = &w->s->options.fault;
    if (f->kind == ORTH_COMM_FAULT_NONE || f->rank != w->rank)
        return make(ctx, c, call, out);
    if (w->holding) {
        w->holding = false;
        ORTH_TRY(make(ctx, c, call, out));
        return make(ctx, w->held_comm, &w->held, NULL);
    }
    if (f->from_step > 0 && w->s->ranks && atomic_load(&w->s->ranks[w->rank].step) < f->from_step)
        return make(ctx, c, call, out);
    if (++w->calls != f->at)
        return make(ctx, c, call, out);
    orth_comm_call wrong = *call;
    switch (f->kind) {
    case ORTH_COMM_FAULT_STOP:
        return stop_here(ctx, w);
    case ORTH_COMM_FAULT_SWAP:
        if (call->instr < 0 || is_message(call->kind)) { /* buffers that may be gone by then; what is late, not wrong */
            w->calls--;
            return make(ctx, c, call, out);
        }
        w->holding = true;
        w->held = *call;
        w->held_comm = c;
        return ORTH_OK;
    case ORTH_COMM_FAULT_COUNT:
        wrong.count++;
        return make(ctx, c, &wrong, out);
    case ORTH_COMM_FAULT_LEAVE:
        return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "injected failure at call %lld", (long long)w->calls);
    default:
        return ORTH_OK;
    }
}

orth_status orth_comm_run(orth_ctx *ctx, orth_comm *c, const orth_comm_call *call)
{
    return make_with_fault(ctx, c, call, NULL);
}

orth_status orth_comm_start(orth_ctx *ctx, orth_comm *c, const orth_comm_call *call, orth_request *out)
{
    *out = 0;
    return make_with_fault(ctx, c, call, out);
}

static comm_request *request_of(orth_comm *c, orth_request t)
{
    comm_request *r = &c->requests[t % ORTH_COMM_PENDING];
    return r->request == t ? r : NULL; /* else its place was taken over, after it was done */
}

bool orth_comm_is_complete(orth_comm *c, orth_request t)
{
    const comm_request *r = t ? request_of(c, t) : NULL;
    return !r || atomic_load_explicit(&r->done, memory_order_acquire) || comm_aborted(c->world->s);
}

orth_status orth_comm_wait(orth_ctx *ctx, orth_comm *c, orth_request t)
{
    comm_request *r = t ? request_of(c, t) : NULL;
    if (!r || (atomic_load_explicit(&r->done, memory_order_acquire) && !comm_aborted(c->world->s)))
        return ORTH_OK;
    comm_wait_begin(c, &r->call, t);
    const bool ok = comm_request_wait(c, r);
    comm_wait_end(c);
    return ok ? ORTH_OK : comm_fail(ctx, c->world);
}

/* ---- blocking calls in words ---- */

orth_status orth_all_reduce(orth_ctx *ctx, orth_comm *c, void *recv, const void *send, int64_t count,
                            orth_dtype dtype, orth_reduce op)
{
    const orth_comm_call call = {.kind = ORTH_COMM_ALL_REDUCE, .dtype = dtype, .op = op, .send = send,
                                 .recv = recv, .count = count, .instr = -1};
    return orth_comm_run(ctx, c, &call);
}

orth_status orth_reduce_scatter(orth_ctx *ctx, orth_comm *c, void *recv, const void *send, int64_t count,
                                const int64_t *counts, orth_dtype dtype, orth_reduce op)
{
    const orth_comm_call call = {.kind = ORTH_COMM_REDUCE_SCATTER, .dtype = dtype, .op = op, .send = send,
                                 .recv = recv, .count = count, .counts = counts, .instr = -1};
    return orth_comm_run(ctx, c, &call);
}

orth_status orth_all_gather(orth_ctx *ctx, orth_comm *c, void *recv, const void *send, int64_t count,
                            const int64_t *counts, orth_dtype dtype)
{
    const orth_comm_call call = {.kind = ORTH_COMM_ALL_GATHER, .dtype = dtype, .send = send, .recv = recv,
                                 .count = count, .counts = counts, .instr = -1};
    return orth_comm_run(ctx, c, &call);
}

orth_status orth_broadcast(orth_ctx *ctx, orth_comm *c, void *buf, int64_t count, orth_dtype dtype, int root)
{
    const orth_comm_call call = {.kind = ORTH_COMM_BROADCAST, .dtype = dtype, .recv = buf, .count = count,
                                 .peer = root, .instr = -1};
    return orth_comm_run(ctx, c, &call);
}

orth_status orth_all_to_all(orth_ctx *ctx, orth_comm *c, void *recv, const void *send, int64_t count,
                            const int64_t *counts, const int64_t *send_counts, orth_dtype dtype)
{
    const orth_comm_call call = {.kind = ORTH_COMM_ALL_TO_ALL, .dtype = dtype, .send = send, .recv = recv,
                                 .count = count, .counts = counts, .send_counts = send_counts, .instr = -1};
    return orth_comm_run(ctx, c, &call);
}

orth_status orth_barrier(orth_ctx *ctx, orth_comm *c)
{
    return orth_comm_run(ctx, c, &(orth_comm_call){.kind = ORTH_COMM_BARRIER, .instr = -1});
}

orth_status orth_send(orth_ctx *ctx, orth_comm *c, const void *send, int64_t count, orth_dtype dtype, int to)
{
    const orth_comm_call call = {.kind = ORTH_COMM_SEND, .dtype = dtype, .send = send, .count = count,
                                 .peer = to, .instr = -1};
    return orth_comm_run(ctx, c, &call);
}

orth_status orth_recv(orth_ctx *ctx, orth_comm *c, void *recv, int64_t count, orth_dtype dtype, int from)
{
    const orth_comm_call call = {.kind = ORTH_COMM_RECV, .dtype = dtype, .recv = recv, .count = count,
                                 .peer = from, .instr = -1};
    return orth_comm_run(ctx, c, &call);
}
