/* probe.h -- measured peaks of this machine: what an MFU is a fraction of.
 *
 * A probe runs independent chains of the instruction that a fast kernel would use (or memcpy over
 * buffers beyond the caches) on all threads until one deadline, and counts. Shared hosts are noisy:
 * compare figures of one run, and take the larger of several.
 */
#ifndef ORTH_PLAN_PROBE_H
#define ORTH_PLAN_PROBE_H

#include "base/scratch.h"
#include "plan/file_time.h"

typedef enum {
    ORTH_PROBE_FP32 = 0,  /* fused multiply-add in fp32 at ctx->isa; FLOP/s (a multiply-add is 2) */
    ORTH_PROBE_BF16,      /* AVX512_BF16 dot products into fp32; FLOP/s */
    ORTH_PROBE_AMX,       /* AMX tiles of bf16 into fp32; FLOP/s */
    ORTH_PROBE_COPY,      /* memcpy; bytes/s, read plus written */
    ORTH_NUM_PROBES
} orth_probe;

const char *orth_probe_name(orth_probe kind);   /* "fp32 FMA", ... */

/* Measures on `num_threads` threads of ctx->pool for about `seconds`. *rate is 0 where ctx->isa has
 * no such instruction. The copy takes less memory, with a warning, where there is not enough. ORTH_ERR_ARG for more threads
 * than the pool has, ORTH_ERR_NOMEM. */
orth_status orth_probe_measure(orth_ctx *ctx, double *rate, orth_probe kind, int num_threads,
                               double seconds);

/* A file like those of a run (base/scratch.h). */
typedef struct {
    const char *dir;
    orth_file_io io;
    size_t bytes;         /* at most: caches of the device distort what they can hold */
    double seconds;       /* after which no further piece of a pass begins; there are two passes that write, and one that reads */
} orth_file_probe;

/* For a plan that is to come at once: half a second on a disk of 100 MB/s. */
#define ORTH_FILE_PROBE_QUICK_BYTES ((size_t)16 << 20)

/* Bytes/s to the file until they are on the device, and back. ORTH_ERR_IO, ORTH_ERR_NOSPACE, ORTH_ERR_NOMEM. */
orth_status orth_probe_file(orth_ctx *ctx, orth_file_rates *rates, const orth_file_probe *what);

/* The best rate for matrix products whose operands are bf16 (or fp32) at ctx->isa, on all threads of the pool. */
orth_status orth_probe_matmul_peak(orth_ctx *ctx, double *rate, bool bf16, double seconds);

#endif
