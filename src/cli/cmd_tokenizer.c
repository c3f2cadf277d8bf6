/* cmd_tokenizer.c -- `orthant tokenizer train|encode|decode|inspect`. */
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/files.h"
#include "base/text.h"
#include "cli/numbers.h"
#include "cli/print_token.h"
#include "cli/text_inputs.h"
#include "data/prepare.h"

/* ---- train ---- */

static orth_status train_options(orth_ctx *ctx, const orth_cmd *cmd, orth_tokenizer_train_options *o)
{
    static const char *const kinds[] = {"gpt2", "llama3", "qwen"};
    *o = (orth_tokenizer_train_options){.vocab_size = 0, .eos = orth_cmd_flag(cmd, "eos")};
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "vocab-size", 257, 1 << 24, &o->vocab_size));
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "min-frequency", 0, INT64_MAX, &o->min_frequency));
    if (o->vocab_size == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "tokenizer train: --vocab-size N is missing");
    if (o->eos && !o->eos[0])
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--eos= is empty");
    const char *kind = orth_cmd_flag(cmd, "kind");
    int k = 0;
    while (kind && k < ORTH_COUNT(kinds) && strcmp(kind, kinds[k]) != 0)
        k++;
    if (k == ORTH_COUNT(kinds))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--kind=%s is not gpt2, llama3 or qwen", kind);
    o->kind = (orth_tokenizer_kind)k;
    return ORTH_OK;
}

static orth_status save_as(orth_ctx *ctx, const orth_tokenizer *tok, const char *path, int64_t text_bytes, double seconds)
{
    ORTH_TRY(orth_tokenizer_save(ctx, tok, path));
    printf("%s: %" PRId64 " tokens, %" PRId64 " merges from %" PRId64 " bytes in %.1f s\n", ORTH_SHOWN(path),
           orth_tokenizer_vocab_size(tok), orth_tokenizer_num_merges(tok), text_bytes, seconds);
    return ORTH_OK;
}

/* FILE.json as it is; anything else is a folder, which is made and gets a tokenizer.json. */
static orth_status save(orth_ctx *ctx, const orth_tokenizer *tok, const char *out, int64_t text_bytes,
                        double seconds)
{
    const size_t n = strlen(out);
    orth_result_folder folder;
    if (n > 5 && strcmp(out + n - 5, ".json") == 0 && !orth_path_is_dir(out))
        return save_as(ctx, tok, out, text_bytes, seconds);
    ORTH_TRY(orth_result_folder_begin(ctx, &folder, out));
    char *path = orth_path_join(ctx, out, "tokenizer.json");
    const orth_status s = path ? save_as(ctx, tok, path, text_bytes, seconds) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, path);
    return orth_result_folder_end(&folder, s);
}

static orth_status train_on(orth_ctx *ctx, const orth_cmd *cmd, const char *out, const orth_inputs *files)
{
    orth_tokenizer_train_options options;
    const orth_prepare_options text = {.inputs = (const char *const *)files->v, .num_inputs = files->num,
                                       .text = orth_cmd_text_options(cmd, &cmd->config)};
    int64_t max_bytes = 0, text_bytes = 0;
    ORTH_TRY(train_options(ctx, cmd, &options));
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "max-bytes", 1, INT64_MAX, &max_bytes));
    orth_tokenizer *tok;
    const double start = orth_clock_s();
    ORTH_TRY(orth_prepare_tokenizer(ctx, &tok, &text, &options, max_bytes, &text_bytes));
    if (orth_tokenizer_vocab_size(tok) < options.vocab_size)
        orth_log(ctx, ORTH_LOG_WARN, "tokenizer",
                 "only %" PRId64 " of %" PRId64 " tokens: no other pair occurs "
                 "often enough in the text",
                 orth_tokenizer_vocab_size(tok), options.vocab_size);
    const orth_status status = save(ctx, tok, out, text_bytes, orth_clock_s() - start);
    orth_tokenizer_free(ctx, tok);
    return status;
}

