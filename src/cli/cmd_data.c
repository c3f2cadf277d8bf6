/* cmd_data.c -- `orthant data prepare|inspect|verify`. */
#include <inttypes.h>
#include <string.h>

#include "base/clock.h"
#include "base/json_out.h"
#include "cli/numbers.h"
#include "cli/text_inputs.h"
#include "data/data.h"

/* ---- prepare ---- */

static orth_status get_tokenizer(orth_ctx *ctx, const orth_cmd *cmd, const orth_prepare_options *p,
                                 orth_tokenizer **out)
{
    orth_tokenizer_train_options train = {.vocab_size = 0};
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "train-tokenizer", 257, 1 << 24, &train.vocab_size));
    const char *given = orth_cmd_flag(cmd, "tokenizer");
    if (train.vocab_size && given)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--tokenizer and --train-tokenizer exclude each other");
    for (int i = 0; train.vocab_size && i < p->num_inputs; i++)
        if (strcmp(p->inputs[i], "-") == 0)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--train-tokenizer reads the text twice, standard input (-) can be read once: "
                             "save it to a file first");
    if (train.vocab_size) {
        orth_prepare_options first = *p;
        first.text.told = true; /* preparing tells of bytes that are not UTF-8 */
        return orth_prepare_tokenizer(ctx, out, &first, &train, 0, NULL);
    }
    const char *path = given ? given : cmd->config.data_tokenizer;
    if (orth_data_tokenizer_is_auto(path))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG,
                         "data prepare: which tokenizer? --tokenizer FILE, --tokenizer bytes "
                         "or --train-tokenizer N");
    ORTH_TRY(orth_tokenizer_load(ctx, out, path));
    const char *eos = orth_cmd_flag(cmd, "eos-token");
    const orth_strings *names = &cmd->config.data_eos_token;
    return eos ? orth_tokenizer_name_eos(ctx, *out, &eos, 1) : orth_tokenizer_name_eos(ctx, *out, names->v, names->n);
}

static orth_status prepare_flags(orth_ctx *ctx, const orth_cmd *cmd, orth_prepare_options *p)
{
    int64_t seed = cmd->config.train_seed;
    *p = (orth_prepare_options){
        .out_dir = orth_cmd_flag(cmd, "out"),
        .text = orth_cmd_text_options(cmd, &cmd->config),
        .valid_fraction = cmd->config.data_valid_fraction,
        .overwrite = orth_cmd_flag(cmd, "overwrite") != NULL,
    };
    if (!p->out_dir || !p->out_dir[0])
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "data prepare: --out DIR is missing");
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "seed", 0, INT64_MAX, &seed));
    p->seed = (uint64_t)seed;
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "shard-tokens", 1, INT64_MAX, &p->shard_tokens));
    return orth_cmd_flag_real(ctx, cmd, "valid-fraction", 0, 0.9, &p->valid_fraction);
}

/* Where the documents come from, and what of the text is in none of them. */
static void print_reading(orth_ctx *ctx, const orth_prepare_options *p, const orth_prepare_result *r)
{
    orth_text separator = {0}; /* it may hold a newline */
    char *text = NULL;
    const bool given = orth_separator_read(ctx, &text, p->text.separator) == ORTH_OK && text[0];
    orth_text_quote(ctx, &separator, given ? text : "file");
    orth_mem_free(ctx, text);
    printf("  read  %12" PRId64 " bytes of %d input%s:", r->read_bytes, p->num_inputs, p->num_inputs == 1 ? "" : "s");
    if (r->num_text > 0)
        printf(" text, separator %s, %" PRId64 " bytes of separators and white space left out",
               separator.s ? separator.s : "?", r->dropped_bytes);
    if (r->num_jsonl > 0)
        printf("%s JSONL, field '%s'", r->num_text > 0 ? ";" : "",
               ORTH_SHOWN(p->text.field && p->text.field[0] ? p->text.field : "text"));
    printf("\n");
    orth_mem_free(ctx, separator.s);
}

