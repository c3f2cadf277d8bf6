/* options.c -- the rows of options.def as a table. */
#include "config/config.h"

#include <string.h>

#define ENUM_AT(section, key, path, default_, help) static const char *const choices_##section##_##key[] = {
#define CHOICE(section, key, name) #name,
#define END(section, key) NULL};
#include "config/options.def"

static const orth_option options[ORTH_NUM_OPTIONS] = {
#define OPT_AT(section, key, path, type, default_, min, max, unit, help) \
    {path, ORTH_TYPE_##type, default_, min, max, unit, help, NULL, offsetof(orth_config, section##_##key)},
#define ENUM_AT(section, key, path, default_, help)                                 \
    {path, ORTH_TYPE_ENUM, default_, 0, 0, "", help, choices_##section##_##key, \
     offsetof(orth_config, section##_##key)},
#include "config/options.def"
};

static const orth_option_section sections[] = {
#define SECTION(id, path, help) {path, help},
#include "config/options.def"
};

static const orth_accepted accepted[] = {
#define ACCEPTED(path, value, key, here, says) {path, value, key, here, says},
#include "config/aliases.def"
};

/* Keys, and starts of all keys of a section. */
static const char *const numbers[] = {
#define NUMBERS(section) #section ".",
#define NUMBERS_KEY(section, key) #section "." #key,
#include "config/options.def"
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

const orth_accepted *orth_option_accepted(const char *path, int k)
{
    static const char section[] = "memory.";
    const char *word = strncmp(path, section, sizeof section - 1) == 0 ? path + sizeof section - 1 : path;
    for (int i = 0; i < ORTH_COUNT(accepted); i++) {
        const char *dot = strrchr(accepted[i].path, '.');
        const bool same = strcmp(accepted[i].path, path) == 0 || strcmp(dot ? dot + 1 : accepted[i].path, word) == 0;
        if (same && k-- == 0)
            return &accepted[i];
    }
    return NULL;
}

static bool begins_path(const char *path, const char *longer)
{
    const size_t n = strlen(path);
    return strncmp(longer, path, n) == 0 && longer[n] == '.';
}

bool orth_option_is_section(const char *path)
{
    for (int i = 0; i < ORTH_NUM_OPTIONS; i++)
        if (begins_path(path, options[i].path))
            return true;
    for (int i = 0; i < ORTH_COUNT(accepted); i++)
        if (begins_path(path, accepted[i].path))
            return true;
    return false;
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
