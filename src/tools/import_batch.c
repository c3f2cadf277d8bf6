/* import_batch.c -- how many ranks there are, and how many sequences a step and a micro-batch have. Of the batch of a step, the micro-batch, the
 * accumulation steps and the data-parallel ranks three decide the fourth. */
#include "tools/import_impl.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MOST_RANKS 1000000        /* as of parallel.dp */

/* torchrun's MIN:MAX where both are the same. */
static bool is_one_number(const orth_import_pair *p)
{
    const size_t n = strspn(p->value, "0123456789");
    return n > 0 && p->value[n] == ':' && strncmp(p->value, p->value + n + 1, n) == 0 && !p->value[2 * n + 1];
}

/* Why a number of nodes, or of ranks of one, is not known here; NULL: it is, or it is a number that cannot be. Names of a shell and words such as `gpu`
 * leave it to whoever starts the run; so does torchrun's MIN:MAX, a run that goes on while nodes come and go. */
static const char *not_known(const orth_import_pair *p)
{
    const char *end = p->value + strspn(p->value, "0123456789");
    if (p->row->part == ORTH_PART_nodes && end > p->value && *end == ':')
        return is_one_number(p) ? NULL : "it is a range, and a plan is of one number of ranks";
    if (p->row->part == ORTH_PART_ranks_a_node && strcmp(p->value, "-1") == 0)
        return "-1 is all devices of a node";
    return *p->value && strchr("+-.0123456789", *p->value) ? NULL : "it is no number";
}

/* Whether all devices of the cluster are ranks: nothing else says how many there are. */
static bool cluster_decides(const orth_importer *x)
{
    const int64_t others = x->cfg->parallel_tp * x->cfg->parallel_pp * x->cfg->parallel_cp;
    const bool follows = orth_import_find(x, ORTH_PART_accumulation) && orth_import_gives(x, "train.global_batch") && orth_import_gives(x, "train.micro_batch");
    return x->num_devices > 0 && x->num_devices % others == 0 && !follows && !ORTH_CONFIG_IS_SET(x->cfg, parallel, dp);
}

static orth_status say_not_known(orth_importer *x, const orth_import_pair *p, const char *why)
{
    const char *text = orth_arena_printf(x->ctx, &x->arena, "%s: %s", why, cluster_decides(x) ? "the cluster decides" : "give parallel.dp");
    if (!text)
        return ORTH_ERR_NOMEM;
    orth_import_unused(x, p->place, text);
    return ORTH_OK;
}

static orth_status count_nodes(orth_importer *x, int64_t *nodes)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_nodes);
    if (!p || !is_one_number(p))
        return orth_import_count(x, ORTH_PART_nodes, 1, nodes);
    *nodes = strtoll(p->value, NULL, 10);
    return *nodes > 0 ? ORTH_OK : ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: must be a number of at least 1", p->place, ORTH_SHOWN(p->value));
}

/* ranks = nodes * ranks of a node = tp * pp * cp * dp. */
static orth_status set_ranks(orth_importer *x)
{
    static const orth_import_part parts[] = {ORTH_PART_ranks_a_node, ORTH_PART_nodes};
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_ranks_a_node), *of_nodes = orth_import_find(x, ORTH_PART_nodes);
    const int64_t others = x->cfg->parallel_tp * x->cfg->parallel_pp * x->cfg->parallel_cp;
    const char *why = p ? not_known(p) : NULL, *why_nodes = of_nodes ? not_known(of_nodes) : NULL;
    int64_t nodes, a_node;
    if (x->tool == ORTH_TOOL_accelerate)
        return ORTH_OK; /* it has the ranks themselves, and set_hybrid the nodes */
    if (orth_import_stays(x->cfg, "parallel.dp")) {
        orth_import_unused_parts(x, parts, ORTH_COUNT(parts), "the command line gives parallel.dp");
        return ORTH_OK;
    }
    if (!p || why || why_nodes) {
        if (p)
            ORTH_TRY(say_not_known(x, p, why ? why : "the number of nodes is not known"));
        return of_nodes ? say_not_known(x, of_nodes, why_nodes ? why_nodes : "the number of ranks of a node is not known") : ORTH_OK;
    }
    ORTH_TRY(count_nodes(x, &nodes));
    ORTH_TRY(orth_import_count(x, ORTH_PART_ranks_a_node, 1, &a_node));
    if (nodes > MOST_RANKS || a_node > MOST_RANKS)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%" PRId64 ": must be at most %d", nodes > MOST_RANKS ? of_nodes->place : p->place,
                         nodes > MOST_RANKS ? nodes : a_node, MOST_RANKS);
    if (nodes * a_node % others != 0)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%" PRId64 ": %" PRId64 " nodes have %" PRId64 " ranks, which tensor x pipeline x context parallel "
                         "ranks = %" PRId64 " do not divide", p->place, a_node, nodes, nodes * a_node, others);
    return orth_import_set_int(x, p->place, "parallel.dp", nodes * a_node / others);
}

