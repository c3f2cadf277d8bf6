/* calibrate.c -- see calibrate.h. */
#include "tools/calibrate.h"

#include <math.h>

#include "base/clock.h"
#include "base/machine.h"
#include "base/pool.h"
#include "config/config.h"
#include "plan/probe.h"
#include "tools/measure.h"

/* Times above this many times the fit are not of the op but of a busy machine. */
#define OUTLIER 1.6
#define PEAK_SECONDS 0.3
#define MODEL_WORDS 10
#define FILE_BYTES ((size_t)2 << 30)    /* more than caches of disks hold */
#define FILE_SECONDS 3

/* Models whose ops and shapes are observed. `split`: layouts of two ranks, for ops that no single rank has. */
typedef struct {
    bool brief, split;
    const char *words[MODEL_WORDS];
} model;

#define SHAPE(family, layers, hidden, heads, kv, ffn, vocab) \
    "model.family=" family, "model.layers=" #layers, "model.hidden=" #hidden, "model.heads=" #heads, "model.kv_heads=" #kv, "model.ffn=" #ffn, \
    "model.vocab=" #vocab
static const model models[] = {
    {true, false, {SHAPE("gpt2", 1, 64, 4, 4, 256, 256), "data.seq_len=32"}},
    {false, false, {SHAPE("gpt2", 1, 128, 4, 4, 512, 512), "data.seq_len=128"}},
    {false, false, {SHAPE("gpt2", 1, 96, 3, 3, 384, 512), "data.seq_len=1024"}},
    {false, false, {SHAPE("llama", 1, 128, 4, 2, 384, 1024), "data.seq_len=512", "train.micro_batch=2"}},
    {false, false, {SHAPE("llama", 2, 192, 6, 2, 512, 2048), "data.seq_len=64", "train.micro_batch=4"}},
    {false, false, {SHAPE("gpt2", 1, 320, 5, 5, 1280, 4096), "data.seq_len=256", "train.micro_batch=2"}},
    {false, false, {SHAPE("llama", 1, 512, 8, 4, 1408, 1024), "data.seq_len=1024"}},
    {false, false, {SHAPE("llama", 1, 768, 12, 12, 2048, 6144), "data.seq_len=256"}},
    {true, true, {SHAPE("llama", 1, 64, 4, 2, 128, 256), "data.seq_len=32", "parallel.tp=2"}},
    {false, true, {SHAPE("gpt2", 1, 256, 8, 8, 1024, 2048), "data.seq_len=256", "parallel.tp=2", "parallel.sequence_parallel=true"}},
    {false, true, {SHAPE("llama", 1, 256, 8, 4, 768, 2048), "data.seq_len=256", "parallel.tp=2"}},
    {false, true, {SHAPE("llama", 1, 128, 4, 2, 384, 512), "data.seq_len=512", "parallel.cp=2", "parallel.cp_kind=ring"}},
    {false, true, {SHAPE("llama", 1, 128, 4, 2, 384, 512), "data.seq_len=256", "parallel.cp=2", "parallel.cp_kind=ring"}},
    {false, true, {SHAPE("llama", 1, 128, 4, 2, 384, 512), "data.seq_len=512", "parallel.cp=2", "parallel.cp_kind=all_gather"}},
    {false, true, {SHAPE("llama", 1, 128, 4, 2, 384, 512), "data.seq_len=128", "parallel.cp=2", "parallel.cp_kind=all_gather"}},
    {false, true, {SHAPE("llama", 1, 128, 4, 2, 384, 512), "data.seq_len=512", "parallel.cp=2", "parallel.cp_kind=all_to_all"}},
};

/* Terms and least time of each instruction, op by op. */
typedef struct {
    double *terms, *ns;
    int num, room;
} observations;

typedef struct {
    orth_ctx *ctx;              /* that of the caller, whose memory observations are; the ranks of a model end before */
    orth_calibrate_options options;
    observations of[ORTH_NUM_TIMES][ORTH_NUM_OPS];
    orth_times_set set;         /* that the model at hand is observed for */
} calibration;

