/* tokenizer_pattern.c -- compiling patterns and finding their matches (Oniguruma). */
#define _GNU_SOURCE /* memmem */
#include "data/tokenizer_pattern.h"

#include <limits.h>
#include <string.h>

/* Steps back ("retries") that one attempt at one place may take: the limit that `tokenizers` works with; it ends the
 * program there. */
#define RETRIES_IN_MATCH 10000000
/* All searches of a text together may take so many, and more for each byte. libonig does not say how many a search
 * took, only that it took too many: a search begins with a small limit and is repeated with four times as many, and
 * what counts is the limit that was enough. Searches within the small limit do not count. */
#define RETRIES_FIRST 1000
#define RETRIES_IN_TEXT 100000000
#define RETRIES_PER_BYTE 1000
/* Places to come back to that a match may remember; 64 bytes each. */
#define STACK_ENTRIES (1 << 25)

/* Whether the options of a group at p, behind "(?", have one that versions of Oniguruma treat differently. */
static bool odd_option(const char *p, const char *end)
{
    for (; p < end && (*p == '-' || (*p >= 'a' && *p <= 'z') || (*p >= 'A' && *p <= 'Z')); p++) {
        if (strchr("ILCy", *p))
            return true;
    }
    return false;
}

/* What lies at p, outside of a class, and is refused; NULL: nothing. */
static const char *refused_at(const char *p, const char *end)
{
    static const struct {
        const char *text, *what;
    } refused[] = {
        {"\\R", "\\R (any line break)"},   {"\\X", "\\X (text segments)"},
        {"\\y", "\\y (text segments)"},    {"\\Y", "\\Y (text segments)"},
        {"(?{", "(?{...}) (a callout)"},   {"(*", "(*...) (a callout)"},
        {"(?(", "(?(...)...) (a condition)"}, {"(?~|", "(?~|...) (an absent stopper)"},
    };
    for (int i = 0; i < ORTH_COUNT(refused); i++) {
        const size_t n = strlen(refused[i].text);
        if ((size_t)(end - p) >= n && memcmp(p, refused[i].text, n) == 0)
            return refused[i].what;
    }
    return end - p > 2 && p[0] == '(' && p[1] == '?' && odd_option(p + 2, end) ? "one of the options I, L, C, y" : NULL;
}

/* [:name:]; not [:^name:]. */
static bool is_posix_bracket(const char *p, const char *end)
{
    const char *q = p + 2;
    while (q < end && *q >= 'a' && *q <= 'z')
        q++;
    return q > p + 2 && end - q > 1 && q[0] == ':' && q[1] == ']';
}

/* Syntax that the Oniguruma inside `tokenizers` and older ones read differently; NULL: there is none. */
static const char *find_refused(const char *p, const char *end)
{
    int depth = 0; /* of classes */
    for (; p < end; p++) {
        const char *what = depth == 0 ? refused_at(p, end) : NULL;
        if (what)
            return what;
        if (depth > 0 && end - p > 1 && memcmp(p, "[:", 2) == 0 && !is_posix_bracket(p, end))
            return "\"[:\" in a class that begins no [:name:]";
        if (*p == '\\')
            p++;
        else if (*p == '[')
            depth++;
        else if (*p == ']' && depth > 0)
            depth--;
    }
    return NULL;
}

static orth_status compile(orth_ctx *ctx, orth_pattern *out, const char *name, const char *place)
{
    const OnigUChar *p = (const OnigUChar *)out->text, *end = p + out->num_bytes;
    const char *refused = find_refused(out->text, out->text + out->num_bytes);
    if (refused)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: %s \"%.200s\": %s is not supported in a pattern", name, place,
                         out->text, refused);
    orth_pattern_encoding(&out->encoding);
    onig_initialize(NULL, 0);
    OnigErrorInfo info = {0};
    const int r = onig_new(&out->code, p, end, ONIG_OPTION_NONE, &out->encoding, ONIG_SYNTAX_ONIGURUMA, &info);
    if (r == ONIG_NORMAL)
        return ORTH_OK;
    out->code = NULL;
    if (r == ONIGERR_MEMORY)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "tokenizer: no memory for a pattern");
    OnigUChar why[ONIG_MAX_ERROR_MESSAGE_LEN];
    onig_error_code_to_str(why, r, &info);
    return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: %s \"%.200s\": %s", name, place, out->text, (const char *)why);
}

orth_status orth_pattern_compile(orth_ctx *ctx, orth_arena *arena, orth_pattern *out, const char *pattern,
                                 size_t num_bytes, bool literal, const char *name, const char *place)
{
    char *copy = orth_arena_alloc(ctx, arena, num_bytes + 1);
    if (!copy)
        return ORTH_ERR_NOMEM;
    memcpy(copy, pattern, num_bytes);
    copy[num_bytes] = 0;
    *out = (orth_pattern){.text = copy, .num_bytes = num_bytes};
    /* The empty string is found between all characters, as an empty expression. */
    return literal && num_bytes > 0 ? ORTH_OK : compile(ctx, out, name, place);
}

