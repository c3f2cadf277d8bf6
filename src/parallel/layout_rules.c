/* layout_rules.c -- the rules, in one list. A rule returns true where it holds; else it reports why not: what,
 * the value, the rule, the reason. Rules further down rest on those above.
 *
 * To add a rule: a function, a row in `rules`, a case in tests/test_mesh.c (which fails until every row has
 * one).
 */
#include "parallel/layout_impl.h"

#include <inttypes.h>
#include <string.h>

#include "parallel/pipeline/balance.h"
#include "parallel/pipeline/schedule.h"
#include "program/lower/ring.h"

bool orth_layout_say(const judge *j, const char *text, const int64_t *values)
{
    size_t used = 0;
    while (*text && used < j->size) {
        const size_t plain = strcspn(text, "{");
        used += (size_t)snprintf(j->why + used, j->size - used, "%.*s", (int)plain, text);
        text += plain;
        if (*text == '\0' || used >= j->size)
            break;
        if (text[1] == '@')
            used += (size_t)snprintf(j->why + used, j->size - used, "%s", j->l->pipeline);
        else
            used += (size_t)snprintf(j->why + used, j->size - used, "%" PRId64, *values++);
        text += text[1] == '@' ? 3 : 2;
    }
    return false;
}

static bool one_divides_the_other(int64_t a, int64_t b)
{
    return a % b == 0 || b % a == 0;
}

static int64_t shard_size(const orth_layout *l)
{
    return l->shard_group ? l->shard_group : l->dp;
}

/* ---- the mesh ---- */

static bool sizes_are_positive(const judge *j)
{
    const orth_layout *l = j->l;
    const orth_model_dims *d = j->d;
    const struct {
        const char *text;
        int64_t value;
    } sizes[] = {
#define SIZE(name, value) {name "={}: must be at least 1", value}
        SIZE("dp", l->dp), SIZE("tp", l->tp), SIZE("pp", l->pp), SIZE("cp", l->cp),
        SIZE("virtual_stages", l->virtual_stages), SIZE("global_batch", l->global_batch),
        SIZE("micro_batch", l->micro_batch), SIZE("seq_len", l->seq_len), SIZE("numerics.parts", l->parts),
        SIZE("layers", d->layers), SIZE("hidden", d->hidden), SIZE("heads", d->heads),
        SIZE("kv_heads", d->kv_heads), SIZE("ffn", d->ffn), SIZE("vocab", d->vocab),
#undef SIZE
    };
    for (int i = 0; i < ORTH_COUNT(sizes); i++)
        if (sizes[i].value < 1)
            return SAY(j, sizes[i].text, sizes[i].value);
    return true;
}

static bool mesh_is_countable(const judge *j)
{
    const int64_t sizes[] = {j->l->dp, j->l->tp, j->l->pp, j->l->cp, j->l->virtual_stages};
    int64_t left = INT32_MAX;
    for (int i = 0; i < ORTH_COUNT(sizes); i++)
        left /= sizes[i];
    return NEED(j, left >= 1,
                "dp={} x tp={} x pp={} x cp={} (x virtual_stages={}) is more than {} ranks",
                sizes[0], sizes[1], sizes[2], sizes[3], sizes[4], INT32_MAX);
}

static bool mesh_uses_all_ranks(const judge *j)
{
    const orth_layout *l = j->l;
    return NEED(j, l->num_ranks == 0 || l->num_ranks == orth_layout_ranks(l),
                "dp={} x tp={} x pp={} x cp={} is {} ranks, but there are {}",
                l->dp, l->tp, l->pp, l->cp, orth_layout_ranks(l), l->num_ranks);
}

/* ---- tensor and sequence parallel ---- */

static bool tp_divides_heads(const judge *j)
{
    const int64_t tp = j->l->tp, heads = j->d->heads;
    return NEED(j, heads % tp == 0,
                "tp={} does not divide heads={}: each rank computes whole heads", tp, heads);
}

static bool tp_fits_kv_heads(const judge *j)
{
    const int64_t tp = j->l->tp, kv = j->d->kv_heads;
    return NEED(j, one_divides_the_other(tp, kv),
                "tp={} and kv_heads={}: one must divide the other, so that each rank has whole key and "
                "value heads, or shares one with its neighbours", tp, kv);
}

