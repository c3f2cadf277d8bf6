/* test_recompute_auto.c -- memory.recompute=auto (plan/recompute_auto.h): nothing that fits computes less, the bytes are those of the
 * program, and they never rise when the limit falls. ORTH_SEED: the first of the random layouts; ORTH_AGAIN_CASES: how many; ORTH_AGAIN_SETS: sets of a layer in exhaustive search. */
#include <time.h>

#include "layout_run.h"
#include "plan/recompute_auto_impl.h"
#include "program/ir/cost.h"

typedef struct {
    layout_case c;
    orth_partition partition;
    orth_programs_spec spec;
    orth_again_search *search;
    uint64_t chosen[16];
} searching;

static void begin(orth_ctx *ctx, searching *x, const layout_case *c)
{
    *x = (searching){.c = *c};
    CHECK_OK(ctx, orth_partition_make(ctx, &x->partition, &x->c.layout, &x->c.model));
    x->spec = (orth_programs_spec){.partition = &x->partition, .model = &x->c.model, .step = layout_shape(&x->c), .num_threads = 1};
    CHECK_OK(ctx, orth_again_search_make(ctx, &x->search, &x->spec));
}

static void end(orth_ctx *ctx, searching *x)
{
    orth_again_search_release(ctx, x->search);
    orth_partition_release(ctx, &x->partition);
}

static orth_again_result choose(orth_ctx *ctx, searching *x, size_t rank_limit, size_t total_limit)
{
    orth_again_result r;
    CHECK_OK(ctx, orth_again_choose(ctx, x->search, rank_limit, total_limit, x->chosen, &r));
    return r;
}

static orth_again_result choose_within(orth_ctx *ctx, searching *x, orth_again_bytes limits)
{
    orth_again_result r;
    CHECK_OK(ctx, orth_again_choose_within(ctx, x->search, &limits, x->chosen, &r));
    return r;
}

/* What the programs of all ranks say, compiled one by one; out: what can be limited. */
static orth_again_result counted_bytes(orth_ctx *ctx, const searching *x, const orth_recompute *r, orth_again_bytes *out)
{
    orth_again_result sum = {0};
    *out = (orth_again_bytes){{0}};
    orth_chunk chunks[64];
    for (int rank = 0; rank < x->partition.mesh.num_ranks; rank++) {
        orth_programs_spec spec = x->spec;
        orth_rank_programs programs;
        spec.step.recompute = *r;
        CHECK_OK(ctx, orth_rank_programs_build(ctx, &spec, rank, NULL, chunks, &programs));
        const orth_program *p = &programs.step.program;
        const size_t bytes = p->space_bytes[p->space]; /* of the device, where there is one */
        if (bytes > sum.worst_bytes)
            sum.worst_rank = rank;
        sum.worst_bytes = ORTH_MAX(sum.worst_bytes, bytes);
        sum.total_bytes += orth_program_bytes(p);
        sum.added_flops += orth_program_cost(p).hardware_flops;
        out->of[ORTH_AGAIN_HOST] += p->space_bytes[ORTH_SPACE_HOST];
        out->of[ORTH_AGAIN_FILES] += p->space_bytes[ORTH_SPACE_FILE];
        orth_rank_programs_release(&programs);
    }
    out->of[ORTH_AGAIN_RANK] = sum.worst_bytes;
    out->of[ORTH_AGAIN_ALL] = sum.total_bytes;
    return sum;
}

static orth_again_result counted(orth_ctx *ctx, const searching *x, const orth_recompute *r)
{
    orth_again_bytes bytes;
    return counted_bytes(ctx, x, r, &bytes);
}

static orth_again_result counted_chosen(orth_ctx *ctx, const searching *x, const uint64_t *chosen)
{
    const orth_recompute none = {.kind = ORTH_RECOMPUTE_NONE}, r = {.kind = ORTH_RECOMPUTE_CHOSEN, .chosen = chosen, .holds = ORTH_RECOMPUTE_HOLDS_ALL};
    orth_again_result a = counted(ctx, x, &r);
    a.added_flops -= counted(ctx, x, &none).added_flops;
    return a;
}

/* ---- exhaustive search ---- */

#define MAX_TRIED 40000
#define MAX_SETS 16384

typedef struct {
    uint64_t sets[MAX_SETS], full;
    int num;
} layer_sets;

