/* run.c -- a run: opened, handed to its ranks, closed. */
#include "train/run.h"

#include <inttypes.h>
#include <limits.h>
#include <unistd.h>

#include "base/files.h"
#include "base/pages.h"
#include "base/pool.h"
#include "ckpt/folder_lock.h"
#include "train/describe.h"
#include "train/groups.h"
#include "train/idle.h"
#include "train/leftovers.h"
#include "train/process.h"
#include "train/rank.h"
#include "train/resume.h"

#define DATA_DIR "data" /* in the run folder: what was prepared for it */

static bool any_is_prepared(const orth_config *c)
{
    for (int i = 0; i < c->data_path.n; i++)
        if (orth_dataset_exists(c->data_path.v[i]))
            return true;
    return false;
}

/* Of a run that starts from weights: their tokenizer, which means the same by its tokens as they do, and was not trained on this text. *out stays NULL
 * where none stands beside them. A resumed run with one of its own, or prepared data, is held against its checkpoint (resume.h). */
static orth_status tokenizer_of_weights(orth_ctx *ctx, const orth_run *r, char **out)
{
    const bool is_auto = orth_data_tokenizer_is_auto(r->cfg->data_tokenizer), finds = is_auto && !any_is_prepared(r->cfg);
    bool there;
    if (!r->start_from || (r->resumed && !finds))
        return ORTH_OK;
    ORTH_TRY(orth_path_holds(ctx, r->start_from, "tokenizer.json", &there));
    if (!there && finds && !r->resumed)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: has no tokenizer.json: data.tokenizer must name the tokenizer of its weights, to which the tokens of a new "
                         "one mean nothing", r->start_from);
    if (!there)
        return ORTH_OK;
    *out = orth_path_join(ctx, r->start_from, "tokenizer.json");
    return *out ? ORTH_OK : ORTH_ERR_NOMEM;
}

static orth_status fingerprint_of(orth_ctx *ctx, const char *tokenizer, uint64_t *out)
{
    orth_tokenizer *t = NULL;
    ORTH_TRY(orth_tokenizer_load(ctx, &t, tokenizer));
    *out = orth_tokenizer_fingerprint(t);
    orth_tokenizer_free(ctx, t);
    return ORTH_OK;
}

/* own: the file of the weights' tokenizer. */
static orth_status require_tokenizer(orth_ctx *ctx, const orth_run *r, const char *own)
{
    uint64_t want, got;
    ORTH_TRY(fingerprint_of(ctx, own, &want));
    ORTH_TRY(fingerprint_of(ctx, r->cfg->data_tokenizer, &got));
    return orth_tokenizer_require(ctx, r->cfg->data_tokenizer, got, r->start_from, want);
}

/* own: the file of the weights' tokenizer; NULL: none. */
static orth_data_options data_options(const orth_run *r, const char *cache, const char *own)
{
    const orth_config *c = r->cfg;
    const bool is_auto = orth_data_tokenizer_is_auto(c->data_tokenizer);
    const bool own_vocab = r->start_from || ORTH_CONFIG_IS_SET(c, model, vocab) || c->model_preset[0];
    return (orth_data_options){
        .paths = c->data_path.v, .num_paths = c->data_path.n, .weights = c->data_weights.v,
        .num_weights = c->data_weights.n, .tokenizer = own && is_auto ? own : c->data_tokenizer,
        .eos = c->data_eos_token.v, .num_eos = c->data_eos_token.n,
        .auto_vocab = ORTH_CONFIG_IS_SET(c, model, vocab) ? c->model_vocab : own_vocab ? ORTH_MIN(r->model.vocab, ORTH_AUTO_VOCAB) : ORTH_AUTO_VOCAB,
        .max_vocab = own_vocab ? r->model.vocab : 0, .text = orth_setup_text(c),
        .valid_fraction = c->data_valid_fraction, .seed = (uint64_t)c->train_seed, .cache_dir = cache,
    };
}

