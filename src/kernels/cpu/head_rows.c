/* head_rows.c -- the portable copy, and the choice. */
#include "kernels/cpu/head_rows_body.h"

const orth_head_rows orth_head_rows_base = ORTH_HEAD_ROWS_TABLE;

const orth_head_rows *orth_head_rows_for(orth_isa isa)
{
#if defined(__x86_64__)
    if (isa >= ORTH_ISA_AVX512)
        return &orth_head_rows_avx512;
    if (isa >= ORTH_ISA_AVX2)
        return &orth_head_rows_avx2;
#endif
    (void)isa;
    return &orth_head_rows_base;
}