static orth_status train(orth_ctx *ctx, const orth_cmd *cmd)
{
    const char *out = orth_cmd_flag(cmd, "out");
    orth_inputs files;
    if (!out || !out[0])
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "tokenizer train: --out FILE.json or --out DIR is missing");
    orth_status status = orth_cmd_text_inputs(ctx, cmd, 1, &files);
    if (status == ORTH_OK)
        status = train_on(ctx, cmd, out, &files);
    orth_inputs_free(ctx, &files);
    return status;
}

/* ---- encode, decode ---- */

static orth_status read_stdin(orth_ctx *ctx, orth_bytes *out)
{
    for (;;) {
        if (out->cap - out->num < 65536) {
            const size_t cap = 2 * out->cap + 65536;
            char *v = orth_mem_realloc(ctx, out->v, cap);
            if (!v)
                return ORTH_ERR_NOMEM;
            out->v = v;
            out->cap = cap;
        }
        const size_t n = fread(out->v + out->num, 1, out->cap - out->num, stdin);
        if (n == 0)
            return ferror(stdin)
                       ? orth_file_fail(ctx, "standard input", "read")
                       : ORTH_OK;
        out->num += n;
    }
}

static orth_status print_ids(orth_ctx *ctx, orth_encoder *enc, const char *text, size_t num_bytes)
{
    orth_ids ids = {0};
    const orth_status status = orth_encoder_encode(ctx, enc, &ids, text, num_bytes);
    for (int64_t i = 0; status == ORTH_OK && i < ids.num; i++)
        printf(i ? " %d" : "%d", (int)ids.v[i]);
    if (status == ORTH_OK)
        printf("\n");
    orth_ids_free(ctx, &ids);
    return status;
}

/* One line of ids per document. */
static orth_status encode_input(orth_ctx *ctx, orth_encoder *enc, orth_reader *r, const char *path)
{
    orth_bytes line = {0};
    int64_t num = 0, lines = 0;
    orth_status status = orth_reader_input(ctx, r, path);
    do {
        orth_document d;
        const char *text;
        size_t n;
        if (status == ORTH_OK)
            status = orth_reader_next(ctx, r, &d, 1, &num);
        if (status != ORTH_OK || num == 0)
            break;
        status = orth_reader_text(ctx, r, &d, &line, &text, &n);
        if (status == ORTH_OK)
            status = print_ids(ctx, enc, text, n);
        lines++;
    } while (status == ORTH_OK);
    if (status == ORTH_OK && lines == 0)
        printf("\n");
    orth_bytes_free(ctx, &line);
    return status;
}

static orth_status encode(orth_ctx *ctx, const orth_cmd *cmd, const orth_tokenizer *tok)
{
    static const char *const standard_input[] = {"-"};
    const bool named = cmd->num_words > 1;
    const char *const *paths = named ? cmd->words + 1 : standard_input;
    const int num = named ? cmd->num_words - 1 : 1;
    const orth_text_options text = orth_cmd_text_options(cmd, &cmd->config);
    orth_encoder *enc = NULL;
    orth_reader *r = NULL;
    ORTH_TRY(orth_reader_check(ctx, &text, paths, num));
    ORTH_TRY(orth_encoder_create(ctx, &enc, tok));
    orth_status status = orth_reader_create(ctx, &r, &text, 0);
    for (int i = 0; status == ORTH_OK && i < num; i++)
        status = encode_input(ctx, enc, r, paths[i]);
    if (status == ORTH_OK) {
        orth_reader_tell_invalid(ctx, r);
        orth_reader_tell_separator(ctx, r);
    }
    orth_reader_free(ctx, r);
    orth_encoder_free(ctx, enc);
    return status;
}

