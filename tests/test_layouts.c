/* test_layouts.c -- random layouts: any mesh computes what one rank computes, bit for bit. */
#include <math.h>

#include "engine.h"

#include <unistd.h>

#include "comm/comm.h"
#include "layouts.h"
#include "plan/traffic.h"

static const int64_t max_elems = 1 << 20;

/* Of all layouts together: what was planned and counted alike. */
static struct {
    _Atomic int64_t traffic, memory; /* bytes */
    _Atomic int64_t calls;           /* collectives and messages */
} matched;

static int64_t param_offset(orth_ctx *ctx, const orth_model_config *c, int64_t index)
{
    int64_t at = 0;
    for (int64_t i = 0; i < index; i++) {
        orth_param p;
        CHECK_OK(ctx, orth_model_param(ctx, c, i, &p));
        at += orth_param_elems(&p);
    }
    return at;
}

/* Global element (of the whole parameter, row-major) that this rank's element `e` is. */
static int64_t global_elem(const orth_param_desc *d, int64_t e)
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

static float initial(const layout_case *c, int64_t index, int64_t elem)
{
    orth_param p;
    orth_ctx ctx = {.rank = 0};
    orth_model_param(&ctx, &c->model, index, &p);
    float r = test_rand(c->seed * 131 + (uint64_t)index, (uint64_t)elem);
    return p.init == ORTH_INIT_ONE ? 1 + 0.2f * r : (c->odd_losses ? 3 : 0.2f) * r;
}

static void fill_step(const layout_case *c, const orth_spread *s, const orth_model_shape *shape, engine *e, int rank,
                      int step)
{
    const int64_t T = c->layout.seq_len;
    int64_t n = (int64_t)shape->num_micro_batches * shape->num_seqs;
    int32_t *tokens = calloc((size_t)(n * T), 4), *targets = calloc((size_t)(n * T), 4), *doc = calloc((size_t)(n * T), 4);
    float *weights = calloc((size_t)(n * T), 4);
    const int64_t document = T > 64 ? 41 : 5;
    for (int64_t i = 0; i < n; i++) {
        int64_t q = s ? orth_spread_sequence(s, rank, step * c->layout.global_batch, i)
                      : step * c->layout.global_batch + i;
        for (int64_t t = 0; t < T; t++) {
            uint64_t id = (uint64_t)(q * T + t);
            tokens[i * T + t] = (int32_t)test_rand_int(c->seed + 1, id, 0, c->model.vocab - 1);
            targets[i * T + t] = (int32_t)test_rand_int(c->seed + 2, id, 0, c->model.vocab - 1);
            weights[i * T + t] = c->odd_losses ? 0.1f * test_rand(c->seed + 3, id) : test_rand_int(c->seed + 3, id, 0, 5) > 0;
            doc[i * T + t] = (int32_t)(t / document * document);
        }
    }
    engine_fill(e, n, tokens, targets, weights, c->doc_mask ? doc : NULL);
    int32_t *seq = orth_executor_find(e->ex, ORTH_BIND_DATA, ORTH_DATA_SEQ);
    for (int64_t i = 0; seq && i < n; i++)
        seq[i] = (int32_t)(s ? orth_spread_sequence(s, rank, step * c->layout.global_batch, i)
                             : step * c->layout.global_batch + i);
    free(tokens);
    free(targets);
    free(doc);
    free(weights);
    *engine_step_values(e) = (orth_step_values){
        .seed = c->seed, .step = (uint64_t)step + 1, .lr = 0.01f, .weight_decay = 0.1f, .beta1 = 0.9f, .beta2 = 0.95f,
        .eps = 1e-8f, .clip_norm = 0.05f, .loss_scale = 1.0f / (float)(c->layout.global_batch * T)};
}

static void set_weights(const layout_case *c, engine *e)
{
    for (int64_t i = 0; i < e->unit.blocks.spec.num_params; i++) {
        const orth_param_desc *d = &e->unit.blocks.spec.params[i];
        orth_bind binds[] = {ORTH_BIND_MASTER, ORTH_BIND_COPY};
        for (int k = 0; k < 2; k++) {
            int32_t b = orth_program_find(&e->unit.program, binds[k], i);
            if (b < 0)
                continue;
            const orth_buffer *buf = &e->unit.program.buffers[b];
            void *data = orth_executor_find(e->ex, binds[k], i);
            orth_dtype t = k == 0 ? ORTH_F32 : ORTH_BF16;
            for (int64_t j = 0; j < (int64_t)(buf->bytes / orth_dtype_bytes(t)); j++)
                orth_store_f32(data, t, j, initial(c, i, global_elem(d, buf->first_elem + j)));
        }
    }
}

