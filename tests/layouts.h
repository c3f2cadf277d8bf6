/* layouts.h -- layouts drawn from a seed: which model, batch and mesh a case has.
 *
 * Used by the test that runs them and by the one that checks their programs; a seed names the same case in both.
 */
#ifndef ORTH_TESTS_LAYOUTS_H
#define ORTH_TESTS_LAYOUTS_H

#include "test.h"

#include "comm/comm.h"
#include "parallel/partition.h"

/* One case: a model, a batch, a layout. Everything follows from the seed. */
typedef struct {
    uint64_t seed;
    orth_model_config model;
    orth_layout layout;
    orth_comm_policy comm;
    orth_dtype compute;
    orth_recipe products;
    orth_delayed_scaling delayed;
    orth_state_types types;
    bool bf16x6;              /* precision.fp32_products */
    bool keep_packed;         /* of the layout, not of what one rank computes */
    orth_recompute recompute; /* the same */
    int32_t ffn_chunk_rows, head_chunk_rows; /* the same */
    orth_offload offload;     /* the same */
    orth_factors freeze;      /* parameters that are not trained */
    bool doc_mask;
    int32_t steps;
    int threads;              /* of each rank */
    uint64_t shuffle;         /* seed of the orders in which its queues run; 0: that of the list */
    bool guards_device;       /* no address works outside of instructions; each of these then calls the system twice */
    bool odd_losses;          /* tokens of very different loss, weighted by fractions */
    /* Results: what one rank computed; filled by the first run, compared by the second. */
    double *loss, *norm;      /* [steps] */
    float *params;            /* all masters after the last step */
    bool compare;
    double tolerance;         /* 0: all bits of everything; else of the loss, relative; 100 times that of the norm,
                                 and 10 times that, absolute, of a rank's weights in the root mean square */
    uint64_t hash[TEST_MAX_RANKS]; /* of what each rank has in the end; it says which bits, not that they are right */
    char difference[256];     /* "" while equal; written by one rank at a time */
    orth_comm_counts over_cp, over_dp, over_kv; /* of rank 0, all steps */
} layout_case;

/* Adds to the text in out[n], which begins empty. */
static inline void __attribute__((format(printf, 3, 4))) layout_say(char *out, size_t n, const char *fmt, ...)
{
    size_t at = strlen(out);
    va_list args;
    va_start(args, fmt);
    vsnprintf(out + at, n - at, fmt, args);
    va_end(args);
}

/* Parameters that are frozen; more than a third of the cases has none. */
static inline orth_factors layout_freeze(uint64_t seed)
{
    static const char *const words[][4] = {{"embed.weight"}, {"layers.0.*", "layers.1.*", "embed.*"}, {"*", "!head.weight", "!final_norm.gain"},
                                           {"*", "!layers.2.*"}, {"layers.*.mlp.*"}, {"*.weight"}, {"*.gain", "layers.3.*"},
                                           {"*", "!layers.1.attn.*", "layers.1.attn.out.weight"}};
    const int64_t k = test_rand_int(seed, 2007, -6, ORTH_COUNT(words) - 1);
    int32_t num = 0;
    while (k >= 0 && num < 4 && words[k][num])
        num++;
    return (orth_factors){"freeze", num, k < 0 ? NULL : words[k]};
}

