/* file_ring.h -- whole blocks of a file past the page cache: requests of io_uring on a descriptor with O_DIRECT.
 *
 *   memory --copied--> buffers --requests, several in flight--> device, and back
 *
 * O_DIRECT wants offsets, lengths and addresses that are multiples of the device's block. Only the buffers' addresses are; tensors lie
 * anywhere. The caller cuts off what is less than a block at both ends (scratch.c).
 *
 * A request that comes back short, or that a signal cut off, is finished by pread or pwrite, which also finds out why it came short.
 */
#ifndef ORTH_BASE_FILE_RING_H
#define ORTH_BASE_FILE_RING_H

#include "base/ctx.h"

#define ORTH_FILE_BLOCK ((size_t)4096)     /* offsets and lengths are multiples of it */
#define ORTH_FILE_WHY_MAX 96

typedef struct orth_file_ring orth_file_ring;

/* What a ring wants of memory, for its buffers and for itself; 0 in a program that was built without liburing. */
size_t orth_file_ring_room(void);

/* fd: of a file of `bytes` bytes. room: zeroed pages. Both outlive the ring. NULL, with the reason in `why`, where the file system refuses
 * O_DIRECT, or the system io_uring, or does not complete a request within 10 s. */
orth_file_ring *orth_file_ring_open(int fd, size_t bytes, char *room, char why[ORTH_FILE_WHY_MAX]);
void orth_file_ring_close(orth_file_ring *r); /* NULL is fine */

/* Whether a request was given up that the system may still complete: it then writes to these pages, which stay mapped after the ring. */
bool orth_file_ring_keeps(const char *room); /* NULL is fine */

/* Whole blocks [at, at + n) of the file, by one thread at a time. 0, or the errno of the first failure (ETIMEDOUT: no request was
 * completed for 300 s). Nothing is under way afterwards, unless the ring keeps its room. */
int orth_file_ring_move(orth_file_ring *r, bool write, char *bytes, size_t n, size_t at);

/* Any bytes, by pread and pwrite. 0 or errno; EIO where the file ends before. */
int orth_file_move_plain(int fd, bool write, char *bytes, size_t n, size_t at);

#endif
