/* described.h -- files that describe something by numbers and words (hardware, software): one row per key, as the rows of
 * hardware.def become a table.
 */
#ifndef ORTH_PLAN_DESCRIBED_H
#define ORTH_PLAN_DESCRIBED_H

#include "base/ctx.h"

#define ORTH_DESCRIBED_TEXT_MAX 64
#define ORTH_DESCRIBED_MAX_ROWS 640

typedef struct {
    const char *path, *section;     /* "node.devices", "node" */
    bool is_text, needed;           /* the field is char[ORTH_DESCRIBED_TEXT_MAX], or a double, */
    int num_items;                  /* or so many, given as a list; 0: no list */
    double default_value, min, max;
    const char *unit;
    size_t offset;
} orth_described_row;

/* A section that is needed must be there; of one that is there, the rows that are needed. */
typedef struct {
    const char *name;
    bool needed;
} orth_described_section;

typedef struct {
    const char *what, *example;     /* "hardware", "node: {devices: 8}" */
    const orth_described_row *rows; /* [num_rows], at most ORTH_DESCRIBED_MAX_ROWS */
    int num_rows;
    const orth_described_section *sections;
    int num_sections;
} orth_described;

/* Where each key was given, "h100.yaml:3:9"; "": it was not. */
typedef struct {
    const orth_described *d;
    void *out;
    char place[ORTH_DESCRIBED_MAX_ROWS][96];
} orth_described_places;

/* Fills *out, zeroed before, from text; `name` stands for the file in messages. ORTH_ERR_ARG with the place, the key, the value
 * and the rule; *out is then partly filled. */
orth_status orth_described_parse(orth_ctx *ctx, const orth_described *d, void *out, orth_described_places *places,
                                 const char *name, const char *text, size_t num_bytes);
/* The same in steps, for several texts: the defaults; what each text says over what is there; what must have been given. */
void orth_described_begin(const orth_described *d, void *out, orth_described_places *places);
orth_status orth_described_read(orth_ctx *ctx, orth_described_places *places, const char *name, const char *text, size_t num_bytes);
orth_status orth_described_check(orth_ctx *ctx, const orth_described_places *places, const char *name);
/* A number as a row says it. */
orth_status orth_described_number(orth_ctx *ctx, const orth_described_row *r, double *out, const char *place, const char *text);
/* Of a key; "" if it was not given. */
const char *orth_described_place(const orth_described_places *p, const char *path);
bool orth_described_has(const orth_described_places *p, const char *section);

#endif
