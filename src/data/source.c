/* source.c -- see source.h.
 *
 *   file, standard input, memory --refill--> raw bytes --copy, gunzip or unzstd--> the caller's buffer
 *
 * Both formats may hold several streams one after the other (`cat a.gz b.gz`, pigz, pzstd): where one ends, the next
 * begins or the file ends.
 */
#include "data/source.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include "base/files.h"

#define RAW_BYTES ((size_t)256 << 10)

typedef enum { FORM_PLAIN, FORM_GZIP, FORM_ZSTD } source_form;

struct orth_source {
    char *name;                /* heap */
    int fd;                    /* -1: memory */
    unsigned char *buffer;     /* heap, RAW_BYTES; NULL: memory */
    const unsigned char *raw;  /* [num_raw] bytes that were not used yet */
    size_t num_raw;
    int64_t offset;            /* of raw[0] in the file */
    bool raw_end;              /* nothing follows raw[num_raw] */
    source_form form;
    bool inside;               /* a compressed stream has begun and not ended */
    z_stream gzip;
    bool gzip_ready;
    ZSTD_DStream *zstd;
};

/* ---- raw bytes ---- */

/* Signals are blocked where they are asked for (ctx->stop), so they would not end a read that waits for a terminal or a
 * pipe. */
static orth_status wait_for_input(orth_ctx *ctx, const orth_source *s)
{
    struct pollfd p = {.fd = s->fd, .events = POLLIN};
    while (s->fd == STDIN_FILENO && poll(&p, 1, 200) <= 0)
        ORTH_TRY(orth_ctx_check_stop(ctx));
    return ORTH_OK;
}

/* More raw bytes behind those that are left. */
static orth_status refill(orth_ctx *ctx, orth_source *s)
{
    if (!s->buffer) {
        s->raw_end = true;
        return ORTH_OK;
    }
    memmove(s->buffer, s->raw, s->num_raw);
    s->raw = s->buffer;
    while (!s->raw_end && s->num_raw < RAW_BYTES) {
        ORTH_TRY(wait_for_input(ctx, s));
        const ssize_t n = read(s->fd, s->buffer + s->num_raw, RAW_BYTES - s->num_raw);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0)
            return orth_file_fail(ctx, s->name, "read");
        s->raw_end = n == 0;
        s->num_raw += (size_t)n;
    }
    return ORTH_OK;
}

static void use(orth_source *s, size_t n)
{
    s->raw += n;
    s->num_raw -= n;
    s->offset += (int64_t)n;
}

static bool starts_with(const orth_source *s, const char *magic, size_t n)
{
    return s->num_raw >= n && memcmp(s->raw, magic, n) == 0;
}

/* A zstd file may begin with a skippable frame: 50..5f 2a 4d 18 (pzstd writes one). */
static bool is_zstd(const orth_source *s)
{
    return starts_with(s, "\x28\xB5\x2F\xFD", 4) ||
           (s->num_raw >= 4 && (s->raw[0] & 0xF0) == 0x50 && memcmp(s->raw + 1, "\x2A\x4D\x18", 3) == 0);
}

static orth_status open_zstd(orth_ctx *ctx, orth_source *s)
{
    s->zstd = ZSTD_createDStream();
    /* `zstd --long` makes windows beyond the library's usual limit of 128 MiB. */
    if (!s->zstd || ZSTD_isError(ZSTD_DCtx_setParameter(s->zstd, ZSTD_d_windowLogMax, ZSTD_dParam_getBounds(ZSTD_d_windowLogMax).upperBound)))
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "%s: no memory for a zstd stream", s->name);
    return ORTH_OK;
}

static orth_status recognise(orth_ctx *ctx, orth_source *s)
{
    ORTH_TRY(refill(ctx, s));
    s->form = starts_with(s, "\x1F\x8B\x08", 3) ? FORM_GZIP : is_zstd(s) ? FORM_ZSTD : FORM_PLAIN;
    if (s->form == FORM_ZSTD)
        return open_zstd(ctx, s);
    if (s->form != FORM_GZIP)
        return ORTH_OK;
    if (inflateInit2(&s->gzip, 15 + 16) != Z_OK) /* gzip only, any window */
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "%s: no memory for a gzip stream", s->name);
    s->gzip_ready = true;
    return ORTH_OK;
}

/* ---- opening ---- */

static orth_status open_fd(orth_ctx *ctx, orth_source *s, const char *path)
{
    if (strcmp(path, "-") == 0) {
        s->fd = STDIN_FILENO;
        return ORTH_OK;
    }
    struct stat st;
    s->fd = orth_file_open(path, O_RDONLY | O_NONBLOCK); /* the open of a pipe would wait for its writer */
    if (s->fd < 0)
        return orth_file_fail(ctx, path, "open");
    if (fstat(s->fd, &st) != 0)
        return orth_file_fail(ctx, path, "read");
    if (S_ISDIR(st.st_mode))
        return ORTH_FAIL(ctx, ORTH_ERR_IO, "%s: cannot read: it is a folder", path);
    if (!S_ISREG(st.st_mode))
        return ORTH_FAIL(ctx, ORTH_ERR_IO, "%s: is not a regular file: give what a pipe or a device holds as standard "
                         "input, by the name -", path);
    return ORTH_OK;
}

static orth_source *new_source(orth_ctx *ctx, const char *name)
{
    orth_source *s = ORTH_NEW(ctx, orth_source);
    if (!s)
        return NULL;
    s->fd = -1;
    s->name = orth_mem_strdup(ctx, strcmp(name, "-") == 0 ? "standard input" : name);
    if (s->name)
        return s;
    orth_mem_free(ctx, s);
    return NULL;
}

