/* help.c -- what --help and `orthant help` print, from the tables alone. */
#include <string.h>

#include "base/text.h"
#include "cli/verbs.h"

#define WIDTH 96

static const char exit_codes[] =
    "Exit codes\n"
    "  0  done                                   5  damaged, foreign or unreadable data\n"
    "  2  usage or configuration                 6  a loss that is not finite; verify: a difference\n"
    "  3  does not fit memory or disk            130, 143  stopped by SIGINT, SIGTERM\n"
    "  4  a rank or the network failed               after saving, or before step 1\n";

char *orth_help_usage(orth_ctx *ctx)
{
    orth_text t = {0};
    orth_text_add(ctx, &t, "Orthant trains language models from a compiled program.\n\n"
                           "Usage: orthant <verb> [RUN.yaml] [key=value ...] [--flag[=value]] [words]\n\nVerbs\n");
    for (int i = 0; i < orth_verb_count(); i++)
        orth_text_addf(ctx, &t, "  %-10s %s\n", orth_verb_get(i)->name, orth_verb_get(i)->summary);
    orth_text_add(ctx, &t, "\n`orthant <verb> --help` explains a verb, `orthant help options` the keys of a run "
                           "file.\nEnvironment: ORTHANT_THREADS (run.threads) and ORTHANT_ISA (run.isa).\n\n");
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

static void add_section(orth_ctx *ctx, orth_text *t, const orth_option_section *section)
{
    size_t n = strlen(section->path);
    orth_text_addf(ctx, t, "%s: ", section->path);
    orth_text_wrap(ctx, t, section->help, (int)n + 2, 6, WIDTH);
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++) {
        const orth_option *o = orth_option_get((orth_option_id)i);
        if (strncmp(o->path, section->path, n) != 0 || o->path[n] != '.')
            continue;
        orth_text_addf(ctx, t, "  %s  (", o->path);
        add_kind(ctx, t, o);
        orth_text_add(ctx, t, ")\n      ");
        orth_text_wrap(ctx, t, o->help, 6, 6, WIDTH);
    }
    orth_text_add(ctx, t, "\n");
}

char *orth_help_options(orth_ctx *ctx, const char *only)
{
    orth_text t = {0};
    bool found = false;
    if (!only)
        orth_text_add(ctx, &t, "Keys of a run file (YAML), also given as key=value on the command line, which "
                               "wins.\n\n");
    for (int i = 0; i < orth_option_num_sections(); i++) {
        const orth_option_section *s = orth_option_section_get(i);
        if (only && strcmp(only, s->path) != 0)
            continue;
        add_section(ctx, &t, s);
        found = true;
    }
    if (found)
        return orth_text_take(ctx, &t);
    orth_mem_free(ctx, t.s);
    const char *names[64];
    int n = ORTH_MIN(64, orth_option_num_sections());
    for (int i = 0; i < n; i++)
        names[i] = orth_option_section_get(i)->path;
    const char *near = orth_nearest(only, names, n);
    ORTH_FAIL(ctx, ORTH_ERR_ARG, "help options: unknown section '%s'%s%s%s", only, near ? "; did you mean '" : "",
              near ? near : "", near ? "'?" : "");
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
        snprintf(name, sizeof name, "--%s%s%s", f->name, *f->metavar ? "=" : "", f->metavar);
        if (strlen(name) > 24)
            orth_text_addf(ctx, t, "  %s\n%27s", name, "");
        else
            orth_text_addf(ctx, t, "  %-24s ", name);
        orth_text_wrap(ctx, t, f->help, 27, 27, WIDTH);
    }
    orth_text_addf(ctx, t, "  %-24s this text\n\n", "--help");
}

static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *p = list; (p = strstr(p, word)) != NULL; p += n)
        if ((p == list || p[-1] == ' ') && (p[n] == ' ' || p[n] == '\0'))
            return true;
    return false;
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
        orth_text_add(ctx, &t, "\nOptions, in the run file or as key=value\n\n");
    for (int i = 0; about && i < orth_option_num_sections(); i++)
        if (has_word(about->sections, orth_option_section_get(i)->path))
            add_section(ctx, &t, orth_option_section_get(i));
    return orth_text_take(ctx, &t);
}
