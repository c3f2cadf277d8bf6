/* args.c -- the command line: `orthant <verb> [RUN.yaml] [key=value ...] [--flag[=value]] [words]`. */
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/machine.h"
#include "base/pool.h"
#include "cli/verbs.h"
#include "plan/hardware.h"
#include "tools/hf_model.h"
#include "tools/import.h"
#include "train/run.h"
#include "train/setup.h"

#define COMMAND_LINE "command line" /* the place of what it says */

const char *orth_cmd_flag(const orth_cmd *cmd, const char *name)
{
    const orth_args *args = cmd->flags;
    for (int i = 0; i < args->num_flags; i++) /* the same value each time: see check_repeated */
        if (strcmp(args->flag[i].name, name) == 0)
            return args->flag[i].value;
    return NULL;
}

/* Whether the value of a flag names this file: as it stands, with a number of devices behind it (mine.yaml-64), or by its folder. */
static bool names_file(const char *value, const char *path)
{
    char other[1024];
    const char *dash = strrchr(value, '-');
    if (orth_path_is_same(path, value))
        return true;
    snprintf(other, sizeof other, "%.*s", dash ? (int)(dash - value) : 0, value);
    if (dash && dash[1] && strspn(dash + 1, "0123456789") == strlen(dash + 1) && orth_path_is_same(path, other))
        return true;
    snprintf(other, sizeof other, "%s/config.json", value);
    return orth_path_is_same(path, other);
}

/* A word names the file, or a folder of text that it lies in. The first of some verbs is none of a file. */
static const char *word_that_reads(const orth_cmd *cmd, const char *path, const char *folder)
{
    const orth_args *args = cmd->flags;
    const bool is_text = strchr(args->verb->words, '|') != NULL;
    for (int i = is_text; i < cmd->num_words; i++)
        if (orth_path_is_same(path, cmd->words[i]) || (is_text && orth_path_is_same(folder, cmd->words[i])))
            return cmd->words[i];
    return NULL;
}

/* Whether it lies in a checkpoint, or is one of those that a run keeps in its folder. */
static orth_status is_kept_by_run(orth_ctx *ctx, const char *path, const char *folder, bool *out)
{
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    bool run = false;
    ORTH_TRY(orth_path_holds(ctx, folder, "state.json", out));
    ORTH_TRY(orth_path_holds(ctx, folder, "plan.json", &run));
    for (int i = 0; run && !*out && orth_run_file(i); i++)
        *out = strcmp(name, orth_run_file(i)) == 0;
    return ORTH_OK;
}

/* The file `out` of the flag `name`. */
static orth_status check_written(orth_ctx *ctx, const orth_cmd *cmd, const char *name, const char *out)
{
    const orth_args *args = cmd->flags;
    if (orth_path_is_device(out))
        return ORTH_OK;
    if (cmd->run_file && orth_path_is_same(out, cmd->run_file))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--%s=%s: is the run file that is read, and would be overwritten", name, ORTH_SHOWN(out));
    if (cmd->config.run_hardware[0] && orth_path_is_same(out, cmd->config.run_hardware))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--%s=%s: is the file of run.hardware, and would be overwritten", name, ORTH_SHOWN(out));
    for (int i = 0; i < args->num_flags; i++)
        if (strcmp(args->flag[i].name, name) != 0 && args->flag[i].value && names_file(args->flag[i].value, out))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--%s=%s: is the file of --%s, and would be overwritten", name, ORTH_SHOWN(out), args->flag[i].name);
    if (!orth_path_exists(out) || orth_path_is_dir(out) || strcmp(orth_flag_find(cmd->verb, name)->metavar, "DIR") == 0) /* who writes a folder looks at it */
        return ORTH_OK;
    const char *slash = strrchr(out, '/');
    char folder[1024] = ".";
    bool kept = false;
    if (slash)
        snprintf(folder, sizeof folder, "%.*s", (int)ORTH_MAX(slash - out, 1), out);
    const char *word = word_that_reads(cmd, out, folder);
    if (word)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--%s=%s: is read, by the name of %s, and would be overwritten", name, ORTH_SHOWN(out), ORTH_SHOWN(word));
    ORTH_TRY(is_kept_by_run(ctx, out, folder, &kept));
    if (kept)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--%s=%s: is a file that a run keeps, and would be overwritten", name, ORTH_SHOWN(out));
    return ORTH_OK;
}