static bool tp_divides_ffn(const judge *j)
{
    const int64_t tp = j->l->tp, ffn = j->d->ffn;
    return NEED(j, ffn % tp == 0,
                "tp={} does not divide ffn={}: the feed-forward layer is cut into equal slices", tp, ffn);
}

static bool tp_fits_vocab(const judge *j)
{
    const int64_t tp = j->l->tp, vocab = j->d->vocab;
    return NEED(j, vocab >= tp, "tp={} exceeds vocab={}: each rank needs rows of the embedding", tp, vocab);
}

static bool tp_divides_parts(const judge *j)
{
    const orth_layout *l = j->l;
    return NEED(j, !l->reproducible || l->parts % l->tp == 0,
                "tp={} does not divide numerics.parts={}: in reproducible mode a sum is made of that many "
                "parts, and a rank needs whole ones (numerics.mode=fast does without)", l->tp, l->parts);
}

static bool sequence_parallel_needs_tp(const judge *j)
{
    return NEED(j, !j->l->sequence_parallel || j->l->tp > 1,
                "sequence_parallel=true needs tp > 1: it splits tokens over the ranks of a tp group");
}

static bool sequence_parallel_fits_tokens(const judge *j)
{
    const orth_layout *l = j->l;
    return NEED(j, !l->sequence_parallel || l->seq_len % (l->tp * l->cp) == 0,
                "sequence_parallel=true: tp={} x cp={} does not divide seq_len={}: each rank keeps as many "
                "tokens", l->tp, l->cp, l->seq_len);
}

static bool sequence_parallel_fits_parts(const judge *j)
{
    const orth_layout *l = j->l;
    return NEED(j, !l->sequence_parallel || !l->reproducible || l->parts % (l->tp * l->cp) == 0,
                "sequence_parallel=true: tp={} x cp={} does not divide numerics.parts={}: in reproducible "
                "mode a rank needs whole parts of the tokens", l->tp, l->cp, l->parts);
}

/* ---- context parallel ---- */

static bool cp_fits_tokens(const judge *j)
{
    const orth_layout *l = j->l;
    return NEED(j, l->cp == 1 || l->seq_len % (2 * l->cp) == 0,
                "cp={}: 2*cp does not divide seq_len={}: each rank holds a piece from the front and one "
                "from the back of a sequence, all of one size", l->cp, l->seq_len);
}

/* Fold slots of unequal length would leave ranks with unequal rows. */
static bool parts_fit_tokens(const judge *j)
{
    const orth_layout *l = j->l;
    const bool splits = l->cp > 1 || l->sequence_parallel;
    return NEED(j, !splits || !l->reproducible || l->seq_len % l->parts == 0,
                "numerics.parts={} does not divide seq_len={}: where cp={} or sequence parallelism splits the "
                "tokens of a sequence, the parts of them must be of one size", l->parts, l->seq_len, l->cp);
}

static bool fast_pieces_fit_tokens(const judge *j)
{
    const orth_layout *l = j->l;
    const int64_t pieces = orth_layout_fast_parts(l);
    return NEED(j, l->reproducible || ((l->cp == 1 || l->seq_len % pieces == 0) && pieces <= ORTH_MAX_PARTS),
                "cp={} x tp={} with numerics.mode=fast cuts seq_len={} into {} pieces: they must be equal, and at most {}",
                l->cp, l->tp, l->seq_len, pieces, ORTH_MAX_PARTS);
}

static bool cp_fits_parts(const judge *j)
{
    const orth_layout *l = j->l;
    return NEED(j, l->cp == 1 || !l->reproducible || l->parts % (2 * l->cp) == 0,
                "cp={}: 2*cp does not divide numerics.parts={}: in reproducible mode a rank needs whole "
                "parts of the tokens, from the front and from the back of a sequence", l->cp, l->parts);
}

static bool ring_blocks_are_whole(const judge *j)
{
    const orth_layout *l = j->l;
    const bool asked = l->cp > 1 && l->cp_kind == ORTH_CP_RING;
    return NEED(j, !asked || l->seq_len % (2 * l->cp * ORTH_ATTN_BLOCK) == 0,
                "cp={} by ring: seq_len={} is not a multiple of 2*cp*{}: keys travel in 2*cp blocks, and attention "
                "visits {} of them at a time", l->cp, l->seq_len, ORTH_ATTN_BLOCK, ORTH_ATTN_BLOCK);
}

