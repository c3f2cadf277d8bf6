/* import_parts.c -- keys here that several keys of another program decide together. Each function below is about one of them; it does nothing where
 * its parts are not given. Keys that rows set by themselves are in the configuration already. Numbers and switches are in import_values.c, ranks and
 * batches in import_batch.c, the optimizer and its schedule in import_optimizer.c, the model in import_model.c, layers of stages in import_stages.c. */
#include "tools/import_impl.h"
#include "model/config.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- precision ---- */

/* A section of DeepSpeed's with other keys, but without the one that switches it on. */
static orth_status say_off(orth_importer *x, const char *section)
{
    const char *enabled = orth_arena_printf(x->ctx, &x->arena, "%s.enabled", section), *place = orth_import_place(x, section);
    if (!enabled || !place)
        return ORTH_ERR_NOMEM;
    const bool is_said = orth_import_is_given(x, enabled); /* looked for once: there may be very many keys */
    for (const orth_import_pair *p = x->first; p && !is_said; p = p->next)
        if (orth_import_is_in(p, section)) {
            orth_import_unused(x, place, "without its key enabled it is off");
            return ORTH_OK;
        }
    return ORTH_OK;
}

/* Two names of one switch. */
static orth_status check_older_name(orth_importer *x, const orth_import_pair *bf16, const orth_import_pair *older)
{
    const bool on = orth_import_is_true(bf16), both = bf16 && older && orth_import_is_switch(older);
    if (!both || on == orth_import_is_true(older) || orth_import_stays(x->cfg, "precision.compute"))
        return ORTH_OK;
    return orth_import_contradict(x, on ? bf16 : older, on ? older : bf16, "precision.compute", "bf16", "not");
}

/* Accelerate's fp8 runs under autocast in bf16 (mixed_precision of its accelerator.py). */
static orth_status set_fp8_autocast(orth_importer *x)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_fp8_autocast);
    if (!p)
        return ORTH_OK;
    ORTH_TRY(orth_import_set(x, p->place, "precision.compute", "bf16"));
    return orth_import_set(x, p->place, "precision.products", "fp8_delayed");
}

static orth_status set_precision(orth_importer *x)
{
    static const char *const sections[] = {"bf16", "fp16", "bfloat16"};
    const orth_import_pair *bf16 = orth_import_find(x, ORTH_PART_bf16), *fp16 = orth_import_find(x, ORTH_PART_fp16);
    const orth_import_pair *older = x->tool == ORTH_TOOL_deepspeed ? orth_import_at(x, "bfloat16.enabled") : NULL; /* an older name of bf16.enabled */
    for (int i = 0; x->tool == ORTH_TOOL_deepspeed && i < ORTH_COUNT(sections); i++)
        ORTH_TRY(say_off(x, sections[i]));
    if (orth_import_is_true(bf16) && orth_import_is_true(fp16))
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s and %s are both true", bf16->place, fp16->path);
    if (orth_import_is_true(fp16) && orth_import_is_true(older))
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s and bfloat16.enabled are both true", fp16->place);
    ORTH_TRY(check_older_name(x, bf16, older));
    if (orth_import_is_true(bf16))
        return orth_import_set(x, bf16->place, "precision.compute", "bf16");
    if (orth_import_is_true(fp16))
        return orth_import_set(x, fp16->place, "precision.compute", "fp16");
    return ORTH_OK;
}

/* Whether DeepSpeed runs what is read, by a configuration of its own or by the section that Accelerate makes one of. */
static bool is_of_deepspeed(const orth_importer *x)
{
    const bool section = orth_import_has(x, "distributed_type=DEEPSPEED") && !orth_import_is_given(x, "deepspeed_config.deepspeed_config_file");
    return x->tool == ORTH_TOOL_deepspeed || (x->tool == ORTH_TOOL_accelerate && section);
}

/* What DeepSpeed (communication_data_type of its engine) and Accelerate's FSDP (set_mixed_precision of its plugin) reduce gradients in unless a key
 * says otherwise: the type of the products. Accelerate has no such key. */
