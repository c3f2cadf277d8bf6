/* comm_case.h -- every collective with every type against a serial reference, run by each rank.
 *
 * Shared by test_comm.c (thread ranks) and test_mpi.c (processes). Element i of the member at leaf p is a
 * hash of (salt, p, i), so that any rank can compute what any other one sent.
 */
#ifndef ORTH_TESTS_COMM_CASE_H
#define ORTH_TESTS_COMM_CASE_H

#include <inttypes.h>

#include "test.h"

#include "comm/comm.h"
#include "tensor/q8.h"

typedef struct {
    int64_t max_count;
    orth_comm_algo algo;
    orth_comm_order order;
    bool async;                   /* every call is started, then waited for */
    _Atomic int64_t cases;
} sweep;

static const orth_dtype sweep_types[] = {ORTH_F32, ORTH_BF16, ORTH_F64, ORTH_I32, ORTH_I64, ORTH_U8, ORTH_F16, ORTH_Q8};
static const int64_t sweep_counts[] = {0, 1, 2, 3, 7, 17, 64, 65, 1000, 4099, 70001};
#define SWEEP_BLOCKS 1000 /* of int8, at most: each is large */
#define ELEM_BYTES 264    /* room for an element of any type */

/* What one rank works with. */
typedef struct {
    orth_ctx *ctx;
    orth_comm *c;
    sweep *s;
    int n, me;
    orth_dtype dtype;
    orth_reduce op;
    int64_t salt;
    char *send, *recv;            /* with room for the largest case and 64 guard bytes at the end */
    int64_t counts[128], send_counts[128];
} member;

static uint64_t mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static void put_value(char *buf, orth_dtype t, int64_t at, int64_t salt, int p, int64_t i)
{
    const uint64_t h = mix((uint64_t)salt * 0x9e3779b97f4a7c15u + (uint64_t)p * 1000003 + (uint64_t)i * 31);
    const double d = (double)(int64_t)(h >> 12) / (double)(1ll << 51) - 1.0;
    switch (t) {
    case ORTH_F64:
        ((double *)buf)[at] = d;
        break;
    case ORTH_I32:
        ((int32_t *)buf)[at] = (int32_t)h;
        break;
    case ORTH_I64:
        ((int64_t *)buf)[at] = (int64_t)h;
        break;
    case ORTH_U8:
        ((uint8_t *)buf)[at] = (uint8_t)h;
        break;
    case ORTH_F16:
        ((uint16_t *)buf)[at] = (uint16_t)h;
        break;
    case ORTH_Q8:
        ((orth_q8 *)buf)[at].scale = (float)(1 + h % 7) / 64;
        for (uint64_t k = 0; k < ORTH_Q8_NUM; k++)
            ((orth_q8 *)buf)[at].code[k] = (int8_t)((h >> (k % 57)) + k);
        break;
    default:
        orth_store_f32(buf, t, at, (float)d);
    }
}

/* x = x op y, both one element of acc type. */
static void apply(orth_dtype t, orth_reduce op, void *x_, const void *y_)
{
#define APPLY(T, U)                                                                                       \
    do {                                                                                                  \
        T *x = x_;                                                                                        \
        const T y = *(const T *)y_;                                                                       \
        *x = op == ORTH_SUM ? (T)((U)*x + (U)y) : (op == ORTH_MAX_OF ? *x > y : *x < y) ? *x : y;         \
    } while (0)
    if (t == ORTH_F64)
        APPLY(double, double);
    else if (t == ORTH_I32)
        APPLY(int32_t, uint32_t);
    else if (t == ORTH_I64)
        APPLY(int64_t, uint64_t);
    else
        APPLY(float, float);
#undef APPLY
}

/* The numbers of an element in acc type, 8 bytes apart. */
static int64_t widen(orth_dtype t, const char *elem, char out[][8])
{
    const orth_q8 *q = (const void *)elem;
    for (int k = 0; k < (t == ORTH_Q8 ? ORTH_Q8_NUM : 0); k++)
        memcpy(out[k], &(float){(float)q->code[k] * q->scale}, 4);
    if (t == ORTH_BF16)
        memcpy(out[0], &(float){orth_bf16_to_f32(*(const uint16_t *)(const void *)elem)}, 4);
    else if (t != ORTH_Q8)
        memcpy(out[0], elem, 8);
    return orth_dtype_numbers(t);
}

static void narrow(orth_dtype t, char acc[][8], char *elem)
{
    float x[ORTH_Q8_NUM];
    for (int64_t k = 0; k < orth_dtype_numbers(t); k++)
        memcpy(&x[k], acc[k], 4);
    if (t == ORTH_Q8)
        orth_q8_from_f32((orth_q8 *)(void *)elem, x, ORTH_Q8_NUM);
    else if (t == ORTH_BF16)
        memcpy(elem, &(orth_bf16){orth_bf16_from_f32(x[0])}, 2);
    else
        memcpy(elem, acc[0], 8);
}

