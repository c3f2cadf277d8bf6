/* gemm_library.c -- which products oneDNN gets, and how a product is cut into its calls.
 *
 * A call runs on one thread and multiplies a block of rows x columns over all of K. Where at most a bias
 * is added it writes C itself (oneDNN has no product of fp32 into bf16); other epilogues need the sums in
 * fp32, so the block goes to the thread's scratch and Orthant's own epilogue takes it from there.
 */
#include "kernels/gemm_library.h"

#include "base/pool.h"
#include "kernels/cpu/gemm_kernels.h"
#include "kernels/cpu/onednn.h"

#define MAX_PRODUCTS 256
#define BLOCK_MIN 128               /* rows and columns that a call should have at least */
#define TASKS_PER_THREAD 4
#define SCRATCH_ELEMS (256 << 10)   /* of a block whose sums go through scratch: 1 MB */

typedef struct {
    orth_gemm_desc g;               /* of its pointers counts only whether they are NULL */
    bool direct;                    /* the library writes C */
    int64_t block_m, block_n, m_tasks, n_tasks;
    orth_onednn_product *block[2][2]; /* [of the last row of tasks][of the last column]; may be the same */
} library_product;

struct orth_gemm_library {
    orth_gemm_library_use use;
    int num_threads, num_products;
    orth_onednn *engine;
    library_product products[MAX_PRODUCTS];
    char *scratch;                  /* [num_threads][scratch_bytes] */
    size_t scratch_bytes;           /* of a thread: fp32 block, then the library's own */
};

/* What was measured (bench_gemm_dnnl): on AVX-512 and AMX our kernels are on average as fast as oneDNN 2.6 on the
 * layout that it likes best, and faster on plain ones. Where ours are plain C (Arm, old x86) nothing was timed: it is
 * taken to be faster. */
static bool is_faster(const orth_ctx *ctx)
{
    return ctx->isa == ORTH_ISA_BASE;
}

/* A run that was asked to leave instructions out (run.isa) keeps to our kernels: oneDNN would use them. */
static bool takes(const orth_ctx *ctx, const orth_gemm_desc *g)
{
    const bool unit_strides = (g->a_row == 1 || g->a_col == 1) && (g->b_row == 1 || g->b_col == 1);
    if (g->M < BLOCK_MIN || g->N < BLOCK_MIN || g->K == 0 || !unit_strides || ctx->isa != orth_isa_auto())
        return false;
    return ctx->gemm_library->use == ORTH_GEMM_LIBRARY_ALL || is_faster(ctx);
}

/* ---- set-up ---- */

orth_status orth_gemm_library_open(orth_ctx *ctx, orth_gemm_library_use use)
{
    struct orth_gemm_library *l = ORTH_NEW(ctx, struct orth_gemm_library);
    if (!l)
        return ORTH_ERR_NOMEM;
    l->use = use;
    l->num_threads = orth_pool_num_threads(ctx->pool);
    const orth_status s = orth_onednn_create(ctx, &l->engine, l->num_threads);
    if (s != ORTH_OK) {
        orth_mem_free(ctx, l);
        return s;
    }
    ctx->gemm_library = l;
    return ORTH_OK;
}

static void product_release(orth_ctx *ctx, library_product *p)
{
    for (int i = 0; i < 4; i++) {
        orth_onednn_product *b = p->block[i / 2][i % 2];
        for (int k = 0; k < i; k++) /* some are the same */
            b = p->block[k / 2][k % 2] == b ? NULL : b;
        orth_onednn_product_destroy(ctx, b);
    }
}

void orth_gemm_library_close(orth_ctx *ctx)
{
    struct orth_gemm_library *l = ctx->gemm_library;
    if (!l)
        return;
    for (int i = 0; i < l->num_products; i++)
        product_release(ctx, &l->products[i]);
    orth_onednn_destroy(ctx, l->engine);
    orth_mem_free(ctx, l->scratch);
    orth_mem_free(ctx, l);
    ctx->gemm_library = NULL;
}

