/* help_files.c -- the manual page and the shell completion, from the same tables as --help. */
#include <string.h>

#include "base/text.h"
#include "cli/verbs.h"
#include "model/config.h"
#include "parallel/pipeline/schedule.h"

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
        orth_text_addf(ctx, t, "%s%s\n", *f->metavar ? "=" : "", f->metavar);
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
    add_roff_block(ctx, &t, orth_help_options(ctx, NULL));
    return orth_text_take(ctx, &t);
}

static void add_verb_case(orth_ctx *ctx, orth_text *t, const orth_verb *v)
{
    orth_text_addf(ctx, t, "    %s) flags=\"--help", v->name);
    for (int i = 0; i < orth_flag_count(); i++) {
        const orth_flag *f = orth_flag_get(i);
        if (strcmp(f->verb, v->name) == 0)
            orth_text_addf(ctx, t, " --%s%s", f->name, *f->metavar ? "=" : "");
    }
    orth_text_add(ctx, t, "\" words=\"");
    /* "prepare|inspect ..." are sub-verbs; words in capitals are the user's. */
    const char *w = v->words;
    size_t n = strcspn(w, " ");
    for (size_t i = 0; i < n && w[0] >= 'a' && w[0] <= 'z'; i++)
        orth_text_addf(ctx, t, "%c", w[i] == '|' ? ' ' : w[i]);
    const orth_about *about = orth_about_find(v->name);
    /* Files: where a word is the user's to choose. */
    orth_text_addf(ctx, t, "\" sections=\"%s\" files=%s ;;\n", about ? about->sections : "",
                   *v->words && *v->words != '[' ? "1" : "");
}

/* The values of a key that takes one of a few names, separated by spaces; none: a number, or text that may be a file. */
static void add_values(orth_ctx *ctx, orth_text *t, orth_option_id id)
{
    const orth_option *o = orth_option_get(id);
    if (o->type == ORTH_TYPE_BOOL)
        orth_text_add(ctx, t, "true false");
    for (int k = 0; o->type == ORTH_TYPE_ENUM && o->choices[k]; k++)
        orth_text_addf(ctx, t, "%s%s", k ? " " : "", o->choices[k]);
    for (int k = 0; id == ORTH_OPT_parallel_pipeline && orth_schedule_kind_get(k); k++)
        orth_text_addf(ctx, t, "%s ", orth_schedule_kind_get(k)->name);
    if (id == ORTH_OPT_parallel_pipeline)
        orth_text_add(ctx, t, "file:");
    for (int k = 0; id == ORTH_OPT_model_preset && orth_model_preset_name(k); k++)
        orth_text_addf(ctx, t, "%s%s", k ? " " : "", orth_model_preset_name(k));
}

/* A case for each flag whose metavar lists what it takes ("fp32|bf16|fp16"), or in capitals what the user has to say: nothing
 * is offered but for files and folders. */
static void add_flag_values(orth_ctx *ctx, orth_text *t)
{
    orth_text_add(ctx, t, "  case $verb:$pair in\n");
    for (int i = 0; i < orth_flag_count(); i++) {
        const orth_flag *f = orth_flag_get(i);
        const bool is_list = *f->metavar >= 'a' && *f->metavar <= 'z';
        if (!*f->metavar || strstr(f->metavar, "FILE") || strstr(f->metavar, "DIR"))
            continue;
        orth_text_addf(ctx, t, "    %s:--%s=*) COMPREPLY=($(compgen -W \"", f->verb, f->name);
        for (const char *m = f->metavar; is_list && *m; m++)
            orth_text_addf(ctx, t, "%c", *m == '|' ? ' ' : *m);
        orth_text_add(ctx, t, "\" -- \"$cur\")); return ;;\n");
    }
    orth_text_add(ctx, t, "  esac\n");
}

