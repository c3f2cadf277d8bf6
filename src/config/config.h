/* config.h -- a run file, parsed: one typed field per row of options.def, named <section>_<key>.
 *
 *   cfg->train_micro_batch   int64_t (INT; BYTES: bytes)    cfg->optimizer_lr   double (REAL)
 *   cfg->data_doc_mask       bool (BOOL)                    cfg->model_preset   const char * (STR, never NULL)
 *   cfg->data_path           orth_strings (STRS)            cfg->optimizer_betas orth_reals (REALS)
 *   cfg->optimizer_name      orth_option_optimizer_name (ENUM): ORTH_optimizer_name_adamw, ...
 *
 * Values come from the defaults, then the run file, then key=value words, later ones replacing
 * earlier ones. Each value is checked by its row when it is set; the rules between options
 * (rules.c) by orth_config_check. A message starts with the place: "run.yaml:3:9: ..." or
 * "command line: ...".
 */
#ifndef ORTH_CONFIG_CONFIG_H
#define ORTH_CONFIG_CONFIG_H

#include "base/yaml.h"

typedef struct {
    int32_t n;
    const char *v[ORTH_LIST_MAX];
} orth_strings;

typedef struct {
    int32_t n;
    double v[ORTH_LIST_MAX];
} orth_reals;

/* typedef enum { ORTH_optimizer_name_adamw, ... } orth_option_optimizer_name; and so on. */
#define ENUM_AT(section, key, path, default_, help) typedef enum {
#define CHOICE(section, key, name) ORTH_##section##_##key##_##name,
#define END(section, key) } orth_option_##section##_##key;
#include "config/options.def"

/* ORTH_OPT_train_steps, ...: the number of a row. */
typedef enum {
#define OPT_AT(section, key, path, type, default_, min, max, unit, help) ORTH_OPT_##section##_##key,
#define ENUM_AT(section, key, path, default_, help) ORTH_OPT_##section##_##key,
#include "config/options.def"
    ORTH_NUM_OPTIONS
} orth_option_id;

#define ORTH_FIELD_INT int64_t
#define ORTH_FIELD_REAL double
#define ORTH_FIELD_BOOL bool
#define ORTH_FIELD_BYTES int64_t
#define ORTH_FIELD_STR const char *
#define ORTH_FIELD_STRS orth_strings
#define ORTH_FIELD_REALS orth_reals

typedef struct {
#define OPT_AT(section, key, path, type, default_, min, max, unit, help) ORTH_FIELD_##type section##_##key;
#define ENUM_AT(section, key, path, default_, help) orth_option_##section##_##key section##_##key;
#include "config/options.def"
    /* Where each value was set, "run.yaml:3:9" or "command line"; NULL: it is the default. */
    const char *place[ORTH_NUM_OPTIONS];
    const char *wrapped_classes;  /* all that FSDP wraps, words between commas, where gather_unit_given is one of them; NULL: it is the only one */
    const char *gather_unit_given; /* parallel.gather_unit as it was written: a class of layers, maybe (CLASS in aliases.def) */
    orth_arena arena;             /* strings above */
    bool on_devices;              /* planned for devices whose memory is not the host's (--cluster, orth_describe_on_devices) */
} orth_config;

#define ORTH_CONFIG_IS_SET(cfg, section, key) ((cfg)->place[ORTH_OPT_##section##_##key] != NULL)

/* Fills in the defaults. ORTH_ERR_NOMEM; on success release when done. */
orth_status orth_config_init(orth_ctx *ctx, orth_config *cfg);
void orth_config_release(orth_ctx *ctx, orth_config *cfg);

/* Reads a YAML file into cfg. ORTH_ERR_ARG with FILE:LINE:COL; ORTH_ERR_IO. */
orth_status orth_config_load(orth_ctx *ctx, orth_config *cfg, const char *path);
/* The same from memory; `name` stands for the file in messages. */
orth_status orth_config_parse(orth_ctx *ctx, orth_config *cfg, const char *name, const char *text,
                              size_t num_bytes);
/* Sets one option from text: the value as YAML ("0.1", "[a, b]", "auto"). `place` for messages. */
orth_status orth_config_set(orth_ctx *ctx, orth_config *cfg, const char *place, const char *path,
                            const char *value);