static void check_result(orth_ctx *ctx, layout_case *c, engine *e, int rank, int step, double loss, double norm)
{
    if (!c->compare) {
        c->loss[step] = loss;
        c->norm[step] = norm;
    } else if (c->tolerance > 0) {
        if (!(fabs(loss - c->loss[step]) <= c->tolerance * c->loss[step]) ||
            !(fabs(norm - c->norm[step]) <= 100 * c->tolerance * c->norm[step]))
            snprintf(c->difference, sizeof c->difference, "rank %d, step %d: loss %g, wanted %g; norm %g, wanted %g",
                     rank, step + 1, loss, c->loss[step], norm, c->norm[step]);
        return;
    } else if (memcmp(&loss, &c->loss[step], 8) != 0 || memcmp(&norm, &c->norm[step], 8) != 0) {
        if (!c->difference[0])
            snprintf(c->difference, sizeof c->difference, "rank %d, step %d: loss %a, wanted %a; norm %a, wanted %a",
                     rank, step + 1, loss, c->loss[step], norm, c->norm[step]);
    }
    if (step + 1 < c->steps)
        return;
    for (int64_t i = 0; i < e->unit.blocks.spec.num_params; i++) {
        const orth_param_desc *d = &e->unit.blocks.spec.params[i];
        int32_t b = orth_program_find(&e->unit.program, ORTH_BIND_MASTER, i);
        if (b < 0)
            continue;
        const orth_buffer *buf = &e->unit.program.buffers[b];
        const float *data = orth_executor_find(e->ex, ORTH_BIND_MASTER, i);
        float *want = c->params + param_offset(ctx, &c->model, i);
        for (int64_t j = 0; j < (int64_t)(buf->bytes / 4); j++) {
            int64_t at = global_elem(d, buf->first_elem + j);
            if (!c->compare)
                want[at] = data[j];
            else if (memcmp(&want[at], &data[j], 4) != 0 && !c->difference[0])
                snprintf(c->difference, sizeof c->difference, "rank %d: %s[%lld] is %a, wanted %a", rank, d->name,
                         (long long)at, (double)data[j], (double)want[at]);
        }
    }
}

static void run_steps(orth_ctx *ctx, layout_case *c, const orth_spread *s, const orth_model_shape *shape, engine *e,
                      int rank, orth_status *status)
{
    set_weights(c, e);
    float *table = orth_executor_find(e->ex, ORTH_BIND_DATA, ORTH_DATA_ROPE_TABLE);
    if (table)
        orth_model_rope_table(&c->model, table, c->layout.seq_len);
    for (int step = 0; step < c->steps && *status == ORTH_OK; step++) {
        fill_step(c, s, shape, e, rank, step);
        *status = orth_executor_run(ctx, e->ex);
        if (*status == ORTH_OK)
            check_result(ctx, c, e, rank, step, *(double *)orth_executor_find(e->ex, ORTH_BIND_LOSS, 0),
                         engine_step_values(e)->grad_norm);
    }
}

/* What was planned of memory and traffic is what was counted, to the byte. */
static void check_plan(layout_case *c, const engine *e, orth_comm *const comms[ORTH_NUM_GROUPS], int rank)
{
    orth_rank_groups groups = {{0}};
    for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
        groups.size[g] = comms[g] ? orth_comm_size(comms[g]) : 1;
        groups.pos[g] = comms[g] ? orth_comm_pos(comms[g]) : 0;
    }
    orth_traffic planned = orth_traffic_planned(&e->unit.program, &groups), counted = orth_traffic_counted(comms);
    for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
        for (int k = 0; k < ORTH_NUM_COMM_KINDS; k++) {
            planned.calls[g][k] *= c->steps;
            planned.bytes[g][k] *= c->steps;
        }
    }
    for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
        for (int k = 0; k < ORTH_NUM_COMM_KINDS; k++) {
            matched.traffic += (int64_t)counted.bytes[g][k];
            matched.calls += (int64_t)counted.calls[g][k];
        }
    }
    char what[192];
    if (orth_traffic_differs(&planned, &counted, what, sizeof what) && !c->difference[0])
        snprintf(c->difference, sizeof c->difference, "rank %d: %s", rank, what);
    size_t used[ORTH_NUM_CLASSES];
    orth_executor_counted(e->ex, used);
    for (int k = 0; k < ORTH_NUM_CLASSES; k++) {
        matched.memory += (int64_t)used[k];
        if (used[k] != e->unit.program.class_bytes[k] && !c->difference[0])
            snprintf(c->difference, sizeof c->difference, "rank %d: %s: planned %zu bytes, counted %zu", rank,
                     orth_class_name((orth_class)k), e->unit.program.class_bytes[k], used[k]);
    }
}

