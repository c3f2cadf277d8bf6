/* rank.c -- one rank of a run: builds its program, fills its weights, steps, and takes its part in
 * evaluations and checkpoints. All ranks go through the same calls in the same order.
 */
#include "train/rank.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/pages.h"
#include "base/pool.h"
#include "train/gather.h"
#include "train/groups.h"
#include "train/resume.h"
#include "train/weights.h"

/* ---- signals ---- */

#define STOP_METRICS (-1)   /* beside the numbers of signals: see agree */

/* A signal may have been sent to any process, and all end together: agrees on it, or on the end of a run whose metrics cannot
 * be written (STOP_METRICS), and adds up what the ranks have sent (NULL: nothing), and what their processes have had in memory.
 * Collective. */
static orth_status agree(orth_ctx *ctx, rank_state *s, orth_traffic *sent)
{
    static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGUSR1, STOP_METRICS};
    enum { NUM_SIGNALS = ORTH_COUNT(signals) };
    struct {
        int64_t got[NUM_SIGNALS];
        int64_t resident;
        orth_traffic sent;
    } news = {.got = {0}};
    const orth_run_options *o = &s->run->options;
    const int signal = o->stop ? o->stop(o->stop_user) : 0;
    const int got = s->rank == 0 && s->run->metrics.failed.code != ORTH_OK ? STOP_METRICS : signal;
    for (int i = 0; i < NUM_SIGNALS; i++)
        news.got[i] = got == signals[i];
    if (sent) {
        news.sent = *sent;
        news.resident = s->rank == 0 || s->run->world ? (int64_t)orth_pages_resident_peak_bytes() : 0;
    }
    const int64_t bytes = sent ? (int64_t)sizeof news : (int64_t)sizeof news.got;
    if (s->all)
        ORTH_TRY(orth_all_reduce(ctx, s->all, &news, &news, bytes / (int64_t)sizeof(int64_t), ORTH_I64, ORTH_SUM));
    for (int i = 0; i < NUM_SIGNALS && !s->signal; i++)
        s->signal = news.got[i] ? signals[i] : 0;
    if (sent) {
        *sent = news.sent;
        s->resident_peak = (size_t)news.resident;
    }
    return ORTH_OK;
}

static orth_status stop_evaluation(orth_ctx *ctx, void *rank, bool *out)
{
    rank_state *s = rank;
    ORTH_TRY(agree(ctx, s, NULL));
    *out = s->signal != 0;
    return ORTH_OK;
}

/* ---- opening ---- */

static orth_status make_groups(orth_ctx *ctx, rank_state *s)
{
    int n = s->run->num_ranks;
    int *ranks = ORTH_NEW_ARRAY(ctx, int, n);
    orth_status status = ranks ? ORTH_OK : ORTH_ERR_NOMEM;
    for (int i = 0; i < n && status == ORTH_OK; i++)
        ranks[i] = i;
    if (status == ORTH_OK)
        status = orth_comm_create(ctx, s->world, &s->all, "world", n, ranks);
    orth_mem_free(ctx, ranks);
    return status == ORTH_OK ? orth_groups_create(ctx, s->world, &s->run->plan.partition, s->rank, s->comms) : status;
}

static orth_status read_source(orth_ctx *ctx, void *source, int64_t index, float *out)
{
    return orth_hf_read_param(ctx, source, index, out);
}

static orth_status fill_weights(orth_ctx *ctx, rank_state *s)
{
    const orth_run *r = s->run;
    if (!r->start_from)
        return orth_weights_init(ctx, &r->model, &s->trainer.compiled, s->trainer.executor, (uint64_t)r->cfg->train_seed);
    if (r->resumed)
        return rank_resume(ctx, s);
    orth_hf_source *source = NULL;
    ORTH_TRY(orth_hf_open(ctx, &source, r->start_from));
    orth_status status = orth_weights_fill(ctx, &r->model, &s->trainer.compiled, s->trainer.executor, read_source, source);
    orth_hf_close(ctx, source);
    return status;
}

