/* ladder.c -- see ladder.h. */
#include "tools/ladder.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>
#include <stdlib.h>

#include "base/clock.h"
#include "base/json_out.h"
#include "parallel/pipeline/schedule.h"

#define NEAREST 4          /* changes in the short answer */
#define AUTO "memory.recompute=auto"
#define NO_LIMIT "memory.limit_"
#define HALF "memory.offload_optimizer=host memory.offload_ratio=0.5"
#define MOST_INSTRS_FOR_AUTO 20000 /* hundreds of plans of a longer program take minutes */

#define CHANGE_MAX 128

/* Changes of one kind exclude each other. */
typedef enum {
    KIND_RECOMPUTE, KIND_OFFLOAD, KIND_MICRO_BATCH, KIND_ZERO, KIND_SEQUENCE, KIND_ACTIVATIONS, KIND_PACKED, KIND_PREFETCH, KIND_SAVER, KIND_FFN, KIND_HEAD,
    NUM_KINDS
} kind;

typedef struct {
    kind kind;
    char words[CHANGE_MAX]; /* key=value, a space between */
} change;

typedef struct {
    const orth_config *cfg;
    orth_place_to_run *where;
    size_t rank_limit;
    change changes[ORTH_LADDER_RUNGS_MAX];
    int num_changes, num_priced;
    double end_s;            /* on the clock of processor time; INFINITY: it takes the time it takes */
    int (*stop)(void *user); /* of the ctx, while ours stands there */
    void *stop_user;
    bool late;
} ladder;

static void offer(ladder *x, kind k, const char *words)
{
    change *c = &x->changes[x->num_changes++];
    c->kind = k;
    snprintf(c->words, sizeof c->words, "%s", words);
}

static bool has_auto(const orth_config *c)
{
    return c->memory_recompute == ORTH_memory_recompute_auto;
}

enum { OPTIMIZER, GRADIENTS, PARAMS, NUM_OFFLOADED };

static void tiers_now(const orth_config *c, int out[NUM_OFFLOADED])
{
    out[OPTIMIZER] = (int)c->memory_offload_optimizer;
    out[GRADIENTS] = (int)c->memory_offload_gradients;
    out[PARAMS] = (int)c->memory_offload_params;
}

/* Those that move, in the order of the keys, unless that is offered already. */
static void offer_tier(ladder *x, const bool moves[NUM_OFFLOADED], int tier)
{
    static const char *const tiers[] = {"none", "host", "file"}, *const keys[NUM_OFFLOADED] = {"optimizer", "gradients", "params"};
    char words[CHANGE_MAX];
    size_t at = 0;
    for (int k = 0; k < NUM_OFFLOADED; k++)
        if (moves[k])
            at += (size_t)snprintf(words + at, sizeof words - at, "%smemory.offload_%s=%s", at ? " " : "", keys[k], tiers[tier]);
    if (x->cfg->memory_offload_ratio < 1 && tier > 0 && (moves[GRADIENTS] || moves[PARAMS]))
        snprintf(words + at, sizeof words - at, " memory.offload_ratio=1"); /* with a part of the optimizer they stay */
    for (int i = 0; at > 0 && i < x->num_changes; i++)
        if (strcmp(x->changes[i].words, words) == 0)
            return;
    if (at > 0)
        offer(x, KIND_OFFLOAD, words);
}

/* Of optimizer state, gradients, weights those that are not there yet. */
static void offer_offload(ladder *x, int tier, bool gradients, bool params)
{
    int now[NUM_OFFLOADED];
    tiers_now(x->cfg, now);
    offer_tier(x, (bool[]){now[OPTIMIZER] < tier, gradients && now[GRADIENTS] < tier, params && now[PARAMS] < tier}, tier);
}

/* What is in one tier to another: one thing each, then all together. With the optimizer state the others come home: they need it elsewhere. */
static void offer_other_tier(ladder *x, int from, int to)
{
    int now[NUM_OFFLOADED];
    tiers_now(x->cfg, now);
    for (int which = 0; which <= NUM_OFFLOADED; which++) {
        bool moves[NUM_OFFLOADED];
        for (int k = 0; k < NUM_OFFLOADED; k++)
            moves[k] = now[k] == from && (which == k || which == NUM_OFFLOADED);
        for (int k = 0; k < NUM_OFFLOADED && moves[OPTIMIZER] && to == 0; k++)
            moves[k] = now[k] != 0;
        offer_tier(x, moves, to);
    }
}

