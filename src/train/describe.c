/* describe.c -- see describe.h. */
#include "train/describe.h"

#include <inttypes.h>

#include "base/machine.h"
#include "base/pool.h"
#include "data/corpus.h"
#include "data/tokenizer.h"
#include "parallel/classes.h"
#include "plan/probe.h"
#include "program/passes/place.h"
#include "train/eval.h"
#include "train/groups.h"
#include "train/saver.h"

static orth_status data_vocab(orth_ctx *ctx, const orth_config *cfg, int64_t *out)
{
    *out = ORTH_AUTO_VOCAB;
    if (strcmp(cfg->data_tokenizer, "auto") != 0 && cfg->data_tokenizer[0]) {
        orth_tokenizer *t;
        ORTH_TRY(orth_tokenizer_load(ctx, &t, cfg->data_tokenizer));
        *out = orth_tokenizer_vocab_size(t);
        orth_tokenizer_free(ctx, t);
    } else if (cfg->data_path.n > 0 && orth_dataset_exists(ctx, cfg->data_path.v[0])) {
        orth_dataset *d;
        ORTH_TRY(orth_dataset_open(ctx, &d, cfg->data_path.v[0]));
        *out = d->vocab_size;
        orth_dataset_close(ctx, d);
    }
    return ORTH_OK;
}

orth_status orth_describe_model(orth_ctx *ctx, const orth_config *cfg, orth_model_config *out)
{
    int64_t vocab = 0;
    if (!ORTH_CONFIG_IS_SET(cfg, model, vocab) && !cfg->model_preset[0])
        ORTH_TRY(data_vocab(ctx, cfg, &vocab));
    return orth_setup_model(ctx, cfg, vocab, out);
}

orth_status orth_describe_evaluates(orth_ctx *ctx, const orth_config *cfg, bool *out)
{
    bool any = false;
    for (int i = 0; i < cfg->data_path.n; i++) {
        orth_dataset *d;
        if (!orth_dataset_exists(ctx, cfg->data_path.v[i])) {
            any = any || cfg->data_valid_fraction > 0;
            continue;
        }
        ORTH_TRY(orth_dataset_open(ctx, &d, cfg->data_path.v[i]));
        any = any || d->valid.num_tokens > 1;
        orth_dataset_close(ctx, d);
    }
    *out = any;
    return ORTH_OK;
}

/* Training tokens and sequences of all paths; *known: all are prepared. */
static orth_status count_data(orth_ctx *ctx, const orth_config *cfg, int64_t *tokens, int64_t *sequences, bool *known)
{
    *tokens = *sequences = 0;
    *known = cfg->data_path.n > 0;
    for (int i = 0; i < cfg->data_path.n && *known; i++) {
        orth_dataset *d;
        *known = orth_dataset_exists(ctx, cfg->data_path.v[i]);
        if (!*known)
            break;
        ORTH_TRY(orth_dataset_open(ctx, &d, cfg->data_path.v[i]));
        *tokens += d->train.num_tokens;
        *sequences += (d->train.num_tokens - 1) / cfg->data_seq_len;
        orth_dataset_close(ctx, d);
    }
    return ORTH_OK;
}

orth_status orth_describe_epochs(orth_ctx *ctx, const orth_config *cfg, char **out)
{
    int64_t tokens, sequences;
    bool known;
    *out = NULL;
    ORTH_TRY(count_data(ctx, cfg, &tokens, &sequences, &known));
    if (!known || sequences == 0)
        return ORTH_OK;
    const double epoch = (double)sequences / (double)cfg->train_global_batch;
    const bool by_epochs = cfg->train_epochs > 0;
    const int64_t steps = by_epochs ? orth_setup_epoch_steps(cfg, sequences) : cfg->train_steps;
    *out = orth_mem_printf(ctx, "data           %12" PRId64 " training tokens; an epoch is %.1f steps; %" PRId64
                           " steps are %.3g epochs\n", tokens, epoch, steps, (double)steps / epoch);
    return *out ? ORTH_OK : ORTH_ERR_NOMEM;
}

/* ---- programs ---- */

orth_status orth_rank_units_build(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model,
                                  const orth_spread *spread, int rank, bool evaluates, int num_threads,
                                  orth_place_memory *memory, orth_chunk *chunks, orth_rank_units *out)
{
    *out = (orth_rank_units){.shape = orth_setup_shape(cfg, ORTH_MODE_TRAIN), .evaluates = evaluates};
    orth_spread_shape(spread, rank, &out->shape, chunks);
    ORTH_TRY(orth_unit_build_for(ctx, model, &out->shape, num_threads, memory, &out->step));
    if (!evaluates)
        return ORTH_OK;
    orth_status s = orth_eval_unit_build(ctx, cfg, model, &out->shape, num_threads, memory, &out->eval);
    if (s == ORTH_OK)
        orth_place_reserve(&out->step.program, &out->eval.program);
    else
        orth_unit_release(&out->step);
    return s;
}

