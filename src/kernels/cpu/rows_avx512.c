/* rows_avx512.c -- rows.h for avx512. */
#define ROWS_NAME orth_rows_avx512
#include "kernels/cpu/rows_table_body.h"