static orth_status set_reduction(orth_importer *x)
{
    const bool deepspeed = is_of_deepspeed(x) && !orth_import_is_given(x, "communication_data_type");
    const bool fsdp = x->tool == ORTH_TOOL_accelerate && orth_import_has(x, "distributed_type=FSDP");
    if (!(deepspeed || fsdp) || ORTH_CONFIG_IS_SET(x->cfg, precision, grad_reduce))
        return ORTH_OK;
    const char *what = orth_import_place(x, deepspeed ? "the default of communication_data_type" : "the default of FSDP");
    if (!what)
        return ORTH_ERR_NOMEM;
    if (x->cfg->precision_compute == ORTH_precision_compute_bf16 && x->cfg->numerics_mode == ORTH_numerics_mode_reproducible &&
        ORTH_CONFIG_IS_SET(x->cfg, numerics, mode))
        orth_import_unused(x, what, "gradients are reduced in bf16 there; with numerics.mode=reproducible they are in fp32");
    else if (x->cfg->precision_compute == ORTH_precision_compute_bf16)
        return orth_import_set(x, what, "precision.grad_reduce", "bf16");
    else if (x->cfg->precision_compute == ORTH_precision_compute_fp16)
        orth_import_unused(x, what, "gradients are reduced in fp16 there, in fp32 here");
    return ORTH_OK;
}

/* DeepSpeed's default follows from the stage (overlap_comm_valid of its zero/config.py); rows have it where its key may be given. */
static orth_status set_overlap(orth_importer *x)
{
    if (x->tool != ORTH_TOOL_accelerate || !is_of_deepspeed(x) || ORTH_CONFIG_IS_SET(x->cfg, comm, overlap))
        return ORTH_OK;
    const char *value = x->cfg->parallel_zero == ORTH_parallel_zero_3 ? "true" : "false";
    return orth_import_set(x, orth_import_place(x, "the default of overlap_comm"), "comm.overlap", value);
}

/* NeMo's weights are in fp32 unless its switch says that the optimizer has a copy in fp32; FSDP has no such switch, its shards are the copy. */
static orth_status set_amp_o2(orth_importer *x)
{
    static const char *const fp32 = "weights are in fp32 there, and a 16-bit copy of each is made for a product; the plan has weights in "
                                    "precision.compute with a master in fp32, as with O2";
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_amp_o2);
    const bool narrow = x->cfg->precision_compute != ORTH_precision_compute_fp32, fsdp = orth_import_is_true(orth_import_find(x, ORTH_PART_fsdp));
    if (p && !narrow)
        orth_import_unused(x, p->place, "weights are in fp32, as precision.compute is");
    else if (p && fsdp)
        orth_import_unused(x, p->place, "under FSDP the shards of the weights are in fp32, and what is gathered is in precision.compute");
    else if (p)
        orth_import_unused(x, p->place, orth_import_is_true(p) ? "weights are in precision.compute with a master in fp32, as with O2" : fp32);
    else if (x->tool == ORTH_TOOL_nemo && narrow && !fsdp && orth_import_gives(x, "precision.compute"))
        orth_log(x->ctx, ORTH_LOG_INFO, "import", "%s: without model.megatron_amp_O2 %s", ORTH_SHOWN(x->name), fp32);
    return ORTH_OK;
}

/* NeMo reduces gradients in fp32 but where its distributed optimizers, or its FSDP, are told otherwise. */
static orth_status set_grad_sync(orth_importer *x)
{
    const orth_import_pair *of_optim = orth_import_find(x, ORTH_PART_grad_sync), *of_fsdp = orth_import_find(x, ORTH_PART_fsdp_grad_sync);
    const bool fsdp = orth_import_is_true(orth_import_find(x, ORTH_PART_fsdp)), distributed = !fsdp && x->cfg->parallel_zero == ORTH_parallel_zero_1;
    if (of_fsdp && !fsdp)
        orth_import_unused(x, of_fsdp->place, "model.fsdp is not true");
    if (of_optim && !distributed)
        orth_import_unused(x, of_optim->place, "only distributed_fused_adam and mcore_distributed_optim have it");
    const orth_import_pair *p = fsdp ? of_fsdp : distributed ? of_optim : NULL;
    if (!p)
        return ORTH_OK;
    return orth_import_set(x, p->place, "precision.grad_reduce", strncmp(p->value, "bf16", 4) == 0 ? "bf16" : "fp32");
}

