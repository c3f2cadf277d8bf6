/* import_stages.c -- how many layers each chunk of a pipeline has, read and written. Megatron-LM and NeMo give all the same, the first and the last
 * others by words, and refuse a remainder: parallel.stage_split=even, or a list in parallel.stage_layers. */
#include "tools/export_impl.h"

#include <inttypes.h>
#include <string.h>

#include "parallel/partition.h"
#include "train/describe.h"
#include "train/setup.h"

#define MOST_LAYERS 10000         /* of a model whose layers are balanced to be written */
#define LIST_TEXT (ORTH_LIST_MAX * 12)

static int64_t num_chunks(const orth_config *c)
{
    return c->parallel_pp * c->parallel_virtual_stages;
}

static bool is_even(const double *layers, int64_t num)
{
    for (int64_t k = 1; k < num; k++)
        if (layers[k] != layers[0])
            return false;
    return true;
}

static const char *list_text(const double *layers, int64_t num, char out[LIST_TEXT])
{
    size_t used = 0;
    for (int64_t k = 0; k < num; k++)
        used += (size_t)snprintf(out + used, LIST_TEXT - used, "%s%.0f", k ? ", " : "[", layers[k]);
    snprintf(out + used, LIST_TEXT - used, "]");
    return out;
}

/* ---- reading ---- */

/* A word, not a list: whoever looks at other stages or layers of this run gets even ones of these. */
static orth_status set_even(orth_importer *x, const orth_import_pair *of_layers)
{
    const orth_config *c = x->cfg;
    const int64_t n = num_chunks(c);
    if (of_layers && c->model_layers % n != 0 && !orth_import_stays(c, "parallel.stage_split"))
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%" PRId64 ": must be a multiple of pipeline ranks x chunks of each = %" PRId64 "; for other stages give "
                         "parallel.stage_split=cost or parallel.stage_layers", orth_import_stays(c, "model.layers") ? "command line: model.layers" : of_layers->place, c->model_layers, n);
    return orth_import_set(x, orth_import_place(x, "layers of stages"), "parallel.stage_split", "even");
}

/* The stages between have all the same. */
static orth_status set_ends(orth_importer *x, const orth_import_pair *first, const orth_import_pair *last)
{
    const int64_t pp = x->cfg->parallel_pp, between = pp - (first != NULL) - (last != NULL);
    const orth_import_pair *p = first ? first : last;
    int64_t of_first, of_last;
    double layers[ORTH_LIST_MAX];
    char text[LIST_TEXT];
    ORTH_TRY(orth_import_count(x, ORTH_PART_first_stage, 0, &of_first));
    ORTH_TRY(orth_import_count(x, ORTH_PART_last_stage, 0, &of_last));
    const int64_t left = x->cfg->model_layers - of_first - of_last;
    if (num_chunks(x->cfg) != pp)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s: is not read of stages with several chunks; give parallel.stage_layers", p->place);
    if (pp > ORTH_LIST_MAX)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s: is read of at most %d stages", p->place, ORTH_LIST_MAX);
    if (between == 0 && left != 0)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%" PRId64 " and %s=%" PRId64 " must be together the %" PRId64 " layers of two stages", p->place, of_first, last->path,
                         of_last, x->cfg->model_layers);
    if (between > 0 && (left < between || left % between != 0))
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: of %" PRId64 " layers %" PRId64 " are left, which must be a multiple of the other stages, %" PRId64,
                         p->place, ORTH_SHOWN(p->value), x->cfg->model_layers, left, between);
    for (int64_t k = 0; k < pp; k++)
        layers[k] = first && k == 0 ? (double)of_first : last && k == pp - 1 ? (double)of_last : (double)(left / between);
    return orth_import_set(x, p->place, "parallel.stage_layers", list_text(layers, pp, text));
}

/* Chunks of as many, of which the embedding is one in the first and the head one in the last. */
static orth_status set_counted(orth_importer *x, const orth_import_pair *embedding, const orth_import_pair *loss)
{
    const orth_import_pair *p = embedding ? embedding : loss;
    const int64_t n = num_chunks(x->cfg), all = x->cfg->model_layers + (embedding != NULL) + (loss != NULL);
    double layers[ORTH_LIST_MAX];
    char text[LIST_TEXT];
    if (n > ORTH_LIST_MAX)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s: is read of at most %d stages; give parallel.stage_layers", p->place, ORTH_LIST_MAX);
    if (all % n != 0 || all / n < 2)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s: %" PRId64 " layers and what counts as one are %" PRId64 ", which must be a multiple of pipeline ranks x chunks "
                         "of each = %" PRId64 ", and no stage without a layer", p->place, x->cfg->model_layers, all, n);
    for (int64_t k = 0; k < n; k++)
        layers[k] = (double)(all / n - (embedding && k == 0) - (loss && k == n - 1));
    return orth_import_set(x, p->place, "parallel.stage_layers", list_text(layers, n, text));
}

