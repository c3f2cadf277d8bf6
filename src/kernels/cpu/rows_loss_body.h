/* rows_loss_body.h -- softmax cross-entropy of one row; formulas: ref/loss.c. */

/* + 0: a zero has one sign, whoever finds it. */
static float row_max(const float *row, int64_t n)
{
    v16 m = v_set(-__builtin_inff());
#define STEP(k) m = v_max(v_fill(v_ld_f32(row + i, k), k, -__builtin_inff()), m)
    LANES_FOR(n, STEP);
#undef STEP
    return v_max_all(m) + 0.0f;
}

/* Keeps the exponentials in e, if there is one. */
LANES_INLINE float row_exp_sum(const float *row, float *e, int64_t n, float max)
{
    const v16 top = v_set(max);
    v16 sum = v_set(0);
#define STEP(k)                                                     \
    {                                                               \
        v16 x = v_keep(v_exp(v_sub(v_ld_f32(row + i, k), top)), k); \
        sum = v_add(sum, x);                                        \
        if (e)                                                      \
            v_st_f32(e + i, x, k);                                  \
    }
    LANES_FOR(n, STEP);
#undef STEP
    return v_sum(sum);
}

/* The tree over canonical parts, as a binary counter over finished sums. */
static float row_exp_tree(const float *row, float *e, const orth_split *split, float max)
{
    float stack[64];
    int depth = 0;
    const int64_t leaves = orth_split_leaves(split);
    for (int64_t p = 0; p < leaves; p++) {
        const int64_t begin = orth_split_bound(split, p), end = orth_split_bound(split, p + 1);
        stack[depth++] = row_exp_sum(row + begin, e ? e + begin : NULL, end - begin, max);
        for (int64_t full = p + 1; full % 2 == 0; full /= 2, depth--)
            stack[depth - 2] += stack[depth - 1];
    }
    for (; depth > 1; depth--)
        stack[depth - 2] += stack[depth - 1];
    /* cppcheck-suppress uninitvar ; there is a leaf */
    return stack[0];
}

/* dst = e * inv * scale; dst may be e. */
LANES_INLINE void row_softmax_grad(void *dst, const float *e, int64_t n, float inv, float scale,
                                   const orth_dtype type)
{
    const v16 by = v_set(inv), times = v_set(scale);
#define STEP(k) v_st(dst, type, i, v_mul(v_mul(v_ld_f32(e + i, k), by), times), k)
    LANES_FOR(n, STEP);
#undef STEP
}

static void row_of_zeros(const rows_xent_args *a, int64_t n)
{
    const size_t bytes = (size_t)a->V * rows_bytes(a->type);
    a->nll[n] = 0;
    if (a->dlogits)
        memset((char *)a->dlogits + (size_t)n * bytes, 0, bytes);
}

static void rows_softmax_xent(const rows_xent_args *a, int64_t n, float *scratch)
{
    const float *row = a->logits + n * a->V, weight = a->weight[n];
    const size_t bytes = rows_bytes(a->type);
    char *dst = a->dlogits ? (char *)a->dlogits + (size_t)(n * a->V) * bytes : NULL;
    if (weight == 0) {
        row_of_zeros(a, n);
        return;
    }
    const int32_t target = a->target[n];
    /* The gradient needs the exponentials once more: they wait where it will be, or in the scratch. */
    float *e = !dst ? NULL : a->type != ORTH_F32 ? scratch : (float *)(void *)dst;
    const float max = row_max(row, a->V), sum = row_exp_tree(row, e, &a->split, max);
    a->nll[n] = weight * (max + orth_logf(sum) - row[target]);
    if (!dst)
        return;
    const float inv = 1.0f / sum, scale = weight * a->loss_scale,
                at_target = (e[target] * inv - 1.0f) * scale;
    LANES_TYPED(a->type, row_softmax_grad, dst, e, a->V, inv, scale);
    orth_store_f32(dst, a->type, target, at_target);
}

/* ---- in three steps, for a slice of the vocabulary ---- */

static void rows_xent_max(const rows_xent_args *a, int64_t n)
{
    a->max[n] = row_max(a->logits + n * a->V, a->V);
}

static void rows_xent_sum(const rows_xent_args *a, int64_t n)
{
    const float *row = a->logits + n * a->V;
    const int64_t v = a->target[n] - a->first_row;
    a->sums[2 * n] = row_exp_tree(row, NULL, &a->split, a->max[n]);
    a->sums[2 * n + 1] = v >= 0 && v < a->V ? row[v] : 0.0f;
}

/* As row_softmax_grad of the exponentials, made again. */
LANES_INLINE void row_exp_grad(void *dst, const float *row, int64_t n, float max, float inv, float scale,
                               const orth_dtype type)
{
    const v16 top = v_set(max), by = v_set(inv), times = v_set(scale);
#define STEP(k) v_st(dst, type, i, v_mul(v_mul(v_exp(v_sub(v_ld_f32(row + i, k), top)), by), times), k)
    LANES_FOR(n, STEP);
#undef STEP
}

static void rows_xent_grad(const rows_xent_args *a, int64_t n)
{
    const float *row = a->logits + n * a->V, weight = a->weight[n], max = a->max[n], sum = a->sums[2 * n];
    if (weight == 0) {
        row_of_zeros(a, n);
        return;
    }
    a->nll[n] = weight * (max + orth_logf(sum) - a->sums[2 * n + 1]);
    if (!a->dlogits)
        return;
    char *dst = (char *)a->dlogits + (size_t)(n * a->V) * rows_bytes(a->type);
    const float inv = 1.0f / sum, scale = weight * a->loss_scale;
    const int64_t v = a->target[n] - a->first_row;
    const bool here = v >= 0 && v < a->V;
    const float at_target = here ? (orth_expf(row[v] - max) * inv - 1.0f) * scale : 0.0f;
    LANES_TYPED(a->type, row_exp_grad, dst, row, a->V, max, inv, scale);
    if (here)
        orth_store_f32(dst, a->type, v, at_target);
}
