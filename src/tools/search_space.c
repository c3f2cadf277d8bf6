/* search_space.c -- see search_space.h. */
#include "tools/search_space.h"

#include <inttypes.h>

#include "parallel/pipeline/schedule.h"
#include "plan/cluster.h"
#include "train/setup.h"

#define ESTIMATE_MARGIN 2       /* an estimate may be so much more than the time */
#define MAX_MICRO_BATCH 64
#define MAX_VIRTUAL 8
#define HOST_MARGIN 2           /* what a layout puts into hosts may be so many times what is guessed */

/* What is made while candidates are listed. */
typedef struct {
    orth_ctx *ctx;
    orth_search_space *s;
    orth_config keys;               /* the base with the keys of the candidate at hand, for the rules between keys */
    orth_model_dims dims;
    orth_block_costs (*one)[MAX_MICRO_BATCH + 1];   /* [num_recompute] of a rank with all of the model, by micro-batch */
    int8_t recompute[3];
    int num_recompute;
    int64_t devices;
    orth_block_costs costs;         /* guessed, of the candidates at hand */
    int8_t away[1 << ORTH_NUM_AWAY][ORTH_NUM_AWAY]; /* [num_away] what is tried with each layout */
    int num_away;
    int8_t in_files[1 << ORTH_NUM_AWAY][1 << ORTH_NUM_AWAY][ORTH_NUM_AWAY]; /* [num_away][num_in_files] the same, some or all of it in files */
    int num_in_files[1 << ORTH_NUM_AWAY];
} lister;

#define FIXED(x, section, key) orth_search_fixes((x)->s->base, ORTH_OPT_##section##_##key)
/* Whether a value may be tried: the key is free, or was given so. */
#define MAY_BE(x, section, key, value) (!FIXED(x, section, key) || (x)->s->base->section##_##key == (value))

static orth_offload offload_of(const orth_search_space *s, const orth_candidate *c)
{
    orth_offload o = s->step.offload;
    o.optimizer = (orth_tier)c->away[ORTH_AWAY_OPTIMIZER];
    o.gradients = (orth_tier)c->away[ORTH_AWAY_GRADIENTS];
    o.params = (orth_tier)c->away[ORTH_AWAY_PARAMS];
    o.activations = (orth_tier)c->away[ORTH_AWAY_ACTIVATIONS];
    o.stays = orth_candidate_splits_update(c) ? o.stays : 0;
    return o;
}

static orth_recompute recompute_of(const orth_search_space *s, const orth_candidate *c)
{
    static const orth_recompute_kind kinds[] = {[ORTH_memory_recompute_none] = ORTH_RECOMPUTE_NONE,
                                                [ORTH_memory_recompute_selective] = ORTH_RECOMPUTE_SELECTIVE,
                                                [ORTH_memory_recompute_full] = ORTH_RECOMPUTE_FULL};
    if (orth_search_fixes(s->base, ORTH_OPT_memory_recompute))
        return s->step.recompute;
    return (orth_recompute){.kind = kinds[c->recompute], .layers = 1};
}

static orth_layout layout_of(const orth_search_space *s, const orth_candidate *c)
{
    orth_layout l = s->layout;
    l.tp = c->tp;
    l.cp = c->cp;
    l.pp = c->pp;
    l.dp = c->dp;
    l.cp_kind = (orth_cp_kind)c->cp_kind;
    l.zero = c->zero;
    l.shard_group = c->shard_group;
    l.sequence_parallel = c->sequence_parallel;
    l.pipeline = orth_schedule_kind_get(c->pipeline)->name;
    l.virtual_stages = c->virtual_stages;
    l.micro_batch = c->micro_batch;
    l.parts = l.reproducible ? l.parts : orth_layout_fast_parts(&l);
    return l;
}

/* Of a host, whose ranks have more of it where there are fewer. */
static double step_of(const orth_search_space *s, const orth_candidate *c, const orth_bound *b)
{
    const double part = s->host_ranks > 0 ? (double)orth_candidate_ranks(c) / (double)s->host_ranks : 1;
    return s->no_bounds ? b->step_s * part / ESTIMATE_MARGIN : b->step_s;
}

