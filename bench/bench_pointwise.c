/* bench_pointwise.c -- memory-bound kernels against the copy bandwidth of the same minute.
 *
 * usage: bench_pointwise [threads=2] [rounds=15]
 * Each round times a plain copy (the better of cached and streaming stores), then one kernel, on data
 * far larger than any cache; the table shows medians, and the median of the ratios of each round. Bytes
 * are those an ideal kernel reads and writes (read + write, without the lines that a store fetches).
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/pool.h"
#include "base/rng.h"
#include "kernels/op.h"
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define MAX_ROUNDS 101
#define COPY_BYTES ((size_t)192 << 20)
#define CHUNK_BYTES ((size_t)128 << 10)

typedef struct {
    char *dst, *src;
    bool streaming;
} copy_job;

static void copy_task(void *arg, int64_t i, int worker)
{
    (void)worker;
    copy_job *j = arg;
    char *d = j->dst + (size_t)i * CHUNK_BYTES, *s = j->src + (size_t)i * CHUNK_BYTES;
#if defined(__SSE2__)
    if (j->streaming) {
        for (size_t k = 0; k < CHUNK_BYTES; k += 16)
            _mm_stream_si128((void *)(d + k), _mm_load_si128((void *)(s + k)));
        _mm_sfence();
        return;
    }
#endif
    memcpy(d, s, CHUNK_BYTES);
}

/* Bytes read and written per second, the better of two ways. */
static double copy_rate(orth_ctx *ctx, copy_job *j)
{
    double best = 0;
    for (int way = 0; way < 2; way++) {
        j->streaming = way;
        double t = orth_clock_s();
        orth_pool_run(ctx->pool, (int64_t)(COPY_BYTES / CHUNK_BYTES), copy_task, j);
        double rate = 2.0 * (double)COPY_BYTES / (orth_clock_s() - t);
        best = ORTH_MAX(best, rate);
    }
    return best;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *v, int n)
{
    qsort(v, (size_t)n, sizeof *v, by_value);
    return v[n / 2];
}

typedef struct {
    const char *name;
    orth_kernel_fn fn[3];
    orth_op_call call[3];
    orth_workspace_fn workspace;
    int num_ops;
    double bytes;
} bench;

static orth_tensor tensor(orth_ctx *ctx, orth_dtype type, int64_t dim0, int64_t dim1)
{
    orth_tensor t = {.dtype = type, .num_dims = 2, .dim = {dim0, dim1, 1, 1}};
    t.data = orth_mem_alloc(ctx, orth_tensor_bytes(&t));
    if (!t.data) {
        fprintf(stderr, "bench_pointwise: %s\n", ctx->error.message);
        exit(3);
    }
    /* Values repeat every 4096 elements: filling is not what is measured. */
    for (int64_t i = 0; i < dim0 * dim1; i++) {
        float v = 2 * orth_rand_unit((uint32_t)(i % 4096) * 2654435761u) - 1;
        if (type == ORTH_F32 || type == ORTH_BF16)
            orth_store_f32(t.data, type, i, v);
        else if (type == ORTH_I32)
            ((int32_t *)t.data)[i] = (int32_t)(i * 7919 % 50000);
    }
    return t;
}

static void run(orth_ctx *ctx, copy_job *copy, bench *b, int rounds)
{
    double copies[MAX_ROUNDS], rates[MAX_ROUNDS], ratios[MAX_ROUNDS];
    if (b->workspace) {
        b->call[0].workspace =
            orth_mem_alloc(ctx, b->workspace(&b->call[0], orth_pool_num_threads(ctx->pool), ctx->isa));
        if (!b->call[0].workspace)
            exit(3);
    }
    for (int r = -1; r < rounds; r++) {
        double c = copy_rate(ctx, copy), t = orth_clock_s();
        for (int i = 0; i < b->num_ops; i++)
            b->fn[i](ctx, &b->call[i]);
        double rate = b->bytes / (orth_clock_s() - t);
        if (r >= 0) {
            copies[r] = c;
            rates[r] = rate;
            ratios[r] = rate / c;
        }
    }
    orth_mem_free(ctx, b->call[0].workspace);
    printf("%-24s %8.1f MB %8.1f GB/s  copy %6.1f GB/s  ratio %.2f\n", b->name, b->bytes / 1e6,
           median(rates, rounds) / 1e9, median(copies, rounds) / 1e9, median(ratios, rounds));
    fflush(stdout);
}

