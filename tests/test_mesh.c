/* test_mesh.c -- ranks and coordinates, groups in canonical order, hosts; every rule of layouts. */
#include "test.h"

#include "parallel/layout.h"
#include "parallel/mesh.h"

static orth_mesh make(orth_ctx *ctx, orth_mesh_options o)
{
    orth_mesh m;
    CHECK_OK(ctx, orth_mesh_init(ctx, &m, &o));
    return m;
}

/* ---- mesh ---- */

TEST(by_default_tp_is_innermost_and_pp_outermost)
{
    orth_ctx *ctx = test_ctx(1);
    const orth_mesh m = make(ctx, (orth_mesh_options){.dp = 4, .tp = 2, .pp = 2, .cp = 3, .shard_group = 2});
    assert_int_equal(m.num_ranks, 48);
    assert_int_equal(m.stride[ORTH_AXIS_TP], 1);
    assert_int_equal(m.stride[ORTH_AXIS_CP], 2);
    assert_int_equal(m.stride[ORTH_AXIS_SHARD], 6);
    assert_int_equal(m.stride[ORTH_AXIS_REPLICATE], 12);
    assert_int_equal(m.stride[ORTH_AXIS_PP], 24);
    const int32_t want[ORTH_NUM_AXES] = {1, 2, 0, 1, 1}; /* tp, cp, shard, replicate, pp */
    for (int a = 0; a < ORTH_NUM_AXES; a++)
        assert_int_equal(orth_mesh_coord(&m, 24 + 12 + 2 * 2 + 1, (orth_axis)a), want[a]);
    test_ctx_free(ctx);
}

static const char *const orders[] = {NULL, "", "tp,cp,dp,pp", "pp,dp,cp,tp", "dp", "shard, tp, replicate",
                                     "pp cp replicate shard tp"};

static orth_mesh random_mesh(orth_ctx *ctx, uint64_t seed)
{
    const int64_t group = test_rand_int(seed, 0, 1, 3), times = test_rand_int(seed, 1, 1, 3);
    return make(ctx, (orth_mesh_options){.dp = group * times, .shard_group = group,
                                         .tp = test_rand_int(seed, 2, 1, 3), .cp = test_rand_int(seed, 3, 1, 2),
                                         .pp = test_rand_int(seed, 4, 1, 3),
                                         .order = orders[seed % ORTH_COUNT(orders)]});
}

TEST(ranks_and_coordinates_are_inverse_under_any_order)
{
    orth_ctx *ctx = test_ctx(1);
    for (uint64_t seed = 0; seed < 60; seed++) {
        const orth_mesh m = random_mesh(ctx, seed);
        for (int r = 0; r < m.num_ranks; r++) {
            int rank = 0;
            for (int a = 0; a < ORTH_NUM_AXES; a++) {
                const int coord = orth_mesh_coord(&m, r, (orth_axis)a);
                rank += coord * m.stride[a];
                assert_in_range(coord, 0, m.size[a] - 1);
                const int other = orth_mesh_moved(&m, r, (orth_axis)a, m.size[a] - 1);
                assert_int_equal(orth_mesh_coord(&m, other, (orth_axis)a), m.size[a] - 1);
                assert_int_equal(orth_mesh_moved(&m, other, (orth_axis)a, coord), r);
            }
            assert_int_equal(rank, r);
        }
    }
    test_ctx_free(ctx);
}

/* Groups along any set of axes partition the ranks; members differ in these axes only, and stand in the order
 * of their coordinates, whatever the placement. */