void orth_rank_units_release(orth_rank_units *u)
{
    orth_unit_release(&u->step);
    if (u->evaluates)
        orth_unit_release(&u->eval);
}

/* Thread ranks share those of ctx; a process has its own. */
static int threads_of_a_rank(const orth_ctx *ctx, const orth_config *cfg, int num_ranks)
{
    int threads = orth_pool_num_threads(ctx->pool);
    bool share = cfg->comm_backend == ORTH_comm_backend_thread;
    return share ? orth_groups_options(cfg, threads, num_ranks).threads_per_rank : threads;
}

static orth_status build_rank(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model,
                              const orth_spread *spread, int rank, bool evaluates, orth_place_memory *memory,
                              orth_chunk *chunks, orth_rank_units *units)
{
    return orth_rank_units_build(ctx, cfg, model, spread, rank, evaluates,
                                 threads_of_a_rank(ctx, cfg, spread->mesh.num_ranks), memory, chunks, units);
}

orth_status orth_describe_step(orth_ctx *ctx, const orth_config *cfg, int rank, orth_model_config *model,
                               orth_spread *spread, orth_unit *unit)
{
    orth_layout layout = orth_setup_layout(cfg);
    ORTH_TRY(orth_describe_model(ctx, cfg, model));
    ORTH_TRY(orth_spread_make(ctx, spread, &layout, model));
    orth_chunk *chunks = ORTH_ARENA_ARRAY(ctx, &spread->arena, orth_chunk, spread->schedule.num_chunks);
    orth_rank_units units;
    orth_status s = chunks ? ORTH_OK : ORTH_ERR_NOMEM;
    if (s == ORTH_OK && rank >= spread->mesh.num_ranks)
        s = ORTH_FAIL(ctx, ORTH_ERR_ARG, "rank %d is not one of the %d of this layout", rank, spread->mesh.num_ranks);
    if (s == ORTH_OK)
        s = build_rank(ctx, cfg, model, spread, rank, false, NULL, chunks, &units);
    if (s == ORTH_OK)
        *unit = units.step;
    else
        orth_spread_release(ctx, spread);
    return s;
}

static orth_traffic planned_traffic(const orth_config *cfg, const orth_spread *spread, const orth_program *p, int rank)
{
    const orth_rank_groups groups = orth_spread_groups(spread, rank);
    return orth_traffic_planned(p, &groups, orth_groups_method(cfg));
}

/* Plans of all ranks, from the programs of one of each class (parallel/classes.h), which exist one at a time. */
typedef struct {
    orth_run_plan *plan;
    const orth_config *cfg;
    const orth_model_config *model;
    bool evaluates;
    orth_classes classes;
    orth_chunk *chunks;      /* [num_chunks] */
    orth_place_memory places;
    bool *planned;           /* [num_ranks] classes, by their lowest rank */
    int rank;                /* whose the units are; -1: there are none */
    orth_rank_units units;
} planner;

static void describe_place(const orth_mesh *m, int rank, orth_plan *plan)
{
    snprintf(plan->coords, sizeof plan->coords, "\"dp\": %d, \"tp\": %d, \"pp\": %d, \"cp\": %d",
             orth_mesh_group_pos(m, rank, ORTH_AXES_DP), orth_mesh_coord(m, rank, ORTH_AXIS_TP),
             orth_mesh_coord(m, rank, ORTH_AXIS_PP), orth_mesh_coord(m, rank, ORTH_AXIS_CP));
}

/* Of all ranks that are like x->rank. Bytes that a rank sends depend on where it stands in its groups, too. */
static void plan_class(planner *x)
{
    orth_run_plan *p = x->plan;
    const orth_program *step = &x->units.step.program;
    const orth_plan plan = orth_plan_of(step, orth_model_num_elems(x->model), 0);
    for (int r = x->rank; r < p->num_ranks; r++) {
        if (orth_classes_of(&x->classes, r) != x->rank)
            continue;
        p->ranks[r] = plan;
        p->ranks[r].traffic = planned_traffic(x->cfg, &p->spread, step, r);
        describe_place(&p->spread.mesh, r, &p->ranks[r]);
    }
    x->planned[x->rank] = true;
}

