/* ctx.c -- the rank's context: error record, log sink, heap with injected faults, CPU detection. */
#include "base/ctx.h"

#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__) && defined(__linux__)
#include <sys/syscall.h>
#endif

#include "base/pool.h"
#include "base/progress.h"
#include "base/text.h"

/* In front of every heap block, so that free and realloc know its size. 64 keeps the alignment. */
#define HEAP_HEADER 64

static void log_to_stderr(void *user, int rank, orth_log_level level, const char *component,
                          const char *text)
{
    (void)user;
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char shown[4096];
    orth_text_escape(shown, sizeof shown, text);
    if (level == ORTH_LOG_INFO)
        fprintf(stderr, "%s\n", shown);
    else
        fprintf(stderr, "orthant: %s: rank %d: %s: %s\n", names[level], rank, component, shown);
}

orth_status orth_ctx_init(orth_ctx *ctx, int num_threads)
{
    memset(ctx, 0, sizeof *ctx);
    ctx->isa = orth_isa_auto();
    ctx->log = (orth_log_sink){.write = log_to_stderr, .level = ORTH_LOG_INFO};
    return orth_pool_create(ctx, &ctx->pool, num_threads);
}

void orth_ctx_destroy(orth_ctx *ctx)
{
    orth_pool_destroy(ctx, ctx->pool);
    ctx->pool = NULL;
}

void orth_ctx_work_for(orth_ctx *ctx, const orth_ctx *from)
{
    ctx->rank = from->rank;
    ctx->isa = from->isa;
    ctx->log = from->log;
    ctx->faults = from->faults;
    ctx->spaces = from->spaces;
    ctx->progress = from->progress;
    ctx->stop = from->stop;
    ctx->stop_user = from->stop_user;
}

orth_status orth_ctx_use_threads(orth_ctx *ctx, int num_threads)
{
    orth_pool *pool = NULL;
    if (num_threads == orth_pool_num_threads(ctx->pool))
        return ORTH_OK;
    ORTH_TRY(orth_pool_create(ctx, &pool, num_threads));
    orth_pool_destroy(ctx, ctx->pool);
    ctx->pool = pool;
    return ORTH_OK;
}

void orth_ctx_clear_error(orth_ctx *ctx)
{
    memset(&ctx->error, 0, sizeof ctx->error);
}

orth_status orth_as_configuration(orth_ctx *ctx, orth_status s)
{
    if ((s != ORTH_ERR_DATA && s != ORTH_ERR_IO) || ctx->error.of_device)
        return s;
    ctx->error.code = ORTH_ERR_ARG;
    return ORTH_ERR_ARG;
}

orth_status orth_fail(orth_ctx *ctx, orth_status code, const char *file, int line, const char *fmt, ...)
{
    if (ctx->error.code == ORTH_OK) {
        va_list args;
        va_start(args, fmt);
        vsnprintf(ctx->error.message, sizeof ctx->error.message, fmt, args);
        va_end(args);
        ctx->error.code = code;
        ctx->error.file = file;
        ctx->error.line = line;
    }
    return code;
}

int orth_status_exit_code(orth_status s)
{
    static const int codes[] = {
        [ORTH_OK] = 0,       [ORTH_ERR_ARG] = 2,  [ORTH_ERR_NOMEM] = 3,   [ORTH_ERR_NOSPACE] = 3,
        [ORTH_ERR_COMM] = 4, [ORTH_ERR_DATA] = 5, [ORTH_ERR_IO] = 5,      [ORTH_ERR_NUMERIC] = 6,
        [ORTH_ERR_SIGNAL] = 130, [ORTH_ERR_INTERNAL] = 70,
    };
    return codes[s];
}

