/* export.c -- see export.h. */
#include "tools/export_impl.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/files.h"
#include "ckpt/json.h"
#include "tools/hf_model.h"
#include "train/describe.h"
#include "train/setup.h"

#define GRADIENT_BYTES 4       /* of an element in a bucket */

orth_status orth_tool_from_id(orth_ctx *ctx, const char *id, orth_tool *tool)
{
    orth_text all = {0};
    for (int t = 0; t < ORTH_NUM_TOOLS; t++) {
        if (strcmp(orth_tool_id((orth_tool)t), id) == 0) {
            orth_mem_free(ctx, all.s);
            *tool = (orth_tool)t;
            return ORTH_OK;
        }
        orth_text_addf(ctx, &all, "%s%s", t ? ", " : "", orth_tool_id((orth_tool)t));
    }
    char *names = orth_text_take(ctx, &all);
    if (!names)
        return ORTH_ERR_NOMEM;
    ORTH_FAIL(ctx, ORTH_ERR_ARG, "--as=%s: must be one of %s", ORTH_SHOWN(id), names);
    orth_mem_free(ctx, names);
    return ORTH_ERR_ARG;
}

/* ---- pairs ---- */

bool orth_export_says(const orth_exporter *x, const char *path)
{
    for (const orth_import_pair *p = x->out.first; p; p = p->next)
        if (strcmp(p->path, path) == 0)
            return true;
    return false;
}

orth_status orth_export_add(orth_exporter *x, const char *path, const char *value)
{
    if (orth_export_says(x, path))
        return ORTH_OK;
    return value ? orth_import_add(&x->out, x->out.name, path, value) : ORTH_OK;
}

/* Whether a pair says this key already. */
static bool is_set(const orth_exporter *x, const char *key)
{
    for (const orth_import_pair *p = x->out.first; p; p = p->next)
        if (orth_import_is_about(p->row, key))
            return true;
    return false;
}

/* Settings of what the run does not have. */
static bool is_idle(const orth_config *c, orth_option_id id)
{
    if (id == ORTH_OPT_precision_grad_reduce) /* nothing is narrower than gradients; of one rank it is written, for those who take more */
        return c->precision_compute == ORTH_precision_compute_fp32 && c->precision_grad_reduce == ORTH_precision_grad_reduce_fp32;
    if (id == ORTH_OPT_precision_loss_scale)
        return orth_config_loss_scale(c) == ORTH_precision_loss_scale_none && c->precision_compute != ORTH_precision_compute_fp16;
    if (id == ORTH_OPT_memory_recompute_layers)
        return c->memory_recompute != ORTH_memory_recompute_full;
    if (id == ORTH_OPT_parallel_stage_split)
        return c->parallel_pp == 1;
    return orth_config_is_idle(c, id);
}

/* Keys that their program does not look at, or refuses, in this run. */
static bool is_passed_over(const orth_exporter *x, const char *path)
{
    const orth_config *c = x->cfg;
    if (strncmp(path, "fp16.", 5) == 0)
        return c->precision_compute != ORTH_precision_compute_fp16;
    if (strcmp(path, "distribute_saved_activations") == 0) /* Megatron-LM refuses it with any other recomputation */
        return c->memory_recompute != ORTH_memory_recompute_full;
    if (strncmp(path, "deepspeed_config.", 17) == 0) /* what is written is FSDP */
        return true;
    if (x->out.tool == ORTH_TOOL_accelerate && strcmp(path, "gradient_accumulation_steps") == 0) /* its script says it */
        return true;
    if (strncmp(path, "fp8_config.", 11) == 0)
        return !orth_export_is_fp8_autocast(c);
    return strncmp(path, "fsdp_config.", 12) == 0 && c->parallel_zero < ORTH_parallel_zero_2;
}

/* What decides numbers, the layout or communication is written in any case, because their defaults are others; the rest where it was given. */
static bool is_wanted(const orth_config *c, orth_option_id id)
{
    const char *path = orth_option_get(id)->path;
    return c->place[id] || orth_option_decides_numbers(id) || strncmp(path, "parallel.", 9) == 0 || strncmp(path, "comm.", 5) == 0 ||
           id == ORTH_OPT_train_micro_batch || id == ORTH_OPT_train_steps || id == ORTH_OPT_memory_offload_sub_group;
}

