/* scratch.c -- see scratch.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_TMPFILE, fallocate */
#endif
#include "base/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/files.h"

#define PIECE_BYTES ((size_t)8 << 20) /* handed to the system at a time */

static orth_status fail_errno(orth_ctx *ctx, const char *dir, size_t bytes, const char *what)
{
    const int reason = errno;
    const bool full = reason == ENOSPC || reason == EDQUOT || reason == EFBIG;
    return ORTH_FAIL(ctx, full ? ORTH_ERR_NOSPACE : ORTH_ERR_IO, "memory.offload_dir=%s: cannot %s %zu bytes of a file for offloaded state: %s", dir, what,
                     bytes, strerror(reason));
}

/* Where the file system has no files without names, one that loses its name at once. */
static int open_named(const char *dir)
{
    char path[4096];
    if (snprintf(path, sizeof path, "%s/.orthant-scratch-XXXXXX", dir) >= (int)sizeof path) {
        errno = ENAMETOOLONG;
        return -1;
    }
    const int fd = mkostemp(path, O_CLOEXEC);
    if (fd >= 0)
        unlink(path);
    return fd;
}

/* Room for all bytes; a file system that cannot promise it gives it as they are written. */
static int take_room(int fd, size_t bytes)
{
    int failed;
    do
        failed = fallocate(fd, 0, 0, (off_t)bytes);
    while (failed && errno == EINTR);
    return failed && (errno == EOPNOTSUPP || errno == ENOSYS) ? ftruncate(fd, (off_t)bytes) : failed;
}

orth_status orth_scratch_open(orth_ctx *ctx, orth_scratch *out, const char *dir, size_t num_bytes)
{
    int fd = open(dir, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    if (fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL))
        fd = open_named(dir);
    if (fd < 0)
        return fail_errno(ctx, dir, num_bytes, "make");
    if (take_room(fd, num_bytes) != 0) {
        const orth_status s = fail_errno(ctx, dir, num_bytes, "take");
        close(fd);
        return s;
    }
    *out = (orth_scratch){.fd = fd, .dir = dir, .bytes = num_bytes};
    return ORTH_OK;
}

void orth_scratch_close(orth_scratch *s)
{
    close(s->fd);
}

orth_status orth_scratch_read(orth_ctx *ctx, const orth_scratch *s, size_t at, void *bytes, size_t n)
{
    for (size_t done = 0; done < n;) {
        const ssize_t k = pread(s->fd, (char *)bytes + done, ORTH_MIN(n - done, PIECE_BYTES), (off_t)(at + done));
        if (k < 0 && errno == EINTR)
            continue;
        if (k == 0)
            errno = EIO; /* the file is as long as was asked for */
        if (k <= 0)
            return fail_errno(ctx, s->dir, n, "read");
        done += (size_t)k;
    }
    return ORTH_OK;
}

orth_status orth_scratch_write(orth_ctx *ctx, const orth_scratch *s, size_t at, const void *bytes, size_t n)
{
    if (orth_file_write_fails(ctx)) {
        errno = ENOSPC;
        return fail_errno(ctx, s->dir, n, "write");
    }
    for (size_t done = 0; done < n;) {
        const ssize_t k = pwrite(s->fd, (const char *)bytes + done, ORTH_MIN(n - done, PIECE_BYTES), (off_t)(at + done));
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return fail_errno(ctx, s->dir, n, "write");
        done += (size_t)k;
    }
    return ORTH_OK;
}

orth_status orth_scratch_sync(orth_ctx *ctx, const orth_scratch *s)
{
    int failed;
    do
        failed = fdatasync(s->fd);
    while (failed && errno == EINTR);
    return failed ? fail_errno(ctx, s->dir, s->bytes, "sync") : ORTH_OK;
}

size_t orth_scratch_free_bytes(const char *dir)
{
    struct statvfs st;
    return statvfs(dir, &st) == 0 ? (size_t)st.f_bavail * (size_t)st.f_frsize : 0;
}

size_t orth_scratch_disk_bytes(const orth_scratch *s)
{
    struct stat st;
    return fstat(s->fd, &st) == 0 ? (size_t)st.st_blocks * 512 : 0;
}