/* What frozen parameters do not need; their activations may not be kept either. */
static void leave_out_frozen(orth_block_costs *c)
{
    for (int k = 0; k < ORTH_NUM_PIECES; k++) {
        orth_piece_cost *p = &c->piece[k];
        p->grads = p->optimizer = p->kept = p->leaves = 0;
        memset(p->at_once, 0, sizeof p->at_once);
    }
}

static const orth_hardware *cluster_of(const orth_search_space *s)
{
    return s->bounds.groups ? s->bounds.groups : s->bounds.hardware;
}

/* What a node can have of `own` bytes with this limit; 0: not known, no limit. */
static double room(size_t own, int64_t limit)
{
    return fmin(own > 0 ? (double)own : INFINITY, limit > 0 ? (double)limit : INFINITY);
}

/* Whether hosts, or their disks, cannot have what a layout puts there. */
static bool is_too_much_for_nodes(const orth_search_space *s, const orth_bound *b)
{
    const orth_hardware *h = cluster_of(s);
    return s->host_ranks == 0 && (b->node_bytes > room(orth_cluster_most_node_limit(h), s->base->memory_limit_host) ||
                                  b->node_file_bytes > room(orth_cluster_most_file_limit(h), s->base->memory_limit_file));
}

/* Bounds of a candidate by the costs of its blocks. */
static orth_status bound(orth_ctx *ctx, orth_search_space *s, const orth_block_costs *costs, const orth_layout *l, orth_candidate *c)
{
    const orth_offload offload = offload_of(s, c);
    const bool frozen = s->base->optimizer_freeze.n > 0;
    orth_block_costs own;
    orth_bound b;
    if (frozen) {
        own = *costs;
        leave_out_frozen(&own);
    }
    ORTH_TRY(orth_bound_of(ctx, &s->bounds, frozen ? &own : costs, l, &offload, &b));
    c->step_s = step_of(s, c, &b);
    c->bytes = is_too_much_for_nodes(s, &b) ? INFINITY : b.bytes;
    return ORTH_OK;
}

static orth_status add(lister *x, const orth_candidate *c, const orth_layout *l)
{
    orth_search_space *s = x->s;
    if (s->num == s->capacity) {
        const int64_t capacity = ORTH_MAX(1024, 2 * s->capacity);
        orth_candidate *more = ORTH_NEW_ARRAY(x->ctx, orth_candidate, capacity);
        if (!more)
            return ORTH_ERR_NOMEM;
        if (s->list)
            memcpy(more, s->list, (size_t)s->num * sizeof *more);
        orth_mem_free(x->ctx, s->list);
        s->list = more;
        s->capacity = capacity;
    }
    s->list[s->num] = *c;
    return bound(x->ctx, s, &x->costs, l, &s->list[s->num++]);
}

/* Whether the rules between keys hold for a candidate. */
static bool keeps_rules(lister *x, const orth_candidate *c)
{
    orth_candidate_put(c, x->s->base, &x->keys);
    return orth_config_check(x->ctx, &x->keys) == ORTH_OK;
}

static void leave_out(lister *x)
{
    orth_search_space *s = x->s;
    if (s->num_left_out++ == 0)
        memcpy(s->why_left_out, x->ctx->error.message, sizeof s->why_left_out);
    orth_ctx_clear_error(x->ctx);
}

static orth_status try_away(lister *x, orth_candidate *c, const orth_layout *l, const int8_t away[ORTH_NUM_AWAY])
{
    memcpy(c->away, away, sizeof c->away);
    if (keeps_rules(x, c))
        return add(x, c, l);
    leave_out(x);
    return ORTH_OK;
}

