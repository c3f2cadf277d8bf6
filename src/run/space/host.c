/* host.c -- pages of the process: always open. And which space has which functions. */
#include "base/pages.h"
#include "base/pool.h"
#include "run/space/space.h"

static orth_status map(orth_ctx *ctx, orth_region *out, size_t bytes)
{
    void *base;
    ORTH_TRY(orth_pages_map(ctx, &base, bytes));
    *out = (orth_region){.base = base, .bytes = bytes};
    return ORTH_OK;
}

static void unmap(orth_region *r)
{
    orth_pages_unmap(r->base, r->bytes);
}

static orth_status read_bytes(orth_ctx *ctx, orth_region *r, size_t at, void *host, size_t n)
{
    orth_pool_copy(ctx->pool, host, r->base + at, n);
    return ORTH_OK;
}

static orth_status write_bytes(orth_ctx *ctx, orth_region *r, size_t at, const void *host, size_t n)
{
    orth_pool_copy(ctx->pool, r->base + at, host, n);
    return ORTH_OK;
}

static orth_status enter(orth_ctx *ctx, orth_region *r)
{
    (void)ctx, (void)r;
    return ORTH_OK;
}

static void leave(orth_region *r)
{
    (void)r;
}

static size_t touched(const orth_region *r)
{
    return orth_pages_touched_bytes(r->base, r->bytes);
}

const orth_space_ops orth_space_host = {map, unmap, read_bytes, write_bytes, enter, leave, touched};

/* ---- all spaces ---- */

orth_status orth_region_map(orth_ctx *ctx, orth_region *out, orth_space space, size_t bytes)
{
    const bool guarded = ctx->spaces && ctx->spaces->guards_device;
    const orth_space_ops *const ops[ORTH_NUM_SPACES] = {[ORTH_SPACE_HOST] = &orth_space_host, [ORTH_SPACE_FILE] = &orth_space_file,
                                                        [ORTH_SPACE_DEVICE] = guarded ? &orth_space_device_test : &orth_space_host};
    ORTH_TRY(ops[space]->map(ctx, out, bytes));
    out->ops = ops[space];
    return ORTH_OK;
}

void orth_region_unmap(orth_region *r)
{
    if (r->ops)
        r->ops->unmap(r);
    r->ops = NULL;
}
