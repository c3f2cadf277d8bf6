/* idle.h -- keys that were given and change nothing, as only the model or the plan shows. What other keys show: orth_config_tell_idle.
 */
#ifndef ORTH_TRAIN_IDLE_H
#define ORTH_TRAIN_IDLE_H

#include "config/config.h"
#include "plan/run_plan.h"

/* Logs each of them, with its place and why: keys of text where the data are prepared, recomputation and offload of activations that change no program of the plan, an optimizer of
 * which nothing leaves, keys of positions that the model does not have, and factors of parameters that are all frozen. Tells of a schedule that the run is too short for. What orth_programs_of and orth_setup_frozen return. */
orth_status orth_tell_idle_in_plan(orth_ctx *ctx, const orth_config *cfg, orth_run_plan *p);

#endif