/* FSDP keeps parameters, their gradients and the optimizer's state in the host's memory together. */
static orth_status set_offload(orth_importer *x)
{
    static const char *const keys[] = {"memory.offload_optimizer", "memory.offload_params", "memory.offload_gradients"};
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_offload_all);
    for (int i = 0; orth_import_is_true(p) && i < ORTH_COUNT(keys); i++)
        ORTH_TRY(orth_import_set(x, p->place, keys[i], "host"));
    return ORTH_OK;
}

/* What the device updates has its weight and gradient there. */
static orth_status set_offload_ratio(orth_importer *x)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_offload_ratio);
    if (!p)
        return ORTH_OK;
    if (x->cfg->memory_offload_optimizer == ORTH_memory_offload_optimizer_none)
        orth_import_unused(x, p->place, "the optimizer stays");
    else if (x->cfg->memory_offload_params != ORTH_memory_offload_params_none || x->cfg->memory_offload_gradients != ORTH_memory_offload_gradients_none)
        orth_import_unused(x, p->place, "weights or gradients leave, and all of the optimizer's state with them");
    else
        return orth_import_set(x, p->place, "memory.offload_ratio", p->value);
    return ORTH_OK;
}

/* Megatron-LM never moves the last layer's activations, which the backward needs at once. Here all layers' leave, or none. A number that is not known, as
 * of a script whose branch is not taken, is none. */
static orth_status set_offload_layers(orth_importer *x)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_offload_layers);
    char why[224];
    if (!p)
        return ORTH_OK;
    const double given = orth_import_not_whole(x, p->value) ? 0 : strtod(p->value, NULL);
    orth_model_config model = {.layers = x->cfg->model_layers};
    const bool given_here = ORTH_CONFIG_IS_SET(x->cfg, model, layers);
    if (!given_here && x->cfg->model_preset[0])
        ORTH_TRY(orth_model_preset(x->ctx, x->cfg->model_preset, &model));
    else if (!given_here) {
        orth_import_unused(x, p->place, "the number of layers is not given here: give memory.offload_activations=host if those of all leave");
        return ORTH_OK;
    }
    if (given >= 1 && given >= (double)model.layers - 1)
        return orth_import_set(x, p->place, "memory.offload_activations", "host");
    snprintf(why, sizeof why, "the activations of %.20s of %" PRId64 " layers do not leave alone: give memory.offload_activations=host if those of all leave",
             ORTH_SHOWN(p->value), model.layers);
    orth_import_unused(x, p->place, why);
    return ORTH_OK;
}

const orth_import_fp8_words orth_import_fp8[ORTH_precision_products_fp8_delayed + 1] = {[ORTH_precision_products_fp8_tensor] = {"tensorwise", "hybrid"},
                                                 [ORTH_precision_products_fp8_block] = {"blockwise", "e4m3"},
                                                 [ORTH_precision_products_mxfp8] = {"mxfp8", "e4m3"},
                                                 [ORTH_precision_products_fp8_delayed] = {"delayed", "hybrid"}};

/* Their history has one step by default, ours many. */
static orth_status set_delayed(orth_importer *x, const char *place)
{
    const orth_import_pair *history = orth_import_find(x, ORTH_PART_amax_history), *algo = orth_import_find(x, ORTH_PART_amax_algo);
    ORTH_TRY(orth_import_set(x, history ? history->place : place, "precision.amax_history_len", history ? history->value : "1"));
    return orth_import_set(x, algo ? algo->place : place, "precision.amax_compute_algo", algo ? algo->value : "most_recent");
}

