/* scratch.c -- see scratch.h. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* O_TMPFILE, fallocate */
#endif
#include "base/scratch.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/vfs.h>
#include <unistd.h>

#include "base/files.h"
#include "base/pages.h"

/* bytes: 0 where they do not matter. */
static orth_status fail_errno(orth_ctx *ctx, const char *dir, size_t bytes, const char *what)
{
    const int reason = errno;
    const bool full = reason == ENOSPC || reason == EDQUOT || reason == EFBIG;
    char size[32] = "";
    if (bytes > 0)
        snprintf(size, sizeof size, "%zu bytes of ", bytes);
    return ORTH_FAIL(ctx, full ? ORTH_ERR_NOSPACE : ORTH_ERR_IO, "memory.offload_dir=%s: cannot %s %sa file for offload: %s", dir, what, size,
                     strerror(reason));
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

size_t orth_scratch_room(orth_file_io io)
{
    return io == ORTH_FILE_IO_BUFFERED ? 0 : orth_file_ring_room();
}

/* Such a file counts as one, and takes the memory of the host. */
static bool is_in_memory(int fd)
{
    struct statfs f;
    return fstatfs(fd, &f) == 0 && f.f_type == TMPFS_MAGIC;
}

void orth_scratch_words(const orth_scratch *s, char out[ORTH_SCRATCH_WORDS_MAX])
{
    const char *where = is_in_memory(s->fd) ? "; the folder is a tmpfs, in the host's memory" : "";
    if (s->ring)
        snprintf(out, ORTH_SCRATCH_WORDS_MAX, "past the page cache (io_uring, O_DIRECT)%s", where);
    else
        snprintf(out, ORTH_SCRATCH_WORDS_MAX, "through the page cache (%s)%s", s->why[0] ? s->why : "memory.offload_io=buffered", where);
}

static orth_status open_ring(orth_ctx *ctx, orth_scratch *s, orth_file_io io)
{
    if (io == ORTH_FILE_IO_BUFFERED)
        return ORTH_OK;
    ORTH_TRY(orth_pages_map(ctx, &s->room, orth_scratch_room(io)));
    s->room_bytes = orth_scratch_room(io);
    s->ring = orth_file_ring_open(s->fd, s->bytes, s->room, s->why);
    if (s->ring || io == ORTH_FILE_IO_AUTO)
        return ORTH_OK;
    return ORTH_FAIL(ctx, ORTH_ERR_IO, "memory.offload_io=direct: memory.offload_dir=%s: a file for offload cannot be used past the page cache: "
                     "%s; memory.offload_io=auto goes through it then", s->dir, s->why);
}

static orth_status take_all(orth_ctx *ctx, orth_scratch *s, orth_file_io io)
{
    if (take_room(s->fd, s->bytes) != 0)
        return fail_errno(ctx, s->dir, s->bytes, "take");
    return open_ring(ctx, s, io);
}

orth_status orth_scratch_open(orth_ctx *ctx, orth_scratch *out, const char *dir, size_t num_bytes, orth_file_io io)
{
    orth_scratch s = {.dir = dir, .bytes = num_bytes};
    s.fd = open(dir, O_TMPFILE | O_RDWR | O_EXCL | O_CLOEXEC, 0600);
    if (s.fd < 0 && (errno == EOPNOTSUPP || errno == EISDIR || errno == EINVAL))
        s.fd = open_named(dir);
    if (s.fd < 0)
        return fail_errno(ctx, dir, 0, "make");
    const orth_status status = take_all(ctx, &s, io);
    if (status == ORTH_OK)
        *out = s;
    else
        orth_scratch_close(&s);
    return status;
}

void orth_scratch_close(orth_scratch *s)
{
    orth_file_ring_close(s->ring);
    if (!orth_file_ring_keeps(s->room))
        orth_pages_unmap(s->room, s->room_bytes);
    close(s->fd);
}

/* The blocks that lie wholly in [at, at + n) by the ring, what is before and behind them by the page cache. 0 or errno. */
static int move(const orth_scratch *s, bool write, char *bytes, size_t n, size_t at)
{
    const size_t before = ORTH_MIN(n, (ORTH_FILE_BLOCK - at % ORTH_FILE_BLOCK) % ORTH_FILE_BLOCK);
    const size_t whole = s->ring ? (n - before) / ORTH_FILE_BLOCK * ORTH_FILE_BLOCK : 0;
    if (whole == 0)
        return orth_file_move_plain(s->fd, write, bytes, n, at);
    int error = orth_file_move_plain(s->fd, write, bytes, before, at);
    if (!error)
        error = orth_file_ring_move(s->ring, write, bytes + before, whole, at + before);
    if (!error)
        error = orth_file_move_plain(s->fd, write, bytes + before + whole, n - before - whole, at + before + whole);
    return error;
}

static orth_status told(orth_ctx *ctx, const orth_scratch *s, int error, size_t n, const char *what)
{
    errno = error;
    return error ? fail_errno(ctx, s->dir, n, what) : ORTH_OK;
}

orth_status orth_scratch_read(orth_ctx *ctx, const orth_scratch *s, size_t at, void *bytes, size_t n)
{
    return told(ctx, s, move(s, false, bytes, n, at), n, "read");
}

orth_status orth_scratch_write(orth_ctx *ctx, const orth_scratch *s, size_t at, const void *bytes, size_t n)
{
    return told(ctx, s, orth_file_write_fails(ctx) ? ENOSPC : move(s, true, (char *)bytes, n, at), n, "write");
}

orth_status orth_scratch_sync(orth_ctx *ctx, const orth_scratch *s)
{
    int failed;
    do
        failed = fdatasync(s->fd);
    while (failed && errno == EINTR);
    if (failed)
        return fail_errno(ctx, s->dir, s->bytes, "sync");
    posix_fadvise(s->fd, 0, 0, POSIX_FADV_DONTNEED);
    return ORTH_OK;
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
