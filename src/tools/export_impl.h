/* export_impl.h -- what the files of the exporter share. */
#ifndef ORTH_TOOLS_EXPORT_IMPL_H
#define ORTH_TOOLS_EXPORT_IMPL_H

#include "tools/export.h"
#include "tools/import_impl.h"

typedef struct {
    orth_ctx *ctx;
    const orth_config *cfg;       /* the run, its model with all dimensions */
    int64_t ranks_of_a_node;      /* of the cluster; 0: not known */
    orth_importer out;            /* its pairs are what is written; only tool, name, arena and pairs are used */
} orth_exporter;

/* Adds a key of theirs, unless it is there already. NULL or "": nothing. */
orth_status orth_export_add(orth_exporter *x, const char *path, const char *value);
/* Whether this key of theirs is there. */
bool orth_export_says(const orth_exporter *x, const char *path);
/* Their value of a key that is one of several; NULL: it is not written. Lives as long as the exporter's arena. */
const char *orth_export_part(orth_exporter *x, orth_import_part part);
/* Their word for the layers of the first stage or the last; NULL: none. */
const char *orth_export_end(orth_exporter *x, bool of_first);
/* Lists the layers of each chunk in parallel.stage_layers, where they are others than those of a configuration that says nothing. `c` has all dimensions of
 * its model. ORTH_ERR_ARG where the tool refuses such stages. */
orth_status orth_export_list_stages(orth_ctx *ctx, orth_config *c, orth_tool tool);
/* Whether the run is what Accelerate calls mixed precision in fp8. */
bool orth_export_is_fp8_autocast(const orth_config *c);
/* Keys that no row is about, without which their program does not do what the others say. */
orth_status orth_export_extras(orth_exporter *x);

#endif
