/* pool.c -- workers that wait for a loop, then draw indices from one shared counter.
 *
 *   idle --(generation changes: orth_pool_run)--> drawing --(counter used up)--> reported --> idle
 *
 * Workers spin briefly before they sleep: the kernels of a step follow each other within
 * microseconds, and waking a sleeper costs as much as a small kernel. Where threads share cores
 * they sleep at once: who spins then keeps the core from the one that it waits for.
 *
 * Where there is a CPU for every thread, each worker binds itself to its own, counted from where the caller
 * runs: a kernel may leave two threads on one CPU for a second before it moves one. The caller stays
 * free, and so do the threads that it makes.
 */
#define _GNU_SOURCE /* sched_getcpu, CPU_SET */
#include "base/pool.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>

#include "base/machine.h"
#include "base/pages.h"

/* 0.2 to 1 ms on current CPUs: what a thread waits at the end of a kernel. To sleep there costs 50 us in a virtual
 * machine, at every kernel. Spinning takes a core from nobody: where threads share cores nobody spins. */
#define SPIN_ROUNDS 20000

typedef struct {
    orth_pool *pool;
    int worker;
    int cpu;                        /* that it is bound to, as an index into `cpus`; -1: none */
    pthread_t thread;
} pool_worker;

struct orth_pool {
    int num_threads;
    int num_started;
    _Atomic int spins;              /* rounds before a thread sleeps; 0 where threads share cores */
    pool_worker *workers;           /* [num_threads]; entry 0 is the caller and has no thread */
    int *cpus;                      /* [num_threads]; NULL: not one for every thread */
    _Atomic int caller_cpu;         /* index into `cpus` */
    pthread_mutex_t mutex;
    pthread_cond_t wake, finished;
    /* One loop at a time; written by the owner before `generation` is raised. */
    orth_task_fn fn;
    void *arg;
    int64_t num_tasks;
    _Atomic int64_t next;
    _Atomic int busy;               /* workers that have not yet reported this generation */
    _Atomic uint64_t generation;
    bool quit;                      /* under mutex, and published by generation */
};

static inline void spin_pause(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#endif
}

static void draw_tasks(orth_pool *pool, int worker)
{
    for (;;) {
        int64_t i = atomic_fetch_add_explicit(&pool->next, 1, memory_order_relaxed);
        if (i >= pool->num_tasks)
            return;
        pool->fn(pool->arg, i, worker);
    }
}

static uint64_t wait_for_work(orth_pool *pool, uint64_t seen)
{
    const int spins = atomic_load_explicit(&pool->spins, memory_order_relaxed);
    for (int i = 0; i < spins; i++) {
        uint64_t g = atomic_load_explicit(&pool->generation, memory_order_acquire);
        if (g != seen)
            return g;
        spin_pause();
    }
    pthread_mutex_lock(&pool->mutex);
    while (atomic_load(&pool->generation) == seen)
        pthread_cond_wait(&pool->wake, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
    return atomic_load(&pool->generation);
}

/* Finds out where the caller runs. */
static void place_caller(orth_pool *pool)
{
    if (!pool->cpus)
        return;
    const int now = sched_getcpu();
    int at = atomic_load_explicit(&pool->caller_cpu, memory_order_relaxed);
    for (int i = 0; i < pool->num_threads && pool->cpus[at] != now; i++)
        at = (at + 1) % pool->num_threads;
    atomic_store_explicit(&pool->caller_cpu, at, memory_order_relaxed);
}

/* Binds a worker away from the caller and from the others. A refusal leaves it where it is. */
static void place_worker(pool_worker *self)
{
    orth_pool *pool = self->pool;
    if (!pool->cpus || atomic_load_explicit(&pool->spins, memory_order_relaxed) == 0)
        return;
    const int caller = atomic_load_explicit(&pool->caller_cpu, memory_order_relaxed);
    const int cpu = (caller + self->worker) % pool->num_threads;
    if (cpu == self->cpu)
        return;
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(pool->cpus[cpu], &set);
    sched_setaffinity(0, sizeof set, &set);
    self->cpu = cpu;
}

static void *worker_main(void *p)
{
    pool_worker *self = p;
    orth_pool *pool = self->pool;
    uint64_t seen = 0;
    for (;;) {
        seen = wait_for_work(pool, seen);
        if (pool->quit)
            return NULL;
        place_worker(self);
        draw_tasks(pool, self->worker);
        if (atomic_fetch_sub(&pool->busy, 1) == 1) {
            pthread_mutex_lock(&pool->mutex);
            pthread_cond_signal(&pool->finished);
            pthread_mutex_unlock(&pool->mutex);
        }
    }
}

static void publish(orth_pool *pool)
{
    /* Under the mutex: a worker between its last look and its sleep would miss the signal. */
    pthread_mutex_lock(&pool->mutex);
    atomic_fetch_add(&pool->generation, 1);
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->mutex);
}

