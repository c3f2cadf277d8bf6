/* cases_check.c -- what a case may say. A value that cannot be is refused with the file, the case, the key and the rule; read without a word, it would
 * be predicted as something else than it says. */
#include <math.h>

#include "plan/cases_impl.h"

double case_number(const json_t *o, const char *key, double missing)
{
    const json_t *v = json_object_get(o, key);
    return json_is_number(v) ? json_number_value(v) : missing;
}

const char *case_word(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "";
}

static orth_status check_numbers(orth_ctx *ctx, const char *path, const json_t *c, const char *object)
{
    const char *key;
    json_t *v;
    json_object_foreach(json_object_get(c, object), key, v) {
        /* Without fp8 or sharding; a model without heads and the like is listed as impossible. */
        const bool zero = strcmp(key, "zero_stage") == 0 || strcmp(key, "peak_dense_fp8_TFLOPs") == 0 || strcmp(object, "model") == 0;
        const double x = json_number_value(v);
        if (json_is_number(v) && !(x <= 1e9 && (zero ? x >= 0 : x > 0)))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': %s.%s=%.9g: must be %s, and at most 1e9", path, case_word(c, "id"), object, key, x,
                             zero ? "0 or more" : "more than 0");
    }
    return ORTH_OK;
}

/* A count that is no whole number, or is text, would be read as another. */
static orth_status check_counts(orth_ctx *ctx, const char *path, const json_t *c)
{
    static const char *const counts[] = {"tp", "pp", "vpp", "dp", "cp", "zero_stage", "micro_batch"};
    const json_t *l = json_object_get(c, "layout");
    for (int i = 0; i < ORTH_COUNT(counts); i++) {
        const json_t *v = json_object_get(l, counts[i]);
        if (json_is_string(v))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': layout.%s is text: must be a number", path, case_word(c, "id"), counts[i]);
        if (json_is_number(v) && json_number_value(v) != floor(json_number_value(v)))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': layout.%s=%.9g: must be a whole number", path, case_word(c, "id"), counts[i], json_number_value(v));
    }
    if (case_number(l, "zero_stage", 0) > 3)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': layout.zero_stage=%.9g: must be 0, 1, 2 or 3", path, case_word(c, "id"), case_number(l, "zero_stage", 0));
    if (case_number(l, "vpp", 1) > 1 && case_number(l, "pp", 1) == 1)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': layout.vpp=%.9g needs layout.pp above 1", path, case_word(c, "id"), case_number(l, "vpp", 1));
    return ORTH_OK;
}

/* What contradicts itself would be predicted as something else than it says. */
orth_status case_check(orth_ctx *ctx, const char *path, const json_t *c)
{
    static const char *const objects[] = {"model", "layout", "hardware"};
    for (int i = 0; i < ORTH_COUNT(objects); i++) {
        if (!json_is_object(json_object_get(c, objects[i])))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': %s is missing: model, hardware and layout must be objects", path, case_word(c, "id"), objects[i]);
        ORTH_TRY(check_numbers(ctx, path, c, objects[i]));
    }
    ORTH_TRY(check_counts(ctx, path, c));
    const json_t *l = json_object_get(c, "layout");
    const double dp = case_number(l, "dp", 1), ranks = dp * case_number(l, "tp", 1) * case_number(l, "pp", 1) * case_number(l, "cp", 1);
    const double count = case_number(json_object_get(c, "hardware"), "count", ranks);
    const double batch = case_number(l, "global_batch_seqs", 0), each = dp * case_number(l, "micro_batch", 1);
    if (count != ranks)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': hardware.count=%.9g: must be the %.9g ranks of the layout (dp * tp * pp * cp)", path,
                         case_word(c, "id"), count, ranks);
    if (fmod(batch, each) != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: case '%s': layout.global_batch_seqs=%.9g: must be a multiple of micro_batch * dp = %.9g", path,
                         case_word(c, "id"), batch, each);
    return ORTH_OK;
}
