/* rank.c -- one rank of a run: builds its program, fills its weights, steps, and takes its part in
 * evaluations and checkpoints. All ranks go through the same calls in the same order.
 */
#include "train/run.h"

#include <inttypes.h>
#include <math.h>
#include <signal.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/pool.h"
#include "train/gather.h"
#include "train/groups.h"
#include "train/weights.h"

typedef struct {
    orth_run *run;
    orth_world *world;               /* NULL: a rank alone */
    orth_comm *all;                  /* all ranks, for barriers; NULL alone */
    orth_comm *comms[ORTH_NUM_GROUPS];
    int rank;
    orth_chunk *chunks;
    orth_model_shape shape;
    orth_trainer trainer;
    bool has_trainer;
    orth_evaluator evaluator;
    bool has_evaluator;
    orth_loader *loader;
    int64_t *indices;                /* [sequences of a step on this rank] */
    int64_t *weights;                /* [updates of a step] targets of each, on all ranks */
    int64_t steps_done, tokens_done, skipped;
    orth_step_result result;         /* of the last step */
} rank_state;

static orth_status barrier(orth_ctx *ctx, rank_state *s)
{
    return s->all ? orth_barrier(ctx, s->all) : ORTH_OK;
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
    return status == ORTH_OK ? orth_groups_create(ctx, s->world, &s->run->plan.spread, s->rank, s->comms) : status;
}

static orth_status read_source(orth_ctx *ctx, void *source, int64_t index, float *out)
{
    return orth_hf_read_param(ctx, source, index, out);
}

/* Weights, moments and counters of a checkpoint. */
static orth_status resume(orth_ctx *ctx, rank_state *s);

static orth_status fill_weights(orth_ctx *ctx, rank_state *s)
{
    const orth_run *r = s->run;
    if (!r->start_from)
        return orth_weights_init(ctx, &r->model, &s->trainer.unit, s->trainer.executor, (uint64_t)r->cfg->train_seed);
    if (r->resumed)
        return resume(ctx, s);
    orth_hf_source *source = NULL;
    ORTH_TRY(orth_hf_open(ctx, &source, r->start_from));
    orth_status status = orth_weights_fill(ctx, &r->model, &s->trainer.unit, s->trainer.executor, read_source, source);
    orth_hf_close(ctx, source);
    return status;
}

static orth_status open_rank(orth_ctx *ctx, rank_state *s)
{
    orth_run *r = s->run;
    s->chunks = ORTH_NEW_ARRAY(ctx, orth_chunk, r->plan.spread.schedule.num_chunks);
    s->indices = ORTH_NEW_ARRAY(ctx, int64_t, r->cfg->train_global_batch);
    if (!s->chunks || !s->indices)
        return ORTH_ERR_NOMEM;
    s->shape = orth_setup_shape(r->cfg, ORTH_MODE_TRAIN);
    orth_spread_shape(&r->plan.spread, s->rank, &s->shape, s->chunks);
    orth_unit unit;
    ORTH_TRY(orth_unit_build(ctx, &r->model, &s->shape, &unit));
    ORTH_TRY(orth_trainer_create(ctx, &s->trainer, r->cfg, &r->model, &unit));
    s->has_trainer = true;
    s->weights = ORTH_NEW_ARRAY(ctx, int64_t, s->trainer.unit.program.num_updates);
    if (!s->weights)
        return ORTH_ERR_NOMEM;
    if (s->world)
        ORTH_TRY(make_groups(ctx, s));
    orth_executor_set_comms(s->trainer.executor, s->comms);
    if (r->valid) {
        ORTH_TRY(orth_evaluator_create(ctx, &s->evaluator, r->cfg, &r->model, s->trainer.executor, &s->shape));
        s->has_evaluator = true;
        orth_executor_set_comms(s->evaluator.executor, s->comms);
    }
    orth_loader_options o = {.sampler = r->train, .rows = orth_setup_rows(&s->shape),
                             .max_sequences = (int64_t)s->shape.num_micro_batches * s->shape.num_seqs};
    ORTH_TRY(orth_loader_create(ctx, &s->loader, &o));
    return fill_weights(ctx, s);
}

