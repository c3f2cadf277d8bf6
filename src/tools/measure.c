/* measure.c -- see measure.h. */
#include "tools/measure.h"

#include <math.h>
#include <pthread.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/pages.h"
#include "base/pool.h"
#include "base/rng.h"
#include "train/describe.h"
#include "train/groups.h"
#include "train/weights.h"

struct orth_measure {
    const orth_config *cfg;
    orth_model_config model;
    orth_run_plan plan;
    orth_measure_fn fn;
    void *user;
    const orth_trainer **trainers;   /* [num_ranks] */
    orth_trainer *first;             /* of rank 0 */
    pthread_mutex_t lock;            /* of what follows */
    pthread_cond_t changed;
    int64_t asked;                   /* steps that rank 0 has asked for; -1: no more */
    int64_t done;                    /* steps done, all ranks counted */
    bool failed;                     /* some rank gave up */
};

static orth_status put_data(orth_ctx *ctx, orth_trainer *t, int64_t rows, int32_t *ints, float *weights)
{
    const size_t bytes = (size_t)rows * 4;
    ORTH_TRY(orth_setup_put(ctx, t->executor, ORTH_DATA_TOKENS, ints, bytes));
    ORTH_TRY(orth_setup_put(ctx, t->executor, ORTH_DATA_TARGETS, ints + rows, bytes));
    ORTH_TRY(orth_setup_put(ctx, t->executor, ORTH_DATA_POSITIONS, ints + 2 * rows, bytes));
    return orth_setup_put(ctx, t->executor, ORTH_DATA_WEIGHTS, weights, bytes);
}

static orth_status fill_data(orth_ctx *ctx, orth_trainer *t, const orth_measure *m)
{
    const orth_config *cfg = m->cfg;
    int64_t T = t->compiled.blocks.spec.seq_len, rows = t->compiled.program.num_tokens;
    int32_t *ints = ORTH_NEW_ARRAY(ctx, int32_t, 3 * rows);
    float *weights = ORTH_NEW_ARRAY(ctx, float, rows);
    for (int64_t i = 0; ints && weights && i < rows; i++) {
        orth_rand4 r = orth_philox(1, ORTH_STREAM_TEST, 0, (uint64_t)i);
        ints[i] = (int32_t)(r.v[0] % (uint64_t)m->model.vocab);
        ints[rows + i] = (int32_t)(r.v[1] % (uint64_t)m->model.vocab);
        ints[2 * rows + i] = (int32_t)(i % T);
        weights[i] = 1;
    }
    const orth_status s = ints && weights ? put_data(ctx, t, rows, ints, weights) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, ints);
    orth_mem_free(ctx, weights);
    for (int32_t u = 0; u < t->compiled.program.num_updates; u++)
        t->step[u].loss_scale = t->scale.scale * (float)t->compiled.program.num_updates / (float)(cfg->train_global_batch * cfg->data_seq_len);
    return s;
}

/* ---- the gate between rank 0 and the others ---- */

static void set(orth_measure *m, int64_t asked, int64_t more_done, bool failed)
{
    pthread_mutex_lock(&m->lock);
    m->asked = asked ? asked : m->asked;
    m->done += more_done;
    m->failed = m->failed || failed;
    pthread_cond_broadcast(&m->changed);
    pthread_mutex_unlock(&m->lock);
}

/* Waits until step `step` is asked for; false: there is none. */
static bool wait_asked(orth_measure *m, int64_t step)
{
    pthread_mutex_lock(&m->lock);
    while (m->asked >= 0 && m->asked < step && !m->failed)
        pthread_cond_wait(&m->changed, &m->lock);
    bool go = m->asked >= step && !m->failed;
    pthread_mutex_unlock(&m->lock);
    return go;
}

static bool wait_done(orth_measure *m, int64_t steps)
{
    pthread_mutex_lock(&m->lock);
    while (m->done < steps * m->plan.num_ranks && !m->failed)
        pthread_cond_wait(&m->changed, &m->lock);
    bool ok = !m->failed;
    pthread_mutex_unlock(&m->lock);
    return ok;
}

/* ---- ranks ---- */

orth_status orth_measure_step(orth_ctx *ctx, orth_measure *m, double *seconds)
{
    orth_step_result r;
    int64_t step = m->asked + 1; /* only this thread changes it */
    double begin = orth_clock_s();
    set(m, step, 0, false);
    ORTH_TRY(orth_trainer_step(ctx, m->first, step, &r));
    set(m, 0, 1, false);
    if (!wait_done(m, step))
        return ORTH_FAIL(ctx, ORTH_ERR_COMM, "another rank failed in step %d", (int)step);
    *seconds = orth_clock_s() - begin;
    return ORTH_OK;
}

static orth_status follow(orth_ctx *ctx, orth_measure *m, orth_trainer *t)
{
    orth_step_result r;
    for (int64_t step = 1; wait_asked(m, step); step++) {
        ORTH_TRY(orth_trainer_step(ctx, t, step, &r));
        set(m, 0, 1, false);
    }
    return ORTH_OK;
}

static orth_status run_trainer(orth_ctx *ctx, orth_measure *m, orth_trainer *t, orth_world *world, int rank)
{
    orth_comm *comms[ORTH_NUM_GROUPS] = {0};
    orth_status s = world ? orth_groups_create(ctx, world, &m->plan.partition, rank, comms) : ORTH_OK;
    m->trainers[rank] = t;
    if (s == ORTH_OK) {
        orth_executor_set_comms(t->executor, comms);
        s = fill_data(ctx, t, m);
    }
    if (s == ORTH_OK)
        s = orth_weights_init(ctx, &m->model, &t->compiled, t->executor, (uint64_t)m->cfg->train_seed);
    orth_pages_trim_heap(); /* by each: the last one to come here gives back what all have freed */
    if (s == ORTH_OK && rank == 0) {
        m->first = t;
        s = m->fn(ctx, m, m->user);
        set(m, -1, 0, false);
    } else if (s == ORTH_OK) {
        s = follow(ctx, m, t);
    }
    orth_groups_destroy(ctx, comms);
    return s;
}

