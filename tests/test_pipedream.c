/* test_pipedream.c -- the asynchronous pipeline: what its ranks compute is what one process computes that keeps every
 * version of the weights and uses those that the schedule says. */
#include "engine.h"

#include "comm/comm.h"
#include "damage.h"
#include "plan/programs.h"
#include "plan/traffic.h"
#include "run_case.h"
#include "traffic_case.h"

#define MAX_PARAMS 64
#define MAX_UPDATES 40

/* ---- the problem, the same for both ---- */

typedef struct {
    layout_case c;
    /* What one process computed. */
    int num_params, updates;                   /* updates of a step */
    int64_t elems[MAX_PARAMS];
    float *weights[MAX_UPDATES + 1][MAX_PARAMS]; /* [version]: after so many updates */
    float *m[MAX_PARAMS], *v[MAX_PARAMS];
    double loss[8];                            /* [steps] */
    char difference[256];
} stale_case;

static stale_case *stale_new(uint64_t seed, int kind, int pp, int dp, int micros, int micro_batch)
{
    stale_case *x = calloc(1, sizeof *x);
    layout_case *c = &x->c;
    *c = layout_base_case(seed, kind);
    c->steps = 3;
    c->model.tied = false;
    c->layout.pipeline = "pipedream";
    c->layout.pp = pp;
    c->layout.dp = dp;
    c->layout.micro_batch = micro_batch;
    c->layout.global_batch = (int64_t)dp * micros * micro_batch;
    c->recompute = layout_recompute((int)(seed % LAYOUT_NUM_RECOMPUTE));
    x->updates = micros;
    assert_true(c->steps * micros <= MAX_UPDATES);
    return x;
}

static orth_step_values step_values(const stale_case *x, int64_t update)
{
    return (orth_step_values){.seed = x->c.seed, .step = (uint64_t)update + 1, .lr = 0.01f + 0.001f * (float)update,
                              .weight_decay = 0.1f, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8f, .clip_scale = 1,
                              .loss_scale = 1.0f / (float)(x->c.layout.dp * x->c.layout.micro_batch * x->c.layout.seq_len)};
}

/* Sequences `q` [n] of the run into the engine's step. */
static void fill(const stale_case *x, engine *e, int64_t n, const int64_t *q)
{
    const int64_t T = x->c.layout.seq_len;
    int32_t *tokens = calloc((size_t)(n * T), 4), *targets = calloc((size_t)(n * T), 4);
    float *weights = calloc((size_t)(n * T), 4);
    for (int64_t i = 0; i < n * T; i++) {
        const uint64_t id = (uint64_t)(q[i / T] * T + i % T);
        tokens[i] = (int32_t)test_rand_int(x->c.seed + 1, id, 0, x->c.model.vocab - 1);
        targets[i] = (int32_t)test_rand_int(x->c.seed + 2, id, 0, x->c.model.vocab - 1);
        weights[i] = test_rand_int(x->c.seed + 3, id, 0, 5) > 0;
    }
    engine_fill(e, n, tokens, targets, weights, NULL);
    int32_t *seq = calloc((size_t)n, 4);
    for (int64_t i = 0; i < n; i++)
        seq[i] = (int32_t)q[i];
    engine_put(e, ORTH_BIND_DATA, ORTH_DATA_SEQ, seq);
    orth_ctx ctx = {.rank = 0};
    CHECK_OK(&ctx, orth_setup_rope_table(&ctx, e->ex, &x->c.model));
    free(seq);
    free(tokens);
    free(targets);
    free(weights);
}

/* Elements [first, first + n) of parameter `index` into what the engine has of it. */
static void put(engine *e, int64_t index, const float *w)
{
    const orth_bind binds[] = {ORTH_BIND_MASTER, ORTH_BIND_COPY};
    for (int k = 0; k < 2; k++) {
        const int32_t b = orth_program_find(&e->compiled.program, binds[k], index);
        if (b < 0)
            continue;
        engine_put_param(e, binds[k], index, w + e->compiled.program.buffers[b].first_elem);
    }
}