static bool same(const orth_gemm_desc *x, const orth_gemm_desc *y)
{
    return x->M == y->M && x->N == y->N && x->K == y->K && x->in_type == y->in_type && x->c_type == y->c_type &&
           x->a_row == y->a_row && x->a_col == y->a_col && x->b_row == y->b_row && x->b_col == y->b_col &&
           x->c_row == y->c_row && !x->bias == !y->bias && !x->pre == !y->pre && x->act == y->act &&
           !x->num_addends == !y->num_addends;
}

static const library_product *find(const struct orth_gemm_library *l, const orth_gemm_desc *g)
{
    for (int i = 0; i < l->num_products; i++)
        if (same(&l->products[i].g, g))
            return &l->products[i];
    return NULL;
}

/* Halves the longer side until there is work for all threads, and a block fits its scratch. Few large
 * blocks: each call packs its operands anew. */
static void cut(library_product *p, int num_threads)
{
    const orth_gemm_desc *g = &p->g;
    p->block_m = g->M;
    p->block_n = g->N;
    for (;;) {
        p->m_tasks = orth_div_up(g->M, p->block_m);
        p->n_tasks = orth_div_up(g->N, p->block_n);
        const bool enough = num_threads == 1 || p->m_tasks * p->n_tasks >= TASKS_PER_THREAD * num_threads;
        const bool fits = p->direct || p->block_m * p->block_n <= SCRATCH_ELEMS;
        int64_t *side = p->block_m > p->block_n ? &p->block_m : &p->block_n;
        if ((enough && fits) || (*side < 2 * BLOCK_MIN && fits))
            return;
        *side = orth_round_up(orth_div_up(*side, 2), 64);
    }
}

static orth_onednn_shape block_shape(const library_product *p, bool last_m, bool last_n)
{
    const orth_gemm_desc *g = &p->g;
    return (orth_onednn_shape){
        .M = last_m ? g->M - (p->m_tasks - 1) * p->block_m : p->block_m,
        .N = last_n ? g->N - (p->n_tasks - 1) * p->block_n : p->block_n,
        .K = g->K, .in_type = g->in_type, .out_type = p->direct ? g->c_type : ORTH_F32,
        .a_row = g->a_row, .a_col = g->a_col, .b_row = g->b_row, .b_col = g->b_col,
        .c_row = p->direct ? g->c_row : p->block_n, .bias = p->direct && g->bias,
    };
}

/* *have: the library has them all. */
static orth_status make_blocks(orth_ctx *ctx, library_product *p, bool *have)
{
    for (int i = 0; i < 4; i++) {
        const bool last_m = i / 2, last_n = i % 2;
        const orth_onednn_shape s = block_shape(p, last_m, last_n);
        for (int k = 0; k < i && !p->block[last_m][last_n]; k++) {
            const orth_onednn_shape t = block_shape(p, k / 2, k % 2);
            if (s.M == t.M && s.N == t.N)
                p->block[last_m][last_n] = p->block[k / 2][k % 2];
        }
        if (!p->block[last_m][last_n])
            ORTH_TRY(orth_onednn_product_create(ctx, ctx->gemm_library->engine, &p->block[last_m][last_n], &s));
        *have = p->block[last_m][last_n] != NULL;
        if (!*have)
            return ORTH_OK;
    }
    return ORTH_OK;
}

static size_t block_bytes(const library_product *p)
{
    return p->direct ? 0 : (size_t)orth_round_up(4 * p->block_m * p->block_n, 64);
}

static orth_status need_scratch(orth_ctx *ctx, const library_product *p)
{
    struct orth_gemm_library *l = ctx->gemm_library;
    size_t most = 0;
    for (int i = 0; i < 4; i++)
        most = ORTH_MAX(most, orth_onednn_scratch_bytes(p->block[i / 2][i % 2]));
    most = (size_t)orth_round_up((int64_t)(most + block_bytes(p)), 4096);
    if (most <= l->scratch_bytes)
        return ORTH_OK;
    orth_mem_free(ctx, l->scratch);
    l->scratch_bytes = 0;
    l->scratch = orth_mem_alloc(ctx, most * (size_t)l->num_threads);
    if (!l->scratch)
        return ORTH_ERR_NOMEM;
    l->scratch_bytes = most;
    return ORTH_OK;
}