typedef struct {
    size_t bytes;
    double flops;
} tried;

/* Bit l of `joined`: layer l + 1 is in a group with the one before. */
static bool is_joined(unsigned joined, int l)
{
    return l > 0 && joined >> (l - 1) & 1;
}

static bool is_alone(unsigned joined, int l)
{
    return !is_joined(joined, l) && !is_joined(joined, l + 1);
}

/* A chunk of a pipeline gets its input from elsewhere. */
static bool joins_chunks(const searching *x, unsigned joined)
{
    for (int32_t c = 0; c < x->partition.schedule.num_chunks; c++)
        if (is_joined(joined, x->partition.first_layer[c]))
            return true;
    return false;
}

/* Choice number `which` of those with these groups: of a group all is made again, of a layer alone one of the sets. */
static void make_choice(const layer_sets *s, unsigned joined, int which, int layers, uint64_t *chosen)
{
    for (int l = 0; l < layers; l++) {
        const bool alone = is_alone(joined, l);
        chosen[l] = alone ? s->sets[which % s->num] : s->full | (is_joined(joined, l) ? ORTH_RECOMPUTE_JOINED : 0);
        which /= alone ? s->num : 1;
    }
}

/* Every set in every layer, and every way to divide the layers of a chunk into groups. */
static int try_all(orth_ctx *ctx, const searching *x, const layer_sets *s, tried *all)
{
    const int layers = (int)x->c.model.layers;
    const double plain = counted(ctx, x, &(orth_recompute){.kind = ORTH_RECOMPUTE_NONE}).added_flops;
    int n = 0;
    for (unsigned joined = 0; joined < 1u << (layers - 1); joined++) {
        int num = joins_chunks(x, joined) ? 0 : 1;
        for (int l = 0; l < layers; l++)
            num *= is_alone(joined, l) ? s->num : 1;
        for (int i = 0; i < num; i++) {
            uint64_t chosen[16];
            make_choice(s, joined, i, layers, chosen);
            const orth_again_result r = counted(ctx, x, &(orth_recompute){.kind = ORTH_RECOMPUTE_CHOSEN, .chosen = chosen, .holds = ORTH_RECOMPUTE_HOLDS_ALL});
            assert_true(n < MAX_TRIED);
            all[n++] = (tried){r.worst_bytes, r.added_flops - plain};
        }
    }
    return n;
}

/* Different sets of nodes, without what no backward needs; all else that they read is kept. */
static void list_sets(orth_ctx *ctx, const searching *x, layer_sets *s)
{
    orth_chunk chunks[64];
    orth_rank_programs programs;
    orth_arena arena = {0};
    orth_saved saved;
    s->num = 0;
    CHECK_OK(ctx, orth_rank_programs_build(ctx, &x->spec, 0, NULL, chunks, &programs));
    const orth_graph *g = &programs.step.blocks.layer;
    CHECK_OK(ctx, orth_saved_find(ctx, &arena, &programs.step.program, &programs.step.blocks.spec, &saved));
    s->full = ((uint64_t)1 << g->num_forward) - 1;
    for (uint64_t subset = 0; subset < (uint64_t)1 << g->num_forward; subset++) {
        bool again[64];
        const orth_recompute r = {.kind = ORTH_RECOMPUTE_CHOSEN, .chosen = &subset, .holds = ORTH_RECOMPUTE_HOLDS_ALL};
        orth_recompute_mark(&r, 0, g, false, again);
        const uint64_t marks = orth_again_set_of(&saved, g, again, false).marks;
        int k = 0;
        while (k < s->num && s->sets[k] != marks)
            k++;
        assert_true(k < MAX_SETS);
        if (k == s->num)
            s->sets[s->num++] = marks;
    }
    orth_arena_release(ctx, &arena);
    orth_rank_programs_release(&programs);
}

/* Of s keeps the empty set, all, and others that are drawn, `most` in all. */
static void draw_sets(layer_sets *s, int most, uint64_t seed)
{
    uint64_t all = 0;
    for (int i = 0; i < s->num; i++)
        all |= s->sets[i];
    for (int i = 1; i < ORTH_MIN(s->num, most); i++) {
        int k = (int)test_rand_int(seed, (uint64_t)i, i, s->num - 1);
        for (int m = i; i == 1 && m < s->num; m++)
            k = s->sets[m] == all ? m : k;
        const uint64_t set = s->sets[k];
        s->sets[k] = s->sets[i];
        s->sets[i] = set;
    }
    s->num = ORTH_MIN(s->num, most);
}