orth_status orth_cmd_check_out(orth_ctx *ctx, const orth_cmd *cmd)
{
    static const char *const written[] = {"out", "html", "timeline", "svg", "csv"};
    for (int i = 0; i < ORTH_COUNT(written); i++)
        if (orth_cmd_flag(cmd, written[i]))
            ORTH_TRY(check_written(ctx, cmd, written[i], orth_cmd_flag(cmd, written[i])));
    return ORTH_OK;
}

static orth_status fail_verb(orth_ctx *ctx, const char *word)
{
    const char *names[64];
    int n = ORTH_MIN(orth_verb_count(), ORTH_COUNT(names));
    for (int i = 0; i < n; i++)
        names[i] = orth_verb_get(i)->name;
    const char *near = orth_nearest(word, names, n);
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "unknown verb '%s'; %s%s%s", word, near ? "did you mean '" : "",
                     near ? near : "`orthant help` lists the verbs", near ? "'?" : "");
}

static bool takes_run_file(const orth_verb *v)
{
    return strstr(v->words, ".yaml") || strstr(v->words, "DATA"); /* init writes one */
}

static orth_status fail_flag(orth_ctx *ctx, const orth_verb *v, const char *name)
{
    const char *verb = v->name, *names[64] = {"help"};
    int n = 1;
    for (int i = 0; i < orth_flag_count() && n < ORTH_COUNT(names); i++)
        if (strcmp(orth_flag_get(i)->verb, verb) == 0)
            names[n++] = orth_flag_get(i)->name;
    char key[64];
    snprintf(key, sizeof key, "%s", name);
    for (char *c = key; (c = strchr(c, '-')) != NULL;)
        *c = '_';
    const char *near = orth_nearest(name, names, n), *setting = NULL;
    if (takes_run_file(v)) /* settings with dashes, as other programs take them */
        setting = orth_config_meaning(key);
    if (strcmp(name, names[0]) == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: --%s takes no value", verb, name);
    if (setting)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: unknown flag '--%s'; a setting is written KEY=VALUE without dashes, and this one is %s", verb,
                         name, setting);
    if (near)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: unknown flag '--%s'; did you mean '--%s'?", verb, name, near);
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: unknown flag '--%s'; `orthant %s --help` lists its flags", verb,
                     name, verb);
}

/* Whether the value is the name of a file or folder, or the name of what a file describes. */
static bool names_path(const orth_flag *f)
{
    return strstr(f->metavar, "FILE") || strstr(f->metavar, "DIR") || strstr(f->metavar, ".yaml");
}

/* No flag takes several values: of two, one would be left out without a word. A script may well give the same again. */
static orth_status check_repeated(orth_ctx *ctx, const orth_args *args, const char *name, const char *value)
{
    for (int i = 0; i < args->num_flags; i++)
        if (strcmp(args->flag[i].name, name) == 0 && strcmp(args->flag[i].value, value) != 0)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: --%s is given twice, with '%s' and with '%s': it takes one value", args->verb->name, name,
                             args->flag[i].value, value);
    return ORTH_OK;
}

/* --name, --name=value, --name value. Sets *used to the number of further words it took. */
static orth_status take_flag(orth_ctx *ctx, orth_args *args, const char *word, const char *next, int *used)
{
    char name[64];
    const char *verb = args->verb->name, *equals = strchr(word, '=');
    snprintf(name, sizeof name, "%.*s", (int)(equals ? equals - word : (long)strlen(word)) - 2, word + 2);
    *used = 0;
    const orth_flag *f = orth_flag_find(verb, name);
    if (!f)
        return fail_flag(ctx, args->verb, name);
    if (args->num_flags == ORTH_FLAGS_MAX)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: more than %d flags", verb, ORTH_FLAGS_MAX);
    const char *value = equals ? equals + 1 : "";
    if (!*f->metavar && equals)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: --%s takes no value", verb, name);
    if (*f->metavar && *f->metavar != '[' && !equals) {
        if (!next)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: --%s needs a value: --%s=%s", verb, name, name, f->metavar);
        value = next;
        *used = 1;
    }
    if (!*value && (equals || *used) && names_path(f))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: --%s= is empty: %s is needed", verb, name, f->metavar);
    ORTH_TRY(check_repeated(ctx, args, f->name, value));
    args->flag[args->num_flags].name = f->name;
    args->flag[args->num_flags++].value = value;
    return ORTH_OK;
}

