/* progress.h -- what a rank is doing, in words, and that it goes on: written by the rank, read by whoever watches it.
 *
 *   phase    long work that is not a step ("saving checkpoint step-00000300"); phases nest
 *   file     the file that is being written or read
 *   program, instr   the instruction of a step that runs
 *   ticks    counts whatever moves: calls, instructions, files opened, bytes written, blocks of memory
 *
 * A rank is stuck when its ticks stand still for too long; the words then say where. ctx->progress is NULL where
 * nobody watches: all functions here do nothing then.
 */
#ifndef ORTH_BASE_PROGRESS_H
#define ORTH_BASE_PROGRESS_H

#include <pthread.h>

#include "base/ctx.h"

#define ORTH_PHASE_DEPTH 3      /* phases deeper than that are not told */
#define ORTH_PHASE_MAX 96
#define ORTH_PLACE_MAX 320      /* room for all of it in words */

typedef struct orth_progress {
    _Atomic int64_t ticks;
    _Atomic(const void *) program; /* whose instruction runs (an executor); NULL: none */
    _Atomic int32_t instr;
    _Atomic int64_t epoch;         /* parts begun (orth_progress_part): the same on all ranks between the same two */
    _Atomic int64_t asked;         /* calls of communicators that the program has asked for up to here */
    _Atomic int32_t depth;         /* phases begun and not ended */
    pthread_mutex_t mutex;         /* of the texts */
    char phase[ORTH_PHASE_DEPTH][ORTH_PHASE_MAX];
    char file[ORTH_PHASE_MAX];     /* name without its folder; "": none */
} orth_progress;

void orth_progress_init(orth_progress *p);
void orth_progress_destroy(orth_progress *p);

/* Something has moved. Any thread. */
static inline void orth_tick(orth_ctx *ctx)
{
    if (ctx->progress)
        atomic_fetch_add_explicit(&ctx->progress->ticks, 1, memory_order_relaxed);
}

/* Another part of the work begins that all ranks have, in the same order: a program and what follows it, a save. Of two ranks that
 * wait for each other, the one in a later part left a call out. */
static inline void orth_progress_part(orth_ctx *ctx)
{
    if (!ctx->progress)
        return;
    atomic_store(&ctx->progress->asked, 0);
    atomic_fetch_add(&ctx->progress->epoch, 1);
}

/* Around long work outside of steps; phases nest. */
void orth_phase_begin(orth_ctx *ctx, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void orth_phase_end(orth_ctx *ctx);
/* A file is at hand; NULL: no longer. Ticks. */
void orth_phase_file(orth_ctx *ctx, const char *path);

/* "saving checkpoint step-00000300: model.safetensors"; false and "" outside of phases. *has_file (NULL is fine): the
 * last word is a file, so that what is missing are bytes. */
bool orth_progress_phase(orth_progress *p, char *text, size_t n, bool *has_file);

/* A rank that waits for work of another thread, `other`: ticks when that has moved since *seen, and shows its file. */
void orth_progress_follow(orth_ctx *ctx, orth_progress *other, int64_t *seen);

#endif
