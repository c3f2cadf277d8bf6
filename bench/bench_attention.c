/* bench_attention.c -- attention forward and backward against the FMA peak of the same moment.
 *
 * Usage: bench_attention [seconds per case] [threads, 0: both 1 and 2] [fp32|bf16|bf16x6 [T D]]
 * bf16x6 is fp32 with products of pieces on AMX (gemm_chain.h), in shares of the peak of fma; only where it is named.
 * peer_attention.py runs it case by case, in turn with PyTorch.
 * Work is counted as what causality leaves: forward 4*(T*T/2)*D per head, backward 2.5 times that.
 * The peak is that of a loop in registers (plan/probe.h: fma; bf16: the fastest of fma, dot products of pairs, AMX),
 * measured before and after each case on as many threads; shares use the mean of the two.
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/ctx.h"
#include "base/pool.h"
#include "kernels/attention.h"
#include "plan/probe.h"

#define HEADS 12
#define MAX_REPEATS 400
#define PEAK_S 0.05

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double seconds(void)
{
    return (double)orth_clock_ns() * 1e-9;
}

/* FLOP/s of the processor's best instruction for this type on the pool's threads; 0 where there is no probe. */
static double peak(orth_ctx *ctx, orth_dtype type)
{
    double rate;
    const orth_isa isa = ctx->isa;
    ctx->isa = ORTH_MIN(isa, ORTH_ISA_AMX); /* what bf16x6 is held against too */
    const orth_status s = orth_probe_matmul_peak(ctx, &rate, type == ORTH_BF16, PEAK_S);
    ctx->isa = isa;
    return s == ORTH_OK ? rate : 0;
}

typedef struct {
    orth_attr attr;
    orth_tensor in[7], out[2], grad_in[7], grad_out[1];
    orth_step_values step;
    orth_op_call fwd, bwd;
} job;

static orth_tensor tensor(orth_ctx *ctx, orth_dtype type, int64_t rows, int64_t cols)
{
    orth_tensor t = {
        orth_mem_alloc(ctx, (size_t)(rows * cols) * orth_dtype_bytes(type)), type, 2, {rows, cols, 1, 1}};
    for (int64_t i = 0; t.data && i < rows * cols; i++)
        orth_store_f32(
            t.data, type, i,
            2 * orth_rand_unit(orth_philox(1, ORTH_STREAM_TEST, (uint64_t)cols, (uint64_t)i).v[0]) - 1);
    return t;
}

static void job_init(orth_ctx *ctx, job *j, orth_dtype type, int T, int D, int parts)
{
    *j = (job){.attr = {.num_seqs = 1, .seq_len = T, .token_parts = parts, .heads = HEADS, .kv_heads = HEADS,
                        .head_dim = D, .scale = 1 / sqrtf((float)D)}};
    orth_tensor none = {NULL, ORTH_I32, 1, {0, 1, 1, 1}};
    j->in[0] = tensor(ctx, type, T, 3 * HEADS * D);
    j->out[0] = tensor(ctx, type, T, HEADS * D);
    j->out[1] = tensor(ctx, ORTH_F32, T, HEADS);
    j->in[1] = j->in[2] = none;
    j->in[3] = (orth_tensor){&j->step, ORTH_U8, 1, {sizeof j->step, 1, 1, 1}};
    j->grad_in[0] = tensor(ctx, type, T, HEADS * D);
    j->grad_in[1] = j->in[0];
    j->grad_in[2] = j->out[0];
    j->grad_in[3] = j->out[1];
    j->grad_in[4] = j->grad_in[5] = none;
    j->grad_in[6] = j->in[3];
    j->grad_out[0] = tensor(ctx, type, T, 3 * HEADS * D);
    j->fwd = (orth_op_call){j->in, j->out, 4, 2, &j->attr, NULL};
    j->bwd = (orth_op_call){j->grad_in, j->grad_out, 7, 1, &j->attr, NULL};
    const int n = orth_pool_num_threads(ctx->pool);
    j->fwd.workspace = orth_mem_alloc(ctx, orth_workspace_attention(&j->fwd, n, ctx->isa));
    j->bwd.workspace = orth_mem_alloc(ctx, orth_workspace_attention_bwd(&j->bwd, n, ctx->isa));
}

static void job_free(orth_ctx *ctx, job *j)
{
    void *all[] = {j->in[0].data, j->out[0].data, j->out[1].data, j->grad_in[0].data, j->grad_out[0].data,
                   j->fwd.workspace, j->bwd.workspace};
    for (int i = 0; i < ORTH_COUNT(all); i++)
        orth_mem_free(ctx, all[i]);
}

