/* test_attention_part.c -- ranks that hold some token slots of the queries (context parallelism), or some query heads of
 * a group (tensor parallelism with shared kv heads), each compute, put together, the bits of attention and attention_bwd
 * on whole sequences. */
#include <math.h>

#include "kernel_case.h"
#include "kernels/attention.h"

typedef struct {
    orth_dtype type;
    int B, T, H, KV, D, P;
    bool doc;
    float dropout;
} shape;

/* Operands of the whole, and what attention makes of them. */
typedef struct {
    shape s;
    orth_attr attr;
    int64_t N, R, HD, KV2;      /* KV2: elements of a row of kv */
    orth_tensor qkv, dout, doc, seq, step, kv, o, lse, dqkv;
} whole;

typedef struct {
    orth_kernel_fn fwd, bwd, part, part_bwd, pack, unpack;
    bool ref;
} kernels;

static const kernels plain = {orth_ref_attention, orth_ref_attention_bwd, orth_ref_attention_part,
                              orth_ref_attention_part_bwd, orth_ref_kv_pack, orth_ref_kv_unpack_grad, true};
static const kernels fast = {orth_cpu_attention, orth_cpu_attention_bwd, orth_cpu_attention_part,
                             orth_cpu_attention_part_bwd, orth_cpu_kv_pack, orth_cpu_kv_unpack_grad, false};

/* Workspaces start as NaN; everything written is checked for what was written beside it. */
static void run(orth_ctx *ctx, orth_kernel_fn fn, orth_workspace_fn workspace, const orth_tensor *in, int num_in,
                const orth_tensor *out, int num_out, const orth_attr *attr)
{
    orth_op_call call = {in, out, num_in, num_out, attr, NULL};
    const size_t bytes = workspace ? workspace(&call, orth_pool_num_threads(ctx->pool), ctx->isa) : 0;
    call.workspace = guarded_alloc(bytes);
    memset(call.workspace, 0xFF, bytes);
    CHECK_OK(ctx, fn(ctx, &call));
    guarded_check(call.workspace, bytes, "workspace");
    guarded_free(call.workspace);
    for (int i = 0; i < num_out; i++)
        guarded_check(out[i].data, orth_tensor_bytes(&out[i]), "output");
}

static whole whole_new(shape s)
{
    whole w = {.s = s, .N = (int64_t)s.B * s.T, .HD = (int64_t)s.H * s.D, .KV2 = (int64_t)2 * s.KV * s.D};
    w.attr = (orth_attr){.num_seqs = s.B, .seq_len = s.T, .token_parts = s.P, .heads = s.H, .kv_heads = s.KV,
                         .head_dim = s.D, .scale = 1.0f / sqrtf((float)s.D), .dropout = s.dropout, .site = 3,
                         .head_parts = orth_attn_head_parts(s.H, s.KV, s.P),
                         .first_head = 2};
    w.R = orth_attn_qkv_cols(&w.attr);
    w.qkv = case_random(s.type, w.N, w.R, 1, 2);
    w.dout = case_random(s.type, w.N, w.HD, 2, 2);
    w.doc = case_tensor(ORTH_I32, w.N, 0);
    w.seq = case_ints(s.B, 3, 0, 1000);
    w.step = case_step(&(orth_step_values){.seed = 11, .step = 5});
    w.kv = case_tensor(s.type, w.N, w.KV2);
    w.o = case_tensor(s.type, w.N, w.HD);
    w.lse = case_tensor(ORTH_F32, w.N, s.H);
    w.dqkv = case_tensor(s.type, w.N, w.R);
    for (int b = 0; b < s.B; b++)
        for (int pos = 0, start = 0; pos < s.T; pos++) {
            if (test_rand((uint64_t)(7 + b), (uint64_t)pos) > 0.95f)
                start = pos;
            ((int32_t *)w.doc.data)[b * s.T + orth_fold_row(s.T, s.P, pos)] = start;
        }
    if (!s.doc) {
        guarded_free(w.doc.data);
        w.doc.data = NULL;
    }
    return w;
}

