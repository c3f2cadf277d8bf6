/* checkpoint.c -- see checkpoint.h. */
#include "ckpt/checkpoint.h"

#include <errno.h>
#include <inttypes.h>
#define XXH_STATIC_LINKING_ONLY /* for the size of XXH64_state_t */
#include <xxhash.h>

#include "base/progress.h"

static const char optimizer_name[] = "optimizer.safetensors";
static const char weights_name[] = "model.safetensors";

/* ---- writing ---- */

typedef struct {
    orth_ctx *ctx;
    const char *dir;
    const orth_checkpoint_view *view;
    const orth_checkpoint_array **by_index;   /* [num_params], in the order of the registry */
    int64_t num_params;
    orth_checkpoint_manifest manifest;
    orth_arena arena;
} saver;

static orth_status sort_arrays(saver *s)
{
    const orth_checkpoint_view *v = s->view;
    s->num_params = orth_model_num_params(&v->config);
    s->by_index = ORTH_ARENA_ARRAY(s->ctx, &s->arena, const orth_checkpoint_array *, s->num_params);
    if (!s->by_index)
        return ORTH_ERR_NOMEM;
    for (int64_t i = 0; i < v->num_arrays; i++) {
        const orth_checkpoint_array *a = &v->arrays[i];
        if (a->index < 0 || a->index >= s->num_params || s->by_index[a->index] || !a->master)
            return ORTH_FAIL(s->ctx, ORTH_ERR_ARG, "checkpoint: array %" PRId64 " is parameter %" PRId64
                             ", which is unknown, given twice or empty", i, a->index);
        s->by_index[a->index] = a;
    }
    if (v->num_arrays != s->num_params)
        return ORTH_FAIL(s->ctx, ORTH_ERR_ARG, "checkpoint: %" PRId64 " arrays given, the model has %" PRId64
                         " parameters", v->num_arrays, s->num_params);
    return ORTH_OK;
}

static void list_file(saver *s, const char *name, uint64_t num_bytes, uint64_t hash)
{
    orth_checkpoint_file *f = &s->manifest.files[s->manifest.num_files++];
    snprintf(f->name, sizeof f->name, "%s", name);
    f->num_bytes = num_bytes;
    f->hash = hash;
}

static orth_status fetch(const saver *s, int64_t index, orth_checkpoint_kind kind)
{
    return s->view->fetch ? s->view->fetch(s->ctx, s->view->fetch_user, index, kind) : ORTH_OK;
}

static orth_status fetch_master(orth_ctx *ctx, void *user, int64_t index)
{
    (void)ctx;
    return fetch(user, index, ORTH_CHECKPOINT_MASTER);
}

static orth_status write_weights(saver *s)
{
    uint64_t hash, bytes;
    const float **params = ORTH_ARENA_ARRAY(s->ctx, &s->arena, const float *, s->num_params);
    char *path = orth_arena_printf(s->ctx, &s->arena, "%s/%s", s->dir, weights_name);
    if (!params || !path)
        return ORTH_ERR_NOMEM;
    for (int64_t i = 0; i < s->num_params; i++)
        params[i] = s->by_index[i]->master;
    ORTH_TRY(orth_hf_write_weights(s->ctx, path, &s->view->config, params, fetch_master, s, s->view->weight_dtype, &hash,
                                   &bytes));
    list_file(s, weights_name, bytes, hash);
    return ORTH_OK;
}

/* Names of tensors in optimizer.safetensors begin with their kind. */
static const char *const kinds[ORTH_NUM_CHECKPOINT_KINDS] = {"master", "m", "v", "scales"};

/* NULL: it is not in optimizer.safetensors. */
static const float *array_of(const saver *s, int64_t index, orth_checkpoint_kind kind)
{
    const orth_checkpoint_array *a = s->by_index[index];
    if (kind == ORTH_CHECKPOINT_MASTER)
        return s->view->weight_dtype == ORTH_F32 ? NULL : a->master;
    return kind == ORTH_CHECKPOINT_M ? a->m : kind == ORTH_CHECKPOINT_V ? a->v : a->scales;
}

