/* tokenizer_normalize.c -- the normalizer section of tokenizer.json -> steps, and running them over a text. */
#include <string.h>

#include "data/tokenizer_section.h"

static const char *const type_names[] = {
    [ORTH_NORMALIZE_NFC] = "NFC",       [ORTH_NORMALIZE_NFD] = "NFD",         [ORTH_NORMALIZE_NFKC] = "NFKC",
    [ORTH_NORMALIZE_NFKD] = "NFKD",     [ORTH_NORMALIZE_LOWERCASE] = "Lowercase", [ORTH_NORMALIZE_STRIP] = "Strip",
    [ORTH_NORMALIZE_PREPEND] = "Prepend", [ORTH_NORMALIZE_REPLACE] = "Replace",
};

/* ---- parsing ---- */

static orth_status parse_replace(orth_section *s, const json_t *j, const char *place, orth_normalizer *step)
{
    const char *pattern;
    size_t num_bytes;
    ORTH_TRY(orth_section_string(s, j, place, "content", &step->content, &step->content_bytes));
    ORTH_TRY(orth_section_pattern_text(s, j, place, &pattern, &num_bytes, &step->literal));
    return orth_pattern_compile(s->ctx, &s->tok->arena, &step->pattern, pattern, num_bytes, step->literal, s->name, place);
}

static orth_status parse_strip(orth_section *s, const json_t *j, const char *place, orth_normalizer *step)
{
    step->left = step->right = true;
    ORTH_TRY(orth_section_flag(s, j, place, "strip_left", &step->left));
    return orth_section_flag(s, j, place, "strip_right", &step->right);
}

static orth_status parse_step(orth_section *s, const json_t *j, const char *place);

static orth_status parse_sequence(orth_section *s, const json_t *j, const char *place)
{
    const json_t *list = json_object_get(j, "normalizers");
    if (!json_is_array(list) || strlen(place) > 200)
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s.normalizers is not a list", s->name, place);
    for (size_t i = 0; i < json_array_size(list); i++) {
        char inner[256];
        snprintf(inner, sizeof inner, "%s.normalizers[%zu]", place, i);
        ORTH_TRY(parse_step(s, json_array_get(list, i), inner));
    }
    return ORTH_OK;
}

static orth_status parse_step(orth_section *s, const json_t *j, const char *place)
{
    const char *type = orth_section_type(j);
    orth_tokenizer *tok = s->tok;
    if (strcmp(type, "Sequence") == 0)
        return parse_sequence(s, j, place);
    int k = 0;
    while (k < ORTH_COUNT(type_names) && strcmp(type, type_names[k]) != 0)
        k++;
    if (k == ORTH_COUNT(type_names))
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s of type \"%.60s\" is not supported (null, NFC, NFD, NFKC, NFKD, Lowercase, "
                         "Strip, Prepend, Replace, or a Sequence of them)", s->name, place, type);
    if (tok->num_normalizers == ORTH_MAX_STEPS)
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s: more than %d steps", s->name, place, ORTH_MAX_STEPS);
    orth_normalizer *step = &tok->normalizers[tok->num_normalizers++];
    step->type = (orth_normalizer_type)k;
    if (step->type == ORTH_NORMALIZE_REPLACE)
        return parse_replace(s, j, place, step);
    if (step->type == ORTH_NORMALIZE_PREPEND)
        return orth_section_string(s, j, place, "prepend", &step->content, &step->content_bytes);
    return step->type == ORTH_NORMALIZE_STRIP ? parse_strip(s, j, place, step) : ORTH_OK;
}

orth_status orth_normalizers_parse(orth_ctx *ctx, orth_tokenizer *tok, const char *name)
{
    orth_section s = {.ctx = ctx, .tok = tok, .name = name};
    tok->normalizers = ORTH_ARENA_ARRAY(ctx, &tok->arena, orth_normalizer, ORTH_MAX_STEPS);
    if (!tok->normalizers)
        return ORTH_ERR_NOMEM;
    json_t *section;
    ORTH_TRY(orth_section_parse(&s, tok->normalizer_json, &section));
    const orth_status status = json_is_null(section) ? ORTH_OK : parse_step(&s, section, "normalizer");
    json_decref(section);
    tok->only_nfc = tok->num_normalizers > 0;
    for (int i = 0; i < tok->num_normalizers; i++)
        tok->only_nfc = tok->only_nfc && tok->normalizers[i].type == ORTH_NORMALIZE_NFC;
    return status;
}

