/* rows_norm_body.h -- LayerNorm and RMSNorm. Formulas: ref/norm.c.
 *
 * A row stays in cache between its passes, so each costs one read of memory. Four rows go side by side:
 * the sum of one row is a chain of dependent additions, four keep the adders busy. */

#define NORM_ROWS 4
#define EACH_ROW _Pragma("GCC unroll 4") for (int r = 0; r < R; r++)

/* Start of row n of an activation [N,C]. */
LANES_INLINE char *norm_row_at(const void *p, int64_t n, int64_t C, const orth_dtype type)
{
    return (char *)(uintptr_t)p + (size_t)(n * C) * rows_bytes(type);
}

LANES_INLINE void norm_means(float *mean, const char *s, int64_t C, const orth_dtype type, const int R)
{
    v16 sum[NORM_ROWS];
    EACH_ROW sum[r] = v_set(0);
#define STEP(k) EACH_ROW sum[r] = v_add(sum[r], v_ld(s, type, r * C + i, k))
    LANES_FOR(C, STEP);
#undef STEP
    EACH_ROW mean[r] = v_sum(sum[r]) / (float)C;
}

LANES_INLINE void norm_rstds(float *rstd, const float *mean, const char *s, int64_t C, float eps,
                             const orth_dtype type, const int R)
{
    v16 sum[NORM_ROWS], mu[NORM_ROWS];
    EACH_ROW {
        sum[r] = v_set(0);
        mu[r] = v_set(mean[r]);
    }
#define STEP(k)                                                         \
    EACH_ROW {                                                          \
        v16 d = v_keep(v_sub(v_ld(s, type, r * C + i, k), mu[r]), k);   \
        sum[r] = v_fma(d, d, sum[r]);                                   \
    }
    LANES_FOR(C, STEP);
#undef STEP
    EACH_ROW rstd[r] = 1.0f / sqrtf(v_sum(sum[r]) / (float)C + eps);
}

LANES_INLINE void norm_write(char *y, const char *s, const rows_norm_args *a, float mean, float rstd,
                             const orth_dtype type)
{
    const v16 mu = v_set(mean), scale = v_set(rstd);
#define XHAT(k) v_mul(v_sub(v_ld(s, type, i, k), mu), scale)
    if (a->shift) {
#define STEP(k) v_st(y, type, i, v_fma(XHAT(k), v_ld_f32(a->gain + i, k), v_ld_f32(a->shift + i, k)), k)
        LANES_FOR(a->C, STEP);
#undef STEP
    } else {
#define STEP(k) v_st(y, type, i, v_mul(XHAT(k), v_ld_f32(a->gain + i, k)), k)
        LANES_FOR(a->C, STEP);
#undef STEP
    }
#undef XHAT
}

/* Rows n .. n + R - 1. */
LANES_INLINE void norm_some(const rows_norm_args *a, int64_t n, const orth_dtype type, const int R)
{
    const int64_t C = a->C;
    const char *s = norm_row_at(a->x, n, C, type);
    float mean[NORM_ROWS] = {0}, rstd[NORM_ROWS];
    if (a->sum) {
        char *sum = norm_row_at(a->sum, n, C, type);
        if (a->res)
            add_loop(sum, s, norm_row_at(a->res, n, C, type), R * C, type);
        else
            memcpy(sum, s, (size_t)(R * C) * rows_bytes(type));
        s = sum;
    }
    if (a->centred)
        norm_means(mean, s, C, type, R);
    norm_rstds(rstd, mean, s, C, a->eps, type, R);
    for (int r = 0; r < R; r++) {
        norm_write(norm_row_at(a->y, n + r, C, type), norm_row_at(s, r, C, type), a, mean[r], rstd[r], type);
        a->stats[2 * (n + r)] = mean[r];
        a->stats[2 * (n + r) + 1] = rstd[r];
    }
}

LANES_INLINE void norm_loop(const rows_norm_args *a, int64_t begin, int64_t end, const orth_dtype type)
{
    int64_t n = begin;
    for (; n + NORM_ROWS <= end; n += NORM_ROWS)
        norm_some(a, n, type, NORM_ROWS);
    for (; n < end; n++)
        norm_some(a, n, type, 1);
}

static void rows_norm(const rows_norm_args *a, int64_t begin, int64_t end)
{
    LANES_TYPED(a->type, norm_loop, a, begin, end);
}

/* ---- backward ---- */

LANES_INLINE void norm_bwd_write(const rows_norm_bwd_args *a, int64_t n, float mean_g, float mean_gx,
                                 const orth_dtype type)
{
    const int64_t C = a->C;
    const char *dy = norm_row_at(a->dy, n, C, type), *s = norm_row_at(a->sum, n, C, type);
    const char *dres = a->dres ? norm_row_at(a->dres, n, C, type) : NULL;
    char *dx = norm_row_at(a->dx, n, C, type);
    const v16 mu = v_set(a->stats[2 * n]), rstd = v_set(a->stats[2 * n + 1]), mg = v_set(mean_g),
              mgx = v_set(mean_gx);
#define STEP(k)                                                             \
    {                                                                       \
        v16 x = v_mul(v_sub(v_ld(s, type, i, k), mu), rstd);                \
        v16 g = v_mul(v_ld(dy, type, i, k), v_ld_f32(a->gain + i, k));      \
        v16 t = v_fnma(x, mgx, v_sub(g, mg));                               \
        v_st(dx, type, i, dres ? v_fma(rstd, t, v_ld(dres, type, i, k)) : v_mul(rstd, t), k); \
    }
    LANES_FOR(C, STEP);
#undef STEP
}

