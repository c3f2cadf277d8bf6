/* route_words.c -- the route of a gradient in words, a line for each stage (route.h). */
#include <inttypes.h>

#include "program/lower/route.h"

/* The node of a block that makes the gradient; NULL: none in this block. */
static const orth_node *maker_in(const orth_block *block, int64_t index)
{
    const orth_graph *g = block->graph;
    for (int32_t i = g->num_forward; i < g->num_nodes; i++)
        if (g->nodes[i].param >= 0 && block->param_index[g->nodes[i].param] == index)
            return &g->nodes[i];
    return NULL;
}

static const char *maker(const orth_compile_spec *s, int64_t index, bool second)
{
    const orth_node *n = second ? NULL : maker_in(&s->embed, index);
    for (int32_t l = 0; l < s->num_layers && !n; l++)
        n = maker_in(&s->layers[l], index);
    if (!n)
        n = maker_in(&s->final, index);
    if (!n)
        n = maker_in(&s->head, index);
    return n ? orth_op_name(n->op) : "nothing";
}

/* Asynchronous: the sum of an update is that of one micro-batch. */
static const char *moment_word(const orth_compile_spec *s, orth_moment when)
{
    static const char *const words[] = {
        [ORTH_MOMENT_SEQUENCE] = "sequence", [ORTH_MOMENT_MICRO_BATCH] = "micro-batch", [ORTH_MOMENT_STEP] = "step",
        [ORTH_MOMENT_UPDATE] = "update", [ORTH_MOMENT_USE] = "use",
    };
    return words[s->async && when == ORTH_MOMENT_STEP ? ORTH_MOMENT_MICRO_BATCH : when];
}

static const char *plural(int64_t n, const char *one, const char *many)
{
    return n == 1 ? one : many;
}

/* What the leaves of a tree are. */
static void say_leaves(orth_ctx *ctx, orth_text *t, const orth_route_stage *s)
{
    const int64_t parts = s->per_sequence, seqs = parts > 0 ? s->leaves / parts : 0;
    if (s->leaves == 0)
        orth_text_addf(ctx, t, "all nodes that this rank's sequences fill");
    else if (parts == 0)
        orth_text_addf(ctx, t, "%" PRId64 " %s", s->leaves, plural(s->leaves, "micro-batch", "micro-batches"));
    else if (parts == 1)
        orth_text_addf(ctx, t, "%" PRId64 " %s", seqs, plural(seqs, "sequence", "sequences"));
    else
        orth_text_addf(ctx, t, "%" PRId64 " parts of each of %" PRId64 " %s", parts, seqs, plural(seqs, "sequence", "sequences"));
}

static void say_group(orth_ctx *ctx, orth_text *t, const orth_compile_spec *spec, const char *call, const orth_route_stage *s)
{
    orth_text_addf(ctx, t, "%s over %s (%d ranks)", call, orth_group_name(s->over), (int)ORTH_MAX(spec->mesh.size[s->over], 1));
}

static void say_travel(orth_ctx *ctx, orth_text *t, const orth_route_stage *s)
{
    static const char *const words[] = {
        [ORTH_TRAVELS_ALONE] = "", [ORTH_TRAVELS_IN_BUCKET] = ", in a bucket", [ORTH_TRAVELS_TOGETHER] = ", with the same bucket",
    };
    orth_text_add(ctx, t, words[s->travels]);
    if (s->lag)
        orth_text_add(ctx, t, ", beside what is computed next");
}

static void say_reduce(orth_ctx *ctx, orth_text *t, const orth_compile_spec *spec, const orth_route *r, int i)
{
    const orth_route_stage *s = &r->stage[i];
    const bool scatters = s->extent == ORTH_EXTENT_SHARD && r->stage[i - 1].extent == ORTH_EXTENT_WHOLE;
    say_group(ctx, t, spec, scatters ? "reduce_scatter" : "all_reduce", s);
    if (s->when == ORTH_MOMENT_UPDATE)
        orth_text_add(ctx, t, ", of each node");
    if (i + 1 < r->num && s[1].op == ORTH_ROUTE_WIDEN)
        orth_text_addf(ctx, t, " in %s", orth_dtype_name(spec->comm.reduce));
    say_travel(ctx, t, s);
}

