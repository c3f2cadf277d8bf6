/* import_values.c -- parts as numbers and switches, and what is wrong with a value as it was written there. */
#include "tools/import_impl.h"

#include <stdlib.h>
#include <string.h>

const char *orth_import_not_real(const char *text)
{
    char *end;
    strtod(text, &end);
    return *text && !*end && !text[strspn(text, "+-.0123456789eE")] ? NULL : "must be a number";
}

const char *orth_import_not_whole(const orth_importer *x, const char *text)
{
    const char *digits = text + (*text == '-');
    if (!*digits || digits[strspn(digits, "0123456789")])
        return "must be a whole number, written in digits";
    return orth_import_is_octal(x, text) ? "begins with 0, and YAML reads it as octal" : NULL;
}

bool orth_import_is_octal(const orth_importer *x, const char *text)
{
    return orth_tool_form(x->tool) == ORTH_FORM_YAML && text[0] == '0' && text[1] && !text[strspn(text, "0123456789")];
}

orth_status orth_import_number(orth_importer *x, orth_import_part part, double least, double fallback, double *out)
{
    const double most = 1e15;
    const orth_import_pair *p = orth_import_find(x, part);
    const double v = p ? strtod(p->value, NULL) : fallback;
    if (p && (orth_import_not_real(p->value) || v < least))
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: must be a number of at least %g", p->place, ORTH_SHOWN(p->value), least);
    if (p && v > most)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: must be at most %g", p->place, ORTH_SHOWN(p->value), most);
    *out = v;
    return ORTH_OK;
}

orth_status orth_import_whole(orth_importer *x, orth_import_part part, int64_t least, int64_t fallback, int64_t *out)
{
    const orth_import_pair *p = orth_import_find(x, part);
    const char *wrong = p ? orth_import_not_whole(x, p->value) : NULL;
    double v;
    ORTH_TRY(orth_import_number(x, part, (double)least, (double)fallback, &v));
    if (wrong)
        return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: %s", p->place, ORTH_SHOWN(p->value), wrong);
    *out = (int64_t)v;
    return ORTH_OK;
}

orth_status orth_import_count(orth_importer *x, orth_import_part part, int64_t fallback, int64_t *out)
{
    return orth_import_whole(x, part, 1, fallback, out);
}

/* Python takes most words for true: here only the words of JSON count. */
bool orth_import_is_switch(const orth_import_pair *p)
{
    static const char *const words[] = {"true", "false"};
    return orth_import_is_word(p, words, ORTH_COUNT(words));
}

static const orth_import_part switches[] = {
    ORTH_PART_bf16, ORTH_PART_fp16, ORTH_PART_offload_all, ORTH_PART_sequence_parallel, ORTH_PART_fsdp, ORTH_PART_amp_o2, ORTH_PART_split_inputs,
    ORTH_PART_host_checkpoints, ORTH_PART_embedding_counts, ORTH_PART_loss_counts, ORTH_PART_swiglu, ORTH_PART_rotary, ORTH_PART_rope_scaling,
    ORTH_PART_no_bias, ORTH_PART_bias, ORTH_PART_qkv_bias, ORTH_PART_group_query};

bool orth_import_part_is_switch(orth_import_part part)
{
    for (int i = 0; i < ORTH_COUNT(switches); i++)
        if (switches[i] == part)
            return true;
    return false;
}

orth_status orth_import_check_switches(orth_importer *x)
{
    for (int i = 0; i < ORTH_COUNT(switches); i++) {
        const orth_import_pair *p = orth_import_find(x, switches[i]);
        if (p && !orth_import_is_switch(p))
            return ORTH_FAIL(x->ctx, ORTH_ERR_ARG, "%s=%s: must be true or false", p->place, ORTH_SHOWN(p->value));
    }
    return ORTH_OK;
}

/* Says that parts are not used, where they are given: nobody wrote a default. */
void orth_import_unused_parts(orth_importer *x, const orth_import_part *parts, int num, const char *why)
{
    for (int i = 0; i < num; i++) {
        const orth_import_pair *p = orth_import_find(x, parts[i]);
        if (p && !p->is_default)
            orth_import_unused(x, p->place, why);
    }
}
