/* attention_bwd_block.c -- gradients of attention, a chunk of queries by a block of keys at a time. */
#include <sched.h>

#include "kernels/cpu/attention_bwd.h"

static size_t pack_bytes(const orth_attn_bwd *x)
{
    return orth_attn_packed_bytes(x->micro, KB * x->Dp);
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
        void (*const pack_terms)(void *, const void *const *, int, int, orth_dtype) =
            x->micro->transpose ? x->micro->pack_transposed : x->micro->pack_inner;
        pack_terms(t->q_inner + (size_t)c * pack, q, rows, D, x->type);
        pack_terms(t->do_inner + (size_t)c * pack, dout, rows, D, x->type);
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

/* A block of keys at work. Its leaves are a binary counter; one without terms is zero: `empty` says so instead of the
 * memory. */
typedef struct {
    int64_t k0;                    /* position of the first */
    int num_keys;
    char *k_cols, *k_inner, *v_cols;
    float *entry[ORTH_MAX_LEVELS];
    bool empty[ORTH_MAX_LEVELS];
    int top;
} key_block;

/* Packs block `index` of a span. */
static key_block pack_keys(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int g, int64_t k0,
                           int index)
{
    const orth_attr *a = x->attr;
    const size_t at = (size_t)index * pack_bytes(x);
    key_block y = {.k0 = k0, .num_keys = (int)ORTH_MIN(KB, x->key_end - k0), .k_cols = t->k_cols + at,
                   .k_inner = t->k_inner + at, .v_cols = t->v_cols + at};
    const void *k[KB], *v[KB];
    for (int i = 0; i < y.num_keys; i++) {
        k[i] = x->kv + (size_t)key_at(x, b, g, k0 + i) * x->esize;
        v[i] = (const char *)k[i] + (size_t)a->head_dim * x->esize;
    }
    x->micro->pack_cols(y.k_cols, k, y.num_keys, a->head_dim, x->type);
    x->micro->pack_cols(y.v_cols, v, y.num_keys, a->head_dim, x->type);
    x->micro->pack_inner(y.k_inner, k, y.num_keys, a->head_dim, x->type);
    return y;
}

static void draw_drops(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int h,
                       const orth_attn_chunk *c, int64_t k0)
{
    orth_attn_drop drop[KB];
    for (int r = 0; r < c->rows; r++)
        drop[r] = orth_attn_drop_row(x->attr, x->step, h, x->seq ? x->seq[b] : (int32_t)b, c->pos + r);
    orth_attn_drop_block(t->drop, drop, c->rows, k0);
}

/* sum (+)= the products over the queries of a chunk of w, [query][key], and the chunk's rows, q or do. */
static void add_keys(const orth_attn_bwd *x, float *sum, const void *w, const void *rows, int num_keys,
                     const orth_attn_chunk *q, int64_t k0, bool begun)
{
    const int Dp = (int)x->Dp, u = x->micro->pairs ? 2 : 1;
    const int64_t wide = KB * Dp / u, square = KB * KB / u; /* planes */
    orth_attn_product keys_in_rows = {.a = w, .a_row = 1, .a_step = KB, .a_plane = square, .b = rows, .b_row = Dp,
                                      .b_plane = wide, .c_row = Dp, .rows = num_keys, .cols = Dp,
                                      .limit = ORTH_ATTN_QUERIES};
    orth_attn_product keys_in_cols = {.a = rows, .a_row = KB / u, .a_step = 1, .a_plane = wide, .b = w, .b_row = KB,
                                      .b_plane = square, .c_row = KB, .rows = Dp,
                                      .cols = (int)orth_round_up(num_keys, 16), .limit = ORTH_ATTN_QUERIES_TURNED};
    orth_attn_product *p = x->micro->transpose ? &keys_in_cols : &keys_in_rows;
    p->c = sum;
    p->depth = q->rows;
    p->offset = q->pos - k0;
    p->accumulate = begun;
    x->micro->product(p);
}

/* Chunk c against a packed key block: dq of the chunk, and dk, dv added to the leaf at work, which is empty until then. */
static void visit_chunk(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int g, int c, key_block *y)
{
    const int64_t k0 = y->k0;
    const int num_keys = y->num_keys;
    const bool begun = !y->empty[y->top];
    float *leaf = y->entry[y->top];
    const orth_attn_chunk *q = &x->chunks[c];
    const int D = x->attr->head_dim, Dp = (int)x->Dp, u = x->micro->pairs ? 2 : 1;
    const int64_t wide = KB * Dp / u, square = KB * KB / u; /* planes */
    const size_t at = (size_t)c * pack_bytes(x);
    orth_attn_product score = {
        .c = t->s, .c_row = KB, .a = (void *)(t->q_rows + at), .a_row = Dp / u, .a_step = 1,
        .b = (void *)y->k_cols, .b_row = KB, .a_plane = wide, .b_plane = wide, .rows = q->rows, .cols = KB, .depth = D,
        .limit = ORTH_ATTN_COLS, .offset = q->pos - k0};
    x->micro->product(&score);
    score.c = t->dp;
    score.a = (void *)(t->do_rows + at);
    score.b = (void *)y->v_cols;
    x->micro->product(&score);

    if (t->drop)
        draw_drops(x, t, b, head_of(x, g, c), q, k0);
    orth_attn_scores scores = {
        q->rows, q->pos, k0, x->doc ? x->doc + b * x->l.rows + q->row : NULL, t->drop, x->attr->scale};
    x->micro->grad(&scores, t->s, t->dp, t->lse + c * KB, t->delta + c * KB, t->ds, t->p_inner, t->ds_inner);

    add_keys(x, leaf, u == 2 ? (void *)t->ds_inner : (void *)t->dp, t->q_inner + at, num_keys, q, k0, begun);
    add_keys(x, leaf + KB * Dp, u == 2 ? (void *)t->p_inner : (void *)t->s, t->do_inner + at, num_keys, q, k0, begun);

    x->micro->product(&(orth_attn_product){
        .c = t->dq + c * KB * Dp, .c_row = Dp, .a = u == 2 ? (void *)t->ds : (void *)t->dp, .a_row = KB / u,
        .a_step = 1, .b = (void *)y->k_inner, .b_row = Dp, .a_plane = square, .b_plane = wide, .rows = q->rows,
        .cols = Dp, .depth = num_keys, .limit = ORTH_ATTN_KEYS, .offset = q->pos - k0, .accumulate = true});
    y->empty[y->top] = false;
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

static void merge_top(key_block *s, int64_t n)
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

/* Chunks *chunk and on that are of one leaf, each against all key blocks of the span: a chunk is fetched once for them,
 * and its dq still meets keys in ascending order. */
static void visit_leaf(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int g, key_block *keys, int num,
                       int slot, int end_head, int *chunk)
{
    for (int i = 0; i < num; i++)
        keys[i].empty[keys[i].top] = true;
    for (; *chunk < x->num_chunks && x->chunks[*chunk].slot == slot && x->chunks[*chunk].head < end_head; ++*chunk) {
        const int c = *chunk;
        if (x->chunks[c].pos + x->chunks[c].rows <= keys[0].k0)
            continue; /* nor does any later key block touch the chunk */
        await_turn(t->team, c, (int32_t)(keys[0].k0 / KB));
        for (int i = 0; i < num && x->chunks[c].pos + x->chunks[c].rows > keys[i].k0; i++)
            if (t->first_doc[c] < keys[i].k0 + keys[i].num_keys)
                visit_chunk(x, t, b, g, c, &keys[i]);
        if (t->team)
            atomic_store_explicit(&t->team->done[c], (int32_t)(keys[0].k0 / KB) + num, memory_order_release);
    }
}

/* dk, dv of one kv head and some key blocks from the queries of slots [begin, end), whose first chunk is *chunk: {dk, dv}
 * in entry[0] of each; adds to dq on the way. */
static void visit_keys(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int g, key_block *keys, int num,
                       int begin, int end, int *chunk)
{
    const int64_t n = 2 * KB * x->Dp;
    const int leaf_heads = orth_attn_leaf_heads(x->attr), per_slot = x->attr->heads / x->attr->kv_heads / leaf_heads;
    for (int i = 0; i < num; i++) {
        keys[i].top = 0;
        for (int level = 0; level < ORTH_MAX_LEVELS; level++)
            keys[i].entry[level] = t->leaf[level] + i * n;
    }
    for (int leaf = 0; leaf < (end - begin) * per_slot; leaf++) {
        visit_leaf(x, t, b, g, keys, num, begin + leaf / per_slot, (leaf % per_slot + 1) * leaf_heads, chunk);
        for (int i = 0; i < num; i++) {
            keys[i].top++;
            for (int done = leaf + 1; done % 2 == 0; done /= 2)
                merge_top(&keys[i], n);
        }
    }
    for (int i = 0; i < num; i++) {
        while (keys[i].top > 1)
            merge_top(&keys[i], n);
        if (keys[i].empty[0])
            memset(keys[i].entry[0], 0, (size_t)n * sizeof(float));
    }
}

/* sum: {dk, dv}; section: which of the sums that dkv holds. */
static void store_keys(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, const float *sum, int64_t b, int g,
                       const key_block *y, int section)
{
    const int D = x->attr->head_dim;
    const size_t esize = orth_dtype_bytes(x->kv_type);
    const int64_t first = section * x->attr->num_seqs * x->kv_rows * x->l.kv_stride;
    for (int is_v = 0; is_v < 2; is_v++, sum += KB * x->Dp) {
        const float *rows = sum;
        if (x->micro->transpose) {
            x->micro->transpose(t->transposed, sum, x->Dp);
            rows = t->transposed;
        }
        for (int i = 0; i < y->num_keys; i++)
            x->micro->store_row(x->dkv + (size_t)(first + key_at(x, b, g, y->k0 + i) + is_v * D) * esize, rows + i * x->Dp,
                                D, 1.0f, x->kv_type);
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

void orth_attn_visit_blocks(const orth_attn_bwd *x, const orth_attn_bwd_scratch *t, int64_t b, int g, int64_t block,
                            int num)
{
    const int begin = x->l.slot_begin, end = x->l.slot_end;
    const int slots = x->attr->shares_kv ? 1 : end - begin; /* of one sum */
    key_block keys[ORTH_ATTN_SPAN];
    int chunk = 0;
    for (int i = 0; i < num; i++)
        keys[i] = pack_keys(x, t, b, g, (block + i) * KB, i);
    orth_attn_enter(x->micro);
    for (int slot = begin; slot < end; slot += slots) {
        visit_keys(x, t, b, g, keys, num, slot, slot + slots, &chunk);
        for (int i = 0; i < num; i++)
            store_keys(x, t, keys[i].entry[0], b, g, &keys[i], slot - begin);
    }
    orth_attn_leave(x->micro);
}
