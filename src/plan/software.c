/* software.c -- see software.h. */
#include "plan/software.h"

#include <stddef.h>
#include <string.h>

#include "base/files.h"

static const orth_described_row rows[] = {
#define SW(sec, key, def, lo, hi, help) \
    {.path = #sec "." #key, .section = #sec, .default_value = def, .min = lo, .max = hi, .unit = "", \
     .offset = offsetof(orth_software, sec##_##key)},
#define OF(sec, key, def, lo, hi) \
    {.path = #sec "." #key, .section = #sec, .default_value = def, .min = lo, .max = hi, .unit = "", \
     .offset = offsetof(orth_software, sec.key)},
#define KEY(key, lo, hi, megatron_, fsdp_, eager_, torch_, compiled_, deepspeed_, nanotron_, llmc_, help) \
    OF(megatron, key, megatron_, lo, hi) OF(fsdp, key, fsdp_, lo, hi) OF(eager, key, eager_, lo, hi) OF(torch, key, torch_, lo, hi) \
    OF(compiled, key, compiled_, lo, hi) OF(deepspeed, key, deepspeed_, lo, hi) OF(nanotron, key, nanotron_, lo, hi) OF(llmc, key, llmc_, lo, hi)
#include "plan/software.def"
#undef KEY
#undef OF
#undef SW
};
static const orth_described_section sections[] = {
    {"ampere", false}, {"hopper", false}, {"blackwell", false}, {"other", false}, {"attention", false}, {"errors", false},
#define SYSTEM(name) {#name, false},
#include "plan/software.def"
#undef SYSTEM
};
static const orth_described software = {"software", "megatron: {rows: 1.5}", rows, ORTH_COUNT(rows), sections, ORTH_COUNT(sections)};

orth_status orth_software_load(orth_ctx *ctx, orth_software *out, const char *path)
{
    orth_described_places places;
    char *text = NULL;
    size_t bytes;
    if (!path) {
        const char *own = orth_software_text();
        return orth_described_parse(ctx, &software, out, &places, "configs/software.yaml", own, strlen(own));
    }
    ORTH_TRY(orth_file_read_named(ctx, path, &text, &bytes));
    const orth_status s = orth_described_parse(ctx, &software, out, &places, path, text, bytes);
    orth_mem_free(ctx, text);
    return s;
}

bool orth_software_system(const orth_software *s, const char *name, orth_system *out)
{
#define SYSTEM(x) \
    if (strcmp(name, #x) == 0) { \
        *out = s->x; \
        return true; \
    }
#include "plan/software.def"
#undef SYSTEM
    return false;
}

orth_device_shares orth_software_device(const orth_software *s, const char *gpu)
{
    static const char *const ampere[] = {"A100", "A800"}, *const hopper[] = {"H100", "H800", "H200", "GH200"},
                      *const blackwell[] = {"GB200", "GB300", "B200", "B300"};
    for (int i = 0; i < ORTH_COUNT(ampere); i++)
        if (strstr(gpu, ampere[i]))
            return (orth_device_shares){s->ampere_gemm, s->ampere_fp8, s->ampere_attention};
    for (int i = 0; i < ORTH_COUNT(hopper); i++)
        if (strstr(gpu, hopper[i]))
            return (orth_device_shares){s->hopper_gemm, s->hopper_fp8, s->hopper_attention};
    for (int i = 0; i < ORTH_COUNT(blackwell); i++)
        if (strstr(gpu, blackwell[i]))
            return (orth_device_shares){s->blackwell_gemm, s->blackwell_fp8, s->blackwell_attention};
    return (orth_device_shares){s->other_gemm, s->other_fp8, s->other_attention};
}

/* ---- errors ---- */

static bool load_errors(orth_ctx *ctx, orth_text *out, orth_software *s)
{
    if (orth_software_load(ctx, s, NULL) != ORTH_OK)
        out->failed = true;
    return !out->failed && s->errors_runs > 0;
}

void orth_software_add_error(orth_ctx *ctx, orth_text *out)
{
    orth_software s;
    if (load_errors(ctx, out, &s))
        orth_text_addf(ctx, out, "error          of estimates: no run of Orthant on devices has been measured; of %.0f usual published runs of other systems, "
                       "half were predicted within %.1f %%, nine of ten within %.1f %%\n", s.errors_runs, s.errors_median, s.errors_p90);
}

void orth_software_error_json(orth_json_out *j, const char *key)
{
    orth_software s;
    if (load_errors(j->ctx, j->text, &s))
        orth_json_print(j, key, "{\"published_runs\": %.0f, \"median_percent\": %.3g, \"p90_percent\": %.3g}", s.errors_runs, s.errors_median, s.errors_p90);
}