/* Once a run: the first rank's folder is that of all, and its file system. */
static void say_file(orth_ctx *ctx, const rank_state *s)
{
    const orth_scratch *file = orth_executor_file_use(s->trainer.executor).file;
    char how[ORTH_SCRATCH_WORDS_MAX];
    if (!file || s->rank > 0 || s->run->options.watch)
        return;
    orth_scratch_words(file, how);
    orth_log(ctx, ORTH_LOG_INFO, "offload", "the file in %s is read and written %s", file->dir, how);
}

/* Of trainer.ends. The first rank that fails takes the others along; rank 0 is to know of the loss by then. */
static orth_status step_ends(orth_ctx *ctx, void *rank, const orth_step_result *r)
{
    rank_state *s = rank;
    s->sound = isfinite(r->loss);
    return rank_barrier(ctx, s);
}

static orth_status create_executors(orth_ctx *ctx, rank_state *s)
{
    orth_run *r = s->run;
    orth_rank_programs programs;
    ORTH_TRY(orth_programs_take(ctx, &r->plan.programs, s->rank, s->chunks, &programs));
    s->shape = programs.shape;
    const orth_status status = orth_trainer_create(ctx, &s->trainer, r->cfg, &r->model, &programs.step);
    s->has_trainer = status == ORTH_OK;
    s->trainer.ends = step_ends;
    s->trainer.ends_user = s;
    if (s->has_trainer)
        say_file(ctx, s);
    if (programs.evaluates && !s->has_trainer)
        orth_compiled_release(&programs.eval);
    if (!programs.evaluates || !s->has_trainer)
        return status;
    ORTH_TRY(orth_evaluator_create_beside(ctx, &s->evaluator, r->cfg, &r->model, s->trainer.executor, &programs.eval));
    s->has_evaluator = true;
    s->evaluator.stop = stop_evaluation;
    s->evaluator.stop_user = s;
    return ORTH_OK;
}

static orth_status open_rank(orth_ctx *ctx, rank_state *s)
{
    orth_run *r = s->run;
    s->chunks = ORTH_NEW_ARRAY(ctx, orth_chunk, r->plan.partition.schedule.num_chunks);
    s->indices = ORTH_NEW_ARRAY(ctx, int64_t, r->cfg->train_global_batch);
    if (!s->chunks || !s->indices)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(create_executors(ctx, s));
    s->weights = ORTH_NEW_ARRAY(ctx, int64_t, s->trainer.compiled.program.num_updates);
    if (r->options.timeline > 0)
        s->clock = ORTH_NEW_ARRAY(ctx, int64_t, orth_clock_length(s->trainer.compiled.program.num_instrs));
    if (!s->weights || (r->options.timeline > 0 && !s->clock))
        return ORTH_ERR_NOMEM;
    if (r->num_ranks > 1)
        ORTH_TRY(make_groups(ctx, s));
    orth_executor_set_comms(s->trainer.executor, s->comms);
    if (s->has_evaluator)
        orth_executor_set_comms(s->evaluator.executor, s->comms);
    orth_world_expect(s->world, r->plan.total.time.step_s);
    orth_world_name_instrs(s->world, orth_executor_name_instr);
    orth_loader_options o = {.sampler = r->train, .rows = orth_setup_rows(&s->shape),
                             .max_sequences = (int64_t)s->shape.num_micro_batches * s->shape.num_seqs};
    ORTH_TRY(orth_loader_create(ctx, &s->loader, &o));
    const orth_saver_source source = {rank_fetch, s};
    if (s->rank == 0 && !r->options.watch)
        ORTH_TRY(orth_saver_create(ctx, &s->saver, r->cfg, &r->model, s->all ? NULL : s->trainer.executor, &source,
                                   &r->folder, r->checkpoints));
    ORTH_TRY(fill_weights(ctx, s));
    ORTH_TRY(rank_barrier(ctx, s));
    if (s->rank == 0 || r->world)
        orth_pages_trim_heap(); /* before the arena fills up */
    return ORTH_OK;
}

