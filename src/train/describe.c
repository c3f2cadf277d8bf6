/* describe.c -- see describe.h. */
#include "train/describe.h"

#include <inttypes.h>
#include <limits.h>

#include "base/machine.h"
#include "base/pool.h"
#include "base/scratch.h"
#include "data/corpus.h"
#include "data/data.h"
#include "data/loader.h"
#include "data/tokenizer.h"
#include "plan/probe.h"
#include "plan/recompute_auto.h"
#include "program/compile.h"
#include "train/eval.h"
#include "train/groups.h"
#include "train/saver.h"

static bool takes_vocab_of_data(const orth_config *cfg)
{
    return !ORTH_CONFIG_IS_SET(cfg, model, vocab) && !cfg->model_preset[0];
}

static bool has_prepared_data(const orth_config *cfg)
{
    return cfg->data_path.n > 0 && orth_dataset_exists(cfg->data_path.v[0]);
}

bool orth_describe_assumes_vocab(const orth_config *cfg)
{
    return takes_vocab_of_data(cfg) && orth_data_tokenizer_is_auto(cfg->data_tokenizer) && !has_prepared_data(cfg);
}

static orth_status data_vocab(orth_ctx *ctx, const orth_config *cfg, int64_t *out)
{
    *out = ORTH_AUTO_VOCAB;
    if (!orth_data_tokenizer_is_auto(cfg->data_tokenizer)) {
        orth_tokenizer *t;
        ORTH_TRY(orth_tokenizer_load(ctx, &t, cfg->data_tokenizer));
        *out = orth_tokenizer_vocab_size(t);
        orth_tokenizer_free(ctx, t);
    } else if (has_prepared_data(cfg)) {
        orth_dataset *d;
        ORTH_TRY(orth_dataset_open(ctx, &d, cfg->data_path.v[0]));
        *out = d->vocab_size;
        orth_dataset_close(ctx, d);
    }
    return ORTH_OK;
}

/* Of data that is not here. */
static bool assumes_vocab(const orth_config *cfg)
{
    return orth_describe_assumes_vocab(cfg) && cfg->data_path.n > 0 && !orth_path_exists(cfg->data_path.v[0]);
}

void orth_describe_warn_assumed(orth_ctx *ctx, const orth_config *cfg)
{
    if (assumes_vocab(cfg))
        orth_log(ctx, ORTH_LOG_WARN, "plan", "%s: no such file or folder (data.path): a vocabulary of %d is assumed, which model.vocab would say",
                 cfg->data_path.v[0], ORTH_AUTO_VOCAB);
}

orth_status orth_describe_model(orth_ctx *ctx, const orth_config *cfg, orth_model_config *out)
{
    int64_t vocab = 0;
    if (takes_vocab_of_data(cfg))
        ORTH_TRY(data_vocab(ctx, cfg, &vocab));
    return orth_setup_model(ctx, cfg, vocab, out);
}

orth_status orth_describe_check_vocab(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model)
{
    if (takes_vocab_of_data(cfg) || !has_prepared_data(cfg))
        return ORTH_OK;
    orth_dataset *d;
    ORTH_TRY(orth_dataset_open(ctx, &d, cfg->data_path.v[0]));
    const orth_status s = orth_data_check_vocab(ctx, d->vocab_size, model->vocab);
    orth_dataset_close(ctx, d);
    return s;
}