static void close_rank(orth_ctx *ctx, rank_state *s)
{
    orth_loader_destroy(ctx, s->loader);
    if (s->has_evaluator)
        orth_evaluator_destroy(ctx, &s->evaluator);
    if (s->has_trainer)
        orth_trainer_destroy(ctx, &s->trainer);
    orth_groups_destroy(ctx, s->comms);
    orth_comm_destroy(ctx, s->all);
    orth_mem_free(ctx, s->chunks);
    orth_mem_free(ctx, s->indices);
    orth_mem_free(ctx, s->weights);
}

/* ---- checkpoints ---- */

typedef struct {
    const orth_checkpoint *ck;
    orth_bind bind;
} saved_source;

static orth_status read_saved(orth_ctx *ctx, void *user, int64_t index, float *out)
{
    const saved_source *s = user;
    orth_checkpoint_array a = {.index = index};
    *(s->bind == ORTH_BIND_MASTER ? &a.master : s->bind == ORTH_BIND_M ? &a.m : &a.v) = out;
    return orth_checkpoint_load(ctx, s->ck, &a, 1);
}

static orth_status read_moment(orth_ctx *ctx, rank_state *s, const orth_checkpoint *ck, int64_t index, orth_bind bind,
                               float *whole)
{
    int32_t b = orth_program_find(&s->trainer.unit.program, bind, index);
    if (b < 0)
        return ORTH_OK;
    const orth_buffer *buffer = &s->trainer.unit.program.buffers[b];
    saved_source source = {ck, bind};
    ORTH_TRY(read_saved(ctx, &source, index, whole));
    orth_weights_move(&s->trainer.unit.blocks.spec.params[index], buffer->first_elem,
                      (int64_t)(buffer->bytes / sizeof(float)), orth_executor_find(s->trainer.executor, bind, index),
                      whole, false);
    return ORTH_OK;
}

static orth_status resume_from(orth_ctx *ctx, rank_state *s, const orth_checkpoint *ck)
{
    const orth_run *r = s->run;
    const orth_checkpoint_state *state = orth_checkpoint_get_state(ck);
    saved_source masters = {ck, ORTH_BIND_MASTER};
    ORTH_TRY(orth_weights_fill(ctx, &r->model, &s->trainer.unit, s->trainer.executor, read_saved, &masters));
    for (int64_t i = 0; i < orth_model_num_params(&r->model); i++) {
        orth_param p;
        ORTH_TRY(orth_model_param(ctx, &r->model, i, &p));
        float *whole = ORTH_NEW_ARRAY(ctx, float, orth_param_elems(&p));
        orth_status status = whole ? read_moment(ctx, s, ck, i, ORTH_BIND_M, whole) : ORTH_ERR_NOMEM;
        if (status == ORTH_OK)
            status = read_moment(ctx, s, ck, i, ORTH_BIND_V, whole);
        orth_mem_free(ctx, whole);
        ORTH_TRY(status);
    }
    s->steps_done = state->step;
    s->tokens_done = state->tokens;
    s->skipped = state->skipped;
    return ORTH_OK;
}

static orth_status resume(orth_ctx *ctx, rank_state *s)
{
    orth_checkpoint *ck = NULL;
    ORTH_TRY(orth_checkpoint_open(ctx, &ck, s->run->start_from));
    orth_status status = resume_from(ctx, s, ck);
    orth_checkpoint_close(ctx, ck);
    return status;
}

