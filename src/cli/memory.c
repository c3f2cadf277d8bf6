/* memory.c -- see memory.h. */
#include "cli/memory.h"

#ifdef __linux__
#include <malloc.h>
#endif

void orth_keep_freed_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    mallopt(M_TRIM_THRESHOLD, 256 << 20);
#endif
}
