/* files.c -- see files.h. */
#define _GNU_SOURCE /* sync_file_range */
#include "base/files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/progress.h"

#define PIECE_BYTES ((size_t)8 << 20)   /* handed to the system at a time: what is slow still moves */
#define WINDOW_BYTES ((int64_t)64 << 20) /* written back together, so that little is left for the fsync at the end */

struct orth_writer {
    int fd;
    char *path;      /* heap */
    char *tmp_path;  /* heap; NULL: written in place */
    int64_t put, sent; /* bytes written, and of these the ones that the system was told to bring to the device */
};

orth_status orth_file_fail(orth_ctx *ctx, const char *path, const char *what)
{
    const int reason = errno;
    const bool full = reason == ENOSPC || reason == EDQUOT || reason == EFBIG; /* EFBIG: `ulimit -f` */
    const bool memory = reason == ENOMEM || reason == EMFILE || reason == ENFILE;
    const orth_status code = full ? ORTH_ERR_NOSPACE : memory ? ORTH_ERR_NOMEM : ORTH_ERR_IO;
    if (ctx->error.code == ORTH_OK)
        ctx->error.of_device = reason == EIO;
    return ORTH_FAIL(ctx, code, "%s: cannot %s: %s", path, what, strerror(reason));
}

/* A signal that comes while a slow file system (FUSE, NFS) works ends these calls, not the need for them. */
int orth_file_open(const char *path, int flags)
{
    int fd;
    do
        fd = open(path, flags | O_CLOEXEC, 0644);
    while (fd < 0 && errno == EINTR);
    return fd;
}

FILE *orth_file_stream(orth_ctx *ctx, const char *path, const char *mode)
{
    FILE *f;
    do
        f = fopen(path, mode);
    while (!f && errno == EINTR);
    if (f)
        setvbuf(f, NULL, _IONBF, 0);
    else
        orth_file_fail(ctx, path, "open");
    return f;
}

/* sync: fsync or fdatasync. */
static int sync_again(int (*sync)(int fd), int fd)
{
    int result;
    do
        result = sync(fd);
    while (result != 0 && errno == EINTR);
    return result;
}

orth_status orth_file_sync(orth_ctx *ctx, int fd, const char *path)
{
    const int result = sync_again(fdatasync, fd);
    /* A pipe or a device keeps nothing that could be asked for. */
    return result == 0 || errno == EINVAL || errno == ENOTSUP || errno == EROFS ? ORTH_OK : orth_file_fail(ctx, path, "sync");
}

orth_status orth_file_map_open(orth_ctx *ctx, orth_file_map *out, const char *path)
{
    /* Not blocking: the open of a pipe would wait for its writer. */
    int fd = orth_file_open(path, O_RDONLY | O_NONBLOCK);
    if (fd < 0)
        return orth_file_fail(ctx, path, "open");
    struct stat st = {.st_mode = 0};
    bool known = fstat(fd, &st) == 0;
    if (!known || !S_ISREG(st.st_mode)) {
        if (S_ISDIR(st.st_mode))
            errno = EISDIR;
        orth_status s = known && !S_ISDIR(st.st_mode)
                            ? ORTH_FAIL(ctx, ORTH_ERR_IO, "%s: is not a regular file: save what a pipe or a device gives "
                                        "to a file first", path)
                            : orth_file_fail(ctx, path, "read");
        close(fd);
        return s;
    }
    void *data = NULL;
    if (st.st_size > 0) {
        data = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
        if (data == MAP_FAILED) {
            orth_status s = orth_file_fail(ctx, path, "map");
            close(fd);
            return s;
        }
    }
    close(fd);
    *out = (orth_file_map){.data = data, .size = (size_t)st.st_size};
    return ORTH_OK;
}

void orth_file_map_close(orth_file_map *map)
{
    if (map->data)
        munmap((void *)map->data, map->size);
    *map = (orth_file_map){0};
}

