/* tensorboard.h -- scalars as an event file that TensorBoard reads.
 *
 * The file is a sequence of TFRecords (length, masked CRC-32C of the length, bytes, masked CRC-32C of the bytes), each of which holds one
 * protocol buffer `Event`; formats as in TensorFlow's core/lib/io/record_writer and core/util/event.proto. A new file is begun by each
 * process; the event that opens it tells TensorBoard to forget what older files of the folder have from its first step on, so that
 * a resumed run does not show twice.
 */
#ifndef ORTH_REPORT_TENSORBOARD_H
#define ORTH_REPORT_TENSORBOARD_H

#include "base/ctx.h"

typedef struct {
    const char *tag;      /* "loss", "eval/loss" */
    double value;
} orth_scalar;

/* Begins DIR/events.out.tfevents.SECONDS.HOST.PID, of a run whose first step is `first_step`. DIR exists. ORTH_ERR_IO. */
orth_status orth_tensorboard_open(orth_ctx *ctx, FILE **out, const char *dir, int64_t first_step);
/* One event per call, appended and flushed. Values that are not finite are kept: TensorBoard shows them as such. ORTH_ERR_IO, ORTH_ERR_NOSPACE. */
orth_status orth_tensorboard_add(orth_ctx *ctx, FILE *file, int64_t step, const orth_scalar *scalars, int num_scalars);

#endif
