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
    return (orth_folder_id){true, st.st_dev, st.st_ino};
}

bool orth_folder_same(orth_folder_id a, orth_folder_id b)
{
    return a.there && b.there && a.device == b.device && a.number == b.number;
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
    struct stat st;
    bool refused;
    *lock = orth_folder_lock(path, ORTH_LOCK_SHARED, &refused);
    *id = orth_folder_identify(path);
    if (*lock < 0 || id->unknown)
        return !refused;
    /* The name may have gone between the open and the lock. */
    if (fstat(*lock, &st) == 0 && orth_folder_same(*id, (orth_folder_id){true, st.st_dev, st.st_ino}))
        return true;
    orth_folder_unlock(*lock);
    *lock = -1;
    return false;
}
