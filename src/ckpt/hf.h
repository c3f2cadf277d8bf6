/* hf.h -- folders in the form of Hugging Face: config.json beside model.safetensors, both ways.
 *
 * Read: GPT-2, Llama 2 and 3, Mistral, Qwen2, Qwen3; one file or shards with an index; F32, BF16, F16;
 * tied or not; tensor names with and without the prefix ("transformer.", "model."). Written: the same
 * names in one file, so that Transformers loads what Orthant saves.
 *
 * The weights are the same numbers in another order (hf_map.c): nothing is computed, so fp32 survives
 * the way there and back bit for bit. docs/formats/checkpoint.md has the tables.
 */
#ifndef ORTH_CKPT_HF_H
#define ORTH_CKPT_HF_H

#include "ckpt/json.h"
#include "ckpt/safetensors.h"
#include "data/tokenizer.h"
#include "model/registry.h"

/* ---- config.json (hf_config.c) ---- */

/* ORTH_ERR_DATA with `place`, key, value and rule: unknown model type, an activation, a RoPE scaling
 * or another setting that Orthant does not compute, sizes that do not fit together. A sliding window
 * shorter than the positions becomes max_seq, where it makes no difference (a warning says so). */
orth_status orth_hf_config_parse(orth_ctx *ctx, orth_model_config *out, const char *place, const char *text,
                                 size_t num_bytes);
/* dtype: of the weights beside it. special: NULL for none. Heap memory, NULL with the error recorded.
 * Settings that no Hugging Face class has (say, qk_norm with mlp_bias) are written as model_type
 * "orthant", which Orthant alone reads. */
char *orth_hf_config_text(orth_ctx *ctx, const orth_model_config *c, orth_dtype dtype,
                          const orth_special_tokens *special);
/* Whether Transformers has a family that computes this model: not so, it is "orthant". */
bool orth_hf_has_family(const orth_model_config *c);
/* Whether it is written as model_type "qwen2". */
bool orth_hf_is_qwen2(const orth_model_config *c);

/* ---- special tokens (hf_tokens.c). Heap memory, NULL with the error recorded. ---- */

/* Sets bos_token_id, eos_token_id (a list if there are several) and pad_token_id, null for none. special: NULL for none. */
void orth_hf_put_special(json_t **object, const orth_special_tokens *special);
/* generation_config.json: what Transformers' generate() stops at, begins with and pads with. */
char *orth_hf_generation_text(orth_ctx *ctx, const orth_special_tokens *special);
/* tokenizer_config.json: the class and the special tokens of AutoTokenizer. Without a pad token the end of text pads, so
 * that batches can be padded at all; on the left, which is where a batch that is continued is padded. chat_template: its value of that
 * key; NULL: none. */
char *orth_hf_tokenizer_text(orth_ctx *ctx, const orth_tokenizer *tok, const orth_special_tokens *special,
                             int64_t max_seq, json_t *chat_template);
/* The chat template of a folder: the text of chat_template.jinja, or else the value of that key of tokenizer_config.json. Release with json_decref; NULL:
 * none. ORTH_ERR_IO, ORTH_ERR_DATA. */
orth_status orth_hf_chat_template(orth_ctx *ctx, json_t **out, const char *dir);

/* ---- the map between tensors (hf_map.c) ---- */

typedef struct {
    char name[ORTH_HF_NAME];      /* with prefix, as written */
    int32_t prefix_chars;         /* name + prefix_chars: the same without it */
    int32_t num_dims;
    int64_t dim[2];               /* as stored by them */
    orth_hf_rows rows;
    bool transposed;              /* stored [in, out] (GPT-2's Conv1D) */
    int64_t heads_per_group, head_dim, heads, kv_heads;
    int64_t our_cols;
} orth_hf_tensor;

/* Their tensors (1 to ORTH_HF_MAX_PARTS) that make up parameter `index` of the registry. */
orth_status orth_hf_map_param(orth_ctx *ctx, const orth_model_config *c, int64_t index,
                              orth_hf_tensor out[ORTH_HF_MAX_PARTS], int *out_num);
/* n stored rows of theirs from `first` on (row = first dim as stored; a vector has rows of 1), taken
 * from, and put into, the whole of our parameter. One is the inverse of the other. */
void orth_hf_gather_rows(float *rows, const orth_hf_tensor *t, const float *ours, int64_t first, int64_t n);
void orth_hf_scatter_rows(float *ours, const orth_hf_tensor *t, const float *rows, int64_t first, int64_t n);
/* Elements of a stored row, and how many rows are worth handling at a time. */
int64_t orth_hf_row_elems(const orth_hf_tensor *t);
int64_t orth_hf_block_rows(const orth_hf_tensor *t);

/* ---- a folder, read (hf_read.c) ---- */

typedef struct orth_hf_source orth_hf_source;

/* Opens DIR/config.json and its safetensors, and checks that they hold exactly the model that the
 * config describes: every tensor there, of the right shape and a readable type, none left over
 * (masks and tables that can be computed, and a tied head with the values of the embedding, aside). ORTH_ERR_DATA, ORTH_ERR_IO. */
orth_status orth_hf_open(orth_ctx *ctx, orth_hf_source **out, const char *dir);
void orth_hf_close(orth_ctx *ctx, orth_hf_source *src); /* NULL is fine */

const orth_model_config *orth_hf_source_config(const orth_hf_source *src);
int64_t orth_hf_source_num_files(const orth_hf_source *src);
/* Type of the tensors that make up a parameter (of the first, if they differ). */
orth_dtype orth_hf_source_dtype(const orth_hf_source *src, int64_t index);
/* Parameter `index` of the registry as fp32, in our order. */
orth_status orth_hf_read_param(orth_ctx *ctx, const orth_hf_source *src, int64_t index, float *out);

/* ---- written (hf_write.c) ---- */

/* Called with a parameter before params[index] is read, in the order of the registry. An error ends the writing. */
typedef orth_status (*orth_hf_fetch)(orth_ctx *ctx, void *user, int64_t index);

/* params[i]: the elements of parameter i of the registry, fp32. fetch: NULL if they are there already. dtype F32, BF16 or
 * F16 of the file. Hash and size as orth_st_writer_commit. */
orth_status orth_hf_write_weights(orth_ctx *ctx, const char *path, const orth_model_config *c,
                                  const float *const *params, orth_hf_fetch fetch, void *user, orth_dtype dtype,
                                  uint64_t *out_hash, uint64_t *out_bytes);
/* What stands in a folder beside the weights; all zeros: nothing. */
typedef struct {
    const orth_special_tokens *special;   /* NULL: none */
    const char *tokenizer;                /* text of tokenizer.json; NULL: none */
    size_t tokenizer_bytes;
    const char *tokenizer_config;         /* text of tokenizer_config.json; NULL: none */
} orth_hf_beside;

/* A whole folder that Transformers loads: model.safetensors, config.json, generation_config.json and what of the
 * tokenizer there is. beside: NULL for nothing. */
orth_status orth_hf_write_folder(orth_ctx *ctx, const char *dir, const orth_model_config *c,
                                 const float *const *params, orth_dtype dtype, const orth_hf_beside *beside);

#endif