orth_status orth_describe_evaluates(orth_ctx *ctx, const orth_config *cfg, bool *out)
{
    bool any = false;
    for (int i = 0; i < cfg->data_path.n; i++) {
        orth_dataset *d;
        if (!orth_dataset_exists(cfg->data_path.v[i])) {
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
        *known = orth_dataset_exists(cfg->data_path.v[i]);
        if (!*known)
            break;
        ORTH_TRY(orth_dataset_open(ctx, &d, cfg->data_path.v[i]));
        *tokens += d->train.num_tokens;
        *sequences += (d->train.num_tokens - 1) / cfg->data_seq_len;
        orth_dataset_close(ctx, d);
    }
    return ORTH_OK;
}

orth_status orth_describe_steps(orth_ctx *ctx, const orth_config *cfg, int64_t *steps, const char **why)
{
    int64_t tokens, sequences;
    bool known;
    const bool given = ORTH_CONFIG_IS_SET(cfg, train, steps);
    *steps = given ? cfg->train_steps : -1;
    *why = given ? NULL : "train.steps is not set";
    if (cfg->train_epochs == 0)
        return ORTH_OK;
    ORTH_TRY(count_data(ctx, cfg, &tokens, &sequences, &known));
    *steps = known && sequences > 0 ? orth_setup_epoch_steps(cfg, sequences) : -1;
    *why = *steps > 0  ? NULL
           : known     ? "train.epochs of data without a whole sequence"
                       : "train.epochs of data that is not counted (data.path is not set, or not prepared)";
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
    const int64_t steps = cfg->train_epochs > 0 ? orth_setup_epoch_steps(cfg, sequences) : cfg->train_steps;
    *out = orth_mem_printf(ctx, "data           %12" PRId64 " training tokens; an epoch is %.1f steps; %" PRId64
                           " steps are %.3g epochs\n", tokens, epoch, steps, (double)steps / epoch);
    return *out ? ORTH_OK : ORTH_ERR_NOMEM;
}

/* ---- programs ---- */

/* Thread ranks share those of ctx; a process has its own. */
static int threads_of_a_rank(const orth_ctx *ctx, const orth_config *cfg)
{
    const orth_layout layout = orth_setup_layout(cfg);
    const int threads = orth_pool_num_threads(ctx->pool), ranks = (int)ORTH_MIN(orth_layout_ranks(&layout), INT_MAX);
    const bool share = cfg->comm_backend == ORTH_comm_backend_thread;
    return share ? orth_groups_options(cfg, threads, ranks).threads_per_rank : threads;
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

/* What all files together may be: nothing is known of a folder that cannot be looked at, and disks of a described cluster are not those of this machine. */
static size_t file_limit(const orth_config *cfg, bool *is_room)
{
    *is_room = false;
    if (!orth_config_offloads_to_file(cfg))
        return 0;
    const size_t room = cfg->on_devices ? 0 : orth_scratch_free_bytes(cfg->memory_offload_dir), given = (size_t)cfg->memory_limit_file;
    *is_room = room > 0 && (given == 0 || room < given);
    return *is_room ? room : given;
}

/* Of recomputation auto. Processes have to choose alike, so what happens to be free where one of them is does not count. Devices have none of these here. */
static void set_space_limits(orth_programs_spec *spec, const orth_config *cfg)
{
    bool is_room;
    if (!orth_config_offloads(cfg) || cfg->on_devices)
        return;
    spec->space_limit[ORTH_SPACE_HOST] = (size_t)cfg->memory_limit_host;
    spec->space_limit[ORTH_SPACE_FILE] = cfg->comm_backend == ORTH_comm_backend_mpi ? (size_t)cfg->memory_limit_file : file_limit(cfg, &is_room);
}

static orth_status programs_spec(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model, bool evaluates, orth_programs_spec *out)
{
    const orth_layout layout = orth_setup_layout(cfg);
    const int64_t given = cfg->memory_recompute_limit, device = cfg->memory_limit_device;
    const int64_t limit = given > 0 && device > 0 ? ORTH_MIN(given, device) : ORTH_MAX(given, device);
    const char *own = cfg->on_devices && !cfg->place[ORTH_OPT_memory_recompute_limit] ? "the memory of a device" : "memory.recompute_limit";
    const bool here = cfg->comm_backend != ORTH_comm_backend_mpi; /* of several hosts each has a limit of its own */
    const size_t total = given == 0 ? memory_limit(cfg) : here ? (size_t)cfg->memory_limit : 0;
    *out = (orth_programs_spec){.model = model, .step = orth_setup_shape(cfg, ORTH_MODE_TRAIN), .eval = orth_eval_shape(cfg),
                                .evaluates = evaluates, .num_threads = threads_of_a_rank(ctx, cfg),
                                .rank_limit = (size_t)limit, .limit_of = device > 0 && limit == device ? "memory.limit_device" : own,
                                .total_limit = total};
    set_space_limits(out, cfg);
    /* A checkpoint is put together in the host's memory. */
    return cfg->on_devices ? ORTH_OK : orth_saver_bytes(ctx, cfg, model, (int)orth_layout_ranks(&layout), &out->first_rank_bytes);
}

static orth_status build_step(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model, orth_partition *partition, int rank,
                              orth_compiled *compiled)
{
    orth_programs_spec spec;
    orth_chunk *chunks = ORTH_ARENA_ARRAY(ctx, &partition->arena, orth_chunk, partition->schedule.num_chunks);
    orth_rank_programs programs;
    const char *words;
    if (!chunks)
        return ORTH_ERR_NOMEM;
    if (rank >= partition->mesh.num_ranks)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "rank %d is not one of the %d of this layout", rank, partition->mesh.num_ranks);
    ORTH_TRY(programs_spec(ctx, cfg, model, false, &spec));
    spec.partition = partition;
    ORTH_TRY(orth_again_resolve(ctx, &partition->arena, &spec, &words));
    ORTH_TRY(orth_rank_programs_build(ctx, &spec, rank, NULL, chunks, &programs));
    *compiled = programs.step;
    return ORTH_OK;
}

orth_status orth_describe_step(orth_ctx *ctx, const orth_config *cfg, int rank, orth_model_config *model,
                               orth_partition *partition, orth_compiled *compiled)
{
    orth_layout layout = orth_setup_layout(cfg);
    ORTH_TRY(orth_describe_model(ctx, cfg, model));
    ORTH_TRY(orth_setup_say_place(ctx, cfg, orth_partition_make(ctx, partition, &layout, model)));
    const orth_status s = build_step(ctx, cfg, model, partition, rank, compiled);
    if (s != ORTH_OK)
        orth_partition_release(ctx, partition);
    return s;
}

orth_status orth_machine_file_rates(orth_ctx *ctx, const orth_config *cfg, orth_file_rates *out)
{
    const orth_file_probe probe = {.dir = cfg->memory_offload_dir, .io = orth_setup_file_io(cfg), .bytes = ORTH_FILE_PROBE_QUICK_BYTES,
                                   .seconds = 1};
    return orth_probe_file(ctx, out, &probe);
}

orth_status orth_machine_rates(orth_ctx *ctx, const orth_config *cfg, int num_ranks, orth_rates *out)
{
    const double seconds = cfg->run_probe_s / 3;
    double peak_flops, bytes;
    const bool bf16 = cfg->precision_compute == ORTH_precision_compute_bf16;
    ORTH_TRY(orth_probe_matmul_peak(ctx, &peak_flops, bf16, seconds));
    ORTH_TRY(orth_probe_measure(ctx, &bytes, ORTH_PROBE_COPY, orth_pool_num_threads(ctx->pool), seconds));
    *out = (orth_rates){.flops = peak_flops / num_ranks, .bytes = bytes / num_ranks};
    if (!orth_config_offloads_to_file(cfg))
        return ORTH_OK;
    ORTH_TRY(orth_machine_file_rates(ctx, cfg, &out->file));
    out->file = orth_file_rates_times(&out->file, 1.0 / num_ranks);
    return ORTH_OK;
}

orth_status orth_describe_host(orth_ctx *ctx, const orth_config *cfg, orth_hardware *out, bool *given)
{
    *given = cfg->run_hardware[0] != '\0';
    if (!*given)
        return ORTH_OK;
    ORTH_TRY(orth_hardware_find(ctx, out, cfg->run_hardware));
    if (out->has_host)
        return ORTH_OK;
    orth_hardware_release(ctx, out);
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "run.hardware=%s: has no section `host`: it takes a file of `orthant doctor --calibrate`; for described "
                     "devices there is --cluster", cfg->run_hardware);
}