/* Rank 0 makes room for whole parameters. A rank alone lends its own memory. */
static orth_status make_arrays(orth_ctx *ctx, rank_state *s)
{
    const orth_run *r = s->run;
    int64_t n = orth_model_num_params(&r->model);
    orth_checkpoint_array *a = ORTH_NEW_ARRAY(ctx, orth_checkpoint_array, n);
    s->run->exchange.arrays = a;
    if (!a)
        return ORTH_ERR_NOMEM;
    bool second = r->cfg->optimizer_name != ORTH_optimizer_name_sgd;
    for (int64_t i = 0; i < n; i++) {
        orth_param p;
        ORTH_TRY(orth_model_param(ctx, &r->model, i, &p));
        int64_t elems = orth_param_elems(&p);
        const orth_executor *e = s->trainer.executor;
        a[i] = (orth_checkpoint_array){.index = i};
        a[i].master = s->world ? ORTH_NEW_ARRAY(ctx, float, elems) : orth_executor_find(e, ORTH_BIND_MASTER, i);
        a[i].m = s->world ? ORTH_NEW_ARRAY(ctx, float, elems) : orth_executor_find(e, ORTH_BIND_M, i);
        if (second)
            a[i].v = s->world ? ORTH_NEW_ARRAY(ctx, float, elems) : orth_executor_find(e, ORTH_BIND_V, i);
        if (!a[i].master || !a[i].m || (second && !a[i].v))
            return ORTH_ERR_NOMEM;
    }
    return ORTH_OK;
}

static void free_arrays(orth_ctx *ctx, rank_state *s)
{
    orth_checkpoint_array *a = s->run->exchange.arrays;
    for (int64_t i = 0; a && s->world && i < orth_model_num_params(&s->run->model); i++) {
        orth_mem_free(ctx, a[i].master);
        orth_mem_free(ctx, a[i].m);
        orth_mem_free(ctx, a[i].v);
    }
    orth_mem_free(ctx, a);
    s->run->exchange.arrays = NULL;
}

static void hand_in(rank_state *s)
{
    const orth_checkpoint_array *to = s->run->exchange.arrays;
    for (int64_t i = 0; i < s->trainer.unit.blocks.spec.num_params; i++) {
        orth_gather_param(&s->trainer, ORTH_BIND_MASTER, i, to[i].master);
        orth_gather_param(&s->trainer, ORTH_BIND_M, i, to[i].m);
        orth_gather_param(&s->trainer, ORTH_BIND_V, i, to[i].v);
    }
}

static orth_status write_checkpoint(orth_ctx *ctx, rank_state *s)
{
    const orth_run *r = s->run;
    char *config = orth_config_yaml(ctx, r->cfg);
    orth_status status = config ? orth_path_make_dirs(ctx, r->checkpoints) : ORTH_ERR_NOMEM;
    orth_checkpoint_view view = {
        .config = r->model, .arrays = r->exchange.arrays, .num_arrays = orth_model_num_params(&r->model),
        .weight_dtype = ORTH_F32, .run_config = config, .tokenizer = r->tokenizer_json.v,
        .tokenizer_bytes = r->tokenizer_json.num,
        .state = {.step = s->steps_done, .next_sequence = s->steps_done * r->cfg->train_global_batch,
                  .tokens = s->tokens_done, .skipped = s->skipped, .seed = r->cfg->train_seed, .loss_scale = 1,
                  .tokenizer_fingerprint = orth_tokenizer_fingerprint(r->data->tokenizer),
                  .data_fingerprint = r->data->fingerprint,
                  .eos_token = orth_tokenizer_eos(r->data->tokenizer)},
    };
    if (status == ORTH_OK)
        status = orth_checkpoint_save(ctx, r->checkpoints, &view, r->cfg->checkpoint_keep, NULL);
    orth_mem_free(ctx, config);
    return status;
}

static orth_status save(orth_ctx *ctx, rank_state *s)
{
    double begin = orth_clock_s();
    orth_status status = ORTH_OK;
    if (s->world)
        orth_world_busy(s->world, "saving a checkpoint");
    if (s->rank == 0)
        status = make_arrays(ctx, s);
    if (status == ORTH_OK)
        status = barrier(ctx, s);
    if (status == ORTH_OK && s->world)
        hand_in(s);
    if (status == ORTH_OK)
        status = barrier(ctx, s);
    if (status == ORTH_OK && s->rank == 0)
        status = write_checkpoint(ctx, s);
    if (status == ORTH_OK)
        status = barrier(ctx, s);
    if (s->rank == 0)
        free_arrays(ctx, s);
    if (s->world)
        orth_world_busy(s->world, NULL);
    if (status != ORTH_OK || s->rank != 0)
        return status;
    char text[512];
    snprintf(text, sizeof text, "saved %s/step-%08" PRId64 " in %.2f s", s->run->checkpoints, s->steps_done,
             orth_clock_s() - begin);
    return orth_metrics_event(ctx, &s->run->metrics, text, NULL);
}

