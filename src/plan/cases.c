/* cases.c -- see cases.h. */
#include "plan/cases.h"

#include <ctype.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>

#include "base/files.h"
#include "plan/cases_impl.h"

#define DOUBT 0.95             /* of the memory that is predicted: about what the measured peaks of half of the runs differ by */

/* ---- reading ---- */

/* Whether the text has the lower-case name in it, in whatever case. */
static bool has_name(const char *text, const char *name)
{
    for (; *text; text++) {
        size_t n = 0;
        while (name[n] && tolower((unsigned char)text[n]) == name[n])
            n++;
        if (!name[n])
            return true;
    }
    return false;
}

static bool has_one_of(const char *text, const char *const *names, int num)
{
    for (int i = 0; i < num; i++)
        if (has_name(text, names[i]))
            return true;
    return false;
}

static bool mentions(const json_t *c, const char *name)
{
    const char *const texts[] = {case_word(c, "id"), case_word(c, "family"), case_word(c, "precision"), case_word(json_object_get(c, "source"), "name")};
    for (int i = 0; i < ORTH_COUNT(texts); i++)
        if (has_name(texts[i], name))
            return true;
    return false;
}

/* Whose software it is: by what the source is called. */
static const char *system_of(const json_t *c)
{
    static const struct {
        const char *name, *system;
    } known[] = {{"llm.c", "llmc"}, {"llmc", "llmc"}, {"nanotron", "nanotron"}, {"smol", "nanotron"}, {"deepspeed", "deepspeed"},
                 {"zero3", "deepspeed"}, {"gist", "deepspeed"}, {"pytorch compiled", "compiled"}, {"compile", "fsdp"}, {"pytorch", "torch"},
                 {"torchtitan", "eager"}, {"titan", "eager"}, {"foundry", "eager"}, {"mosaic", "eager"}, {"fsdp", "eager"}, {"tinyllama", "eager"},
                 {"megatron", "megatron"}, {"nemo", "megatron"}};
    for (int i = 0; i < ORTH_COUNT(known); i++)
        if (mentions(c, known[i].name))
            return known[i].system;
    return case_number(json_object_get(c, "layout"), "zero_stage", 0) >= 3 ? "eager" : "megatron";
}

static orth_again recompute_of(const char *s)
{
    static const struct {
        const char *name;
        orth_again kind;
    } known[] = {{"full", ORTH_AGAIN_FULL}, {"selective-op", ORTH_AGAIN_OPS}, {"selective-block", ORTH_AGAIN_BLOCKS},
                 {"selective", ORTH_AGAIN_CORE}, {"gelu", ORTH_AGAIN_ACTIVATION}};
    for (int i = 0; i < ORTH_COUNT(known); i++)
        if (strcmp(s, known[i].name) == 0)
            return known[i].kind;
    return ORTH_AGAIN_NONE;
}

static void read_model(const json_t *m, orth_job *j)
{
    orth_model_config *c = &j->model;
    const bool gated = json_is_true(json_object_get(m, "glu"));
    orth_model_config_defaults(gated ? ORTH_FAMILY_LLAMA : ORTH_FAMILY_GPT2, c);
    c->layers = (int64_t)case_number(m, "layers", 0);
    c->hidden = (int64_t)case_number(m, "hidden", 0);
    c->heads = (int64_t)case_number(m, "heads", 0);
    c->kv_heads = (int64_t)case_number(m, "kv_heads", (double)c->heads);
    c->head_dim = (int64_t)case_number(m, "head_dim", 0);
    c->ffn = (int64_t)case_number(m, "ffn", 0);
    c->vocab = (int64_t)case_number(m, "vocab", 0);
    j->seq_len = c->max_seq = (int64_t)case_number(m, "seq", 0);
    c->tied = json_is_true(json_object_get(m, "tied_embeddings"));
    orth_model_config_complete(c);
}

