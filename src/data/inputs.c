/* inputs.c -- see inputs.h. */
#include "data/inputs.h"

#include <dirent.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/files.h"
#include "data/corpus.h"
#include "data/source.h"

#define MAX_LIST_BYTES ((size_t)64 << 20)

/* Takes `path`, which is in heap memory, whatever happens. */
static orth_status add_owned(orth_ctx *ctx, orth_inputs *in, char *path)
{
    if (!path)
        return ORTH_ERR_NOMEM;
    if (in->num == in->cap) {
        const int cap = ORTH_MAX(64, 2 * in->cap);
        char **v = orth_mem_realloc(ctx, in->v, (size_t)cap * sizeof *v);
        if (!v) {
            orth_mem_free(ctx, path);
            return ORTH_ERR_NOMEM;
        }
        in->v = v;
        in->cap = cap;
    }
    in->v[in->num++] = path;
    return ORTH_OK;
}

static orth_status add_folder(orth_ctx *ctx, orth_inputs *in, const char *dir);

static orth_status add_entry(orth_ctx *ctx, orth_inputs *in, const char *dir, const char *name)
{
    struct stat st;
    if (name[0] == '.')
        return ORTH_OK;
    char *path = orth_path_join(ctx, dir, name);
    if (!path)
        return ORTH_ERR_NOMEM;
    orth_status status = ORTH_OK;
    const bool known = lstat(path, &st) == 0, link = known && S_ISLNK(st.st_mode);
    if (!known || (link && stat(path, &st) != 0))
        status = orth_file_fail(ctx, path, "read");
    else if (S_ISREG(st.st_mode))
        return add_owned(ctx, in, path);
    else if (S_ISDIR(st.st_mode) && !link)
        status = add_folder(ctx, in, path);
    orth_mem_free(ctx, path);
    return status;
}

static orth_status add_folder(orth_ctx *ctx, orth_inputs *in, const char *dir)
{
    if (orth_dataset_exists(dir))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: is prepared already (it has a dataset.json): data.path takes it as it is",
                         dir);
    DIR *d = opendir(dir);
    if (!d)
        return orth_file_fail(ctx, dir, "read");
    orth_status status = ORTH_OK;
    for (struct dirent *e; status == ORTH_OK && (errno = 0, e = readdir(d)) != NULL;)
        status = add_entry(ctx, in, dir, e->d_name);
    if (status == ORTH_OK && errno)
        status = orth_file_fail(ctx, dir, "read");
    closedir(d);
    return status;
}

static int by_bytes(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

orth_status orth_inputs_add(orth_ctx *ctx, orth_inputs *in, const char *path)
{
    if (strcmp(path, "-") == 0 || !orth_path_is_dir(path))
        return add_owned(ctx, in, orth_mem_strdup(ctx, path));
    const int first = in->num;
    ORTH_TRY(add_folder(ctx, in, path));
    if (in->num == first)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: is a folder without files (names that begin with a dot do not count)",
                         path);
    qsort(in->v + first, (size_t)(in->num - first), sizeof *in->v, by_bytes);
    return ORTH_OK;
}

static orth_status add_lines(orth_ctx *ctx, orth_inputs *in, char *text, const char *list)
{
    const int first = in->num;
    for (char *next, *line = text; *line; line = next) {
        const size_t n = strcspn(line, "\n");
        next = line + n + (line[n] == '\n');
        line[n] = 0;
        if (n > 0 && line[n - 1] == '\r')
            line[n - 1] = 0;
        if (line[0])
            ORTH_TRY(orth_inputs_add(ctx, in, line));
    }
    return in->num > first ? ORTH_OK : ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: the list names no file", list);
}

/* The whole list in memory, with a zero byte after its end. */
static orth_status read_list(orth_ctx *ctx, orth_source *s, char **text)
{
    for (size_t cap = 65536, num = 0, n; num < MAX_LIST_BYTES; cap *= 2) {
        char *v = orth_mem_realloc(ctx, *text, cap);
        if (!v)
            return ORTH_ERR_NOMEM;
        *text = v;
        ORTH_TRY(orth_source_read(ctx, s, v + num, cap - 1 - num, &n));
        num += n;
        if (num < cap - 1)
            return ORTH_OK;
    }
    return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: a list of files of more than %zu bytes", orth_source_name(s), MAX_LIST_BYTES);
}

orth_status orth_inputs_add_list(orth_ctx *ctx, orth_inputs *in, const char *list)
{
    orth_source *s = NULL;
    char *text = NULL;
    ORTH_TRY(orth_source_open(ctx, &s, list));
    orth_status status = read_list(ctx, s, &text);
    if (status == ORTH_OK)
        status = add_lines(ctx, in, text, orth_source_name(s));
    orth_mem_free(ctx, text);
    orth_source_close(ctx, s);
    return status;
}

void orth_inputs_free(orth_ctx *ctx, orth_inputs *in)
{
    for (int i = 0; i < in->num; i++)
        orth_mem_free(ctx, in->v[i]);
    orth_mem_free(ctx, in->v);
    *in = (orth_inputs){0};
}
