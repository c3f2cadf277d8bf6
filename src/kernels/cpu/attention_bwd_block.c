/* attention_bwd_block.c -- gradients of attention, a chunk of queries by a block of keys at a time. */
#include <sched.h>

#include "kernels/cpu/attention_bwd.h"

static size_t pack_bytes(const orth_attn_bwd *x)
{
    return (size_t)(KB * x->Dp) * (x->micro->pairs ? 2 : 4);
}

/* Query head of chunk c of kv head g. */
static int head_of(const orth_attn_bwd *x, int g, int c)
{
    return g * (x->attr->heads / x->attr->kv_heads) + x->chunks[c].head;
}

void orth_attn_pack_chunk(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int g, int c)
{
    const orth_attr *a = x->attr;
    const int D = a->head_dim, H = a->heads, h = head_of(x, g, c), rows = x->chunks[c].rows;
    const size_t pack = pack_bytes(x);
    const int64_t n = b * x->l.rows + x->chunks[c].row;
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
    memset(t->dq + c * KB * x->Dp, 0, (size_t)(KB * x->Dp) * sizeof(float));
    for (int r = 0; x->begun && r < rows; r++)
        memcpy(t->dq + (c * KB + r) * x->Dp, x->dq + ((n + r) * H + h) * D, (size_t)D * sizeof(float));
}

/* Element of k_g of the token at a position; v_g follows. */
static int64_t key_at(const orth_attn_bwd *x, int64_t b, int g, int64_t pos)
{
    const int64_t row = x->row_of_pos ? x->row_of_pos[pos] : pos - x->key_begin;
    return (b * x->kv_rows + row) * x->l.kv_stride + g * x->l.kv_step;
}

static void pack_keys(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int g, int64_t k0,
                      int n)
{
    const orth_attr *a = x->attr;
    const void *k[KB], *v[KB];
    for (int i = 0; i < n; i++) {
        k[i] = x->kv + (size_t)key_at(x, b, g, k0 + i) * x->esize;
        v[i] = (const char *)k[i] + (size_t)a->head_dim * x->esize;
    }
    x->micro->pack_cols(t->k_cols, k, n, a->head_dim, x->type);
    x->micro->pack_cols(t->v_cols, v, n, a->head_dim, x->type);
    x->micro->pack_inner(t->k_inner, k, n, a->head_dim, x->type);
}

static void draw_drops(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int h,
                       const orth_attn_chunk *c, int64_t k0)
{
    orth_attn_drop drop[KB];
    for (int r = 0; r < c->rows; r++)
        drop[r] = orth_attn_drop_row(x->attr, x->step, h, x->seq ? x->seq[b] : (int32_t)b, c->pos + r);
    orth_attn_drop_block(t->drop, drop, c->rows, k0);
}

