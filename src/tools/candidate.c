/* candidate.c -- a layout of a search as a configuration and as text. See search_space.h. */
#include <inttypes.h>

#include "parallel/pipeline/schedule.h"
#include "tools/search_space.h"

static const struct {
    orth_option_id key;
    const char *name;
} classes[ORTH_NUM_AWAY] = {[ORTH_AWAY_OPTIMIZER] = {ORTH_OPT_memory_offload_optimizer, "optimizer"},
                            [ORTH_AWAY_GRADIENTS] = {ORTH_OPT_memory_offload_gradients, "gradients"},
                            [ORTH_AWAY_PARAMS] = {ORTH_OPT_memory_offload_params, "weights"},
                            [ORTH_AWAY_ACTIVATIONS] = {ORTH_OPT_memory_offload_activations, "activations"}};

bool orth_search_fixes(const orth_config *cfg, orth_option_id id)
{
    return cfg->place[id] && strcmp(cfg->place[id], "command line") == 0;
}

int64_t orth_candidate_ranks(const orth_candidate *c)
{
    return (int64_t)c->tp * c->cp * c->pp * c->dp;
}

bool orth_candidate_offloads(const orth_candidate *c)
{
    bool any = false;
    for (int k = 0; k < ORTH_NUM_AWAY; k++)
        any = any || c->away[k] != ORTH_TIER_NONE;
    return any;
}

orth_option_id orth_away_key(orth_away a)
{
    return classes[a].key;
}

bool orth_candidate_splits_update(const orth_candidate *c)
{
    return c->away[ORTH_AWAY_GRADIENTS] == ORTH_TIER_NONE && c->away[ORTH_AWAY_PARAMS] == ORTH_TIER_NONE;
}

/* A limit of memory that is not used would be refused. */
static void put_limit(orth_config *cfg, const orth_config *base, orth_option_id id, int64_t *field, int64_t limit, bool used)
{
    *field = used ? limit : 0;
    cfg->place[id] = used ? base->place[id] : NULL;
}

void orth_candidate_put(const orth_candidate *c, const orth_config *base, orth_config *cfg)
{
    cfg->parallel_tp = c->tp;
    cfg->parallel_cp = c->cp;
    cfg->parallel_pp = c->pp;
    cfg->parallel_dp = c->dp;
    cfg->parallel_zero = (orth_option_parallel_zero)c->zero;
    cfg->parallel_shard_group = c->shard_group;
    cfg->parallel_virtual_stages = c->virtual_stages;
    cfg->train_micro_batch = c->micro_batch;
    cfg->parallel_cp_kind = (orth_option_parallel_cp_kind)c->cp_kind;
    cfg->parallel_pipeline = orth_schedule_kind_get(c->pipeline)->name;
    cfg->parallel_sequence_parallel = c->sequence_parallel;
    cfg->memory_offload_optimizer = (orth_option_memory_offload_optimizer)c->away[ORTH_AWAY_OPTIMIZER];
    cfg->memory_offload_gradients = (orth_option_memory_offload_gradients)c->away[ORTH_AWAY_GRADIENTS];
    cfg->memory_offload_params = (orth_option_memory_offload_params)c->away[ORTH_AWAY_PARAMS];
    cfg->memory_offload_activations = (orth_option_memory_offload_activations)c->away[ORTH_AWAY_ACTIVATIONS];
    cfg->memory_offload_ratio = orth_candidate_splits_update(c) ? base->memory_offload_ratio : 1;
    put_limit(cfg, base, ORTH_OPT_memory_limit_host, &cfg->memory_limit_host, base->memory_limit_host, orth_candidate_offloads(c));
    put_limit(cfg, base, ORTH_OPT_memory_limit_file, &cfg->memory_limit_file, base->memory_limit_file, orth_config_offloads_to_file(cfg));
    if (orth_search_fixes(cfg, ORTH_OPT_memory_recompute))
        return;
    cfg->memory_recompute = (orth_option_memory_recompute)c->recompute;
    cfg->memory_recompute_ops.n = 0;
    cfg->memory_recompute_layers = 1;
    cfg->memory_recompute_method = ORTH_memory_recompute_method_uniform;
}

