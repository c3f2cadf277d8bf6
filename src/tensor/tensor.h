/* tensor.h -- element types and dense views. */
#ifndef ORTH_TENSOR_TENSOR_H
#define ORTH_TENSOR_TENSOR_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define ORTH_MAX_DIMS 4

typedef enum { ORTH_F32 = 0, ORTH_BF16, ORTH_F16, ORTH_F64, ORTH_I32, ORTH_I64, ORTH_U8, ORTH_NUM_DTYPES } orth_dtype;

size_t orth_dtype_bytes(orth_dtype t);
const char *orth_dtype_name(orth_dtype t); /* "fp32", "bf16", ... */

typedef uint16_t orth_bf16; /* the upper half of an fp32 */

/* A contiguous row-major view; owns nothing. data == NULL: an optional operand that is absent. */
typedef struct {
    void *data;
    orth_dtype dtype;
    int32_t num_dims;
    int64_t dim[ORTH_MAX_DIMS]; /* unused ones are 1 */
} orth_tensor;

int64_t orth_tensor_elems(const orth_tensor *t);
size_t orth_tensor_bytes(const orth_tensor *t);

static inline float orth_bf16_to_f32(orth_bf16 h)
{
    uint32_t u = (uint32_t)h << 16;
    float f;
    memcpy(&f, &u, 4);
    return f;
}

/* Round to nearest even; NaN stays NaN (quiet), denormals are kept. */
static inline orth_bf16 orth_bf16_from_f32(float f)
{
    uint32_t u;
    memcpy(&u, &f, 4);
    if ((u & 0x7fffffffu) > 0x7f800000u)
        return (orth_bf16)(u >> 16 | 0x40);
    return (orth_bf16)((u + 0x7fff + (u >> 16 & 1)) >> 16);
}

/* One element of a tensor of type `t` (F32 or BF16) as fp32, and back: for plain reference code. */
static inline float orth_load_f32(const void *data, orth_dtype t, int64_t i)
{
    return t == ORTH_BF16 ? orth_bf16_to_f32(((const orth_bf16 *)data)[i]) : ((const float *)data)[i];
}

static inline void orth_store_f32(void *data, orth_dtype t, int64_t i, float v)
{
    if (t == ORTH_BF16)
        ((orth_bf16 *)data)[i] = orth_bf16_from_f32(v);
    else
        ((float *)data)[i] = v;
}

#endif
