/* mpi.c -- ranks are processes under mpirun or srun; MPI moves bytes, everything else is ours.
 *
 * Sums are made by algo.c in the same order as between threads, so the bits are the same. MPI's own
 * collectives are not used: their order of sums is theirs. Every wait polls, so that it notices an abort of
 * the world, of which the monitor (monitor.h) hears. A rank that fails returns without MPI_Finalize: the process
 * must end with a non-zero status, upon which the launcher ends those that do not come back.
 *
 * After an abort the monitor still talks, and whoever calls MPI makes it move all data: a large send that was
 * under way is still read from its buffer. Sends cannot be cancelled, so their buffers stay until the process ends.
 * Receives are cancelled, since their buffers may be on a stack.
 */
#include <mpi.h>
#include <sched.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "comm/comm_impl.h"
#include "comm/mpi/monitor.h"

#define PART_BYTES ((size_t)1 << 20) /* counts are int: large blocks go as so many of these and a rest */
#define POLLS_BEFORE_SLEEP 200
#define POLL_NS 50000
#define LONG_NS 100000000            /* a wait that the monitor hears of, as often */

enum { TAG_BLOCK = 1, TAG_HEADER = 2 };
#define HEADERS ORTH_NUM_COMM_KINDS  /* in place of a kind: blocks that are no data of a call, and not counted */

/* A send or recv under way. */
typedef struct {
    comm_request *r;              /* NULL: free */
    MPI_Request request[3];       /* header, large part, rest */
    comm_header header;
} mpi_message;

typedef struct {
    MPI_Comm blocks, messages;
    MPI_Datatype part;            /* PART_BYTES bytes */
    mpi_message pending[ORTH_COMM_PENDING]; /* under c->mutex */
} mpi_state;

static mpi_state *state_of(orth_comm *c)
{
    return c->state;
}

/* ---- moving bytes ---- */

/* Posts one block as up to two requests; returns how many. */
static int post_block(orth_comm *c, MPI_Comm comm, orth_comm_kind kind, const comm_block *b, MPI_Request *out)
{
    const mpi_state *s = state_of(c);
    const int parts = (int)(b->bytes / PART_BYTES), rest = (int)(b->bytes % PART_BYTES);
    const size_t at = (size_t)parts * PART_BYTES;
    int num = 0;
    if (b->incoming) {
        if (parts)
            MPI_Irecv(b->recv, parts, s->part, b->peer, TAG_BLOCK, comm, &out[num++]);
        if (rest)
            MPI_Irecv((char *)b->recv + at, rest, MPI_BYTE, b->peer, TAG_BLOCK, comm, &out[num++]);
    } else {
        if (parts)
            MPI_Isend(b->send, parts, s->part, b->peer, TAG_BLOCK, comm, &out[num++]);
        if (rest)
            MPI_Isend((const char *)b->send + at, rest, MPI_BYTE, b->peer, TAG_BLOCK, comm, &out[num++]);
        if (kind != HEADERS)
            comm_count_sent(c, kind, b->bytes);
    }
    return num;
}

/* Lets others run; sleeps once it has been in vain for long. */
static void pause_poll(const orth_comm *c, int polls)
{
    if (polls < POLLS_BEFORE_SLEEP && c->world->s->spins > 0)
        return;
    if (polls < 10 * POLLS_BEFORE_SLEEP) {
        sched_yield();
        return;
    }
    nanosleep(&(struct timespec){.tv_nsec = POLL_NS}, NULL);
}

/* Tells the monitor which members have not sent, or if all have, which have not received. */
static void tell_missing(orth_comm *c, const comm_block *blocks, const int *owner, const MPI_Request *q, int num)
{
    for (int incoming = 1; incoming >= 0; incoming--) {
        comm_set missing = {{0}};
        bool any = false;
        for (int i = 0; i < num; i++) {
            if (q[i] == MPI_REQUEST_NULL || blocks[owner[i]].incoming != (incoming == 1))
                continue;
            comm_set_add(&missing, blocks[owner[i]].peer);
            any = true;
        }
        if (any) {
            comm_monitor_misses(c, &missing);
            return;
        }
    }
}

static void cancel(MPI_Request *request)
{
    int done;
    if (*request == MPI_REQUEST_NULL)
        return;
    MPI_Cancel(request);
    MPI_Test(request, &done, MPI_STATUS_IGNORE);
}