void orth_pattern_free(orth_pattern *p)
{
    onig_free(p->code);
    p->code = NULL;
}

/* ---- matching ---- */

static orth_status matcher_prepare(orth_ctx *ctx, orth_matcher *m)
{
    if (m->param)
        return ORTH_OK;
    m->region = onig_region_new();
    m->param = onig_new_match_param();
    if (!m->region || !m->param) {
        orth_matcher_free(m);
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "tokenizer: no memory for matching patterns");
    }
    onig_initialize_match_param(m->param);
    onig_set_retry_limit_in_match_of_match_param(m->param, RETRIES_IN_MATCH);
    onig_set_match_stack_limit_size_of_match_param(m->param, STACK_ENTRIES);
    return ORTH_OK;
}

void orth_matcher_free(orth_matcher *m)
{
    if (m->region)
        onig_region_free(m->region, 1);
    if (m->param)
        onig_free_match_param(m->param);
    m->region = NULL;
    m->param = NULL;
}

static orth_status search_failed(orth_ctx *ctx, const orth_matches *ms, int r)
{
    if (r == ONIGERR_MEMORY)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "tokenizer: no memory to match the pattern \"%.200s\"", ms->pattern->text);
    OnigUChar why[ONIG_MAX_ERROR_MESSAGE_LEN];
    onig_error_code_to_str(why, r);
    return ORTH_FAIL(ctx, ORTH_ERR_DATA, "tokenizer: the pattern \"%.200s\" was given up at byte %zu of a text of %zu bytes: %s",
                     ms->pattern->text, ms->from, ms->num_bytes, (const char *)why);
}

/* onig_search from ms->from, within what is left of the text's retries. */
static int search_code(orth_matcher *m, orth_matches *ms)
{
    const OnigUChar *text = (const OnigUChar *)ms->text, *end = text + ms->num_bytes;
    const uint64_t limit = RETRIES_IN_TEXT + (uint64_t)RETRIES_PER_BYTE * ms->num_bytes;
    for (uint64_t retries = RETRIES_FIRST;; retries *= 4) {
        const uint64_t left = ms->retries < limit ? limit - ms->retries : 0;
        const uint64_t most = ORTH_MIN(retries, ORTH_MAX(left, RETRIES_FIRST)); /* to libonig, 0 is no limit */
        onig_set_retry_limit_in_search_of_match_param(m->param, most);
        const int r = onig_search_with_param(ms->pattern->code, text, end, text + ms->from, end, m->region, ONIG_OPTION_NONE,
                                             m->param);
        if (r != ONIGERR_RETRY_LIMIT_IN_SEARCH_OVER || most < retries) {
            ms->retries += retries > RETRIES_FIRST ? most : 0;
            return r;
        }
    }
}

static orth_status search(orth_ctx *ctx, orth_matcher *m, orth_matches *ms, bool *out_found)
{
    const orth_pattern *p = ms->pattern;
    if (!p->code) {
        const char *at = memmem(ms->text + ms->from, ms->num_bytes - ms->from, p->text, p->num_bytes);
        *out_found = at != NULL;
        ms->start = at ? (size_t)(at - ms->text) : 0;
        ms->stop = ms->start + p->num_bytes;
        return ORTH_OK;
    }
    if (ms->num_bytes > INT_MAX)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "tokenizer: a text of %zu bytes; patterns take at most %d", ms->num_bytes, INT_MAX);
    ORTH_TRY(matcher_prepare(ctx, m));
    const int r = search_code(m, ms);
    *out_found = r >= 0;
    if (r == ONIG_MISMATCH)
        return ORTH_OK;
    if (r < 0)
        return search_failed(ctx, ms, r);
    ms->start = (size_t)m->region->beg[0];
    ms->stop = (size_t)m->region->end[0];
    return ORTH_OK;
}

orth_status orth_matches_next(orth_ctx *ctx, orth_matcher *m, orth_matches *ms, bool *out_found)
{
    const size_t done = ms->any ? ms->stop : 0;
    while (ms->from <= ms->num_bytes) {
        ORTH_TRY(search(ctx, m, ms, out_found));
        if (!*out_found)
            return ORTH_OK;
        if (ms->start < done || ms->stop < ms->start) /* \K behind what was looked at */
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "tokenizer: the pattern \"%.200s\" matches what it has matched before, at "
                             "byte %zu", ms->pattern->text, ms->start);
        if (ms->start < ms->stop || !ms->any || ms->stop != done) {
            ms->from = ms->stop;
            ms->any = true;
            return ORTH_OK;
        }
        do /* on to the next character */
            ms->from++;
        while (ms->from < ms->num_bytes && ((unsigned char)ms->text[ms->from] & 0xC0) == 0x80);
    }
    *out_found = false;
    return ORTH_OK;
}