const char *orth_status_name(orth_status s)
{
    static const char *const names[] = {
        [ORTH_OK] = "ok", [ORTH_ERR_ARG] = "bad argument", [ORTH_ERR_NOMEM] = "out of memory",
        [ORTH_ERR_NOSPACE] = "disk full", [ORTH_ERR_COMM] = "communication failed",
        [ORTH_ERR_DATA] = "damaged data", [ORTH_ERR_IO] = "input/output error",
        [ORTH_ERR_NUMERIC] = "non-finite number", [ORTH_ERR_SIGNAL] = "ended by signal",
        [ORTH_ERR_INTERNAL] = "internal error",
    };
    return names[s];
}

void orth_log(orth_ctx *ctx, orth_log_level level, const char *component, const char *fmt, ...)
{
    if (level > ctx->log.level || !ctx->log.write)
        return;
    char text[2048];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    ctx->log.write(ctx->log.user, ctx->rank, level, component, text);
}

/* ---- heap ---- */

static bool alloc_fault(orth_ctx *ctx)
{
    if (ctx->frozen)
        return true;
    if (!ctx->faults)
        return false;
    int64_t left = atomic_fetch_sub(&ctx->faults->alloc, 1);
    return left == 1 || (left < 1 && ctx->faults->sticky);
}

static void count_heap(orth_ctx *ctx, int64_t delta)
{
    int64_t now = atomic_fetch_add(&ctx->heap_bytes, delta) + delta;
    int64_t peak = atomic_load(&ctx->heap_peak);
    while (now > peak && !atomic_compare_exchange_weak(&ctx->heap_peak, &peak, now))
        ;
}

orth_status orth_ctx_check_stop(orth_ctx *ctx)
{
    const int got = ctx->stop ? ctx->stop(ctx->stop_user) : 0;
    orth_tick(ctx); /* long work asks often */
    if (got == 0)
        return ORTH_OK;
    return ORTH_FAIL(ctx, ORTH_ERR_SIGNAL, "stopped by %s: the work was not finished, and nothing of it is kept",
                     orth_signal_name(got));
}

const char *orth_signal_name(int signal)
{
    return signal == SIGTERM ? "SIGTERM" : signal == SIGHUP ? "SIGHUP" : signal == SIGUSR1 ? "SIGUSR1" : "SIGINT";
}

void *orth_mem_alloc(orth_ctx *ctx, size_t num_bytes)
{
    void *raw = NULL;
    bool fault = num_bytes > SIZE_MAX - 2 * HEAP_HEADER || alloc_fault(ctx);
    size_t total = fault ? 0 : (num_bytes + 2 * HEAP_HEADER - 1) / HEAP_HEADER * HEAP_HEADER;
    if (!fault && total >= (size_t)1 << 20) {
        /* Large blocks come as untouched zero pages: no pass over them. calloc keeps them so. */
        char *base = calloc(1, total + HEAP_HEADER);
        if (base) {
            char *aligned = (char *)(((uintptr_t)base + HEAP_HEADER - 1) / HEAP_HEADER * HEAP_HEADER);
            ((void **)aligned)[1] = base;
            raw = aligned;
        }
    } else if (!fault && posix_memalign(&raw, HEAP_HEADER, total) == 0) {
        memset(raw, 0, total);
        ((void **)raw)[1] = raw;
    }
    if (!raw) {
        ORTH_FAIL(ctx, ORTH_ERR_NOMEM, ctx->frozen ? "allocation of %zu bytes inside a step"
                                                   : "no memory for %zu bytes", num_bytes);
        return NULL;
    }
    *(size_t *)raw = num_bytes;
    count_heap(ctx, (int64_t)num_bytes);
    orth_tick(ctx);
    return (char *)raw + HEAP_HEADER;
}

void *orth_mem_realloc(orth_ctx *ctx, void *p, size_t num_bytes)
{
    void *fresh = orth_mem_alloc(ctx, num_bytes);
    if (!fresh || !p)
        return fresh;
    size_t old = *(size_t *)((char *)p - HEAP_HEADER);
    memcpy(fresh, p, ORTH_MIN(old, num_bytes));
    orth_mem_free(ctx, p);
    return fresh;
}

