/* import_words.c -- arguments of a command line, or of a script that holds them, as pairs of keys and values.
 *
 * What a shell makes of a script is not known without it. Read are: words between white space and parentheses of arrays, quotes, lines that go on
 * after a backslash, comments, NAME=value, NAME=(values), $NAME, ${NAME}, ${NAME[@]} or ${NAME:-default} as a whole word, and NAME="--key value",
 * whose quotes count as white space. Arguments in an array or in quotes are read where they are set, so that the name stands for nothing behind a
 * key. Pipes, redirections and other operators end the values of a key; the file of a redirection is no word. $(command) is not run. */
#include "tools/import_impl.h"

#include <ctype.h>
#include <string.h>

#include "base/files.h"

#define MAX_BYTES ((size_t)1 << 20)
#define MAX_WORD 1024
#define MAX_ARRAY ((size_t)1 << 16)

/* A name that the script sets. */
typedef struct variable {
    const char *name;
    const char *value;         /* "": nothing, or arguments, which are read where they are set */
    const struct variable *older;
} variable;

typedef struct {
    orth_importer *x;
    orth_arena arena;          /* of the variables */
    const variable *variables; /* the newest first */
    const char *at;
    const char *closing;       /* of the quotes that count as white space; NULL: none were open */
    int line;
    char word[MAX_WORD], fallback[MAX_WORD];
    const char *begin;         /* of the word in the text */
    int word_line;             /* where the word begins */
    bool is_apart;             /* an operator stands between the word and the one before */
} words;

static bool is_space(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '(' || c == ')';
}

static bool is_quote(char c)
{
    return c == '"' || c == '\'';
}

/* Whether quotes around arguments open here; their end, too. */
static bool opens_arguments(const words *w, const char **closing)
{
    const char *at = w->at;
    const bool runs = at[0] && at[1] == '$' && at[2] == '('; /* a command, whose arguments are its own */
    *closing = is_quote(*at) && at != w->closing && !runs ? strchr(at + 1, *at) : NULL;
    for (const char *c = at + 1; *closing && c + 1 < *closing; c++)
        if (c[0] == '-' && c[1] == '-' && (c == at + 1 || is_space(c[-1])))
            return true;
    return false;
}

/* In quotes around arguments such a character is one of a word. */
static bool is_operator(const words *w)
{
    return *w->at && strchr("|&;<>", *w->at) && !(w->closing && w->at < w->closing);
}

static void skip_space(words *w)
{
    const char *closing;
    for (;; w->at++) {
        if (w->at[0] == '\\' && (w->at[1] == '\n' || w->at[1] == '\r'))
            w->at++;
        else if (*w->at == '#')
            w->at += strcspn(w->at, "\n");
        else if (opens_arguments(w, &closing))
            w->closing = closing;
        else if (w->at != w->closing && !is_space(*w->at))
            return;
        w->line += *w->at == '\n';
        if (!*w->at)
            return;
    }
}

/* A character of a word, without quotes and backslashes; 0: there is none here. *quote: the quotes that it stands in. */
static char word_char(words *w, char *quote)
{
    if (*quote ? *w->at == *quote : is_quote(*w->at)) {
        *quote = *quote ? 0 : *w->at;
        return 0;
    }
    if (*w->at == '\\' && w->at[1] && *quote != '\'')
        w->at++;
    w->line += *w->at == '\n';
    return *w->at;
}

static bool ends_word(const words *w)
{
    const char *closing;
    return is_space(*w->at) || is_operator(w) || w->at == w->closing || (w->at[0] == '\\' && w->at[1] == '\n') || opens_arguments(w, &closing);
}

/* The end of the $(command) that begins here; `at` itself: none does. */
static const char *end_of_command(const char *at)
{
    int depth = 0;
    if (at[0] != '$' || at[1] != '(')
        return at;
    for (const char *c = at + 1; *c && c < at + MAX_WORD - 1; c++) {
        depth += (*c == '(') - (*c == ')');
        if (depth == 0)
            return c + 1;
    }
    return at;
}