orth_status orth_pool_create(orth_ctx *ctx, orth_pool **out, int num_threads)
{
    if (num_threads < 1 || num_threads > 4096)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "threads=%d is not in [1, 4096]", num_threads);
    orth_pool *pool = ORTH_NEW(ctx, orth_pool);
    if (!pool)
        return ORTH_ERR_NOMEM;
    pool->num_threads = num_threads;
    pool->num_started = 1;
    pool->spins = num_threads <= orth_machine_cores() ? SPIN_ROUNDS : 0;
    pthread_mutex_init(&pool->mutex, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pthread_cond_init(&pool->finished, NULL);
    pool->workers = ORTH_NEW_ARRAY(ctx, pool_worker, num_threads);
    pool->cpus = ORTH_NEW_ARRAY(ctx, int, num_threads);
    if (!pool->workers || !pool->cpus) {
        orth_pool_destroy(ctx, pool);
        return ORTH_ERR_NOMEM;
    }
    if (!orth_machine_cpus(pool->cpus, num_threads)) {
        orth_mem_free(ctx, pool->cpus);
        pool->cpus = NULL;
    }
    for (int i = 1; i < num_threads; i++) {
        pool->workers[i] = (pool_worker){.pool = pool, .worker = i, .cpu = -1};
        if (pthread_create(&pool->workers[i].thread, NULL, worker_main, &pool->workers[i]) != 0) {
            orth_pool_destroy(ctx, pool);
            return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "the system refused thread %d of %d", i + 1, num_threads);
        }
        pool->num_started++;
    }
    *out = pool;
    return ORTH_OK;
}

void orth_pool_destroy(orth_ctx *ctx, orth_pool *pool)
{
    if (!pool)
        return;
    pool->quit = true;
    publish(pool);
    for (int i = 1; i < pool->num_started; i++)
        pthread_join(pool->workers[i].thread, NULL);
    pthread_cond_destroy(&pool->finished);
    pthread_cond_destroy(&pool->wake);
    pthread_mutex_destroy(&pool->mutex);
    orth_mem_free(ctx, pool->cpus);
    orth_mem_free(ctx, pool->workers);
    orth_mem_free(ctx, pool);
}

void orth_pool_share_cores(orth_pool *pool)
{
    atomic_store_explicit(&pool->spins, 0, memory_order_relaxed);
}

int orth_pool_num_threads(const orth_pool *pool)
{
    return pool->num_threads;
}

size_t orth_pool_stack_bytes(const orth_pool *pool)
{
    size_t sum = orth_pages_stack_bytes(pthread_self());
    for (int i = 1; i < pool->num_started; i++)
        sum += orth_pages_stack_bytes(pool->workers[i].thread);
    return sum;
}

void orth_pool_run(orth_pool *pool, int64_t n, orth_task_fn fn, void *arg)
{
    if (n <= 0)
        return;
    if (pool->num_threads == 1 || n == 1) {
        for (int64_t i = 0; i < n; i++)
            fn(arg, i, 0);
        return;
    }
    pool->fn = fn;
    pool->arg = arg;
    pool->num_tasks = n;
    place_caller(pool);
    atomic_store(&pool->next, 0);
    atomic_store(&pool->busy, pool->num_threads - 1);
    publish(pool);
    draw_tasks(pool, 0);
    const int spins = atomic_load_explicit(&pool->spins, memory_order_relaxed);
    for (int i = 0; i < spins && atomic_load_explicit(&pool->busy, memory_order_acquire); i++)
        spin_pause();
    if (atomic_load(&pool->busy) == 0)
        return;
    pthread_mutex_lock(&pool->mutex);
    while (atomic_load(&pool->busy) != 0)
        pthread_cond_wait(&pool->finished, &pool->mutex);
    pthread_mutex_unlock(&pool->mutex);
}

#define COPY_BYTES ((size_t)1 << 20) /* by one task */

typedef struct {
    char *to;
    const char *from;
    size_t bytes;
} copy_job;

static void copy_task(void *arg, int64_t index, int worker)
{
    (void)worker;
    const copy_job *j = arg;
    const size_t at = (size_t)index * COPY_BYTES;
    memcpy(j->to + at, j->from + at, ORTH_MIN(COPY_BYTES, j->bytes - at));
}

void orth_pool_copy(orth_pool *pool, void *to, const void *from, size_t bytes)
{
    copy_job job = {to, from, bytes};
    if (!pool || bytes <= COPY_BYTES) {
        memcpy(to, from, bytes);
        return;
    }
    orth_pool_run(pool, orth_div_up((int64_t)bytes, (int64_t)COPY_BYTES), copy_task, &job);
}
