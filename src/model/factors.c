/* factors.c -- see factors.h. */
#include "model/factors.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/text.h"

/* ---- words ---- */

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

/* What a word says: of parameters that pattern[0, n) matches, a value. */
typedef struct {
    const char *pattern;
    int64_t n;
    float value;
} rule;

typedef rule (*read_fn)(const char *word);

static rule read_factor(const char *word)
{
    return (rule){word, factor_text(word) - 1 - word, (float)strtod(factor_text(word), NULL)};
}

static rule read_freeze(const char *word)
{
    const bool trains = word[0] == '!';
    return (rule){word + trains, (int64_t)strlen(word + trains), trains ? 0.0f : 1.0f};
}

/* ---- names ---- */

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

/* A parameter, its names, and what words say of the parts that it has in Hugging Face's form. */
typedef struct {
    orth_param p;
    char hf[ORTH_HF_MAX_PARTS][ORTH_HF_NAME];
    int32_t prefix[ORTH_HF_MAX_PARTS];
    int num_parts;
    bool is_head;                 /* it is also the head */
    bool given[ORTH_HF_MAX_PARTS];
    float value[ORTH_HF_MAX_PARTS];
} subject;

static orth_status list_subjects(orth_ctx *ctx, const orth_model_config *c, subject *s)
{
    for (int64_t i = 0; i < orth_model_num_params(c); i++) {
        ORTH_TRY(orth_model_param(ctx, c, i, &s[i].p));
        s[i].is_head = c->tied && s[i].p.weight == ORTH_WEIGHT_embed;
        for (int k = 0; k < ORTH_HF_MAX_PARTS && (s[i].prefix[k] = orth_param_hf_name(c, &s[i].p, k, s[i].hf[k])) >= 0; k++)
            s[i].num_parts++;
    }
    return ORTH_OK;
}

static bool is_about(const rule *r, const subject *s)
{
    return matches(r->pattern, r->n, s->p.name) || (s->is_head && matches(r->pattern, r->n, "head.weight"));
}

static bool is_about_part(const rule *r, const subject *s, int part)
{
    return matches(r->pattern, r->n, s->hf[part]) || matches(r->pattern, r->n, s->hf[part] + s->prefix[part]) ||
           (s->is_head && matches(r->pattern, r->n, "lm_head.weight"));
}

/* Whether the rule is about any of the subjects. by_hf: by their names in Hugging Face's form. */
static bool apply(const rule *r, subject *s, int64_t num, bool by_hf)
{
    bool any = false;
    for (int64_t i = 0; i < num; i++)
        for (int k = 0; k < s[i].num_parts; k++) {
            if (!(by_hf ? is_about_part(r, &s[i], k) : is_about(r, &s[i])))
                continue;
            any = s[i].given[k] = true;
            s[i].value[k] = r->value;
        }
    return any;
}

/* ---- all words ---- */

static orth_status fail_match(orth_ctx *ctx, const char *key, const char *word, const rule *r, const subject *s, int64_t num)
{
    const char **all = ORTH_NEW_ARRAY(ctx, const char *, num);
    char pattern[ORTH_HF_NAME];
    if (!all)
        return ORTH_ERR_NOMEM;
    for (int64_t i = 0; i < num; i++)
        all[i] = s[i].p.name;
    snprintf(pattern, sizeof pattern, "%.*s", (int)ORTH_MIN(r->n, ORTH_HF_NAME - 1), r->pattern);
    const char *near = orth_nearest(pattern, all, (int)num);
    const orth_status status = ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: '%s' matches no parameter of the model%s%s'", key, word,
                                         near ? "; did you mean '" : ", such as '", near ? near : "layers.0.attn.qkv.weight");
    orth_mem_free(ctx, all);
    return status;
}

