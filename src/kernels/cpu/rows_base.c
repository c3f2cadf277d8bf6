/* rows_base.c -- rows.h for any processor. */
#define ROWS_NAME orth_rows_base
#include "kernels/cpu/rows_table_body.h"