/* only_look: nothing is prepared, and *r stays as it is. */
static orth_status open_corpora(orth_ctx *ctx, orth_run *r, bool only_look)
{
    char *cache = orth_path_join(ctx, r->dir, DATA_DIR), *own = NULL;
    orth_status status = cache ? tokenizer_of_weights(ctx, r, &own) : ORTH_ERR_NOMEM;
    const orth_data_options o = data_options(r, cache, own);
    if (status == ORTH_OK && own && !orth_data_tokenizer_is_auto(r->cfg->data_tokenizer))
        status = require_tokenizer(ctx, r, own);
    if (status == ORTH_OK)
        status = only_look ? orth_data_check(ctx, &o) : orth_data_open_or_prepare(ctx, &r->data, &o);
    orth_mem_free(ctx, own);
    orth_mem_free(ctx, cache);
    return status;
}

static orth_status open_data(orth_ctx *ctx, orth_run *r)
{
    const orth_config *c = r->cfg;
    if (c->data_path.n == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "data.path is not set: a text or JSONL file, a folder of them, or a prepared folder");
    ORTH_TRY(open_corpora(ctx, r, false));
    orth_sampler_options train = {.corpora = r->data->train, .weights = r->data->weights,
                                  .num_corpora = r->data->num_sets, .seq_len = c->data_seq_len,
                                  .seed = (uint64_t)c->train_seed, .doc_mask = c->data_doc_mask};
    ORTH_TRY(orth_sampler_create(ctx, &r->train, &train));
    if (r->data->num_valid == 0 || r->options.watch)
        return ORTH_OK;
    orth_sampler_options valid = {.corpora = r->data->valid, .num_corpora = r->data->num_valid,
                                  .seq_len = c->data_seq_len, .doc_mask = c->data_doc_mask, .natural = true};
    return orth_sampler_create(ctx, &r->valid, &valid);
}

static orth_status read_tokenizer(orth_ctx *ctx, orth_run *r)
{
    const orth_tokenizer *t = r->data->tokenizer;
    ORTH_TRY(orth_tokenizer_write(ctx, t, &r->tokenizer_json));
    r->tokenizer_config = orth_hf_tokenizer_text(ctx, t, orth_tokenizer_special(t), r->model.max_seq, NULL);
    if (!r->tokenizer_config)
        return ORTH_ERR_NOMEM;
    r->token_bytes = orth_eval_token_bytes(ctx, t, r->model.vocab);
    return r->token_bytes ? ORTH_OK : ORTH_ERR_NOMEM;
}

/* Dropout is no property of weights: what is given replaces that of the folder they come from, and is told. */
static void choose_dropout(orth_ctx *ctx, orth_run *r)
{
    const orth_model_config was = r->model;
    orth_setup_dropout(r->cfg, &r->model);
    const orth_model_config *now = &r->model;
    if (!r->resumed && (was.dropout != now->dropout || was.embed_dropout != now->embed_dropout || was.attn_dropout != now->attn_dropout))
        orth_log(ctx, ORTH_LOG_WARN, "init", "dropout of residuals, embeddings and attention is %g, %g, %g as given; the weights "
                 "in %s were made with %g, %g, %g", now->dropout, now->embed_dropout, now->attn_dropout, r->start_from,
                 was.dropout, was.embed_dropout, was.attn_dropout);
}

/* Dimensions from the run file, or from the weights that the run starts from. */
static orth_status choose_model(orth_ctx *ctx, orth_run *r, int64_t vocab)
{
    if (!r->start_from)
        return orth_setup_model(ctx, r->cfg, vocab, &r->model);
    orth_hf_source *from = NULL;
    ORTH_TRY(orth_hf_open(ctx, &from, r->start_from));
    r->model = *orth_hf_source_config(from);
    choose_dropout(ctx, r);
    orth_hf_close(ctx, from);
    return r->resumed ? ORTH_OK : orth_setup_match_weights(ctx, r->cfg, &r->model, r->start_from);
}

