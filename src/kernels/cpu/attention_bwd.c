/* attention_bwd.c -- fast gradients of attention: five products per block, memory linear in T.
 *
 * One task per (sequence, kv head), with all query heads of the group:
 *
 *   pack_chunk                   q, do, delta
 *   visit_blocks                 for spans of key blocks ascending: dq is one chain over keys, kept in memory
 *     for fold slots ascending   dk, dv: a leaf for each part of the heads, merged as the aligned tree of tensor/parts.h
 *       visit_chunk              for heads ascending, for key blocks ascending: s, dp -> p, ds -> dv, dk, dq
 *   store_chunk                  dq
 *
 * As many tasks as fill whole rounds of the threads run alone. The threads share each of the rest
 * (run_together): every one takes single key blocks, and follows the one before it through the chunks.
 */
#include "base/pool.h"
#include "kernels/cpu/attention_bwd.h"

/* Addresses are counted as integers, so that laying out from 0 measures. */
static void *take(uintptr_t *at, size_t num_bytes)
{
    uintptr_t p = *at;
    *at += (uintptr_t)orth_round_up((int64_t)num_bytes, 64);
    return (void *)p;
}

static int max_chunks(const orth_attr *a)
{
    return ((int)orth_div_up(a->seq_len, KB) + a->token_parts) * (a->heads / a->kv_heads); /* seq_len: of queries */
}

static int tree_levels(int leaves)
{
    int n = 1;
    while (1 << (n - 1) < leaves)
        n++;
    return n;
}

/* Lays out scratch from `base` on; returns its size. */
static size_t lay_out(orth_attn_bwd_scratch *t, uintptr_t base, const orth_attr *a, const orth_attn_micro *micro)
{
    uintptr_t at = base;
    const int64_t Dp = orth_attn_padded(a->head_dim);
    const bool pairs = micro->pairs;
    const size_t n = (size_t)max_chunks(a), square = KB * KB * sizeof(float), wide = (size_t)(KB * Dp) * sizeof(float);
    const size_t pack = orth_attn_packed_bytes(micro, KB * Dp), packed_square = orth_attn_packed_bytes(micro, KB * KB);
    t->q_rows = take(&at, n * pack);
    t->do_rows = take(&at, n * pack);
    t->q_inner = pairs ? take(&at, n * pack) : t->q_rows;
    t->do_inner = pairs ? take(&at, n * pack) : t->do_rows;
    t->dq = take(&at, n * wide);
    t->lse = take(&at, n * KB * sizeof(float));
    t->delta = take(&at, n * KB * sizeof(float));
    t->first_doc = take(&at, n * sizeof(int32_t));
    t->k_cols = take(&at, ORTH_ATTN_SPAN * pack);
    t->k_inner = take(&at, ORTH_ATTN_SPAN * pack);
    t->v_cols = take(&at, ORTH_ATTN_SPAN * pack);
    t->s = take(&at, square);
    t->dp = take(&at, square);
    t->drop = a->dropout > 0 ? take(&at, square) : NULL;
    t->ds = pairs ? take(&at, packed_square) : NULL;
    t->p_inner = pairs ? take(&at, packed_square) : NULL;
    t->ds_inner = pairs ? take(&at, packed_square) : NULL;
    t->transposed = micro->transpose ? take(&at, wide) : NULL;
    for (int i = 0; i < tree_levels(a->token_parts * ORTH_MAX(a->head_parts, 1)); i++)
        t->leaf[i] = take(&at, ORTH_ATTN_SPAN * 2 * wide);
    return at - base;
}

static orth_attn_bwd_scratch scratch_of(const orth_attn_bwd *x, int worker)
{
    orth_attn_bwd_scratch t = {.team = NULL};
    lay_out(&t, x->scratch + (uintptr_t)worker * x->scratch_bytes, x->attr, x->micro);
    return t;
}

static void group_task(void *arg, int64_t pair, int worker)
{
    const orth_attn_bwd *x = arg;
    const int g = (int)(pair % x->attr->kv_heads);
    const int64_t b = pair / x->attr->kv_heads;
    orth_attn_bwd_scratch t = scratch_of(x, worker);
    for (int c = 0; c < x->num_chunks; c++)
        if (orth_attn_chunk_sees(x, c))
            orth_attn_pack_chunk(x, &t, b, g, c);
    const int64_t end = orth_div_up(x->key_end, KB);
    for (int64_t block = x->key_begin / KB; block < end; block += ORTH_ATTN_SPAN)
        orth_attn_visit_blocks(x, &t, b, g, block, (int)ORTH_MIN(ORTH_ATTN_SPAN, end - block));
    for (int c = 0; c < x->num_chunks; c++)
        if (orth_attn_chunk_sees(x, c))
            orth_attn_store_chunk(x, &t, b, g, c);
}

