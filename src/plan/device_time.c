/* device_time.c -- see device_time.h. */
#include "plan/device_time.h"

#include <math.h>

#include "plan/mixed.h"

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

typedef enum { FP4, FP8, BF16, FP16, FP32, NUM_NUMBERS } numbers;
static const char *const names[NUM_NUMBERS] = {"fp4", "fp8", "bf16", "fp16", "fp32"};

static double tflops(const orth_hardware *h, numbers k)
{
    const double of[NUM_NUMBERS] = {h->device_fp4_tflops, h->device_fp8_tflops, h->device_bf16_tflops, h->device_fp16_tflops, h->device_fp32_tflops};
    return of[k];
}

/* Those whose rate is taken for products of `wanted`. Of codes: fp4 or fp8, and without it what the others are done in. */
static numbers taken_for(const orth_hardware *h, numbers wanted)
{
    static const numbers others[] = {FP32, BF16, FP16};
    if (wanted == FP4 && tflops(h, FP4) == 0)
        wanted = FP8;
    if (wanted == FP8 && tflops(h, FP8) == 0)
        wanted = BF16;
    for (int i = 0; i < ORTH_COUNT(others) && tflops(h, wanted) == 0; i++)
        wanted = others[i];
    return wanted;
}

static numbers wanted_by(orth_recipe recipe)
{
    return orth_recipe_of(recipe)->forward == ORTH_E2M1 ? FP4 : FP8;
}

static numbers of_dtype(orth_dtype dtype)
{
    return dtype == ORTH_BF16 ? BF16 : dtype == ORTH_F16 ? FP16 : FP32;
}

static double rate(const orth_hardware *h, const orth_instr *n)
{
    const orth_dtype dtype = n->in[0].dtype;
    return 1e12 * tflops(h, taken_for(h, dtype == ORTH_U8 ? wanted_by(n->attr->recipe) : of_dtype(dtype)));
}

/* ---- the peak ---- */

/* Of one kind of devices. */
static numbers fastest(const orth_hardware *h, numbers compute, orth_recipe recipe)
{
    const numbers coded = recipe == ORTH_RECIPE_none ? compute : taken_for(h, wanted_by(recipe));
    return tflops(h, coded) > tflops(h, compute) ? coded : compute;
}

orth_status orth_device_peak_of(orth_ctx *ctx, const orth_hardware *h, orth_dtype compute, orth_recipe recipe, orth_device_peak *out)
{
    const int num_groups = h->mixed ? h->mixed->num_groups : 1;
    const numbers own = of_dtype(compute);
    bool named[NUM_NUMBERS] = {false};
    double sum = 0, devices = 0;
    size_t at = 0;
    *out = (orth_device_peak){.is_compute = true};
    ORTH_TRY(orth_hardware_peak(ctx, h, compute, &out->flops));
    for (int i = 0; i < num_groups; i++) {
        const orth_hardware *device = h->mixed ? &h->mixed->group[i].own : h;
        const double n = h->mixed ? (double)h->mixed->group[i].num_devices : 1;
        const numbers k = fastest(device, own, recipe);
        if (!named[k])
            at += (size_t)snprintf(out->name + at, sizeof out->name - at, "%s%s", at > 0 ? " and " : "", names[k]);
        named[k] = true;
        out->is_compute = out->is_compute && k == own;
        sum += n * 1e12 * tflops(device, k);
        devices += n;
    }
    out->flops = sum / devices;
    return ORTH_OK;
}

void orth_device_peak_say(orth_ctx *ctx, orth_text *t, const orth_device_peak *p)
{
    if (!p->is_compute)
        orth_text_addf(ctx, t, " of the %s peak", p->name);
}

/* ---- products at other rates ---- */

/* Of one kind of devices. */
static void say_products(orth_ctx *ctx, orth_text *t, const orth_hardware *h, orth_recipe recipe)
{
    const numbers wanted = wanted_by(recipe), taken = taken_for(h, wanted);
    if (taken != wanted && t->num_bytes > 0)
        orth_text_add(ctx, t, "; ");
    if (taken != wanted)
        orth_text_addf(ctx, t, "%s is timed at the rate of %s on %s, whose description has no device.%s_tflops", orth_recipe_of(recipe)->name, names[taken],
                       h->device_name, names[wanted]);
}

void orth_device_say_products(orth_ctx *ctx, orth_text *t, const orth_hardware *h, orth_recipe recipe)
{
    if (recipe == ORTH_RECIPE_none)
        return;
    if (!h->mixed)
        say_products(ctx, t, h, recipe);
    for (int i = 0; h->mixed && i < h->mixed->num_groups; i++)
        say_products(ctx, t, &h->mixed->group[i].own, recipe);
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
