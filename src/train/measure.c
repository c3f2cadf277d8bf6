/* measure.c -- see measure.h. */
#include "train/measure.h"

#include <stdlib.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/rng.h"
#include "plan/plan.h"
#include "train/describe.h"
#include "train/weights.h"

static void fill_data(orth_measure *m, const orth_config *cfg)
{
    const orth_executor *e = m->trainer.executor;
    int64_t T = cfg->data_seq_len, rows = cfg->train_global_batch * T;
    orth_model_shape shape = orth_setup_shape(cfg, ORTH_MODE_TRAIN);
    int32_t *tokens = orth_executor_find(e, ORTH_BIND_DATA, ORTH_DATA_TOKENS);
    int32_t *targets = orth_executor_find(e, ORTH_BIND_DATA, ORTH_DATA_TARGETS);
    int32_t *pos = orth_executor_find(e, ORTH_BIND_DATA, ORTH_DATA_POSITIONS);
    float *weights = orth_executor_find(e, ORTH_BIND_DATA, ORTH_DATA_WEIGHTS);
    for (int64_t i = 0; i < rows; i++) {
        orth_rand4 r = orth_philox(1, ORTH_STREAM_TEST, 0, (uint64_t)i);
        tokens[i] = (int32_t)(r.v[0] % (uint64_t)m->model.vocab);
        targets[i] = (int32_t)(r.v[1] % (uint64_t)m->model.vocab);
        weights[i] = 1;
        if (pos)
            pos[i] = (int32_t)orth_fold_pos(T, shape.parts, i % T);
    }
    m->trainer.step->loss_scale = 1.0f / (float)rows;
}

orth_status orth_measure_open(orth_ctx *ctx, orth_measure *m, const orth_config *cfg)
{
    orth_unit unit;
    *m = (orth_measure){.step = 0};
    orth_model_shape shape = orth_setup_shape(cfg, ORTH_MODE_TRAIN);
    ORTH_TRY(orth_describe_model(ctx, cfg, &m->model));
    ORTH_TRY(orth_unit_build(ctx, &m->model, &shape, &unit));
    size_t limit = cfg->memory_limit > 0 ? (size_t)cfg->memory_limit : (size_t)orth_machine_available_bytes();
    orth_plan plan = orth_plan_of(&unit.program, orth_model_num_elems(&m->model), limit);
    orth_status fits = orth_plan_require_fit(ctx, &plan);
    if (fits != ORTH_OK) {
        orth_unit_release(&unit);
        return fits;
    }
    m->cost = plan.cost;
    m->tokens = unit.program.num_tokens;
    ORTH_TRY(orth_trainer_create(ctx, &m->trainer, cfg, &m->model, &unit));
    fill_data(m, cfg);
    orth_status s = orth_weights_init(ctx, &m->model, &m->trainer.unit, m->trainer.executor, (uint64_t)cfg->train_seed);
    if (s != ORTH_OK)
        orth_measure_close(ctx, m);
    return s;
}

void orth_measure_close(orth_ctx *ctx, orth_measure *m)
{
    orth_trainer_destroy(ctx, &m->trainer);
}

orth_status orth_measure_step(orth_ctx *ctx, orth_measure *m, double *seconds)
{
    orth_step_result r;
    double begin = orth_clock_s();
    ORTH_TRY(orth_trainer_step(ctx, &m->trainer, ++m->step, &r));
    *seconds = orth_clock_s() - begin;
    return ORTH_OK;
}

static int by_seconds(const void *a, const void *b)
{
    const orth_measure_share *x = a, *y = b;
    return (x->seconds < y->seconds) - (x->seconds > y->seconds);
}

int orth_measure_shares(const orth_measure *m, orth_measure_share shares[ORTH_MEASURE_MAX_SHARES])
{
    const orth_program *p = &m->trainer.unit.program;
    const int64_t *ns = orth_executor_times(m->trainer.executor);
    int n = 0;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *in = &p->instrs[i];
        int k = 0;
        while (k < n && (shares[k].op != in->op || shares[k].phase != in->phase))
            k++;
        if (k == n)
            shares[n++] = (orth_measure_share){.op = in->op, .phase = in->phase};
        orth_cost c = orth_instr_cost(in);
        shares[k].calls++;
        shares[k].seconds += 1e-9 * (double)ns[i];
        shares[k].flops += c.hardware_flops;
        shares[k].bytes += c.bytes;
    }
    qsort(shares, (size_t)n, sizeof *shares, by_seconds);
    return n;
}