static bool ring_is_countable(const judge *j)
{
    const orth_layout *l = j->l;
    return NEED(j, l->cp_kind != ORTH_CP_RING || l->cp <= ORTH_MAX_RING,
                "cp={} by ring: more than {} ranks would have too many messages under way at once", l->cp, ORTH_MAX_RING);
}

static bool all_to_all_fits_heads(const judge *j)
{
    const orth_layout *l = j->l;
    const bool asked = l->cp > 1 && l->cp_kind == ORTH_CP_ALL_TO_ALL;
    return NEED(j, !asked || j->d->heads % (l->tp * l->cp) == 0,
                "tp={} x cp={} does not divide heads={}: context parallelism by all-to-all gives each rank "
                "whole heads", l->tp, l->cp, j->d->heads);
}

static bool all_to_all_fits_kv_heads(const judge *j)
{
    const orth_layout *l = j->l;
    const bool asked = l->cp > 1 && l->cp_kind == ORTH_CP_ALL_TO_ALL;
    return NEED(j, !asked || one_divides_the_other(l->tp * l->cp, j->d->kv_heads),
                "tp={} x cp={} and kv_heads={}: one must divide the other, since context parallelism by "
                "all-to-all gives each rank whole heads", l->tp, l->cp, j->d->kv_heads);
}

/* ---- batch and data parallel ---- */

static bool dp_divides_batch(const judge *j)
{
    const orth_layout *l = j->l;
    return NEED(j, l->dp_share || l->global_batch % l->dp == 0,
                "dp={} does not divide global_batch={}: without shares given, each rank gets as many "
                "sequences", l->dp, l->global_batch);
}

static bool shares_are_those_of_dp(const judge *j)
{
    const orth_layout *l = j->l;
    if (!NEED(j, !l->dp_share || l->num_dp_share == l->dp, "dp_share has {} numbers, but dp={}", l->num_dp_share, l->dp))
        return false;
    for (int64_t r = 0; l->dp_share && r < l->dp; r++)
        if (!orth_layout_is_good_share(l->dp_share[r]))
            return SAY(j, "dp_share of dp rank {}: it must be a whole number from 1 to {}", r, ORTH_MAX_SHARE);
    return true;
}

static bool shares_are_whole(const judge *j)
{
    const orth_layout *l = j->l;
    for (int64_t r = 0; orth_layout_has_good_shares(l) && r < l->dp; r++)
        if (l->global_batch * (int64_t)l->dp_share[r] % orth_layout_sum_of_shares(l) != 0)
            return SAY(j, "dp_share of dp rank {} is {} of {}: not a whole number of the {} sequences of global_batch",
                       r, (int64_t)l->dp_share[r], orth_layout_sum_of_shares(l), l->global_batch);
    return true;
}

static bool micro_batch_divides_share(const judge *j)
{
    const orth_layout *l = j->l;
    for (int64_t r = 0; r < orth_layout_num_shares(l); r++)
        if (orth_layout_share(l, r) % l->micro_batch != 0)
            return SAY(j,
                       "micro_batch={} does not divide the {} sequences of a dp rank (global_batch={}, "
                       "dp={})", l->micro_batch, orth_layout_share(l, r), l->global_batch, l->dp);
    return true;
}

/* ZeRO 2 and 3: what is reduced at once must be whole nodes of the aligned tree of tensor/parts.h, and so all that a
 * rank adds. Without them ranks send each other the nodes that they have. */
static bool share_is_a_subtree(const judge *j)
{
    const orth_layout *l = j->l;
    return NEED(j, !l->reproducible || l->dp == 1 || l->zero < 2 || orth_is_power_of_two(orth_layout_share(l, 0)),
                "global_batch={} / dp={} is {} sequences for each rank, not a power of two: with zero={} in "
                "reproducible mode a rank must hold a whole branch of the tree in which gradients are "
                "summed (numerics.mode=fast does without)", l->global_batch, l->dp, orth_layout_share(l, 0), l->zero);
}

/* ---- ZeRO ---- */

static bool zero_stage_exists(const judge *j)
{
    return NEED(j, j->l->zero >= 0 && j->l->zero <= 3,
                "zero={}: stages are 0 (nothing is sharded) to 3", j->l->zero);
}

static bool owner_owns_everything(const judge *j)
{
    const orth_layout *l = j->l;
    return NEED(j, !l->owner || (l->zero == 0 && l->shard_group == 0),
                "data_parallel=owner with zero={} and shard_group={}: one rank owns everything, so that nothing is "
                "shared out", l->zero, l->shard_group);
}

