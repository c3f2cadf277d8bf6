/* import_impl.h -- what the files of the importer share. */
#ifndef ORTH_TOOLS_IMPORT_IMPL_H
#define ORTH_TOOLS_IMPORT_IMPL_H

#include "base/text.h"
#include "tools/import.h"

typedef enum { ORTH_FORM_JSON, ORTH_FORM_YAML, ORTH_FORM_WORDS } orth_import_form;

typedef enum {
    ORTH_ROW_SAME, ORTH_ROW_READ, ORTH_ROW_GIVES, ORTH_ROW_ELEMS, ORTH_ROW_PART, ORTH_ROW_NOT, ORTH_ROW_REFUSED
} orth_import_kind;

/* What several of their keys decide together. */
typedef enum {
    ORTH_PART_none,
    ORTH_PART_nodes, ORTH_PART_ranks_a_node, ORTH_PART_accumulation, ORTH_PART_replicas, ORTH_PART_keep_whole, ORTH_PART_reuse, ORTH_PART_live,
    ORTH_PART_prefetch_elems, ORTH_PART_wrap, ORTH_PART_wrap_classes, ORTH_PART_wrap_elems, ORTH_PART_sequence_parallel,
    ORTH_PART_cp_kind, ORTH_PART_offload_all, ORTH_PART_offload_ratio, ORTH_PART_offload_layers,
    ORTH_PART_layers_of_chunk, ORTH_PART_sharding, ORTH_PART_hybrid, ORTH_PART_mics, ORTH_PART_fsdp, ORTH_PART_fsdp_shards,
    ORTH_PART_nemo_optim, ORTH_PART_split_inputs, ORTH_PART_host_checkpoints, ORTH_PART_recompute_method, ORTH_PART_recompute_layers,
    ORTH_PART_first_stage, ORTH_PART_last_stage, ORTH_PART_embedding_counts, ORTH_PART_loss_counts, ORTH_PART_chunks,
    ORTH_PART_amp_o2, ORTH_PART_grad_sync, ORTH_PART_fsdp_grad_sync, ORTH_PART_bf16, ORTH_PART_fp16, ORTH_PART_fp8_autocast, ORTH_PART_fp8_format, ORTH_PART_fp8_recipe, ORTH_PART_amax_history, ORTH_PART_amax_algo, ORTH_PART_static_scale, ORTH_PART_first_scale, ORTH_PART_scale_power,
    ORTH_PART_samples, ORTH_PART_warmup_samples, ORTH_PART_warmup_fraction, ORTH_PART_decay_steps, ORTH_PART_decay_samples, ORTH_PART_wsd_steps,
    ORTH_PART_wsd_samples, ORTH_PART_ds_warmup, ORTH_PART_ds_lr, ORTH_PART_ds_peak, ORTH_PART_cosine_end, ORTH_PART_min_lr,
    ORTH_PART_beta1, ORTH_PART_beta2,
    ORTH_PART_swiglu, ORTH_PART_activation, ORTH_PART_norm, ORTH_PART_positions, ORTH_PART_rotary, ORTH_PART_rope_scaling, ORTH_PART_rope_factor, ORTH_PART_no_bias, ORTH_PART_bias,
    ORTH_PART_qkv_bias, ORTH_PART_ffn, ORTH_PART_group_query, ORTH_PART_query_groups, ORTH_PART_vocab, ORTH_PART_padded_vocab, ORTH_PART_tokenizer,
    ORTH_PART_vocab_multiple
} orth_import_part;

/* A row of imports.def. */
typedef struct {
    orth_tool tool;
    orth_import_kind kind;
    const char *path, *value;     /* value NULL or empty: any */
    const char *key;              /* here; NULL: none */
    const char *text;             /* GIVES: the value here; NOT, REFUSED: why */
    orth_import_part part;
} orth_import_row;

orth_import_form orth_tool_form(orth_tool tool);
/* Rows of imports.def by number; NULL past the last. */
const orth_import_row *orth_import_row_at(int i);
/* The row that a key with this value has, or NULL. */
const orth_import_row *orth_import_row_of(orth_tool tool, const char *path, const char *value);
/* Whether a row is about this value of the key, not about any. */
bool orth_import_is_named(orth_tool tool, const char *path, const char *value);
/* Whether a row is about this key; a PART may say more than its name. row NULL: no. */
bool orth_import_is_about(const orth_import_row *row, const char *key);
/* Whether rows are about keys of the section `path`; whether one is about the key `path` itself. */
bool orth_import_is_section(orth_tool tool, const char *path);
bool orth_import_is_key(orth_tool tool, const char *path);
/* What a configuration without this key means (ABSENT); NULL: not known. */
const char *orth_import_absent(orth_tool tool, const char *path);

/* A key of theirs that was given. */
typedef struct orth_import_pair {
    const char *path, *value;
    const char *place;            /* for messages: "run.sh:3: lr" */
    const orth_import_row *row;   /* NULL: there is none */
    bool is_default;              /* nobody wrote it: ABSENT */
    struct orth_import_pair *next;
} orth_import_pair;

typedef struct {
    orth_ctx *ctx;
    orth_config *cfg;
    orth_tool tool;
    const char *name;             /* of the file, for messages */
    int64_t num_devices;          /* of the cluster; 0: not known */
    orth_arena arena;             /* of the pairs */
    orth_import_pair *first, *last;
    const orth_import_pair *givers[ORTH_NUM_OPTIONS]; /* which pair set a key here; NULL: none */
} orth_importer;