static orth_status observe(orth_ctx *ctx, observations *o, const double terms[ORTH_OP_TERMS], double ns)
{
    if (o->num == o->room) {
        const int room = ORTH_MAX(64, 2 * o->room);
        double *t = ORTH_NEW_ARRAY(ctx, double, (size_t)room * ORTH_OP_TERMS), *s = ORTH_NEW_ARRAY(ctx, double, room);
        if (!t || !s) {
            orth_mem_free(ctx, t);
            orth_mem_free(ctx, s);
            return ORTH_ERR_NOMEM;
        }
        if (o->num > 0) {
            memcpy(t, o->terms, (size_t)o->num * ORTH_OP_TERMS * sizeof *t);
            memcpy(s, o->ns, (size_t)o->num * sizeof *s);
        }
        orth_mem_free(ctx, o->terms);
        orth_mem_free(ctx, o->ns);
        *o = (observations){t, s, o->num, room};
    }
    memcpy(o->terms + (size_t)o->num * ORTH_OP_TERMS, terms, ORTH_OP_TERMS * sizeof *terms);
    o->ns[o->num++] = ns;
    return ORTH_OK;
}

/* ---- ops ---- */

static double total(const int64_t *ns, int32_t n)
{
    double sum = 0;
    for (int32_t i = 0; i < n; i++)
        sum += (double)ns[i];
    return sum;
}

/* The least times of the instructions do not fall into one step: they are all longer by *factor, so that they add up to the least step. */
static orth_status least_times(orth_ctx *ctx, orth_measure *m, const calibration *c, int64_t *least, double *factor)
{
    const int32_t n = orth_measure_program(m)->num_instrs;
    double seconds, all = 0, step_ns = INFINITY;
    ORTH_TRY(orth_measure_step(ctx, m, &seconds)); /* touches memory for the first time */
    for (int step = 0; step < c->options.max_steps && (step < 3 || all < c->options.model_seconds); step++) {
        ORTH_TRY(orth_measure_step(ctx, m, &seconds));
        all += seconds;
        const int64_t *held = orth_measure_held(m);
        for (int32_t i = 0; i < n; i++)
            least[i] = step == 0 ? held[i] : ORTH_MIN(least[i], held[i]);
        step_ns = fmin(step_ns, total(held, n));
    }
    *factor = step_ns / fmax(total(least, n), 1);
    return ORTH_OK;
}

static orth_status observe_steps(orth_ctx *ctx, orth_measure *m, void *user)
{
    calibration *c = user;
    const orth_program *p = orth_measure_program(m);
    int64_t *least = ORTH_NEW_ARRAY(ctx, int64_t, p->num_instrs);
    double factor = 1;
    orth_status s = least ? least_times(ctx, m, c, least, &factor) : ORTH_ERR_NOMEM;
    for (int32_t i = 0; s == ORTH_OK && i < p->num_instrs; i++) {
        double terms[ORTH_OP_TERMS];
        if (orth_op_is_comm(p->instrs[i].op))
            continue;
        orth_op_terms(&p->instrs[i], terms);
        s = observe(c->ctx, &c->of[c->set][p->instrs[i].op], terms, factor * (double)ORTH_MAX(least[i], 1));
    }
    orth_mem_free(ctx, least);
    return s;
}

static orth_status set_words(orth_ctx *ctx, orth_config *cfg, const char *const *words, int n)
{
    for (int i = 0; i < n && words[i]; i++) {
        const char *equals = strchr(words[i], '=');
        char key[64];
        snprintf(key, sizeof key, "%.*s", (int)(equals - words[i]), words[i]);
        ORTH_TRY(orth_config_set(ctx, cfg, "calibration", key, equals + 1));
    }
    return ORTH_OK;
}

/* A rank on each thread, or one on all. Two micro-batches for each rank: gradients are added up. */
static orth_status set_layout(orth_ctx *ctx, orth_config *cfg, const model *m, bool bf16, int num_ranks)
{
    char dp[32], batch[32];
    const int split = m->split ? 2 : 1, groups = ORTH_MAX(1, num_ranks / split);
    snprintf(dp, sizeof dp, "parallel.dp=%d", groups);
    snprintf(batch, sizeof batch, "train.global_batch=%d", 2 * groups * (int)cfg->train_micro_batch);
    const char *const words[] = {dp, batch, bf16 ? "precision.compute=bf16" : "precision.compute=fp32"};
    return set_words(ctx, cfg, words, ORTH_COUNT(words));
}