static orth_status rank_main(orth_ctx *ctx, orth_world *world, void *arg)
{
    layout_case *c = arg;
    int rank = orth_world_rank(world);
    orth_spread spread;
    orth_chunk chunks[64];
    orth_comm *comms[ORTH_NUM_GROUPS] = {0};
    int ranks[64];
    ORTH_TRY(orth_spread_make(ctx, &spread, &c->layout, &c->model));
    engine e = {.model = c->model};
    e.shape = (orth_model_shape){.mode = ORTH_MODE_TRAIN, .seq_len = (int32_t)c->layout.seq_len,
                                 .parts = (int32_t)c->layout.parts, .compute = c->compute, .doc_mask = c->doc_mask,
                                 .optimizer = ORTH_OP_adamw, .comm = c->comm};
    orth_spread_shape(&spread, rank, &e.shape, chunks);
    orth_status status = orth_unit_build(ctx, &c->model, &e.shape, &e.unit);
    if (status == ORTH_OK)
        status = orth_executor_create(ctx, &e.ex, &e.unit.program, orth_kernels_cpu(), NULL, false);
    for (int g = 0; g < ORTH_NUM_GROUPS && status == ORTH_OK; g++) {
        int n = orth_spread_group(&spread, rank, (orth_group)g, ranks);
        if (n > 1)
            status = orth_comm_create(ctx, world, &comms[g], orth_group_name((orth_group)g), n, ranks);
    }
    if (status == ORTH_OK) {
        orth_executor_set_comms(e.ex, comms);
        run_steps(ctx, c, &spread, &e.shape, &e, rank, &status);
        if (rank == orth_world_size(world) - 1 && comms[ORTH_GROUP_CP])
            c->over_cp = *orth_comm_counted(comms[ORTH_GROUP_CP]);
        if (rank == 0 && comms[ORTH_GROUP_KV])
            c->over_kv = *orth_comm_counted(comms[ORTH_GROUP_KV]);
        if (status == ORTH_OK)
            check_plan(c, &e, comms, rank);
    }
    if (e.ex)
        engine_close(ctx, &e);
    orth_spread_release(ctx, &spread);
    return status;
}

static void run_alone(orth_ctx *ctx, layout_case *c)
{
    engine e = {.model = c->model};
    orth_status status = ORTH_OK;
    e.shape = (orth_model_shape){.mode = ORTH_MODE_TRAIN, .seq_len = (int32_t)c->layout.seq_len, .num_seqs = 1,
                                 .num_micro_batches = (int32_t)c->layout.global_batch, .parts = (int32_t)c->layout.parts,
                                 .compute = c->compute, .doc_mask = c->doc_mask, .optimizer = ORTH_OP_adamw};
    CHECK_OK(ctx, orth_unit_build(ctx, &c->model, &e.shape, &e.unit));
    CHECK_OK(ctx, orth_executor_create(ctx, &e.ex, &e.unit.program, orth_kernels_cpu(), NULL, false));
    run_steps(ctx, c, NULL, &e.shape, &e, 0, &status);
    CHECK_OK(ctx, status);
    engine_close(ctx, &e);
}

/* Room for what one rank computes, to compare with; computes it. */
static void case_prepare(orth_ctx *ctx, layout_case *c, bool computes)
{
    c->loss = calloc((size_t)c->steps, 8);
    c->norm = calloc((size_t)c->steps, 8);
    c->params = calloc((size_t)max_elems, 4);
    if (computes)
        run_alone(ctx, c);
    c->compare = true;
}

static void case_release(layout_case *c)
{
    free(c->loss);
    free(c->norm);
    free(c->params);
}

static void check_layout(layout_case *c)
{
    char what[256];
    layout_describe(c, what, sizeof what);
    orth_ctx *ctx = test_ctx(1);
    case_prepare(ctx, c, true);
    int ranks = (int)orth_layout_ranks(&c->layout);
    orth_world_options options = {.threads_per_rank = c->threads, .timeout_s = 8, .startup_s = 8};
    orth_status s = orth_run_ranks(ctx, ranks, rank_main, c, &options);
    if (s != ORTH_OK || c->difference[0])
        fail_msg("%s: %s", what, s != ORTH_OK ? ctx->error.message : c->difference);
    case_release(c);
    test_ctx_free(ctx);
}

TEST(data_parallel)
{
    for (int zero = 0; zero <= 3; zero++) {
        for (int k = 0; k < 2; k++) {
            layout_case c = layout_base_case(7, k);
            c.layout.dp = 2 + 2 * k;
            c.layout.zero = zero;
            c.compute = k ? ORTH_BF16 : ORTH_F32;
            check_layout(&c);
        }
    }
}

