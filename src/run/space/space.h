/* space.h -- memory, or a file, of a space behind a table of functions: what a region of it is, only its file knows.
 *
 *   map -> read, write (from outside, or by `copy` from and to the host's memory)
 *       -> enter -> a kernel or communicator has addresses -> leave
 *
 * A region never moves, so that its addresses are computed once. They may be used between enter and leave only.
 */
#ifndef ORTH_RUN_SPACE_H
#define ORTH_RUN_SPACE_H

#include <pthread.h>

#include "base/scratch.h"
#include "program/ir/program.h"

/* Of a process (orth_ctx.spaces). All zero: as by default. */
typedef struct orth_space_setup {
    const char *file_dir;      /* folder of files; NULL: the current one */
    orth_file_io file_io;
    bool guards_device;        /* tests: pages of the device are inaccessible outside of instructions */
} orth_space_setup;

typedef struct orth_space_ops orth_space_ops;

typedef struct {
    const orth_space_ops *ops;
    char *base;                /* NULL where there are no bytes */
    size_t bytes;
    pthread_mutex_t mutex;     /* of depth; spaces that are closed between instructions */
    orth_scratch file;         /* of the space of files; */
    _Atomic int64_t file_read, file_written; /* bytes of it, so far */
    int depth;                 /* enters without their leave: instructions and calls under way */
} orth_region;

struct orth_space_ops {
    /* ORTH_ERR_NOMEM; *out is set, and to be unmapped, only on success. */
    orth_status (*map)(orth_ctx *ctx, orth_region *out, size_t bytes);
    void (*unmap)(orth_region *r);
    /* Bytes [at, at + n) to and from the host's memory, by all threads of ctx. */
    orth_status (*read)(orth_ctx *ctx, orth_region *r, size_t at, void *host, size_t n);
    orth_status (*write)(orth_ctx *ctx, orth_region *r, size_t at, const void *host, size_t n);
    orth_status (*enter)(orth_ctx *ctx, orth_region *r);
    void (*leave)(orth_region *r);
    size_t (*touched)(const orth_region *r); /* bytes of its pages that are in memory, or on the disk */
};

extern const orth_space_ops orth_space_host;        /* host.c: always open; the device of a machine that has none, too */
extern const orth_space_ops orth_space_file;        /* file.c: never open */
extern const orth_space_ops orth_space_device_test; /* device_test.c: no address works outside of enter and leave */

/* Zeroed bytes of a space. ORTH_ERR_NOMEM; of a file what orth_scratch_open returns. */
orth_status orth_region_map(orth_ctx *ctx, orth_region *out, orth_space space, size_t bytes);
void orth_region_unmap(orth_region *r); /* a zeroed one is fine */

#endif