static void whole_free(whole *w)
{
    case_free((orth_tensor[]){w->qkv, w->dout, w->doc, w->seq, w->step, w->kv, w->o, w->lse, w->dqkv}, 9);
}

static void whole_run(orth_ctx *ctx, whole *w, const kernels *k)
{
    run(ctx, k->fwd, k->ref ? NULL : orth_workspace_attention, (orth_tensor[]){w->qkv, w->doc, w->seq, w->step}, 4,
        (orth_tensor[]){w->o, w->lse}, 2, &w->attr);
    run(ctx, k->bwd, k->ref ? NULL : orth_workspace_attention_bwd,
        (orth_tensor[]){w->dout, w->qkv, w->o, w->lse, w->doc, w->seq, w->step}, 7, &w->dqkv, 1, &w->attr);
    run(ctx, k->pack, NULL, &w->qkv, 1, &w->kv, 1, &w->attr);
}

/* Which rows rank r of cp holds. */
static orth_attr rank_attr(const whole *w, int cp, int r)
{
    orth_attr a = w->attr;
    a.full_len = w->s.T;
    a.slot_count = w->s.P / cp;
    a.slot_begin = r * a.slot_count;
    a.seq_len = (int32_t)(orth_fold_begin(w->s.T, w->s.P, a.slot_begin + a.slot_count) -
                          orth_fold_begin(w->s.T, w->s.P, a.slot_begin));
    return a;
}

/* The rank's rows of a tensor of the whole. */
static orth_tensor mine(const orth_tensor *t, const orth_attr *a)
{
    orth_tensor out = *t;
    const size_t row = (size_t)t->dim[1] * orth_dtype_bytes(t->dtype), n = (size_t)a->seq_len * row;
    const int64_t first = orth_fold_begin(a->full_len, a->token_parts, a->slot_begin);
    out.dim[0] = (int64_t)a->num_seqs * a->seq_len;
    if (!t->data)
        return out;
    out.data = guarded_alloc(orth_tensor_bytes(&out));
    for (int b = 0; b < a->num_seqs; b++)
        memcpy((char *)out.data + (size_t)b * n, (char *)t->data + (size_t)((int64_t)b * a->full_len + first) * row, n);
    return out;
}

static void expect_equal(const orth_tensor *got, const orth_tensor *want, const whole *w, int cp, const char *what)
{
    const shape s = w->s;
    if (memcmp(got->data, want->data, orth_tensor_bytes(want)))
        fail_msg("%s: bits differ: type %d B %d T %d H %d KV %d D %d P %d doc %d cp %d", what, s.type, s.B, s.T, s.H,
                 s.KV, s.D, s.P, s.doc, cp);
}

/* The rank's forward and backward: dqkv with its query columns, and its part of dkv. */
static void rank_run(orth_ctx *ctx, const whole *w, const kernels *k, int cp, int r, orth_tensor *dq, orth_tensor *dkv)
{
    const orth_attr a = rank_attr(w, cp, r);
    const int64_t n = (int64_t)a.num_seqs * a.seq_len;
    orth_tensor qkv = mine(&w->qkv, &a), dout = mine(&w->dout, &a), doc = mine(&w->doc, &a);
    orth_tensor want_o = mine(&w->o, &a), want_lse = mine(&w->lse, &a);
    orth_tensor o = case_random(w->s.type, n, w->HD, 5, 1), lse = case_random(ORTH_F32, n, w->s.H, 6, 1);
    *dq = case_random(w->s.type, n, w->R, 7, 1);
    *dkv = case_random(ORTH_F32, w->N, w->KV2, 8, 1);
    run(ctx, k->part, k->ref ? NULL : orth_workspace_attention_part,
        (orth_tensor[]){qkv, w->kv, doc, w->seq, w->step}, 5, (orth_tensor[]){o, lse}, 2, &a);
    expect_equal(&o, &want_o, w, cp, "o");
    expect_equal(&lse, &want_lse, w, cp, "lse");
    run(ctx, k->part_bwd, k->ref ? NULL : orth_workspace_attention_part_bwd,
        (orth_tensor[]){dout, qkv, w->kv, o, lse, doc, w->seq, w->step}, 8, (orth_tensor[]){*dq, *dkv}, 2, &a);
    case_free((orth_tensor[]){qkv, dout, doc, want_o, want_lse, o, lse}, 7);
}