static void close_rank(orth_ctx *ctx, rank_state *s)
{
    orth_saver_destroy(ctx, s->saver);
    orth_loader_destroy(ctx, s->loader);
    const bool keep = orth_world_keeps_buffers(s->world);
    orth_groups_destroy(ctx, s->comms); /* first: calls under way after an error, this rank's and its peers', use the arenas */
    orth_comm_destroy(ctx, s->all);
    if (s->has_evaluator && !keep)
        orth_evaluator_destroy(ctx, &s->evaluator);
    if (s->has_trainer && !keep)
        orth_trainer_destroy(ctx, &s->trainer);
    if (!keep)
        orth_mem_free(ctx, s->chunks);
    if (s->rank == 0)
        orth_metrics_free_lines(ctx, &s->run->metrics);
    orth_mem_free(ctx, s->indices);
    orth_mem_free(ctx, s->weights);
    orth_mem_free(ctx, s->clock);
}

/* ---- watched runs ---- */

/* Rank 0 shows all tensors of `bind` to the watcher. */
static orth_status show_whole(orth_ctx *ctx, rank_state *s, orth_bind bind, float *elems, float **whole)
{
    const orth_run *r = s->run;
    const orth_run_watch *w = r->options.watch;
    int64_t at = 0;
    memset(elems, 0xff, (size_t)orth_model_num_elems(&r->model) * sizeof *elems);
    for (int64_t i = 0; i < orth_model_num_params(&r->model); i++) {
        orth_param p;
        ORTH_TRY(orth_model_param(ctx, &r->model, i, &p));
        whole[i] = elems + at;
        at += orth_param_elems(&p);
        if (bind == ORTH_BIND_GRAD && s->trainer.compiled.blocks.spec.params[i].frozen) /* no rank has one */
            memset(whole[i], 0, (size_t)orth_param_elems(&p) * sizeof *elems);
    }
    ORTH_TRY(orth_gather(ctx, &s->trainer, s->all, bind, whole));
    return w->show(ctx, w->user, &r->model, &s->result, bind, elems);
}

static orth_status show(orth_ctx *ctx, rank_state *s, orth_bind bind)
{
    const orth_model_config *model = &s->run->model;
    orth_progress_part(ctx);
    orth_phase_begin(ctx, "comparing tensors of step %" PRId64, s->steps_done);
    orth_status status;
    if (s->rank == 0) {
        float *elems = ORTH_NEW_ARRAY(ctx, float, orth_model_num_elems(model));
        float **whole = ORTH_NEW_ARRAY(ctx, float *, orth_model_num_params(model));
        status = elems && whole ? show_whole(ctx, s, bind, elems, whole) : ORTH_ERR_NOMEM;
        orth_mem_free(ctx, elems);
        orth_mem_free(ctx, whole);
    } else {
        status = orth_gather(ctx, &s->trainer, s->all, bind, NULL);
    }
    if (status == ORTH_OK)
        status = rank_barrier(ctx, s);
    orth_phase_end(ctx);
    return status;
}

/* ---- evaluation ---- */