static void forget(planner *x)
{
    if (x->rank >= 0)
        orth_rank_units_release(&x->units);
    x->rank = -1;
}

static orth_status program_of(orth_ctx *ctx, void *user, int rank, orth_rank_program *out)
{
    planner *x = user;
    rank = orth_classes_of(&x->classes, rank);
    if (x->rank != rank) {
        forget(x);
        ORTH_TRY(build_rank(ctx, x->cfg, x->model, &x->plan->spread, rank, x->evaluates, &x->places, x->chunks,
                            &x->units));
        x->rank = rank;
    }
    if (!x->planned[rank])
        plan_class(x);
    *out = (orth_rank_program){&x->units.step.program, x->units.step.blocks.spec.params, x->units.step.blocks.spec.num_params};
    return ORTH_OK;
}

static int same_as(void *user, int rank)
{
    return orth_classes_of(&((planner *)user)->classes, rank);
}

static int group_of(void *user, int rank, orth_group group, int *ranks)
{
    return orth_spread_group(&((planner *)user)->plan->spread, rank, group, ranks);
}

static orth_rank_groups groups_of(void *user, int rank)
{
    return orth_spread_groups(&((planner *)user)->plan->spread, rank);
}

/* Simulating asks for the program of each class, which is planned then. */
static orth_status plan_and_price(orth_ctx *ctx, planner *x, const orth_rates *rates)
{
    const orth_rank_source source = {.num_ranks = x->plan->num_ranks, .user = x, .same_as = same_as, .program = program_of,
                                     .group = group_of, .groups = groups_of};
    orth_rank_time *times = ORTH_NEW_ARRAY(ctx, orth_rank_time, x->plan->num_ranks);
    if (!times)
        return ORTH_ERR_NOMEM;
    const orth_status s = orth_simulate_step(ctx, &source, orth_seconds_by_rates, (void *)rates, times, NULL);
    for (int r = 0; s == ORTH_OK && r < x->plan->num_ranks; r++)
        x->plan->ranks[r].time = times[r];
    orth_mem_free(ctx, times);
    return s;
}

static orth_status plan_only(orth_ctx *ctx, planner *x)
{
    orth_rank_program program;
    for (int r = 0; r < x->plan->num_ranks; r++)
        if (orth_classes_of(&x->classes, r) == r)
            ORTH_TRY(program_of(ctx, x, r, &program));
    return ORTH_OK;
}

static orth_status plan_ranks(orth_ctx *ctx, orth_run_plan *p, const orth_config *cfg, const orth_model_config *model,
                              bool evaluates, const orth_rates *rates)
{
    const orth_model_shape shape = orth_setup_shape(cfg, ORTH_MODE_TRAIN);
    planner x = {.plan = p, .cfg = cfg, .model = model, .evaluates = evaluates, .rank = -1};
    x.chunks = ORTH_ARENA_ARRAY(ctx, &p->spread.arena, orth_chunk, p->spread.schedule.num_chunks);
    x.planned = ORTH_ARENA_ARRAY(ctx, &p->spread.arena, bool, p->num_ranks);
    if (!x.chunks || !x.planned)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(orth_classes_make(ctx, &x.classes, &p->spread, model, &shape));
    const orth_status s = rates ? plan_and_price(ctx, &x, rates) : plan_only(ctx, &x);
    forget(&x);
    orth_place_forget(ctx, &x.places);
    orth_classes_release(ctx, &x.classes);
    return s;
}

#define PROBE_SECONDS 0.05

orth_status orth_machine_rates(orth_ctx *ctx, const orth_config *cfg, int num_ranks, orth_rates *out)
{
    double peak_flops, bytes;
    const bool bf16 = cfg->precision_compute == ORTH_precision_compute_bf16;
    ORTH_TRY(orth_probe_matmul_peak(ctx, &peak_flops, bf16, PROBE_SECONDS));
    ORTH_TRY(orth_probe_measure(ctx, &bytes, ORTH_PROBE_COPY, orth_pool_num_threads(ctx->pool), PROBE_SECONDS));
    *out = (orth_rates){peak_flops / num_ranks, bytes / num_ranks};
    return ORTH_OK;
}

/* Ranks that are threads share one process, and what it may map. 0: not known. */
static size_t memory_limit(const orth_config *cfg)
{
    if (cfg->memory_limit > 0)
        return (size_t)cfg->memory_limit;
    const int64_t available = orth_machine_available_bytes(), left = orth_machine_addresses_left();
    if (cfg->comm_backend == ORTH_comm_backend_mpi || left == INT64_MAX)
        return (size_t)available;
    return (size_t)(available > 0 ? ORTH_MIN(available, left) : left);
}

