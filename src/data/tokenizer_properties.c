/* tokenizer_properties.c -- UTF-8 for Oniguruma, with the character sets that Hugging Face's Oniguruma has.
 *
 * An installed libonig may know another version of Unicode than the one inside `tokenizers` (Debian 12: 14 against 16),
 * and then `\p{L}` would cut other words. So the encoding that patterns are compiled with is libonig's UTF-8, but
 *   - every set of characters (`\p{}`, `[::]`, `\w`, `\d`, `\s`, `\b`) comes from unicode_properties.def;
 *     a property that is not there is refused by the pattern's compiler, as one that does not exist;
 *   - pairs of letters that Unicode got in versions 14 to 16 are known to `(?i)`.
 * All of it is constant: the functions below keep no state.
 */
#include <ctype.h>
#include <string.h>

#include "data/tokenizer_pattern.h"

/* Each set: its number of ranges, then first and last of each. Oniguruma reads this form. */
#define P(id, names, num, ...) num, __VA_ARGS__,
static const OnigCodePoint sets[] = {
#include "data/unicode_properties.def"
};
#undef P

/* Where each set begins. */
#define P(id, names, num, ...) AT_##id, LAST_##id = AT_##id + 2 * (num),
enum {
#include "data/unicode_properties.def"
};
#undef P

#define P(id, names, num, ...) {names, AT_##id},
static const struct {
    const char *names;          /* between spaces; [name]: a POSIX bracket */
    int at;
} properties[] = {
#include "data/unicode_properties.def"
};
#undef P

#define POSIX(NAME, name) [ONIGENC_CTYPE_##NAME] = {#name, AT_##name}
static const struct {
    const char *name;
    int at;
} posix[] = {
    POSIX(ALPHA, alpha), POSIX(BLANK, blank), POSIX(CNTRL, cntrl), POSIX(DIGIT, digit),   POSIX(GRAPH, graph),
    POSIX(LOWER, lower), POSIX(PRINT, print), POSIX(PUNCT, punct), POSIX(SPACE, space),   POSIX(UPPER, upper),
    POSIX(WORD, word),   POSIX(ALNUM, alnum), POSIX(ASCII, ascii), POSIX(XDIGIT, xdigit),
};

/* Our numbers of sets begin here, above all of libonig's own. POSIX sets keep libonig's. */
#define FIRST_CTYPE 0x10000
#define LONGEST_NAME 32

static const OnigCodePoint *set_of(OnigCtype ctype)
{
    if (ctype >= FIRST_CTYPE)
        return sets + (ctype - FIRST_CTYPE);
    return ctype < ORTH_COUNT(posix) && posix[ctype].name ? sets + posix[ctype].at : NULL;
}

/* libonig's rule for names: case, spaces, '-' and '_' do not count. */
static int property_name_to_ctype(struct OnigEncodingTypeST *enc, OnigUChar *p, OnigUChar *end)
{
    (void)enc;
    char name[LONGEST_NAME + 1];
    size_t n = 0;
    for (; p < end; p++) {
        if (*p == ' ' || *p == '-' || *p == '_')
            continue;
        if (*p >= 0x80 || n == LONGEST_NAME)
            return ONIGERR_INVALID_CHAR_PROPERTY_NAME;
        name[n++] = (char)tolower(*p);
    }
    name[n] = 0;
    for (int i = 0; i < ORTH_COUNT(posix); i++) {
        /* \p{Punct} is \p{P}; how \p{Word} matches depends on libonig's version. */
        if (posix[i].name && strcmp(name, posix[i].name) == 0 && i != ONIGENC_CTYPE_PUNCT)
            return i == ONIGENC_CTYPE_WORD ? ONIGERR_INVALID_CHAR_PROPERTY_NAME : i;
    }
    char key[LONGEST_NAME + 3];
    snprintf(key, sizeof key, " %s ", name);
    for (int i = 0; i < ORTH_COUNT(properties); i++) {
        if (strstr(properties[i].names, key))
            return FIRST_CTYPE + properties[i].at;
    }
    return ONIGERR_INVALID_CHAR_PROPERTY_NAME;
}

static int get_ctype_code_range(OnigCtype ctype, OnigCodePoint *out_single_byte, const OnigCodePoint *out_ranges[])
{
    const OnigCodePoint *set = set_of(ctype);
    if (!set)
        return ONIG_ENCODING_UTF8->get_ctype_code_range(ctype, out_single_byte, out_ranges);
    *out_single_byte = 0x80;
    *out_ranges = set;
    return 0;
}