/* What can be refused before text is prepared, which may take minutes, is. */
static orth_status check_early(orth_ctx *ctx, orth_run *r)
{
    orth_layout layout = orth_setup_layout(r->cfg);
    orth_partition partition;
    ORTH_TRY(choose_model(ctx, r, ORTH_AUTO_VOCAB));
    if (r->model.family == ORTH_FAMILY_GPT2 && r->cfg->data_seq_len > r->model.max_seq)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "data.seq_len=%" PRId64 " is more than the model has positions: at most model.max_seq=%" PRId64,
                         r->cfg->data_seq_len, r->model.max_seq);
    ORTH_TRY(orth_setup_say_place(ctx, r->cfg, orth_partition_make(ctx, &partition, &layout, &r->model)));
    orth_partition_release(ctx, &partition);
    return ORTH_OK;
}

/* ---- the run folder ---- */

static orth_status write_file(orth_ctx *ctx, const orth_run *r, const char *name, char *text)
{
    char *path = orth_path_join(ctx, r->dir, name);
    orth_status status = path && text ? orth_file_write(ctx, path, text, strlen(text)) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, path);
    orth_mem_free(ctx, text);
    return status;
}

static orth_status read_complete(orth_ctx *ctx, orth_run *r, const char *path)
{
    char *text;
    size_t n;
    if (!orth_path_exists(path))
        return ORTH_OK;
    ORTH_TRY(orth_file_read(ctx, path, &text, &n));
    if (sscanf(text, "{\"step\": %" SCNd64, &r->complete_step) != 1)
        r->complete_step = -1;
    orth_mem_free(ctx, text);
    return ORTH_OK;
}

/* A run that goes on is complete again when it has ended; one that has no further step stays complete, whatever happens to this start. */
static orth_status take_complete(orth_ctx *ctx, orth_run *r)
{
    char *path = orth_path_join(ctx, r->dir, "complete.json");
    int64_t start = -1; /* the step of the checkpoint that it goes on from, if that may be the last */
    orth_status status = path ? read_complete(ctx, r, path) : ORTH_ERR_NOMEM;
    if (status == ORTH_OK && r->resumed && r->complete_step == r->last_step)
        status = orth_resume_step(ctx, r->start_from, &start);
    if (status == ORTH_OK && start != r->last_step)
        status = orth_path_remove(ctx, path);
    orth_mem_free(ctx, path);
    return status;
}

/* From here on nobody else writes in the run folder, if there is one yet. Rank 0 does it for all. */
static orth_status lock_folder(orth_ctx *ctx, orth_run *r)
{
    const bool writes = (!r->world || orth_world_rank(r->world) == 0) && !r->options.watch;
    if (!writes || r->folder.lock >= 0 || !orth_path_exists(r->dir))
        return ORTH_OK;
    ORTH_TRY(orth_path_lock(ctx, r->dir, "another process is training in this run folder: wait for its end, or give "
                            "another checkpoint.dir", &r->folder.lock));
    char *data = orth_path_join(ctx, r->dir, DATA_DIR);
    if (!data)
        return ORTH_ERR_NOMEM;
    orth_leftovers_remove(ctx, r->dir, data);
    orth_mem_free(ctx, data);
    return orth_checkpoint_tidy(ctx, r->checkpoints);
}

/* For orth_checkpoint_read_weights. */
static orth_status start_from(orth_ctx *ctx, void *user, const char *folder, bool own)
{
    (void)own;
    orth_run *r = user;
    bool refused;
    orth_folder_unlock(r->start_lock);
    r->start_lock = orth_folder_lock(folder, ORTH_LOCK_SHARED, &refused);
    orth_mem_free(ctx, r->start_from);
    r->start_from = orth_mem_strdup(ctx, folder);
    return r->start_from ? ORTH_OK : ORTH_ERR_NOMEM;
}

