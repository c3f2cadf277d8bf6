/* attention.h -- the numbers of attention: what the plain and the fast kernels must agree on.
 *
 * Letters as in ops.def. A query row at position p sees the keys k of its sequence in [doc, p].
 *
 * Forward, per row, from m = -inf, l = 0, o = 0; for each block of ORTH_ATTN_BLOCK key positions that
 * holds a visible key, ascending:
 *     t_k = chain fma(q_d, k_d, .) over d ascending, from 0
 *     m'  = c * max t_k if that is above m + 8, else m;   a = 2^(m - m'), 1 if m is -inf;   m = m'
 *     e_k = 2^fma(t_k, c, -m), 0 where k is not visible
 *     l   = fma(l, a, sum16(e))
 *     o_d = chain fma(drop_k * e_k, v_kd, .) over k ascending, from o_d * a
 * with c = scale * log2(e), then o_d = o_d / l + 0 (so that a zero has one sign), lse = fma(m, ln 2, log(l)).
 * sum16(e): lane i of 16 = chain over e_i, e_(i+16), ...; lanes are folded i + (i+8), +4, +2, +1.
 *
 * Backward: p = 2^fma(chain, c, -(lse * log2(e))); dp = drop_k * (chain fma(do_d, v_kd) over d);
 *     delta = sum16 of the products do_d*o_d (chains of fma); ds = p * fma(dp, scale, -(delta * scale));
 *     dq_d += ds*k_d over k ascending; dk_d += ds*q_d and dv_d += drop*p*do_d as in ops.def.
 *
 * A term of a key that is not visible is exactly 0 and may be added or left out: from finite
 * values both give the same number (the last +0 removes the only trace, the sign of a zero). So
 * tiles may cover masked corners, and blocks may be skipped.
 *
 * With AVX512_BF16 or AMX and bf16 operands the products are chains of the processor's instruction (gemm_chain.h)
 * over pairs, or groups of 32, of the index named above: of d from 0, of keys from the start of their block, of queries
 * from the start of their chunk, of which a part and head has one per ORTH_ATTN_BLOCK. e, p, ds are rounded to bf16
 * before they enter one; everything else is the same. At ORTH_ISA_AMX_BF16X6 the products of fp32 are such chains too, six
 * for each group (bf16x6 of gemm_chain.h, with q and do as `a` in dk and dv), of which nothing has been rounded to bf16.
 */
#ifndef ORTH_KERNELS_ATTENTION_H
#define ORTH_KERNELS_ATTENTION_H

#include "base/rng.h"
#include "kernels/sums.h"

/* A maximum moves only when it has grown by more than so much, so that most blocks leave o and l as they are. Sums of
 * powers of 2 have the same precision for it, and no e_k exceeds 2^8 times what it would be. */
#define ORTH_ATTN_SLACK 8.0f

#define ORTH_LOG2E 1.44269504f
#define ORTH_LN2 0.693147181f

/* Columns of a fused qkv row. */
static inline int64_t orth_attn_q_col(const orth_attr *a, int h)
{
    return (int64_t)a->head_dim * (h + 2 * (h / (a->heads / a->kv_heads) + 1));
}

static inline int64_t orth_attn_k_col(const orth_attr *a, int g)
{
    return (int64_t)a->head_dim * g * (a->heads / a->kv_heads + 2);
}

static inline int64_t orth_attn_v_col(const orth_attr *a, int g)
{
    return orth_attn_k_col(a, g) + a->head_dim;
}

static inline int64_t orth_attn_qkv_cols(const orth_attr *a)
{
    return (int64_t)a->head_dim * (a->heads + 2 * a->kv_heads);
}

/* Heads [*first, *last) of H + KV, query heads first, that belong to part i of the query heads (attr.split);
 * kv: the key heads of it. A key head belongs with the first query head of its group. */
static inline void orth_head_part(const orth_attr *a, int i, bool kv, int *first, int *last)
{
    const int group = a->heads / a->kv_heads, begin = (int)orth_split_bound(&a->split, i),
              end = (int)orth_split_bound(&a->split, i + 1);
    *first = kv ? a->heads + (begin + group - 1) / group : begin;
    *last = kv ? a->heads + (end + group - 1) / group : end;
    if (kv && a->replica_rows > 0)
        *last = *first;
}

/* Parts of the query heads of a group that the sums dk and dv are made of: as many as tensor parallelism may ever
 * spread them over, all of one size. */
