/* file.c -- bytes of a file (base/scratch.h). No instruction works there: copies move them to and from the host's memory. Its region has
 * addresses, so that all spaces are counted alike (run/counted.h), but no page behind them. */
#include <errno.h>
#include <string.h>
#include <sys/mman.h>

#include "run/space/space.h"

static orth_status map(orth_ctx *ctx, orth_region *out, size_t bytes)
{
    *out = (orth_region){.bytes = bytes};
    if (bytes == 0)
        return ORTH_OK;
    void *base = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "the system refused %zu addresses: %s", bytes, strerror(errno));
    const char *dir = ctx->spaces && ctx->spaces->file_dir ? ctx->spaces->file_dir : ".";
    const orth_file_io io = ctx->spaces ? ctx->spaces->file_io : ORTH_FILE_IO_AUTO;
    const orth_status s = orth_scratch_open(ctx, &out->file, dir, bytes, io);
    if (s == ORTH_OK)
        out->base = base;
    else
        munmap(base, bytes);
    return s;
}

static void unmap(orth_region *r)
{
    if (!r->base)
        return;
    orth_scratch_close(&r->file);
    munmap(r->base, r->bytes);
}

static orth_status read_bytes(orth_ctx *ctx, orth_region *r, size_t at, void *host, size_t n)
{
    atomic_fetch_add(&r->file_read, (int64_t)n);
    return orth_scratch_read(ctx, &r->file, at, host, n);
}

static orth_status write_bytes(orth_ctx *ctx, orth_region *r, size_t at, const void *host, size_t n)
{
    atomic_fetch_add(&r->file_written, (int64_t)n);
    return orth_scratch_write(ctx, &r->file, at, host, n);
}

static orth_status enter(orth_ctx *ctx, orth_region *r)
{
    return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "an instruction is to work in a file of %zu bytes", r->bytes);
}

static void leave(orth_region *r)
{
    (void)r;
}

static size_t touched(const orth_region *r)
{
    return r->base ? orth_scratch_disk_bytes(&r->file) : 0;
}

const orth_space_ops orth_space_file = {map, unmap, read_bytes, write_bytes, enter, leave, touched};
