/* comm_impl.h -- what the files of comm/ know of each other; not for the rest of the program.
 *
 *   comm.c         communicators: made, changed, released
 *   call.c         checks, counts and numbers a call; runs it or hands it to
 *   queue.c        the thread that makes a communicator's started collectives, one after the other
 *   cross_check.c  whether the members mean the same call, and who is wrong
 *   bytes.c        how many bytes a member sends: by a ring, and by the method in use
 *   world.c        the world: abort and its cause, steps, what a rank waits for
 *   word.h         a counter that threads can wait on
 *   blame.c        who is waited for, when a wait lasts too long
 *   place.c        where a rank is, in words
 *   algo.c         ring, tree and direct over `exchange`, for back ends that move blocks
 *   combine.h      sums of several buffers in tree order
 *   thread/ null/ mpi/   the back ends: one comm_ops each
 */
#ifndef ORTH_COMM_IMPL_H
#define ORTH_COMM_IMPL_H

#include <pthread.h>

#include "base/progress.h"
#include "comm/comm.h"
#include "comm/combine.h"
#include "comm/word.h"

typedef struct comm_shared comm_shared;

/* Scratch of a communicator whose members send each other messages. */
#define COMM_MESSAGE_WORK_BYTES ((size_t)4 << 20)

/* A started call. The owner's requests are a ring of ORTH_COMM_PENDING, indexed by request. */
typedef struct comm_request {
    orth_comm_call call;
    orth_comm *owner;
    orth_request request;
    uint32_t seq;                 /* of collectives */
    bool unusual;                 /* as in comm_header, of messages */
    _Atomic bool done;            /* last write of whoever completes it, before bumping owner->events */
    struct comm_request *next;    /* in a queue or inbox */
} comm_request;

/* One block of an exchange: to `peer` from `send`, or from `peer` into `recv`. */
typedef struct {
    int peer;
    bool incoming;
    const void *send;
    void *recv;
    size_t bytes;
} comm_block;

/* A back end. Functions that return false have aborted the world with a cause, or found it aborted. */
typedef struct {
    /* Sets c->state; collective. */
    orth_status (*create)(orth_ctx *ctx, orth_comm *c);
    void (*destroy)(orth_ctx *ctx, orth_comm *c);
    /* A whole collective, n >= 2, on any thread, one at a time per communicator. */
    bool (*collective)(orth_comm *c, const orth_comm_call *call, uint32_t seq);
    /* Makes a send or recv known; completes it now or later (comm_request_complete). */
    bool (*post)(orth_comm *c, comm_request *r);
    /* After an abort: returns when no peer reads this rank's memory any more. */
    void (*quiesce)(orth_comm *c);
    /* Moves blocks between members, all of whom call it the same number of times, and counts them as sent in a `kind`; NULL:
     * not used. */
    bool (*exchange)(orth_comm *c, orth_comm_kind kind, const comm_block *blocks, int num);
    size_t work_bytes;            /* scratch that each communicator gets; 0: only on demand */
    bool keeps_buffers;           /* orth_world_keeps_buffers, after an abort */
} comm_ops;

extern const comm_ops comm_ops_thread, comm_ops_null;
#if ORTH_HAVE_MPI
extern const comm_ops comm_ops_mpi;
#endif
/* *left_behind: a stalled rank did not come back, so that *s must stay. */
orth_status comm_run_thread_ranks(orth_ctx *ctx, int num_ranks, orth_rank_fn fn, void *arg, comm_shared *s,
                                  bool *left_behind);
orth_status comm_run_mpi_rank(orth_ctx *ctx, int num_ranks, orth_rank_fn fn, void *arg, comm_shared *s);
void comm_mpi_shutdown(void);

/* The last call of an instruction. */
#define COMM_HISTORY_BITS 10
typedef struct {
    bool seen;
    uint64_t key, extent;
} comm_history;

struct orth_comm {
    orth_world *world;
    orth_comm *next;              /* of the world handle's list */
    const comm_ops *ops;
    void *state;                  /* back end's */
    const void *group;            /* what the members share, for the watchdog */
    char name[ORTH_COMM_NAME_MAX];
    int n, pos;
    int *ranks;                   /* [n] */
    orth_comm_algo algo;
    orth_comm_order order;
    uint32_t seq;                 /* collectives made so far */
    int64_t calls[ORTH_NUM_COMM_KINDS], ideal[ORTH_NUM_COMM_KINDS]; /* orth_comm_counts: of the calls made */
    _Atomic int64_t sent[ORTH_NUM_COMM_KINDS]; /* added to by whoever moves this member's bytes, before its call completes */
    comm_history history[2][1 << COMM_HISTORY_BITS]; /* collectives, messages; cross_check.c */
    struct {
        int32_t instr;
        int64_t step, epoch, count;
    } repeat[2];                  /* calls that one instruction makes, one after the other */
    char *work;                   /* scratch of algo.c; NULL: direct only */
    size_t work_bytes;

