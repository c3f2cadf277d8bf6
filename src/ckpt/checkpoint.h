/* checkpoint.h -- the content of one checkpoint folder. docs/formats/checkpoint.md. Which folder it
 * is, how it appears whole and which old ones go: folder.h.
 *
 *   model.safetensors      weights in the form of Hugging Face      (hf.h: Transformers loads the
 *   config.json            dimensions                                folder as it is)
 *   generation_config.json special tokens, for Transformers' generate
 *   tokenizer.json         a copy, if the run has one
 *   tokenizer_config.json  beside it, for Transformers
 *   optimizer.safetensors  m.NAME, v.NAME in our order, fp32; master.NAME if the weights are not fp32; of moments in 8 bits
 *                          their codes, and scales.NAME; fp8.scales, fp8.amax_history of delayed scaling
 *   state.json             counters, the run's options, size and hash of every other file
 *
 * Invariant: what was saved comes back bit for bit, whatever the type of the exported weights.
 */
#ifndef ORTH_CKPT_CHECKPOINT_H
#define ORTH_CKPT_CHECKPOINT_H

#include "ckpt/hf.h"
#include "ckpt/state.h"
#include "kernels/op.h"

/* One parameter of the registry in the caller's memory; elements as orth_param_elems. m, v: NULL
 * where the optimizer keeps none. scale_cols: 0, or m and v are codes of 8 bits, as floats, and each row has so many scales
 * (kernels/moments8.h). */
typedef struct {
    int64_t index;
    float *master, *m, *v, *scales;
    int64_t scale_cols;
} orth_checkpoint_array;

typedef enum {
    ORTH_CHECKPOINT_MASTER = 0, ORTH_CHECKPOINT_M, ORTH_CHECKPOINT_V, ORTH_CHECKPOINT_SCALES, ORTH_NUM_CHECKPOINT_KINDS
} orth_checkpoint_kind;

/* Of delayed scaling (program/lower/delayed_scales.c): scales [layers][ORTH_DELAYED_ROWS], history [layers][ORTH_DELAYED_ROWS][steps]. */
typedef struct {
    float *scales, *history;
    int64_t layers, steps;            /* steps 0: there is none */
} orth_checkpoint_delayed;

static inline int64_t orth_checkpoint_delayed_rows(const orth_checkpoint_delayed *d)
{
    return d->layers * ORTH_DELAYED_ROWS;
}

/* What is to be saved; every parameter of the model exactly once, in any order. */
typedef struct {
    orth_model_config config;
    orth_checkpoint_state state;
    const orth_checkpoint_array *arrays;
    int64_t num_arrays;
    orth_checkpoint_delayed delayed;
    orth_dtype weight_dtype;          /* of model.safetensors: F32, BF16, F16 */
    const char *run_config;           /* resolved run file; NULL: "" */
    const char *tokenizer;            /* text of tokenizer.json; NULL: none */
    size_t tokenizer_bytes;
    const char *tokenizer_config;     /* text of tokenizer_config.json; NULL: none */
    /* NULL, or called before an array is read: kind by kind, each in the order of the registry. What is read is valid until
     * the next call, so that all arrays may be one piece of memory. An error ends the writing. */
    orth_status (*fetch)(orth_ctx *ctx, void *user, int64_t index, orth_checkpoint_kind kind);
    void *fetch_user;
} orth_checkpoint_view;

/* Writes all files into the folder `path`, which exists; state.json last. The folder is a checkpoint
 * only once this succeeded. ORTH_ERR_ARG if the arrays are not the model's; ORTH_ERR_IO,
 * ORTH_ERR_NOSPACE, ORTH_ERR_NOMEM. */
orth_status orth_checkpoint_write(orth_ctx *ctx, const char *path, const orth_checkpoint_view *view);

/* Reads every byte and compares sizes and hashes with state.json. ORTH_ERR_DATA names the file that is damaged or missing;
 * ORTH_ERR_IO, ORTH_ERR_NOMEM: it could not be read now, which says nothing about the checkpoint. */
orth_status orth_checkpoint_verify(orth_ctx *ctx, const char *path);

typedef struct orth_checkpoint orth_checkpoint;

/* Verifies and opens. ORTH_ERR_DATA, ORTH_ERR_IO, ORTH_ERR_NOMEM. */
orth_status orth_checkpoint_open(orth_ctx *ctx, orth_checkpoint **out, const char *path);
void orth_checkpoint_close(orth_ctx *ctx, orth_checkpoint *ck); /* NULL is fine */
/* All three live as long as ck. */
const orth_model_config *orth_checkpoint_config(const orth_checkpoint *ck);
const orth_checkpoint_state *orth_checkpoint_get_state(const orth_checkpoint *ck);
const char *orth_checkpoint_run_config(const orth_checkpoint *ck);
const orth_checkpoint_manifest *orth_checkpoint_files(const orth_checkpoint *ck);

/* Fills the buffers of the arrays; those that are NULL are left out. ORTH_ERR_DATA if a moment is
 * asked for that was not saved. */
orth_status orth_checkpoint_load(orth_ctx *ctx, const orth_checkpoint *ck,
                                 const orth_checkpoint_array *arrays, int64_t num_arrays);
/* Fills the buffers, history unless it is NULL. ORTH_ERR_DATA if they were not saved, or are of another size. */
orth_status orth_checkpoint_load_delayed(orth_ctx *ctx, const orth_checkpoint *ck, const orth_checkpoint_delayed *out);

#endif
