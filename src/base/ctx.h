/* ctx.h -- everything a rank knows of its surroundings. One per rank; never shared by two ranks.
 *
 * Thread ranks live in one process, so nothing in src/ keeps writable state at file scope: it
 * hangs from here. A ctx is used by its rank's main thread; the workers of its pool only read it.
 */
#ifndef ORTH_BASE_CTX_H
#define ORTH_BASE_CTX_H

#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "base/status.h"

#define ORTH_MESSAGE_MAX 1024

typedef struct {
    orth_status code;             /* ORTH_OK: none recorded */
    const char *file;             /* source place, static storage */
    int line;
    char message[ORTH_MESSAGE_MAX]; /* what, the value, the rule; without "orthant: " */
    bool of_device;                  /* the device that holds a file failed (EIO) */
    bool printed_elsewhere;          /* another process of this run prints it */
    bool left_behind;             /* a thread that did not come back still uses what the run has: it is not freed, and the
                                     process ends by _exit */
} orth_error;

/* What the CPU kernels may use; each level includes those before it on the machines that have it.
 * Levels above ORTH_ISA_AVX2 exist on x86-64 only; other CPUs run ORTH_ISA_BASE. */
typedef enum {
    ORTH_ISA_BASE = 0,    /* portable C */
    ORTH_ISA_AVX2,        /* AVX2 + FMA + F16C */
    ORTH_ISA_AVX512,      /* F, BW, DQ, VL */
    ORTH_ISA_AVX512BF16,  /* + AVX512_BF16 */
    ORTH_ISA_AMX,         /* + AMX tile, bf16 (permission granted by the kernel) */
    ORTH_ISA_AMX_BF16X6   /* + fp32 products as six of bf16 on AMX; never by itself: precision.fp32_products */
} orth_isa;

typedef enum { ORTH_LOG_ERROR, ORTH_LOG_WARN, ORTH_LOG_INFO } orth_log_level;

/* Where log lines go. `write` may be called by several ranks at once. */
typedef struct {
    void (*write)(void *user, int rank, orth_log_level level, const char *component, const char *text);
    void *user;
    orth_log_level level;         /* lines above it are dropped before they are formatted */
} orth_log_sink;

/* Injected faults, for tests: counters that fall by one per attempt; the attempt that takes one
 * from 1 to 0 fails, as do all after it while `sticky`. 0 or less at start: never. */
typedef struct {
    _Atomic int64_t alloc;        /* orth_mem_alloc, arenas */
    _Atomic int64_t write;        /* orth_file_write and friends */
    bool sticky;
} orth_faults;

struct orth_pool;
struct orth_progress;
struct orth_space_setup;

typedef struct orth_ctx {
    orth_error error;
    int rank;                     /* global rank, 0 when there is one */
    orth_isa isa;                 /* highest level the kernels may use */
    struct orth_pool *pool;       /* this rank's compute threads; never NULL after orth_ctx_init */
    orth_log_sink log;
    orth_faults *faults;          /* NULL outside tests */
    const struct orth_space_setup *spaces; /* where memory spaces are (run/space/space.h); NULL: as by default */
    struct orth_progress *progress; /* what this rank is doing (base/progress.h); NULL: nobody watches */
    /* The number of a signal that asks the program to end, 0: none; any thread may call. NULL: signals do
     * what they do by default. Long work outside of training steps asks (orth_ctx_check_stop). */
    int (*stop)(void *user);
    void *stop_user;
    /* How far long work is, for people who wait: so many of all (0: not known) of `what`, in the plural. NULL: nobody listens. */
    void (*tell)(void *user, const char *what, int64_t done, int64_t all);
    void *tell_user;
    bool frozen;                  /* true while a step runs: orth_mem_alloc fails (nothing allocates) */
    _Atomic int64_t heap_bytes;   /* live bytes from orth_mem_alloc */
    _Atomic int64_t heap_peak;
} orth_ctx;

