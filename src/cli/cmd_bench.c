/* cmd_bench.c -- `orthant bench peak|gemm|attention|collectives|step`: this machine, and what Orthant gets out of it.
 * Side-by-side comparisons with other programs are bench/ and tools/bench/; `make bench` runs them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_out.h"
#include "base/pages.h"
#include "base/pool.h"
#include "base/rng.h"
#include "cli/bench.h"
#include "kernels/gemm.h"
#include "plan/probe.h"
#include "train/setup.h"

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double orth_bench_median(const double *v, int n)
{
    double sorted[ORTH_BENCH_MAX];
    memcpy(sorted, v, (size_t)n * sizeof *v);
    qsort(sorted, (size_t)n, sizeof *sorted, by_value);
    return n % 2 ? sorted[n / 2] : 0.5 * (sorted[n / 2 - 1] + sorted[n / 2]);
}

/* ---- peak ---- */

static orth_status bench_peak(orth_ctx *ctx, const orth_cmd *cmd, double seconds)
{
    const bool json = orth_cmd_flag(cmd, "json") != NULL;
    const int all = orth_pool_num_threads(ctx->pool);
    orth_text text = {0};
    orth_json_out j = {ctx, &text};
    orth_json_open(&j, NULL, '{');
    for (int k = 0; k < ORTH_NUM_PROBES; k++) {
        double one, rate;
        ORTH_TRY(orth_probe_measure(ctx, &one, (orth_probe)k, 1, seconds));
        ORTH_TRY(orth_probe_measure(ctx, &rate, (orth_probe)k, all, seconds));
        if (one <= 0)
            continue;
        const char *unit = k == ORTH_PROBE_COPY ? "GB/s" : "GFLOP/s";
        if (!json)
            printf("%-12s %9.1f %s on 1 thread, %9.1f on %d\n", orth_probe_name((orth_probe)k), one / 1e9, unit, rate / 1e9, all);
        orth_json_open(&j, orth_probe_name((orth_probe)k), '{');
        orth_json_string(&j, "unit", unit);
        orth_json_print(&j, "one_thread", "%.1f", one / 1e9);
        orth_json_print(&j, "all_threads", "%.1f", rate / 1e9);
        orth_json_print(&j, "threads", "%d", all);
        orth_json_close(&j, '}');
    }
    orth_json_close(&j, '}');
    if (json)
        return orth_json_show(&j, stdout);
    orth_mem_free(ctx, orth_text_take(ctx, &text));
    return ORTH_OK;
}

/* ---- products and attention: one op on random data ---- */

typedef struct {
    const orth_kernel_fn *kernels;
    double seconds;                 /* spent on a figure */
    double peak;                    /* FLOP/s that it is a fraction of */
} op_bench;

static orth_status time_op(orth_ctx *ctx, const op_bench *b, orth_op op, const orth_op_call *call, double *median_s)
{
    enum { MOST = 1001 };
    double *times = ORTH_NEW_ARRAY(ctx, double, MOST), end = 0;
    int n = 0;
    orth_status s = times ? b->kernels[op](ctx, call) : ORTH_ERR_NOMEM;
    for (end = orth_clock_s() + b->seconds; s == ORTH_OK && n < MOST && (n < 3 || orth_clock_s() < end); n++) {
        double begin = orth_clock_s();
        s = b->kernels[op](ctx, call);
        times[n] = orth_clock_s() - begin;
    }
    if (s == ORTH_OK)
        *median_s = orth_bench_median(times, n);
    orth_mem_free(ctx, times);
    return s;
}

static void fill_random(void *data, orth_dtype t, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        orth_store_f32(data, t, i, orth_rand_unit((uint32_t)i * 2654435761u) - 0.5f);
}

/* Allocates the operands of `op`, times it, prints a line. flops: of one call. */
static orth_status bench_op(orth_ctx *ctx, const op_bench *b, const char *label, orth_op op, orth_tensor *in, int num_in,
                            orth_tensor *out, int num_out, const orth_attr *attr, double flops)
{
    orth_arena arena = {0};
    orth_op_call call = {.in = in, .out = out, .num_in = num_in, .num_out = num_out, .attr = attr};
    double s = 0;
    bool ok = true;
    for (int i = 0; i < num_in + num_out; i++) {
        orth_tensor *t = i < num_in ? &in[i] : &out[i - num_in];
        if (t->dim[0] == 0)
            continue;
        t->data = orth_arena_alloc(ctx, &arena, orth_tensor_bytes(t));
        ok = ok && t->data;
        if (t->data && (t->dtype == ORTH_F32 || t->dtype == ORTH_BF16 || t->dtype == ORTH_F16))
            fill_random(t->data, t->dtype, orth_tensor_elems(t));
    }
    size_t ws = orth_op_workspace_bytes(op, &call, orth_pool_num_threads(ctx->pool), ctx->isa);
    call.workspace = orth_arena_alloc(ctx, &arena, ws);
    orth_status status = ok && call.workspace ? time_op(ctx, b, op, &call, &s) : ORTH_ERR_NOMEM;
    if (status == ORTH_OK)
        printf("%-44s %9.3f ms %9.1f GFLOP/s %6.1f %% of peak\n", label, 1e3 * s, flops / s / 1e9, 100 * flops / s / b->peak);
    orth_arena_release(ctx, &arena);
    return status;
}