static bool mpi_exchange(orth_comm *c, orth_comm_kind kind, const comm_block *blocks, int num)
{
    mpi_state *s = state_of(c);
    MPI_Request q[4 * ORTH_MAX_RANKS];
    int owner[4 * ORTH_MAX_RANKS], posted = 0, polls = 0;
    /* Receives first: what arrives then needs no detour through MPI's own buffers. */
    for (int incoming = 1; incoming >= 0; incoming--)
        for (int i = 0; i < num; i++)
            if (blocks[i].incoming == (incoming == 1))
                for (int k = post_block(c, s->blocks, kind, &blocks[i], q + posted); k > 0; k--)
                    owner[posted++] = i;
    int64_t told_ns = orth_clock_ns();
    bool told = false;
    for (int done = 0; !done; polls++) {
        if (MPI_Testall(posted, q, &done, MPI_STATUSES_IGNORE) != MPI_SUCCESS) {
            comm_abort(c->world->s, c->world->rank, ORTH_ERR_COMM, "'%s': MPI reports an error", c->name);
            return false;
        }
        if (done)
            break;
        if (comm_aborted(c->world->s)) {
            for (int i = 0; i < posted; i++)
                if (blocks[owner[i]].incoming)
                    cancel(&q[i]);
            return false;
        }
        if (orth_clock_ns() - told_ns > LONG_NS) {
            tell_missing(c, blocks, owner, q, posted);
            told_ns = orth_clock_ns();
            told = true;
        }
        pause_poll(c, polls);
    }
    if (told)
        comm_monitor_misses(c, NULL);
    return true;
}

/* ---- collectives ---- */

/* Pointers mean nothing to others: counts travel as their sum, all-to-all's for the reader as `pair`. */
static void header_for(comm_header *h, const orth_comm *c, int to)
{
    const orth_comm_call *call = &h->call;
    h->has_pair = true;
    h->pair = comm_count_of(call->send_counts, call->count, to);
    if (call->counts)
        h->call.count = comm_offset_of(call->counts, 0, c->n);
    h->call.counts = h->call.send_counts = NULL;
    h->call.send = h->call.recv = NULL;
}

/* Everyone tells everyone what it is about to do; a barrier as well. */
static bool exchange_headers(orth_comm *c, const orth_comm_call *call, uint32_t seq)
{
    const int n = c->n;
    comm_header mine;
    comm_header_fill(&mine, c, call, seq);
    comm_header *out = (comm_header *)(void *)c->work, *in = out + n;
    const comm_header *all[ORTH_MAX_RANKS];
    comm_block blocks[2 * ORTH_MAX_RANKS];
    int num = 0;
    for (int i = 0; i < n; i++) {
        all[i] = i == c->pos ? &mine : &in[i];
        if (i == c->pos)
            continue;
        out[i] = mine;
        header_for(&out[i], c, i);
        blocks[num++] = (comm_block){.peer = i, .send = &out[i], .bytes = sizeof mine};
        blocks[num++] = (comm_block){.peer = i, .incoming = true, .recv = &in[i], .bytes = sizeof mine};
    }
    return mpi_exchange(c, HEADERS, blocks, num) && comm_headers_check(c, all);
}

static bool mpi_collective(orth_comm *c, const orth_comm_call *call, uint32_t seq)
{
    const bool check = !c->world->s->options.unchecked || call->kind == ORTH_COMM_BARRIER;
    if (check && !exchange_headers(c, call, seq))
        return false;
    return call->kind == ORTH_COMM_BARRIER || comm_algo_run(c, call, comm_pick_algo(c, call));
}

/* ---- messages ---- */

static bool message_done(orth_comm *c, mpi_message *m, bool *ok)
{
    comm_request *r = m->r;
    int done = 0;
    const int error = MPI_Testall(3, m->request, &done, MPI_STATUSES_IGNORE);
    const bool incoming = r->call.kind == ORTH_COMM_RECV;
    if (error == MPI_SUCCESS && !done)
        return false;
    /* A message of another length is an error to MPI; the header, which came first, says it better. */
    if (incoming && m->request[0] == MPI_REQUEST_NULL && m->header.seq == 1) {
        comm_request sent = {.call = m->header.call, .unusual = m->header.unusual};
        *ok = comm_message_check(c, &sent, r);
    }
    if (error != MPI_SUCCESS) {
        comm_abort(c->world->s, c->world->rank, ORTH_ERR_COMM, "'%s': MPI reports an error in a message",
                   c->name);
        *ok = false;
    }
    return true;
}

