/* data.h -- what a run trains on: the data sets behind data.path, their weights and one tokenizer.
 *
 * A path is a prepared folder, used as it is, or a text or JSONL file or a folder of them, prepared on the fly into a cache
 * folder whose name is a hash of the files (path, size, time of change), of the options and of the tokenizer: a
 * second start opens it at once, and a changed file is prepared again.
 */
#ifndef ORTH_DATA_DATA_H
#define ORTH_DATA_DATA_H

#include "data/corpus.h"
#include "data/prepare.h"

typedef struct {
    const char *const *paths;     /* [num_paths] data.path */
    int num_paths;
    const double *weights;        /* [num_weights] data.weights; none: by size */
    int num_weights;
    const char *tokenizer;        /* data.tokenizer: a file, "bytes", or "auto": that of the prepared folders,
                                     or else trained on the text, auto_vocab tokens */
    const char *const *eos;       /* [num_eos] data.eos_token: contents; none: those of the tokenizer */
    int num_eos;
    int64_t auto_vocab;           /* 0: "auto" without a prepared folder is an error */
    int64_t max_vocab;            /* tokens that the model has room for; 0: its vocabulary follows the tokenizer */
    orth_text_options text;
    double valid_fraction;
    uint64_t seed;                /* of the split */
    const char *cache_dir;        /* such as RUNFOLDER/data; made when needed */
} orth_data_options;

typedef struct {
    int num_sets;
    orth_dataset **sets;          /* [num_sets], one per path */
    orth_tokenizer *tokenizer;    /* its first end-of-text token ends the documents of the first set */
    uint64_t fingerprint;         /* of all training tokens: XXH64 of the headers of the shards, in order */
    /* For orth_sampler_options; they live as long as this. */
    const orth_corpus **train;    /* [num_sets] */
    const double *weights;        /* [num_sets] or NULL: by size */
    const orth_corpus **valid;    /* [num_valid]: those that are not empty */
    int num_valid;
} orth_data;

/* Whether data.tokenizer names none: NULL, "" or "auto". */
bool orth_data_tokenizer_is_auto(const char *tokenizer);

/* Not collective: of several processes each may call it, the first to finish makes the cache; of the ranks
 * of one process only one may (the temporary folder is named after the process).
 * ORTH_ERR_ARG (weights and paths differ in number, tokenizer needed or too large for the model), ORTH_ERR_DATA
 * (damaged; tokenizer or named end-of-text token does not match the shards, both fingerprints named), and what orth_prepare returns. */
orth_status orth_data_open_or_prepare(orth_ctx *ctx, orth_data **out, const orth_data_options *options);
void orth_data_close(orth_ctx *ctx, orth_data *d); /* NULL is fine */

/* ORTH_ERR_ARG: a tokenizer of `size` tokens is too large for a model's vocabulary. */
orth_status orth_data_check_vocab(orth_ctx *ctx, int64_t size, int64_t vocab);

/* The errors of orth_data_open_or_prepare that show without preparing: options, the beginning of each file, a tokenizer that is named. Writes nothing. */
orth_status orth_data_check(orth_ctx *ctx, const orth_data_options *options);

#endif
