/* test_attention_double.c -- attention against double precision: its gradients, and how exact fp32 is in pieces. */
#include "attention_case.h"

/* sum(dout * o) in double, with qkv[at] moved by `by`. */
static double loss_in_double(const problem *p, int64_t at, double by)
{
    const int D = p->s.D, T = p->s.T, G = p->s.H / p->s.KV;
    double total = 0, score[64];
#define X(i) ((double)((float *)p->qkv)[i] + ((i) == at ? by : 0.0))
    for (int64_t n = 0; n < p->N; n++)
        for (int h = 0; h < p->s.H; h++) {
            int64_t b = n / T, pos = orth_fold_pos(T, p->s.P, n % T),
                    q = n * p->R + orth_attn_q_col(&p->attr, h);
            double sum = 0, out = 0;
            orth_attn_drop drop = orth_attn_drop_row(&p->attr, &p->step, h, p->seq[b], pos);
            for (int64_t k = p->s.doc ? p->doc[n] : 0; k <= pos; k++) {
                int64_t row = (b * T + orth_fold_row(T, p->s.P, k)) * p->R,
                        kc = row + orth_attn_k_col(&p->attr, h / G);
                float f[4] = {1, 1, 1, 1};
                if (p->s.dropout > 0)
                    orth_attn_drop_keys(&drop, k / 4 * 4, f);
                double s = 0, dp = 0;
                for (int d = 0; d < D; d++) {
                    s += X(q + d) * X(kc + d);
                    dp += (double)((float *)p->dout)[(n * p->s.H + h) * D + d] * X(kc + D + d);
                }
                score[k] = exp(s * (double)p->attr.scale);
                sum += score[k];
                out += score[k] * (double)f[k % 4] * dp;
            }
            total += out / sum;
        }
#undef X
    return total;
}

TEST(gradients_are_those_of_finite_differences)
{
    static const shape cases[] = {
        {ORTH_F32, 2, 13, 2, 1, 6, 2, false, 0}, {ORTH_F32, 1, 17, 2, 2, 5, 4, true, 0},
        {ORTH_F32, 1, 12, 2, 1, 4, 1, true, 0.25f}};
    orth_ctx *ctx = test_ctx(2);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        problem p = problem_new(cases[i]);
        fast(ctx, &p);
        double diff = 0, norm = 0;
        for (int64_t at = 0; at < p.N * p.R; at++) {
            double want = (loss_in_double(&p, at, 1e-5) - loss_in_double(&p, at, -1e-5)) / 2e-5;
            double error = ((float *)p.dqkv)[at] - want;
            diff += error * error;
            norm += want * want;
        }
        assert_true(sqrt(diff / norm) < 1e-6);
        problem_free(&p);
    }
    test_ctx_free(ctx);
}

/* o and dqkv of every head, without dropout. */
static void in_double(const problem *p, double *o, double *dqkv)
{
    const int D = p->s.D, T = p->s.T, G = p->s.H / p->s.KV;
    const float *x = p->qkv, *dout = p->dout;
    double prob[512], dp[512];
    memset(o, 0, (size_t)(p->N * p->s.H * D) * sizeof *o);
    memset(dqkv, 0, (size_t)(p->N * p->R) * sizeof *dqkv);
    for (int64_t n = 0; n < p->N; n++)
        for (int h = 0; h < p->s.H; h++) {
            const int64_t q = n * p->R + orth_attn_q_col(&p->attr, h), at = (n * p->s.H + h) * D;
            const int64_t keys = n / T * T * p->R + orth_attn_k_col(&p->attr, h / G);
            double sum = 0, delta = 0;
            for (int64_t k = 0; k <= n % T; k++) {
                double s = dp[k] = 0;
                for (int d = 0; d < D; d++) {
                    s += (double)x[q + d] * (double)x[keys + k * p->R + d];
                    dp[k] += (double)dout[at + d] * (double)x[keys + k * p->R + D + d];
                }
                sum += prob[k] = exp(s * (double)p->attr.scale);
            }
            for (int64_t k = 0; k <= n % T; k++)
                delta += (prob[k] /= sum) * dp[k];
            for (int64_t k = 0; k <= n % T; k++)
                for (int d = 0; d < D; d++) {
                    const int64_t kd = keys + k * p->R + d;
                    const double ds = prob[k] * (dp[k] - delta) * (double)p->attr.scale;
                    o[at + d] += prob[k] * (double)x[kd + D];
                    dqkv[q + d] += ds * (double)x[kd];
                    dqkv[kd] += ds * (double)x[q + d];
                    dqkv[kd + D] += prob[k] * (double)dout[at + d];
                }
        }
}

static double error(const float *a, const double *b, int64_t n)
{
    double diff = 0, norm = 0;
    for (int64_t i = 0; i < n; i++) {
        diff += ((double)a[i] - b[i]) * ((double)a[i] - b[i]);
        norm += b[i] * b[i];
    }
    return sqrt(diff / norm);
}

/* Six products of pieces are more exact than fma. */
TEST(pieces_of_bf16_keep_the_precision_of_fp32)
{
    static const shape cases[] = {{ORTH_F32, 1, 130, 2, 1, 64, 1, false, 0}, {ORTH_F32, 1, 400, 2, 2, 128, 1, false, 0},
                                  {ORTH_F32, 2, 200, 2, 1, 33, 1, false, 0}};
    orth_ctx *ctx = test_ctx(2);
    if (test_top_isa() != ORTH_ISA_AMX_BF16X6) {
        test_ctx_free(ctx);
        skip();
    }
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        problem fma = problem_new(cases[i]), got = problem_new(cases[i]);
        const int64_t no = fma.N * fma.s.H * fma.s.D, nq = fma.N * fma.R;
        double *o = malloc((size_t)no * sizeof *o), *dqkv = malloc((size_t)nq * sizeof *dqkv);
        in_double(&fma, o, dqkv);
        ctx->isa = ORTH_ISA_AVX512;
        fast(ctx, &fma);
        ctx->isa = ORTH_ISA_AMX_BF16X6;
        fast(ctx, &got);
        const double o_fma = error(fma.o, o, no), o_got = error(got.o, o, no);
        const double q_fma = error(fma.dqkv, dqkv, nq), q_got = error(got.dqkv, dqkv, nq);
        if (o_got > o_fma || q_got > q_fma)
            fail_msg("T %d D %d: o %g, with fma %g; dqkv %g, with fma %g", got.s.T, got.s.D, o_got, o_fma, q_got, q_fma);
        free(o), free(dqkv);
        problem_free(&fma), problem_free(&got);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_are_those_of_finite_differences),
        cmocka_unit_test(pieces_of_bf16_keep_the_precision_of_fp32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
