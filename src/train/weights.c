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

orth_status orth_weights_init(orth_ctx *ctx, const orth_model_config *c, const orth_unit *u,
                              const orth_executor *e, uint64_t seed)
{
    init_source s = {c, seed};
    return orth_weights_fill(ctx, c, u, e, init_param, &s);
}

/* ---- filling ---- */

static orth_status make_copy(orth_ctx *ctx, float *values, void *copy, int64_t n)
{
    orth_tensor src = {values, ORTH_F32, 1, {n, 1, 1, 1}}, dst = {copy, ORTH_BF16, 1, {n, 1, 1, 1}};
    orth_attr attr = {0};
    orth_op_call call = {.in = &src, .out = &dst, .num_in = 1, .num_out = 1, .attr = &attr};
    return orth_kernels_cpu()[ORTH_OP_cast](ctx, &call);
}

/* Elements of the parameter that a buffer of type t holds; 0 if there is no such buffer. */
static int64_t held_elems(const orth_unit *u, orth_bind bind, int64_t index, orth_dtype t, int64_t *first)
{
    int32_t b = orth_program_find(&u->program, bind, index);
    if (b < 0)
        return 0;
    *first = u->program.buffers[b].first_elem;
    return (int64_t)(u->program.buffers[b].bytes / orth_dtype_bytes(t));
}

static orth_status fill_param(orth_ctx *ctx, const orth_unit *u, const orth_executor *e, int64_t index,
                              int64_t whole_elems, orth_weights_read_fn read, void *user)
{
    const orth_param_desc *d = &u->blocks.spec.params[index];
    int64_t first_master = 0, first_copy = 0;
    int64_t masters = held_elems(u, ORTH_BIND_MASTER, index, ORTH_F32, &first_master);
    int64_t copies = held_elems(u, ORTH_BIND_COPY, index, ORTH_BF16, &first_copy);
    float *master = orth_executor_find(e, ORTH_BIND_MASTER, index);
    if (masters == 0 && copies == 0)
        return ORTH_OK;
    bool in_place = masters == whole_elems; /* this rank has all of it: no detour */
    float *whole = in_place ? master : ORTH_NEW_ARRAY(ctx, float, 2 * whole_elems);
    orth_status s = whole ? read(ctx, user, index, whole) : ORTH_ERR_NOMEM;
    if (s == ORTH_OK && !in_place)
        orth_weights_move(d, first_master, masters, master, whole, false);
    if (s == ORTH_OK && copies > 0) {
        float *values = in_place && copies == whole_elems ? master : whole + whole_elems;
        if (values != master)
            orth_weights_move(d, first_copy, copies, values, whole, false);
        s = make_copy(ctx, values, orth_executor_find(e, ORTH_BIND_COPY, index), copies);
    }
    if (!in_place)
        orth_mem_free(ctx, whole);
    return s;
}

orth_status orth_weights_fill(orth_ctx *ctx, const orth_model_config *c, const orth_unit *u,
                              const orth_executor *e, orth_weights_read_fn read, void *user)
{
    for (int64_t i = 0; i < orth_model_num_params(c); i++) {
        orth_param p;
        ORTH_TRY(orth_ctx_check_stop(ctx));
        ORTH_TRY(orth_model_param(ctx, c, i, &p));
        ORTH_TRY(fill_param(ctx, u, e, i, orth_param_elems(&p), read, user));
    }
    return ORTH_OK;
}