/* Sets of each layer that are compared; all where that is 32 or more. */
static int most_sets(void)
{
    const char *given = getenv("ORTH_AGAIN_SETS");
    return given ? atoi(given) : 2;
}

static int by_bytes(const void *a, const void *b)
{
    const tried *x = a, *y = b;
    return (x->bytes > y->bytes) - (x->bytes < y->bytes);
}

static void check_optimal(orth_ctx *ctx, const layout_case *c, int most)
{
    static tried all[MAX_TRIED];
    static layer_sets s;
    searching x;
    begin(ctx, &x, c);
    list_sets(ctx, &x, &s);
    const bool exhaustive = s.num <= most;
    draw_sets(&s, most, 1);
    const int n = try_all(ctx, &x, &s, all);
    qsort(all, (size_t)n, sizeof *all, by_bytes);
    double best = INFINITY;
    for (int i = 0; i < n; i++) {
        best = fmin(best, all[i].flops);
        if (i + 1 < n && all[i + 1].bytes == all[i].bytes)
            continue;
        const orth_again_result r = choose(ctx, &x, all[i].bytes, 0);
        assert_true(r.fits && r.worst_bytes <= all[i].bytes);
        assert_true(exhaustive ? r.added_flops == best : r.added_flops <= best);
    }
    end(ctx, &x);
}

TEST(no_set_of_tensors_that_fits_is_cheaper_than_the_chosen_one)
{
    orth_ctx *ctx = test_ctx(1);
    for (int kind = 0; kind < 2; kind++) {
        layout_case c = layout_base_case(1, kind);
        c.model.layers = kind ? 1 : 2;
        c.layout.micro_batch = 4;
        c.layout.seq_len = 64;
        check_optimal(ctx, &c, MAX_SETS);
    }
    test_ctx_free(ctx);
}

/* Activations that leave cost no computing: at a limit that they keep by leaving nothing is made again, which a run that keeps them
 * cannot do; below, the choice is the best of all sets as they leave. */
TEST(what_leaves_the_device_is_not_made_again_before_that_is_needed)
{
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < 2; k++) {
        layout_case c = layout_base_case(1, 0);
        c.model.layers = k ? 6 : 2;
        c.layout.micro_batch = 4;
        c.layout.seq_len = 64;
        c.offload.activations = k ? ORTH_TIER_FILE : ORTH_TIER_HOST;
        c.offload.min_bytes = 1;
        searching away, here;
        begin(ctx, &away, &c);
        c.offload.activations = ORTH_TIER_NONE;
        begin(ctx, &here, &c);
        const orth_again_result all = choose(ctx, &away, 0, 0), same = choose(ctx, &here, all.worst_bytes, 0);
        assert_true(all.fits && all.added_flops == 0);
        assert_true(choose(ctx, &away, all.worst_bytes, 0).added_flops == 0);
        assert_true(k == 0 || !same.fits || same.added_flops > 0);
        const orth_again_result less = choose(ctx, &away, all.worst_bytes - 1, 0);
        assert_true(!less.fits || less.worst_bytes < all.worst_bytes);
        end(ctx, &here);
        end(ctx, &away);
    }
    layout_case c = layout_base_case(1, 1);
    c.model.layers = 1;
    c.layout.micro_batch = 4;
    c.layout.seq_len = 64;
    c.offload = (orth_offload){.activations = ORTH_TIER_HOST, .min_bytes = 1};
    check_optimal(ctx, &c, MAX_SETS);
    test_ctx_free(ctx);
}

static layout_case case_of_layers(int layers, int pp, bool leaves, bool freezes)
{
    static const char *const frozen[] = {"*", "!*.mlp_norm.gain"};
    layout_case c = layout_base_case(1, 0);
    c.model.layers = layers;
    c.layout.pp = pp;
    c.layout.micro_batch = 4;
    c.layout.seq_len = 64;
    c.offload = (orth_offload){.activations = leaves ? ORTH_TIER_HOST : ORTH_TIER_NONE, .min_bytes = 1};
    c.freeze = freezes ? (orth_factors){"freeze", 2, frozen} : (orth_factors){0};
    return c;
}