    /* Started calls. `events` is bumped at each completion. */
    orth_request last_request;
    comm_request *requests;       /* [ORTH_COMM_PENDING] */
    comm_word events;
    pthread_mutex_t mutex;        /* of the two queues below */
    struct comm_queue {
        comm_request *head, *tail;
        comm_word posted;         /* bumped when something was added, or at the end */
        pthread_t thread;
        bool running;
    } collectives, receives;
    _Atomic int32_t num_collectives, num_receives; /* not yet complete */
    _Atomic bool quit;
};

/* A set of ranks. */
enum { COMM_SET_WORDS = ORTH_MAX_RANKS / 64 };
typedef struct {
    uint64_t word[COMM_SET_WORDS];
} comm_set;
static inline void comm_set_add(comm_set *set, int rank)
{
    set->word[rank / 64] |= (uint64_t)1 << rank % 64;
}
static inline bool comm_set_has(const comm_set *set, int rank)
{
    return set->word[rank / 64] >> rank % 64 & 1;
}

/* What the watchdog sees of a rank: written by the rank (of this process), read by the monitor. */
typedef struct {
    _Alignas(64) _Atomic int64_t calls;
    _Atomic int64_t since_ns;     /* start of the present wait; 0: not waiting */
    _Atomic(const void *) group;  /* waited in: the back end's */
    _Atomic int64_t request;      /* waited for; 0: a call on the caller's own thread */
    _Atomic int32_t kind, instr, peer;
    _Atomic int32_t last_kind, last_instr; /* of the last call begun */
    _Atomic int64_t step;
    _Atomic int64_t made, made_epoch; /* calls since progress.epoch was made_epoch */
    _Atomic bool ended;
    orth_progress progress;       /* the rank's ctx points to it */
    orth_instr_name_fn name;      /* of the instructions of this rank's programs; under the world's mutex */
    struct {                      /* mpi, under the world's mutex: ranks that a collective waits for */
        bool known;
        comm_set set;
    } missing;
    /* The monitor's. */
    int64_t ticks_seen;
    _Atomic int64_t quiet_ns;     /* for so long the ticks have stood still, as far as the monitor has watched */
    bool remote, remote_file, remote_lacks;     /* mpi, on rank 0: another process, which has reported: */
    char remote_place[ORTH_PLACE_MAX];
} comm_rank;

/* What all ranks of a world share (in this process). */
#define COMM_SPIN_ROUNDS 4000     /* about 50 us: longer than a small collective, shorter than a time slice */
struct comm_shared {
    orth_ctx heap;                /* groups are allocated here, under `mutex`; has no pool */
    orth_world_options options;
    const comm_ops *ops;
    int num_ranks, num_cores;
    int spins;                    /* rounds before a rank sleeps; 0 when ranks share cores */
    comm_rank *ranks;             /* [num_ranks]; mpi: this rank's, and on rank 0 what the others reported last */
    const bool *same_host;        /* mpi: [num_ranks]; NULL: all ranks are in this process */
    pthread_mutex_t mutex;
    struct comm_group *groups;    /* thread back end */
    _Atomic int64_t limit_ns;     /* longest time without a tick, in a step or waiting; 0: no watchdog */
    int64_t busy_ns;              /* the same in a phase */
    _Atomic bool aborted;
    int cause_rank;               /* these three under mutex, fixed once aborted */
    orth_status cause_code;
    char cause[ORTH_MESSAGE_MAX];
};

struct orth_world {
    comm_shared *s;
    int rank;
    orth_comm *comms;             /* those not destroyed yet */
    bool derived;                 /* this rank's error is the world's cause */
    int64_t calls;                /* counts towards the injected fault */
    bool holding;                 /* ORTH_COMM_FAULT_SWAP: `held` waits for the next call */
    orth_comm_call held;
    orth_comm *held_comm;
    int64_t step_start_ns, step_ns[15];
    int num_steps;
};