static orth_status prepare_inputs(orth_ctx *ctx, const orth_cmd *cmd, orth_prepare_options *p)
{
    orth_prepare_result r = {0};
    orth_tokenizer *tok = NULL;
    const double start = orth_clock_s();
    orth_status status = get_tokenizer(ctx, cmd, p, &tok);
    p->tokenizer = tok;
    if (status == ORTH_OK)
        status = orth_prepare(ctx, p, &r);
    orth_tokenizer_free(ctx, tok);
    ORTH_TRY(status);
    const int64_t tokens = r.train_tokens + r.valid_tokens;
    printf("%s: %" PRId64 " tokens of %" PRId64 " bytes (%.2f bytes a token) in %.1f s\n", ORTH_SHOWN(p->out_dir), tokens,
           r.text_bytes, (double)r.text_bytes / (double)tokens, orth_clock_s() - start);
    print_reading(ctx, p, &r);
    printf("  train %12" PRId64 " tokens %10" PRId64 " documents\n", r.train_tokens, r.train_docs);
    printf("  valid %12" PRId64 " tokens %10" PRId64 " documents\n", r.valid_tokens, r.valid_docs);
    return ORTH_OK;
}

static orth_status prepare(orth_ctx *ctx, const orth_cmd *cmd)
{
    orth_prepare_options p;
    orth_inputs files;
    ORTH_TRY(prepare_flags(ctx, cmd, &p));
    orth_status status = orth_cmd_text_inputs(ctx, cmd, 1, &files);
    p.inputs = (const char *const *)files.v;
    p.num_inputs = files.num;
    if (status == ORTH_OK)
        status = prepare_inputs(ctx, cmd, &p);
    orth_inputs_free(ctx, &files);
    return status;
}

/* ---- inspect ---- */

static void print_split(const orth_corpus *c, const char *name)
{
    printf("  %s %12" PRId64 " tokens %10" PRId64 " documents %12" PRId64 " bytes of text %4d shard%s\n", name,
           c->num_tokens, c->num_docs, c->text_bytes, c->num_shards, c->num_shards == 1 ? "" : "s");
}

/* Sequences of training in one pass, and steps: as data.seq_len and train.global_batch have them. */
typedef struct {
    int64_t sequences;
    double steps;
} epoch;

static epoch epoch_of(const orth_dataset *d, const orth_config *c)
{
    const int64_t sequences = (d->train.num_tokens - 1) / c->data_seq_len;
    return (epoch){sequences, (double)sequences / (double)c->train_global_batch};
}

static void add_split(orth_json_out *j, const orth_corpus *c, const char *name)
{
    orth_json_open(j, name, '{');
    orth_json_print(j, "tokens", "%" PRId64, c->num_tokens);
    orth_json_print(j, "documents", "%" PRId64, c->num_docs);
    orth_json_print(j, "text_bytes", "%" PRId64, c->text_bytes);
    orth_json_print(j, "shards", "%d", c->num_shards);
    orth_json_close(j, '}');
}

static orth_status print_json(orth_ctx *ctx, const orth_dataset *d, const orth_config *c)
{
    const epoch e = epoch_of(d, c);
    orth_text text = {0};
    orth_json_out j = {ctx, &text, .lines = 1};
    orth_json_open(&j, NULL, '{');
    orth_json_print(&j, "vocab_size", "%" PRId64, d->vocab_size);
    orth_json_print(&j, "tokenizer_fingerprint", "\"%016" PRIx64 "\"", d->fingerprint);
    orth_json_print(&j, "eot_token", "%d", (int)d->eot_token);
    add_split(&j, &d->train, "train");
    add_split(&j, &d->valid, "valid");
    orth_json_open(&j, "epoch", '{');
    orth_json_print(&j, "seq_len", "%" PRId64, c->data_seq_len);
    orth_json_print(&j, "sequences", "%" PRId64, e.sequences);
    orth_json_print(&j, "global_batch", "%" PRId64, c->train_global_batch);
    orth_json_number(&j, "steps", e.steps);
    orth_json_close(&j, '}');
    orth_json_close(&j, '}');
    return orth_json_show(&j, stdout);
}

static void print_summary(const orth_dataset *d, const orth_config *c)
{
    const epoch e = epoch_of(d, c);
    printf("%s: vocabulary %" PRId64 ", tokenizer %016" PRIx64 ", end of text %d\n", ORTH_SHOWN(d->path),
           d->vocab_size, d->fingerprint, (int)d->eot_token);
    print_split(&d->train, "train");
    print_split(&d->valid, "valid");
    printf("  epoch %12" PRId64 " sequences of data.seq_len=%" PRId64 ", %.1f steps of train.global_batch=%" PRId64 "\n", e.sequences,
           c->data_seq_len, e.steps, c->train_global_batch);
}

