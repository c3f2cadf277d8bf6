/* help.c -- what --help and `orthant help` print, from the tables alone. */
#include <string.h>

#include "base/text.h"
#include "cli/verbs.h"
#include "model/config.h"
#include "parallel/pipeline/schedule.h"

#define WIDTH 96

static const char exit_codes[] =
    "Exit codes\n"
    "  0  done                                   5  damaged, foreign or unreadable data\n"
    "  2  usage or configuration                 6  a loss that is not finite; verify: a difference\n"
    "  3  does not fit memory or disk           70  a mistake in Orthant\n"
    "  4  a rank or the network failed    130, 143  SIGINT, SIGTERM: after saving, or before step 1\n";

char *orth_help_usage(orth_ctx *ctx)
{
    orth_text t = {0};
    orth_text_add(ctx, &t, "Orthant trains language models from a compiled program.\n\n"
                           "Usage: orthant <verb> [RUN.yaml] [key=value ...] [--flag[=value]] [words]\n\nVerbs\n");
    for (int i = 0; i < orth_verb_count(); i++)
        orth_text_addf(ctx, &t, "  %-10s %s\n", orth_verb_get(i)->name, orth_verb_get(i)->summary);
    orth_text_add(ctx, &t, "\n`orthant <verb> --help` explains a verb, `orthant help options` the keys of a run "
                           "file\n(`orthant help options SECTION`: of one section; `orthant help KEY`: one).\nEnvironment: ORTHANT_THREADS (run.threads) and ORTHANT_ISA (run.isa).\n\n");
    orth_text_add(ctx, &t, exit_codes);
    return orth_text_take(ctx, &t);
}

static const char *type_name(const orth_option *o)
{
    static const char *const names[] = {"N", "X", "true|false", "SIZE", "TEXT", "[TEXT, ...]", "[X, ...]", ""};
    return names[o->type];
}

/* "N sequences, 1 to 100, default 8" */
static void add_kind(orth_ctx *ctx, orth_text *t, const orth_option *o)
{
    if (o->type == ORTH_TYPE_ENUM) {
        for (int i = 0; o->choices[i]; i++)
            orth_text_addf(ctx, t, "%s%s", i ? "|" : "", o->choices[i]);
    } else if (o->type == ORTH_TYPE_STR || o->type == ORTH_TYPE_STRS) {
        orth_text_addf(ctx, t, o->type == ORTH_TYPE_STRS ? "%s or [%s, ...]" : "%s", o->unit, o->unit);
    } else {
        orth_text_addf(ctx, t, "%s%s%s", type_name(o), *o->unit ? " " : "", o->unit);
    }
    if (o->type == ORTH_TYPE_INT || o->type == ORTH_TYPE_REAL || o->type == ORTH_TYPE_REALS) {
        if (o->max >= 1e15)
            orth_text_addf(ctx, t, ", at least %.10g", o->min);
        else
            orth_text_addf(ctx, t, ", %.10g to %.10g", o->min, o->max);
    }
    if (*o->default_text)
        orth_text_addf(ctx, t, ", default %s", o->default_text);
    if (orth_option_decides_numbers((orth_option_id)orth_option_find(o->path)))
        orth_text_add(ctx, t, ", the same on --resume");
}

void orth_help_names(orth_ctx *ctx, orth_text *t, orth_option_id id, const char *between)
{
    const orth_option *o = orth_option_get(id);
    for (int k = 0; o->type == ORTH_TYPE_ENUM && o->choices[k]; k++)
        orth_text_addf(ctx, t, "%s%s", k ? between : "", o->choices[k]);
    for (int k = 0; id == ORTH_OPT_parallel_pipeline && orth_schedule_kind_get(k); k++)
        orth_text_addf(ctx, t, "%s%s", k ? between : "", orth_schedule_kind_get(k)->name);
    for (int k = 0; id == ORTH_OPT_model_preset && orth_model_preset_name(k); k++)
        orth_text_addf(ctx, t, "%s%s", k ? between : "", orth_model_preset_name(k));
}

static void add_option(orth_ctx *ctx, orth_text *t, orth_option_id id)
{
    const orth_option *o = orth_option_get(id);
    orth_text_addf(ctx, t, "  %s  (", o->path);
    add_kind(ctx, t, o);
    orth_text_add(ctx, t, ")\n      ");
    orth_text_wrap(ctx, t, o->help, 6, 6, WIDTH);
    if (id != ORTH_OPT_model_preset)
        return;
    orth_text names = {0};
    orth_help_names(ctx, &names, id, ", ");
    orth_text_add(ctx, t, "      ");
    if (names.s)
        orth_text_wrap(ctx, t, names.s, 6, 6, WIDTH);
    t->failed = t->failed || names.failed;
    orth_mem_free(ctx, names.s);
}