orth_status orth_gemm_library_add(orth_ctx *ctx, const orth_gemm_desc *g)
{
    struct orth_gemm_library *l = ctx->gemm_library;
    if (!l || !takes(ctx, g) || find(l, g) || l->num_products == MAX_PRODUCTS)
        return ORTH_OK;
    library_product *p = &l->products[l->num_products];
    *p = (library_product){.g = *g};
    p->direct = !g->pre && !g->num_addends && g->act == ORTH_ACT_NONE &&
                (g->in_type == ORTH_BF16 || g->c_type == ORTH_F32);
    cut(p, l->num_threads);
    bool have = false;
    orth_status s = make_blocks(ctx, p, &have);
    if (s == ORTH_OK && have)
        s = need_scratch(ctx, p);
    if (s != ORTH_OK || !have) {
        product_release(ctx, p);
        return s;
    }
    l->num_products++;
    return ORTH_OK;
}

/* ---- running ---- */

typedef struct {
    const struct orth_gemm_library *library;
    const library_product *product;
    const orth_gemm_desc *g;
    const orth_gemm_kernels *kernels;   /* for their epilogue */
    _Atomic int failed;
} library_run;

static void run_block(void *arg, int64_t index, int worker)
{
    library_run *r = arg;
    const library_product *p = r->product;
    const orth_gemm_desc *g = r->g;
    const int64_t i = index % p->m_tasks, j = index / p->m_tasks;
    const int64_t m0 = i * p->block_m, n0 = j * p->block_n;
    const size_t in = orth_dtype_bytes(g->in_type);
    char *scratch = r->library->scratch + r->library->scratch_bytes * (size_t)worker;
    char *c = p->direct ? (char *)g->c + (size_t)(m0 * g->c_row + n0) * orth_dtype_bytes(g->c_type) : scratch;
    const orth_status s = orth_onednn_run(
        p->block[i == p->m_tasks - 1][j == p->n_tasks - 1], worker, (const char *)g->a + (size_t)(m0 * g->a_row) * in,
        (const char *)g->b + (size_t)(n0 * g->b_col) * in, g->bias ? g->bias + n0 : NULL, c, scratch + block_bytes(p));
    if (s != ORTH_OK)
        r->failed = 1;
    else if (!p->direct)
        r->kernels->finish(g, (const float *)(const void *)scratch, p->block_n, m0, n0,
                           (int)ORTH_MIN(p->block_m, g->M - m0), (int)ORTH_MIN(p->block_n, g->N - n0));
}

orth_status orth_gemm_library_run(orth_ctx *ctx, const orth_gemm_desc *g, bool *done)
{
    library_run r = {.library = ctx->gemm_library, .g = g};
    r.product = r.library ? find(r.library, g) : NULL;
    *done = r.product != NULL;
    if (!*done)
        return ORTH_OK;
    r.kernels = orth_gemm_kernels_for(ctx->isa, g->in_type);
    orth_pool_run(ctx->pool, r.product->m_tasks * r.product->n_tasks, run_block, &r);
    if (r.failed)
        return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "oneDNN failed in the product %d x %d x %d", (int)g->M, (int)g->N,
                         (int)g->K);
    return ORTH_OK;
}

size_t orth_gemm_library_bytes(const orth_ctx *ctx)
{
    const struct orth_gemm_library *l = ctx->gemm_library;
    return l ? l->scratch_bytes * (size_t)l->num_threads : 0;
}

int orth_gemm_library_products(const orth_ctx *ctx)
{
    return ctx->gemm_library ? ctx->gemm_library->num_products : 0;
}

void orth_gemm_library_version(char *out, size_t num_bytes)
{
    orth_onednn_version(out, num_bytes);
}