/* The word that begins here into w->word; empty: none does. */
static orth_status read_word(words *w)
{
    char quote = 0;
    size_t n = 0;
    const char *command = w->at; /* up to here a command is copied as it is */
    w->begin = w->at;
    w->word_line = w->line;
    for (; *w->at && (quote || w->at < command || !ends_word(w)); w->at++) {
        if (quote != '\'' && w->at >= command)
            command = end_of_command(w->at);
        w->line += w->at < command && *w->at == '\n';
        const char c = w->at < command ? *w->at : word_char(w, &quote);
        if (c && n + 1 == sizeof w->word)
            return ORTH_FAIL(w->x->ctx, ORTH_ERR_ARG, "%s:%d: a word of more than %zu bytes", w->x->name, w->word_line, sizeof w->word - 1);
        if (c)
            w->word[n++] = c;
    }
    w->word[n] = '\0';
    if (quote)
        return ORTH_FAIL(w->x->ctx, ORTH_ERR_ARG, "%s:%d: a quote %c without its end", w->x->name, w->word_line, quote);
    return ORTH_OK;
}

/* A redirection takes its file with it. An argument is none: <path> may stand for what a reader fills in. */
static orth_status skip_operators(words *w)
{
    for (skip_space(w); is_operator(w); skip_space(w)) {
        const size_t n = strspn(w->at, "|&;<>");
        const bool redirects = strcspn(w->at, "<>") < n;
        w->is_apart = true;
        w->at += n;
        w->at += redirects ? strspn(w->at, " \t") : 0;
        if (redirects && strncmp(w->at, "--", 2) != 0)
            ORTH_TRY(read_word(w));
    }
    return ORTH_OK;
}

/* The next word into w->word; *more false: there is none. */
static orth_status next_word(words *w, bool *more)
{
    w->is_apart = false;
    for (;;) {
        ORTH_TRY(skip_operators(w));
        *more = *w->at != '\0';
        ORTH_TRY(read_word(w));
        const size_t digits = strspn(w->word, "0123456789");
        const bool is_stream = digits > 0 && !w->word[digits] && is_operator(w) && strchr("<>", *w->at); /* of 2>&1 */
        if (!is_stream)
            return ORTH_OK;
    }
}

static size_t name_length(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return n;
}

static const variable *find_variable(const words *w, const char *name, size_t n)
{
    for (const variable *v = w->variables; v; v = v->older)
        if (strlen(v->name) == n && strncmp(v->name, name, n) == 0)
            return v;
    return NULL;
}

/* What is set to another name, or to the output of a command, is not known. */
static const char *known(const variable *v)
{
    return v && v->value[0] != '$' ? v->value : NULL;
}

static bool is_span(const char *begin, const char *end, const char *text)
{
    const size_t n = strlen(text);
    return (size_t)(end - begin) == n && strncmp(begin, text, n) == 0;
}

/* What a word stands for: itself, the value of a name, or the default of ${NAME:-default} where the script does not set the name. NULL: a name
 * whose value is not known. Lives until the next call. */
static const char *value_of(words *w, const char *word)
{
    const char *end = word + strlen(word);
    while (*word == '$' && word < end) { /* a default may be a name again */
        const bool braces = word[1] == '{';
        const char *name = word + 1 + braces;
        const size_t n = name_length(name);
        const char *rest = name + n;
        const variable *v = find_variable(w, name, n);
        const bool colon = *rest == ':';
        if (n == 0 && (is_span(name, end, braces ? "@}" : "@") || is_span(name, end, braces ? "*}" : "*")))
            return NULL; /* what the script is called with */
        if (n == 0 || (!braces && rest != end))
            break;
        if (!braces || is_span(rest, end, "}") || is_span(rest, end, "[@]}") || is_span(rest, end, "[*]}"))
            return known(v);
        if (!strchr("-=", rest[colon]) || end[-1] != '}')
            break;
        if (v && (v->value[0] || !colon))
            return known(v);
        word = rest + colon + 1;
        end--;
    }
    if (!*end)
        return word;
    snprintf(w->fallback, sizeof w->fallback, "%.*s", (int)(end - word), word);
    return w->fallback;
}

