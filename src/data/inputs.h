/* inputs.h -- from what was named to a list of files: files, folders, lists of files, standard input ("-").
 *
 * A folder stands for all regular files in it and its folders, in the order of their paths byte by byte, so the list
 * does not depend on the file system. Left out: names that begin with a dot, and folders that are symbolic links
 * (they may lead back); a symbolic link to a file is that file.
 */
#ifndef ORTH_DATA_INPUTS_H
#define ORTH_DATA_INPUTS_H

#include "base/ctx.h"

typedef struct {
    char **v;        /* [num] paths, heap; zero-initialised: ready */
    int num, cap;
} orth_inputs;

/* Adds what `path` stands for. ORTH_ERR_IO; ORTH_ERR_ARG: a folder without files, a folder that is prepared already;
 * ORTH_ERR_NOMEM. */
orth_status orth_inputs_add(orth_ctx *ctx, orth_inputs *in, const char *path);
/* Adds what each line of the file `list` ("-": standard input) stands for; empty lines are left out. */
orth_status orth_inputs_add_list(orth_ctx *ctx, orth_inputs *in, const char *list);
void orth_inputs_free(orth_ctx *ctx, orth_inputs *in);

#endif