/* Element i reduced over n members as tensor/parts.h defines: a binary counter of partial sums. */
static void reference(const member *m, int64_t i, char out[ELEM_BYTES])
{
    _Alignas(8) char stack[16][ORTH_Q8_NUM][8], leaf[ELEM_BYTES];
    int level[16], depth = 0;
    int64_t numbers = 0;
    for (int p = 0; p < m->n || depth > 1;) {
        if (depth > 1 && (p == m->n || level[depth - 1] == level[depth - 2])) {
            for (int64_t k = 0; k < numbers; k++)
                apply(m->dtype, m->op, stack[depth - 2][k], stack[depth - 1][k]);
            level[--depth - 1]++;
            continue;
        }
        put_value(leaf, m->dtype, 0, m->salt, p++, i);
        numbers = widen(m->dtype, leaf, stack[depth]);
        level[depth++] = 0;
    }
    if (m->n == 1) /* nothing is rounded */
        put_value(out, m->dtype, 0, m->salt, 0, i);
    else
        narrow(m->dtype, stack[0], out);
}

static void fill_send(member *m, int64_t at, int64_t n, int p, int64_t first)
{
    for (int64_t i = 0; i < n; i++)
        put_value(m->send, m->dtype, at + i, m->salt, p, first + i);
}

static orth_status make_call(member *m, orth_comm_call *call)
{
    call->dtype = m->dtype;
    call->op = m->op;
    call->tag = m->salt;
    call->instr = (int32_t)m->salt;
    const orth_comm_counts before = orth_comm_counted(m->c);
    if (!m->s->async) {
        ORTH_TRY(orth_comm_run(m->ctx, m->c, call));
    } else {
        orth_request t;
        ORTH_TRY(orth_comm_start(m->ctx, m->c, call, &t));
        ORTH_TRY(orth_comm_wait(m->ctx, m->c, t));
    }
    const orth_comm_counts after = orth_comm_counted(m->c);
    const int64_t want = orth_comm_sent_bytes(orth_comm_method_of(m->c), m->n, m->me, call);
    const int64_t sent = after.sent[call->kind] - before.sent[call->kind];
    if (sent != want)
        return ORTH_FAIL(m->ctx, ORTH_ERR_INTERNAL, "%s of %lld %s, member %d of %d: %lld bytes were moved, not %lld",
                         orth_comm_kind_name(call->kind), (long long)call->count, orth_dtype_name(m->dtype), m->me, m->n,
                         (long long)sent, (long long)want);
    if (after.ideal[call->kind] - before.ideal[call->kind] != orth_comm_bytes(m->n, m->me, call))
        return ORTH_FAIL(m->ctx, ORTH_ERR_INTERNAL, "bytes of a ring differ from orth_comm_bytes");
    m->s->cases++;
    return ORTH_OK;
}

static orth_status wrong(member *m, const char *what, int64_t n, int64_t i)
{
    return ORTH_FAIL(m->ctx, ORTH_ERR_INTERNAL, "%s %s op %d n=%d count=%lld: element %lld differs", what,
                     orth_dtype_name(m->dtype), (int)m->op, m->n, (long long)n, (long long)i);
}

/* Both blocks have about the same numbers. */
static bool are_near(const orth_q8 *a, const orth_q8 *b)
{
    bool near = true;
    for (int k = 0; k < ORTH_Q8_NUM; k++) {
        const float d = (float)a->code[k] * a->scale - (float)b->code[k] * b->scale;
        near = near && (d < 0 ? -d : d) <= 1.01f * a->scale;
    }
    return near;
}

/* recv[at + k] is the reduction of element first + k; in free order close to it. */
static orth_status check_reduced(member *m, const char *what, int64_t n, const char *recv, int64_t first)
{
    const size_t e = orth_dtype_bytes(m->dtype);
    const bool exact = m->s->order == ORTH_ORDER_CANONICAL || m->op != ORTH_SUM || m->dtype == ORTH_I32 ||
                       m->dtype == ORTH_I64;
    const int64_t stride = m->n > 9 ? 7 : 1;
    for (int64_t i = m->n > 9 ? m->me % 7 : 0; i < n; i += stride) {
        _Alignas(8) char want[ELEM_BYTES];
        reference(m, first + i, want);
        double diff = memcmp(want, recv + (size_t)i * e, e) != 0;
        if (!exact && m->dtype == ORTH_F64)
            diff = *(double *)(void *)want - ((const double *)(const void *)recv)[i] > 1e-12 ||
                   *(double *)(void *)want - ((const double *)(const void *)recv)[i] < -1e-12;
        else if (!exact && m->dtype == ORTH_Q8)
            diff = !are_near((const void *)want, (const orth_q8 *)(const void *)recv + i);
        else if (!exact) {
            const float d = orth_load_f32(want, m->dtype, 0) - orth_load_f32(recv, m->dtype, i);
            diff = (d < 0 ? -d : d) > (m->dtype == ORTH_BF16 ? 0.1f : 1e-4f);
        }
        if (diff != 0)
            return wrong(m, what, n, i);
    }
    return ORTH_OK;
}