static void free_all(orth_ctx *ctx, orth_tensor *t, int n)
{
    for (int i = 0; i < n; i++)
        orth_mem_free(ctx, t[i].data);
}

static void bench_optimizer(orth_ctx *ctx, copy_job *copy, int rounds)
{
    const int64_t n = 24 << 20;
    orth_step_values s = {.step = 5,
                          .lr = 1e-4f,
                          .weight_decay = 0.1f,
                          .beta1 = 0.9,
                          .beta2 = 0.95,
                          .eps = 1e-8f,
                          .momentum = 0.9f,
                          .clip_norm = 1,
                          .clip_scale = 1};
    double loss = 1;
    orth_attr attr = {.lr_factor = 1, .decay_factor = 1, .block_rows = ORTH_NORM_BLOCK};
    orth_tensor t[6] = {tensor(ctx, ORTH_F32, n, 1), tensor(ctx, ORTH_F32, n, 1), tensor(ctx, ORTH_F32, n, 1),
                        tensor(ctx, ORTH_F32, n, 1), tensor(ctx, ORTH_BF16, n, 1),
                        tensor(ctx, ORTH_F64, orth_div_up(n, ORTH_NORM_BLOCK), 1)};
    orth_tensor st = {&s, ORTH_U8, 1, {sizeof s, 1, 1, 1}}, lt = {&loss, ORTH_F64, 1, {1, 1, 1, 1}};
    for (int64_t i = 0; i < n; i++)
        ((float *)t[3].data)[i] = ((float *)t[3].data)[i] * ((float *)t[3].data)[i];
    orth_tensor square_in[1] = {t[0]}, square_out[1] = {t[5]}, clip_in[2] = {t[5], lt}, clip_out[1] = {st};
    orth_tensor adam_in[2] = {t[0], st}, adam_out[4] = {t[1], t[2], t[3], t[4]},
                plain_out[4] = {t[1], t[2], t[3], {0}};
    orth_tensor sgd_out[3] = {t[1], t[2], {0}};
    const orth_op_call square = {square_in, square_out, 1, 1, &attr, NULL},
                       clip = {clip_in, clip_out, 2, 1, &attr, NULL};
    const orth_op_call with_copy = {adam_in, adam_out, 2, 4, &attr, NULL};
    const orth_op_call plain = {adam_in, plain_out, 2, 4, &attr, NULL},
                       sgd = {adam_in, sgd_out, 2, 3, &attr, NULL};
    const double N = (double)n;
    bench list[] = {
        {.name = "grad_square", .fn = {orth_cpu_grad_square}, .call = {square}, .num_ops = 1, .bytes = 4 * N},
        {.name = "adamw fp32", .fn = {orth_cpu_adamw}, .call = {plain}, .num_ops = 1, .bytes = 28 * N},
        {.name = "adamw bf16 copy",
         .fn = {orth_cpu_adamw},
         .call = {with_copy},
         .num_ops = 1,
         .bytes = 30 * N},
        {.name = "norm+clip+adamw",
         .fn = {orth_cpu_grad_square, orth_cpu_clip_scale, orth_cpu_adamw},
         .call = {square, clip, plain},
         .num_ops = 3,
         .bytes = 32 * N},
        {.name = "norm+clip+adamw+cast",
         .fn = {orth_cpu_grad_square, orth_cpu_clip_scale, orth_cpu_adamw},
         .call = {square, clip, with_copy},
         .num_ops = 3,
         .bytes = 34 * N},
        {.name = "sgd", .fn = {orth_cpu_sgd}, .call = {sgd}, .num_ops = 1, .bytes = 20 * N},
    };
    for (int i = 0; i < ORTH_COUNT(list); i++)
        run(ctx, copy, &list[i], rounds);
    orth_tensor cast_in[1] = {t[0]}, cast_out[1] = {t[4]};
    bench cast = {.name = "cast",
                  .fn = {orth_cpu_cast},
                  .call = {{cast_in, cast_out, 1, 1, &attr, NULL}},
                  .num_ops = 1,
                  .bytes = 6 * N};
    run(ctx, copy, &cast, rounds);
    orth_tensor tree_in[2] = {t[0], t[1]}, tree_out[1] = {t[1]};
    tree_in[0].dim[0] = 4;
    tree_in[0].dim[1] = n / 4;
    tree_in[1].dim[0] = tree_out[0].dim[0] = n / 4;
    attr.num_addends = 1;
    bench tree = {.name = "tree_acc L=4 +1",
                  .fn = {orth_cpu_tree_acc},
                  .call = {{tree_in, tree_out, 2, 1, &attr, NULL}},
                  .num_ops = 1,
                  .bytes = 6 * N};
    run(ctx, copy, &tree, rounds);
    free_all(ctx, t, 6);
}

