/* special_tokens.h -- the ids that end, begin and pad a text, and where a folder names them.
 *
 * A folder of Hugging Face names them in up to four files, by content or by id. Read in this order:
 *
 *   eos   tokenizer_config.json, special_tokens_map.json (eos_token: content), config.json, generation_config.json
 *         (eos_token_id: an id or a list). All of them count, each once; the first ends documents.
 *   bos   config.json's id, then the other three as above: the first that names one.
 *   pad   the same, but outside of config.json the end-of-text token is no pad token: it only stands in for one there.
 *
 * Prepared data name theirs in dataset.json (docs/formats/shard.md).
 */
#ifndef ORTH_DATA_SPECIAL_TOKENS_H
#define ORTH_DATA_SPECIAL_TOKENS_H

#include <jansson.h>

#include "base/ctx.h"

struct orth_tokenizer;

#define ORTH_MAX_EOS 16

typedef struct {
    int num_eos;
    int32_t eos[ORTH_MAX_EOS];    /* the first ends documents; sampling stops at each */
    int32_t bos, pad;             /* -1: none */
} orth_special_tokens;

#define ORTH_NO_SPECIAL_TOKENS ((orth_special_tokens){.bos = -1, .pad = -1})

/* The token that ends documents; -1: none. */
int32_t orth_special_tokens_eos(const orth_special_tokens *s);
bool orth_special_tokens_ends(const orth_special_tokens *s, int32_t token);
/* Appends, or puts in front, an end-of-text token; one that is there already moves to the front or stays. What exceeds
 * ORTH_MAX_EOS is left out. */
void orth_special_tokens_add_eos(orth_special_tokens *s, int32_t token, bool first);

/* What the files of folder `dir` name. tok: turns contents into ids, and ids that it does not have are left out, with a
 * warning; NULL: only ids are read. A missing file names nothing; where no file names an end of text, the tokens are tok's own, except
 * those whose key a file has. ORTH_ERR_DATA with path, key and value; ORTH_ERR_IO. */
orth_status orth_special_tokens_read(orth_ctx *ctx, orth_special_tokens *out, const char *dir,
                                     const struct orth_tokenizer *tok);

/* One of those files, an object whose whole numbers are reals, too. *out stays NULL for a missing one. Release with json_decref. ORTH_ERR_DATA, ORTH_ERR_IO,
 * ORTH_ERR_NOMEM. */
orth_status orth_special_tokens_json(orth_ctx *ctx, json_t **out, const char *path);

#endif
