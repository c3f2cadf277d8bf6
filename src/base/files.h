/* files.h -- reading and writing whole files so that a failure loses nothing.
 *
 * Writers go to PATH.tmp-PID, are flushed to the device and renamed over PATH at commit: at every
 * moment PATH is either the old file or the whole new one. Every write passes one door, where tests
 * inject faults (ctx->faults->write).
 */
#ifndef ORTH_BASE_FILES_H
#define ORTH_BASE_FILES_H

#include "base/ctx.h"

/* "PATH: cannot WHAT: ..." for what errno says: ORTH_ERR_NOMEM where memory or descriptors ran out, ORTH_ERR_NOSPACE where the disk
 * or a quota is full, else ORTH_ERR_IO. Returns it. */
orth_status orth_file_fail(orth_ctx *ctx, const char *path, const char *what);
/* open, again after a signal, closed by exec; -1 with errno. */
int orth_file_open(const char *path, int flags);

/* A whole file mapped read-only. An empty file maps to data = NULL, size = 0. */
typedef struct {
    const unsigned char *data;
    size_t size;
} orth_file_map;

/* ORTH_ERR_IO with the path and the system's reason; ORTH_ERR_NOMEM where memory or descriptors ran out (all calls). */
orth_status orth_file_map_open(orth_ctx *ctx, orth_file_map *out, const char *path);
void orth_file_map_close(orth_file_map *map);
/* The whole pages within these bytes leave the resident set; they are read from the file again when used. */
void orth_file_map_release(const orth_file_map *map, size_t offset, size_t num_bytes);

/* Reads all of `path` into heap memory, with a zero byte after the end. Free with orth_mem_free. */
orth_status orth_file_read(orth_ctx *ctx, const char *path, char **out_text, size_t *out_bytes);

/* The same for a file of configuration that the user named: one that cannot be read is ORTH_ERR_ARG, as what is
 * wrong in it is (not where the device fails: that is ORTH_ERR_IO). */
orth_status orth_file_read_named(orth_ctx *ctx, const char *path, char **out_text, size_t *out_bytes);

typedef struct orth_writer orth_writer;

/* Opens PATH.tmp-PID for writing; nothing happens to PATH before orth_writer_commit. A device or pipe is written itself, at once.
 * ORTH_ERR_IO; ORTH_ERR_NOSPACE when the disk or a quota is full (all calls). */
orth_status orth_writer_open(orth_ctx *ctx, orth_writer **out, const char *path);
orth_status orth_writer_put(orth_ctx *ctx, orth_writer *w, const void *bytes, size_t num_bytes);
/* Overwrites bytes that were put already, at `offset` from the start: a header that is known last. */
orth_status orth_writer_put_at(orth_ctx *ctx, orth_writer *w, const void *bytes, size_t num_bytes,
                               int64_t offset);
/* fsync, rename, fsync of the folder. Frees w whatever happens; on failure the temporary is gone. */
orth_status orth_writer_commit(orth_ctx *ctx, orth_writer *w);
/* Removes the temporary file. NULL is fine. */
void orth_writer_abort(orth_ctx *ctx, orth_writer *w);

/* open + put + commit. */
orth_status orth_file_write(orth_ctx *ctx, const char *path, const void *bytes, size_t num_bytes);

/* An open stream without a buffer; NULL with the error recorded. */
FILE *orth_file_stream(orth_ctx *ctx, const char *path, const char *mode);
/* Appends to a stream of orth_file_stream through the same door (metrics): all of it, or nothing. ORTH_ERR_IO, ORTH_ERR_NOSPACE. */
orth_status orth_file_append(orth_ctx *ctx, FILE *f, const char *path, const void *bytes, size_t num_bytes);
/* Until what was written to the open file is on the disk, its length included. ORTH_ERR_IO, ORTH_ERR_NOSPACE. */
orth_status orth_file_sync(orth_ctx *ctx, int fd, const char *path);

/* Whether an injected fault lets this write fail (ctx->faults->write). */
bool orth_file_write_fails(orth_ctx *ctx);

/* False only where there is certainly nothing under this name. Where that cannot be told (EIO, EACCES) it is true, and what is done
 * with the file next says why; a link to nothing is something. */
bool orth_path_exists(const char *path);
/* For where nothing is done with the file next: what cannot be told is ORTH_ERR_IO. */
orth_status orth_path_look(orth_ctx *ctx, const char *path, bool *out_there);
/* The same of a name in a folder. */
orth_status orth_path_holds(orth_ctx *ctx, const char *dir, const char *name, bool *out_there);
/* After a call that looks at a name: errno says that there is none. */
bool orth_path_errno_is_absence(void);
bool orth_path_is_dir(const char *path);
bool orth_path_is_empty_dir(const char *path);
/* Whether both name one file that there is, by whatever path. */
bool orth_path_is_same(const char *a, const char *b);
bool orth_path_is_device(const char *path); /* or a pipe, or a socket: what was written does not stay there */
/* mkdir -p; each folder that was made has its name on the disk. */
orth_status orth_path_make_dirs(orth_ctx *ctx, const char *path);
/* mkdir, likewise: the folder above it is there. ORTH_ERR_IO, ORTH_ERR_NOSPACE. */
orth_status orth_path_make_dir(orth_ctx *ctx, const char *path);
/* Keeps a folder to this process until *out_fd is closed, at the latest by the end of the process, however it
 * ends. ORTH_ERR_ARG with `what` if another process has it. A file system without locks grants it, with a warning. */
orth_status orth_path_lock(orth_ctx *ctx, const char *dir, const char *what, int *out_fd);
/* Calls fn with each name in a folder but "." and "..", until one fails; a missing folder has none. fn may rename and remove.
 * ORTH_ERR_IO, ORTH_ERR_NOMEM, else what fn returns. */
orth_status orth_path_each(orth_ctx *ctx, const char *dir,
                           orth_status (*fn)(orth_ctx *ctx, void *user, const char *dir, const char *name), void *user);
/* rename, then fsync of the folder of `to`; an empty folder or nothing may be there. A write fault
 * point. ORTH_ERR_IO, ORTH_ERR_NOSPACE. */
orth_status orth_path_rename(orth_ctx *ctx, const char *from, const char *to);
/* rm -r; a missing path is fine. */
orth_status orth_path_remove(orth_ctx *ctx, const char *path);

/* A folder for the results of a command, made where there is none. */
typedef struct {
    const char *path;
    bool is_new;
} orth_result_folder;
orth_status orth_result_folder_begin(orth_ctx *ctx, orth_result_folder *out, const char *path);
/* With s, which it returns: after a failure a folder that was made goes again if nothing is in it: what is may be of another process. The error stays
 * that of s. */
orth_status orth_result_folder_end(const orth_result_folder *f, orth_status s);
/* "dir/name" in heap memory; NULL with the error recorded. */
char *orth_path_join(orth_ctx *ctx, const char *dir, const char *name);

#endif
