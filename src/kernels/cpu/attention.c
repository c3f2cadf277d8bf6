/* attention.c -- fast attention forward: whole sequences, queries of some slots, one block of keys, a cache.
 *
 * Work is cut by position: key blocks are [KB*i, KB*(i+1)), query blocks are such or equal parts of such (what the call has of
 * them), so that only the last key block of a query block is cut by causality. In waves of a few (sequence, kv head) pairs: first
 * all key blocks of the wave are packed, then pair by pair the (query block, head) tasks run, longest first.
 * A wave holds enough tasks to share out and no more, which bounds the workspace:
 *
 *   row_of_pos [T] | spans of queries | packed k and v of the wave | scratch of each thread
 */
#include <float.h>
#include <math.h>

#include "base/pool.h"
#include "kernels/cpu/attention_micro.h"

/* Queries at consecutive positions within one block. */
typedef struct {
    int32_t pos, rows;
} query_span;

/* The callers differ in where rows lie. */
typedef struct {
    const orth_attr *attr;
    const orth_attn_micro *micro;
    orth_dtype type;
    size_t esize;
    int64_t B, W;                  /* sequences; pairs in a wave */
    int64_t first_pair;            /* of the wave being run; pair = b*KV + g */
    int64_t max_blocks;            /* key blocks of a pair in the workspace */
    int64_t max_q_blocks;
    const char *q;                 /* fused rows, R elements each, num_rows per sequence */
    int64_t R, num_rows;
    const char *k, *v;             /* key position p of (b, g): element (b*cap + row(p))*stride + g*step */
    int64_t kv_cap, kv_stride, kv_step;
    int64_t key_begin, key_end;    /* positions of the keys of the call; key_end 0: up to the last query */
    const int32_t *past;           /* [B] position of the first query row; NULL: 0 */
    const int32_t *row_of_pos;     /* of queries; NULL: position - past */
    const int32_t *key_row;        /* of keys; NULL: position - key_begin */
    const query_span *spans;       /* [max_q_blocks] ascending; NULL: all positions from past on */
    int64_t first_row;             /* what row_of_pos calls the first query row */
    const int32_t *doc, *seq;
    const orth_step_values *step;
    char *o;
    float *lse;                    /* NULL: not wanted */
    float *state_o, *state_ml;     /* carried from call to call instead of o and lse; NULL: all keys are here */
    bool begun;                    /* the state holds something */
    char *packs, *scratch;
    size_t pack_bytes, scratch_bytes;
} forward;

typedef struct {
    float *s, *o, *m, *l, *a, *drop;
    void *p, *q;
} fwd_scratch;

static int64_t query_begin(const forward *x, int64_t b)
{
    return x->past ? x->past[b] : 0;
}

static int64_t key_end(const forward *x, int64_t b)
{
    if (x->key_end > 0)
        return x->key_end;
    if (!x->spans)
        return query_begin(x, b) + x->num_rows;
    const query_span *last = &x->spans[x->max_q_blocks - 1];
    return last->pos + last->rows;
}

/* Storage row of a query within its sequence. */
static int64_t query_row(const forward *x, int64_t b, int64_t pos)
{
    return x->row_of_pos ? x->row_of_pos[pos] - x->first_row : pos - query_begin(x, b);
}

static size_t pack_bytes(const orth_attn_micro *micro, int D) /* of a block */
{
    return orth_attn_packed_bytes(micro, KB * orth_attn_padded(D));
}

static char *take(char **at, size_t num_bytes)
{
    char *p = *at;
    *at += orth_round_up((int64_t)num_bytes, 64);
    return p;
}

static fwd_scratch scratch_of(const forward *x, int worker)
{
    char *at = x->scratch + (size_t)worker * x->scratch_bytes;
    const size_t row = KB * sizeof(float), square = KB * row;
    fwd_scratch s;
    s.s = (float *)take(&at, square);
    s.p = take(&at, orth_attn_packed_bytes(x->micro, KB * KB));
    s.drop = (float *)take(&at, square);
    s.o = (float *)take(&at, row * (size_t)orth_attn_padded(x->attr->head_dim));
    s.q = take(&at, x->pack_bytes);
    s.m = (float *)take(&at, row);
    s.l = (float *)take(&at, row);
    s.a = (float *)take(&at, row);
    return s;
}

static size_t scratch_bytes(const orth_attn_micro *micro, int D)
{
    const size_t row = KB * sizeof(float);
    return (2 * KB + (size_t)orth_attn_padded(D) + 3) * row + orth_attn_packed_bytes(micro, KB * KB) + pack_bytes(micro, D);
}