/* What a name means that is a key, the last word of one, or what other programs call one: the key, and words about it maybe. NULL: nothing. */
const char *orth_config_meaning(const char *name);
/* ORTH_ERR_ARG: unknown key, with the one that is likely meant. */
orth_status orth_config_fail_unknown(orth_ctx *ctx, const char *place, const char *path);
/* Sets in cfg what was given (not left to its default) in `given`, and whether that is for devices. */
orth_status orth_config_override(orth_ctx *ctx, orth_config *cfg, const orth_config *given);
/* Another one with all that is in `given`. ORTH_ERR_NOMEM; on success release when done. */
orth_status orth_config_copy(orth_ctx *ctx, orth_config *out, const orth_config *given);
/* The rules between options; the first that is broken, in words. ORTH_ERR_ARG. */
orth_status orth_config_check(orth_ctx *ctx, const orth_config *cfg);
/* Whether a key changes nothing because of another key. */
bool orth_config_is_idle(const orth_config *cfg, orth_option_id id);
/* Logs what was given, is not the default, and changes nothing because of another key. */
orth_status orth_config_tell_idle(orth_ctx *ctx, const orth_config *cfg);
/* The same of one key, which changes nothing because of `why`. */
orth_status orth_config_tell_key_idle(orth_ctx *ctx, const orth_config *cfg, orth_option_id id, const char *why);

/* Whether something is kept outside of the device: anywhere; in a file. */
bool orth_config_offloads(const orth_config *cfg);
bool orth_config_offloads_to_file(const orth_config *cfg);

/* parallel.zero as a stage, 0 to 3: FSDP's names stand for stages. */
int orth_config_zero_stage(const orth_config *cfg);

/* Whether the optimizer keeps no state: sgd without momentum. */
bool orth_config_keeps_no_moments(const orth_config *cfg);

/* What precision.loss_scale comes to: none, static or dynamic. */
orth_option_precision_loss_scale orth_config_loss_scale(const orth_config *cfg);

/* All options with their values, as text that parses back to the same values (bit for bit); heap
 * memory, NULL with the error recorded. */
char *orth_config_yaml(orth_ctx *ctx, const orth_config *cfg);
/* That text as a file. ORTH_ERR_NOMEM, and what writing returns. */
orth_status orth_config_write(orth_ctx *ctx, const orth_config *cfg, const char *path);

/* ---- the table ---- */

typedef enum {
    ORTH_TYPE_INT, ORTH_TYPE_REAL, ORTH_TYPE_BOOL, ORTH_TYPE_BYTES, ORTH_TYPE_STR, ORTH_TYPE_STRS,
    ORTH_TYPE_REALS, ORTH_TYPE_ENUM
} orth_option_type;

typedef struct {
    const char *path;             /* "train.steps" */
    orth_option_type type;
    const char *default_text;     /* as in a run file */
    double min, max;              /* INT, REAL, BYTES, REALS */
    const char *unit;             /* "" none; STR, STRS: what to call the value in help */
    const char *help;
    const char *const *choices;   /* ENUM: names by value, NULL at the end */
    size_t offset;                /* of the field in orth_config */
} orth_option;

const orth_option *orth_option_get(orth_option_id id);
/* -1 if there is none. */
int orth_option_find(const char *path);
/* Value k of a key that is accepted but is no option (ACCEPTED in aliases.def); NULL: not such a key, or it has no more values. */
typedef struct {
    const char *path, *value, *key, *here, *says;
} orth_accepted;
const orth_accepted *orth_option_accepted(const char *path, int k);
/* Whether keys begin with `path` and a dot. */
bool orth_option_is_section(const char *path);
/* Names of an ENUM row: orth_option_choice(ORTH_OPT_precision_compute, cfg->precision_compute). */
const char *orth_option_choice(orth_option_id id, int value);
/* The value here that other programs call `name` (VALUE in aliases.def); NULL: none. */
const char *orth_option_value_called(const char *path, const char *name);
/* Whether such a name belongs to models of one of these kinds (CLASS in aliases.def), or to any. The kinds end with NULL. */
bool orth_option_value_is_of(const char *path, const char *name, const char *const *kinds);
/* Their names of values of a key, ", " between, of these kinds (NULL: of all); "": there are none. */
#define ORTH_VALUE_NAMES_MAX 384
void orth_option_value_names(const char *path, const char *const *kinds, char out[ORTH_VALUE_NAMES_MAX]);
/* Whether runs whose value differs compute other numbers (NUMBERS, NUMBERS_KEY in options.def). */
bool orth_option_decides_numbers(orth_option_id id);
/* Value of one option as text, as in run.yaml; heap memory. */
char *orth_option_text(orth_ctx *ctx, const orth_config *cfg, orth_option_id id);

typedef struct {
    const char *path, *help;      /* "train", ... */
} orth_option_section;

int orth_option_num_sections(void);
const orth_option_section *orth_option_section_get(int i);

#endif