/* ---- watched runs ---- */

/* All ranks hand in what they own of all tensors; rank 0 shows them to the watcher. */
static orth_status show(orth_ctx *ctx, rank_state *s, orth_bind bind)
{
    orth_run *r = s->run;
    const orth_run_watch *w = r->options.watch;
    if (s->world)
        orth_world_busy(s->world, "comparing");
    if (s->rank == 0)
        memset(r->exchange.whole, 0xff, (size_t)orth_model_num_elems(&r->model) * sizeof *r->exchange.whole);
    ORTH_TRY(barrier(ctx, s));
    ORTH_TRY(orth_gather_all(ctx, &s->trainer, bind, r->exchange.whole));
    ORTH_TRY(barrier(ctx, s));
    if (s->rank == 0)
        ORTH_TRY(w->show(ctx, w->user, &r->model, &s->result, bind, r->exchange.whole));
    ORTH_TRY(barrier(ctx, s));
    if (s->world)
        orth_world_busy(s->world, NULL);
    return ORTH_OK;
}

/* ---- evaluation ---- */

static orth_status evaluate(orth_ctx *ctx, rank_state *s, int64_t max_batches)
{
    orth_run *r = s->run;
    orth_eval_result e;
    int64_t n = orth_sampler_num_windows(r->valid);
    if (max_batches > 0)
        n = ORTH_MIN(n, max_batches * r->cfg->train_micro_batch);
    ORTH_TRY(orth_evaluator_run(ctx, &s->evaluator, r->valid, 0, n, r->token_bytes, NULL, NULL, &e));
    /* One of the ranks that have the head tells the others: adding zeros is exact. The loss is summed over
     * context parallelism already; targets are counted where their rows are. */
    const int32_t *pos = s->shape.mesh.pos;
    bool tells = s->chunks[s->shape.num_chunks - 1].head && pos[ORTH_GROUP_TP] == 0 && pos[ORTH_GROUP_DP] == 0;
    double values[] = {tells && pos[ORTH_GROUP_CP] == 0 ? e.nll : 0, tells ? e.weight : 0, tells ? e.target_bytes : 0};
    if (s->all)
        ORTH_TRY(orth_all_reduce(ctx, s->all, values, values, 3, ORTH_F64, ORTH_SUM));
    if (s->rank != 0)
        return ORTH_OK;
    double loss = isnan(values[0]) ? (double)NAN : values[0] / values[1];
    double bits = values[2] > 0 ? values[0] / log(2.0) / values[2] : 0;
    char text[256], json[256], loss_text[40], bits_text[40];
    orth_metrics_number(loss_text, sizeof loss_text, loss);
    orth_metrics_number(bits_text, sizeof bits_text, bits);
    snprintf(text, sizeof text, "eval %6" PRId64 "  loss %8.4f  perplexity %.3f  bits per byte %.4f  (%.0f targets)",
             s->steps_done, loss, exp(loss), bits, values[1]);
    snprintf(json, sizeof json, "{\"step\": %" PRId64 ", \"eval_loss\": %s, \"eval_loss_hex\": \"%a\", "
             "\"eval_bits_per_byte\": %s, \"eval_targets\": %.0f}", s->steps_done, loss_text, loss, bits_text,
             values[1]);
    return orth_metrics_event(ctx, &r->metrics, text, json);
}

/* ---- steps ---- */

static orth_status request_step(orth_ctx *ctx, rank_state *s, int64_t step)
{
    int64_t n = (int64_t)s->shape.num_micro_batches * s->shape.num_seqs;
    for (int64_t i = 0; i < n; i++)
        s->indices[i] = orth_spread_sequence(&s->run->plan.spread, s->rank, (step - 1) * s->run->cfg->train_global_batch, i);
    return orth_loader_request(ctx, s->loader, s->indices, n);
}