/* Their schedules take the keys that they have; of wsd DeepSpeed has none. */
static bool is_of_another_schedule(const orth_exporter *x, const char *path)
{
    const orth_config *c = x->cfg;
    const bool total = strcmp(path, "scheduler.params.total_num_steps") == 0;
    return x->out.tool == ORTH_TOOL_deepspeed && total &&
           (c->schedule_name == ORTH_schedule_name_constant || c->schedule_name == ORTH_schedule_name_wsd);
}

/* A pattern's own part: "32*" is 32. */
static const char *without_star(orth_exporter *x, const char *pattern)
{
    return orth_arena_printf(x->ctx, &x->out.arena, "%.*s", (int)strcspn(pattern, "*"), pattern);
}

static const char *elems_of_mb(orth_exporter *x, const char *mb)
{
    return orth_arena_printf(x->ctx, &x->out.arena, "%.0f", strtod(mb, NULL) * 0x1p20 / GRADIENT_BYTES);
}

static orth_status add_row(orth_exporter *x, const orth_import_row *row, const char *here)
{
    if (strcmp(here, "auto") == 0 || strcmp(here, "\"\"") == 0 || is_of_another_schedule(x, row->path))
        return ORTH_OK;
    if (row->kind == ORTH_ROW_SAME)
        return orth_export_add(x, row->path, here);
    if (row->kind == ORTH_ROW_ELEMS)
        return orth_export_add(x, row->path, elems_of_mb(x, here));
    return strcmp(row->text, here) == 0 ? orth_export_add(x, row->path, without_star(x, row->value)) : ORTH_OK;
}

static orth_status add_by_row(orth_exporter *x, const orth_import_row *row)
{
    if (strchr(row->path, '*') || is_passed_over(x, row->path) || row->kind == ORTH_ROW_READ || row->kind == ORTH_ROW_NOT || row->kind == ORTH_ROW_REFUSED)
        return ORTH_OK;
    if (row->kind == ORTH_ROW_PART)
        return orth_export_add(x, row->path, orth_export_part(x, row->part));
    const orth_option_id id = (orth_option_id)orth_option_find(row->key);
    if (is_set(x, row->key) || is_idle(x->cfg, id) || !(is_wanted(x->cfg, id) || orth_import_absent(x->out.tool, row->path)))
        return ORTH_OK;
    char *text = orth_option_text(x->ctx, x->cfg, id);
    const orth_status s = text ? add_row(x, row, text) : ORTH_ERR_NOMEM;
    orth_mem_free(x->ctx, text);
    return s;
}

/* ---- forms ---- */

/* A word of a configuration as the value that it is: a number, true, false, a list, else a string. */
static json_t *value_of(const char *text)
{
    json_t *v = json_loads(text, JSON_DECODE_ANY, NULL);
    return v ? v : json_string(text);
}

/* Sets the member that a path of dots names; objects on the way are made. */
static orth_status put(orth_exporter *x, json_t *at, const char *path, json_t *value)
{
    const size_t n = strcspn(path, ".");
    char *key = orth_arena_printf(x->ctx, &x->out.arena, "%.*s", (int)n, path);
    if (key && path[n] == '.') {
        json_t *inner = json_object_get(at, key);
        if (!inner && json_object_set_new(at, key, json_object()) == 0)
            inner = json_object_get(at, key);
        if (inner)
            return put(x, inner, path + n + 1, value);
        json_decref(value);
    } else if (key && json_object_set_new(at, key, value) == 0) {
        return ORTH_OK;
    } else if (!key) {
        json_decref(value);
    }
    return ORTH_FAIL(x->ctx, ORTH_ERR_NOMEM, "no memory for %s", x->out.name);
}

/* A scalar or a list. Readers of YAML 1.1 take 1e-5 for a word: it is written 1.0e-5. */
static char *scalar_text(orth_exporter *x, const json_t *value)
{
    char *text = orth_json_text(x->ctx, value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    const char *e = text && json_is_real(value) && !strchr(text, '.') ? strchr(text, 'e') : NULL;
    if (!e)
        return text;
    char *pointed = orth_mem_printf(x->ctx, "%.*s.0%s", (int)(e - text), text, e);
    orth_mem_free(x->ctx, text);
    return pointed;
}

static void add_yaml(orth_exporter *x, orth_text *t, const json_t *object, int depth)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)object, key, value) {
        orth_text_addf(x->ctx, t, "%*s%s:", 2 * depth, "", key);
        char *text = json_is_object(value) ? NULL : scalar_text(x, value);
        orth_text_addf(x->ctx, t, text ? " %s\n" : "\n", text);
        if (json_is_object(value))
            add_yaml(x, t, value, depth + 1);
        t->failed = t->failed || (!text && !json_is_object(value));
        orth_mem_free(x->ctx, text);
    }
}

