/* fault.c -- a preloaded library (LD_PRELOAD) that makes the k-th call of a kind fail, for test_faults.c.
 *
 *   ORTH_FAULT=KIND:K[:ERRNO]    the K-th call of a kind fails; ERRNO "+": and all after it
 *   ORTH_FAULT_COUNTS=FILE       at the end of the process: a line "KIND COUNT" for each kind, and one for fsync of folders
 *
 * uring: a completed request of io_uring; uring_short: one that comes back with half of its bytes. open_direct: open with O_DIRECT.
 * uring_lost: none is completed before a wait ends. open_tmpfile: open with O_TMPFILE, which counts as open, too.
 * Calls count from main on: what the loader does before is not the program's. A close that fails has closed, as Linux does it.
 * stat: stat, lstat and access. flip: a write of 4 KB or more says that all is written, and one bit is another on the disk.
 * For glibc, whose own allocator is reachable under other names (so nothing here allocates to find it).
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <dirent.h>
#include <unistd.h>

/* KIND(name, errno of its failure) */
#define KINDS(KIND)                                                                                        \
    KIND(malloc, ENOMEM) KIND(write, ENOSPC) KIND(fsync, EIO) KIND(fdatasync, EIO) KIND(rename, EIO) KIND(open, EMFILE)          \
    KIND(close, EIO) KIND(mmap, ENOMEM) KIND(fopen, EMFILE) KIND(fwrite, ENOSPC) KIND(opendir, EMFILE)      \
    KIND(mkdir, ENOSPC) KIND(flock, EIO) KIND(remove, EIO) KIND(thread, EAGAIN)          \
    KIND(pwrite, EIO) KIND(pread, EIO) KIND(fclose, EIO)                                                    \
    KIND(open_tmpfile, EROFS) KIND(fallocate, ENOSPC) KIND(flip, EIO) KIND(stat, EIO)                                       \
    KIND(open_direct, EINVAL) KIND(uring_init, EPERM) KIND(uring, EIO) KIND(uring_short, EIO) KIND(uring_lost, ETIME)

enum {
#define KIND(name, code) F_##name,
    KINDS(KIND)
#undef KIND
    NUM_KINDS
};

static const struct {
    const char *name;
    int code;
} kinds[NUM_KINDS] = {
#define KIND(name, code) {#name, code},
    KINDS(KIND)
#undef KIND
};

static atomic_bool armed;
static atomic_long calls[NUM_KINDS], folder_fsyncs;
static int fault_kind = -1, fault_errno;
static long fault_at;
static bool fault_stays;

/* Whether this call fails; errno is then set. */
static bool fails(int kind)
{
    if (!atomic_load(&armed))
        return false;
    const long n = atomic_fetch_add(&calls[kind], 1) + 1;
    if (kind != fault_kind || n < fault_at || (n > fault_at && !fault_stays))
        return false;
    errno = fault_errno;
    return true;
}

static void read_fault(const char *text)
{
    const size_t n = strcspn(text, ":");
    for (int i = 0; i < NUM_KINDS; i++)
        if (strlen(kinds[i].name) == n && strncmp(kinds[i].name, text, n) == 0)
            fault_kind = i;
    char *end = NULL;
    fault_at = text[n] ? strtol(text + n + 1, &end, 10) : 0;
    if (fault_kind < 0 || fault_at < 1) {
        fprintf(stderr, "fault.c: ORTH_FAULT=%s is not KIND:K\n", text);
        _exit(99);
    }
    fault_errno = kinds[fault_kind].code;
    fault_stays = strcmp(end, ":+") == 0;
    if (*end == ':' && !fault_stays)
        fault_errno = atoi(end + 1);
}

__attribute__((destructor)) static void write_counts(void)
{
    const char *path = getenv("ORTH_FAULT_COUNTS");
    if (!path || !atomic_exchange(&armed, false))
        return;
    FILE *f = fopen(path, "w");
    for (int i = 0; f && i < NUM_KINDS; i++)
        fprintf(f, "%s %ld\n", kinds[i].name, atomic_load(&calls[i]));
    if (f) {
        fprintf(f, "folder_fsync %ld\n", atomic_load(&folder_fsyncs));
        fclose(f);
    }
}

/* ---- main ---- */

static int (*real_main)(int, char **, char **);

static int armed_main(int argc, char **argv, char **env)
{
    const char *text = getenv("ORTH_FAULT");
    if (text)
        read_fault(text);
    atomic_store(&armed, true);
    return real_main(argc, argv, env);
}

int __libc_start_main(int (*start)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end);

int __libc_start_main(int (*start)(int, char **, char **), int argc, char **argv, void (*init)(void), void (*fini)(void),
                      void (*rtld_fini)(void), void *stack_end)
{
    __typeof__(&__libc_start_main) next = (__typeof__(next))dlsym(RTLD_NEXT, "__libc_start_main");
    real_main = start;
    return next(armed_main, argc, argv, init, fini, rtld_fini, stack_end);
}

/* ---- memory ---- */

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

void *malloc(size_t n)
{
    return fails(F_malloc) ? NULL : __libc_malloc(n);
}

void *calloc(size_t n, size_t size)
{
    return fails(F_malloc) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t n)
{
    return fails(F_malloc) ? NULL : __libc_realloc(p, n);
}

void *aligned_alloc(size_t alignment, size_t n)
{
    return fails(F_malloc) ? NULL : __libc_memalign(alignment, n);
}

