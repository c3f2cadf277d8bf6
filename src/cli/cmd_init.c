/* cmd_init.c -- `orthant init DATA...`: a run file for the user's data, in which each key is explained.
 *
 * What is chosen, and by what:
 *   model          the largest of a few for which there are 20 tokens a parameter (Hoffmann et al., "Training Compute-Optimal
 *                  Large Language Models", arXiv:2203.15556) within MAX_EPOCHS passes
 *   epochs         as many as these tokens take, at most MAX_EPOCHS: further ones are worth little (Muennighoff et al., "Scaling
 *                  Data-Constrained Language Models", arXiv:2305.16264)
 *   learning rate  by the width of the model, about as 1 / width
 * A key that is given on the command line stays as it is given, and what is chosen follows it.
 */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "base/text.h"
#include "cli/text_inputs.h"
#include "data/data.h"
#include "data/survey.h"
#include "train/describe.h"

#define TOKENS_A_PARAMETER 20.0
#define MAX_EPOCHS 4.0
#define BYTES_A_TOKEN 3.5 /* of English text in a vocabulary of ORTH_AUTO_VOCAB */
#define MIN_STEPS 200     /* fewer sequences a step where an epoch would have too few steps */
#define HEAD_DIM 64
#define WIDTH 112

/* Models of Llama's kind, the smallest first. */
typedef struct {
    int layers, hidden, seq_len, batch;
    double lr;
} size_class;

static const size_class sizes[] = {
    {4, 128, 256, 16, 3e-3}, {6, 256, 256, 16, 2e-3}, {8, 384, 512, 16, 1e-3}, {8, 512, 512, 32, 1e-3}, {12, 768, 1024, 32, 6e-4},
};

static double layer_params(double layers, double hidden)
{
    return 12 * layers * hidden * hidden;
}

typedef struct {
    orth_survey data;
    double tokens;          /* of training in one pass */
    double least;           /* of these: of the path with the fewest, which must hold a sequence, too */
    int64_t vocab;          /* of the model */
    double params;          /* of the model's layers */
    double epochs, steps;
} choice;

/* Sets a key that was not given. */
static orth_status __attribute__((format(printf, 4, 5))) choose(orth_ctx *ctx, orth_config *cfg, orth_option_id id, const char *fmt, ...)
{
    char value[64];
    va_list list;
    if (cfg->place[id])
        return ORTH_OK;
    va_start(list, fmt);
    vsnprintf(value, sizeof value, fmt, list);
    va_end(list);
    return orth_config_set(ctx, cfg, "init", orth_option_get(id)->path, value);
}

#define CHOOSE(key, ...) ORTH_TRY(choose(ctx, cfg, ORTH_OPT_##key, __VA_ARGS__))

/* data.path, from the words of the command line. */
static orth_status choose_data(orth_ctx *ctx, const orth_cmd *cmd, orth_config *cfg)
{
    orth_text list = {0};
    for (int i = 0; i < cmd->num_words; i++) {
        orth_text_add(ctx, &list, i ? ", " : "[");
        orth_text_quote(ctx, &list, cmd->words[i]);
    }
    orth_text_add(ctx, &list, "]");
    char *value = orth_text_take(ctx, &list);
    if (!value)
        return ORTH_ERR_NOMEM;
    const orth_status s = cmd->num_words ? orth_config_set(ctx, cfg, "init", "data.path", value) : ORTH_OK;
    orth_mem_free(ctx, value);
    ORTH_TRY(s);
    if (cfg->data_path.n == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "init: which data? Name text or JSONL files, folders of them, or prepared shards");
    return ORTH_OK;
}

/* The largest class whose model has tokens enough, with the layers or the width that is given (0: its own) in place of its own. */
static const size_class *size_for(double tokens, int64_t layers, int64_t hidden)
{
    const size_class *best = &sizes[0];
    for (int i = 0; i < ORTH_COUNT(sizes); i++)
        if (TOKENS_A_PARAMETER * layer_params((double)(layers ? layers : sizes[i].layers), (double)(hidden ? hidden : sizes[i].hidden)) <=
            MAX_EPOCHS * tokens)
            best = &sizes[i];
    return best;
}

/* The class whose learning rate and batch suit a model that the user has chosen. */
static const size_class *size_of_width(int64_t hidden)
{
    const size_class *best = &sizes[0];
    for (int i = 0; i < ORTH_COUNT(sizes); i++)
        if (sizes[i].hidden <= hidden)
            best = &sizes[i];
    return best;
}