/* A kv head that all threads work on. What belongs to it lies in the first one's scratch. */
typedef struct {
    const orth_attn_bwd *x;
    orth_attn_team *team;
    int64_t b;
    int g;
} shared_head;

static orth_attn_bwd_scratch shared_scratch(const shared_head *s, int worker)
{
    orth_attn_bwd_scratch own = scratch_of(s->x, worker), t = scratch_of(s->x, 0);
    t.k_cols = own.k_cols;
    t.k_inner = own.k_inner;
    t.v_cols = own.v_cols;
    t.s = own.s;
    t.dp = own.dp;
    t.drop = own.drop;
    t.ds = own.ds;
    t.p_inner = own.p_inner;
    t.ds_inner = own.ds_inner;
    t.transposed = own.transposed;
    memcpy(t.leaf, own.leaf, sizeof t.leaf);
    t.team = s->team;
    return t;
}

static void pack_task(void *arg, int64_t c, int worker)
{
    const shared_head *s = arg;
    (void)worker;
    orth_attn_bwd_scratch t = shared_scratch(s, 0);
    if (orth_attn_chunk_sees(s->x, (int)c))
        orth_attn_pack_chunk(s->x, &t, s->b, s->g, (int)c);
    atomic_store(&s->team->done[c], (int32_t)(s->x->key_begin / KB));
}

static void store_task(void *arg, int64_t c, int worker)
{
    const shared_head *s = arg;
    (void)worker;
    orth_attn_bwd_scratch t = shared_scratch(s, 0);
    if (orth_attn_chunk_sees(s->x, (int)c))
        orth_attn_store_chunk(s->x, &t, s->b, s->g, (int)c);
}

/* Draws key blocks itself: they must be taken in ascending order, which the pool does not promise. */
static void blocks_task(void *arg, int64_t index, int worker)
{
    const shared_head *s = arg;
    (void)index;
    orth_attn_bwd_scratch t = shared_scratch(s, worker);
    for (int64_t block; (block = atomic_fetch_add(&s->team->next, 1)) * KB < s->x->key_end;)
        orth_attn_visit_blocks(s->x, &t, s->b, s->g, block, 1);
}

static void run_together(orth_ctx *ctx, const orth_attn_bwd *x, orth_attn_team *team, int64_t pair)
{
    shared_head s = {x, team, pair / x->attr->kv_heads, (int)(pair % x->attr->kv_heads)};
    atomic_store(&team->next, (int32_t)(x->key_begin / KB));
    orth_pool_run(ctx->pool, x->num_chunks, pack_task, &s);
    orth_pool_run(ctx->pool, orth_pool_num_threads(ctx->pool), blocks_task, &s);
    orth_pool_run(ctx->pool, x->num_chunks, store_task, &s);
}

static int cut_chunks(const orth_attr *a, const orth_attn_place *l, orth_attn_chunk *chunks)
{
    int n = 0;
    for (int slot = l->slot_begin; slot < l->slot_end; slot++)
        for (int head = 0; head < a->heads / a->kv_heads; head++) {
            const int p = orth_fold_part(l->parts, slot), first = (int)orth_part_begin(l->len, l->parts, p);
            const int end = (int)orth_part_begin(l->len, l->parts, p + 1);
            const int row = (int)(orth_fold_begin(l->len, l->parts, slot) - l->first_row);
            for (int pos = first; pos < end; pos += KB)
                chunks[n++] = (orth_attn_chunk){slot, row + pos - first, (int32_t)ORTH_MIN(KB, end - pos), pos, head};
        }
    return n;
}

