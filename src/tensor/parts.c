/* parts.c -- see parts.h. */
#include "tensor/parts.h"

#include <stdbool.h>

int64_t orth_fold_begin(int64_t T, int parts, int slot)
{
    int64_t row = 0;
    for (int j = 0; j < slot; j++) {
        int p = orth_fold_part(parts, j);
        row += orth_part_begin(T, parts, p + 1) - orth_part_begin(T, parts, p);
    }
    return row;
}

int64_t orth_fold_row(int64_t T, int parts, int64_t pos)
{
    int p = (int)(pos * parts / T);
    while (orth_part_begin(T, parts, p + 1) <= pos)
        p++;
    while (orth_part_begin(T, parts, p) > pos)
        p--;
    int slot = p < (parts + 1) / 2 ? 2 * p : 2 * (parts - p) - 1;
    return orth_fold_begin(T, parts, slot) + pos - orth_part_begin(T, parts, p);
}

int64_t orth_fold_pos(int64_t T, int parts, int64_t row)
{
    for (int slot = 0; slot < parts; slot++) {
        int p = orth_fold_part(parts, slot);
        int64_t n = orth_part_begin(T, parts, p + 1) - orth_part_begin(T, parts, p);
        if (row < n)
            return orth_part_begin(T, parts, p) + row;
        row -= n;
    }
    return T;
}

/* Bound of part i of all. */
static int64_t whole_bound(const orth_split *s, int32_t of, int64_t i)
{
    int64_t u = orth_part_begin(s->units, of, (int)i);
    if (s->kind == ORTH_SPLIT_QKV)
        return s->unit * (u + 2 * ((u + s->group - 1) / s->group));
    return s->unit * u;
}

int64_t orth_split_replica(const orth_split *s, int64_t first, int64_t *begin)
{
    int64_t head = orth_part_begin(s->units, s->of ? s->of : s->parts, (int)first);
    bool within = s->kind == ORTH_SPLIT_QKV && head % s->group != 0;
    *begin = within ? s->unit * (head / s->group) * (s->group + 2) : 0;
    return within ? 2 * s->unit : 0;
}

int64_t orth_split_bound(const orth_split *s, int64_t i)
{
    if (s->kind == ORTH_SPLIT_TOKENS)
        return i / s->parts * s->units + orth_fold_begin(s->units, s->parts, (int)(i % s->parts));
    int32_t of = s->of ? s->of : s->parts;
    return whole_bound(s, of, s->first + i) - (s->first ? whole_bound(s, of, s->first) : 0);
}
