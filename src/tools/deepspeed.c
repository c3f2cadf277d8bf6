/* deepspeed.c -- see deepspeed.h. Source: the configuration reference of DeepSpeed. */
#include "tools/deepspeed.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/text.h"
#include "ckpt/json.h"

#define MAX_BYTES ((size_t)1 << 20)
#define GRADIENT_BYTES 4.0     /* of an element in a bucket */

typedef enum { AS_IT_IS, MB_OF_ELEMS, OPTIMIZER } form;

/* key NULL: `why` it is not used. A path that ends in ".*" stands for all below. */
static const struct {
    const char *path, *key;
    form how;
    const char *why;
} rows[] = {
    {"train_micro_batch_size_per_gpu", "train.micro_batch", AS_IT_IS, NULL},
    {"train_batch_size", "train.global_batch", AS_IT_IS, NULL},
    {"gradient_clipping", "train.clip_norm", AS_IT_IS, NULL},
    {"zero_optimization.stage", "parallel.zero", AS_IT_IS, NULL},
    {"zero_optimization.overlap_comm", "comm.overlap", AS_IT_IS, NULL},
    {"zero_optimization.reduce_bucket_size", "comm.bucket_mb", MB_OF_ELEMS, NULL},
    {"zero_optimization.allgather_bucket_size", NULL, AS_IT_IS, "gathers have the size of the buckets of gradients, comm.bucket_mb"},
    {"zero_optimization.stage3_param_persistence_threshold", "parallel.keep_whole", AS_IT_IS, NULL},
    {"zero_optimization.stage3_prefetch_bucket_size", NULL, AS_IT_IS, "prefetch counts blocks here, comm.prefetch"},
    {"zero_optimization.reduce_scatter", NULL, AS_IT_IS, "gradients of shards are always reduced and scattered"},
    {"zero_optimization.contiguous_gradients", NULL, AS_IT_IS, "memory is placed before the run"},
    {"zero_optimization.offload_optimizer.*", NULL, AS_IT_IS, "there is no offload in this version: the plan keeps the state on the device"},
    {"zero_optimization.offload_param.*", NULL, AS_IT_IS, "there is no offload in this version: the plan keeps parameters on the device"},
    {"zero_optimization.*", NULL, AS_IT_IS, "there is no such setting"},
    {"gradient_accumulation_steps", NULL, AS_IT_IS, "it follows from train.global_batch, train.micro_batch and parallel.dp"},
    {"bf16.enabled", NULL, AS_IT_IS, NULL},
    {"fp16.enabled", NULL, AS_IT_IS, NULL},
    {"fp16.*", NULL, AS_IT_IS, "loss scaling is given by precision.loss_scale and the keys beside it"},
    {"optimizer.type", "optimizer.name", OPTIMIZER, NULL},
    {"optimizer.params.lr", "optimizer.lr", AS_IT_IS, NULL},
    {"optimizer.params.eps", "optimizer.eps", AS_IT_IS, NULL},
    {"optimizer.params.weight_decay", "optimizer.weight_decay", AS_IT_IS, NULL},
    {"optimizer.params.betas", "optimizer.betas", AS_IT_IS, NULL},
    {"scheduler.*", NULL, AS_IT_IS, "give schedule.name and the keys beside it"},
    {"activation_checkpointing.*", NULL, AS_IT_IS, "it says how, and the model says what: give memory.recompute"},
};

typedef struct {
    orth_ctx *ctx;
    orth_config *cfg;
    const char *path;      /* of the file */
    json_t *root;
} import;

static int find_row(const char *path)
{
    for (int i = 0; i < ORTH_COUNT(rows); i++) {
        const size_t n = strlen(rows[i].path);
        const bool all = n > 2 && strcmp(rows[i].path + n - 2, ".*") == 0;
        if (all ? strncmp(rows[i].path, path, n - 1) == 0 : strcmp(rows[i].path, path) == 0)
            return i;
    }
    return -1;
}

static orth_status unused(const import *x, const char *path, const char *why)
{
    orth_log(x->ctx, ORTH_LOG_INFO, "import", "%s: %s is not used: %s", x->path, ORTH_SHOWN(path), why);
    return ORTH_OK;
}

static orth_status set(const import *x, const char *path, const char *key, const char *value)
{
    ORTH_TRY(orth_config_set(x->ctx, x->cfg, x->path, key, value));
    orth_log(x->ctx, ORTH_LOG_INFO, "import", "%s: %s is %s=%s", x->path, ORTH_SHOWN(path), key, ORTH_SHOWN(value));
    return ORTH_OK;
}

