/* calibrate_yaml.c -- a measured machine as a description of hardware (plan/hardware.def). */
#include "base/text.h"
#include "tools/calibrate.h"

static void add_row(orth_ctx *ctx, orth_text *t, const char *name, const double *c, int n)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += c[i];
    if (sum == 0)
        return;
    orth_text_addf(ctx, t, "  %s: [", name);
    for (int i = 0; i < n; i++)
        orth_text_addf(ctx, t, "%s%.4g", i ? ", " : "", c[i]);
    orth_text_add(ctx, t, "]\n");
}

static bool any(const orth_op_times *t, int set)
{
    for (int op = 0; op < ORTH_NUM_OPS; op++)
        for (int i = 0; i < ORTH_OP_TERMS; i++)
            if (t->of[set][op][i] > 0)
                return true;
    return false;
}

char *orth_calibrate_yaml(orth_ctx *ctx, const orth_hardware *h)
{
    static const char *const sets[] = {
#define HW_TIMES(name, set, help) [set] = #name,
#include "plan/hardware.def"
    };
    orth_text t = {0};
    orth_text_add(ctx, &t, "# Measured by `orthant doctor --calibrate`. Times are in ns for each unit of the terms of src/plan/op_times.h.\ndevice:\n  name: ");
    orth_text_quote(ctx, &t, h->device_name);
    orth_text_addf(ctx, &t, "\n  memory_GiB: %.6g\n  reserved_GiB: %.6g\n  memory_GBps: %.4g\n  memory_share: %.4g\n  fp32_tflops: %.4g\n  fp16_tflops: %.4g\n  bf16_tflops: %.4g\n"
                   "  launch_us: %.4g\nnode:\n  devices: 1\n", h->device_memory_GiB, h->device_reserved_GiB,
                   h->device_memory_GBps, h->device_memory_share, h->device_fp32_tflops, h->device_fp16_tflops, h->device_bf16_tflops, h->device_launch_us);
    if (h->node_file_GBps > 0)
        orth_text_addf(ctx, &t, "  file_GBps: %.4g\n  file_write_GBps: %.4g\n", h->node_file_GBps, h->node_file_write_GBps);
    orth_text_addf(ctx, &t, "host:\n  cores: %.0f\n  isa: %s\n", h->host_cores, h->host_isa);
    for (int set = 0; set < ORTH_NUM_TIMES; set++) {
        if (!any(&h->times, set))
            continue;
        orth_text_addf(ctx, &t, "%s:\n", sets[set]);
        for (int op = 0; op < ORTH_NUM_OPS; op++)
            add_row(ctx, &t, orth_op_name((orth_op)op), h->times.of[set][op], ORTH_OP_TERMS);
    }
    orth_text_add(ctx, &t, "calls:\n");
    for (int k = 0; k < ORTH_NUM_COMM_KINDS; k++)
        add_row(ctx, &t, orth_comm_kind_name((orth_comm_kind)k), h->times.call[k], ORTH_CALL_TERMS);
    return orth_text_take(ctx, &t);
}
