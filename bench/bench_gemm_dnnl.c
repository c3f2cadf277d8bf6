/* bench_gemm_dnnl.c -- matrix products of Orthant against bare oneDNN (2.6 API), interleaved.
 *
 *   bench_gemm_dnnl [fp32|bf16|bf16x6|all] [model or all] [rounds] [threads]
 *
 * For every weight of each model: forward y = x w^T, dX = dy w, dW = dy^T x, 1024 tokens. oneDNN runs
 * with plain layouts and, where B is a weight, with the layout it asks for, the reordering not counted;
 * the better one is what Orthant is held against. Orthant gets plain layouts and packs inside its time.
 * parts1 is fast mode (one part), parts8 reproducible mode's default.
 * A round times every contender once; ratios are medians of the rounds' ratios. bf16: forward and
 * dX store bf16, dW fp32. bf16x6: precision.fp32_products, beside oneDNN in fp32. With one thread, processor time is what counts: on a busy machine that is the
 * comparison to trust.
 */
#include <dnnl.h>
#include <math.h>
#include <omp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/clock.h"
#include "base/pool.h"
#include "kernels/gemm.h"

#define TOKENS 1024
#define MAX_ROUNDS 64

typedef struct {
    const char *model, *weight;
    int64_t O, C;                   /* w[O,C] */
} weight_shape;

#define GPT2(name, C) {name, "qkv", 3 * C, C}, {name, "proj", C, C}, {name, "fc", 4 * C, C}, \
    {name, "fc2", C, 4 * C}
/* Heads are cut to the chunk of the vocabulary that the fused loss takes at once, except one. */
static const weight_shape weights[] = {
    GPT2("124m", 768),  {"124m", "head", 50257, 768},  GPT2("350m", 1024),  {"350m", "head", 8192, 1024},
    GPT2("774m", 1280), {"774m", "head", 8192, 1280}, GPT2("1558m", 1600), {"1558m", "head", 8192, 1600},
    {"llama1b", "qkv", 3072, 2048},   {"llama1b", "o", 2048, 2048},      {"llama1b", "gate_up", 16384, 2048},
    {"llama1b", "down", 2048, 8192},  {"llama1b", "head", 16384, 2048},
};

typedef enum { FORWARD, DX, DW } product;
static const char *const product_names[] = {"fwd", "dX", "dW"};

static void fail(const char *what)
{
    fprintf(stderr, "bench_gemm_dnnl: %s\n", what);
    exit(70);
}

/* ---- oneDNN ---- */

typedef struct {
    dnnl_primitive_t primitive;
    dnnl_memory_t a, b, c;
    void *reordered;
} peer_gemm;

static void check(dnnl_status_t s, const char *what)
{
    if (s != dnnl_success)
        fail(what);
}