TEST(groups_partition_the_ranks_in_canonical_order)
{
    orth_ctx *ctx = test_ctx(1);
    for (uint64_t seed = 0; seed < 40; seed++) {
        const orth_mesh m = random_mesh(ctx, seed);
        for (orth_axes axes = 0; axes <= ORTH_AXES_ALL; axes++) {
            const int n = orth_mesh_group_size(&m, axes);
            for (int r = 0; r < m.num_ranks; r++) {
                int group[512], at = orth_mesh_group_pos(&m, r, axes);
                orth_mesh_group(&m, r, axes, group);
                assert_int_equal(group[at], r);
                for (int i = 0; i < n; i++) {
                    assert_int_equal(orth_mesh_group_pos(&m, group[i], axes), i);
                    bool later = i == 0;
                    for (int a = ORTH_NUM_AXES - 1; a >= 0; a--) { /* the last axis counts most */
                        const int mine = orth_mesh_coord(&m, group[i], (orth_axis)a);
                        if (!(axes >> a & 1))
                            assert_int_equal(mine, orth_mesh_coord(&m, r, (orth_axis)a));
                        if (i && mine != orth_mesh_coord(&m, group[i - 1], (orth_axis)a) && !later) {
                            later = mine > orth_mesh_coord(&m, group[i - 1], (orth_axis)a);
                            assert_true(later);
                        }
                    }
                    assert_true(later);
                }
            }
        }
    }
    test_ctx_free(ctx);
}

TEST(groups_know_their_hosts)
{
    orth_ctx *ctx = test_ctx(1);
    const orth_mesh m = make(ctx, (orth_mesh_options){.dp = 4, .tp = 4, .pp = 2, .cp = 1});
    assert_true(orth_mesh_inside_host(&m, ORTH_AXES_TP, 8));
    assert_true(orth_mesh_inside_host(&m, ORTH_AXES_TP, 0));
    assert_true(orth_mesh_inside_host(&m, ORTH_AXES_TP | ORTH_AXES_DP, 16));
    assert_false(orth_mesh_inside_host(&m, ORTH_AXES_TP, 6));
    assert_false(orth_mesh_inside_host(&m, ORTH_AXES_DP, 8));
    assert_false(orth_mesh_inside_host(&m, ORTH_AXES_PP, 16));
    static const int alike[] = {1, 2, 4, 8, 16, 32, 64}, not[] = {3, 5, 6, 7, 12, 24};
    for (int i = 0; i < ORTH_COUNT(alike); i++)
        assert_true(orth_mesh_hosts_are_alike(&m, alike[i]));
    for (int i = 0; i < ORTH_COUNT(not); i++)
        assert_false(orth_mesh_hosts_are_alike(&m, not[i]));
    assert_int_equal(orth_mesh_host(17, 8), 2);
    assert_int_equal(orth_mesh_host(17, 0), 0);
    test_ctx_free(ctx);
}

TEST(wrong_meshes_are_refused_in_words)
{
    orth_ctx *ctx = test_ctx(1);
    orth_mesh m;
    const orth_mesh_options ok = {.dp = 4, .tp = 1, .pp = 1, .cp = 1};
    orth_mesh_options o = ok;
    o.order = "tp,xp";
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "order=tp,xp: \"xp\" is not an axis; there are tp, cp, dp, pp",
                orth_mesh_init(ctx, &m, &o));
    o.order = "tp,dp,shard";
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "order=tp,dp,shard: shard is there twice", orth_mesh_init(ctx, &m, &o));
    o = ok;
    o.shard_group = 3;
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "shard_group=3 does not divide dp=4", orth_mesh_init(ctx, &m, &o));
    o = ok;
    o.cp = 0;
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "cp=0: an axis has 1 to 2147483647 ranks", orth_mesh_init(ctx, &m, &o));
    o = ok;
    o.tp = o.pp = 65536;
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "the mesh has more than 2147483647 ranks", orth_mesh_init(ctx, &m, &o));
    test_ctx_free(ctx);
}

TEST(meshes_print)
{
    orth_ctx *ctx = test_ctx(1);
    orth_text t = {0};
    const orth_mesh m = make(ctx, (orth_mesh_options){.dp = 4, .tp = 2, .pp = 2, .cp = 1, .shard_group = 2});
    orth_mesh_print(ctx, &t, &m, 4, 3);
    assert_string_equal(t.s, "mesh of 16 ranks on 4 hosts of 4, fastest axis first:\n"
                             "  tp             2 ranks, as in 0 1; inside a host\n"
                             "  shard          2 ranks, as in 0 2; inside a host\n"
                             "  replicate      2 ranks, as in 0 4; across hosts\n"
                             "  pp             2 ranks, as in 0 8; across hosts\n"
                             "  dp             4 ranks, as in 0 2 ... 6; across hosts\n"
                             "   rank  host        pp replicate     shard        tp\n"
                             "      0     0         0         0         0         0\n"
                             "      1     0         0         0         0         1\n"
                             "      2     0         0         0         1         0\n"
                             "   ... 13 more\n");
    orth_mem_free(ctx, t.s);
    test_ctx_free(ctx);
}

