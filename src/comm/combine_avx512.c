/* combine_avx512.c -- combine.h for avx512. */
#define COMBINE_NAME comm_combine_avx512
#include "comm/combine_body.h"
