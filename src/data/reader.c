/* reader.c -- see reader.h. The window holds [p, end) of the document cursor; what is before p has been given out and
 * makes room when the window is filled again. */
#include "data/reader.h"

#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "data/content.h"
#include "data/jsonl.h"
#include "data/source.h"

#define WINDOW_BYTES ((size_t)8 << 20)
#define MIN_UNIT 512
#define MAX_UNIT 65536

struct orth_reader {
    orth_text_options options;
    char *separator;           /* the text it stands for, heap */
    bool cuts, found;          /* inputs before the present one were to be cut at a text, and had it */
    int num_inputs;
    orth_source *source;       /* of the present input; NULL: none */
    char *window;              /* heap */
    size_t cap;
    orth_documents docs;
    orth_arena arena;
    uint8_t *classes;          /* of characters, in the arena */
    orth_content content;      /* of the present input */
    int64_t num_invalid;       /* bytes of all inputs that are not UTF-8 */
    char *first_invalid;       /* input that the first of them is in, heap; NULL: there is none */
    int64_t first_invalid_at;
    int64_t bytes;             /* of all inputs */
    int64_t bytes_before;      /* of those before the present one */
};

orth_status orth_reader_create(orth_ctx *ctx, orth_reader **out, const orth_text_options *options, int num_inputs)
{
    orth_reader *r = ORTH_NEW(ctx, orth_reader);
    if (!r)
        return ORTH_ERR_NOMEM;
    r->options = *options;
    r->num_inputs = num_inputs;
    r->cap = WINDOW_BYTES;
    r->window = orth_mem_alloc(ctx, r->cap);
    orth_status status = r->window ? orth_separator_read(ctx, &r->separator, options->separator) : ORTH_ERR_NOMEM;
    if (status == ORTH_OK)
        status = orth_char_classes_create(ctx, &r->arena, &r->classes);
    if (status == ORTH_OK)
        *out = r;
    else
        orth_reader_free(ctx, r);
    return status;
}

void orth_reader_free(orth_ctx *ctx, orth_reader *r)
{
    if (!r)
        return;
    orth_source_close(ctx, r->source);
    orth_mem_free(ctx, r->separator);
    orth_mem_free(ctx, r->first_invalid);
    orth_mem_free(ctx, r->window);
    orth_arena_release(ctx, &r->arena);
    orth_mem_free(ctx, r);
}

static bool ends_with(const char *s, size_t n, const char *suffix)
{
    const size_t k = strlen(suffix);
    return n >= k && memcmp(s + n - k, suffix, k) == 0;
}

static bool is_jsonl_name(const char *path)
{
    size_t n = strlen(path);
    n -= ends_with(path, n, ".gz") ? 3 : ends_with(path, n, ".zst") ? 4 : 0;
    return ends_with(path, n, ".jsonl") || ends_with(path, n, ".ndjson");
}

/* Looks at the next bytes of the input, unless the user has said what it is. */
static orth_status look_at(orth_ctx *ctx, orth_reader *r, const char *bytes, size_t n)
{
    const size_t before = r->content.num_bad;
    if (r->options.format != ORTH_TEXT_AUTO)
        return ORTH_OK;
    ORTH_TRY(orth_content_check(ctx, orth_reader_name(r), &r->content, bytes, n, !r->docs.final));
    r->num_invalid += (int64_t)(r->content.num_bad - before);
    if (r->num_invalid > 0 && !r->first_invalid) {
        r->first_invalid = orth_mem_strdup(ctx, orth_reader_name(r));
        r->first_invalid_at = (int64_t)r->content.first_bad;
        return r->first_invalid ? ORTH_OK : ORTH_ERR_NOMEM;
    }
    return ORTH_OK;
}

/* Moves what is left to the front of the window and fills the rest. */
static orth_status fill(orth_ctx *ctx, orth_reader *r)
{
    orth_documents *d = &r->docs;
    size_t left = (size_t)(d->end - d->p), n = 0;
    if (left == r->cap) {
        if (2 * r->cap > ORTH_READER_MAX_DOCUMENT)
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: the document at byte %" PRId64 " is longer than %zu MiB: is "
                             "data.separator the right one?", orth_reader_name(r),
                             r->bytes - r->bytes_before - (int64_t)left, ORTH_READER_MAX_DOCUMENT >> 20);
        char *wider = orth_mem_realloc(ctx, r->window, 2 * r->cap);
        if (!wider)
            return ORTH_ERR_NOMEM;
        r->window = wider;
        r->cap *= 2;
        d->p = wider;
    }
    memmove(r->window, d->p, left);
    d->p = r->window;
    d->end = r->window + left;
    ORTH_TRY(orth_source_read(ctx, r->source, r->window + left, r->cap - left, &n));
    d->end += n;
    d->final = n < r->cap - left;
    r->bytes += (int64_t)n;
    return look_at(ctx, r, r->window + left, n);
}

