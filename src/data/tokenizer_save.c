/* tokenizer_save.c -- a tokenizer -> tokenizer.json, laid out as Hugging Face writes it.
 *
 * By hand, not by jansson or base/json_out.h: vocabulary and merges stand one entry a line, the contents of a token may hold a
 * zero, and sections (normalizer, ...) are texts already: those that were read, or those of tokenizer_train.c.
 */
#include <string.h>

#include "base/files.h"
#include "data/tokenizer_impl.h"

static orth_status put_text(orth_ctx *ctx, orth_bytes *out, const char *s)
{
    return orth_bytes_append(ctx, out, s, strlen(s));
}

static orth_status put_number(orth_ctx *ctx, orth_bytes *out, int64_t n)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)n);
    return put_text(ctx, out, text);
}

/* A JSON string; contents are UTF-8, so only quotes, backslashes and controls need an escape. */
orth_status orth_json_put_string(orth_ctx *ctx, orth_bytes *out, const char *s, size_t num_bytes)
{
    ORTH_TRY(orth_bytes_reserve(ctx, out, 6 * num_bytes + 2));
    char *p = out->v + out->num;
    *p++ = '"';
    for (size_t i = 0; i < num_bytes; i++) {
        const unsigned char c = (unsigned char)s[i];
        if (c < 0x20)
            p += snprintf(p, 7, "\\u%04x", c);
        else {
            if (c == '"' || c == '\\')
                *p++ = '\\';
            *p++ = (char)c;
        }
    }
    *p++ = '"';
    out->num = (size_t)(p - out->v);
    return ORTH_OK;
}

static orth_status put_token(orth_ctx *ctx, orth_bytes *out, const orth_token *t)
{
    return orth_json_put_string(ctx, out, t->content, t->content_bytes);
}

static orth_status put_flag(orth_ctx *ctx, orth_bytes *out, const char *key, bool value)
{
    ORTH_TRY(put_text(ctx, out, key));
    return put_text(ctx, out, value ? "true" : "false");
}

static orth_status put_added(orth_ctx *ctx, orth_bytes *out, const orth_tokenizer *tok)
{
    ORTH_TRY(put_text(ctx, out, "  \"added_tokens\": ["));
    for (int64_t i = 0; i < tok->num_added; i++) {
        const orth_token *t = &tok->tokens[tok->added[i]];
        ORTH_TRY(put_text(ctx, out, i ? ",\n    {\"id\": " : "\n    {\"id\": "));
        ORTH_TRY(put_number(ctx, out, tok->added[i]));
        ORTH_TRY(put_text(ctx, out, ", \"content\": "));
        ORTH_TRY(put_token(ctx, out, t));
        ORTH_TRY(put_flag(ctx, out, ", \"single_word\": ", t->flags & ORTH_TOKEN_SINGLE_WORD));
        ORTH_TRY(put_flag(ctx, out, ", \"lstrip\": ", t->flags & ORTH_TOKEN_LSTRIP));
        ORTH_TRY(put_flag(ctx, out, ", \"rstrip\": ", t->flags & ORTH_TOKEN_RSTRIP));
        ORTH_TRY(put_flag(ctx, out, ", \"normalized\": ", t->flags & ORTH_TOKEN_NORMALIZED));
        ORTH_TRY(put_flag(ctx, out, ", \"special\": ", t->flags & ORTH_TOKEN_SPECIAL));
        ORTH_TRY(put_text(ctx, out, "}"));
    }
    return put_text(ctx, out, tok->num_added ? "\n  ],\n" : "],\n");
}

static orth_status put_section(orth_ctx *ctx, orth_bytes *out, const char *key, const char *json)
{
    ORTH_TRY(put_text(ctx, out, "  \""));
    ORTH_TRY(put_text(ctx, out, key));
    ORTH_TRY(put_text(ctx, out, "\": "));
    ORTH_TRY(put_text(ctx, out, json));
    return put_text(ctx, out, ",\n");
}

static orth_status put_model(orth_ctx *ctx, orth_bytes *out, const orth_tokenizer *tok)
{
    ORTH_TRY(put_text(ctx, out, "  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n"
                                "    \"unk_token\": "));
    if (tok->unk >= 0)
        ORTH_TRY(put_token(ctx, out, &tok->tokens[tok->unk]));
    else
        ORTH_TRY(put_text(ctx, out, "null"));
    ORTH_TRY(put_text(ctx, out, ",\n    \"continuing_subword_prefix\": null,\n"
                                "    \"end_of_word_suffix\": null,\n"));
    ORTH_TRY(put_flag(ctx, out, "    \"fuse_unk\": ", tok->fuse_unk));
    ORTH_TRY(put_flag(ctx, out, ",\n    \"byte_fallback\": ", tok->byte_fallback));
    ORTH_TRY(put_flag(ctx, out, ",\n    \"ignore_merges\": ", tok->ignore_merges));
    ORTH_TRY(put_text(ctx, out, ",\n    \"vocab\": {"));
    bool first = true;
    for (int64_t id = 0; id < tok->num_ids; id++) {
        const orth_token *t = &tok->tokens[id];
        if (!(t->flags & ORTH_TOKEN_MODEL))
            continue;
        ORTH_TRY(put_text(ctx, out, first ? "\n      " : ",\n      "));
        first = false;
        ORTH_TRY(put_token(ctx, out, t));
        ORTH_TRY(put_text(ctx, out, ": "));
        ORTH_TRY(put_number(ctx, out, id));
    }
    ORTH_TRY(put_text(ctx, out, "\n    },\n    \"merges\": ["));
    for (int64_t i = 0; i < tok->num_merges; i++) {
        ORTH_TRY(put_text(ctx, out, i ? ",\n      [" : "\n      ["));
        ORTH_TRY(put_token(ctx, out, &tok->tokens[tok->merges[i].left]));
        ORTH_TRY(put_text(ctx, out, ", "));
        ORTH_TRY(put_token(ctx, out, &tok->tokens[tok->merges[i].right]));
        ORTH_TRY(put_text(ctx, out, "]"));
    }
    return put_text(ctx, out, "\n    ]\n  }\n}\n");
}

orth_status orth_tokenizer_write(orth_ctx *ctx, const orth_tokenizer *tok, orth_bytes *out)
{
    ORTH_TRY(
        put_text(ctx, out, "{\n  \"version\": \"1.0\",\n  \"truncation\": null,\n  \"padding\": null,\n"));
    ORTH_TRY(put_added(ctx, out, tok));
    ORTH_TRY(put_section(ctx, out, "normalizer", tok->normalizer_json));
    ORTH_TRY(put_section(ctx, out, "pre_tokenizer", tok->pre_tokenizer_json));
    ORTH_TRY(put_section(ctx, out, "post_processor", tok->post_processor_json));
    ORTH_TRY(put_section(ctx, out, "decoder", tok->decoder_json));
    return put_model(ctx, out, tok);
}

orth_status orth_tokenizer_save(orth_ctx *ctx, const orth_tokenizer *tok, const char *path)
{
    orth_bytes json = {0};
    orth_status status = orth_tokenizer_write(ctx, tok, &json);
    if (status == ORTH_OK)
        status = orth_file_write(ctx, path, json.v, json.num);
    orth_bytes_free(ctx, &json);
    return status;
}
