/* jsonl.c -- see jsonl.h. A recursive descent over one line; only the wanted string is copied. */
#include "data/jsonl.h"

#include <inttypes.h>
#include <string.h>

typedef struct {
    orth_ctx *ctx;
    const char *begin, *p, *end;
    const char *path;
    int64_t line_number;
    bool collects;          /* the line is read a second time, for the names of its members */
    bool has_messages;      /* one of them: a chat */
    char names[200];
    size_t num_names;       /* bytes of it */
} scanner;

static orth_status fail_at(const scanner *s, const char *p, const char *what)
{
    return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s:%" PRId64 ":%lld: %s", s->path, s->line_number,
                     (long long)(p - s->begin) + 1, what);
}

static void skip_space(scanner *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r' || *s->p == '\n'))
        s->p++;
}

static orth_status expect(scanner *s, char c)
{
    skip_space(s);
    char what[32];
    snprintf(what, sizeof what, "'%c' is missing", c);
    if (s->p == s->end || *s->p != c)
        return fail_at(s, s->p, what);
    s->p++;
    return ORTH_OK;
}

static orth_status hex4(scanner *s, uint32_t *out)
{
    static const char all[] = "0123456789abcdefABCDEF";
    uint32_t value = 0;
    for (int i = 0; i < 4; i++, s->p++) {
        const char *digit = s->p < s->end && *s->p ? strchr(all, *s->p) : NULL;
        if (!digit)
            return fail_at(s, s->p, "\\u is not followed by 4 hexadecimal digits");
        const uint32_t d = (uint32_t)(digit - all);
        value = value << 4 | (d < 16 ? d : d - 6);
    }
    *out = value;
    return ORTH_OK;
}

static char *put_utf8(char *to, uint32_t c)
{
    if (c < 0x80) {
        *to++ = (char)c;
    } else if (c < 0x800) {
        *to++ = (char)(0xC0 | c >> 6);
        *to++ = (char)(0x80 | (c & 0x3F));
    } else if (c < 0x10000) {
        *to++ = (char)(0xE0 | c >> 12);
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
        *to++ = (char)(0x80 | (c & 0x3F));
    } else {
        *to++ = (char)(0xF0 | c >> 18);
        *to++ = (char)(0x80 | (c >> 12 & 0x3F));
        *to++ = (char)(0x80 | (c >> 6 & 0x3F));
        *to++ = (char)(0x80 | (c & 0x3F));
    }
    return to;
}

/* s->p is behind "\u". */
static orth_status unicode_escape(scanner *s, uint32_t *out)
{
    uint32_t high = 0, low = 0;
    ORTH_TRY(hex4(s, &high));
    *out = high;
    if (high < 0xD800 || high > 0xDFFF)
        return ORTH_OK;
    *out = 0xFFFD;
    if (high > 0xDBFF || s->end - s->p < 2 || s->p[0] != '\\' || s->p[1] != 'u')
        return ORTH_OK;
    const char *back = s->p;
    s->p += 2;
    ORTH_TRY(hex4(s, &low));
    if (low >= 0xDC00 && low <= 0xDFFF)
        *out = 0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00);
    else
        s->p = back; /* a character by itself */
    return ORTH_OK;
}

/* s->p is behind the backslash. */
static orth_status escape(scanner *s, char **to)
{
    static const char from[] = "\"\\/bfnrt", into[] = "\"\\/\b\f\n\r\t";
    if (s->p < s->end && *s->p == 'u') {
        uint32_t c = 0;
        s->p++;
        ORTH_TRY(unicode_escape(s, &c));
        *to = put_utf8(*to, c);
        return ORTH_OK;
    }
    const char *found = s->p < s->end && *s->p ? strchr(from, *s->p) : NULL;
    if (!found)
        return fail_at(s, s->p, "unknown escape in a string");
    *(*to)++ = into[found - from];
    s->p++;
    return ORTH_OK;
}

/* A string from its opening quote. `to` has room for as many bytes as the line has: an escape is never
 * shorter than what it stands for. NULL: skipped. *out_bytes is the decoded length. */