/* ---- one process ---- */

/* Stage that has a parameter. */
static int stage_of(const orth_partition *s, const orth_param *p)
{
    int layer;
    if (strncmp(p->name, "embed", 5) == 0 || strncmp(p->name, "pos", 3) == 0)
        return 0;
    if (sscanf(p->name, "layers.%d.", &layer) != 1)
        return s->schedule.num_chunks - 1;
    int c = 0;
    while (s->first_layer[c + 1] <= layer)
        c++;
    return c;
}

/* The optimizer on the newest weights, with a gradient that older ones gave. */
static void update(orth_ctx *ctx, stale_case *x, engine *e, int64_t index, int64_t number)
{
    orth_step_values values = step_values(x, number);
    const int64_t n = x->elems[index];
    float *grad = engine_get(e, ORTH_BIND_GRAD, index);
    const orth_tensor in[] = {{.data = grad, .dtype = ORTH_F32, .num_dims = 1, .dim = {n, 1, 1, 1}},
                              {.data = &values, .dtype = ORTH_U8, .num_dims = 1, .dim = {sizeof values, 1, 1, 1}}};
    orth_tensor out[4] = {{.num_dims = 1, .dtype = ORTH_F32, .dim = {n, 1, 1, 1}}};
    out[1] = out[2] = out[0];
    out[3] = (orth_tensor){.num_dims = 1, .dim = {0, 1, 1, 1}};
    float *next = x->weights[number + 1][index] = calloc((size_t)n, sizeof *next);
    memcpy(next, x->weights[number][index], (size_t)n * sizeof *next);
    out[0].data = next;
    out[1].data = x->m[index];
    out[2].data = x->v[index];
    const orth_param_desc *d = &e->compiled.blocks.spec.params[index];
    const orth_attr attr = {.lr_factor = d->lr_factor, .decay_factor = d->decay_factor};
    const orth_op_call call = {.in = in, .out = out, .num_in = 2, .num_out = 4, .attr = &attr};
    CHECK_OK(ctx, orth_kernels_ref()[ORTH_OP_adamw](ctx, &call));
    free(grad);
}

/* Micro-batch i of a step on stage r is computed with the weights after max(0, i - (p - r - 1)) updates of that step. */
static void run_one_process(orth_ctx *ctx, stale_case *x)
{
    const layout_case *c = &x->c;
    const int64_t B = c->layout.micro_batch, dp = c->layout.dp, m = x->updates, p = c->layout.pp;
    orth_partition s;
    CHECK_OK(ctx, orth_partition_make(ctx, &s, &c->layout, &c->model));
    engine e = {.model = c->model};
    e.shape = layout_shape(c);
    e.shape.num_seqs = (int32_t)B;
    e.shape.num_micro_batches = (int32_t)dp;
    e.shape.recompute = layout_recompute(0);
    CHECK_OK(ctx, orth_compiled_build(ctx, &c->model, &e.shape, &e.compiled));
    CHECK_OK(ctx, orth_executor_create(ctx, &e.ex, &e.compiled.program, orth_kernels_cpu(), NULL, false));
    double *leaves = calloc((size_t)c->layout.global_batch, sizeof *leaves);
    int64_t *q = calloc((size_t)(dp * B), sizeof *q);
    for (int64_t n = 0; n < c->steps * m; n++) {
        const int64_t step = n / m, i = n % m;
        for (int64_t k = 0; k < dp * B; k++)
            q[k] = step * c->layout.global_batch + k / B * m * B + i * B + k % B;
        for (int64_t k = 0; k < x->num_params; k++) {
            orth_param param;
            CHECK_OK(ctx, orth_model_param(ctx, &c->model, k, &param));
            const int64_t behind = p - stage_of(&s, &param) - 1;
            put(&e, k, x->weights[step * m + ORTH_MAX(0, i - behind)][k]);
        }
        fill(x, &e, dp * B, q);
        engine_set_step(&e, 0, step_values(x, n));
        CHECK_OK(ctx, orth_executor_run(ctx, e.ex));
        double *seq_loss = engine_get(&e, ORTH_BIND_SEQ_LOSS, 0);
        for (int64_t k = 0; k < dp * B; k++)
            leaves[q[k] - step * c->layout.global_batch] = seq_loss[k];
        free(seq_loss);
        for (int64_t k = 0; k < x->num_params; k++)
            update(ctx, x, &e, k, n);
        const orth_tensor in = {.data = leaves, .dtype = ORTH_F64, .num_dims = 1, .dim = {c->layout.global_batch, 1, 1, 1}};
        const orth_tensor out = {.data = &x->loss[step], .dtype = ORTH_F64, .num_dims = 1, .dim = {1, 1, 1, 1}};
        const orth_op_call sum = {.in = &in, .out = &out, .num_in = 1, .num_out = 1, .attr = &(orth_attr){0}};
        CHECK_OK(ctx, orth_kernels_ref()[ORTH_OP_tree_acc_f64](ctx, &sum));
    }
    free(leaves);
    free(q);
    engine_close(ctx, &e);
    orth_partition_release(ctx, &s);
}

