/* slow_disk.c -- preloaded into a run by test_watchdog.c: a disk that is slow, or that hangs.
 *
 *   SLOW_DISK=fsync:0.3       each fsync takes so many seconds longer
 *   SLOW_DISK=write:0.01      the same for each write to a regular file
 *   SLOW_DISK=hang:NAME:N     the N-th write (or fwrite) to a file whose name contains NAME never returns
 *   SLOW_DISK=dead:NAME:AFTER:N   from the N-th write (or fwrite) to AFTER on, whoever opens a file whose name contains NAME, or reads it
 *                             through a mapping, waits for ever
 *   SLOW_DISK=hang:NAME:N DEAD_FOLDER=TEXT   whoever opens a folder whose path contains TEXT after that write has begun waits for ever, too
 *   CLOCK_AHEAD=3600          the wall clock is that many seconds before the one by which the system ends waits, as if somebody had set it
 *                             back between the two looks at it
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static void nap(const char *what)
{
    const char *disk = getenv("SLOW_DISK");
    const size_t n = strlen(what);
    if (disk && strncmp(disk, what, n) == 0 && disk[n] == ':')
        usleep((useconds_t)(1e6 * atof(disk + n + 1)));
}

/* ---- the wall clock ---- */

int clock_gettime(clockid_t id, struct timespec *t)
{
    static _Atomic(int (*)(clockid_t, struct timespec *)) real;
    if (!real)
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    const char *ahead = getenv("CLOCK_AHEAD");
    const int result = real(id, t);
    if (result == 0 && id == CLOCK_REALTIME && ahead)
        t->tv_sec += atol(ahead);
    return result;
}

static int is_file(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static void wait_for_ever(int signal)
{
    (void)signal;
    for (;;)
        pause();
}

/* ---- a file that cannot be read any more ---- */

static char dead_name[64];
static atomic_bool is_dead;

/* A page behind the end of its file is a SIGBUS for the thread that reads it: here, a long wait. */
static void make_dead(void)
{
    const struct sigaction wait = {.sa_handler = wait_for_ever};
    const int empty = memfd_create("dead", 0);
    unsigned long begin, end;
    char line[1024];
    sigaction(SIGBUS, &wait, NULL);
    FILE *maps = fopen("/proc/self/maps", "r");
    while (maps && fgets(line, sizeof line, maps))
        if (strstr(line, dead_name) && sscanf(line, "%lx-%lx", &begin, &end) == 2)
            mmap((void *)begin, end - begin, PROT_READ, MAP_PRIVATE | MAP_FIXED, empty, 0);
    if (maps)
        fclose(maps);
    is_dead = true;
}

int open(const char *path, int flags, ...)
{
    int (*real)(const char *, int, ...) = (int (*)(const char *, int, ...))dlsym(RTLD_NEXT, "open");
    va_list args;
    va_start(args, flags);
    const mode_t mode = flags & O_CREAT || (flags & O_TMPFILE) == O_TMPFILE ? va_arg(args, mode_t) : 0;
    va_end(args);
    if (is_dead && strstr(path, dead_name))
        wait_for_ever(0);
    return real(path, flags, mode);
}

/* ---- writes ---- */

static atomic_bool has_hung;

static void hang(void)
{
    has_hung = true;
    wait_for_ever(0);
}

static void hang_at(int fd)
{
    static _Atomic int writes;
    char link[64], path[512] = "", name[64];
    const char *disk = getenv("SLOW_DISK");
    int n = 1;
    const int hangs = disk ? sscanf(disk, "hang:%63[^:]:%d", name, &n) : 0;
    if (hangs < 1 && (!disk || sscanf(disk, "dead:%63[^:]:%63[^:]:%d", dead_name, name, &n) < 2))
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) <= 0 || !strstr(path, name) || atomic_fetch_add(&writes, 1) + 1 != n)
        return;
    if (hangs < 1)
        make_dead();
    else
        hang();
}

DIR *opendir(const char *path)
{
    DIR *(*real)(const char *) = (DIR *(*)(const char *))dlsym(RTLD_NEXT, "opendir");
    const char *dead = getenv("DEAD_FOLDER");
    if (has_hung && dead && strstr(path, dead))
        wait_for_ever(0);
    return real(path);
}

int fsync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    nap("fsync");
    return real(fd);
}

size_t fwrite(const void *bytes, size_t size, size_t n, FILE *f)
{
    size_t (*real)(const void *, size_t, size_t, FILE *) = (size_t (*)(const void *, size_t, size_t, FILE *))dlsym(RTLD_NEXT, "fwrite");
    hang_at(fileno(f));
    return real(bytes, size, n, f);
}

ssize_t write(int fd, const void *bytes, size_t n)
{
    ssize_t (*real)(int, const void *, size_t) = (ssize_t (*)(int, const void *, size_t))dlsym(RTLD_NEXT, "write");
    if (is_file(fd)) {
        nap("write");
        hang_at(fd);
    }
    return real(fd, bytes, n);
}
