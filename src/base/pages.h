/* pages.h -- whole regions of memory from the operating system: the arenas of a run. */
#ifndef ORTH_BASE_PAGES_H
#define ORTH_BASE_PAGES_H

#include <pthread.h>

#include "base/ctx.h"

/* Zero pages, taken from the machine only when they are first touched; large pages where offered.
 * ORTH_ERR_NOMEM. num_bytes = 0 gives NULL. */
orth_status orth_pages_map(orth_ctx *ctx, void **out, size_t num_bytes);
void orth_pages_unmap(void *p, size_t num_bytes);

size_t orth_pages_size(void); /* bytes */

/* Bytes of the pages that hold [p, p + num_bytes) and are in memory, whole pages at both ends: what was ever read or written, unless
 * it was swapped out. A large page counts as a whole. 0 where the system does not tell. */
size_t orth_pages_touched_bytes(const void *p, size_t num_bytes);
/* The same of the stack of a thread of this process. */
size_t orth_pages_stack_bytes(pthread_t thread);

/* Gives pages of the heap that nobody uses back to the system: after work whose memory is free again, such as compiling. One thread
 * of a process calls it: where malloc is another library's, the C library's own heap is made by the first call, unprotected. */
void orth_pages_trim_heap(void);

/* The most bytes of the calling process that ever were in memory (VmHWM); 0 where the system does not tell. */
size_t orth_pages_resident_peak_bytes(void);
/* It begins again from what is in memory now, where the system can do that (Linux). */
void orth_pages_reset_peak(void);
#endif
