/* search_report.h -- what a search found, for people and as JSON: the winner and why it wins, the next best, how popular choices do, what less
 * memory costs, and what the answer depends on.
 */
#ifndef ORTH_TOOLS_SEARCH_REPORT_H
#define ORTH_TOOLS_SEARCH_REPORT_H

#include "tools/search.h"

#define ORTH_SEARCH_BEST 10

/* Asks `s` for everything. max_plans: full plans for the winner and its proof; the next best, popular choices and rows in less memory cost some more,
 * a few each, and more where no layout that fits is found soon. *text: heap memory, for people
 * or JSON; *winner: candidate, -1: none fits. ORTH_ERR_NOMEM. */
orth_status orth_search_report(orth_ctx *ctx, orth_search *s, int32_t max_plans, bool json, char **text, int32_t *winner);

#endif
