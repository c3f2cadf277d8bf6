/* attention_bwd.c -- fast gradients of attention: five products per block, memory linear in T.
 *
 * One task per (sequence, kv head); its query heads one after the other:
 *
 *   pack_queries                 q, do, delta of the head, in chunks
 *   for key blocks ascending     (dq is one chain over keys: it accumulates in memory)
 *     for fold slots ascending   (dk, dv: a leaf each, merged as the aligned tree of tensor/parts.h)
 *       visit_chunk              s, dp -> p, ds -> dv, dk, dq
 *   store dq;  dk, dv join those of the group's earlier heads
 *
 * A chunk is up to KB queries of one fold slot, so both its storage rows and its positions are
 * consecutive. Query and key blocks need not be aligned to each other here.
 */
#include "base/pool.h"
#include "kernels/cpu/attention_micro.h"

#define MAX_LEVELS 8 /* of the tree over at most ORTH_MAX_PARTS slots */

typedef struct {
    int32_t slot, row, rows;  /* rows [row, row + rows) of the sequence */
    int32_t pos;              /* position of the first */
} chunk;

typedef struct {
    const orth_attr *attr;
    const orth_attn_micro *micro;
    orth_dtype type;
    size_t esize;
    int64_t R, Dp;
    const char *dout, *qkv, *o;
    const float *lse;
    const int32_t *doc, *seq;
    const orth_step_values *step;
    char *dqkv;
    const chunk *chunks;
    int num_chunks;
    const int32_t *row_of_pos;
    uintptr_t scratch;
    size_t scratch_bytes;
} backward;

/* What a thread works in. Packed forms: attention_micro.h. */
typedef struct {
    char *q_rows, *q_inner, *do_rows, *do_inner; /* per chunk, pack_bytes apart; inner = rows unless pairs */
    float *dq, *lse, *delta;                     /* per chunk: [KB][Dp], [KB], [KB] */
    int32_t *first_doc;                          /* per chunk */
    float *total;                                /* dk then dv of the kv head, [key blocks][2][KB][Dp] */
    char *k_cols, *k_inner, *v_cols;             /* of the key block */
    float *s, *dp, *drop;                        /* [KB][KB] */
    char *ds, *p_inner, *ds_inner;
    float *leaf[MAX_LEVELS];                     /* dk then dv, [2][KB][Dp] */
} bwd_scratch;

/* Addresses are counted as integers, so that laying out from 0 measures. */
static void *take(uintptr_t *at, size_t num_bytes)
{
    uintptr_t p = *at;
    *at += (uintptr_t)orth_round_up((int64_t)num_bytes, 64);
    return (void *)p;
}

static int max_chunks(const orth_attr *a)
{
    return (int)orth_div_up(a->seq_len, KB) + a->token_parts;
}

static int tree_levels(int parts)
{
    int n = 1;
    while (1 << (n - 1) < parts)
        n++;
    return n;
}

/* Lays out scratch from `base` on; returns its size. */
static size_t lay_out(bwd_scratch *t, uintptr_t base, const orth_attr *a, bool pairs)
{
    uintptr_t at = base;
    const int64_t Dp = orth_attn_padded(a->head_dim), blocks = orth_div_up(a->seq_len, KB);
    const size_t n = (size_t)max_chunks(a), square = KB * KB * sizeof(float);
    const size_t wide = (size_t)(KB * Dp) * sizeof(float), pack = pairs ? wide / 2 : wide;
    t->q_rows = take(&at, n * pack);
    t->do_rows = take(&at, n * pack);
    t->q_inner = pairs ? take(&at, n * pack) : t->q_rows;
    t->do_inner = pairs ? take(&at, n * pack) : t->do_rows;
    t->dq = take(&at, n * wide);
    t->lse = take(&at, n * KB * sizeof(float));
    t->delta = take(&at, n * KB * sizeof(float));
    t->first_doc = take(&at, n * sizeof(int32_t));
    t->total = a->heads > a->kv_heads ? take(&at, (size_t)blocks * 2 * wide) : NULL;
    t->k_cols = take(&at, pack);
    t->k_inner = take(&at, pack);
    t->v_cols = take(&at, pack);
    t->s = take(&at, square);
    t->dp = take(&at, square);
    t->drop = a->dropout > 0 ? take(&at, square) : NULL;
    t->ds = pairs ? take(&at, square / 2) : NULL;
    t->p_inner = pairs ? take(&at, square / 2) : NULL;
    t->ds_inner = pairs ? take(&at, square / 2) : NULL;
    for (int i = 0; i < tree_levels(a->token_parts); i++)
        t->leaf[i] = take(&at, 2 * wide);
    return at - base;
}