/* The tensor that the array is in optimizer.safetensors, but its name. */
static orth_st_spec spec_of(const orth_checkpoint_array *a, const orth_param *p, orth_checkpoint_kind kind)
{
    const bool codes = a->scale_cols > 0 && (kind == ORTH_CHECKPOINT_M || kind == ORTH_CHECKPOINT_V);
    return (orth_st_spec){.dtype = codes ? ORTH_U8 : ORTH_F32, .num_dims = p->num_dims,
                          .dim = {p->dim[0], kind == ORTH_CHECKPOINT_SCALES ? a->scale_cols : p->dim[1]}};
}

static const char scales_name[] = "fp8.scales", history_name[] = "fp8.amax_history";
#define NUM_DELAYED 2

static void delayed_specs(const orth_checkpoint_delayed *d, orth_st_spec specs[NUM_DELAYED])
{
    for (int i = 0; i < NUM_DELAYED; i++)
        specs[i] = (orth_st_spec){.name = i ? history_name : scales_name, .dtype = ORTH_F32, .num_dims = 3 + i,
                                  .dim = {d->layers, ORTH_PRODUCTS_PER_LAYER, ORTH_PRODUCT_TENSORS, d->steps}};
}

static orth_status list_optimizer(saver *s, orth_st_spec *specs, int64_t *out_num)
{
    int64_t n = 0;
    for (orth_checkpoint_kind kind = 0; kind < ORTH_NUM_CHECKPOINT_KINDS; kind++) {
        for (int64_t i = 0; i < s->num_params; i++) {
            orth_param p;
            if (!array_of(s, i, kind))
                continue;
            ORTH_TRY(orth_model_param(s->ctx, &s->view->config, i, &p));
            specs[n] = spec_of(s->by_index[i], &p, kind);
            specs[n].name = orth_arena_printf(s->ctx, &s->arena, "%s.%s", kinds[kind], p.name);
            if (!specs[n++].name)
                return ORTH_ERR_NOMEM;
        }
    }
    if (s->view->delayed.steps > 0) {
        delayed_specs(&s->view->delayed, specs + n);
        n += NUM_DELAYED;
    }
    *out_num = n;
    return ORTH_OK;
}

static orth_status put_delayed(saver *s, orth_st_writer *w)
{
    const orth_checkpoint_delayed *d = &s->view->delayed;
    const int64_t rows = orth_checkpoint_delayed_rows(d);
    if (d->steps == 0)
        return ORTH_OK;
    ORTH_TRY(orth_st_writer_put_f32(s->ctx, w, ORTH_F32, d->scales, rows));
    return orth_st_writer_put_f32(s->ctx, w, ORTH_F32, d->history, rows * d->steps);
}

/* The tensors that list_optimizer lists. */
static orth_status put_optimizer(saver *s, orth_st_writer *w)
{
    for (orth_checkpoint_kind kind = 0; kind < ORTH_NUM_CHECKPOINT_KINDS; kind++) {
        for (int64_t i = 0; i < s->num_params; i++) {
            const float *values = array_of(s, i, kind);
            orth_param p;
            if (!values)
                continue;
            ORTH_TRY(orth_model_param(s->ctx, &s->view->config, i, &p));
            ORTH_TRY(fetch(s, i, kind));
            const orth_st_spec spec = spec_of(s->by_index[i], &p, kind);
            const int64_t n = spec.dim[0] * (spec.num_dims > 1 ? spec.dim[1] : 1);
            ORTH_TRY(orth_st_writer_put_f32(s->ctx, w, spec.dtype, values, n));
        }
    }
    return put_delayed(s, w);
}

static orth_status write_optimizer(saver *s)
{
    int64_t n = 0;
    orth_st_spec *specs = ORTH_ARENA_ARRAY(s->ctx, &s->arena, orth_st_spec, ORTH_NUM_CHECKPOINT_KINDS * s->num_params + NUM_DELAYED);
    char *path = orth_arena_printf(s->ctx, &s->arena, "%s/%s", s->dir, optimizer_name);
    orth_st_writer *w = NULL;
    uint64_t hash, bytes;
    if (!specs || !path)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(list_optimizer(s, specs, &n));
    ORTH_TRY(orth_st_writer_open(s->ctx, &w, path, specs, n, NULL));
    const orth_status status = put_optimizer(s, w);
    if (status != ORTH_OK) {
        orth_st_writer_abort(s->ctx, w);
        return status;
    }
    ORTH_TRY(orth_st_writer_commit(s->ctx, w, &hash, &bytes));
    list_file(s, optimizer_name, bytes, hash);
    return ORTH_OK;
}

