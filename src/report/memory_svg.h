/* memory_svg.h -- a picture of a rank's memory over a step: bytes of each class, stacked, instruction by instruction. */
#ifndef ORTH_REPORT_MEMORY_SVG_H
#define ORTH_REPORT_MEMORY_SVG_H

#include "base/text.h"
#include "program/ir/program.h"

/* One self-contained SVG document with a panel for each space in which placed program p has an arena; rank: whose, for the titles. Persistent bytes are at the
 * bottom; the line on top is what the arena reserves. Of programs with more instructions than the picture has columns, a
 * column shows the instruction with the most bytes. Failures are noted in *out. */
void orth_memory_svg(orth_ctx *ctx, orth_text *out, const orth_program *p, int rank);
#endif