/* The batch of a step = micro-batch * accumulation steps * data-parallel ranks: of two batches follow the ranks. */
static orth_status set_ranks_of_batches(orth_importer *x, const orth_import_pair *p, int64_t steps)
{
    const int64_t all = x->cfg->train_global_batch, micro = x->cfg->train_micro_batch;
    if (steps > all || micro > all / steps || all % (micro * steps) != 0)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%" PRId64 " x train.micro_batch=%" PRId64 " does not divide the batch of a step, "
                         "train.global_batch=%" PRId64, p->place, steps, micro, all);
    return orth_import_set_int(x, p->place, "parallel.dp", all / (micro * steps));
}

/* Begins a message about accumulation steps: "ds.json: gradient_accumulation_steps=4 x "; where no key gives them, there is one: "ds.json: ". NULL
 * without memory. */
static const char *of_steps(orth_importer *x, const orth_import_pair *steps)
{
    return steps ? orth_arena_printf(x->ctx, &x->arena, "%s=%s x ", steps->place, steps->value) : orth_import_place(x, "");
}

/* Of the micro-batch and the ranks follows the batch of a step. `place` is what says so; `of` are the steps as a key, or NULL. */
static orth_status set_batch_of_ranks(orth_importer *x, const char *place, const orth_import_pair *of, int64_t steps)
{
    const int64_t most = 1000000000, micro = x->cfg->train_micro_batch, dp = x->cfg->parallel_dp;
    if (!place)
        return ORTH_ERR_NOMEM;
    if (steps > most / micro / dp) {
        const char *begin = of_steps(x, of);
        return !begin ? ORTH_ERR_NOMEM : ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%strain.micro_batch=%" PRId64 " x parallel.dp=%" PRId64 ": a step must be at most %"
                                                   PRId64 " sequences", begin, micro, dp, most);
    }
    return orth_import_set_int(x, place, "train.global_batch", micro * steps * dp);
}

/* Who starts their programs decides how many ranks there are: here all devices of the cluster. */
static orth_status set_ranks_of_cluster(orth_importer *x)
{
    const int64_t others = x->cfg->parallel_tp * x->cfg->parallel_pp * x->cfg->parallel_cp;
    if (!cluster_decides(x))
        return ORTH_OK;
    return orth_import_set_int(x, orth_import_place(x, "all devices of the cluster"), "parallel.dp", x->num_devices / others);
}

/* Why the batch of a step does not follow from accumulation steps; NULL: it does. */
static const char *batch_is_not_known(const orth_config *c)
{
    if (ORTH_CONFIG_IS_SET(c, train, global_batch))
        return "steps follow from train.global_batch, train.micro_batch and parallel.dp";
    if (!ORTH_CONFIG_IS_SET(c, train, micro_batch))
        return "train.micro_batch is not given: give it, or train.global_batch";
    return ORTH_CONFIG_IS_SET(c, parallel, dp) ? NULL : "the number of ranks is not given: give parallel.dp, or train.global_batch";
}