/* Chunk c against the packed key block: dq of the chunk, and dk, dv added to leaf (or begun). */
static void visit_chunk(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int g, int c,
                        int64_t k0, int num_keys, float *leaf, bool begun)
{
    const orth_attn_chunk *q = &x->chunks[c];
    const int D = x->attr->head_dim, Dp = (int)x->Dp, u = x->micro->pairs ? 2 : 1;
    const size_t at = (size_t)c * pack_bytes(x);
    orth_attn_product score = {
        .c = t->s, .c_row = KB, .a = (void *)(t->q_rows + at), .a_row = Dp / u, .a_step = 1,
        .b = (void *)t->k_cols, .b_row = KB, .rows = q->rows, .cols = KB, .depth = D,
        .limit = ORTH_ATTN_COLS, .offset = q->pos - k0};
    x->micro->product(&score);
    score.c = t->dp;
    score.a = (void *)(t->do_rows + at);
    score.b = (void *)t->v_cols;
    x->micro->product(&score);

    if (t->drop)
        draw_drops(x, t, b, head_of(x, g, c), q, k0);
    orth_attn_scores scores = {
        q->rows, q->pos, k0, x->doc ? x->doc + b * x->l.rows + q->row : NULL, t->drop, x->attr->scale};
    x->micro->grad(&scores, t->s, t->dp, t->lse + c * KB, t->delta + c * KB, t->ds, t->p_inner, t->ds_inner);

    orth_attn_product keys = {
        .c = leaf, .c_row = Dp, .a = u == 2 ? (void *)t->ds_inner : (void *)t->dp, .a_row = 1, .a_step = KB,
        .b = (void *)(t->q_inner + at), .b_row = Dp, .rows = num_keys, .cols = Dp, .depth = q->rows,
        .limit = ORTH_ATTN_QUERIES, .offset = q->pos - k0, .accumulate = begun};
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

static void await_turn(orth_attn_team *team, int c, int32_t block)
{
    if (!team)
        return;
    /* The other thread may have lost its core: do not burn this one for long. */
    for (int i = 0; atomic_load_explicit(&team->done[c], memory_order_acquire) != block; i++)
        if (i > 20000)
            sched_yield();
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

/* Chunks *c and on that are of one leaf. Returns whether any added to it. */
static bool visit_leaf(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int g, int64_t k0,
                       int num_keys, int slot, int end_head, float *leaf, int *chunk)
{
    bool begun = false;
    for (; *chunk < x->num_chunks && x->chunks[*chunk].slot == slot && x->chunks[*chunk].head < end_head; ++*chunk) {
        const int c = *chunk;
        if (x->chunks[c].pos + x->chunks[c].rows <= k0)
            continue; /* nor does any later key block touch the chunk */
        await_turn(t->team, c, (int32_t)(k0 / KB));
        if (t->first_doc[c] < k0 + num_keys) {
            visit_chunk(x, t, b, g, c, k0, num_keys, leaf, begun);
            begun = true;
        }
        if (t->team)
            atomic_store_explicit(&t->team->done[c], (int32_t)(k0 / KB) + 1, memory_order_release);
    }
    return begun;
}

/* dk, dv of one kv head and key block from the queries of slots [begin, end), whose first chunk is *chunk: {dk, dv} in
 * the returned buffer; adds to dq on the way. */
static float *visit_keys(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int g, int64_t k0,
                         int num_keys, int begin, int end, int *chunk)
{
    leaf_stack s = {.top = 0};
    const int64_t n = 2 * KB * x->Dp;
    const int leaf_heads = orth_attn_leaf_heads(x->attr), per_slot = x->attr->heads / x->attr->kv_heads / leaf_heads;
    memcpy(s.entry, t->leaf, sizeof s.entry);
    for (int leaf = 0; leaf < (end - begin) * per_slot; leaf++) {
        bool begun = visit_leaf(x, t, b, g, k0, num_keys, begin + leaf / per_slot,
                                (leaf % per_slot + 1) * leaf_heads, s.entry[s.top], chunk);
        s.empty[s.top++] = !begun;
        for (int done = leaf + 1; done % 2 == 0; done /= 2)
            merge_top(&s, n);
    }
    while (s.top > 1)
        merge_top(&s, n);
    if (s.empty[0])
        memset(s.entry[0], 0, (size_t)n * sizeof(float));
    return s.entry[0];
}

/* section: which of the sums that dkv holds. */
static void store_keys(const orth_attn_bwd *x, const float *sum, int64_t b, int g, int64_t k0, int num_keys,
                       int section)
{
    const int D = x->attr->head_dim;
    const size_t esize = orth_dtype_bytes(x->kv_type);
    const int64_t first = section * x->attr->num_seqs * x->kv_rows * x->l.kv_stride;
    for (int i = 0; i < num_keys; i++) {
        char *to = x->dkv + (size_t)(first + key_at(x, b, g, k0 + i)) * esize;
        x->micro->store_row(to, sum + i * x->Dp, D, 1.0f, x->kv_type);
        x->micro->store_row(to + (size_t)D * esize, sum + (KB + i) * x->Dp, D, 1.0f, x->kv_type);
    }
}

void orth_attn_store_chunk(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int g, int c)
{
    const int D = x->attr->head_dim, H = x->attr->heads;
    for (int r = 0; r < x->chunks[c].rows; r++) {
        const int64_t n = b * x->l.rows + x->chunks[c].row + r, row = n * x->R;
        if (x->dq) {
            memcpy(x->dq + (n * H + head_of(x, g, c)) * D, t->dq + (c * KB + r) * x->Dp, (size_t)D * sizeof(float));
            continue;
        }
        char *to = x->dqkv + (size_t)(row + orth_attn_q_col(x->attr, head_of(x, g, c))) * x->esize;
        x->micro->store_row(to, t->dq + (c * KB + r) * x->Dp, D, 1.0f, x->type);
    }
}

void orth_attn_visit_block(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int g, int64_t block)
{
    const int num_keys = (int)ORTH_MIN(KB, x->key_end - block * KB), begin = x->l.slot_begin, end = x->l.slot_end;
    const int slots = x->attr->shares_kv ? 1 : end - begin; /* of one sum */
    int chunk = 0;
    pack_keys(x, t, b, g, block * KB, num_keys);
    for (int slot = begin; slot < end; slot += slots)
        store_keys(x, visit_keys(x, t, b, g, block * KB, num_keys, slot, slot + slots, &chunk), b, g, block * KB,
                   num_keys, slot - begin);
}