/* All parts of a parameter have the same factor, or none. */
static orth_status check_parts(orth_ctx *ctx, const char *key, const subject *s)
{
    for (int k = 1; k < s->num_parts; k++)
        if (s->given[k] != s->given[0] || s->value[k] != s->value[0])
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: differs between %s and %s, which are parts of one parameter here, '%s'", key,
                             s->hf[0], s->hf[k], s->p.name);
    return ORTH_OK;
}

static orth_status resolve(orth_ctx *ctx, const orth_factors *f, read_fn read, subject *s, int64_t num)
{
    for (int32_t w = 0; w < f->num; w++) {
        const rule r = read(f->word[w]);
        if (!apply(&r, s, num, false) && !apply(&r, s, num, true))
            return fail_match(ctx, f->key, f->word[w], &r, s, num);
    }
    for (int64_t i = 0; i < num; i++)
        ORTH_TRY(check_parts(ctx, f->key, &s[i]));
    return ORTH_OK;
}

/* *out: the subjects, to be freed; NULL where there are no words. */
static orth_status resolve_all(orth_ctx *ctx, const orth_factors *f, read_fn read, const orth_model_config *c, subject **out)
{
    const int64_t num = orth_model_num_params(c);
    *out = NULL;
    if (f->num == 0)
        return ORTH_OK;
    subject *s = ORTH_NEW_ARRAY(ctx, subject, num);
    if (!s)
        return ORTH_ERR_NOMEM;
    orth_status status = list_subjects(ctx, c, s);
    if (status == ORTH_OK)
        status = resolve(ctx, f, read, s, num);
    if (status == ORTH_OK)
        *out = s;
    else
        orth_mem_free(ctx, s);
    return status;
}

orth_status orth_factors_resolve(orth_ctx *ctx, const orth_factors *f, const orth_model_config *c, float *factor)
{
    subject *s;
    for (int32_t i = 0; i < f->num; i++) {
        const char *why = orth_factor_word_check(f->word[i]);
        if (why)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: '%s' %s", f->key, f->word[i], why);
    }
    ORTH_TRY(resolve_all(ctx, f, read_factor, c, &s));
    for (int64_t i = 0; s && i < orth_model_num_params(c); i++)
        factor[i] = s[i].given[0] ? s[i].value[0] : factor[i];
    orth_mem_free(ctx, s);
    return ORTH_OK;
}

orth_status orth_factors_about_trained(orth_ctx *ctx, const orth_factors *f, const orth_model_config *c, const bool *frozen, bool *about)
{
    const int64_t num = orth_model_num_params(c);
    subject *s = ORTH_NEW_ARRAY(ctx, subject, num);
    orth_status status = s ? list_subjects(ctx, c, s) : ORTH_ERR_NOMEM;
    for (int32_t w = 0; status == ORTH_OK && w < f->num; w++) {
        const rule r = read_factor(f->word[w]);
        about[w] = false;
        for (int64_t i = 0; i < num; i++)
            memset(s[i].given, 0, sizeof s[i].given);
        if (!apply(&r, s, num, false))
            apply(&r, s, num, true);
        for (int64_t i = 0; i < num; i++)
            for (int k = 0; k < s[i].num_parts; k++)
                about[w] = about[w] || (s[i].given[k] && !frozen[i]);
    }
    orth_mem_free(ctx, s);
    return status;
}

orth_status orth_freeze_resolve(orth_ctx *ctx, const orth_factors *f, const orth_model_config *c, bool *frozen)
{
    const int64_t num = orth_model_num_params(c);
    bool any_trained = f->num == 0;
    subject *s;
    ORTH_TRY(resolve_all(ctx, f, read_freeze, c, &s));
    for (int64_t i = 0; i < num; i++) {
        frozen[i] = s && s[i].value[0] > 0;
        any_trained = any_trained || !frozen[i];
    }
    orth_mem_free(ctx, s);
    return any_trained ? ORTH_OK : ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: every parameter is frozen: there is nothing to train", f->key);
}