/* Whether the hosts may have too little for what the candidate puts there. */
static orth_status may_crowd_hosts(lister *x, const orth_candidate *c, const orth_layout *l, bool *may)
{
    const orth_offload offload = offload_of(x->s, c);
    orth_block_costs costs = x->costs;
    double most;
    int k = 0;
    while (x->recompute[k] != c->recompute)
        k++;
    costs.piece[ORTH_PIECE_LAYER].leaves = x->one[k][c->micro_batch].piece[ORTH_PIECE_LAYER].leaves / (double)(l->cp * (l->sequence_parallel ? l->tp : 1));
    ORTH_TRY(orth_bound_host_most(x->ctx, &x->s->bounds, &costs, l, &offload, &most));
    *may = HOST_MARGIN * most > room(orth_cluster_least_node_limit(cluster_of(x->s)), x->s->base->memory_limit_host);
    return ORTH_OK;
}

static orth_status try_layout(lister *x, orth_candidate c)
{
    char why[ORTH_MESSAGE_MAX];
    const orth_layout l = layout_of(x->s, &c);
    x->s->num_tried += x->num_away;
    if (orth_layout_next_broken(&l, &x->dims, 0, why, sizeof why) >= 0) {
        if (!x->s->why[0])
            memcpy(x->s->why, why, sizeof why);
        return ORTH_OK;
    }
    for (int k = 0; k < x->num_away; k++) {
        bool crowded = false;
        ORTH_TRY(try_away(x, &c, &l, x->away[k]));
        if (x->num_in_files[k] > 0)
            ORTH_TRY(may_crowd_hosts(x, &c, &l, &crowded));
        if (!crowded)
            continue;
        x->s->num_tried += x->num_in_files[k];
        for (int i = 0; i < x->num_in_files[k]; i++)
            ORTH_TRY(try_away(x, &c, &l, x->in_files[k][i]));
    }
    return ORTH_OK;
}

/* Of a key that is free: 1f1b alone stands for all schedules of one stage, and for gpipe where there is one micro-batch. */
static bool is_schedule_tried(const lister *x, const orth_candidate *c, const orth_schedule_kind *kind)
{
    const bool one = x->s->layout.global_batch == (int64_t)c->dp * c->micro_batch;
    if (FIXED(x, parallel, pipeline))
        return strcmp(x->s->base->parallel_pipeline, kind->name) == 0;
    if (c->pp == 1)
        return strcmp(kind->name, "1f1b") == 0;
    return !kind->async && strcmp(kind->name, "naive") != 0 && !(one && strcmp(kind->name, "gpipe") == 0);
}

static orth_status try_schedules(lister *x, orth_candidate c)
{
    for (int k = 0; orth_schedule_kind_get(k); k++) {
        const orth_schedule_kind *kind = orth_schedule_kind_get(k);
        if (!is_schedule_tried(x, &c, kind))
            continue;
        const int32_t most = (int32_t)ORTH_MIN(ORTH_MIN(kind->max_virtual, MAX_VIRTUAL), x->dims.layers / c.pp);
        c.pipeline = (int8_t)k;
        for (c.virtual_stages = c.pp == 1 ? 1 : kind->min_virtual; c.virtual_stages <= (c.pp == 1 ? 1 : most); c.virtual_stages++)
            if (MAY_BE(x, parallel, virtual_stages, c.virtual_stages))
                ORTH_TRY(try_layout(x, c));
    }
    return ORTH_OK;
}

/* Shards over all of dp, or over each part of it. */
static orth_status try_groups(lister *x, orth_candidate c)
{
    c.shard_group = FIXED(x, parallel, shard_group) ? (int32_t)x->s->base->parallel_shard_group : 0;
    ORTH_TRY(try_schedules(x, c));
    if (FIXED(x, parallel, shard_group) || c.zero == 0)
        return ORTH_OK;
    for (c.shard_group = 2; c.shard_group < c.dp; c.shard_group++)
        if (c.dp % c.shard_group == 0)
            ORTH_TRY(try_schedules(x, c));
    return ORTH_OK;
}

