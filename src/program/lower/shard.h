/* shard.h -- blocks of parameters: what squares are summed over, and what ZeRO deals out.
 *
 * A block is a run of rows of a parameter (a vector is one column) of about ORTH_NORM_BLOCK elements of
 * the whole parameter. Blocks begin anew at the canonical parts of a dim that tensor parallelism may
 * split, so that they are the same for every degree of it.
 * ZeRO (Rajbhandari et al., arXiv:1910.02054) deals the blocks of a rank's parameters, one after the
 * other, out to the ranks of a shard group in contiguous runs of nearly equal size. A parameter may lie on
 * one rank, or on several, or a rank may have nothing of it. Where layers are gathered one by one, each layer is dealt out by itself, so that all
 * ranks have as much of it to send, and to bring from another space. Or whole layers are dealt out, so that an owner gives each to the others.
 */
#ifndef ORTH_PROGRAM_SHARD_H
#define ORTH_PROGRAM_SHARD_H

#include "program/lower/compile.h"

int64_t orth_param_rows(const orth_param_desc *p);  /* on this rank */
int64_t orth_param_cols(const orth_param_desc *p);  /* on this rank; 1 for vectors */
int64_t orth_param_elems_here(const orth_param_desc *p);
int64_t orth_param_block_rows(const orth_param_desc *p);
/* Column parts of a block that have sums of their own, of the whole parameter. */
int32_t orth_param_col_parts(const orth_param_desc *p);
/* Row parts on this rank, and the rows [begin, end) of one of them here. Rows that count as another rank's are a part
 * in front of the others. */
int32_t orth_param_row_parts(const orth_param_desc *p);
void orth_param_row_part(const orth_param_desc *p, int32_t part, int64_t *begin, int64_t *end);
/* Blocks of the whole parameter before row part `part` of this rank; part = orth_param_row_parts: before
 * what follows this rank's. */
int64_t orth_param_blocks_before(const orth_param_desc *p, int32_t part);
/* Blocks of the whole parameter. */
int64_t orth_param_num_blocks(const orth_param_desc *p);
/* Sums of squares of its whole gradient: of each block and column part; 0: it is frozen. */
int64_t orth_param_num_sums(const orth_param_desc *p);

typedef struct {
    int64_t first, count;          /* this rank's elements of what the tensor-parallel rank holds */
    const int64_t *counts;         /* [num_ranks] of all ranks, in order */
} orth_zero_shard;

/* The shard of rank `rank` in elements of another type: of Q8 each shard has blocks of its own, those of the ranks one after the other. */
orth_zero_shard orth_shard_of_type(const orth_zero_shard *s, int32_t rank, orth_dtype t);

/* The scales that go with a shard of a parameter whose moments are in 8 bits (param.h): shards are whole rows. */
orth_zero_shard orth_shard_scales(const orth_param_desc *p, const orth_zero_shard *s);

/* Elements of a piece, where the update works piece by piece (offload.c): piece_elems. Of a parameter whose moments are in 8 bits whole rows,
 * as many as fit and at least one: elements that share a scale are in one row. */
int64_t orth_param_piece_elems(const orth_param_desc *p, int64_t piece_elems);

/* Rows of row part `part` that are in the shard, and their sums of squares among those of the whole parameter. */
typedef struct {
    int64_t begin, count;          /* rows on this rank */
    int64_t first_sum, num_sums;
} orth_zero_rows;
orth_zero_rows orth_zero_shard_rows(const orth_param_desc *p, const orth_zero_shard *s, int32_t part);

/* What is dealt out to whom. Frozen parameters are dealt out apart from the others, whose optimizer state goes with them. Parameter
 * `shared` (-1: none) is dealt out by itself: another stage of the pipeline has it, too, beside other parameters, and must cut it alike. */
typedef struct {
    const orth_param_desc *params;
    int64_t num_params, shared;
    const bool *dealt;             /* [num_params] */
    const int32_t *unit;           /* [num_params] ascending: parameters with the same number, a layer, are dealt out together; NULL: all are */
    bool whole;                    /* a unit goes to one owner; else its blocks are dealt out */
    int32_t num_ranks, num_owners; /* the first num_owners ranks of a shard group of num_ranks */
} orth_deal;

/* Arrays from `arena`. ORTH_ERR_NOMEM. */
orth_status orth_shards_make(orth_ctx *ctx, orth_arena *arena, const orth_deal *d, int32_t rank, orth_zero_shard **out);

#endif
