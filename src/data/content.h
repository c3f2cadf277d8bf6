/* content.h -- is this text? A look at the bytes of an input, so that no archive, table or picture becomes tokens without a word. */
#ifndef ORTH_DATA_CONTENT_H
#define ORTH_DATA_CONTENT_H

#include "base/ctx.h"

/* What was seen of an input. Zero-initialised: nothing. */
typedef struct {
    size_t num_bytes, num_bad, first_bad;
    unsigned char tail[4];  /* [num_tail] at the end of them, not judged yet: a sequence that may go on */
    size_t num_tail;
} orth_content;

/* The next bytes of input `name`, decompressed. ORTH_ERR_DATA, with what it is and what to do, if it begins as a binary format that is known, a
 * byte is NUL, or more than 1 % of all that was seen is not UTF-8. cut: more bytes follow. */
orth_status orth_content_check(orth_ctx *ctx, const char *name, orth_content *seen, const char *bytes, size_t num_bytes, bool cut);

#endif
