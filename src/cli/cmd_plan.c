/* cmd_plan.c -- `orthant plan RUN.yaml`: what a run will need, without running it. */
#include <inttypes.h>
#include <string.h>

#include "base/files.h"
#include "cli/cmd.h"
#include "cli/memory.h"
#include "cli/waiting.h"
#include "cli/warnings.h"
#include "plan/cases.h"
#include "plan/cluster.h"
#include "plan/mixed.h"
#include "tools/compare.h"
#include "tools/export.h"
#include "tools/fit.h"
#include "tools/ladder.h"
#include "tools/plan_html.h"
#include "tools/shares.h"
#include "train/idle.h"
#include "train/placement.h"

#define LONG_PROGRAM 20000       /* instructions of all stages: beyond, dozens of plans take more than seconds */

/* What is planned, and for what: a described cluster, or this machine. */
typedef struct {
    const orth_config *cfg;
    const char *cluster, *timeline;   /* NULL: not given; cluster: not of a host either */
    bool host;                        /* `hardware` is a machine with measured times */
    orth_model_config model;
    bool evaluates;
    orth_rates rates;                 /* of a rank on this machine; zero: not measured yet */
    orth_run_plan plan;
    orth_hardware hardware;
    orth_config there;                /* cfg, for that hardware */
    orth_cluster_plan on_cluster;
    orth_step_detail *detail;         /* NULL: not wanted */
    orth_shares *shares;              /* NULL: there is one group of devices, or one data-parallel rank */
    orth_warnings warnings;           /* of this plan alone, for JSON */
} planning;

static orth_status price(orth_ctx *ctx, planning *x, orth_run_plan *p, const char *timeline)
{
    const orth_config *cfg = x->cfg;
    if (x->host)
        return orth_host_price(ctx, p, &x->hardware, orth_setup_compute(cfg), timeline);
    if (!x->cluster) {
        if (x->rates.flops == 0)
            ORTH_TRY(orth_machine_rates(ctx, cfg, p->num_ranks, &x->rates));
        return orth_run_plan_price(ctx, p, &x->rates, timeline);
    }
    int64_t steps;
    ORTH_TRY(orth_describe_steps(ctx, cfg, &steps, &p->total.no_steps));
    return orth_cluster_price(ctx, p, &x->hardware, orth_setup_compute(cfg), steps, timeline, &x->on_cluster);
}

/* Where the run file says of how many ranks the layout is; NULL: nowhere. */
static const char *place_of_layout(const orth_config *cfg)
{
    static const orth_option_id axes[] = {ORTH_OPT_parallel_dp, ORTH_OPT_parallel_tp, ORTH_OPT_parallel_pp, ORTH_OPT_parallel_cp};
    for (int i = 0; i < ORTH_COUNT(axes); i++)
        if (cfg->place[axes[i]])
            return cfg->place[axes[i]];
    return NULL;
}

/* Whether blocks of so many ranks are what the nodes of h have. Where all ranks are on one node, it may have room for more. */
static bool are_hosts(const orth_hardware *h, int64_t ranks_per_host)
{
    const int groups = h->mixed ? h->mixed->num_groups : 1;
    bool all = true;
    for (int i = 0; i < groups; i++) {
        const int64_t devices = (int64_t)(h->mixed ? h->mixed->group[i].own.node_devices : h->node_devices);
        all = all && (ranks_per_host == devices || (h->num_devices <= devices && ranks_per_host >= h->num_devices));
    }
    return all;
}

static orth_status check_hosts(orth_ctx *ctx, const planning *x)
{
    const char *place = x->cfg->place[ORTH_OPT_parallel_ranks_per_host];
    const int64_t given = x->cfg->parallel_ranks_per_host;
    if (!place || given == 0 || are_hosts(&x->hardware, given))
        return ORTH_OK;
    if (x->hardware.mixed)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: parallel.ranks_per_host=%" PRId64 ": must be the devices of a node (node.devices) in every group of --cluster", place,
                         given);
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: parallel.ranks_per_host=%" PRId64 ": must be the devices of a node of --cluster, which has %.0f (node.devices)", place,
                     given, x->hardware.node_devices);
}