static size_t choose_unit(const orth_reader *r, size_t n)
{
    if (r->num_inputs == 0)
        return SIZE_MAX / 4;
    const double share = (double)n * (double)r->num_inputs / 1000;
    return share < MIN_UNIT ? MIN_UNIT : share > MAX_UNIT ? MAX_UNIT : (size_t)share;
}

static bool is_jsonl(const orth_text_options *o, const char *path)
{
    return o->format == ORTH_TEXT_JSONL || (o->format == ORTH_TEXT_AUTO && is_jsonl_name(path));
}

static const char *field_of(const orth_text_options *o)
{
    return o->field && o->field[0] ? o->field : "text";
}

orth_status orth_reader_check(orth_ctx *ctx, const orth_text_options *o, const char *const *paths, int num_paths)
{
    if (o->field_is_default || strcmp(field_of(o), "text") == 0)
        return ORTH_OK;
    for (int i = 0; i < num_paths; i++)
        if (is_jsonl(o, paths[i]))
            return ORTH_OK;
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "field '%s' of JSONL is asked for (--field or data.jsonl_field), but %s%s: data.format=jsonl reads "
                     "what is given as JSONL", o->field, o->format == ORTH_TEXT_TEXT ? "data.format=text has none" : "no name ends in "
                     ".jsonl or .ndjson, with or without .gz or .zst: ", o->format == ORTH_TEXT_TEXT ? "" : paths[0]);
}

#define BYTE_ORDER_MARK "\xEF\xBB\xBF"

static bool starts_with(const char *p, const char *end, const char *prefix)
{
    const size_t n = strlen(prefix);
    return (size_t)(end - p) >= n && memcmp(p, prefix, n) == 0;
}

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && (*p == ' ' || *p == '\t' || *p == '\r' || *p == '\n'))
        p++;
    return p;
}

/* What the beginning of a text is, if that is objects of JSON; NULL: no such thing. A single object is one only if it has the field that is read of
 * JSONL: others are files of settings, which may be in a collection of sources. */
static orth_status find_objects(orth_ctx *ctx, const orth_reader *r, const char **out_what)
{
    const char *end = r->docs.end, *p = skip_space(r->docs.p, end);
    const bool array = p < end && *p == '[';
    p = skip_space(p + array, end);
    const size_t n = orth_jsonl_object_bytes(ctx, p, (size_t)(end - p));
    *out_what = NULL;
    if (n == 0)
        return ORTH_OK;
    if (array) {
        *out_what = "begins with a JSON array of objects, not with text: `jq -c '.[]'` makes JSONL of it";
        return ORTH_OK;
    }
    const char *next = skip_space(p + n, end);
    if (orth_jsonl_object_bytes(ctx, next, (size_t)(end - next)) > 0) {
        *out_what = memchr(p, '\n', n) ? "begins with JSON objects, not with text: `jq -c .` makes JSONL of it"
                                       : "its first line is a JSON object, and its name does not end in .jsonl or .ndjson: data.format=jsonl reads a "
                                         "field of each line";
        return ORTH_OK;
    }
    orth_bytes text = {0};
    const orth_status s = orth_jsonl_text(ctx, &text, p, n, field_of(&r->options), orth_reader_name(r), 1);
    orth_bytes_free(ctx, &text);
    if (s == ORTH_OK)
        *out_what = "is a JSON object, and its name does not end in .jsonl or .ndjson: data.format=jsonl reads a field of each line (`jq -c .` makes one "
                    "line of it)";
    if (s == ORTH_ERR_DATA)
        orth_ctx_clear_error(ctx);
    return s == ORTH_ERR_DATA ? ORTH_OK : s;
}

/* What is read as text because of its name must not be JSON around text. */
static orth_status refuse_objects(orth_ctx *ctx, const orth_reader *r)
{
    const char *what;
    ORTH_TRY(find_objects(ctx, r, &what));
    return what ? ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: %s; data.format=text takes it as it is", orth_reader_name(r), what) : ORTH_OK;
}

/* The mark says that UTF-8 follows and is no part of the text. What is called text is taken as it is. */
static void skip_byte_order_mark(orth_reader *r)
{
    const int64_t n = (int64_t)strlen(BYTE_ORDER_MARK);
    if (r->options.format == ORTH_TEXT_TEXT || !starts_with(r->docs.p, r->docs.end, BYTE_ORDER_MARK))
        return;
    r->docs.p += n;
    r->bytes -= n;
    r->bytes_before -= n; /* places are counted from the beginning of the file */
}