static char *tree_text(orth_exporter *x)
{
    json_t *root = json_object();
    orth_status s = root ? ORTH_OK : ORTH_FAIL(x->ctx, ORTH_ERR_NOMEM, "no memory for %s", x->out.name);
    for (const orth_import_pair *p = x->out.first; p && s == ORTH_OK; p = p->next)
        s = put(x, root, p->path, value_of(p->value));
    orth_text t = {0};
    if (s == ORTH_OK && orth_tool_form(x->out.tool) == ORTH_FORM_JSON) {
        char *json = orth_json_text(x->ctx, root, JSON_INDENT(2) | JSON_REAL_PRECISION(15));
        orth_text_addf(x->ctx, &t, "%s\n", json ? json : "");
        t.failed = t.failed || !json;
        orth_mem_free(x->ctx, json);
    } else if (s == ORTH_OK) {
        add_yaml(x, &t, root, 0);
    }
    json_decref(root);
    if (s == ORTH_OK)
        return orth_text_take(x->ctx, &t);
    orth_mem_free(x->ctx, t.s);
    return NULL;
}

/* An array of a shell script: a switch is a word alone, and no word where it is off. */
static char *words_text(orth_exporter *x)
{
    orth_text t = {0};
    orth_text_add(x->ctx, &t, "ARGS=(\n");
    for (const orth_import_pair *p = x->out.first; p; p = p->next) {
        char *name = orth_arena_printf(x->ctx, &x->out.arena, "%s", p->path);
        for (char *c = name; c && *c; c++)
            *c = *c == '_' ? '-' : *c;
        if (!name)
            t.failed = true;
        else if (strcmp(p->value, "true") == 0)
            orth_text_addf(x->ctx, &t, "  --%s\n", name);
        else if (strcmp(p->value, "false") != 0)
            orth_text_addf(x->ctx, &t, "  --%s %s\n", name, p->value);
    }
    orth_text_add(x->ctx, &t, ")\n");
    return orth_text_take(x->ctx, &t);
}

/* ---- what was lost ---- */

/* Sections that their configurations are about; of these, what is written or what came back. */
static bool is_compared(const orth_exporter *x, const orth_config *back, orth_option_id id)
{
    static const char *const sections[] = {"train.", "optimizer.", "schedule.", "parallel.", "precision.", "memory.", "comm.", "numerics."};
    const char *path = orth_option_get(id)->path;
    if (!(is_wanted(x->cfg, id) || back->place[id]) || is_idle(x->cfg, id) || strcmp(path, "model.preset") == 0)
        return false;
    if (strncmp(path, "model.", 6) == 0 || strcmp(path, "data.seq_len") == 0)
        return orth_tool_has_model(x->out.tool);
    for (int i = 0; i < ORTH_COUNT(sections); i++)
        if (strncmp(path, sections[i], strlen(sections[i])) == 0)
            return true;
    return false;
}

static orth_status say_lost(orth_exporter *x, const orth_config *back)
{
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++) {
        const orth_option_id id = (orth_option_id)i;
        char *mine = orth_option_text(x->ctx, x->cfg, id), *theirs = orth_option_text(x->ctx, back, id);
        const bool whole = mine && theirs;
        if (whole && is_compared(x, back, id) && strcmp(mine, theirs) != 0)
            orth_log(x->ctx, ORTH_LOG_INFO, "export", "%s=%s has no counterpart there: %s is read as %s", orth_option_get(id)->path, ORTH_SHOWN(mine),
                     ORTH_SHOWN(x->out.name), ORTH_SHOWN(theirs));
        orth_mem_free(x->ctx, mine);
        orth_mem_free(x->ctx, theirs);
        if (!whole)
            return ORTH_ERR_NOMEM;
    }
    return ORTH_OK;
}

/* Presets and families stand for dimensions: all of them. */
static orth_status complete_model(orth_ctx *ctx, orth_config *c)
{
    orth_model_config m;
    ORTH_TRY(orth_describe_model(ctx, c, &m));
    ORTH_TRY(orth_config_set(ctx, c, "export", "model.preset", ""));
    return orth_hf_model_keys(ctx, c, "the model", &m);
}