/* The devices of the cluster as those of the layout; a layout that has others is refused with its place. */
static orth_status use_cluster(orth_ctx *ctx, planning *x)
{
    const orth_layout layout = orth_setup_layout(x->cfg);
    const int64_t num_ranks = orth_layout_ranks(&layout), num_devices = x->hardware.num_devices;
    const char *place = place_of_layout(x->cfg);
    char message[ORTH_MESSAGE_MAX];
    const orth_status s = orth_hardware_use(ctx, &x->hardware, num_ranks);
    if (s != ORTH_ERR_ARG || num_devices == 0 || num_devices == num_ranks || !place)
        return s;
    snprintf(message, sizeof message, "%s", ctx->error.message);
    orth_ctx_clear_error(ctx);
    return ORTH_FAIL(ctx, s, "%s: %.800s", place, message);
}

/* Model and cluster are looked at before anything is compiled. */
static orth_status prepare(orth_ctx *ctx, planning *x)
{
    orth_describe_warn_assumed(ctx, x->cfg);
    ORTH_TRY(orth_describe_model(ctx, x->cfg, &x->model));
    ORTH_TRY(orth_describe_check_vocab(ctx, x->cfg, &x->model));
    orth_setup_say_derived(ctx, x->cfg, &x->model);
    if (x->cluster)
        ORTH_TRY(orth_hardware_find(ctx, &x->hardware, x->cluster));
    else
        ORTH_TRY(orth_describe_host(ctx, x->cfg, &x->hardware, &x->host));
    if (x->host || x->hardware.has_host) {
        x->cluster = NULL;
        x->host = true;
        ORTH_TRY(orth_describe_on_host(ctx, x->cfg, &x->hardware, &x->there));
        x->cfg = &x->there;
    }
    if (x->cluster) {
        orth_mixed_warn(ctx, &x->hardware);
        ORTH_TRY(use_cluster(ctx, x));
        ORTH_TRY(check_hosts(ctx, x));
        x->there = orth_describe_on_devices(x->cfg, &x->hardware);
        x->cfg = &x->there;
        /* Workspaces depend on threads and instruction set: a cluster's plan is not to depend on this machine. */
        ORTH_TRY(orth_ctx_use_threads(ctx, 1));
        ctx->isa = ORTH_ISA_BASE;
    }
    return orth_describe_evaluates(ctx, x->cfg, &x->evaluates);
}

static orth_status make(orth_ctx *ctx, planning *x, bool json)
{
    ORTH_TRY(orth_setup_say_place(ctx, x->cfg, orth_describe_plan(ctx, &x->plan, x->cfg, &x->model, x->evaluates)));
    x->plan.detail = x->detail;
    orth_status s = orth_tell_idle_in_plan(ctx, x->cfg, &x->plan);
    if (s == ORTH_OK)
        s = orth_run_plan_check(ctx, &x->plan);
    if (s == ORTH_OK)
        s = price(ctx, x, &x->plan, x->timeline);
    if (s == ORTH_OK && json)
        s = orth_run_plan_find_peaks(ctx, &x->plan);
    if (s != ORTH_OK)
        orth_run_plan_release(ctx, &x->plan);
    return s;
}

/* Prints `text` and frees it; NULL: nothing. */
static void print(orth_ctx *ctx, char *text)
{
    if (text)
        fputs(text, stdout);
    orth_mem_free(ctx, text);
}

/* Of a text that there must be. */
static orth_status show(orth_ctx *ctx, char *text)
{
    print(ctx, text);
    return text ? ORTH_OK : ORTH_ERR_NOMEM;
}

static void print_drawn(const planning *x)
{
    char drawn[ORTH_DRAWN_MAX];
    orth_run_plan_describe_drawn(&x->plan, drawn);
    printf("timeline       %s: %s\n", x->timeline, drawn);
}

