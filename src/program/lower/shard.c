/* shard.c -- see shard.h. */
#include "program/lower/shard.h"

#include "tensor/q8.h"

int64_t orth_param_rows(const orth_param_desc *p)
{
    return p->dim[0];
}

int64_t orth_param_cols(const orth_param_desc *p)
{
    return p->num_dims > 1 ? p->dim[1] : 1;
}

int64_t orth_param_elems_here(const orth_param_desc *p)
{
    return orth_param_rows(p) * orth_param_cols(p);
}

int64_t orth_param_block_rows(const orth_param_desc *p)
{
    return ORTH_MAX(1, ORTH_NORM_BLOCK / p->whole_cols);
}

int32_t orth_param_col_parts(const orth_param_desc *p)
{
    return p->split_dim == 1 ? p->split.parts : 1;
}

int32_t orth_param_row_parts(const orth_param_desc *p)
{
    return p->split_dim == 0 ? p->num_parts + (p->replica_rows > 0) : 1;
}

void orth_param_row_part(const orth_param_desc *p, int32_t part, int64_t *begin, int64_t *end)
{
    *begin = 0;
    *end = p->dim[0];
    if (p->split_dim != 0)
        return;
    if (p->replica_rows > 0 && part-- == 0) {
        *end = p->replica_rows;
        return;
    }
    int64_t base = orth_split_bound(&p->split, p->first_part) - p->replica_rows;
    *begin = orth_split_bound(&p->split, p->first_part + part) - base;
    *end = orth_split_bound(&p->split, p->first_part + part + 1) - base;
}

int64_t orth_param_blocks_before(const orth_param_desc *p, int32_t part)
{
    int64_t blocks = 0;
    if (p->split_dim != 0)
        return part ? orth_param_num_blocks(p) : 0;
    for (int32_t q = 0; q < p->first_part + part - (p->replica_rows > 0); q++)
        blocks += orth_div_up(orth_split_bound(&p->split, q + 1) - orth_split_bound(&p->split, q),
                              orth_param_block_rows(p));
    return blocks;
}

int64_t orth_param_num_blocks(const orth_param_desc *p)
{
    int64_t blocks = 0;
    if (p->split_dim != 0)
        return orth_div_up(p->dim[0], orth_param_block_rows(p));
    for (int32_t q = 0; q < p->split.parts; q++)
        blocks += orth_div_up(orth_split_bound(&p->split, q + 1) - orth_split_bound(&p->split, q),
                              orth_param_block_rows(p));
    return blocks;
}

int64_t orth_param_num_sums(const orth_param_desc *p)
{
    return p->frozen ? 0 : orth_param_num_blocks(p) * orth_param_col_parts(p);
}

orth_zero_rows orth_zero_shard_rows(const orth_param_desc *p, const orth_zero_shard *s, int32_t part)
{
    const int64_t cols = orth_param_cols(p), step = orth_param_block_rows(p), sums = orth_param_col_parts(p);
    int64_t begin, end;
    orth_param_row_part(p, part, &begin, &end);
    const int64_t from = ORTH_MAX(begin, s->first / cols), to = ORTH_MIN(end, (s->first + s->count) / cols);
    if (from >= to)
        return (orth_zero_rows){.begin = s->first / cols};
    return (orth_zero_rows){from, to - from, (orth_param_blocks_before(p, part) + (from - begin) / step) * sums,
                            orth_div_up(to - from, step) * sums};
}

orth_zero_shard orth_shard_of_type(const orth_zero_shard *s, int32_t rank, orth_dtype t)
{
    const int64_t each = orth_dtype_numbers(t);
    orth_zero_shard of_type = {.first = each > 1 ? 0 : s->first, .count = orth_div_up(s->count, each), .counts = s->counts};
    for (int32_t r = 0; each > 1 && s->counts && r < rank; r++)
        of_type.first += orth_div_up(s->counts[r], each);
    return of_type;
}

orth_zero_shard orth_shard_scales(const orth_param_desc *p, const orth_zero_shard *s)
{
    const orth_param_desc scales = orth_param_scales(p);
    const int64_t cols = orth_param_cols(p);
    return (orth_zero_shard){.first = s->first / cols * scales.dim[1], .count = s->count / cols * scales.dim[1]};
}