orth_status orth_source_open(orth_ctx *ctx, orth_source **out, const char *path)
{
    orth_source *s = new_source(ctx, path);
    if (!s)
        return ORTH_ERR_NOMEM;
    orth_status status = ORTH_ERR_NOMEM;
    s->buffer = orth_mem_alloc(ctx, RAW_BYTES);
    s->raw = s->buffer;
    if (s->buffer)
        status = open_fd(ctx, s, path);
    if (status == ORTH_OK)
        status = recognise(ctx, s);
    if (status != ORTH_OK) {
        orth_source_close(ctx, s);
        return status;
    }
    *out = s;
    return ORTH_OK;
}

orth_status orth_source_from_memory(orth_ctx *ctx, orth_source **out, const char *name, const void *bytes,
                                    size_t num_bytes)
{
    orth_source *s = new_source(ctx, name);
    if (!s)
        return ORTH_ERR_NOMEM;
    s->raw = num_bytes ? bytes : (const unsigned char *)"";
    s->num_raw = num_bytes;
    const orth_status status = recognise(ctx, s);
    if (status != ORTH_OK) {
        orth_source_close(ctx, s);
        return status;
    }
    *out = s;
    return ORTH_OK;
}

void orth_source_close(orth_ctx *ctx, orth_source *s)
{
    if (!s)
        return;
    if (s->gzip_ready)
        inflateEnd(&s->gzip);
    ZSTD_freeDStream(s->zstd); /* NULL is fine */
    if (s->fd > STDIN_FILENO)
        close(s->fd);
    orth_mem_free(ctx, s->buffer);
    orth_mem_free(ctx, s->name);
    orth_mem_free(ctx, s);
}

const char *orth_source_name(const orth_source *s)
{
    return s->name;
}

/* ---- reading ---- */

static orth_status fail_stream(orth_ctx *ctx, const orth_source *s, const char *what)
{
    return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: the %s stream is damaged at byte %" PRId64 ": %s", s->name,
                     s->form == FORM_GZIP ? "gzip" : "zstd", s->offset, what);
}

static orth_status gunzip(orth_ctx *ctx, orth_source *s, char *to, size_t room, size_t *out_bytes)
{
    const size_t in = ORTH_MIN(s->num_raw, (size_t)1 << 30), most = ORTH_MIN(room, (size_t)1 << 30);
    if (!s->inside) {
        if (!starts_with(s, "\x1F\x8B", 2))
            return fail_stream(ctx, s, "something that is not gzip follows its end");
        inflateReset(&s->gzip);
        s->inside = true;
    }
    s->gzip.next_in = (unsigned char *)(uintptr_t)s->raw; /* zlib does not write there */
    s->gzip.avail_in = (uInt)in;
    s->gzip.next_out = (unsigned char *)to;
    s->gzip.avail_out = (uInt)most;
    const int code = inflate(&s->gzip, Z_NO_FLUSH);
    use(s, in - s->gzip.avail_in);
    *out_bytes = most - s->gzip.avail_out;
    if (code == Z_MEM_ERROR)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "%s: no memory for a gzip stream", s->name);
    if (code != Z_OK && code != Z_STREAM_END && code != Z_BUF_ERROR)
        return fail_stream(ctx, s, s->gzip.msg ? s->gzip.msg : "it is not as gzip writes it");
    s->inside = code != Z_STREAM_END;
    return ORTH_OK;
}

static orth_status unzstd(orth_ctx *ctx, orth_source *s, char *to, size_t room, size_t *out_bytes)
{
    ZSTD_inBuffer in = {s->raw, s->num_raw, 0};
    ZSTD_outBuffer out = {to, room, 0};
    if (!s->inside && !is_zstd(s))
        return fail_stream(ctx, s, "something that is not zstd follows its end");
    const size_t code = ZSTD_decompressStream(s->zstd, &out, &in);
    use(s, in.pos);
    *out_bytes = out.pos;
    if (ZSTD_getErrorCode(code) == ZSTD_error_memory_allocation)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "%s: no memory for the window of the zstd stream", s->name);
    if (ZSTD_isError(code))
        return fail_stream(ctx, s, ZSTD_getErrorName(code));
    s->inside = code != 0;
    return ORTH_OK;
}

/* Some bytes, or none and *end. */
static orth_status read_some(orth_ctx *ctx, orth_source *s, char *to, size_t room, size_t *out_bytes, bool *end)
{
    *out_bytes = 0;
    *end = false;
    if (s->num_raw < 16 && !s->raw_end) /* room for any magic number */
        ORTH_TRY(refill(ctx, s));
    if (s->form == FORM_PLAIN) {
        *out_bytes = ORTH_MIN(room, s->num_raw);
        memcpy(to, s->raw, *out_bytes);
        use(s, *out_bytes);
        *end = s->num_raw == 0 && s->raw_end;
        return ORTH_OK;
    }
    if (s->num_raw == 0 && s->raw_end && !s->inside) {
        *end = true;
        return ORTH_OK;
    }
    const size_t before = s->num_raw;
    ORTH_TRY(s->form == FORM_GZIP ? gunzip(ctx, s, to, room, out_bytes) : unzstd(ctx, s, to, room, out_bytes));
    if (*out_bytes == 0 && before == s->num_raw && s->inside && s->raw_end)
        return fail_stream(ctx, s, "the file ends before the stream does (truncated?)");
    return ORTH_OK;
}

orth_status orth_source_read(orth_ctx *ctx, orth_source *s, char *to, size_t room, size_t *out_bytes)
{
    size_t filled = 0;
    for (bool end = false; filled < room && !end;) {
        size_t n = 0;
        ORTH_TRY(read_some(ctx, s, to + filled, room - filled, &n, &end));
        filled += n;
    }
    *out_bytes = filled;
    return ORTH_OK;
}
