/* attention_bwd.h -- gradients of attention: what one head and one key block are made of.
 *
 * attention_bwd.c shares the work out; attention_bwd_block.c does it.
 * A chunk is up to KB queries of one fold slot and head, so both its storage rows and its positions are
 * consecutive. Chunks lie in the order of the sum that makes dk and dv: slots, heads of the group, positions.
 * Query and key blocks need not be aligned to each other here.
 */
#ifndef ORTH_KERNELS_CPU_ATTENTION_BWD_H
#define ORTH_KERNELS_CPU_ATTENTION_BWD_H

#include <stdatomic.h>

#include "kernels/cpu/attention_micro.h"

/* Key blocks that a thread works through side by side. The chunks of a group of heads are more than an L2 holds: each
 * way through them serves so many blocks. */
#define ORTH_ATTN_SPAN 4

typedef struct {
    int32_t slot, row, rows;  /* rows [row, row + rows) of queries of the sequence */
    int32_t pos;              /* position of the first */
    int32_t head;             /* of the group */
} orth_attn_chunk;

typedef struct {
    const orth_attr *attr;
    const orth_attn_micro *micro;
    orth_dtype type;
    size_t esize;
    orth_attn_place l;
    int64_t R, Dp;
    const char *dout, *qkv, *kv, *o;
    const float *lse;
    const int32_t *doc, *seq;
    const orth_step_values *step;
    char *dqkv, *dkv;            /* dkv: of type kv_type, placed as kv */
    orth_dtype kv_type;
    int64_t key_begin, key_end;  /* positions of the keys of the call */
    int64_t kv_rows;             /* of a sequence in kv */
    float *dq;                   /* carried from call to call instead of dqkv; NULL: all keys are here */
    bool begun;                  /* dq holds something */
    const orth_attn_chunk *chunks;
    int num_chunks;
    const int32_t *row_of_pos;   /* of keys; NULL: position - key_begin */
    uintptr_t scratch;
    size_t scratch_bytes;
} orth_attn_bwd;

/* Threads that share a kv head: each takes key blocks in ascending order, and key block j may add to dq of
 * chunk c when done[c] == j. Only earlier key blocks are waited for, and those were taken earlier. */
typedef struct {
    _Atomic int32_t next;
    _Atomic int32_t *done;    /* [chunks] */
} orth_attn_team;

/* What a thread works in. Packed forms: attention_micro.h. The first part belongs to a kv head. */
typedef struct {
    char *q_rows, *q_inner, *do_rows, *do_inner; /* per chunk, pack_bytes apart; inner = rows unless pairs, and
                                                  * `transposed` where the table has transpose */
    float *dq, *lse, *delta;                     /* per chunk: [KB][Dp], [KB], [KB] */
    int32_t *first_doc;                          /* per chunk */
    char *k_cols, *k_inner, *v_cols;             /* of each key block of a span */
    float *s, *dp, *drop;                        /* [KB][KB] */
    char *ds, *p_inner, *ds_inner;
    float *leaf[ORTH_MAX_LEVELS];                /* of each key block of a span: dk then dv, [2][KB][Dp]; transposed: [2][Dp][KB] */
    float *transposed;                               /* [KB][Dp]; NULL unless the table has transpose */
    orth_attn_team *team;                        /* NULL: the thread has the kv head for itself */
} orth_attn_bwd_scratch;

/* Whether queries of chunk c may see keys of the call. */
static inline bool orth_attn_chunk_sees(const orth_attn_bwd *x, int c)
{
    return x->chunks[c].pos + x->chunks[c].rows > x->key_begin;
}

/* Packs chunk c of kv head g, with its delta; its dq starts at zero, or goes on. */
void orth_attn_pack_chunk(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int g, int c);

/* Everything that `num` key blocks of kv head g from `block` on (at most ORTH_ATTN_SPAN) have to do with: adds to dq of
 * the chunks that see them; stores dk, dv. */
void orth_attn_visit_blocks(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int g, int64_t block,
                            int num);

/* Stores dq of chunk c. */
void orth_attn_store_chunk(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int g, int c);

#endif
