/* loader.h -- makes the sequences of the next steps on a thread of its own, off the critical path.
 *
 *   free --request--> asked --(loader thread)--> ready --get--> held --(next get)--> free
 *
 * Use (two buffers: one held, one being filled):
 *     orth_loader_request(step 0);
 *     for (;;) { orth_loader_get(&batch); orth_loader_request(next step); ...compute on batch... }
 * All memory is taken at creation; request and get allocate nothing. One caller thread.
 */
#ifndef ORTH_DATA_LOADER_H
#define ORTH_DATA_LOADER_H

#include <pthread.h>

#include "data/sampler.h"

typedef struct {
    const orth_sampler *sampler;   /* outlives the loader */
    orth_sample_rows rows;         /* which rows of each sequence */
    int64_t max_sequences;         /* of one request */
    int num_buffers;               /* >= 2; 0: 2 */
} orth_loader_options;

/* What one request asked for; R = rows.row_end - rows.row_begin. Sequence j of the list is in rows
 * [j*R, (j+1)*R), so micro-batch m of B sequences starts at m*B*R. Valid until the next get. */
typedef struct {
    int64_t num_sequences;
    const int64_t *indices;        /* [num_sequences], as requested */
    const int32_t *tokens, *targets, *pos, *doc;
    const float *weights;
} orth_loader_batch;

typedef struct orth_loader orth_loader;

/* ORTH_ERR_ARG, ORTH_ERR_NOMEM. */
orth_status orth_loader_create(orth_ctx *ctx, orth_loader **out, const orth_loader_options *options);
/* Stops the thread, whatever is outstanding. NULL is fine. */
void orth_loader_destroy(orth_ctx *ctx, orth_loader *l);
/* Heap bytes of the sequences that a loader holds: as planned, and as it was given them. Its small fixed part is left out. */
int64_t orth_loader_bytes(const orth_loader_options *options);
int64_t orth_loader_counted(const orth_loader *l);
/* The thread that fills them. */
pthread_t orth_loader_thread(const orth_loader *l);

/* Queues a step's sequences (copied), returns at once. ORTH_ERR_ARG if n > max_sequences or all buffers
 * are held or asked for. */
orth_status orth_loader_request(orth_ctx *ctx, orth_loader *l, const int64_t *indices, int64_t n);
/* Waits for the oldest request and gives back the batch got before. An error of the loader thread is
 * returned here, for the request it happened in, with its own message. ORTH_ERR_ARG without a request. */
orth_status orth_loader_get(orth_ctx *ctx, orth_loader *l, orth_loader_batch *out);

#endif