static void chosen(orth_config *cfg, const orth_option_id *keys, int n)
{
    for (int i = 0; i < n; i++)
        cfg->place[keys[i]] = "search";
}

void orth_candidate_set(const orth_candidate *c, orth_config *cfg)
{
    static const orth_option_id keys[] = {ORTH_OPT_parallel_tp, ORTH_OPT_parallel_cp, ORTH_OPT_parallel_pp, ORTH_OPT_parallel_dp, ORTH_OPT_parallel_zero,
                                          ORTH_OPT_parallel_shard_group, ORTH_OPT_parallel_virtual_stages, ORTH_OPT_train_micro_batch,
                                          ORTH_OPT_parallel_cp_kind, ORTH_OPT_parallel_pipeline, ORTH_OPT_parallel_sequence_parallel};
    static const orth_option_id recompute[] = {ORTH_OPT_memory_recompute, ORTH_OPT_memory_recompute_ops, ORTH_OPT_memory_recompute_layers,
                                               ORTH_OPT_memory_recompute_method};
    orth_candidate_put(c, cfg, cfg);
    chosen(cfg, keys, ORTH_COUNT(keys));
    for (int k = 0; k < ORTH_NUM_AWAY; k++)
        if (!orth_search_fixes(cfg, classes[k].key))
            chosen(cfg, &classes[k].key, 1);
    if (!orth_search_fixes(cfg, ORTH_OPT_memory_recompute))
        chosen(cfg, recompute, ORTH_COUNT(recompute));
}

/* ", optimizer + gradients on the host" */
static size_t add_away(const orth_candidate *c, orth_tier tier, char *out, size_t size)
{
    size_t at = 0;
    for (int k = 0; k < ORTH_NUM_AWAY; k++)
        if (c->away[k] == (int8_t)tier)
            at += (size_t)snprintf(out + at, size - at, "%s%s", at > 0 ? " + " : ", ", classes[k].name);
    return at > 0 ? at + (size_t)snprintf(out + at, size - at, tier == ORTH_TIER_FILE ? " in a file" : " on the host") : 0;
}

void orth_candidate_text(const orth_candidate *c, char out[ORTH_CANDIDATE_MAX])
{
    size_t at = 0;
#define ADD(condition, ...) at += condition ? (size_t)snprintf(out + at, ORTH_CANDIDATE_MAX - at, __VA_ARGS__) : 0
    ADD(c->tp > 1, "tp %d%s, ", c->tp, c->sequence_parallel ? "" : " (whole sequences)");
    ADD(c->cp > 1, "cp %d %s, ", c->cp, orth_option_choice(ORTH_OPT_parallel_cp_kind, c->cp_kind));
    ADD(c->pp > 1, "pp %d %s", c->pp, orth_schedule_kind_get(c->pipeline)->name);
    ADD(c->pp > 1 && c->virtual_stages > 1, " x %d", c->virtual_stages);
    ADD(c->pp > 1, ", ");
    ADD(true, "dp %d, ", c->dp);
    ADD(c->zero > 0, "ZeRO %d", c->zero);
    ADD(c->zero > 0 && c->shard_group > 0, " in groups of %d", c->shard_group);
    ADD(c->zero > 0, ", ");
    ADD(true, "micro-batch %d", c->micro_batch);
    at += add_away(c, ORTH_TIER_HOST, out + at, ORTH_CANDIDATE_MAX - at);
    at += add_away(c, ORTH_TIER_FILE, out + at, ORTH_CANDIDATE_MAX - at);
    ADD(c->recompute != ORTH_memory_recompute_none, ", recompute %s", orth_option_choice(ORTH_OPT_memory_recompute, c->recompute));
#undef ADD
}