/* Two layers, as they stay and as they leave, on one rank and two stages; below frozen weights a layer keeps less than the next. With
 * ORTH_AGAIN_SETS=32 all 1,025 choices, else those of 8 sets. */
TEST(no_choice_for_two_layers_that_fits_is_cheaper_than_the_chosen_one)
{
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < 8; i++) {
        const layout_case c = case_of_layers(2, 1 + i / 4, i & 1, i & 2);
        check_optimal(ctx, &c, most_sets());
    }
    test_ctx_free(ctx);
}

/* Of three layers the search looks at mixtures of sets; the groups, alone and beside layers with any set, are all looked at. */
TEST(no_choice_for_three_layers_that_fits_is_cheaper_than_the_chosen_one)
{
    orth_ctx *ctx = test_ctx(1);
    layout_case c = case_of_layers(3, 1, false, false);
    check_optimal(ctx, &c, most_sets());
    test_ctx_free(ctx);
}

/* Three layers have 32,768 choices, of which the search looks at mixtures only; ORTH_AGAIN_DRAWS of all are compared with it. */
TEST(no_drawn_set_for_each_of_many_layers_is_cheaper_than_the_chosen_one)
{
    const char *given = getenv("ORTH_AGAIN_DRAWS");
    const int num = given ? atoi(given) : 60;
    orth_ctx *ctx = test_ctx(1);
    layer_sets s;
    searching x;
    layout_case c = layout_base_case(1, 0);
    c.model.layers = 3;
    c.layout.micro_batch = 4;
    c.layout.seq_len = 64;
    begin(ctx, &x, &c);
    list_sets(ctx, &x, &s);
    for (int i = 0; i < num; i++) {
        uint64_t chosen[3];
        for (int l = 0; l < 3; l++)
            chosen[l] = s.sets[test_rand_int(given ? 2 : (uint64_t)time(NULL) / 3600, (uint64_t)(3 * i + l), 0, s.num - 1)];
        const orth_again_result drawn = counted_chosen(ctx, &x, chosen), r = choose(ctx, &x, drawn.worst_bytes, 0);
        assert_true(r.fits && r.worst_bytes <= drawn.worst_bytes && r.added_flops <= drawn.added_flops);
    }
    end(ctx, &x);
    test_ctx_free(ctx);
}

/* ---- policies with names ---- */

/* Under each limit that is exactly what a policy needs, alone and beside that of a rank: what is chosen computes no more. */
static void check_within(orth_ctx *ctx, searching *x, int policy, const orth_again_bytes *needs, double added, bool of_rank_only)
{
    static const char *const of[ORTH_AGAIN_LIMITS] = {"the largest rank", "all ranks", "the host's memory", "files"};
    for (int k = 0; k < (of_rank_only ? ORTH_AGAIN_RANK + 1 : ORTH_AGAIN_LIMITS); k++)
        for (int beside = 0; beside < (k == ORTH_AGAIN_RANK ? 1 : 2); beside++) {
            orth_again_bytes limits = {{[ORTH_AGAIN_RANK] = beside ? needs->of[ORTH_AGAIN_RANK] : 0}};
            limits.of[k] = needs->of[k];
            const orth_again_result r = choose_within(ctx, x, limits);
            if (!r.fits || r.added_flops > added)
                fail_msg("seed %d, policy %d: %.6g FLOPs are added in %zu bytes of %s, auto (%s) adds %.6g in %zu of the largest rank, %zu of all ranks",
                         (int)x->c.seed, policy, added, needs->of[k], of[k], r.fits ? "fits" : "does not fit", r.added_flops, r.worst_bytes, r.total_bytes);
        }
    const orth_again_result r = choose_within(ctx, x, of_rank_only ? (orth_again_bytes){{needs->of[ORTH_AGAIN_RANK]}} : *needs);
    assert_true(r.fits && r.added_flops <= added);
}