static inline void layout_describe(const layout_case *c, char *out, size_t n)
{
    static const char *const kinds[] = {" (all_gather)", " (ring)", " (all_to_all)"};
    const orth_layout *l = &c->layout;
    const orth_model_config *m = &c->model;
    out[0] = 0;
    layout_say(out, n, "seed %llu: dp=%d tp=%d pp=%d cp=%d", (unsigned long long)c->seed, (int)l->dp, (int)l->tp,
               (int)l->pp, (int)l->cp);
    layout_say(out, n, "%s", l->cp > 1 ? kinds[l->cp_kind] : "");
    layout_say(out, n, " zero=%d shard_group=%d keep_whole=%d", (int)l->zero, (int)l->shard_group, (int)l->keep_whole);
    layout_say(out, n, " sp=%d", l->sequence_parallel);
    layout_say(out, n, " %s v=%d", l->pipeline, (int)l->virtual_stages);
    layout_say(out, n, " batch %d/%d T=%d parts=%d", (int)l->global_batch, (int)l->micro_batch, (int)l->seq_len,
               (int)l->parts);
    layout_say(out, n, ", %s, %s", m->family == ORTH_FAMILY_GPT2 ? "gpt2" : "llama", c->bf16x6 ? "bf16x6" : orth_dtype_name(c->compute));
    if (c->products)
        layout_say(out, n, " with %s products", orth_recipe_of(c->products)->name);
    layout_say(out, n, ", heads %d/%d", (int)m->heads, (int)m->kv_heads);
    layout_say(out, n, "%s%s%s", c->types.master ? ", bf16 masters" : "", c->types.moments == ORTH_U8 ? ", 8-bit moments" : c->types.moments ? ", bf16 moments" : "",
               c->types.stochastic ? ", stochastic" : "");
    layout_say(out, n, "%s%s%s", m->tied ? ", tied" : "", c->doc_mask ? ", docs" : "", m->qk_norm ? ", qk_norm" : "");
    layout_say(out, n, ", %d threads, order %s", c->threads, l->order ? l->order : "default");
    layout_say(out, n, ", buckets of %d%s", (int)c->comm.bucket_bytes, c->comm.overlap ? ", overlap" : "");
    layout_say(out, n, ", prefetch %d to %d%s", (int)c->comm.prefetch, (int)c->comm.prefetch_elems,
               c->comm.keep_gathered ? ", kept" : "");
    static const char *const units[] = {"", ", gathered by halves", ", gathered in layers:", ", gathered in elements:"};
    layout_say(out, n, "%s", units[c->comm.unit]);
    if (c->comm.unit_size)
        layout_say(out, n, " %lld", (long long)c->comm.unit_size);
    if (c->comm.reuse_elems || c->comm.live_elems)
        layout_say(out, n, ", reuse within %lld of %lld", (long long)c->comm.reuse_elems, (long long)c->comm.live_elems);
    layout_say(out, n, "%s", c->comm.reduce == ORTH_F32 ? "" : c->comm.reduce == ORTH_BF16 ? ", gradients reduced in bf16" : ", gradients reduced in int8");
    if (c->recompute.kind)
        layout_say(out, n, ", recompute %d (%d%s)", (int)c->recompute.kind, (int)c->recompute.layers,
                   c->recompute.split_input ? " split" : c->recompute.block ? " block" : "");
    if (c->ffn_chunk_rows)
        layout_say(out, n, ", chunks of %d", (int)c->ffn_chunk_rows);
    static const char *const tiers[] = {"device", "host", "file"};
    if (c->offload.optimizer)
        layout_say(out, n, ", %g of the optimizer in %s in pieces of %d, weights in %s, gradients in %s", 1 - c->offload.stays,
                   tiers[c->offload.optimizer], (int)c->offload.sub_group, tiers[c->offload.params], tiers[c->offload.gradients]);
    if (c->offload.activations)
        layout_say(out, n, ", activations from %d bytes on in %s", (int)c->offload.min_bytes, tiers[c->offload.activations]);
    layout_say(out, n, "%s%s%s", l->owner ? ", owner" : "", l->whole_layers ? ", by layers" : "", c->keep_packed ? ", packed weights" : "");
    for (int32_t i = 0; i < c->freeze.num; i++)
        layout_say(out, n, "%s%s", i ? " " : ", frozen ", c->freeze.word[i]);
    for (int64_t r = 0; r < l->num_stage_layers; r++)
        layout_say(out, n, "%s%g", r ? ":" : ", layers ", l->stage_layers[r]);
    layout_say(out, n, "%s", l->even_stages ? ", even stages" : "");
    for (int64_t r = 0; r < l->num_dp_share; r++)
        layout_say(out, n, "%s%g", r ? ":" : ", shares ", l->dp_share[r]);
}