/* Writes the bytes of the numbers in text; `place` says where they come from. */
static orth_status print_text(orth_ctx *ctx, const orth_cmd *cmd, const orth_tokenizer *tok, orth_decoding *at, const char *text,
                              const char *place)
{
    orth_bytes out = {0};
    orth_status status = ORTH_OK;
    const char *p = text + strspn(text, " \t\r\n,");
    while (status == ORTH_OK && *p) {
        char *end;
        errno = 0;
        const long long v = strtoll(p, &end, 10);
        if (end == p || errno || v < 0 || v > INT32_MAX) {
            status = ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: \"%.20s\" at byte %lld is not a token's id", place, p,
                               (long long)(p - text));
            break;
        }
        const int32_t id = (int32_t)v;
        status = orth_tokenizer_decode_on(ctx, tok, at, &out, &id, 1, orth_cmd_flag(cmd, "skip-special") != NULL);
        p = end + strspn(end, " \t\r\n,");
    }
    if (status == ORTH_OK)
        fwrite(out.v, 1, out.num, stdout);
    orth_bytes_free(ctx, &out);
    return status;
}

static orth_status decode(orth_ctx *ctx, const orth_cmd *cmd, const orth_tokenizer *tok)
{
    orth_decoding at = {0};
    orth_bytes text = {0};
    orth_status status = ORTH_OK;
    if (cmd->num_words == 1) {
        status = read_stdin(ctx, &text);
        if (status == ORTH_OK) {
            text.v[text.num] = 0; /* read_stdin ends with room to spare */
            status = print_text(ctx, cmd, tok, &at, text.v, "standard input");
        }
        orth_bytes_free(ctx, &text);
        return status;
    }
    for (int i = 1; i < cmd->num_words && status == ORTH_OK; i++)
        status = print_text(ctx, cmd, tok, &at, cmd->words[i], "the command line");
    return status;
}

/* ---- inspect ---- */

static void print_token(const orth_tokenizer *tok, int32_t id)
{
    size_t n;
    const char *p = orth_tokenizer_token(tok, id, &n);
    if (!p)
        return;
    printf("%7d%c \"", (int)id, orth_tokenizer_is_special(tok, id) ? '*' : ' ');
    orth_print_token(p, n);
    printf("\"\n");
}

static orth_status inspect(const orth_cmd *cmd, const orth_tokenizer *tok, const char *path)
{
    const int32_t eos = orth_tokenizer_eos(tok);
    printf("%s: %s, vocabulary %" PRId64 ", %" PRId64 " merges, fingerprint %016" PRIx64 "\n", ORTH_SHOWN(path),
           orth_tokenizer_kind_name(tok), orth_tokenizer_vocab_size(tok), orth_tokenizer_num_merges(tok),
           orth_tokenizer_fingerprint(tok));
    if (eos < 0)
        printf("no end-of-text token\n");
    else {
        printf("end of text:\n");
        print_token(tok, eos);
    }
    if (orth_cmd_flag(cmd, "tokens")) {
        printf("tokens (* special):\n");
        for (int64_t id = 0; id < orth_tokenizer_vocab_size(tok); id++)
            print_token(tok, (int32_t)id);
    }
    return ORTH_OK;
}

orth_status orth_cmd_tokenizer(orth_ctx *ctx, const orth_cmd *cmd)
{
    static const char *const verbs[] = {"encode", "decode", "inspect", "train"};
    const char *what = cmd->num_words > 0 ? cmd->words[0] : "";
    int v = 0;
    while (v < ORTH_COUNT(verbs) && strcmp(what, verbs[v]) != 0)
        v++;
    if (v == ORTH_COUNT(verbs))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, *what ? "tokenizer: '%s' is not one of train, encode, decode, inspect"
                                                  : "tokenizer%s: say which: train, encode, decode, inspect", what);
    if (v == 3)
        return train(ctx, cmd);
    const char *path = orth_cmd_flag(cmd, "tokenizer");
    if (!path && v == 2 && cmd->num_words > 1)
        path = cmd->words[1];
    if (!path || !path[0])
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "tokenizer %s: --tokenizer FILE is missing", what);
    orth_tokenizer *tok;
    ORTH_TRY(orth_tokenizer_load(ctx, &tok, path));
    const orth_status status = v == 0 ? encode(ctx, cmd, tok) : v == 1 ? decode(ctx, cmd, tok)
                                                                       : inspect(cmd, tok, path);
    orth_tokenizer_free(ctx, tok);
    return status;
}