/* The values of an array; *text stays empty where it holds arguments. Ends at the word behind them. */
static orth_status read_array(words *w, orth_text *text, bool *more)
{
    const char *end = memchr(w->at, ')', strnlen(w->at, MAX_ARRAY));
    bool holds_arguments = !end;
    for (;;) {
        ORTH_TRY(next_word(w, more));
        holds_arguments = holds_arguments || strncmp(w->word, "--", 2) == 0;
        if (!*more || holds_arguments || w->begin > end)
            break;
        const char *value = value_of(w, w->word);
        orth_text_addf(w->x->ctx, text, "%s%s", text->num_bytes ? " " : "", value ? value : w->word);
    }
    if (holds_arguments && text->num_bytes > 0) {
        text->num_bytes = 0;
        text->s[0] = '\0';
    }
    return ORTH_OK;
}

static bool is_assignment(const char *word)
{
    const size_t n = name_length(word);
    return n > 0 && word[n] == '=';
}

/* NAME=value, NAME=(values) or NAME="arguments", which a later $NAME stands for. Ends at the word behind. */
static orth_status add_variable(words *w, bool *more)
{
    orth_ctx *ctx = w->x->ctx;
    orth_text text = {0};
    const size_t n = name_length(w->word);
    const char *given = w->word + n + 1, *value = value_of(w, given);
    variable *v = ORTH_ARENA_ARRAY(ctx, &w->arena, variable, 1);
    const char *name = orth_arena_printf(ctx, &w->arena, "%.*s", (int)n, w->word);
    if (!v || !name)
        return ORTH_ERR_NOMEM;
    orth_text_add(ctx, &text, value ? value : given);
    orth_status s = !*given && *w->at == '(' ? read_array(w, &text, more) : next_word(w, more);
    if (s == ORTH_OK && text.failed)
        s = ORTH_ERR_NOMEM;
    const char *kept = s == ORTH_OK ? orth_arena_printf(ctx, &w->arena, "%s", text.num_bytes ? text.s : "") : NULL;
    orth_mem_free(ctx, text.s);
    if (!kept)
        return s == ORTH_OK ? ORTH_ERR_NOMEM : s;
    *v = (variable){.name = name, .value = kept, .older = w->variables};
    w->variables = v;
    return ORTH_OK;
}

/* A name that was set to a key, SP=--sequence-parallel, becomes the key. */
static void expand_key(words *w)
{
    const char *value = value_of(w, w->word);
    if (value && value != w->word && strncmp(value, "--", 2) == 0)
        memmove(w->word, value, ORTH_MIN(strlen(value) + 1, sizeof w->word)); /* a word itself, so it has room */
}

/* Whether a key takes no value in Megatron-LM: a row is about the value that it has then, or it is a switch here. */
static bool is_switch(orth_tool tool, const char *path)
{
    const orth_import_row *row = orth_import_row_of(tool, path, "true");
    if (row && orth_import_part_is_switch(row->part))
        return true;
    if (row && row->value && *row->value)
        return strcmp(row->value, "true") == 0;
    const int id = row && row->kind == ORTH_ROW_SAME ? orth_option_find(row->key) : -1;
    return id >= 0 && orth_option_get((orth_option_id)id)->type == ORTH_TYPE_BOOL;
}

static bool ends_values(const words *w, int line)
{
    const size_t n = strlen(w->word);
    const bool is_option = w->word[0] == '-' && w->word[1] == '-';
    return is_option || w->is_apart || w->word_line != line || (n > 3 && strcmp(w->word + n - 3, ".py") == 0);
}