static orth_status weigh_updates(orth_ctx *ctx, rank_state *s, int64_t first)
{
    const orth_spread *spread = &s->run->plan.spread;
    for (int u = 0; u < s->trainer.unit.program.num_updates; u++) {
        s->weights[u] = 0;
        for (int i = 0; i < orth_spread_update_runs(spread); i++) {
            int64_t begin, count, weight;
            orth_spread_update_run(spread, first, u, i, &begin, &count);
            ORTH_TRY(orth_sampler_weight(ctx, s->run->train, &weight, begin, count));
            s->weights[u] += weight;
        }
    }
    return ORTH_OK;
}

static orth_status one_step(orth_ctx *ctx, rank_state *s, int64_t step)
{
    orth_run *r = s->run;
    int64_t n = r->cfg->train_global_batch, first = (step - 1) * n;
    double started = orth_clock_s();
    orth_loader_batch batch;
    if (s->world)
        orth_world_step(s->world, step);
    ORTH_TRY(orth_loader_get(ctx, s->loader, &batch));
    if (step < r->last_step)
        ORTH_TRY(request_step(ctx, s, step + 1));
    ORTH_TRY(weigh_updates(ctx, s, first));
    orth_trainer_load(&s->trainer, &batch, s->weights);
    orth_traffic before = orth_traffic_counted(s->comms);
    ORTH_TRY(orth_trainer_step(ctx, &s->trainer, step, &s->result));
    if (step == r->options.timeline)
        memcpy(r->exchange.clocks[s->rank], orth_executor_clock(s->trainer.executor),
               (size_t)(s->trainer.unit.program.num_instrs + 1) * sizeof(int64_t));
    s->steps_done = step;
    s->tokens_done += n * r->cfg->data_seq_len;
    s->skipped += s->result.skipped;
    if (s->rank != 0)
        return ORTH_OK;
    orth_traffic after = orth_traffic_counted(s->comms), sent = orth_traffic_minus(&after, &before);
    return orth_metrics_step(ctx, &r->metrics, &s->result, orth_clock_s() - started, first, first + n, &sent);
}

/* Rank 0 decides before it joins the collectives of a step; the others look after they took part in them,
 * so all see the same last step, however far apart they run. */
static void look_for_signal(orth_run *r, int64_t step)
{
    int got = r->options.stop && r->exchange.stop_step == 0 ? r->options.stop(r->options.stop_user) : 0;
    if (got == 0)
        return;
    r->exchange.signal = got;
    r->exchange.stop_step = step;
}

static bool stops_at(const orth_run *r, int64_t step)
{
    return r->exchange.stop_step != 0 && r->exchange.stop_step <= step;
}

static orth_status run_steps(orth_ctx *ctx, rank_state *s)
{
    orth_run *r = s->run;
    const orth_config *c = r->cfg;
    if (s->steps_done < r->last_step)
        ORTH_TRY(request_step(ctx, s, s->steps_done + 1));
    bool stopped = false;
    for (int64_t step = s->steps_done + 1; step <= r->last_step && !stopped; step++) {
        if (s->rank == 0)
            look_for_signal(r, step);
        ORTH_TRY(one_step(ctx, s, step));
        stopped = stops_at(r, step);
        bool last = step == r->last_step;
        if (r->options.watch) {
            ORTH_TRY(show(ctx, s, ORTH_BIND_GRAD));
            if (last)
                ORTH_TRY(show(ctx, s, ORTH_BIND_MASTER));
            continue;
        }
        if (r->valid && !last && !stopped && c->train_eval_every > 0 && step % c->train_eval_every == 0)
            ORTH_TRY(evaluate(ctx, s, c->train_eval_batches));
        if (last || stopped || (c->checkpoint_every_steps > 0 && step % c->checkpoint_every_steps == 0))
            ORTH_TRY(save(ctx, s));
    }
    return ORTH_OK;
}

