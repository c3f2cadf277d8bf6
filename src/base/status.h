/* status.h -- what every fallible function of Orthant returns.
 *
 * The place, the value and the rule of an error are recorded once, in the ctx of the rank that
 * decided that it is an error (ORTH_FAIL); callers pass the code on (ORTH_TRY). The first error
 * wins: a later ORTH_FAIL during cleanup leaves the record as it is. Only cli/ prints or exits.
 */
#ifndef ORTH_BASE_STATUS_H
#define ORTH_BASE_STATUS_H

typedef enum {
    ORTH_OK = 0,
    ORTH_ERR_ARG,      /* usage or configuration         exit 2 */
    ORTH_ERR_NOMEM,    /* does not fit memory            exit 3 */
    ORTH_ERR_NOSPACE,  /* does not fit the disk          exit 3 */
    ORTH_ERR_COMM,     /* a rank or the network failed   exit 4 */
    ORTH_ERR_DATA,     /* damaged or foreign data        exit 5 */
    ORTH_ERR_IO,       /* a file could not be read or written; exit 5 */
    ORTH_ERR_NUMERIC,  /* non-finite loss under `stop`, or runs that differ (verify): exit 6 */
    ORTH_ERR_SIGNAL,   /* ended by a signal, after a committed checkpoint or with nothing kept; exit 130, 143 */
    ORTH_ERR_INTERNAL  /* an invariant of our own does not hold; exit 70 */
} orth_status;

/* Process exit code of a status, as listed above (ORTH_ERR_SIGNAL: the caller knows which). */
int orth_status_exit_code(orth_status s);
const char *orth_status_name(orth_status s);

struct orth_ctx;

/* Records (code, file, line, message) in ctx->error unless one is there already; returns code. */
orth_status orth_fail(struct orth_ctx *ctx, orth_status code, const char *file, int line,
                      const char *fmt, ...) __attribute__((format(printf, 5, 6)));

#define ORTH_FAIL(ctx, code, ...) orth_fail((ctx), (code), __FILE__, __LINE__, __VA_ARGS__)

#define ORTH_TRY(call)                          \
    do {                                        \
        orth_status orth_try_ = (call);         \
        if (orth_try_ != ORTH_OK)               \
            return orth_try_;                   \
    } while (0)

/* For functions with something to release: `status` is declared, label `done` exists. */
#define ORTH_TRY_GOTO(call)                     \
    do {                                        \
        status = (call);                        \
        if (status != ORTH_OK)                  \
            goto done;                          \
    } while (0)

#endif