/* Which folder the weights come from, if any. */
static orth_status find_start(orth_ctx *ctx, orth_run *r)
{
    char *newest = NULL;
    int64_t *steps = NULL, num_steps = 0;
    ORTH_TRY(orth_checkpoint_newest(ctx, r->checkpoints, &newest));
    r->resumed = newest && (r->options.resume || r->options.resume_or_start);
    if (r->resumed)
        r->start_from = newest;
    else
        r->holds = newest;
    if (r->options.resume && !newest)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: no valid checkpoint to resume from", r->checkpoints);
    if (r->resumed)
        return ORTH_OK;
    if (!newest)
        ORTH_TRY(orth_checkpoint_list(ctx, r->checkpoints, &steps, &num_steps));
    orth_mem_free(ctx, steps);
    if (num_steps > 0)
        return ORTH_FAIL(ctx, r->options.resume_or_start ? ORTH_ERR_DATA : ORTH_ERR_ARG, "%s holds a run whose checkpoints are all damaged: give another "
                         "checkpoint.dir, or remove it", r->dir);
    return r->options.init_dir ? orth_checkpoint_read_weights(ctx, r->options.init_dir, start_from, r) : ORTH_OK;
}

#define RUN_YAML_BEGIN "# Written by `orthant train`: all keys of this run.\n"

const char *orth_run_file(int i)
{
    static const char *const names[] = {"run.yaml", "plan.json", "metrics.jsonl", "memory.json", "timeline.json", "complete.json"};
    return i < ORTH_COUNT(names) ? names[i] : NULL;
}

static orth_status write_run_yaml(orth_ctx *ctx, const orth_run *r)
{
    orth_text t = {0};
    orth_config all = *r->cfg; /* shares its strings */
    if (r->start_from)
        orth_setup_put_model(&all, &r->model, r->start_from);
    char *keys = orth_config_yaml(ctx, &all);
    orth_text_add(ctx, &t, RUN_YAML_BEGIN);
    orth_text_add(ctx, &t, keys ? keys : "");
    orth_mem_free(ctx, keys);
    char *text = orth_text_take(ctx, &t);
    if (keys)
        return write_file(ctx, r, "run.yaml", text);
    orth_mem_free(ctx, text);
    return ORTH_ERR_NOMEM;
}

static orth_status begins_as_ours(orth_ctx *ctx, const char *path, bool *out)
{
    char begin[sizeof RUN_YAML_BEGIN] = "";
    FILE *f = orth_file_stream(ctx, path, "r");
    if (!f)
        return ORTH_ERR_IO;
    *out = fread(begin, 1, sizeof RUN_YAML_BEGIN - 1, f) > 0 && strcmp(begin, RUN_YAML_BEGIN) == 0;
    fclose(f);
    return ORTH_OK;
}

/* A run begins in a new folder, in an empty one, or in one that a run left before its first checkpoint. Somebody's own run.yaml is not for it to
 * replace. */
static orth_status require_no_files_of_others(orth_ctx *ctx, const orth_run *r)
{
    const char *name;
    for (int i = 0; (name = orth_run_file(i)); i++) {
        bool there, ours = false;
        ORTH_TRY(orth_path_holds(ctx, r->dir, name, &there));
        if (!there)
            continue;
        char *path = orth_path_join(ctx, r->dir, name);
        const orth_status s = !path ? ORTH_ERR_NOMEM : i > 0 ? ORTH_OK : begins_as_ours(ctx, path, &ours);
        orth_mem_free(ctx, path);
        ORTH_TRY(s);
        if (ours)
            return ORTH_OK;
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s/%s: was written by no run, and would be overwritten: give another checkpoint.dir", r->dir, name);
    }
    return ORTH_OK;
}

/* Memory belongs to a host: what its ranks need together must fit. */
static orth_status require_fit(orth_ctx *ctx, orth_run *r)
{
    orth_plan *here = ORTH_NEW_ARRAY(ctx, orth_plan, r->num_ranks);
    int n = 0;
    if (!here)
        return ORTH_ERR_NOMEM;
    for (int k = 0; k < r->num_ranks; k++)
        if (!r->world || orth_world_shares_host(r->world, k))
            here[n++] = r->plan.ranks[k];
    orth_plan sum = orth_plan_total(here, n, r->plan.total.tokens, r->plan.total.limit_bytes);
    orth_mem_free(ctx, here);
    r->plan.total.fits = sum.fits;
    return orth_plan_require_fit(ctx, &sum);
}

