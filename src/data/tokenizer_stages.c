/* tokenizer_stages.c -- the normalizer and pre_tokenizer sections of tokenizer.json -> stages. */
#define PCRE2_CODE_UNIT_WIDTH 8
#include <jansson.h>
#include <pcre2.h>
#include <string.h>

#include "data/tokenizer_impl.h"

#define MAX_STAGES 16
#define MAX_PATTERN_BYTES 8192
/* \s and \w as the members of a class. PCRE2's own \s has U+180E, which is no white space any more; its \w
 * has marks since 10.43 only. */
#define SPACES "\\t-\\r\\x{85}\\p{Z}"
#define WORDS "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}"

static const char *const behavior_names[] = {
    [ORTH_SPLIT_ISOLATED] = "Isolated",
    [ORTH_SPLIT_REMOVED] = "Removed",
    [ORTH_SPLIT_CONTIGUOUS] = "Contiguous",
    [ORTH_SPLIT_MERGED_WITH_PREVIOUS] = "MergedWithPrevious",
    [ORTH_SPLIT_MERGED_WITH_NEXT] = "MergedWithNext",
};

typedef struct {
    orth_ctx *ctx;
    orth_tokenizer *tok;
    const char *name;           /* of the file */
} parser;

static const char *type_of(const json_t *j)
{
    const char *s = json_string_value(json_object_get(j, "type"));
    return s ? s : "(none)";
}

static orth_status parse_flag(parser *ps, const json_t *j, const char *place, const char *key, bool *out)
{
    const json_t *v = json_object_get(j, key);
    if (!v)
        return ORTH_OK; /* *out keeps the default */
    if (!json_is_boolean(v))
        return ORTH_FAIL(ps->ctx, ORTH_ERR_DATA, "%s: %s.%s is not true or false", ps->name, place, key);
    *out = json_is_true(v);
    return ORTH_OK;
}

/* ---- normalizer ---- */

static orth_status parse_normalizer(parser *ps, const json_t *j, int depth)
{
    const char *type = type_of(j);
    if (json_is_null(j))
        return ORTH_OK;
    if (strcmp(type, "NFC") == 0) {
        ps->tok->nfc = true;
        return ORTH_OK;
    }
    const json_t *list = json_object_get(j, "normalizers");
    if (strcmp(type, "Sequence") != 0 || !json_is_array(list) || depth > 4)
        return ORTH_FAIL(ps->ctx, ORTH_ERR_DATA, "%s: normalizer of type \"%.60s\" is not supported "
                         "(null, NFC, or a Sequence of them)", ps->name, type);
    for (size_t i = 0; i < json_array_size(list); i++)
        ORTH_TRY(parse_normalizer(ps, json_array_get(list, i), depth + 1));
    return ORTH_OK;
}

/* ---- patterns ---- */

/* The pattern in PCRE2's dialect. Inside a class \S and \W stay as they are. NULL: no memory. */
static char *translate_pattern(parser *ps, const char *pattern, size_t num_bytes, size_t *out_bytes)
{
    char *out = orth_arena_alloc(ps->ctx, &ps->tok->arena, num_bytes * sizeof WORDS + 8);
    if (!out)
        return NULL;
    size_t n = 0;
    bool in_class = false;
    for (size_t i = 0; i < num_bytes; i++) {
        const char c = pattern[i], next = i + 1 < num_bytes ? pattern[i + 1] : 0;
        const char *put = NULL;
        if (c == '\\' && next == 's')
            put = in_class ? SPACES : "[" SPACES "]";
        else if (c == '\\' && next == 'w')
            put = in_class ? WORDS : "[" WORDS "]";
        else if (c == '\\' && next == 'S' && !in_class)
            put = "[^" SPACES "]";
        else if (c == '\\' && next == 'W' && !in_class)
            put = "[^" WORDS "]";
        else if (c == '[')
            in_class = true;
        else if (c == ']')
            in_class = false;
        if (put) {
            memcpy(out + n, put, strlen(put));
            n += strlen(put);
            i++;
        } else {
            out[n++] = c;
            if (c == '\\' && i + 1 < num_bytes)
                out[n++] = pattern[++i];
        }
    }
    *out_bytes = n;
    return out;
}

