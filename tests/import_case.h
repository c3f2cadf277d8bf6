/* import_case.h -- what the tests of import and export share: configurations of other programs read from files, and the lines that are
 * said of their keys. The files in fixtures/imports are written as users of these programs write them. */
#ifndef ORTH_TESTS_IMPORT_CASE_H
#define ORTH_TESTS_IMPORT_CASE_H

#include "test.h"

#include <unistd.h>

#include "base/files.h"
#include "tools/export.h"
#include "train/describe.h"

#define FIXTURE(name) ORTH_TEST_DIR "/fixtures/imports/" name

static inline void open_import(orth_ctx *ctx, orth_config *c, orth_tool tool, const char *source)
{
    CHECK_OK(ctx, orth_config_init(ctx, c));
    CHECK_OK(ctx, orth_import(ctx, c, tool, source, 0));
    CHECK_OK(ctx, orth_config_check(ctx, c));
}

static inline void fails(orth_ctx *ctx, orth_tool tool, const char *source, const char *message)
{
    orth_config c;
    CHECK_OK(ctx, orth_config_init(ctx, &c));
    CHECK_FAILS(ctx, ORTH_ERR_ARG, message, orth_import(ctx, &c, tool, source, 0));
    orth_config_release(ctx, &c);
}

/* Writes a text to a file of this process, and returns its path; who calls it unlinks the file. */
static inline const char *import_file(orth_ctx *ctx, const char *text, char path[128])
{
    snprintf(path, 128, "/tmp/orthant-test-%ld-import", (long)getpid());
    CHECK_OK(ctx, orth_file_write(ctx, path, text, strlen(text)));
    return path;
}

/* open_import and fails from the text of a file. */
static inline void import_text(orth_ctx *ctx, orth_config *c, orth_tool tool, const char *text)
{
    char path[128];
    open_import(ctx, c, tool, import_file(ctx, text, path));
    unlink(path);
}

static inline void file_fails(orth_ctx *ctx, orth_tool tool, const char *text, const char *message)
{
    char path[128];
    fails(ctx, tool, import_file(ctx, text, path), message);
    unlink(path);
}

typedef struct {
    char text[16384];
} said;

static inline void keep_line(void *user, int rank, orth_log_level level, const char *component, const char *text)
{
    (void)rank, (void)level;
    said *lines = user;
    const size_t used = strlen(lines->text);
    if (strcmp(component, "export") == 0 || strcmp(component, "import") == 0)
        snprintf(lines->text + used, sizeof lines->text - used, "%s\n", text);
}

static inline int count_lines(const char *lines, const char *words)
{
    int n = 0;
    for (const char *at = strstr(lines, words); at; at = strstr(at + 1, words))
        n++;
    return n;
}

/* Reads a text beside keys of the command line; `lines` becomes what the importer said. */
static inline void import_beside(orth_ctx *ctx, orth_config *c, orth_tool tool, const char *text, const char *keys, said *lines)
{
    char path[128], words[256], *end = NULL;
    import_file(ctx, text, path);
    snprintf(words, sizeof words, "%s", keys);
    CHECK_OK(ctx, orth_config_init(ctx, c));
    for (char *word = strtok_r(words, " ", &end); word; word = strtok_r(NULL, " ", &end)) {
        char *value = strchr(word, '=');
        *value++ = '\0';
        CHECK_OK(ctx, orth_config_set(ctx, c, "command line", word, value));
    }
    const orth_log_sink before = ctx->log;
    lines->text[0] = '\0';
    ctx->log = (orth_log_sink){.write = keep_line, .user = lines, .level = ORTH_LOG_INFO};
    const orth_status s = orth_import(ctx, c, tool, path, 0);
    ctx->log = before;
    CHECK_OK(ctx, s);
    CHECK_OK(ctx, orth_config_check(ctx, c));
    unlink(path);
}

#endif
