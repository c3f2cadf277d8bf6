/* probe.c -- see probe.h. ROUNDS of CHAINS independent instructions between looks at the clock; the
 * chains hide the latency of the units (4 to 6 cycles, two units). */
#include "plan/probe.h"

#include <string.h>

#include "base/clock.h"
#include "base/pages.h"
#include "base/pool.h"
#include "kernels/gemm_chain.h"

#if defined(__x86_64__)
#include <immintrin.h>

#include "kernels/cpu/tiles.h"
#endif

#define CHAINS 16
#define ROUNDS 2000
#define COPY_TOTAL_BYTES ((size_t)256 << 20)
#define COPY_FILL_BYTES 6e9                  /* a second: a short probe takes no longer to fill its buffers than to copy */
#define COPY_MIN_BYTES ((size_t)16 << 20)
#define COPY_LEAST_BYTES ((size_t)64 << 10)  /* where there is no room for more: measures a cache */

typedef struct {
    int64_t end_ns;                        /* all tasks stop here */
    double (*chains)(int64_t end_ns);      /* returns FLOPs; NULL for the copy */
    char *buffers;                         /* copy: per task, destination then source */
    size_t copy_bytes;
    _Atomic int64_t work;                  /* FLOPs or bytes */
} probe_run;

/* Chains converge to a fixed point; reading them keeps the compiler from dropping the work. */
static void keep(const void *p)
{
    __asm__ volatile("" : : "r"(p) : "memory");
}

static double chains_base(int64_t end_ns)
{
    float a[4 * CHAINS];
    double flops = 0;
    for (int i = 0; i < 4 * CHAINS; i++)
        a[i] = (float)i;
    do {
        for (int r = 0; r < ROUNDS; r++)
            for (int i = 0; i < 4 * CHAINS; i++)
#ifdef __FP_FAST_FMAF
                a[i] = __builtin_fmaf(a[i], 0.999f, 0.001f);
#else
                a[i] = a[i] * 0.999f + 0.001f;
#endif
        keep(a);
        flops += 2.0 * ROUNDS * 4 * CHAINS;
    } while (orth_clock_ns() < end_ns);
    return flops;
}

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static double chains_avx2(int64_t end_ns)
{
    enum { n = 12 }; /* of 16 registers */
    __m256 a[n], x = _mm256_set1_ps(0.999f), y = _mm256_set1_ps(0.001f);
    double flops = 0;
    for (int i = 0; i < n; i++)
        a[i] = _mm256_set1_ps((float)i);
    do {
        for (int r = 0; r < ROUNDS; r++)
            for (int i = 0; i < n; i++)
                a[i] = _mm256_fmadd_ps(a[i], x, y);
        flops += 2.0 * ROUNDS * n * 8;
    } while (orth_clock_ns() < end_ns);
    keep(a);
    return flops;
}

__attribute__((target("avx512f"))) static double chains_avx512(int64_t end_ns)
{
    __m512 a[CHAINS], x = _mm512_set1_ps(0.999f), y = _mm512_set1_ps(0.001f);
    double flops = 0;
    for (int i = 0; i < CHAINS; i++)
        a[i] = _mm512_set1_ps((float)i);
    do {
        for (int r = 0; r < ROUNDS; r++)
            for (int i = 0; i < CHAINS; i++)
                a[i] = _mm512_fmadd_ps(a[i], x, y);
        flops += 2.0 * ROUNDS * CHAINS * 16;
    } while (orth_clock_ns() < end_ns);
    keep(a);
    return flops;
}

__attribute__((target("avx512f,avx512bf16"))) static double chains_bf16(int64_t end_ns)
{
    __m512 a[CHAINS];
    __m512bh x = (__m512bh)_mm512_set1_epi16(0x3c00); /* 2^-7: sums stay finite */
    double flops = 0;
    for (int i = 0; i < CHAINS; i++)
        a[i] = _mm512_set1_ps((float)i);
    do {
        for (int r = 0; r < ROUNDS; r++)
            for (int i = 0; i < CHAINS; i++)
                a[i] = _mm512_dpbf16_ps(a[i], x, x);
        flops += 2.0 * ROUNDS * CHAINS * 32;
    } while (orth_clock_ns() < end_ns);
    keep(a);
    return flops;
}

__attribute__((target("amx-tile,amx-bf16"))) static double chains_amx(int64_t end_ns)
{
    _Alignas(64) static const char zeros[1024] = {0};
    double flops = 0;
    orth_tiles_configure();
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    _tile_loadd(4, zeros, 64);
    _tile_loadd(5, zeros, 64);
    _tile_loadd(6, zeros, 64);
    _tile_loadd(7, zeros, 64);
    do {
        for (int r = 0; r < ROUNDS; r++) {
            _tile_dpbf16ps(0, 4, 6);
            _tile_dpbf16ps(1, 4, 7);
            _tile_dpbf16ps(2, 5, 6);
            _tile_dpbf16ps(3, 5, 7);
        }
        flops += 2.0 * ROUNDS * 4 * 16 * 16 * 32;
    } while (orth_clock_ns() < end_ns);
    orth_tiles_release();
    return flops;
}
#endif