/* A recipe counts with a format only; without a recipe it is delayed. */
static orth_status set_products(orth_importer *x)
{
    const orth_import_pair *format = orth_import_find(x, ORTH_PART_fp8_format), *recipe = orth_import_find(x, ORTH_PART_fp8_recipe);
    static const orth_import_part beside[] = {ORTH_PART_fp8_recipe, ORTH_PART_amax_history, ORTH_PART_amax_algo};
    if (!format) {
        orth_import_unused_parts(x, beside, ORTH_COUNT(beside), "fp8_format is not given");
        return ORTH_OK;
    }
    const char *name = recipe ? recipe->value : "delayed";
    for (int i = 0; i < ORTH_COUNT(orth_import_fp8); i++) {
        const orth_import_fp8_words *w = &orth_import_fp8[i];
        if (!w->recipe || strcmp(w->recipe, name) != 0 || strcmp(w->format, format->value) != 0)
            continue;
        if (i == ORTH_precision_products_fp8_delayed)
            ORTH_TRY(set_delayed(x, format->place));
        else
            orth_import_unused_parts(x, beside + 1, ORTH_COUNT(beside) - 1, "only delayed scaling has a history");
        return orth_import_set(x, format->place, "precision.products", orth_option_choice(ORTH_OPT_precision_products, i));
    }
    return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s with the recipe %s: there are delayed and tensorwise with hybrid, blockwise and mxfp8 with e4m3",
                     format->place, ORTH_SHOWN(format->value), ORTH_SHOWN(name));
}

/* Megatron-LM and NeMo take fp8 without a 16-bit type beside it; who means bf16 has left a key out. */
static orth_status warn_of_wide_rest(orth_importer *x)
{
    const orth_config *c = x->cfg;
    const orth_import_pair *p = orth_import_giving(x, "precision.products");
    if (p && c->precision_products != ORTH_precision_products_same && c->precision_compute == ORTH_precision_compute_fp32)
        orth_log(x->ctx, ORTH_LOG_WARN, "import", "%s=%s: products are %s, and all else is fp32, as no key says bf16 or fp16", ORTH_SHOWN(p->place),
                 ORTH_SHOWN(p->value), orth_option_choice(ORTH_OPT_precision_products, (int)c->precision_products));
    return ORTH_OK;
}

static orth_status set_loss_scale(orth_importer *x)
{
    const orth_import_pair *fixed = orth_import_find(x, ORTH_PART_static_scale), *first = orth_import_find(x, ORTH_PART_first_scale);
    const orth_import_pair *power = orth_import_find(x, ORTH_PART_scale_power);
    static const orth_import_part moving[] = {ORTH_PART_first_scale, ORTH_PART_scale_power};
    int64_t power_of_2;
    if (fixed) {
        orth_import_unused_parts(x, moving, ORTH_COUNT(moving), "the loss scale is a fixed one");
        ORTH_TRY(orth_import_set(x, fixed->place, "precision.loss_scale", "static"));
        return orth_import_set(x, fixed->place, "precision.loss_scale_start", fixed->value);
    }
    if (first)
        return orth_import_set(x, first->place, "precision.loss_scale_start", first->value);
    if (!power)
        return ORTH_OK;
    ORTH_TRY(orth_import_whole(x, ORTH_PART_scale_power, 0, 0, &power_of_2));
    if (power_of_2 > 100)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%" PRId64 ": must be at most 100", power->place, power_of_2);
    return orth_import_set_real(x, power->place, "precision.loss_scale_start", exp2((double)power_of_2));
}

/* ---- layout ---- */

const char *const orth_import_sharding[] = {"no_shard", "optim", "optim_grads", "optim_grads_params"};

static orth_status set_sharding(orth_importer *x)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_sharding);
    for (int stage = 0; p && stage < ORTH_COUNT(orth_import_sharding); stage++)
        if (strcmp(p->value, orth_import_sharding[stage]) == 0)
            return orth_import_set_int(x, p->place, "parallel.zero", stage);
    return p ? ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: there are no_shard, optim, optim_grads and optim_grads_params", p->place, ORTH_SHOWN(p->value))
             : ORTH_OK;
}

