/* factors.c -- see factors.h. */
#include "model/factors.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Where the factor of a word begins: behind its last '='. NULL: there is none. */
static const char *factor_text(const char *word)
{
    const char *equals = strrchr(word, '=');
    return equals ? equals + 1 : NULL;
}

const char *orth_factor_word_check(const char *word)
{
    const char *text = factor_text(word);
    if (!text || text - word < 2)
        return "is not PATTERN=FACTOR";
    char *end;
    const double x = strtod(text, &end);
    if (end == text || *end != '\0')
        return "does not end with a number";
    return x >= 0 && x <= ORTH_FACTOR_MAX ? NULL : "has a factor that is not between 0 and 1000";
}

/* Whether pattern[0, n) matches the whole name. After a mismatch the last `*` takes one character more. */
static bool matches(const char *pattern, int64_t n, const char *name)
{
    int64_t p = 0, star = -1;
    const char *from = name;
    while (*name) {
        if (p < n && pattern[p] == '*') {
            star = p++;
            from = name;
        } else if (p < n && (pattern[p] == '?' || pattern[p] == *name)) {
            p++;
            name++;
        } else if (star >= 0) {
            p = star + 1;
            name = ++from;
        } else {
            return false;
        }
    }
    while (p < n && pattern[p] == '*')
        p++;
    return p == n;
}

static bool word_matches(const char *word, const char *name)
{
    return matches(word, factor_text(word) - 1 - word, name);
}

float orth_factor_of(const orth_factors *f, const char *name, float otherwise)
{
    for (int32_t i = f->num - 1; i >= 0; i--)
        if (word_matches(f->word[i], name))
            return (float)strtod(factor_text(f->word[i]), NULL);
    return otherwise;
}

orth_status orth_factors_check(orth_ctx *ctx, const orth_factors *f, const orth_model_config *c)
{
    const int64_t n = orth_model_num_params(c);
    for (int32_t i = 0; i < f->num; i++) {
        const char *why = orth_factor_word_check(f->word[i]);
        if (why)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: '%s' %s", f->key, f->word[i], why);
        bool found = false;
        for (int64_t k = 0; k < n && !found; k++) {
            orth_param p;
            ORTH_TRY(orth_model_param(ctx, c, k, &p));
            found = word_matches(f->word[i], p.name);
        }
        if (!found)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: '%s' matches no parameter of the model, such as 'layers.0.attn.qkv.weight'",
                             f->key, f->word[i]);
    }
    return ORTH_OK;
}
