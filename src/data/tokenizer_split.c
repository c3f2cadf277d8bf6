/* tokenizer_split.c -- running the stages of a pre-tokenizer over a text, by any pattern (PCRE2).
 *
 * Each stage turns the list of pieces into a finer one. What the stages are is parsed in
 * tokenizer_stages.c; the well-known patterns are scanned by tokenizer_scan.c.
 */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>
#include <string.h>

#include "data/tokenizer_impl.h"

/* A hostile pattern ends here instead of running for hours. */
#define MATCH_LIMIT 10000000
#define JIT_STACK_MAX ((size_t)16 << 20)

orth_status orth_splitter_init(orth_ctx *ctx, orth_splitter *s, const orth_tokenizer *tok)
{
    memset(s, 0, sizeof *s);
    bool needed = false;
    for (int i = 0; i < tok->num_stages; i++)
        needed = needed || tok->stages[i].code;
    if (!needed)
        return ORTH_OK;
    /* Not through the tokenizer's general context: that counts bytes in the ctx it was made with. */
    s->match = pcre2_match_data_create(1, NULL);
    s->match_context = pcre2_match_context_create(NULL);
    s->jit_stack = pcre2_jit_stack_create((size_t)64 << 10, JIT_STACK_MAX, NULL);
    if (!s->match || !s->match_context || !s->jit_stack)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "tokenizer: no memory for matching patterns");
    pcre2_set_match_limit(s->match_context, MATCH_LIMIT);
    pcre2_jit_stack_assign(s->match_context, NULL, s->jit_stack);
    return ORTH_OK;
}

void orth_splitter_free(orth_ctx *ctx, orth_splitter *s)
{
    pcre2_match_data_free(s->match);
    pcre2_match_context_free(s->match_context);
    pcre2_jit_stack_free(s->jit_stack);
    orth_mem_free(ctx, s->in.v);
    orth_mem_free(ctx, s->out.v);
    orth_bytes_free(ctx, &s->prefixed);
    memset(s, 0, sizeof *s);
}

static orth_status reserve_piece(orth_ctx *ctx, orth_pieces *a)
{
    if (a->num < a->cap)
        return ORTH_OK;
    const int64_t cap = ORTH_MAX(2 * a->cap, 256);
    orth_piece *v = orth_mem_realloc(ctx, a->v, (size_t)cap * sizeof *v);
    if (!v)
        return ORTH_ERR_NOMEM;
    a->v = v;
    a->cap = cap;
    return ORTH_OK;
}

/* Collects the parts of one piece by the rules of a behavior. Parts arrive left to right without gaps. */
typedef struct {
    orth_pieces *out;
    int64_t first;              /* where this piece's parts begin in out */
    orth_split_behavior behavior;
    bool invert, was_match;     /* was_match: of the part before */
} joiner;

static orth_status join_part(orth_ctx *ctx, joiner *j, const char *p, size_t num_bytes, bool match)
{
    orth_pieces *out = j->out;
    const bool before = j->was_match, any = out->num > j->first;
    bool glue = false; /* to the part before */
    match = match != j->invert;
    j->was_match = match;
    switch (j->behavior) {
    case ORTH_SPLIT_ISOLATED:
        break;
    case ORTH_SPLIT_REMOVED:
        if (match)
            return ORTH_OK;
        break;
    case ORTH_SPLIT_CONTIGUOUS:
        glue = any && match == before;
        break;
    case ORTH_SPLIT_MERGED_WITH_PREVIOUS:
        glue = any && match && !before;
        break;
    case ORTH_SPLIT_MERGED_WITH_NEXT:
        glue = any && before && !match;
        break;
    }
    if (glue) {
        out->v[out->num - 1].num_bytes += num_bytes;
        return ORTH_OK;
    }
    ORTH_TRY(reserve_piece(ctx, out));
    out->v[out->num++] = (orth_piece){.p = p, .num_bytes = num_bytes};
    return ORTH_OK;
}

static orth_status split_scan(orth_ctx *ctx, joiner *j, const orth_tokenizer *tok, const orth_stage *stage,
                              orth_piece piece)
{
    const char *ends[256], *p = piece.p, *end = p + piece.num_bytes;
    while (p < end) {
        const int n = orth_scan_words(stage->scan, tok->classes, p, end, ends, ORTH_COUNT(ends));
        for (int i = 0; i < n; p = ends[i++])
            ORTH_TRY(join_part(ctx, j, p, (size_t)(ends[i] - p), true));
    }
    return ORTH_OK;
}