orth_status orth_describe_on_host(orth_ctx *ctx, const orth_config *cfg, const orth_hardware *h, orth_config *out)
{
    *out = *cfg;
    if (cfg->memory_limit == 0)
        out->memory_limit = (int64_t)orth_host_limit(h);
    if (cfg->run_isa == ORTH_run_isa_auto)
        ctx->isa = h->isa;
    ORTH_TRY(orth_setup_products(ctx, cfg));
    return cfg->run_threads > 0 ? ORTH_OK : orth_ctx_use_threads(ctx, (int)h->host_cores);
}

/* Pages of a stack that threads of a rank touch, at most: tests/test_memory.c holds them to it. */
#define STACK_ALLOWANCE ((size_t)128 << 10)

static orth_outside outside_of(const orth_run_plan *p, const orth_config *cfg, int num_threads, int rank)
{
    const orth_layout *l = &p->partition.layout;
    const orth_rank_groups groups = orth_partition_groups(&p->partition, rank);
    const int dp = orth_mesh_group_pos(&p->partition.mesh, rank, ORTH_AXES_DP);
    const orth_loader_options loader = {.rows = {.row_end = l->seq_len / p->partition.mesh.size[ORTH_AXIS_CP]},
                                        .max_sequences = orth_layout_micro_batches(l, dp) * cfg->train_micro_batch};
    int comms = p->num_ranks > 1; /* of all ranks */
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        comms += groups.size[g] > 1;
    return (orth_outside){.of = {[ORTH_OUTSIDE_COMM_SCRATCH] = (size_t)comms * orth_comm_scratch_planned(orth_groups_method(cfg)),
                                 [ORTH_OUTSIDE_LOADER] = (size_t)orth_loader_bytes(&loader),
                                 [ORTH_OUTSIDE_FILE_BUFFERS] = p->ranks[rank].file_bytes > 0 ? orth_scratch_room(orth_setup_file_io(cfg)) : 0,
                                 [ORTH_OUTSIDE_STACKS] = (size_t)(num_threads + 1) * STACK_ALLOWANCE}};
}