static orth_status print_plan(orth_ctx *ctx, const orth_cmd *cmd, planning *x)
{
    orth_run_plan *p = &x->plan;
    char *largest = NULL, *more = NULL, *epochs = NULL, *peaks = NULL;
    if (orth_cmd_flag(cmd, "json"))
        return show(ctx, orth_plan_json(ctx, p->ranks, p->num_ranks, &p->total));
    char *text = x->cluster ? orth_cluster_text(ctx, p, &x->hardware, &x->on_cluster) : orth_plan_text(ctx, &p->total, p->num_ranks);
    orth_status s = text ? ORTH_OK : ORTH_ERR_NOMEM;
    if (s == ORTH_OK && p->num_ranks > 1 && !x->cluster) {
        largest = orth_run_plan_largest_text(ctx, p);
        s = largest ? ORTH_OK : ORTH_ERR_NOMEM;
    }
    if (s == ORTH_OK)
        s = orth_describe_zero_cost(ctx, p, x->cfg, &x->model, &more);
    if (s == ORTH_OK)
        s = orth_describe_epochs(ctx, x->cfg, &epochs);
    if (s == ORTH_OK && orth_cmd_flag(cmd, "peak"))
        s = orth_run_plan_peaks_text(ctx, p, &peaks);
    if (!x->cluster) {
        print(ctx, epochs);
        epochs = NULL;
    }
    print(ctx, text);
    print(ctx, largest);
    print(ctx, more);
    print(ctx, peaks);
    print(ctx, epochs);
    if (x->timeline)
        print_drawn(x);
    return s;
}

/* What other shares of the batch, and each group of devices alone, would make of the step. */
static orth_status find_shares(orth_ctx *ctx, const orth_cmd *cmd, planning *x)
{
    orth_place_to_run where = {.described = true, .hardware = x->hardware};
    if (!x->hardware.mixed || x->cfg->parallel_dp == 1)
        return ORTH_OK;
    x->shares = ORTH_NEW(ctx, orth_shares);
    return x->shares ? orth_shares_find(ctx, &cmd->config, &where, x->shares) : ORTH_ERR_NOMEM;
}

/* The same in words or as JSON. */
static orth_status describe_shares(orth_ctx *ctx, const planning *x, bool json, char **out)
{
    *out = NULL;
    if (!x->shares)
        return ORTH_OK;
    *out = json ? orth_shares_json(ctx, x->shares, x->hardware.mixed) : orth_shares_text(ctx, x->shares, x->hardware.mixed);
    return *out ? ORTH_OK : ORTH_ERR_NOMEM;
}

static const char not_listed[] =
    "what would make it fit is not listed here, since dozens of changes have to be planned: `plan --ladder` with the same words lists them, each with its "
    "price in time";

/* The changes that make a run fit which does not, in words or as JSON. Of a run whose plan takes long they are asked for by --ladder. */
static orth_status find_changes(orth_ctx *ctx, const orth_cmd *cmd, const planning *x, bool json, char **out)
{
    orth_place_to_run where = {.described = true, .hardware = x->hardware};
    if ((int64_t)x->plan.ranks[0].num_instrs * x->cfg->parallel_pp > LONG_PROGRAM) {
        *out = orth_mem_printf(ctx, json ? "{\"not_listed\": \"%s\"}" : "\n%s\n", not_listed);
        return *out ? ORTH_OK : ORTH_ERR_NOMEM;
    }
    orth_ladder *ladder = ORTH_NEW(ctx, orth_ladder);
    orth_status s = ladder ? orth_ladder_find(ctx, &cmd->config, &where, 0, ORTH_LADDER_SECONDS, ladder) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK) {
        *out = json ? orth_ladder_json(ctx, ladder) : orth_ladder_nearest_text(ctx, ladder);
        s = *out ? ORTH_OK : ORTH_ERR_NOMEM;
    }
    orth_mem_free(ctx, ladder);
    return s;
}