/* Fills in the rest of *x and runs. */
static orth_status run_backward(orth_ctx *ctx, const orth_op_call *call, orth_attn_bwd *x)
{
    const orth_attr *a = call->attr;
    uintptr_t at = (uintptr_t)call->workspace;
    orth_attn_chunk *chunks = take(&at, (size_t)max_chunks(a) * sizeof(orth_attn_chunk));
    int32_t *rows = take(&at, (size_t)x->l.len * sizeof(int32_t));
    orth_attn_team team = {.done = take(&at, (size_t)max_chunks(a) * sizeof(int32_t))};
    orth_attn_bwd_scratch unused;
    x->attr = a;
    if (x->key_end == 0) { /* all keys are here, in storage order */
        orth_attn_find_rows(&x->l, rows);
        x->row_of_pos = rows;
        x->key_end = x->kv_rows = x->l.len;
    }
    x->esize = orth_dtype_bytes(x->type);
    x->micro = orth_attn_micro_for(x->type, ctx->isa);
    x->R = orth_attn_qkv_cols(a);
    x->Dp = orth_attn_padded(a->head_dim);
    x->num_chunks = cut_chunks(a, &x->l, chunks);
    x->chunks = chunks;
    x->scratch = at;
    x->scratch_bytes = lay_out(&unused, 0, a, x->micro);
    const int64_t pairs = (int64_t)a->num_seqs * a->kv_heads;
    const int64_t alone = pairs - pairs % orth_pool_num_threads(ctx->pool);
    orth_pool_run(ctx->pool, alone, group_task, x);
    for (int64_t pair = alone; pair < pairs; pair++)
        run_together(ctx, x, &team, pair);
    return ORTH_OK;
}

orth_status orth_cpu_attention_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_tensor *in = call->in, *dqkv = &call->out[0];
    orth_attn_bwd x = {.type = in[1].dtype, .l = orth_attn_whole(call->attr), .dout = in[0].data, .qkv = in[1].data,
                       .kv = in[1].data, .o = in[2].data, .lse = in[3].data, .doc = in[4].data, .seq = in[5].data,
                       .step = in[6].data, .dqkv = dqkv->data, .dkv = dqkv->data, .kv_type = dqkv->dtype};
    return run_backward(ctx, call, &x);
}

orth_status orth_cpu_attention_part_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_tensor *in = call->in;
    orth_attn_bwd x = {.type = in[1].dtype, .l = orth_attn_part(call->attr), .dout = in[0].data, .qkv = in[1].data,
                       .kv = in[2].data, .o = in[3].data, .lse = in[4].data, .doc = in[5].data, .seq = in[6].data,
                       .step = in[7].data, .dqkv = call->out[0].data, .dkv = call->out[1].data, .kv_type = ORTH_F32};
    return run_backward(ctx, call, &x);
}

/* Keys of one block; dq is carried. Without kv no query sees them, so that kv is not read. */
orth_status orth_cpu_attention_block_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_tensor *in = call->in;
    const orth_attr *a = call->attr;
    orth_attn_bwd x = {.type = in[1].dtype, .l = orth_attn_part(a), .dout = in[0].data, .qkv = in[1].data,
                       .kv = in[2].data, .o = in[3].data, .lse = in[4].data, .doc = in[5].data, .seq = in[6].data,
                       .step = in[7].data, .dkv = call->out[1].data, .kv_type = ORTH_F32, .kv_rows = a->num_keys,
                       .key_begin = a->key_begin, .key_end = a->key_begin + a->num_keys, .dq = call->out[0].data,
                       .begun = in[8].data != NULL};
    orth_attn_carry(call, 8, 0);
    if (!x.begun && (!x.kv || x.key_begin > 0)) { /* queries before the block see nothing of it, and are not visited */
        memset(x.dq, 0, orth_tensor_bytes(&call->out[0]));
        x.begun = true;
    }
    if (x.kv)
        return run_backward(ctx, call, &x);
    memset(x.dkv, 0, orth_tensor_bytes(&call->out[1]));
    return ORTH_OK;
}

static size_t backward_workspace(const orth_op_call *call, int64_t len, int num_threads, orth_isa isa)
{
    const orth_attr *a = call->attr;
    orth_attn_bwd_scratch unused;
    uintptr_t at = 0;
    take(&at, (size_t)max_chunks(a) * sizeof(orth_attn_chunk));
    take(&at, (size_t)len * sizeof(int32_t));
    take(&at, (size_t)max_chunks(a) * sizeof(int32_t));
    return at + (size_t)num_threads * lay_out(&unused, 0, a, orth_attn_micro_for(call->in[1].dtype, isa));
}

size_t orth_workspace_attention_bwd(const orth_op_call *call, int num_threads, orth_isa isa)
{
    return backward_workspace(call, call->attr->seq_len, num_threads, isa);
}

size_t orth_workspace_attention_block_bwd(const orth_op_call *call, int num_threads, orth_isa isa)
{
    return backward_workspace(call, call->attr->full_len, num_threads, isa);
}

size_t orth_workspace_attention_part_bwd(const orth_op_call *call, int num_threads, orth_isa isa)
{
    return backward_workspace(call, call->attr->full_len, num_threads, isa);
}
