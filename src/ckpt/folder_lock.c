/* folder_lock.c -- see folder_lock.h. */
#include "ckpt/folder_lock.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"

orth_folder_id orth_folder_identify(const char *path)
{
    struct stat st;
    if (stat(path, &st) != 0)
        return (orth_folder_id){.unknown = !orth_path_errno_is_absence()};
    return (orth_folder_id){true, false, st.st_dev, st.st_ino};
}

bool orth_folder_same(orth_folder_id a, orth_folder_id b)
{
    return a.there && b.there && a.device == b.device && a.number == b.number;
}

static orth_folder_id identify_open(int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 ? (orth_folder_id){true, false, st.st_dev, st.st_ino} : (orth_folder_id){.unknown = true};
}

orth_status orth_folder_require(orth_ctx *ctx, const orth_folder_claim *claim)
{
    if (!claim || claim->lock < 0)
        return ORTH_OK;
    const orth_folder_id named = orth_folder_identify(claim->path);
    if (named.unknown)
        return orth_file_fail(ctx, claim->path, "look at");
    if (orth_folder_same(named, identify_open(claim->lock)))
        return ORTH_OK;
    return ORTH_FAIL(ctx, ORTH_ERR_IO, "%s: the run folder was removed or replaced while the run went on", claim->path);
}

int orth_folder_lock(const char *path, orth_lock_how how, bool *refused)
{
    const int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    int error;
    *refused = false;
    if (fd < 0)
        return -1;
    do
        error = flock(fd, (how == ORTH_LOCK_ALONE ? LOCK_EX : LOCK_SH) | LOCK_NB) == 0 ? 0 : errno;
    while (error == EINTR);
    if (error == 0)
        return fd;
    *refused = error == EWOULDBLOCK;
    close(fd);
    return -1;
}

void orth_folder_unlock(int lock)
{
    if (lock >= 0)
        close(lock);
}

bool orth_folder_hold(const char *path, int *lock, orth_folder_id *id)
{
    bool refused;
    *lock = orth_folder_lock(path, ORTH_LOCK_SHARED, &refused);
    *id = orth_folder_identify(path);
    if (*lock < 0 || id->unknown)
        return !refused;
    /* The name may have gone between the open and the lock. */
    if (orth_folder_same(*id, identify_open(*lock)))
        return true;
    orth_folder_unlock(*lock);
    *lock = -1;
    return false;
}
