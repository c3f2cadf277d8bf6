/* bench_step.c -- `bench step`: a training step of any layout, timed. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_out.h"
#include "base/pages.h"
#include "cli/bench.h"
#include "plan/probe.h"
#include "tools/measure.h"

static void print_shares(const orth_measure *m, double step_s)
{
    static const char *const phases[] = {"forward", "backward", "update"};
    orth_measure_share shares[ORTH_MEASURE_MAX_SHARES];
    int n = orth_measure_shares(m, shares);
    printf("%-14s %-9s %6s %10s %7s %12s %9s\n", "op", "phase", "calls", "ms", "share", "GFLOP/s", "GB/s");
    for (int i = 0; i < n; i++) {
        const orth_measure_share *s = &shares[i];
        printf("%-14s %-9s %6d %10.3f %6.1f%% %12.1f %9.1f\n", orth_op_name(s->op), phases[s->phase], s->calls,
               1e3 * s->seconds, 100 * s->seconds / step_s, s->flops / s->seconds / 1e9, s->bytes / s->seconds / 1e9);
    }
}

static double peak_rss_mb(void)
{
    return (double)orth_pages_resident_peak_bytes() / (1 << 20);
}

/* What `bench step` was asked for and has found. */
typedef struct {
    const orth_cmd *cmd;
    double peak, begin;              /* FLOP/s; when set-up began */
    int64_t steps;
    double seconds[ORTH_BENCH_MAX];
    int n;
    double idle[ORTH_BENCH_MAX], replayed[ORTH_BENCH_MAX], apart; /* of a pipeline; largest difference */
} step_bench;

/* The go protocol of tools/bench: "ready", then one step and its seconds for every line "go". */
static orth_status serve(orth_ctx *ctx, orth_measure *m, step_bench *b)
{
    char line[64];
    printf("ready\n");
    fflush(stdout);
    while (b->n < ORTH_BENCH_MAX && fgets(line, sizeof line, stdin)) {
        if (strncmp(line, "go", 2) != 0)
            continue;
        ORTH_TRY(orth_measure_step(ctx, m, &b->seconds[b->n]));
        printf("%.6f\n", b->seconds[b->n++]);
        fflush(stdout);
    }
    return ORTH_OK;
}

typedef struct {
    double step_s, first_s, set_up_s;
    double start_s;     /* what one waits for the first step beyond the step itself */
    double tokens_per_s, mfu;
} step_figures;

static orth_status print_json(orth_ctx *ctx, const orth_plan *p, const step_figures *f)
{
    orth_text text = {0};
    orth_json_out j = {ctx, &text};
    orth_json_open(&j, NULL, '{');
    orth_json_print(&j, "step_s", "%.5f", f->step_s);
    orth_json_print(&j, "first_step_s", "%.5f", f->first_s);
    orth_json_print(&j, "setup_s", "%.5f", f->set_up_s);
    orth_json_print(&j, "start_s", "%.5f", f->start_s);
    orth_json_print(&j, "tokens", "%" PRId64, p->tokens);
    orth_json_print(&j, "tokens_per_s", "%.1f", f->tokens_per_s);
    orth_json_print(&j, "flops", "%.0f", p->cost.model_flops);
    orth_json_print(&j, "mfu", "%.4f", f->mfu);
    orth_json_print(&j, "peak_rss_mb", "%.1f", peak_rss_mb());
    orth_json_print(&j, "arena_mb", "%.1f", (double)p->total_bytes / (1 << 20));
    orth_json_close(&j, '}');
    return orth_json_show(&j, stdout);
}