static orth_status evaluate(orth_ctx *ctx, rank_state *s, int64_t max_batches)
{
    orth_run *r = s->run;
    orth_eval_result e;
    int64_t n = orth_sampler_num_windows(r->valid);
    if (max_batches > 0)
        n = ORTH_MIN(n, max_batches * r->cfg->train_global_batch);
    ORTH_TRY(orth_evaluator_run(ctx, &s->evaluator, r->valid, 0, n, r->token_bytes, NULL, NULL, &e));
    if (e.stopped)
        return ORTH_OK;
    /* One of the ranks that have the head tells the others: adding zeros is exact. The loss is summed over
     * context parallelism already; targets are counted where their rows are. */
    const int32_t *pos = s->shape.mesh.pos;
    bool tells = s->chunks[s->shape.num_chunks - 1].head && pos[ORTH_GROUP_TP] == 0 && pos[ORTH_GROUP_DP] == 0;
    double values[] = {tells && pos[ORTH_GROUP_CP] == 0 ? e.nll : 0, tells ? e.weight : 0, tells ? e.target_bytes : 0};
    if (s->all)
        ORTH_TRY(orth_all_reduce(ctx, s->all, values, values, 3, ORTH_F64, ORTH_SUM));
    double loss = orth_metrics_shown(values[0] / values[1]);
    double bits = values[2] > 0 ? orth_metrics_shown(values[0] / log(2.0) / values[2]) : NAN;
    s->sound = isfinite(values[0]);
    if (s->rank == 0) {
        const orth_eval_figures figures = {s->steps_done, loss, bits, values[1]};
        orth_phase_begin(ctx, "writing metrics.jsonl");
        orth_metrics_evaluation(ctx, &r->metrics, &figures);
        orth_phase_end(ctx);
    }
    if (s->sound || r->cfg->train_on_nonfinite == ORTH_train_on_nonfinite_skip)
        return ORTH_OK;
    ORTH_TRY(rank_barrier(ctx, s)); /* as in step_ends */
    return ORTH_FAIL(ctx, ORTH_ERR_NUMERIC, "evaluation after step %" PRId64 ": loss %g on the held-out text (train.on_nonfinite=stop)",
                     s->steps_done, fabs(loss));
}

/* ---- steps ---- */

static orth_status request_step(orth_ctx *ctx, rank_state *s, int64_t step)
{
    int64_t n = (int64_t)s->shape.num_micro_batches * s->shape.num_seqs;
    for (int64_t i = 0; i < n; i++)
        s->indices[i] = orth_partition_sequence(&s->run->plan.partition, s->rank, (step - 1) * s->run->cfg->train_global_batch, i);
    return orth_loader_request(ctx, s->loader, s->indices, n);
}

static orth_status weigh_updates(orth_ctx *ctx, rank_state *s, int64_t first)
{
    const orth_partition *partition = &s->run->plan.partition;
    for (int u = 0; u < s->trainer.compiled.program.num_updates; u++) {
        s->weights[u] = 0;
        for (int i = 0; i < orth_partition_update_runs(partition); i++) {
            int64_t begin, count, weight;
            orth_partition_update_run(partition, first, u, i, &begin, &count);
            ORTH_TRY(orth_sampler_weight(ctx, s->run->train, &weight, begin, count));
            s->weights[u] += weight;
        }
    }
    return ORTH_OK;
}

/* What the step that was done says of the weights that it began with, which may be those of the newest checkpoint. */
static void judge_step(rank_state *s)
{
    s->sound = isfinite(s->result.loss);
    if (s->saver && s->sound && !s->result.skipped)
        orth_saver_proves(s->saver);
}

static orth_status one_step(orth_ctx *ctx, rank_state *s, int64_t step)
{
    orth_run *r = s->run;
    int64_t n = r->cfg->train_global_batch, first = (step - 1) * n;
    double started = orth_clock_s();
    orth_loader_batch batch;
    orth_world_step(s->world, step);
    orth_phase_begin(ctx, "reading the sequences of step %" PRId64, step);
    const orth_status got = orth_loader_get(ctx, s->loader, &batch);
    orth_phase_end(ctx);
    ORTH_TRY(got);
    if (step < r->last_step)
        ORTH_TRY(request_step(ctx, s, step + 1));
    ORTH_TRY(weigh_updates(ctx, s, first));
    ORTH_TRY(orth_trainer_load(ctx, &s->trainer, &batch, s->weights));
    orth_traffic before = orth_traffic_counted(s->comms);
    ORTH_TRY(orth_trainer_step(ctx, &s->trainer, step, &s->result));
    judge_step(s);
    if (step == r->options.timeline)
        memcpy(s->clock, orth_executor_clock(s->trainer.executor),
               (size_t)orth_clock_length(s->trainer.compiled.program.num_instrs) * sizeof *s->clock);
    s->steps_done = step;
    s->tokens_done += n * r->cfg->data_seq_len;
    const double seconds = orth_clock_s() - started;
    const orth_traffic after = orth_traffic_counted(s->comms), sent = orth_traffic_minus(&after, &before);
    orth_traffic sent_by_all = sent;
    ORTH_TRY(agree(ctx, s, &sent_by_all));
    if (s->rank != 0)
        return ORTH_OK;
    double exposed_s[ORTH_NUM_GROUPS];
    orth_executor_exposed(s->trainer.executor, exposed_s);
    r->metrics.peak_bytes = s->resident_peak;
    orth_phase_begin(ctx, "writing metrics.jsonl");
    orth_metrics_step(ctx, &r->metrics, &s->result, seconds, first, first + n, &sent, &sent_by_all, exposed_s);
    orth_phase_end(ctx);
    return ORTH_OK;
}

