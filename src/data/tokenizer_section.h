/* tokenizer_section.h -- reading the parts of the sections of tokenizer.json (normalizer, pre_tokenizer, decoder). */
#ifndef ORTH_DATA_TOKENIZER_SECTION_H
#define ORTH_DATA_TOKENIZER_SECTION_H

#include <jansson.h>

#include "data/tokenizer_impl.h"

/* Where a part is read: messages begin with the file's name, then the part's place. */
typedef struct {
    orth_ctx *ctx;
    orth_tokenizer *tok;
    const char *name;           /* of the file */
} orth_section;

/* `json` as it was kept; *out is freed with json_decref. ORTH_ERR_NOMEM. */
orth_status orth_section_parse(orth_section *s, const char *json, json_t **out);
/* "(none)" where there is none. */
const char *orth_section_type(const json_t *j);
/* *out keeps its value where there is no such key. ORTH_ERR_DATA for what is neither true nor false. */
orth_status orth_section_flag(orth_section *s, const json_t *j, const char *place, const char *key, bool *out);
/* A string, copied into the tokenizer; ORTH_ERR_DATA for anything else. */
orth_status orth_section_string(orth_section *s, const json_t *j, const char *place, const char *key, const char **out,
                                size_t *out_bytes);
/* j.pattern, {"Regex": "..."} or {"String": "..."}: its text, which lives as long as j. */
orth_status orth_section_pattern_text(orth_section *s, const json_t *j, const char *place, const char **out,
                                      size_t *out_bytes, bool *out_literal);

#endif
