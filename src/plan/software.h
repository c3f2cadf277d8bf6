/* software.h -- how other training systems use a device: few constants, described by configs/software.yaml (software.def). */
#ifndef ORTH_PLAN_SOFTWARE_H
#define ORTH_PLAN_SOFTWARE_H

#include "base/json_out.h"
#include "plan/described.h"

/* Of a system: one field per KEY. */
typedef struct {
#define KEY(key, ...) double key;
#include "plan/software.def"
#undef KEY
} orth_system;

/* One field per SW row, <section>_<key>, and one per system. */
typedef struct {
#define SW(section, key, default_, min, max, help) double section##_##key;
#define SYSTEM(name) orth_system name;
#include "plan/software.def"
#undef SYSTEM
#undef SW
} orth_software;

/* Of a kind of device. */
typedef struct {
    double gemm, fp8, attention;
} orth_device_shares;

/* configs/software.yaml, which the program holds. */
const char *orth_software_text(void);

/* path NULL: the description that the program holds. ORTH_ERR_ARG with the place. */
orth_status orth_software_load(orth_ctx *ctx, orth_software *out, const char *path);

/* How far predicted steps were off, of published runs that nothing was fitted to: a line for people, which stands beside estimates, and an
 * object of JSON. */
void orth_software_add_error(orth_ctx *ctx, orth_text *out);
void orth_software_error_json(orth_json_out *j, const char *key);

/* "megatron", "fsdp", ...; false: there is no such system. */
bool orth_software_system(const orth_software *s, const char *name, orth_system *out);
/* By the name of a device, such as "A100-SXM4-80GB". */
orth_device_shares orth_software_device(const orth_software *s, const char *gpu);

#endif
