/* pack.h -- first fit in time and space: each block of bytes at the lowest offset that is free during its whole life.
 *
 * The search is near linear in the blocks: time is a binary tree over slices of the program, and a node keeps which
 * offsets are taken somewhere in its time, and which all of its time. Both are unions of intervals, which stay short
 * because blocks are packed densely. So a block of n is compared with O(log n) short lists, however long it lives and
 * however many others do.
 */
#ifndef ORTH_PROGRAM_PACK_H
#define ORTH_PROGRAM_PACK_H

#include "base/arena.h"

typedef struct {
    int32_t first, last;  /* instructions of its life, both included */
    int32_t buffer;       /* the caller's */
    size_t bytes, offset;
} orth_pack_block;

/* Sets the offsets of n blocks, one after the other in their order; *height: where the highest ends. Once that is `limit` or
 * more, no further offsets are set. Lives lie in [0, num_instrs). ORTH_ERR_NOMEM. */
orth_status orth_pack(orth_ctx *ctx, orth_pack_block *blocks, int32_t n, int32_t num_instrs, size_t limit, size_t *height);

#endif
