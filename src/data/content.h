/* content.h -- is this text? A look at the first bytes of an input, so that no archive, table or picture becomes
 * tokens without a word. */
#ifndef ORTH_DATA_CONTENT_H
#define ORTH_DATA_CONTENT_H

#include "base/ctx.h"

/* ORTH_ERR_DATA, with what it is and what to do, if `bytes` (the beginning of input `name`, decompressed) are of a
 * binary format that is known, hold a NUL byte, or are to more than 1 % not UTF-8. cut: more bytes follow. */
orth_status orth_content_check(orth_ctx *ctx, const char *name, const char *bytes, size_t num_bytes, bool cut);

#endif