TEST(names_of_fsdp_stand_for_stages)
{
    static const struct {
        const char *name;
        int stage;
    } names[] = {{"0", 0}, {"1", 1}, {"2", 2}, {"3", 3}, {"NO_SHARD", 0}, {"SHARD_GRAD_OP", 2}, {"FULL_SHARD", 3},
                 {"HYBRID_SHARD", 3}, {"_HYBRID_SHARD_ZERO2", 2}};
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(names); i++) {
        orth_config c;
        CHECK_OK(ctx, orth_config_init(ctx, &c));
        CHECK_OK(ctx, orth_config_set(ctx, &c, "test", "parallel.zero", names[i].name));
        assert_int_equal(orth_setup_layout(&c).zero, names[i].stage);
        orth_config_release(ctx, &c);
    }
    test_ctx_free(ctx);
}

/* Two to four replicas of two or four shards; three, of which the tree has an odd branch; no shards at all. */
TEST(hybrid_sharding)
{
    static const int dp[] = {4, 8, 8, 6, 4}, group[] = {2, 2, 4, 2, 1};
    for (int k = 0; k < 30; k++) {
        layout_case c = layout_base_case(17, k);
        int m = k / 3 % 5;
        c.layout.dp = dp[m];
        c.layout.shard_group = group[m];
        c.layout.zero = 1 + k % 3;
        c.layout.global_batch = 2 * dp[m];
        c.layout.pp = k % 4 == 3 && dp[m] < 8 ? 2 : 1;
        c.layout.tp = k % 4 == 2 ? 2 : 1;
        c.layout.cp = k % 4 == 1 ? 2 : 1;
        c.layout.keep_whole = c.layout.zero == 3 && k > 15 ? 40 : 0;
        c.compute = k / 2 % 2 ? ORTH_BF16 : ORTH_F32;
        c.model.tied = k % 5 == 0;
        c.model.dropout = k % 7 == 0 ? 0.1 : 0;
        check_layout(&c);
    }
}

/* Losses whose sum, in fp64, depends on the order: the sequences of a rank are not neighbours under ZeRO 2 and 3. */
TEST(losses_are_summed_in_one_order)
{
    for (int k = 0; k < 12; k++) {
        layout_case c = layout_base_case(18 + (uint64_t)k / 6, k);
        c.layout.dp = k < 6 ? 2 : 4;
        c.layout.shard_group = k < 6 ? 0 : 2;
        c.layout.zero = 1 + k % 3;
        c.layout.global_batch = 16;
        c.model.vocab = 5; /* now and then the target is the likeliest by far */
        c.odd_losses = true;
        check_layout(&c);
    }
}

TEST(pipeline_parallel)
{
    static const char *const schedules[] = {"gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
    for (int k = 0; k < 10; k++) {
        layout_case c = layout_base_case(8, k);
        c.layout.pp = 2;
        c.layout.pipeline = schedules[k / 2];
        c.layout.virtual_stages = k / 2 == 2 || k / 2 == 4 ? 2 : 1;
        check_layout(&c);
    }
}

TEST(zero_bubble_over_four_stages)
{
    for (int k = 0; k < 8; k++) {
        layout_case c = layout_base_case(11, k);
        c.model.layers = 8;
        c.model.tied = k % 2;
        c.layout.pp = 4;
        c.layout.pipeline = k < 4 ? "zb-h1" : "zb-v";
        c.layout.virtual_stages = k < 4 ? 1 : 2;
        c.layout.dp = 1 + k / 2 % 2;
        c.layout.zero = k / 2 % 2 * 3;
        c.layout.global_batch = 16;
        check_layout(&c);
    }
}

/* Bytes of transient buffers that a rank plans. */
static size_t planned_bytes(orth_ctx *ctx, const layout_case *c, const char *pipeline, int rank)
{
    orth_layout layout = c->layout;
    layout.pipeline = pipeline;
    orth_spread spread;
    orth_chunk chunks[64];
    orth_unit unit;
    orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .seq_len = (int32_t)layout.seq_len, .parts = (int32_t)layout.parts,
                              .compute = c->compute, .optimizer = ORTH_OP_adamw};
    CHECK_OK(ctx, orth_spread_make(ctx, &spread, &layout, &c->model));
    orth_spread_shape(&spread, rank, &shape, chunks);
    CHECK_OK(ctx, orth_unit_build(ctx, &c->model, &shape, &unit));
    size_t bytes = unit.program.transient_bytes;
    orth_unit_release(&unit);
    orth_spread_release(ctx, &spread);
    return bytes;
}