/* `own`: B in the layout that oneDNN asks for, filled from the plain one. */
static peer_gemm peer_make(dnnl_engine_t engine, dnnl_stream_t stream, const orth_gemm_desc *g, bool own)
{
    peer_gemm d = {0};
    const dnnl_data_type_t in = g->in_type == ORTH_BF16 ? dnnl_bf16 : dnnl_f32;
    const dnnl_data_type_t out = g->c_type == ORTH_BF16 ? dnnl_bf16 : dnnl_f32;
    dnnl_dims_t da = {g->M, g->K}, db = {g->K, g->N}, dc = {g->M, g->N};
    dnnl_dims_t sa = {g->a_row, g->a_col}, sb = {g->b_row, g->b_col}, sc = {g->c_row, 1};
    dnnl_memory_desc_t ma, mb, mc, plain;
    check(dnnl_memory_desc_init_by_strides(&ma, 2, da, in, sa), "strides");
    check(dnnl_memory_desc_init_by_strides(&plain, 2, db, in, sb), "strides");
    check(dnnl_memory_desc_init_by_strides(&mc, 2, dc, out, sc), "strides");
    mb = plain;
    if (own)
        check(dnnl_memory_desc_init_by_tag(&mb, 2, db, in, dnnl_format_tag_any), "tag");
    dnnl_matmul_desc_t md;
    dnnl_primitive_desc_t pd;
    check(dnnl_matmul_desc_init(&md, &ma, &mb, NULL, &mc), "matmul");
    check(dnnl_primitive_desc_create(&pd, &md, NULL, engine, NULL), "matmul primitive");
    check(dnnl_primitive_create(&d.primitive, pd), "matmul primitive");
    check(dnnl_memory_create(&d.a, &ma, engine, (void *)(uintptr_t)g->a), "memory");
    check(dnnl_memory_create(&d.c, &mc, engine, g->c), "memory");
    check(dnnl_memory_create(&d.b, &plain, engine, (void *)(uintptr_t)g->b), "memory");
    if (own) {
        const dnnl_memory_desc_t *asked = dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0);
        dnnl_memory_t from = d.b;
        dnnl_primitive_desc_t rpd;
        dnnl_primitive_t reorder;
        d.reordered = aligned_alloc(64, (dnnl_memory_desc_get_size(asked) + 63) / 64 * 64);
        check(dnnl_memory_create(&d.b, asked, engine, d.reordered), "memory");
        check(dnnl_reorder_primitive_desc_create(&rpd, &plain, engine, asked, engine, NULL), "reorder");
        check(dnnl_primitive_create(&reorder, rpd), "reorder");
        dnnl_exec_arg_t args[] = {{DNNL_ARG_FROM, from}, {DNNL_ARG_TO, d.b}};
        check(dnnl_primitive_execute(reorder, stream, 2, args), "reorder");
        dnnl_stream_wait(stream);
        dnnl_primitive_destroy(reorder);
        dnnl_primitive_desc_destroy(rpd);
        dnnl_memory_destroy(from);
    }
    dnnl_primitive_desc_destroy(pd);
    return d;
}

static void peer_run(dnnl_stream_t stream, const peer_gemm *d)
{
    dnnl_exec_arg_t args[] = {{DNNL_ARG_SRC, d->a}, {DNNL_ARG_WEIGHTS, d->b}, {DNNL_ARG_DST, d->c}};
    check(dnnl_primitive_execute(d->primitive, stream, 3, args), "execute");
    dnnl_stream_wait(stream);
}

static void peer_free(peer_gemm *d)
{
    dnnl_memory_destroy(d->a);
    dnnl_memory_destroy(d->b);
    dnnl_memory_destroy(d->c);
    dnnl_primitive_destroy(d->primitive);
    free(d->reordered);
}

/* ---- peak ---- */

#if defined(__x86_64__)
#include <immintrin.h>
__attribute__((target("avx512f"))) static void fma_loop(void *arg, int64_t index, int worker)
{
    (void)worker;
    __m512 acc[24], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
    for (int i = 0; i < 24; i++)
        acc[i] = _mm512_set1_ps((float)(i + 1));
    for (int r = 0; r < 20000; r++)
#pragma GCC unroll 24
        for (int i = 0; i < 24; i++)
            acc[i] = _mm512_fmadd_ps(acc[i], x, y);
    for (int i = 1; i < 24; i++)
        acc[0] = _mm512_add_ps(acc[0], acc[i]);
    ((float *)arg)[index % 64] = _mm512_reduce_add_ps(acc[0]);
}

static void print_peak(orth_ctx *ctx, const char *when)
{
    float sink[64];
    if (!__builtin_cpu_supports("avx512f"))
        return;
    const double t = orth_clock_s();
    orth_pool_run(ctx->pool, 4096, fma_loop, sink);
    printf("# peak fp32 fma %s: %.0f GFLOP/s\n", when, 4096.0 * 20000 * 24 * 32 / (orth_clock_s() - t) / 1e9);
}
#else
static void print_peak(orth_ctx *ctx, const char *when)
{
    (void)ctx;
    (void)when;
}
#endif

