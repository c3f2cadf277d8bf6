/* group.c -- see group.h: making groups, meeting, the frame of a collective. */
#include "comm/thread/group.h"

#include <string.h>

#define RECHECK_NS 50000000

/* ---- making ---- */

static void group_free(orth_ctx *heap, comm_group *g)
{
    for (int i = 0; g->slots && i < g->n; i++)
        pthread_mutex_destroy(&g->slots[i].inbox_mutex);
    orth_mem_free(heap, g->slots);
    orth_mem_free(heap, g->ranks);
    orth_mem_free(heap, g);
}

static comm_group *group_new(orth_ctx *heap, const orth_comm *c)
{
    comm_group *g = ORTH_NEW(heap, comm_group);
    if (!g)
        return NULL;
    g->n = c->n;
    memcpy(g->name, c->name, sizeof g->name);
    g->ranks = ORTH_NEW_ARRAY(heap, int, c->n);
    g->slots = ORTH_NEW_ARRAY(heap, comm_slot, c->n);
    for (int i = 0; g->slots && i < c->n; i++)
        pthread_mutex_init(&g->slots[i].inbox_mutex, NULL);
    if (!g->ranks || !g->slots) {
        group_free(heap, g);
        return NULL;
    }
    memcpy(g->ranks, c->ranks, (size_t)c->n * sizeof *g->ranks);
    return g;
}

/* The group of this name and these members that not all have joined yet, or a new one. Creation ends with a
 * barrier, so there is at most one such group. */
static comm_group *find_or_make(comm_shared *s, const orth_comm *c)
{
    comm_group **at = &s->groups;
    for (; *at; at = &(*at)->next) {
        comm_group *g = *at;
        if (g->n == c->n && g->joined < g->n && strcmp(g->name, c->name) == 0 &&
            memcmp(g->ranks, c->ranks, (size_t)c->n * sizeof *g->ranks) == 0)
            return g;
    }
    return *at = group_new(&s->heap, c);
}

static orth_status group_create(orth_ctx *ctx, orth_comm *c)
{
    comm_shared *s = c->world->s;
    comm_member *m = ORTH_NEW(ctx, comm_member);
    if (!m)
        return ORTH_ERR_NOMEM;
    pthread_mutex_lock(&s->mutex);
    comm_group *g = find_or_make(s, c);
    if (g) {
        g->refs++;
        g->joined++;
    }
    orth_ctx_clear_error(&s->heap);
    pthread_mutex_unlock(&s->mutex);
    if (!g) {
        orth_mem_free(ctx, m);
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "no memory for group '%s' of %d ranks", c->name, c->n);
    }
    m->group = g;
    m->slot = &g->slots[c->pos];
    m->slot->comm = c;
    c->state = m;
    c->group = g;
    return ORTH_OK;
}

static void group_destroy(orth_ctx *ctx, orth_comm *c)
{
    comm_shared *s = c->world->s;
    comm_group *g = group_of(c);
    pthread_mutex_lock(&s->mutex);
    if (--g->refs == 0) {
        comm_group **at = &s->groups;
        while (*at != g)
            at = &(*at)->next;
        *at = g->next;
        group_free(&s->heap, g);
    }
    pthread_mutex_unlock(&s->mutex);
    orth_mem_free(ctx, c->state);
    c->state = NULL;
}

/* ---- meeting ---- */

bool comm_meet(orth_comm *c)
{
    comm_shared *s = c->world->s;
    comm_group *g = group_of(c);
    const uint32_t now = comm_word_get(&g->meeting); /* cannot change before this member has arrived */
    if (atomic_fetch_add(&g->arrived, 1) == g->n - 1) {
        atomic_store_explicit(&g->arrived, 0, memory_order_relaxed);
        for (int i = 0; i < g->n; i++)
            atomic_store_explicit(&g->slots[i].next_chunk, 0, memory_order_relaxed);
        comm_word_bump(&g->meeting);
        return !comm_aborted(s);
    }
    while (comm_word_get(&g->meeting) == now) {
        if (comm_aborted(s))
            return false;
        comm_word_wait(&g->meeting, now, s->spins, RECHECK_NS);
    }
    return !comm_aborted(s);
}

bool comm_reader_enter(orth_comm *c)
{
    atomic_fetch_add(&group_of(c)->readers, 1);
    if (!comm_aborted(c->world->s))
        return true;
    comm_reader_leave(c);
    return false;
}

void comm_reader_leave(orth_comm *c)
{
    atomic_fetch_sub(&group_of(c)->readers, 1);
}

static void group_quiesce(orth_comm *c)
{
    comm_word nobody = {0};
    while (c->state && atomic_load(&group_of(c)->readers) > 0)
        comm_word_wait(&nobody, 0, 64, 100000);
}

/* ---- collectives ---- */

static bool post_and_check(orth_comm *c, const orth_comm_call *call, uint32_t seq)
{
    comm_group *g = group_of(c);
    comm_slot *mine = &g->slots[c->pos];
    comm_header *h = &mine->header[seq & 1];
    comm_header_fill(h, c, call, seq);
    atomic_store_explicit(&mine->kind, (int32_t)call->kind, memory_order_relaxed);
    atomic_store_explicit(&mine->instr, call->instr, memory_order_relaxed);
    atomic_store_explicit(&mine->step, h->step, memory_order_relaxed);
    atomic_store_explicit(&mine->posted, seq, memory_order_release);
    if (!comm_meet(c))
        return false;
    const comm_header *headers[ORTH_MAX_RANKS];
    for (int i = 0; i < g->n; i++)
        headers[i] = &g->slots[i].header[seq & 1];
    return comm_headers_check(c, headers);
}

static bool group_collective(orth_comm *c, const orth_comm_call *call, uint32_t seq)
{
    if (!post_and_check(c, call, seq))
        return false;
    if (call->kind == ORTH_COMM_BARRIER)
        return true;
    const orth_comm_algo algo = comm_pick_algo(c, call);
    if (algo != ORTH_ALGO_DIRECT)
        return comm_algo_run(c, call, algo);
    return comm_direct(c, call, seq & 1) && comm_meet(c);
}

/* The receiver copies. Members name the blocks they offer; a receiver looks for the one meant for it. */
static bool group_exchange(orth_comm *c, orth_comm_kind kind, const comm_block *blocks, int num)
{
    comm_group *g = group_of(c);
    comm_slot *mine = &g->slots[c->pos];
    mine->blocks = blocks;
    mine->num_blocks = num;
    if (!comm_meet(c) || !comm_reader_enter(c))
        return false;
    for (int i = 0; i < num; i++) {
        const comm_slot *theirs = &g->slots[blocks[i].peer];
        if (!blocks[i].incoming || blocks[i].bytes == 0)
            continue;
        for (int k = 0; k < theirs->num_blocks; k++) {
            if (theirs->blocks[k].incoming || theirs->blocks[k].peer != c->pos)
                continue;
            memcpy(blocks[i].recv, theirs->blocks[k].send, blocks[i].bytes);
            comm_count_sent(theirs->comm, kind, blocks[i].bytes);
        }
    }
    comm_reader_leave(c);
    return comm_meet(c);
}

const comm_ops comm_ops_thread = {
    .create = group_create,
    .destroy = group_destroy,
    .collective = group_collective,
    .post = comm_message_post,
    .quiesce = group_quiesce,
    .exchange = group_exchange,
};
