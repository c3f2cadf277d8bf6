/* onednn.c -- see onednn.h. Written for the API of oneDNN 2; built where CMake found that. */
#include "kernels/cpu/onednn.h"

#include <dnnl.h>
#include <omp.h>

struct orth_onednn {
    int num_threads;
    dnnl_engine_t engine;
    dnnl_stream_t *streams;         /* [num_threads] */
};

typedef enum { MEM_A, MEM_B, MEM_C, MEM_SCRATCH, MEM_BIAS, NUM_MEMS } mem_role;

struct orth_onednn_product {
    const orth_onednn *engine;
    dnnl_primitive_t primitive;
    size_t scratch_bytes;
    bool bias;
    dnnl_memory_t *mems;            /* [num_threads][NUM_MEMS] */
};

void orth_onednn_version(char *out, size_t num_bytes)
{
    const dnnl_version_t *v = dnnl_version();
    snprintf(out, num_bytes, "oneDNN %d.%d.%d", v->major, v->minor, v->patch);
}

/* ---- engine ---- */

orth_status orth_onednn_create(orth_ctx *ctx, orth_onednn **out, int num_threads)
{
    orth_onednn *e = ORTH_NEW(ctx, orth_onednn);
    if (!e)
        return ORTH_ERR_NOMEM;
    e->num_threads = num_threads;
    e->streams = ORTH_NEW_ARRAY(ctx, dnnl_stream_t, num_threads);
    bool ok = e->streams && dnnl_engine_create(&e->engine, dnnl_cpu, 0) == dnnl_success;
    for (int i = 0; ok && i < num_threads; i++)
        ok = dnnl_stream_create(&e->streams[i], e->engine, dnnl_stream_default_flags) == dnnl_success;
    if (!ok) {
        orth_onednn_destroy(ctx, e);
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "oneDNN: no engine with %d streams", num_threads);
    }
    *out = e;
    return ORTH_OK;
}

void orth_onednn_destroy(orth_ctx *ctx, orth_onednn *e)
{
    if (!e)
        return;
    for (int i = 0; e->streams && i < e->num_threads; i++)
        if (e->streams[i])
            dnnl_stream_destroy(e->streams[i]);
    if (e->engine)
        dnnl_engine_destroy(e->engine);
    orth_mem_free(ctx, e->streams);
    orth_mem_free(ctx, e);
}

/* ---- a product ---- */

/* oneDNN shares a call out over the threads of OpenMP, which would fight the pool: it is given one. The
 * number is the calling thread's own setting. Returns what it was. */
static int one_thread(void)
{
    const int was = omp_get_max_threads();
    omp_set_num_threads(1);
    return was;
}

static dnnl_data_type_t type_of(orth_dtype t)
{
    return t == ORTH_BF16 ? dnnl_bf16 : dnnl_f32;
}

static bool describe(const orth_onednn_shape *s, dnnl_memory_desc_t md[NUM_MEMS])
{
    const dnnl_dims_t a = {s->M, s->K}, b = {s->K, s->N}, c = {s->M, s->N}, bias = {1, s->N};
    const dnnl_dims_t a_step = {s->a_row, s->a_col}, b_step = {s->b_row, s->b_col}, c_step = {s->c_row, 1};
    const dnnl_dims_t bias_step = {s->N, 1};
    return dnnl_memory_desc_init_by_strides(&md[MEM_A], 2, a, type_of(s->in_type), a_step) == dnnl_success &&
           dnnl_memory_desc_init_by_strides(&md[MEM_B], 2, b, type_of(s->in_type), b_step) == dnnl_success &&
           dnnl_memory_desc_init_by_strides(&md[MEM_C], 2, c, type_of(s->out_type), c_step) == dnnl_success &&
           dnnl_memory_desc_init_by_strides(&md[MEM_BIAS], 2, bias, dnnl_f32, bias_step) == dnnl_success;
}