/* Length of the key of a key=value word; 0 for another word (a path with a slash, text). */
static size_t key_length(const char *word)
{
    size_t n = strspn(word, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.");
    return word[n] == '=' ? n : 0;
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

/* The first word of a verb on runs is its run file; so is a word ending in .yaml for the others. */
static bool is_run_file(const orth_args *args, const char *word)
{
    if (args->cmd.run_file)
        return false;
    return strcmp(args->verb->words, "RUN.yaml") == 0 || ends_with(word, ".yaml") || ends_with(word, ".yml");
}

/* The verb's flag for files that end as this word does: --svg for out.svg. NULL: none. */
static const orth_flag *flag_of_ending(const orth_args *args, const char *word)
{
    const char *dot = strrchr(word, '.');
    const orth_flag *f = dot ? orth_flag_find(args->verb->name, dot + 1) : NULL;
    return f && names_path(f) ? f : NULL;
}

static orth_status fail_word(orth_ctx *ctx, const orth_args *args, const char *word)
{
    const orth_flag *f = flag_of_ending(args, word);
    if (f)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: unexpected word '%s'; did you mean --%s=%s?", args->cmd.verb, word, f->name, word);
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: unexpected word '%s'; options are given as key=value", args->cmd.verb, word);
}

static orth_status take_word(orth_ctx *ctx, orth_args *args, const char *word)
{
    orth_cmd *cmd = &args->cmd;
    if (is_run_file(args, word)) {
        cmd->run_file = word;
        return ORTH_OK;
    }
    if (!*args->verb->words || strcmp(args->verb->words, "RUN.yaml") == 0)
        return fail_word(ctx, args, word);
    args->words[cmd->num_words++] = word;
    return ORTH_OK;
}

/* The help of a flag that only some words of its verb take begins with them: "encode, decode: ...". */
static bool flag_is_of_word(const orth_flag *f, const orth_verb *verb, const char *word)
{
    const char *h = f->help;
    bool listed = false;
    for (;;) {
        const size_t n = strcspn(h, " ,:");
        const char *at = strstr(verb->words, "|") ? verb->words : "";
        while (*at && !(strncmp(at, h, n) == 0 && strchr("| ", at[n])))
            at += strcspn(at, "| ") + (at[strcspn(at, "| ")] != '\0');
        if (!*at || n == 0)
            return true; /* it begins with other words: any may take it */
        listed = listed || (strlen(word) == n && strncmp(word, h, n) == 0);
        if (h[n] == ':')
            return listed;
        h += n + strspn(h + n, " ,");
    }
}

static orth_status check_flags_of_word(orth_ctx *ctx, const orth_args *args)
{
    const char *verb = args->cmd.verb, *word = args->cmd.num_words > 0 ? args->words[0] : NULL;
    for (int i = 0; i < args->num_flags && word; i++) {
        const orth_flag *f = orth_flag_find(verb, args->flag[i].name);
        if (!flag_is_of_word(f, args->verb, word))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s %s: --%s is not for it but for `%s %.*s`", verb, word, f->name, verb,
                             (int)strcspn(f->help, ":"), f->help);
    }
    return ORTH_OK;
}

/* With --compare: KEY=[A, B, ...] of a key that takes one value. */
static bool is_compared(const orth_cmd *cmd, const char *word)
{
    char key[128];
    const size_t n = key_length(word);
    if (!orth_cmd_flag(cmd, "compare") || word[n + 1] != '[')
        return false;
    snprintf(key, sizeof key, "%.*s", (int)n, word);
    const int id = orth_option_find(key);
    return id < 0 || (orth_option_get((orth_option_id)id)->type != ORTH_TYPE_STRS && orth_option_get((orth_option_id)id)->type != ORTH_TYPE_REALS);
}

const char *orth_cmd_compared(const orth_cmd *cmd, int i)
{
    const orth_args *args = cmd->flags;
    for (int k = 0; k < args->num_settings; k++)
        if (is_compared(cmd, args->settings[k]) && i-- == 0)
            return args->settings[k];
    return NULL;
}

static orth_status set_from_word(orth_ctx *ctx, orth_config *cfg, const char *word)
{
    char key[128];
    size_t n = key_length(word);
    snprintf(key, sizeof key, "%.*s", (int)n, word);
    return orth_config_set(ctx, cfg, COMMAND_LINE, key, word + n + 1);
}

/* The environment is read here and nowhere else. */
static orth_status set_from_environment(orth_ctx *ctx, orth_config *cfg)
{
    static const struct { const char *name, *path; } variables[] = {
        {"ORTHANT_THREADS", "run.threads"}, {"ORTHANT_ISA", "run.isa"}};
    for (int i = 0; i < ORTH_COUNT(variables); i++) {
        const char *value = getenv(variables[i].name);
        char place[64];
        snprintf(place, sizeof place, "environment: %s", variables[i].name);
        if (value && *value)
            ORTH_TRY(orth_config_set(ctx, cfg, place, variables[i].path, value));
    }
    return ORTH_OK;
}

/* --model of plan and search: a preset, or a config.json of Hugging Face. */
static orth_status set_model(orth_ctx *ctx, orth_config *cfg, const char *model)
{
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++)
        if (cfg->place[i] && strncmp(orth_option_get((orth_option_id)i)->path, "model.", 6) == 0)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s: the run file has a model, so that --model=%s cannot be meant", cfg->place[i],
                             orth_option_get((orth_option_id)i)->path, model);
    if (orth_path_exists(model))
        return orth_as_configuration(ctx, orth_hf_model_set(ctx, cfg, model));
    return orth_config_set(ctx, cfg, "--model", "model.preset", model);
}