/* A signal, or a kill, came after the step of the checkpoint and before its evaluation. Collective. */
static orth_status make_up_evaluation(orth_ctx *ctx, rank_state *s)
{
    const orth_run *r = s->run;
    const int64_t every = r->cfg->train_eval_every;
    if (!r->resumed || !r->valid || r->options.watch || every == 0 || s->steps_done % every != 0 || s->steps_done >= r->last_step)
        return ORTH_OK;
    int64_t missing = s->rank == 0 && r->metrics.evaluated_step != s->steps_done;
    if (s->all)
        ORTH_TRY(orth_all_reduce(ctx, s->all, &missing, &missing, 1, ORTH_I64, ORTH_SUM));
    return missing ? evaluate(ctx, s, r->cfg->train_eval_batches) : ORTH_OK;
}

static orth_status run_steps(orth_ctx *ctx, rank_state *s)
{
    const orth_run *r = s->run;
    const orth_config *c = r->cfg;
    ORTH_TRY(make_up_evaluation(ctx, s));
    if (s->steps_done < r->last_step)
        ORTH_TRY(request_step(ctx, s, s->steps_done + 1));
    for (int64_t step = s->steps_done + 1; step <= r->last_step && !s->signal; step++) {
        ORTH_TRY(one_step(ctx, s, step));
        bool last = step == r->last_step;
        if (r->options.watch) {
            ORTH_TRY(show(ctx, s, ORTH_BIND_GRAD));
            if (last)
                ORTH_TRY(show(ctx, s, ORTH_BIND_MASTER));
            continue;
        }
        ORTH_TRY(rank_report_saved(ctx, s, false));
        if (r->valid && !last && !s->signal && c->train_eval_every > 0 && step % c->train_eval_every == 0)
            ORTH_TRY(evaluate(ctx, s, c->train_eval_batches));
        if (last || s->signal || (c->checkpoint_every_steps > 0 && step % c->checkpoint_every_steps == 0))
            ORTH_TRY(rank_save(ctx, s));
    }
    return ORTH_OK;
}

/* ---- the end ---- */

/* For scripts: launchers may return 0 for a run that was killed. The last thing that a run writes. */
static orth_status write_complete(orth_ctx *ctx, const rank_state *s)
{
    const orth_run *r = s->run;
    orth_text text = {0};
    orth_json_out j = {ctx, &text};
    ORTH_TRY(orth_folder_require(ctx, &r->folder));
    orth_json_open(&j, NULL, '{');
    orth_json_print(&j, "step", "%" PRId64, s->steps_done);
    orth_json_close(&j, '}');
    orth_text_add(ctx, &text, "\n");
    char *json = orth_text_take(ctx, &text), *path = orth_path_join(ctx, r->dir, "complete.json");
    orth_phase_begin(ctx, "writing complete.json");
    const orth_status status = json && path ? orth_file_write(ctx, path, json, strlen(json)) : ORTH_ERR_NOMEM;
    orth_phase_end(ctx);
    orth_mem_free(ctx, json);
    orth_mem_free(ctx, path);
    return status;
}