static orth_status bench_gemm(orth_ctx *ctx, const op_bench *b, orth_dtype t)
{
    static const struct {
        const char *what;
        int64_t K, O;
    } shapes[] = {{"gpt2-124m qkv", 768, 2304}, {"gpt2-124m up", 768, 3072}, {"gpt2-124m down", 3072, 768},
                  {"gpt2-1558m up", 1600, 6400}, {"llama3-1b gate_up", 2048, 16384}, {"llama3-1b down", 8192, 2048}};
    const int64_t N = 1024;
    for (int i = 0; i < ORTH_COUNT(shapes); i++) {
        const int64_t K = shapes[i].K, O = shapes[i].O;
        const orth_tensor absent = {.dim = {0, 1, 1, 1}, .num_dims = 1};
        orth_tensor x = {NULL, t, 2, {N, K, 1, 1}}, w = {NULL, t, 2, {O, K, 1, 1}}, y = {NULL, t, 2, {N, O, 1, 1}};
        orth_tensor dw = {NULL, ORTH_F32, 2, {O, K, 1, 1}};
        orth_attr attr = {.num_seqs = 1, .seq_len = (int32_t)N, .token_parts = 1, .split = ORTH_SPLIT_WHOLE(K)};
        char label[96];
        snprintf(label, sizeof label, "%s %s forward [%d,%d]x[%d]", shapes[i].what, orth_dtype_name(t), (int)N, (int)K, (int)O);
        orth_tensor f_in[] = {x, w, absent}, f_out[] = {y, absent};
        ORTH_TRY(bench_op(ctx, b, label, ORTH_OP_linear, f_in, 3, f_out, 2, &attr, 2.0 * (double)(N * K * O)));
        attr.split = ORTH_SPLIT_WHOLE(O);
        snprintf(label, sizeof label, "%s %s dX", shapes[i].what, orth_dtype_name(t));
        orth_tensor x_in[] = {y, w, absent}, x_out[] = {x};
        ORTH_TRY(bench_op(ctx, b, label, ORTH_OP_linear_dx, x_in, 3, x_out, 1, &attr, 2.0 * (double)(N * K * O)));
        attr.split = ORTH_SPLIT_WHOLE(N);
        snprintf(label, sizeof label, "%s %s dW", shapes[i].what, orth_dtype_name(t));
        orth_tensor w_in[] = {y, x}, w_out[] = {dw};
        ORTH_TRY(bench_op(ctx, b, label, ORTH_OP_linear_dw, w_in, 2, w_out, 1, &attr, 2.0 * (double)(N * K * O)));
    }
    return ORTH_OK;
}

static orth_status bench_attention(orth_ctx *ctx, const op_bench *b, orth_dtype t)
{
    for (int64_t T = 1024; T <= 4096; T *= 2) {
        for (int64_t D = 64; D <= 128; D *= 2) {
            const int64_t H = 768 / D, R = 3 * H * D;
            const orth_tensor absent = {.dim = {0, 1, 1, 1}, .num_dims = 1};
            orth_tensor qkv = {NULL, t, 2, {T, R, 1, 1}}, o = {NULL, t, 2, {T, H * D, 1, 1}};
            orth_tensor lse = {NULL, ORTH_F32, 2, {T, H, 1, 1}}, step = {NULL, ORTH_U8, 1, {sizeof(orth_step_values), 1, 1, 1}};
            orth_attr attr = {.num_seqs = 1, .seq_len = (int32_t)T, .token_parts = 1, .heads = (int32_t)H,
                              .kv_heads = (int32_t)H, .head_dim = (int32_t)D, .scale = 0.125f};
            double product = (double)(H * T) * (double)(T * D);
            char label[96];
            snprintf(label, sizeof label, "%s T=%d D=%d forward", orth_dtype_name(t), (int)T, (int)D);
            orth_tensor f_in[] = {qkv, absent, absent, step}, f_out[] = {o, lse};
            ORTH_TRY(bench_op(ctx, b, label, ORTH_OP_attention, f_in, 4, f_out, 2, &attr, 2 * product));
            snprintf(label, sizeof label, "%s T=%d D=%d backward", orth_dtype_name(t), (int)T, (int)D);
            orth_tensor b_in[] = {o, qkv, o, lse, absent, absent, step}, b_out[] = {qkv};
            ORTH_TRY(bench_op(ctx, b, label, ORTH_OP_attention_bwd, b_in, 7, b_out, 1, &attr, 5 * product));
        }
    }
    return ORTH_OK;
}

orth_status orth_cmd_bench(orth_ctx *ctx, const orth_cmd *cmd)
{
    op_bench b = {.kernels = orth_setup_kernels(&cmd->config), .seconds = 0.5};
    const char *what = cmd->num_words == 1 ? cmd->words[0] : "";
    const orth_dtype t = orth_setup_compute(&cmd->config);
    const bool bf16 = t == ORTH_BF16;
    ORTH_TRY(orth_cmd_flag_real(ctx, cmd, "seconds", 0.001, 3600, &b.seconds));
    if (strcmp(what, "peak") == 0)
        return bench_peak(ctx, cmd, b.seconds);
    if (strcmp(what, "collectives") == 0)
        return orth_bench_collectives(ctx, cmd);
    ORTH_TRY(orth_probe_matmul_peak(ctx, &b.peak, bf16, ORTH_MIN(b.seconds, ORTH_BENCH_PEAK_S)));
    if (strcmp(what, "gemm") == 0)
        return bench_gemm(ctx, &b, t);
    if (strcmp(what, "attention") == 0)
        return bench_attention(ctx, &b, t);
    if (strcmp(what, "step") == 0)
        return orth_bench_step(ctx, cmd, b.peak);
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, *what ? "bench: '%s' is not one of peak, gemm, attention, collectives, step"
                                              : "bench%s: say which: peak, gemm, attention, collectives, step", what);
}