/* What each policy needs is enough for a choice that computes no more. */
static void check_named(orth_ctx *ctx, const layout_case *c)
{
    static const char *const linear[] = {"linear"}, *const both[] = {"linear", "attention"}, *const part[] = {"linear", "attention_part"},
                      *const core[] = {"attention"}, *const core_part[] = {"attention_part"},
                      *const three[] = {"linear", "add", "attention"}, *const three_parts[] = {"linear", "add", "attention_part"}, *const norm[] = {"norm"};
    const orth_recompute policies[] = {
        {.kind = ORTH_RECOMPUTE_NONE}, {.kind = ORTH_RECOMPUTE_SELECTIVE}, {.kind = ORTH_RECOMPUTE_FULL}, {.kind = ORTH_RECOMPUTE_FULL, .layers = 2},
        {.kind = ORTH_RECOMPUTE_FULL, .layers = 1, .block = true}, {.kind = ORTH_RECOMPUTE_SQRT},
        {.kind = ORTH_RECOMPUTE_OPS, .ops = norm, .num_ops = 1}, {.kind = ORTH_RECOMPUTE_KEEP, .ops = linear, .num_ops = 1},
        {.kind = ORTH_RECOMPUTE_KEEP, .ops = c->layout.cp > 1 ? part : both, .num_ops = 2},
        {.kind = ORTH_RECOMPUTE_KEEP, .ops = c->layout.cp > 1 ? core_part : core, .num_ops = 1},
        {.kind = ORTH_RECOMPUTE_OPS, .ops = c->layout.cp > 1 ? part : both, .num_ops = 2}, {.kind = ORTH_RECOMPUTE_KEEP, .ops = c->layout.cp > 1 ? three_parts : three, .num_ops = 3}};
    searching x;
    begin(ctx, &x, c);
    const double plain = counted(ctx, &x, &policies[0]).added_flops;
    for (int i = 0; i < ORTH_COUNT(policies); i++) {
        const bool in_groups = policies[i].layers > 0 || policies[i].kind == ORTH_RECOMPUTE_SQRT;
        if (c->layout.pp > 1 && in_groups) /* of several stages those are compared that have one set in all layers */
            continue;
        orth_again_bytes needs;
        const orth_again_result named = counted_bytes(ctx, &x, &policies[i], &needs);
        /* Where activations leave, layers with different sets are not always listed; the device's memory hardly tells them apart. */
        check_within(ctx, &x, i, &needs, named.added_flops - plain, in_groups && c->offload.activations != ORTH_TIER_NONE);
    }
    end(ctx, &x);
}

/* Each case of one family; of both with 100 of ORTH_AGAIN_CASES. */
TEST(no_named_policy_computes_less_in_as_little)
{
    const char *given = getenv("ORTH_AGAIN_CASES");
    const uint64_t seed = given && atoi(given) >= 100 ? 0 : test_seed();
    static const struct { int layers, dp, zero, cp, bf16, batch, pp; orth_tier leaves; } cases[] = {
        {1, 1, 0, 1, 1, 1, 1, ORTH_TIER_NONE}, {2, 1, 0, 1, 0, 2, 1, ORTH_TIER_NONE},  {4, 1, 0, 1, 1, 1, 1, ORTH_TIER_NONE},
        {12, 1, 0, 1, 1, 2, 1, ORTH_TIER_NONE}, {2, 2, 3, 1, 1, 1, 1, ORTH_TIER_NONE}, {3, 1, 0, 2, 1, 1, 1, ORTH_TIER_NONE},
        {1, 1, 0, 1, 1, 1, 1, ORTH_TIER_HOST}, {2, 1, 0, 2, 1, 1, 1, ORTH_TIER_HOST},  {4, 1, 0, 1, 0, 2, 1, ORTH_TIER_HOST},
        {4, 1, 0, 1, 0, 2, 1, ORTH_TIER_FILE}, {4, 1, 0, 1, 0, 1, 2, ORTH_TIER_NONE},  {4, 1, 0, 1, 0, 1, 2, ORTH_TIER_HOST},
        {6, 1, 0, 1, 0, 1, 2, ORTH_TIER_FILE}};
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < 2 * ORTH_COUNT(cases); i++) {
        const int k = i / 2;
        if (seed && (seed + (uint64_t)i + (uint64_t)k) % 2)
            continue;
        layout_case c = layout_base_case((uint64_t)i, i % 2); /* GPT-2, Llama */
        c.model.layers = cases[k].layers;
        c.layout.dp = cases[k].dp;
        c.layout.zero = cases[k].zero;
        c.layout.cp = cases[k].cp;
        c.layout.pp = cases[k].pp;
        c.layout.global_batch = cases[k].pp > 1 ? 8 : c.layout.global_batch;
        c.layout.micro_batch = cases[k].batch;
        c.layout.seq_len = 64;
        c.compute = cases[k].bf16 ? ORTH_BF16 : ORTH_F32;
        if (cases[k].leaves)
            c.offload = (orth_offload){.activations = cases[k].leaves, .min_bytes = 1};
        check_named(ctx, &c);
    }
    test_ctx_free(ctx);
}

