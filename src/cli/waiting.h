/* waiting.h -- lines for people who wait: how far work is that takes longer than a few seconds (ctx->tell). */
#ifndef ORTH_CLI_WAITING_H
#define ORTH_CLI_WAITING_H

#include <stdio.h>

#include "base/ctx.h"

typedef struct {
    FILE *out;
    double next_s, every_s;
} orth_waiting;

/* From now on: a line to `out` after first_s seconds at the earliest, then every every_s, until orth_waiting_end. */
void orth_waiting_begin(orth_ctx *ctx, orth_waiting *w, FILE *out, double first_s, double every_s);
/* The same on standard error, if that is a terminal. */
void orth_waiting_on_terminal(orth_ctx *ctx, orth_waiting *w);
void orth_waiting_end(orth_ctx *ctx);

#endif
