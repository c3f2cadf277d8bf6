/* blocks.h -- a model as block graphs, on the shapes of one rank and one micro-batch.
 *
 * A family is one file with a layer function; embedding, final norm and head are common. The mode
 * says what the blocks are for: training (backward derived, dropout on), evaluation (forward and
 * loss), decoding (n new tokens per sequence against a KV cache, logits out).
 */
#ifndef ORTH_MODEL_BLOCKS_H
#define ORTH_MODEL_BLOCKS_H

#include "model/factors.h"
#include "program/lower/compile.h"

typedef struct {
    orth_mode mode;
    int32_t num_seqs, seq_len;    /* B, T; decoding: new tokens per sequence */
    int32_t num_micro_batches;
    const int64_t *shares;        /* as in orth_compile_spec */
    int32_t parts;                /* numerics.parts; 1 in fast mode */
    orth_dtype compute;
    orth_recipe products;         /* how the linear layers of blocks quantise their operands; not in decoding */
    orth_state_types types;
    orth_space space;             /* where kernels work */
    orth_offload offload;         /* as in orth_compile_spec */
    bool doc_mask;                /* a doc_starts operand for attention */
    bool attention_full;          /* the materialised reference */
    int64_t cache_rows;           /* decoding: longest sequence */
    bool external_params;         /* weights and caches are those of another program */
    orth_op optimizer;
    bool nesterov, no_moments;    /* as in orth_compile_spec */
    orth_delayed_scaling delayed; /* of a recipe with such scales */
    orth_factors lr_factors, decay_factors; /* of single parameters; others have 1, and 1 or 0 as weights.def says */
    orth_factors freeze;          /* which parameters are not trained */
    orth_place_in_mesh mesh;      /* this rank's place; all zero: alone */
    orth_comm_policy comm;
    orth_recompute recompute;     /* training */
    int32_t ffn_chunk_rows;       /* rows of the feed-forward that are computed at once, at most; 0: all */
    int32_t head_chunk_rows;      /* the same of the head; 0: ORTH_HEAD_CHUNK_ROWS */
    bool keep_packed;             /* as in orth_compile_spec */
    const orth_chunk *chunks;     /* as in orth_compile_spec; outlive the blocks */
    int32_t num_chunks;
    const orth_action *actions;
    int32_t num_actions;
    bool async;
} orth_model_shape;

/* Graphs, registry and the spec that orth_compile (program/compile.h) takes; all owned by this. */
typedef struct {
    orth_ctx *ctx;
    orth_arena arena;
    orth_graph embed, layer, final, head;
    orth_compile_spec spec;
} orth_model_blocks;

/* ORTH_ERR_ARG where shape and model do not fit (seq_len > max_seq, ...), ORTH_ERR_NOMEM. On failure
 * there is nothing to release. */
orth_status orth_model_blocks_build(orth_ctx *ctx, const orth_model_config *c, const orth_model_shape *shape,
                                    orth_model_blocks *out);
void orth_model_blocks_release(orth_model_blocks *b);

/* Canonical leaves of a sequence in the head's weight gradient, which depend on the problem only. */
int64_t orth_head_leaves(int64_t seq_len, int64_t parts);
/* Chunks in which the head computes a sequence, or a rank's seq_len tokens of one, of that many leaves: of at most `rows` rows
 * where there are as many leaves. By default enough rows for the products to run at full speed, few enough that the logits stay a
 * fraction of what they would be for a micro-batch. */
#define ORTH_HEAD_CHUNK_ROWS 512
int64_t orth_head_chunks(int64_t leaves, int64_t num_seqs, int64_t seq_len, int64_t rows);
/* Rows of a chunk of the feed-forward: `most` or fewer, but a canonical part of a sequence at least; whole sequences, or a power of two
 * of the token_parts parts of one, if they are equal: *parts is then token_parts, else 1. num_seqs sequences of seq_len tokens. */
int64_t orth_ffn_chunk_rows(int64_t most, int64_t num_seqs, int64_t seq_len, int32_t token_parts, int32_t *parts);
/* Elements of the model whose parameters, params[num_params], are not frozen. */
int64_t orth_model_num_trained(const orth_model_config *c, const orth_param_desc *params);
/* What this rank has of a weight; name and factors of its own only a parameter has. */
orth_param_desc orth_weight_here(const orth_model_config *c, const orth_model_shape *shape, orth_weight_id id);

/* cos and sin of the rotary angles: table[p*D + i], table[p*D + D/2 + i] for i < D/2, positions
 * [0, rows). Angles in double, Llama-3 scaling if asked for. */
void orth_model_rope_table(const orth_model_config *c, float *table, int64_t rows);

#endif
