/* safetensors.c -- the reader. See safetensors.h; safetensors_write.c has the writer.
 *
 * Nothing from the file is used before it is checked: first the header's size, then each tensor by
 * itself (type, shape, range, size = product), then all together (sorted by offset, they must tile
 * the data exactly: no overlap, no hole, no tail).
 */
#include "ckpt/safetensors.h"

#include <inttypes.h>
#include <stdlib.h>

#include "ckpt/json.h"

static const struct {
    const char *name;
    int bytes;
    orth_dtype dtype;
} types[] = {
    {"F32", 4, ORTH_F32}, {"BF16", 2, ORTH_BF16}, {"F16", 2, ORTH_F16}, {"F64", 8, ORTH_F64},
    {"I32", 4, ORTH_I32}, {"I64", 8, ORTH_I64}, {"U8", 1, ORTH_U8},
    {"BOOL", 1, ORTH_NUM_DTYPES}, {"I8", 1, ORTH_NUM_DTYPES}, {"I16", 2, ORTH_NUM_DTYPES},
    {"U16", 2, ORTH_NUM_DTYPES}, {"U32", 4, ORTH_NUM_DTYPES}, {"U64", 8, ORTH_NUM_DTYPES},
    {"F8_E4M3", 1, ORTH_NUM_DTYPES}, {"F8_E5M2", 1, ORTH_NUM_DTYPES}, {"F8_E8M0", 1, ORTH_NUM_DTYPES},
    {"C64", 8, ORTH_NUM_DTYPES},
};

static orth_status read_type(orth_ctx *ctx, const orth_safetensors *st, orth_st_tensor *t,
                             const json_t *entry, int *out_bytes)
{
    const char *name = json_string_value(json_object_get(entry, "dtype"));
    if (!name)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: tensor '%s' has no dtype", st->path, t->name);
    for (int i = 0; i < ORTH_COUNT(types); i++) {
        if (strcmp(types[i].name, name) == 0) {
            t->dtype = types[i].dtype;
            t->dtype_name = types[i].name;
            *out_bytes = types[i].bytes;
            return ORTH_OK;
        }
    }
    return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: tensor '%s' has dtype '%.40s', which the format does not have",
                     st->path, t->name, name);
}

static orth_status read_shape(orth_ctx *ctx, const orth_safetensors *st, orth_st_tensor *t,
                              const json_t *entry)
{
    const json_t *shape = json_object_get(entry, "shape");
    if (!json_is_array(shape))
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: tensor '%s' has no shape", st->path, t->name);
    size_t n = json_array_size(shape);
    if (n > ORTH_ST_MAX_DIMS)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: tensor '%s' has %zu dims; at most %d are read", st->path,
                         t->name, n, ORTH_ST_MAX_DIMS);
    t->num_dims = (int32_t)n;
    t->elems = 1;
    for (size_t i = 0; i < n; i++) {
        const json_t *v = json_array_get(shape, i);
        int64_t d = json_integer_value(v);
        if (!json_is_integer(v) || d < 0)
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: tensor '%s': dim %zu of its shape is not a size",
                             st->path, t->name, i);
        t->dim[i] = d;
        if (__builtin_mul_overflow(t->elems, d, &t->elems))
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: tensor '%s': the product of its shape overflows",
                             st->path, t->name);
    }
    return ORTH_OK;
}

static orth_status read_range(orth_ctx *ctx, const orth_safetensors *st, orth_st_tensor *t,
                              const json_t *entry,
                              int elem_bytes, const unsigned char *data, size_t data_bytes)
{
    const json_t *range = json_object_get(entry, "data_offsets");
    const json_t *b = json_array_get(range, 0), *e = json_array_get(range, 1);
    if (json_array_size(range) != 2 || !json_is_integer(b) || !json_is_integer(e))
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: tensor '%s': data_offsets is not [begin, end]", st->path,
                         t->name);
    int64_t begin = json_integer_value(b), end = json_integer_value(e), want;
    if (begin < 0 || end < begin || (uint64_t)end > data_bytes)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: tensor '%s': data_offsets=[%" PRId64 ", %" PRId64
                         "] is not within the %zu bytes of data", st->path, t->name, begin, end, data_bytes);
    if (__builtin_mul_overflow(t->elems, (int64_t)elem_bytes, &want) || want != end - begin)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: tensor '%s': its %" PRId64 " bytes are not %" PRId64
                         " elements of %s", st->path, t->name, end - begin, t->elems, t->dtype_name);
    t->begin = (uint64_t)begin;
    t->data = data + begin;
    t->num_bytes = (size_t)want;
    return ORTH_OK;
}

static int by_offset(const void *a, const void *b)
{
    const orth_st_tensor *x = a, *y = b;
    if (x->begin != y->begin)
        return x->begin < y->begin ? -1 : 1;
    /* Empty tensors sit in front of the one that starts at the same byte. */
    return x->num_bytes < y->num_bytes ? -1 : x->num_bytes > y->num_bytes;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(((const orth_st_tensor *)a)->name, ((const orth_st_tensor *)b)->name);
}