/* num_threads >= 1 counts the calling thread. ORTH_ERR_ARG, ORTH_ERR_NOMEM. On failure *ctx holds
 * the error and needs no destroy. Logs go to standard error at INFO until changed. */
orth_status orth_ctx_init(orth_ctx *ctx, int num_threads);
void orth_ctx_destroy(orth_ctx *ctx);
/* For a thread that works for the rank of `from` with a ctx of its own: what that one was told from outside. Pool, error and heap stay those of *ctx. */
void orth_ctx_work_for(orth_ctx *ctx, const orth_ctx *from);
/* Another pool of num_threads in place of the present one, which stays if that fails. */
orth_status orth_ctx_use_threads(orth_ctx *ctx, int num_threads);

/* Forgets the recorded error, so that a caller that handled it can go on. */
void orth_ctx_clear_error(orth_ctx *ctx);

/* Of a file that is configuration (a run file, or one that a flag or a key names): what is wrong in it, and that it cannot be read, is ORTH_ERR_ARG, and
 * not ORTH_ERR_DATA or ORTH_ERR_IO, which are of data. Other states, and a device that fails, as they are. */
orth_status orth_as_configuration(orth_ctx *ctx, orth_status s);

static inline void orth_ctx_tell(orth_ctx *ctx, const char *what, int64_t done, int64_t all)
{
    if (ctx->tell)
        ctx->tell(ctx->tell_user, what, done, all);
}

/* ORTH_ERR_SIGNAL once ctx->stop says so: for work of which nothing is kept when it is cut off. */
orth_status orth_ctx_check_stop(orth_ctx *ctx);
const char *orth_signal_name(int signal); /* of those that ask the program to end */

/* What this CPU and operating system offer: ORTH_ISA_AMX at most. */
orth_isa orth_isa_detect(void);
/* What run.isa=auto takes: that, but AVX512 where bf16 dot products are slower than fma on widened operands. */
orth_isa orth_isa_auto(void);
const char *orth_isa_name(orth_isa isa);
/* ORTH_ERR_ARG for an unknown name; never raises above what orth_isa_detect() returns. */
orth_status orth_isa_from_name(orth_ctx *ctx, const char *name, orth_isa *out);

void orth_log(orth_ctx *ctx, orth_log_level level, const char *component, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));

/* The only door to the heap. Zero-filled, aligned to 64 bytes; NULL with the error recorded
 * (ORTH_ERR_NOMEM) on failure. n = 0 gives a valid pointer. Free with orth_mem_free. */
void *orth_mem_alloc(orth_ctx *ctx, size_t num_bytes);
void *orth_mem_realloc(orth_ctx *ctx, void *p, size_t num_bytes); /* new tail is zero-filled */
void orth_mem_free(orth_ctx *ctx, void *p);
/* Room for element num of *array, which has room for *cap: twice as many where it is full. False with the error recorded. */
bool orth_mem_grow(orth_ctx *ctx, void **array, int32_t *cap, int32_t num, size_t elem_bytes);
/* malloc, for an allocator that is handed to a library; free it with free. Nothing is recorded. */
void *orth_mem_system(size_t num_bytes);
char *orth_mem_strdup(orth_ctx *ctx, const char *s);
/* NULL with the error recorded on failure. */
char *orth_mem_printf(orth_ctx *ctx, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

#define ORTH_NEW(ctx, type) ((type *)orth_mem_alloc((ctx), sizeof(type)))
#define ORTH_NEW_ARRAY(ctx, type, n) ((type *)orth_mem_alloc((ctx), (size_t)(n) * sizeof(type)))

#define ORTH_MIN(a, b) ((a) < (b) ? (a) : (b))
#define ORTH_MAX(a, b) ((a) > (b) ? (a) : (b))
#define ORTH_COUNT(array) ((int)(sizeof(array) / sizeof((array)[0])))

static inline int64_t orth_div_up(int64_t a, int64_t b) { return (a + b - 1) / b; }
static inline int64_t orth_round_up(int64_t a, int64_t b) { return orth_div_up(a, b) * b; }

#endif
