/* cmd_search.c -- `orthant search`: the best layout of a model on a cluster. */
#include <inttypes.h>

#include "cli/cmd.h"
#include "cli/memory.h"
#include "cli/numbers.h"
#include "cli/waiting.h"
#include "tools/export.h"
#include "tools/search_report.h"
#include "tools/shares.h"

/* What a run has that is given by its model only: below what is given. */
static orth_status set_defaults(orth_ctx *ctx, const orth_config *given, orth_config *cfg, const orth_hardware *h)
{
    orth_model_config model;
    char seq_len[32], batch[32];
    ORTH_TRY(orth_describe_model(ctx, given, &model));
    orth_setup_say_derived(ctx, given, &model);
    snprintf(seq_len, sizeof seq_len, "%" PRId64, ORTH_MIN(model.max_seq, 8192));
    snprintf(batch, sizeof batch, "%" PRId64, ORTH_MAX(128, h->num_devices / 8));
    const struct {
        const char *key, *value;
    } defaults[] = {{"data.seq_len", seq_len}, {"train.global_batch", batch}, {"precision.compute", h->device_bf16_tflops > 0 ? "bf16" : "fp32"}, {"numerics.mode", "fast"}};
    for (int i = 0; i < ORTH_COUNT(defaults); i++)
        ORTH_TRY(orth_config_set(ctx, cfg, "search --model", defaults[i].key, defaults[i].value));
    return ORTH_OK;
}

/* --cluster with the number of --gpus: "h100-64". */
static orth_status name_cluster(orth_ctx *ctx, const orth_cmd *cmd, char *out, size_t n)
{
    const char *cluster = orth_cmd_flag(cmd, "cluster");
    int64_t gpus = 0;
    size_t stem;
    if (!cluster)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "search needs a cluster: --cluster=h100-64, for example");
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "gpus", 1, 1000000, &gpus));
    if (gpus && orth_hardware_names_count(cluster, &stem))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "search: --gpus=%" PRId64 ": --cluster=%s names a number of devices already: say --cluster=%.*s-%" PRId64,
                         gpus, cluster, (int)stem, cluster, gpus);
    const int length = gpus ? snprintf(out, n, "%s-%" PRId64, cluster, gpus) : snprintf(out, n, "%s", cluster);
    return (size_t)length < n ? ORTH_OK : ORTH_FAIL(ctx, ORTH_ERR_ARG, "search: --cluster: longer than %zu bytes", n - 1);
}

static orth_status make_base(orth_ctx *ctx, const orth_cmd *cmd, const char *cluster, orth_config *cfg)
{
    orth_hardware h;
    ORTH_TRY(orth_hardware_find(ctx, &h, cluster));
    orth_hardware_release(ctx, &h);
    if (orth_cmd_flag(cmd, "model") && !cmd->run_file)
        ORTH_TRY(set_defaults(ctx, &cmd->config, cfg, &h));
    return orth_config_override(ctx, cfg, &cmd->config);
}

/* Of groups of different devices: which shares of the batch the winner has best, which it then gets. */
static orth_status share_out(orth_ctx *ctx, orth_search *s, orth_config *cfg, bool quiet)
{
    orth_shares *shares = ORTH_NEW(ctx, orth_shares);
    orth_status st = shares ? orth_shares_find(ctx, cfg, &s->where, shares) : ORTH_ERR_NOMEM;
    char *text = st == ORTH_OK ? orth_shares_text(ctx, shares, s->where.hardware.mixed) : NULL;
    if (text && !quiet)
        fputs(text, stdout);
    if (st == ORTH_OK && shares->list[0])
        st = orth_config_set(ctx, cfg, "search", "parallel.dp_share", shares->list);
    orth_mem_free(ctx, text);
    orth_mem_free(ctx, shares);
    return st;
}

/* A limit of memory that the winner does not use would be refused. */
static void say_limits_left_out(orth_ctx *ctx, const orth_config *base, const orth_config *winner, const char *path)
{
    const struct {
        const char *key;
        int64_t given, kept;
    } limits[] = {{"memory.limit_host", base->memory_limit_host, winner->memory_limit_host}, {"memory.limit_file", base->memory_limit_file, winner->memory_limit_file}};
    for (int i = 0; i < ORTH_COUNT(limits); i++)
        if (limits[i].given > 0 && limits[i].kept == 0)
            orth_log(ctx, ORTH_LOG_INFO, "export", "%s: %s is left out: the winner has nothing there", ORTH_SHOWN(path), limits[i].key);
}

static orth_status finish_winner(orth_ctx *ctx, orth_search *s, int32_t winner, const char *path, bool quiet)
{
    orth_config cfg;
    ORTH_TRY(orth_search_config(ctx, s, winner, &cfg));
    orth_status st = ORTH_OK;
    if (s->where.hardware.mixed && cfg.parallel_dp > 1)
        st = share_out(ctx, s, &cfg, quiet);
    if (st == ORTH_OK && path) {
        say_limits_left_out(ctx, s->space.base, &cfg, path);
        st = orth_export_run(ctx, &cfg, path);
    }
    orth_config_release(ctx, &cfg);
    return st;
}

static void say_assumed(const orth_cmd *cmd, const orth_config *base)
{
    if (orth_cmd_flag(cmd, "model") && !cmd->run_file && !orth_cmd_flag(cmd, "json"))
        printf("run            data.seq_len=%" PRId64 " train.global_batch=%" PRId64 " precision.compute=%s numerics.mode=%s\n", base->data_seq_len,
               base->train_global_batch, orth_option_choice(ORTH_OPT_precision_compute, (int)base->precision_compute),
               orth_option_choice(ORTH_OPT_numerics_mode, (int)base->numerics_mode));
}

static orth_status search(orth_ctx *ctx, const orth_cmd *cmd, const char *cluster, const orth_config *base)
{
    const char *goal = orth_cmd_flag(cmd, "goal"), *out = orth_cmd_flag(cmd, "out");
    int64_t max_plans = 64;
    orth_goal g = ORTH_GOAL_TIME;
    orth_search s;
    char *text = NULL;
    int32_t winner = -1;
    if (goal)
        ORTH_TRY(orth_goal_from_name(ctx, goal, &g));
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "plans", 1, INT32_MAX, &max_plans));
    ORTH_TRY(orth_search_make(ctx, &s, base, cluster, g));
    orth_waiting waiting;
    orth_waiting_on_terminal(ctx, &waiting);
    orth_status st = orth_search_report(ctx, &s, (int32_t)max_plans, orth_cmd_flag(cmd, "json") != NULL, &text, &winner);
    orth_waiting_end(ctx);
    if (st == ORTH_OK) {
        say_assumed(cmd, base);
        fputs(text, stdout);
    }
    if (st == ORTH_OK && out && winner < 0)
        st = ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "search: no layout fits: %s is not written", out);
    else if (st == ORTH_OK && winner >= 0)
        st = finish_winner(ctx, &s, winner, out, orth_cmd_flag(cmd, "json") != NULL);
    orth_mem_free(ctx, text);
    orth_search_release(ctx, &s);
    return st;
}

orth_status orth_cmd_search(orth_ctx *ctx, const orth_cmd *cmd)
{
    orth_config base;
    char cluster[4096];
    ORTH_TRY(name_cluster(ctx, cmd, cluster, sizeof cluster));
    orth_keep_freed_memory();
    ORTH_TRY(orth_config_init(ctx, &base));
    orth_status s = make_base(ctx, cmd, cluster, &base);
    if (s == ORTH_OK)
        s = search(ctx, cmd, cluster, &base);
    orth_config_release(ctx, &base);
    return s;
}