/* ---- layouts ---- */

static const orth_model_dims gpt = {.layers = 12, .hidden = 768, .heads = 12, .kv_heads = 12, .ffn = 3072, .vocab = 50257};

/* A valid layout of everything at once; the cases below break one thing each. */
static orth_layout everything(void)
{
    orth_layout l = orth_layout_defaults;
    l.dp = 4;
    l.tp = l.cp = l.pp = 2;
    l.zero = 1;
    l.shard_group = 2;
    l.sequence_parallel = true;
    l.pipeline = "interleaved";
    l.virtual_stages = 2;
    l.global_batch = 32;
    l.micro_batch = 2;
    l.seq_len = 1024;
    l.num_ranks = 32;
    return l;
}

static const double shares_zero[] = {16, 16, 0, 0}, shares_fifths[] = {2, 1, 1, 1}, shares_good[] = {4, 2, 1, 1};
static const double layers_few[] = {3, 3, 6}, layers_none[] = {6, 0, 3, 3}, layers_more[] = {3, 3, 3, 4};
static const double layers_good[] = {2, 3, 3, 4};

typedef struct {
    const char *text;
    void (*change)(orth_layout *, orth_model_dims *);
} rule_case;

#define CASE(name, ...) static void name(orth_layout *l, orth_model_dims *d) { (void)l; (void)d; __VA_ARGS__; }
CASE(tp_0, l->tp = 0)
CASE(batch_0, l->global_batch = 0)
CASE(kv_0, d->kv_heads = 0)
CASE(too_many, l->dp = l->tp = 65536)
CASE(fewer_ranks, l->num_ranks = 31)
CASE(tp_3, l->tp = 3; d->heads = 32; l->num_ranks = 0)
CASE(kv_3, l->tp = 4; d->kv_heads = 6; l->num_ranks = 0)
CASE(ffn_odd, d->ffn = 3073)
CASE(vocab_1, d->vocab = 1)
CASE(parts_1, l->parts = 1)
CASE(sp_alone, l->tp = 1; l->num_ranks = 0)
CASE(sp_tokens, l->cp = 1; l->seq_len = 1023; l->num_ranks = 0)
CASE(sp_parts, l->tp = 4; l->cp = 2; l->parts = 4; l->num_ranks = 0)
CASE(cp_tokens, l->sequence_parallel = false; l->seq_len = 1026)
CASE(cp_parts, l->sequence_parallel = false; l->parts = 2)
CASE(parts_tokens, l->seq_len = 1024 + 4; l->parts = 8)
CASE(fast_pieces, l->reproducible = false; l->tp = 6; d->heads = 12; d->kv_heads = 6; l->sequence_parallel = false; l->num_ranks = 0)
CASE(ring_short, l->cp_kind = ORTH_CP_RING; l->seq_len = 1024 + 64)
CASE(ring_long, l->cp_kind = ORTH_CP_RING; l->cp = 32; l->parts = 64; l->tp = 1; l->sequence_parallel = false; l->seq_len = 4096; l->num_ranks = 0)
CASE(ulysses_heads, l->cp_kind = ORTH_CP_ALL_TO_ALL; d->heads = 10; d->kv_heads = 2)
CASE(ulysses_kv, l->cp_kind = ORTH_CP_ALL_TO_ALL; d->kv_heads = 6)
CASE(batch_30, l->global_batch = 30)
CASE(short_shares, l->dp_share = shares_good; l->num_dp_share = 3)
CASE(zero_shares, l->dp_share = shares_zero; l->num_dp_share = 4)
CASE(fifths, l->dp_share = shares_fifths; l->num_dp_share = 4)
CASE(micro_3, l->micro_batch = 3)
CASE(million, l->global_batch = 4000000)
CASE(endless_step, l->global_batch = 4 << 22; l->micro_batch = 1 << 20; l->parts = l->seq_len = 1; l->cp = l->tp = 1; l->sequence_parallel = false; l->num_ranks = 0)
CASE(large_batch, l->global_batch = l->micro_batch = 1 << 20; l->parts = l->seq_len = 8; l->dp = l->cp = l->tp = l->pp = 1; l->stage_layers = NULL;
     l->zero = l->shard_group = 0; l->sequence_parallel = false; l->num_ranks = 0)