void orth_file_map_release(const orth_file_map *map, size_t offset, size_t num_bytes)
{
    const size_t page = (size_t)sysconf(_SC_PAGESIZE), first = (offset + page - 1) / page * page;
    const size_t end = ORTH_MIN(map->size, offset + num_bytes) / page * page;
    if (first < end)
        madvise((char *)(uintptr_t)map->data + first, end - first, MADV_DONTNEED);
}

orth_status orth_file_read(orth_ctx *ctx, const char *path, char **out_text, size_t *out_bytes)
{
    orth_file_map map = {0};
    ORTH_TRY(orth_file_map_open(ctx, &map, path));
    char *text = orth_mem_alloc(ctx, map.size + 1);
    if (text && map.size)
        memcpy(text, map.data, map.size);
    *out_bytes = map.size;
    orth_file_map_close(&map);
    if (!text)
        return ORTH_ERR_NOMEM;
    *out_text = text;
    return ORTH_OK;
}

orth_status orth_file_read_named(orth_ctx *ctx, const char *path, char **out_text, size_t *out_bytes)
{
    return orth_as_configuration(ctx, orth_file_read(ctx, path, out_text, out_bytes));
}

bool orth_file_write_fails(orth_ctx *ctx)
{
    if (!ctx->faults)
        return false;
    int64_t left = atomic_fetch_sub(&ctx->faults->write, 1);
    return left == 1 || (left < 1 && ctx->faults->sticky);
}

static orth_status write_all(orth_ctx *ctx, int fd, const char *path, const void *bytes, size_t n)
{
    const char *p = bytes;
    if (orth_file_write_fails(ctx)) {
        errno = ENOSPC;
        return orth_file_fail(ctx, path, "write");
    }
    while (n > 0) {
        ssize_t k = write(fd, p, ORTH_MIN(n, PIECE_BYTES));
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return orth_file_fail(ctx, path, "write");
        orth_tick(ctx);
        p += k;
        n -= (size_t)k;
    }
    return ORTH_OK;
}

static void writer_free(orth_ctx *ctx, orth_writer *w)
{
    if (w->fd >= 0)
        close(w->fd);
    orth_mem_free(ctx, w->path);
    orth_mem_free(ctx, w->tmp_path);
    orth_mem_free(ctx, w);
}

bool orth_path_is_same(const char *a, const char *b)
{
    struct stat x, y;
    return stat(a, &x) == 0 && stat(b, &y) == 0 && x.st_dev == y.st_dev && x.st_ino == y.st_ino;
}

bool orth_path_is_device(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && (S_ISCHR(st.st_mode) || S_ISBLK(st.st_mode) || S_ISFIFO(st.st_mode) || S_ISSOCK(st.st_mode));
}

orth_status orth_writer_open(orth_ctx *ctx, orth_writer **out, const char *path)
{
    const bool in_place = orth_path_is_device(path); /* a rename would put a file in its place */
    orth_writer *w = ORTH_NEW(ctx, orth_writer);
    if (!w)
        return ORTH_ERR_NOMEM;
    w->fd = -1;
    w->path = orth_mem_strdup(ctx, path);
    if (w->path && !in_place)
        w->tmp_path = orth_mem_printf(ctx, "%s.tmp-%ld", path, (long)getpid());
    if (!w->path || (!in_place && !w->tmp_path)) {
        writer_free(ctx, w);
        return ORTH_ERR_NOMEM;
    }
    w->fd = in_place ? orth_file_open(path, O_WRONLY) : orth_file_open(w->tmp_path, O_WRONLY | O_CREAT | O_TRUNC);
    if (w->fd < 0) {
        orth_status s = orth_file_fail(ctx, path, "create");
        writer_free(ctx, w);
        return s;
    }
    orth_phase_file(ctx, path);
    *out = w;
    return ORTH_OK;
}

/* One window of the file is on its way to the device while the next is written, and must be there before the one after
 * that begins: a slow disk is then seen to move, and the fsync at the end has little to do. Errors show at the fsync. */
