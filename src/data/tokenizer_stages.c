/* tokenizer_stages.c -- the pre_tokenizer section of tokenizer.json -> stages. */
#include <string.h>

#include "data/tokenizer_section.h"

static const char *const behavior_names[] = {
    [ORTH_SPLIT_ISOLATED] = "Isolated",
    [ORTH_SPLIT_REMOVED] = "Removed",
    [ORTH_SPLIT_CONTIGUOUS] = "Contiguous",
    [ORTH_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
    [ORTH_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
};

static const char *const scheme_names[] = {
    [ORTH_PREPEND_ALWAYS] = "always",
    [ORTH_PREPEND_FIRST] = "first",
    [ORTH_PREPEND_NEVER] = "never",
};

static orth_status set_pattern(orth_section *s, const char *place, orth_stage *stage, const char *pattern,
                               size_t num_bytes)
{
    /* A scanner's words are all matches: it serves where matches are what is kept as it is. */
    const bool keeps = (stage->behavior == ORTH_SPLIT_ISOLATED && !stage->invert) ||
                       (stage->behavior == ORTH_SPLIT_REMOVED && stage->invert);
    if (keeps && !stage->literal)
        stage->scan = orth_scan_from_pattern(pattern, num_bytes);
    stage->cuts = true;
    if (stage->scan != ORTH_SCAN_NONE) {
        const char *text = orth_scan_pattern(stage->scan);
        stage->pattern = (orth_pattern){.text = text, .num_bytes = strlen(text)};
        return ORTH_OK;
    }
    return orth_pattern_compile(s->ctx, &s->tok->arena, &stage->pattern, pattern, num_bytes, stage->literal, s->name,
                                place);
}

static orth_status parse_split(orth_section *s, const json_t *j, const char *place, orth_stage *stage)
{
    const char *behavior = json_string_value(json_object_get(j, "behavior"));
    int b = 0;
    while (behavior && b < ORTH_COUNT(behavior_names) && strcmp(behavior, behavior_names[b]) != 0)
        b++;
    if (!behavior || b == ORTH_COUNT(behavior_names))
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s.behavior \"%.60s\" is not one of Isolated, Removed, "
                         "Contiguous, MergedWithPrevious, MergedWithNext", s->name, place,
                         behavior ? behavior : "(none)");
    stage->behavior = (orth_split_behavior)b;
    ORTH_TRY(orth_section_flag(s, j, place, "invert", &stage->invert));
    const char *pattern;
    size_t num_bytes;
    ORTH_TRY(orth_section_pattern_text(s, j, place, &pattern, &num_bytes, &stage->literal));
    return set_pattern(s, place, stage, pattern, num_bytes);
}

static orth_status parse_byte_level(orth_section *s, const json_t *j, const char *place, orth_stage *stage)
{
    bool use_regex = true;
    stage->add_prefix_space = true; /* Hugging Face's defaults where the file is silent */
    s->tok->byte_level = true;
    ORTH_TRY(orth_section_flag(s, j, place, "use_regex", &use_regex));
    ORTH_TRY(orth_section_flag(s, j, place, "add_prefix_space", &stage->add_prefix_space));
    if (!use_regex)
        return ORTH_OK;
    const char *gpt2 = orth_scan_pattern(ORTH_SCAN_GPT2);
    return set_pattern(s, place, stage, gpt2, strlen(gpt2));
}

/* "always" where the file is silent; files before version 0.15 say add_prefix_space instead. */
static orth_status parse_scheme(orth_section *s, const json_t *j, const char *place, orth_stage *stage)
{
    const json_t *v = json_object_get(j, "prepend_scheme");
    bool prefix = true;
    int k = 0;
    while (v && k < ORTH_COUNT(scheme_names) && strcmp(json_is_string(v) ? json_string_value(v) : "", scheme_names[k]) != 0)
        k++;
    if (k == ORTH_COUNT(scheme_names))
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s.prepend_scheme is not one of always, first, never", s->name, place);
    stage->prepend = (orth_prepend_scheme)k;
    if (json_is_null(json_object_get(j, "add_prefix_space")))
        return ORTH_OK;
    ORTH_TRY(orth_section_flag(s, j, place, "add_prefix_space", &prefix));
    if (!prefix && v && k != ORTH_PREPEND_NEVER)
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s.add_prefix_space is false, but prepend_scheme is %s", s->name, place,
                         scheme_names[k]);
    if (!prefix)
        stage->prepend = ORTH_PREPEND_NEVER;
    return ORTH_OK;
}

