/* host.h -- the step of a run whose ranks are threads of one measured machine (a description of hardware with a section `host`).
 *
 * Each instruction takes what the description says for its op and shape (op_times.h), on as many threads as a rank has. Where ranks have
 * more threads together than the host has cores, they share the cores, and a rank that waits leaves its own to others: while k ranks
 * compute at once, they take k * threads / cores as long. All times of the step are longer by the mean of that. Nothing is measured: the
 * same run file and description give the same answer everywhere. An estimate; bench/results/ has its errors.
 */
#ifndef ORTH_PLAN_HOST_H
#define ORTH_PLAN_HOST_H

#include "plan/hardware.h"
#include "plan/run_plan.h"

/* Memory that the ranks of a run may take together. */
size_t orth_host_limit(const orth_hardware *h);

/* Times of p's ranks and of the total, as orth_run_plan_price. compute: type of products; h outlives p. ORTH_ERR_ARG where h has no host, or no rate
 * for the type; ORTH_ERR_NOMEM, and what writing a timeline returns. */
orth_status orth_host_price(orth_ctx *ctx, orth_run_plan *p, const orth_hardware *h, orth_dtype compute, const char *timeline);

#endif