/* Whether a run that can only be refused has mistakes of its own, which this refusal must not hide: what shows without preparing, and its memory. */
static orth_status look_for_mistakes(orth_ctx *ctx, orth_run *r)
{
    ORTH_TRY(open_corpora(ctx, r, true));
    if (!r->start_from)
        ORTH_TRY(orth_describe_model(ctx, r->cfg, &r->model));
    ORTH_TRY(orth_describe_plan(ctx, &r->plan, r->cfg, &r->model, false));
    r->num_ranks = r->plan.num_ranks;
    return require_fit(ctx, r);
}

static orth_status refuse_to_overwrite(orth_ctx *ctx, orth_run *r)
{
    for (int i = 0; i < r->cfg->data_path.n; i++)
        if (!orth_path_exists(r->cfg->data_path.v[i]))
            return ORTH_OK; /* which is told when the data are opened */
    if (!r->holds && !r->resumed && !r->options.watch)
        ORTH_TRY(require_no_files_of_others(ctx, r));
    if (!r->holds || r->cfg->data_path.n == 0)
        return ORTH_OK;
    ORTH_TRY(look_for_mistakes(ctx, r));
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s holds a run already (%s): continue it with --resume, or give another "
                     "checkpoint.dir", r->dir, r->holds);
}

/* What a step will take on this machine. Ranks that are threads share it; over MPI they are here one after the other, and by peaks. */
static orth_status price(orth_ctx *ctx, orth_run *r)
{
    orth_rates rates;
    orth_hardware h = {.num_devices = 0};
    bool known = false;
    if (!r->world)
        ORTH_TRY(orth_describe_host(ctx, r->cfg, &h, &known));
    if (known) {
        if (h.isa != ORTH_MIN(ctx->isa, ORTH_ISA_AMX))
            orth_log(ctx, ORTH_LOG_WARN, "plan", "run.hardware=%s was measured with %s, the run uses %s: the planned time is that of the former",
                     r->cfg->run_hardware, orth_isa_name(h.isa), orth_isa_name(ctx->isa));
        ORTH_TRY(orth_host_price(ctx, &r->plan, &h, orth_setup_compute(r->cfg), NULL));
        r->plan.total.times_of = NULL; /* lies in h */
        return ORTH_OK;
    }
    ORTH_TRY(orth_machine_rates(ctx, r->cfg, r->world ? 1 : r->num_ranks, &rates));
    /* Copies of up to 256 MiB, which are gone: what is counted is the run. */
    orth_pages_reset_peak();
    atomic_store(&ctx->heap_peak, atomic_load(&ctx->heap_bytes));
    return orth_run_plan_price(ctx, &r->plan, &rates, NULL);
}

static orth_status check_timeline(orth_ctx *ctx, const orth_run *r)
{
    if (r->options.timeline <= r->last_step)
        return ORTH_OK;
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--timeline=%" PRId64 ": the last step is %" PRId64 " (train.steps)",
                     r->options.timeline, r->last_step);
}

/* From here on, and in run.yaml and the checkpoints, the run is one of so many steps. */
static orth_status resolve_epochs(orth_ctx *ctx, orth_run *r)
{
    const int64_t steps = orth_setup_epoch_steps(r->cfg, orth_sampler_num_windows(r->train));
    r->resolved = *r->cfg;
    r->resolved.train_steps = steps;
    r->resolved.train_epochs = 0;
    if (!r->options.watch)
        orth_log(ctx, ORTH_LOG_INFO, "data", "train.epochs=%g: %" PRId64 " steps (%" PRId64 " sequences of %" PRId64
                 " tokens an epoch, %" PRId64 " a step)", r->cfg->train_epochs, steps, orth_sampler_num_windows(r->train),
                 r->cfg->data_seq_len, r->cfg->train_global_batch);
    r->cfg = &r->resolved;
    if (!r->options.watch)
        r->last_step = steps;
    return check_timeline(ctx, r);
}

