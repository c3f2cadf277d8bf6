/* file_ring.c -- see file_ring.h.
 *
 *   free --start--> in flight --complete, or finished by pread and pwrite--> free
 *
 * Invariant: a slot's buffer belongs to the system while the slot is in flight. So a move that has failed starts nothing more, but returns
 * only when nothing is in flight; but for a ring that is lost, whose buffers the system keeps.
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_DIRECT */
#endif
#include "base/file_ring.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#define PIECE_BYTES ((size_t)8 << 20) /* handed to the system at a time */

int orth_file_move_plain(int fd, bool write, char *bytes, size_t n, size_t at)
{
    for (size_t done = 0; done < n;) {
        const size_t piece = ORTH_MIN(n - done, PIECE_BYTES);
        const ssize_t k = write ? pwrite(fd, bytes + done, piece, (off_t)(at + done)) : pread(fd, bytes + done, piece, (off_t)(at + done));
        if (k < 0 && errno != EINTR)
            return errno;
        if (k == 0)
            return EIO; /* the file is as long as was asked for */
        done += k > 0 ? (size_t)k : 0;
    }
    return 0;
}

#if ORTH_HAVE_URING

#include <liburing.h>
#include <pthread.h>

#define NUM_SLOTS 8
#define SLOT_BYTES ((size_t)512 << 10)
#define TRY_LIMIT_S 10   /* without any request that is completed: of one block of a new file */
#define MOVE_LIMIT_S 300 /* of requests of a run, whose watchdog ends it earlier */

typedef struct {
    char *buffer, *bytes;      /* SLOT_BYTES; where the request's bytes belong */
    size_t n, at;
    bool busy;
} slot;

struct orth_file_ring {
    struct io_uring ring;
    pthread_mutex_t mutex;     /* of a move */
    int plain, direct;         /* descriptors of one file */
    slot slots[NUM_SLOTS];
    int in_flight, limit_s;
    int error;                 /* of the move at hand: the first; 0 */
    bool lost;                 /* the ring itself failed: what is in flight is not known any more, and it is not used again */
};

_Static_assert(sizeof(orth_file_ring) <= ORTH_FILE_BLOCK, "the ring has a block behind the buffers");

size_t orth_file_ring_room(void)
{
    return NUM_SLOTS * SLOT_BYTES + ORTH_FILE_BLOCK;
}

static slot *free_slot(orth_file_ring *r)
{
    for (int k = 0; k < NUM_SLOTS; k++)
        if (!r->slots[k].busy)
            return &r->slots[k];
    return NULL;
}

static void start(orth_file_ring *r, slot *s, bool write, char *bytes, size_t n, size_t at)
{
    struct io_uring_sqe *q = io_uring_get_sqe(&r->ring); /* the ring has one for each slot */
    *s = (slot){s->buffer, bytes, n, at, true};
    if (write) {
        memcpy(s->buffer, bytes, n);
        io_uring_prep_write(q, r->direct, s->buffer, (unsigned)n, at);
    } else {
        io_uring_prep_read(q, r->direct, s->buffer, (unsigned)n, at);
    }
    io_uring_sqe_set_data(q, s);
    r->in_flight++;
}

/* result: bytes, or a negative errno. */
static void finish(orth_file_ring *r, slot *s, bool write, int result)
{
    const size_t done = result > 0 ? ORTH_MIN((size_t)result, s->n) : 0;
    int error = result < 0 && result != -EINTR && result != -EAGAIN ? -result : 0;
    if (!write)
        memcpy(s->bytes, s->buffer, done);
    if (error == 0 && done < s->n)
        error = orth_file_move_plain(r->plain, write, s->bytes + done, s->n - done, s->at + done);
    r->error = r->error ? r->error : error;
    s->busy = false;
    r->in_flight--;
}

/* Hands over what was started, and waits until a request is complete if asked to. A call that a signal cut off, or for which the system had no
 * room at the moment, is made again by the loop. A request that was never completed has been seen (Linux 6.18, a file in tmpfs). */
static void enter(orth_file_ring *r, bool wait)
{
    struct __kernel_timespec limit = {.tv_sec = r->limit_s};
    struct io_uring_cqe *complete;
    int n = io_uring_submit(&r->ring);
    if (n >= 0 && wait)
        n = io_uring_wait_cqe_timeout(&r->ring, &complete, &limit);
    if (n >= 0 || n == -EINTR || n == -EAGAIN || n == -EBUSY)
        return;
    r->error = r->error ? r->error : n == -ETIME ? ETIMEDOUT : -n;
    r->lost = true;
}

static void finish_complete(orth_file_ring *r, bool write)
{
    struct io_uring_cqe *complete[NUM_SLOTS];
    const unsigned n = io_uring_peek_batch_cqe(&r->ring, complete, NUM_SLOTS);
    for (unsigned k = 0; k < n; k++)
        finish(r, io_uring_cqe_get_data(complete[k]), write, complete[k]->res);
    io_uring_cq_advance(&r->ring, n);
}