int64_t orth_param_piece_elems(const orth_param_desc *p, int64_t piece_elems)
{
    const int64_t cols = orth_param_cols(p);
    return p->moments_8bit ? ORTH_MAX(piece_elems / cols, 1) * cols : piece_elems;
}

/* Who owns what lies at `at` of `total` elements. */
static int32_t owner_of(const orth_deal *d, double at, int64_t total)
{
    return ORTH_MIN((int32_t)(at / (double)total * d->num_owners), d->num_owners - 1);
}

/* Adds this rank's blocks of p to the owners' counts. *at: elements of the parameters before. */
static void deal_blocks(const orth_deal *d, const orth_param_desc *p, int64_t *counts, int64_t *at, int64_t total)
{
    int64_t step = orth_param_block_rows(p), cols = orth_param_cols(p);
    for (int32_t q = 0; q < orth_param_row_parts(p); q++) {
        int64_t begin, end;
        orth_param_row_part(p, q, &begin, &end);
        for (int64_t r = begin; r < end; r += step) {
            int64_t n = ORTH_MIN(step, end - r) * cols;
            counts[owner_of(d, (double)*at, total)] += n;
            *at += n;
        }
    }
}

/* Elements dealt out with parameter `first` from there on: of its unit, or of all. */
static int64_t elems_from(const orth_deal *d, int64_t first, bool of_unit)
{
    int64_t n = 0;
    for (int64_t i = first; i < d->num_params && (!of_unit || d->unit[i] == d->unit[first]); i++)
        n += d->dealt[i] && i != d->shared && d->params[i].frozen == d->params[first].frozen ? orth_param_elems_here(&d->params[i]) : 0;
    return n;
}

/* What is dealt out together: parameters that are trained, those that are not, or the shared one. */
typedef struct {
    int64_t total, at;             /* elements, and those dealt out so far */
    int32_t unit, owner;           /* of the last parameter; unit -1: there was none */
} hand;

/* Whether parameter i begins another unit. */
static bool begins_unit(const orth_deal *d, int64_t i, hand *h)
{
    const bool begins = d->unit && i != d->shared && d->unit[i] != h->unit;
    if (begins)
        h->unit = d->unit[i];
    return begins;
}

/* Parameter i goes to the owner of its unit: the rank on which the middle of the unit falls. */
static void deal_whole(const orth_deal *d, int64_t i, int64_t *counts, hand *h)
{
    if (begins_unit(d, i, h)) {
        h->owner = owner_of(d, (double)h->at + (double)elems_from(d, i, true) / 2, h->total);
    }
    counts[h->owner] = orth_param_elems_here(&d->params[i]);
    h->at += counts[h->owner];
}

orth_status orth_shards_make(orth_ctx *ctx, orth_arena *arena, const orth_deal *d, int32_t rank, orth_zero_shard **out)
{
    orth_zero_shard *shards = ORTH_ARENA_ARRAY(ctx, arena, orth_zero_shard, d->num_params);
    hand hands[3] = {{.unit = -1}, {.unit = -1}, {.unit = -1}};
    if (!shards)
        return ORTH_ERR_NOMEM;
    for (int64_t i = 0; i < d->num_params; i++) {
        hand *h = &hands[i == d->shared ? 2 : d->params[i].frozen];
        int64_t *counts = ORTH_ARENA_ARRAY(ctx, arena, int64_t, d->num_ranks);
        if (!counts)
            return ORTH_ERR_NOMEM;
        const bool anew = d->dealt[i] && !d->whole && begins_unit(d, i, h);
        if (anew)
            h->at = 0;
        if (d->dealt[i] && h->at == 0)
            h->total = i == d->shared ? orth_param_elems_here(&d->params[i]) : elems_from(d, i, anew);
        if (d->dealt[i] && d->whole)
            deal_whole(d, i, counts, h);
        else if (d->dealt[i])
            deal_blocks(d, &d->params[i], counts, &h->at, h->total);
        shards[i] = (orth_zero_shard){.count = counts[rank], .counts = counts};
        for (int32_t r = 0; r < rank; r++)
            shards[i].first += counts[r];
    }
    *out = shards;
    return ORTH_OK;
}
