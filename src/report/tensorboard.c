/* tensorboard.c -- see tensorboard.h. */
#include "report/tensorboard.h"

#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/files.h"

/* Castagnoli's polynomial, bit by bit: an event has some hundred bytes. */
static uint32_t crc32c(const void *bytes, size_t n)
{
    uint32_t crc = 0xffffffff;
    for (const unsigned char *p = bytes, *end = p + n; p < end; p++) {
        crc ^= *p;
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (crc & 1 ? 0x82f63b78 : 0);
    }
    return ~crc;
}

/* TFRecord's mask: a checksum of data that holds its own checksum would be weak. */
static uint32_t masked(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xa282ead8;
}

/* ---- protocol buffers ---- */

#define MESSAGE_MAX 4096
typedef struct {
    unsigned char bytes[MESSAGE_MAX];
    size_t n;
} message;

enum { VARINT = 0, FIXED64 = 1, BYTES = 2, FIXED32 = 5 }; /* wire types */

static void put_raw(message *m, const void *bytes, size_t n)
{
    if (m->n + n <= MESSAGE_MAX) {
        memcpy(m->bytes + m->n, bytes, n);
        m->n += n;
    }
}

static void put_varint(message *m, uint64_t v)
{
    for (; v >= 0x80; v >>= 7)
        put_raw(m, &(unsigned char){(unsigned char)(v | 0x80)}, 1);
    put_raw(m, &(unsigned char){(unsigned char)v}, 1);
}

static void put_tag(message *m, int field, int type)
{
    put_varint(m, (uint64_t)(field << 3 | type));
}

static void put_double(message *m, int field, double v)
{
    put_tag(m, field, FIXED64);
    put_raw(m, &v, sizeof v);
}

static void put_bytes(message *m, int field, const void *bytes, size_t n)
{
    put_tag(m, field, BYTES);
    put_varint(m, n);
    put_raw(m, bytes, n);
}

/* Event: wall_time = 1, step = 2, file_version = 3, summary = 5, session_log = 7. */
static message begin_event(int64_t step)
{
    struct timespec now;
    message m = {.n = 0};
    clock_gettime(CLOCK_REALTIME, &now);
    put_double(&m, 1, (double)now.tv_sec + 1e-9 * (double)now.tv_nsec);
    put_tag(&m, 2, VARINT);
    put_varint(&m, (uint64_t)step);
    return m;
}

static orth_status write_record(orth_ctx *ctx, FILE *file, const message *m)
{
    unsigned char record[MESSAGE_MAX + 16];
    const uint64_t length = m->n;
    const uint32_t of_length = masked(crc32c(&length, sizeof length)), of_bytes = masked(crc32c(m->bytes, m->n));
    memcpy(record, &length, 8);
    memcpy(record + 8, &of_length, 4);
    memcpy(record + 12, m->bytes, m->n);
    memcpy(record + 12 + m->n, &of_bytes, 4);
    return orth_file_append(ctx, file, "event file", record, m->n + 16);
}

static orth_status write_opening(orth_ctx *ctx, FILE *file, int64_t first_step)
{
    static const char version[] = "brain.Event:2";
    message m = begin_event(0);
    put_bytes(&m, 3, version, sizeof version - 1);
    ORTH_TRY(write_record(ctx, file, &m));
    message log = {.n = 0}, start = begin_event(first_step);
    put_tag(&log, 1, VARINT); /* status: START */
    put_varint(&log, 1);
    put_bytes(&start, 7, log.bytes, log.n);
    return write_record(ctx, file, &start);
}

orth_status orth_tensorboard_open(orth_ctx *ctx, FILE **out, const char *dir, int64_t first_step)
{
    char host[128] = "host", name[256];
    gethostname(host, sizeof host - 1);
    snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.%ld", (long long)time(NULL), host, (long)getpid());
    char *path = orth_path_join(ctx, dir, name);
    if (!path)
        return ORTH_ERR_NOMEM;
    FILE *file = orth_file_stream(ctx, path, "ae");
    orth_status s = file ? ORTH_OK : ctx->error.code;
    orth_mem_free(ctx, path);
    if (s == ORTH_OK)
        s = write_opening(ctx, file, first_step);
    if (s != ORTH_OK && file)
        fclose(file);
    if (s == ORTH_OK)
        *out = file;
    return s;
}

orth_status orth_tensorboard_add(orth_ctx *ctx, FILE *file, int64_t step, const orth_scalar *scalars, int num_scalars)
{
    message m = begin_event(step), summary = {.n = 0};
    for (int i = 0; i < num_scalars; i++) { /* Summary.Value: tag = 1, simple_value = 2 */
        message value = {.n = 0};
        const float v = (float)scalars[i].value;
        put_bytes(&value, 1, scalars[i].tag, strlen(scalars[i].tag));
        put_tag(&value, 2, FIXED32);
        put_raw(&value, &v, sizeof v);
        put_bytes(&summary, 1, value.bytes, value.n);
    }
    put_bytes(&m, 5, summary.bytes, summary.n);
    return write_record(ctx, file, &m);
}
