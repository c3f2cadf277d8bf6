/* fuzz_import.c -- words of a script of Megatron-LM: any bytes give a configuration or an error with a message. */
#include <stdlib.h>
#include <string.h>

#include "tools/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void require(bool ok)
{
    if (!ok)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    orth_ctx ctx;
    orth_config cfg;
    memset(&ctx, 0, sizeof ctx);
    ctx.log.level = ORTH_LOG_ERROR; /* what was used is not printed */
    require(orth_config_init(&ctx, &cfg) == ORTH_OK);
    char *words = malloc(size + 3);
    require(words != NULL);
    memcpy(words, "--", 2);
    memcpy(words + 2, data, size);
    words[size + 2] = '\0';
    const orth_status s = orth_import(&ctx, &cfg, ORTH_TOOL_megatron, words, 0);
    require((s == ORTH_OK) == (ctx.error.message[0] == '\0'));
    free(words);
    orth_config_release(&ctx, &cfg);
    require(ctx.heap_bytes == 0);
    return 0;
}