static void open_weights(orth_ctx *ctx, stale_case *x)
{
    x->num_params = (int)orth_model_num_params(&x->c.model);
    assert_true(x->num_params <= MAX_PARAMS);
    for (int64_t k = 0; k < x->num_params; k++) {
        orth_param p;
        CHECK_OK(ctx, orth_model_param(ctx, &x->c.model, k, &p));
        x->elems[k] = orth_param_elems(&p);
        x->weights[0][k] = calloc((size_t)x->elems[k], sizeof(float));
        x->m[k] = calloc((size_t)x->elems[k], sizeof(float));
        x->v[k] = calloc((size_t)x->elems[k], sizeof(float));
        for (int64_t j = 0; j < x->elems[k]; j++)
            x->weights[0][k][j] = (p.init == ORTH_INIT_ONE) + 0.2f * test_rand(x->c.seed * 131 + (uint64_t)k, (uint64_t)j);
    }
}

static void stale_free(stale_case *x)
{
    for (int k = 0; k < x->num_params; k++) {
        for (int u = 0; u <= MAX_UPDATES; u++)
            free(x->weights[u][k]);
        free(x->m[k]);
        free(x->v[k]);
    }
    free(x);
}

/* ---- ranks ---- */

static void compare(stale_case *x, engine *e, int rank, int step)
{
    const double loss = engine_loss(e);
    if (memcmp(&loss, &x->loss[step], sizeof loss) != 0 && !x->difference[0])
        snprintf(x->difference, sizeof x->difference, "rank %d, step %d: loss %a, wanted %a", rank, step + 1, loss, x->loss[step]);
    for (int64_t k = 0; k < x->num_params; k++) {
        const int32_t b = orth_program_find(&e->compiled.program, ORTH_BIND_MASTER, k);
        if (b < 0)
            continue;
        const orth_buffer *buf = &e->compiled.program.buffers[b];
        const float *want = x->weights[(step + 1) * x->updates][k] + buf->first_elem;
        float *is = engine_get(e, ORTH_BIND_MASTER, k);
        for (int64_t j = 0; j < (int64_t)(buf->bytes / sizeof *is) && !x->difference[0]; j++)
            if (memcmp(&is[j], &want[j], sizeof *is) != 0)
                snprintf(x->difference, sizeof x->difference, "rank %d, step %d: %s[%d] is %a, wanted %a", rank, step + 1,
                         buf->name, (int)j, (double)is[j], (double)want[j]);
        free(is);
    }
}

