/* arena.h -- memory that dies together: bump allocation from chunks, released at once.
 *
 * For building things (graphs, programs, parsed files): error paths become a plain `return`.
 * The buffers of a training step do not live here: program/place gives them fixed offsets.
 */
#ifndef ORTH_BASE_ARENA_H
#define ORTH_BASE_ARENA_H

#include "base/ctx.h"

typedef struct orth_arena_chunk orth_arena_chunk;
typedef struct {
    orth_arena_chunk *chunks;
} orth_arena; /* zero-initialised: ready */

/* Zero-filled, 64-byte aligned; NULL with the error recorded in ctx. Lives until release. */
void *orth_arena_alloc(orth_ctx *ctx, orth_arena *a, size_t num_bytes);
char *orth_arena_printf(orth_ctx *ctx, orth_arena *a, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
void orth_arena_release(orth_ctx *ctx, orth_arena *a);

#define ORTH_ARENA_ARRAY(ctx, a, type, n) ((type *)orth_arena_alloc((ctx), (a), (size_t)(n) * sizeof(type)))

#endif
