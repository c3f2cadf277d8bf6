/* group.h -- what the members of a group share when ranks are threads.
 *
 * A collective: each member writes its call into its slot, all meet (everyone has called: the calls are
 * compared), members read and write each other's buffers, all meet again (nobody reads any more).
 * Slots alternate between two places, so that a member may post its next call while a slow one
 * still compares the last.
 *
 * Invariants:
 *  1. memory of another member is touched only between reader_enter (true) and reader_leave;
 *  2. a member that fails leaves a call only when `readers` is 0 after `aborted` was set: then nobody
 *     touches its memory, and by 1 nobody will.
 */
#ifndef ORTH_COMM_THREAD_GROUP_H
#define ORTH_COMM_THREAD_GROUP_H

#include "comm/comm_impl.h"

typedef struct {
    /* Written by the owner before it arrives at a meeting, read by others after it. */
    _Alignas(64) comm_header header[2];
    orth_comm *comm;              /* the owner's; from its creation on */
    const comm_block *blocks;
    int num_blocks;
    /* Of this member's share of a reduction: drawn from by all; 0 when all have arrived. */
    _Alignas(64) _Atomic int64_t next_chunk;
    /* For the monitor. */
    _Alignas(64) _Atomic uint32_t posted;
    _Atomic int32_t kind, instr;
    _Atomic int64_t step;
    /* Sends to this member that it has not taken, in order. */
    pthread_mutex_t inbox_mutex;
    comm_request *inbox_head, *inbox_tail;
    comm_word inbox;              /* bumped at each arrival */
} comm_slot;

typedef struct comm_group {
    struct comm_group *next;
    char name[ORTH_COMM_NAME_MAX];
    int n, refs, joined;          /* the last two under shared->mutex */
    int *ranks;
    _Alignas(64) comm_word meeting;
    _Alignas(64) _Atomic int32_t arrived;
    _Alignas(64) _Atomic int32_t readers;
    comm_slot *slots;             /* [n] */
} comm_group;

/* What c->state is. */
typedef struct {
    comm_group *group;
    comm_slot *slot;
    comm_request *wanted_head, *wanted_tail; /* started receives, under c->mutex */
} comm_member;

static inline comm_group *group_of(orth_comm *c)
{
    return ((comm_member *)c->state)->group;
}

/* All members have called it. False: the world is aborted. */
bool comm_meet(orth_comm *c);
bool comm_reader_enter(orth_comm *c);
void comm_reader_leave(orth_comm *c);

/* direct.c: the data of a collective, between the two meetings. False: the world is aborted. */
bool comm_direct(orth_comm *c, const orth_comm_call *call, int parity);

/* message.c */
bool comm_message_post(orth_comm *c, comm_request *r);

/* watchdog.c: looks at the ranks until *quit; for pthread_create, with the world as argument. */
typedef struct {
    comm_watch watch;
    pthread_mutex_t mutex;
    pthread_cond_t wake;
    bool quit;                    /* under mutex */
} comm_watchdog;
void *comm_watchdog_main(void *watchdog);

/* pin.c: the CPUs that this process may use, those of a core one after the other, neighbours of a package too. */
#define COMM_MAX_CPUS 1024
typedef struct {
    int cpu, package, core;
} comm_cpu;
typedef struct {
    int num_cpus;                 /* 0: unknown */
    comm_cpu cpus[COMM_MAX_CPUS];
} comm_cores;
void comm_cores_find(comm_cores *c);
/* Binds the calling thread, and those it creates later, to so many of the cores; where there are none of that number, to nothing. */
void comm_cores_bind(const comm_cores *c, int first_core, int num_cores);

#endif