/* Scratch is the caller's, so that it is planned and counted like all memory. */
static dnnl_status_t make_primitive(orth_onednn_product *p, const orth_onednn_shape *s, dnnl_memory_desc_t md[NUM_MEMS])
{
    dnnl_matmul_desc_t matmul;
    dnnl_primitive_attr_t attr = NULL;
    dnnl_primitive_desc_t pd = NULL;
    dnnl_status_t status = dnnl_primitive_attr_create(&attr);
    if (status == dnnl_success)
        status = dnnl_primitive_attr_set_scratchpad_mode(attr, dnnl_scratchpad_mode_user);
    if (status == dnnl_success)
        status = dnnl_matmul_desc_init(&matmul, &md[MEM_A], &md[MEM_B], s->bias ? &md[MEM_BIAS] : NULL, &md[MEM_C]);
    if (status == dnnl_success)
        status = dnnl_primitive_desc_create(&pd, &matmul, attr, p->engine->engine, NULL);
    if (status == dnnl_success)
        status = dnnl_primitive_create(&p->primitive, pd);
    if (status == dnnl_success) {
        md[MEM_SCRATCH] = *dnnl_primitive_desc_query_md(pd, dnnl_query_scratchpad_md, 0);
        p->scratch_bytes = dnnl_memory_desc_get_size(&md[MEM_SCRATCH]);
    }
    if (pd)
        dnnl_primitive_desc_destroy(pd);
    if (attr)
        dnnl_primitive_attr_destroy(attr);
    return status;
}

static bool make_mems(orth_onednn_product *p, const dnnl_memory_desc_t md[NUM_MEMS])
{
    for (int i = 0; i < p->engine->num_threads * NUM_MEMS; i++)
        if (dnnl_memory_create(&p->mems[i], &md[i % NUM_MEMS], p->engine->engine, DNNL_MEMORY_NONE) !=
            dnnl_success)
            return false;
    return true;
}

orth_status orth_onednn_product_create(orth_ctx *ctx, orth_onednn *e, orth_onednn_product **out,
                                       const orth_onednn_shape *s)
{
    orth_onednn_product *p = ORTH_NEW(ctx, orth_onednn_product);
    if (!p)
        return ORTH_ERR_NOMEM;
    *p = (orth_onednn_product){.engine = e, .bias = s->bias};
    p->mems = ORTH_NEW_ARRAY(ctx, dnnl_memory_t, e->num_threads * NUM_MEMS);
    if (!p->mems) {
        orth_onednn_product_destroy(ctx, p);
        return ORTH_ERR_NOMEM;
    }
    dnnl_memory_desc_t md[NUM_MEMS];
    const int threads = one_thread();
    dnnl_status_t status = describe(s, md) ? make_primitive(p, s, md) : dnnl_unimplemented;
    if (status == dnnl_success && !make_mems(p, md))
        status = dnnl_out_of_memory;
    omp_set_num_threads(threads);
    if (status != dnnl_success) {
        orth_onednn_product_destroy(ctx, p);
        p = NULL;
    }
    if (status == dnnl_out_of_memory)
        return ORTH_FAIL(ctx, ORTH_ERR_NOMEM, "oneDNN: no memory for the %s product %d x %d x %d",
                         orth_dtype_name(s->in_type), (int)s->M, (int)s->N, (int)s->K);
    *out = p;
    return ORTH_OK;
}

void orth_onednn_product_destroy(orth_ctx *ctx, orth_onednn_product *p)
{
    if (!p)
        return;
    for (int i = 0; p->mems && i < p->engine->num_threads * NUM_MEMS; i++)
        if (p->mems[i])
            dnnl_memory_destroy(p->mems[i]);
    if (p->primitive)
        dnnl_primitive_destroy(p->primitive);
    orth_mem_free(ctx, p->mems);
    orth_mem_free(ctx, p);
}

size_t orth_onednn_scratch_bytes(const orth_onednn_product *p)
{
    return p->scratch_bytes;
}

orth_status orth_onednn_run(const orth_onednn_product *p, int worker, const void *a, const void *b,
                            const float *bias, void *c, void *scratch)
{
    static const int roles[NUM_MEMS] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST, DNNL_ARG_SCRATCHPAD,
                                        DNNL_ARG_BIAS};
    const void *const data[NUM_MEMS] = {a, b, c, scratch, bias};
    const int num = p->bias ? NUM_MEMS : MEM_BIAS;
    dnnl_memory_t *mems = p->mems + worker * NUM_MEMS;
    dnnl_stream_t stream = p->engine->streams[worker];
    dnnl_exec_arg_t args[NUM_MEMS];
    for (int i = 0; i < num; i++) {
        dnnl_memory_set_data_handle(mems[i], (void *)(uintptr_t)data[i]);
        args[i] = (dnnl_exec_arg_t){roles[i], mems[i]};
    }
    const int threads = one_thread();
    const bool ok = dnnl_primitive_execute(p->primitive, stream, num, args) == dnnl_success &&
                    dnnl_stream_wait(stream) == dnnl_success;
    omp_set_num_threads(threads);
    return ok ? ORTH_OK : ORTH_ERR_INTERNAL;
}