/* Of the batch, the accumulation steps and the ranks follows the micro-batch. `place` and `of` as above. */
static orth_status set_micro_batch(orth_importer *x, const char *place, const orth_import_pair *of, int64_t steps)
{
    const int64_t all = x->cfg->train_global_batch, dp = x->cfg->parallel_dp;
    if (!place)
        return ORTH_ERR_NOMEM;
    if (steps > all / dp || all % (steps * dp) != 0) {
        const char *begin = of_steps(x, of);
        return !begin ? ORTH_ERR_NOMEM : ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%sparallel.dp=%" PRId64 " does not divide the batch of a step, train.global_batch=%"
                                                   PRId64, begin, dp, all);
    }
    return orth_import_set_int(x, place, "train.micro_batch", all / (steps * dp));
}

/* DeepSpeed takes one step of accumulation where a micro-batch or a batch is given alone, Megatron-LM where a micro-batch is: it refuses a batch alone, as
 * NeMo does. */
static orth_status set_one_step(orth_importer *x)
{
    const orth_config *c = x->cfg;
    const bool batch = ORTH_CONFIG_IS_SET(c, train, global_batch), micro = ORTH_CONFIG_IS_SET(c, train, micro_batch);
    if (batch && !micro && orth_tool_has_model(x->tool) && orth_import_gives(x, "train.global_batch")) {
        orth_log(x->ctx, ORTH_LOG_INFO, "import", "%s: no key gives train.micro_batch, and a run there needs one: %" PRId64 " is the default of Orthant",
                 ORTH_SHOWN(x->name), c->train_micro_batch);
        return ORTH_OK;
    }
    if ((x->tool != ORTH_TOOL_deepspeed && x->tool != ORTH_TOOL_megatron) || !ORTH_CONFIG_IS_SET(c, parallel, dp) || batch == micro)
        return ORTH_OK;
    if (batch && orth_import_gives(x, "train.global_batch"))
        return set_micro_batch(x, orth_import_place(x, "no gradient accumulation"), NULL, 1);
    return micro && orth_import_gives(x, "train.micro_batch") ? set_batch_of_ranks(x, orth_import_place(x, "no gradient accumulation"), NULL, 1) : ORTH_OK;
}

static orth_status set_accumulation(orth_importer *x)
{
    const orth_import_pair *p = orth_import_find(x, ORTH_PART_accumulation);
    int64_t steps;
    ORTH_TRY(orth_import_count(x, ORTH_PART_accumulation, 1, &steps));
    if (!p)
        return set_one_step(x);
    if (orth_import_gives(x, "train.global_batch") && orth_import_gives(x, "train.micro_batch"))
        return set_ranks_of_batches(x, p, steps);
    const char *why = batch_is_not_known(x->cfg);
    if (!why)
        return set_batch_of_ranks(x, p->place, p, steps);
    if (orth_import_gives(x, "train.global_batch") && ORTH_CONFIG_IS_SET(x->cfg, parallel, dp) && !ORTH_CONFIG_IS_SET(x->cfg, train, micro_batch))
        return set_micro_batch(x, p->place, p, steps);
    orth_import_unused(x, p->place, why);
    return ORTH_OK;
}

/* Without a batch of a step, each rank has one micro-batch in it: the default here is not one of the ranks that are given. */
static orth_status set_batch_of_one_step(orth_importer *x)
{
    if (ORTH_CONFIG_IS_SET(x->cfg, train, global_batch) || !ORTH_CONFIG_IS_SET(x->cfg, parallel, dp))
        return ORTH_OK;
    return set_batch_of_ranks(x, orth_import_place(x, "no batch of a step, so one micro-batch a rank,"), NULL, 1);
}

orth_status orth_import_batch(orth_importer *x)
{
    ORTH_TRY(set_ranks(x));
    ORTH_TRY(set_ranks_of_cluster(x));
    ORTH_TRY(set_accumulation(x));
    return set_batch_of_one_step(x);
}