static orth_status plan_run(orth_ctx *ctx, orth_run_plan *p, const orth_config *cfg, const orth_model_config *model, bool evaluates, bool least)
{
    const orth_layout layout = orth_setup_layout(cfg);
    orth_programs_spec spec;
    ORTH_TRY(programs_spec(ctx, cfg, model, evaluates, &spec));
    spec.least_if_none = least;
    ORTH_TRY(orth_run_plan_make(ctx, p, &layout, &spec, orth_groups_method(cfg)));
    for (int r = 0; r < p->num_ranks; r++)
        p->ranks[r].outside = outside_of(p, cfg, spec.num_threads, r);
    const size_t copy = spec.first_rank_bytes;
    p->ranks[0].memory.of[ORTH_SPACE_HOST][ORTH_CLASS_WORKSPACE] += copy;
    p->ranks[0].total_bytes += copy;
    p->ranks[0].device_bytes += spec.step.space == ORTH_SPACE_HOST ? copy : 0;
    for (int r = 0; r < p->num_ranks; r++) {
        p->ranks[r].on_devices = cfg->on_devices;
        p->ranks[r].device_limit_bytes = (size_t)cfg->memory_limit_device;
        p->ranks[r].host_limit_bytes = (size_t)cfg->memory_limit_host;
        p->ranks[r].file_limit_bytes = file_limit(cfg, &p->ranks[r].file_limit_is_room);
    }
    p->ranks[0].lower_bound_bytes += copy;
    p->total = orth_plan_total(p->ranks, p->num_ranks, cfg->train_global_batch * cfg->data_seq_len, memory_limit(cfg));
    return ORTH_OK;
}

orth_status orth_describe_plan(orth_ctx *ctx, orth_run_plan *p, const orth_config *cfg, const orth_model_config *model,
                               bool evaluates)
{
    return plan_run(ctx, p, cfg, model, evaluates, false);
}

