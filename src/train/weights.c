/* weights.c -- see weights.h. */
#include "train/weights.h"

#include "base/pool.h"
#include "base/rng.h"

#define CHUNK ((int64_t)1 << 16) /* elements per task; a multiple of 4, as the generator asks */

void orth_weights_move(const orth_param_desc *d, int64_t first_elem, int64_t n, float *local, float *whole,
                       bool to_whole)
{
    int64_t cols = orth_param_cols(d), from = d->split_dim < 0 ? 0 : orth_split_bound(&d->split, d->first_part);
    for (int64_t i = 0; i < n;) {
        int64_t row = (first_elem + i) / cols, col = (first_elem + i) % cols, run = ORTH_MIN(cols - col, n - i);
        bool replica = row < d->replica_rows;
        int64_t shift = replica ? d->replica_first : d->split_dim == 0 ? from - d->replica_rows : 0;
        int64_t at = d->split_dim == 1 ? row * d->whole_cols + col + from : (row + shift) * cols + col;
        if (to_whole && !replica) /* of a replica another rank gives them */
            memcpy(whole + at, local + i, (size_t)run * sizeof *whole);
        else if (!to_whole)
            memcpy(local + i, whole + at, (size_t)run * sizeof *local);
        i += run;
    }
}

/* ---- random ---- */

typedef struct {
    float *out;
    int64_t n;
    uint64_t seed, number;
    float std, mean;
} init_job;

static void init_chunk(void *arg, int64_t task, int worker)
{
    (void)worker;
    const init_job *j = arg;
    int64_t begin = task * CHUNK, n = ORTH_MIN(CHUNK, j->n - begin);
    float *out = j->out + begin;
    if (j->std > 0)
        orth_rand_normals(out, n, j->seed, ORTH_STREAM_INIT, j->number, begin);
    for (int64_t i = 0; i < n; i++)
        out[i] = j->std > 0 ? j->std * out[i] : j->mean;
}

typedef struct {
    const orth_model_config *model;
    uint64_t seed;
} init_source;

static orth_status init_param(orth_ctx *ctx, void *user, int64_t index, float *out)
{
    const init_source *s = user;
    orth_param p;
    ORTH_TRY(orth_model_param(ctx, s->model, index, &p));
    init_job job = {.out = out, .n = orth_param_elems(&p), .seed = s->seed, .number = (uint64_t)index,
                    .std = p.init == ORTH_INIT_NORMAL ? (float)p.init_std : 0.0f,
                    .mean = p.init == ORTH_INIT_ONE ? 1.0f : 0.0f};
    orth_pool_run(ctx->pool, orth_div_up(job.n, CHUNK), init_chunk, &job);
    return ORTH_OK;
}

orth_status orth_weights_init(orth_ctx *ctx, const orth_model_config *c, const orth_compiled *u, orth_executor *e, uint64_t seed)
{
    init_source s = {c, seed};
    return orth_weights_fill(ctx, c, u, e, init_param, &s);
}

/* ---- filling ---- */

#define PIECE ((int64_t)1 << 20) /* elements that are moved, converted and written at once */

static orth_status make_copy(orth_ctx *ctx, float *values, void *copy, orth_dtype type, int64_t n)
{
    if (type == ORTH_U8) {
        for (int64_t i = 0; i < n; i++)
            orth_store_f32(copy, type, i, values[i]);
        return ORTH_OK;
    }
    orth_tensor src = {values, ORTH_F32, 1, {n, 1, 1, 1}}, dst = {copy, type, 1, {n, 1, 1, 1}};
    orth_attr attr = {0};
    orth_op_call call = {.in = &src, .out = &dst, .num_in = 1, .num_out = 1, .attr = &attr};
    return orth_kernels_cpu()[ORTH_OP_cast](ctx, &call);
}

