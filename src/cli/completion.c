/* completion.c -- completion of verbs, flags, keys and their values for bash, zsh and fish, from the tables of --help. */
#include <string.h>

#include "cli/verbs.h"

/* ---- bash ---- */

static void add_verb_case(orth_ctx *ctx, orth_text *t, const orth_verb *v)
{
    orth_text_addf(ctx, t, "    %s) flags=\"--help", v->name);
    for (int i = 0; i < orth_flag_count(); i++) {
        const orth_flag *f = orth_flag_get(i);
        if (strcmp(f->verb, v->name) == 0)
            orth_text_addf(ctx, t, " --%s%s", f->name, *f->metavar && *f->metavar != '[' ? "=" : "");
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
    orth_help_names(ctx, t, id, " ");
    if (orth_option_get(id)->type == ORTH_TYPE_BOOL)
        orth_text_add(ctx, t, "true false");
    if (id == ORTH_OPT_parallel_pipeline)
        orth_text_add(ctx, t, " file:");
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

static char *bash_completion(orth_ctx *ctx)
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
                           "  [[ $verb != help ]] || words=\"$verbs options");
    for (int i = 0; i < orth_option_num_sections(); i++)
        orth_text_addf(ctx, &t, " %s", orth_option_section_get(i)->path);
    orth_text_add(ctx, &t, " ${keys//=/}\"\n"
                          "  [[ $COMP_CWORD -eq 2 || $verb == help ]] || words=\n"
                          "  for key in $keys; do [[ \" $sections \" != *\" ${key%%.*} \"* ]] || words+=\" $key\"; done\n"
                           "  if [[ $cur == -* ]]; then COMPREPLY=($(compgen -W \"$flags\" -- \"$cur\"))\n"
                           "  else COMPREPLY=($(compgen -W \"$words\" -- \"$cur\"))\n"
                           "    if [[ $files && ${#COMPREPLY[@]} -eq 0 ]]; then _orthant_files\n"
                           "    elif [[ $files ]]; then COMPREPLY+=($(compgen -f -- \"$cur\"))\n    fi\n"
                           "  fi\n  case ${COMPREPLY[0]} in *=) compopt -o nospace ;; esac\n}\n"
                           "complete -F _orthant orthant\n");
    return orth_text_take(ctx, &t);
}

/* ---- zsh ---- */

/* `s` between single quotes of a shell. */
static void add_quoted(orth_ctx *ctx, orth_text *t, const char *s, const char *quote)
{
    orth_text_add(ctx, t, "'");
    for (; *s; s++)
        orth_text_addf(ctx, t, *s == '\'' ? "%s" : "%.1s", *s == '\'' ? quote : s);
    orth_text_add(ctx, t, "'");
}

/* NAME) flags=(...) words=(...) sections=(...) files=1 ;; */
static void add_zsh_verb(orth_ctx *ctx, orth_text *t, const orth_verb *v)
{
    const orth_about *about = orth_about_find(v->name);
    orth_text_addf(ctx, t, "    %s) flags=(--help", v->name);
    for (int i = 0; i < orth_flag_count(); i++) {
        const orth_flag *f = orth_flag_get(i);
        if (strcmp(f->verb, v->name) == 0)
            orth_text_addf(ctx, t, " --%s%s", f->name, *f->metavar && *f->metavar != '[' ? "=" : "");
    }
    orth_text_add(ctx, t, ") words_=(");
    const size_t n = strcspn(v->words, " ");
    for (size_t i = 0; i < n && v->words[0] >= 'a' && v->words[0] <= 'z'; i++)
        orth_text_addf(ctx, t, "%c", v->words[i] == '|' ? ' ' : v->words[i]);
    orth_text_addf(ctx, t, ") sections=(%s) files=%d ;;\n", about ? about->sections : "", *v->words && *v->words != '[');
}