/* Later stages put weight gradients off, and keep what they need. */
TEST(zb_h1_needs_no_more_than_1f1b_on_the_first_stage)
{
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < 2; k++) {
        layout_case c = layout_base_case(10, k);
        c.layout.pp = 4;
        for (int r = 0; r < 4; r++)
            print_message("%s, stage %d: 1f1b %zu bytes, zb-h1 %zu\n", k ? "llama" : "gpt2", r,
                          planned_bytes(ctx, &c, "1f1b", r), planned_bytes(ctx, &c, "zb-h1", r));
        assert_true(planned_bytes(ctx, &c, "zb-h1", 0) <= planned_bytes(ctx, &c, "1f1b", 0));
    }
    test_ctx_free(ctx);
}

TEST(tensor_parallel)
{
    for (int k = 0; k < 8; k++) {
        layout_case c = layout_base_case(9, k);
        c.layout.tp = 2;
        c.layout.sequence_parallel = k / 2 % 2;
        c.layout.micro_batch = k < 4 ? 1 : 2;
        c.compute = k % 4 == 3 ? ORTH_BF16 : ORTH_F32;
        c.model.dropout = k > 5 ? 0.1 : 0;
        c.model.qk_norm = k % 2 && k < 6;
        check_layout(&c);
    }
}

/* More tensor-parallel ranks than kv heads: each of these lies on several ranks, with some of its query heads. */
static layout_case shared_kv_case(int k)
{
    layout_case c = layout_base_case(17, 1);
    c.model.heads = 8;
    c.model.head_dim = 4;
    c.model.kv_heads = k % 3 ? 1 : 2;
    c.layout.tp = 4;
    c.layout.micro_batch = 2;
    c.compute = k % 4 == 3 ? ORTH_BF16 : ORTH_F32;
    c.doc_mask = k % 3 == 2;
    c.model.dropout = k % 5 == 2 ? 0.1 : 0;
    c.model.qk_norm = k % 2;
    c.model.qkv_bias = k % 3 > 0;
    return c;
}

TEST(tensor_parallel_with_shared_kv_heads)
{
    for (int k = 0; k < 12; k++) {
        layout_case c = shared_kv_case(k);
        c.layout.sequence_parallel = k / 2 % 2;
        check_layout(&c);
    }
    for (int k = 0; k < 6; k++) { /* with every other axis */
        layout_case c = shared_kv_case(k);
        c.layout.cp = k % 2 + 1;
        c.layout.dp = c.layout.pp = 2;
        c.layout.zero = k % 4;
        c.layout.micro_batch = 1;
        check_layout(&c);
    }
}

/* The formula of docs/parallel.md. */
TEST(shared_kv_heads_send_what_the_formula_says)
{
    for (int k = 0; k < 4; k++) {
        layout_case c = shared_kv_case(k);
        c.layout.cp = k / 2 + 1;
        c.layout.micro_batch = 1;
        check_layout(&c);
        int64_t r = c.layout.tp / c.model.kv_heads, S = c.layout.global_batch * c.steps, P = c.layout.parts;
        int64_t kv = S * c.model.layers * c.layout.seq_len * 2 * c.model.head_dim;
        assert_int_equal(c.over_kv.bytes[ORTH_COMM_ALL_REDUCE], 2 * (r - 1) * (P / c.layout.cp) * 4 * kv / r);
    }
}

/* Both stages that hold a tied embedding cut it alike (found as random layout 1058). */
TEST(tied_embeddings_sharded_on_two_stages)
{
    for (int k = 0; k < 4; k++) {
        layout_case c = layout_base_case(14, k);
        c.layout.dp = c.layout.pp = 4;
        c.layout.tp = 2;
        c.layout.zero = 1 + k % 3;
        c.model.vocab = k / 2 ? 67 : 131;
        c.model.tied = true;
        check_layout(&c);
    }
}

/* Keys and values gathered; each rank has some token slots of every sequence. */
TEST(context_parallel)
{
    for (int k = 0; k < 16; k++) {
        layout_case c = layout_base_case(10, k);
        c.layout.cp = k / 2 % 2 ? 4 : 2;
        c.layout.micro_batch = k % 3 ? 1 : 2;
        c.layout.seq_len = k % 5 ? 16 : 40;
        c.compute = k % 4 == 3 ? ORTH_BF16 : ORTH_F32;
        c.doc_mask = k % 3 == 1;
        c.model.tied = k % 3 == 2;
        c.model.qk_norm = k % 2 && k > 4;
        c.model.dropout = k >= 6 ? 0.1 : 0;
        c.layout.dp = k >= 8 ? 2 : 1;
        c.layout.zero = k >= 8 ? k % 4 : 0;
        check_layout(&c);
    }
    for (int k = 0; k < 2; k++) { /* long enough for several chunks of the head */
        layout_case c = layout_base_case(16, k);
        c.model.layers = 1;
        c.model.max_seq = c.layout.seq_len = 2048;
        c.layout.global_batch = c.layout.cp = 2;
        c.steps = 1;
        check_layout(&c);
    }
    for (int k = 0; k < 4; k++) { /* with every other axis */
        layout_case c = layout_base_case(11, k);
        c.layout.cp = c.layout.dp = c.layout.tp = c.layout.pp = 2;
        c.layout.sequence_parallel = k / 2;
        c.layout.zero = 2 * (k % 2) + 1;
        c.model.dropout = 0.1;
        c.model.tied = k % 2;
        check_layout(&c);
    }
}