/* Whether this memory is too small, or the one that is compared. */
static bool is_full(const orth_ladder *l, orth_budget_kind k)
{
    return l->compared == (int)k || orth_budget_exceeded(&l->budgets[k]);
}

/* Optimizer state first, on the host also a half of it, then what goes with it, which needs all of it there; of a run that has its optimizer state elsewhere
 * also gradients alone. In the host's memory only where the limit is a device's, which leaves that out. */
static void list_offloads(ladder *x, const orth_config *c)
{
    const bool stale = orth_schedule_is_async(c->parallel_pipeline);
    const bool device = x->where->described || x->rank_limit || c->memory_limit_device > 0;
    if (c->memory_offload_optimizer != ORTH_memory_offload_optimizer_none && c->memory_offload_ratio < 1)
        offer(x, KIND_OFFLOAD, "memory.offload_ratio=1");
    if (device && c->memory_offload_optimizer == ORTH_memory_offload_optimizer_none && c->memory_offload_ratio == 1)
        offer(x, KIND_OFFLOAD, HALF);
    for (int tier = device ? 1 : 2; tier <= 2; tier++) {
        offer_offload(x, tier, false, false);
        if (c->memory_offload_optimizer != ORTH_memory_offload_optimizer_none)
            offer_offload(x, tier, true, false);
        offer_offload(x, tier, true, !stale);
    }
}

/* Where offload itself fills a memory. */
static void list_other_tiers(ladder *x, bool host, bool files)
{
    enum { NONE, HOST, IN_FILE };
    const int tiers[][2] = {{IN_FILE, HOST}, {IN_FILE, NONE}, {HOST, IN_FILE}, {HOST, NONE}};
    for (int i = 0; i < ORTH_COUNT(tiers); i++)
        if (tiers[i][0] == IN_FILE ? files : host)
            offer_other_tier(x, tiers[i][0], tiers[i][1]);
}

static void list_activations(ladder *x, bool host, bool files)
{
    const orth_config *c = x->cfg;
    const bool apart = x->where->described || orth_config_offloads(c); /* else the host's memory is the one that is too small */
    const bool none = c->memory_offload_activations == ORTH_memory_offload_activations_none;
    const bool in_file = c->memory_offload_activations == ORTH_memory_offload_activations_file;
    if (in_file ? files : apart && none)
        offer(x, KIND_ACTIVATIONS, "memory.offload_activations=host");
    if (apart && !in_file)
        offer(x, KIND_ACTIVATIONS, "memory.offload_activations=file");
    if (in_file ? files : host && !none)
        offer(x, KIND_ACTIVATIONS, "memory.offload_activations=none");
}

/* The feed-forward in eight pieces; the head in a quarter of the rows it takes at a time. */
static void list_chunks(ladder *x, const orth_config *c)
{
    const int64_t rows = c->train_micro_batch * c->data_seq_len / c->parallel_cp / 8, head = c->memory_head_chunk_rows / 4;
    char words[CHANGE_MAX];
    if (rows > 0 && (c->memory_ffn_chunk_rows == 0 || rows < c->memory_ffn_chunk_rows)) {
        snprintf(words, sizeof words, "memory.ffn_chunk_rows=%" PRId64, rows);
        offer(x, KIND_FFN, words);
    }
    if (head > 0) {
        snprintf(words, sizeof words, "memory.head_chunk_rows=%" PRId64, head);
        offer(x, KIND_HEAD, words);
    }
}

/* Whether recomputation auto, which chooses among more than these policies, cares for the memory that is full: not for the host's of a node, nor, where
 * activations stay, for any but the device's. */
static bool auto_chooses(const ladder *x, bool host, bool files)
{
    const bool leave = x->cfg->memory_offload_activations != ORTH_memory_offload_activations_none;
    return has_auto(x->cfg) && ((!host && !files) || (leave && !x->where->described));
}

static void list_policies(ladder *x, bool host, bool files)
{
    static const char *const policies[] = {"memory.recompute=selective", "memory.recompute=ops memory.recompute_ops=[norm,swiglu]",
                                           "memory.recompute=ops memory.recompute_ops=[norm]", "memory.recompute=keep memory.recompute_ops=[linear]",
                                           "memory.recompute=keep memory.recompute_ops=[linear,attention]",
                                           "memory.recompute=full", "memory.recompute=full memory.recompute_layers=2", "memory.recompute=sqrt",
                                           "memory.recompute=all"};
    const char *limit = x->cfg->memory_recompute_limit > 0 ? " memory.recompute_limit=auto" : ""; /* which is of auto alone */
    char words[CHANGE_MAX];
    for (int i = 0; !auto_chooses(x, host, files) && i < ORTH_COUNT(policies); i++) {
        snprintf(words, sizeof words, "%s%s", policies[i], limit);
        offer(x, KIND_RECOMPUTE, words);
    }
}