/* Reads `path` as a user would, without the lines of the importer. */
static orth_status read_back(orth_exporter *x, const char *path)
{
    const orth_log_level level = x->ctx->log.level;
    orth_config back;
    ORTH_TRY(orth_config_init(x->ctx, &back));
    x->ctx->log.level = ORTH_LOG_ERROR;
    orth_status s = orth_import(x->ctx, &back, x->out.tool, path, 0);
    x->ctx->log.level = level;
    if (s == ORTH_OK && orth_tool_has_model(x->out.tool))
        s = complete_model(x->ctx, &back);
    if (s == ORTH_OK)
        s = say_lost(x, &back);
    orth_config_release(x->ctx, &back);
    return s;
}

/* Names what is written of training though nothing gave it: another program would take its own defaults. */
static orth_status say_own_defaults(orth_exporter *x)
{
    orth_text t = {0};
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++) {
        const orth_option_id id = (orth_option_id)i;
        const char *path = orth_option_get(id)->path;
        const bool of_training = strncmp(path, "optimizer.", 10) == 0 || strncmp(path, "schedule.", 9) == 0 || id == ORTH_OPT_train_clip_norm;
        if (!of_training || x->cfg->place[i] || !is_set(x, path))
            continue;
        char *text = orth_option_text(x->ctx, x->cfg, id);
        orth_text_addf(x->ctx, &t, "%s%s=%s", t.s ? ", " : "", path, text ? text : "");
        t.failed = t.failed || !text;
        orth_mem_free(x->ctx, text);
    }
    const orth_status s = t.failed ? ORTH_ERR_NOMEM : ORTH_OK;
    if (s == ORTH_OK && t.s)
        orth_log(x->ctx, ORTH_LOG_INFO, "export", "%s: defaults of Orthant are in it, as nothing gave them: %s", ORTH_SHOWN(x->out.name), t.s);
    orth_mem_free(x->ctx, t.s);
    return s;
}

static orth_status export(orth_exporter *x)
{
    for (int i = 0; orth_import_row_at(i); i++)
        if (orth_import_row_at(i)->tool == x->out.tool)
            ORTH_TRY(add_by_row(x, orth_import_row_at(i)));
    ORTH_TRY(orth_export_extras(x));
    ORTH_TRY(say_own_defaults(x));
    char *text = orth_tool_form(x->out.tool) == ORTH_FORM_WORDS ? words_text(x) : tree_text(x);
    char *draft = orth_arena_printf(x->ctx, &x->out.arena, "%s.draft", x->out.name);
    orth_status s = text && draft ? orth_file_write(x->ctx, draft, text, strlen(text)) : ORTH_ERR_NOMEM;
    orth_mem_free(x->ctx, text);
    ORTH_TRY(s);
    s = read_back(x, draft); /* a file that cannot be read is not left behind */
    if (s == ORTH_OK)
        return orth_path_rename(x->ctx, draft, x->out.name);
    unlink(draft);
    return s;
}

orth_status orth_export(orth_ctx *ctx, const orth_config *cfg, orth_tool tool, const char *path, int64_t ranks_of_a_node)
{
    orth_config whole;
    if (orth_path_is_device(path))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: must be a file: what is written for another program is read back", ORTH_SHOWN(path));
    ORTH_TRY(orth_config_copy(ctx, &whole, cfg));
    orth_exporter x = {.ctx = ctx, .cfg = &whole, .ranks_of_a_node = ranks_of_a_node, .out = {.ctx = ctx, .tool = tool, .name = path}};
    char stage[16];
    snprintf(stage, sizeof stage, "%d", orth_config_zero_stage(cfg));
    orth_status s = orth_config_set(ctx, &whole, "the run", "parallel.zero", stage);
    if (s == ORTH_OK)
        s = complete_model(ctx, &whole);
    if (s == ORTH_OK && orth_tool_has_model(tool))
        s = orth_export_list_stages(ctx, &whole, tool);
    if (s == ORTH_OK)
        s = export(&x);
    orth_arena_release(ctx, &x.out.arena);
    orth_config_release(ctx, &whole);
    return s;
}

orth_status orth_export_run(orth_ctx *ctx, const orth_config *cfg, const char *path)
{
    orth_config c = *cfg;
    if (cfg->memory_limit_device > 0 && !orth_config_offloads(cfg)) {
        orth_log(ctx, ORTH_LOG_INFO, "export", "%s: memory.limit_device is left out: without offload only the devices of --cluster have a limit of their own", ORTH_SHOWN(path));
        c.memory_limit_device = 0;
        c.place[ORTH_OPT_memory_limit_device] = NULL;
    }
    return orth_config_write(ctx, &c, path);
}
