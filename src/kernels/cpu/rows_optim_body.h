/* rows_optim_body.h -- sum of squares; AdamW, Adam, SGD. Formulas: ref/optim.c. */

#define SQUARES_RUN 1024 /* elements gathered at once; a multiple of the lanes */
#define SQUARES_AHEAD 2048 /* elements from what is read to what is asked for: of one stream processors fetch too little */

LANES_INLINE d16 add_squares(d16 sum, const float *g, int64_t n)
{
#define STEP(k) __builtin_prefetch(g + i + SQUARES_AHEAD, 0, 2), sum = d_add_square(sum, v_ld_f32(g + i, k))
    LANES_FOR(n, STEP);
#undef STEP
    return sum;
}

/* Rows whose length is no multiple of the lanes are gathered first: an element's lane is its place in the
 * block, so that a block has one sum whether it is cut out of a wider matrix or lies alone. */
LANES_INLINE d16 add_squares_gathered(d16 sum, const float *g, int64_t stride, int64_t rows, int64_t n)
{
    float run[SQUARES_RUN];
    int64_t held = 0;
    for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0, k; c < n; c += k) {
            k = ORTH_MIN(n - c, SQUARES_RUN - held);
            memcpy(run + held, g + r * stride + c, (size_t)k * sizeof *run);
            held += k;
            if (held == SQUARES_RUN) {
                sum = add_squares(sum, run, held);
                held = 0;
            }
        }
    return add_squares(sum, run, held);
}

static double rows_sum_squares(const float *g, int64_t stride, int64_t rows, int64_t n)
{
    d16 sum = d_zero();
    double lane[ORTH_LANES];
    if (stride == n || rows == 1)
        sum = add_squares(sum, g, rows * n);
    else if (n % ORTH_LANES == 0)
        for (int64_t r = 0; r < rows; r++)
            sum = add_squares(sum, g + r * stride, n);
    else
        sum = add_squares_gathered(sum, g, stride, rows, n);
    d_store(lane, sum);
    return orth_lanes_fold_f64(lane);
}

LANES_INLINE void adam_loop(const rows_optim_args *a, int64_t begin, int64_t n, const bool decoupled, const orth_dtype copy_type)
{
    const orth_optim_values *o = &a->o;
    const v16 g_scale = v_set(o->g_scale), keep = v_set(o->keep), l2 = v_set(o->l2);
    const v16 beta1 = v_set(o->beta1), new1 = v_set(o->new1), beta2 = v_set(o->beta2), new2 = v_set(o->new2);
    const v16 step_size = v_set(o->step_size), root_scale = v_set(o->root_scale), eps = v_set(o->eps);
    const float *grad = a->g + begin;
    float *p = a->p + begin, *m = a->m + begin, *v = a->v + begin;
    void *copy = a->copy ? (char *)a->copy + (size_t)begin * rows_bytes(copy_type) : NULL;
#define STEP(k)                                                                     \
    {                                                                               \
        v16 g = v_mul(v_ld_f32(grad + i, k), g_scale), w = v_ld_f32(p + i, k);      \
        if (decoupled)                                                              \
            w = v_mul(w, keep);                                                     \
        else                                                                        \
            g = v_fma(l2, w, g);                                                    \
        v16 m1 = v_fma(beta1, v_ld_f32(m + i, k), v_mul(new1, g));                  \
        v16 v1 = v_fma(beta2, v_ld_f32(v + i, k), v_mul(v_mul(new2, g), g));        \
        w = v_fnma(step_size, v_div(m1, v_fma(v_sqrt(v1), root_scale, eps)), w);    \
        v_st_f32(m + i, m1, k);                                                     \
        v_st_f32(v + i, v1, k);                                                     \
        v_st_f32(p + i, w, k);                                                      \
        if (copy)                                                                   \
            v_st(copy, copy_type, i, w, k);                                         \
    }
    LANES_FOR(n, STEP);
#undef STEP
}

static void rows_adamw(const rows_optim_args *a, int64_t begin, int64_t n)
{
    LANES_TYPED(a->copy_type, adam_loop, a, begin, n, true);
}

static void rows_adam(const rows_optim_args *a, int64_t begin, int64_t n)
{
    LANES_TYPED(a->copy_type, adam_loop, a, begin, n, false);
}

LANES_INLINE void sgd_loop(const rows_optim_args *a, int64_t begin, int64_t n, const orth_dtype copy_type)
{
    const orth_optim_values *o = &a->o;
    const v16 g_scale = v_set(o->g_scale), l2 = v_set(o->l2), momentum = v_set(o->momentum),
              lr = v_set(o->lr);
    const float *grad = a->g + begin;
    float *p = a->p + begin, *m = a->m ? a->m + begin : NULL;
    void *copy = a->copy ? (char *)a->copy + (size_t)begin * rows_bytes(copy_type) : NULL;
#define STEP(k)                                                                     \
    {                                                                               \
        v16 w = v_ld_f32(p + i, k), g = v_fma(l2, w, v_mul(v_ld_f32(grad + i, k), g_scale)); \
        v16 m1 = m ? v_fma(momentum, v_ld_f32(m + i, k), g) : g;                    \
        w = v_fnma(lr, m && o->nesterov ? v_fma(momentum, m1, g) : m1, w);          \
        if (m)                                                                      \
            v_st_f32(m + i, m1, k);                                                 \
        v_st_f32(p + i, w, k);                                                      \
        if (copy)                                                                   \
            v_st(copy, copy_type, i, w, k);                                         \
    }
    LANES_FOR(n, STEP);
#undef STEP
}

static void rows_sgd(const rows_optim_args *a, int64_t begin, int64_t n)
{
    LANES_TYPED(a->copy_type, sgd_loop, a, begin, n);
}