static void add_zsh_values(orth_ctx *ctx, orth_text *t)
{
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++) {
        orth_text values = {0};
        add_values(ctx, &values, (orth_option_id)i);
        if (values.s)
            orth_text_addf(ctx, t, "    %s=*) compset -P '*='; compadd -- %s; return ;;\n", orth_option_get((orth_option_id)i)->path,
                           values.s);
        t->failed = t->failed || values.failed;
        orth_mem_free(ctx, values.s);
    }
    for (int i = 0; i < orth_flag_count(); i++) {
        const orth_flag *f = orth_flag_get(i);
        if (*f->metavar < 'a' || *f->metavar > 'z')
            continue;
        orth_text_addf(ctx, t, "    --%s=*) compset -P '*='; compadd -- ", f->name);
        for (const char *m = f->metavar; *m; m++)
            orth_text_addf(ctx, t, "%c", *m == '|' ? ' ' : *m);
        orth_text_add(ctx, t, "; return ;;\n");
    }
}

static char *zsh_completion(orth_ctx *ctx)
{
    orth_text t = {0};
    orth_text_add(ctx, &t, "#compdef orthant\n# zsh completion for orthant; made by `orthant help --completion=zsh`\n"
                           "_orthant()\n{\n  local verb=$words[2] cur=$words[CURRENT] key files=0\n"
                           "  local -a verbs flags words_ sections keys all\n  verbs=(");
    for (int i = 0; i < orth_verb_count(); i++)
        orth_text_addf(ctx, &t, "%s%s", i ? " " : "", orth_verb_get(i)->name);
    orth_text_add(ctx, &t, ")\n  all=(");
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++)
        orth_text_addf(ctx, &t, "%s%s", i ? " " : "", orth_option_get((orth_option_id)i)->path);
    orth_text_add(ctx, &t, ")\n  if (( CURRENT == 2 )); then compadd -- $verbs --help --version; return; fi\n"
                           "  case $cur in\n");
    add_zsh_values(ctx, &t);
    orth_text_add(ctx, &t, "    *=*) compset -P '*='; _files; return ;;\n  esac\n  case $verb in\n");
    for (int i = 0; i < orth_verb_count(); i++)
        add_zsh_verb(ctx, &t, orth_verb_get(i));
    orth_text_add(ctx, &t, "  esac\n  [[ $verb != help ]] || words_=($verbs options");
    for (int i = 0; i < orth_option_num_sections(); i++)
        orth_text_addf(ctx, &t, " %s", orth_option_section_get(i)->path);
    orth_text_add(ctx, &t, " $all)\n  (( CURRENT == 3 )) || words_=()\n"
                           "  for key in $all; do (( $sections[(Ie)${key%%.*}] )) && keys+=($key=); done\n"
                           "  if [[ $cur == -* ]]; then compadd -S '' -- $flags; return; fi\n"
                           "  compadd -- $words_\n  compadd -S '' -- $keys\n  (( files )) && _files\n  return 0\n}\n"
                           "compdef _orthant orthant 2>/dev/null\n");
    return orth_text_take(ctx, &t);
}

/* ---- fish ---- */

static const char *first_sentence(const char *help, char out[80])
{
    size_t n = strcspn(help, ";:(,");
    while (n > 0 && help[n - 1] == ' ')
        n--;
    snprintf(out, 80, "%.*s", (int)ORTH_MIN(n, 79), help);
    return out;
}

static void add_fish_flag(orth_ctx *ctx, orth_text *t, const orth_flag *f)
{
    orth_text_addf(ctx, t, "complete -c orthant -n '__fish_seen_subcommand_from %s' -l %s", f->verb, f->name);
    if (*f->metavar >= 'a' && *f->metavar <= 'z') {
        orth_text_add(ctx, t, " -x -a '");
        for (const char *m = f->metavar; *m; m++)
            orth_text_addf(ctx, t, "%c", *m == '|' ? ' ' : *m);
        orth_text_add(ctx, t, "'");
    } else if (*f->metavar && *f->metavar != '[') {
        orth_text_add(ctx, t, strstr(f->metavar, "FILE") || strstr(f->metavar, "DIR") ? " -r -F" : " -x");
    }
    char text[80];
    orth_text_add(ctx, t, " -d ");
    add_quoted(ctx, t, first_sentence(f->help, text), "\\'");
    orth_text_add(ctx, t, "\n");
}