static size_t pack_bytes(const backward *x)
{
    return (size_t)(KB * x->Dp) * (x->micro->pairs ? 2 : 4);
}

static void pack_queries(const backward *x, const bwd_scratch *t, int64_t b, int h)
{
    const orth_attr *a = x->attr;
    const int D = a->head_dim, H = a->heads;
    const size_t pack = pack_bytes(x);
    for (int c = 0; c < x->num_chunks; c++) {
        const int64_t n = b * a->seq_len + x->chunks[c].row;
        const int rows = x->chunks[c].rows;
        const void *q[KB], *dout[KB];
        t->first_doc[c] = x->doc ? INT32_MAX : 0;
        for (int r = 0; r < rows; r++) {
            const size_t at = (size_t)(((n + r) * H + h) * D) * x->esize;
            q[r] = x->qkv + (size_t)((n + r) * x->R + orth_attn_q_col(a, h)) * x->esize;
            dout[r] = x->dout + at;
            t->lse[c * KB + r] = x->lse[(n + r) * H + h];
            t->delta[c * KB + r] = x->micro->dot(dout[r], x->o + at, D, x->type);
            if (x->doc)
                t->first_doc[c] = ORTH_MIN(t->first_doc[c], x->doc[n + r]);
        }
        x->micro->pack_rows(t->q_rows + (size_t)c * pack, q, rows, D, x->type);
        x->micro->pack_rows(t->do_rows + (size_t)c * pack, dout, rows, D, x->type);
        if (x->micro->pairs) {
            x->micro->pack_inner(t->q_inner + (size_t)c * pack, q, rows, D, x->type);
            x->micro->pack_inner(t->do_inner + (size_t)c * pack, dout, rows, D, x->type);
        }
    }
    memset(t->dq, 0, (size_t)(x->num_chunks * KB * x->Dp) * sizeof(float));
}

static void pack_keys(const backward *x, const bwd_scratch *t, int64_t b, int g, int64_t k0, int n)
{
    const orth_attr *a = x->attr;
    const void *k[KB], *v[KB];
    for (int i = 0; i < n; i++) {
        const int64_t row = (b * a->seq_len + x->row_of_pos[k0 + i]) * x->R;
        k[i] = x->qkv + (size_t)(row + orth_attn_k_col(a, g)) * x->esize;
        v[i] = x->qkv + (size_t)(row + orth_attn_v_col(a, g)) * x->esize;
    }
    x->micro->pack_cols(t->k_cols, k, n, a->head_dim, x->type);
    x->micro->pack_cols(t->v_cols, v, n, a->head_dim, x->type);
    x->micro->pack_inner(t->k_inner, k, n, a->head_dim, x->type);
}

static void draw_drops(const backward *x, const bwd_scratch *t, int64_t b, int h, const chunk *c, int64_t k0)
{
    orth_attn_drop drop[KB];
    for (int r = 0; r < c->rows; r++)
        drop[r] = orth_attn_drop_row(x->attr, x->step, h, x->seq ? x->seq[b] : (int32_t)b, c->pos + r);
    orth_attn_drop_block(t->drop, drop, c->rows, k0);
}

