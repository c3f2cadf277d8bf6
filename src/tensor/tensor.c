/* tensor.c -- see tensor.h. */
#include "tensor/tensor.h"

static const struct {
    size_t bytes;
    const char *name;
} dtypes[ORTH_NUM_DTYPES] = {
    [ORTH_F32] = {4, "fp32"}, [ORTH_BF16] = {2, "bf16"}, [ORTH_F16] = {2, "fp16"}, [ORTH_F64] = {8, "fp64"},
    [ORTH_I32] = {4, "int32"}, [ORTH_I64] = {8, "int64"}, [ORTH_U8] = {1, "uint8"},
};

size_t orth_dtype_bytes(orth_dtype t)
{
    return dtypes[t].bytes;
}

const char *orth_dtype_name(orth_dtype t)
{
    return dtypes[t].name;
}

int64_t orth_tensor_elems(const orth_tensor *t)
{
    int64_t n = 1;
    for (int i = 0; i < t->num_dims; i++)
        n *= t->dim[i];
    return n;
}

size_t orth_tensor_bytes(const orth_tensor *t)
{
    return (size_t)orth_tensor_elems(t) * orth_dtype_bytes(t->dtype);
}