/* What NeMo shards: FSDP all or all but the weights, otherwise its optimizer by its name. */
static orth_status set_sharding_of_nemo(orth_importer *x)
{
    static const char *const distributed[] = {"distributed_fused_adam", "mcore_distributed_optim"};
    const orth_import_pair *fsdp = orth_import_find(x, ORTH_PART_fsdp), *shards = orth_import_find(x, ORTH_PART_fsdp_shards);
    const orth_import_pair *optim = orth_import_find(x, ORTH_PART_nemo_optim);
    if (orth_import_is_true(fsdp)) {
        if (optim)
            orth_import_unused(x, optim->place, "model.fsdp says what is sharded");
        return orth_import_set(x, shards ? shards->place : fsdp->place, "parallel.zero", shards && strcmp(shards->value, "grad") == 0 ? "2" : "3");
    }
    if (shards)
        orth_import_unused(x, shards->place, "model.fsdp is not true");
    if (optim)
        return orth_import_set(x, optim->place, "parallel.zero", orth_import_is_word(optim, distributed, ORTH_COUNT(distributed)) ? "1" : "0");
    return fsdp ? orth_import_set(x, fsdp->place, "parallel.zero", "0") : ORTH_OK;
}

/* FSDP shards over the ranks of a machine and has a replica on each; on one machine over all. */
static orth_status set_hybrid(orth_importer *x)
{
    static const char *const of_3[] = {"HYBRID_SHARD", "4"};
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_hybrid);
    const int64_t dp = x->cfg->parallel_dp;
    int64_t machines;
    /* Accelerate starts as many processes on each machine. */
    if (!p && !(x->tool == ORTH_TOOL_accelerate && orth_import_gives(x, "parallel.dp") && !orth_import_stays(x->cfg, "parallel.dp"))) {
        static const orth_import_part nodes[] = {ORTH_PART_nodes};
        orth_import_unused_parts(x, nodes, x->tool == ORTH_TOOL_accelerate, "no number depends on the machines without HYBRID_SHARD");
        return ORTH_OK;
    }
    ORTH_TRY(orth_import_count(x, ORTH_PART_nodes, 1, &machines));
    if (dp % machines != 0)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%" PRId64 " does not divide the data-parallel ranks, parallel.dp=%" PRId64,
                         orth_import_find(x, ORTH_PART_nodes)->place, machines, dp);
    if (!p)
        return ORTH_OK;
    ORTH_TRY(orth_import_set(x, p->place, "parallel.zero", orth_import_is_word(p, of_3, ORTH_COUNT(of_3)) ? "3" : "2"));
    return machines > 1 ? orth_import_set_int(x, p->place, "parallel.shard_group", dp / machines) : ORTH_OK;
}

/* Its shards within a group (MiCS) are of stage 3; under another stage DeepSpeed passes over their size. */
static orth_status set_mics(orth_importer *x)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_mics);
    if (!p)
        return ORTH_OK;
    if (x->cfg->parallel_zero == ORTH_parallel_zero_3)
        return orth_import_set(x, p->place, "parallel.shard_group", p->value);
    orth_import_unused(x, p->place, "DeepSpeed has such groups under ZeRO 3 only");
    return ORTH_OK;
}

static orth_status set_shards(orth_importer *x)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_replicas);
    int64_t replicas;
    ORTH_TRY(orth_import_count(x, ORTH_PART_replicas, 1, &replicas));
    if (replicas == 1)
        return ORTH_OK;
    if (x->cfg->parallel_dp % replicas != 0)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%" PRId64 " does not divide the data-parallel ranks, parallel.dp=%" PRId64, p->place, replicas,
                         x->cfg->parallel_dp);
    return orth_import_set_int(x, p->place, "parallel.shard_group", x->cfg->parallel_dp / replicas);
}

/* A part that means something under ZeRO 3 only, or NULL. */
static const orth_import_pair *find_of_zero_3(orth_importer *x, orth_import_part part)
{
    const orth_import_pair *p = orth_import_find(x, part);
    if (!p || x->cfg->parallel_zero == ORTH_parallel_zero_3)
        return p;
    orth_import_unused(x, p->place, "only ZeRO 3 gathers parameters for each use");
    return NULL;
}

