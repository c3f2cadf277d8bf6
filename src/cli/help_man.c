/* help_files.c -- the manual page, from the same tables as --help. */
#include <string.h>

#include "base/text.h"
#include "cli/verbs.h"

/* Roff takes a leading dot or quote as a request, a hyphen as a soft one and a backslash as an escape. */
static void add_roff(orth_ctx *ctx, orth_text *t, const char *s)
{
    for (bool start = true; *s; start = *s == '\n', s++) {
        if (start && (*s == '.' || *s == '\''))
            orth_text_add(ctx, t, "\\&");
        if (*s == '\\' || *s == '-')
            orth_text_addf(ctx, t, *s == '-' ? "\\-" : "\\e");
        else
            orth_text_addf(ctx, t, "%c", *s);
    }
}

static void add_roff_block(orth_ctx *ctx, orth_text *t, char *text)
{
    orth_text_add(ctx, t, ".nf\n");
    if (text)
        add_roff(ctx, t, text);
    else
        t->failed = true; /* the error is in ctx */
    orth_text_add(ctx, t, ".fi\n");
    orth_mem_free(ctx, text);
}

static void add_roff_verb(orth_ctx *ctx, orth_text *t, const orth_verb *v)
{
    const orth_about *about = orth_about_find(v->name);
    orth_text_addf(ctx, t, ".SS orthant %s %s\n", v->name, v->words);
    add_roff(ctx, t, about ? about->text : v->summary);
    orth_text_add(ctx, t, "\n");
    for (int i = 0; i < orth_flag_count(); i++) {
        const orth_flag *f = orth_flag_get(i);
        if (strcmp(f->verb, v->name) != 0)
            continue;
        orth_text_add(ctx, t, ".TP\n.B ");
        add_roff(ctx, t, "--");
        add_roff(ctx, t, f->name);
        orth_text_addf(ctx, t, "%s%s\n", *f->metavar && *f->metavar != '[' ? "=" : "", f->metavar);
        add_roff(ctx, t, f->help);
        orth_text_add(ctx, t, "\n");
    }
    if (about) {
        orth_text_add(ctx, t, ".P\n.RS\n.nf\n");
        add_roff(ctx, t, about->examples);
        orth_text_add(ctx, t, ".fi\n.RE\n");
    }
}

char *orth_help_man(orth_ctx *ctx)
{
    orth_text t = {0};
    orth_text_addf(ctx, &t, ".TH ORTHANT 1 \"\" \"orthant %s\"\n.SH NAME\northant \\- train language models from a "
                            "compiled program\n.SH SYNOPSIS\n.B orthant\n.I verb\n[RUN.yaml] [key=value ...] "
                            "[\\-\\-flag[=value]] [words]\n.SH OVERVIEW\n", ORTH_VERSION);
    add_roff_block(ctx, &t, orth_help_usage(ctx));
    orth_text_add(ctx, &t, ".SH VERBS\n");
    for (int i = 0; i < orth_verb_count(); i++)
        add_roff_verb(ctx, &t, orth_verb_get(i));
    orth_text_add(ctx, &t, ".SH OPTIONS\n");
    add_roff_block(ctx, &t, orth_help_options(ctx));
    return orth_text_take(ctx, &t);
}