static orth_status parse_metaspace(orth_section *s, const json_t *j, const char *place, orth_stage *stage)
{
    const char *replacement = NULL;
    size_t num_bytes = 0;
    ORTH_TRY(orth_section_string(s, j, place, "replacement", &replacement, &num_bytes));
    int n = 0;
    if (num_bytes > 0)
        orth_utf8_at((const unsigned char *)replacement, &n);
    if (num_bytes == 0 || (size_t)n != num_bytes)
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s.replacement \"%.40s\" is not one character", s->name, place, replacement);
    stage->literal = stage->cuts = true;
    stage->behavior = ORTH_SPLIT_MERGED_WITH_NEXT;
    if (!json_is_null(json_object_get(j, "split")))
        ORTH_TRY(orth_section_flag(s, j, place, "split", &stage->cuts));
    ORTH_TRY(parse_scheme(s, j, place, stage));
    /* What is first is asked of the text as it was before any change. */
    if (stage->prepend == ORTH_PREPEND_FIRST && (s->tok->num_stages > 1 || s->tok->num_normalizers > 0))
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s.prepend_scheme \"first\" is supported only without a normalizer and as the "
                         "first step", s->name, place);
    return orth_pattern_compile(s->ctx, &s->tok->arena, &stage->pattern, replacement, num_bytes, true, s->name, place);
}

static orth_status parse_stage(orth_section *s, const json_t *j, const char *place);

static orth_status parse_sequence(orth_section *s, const json_t *j, const char *place)
{
    const json_t *list = json_object_get(j, "pretokenizers");
    if (!json_is_array(list) || strlen(place) > 200)
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s.pretokenizers is not a list", s->name, place);
    for (size_t i = 0; i < json_array_size(list); i++) {
        char inner[256];
        snprintf(inner, sizeof inner, "%s.pretokenizers[%zu]", place, i);
        ORTH_TRY(parse_stage(s, json_array_get(list, i), inner));
    }
    return ORTH_OK;
}

static orth_status parse_stage(orth_section *s, const json_t *j, const char *place)
{
    const char *type = orth_section_type(j);
    orth_tokenizer *tok = s->tok;
    if (strcmp(type, "Sequence") == 0)
        return parse_sequence(s, j, place);
    if (tok->num_stages == ORTH_MAX_STEPS)
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s: more than %d steps", s->name, place, ORTH_MAX_STEPS);
    if (tok->byte_level)
        return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s: nothing may follow ByteLevel", s->name, place);
    orth_stage *stage = &tok->stages[tok->num_stages++];
    if (strcmp(type, "Split") == 0) {
        stage->type = ORTH_STAGE_SPLIT;
        return parse_split(s, j, place, stage);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        stage->type = ORTH_STAGE_BYTE_LEVEL;
        return parse_byte_level(s, j, place, stage);
    }
    if (strcmp(type, "Metaspace") == 0) {
        stage->type = ORTH_STAGE_METASPACE;
        return parse_metaspace(s, j, place, stage);
    }
    if (strcmp(type, "Digits") == 0) {
        stage->type = ORTH_STAGE_DIGITS;
        return orth_section_flag(s, j, place, "individual_digits", &stage->individual_digits);
    }
    return ORTH_FAIL(s->ctx, ORTH_ERR_DATA, "%s: %s of type \"%.60s\" is not supported (null, Split, Digits, Metaspace, "
                     "ByteLevel, or a Sequence of them)", s->name, place, type);
}

orth_status orth_stages_parse(orth_ctx *ctx, orth_tokenizer *tok, const char *name)
{
    orth_section s = {.ctx = ctx, .tok = tok, .name = name};
    tok->stages = ORTH_ARENA_ARRAY(ctx, &tok->arena, orth_stage, ORTH_MAX_STEPS);
    if (!tok->stages)
        return ORTH_ERR_NOMEM;
    json_t *section;
    ORTH_TRY(orth_section_parse(&s, tok->pre_tokenizer_json, &section));
    const orth_status status = json_is_null(section) ? ORTH_OK : parse_stage(&s, section, "pre_tokenizer");
    json_decref(section);
    return status;
}

void orth_stages_free(orth_tokenizer *tok)
{
    for (int i = 0; i < tok->num_stages; i++)
        orth_pattern_free(&tok->stages[i].pattern);
}

orth_scan_kind orth_stages_single_scan(const orth_tokenizer *tok)
{
    orth_scan_kind scan = ORTH_SCAN_NONE;
    for (int i = 0; i < tok->num_stages; i++) {
        const orth_stage *s = &tok->stages[i];
        if (s->add_prefix_space || s->type == ORTH_STAGE_DIGITS || s->type == ORTH_STAGE_METASPACE ||
            (s->cuts && !s->scan) || (s->scan && scan))
            return ORTH_SCAN_NONE;
        if (s->scan)
            scan = s->scan;
    }
    return tok->byte_level ? scan : ORTH_SCAN_NONE;
}
