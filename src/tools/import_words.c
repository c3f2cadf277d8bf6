/* import_words.c -- arguments of a command line, or of a script that holds them, as pairs of keys and values.
 *
 * What a shell makes of a script is not known without it. Read are: words between white space and parentheses of arrays, quotes, lines that go on
 * after a backslash, comments, NAME=value, $NAME or ${NAME} as a whole word, and NAME="--key value", whose quotes count as white space. */
#include "tools/import_impl.h"

#include <ctype.h>
#include <string.h>

#include "base/files.h"

#define MAX_BYTES ((size_t)1 << 20)

typedef struct {
    orth_importer *x;
    orth_importer variables;   /* pairs of the script's own names */
    const char *at;
    const char *closing;       /* of the quotes that count as white space; NULL: none are open */
    int line;
    char word[1024];
    int word_line;             /* where the word begins */
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
    *closing = is_quote(*at) && at != w->closing ? strchr(at + 1, *at) : NULL;
    for (const char *c = at + 1; *closing && c + 1 < *closing; c++)
        if (c[0] == '-' && c[1] == '-' && (c == at + 1 || is_space(c[-1])))
            return true;
    return false;
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
    return is_space(*w->at) || w->at == w->closing || (w->at[0] == '\\' && w->at[1] == '\n') || opens_arguments(w, &closing);
}

/* The next word into w->word; *more false: there is none. */
static orth_status next_word(words *w, bool *more)
{
    char quote = 0;
    size_t n = 0;
    skip_space(w);
    w->word_line = w->line;
    *more = *w->at != '\0';
    for (; *w->at && (quote || !ends_word(w)); w->at++) {
        const char c = word_char(w, &quote);
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

static size_t name_length(const char *s)
{
    size_t n = 0;
    while (isalnum((unsigned char)s[n]) || s[n] == '_')
        n++;
    return n;
}

/* The value of $NAME and ${NAME}, if the script sets it before; else the word itself. */
static const char *resolved(const words *w, const char *word)
{
    const char *name = word[0] == '$' ? word + 1 + (word[1] == '{') : NULL, *found = word;
    const size_t n = name ? name_length(name) : 0;
    if (n == 0 || strcmp(name + n, word[1] == '{' ? "}" : "") != 0)
        return word;
    for (const orth_import_pair *p = w->variables.first; p; p = p->next)
        if (strlen(p->path) == n && strncmp(p->path, name, n) == 0)
            found = p->value;
    return found;
}

/* NAME=value, which a later $NAME stands for. */
static orth_status add_variable(words *w)
{
    const size_t n = name_length(w->word);
    if (n == 0 || w->word[n] != '=')
        return ORTH_OK;
    w->word[n] = '\0';
    return orth_import_add(&w->variables, w->x->name, w->word, resolved(w, w->word + n + 1));
}

static bool ends_values(const words *w, int line)
{
    const size_t n = strlen(w->word);
    const bool is_option = w->word[0] == '-' && w->word[1] == '-';
    return is_option || w->word_line != line || (n > 3 && strcmp(w->word + n - 3, ".py") == 0);
}

/* The words behind a key in its line, up to the next key; *more as of next_word. */
static orth_status read_values(words *w, orth_text *value, bool *more)
{
    const int line = w->word_line;
    for (;;) {
        ORTH_TRY(next_word(w, more));
        if (!*more || ends_values(w, line))
            return ORTH_OK;
        orth_text_addf(w->x->ctx, value, "%s%s", value->num_bytes ? " " : "", resolved(w, w->word));
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
    if (equals)
        orth_text_add(x->ctx, &value, resolved(w, equals + 1));
    orth_status s = read_values(w, &value, more);
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
        if (strncmp(w->word, "--", 2) == 0 && w->word[2]) {
            ORTH_TRY(add_option(w, &more));
            continue;
        }
        ORTH_TRY(add_variable(w));
        ORTH_TRY(next_word(w, &more));
    }
    if (!w->x->first)
        return ORTH_FAIL(w->x->ctx, ORTH_ERR_ARG, "%s: holds no argument: they begin with --, as in --num-layers 32", ORTH_SHOWN(w->x->name));
    return ORTH_OK;
}

static orth_status read_text(orth_importer *x, const char *text)
{
    words w = {.x = x, .variables = {.ctx = x->ctx, .tool = x->tool}, .at = text, .line = 1};
    const orth_status s = read_all_words(&w);
    orth_arena_release(x->ctx, &w.variables.arena);
    return s;
}

orth_status orth_import_read_words(orth_importer *x, const char *source)
{
    char *text;
    size_t bytes;
    if (strncmp(source, "--", 2) == 0) {
        x->name = "--megatron";
        return read_text(x, source);
    }
    ORTH_TRY(orth_file_read(x->ctx, source, &text, &bytes));
    const orth_status s = bytes > MAX_BYTES ? ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s: is %zu bytes long; at most %zu are read", source, bytes, MAX_BYTES)
        : strlen(text) != bytes || !orth_utf8_valid(text) ? ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s: is not text in UTF-8", source)
        : read_text(x, text);
    orth_mem_free(x->ctx, text);
    return s;
}
