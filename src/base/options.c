/* options.c -- the rows of options.def as a table; the nearest name to a misspelt one. */
#include "base/config.h"

#include <string.h>

#define ENUM_AT(section, key, path, default_, help) static const char *const choices_##section##_##key[] = {
#define CHOICE(section, key, name) #name,
#define END(section, key) NULL};
#include "base/options.def"

static const orth_option options[ORTH_NUM_OPTIONS] = {
#define OPT_AT(section, key, path, type, default_, min, max, unit, help) \
    {path, ORTH_TYPE_##type, default_, min, max, unit, help, NULL, offsetof(orth_config, section##_##key)},
#define ENUM_AT(section, key, path, default_, help)                                 \
    {path, ORTH_TYPE_ENUM, default_, 0, 0, "", help, choices_##section##_##key, \
     offsetof(orth_config, section##_##key)},
#include "base/options.def"
};

static const orth_option_section sections[] = {
#define SECTION(id, path, help) {path, help},
#include "base/options.def"
};

/* Keys, and starts of all keys of a section. */
static const char *const numbers[] = {
#define NUMBERS(section) #section ".",
#define NUMBERS_KEY(section, key) #section "." #key,
#include "base/options.def"
};

const orth_option *orth_option_get(orth_option_id id)
{
    return &options[id];
}

int orth_option_find(const char *path)
{
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++)
        if (strcmp(options[i].path, path) == 0)
            return i;
    return -1;
}

const char *orth_option_choice(orth_option_id id, int value)
{
    return options[id].choices[value];
}

bool orth_option_decides_numbers(orth_option_id id)
{
    const char *path = options[id].path;
    for (int i = 0; i < ORTH_COUNT(numbers); i++) {
        size_t n = strlen(numbers[i]);
        if (numbers[i][n - 1] == '.' ? strncmp(path, numbers[i], n) == 0 : strcmp(path, numbers[i]) == 0)
            return true;
    }
    return false;
}

int orth_option_num_sections(void)
{
    return ORTH_COUNT(sections);
}

const orth_option_section *orth_option_section_get(int i)
{
    return &sections[i];
}

#define NEAREST_MAX 63

/* Insertions, deletions, changes and swaps of neighbours that turn a into b. */
static int edit_distance(const char *a, const char *b)
{
    int na = (int)strlen(a), nb = (int)strlen(b);
    if (na > NEAREST_MAX || nb > NEAREST_MAX)
        return NEAREST_MAX;
    int d[NEAREST_MAX + 1][NEAREST_MAX + 1];
    for (int i = 0; i <= na; i++)
        d[i][0] = i;
    for (int j = 0; j <= nb; j++)
        d[0][j] = j;
    for (int i = 1; i <= na; i++) {
        for (int j = 1; j <= nb; j++) {
            int best = d[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
            best = ORTH_MIN(best, d[i - 1][j] + 1);
            best = ORTH_MIN(best, d[i][j - 1] + 1);
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                best = ORTH_MIN(best, d[i - 2][j - 2] + 1);
            d[i][j] = best;
        }
    }
    return d[na][nb];
}

const char *orth_nearest(const char *word, const char *const *names, int num_names)
{
    int limit = ORTH_MAX(1, (int)strlen(word) / 3), best = limit + 1;
    const char *found = NULL;
    for (int i = 0; i < num_names; i++) {
        int d = edit_distance(word, names[i]);
        if (d < best) {
            best = d;
            found = names[i];
        }
    }
    return found;
}
