/* pages.c -- see pages.h. */
#include "base/pages.h"

#include <errno.h>
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

size_t orth_pages_resident_bytes(void)
{
    unsigned long total = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f)
        return 0;
    if (fscanf(f, "%lu %lu", &total, &resident) != 2)
        resident = 0;
    fclose(f);
    return (size_t)resident * (size_t)sysconf(_SC_PAGESIZE);
}