orth_status orth_import_stages(orth_importer *x)
{
    enum { FIRST, LAST, EMBEDDING, LOSS };
    static const orth_import_part parts[] = {[FIRST] = ORTH_PART_first_stage, [LAST] = ORTH_PART_last_stage, [EMBEDDING] = ORTH_PART_embedding_counts,
                                             [LOSS] = ORTH_PART_loss_counts};
    const orth_config *c = x->cfg;
    const orth_import_pair *p[ORTH_COUNT(parts)], *of_layers = orth_import_giving(x, "model.layers");
    const bool listed = ORTH_CONFIG_IS_SET(c, parallel, stage_layers), counts = c->parallel_pp > 1 && of_layers && !listed;
    const char *why = c->parallel_pp == 1 ? "there is no pipeline" : listed ? "parallel.stage_layers is given" : "the number of layers is not given here";
    for (int i = 0; i < ORTH_COUNT(parts); i++) {
        p[i] = orth_import_find(x, parts[i]);
        if (i >= EMBEDDING && !orth_import_is_true(p[i]))
            p[i] = NULL;
        if (p[i] && !counts)
            orth_import_unused(x, p[i]->place, why);
    }
    if (listed || c->parallel_pp == 1 || !orth_tool_has_model(x->tool))
        return ORTH_OK;
    if (!counts)
        return set_even(x, NULL);
    const orth_import_pair *end = p[FIRST] ? p[FIRST] : p[LAST], *counted = p[EMBEDDING] ? p[EMBEDDING] : p[LOSS];
    if (end && counted)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s and %s: one of the two says how many layers a stage has", end->place, counted->path);
    if (end)
        return set_ends(x, p[FIRST], p[LAST]);
    if (counted)
        return set_counted(x, p[EMBEDDING], p[LOSS]);
    return set_even(x, of_layers);
}

/* ---- writing ---- */

/* Whether their words for the first stage and the last say the list. */
static bool has_ends(const orth_config *c)
{
    const int64_t n = c->parallel_pp;
    const double *layers = c->parallel_stage_layers.v;
    return n >= 2 && c->parallel_stage_layers.n == n && num_chunks(c) == n && !is_even(layers, n) && (n < 4 || is_even(layers + 1, n - 2));
}

/* Lists what is balanced here, or clears a list, so that stages without one are even: that is what they are there. */
static orth_status list_stages(orth_ctx *ctx, orth_config *c)
{
    const int64_t n = num_chunks(c);
    const orth_layout l = orth_setup_layout(c);
    double layers[ORTH_LIST_MAX];
    int32_t begin[ORTH_LIST_MAX + 1];
    char text[LIST_TEXT];
    orth_model_config m;
    if (!l.stage_layers && !l.even_stages && n > 1 && n <= ORTH_LIST_MAX && n <= c->model_layers && c->model_layers <= MOST_LAYERS) {
        ORTH_TRY(orth_describe_model(ctx, c, &m));
        ORTH_TRY(orth_partition_cut(ctx, &l, &m, (int)n, begin));
        for (int k = 0; k < n; k++)
            layers[k] = begin[k + 1] - begin[k];
        ORTH_TRY(orth_config_set(ctx, c, "the run", "parallel.stage_layers", list_text(layers, n, text)));
    }
    if (is_even(c->parallel_stage_layers.v, c->parallel_stage_layers.n))
        ORTH_TRY(orth_config_set(ctx, c, "the run", "parallel.stage_layers", "[]"));
    return orth_config_set(ctx, c, "the run", "parallel.stage_split", c->parallel_stage_layers.n > 0 ? "cost" : "even");
}

/* What is even there without a word needs no list; what is balanced here, and uneven, is one. */
orth_status orth_export_list_stages(orth_ctx *ctx, orth_config *c, orth_tool tool)
{
    const int64_t n = tool == ORTH_TOOL_nemo ? num_chunks(c) : c->parallel_pp; /* chunks of a remainder are not written for Megatron-LM */
    ORTH_TRY(list_stages(ctx, c));
    if (c->model_layers % n == 0 || (tool == ORTH_TOOL_megatron && has_ends(c)))
        return ORTH_OK;
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "model.layers=%" PRId64 " is no multiple of parallel.pp%s=%" PRId64 ", which %s refuses%s", c->model_layers,
                     n == c->parallel_pp ? "" : " * virtual_stages", n,
                     orth_tool_id(tool), tool == ORTH_TOOL_megatron ? " where others than the first and the last stage differ (parallel.stage_layers)" : "");
}

const char *orth_export_end(orth_exporter *x, bool of_first)
{
    const double *layers = x->cfg->parallel_stage_layers.v;
    const int64_t n = x->cfg->parallel_pp;
    if (!has_ends(x->cfg))
        return NULL;
    const double end = layers[of_first ? 0 : n - 1];
    return n > 2 && end == layers[1] ? NULL : orth_arena_printf(x->ctx, &x->out.arena, "%.0f", end);
}
