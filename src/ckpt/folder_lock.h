/* folder_lock.h -- a checkpoint that is being read is not removed, and a run writes in its own folder only.
 *
 * Who reads a checkpoint holds a shared lock (flock) on its folder, by a descriptor that is open for reading, so nothing is
 * written. Who removes one takes the lock alone until it has another name, and does not wait for it. Where there are no such
 * locks (NFS grants none alone on such a descriptor), a reader that loses its folder looks again.
 *
 * A trainer holds its run folder by a descriptor, too (orth_path_lock). What it writes and removes it calls by name, though, and
 * somebody may remove or rename the folder, and begin another run under that name, which the lock does not keep out: it belongs to
 * the folder, not to the name. So whoever writes there asks first (orth_folder_require).
 */
#ifndef ORTH_CKPT_FOLDER_LOCK_H
#define ORTH_CKPT_FOLDER_LOCK_H

#include <sys/types.h>

#include "base/ctx.h"

/* Which folder has a name: a writer may have removed or replaced it meanwhile. */
typedef struct {
    bool there;
    bool unknown;          /* it could not be looked at */
    dev_t device;
    ino_t number;
} orth_folder_id;

orth_folder_id orth_folder_identify(const char *path);
bool orth_folder_same(orth_folder_id a, orth_folder_id b);

/* The folder of a run, by its name and by the descriptor of its lock. */
typedef struct {
    const char *path;
    int lock;              /* -1: this process has none, and nothing is asked */
} orth_folder_claim;

/* ORTH_ERR_IO unless the name is still that of the folder. NULL is fine. */
orth_status orth_folder_require(orth_ctx *ctx, const orth_folder_claim *claim);

typedef enum { ORTH_LOCK_SHARED, ORTH_LOCK_ALONE } orth_lock_how;

/* Does not wait. *refused: somebody has it in the other way. -1 also where there is no folder, no descriptor or no lock. */
int orth_folder_lock(const char *path, orth_lock_how how, bool *refused);
/* -1 is fine. */
void orth_folder_unlock(int lock);

/* Keeps the folder of this name from being removed, until orth_folder_unlock(*lock); *lock is -1 where there are no locks.
 * False: it is going away, or has gone. */
bool orth_folder_hold(const char *path, int *lock, orth_folder_id *id);

#endif