/* Heads against tokens: with as many kv heads as ranks or more, and with fewer, where keys are gathered, too. */
TEST(context_parallel_by_all_to_all)
{
    for (int k = 0; k < 20; k++) {
        layout_case c = layout_base_case(17, k);
        c.layout.cp = k / 2 % 2 ? 4 : 2;
        c.layout.cp_kind = ORTH_CP_ALL_TO_ALL;
        c.layout.micro_batch = k % 3 ? 1 : 2;
        c.layout.seq_len = k % 5 ? 16 : 40;
        c.compute = k % 4 == 3 ? ORTH_BF16 : ORTH_F32;
        c.doc_mask = k % 3 == 1;
        c.model.qk_norm = k % 2 && k > 4;
        c.model.dropout = k >= 6 ? 0.1 : 0;
        c.layout.tp = k >= 12 ? 2 : 1;
        c.layout.sequence_parallel = k >= 16;
        c.layout.zero = k >= 8 ? k % 4 : 0;
        c.layout.dp = k >= 8 && c.layout.tp == 1 ? 2 : 1;
        c.layout.pp = k % 5 == 1 ? 2 : 1;
        if (c.layout.tp * c.layout.cp > 4) { /* fewer heads than that */
            c.model.heads = 8;
            c.model.kv_heads = k % 2 ? 4 : 8;
            c.model.head_dim = 4;
        }
        check_layout(&c);
    }
}

TEST(context_parallel_by_ring)
{
    for (int k = 0; k < 16; k++) {
        layout_case c = layout_base_case(18, k);
        c.layout.cp = k / 2 % 2 ? 4 : 2;
        c.layout.cp_kind = ORTH_CP_RING;
        c.layout.micro_batch = k % 3 ? 1 : 2;
        c.layout.global_batch = 4;
        c.layout.seq_len = c.model.max_seq = 128 * c.layout.cp * (k % 5 ? 1 : 2);
        c.compute = k % 4 == 3 ? ORTH_BF16 : ORTH_F32;
        c.doc_mask = k % 3 == 1;
        c.model.layers = 2;
        c.model.qk_norm = k % 2 && k > 4;
        c.model.dropout = k >= 6 ? 0.1 : 0;
        c.layout.tp = k % 8 == 5 ? 2 : 1;
        c.layout.sequence_parallel = k % 8 == 5;
        c.layout.zero = k >= 8 ? k % 4 : 0;
        c.layout.dp = k >= 8 && c.layout.tp == 1 ? 2 : 1;
        c.layout.pp = k % 5 == 1 ? 2 : 1;
        c.steps = 2;
        check_layout(&c);
    }
}

/* Elements of all gradients of a rank, a tied embedding counted twice. */
static int64_t gradient_elems(const orth_model_config *m)
{
    int64_t elems = m->tied ? m->vocab * m->hidden : 0;
    for (int64_t i = 0; i < orth_model_num_params(m); i++) {
        orth_param p;
        orth_ctx ctx = {.rank = 0};
        orth_model_param(&ctx, m, i, &p);
        elems += orth_param_elems(&p);
    }
    return elems;
}

/* The formulas of docs/context.md, for the last rank of a cp group. */
TEST(context_parallel_sends_what_its_formulas_say)
{
    for (int k = 0; k < 12; k++) {
        layout_case c = layout_base_case(12, k);
        const orth_model_config *m = &c.model;
        c.layout.cp = 2;
        c.layout.cp_kind = (orth_cp_kind)(k / 4);
        c.layout.global_batch = 4;
        c.layout.seq_len = c.model.max_seq = 256;
        c.compute = k / 2 % 2 ? ORTH_BF16 : ORTH_F32;
        c.model.tied = k % 2;
        c.steps = 2;
        check_layout(&c);
        const int64_t S = c.layout.global_batch * c.steps, N = S * m->layers * c.layout.seq_len, e = k / 2 % 2 ? 2 : 4;
        const int64_t cp = c.layout.cp, kv = N * 2 * m->kv_heads * m->head_dim, q = N * m->heads * m->head_dim;
        const int64_t *got = c.over_cp.bytes;
        const bool gathers = k / 4 == ORTH_CP_ALL_GATHER, trades = k / 4 == ORTH_CP_ALL_TO_ALL;
        assert_int_equal(got[ORTH_COMM_ALL_GATHER], gathers ? 2 * (cp - 1) * kv * e / cp : 0);
        assert_int_equal(got[ORTH_COMM_ALL_TO_ALL], trades ? 2 * (cp - 1) * (2 * q + kv) * e / cp / cp : 0);
        assert_int_equal(got[ORTH_COMM_SEND], gathers || trades ? 0 : 2 * (cp - 1 + (cp - 1)) * kv * e / (2 * cp));
        assert_int_equal(got[ORTH_COMM_REDUCE_SCATTER], trades ? 0 : (cp - 1) * kv * 4 / cp);
        assert_int_equal(got[ORTH_COMM_ALL_REDUCE], S * (4 * gradient_elems(m) + 8));
    }
}