/* ---- timeline.json ---- */

static orth_status write_timeline(orth_ctx *ctx, orth_run *r, int64_t *const *clocks)
{
    orth_bubble bubble;
    char text[256], *path = orth_path_join(ctx, r->dir, "timeline.json");
    orth_status status = path ? orth_folder_require(ctx, &r->folder) : ORTH_ERR_NOMEM;
    if (status == ORTH_OK)
        status = orth_run_plan_timeline(ctx, &r->plan, clocks, path, &bubble);
    if (status == ORTH_OK) {
        snprintf(text, sizeof text, "step %" PRId64 " is in %.80s: forwards and backwards %.6f s, ranks idle %.2f %% of it; "
                 "%.40s with the same times for each would idle %.2f %%", r->options.timeline, path, bubble.seconds,
                 100 * bubble.idle_share, r->plan.partition.schedule.name, 100 * bubble.replayed);
        orth_metrics_event(&r->metrics, text);
    }
    orth_mem_free(ctx, path);
    return status;
}

/* All ranks hand in their clocks; rank 0 writes the file. */
static orth_status say_timeline(orth_ctx *ctx, rank_state *s)
{
    orth_run *r = s->run;
    int64_t **clocks = NULL, *counts = ORTH_NEW_ARRAY(ctx, int64_t, r->num_ranks);
    orth_status status = counts ? orth_run_plan_clocks(ctx, &r->plan, &clocks) : ORTH_ERR_NOMEM;
    for (int k = 0; status == ORTH_OK && k < r->num_ranks; k++)
        counts[k] = orth_clock_length(r->plan.ranks[k].num_instrs) * (int64_t)sizeof(int64_t);
    orth_progress_part(ctx);
    orth_phase_begin(ctx, "writing the timeline");
    if (status == ORTH_OK && s->all)
        status = orth_all_gather(ctx, s->all, clocks[0], s->clock, 0, counts, ORTH_U8);
    else if (status == ORTH_OK)
        memcpy(clocks[0], s->clock, (size_t)counts[0]);
    if (status == ORTH_OK && s->rank == 0)
        status = write_timeline(ctx, r, clocks);
    if (status == ORTH_OK)
        status = rank_barrier(ctx, s);
    orth_phase_end(ctx);
    orth_mem_free(ctx, clocks);
    orth_mem_free(ctx, counts);
    return status;
}

static orth_status open_events(orth_ctx *ctx, orth_run *r, int64_t steps_done)
{
    char *dir = orth_path_join(ctx, r->dir, "tensorboard");
    orth_status s = dir ? orth_path_make_dirs(ctx, dir) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = orth_metrics_open_events(ctx, &r->metrics, dir, steps_done);
    orth_mem_free(ctx, dir);
    return s;
}

/* For orth_resume_overrides. */
static orth_status record_override(orth_ctx *ctx, void *user, const char *key, const char *was, const char *now)
{
    rank_state *s = user;
    orth_metrics_override(ctx, &s->run->metrics, s->steps_done, key, was, now);
    return ORTH_OK;
}

static orth_status begin(orth_ctx *ctx, rank_state *s)
{
    orth_run *r = s->run;
    ORTH_TRY(open_rank(ctx, s));
    if (s->rank > 0)
        return ORTH_OK;
    r->metrics.steps = r->last_step;
    r->metrics.log_every = r->cfg->train_log_every;
    r->metrics.print = r->options.print;
    ORTH_TRY(orth_metrics_open(ctx, &r->metrics, r->metrics_path, r->resumed ? s->steps_done : -1));
    if (s->saver)
        orth_saver_has_lines(s->saver, fileno(r->metrics.file), r->metrics_path);
    if (r->resumed && r->options.override && s->steps_done < r->last_step)
        ORTH_TRY(orth_resume_overrides(ctx, r->cfg, r->start_from, record_override, s));
    if (r->cfg->log_tensorboard && !r->options.watch)
        ORTH_TRY(open_events(ctx, r, s->steps_done));
    return r->options.watch ? ORTH_OK : rank_banner(ctx, r, s->steps_done);
}

