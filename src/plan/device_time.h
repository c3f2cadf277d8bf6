/* device_time.h -- what an instruction takes on a described device.
 *
 * Model. Every instruction takes at least device.launch_us. Beyond that
 *   products      the longer of their operations and their bytes. Operations run at the rate of the operand's type, times
 *                 device.gemm_share, times how well the shape fills the device: the result is cut into tiles, of the size that
 *                 suits it best, which device.units share out in rounds, the last of them not full; short sums do not
 *                 reach the rate.
 *   attention     operations at the rate times device.attention_share, 0.8 of that in the backward pass; less for short
 *                 sequences and narrow heads.
 *   all others    their bytes at memory_GBps times memory_share.
 * An estimate. It is never less than operations at the peak, nor bytes at the bandwidth.
 */
#ifndef ORTH_PLAN_DEVICE_TIME_H
#define ORTH_PLAN_DEVICE_TIME_H

#include "base/text.h"
#include "plan/hardware.h"
#include "program/ir/cost.h"

/* Seconds of a computing instruction. A type that the description has no rate for counts as fp32, or as bf16 where
 * there is no fp32 (orth_hardware_peak refuses such a run beforehand). */
double orth_device_seconds(const orth_hardware *h, const orth_instr *n);

/* What MFU and HFU are shares of: the rate of the numbers that a device multiplies fastest in a step, those of the compute type, or those of the recipe
 * (precision.products), which only linear layers multiply. Of groups the mean of a device. */
#define ORTH_PEAK_NAME_MAX 48
typedef struct {
    double flops;                  /* FLOP/s of a device */
    char name[ORTH_PEAK_NAME_MAX]; /* "fp8"; of groups that multiply other numbers "fp8 and bf16" */
    bool is_compute;               /* all devices have the compute type's */
} orth_device_peak;

/* ORTH_ERR_ARG of orth_hardware_peak. */
orth_status orth_device_peak_of(orth_ctx *ctx, const orth_hardware *h, orth_dtype compute, orth_recipe recipe, orth_device_peak *out);
/* Adds " of the fp8 peak"; nothing where it is the compute type's. */
void orth_device_peak_say(orth_ctx *ctx, orth_text *t, const orth_device_peak *p);

/* Adds to an empty text, for products of this recipe: of which other numbers the rate is taken, on devices without one of their own. Nothing
 * where none is taken. */
void orth_device_say_products(orth_ctx *ctx, orth_text *t, const orth_hardware *h, orth_recipe recipe);

/* The share of the rate that [m,k] x [k,n] reaches on a device with this many units, 0 < share <= 1: 1 for large ones. */
double orth_gemm_fill(double m, double n, double k, double units);

#endif
