/* index_set.h -- a set of whole numbers below n that finds its neighbours: words of bits, and words that say which words
 * are not 0, up to one word. All operations take O(log n / 6). */
#ifndef ORTH_BASE_INDEX_SET_H
#define ORTH_BASE_INDEX_SET_H

#include "base/arena.h"

#define ORTH_INDEX_SET_LEVELS 6 /* 64^6 > 2^32 */

typedef struct {
    uint64_t *bits[ORTH_INDEX_SET_LEVELS];
    int num_levels;
} orth_index_set;

/* Empty, for numbers in [0, n). Lives in the arena. ORTH_ERR_NOMEM. */
orth_status orth_index_set_make(orth_ctx *ctx, orth_arena *arena, orth_index_set *out, int64_t n);
void orth_index_set_add(orth_index_set *s, int64_t i);
void orth_index_set_remove(orth_index_set *s, int64_t i);
static inline bool orth_index_set_has(const orth_index_set *s, int64_t i)
{
    return s->bits[0][i / 64] >> (i % 64) & 1;
}
/* The least member >= i, the greatest <= i; -1: none. i in [0, n). */
int64_t orth_index_set_at_or_above(const orth_index_set *s, int64_t i);
int64_t orth_index_set_at_or_below(const orth_index_set *s, int64_t i);

#endif