/* Completes what can be; false when there is nothing left. */
static bool poll_messages(orth_comm *c)
{
    mpi_state *s = state_of(c);
    bool left = false;
    pthread_mutex_lock(&c->mutex);
    for (int i = 0; i < ORTH_COMM_PENDING; i++) {
        mpi_message *m = &s->pending[i];
        bool ok = true;
        if (!m->r)
            continue;
        if (!comm_aborted(c->world->s) && !message_done(c, m, &ok)) {
            left = true;
            continue;
        }
        comm_request *r = m->r;
        for (int k = 0; k < 3 && r->call.kind == ORTH_COMM_RECV; k++)
            cancel(&m->request[k]); /* only after an abort is one left */
        m->r = NULL;
        atomic_fetch_sub(&c->num_receives, 1);
        comm_request_complete(r);
    }
    pthread_mutex_unlock(&c->mutex);
    return left;
}

static void *messages_main(void *p)
{
    orth_comm *c = p;
    int polls = 0;
    for (;;) {
        const uint32_t idle = comm_word_get(&c->receives.posted);
        const int before = atomic_load(&c->num_receives);
        if (poll_messages(c)) {
            polls = atomic_load(&c->num_receives) == before ? polls + 1 : 0;
            pause_poll(c, polls);
        } else if (atomic_load(&c->quit)) {
            return NULL;
        } else {
            comm_word_wait(&c->receives.posted, idle, 0, 1000000000);
        }
    }
}

static bool mpi_post(orth_comm *c, comm_request *r)
{
    mpi_state *s = state_of(c);
    mpi_message *m = &s->pending[r->request % ORTH_COMM_PENDING];
    const bool incoming = r->call.kind == ORTH_COMM_RECV;
    const size_t bytes = (size_t)r->call.count * orth_dtype_bytes(r->call.dtype);
    const comm_block b = {.peer = r->call.peer, .incoming = incoming, .send = r->call.send, .recv = r->call.recv,
                          .bytes = bytes};
    if (!c->receives.running) {
        if (pthread_create(&c->receives.thread, NULL, messages_main, c) != 0) {
            comm_abort(c->world->s, c->world->rank, ORTH_ERR_NOMEM,
                       "the system refused a communication thread");
            return false;
        }
        c->receives.running = true;
    }
    pthread_mutex_lock(&c->mutex);
    memset(&m->header, 0, sizeof m->header);
    for (int i = 0; i < 3; i++)
        m->request[i] = MPI_REQUEST_NULL;
    const int bytes_of_header = (int)sizeof m->header;
    if (incoming) {
        MPI_Irecv(&m->header, bytes_of_header, MPI_BYTE, b.peer, TAG_HEADER, s->messages, &m->request[0]);
    } else {
        m->header.call = r->call;
        m->header.call.send = NULL;
        m->header.unusual = r->unusual;
        m->header.seq = 1; /* the header has come */
        MPI_Isend(&m->header, bytes_of_header, MPI_BYTE, b.peer, TAG_HEADER, s->messages, &m->request[0]);
    }
    post_block(c, s->messages, r->call.kind, &b, &m->request[1]);
    m->r = r;
    atomic_fetch_add(&c->num_receives, 1);
    pthread_mutex_unlock(&c->mutex);
    comm_word_bump(&c->receives.posted);
    return true;
}

/* ---- making ---- */

static orth_status mpi_create(orth_ctx *ctx, orth_comm *c)
{
    mpi_state *s = ORTH_NEW(ctx, mpi_state);
    if (!s)
        return ORTH_ERR_NOMEM;
    MPI_Group all, some;
    int tag = 17;
    for (int i = 0; i < c->n; i++)
        tag = (tag * 31 + c->ranks[i] + c->name[0]) & 0x7fff;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, c->n, c->ranks, &some);
    int error = MPI_Comm_create_group(MPI_COMM_WORLD, some, tag, &s->blocks);
    if (error == MPI_SUCCESS)
        error = MPI_Comm_dup(s->blocks, &s->messages);
    MPI_Group_free(&some);
    MPI_Group_free(&all);
    if (error != MPI_SUCCESS) {
        orth_mem_free(ctx, s);
        return ORTH_FAIL(ctx, ORTH_ERR_COMM, "MPI refused a communicator for '%s'", c->name);
    }
    MPI_Comm_set_errhandler(s->blocks, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(s->messages, MPI_ERRORS_RETURN);
    MPI_Type_contiguous((int)PART_BYTES, MPI_BYTE, &s->part);
    MPI_Type_commit(&s->part);
    c->state = s;
    c->group = c; /* for the monitor */
    return ORTH_OK;
}

