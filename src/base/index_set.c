/* index_set.c -- see index_set.h. Bit i of a level says whether word i of the level below it is not 0. */
#include "base/index_set.h"

orth_status orth_index_set_make(orth_ctx *ctx, orth_arena *arena, orth_index_set *out, int64_t n)
{
    *out = (orth_index_set){.num_levels = 0};
    do {
        n = ORTH_MAX(orth_div_up(n, 64), 1);
        uint64_t *words = ORTH_ARENA_ARRAY(ctx, arena, uint64_t, n + 1); /* the last stays 0: looking upwards may touch it */
        if (!words)
            return ORTH_ERR_NOMEM;
        out->bits[out->num_levels++] = words;
    } while (n > 1);
    return ORTH_OK;
}

void orth_index_set_add(orth_index_set *s, int64_t i)
{
    for (int l = 0; l < s->num_levels; l++, i /= 64)
        s->bits[l][i / 64] |= (uint64_t)1 << (i % 64);
}

void orth_index_set_remove(orth_index_set *s, int64_t i)
{
    for (int l = 0; l < s->num_levels; l++, i /= 64) {
        s->bits[l][i / 64] &= ~((uint64_t)1 << (i % 64));
        if (s->bits[l][i / 64])
            return;
    }
}

/* Up to the first level where a word has a bit on the right side, and down from there. */
int64_t orth_index_set_at_or_above(const orth_index_set *s, int64_t i)
{
    for (int l = 0; l < s->num_levels; l++, i = i / 64 + 1) {
        const uint64_t word = s->bits[l][i / 64] & (~(uint64_t)0 << (i % 64));
        if (!word)
            continue;
        i = i / 64 * 64 + __builtin_ctzll(word);
        while (l-- > 0)
            i = i * 64 + __builtin_ctzll(s->bits[l][i]);
        return i;
    }
    return -1;
}

int64_t orth_index_set_at_or_below(const orth_index_set *s, int64_t i)
{
    for (int l = 0; l < s->num_levels && i >= 0; l++, i = i / 64 - 1) {
        const uint64_t word = s->bits[l][i / 64] & (~(uint64_t)0 >> (63 - i % 64));
        if (!word)
            continue;
        i = i / 64 * 64 + 63 - __builtin_clzll(word);
        while (l-- > 0)
            i = i * 64 + 63 - __builtin_clzll(s->bits[l][i]);
        return i;
    }
    return -1;
}