static void check_plan(orth_ctx *ctx, stale_case *x, const engine *e, orth_comm *const comms[ORTH_NUM_GROUPS], int rank)
{
    const orth_rank_groups groups = engine_groups(comms);
    const orth_traffic planned = orth_traffic_planned(&e->compiled.program, &groups, traffic_method(comms));
    const orth_traffic counted = orth_traffic_counted(comms);
    char what[224];
    if (traffic_differs(&planned, &counted, x->c.steps, what, sizeof what) && !x->difference[0])
        snprintf(x->difference, sizeof x->difference, "rank %d: %s", rank, what);
    if (engine_memory_differs(ctx, e, what, sizeof what) && !x->difference[0])
        snprintf(x->difference, sizeof x->difference, "rank %d: %s", rank, what);
}

static orth_status run_steps(orth_ctx *ctx, stale_case *x, const orth_partition *s, engine *e, int rank)
{
    const int64_t n = (int64_t)e->shape.num_micro_batches * e->shape.num_seqs;
    int64_t *q = calloc((size_t)n, sizeof *q);
    orth_status status = ORTH_OK;
    for (int64_t k = 0; k < x->num_params; k++)
        put(e, k, x->weights[0][k]);
    for (int step = 0; step < x->c.steps && status == ORTH_OK; step++) {
        for (int64_t i = 0; i < n; i++)
            q[i] = orth_partition_sequence(s, rank, step * x->c.layout.global_batch, i);
        fill(x, e, n, q);
        for (int u = 0; u < e->compiled.program.num_updates; u++)
            engine_set_step(e, u, step_values(x, step * x->updates + u));
        status = orth_executor_run(ctx, e->ex);
        if (status == ORTH_OK)
            compare(x, e, rank, step);
    }
    free(q);
    return status;
}

static orth_status rank_main(orth_ctx *ctx, orth_world *world, void *arg)
{
    stale_case *x = arg;
    const int rank = orth_world_rank(world);
    orth_partition partition;
    orth_chunk chunks[8];
    orth_comm *comms[ORTH_NUM_GROUPS] = {0};
    ORTH_TRY(orth_partition_make(ctx, &partition, &x->c.layout, &x->c.model));
    engine e = {.model = x->c.model, .shape = layout_shape(&x->c)};
    orth_partition_shape(&partition, rank, &e.shape, chunks);
    orth_status status = engine_open_rank(ctx, &e, world, &partition, comms);
    if (status == ORTH_OK)
        status = run_steps(ctx, x, &partition, &e, rank);
    if (status == ORTH_OK)
        check_plan(ctx, x, &e, comms, rank);
    if (e.ex)
        engine_close(ctx, &e);
    orth_partition_release(ctx, &partition);
    return status;
}

static void check_stale(stale_case *x)
{
    char what[224];
    orth_ctx *ctx = test_ctx(1);
    layout_describe(&x->c, what, sizeof what);
    open_weights(ctx, x);
    run_one_process(ctx, x);
    const orth_world_options options = {.timeout_s = 8, .startup_s = 8};
    const orth_status s = orth_run_ranks(ctx, (int)orth_layout_ranks(&x->c.layout), rank_main, x, &options);
    if (s != ORTH_OK || x->difference[0])
        fail_msg("%s: %s", what, s != ORTH_OK ? ctx->error.message : x->difference);
    stale_free(x);
    test_ctx_free(ctx);
}

TEST(an_asynchronous_pipeline_computes_what_one_process_with_its_staleness_does)
{
    for (int k = 0; k < 12; k++) {
        stale_case *x = stale_new(20 + (uint64_t)k, k, 1 + k % 4, k >= 8 ? 2 : 1, k % 3 ? 8 : 4, k % 5 == 4 ? 2 : 1);
        x->c.compute = k / 2 % 2 ? ORTH_BF16 : ORTH_F32;
        x->c.model.dropout = k % 3 == 2 ? 0.1 : 0;
        x->c.layout.zero = k >= 10;
        check_stale(x);
    }
}