static orth_status split_pattern(orth_ctx *ctx, orth_splitter *s, joiner *j, const orth_stage *stage,
                                 orth_piece piece)
{
    const PCRE2_SIZE *ov = pcre2_get_ovector_pointer(s->match);
    size_t done = 0, from = 0;
    while (from < piece.num_bytes) {
        const int rc = pcre2_match(stage->code, (PCRE2_SPTR)piece.p, piece.num_bytes, from,
                                   PCRE2_NO_UTF_CHECK, s->match, s->match_context);
        if (rc == PCRE2_ERROR_NOMATCH)
            break;
        if (rc < 0)
            return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                             "tokenizer: pattern \"%.200s\": PCRE2 gave up with error %d on "
                             "a text of %zu bytes",
                             stage->pattern, rc, piece.num_bytes);
        const size_t start = ORTH_MAX(ov[0], done), stop = ORTH_MAX(ov[1], start);
        if (stop == start) { /* an empty match cuts nothing: look again behind the next character */
            int n;
            orth_utf8_at((const unsigned char *)piece.p + ORTH_MIN(start, piece.num_bytes - 1), &n);
            from = ORTH_MAX(start, from) + (size_t)n;
            continue;
        }
        if (start > done)
            ORTH_TRY(join_part(ctx, j, piece.p + done, start - done, false));
        ORTH_TRY(join_part(ctx, j, piece.p + start, stop - start, true));
        done = from = stop;
    }
    if (done < piece.num_bytes)
        ORTH_TRY(join_part(ctx, j, piece.p + done, piece.num_bytes - done, false));
    return ORTH_OK;
}

/* Numbers by themselves, or runs of them; what is between stays together. */
static orth_status split_digits(orth_ctx *ctx, joiner *j, const orth_tokenizer *tok, const orth_stage *stage,
                                orth_piece piece)
{
    const char *p = piece.p, *end = p + piece.num_bytes, *start = p;
    bool number = false; /* of the run from start on */
    while (p < end) {
        int n;
        const uint32_t c = orth_utf8_at((const unsigned char *)p, &n);
        const bool is = orth_char_class(tok->classes, c) & ORTH_CHAR_NUMBER;
        if (p > start && (is != number || (is && stage->individual_digits))) {
            ORTH_TRY(join_part(ctx, j, start, (size_t)(p - start), number));
            start = p;
        }
        number = is;
        p += n;
    }
    return join_part(ctx, j, start, (size_t)(end - start), number);
}

/* Gives the piece a leading space if it has none; its text then lives in s->prefixed, which has room. */
static void prefix_space(orth_splitter *s, orth_piece *piece)
{
    if (piece->p[0] == ' ')
        return;
    char *at = s->prefixed.v + s->prefixed.num;
    at[0] = ' ';
    memcpy(at + 1, piece->p, piece->num_bytes);
    s->prefixed.num += piece->num_bytes + 1;
    *piece = (orth_piece){.p = at, .num_bytes = piece->num_bytes + 1};
}

static orth_status split_piece(orth_ctx *ctx, orth_splitter *s, const orth_tokenizer *tok,
                               const orth_stage *stage, orth_piece piece)
{
    joiner j = {.out = &s->out, .first = s->out.num, .behavior = stage->behavior, .invert = stage->invert};
    if (stage->type == ORTH_STAGE_DIGITS)
        return split_digits(ctx, &j, tok, stage, piece);
    if (stage->scan != ORTH_SCAN_NONE)
        return split_scan(ctx, &j, tok, stage, piece);
    if (stage->code)
        return split_pattern(ctx, s, &j, stage, piece);
    ORTH_TRY(reserve_piece(ctx, &s->out)); /* ByteLevel without its pattern, or an empty one */
    s->out.v[s->out.num++] = piece;
    return ORTH_OK;
}

orth_status orth_splitter_run(orth_ctx *ctx, orth_splitter *s, const orth_tokenizer *tok, const char *text,
                              size_t num_bytes)
{
    s->in.num = 0;
    if (num_bytes == 0)
        return ORTH_OK;
    ORTH_TRY(reserve_piece(ctx, &s->in));
    s->in.v[s->in.num++] = (orth_piece){.p = text, .num_bytes = num_bytes};
    for (int k = 0; k < tok->num_stages; k++) {
        const orth_stage *stage = &tok->stages[k];
        if (stage->add_prefix_space) {
            s->prefixed.num = 0; /* there is one such stage: ByteLevel comes last */
            ORTH_TRY(orth_bytes_reserve(ctx, &s->prefixed, num_bytes + (size_t)s->in.num));
        }
        s->out.num = 0;
        for (int64_t i = 0; i < s->in.num; i++) {
            if (stage->add_prefix_space)
                prefix_space(s, &s->in.v[i]);
            ORTH_TRY(split_piece(ctx, s, tok, stage, s->in.v[i]));
        }
        const orth_pieces swap = s->in;
        s->in = s->out;
        s->out = swap;
    }
    return ORTH_OK;
}
