/* console.c -- see console.h. */
#include "cli/console.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/text.h"

enum { RING_BYTES = 1 << 16, LINE_MAX_BYTES = 4096 };

typedef struct {
    int fd;
    pthread_t thread;
    bool running;
    pthread_mutex_t mutex;        /* of all below */
    pthread_cond_t changed;
    char ring[RING_BYTES];
    size_t first, num;            /* bytes in it */
    int64_t dropped;              /* lines, since the last that was taken */
    bool closing;
    int error;                    /* errno of the write that failed; then nothing is written any more */
} stream;

struct orth_console {
    stream out, err;
    orth_log_sink log_before;
};

/* ---- into the ring ---- */

static void put_bytes(stream *s, const char *text, size_t n)
{
    const size_t at = (s->first + s->num) % RING_BYTES, head = ORTH_MIN(n, RING_BYTES - at);
    memcpy(s->ring + at, text, head);
    memcpy(s->ring, text + head, n - head);
    s->num += n;
}

/* Says how many lines are missing, where they are. */
static void put_dropped(stream *s)
{
    char text[96];
    if (s->dropped == 0)
        return;
    const int n = snprintf(text, sizeof text, "(%lld line%s dropped: nobody was reading)\n", (long long)s->dropped,
                           s->dropped == 1 ? "" : "s");
    put_bytes(s, text, (size_t)n);
    s->dropped = 0;
}

static void put(stream *s, bool progress, const char *text)
{
    const size_t n = strlen(text), spare = 128; /* for put_dropped */
    const size_t room = progress ? RING_BYTES / 2 : RING_BYTES - spare;
    pthread_mutex_lock(&s->mutex);
    if (s->num + n + spare > room) {
        s->dropped += strchr(text, '\n') != NULL; /* one that a terminal shows in place of the last is no loss */
    } else {
        put_dropped(s);
        put_bytes(s, text, n);
        pthread_cond_signal(&s->changed);
    }
    pthread_mutex_unlock(&s->mutex);
}

/* ---- out of it ---- */

/* All bytes, however long the reader takes. Returns errno of a failure, 0 if there was none. */
static int write_out(int fd, const char *p, size_t n)
{
    while (n > 0) {
        const ssize_t k = write(fd, p, n);
        if (k > 0) {
            p += k;
            n -= (size_t)k;
        } else if (k < 0 && errno == EAGAIN) { /* somebody made the terminal non-blocking */
            poll(&(struct pollfd){.fd = fd, .events = POLLOUT}, 1, -1);
        } else if (k < 0 && errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

/* The next bytes in one piece; 0: it is closed and empty. */
static size_t take(stream *s, char *out, size_t room)
{
    pthread_mutex_lock(&s->mutex);
    if (s->num == 0 && s->closing)
        put_dropped(s);
    while (s->num == 0 && !s->closing)
        pthread_cond_wait(&s->changed, &s->mutex);
    const size_t n = ORTH_MIN(ORTH_MIN(s->num, room), RING_BYTES - s->first);
    memcpy(out, s->ring + s->first, n);
    s->first = (s->first + n) % RING_BYTES;
    s->num -= n;
    pthread_mutex_unlock(&s->mutex);
    return n;
}

static void *write_main(void *arg)
{
    stream *s = arg;
    char part[LINE_MAX_BYTES];
    int error = 0;
    for (size_t n; (n = take(s, part, sizeof part)) > 0;) {
        if (error == 0)
            error = write_out(s->fd, part, n);
    }
    pthread_mutex_lock(&s->mutex);
    s->error = error;
    pthread_mutex_unlock(&s->mutex);
    return NULL;
}

/* ---- sinks ---- */

static void print(void *console, bool progress, const char *text)
{
    orth_console *c = console;
    put(&c->out, progress, text);
}

/* 0: not a terminal, or one that nobody looks at: mpirun gives its processes one without a size. */
static size_t columns(void *console)
{
    (void)console;
    struct winsize w = {.ws_col = 0};
    return isatty(STDOUT_FILENO) && ioctl(STDOUT_FILENO, TIOCGWINSZ, &w) == 0 ? w.ws_col : 0;
}

static void log_line(void *console, int rank, orth_log_level level, const char *component, const char *text)
{
    static const char *const names[] = {"error", "warning", "info", "debug"};
    char line[LINE_MAX_BYTES], shown[LINE_MAX_BYTES - 128];
    orth_console *c = console;
    orth_text_escape(shown, sizeof shown, text);
    if (level == ORTH_LOG_INFO)
        snprintf(line, sizeof line, "%s\n", shown);
    else
        snprintf(line, sizeof line, "orthant: %s: rank %d: %.60s: %s\n", names[level], rank, component, shown);
    put(&c->err, level > ORTH_LOG_WARN, line);
}

orth_print_sink orth_console_sink(orth_console *c)
{
    return (orth_print_sink){.write = print, .columns = columns, .user = c};
}

/* ---- life ---- */

static void stream_end(stream *s)
{
    pthread_mutex_lock(&s->mutex);
    s->closing = true;
    pthread_cond_signal(&s->changed);
    pthread_mutex_unlock(&s->mutex);
    if (s->running)
        pthread_join(s->thread, NULL);
    s->running = false;
}

static void stream_begin(stream *s, int fd)
{
    s->fd = fd;
    pthread_mutex_init(&s->mutex, NULL);
    pthread_cond_init(&s->changed, NULL);
    s->running = pthread_create(&s->thread, NULL, write_main, s) == 0;
}

orth_status orth_console_open(orth_ctx *ctx, orth_console **out)
{
    orth_console *c = ORTH_NEW(ctx, orth_console);
    if (!c)
        return ORTH_ERR_NOMEM;
    fflush(stdout);
    fflush(stderr);
    stream_begin(&c->out, STDOUT_FILENO);
    stream_begin(&c->err, STDERR_FILENO);
    if (!c->out.running || !c->err.running) {
        stream_end(&c->out);
        stream_end(&c->err);
        orth_mem_free(ctx, c);
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "the system refused the threads that print");
    }
    c->log_before = ctx->log;
    ctx->log.write = log_line;
    ctx->log.user = c;
    *out = c;
    return ORTH_OK;
}

orth_status orth_console_close(orth_ctx *ctx, orth_console *c)
{
    stream_end(&c->out);
    stream_end(&c->err);
    const int error = c->out.error;
    ctx->log = c->log_before;
    if (!ctx->error.left_behind) /* whoever is left may still have something to say */
        orth_mem_free(ctx, c);
    if (error == 0)
        return ORTH_OK;
    return ORTH_FAIL(ctx, error == ENOSPC ? ORTH_ERR_NOSPACE : ORTH_ERR_IO, "standard output: cannot write: %s", strerror(error));
}
