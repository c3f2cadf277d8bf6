/* layout_run.h -- runs a case of layouts.h on one rank and on thread ranks, and compares them bit for bit. */
#ifndef ORTH_TESTS_LAYOUT_RUN_H
#define ORTH_TESTS_LAYOUT_RUN_H

#include <math.h>
#include <sys/prctl.h>

#include "engine.h"

#include "base/pages.h"
#include "comm/comm.h"
#include "layouts.h"
#include "run/space/space.h"
#include "traffic_case.h"

static const int64_t max_elems = 1 << 20;

/* Of all layouts together: what was planned and counted alike. */
static struct {
    _Atomic int64_t traffic, memory; /* bytes */
    _Atomic int64_t calls;           /* collectives and messages */
} matched;

static inline uint64_t bits_of(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

/* Global element (of the whole parameter, row-major) that this rank's element `e` is. */
static inline int64_t global_elem(const orth_param_desc *d, int64_t e)
{
    if (d->split_dim < 0)
        return e;
    int64_t first = orth_split_bound(&d->split, d->first_part), cols = d->num_dims > 1 ? d->dim[1] : 1;
    int64_t row = e / cols, col = e % cols;
    if (d->split_dim == 0 && row < d->replica_rows)
        return (d->replica_first + row) * cols + col;
    row -= d->replica_rows;
    return d->split_dim == 0 ? (row + first) * cols + col : row * d->whole_cols + col + first;
}

static inline float initial(const layout_case *c, const orth_param *p, int64_t index, int64_t elem)
{
    float r = test_rand(c->seed * 131 + (uint64_t)index, (uint64_t)elem);
    return p->init == ORTH_INIT_ONE ? 1 + 0.2f * r : (c->odd_losses ? 3 : 0.2f) * r;
}

/* A fifth of the cases have scaled losses. The gradients of their second step overflow: of half of them everywhere, by the scale, and of the others
 * in one sequence, so on the ranks that have it. Where parameters are frozen, those of the others may be too small for it, as they then are on one rank. */
static inline bool overflows(const layout_case *c, int step)
{
    return c->seed % 5 == 0 && step == 1;
}

static inline bool overflows_in(const layout_case *c, int step, int64_t sequence)
{
    return overflows(c, step) && c->seed % 2 && sequence == step * c->layout.global_batch + (int64_t)(c->seed / 5 % (uint64_t)c->layout.global_batch);
}

static inline float loss_scale(const layout_case *c, int step)
{
    return c->seed % 5 ? 0 : overflows(c, step) && c->seed % 2 == 0 ? 0x1p127f : 1024;
}

static inline void fill_step(const layout_case *c, const orth_partition *s, const orth_model_shape *shape, engine *e, int rank,
                      int step, int left_out)
{
    const float scale = loss_scale(c, step);
    const int64_t T = c->layout.seq_len;
    int64_t n = (int64_t)shape->num_micro_batches * shape->num_seqs;
    int32_t *tokens = calloc((size_t)(n * T), 4), *targets = calloc((size_t)(n * T), 4), *doc = calloc((size_t)(n * T), 4);
    float *weights = calloc((size_t)(n * T), 4);
    const int64_t document = T > 64 ? 41 : 5;
    for (int64_t i = 0; i < n; i++) {
        int64_t q = s ? orth_partition_sequence(s, rank, step * c->layout.global_batch, i)
                      : step * c->layout.global_batch + i;
        for (int64_t t = 0; t < T; t++) {
            uint64_t id = (uint64_t)(q * T + t);
            tokens[i * T + t] = (int32_t)test_rand_int(c->seed + 1, id, 0, c->model.vocab - 1);
            targets[i * T + t] = (int32_t)test_rand_int(c->seed + 2, id, 0, c->model.vocab - 1);
            weights[i * T + t] = c->odd_losses ? 0.1f * test_rand(c->seed + 3, id) : test_rand_int(c->seed + 3, id, 0, 5) > 0;
            doc[i * T + t] = (int32_t)(t / document * document);
        }
        if (overflows_in(c, step, q))
            weights[i * T] = 3e38f; /* what its loss counts */
    }
    engine_fill(e, n, tokens, targets, weights, c->doc_mask ? doc : NULL);
    int32_t *seq = calloc((size_t)n, 4);
    for (int64_t i = 0; i < n; i++)
        seq[i] = (int32_t)(s ? orth_partition_sequence(s, rank, step * c->layout.global_batch, i)
                             : step * c->layout.global_batch + i);
    engine_put(e, ORTH_BIND_DATA, ORTH_DATA_SEQ, seq);
    free(seq);
    free(tokens);
    free(targets);
    free(doc);
    free(weights);
    engine_set_step(e, 0, (orth_step_values){
        .seed = c->seed, .step = (uint64_t)step + 1, .lr = 0.01f, .weight_decay = 0.1f, .beta1 = 0.9, .beta2 = 0.95,
        .eps = 1e-8f, .clip_norm = 0.05f, .left_out = left_out, .grad_scale = scale,
        .loss_scale = scale > 1024 ? scale : (scale > 0 ? scale : 1) / (float)(c->layout.global_batch * T)});
}

static inline void set_weights(const layout_case *c, engine *e)
{
    for (int64_t i = 0; i < e->compiled.blocks.spec.num_params; i++) {
        const orth_param_desc *d = &e->compiled.blocks.spec.params[i];
        orth_bind binds[] = {ORTH_BIND_MASTER, ORTH_BIND_COPY};
        orth_param p;
        orth_ctx ctx = {.rank = 0};
        orth_model_param(&ctx, &c->model, i, &p);
        for (int k = 0; k < 2; k++) {
            int32_t b = orth_program_find(&e->compiled.program, binds[k], i);
            if (b < 0)
                continue;
            const orth_buffer *buf = &e->compiled.program.buffers[b];
            const int64_t n = orth_buffer_elems(buf);
            float *w = malloc((size_t)n * 4 + 1);
            for (int64_t j = 0; j < n; j++)
                w[j] = initial(c, &p, i, global_elem(d, buf->first_elem + j));
            engine_put_param(e, binds[k], i, w);
            free(w);
        }
    }
}

static inline void __attribute__((format(printf, 2, 3))) differs(layout_case *c, const char *fmt, ...)
{
    if (c->difference[0])
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(c->difference, sizeof c->difference, fmt, args);
    va_end(args);
}

/* Equal to the last bit, or within the tolerance where the case has one. A loss that overflows is infinite on both sides. */
static inline bool agrees(const layout_case *c, double got, double want, double times)
{
    return c->tolerance > 0 ? got == want || fabs(got - want) <= times * c->tolerance * fabs(want) : memcmp(&got, &want, sizeof got) == 0;
}

static inline void check_step(layout_case *c, int rank, int step, double loss, double norm)
{
    if (!c->compare) {
        c->loss[step] = loss;
        c->norm[step] = norm;
    } else if (!agrees(c, loss, c->loss[step], 1) || !agrees(c, norm, c->norm[step], 100)) {
        differs(c, "rank %d, step %d: loss %a, wanted %a; norm %a, wanted %a", rank, step + 1, loss, c->loss[step], norm,
                c->norm[step]);
    }
    c->hash[rank] = 31 * (31 * c->hash[rank] + bits_of(loss)) + bits_of(norm);
}

/* This rank's masters of parameter i. Returns the square of their distance to what is wanted. */
static inline double check_param(layout_case *c, float *want, const orth_param_desc *d, const orth_buffer *buf,
                                 const void *raw, int rank)
{
    double square = 0;
    for (int64_t j = 0; j < orth_buffer_elems(buf); j++) {
        int64_t at = global_elem(d, buf->first_elem + j);
        const float got = orth_load_f32(raw, buf->dtype, j);
        if (!c->compare)
            want[at] = got;
        else if (c->tolerance <= 0 && memcmp(&want[at], &got, 4) != 0)
            differs(c, "rank %d: %s[%lld] is %a, wanted %a", rank, d->name, (long long)at, (double)got, (double)want[at]);
        c->hash[rank] = 31 * c->hash[rank] + bits_of((double)got);
        square += ((double)got - want[at]) * ((double)got - want[at]);
    }
    return square;
}

static inline void check_params(orth_ctx *ctx, layout_case *c, engine *e, int rank)
{
    double square = 0;
    int64_t elems = 0, offset = 0;
    for (int64_t i = 0; i < e->compiled.blocks.spec.num_params; i++) {
        orth_param p;
        CHECK_OK(ctx, orth_model_param(ctx, &c->model, i, &p));
        float *want = c->params + offset;
        offset += orth_param_elems(&p);
        int32_t b = orth_program_find(&e->compiled.program, ORTH_BIND_MASTER, i);
        if (b < 0)
            continue;
        float *data = engine_get(e, ORTH_BIND_MASTER, i);
        square += check_param(c, want, &e->compiled.blocks.spec.params[i], &e->compiled.program.buffers[b], data, rank);
        free(data);
        elems += orth_buffer_elems(&e->compiled.program.buffers[b]);
    }
    if (c->compare && c->tolerance > 0 && square > 100 * c->tolerance * c->tolerance * (double)elems)
        differs(c, "rank %d: weights are %g away in the root mean square", rank, sqrt(square / (double)elems));
}

static inline void run_steps(orth_ctx *ctx, layout_case *c, const orth_partition *s, const orth_model_shape *shape, engine *e,
                      int rank, orth_status *status)
{
    set_weights(c, e);
    if (c->shuffle > 0 && c->compare)
        orth_executor_shuffle(e->ex, 2 * (c->shuffle * 1000 + (uint64_t)rank) + (uint64_t)rank % 2);
    CHECK_OK(ctx, orth_setup_rope_table(ctx, e->ex, &c->model));
    int left_out = 0;
    for (int step = 0; step < c->steps && *status == ORTH_OK; step++) {
        fill_step(c, s, shape, e, rank, step, left_out);
        *status = orth_executor_run(ctx, e->ex);
        if (*status != ORTH_OK)
            return;
        const orth_step_values got = engine_step_values(e);
        left_out += got.bad;
        if (got.bad ? !overflows(c, step) : overflows(c, step) && c->freeze.num == 0)
            differs(c, "rank %d, step %d: the update %s", rank, step + 1, got.bad ? "is left out" : "is not left out");
        check_step(c, rank, step, engine_loss(e), got.bad ? -1 : got.grad_norm); /* a NaN has no sign of its own */
    }
    if (*status == ORTH_OK)
        check_params(ctx, c, e, rank);
}

/* With small pages, the pages of the arenas that are in memory are those in which instructions were given bytes, but for the
 * workspace, of which kernels take what they need. */
static inline bool pages_differ(orth_ctx *ctx, const engine *e, char *what, size_t size)
{
    const orth_program *p = &e->compiled.program;
    orth_counted used;
    if (prctl(PR_GET_THP_DISABLE, 0, 0, 0, 0) != 1)
        return false;
    CHECK_OK(ctx, orth_executor_counted(ctx, e->ex, &used));
    for (int s = 0; s < ORTH_SPACE_FILE; s++) { /* a file has no pages */
        const size_t touched = orth_executor_touched_bytes(e->ex, (orth_space)s), page = orth_pages_size();
        const size_t room = (int)p->buffers[p->workspace].space == s ? p->buffers[p->workspace].bytes + page : 0;
        if (touched <= used.pages[s] && used.pages[s] - touched <= room && used.pages[s] <= p->space_bytes[s] + 2 * page)
            continue;
        snprintf(what, size, "%s memory: %zu bytes planned, pages of %zu bytes given, pages of %zu bytes touched",
                 orth_space_name((orth_space)s), p->space_bytes[s], used.pages[s], touched);
        return true;
    }
    return false;
}

/* What was planned of memory and traffic is what was counted, to the byte. */
static inline void check_plan(orth_ctx *ctx, layout_case *c, const engine *e, orth_comm *const comms[ORTH_NUM_GROUPS], int rank)
{
    const orth_rank_groups groups = engine_groups(comms);
    const orth_traffic planned = orth_traffic_planned(&e->compiled.program, &groups, traffic_method(comms));
    const orth_traffic counted = orth_traffic_counted(comms);
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        for (int k = 0; k < ORTH_NUM_COMM_KINDS; k++)
            matched.calls += counted.calls[g][k];
    matched.traffic += traffic_bytes(&counted);
    char what[224];
    if (traffic_differs(&planned, &counted, c->steps, what, sizeof what) || engine_memory_differs(ctx, e, what, sizeof what) ||
        pages_differ(ctx, e, what, sizeof what))
        differs(c, "rank %d: %s", rank, what);
    matched.memory += (int64_t)orth_program_bytes(&e->compiled.program);
}

static inline orth_status rank_main(orth_ctx *ctx, orth_world *world, void *arg)
{
    layout_case *c = arg;
    int rank = orth_world_rank(world);
    orth_partition partition;
    orth_chunk chunks[64];
    orth_comm *comms[ORTH_NUM_GROUPS] = {0};
    ORTH_TRY(orth_partition_make(ctx, &partition, &c->layout, &c->model));
    engine e = {.model = c->model, .shape = layout_shape(c)};
    orth_partition_shape(&partition, rank, &e.shape, chunks);
    orth_status status = engine_open_rank(ctx, &e, world, &partition, comms);
    if (status == ORTH_OK)
        run_steps(ctx, c, &partition, &e.shape, &e, rank, &status);
    if (rank == orth_world_size(world) - 1 && comms[ORTH_GROUP_CP])
        c->over_cp = orth_comm_counted(comms[ORTH_GROUP_CP]);
    if (rank == 0 && comms[ORTH_GROUP_DP])
        c->over_dp = orth_comm_counted(comms[ORTH_GROUP_DP]);
    if (rank == 0 && comms[ORTH_GROUP_KV])
        c->over_kv = orth_comm_counted(comms[ORTH_GROUP_KV]);
    if (status == ORTH_OK)
        check_plan(ctx, c, &e, comms, rank);
    if (e.ex)
        engine_close(ctx, &e);
    orth_partition_release(ctx, &partition);
    return status;
}

static inline void run_alone(orth_ctx *ctx, layout_case *c)
{
    engine e = {.model = c->model};
    orth_status status = ORTH_OK;
    const orth_model_shape same = layout_shape(c);
    e.shape = (orth_model_shape){.mode = ORTH_MODE_TRAIN, .seq_len = (int32_t)c->layout.seq_len, .num_seqs = 1,
                                 .num_micro_batches = (int32_t)c->layout.global_batch, .parts = (int32_t)c->layout.parts,
                                 .compute = c->compute, .products = c->products, .delayed = same.delayed, .types = c->types, .doc_mask = c->doc_mask,
                                 .optimizer = ORTH_OP_adamw,
                                 .lr_factors = same.lr_factors, .decay_factors = same.decay_factors, .freeze = same.freeze};
    CHECK_OK(ctx, orth_compiled_build(ctx, &c->model, &e.shape, &e.compiled));
    CHECK_OK(ctx, orth_executor_create(ctx, &e.ex, &e.compiled.program, orth_kernels_cpu(), NULL, false));
    run_steps(ctx, c, NULL, &e.shape, &e, 0, &status);
    CHECK_OK(ctx, status);
    engine_close(ctx, &e);
}

/* Room for what one rank computes, to compare with; computes it. */
static inline void case_prepare(orth_ctx *ctx, layout_case *c, bool computes)
{
    prctl(PR_SET_THP_DISABLE, 1, 0, 0, 0); /* for pages_differ */
    c->loss = calloc((size_t)c->steps, 8);
    c->norm = calloc((size_t)c->steps, 8);
    c->params = calloc((size_t)max_elems, 4);
    if (computes)
        run_alone(ctx, c);
    c->compare = true;
}

static inline void case_release(layout_case *c)
{
    free(c->loss);
    free(c->norm);
    free(c->params);
}

static inline orth_ctx *case_ctx(const layout_case *c, int threads)
{
    static const orth_space_setup guarded = {.guards_device = true, .file_dir = "/tmp"}, plain = {.file_dir = "/tmp"};
    orth_ctx *ctx = test_ctx(threads);
    ctx->spaces = c->guards_device ? &guarded : &plain;
    if (c->bf16x6)
        ctx->isa = ORTH_ISA_AMX_BF16X6;
    return ctx;
}

static inline void run_layout(layout_case *c, int threads)
{
    char what[512];
    layout_describe(c, what, sizeof what);
    orth_ctx *ctx = case_ctx(c, 1);
    memset(c->hash, 0, sizeof c->hash);
    const orth_world_options options = {.threads_per_rank = threads, .timeout_s = 60, .startup_s = 60,
                                        .order = c->layout.reproducible ? ORTH_ORDER_CANONICAL : ORTH_ORDER_FREE};
    orth_status s = orth_run_ranks(ctx, (int)orth_layout_ranks(&c->layout), rank_main, c, &options);
    if (s != ORTH_OK || c->difference[0])
        fail_msg("%s: %s", what, s != ORTH_OK ? ctx->error.message : c->difference);
    test_ctx_free(ctx);
}

static inline void check_layout(layout_case *c)
{
    orth_ctx *ctx = case_ctx(c, 1);
    case_prepare(ctx, c, true);
    run_layout(c, c->threads);
    case_release(c);
    test_ctx_free(ctx);
}

/* Also the same bits in a second run, with other threads. */
static inline void check_layout_twice(layout_case *c)
{
    uint64_t hash[TEST_MAX_RANKS];
    orth_ctx *ctx = case_ctx(c, 1);
    case_prepare(ctx, c, true);
    run_layout(c, c->threads);
    memcpy(hash, c->hash, sizeof hash);
    run_layout(c, c->threads % 3 + 1);
    assert_memory_equal(hash, c->hash, sizeof hash);
    case_release(c);
    test_ctx_free(ctx);
}

#endif