int posix_memalign(void **out, size_t alignment, size_t n)
{
    void *p = fails(F_malloc) ? NULL : __libc_memalign(alignment, n);
    if (!p)
        return ENOMEM;
    *out = p;
    return 0;
}

/* ---- files ---- */

#define NEXT(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

static ssize_t write_flipped(int fd, const void *bytes, size_t n)
{
    char *other = __libc_malloc(n);
    memcpy(other, bytes, n);
    other[n / 2] ^= 1;
    const ssize_t done = NEXT(write)(fd, other, n);
    free(other);
    return done;
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    if (n >= 4096 && fails(F_flip))
        return write_flipped(fd, bytes, n);
    return fails(F_write) ? -1 : NEXT(write)(fd, bytes, n);
}

ssize_t pwrite(int fd, const void *bytes, size_t n, off_t at)
{
    return fails(F_pwrite) ? -1 : NEXT(pwrite)(fd, bytes, n, at);
}

ssize_t pread(int fd, void *bytes, size_t n, off_t at)
{
    return fails(F_pread) ? -1 : NEXT(pread)(fd, bytes, n, at);
}

int fdatasync(int fd)
{
    return fails(F_fdatasync) ? -1 : NEXT(fdatasync)(fd);
}

int fsync(int fd)
{
    struct stat st;
    if (atomic_load(&armed) && fstat(fd, &st) == 0 && S_ISDIR(st.st_mode))
        atomic_fetch_add(&folder_fsyncs, 1);
    return fails(F_fsync) ? -1 : NEXT(fsync)(fd);
}

int rename(const char *from, const char *to)
{
    return fails(F_rename) ? -1 : NEXT(rename)(from, to);
}

int open(const char *path, int flags, ...)
{
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
    va_end(args);
    if ((flags & O_TMPFILE) == O_TMPFILE && fails(F_open_tmpfile))
        return -1;
    return fails(flags & O_DIRECT ? F_open_direct : F_open) ? -1 : NEXT(open)(path, flags, mode);
}

int stat(const char *path, struct stat *out)
{
    return fails(F_stat) ? -1 : NEXT(stat)(path, out);
}

int lstat(const char *path, struct stat *out)
{
    return fails(F_stat) ? -1 : NEXT(lstat)(path, out);
}

int access(const char *path, int mode)
{
    return fails(F_stat) ? -1 : NEXT(access)(path, mode);
}

int fallocate(int fd, int mode, off_t at, off_t n)
{
    return fails(F_fallocate) ? -1 : NEXT(fallocate)(fd, mode, at, n);
}

int close(int fd)
{
    const bool fail = fails(F_close);
    const int result = NEXT(close)(fd);
    if (fail)
        errno = fault_errno;
    return fail ? -1 : result;
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset)
{
    return fails(F_mmap) ? MAP_FAILED : NEXT(mmap)(at, n, protection, flags, fd, offset);
}

FILE *fopen(const char *path, const char *mode)
{
    return fails(F_fopen) ? NULL : NEXT(fopen)(path, mode);
}

int fclose(FILE *f)
{
    const bool fail = fails(F_fclose);
    const int result = NEXT(fclose)(f);
    if (fail)
        errno = fault_errno;
    return fail ? EOF : result;
}

size_t fwrite(const void *bytes, size_t size, size_t n, FILE *f)
{
    if (!fails(F_fwrite))
        return NEXT(fwrite)(bytes, size, n, f);
    f->_flags |= 0x20; /* what ferror asks for */
    return 0;
}

DIR *opendir(const char *path)
{
    return fails(F_opendir) ? NULL : NEXT(opendir)(path);
}

int mkdir(const char *path, mode_t mode)
{
    return fails(F_mkdir) ? -1 : NEXT(mkdir)(path, mode);
}

int flock(int fd, int operation)
{
    return fails(F_flock) ? -1 : NEXT(flock)(fd, operation);
}

int remove(const char *path)
{
    return fails(F_remove) ? -1 : NEXT(remove)(path);
}

/* ---- liburing, whose header this needs not ---- */

struct io_uring;
struct io_uring_cqe {
    unsigned long long user_data;
    int res;
    unsigned flags;
};

int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags);
int io_uring_wait_cqe_timeout(struct io_uring *ring, struct io_uring_cqe **complete, void *limit);
unsigned io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **list, unsigned room);

int io_uring_queue_init(unsigned entries, struct io_uring *ring, unsigned flags)
{
    return fails(F_uring_init) ? -fault_errno : NEXT(io_uring_queue_init)(entries, ring, flags);
}

int io_uring_wait_cqe_timeout(struct io_uring *ring, struct io_uring_cqe **complete, void *limit)
{
    return fails(F_uring_lost) ? -fault_errno : NEXT(io_uring_wait_cqe_timeout)(ring, complete, limit);
}

unsigned io_uring_peek_batch_cqe(struct io_uring *ring, struct io_uring_cqe **list, unsigned room)
{
    const unsigned n = NEXT(io_uring_peek_batch_cqe)(ring, list, room);
    for (unsigned i = 0; i < n; i++) {
        if (fails(F_uring))
            list[i]->res = -fault_errno;
        else if (fails(F_uring_short) && list[i]->res > 0)
            list[i]->res /= 2;
    }
    return n;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*start)(void *), void *arg)
{
    return fails(F_thread) ? fault_errno : NEXT(pthread_create)(thread, attr, start, arg);
}