static int is_code_ctype(OnigCodePoint code, OnigCtype ctype)
{
    const OnigCodePoint *set = set_of(ctype);
    if (!set || (ctype < FIRST_CTYPE && code < 256)) /* a table of Latin-1, in which ² is a word character */
        return ONIG_ENCODING_UTF8->is_code_ctype(code, ctype);
    OnigCodePoint low = 0, high = set[0];
    while (low < high) {
        const OnigCodePoint mid = (low + high) / 2;
        if (code > set[2 + 2 * mid])
            low = mid + 1;
        else
            high = mid;
    }
    return low < set[0] && code >= set[1 + 2 * low];
}

/* ---- letters in two cases, of Unicode 14 to 16 ---- */

static const struct {
    OnigCodePoint first, last, lower; /* upper-case letters in order, and the lower-case one of the first */
} cases[] = {
    {0x1C89, 0x1C89, 0x1C8A},    {0x2C2F, 0x2C2F, 0x2C5F},    {0xA7C0, 0xA7C0, 0xA7C1},    {0xA7CB, 0xA7CB, 0x0264},
    {0xA7CC, 0xA7CC, 0xA7CD},    {0xA7D0, 0xA7D0, 0xA7D1},    {0xA7D6, 0xA7D6, 0xA7D7},    {0xA7D8, 0xA7D8, 0xA7D9},
    {0xA7DA, 0xA7DA, 0xA7DB},    {0xA7DC, 0xA7DC, 0x019B},    {0x10570, 0x1057A, 0x10597}, {0x1057C, 0x1058A, 0x105A3},
    {0x1058C, 0x10592, 0x105B3}, {0x10594, 0x10595, 0x105BB}, {0x10D50, 0x10D65, 0x10D70},
};

/* The letter in the other case; 0: none of these. *out_upper says whether `code` is the upper one. */
static OnigCodePoint other_case(OnigCodePoint code, bool *out_upper)
{
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        const OnigCodePoint n = cases[i].last - cases[i].first;
        *out_upper = code >= cases[i].first && code <= cases[i].last;
        if (*out_upper)
            return cases[i].lower + (code - cases[i].first);
        if (code >= cases[i].lower && code <= cases[i].lower + n)
            return cases[i].first + (code - cases[i].lower);
    }
    return 0;
}

static int mbc_case_fold(OnigCaseFoldType flag, const OnigUChar **pp, const OnigUChar *end, OnigUChar *to)
{
    const OnigEncodingType *utf8 = ONIG_ENCODING_UTF8;
    bool upper = false;
    const OnigCodePoint lower = **pp < 0x80 ? 0 : other_case(utf8->mbc_to_code(*pp, end), &upper);
    if (!upper)
        return utf8->mbc_case_fold(flag, pp, end, to);
    *pp += utf8->mbc_enc_len(*pp);
    return utf8->code_to_mbc(lower, to);
}

static int apply_all_case_fold(OnigCaseFoldType flag, OnigApplyAllCaseFoldFunc f, void *arg)
{
    int r = ONIG_ENCODING_UTF8->apply_all_case_fold(flag, f, arg);
    for (int i = 0; i < ORTH_COUNT(cases) && r == 0; i++) {
        for (OnigCodePoint c = cases[i].first; c <= cases[i].last && r == 0; c++) {
            OnigCodePoint upper = c, lower = cases[i].lower + (c - cases[i].first);
            r = f(upper, &lower, 1, arg);
            if (r == 0)
                r = f(lower, &upper, 1, arg);
        }
    }
    return r;
}

static int get_case_fold_codes_by_str(OnigCaseFoldType flag, const OnigUChar *p, const OnigUChar *end,
                                      OnigCaseFoldCodeItem items[])
{
    const OnigEncodingType *utf8 = ONIG_ENCODING_UTF8;
    const int n = utf8->get_case_fold_codes_by_str(flag, p, end, items);
    if (n != 0 || p >= end || *p < 0x80)
        return n;
    bool upper;
    const OnigCodePoint other = other_case(utf8->mbc_to_code(p, end), &upper);
    if (other == 0)
        return 0;
    items[0].byte_len = utf8->mbc_enc_len(p);
    items[0].code_len = 1;
    items[0].code[0] = other;
    return 1;
}

void orth_pattern_encoding(OnigEncodingType *out)
{
    *out = *ONIG_ENCODING_UTF8;
    out->mbc_case_fold = mbc_case_fold;
    out->apply_all_case_fold = apply_all_case_fold;
    out->get_case_fold_codes_by_str = get_case_fold_codes_by_str;
    out->property_name_to_ctype = property_name_to_ctype;
    out->is_code_ctype = is_code_ctype;
    out->get_ctype_code_range = get_ctype_code_range;
}