orth_status orth_weights_read(orth_ctx *ctx, const orth_executor *e, orth_bind bind, int64_t index, int64_t first, int64_t n, float *out)
{
    const orth_dtype type = orth_executor_type(e, bind, index);
    const size_t elem = orth_dtype_bytes(type);
    void *raw = (char *)out + (size_t)n * (sizeof *out - elem); /* widened from the front, it is never overtaken */
    ORTH_TRY(orth_executor_read(ctx, e, (orth_ref){bind, index, (size_t)first * elem, (size_t)n * elem}, raw));
    for (int64_t i = 0; i < n && type != ORTH_F32; i++)
        out[i] = orth_load_f32(raw, type, i);
    return ORTH_OK;
}

typedef struct {
    const orth_param_desc *desc;
    orth_executor *e;
    const orth_buffer *buffer;
    float *whole;
    float *values;                   /* [PIECE] */
    uint16_t *copy;                  /* [PIECE], behind them: in a type of 16 bits or 8 */
} put_job;

/* Elements [at, at + n) of the buffer. */
static orth_status put_piece(orth_ctx *ctx, const put_job *j, int64_t at, int64_t n)
{
    const orth_buffer *b = j->buffer;
    const bool converts = b->dtype != ORTH_F32, all = j->desc->split_dim < 0; /* all: no detour */
    const size_t elem = orth_dtype_bytes(b->dtype);
    float *values = all ? j->whole + b->first_elem + at : j->values;
    if (!all)
        orth_weights_move(j->desc, b->first_elem + at, n, values, j->whole, false);
    if (converts)
        ORTH_TRY(make_copy(ctx, values, j->copy, b->dtype, n));
    return orth_executor_write(ctx, j->e, (orth_ref){b->bind, b->index, (size_t)at * elem, (size_t)n * elem},
                               converts ? (const void *)j->copy : values);
}

orth_status orth_weights_put(orth_ctx *ctx, const orth_compiled *u, orth_executor *e, orth_bind bind, int64_t index, float *whole)
{
    const int32_t b = orth_program_find(&u->program, bind, index);
    if (b < 0)
        return ORTH_OK;
    const orth_buffer *buffer = &u->program.buffers[b];
    const int64_t elems = orth_buffer_elems(buffer);
    const int64_t room = ORTH_MIN(PIECE, elems);
    float *values = orth_mem_alloc(ctx, (size_t)room * (sizeof(float) + sizeof(uint16_t)));
    if (!values)
        return ORTH_ERR_NOMEM;
    const orth_param_desc *param = &u->blocks.spec.params[index], scales = orth_param_scales(param);
    const put_job job = {bind == ORTH_BIND_SCALES ? &scales : param, e, buffer, whole, values, (uint16_t *)(void *)(values + room)};
    orth_status s = ORTH_OK;
    for (int64_t at = 0; at < elems && s == ORTH_OK; at += PIECE)
        s = put_piece(ctx, &job, at, ORTH_MIN(PIECE, elems - at));
    orth_mem_free(ctx, values);
    return s;
}

static orth_status fill_param(orth_ctx *ctx, const orth_compiled *u, orth_executor *e, int64_t index, int64_t whole_elems,
                              orth_weights_read_fn read, void *user)
{
    if (orth_program_find(&u->program, ORTH_BIND_MASTER, index) < 0 && orth_program_find(&u->program, ORTH_BIND_COPY, index) < 0)
        return ORTH_OK;
    float *whole = ORTH_NEW_ARRAY(ctx, float, whole_elems);
    orth_status s = whole ? read(ctx, user, index, whole) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK)
        s = orth_weights_put(ctx, u, e, ORTH_BIND_MASTER, index, whole);
    if (s == ORTH_OK)
        s = orth_weights_put(ctx, u, e, ORTH_BIND_COPY, index, whole);
    orth_mem_free(ctx, whole);
    return s;
}

orth_status orth_weights_fill(orth_ctx *ctx, const orth_model_config *c, const orth_compiled *u, orth_executor *e,
                              orth_weights_read_fn read, void *user)
{
    for (int64_t i = 0; i < orth_model_num_params(c); i++) {
        orth_param p;
        ORTH_TRY(orth_ctx_check_stop(ctx));
        ORTH_TRY(orth_model_param(ctx, c, i, &p));
        ORTH_TRY(fill_param(ctx, u, e, i, orth_param_elems(&p), read, user));
    }
    return ORTH_OK;
}