void orth_normalizers_free(orth_tokenizer *tok)
{
    for (int i = 0; i < tok->num_normalizers; i++)
        orth_pattern_free(&tok->normalizers[i].pattern);
}

/* ---- running ---- */

static void strip(const uint8_t *classes, bool left, bool right, const char **text, size_t *num_bytes)
{
    const char *p = *text, *end = p + *num_bytes;
    int n;
    while (left && p < end && (orth_char_class(classes, orth_utf8_at((const unsigned char *)p, &n)) & ORTH_CHAR_SPACE))
        p += n;
    while (right && p < end) {
        const char *last = end - 1;
        while (((unsigned char)*last & 0xC0) == 0x80)
            last--;
        if (!(orth_char_class(classes, orth_utf8_at((const unsigned char *)last, &n)) & ORTH_CHAR_SPACE))
            break;
        end = last;
    }
    *text = p;
    *num_bytes = (size_t)(end - p);
}

static orth_status replace(orth_ctx *ctx, const orth_normalizer *step, orth_matcher *matcher, orth_bytes *out,
                           const char *text, size_t num_bytes)
{
    orth_matches m = {.pattern = &step->pattern, .text = text, .num_bytes = num_bytes};
    size_t done = 0;
    for (bool found;; done = m.stop) {
        ORTH_TRY(orth_matches_next(ctx, matcher, &m, &found));
        if (!found)
            return orth_bytes_append(ctx, out, text + done, num_bytes - done);
        ORTH_TRY(orth_bytes_append(ctx, out, text + done, m.start - done));
        ORTH_TRY(orth_bytes_append(ctx, out, step->content, step->content_bytes));
    }
}

/* Appends the text as the step leaves it, or sets *same. */
static orth_status run_step(orth_ctx *ctx, const orth_tokenizer *tok, const orth_normalizer *step, orth_matcher *matcher,
                            orth_bytes *out, bool *same, const char *text, size_t num_bytes)
{
    switch (step->type) {
    case ORTH_NORMALIZE_LOWERCASE:
        return orth_lowercase(ctx, out, text, num_bytes);
    case ORTH_NORMALIZE_PREPEND:
        ORTH_TRY(orth_bytes_append(ctx, out, step->content, step->content_bytes));
        return orth_bytes_append(ctx, out, text, num_bytes);
    case ORTH_NORMALIZE_REPLACE:
        return replace(ctx, step, matcher, out, text, num_bytes);
    default:
        return orth_normal_form(ctx, tok->classes, step->type, out, same, text, num_bytes);
    }
}

orth_status orth_normalize(orth_ctx *ctx, const orth_tokenizer *tok, orth_matcher *matcher, orth_bytes buffers[2],
                           const char **text, size_t *num_bytes, orth_text_part part)
{
    int which = 0;
    for (int i = 0; i < tok->num_normalizers && *num_bytes > 0; i++) {
        const orth_normalizer *step = &tok->normalizers[i];
        if (step->type == ORTH_NORMALIZE_STRIP) {
            strip(tok->classes, step->left && !part.continues, step->right && !part.goes_on, text, num_bytes);
            continue;
        }
        if (step->type == ORTH_NORMALIZE_PREPEND && part.continues)
            continue;
        orth_bytes *out = &buffers[which];
        bool same = false;
        out->num = 0;
        ORTH_TRY(run_step(ctx, tok, step, matcher, out, &same, *text, *num_bytes));
        if (same)
            continue;
        *text = out->v;
        *num_bytes = out->num;
        which = !which;
    }
    return ORTH_OK;
}