static orth_status write_text(saver *s, const char *name, const char *text, size_t num_bytes)
{
    char *path = text ? orth_arena_printf(s->ctx, &s->arena, "%s/%s", s->dir, name) : NULL;
    if (!path)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(orth_file_write(s->ctx, path, text, num_bytes));
    list_file(s, name, num_bytes, XXH64(text, num_bytes, 0));
    return ORTH_OK;
}

/* Takes `text`, which may be NULL: no memory. */
static orth_status write_own(saver *s, const char *name, char *text)
{
    orth_status status = write_text(s, name, text, text ? strlen(text) : 0);
    orth_mem_free(s->ctx, text);
    return status;
}

static orth_status write_configs(saver *s)
{
    const orth_checkpoint_view *v = s->view;
    const orth_special_tokens *special = &v->state.special;
    ORTH_TRY(write_own(s, "config.json", orth_hf_config_text(s->ctx, &v->config, v->weight_dtype, special)));
    ORTH_TRY(write_own(s, "generation_config.json", orth_hf_generation_text(s->ctx, special)));
    if (v->tokenizer)
        ORTH_TRY(write_text(s, "tokenizer.json", v->tokenizer, v->tokenizer_bytes));
    if (v->tokenizer && v->tokenizer_config)
        ORTH_TRY(write_text(s, "tokenizer_config.json", v->tokenizer_config, strlen(v->tokenizer_config)));
    return ORTH_OK;
}

/* Last: with it the folder becomes a checkpoint. */
static orth_status write_state(saver *s)
{
    s->manifest.state = s->view->state;
    s->manifest.run_config = (char *)s->view->run_config;
    char *path = orth_arena_printf(s->ctx, &s->arena, "%s/state.json", s->dir);
    char *text = path ? orth_checkpoint_manifest_text(s->ctx, &s->manifest) : NULL;
    if (!text)
        return s->ctx->error.code;
    orth_status status = orth_file_write(s->ctx, path, text, strlen(text));
    orth_mem_free(s->ctx, text);
    return status;
}

static orth_status write_all(saver *s)
{
    ORTH_TRY(orth_model_config_check(s->ctx, &s->view->config));
    ORTH_TRY(sort_arrays(s));
    ORTH_TRY(write_weights(s));
    ORTH_TRY(write_optimizer(s));
    ORTH_TRY(write_configs(s));
    return write_state(s);
}

orth_status orth_checkpoint_write(orth_ctx *ctx, const char *path, const orth_checkpoint_view *view)
{
    saver s = {.ctx = ctx, .dir = path, .view = view};
    orth_status status = write_all(&s);
    orth_arena_release(ctx, &s.arena);
    return status;
}

/* ---- reading ---- */

struct orth_checkpoint {
    orth_checkpoint_manifest manifest;
    orth_hf_source *weights;
    orth_safetensors optimizer;
};

/* In pieces: the pages of a large file come from a slow disk for minutes, which must be seen to go on, and leave the resident
 * set after they were read: a checkpoint may be larger than the memory. */
static uint64_t hash_of(orth_ctx *ctx, const orth_file_map *map)
{
    const size_t piece = (size_t)8 << 20;
    XXH64_state_t state;
    XXH64_reset(&state, 0);
    for (size_t at = 0; at < map->size; at += piece) {
        const size_t n = ORTH_MIN(piece, map->size - at);
        XXH64_update(&state, map->data + at, n);
        orth_file_map_release(map, at, n);
        orth_tick(ctx);
    }
    return XXH64_digest(&state);
}

/* A file that is not there is damage. One that cannot be read now (EIO, no descriptor left, no permission) says nothing about
 * the checkpoint, which must not be passed over for it. */
