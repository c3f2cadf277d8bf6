/* state.h -- state.json of a checkpoint: where training was, and what every other file must hash to.
 *
 * The file proves itself: its last member is the XXH64 of all the text before it. So a checkpoint is
 * valid iff state.json is, and every file that it lists has the size and hash listed.
 */
#ifndef ORTH_CKPT_STATE_H
#define ORTH_CKPT_STATE_H

#include "base/ctx.h"
#include "data/special_tokens.h"

#define ORTH_CHECKPOINT_VERSION 1

typedef struct {
    int64_t step;                     /* optimizer steps done (skipped ones included) */
    int64_t next_sequence;            /* data cursor: global index of the next sequence */
    int64_t tokens;                   /* counted so far */
    int64_t skipped;                  /* steps whose update was skipped */
    int64_t seed;
    double loss_scale;                /* 1 without scaling */
    int64_t loss_scale_streak;        /* good steps since it last changed */
    uint64_t tokenizer_fingerprint;   /* 0: none */
    uint64_t data_fingerprint;        /* of the training tokens (data.h); 0: not recorded */
    orth_special_tokens special;      /* that end, begin and pad a text */
} orth_checkpoint_state;

#define ORTH_CHECKPOINT_MAX_FILES 8

typedef struct {
    char name[64];
    uint64_t num_bytes;
    uint64_t hash;                    /* XXH64, seed 0 */
} orth_checkpoint_file;

typedef struct {
    orth_checkpoint_state state;
    char *run_config;                 /* heap; never NULL after a read */
    int num_files;
    orth_checkpoint_file files[ORTH_CHECKPOINT_MAX_FILES];
} orth_checkpoint_manifest;

/* `body` (JSON without its closing brace) with the checksum member and the brace; heap memory. */
char *orth_checkpoint_seal(orth_ctx *ctx, const char *body, size_t num_bytes);
/* The text of state.json in heap memory; NULL with the error recorded. */
char *orth_checkpoint_manifest_text(orth_ctx *ctx, const orth_checkpoint_manifest *m);
/* ORTH_ERR_IO; ORTH_ERR_DATA with path, value and rule. Release when done. */
orth_status orth_checkpoint_manifest_read(orth_ctx *ctx, orth_checkpoint_manifest *out, const char *path);
orth_status orth_checkpoint_manifest_parse(orth_ctx *ctx, orth_checkpoint_manifest *out, const char *path,
                                           const char *text, size_t num_bytes);
void orth_checkpoint_manifest_release(orth_ctx *ctx, orth_checkpoint_manifest *m);
/* NULL if it is not listed. */
const orth_checkpoint_file *orth_checkpoint_manifest_find(const orth_checkpoint_manifest *m,
                                                          const char *name);

#endif