/* newer: a device whose software hides tensor-parallel calls unless the case says otherwise. */
static void read_layout(const json_t *l, bool newer, orth_job *j)
{
    j->tp = (int32_t)case_number(l, "tp", 1);
    j->pp = (int32_t)case_number(l, "pp", 1);
    j->chunks = (int32_t)case_number(l, "vpp", 1);
    j->dp = (int32_t)case_number(l, "dp", 1);
    j->cp = (int32_t)case_number(l, "cp", 1);
    j->zero = (int32_t)case_number(l, "zero_stage", 0);
    j->sequence_parallel = j->tp > 1 && json_is_true(json_object_get(l, "sequence_parallel"));
    j->hybrid_shards = json_is_true(json_object_get(l, "hsdp"));
    const json_t *hides = json_object_get(l, "tp_overlap");
    j->hides_calls = json_is_true(hides) || (j->sequence_parallel && !json_is_false(hides) && newer);
    const json_t *flash = json_object_get(l, "flash_attention");
    j->fused_attention = json_is_true(flash) || json_is_string(flash);
    j->offload_optimizer = strcmp(case_word(l, "offload"), "optimizer") == 0;
    j->recompute = recompute_of(case_word(l, "recompute"));
    const char *s = case_word(l, "schedule");
    j->schedule = strcmp(s, "zb-1p") == 0 ? "zb-h1" : strcmp(s, "zb-2p") == 0 ? "zb-2p" : j->chunks > 1 ? "interleaved" : "1f1b";
}

/* What products are computed in that the estimate prices, and types that it does not price, in whatever part of a step they are. Computing in 32 bits is
 * not priced, as a case has no peak for it, but text that names a 16-bit type, too, has its masters or sums in 32 bits. */
static const char *const fp8_names[] = {"fp8", "float8"}, *const half_names[] = {"bf16", "bfloat16", "fp16", "float16"};
static const char *const other_names[] = {"fp64", "float64", "fp4", "float4", "fp6", "float6", "int4", "int8", "int16", "int32"};

static bool is_priced(const char *precision)
{
    return !*precision || ((has_one_of(precision, fp8_names, ORTH_COUNT(fp8_names)) || has_one_of(precision, half_names, ORTH_COUNT(half_names))) &&
                           !has_one_of(precision, other_names, ORTH_COUNT(other_names)));
}

static void read_precision(const json_t *c, orth_job *j)
{
    const char *states = case_word(json_object_get(c, "layout"), "optimizer_state"), *p = case_word(c, "precision");
    j->fp8 = has_one_of(p, fp8_names, ORTH_COUNT(fp8_names));
    const bool shards = has_name(p, "fp32 shards") || has_name(p, "fp32 master shards") || strstr(states, "fp32 params");
    /* Autocast: a 16-bit copy of each weight besides fp32 weights, gradients and moments. */
    j->recipe = has_name(p, "autocast, fp32 parameters") ? (orth_state_bytes){2, 4, 12}
              : shards ? (orth_state_bytes){4, 4, 8} : strstr(states, "bf16 adam") ? (orth_state_bytes){2, 2, 4}
              : has_name(p, "fp32 grad accumulation") ? (orth_state_bytes){2, 6, 12}
              : strcmp(system_of(c), "megatron") == 0 ? (orth_state_bytes){2, 4, 12} : (orth_state_bytes){2, 2, 12};
    j->reduced_bytes = shards && !has_name(p, "pure") ? 4 : 2;
    j->keeps_masks = j->model.family == ORTH_FAMILY_GPT2 && strcmp(system_of(c), "megatron") == 0; /* which trains GPT with dropout by default */
}

/* Multiprocessors; 0: not known. */
static double units_of(const char *gpu)
{
    static const struct {
        const char *name;
        double units;
    } known[] = {{"A100", 108}, {"A800", 108}, {"H100", 132}, {"H800", 132}, {"H200", 132}, {"B200", 148}, {"B300", 148}};
    for (int i = 0; i < ORTH_COUNT(known); i++)
        if (strstr(gpu, known[i].name))
            return known[i].units;
    return 0;
}

#define UNUSED 1               /* of a link that no rank of the case has */

