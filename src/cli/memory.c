/* memory.c -- see memory.h. */
#ifndef _DEFAULT_SOURCE
#define _DEFAULT_SOURCE /* sbrk */
#endif
#include "cli/memory.h"

#include <limits.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/ctx.h"

#define HEAP_BYTES (1 << 30)

void orth_return_freed_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 1 << 20);
#endif
}

void orth_keep_freed_memory(void)
{
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 64 << 20);
    mallopt(M_TRIM_THRESHOLD, INT_MAX);
    mallopt(M_TOP_PAD, HEAP_BYTES);
    char *begin = sbrk(0);
    free(orth_mem_system(1 << 20)); /* grows the heap by it and the pad; addresses only, until they are used */
    char *end = sbrk(0);
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), skew = (size_t)begin % page;
    if (end > begin + page)
        madvise(begin + (page - skew) % page, (size_t)(end - begin) - page, MADV_HUGEPAGE); /* a hint */
#endif
}