static double (*chains_for(orth_probe kind, orth_isa isa))(int64_t)
{
#if defined(__x86_64__)
    if (kind == ORTH_PROBE_AMX)
        return isa >= ORTH_ISA_AMX ? chains_amx : NULL;
    if (kind == ORTH_PROBE_BF16)
        return isa >= ORTH_ISA_AVX512BF16 ? chains_bf16 : NULL;
    if (kind == ORTH_PROBE_FP32 && isa >= ORTH_ISA_AVX512)
        return chains_avx512;
    if (kind == ORTH_PROBE_FP32 && isa >= ORTH_ISA_AVX2)
        return chains_avx2;
#endif
    (void)isa;
    return kind == ORTH_PROBE_FP32 ? chains_base : NULL;
}

static void probe_task(void *arg, int64_t index, int worker)
{
    probe_run *run = arg;
    double work = 0;
    (void)worker;
    if (run->chains) {
        work = run->chains(run->end_ns);
    } else {
        char *dst = run->buffers + 2 * run->copy_bytes * (size_t)index, *src = dst + run->copy_bytes;
        do {
            memcpy(dst, src, run->copy_bytes);
            keep(dst);
            work += 2.0 * (double)run->copy_bytes;
        } while (orth_clock_ns() < run->end_ns);
    }
    atomic_fetch_add(&run->work, (int64_t)work);
}

const char *orth_probe_name(orth_probe kind)
{
    static const char *const names[] = {"fp32 FMA", "bf16 dot product", "bf16 AMX", "memory copy"};
    return names[kind];
}

/* Of one buffer. */
static size_t copy_bytes_for(int num_threads, double seconds)
{
    const size_t most = ORTH_MAX(COPY_MIN_BYTES, COPY_TOTAL_BYTES / 2 / (size_t)num_threads);
    const double filled = seconds * COPY_FILL_BYTES / 2 / num_threads;
    return filled >= (double)most ? most : ORTH_MAX(COPY_LEAST_BYTES, (size_t)filled);
}

/* As much as there is room for, under `ulimit -v` for instance: this measures, it is not what the run is for. */
static orth_status alloc_copy(orth_ctx *ctx, probe_run *run, int num_threads, double seconds)
{
    const size_t want = copy_bytes_for(num_threads, seconds);
    run->copy_bytes = want;
    run->buffers = orth_mem_alloc(ctx, 2 * want * (size_t)num_threads);
    while (!run->buffers && run->copy_bytes / 2 >= COPY_LEAST_BYTES) {
        orth_ctx_clear_error(ctx);
        run->copy_bytes /= 2;
        run->buffers = orth_mem_alloc(ctx, 2 * run->copy_bytes * (size_t)num_threads);
    }
    if (!run->buffers)
        return ORTH_ERR_NOMEM;
    if (run->copy_bytes < want)
        orth_log(ctx, ORTH_LOG_WARN, "plan", "there is room for %zu KiB of the copy that measures the memory's bandwidth, of %zu "
                 "KiB: the time of a step that is planned may be too short", run->copy_bytes >> 10, want >> 10);
    /* Untouched pages would all be the one zero page, and stay in cache. */
    memset(run->buffers, 1, 2 * run->copy_bytes * (size_t)num_threads);
    return ORTH_OK;
}

orth_status orth_probe_measure(orth_ctx *ctx, double *rate, orth_probe kind, int num_threads, double seconds)
{
    probe_run run = {.chains = chains_for(kind, ctx->isa)};
    if (num_threads < 1 || num_threads > orth_pool_num_threads(ctx->pool))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "a probe on %d threads of a pool of %d", num_threads,
                         orth_pool_num_threads(ctx->pool));
    *rate = 0;
    if (kind == ORTH_PROBE_COPY)
        ORTH_TRY(alloc_copy(ctx, &run, num_threads, seconds));
    else if (!run.chains)
        return ORTH_OK;
    int64_t start = orth_clock_ns();
    run.end_ns = start + (int64_t)(1e9 * seconds);
    orth_pool_run(ctx->pool, num_threads, probe_task, &run);
    *rate = (double)atomic_load(&run.work) / (1e-9 * (double)(orth_clock_ns() - start));
    orth_mem_free(ctx, run.buffers);
    return ORTH_OK;
}