/* Whether a key is of a section that the verb reads. Those that take a run file take all of it. */
static bool reads_key(const orth_args *args, const char *word)
{
    const orth_about *about = orth_about_find(args->verb->name);
    char section[64];
    snprintf(section, sizeof section, "%.*s", (int)strcspn(word, ".="), word);
    return !about || takes_run_file(args->verb) || strcmp(args->verb->name, "bench") == 0 || !orth_option_is_section(section) ||
           orth_about_reads(about, section);
}

static orth_status set_from_words(orth_ctx *ctx, const orth_cmd *cmd, orth_config *cfg)
{
    const orth_args *args = cmd->flags;
    for (int i = 0; i < args->num_settings; i++) {
        const char *word = args->settings[i];
        if (is_compared(cmd, word))
            continue;
        ORTH_TRY(set_from_word(ctx, cfg, word)); /* which knows better what an unknown key means */
        if (!reads_key(args, word))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "command line: %.*s: `orthant %s` reads no such key", (int)key_length(word), word, args->verb->name);
    }
    return ORTH_OK;
}

/* The keys of the command line come first: what follows from several keys of the other program may follow from these, too. */
static orth_status import_from(orth_ctx *ctx, const orth_cmd *cmd, orth_config *cfg, orth_tool tool)
{
    const char *source = orth_cmd_flag(cmd, orth_tool_id(tool)), *cluster = orth_cmd_flag(cmd, "cluster");
    orth_hardware h = {.num_devices = 0};
    if (!source)
        return ORTH_OK;
    ORTH_TRY(set_from_words(ctx, cmd, cfg));
    if (cluster)
        ORTH_TRY(orth_hardware_find(ctx, &h, cluster));
    const int64_t num_devices = h.num_devices;
    orth_hardware_release(ctx, &h);
    return orth_as_configuration(ctx, orth_import(ctx, cfg, tool, source, num_devices));
}

/* On described devices a limit of all ranks' memory together says nothing. In a run file it is one of the machine that trains, and stays there. */
static orth_status use_devices(orth_ctx *ctx, const orth_cmd *cmd, orth_config *cfg)
{
    const char *cluster = orth_cmd_flag(cmd, "cluster"), *place = cfg->place[ORTH_OPT_memory_limit];
    orth_hardware h;
    if (!cluster)
        return ORTH_OK;
    if (orth_hardware_find(ctx, &h, cluster) != ORTH_OK) { /* the verb says why, which knows --gpus, too */
        orth_ctx_clear_error(ctx);
        return ORTH_OK;
    }
    cfg->on_devices = !h.has_host;
    orth_hardware_release(ctx, &h);
    if (!cfg->on_devices || cfg->memory_limit == 0)
        return ORTH_OK;
    if (strcmp(place, COMMAND_LINE) == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: memory.limit is one of all ranks together on one machine, but with --cluster each rank has a device: "
                         "memory.limit_device limits each rank's memory there", place);
    orth_log(ctx, ORTH_LOG_WARN, cmd->verb, "%s: memory.limit limits nothing with --cluster, where each rank has a device: memory.limit_device would", place);
    return ORTH_OK;
}

