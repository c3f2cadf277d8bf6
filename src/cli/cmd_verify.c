/* cmd_verify.c -- `orthant verify A.yaml B.yaml`: two layouts, bit for bit. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "base/files.h"
#include "cli/numbers.h"
#include "tools/verify.h"

typedef struct {
    const char *path[2];
    orth_config config[2];
    int64_t steps;
    char *scratch;
    orth_verify verify;
} two_runs;

static orth_status read_files(orth_ctx *ctx, two_runs *t, const orth_cmd *cmd)
{
    if (!cmd->run_file || cmd->num_words != 1)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "verify: give two run files: orthant verify A.yaml B.yaml");
    t->path[0] = cmd->run_file;
    t->path[1] = cmd->words[0];
    for (int i = 0; i < 2; i++)
        ORTH_TRY(orth_cmd_load(ctx, cmd, &t->config[i], t->path[i]));
    ORTH_TRY(orth_verify_check_same(ctx, &t->config[0], &t->config[1]));
    int64_t most = ORTH_MIN(t->config[0].train_steps, t->config[1].train_steps);
    t->steps = ORTH_MIN(3, most);
    if (most < 1)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "verify: train.steps=0 leaves nothing to compare");
    return orth_cmd_flag_int(ctx, cmd, "steps", 1, most, &t->steps);
}

static orth_status make_scratch(orth_ctx *ctx, two_runs *t, const orth_cmd *cmd)
{
    const char *folder = orth_cmd_flag(cmd, "scratch");
    t->scratch = orth_mem_printf(ctx, "%s/orthant-verify-XXXXXX", folder ? folder : "/tmp");
    if (!t->scratch)
        return ORTH_ERR_NOMEM;
    if (mkdtemp(t->scratch))
        return ORTH_OK;
    orth_status s = ORTH_FAIL(ctx, ORTH_ERR_IO, "%s: cannot create a temporary folder", t->scratch);
    orth_mem_free(ctx, t->scratch);
    t->scratch = NULL;
    return s;
}

static orth_status run_both(orth_ctx *ctx, two_runs *t)
{
    orth_status s = orth_verify_open(ctx, &t->verify, t->scratch, t->steps);
    for (int i = 0; i < 2 && s == ORTH_OK; i++) {
        s = orth_cmd_use_machine(ctx, &t->config[i]);
        if (s == ORTH_OK)
            s = orth_verify_run(ctx, &t->verify, &t->config[i]);
    }
    orth_verify_close(ctx, &t->verify);
    return s;
}

static orth_status report(orth_ctx *ctx, const two_runs *t)
{
    const orth_verify *v = &t->verify;
    char *changes = orth_verify_changes(ctx, &t->config[0], &t->config[1]);
    if (!changes)
        return ORTH_ERR_NOMEM;
    orth_status s = ORTH_OK;
    if (v->differ)
        s = ORTH_FAIL(ctx, ORTH_ERR_NUMERIC, "%s and %s differ first at %s; keys that differ: %s",
                      t->path[0], t->path[1], v->text, *changes ? changes : "none");
    else
        printf("%s and %s are equal: loss, gradient norm and all gradients of %" PRId64 " step%s and all "
               "weights after them, %" PRId64 " tensors of %" PRId64 " elements; keys that differ: %s\n",
               t->path[0], t->path[1], t->steps, t->steps == 1 ? "" : "s", v->num_tensors, v->num_elems,
               *changes ? changes : "none");
    orth_mem_free(ctx, changes);
    return s;
}

orth_status orth_cmd_verify(orth_ctx *ctx, const orth_cmd *cmd)
{
    two_runs t = {.steps = 0};
    orth_status s = read_files(ctx, &t, cmd);
    if (s == ORTH_OK)
        s = make_scratch(ctx, &t, cmd);
    if (s == ORTH_OK)
        s = run_both(ctx, &t);
    if (s == ORTH_OK)
        s = report(ctx, &t);
    if (t.scratch) {
        orth_status removed = orth_path_remove(ctx, t.scratch);
        s = s == ORTH_OK ? removed : s;
    }
    orth_mem_free(ctx, t.scratch);
    for (int i = 0; i < 2; i++)
        orth_config_release(ctx, &t.config[i]);
    return s;
}
