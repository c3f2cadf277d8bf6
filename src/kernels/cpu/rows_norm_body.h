/* rows_norm_body.h -- LayerNorm and RMSNorm. Formulas: ref/norm.c. A row stays in cache between its
 * passes, so each costs one read of memory. */

LANES_INLINE float norm_mean(const void *s, int64_t C, const bool bf16)
{
    v16 sum = v_set(0);
#define STEP(k) sum = v_add(sum, v_ld(s, bf16, i, k))
    LANES_FOR(C, STEP);
#undef STEP
    return v_sum(sum) / (float)C;
}

LANES_INLINE float norm_rstd(const void *s, float mean, int64_t C, float eps, const bool bf16)
{
    const v16 mu = v_set(mean);
    v16 sum = v_set(0), d;
#define STEP(k) (d = v_keep(v_sub(v_ld(s, bf16, i, k), mu), k), sum = v_fma(d, d, sum))
    LANES_FOR(C, STEP);
#undef STEP
    return 1.0f / sqrtf(v_sum(sum) / (float)C + eps);
}

LANES_INLINE void norm_row(const rows_norm_args *a, int64_t n, const bool bf16)
{
    const int64_t C = a->C;
    const size_t row = (size_t)(n * C) * (bf16 ? 2 : 4);
    const char *s = (const char *)a->x + row;
    char *y = (char *)a->y + row;
    if (a->sum) {
        char *sum = (char *)a->sum + row;
        if (a->res)
            add_loop(sum, s, (const char *)a->res + row, C, bf16);
        else
            memcpy(sum, s, (size_t)C * (bf16 ? 2 : 4));
        s = sum;
    }
    const float mean = a->centred ? norm_mean(s, C, bf16) : 0.0f;
    const float rstd = norm_rstd(s, mean, C, a->eps, bf16);
    const v16 mu = v_set(mean), r = v_set(rstd);
    if (a->shift) {
#define STEP(k)                                                                     \
    v_st(y, bf16, i, v_fma(v_mul(v_sub(v_ld(s, bf16, i, k), mu), r), v_ld_f32(a->gain + i, k), \
                           v_ld_f32(a->shift + i, k)), k)
        LANES_FOR(C, STEP);
#undef STEP
    } else {
#define STEP(k) v_st(y, bf16, i, v_mul(v_mul(v_sub(v_ld(s, bf16, i, k), mu), r), v_ld_f32(a->gain + i, k)), k)
        LANES_FOR(C, STEP);
#undef STEP
    }
    a->stats[2 * n] = mean;
    a->stats[2 * n + 1] = rstd;
}

static void rows_norm(const rows_norm_args *a, int64_t begin, int64_t end)
{
    for (int64_t n = begin; n < end; n++) {
        if (a->bf16)
            norm_row(a, n, true);
        else
            norm_row(a, n, false);
    }
}

/* With `sums`, the first pass also adds the row to the column chains: it has xhat at hand. */
LANES_INLINE void norm_bwd_row(const rows_norm_bwd_args *a, int64_t n, float *dgain, float *dshift, const bool sums,
                               const bool bf16)
{
    const int64_t C = a->C;
    const size_t row = (size_t)(n * C) * (bf16 ? 2 : 4);
    const char *dy = (const char *)a->dy + row, *s = (const char *)a->sum + row;
    const v16 mu = v_set(a->stats[2 * n]), rstd = v_set(a->stats[2 * n + 1]);
    v16 sum_g = v_set(0), sum_gx = v_set(0);
#define STEP(k)                                                             \
    {                                                                       \
        v16 d = v_ld(dy, bf16, i, k), x = v_mul(v_sub(v_ld(s, bf16, i, k), mu), rstd); \
        v16 g = v_mul(d, v_ld_f32(a->gain + i, k));                         \
        sum_g = v_add(sum_g, g);                                            \
        sum_gx = v_fma(g, x, sum_gx);                                       \
        if (sums)                                                           \
            v_st_f32(dgain + i, v_fma(d, x, v_ld_f32(dgain + i, k)), k);    \
        if (sums && dshift)                                                 \
            v_st_f32(dshift + i, v_add(v_ld_f32(dshift + i, k), d), k);     \
    }
    LANES_FOR(C, STEP);
#undef STEP
    const v16 mean_g = v_set(a->centred ? v_sum(sum_g) / (float)C : 0.0f), mean_gx = v_set(v_sum(sum_gx) / (float)C);
    char *dx = (char *)a->dx + row;
    const char *dres = a->dres ? (const char *)a->dres + row : NULL;
#define STEP(k)                                                             \
    {                                                                       \
        v16 x = v_mul(v_sub(v_ld(s, bf16, i, k), mu), rstd);                \
        v16 g = v_mul(v_ld(dy, bf16, i, k), v_ld_f32(a->gain + i, k));      \
        v16 t = v_fnma(x, mean_gx, v_sub(g, mean_g));                       \
        v_st(dx, bf16, i, dres ? v_fma(rstd, t, v_ld(dres, bf16, i, k)) : v_mul(rstd, t), k); \
    }
    LANES_FOR(C, STEP);
#undef STEP
}

static void rows_norm_bwd(const rows_norm_bwd_args *a, int64_t begin, int64_t end)
{
    for (int64_t n = begin; n < end; n++) {
        if (a->bf16)
            norm_bwd_row(a, n, NULL, NULL, false, true);
        else
            norm_bwd_row(a, n, NULL, NULL, false, false);
    }
}

static void rows_norm_bwd_sums(const rows_norm_bwd_args *a, int64_t begin, int64_t end, float *dgain, float *dshift)
{
    for (int64_t n = begin; n < end; n++) {
        if (a->bf16)
            norm_bwd_row(a, n, dgain, dshift, true, true);
        else
            norm_bwd_row(a, n, dgain, dshift, true, false);
    }
}

LANES_INLINE void norm_bwd_columns_loop(const rows_norm_bwd_args *a, int64_t begin, int64_t end, int64_t first,
                                        int64_t n, float *dgain, float *dshift, const bool bf16)
{
    for (int64_t c = 0; c < n; c += 16) {
        const int k = (int)ORTH_MIN(16, n - c);
        v16 gain = v_set(0), shift = v_set(0);
        for (int64_t r = begin; r < end; r++) {
            int64_t at = r * a->C + first + c;
            v16 d = v_ld(a->dy, bf16, at, k);
            v16 x = v_mul(v_sub(v_ld(a->sum, bf16, at, k), v_set(a->stats[2 * r])), v_set(a->stats[2 * r + 1]));
            gain = v_fma(d, x, gain);
            shift = v_add(shift, d);
        }
        v_st_f32(dgain + c, gain, k);
        if (dshift)
            v_st_f32(dshift + c, shift, k);
    }
}

static void rows_norm_bwd_columns(const rows_norm_bwd_args *a, int64_t begin, int64_t end, int64_t first, int64_t n,
                                  float *dgain, float *dshift)
{
    if (a->bf16)
        norm_bwd_columns_loop(a, begin, end, first, n, dgain, dshift, true);
    else
        norm_bwd_columns_loop(a, begin, end, first, n, dgain, dshift, false);
}