/* ---- memory of the versions ---- */

/* Most copies of a parameter that are live at once. */
static int most_stashed(const orth_program *p, const char *name)
{
    int most = 0;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        int live = 0;
        for (int32_t b = 0; b < p->num_buffers; b++)
            live += strcmp(p->buffers[b].name, name) == 0 && p->buffers[b].first <= i && p->buffers[b].last >= i;
        most = ORTH_MAX(most, live);
    }
    return most;
}

TEST(a_rank_keeps_as_many_versions_as_its_schedule_says)
{
    orth_ctx *ctx = test_ctx(1);
    stale_case *x = stale_new(1, 0, 4, 1, 8, 1);
    orth_partition s;
    CHECK_OK(ctx, orth_partition_make(ctx, &s, &x->c.layout, &x->c.model));
    for (int r = 0; r < 4; r++) {
        orth_chunk chunks[8];
        orth_compiled compiled;
        orth_model_shape shape = layout_shape(&x->c);
        char name[64];
        orth_partition_shape(&s, r, &shape, chunks);
        CHECK_OK(ctx, orth_compiled_build(ctx, &x->c.model, &shape, &compiled));
        snprintf(name, sizeof name, "stash.layers.%d.attn.qkv.weight", chunks[0].first_layer);
        assert_int_equal(orth_schedule_peak_versions(&s.schedule, r), 4 - r);
        assert_int_equal(most_stashed(&compiled.program, name), 4 - r - 1);
        assert_int_equal(compiled.program.num_updates, 8);
        orth_compiled_release(&compiled);
    }
    orth_partition_release(ctx, &s);
    stale_free(x);
    test_ctx_free(ctx);
}

/* ---- programs ---- */

TEST(asynchronous_layouts_are_accepted)
{
    orth_ctx *ctx = test_ctx(1);
    for (uint64_t seed = 1; seed <= 60; seed++) {
        layout_case c = layout_random_case(seed, LAYOUT_ANY);
        c.offload.params = ORTH_TIER_NONE; /* a rule of config/rules.c */
        if (orth_recipe_of(c.products)->delayed) /* refused (test_products.c) */
            c.products = ORTH_RECIPE_fp8_tensor;
        orth_partition s;
        const orth_model_shape shape = layout_shape(&c);
        char what[224];
        c.layout.pipeline = "pipedream";
        c.layout.virtual_stages = 1;
        c.layout.zero = ORTH_MIN(c.layout.zero, 1);
        c.layout.keep_whole = 0;
        c.layout.dp_share = NULL;
        c.layout.num_dp_share = 0;
        c.model.tied = c.model.tied && c.layout.pp == 1;
        layout_describe(&c, what, sizeof what);
        CHECK_OK(ctx, orth_partition_make(ctx, &s, &c.layout, &c.model));
        if (orth_check_layout(ctx, &s, &c.model, &shape) != ORTH_OK)
            fail_msg("%s: %s", what, ctx->error.message);
        orth_partition_release(ctx, &s);
    }
    test_ctx_free(ctx);
}

static patient *async_patient(void)
{
    stale_case *x = stale_new(1, 0, 2, 1, 4, 1);
    patient *p = patient_new(&x->c, false);
    stale_free(x);
    CHECK_OK(p->ctx, patient_check(p));
    return p;
}

TEST(damaged_asynchronous_programs_are_refused)
{
    patient *x = async_patient();
    drop(&x->p[1], find_op(&x->p[1], ORTH_OP_adamw, 0, 2));
    CHECK_FAILS(x->ctx, ORTH_ERR_INTERNAL, "is updated 3 times, not 4", patient_check(x));
    patient_free(x);
    x = async_patient();
    duplicate(&x->p[1], find_op(&x->p[1], ORTH_OP_adamw, 0, 2));
    CHECK_FAILS(x->ctx, ORTH_ERR_INTERNAL, "gradient applied twice", patient_check(x));
    patient_free(x);
    x = async_patient();
    duplicate(&x->p[1], find_last(&x->p[1], ORTH_OP_adamw, 0));
    CHECK_FAILS(x->ctx, ORTH_ERR_INTERNAL, "parameter updated once too often", patient_check(x));
    patient_free(x);
    x = async_patient();
    drop(&x->p[0], find_op(&x->p[0], ORTH_OP_copy, 0, 0));
    CHECK_FAILS(x->ctx, ORTH_ERR_INTERNAL, "read before it is written", patient_check(x));
    patient_free(x);
}