/* Numbers are near those of one rank, whatever pieces a sequence is cut into. */
TEST(context_parallel_in_fast_mode)
{
    for (int k = 0; k < 12; k++) {
        layout_case c = layout_base_case(15, k);
        orth_layout *l = &c.layout;
        l->cp = k / 2 % 3 + 2;
        l->cp_kind = k < 6 ? ORTH_CP_ALL_GATHER : ORTH_CP_RING;
        l->tp = k % 4 == 3 ? 2 : 1;
        l->sequence_parallel = l->tp > 1;
        l->dp = k % 4 == 1 ? 2 : 1;
        l->zero = k % 4 == 1 ? 3 : 0;
        l->global_batch = 4;
        l->micro_batch = 1 + k % 2;
        l->seq_len = c.model.max_seq = k < 6 ? 24 * l->tp : 128 * l->cp;
        l->reproducible = false;
        l->parts = orth_layout_fast_parts(l);
        c.doc_mask = k % 3 == 1;
        c.steps = 2;
        c.tolerance = 1e-5;
        check_layout(&c);
    }
    for (int k = 0; k < 4; k++) { /* heads against tokens */
        layout_case c = layout_base_case(19, k);
        c.layout.cp = 2 + k / 2 * 2;
        c.layout.cp_kind = ORTH_CP_ALL_TO_ALL;
        c.layout.reproducible = false;
        c.layout.parts = orth_layout_fast_parts(&c.layout);
        c.layout.seq_len = 40;
        c.tolerance = 1e-5;
        check_layout(&c);
    }
}

static size_t activation_bytes(orth_ctx *ctx, const layout_case *c)
{
    orth_spread spread;
    orth_chunk chunks[8];
    orth_unit unit;
    orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .seq_len = (int32_t)c->layout.seq_len,
                              .parts = (int32_t)c->layout.parts, .compute = c->compute, .optimizer = ORTH_OP_adamw};
    CHECK_OK(ctx, orth_spread_make(ctx, &spread, &c->layout, &c->model));
    orth_spread_shape(&spread, 0, &shape, chunks);
    CHECK_OK(ctx, orth_unit_build(ctx, &c->model, &shape, &unit));
    size_t bytes = unit.program.class_bytes[ORTH_CLASS_ACTIVATIONS];
    orth_unit_release(&unit);
    orth_spread_release(ctx, &spread);
    return bytes;
}

/* What a rank needs beyond parameters, gradients and state, of what one rank needs. By all-gather, one layer's keys and
 * values of whole sequences remain. */
TEST(memory_of_a_rank_falls_with_cp)
{
    static const char *const kinds[] = {"all_gather", "ring", "all_to_all"};
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < 12; k++) {
        layout_case c = layout_base_case(13, k);
        c.compute = k / 2 % 2 ? ORTH_BF16 : ORTH_F32;
        c.layout.seq_len = c.model.max_seq = 2048;
        c.layout.cp_kind = (orth_cp_kind)(k / 4);
        size_t alone = activation_bytes(ctx, &c);
        for (c.layout.cp = 2; c.layout.cp <= 4; c.layout.cp *= 2) {
            size_t bytes = activation_bytes(ctx, &c);
            print_message("activations of a rank, %s, %s, %s, cp=%d: %zu of %zu bytes (%.2f)\n", k % 2 ? "llama" : "gpt2",
                          k / 2 % 2 ? "bf16" : "fp32", kinds[k / 4], (int)c.layout.cp, bytes, alone,
                          (double)bytes / (double)alone);
            assert_true((double)bytes < (c.layout.cp == 2 ? 0.7 : 0.45) * (double)alone);
        }
    }
    test_ctx_free(ctx);
}