static orth_status open_all(orth_ctx *ctx, orth_run *r)
{
    const bool first = !r->world || orth_world_rank(r->world) == 0;
    if (r->cfg->train_epochs == 0)
        ORTH_TRY(check_timeline(ctx, r));
    r->checkpoints = orth_path_join(ctx, r->dir, "checkpoints");
    if (!r->checkpoints)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(lock_folder(ctx, r));
    ORTH_TRY(find_start(ctx, r));
    if (r->resumed)
        ORTH_TRY(orth_resume_check_options(ctx, r->cfg, r->start_from, r->options.override));
    if (r->cfg->data_path.n > 0)
        ORTH_TRY(check_early(ctx, r));
    ORTH_TRY(refuse_to_overwrite(ctx, r));
    r->made_dir = !orth_path_exists(r->dir);
    ORTH_TRY(orth_path_make_dirs(ctx, r->dir));
    ORTH_TRY(lock_folder(ctx, r));
    ORTH_TRY(open_data(ctx, r));
    if (r->cfg->train_epochs > 0) {
        ORTH_TRY(resolve_epochs(ctx, r));
        if (r->resumed) /* what may change depends on the steps that are left */
            ORTH_TRY(orth_resume_check_options(ctx, r->cfg, r->start_from, r->options.override));
    }
    if (r->resumed)
        ORTH_TRY(orth_resume_check_data(ctx, r->cfg, r->data, r->start_from));
    if (r->resumed && first && !r->options.watch)
        ORTH_TRY(orth_resume_tell_lr(ctx, r->cfg, r->start_from));
    ORTH_TRY(orth_ctx_check_stop(ctx));
    ORTH_TRY(choose_model(ctx, r, orth_tokenizer_vocab_size(r->data->tokenizer)));
    ORTH_TRY(read_tokenizer(ctx, r));
    ORTH_TRY(orth_describe_plan(ctx, &r->plan, r->cfg, &r->model, r->valid != NULL));
    r->num_ranks = r->plan.num_ranks;
    r->metrics.plan = r->plan.total;
    ORTH_TRY(require_fit(ctx, r));
    ORTH_TRY(orth_run_plan_check(ctx, &r->plan));
    r->metrics_path = orth_path_join(ctx, r->dir, "metrics.jsonl");
    if (!r->metrics_path)
        return ORTH_ERR_NOMEM;
    if (!first)
        return ORTH_OK;
    if (!r->options.watch) {
        ORTH_TRY(orth_tell_idle_in_plan(ctx, r->cfg, &r->plan));
        if (r->start_from && !r->resumed)
            ORTH_TRY(orth_config_tell_key_idle(ctx, r->cfg, ORTH_OPT_model_init_std, "the run begins from weights (--init)"));
        ORTH_TRY(take_complete(ctx, r));
        ORTH_TRY(price(ctx, r));
    }
    ORTH_TRY(orth_run_plan_find_peaks(ctx, &r->plan));
    ORTH_TRY(write_run_yaml(ctx, r));
    return write_file(ctx, r, "plan.json", orth_plan_json(ctx, r->plan.ranks, r->num_ranks, &r->plan.total));
}

orth_status orth_run_open(orth_ctx *ctx, orth_run *r, const orth_run_options *options, orth_world *world)
{
    *r = (orth_run){.options = *options, .cfg = options->cfg, .world = world, .dir = options->cfg->checkpoint_dir,
                    .folder = {options->cfg->checkpoint_dir, -1}, .start_lock = -1, .complete_step = -1};
    r->last_step = options->watch ? options->watch->steps : r->cfg->train_steps;
    orth_status status = open_all(ctx, r);
    if (status != ORTH_OK && r->made_dir)
        rmdir(r->dir); /* only if nothing is in it */
    if (status != ORTH_OK)
        orth_run_close(ctx, r);
    return status;
}