CASE(long_step, l->global_batch = 16384 * 8; d->layers = 160)
CASE(long_stages, l->global_batch = 4096 * 4; d->layers = 160; l->pp = 16; l->stage_layers = NULL; l->num_stage_layers = 0; l->virtual_stages = 1;
     l->pipeline = "1f1b"; l->num_ranks = 0)
CASE(many_uneven, l->dp = 256; l->zero = l->shard_group = 0; l->global_batch = 256 * 6; l->num_ranks = 0)
CASE(uneven_without_queues, l->dp = 100; l->zero = l->shard_group = 0; l->global_batch = 100 * 6; l->num_ranks = 0)
CASE(many_ranks, l->dp = 16384; l->num_ranks = 0)
CASE(leaves, l->micro_batch = 1024; l->global_batch = (16 << 20) / 8 + 4096)
CASE(batch_48, l->zero = 2; l->global_batch = 48)
CASE(group_of_uneven, l->dp_share = shares_good; l->num_dp_share = 4)
CASE(zero_4, l->zero = 4)
CASE(group_3, l->shard_group = 3)
CASE(group_minus, l->shard_group = -1)
CASE(group_idle, l->zero = 0)
CASE(owned_shards, l->owner = true)
CASE(group_of_three, l->dp = 6; l->shard_group = 3; l->global_batch = 48; l->num_ranks = 0)
CASE(kept_whole, l->keep_whole = 1000)
CASE(layers_idle, l->zero = 0; l->shard_group = 0; l->whole_layers = true)
CASE(zero_2_shares, l->zero = 2; l->dp_share = shares_good; l->num_dp_share = 4)
CASE(zero_2_three, l->dp = 3; l->shard_group = 0; l->zero = 2; l->global_batch = 24; l->num_ranks = 0)
CASE(virtual_alone, l->pp = 1; l->num_ranks = 0)
CASE(many_chunks, l->virtual_stages = 7)
CASE(few_layers, l->stage_layers = layers_few; l->num_stage_layers = 3)
CASE(no_layers, l->stage_layers = layers_none; l->num_stage_layers = 4)
CASE(odd_stages, l->even_stages = true; l->stage_layers = NULL; d->layers = 13)
CASE(more_layers, l->stage_layers = layers_more; l->num_stage_layers = 4)
CASE(rounds, l->pp = 3; l->num_ranks = 0; l->stage_layers = NULL)
CASE(zb_v_1, l->pipeline = "zb-v"; l->virtual_stages = 1)
CASE(gpipe_2, l->pipeline = "gpipe")
CASE(no_such, l->pipeline = "1f2b")
CASE(async_zero, l->pipeline = "pipedream"; l->virtual_stages = 1; l->zero = 3)
CASE(async_tied, l->pipeline = "pipedream"; l->virtual_stages = 1; d->tied = true)
CASE(async_clip, l->pipeline = "pipedream"; l->virtual_stages = 1; l->clips = true)
CASE(async_shares, l->pipeline = "pipedream"; l->shard_group = 0; l->virtual_stages = 1; l->dp_share = shares_good; l->num_dp_share = 4)

