/* device_time.c -- see device_time.h. */
#include "plan/device_time.h"

#include <math.h>

/* Sums shorter than this many terms take as long as if they had up to so many more: filling and emptying the pipeline of
 * a tile. */
#define RAMP 96.0

/* Tiles that libraries choose from, and what share of the rate a full one reaches: smaller ones load more for each
 * operation. */
static const struct {
    double rows, cols, share;
} tiles[] = {{256, 128, 1.0}, {128, 256, 1.0}, {128, 128, 0.97}, {128, 64, 0.85}, {64, 128, 0.85}, {64, 64, 0.7}};

/* Long sums of few tiles are cut, so that more units have work. */
static const double cuts[] = {1, 2, 4, 8};

double orth_gemm_fill(double m, double n, double k, double units)
{
    double best = 0;
    for (int t = 0; t < ORTH_COUNT(tiles); t++) {
        const double num = ceil(m / tiles[t].rows) * ceil(n / tiles[t].cols);
        const double used = m * n / (num * tiles[t].rows * tiles[t].cols);
        for (int c = 0; c < ORTH_COUNT(cuts); c++) {
            const double pieces = num * cuts[c], rounds = units > 0 ? ceil(pieces / units) : 1;
            const double busy = units > 0 ? pieces / (rounds * units) : 1;
            best = fmax(best, tiles[t].share * used * busy * (k / cuts[c]) / (k / cuts[c] + RAMP));
        }
    }
    return best;
}

/* Of codes: fp4 or fp8, and without it what the others are done in. */
static double rate(const orth_hardware *h, const orth_instr *n)
{
    orth_dtype dtype = n->in[0].dtype;
    const bool fp4 = dtype == ORTH_U8 && orth_recipe_of(n->attr->recipe)->forward == ORTH_E2M1;
    if (fp4 && h->device_fp4_tflops > 0)
        return 1e12 * h->device_fp4_tflops;
    if (dtype == ORTH_U8 && h->device_fp8_tflops > 0)
        return 1e12 * h->device_fp8_tflops;
    if (dtype == ORTH_U8)
        dtype = ORTH_BF16;
    const double fp32 = h->device_fp32_tflops, bf16 = h->device_bf16_tflops, fp16 = h->device_fp16_tflops;
    const double t = dtype == ORTH_BF16 ? bf16 : dtype == ORTH_F16 ? fp16 : fp32;
    return 1e12 * (t > 0 ? t : fp32 > 0 ? fp32 : bf16 > 0 ? bf16 : fp16);
}

static double product_fill(const orth_hardware *h, const orth_instr *n, double terms)
{
    return h->device_gemm_share * orth_gemm_fill((double)n->out[0].dim[0], (double)n->out[0].dim[1], terms, h->device_units);
}

static double attention_fill(const orth_hardware *h, const orth_instr *n)
{
    const double tokens = n->attr->seq_len, width = n->attr->head_dim;
    const bool backward = orth_instr_cost(n).hardware_flops > orth_instr_cost(n).model_flops;
    return h->device_attention_share * (backward ? 0.8 : 1.0) * tokens / (tokens + 256) * fmin(1, (width + 64) / 192);
}

double orth_device_seconds(const orth_hardware *h, const orth_instr *n)
{
    const orth_cost c = orth_instr_cost(n);
    const double launch = 1e-6 * h->device_launch_us, memory = c.bytes / (1e9 * h->device_memory_GBps * h->device_memory_share);
    if (c.hardware_flops == 0)
        return launch + memory;
    const double fill = c.terms > 0 ? product_fill(h, n, c.terms) : attention_fill(h, n);
    return launch + fmax(memory, c.hardware_flops / (rate(h, n) * fill));
}