static void ranks_equal_whole(orth_ctx *ctx, const whole *w, const kernels *k, int cp)
{
    orth_tensor dq[8], dkv[8];
    for (int r = 0; r < cp; r++)
        rank_run(ctx, w, k, cp, r, &dq[r], &dkv[r]);
    for (int width = 1; width < cp; width *= 2) /* the aligned tree over ranks */
        for (int r = 0; r + width < cp; r += 2 * width)
            for (int64_t i = 0; i < w->N * w->KV2; i++)
                ((float *)dkv[r].data)[i] += ((float *)dkv[r + width].data)[i];
    for (int r = 0; r < cp; r++) {
        const orth_attr a = rank_attr(w, cp, r);
        orth_tensor part = mine(&dkv[0], &a), want = mine(&w->dqkv, &a);
        run(ctx, k->unpack, NULL, (orth_tensor[]){dq[r], part}, 2, &dq[r], 1, &a); /* in place */
        expect_equal(&dq[r], &want, w, cp, "dqkv");
        case_free((orth_tensor[]){part, want}, 2);
    }
    case_free(dq, cp);
    case_free(dkv, cp);
}

/* ---- block by block ---- */

typedef struct {
    orth_kernel_fn pack, block, end, block_bwd, grad;
    bool ref;
} block_kernels;

static const block_kernels plain_blocks = {orth_ref_kv_blocks, orth_ref_attention_block, orth_ref_attention_end,
                                           orth_ref_attention_block_bwd, orth_ref_kv_blocks_grad, true};
static const block_kernels fast_blocks = {orth_cpu_kv_blocks, orth_cpu_attention_block, orth_cpu_attention_end,
                                          orth_cpu_attention_block_bwd, orth_cpu_kv_blocks_grad, false};

static orth_tensor half_of(const orth_tensor *t, int half)
{
    orth_tensor h = *t;
    h.dim[0] /= 2;
    h.data = (char *)t->data + (size_t)half * orth_tensor_bytes(&h);
    return h;
}

static int owner_of(int cp, int block)
{
    return block < cp ? block : 2 * cp - 1 - block;
}

/* Attention of rank r, whose keys come in blocks; dkv[j] is what it adds to block j. */
static void rank_blocks(orth_ctx *ctx, const whole *w, const block_kernels *k, int cp, int r, const orth_tensor *kv,
                        orth_tensor *dq, orth_tensor *dkv)
{
    orth_attr a = rank_attr(w, cp, r);
    const int64_t n = (int64_t)a.num_seqs * a.seq_len;
    const orth_tensor none = {.dtype = ORTH_F32};
    orth_tensor qkv = mine(&w->qkv, &a), dout = mine(&w->dout, &a), doc = mine(&w->doc, &a);
    orth_tensor want_o = mine(&w->o, &a), want_lse = mine(&w->lse, &a);
    orth_tensor o = case_random(w->s.type, n, w->HD, 5, 1), lse = case_random(ORTH_F32, n, w->s.H, 6, 1);
    orth_tensor sum = case_random(ORTH_F32, n, w->HD, 7, 1), ml = case_random(ORTH_F32, n, 2 * w->s.H, 8, 1);
    *dq = case_random(ORTH_F32, n, w->HD, 9, 1);
    a.num_keys = w->s.T / (2 * cp);
    for (int j = 0; j <= 2 * cp - 1 - r; j++) {
        const orth_tensor keys = half_of(&kv[owner_of(cp, j)], j >= cp);
        a.key_begin = j * a.num_keys;
        run(ctx, k->block, k->ref ? NULL : orth_workspace_attention_block,
            (orth_tensor[]){qkv, keys, doc, w->seq, w->step, j ? sum : none, j ? ml : none}, 7, (orth_tensor[]){sum, ml},
            2, &a);
    }
    run(ctx, k->end, NULL, (orth_tensor[]){sum, ml}, 2, (orth_tensor[]){o, lse}, 2, &a);
    expect_equal(&o, &want_o, w, cp, "o, block by block");
    expect_equal(&lse, &want_lse, w, cp, "lse, block by block");
    for (int j = 0; j < 2 * cp; j++) {
        const orth_tensor keys = j <= 2 * cp - 1 - r ? half_of(&kv[owner_of(cp, j)], j >= cp) : none;
        a.key_begin = j * a.num_keys;
        dkv[j] = case_random(ORTH_F32, a.num_seqs * a.num_keys, w->KV2, 10, 1);
        run(ctx, k->block_bwd, k->ref ? NULL : orth_workspace_attention_block_bwd,
            (orth_tensor[]){dout, qkv, keys, o, lse, doc, w->seq, w->step, j ? *dq : none}, 9,
            (orth_tensor[]){*dq, dkv[j]}, 2, &a);
    }
    case_free((orth_tensor[]){qkv, dout, doc, want_o, want_lse, o, lse, sum, ml}, 9);
}

