/* kernel_case.h -- runs one op by its reference and by its fast kernel and compares the bits.
 *
 * Every buffer stands between guard words. The fast kernel runs at each instruction set this machine
 * has, with 1, 2, 3 and 7 threads; outputs begin with the same content for all (they may be in/out).
 */
#ifndef ORTH_TESTS_KERNEL_CASE_H
#define ORTH_TESTS_KERNEL_CASE_H

#include <math.h>

#include "test.h"

#include "kernels/op.h"

#define GUARD_BYTES 64
#define CASE_THREADS 4

typedef struct {
    orth_ctx *ctx[CASE_THREADS]; /* 1, 2, 3, 7 threads */
} case_pool;

static inline case_pool case_pool_make(void)
{
    static const int threads[CASE_THREADS] = {1, 2, 3, 7};
    case_pool p;
    for (int i = 0; i < CASE_THREADS; i++)
        p.ctx[i] = test_ctx(threads[i]);
    return p;
}

static inline void case_pool_free(case_pool *p)
{
    for (int i = 0; i < CASE_THREADS; i++)
        test_ctx_free(p->ctx[i]);
}

static inline void *guarded_alloc(size_t bytes)
{
    unsigned char *p = aligned_alloc(64, (bytes + 2 * GUARD_BYTES + 63) / 64 * 64);
    memset(p, 0xA5, bytes + 2 * GUARD_BYTES);
    memset(p + GUARD_BYTES, 0, bytes);
    return p + GUARD_BYTES;
}

static inline void guarded_check(const void *data, size_t bytes, const char *what)
{
    const unsigned char *p = (const unsigned char *)data - GUARD_BYTES;
    for (size_t i = 0; i < GUARD_BYTES; i++)
        if (p[i] != 0xA5 || p[GUARD_BYTES + bytes + i] != 0xA5)
            fail_msg("%s: wrote outside of a buffer", what);
}

static inline void guarded_free(void *data)
{
    if (data)
        free((unsigned char *)data - GUARD_BYTES);
}

/* Zeroed; dim1 = 0: one dimension. */
static inline orth_tensor case_tensor(orth_dtype type, int64_t dim0, int64_t dim1)
{
    orth_tensor t = {.dtype = type, .num_dims = dim1 ? 2 : 1, .dim = {dim0, dim1 ? dim1 : 1, 1, 1}};
    t.data = guarded_alloc(orth_tensor_bytes(&t));
    return t;
}

/* Uniform in [-scale, scale); fp32 or bf16. */
static inline orth_tensor case_random(orth_dtype type, int64_t dim0, int64_t dim1, uint64_t seed, float scale)
{
    orth_tensor t = case_tensor(type, dim0, dim1);
    for (int64_t i = 0; i < orth_tensor_elems(&t); i++)
        orth_store_f32(t.data, type, i, scale * test_rand(seed, (uint64_t)i));
    return t;
}

/* Numbers of very different size, so that the order of a sum shows in its last bits. */
static inline orth_tensor case_doubles(int64_t n, uint64_t seed)
{
    orth_tensor t = case_tensor(ORTH_F64, n, 0);
    for (int64_t i = 0; i < n; i++)
        ((double *)t.data)[i] = (double)test_rand(seed, (uint64_t)i) * (i % 3 ? 1e-9 : 1);
    return t;
}

/* Integers in [lo, hi]. */
static inline orth_tensor case_ints(int64_t n, uint64_t seed, int64_t lo, int64_t hi)
{
    orth_tensor t = case_tensor(ORTH_I32, n, 0);
    for (int64_t i = 0; i < n; i++)
        ((int32_t *)t.data)[i] = (int32_t)test_rand_int(seed, (uint64_t)i, lo, hi);
    return t;
}

static inline orth_tensor case_step(const orth_step_values *values)
{
    orth_tensor t = case_tensor(ORTH_U8, sizeof *values, 0);
    memcpy(t.data, values, sizeof *values);
    return t;
}

static inline orth_tensor case_copy(const orth_tensor *from)
{
    orth_tensor t = *from;
    if (from->data) {
        t.data = guarded_alloc(orth_tensor_bytes(from));
        memcpy(t.data, from->data, orth_tensor_bytes(from));
    }
    return t;
}

typedef struct {
    const char *name;
    orth_kernel_fn ref, cpu;
    orth_workspace_fn workspace; /* NULL: none */
    orth_tensor in[ORTH_OP_MAX_IN], out[ORTH_OP_MAX_OUT];
    int num_in, num_out;
    orth_attr attr;
    bool by_isa;                 /* the bits are those of the reference at the same instruction set (gemm.h) */
    float tolerance;             /* above AVX512, where attention of bf16 has bits of its own; 0: none */
    int alias;                   /* input whose memory output 0 shares; 0 or less: none (1 + index) */
} kernel_case;

/* Into `out`. */
static inline void case_call_cpu(kernel_case *k, orth_ctx *ctx, orth_isa isa, orth_tensor *out)
{
    orth_tensor in[ORTH_OP_MAX_IN];
    memcpy(in, k->in, sizeof in);
    for (int i = 0; i < k->num_out; i++)
        out[i] = case_copy(&k->out[i]);
    if (k->alias > 0) {
        memcpy(out[0].data, in[k->alias - 1].data, orth_tensor_bytes(&out[0]));
        in[k->alias - 1].data = out[0].data;
    }
    ctx->isa = isa;
    orth_op_call call = {in, out, k->num_in, k->num_out, &k->attr, NULL};
    size_t bytes = k->workspace ? k->workspace(&call, orth_pool_num_threads(ctx->pool), isa) : 0;
    call.workspace = guarded_alloc(bytes);
    memset(call.workspace, 0xEE, bytes);
    CHECK_OK(ctx, k->cpu(ctx, &call));
    guarded_check(call.workspace, bytes, k->name);
    guarded_free(call.workspace);
}