/* recv[at + i] is element first + i of member p. */
static orth_status check_moved(member *m, const char *what, const char *recv, int64_t n, int p, int64_t first)
{
    const size_t e = orth_dtype_bytes(m->dtype);
    _Alignas(8) char want[ELEM_BYTES];
    for (int64_t i = 0; i < n; i++) {
        put_value(want, m->dtype, 0, m->salt, p, first + i);
        if (memcmp(want, recv + (size_t)i * e, e) != 0)
            return wrong(m, what, n, i);
    }
    return ORTH_OK;
}

static orth_status case_all_reduce(member *m, int64_t n, bool in_place)
{
    m->salt++;
    fill_send(m, 0, n, m->me, 0);
    char *recv = in_place ? m->send : m->recv;
    ORTH_TRY(make_call(m, &(orth_comm_call){.kind = ORTH_COMM_ALL_REDUCE, .send = m->send, .recv = recv, .count = n}));
    return check_reduced(m, "all_reduce", n, recv, 0);
}

/* The block sizes of a call: all n, or different ones, some 0. */
static const int64_t *vary(member *m, int64_t n, bool uneven, int64_t *first)
{
    *first = 0;
    for (int p = 0; p < m->n; p++) {
        m->counts[p] = uneven ? (n * (p % 3)) / 2 + (p == 1) : n;
        *first += p < m->me ? m->counts[p] : 0;
    }
    return uneven ? m->counts : NULL;
}

static orth_status case_reduce_scatter(member *m, int64_t n, bool uneven, bool in_place)
{
    int64_t first;
    const int64_t *counts = vary(m, n, uneven, &first);
    const size_t e = orth_dtype_bytes(m->dtype);
    m->salt++;
    int64_t all = 0;
    for (int p = 0; p < m->n; p++)
        all += m->counts[p];
    fill_send(m, 0, all, m->me, 0);
    char *recv = in_place ? m->send + (size_t)first * e : m->recv;
    ORTH_TRY(make_call(m, &(orth_comm_call){.kind = ORTH_COMM_REDUCE_SCATTER, .send = m->send, .recv = recv, .count = n,
                                            .counts = counts}));
    return check_reduced(m, "reduce_scatter", m->counts[m->me], recv, first);
}

static orth_status case_all_gather(member *m, int64_t n, bool uneven, bool in_place)
{
    int64_t first;
    const int64_t *counts = vary(m, n, uneven, &first);
    const size_t e = orth_dtype_bytes(m->dtype);
    m->salt++;
    const int64_t at = in_place ? first : 0;
    fill_send(m, at, m->counts[m->me], m->me, 0);
    char *recv = in_place ? m->send : m->recv;
    ORTH_TRY(make_call(m, &(orth_comm_call){.kind = ORTH_COMM_ALL_GATHER, .send = m->send + (size_t)at * e,
                                            .recv = recv, .count = n, .counts = counts}));
    for (int p = 0; p < m->n; recv += (size_t)m->counts[p] * e, p++)
        ORTH_TRY(check_moved(m, "all_gather", recv, m->counts[p], p, 0));
    return ORTH_OK;
}

static int64_t pair_count(int64_t n, bool uneven, int from, int to)
{
    return uneven ? n * ((from + 2 * to) % 3) / 2 : n;
}

static orth_status case_all_to_all(member *m, int64_t n, bool uneven)
{
    const size_t e = orth_dtype_bytes(m->dtype);
    m->salt++;
    int64_t at = 0;
    for (int p = 0; p < m->n; p++) {
        m->counts[p] = pair_count(n, uneven, p, m->me);
        m->send_counts[p] = pair_count(n, uneven, m->me, p);
        fill_send(m, at, m->send_counts[p], m->me, p * 1000);
        at += m->send_counts[p];
    }
    ORTH_TRY(make_call(m, &(orth_comm_call){.kind = ORTH_COMM_ALL_TO_ALL, .send = m->send, .recv = m->recv, .count = n,
                                            .counts = uneven ? m->counts : NULL,
                                            .send_counts = uneven ? m->send_counts : NULL}));
    const char *recv = m->recv;
    for (int p = 0; p < m->n; recv += (size_t)m->counts[p] * e, p++)
        ORTH_TRY(check_moved(m, "all_to_all", recv, m->counts[p], p, m->me * 1000));
    return ORTH_OK;
}

