/* setup.h -- from a run file to a model and its programs. Used by train, plan, explain, eval, generate. */
#ifndef ORTH_TRAIN_SETUP_H
#define ORTH_TRAIN_SETUP_H

#include "base/scratch.h"
#include "ckpt/checkpoint.h"
#include "config/config.h"
#include "data/reader.h"
#include "data/sampler.h"
#include "model/blocks.h"
#include "plan/programs.h"
#include "run/executor.h"

/* A line where sizes of the model follow from others instead of being the preset's. `m`: of orth_setup_model. */
void orth_setup_say_derived(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *m);

/* The dropouts that the run file gives, in place of those of `c`. */
void orth_setup_dropout(const orth_config *cfg, orth_model_config *c);
/* Dimensions: the preset, replaced key by key by what the run file sets. Another hidden or heads than the preset's decides what is
 * not set of kv_heads, head_dim and ffn. tokenizer_vocab: size for
 * model.vocab=auto without a preset; 0: not known yet. ORTH_ERR_ARG in words. */
orth_status orth_setup_model(orth_ctx *ctx, const orth_config *cfg, int64_t tokenizer_vocab,
                             orth_model_config *out);

/* Weights that a run starts from bring their own dimensions, `m`: ORTH_ERR_ARG if the run file gives another one.
 * dir: whose weights, for the message. */
orth_status orth_setup_match_weights(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *m, const char *dir);
/* The keys of cfg that weights fix become those of m, given at `place`: run.yaml of a run from weights is one of the same model. */
void orth_setup_put_model(orth_config *cfg, const orth_model_config *m, const char *place);

/* What the run file says of one optimizer step on one rank. */
/* Of precision.compute. */
orth_dtype orth_setup_compute(const orth_config *cfg);
orth_file_io orth_setup_file_io(const orth_config *cfg); /* memory.offload_io */
orth_model_shape orth_setup_shape(const orth_config *cfg, orth_mode mode);
/* frozen [num_params], all false: becomes true for the parameters that optimizer.freeze names. As orth_freeze_resolve. */
orth_status orth_setup_frozen(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model, bool *frozen);
/* Scales of a row of the whole of a weight, as orth_param_scales has them; 0: its moments are not in 8 bits. */
int64_t orth_setup_scale_cols(const orth_config *cfg, const orth_model_config *model, orth_weight_id id);

/* How the run file has text read. Points into cfg. */
orth_text_options orth_setup_text(const orth_config *cfg);
/* The keys by which text is prepared: other values make other tokens. */
enum { ORTH_NUM_TEXT_KEYS = 4 };
extern const orth_option_id orth_setup_text_keys[ORTH_NUM_TEXT_KEYS];

/* Steps of train.epochs passes over `sequences` sequences, the last one begun counted; at least 1. */
int64_t orth_setup_epoch_steps(const orth_config *cfg, int64_t sequences);

/* The layout of the run file. */
orth_layout orth_setup_layout(const orth_config *cfg);
/* Returns s. An error of a layout's rules, which names settings as tp=3, gets the whole key and the place of the first setting that was given. */
orth_status orth_setup_say_place(orth_ctx *ctx, const orth_config *cfg, orth_status s);

/* Rows of each sequence that are on a rank. */
orth_sample_rows orth_setup_rows(const orth_model_shape *shape);

/* Writes the first bytes of a data slot, if the program has it. */
orth_status orth_setup_put(orth_ctx *ctx, orth_executor *e, orth_data_slot slot, const void *from, size_t bytes);
/* What checkpoints have of delayed scaling, without the buffers. */
orth_checkpoint_delayed orth_setup_delayed(const orth_config *cfg, const orth_model_config *model);
/* What a checkpoint has of it, as far as the program has that, too. ORTH_ERR_DATA, ORTH_ERR_NOMEM. */
orth_status orth_setup_load_delayed(orth_ctx *ctx, const orth_config *cfg, const orth_model_config *model, const orth_checkpoint *ck,
                                    orth_executor *e);
/* Writes the table of rotary angles, if the program has it. ORTH_ERR_NOMEM. */
orth_status orth_setup_rope_table(orth_ctx *ctx, orth_executor *e, const orth_model_config *model);
/* Writes the positions of the rows that sequence parallelism leaves on this rank, if the program asks for
 * them; pos [num_seqs*seq_len]: of all rows. */
orth_status orth_setup_positions_sp(orth_ctx *ctx, const orth_compile_spec *spec, orth_executor *e, const int32_t *pos,
                                    int64_t num_seqs);

/* precision.fp32_products; for auto what numerics.mode makes of it: fma, or auto where the processor decides. */
orth_option_precision_fp32_products orth_setup_fp32_products(const orth_config *cfg);

/* Raises or lowers ctx->isa to what precision.fp32_products says. ORTH_ERR_ARG where it wants AMX and ctx->isa has none. */
orth_status orth_setup_products(orth_ctx *ctx, const orth_config *cfg);

/* Kernel table of run.backend. */
const orth_kernel_fn *orth_setup_kernels(const orth_config *cfg);

#endif