/* Chunk c against the packed key block: dq of the chunk, and dk, dv added to leaf (or begun). */
static void visit_chunk(const backward *x, const bwd_scratch *t, int64_t b, int h, int c, int64_t k0,
                        int num_keys, float *leaf, bool begun)
{
    const chunk *q = &x->chunks[c];
    const int D = x->attr->head_dim, Dp = (int)x->Dp, u = x->micro->pairs ? 2 : 1;
    const size_t at = (size_t)c * pack_bytes(x);
    orth_attn_product score = {.c = t->s,
                               .c_row = KB,
                               .a = (void *)(t->q_rows + at),
                               .a_row = Dp / u,
                               .a_step = 1,
                               .b = (void *)t->k_cols,
                               .b_row = KB,
                               .rows = q->rows,
                               .cols = KB,
                               .depth = D,
                               .limit = ORTH_ATTN_COLS,
                               .offset = q->pos - k0};
    x->micro->product(&score);
    score.c = t->dp;
    score.a = (void *)(t->do_rows + at);
    score.b = (void *)t->v_cols;
    x->micro->product(&score);

    if (t->drop)
        draw_drops(x, t, b, h, q, k0);
    orth_attn_scores scores = {
        q->rows, q->pos, k0, x->doc ? x->doc + b * x->attr->seq_len + q->row : NULL, t->drop, x->attr->scale};
    x->micro->grad(&scores, t->s, t->dp, t->lse + c * KB, t->delta + c * KB, t->ds, t->p_inner, t->ds_inner);

    orth_attn_product keys = {.c = leaf,
                              .c_row = Dp,
                              .a = u == 2 ? (void *)t->ds_inner : (void *)t->dp,
                              .a_row = 1,
                              .a_step = KB,
                              .b = (void *)(t->q_inner + at),
                              .b_row = Dp,
                              .rows = num_keys,
                              .cols = Dp,
                              .depth = q->rows,
                              .limit = ORTH_ATTN_QUERIES,
                              .offset = q->pos - k0,
                              .accumulate = begun};
    x->micro->product(&keys);
    keys.c = leaf + KB * Dp;
    keys.a = u == 2 ? (void *)t->p_inner : (void *)t->s;
    keys.b = (void *)(t->do_inner + at);
    x->micro->product(&keys);

    x->micro->product(&(orth_attn_product){
        .c = t->dq + c * KB * Dp, .c_row = Dp, .a = u == 2 ? (void *)t->ds : (void *)t->dp, .a_row = KB / u,
        .a_step = 1, .b = (void *)t->k_inner, .b_row = Dp, .rows = q->rows, .cols = Dp, .depth = num_keys,
        .limit = ORTH_ATTN_KEYS, .offset = q->pos - k0, .accumulate = true});
}

static void add_to(float *a, const float *b, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        a[i] = a[i] + b[i];
}

/* Leaves as a binary counter. A leaf without terms is zero: `empty` says so instead of the memory. */
typedef struct {
    float *entry[MAX_LEVELS];
    bool empty[MAX_LEVELS];
    int top, pushed;
} leaf_stack;

static void merge_top(leaf_stack *s, int64_t n)
{
    int i = s->top - 2, j = s->top - 1;
    if (s->empty[i] && !s->empty[j]) {
        float *swap = s->entry[i];
        s->entry[i] = s->entry[j];
        s->entry[j] = swap;
        s->empty[i] = false;
    } else if (!s->empty[j]) {
        add_to(s->entry[i], s->entry[j], n);
    }
    s->top--;
}

/* dk, dv of one head and key block: {dk, dv} in the returned buffer; adds to dq on the way. */
static float *visit_keys(const backward *x, const bwd_scratch *t, int64_t b, int h, int64_t k0, int num_keys)
{
    leaf_stack s = {.top = 0};
    const int64_t n = 2 * KB * x->Dp;
    memcpy(s.entry, t->leaf, sizeof s.entry);
    for (int slot = 0, c = 0; slot < x->attr->token_parts; slot++) {
        bool begun = false;
        for (; c < x->num_chunks && x->chunks[c].slot == slot; c++) {
            if (x->chunks[c].pos + x->chunks[c].rows <= k0 || t->first_doc[c] >= k0 + num_keys)
                continue;
            visit_chunk(x, t, b, h, c, k0, num_keys, s.entry[s.top], begun);
            begun = true;
        }
        s.empty[s.top++] = !begun;
        for (int done = slot + 1; done % 2 == 0; done /= 2)
            merge_top(&s, n);
    }
    while (s.top > 1)
        merge_top(&s, n);
    if (s.empty[0])
        memset(s.entry[0], 0, (size_t)n * sizeof(float));
    return s.entry[0];
}

static void store_keys(const backward *x, const float *sum, int64_t b, int g, int64_t k0, int num_keys)
{
    const orth_attr *a = x->attr;
    for (int i = 0; i < num_keys; i++) {
        const int64_t row = (b * a->seq_len + x->row_of_pos[k0 + i]) * x->R;
        char *to = x->dqkv + (size_t)(row + orth_attn_k_col(a, g)) * x->esize;
        x->micro->store_row(to, sum + i * x->Dp, a->head_dim, 1.0f, x->type);
        to += (size_t)a->head_dim * x->esize;
        x->micro->store_row(to, sum + (KB + i) * x->Dp, a->head_dim, 1.0f, x->type);
    }
}