/* What the run does not do already. host, files: what offload fills. */
static void list_changes(ladder *x, bool host, bool files)
{
    const orth_config *c = x->cfg;
    char words[CHANGE_MAX];
    if (x->rank_limit)
        snprintf(words, sizeof words, AUTO " memory.recompute_limit=%zu", x->rank_limit);
    else
        snprintf(words, sizeof words, AUTO);
    list_policies(x, host, files);
    if (!has_auto(c))
        offer(x, KIND_RECOMPUTE, words);
    if (!has_auto(c) && c->parallel_tp > 1 && !c->memory_recompute_split)
        offer(x, KIND_RECOMPUTE, "memory.recompute=full memory.recompute_split=true");
    list_offloads(x, c);
    list_other_tiers(x, host, files);
    const bool stale = orth_schedule_is_async(c->parallel_pipeline); /* it updates after each micro-batch */
    for (int64_t m = stale ? 0 : c->train_micro_batch / 2; m > 0 && x->num_changes < ORTH_LADDER_RUNGS_MAX - 16; m /= 2) {
        snprintf(words, sizeof words, "train.micro_batch=%" PRId64, m);
        offer(x, KIND_MICRO_BATCH, words);
    }
    for (int z = orth_config_zero_stage(c) + 1; z <= 3 && c->parallel_dp > 1; z++) {
        snprintf(words, sizeof words, "parallel.zero=%d", z);
        offer(x, KIND_ZERO, words);
    }
    if (c->parallel_tp > 1 && !c->parallel_sequence_parallel)
        offer(x, KIND_SEQUENCE, "parallel.sequence_parallel=true");
    list_activations(x, host, files);
    list_chunks(x, c);
    if (c->memory_packed_weights)
        offer(x, KIND_PACKED, "memory.packed_weights=false");
    if (c->comm_prefetch > 0) /* of what ZeRO 3 gathers, and of what offload brings */
        offer(x, KIND_PREFETCH, "comm.prefetch=0");
    if (c->checkpoint_every_steps > 0 && c->checkpoint_async)
        offer(x, KIND_SAVER, "checkpoint.async=false");
}

static orth_status set_words(orth_ctx *ctx, orth_config *cfg, const char *words)
{
    char copy[ORTH_LADDER_WORDS_MAX], *rest = NULL;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok_r(copy, " ", &rest); word; word = strtok_r(NULL, " ", &rest)) {
        char *value = strchr(word, '=');
        *value = '\0';
        ORTH_TRY(orth_config_set(ctx, cfg, "ladder", word, value + 1));
    }
    return ORTH_OK;
}

/* A limit of a memory of which the run uses nothing any more is refused, so the change withdraws it. */
static orth_status withdraw_limit(orth_ctx *ctx, orth_config *cfg, const char *word, char words[ORTH_LADDER_WORDS_MAX])
{
    const size_t at = strlen(words);
    snprintf(words + at, ORTH_LADDER_WORDS_MAX - at, "%s%s", at ? " " : "", word);
    return set_words(ctx, cfg, word);
}

static orth_status withdraw_limits(orth_ctx *ctx, orth_config *cfg, char words[ORTH_LADDER_WORDS_MAX])
{
    if (cfg->memory_limit_file > 0 && !orth_config_offloads_to_file(cfg))
        ORTH_TRY(withdraw_limit(ctx, cfg, NO_LIMIT "file=auto", words));
    if (cfg->memory_limit_host > 0 && !orth_config_offloads(cfg))
        ORTH_TRY(withdraw_limit(ctx, cfg, NO_LIMIT "host=auto", words));
    return ORTH_OK;
}

