/* slow_disk.c -- preloaded into a run by test_watchdog.c: a disk that is slow, or that hangs.
 *
 *   SLOW_DISK=fsync:0.3       each fsync takes so many seconds longer
 *   SLOW_DISK=write:0.01      the same for each write to a regular file
 *   SLOW_DISK=hang:NAME:N     the N-th write (or flush) to a file whose name contains NAME never returns
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static void nap(const char *what)
{
    const char *disk = getenv("SLOW_DISK");
    const size_t n = strlen(what);
    if (disk && strncmp(disk, what, n) == 0 && disk[n] == ':')
        usleep((useconds_t)(1e6 * atof(disk + n + 1)));
}

static int is_file(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 && S_ISREG(st.st_mode);
}

static void hang_at(int fd)
{
    static _Atomic int writes;
    char link[64], path[512] = "", name[64];
    const char *disk = getenv("SLOW_DISK");
    int n = 1;
    if (!disk || sscanf(disk, "hang:%63[^:]:%d", name, &n) < 1)
        return;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    if (readlink(link, path, sizeof path - 1) <= 0 || !strstr(path, name) || atomic_fetch_add(&writes, 1) + 1 != n)
        return;
    for (;;)
        pause();
}

int fsync(int fd)
{
    int (*real)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    nap("fsync");
    return real(fd);
}

int fflush(FILE *f)
{
    int (*real)(FILE *) = (int (*)(FILE *))dlsym(RTLD_NEXT, "fflush");
    if (f)
        hang_at(fileno(f));
    return real(f);
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
