/* fuzz_config.c -- run files: any bytes give a configuration or an error with a message, and what was
 * accepted is dumped as text that reads back as the same values. */
#include <stdlib.h>
#include <string.h>

#include "config/config.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

static void round_trip(orth_ctx *ctx, const orth_config *cfg)
{
    orth_config again;
    char *text = orth_config_yaml(ctx, cfg);
    require(orth_config_init(ctx, &again) == ORTH_OK);
    require(orth_config_parse(ctx, &again, "dump", text, strlen(text)) == ORTH_OK);
    char *second = orth_config_yaml(ctx, &again);
    require(strcmp(text, second) == 0);
    orth_mem_free(ctx, text);
    orth_mem_free(ctx, second);
    orth_config_release(ctx, &again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    orth_ctx ctx;
    orth_config cfg;
    memset(&ctx, 0, sizeof ctx); /* no pool: nothing here computes */
    require(orth_config_init(&ctx, &cfg) == ORTH_OK);
    orth_status s = orth_config_parse(&ctx, &cfg, "fuzz", (const char *)data, size);
    require((s == ORTH_OK) == (ctx.error.message[0] == '\0'));
    if (s == ORTH_OK) {
        round_trip(&ctx, &cfg);
        s = orth_config_check(&ctx, &cfg);
        require((s == ORTH_OK) == (ctx.error.message[0] == '\0'));
    }
    orth_config_release(&ctx, &cfg);
    require(ctx.heap_bytes == 0);
    return 0;
}
