/* device_test.c -- memory that only instructions can reach, like a GPU's: its pages are inaccessible unless one is under way. A
 * program that runs here holds no pointer that is used elsewhere. For tests: each enter and leave is a system call. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "base/pages.h"
#include "run/space/space.h"

static orth_status protect(orth_ctx *ctx, const orth_region *r, int rights)
{
    if (r->base && mprotect(r->base, r->bytes, rights) != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "the system refused to protect %zu bytes: %s", r->bytes, strerror(errno));
    return ORTH_OK;
}

static orth_status map(orth_ctx *ctx, orth_region *out, size_t bytes)
{
    void *base;
    ORTH_TRY(orth_pages_map(ctx, &base, bytes));
    *out = (orth_region){.base = base, .bytes = bytes};
    const orth_status s = protect(ctx, out, PROT_NONE);
    if (s != ORTH_OK)
        orth_pages_unmap(base, bytes);
    else
        pthread_mutex_init(&out->mutex, NULL);
    return s;
}

static void unmap(orth_region *r)
{
    pthread_mutex_destroy(&r->mutex);
    orth_pages_unmap(r->base, r->bytes);
}

/* The threads of a rank and its communicators come and go; the first opens the pages and the last closes them. */
static orth_status enter(orth_ctx *ctx, orth_region *r)
{
    pthread_mutex_lock(&r->mutex);
    const orth_status s = r->depth == 0 ? protect(ctx, r, PROT_READ | PROT_WRITE) : ORTH_OK;
    r->depth += s == ORTH_OK;
    pthread_mutex_unlock(&r->mutex);
    return s;
}

static void leave(orth_region *r)
{
    pthread_mutex_lock(&r->mutex);
    if (--r->depth == 0 && r->base)
        mprotect(r->base, r->bytes, PROT_NONE); /* refused: stays open, which harms no result */
    pthread_mutex_unlock(&r->mutex);
}

static orth_status read_bytes(orth_ctx *ctx, orth_region *r, size_t at, void *host, size_t n)
{
    ORTH_TRY(enter(ctx, r));
    memcpy(host, r->base + at, n);
    leave(r);
    return ORTH_OK;
}

static orth_status write_bytes(orth_ctx *ctx, orth_region *r, size_t at, const void *host, size_t n)
{
    ORTH_TRY(enter(ctx, r));
    memcpy(r->base + at, host, n);
    leave(r);
    return ORTH_OK;
}

static size_t touched(const orth_region *r)
{
    return orth_pages_touched_bytes(r->base, r->bytes);
}

const orth_space_ops orth_space_device_test = {map, unmap, read_bytes, write_bytes, enter, leave, touched};