/* ---- timing ---- */

/* OWN, KEPT: a B that was brought into the layout that the kernels want beforehand, which is not counted. */
typedef enum { DNNL_PLAIN, DNNL_OWN, OURS_FAST, OURS_PARTS, OURS_FAST_KEPT, OURS_PARTS_KEPT, CONTENDERS } contender;
#define OURS (CONTENDERS - OURS_FAST)

typedef struct {
    orth_ctx *ctx;
    dnnl_stream_t stream;
    peer_gemm dnnl[2];
    bool has_own;
    orth_gemm_desc g[OURS];         /* parts 1 and 8; the same with B packed */
    void *workspace;
    double time[CONTENDERS][MAX_ROUNDS];
} duel;

static void run_once(duel *d, contender who)
{
    if (who <= DNNL_OWN)
        peer_run(d->stream, &d->dnnl[who]);
    else
        orth_gemm(d->ctx, &d->g[who - OURS_FAST], d->workspace);
}

static double now(const duel *d)
{
    struct timespec t;
    if (orth_pool_num_threads(d->ctx->pool) > 1)
        return orth_clock_s();
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* The pause lets the other library's threads stop spinning: those of libgomp do for 300,000 pause instructions, 4 ms on
 * Zen 4, 15 where one takes 140 cycles. The first call warms caches and threads. */
static double time_contender(duel *d, contender who)
{
    const struct timespec pause = {0, who == OURS_FAST ? 40000000 : 3000000};
    nanosleep(&pause, NULL);
    double t = now(d);
    run_once(d, who);
    const int n = (int)ORTH_MIN(20, 1 + 0.008 / (now(d) - t));
    t = now(d);
    for (int i = 0; i < n; i++)
        run_once(d, who);
    return (now(d) - t) / n;
}

static int compare_double(const void *x, const void *y)
{
    const double a = *(const double *)x, b = *(const double *)y;
    return (a > b) - (a < b);
}

static double median(const double *x, int n)
{
    double copy[MAX_ROUNDS];
    memcpy(copy, x, (size_t)n * sizeof *x);
    qsort(copy, (size_t)n, sizeof *copy, compare_double);
    return n % 2 ? copy[n / 2] : 0.5 * (copy[n / 2 - 1] + copy[n / 2]);
}

/* Median over rounds of best oneDNN time / our time. */
static double ratio_of(const duel *d, contender who, int rounds)
{
    double r[MAX_ROUNDS];
    /* The better layout is chosen by its median, so that luck in single rounds does not choose it. */
    const contender best =
        d->has_own && median(d->time[DNNL_OWN], rounds) < median(d->time[DNNL_PLAIN], rounds) ? DNNL_OWN
                                                                                              : DNNL_PLAIN;
    for (int i = 0; i < rounds; i++)
        r[i] = d->time[best][i] / d->time[who][i];
    return median(r, rounds);
}

/* ---- cases ---- */

static void *random_matrix(orth_dtype type, int64_t n)
{
    void *p = aligned_alloc(64, (size_t)((n * 4 + 63) / 64 * 64));
    uint32_t x = 12345;
    if (!p)
        fail("no memory");
    for (int64_t i = 0; i < n; i++) {
        x = x * 1664525u + 1013904223u;
        orth_store_f32(p, type, i, (float)(x >> 8) * 0x1p-23f - 1.0f);
    }
    return p;
}

static orth_gemm_desc describe(product what, orth_dtype type, int64_t O, int64_t C, int parts)
{
    orth_gemm_desc g = {.in_type = type, .c_type = what == DW ? ORTH_F32 : type};
    if (what == FORWARD)
        g = (orth_gemm_desc){.M = TOKENS, .N = O, .K = C, .a_row = C, .a_col = 1, .b_row = 1, .b_col = C};
    else if (what == DX)
        g = (orth_gemm_desc){.M = TOKENS, .N = C, .K = O, .a_row = O, .a_col = 1, .b_row = C, .b_col = 1};
    else
        g = (orth_gemm_desc){.M = O, .N = C, .K = TOKENS, .a_row = 1, .a_col = O, .b_row = C, .b_col = 1};
    g.in_type = type;
    g.c_type = what == DW ? ORTH_F32 : type;
    g.c_row = g.N;
    g.c_later = what == DW; /* as linear_dw has it */
    g.split = (orth_split){ORTH_SPLIT_EVEN, parts, g.K, 1, 1};
    if (what == DW)
        g.split = (orth_split){ORTH_SPLIT_TOKENS, parts, TOKENS, 1, 1};
    return g;
}

static void run_duel(orth_ctx *ctx, dnnl_engine_t engine, dnnl_stream_t stream, const weight_shape *w,
                     product what, orth_dtype type, int rounds, double log_sum[OURS], double lowest[OURS])
{
    static duel d; /* large: kept off the stack of a program that has one */
    memset(&d, 0, sizeof d);
    d.ctx = ctx;
    d.stream = stream;
    size_t bytes = 0;
    for (int i = 0; i < OURS; i++) {
        d.g[i] = describe(what, type, w->O, w->C, i % 2 ? 8 : 1);
        bytes =
            ORTH_MAX(bytes, orth_gemm_workspace_bytes(&d.g[i], orth_pool_num_threads(ctx->pool), ctx->isa));
    }
    void *a = random_matrix(type, d.g[0].M * d.g[0].K), *b = random_matrix(type, d.g[0].N * d.g[0].K);
    void *c = random_matrix(d.g[0].c_type, d.g[0].M * d.g[0].N);
    void *packed[2] = {NULL, NULL};
    d.has_own = what != DW;
    for (int i = 0; i < OURS; i++) {
        d.g[i].a = a;
        d.g[i].b = b;
        d.g[i].c = c;
        if (i < 2 || !d.has_own)
            continue;
        packed[i - 2] = orth_mem_alloc(ctx, orth_gemm_packed_bytes(&d.g[i], ctx->isa));
        orth_gemm_pack_b(ctx, &d.g[i], packed[i - 2]);
        d.g[i].b_packed = packed[i - 2];
    }
    d.workspace = orth_mem_alloc(ctx, bytes);
    d.dnnl[0] = peer_make(engine, stream, &d.g[0], false);
    if (d.has_own)
        d.dnnl[1] = peer_make(engine, stream, &d.g[0], true);
    for (int r = 0; r < rounds; r++)
        for (int who = 0; who < CONTENDERS; who++)
            if (d.has_own || (who != DNNL_OWN && who < OURS_FAST_KEPT))
                d.time[who][r] = time_contender(&d, (contender)who);
    const double gf = 2e-9 * (double)d.g[0].M * (double)d.g[0].N * (double)d.g[0].K;
    printf("%-8s %-7s %-4s %-4s %6d %6d %6d", w->model, w->weight, product_names[what], orth_dtype_name(type),
           (int)d.g[0].M, (int)d.g[0].N, (int)d.g[0].K);
    for (int who = 0; who < CONTENDERS; who++)
        printf(" %7.0f", d.time[who][0] > 0 ? gf / median(d.time[who], rounds) : 0.0);
    for (int i = 0; i < OURS; i++) {
        const double r = ratio_of(&d, (contender)(OURS_FAST + (d.has_own ? i : i % 2)), rounds);
        log_sum[i] += log(r);
        lowest[i] = fmin(lowest[i], r);
        printf("  %5.3f", r);
    }
    printf("\n");
    fflush(stdout);
    peer_free(&d.dnnl[0]);
    if (d.has_own)
        peer_free(&d.dnnl[1]);
    orth_mem_free(ctx, d.workspace);
    orth_mem_free(ctx, packed[0]);
    orth_mem_free(ctx, packed[1]);
    free(a);
    free(b);
    free(c);
}

static void run_type(orth_ctx *ctx, dnnl_engine_t engine, dnnl_stream_t stream, orth_dtype type,
                     const char *model, int rounds)
{
    static const char *const columns[] = {"dnnl", "d.any", "parts1", "parts8", "kept1", "kept8"};
    double log_sum[OURS] = {0}, lowest[OURS] = {INFINITY, INFINITY, INFINITY, INFINITY};
    int n = 0;
    printf("# GFLOP/s; ratio: best oneDNN time / ours; any, kept: a weight that was packed beforehand, not counted\n"
           "%-8s %-7s %-4s %-4s %6s %6s %6s", "model", "weight", "op", "type", "M", "N", "K");
    for (int i = 0; i < ORTH_COUNT(columns); i++)
        printf(" %7s", columns[i]);
    printf("  %5s  %5s  %5s  %5s\n", "r1", "r8", "k1", "k8");
    for (int i = 0; i < ORTH_COUNT(weights); i++) {
        if (strcmp(model, "all") != 0 && strcmp(model, weights[i].model) != 0)
            continue;
        for (int what = FORWARD; what <= DW; what++, n++)
            run_duel(ctx, engine, stream, &weights[i], (product)what, type, rounds, log_sum, lowest);
    }
    for (int i = 0; i < OURS && n; i++)
        printf("# %s parts=%d%s: geometric mean of %d ratios %.3f, lowest %.3f\n", orth_dtype_name(type),
               i % 2 ? 8 : 1, i < 2 ? "" : ", kept", n, exp(log_sum[i] / n), lowest[i]);
}

int main(int argc, char **argv)
{
    const char *type = argc > 1 ? argv[1] : "all", *model = argc > 2 ? argv[2] : "all";
    const int rounds = argc > 3 ? ORTH_MIN(MAX_ROUNDS, ORTH_MAX(1, atoi(argv[3]))) : 7;
    const int threads = argc > 4 ? ORTH_MAX(1, atoi(argv[4])) : 2;
    orth_ctx ctx;
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    if (orth_ctx_init(&ctx, threads) != ORTH_OK)
        fail(ctx.error.message);
    omp_set_num_threads(threads);
    check(dnnl_engine_create(&engine, dnnl_cpu, 0), "engine");
    check(dnnl_stream_create(&stream, engine, dnnl_stream_default_flags), "stream");
    const dnnl_version_t *v = dnnl_version();
    printf("# oneDNN %d.%d.%d, isa %s, %d threads, %d rounds\n", v->major, v->minor, v->patch,
           orth_isa_name(ctx.isa), threads, rounds);
    print_peak(&ctx, "before");
    const bool all = strcmp(type, "all") == 0, split = strcmp(type, "bf16x6") == 0;
    if (split && ctx.isa != ORTH_ISA_AMX)
        fail("bf16x6 needs AMX");
    if (all || strcmp(type, "fp32") == 0)
        run_type(&ctx, engine, stream, ORTH_F32, model, rounds);
    if (all && ctx.isa == ORTH_ISA_AVX2)
        printf("# bf16: oneDNN has no such product without AVX-512\n");
    else if (all || strcmp(type, "bf16") == 0)
        run_type(&ctx, engine, stream, ORTH_BF16, model, rounds);
    if (split || (all && ctx.isa == ORTH_ISA_AMX)) {
        ctx.isa = ORTH_ISA_AMX_BF16X6;
        printf("# fp32 as bf16x6\n");
        run_type(&ctx, engine, stream, ORTH_F32, model, rounds);
    }
    print_peak(&ctx, "after");
    dnnl_stream_destroy(stream);
    dnnl_engine_destroy(engine);
    orth_ctx_destroy(&ctx);
    return 0;
}
