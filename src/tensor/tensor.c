/* tensor.c -- see tensor.h. */
#include "tensor/q8.h"

_Static_assert(sizeof(orth_q8) == 4 + ORTH_Q8_NUM, "orth_dtype_bytes");

const char *orth_dtype_name(orth_dtype t)
{
    static const char *const names[ORTH_NUM_DTYPES] = {
        [ORTH_F32] = "fp32", [ORTH_BF16] = "bf16", [ORTH_F16] = "fp16", [ORTH_F64] = "fp64",
        [ORTH_I32] = "int32", [ORTH_I64] = "int64", [ORTH_U8] = "uint8",
        [ORTH_Q8] = "int8",
    };
    return names[t];
}