typedef struct {
    const char *name;
    orth_dtype type;
    bool pieces;
} kind;

static const kind kinds[] = {{"fp32", ORTH_F32, false}, {"bf16", ORTH_BF16, false}, {"bf16x6", ORTH_F32, true}};

/* One line; returns the rate of forward and backward together, in shares of *peak_out. */
static double run_case(orth_ctx *ctx, const kind *k, int T, int D, int parts, double budget,
                       double *peak_out)
{
    job j;
    const orth_dtype type = k->type;
    job_init(ctx, &j, type, T, D, parts);
    orth_cpu_attention(ctx, &j.fwd);
    orth_cpu_attention_bwd(ctx, &j.bwd);
    double before = peak(ctx, type), start = seconds(), fwd[MAX_REPEATS], bwd[MAX_REPEATS], both[MAX_REPEATS];
    int n = 0;
    while (n < 5 || (n < MAX_REPEATS && seconds() - start < budget)) {
        double t0 = seconds();
        orth_cpu_attention(ctx, &j.fwd);
        double t1 = seconds();
        orth_cpu_attention_bwd(ctx, &j.bwd);
        double t2 = seconds();
        fwd[n] = t1 - t0;
        bwd[n] = t2 - t1;
        both[n++] = t2 - t0;
    }
    *peak_out = (before + peak(ctx, type)) / 2;
    qsort(fwd, (size_t)n, sizeof *fwd, by_value);
    qsort(bwd, (size_t)n, sizeof *bwd, by_value);
    qsort(both, (size_t)n, sizeof *both, by_value);
    double work = 2.0 * T * T * D * HEADS;
    printf("%-6s T %4d D %3d parts %d threads %d | fwd %7.3f ms %6.1f | bwd %7.3f ms %6.1f | both %6.1f "
           "GFLOP/s %5.1f %% "
           "of %6.1f\n",
           k->name, T, D, parts, orth_pool_num_threads(ctx->pool), fwd[n / 2] * 1e3,
           work / fwd[n / 2] * 1e-9, bwd[n / 2] * 1e3, 2.5 * work / bwd[n / 2] * 1e-9,
           3.5 * work / both[n / 2] * 1e-9, 100 * 3.5 * work / both[n / 2] / *peak_out, *peak_out * 1e-9);
    job_free(ctx, &j);
    return 3.5 * work / both[n / 2];
}

/* only: threads, or 0 for 1 and 2. */
static void run_shape(orth_ctx ctx[2], const kind *k, int T, int D, double budget, int only, bool alone)
{
    double rate[2] = {0}, top[2] = {0};
    for (int i = 0; i < 2; i++)
        if (only == 0 || only == i + 1)
            rate[i] = run_case(&ctx[i], k, T, D, 1, budget, &top[i]);
    if (only != 1 && !alone)
        run_case(&ctx[1], k, T, D, 8, budget, &top[1]);
    if (only == 0)
        printf("     1 -> 2 threads: x %.2f, the peak x %.2f: %.1f %% of it\n", rate[1] / rate[0], top[1] / top[0],
               100 * rate[1] / rate[0] * top[0] / top[1]);
}

int main(int argc, char **argv)
{
    const double budget = argc > 1 ? atof(argv[1]) : 0.5;
    const int only = argc > 2 ? atoi(argv[2]) : 0;
    const char *type_only = argc > 3 ? argv[3] : NULL;
    orth_ctx ctx[2];
    for (int i = 0; i < 2; i++)
        if (orth_ctx_init(&ctx[i], i + 1) != ORTH_OK)
            return 4;
    for (const kind *k = kinds; k < kinds + ORTH_COUNT(kinds); k++) {
        if (type_only ? strcmp(type_only, k->name) != 0 : k->pieces)
            continue;
        if (k->pieces && ctx[0].isa != ORTH_ISA_AMX)
            return 4;
        for (int i = 0; i < 2 && k->pieces; i++)
            ctx[i].isa = ORTH_ISA_AMX_BF16X6;
        for (int D = 64; D <= 128; D *= 2)
            for (int T = 1024; T <= 4096; T *= 2)
                if (argc <= 5 || (T == atoi(argv[4]) && D == atoi(argv[5])))
                    run_shape(ctx, k, T, D, budget, only, argc > 5);
    }
    for (int i = 0; i < 2; i++)
        orth_ctx_destroy(&ctx[i]);
    return 0;
}