/* The run with these words, to which those come that withdraw limits. */
static orth_status price_words(orth_ctx *ctx, ladder *x, char words[ORTH_LADDER_WORDS_MAX], orth_price *out)
{
    orth_config cfg;
    orth_ctx_tell(ctx, "changes of the run planned", x->num_priced++, 0);
    ORTH_TRY(orth_ctx_check_stop(ctx));
    ORTH_TRY(orth_config_copy(ctx, &cfg, x->cfg));
    orth_status s = set_words(ctx, &cfg, words);
    if (s == ORTH_OK && words[0])
        s = withdraw_limits(ctx, &cfg, words);
    if (s == ORTH_OK)
        s = orth_price_run(ctx, x->where, &cfg, out);
    orth_config_release(ctx, &cfg);
    if (s == ORTH_ERR_NOMEM && strstr(words, AUTO)) { /* nothing that could be recomputed suffices */
        *out = (orth_price){.refused = true};
        orth_ctx_clear_error(ctx);
        s = ORTH_OK;
    }
    return s;
}

/* The limits that the run is held to: those of its plan, and one of each rank. */
static void budgets_of(const ladder *x, const orth_price *p, orth_budget out[ORTH_LADDER_BUDGETS])
{
    const size_t of_auto = has_auto(x->cfg) ? (size_t)x->cfg->memory_recompute_limit : 0;
    memcpy(out, p->budgets, sizeof p->budgets);
    if (x->rank_limit)
        out[ORTH_BUDGET_ALL].limit = out[ORTH_BUDGET_DEVICE].limit = 0;
    out[ORTH_NUM_BUDGETS] = (orth_budget){"on the rank that needs the most", x->rank_limit ? "--limit" : "memory.recompute_limit", p->worst_bytes,
                                          x->rank_limit ? x->rank_limit : of_auto};
}

static size_t over_of(const orth_budget b[ORTH_LADDER_BUDGETS])
{
    size_t over = 0;
    for (int k = 0; k < ORTH_LADDER_BUDGETS; k++)
        over += orth_budget_exceeded(&b[k]) ? b[k].bytes - b[k].limit : 0;
    return over;
}

/* The memory that is fullest, as a share of its limit. */
static int fullest(const orth_budget b[ORTH_LADDER_BUDGETS])
{
    int most = ORTH_BUDGET_ALL;
    for (int k = 0; k < ORTH_LADDER_BUDGETS; k++)
        if (b[k].limit > 0 && (b[most].limit == 0 || (double)b[k].bytes / (double)b[k].limit > (double)b[most].bytes / (double)b[most].limit))
            most = k;
    return most;
}

static orth_rung rung_of(const ladder *x, const orth_ladder *l, const char *words, const orth_price *p)
{
    orth_budget b[ORTH_LADDER_BUDGETS];
    budgets_of(x, p, b);
    orth_rung r = {.bytes = b[l->compared].bytes, .over = over_of(b), .step_s = p->step_s, .added_s = p->step_s - l->step_s};
    r.fits = r.over == 0;
    r.saved_bytes = (int64_t)l->bytes - (int64_t)r.bytes;
    snprintf(r.words, sizeof r.words, "%s", words);
    return r;
}

/* Less of what is compared, or nearer to the limits. */
static bool is_less(const orth_rung *r, size_t bytes, size_t over)
{
    return r->bytes < bytes || r->over < over;
}

static int cheapest_first(const void *a, const void *b)
{
    const orth_rung *x = a, *y = b;
    if (x->added_s != y->added_s)
        return x->added_s < y->added_s ? -1 : 1;
    return x->saved_bytes < y->saved_bytes ? 1 : x->saved_bytes > y->saved_bytes ? -1 : strcmp(x->words, y->words);
}

/* auto plans hundreds of runs. It is not tried where that would take long, nor where far more is missing than any named policy saves, as
 * of a model that is much too large. */
static bool is_hopeless(const ladder *x, const orth_ladder *l, int which, size_t over)
{
    int64_t most = 0;
    if (strncmp(x->changes[which].words, AUTO, sizeof AUTO - 1) != 0)
        return false;
    if (l->too_long_for_auto || over == 0)
        return l->too_long_for_auto;
    for (int i = 0; i < l->num_single; i++)
        if (strncmp(l->single[i].words, "memory.recompute=", 17) == 0)
            most = ORTH_MAX(most, l->single[i].saved_bytes);
    return over > 2 * (size_t)most;
}

static orth_status try_singles(orth_ctx *ctx, ladder *x, orth_ladder *l)
{
    for (int i = 0; i < x->num_changes; i++) {
        char words[ORTH_LADDER_WORDS_MAX];
        orth_price p;
        if (is_hopeless(x, l, i, l->over))
            continue;
        snprintf(words, sizeof words, "%s", x->changes[i].words);
        ORTH_TRY(price_words(ctx, x, words, &p));
        const orth_rung r = rung_of(x, l, words, &p);
        if (!p.refused && is_less(&r, l->bytes, l->over))
            l->single[l->num_single++] = r;
    }
    return ORTH_OK;
}