/* The key, and each of its values where it takes names, for the verbs that read its section. */
static void add_fish_key(orth_ctx *ctx, orth_text *t, orth_option_id id)
{
    const orth_option *o = orth_option_get(id);
    char section[64], text[80];
    orth_text values = {0};
    snprintf(section, sizeof section, "%.*s", (int)strcspn(o->path, "."), o->path);
    orth_text_add(ctx, t, "complete -c orthant -n '__fish_seen_subcommand_from");
    for (int i = 0; i < orth_verb_count(); i++) {
        const orth_about *about = orth_about_find(orth_verb_get(i)->name);
        if (about && orth_about_reads(about, section))
            orth_text_addf(ctx, t, " %s", about->verb);
    }
    orth_text_addf(ctx, t, "' -a '%s=", o->path);
    add_values(ctx, &values, id);
    for (const char *v = values.s; v && *v; v += strcspn(v, " ") + (v[strcspn(v, " ")] != '\0'))
        orth_text_addf(ctx, t, " %s=%.*s", o->path, (int)strcspn(v, " "), v);
    t->failed = t->failed || values.failed;
    orth_mem_free(ctx, values.s);
    orth_text_add(ctx, t, "' -d ");
    add_quoted(ctx, t, first_sentence(o->help, text), "\\'");
    orth_text_add(ctx, t, "\n");
}

static void add_fish_verb(orth_ctx *ctx, orth_text *t, const orth_verb *v)
{
    orth_text_addf(ctx, t, "complete -c orthant -f -n __fish_use_subcommand -a %s -d ", v->name);
    add_quoted(ctx, t, v->summary, "\\'");
    orth_text_addf(ctx, t, "\ncomplete -c orthant -n '__fish_seen_subcommand_from %s' -l help -d 'explain this verb'\n", v->name);
    if (v->words[0] >= 'a' && v->words[0] <= 'z') {
        orth_text_addf(ctx, t, "complete -c orthant -n '__fish_seen_subcommand_from %s' -a '", v->name);
        for (const char *w = v->words; *w && *w != ' '; w++)
            orth_text_addf(ctx, t, "%c", *w == '|' ? ' ' : *w);
        orth_text_add(ctx, t, "'\n");
    }
}

static char *fish_completion(orth_ctx *ctx)
{
    orth_text t = {0};
    orth_text_add(ctx, &t, "# fish completion for orthant; made by `orthant help --completion=fish`\n");
    for (int i = 0; i < orth_verb_count(); i++)
        add_fish_verb(ctx, &t, orth_verb_get(i));
    for (int i = 0; i < orth_flag_count(); i++)
        add_fish_flag(ctx, &t, orth_flag_get(i));
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++)
        add_fish_key(ctx, &t, (orth_option_id)i);
    orth_text_add(ctx, &t, "complete -c orthant -f -n '__fish_seen_subcommand_from help' -a 'options");
    for (int i = 0; i < orth_verb_count(); i++)
        orth_text_addf(ctx, &t, " %s", orth_verb_get(i)->name);
    for (int i = 0; i < orth_option_num_sections(); i++)
        orth_text_addf(ctx, &t, " %s", orth_option_section_get(i)->path);
    orth_text_add(ctx, &t, "'\n");
    return orth_text_take(ctx, &t);
}

char *orth_help_completion(orth_ctx *ctx, const char *shell)
{
    if (strcmp(shell, "bash") == 0)
        return bash_completion(ctx);
    if (strcmp(shell, "zsh") == 0)
        return zsh_completion(ctx);
    if (strcmp(shell, "fish") == 0)
        return fish_completion(ctx);
    ORTH_FAIL(ctx, ORTH_ERR_ARG, "help: --completion=%s: must be one of bash, zsh, fish", shell);
    return NULL;
}
