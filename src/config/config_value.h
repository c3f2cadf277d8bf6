/* config_value.h -- one value of a configuration, for the files that make up config.h. */
#ifndef ORTH_CONFIG_VALUE_H
#define ORTH_CONFIG_VALUE_H

#include "base/yaml.h"
#include "config/config.h"

/* Checks `value` by the row and stores it. `place` starts the messages; the config keeps a copy. */
orth_status orth_config_put(orth_ctx *ctx, orth_config *cfg, orth_option_id id, const char *place,
                            const orth_written *value);
/* What a key that is accepted but is no option stands for. */
orth_status orth_config_put_accepted(orth_ctx *ctx, orth_config *cfg, const char *place, const char *path, const char *value);

#endif