TEST(random_layouts)
{
    const char *count = getenv("ORTH_LAYOUTS"), *first = getenv("ORTH_LAYOUT_SEED");
    int n = count ? atoi(count) : 200, hybrid = 0, whole = 0;
    uint64_t seed = first ? strtoull(first, NULL, 10) : 1;
    for (int i = 0; i < n; i++) {
        layout_case c = layout_random_case(seed + (uint64_t)i);
        const orth_layout *l = &c.layout;
        hybrid += l->shard_group > 1 && l->shard_group < l->dp;
        whole += l->keep_whole > 0;
        check_layout(&c);
    }
    printf("%d random layouts equal to one rank, bit for bit: %d with replicas of shards, %d with whole parameters under "
           "ZeRO 3\n", n, hybrid, whole);
    printf("%lld bytes in %lld calls and %lld bytes of memory planned and counted alike, over all layouts and ranks\n",
           (long long)matched.traffic, (long long)matched.calls, (long long)matched.memory);
}

/* ---- as one of several processes ---- */

/* Rank 0 knows what one rank computes and tells the others. A difference on any rank is an error, so that all
 * processes hear of it. */
static orth_status process_main(orth_ctx *ctx, orth_world *world, void *arg)
{
    layout_case *c = arg;
    orth_comm *all;
    int ranks[64];
    for (int i = 0; i < orth_world_size(world); i++)
        ranks[i] = i;
    ORTH_TRY(orth_comm_create(ctx, world, &all, "all", orth_world_size(world), ranks));
    ORTH_TRY(orth_broadcast(ctx, all, c->loss, c->steps, ORTH_F64, 0));
    ORTH_TRY(orth_broadcast(ctx, all, c->norm, c->steps, ORTH_F64, 0));
    ORTH_TRY(orth_broadcast(ctx, all, c->params, orth_model_num_elems(&c->model), ORTH_F32, 0));
    ORTH_TRY(rank_main(ctx, world, c));
    return c->difference[0] ? ORTH_FAIL(ctx, ORTH_ERR_NUMERIC, "%s", c->difference) : ORTH_OK;
}

/* One of the processes of mpirun (test_mpi.c): `count` layouts of n ranks, from this seed on. */
static int run_process(int rank, int n, uint64_t seed, int count)
{
    for (int done = 0; done < count; seed++) {
        layout_case c = layout_random_case(seed);
        char what[256];
        if (orth_layout_ranks(&c.layout) != n)
            continue;
        layout_describe(&c, what, sizeof what);
        orth_ctx *ctx = test_ctx(c.threads);
        case_prepare(ctx, &c, rank == 0);
        orth_world_options options = {.backend = ORTH_BACKEND_MPI, .timeout_s = 30};
        orth_status s = orth_run_ranks(ctx, n, process_main, &c, &options);
        if (s != ORTH_OK && !ctx->error.said_elsewhere)
            printf("%s: %s\n", what, ctx->error.message);
        else if (s == ORTH_OK && rank == 0)
            printf("equal: %s\n", what);
        fflush(stdout);
        if (s != ORTH_OK) {
            usleep(ctx->error.said_elsewhere ? 300000 : 0); /* until it has been said */
            return orth_status_exit_code(s);
        }
        case_release(&c);
        test_ctx_free(ctx);
        done++;
    }
    orth_comm_shutdown();
    return 0;
}

int main(int argc, char **argv)
{
    const char *rank = getenv("OMPI_COMM_WORLD_RANK");
    if (argc == 4 && rank)
        return run_process(atoi(rank), atoi(argv[1]), strtoull(argv[2], NULL, 10), atoi(argv[3]));
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(data_parallel),
        cmocka_unit_test(names_of_fsdp_stand_for_stages),
        cmocka_unit_test(hybrid_sharding),
        cmocka_unit_test(losses_are_summed_in_one_order),
        cmocka_unit_test(pipeline_parallel),
        cmocka_unit_test(zero_bubble_over_four_stages),
        cmocka_unit_test(zb_h1_needs_no_more_than_1f1b_on_the_first_stage),
        cmocka_unit_test(tensor_parallel),
        cmocka_unit_test(tensor_parallel_with_shared_kv_heads),
        cmocka_unit_test(shared_kv_heads_send_what_the_formula_says),
        cmocka_unit_test(tied_embeddings_sharded_on_two_stages),
        cmocka_unit_test(context_parallel),
        cmocka_unit_test(context_parallel_by_all_to_all),
        cmocka_unit_test(context_parallel_by_ring),
        cmocka_unit_test(context_parallel_sends_what_its_formulas_say),
        cmocka_unit_test(context_parallel_in_fast_mode),
        cmocka_unit_test(memory_of_a_rank_falls_with_cp),
        cmocka_unit_test(random_layouts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