/* world.c. The first cause stays; the message is prefixed with "rank N: ". */
void comm_abort(comm_shared *s, int rank, orth_status code, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
/* The same with a cause that has its prefix already, from another process. */
void comm_adopt_cause(comm_shared *s, int rank, orth_status code, const char *cause);
static inline bool comm_aborted(comm_shared *s)
{
    return atomic_load(&s->aborted);
}
/* Records the world's cause as this rank's error; ORTH_ERR_COMM. */
orth_status comm_fail(orth_ctx *ctx, orth_world *w);
/* Around everything that may wait on behalf of the rank's caller. */
void comm_wait_begin(orth_comm *c, const orth_comm_call *call, orth_request t);
void comm_wait_end(orth_comm *c);
/* The request is done: a rank that still sleeps over it waits for nobody any more. */
void comm_wait_over(orth_comm *c, orth_request t);
/* What remains when fn has returned: destroys communicators, aborts if s is an error. */
void comm_world_end(orth_ctx *ctx, orth_world *w, orth_status status);

/* ---- blame.c ---- */

/* What one look has seen of a rank: filled in by the back end. */
typedef struct {
    bool waits;
    int32_t instr;                /* of the call that it waits in */
    comm_set missing;             /* whom it waits for */
    char group[ORTH_COMM_NAME_MAX];
} comm_seen;

typedef enum {
    COMM_SUSPECT_NONE = 0, COMM_SUSPECT_CIRCLE, COMM_SUSPECT_LEFT_OUT, COMM_SUSPECT_STUCK, COMM_SUSPECT_ENDED
} comm_suspect_kind;
typedef struct {
    comm_suspect_kind kind;
    int rank, waiter;             /* waiter -1: nobody waits for it */
    int64_t ticks;                /* of the suspect */
} comm_suspect;

typedef struct {
    comm_shared *s;
    comm_seen *seen;              /* [num_ranks] */
    bool *excused;                /* [num_ranks] */
    int64_t looked_ns;
    int64_t starved_ns;           /* orth_machine_starved_ns at the last look; -1: nobody was quiet for long */
    comm_suspect last;
} comm_watch;

orth_status comm_watch_open(orth_ctx *ctx, comm_watch *w, comm_shared *s);
void comm_watch_close(orth_ctx *ctx, comm_watch *w);
/* Adds the time since the last look, but at most `most_ns`, to the quiet time of ranks whose ticks stand still. Time for which
 * threads of this process had no CPU counts little. */
void comm_watch_count(comm_watch *w, int64_t most_ns);
/* w->seen is filled in: aborts the world when it shows the same suspect as the time before. */
void comm_watch_judge(comm_watch *w);
/* Has it made fewer calls than its program asked for? Then it left one out, whatever it waits in. */
bool comm_rank_lacks(const comm_rank *r);
/* Does this rank still move, as far as its limit says? `limit_ns` outside of phases. */
bool comm_rank_moves(const comm_shared *s, int rank, int64_t limit_ns);

/* place.c: where a rank is and what it does. Under s->mutex. *has_file: the words end with a file. */
void comm_place(comm_shared *s, int rank, const char *group, char *text, size_t n, bool *has_file);
/* "instruction 7", with words where this process knows the rank's program. Under s->mutex. */
void comm_instr_words(comm_shared *s, int rank, int32_t instr, char *text, size_t n);

/* queue.c */
orth_status comm_queue_push(orth_ctx *ctx, orth_comm *c, comm_request *r);
void comm_queue_stop(orth_comm *c);
void comm_request_complete(comm_request *r);
/* Sleeps until the request is done, or the world aborted and nobody touches the request any more. */
bool comm_request_wait(orth_comm *c, comm_request *r);

/* comm.c */
orth_comm_algo comm_pick_algo(const orth_comm *c, const orth_comm_call *call);
static inline int64_t comm_count_of(const int64_t *counts, int64_t count, int i)
{
    return counts ? counts[i] : count;
}
static inline int64_t comm_offset_of(const int64_t *counts, int64_t count, int i)
{
    if (!counts)
        return count * i;
    int64_t sum = 0;
    for (int k = 0; k < i; k++)
        sum += counts[k];
    return sum;
}

/* `bytes` of the member `from` have been copied to another, or handed to MPI. */
static inline void comm_count_sent(orth_comm *from, orth_comm_kind kind, size_t bytes)
{
    atomic_fetch_add_explicit(&from->sent[kind], (int64_t)bytes, memory_order_relaxed);
}
/* Elements that fill a cache line, or are one at least. */
static inline int64_t comm_line_elems(orth_dtype t)
{
    return ORTH_MAX(64 / (int64_t)orth_dtype_bytes(t), 1);
}

/* Elements that each member of n brings to its end where members share memory (thread/direct.c): whole cache lines. */
static inline int64_t comm_share(const orth_comm_call *call, int n)
{
    return orth_round_up(orth_div_up(call->count, n), comm_line_elems(call->dtype));
}

/* cross_check.c: what is compared of a call. */
uint64_t comm_extent(const orth_comm *c, const orth_comm_call *call); /* of its counts */
typedef struct {
    orth_comm_call call;
    uint64_t extent;
    orth_comm_algo algo;
    int64_t step, epoch;          /* epoch: of orth_progress */
    uint32_t seq;
    bool unusual;                 /* not the count that this instruction had last time */
    bool has_pair;                /* mpi, all-to-all: the sender's count for the reader, as its */
    int64_t pair;                 /* arrays are out of reach */
} comm_header;
void comm_header_fill(comm_header *h, orth_comm *c, const orth_comm_call *call, uint32_t seq);
bool comm_header_same(const comm_header *a, const comm_header *b);
/* headers[i] of member i. True when all agree; else the world is aborted. */
bool comm_headers_check(orth_comm *c, const comm_header *const *headers);
bool comm_call_unusual(orth_comm *c, const orth_comm_call *call);
/* Do a send to this member and its recv agree? Else the world is aborted. */
bool comm_message_check(orth_comm *c, const comm_request *sent, const comm_request *wanted);

/* algo.c: a collective over ops->exchange. */
bool comm_algo_run(orth_comm *c, const orth_comm_call *call, orth_comm_algo algo);

#endif
