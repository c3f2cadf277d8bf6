/* message.c -- send and recv between thread ranks: the receiver copies from the sender's buffer.
 *
 *   send: append to the receiver's inbox -----------------.
 *   recv: append to the wanted list, matched by ----------+--> copy, both complete
 *         the receiver's thread (started) or its caller (waiting)
 *
 * Messages of one sender are matched in order; nothing else is ordered, so receives never wait for each
 * other. Matching is done under c->mutex, by whoever of the receiver's threads looks first.
 */
#include "comm/thread/group.h"

#define RECHECK_NS 50000000

/* Takes the oldest message of `peer` out of the inbox; NULL if there is none. */
static comm_request *take(comm_slot *slot, int peer)
{
    pthread_mutex_lock(&slot->inbox_mutex);
    comm_request *before = NULL, *r = slot->inbox_head;
    for (; r && r->owner->pos != peer; r = r->next)
        before = r;
    if (r) {
        if (before)
            before->next = r->next;
        else
            slot->inbox_head = r->next;
        if (slot->inbox_tail == r)
            slot->inbox_tail = before;
    }
    pthread_mutex_unlock(&slot->inbox_mutex);
    return r;
}

/* Completes every wanted receive whose message is there. False: aborted. */
static bool match(orth_comm *c)
{
    comm_member *m = c->state;
    comm_request *before = NULL;
    bool ok = true;
    pthread_mutex_lock(&c->mutex);
    for (comm_request *r = m->wanted_head; r && ok;) {
        comm_request *next = r->next;
        bool behind = false; /* an older receive from the same peer comes first */
        for (comm_request *o = m->wanted_head; o != r; o = o->next)
            behind = behind || o->call.peer == r->call.peer;
        if (!comm_reader_enter(c)) {
            ok = false;
            break;
        }
        comm_request *sent = behind ? NULL : take(m->slot, r->call.peer);
        if (!sent) {
            comm_reader_leave(c);
            before = r;
            r = next;
            continue;
        }
        ok = comm_message_check(c, sent, r);
        if (ok) {
            const size_t bytes = (size_t)r->call.count * orth_dtype_bytes(r->call.dtype);
            comm_copy(c->world->s->heap.isa, r->call.recv, sent->call.send, bytes, false);
            comm_count_sent(sent->owner, ORTH_COMM_SEND, bytes);
        }
        if (before)
            before->next = next;
        else
            m->wanted_head = next;
        if (m->wanted_tail == r)
            m->wanted_tail = before;
        comm_request_complete(sent);
        comm_reader_leave(c); /* only now may the sender's communicator go away */
        atomic_fetch_sub(&c->num_receives, 1);
        comm_request_complete(r);
        r = next;
    }
    pthread_mutex_unlock(&c->mutex);
    return ok;
}

/* After an abort nobody will match them. */
static void drop_wanted(orth_comm *c)
{
    comm_member *m = c->state;
    pthread_mutex_lock(&c->mutex);
    for (comm_request *r = m->wanted_head, *next; r; r = next) {
        next = r->next;
        atomic_fetch_sub(&c->num_receives, 1);
        comm_request_complete(r);
    }
    m->wanted_head = m->wanted_tail = NULL;
    pthread_mutex_unlock(&c->mutex);
}

static void *receives_main(void *p)
{
    orth_comm *c = p;
    comm_shared *s = c->world->s;
    comm_member *m = c->state;
    for (;;) {
        const uint32_t seen = comm_word_get(&m->slot->inbox);
        if (atomic_load(&c->num_receives) == 0) {
            const uint32_t idle = comm_word_get(&c->receives.posted);
            if (atomic_load(&c->quit))
                return NULL;
            if (atomic_load(&c->num_receives) == 0)
                comm_word_wait(&c->receives.posted, idle, s->spins / 8, 1000 * (int64_t)RECHECK_NS);
            continue;
        }
        if (!match(c))
            drop_wanted(c);
        else if (atomic_load(&c->num_receives) > 0)
            comm_word_wait(&m->slot->inbox, seen, s->spins / 8, RECHECK_NS);
    }
}

static bool post_send(orth_comm *c, comm_request *r)
{
    comm_slot *slot = &group_of(c)->slots[r->call.peer];
    pthread_mutex_lock(&slot->inbox_mutex);
    if (slot->inbox_head)
        slot->inbox_tail->next = r;
    else
        slot->inbox_head = r;
    slot->inbox_tail = r;
    pthread_mutex_unlock(&slot->inbox_mutex);
    comm_word_bump(&slot->inbox);
    return true;
}

bool comm_message_post(orth_comm *c, comm_request *r)
{
    if (r->call.kind == ORTH_COMM_SEND)
        return post_send(c, r);
    comm_member *m = c->state;
    if (!c->receives.running) {
        if (pthread_create(&c->receives.thread, NULL, receives_main, c) != 0) {
            comm_abort(c->world->s, c->world->rank, ORTH_ERR_NOMEM,
                       "the system refused a communication thread for '%s'", c->name);
            return false;
        }
        c->receives.running = true;
    }
    pthread_mutex_lock(&c->mutex);
    if (m->wanted_head)
        m->wanted_tail->next = r;
    else
        m->wanted_head = r;
    m->wanted_tail = r;
    atomic_fetch_add(&c->num_receives, 1);
    pthread_mutex_unlock(&c->mutex);
    if (!match(c)) /* often the message is there already: then no thread has to wake up */
        drop_wanted(c);
    if (atomic_load(&c->num_receives) > 0) {
        comm_word_bump(&c->receives.posted);
        comm_word_bump(&m->slot->inbox);
    }
    return !comm_aborted(c->world->s);
}
