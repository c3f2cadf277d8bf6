/* verbs.c -- see verbs.h. */
#include "cli/verbs.h"

#include <string.h>

static const orth_verb verbs[] = {
#define VERB(name, words, summary) {#name, words, summary, orth_cmd_##name},
#include "cli/verbs.def"
#undef VERB
};

static const orth_about abouts[] = {
#define ABOUT(verb, sections, text, examples) {#verb, sections, text, examples},
#include "cli/about.def"
#undef ABOUT
};

static const orth_flag flags[] = {
#define FLAG(verb, name, metavar, help) {#verb, #name, metavar, help},
#include "cli/flags.def"
#undef FLAG
};

int orth_verb_count(void)
{
    return ORTH_COUNT(verbs);
}

const orth_verb *orth_verb_get(int i)
{
    return &verbs[i];
}

const orth_verb *orth_verb_find(const char *name)
{
    for (int i = 0; i < ORTH_COUNT(verbs); i++)
        if (strcmp(verbs[i].name, name) == 0)
            return &verbs[i];
    return NULL;
}

const orth_about *orth_about_find(const char *verb)
{
    for (int i = 0; i < ORTH_COUNT(abouts); i++)
        if (strcmp(abouts[i].verb, verb) == 0)
            return &abouts[i];
    return NULL;
}

int orth_flag_count(void)
{
    return ORTH_COUNT(flags);
}

const orth_flag *orth_flag_get(int i)
{
    return &flags[i];
}

const orth_flag *orth_flag_find(const char *verb, const char *name)
{
    for (int i = 0; i < ORTH_COUNT(flags); i++)
        if (strcmp(flags[i].verb, verb) == 0 && strcmp(flags[i].name, name) == 0)
            return &flags[i];
    return NULL;
}

bool orth_about_reads(const orth_about *a, const char *section)
{
    const size_t n = strlen(section);
    for (const char *at = a->sections; (at = strstr(at, section)) != NULL; at += n)
        if ((at == a->sections || at[-1] == ' ') && (at[n] == ' ' || at[n] == '\0'))
            return true;
    return false;
}
