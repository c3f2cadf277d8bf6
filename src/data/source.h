/* source.h -- the bytes of one input, front to back: a file, standard input or bytes in memory; gzip and zstd
 * streams are decompressed on the way (found by their first bytes, whatever the name is).
 *
 * Memory: a buffer of 256 KiB and the window of the format (gzip 32 KiB, zstd at most 128 MiB), however much
 * comes out of it.
 */
#ifndef ORTH_DATA_SOURCE_H
#define ORTH_DATA_SOURCE_H

#include "base/ctx.h"

typedef struct orth_source orth_source;

/* `path`: a regular file, or "-" for standard input. ORTH_ERR_IO, ORTH_ERR_NOMEM. */
orth_status orth_source_open(orth_ctx *ctx, orth_source **out, const char *path);
/* Bytes that outlive *out; `name` is for messages. */
orth_status orth_source_from_memory(orth_ctx *ctx, orth_source **out, const char *name, const void *bytes,
                                    size_t num_bytes);
void orth_source_close(orth_ctx *ctx, orth_source *s); /* NULL is fine */

/* "standard input" for "-", else the path. */
const char *orth_source_name(const orth_source *s);
/* Fills `to` with the next `room` bytes; fewer only at the end. ORTH_ERR_IO; ORTH_ERR_DATA with name and offset for a
 * stream that is damaged or ends early, or bytes behind its end. */
orth_status orth_source_read(orth_ctx *ctx, orth_source *s, char *to, size_t room, size_t *out_bytes);

#endif
