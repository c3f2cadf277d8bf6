/* safetensors.h -- files of named tensors: a JSON header, then the bytes. docs/formats/checkpoint.md.
 *
 * Source: the format of huggingface/safetensors (README, "Format"): uint64 little-endian N, N bytes of
 * JSON {"name": {"dtype", "shape", "data_offsets": [begin, end)}, "__metadata__": {string: string}},
 * then the data. Tensors cover the data without holes or overlaps.
 *
 * The reader believes nothing: whatever it returns lies inside the mapped file.
 */
#ifndef ORTH_CKPT_SAFETENSORS_H
#define ORTH_CKPT_SAFETENSORS_H

#include "base/arena.h"
#include "base/files.h"
#include "tensor/tensor.h"

#define ORTH_ST_MAX_DIMS 8
#define ORTH_ST_MAX_HEADER_BYTES ((uint64_t)100 * 1000 * 1000) /* the limit of the original, too */

typedef struct {
    const char *name;
    const char *dtype_name;       /* as in the file: "F32", "BF16", ... */
    orth_dtype dtype;             /* ORTH_NUM_DTYPES: one that is not computed with (BOOL, F8, ...) */
    int32_t num_dims;
    int64_t dim[ORTH_ST_MAX_DIMS];
    int64_t elems;
    const unsigned char *data;    /* in the map; aligned to nothing */
    size_t num_bytes;
    uint64_t begin;               /* within the data */
} orth_st_tensor;

typedef struct {
    const char *path;             /* for messages; in the arena */
    orth_file_map map;
    orth_st_tensor *tensors;      /* sorted by name */
    int64_t num_tensors;
    orth_arena arena;
} orth_safetensors;

/* Maps a file. ORTH_ERR_IO; ORTH_ERR_DATA with path, tensor, value and rule. Close when done. */
orth_status orth_safetensors_open(orth_ctx *ctx, orth_safetensors *out, const char *path);
/* The same from memory that outlives *out. */
orth_status orth_safetensors_parse(orth_ctx *ctx, orth_safetensors *out, const char *path,
                                   const unsigned char *bytes, size_t num_bytes);
void orth_safetensors_close(orth_ctx *ctx, orth_safetensors *st); /* a zeroed one is fine */

/* NULL if there is none. */
const orth_st_tensor *orth_safetensors_find(const orth_safetensors *st, const char *name);

/* n elements from `first` on of an F32, BF16 or F16 tensor as fp32; exact. Cannot fail: the caller
 * has checked dtype and range. */
void orth_st_load_f32(float *out, const orth_st_tensor *t, int64_t first, int64_t n);

/* ---- writing: header first, then the bytes of the tensors in the order of the specs ---- */

typedef struct {
    const char *name;
    orth_dtype dtype;
    int32_t num_dims;
    int64_t dim[ORTH_MAX_DIMS];
} orth_st_spec;

typedef struct orth_st_writer orth_st_writer;

/* metadata: key, value, ..., NULL; may be NULL. Nothing happens to `path` before the commit.
 * ORTH_ERR_IO, ORTH_ERR_NOSPACE, ORTH_ERR_NOMEM as from orth_writer. */
orth_status orth_st_writer_open(orth_ctx *ctx, orth_st_writer **out, const char *path,
                                const orth_st_spec *specs, int64_t num_specs, const char *const *metadata);
orth_status orth_st_writer_put(orth_ctx *ctx, orth_st_writer *w, const void *bytes, size_t num_bytes);
/* As orth_st_writer_put of n values converted to `dtype` (F32; BF16, F16: round to nearest even; U8: whole
 * numbers below 256). */
orth_status orth_st_writer_put_f32(orth_ctx *ctx, orth_st_writer *w, orth_dtype dtype, const float *values,
                                   int64_t n);
/* Frees w whatever happens. *out_hash: XXH64 of the file, *out_bytes its size; NULL is fine.
 * ORTH_ERR_INTERNAL if fewer or more bytes were put than the specs say. */
orth_status orth_st_writer_commit(orth_ctx *ctx, orth_st_writer *w, uint64_t *out_hash, uint64_t *out_bytes);
void orth_st_writer_abort(orth_ctx *ctx, orth_st_writer *w); /* NULL is fine */

#endif
