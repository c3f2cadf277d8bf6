/* prepare_output.h -- the folder that prepare writes: shards of two splits, then dataset.json and
 * tokenizer.json, all in out_dir.tmp-PID, which is renamed over out_dir at the end. */
#ifndef ORTH_DATA_PREPARE_OUTPUT_H
#define ORTH_DATA_PREPARE_OUTPUT_H

#include "data/prepare.h"
#include "data/shard.h"

typedef struct {
    const char *name;             /* train, valid */
    orth_shard_writer *writer;    /* NULL: no shard is open */
    orth_shard_info *shards;      /* [num_shards] finished ones */
    int num_shards, cap_shards;
    bool in_document;             /* the next piece continues the last document */
} prepare_split;

typedef struct {
    const orth_prepare_options *options;
    char *tmp_dir;                /* heap; exists until commit */
    int lock;                     /* on it; -1: none */
    int64_t vocab_size;
    uint64_t fingerprint;
    int64_t num_pieces;
    prepare_split splits[2];
    orth_prepare_result result;
} orth_prepare_output;

/* *out is ready for orth_prepare_output_end even on failure. */
orth_status orth_prepare_output_begin(orth_ctx *ctx, orth_prepare_output *out,
                                      const orth_prepare_options *options);
/* Whether the piece of this index, from 0 over all inputs, is held out for validation. */
bool orth_prepare_held_out(const orth_prepare_options *options, int64_t piece);
/* The next num_pieces pieces, all of the same split, which is that of their index; most are one piece that is a document whole. `tokens` end
 * with the end-of-text token, which is left out where the document goes on in the next piece and in this shard. */
orth_status orth_prepare_output_pieces(orth_ctx *ctx, orth_prepare_output *out, const int32_t *tokens, int64_t n,
                                       int64_t text_bytes, int64_t num_pieces, bool goes_on);
orth_status orth_prepare_output_commit(orth_ctx *ctx, orth_prepare_output *out);
/* Releases all; without commit nothing of the folder is left. */
void orth_prepare_output_end(orth_ctx *ctx, orth_prepare_output *out);

#endif
