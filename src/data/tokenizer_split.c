/* tokenizer_split.c -- running the stages of a pre-tokenizer over a text.
 *
 * Each stage turns the list of pieces into a finer one. What the stages are is parsed in
 * tokenizer_stages.c; the well-known patterns are scanned by tokenizer_scan.c, all others are
 * matched by tokenizer_pattern.c.
 */
#include <string.h>

#include "data/tokenizer_impl.h"

void orth_splitter_free(orth_ctx *ctx, orth_splitter *s)
{
    orth_matcher_free(&s->matcher);
    orth_mem_free(ctx, s->in.v);
    orth_mem_free(ctx, s->out.v);
    orth_bytes_free(ctx, &s->changed[0]);
    orth_bytes_free(ctx, &s->changed[1]);
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

/* Collects the parts of one piece by the rules of a behavior. Parts arrive left to right without gaps; a part may be empty,
 * which counts for its neighbours and is dropped at the end. */
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
    orth_matches m = {.pattern = &stage->pattern, .text = piece.p, .num_bytes = piece.num_bytes};
    size_t done = 0;
    for (bool found;; done = m.stop) {
        ORTH_TRY(orth_matches_next(ctx, &s->matcher, &m, &found));
        if (!found)
            break;
        ORTH_TRY(orth_ctx_check_stop(ctx));
        if (m.start > done)
            ORTH_TRY(join_part(ctx, j, piece.p + done, m.start - done, false));
        ORTH_TRY(join_part(ctx, j, piece.p + m.start, m.stop - m.start, true));
    }
    if (done < piece.num_bytes)
        ORTH_TRY(join_part(ctx, j, piece.p + done, piece.num_bytes - done, false));
    orth_pieces *out = j->out;
    int64_t kept = j->first;
    for (int64_t i = j->first; i < out->num; i++) {
        if (out->v[i].num_bytes > 0)
            out->v[kept++] = out->v[i];
    }
    out->num = kept;
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
        const bool is = orth_char_class(tok->classes, c) & ORTH_CHAR_NUMERIC;
        if (p > start && (is != number || (is && stage->individual_digits))) {
            ORTH_TRY(join_part(ctx, j, start, (size_t)(p - start), number));
            start = p;
        }
        number = is;
        p += n;
    }
    return join_part(ctx, j, start, (size_t)(end - start), number);
}

/* ---- stages that change the text of pieces ---- */

/* Copies the piece to `out`, which has room, with its spaces replaced and `prefix` before it if it does not begin with that. */
static void change_piece(orth_bytes *out, orth_piece *piece, const char *space, size_t space_bytes, const char *prefix,
                         size_t prefix_bytes)
{
    char *start = out->v + out->num, *at = start + prefix_bytes;
    for (size_t i = 0; i < piece->num_bytes; i++) {
        if (piece->p[i] == ' ') {
            memcpy(at, space, space_bytes);
            at += space_bytes;
        } else
            *at++ = piece->p[i];
    }
    const char *text = start + prefix_bytes;
    if ((size_t)(at - text) >= prefix_bytes && memcmp(text, prefix, prefix_bytes) == 0)
        *piece = (orth_piece){.p = text, .num_bytes = (size_t)(at - text)};
    else {
        memcpy(start, prefix, prefix_bytes);
        *piece = (orth_piece){.p = start, .num_bytes = (size_t)(at - start)};
    }
    out->num = (size_t)(at - out->v);
}

/* The pieces of s->in with what ByteLevel or Metaspace puts into them; their text then lies in s->changed[which]. text: where the first of all
 * texts begins, NULL: it is not in these. The first piece gets no prefix if the text continues. */
static orth_status change_pieces(orth_ctx *ctx, orth_splitter *s, const orth_stage *stage, const char *text, bool continues, int which)
{
    const bool meta = stage->type == ORTH_STAGE_METASPACE;
    const char *space = meta ? stage->pattern.text : " ";
    const size_t n = meta ? stage->pattern.num_bytes : 1;
    size_t total = 0;
    for (int64_t i = 0; i < s->in.num; i++)
        total += s->in.v[i].num_bytes * n + n;
    orth_bytes *out = &s->changed[which];
    out->num = 0;
    ORTH_TRY(orth_bytes_reserve(ctx, out, total));
    for (int64_t i = 0; i < s->in.num; i++) {
        const bool first = s->in.v[i].p == text;
        const bool wanted = !meta || stage->prepend == ORTH_PREPEND_ALWAYS || (stage->prepend == ORTH_PREPEND_FIRST && first);
        const bool prefix = wanted && !(continues && i == 0);
        change_piece(out, &s->in.v[i], space, n, space, prefix ? n : 0);
    }
    return ORTH_OK;
}

/* ---- all stages ---- */

static orth_status split_piece(orth_ctx *ctx, orth_splitter *s, const orth_tokenizer *tok,
                               const orth_stage *stage, orth_piece piece)
{
    joiner j = {.out = &s->out, .first = s->out.num, .behavior = stage->behavior, .invert = stage->invert};
    if (stage->type == ORTH_STAGE_DIGITS)
        return split_digits(ctx, &j, tok, stage, piece);
    if (stage->scan != ORTH_SCAN_NONE)
        return split_scan(ctx, &j, tok, stage, piece);
    if (stage->cuts)
        return split_pattern(ctx, s, &j, stage, piece);
    ORTH_TRY(reserve_piece(ctx, &s->out)); /* ByteLevel without its pattern, Metaspace without cuts */
    s->out.v[s->out.num++] = piece;
    return ORTH_OK;
}

orth_status orth_splitter_run(orth_ctx *ctx, orth_splitter *s, const orth_tokenizer *tok, const char *text,
                              size_t num_bytes, bool first, bool continues)
{
    s->in.num = 0;
    if (num_bytes == 0)
        return ORTH_OK;
    ORTH_TRY(reserve_piece(ctx, &s->in));
    s->in.v[s->in.num++] = (orth_piece){.p = text, .num_bytes = num_bytes};
    int changes = 0;
    for (int k = 0; k < tok->num_stages; k++) {
        const orth_stage *stage = &tok->stages[k];
        if (stage->add_prefix_space || stage->type == ORTH_STAGE_METASPACE)
            ORTH_TRY(change_pieces(ctx, s, stage, first ? text : NULL, continues, changes++ % 2));
        s->out.num = 0;
        for (int64_t i = 0; i < s->in.num; i++)
            ORTH_TRY(split_piece(ctx, s, tok, stage, s->in.v[i]));
        const orth_pieces swap = s->in;
        s->in = s->out;
        s->out = swap;
    }
    return ORTH_OK;
}