static orth_status observe_model(orth_ctx *ctx, calibration *c, const model *m, bool bf16, bool all_threads)
{
    orth_config cfg;
    c->set = (bf16 ? ORTH_TIMES_BF16_ONE : ORTH_TIMES_FP32_ONE) + all_threads;
    ORTH_TRY(orth_config_init(ctx, &cfg));
    orth_status s = set_words(ctx, &cfg, m->words, MODEL_WORDS);
    if (s == ORTH_OK)
        s = set_layout(ctx, &cfg, m, bf16, all_threads ? 1 : orth_pool_num_threads(ctx->pool));
    if (s == ORTH_OK)
        s = orth_config_check(ctx, &cfg);
    if (s == ORTH_OK)
        s = orth_measure_run(ctx, &cfg, observe_steps, c);
    orth_config_release(ctx, &cfg);
    return s;
}

static orth_status observe_models(orth_ctx *ctx, calibration *c)
{
    const int sizes = orth_pool_num_threads(ctx->pool) > 1 ? 2 : 1;
    for (int i = 0; i < ORTH_COUNT(models); i++)
        for (int bf16 = 0; bf16 < 2; bf16++)
            for (int all = 0; all < (models[i].split ? 1 : sizes); all++)
                if (models[i].brief || !c->options.brief)
                    ORTH_TRY(observe_model(ctx, c, &models[i], bf16, all));
    return ORTH_OK;
}

static void fit_ops(calibration *c, orth_op_times *times)
{
    for (int set = 0; set < ORTH_NUM_TIMES; set++)
        for (int op = 0; op < ORTH_NUM_OPS; op++) {
            const observations *o = &c->of[set][op];
            if (o->num > 0)
                orth_fit_terms(ORTH_OP_TERMS, o->num, o->terms, o->ns, OUTLIER, times->of[set][op]);
        }
}

/* ---- collectives ---- */

#define CALL_REPEATS 12
static const int64_t call_bytes[] = {1 << 12, 1 << 16, 1 << 19, 1 << 22};

typedef struct {
    double *terms, *ns;     /* [num][ORTH_CALL_TERMS], [num] of every kind, kind by kind */
    int num[ORTH_NUM_COMM_KINDS], room;
} calls;

static orth_status make_call(orth_ctx *ctx, orth_comm *c, orth_comm_kind kind, char *x, char *y, int64_t bytes)
{
    const int n = orth_comm_size(c), pos = orth_comm_pos(c);
    const int64_t count = bytes / 4, block = count / n;
    switch (kind) {
    case ORTH_COMM_ALL_REDUCE: return orth_all_reduce(ctx, c, x, x, count, ORTH_F32, ORTH_SUM);
    case ORTH_COMM_REDUCE_SCATTER: return orth_reduce_scatter(ctx, c, x + block * pos * 4, x, block, NULL, ORTH_F32, ORTH_SUM);
    case ORTH_COMM_ALL_GATHER: return orth_all_gather(ctx, c, x, x + block * pos * 4, block, NULL, ORTH_F32);
    case ORTH_COMM_BROADCAST: return orth_broadcast(ctx, c, x, count, ORTH_F32, 0);
    case ORTH_COMM_ALL_TO_ALL: return orth_all_to_all(ctx, c, y, x, block, NULL, NULL, ORTH_F32);
    case ORTH_COMM_BARRIER: return orth_barrier(ctx, c);
    default: break;
    }
    if (pos > 1)
        return ORTH_OK;
    return pos == 0 ? orth_send(ctx, c, x, count, ORTH_F32, 1) : orth_recv(ctx, c, y, count, ORTH_F32, 0);
}

/* What member 0 sends. */
static double bytes_of(orth_comm_kind kind, int n, int64_t bytes)
{
    const bool blocks = kind == ORTH_COMM_ALL_GATHER || kind == ORTH_COMM_REDUCE_SCATTER || kind == ORTH_COMM_ALL_TO_ALL;
    const orth_comm_call call = {.kind = kind, .count = blocks ? bytes / 4 / n : bytes / 4, .dtype = ORTH_F32, .peer = 1};
    return kind == ORTH_COMM_BARRIER ? 0 : (double)orth_comm_bytes(n, 0, &call);
}