/* What a rank has, a second: a device, or its part of this machine. */
static orth_status find_roofs(orth_ctx *ctx, const planning *x, orth_plan_page *page)
{
    const int n = x->plan.num_ranks;
    if (!x->cluster && !x->host) {
        page->flops = x->rates.flops;
        page->bytes = x->rates.bytes;
        return ORTH_OK;
    }
    page->hardware = &x->hardware;
    page->flops = x->on_cluster.peak.flops;
    if (x->host)
        ORTH_TRY(orth_hardware_peak(ctx, &x->hardware, orth_setup_compute(x->cfg), &page->flops));
    page->flops /= x->host ? n : 1;
    page->bytes = 1e9 * x->hardware.device_memory_GBps / (x->host ? n : 1);
    return ORTH_OK;
}

static orth_status write_page(orth_ctx *ctx, const orth_cmd *cmd, const planning *x)
{
    orth_scaling scaling;
    orth_plan_page page = {.plan = &x->plan, .cluster = x->cluster ? &x->on_cluster : NULL, .scaling = &scaling, .shares = x->shares};
    ORTH_TRY(find_roofs(ctx, x, &page));
    ORTH_TRY(orth_scaling_find(ctx, &cmd->config, orth_cmd_flag(cmd, "cluster"), &scaling));
    char *html = orth_plan_html(ctx, &page);
    const orth_status s = html ? orth_file_write(ctx, orth_cmd_flag(cmd, "html"), html, strlen(html)) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, html);
    return s;
}

/* Many plans are an answer of their own, `flag`: neither what is written of one run nor another answer goes with it. */
static orth_status check_alone(orth_ctx *ctx, const orth_cmd *cmd, const char *flag)
{
    static const char *const of_one_run[] = {"timeline", "html", "out", "require-fit", "peak"};
    static const char *const answers[] = {"cases", "scaling", "fit", "ladder", "compare", "pareto"};
    for (int i = 0; i < ORTH_COUNT(answers); i++)
        if (strcmp(answers[i], flag) != 0 && orth_cmd_flag(cmd, answers[i]))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "plan: --%s and --%s: one at a time", flag, answers[i]);
    for (int i = 0; i < ORTH_COUNT(of_one_run); i++)
        if (orth_cmd_flag(cmd, of_one_run[i]))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "plan: --%s is for one run, --%s plans many", of_one_run[i], flag);
    return ORTH_OK;
}

static orth_status plan_cases(orth_ctx *ctx, const orth_cmd *cmd)
{
    static const char *const of_runs[] = {"cluster", "limit", "model", "deepspeed", "accelerate", "megatron", "nemo"};
    orth_software software;
    char *text = NULL;
    ORTH_TRY(check_alone(ctx, cmd, "cases"));
    for (int i = 0; i < ORTH_COUNT(of_runs); i++)
        if (orth_cmd_flag(cmd, of_runs[i]))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "plan: --%s is not read with --cases, whose file says all of its runs", of_runs[i]);
    ORTH_TRY(orth_software_load(ctx, &software, orth_cmd_flag(cmd, "software")));
    ORTH_TRY(orth_cases_predict(ctx, orth_cmd_flag(cmd, "cases"), &software, orth_cmd_flag(cmd, "json") != NULL, &text));
    return show(ctx, text);
}

static orth_status compare(orth_ctx *ctx, const orth_cmd *cmd)
{
    const char *words[ORTH_COMPARE_MAX_KEYS + 1], *word;
    int n = 0;
    char *text = NULL;
    ORTH_TRY(check_alone(ctx, cmd, "compare"));
    while (n < ORTH_COUNT(words) && (word = orth_cmd_compared(cmd, n)))
        words[n++] = word;
    ORTH_TRY(orth_compare(ctx, &cmd->config, orth_cmd_flag(cmd, "cluster"), words, n, orth_cmd_flag(cmd, "json") != NULL, &text));
    return show(ctx, text);
}

static orth_status price_row(orth_ctx *ctx, void *user, orth_run_plan *p)
{
    return price(ctx, user, p, NULL);
}