static void write_back(orth_ctx *ctx, orth_writer *w)
{
#ifdef SYNC_FILE_RANGE_WRITE
    if (w->put - w->sent < WINDOW_BYTES)
        return;
    sync_file_range(w->fd, w->sent, w->put - w->sent, SYNC_FILE_RANGE_WRITE);
    if (w->sent > 0)
        sync_file_range(w->fd, 0, w->sent, SYNC_FILE_RANGE_WAIT_BEFORE);
    w->sent = w->put;
    orth_tick(ctx);
#else
    (void)ctx;
    (void)w;
#endif
}

orth_status orth_writer_put(orth_ctx *ctx, orth_writer *w, const void *bytes, size_t num_bytes)
{
    const char *p = bytes;
    for (size_t left = num_bytes, n; left > 0 || p == bytes; p += n, left -= n) {
        n = ORTH_MIN(left, (size_t)WINDOW_BYTES);
        ORTH_TRY(write_all(ctx, w->fd, w->path, p, n));
        w->put += (int64_t)n;
        write_back(ctx, w);
        if (n == 0)
            break;
    }
    return ORTH_OK;
}

orth_status orth_writer_put_at(orth_ctx *ctx, orth_writer *w, const void *bytes, size_t num_bytes,
                               int64_t offset)
{
    if (lseek(w->fd, offset, SEEK_SET) < 0)
        return orth_file_fail(ctx, w->path, "seek");
    ORTH_TRY(write_all(ctx, w->fd, w->path, bytes, num_bytes));
    if (lseek(w->fd, 0, SEEK_END) < 0)
        return orth_file_fail(ctx, w->path, "seek");
    return ORTH_OK;
}

/* A rename is durable only once the folder that holds the name is. */
static orth_status sync_parent(orth_ctx *ctx, const char *path)
{
    const char *slash = strrchr(path, '/');
    char *dir = slash ? orth_mem_printf(ctx, "%.*s", (int)(slash == path ? 1 : slash - path), path)
                      : orth_mem_strdup(ctx, ".");
    if (!dir)
        return ORTH_ERR_NOMEM;
    orth_status s = ORTH_OK;
    int fd = orth_file_open(dir, O_RDONLY | O_DIRECTORY);
    /* Some file systems refuse fsync on a folder; then there is nothing more to ask for. */
    if (fd < 0 || (sync_again(fsync, fd) != 0 && errno != EINVAL && errno != ENOTSUP))
        s = orth_file_fail(ctx, dir, "sync");
    if (fd >= 0)
        close(fd);
    orth_mem_free(ctx, dir);
    return s;
}

/* Some file systems (NFS) tell of a write that failed only here. EINTR: closed all the same. */
static orth_status close_written(orth_ctx *ctx, orth_writer *w)
{
    const int fd = w->fd;
    w->fd = -1;
    return close(fd) == 0 || errno == EINTR ? ORTH_OK : orth_file_fail(ctx, w->path, "close");
}

orth_status orth_writer_commit(orth_ctx *ctx, orth_writer *w)
{
    orth_status s = ORTH_OK;
    if (orth_file_write_fails(ctx)) {
        errno = EIO;
        s = orth_file_fail(ctx, w->path, "sync");
    } else if (w->tmp_path && sync_again(fsync, w->fd) != 0) {
        s = orth_file_fail(ctx, w->path, "sync");
    }
    if (s == ORTH_OK)
        s = close_written(ctx, w);
    if (s == ORTH_OK && w->tmp_path && rename(w->tmp_path, w->path) != 0)
        s = orth_file_fail(ctx, w->path, "rename into place");
    if (s != ORTH_OK) {
        orth_writer_abort(ctx, w);
        return s;
    }
    orth_tick(ctx);
    if (w->tmp_path)
        s = sync_parent(ctx, w->path);
    orth_phase_file(ctx, NULL);
    writer_free(ctx, w);
    return s;
}

