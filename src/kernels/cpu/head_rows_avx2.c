/* head_rows_avx2.c -- the copy for this instruction set. */
#include "kernels/cpu/head_rows_body.h"

const orth_head_rows orth_head_rows_avx2 = ORTH_HEAD_ROWS_TABLE;