orth_status orth_cmd_load(orth_ctx *ctx, const orth_cmd *cmd, orth_config *cfg, const char *run_file)
{
    ORTH_TRY(orth_config_init(ctx, cfg));
    if (run_file && !orth_path_exists(run_file))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: there is no such run file", run_file);
    if (run_file)
        ORTH_TRY(orth_as_configuration(ctx, orth_config_load(ctx, cfg, run_file)));
    if (orth_cmd_flag(cmd, "model"))
        ORTH_TRY(set_model(ctx, cfg, orth_cmd_flag(cmd, "model")));
    for (int t = 0; t < ORTH_NUM_TOOLS; t++)
        ORTH_TRY(import_from(ctx, cmd, cfg, (orth_tool)t));
    ORTH_TRY(set_from_environment(ctx, cfg));
    ORTH_TRY(set_from_words(ctx, cmd, cfg));
    ORTH_TRY(use_devices(ctx, cmd, cfg));
    /* A search holds the rules against each of its layouts, whose keys are not these; init against what it has chosen; a model's run has the others. */
    static const char *const later[] = {"search", "init", "eval", "generate"};
    for (int i = 0; i < ORTH_COUNT(later); i++)
        if (strcmp(cmd->verb, later[i]) == 0)
            return ORTH_OK;
    ORTH_TRY(orth_config_check(ctx, cfg));
    /* What is compared may need it; doctor looks at the folder of offload whatever is offloaded. */
    return orth_cmd_flag(cmd, "compare") || strcmp(cmd->verb, "doctor") == 0 ? ORTH_OK : orth_config_tell_idle(ctx, cfg);
}

orth_status orth_cmd_use_machine(orth_ctx *ctx, const orth_config *c)
{
    int threads = c->run_threads ? (int)c->run_threads : orth_machine_cores();
    ctx->isa = orth_isa_auto();
    if (c->run_isa != ORTH_run_isa_auto)
        ORTH_TRY(orth_isa_from_name(ctx, orth_option_choice(ORTH_OPT_run_isa, (int)c->run_isa), &ctx->isa));
    ORTH_TRY(orth_setup_products(ctx, c));
    return orth_ctx_use_threads(ctx, threads);
}

static orth_status take_all(orth_ctx *ctx, orth_args *args, int argc, char **argv)
{
    bool flags_end = false;
    for (int i = 2, used; i < argc; i += 1 + used) {
        const char *word = argv[i];
        used = 0;
        if (!flags_end && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
            args->help = true;
            return ORTH_OK;
        }
        if (!flags_end && strcmp(word, "--") == 0)
            flags_end = true;
        else if (!flags_end && strncmp(word, "--", 2) == 0)
            ORTH_TRY(take_flag(ctx, args, word, i + 1 < argc ? argv[i + 1] : NULL, &used));
        else if (flags_end || key_length(word) == 0)
            ORTH_TRY(take_word(ctx, args, word));
        else
            args->settings[args->num_settings++] = word;
    }
    return ORTH_OK;
}

orth_status orth_args_parse(orth_ctx *ctx, orth_args *args, int argc, char **argv)
{
    orth_cmd *cmd = &args->cmd;
    memset(args, 0, sizeof *args);
    if (argc < 2)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "no verb given");
    args->verb = orth_verb_find(argv[1]);
    if (!args->verb)
        return fail_verb(ctx, argv[1]);
    args->words = ORTH_NEW_ARRAY(ctx, const char *, 2 * argc);
    if (!args->words)
        return ORTH_ERR_NOMEM;
    args->settings = args->words + argc;
    cmd->verb = args->verb->name;
    cmd->words = args->words;
    cmd->flags = args;
    ORTH_TRY(take_all(ctx, args, argc, argv));
    if (args->help)
        return ORTH_OK;
    ORTH_TRY(check_flags_of_word(ctx, args));
    return orth_cmd_load(ctx, cmd, &cmd->config, cmd->run_file);
}

void orth_args_release(orth_ctx *ctx, orth_args *args)
{
    orth_config_release(ctx, &args->cmd.config);
    orth_mem_free(ctx, args->words);
}
