/* state.c -- see state.h. */
#include "ckpt/state.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "base/files.h"
#include "base/text.h"
#include "ckpt/json.h"

/* What follows the hashed text, which jansson printed: fixed in form and length, so that no parser is needed to find it. */
#define SEAL_FORMAT ",\n  \"checksum\": \"%016" PRIx64 "\"\n}\n"
#define SEAL_BYTES (sizeof ",\n  \"checksum\": \"0123456789abcdef\"\n}\n" - 1)

/* INT(name): members of the state that are plain integers. */
#define STATE_INTS(INT) \
    INT(step) INT(next_sequence) INT(tokens) INT(skipped) INT(seed) INT(loss_scale_streak)

static json_t *hex64(uint64_t v)
{
    char text[17];
    snprintf(text, sizeof text, "%016" PRIx64, v);
    return json_string(text);
}

static json_t *files_json(const orth_checkpoint_manifest *m)
{
    json_t *files = json_object();
    for (int i = 0; i < m->num_files; i++) {
        json_t *entry = json_object();
        orth_json_add(&entry, "bytes", json_integer((json_int_t)m->files[i].num_bytes));
        orth_json_add(&entry, "xxh64", hex64(m->files[i].hash));
        orth_json_add(&files, m->files[i].name, entry);
    }
    return files;
}

/* eos_token is what the first readers of this form ask for. */
static void put_special(json_t **root, const orth_special_tokens *s)
{
    json_t *eos = json_array();
    for (int i = 0; i < s->num_eos; i++)
        orth_json_append(&eos, json_integer(s->eos[i]));
    orth_json_add(root, "eos_token", json_integer(orth_special_tokens_eos(s)));
    orth_json_add(root, "eos_tokens", eos);
    orth_json_add(root, "bos_token", json_integer(s->bos));
    orth_json_add(root, "pad_token", json_integer(s->pad));
}

char *orth_checkpoint_seal(orth_ctx *ctx, const char *body, size_t num_bytes)
{
    char *text = orth_mem_alloc(ctx, num_bytes + SEAL_BYTES + 1);
    if (!text)
        return NULL;
    memcpy(text, body, num_bytes);
    snprintf(text + num_bytes, SEAL_BYTES + 1, SEAL_FORMAT, (uint64_t)XXH64(body, num_bytes, 0));
    return text;
}

/* Without the checksum; NULL when out of memory. */
static json_t *manifest_json(const orth_checkpoint_manifest *m)
{
    char scale[40];
    snprintf(scale, sizeof scale, "%a", m->state.loss_scale);
    json_t *root = json_object();
    orth_json_add(&root, "format", json_string("orthant-checkpoint"));
    orth_json_add(&root, "version", json_integer(ORTH_CHECKPOINT_VERSION));
#define INT(name) orth_json_add(&root, #name, json_integer((json_int_t)m->state.name));
    STATE_INTS(INT)
#undef INT
    put_special(&root, &m->state.special);
    orth_json_add(&root, "loss_scale", json_string(scale));
    orth_json_add(&root, "tokenizer_fingerprint", hex64(m->state.tokenizer_fingerprint));
    orth_json_add(&root, "data_fingerprint", hex64(m->state.data_fingerprint));
    orth_json_add(&root, "files", files_json(m));
    orth_json_add(&root, "run_config", json_string(m->run_config ? m->run_config : ""));
    return root;
}

char *orth_checkpoint_manifest_text(orth_ctx *ctx, const orth_checkpoint_manifest *m)
{
    if (m->run_config && !orth_utf8_valid(m->run_config)) {
        ORTH_FAIL(ctx, ORTH_ERR_ARG, "checkpoint: the run configuration is not valid UTF-8");
        return NULL;
    }
    json_t *root = manifest_json(m);
    char *body = orth_json_text(ctx, root, JSON_INDENT(2));
    json_decref(root);
    if (!body)
        return NULL;
    body[strlen(body) - 2] = '\0'; /* "\n}" comes after the seal */
    char *text = orth_checkpoint_seal(ctx, body, strlen(body));
    orth_mem_free(ctx, body);
    return text;
}

/* ---- reading ---- */

static orth_status check_seal(orth_ctx *ctx, const char *path, const char *text, size_t n)
{
    char want[SEAL_BYTES + 1];
    if (n <= SEAL_BYTES)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: is cut short: %zu bytes", path, n);
    snprintf(want, sizeof want, SEAL_FORMAT, (uint64_t)XXH64(text, n - SEAL_BYTES, 0));
    if (memcmp(text + n - SEAL_BYTES, want, SEAL_BYTES) != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: its text does not match the checksum at its end", path);
    return ORTH_OK;
}

static orth_status get_hex64(orth_ctx *ctx, const json_t *object, const char *path, const char *key,
                             uint64_t *out)
{
    const char *text = NULL;
    ORTH_TRY(orth_json_require(ctx, object, path, key));
    ORTH_TRY(orth_json_get_string(ctx, object, path, key, &text));
    if (strlen(text) != 16 || strspn(text, "0123456789abcdef") != 16)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: %s=\"%.40s\" is not 16 hexadecimal digits", path, key,
                         text);
    *out = strtoull(text, NULL, 16);
    return ORTH_OK;
}

static orth_status read_token(orth_ctx *ctx, const json_t *root, const char *path, const char *key, int32_t *out)
{
    int64_t id = -1;
    ORTH_TRY(orth_json_get_int(ctx, root, path, key, &id));
    if (id < -1 || id > INT32_MAX)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: %s=%" PRId64 " is no token", path, key, id);
    *out = (int32_t)id;
    return ORTH_OK;
}