/* Layouts that have the block costs at hand. */
static orth_status try_meshes(lister *x, orth_candidate c)
{
    const int64_t left = x->devices / ((int64_t)c.tp * c.cp);
    const int64_t zero = FIXED(x, parallel, zero) ? x->s->layout.zero : -1;
    for (c.pp = 1; c.pp <= ORTH_MIN(left, x->dims.layers); c.pp++) {
        c.dp = (int32_t)(left / c.pp);
        if (left % c.pp != 0 || !MAY_BE(x, parallel, pp, c.pp) || !MAY_BE(x, parallel, dp, c.dp) ||
            x->s->layout.global_batch % ((int64_t)c.dp * c.micro_batch) != 0)
            continue;
        for (c.zero = 0; c.zero <= (c.dp > 1 || zero >= 0 ? 3 : 0); c.zero++)
            if (zero < 0 || zero == c.zero)
                ORTH_TRY(try_groups(x, c));
    }
    return ORTH_OK;
}

static orth_status try_costs(lister *x, orth_candidate c)
{
    for (int k = 0; k < x->num_recompute; k++) {
        c.recompute = x->recompute[k];
        const orth_layout l = layout_of(x->s, &c);
        orth_block_costs_scale(&x->s->bounds, &x->one[k][c.micro_batch], &l, &x->costs);
        c.costs = x->s->num_costs++;
        ORTH_TRY(try_meshes(x, c));
    }
    return ORTH_OK;
}

/* Each with and without sequence parallelism. */
static orth_status try_micro_batches(lister *x, orth_candidate c)
{
    const int64_t batch = x->s->layout.global_batch;
    for (c.micro_batch = 1; c.micro_batch <= ORTH_MIN(batch, MAX_MICRO_BATCH); c.micro_batch++) {
        if (batch % c.micro_batch != 0 || !MAY_BE(x, train, micro_batch, c.micro_batch))
            continue;
        for (int sp = 0; sp < (c.tp > 1 ? 2 : 1); sp++) {
            c.sequence_parallel = sp;
            if (MAY_BE(x, parallel, sequence_parallel, c.sequence_parallel))
                ORTH_TRY(try_costs(x, c));
        }
    }
    return ORTH_OK;
}

static orth_status try_all(lister *x)
{
    orth_candidate c = {.plan = -1, .virtual_stages = 1};
    for (c.tp = 1; c.tp <= ORTH_MIN(x->devices, x->dims.heads); c.tp++) {
        if (x->devices % c.tp != 0 || x->dims.heads % c.tp != 0 || !MAY_BE(x, parallel, tp, c.tp))
            continue;
        for (c.cp = 1; c.cp <= x->devices / c.tp; c.cp++) {
            if (x->devices / c.tp % c.cp != 0 || !MAY_BE(x, parallel, cp, c.cp) || (c.cp > 1 && x->s->layout.seq_len % (2 * c.cp) != 0))
                continue;
            for (c.cp_kind = 0; c.cp_kind <= (c.cp > 1 || FIXED(x, parallel, cp_kind) ? ORTH_CP_ALL_TO_ALL : 0); c.cp_kind++)
                if (MAY_BE(x, parallel, cp_kind, (orth_option_parallel_cp_kind)c.cp_kind))
                    ORTH_TRY(try_micro_batches(x, c));
        }
    }
    return ORTH_OK;
}

/* What guesses start from. */
static orth_status read_ones(lister *x, int k)
{
    orth_candidate c = {.tp = 1, .cp = 1, .pp = 1, .dp = 1, .virtual_stages = 1, .recompute = x->recompute[k]};
    const orth_recompute r = recompute_of(x->s, &c);
    for (c.micro_batch = 1; c.micro_batch <= MAX_MICRO_BATCH; c.micro_batch++) {
        if (x->s->layout.global_batch % c.micro_batch != 0 || !MAY_BE(x, train, micro_batch, c.micro_batch))
            continue;
        const orth_layout l = layout_of(x->s, &c);
        ORTH_TRY(orth_block_costs_read(x->ctx, &x->s->bounds, &l, &r, &x->one[k][c.micro_batch]));
    }
    return ORTH_OK;
}

