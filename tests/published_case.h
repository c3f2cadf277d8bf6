/* published_case.h -- runs of other systems in tests: a step of Megatron-LM on an H100 estimated, files of cases predicted. */
#ifndef ORTH_TESTS_PUBLISHED_CASE_H
#define ORTH_TESTS_PUBLISHED_CASE_H

#include "test.h"

#include <unistd.h>

#include "plan/cases.h"
#include "plan/estimate.h"

typedef struct {
    orth_hardware hardware;
    orth_software software;
    orth_system system;
} published_place;

static inline void published_open(orth_ctx *ctx, published_place *p)
{
    CHECK_OK(ctx, orth_hardware_find(ctx, &p->hardware, "h100"));
    CHECK_OK(ctx, orth_software_load(ctx, &p->software, NULL));
    assert_true(orth_software_system(&p->software, "megatron", &p->system));
}

static inline orth_estimate published_estimate(orth_ctx *ctx, const published_place *p, const orth_job *j)
{
    orth_estimate e;
    const orth_device_shares shares = orth_software_device(&p->software, p->hardware.device_name);
    CHECK_OK(ctx, orth_estimate_step(ctx, j, &p->hardware, &p->software, &p->system, &shares, &e));
    return e;
}

/* What `plan --cases` says of a file with this text; *out on success, orth_mem_free. */
static inline orth_status published_predict(orth_ctx *ctx, const char *text, bool json, char **out)
{
    char path[] = "/tmp/orth_cases_XXXXXX";
    const int fd = mkstemp(path);
    orth_software software;
    assert_true(fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    close(fd);
    CHECK_OK(ctx, orth_software_load(ctx, &software, NULL));
    *out = NULL;
    const orth_status s = orth_cases_predict(ctx, path, &software, json, out);
    remove(path);
    return s;
}

#endif