/* The first checkpoints have eos_token alone. */
static orth_status read_special(orth_ctx *ctx, orth_special_tokens *out, const char *path, const json_t *root)
{
    orth_special_tokens s = ORTH_NO_SPECIAL_TOKENS;
    int32_t first = -1;
    ORTH_TRY(orth_json_require(ctx, root, path, "eos_token"));
    ORTH_TRY(read_token(ctx, root, path, "eos_token", &first));
    ORTH_TRY(read_token(ctx, root, path, "bos_token", &s.bos));
    ORTH_TRY(read_token(ctx, root, path, "pad_token", &s.pad));
    if (first >= 0)
        orth_special_tokens_add_eos(&s, first, false);
    const json_t *list = json_object_get(root, "eos_tokens");
    if (list && !json_is_array(list))
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: eos_tokens is not a list", path);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *v = json_array_get(list, i);
        if (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > INT32_MAX)
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: eos_tokens[%zu] is no token", path, i);
        orth_special_tokens_add_eos(&s, (int32_t)json_integer_value(v), false);
    }
    *out = s;
    return ORTH_OK;
}

static orth_status read_files(orth_ctx *ctx, orth_checkpoint_manifest *m, const char *path,
                              const json_t *root)
{
    const json_t *files = json_object_get(root, "files");
    if (!json_is_object(files) || json_object_size(files) > ORTH_CHECKPOINT_MAX_FILES)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: files is not a list of at most %d", path,
                         ORTH_CHECKPOINT_MAX_FILES);
    const char *name;
    json_t *entry;
    json_object_foreach((json_t *)files, name, entry) {
        orth_checkpoint_file *f = &m->files[m->num_files];
        int64_t bytes = -1;
        if (strchr(name, '/') || name[0] == '.' || strlen(name) >= sizeof f->name)
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: files has '%.100s', not a name in this folder", path,
                             name);
        snprintf(f->name, sizeof f->name, "%s", name);
        ORTH_TRY(orth_json_get_int(ctx, entry, path, "bytes", &bytes));
        if (bytes < 0)
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: files: %s has no size", path, name);
        f->num_bytes = (uint64_t)bytes;
        ORTH_TRY(get_hex64(ctx, entry, path, "xxh64", &f->hash));
        m->num_files++;
    }
    return ORTH_OK;
}

static orth_status read_state(orth_ctx *ctx, orth_checkpoint_manifest *m, const char *path,
                              const json_t *root)
{
    const char *format = "", *scale = "";
    char *end;
    int64_t version = 0;
    ORTH_TRY(orth_json_get_string(ctx, root, path, "format", &format));
    ORTH_TRY(orth_json_get_int(ctx, root, path, "version", &version));
    if (strcmp(format, "orthant-checkpoint") != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: format=\"%.60s\" is not orthant-checkpoint", path, format);
    if (version != ORTH_CHECKPOINT_VERSION)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: version=%" PRId64 " is not %d, which this program reads",
                         path, version, ORTH_CHECKPOINT_VERSION);
#define INT(name)                                                                    \
    ORTH_TRY(orth_json_require(ctx, root, path, #name));                             \
    ORTH_TRY(orth_json_get_int(ctx, root, path, #name, &m->state.name));
    STATE_INTS(INT)
#undef INT
    ORTH_TRY(orth_json_get_string(ctx, root, path, "loss_scale", &scale));
    m->state.loss_scale = strtod(scale, &end);
    if (end == scale || *end || !isfinite(m->state.loss_scale))
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: loss_scale=\"%.40s\" is not a number", path, scale);
    ORTH_TRY(get_hex64(ctx, root, path, "tokenizer_fingerprint", &m->state.tokenizer_fingerprint));
    if (json_object_get(root, "data_fingerprint")) /* the first checkpoints have none */
        ORTH_TRY(get_hex64(ctx, root, path, "data_fingerprint", &m->state.data_fingerprint));
    ORTH_TRY(read_special(ctx, &m->state.special, path, root));
    ORTH_TRY(read_files(ctx, m, path, root));
    const char *run = "";
    ORTH_TRY(orth_json_get_string(ctx, root, path, "run_config", &run));
    m->run_config = orth_mem_strdup(ctx, run);
    return m->run_config ? ORTH_OK : ORTH_ERR_NOMEM;
}

orth_status orth_checkpoint_manifest_parse(orth_ctx *ctx, orth_checkpoint_manifest *out, const char *path,
                                           const char *text, size_t num_bytes)
{
    json_t *root = NULL;
    orth_checkpoint_manifest m = {0};
    ORTH_TRY(check_seal(ctx, path, text, num_bytes));
    ORTH_TRY(orth_json_parse(ctx, &root, path, text, num_bytes));
    orth_status s = read_state(ctx, &m, path, root);
    json_decref(root);
    if (s == ORTH_OK)
        *out = m;
    else
        orth_checkpoint_manifest_release(ctx, &m);
    return s;
}

orth_status orth_checkpoint_manifest_read(orth_ctx *ctx, orth_checkpoint_manifest *out, const char *path)
{
    orth_file_map map = {0};
    ORTH_TRY(orth_file_map_open(ctx, &map, path));
    orth_status s = orth_checkpoint_manifest_parse(ctx, out, path, (const char *)map.data, map.size);
    orth_file_map_close(&map);
    return s;
}

void orth_checkpoint_manifest_release(orth_ctx *ctx, orth_checkpoint_manifest *m)
{
    orth_mem_free(ctx, m->run_config);
    *m = (orth_checkpoint_manifest){0};
}

const orth_checkpoint_file *orth_checkpoint_manifest_find(const orth_checkpoint_manifest *m, const char *name)
{
    for (int i = 0; i < m->num_files; i++)
        if (strcmp(m->files[i].name, name) == 0)
            return &m->files[i];
    return NULL;
}