static char *pack_of(const forward *x, int64_t pair, int64_t block)
{
    return x->packs + (size_t)((pair - x->first_pair) * x->max_blocks + block - x->key_begin / KB) * 2 * x->pack_bytes;
}

static void pack_task(void *arg, int64_t index, int worker)
{
    const forward *x = arg;
    (void)worker;
    int64_t pair = x->first_pair + index / x->max_blocks, block = x->key_begin / KB + index % x->max_blocks;
    int64_t b = pair / x->attr->kv_heads, g = pair % x->attr->kv_heads, k0 = block * KB;
    int n = (int)ORTH_MIN(key_end(x, b) - k0, KB);
    if (n <= 0)
        return;
    const void *k[KB], *v[KB];
    for (int i = 0; i < n; i++) {
        int64_t row = x->key_row ? x->key_row[k0 + i] : k0 + i - x->key_begin;
        int64_t at = (b * x->kv_cap + row) * x->kv_stride + g * x->kv_step;
        k[i] = x->k + (size_t)at * x->esize;
        v[i] = x->v + (size_t)at * x->esize;
    }
    char *to = pack_of(x, pair, block);
    x->micro->pack_cols(to, k, n, x->attr->head_dim, x->type);
    x->micro->pack_inner(to + x->pack_bytes, v, n, x->attr->head_dim, x->type);
}

/* Queries at positions [q0, q0 + n) of one head. */
typedef struct {
    int64_t pair, b, q0;
    int h, n;
    int64_t row[KB];        /* storage row, of all sequences */
    int32_t doc[KB];
    int32_t first_doc;
    orth_attn_drop drop[KB];
} query_block;

static void find_queries(const forward *x, query_block *q)
{
    q->first_doc = x->doc ? INT32_MAX : 0;
    for (int i = 0; i < q->n; i++) {
        q->row[i] = q->b * x->num_rows + query_row(x, q->b, q->q0 + i);
        if (x->doc) {
            q->doc[i] = x->doc[q->row[i]];
            q->first_doc = ORTH_MIN(q->first_doc, q->doc[i]);
        }
        if (x->attr->dropout > 0)
            q->drop[i] = orth_attn_drop_row(x->attr, x->step, q->h, x->seq ? x->seq[q->b] : (int32_t)q->b,
                                            q->q0 + i);
    }
}

/* o and the running maximum and sum take in one key block. */
static void visit_keys(const forward *x, const query_block *q, int64_t block, const fwd_scratch *t)
{
    const int D = x->attr->head_dim, u = x->micro->pairs ? 2 : 1;
    const int64_t Dp = orth_attn_padded(D), k0 = block * KB;
    const char *pack = pack_of(x, q->pair, block);
    x->micro->product(&(orth_attn_product){.c = t->s, .c_row = KB, .a = t->q, .a_row = Dp / u, .a_step = 1,
                                           .b = (const void *)pack, .b_row = KB, .a_plane = KB * Dp / u,
                                           .b_plane = KB * Dp / u, .rows = q->n, .cols = KB, .depth = D,
                                           .limit = ORTH_ATTN_COLS, .offset = q->q0 - k0});
    if (x->attr->dropout > 0)
        orth_attn_drop_block(t->drop, q->drop, q->n, k0);
    orth_attn_scores scores = {q->n, q->q0, k0, x->doc ? q->doc : NULL, x->attr->dropout > 0 ? t->drop : NULL,
                               x->attr->scale};
    x->micro->softmax(&scores, t->s, t->p, t->m, t->l, t->a);
    x->micro->product(&(orth_attn_product){
        .c = t->o, .c_row = Dp, .a = u == 2 ? t->p : (void *)t->s, .a_row = KB / u, .a_step = 1,
        .b = (const void *)(pack + x->pack_bytes), .b_row = Dp, .a_plane = KB * KB / u, .b_plane = KB * Dp / u,
        .rows = q->n, .cols = (int)Dp, .depth = KB, .limit = ORTH_ATTN_KEYS, .offset = q->q0 - k0, .accumulate = true,
        .row_scale = t->a});
}

