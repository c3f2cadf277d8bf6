/* fuzz_config_json.c -- any bytes as config.json and as state.json: refused, or what was read is valid
 * and comes back the same after it was written. */
#include <stdint.h>
#include <string.h>

#include "ckpt/hf.h"
#include "ckpt/state.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void no_log(void *user, int rank, orth_log_level level, const char *component, const char *text)
{
    (void)user, (void)rank, (void)level, (void)component, (void)text;
}

static void config(orth_ctx *ctx, const char *text, size_t size)
{
    orth_model_config c, back;
    if (orth_hf_config_parse(ctx, &c, "config.json", text, size) != ORTH_OK)
        return;
    char *again = orth_hf_config_text(ctx, &c, ORTH_F32, NULL);
    if (!again || orth_model_config_check(ctx, &c) != ORTH_OK ||
        orth_hf_config_parse(ctx, &back, "config.json", again, strlen(again)) != ORTH_OK ||
        back.hidden != c.hidden || back.max_seq != c.max_seq || back.qk_norm != c.qk_norm)
        __builtin_trap();
    orth_mem_free(ctx, again);
}

/* The seal of a real state.json is put behind the bytes, or nothing but the seal would be tested. */
static void state(orth_ctx *ctx, const char *text, size_t size)
{
    orth_checkpoint_manifest m = {0};
    while (size > 0 && (text[size - 1] == '\n' || text[size - 1] == '}'))
        size--;
    char *sealed = orth_checkpoint_seal(ctx, text, size);
    if (sealed && orth_checkpoint_manifest_parse(ctx, &m, "state.json", sealed, size + strlen(sealed + size)) == ORTH_OK)
        orth_checkpoint_manifest_release(ctx, &m);
    orth_mem_free(ctx, sealed);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    orth_ctx ctx = {.log = {.write = no_log}};
    config(&ctx, (const char *)data, size);
    orth_ctx_clear_error(&ctx);
    state(&ctx, (const char *)data, size);
    if (ctx.heap_bytes != 0)
        __builtin_trap();
    return 0;
}
