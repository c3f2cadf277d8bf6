/* head_rows_avx512.c -- the copy for this instruction set. */
#include "kernels/cpu/head_rows_body.h"

const orth_head_rows orth_head_rows_avx512 = ORTH_HEAD_ROWS_TABLE;