static orth_status plan_pareto(orth_ctx *ctx, planning *x, bool json)
{
    orth_pareto p;
    ORTH_TRY(orth_describe_pareto(ctx, &p, x->cfg, &x->model, x->evaluates, price_row, x));
    const orth_status s = show(ctx, json ? orth_pareto_json(ctx, &p) : orth_pareto_text(ctx, &p));
    orth_pareto_release(ctx, &p);
    return s;
}

/* --limit, in bytes; 0: not given. */
static orth_status read_limit(orth_ctx *ctx, const orth_cmd *cmd, size_t *out)
{
    const char *text = orth_cmd_flag(cmd, "limit");
    orth_config scratch;
    *out = 0;
    if (!text)
        return ORTH_OK;
    ORTH_TRY(orth_config_init(ctx, &scratch));
    const orth_status s = orth_config_set(ctx, &scratch, "--limit", "memory.limit", text);
    *out = s == ORTH_OK ? (size_t)scratch.memory_limit : 0;
    orth_config_release(ctx, &scratch);
    if (s == ORTH_OK && *out == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--limit=%s: a size is needed, such as 8GiB", text);
    return s;
}

static orth_status print_ladder(orth_ctx *ctx, const orth_cmd *cmd, const orth_config *cfg, orth_place_to_run *where, size_t limit)
{
    orth_ladder *ladder = ORTH_NEW(ctx, orth_ladder);
    orth_status s = ladder ? orth_ladder_find(ctx, cfg, where, limit, 0, ladder) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = show(ctx, orth_cmd_flag(cmd, "json") ? orth_ladder_json(ctx, ladder) : orth_ladder_text(ctx, ladder));
    orth_mem_free(ctx, ladder);
    return s;
}

/* A copy, whose memory.recompute=auto fits --limit. */
static orth_status limited_config(orth_ctx *ctx, const orth_config *cfg, size_t limit, orth_config *out)
{
    char text[32];
    snprintf(text, sizeof text, "%zu", limit);
    ORTH_TRY(orth_config_copy(ctx, out, cfg));
    if (limit == 0 || cfg->memory_recompute != ORTH_memory_recompute_auto || cfg->memory_recompute_limit > 0)
        return ORTH_OK;
    const orth_status s = orth_config_set(ctx, out, "--limit", "memory.recompute_limit", text);
    if (s != ORTH_OK)
        orth_config_release(ctx, out);
    return s;
}

/* --fit and --ladder: many plans, an answer of their own. */
static orth_status plan_to_fit(orth_ctx *ctx, const orth_cmd *cmd)
{
    orth_place_to_run where;
    size_t limit;
    char *text = NULL;
    ORTH_TRY(check_alone(ctx, cmd, orth_cmd_flag(cmd, "fit") ? "fit" : "ladder"));
    ORTH_TRY(read_limit(ctx, cmd, &limit));
    orth_config cfg;
    ORTH_TRY(limited_config(ctx, &cmd->config, limit, &cfg));
    orth_status s = orth_place_to_run_find(ctx, &where, orth_cmd_flag(cmd, "cluster"));
    if (s != ORTH_OK) {
        orth_config_release(ctx, &cfg);
        return s;
    }
    if (orth_cmd_flag(cmd, "ladder")) {
        s = print_ladder(ctx, cmd, &cfg, &where, limit);
    } else {
        s = orth_fit(ctx, &cfg, &where, orth_cmd_flag(cmd, "fit"), limit, orth_cmd_flag(cmd, "json") != NULL, &text);
        print(ctx, text);
    }
    orth_place_to_run_release(ctx, &where);
    orth_config_release(ctx, &cfg);
    return s;
}

static orth_status plan_scaling(orth_ctx *ctx, const orth_cmd *cmd)
{
    orth_scaling scaling;
    ORTH_TRY(check_alone(ctx, cmd, "scaling"));
    ORTH_TRY(orth_scaling_find(ctx, &cmd->config, orth_cmd_flag(cmd, "cluster"), &scaling));
    return show(ctx, orth_cmd_flag(cmd, "json") ? orth_scaling_json(ctx, &scaling) : orth_scaling_text(ctx, &scaling));
}

/* Devices of a node; 0: there is no cluster, or it has nodes of several kinds. */
static orth_status devices_of_a_node(orth_ctx *ctx, const char *cluster, int64_t *out)
{
    orth_hardware h;
    *out = 0;
    if (!cluster)
        return ORTH_OK;
    ORTH_TRY(orth_hardware_find(ctx, &h, cluster));
    *out = h.mixed || h.has_host ? 0 : (int64_t)h.node_devices;
    orth_hardware_release(ctx, &h);
    return ORTH_OK;
}

static orth_status write_run(orth_ctx *ctx, const orth_config *cfg, const char *path, const char *as, const char *cluster)
{
    orth_tool tool;
    int64_t of_a_node;
    if (!ORTH_CONFIG_IS_SET(cfg, train, steps) && cfg->train_epochs == 0)
        orth_log(ctx, ORTH_LOG_INFO, "plan", "%s: train.steps was not given; the file has the default, %d", path, (int)cfg->train_steps);
    if (as) {
        ORTH_TRY(orth_tool_from_id(ctx, as, &tool));
        ORTH_TRY(devices_of_a_node(ctx, cluster, &of_a_node));
        return orth_export(ctx, cfg, tool, path, of_a_node);
    }
    return orth_export_run(ctx, cfg, path);
}

static bool has_no_choice(const orth_ctx *ctx, const orth_cmd *cmd)
{
    return orth_plan_no_fit(&ctx->error) && cmd->config.memory_recompute == ORTH_memory_recompute_auto && !orth_cmd_flag(cmd, "require-fit");
}

/* That nothing which auto could recompute makes the run fit is an answer. Each change would be a search of its own. */
static orth_status answer_no_choice(orth_ctx *ctx, bool json)
{
    char why[ORTH_MESSAGE_MAX];
    orth_text text = {0};
    orth_json_out j = {ctx, &text};
    snprintf(why, sizeof why, "%s", orth_plan_no_fit(&ctx->error));
    orth_ctx_clear_error(ctx);
    if (!json) {
        printf("does not fit: %s\n\n%s\n", why, not_listed);
        return ORTH_OK;
    }
    orth_json_open(&j, NULL, '{');
    orth_json_bool(&j, "fits", false);
    orth_json_string(&j, "reason", why);
    orth_json_open(&j, "changes", '{');
    orth_json_string(&j, "not_listed", not_listed);
    orth_json_close(&j, '}');
    orth_json_close(&j, '}');
    return orth_json_show(&j, stdout);
}

static orth_status plan_one(orth_ctx *ctx, const orth_cmd *cmd, planning *x)
{
    const bool json = orth_cmd_flag(cmd, "json") != NULL;
    char *shares = NULL, *changes = NULL, *groups = NULL;
    const orth_status made = make(ctx, x, json);
    if (made != ORTH_OK && has_no_choice(ctx, cmd))
        return answer_no_choice(ctx, json);
    ORTH_TRY(made);
    orth_placement_warn_planned(ctx, x->cfg, &x->plan.partition.mesh, x->cluster ? &x->hardware : NULL);
    if (json && x->cluster)
        orth_cluster_warn_products(ctx, &x->plan, &x->hardware);
    x->plan.total.warnings = orth_warnings_stop(ctx, &x->warnings);
    orth_status s = json && !x->plan.total.warnings ? ORTH_ERR_NOMEM : find_shares(ctx, cmd, x);
    if (s == ORTH_OK)
        s = describe_shares(ctx, x, json, &shares);
    if (s == ORTH_OK && json && x->cluster && !x->plan.total.fits)
        s = find_changes(ctx, cmd, x, true, &changes);
    if (s == ORTH_OK && json && x->hardware.mixed) {
        groups = orth_cluster_groups_json(ctx, &x->plan, x->hardware.mixed, &x->on_cluster);
        s = groups ? ORTH_OK : ORTH_ERR_NOMEM;
    }
    x->plan.total.groups = groups; /* these for JSON */
    x->plan.total.shares = shares;
    x->plan.total.changes = changes;
    if (s == ORTH_OK)
        s = print_plan(ctx, cmd, x);
    if (s == ORTH_OK && shares && !json)
        fputs(shares, stdout);
    if (s == ORTH_OK && !json && x->cluster && !x->plan.total.fits)
        s = find_changes(ctx, cmd, x, false, &changes); /* below the plan, which stands there while they are looked for */
    if (!json && changes)
        fputs(changes, stdout);
    else if (s == ORTH_OK && !json && !x->plan.total.fits)
        printf("\n%s\n", not_listed);
    orth_mem_free(ctx, shares);
    orth_mem_free(ctx, changes);
    orth_mem_free(ctx, groups);
    if (s == ORTH_OK && x->detail)
        s = write_page(ctx, cmd, x);
    if (s == ORTH_OK && orth_cmd_flag(cmd, "require-fit"))
        s = orth_plan_require_fit(ctx, &x->plan.total);
    orth_mem_free(ctx, x->shares);
    orth_run_plan_release(ctx, &x->plan);
    return s;
}

/* One run: its plan, or the front of memory and time. */
static orth_status plan_run(orth_ctx *ctx, const orth_cmd *cmd)
{
    planning x = {.cfg = &cmd->config, .cluster = orth_cmd_flag(cmd, "cluster"), .timeline = orth_cmd_flag(cmd, "timeline")};
    orth_step_detail detail;
    if (orth_cmd_flag(cmd, "html"))
        x.detail = &detail;
    if (orth_cmd_flag(cmd, "pareto") && (x.timeline || x.detail || orth_cmd_flag(cmd, "require-fit") || orth_cmd_flag(cmd, "peak")))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "plan: --timeline, --html, --require-fit and --peak are for one choice, --pareto lists many");
    if (orth_cmd_flag(cmd, "json"))
        orth_warnings_keep(ctx, &x.warnings);
    orth_status s = prepare(ctx, &x);
    if (s == ORTH_OK)
        s = orth_cmd_flag(cmd, "pareto") ? plan_pareto(ctx, &x, orth_cmd_flag(cmd, "json") != NULL) : plan_one(ctx, cmd, &x);
    orth_warnings_release(ctx, &x.warnings);
    orth_hardware_release(ctx, &x.hardware);
    return s;
}