/* Whether the run was complete at its last step already, and metrics.jsonl has the evaluation: it says the same once only. Collective. */
static orth_status was_complete(orth_ctx *ctx, const rank_state *s, bool *out)
{
    int64_t yes = s->rank == 0 && s->run->complete_step == s->steps_done;
    if (s->all)
        ORTH_TRY(orth_all_reduce(ctx, s->all, &yes, &yes, 1, ORTH_I64, ORTH_SUM));
    *out = yes != 0;
    if (*out && s->rank == 0)
        orth_metrics_event(&s->run->metrics, "the run was complete already: there is no further step");
    return ORTH_OK;
}

static orth_status run_rank(orth_ctx *ctx, rank_state *s)
{
    orth_run *r = s->run;
    orth_phase_begin(ctx, r->resumed ? "opening the run and its checkpoint" : "opening the run");
    ORTH_TRY(begin(ctx, s));
    orth_phase_end(ctx);
    const int64_t start = s->steps_done;
    const bool fresh = start < r->last_step;
    bool complete = false;
    if (s->clock && s->steps_done >= r->options.timeline)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--timeline=%" PRId64 ": the run goes on after step %" PRId64,
                         r->options.timeline, s->steps_done);
    ORTH_TRY(run_steps(ctx, s));
    if (s->rank == 0)
        orth_metrics_communication(&r->metrics);
    if (!fresh)
        ORTH_TRY(was_complete(ctx, s, &complete));
    if (r->valid && !s->signal && !complete)
        ORTH_TRY(evaluate(ctx, s, 0));
    ORTH_TRY(rank_report_saved(ctx, s, true));
    if (s->saver && r->valid && s->sound && !complete && !s->signal) /* the loss of a step is that of the weights before its update */
        ORTH_TRY(orth_saver_settle(ctx, s->saver));
    if (s->steps_done > start)
        ORTH_TRY(rank_write_memory(ctx, s));
    if (s->clock && s->steps_done >= r->options.timeline)
        ORTH_TRY(say_timeline(ctx, s));
    orth_phase_begin(ctx, "writing metrics.jsonl");
    if (s->rank == 0)
        ORTH_TRY(orth_metrics_finish(ctx, &r->metrics));
    orth_phase_end(ctx);
    if (!s->signal && s->rank == 0 && !r->options.watch) {
        orth_metrics_summary(&r->metrics, r->dir, s->steps_done);
        if (!s->sound)
            orth_log(ctx, ORTH_LOG_WARN, "train", "the loss that was computed last is not finite: these weights may be of no use (train.on_nonfinite=skip)");
        return write_complete(ctx, s);
    }
    if (s->signal && s->rank == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_SIGNAL, "stopped by %s after step %" PRId64 "; %s", orth_signal_name(s->signal),
                         s->steps_done, r->options.watch ? "nothing is kept" : "the checkpoint is saved, --resume continues");
    return ORTH_OK;
}

orth_status rank_main(orth_ctx *ctx, orth_world *world, void *run)
{
    rank_state s = {.run = run, .world = world, .rank = orth_world_rank(world)};
    orth_status status = run_rank(ctx, &s);
    if (status != ORTH_OK && s.all)
        orth_world_abort(world, status, ctx->error.message); /* before what is released together with others */
    orth_world_name_instrs(world, NULL);
    orth_phase_begin(ctx, "closing the run");
    if (s.saver && !s.sound && (status == ORTH_ERR_NUMERIC || orth_world_cause(world) == ORTH_ERR_NUMERIC)) /* of whichever rank */
        orth_saver_retreat(ctx, s.saver);
    close_rank(ctx, &s);
    orth_phase_end(ctx);
    return status;
}