static orth_status try_fast(orth_ctx *ctx, ladder *x, orth_ladder *l)
{
    char words[ORTH_LADDER_WORDS_MAX] = "numerics.mode=fast";
    orth_price p;
    ORTH_TRY(price_words(ctx, x, words, &p));
    const orth_rung r = rung_of(x, l, words, &p);
    if (!p.refused && is_less(&r, l->bytes, l->over))
        l->fast = r;
    return ORTH_OK;
}

/* The cheapest rung that fits; NULL: none does. */
static const orth_rung *first_that_fits(const orth_ladder *l)
{
    for (int i = 0; i < l->num_single; i++)
        if (l->single[i].fits)
            return &l->single[i];
    return NULL;
}

/* A change alone; NULL: it saves nothing. */
static const orth_rung *rung_with(const orth_ladder *l, const char *words)
{
    const size_t n = strlen(words);
    for (int i = 0; i < l->num_single; i++)
        if (strncmp(l->single[i].words, words, n) == 0 && (!l->single[i].words[n] || strncmp(l->single[i].words + n, " " NO_LIMIT, sizeof NO_LIMIT) == 0))
            return &l->single[i];
    return NULL;
}

/* Whether there is another change of the same kind that saves as much for less time, each alone: then this one has no place among several. */
static bool is_outdone(const ladder *x, const orth_ladder *l, int which)
{
    const orth_rung *mine = rung_with(l, x->changes[which].words);
    for (int i = 0; i < x->num_changes && mine; i++) {
        const orth_rung *other = rung_with(l, x->changes[i].words);
        if (other && i != which && x->changes[i].kind == x->changes[which].kind && other->saved_bytes >= mine->saved_bytes && other->added_s < mine->added_s)
            return true;
    }
    return !mine;
}

/* The less time for each of the bytes that are missing the better, and free ones by bytes. */
static bool is_better(const orth_rung *a, const orth_rung *b, const orth_rung *from)
{
    const double ua = (double)from->over - (double)a->over, ub = (double)from->over - (double)b->over;
    const double ta = ORTH_MAX(a->step_s - from->step_s, 0), tb = ORTH_MAX(b->step_s - from->step_s, 0);
    return ta * ub != tb * ua ? ta * ub < tb * ua : a->bytes < b->bytes;
}

/* The chosen change of each kind (-1: none), with `instead` (-1: none) in place of its kind's; as words. */
static void join_words(const ladder *x, const int chosen[NUM_KINDS], int instead, char out[ORTH_LADDER_WORDS_MAX])
{
    size_t at = 0;
    out[0] = '\0';
    for (int k = 0; k < NUM_KINDS; k++) {
        const int c = instead >= 0 && (int)x->changes[instead].kind == k ? instead : chosen[k];
        if (c >= 0 && at < ORTH_LADDER_WORDS_MAX)
            at += (size_t)snprintf(out + at, ORTH_LADDER_WORDS_MAX - at, "%s%s", at ? " " : "", x->changes[c].words);
    }
}

/* ADD: a change that others of its kind do not outdo, from a run that does not fit. ADD_OUTDONE: one that they do. DROP: one that is chosen is made no
 * more, alone or with any other made: what saved most at first may fill a memory that what was chosen later would have room in. REPLACE: one in place of another of
 * its kind with which a run that fits is faster: the changes that save most for their time do not always make the fastest run together. A half of the
 * optimizer's state, cheap but often not enough, comes only then: chosen early, it makes others follow that a run with all of it would not need. */
typedef enum { ADD, ADD_OUTDONE, DROP, REPLACE } step_kind;

static bool is_tried(const ladder *x, const orth_ladder *l, const int chosen[NUM_KINDS], const orth_rung *from, step_kind how, int which)
{
    const int now = chosen[x->changes[which].kind];
    if (now == which || is_hopeless(x, l, which, how == REPLACE ? l->over : from->over))
        return false;
    if (how != REPLACE && strcmp(x->changes[which].words, HALF) == 0)
        return false;
    return how == DROP ? true : how == REPLACE ? now >= 0 : is_outdone(x, l, which) == (how == ADD_OUTDONE);
}