static void blocks_equal_whole(orth_ctx *ctx, const whole *w, const block_kernels *k, int cp)
{
    orth_tensor kv[4], dq[4], dkv[4][8];
    for (int r = 0; r < cp; r++) {
        const orth_attr a = rank_attr(w, cp, r);
        orth_tensor qkv = mine(&w->qkv, &a);
        kv[r] = case_tensor(w->s.type, w->N / cp, w->KV2);
        run(ctx, k->pack, NULL, &qkv, 1, &kv[r], 1, &a);
        case_free(&qkv, 1);
    }
    for (int r = 0; r < cp; r++)
        rank_blocks(ctx, w, k, cp, r, kv, &dq[r], dkv[r]);
    for (int width = 1; width < cp; width *= 2) /* the aligned tree over ranks */
        for (int i = 0; i + width < cp; i += 2 * width)
            for (int j = 0; j < 2 * cp; j++)
                for (int64_t e = 0; e < orth_tensor_elems(&dkv[i][j]); e++)
                    ((float *)dkv[i][j].data)[e] += ((float *)dkv[i + width][j].data)[e];
    for (int r = 0; r < cp; r++) {
        const orth_attr a = rank_attr(w, cp, r);
        orth_tensor both = case_tensor(ORTH_F32, w->N / cp, w->KV2), got = case_tensor(w->s.type, w->N / cp, w->R);
        orth_tensor want = mine(&w->dqkv, &a);
        for (int half = 0; half < 2; half++)
            memcpy(half_of(&both, half).data, dkv[0][half ? 2 * cp - 1 - r : r].data, orth_tensor_bytes(&both) / 2);
        run(ctx, k->grad, NULL, (orth_tensor[]){dq[r], both}, 2, &got, 1, &a);
        expect_equal(&got, &want, w, cp, "dqkv, block by block");
        case_free((orth_tensor[]){both, got, want}, 3);
    }
    for (int r = 0; r < cp; r++)
        case_free(dkv[r], 2 * cp);
    case_free(kv, cp);
    case_free(dq, cp);
}

static const shape long_shapes[] = {
    {ORTH_F32, 2, 256, 4, 2, 24, 4, true, 0},
    {ORTH_F32, 1, 512, 4, 1, 16, 8, false, 0},
    {ORTH_F32, 1, 1024, 2, 2, 33, 16, true, 0.2f},
};

TEST(keys_in_blocks_give_the_same_bits)
{
    static const int threads[] = {1, 3};
    for (int t = 0; t < ORTH_COUNT(threads); t++) {
        orth_ctx *ctx = test_ctx(threads[t]);
        for (int i = 0; i < ORTH_COUNT(long_shapes); i++)
            for (int bf16 = 0; bf16 < 2; bf16++)
                for (orth_isa isa = t ? orth_isa_detect() : ORTH_ISA_BASE; isa <= test_top_isa(); isa++) {
                    if (isa == ORTH_ISA_BASE && long_shapes[i].T > 512)
                        continue;
                    ctx->isa = isa;
                    shape s = long_shapes[i];
                    s.type = bf16 ? (i % 2 ? ORTH_F16 : ORTH_BF16) : ORTH_F32;
                    whole w = whole_new(s);
                    whole_run(ctx, &w, &fast);
                    for (int cp = 2; cp <= ORTH_MIN(4, s.T / 128); cp *= 2)
                        blocks_equal_whole(ctx, &w, &fast_blocks, cp);
                    whole_free(&w);
                }
        test_ctx_free(ctx);
    }
}