static inline layout_case layout_base_case(uint64_t seed, int kind)
{
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny"};
    layout_case c = {.seed = seed, .layout = orth_layout_defaults, .compute = ORTH_F32, .steps = 5, .threads = 1,
                     .guards_device = seed % 8 == 1 && kind < 2};
    orth_ctx ctx = {.rank = 0};
    orth_model_preset(&ctx, presets[kind % 2], &c.model);
    c.model.vocab = 131;
    c.model.hidden = 32;
    c.model.heads = 4;
    c.model.kv_heads = kind % 2 ? 2 : 4;
    c.model.head_dim = 8;
    c.model.ffn = 48;
    c.model.layers = 4;
    c.model.max_seq = 64;
    c.layout.global_batch = 8;
    c.layout.seq_len = 16;
    c.comm = (orth_comm_policy){.overlap = true, .bucket_bytes = 16384, .prefetch = 1};
    return c;
}

static inline int layout_pick(uint64_t seed, int *k, const int *choices, int n)
{
    return choices[test_rand_int(seed, 1000 + (uint64_t)(*k)++, 0, n - 1)];
}

#define LAYOUT_PICK(...) layout_pick(seed, &k, (const int[]){__VA_ARGS__}, (int)(sizeof((int[]){__VA_ARGS__}) / sizeof(int)))

/* Uneven parts of the batch, if kind > 0 and there are two or four data-parallel ranks. */
static inline void layout_draw_shares(orth_layout *l, int kind)
{
    static const double two[][2] = {{3, 1}, {1, 3}, {5, 3}}, four[][4] = {{3, 1, 2, 2}, {1, 2, 4, 1}, {1, 5, 1, 1}};
    if (kind > 0 && (l->dp == 2 || l->dp == 4)) {
        l->dp_share = l->dp == 2 ? two[kind - 1] : four[kind - 1];
        l->num_dp_share = l->dp;
    }
}

/* Four layers by hand over two stages, or evenly; by cost over others. */
static inline void layout_draw_layers(orth_layout *l, int kind)
{
    static const double uneven[2][2] = {{3, 1}, {1, 3}};
    if (kind > 0 && kind <= 2 && l->pp * l->virtual_stages == 2) {
        l->stage_layers = uneven[kind - 1];
        l->num_stage_layers = 2;
    }
    l->even_stages = kind == 3;
}

/* Policies of recomputation, none first. */
#define LAYOUT_NUM_RECOMPUTE 10
static inline orth_recompute layout_recompute(int i)
{
    static const char *const some[] = {"norm", "linear"};
    const orth_recompute all[LAYOUT_NUM_RECOMPUTE] = {
        {.kind = ORTH_RECOMPUTE_NONE},
        {.kind = ORTH_RECOMPUTE_SELECTIVE},
        {.kind = ORTH_RECOMPUTE_FULL},
        {.kind = ORTH_RECOMPUTE_FULL, .layers = 2},
        {.kind = ORTH_RECOMPUTE_FULL, .layers = 3},
        {.kind = ORTH_RECOMPUTE_FULL, .layers = 1, .block = true},
        {.kind = ORTH_RECOMPUTE_SQRT},
        {.kind = ORTH_RECOMPUTE_OPS, .ops = some, .num_ops = 1},
        {.kind = ORTH_RECOMPUTE_KEEP, .ops = some + 1, .num_ops = 1},
        {.kind = ORTH_RECOMPUTE_ALL},
    };
    return all[i];
}

/* Gives the case a policy; products of quantised operands have another name. */
static inline void layout_set_recompute(layout_case *c, orth_recompute policy)
{
    static const char *const plain[] = {"linear"}, *const quantised[] = {"qlinear"};
    c->recompute = policy;
    if (policy.kind == ORTH_RECOMPUTE_KEEP)
        c->recompute.ops = c->products ? quantised : plain;
}

typedef enum {
    LAYOUT_ANY = 0, /* in reproducible mode */
    LAYOUT_FAST,    /* numerics.mode=fast, with shares and groups that reproducible mode refuses */
    LAYOUT_OWNER    /* parallel.data_parallel=owner */
} layout_sort;

