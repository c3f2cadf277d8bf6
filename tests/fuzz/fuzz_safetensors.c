/* fuzz_safetensors.c -- any bytes as a safetensors file: refused, or every byte it claims is there. */
#include <stdint.h>

#include "ckpt/safetensors.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    orth_ctx ctx = {0}; /* no pool: parsing needs none */
    orth_safetensors st = {0};
    if (orth_safetensors_parse(&ctx, &st, "fuzz.safetensors", data, size) != ORTH_OK)
        return 0;
    volatile unsigned sum = 0;
    for (int64_t i = 0; i < st.num_tensors; i++) {
        const orth_st_tensor *t = &st.tensors[i];
        for (size_t k = 0; k < t->num_bytes; k++)
            sum += t->data[k];
        if (t->dtype == ORTH_BF16 || t->dtype == ORTH_F16 || t->dtype == ORTH_F32) {
            float v = 0;
            for (int64_t k = 0; k < t->elems; k++)
                orth_st_load_f32(&v, t, k, 1);
        }
        if (orth_safetensors_find(&st, t->name) != t)
            __builtin_trap();
    }
    orth_safetensors_close(&ctx, &st);
    if (ctx.heap_bytes != 0)
        __builtin_trap();
    return 0;
}