/* Adds a pair; `where` is the file and, if known, the line. ORTH_ERR_ARG for a value where a section belongs, and for a key that a file has twice, as
 * `a: {b: 1}` and `a.b: 1`. */
orth_status orth_import_add(orth_importer *x, const char *where, const char *path, const char *value);
/* The same, but a value that says "none" (null, {}, empty) is left out, unless a row names it. */
orth_status orth_import_add_given(orth_importer *x, const char *where, const char *path, const char *value);
/* The last pair of a part; NULL: not given. */
const orth_import_pair *orth_import_find(const orth_importer *x, orth_import_part part);
/* Whether a switch is given and on; whether the value is one of the words. */
bool orth_import_is_true(const orth_import_pair *p);
bool orth_import_is_word(const orth_import_pair *p, const char *const *words, int num);
/* Whether a part is a switch; whether a value is true or false; ORTH_ERR_ARG where that of a switch is not. */
bool orth_import_part_is_switch(orth_import_part part);
bool orth_import_is_switch(const orth_import_pair *p);
orth_status orth_import_check_switches(orth_importer *x);
/* Whether its key is one of a section. */
bool orth_import_is_in(const orth_import_pair *p, const char *section);
/* Whether a pair is "key=value" of theirs. */
bool orth_import_has(const orth_importer *x, const char *pair);
/* The first pair that sets this key, or NULL; and whether there is one. */
const orth_import_pair *orth_import_giving(const orth_importer *x, const char *key);
bool orth_import_gives(const orth_importer *x, const char *key);
/* What is wrong with a text as a number, for a message; NULL: nothing. Their numbers are decimal: 0x10, 1_000, nan and inf, which C, Python or YAML
 * read as numbers in some places and not in others, are refused. A whole number has digits only, after a sign. */
const char *orth_import_not_real(const char *text);
const char *orth_import_not_whole(const orth_importer *x, const char *text);
/* Whether YAML reads the text as octal (010 is 8). */
bool orth_import_is_octal(const orth_importer *x, const char *text);
/* A part as a number from `least` to 1e15; `fallback` where it is not given. ORTH_ERR_ARG for another word. */
orth_status orth_import_number(orth_importer *x, orth_import_part part, double least, double fallback, double *out);
/* The same as a whole number. */
orth_status orth_import_whole(orth_importer *x, orth_import_part part, int64_t least, int64_t fallback, int64_t *out);
/* A part as a whole number of at least 1; `fallback` where it is not given. ORTH_ERR_ARG for another word. */
orth_status orth_import_count(orth_importer *x, orth_import_part part, int64_t fallback, int64_t *out);
/* The last pair of a key of theirs, or NULL; and whether there is one. */
const orth_import_pair *orth_import_at(const orth_importer *x, const char *path);
bool orth_import_is_given(const orth_importer *x, const char *path);
/* "run.sh: what"; NULL without memory, which orth_import_set passes on. */
const char *orth_import_place(orth_importer *x, const char *what);
/* Whether the command line gives this key. */
bool orth_import_stays(const orth_config *c, const char *key);
/* Sets a key here and says so; one of the command line stays as it is, and then that is logged. ORTH_ERR_ARG where `place` is that of a pair, and another
 * pair has set the key to something else; in a script, whose branches are all read, that is a warning, and the last counts. */
orth_status orth_import_set(orth_importer *x, const char *place, const char *key, const char *value);
orth_status orth_import_set_int(orth_importer *x, const char *place, const char *key, int64_t value);
orth_status orth_import_set_real(orth_importer *x, const char *place, const char *key, double value);
/* Two pairs say different things of a key here: what each makes of it. ORTH_ERR_ARG, but of a script ORTH_OK and a warning. */
orth_status orth_import_contradict(orth_importer *x, const orth_import_pair *a, const orth_import_pair *b, const char *key, const char *of_a, const char *of_b);
/* Says that a key of theirs is not used; that those of parts are not that somebody wrote. */
void orth_import_unused(orth_importer *x, const char *place, const char *why);
void orth_import_unused_parts(orth_importer *x, const orth_import_part *parts, int num, const char *why);

orth_status orth_import_read_json(orth_importer *x, const char *path);
orth_status orth_import_read_yaml(orth_importer *x, const char *path);
/* `source`: a script, or the words themselves. */
orth_status orth_import_read_words(orth_importer *x, const char *source);
/* Whether the words were read of a script, whose branches are all read. */
bool orth_import_is_script(const orth_importer *x);

/* The keys that follow from parts. All other rows were applied. */
orth_status orth_import_combine(orth_importer *x);
/* Of these the numbers of ranks and sequences, the optimizer and its schedule, the model, and the layers of its pipeline stages. */
orth_status orth_import_batch(orth_importer *x);
orth_status orth_import_optimizer(orth_importer *x);
orth_status orth_import_model(orth_importer *x);
orth_status orth_import_stages(orth_importer *x);

/* Whether its configurations say the model; the others take it from elsewhere. */
bool orth_tool_has_model(orth_tool tool);

/* Words of Megatron-LM: for each choice of precision.products, NULL where it has none; and of parallel.zero. */
typedef struct {
    const char *recipe, *format;
} orth_import_fp8_words;
extern const orth_import_fp8_words orth_import_fp8[ORTH_precision_products_fp8_delayed + 1];
extern const char *const orth_import_sharding[ORTH_parallel_zero_3 + 1];

#endif