/* Figures that are needed and missing are found by find_missing. */
static void read_hardware(const json_t *h, orth_hardware *out)
{
    *out = (orth_hardware){.device_memory_GiB = case_number(h, "mem_GiB", 0), .device_memory_GBps = case_number(h, "hbm_GBps", 0),
                           .device_memory_share = 0.85, .device_bf16_tflops = case_number(h, "peak_dense_bf16_TFLOPs", 0),
                           .device_fp8_tflops = case_number(h, "peak_dense_fp8_TFLOPs", 0), .device_reserved_GiB = 1.5,
                           .node_devices = case_number(h, "per_node", UNUSED), .node_GBps = case_number(h, "intranode_GBps_per_gpu_unidir", UNUSED),
                           .node_share = 0.8, .node_latency_us = 3, .network_share = 0.9, .network_latency_us = 10, .network_taper = 1,
                           .has_network = true};
    out->network_nics = out->node_devices;
    out->network_GBps = case_number(h, "internode_GBps_per_gpu_unidir", UNUSED);
    out->device_units = units_of(case_word(h, "gpu"));
    snprintf(out->device_name, sizeof out->device_name, "%s", case_word(h, "gpu"));
}

/* ---- predicting ---- */

static void say(orth_case *x, const char *why)
{
    snprintf(x->impossible, sizeof x->impossible, "%.255s", why);
}

/* What the prediction needs of the hardware and the case does not say: whatever were taken instead would decide the prediction. */
static bool find_missing(orth_case *x, const json_t *h)
{
    const double ranks = x->devices, of_a_node = case_number(h, "per_node", ranks), together = fmin(ranks, of_a_node);
    const struct {
        const char *key;
        bool is_needed;
        double ranks; /* that need it */
        const char *why;
    } figures[] = {{"mem_GiB", true, ranks, "whether it fits follows from the memory of a device"},
                   {"hbm_GBps", true, ranks, "operations between products take the time of a device's memory"},
                   {"per_node", ranks > 1, ranks, "which links connect them follows from the devices of a node"},
                   {"intranode_GBps_per_gpu_unidir", together > 1, together, "it connects those of a node"},
                   {"internode_GBps_per_gpu_unidir", ranks > of_a_node, ranks, "they are on several nodes"}};
    for (int i = 0; i < ORTH_COUNT(figures); i++)
        if (figures[i].is_needed && !json_is_number(json_object_get(h, figures[i].key))) {
            snprintf(x->impossible, sizeof x->impossible, "hardware.%s is missing, which %.0f rank%s need%s: %s", figures[i].key, figures[i].ranks,
                     figures[i].ranks == 1 ? "" : "s", figures[i].ranks == 1 ? "s" : "", figures[i].why);
            return true;
        }
    return false;
}

static orth_status estimate(orth_ctx *ctx, orth_case *x, const orth_software *software, orth_estimate *e)
{
    orth_system system;
    const orth_device_shares shares = orth_software_device(software, x->hardware.device_name);
    orth_software_system(software, system_of(x->c), &system);
    return orth_estimate_step(ctx, &x->job, &x->hardware, software, &system, &shares, e);
}

/* times: of the memory that is predicted. */
static bool fits_with(const orth_case *x, const orth_estimate *e, double times)
{
    return times * e->peak_bytes / 0x1p30 + x->hardware.device_reserved_GiB <= x->hardware.device_memory_GiB;
}

static bool fits(const orth_case *x, const orth_estimate *e)
{
    return fits_with(x, e, 1.05);
}

/* Micro-batches of b sequences in a step of a rank. Of what is not given one is taken. */
static double micro_batches(const json_t *layout, int32_t dp, int64_t b)
{
    const double global = case_number(layout, "global_batch_seqs", 0);
    return case_number(layout, "grad_accum", global > 0 ? global / ((double)dp * (double)b) : 1);
}

/* 0: it is chosen. */
static int64_t micro_batch_given(const json_t *layout)
{
    const double global = case_number(layout, "global_batch_seqs", 0), accum = case_number(layout, "grad_accum", 0);
    return (int64_t)case_number(layout, "micro_batch", accum > 0 ? global / (case_number(layout, "dp", 1) * accum) : 0);
}