/* What the number of heads is a multiple of. */
static int64_t unit_of_heads(const orth_config *cfg)
{
    const int64_t kv = ORTH_CONFIG_IS_SET(cfg, model, kv_heads) ? cfg->model_kv_heads : 1, tp = cfg->parallel_tp;
    return kv % tp == 0 ? kv : kv * tp;
}

/* The width of a class, up to one that the heads divide. Rotation is of pairs, so a head is even. */
static int64_t width_for_heads(const orth_config *cfg, int64_t hidden)
{
    const int64_t heads = ORTH_CONFIG_IS_SET(cfg, model, heads) ? cfg->model_heads : unit_of_heads(cfg);
    return ORTH_CONFIG_IS_SET(cfg, model, head_dim) ? hidden : orth_round_up(hidden, 2 * heads);
}

/* Of HEAD_DIM elements each, or of as near to that as the width allows; of no other size than model.head_dim. */
static int64_t heads_for_width(const orth_config *cfg, int64_t hidden)
{
    const int64_t unit = unit_of_heads(cfg), head_dim = ORTH_CONFIG_IS_SET(cfg, model, head_dim) ? cfg->model_head_dim : 0;
    if (head_dim)
        return orth_round_up(ORTH_MAX(hidden / head_dim, 1), unit);
    int64_t best = unit; /* if none fits, a rule says why not */
    for (int64_t n = unit; 2 * n <= hidden; n += unit)
        if (hidden % (2 * n) == 0 && llabs(HEAD_DIM * n - hidden) <= llabs(HEAD_DIM * best - hidden))
            best = n;
    return best;
}

static orth_status choose_sizes(orth_ctx *ctx, orth_config *cfg, double tokens)
{
    const int64_t layers = ORTH_CONFIG_IS_SET(cfg, model, layers) ? cfg->model_layers : 0;
    const int64_t hidden = ORTH_CONFIG_IS_SET(cfg, model, hidden) ? cfg->model_hidden : 0;
    const size_class *size = size_for(tokens, layers, hidden);
    CHOOSE(model_family, "llama");
    CHOOSE(model_layers, "%" PRId64, ORTH_MAX(size->layers, cfg->parallel_pp * cfg->parallel_virtual_stages)); /* one a chunk */
    CHOOSE(model_hidden, "%" PRId64, width_for_heads(cfg, size->hidden));
    CHOOSE(model_heads, "%" PRId64, heads_for_width(cfg, cfg->model_hidden));
    return ORTH_OK;
}

static orth_status choose_model(orth_ctx *ctx, orth_config *cfg, choice *c, const size_class **out)
{
    orth_model_config m;
    if (!cfg->model_preset[0])
        ORTH_TRY(choose_sizes(ctx, cfg, c->tokens));
    ORTH_TRY(orth_describe_model(ctx, cfg, &m));
    const size_class *size = size_of_width(m.hidden);
    const bool limited = cfg->model_preset[0] || ORTH_CONFIG_IS_SET(cfg, model, max_seq); /* else it follows data.seq_len */
    int64_t seq_len = size->seq_len;
    while (limited && seq_len > m.max_seq)
        seq_len /= 2;
    while (seq_len > 32 && (4.0 * (double)seq_len * size->batch > c->tokens || 2.0 * (double)seq_len > c->least))
        seq_len /= 2;
    CHOOSE(data_seq_len, "%" PRId64, seq_len);
    c->vocab = m.vocab;
    c->params = layer_params((double)m.layers, (double)m.hidden);
    *out = size;
    return ORTH_OK;
}

static double two_digits(double x)
{
    char text[32];
    snprintf(text, sizeof text, "%.1e", x);
    return strtod(text, NULL);
}

/* The largest of 1, 2, 5, 10, 20, 50, ... that is not above x. */
static double round_interval(double x)
{
    double best = 1;
    for (double ten = 1; ten <= x; ten *= 10)
        best = 5 * ten <= x ? 5 * ten : 2 * ten <= x ? 2 * ten : ten;
    return best;
}

