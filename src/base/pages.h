/* pages.h -- whole regions of memory from the operating system: the arenas of a run. */
#ifndef ORTH_BASE_PAGES_H
#define ORTH_BASE_PAGES_H

#include "base/ctx.h"

/* Zero pages, taken from the machine only when they are first touched; large pages where offered.
 * ORTH_ERR_NOMEM. num_bytes = 0 gives NULL. */
orth_status orth_pages_map(orth_ctx *ctx, void **out, size_t num_bytes);
void orth_pages_unmap(void *p, size_t num_bytes);

/* Bytes of the calling process that are in memory now; 0 where the system does not tell. */
size_t orth_pages_resident_bytes(void);
#endif