static const rule_case cases[] = {
    {"tp=0: must be at least 1", tp_0},
    {"global_batch=0: must be at least 1", batch_0},
    {"kv_heads=0: must be at least 1", kv_0},
    {"dp=65536 x tp=65536 x pp=2 x cp=2 (x virtual_stages=2) is more than 2147483647 ranks", too_many},
    {"dp=4 x tp=2 x pp=2 x cp=2 is 32 ranks, but there are 31", fewer_ranks},
    {"tp=3 does not divide heads=32: each rank computes whole heads", tp_3},
    {"tp=4 and kv_heads=6: one must divide the other, so that each rank has whole key and value heads, or shares one "
     "with its neighbours", kv_3},
    {"tp=2 does not divide ffn=3073: the feed-forward layer is cut into equal slices", ffn_odd},
    {"tp=2 exceeds vocab=1: each rank needs rows of the embedding", vocab_1},
    {"tp=2 does not divide numerics.parts=1: in reproducible mode a sum is made of that many parts, and a rank needs "
     "whole ones (numerics.mode=fast does without)", parts_1},
    {"sequence_parallel=true needs tp > 1: it splits tokens over the ranks of a tp group", sp_alone},
    {"sequence_parallel=true: tp=2 x cp=1 does not divide seq_len=1023: each rank keeps as many tokens", sp_tokens},
    {"sequence_parallel=true: tp=4 x cp=2 does not divide numerics.parts=4: in reproducible mode a rank needs whole "
     "parts of the tokens", sp_parts},
    {"cp=2: 2*cp does not divide seq_len=1026: each rank holds a piece from the front and one from the back of a "
     "sequence, all of one size", cp_tokens},
    {"cp=2: 2*cp does not divide numerics.parts=2: in reproducible mode a rank needs whole parts of the tokens, from "
     "the front and from the back of a sequence", cp_parts},
    {"numerics.parts=8 does not divide seq_len=1028: where cp=2 or sequence parallelism splits the tokens of a "
     "sequence, the parts of them must be of one size", parts_tokens},
    {"cp=2 x tp=6 with numerics.mode=fast cuts seq_len=1024 into 12 pieces: they must be equal, and at most 256",
     fast_pieces},
    {"cp=2 by ring: seq_len=1088 is not a multiple of 2*cp*64: keys travel in 2*cp blocks, and attention visits 64 of "
     "them at a time", ring_short},
    {"cp=32 by ring: more than 16 ranks would have too many messages under way at once", ring_long},
    {"tp=2 x cp=2 does not divide heads=10: context parallelism by all-to-all gives each rank whole heads",
     ulysses_heads},
    {"tp=2 x cp=2 and kv_heads=6: one must divide the other, since context parallelism by all-to-all gives each rank "
     "whole heads", ulysses_kv},
    {"dp=4 does not divide global_batch=30: without shares given, each rank gets as many sequences", batch_30},
    {"dp_share has 3 numbers, but dp=4", short_shares},
    {"dp_share of dp rank 2: it must be a whole number from 1 to 1000", zero_shares},
    {"dp_share of dp rank 0 is 2 of 5: not a whole number of the 32 sequences of global_batch", fifths},
    {"micro_batch=3 does not divide the 8 sequences of a dp rank (global_batch=32, dp=4)", micro_3},
    {"the 1000000 sequences of a dp rank are 500000 micro-batches of micro_batch=2: at most 16384 (a larger micro_batch, or "
     "more ranks)", million},
    {"dp=16384 x tp=2 x pp=2 x cp=2 is 131072 ranks: at most 65536", many_ranks},
    {"the 4194304 sequences of a dp rank are more than 2097152: its step would be too long a program", endless_step},
    {"16384 micro-batches of 2 sequences through 80 layers are about 68419584 instructions on a rank: at most 2097152 (fewer and "
     "larger micro-batches, more pipeline stages, longer sequences)", long_step},
    {"2048 micro-batches of 2 sequences through 10 layers on each of 16 stages are about", long_stages},
    {"the 1048576 sequences of a dp rank through 12 layers are about 8388920 instructions on a rank: at most 2097152 (a smaller "
     "global_batch, or more dp ranks)", large_batch},
    {"dp=256 with shares of the batch that are not equal powers of two: each rank exchanges the gradients of its 6 layers with "
     "each other, and dp x dp x layers may be at most 131072", many_uneven},
    {"dp=100 with shares of the batch that are not equal powers of two: a rank can exchange its gradients with 87 others at most "
     "(numerics.mode=fast allows other equal shares)", uneven_without_queues},
    {"global_batch=2101248 sequences of 8 parts each (numerics.parts, seq_len=1024): a step sums up at most 16777216 of "
     "them", leaves},
    {"global_batch=48 / dp=4 is 12 sequences for each rank, not a power of two: with zero=2 in reproducible mode a rank "
     "must hold a whole branch of the tree in which gradients are summed (numerics.mode=fast does without)", batch_48},
    {"shard_group=2 of dp=4 needs equal shares of a power of two sequences: dp rank 0 has 16, dp rank 3 has 4",
     group_of_uneven},
    {"zero=4: stages are 0 (nothing is sharded) to 3", zero_4},
    {"data_parallel=owner with zero=1 and shard_group=2: one rank owns everything", owned_shards},
    {"shard_group=3 does not divide dp=4", group_3},
    {"shard_group=-1 does not divide dp=4", group_minus},
    {"shard_group=2 needs zero >= 1: with zero=0 nothing is sharded", group_idle},
    {"shard_group=3 is not a power of two: in reproducible mode the gradients of a shard group are summed before its 2 "
     "replicas are, and must be a whole branch of the tree in which gradients are summed", group_of_three},
    {"keep_whole=1000 with zero=1: only zero=3 shards parameters", kept_whole},
    {"shard_by=layer needs zero >= 1: with zero=0 nothing is shared out", layers_idle},
    {"zero=2 needs equal shares: its ranks communicate in every micro-batch, but dp rank 0 has 16 sequences and dp rank "
     "1 has 8", zero_2_shares},
    {"zero=2 over 3 ranks with 4 micro-batches: in reproducible mode the number of ranks that share shards must be a "
     "power of two, since each micro-batch is reduced at once and must be a whole branch of the tree in which "
     "gradients are summed", zero_2_three},
    {"virtual_stages=2 needs pp > 1: there is nothing to interleave", virtual_alone},
    {"pp=2 x virtual_stages=7 exceeds layers=12: each chunk needs at least one layer", many_chunks},
    {"stage_layers has 3 numbers, but pp x virtual_stages is 4", few_layers},
    {"stage_layers of chunk 1 is 0: it must be a whole number from 1 to layers=12", no_layers},
    {"stage_split=even: layers=13 must be a multiple of pp=", odd_stages},
    {"stage_layers adds up to 13, not to layers=12", more_layers},
    {"pipeline=interleaved: 4 micro-batches are not a multiple of pp=3, and it runs them in rounds of pp", rounds},
    {"pipeline=zb-v needs virtual_stages=2, not 1", zb_v_1},
    {"pipeline=gpipe needs virtual_stages=1, not 2", gpipe_2},
    {"pipeline=1f2b: unknown; there are naive, gpipe, 1f1b", no_such},
    {"pipeline=pipedream with zero=3: it stashes whole weights, and makes whole gradients of every micro-batch, so "
     "that zero must be 0 or 1", async_zero},
    {"pipeline=pipedream with tied=true: the first and the last stage would update one matrix at different times",
     async_tied},
    {"pipeline=pipedream with clip_norm > 0: its stages update at different times, so that there is no norm of all "
     "gradients", async_clip},
    {"pipeline=pipedream with unequal dp_share: data-parallel ranks update together, after each micro-batch", async_shares},
};