/* Behind a switch, or behind a value, a name that is not known stands for further arguments. */
static orth_status add_value(words *w, const char *path, orth_text *value)
{
    orth_importer *x = w->x;
    const char *v = value_of(w, w->word);
    const size_t n = strlen(w->word);
    const bool is_list = n > 1 && (strcmp(w->word + n - 1, "@") == 0 || strcmp(w->word + n - 1, "*") == 0 || strcmp(w->word + n - 2, "]}") == 0);
    if (v || !(value->num_bytes > 0 || is_list || is_switch(x->tool, path))) {
        v = v ? v : w->word;
        if (*v)
            orth_text_addf(x->ctx, value, "%s%s", value->num_bytes ? " " : "", v);
        return ORTH_OK;
    }
    const char *place = x->name[0] == '-' ? orth_import_place(x, w->word) : orth_arena_printf(x->ctx, &x->arena, "%s:%d: %s", x->name, w->word_line, w->word);
    if (!place)
        return ORTH_ERR_NOMEM;
    orth_import_unused(x, place, "it is not set here, and arguments in it are not read");
    return ORTH_OK;
}

/* The words behind a key in its line, up to the next key; *more as of next_word. */
static orth_status read_values(words *w, const char *path, orth_text *value, bool *more)
{
    const int line = w->word_line;
    for (;;) {
        ORTH_TRY(next_word(w, more));
        expand_key(w);
        if (!*more || ends_values(w, line))
            return ORTH_OK;
        ORTH_TRY(add_value(w, path, value));
    }
}

/* The present word is --key or --key=value. Ends at the word after its values. */
static orth_status add_option(words *w, bool *more)
{
    orth_importer *x = w->x;
    orth_text value = {0};
    const char *equals = strchr(w->word, '=');
    char *path = orth_arena_printf(x->ctx, &x->arena, "%.*s", (int)strcspn(w->word + 2, "="), w->word + 2);
    const char *where = x->name[0] == '-' ? x->name : orth_arena_printf(x->ctx, &x->arena, "%s:%d", x->name, w->word_line);
    if (!path || !where)
        return ORTH_ERR_NOMEM;
    for (char *c = path; *c; c++)
        *c = *c == '-' ? '_' : *c;
    if (equals) {
        const char *v = value_of(w, equals + 1);
        orth_text_add(x->ctx, &value, v ? v : equals + 1);
    }
    orth_status s = read_values(w, path, &value, more);
    if (s == ORTH_OK && value.failed)
        s = ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = orth_import_add(x, where, path, value.num_bytes ? value.s : "true");
    orth_mem_free(x->ctx, value.s);
    return s;
}

static orth_status read_all_words(words *w)
{
    bool more;
    ORTH_TRY(next_word(w, &more));
    while (more) {
        expand_key(w);
        const bool is_key = strncmp(w->word, "--", 2) == 0 && w->word[2];
        ORTH_TRY(is_key ? add_option(w, &more) : is_assignment(w->word) ? add_variable(w, &more) : next_word(w, &more));
    }
    if (!w->x->first)
        return ORTH_FAIL(w->x->ctx, ORTH_ERR_ARG, "%s: holds no argument: they begin with --, as in --num-layers 32", ORTH_SHOWN(w->x->name));
    return ORTH_OK;
}

static orth_status read_text(orth_importer *x, const char *text)
{
    words w = {.x = x, .at = text, .line = 1};
    const orth_status s = read_all_words(&w);
    orth_arena_release(x->ctx, &w.arena);
    return s;
}

static const char direct[] = "--megatron"; /* the name of words that are given themselves */

bool orth_import_is_script(const orth_importer *x)
{
    return orth_tool_form(x->tool) == ORTH_FORM_WORDS && x->name != direct;
}

orth_status orth_import_read_words(orth_importer *x, const char *source)
{
    char *text;
    size_t bytes;
    if (strncmp(source, "--", 2) == 0) {
        x->name = direct;
        return read_text(x, source);
    }
    ORTH_TRY(orth_file_read(x->ctx, source, &text, &bytes));
    const orth_status s = bytes > MAX_BYTES ? ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s: is %zu bytes long; at most %zu are read", source, bytes, MAX_BYTES)
        : strlen(text) != bytes || !orth_utf8_valid(text) ? ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s: is not text in UTF-8", source)
        : read_text(x, text);
    orth_mem_free(x->ctx, text);
    return s;
}