/* Their FLOPs are known without compiling them, so there need not be few instructions. */
TEST(named_policies_are_choices_of_long_programs_too)
{
    orth_ctx *ctx = test_ctx(1);
    layout_case c = layout_base_case(1, true);
    c.model.layers = 4;
    c.layout.micro_batch = 1;
    c.layout.global_batch = 512;
    searching x;
    begin(ctx, &x, &c);
    const again_stage *st = &x.search->stages[0];
    assert_true(st->num_instrs > 30000);
    assert_true(st->num - st->num_ordered > 20);
    for (int32_t i = st->num_ordered; i < st->num; i++) {
        assert_true(st->choices[i].named);
        assert_true(i == st->num_ordered || st->choices[i - 1].cost.flops <= st->choices[i].cost.flops);
    }
    end(ctx, &x);
    test_ctx_free(ctx);
}

/* ---- random layouts ---- */

static layout_case small_case(uint64_t seed)
{
    layout_case c = layout_random_case(seed, LAYOUT_ANY);
    for (uint64_t k = 1; orth_layout_ranks(&c.layout) > 4; k++)
        c = layout_random_case(seed + 1000 * k, LAYOUT_ANY);
    if (c.ffn_chunk_rows > 0) /* thousands of choices of programs so long take minutes */
        c.ffn_chunk_rows = 20;
    return c;
}

/* What is said to be needed at least is enough, and is what that needs; below nothing fits. */
static void check_refused(orth_ctx *ctx, searching *x, size_t limit, bool together, const orth_again_result *r)
{
    const orth_again_limit k = together ? ORTH_AGAIN_ALL : ORTH_AGAIN_RANK;
    assert_int_equal(r->broken, k);
    assert_true(r->least_bytes > limit && (together ? r->total_bytes : r->worst_bytes) == r->least_bytes);
    const orth_again_bytes enough = {{[ORTH_AGAIN_RANK] = together ? 0 : r->least_bytes, [ORTH_AGAIN_ALL] = together ? r->least_bytes : 0}};
    const orth_again_result least = choose_within(ctx, x, enough);
    assert_true(least.fits && (together ? least.total_bytes : least.worst_bytes) == r->least_bytes);
    const size_t below[] = {r->least_bytes - 1, limit - limit / 16, limit / 2, 1};
    for (int i = 0; i < ORTH_COUNT(below); i++)
        assert_false(choose(ctx, x, together ? 0 : below[i], together ? below[i] : 0).fits);
}

TEST(bytes_and_flops_are_those_of_the_programs_and_never_rise_when_the_limit_falls)
{
    orth_ctx *ctx = test_ctx(1);
    const uint64_t seed = test_seed();
    for (uint64_t i = 0; i < 4; i++) {
        layout_case c = small_case(seed + i);
        searching x;
        begin(ctx, &x, &c);
        orth_again_result last = choose(ctx, &x, 0, 0);
        assert_true(last.fits && last.added_flops == 0);
        const bool together = i % 2;
        for (int k = 0; k < 20; k++) {
            const size_t limit = (together ? last.total_bytes : last.worst_bytes) - 1;
            const orth_again_result r = choose(ctx, &x, together ? 0 : limit, together ? limit : 0);
            if (!r.fits) {
                check_refused(ctx, &x, limit, together, &r);
                break;
            }
            assert_true((together ? r.total_bytes : r.worst_bytes) <= limit); /* the other may rise: ranks are not alike */
            last = r;
            if (k % 8)
                continue;
            const orth_again_result is = counted_chosen(ctx, &x, x.chosen);
            assert_int_equal(is.worst_bytes, r.worst_bytes);
            assert_int_equal(is.total_bytes, r.total_bytes);
            assert_true(is.added_flops == r.added_flops);
        }
        end(ctx, &x);
    }
    test_ctx_free(ctx);
}