/* On a host that ranks share, which has no memory beside theirs, nothing is tried but what the base says. */
static bool is_away_fixed(const lister *x, int k)
{
    return x->s->host_ranks > 0 || orth_search_fixes(x->s->base, orth_away_key((orth_away)k));
}

/* bits: of the classes that are away. What depends on the optimizer's needs that (config/rules.c). */
static bool is_tried(const lister *x, unsigned bits, const int8_t base[ORTH_NUM_AWAY])
{
    const bool optimizer = bits & 1u << ORTH_AWAY_OPTIMIZER, gradients = bits & 1u << ORTH_AWAY_GRADIENTS, params = bits & 1u << ORTH_AWAY_PARAMS;
    for (int k = 0; k < ORTH_NUM_AWAY; k++)
        if (is_away_fixed(x, k) && (bits >> k & 1) != (base[k] != ORTH_TIER_NONE))
            return false;
    const bool splits = x->s->base->memory_offload_ratio < 1 && orth_search_fixes(x->s->base, ORTH_OPT_memory_offload_ratio);
    if ((!optimizer || splits) && (gradients || params))
        return false;
    return !params || gradients || is_away_fixed(x, ORTH_AWAY_GRADIENTS);
}

static void find_in_files(lister *x, int k)
{
    for (unsigned bits = 1; bits < 1u << ORTH_NUM_AWAY; bits++) {
        int8_t *files = x->in_files[k][x->num_in_files[k]];
        bool moves = true;
        memcpy(files, x->away[k], sizeof x->away[k]);
        for (int i = 0; i < ORTH_NUM_AWAY; i++) {
            moves = moves && (!(bits >> i & 1) || (files[i] == ORTH_TIER_HOST && !is_away_fixed(x, i)));
            files[i] = bits >> i & 1 ? (int8_t)ORTH_TIER_FILE : files[i];
        }
        x->num_in_files[k] += moves;
    }
}

static void find_away(lister *x)
{
    const orth_offload *o = &x->s->step.offload;
    const int8_t base[ORTH_NUM_AWAY] = {[ORTH_AWAY_OPTIMIZER] = (int8_t)o->optimizer, [ORTH_AWAY_GRADIENTS] = (int8_t)o->gradients,
                                        [ORTH_AWAY_PARAMS] = (int8_t)o->params, [ORTH_AWAY_ACTIVATIONS] = (int8_t)o->activations};
    for (unsigned bits = 0; bits < 1u << ORTH_NUM_AWAY; bits++) {
        int8_t *away = x->away[x->num_away];
        for (int k = 0; k < ORTH_NUM_AWAY; k++)
            away[k] = (int8_t)(bits >> k & 1 ? ORTH_MAX(base[k], (int8_t)ORTH_TIER_HOST) : ORTH_TIER_NONE);
        if (!is_tried(x, bits, base))
            continue;
        find_in_files(x, x->num_away);
        x->num_away++;
    }
}

/* Whether the rules between keys hold for some values of those keys that layouts have instead of the base's and that rules speak of: ZeRO, tp, offload and
 * recomputation, if no other key stands in the way. */
static bool keeps_rules_somewhere(lister *x)
{
    const orth_config *base = x->s->base;
    orth_candidate c = {.dp = 1, .virtual_stages = 1, .sequence_parallel = FIXED(x, parallel, sequence_parallel) && base->parallel_sequence_parallel};
    c.cp = FIXED(x, parallel, cp) ? (int32_t)base->parallel_cp : 1;
    c.pp = FIXED(x, parallel, pp) ? (int32_t)base->parallel_pp : 1;
    c.micro_batch = FIXED(x, train, micro_batch) ? (int32_t)base->train_micro_batch : 1;
    while (strcmp(orth_schedule_kind_get(c.pipeline)->name, "1f1b") != 0)
        c.pipeline++;
    for (int i = 0; i < 4 * 2 * x->num_away * x->num_recompute; i++) {
        const int rest = i / 8;
        c.zero = (int8_t)(FIXED(x, parallel, zero) ? x->s->layout.zero : i % 4);
        c.tp = FIXED(x, parallel, tp) ? (int32_t)base->parallel_tp : 1 + i / 4 % 2;
        c.recompute = x->recompute[rest % x->num_recompute];
        memcpy(c.away, x->away[rest / x->num_recompute], sizeof c.away);
        if (keeps_rules(x, &c))
            return true;
    }
    return false;
}