/* Sets q0 and n to a block of queries, counted from the last; returns their key block. */
static int64_t find_block(const forward *x, query_block *q, int64_t back)
{
    if (x->spans) {
        const query_span *s = &x->spans[x->max_q_blocks - 1 - back];
        q->q0 = s->pos;
        q->n = s->rows;
        return q->q0 / KB;
    }
    const int64_t begin = query_begin(x, q->b), block = begin / KB + x->max_q_blocks - 1 - back;
    q->q0 = ORTH_MAX(begin, block * KB);
    q->n = (int)(ORTH_MIN(begin + x->num_rows, (block + 1) * KB) - q->q0);
    return block;
}

static void load_state(const forward *x, const query_block *q, const fwd_scratch *t)
{
    const int D = x->attr->head_dim, H = x->attr->heads;
    memset(t->o, 0, (size_t)(q->n * orth_attn_padded(D)) * sizeof(float));
    memset(t->m, 0, KB * sizeof(float)); /* also of rows that the block lacks: they are computed with the rest */
    memset(t->l, 0, KB * sizeof(float));
    for (int i = 0; i < q->n; i++) {
        const int64_t at = q->row[i] * H + q->h;
        t->m[i] = x->begun ? x->state_ml[2 * at] : -INFINITY;
        t->l[i] = x->begun ? x->state_ml[2 * at + 1] : 0.0f;
        if (x->begun)
            memcpy(t->o + i * orth_attn_padded(D), x->state_o + at * D, (size_t)D * sizeof(float));
    }
}

/* The maximum of a row that has seen nothing is stored as a number: any so small gives the same bits. */
static void store_state(const forward *x, const query_block *q, const fwd_scratch *t)
{
    const int D = x->attr->head_dim, H = x->attr->heads;
    for (int i = 0; i < q->n; i++) {
        const int64_t at = q->row[i] * H + q->h;
        x->state_ml[2 * at] = ORTH_MAX(t->m[i], -FLT_MAX);
        x->state_ml[2 * at + 1] = t->l[i];
        memcpy(x->state_o + at * D, t->o + i * orth_attn_padded(D), (size_t)D * sizeof(float));
    }
}

static void store_result(const forward *x, const query_block *q, const fwd_scratch *t)
{
    const int D = x->attr->head_dim, H = x->attr->heads;
    x->micro->finish(t->m, t->l, q->n);
    for (int i = 0; i < q->n; i++) {
        char *to = x->o + (size_t)((q->row[i] * H + q->h) * D) * x->esize;
        x->micro->store_row(to, t->o + i * orth_attn_padded(D), D, t->l[i], x->type);
        if (x->lse)
            x->lse[q->row[i] * H + q->h] = t->m[i];
    }
}

static void query_task(void *arg, int64_t index, int worker)
{
    const forward *x = arg;
    const orth_attr *a = x->attr;
    const int D = a->head_dim, H = a->heads, G = H / a->kv_heads;
    query_block q;
    q.pair = x->first_pair + index / (G * x->max_q_blocks); /* its keys stay in the caches */
    q.b = q.pair / a->kv_heads;
    if (q.b >= x->B)
        return;
    q.h = (int)(q.pair % a->kv_heads * G + index % G);
    const int64_t block = find_block(x, &q, index / G % x->max_q_blocks); /* longest first */
    if (q.n <= 0 || (x->begun && block < x->key_begin / KB))
        return;
    find_queries(x, &q);
    fwd_scratch t = scratch_of(x, worker);
    const void *rows[KB];
    for (int i = 0; i < q.n; i++)
        rows[i] = x->q + (size_t)(q.row[i] * x->R + orth_attn_q_col(a, q.h)) * x->esize;
    load_state(x, &q, &t);
    x->micro->pack_rows(t.q, rows, q.n, D, x->type);
    const int64_t last = ORTH_MIN(block, (key_end(x, q.b) - 1) / KB);
    orth_attn_enter(x->micro);
    for (int64_t j = ORTH_MAX(q.first_doc, x->key_begin) / KB; j <= last; j++)
        visit_keys(x, &q, j, &t);
    orth_attn_leave(x->micro);
    if (x->state_o)
        store_state(x, &q, &t);
    else
        store_result(x, &q, &t);
}

/* Pairs in a wave: a few heads for each thread, and equal waves. */
static int64_t wave_pairs(const orth_attr *a, int64_t B, int num_threads)
{
    const int64_t pairs = B * a->kv_heads, most = orth_div_up(4 * num_threads, a->heads / a->kv_heads);
    return orth_div_up(pairs, orth_div_up(pairs, most));
}

/* Spans of a sequence at most: blocks cut by the ends of parts. */
static int64_t max_spans(int64_t T, int parts)
{
    return orth_div_up(T, MIN_QUERIES) + parts;
}

