/* numbers.c -- see numbers.h. */
#include "cli/numbers.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>

orth_status orth_cmd_flag_int(orth_ctx *ctx, const orth_cmd *cmd, const char *name, int64_t low, int64_t high,
                              int64_t *io)
{
    const char *text = orth_cmd_flag(cmd, name);
    if (!text)
        return ORTH_OK;
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (errno || end == text || *end || v < low || v > high)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--%s=%s is not a whole number in [%" PRId64 ", %" PRId64 "]", name, text,
                         low, high);
    *io = v;
    return ORTH_OK;
}

orth_status orth_cmd_flag_real(orth_ctx *ctx, const orth_cmd *cmd, const char *name, double low, double high,
                               double *io)
{
    const char *text = orth_cmd_flag(cmd, name);
    if (!text)
        return ORTH_OK;
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !(v >= low && v <= high))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "--%s=%s is not a number in [%g, %g]", name, text, low, high);
    *io = v;
    return ORTH_OK;
}