static orth_status set_optimizer(const import *x, const char *path, const char *type)
{
    static const struct {
        const char *there, *here;
    } names[] = {{"Adam", "adamw"}, {"AdamW", "adamw"}, {"SGD", "sgd"}}; /* its Adam decays apart from the gradient (adam_w_mode) */
    for (int i = 0; i < ORTH_COUNT(names); i++)
        if (strcmp(names[i].there, type) == 0)
            return set(x, path, "optimizer.name", names[i].here);
    return ORTH_FAIL(x->ctx, ORTH_ERR_DATA, "%s: %s=%s: there are Adam, AdamW and SGD", x->path, path, ORTH_SHOWN(type));
}

static orth_status take(const import *x, const char *path, const json_t *value, int row)
{
    const char *word = json_string_value(value);
    char text[32];
    if (word && strcmp(word, "auto") == 0)
        return unused(x, path, "it is auto: who calls DeepSpeed decides");
    if (strcmp(rows[row].key, "parallel.keep_whole") == 0 && json_integer_value(json_object_get(json_object_get(x->root, "zero_optimization"), "stage")) != 3)
        return unused(x, path, "only ZeRO 3 gathers parameters");
    if (rows[row].how == OPTIMIZER && word)
        return set_optimizer(x, path, word);
    if (rows[row].how == MB_OF_ELEMS && json_is_number(value)) {
        snprintf(text, sizeof text, "%.0f", ceil(GRADIENT_BYTES * json_number_value(value) / 0x1p20));
        return set(x, path, rows[row].key, text);
    }
    char *plain = word ? orth_mem_printf(x->ctx, "%s", word) : orth_json_text(x->ctx, value, JSON_ENCODE_ANY | JSON_REAL_PRECISION(15));
    const orth_status s = plain ? set(x, path, rows[row].key, plain) : ORTH_ERR_NOMEM;
    orth_mem_free(x->ctx, plain);
    return s;
}

static orth_status visit(const import *x, const char *prefix, json_t *object)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value) {
        char path[256];
        snprintf(path, sizeof path, "%s%s%s", prefix, *prefix ? "." : "", key);
        if (json_is_object(value)) {
            ORTH_TRY(visit(x, path, value));
            continue;
        }
        const int row = find_row(path);
        if (row < 0)
            ORTH_TRY(unused(x, path, "it has no counterpart that changes memory or time"));
        else if (rows[row].key)
            ORTH_TRY(take(x, path, value, row));
        else if (rows[row].why)
            ORTH_TRY(unused(x, path, rows[row].why));
    }
    return ORTH_OK;
}

static bool is_enabled(const import *x, const char *section)
{
    return json_is_true(json_object_get(json_object_get(x->root, section), "enabled"));
}

static orth_status set_precision(const import *x)
{
    const bool bf16 = is_enabled(x, "bf16"), fp16 = is_enabled(x, "fp16");
    if (bf16 && fp16)
        return ORTH_FAIL(x->ctx, ORTH_ERR_DATA, "%s: bf16.enabled and fp16.enabled are both true", x->path);
    if (bf16 || fp16)
        return set(x, bf16 ? "bf16.enabled" : "fp16.enabled", "precision.compute", bf16 ? "bf16" : "fp16");
    return ORTH_OK;
}

/* train_batch_size = train_micro_batch_size_per_gpu * gradient_accumulation_steps * data-parallel ranks. */
static orth_status set_ranks(const import *x)
{
    const int64_t all = json_integer_value(json_object_get(x->root, "train_batch_size"));
    const int64_t micro = json_integer_value(json_object_get(x->root, "train_micro_batch_size_per_gpu"));
    const int64_t steps = json_integer_value(json_object_get(x->root, "gradient_accumulation_steps"));
    char text[32];
    if (all < 1 || micro < 1 || steps < 1)
        return ORTH_OK;
    if (steps > all || micro > all / steps || all % (micro * steps) != 0)
        return ORTH_FAIL(x->ctx, ORTH_ERR_DATA, "%s: train_batch_size=%" PRId64 " is no multiple of train_micro_batch_size_per_gpu=%" PRId64
                         " x gradient_accumulation_steps=%" PRId64, x->path, all, micro, steps);
    snprintf(text, sizeof text, "%" PRId64, all / (micro * steps));
    return set(x, "train_batch_size / micro-batch / accumulation", "parallel.dp", text);
}

static orth_status import_all(const import *x)
{
    ORTH_TRY(visit(x, "", x->root));
    ORTH_TRY(set_precision(x));
    return set_ranks(x);
}

orth_status orth_deepspeed_set(orth_ctx *ctx, orth_config *cfg, const char *path)
{
    import x = {.ctx = ctx, .cfg = cfg, .path = path};
    ORTH_TRY(orth_json_read(ctx, &x.root, path, MAX_BYTES));
    const orth_status s = import_all(&x);
    json_decref(x.root);
    return s;
}
