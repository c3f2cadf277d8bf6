/* mathf_body.h -- the functions of mathf.h, written once and included per vector type.
 *
 * The includer defines MF(name) and the M_ primitives below; every primitive is one exactly rounded
 * IEEE operation (or moves bits), so scalar and vector copies give the same bits. No include guard.
 *
 *   M_V, M_I, M_M          float vector, int32 vector, mask
 *   M_SET(c) M_ISET(c)     broadcast
 *   M_ADD M_SUB M_MUL M_DIV M_FMA(a,b,c)=a*b+c
 *   M_LT(a,b) M_LE(a,b)    ordered comparison (false for NaN)
 *   M_SEL(m,a,b)           m ? a : b
 *   M_BITS(v) M_FLOAT(i)   reinterpret;  M_TOF(i) int32 to float
 *   M_IADD M_ISUB M_IAND M_IOR M_SHL(i,n) M_SAR(i,n)
 *   M_MIN(a,b) M_NOT_LT(a,b) M_SCALE(m,p,n)   all or none: the smaller, b if one is NaN; true for NaN;
 *                          m ? p * 2^n : 0 for whole n; too large gives infinity
 *
 * Sources: exp2: a fit of our own; exp, log, tanh: Moshier, Cephes (single precision); erf: N. Juffa's fits of
 * erf(x) = 1 - exp(-poly(|x|)) and of x + x*poly(x^2) (stackoverflow.com/questions/35148198).
 */

/* p * 2^n, where t is n + 1.5 * 2^23 and x says how large that is: 0 below `least`, infinity above `most`. */
static inline M_V MF(orth_exp_scaled_)(M_V x, M_V p, M_V t, M_V n, float least, float most)
{
#if defined(M_SCALE)
    (void)t, (void)most;
    return M_SCALE(M_NOT_LT(x, M_SET(least)), p, n);
#else
    (void)n;
    M_V y = M_FLOAT(M_IADD(M_BITS(p), M_SHL(M_BITS(t), 23)));
    y = M_SEL(M_LT(x, M_SET(least)), M_SET(0.0f), y);
    /* NaN, being not <= anything, stays NaN. */
    return M_SEL(M_LE(x, M_SET(most)), y, M_ADD(x, M_SET(__builtin_inff())));
#endif
}

/* e^x; 0 where the result would be denormal (x < -87.3365), so that no processor mode can matter. */
static inline M_V MF(orth_expf)(M_V x)
{
#if defined(M_SCALE)
    x = M_MIN(M_SET(89.0f), x); /* infinity from there on, and no farther: the polynomial would overflow */
#endif
    const M_V magic = M_SET(12582912.0f); /* 1.5 * 2^23: adding it rounds to an integer in the low bits */
    M_V t = M_FMA(x, M_SET(1.44269504f), magic);
    M_V n = M_SUB(t, magic);
    M_V r = M_FMA(n, M_SET(-0.693359375f), x);
    r = M_FMA(n, M_SET(2.12194440e-4f), r);
    M_V p = M_SET(1.9875691500e-4f);
    p = M_FMA(p, r, M_SET(1.3981999507e-3f));
    p = M_FMA(p, r, M_SET(8.3334519073e-3f));
    p = M_FMA(p, r, M_SET(4.1665795894e-2f));
    p = M_FMA(p, r, M_SET(1.6666665459e-1f));
    p = M_FMA(p, r, M_SET(5.0000001201e-1f));
    p = M_ADD(M_FMA(p, M_MUL(r, r), r), M_SET(1.0f));
    return MF(orth_exp_scaled_)(x, p, t, n, -87.3365f, 88.7228317f);
}

/* 2^x for x up to 128 or NaN; 0 where the result would be denormal. Fewer steps than e^x: what is left of x after whole
 * powers is exact. The coefficients are the polynomial with p(0) = 1 and the least relative error, 2e-9, on [-1/2, 1/2]. */