static orth_status print_step(orth_ctx *ctx, const step_bench *b, const orth_measure *m, double set_up_s, double first_s)
{
    const orth_plan *p = orth_measure_plan(m);
    const double mid = orth_bench_median(b->seconds, b->n), flops = p->cost.model_flops;
    const step_figures f = {mid, first_s, set_up_s, set_up_s + first_s - mid, (double)p->tokens / mid, flops / mid / b->peak};
    if (orth_cmd_flag(b->cmd, "json") || orth_cmd_flag(b->cmd, "serve"))
        return print_json(ctx, p, &f);
    print_shares(m, mid);
    printf("step %.4f s (first %.4f, set-up %.4f: %.4f to start)  %" PRId64 " tokens, %.1f tok/s, %.4g FLOP, MFU %.3f, "
           "resident %.1f MB of %.1f MB planned\n", f.step_s, f.first_s, f.set_up_s, f.start_s, p->tokens, f.tokens_per_s, flops, f.mfu,
           peak_rss_mb(), (double)p->total_bytes / (1 << 20));
    return ORTH_OK;
}

static orth_status note_bubble(orth_ctx *ctx, orth_measure *m, step_bench *b)
{
    orth_bubble bubble;
    ORTH_TRY(orth_measure_bubble(ctx, m, &bubble));
    b->idle[b->n] = bubble.idle_share;
    b->replayed[b->n] = bubble.replayed;
    b->apart = ORTH_MAX(b->apart, bubble.idle_share - bubble.replayed);
    return ORTH_OK;
}

static void print_bubble(const step_bench *b, const orth_schedule *s)
{
    printf("%s over %d ranks, %d micro-batches: idle %.2f %% of forwards and backwards; with the same times and "
           "messages that take none %.2f %%, at most %.2f points less\n", s->name, (int)s->num_ranks,
           (int)s->num_micro_batches, 100 * orth_bench_median(b->idle, b->n), 100 * orth_bench_median(b->replayed, b->n),
           100 * b->apart);
}

/* The machine may have been busy when the peak was measured before the steps; an MFU above 1 says nothing. */
static orth_status measure_peak_again(orth_ctx *ctx, step_bench *b)
{
    double peak;
    const bool bf16 = b->cmd->config.precision_compute == ORTH_precision_compute_bf16;
    ORTH_TRY(orth_probe_matmul_peak(ctx, &peak, bf16, ORTH_BENCH_PEAK_S));
    b->peak = ORTH_MAX(b->peak, peak);
    return ORTH_OK;
}

static orth_status time_steps(orth_ctx *ctx, orth_measure *m, void *user)
{
    step_bench *b = user;
    const orth_schedule *schedule = orth_measure_schedule(m);
    double first, set_up_s = orth_clock_s() - b->begin;
    ORTH_TRY(orth_measure_step(ctx, m, &first));
    if (orth_cmd_flag(b->cmd, "serve"))
        ORTH_TRY(serve(ctx, m, b));
    else
        for (; b->n < b->steps; b->n++) {
            ORTH_TRY(orth_measure_step(ctx, m, &b->seconds[b->n]));
            if (schedule->num_ranks > 1)
                ORTH_TRY(note_bubble(ctx, m, b));
        }
    if (schedule->num_ranks == 1)
        ORTH_TRY(measure_peak_again(ctx, b));
    if (b->n > 0)
        ORTH_TRY(print_step(ctx, b, m, set_up_s, first));
    if (b->n > 0 && schedule->num_ranks > 1 && !orth_cmd_flag(b->cmd, "serve") && !orth_cmd_flag(b->cmd, "json"))
        print_bubble(b, schedule);
    return ORTH_OK;
}

orth_status orth_bench_step(orth_ctx *ctx, const orth_cmd *cmd, double peak)
{
    orth_config cfg = cmd->config;
    step_bench b = {.cmd = cmd, .peak = peak, .begin = orth_clock_s(), .steps = 5};
    if (!cfg.model_preset[0] && !ORTH_CONFIG_IS_SET(&cfg, model, layers))
        cfg.model_preset = "gpt2-124m";
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "steps", 1, ORTH_BENCH_MAX, &b.steps));
    return orth_measure_run(ctx, &cfg, time_steps, &b);
}