orth_status orth_run_plan_make(orth_ctx *ctx, orth_run_plan *p, const orth_config *cfg, const orth_model_config *model,
                               bool evaluates, bool priced)
{
    orth_layout layout = orth_setup_layout(cfg);
    orth_rates rates;
    *p = (orth_run_plan){.ranks = NULL};
    ORTH_TRY(orth_spread_make(ctx, &p->spread, &layout, model));
    p->num_ranks = p->spread.mesh.num_ranks;
    p->ranks = ORTH_NEW_ARRAY(ctx, orth_plan, p->num_ranks);
    orth_status s = p->ranks ? ORTH_OK : ORTH_ERR_NOMEM;
    if (s == ORTH_OK && priced)
        s = orth_machine_rates(ctx, cfg, p->num_ranks, &rates);
    if (s == ORTH_OK)
        s = plan_ranks(ctx, p, cfg, model, evaluates, priced ? &rates : NULL);
    if (s != ORTH_OK) {
        orth_run_plan_release(ctx, p);
        return s;
    }
    size_t copy = orth_saver_bytes(cfg, model, p->num_ranks);
    p->ranks[0].class_bytes[ORTH_CLASS_WORKSPACE] += copy;
    p->ranks[0].total_bytes += copy;
    p->ranks[0].lower_bound_bytes += copy;
    p->total = orth_plan_total(p->ranks, p->num_ranks, cfg->train_global_batch * cfg->data_seq_len, memory_limit(cfg));
    if (priced)
        orth_plan_price_total(&p->total, p->ranks, p->num_ranks, rates.flops * p->num_ranks);
    return ORTH_OK;
}

void orth_run_plan_release(orth_ctx *ctx, orth_run_plan *p)
{
    orth_mem_free(ctx, p->ranks);
    orth_spread_release(ctx, &p->spread);
    p->ranks = NULL;
}

/* ---- in words ---- */

static double dp_mib(const orth_traffic *t)
{
    static const orth_group groups[] = {ORTH_GROUP_DP, ORTH_GROUP_SHARD, ORTH_GROUP_REPLICATE};
    int64_t sum = 0;
    for (int i = 0; i < ORTH_COUNT(groups); i++)
        for (int k = 0; k < ORTH_NUM_COMM_KINDS; k++)
            sum += t->sent[groups[i]][k];
    return (double)sum / 0x1p20;
}

/* Traffic of rank 0 in the same layout under ZeRO 1. */
static orth_status traffic_under_zero_1(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model,
                                        orth_traffic *out)
{
    orth_layout layout = orth_setup_layout(cfg);
    orth_spread spread;
    orth_rank_units units;
    layout.zero = 1;
    layout.keep_whole = 0;
    ORTH_TRY(orth_spread_make(ctx, &spread, &layout, model));
    orth_chunk *chunks = ORTH_ARENA_ARRAY(ctx, &spread.arena, orth_chunk, spread.schedule.num_chunks);
    orth_status s = chunks ? build_rank(ctx, cfg, model, &spread, 0, false, NULL, chunks, &units) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK) {
        *out = planned_traffic(cfg, &spread, &units.step.program, 0);
        orth_rank_units_release(&units);
    }
    orth_spread_release(ctx, &spread);
    return s;
}

orth_status orth_describe_zero_cost(orth_ctx *ctx, const orth_run_plan *p, const orth_config *cfg,
                                    const orth_model_config *model, char **out)
{
    const orth_layout *l = &p->spread.layout;
    const int32_t micro_batches = (int32_t)orth_layout_micro_batches(l, 0);
    orth_traffic once;
    *out = NULL;
    if (l->zero < 2 || micro_batches == 1 || p->spread.mesh.size[ORTH_AXIS_SHARD] == 1)
        return ORTH_OK;
    ORTH_TRY(traffic_under_zero_1(ctx, cfg, model, &once));
    *out = orth_mem_printf(ctx, "zero=%d with %d micro-batches: the gradients of each are reduced at once%s; rank 0 sends "
                           "%.2f MiB over dp in a step, and would send %.2f MiB with zero=1\n", (int)l->zero, micro_batches,
                           l->zero == 3 ? ", and parameters gathered before its forward and its backward" : "",
                           dp_mib(&p->ranks[0].traffic), dp_mib(&once));
    return *out ? ORTH_OK : ORTH_ERR_NOMEM;
}