TEST(every_rule_of_layouts_has_a_case_and_says_why)
{
    orth_ctx *ctx = test_ctx(1);
    bool seen[64] = {false};
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        orth_layout l = everything();
        orth_model_dims d = gpt;
        char why[ORTH_MESSAGE_MAX];
        CHECK_OK(ctx, orth_layout_check(ctx, &l, &d));
        cases[i].change(&l, &d);
        CHECK_FAILS(ctx, ORTH_ERR_ARG, cases[i].text, orth_layout_check(ctx, &l, &d));
        const int rule = orth_layout_next_broken(&l, &d, 0, why, sizeof why);
        assert_in_range(rule, 0, orth_layout_num_rules() - 1);
        seen[rule] = true;
        /* All reasons can be asked for, and none of them takes the arithmetic down. */
        for (int next = rule; next >= 0;)
            next = orth_layout_next_broken(&l, &d, next + 1, why, sizeof why);
    }
    assert_in_range(orth_layout_num_rules(), 20, 64);
    for (int r = 0; r < orth_layout_num_rules(); r++)
        if (!seen[r])
            fail_msg("rule %d of layout_rules.c has no case here", r);
    test_ctx_free(ctx);
}

TEST(several_reasons_are_all_told)
{
    orth_layout l = orth_layout_defaults;
    orth_model_dims d = gpt;
    char why[ORTH_MESSAGE_MAX];
    l.tp = 5;
    l.dp = 3;
    l.global_batch = 8;
    l.zero = -1;
    int n = 0;
    for (int r = orth_layout_next_broken(&l, &d, 0, why, sizeof why); r >= 0;
         r = orth_layout_next_broken(&l, &d, r + 1, why, sizeof why))
        n++;
    assert_int_equal(n, 6); /* heads, kv heads, ffn, parts; batch; zero */
    assert_string_equal(why, "zero=-1: stages are 0 (nothing is sharded) to 3");
    char small[8];
    orth_layout_next_broken(&l, &d, 0, small, sizeof small);
    assert_string_equal(small, "tp=5 do");
}