/* The largest rate of a few slices of the time: one may find the machine busy. */
static orth_status best_rate(orth_ctx *ctx, double *rate, orth_probe kind, double seconds)
{
    enum { SLICES = 3 };
    *rate = 0;
    for (int i = 0; i < SLICES; i++) {
        double r;
        ORTH_TRY(orth_probe_measure(ctx, &r, kind, orth_pool_num_threads(ctx->pool), seconds / SLICES));
        *rate = ORTH_MAX(*rate, r);
    }
    return ORTH_OK;
}

orth_status orth_probe_matmul_peak(orth_ctx *ctx, double *rate, bool bf16, double seconds)
{
    const bool pieces = !bf16 && ctx->isa == ORTH_ISA_AMX_BF16X6;
    double dots = 0, tiles = 0;
    ORTH_TRY(best_rate(ctx, rate, ORTH_PROBE_FP32, seconds));
    if (bf16)
        ORTH_TRY(best_rate(ctx, &dots, ORTH_PROBE_BF16, seconds));
    if (bf16 || pieces)
        ORTH_TRY(best_rate(ctx, &tiles, ORTH_PROBE_AMX, seconds));
    *rate = ORTH_MAX(*rate, ORTH_MAX(dots, pieces ? tiles / ORTH_BF16X6 : tiles));
    return ORTH_OK;
}

/* ---- files ---- */

#define FILE_PIECE_BYTES ((size_t)16 << 20)    /* as much as an update brings at a time (memory.offload_sub_group) */
#define FILE_LEAST_BYTES ((size_t)64 << 10)    /* where there is no room for more: measures a cache */
#define FILE_PIECES_TO_SYNC 8                  /* what is written through the page cache is to reach the device meanwhile */

/* Bytes that no file system finds a shorter way to write. */
static void fill(uint64_t *words, size_t n)
{
    uint64_t x = 88172645463325252u; /* xorshift, Marsaglia 2003 */
    for (size_t i = 0; i < n; i++) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        words[i] = x;
    }
}

/* Piece by piece, up to `end` or for so many seconds: *moved bytes at *rate, on the device at the end. */
static orth_status pass(orth_ctx *ctx, const orth_scratch *s, bool write, char *piece, size_t end, double seconds, size_t *moved, double *rate)
{
    const int64_t begin = orth_clock_ns();
    size_t at = 0;
    for (int k = 1; at < end && 1e-9 * (double)(orth_clock_ns() - begin) < seconds; k++) {
        const size_t n = ORTH_MIN(FILE_PIECE_BYTES, end - at);
        ORTH_TRY(write ? orth_scratch_write(ctx, s, at, piece, n) : orth_scratch_read(ctx, s, at, piece, n));
        at += n;
        if (write && k % FILE_PIECES_TO_SYNC == 0)
            ORTH_TRY(orth_scratch_sync(ctx, s));
    }
    if (write)
        ORTH_TRY(orth_scratch_sync(ctx, s));
    *moved = at;
    *rate = 1e9 * (double)at / (double)ORTH_MAX(orth_clock_ns() - begin, 1);
    return ORTH_OK;
}

/* A file is slower to write for the first time, when its blocks are noted; a run writes the same ones each step. */
static orth_status time_file(orth_ctx *ctx, orth_file_rates *rates, const orth_scratch *s, char *piece, double seconds)
{
    size_t n, again;
    ORTH_TRY(pass(ctx, s, true, piece, s->bytes, seconds, &n, &rates->write));
    ORTH_TRY(pass(ctx, s, true, piece, n, seconds, &again, &rates->write));
    return pass(ctx, s, false, piece, n, seconds, &again, &rates->read);
}

static orth_status time_new_file(orth_ctx *ctx, orth_file_rates *rates, const orth_file_probe *what, char *piece, size_t n)
{
    orth_scratch s;
    ORTH_TRY(orth_scratch_open(ctx, &s, what->dir, n, what->io));
    const orth_status status = time_file(ctx, rates, &s, piece, what->seconds);
    orth_scratch_close(&s);
    return status;
}

/* The run itself may need less than the probe: it takes what there is room for. */
orth_status orth_probe_file(orth_ctx *ctx, orth_file_rates *rates, const orth_file_probe *what)
{
    void *piece;
    *rates = (orth_file_rates){0, 0, false};
    ORTH_TRY(orth_pages_map(ctx, &piece, FILE_PIECE_BYTES));
    fill(piece, FILE_PIECE_BYTES / sizeof(uint64_t));
    orth_status status = ORTH_ERR_NOSPACE;
    for (size_t n = ORTH_MAX(what->bytes, FILE_LEAST_BYTES); status == ORTH_ERR_NOSPACE && n >= FILE_LEAST_BYTES; n /= 2) {
        orth_ctx_clear_error(ctx);
        status = time_new_file(ctx, rates, what, piece, n);
    }
    orth_pages_unmap(piece, FILE_PIECE_BYTES);
    return status;
}