static orth_status rank_main(orth_ctx *ctx, orth_world *world, void *arg)
{
    orth_measure *m = arg;
    orth_trainer trainer;
    orth_rank_programs programs;
    int rank = world ? orth_world_rank(world) : 0;
    orth_chunk *chunks = ORTH_NEW_ARRAY(ctx, orth_chunk, m->plan.partition.schedule.num_chunks);
    orth_status s = chunks ? orth_programs_take(ctx, &m->plan.programs, rank, chunks, &programs) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = orth_trainer_create(ctx, &trainer, m->cfg, &m->model, &programs.step);
    if (s == ORTH_OK) {
        s = run_trainer(ctx, m, &trainer, world, rank);
        orth_trainer_destroy(ctx, &trainer);
    }
    orth_mem_free(ctx, chunks);
    if (s != ORTH_OK)
        set(m, 0, 0, true);
    return s;
}

static orth_status run_all(orth_ctx *ctx, orth_measure *m)
{
    ORTH_TRY(orth_plan_require_fit(ctx, &m->plan.total));
    if (m->plan.num_ranks == 1)
        return rank_main(ctx, NULL, m);
    ORTH_TRY(orth_run_plan_check(ctx, &m->plan));
    orth_world_options o = orth_groups_options(m->cfg, orth_pool_num_threads(ctx->pool), m->plan.num_ranks);
    return orth_run_ranks(ctx, m->plan.num_ranks, rank_main, m, &o);
}

orth_status orth_measure_run(orth_ctx *ctx, const orth_config *cfg, orth_measure_fn fn, void *user)
{
    orth_measure m = {.cfg = cfg, .fn = fn, .user = user};
    if (cfg->comm_backend != ORTH_comm_backend_thread)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "comm.backend=mpi: steps on made-up data are timed on thread ranks only; "
                         "`orthant train` prints the speed of a run over MPI");
    ORTH_TRY(orth_describe_model(ctx, cfg, &m.model));
    ORTH_TRY(orth_setup_say_place(ctx, cfg, orth_describe_plan(ctx, &m.plan, cfg, &m.model, false)));
    pthread_mutex_init(&m.lock, NULL);
    pthread_cond_init(&m.changed, NULL);
    m.trainers = ORTH_NEW_ARRAY(ctx, const orth_trainer *, m.plan.num_ranks);
    orth_status s = m.trainers ? run_all(ctx, &m) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, m.trainers);
    pthread_cond_destroy(&m.changed);
    pthread_mutex_destroy(&m.lock);
    orth_run_plan_release(ctx, &m.plan);
    return s;
}

const orth_plan *orth_measure_plan(const orth_measure *m)
{
    return &m->plan.total;
}

/* Between two steps the other ranks wait, and their clocks lie still. */
orth_status orth_measure_bubble(orth_ctx *ctx, orth_measure *m, orth_bubble *out)
{
    int64_t **clocks;
    ORTH_TRY(orth_run_plan_clocks(ctx, &m->plan, &clocks));
    for (int r = 0; r < m->plan.num_ranks; r++)
        memcpy(clocks[r], orth_executor_clock(m->trainers[r]->executor),
               (size_t)orth_clock_length(m->plan.ranks[r].num_instrs) * sizeof(int64_t));
    const orth_status s = orth_run_plan_timeline(ctx, &m->plan, clocks, NULL, out);
    orth_mem_free(ctx, clocks);
    return s;
}

const orth_schedule *orth_measure_schedule(const orth_measure *m)
{
    return &m->plan.partition.schedule;
}

static int by_seconds(const void *a, const void *b)
{
    const orth_measure_share *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

int orth_measure_shares(const orth_measure *m, orth_measure_share shares[ORTH_MEASURE_MAX_SHARES])
{
    const orth_program *p = &m->first->compiled.program;
    const int64_t *held = orth_executor_held(m->first->executor), *clock = orth_executor_clock(m->first->executor);
    double beside = 0; /* seconds that the host computes and that copies wait for */
    int n = 0, copies = -1; /* those of the update */
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *in = &p->instrs[i];
        int k = 0;
        while (k < n && (shares[k].op != in->op || shares[k].phase != in->phase))
            k++;
        if (k == n)
            shares[n++] = (orth_measure_share){.op = in->op, .phase = in->phase};
        orth_cost c = orth_instr_cost(in);
        const bool host = p->queues[in->queue].kind == ORTH_QUEUE_HOST;
        const int64_t ns = host ? orth_clock_end(clock, i) - orth_clock_begin(clock, i) : held[i];
        beside += 1e-9 * (double)(ns - held[i]);
        copies = in->phase == ORTH_PHASE_UPDATE && orth_instr_moves(p, in) ? k : copies;
        shares[k].calls++;
        shares[k].seconds += 1e-9 * (double)ns;
        shares[k].flops += c.hardware_flops;
        shares[k].bytes += c.bytes;
    }
    if (copies >= 0)
        shares[copies].seconds -= fmin(fmax(beside, 0), shares[copies].seconds);
    qsort(shares, (size_t)n, sizeof *shares, by_seconds);
    return n;
}

const orth_program *orth_measure_program(const orth_measure *m)
{
    return &m->first->compiled.program;
}

const int64_t *orth_measure_held(const orth_measure *m)
{
    return orth_executor_held(m->first->executor);
}
