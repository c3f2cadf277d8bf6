/* export.h -- a run as a configuration of another program: DeepSpeed, Accelerate, Megatron-LM, NeMo.
 *
 * The rows of config/imports.def, read the other way; export_parts.c makes the values of keys that several keys here decide. What was written is then read
 * back by the importer, and every key that did not come back is named: so what a configuration cannot say is found, and not believed.
 */
#ifndef ORTH_TOOLS_EXPORT_H
#define ORTH_TOOLS_EXPORT_H

#include "tools/import.h"

/* The tool of this id ("megatron"). ORTH_ERR_ARG naming all ids. */
orth_status orth_tool_from_id(orth_ctx *ctx, const char *id, orth_tool *tool);

/* Writes cfg into the file `path` in the form of the tool. Keys that it has no counterpart for go into the log, a line each, with what a reader of
 * the file takes instead. ranks_of_a_node: of the cluster, where parallel.ranks_per_host says nothing; 0: not known. ORTH_ERR_ARG for a model or layout that cannot be, and a path that is a device or a pipe; ORTH_ERR_IO, ORTH_ERR_NOMEM. */
orth_status orth_export(orth_ctx *ctx, const orth_config *cfg, orth_tool tool, const char *path, int64_t ranks_of_a_node);

/* Writes cfg as a run file that trains on a machine, too: without memory.limit_device where nothing is offloaded, which holds on the devices of a cluster only;
 * the log says so. ORTH_ERR_NOMEM, and what writing returns. */
orth_status orth_export_run(orth_ctx *ctx, const orth_config *cfg, const char *path);

#endif
