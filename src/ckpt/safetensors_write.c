/* safetensors_write.c -- the writer of safetensors.h: one pass, hashed on the way. */
#include <inttypes.h>

#define XXH_STATIC_LINKING_ONLY /* for the size of XXH64_state_t */
#include <xxhash.h>

#include "ckpt/json.h"
#include "ckpt/safetensors.h"

/* The data start at a multiple of this, so that a map of the file can be used in place. */
#define DATA_ALIGN 64

struct orth_st_writer {
    orth_writer *file;
    XXH64_state_t hash;
    uint64_t num_bytes;           /* put so far, header included */
    uint64_t total_bytes;         /* what the specs say */
};

static const char *type_name(orth_dtype t)
{
    static const char *const names[ORTH_NUM_DTYPES] = {"F32", "BF16", "F16", "F64", "I32", "I64", "U8"};
    return names[t];
}

static json_t *shape_json(const orth_st_spec *spec)
{
    json_t *shape = json_array();
    for (int d = 0; d < spec->num_dims; d++)
        orth_json_append(&shape, json_integer(spec->dim[d]));
    return shape;
}

/* The header as JSON; NULL when out of memory. */
static json_t *header_json(const orth_st_spec *specs, int64_t num_specs, const char *const *metadata,
                           uint64_t *out_data_bytes)
{
    json_t *root = json_object();
    json_t *meta = json_object();
    for (const char *const *m = metadata; m && *m; m += 2)
        orth_json_add(&meta, m[0], json_string(m[1]));
    orth_json_add(&root, "__metadata__", meta);
    int64_t at = 0;
    for (int64_t i = 0; i < num_specs; i++) {
        int64_t bytes = (int64_t)orth_dtype_bytes(specs[i].dtype);
        for (int d = 0; d < specs[i].num_dims; d++)
            bytes *= specs[i].dim[d];
        json_t *entry = json_object();
        orth_json_add(&entry, "dtype", json_string(type_name(specs[i].dtype)));
        orth_json_add(&entry, "shape", shape_json(&specs[i]));
        orth_json_add(&entry, "data_offsets", json_pack("[I, I]", (json_int_t)at, (json_int_t)(at + bytes)));
        orth_json_add(&root, specs[i].name, entry);
        at += bytes;
    }
    *out_data_bytes = (uint64_t)at;
    return root;
}

static orth_status put_header(orth_ctx *ctx, orth_st_writer *w, const json_t *header)
{
    char spaces[DATA_ALIGN];
    memset(spaces, ' ', sizeof spaces);
    char *text = orth_json_text(ctx, header, JSON_COMPACT);
    if (!text)
        return ORTH_ERR_NOMEM;
    size_t n = strlen(text);
    uint64_t padded = (uint64_t)orth_round_up((int64_t)n + 8, DATA_ALIGN) - 8;
    unsigned char size[8];
    for (int i = 0; i < 8; i++)
        size[i] = (unsigned char)(padded >> 8 * i);
    w->total_bytes += 8 + padded;
    orth_status s = orth_st_writer_put(ctx, w, size, 8);
    if (s == ORTH_OK)
        s = orth_st_writer_put(ctx, w, text, n);
    if (s == ORTH_OK && padded > n)
        s = orth_st_writer_put(ctx, w, spaces, (size_t)padded - n);
    orth_mem_free(ctx, text);
    return s;
}

orth_status orth_st_writer_open(orth_ctx *ctx, orth_st_writer **out, const char *path,
                                const orth_st_spec *specs, int64_t num_specs, const char *const *metadata)
{
    uint64_t data_bytes = 0;
    orth_st_writer *w = ORTH_NEW(ctx, orth_st_writer);
    if (!w)
        return ORTH_ERR_NOMEM;
    json_t *header = header_json(specs, num_specs, metadata, &data_bytes);
    orth_status s = header ? orth_writer_open(ctx, &w->file, path)
                           : ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "%s: no memory for its header", path);
    XXH64_reset(&w->hash, 0);
    w->total_bytes = data_bytes;
    if (s == ORTH_OK)
        s = put_header(ctx, w, header);
    json_decref(header);
    if (s == ORTH_OK)
        *out = w;
    else
        orth_st_writer_abort(ctx, w);
    return s;
}

orth_status orth_st_writer_put(orth_ctx *ctx, orth_st_writer *w, const void *bytes, size_t num_bytes)
{
    XXH64_update(&w->hash, bytes, num_bytes);
    w->num_bytes += num_bytes;
    return orth_writer_put(ctx, w->file, bytes, num_bytes);
}

orth_status orth_st_writer_put_f32(orth_ctx *ctx, orth_st_writer *w, orth_dtype dtype, const float *values,
                                   int64_t n)
{
    if (dtype == ORTH_F32)
        return orth_st_writer_put(ctx, w, values, (size_t)n * 4);
    uint16_t part[1 << 15];
    for (int64_t i = 0; i < n; i += ORTH_COUNT(part)) {
        int64_t m = ORTH_MIN(n - i, ORTH_COUNT(part));
        for (int64_t j = 0; j < m; j++)
            orth_store_f32(part, dtype, j, values[i + j]);
        ORTH_TRY(orth_st_writer_put(ctx, w, part, (size_t)m * orth_dtype_bytes(dtype)));
    }
    return ORTH_OK;
}

orth_status orth_st_writer_commit(orth_ctx *ctx, orth_st_writer *w, uint64_t *out_hash, uint64_t *out_bytes)
{
    if (w->num_bytes != w->total_bytes) {
        orth_status s = ORTH_FAIL(ctx, ORTH_ERR_INTERNAL,
                                  "safetensors: %" PRIu64 " bytes put, %" PRIu64 " declared",
                                  w->num_bytes, w->total_bytes);
        orth_st_writer_abort(ctx, w);
        return s;
    }
    uint64_t hash = XXH64_digest(&w->hash), bytes = w->num_bytes;
    orth_status s = orth_writer_commit(ctx, w->file);
    orth_mem_free(ctx, w);
    if (s != ORTH_OK)
        return s;
    if (out_hash)
        *out_hash = hash;
    if (out_bytes)
        *out_bytes = bytes;
    return ORTH_OK;
}

void orth_st_writer_abort(orth_ctx *ctx, orth_st_writer *w)
{
    if (!w)
        return;
    orth_writer_abort(ctx, w->file);
    orth_mem_free(ctx, w);
}