static orth_status print_document(orth_ctx *ctx, const orth_dataset *d, int64_t number)
{
    if (number >= d->train.num_docs)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--document=%" PRId64 " is not in [0, %" PRId64 ")", number,
                         d->train.num_docs);
    int shard = 0;
    while (d->train.first_doc[shard + 1] <= number)
        shard++;
    const orth_shard *s = &d->train.shards[shard];
    const int64_t first = orth_shard_doc_start(s, number - d->train.first_doc[shard]);
    const int64_t n = orth_shard_doc_start(s, number - d->train.first_doc[shard] + 1) - first;
    orth_tokenizer *tok = NULL;
    orth_bytes text = {0};
    orth_status status = ORTH_OK;
    int32_t *ids = ORTH_NEW_ARRAY(ctx, int32_t, n);
    if (!ids)
        return ORTH_ERR_NOMEM;
    ORTH_TRY_GOTO(orth_shard_read(ctx, s, ids, first, n));
    ORTH_TRY_GOTO(orth_tokenizer_load(ctx, &tok, d->path));
    ORTH_TRY_GOTO(orth_tokenizer_decode(ctx, tok, &text, ids, n, true));
    fwrite(text.v, 1, text.num, stdout);
    printf("\n");
done:
    orth_bytes_free(ctx, &text);
    orth_tokenizer_free(ctx, tok);
    orth_mem_free(ctx, ids);
    return status;
}

static orth_status inspect(orth_ctx *ctx, const orth_cmd *cmd, const char *path)
{
    int64_t number = -1;
    orth_dataset *d = NULL;
    ORTH_TRY(orth_cmd_flag_int(ctx, cmd, "document", 0, INT64_MAX, &number));
    ORTH_TRY(orth_dataset_open(ctx, &d, path));
    orth_status status = ORTH_OK;
    if (number >= 0)
        status = print_document(ctx, d, number);
    else if (orth_cmd_flag(cmd, "json"))
        status = print_json(ctx, d, &cmd->config);
    else
        print_summary(d, &cmd->config);
    orth_dataset_close(ctx, d);
    return status;
}

/* ---- verify ---- */

static orth_status verify(orth_ctx *ctx, const char *path)
{
    orth_dataset *d = NULL;
    orth_tokenizer *tok = NULL;
    ORTH_TRY(orth_dataset_open(ctx, &d, path));
    orth_status status = orth_dataset_verify(ctx, d);
    if (status == ORTH_OK)
        status = orth_tokenizer_load(ctx, &tok, path);
    if (status == ORTH_OK && orth_tokenizer_fingerprint(tok) != d->fingerprint)
        status = ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s/tokenizer.json: is tokenizer %016" PRIx64 ", %016" PRIx64
                           " made the shards", path, orth_tokenizer_fingerprint(tok), d->fingerprint);
    const int shards = d->train.num_shards + d->valid.num_shards;
    if (status == ORTH_OK)
        printf("%s: %" PRId64 " tokens in %d shard%s are as they were written\n", ORTH_SHOWN(path),
               d->train.num_tokens + d->valid.num_tokens, shards, shards == 1 ? "" : "s");
    orth_tokenizer_free(ctx, tok);
    orth_dataset_close(ctx, d);
    return status;
}

orth_status orth_cmd_data(orth_ctx *ctx, const orth_cmd *cmd)
{
    const char *what = cmd->num_words > 0 ? cmd->words[0] : "";
    if (strcmp(what, "prepare") == 0)
        return prepare(ctx, cmd);
    const bool inspects = strcmp(what, "inspect") == 0;
    if (!inspects && strcmp(what, "verify") != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, *what ? "data: '%s' is not one of prepare, inspect, verify"
                                                  : "data%s: say which: prepare, inspect, verify", what);
    if (cmd->num_words < 2)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "data %s: which folder?", what);
    for (int i = 1; i < cmd->num_words; i++)
        ORTH_TRY(inspects ? inspect(ctx, cmd, cmd->words[i]) : verify(ctx, cmd->words[i]));
    return ORTH_OK;
}