/* found: the best until now, or `from`. */
static bool is_preferred(const orth_rung *r, const orth_rung *found, bool any, const orth_rung *from, step_kind how)
{
    if (how == REPLACE)
        return r->fits && r->step_s < found->step_s;
    return r->over < from->over && (!any || is_better(r, found, from));
}

/* A step from what is chosen, and the best of those that were looked at. */
typedef struct {
    step_kind how;
    const orth_rung *from;
    int chosen[NUM_KINDS];
    orth_rung found;
    bool any;
} step;

/* Looks at these changes, with number `which` (-1: none) in place of its kind's. */
static orth_status try_step(orth_ctx *ctx, ladder *x, const orth_ladder *l, step *s, const int chosen[NUM_KINDS], int which)
{
    char words[ORTH_LADDER_WORDS_MAX];
    orth_price p;
    join_words(x, chosen, which, words);
    ORTH_TRY(price_words(ctx, x, words, &p));
    const orth_rung r = rung_of(x, l, words, &p);
    if (p.refused || !is_preferred(&r, &s->found, s->any, s->from, s->how))
        return ORTH_OK;
    memcpy(s->chosen, chosen, sizeof s->chosen);
    if (which >= 0)
        s->chosen[x->changes[which].kind] = which;
    s->found = r;
    s->any = true;
    return ORTH_OK;
}

static orth_status try_steps(orth_ctx *ctx, ladder *x, const orth_ladder *l, step *s, const int chosen[NUM_KINDS])
{
    for (int i = 0; i < x->num_changes; i++)
        if (is_tried(x, l, chosen, s->from, s->how, i))
            ORTH_TRY(try_step(ctx, x, l, s, chosen, i));
    return ORTH_OK;
}

/* Each chosen change dropped, and then any other made. */
static orth_status try_dropped(orth_ctx *ctx, ladder *x, const orth_ladder *l, step *s, const int chosen[NUM_KINDS])
{
    for (int k = 0; k < NUM_KINDS; k++) {
        int without[NUM_KINDS];
        if (chosen[k] < 0)
            continue;
        memcpy(without, chosen, sizeof without);
        without[k] = -1;
        ORTH_TRY(try_step(ctx, x, l, s, without, -1));
        ORTH_TRY(try_steps(ctx, x, l, s, without));
    }
    return ORTH_OK;
}

/* Makes the best step from rung `from` on; *made false: there is none. */
static orth_status make_one(orth_ctx *ctx, ladder *x, orth_ladder *l, int chosen[NUM_KINDS], const orth_rung *from, step_kind how, bool *made)
{
    step s = {.how = how, .from = from, .found = *from};
    ORTH_TRY(how == DROP ? try_dropped(ctx, x, l, &s, chosen) : try_steps(ctx, x, l, &s, chosen));
    *made = s.any;
    if (!s.any)
        return ORTH_OK;
    memcpy(chosen, s.chosen, sizeof s.chosen);
    l->together[l->num_together++] = s.found;
    return ORTH_OK;
}

static orth_status combine(orth_ctx *ctx, ladder *x, orth_ladder *l)
{
    static const step_kind towards_fitting[] = {ADD, ADD_OUTDONE, DROP}, faster[] = {REPLACE};
    int chosen[NUM_KINDS];
    bool made = true;
    orth_rung from = {.bytes = l->bytes, .over = l->over, .step_s = l->step_s};
    const orth_rung *alone = first_that_fits(l);
    for (int k = 0; k < NUM_KINDS; k++)
        chosen[k] = -1;
    while (made && l->num_together < ORTH_LADDER_RUNGS_MAX) {
        const step_kind *how = from.fits ? faster : towards_fitting;
        made = false;
        for (int i = 0; !made && i < (from.fits ? ORTH_COUNT(faster) : ORTH_COUNT(towards_fitting)); i++)
            ORTH_TRY(make_one(ctx, x, l, chosen, &from, how[i], &made));
        if (made)
            from = l->together[l->num_together - 1];
    }
    if (alone && (!from.fits || l->num_together == 1 || from.added_s >= alone->added_s))
        l->num_together = 0;
    return ORTH_OK;
}