static orth_status time_kind(orth_ctx *ctx, orth_comm *c, calls *out, orth_comm_kind kind, char *x, char *y)
{
    for (int i = 0; i < ORTH_COUNT(call_bytes); i++) {
        double least = INFINITY;
        memset(x, 0, (size_t)call_bytes[i]);
        for (int k = 0; k < CALL_REPEATS; k++) {
            ORTH_TRY(orth_barrier(ctx, c));
            const double begin = orth_clock_s();
            ORTH_TRY(make_call(ctx, c, kind, x, y, call_bytes[i]));
            least = fmin(least, orth_clock_s() - begin);
        }
        if (orth_comm_pos(c) != 0)
            continue;
        const int at = (int)kind * out->room + out->num[kind]++;
        orth_call_terms(orth_comm_size(c), bytes_of(kind, orth_comm_size(c), call_bytes[i]), out->terms + (size_t)at * ORTH_CALL_TERMS);
        out->ns[at] = 1e9 * least;
    }
    return ORTH_OK;
}

static orth_status time_calls(orth_ctx *ctx, orth_world *w, void *arg)
{
    calls *out = arg;
    int ranks[64];
    const int n = orth_world_size(w);
    const int64_t most = call_bytes[ORTH_COUNT(call_bytes) - 1];
    for (int i = 0; i < n; i++)
        ranks[i] = i;
    orth_comm *c;
    ORTH_TRY(orth_comm_create(ctx, w, &c, "calibration", n, ranks));
    char *x = orth_mem_alloc(ctx, 2 * (size_t)most);
    orth_status s = x ? ORTH_OK : ORTH_ERR_NOMEM;
    if (x)
        memset(x, 0, 2 * (size_t)most);
    for (int k = 0; s == ORTH_OK && k < ORTH_NUM_COMM_KINDS; k++)
        s = time_kind(ctx, c, out, (orth_comm_kind)k, x, x + most);
    orth_mem_free(ctx, x);
    orth_comm_destroy(ctx, c);
    return s;
}

/* Groups of two, of as many as there are cores, and of twice as many, which share them. */
static orth_status fit_calls(orth_ctx *ctx, orth_op_times *times)
{
    const int cores = orth_pool_num_threads(ctx->pool), sizes[] = {2, cores, 2 * cores};
    calls c = {.room = ORTH_COUNT(sizes) * ORTH_COUNT(call_bytes)};
    c.terms = ORTH_NEW_ARRAY(ctx, double, (size_t)ORTH_NUM_COMM_KINDS * (size_t)c.room * ORTH_CALL_TERMS);
    c.ns = ORTH_NEW_ARRAY(ctx, double, (size_t)ORTH_NUM_COMM_KINDS * (size_t)c.room);
    orth_status s = c.terms && c.ns ? ORTH_OK : ORTH_ERR_NOMEM;
    for (int i = 0, last = 1; s == ORTH_OK && i < ORTH_COUNT(sizes); i++) {
        const int n = ORTH_MIN(sizes[i], 64);
        const orth_world_options o = {.pin = true, .timeout_s = -1};
        if (n > last)
            s = orth_run_ranks(ctx, n, time_calls, &c, &o);
        last = ORTH_MAX(last, n);
    }
    for (int k = 0; s == ORTH_OK && k < ORTH_NUM_COMM_KINDS; k++)
        orth_fit_terms(ORTH_CALL_TERMS, c.num[k], c.terms + (size_t)(k * c.room) * ORTH_CALL_TERMS, c.ns + k * c.room, INFINITY, times->call[k]);
    orth_mem_free(ctx, c.terms);
    orth_mem_free(ctx, c.ns);
    return s;
}

/* ---- the machine ---- */

