/* scratch.h -- a file without a name, in which a run keeps what does not fit into memory.
 *
 * It is gone when it is closed, at the latest with the process, however that ends: nothing is ever left in the folder. Its room on the
 * disk is taken when it is opened, where the file system can do that, so that a full disk is found before the first step.
 */
#ifndef ORTH_BASE_SCRATCH_H
#define ORTH_BASE_SCRATCH_H

#include "base/ctx.h"

typedef struct {
    int fd;
    const char *dir;      /* the caller's; for messages */
    size_t bytes;
} orth_scratch;

/* Zero bytes in folder `dir`. ORTH_ERR_IO with the folder and the system's reason, ORTH_ERR_NOSPACE where that is a lack of room (all
 * calls); *out is set, and to be closed, only on success. */
orth_status orth_scratch_open(orth_ctx *ctx, orth_scratch *out, const char *dir, size_t num_bytes);
void orth_scratch_close(orth_scratch *s);

/* Bytes [at, at + n), by any thread; ctx is that of the thread. A write is a fault point (ctx->faults->write). */
orth_status orth_scratch_read(orth_ctx *ctx, const orth_scratch *s, size_t at, void *bytes, size_t n);
orth_status orth_scratch_write(orth_ctx *ctx, const orth_scratch *s, size_t at, const void *bytes, size_t n);

/* Returns when what was written is on the device. */
orth_status orth_scratch_sync(orth_ctx *ctx, const orth_scratch *s);

/* Free bytes of the folder's file system; 0: not known. */
size_t orth_scratch_free_bytes(const char *dir);

/* What the file takes of the disk. */
size_t orth_scratch_disk_bytes(const orth_scratch *s);
#endif