orth_status orth_describe_least_plan(orth_ctx *ctx, orth_run_plan *p, const orth_config *cfg, const orth_model_config *model,
                                     bool evaluates)
{
    return plan_run(ctx, p, cfg, model, evaluates, true);
}

orth_config orth_describe_on_devices(const orth_config *cfg, const orth_hardware *h)
{
    orth_config c = *cfg;
    c.on_devices = true;
    if (c.memory_recompute_limit == 0) {
        const int64_t device = (int64_t)orth_cluster_least_limit(h);
        c.memory_recompute_limit = c.memory_limit_device > 0 ? ORTH_MIN(c.memory_limit_device, device) : device;
    }
    return c;
}

orth_status orth_describe_pareto(orth_ctx *ctx, orth_pareto *p, const orth_config *cfg, const orth_model_config *model, bool evaluates,
                                 orth_pareto_price_fn price, void *user)
{
    const orth_layout layout = orth_setup_layout(cfg);
    orth_programs_spec spec;
    ORTH_TRY(programs_spec(ctx, cfg, model, evaluates, &spec));
    return orth_pareto_make(ctx, p, &layout, &spec, price, user);
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

/* Of rank 0: compiled only, since where buffers lie and what orders calls changes no byte that is sent. */
static orth_status traffic_of_first(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model, orth_partition *partition,
                                    orth_traffic *out)
{
    const orth_rank_groups groups = orth_partition_groups(partition, 0);
    orth_model_shape shape = orth_setup_shape(cfg, ORTH_MODE_TRAIN);
    orth_chunk *chunks = ORTH_ARENA_ARRAY(ctx, &partition->arena, orth_chunk, partition->schedule.num_chunks);
    orth_compiled u = {.shared = false};
    if (!chunks)
        return ORTH_ERR_NOMEM;
    orth_partition_shape(partition, 0, &shape, chunks);
    ORTH_TRY(orth_model_blocks_build(ctx, model, &shape, &u.blocks));
    orth_program_init(ctx, &u.program);
    const orth_status s = orth_compile(ctx, &u.blocks.spec, &u.program);
    if (s == ORTH_OK)
        *out = orth_traffic_planned(&u.program, &groups, orth_groups_method(cfg));
    orth_compiled_release(&u);
    return s;
}

/* Traffic of rank 0 in the same layout under ZeRO 1. */
static orth_status traffic_under_zero_1(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model,
                                        orth_traffic *out)
{
    orth_layout layout = orth_setup_layout(cfg);
    orth_config plain = *cfg;
    orth_partition partition;
    layout.zero = 1;
    layout.keep_whole = 0;
    /* What is made again changes nothing on dp, and recompute=auto may find nothing that fits under ZeRO 1. */
    plain.memory_recompute = ORTH_memory_recompute_none;
    ORTH_TRY(orth_partition_make(ctx, &partition, &layout, model));
    const orth_status s = traffic_of_first(ctx, &plain, model, &partition, out);
    orth_partition_release(ctx, &partition);
    return s;
}

orth_status orth_describe_zero_cost(orth_ctx *ctx, const orth_run_plan *p, const orth_config *cfg,
                                    const orth_model_config *model, char **out)
{
    const orth_layout *l = &p->partition.layout;
    const int32_t micro_batches = (int32_t)orth_layout_micro_batches(l, 0);
    orth_traffic once;
    *out = NULL;
    if (l->zero < 2 || micro_batches == 1 || p->partition.mesh.size[ORTH_AXIS_SHARD] == 1)
        return ORTH_OK;
    ORTH_TRY(traffic_under_zero_1(ctx, cfg, model, &once));
    *out = orth_mem_printf(ctx, "zero=%d with %d micro-batches: the gradients of each are reduced at once%s; rank 0 sends "
                           "%.2f MiB over dp in a step, and would send %.2f MiB with zero=1\n", (int)l->zero, micro_batches,
                           l->zero == 3 ? ", and parameters gathered before its forward and its backward" : "",
                           dp_mib(&p->ranks[0].traffic), dp_mib(&once));
    return *out ? ORTH_OK : ORTH_ERR_NOMEM;
}