TEST(keys_in_blocks_give_the_same_bits_plainly)
{
    orth_ctx *ctx = test_ctx(1);
    shape s = {ORTH_F32, 1, 256, 2, 1, 8, 4, true, 0.1f};
    for (int i = 0; i < 2; i++) {
        s.type = i ? ORTH_BF16 : ORTH_F32;
        whole w = whole_new(s);
        whole_run(ctx, &w, &plain);
        blocks_equal_whole(ctx, &w, &plain_blocks, 2);
        whole_free(&w);
    }
    test_ctx_free(ctx);
}

static const shape shapes[] = {
    {ORTH_F32, 1, 8, 1, 1, 16, 8, false, 0},    {ORTH_F32, 2, 131, 4, 2, 24, 8, true, 0},
    {ORTH_F32, 1, 301, 4, 1, 64, 8, false, 0},  {ORTH_F32, 1, 5, 2, 1, 20, 8, false, 0},
    {ORTH_F32, 2, 256, 2, 2, 33, 8, true, 0},   {ORTH_F32, 1, 640, 8, 2, 32, 8, true, 0},
    {ORTH_F32, 2, 77, 6, 2, 16, 8, true, 0.2f},
};

TEST(ranks_compute_what_one_computes)
{
    static const int threads[] = {1, 2, 3, 7};
    for (int t = 0; t < ORTH_COUNT(threads); t++) {
        orth_ctx *ctx = test_ctx(threads[t]);
        for (int i = 0; i < ORTH_COUNT(shapes); i++)
            for (int bf16 = 0; bf16 < 2; bf16++)
                for (orth_isa isa = t ? orth_isa_detect() : ORTH_ISA_BASE; isa <= test_top_isa(); isa++) {
                    ctx->isa = isa;
                    shape s = shapes[i];
                    s.type = bf16 ? ORTH_BF16 : ORTH_F32;
                    s.T = isa == ORTH_ISA_BASE ? ORTH_MIN(s.T, 141) : s.T; /* which calls fmaf for each product */
                    whole w = whole_new(s);
                    whole_run(ctx, &w, &fast);
                    for (int cp = 1; cp <= 8; cp *= 2)
                        ranks_equal_whole(ctx, &w, &fast, cp);
                    whole_free(&w);
                }
        test_ctx_free(ctx);
    }
}

TEST(plain_ranks_compute_what_one_computes)
{
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(shapes); i++) {
        shape s = shapes[i];
        s.type = i % 2 ? ORTH_BF16 : ORTH_F32;
        s.T = ORTH_MIN(s.T, 141);
        whole w = whole_new(s);
        whole_run(ctx, &w, &plain);
        for (int cp = 2; cp <= 4; cp *= 2)
            ranks_equal_whole(ctx, &w, &plain, cp);
        whole_free(&w);
    }
    test_ctx_free(ctx);
}

/* ---- shared kv heads ---- */

/* Columns of rank i of n that each have some of the query heads of the only group: [k, v, q heads]. */
static orth_tensor heads_of(const orth_tensor *t, int64_t leading, int n, int i)
{
    const int64_t wide = t->dim[1] - leading, cols = leading + wide / n;
    orth_tensor out = case_tensor(t->dtype, t->dim[0], cols);
    for (int64_t r = 0; r < t->dim[0]; r++)
        for (int64_t c = 0; c < cols; c++)
            orth_store_f32(out.data, t->dtype, r * cols + c,
                           orth_load_f32(t->data, t->dtype, r * t->dim[1] + (c < leading ? c : c + i * (wide / n))));
    return out;
}