/* Which parameters stay whole: DeepSpeed's distance is 1e9 by default. */
static orth_status set_whole(orth_importer *x)
{
    const orth_import_pair *whole = find_of_zero_3(x, ORTH_PART_keep_whole), *reuse = find_of_zero_3(x, ORTH_PART_reuse);
    const orth_import_pair *live = find_of_zero_3(x, ORTH_PART_live);
    if (whole)
        ORTH_TRY(orth_import_set(x, whole->place, "parallel.keep_whole", whole->value));
    if (reuse || live)
        ORTH_TRY(orth_import_set(x, reuse ? reuse->place : live->place, "parallel.max_reuse_distance", reuse ? reuse->value : "1000000000"));
    return live ? orth_import_set(x, live->place, "parallel.max_live", live->value) : ORTH_OK;
}

/* There only elements are counted, here blocks, too. */
static orth_status set_prefetch(orth_importer *x)
{
    const orth_import_pair *p = find_of_zero_3(x, ORTH_PART_prefetch_elems);
    int64_t elems;
    ORTH_TRY(orth_import_whole(x, ORTH_PART_prefetch_elems, 0, 0, &elems));
    if (!p)
        return ORTH_OK;
    if (elems == 0)
        return orth_import_set(x, p->place, "comm.prefetch", "0");
    ORTH_TRY(orth_import_set_int(x, p->place, "comm.prefetch", 1000));
    return orth_import_set(x, p->place, "comm.prefetch_elems", p->value);
}

/* One of the classes that stands for the unit: a half of a layer, LlamaAttention and LlamaMLP for example, only where all are. All of them are
 * compared with the model when that is known. */
static orth_status unit_of_classes(orth_importer *x, const orth_import_pair *classes, char out[64])
{
    static const char between[] = ", []\"'";
    bool halves = true;
    char all[256] = "";
    for (const char *word = classes->value + strspn(classes->value, between); *word;) {
        char name[64], known[ORTH_VALUE_NAMES_MAX];
        const size_t n = strcspn(word, between), used = strlen(all);
        snprintf(name, sizeof name, "%.*s", (int)ORTH_MIN(n, sizeof name), word);
        const char *unit = orth_option_value_called("parallel.gather_unit", name);
        orth_option_value_names("parallel.gather_unit", NULL, known);
        if (!unit || used + n + 2 > sizeof all)
            return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: %s is no layer or half of one that is known here: there are %s", classes->place,
                             ORTH_SHOWN(classes->value), ORTH_SHOWN(name), known);
        if (halves)
            snprintf(out, 64, "%s", name);
        halves = halves && strcmp(unit, "half") == 0;
        snprintf(all + used, sizeof all - used, "%s%s", used ? "," : "", name);
        word += n + strspn(word + n, between);
    }
    x->cfg->wrapped_classes = orth_arena_printf(x->ctx, &x->cfg->arena, "%s", all);
    return x->cfg->wrapped_classes ? ORTH_OK : ORTH_ERR_NOMEM;
}