static void add_section(orth_ctx *ctx, orth_text *t, const orth_option_section *section)
{
    size_t n = strlen(section->path);
    orth_text_addf(ctx, t, "%s: ", section->path);
    orth_text_wrap(ctx, t, section->help, (int)n + 2, 6, WIDTH);
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++) {
        const orth_option *o = orth_option_get((orth_option_id)i);
        if (strncmp(o->path, section->path, n) == 0 && o->path[n] == '.')
            add_option(ctx, t, (orth_option_id)i);
    }
    orth_text_add(ctx, t, "\n");
}

char *orth_help_options(orth_ctx *ctx)
{
    orth_text t = {0};
    orth_text_add(ctx, &t, "Keys of a run file (YAML), also given as key=value on the command line, which "
                           "wins.\n\n");
    for (int i = 0; i < orth_option_num_sections(); i++)
        add_section(ctx, &t, orth_option_section_get(i));
    return orth_text_take(ctx, &t);
}

char *orth_help_topic(orth_ctx *ctx, const char *name)
{
    orth_text t = {0};
    const int id = orth_option_find(name);
    if (id >= 0)
        add_option(ctx, &t, (orth_option_id)id);
    const char *names[128];
    int n = 0;
    for (int i = 0; i < ORTH_MIN(ORTH_COUNT(names) / 2, orth_option_num_sections()); i++) {
        names[n++] = orth_option_section_get(i)->path;
        if (strcmp(name, names[n - 1]) == 0)
            add_section(ctx, &t, orth_option_section_get(i));
    }
    if (t.s || t.failed)
        return orth_text_take(ctx, &t);
    for (int i = 0; i < ORTH_MIN(ORTH_COUNT(names) / 2, orth_verb_count()); i++)
        names[n++] = orth_verb_get(i)->name;
    const char *near = orth_nearest(name, names, n);
    if (near && !strchr(name, '.'))
        ORTH_FAIL(ctx, ORTH_ERR_ARG, "help: '%s' is no verb, section or key; did you mean '%s'?", name, near);
    else
        orth_config_fail_unknown(ctx, "help", name);
    return NULL;
}

static void add_flags(orth_ctx *ctx, orth_text *t, const orth_verb *verb)
{
    orth_text_add(ctx, t, "Flags\n");
    for (int i = 0; i < orth_flag_count(); i++) {
        const orth_flag *f = orth_flag_get(i);
        char name[64];
        if (strcmp(f->verb, verb->name) != 0)
            continue;
        snprintf(name, sizeof name, "--%s%s%s", f->name, *f->metavar && *f->metavar != '[' ? "=" : "", f->metavar);
        if (strlen(name) > 24)
            orth_text_addf(ctx, t, "  %s\n%27s", name, "");
        else
            orth_text_addf(ctx, t, "  %-24s ", name);
        orth_text_wrap(ctx, t, f->help, 27, 27, WIDTH);
    }
    orth_text_addf(ctx, t, "  %-24s this text\n\n", "--help");
}

char *orth_help_verb(orth_ctx *ctx, const orth_verb *verb)
{
    orth_text t = {0};
    const orth_about *about = orth_about_find(verb->name);
    orth_text_addf(ctx, &t, "orthant %s: %s\n\nUsage: orthant %s %s%s[key=value ...] [--flag[=value]]\n\n",
                   verb->name, verb->summary, verb->name, verb->words, *verb->words ? " " : "");
    if (about)
        orth_text_wrap(ctx, &t, about->text, 0, 0, WIDTH);
    orth_text_add(ctx, &t, "\n");
    add_flags(ctx, &t, verb);
    if (about) {
        orth_text_add(ctx, &t, "Examples\n");
        for (const char *line = about->examples; *line; line += strcspn(line, "\n") + 1)
            orth_text_addf(ctx, &t, "  %.*s\n", (int)strcspn(line, "\n"), line);
        orth_text_add(ctx, &t, "\n");
    }
    orth_text_add(ctx, &t, exit_codes);
    if (about && *about->sections)
        orth_text_addf(ctx, &t, "\nKeys of the run file, also as key=value: `orthant help options SECTION` and `orthant help KEY` explain them. Sections:\n  %s\n",
                       about->sections);
    return orth_text_take(ctx, &t);
}