static void add_key_values(orth_ctx *ctx, orth_text *t)
{
    orth_text_add(ctx, t, "  case $line in\n    *=file:*) cur=${cur#:}; _orthant_files; return ;;\n");
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++) {
        orth_text values = {0};
        add_values(ctx, &values, (orth_option_id)i);
        char *list = orth_text_take(ctx, &values);
        const orth_option *o = orth_option_get((orth_option_id)i);
        if (list && (*list || (o->type != ORTH_TYPE_STR && o->type != ORTH_TYPE_STRS)))
            orth_text_addf(ctx, t, "    %s=*) values=\"%s\" ;;\n", o->path, *list ? list : " ");
        t->failed = t->failed || !list;
        orth_mem_free(ctx, list);
    }
    orth_text_add(ctx, t, "    *=*) _orthant_files; return ;;\n  esac\n"
                          "  if [[ $values ]]; then\n"
                          "    COMPREPLY=($(compgen -W \"$values\" -- \"$cur\"))\n"
                          "    case ${COMPREPLY[0]} in *:) compopt -o nospace ;; esac\n    return\n  fi\n");
}

char *orth_help_completion(orth_ctx *ctx)
{
    orth_text t = {0};
    orth_text_add(ctx, &t, "# bash completion for orthant; made by `orthant help --completion=bash`\n"
                           "_orthant_files()\n{\n  local IFS=$'\\n'\n"
                           "  COMPREPLY=($(compgen -f -- \"$cur\"))\n  compopt -o filenames\n}\n"
                           "_orthant()\n{\n  local cur=$2 line pair verb key flags= words= sections= values= files= verbs=\"");
    for (int i = 0; i < orth_verb_count(); i++)
        orth_text_addf(ctx, &t, "%s%s", i ? " " : "", orth_verb_get(i)->name);
    orth_text_add(ctx, &t, "\"\n  local keys=\"");
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++)
        orth_text_addf(ctx, &t, "%s%s=", i ? " " : "", orth_option_get((orth_option_id)i)->path);
    /* Readline splits words at '=': the value of a key is then the word after it. */
    orth_text_add(ctx, &t, "\"\n  verb=${COMP_WORDS[1]}\n"
                           "  if [[ $COMP_CWORD -eq 1 ]]; then\n"
                           "    COMPREPLY=($(compgen -W \"$verbs --help --version\" -- \"$cur\")); return\n  fi\n"
                           "  line=${COMP_LINE:0:$COMP_POINT}; line=${line##* }\n"
                           "  cur=${cur#=} pair=$line\n"
                           "  [[ $3 != --* || $line == *=* ]] || pair=$3=$line\n");
    add_flag_values(ctx, &t);
    add_key_values(ctx, &t);
    orth_text_add(ctx, &t, "  case $verb in\n");
    for (int i = 0; i < orth_verb_count(); i++)
        add_verb_case(ctx, &t, orth_verb_get(i));
    orth_text_add(ctx, &t, "  esac\n"
                           "  [[ $verb != help ]] || words=\"$verbs options\"\n"
                           "  [[ $COMP_CWORD -eq 2 ]] || words=\n");
    orth_text_add(ctx, &t, "  [[ $verb != help || ${COMP_WORDS[2]} != options || $COMP_CWORD -ne 3 ]] || words=\"");
    for (int i = 0; i < orth_option_num_sections(); i++)
        orth_text_addf(ctx, &t, "%s%s", i ? " " : "", orth_option_section_get(i)->path);
    orth_text_add(ctx, &t, "\"\n"
                           "  for key in $keys; do [[ \" $sections \" != *\" ${key%%.*} \"* ]] || words+=\" $key\"; done\n"
                           "  if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
                           "  else COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                           "    if [[ $files && ${#COMPREPLY[@]} -eq 0 ]]; then _orthant_files\n"
                           "    elif [[ $files ]]; then COMPREPLY+=($(compgen -f -- \"$cur\"))\n    fi\n"
                           "  fi\n  case ${COMPREPLY[0]} in *=) compopt -o nospace ;; esac\n}\n"
                           "complete -F _orthant orthant\n");
    return orth_text_take(ctx, &t);
}