static orth_status case_broadcast(member *m, int64_t n)
{
    m->salt++;
    const int root = (int)(m->salt % m->n);
    if (m->me == root)
        fill_send(m, 0, n, m->me, 0);
    else
        memset(m->send, 0x5a, (size_t)n * orth_dtype_bytes(m->dtype));
    ORTH_TRY(make_call(m, &(orth_comm_call){.kind = ORTH_COMM_BROADCAST, .recv = m->send, .count = n, .peer = root}));
    return check_moved(m, "broadcast", m->send, n, root, 0);
}

/* A message to the next member and one from the one before; the receive is started first by some. */
static orth_status case_messages(member *m, int64_t n)
{
    if (m->n == 1)
        return ORTH_OK;
    m->salt++;
    const int next = (m->me + 1) % m->n, before = (m->me + m->n - 1) % m->n;
    fill_send(m, 0, n, m->me, 0);
    orth_comm_call out = {.kind = ORTH_COMM_SEND, .dtype = m->dtype, .send = m->send, .count = n, .peer = next,
                          .tag = m->salt};
    orth_comm_call in = {.kind = ORTH_COMM_RECV, .dtype = m->dtype, .recv = m->recv, .count = n, .peer = before,
                         .tag = m->salt};
    const bool first = m->me % 2 == 0;
    orth_request a, b;
    ORTH_TRY(orth_comm_start(m->ctx, m->c, first ? &in : &out, &a));
    ORTH_TRY(orth_comm_start(m->ctx, m->c, first ? &out : &in, &b));
    ORTH_TRY(orth_comm_wait(m->ctx, m->c, b));
    ORTH_TRY(orth_comm_wait(m->ctx, m->c, a));
    m->s->cases++;
    return check_moved(m, "message", m->recv, n, before, 0);
}

static orth_status sweep_type(member *m, int64_t n)
{
    const bool reduces = m->dtype != ORTH_U8 && m->dtype != ORTH_F16;
    for (int op = 0; op < (m->dtype == ORTH_Q8 ? ORTH_SUM + 1 : ORTH_NUM_REDUCES) && reduces; op++) {
        m->op = (orth_reduce)op;
        ORTH_TRY(case_all_reduce(m, n, false));
        ORTH_TRY(case_all_reduce(m, n, true));
        ORTH_TRY(case_reduce_scatter(m, n / m->n + 1, false, op == 1));
        ORTH_TRY(case_reduce_scatter(m, n / m->n + 1, true, op == 0));
    }
    m->op = ORTH_SUM;
    for (int v = 0; v < 2; v++) {
        ORTH_TRY(case_all_gather(m, n / m->n, v, false));
        ORTH_TRY(case_all_gather(m, n / m->n + 1, v, true));
        ORTH_TRY(case_all_to_all(m, n / m->n + 1, v));
    }
    ORTH_TRY(case_broadcast(m, n));
    return case_messages(m, n);
}

/* orth_rank_fn; arg is a sweep. The group lists the ranks backwards: position is not rank. */
static orth_status sweep_rank(orth_ctx *ctx, orth_world *w, void *arg)
{
    sweep *s = arg;
    const int n = orth_world_size(w);
    int ranks[128];
    for (int p = 0; p < n; p++)
        ranks[p] = n - 1 - p;
    orth_comm *c;
    ORTH_TRY(orth_comm_create(ctx, w, &c, "all", n, ranks));
    ORTH_TRY(orth_comm_set(ctx, c, s->algo, s->order));
    const size_t room = ORTH_MAX((size_t)(2 * s->max_count + 8 * n + 64) * 8,
                                 (size_t)(2 * ORTH_MIN(s->max_count, SWEEP_BLOCKS) + 8 * n + 64) * sizeof(orth_q8));
    member m = {.ctx = ctx, .c = c, .s = s, .n = n, .me = orth_comm_pos(c)};
    m.send = orth_mem_alloc(ctx, room);
    m.recv = orth_mem_alloc(ctx, room);
    orth_status status = m.send && m.recv ? ORTH_OK : ORTH_ERR_NOMEM;
    for (int t = 0; t < ORTH_COUNT(sweep_types) && status == ORTH_OK; t++) {
        for (int i = 0; i < ORTH_COUNT(sweep_counts) && status == ORTH_OK; i++) {
            m.dtype = sweep_types[t];
            if (sweep_counts[i] <= (m.dtype == ORTH_Q8 ? ORTH_MIN(s->max_count, SWEEP_BLOCKS) : s->max_count))
                status = sweep_type(&m, sweep_counts[i]);
        }
    }
    if (status == ORTH_OK)
        status = orth_barrier(ctx, c);
    orth_comm_destroy(ctx, c);
    orth_mem_free(ctx, m.send);
    orth_mem_free(ctx, m.recv);
    return status;
}

#endif