/* Activations of GPT-2 size: 16 sequences of 1024 tokens, C = 768. */
static void bench_rows(orth_ctx *ctx, copy_job *copy, orth_dtype type, int parts, int rounds)
{
    const int64_t B = 16, T = 1024, N = B * T, C = 768;
    const double e = type == ORTH_BF16 ? 2 : 4, NC = (double)(N * C) * e;
    orth_attr attr = {
        .num_seqs = (int32_t)B, .seq_len = (int32_t)T, .token_parts = parts, .eps = 1e-5f, .dropout = 0.1f};
    orth_step_values s = {.seed = 1, .step = 5};
    orth_tensor st = {&s, ORTH_U8, 1, {sizeof s, 1, 1, 1}};
    orth_tensor a[4], stats = tensor(ctx, ORTH_F32, N, 2), gain = tensor(ctx, ORTH_F32, C, 1),
                      none = {.dtype = type};
    orth_tensor dgain = tensor(ctx, ORTH_F32, B, C), dshift = tensor(ctx, ORTH_F32, B, C),
                ids = tensor(ctx, ORTH_I32, N, 1);
    for (int i = 0; i < 4; i++)
        a[i] = tensor(ctx, type, N, C);
    orth_tensor half = a[3], norm_in[4] = {a[0], a[1], gain, gain}, norm_out[3] = {a[2], a[3], stats};
    half.dim[1] = C / 2;
    orth_tensor rms_in[4] = {a[0], none, gain, none}, rms_out[3] = {a[2], none, stats};
    orth_tensor back_in[5] = {a[0], a[1], stats, gain, a[2]}, back_out[3] = {a[3], dgain, dshift};
    orth_tensor drop_in[4] = {a[0], ids, ids, st};
    bench list[] = {
        {.name = "add",
         .fn = {orth_cpu_add},
         .call = {{a, &a[2], 2, 1, &attr, NULL}},
         .num_ops = 1,
         .bytes = 3 * NC},
        {.name = "norm +res",
         .fn = {orth_cpu_norm},
         .call = {{norm_in, norm_out, 4, 3, &attr, NULL}},
         .num_ops = 1,
         .bytes = 4 * NC},
        {.name = "norm",
         .fn = {orth_cpu_norm},
         .call = {{rms_in, rms_out, 4, 3, &attr, NULL}},
         .num_ops = 1,
         .bytes = 2 * NC},
        {.name = "norm_bwd",
         .workspace = orth_workspace_norm_bwd,
         .fn = {orth_cpu_norm_bwd},
         .call = {{back_in, back_out, 5, 3, &attr, NULL}},
         .num_ops = 1,
         .bytes = 4 * NC},
        {.name = "bias_bwd",
         .fn = {orth_cpu_bias_bwd},
         .call = {{a, &dgain, 1, 1, &attr, NULL}},
         .num_ops = 1,
         .bytes = NC},
        {.name = "swiglu",
         .fn = {orth_cpu_swiglu},
         .call = {{a, &half, 1, 1, &attr, NULL}},
         .num_ops = 1,
         .bytes = 1.5 * NC},
        {.name = "swiglu_bwd",
         .fn = {orth_cpu_swiglu_bwd},
         .call = {{(orth_tensor[]){half, a[0]}, &a[1], 2, 1, &attr, NULL}},
         .num_ops = 1,
         .bytes = 2.5 * NC},
        {.name = "dropout",
         .fn = {orth_cpu_dropout},
         .call = {{drop_in, &a[2], 4, 1, &attr, NULL}},
         .num_ops = 1,
         .bytes = 2 * NC},
    };
    printf("-- activations %s, parts %d\n", orth_dtype_name(type), parts);
    for (int i = 0; i < ORTH_COUNT(list); i++)
        run(ctx, copy, &list[i], rounds);
    free_all(ctx, a, 4);
    free_all(ctx, (orth_tensor[]){stats, gain, dgain, dshift, ids}, 5);
}