/* What is wrong with the base itself, and not with the keys that layouts have instead of its own, is refused before anything is compiled. */
static orth_status check_base(lister *x)
{
    const orth_status s = orth_config_check(x->ctx, x->s->base);
    if (s == ORTH_OK || !keeps_rules_somewhere(x))
        return s; /* its error was the first, and is kept */
    orth_ctx_clear_error(x->ctx);
    return ORTH_OK;
}

static void find_recompute(lister *x)
{
    static const int8_t kinds[] = {ORTH_memory_recompute_none, ORTH_memory_recompute_selective, ORTH_memory_recompute_full};
    const bool fixed = FIXED(x, memory, recompute);
    x->num_recompute = fixed ? 1 : ORTH_COUNT(kinds);
    for (int k = 0; k < x->num_recompute; k++)
        x->recompute[k] = fixed ? (int8_t)x->s->base->memory_recompute : kinds[k];
}

static orth_status list_all(lister *x, bool fewer)
{
    find_away(x);
    find_recompute(x);
    ORTH_TRY(check_base(x));
    for (int k = 0; k < x->num_recompute; k++)
        ORTH_TRY(read_ones(x, k));
    ORTH_TRY(try_all(x));
    while (fewer && x->devices > 1 && (x->devices % 2 == 0 || x->s->host_ranks > 0)) {
        x->devices = x->devices % 2 == 0 ? x->devices / 2 : 1; /* one rank is always possible on a host */
        ORTH_TRY(try_all(x));
    }
    return ORTH_OK;
}

static orth_status find_no_bounds(orth_ctx *ctx, orth_search_space *s)
{
    const orth_mesh_options one = {.dp = 1, .tp = 1, .pp = 1, .cp = 1, .order = s->base->parallel_order};
    orth_mesh mesh;
    ORTH_TRY(orth_mesh_init(ctx, &mesh, &one));
    for (int i = 0; i < ORTH_NUM_AXES; i++)
        s->no_bounds = mesh.order[i] != (orth_axis)i ? "of another order of ranks (parallel.order)" : s->no_bounds;
    if (s->base->optimizer_freeze.n > 0)
        s->no_bounds = "of frozen parameters (optimizer.freeze)";
    if (orth_search_fixes(s->base, ORTH_OPT_memory_recompute) && s->step.recompute.kind == ORTH_RECOMPUTE_FULL && s->step.recompute.block)
        s->no_bounds = "where some layers are recomputed (memory.recompute_method=block)";
    if (s->host_ranks > 0)
        s->no_bounds = "on a measured machine";
    return ORTH_OK;
}

static orth_status make_space(orth_ctx *ctx, orth_search_space *out, const orth_config *base, const orth_model_config *model,
                              const orth_hardware *hardware, int64_t num_devices, bool fewer, int64_t host_ranks)
{
    lister x = {.ctx = ctx, .s = out, .devices = num_devices};
    *out = (orth_search_space){.base = base, .model = *model, .hardware = *hardware, .groups = *hardware, .step = orth_setup_shape(base, ORTH_MODE_TRAIN),
                               .layout = orth_setup_layout(base), .host_ranks = host_ranks};
    ORTH_TRY(find_no_bounds(ctx, out));
    out->step.freeze.num = 0; /* patterns may name layers that a small model does not have */
    x.dims = (orth_model_dims){.layers = model->layers, .hidden = model->hidden, .heads = model->heads, .kv_heads = model->kv_heads,
                               .ffn = model->ffn, .vocab = model->vocab, .tied = model->tied};
    out->hardware.mixed = NULL;
    ORTH_TRY(orth_bounds_make(ctx, &out->bounds, &out->model, &out->hardware, &out->step));
    out->bounds.groups = hardware->mixed ? &out->groups : NULL;
    x.one = orth_mem_alloc(ctx, 3 * sizeof *x.one);
    orth_status s = x.one ? orth_config_copy(ctx, &x.keys, base) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK) {
        s = list_all(&x, fewer);
        orth_config_release(ctx, &x.keys);
    }
    orth_mem_free(ctx, x.one);
    if (s != ORTH_OK)
        orth_search_space_release(ctx, out);
    return s;
}