bool orth_mem_grow(orth_ctx *ctx, void **array, int32_t *cap, int32_t num, size_t elem_bytes)
{
    if (num < *cap)
        return true;
    const int32_t more = *cap ? 2 * *cap : 64;
    void *fresh = orth_mem_realloc(ctx, *array, (size_t)more * elem_bytes);
    if (!fresh)
        return false;
    *array = fresh;
    *cap = more;
    return true;
}

void orth_mem_free(orth_ctx *ctx, void *p)
{
    if (!p)
        return;
    void **raw = (void **)((char *)p - HEAP_HEADER);
    count_heap(ctx, -(int64_t) * (size_t *)raw);
    free(raw[1]);
}

void *orth_mem_system(size_t num_bytes)
{
    return malloc(num_bytes);
}

char *orth_mem_strdup(orth_ctx *ctx, const char *s)
{
    size_t n = strlen(s) + 1;
    char *copy = orth_mem_alloc(ctx, n);
    if (copy)
        memcpy(copy, s, n);
    return copy;
}

char *orth_mem_printf(orth_ctx *ctx, const char *fmt, ...)
{
    va_list args, again;
    va_start(args, fmt);
    va_copy(again, args);
    int n = vsnprintf(NULL, 0, fmt, args);
    char *text = orth_mem_alloc(ctx, (size_t)n + 1);
    if (text)
        vsnprintf(text, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(args);
    return text;
}

/* ---- CPU ---- */

#if defined(__x86_64__)
/* Leaf 7 of CPUID: bit 22 AMX-BF16, 23 AVX512-FP16, 24 AMX-TILE. */
static bool has_edx_7(int bit)
{
    unsigned a = 7, b, c = 0, d;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return d >> bit & 1;
}

/* Bit 29 of leaf 1: clang 14 does not know "f16c" as a name of __builtin_cpu_supports. */
static bool has_f16c(void)
{
    unsigned a = 1, b, c = 0, d;
    __asm__ volatile("cpuid" : "+a"(a), "=b"(b), "+c"(c), "=d"(d));
    return c >> 29 & 1;
}
#endif

orth_isa orth_isa_detect(void)
{
#if defined(__x86_64__)
    __builtin_cpu_init();
    if (!(__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c()))
        return ORTH_ISA_BASE;
    if (!(__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")))
        return ORTH_ISA_AVX2;
    if (!__builtin_cpu_supports("avx512bf16"))
        return ORTH_ISA_AVX512;
#if defined(__linux__) && defined(SYS_arch_prctl)
    /* Linux grants tile data on request (0x1023). */
    if (has_edx_7(22) && has_edx_7(24) && syscall(SYS_arch_prctl, 0x1023, 18) == 0)
        return ORTH_ISA_AMX;
#endif
    return ORTH_ISA_AVX512BF16;
#else
    return ORTH_ISA_BASE;
#endif
}

/* Intel's cores from Sapphire Rapids on (the first with AVX512-FP16) start a vdpbf16ps every second cycle and two
 * fma in each: 85 against 174 GFLOP/s on a core of Emerald Rapids. Their AMX is meant for bf16, but a virtual
 * machine may not have it. */
orth_isa orth_isa_auto(void)
{
    const orth_isa best = orth_isa_detect();
#if defined(__x86_64__)
    if (best == ORTH_ISA_AVX512BF16 && __builtin_cpu_is("intel") && has_edx_7(23))
        return ORTH_ISA_AVX512;
#endif
    return best;
}

static const char *const isa_names[] = {"base", "avx2", "avx512", "avx512bf16", "amx", "amx+bf16x6"};

const char *orth_isa_name(orth_isa isa)
{
    return isa_names[isa];
}

orth_status orth_isa_from_name(orth_ctx *ctx, const char *name, orth_isa *out)
{
    for (int i = 0; i <= ORTH_ISA_AMX; i++) {
        if (strcmp(isa_names[i], name) == 0) {
            orth_isa have = orth_isa_detect();
            *out = ORTH_MIN((orth_isa)i, have);
            return ORTH_OK;
        }
    }
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "isa '%s' is not one of base, avx2, avx512, avx512bf16, amx", name);
}