/* Where activations leave, the choice with the least on the device has more than others in all. From what a plain run needs down to what nothing keeps, all
 * limits between the bytes of choices, of one stage and of two: none is refused above one that is kept. */
TEST(what_is_refused_at_a_limit_is_refused_at_each_smaller_one)
{
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < 4; i++) {
        layout_case c = case_of_layers(4, 1 + i / 2, true, false);
        c.layout.global_batch = 8;
        c.layout.micro_batch = i / 2 ? 1 : 2;
        c.offload.activations = i % 2 ? ORTH_TIER_FILE : ORTH_TIER_HOST;
        searching x;
        begin(ctx, &x, &c);
        orth_again_result last = choose(ctx, &x, 0, 0), r = last;
        for (; r.fits; r = choose(ctx, &x, 0, last.total_bytes - 1)) {
            assert_true(r.total_bytes <= last.total_bytes && r.added_flops >= last.added_flops);
            last = r;
        }
        assert_int_equal(r.least_bytes, last.total_bytes);
        const orth_again_result none = choose_within(ctx, &x, (orth_again_bytes){{1, 1, 1, 0}});
        assert_true(!none.fits && none.broken == ORTH_AGAIN_RANK && none.worst_bytes == none.least_bytes);
        check_refused(ctx, &x, last.total_bytes - 1, true, &r);
        for (int32_t k = 0; i / 2 == 0 && k < x.search->stages[0].num; k++) /* all are compiled: none has less */
            assert_true(x.search->stages[0].choices[k].compiled && x.search->stages[0].choices[k].bytes.of[ORTH_AGAIN_ALL] >= r.least_bytes);
        end(ctx, &x);
    }
    test_ctx_free(ctx);
}

/* What the optimizer has elsewhere changes by a few buffers at most, so no choice is looked for that changes it: the plan says what is too much. */
TEST(limits_of_the_host_and_of_files_are_for_activations_that_leave)
{
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < 4; i++) {
        layout_case c = case_of_layers(4, 1 + i / 2, false, false);
        const orth_tier tier = i % 2 ? ORTH_TIER_FILE : ORTH_TIER_HOST;
        c.layout.global_batch = 8;
        c.offload = (orth_offload){.optimizer = tier, .gradients = tier, .params = tier, .min_bytes = 1, .sub_group = 1000};
        searching x;
        begin(ctx, &x, &c);
        const orth_again_result r = choose_within(ctx, &x, (orth_again_bytes){{[ORTH_AGAIN_HOST] = 1, [ORTH_AGAIN_FILES] = 1}});
        assert_true(r.fits && r.added_flops == 0);
        for (int p = 0; p < c.layout.pp; p++)
            for (int32_t k = 1; k < x.search->stages[p].num; k++)
                assert_false(x.search->stages[p].choices[k].compiled);
        end(ctx, &x);
    }
    test_ctx_free(ctx);
}

/* Bytes of choices lie apart, so a limit is most often between two of them. Drawn limits in the order in which they fall: the bytes never rise,
 * the FLOPs never fall, and what is chosen for a limit does not depend on those that were asked before. */
TEST(between_the_bytes_of_choices_a_lower_limit_never_needs_more)
{
    orth_ctx *ctx = test_ctx(1);
    const uint64_t drawn = test_seed();
    for (uint64_t i = 0; i < 2; i++) {
        enum { MOST = 40 };
        const uint64_t seed = i == 0 ? 1 : drawn; /* seed 1: groups of 3 layers are below groups of 2 in FLOPs and in bytes */
        const int num = i == 0 ? MOST : MOST / 4;
        layout_case c = small_case(seed + 50);
        searching x, fresh;
        begin(ctx, &x, &c);
        begin(ctx, &fresh, &c);
        const orth_again_result most = choose(ctx, &x, 0, 0), least = choose(ctx, &x, 1, 0);
        orth_again_result last = most;
        size_t limit = most.worst_bytes, at = SIZE_MAX;
        for (int k = 0; k < num && limit >= least.worst_bytes; k++) {
            const orth_again_result r = choose(ctx, &x, limit, 0);
            assert_true(r.fits && r.worst_bytes <= limit && r.worst_bytes <= last.worst_bytes && r.added_flops >= last.added_flops);
            if (k == num / 2)
                at = limit;
            last = r;
            limit -= (size_t)test_rand_int(seed, (uint64_t)k, 1, (int64_t)(2 * (most.worst_bytes - least.worst_bytes)) / num + 1);
        }
        if (at != SIZE_MAX) {
            const orth_again_result once = choose(ctx, &x, at, 0), alone = choose(ctx, &fresh, at, 0);
            assert_true(once.worst_bytes == alone.worst_bytes && once.added_flops == alone.added_flops);
        }
        end(ctx, &fresh);
        end(ctx, &x);
    }
    test_ctx_free(ctx);
}

