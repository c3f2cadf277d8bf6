/* config_yaml.c -- run files: what base/yaml.c reads becomes calls of orth_config_put. */
#include <string.h>

#include "base/yaml.h"
#include "config/config_value.h"

static orth_yaml_kind kind(void *user, const char *path)
{
    (void)user;
    if (orth_option_find(path) >= 0)
        return ORTH_YAML_VALUE;
    if (orth_option_accepted(path, 0))
        return ORTH_YAML_SCALAR;
    return orth_option_is_section(path) ? ORTH_YAML_SECTION : ORTH_YAML_UNKNOWN;
}

/* Another key of the file stands for this one, too. */
static orth_status check_once(orth_ctx *ctx, const orth_config *cfg, int id, const char *place)
{
    const char *before = cfg->place[id], *end = strchr(place, ':');
    if (!before || !end || strncmp(before, place, (size_t)(end - place) + 1) != 0)
        return ORTH_OK;
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s is set at %s, too, by another name: give it once", place, orth_option_get((orth_option_id)id)->path, before);
}

static orth_status put(orth_ctx *ctx, void *user, const char *path, const char *place, const orth_written *value)
{
    const int id = orth_option_find(path);
    const orth_accepted *of = id < 0 ? orth_option_accepted(path, 0) : NULL;
    const int stands_for = of && of->key[0] ? orth_option_find(of->key) : id;
    if (stands_for >= 0)
        ORTH_TRY(check_once(ctx, user, stands_for, place));
    return id >= 0 ? orth_config_put(ctx, user, (orth_option_id)id, place, value)
                   : orth_config_put_accepted(ctx, user, place, path, value->items[0]);
}

static orth_status unknown(orth_ctx *ctx, void *user, const char *place, const char *path)
{
    (void)user;
    return orth_config_fail_unknown(ctx, place, path);
}

static const orth_yaml_schema run_file = {"a run file", "train: {steps: 100}", kind, put, unknown};

orth_status orth_config_parse(orth_ctx *ctx, orth_config *cfg, const char *name, const char *text, size_t num_bytes)
{
    return orth_yaml_parse(ctx, &run_file, cfg, name, text, num_bytes);
}

orth_status orth_config_load(orth_ctx *ctx, orth_config *cfg, const char *path)
{
    return orth_yaml_load(ctx, &run_file, cfg, path);
}
