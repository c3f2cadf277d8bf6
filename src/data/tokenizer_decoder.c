/* tokenizer_decoder.c -- ids -> text, and the decoder section of tokenizers of characters.
 *
 * Hugging Face's decoders rewrite a list of strings, one step after the other. The ones that tokenizers of characters
 * come with change each token by itself until Fuse makes one string of them, of which Strip then takes the start. So
 * what a token stands for is known when the file is read (orth_decoder_token), and only the start of a text is
 * special. What tokens of bytes stand for is given out as it is, well-formed or not; `tokenizers` has U+FFFD for what
 * is not. */
#include <string.h>

#include "data/tokenizer_section.h"

/* ---- parsing ---- */

typedef struct {
    orth_section *s;
    orth_token_decoder *d;
    bool fused;                 /* the step before made one string */
    bool ended;                 /* Metaspace or Strip was last */
} decoder_parser;

static orth_status refuse(decoder_parser *ps, const char *place, const char *why)
{
    return ORTH_FAIL(ps->s->ctx, ORTH_ERR_DATA, "%s: %s: %s", ps->s->name, place, why);
}

static orth_status parse_replace(decoder_parser *ps, const json_t *j, const char *place)
{
    const char *pattern;
    size_t num_bytes;
    bool literal;
    orth_token_decoder *d = ps->d;
    if (d->byte_tokens || ps->fused || d->num_replace == ORTH_MAX_STEPS)
        return refuse(ps, place, "Replace is supported only before ByteFallback and Fuse");
    ORTH_TRY(orth_section_pattern_text(ps->s, j, place, &pattern, &num_bytes, &literal));
    if (!literal || num_bytes == 0)
        return refuse(ps, place, "Replace is supported only with a pattern {\"String\": \"...\"}");
    ORTH_TRY(orth_section_string(ps->s, j, place, "content", &d->replace[d->num_replace].to, &num_bytes));
    return orth_section_string(ps->s, json_object_get(j, "pattern"), place, "String", &d->replace[d->num_replace++].from,
                               &num_bytes);
}

static orth_status parse_strip(decoder_parser *ps, const json_t *j, const char *place)
{
    const json_t *start = json_object_get(j, "start"), *stop = json_object_get(j, "stop");
    size_t num_bytes;
    ORTH_TRY(orth_section_string(ps->s, j, place, "content", &ps->d->strip, &num_bytes));
    if (!ps->fused || json_integer_value(stop) != 0 || !json_is_integer(start) || num_bytes == 0)
        return refuse(ps, place, "Strip is supported only behind Fuse, with \"stop\": 0");
    ps->d->strip_max = json_integer_value(start);
    ps->ended = true;
    return ORTH_OK;
}

static orth_status parse_metaspace(decoder_parser *ps, const json_t *j, const char *place)
{
    const json_t *scheme = json_object_get(j, "prepend_scheme");
    orth_token_decoder *d = ps->d;
    size_t num_bytes;
    if (d->num_replace > 0 || d->byte_tokens || ps->fused)
        return refuse(ps, place, "Metaspace is supported only by itself");
    ORTH_TRY(orth_section_string(ps->s, j, place, "replacement", &d->replace[0].from, &num_bytes));
    bool drops = true;
    if (!json_is_null(json_object_get(j, "add_prefix_space")))
        ORTH_TRY(orth_section_flag(ps->s, j, place, "add_prefix_space", &drops));
    d->metaspace_drops = drops && !(json_is_string(scheme) && strcmp(json_string_value(scheme), "never") == 0);
    d->replace[0].to = " ";
    d->num_replace = 1;
    ps->ended = true;
    return num_bytes > 0 ? ORTH_OK : refuse(ps, place, "the replacement is empty");
}

static orth_status parse_step(decoder_parser *ps, const json_t *j, const char *place)
{
    const char *type = orth_section_type(j);
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(j, "decoders");
        if (!json_is_array(list) || strlen(place) > 200)
            return refuse(ps, place, "decoders is not a list");
        for (size_t i = 0; i < json_array_size(list); i++) {
            char inner[256];
            snprintf(inner, sizeof inner, "%s.decoders[%zu]", place, i);
            ORTH_TRY(parse_step(ps, json_array_get(list, i), inner));
        }
        return ORTH_OK;
    }
    if (ps->ended)
        return refuse(ps, place, "nothing may follow Strip or Metaspace");
    if (strcmp(type, "Replace") == 0)
        return parse_replace(ps, j, place);
    if (strcmp(type, "Strip") == 0)
        return parse_strip(ps, j, place);
    if (strcmp(type, "Metaspace") == 0)
        return parse_metaspace(ps, j, place);
    if (strcmp(type, "ByteFallback") == 0 && !ps->fused)
        ps->d->byte_tokens = true;
    else if (strcmp(type, "Fuse") == 0)
        ps->fused = true;
    else
        return ORTH_FAIL(ps->s->ctx, ORTH_ERR_DATA, "%s: %s of type \"%.60s\" is not supported here (null, Replace, ByteFallback, "
                         "Fuse, Strip, Metaspace, or a Sequence of them)", ps->s->name, place, type);
    return ORTH_OK;
}

