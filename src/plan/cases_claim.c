/* cases_claim.c -- figures of a case that no run can have: faster than the peak of its devices, or larger than their memory. */
#include <math.h>

#include "plan/cases_impl.h"

/* A way to say how fast a run was, and how many times the peak of its devices that is. */
typedef struct {
    const char *key;
    double times;           /* NAN: not given */
} speed;

static double figure_of(const orth_case *x, const char *object, const char *key)
{
    return case_number(json_object_get(x->c, object), key, NAN);
}

/* FLOP/s of a device at its peak, in what this case computes in. */
static double peak_of(const orth_case *x)
{
    return 1e12 * (x->job.fp8 ? x->hardware.device_fp8_tflops : x->hardware.device_bf16_tflops);
}

/* By tokens a second and device. The FLOPs are the least that count: attention by halves. */
static double times_of_tokens(const orth_case *x, double tokens_per_s)
{
    return tokens_per_s * x->e.flops / x->tokens / peak_of(x);
}

static double times_of_step(const orth_case *x, double step_s)
{
    return x->e.flops / step_s / x->devices / peak_of(x);
}

/* The same of FLOPs that the source counted, in whichever way: a source that counts all of attention counts more than the devices need to do. */
static double times_of_flops(const orth_case *x, double flops_per_s)
{
    const orth_model_config *m = &x->job.model;
    const double half = 6 * x->tokens * (double)(m->layers * m->heads * m->head_dim * x->job.seq_len);
    return flops_per_s * x->e.flops / (x->e.flops + half) / peak_of(x);
}

/* Percent of the peak in bf16, or in fp8 where fp8 is true. */
static double times_of_percent(const orth_case *x, double percent, bool fp8)
{
    return times_of_flops(x, percent / 100 * 1e12 * (fp8 ? x->hardware.device_fp8_tflops : x->hardware.device_bf16_tflops));
}

void case_judge(orth_case *x)
{
    const bool fp8 = x->hardware.device_fp8_tflops > 0 && strcmp(case_word(json_object_get(x->c, "measured"), "mfu_peak"), "fp8") == 0;
    const speed speeds[] = {{"derived.tokens_per_s_per_gpu", times_of_tokens(x, figure_of(x, "derived", "tokens_per_s_per_gpu"))},
                            {"measured.tokens_per_s_per_gpu", times_of_tokens(x, figure_of(x, "measured", "tokens_per_s_per_gpu"))},
                            {"measured.step_s", times_of_step(x, figure_of(x, "measured", "step_s"))},
                            {"measured.step_time_s", times_of_step(x, figure_of(x, "measured", "step_time_s"))},
                            {"measured.tflops_per_gpu", times_of_flops(x, 1e12 * figure_of(x, "measured", "tflops_per_gpu"))},
                            {"measured.mfu", times_of_percent(x, figure_of(x, "measured", "mfu"), fp8)},
                            {"measured.hfu", times_of_percent(x, figure_of(x, "measured", "hfu"), fp8)},
                            {"derived.mfu_vs_bf16_peak_pct", times_of_percent(x, figure_of(x, "derived", "mfu_vs_bf16_peak_pct"), false)}};
    for (int i = 0; i < ORTH_COUNT(speeds); i++)
        if (speeds[i].times > 1) {
            snprintf(x->claim, sizeof x->claim, "impossible: the measured speed is %.2f times the peak of the devices (%s)", speeds[i].times, speeds[i].key);
            return;
        }
    if (x->peak_GiB > x->hardware.device_memory_GiB)
        snprintf(x->claim, sizeof x->claim, "impossible: a device of %.0f GiB cannot have held %.1f", x->hardware.device_memory_GiB, x->peak_GiB);
}