static orth_status choose_length(orth_ctx *ctx, orth_config *cfg, choice *c, const size_class *size)
{
    const double sequences = ORTH_MAX(floor(c->tokens / (double)cfg->data_seq_len), 1);
    const double wanted = TOKENS_A_PARAMETER * c->params / c->tokens;
    c->epochs = cfg->train_epochs > 0 ? cfg->train_epochs : two_digits(ORTH_MIN(wanted, MAX_EPOCHS));
    int64_t batch = size->batch;
    while (batch > 4 && sequences * c->epochs / (double)batch < MIN_STEPS)
        batch /= 2;
    const int64_t dp = cfg->parallel_dp, micro = ORTH_CONFIG_IS_SET(cfg, train, micro_batch) ? cfg->train_micro_batch : 1;
    CHOOSE(train_global_batch, "%" PRId64, orth_round_up(batch, dp * micro));
    batch = cfg->train_global_batch;
    const int64_t of_a_rank = batch / dp;
    CHOOSE(train_micro_batch, "%d", cfg->parallel_dp_share.n ? 1 : of_a_rank % 4 == 0 ? 4 : of_a_rank % 2 == 0 ? 2 : 1);
    if (!ORTH_CONFIG_IS_SET(cfg, train, steps))
        CHOOSE(train_epochs, "%g", c->epochs);
    c->steps = cfg->train_epochs > 0 ? ORTH_MAX(ceil(sequences * c->epochs / (double)batch), 1) : (double)cfg->train_steps;
    return ORTH_OK;
}

/* ---- what train would refuse of data that was counted ---- */

/* Tokens that the run's tokenizer has: that of data.tokenizer, or of the shards, or at least those of one that is trained. */
static orth_status needed_vocab(orth_ctx *ctx, const orth_config *cfg, const orth_survey *data, int64_t *out)
{
    orth_tokenizer *t;
    *out = data->num_prepared ? data->vocab_size : ORTH_TOKENIZER_LEAST_VOCAB;
    if (orth_data_tokenizer_is_auto(cfg->data_tokenizer))
        return ORTH_OK;
    ORTH_TRY(orth_tokenizer_load(ctx, &t, cfg->data_tokenizer));
    *out = orth_tokenizer_vocab_size(t);
    orth_tokenizer_free(ctx, t);
    return ORTH_OK;
}

static orth_status check_vocab(orth_ctx *ctx, const orth_config *cfg, const choice *c)
{
    const char *vocab = cfg->place[ORTH_OPT_model_vocab], *preset = cfg->place[ORTH_OPT_model_preset];
    int64_t need;
    if (!vocab && !preset)
        return ORTH_OK; /* it is the tokenizer's */
    ORTH_TRY(needed_vocab(ctx, cfg, &c->data, &need));
    if (c->vocab >= need)
        return ORTH_OK;
    const bool least = need == ORTH_TOKENIZER_LEAST_VOCAB;
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: model.vocab=%" PRId64 "%s%s%s is less than the %" PRId64 " tokens that the tokenizer has%s: model.vocab=%" PRId64
                     "%s", vocab ? vocab : preset, c->vocab, vocab ? "" : " (of model.preset=", vocab ? "" : cfg->model_preset, vocab ? "" : ")", need,
                     least ? " at least (256 bytes and the end of a text)" : "", least ? (int64_t)ORTH_AUTO_VOCAB : need,
                     least ? ", for example" : " has room for them");
}

static orth_status check_length(orth_ctx *ctx, const orth_config *cfg, const choice *c)
{
    const char *place = cfg->place[ORTH_OPT_data_seq_len];
    const int64_t need = cfg->data_seq_len + 1;
    if (c->least >= (double)need)
        return ORTH_OK;
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: data.seq_len=%" PRId64 ": a sequence takes %" PRId64 " tokens (one more to predict), %s only %s%.0f for "
                     "training", place, cfg->data_seq_len, need, cfg->data_path.n > 1 ? "one of the paths has" : "the data has",
                     c->data.num_files ? "about " : "", floor(c->least));
}