/* What FSDP wraps is gathered together; by size, at least 1e8 elements by default. */
static orth_status set_gather_unit(orth_importer *x)
{
    const orth_import_pair *p = find_of_zero_3(x, ORTH_PART_wrap), *classes = find_of_zero_3(x, ORTH_PART_wrap_classes);
    const orth_import_pair *least = find_of_zero_3(x, ORTH_PART_wrap_elems);
    if (!p) {
        static const orth_import_part of_policy[] = {ORTH_PART_wrap_classes, ORTH_PART_wrap_elems};
        orth_import_unused_parts(x, of_policy, classes || least ? ORTH_COUNT(of_policy) : 0, "fsdp_auto_wrap_policy is not given");
        return ORTH_OK;
    }
    const bool by_class = strcmp(p->value, "TRANSFORMER_BASED_WRAP") == 0, by_size = strcmp(p->value, "SIZE_BASED_WRAP") == 0;
    if (classes && !by_class)
        orth_import_unused(x, classes->place, "fsdp_auto_wrap_policy is not TRANSFORMER_BASED_WRAP");
    if (least && !by_size)
        orth_import_unused(x, least->place, "fsdp_auto_wrap_policy is not SIZE_BASED_WRAP");
    char unit[64] = "layer";
    if (by_class && classes && !orth_import_stays(x->cfg, "parallel.gather_unit"))
        ORTH_TRY(unit_of_classes(x, classes, unit));
    if (by_class)
        return orth_import_set(x, classes ? classes->place : p->place, "parallel.gather_unit", unit);
    if (strcmp(p->value, "NO_WRAP") == 0)
        return orth_import_set(x, p->place, "parallel.gather_unit", "model");
    if (!by_size)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: there are TRANSFORMER_BASED_WRAP, SIZE_BASED_WRAP and NO_WRAP", p->place, ORTH_SHOWN(p->value));
    int64_t elems;
    ORTH_TRY(orth_import_whole(x, ORTH_PART_wrap_elems, 0, 100000000, &elems));
    ORTH_TRY(orth_import_set(x, p->place, "parallel.gather_unit", "elements"));
    return orth_import_set_int(x, least ? least->place : p->place, "parallel.gather_size", ORTH_MAX(elems, 1));
}

static orth_status set_sequence_parallel(orth_importer *x)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_sequence_parallel);
    if (!p)
        return ORTH_OK;
    if (x->cfg->parallel_tp > 1)
        return orth_import_set(x, p->place, "parallel.sequence_parallel", p->value);
    orth_import_unused(x, p->place, "there is no tensor parallelism");
    return ORTH_OK;
}

static orth_status set_cp_kind(orth_importer *x)
{
    static const struct {
        const char *there, *here;
    } kinds[] = {{"p2p", "ring"}, {"all_gather", "all_gather"}, {"a2a", "all_to_all"}};
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_cp_kind);
    if (p && x->cfg->parallel_cp == 1 && !p->is_default)
        orth_import_unused(x, p->place, "there is no context parallelism");
    if (!p || x->cfg->parallel_cp == 1)
        return ORTH_OK;
    for (int i = 0; i < ORTH_COUNT(kinds); i++)
        if (strcmp(kinds[i].there, p->value) == 0)
            return orth_import_set(x, p->place, "parallel.cp_kind", kinds[i].here);
    return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: there are p2p, all_gather and a2a", p->place, ORTH_SHOWN(p->value));
}

/* With another granularity, or none, their programs pass over a method and a number of layers; but Megatron-LM refuses a method with the
 * selective one. */
static orth_status set_recompute_layers(orth_importer *x)
{
    static const struct {
        orth_import_part part;
        const char *key;
    } parts[] = {{ORTH_PART_recompute_method, "memory.recompute_method"}, {ORTH_PART_recompute_layers, "memory.recompute_layers"}};
    const bool selective = x->cfg->memory_recompute == ORTH_memory_recompute_selective;
    for (int i = 0; i < ORTH_COUNT(parts); i++) {
        const orth_import_pair *p = orth_import_find(x, parts[i].part);
        if (p && x->cfg->memory_recompute == ORTH_memory_recompute_full)
            ORTH_TRY(orth_import_set(x, p->place, parts[i].key, p->value));
        else if (p && selective && parts[i].part == ORTH_PART_recompute_method && x->tool == ORTH_TOOL_megatron)
            return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: Megatron-LM has no method of selective recomputation: give --recompute-granularity full, or "
                             "no method", p->place, ORTH_SHOWN(p->value));
        else if (p)
            orth_import_unused(x, p->place, "it is of full recomputation");
    }
    return ORTH_OK;
}