static void say_join(orth_ctx *ctx, orth_text *t, const orth_compile_spec *spec, const orth_route_stage *s)
{
    if (s->over == ORTH_GROUP_EMBED) {
        say_group(ctx, t, spec, "all_reduce", s);
        orth_text_add(ctx, t, ": the sums of embedding and head");
    } else if (s->when == ORTH_MOMENT_UPDATE) {
        orth_text_add(ctx, t, "tree_acc, adds the sum of the head");
    } else {
        orth_text_add(ctx, t, "the last instruction of that sum adds that of the head");
    }
}

static void say_stage(orth_ctx *ctx, orth_text *t, const orth_compile_spec *spec, const orth_route *r, int i, const char *op)
{
    const orth_route_stage *s = &r->stage[i];
    switch (s->op) {
    case ORTH_ROUTE_TREE:
        orth_text_addf(ctx, t, "%s, added up in %s ", i == 0 ? op : "tree_acc", s->running ? "order, over" : "the tree over");
        say_leaves(ctx, t, s);
        break;
    case ORTH_ROUTE_REDUCE:
        say_reduce(ctx, t, spec, r, i);
        break;
    case ORTH_ROUTE_WIDEN:
        orth_text_add(ctx, t, "widen, to fp32");
        break;
    case ORTH_ROUTE_EXCHANGE:
        say_group(ctx, t, spec, "send and recv", s);
        orth_text_add(ctx, t, ": slices of all nodes; tree_acc of one slice");
        break;
    case ORTH_ROUTE_GATHER:
        say_group(ctx, t, spec, "all_gather", s);
        break;
    case ORTH_ROUTE_JOIN:
        say_join(ctx, t, spec, s);
        break;
    case ORTH_ROUTE_GIVE:
        orth_text_add(ctx, t, "added to the sum of the embedding");
        break;
    case ORTH_ROUTE_OPTIMIZE:
        orth_text_addf(ctx, t, "%s%s", spec->async ? "" : "grad_square, clip_scale, ", orth_op_name(spec->optimizer));
        break;
    case ORTH_ROUTE_REST:
        orth_text_add(ctx, t, "frozen (optimizer.freeze): no gradient is made, and nothing updates it");
        break;
    case ORTH_ROUTE_GATHER_WEIGHT:
        say_group(ctx, t, spec, "all_gather of the weight", s);
        orth_text_add(ctx, t, s->when == ORTH_MOMENT_USE ? ", with its block" : ", in a bucket");
        break;
    }
}

static void print_use(orth_ctx *ctx, orth_text *t, const orth_compile_spec *spec, const orth_route *r, const char *op)
{
    static const char *const extents[] = {[ORTH_EXTENT_WHOLE] = "whole", [ORTH_EXTENT_SHARD] = "shard", [ORTH_EXTENT_SLICE] = "slice"};
    static const char *const keeps[] = {"", [ORTH_KEEP_TRANSIENT] = ", transient", [ORTH_KEEP_PERSISTENT] = ", kept"};
    for (int i = 0; i < r->num; i++) {
        const orth_route_stage *s = &r->stage[i];
        orth_text_addf(ctx, t, "%7d  %-12s  %-6s  ", i + 1, moment_word(spec, s->when), extents[s->extent]);
        say_stage(ctx, t, spec, r, i, op);
        orth_text_addf(ctx, t, "%s\n", keeps[s->keep]);
    }
}

void orth_route_print(orth_ctx *ctx, orth_text *t, const orth_compile_spec *spec, int64_t index)
{
    orth_route r[2];
    for (int k = 0; k < 2; k++)
        orth_route_make(spec, index, k > 0, &r[k]);
    const bool tied = orth_route_is_tied(spec) && index == spec->embed.param_index[0];
    for (int k = 0; k < 2; k++) {
        if (r[k].num == 0)
            continue;
        if (tied)
            orth_text_addf(ctx, t, "used by the %s:\n", k == 0 ? "embedding" : "head");
        print_use(ctx, t, spec, &r[k], maker(spec, index, k > 0));
    }
}