static orth_status choose_all(orth_ctx *ctx, const orth_cmd *cmd, orth_config *cfg, choice *c, const char *run_name)
{
    const size_class *size;
    ORTH_TRY(choose_data(ctx, cmd, cfg));
    const orth_text_options text = orth_setup_text(cfg);
    ORTH_TRY(orth_survey_data(ctx, &c->data, cfg->data_path.v, cfg->data_path.n, &text));
    const bool bytes = strcmp(cfg->data_tokenizer, "bytes") == 0;
    if (c->data.num_files > 0 && c->data.documents < 300 && c->data.num_text == 0)
        CHOOSE(data_valid_fraction, "0.1"); /* a hundredth of few documents is none */
    if (c->data.num_files > 0)
        CHOOSE(data_valid_fraction, "0.01");
    const double of_byte = (1 - cfg->data_valid_fraction) / (bytes ? 1 : BYTES_A_TOKEN), least_text = c->data.least_text_bytes * of_byte;
    c->tokens = (double)c->data.tokens + c->data.text_bytes * of_byte;
    c->least = c->data.num_prepared == 0 ? least_text : (double)c->data.least_tokens;
    if (c->data.num_files > 0)
        c->least = ORTH_MIN(c->least, least_text);
    if (c->tokens < 64)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "init: the data is about %.0f tokens: too little to train on", c->tokens);
    ORTH_TRY(choose_model(ctx, cfg, c, &size));
    if (c->data.num_jsonl > 0)
        CHOOSE(data_jsonl_field, "%s", cfg->data_jsonl_field);
    if (c->data.documents > 1 && c->tokens / c->data.documents < (double)cfg->data_seq_len)
        CHOOSE(data_doc_mask, "true");
    ORTH_TRY(choose_length(ctx, cfg, c, size));
    CHOOSE(train_log_every, "%.0f", round_interval(ORTH_MIN(c->steps / 30, 50)));
    CHOOSE(train_eval_every, "%.0f", round_interval(c->steps / 6));
    CHOOSE(optimizer_lr, "%.1e", size->lr);
    CHOOSE(schedule_name, "cosine");
    CHOOSE(schedule_warmup_steps, "%.0f", round_interval(ORTH_MIN(c->steps / 15, 200)));
    CHOOSE(precision_compute, ctx->isa >= ORTH_ISA_AVX512BF16 ? "bf16" : "fp32");
    CHOOSE(checkpoint_dir, "runs/%.40s", run_name);
    CHOOSE(checkpoint_every_steps, "%.0f", round_interval(c->steps / 3));
    ORTH_TRY(orth_config_check(ctx, cfg));
    ORTH_TRY(check_vocab(ctx, cfg, c));
    ORTH_TRY(check_length(ctx, cfg, c));
    return orth_config_tell_idle(ctx, cfg);
}

/* ---- the file ---- */

static void add_comment(orth_ctx *ctx, orth_text *t, const char *indent, const char *words)
{
    orth_text lines = {0};
    orth_text_wrap(ctx, &lines, words, 0, 0, WIDTH);
    for (const char *at = lines.s, *end; at && (end = strchr(at, '\n')) != NULL; at = end + 1)
        orth_text_addf(ctx, t, "%s# %.*s\n", indent, (int)(end - at), at);
    t->failed = t->failed || lines.failed;
    orth_mem_free(ctx, lines.s);
}

static bool of_this_machine(const orth_config *cfg, int id)
{
    return strncmp(cfg->place[id], "environment", strlen("environment")) == 0;
}

/* All keys that are set, in the order of the table, so each section once. */
static void add_keys(orth_ctx *ctx, orth_text *t, const orth_config *cfg)
{
    const char *open = "";
    for (int id = 0; id < ORTH_NUM_OPTIONS; id++) {
        const orth_option *o = orth_option_get((orth_option_id)id);
        const int len = (int)strcspn(o->path, ".");
        if (!cfg->place[id] || of_this_machine(cfg, id))
            continue;
        if (strncmp(open, o->path, (size_t)len + 1) != 0)
            orth_text_addf(ctx, t, "\n%.*s:\n", len, o->path);
        open = o->path;
        char *value = orth_option_text(ctx, cfg, (orth_option_id)id);
        add_comment(ctx, t, "  ", o->help);
        orth_text_addf(ctx, t, "  %s: %s\n", o->path + len + 1, value ? value : "");
        t->failed = t->failed || !value;
        orth_mem_free(ctx, value);
    }
}

/* A path as a word for a shell. */
static void add_word(orth_ctx *ctx, orth_text *t, const char *path)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_./-";
    const char *shown = ORTH_SHOWN(path);
    if (shown[strspn(shown, plain)] == '\0') {
        orth_text_add(ctx, t, shown);
        return;
    }
    orth_text_add(ctx, t, "'");
    for (size_t n; *shown; shown += n + (shown[n] == '\'')) {
        n = strcspn(shown, "'");
        orth_text_addf(ctx, t, "%.*s%s", (int)n, shown, shown[n] ? "'\\''" : "");
    }
    orth_text_add(ctx, t, "'");
}

/* "84.9 thousand" */
#define IN_WORDS(x) in_words((char[32]){0}, x)
static const char *in_words(char out[32], double x)
{
    static const struct { double unit; const char *name; } units[] = {{1e9, " billion"}, {1e6, " million"}, {1e3, " thousand"}};
    int i = 0;
    while (i < ORTH_COUNT(units) && x < units[i].unit)
        i++;
    if (i == ORTH_COUNT(units))
        snprintf(out, 32, "%.0f", x);
    else
        snprintf(out, 32, "%.3g%s", x / units[i].unit, units[i].name);
    return out;
}