/* Freeing an MPI communicator is collective: after an abort it is left to the end of the process, as are the headers
 * and the scratch of messages under way. */
static void mpi_destroy(orth_ctx *ctx, orth_comm *c)
{
    mpi_state *s = state_of(c);
    comm_rank *me = &c->world->s->ranks[c->world->rank];
    pthread_mutex_lock(&c->world->s->mutex);
    if (atomic_load(&me->group) == c)
        atomic_store(&me->group, NULL);
    pthread_mutex_unlock(&c->world->s->mutex);
    c->state = NULL;
    if (comm_aborted(c->world->s)) {
        c->work = NULL;
        return;
    }
    MPI_Type_free(&s->part);
    MPI_Comm_free(&s->messages);
    MPI_Comm_free(&s->blocks);
    orth_mem_free(ctx, s);
}

static void mpi_quiesce(orth_comm *c)
{
    (void)c; /* no process reads another's memory */
}

const comm_ops comm_ops_mpi = {
    .create = mpi_create,
    .destroy = mpi_destroy,
    .collective = mpi_collective,
    .post = mpi_post,
    .quiesce = mpi_quiesce,
    .exchange = mpi_exchange,
    .work_bytes = COMM_MESSAGE_WORK_BYTES,
    .keeps_buffers = true,
};

/* ---- the world ---- */

static orth_status start_mpi(orth_ctx *ctx)
{
    int ready = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&ready);
    if (ready)
        MPI_Query_thread(&level);
    else if (MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level) != MPI_SUCCESS)
        return ORTH_FAIL(ctx, ORTH_ERR_COMM, "MPI does not start");
    if (level < MPI_THREAD_MULTIPLE)
        return ORTH_FAIL(ctx, ORTH_ERR_COMM, "MPI gives thread level %d, communication beside computing needs "
                         "%d", level, MPI_THREAD_MULTIPLE);
    return ORTH_OK;
}

orth_status comm_run_mpi_rank(orth_ctx *ctx, int num_ranks, orth_rank_fn fn, void *arg, comm_shared *s)
{
    ORTH_TRY(start_mpi(ctx));
    int size, rank;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    ctx->rank = rank;
    ctx->error.printed_elsewhere = rank > 0;
    if (num_ranks != 0 && num_ranks != size)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "the layout has %d rank%s, but %d process%s started: mpirun -n %d, or "
                         "srun -n %d", num_ranks, num_ranks == 1 ? "" : "s", size, size == 1 ? " was" : "es were",
                         num_ranks, num_ranks);
    if (size > ORTH_MAX_RANKS)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "ranks=%d is not in [1, %d]", size, ORTH_MAX_RANKS);
    ctx->error.printed_elsewhere = false;
    comm_monitor *monitor;
    s->num_ranks = size;
    s->ranks = ORTH_NEW_ARRAY(ctx, comm_rank, size);
    for (int i = 0; s->ranks && i < size; i++)
        orth_progress_init(&s->ranks[i].progress);
    orth_status status = s->ranks ? comm_monitor_start(ctx, s, rank, &monitor) : ORTH_ERR_NOMEM;
    if (status == ORTH_OK) {
        orth_world w = {.s = s, .rank = rank};
        ctx->progress = &s->ranks[rank].progress;
        status = fn(ctx, &w, arg);
        comm_world_end(ctx, &w, status);
        status = comm_monitor_end(ctx, monitor, status, w.derived);
    }
    ctx->progress = NULL;
    for (int i = 0; s->ranks && i < size; i++)
        orth_progress_destroy(&s->ranks[i].progress);
    orth_mem_free(ctx, s->ranks);
    s->ranks = NULL;
    return status;
}

void comm_mpi_shutdown(void)
{
    int ready = 0, over = 0;
    MPI_Initialized(&ready);
    MPI_Finalized(&over);
    if (ready && !over)
        MPI_Finalize();
}