void orth_writer_abort(orth_ctx *ctx, orth_writer *w)
{
    if (!w)
        return;
    if (w->tmp_path)
        unlink(w->tmp_path);
    writer_free(ctx, w);
}

orth_status orth_file_write(orth_ctx *ctx, const char *path, const void *bytes, size_t num_bytes)
{
    orth_writer *w = NULL;
    ORTH_TRY(orth_writer_open(ctx, &w, path));
    orth_status s = orth_writer_put(ctx, w, bytes, num_bytes);
    if (s != ORTH_OK) {
        orth_writer_abort(ctx, w);
        return s;
    }
    return orth_writer_commit(ctx, w);
}

orth_status orth_file_append(orth_ctx *ctx, FILE *f, const char *path, const void *bytes, size_t num_bytes)
{
    struct stat before;
    const bool known = fstat(fileno(f), &before) == 0;
    if (orth_file_write_fails(ctx))
        errno = ENOSPC;
    else if (fwrite(bytes, 1, num_bytes, f) == num_bytes)
        return ORTH_OK;
    const orth_status s = orth_file_fail(ctx, path, "write");
    if (known && ftruncate(fileno(f), before.st_size) != 0) /* no half of it: what reads the file drops such a line */
        orth_log(ctx, ORTH_LOG_WARN, "files", "%s: its last line stays cut short", path);
    clearerr(f);
    return s;
}

bool orth_path_errno_is_absence(void)
{
    return errno == ENOENT || errno == ENOTDIR;
}

bool orth_path_exists(const char *path)
{
    struct stat st;
    return lstat(path, &st) == 0 || !orth_path_errno_is_absence();
}

orth_status orth_path_look(orth_ctx *ctx, const char *path, bool *out_there)
{
    struct stat st;
    *out_there = lstat(path, &st) == 0;
    return *out_there || orth_path_errno_is_absence() ? ORTH_OK : orth_file_fail(ctx, path, "look at");
}

orth_status orth_path_holds(orth_ctx *ctx, const char *dir, const char *name, bool *out_there)
{
    char *path = orth_path_join(ctx, dir, name);
    const orth_status s = path ? orth_path_look(ctx, path, out_there) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, path);
    return s;
}

bool orth_path_is_dir(const char *path)
{
    struct stat st;
    return stat(path, &st) == 0 && S_ISDIR(st.st_mode);
}

bool orth_path_is_empty_dir(const char *path)
{
    DIR *dir = opendir(path);
    int n = 0;
    if (!dir)
        return false;
    while (n < 3 && readdir(dir)) /* "." and ".." */
        n++;
    closedir(dir);
    return n == 2;
}

/* *made: by this call and nobody else. What is there already may be no folder. */
static orth_status make_dir(orth_ctx *ctx, const char *path, bool *made)
{
    *made = mkdir(path, 0755) == 0;
    return *made ? sync_parent(ctx, path) : errno == EEXIST ? ORTH_OK : orth_file_fail(ctx, path, "create folder");
}

static orth_status require_dir(orth_ctx *ctx, const char *path)
{
    return orth_path_is_dir(path) ? ORTH_OK : ORTH_FAIL(ctx, ORTH_ERR_IO, "%s: is not a folder", path);
}

orth_status orth_path_make_dir(orth_ctx *ctx, const char *path)
{
    bool made;
    ORTH_TRY(make_dir(ctx, path, &made));
    return require_dir(ctx, path);
}

/* *made: whether `path` itself was made, by this call and nobody else. */
static orth_status make_dirs(orth_ctx *ctx, const char *path, bool *made)
{
    *made = false;
    char *copy = orth_mem_strdup(ctx, path);
    if (!copy)
        return ORTH_ERR_NOMEM;
    orth_status s = ORTH_OK;
    for (char *p = copy + 1; s == ORTH_OK; p++) {
        if (*p != '/' && *p != '\0')
            continue;
        const char saved = *p;
        bool made_this;
        *p = '\0';
        s = make_dir(ctx, copy, &made_this);
        if (made_this)
            *made = strspn(path + (p - copy), "/") == strlen(path + (p - copy));
        *p = saved;
        if (saved == '\0')
            break;
    }
    if (s == ORTH_OK)
        s = require_dir(ctx, path);
    orth_mem_free(ctx, copy);
    return s;
}