void orth_run_close(orth_ctx *ctx, orth_run *r)
{
    orth_metrics_close(&r->metrics);
    orth_run_plan_release(ctx, &r->plan);
    orth_sampler_destroy(ctx, r->train);
    orth_sampler_destroy(ctx, r->valid);
    orth_data_close(ctx, r->data);
    orth_bytes_free(ctx, &r->tokenizer_json);
    orth_mem_free(ctx, r->tokenizer_config);
    orth_mem_free(ctx, r->token_bytes);
    orth_mem_free(ctx, r->metrics_path);
    orth_mem_free(ctx, r->checkpoints);
    orth_mem_free(ctx, r->start_from);
    orth_mem_free(ctx, r->holds);
    orth_folder_unlock(r->start_lock);
    orth_folder_unlock(r->folder.lock);
    *r = (orth_run){.cfg = NULL};
}

orth_status orth_run_train(orth_ctx *ctx, orth_run *r)
{
    if (r->world)
        return rank_main(ctx, r->world, r);
    orth_world_options options = orth_groups_options(r->cfg, orth_pool_num_threads(ctx->pool), r->num_ranks);
    options.fault = r->options.fault;
    return orth_run_ranks(ctx, r->num_ranks, rank_main, r, &options);
}

/* Over MPI ranks meet before there is a run: they open it one after the other. */
static orth_status run_processes(orth_ctx *ctx, const orth_run_options *options)
{
    orth_layout layout = orth_setup_layout(options->cfg);
    orth_world_options o = orth_groups_options(options->cfg, 1, 1);
    o.backend = ORTH_BACKEND_MPI;
    o.fault = options->fault;
    int64_t ranks = ORTH_MIN(orth_layout_ranks(&layout), INT_MAX);
    orth_run_options copy = *options;
    return orth_run_ranks(ctx, (int)ranks, process_main, &copy, &o);
}

/* A run of threads, which is opened before there are ranks. */
typedef struct {
    orth_run run;
    const orth_run_options *options;
    orth_ctx *ctx;                /* of the caller, who waits: what is opened belongs to it */
    orth_error error;
} opening;

static orth_status open_main(orth_ctx *rank, orth_world *world, void *arg)
{
    (void)world;
    opening *o = arg;
    struct orth_progress *const before = o->ctx->progress;
    o->ctx->progress = rank->progress;
    orth_phase_begin(o->ctx, "opening the run");
    const orth_status s = orth_run_open(o->ctx, &o->run, o->options, NULL);
    orth_phase_end(o->ctx);
    o->ctx->progress = before;
    o->error = rank->error = o->ctx->error;
    orth_ctx_clear_error(o->ctx);
    return s;
}

/* As the one rank of a world, whose watchdog finds a file that hangs. */
static orth_status open_watched(orth_ctx *ctx, opening *o)
{
    const orth_world_options alone = orth_groups_options(o->options->cfg, 1, 1);
    const orth_status s = orth_run_ranks(ctx, 1, open_main, o, &alone);
    if (s != ORTH_OK && !ctx->error.left_behind && o->error.code != ORTH_OK)
        ctx->error = o->error; /* with all that it says beside its message */
    return s;
}

static orth_status run_threads(orth_ctx *ctx, opening *o)
{
    ORTH_TRY(open_watched(ctx, o));
    orth_status s = process_peak(ctx, &o->run, NULL);
    if (s == ORTH_OK)
        s = orth_run_train(ctx, &o->run);
    if (!ctx->error.left_behind)
        orth_run_close(ctx, &o->run);
    return s;
}

orth_status orth_run_whole(orth_ctx *ctx, const orth_run_options *options)
{
    if (options->cfg->comm_backend == ORTH_comm_backend_mpi)
        return run_processes(ctx, options);
    opening *o = ORTH_NEW(ctx, opening);
    if (!o)
        return ORTH_ERR_NOMEM;
    o->options = options;
    o->ctx = ctx;
    const orth_status s = run_threads(ctx, o);
    if (!ctx->error.left_behind) /* who did not come back may still use it */
        orth_mem_free(ctx, o);
    return s;
}
