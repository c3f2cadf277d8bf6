/* compare.h -- `orthant plan RUN.yaml --compare KEY=[A, B, ...] ...`: a run with every combination of the values, in one table.
 */
#ifndef ORTH_TOOLS_COMPARE_H
#define ORTH_TOOLS_COMPARE_H

#include "tools/price.h"

#define ORTH_COMPARE_MAX_KEYS 8
#define ORTH_COMPARE_MAX_ROWS 1024

/* Prices `base` with each combination of the values of words[num_words], "parallel.zero=[1, 2, 3]", the last word fastest. A combination
 * that a rule refuses has a row with the rule. cluster: as in orth_place_to_run_find. *out is heap memory, text or JSON.
 * ORTH_ERR_ARG: a key or value that there is not, a key twice, no word, more keys or rows than above. ORTH_ERR_NOMEM. */
orth_status orth_compare(orth_ctx *ctx, const orth_config *base, const char *cluster, const char *const *words, int num_words,
                         bool json, char **out);

#endif