/* The first stage of 1f1b keeps the most micro-batches. At a limit that only it exceeds, it alone makes values again. */
TEST(a_stage_that_has_room_makes_nothing_again)
{
    orth_ctx *ctx = test_ctx(1);
    layout_case c = layout_base_case(1, 0);
    c.model.layers = 4;
    c.layout.pp = 2;
    c.layout.seq_len = 64;
    c.layout.global_batch = 8;
    c.layout.micro_batch = 1;
    searching x;
    begin(ctx, &x, &c);
    const orth_again_result all = choose(ctx, &x, 0, 0);
    int alone = 0;
    for (size_t limit = all.worst_bytes - 1; limit > all.worst_bytes - 4096; limit -= 1024) {
        const orth_again_result r = choose(ctx, &x, limit, 0);
        assert_true(r.fits && r.added_flops >= 0);
        const uint64_t first = x.chosen[0] | x.chosen[1], second = x.chosen[2] | x.chosen[3];
        assert_true(all.worst_rank == 0 ? second == 0 && first != 0 : first == 0 && second != 0);
        alone++;
    }
    assert_int_equal(alone, 4);
    end(ctx, &x);
    test_ctx_free(ctx);
}

/* Where a random limit leads, and to what the layers of a random run are set. */
TEST(what_is_chosen_computes_the_bits_of_a_plain_run)
{
    const char *given = getenv("ORTH_AGAIN_CASES");
    const uint64_t num = given ? strtoull(given, NULL, 10) : 2, seed = test_seed();
    orth_ctx *ctx = test_ctx(1);
    for (uint64_t i = 0; i < num; i++) {
        layout_case c = small_case(seed * 1000 + i);
        searching x;
        begin(ctx, &x, &c);
        const orth_again_result most = choose(ctx, &x, 0, 0), least = choose(ctx, &x, 1, 0);
        const double part = (double)test_rand_int(seed, i, 0, 100) / 100;
        const size_t limit = least.worst_bytes + (size_t)(part * (double)(most.worst_bytes - least.worst_bytes));
        assert_true(!least.fits && choose(ctx, &x, limit, 0).fits);
        c.steps = 2;
        c.recompute = (orth_recompute){.kind = ORTH_RECOMPUTE_CHOSEN, .chosen = x.chosen, .holds = ORTH_RECOMPUTE_HOLDS_ALL};
        check_layout(&c);
        end(ctx, &x);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_set_of_tensors_that_fits_is_cheaper_than_the_chosen_one),
        cmocka_unit_test(no_named_policy_computes_less_in_as_little),
        cmocka_unit_test(named_policies_are_choices_of_long_programs_too),
        cmocka_unit_test(what_leaves_the_device_is_not_made_again_before_that_is_needed),
        cmocka_unit_test(no_choice_for_two_layers_that_fits_is_cheaper_than_the_chosen_one),
        cmocka_unit_test(no_choice_for_three_layers_that_fits_is_cheaper_than_the_chosen_one),
        cmocka_unit_test(no_drawn_set_for_each_of_many_layers_is_cheaper_than_the_chosen_one),
        cmocka_unit_test(bytes_and_flops_are_those_of_the_programs_and_never_rise_when_the_limit_falls),
        cmocka_unit_test(what_is_refused_at_a_limit_is_refused_at_each_smaller_one),
        cmocka_unit_test(limits_of_the_host_and_of_files_are_for_activations_that_leave),
        cmocka_unit_test(between_the_bytes_of_choices_a_lower_limit_never_needs_more),
        cmocka_unit_test(a_stage_that_has_room_makes_nothing_again),
        cmocka_unit_test(what_is_chosen_computes_the_bits_of_a_plain_run),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