static orth_status find(orth_ctx *ctx, ladder *x, orth_ladder *out)
{
    char words[ORTH_LADDER_WORDS_MAX] = "";
    orth_price p;
    *out = (orth_ladder){.num_single = 0};
    ORTH_TRY(price_words(ctx, x, words, &p));
    if (p.refused)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s", p.why);
    budgets_of(x, &p, out->budgets);
    out->compared = fullest(out->budgets);
    out->bytes = out->budgets[out->compared].bytes;
    out->limit_bytes = out->budgets[out->compared].limit;
    out->over = over_of(out->budgets);
    out->fits = out->over == 0;
    out->step_s = p.step_s;
    out->too_long_for_auto = p.num_instrs > MOST_INSTRS_FOR_AUTO;
    out->none_tried = out->too_long_for_auto && has_auto(x->cfg);
    if (out->none_tried)
        return ORTH_OK;
    list_changes(x, is_full(out, ORTH_BUDGET_HOST), is_full(out, ORTH_BUDGET_FILES));
    orth_status s = try_singles(ctx, x, out);
    qsort(out->single, (size_t)out->num_single, sizeof *out->single, cheapest_first);
    if (s == ORTH_OK && x->cfg->numerics_mode == ORTH_numerics_mode_reproducible)
        s = try_fast(ctx, x, out);
    return s != ORTH_OK || out->fits ? s : combine(ctx, x, out);
}

static int stop_when_late(void *user)
{
    ladder *x = user;
    const int asked = x->stop ? x->stop(x->stop_user) : 0;
    x->late = orth_clock_busy_s() > x->end_s;
    return asked ? asked : x->late ? SIGALRM : 0;
}

/* What was found until then counts. */
static orth_status find_in_time(orth_ctx *ctx, ladder *x, orth_ladder *out)
{
    x->stop = ctx->stop;
    x->stop_user = ctx->stop_user;
    ctx->stop = stop_when_late;
    ctx->stop_user = x;
    orth_status s = find(ctx, x, out);
    ctx->stop = x->stop;
    ctx->stop_user = x->stop_user;
    if (s == ORTH_ERR_SIGNAL && x->late && (!x->stop || !x->stop(x->stop_user))) {
        out->cut_short = true;
        out->none_tried = out->bytes == 0;
        orth_ctx_clear_error(ctx);
        s = ORTH_OK;
    }
    return s;
}

orth_status orth_ladder_find(orth_ctx *ctx, const orth_config *cfg, orth_place_to_run *where, size_t rank_limit, double seconds, orth_ladder *out)
{
    ladder x = {.cfg = cfg, .where = where, .rank_limit = rank_limit, .end_s = seconds > 0 ? orth_clock_busy_s() + seconds : INFINITY};
    const bool least = where->least;
    where->least = has_auto(cfg);
    const orth_status s = find_in_time(ctx, &x, out);
    where->least = least;
    return s;
}

/* ---- output ---- */

static void add_rows(orth_ctx *ctx, orth_text *t, const char *title, const orth_rung *r, int n)
{
    if (n == 0)
        return;
    orth_text_addf(ctx, t, "%s\n  %14s %14s %12s %8s  fits  change\n", title, "bytes", "saved", "added s", "%");
    for (int i = 0; i < n; i++)
        orth_text_addf(ctx, t, "  %14zu %14" PRId64 " %12.6f %8.1f  %-4s  %s\n", r[i].bytes, r[i].saved_bytes, r[i].added_s,
                       100 * r[i].added_s / (r[i].step_s - r[i].added_s), r[i].fits ? "yes" : "no", r[i].words);
}

/* Of those that are exceeded, too. */
static void add_other_limits(orth_ctx *ctx, orth_text *t, const orth_ladder *l)
{
    for (int k = 0; k < ORTH_LADDER_BUDGETS; k++) {
        const orth_budget *b = &l->budgets[k];
        if (k != l->compared && orth_budget_exceeded(b))
            orth_text_addf(ctx, t, "also too much: planned %zu B%s%s, limit %zu B (%s)\n", b->bytes, b->where[0] ? " " : "", b->where, b->limit, b->key);
    }
}

static void add_cut_short(orth_ctx *ctx, orth_text *t)
{
    orth_text_addf(ctx, t, "not all changes were tried in %.0f s of processor time: `plan --ladder` with the same words tries all\n", ORTH_LADDER_SECONDS);
}