/* T tokens of a sequence, of which `keys` are in the call. */
static size_t forward_workspace(const orth_op_call *call, int64_t B, int64_t T, int64_t keys, int num_threads,
                                orth_isa isa)
{
    const orth_attr *a = call->attr;
    const orth_attn_micro *micro = orth_attn_micro_for(call->in[0].dtype, isa);
    return (size_t)orth_round_up(T * 4, 64) +
           (size_t)orth_round_up(max_spans(T, a->token_parts) * (int64_t)sizeof(query_span), 64) +
           (size_t)(wave_pairs(a, B, num_threads) * orth_div_up(keys, KB)) * 2 * pack_bytes(micro, a->head_dim) +
           (size_t)num_threads * scratch_bytes(micro, a->head_dim);
}

static bool in_slots(const orth_attn_place *l, int part)
{
    const int slot = part < (l->parts + 1) / 2 ? 2 * part : 2 * (l->parts - part) - 1; /* orth_fold_part's inverse */
    return slot >= l->slot_begin && slot < l->slot_end;
}

/* The positions of the slots in ascending order, cut at multiples of `most`, a divisor of KB; neighbours are one span. */
static int64_t find_spans(const orth_attn_place *l, int most, query_span *span)
{
    int64_t n = 0;
    for (int p = 0; p < l->parts; p++) {
        int64_t pos = orth_part_begin(l->len, l->parts, p), end = orth_part_begin(l->len, l->parts, p + 1);
        if (!in_slots(l, p))
            continue;
        for (int64_t rows; pos < end; pos += rows) {
            rows = ORTH_MIN(end, (pos / most + 1) * most) - pos;
            if (n > 0 && pos % most && span[n - 1].pos + span[n - 1].rows == pos)
                span[n - 1].rows += (int32_t)rows;
            else
                span[n++] = (query_span){(int32_t)pos, (int32_t)rows};
        }
    }
    return n;
}

/* Fills in the rest of *x and runs. T: tokens of the longest sequence; place: NULL for a cache. */
static void run_forward(orth_ctx *ctx, forward *x, const orth_op_call *call, int64_t T, const orth_attn_place *place)
{
    const orth_attr *a = call->attr;
    const int threads = orth_pool_num_threads(ctx->pool);
    char *at = call->workspace;
    int32_t *table = (int32_t *)take(&at, (size_t)T * 4);
    query_span *spans = (query_span *)take(&at, (size_t)max_spans(T, a->token_parts) * sizeof(query_span));
    x->attr = a;
    x->type = call->in[0].dtype;
    x->esize = orth_dtype_bytes(x->type);
    x->micro = orth_attn_micro_for(x->type, ctx->isa);
    x->R = orth_attn_qkv_cols(a);
    x->q = call->in[0].data;
    x->o = call->out[0].data;
    x->W = wave_pairs(a, x->B, threads);
    x->max_blocks = orth_div_up((x->key_end > 0 ? x->key_end : T) - x->key_begin, KB);
    x->pack_bytes = pack_bytes(x->micro, a->head_dim);
    x->packs = take(&at, (size_t)(x->W * x->max_blocks) * 2 * x->pack_bytes);
    x->scratch = at;
    x->scratch_bytes = scratch_bytes(x->micro, a->head_dim);
    if (place) {
        orth_attn_find_rows(place, table);
        x->row_of_pos = table;
        x->key_row = x->key_end > 0 ? NULL : table;
        x->first_row = place->first_row;
        x->max_q_blocks = find_spans(place, x->micro->queries, spans);
        x->spans = spans;
    }
    const int64_t pairs = x->B * a->kv_heads;
    for (x->first_pair = 0; x->first_pair < pairs; x->first_pair += x->W) {
        int64_t n = ORTH_MIN(x->W, pairs - x->first_pair);
        orth_pool_run(ctx->pool, n * x->max_blocks, pack_task, x);
        orth_pool_run(ctx->pool, x->max_q_blocks * x->W * (a->heads / a->kv_heads), query_task, x);
    }
}

/* kv: what keys and values lie in; rest: doc, seq, step. */
static orth_status run_placed(orth_ctx *ctx, const orth_op_call *call, const orth_attn_place *l, const orth_tensor *kv,
                              const orth_tensor *rest)
{
    const orth_attr *a = call->attr;
    const size_t esize = orth_dtype_bytes(kv->dtype);
    forward x = {.B = a->num_seqs, .num_rows = l->rows, .k = kv->data,
                 .v = (const char *)kv->data + (size_t)a->head_dim * esize, .kv_cap = l->len,
                 .kv_stride = l->kv_stride, .kv_step = l->kv_step, .doc = rest[0].data, .seq = rest[1].data,
                 .step = rest[2].data, .lse = call->out[1].data};
    if (l->rows > 0)
        run_forward(ctx, &x, call, l->len, l);
    return ORTH_OK;
}