static bool shard_group_divides_dp(const judge *j)
{
    const int64_t group = j->l->shard_group;
    return NEED(j, group == 0 || (group > 0 && j->l->dp % group == 0),
                "shard_group={} does not divide dp={}", group, j->l->dp);
}

static bool shard_group_needs_zero(const judge *j)
{
    return NEED(j, j->l->shard_group == 0 || j->l->zero > 0,
                "shard_group={} needs zero >= 1: with zero=0 nothing is sharded", j->l->shard_group);
}

static bool shard_group_is_a_subtree(const judge *j)
{
    const orth_layout *l = j->l;
    const bool replicas = l->dp % shard_size(l) == 0 && l->dp > shard_size(l);
    return NEED(j, !l->reproducible || !replicas || orth_is_power_of_two(shard_size(l)),
                "shard_group={} is not a power of two: in reproducible mode the gradients of a shard group are summed "
                "before its {} replicas are, and must be a whole branch of the tree in which gradients are summed "
                "(numerics.mode=fast does without)", l->shard_group, l->dp / shard_size(l));
}

static bool kept_whole_is_gathered_otherwise(const judge *j)
{
    return NEED(j, j->l->keep_whole == 0 || j->l->zero == 3,
                "keep_whole={} with zero={}: only zero=3 shards parameters", j->l->keep_whole, j->l->zero);
}

static bool layers_are_shared_out(const judge *j)
{
    return NEED(j, !j->l->whole_layers || j->l->zero > 0, "shard_by=layer needs zero >= 1: with zero={} nothing is shared out", j->l->zero);
}

static bool zero_needs_equal_shares(const judge *j)
{
    const orth_layout *l = j->l;
    for (int64_t r = 1; l->zero >= 2 && orth_layout_has_good_shares(l) && r < l->dp; r++)
        if (l->dp_share[r] != l->dp_share[0])
            return SAY(j,
                       "zero={} needs equal shares: its ranks communicate in every micro-batch, but dp rank "
                       "0 has {} sequences and dp rank {} has {}",
                       l->zero, orth_layout_share(l, 0), r, orth_layout_share(l, r));
    return true;
}

static bool shard_group_needs_even_shares(const judge *j)
{
    const orth_layout *l = j->l;
    return NEED(j, !orth_layout_exchanges_nodes(l) || l->shard_group == 0 || l->shard_group == l->dp,
                "shard_group={} of dp={} needs equal shares of a power of two sequences: dp rank 0 has {}, dp rank {} "
                "has {}", l->shard_group, l->dp, orth_layout_share(l, 0), l->dp - 1, orth_layout_share(l, l->dp - 1));
}

/* ZeRO-2 and 3 reduce each micro-batch at once over the shard group, so that its sequences on all ranks of
 * the group must be a node of the tree. (With one micro-batch they are the whole shares.) */
static bool reduced_at_once_is_a_subtree(const judge *j)
{
    const orth_layout *l = j->l;
    if (!l->reproducible || l->zero < 2 || orth_layout_micro_batches(l, 0) == 1)
        return true;
    return NEED(j, orth_is_power_of_two(shard_size(l)),
                "zero={} over {} ranks with {} micro-batches: in reproducible mode the number of ranks that "
                "share shards must be a power of two, since each micro-batch is reduced at once and must "
                "be a whole branch of the tree in which gradients are summed",
                l->zero, shard_size(l), orth_layout_micro_batches(l, 0));
}

/* ---- pipeline ---- */

static bool virtual_stages_need_pp(const judge *j)
{
    return NEED(j, j->l->virtual_stages == 1 || j->l->pp > 1,
                "virtual_stages={} needs pp > 1: there is nothing to interleave", j->l->virtual_stages);
}

static bool chunks_have_layers(const judge *j)
{
    const orth_layout *l = j->l;
    return NEED(j, l->pp * l->virtual_stages <= j->d->layers,
                "pp={} x virtual_stages={} exceeds layers={}: each chunk needs at least one layer",
                l->pp, l->virtual_stages, j->d->layers);
}

static bool layers_by_hand_add_up(const judge *j)
{
    const orth_layout *l = j->l;
    return !l->stage_layers || orth_balance_hand_fits(l->stage_layers, l->num_stage_layers, j->d->layers,
                                                      l->pp * l->virtual_stages, j->why, j->size);
}