/* One micro-batch of GPT-2: embedding tables, and the loss over a chunk of rows. */
static void bench_vocabulary(orth_ctx *ctx, copy_job *copy, orth_dtype type, int rounds)
{
    const int64_t N = 1024, C = 768, V = 50257;
    const double e = type == ORTH_BF16 ? 2 : 4;
    orth_attr attr = {
        .num_seqs = 1, .seq_len = (int32_t)N, .token_parts = 8, .split = {ORTH_SPLIT_EVEN, 8, V, 1, 1}};
    orth_step_values s = {.loss_scale = 0.1f};
    orth_tensor st = {&s, ORTH_U8, 1, {sizeof s, 1, 1, 1}};
    orth_tensor ids = tensor(ctx, ORTH_I32, N, 1), dx = tensor(ctx, type, N, C),
                dwte = tensor(ctx, ORTH_F32, V, C);
    orth_tensor logits = tensor(ctx, ORTH_F32, N, V), dlogits = tensor(ctx, type, N, V),
                nll = tensor(ctx, ORTH_F32, N, 1);
    orth_tensor weight = tensor(ctx, ORTH_F32, N, 1);
    orth_attr add_attr = attr;
    add_attr.num_addends = 1;
    orth_tensor embed_in[3] = {ids, dx, dwte}, xent_in[4] = {logits, ids, weight, st},
                xent_out[2] = {nll, dlogits};
    bench list[] = {
        {.name = "embed_bwd",
         .workspace = orth_workspace_embed_bwd,
         .fn = {orth_cpu_embed_bwd},
         .call = {{embed_in, &dwte, 2, 1, &attr, NULL}},
         .num_ops = 1,
         .bytes = (double)(V * C) * 4 + (double)(N * C) * e},
        {.name = "embed_bwd +1",
         .workspace = orth_workspace_embed_bwd,
         .fn = {orth_cpu_embed_bwd},
         .call = {{embed_in, &dwte, 3, 1, &add_attr, NULL}},
         .num_ops = 1,
         .bytes = (double)(V * C) * 8 + (double)(N * C) * e},
        {.name = "softmax_xent",
         .workspace = orth_workspace_softmax_xent,
         .fn = {orth_cpu_softmax_xent},
         .call = {{xent_in, xent_out, 4, 2, &attr, NULL}},
         .num_ops = 1,
         .bytes = (double)(N * V) * (4 + e)},
    };
    printf("-- vocabulary 50257, 1024 rows, %s\n", orth_dtype_name(type));
    for (int i = 0; i < ORTH_COUNT(list); i++)
        run(ctx, copy, &list[i], rounds);
    free_all(ctx, (orth_tensor[]){ids, dx, dwte, logits, dlogits, nll, weight}, 7);
}

int main(int argc, char **argv)
{
    int threads = argc > 1 ? atoi(argv[1]) : 2, rounds = argc > 2 ? atoi(argv[2]) : 15;
    orth_ctx ctx;
    if (rounds < 1 || rounds > MAX_ROUNDS || orth_ctx_init(&ctx, threads) != ORTH_OK) {
        fprintf(stderr, "usage: bench_pointwise [threads] [rounds <= %d]\n", MAX_ROUNDS);
        return 2;
    }
    copy_job copy = {orth_mem_alloc(&ctx, COPY_BYTES), orth_mem_alloc(&ctx, COPY_BYTES), false};
    if (!copy.dst || !copy.src)
        return 3;
    memset(copy.src, 1, COPY_BYTES);
    memset(copy.dst, 1, COPY_BYTES);
    printf("isa %s, %d threads, medians of %d rounds\n-- optimizer, 25M parameters\n", orth_isa_name(ctx.isa),
           threads, rounds);
    bench_optimizer(&ctx, &copy, rounds);
    bench_rows(&ctx, &copy, ORTH_F32, 1, rounds);
    bench_rows(&ctx, &copy, ORTH_BF16, 8, rounds);
    bench_vocabulary(&ctx, &copy, ORTH_F32, rounds);
    bench_vocabulary(&ctx, &copy, ORTH_BF16, rounds);
    orth_mem_free(&ctx, copy.src);
    orth_mem_free(&ctx, copy.dst);
    orth_ctx_destroy(&ctx);
    return 0;
}
