/* import.h -- a run from a configuration of another program: DeepSpeed, Accelerate, Megatron-LM, NeMo.
 *
 * One importer for all: import_read.c makes pairs of key and value of a file, whatever its form; the rows of config/imports.def say what becomes of
 * each; import_parts.c makes the keys that depend on several of theirs (precision, shards, virtual stages), with import_batch.c (ranks and batches),
 * import_optimizer.c (the learning rate and its schedule), import_model.c (the kind of block) and import_stages.c (layers of stages).
 * import_values.c reads their numbers and switches.
 */
#ifndef ORTH_TOOLS_IMPORT_H
#define ORTH_TOOLS_IMPORT_H

#include "config/config.h"

typedef enum {
#define TOOL(id, name, form, what) ORTH_TOOL_##id,
#include "config/imports.def"
    ORTH_NUM_TOOLS
} orth_tool;

/* "megatron", which is also the flag of `plan`. */
const char *orth_tool_id(orth_tool tool);

/* Sets keys of cfg to what `source` says: a file of the tool, for Megatron-LM also its arguments themselves. What was used, and what was not and
 * why, goes into the log, a line each. ORTH_ERR_ARG naming file, key and rule for a value that cannot be, keys that contradict each other, and
 * a run that there is not here; ORTH_ERR_DATA for what is no JSON; ORTH_ERR_IO, ORTH_ERR_NOMEM. num_devices: of the cluster, which gives parallel.dp
 * where nothing else does; 0: not known. */
orth_status orth_import(orth_ctx *ctx, orth_config *cfg, orth_tool tool, const char *source, int64_t num_devices);

#endif