static bool even_stages_divide(const judge *j)
{
    const orth_layout *l = j->l;
    return NEED(j, l->stage_layers || !l->even_stages || j->d->layers % (l->pp * l->virtual_stages) == 0,
                "stage_split=even: layers={} must be a multiple of pp={} x virtual_stages={}", j->d->layers, l->pp, l->virtual_stages);
}

static bool schedule_fits(const judge *j)
{
    const orth_layout *l = j->l;
    for (int64_t r = 0; r < orth_layout_num_shares(l); r++) {
        const int64_t m = ORTH_MAX(orth_layout_micro_batches(l, r), 1); /* 0: an earlier rule is broken */
        if (!orth_schedule_fits(l->pipeline, l->pp, l->virtual_stages, m, j->why, j->size))
            return false;
    }
    return true;
}

static bool async_keeps_whole_weights(const judge *j)
{
    return NEED(j, !orth_schedule_is_async(j->l->pipeline) || j->l->zero < 2,
                "pipeline={@} with zero={}: it stashes whole weights, and makes whole gradients of every "
                "micro-batch, so that zero must be 0 or 1", j->l->zero);
}

static bool async_has_untied_weights(const judge *j)
{
    const bool async = orth_schedule_is_async(j->l->pipeline) && j->l->pp > 1;
    return NEED(j, !async || !j->d->tied,
                "pipeline={@} with tied=true: the first and the last stage would update one matrix at "
                "different times");
}

static bool async_does_not_clip(const judge *j)
{
    return NEED(j, !orth_schedule_is_async(j->l->pipeline) || !j->l->clips,
                "pipeline={@} with clip_norm > 0: its stages update at different times, so that there is no "
                "norm of all gradients");
}

static bool async_has_equal_shares(const judge *j)
{
    return NEED(j, !orth_schedule_is_async(j->l->pipeline) || orth_layout_shares_are_equal(j->l),
                "pipeline={@} with unequal dp_share: data-parallel ranks update together, after each micro-batch");
}

/* ---- the list ---- */

static bool (*const rules[])(const judge *) = {
    sizes_are_positive, mesh_is_countable, mesh_uses_all_ranks, orth_layout_ranks_are_plannable,
    tp_divides_heads, tp_fits_kv_heads, tp_divides_ffn, tp_fits_vocab, tp_divides_parts, sequence_parallel_needs_tp,
    sequence_parallel_fits_tokens, sequence_parallel_fits_parts, cp_fits_tokens, cp_fits_parts,
    parts_fit_tokens, fast_pieces_fit_tokens, ring_blocks_are_whole, ring_is_countable, all_to_all_fits_heads,
    all_to_all_fits_kv_heads, dp_divides_batch, shares_are_those_of_dp, shares_are_whole, micro_batch_divides_share,
    orth_layout_micro_batches_are_countable, orth_layout_leaves_are_countable, orth_layout_program_is_not_too_long,
    orth_layout_uneven_ranks_are_few, orth_layout_uneven_ranks_have_queues, zero_stage_exists, owner_owns_everything, shard_group_divides_dp, shard_group_needs_zero,
    shard_group_is_a_subtree, kept_whole_is_gathered_otherwise, layers_are_shared_out, zero_needs_equal_shares, share_is_a_subtree, shard_group_needs_even_shares,
    reduced_at_once_is_a_subtree, virtual_stages_need_pp, chunks_have_layers, layers_by_hand_add_up, even_stages_divide, schedule_fits,
    async_keeps_whole_weights, async_has_untied_weights, async_does_not_clip, async_has_equal_shares,
};
#define NUM_BASIC_RULES 2 /* they make the arithmetic of all others safe */

int orth_layout_num_rules(void)
{
    return ORTH_COUNT(rules);
}

int orth_layout_next_broken(const orth_layout *l, const orth_model_dims *d, int from, char *why, size_t size)
{
    const judge j = {l, d, why, size};
    for (int i = 0; i < ORTH_MIN(from, NUM_BASIC_RULES); i++)
        if (!rules[i](&j))
            return -1;
    for (int i = from; i < ORTH_COUNT(rules); i++)
        if (!rules[i](&j))
            return i;
    return -1;
}

orth_status orth_layout_check(orth_ctx *ctx, const orth_layout *l, const orth_model_dims *d)
{
    char why[ORTH_MESSAGE_MAX];
    if (orth_layout_next_broken(l, d, 0, why, sizeof why) < 0)
        return ORTH_OK;
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s", why);
}