/* Turns a drawn layout into one of the sort. *picks: how many numbers were drawn. */
static inline void layout_draw_sort(orth_layout *l, layout_sort sort, uint64_t seed, int *picks)
{
    int k = *picks;
    if (sort == LAYOUT_OWNER) {
        l->dp = LAYOUT_PICK(2, 2, 4, 8);
        l->zero = l->shard_group = l->keep_whole = 0;
        l->owner = true;
        l->whole_layers = false;
    } else if (sort == LAYOUT_FAST) {
        l->dp = LAYOUT_PICK(1, 2, 3, 4, 6);
        l->cp = LAYOUT_PICK(1, 1, 2, 3);
        l->global_batch = LAYOUT_PICK(8, 12, 12, 24);
        l->seq_len = LAYOUT_PICK(24, 48);
        l->reproducible = false;
        l->parts = orth_layout_fast_parts(l);
    }
    l->dp_share = NULL;
    l->num_dp_share = 0;
    layout_draw_shares(l, LAYOUT_PICK(0, 0, 1, 2, 3));
    *picks = k;
}

/* A layout of this sort that keeps the rules, drawn from the seed. */
static inline layout_case layout_random_case(uint64_t seed, layout_sort sort)
{
    static const char *const orders[] = {NULL, "pp,dp,tp,cp", "dp,cp,pp,tp", "cp,tp,pp,dp"};
    static const char *const schedules[] = {"naive", "gpipe", "1f1b", "interleaved", "zb-h1", "zb-v"};
    int k = 0;
    for (;;) {
        layout_case c = layout_base_case(seed, LAYOUT_PICK(0, 1));
        c.guards_device = seed % 16 == 1;
        orth_layout *l = &c.layout;
        l->dp = LAYOUT_PICK(1, 2, 4, 4, 8);
        l->tp = LAYOUT_PICK(1, 2, 2, 4);
        l->pp = LAYOUT_PICK(1, 1, 2, 4);
        l->cp = LAYOUT_PICK(1, 1, 2, 4);
        l->zero = LAYOUT_PICK(0, 1, 2, 3);
        l->shard_group = l->zero ? LAYOUT_PICK(0, 0, 1, 2, 2, 4) : 0;
        l->keep_whole = l->zero == 3 ? LAYOUT_PICK(0, 0, 32, 1600) : 0;
        l->owner = l->zero == 0 && LAYOUT_PICK(0, 0, 1);
        l->sequence_parallel = LAYOUT_PICK(0, 1);
        int schedule = LAYOUT_PICK(0, 1, 2, 3, 4, 5);
        l->pipeline = schedules[schedule];
        l->virtual_stages = schedule == 3 || schedule == 5 ? 2 : 1;
        l->micro_batch = LAYOUT_PICK(1, 2, 4);
        l->global_batch = LAYOUT_PICK(4, 8, 8, 16, 12);
        layout_draw_shares(l, LAYOUT_PICK(0, 0, 1, 2, 3));
        l->seq_len = LAYOUT_PICK(8, 16, 24, 32);
        l->parts = LAYOUT_PICK(4, 8);
        c.compute = LAYOUT_PICK(0, 1) ? (seed % 3 == 1 ? ORTH_F16 : ORTH_BF16) : ORTH_F32;
        c.types = (orth_state_types){.master = c.compute == ORTH_BF16 && seed % 7 < 3 ? ORTH_BF16 : ORTH_F32,
                                     .moments = seed % 7 == 2 || seed % 7 == 3 ? ORTH_BF16 : seed % 5 == 1 ? ORTH_U8 : ORTH_F32};
        c.types.stochastic = (c.types.master || c.types.moments == ORTH_BF16) && seed % 4 < 3;
        c.bf16x6 = c.compute == ORTH_F32 && seed % 2 && test_has_bf16x6();
        c.keep_packed = seed / 2 % 2;
        c.recompute = layout_recompute((int)ORTH_MAX(test_rand_int(seed, 2000, -4, LAYOUT_NUM_RECOMPUTE - 1), 0));
        c.recompute.split_input = seed / 4 % 2 && !l->sequence_parallel &&
                                  (c.recompute.kind == ORTH_RECOMPUTE_FULL || c.recompute.kind == ORTH_RECOMPUTE_SQRT);
        static const int32_t chunks[] = {0, 0, 0, 1, 8, 20};
        c.ffn_chunk_rows = chunks[test_rand_int(seed, 2001, 0, 5)];
        c.head_chunk_rows = test_rand_int(seed, 2002, 0, 3) ? 0 : 4;
        static const int32_t pieces[] = {200, 1000, 1 << 20};
        c.offload.optimizer = (orth_tier)ORTH_MAX(test_rand_int(seed, 2003, -1, ORTH_TIER_FILE), 0);
        if (c.offload.optimizer) {
            c.offload.params = (orth_tier)ORTH_MAX(test_rand_int(seed, 2007, -1, ORTH_TIER_FILE), 0);
            c.offload.gradients = (orth_tier)ORTH_MAX(test_rand_int(seed, 2008, -1, ORTH_TIER_FILE), 0);
            if (!c.offload.params && !c.offload.gradients)
                c.offload.stays = 0.25 * test_rand_int(seed, 2020, 0, 4);
        }
        c.offload.sub_group = pieces[test_rand_int(seed, 2004, 0, 2)];
        static const int32_t least[] = {1, 1, 500, 2000};
        c.offload.activations = (orth_tier)ORTH_MAX(test_rand_int(seed, 2005, -1, ORTH_TIER_FILE), 0);
        c.offload.min_bytes = least[test_rand_int(seed, 2006, 0, 3)];
        c.freeze = layout_freeze(seed);
        if (c.compute != ORTH_F16 && sort != LAYOUT_FAST) /* fast sums are near, and what is near may be another code */
            c.products = (orth_recipe)ORTH_MAX(test_rand_int(seed, 2010, 1 - ORTH_NUM_RECIPES, ORTH_NUM_RECIPES - 1), 0);
        if (c.products) { /* rules of run files */
            c.keep_packed = false;
            c.ffn_chunk_rows = 0;
        }
        layout_set_recompute(&c, c.recompute);
        c.doc_mask = LAYOUT_PICK(0, 0, 1);
        c.model.tied = LAYOUT_PICK(0, 1);
        c.model.dropout = c.model.embed_dropout = c.model.attn_dropout = LAYOUT_PICK(0, 0, 1) ? 0.1 : 0;
        c.model.heads = LAYOUT_PICK(4, 4, 8);
        c.model.kv_heads = c.model.family == ORTH_FAMILY_LLAMA ? LAYOUT_PICK(1, 2, 4) : c.model.heads;
        if (c.products && l->tp > c.model.kv_heads) /* tiles cannot be cut */
            c.products = seed % 2 ? ORTH_RECIPE_fp8_delayed : ORTH_RECIPE_fp8_tensor;
        c.delayed = (orth_delayed_scaling){.history = 1 + (int32_t)(seed % 3), .most_recent = seed % 5 == 0, .margin = seed % 4 == 0};
        if (orth_recipe_of(c.products)->at_random) { /* parts of whole runs of tokens */
            l->seq_len = c.model.max_seq = ORTH_HADAMARD_RUN * l->parts;
            c.steps = 3;
        }
        c.model.head_dim = 32 / c.model.heads;
        c.model.qkv_bias = c.model.family == ORTH_FAMILY_GPT2 || LAYOUT_PICK(0, 1);
        c.model.vocab = LAYOUT_PICK(67, 131, 96);
        c.model.qk_norm = c.model.family == ORTH_FAMILY_LLAMA && LAYOUT_PICK(0, 1);
        c.comm.overlap = LAYOUT_PICK(0, 1, 1);
        c.comm.bucket_bytes = LAYOUT_PICK(0, 4096, 32768, 1 << 20);
        c.comm.prefetch = LAYOUT_PICK(0, 1, 1, 2, 4);
        c.comm.prefetch_elems = LAYOUT_PICK(0, 0, 5000);
        c.comm.keep_gathered = LAYOUT_PICK(0, 0, 1);
        static const int64_t reuse[] = {0, 0, 12000, INT64_C(1) << 40}, live[] = {0, 0, 9000};
        c.comm.reuse_elems = reuse[test_rand_int(seed, 2011, 0, 3)];
        c.comm.live_elems = live[test_rand_int(seed, 2012, 0, 2)];
        c.comm.unit = (orth_gather_unit)ORTH_MAX(test_rand_int(seed, 2031, -2, ORTH_UNIT_ELEMS), 0);
        static const int64_t layers[] = {2, 3, INT64_MAX}, elems[] = {1, 9000, 20000};
        if (c.comm.unit >= ORTH_UNIT_LAYERS)
            c.comm.unit_size = (c.comm.unit == ORTH_UNIT_LAYERS ? layers : elems)[test_rand_int(seed, 2032, 0, 2)];
        l->whole_layers = l->zero > 0 && test_rand_int(seed, 2033, 0, 3) == 0;
        l->order = orders[LAYOUT_PICK(0, 0, 1, 2, 3)];
        c.threads = LAYOUT_PICK(1, 1, 1, 2, 3);
        layout_draw_layers(l, LAYOUT_PICK(0, 1, 2, 3));
        if (sort != LAYOUT_ANY)
            layout_draw_sort(l, sort, seed, &k);
        if (sort == LAYOUT_FAST && l->num_dp_share > 0 && strcmp(l->pipeline, "zb-v") == 0) /* a rule of run files */
            c.ffn_chunk_rows = 0;
        if (sort == LAYOUT_FAST && l->num_dp_share == 0 && seed % 3 < 2)
            c.comm.reduce = seed % 3 == 0 || l->tp > c.model.kv_heads ? ORTH_BF16 : ORTH_Q8; /* a rule: copies of heads */
        orth_model_dims d = {.layers = c.model.layers, .hidden = c.model.hidden, .heads = c.model.heads,
                             .kv_heads = c.model.kv_heads, .ffn = c.model.ffn, .vocab = c.model.vocab, .tied = c.model.tied};
        l->cp_kind = (orth_cp_kind)LAYOUT_PICK(ORTH_CP_ALL_GATHER, ORTH_CP_ALL_TO_ALL, ORTH_CP_RING);
        if (l->cp > 1 && l->cp_kind == ORTH_CP_RING) { /* whole blocks of keys: few, long sequences */
            l->seq_len = c.model.max_seq = 2 * l->cp * ORTH_ATTN_BLOCK;
            l->global_batch = 4;
            c.steps = 3 + (int32_t)(seed % 3);
        }
        char why[256];
        if (orth_layout_ranks(l) > 1 && orth_layout_ranks(l) <= 64 && orth_layout_next_broken(l, &d, 0, why, sizeof why) < 0)
            return c;
    }
}