orth_status orth_cpu_attention(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_attn_place l = orth_attn_whole(call->attr);
    return run_placed(ctx, call, &l, &call->in[0], call->in + 1);
}

orth_status orth_cpu_attention_part(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_attn_place l = orth_attn_part(call->attr);
    return run_placed(ctx, call, &l, &call->in[1], call->in + 2);
}

size_t orth_workspace_attention_part(const orth_op_call *call, int num_threads, orth_isa isa)
{
    return forward_workspace(call, call->attr->num_seqs, call->attr->full_len, call->attr->full_len, num_threads, isa);
}

size_t orth_workspace_attention(const orth_op_call *call, int num_threads, orth_isa isa)
{
    return forward_workspace(call, call->attr->num_seqs, call->attr->seq_len, call->attr->seq_len, num_threads, isa);
}

/* The keys of this call are those of a block; outputs are the carried state. */
orth_status orth_cpu_attention_block(orth_ctx *ctx, const orth_op_call *call)
{
    const orth_attr *a = call->attr;
    const orth_attn_place l = orth_attn_part(a);
    const orth_tensor *kv = &call->in[1];
    const size_t esize = orth_dtype_bytes(kv->dtype);
    forward x = {.B = a->num_seqs, .num_rows = l.rows, .k = kv->data,
                 .v = (const char *)kv->data + (size_t)a->head_dim * esize, .kv_cap = a->num_keys,
                 .kv_stride = l.kv_stride, .kv_step = l.kv_step, .key_begin = a->key_begin,
                 .key_end = a->key_begin + a->num_keys, .doc = call->in[2].data, .seq = call->in[3].data,
                 .step = call->in[4].data, .state_o = call->out[0].data, .state_ml = call->out[1].data,
                 .begun = call->in[5].data != NULL};
    orth_attn_carry(call, 5, 0);
    orth_attn_carry(call, 6, 1);
    run_forward(ctx, &x, call, l.len, &l);
    return ORTH_OK;
}

size_t orth_workspace_attention_block(const orth_op_call *call, int num_threads, orth_isa isa)
{
    const orth_attr *a = call->attr;
    return forward_workspace(call, a->num_seqs, a->full_len, a->num_keys, num_threads, isa);
}

orth_status orth_cpu_attention_cached(orth_ctx *ctx, const orth_op_call *call)
{
    if (call->attr->full) /* for comparison only: no fast twin */
        return orth_ref_attention_cached(ctx, call);
    orth_attr a = *call->attr;
    const orth_tensor *qkv = &call->in[0], *ck = &call->in[2], *cv = &call->in[3];
    const int32_t *past = call->in[1].data;
    const int64_t B = ck->dim[0], S = ck->dim[1], n = qkv->dim[0] / B, R = orth_attn_qkv_cols(&a),
                  D = a.head_dim;
    const size_t esize = orth_dtype_bytes(qkv->dtype), head = (size_t)D * esize;
    for (int64_t row = 0; row < B * n; row++)
        for (int g = 0; g < a.kv_heads; g++) {
            const char *from = (const char *)qkv->data + (size_t)(row * R + orth_attn_k_col(&a, g)) * esize;
            size_t to = (size_t)((row / n * S + past[row / n] + row % n) * a.kv_heads + g) * head;
            memcpy((char *)ck->data + to, from, head);
            memcpy((char *)cv->data + to, from + head, head);
        }
    a.dropout = 0;
    orth_op_call inner = *call;
    inner.attr = &a;
    forward x = {.B = B, .num_rows = n, .max_q_blocks = (n + KB - 2) / KB + 1, .k = ck->data, .v = cv->data,
                 .kv_cap = S, .kv_stride = a.kv_heads * D, .kv_step = D, .past = past};
    run_forward(ctx, &x, &inner, S, NULL);
    return ORTH_OK;
}

size_t orth_workspace_attention_cached(const orth_op_call *call, int num_threads, orth_isa isa)
{
    return forward_workspace(call, call->in[2].dim[0], call->in[2].dim[1], call->in[2].dim[1], num_threads, isa);
}