/* One request is started at a time, so that the device works while the next buffer is filled. */
static int move(orth_file_ring *r, bool write, char *bytes, size_t n, size_t at)
{
    size_t begun = 0;
    r->error = r->lost ? EIO : 0;
    while (!r->lost && ((begun < n && !r->error) || r->in_flight > 0)) {
        slot *s = begun < n && !r->error ? free_slot(r) : NULL;
        if (s) {
            const size_t part = ORTH_MIN(n - begun, SLOT_BYTES);
            start(r, s, write, bytes + begun, part, at + begun);
            begun += part;
        }
        enter(r, !(s && begun < n && free_slot(r)));
        finish_complete(r, write);
    }
    return r->error;
}

int orth_file_ring_move(orth_file_ring *r, bool write, char *bytes, size_t n, size_t at)
{
    pthread_mutex_lock(&r->mutex);
    const int error = move(r, write, bytes, n, at);
    pthread_mutex_unlock(&r->mutex);
    return error;
}

/* The first block of a file of zeros, there and back: a file system may refuse O_DIRECT only when it is used, and the system may know io_uring
 * without these requests. */
static int try_block(orth_file_ring *r)
{
    char block[ORTH_FILE_BLOCK];
    const int error = move(r, false, block, sizeof block, 0);
    return error ? error : move(r, true, block, sizeof block, 0);
}

/* Before Linux 5.11 liburing makes the limit of a wait a request of its own, for which the ring has no room. */
static int init_ring(orth_file_ring *r)
{
    const int error = -io_uring_queue_init(NUM_SLOTS, &r->ring, 0);
    if (error || r->ring.features & IORING_FEAT_EXT_ARG)
        return error;
    io_uring_queue_exit(&r->ring);
    return ENOSYS;
}

static int open_parts(orth_file_ring *r, size_t bytes, const char **what)
{
    char path[64];
    snprintf(path, sizeof path, "/proc/self/fd/%d", r->plain);
    *what = "O_DIRECT";
    r->direct = open(path, O_RDWR | O_DIRECT | O_CLOEXEC);
    if (r->direct < 0)
        return errno;
    *what = "io_uring";
    int error = init_ring(r);
    if (error == 0 && bytes >= ORTH_FILE_BLOCK) {
        *what = "O_DIRECT through io_uring";
        error = try_block(r);
        if (error)
            io_uring_queue_exit(&r->ring);
    }
    if (error)
        close(r->direct);
    return error;
}

orth_file_ring *orth_file_ring_open(int fd, size_t bytes, char *room, char why[ORTH_FILE_WHY_MAX])
{
    orth_file_ring *r = (orth_file_ring *)(room + NUM_SLOTS * SLOT_BYTES);
    const char *what;
    r->plain = fd;
    for (int k = 0; k < NUM_SLOTS; k++)
        r->slots[k].buffer = room + (size_t)k * SLOT_BYTES;
    r->limit_s = TRY_LIMIT_S;
    const int error = open_parts(r, bytes, &what);
    r->limit_s = MOVE_LIMIT_S;
    why[0] = '\0';
    if (error) {
        snprintf(why, ORTH_FILE_WHY_MAX, "%s: %s", what, strerror(error));
        return NULL;
    }
    pthread_mutex_init(&r->mutex, NULL);
    posix_fadvise(fd, 0, 0, POSIX_FADV_RANDOM); /* reading the end of a tensor brings no blocks beside it into the page cache */
    return r;
}

void orth_file_ring_close(orth_file_ring *r)
{
    if (!r)
        return;
    io_uring_queue_exit(&r->ring);
    close(r->direct);
    pthread_mutex_destroy(&r->mutex);
}

bool orth_file_ring_keeps(const char *room)
{
    return room && ((const orth_file_ring *)(room + NUM_SLOTS * SLOT_BYTES))->in_flight > 0;
}

#else

size_t orth_file_ring_room(void)
{
    return 0;
}

orth_file_ring *orth_file_ring_open(int fd, size_t bytes, char *room, char why[ORTH_FILE_WHY_MAX])
{
    (void)fd, (void)bytes, (void)room;
    snprintf(why, ORTH_FILE_WHY_MAX, "this program was built without liburing");
    return NULL;
}

void orth_file_ring_close(orth_file_ring *r)
{
    (void)r;
}

bool orth_file_ring_keeps(const char *room)
{
    (void)room;
    return false;
}

int orth_file_ring_move(orth_file_ring *r, bool write, char *bytes, size_t n, size_t at)
{
    (void)r, (void)write, (void)bytes, (void)n, (void)at;
    return ENOSYS;
}

#endif