orth_status orth_path_make_dirs(orth_ctx *ctx, const char *path)
{
    bool made;
    return make_dirs(ctx, path, &made);
}

orth_status orth_path_lock(orth_ctx *ctx, const char *dir, const char *what, int *out_fd)
{
    int fd = orth_file_open(dir, O_RDONLY | O_DIRECTORY);
    if (fd < 0)
        return orth_file_fail(ctx, dir, "open");
    int refused = 0;
    do
        refused = flock(fd, LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
    while (refused == EINTR);
    if (refused == 0 || refused == ENOSYS || refused == ENOTSUP) {
        if (refused != 0)
            orth_log(ctx, ORTH_LOG_WARN, "files", "%s: its file system has no locks: nothing keeps another process out", dir);
        *out_fd = fd;
        return ORTH_OK;
    }
    close(fd);
    errno = refused;
    return refused == EWOULDBLOCK ? ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s", dir, what) : orth_file_fail(ctx, dir, "lock");
}

orth_status orth_path_rename(orth_ctx *ctx, const char *from, const char *to)
{
    if (orth_file_write_fails(ctx)) {
        errno = EIO;
        return orth_file_fail(ctx, to, "rename into place");
    }
    if (rename(from, to) != 0)
        return orth_file_fail(ctx, to, "rename into place");
    return sync_parent(ctx, to);
}

orth_status orth_path_each(orth_ctx *ctx, const char *dir,
                           orth_status (*fn)(orth_ctx *ctx, void *user, const char *dir, const char *name), void *user)
{
    DIR *d;
    do
        d = opendir(dir);
    while (!d && errno == EINTR);
    if (!d)
        return errno == ENOENT ? ORTH_OK : orth_file_fail(ctx, dir, "list");
    orth_status s = ORTH_OK;
    while (s == ORTH_OK) {
        errno = 0;
        const struct dirent *e = readdir(d);
        if (!e && errno != 0)
            s = orth_file_fail(ctx, dir, "list");
        if (!e)
            break;
        if (strcmp(e->d_name, ".") != 0 && strcmp(e->d_name, "..") != 0)
            s = fn(ctx, user, dir, e->d_name);
    }
    closedir(d);
    return s;
}

static orth_status remove_child(orth_ctx *ctx, void *user, const char *dir, const char *name)
{
    (void)user;
    char *child = orth_path_join(ctx, dir, name);
    const orth_status s = child ? orth_path_remove(ctx, child) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, child);
    return s;
}

orth_status orth_path_remove(orth_ctx *ctx, const char *path)
{
    struct stat st;
    if (lstat(path, &st) != 0)
        return errno == ENOENT ? ORTH_OK : orth_file_fail(ctx, path, "remove");
    if (S_ISDIR(st.st_mode))
        ORTH_TRY(orth_path_each(ctx, path, remove_child, NULL));
    return remove(path) == 0 ? ORTH_OK : orth_file_fail(ctx, path, "remove");
}

orth_status orth_result_folder_begin(orth_ctx *ctx, orth_result_folder *out, const char *path)
{
    *out = (orth_result_folder){.path = path};
    const orth_status s = make_dirs(ctx, path, &out->is_new);
    return orth_result_folder_end(out, s);
}

orth_status orth_result_folder_end(const orth_result_folder *f, orth_status s)
{
    if (s != ORTH_OK && f->is_new)
        rmdir(f->path);
    return s;
}

char *orth_path_join(orth_ctx *ctx, const char *dir, const char *name)
{
    size_t n = strlen(dir);
    return orth_mem_printf(ctx, "%s%s%s", dir, n && dir[n - 1] == '/' ? "" : "/", name);
}