orth_status orth_decoder_parse(orth_ctx *ctx, orth_tokenizer *tok, const char *name)
{
    orth_section s = {.ctx = ctx, .tok = tok, .name = name};
    decoder_parser ps = {.s = &s, .d = &tok->decoder};
    json_t *section;
    ORTH_TRY(orth_section_parse(&s, tok->decoder_json, &section));
    tok->decoder.spaces = json_is_null(section);
    const orth_status status = tok->decoder.spaces ? ORTH_OK : parse_step(&ps, section, "decoder");
    json_decref(section);
    return status;
}

/* ---- tokens ---- */

int orth_byte_token(const char *content, size_t num_bytes)
{
    static const char digits[] = "0123456789ABCDEF0123456789abcdef";
    if (num_bytes != 6 || memcmp(content, "<0x", 3) != 0 || content[5] != '>')
        return -1;
    const char *high = memchr(digits, content[3], 32), *low = memchr(digits, content[4], 32);
    return high && low ? (int)((high - digits) % 16 * 16 + (low - digits) % 16) : -1;
}

/* Appends text with all `from` replaced by `to`. */
static orth_status append_replaced(orth_ctx *ctx, orth_bytes *out, const char *p, const char *end, const char *from,
                                   const char *to)
{
    const size_t n = strlen(from);
    while (p < end) {
        const bool here = (size_t)(end - p) >= n && memcmp(p, from, n) == 0;
        ORTH_TRY(orth_bytes_append(ctx, out, here ? to : p, here ? strlen(to) : 1));
        p += here ? n : 1;
    }
    return ORTH_OK;
}

orth_status orth_decoder_token(orth_ctx *ctx, const orth_token_decoder *d, orth_bytes buffers[2], const char **content,
                               size_t *num_bytes)
{
    int which = 0;
    for (int i = 0; i < d->num_replace; i++, which = !which) {
        orth_bytes *to = &buffers[which];
        to->num = 0;
        ORTH_TRY(append_replaced(ctx, to, *content, *content + *num_bytes, d->replace[i].from, d->replace[i].to));
        *content = to->v;
        *num_bytes = to->num;
    }
    const int byte = d->byte_tokens ? orth_byte_token(*content, *num_bytes) : -1;
    if (byte < 0)
        return ORTH_OK;
    const char one = (char)byte;
    buffers[which].num = 0;
    ORTH_TRY(orth_bytes_append(ctx, &buffers[which], &one, 1));
    *content = buffers[which].v;
    *num_bytes = 1;
    return ORTH_OK;
}

/* ---- texts ---- */

/* A token where the text begins, or behind nothing but what was stripped. */
static orth_status append_first(orth_ctx *ctx, const orth_tokenizer *tok, orth_decoding *at, orth_bytes *out, const orth_token *t)
{
    const orth_token_decoder *d = &tok->decoder;
    if (d->metaspace_drops)
        return append_replaced(ctx, out, t->content, t->content + t->content_bytes, d->replace[0].from, "");
    const size_t n = d->strip ? strlen(d->strip) : 0;
    const char *p = t->bytes;
    size_t left = t->num_bytes;
    while (n > 0 && at->num_stripped < d->strip_max && left >= n && memcmp(p, d->strip, n) == 0) {
        p += n;
        left -= n;
        at->num_stripped++;
    }
    return orth_bytes_append(ctx, out, p, left);
}

static orth_status append_token(orth_ctx *ctx, const orth_tokenizer *tok, orth_decoding *at, orth_bytes *out, const orth_token *t)
{
    const bool first = tok->decoder.metaspace_drops ? at->num_tokens == 0 : !at->begun;
    if (tok->decoder.spaces && at->num_tokens > 0)
        ORTH_TRY(orth_bytes_append(ctx, out, " ", 1));
    const size_t before = out->num;
    if (!first || tok->byte_level)
        ORTH_TRY(orth_bytes_append(ctx, out, t->bytes, t->num_bytes));
    else
        ORTH_TRY(append_first(ctx, tok, at, out, t));
    at->num_tokens++;
    at->begun = at->begun || out->num > before;
    return ORTH_OK;
}

orth_status orth_tokenizer_decode_on(orth_ctx *ctx, const orth_tokenizer *tok, orth_decoding *at, orth_bytes *out,
                                     const int32_t *ids, int64_t num_ids, bool skip_special)
{
    const size_t before = out->num;
    const orth_decoding start = *at;
    orth_status status = ORTH_OK;
    for (int64_t i = 0; i < num_ids && status == ORTH_OK; i++) {
        const bool used = ids[i] >= 0 && ids[i] < tok->num_ids && (tok->tokens[ids[i]].flags & ORTH_TOKEN_USED);
        if (!used)
            status = ORTH_FAIL(ctx, ORTH_ERR_DATA, "token %lld of %lld has id %d: not in the vocabulary of %lld", (long long)i,
                               (long long)num_ids, (int)ids[i], (long long)tok->num_ids);
        else if (!skip_special || !(tok->tokens[ids[i]].flags & ORTH_TOKEN_SPECIAL))
            status = append_token(ctx, tok, at, out, &tok->tokens[ids[i]]);
    }
    if (status != ORTH_OK) {
        out->num = before;
        *at = start;
    }
    return status;
}

orth_status orth_tokenizer_decode(orth_ctx *ctx, const orth_tokenizer *tok, orth_bytes *out, const int32_t *ids,
                                  int64_t num_ids, bool skip_special)
{
    orth_decoding at = {0};
    return orth_tokenizer_decode_on(ctx, tok, &at, out, ids, num_ids, skip_special);
}
