/* rows_avx2.c -- rows.h for avx2. */
#define ROWS_NAME orth_rows_avx2
#include "kernels/cpu/rows_table_body.h"