static orth_status check_tiling(orth_ctx *ctx, orth_safetensors *st, size_t data_bytes)
{
    uint64_t end = 0;
    if (st->num_tensors)
        qsort(st->tensors, (size_t)st->num_tensors, sizeof *st->tensors, by_offset);
    for (int64_t i = 0; i < st->num_tensors; i++) {
        const orth_st_tensor *t = &st->tensors[i];
        if (t->begin < end)
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: tensor '%s' overlaps '%s': it begins at %" PRIu64
                             ", before %" PRIu64, st->path, t->name, st->tensors[i - 1].name, t->begin, end);
        if (t->begin > end)
            return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                             "%s: tensor '%s' begins at %" PRIu64 " and leaves a hole after %"
                             PRIu64, st->path, t->name, t->begin, end);
        end = t->begin + t->num_bytes;
    }
    if (end != data_bytes)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: its tensors end at byte %" PRIu64 " of %zu bytes of data",
                         st->path, end, data_bytes);
    if (st->num_tensors)
        qsort(st->tensors, (size_t)st->num_tensors, sizeof *st->tensors, by_name);
    return ORTH_OK;
}

/* Nothing here asks for them; others' readers rely on the rule. */
static orth_status check_metadata(orth_ctx *ctx, const orth_safetensors *st, const json_t *meta)
{
    if (!json_is_object(meta))
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: __metadata__ is not an object", st->path);
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)meta, key, value) {
        if (!json_is_string(value))
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: __metadata__ has '%.100s', which is not a string",
                             st->path, key);
    }
    return ORTH_OK;
}

static orth_status read_tensors(orth_ctx *ctx, orth_safetensors *st, json_t *header,
                                const unsigned char *data, size_t data_bytes)
{
    st->tensors = ORTH_ARENA_ARRAY(ctx, &st->arena, orth_st_tensor, json_object_size(header));
    if (!st->tensors)
        return ORTH_ERR_NOMEM;
    const char *key;
    json_t *entry;
    json_object_foreach(header, key, entry) {
        if (strcmp(key, "__metadata__") == 0) {
            ORTH_TRY(check_metadata(ctx, st, entry));
            continue;
        }
        orth_st_tensor *t = &st->tensors[st->num_tensors++];
        t->name = orth_arena_printf(ctx, &st->arena, "%s", key);
        if (!t->name)
            return ORTH_ERR_NOMEM;
        if (!json_is_object(entry))
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: the header has no object for tensor '%s'", st->path,
                             t->name);
        int elem_bytes = 0;
        ORTH_TRY(read_type(ctx, st, t, entry, &elem_bytes));
        ORTH_TRY(read_shape(ctx, st, t, entry));
        ORTH_TRY(read_range(ctx, st, t, entry, elem_bytes, data, data_bytes));
    }
    return check_tiling(ctx, st, data_bytes);
}

static orth_status parse(orth_ctx *ctx, orth_safetensors *st, const char *path, const unsigned char *bytes,
                         size_t num_bytes)
{
    st->path = orth_arena_printf(ctx, &st->arena, "%s", path);
    if (!st->path)
        return ORTH_ERR_NOMEM;
    if (num_bytes < 8)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: its %zu bytes are too few for a safetensors file", path,
                         num_bytes);
    uint64_t n = 0;
    for (int i = 0; i < 8; i++)
        n |= (uint64_t)bytes[i] << 8 * i;
    if (n > ORTH_ST_MAX_HEADER_BYTES)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: its header says it has %" PRIu64 " bytes; at most %" PRIu64
                         " make sense", path, n, ORTH_ST_MAX_HEADER_BYTES);
    if (n > num_bytes - 8)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                         "%s: its header says it has %" PRIu64 " bytes, the file only %zu",
                         path, n, num_bytes - 8);
    json_t *header = NULL;
    ORTH_TRY(orth_json_parse(ctx, &header, path, (const char *)bytes + 8, (size_t)n));
    orth_status s = read_tensors(ctx, st, header, bytes + 8 + n, num_bytes - 8 - (size_t)n);
    json_decref(header);
    return s;
}

orth_status orth_safetensors_parse(orth_ctx *ctx, orth_safetensors *out, const char *path,
                                   const unsigned char *bytes, size_t num_bytes)
{
    orth_safetensors st = {0};
    orth_status s = parse(ctx, &st, path, bytes, num_bytes);
    if (s == ORTH_OK)
        *out = st;
    else
        orth_safetensors_close(ctx, &st);
    return s;
}

orth_status orth_safetensors_open(orth_ctx *ctx, orth_safetensors *out, const char *path)
{
    orth_file_map map = {0};
    ORTH_TRY(orth_file_map_open(ctx, &map, path));
    orth_status s = orth_safetensors_parse(ctx, out, path, map.data, map.size);
    if (s == ORTH_OK)
        out->map = map;
    else
        orth_file_map_close(&map);
    return s;
}

void orth_safetensors_close(orth_ctx *ctx, orth_safetensors *st)
{
    orth_file_map_close(&st->map);
    orth_arena_release(ctx, &st->arena);
    *st = (orth_safetensors){0};
}

const orth_st_tensor *orth_safetensors_find(const orth_safetensors *st, const char *name)
{
    orth_st_tensor key = {.name = name};
    return st->num_tensors ? bsearch(&key, st->tensors, (size_t)st->num_tensors, sizeof key, by_name) : NULL;
}

void orth_st_load_f32(float *out, const orth_st_tensor *t, int64_t first, int64_t n)
{
    const unsigned char *p = t->data + (size_t)first * orth_dtype_bytes(t->dtype);
    if (t->dtype == ORTH_F32) {
        memcpy(out, p, (size_t)n * 4);
        return;
    }
    for (int64_t i = 0; t->dtype == ORTH_U8 && i < n; i++)
        out[i] = p[i];
    for (int64_t i = 0; t->dtype != ORTH_U8 && i < n; i++) {
        uint16_t h;
        memcpy(&h, p + 2 * i, 2);
        out[i] = t->dtype == ORTH_BF16 ? orth_bf16_to_f32(h) : orth_f16_to_f32(h);
    }
}