static orth_status run_rank(orth_ctx *ctx, rank_state *s)
{
    orth_run *r = s->run;
    ORTH_TRY(open_rank(ctx, s));
    if (s->rank == 0) {
        r->metrics.steps = r->last_step;
        r->metrics.log_every = r->cfg->train_log_every;
        r->metrics.quiet = r->options.quiet;
        ORTH_TRY(orth_metrics_open(ctx, &r->metrics, r->metrics_path, r->resumed ? s->steps_done : -1));
    }
    bool fresh = s->steps_done < r->last_step;
    ORTH_TRY(run_steps(ctx, s));
    bool stopped = stops_at(r, s->steps_done);
    if (r->valid && !stopped)
        ORTH_TRY(evaluate(ctx, s, 0));
    if (fresh)
        orth_executor_counted(s->trainer.executor, r->exchange.counted[s->rank]);
    if (stopped && s->rank == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_SIGNAL, "stopped by %s after step %" PRId64 "; the checkpoint is saved, "
                         "--resume continues", r->exchange.signal == SIGTERM ? "SIGTERM" : "SIGINT", s->steps_done);
    return ORTH_OK;
}

static orth_status rank_main(orth_ctx *ctx, orth_world *world, void *arg)
{
    rank_state s = {.run = arg, .world = world, .rank = world ? orth_world_rank(world) : 0};
    orth_status status = run_rank(ctx, &s);
    close_rank(ctx, &s);
    return status;
}

/* What the ranks have touched, beside plan.json. */
static orth_status write_counted(orth_ctx *ctx, const orth_run *r)
{
    char *all = orth_mem_strdup(ctx, "");
    for (int k = 0; all && k < r->num_ranks; k++) {
        char *memory = orth_memory_json(ctx, r->exchange.counted[k]);
        char *longer = memory ? orth_mem_printf(ctx, "%s%s{\"rank\": %d, \"memory\": %s}", all, k ? ", " : "", k, memory)
                              : NULL;
        orth_mem_free(ctx, memory);
        orth_mem_free(ctx, all);
        all = longer;
    }
    char *text = all ? orth_mem_printf(ctx, "{\"ranks\": [%s]}\n", all) : NULL;
    char *path = orth_path_join(ctx, r->dir, "memory.json");
    orth_status status = text && path ? orth_file_write(ctx, path, text, strlen(text)) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, all);
    orth_mem_free(ctx, text);
    orth_mem_free(ctx, path);
    return status;
}

static orth_status write_timeline(orth_ctx *ctx, orth_run *r)
{
    if (r->exchange.clocks[0][0] == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--timeline=%" PRId64 ": the run went on after that step", r->options.timeline);
    orth_bubble bubble;
    char text[256], *path = orth_path_join(ctx, r->dir, "timeline.json");
    orth_status status = path ? orth_timeline_write(ctx, &r->plan, r->cfg, &r->model, r->exchange.clocks, path, &bubble)
                              : ORTH_ERR_NOMEM;
    if (status == ORTH_OK) {
        snprintf(text, sizeof text, "step %" PRId64 " is in %s: forwards and backwards %.6f s, ranks idle %.2f %% of it; "
                 "%s with the same times for each would idle %.2f %%", r->options.timeline, path, bubble.seconds,
                 100 * bubble.idle_share, r->plan.spread.schedule.name, 100 * bubble.replayed);
        status = orth_metrics_event(ctx, &r->metrics, text, NULL);
    }
    orth_mem_free(ctx, path);
    return status;
}

orth_status orth_run_train(orth_ctx *ctx, orth_run *r)
{
    orth_status status;
    if (r->num_ranks == 1) {
        status = rank_main(ctx, NULL, r);
    } else {
        orth_world_options options = orth_groups_options(r->cfg, orth_pool_num_threads(ctx->pool), r->num_ranks);
        status = orth_run_ranks(ctx, r->num_ranks, rank_main, r, &options);
    }
    if (status == ORTH_OK && r->exchange.counted[0][ORTH_CLASS_PARAMS] > 0)
        status = write_counted(ctx, r);
    if (status == ORTH_OK && r->exchange.clocks)
        status = write_timeline(ctx, r);
    return status;
}