static orth_status string(scanner *s, char *to, size_t *out_bytes)
{
    char scrap[8], *start = to;
    ORTH_TRY(expect(s, '"'));
    while (s->p < s->end && *s->p != '"') {
        const unsigned char c = (unsigned char)*s->p;
        char *at = to ? to : scrap;
        if (c < 0x20)
            return fail_at(s, s->p, "control character in a string");
        if (c == '\\') {
            s->p++;
            ORTH_TRY(escape(s, &at));
        } else {
            *at++ = *s->p++;
        }
        to = to ? at : NULL;
    }
    ORTH_TRY(expect(s, '"'));
    if (start)
        *out_bytes = (size_t)(to - start);
    return ORTH_OK;
}

static int digits(scanner *s)
{
    int n = 0;
    for (; s->p < s->end && *s->p >= '0' && *s->p <= '9'; s->p++)
        n = 1;
    return n;
}

static orth_status number(scanner *s)
{
    const char *start = s->p;
    if (s->p < s->end && *s->p == '-')
        s->p++;
    const char *first = s->p;
    if (!digits(s) || (*first == '0' && s->p - first > 1))
        return fail_at(s, start, "not a JSON value");
    if (s->p < s->end && *s->p == '.') {
        s->p++;
        if (!digits(s))
            return fail_at(s, s->p, "no digit behind the point of a number");
    }
    if (s->p < s->end && (*s->p == 'e' || *s->p == 'E')) {
        s->p++;
        if (s->p < s->end && (*s->p == '+' || *s->p == '-'))
            s->p++;
        if (!digits(s))
            return fail_at(s, s->p, "no digit in the exponent of a number");
    }
    return ORTH_OK;
}

static orth_status skip_value(scanner *s, int depth);

/* Members or elements from behind the opening bracket to behind the closing one. */
static orth_status skip_container(scanner *s, char close, int depth)
{
    if (depth >= ORTH_JSONL_MAX_DEPTH)
        return fail_at(s, s->p, "nested deeper than 64 levels");
    skip_space(s);
    if (s->p < s->end && *s->p == close) {
        s->p++;
        return ORTH_OK;
    }
    for (;;) {
        if (close == '}') {
            ORTH_TRY(string(s, NULL, NULL));
            ORTH_TRY(expect(s, ':'));
        }
        ORTH_TRY(skip_value(s, depth + 1));
        skip_space(s);
        if (s->p < s->end && *s->p == ',')
            s->p++;
        else
            return expect(s, close);
    }
}

static orth_status skip_value(scanner *s, int depth)
{
    static const char *const words[] = {"true", "false", "null"};
    skip_space(s);
    if (s->p == s->end)
        return fail_at(s, s->p, "the line ends inside a value");
    if (*s->p == '"')
        return string(s, NULL, NULL);
    if (*s->p == '{' || *s->p == '[')
        return skip_container(s, *s->p++ == '{' ? '}' : ']', depth);
    for (int i = 0; i < ORTH_COUNT(words); i++) {
        const size_t n = strlen(words[i]);
        if ((size_t)(s->end - s->p) >= n && memcmp(s->p, words[i], n) == 0) {
            s->p += n;
            return ORTH_OK;
        }
    }
    return number(s);
}

/* "'a', 'b', ..." as far as there is room. */
static void note_name(scanner *s, const char *name, size_t n)
{
    const size_t room = sizeof s->names - s->num_names;
    s->has_messages = s->has_messages || (n == 8 && memcmp(name, "messages", 8) == 0);
    if (room < n + 10) {
        if (room > 5)
            s->num_names += (size_t)snprintf(s->names + s->num_names, room, "%s", s->num_names ? ", ..." : "...");
        s->num_names = sizeof s->names; /* full */
        return;
    }
    char *at = s->names + s->num_names;
    s->num_names += (size_t)snprintf(at, room, "%s'%.*s'", s->num_names ? ", " : "", (int)n, name);
    for (; *at; at++)
        *at = (unsigned char)*at < 0x20 ? '?' : *at;
}

static const char *type_name(char first)
{
    return first == '{' ? "an object" : first == '[' ? "a list" : first == 'n' ? "null"
           : first == 't' || first == 'f' ? "a truth value" : "a number";
}

static const char *chat_hint(const scanner *s, const char *field)
{
    return s->has_messages || strcmp(field, "messages") == 0
               ? "; chats ('messages') are not supported: write each as one text first" : "";
}