TEST(good_layouts_are_accepted)
{
    orth_ctx *ctx = test_ctx(1);
    orth_model_dims d = gpt;
    orth_layout l = orth_layout_defaults;
    CHECK_OK(ctx, orth_layout_check(ctx, &l, &d));
    l.pipeline = "zb-v"; /* means nothing with one rank */
    CHECK_OK(ctx, orth_layout_check(ctx, &l, &d));
    l = everything();
    l.dp_share = shares_good;
    l.num_dp_share = 4;
    l.shard_group = 0;
    CHECK_OK(ctx, orth_layout_check(ctx, &l, &d));
    assert_true(orth_layout_is_uneven(&l));
    assert_int_equal(orth_layout_micro_batches(&l, 0), 8);
    assert_int_equal(orth_layout_micro_batches(&l, 3), 2);
    l = everything();
    l.stage_layers = layers_good;
    l.num_stage_layers = 4;
    CHECK_OK(ctx, orth_layout_check(ctx, &l, &d));
    l.reproducible = false; /* then nothing needs parts */
    l.parts = 1;
    l.global_batch = 48;
    CHECK_OK(ctx, orth_layout_check(ctx, &l, &d));
    l = (orth_layout){.dp = 8, .tp = 8, .pp = 16, .cp = 16, .virtual_stages = 1, .global_batch = 128, .micro_batch = 1, .seq_len = 131072, .parts = 128,
                      .sequence_parallel = true, .pipeline = "1f1b", .zero = 1}; /* Llama 3 405B, arXiv:2407.21783, table 4 */
    CHECK_OK(ctx, orth_layout_check(ctx, &l, &(orth_model_dims){.layers = 126, .hidden = 16384, .heads = 128, .kv_heads = 8, .ffn = 53248, .vocab = 128256}));
    l = everything();
    l.dp = 3; /* any number of ranks with shares that are powers of two */
    l.shard_group = 0;
    l.global_batch = 24;
    l.num_ranks = 24;
    CHECK_OK(ctx, orth_layout_check(ctx, &l, &d));
    d.kv_heads = 1; /* fewer than tp: shared */
    CHECK_OK(ctx, orth_layout_check(ctx, &l, &d));
    l.pipeline = "file:my.schedule";
    CHECK_OK(ctx, orth_layout_check(ctx, &l, &d));
    l = everything();
    l.pipeline = "pipedream";
    l.virtual_stages = 1;
    CHECK_OK(ctx, orth_layout_check(ctx, &l, &d));
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(by_default_tp_is_innermost_and_pp_outermost),
        cmocka_unit_test(ranks_and_coordinates_are_inverse_under_any_order),
        cmocka_unit_test(groups_partition_the_ranks_in_canonical_order),
        cmocka_unit_test(groups_know_their_hosts),
        cmocka_unit_test(wrong_meshes_are_refused_in_words),
        cmocka_unit_test(meshes_print),
        cmocka_unit_test(every_rule_of_layouts_has_a_case_and_says_why),
        cmocka_unit_test(several_reasons_are_all_told),
        cmocka_unit_test(good_layouts_are_accepted),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