static inline M_V MF(orth_exp2f)(M_V x)
{
    const M_V magic = M_SET(12582912.0f);
    M_V t = M_ADD(x, magic);
    M_V n = M_SUB(t, magic);
    M_V r = M_SUB(x, n);
    M_V p = M_SET(1.5353362e-4f);
    p = M_FMA(p, r, M_SET(1.3398875e-3f));
    p = M_FMA(p, r, M_SET(9.6184369e-3f));
    p = M_FMA(p, r, M_SET(5.5503324e-2f));
    p = M_FMA(p, r, M_SET(2.4022648e-1f));
    p = M_FMA(p, r, M_SET(6.9314718e-1f));
    p = M_FMA(p, r, M_SET(1.0f));
    return MF(orth_exp_scaled_)(x, p, t, n, -126.0f, 128.0f);
}

/* Natural logarithm; denormals count, 0 gives -inf, negative numbers NaN. */
static inline M_V MF(orth_logf)(M_V x)
{
    M_M tiny = M_LT(x, M_SET(1.17549435e-38f));
    M_I bits = M_BITS(M_SEL(tiny, M_MUL(x, M_SET(8388608.0f)), x));
    M_I e = M_SAR(M_ISUB(bits, M_ISET(0x3f3504f3)), 23);
    M_V z = M_SUB(M_FLOAT(M_ISUB(bits, M_SHL(e, 23))), M_SET(1.0f)); /* [sqrt(1/2), sqrt(2)) - 1 */
    M_V fe = M_ADD(M_TOF(e), M_SEL(tiny, M_SET(-23.0f), M_SET(0.0f)));
    M_V p = M_SET(7.0376836292e-2f);
    p = M_FMA(p, z, M_SET(-1.1514610310e-1f));
    p = M_FMA(p, z, M_SET(1.1676998740e-1f));
    p = M_FMA(p, z, M_SET(-1.2420140846e-1f));
    p = M_FMA(p, z, M_SET(1.4249322787e-1f));
    p = M_FMA(p, z, M_SET(-1.6668057665e-1f));
    p = M_FMA(p, z, M_SET(2.0000714765e-1f));
    p = M_FMA(p, z, M_SET(-2.4999993993e-1f));
    p = M_FMA(p, z, M_SET(3.3333331174e-1f));
    M_V zz = M_MUL(z, z);
    M_V y = M_MUL(M_MUL(p, z), zz);
    y = M_FMA(fe, M_SET(-2.12194440e-4f), y);
    y = M_FMA(zz, M_SET(-0.5f), y);
    y = M_FMA(fe, M_SET(0.693359375f), M_ADD(z, y));
    y = M_SEL(M_LT(M_SET(0.0f), x), y, M_SET(-__builtin_inff()));
    y = M_SEL(M_LT(x, M_SET(0.0f)), M_SET(__builtin_nanf("")), y);
    return M_SEL(M_LE(x, M_SET(3.40282347e38f)), y, M_ADD(x, x)); /* infinity and NaN */
}

static inline M_V MF(orth_tanhf)(M_V x)
{
    M_I sign = M_IAND(M_BITS(x), M_ISET(INT32_MIN));
    M_V a = M_FLOAT(M_IAND(M_BITS(x), M_ISET(INT32_MAX)));
    M_V z = M_MUL(x, x);
    M_V p = M_SET(-5.70498872745e-3f);
    p = M_FMA(p, z, M_SET(2.06390887954e-2f));
    p = M_FMA(p, z, M_SET(-5.37397155531e-2f));
    p = M_FMA(p, z, M_SET(1.33314422036e-1f));
    p = M_FMA(p, z, M_SET(-3.33332819422e-1f));
    M_V small = M_FMA(M_MUL(p, z), x, x);
    M_V e = MF(orth_expf)(M_ADD(a, a));
    M_V big = M_SUB(M_SET(1.0f), M_DIV(M_SET(2.0f), M_ADD(e, M_SET(1.0f))));
    return M_SEL(M_LT(a, M_SET(0.625f)), small, M_FLOAT(M_IOR(M_BITS(big), sign)));
}