/* Why no inputs of layers are split; NULL: they are. */
static const char *inputs_are_not_split(const orth_config *c)
{
    if (c->parallel_tp == 1)
        return "there is no tensor parallelism";
    if (c->parallel_sequence_parallel)
        return "parallel.sequence_parallel=true splits the inputs of layers already";
    const bool keeps_inputs = c->memory_recompute == ORTH_memory_recompute_full || c->memory_recompute == ORTH_memory_recompute_sqrt;
    return keeps_inputs ? NULL : "no layer keeps its input alone: give memory.recompute=full";
}

/* DeepSpeed passes over it where nothing is checkpointed; Megatron-LM refuses its own switch there, and so do the rules. */
static orth_status set_split_inputs(orth_importer *x)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_split_inputs);
    const char *why = orth_import_is_true(p) ? inputs_are_not_split(x->cfg) : NULL;
    if (!p)
        return ORTH_OK;
    if (!why)
        return orth_import_set(x, p->place, "memory.recompute_split", p->value);
    orth_import_unused(x, p->place, why);
    return ORTH_OK;
}

/* DeepSpeed copies what recomputation keeps of a layer; all else stays. */
static orth_status set_host_checkpoints(orth_importer *x)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_host_checkpoints);
    if (!p)
        return ORTH_OK;
    if (!orth_import_is_true(p))
        return orth_import_set(x, p->place, "memory.offload_activations", "none");
    if (x->cfg->memory_recompute != ORTH_memory_recompute_none)
        return orth_import_set(x, p->place, "memory.offload_activations", "host");
    orth_import_unused(x, p->place, "nothing is recomputed: give memory.recompute=full, or memory.offload_activations=host for all activations");
    return ORTH_OK;
}

/* Chunks of a pipeline rank: their number, or the layers of each. */
static orth_status set_chunks(orth_importer *x)
{
    const orth_import_pair *of_layers = orth_import_find(x, ORTH_PART_layers_of_chunk), *p = of_layers ? of_layers : orth_import_find(x, ORTH_PART_chunks);
    const orth_import_pair *embedding = orth_import_find(x, ORTH_PART_embedding_counts), *loss = orth_import_find(x, ORTH_PART_loss_counts);
    const int64_t layers = x->cfg->model_layers + orth_import_is_true(embedding) + orth_import_is_true(loss), pp = x->cfg->parallel_pp;
    int64_t n;
    if (!p)
        return ORTH_OK;
    ORTH_TRY(orth_import_count(x, of_layers ? ORTH_PART_layers_of_chunk : ORTH_PART_chunks, 1, &n));
    if (of_layers && (n > layers || layers % (pp * n) != 0))
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%" PRId64 ": %" PRId64 " layers are no multiple of %" PRId64 " layers x %" PRId64 " pipeline stages",
                         p->place, n, layers, n, pp);
    const int64_t chunks = of_layers ? layers / (pp * n) : n;
    if (pp == 1 || chunks == 1) {
        orth_import_unused(x, p->place, pp == 1 ? "there is no pipeline" : "a pipeline rank has one chunk");
        return ORTH_OK;
    }
    ORTH_TRY(orth_import_set_int(x, p->place, "parallel.virtual_stages", chunks));
    return orth_import_set(x, p->place, "parallel.pipeline", "interleaved");
}

orth_status orth_import_combine(orth_importer *x)
{
    /* In this order: ranks come before what divides them, the warm-up before the way down, the model before its stages. */
    static orth_status (*const steps[])(orth_importer *) = {
        orth_import_check_switches, set_precision, set_fp8_autocast, set_reduction, set_overlap, set_amp_o2, set_products, warn_of_wide_rest, set_offload,
        set_offload_ratio, set_offload_layers, set_loss_scale, orth_import_batch, set_sharding, set_sharding_of_nemo, set_grad_sync, set_hybrid, set_mics,
        set_shards, set_whole, set_prefetch, set_gather_unit, set_sequence_parallel, set_recompute_layers, set_split_inputs, set_host_checkpoints,
        set_cp_kind, set_chunks, orth_import_optimizer, orth_import_model, orth_import_stages};
    for (int i = 0; i < ORTH_COUNT(steps); i++)
        ORTH_TRY(steps[i](x));
    return ORTH_OK;
}
