/* scratch.h -- a file without a name, in which a run keeps what does not fit into memory.
 *
 * It is gone when it is closed, at the latest with the process, however that ends: nothing is ever left in the folder. Its room on the
 * disk is taken when it is opened, where the file system can do that, so that a full disk is found before the first step.
 *
 * Whole blocks pass the page cache by (file_ring.h), so that a file larger than memory takes none of it; the ends of a range, which
 * share their blocks with others, do not. Every block of a transfer goes one of the two ways, and the system keeps both views of a file alike.
 */
#ifndef ORTH_BASE_SCRATCH_H
#define ORTH_BASE_SCRATCH_H

#include "base/file_ring.h"

typedef enum {
    ORTH_FILE_IO_AUTO = 0,  /* past the page cache where that is possible */
    ORTH_FILE_IO_DIRECT,    /* past the page cache, or not at all */
    ORTH_FILE_IO_BUFFERED   /* through the page cache */
} orth_file_io;

typedef struct {
    int fd;
    const char *dir;        /* the caller's; for messages */
    size_t bytes;
    orth_file_ring *ring;   /* NULL: all bytes go through the page cache, */
    char why[ORTH_FILE_WHY_MAX]; /* for this reason; "": as asked */
    void *room;             /* of the ring, */
    size_t room_bytes;      /* which is taken even where there is none, so that a plan need not know the file system */
} orth_scratch;

/* Zero bytes in folder `dir`. ORTH_ERR_IO with the folder and the system's reason, ORTH_ERR_NOSPACE where that is a lack of room (all
 * calls), ORTH_ERR_NOMEM; *out is set, and to be closed, only on success. */
orth_status orth_scratch_open(orth_ctx *ctx, orth_scratch *out, const char *dir, size_t num_bytes, orth_file_io io);
void orth_scratch_close(orth_scratch *s);

/* Memory that an open file takes. */
size_t orth_scratch_room(orth_file_io io);

/* "past the page cache (io_uring, O_DIRECT)", or "through the page cache" and why; and whether the folder is a tmpfs. */
#define ORTH_SCRATCH_WORDS_MAX 224
void orth_scratch_words(const orth_scratch *s, char out[ORTH_SCRATCH_WORDS_MAX]);

/* Bytes [at, at + n), by any thread; ctx is that of the thread. A write is a fault point (ctx->faults->write). */
orth_status orth_scratch_read(orth_ctx *ctx, const orth_scratch *s, size_t at, void *bytes, size_t n);
orth_status orth_scratch_write(orth_ctx *ctx, const orth_scratch *s, size_t at, const void *bytes, size_t n);

/* Returns when what was written is on the device, and is in no page cache. */
orth_status orth_scratch_sync(orth_ctx *ctx, const orth_scratch *s);

/* Free bytes of the folder's file system; 0: not known. */
size_t orth_scratch_free_bytes(const char *dir);

/* What the file takes of the disk. */
size_t orth_scratch_disk_bytes(const orth_scratch *s);
#endif
