/* combine_avx2.c -- combine.h for avx2. */
#define COMBINE_NAME comm_combine_avx2
#include "comm/combine_body.h"