/* erfc(|x|) for |x| > 0.93; further in it is only finite. */
static inline M_V MF(orth_erfc_tail_)(M_V a)
{
    M_V s = M_MUL(a, a);
    M_V r = M_FMA(M_SET(-1.72853470e-5f), a, M_SET(3.83197126e-4f));
    M_V u = M_FMA(M_SET(-3.88396438e-3f), a, M_SET(2.42546219e-2f));
    r = M_FMA(r, s, u);
    r = M_FMA(r, a, M_SET(-1.06777877e-1f));
    r = M_FMA(r, a, M_SET(-6.34846687e-1f));
    r = M_FMA(r, a, M_SET(-1.28717512e-1f));
    return MF(orth_expf)(M_FMA(r, a, M_SUB(M_SET(0.0f), a)));
}

/* erf(x) for |x| < 0.93. */
static inline M_V MF(orth_erf_core_)(M_V x)
{
    M_V s = M_MUL(x, x);
    M_V r = M_SET(-5.96761703e-4f);
    r = M_FMA(r, s, M_SET(4.99119423e-3f));
    r = M_FMA(r, s, M_SET(-2.67681349e-2f));
    r = M_FMA(r, s, M_SET(1.12819925e-1f));
    r = M_FMA(r, s, M_SET(-3.76125336e-1f));
    r = M_FMA(r, s, M_SET(1.28379166e-1f));
    return M_FMA(r, x, x);
}

static inline M_V MF(orth_erff)(M_V x)
{
    M_I sign = M_IAND(M_BITS(x), M_ISET(INT32_MIN));
    M_V a = M_FLOAT(M_IAND(M_BITS(x), M_ISET(INT32_MAX)));
    M_V tail = M_SUB(M_SET(1.0f), MF(orth_erfc_tail_)(a));
    return M_SEL(M_LE(a, M_SET(0.927734375f)), MF(orth_erf_core_)(x), M_FLOAT(M_IOR(M_BITS(tail), sign)));
}

/* 1 / (1 + e^-x) */
static inline M_V MF(orth_sigmoidf)(M_V x)
{
    M_V e = MF(orth_expf)(M_SUB(M_SET(0.0f), x));
    return M_DIV(M_SET(1.0f), M_ADD(M_SET(1.0f), e));
}

/* Normal distribution function, (1 + erf(x / sqrt 2)) / 2, without cancellation on the left. */
static inline M_V MF(orth_phif_)(M_V x)
{
    M_V u = M_MUL(x, M_SET(0.707106781f));
    M_V a = M_FLOAT(M_IAND(M_BITS(u), M_ISET(INT32_MAX)));
    M_V half = M_MUL(M_SET(0.5f), MF(orth_erfc_tail_)(a));
    M_V tail = M_SEL(M_LT(x, M_SET(0.0f)), half, M_SUB(M_SET(1.0f), half));
    M_V core = M_FMA(M_SET(0.5f), MF(orth_erf_core_)(u), M_SET(0.5f));
    return M_SEL(M_LE(a, M_SET(0.927734375f)), core, tail);
}

/* |x| beyond which all activations are constant or the identity in fp32; keeps inf*0 away. NaN passes. */
static inline M_V MF(orth_clamp_)(M_V x, float limit)
{
    x = M_SEL(M_LT(M_SET(limit), x), M_SET(limit), x);
    return M_SEL(M_LT(x, M_SET(-limit)), M_SET(-limit), x);
}

/* 2*sqrt(2/pi)*(x + 0.044715 x^3): gelu_tanh(x) = x * sigmoid of it. */
static inline M_V MF(orth_gelu_arg_)(M_V x)
{
    return M_MUL(x, M_FMA(M_MUL(x, x), M_SET(0.0713548163f), M_SET(1.59576912f)));
}

static inline M_V MF(orth_gelu_tanhf)(M_V x)
{
    return M_MUL(x, MF(orth_sigmoidf)(MF(orth_gelu_arg_)(MF(orth_clamp_)(x, 32.0f))));
}