static orth_status measure_peaks(orth_ctx *ctx, orth_hardware *h)
{
    double fp32, bf16, copy;
    ORTH_TRY(orth_probe_matmul_peak(ctx, &fp32, false, PEAK_SECONDS));
    ORTH_TRY(orth_probe_matmul_peak(ctx, &bf16, true, PEAK_SECONDS));
    ORTH_TRY(orth_probe_measure(ctx, &copy, ORTH_PROBE_COPY, orth_pool_num_threads(ctx->pool), PEAK_SECONDS));
    h->device_fp32_tflops = 1e-12 * fp32;
    h->device_fp16_tflops = h->device_fp32_tflops; /* kernels widen it */
    h->device_bf16_tflops = 1e-12 * bf16;
    h->device_memory_GBps = 1e-9 * copy;
    return ORTH_OK;
}

/* A folder that cannot have the file is no reason to lose the rest. */
static orth_status measure_files(orth_ctx *ctx, const orth_calibrate_options *o, orth_hardware *h)
{
    const size_t half_free = o->file_dir ? orth_scratch_free_bytes(o->file_dir) / 2 : 0, most = o->brief ? FILE_BYTES >> 8 : FILE_BYTES;
    const orth_file_probe probe = {.dir = o->file_dir, .io = o->file_io, .bytes = ORTH_MIN(most, half_free), .seconds = FILE_SECONDS};
    orth_file_rates rates;
    if (!o->file_dir)
        return ORTH_OK;
    const orth_status s = orth_probe_file(ctx, &rates, &probe);
    if (s == ORTH_OK) {
        h->node_file_GBps = fmax(1e-9 * rates.read, 0.001); /* what the key takes at least */
        h->node_file_write_GBps = fmax(1e-9 * rates.write, 0.001);
    }
    if (s != ORTH_ERR_IO && s != ORTH_ERR_NOSPACE)
        return s;
    orth_log(ctx, ORTH_LOG_WARN, "plan", "files were not measured, and plans will assume a rate: %s", ctx->error.message);
    orth_ctx_clear_error(ctx);
    return ORTH_OK;
}

static void describe(const orth_ctx *ctx, orth_hardware *h)
{
    orth_machine m;
    orth_machine_query(&m);
    const int64_t limit = m.memory_limit > 0 ? ORTH_MIN(m.memory_limit, m.memory_total) : m.memory_total;
    *h = (orth_hardware){.has_host = true, .isa = ORTH_MIN(ctx->isa, ORTH_ISA_AMX), .host_cores = orth_pool_num_threads(ctx->pool),
                         .device_memory_GiB = (double)limit / 0x1p30, .device_memory_share = 1, .device_gemm_share = 0.7,
                         .device_attention_share = 0.45, .device_launch_us = 1, .node_devices = 1};
    snprintf(h->device_name, sizeof h->device_name, "%.40s, %.0f cores", *m.cpu ? m.cpu : "unknown CPU", h->host_cores);
    snprintf(h->host_isa, sizeof h->host_isa, "%s", orth_isa_name(h->isa));
}

orth_status orth_calibrate(orth_ctx *ctx, const orth_calibrate_options *options, orth_hardware *h)
{
    calibration *c = ORTH_NEW(ctx, calibration);
    if (!c)
        return ORTH_ERR_NOMEM;
    c->ctx = ctx;
    c->options = *options;
    c->options.max_steps = options->max_steps > 0 ? options->max_steps : 12;
    c->options.model_seconds = options->model_seconds > 0 ? options->model_seconds : 0.4;
    describe(ctx, h);
    orth_status s = measure_peaks(ctx, h);
    if (s == ORTH_OK)
        s = measure_files(ctx, options, h);
    if (s == ORTH_OK)
        s = observe_models(ctx, c);
    if (s == ORTH_OK)
        s = fit_calls(ctx, &h->times);
    if (s == ORTH_OK)
        fit_ops(c, &h->times);
    for (int i = 0; i < ORTH_NUM_TIMES * ORTH_NUM_OPS; i++) {
        orth_mem_free(ctx, c->of[i / ORTH_NUM_OPS][i % ORTH_NUM_OPS].terms);
        orth_mem_free(ctx, c->of[i / ORTH_NUM_OPS][i % ORTH_NUM_OPS].ns);
    }
    orth_mem_free(ctx, c);
    return s;
}
