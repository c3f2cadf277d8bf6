/* verify.h -- two run files side by side: the first differing bit has a name.
 *
 *   orth_verify_open --> orth_verify_run(A): keeps what A computed --> orth_verify_run(B): compares
 *
 * Compared after every step are loss and gradient norm and every gradient (before clipping), and after the
 * last every weight (fp32 masters), bit for bit. What A computed lies in files of the scratch folder: 4 bytes
 * per parameter and step. Neither run evaluates, saves or touches its run folder.
 */
#ifndef ORTH_TOOLS_VERIFY_H
#define ORTH_TOOLS_VERIFY_H

#include "config/config.h"
#include "train/run.h"

typedef struct {
    const char *scratch;         /* folder, made by the caller, who also removes it */
    int64_t steps;
    double *scalars;             /* [steps][2] loss and gradient norm of the first run */
    bool compares;               /* the first run is done */
    int64_t num_tensors, num_elems; /* of the model */
    bool differ;                 /* then `text` says where first, and both values */
    char text[768];
} orth_verify;

/* ORTH_ERR_NOMEM. */
orth_status orth_verify_open(orth_ctx *ctx, orth_verify *v, const char *scratch, int64_t steps);
void orth_verify_close(orth_ctx *ctx, orth_verify *v);

/* Runs the run file: the first call keeps, the second compares. checkpoint.dir of cfg is set to the scratch
 * folder. ORTH_ERR_NUMERIC for a loss that is not finite, and what training returns. */
orth_status orth_verify_run(orth_ctx *ctx, orth_verify *v, orth_config *cfg);

/* Refuses run files that are not of one problem: model, data, batch and seed. ORTH_ERR_ARG naming the first
 * key that differs, with both values. */
orth_status orth_verify_check_same(orth_ctx *ctx, const orth_config *a, const orth_config *b);

/* "optimizer.lr, parallel.dp": the other keys that differ and may matter; heap memory, NULL on failure. */
char *orth_verify_changes(orth_ctx *ctx, const orth_config *a, const orth_config *b);

#endif