static void store_queries(const backward *x, const bwd_scratch *t, int64_t b, int h)
{
    for (int c = 0; c < x->num_chunks; c++)
        for (int r = 0; r < x->chunks[c].rows; r++) {
            const int64_t row = (b * x->attr->seq_len + x->chunks[c].row + r) * x->R;
            char *to = x->dqkv + (size_t)(row + orth_attn_q_col(x->attr, h)) * x->esize;
            x->micro->store_row(to, t->dq + (c * KB + r) * x->Dp, x->attr->head_dim, 1.0f, x->type);
        }
}

static void group_task(void *arg, int64_t pair, int worker)
{
    const backward *x = arg;
    const orth_attr *a = x->attr;
    const int64_t b = pair / a->kv_heads, n = 2 * KB * x->Dp;
    const int g = (int)(pair % a->kv_heads), G = a->heads / a->kv_heads;
    bwd_scratch t;
    lay_out(&t, x->scratch + (uintptr_t)worker * x->scratch_bytes, a, x->micro->pairs);
    for (int i = 0; i < G; i++) {
        const int h = g * G + i;
        pack_queries(x, &t, b, h);
        for (int64_t k0 = 0; k0 < a->seq_len; k0 += KB) {
            const int num_keys = (int)ORTH_MIN(KB, a->seq_len - k0);
            pack_keys(x, &t, b, g, k0, num_keys);
            float *sum = visit_keys(x, &t, b, h, k0, num_keys);
            if (G > 1) {
                float *total = t.total + k0 / KB * n;
                if (i > 0)
                    add_to(total, sum, n);
                else
                    memcpy(total, sum, (size_t)n * sizeof(float));
                sum = total;
            }
            if (i == G - 1)
                store_keys(x, sum, b, g, k0, num_keys);
        }
        store_queries(x, &t, b, h);
    }
}

/* Chunks of a sequence in storage order, and the storage row of each position. */
static int cut_chunks(const orth_attr *a, chunk *chunks, int32_t *row_of_pos)
{
    const int64_t T = a->seq_len;
    int n = 0, row = 0;
    for (int slot = 0; slot < a->token_parts; slot++) {
        const int p = orth_fold_part(a->token_parts, slot);
        const int end = (int)orth_part_begin(T, a->token_parts, p + 1);
        for (int pos = (int)orth_part_begin(T, a->token_parts, p); pos < end; pos += KB) {
            chunks[n] = (chunk){slot, row, (int32_t)ORTH_MIN(KB, end - pos), pos};
            for (int i = 0; i < chunks[n].rows; i++)
                row_of_pos[pos + i] = row++;
            n++;
        }
    }
    return n;
}

orth_status orth_cpu_attention_bwd(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_attr *a = call->attr;
    backward x = {.attr = a,
                  .type = call->in[1].dtype,
                  .esize = orth_dtype_bytes(call->in[1].dtype),
                  .micro = orth_attn_micro_for(call->in[1].dtype, ctx->isa),
                  .R = orth_attn_qkv_cols(a),
                  .Dp = orth_attn_padded(a->head_dim),
                  .dout = call->in[0].data,
                  .qkv = call->in[1].data,
                  .o = call->in[2].data,
                  .lse = call->in[3].data,
                  .doc = call->in[4].data,
                  .seq = call->in[5].data,
                  .step = call->in[6].data,
                  .dqkv = call->out[0].data};
    uintptr_t at = (uintptr_t)call->workspace;
    chunk *chunks = take(&at, (size_t)max_chunks(a) * sizeof(chunk));
    int32_t *rows = take(&at, (size_t)a->seq_len * sizeof(int32_t));
    bwd_scratch unused;
    x.num_chunks = cut_chunks(a, chunks, rows);
    x.chunks = chunks;
    x.row_of_pos = rows;
    x.scratch = at;
    x.scratch_bytes = lay_out(&unused, 0, a, x.micro->pairs);
    orth_pool_run(ctx->pool, (int64_t)a->num_seqs * a->kv_heads, group_task, &x);
    return ORTH_OK;
}

size_t orth_workspace_attention_bwd(const orth_op_call *call, int num_threads, orth_isa isa)
{
    const orth_attr *a = call->attr;
    bwd_scratch unused;
    uintptr_t at = 0;
    take(&at, (size_t)max_chunks(a) * sizeof(chunk));
    take(&at, (size_t)a->seq_len * sizeof(int32_t));
    return at +
           (size_t)num_threads * lay_out(&unused, 0, a, orth_attn_micro_for(call->in[1].dtype, isa)->pairs);
}