/* sigmoid(x) + slope * sigmoid'(x). sigmoid' = s(1 - s), made from e^-|x| because 1 - s would cancel. */
static inline M_V MF(orth_sigmoid_slope_)(M_V x, M_V slope)
{
    M_V e = MF(orth_expf)(M_FLOAT(M_IOR(M_BITS(x), M_ISET(INT32_MIN))));
    M_V s = M_DIV(M_SET(1.0f), M_ADD(M_SET(1.0f), e)); /* sigmoid(|x|) */
    M_V es = M_MUL(e, s);
    return M_FMA(slope, M_MUL(es, s), M_SEL(M_LT(x, M_SET(0.0f)), es, s));
}

static inline M_V MF(orth_gelu_tanh_gradf)(M_V x)
{
    x = MF(orth_clamp_)(x, 32.0f);
    M_V du = M_FMA(M_MUL(x, x), M_SET(0.214064449f), M_SET(1.59576912f));
    return MF(orth_sigmoid_slope_)(MF(orth_gelu_arg_)(x), M_MUL(x, du));
}

static inline M_V MF(orth_gelu_erff)(M_V x)
{
    return M_MUL(x, MF(orth_phif_)(MF(orth_clamp_)(x, 32.0f)));
}

static inline M_V MF(orth_gelu_erf_gradf)(M_V x)
{
    x = MF(orth_clamp_)(x, 32.0f);
    M_V density = M_MUL(M_SET(0.398942280f), MF(orth_expf)(M_MUL(M_MUL(x, x), M_SET(-0.5f))));
    return M_FMA(x, density, MF(orth_phif_)(x));
}

/* silu(x) and its derivative, from one exponential: sigmoid(x) is made from e^-|x|, see above. */
static inline M_V MF(orth_silu_pairf)(M_V x, M_V *grad)
{
    M_V e = MF(orth_expf)(M_FLOAT(M_IOR(M_BITS(x), M_ISET(INT32_MIN))));
    M_V s = M_DIV(M_SET(1.0f), M_ADD(M_SET(1.0f), e)); /* sigmoid(|x|) */
    M_V es = M_MUL(e, s);
    M_V sigmoid = M_SEL(M_LT(x, M_SET(0.0f)), es, s);
    *grad = M_FMA(MF(orth_clamp_)(x, 128.0f), M_MUL(es, s), sigmoid);
    return M_MUL(x, sigmoid);
}

static inline M_V MF(orth_siluf)(M_V x)
{
    M_V grad;
    return MF(orth_silu_pairf)(x, &grad);
}

static inline M_V MF(orth_silu_gradf)(M_V x)
{
    M_V grad;
    MF(orth_silu_pairf)(x, &grad);
    return grad;
}

static inline M_V MF(orth_act_apply)(orth_act act, M_V x)
{
    switch (act) {
    case ORTH_ACT_GELU_TANH: return MF(orth_gelu_tanhf)(x);
    case ORTH_ACT_GELU_ERF: return MF(orth_gelu_erff)(x);
    case ORTH_ACT_SILU: return MF(orth_siluf)(x);
    default: return x;
    }
}

/* Derivative at x. */
static inline M_V MF(orth_act_grad)(orth_act act, M_V x)
{
    switch (act) {
    case ORTH_ACT_GELU_TANH: return MF(orth_gelu_tanh_gradf)(x);
    case ORTH_ACT_GELU_ERF: return MF(orth_gelu_erf_gradf)(x);
    case ORTH_ACT_SILU: return MF(orth_silu_gradf)(x);
    default: return M_SET(1.0f);
    }
}

#undef MF
#undef M_V
#undef M_I
#undef M_M
#undef M_SET
#undef M_ISET
#undef M_ADD
#undef M_SUB
#undef M_MUL
#undef M_DIV
#undef M_FMA
#undef M_LT
#undef M_LE
#undef M_SEL
#undef M_BITS
#undef M_FLOAT
#undef M_TOF
#undef M_IADD
#undef M_ISUB
#undef M_IAND
#undef M_IOR
#undef M_SHL
#undef M_SAR
#undef M_MIN
#undef M_NOT_LT
#undef M_SCALE