static inline int orth_attn_head_parts(int64_t heads, int64_t kv_heads, int parts)
{
    int n = 1;
    while (heads / kv_heads % (2 * n) == 0 && parts % (2 * n * kv_heads) == 0)
        n *= 2;
    return n;
}

/* Leaves of the tree that makes dk and dv: token slots, in each the parts of the heads. */
static inline int orth_attn_leaf_heads(const orth_attr *a)
{
    return a->heads / a->kv_heads / ORTH_MAX(a->head_parts, 1);
}

/* Where the rows of a call lie: whole sequences, or queries of some token slots beside all keys. */
typedef struct {
    int64_t rows, len;           /* of a sequence: rows of queries here, tokens in all */
    int64_t first_row;           /* storage row of the first query in the whole sequence */
    int slot_begin, slot_end, parts;
    int64_t kv_stride, kv_step;  /* elements from token to token, from kv head to kv head; v_g is k_g + D */
} orth_attn_place;

static inline orth_attn_place orth_attn_whole(const orth_attr *a)
{
    const int64_t R = orth_attn_qkv_cols(a);
    return (orth_attn_place){a->seq_len, a->seq_len, 0, 0, a->token_parts, a->token_parts, R, R / a->kv_heads};
}

static inline orth_attn_place orth_attn_part(const orth_attr *a)
{
    return (orth_attn_place){a->seq_len, a->full_len, orth_fold_begin(a->full_len, a->token_parts, a->slot_begin),
                             a->slot_begin, a->slot_begin + a->slot_count, a->token_parts,
                             (int64_t)2 * a->kv_heads * a->head_dim, (int64_t)2 * a->head_dim};
}

/* Row of kv_blocks that has the keys of row r of sequence b. */
static inline int64_t orth_attn_block_row(const orth_attr *a, int64_t b, int64_t r)
{
    const orth_attn_place l = orth_attn_part(a);
    const int64_t half = l.rows / 2, front = l.slot_begin / a->slot_count * half;
    const int64_t pos = orth_fold_pos(l.len, l.parts, l.first_row + r);
    return pos < l.len / 2 ? b * half + pos - front : (a->num_seqs + b) * half + pos - (l.len - front - half);
}

/* Position of query row r of a sequence. */
static inline int64_t orth_attn_pos(const orth_attn_place *l, int64_t r)
{
    return orth_fold_pos(l->len, l->parts, l->first_row + r);
}

/* Storage row of each position of a whole sequence, into row[len]. */
static inline void orth_attn_find_rows(const orth_attn_place *l, int32_t *row)
{
    int32_t next = 0;
    for (int slot = 0; slot < l->parts; slot++) {
        const int p = orth_fold_part(l->parts, slot);
        const int64_t end = orth_part_begin(l->len, l->parts, p + 1);
        for (int64_t pos = orth_part_begin(l->len, l->parts, p); pos < end; pos++)
            row[pos] = next++;
    }
}

/* What is carried from block to block lies in output `out`; in lowered programs it is the memory of input `in` already. */
static inline void orth_attn_carry(const orth_op_call *call, int in, int out)
{
    const orth_tensor *from = &call->in[in], *to = &call->out[out];
    if (from->data && from->data != to->data)
        memcpy(to->data, from->data, orth_tensor_bytes(to));
}

/* Which random numbers a row draws for its dropped probabilities. */
typedef struct {
    uint64_t seed, hi, lo;
    float rate, keep_scale;
} orth_attn_drop;

/* head: of the whole model; seq: in the global batch (< 2^24); positions < 2^20. */
static inline orth_attn_drop orth_attn_drop_row(const orth_attr *a, const orth_step_values *step, int h,
                                                int32_t seq, int64_t q_pos)
{
    uint32_t place = (uint32_t)a->site + ((uint32_t)(a->first_head + h) << 16);
    return (orth_attn_drop){step->seed, (uint64_t)place << 32 | (uint32_t)step->step,
                            (uint64_t)(uint32_t)seq << 40 | (uint64_t)q_pos << 18, a->dropout,
                            1.0f / (1.0f - a->dropout)};
}

/* Factors of the 4 keys from k_pos on, which is a multiple of 4: 0 or 1/(1-rate). */
static inline void orth_attn_drop_keys(const orth_attn_drop *row, int64_t k_pos, float factor[4])
{
    orth_rand4 r = orth_philox(row->seed, ORTH_STREAM_DROPOUT, row->hi, row->lo + (uint64_t)k_pos / 4);
    for (int i = 0; i < 4; i++)
        factor[i] = orth_rand_unit(r.v[i]) >= row->rate ? row->keep_scale : 0.0f;
}

#endif
