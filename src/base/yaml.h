/* yaml.h -- small YAML files (run files, descriptions of hardware): mappings a few levels deep, whose leaves are
 * scalars and flat lists. A schema says which keys there are and takes their values; the reader knows their places.
 *
 * Not accepted: anchors, aliases, tags, several documents, the same key twice, more than 4 levels or 1 MiB. Messages
 * (ORTH_ERR_ARG) begin with FILE:LINE:COLUMN.
 */
#ifndef ORTH_BASE_YAML_H
#define ORTH_BASE_YAML_H

#include "base/arena.h"

#define ORTH_LIST_MAX 32

/* A value as written: one scalar, or the items of a list. */
typedef struct {
    const char *items[ORTH_LIST_MAX];
    bool is_quoted[ORTH_LIST_MAX];   /* the item is a text whatever its characters: in quotes, or a block */
    int num_items;
    bool is_list;
} orth_written;

typedef enum {
    ORTH_YAML_UNKNOWN = 0,
    ORTH_YAML_SECTION,   /* holds keys */
    ORTH_YAML_VALUE,     /* a scalar that is not empty, or a list */
    ORTH_YAML_SCALAR,    /* a scalar, which may be empty */
    ORTH_YAML_ANY        /* what it is: for files of other programs. A list with more than scalars, or too many, is the scalar "[...]" */
} orth_yaml_kind;

/* Paths are keys joined by dots, "train.steps". */
typedef struct {
    const char *what, *example;   /* "a run file", "train: {steps: 100}" */
    orth_yaml_kind (*kind)(void *user, const char *path);
    /* A value; `value` and `place` ("run.yaml:3:9") live until the call returns. */
    orth_status (*put)(orth_ctx *ctx, void *user, const char *path, const char *place, const orth_written *value);
    /* Refuses a key that there is not. */
    orth_status (*unknown)(orth_ctx *ctx, void *user, const char *place, const char *path);
} orth_yaml_schema;

/* `name` stands for the file in messages. ORTH_ERR_ARG, ORTH_ERR_NOMEM, or what `put` returned. */
orth_status orth_yaml_parse(orth_ctx *ctx, const orth_yaml_schema *schema, void *user, const char *name, const char *text,
                            size_t num_bytes);
/* The same from a file; ORTH_ERR_IO, too. */
orth_status orth_yaml_load(orth_ctx *ctx, const orth_yaml_schema *schema, void *user, const char *path);
/* The items of "[a, b]" as strings in the arena; `place` begins the messages. */
orth_status orth_yaml_list(orth_ctx *ctx, orth_arena *arena, const char *place, const char *text, orth_written *out);

#endif
