/* pages.c -- see pages.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* mincore, pthread_getattr_np */
#endif
#include "base/pages.h"

#include <errno.h>
#include <fcntl.h>
#ifdef __GLIBC__
#include <malloc.h>
#endif
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/machine.h"

static orth_status fail_refused(orth_ctx *ctx, size_t num_bytes, const char *reason)
{
    const int64_t left = orth_machine_addresses_left();
    if (left < (int64_t)num_bytes)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "the system refused %.2f MiB of memory: the process may map %.2f MiB more (ulimit -v)",
                         (double)num_bytes / 0x1p20, (double)left / 0x1p20);
    return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "the system refused %.2f MiB of memory: %s", (double)num_bytes / 0x1p20, reason);
}

orth_status orth_pages_map(orth_ctx *ctx, void **out, size_t num_bytes)
{
    *out = NULL;
    if (num_bytes == 0)
        return ORTH_OK;
    void *p = mmap(NULL, num_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED)
        return fail_refused(ctx, num_bytes, strerror(errno));
#ifdef MADV_HUGEPAGE
    madvise(p, num_bytes, MADV_HUGEPAGE); /* a hint: without it everything still works */
#endif
    *out = p;
    return ORTH_OK;
}

void orth_pages_unmap(void *p, size_t num_bytes)
{
    if (p)
        munmap(p, num_bytes);
}

size_t orth_pages_size(void)
{
    return (size_t)sysconf(_SC_PAGESIZE);
}

#define PAGES_AT_ONCE 1024

size_t orth_pages_touched_bytes(const void *p, size_t num_bytes)
{
    const size_t page = orth_pages_size(), skew = (uintptr_t)p % page;
    unsigned char in_memory[PAGES_AT_ONCE];
    size_t n = num_bytes ? (num_bytes + skew + page - 1) / page : 0, sum = 0;
    char *at = (char *)p - skew;
    for (size_t k; n > 0; n -= k, at += k * page) {
        k = ORTH_MIN(n, (size_t)PAGES_AT_ONCE);
        if (mincore(at, k * page, in_memory) != 0)
            return 0;
        for (size_t i = 0; i < k; i++)
            sum += in_memory[i] & 1 ? page : 0;
    }
    return sum;
}

/* A stack grows downwards; that of the first thread is mapped as far as it has grown. */
size_t orth_pages_stack_bytes(pthread_t thread)
{
    pthread_attr_t attr;
    void *low = NULL;
    size_t size = 0, sum = 0;
    const size_t page = orth_pages_size();
    unsigned char in_memory;
    if (pthread_getattr_np(thread, &attr) != 0)
        return 0;
    pthread_attr_getstack(&attr, &low, &size);
    pthread_attr_destroy(&attr);
    sum = orth_pages_touched_bytes(low, size);
    const bool whole = sum > 0;
    for (char *at = (char *)low + size / page * page - page; !whole && size > 0 && at >= (char *)low; at -= page) {
        if (mincore(at, page, &in_memory) != 0)
            break;
        sum += in_memory & 1 ? page : 0;
    }
    return sum;
}

void orth_pages_trim_heap(void)
{
#ifdef __GLIBC__
    malloc_trim(0); /* of the heaps of all threads, each of which keeps what it has freed */
#endif
}

size_t orth_pages_resident_peak_bytes(void)
{
    char text[4096];
    const int f = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
    const ssize_t n = f < 0 ? -1 : read(f, text, sizeof text - 1);
    if (f >= 0)
        close(f);
    if (n <= 0)
        return 0;
    text[n] = '\0';
    const char *line = strstr(text, "VmHWM:");
    return line ? (size_t)strtoull(line + 6, NULL, 10) * 1024 : 0;
}

void orth_pages_reset_peak(void)
{
    const int f = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (f < 0)
        return;
    const ssize_t done = write(f, "5", 1); /* peaks are told, too high, where it cannot be done */
    (void)done;
    close(f);
}