static void describe(orth_ctx *ctx, orth_text *t, const choice *c)
{
    const orth_survey *d = &c->data;
    if (d->num_prepared)
        orth_text_addf(ctx, t, "%d prepared data set%s", d->num_prepared, d->num_prepared == 1 ? "" : "s");
    if (d->num_files)
        orth_text_addf(ctx, t, "%s%d file%s of %s with %s bytes of text", d->num_prepared ? " and " : "", d->num_files,
                       d->num_files == 1 ? "" : "s", d->num_jsonl && d->num_text ? "text and JSONL" : d->num_jsonl ? "JSONL" : "text",
                       IN_WORDS(d->text_bytes));
    orth_text_addf(ctx, t, ": %s document%s, %s%s training tokens", IN_WORDS(d->documents), d->documents < 1.5 ? "" : "s",
                   d->num_files ? "about " : "", IN_WORDS(c->tokens));
}

/* word: the path for a shell. */
static char *make_text(orth_ctx *ctx, const orth_config *cfg, const choice *c, const char *word, const char *seen)
{
    orth_text t = {0}, head = {0};
    orth_text_addf(ctx, &head, "A run file of Orthant, made by `orthant init` for %s. The layers of the model have %s parameters; %.0f tokens "
                   "for each would be %.3g passes over the data, of which at most %.0f are chosen. Keys that are not here have the defaults of `orthant help "
                   "options`. The first of these commands says what the run needs, the second starts it:", seen, IN_WORDS(c->params),
                   TOKENS_A_PARAMETER, TOKENS_A_PARAMETER * c->params / c->tokens, MAX_EPOCHS);
    add_comment(ctx, &t, "", head.s ? head.s : "");
    orth_text_addf(ctx, &t, "#   orthant plan %s\n#   orthant train %s\n", word, word); /* not wrapped: a word may hold spaces */
    t.failed = t.failed || head.failed;
    orth_mem_free(ctx, head.s);
    add_keys(ctx, &t, cfg);
    return orth_text_take(ctx, &t);
}

/* The file's name without folder and ending: that of the run folder. */
static void name_of(char out[64], const char *path)
{
    const char *slash = strrchr(path, '/');
    path = slash ? slash + 1 : path;
    int n = (int)strnlen(path, 40);
    while (n > 0 && ((unsigned char)path[n] & 0xC0) == 0x80) /* not in the middle of a character */
        n--;
    snprintf(out, 64, "%.*s", n, path);
    char *dot = strrchr(out, '.');
    if (dot && dot != out)
        *dot = '\0';
}

static orth_status write_run_file(orth_ctx *ctx, const orth_config *cfg, const choice *c, const char *path)
{
    orth_text seen = {0}, word = {0};
    describe(ctx, &seen, c);
    add_word(ctx, &word, path);
    char *text = seen.failed || word.failed ? NULL : make_text(ctx, cfg, c, word.s, seen.s);
    const orth_status s = text ? orth_file_write(ctx, path, text, strlen(text)) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        printf("%s: for %s, %s steps\nnext:  orthant plan %s\n       orthant train %s\n", ORTH_SHOWN(path), seen.s, IN_WORDS(c->steps),
               word.s, word.s);
    orth_mem_free(ctx, text);
    orth_mem_free(ctx, word.s);
    orth_mem_free(ctx, seen.s);
    return s;
}

orth_status orth_cmd_init(orth_ctx *ctx, const orth_cmd *cmd)
{
    const char *given = orth_cmd_flag(cmd, "out"), *path = given ? given : "run.yaml";
    orth_config cfg;
    choice c = {0};
    char run_name[64];
    bool there;
    if (cmd->run_file)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "init: %s is no data; the run file that is written is named by --out", cmd->run_file);
    if (!path[0])
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "init: --out is empty");
    ORTH_TRY(orth_path_look(ctx, path, &there));
    if (there)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "init: %s exists already and is left as it is: name another file with --out", path);
    name_of(run_name, path);
    orth_status status;
    ORTH_TRY_GOTO(orth_cmd_load(ctx, cmd, &cfg, NULL));
    ORTH_TRY_GOTO(choose_all(ctx, cmd, &cfg, &c, run_name));
    ORTH_TRY_GOTO(write_run_file(ctx, &cfg, &c, path));
done:
    orth_config_release(ctx, &cfg);
    return status;
}