static orth_status open_part(orth_ctx *ctx, orth_file_map *map, const char *dir, const char *name)
{
    char *path = orth_path_join(ctx, dir, name);
    if (!path)
        return ORTH_ERR_NOMEM;
    const orth_status s = orth_path_exists(path) ? orth_file_map_open(ctx, map, path)
                                                 : ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: is missing", path);
    orth_mem_free(ctx, path);
    return s;
}

static orth_status verify_file(orth_ctx *ctx, const char *dir, const orth_checkpoint_file *f)
{
    orth_file_map map = {0};
    orth_status s = ORTH_OK;
    ORTH_TRY(open_part(ctx, &map, dir, f->name));
    orth_phase_file(ctx, f->name);
    if (map.size != f->num_bytes)
        s = ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s/%s: has %zu bytes; state.json says %" PRIu64, dir, f->name, map.size,
                      f->num_bytes);
    if (s == ORTH_OK && hash_of(ctx, &map) != f->hash)
        s = ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s/%s: its content does not match the checksum in state.json", dir, f->name);
    orth_phase_file(ctx, NULL);
    orth_file_map_close(&map);
    return s;
}

static orth_status parse_state(orth_ctx *ctx, orth_checkpoint_manifest *m, const char *dir)
{
    orth_file_map map = {0};
    ORTH_TRY(open_part(ctx, &map, dir, "state.json"));
    char *path = orth_path_join(ctx, dir, "state.json");
    const orth_status s = path ? orth_checkpoint_manifest_parse(ctx, m, path, (const char *)map.data, map.size) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, path);
    orth_file_map_close(&map);
    return s;
}

static orth_status read_manifest(orth_ctx *ctx, orth_checkpoint_manifest *m, const char *dir)
{
    ORTH_TRY(parse_state(ctx, m, dir));
    orth_status s = ORTH_OK;
    static const char *const needed[] = {weights_name, optimizer_name, "config.json"};
    for (int i = 0; i < ORTH_COUNT(needed) && s == ORTH_OK; i++)
        if (!orth_checkpoint_manifest_find(m, needed[i]))
            s = ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s/state.json: files does not list %s", dir, needed[i]);
    for (int i = 0; i < m->num_files && s == ORTH_OK; i++)
        s = verify_file(ctx, dir, &m->files[i]);
    if (s != ORTH_OK)
        orth_checkpoint_manifest_release(ctx, m);
    return s;
}

orth_status orth_checkpoint_verify(orth_ctx *ctx, const char *path)
{
    orth_checkpoint *ck = NULL;
    ORTH_TRY(orth_checkpoint_open(ctx, &ck, path));
    orth_checkpoint_close(ctx, ck);
    return ORTH_OK;
}

orth_status orth_checkpoint_open(orth_ctx *ctx, orth_checkpoint **out, const char *path)
{
    orth_checkpoint *ck = ORTH_NEW(ctx, orth_checkpoint);
    if (!ck)
        return ORTH_ERR_NOMEM;
    orth_status s = read_manifest(ctx, &ck->manifest, path);
    char *optimizer = s == ORTH_OK ? orth_path_join(ctx, path, optimizer_name) : NULL;
    if (s == ORTH_OK)
        s = optimizer ? orth_safetensors_open(ctx, &ck->optimizer, optimizer) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = orth_hf_open(ctx, &ck->weights, path);
    orth_mem_free(ctx, optimizer);
    if (s == ORTH_OK)
        *out = ck;
    else
        orth_checkpoint_close(ctx, ck);
    return s;
}

void orth_checkpoint_close(orth_ctx *ctx, orth_checkpoint *ck)
{
    if (!ck)
        return;
    orth_hf_close(ctx, ck->weights);
    orth_safetensors_close(ctx, &ck->optimizer);
    orth_checkpoint_manifest_release(ctx, &ck->manifest);
    orth_mem_free(ctx, ck);
}

const orth_model_config *orth_checkpoint_config(const orth_checkpoint *ck)
{
    return orth_hf_source_config(ck->weights);
}

const orth_checkpoint_state *orth_checkpoint_get_state(const orth_checkpoint *ck)
{
    return &ck->manifest.state;
}