/* ---- whole runs ---- */

static void write_variant(run_case *r, const char *name, const char *more)
{
    char *yaml = run_read(r, "run.yaml", NULL), text[1024];
    const int n = snprintf(text, sizeof text, "%s%s\n", yaml, more);
    run_write(r, name, text, (size_t)n);
    free(yaml);
}

TEST(runs_with_an_asynchronous_pipeline)
{
    static const char async[] = "train.global_batch=8 train.micro_batch=1 model.tied=false parallel.pipeline=pipedream parallel.pp=2 "
                                "train.clip_norm=0";
    run_case *r = run_begin();
    RUN(r, 2, "clip_norm > 0: its stages update at different times", "train run.yaml %s train.clip_norm=1", async);
    RUN(r, 2, "tied=true: the first and the last stage", "train run.yaml %s model.tied=true", async);
    RUN(r, 2, "zero=2: it stashes whole weights", "train run.yaml %s parallel.dp=2 parallel.zero=2", async);
    RUN(r, 0, "saved", "train run.yaml %s train.steps=4 checkpoint.dir=a", async);
    /* Stopped between two steps, where nothing is in flight, and continued: the same weights. */
    RUN(r, 0, "saved", "train run.yaml %s train.steps=4 checkpoint.dir=b checkpoint.every_steps=2", async);
    run_remove(r, "b/checkpoints/step-00000004");
    RUN(r, 0, "saved", "train run.yaml %s train.steps=4 checkpoint.dir=b --resume", async);
    run_same_file(r, "a/checkpoints/step-00000004/model.safetensors", "b/checkpoints/step-00000004/model.safetensors");
    RUN(r, 2, "train.micro_batch=2: a/checkpoints/step-00000004 was trained with 1", "train run.yaml %s train.steps=6 train.micro_batch=2 --resume", async);
    RUN(r, 2, "parallel.pipeline=\"1f1b\": a/checkpoints/step-00000004 was trained with pipedream", "train run.yaml %s train.steps=6 parallel.pipeline=1f1b --resume", async);
    RUN(r, 0, "saved", "train run.yaml %s train.steps=1 parallel.pipeline=1f1b checkpoint.dir=c", async);
    RUN(r, 2, "parallel.pipeline=pipedream: c/checkpoints/step-00000001 was trained with \"1f1b\"", "train run.yaml %s train.steps=2 checkpoint.dir=c --resume", async);
    RUN(r, 0, "saved", "train run.yaml %s train.steps=5 parallel.tp=2 --resume", async);
    /* Other axes change nothing; another pipeline does. */
    write_variant(r, "b.yaml", "parallel: {tp: 2, cp: 2, sequence_parallel: true}");
    write_variant(r, "c.yaml", "parallel: {dp: 2}");
    RUN(r, 0, "are equal", "verify run.yaml b.yaml --steps=2 %s", async);
    RUN(r, 2, "has results of its own for each parallel.pp", "verify run.yaml c.yaml %s", async);
    run_end(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_asynchronous_pipeline_computes_what_one_process_with_its_staleness_does),
        cmocka_unit_test(a_rank_keeps_as_many_versions_as_its_schedule_says),
        cmocka_unit_test(asynchronous_layouts_are_accepted),
        cmocka_unit_test(damaged_asynchronous_programs_are_refused),
        cmocka_unit_test(runs_with_an_asynchronous_pipeline),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
