/* queue.c -- started calls, and the threads that make them beside their caller.
 *
 *   start --push--> queue --(its thread, in order)--> ops->collective --> done, events bumped --> wait
 *
 * Sends need no thread: the receiver takes the bytes. Threads are made at the first start, and end
 * with the communicator. After an abort the queue thread completes what is left without making it.
 */
#include "comm/comm_impl.h"

#define RECHECK_NS 50000000       /* an abort is noticed this late by a sleeper at worst */

void comm_request_complete(comm_request *r)
{
    orth_comm *c = r->owner;
    comm_wait_over(c, r->request);
    atomic_store_explicit(&r->done, true, memory_order_release);
    comm_word_bump(&c->events); /* the owner may be gone after the next wait: nothing may follow */
}

static comm_request *pop(orth_comm *c, struct comm_queue *q)
{
    pthread_mutex_lock(&c->mutex);
    comm_request *r = q->head;
    if (r) {
        q->head = r->next;
        if (!q->head)
            q->tail = NULL;
    }
    pthread_mutex_unlock(&c->mutex);
    return r;
}

static void *collectives_main(void *p)
{
    orth_comm *c = p;
    comm_shared *s = c->world->s;
    for (;;) {
        const uint32_t seen = comm_word_get(&c->collectives.posted);
        comm_request *r = pop(c, &c->collectives);
        if (r) {
            if (!comm_aborted(s))
                c->ops->collective(c, &r->call, r->seq);
            atomic_fetch_sub(&c->num_collectives, 1);
            comm_request_complete(r);
        } else if (atomic_load(&c->quit)) {
            return NULL;
        } else {
            comm_word_wait(&c->collectives.posted, seen, s->spins / 8, 1000 * (int64_t)RECHECK_NS);
        }
    }
}

orth_status comm_queue_push(orth_ctx *ctx, orth_comm *c, comm_request *r)
{
    struct comm_queue *q = &c->collectives;
    if (!q->running) {
        if (pthread_create(&q->thread, NULL, collectives_main, c) != 0)
            return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "the system refused a communication thread for '%s'",
                             c->name);
        q->running = true;
    }
    atomic_fetch_add(&c->num_collectives, 1);
    pthread_mutex_lock(&c->mutex);
    if (q->tail)
        q->tail->next = r;
    else
        q->head = r;
    q->tail = r;
    pthread_mutex_unlock(&c->mutex);
    comm_word_bump(&q->posted);
    return ORTH_OK;
}

void comm_queue_stop(orth_comm *c)
{
    atomic_store(&c->quit, true);
    struct comm_queue *both[] = {&c->collectives, &c->receives};
    for (int i = 0; i < ORTH_COUNT(both); i++) {
        if (!both[i]->running)
            continue;
        comm_word_bump(&both[i]->posted);
        pthread_join(both[i]->thread, NULL);
        both[i]->running = false;
    }
}

bool comm_request_wait(orth_comm *c, comm_request *r)
{
    comm_shared *s = c->world->s;
    const bool by_thread = r->call.kind != ORTH_COMM_SEND; /* somebody here will complete it, come what may */
    for (;;) {
        const uint32_t seen = comm_word_get(&c->events);
        if (atomic_load_explicit(&r->done, memory_order_acquire))
            break;
        if (!by_thread && comm_aborted(s))
            break;
        comm_word_wait(&c->events, seen, s->spins, RECHECK_NS);
    }
    if (!comm_aborted(s))
        return true;
    c->ops->quiesce(c);
    return false;
}