/* One micro-batch and number of chunks. *any: one was tried before; the first is kept until a better one comes. */
static orth_status try_one(orth_ctx *ctx, orth_case *x, const orth_software *software, int64_t b, int32_t chunks, double batches, bool *any)
{
    orth_estimate e;
    orth_job *j = &x->job;
    j->micro_batch = b;
    j->num_micro_batches = (int64_t)fmax(1, floor(batches + 0.5));
    j->chunks = chunks;
    if (chunks > 1 && j->num_micro_batches % j->pp != 0) {
        if (*any)
            return ORTH_OK;
        j->chunks = 1;
    }
    if (strcmp(j->schedule, "1f1b") == 0 || strcmp(j->schedule, "interleaved") == 0)
        j->schedule = j->chunks > 1 ? "interleaved" : "1f1b";
    if (*any && batches != floor(batches))
        return ORTH_OK;
    ORTH_TRY(estimate(ctx, x, software, &e));
    const double tokens = (double)(j->num_micro_batches * b * j->seq_len) * j->dp;
    if (!*any || (fits(x, &e) && (!fits(x, &x->e) || tokens / e.step_s > x->tokens / x->e.step_s))) {
        x->e = e;
        x->tokens = tokens;
    }
    *any = true;
    return ORTH_OK;
}

/* With what is given, or what is fastest among those that fit; if none does, the least. */
static orth_status choose(orth_ctx *ctx, orth_case *x, const orth_software *software, const json_t *layout)
{
    const int64_t given = micro_batch_given(layout);
    const int32_t chunks = (int32_t)case_number(layout, "vpp", 0), most = chunks ? chunks : x->job.pp > 1 ? 8 : 1;
    bool any = false;
    for (int64_t b = given ? given : 1; b <= (given ? given : 16); b *= 2)
        for (int32_t v = chunks ? chunks : 1; v <= most; v++)
            if (v == 1 || chunks || x->job.model.layers % (v * x->job.pp) == 0)
                ORTH_TRY(try_one(ctx, x, software, b, v, micro_batches(layout, x->job.dp, b), &any));
    return ORTH_OK;
}

/* Recomputation that the source does not say: the least with which the run may fit, which is the fastest. Plans of other software's memory err to both
 * sides, so a run that was measured is given the doubt. */
static orth_status choose_recompute(orth_ctx *ctx, orth_case *x, const orth_software *software, const json_t *layout)
{
    static const orth_again kinds[] = {ORTH_AGAIN_NONE, ORTH_AGAIN_CORE, ORTH_AGAIN_FULL};
    if (*case_word(layout, "recompute"))
        return choose(ctx, x, software, layout);
    for (int k = 0; k < ORTH_COUNT(kinds); k++) {
        if (kinds[k] == ORTH_AGAIN_CORE && x->job.fused_attention)
            continue; /* it keeps no scores */
        x->job.recompute = kinds[k];
        ORTH_TRY(choose(ctx, x, software, layout));
        if (fits_with(x, &x->e, DOUBT))
            break;
    }
    return ORTH_OK;
}