orth_status orth_search_space_make(orth_ctx *ctx, orth_search_space *out, const orth_config *base, const orth_model_config *model,
                                   const orth_hardware *hardware, int64_t num_devices, bool fewer)
{
    return make_space(ctx, out, base, model, hardware, num_devices, fewer, 0);
}

orth_status orth_search_space_make_on_host(orth_ctx *ctx, orth_search_space *out, const orth_config *base, const orth_model_config *model,
                                           const orth_hardware *host, int64_t num_ranks)
{
    orth_hardware part = *host; /* what each of num_ranks ranks has of it */
    const double n = (double)num_ranks;
    part.has_host = false;
    part.device_fp32_tflops /= n;
    part.device_fp16_tflops /= n;
    part.device_bf16_tflops /= n;
    part.device_memory_GBps /= n;
    part.node_devices = n;
    part.node_GBps = part.device_memory_GBps / 2; /* a copy reads and writes */
    part.device_memory_share = part.device_gemm_share = part.device_attention_share = part.node_share = 1;
    part.device_launch_us = part.node_latency_us = part.device_units = 0;
    part.topology = ORTH_TOPOLOGY_SWITCH;
    return make_space(ctx, out, base, model, &part, num_ranks, true, num_ranks);
}

void orth_search_space_release(orth_ctx *ctx, orth_search_space *s)
{
    orth_bounds_release(ctx, &s->bounds);
    orth_mem_free(ctx, s->list);
    s->list = NULL;
}

static orth_status read_costs(orth_ctx *ctx, const orth_search_space *s, int64_t i, orth_block_costs *out)
{
    const orth_layout l = layout_of(s, &s->list[i]);
    const orth_recompute r = recompute_of(s, &s->list[i]);
    return orth_block_costs_read(ctx, &s->bounds, &l, &r, out);
}

orth_status orth_search_space_slower(orth_ctx *ctx, const orth_search_space *s, int64_t i, double slower[ORTH_MAX_DEVICE_GROUPS])
{
    orth_block_costs costs;
    ORTH_TRY(read_costs(ctx, s, i, &costs));
    memcpy(slower, costs.slower, sizeof costs.slower);
    return ORTH_OK;
}

static void refuse(orth_search_space *s, orth_candidate *c, const char *why)
{
    if (s->num_left_out++ == 0)
        snprintf(s->why_left_out, sizeof s->why_left_out, "%s", why);
    c->bytes = INFINITY;
}

orth_status orth_search_space_read(orth_ctx *ctx, orth_search_space *s, int64_t i)
{
    orth_block_costs costs;
    int64_t first = i; /* they are neighbours */
    const orth_status status = read_costs(ctx, s, i, &costs);
    if (status != ORTH_OK && ctx->error.code != ORTH_ERR_ARG)
        return status;
    while (first > 0 && s->list[first - 1].costs == s->list[i].costs)
        first--;
    for (int64_t k = first; k < s->num && s->list[k].costs == s->list[i].costs; k++) {
        orth_candidate *c = &s->list[k];
        const orth_layout of = layout_of(s, c);
        c->read = true;
        if (status != ORTH_OK) /* a rule of what the model's products need */
            refuse(s, c, ctx->error.message);
        else
            ORTH_TRY(bound(ctx, s, &costs, &of, c));
    }
    if (status != ORTH_OK)
        orth_ctx_clear_error(ctx);
    return ORTH_OK;
}