const char *orth_checkpoint_run_config(const orth_checkpoint *ck)
{
    return ck->manifest.run_config;
}

const orth_checkpoint_manifest *orth_checkpoint_files(const orth_checkpoint *ck)
{
    return &ck->manifest;
}

/* *out_found stays false if there is no such tensor. */
static orth_status load_tensor(orth_ctx *ctx, const orth_checkpoint *ck, const orth_checkpoint_array *a, orth_checkpoint_kind kind,
                               const orth_param *p, float *out, bool *out_found)
{
    char name[96];
    const orth_st_spec spec = spec_of(a, p, kind);
    const int64_t elems = spec.dim[0] * (spec.num_dims > 1 ? spec.dim[1] : 1);
    snprintf(name, sizeof name, "%s.%s", kinds[kind], p->name);
    const orth_st_tensor *t = orth_safetensors_find(&ck->optimizer, name);
    if (!t)
        return ORTH_OK;
    if (t->dtype != spec.dtype || t->elems != elems)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                         "%s: tensor '%s' is %" PRId64 " elements of %s, not %" PRId64 " of %s",
                         ck->optimizer.path, name, t->elems, t->dtype_name, elems, spec.dtype == ORTH_U8 ? "U8" : "F32");
    orth_st_load_f32(out, t, 0, t->elems);
    *out_found = true;
    return ORTH_OK;
}

static orth_status load_moment(orth_ctx *ctx, const orth_checkpoint *ck, const orth_checkpoint_array *a, orth_checkpoint_kind kind,
                               const orth_param *p, float *out)
{
    bool found = false;
    if (!out)
        return ORTH_OK;
    ORTH_TRY(load_tensor(ctx, ck, a, kind, p, out, &found));
    if (!found)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA,
                         "%s: tensor '%s.%s' is missing; was it saved by another optimizer?",
                         ck->optimizer.path, kinds[kind], p->name);
    return ORTH_OK;
}

orth_status orth_checkpoint_load(orth_ctx *ctx, const orth_checkpoint *ck,
                                 const orth_checkpoint_array *arrays, int64_t num_arrays)
{
    const orth_model_config *c = orth_checkpoint_config(ck);
    for (int64_t i = 0; i < num_arrays; i++) {
        const orth_checkpoint_array *a = &arrays[i];
        orth_param p;
        bool found = false;
        ORTH_TRY(orth_model_param(ctx, c, a->index, &p));
        if (a->master)
            ORTH_TRY(load_tensor(ctx, ck, a, ORTH_CHECKPOINT_MASTER, &p, a->master, &found));
        if (a->master && !found)
            ORTH_TRY(orth_hf_read_param(ctx, ck->weights, a->index, a->master));
        ORTH_TRY(load_moment(ctx, ck, a, ORTH_CHECKPOINT_M, &p, a->m));
        ORTH_TRY(load_moment(ctx, ck, a, ORTH_CHECKPOINT_V, &p, a->v));
        ORTH_TRY(load_moment(ctx, ck, a, ORTH_CHECKPOINT_SCALES, &p, a->scales));
    }
    return ORTH_OK;
}

static orth_status load_named(orth_ctx *ctx, const orth_checkpoint *ck, const char *name, int64_t elems, float *out)
{
    const orth_st_tensor *t = orth_safetensors_find(&ck->optimizer, name);
    if (!t || t->dtype != ORTH_F32 || t->elems != elems)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: has no tensor '%s' of %" PRId64 " F32: precision.products=fp8_delayed goes on with scales of "
                         "earlier steps; fp8_tensor needs none", ck->optimizer.path, name, elems);
    orth_st_load_f32(out, t, 0, elems);
    return ORTH_OK;
}

orth_status orth_checkpoint_load_delayed(orth_ctx *ctx, const orth_checkpoint *ck, const orth_checkpoint_delayed *out)
{
    const int64_t rows = orth_checkpoint_delayed_rows(out);
    ORTH_TRY(load_named(ctx, ck, scales_name, rows, out->scales));
    return out->history ? load_named(ctx, ck, history_name, rows * out->steps, out->history) : ORTH_OK;
}