/* Each output within the tolerance, of its largest element. */
static inline void case_near(const kernel_case *k, orth_isa isa, const orth_tensor *out, const orth_tensor *want)
{
    for (int i = 0; i < k->num_out; i++) {
        const orth_tensor *t = &want[i];
        float most = 0, apart = 0;
        for (int64_t e = 0; t->data && (t->dtype == ORTH_F32 || t->dtype == ORTH_BF16 || t->dtype == ORTH_F16) && e < orth_tensor_elems(t); e++) {
            const float w = orth_load_f32(t->data, t->dtype, e), d = orth_load_f32(out[i].data, t->dtype, e) - w;
            most = ORTH_MAX(most, w < 0 ? -w : w);
            apart = d < 0 ? ORTH_MAX(apart, -d) : d <= 1e30f ? ORTH_MAX(apart, d) : 1e30f; /* NaN, too */
        }
        if (apart > k->tolerance * ORTH_MAX(most, 1))
            fail_msg("%s on %s: output %d is off by %g of %g", k->name, orth_isa_name(isa), i, (double)apart, (double)most);
    }
}

static inline double case_element(const orth_tensor *t, size_t e)
{
    return t->dtype == ORTH_F64 ? ((const double *)t->data)[e] : (double)orth_load_f32(t->data, t->dtype, (int64_t)e);
}

/* Two NaN are equal: which of several comes out of a sum depends on the order of its operands, which the compiler chooses. */
static inline bool case_is_equal(const orth_tensor *a, const orth_tensor *b, size_t e)
{
    const size_t size = orth_dtype_bytes(a->dtype);
    const bool real = a->dtype == ORTH_F32 || a->dtype == ORTH_BF16 || a->dtype == ORTH_F16 || a->dtype == ORTH_F64;
    return memcmp((const char *)a->data + e * size, (const char *)b->data + e * size, size) == 0 ||
           (real && isnan(case_element(a, e)) && isnan(case_element(b, e)));
}

static inline void case_run_cpu(kernel_case *k, orth_ctx *ctx, orth_isa isa, const orth_tensor *want)
{
    orth_tensor out[ORTH_OP_MAX_OUT];
    case_call_cpu(k, ctx, isa, out);
    for (int i = 0; i < k->num_out; i++) {
        if (!out[i].data)
            continue;
        const size_t n = orth_tensor_bytes(&out[i]), num = n / orth_dtype_bytes(out[i].dtype);
        size_t at = memcmp(out[i].data, want[i].data, n) == 0 ? num : 0;
        guarded_check(out[i].data, n, k->name);
        while (at < num && case_is_equal(&out[i], &want[i], at))
            at++;
        if (at < num)
            fail_msg("%s on %s, %d threads: output %d differs from the reference at element %zu of %zu: %a, not %a", k->name, orth_isa_name(isa),
                     orth_pool_num_threads(ctx->pool), i, at, num, case_element(&out[i], at), case_element(&want[i], at));
        guarded_free(out[i].data);
    }
}

/* Runs the reference into fresh outputs (in `want`, to be freed by case_free_outputs). */
static inline void case_run_ref(kernel_case *k, orth_ctx *ctx, orth_tensor *want)
{
    for (int i = 0; i < k->num_out; i++)
        want[i] = case_copy(&k->out[i]);
    orth_op_call call = {k->in, want, k->num_in, k->num_out, &k->attr, NULL};
    CHECK_OK(ctx, k->ref(ctx, &call));
    for (int i = 0; i < k->num_out; i++)
        if (want[i].data)
            guarded_check(want[i].data, orth_tensor_bytes(&want[i]), k->name);
}

static inline void case_free(orth_tensor *t, int n)
{
    for (int i = 0; i < n; i++)
        guarded_free(t[i].data);
}

/* Reference against fast kernel everywhere; then frees the case's tensors. */
static inline void case_check(kernel_case *k, case_pool *pool)
{
    orth_tensor want[ORTH_OP_MAX_OUT];
    orth_isa top = orth_isa_detect();
    case_run_ref(k, pool->ctx[0], want);
    for (orth_isa isa = ORTH_ISA_BASE; isa <= top; isa++) {
        const bool near = k->tolerance > 0 && isa > ORTH_ISA_AVX512;
        orth_tensor own[ORTH_OP_MAX_OUT];
        if (k->by_isa) {
            case_free(want, k->num_out);
            pool->ctx[0]->isa = isa;
            case_run_ref(k, pool->ctx[0], want);
        }
        if (near) {
            case_call_cpu(k, pool->ctx[0], isa, own);
            case_near(k, isa, own, want);
        }
        for (int t = 0; t < CASE_THREADS; t++)
            case_run_cpu(k, pool->ctx[t], isa, near ? own : want);
        if (near)
            case_free(own, k->num_out);
    }
    for (int t = 0; t < CASE_THREADS; t++)
        pool->ctx[t]->isa = top;
    case_free(want, k->num_out);
    case_free(k->in, k->num_in);
    case_free(k->out, k->num_out);
}

#define KERNEL_CASE(op) .name = #op, .ref = orth_ref_##op, .cpu = orth_cpu_##op

#endif
