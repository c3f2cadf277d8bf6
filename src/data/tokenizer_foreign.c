/* tokenizer_foreign.c -- files that hold a tokenizer but are no tokenizer.json: named, with the way to make one of them. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* memmem */
#endif
#include <ctype.h>
#include <string.h>

#include "base/files.h"
#include "data/tokenizer_impl.h"

#define CONVERT "transformers.AutoTokenizer.from_pretrained(FOLDER).save_pretrained(OUT) in Python writes OUT/tokenizer.json"

static const char sentencepiece[] = "this is a SentencePiece model (tokenizer.model), not a tokenizer.json: " CONVERT;
static const char tiktoken[] = "this is a .tiktoken file, not a tokenizer.json: it has no pattern and no special tokens; "
                               "transformers.convert_slow_tokenizer.TikTokenConverter in Python makes a tokenizer.json of it";

static const char tekken[] = "this is a tekken.json of Mistral, not a tokenizer.json: the model's folder in the format of Transformers has one, and "
                             "transformers.integrations.mistral.convert_tekken_tokenizer(FILE).save_pretrained(OUT) in Python writes OUT/tokenizer.json";

#define TEKKEN_BYTES ((size_t)64 << 10) /* its vocabulary begins before them */

/* The first piece of a model: field 1 of the message, in which field 1 is a string and field 2 a float. */
static bool is_sentencepiece(const unsigned char *p, size_t n)
{
    return n > 8 && p[0] == 0x0A && p[1] < 0x80 && p[2] == 0x0A && p[3] + 4u < n && (size_t)p[3] + 2 <= p[1];
}

/* "IQ== 0": base64, a space, a rank, a newline. */
static bool is_tiktoken(const char *p, size_t n)
{
    size_t i = 0;
    while (i < n && (isalnum((unsigned char)p[i]) || p[i] == '+' || p[i] == '/' || p[i] == '='))
        i++;
    if (i == 0 || i % 4 != 0 || i + 1 >= n || p[i] != ' ' || !isdigit((unsigned char)p[i + 1]))
        return false;
    while (++i < n && isdigit((unsigned char)p[i]))
        continue;
    return i == n || p[i] == '\n' || p[i] == '\r';
}

static const char *skip_space(const char *p, const char *end)
{
    while (p < end && isspace((unsigned char)*p))
        p++;
    return p;
}

/* The object of a token: {"rank": 0, "token_bytes": "AA==", "token_str": ...}. A tokenizer.json has numbers behind its tokens. */
static bool is_tekken(const char *data, size_t n)
{
    static const char key[] = "\"token_bytes\"";
    const size_t length = sizeof key - 1;
    const char *end = data + ORTH_MIN(n, TEKKEN_BYTES), *p = skip_space(data, end);
    if (p == end || *p != '{')
        return false;
    for (; (p = memmem(p, (size_t)(end - p), key, length)) != NULL; p += length) {
        const char *at = skip_space(p + length, end);
        at = at < end && *at == ':' ? skip_space(at + 1, end) : end;
        if (at < end && *at == '"')
            return true;
    }
    return false;
}

const char *orth_foreign_tokenizer(const char *data, size_t num_bytes)
{
    if (is_sentencepiece((const unsigned char *)data, num_bytes))
        return sentencepiece;
    if (is_tekken(data, num_bytes))
        return tekken;
    return is_tiktoken(data, num_bytes) ? tiktoken : "";
}

orth_status orth_foreign_in_folder(orth_ctx *ctx, const char *dir, const char **out_hint)
{
    static const struct {
        const char *file, *hint;
    } others[] = {
        {"tokenizer.model", "there is a tokenizer.model (SentencePiece or tiktoken): " CONVERT},
        {"tiktoken.model", "there is a tiktoken.model: " CONVERT},
        {"qwen.tiktoken", "there is a qwen.tiktoken: " CONVERT},
        {"tekken.json", "there is a tekken.json: the model's folder in the format of Transformers has a tokenizer.json"},
        {"vocab.json", "there is a vocab.json: " CONVERT},
        {"vocab.txt", "there is a vocab.txt (WordPiece): that kind is not supported"},
    };
    *out_hint = "";
    for (int i = 0; i < ORTH_COUNT(others); i++) {
        char *path = orth_path_join(ctx, dir, others[i].file);
        if (!path)
            return ORTH_ERR_NOMEM;
        const bool there = orth_path_exists(path);
        orth_mem_free(ctx, path);
        if (there) {
            *out_hint = others[i].hint;
            break;
        }
    }
    return ORTH_OK;
}