static orth_status compile_pattern(parser *ps, const char *place, orth_stage *stage)
{
    const char *pattern = stage->pattern;
    size_t num_bytes = stage->pattern_bytes;
    uint32_t flags = PCRE2_UTF | PCRE2_NO_UTF_CHECK;
    if (stage->literal)
        flags |= PCRE2_LITERAL;
    else {
        flags |= PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
        pattern = translate_pattern(ps, pattern, num_bytes, &num_bytes);
        if (!pattern)
            return ORTH_ERR_NOMEM;
    }
    int error;
    PCRE2_SIZE offset;
    pcre2_compile_context *cc = pcre2_compile_context_create(ps->tok->pcre);
    if (!cc)
        return ORTH_FAIL(ps->ctx, ORTH_ERR_NOMEM, "tokenizer: no memory for a pattern");
    pcre2_set_newline(cc, PCRE2_NEWLINE_LF);
    stage->code = pcre2_compile((PCRE2_SPTR)pattern, num_bytes, flags, &error, &offset, cc);
    pcre2_compile_context_free(cc);
    if (!stage->code) {
        if (error == PCRE2_ERROR_NOMEMORY || error == PCRE2_ERROR_HEAP_FAILED)
            return ORTH_FAIL(ps->ctx, ORTH_ERR_NOMEM, "tokenizer: no memory for a pattern");
        PCRE2_UCHAR why[160];
        pcre2_get_error_message(error, why, sizeof why);
        return ORTH_FAIL(ps->ctx, ORTH_ERR_DATA, "%s: %s.pattern \"%.200s\": at byte %zu: %s", ps->name,
                         place, stage->pattern, (size_t)offset, (const char *)why);
    }
    /* Where there is no JIT, or none for this pattern, the interpreter matches the same. */
    pcre2_jit_compile(stage->code, PCRE2_JIT_COMPLETE);
    return ORTH_OK;
}

static orth_status set_pattern(parser *ps, const char *place, orth_stage *stage, const char *pattern,
                               size_t num_bytes)
{
    if (num_bytes > MAX_PATTERN_BYTES)
        return ORTH_FAIL(ps->ctx, ORTH_ERR_DATA, "%s: %s.pattern has %zu bytes, the limit is %d", ps->name,
                         place, num_bytes, MAX_PATTERN_BYTES);
    char *copy = orth_arena_alloc(ps->ctx, &ps->tok->arena, num_bytes + 1);
    if (!copy)
        return ORTH_ERR_NOMEM;
    memcpy(copy, pattern, num_bytes);
    stage->pattern = copy;
    stage->pattern_bytes = num_bytes;
    if (num_bytes == 0)
        return ORTH_OK;
    /* A scanner's words are all matches: it serves where matches are what is kept as it is. */
    const bool keeps = (stage->behavior == ORTH_SPLIT_ISOLATED && !stage->invert) ||
                       (stage->behavior == ORTH_SPLIT_REMOVED && stage->invert);
    if (keeps && !stage->literal)
        stage->scan = orth_scan_from_pattern(pattern, num_bytes);
    return stage->scan != ORTH_SCAN_NONE ? ORTH_OK : compile_pattern(ps, place, stage);
}

/* ---- stages ---- */

static orth_status parse_split(parser *ps, const json_t *j, const char *place, orth_stage *stage)
{
    const char *behavior = json_string_value(json_object_get(j, "behavior"));
    int b = 0;
    while (behavior && b < ORTH_COUNT(behavior_names) && strcmp(behavior, behavior_names[b]) != 0)
        b++;
    if (!behavior || b == ORTH_COUNT(behavior_names))
        return ORTH_FAIL(ps->ctx, ORTH_ERR_DATA, "%s: %s.behavior \"%.60s\" is not one of Isolated, Removed, "
                         "Contiguous, MergedWithPrevious, MergedWithNext", ps->name, place,
                         behavior ? behavior : "(none)");
    stage->behavior = (orth_split_behavior)b;
    ORTH_TRY(parse_flag(ps, j, place, "invert", &stage->invert));
    const json_t *pattern = json_object_get(j, "pattern"), *s = json_object_get(pattern, "Regex");
    if (!s) {
        s = json_object_get(pattern, "String");
        stage->literal = true;
    }
    if (!json_is_string(s))
        return ORTH_FAIL(ps->ctx, ORTH_ERR_DATA, "%s: %s.pattern is not {\"Regex\": \"...\"} or "
                         "{\"String\": \"...\"}", ps->name, place);
    return set_pattern(ps, place, stage, json_string_value(s), json_string_length(s));
}

static orth_status parse_byte_level(parser *ps, const json_t *j, const char *place, orth_stage *stage)
{
    bool use_regex = true;
    stage->add_prefix_space = true; /* Hugging Face's defaults where the file is silent */
    ORTH_TRY(parse_flag(ps, j, place, "use_regex", &use_regex));
    ORTH_TRY(parse_flag(ps, j, place, "add_prefix_space", &stage->add_prefix_space));
    if (!use_regex)
        return ORTH_OK;
    const char *gpt2 = orth_scan_pattern(ORTH_SCAN_GPT2);
    return set_pattern(ps, place, stage, gpt2, strlen(gpt2));
}