char *orth_ladder_text(orth_ctx *ctx, const orth_ladder *l)
{
    orth_text t = {0};
    const orth_budget *b = &l->budgets[l->compared];
    if (l->bytes > 0)
        orth_text_addf(ctx, &t, "planned %zu B%s%s, limit %zu B, %.6f s a step. In numerics.mode=reproducible no change below changes a number.\n", l->bytes,
                       b->where[0] ? " " : "", b->where, l->limit_bytes, l->step_s);
    add_other_limits(ctx, &t, l);
    add_rows(ctx, &t, "one change, the cheapest in time first:", l->single, l->num_single);
    add_rows(ctx, &t, first_that_fits(l) ? "cheaper than any that suffices alone, one after the other:" : "none suffices; one after the other:",
             l->together, l->num_together);
    if (l->fast.saved_bytes > 0)
        add_rows(ctx, &t, "one that changes the last bits (one sum for each gradient, no canonical parts):", &l->fast, 1);
    if (l->cut_short)
        add_cut_short(ctx, &t);
    else if (l->none_tried)
        orth_text_add(ctx, &t, "no change was tried: with memory.recompute=auto each takes hundreds of plans, and this run has a long program. `plan --ladder "
                      "memory.recompute=full` tries them\n");
    else if (l->too_long_for_auto)
        orth_text_add(ctx, &t, "memory.recompute=auto was not tried: it plans hundreds of runs, and this one has a long program\n");
    if (l->num_single == 0 && !l->none_tried && !l->cut_short)
        orth_text_add(ctx, &t, "no change saves memory\n");
    else if (l->num_together > 0 && !l->together[l->num_together - 1].fits && !l->cut_short)
        orth_text_add(ctx, &t, "no combination that was tried suffices: more ranks (tp, pp, cp, dp with zero), a shorter data.seq_len or a smaller model\n");
    return orth_text_take(ctx, &t);
}

char *orth_ladder_nearest_text(orth_ctx *ctx, const orth_ladder *l)
{
    const orth_rung *last = l->num_together > 0 ? &l->together[l->num_together - 1] : NULL;
    orth_text t = {0};
    int shown = 0;
    for (int i = -1; i < l->num_single && shown < NEAREST; i++) {
        const orth_rung *r = i < 0 ? last : &l->single[i];
        if (!r || !r->fits)
            continue;
        if (shown++ == 0)
            orth_text_addf(ctx, &t, "\nwhat would make it fit\n%10s %11s %9s  change\n", "GiB", "step s", "% more");
        orth_text_addf(ctx, &t, "%10.2f %11.4g %9.1f  %s\n", (double)r->bytes / 0x1p30, r->step_s, 100 * r->added_s / l->step_s, r->words);
    }
    if (l->cut_short) {
        orth_text_add(ctx, &t, shown ? "" : "\nno change was found yet that makes it fit; ");
        add_cut_short(ctx, &t);
    } else if (shown == 0)
        orth_text_add(ctx, &t, "\nno combination that was tried of recomputation, micro-batch, ZeRO and offload makes it fit: more ranks (tp, pp, cp, dp with zero), a shorter "
                      "data.seq_len or a smaller model\n");
    return orth_text_take(ctx, &t);
}

static void add_json(orth_json_out *j, const char *key, const orth_rung *r, int n)
{
    orth_json_open(j, key, '[');
    for (int i = 0; i < n; i++) {
        orth_json_open(j, NULL, '{');
        orth_json_string(j, "change", r[i].words);
        orth_json_print(j, "bytes", "%zu", r[i].bytes);
        orth_json_print(j, "saved_bytes", "%" PRId64, r[i].saved_bytes);
        orth_json_print(j, "step_s", "%.9g", r[i].step_s);
        orth_json_print(j, "added_s", "%.9g", r[i].added_s);
        orth_json_bool(j, "fits", r[i].fits);
        orth_json_close(j, '}');
    }
    orth_json_close(j, ']');
}

char *orth_ladder_json(orth_ctx *ctx, const orth_ladder *l)
{
    orth_text t = {0};
    orth_json_out j = {ctx, &t};
    orth_json_open(&j, NULL, '{');
    if (l->bytes > 0) { /* else not even the run itself was planned in time */
        orth_json_print(&j, "bytes", "%zu", l->bytes);
        orth_json_print(&j, "limit", "%zu", l->limit_bytes);
        orth_json_string(&j, "limit_of", l->budgets[l->compared].key);
        orth_json_print(&j, "step_s", "%.9g", l->step_s);
        orth_json_bool(&j, "fits", l->fits);
    }
    add_json(&j, "single", l->single, l->num_single);
    add_json(&j, "together", l->together, l->num_together);
    add_json(&j, "fast", &l->fast, l->fast.saved_bytes > 0);
    orth_json_bool(&j, "all_tried", !l->cut_short && !l->none_tried);
    orth_json_close(&j, '}');
    orth_text_add(ctx, &t, "\n");
    return orth_text_take(ctx, &t);
}