/* What rank i of n adds to dkv, slot by slot; its query columns are checked. */
static orth_tensor shared_rank(orth_ctx *ctx, const whole *w, const kernels *k, int n, int i)
{
    orth_attr a = rank_attr(w, 1, 0);
    a.heads /= n;
    a.head_parts /= n;
    a.first_head += i * a.heads;
    a.shares_kv = true;
    orth_tensor qkv = heads_of(&w->qkv, w->KV2, n, i), dout = heads_of(&w->dout, 0, n, i), o = heads_of(&w->o, 0, n, i);
    orth_tensor lse = heads_of(&w->lse, 0, n, i), want = heads_of(&w->dqkv, w->KV2, n, i);
    orth_tensor dq = case_copy(&want), dkv = case_random(ORTH_F32, w->s.P, w->N * w->KV2, 8, 1);
    for (int64_t r = 0; r < w->N; r++) /* what must be made anew */
        for (int64_t c = w->KV2; c < dq.dim[1]; c++)
            orth_store_f32(dq.data, dq.dtype, r * dq.dim[1] + c, -7);
    run(ctx, k->part_bwd, k->ref ? NULL : orth_workspace_attention_part_bwd,
        (orth_tensor[]){dout, qkv, w->kv, o, lse, w->doc, w->seq, w->step}, 8, (orth_tensor[]){dq, dkv}, 2, &a);
    expect_equal(&dq, &want, w, n, "dq of shared kv heads");
    case_free((orth_tensor[]){qkv, dout, o, lse, want, dq}, 6);
    return dkv;
}

/* dst += src, as ranks, or slots, do. */
static void add_all(float *dst, const float *src, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        dst[i] = dst[i] + src[i];
}

static void shared_equals_whole(orth_ctx *ctx, const whole *w, const kernels *k, int n)
{
    const int64_t section = w->N * w->KV2;
    orth_tensor dkv[8], got = case_copy(&w->dqkv);
    for (int i = 0; i < n; i++)
        dkv[i] = shared_rank(ctx, w, k, n, i);
    for (int width = 1; width < n; width *= 2)
        for (int i = 0; i + width < n; i += 2 * width)
            add_all(dkv[i].data, dkv[i + width].data, w->s.P * section);
    float *sum = dkv[0].data;
    for (int width = 1; width < w->s.P; width *= 2)
        for (int slot = 0; slot + width < w->s.P; slot += 2 * width)
            add_all(sum + slot * section, sum + (slot + width) * section, section);
    orth_tensor one = dkv[0];
    one.dim[0] = w->N;
    one.dim[1] = w->KV2;
    k->unpack(ctx, &(orth_op_call){(orth_tensor[]){w->dqkv, one}, &got, 2, 1, &w->attr, NULL});
    expect_equal(&got, &w->dqkv, w, n, "dkv of shared kv heads");
    case_free(dkv, n);
    case_free(&got, 1);
}

TEST(ranks_that_share_kv_heads_compute_what_one_computes)
{
    static const shape grouped[] = {{ORTH_F32, 1, 131, 4, 1, 24, 8, true, 0}, {ORTH_F32, 2, 301, 8, 1, 32, 8, true, 0.2f},
                                    {ORTH_F32, 1, 40, 12, 1, 16, 4, false, 0}};
    for (int threads = 1; threads <= 3; threads += 2) {
        orth_ctx *ctx = test_ctx(threads);
        for (int i = 0; i < 3 * ORTH_COUNT(grouped); i++)
            for (int n = 2; n <= 4; n *= 2) {
                shape s = grouped[i / 3];
                s.type = i % 3 == 1 ? ORTH_BF16 : ORTH_F32;
                ctx->isa = i % 3 == 2 ? test_top_isa() : orth_isa_detect();
                whole w = whole_new(s);
                const kernels *k = s.T == 40 ? &plain : &fast;
                whole_run(ctx, &w, k);
                shared_equals_whole(ctx, &w, k, n);
                whole_free(&w);
            }
        test_ctx_free(ctx);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranks_compute_what_one_computes),
        cmocka_unit_test(plain_ranks_compute_what_one_computes),
        cmocka_unit_test(ranks_that_share_kv_heads_compute_what_one_computes),
        cmocka_unit_test(keys_in_blocks_give_the_same_bits),
        cmocka_unit_test(keys_in_blocks_give_the_same_bits_plainly),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
