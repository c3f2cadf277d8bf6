/* combine_base.c -- combine.h for any processor. */
#define COMBINE_NAME comm_combine_base
#include "comm/combine_body.h"