static orth_status parse_stage(parser *ps, const json_t *j, const char *place)
{
    const char *type = type_of(j);
    orth_tokenizer *tok = ps->tok;
    if (strcmp(type, "Sequence") == 0) {
        const json_t *list = json_object_get(j, "pretokenizers");
        if (!json_is_array(list) || strlen(place) > 200)
            return ORTH_FAIL(ps->ctx, ORTH_ERR_DATA, "%s: %s.pretokenizers is not a list", ps->name, place);
        for (size_t i = 0; i < json_array_size(list); i++) {
            char inner[256];
            snprintf(inner, sizeof inner, "%s.pretokenizers[%zu]", place, i);
            ORTH_TRY(parse_stage(ps, json_array_get(list, i), inner));
        }
        return ORTH_OK;
    }
    if (tok->num_stages == MAX_STAGES)
        return ORTH_FAIL(ps->ctx, ORTH_ERR_DATA, "%s: %s: more than %d steps", ps->name, place, MAX_STAGES);
    if (tok->num_stages > 0 && tok->stages[tok->num_stages - 1].type == ORTH_STAGE_BYTE_LEVEL)
        return ORTH_FAIL(ps->ctx, ORTH_ERR_DATA, "%s: %s: nothing may follow ByteLevel", ps->name, place);
    orth_stage *stage = &tok->stages[tok->num_stages++];
    if (strcmp(type, "Split") == 0) {
        stage->type = ORTH_STAGE_SPLIT;
        return parse_split(ps, j, place, stage);
    }
    if (strcmp(type, "ByteLevel") == 0) {
        stage->type = ORTH_STAGE_BYTE_LEVEL;
        return parse_byte_level(ps, j, place, stage);
    }
    if (strcmp(type, "Digits") == 0) {
        stage->type = ORTH_STAGE_DIGITS;
        return parse_flag(ps, j, place, "individual_digits", &stage->individual_digits);
    }
    return ORTH_FAIL(ps->ctx, ORTH_ERR_DATA,
                     "%s: %s of type \"%.60s\" is not supported (Split, Digits, ByteLevel, "
                     "or a Sequence of them)",
                     ps->name, place, type);
}

/* PCRE2 allocates through the ctx, so that its memory is counted and can be refused like any other. */
static void *pcre_alloc(size_t num_bytes, void *ctx)
{
    return orth_mem_alloc(ctx, num_bytes);
}

static void pcre_free(void *p, void *ctx)
{
    if (p)
        orth_mem_free(ctx, p);
}

static orth_status parse_sections(parser *ps, const json_t *normalizer, const json_t *pre_tokenizer)
{
    orth_tokenizer *tok = ps->tok;
    if (!normalizer || !pre_tokenizer)
        return ORTH_FAIL(ps->ctx, ORTH_ERR_NOMEM, "tokenizer: no memory to read the sections of %s",
                         ps->name);
    ORTH_TRY(parse_normalizer(ps, normalizer, 0));
    ORTH_TRY(parse_stage(ps, pre_tokenizer, "pre_tokenizer"));
    if (tok->num_stages == 0 || tok->stages[tok->num_stages - 1].type != ORTH_STAGE_BYTE_LEVEL)
        return ORTH_FAIL(ps->ctx, ORTH_ERR_DATA,
                         "%s: pre_tokenizer does not end in ByteLevel: only byte-level "
                         "tokenizers are supported",
                         ps->name);
    return ORTH_OK;
}

orth_status orth_stages_parse(orth_ctx *ctx, orth_tokenizer *tok, const char *name)
{
    parser ps = {.ctx = ctx, .tok = tok, .name = name};
    tok->stages = ORTH_ARENA_ARRAY(ctx, &tok->arena, orth_stage, MAX_STAGES);
    if (!tok->stages)
        return ORTH_ERR_NOMEM;
    tok->pcre = pcre2_general_context_create(pcre_alloc, pcre_free, ctx);
    if (!tok->pcre)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "tokenizer: no memory for patterns");
    json_t *normalizer = json_loads(tok->normalizer_json, JSON_DECODE_ANY, NULL);
    json_t *pre_tokenizer = json_loads(tok->pre_tokenizer_json, JSON_DECODE_ANY, NULL);
    const bool parsed = !normalizer == !tok->normalizer_json && !pre_tokenizer == !tok->pre_tokenizer_json;
    orth_status status = parsed ? parse_sections(&ps, normalizer, pre_tokenizer)
                                : ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "%s: no memory for its stages", name); /* they were JSON before */
    json_decref(normalizer);
    json_decref(pre_tokenizer);
    return status;
}

void orth_stages_free(orth_tokenizer *tok)
{
    for (int i = 0; i < tok->num_stages; i++)
        pcre2_code_free(tok->stages[i].code);
    pcre2_general_context_free(tok->pcre);
}

orth_scan_kind orth_stages_single_scan(const orth_tokenizer *tok)
{
    orth_scan_kind scan = ORTH_SCAN_NONE;
    for (int i = 0; i < tok->num_stages; i++) {
        const orth_stage *s = &tok->stages[i];
        if (s->add_prefix_space || s->type == ORTH_STAGE_DIGITS || s->code || (s->scan && scan))
            return ORTH_SCAN_NONE;
        if (s->scan)
            scan = s->scan;
    }
    return scan;
}