static orth_status fail_type(scanner *s, const char *place, const char *field)
{
    const char *value = s->p;
    char what[320];
    if (s->p == s->end)
        return fail_at(s, s->p, "the line ends inside a value");
    ORTH_TRY(skip_value(s, 1)); /* what is no JSON at all is reported first */
    snprintf(what, sizeof what, "field '%.80s' is %s, not a string%s", field, type_name(*value), chat_hint(s, field));
    return fail_at(s, place, what);
}

static orth_status fail_missing(scanner *s, const char *field)
{
    char what[512];
    if (s->names[0])
        snprintf(what, sizeof what, "the object has no field '%.80s'; it has %s: data.jsonl_field=NAME (or --field=NAME, where "
                 "the verb has it) says which one holds the text%s", field, s->names, chat_hint(s, field));
    else
        snprintf(what, sizeof what, "the object has no field '%.80s'; it is empty", field);
    return fail_at(s, s->p, what);
}

/* One member of the outermost object. Names are decoded into the tail of the same buffer: a name and a
 * value are different bytes of the line, so together they are no longer than it. */
static orth_status member(scanner *s, orth_bytes *out, const char *field, bool *found)
{
    size_t name_bytes = 0, value_bytes = 0;
    const char *place = s->p;
    ORTH_TRY(string(s, out->v, &name_bytes));
    const bool wanted = name_bytes == strlen(field) && memcmp(out->v, field, name_bytes) == 0;
    if (s->collects)
        note_name(s, out->v, name_bytes);
    ORTH_TRY(expect(s, ':'));
    if (!wanted)
        return skip_value(s, 1);
    skip_space(s);
    if (s->p == s->end || *s->p != '"')
        return fail_type(s, place, field);
    *found = true;
    ORTH_TRY(string(s, out->v + (s->end - s->begin), &value_bytes));
    out->num = value_bytes;
    return ORTH_OK;
}

static orth_status object(scanner *s, orth_bytes *out, const char *field);

/* The members are named; to keep names of lines that are in order would cost time. */
static orth_status missing(scanner *s, orth_bytes *out, const char *field)
{
    if (s->collects)
        return fail_missing(s, field);
    s->p = s->begin;
    s->collects = true;
    return object(s, out, field);
}

static orth_status object(scanner *s, orth_bytes *out, const char *field)
{
    bool found = false;
    ORTH_TRY(expect(s, '{'));
    skip_space(s);
    if (s->p < s->end && *s->p == '}') {
        s->p++;
    } else {
        do {
            skip_space(s);
            ORTH_TRY(member(s, out, field, &found));
            skip_space(s);
        } while (s->p < s->end && *s->p == ',' && s->p++);
        ORTH_TRY(expect(s, '}'));
    }
    skip_space(s);
    if (s->p != s->end)
        return fail_at(s, s->p, "something follows the object");
    return found ? ORTH_OK : missing(s, out, field);
}

orth_status orth_jsonl_text(orth_ctx *ctx, orth_bytes *out, const char *line, size_t num_bytes,
                            const char *field, const char *path, int64_t line_number)
{
    /* First half: names; second half: the value. */
    if (out->cap < 2 * num_bytes + 16) {
        const size_t cap = 4 * num_bytes + 1024;
        char *v = orth_mem_realloc(ctx, out->v, cap);
        if (!v)
            return ORTH_ERR_NOMEM;
        out->v = v;
        out->cap = cap;
    }
    scanner s = {.ctx = ctx, .begin = line, .p = line, .end = line + num_bytes, .path = path,
                 .line_number = line_number};
    out->num = 0;
    ORTH_TRY(object(&s, out, field));
    memmove(out->v, out->v + num_bytes, out->num);
    return ORTH_OK;
}

size_t orth_jsonl_object_bytes(orth_ctx *ctx, const char *text, size_t num_bytes)
{
    scanner s = {.ctx = ctx, .begin = text, .p = text, .end = text + num_bytes, .path = ""};
    skip_space(&s);
    if (s.p == s.end || *s.p != '{')
        return 0;
    if (skip_value(&s, 0) == ORTH_OK)
        return (size_t)(s.p - text);
    orth_ctx_clear_error(ctx);
    return 0;
}