static orth_status predict(orth_ctx *ctx, orth_case *x, const orth_software *software)
{
    const json_t *m = json_object_get(x->c, "model"), *l = json_object_get(x->c, "layout"), *h = json_object_get(x->c, "hardware");
    if (strcmp(case_word(m, "arch"), "moe") == 0) {
        say(x, "a mixture of experts: not supported by this version");
        return ORTH_OK;
    }
    if (json_object_get(m, "mla") && !json_is_null(json_object_get(m, "mla")) && !json_is_false(json_object_get(m, "mla"))) {
        say(x, "multi-latent attention: not supported by this version");
        return ORTH_OK;
    }
    if (!is_priced(case_word(x->c, "precision"))) {
        snprintf(x->impossible, sizeof x->impossible, "precision=\"%.60s\": not supported: bf16, fp16 and fp8 are, and no other types beside them but fp32",
                 ORTH_SHOWN(case_word(x->c, "precision")));
        return ORTH_OK;
    }
    read_model(m, &x->job);
    read_hardware(h, &x->hardware);
    read_layout(l, x->hardware.device_fp8_tflops > 0 && strcmp(system_of(x->c), "megatron") == 0, &x->job);
    read_precision(x->c, &x->job);
    const orth_model_config *c = &x->job.model;
    const int64_t pad = 128 * x->job.tp;
    x->job.model.vocab = (c->vocab + pad - 1) / pad * pad;
    if (c->layers < 1 || c->hidden < 1 || c->heads < 1 || c->vocab < 1 || x->job.seq_len < 1) {
        say(x, "layers, hidden, heads, vocab and seq must be given");
        return ORTH_OK;
    }
    if (c->kv_heads < 1 || c->heads % c->kv_heads) {
        say(x, "kv_heads does not divide heads");
        return ORTH_OK;
    }
    if (c->heads % x->job.tp || x->job.seq_len % x->job.cp || x->job.dp < 1 || x->job.pp < 1 || x->job.pp > c->layers) {
        say(x, "tp does not divide heads, cp does not divide seq, or pp exceeds layers");
        return ORTH_OK;
    }
    if (x->job.fp8 && x->hardware.device_fp8_tflops == 0) {
        say(x, "fp8 on a device without");
        return ORTH_OK;
    }
    x->devices = (double)x->job.dp * x->job.tp * x->job.pp * x->job.cp;
    if (find_missing(x, h))
        return ORTH_OK;
    if (choose_recompute(ctx, x, software, l) != ORTH_OK) {
        say(x, ctx->error.message);
        const orth_status s = ctx->error.code;
        orth_ctx_clear_error(ctx);
        return s == ORTH_ERR_NOMEM ? s : ORTH_OK;
    }
    x->fits = fits(x, &x->e);
    x->speed = x->tokens / x->e.step_s / x->devices;
    const double square = 6.0 * x->tokens * (double)(c->layers * c->heads * c->head_dim * x->job.seq_len);
    const double peak = 1e12 * x->hardware.device_bf16_tflops * x->devices * x->e.step_s;
    x->mfu = (x->e.flops + square) / peak;
    const bool core = x->job.recompute == ORTH_AGAIN_CORE && !x->job.fused_attention;
    const double again = x->job.recompute == ORTH_AGAIN_FULL ? square / 3 : core ? square * 2 / 3 : 0; /* of FULL the causal half is in hardware_flops */
    x->hfu = (x->e.hardware_flops + square + again) / peak;
    const double measured = case_number(json_object_get(x->c, "derived"), "tokens_per_s_per_gpu", NAN);
    x->tokens_per_s = measured;
    x->peak_GiB = case_number(json_object_get(x->c, "measured"), "peak_mem_GiB", NAN);
    x->mfu_points = case_number(json_object_get(x->c, "derived"), "mfu_vs_bf16_peak_pct", NAN);
    x->error = measured / x->speed - 1;
    case_judge(x);
    return ORTH_OK;
}

/* ---- all ---- */

static orth_status predict_all(orth_ctx *ctx, const char *path, const json_t *root, const orth_software *software, bool json, char **out)
{
    const int n = (int)json_array_size(root);
    orth_case *list = ORTH_NEW_ARRAY(ctx, orth_case, n);
    double *room = ORTH_NEW_ARRAY(ctx, double, n);
    orth_status s = list && room ? ORTH_OK : ORTH_ERR_NOMEM;
    for (int i = 0; s == ORTH_OK && i < n; i++) {
        const json_t *c = json_array_get(root, (size_t)i);
        list[i] = (orth_case){.c = c, .id = case_word(c, "id"), .family = case_word(c, "family"), .tier = case_word(c, "time_tier"), .group = case_word(c, "group"),
                              .memory_class = case_word(c, "memory_class"), .tokens_per_s = NAN, .peak_GiB = NAN, .error = NAN, .mfu_points = NAN,
                              .ran_out = json_is_true(json_object_get(json_object_get(c, "measured"), "oom"))};
        s = case_check(ctx, path, c);
        if (s == ORTH_OK)
            s = predict(ctx, &list[i], software);
    }
    if (s == ORTH_OK) {
        *out = json ? cases_as_json(ctx, list, n, room) : cases_as_text(ctx, list, n, room);
        s = *out ? ORTH_OK : ORTH_ERR_NOMEM;
    }
    orth_mem_free(ctx, list);
    orth_mem_free(ctx, room);
    return s;
}

orth_status orth_cases_predict(orth_ctx *ctx, const char *path, const orth_software *software, bool json, char **out)
{
    json_error_t error;
    char *text;
    size_t bytes;
    ORTH_TRY(orth_file_read_named(ctx, path, &text, &bytes));
    json_t *root = json_loadb(text, bytes, JSON_REJECT_DUPLICATES, &error);
    orth_mem_free(ctx, text);
    orth_status s;
    if (!json_is_array(root))
        s = ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s:%d:%d: %s", path, root ? 1 : error.line, root ? 1 : error.column,
                      root ? "is not a list of cases" : error.text);
    else
        s = predict_all(ctx, path, root, software, json, out);
    json_decref(root);
    return s;
}