static orth_status begin(orth_ctx *ctx, orth_reader *r, const char *path)
{
    const bool jsonl = is_jsonl(&r->options, path);
    r->cuts = r->cuts || r->docs.kind == ORTH_DOCS_TEXT;
    r->found = r->found || r->docs.found;
    r->docs = orth_documents_begin(jsonl, r->separator);
    r->docs.classes = r->classes;
    r->docs.p = r->docs.end = r->window;
    r->bytes_before = r->bytes;
    r->content = (orth_content){0};
    ORTH_TRY(fill(ctx, r));
    skip_byte_order_mark(r);
    const size_t n = (size_t)(r->docs.end - r->docs.p);
    r->docs.unit = choose_unit(r, ORTH_MIN(n, WINDOW_BYTES)); /* a window that grew for an input shows in no other */
    /* A blank file is no document of a training set; who reads files whole wants its spaces. */
    if (r->docs.kind == ORTH_DOCS_FILE && r->num_inputs > 0 && r->docs.final && orth_text_is_blank(r->docs.p, n))
        r->docs.p = r->docs.end;
    return jsonl || r->options.format != ORTH_TEXT_AUTO ? ORTH_OK : refuse_objects(ctx, r);
}

orth_status orth_reader_input(orth_ctx *ctx, orth_reader *r, const char *path)
{
    orth_source_close(ctx, r->source);
    r->source = NULL;
    ORTH_TRY(orth_source_open(ctx, &r->source, path));
    return begin(ctx, r, path);
}

orth_status orth_reader_memory(orth_ctx *ctx, orth_reader *r, const char *name, const void *bytes, size_t num_bytes)
{
    orth_source_close(ctx, r->source);
    r->source = NULL;
    ORTH_TRY(orth_source_from_memory(ctx, &r->source, name, bytes, num_bytes));
    return begin(ctx, r, name);
}

orth_status orth_reader_next(orth_ctx *ctx, orth_reader *r, orth_document *out, int64_t max, int64_t *out_num)
{
    int64_t n = 0;
    for (;;) {
        while (n < max && orth_documents_next(&r->docs, &out[n]))
            n++;
        if (n > 0 || r->docs.final)
            break;
        ORTH_TRY(orth_ctx_check_stop(ctx));
        ORTH_TRY(fill(ctx, r)); /* no document ends in the window */
    }
    *out_num = n;
    return ORTH_OK;
}

orth_status orth_reader_text(orth_ctx *ctx, const orth_reader *r, const orth_document *d, orth_bytes *line,
                             const char **out_text, size_t *out_bytes)
{
    *out_text = d->text;
    *out_bytes = d->num_bytes;
    if (r->docs.kind != ORTH_DOCS_JSONL)
        return ORTH_OK;
    ORTH_TRY(orth_jsonl_text(ctx, line, d->text, d->num_bytes, field_of(&r->options), orth_reader_name(r), d->line_number));
    *out_text = line->v;
    *out_bytes = line->num;
    return ORTH_OK;
}

const char *orth_reader_name(const orth_reader *r)
{
    return orth_source_name(r->source);
}

int64_t orth_reader_bytes(const orth_reader *r)
{
    return r->bytes;
}

void orth_reader_tell_invalid(orth_ctx *ctx, const orth_reader *r)
{
    if (r->num_invalid > 0 && !r->options.told)
        orth_log(ctx, ORTH_LOG_WARN, "data", "%" PRId64 " byte%s of the text %s not UTF-8, the first at byte %" PRId64 " of %s: tokens are made of "
                 "them as of any bytes", r->num_invalid, r->num_invalid == 1 ? "" : "s", r->num_invalid == 1 ? "is" : "are", r->first_invalid_at,
                 r->first_invalid);
}

void orth_reader_tell_separator(orth_ctx *ctx, const orth_reader *r)
{
    if ((r->cuts || r->docs.kind == ORTH_DOCS_TEXT) && !r->found && !r->docs.found)
        orth_log(ctx, ORTH_LOG_WARN, "data", "the separator '%s' occurs nowhere in %s%s: a file is one document", ORTH_SHOWN(r->options.separator),
                 orth_reader_name(r), r->num_inputs > 1 ? " and the other inputs" : "");
}

bool orth_reader_is_jsonl(const orth_reader *r)
{
    return r->docs.kind == ORTH_DOCS_JSONL;
}