static orth_status answer(orth_ctx *ctx, const orth_cmd *cmd)
{
    const bool to_fit = orth_cmd_flag(cmd, "fit") || orth_cmd_flag(cmd, "ladder");
    if (orth_cmd_flag(cmd, "limit") && !to_fit)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "plan: --limit is for --fit and --ladder; the run's own is memory.limit, with --cluster memory.limit_device");
    if (orth_cmd_flag(cmd, "scaling"))
        return plan_scaling(ctx, cmd);
    if (to_fit)
        return plan_to_fit(ctx, cmd);
    return orth_cmd_flag(cmd, "compare") ? compare(ctx, cmd) : plan_run(ctx, cmd);
}

orth_status orth_cmd_plan(orth_ctx *ctx, const orth_cmd *cmd)
{
    const char *out = orth_cmd_flag(cmd, "out"), *as = orth_cmd_flag(cmd, "as");
    if (orth_cmd_flag(cmd, "cases"))
        return plan_cases(ctx, cmd);
    orth_keep_freed_memory();
    if (as && !out)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "plan: --as says in which form --out=FILE is written");
    orth_waiting waiting;
    orth_waiting_on_terminal(ctx, &waiting);
    const orth_status s = answer(ctx, cmd);
    orth_waiting_end(ctx);
    ORTH_TRY(s);
    return out ? write_run(ctx, &cmd->config, out, as, orth_cmd_flag(cmd, "cluster")) : ORTH_OK; /* of a run that can be */
}