/* Rows n .. n + R - 1. With `sums`, the first pass also adds the rows, in order, to the column chains: it
 * has xhat at hand. */
LANES_INLINE void norm_bwd_some(const rows_norm_bwd_args *a, int64_t n, float *dgain, float *dshift,
                                const bool sums, const orth_dtype type, const int R)
{
    const int64_t C = a->C;
    const char *dy = norm_row_at(a->dy, n, C, type), *s = norm_row_at(a->sum, n, C, type);
    v16 mu[NORM_ROWS], rstd[NORM_ROWS], sum_g[NORM_ROWS], sum_gx[NORM_ROWS];
    EACH_ROW {
        mu[r] = v_set(a->stats[2 * (n + r)]);
        rstd[r] = v_set(a->stats[2 * (n + r) + 1]);
        sum_g[r] = sum_gx[r] = v_set(0);
    }
#define STEP(k)                                                             \
    {                                                                       \
        v16 gain = v_ld_f32(a->gain + i, k), chain_g = gain, chain_s = gain; \
        if (sums)                                                           \
            chain_g = v_ld_f32(dgain + i, k);                               \
        if (sums && dshift)                                                 \
            chain_s = v_ld_f32(dshift + i, k);                              \
        EACH_ROW {                                                          \
            v16 d = v_ld(dy, type, r * C + i, k), g = v_mul(d, gain);       \
            v16 x = v_mul(v_sub(v_ld(s, type, r * C + i, k), mu[r]), rstd[r]); \
            sum_g[r] = v_add(sum_g[r], g);                                  \
            sum_gx[r] = v_fma(g, x, sum_gx[r]);                             \
            chain_g = v_fma(d, x, chain_g);                                 \
            chain_s = v_add(chain_s, d);                                    \
        }                                                                   \
        if (sums)                                                           \
            v_st_f32(dgain + i, chain_g, k);                                \
        if (sums && dshift)                                                 \
            v_st_f32(dshift + i, chain_s, k);                               \
    }
    LANES_FOR(C, STEP);
#undef STEP
    for (int r = 0; r < R; r++)
        norm_bwd_write(a, n + r, a->centred ? v_sum(sum_g[r]) / (float)C : 0.0f, v_sum(sum_gx[r]) / (float)C,
                       type);
}

LANES_INLINE void norm_bwd_loop(const rows_norm_bwd_args *a, int64_t begin, int64_t end, float *dgain,
                                float *dshift, const bool sums, const orth_dtype type)
{
    int64_t n = begin;
    for (; n + NORM_ROWS <= end; n += NORM_ROWS)
        norm_bwd_some(a, n, dgain, dshift, sums, type, NORM_ROWS);
    for (; n < end; n++)
        norm_bwd_some(a, n, dgain, dshift, sums, type, 1);
}

static void rows_norm_bwd(const rows_norm_bwd_args *a, int64_t begin, int64_t end)
{
    LANES_TYPED(a->type, norm_bwd_loop, a, begin, end, NULL, NULL, false);
}

static void rows_norm_bwd_sums(const rows_norm_bwd_args *a, int64_t begin, int64_t end, float *dgain,
                               float *dshift)
{
    LANES_TYPED(a->type, norm_bwd_loop, a, begin, end, dgain, dshift, true);
}

/* Adds rows n .. n + R - 1 to the chains of columns [first, first + cols). */
LANES_INLINE void norm_bwd_columns_some(const rows_norm_bwd_args *a, int64_t n, int64_t first, int64_t cols,
                                        float *dgain, float *dshift, const orth_dtype type, const int R)
{
    const int64_t at = n * a->C + first;
    v16 mu[NORM_ROWS], rstd[NORM_ROWS];
    EACH_ROW {
        mu[r] = v_set(a->stats[2 * (n + r)]);
        rstd[r] = v_set(a->stats[2 * (n + r) + 1]);
    }
#define STEP(k)                                                             \
    {                                                                       \
        v16 gain = v_ld_f32(dgain + i, k), shift = gain;                    \
        if (dshift)                                                         \
            shift = v_ld_f32(dshift + i, k);                                \
        EACH_ROW {                                                          \
            v16 d = v_ld(a->dy, type, at + r * a->C + i, k);                \
            v16 x = v_mul(v_sub(v_ld(a->sum, type, at + r * a->C + i, k), mu[r]), rstd[r]); \
            gain = v_fma(d, x, gain);                                       \
            shift = v_add(shift, d);                                        \
        }                                                                   \
        v_st_f32(dgain + i, gain, k);                                       \
        if (dshift)                                                         \
            v_st_f32(dshift + i, shift, k);                                 \
    }
    LANES_FOR(cols, STEP);
#undef STEP
}

LANES_INLINE void norm_bwd_columns_loop(const rows_norm_bwd_args *a, int64_t begin, int64_t end,
                                        int64_t first, int64_t n, float *dgain, float *dshift,
                                        const orth_dtype type)
{
    int64_t r = begin;
    memset(dgain, 0, (size_t)n * sizeof *dgain);
    if (dshift)
        memset(dshift, 0, (size_t)n * sizeof *dshift);
    for (; r + NORM_ROWS <= end; r += NORM_ROWS)
        norm_bwd_columns_some(a, r, first, n, dgain, dshift, type, NORM_ROWS);
    for (; r < end; r++)
        norm_bwd_columns_some(a, r, first, n, dgain, dshift, type, 1);
}

static void rows_norm_bwd_columns(const rows_norm_bwd_args *a, int64_t begin, int64_t end, int64_t first,
                                  int64_t n, float *dgain, float *dshift)
{
    LANES_TYPED(a->type, norm_bwd_columns_loop, a, begin, end, first, n, dgain, dshift);
}