/* What is the same on all ranks of a case. */
static inline orth_model_shape layout_shape(const layout_case *c)
{
    static const char *const lr[] = {"*.gain=0.5", "layers.*.attn.*=0.25", "embed.weight=2"};
    static const char *const decay[] = {"*=3", "*.out.weight=0"};
    const int32_t grouped = c->seed % 3 == 0; /* parameters with factors of their own */
    return (orth_model_shape){.mode = ORTH_MODE_TRAIN, .seq_len = (int32_t)c->layout.seq_len,
                              .parts = (int32_t)c->layout.parts, .compute = c->compute, .products = c->products, .delayed = c->delayed, .types = c->types,
                              .space = c->guards_device || c->offload.optimizer || c->offload.activations ? ORTH_SPACE_DEVICE : ORTH_SPACE_HOST,
                              .offload = c->offload, .doc_mask = c->doc_mask,
                              .lr_factors = {"lr", 3 * grouped, lr}, .decay_factors = {"decay", 2 * grouped, decay},
                              .freeze = c->freeze,
                              .optimizer = ORTH_OP_adamw, .comm = c->comm, .keep_packed = c->keep_packed, .recompute = c->recompute,
                              .ffn_chunk_rows = c->ffn_chunk_rows, .head_chunk_rows = c->head_chunk_rows};
}

#endif
