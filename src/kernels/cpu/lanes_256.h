/* lanes_256.h -- lanes.h on AVX2 and FMA. */
typedef struct {
    __m256 a, b; /* lanes 0-7, 8-15 */
} v16;
typedef struct {
    __m256d q[4];
} d16;

#define V_EACH(expr_a, expr_b) ((v16){(expr_a), (expr_b)})
LANES_INLINE v16 v_set(float x) { return V_EACH(_mm256_set1_ps(x), _mm256_set1_ps(x)); }
LANES_INLINE v16 v_add(v16 x, v16 y) { return V_EACH(_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)); }
LANES_INLINE v16 v_sub(v16 x, v16 y) { return V_EACH(_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)); }
LANES_INLINE v16 v_mul(v16 x, v16 y) { return V_EACH(_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)); }
LANES_INLINE v16 v_div(v16 x, v16 y) { return V_EACH(_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)); }
LANES_INLINE v16 v_fma(v16 x, v16 y, v16 z)
{
    return V_EACH(_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b));
}
LANES_INLINE v16 v_fnma(v16 x, v16 y, v16 z) /* z - x*y */
{
    return V_EACH(_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b));
}
LANES_INLINE v16 v_sqrt(v16 x) { return V_EACH(_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)); }
LANES_INLINE v16 v_max(v16 x, v16 y) { return V_EACH(_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)); }
LANES_INLINE v16 v_exp(v16 x) { return V_EACH(orth_expf_m256(x.a), orth_expf_m256(x.b)); }
LANES_INLINE v16 v_silu(v16 x) { return V_EACH(orth_siluf_m256(x.a), orth_siluf_m256(x.b)); }
LANES_INLINE v16 v_silu_pair(v16 x, v16 *grad)
{
    return V_EACH(orth_silu_pairf_m256(x.a, &grad->a), orth_silu_pairf_m256(x.b, &grad->b));
}

/* Lanes from k on become fill. */
LANES_INLINE v16 v_fill(v16 v, int k, float fill)
{
    if (k == 16)
        return v;
    const __m256i n = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), limit = _mm256_set1_epi32(k);
    __m256 f = _mm256_set1_ps(fill), in_a = _mm256_castsi256_ps(_mm256_cmpgt_epi32(limit, n));
    __m256 in_b = _mm256_castsi256_ps(_mm256_cmpgt_epi32(_mm256_sub_epi32(limit, _mm256_set1_epi32(8)), n));
    return V_EACH(_mm256_blendv_ps(f, v.a, in_a), _mm256_blendv_ps(f, v.b, in_b));
}
LANES_INLINE v16 v_keep(v16 v, int k) { return v_fill(v, k, 0.0f); }

LANES_INLINE v16 v_ld_f32(const float *p, int k)
{
    float part[16] = {0};
    if (k < 16)
        p = memcpy(part, p, (size_t)k * sizeof *p);
    return V_EACH(_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8));
}

LANES_INLINE void v_st_f32(float *p, v16 v, int k)
{
    float part[16], *to = k == 16 ? p : part;
    _mm256_storeu_ps(to, v.a);
    _mm256_storeu_ps(to + 8, v.b);
    if (k < 16)
        /* cppcheck-suppress uninitvar ; written through `to` */
        memcpy(p, part, (size_t)k * sizeof *p);
}

LANES_INLINE __m256 v_widen(__m128i h)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(h), 16));
}

LANES_INLINE v16 v_ld_bf16(const orth_bf16 *p, int k)
{
    orth_bf16 part[16] = {0};
    if (k < 16)
        p = memcpy(part, p, (size_t)k * sizeof *p);
    return V_EACH(v_widen(_mm_loadu_si128((const void *)p)), v_widen(_mm_loadu_si128((const void *)(p + 8))));
}

/* As orth_bf16_from_f32, in the upper half of each lane; the lower half is 0. */
LANES_INLINE __m256i v_bf16_bits(__m256 v)
{
    __m256i u = _mm256_castps_si256(v);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi32(u, 16), _mm256_set1_epi32(1));
    __m256i r = _mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff)));
    __m256i nan = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
    r = _mm256_blendv_epi8(r, nan, _mm256_castps_si256(_mm256_cmp_ps(v, v, _CMP_UNORD_Q)));
    return _mm256_and_si256(r, _mm256_set1_epi32((int)0xffff0000u));
}

LANES_INLINE void v_st_bf16(orth_bf16 *p, v16 v, int k)
{
    orth_bf16 part[16];
    __m256i a = _mm256_srli_epi32(v_bf16_bits(v.a), 16), b = _mm256_srli_epi32(v_bf16_bits(v.b), 16);
    _mm256_storeu_si256((void *)(k == 16 ? p : part),
                        _mm256_permute4x64_epi64(_mm256_packus_epi32(a, b), 0xd8));
    if (k < 16)
        memcpy(p, part, (size_t)k * sizeof *p);
}

LANES_INLINE v16 v_round_bf16(v16 v)
{
    return V_EACH(_mm256_castsi256_ps(v_bf16_bits(v.a)), _mm256_castsi256_ps(v_bf16_bits(v.b)));
}

LANES_INLINE v16 v_ld_f16(const orth_f16 *p, int k)
{
    orth_f16 part[16] = {0};
    if (k < 16)
        p = memcpy(part, p, (size_t)k * sizeof *p);
    return V_EACH(_mm256_cvtph_ps(_mm_loadu_si128((const void *)p)), _mm256_cvtph_ps(_mm_loadu_si128((const void *)(p + 8))));
}

LANES_INLINE void v_st_f16(orth_f16 *p, v16 v, int k)
{
    orth_f16 part[16], *to = k == 16 ? p : part;
    _mm_storeu_si128((void *)to, _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128((void *)(to + 8), _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT));
    if (k < 16)
        /* cppcheck-suppress uninitvar ; written through `to` */
        memcpy(p, part, (size_t)k * sizeof *p);
}

LANES_INLINE v16 v_round_f16(v16 v)
{
    return V_EACH(_mm256_cvtph_ps(_mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT)),
                  _mm256_cvtph_ps(_mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT)));
}

LANES_INLINE float v_sum(v16 v)
{
    __m256 h = _mm256_add_ps(v.a, v.b);
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

LANES_INLINE float v_max_all(v16 v)
{
    __m256 h = _mm256_max_ps(v.a, v.b);
    __m128 q = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_max_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_max_ss(q, _mm_movehdup_ps(q)));
}

LANES_INLINE __m256 v_order(__m256 v)
{
    return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), 0xd8));
}

LANES_INLINE void v_ld_pairs_f32(const float *p, v16 *even, v16 *odd)
{
    __m256 a = _mm256_loadu_ps(p), b = _mm256_loadu_ps(p + 8);
    __m256 c = _mm256_loadu_ps(p + 16), d = _mm256_loadu_ps(p + 24);
    *even = V_EACH(v_order(_mm256_shuffle_ps(a, b, 0x88)), v_order(_mm256_shuffle_ps(c, d, 0x88)));
    *odd = V_EACH(v_order(_mm256_shuffle_ps(a, b, 0xdd)), v_order(_mm256_shuffle_ps(c, d, 0xdd)));
}

LANES_INLINE void v_st_pairs_f32(float *p, v16 even, v16 odd)
{
    __m256 ea = v_order(even.a), eb = v_order(even.b), oa = v_order(odd.a), ob = v_order(odd.b);
    _mm256_storeu_ps(p, _mm256_unpacklo_ps(ea, oa));
    _mm256_storeu_ps(p + 8, _mm256_unpackhi_ps(ea, oa));
    _mm256_storeu_ps(p + 16, _mm256_unpacklo_ps(eb, ob));
    _mm256_storeu_ps(p + 24, _mm256_unpackhi_ps(eb, ob));
}

LANES_INLINE void v_ld_pairs_bf16(const orth_bf16 *p, v16 *even, v16 *odd)
{
    __m256i a = _mm256_loadu_si256((const void *)p), b = _mm256_loadu_si256((const void *)(p + 16));
    const __m256i high = _mm256_set1_epi32((int)0xffff0000u);
    *even =
        V_EACH(_mm256_castsi256_ps(_mm256_slli_epi32(a, 16)), _mm256_castsi256_ps(_mm256_slli_epi32(b, 16)));
    *odd = V_EACH(_mm256_castsi256_ps(_mm256_and_si256(a, high)),
                  _mm256_castsi256_ps(_mm256_and_si256(b, high)));
}

LANES_INLINE void v_st_pairs_bf16(orth_bf16 *p, v16 even, v16 odd)
{
    _mm256_storeu_si256((void *)p,
                        _mm256_or_si256(_mm256_srli_epi32(v_bf16_bits(even.a), 16), v_bf16_bits(odd.a)));
    _mm256_storeu_si256((void *)(p + 16),
                        _mm256_or_si256(_mm256_srli_epi32(v_bf16_bits(even.b), 16), v_bf16_bits(odd.b)));
}

LANES_INLINE __m256 v_drop8(__m256 x, const uint32_t *word, float rate)
{
    __m256 u = _mm256_cvtepi32_ps(_mm256_srli_epi32(_mm256_loadu_si256((const void *)word), 8));
    u = _mm256_mul_ps(u, _mm256_set1_ps(0x1p-24f));
    return _mm256_and_ps(_mm256_cmp_ps(u, _mm256_set1_ps(rate), _CMP_GE_OQ), x);
}

LANES_INLINE v16 v_drop(v16 x, const uint32_t *word, float rate)
{
    return V_EACH(v_drop8(x.a, word, rate), v_drop8(x.b, word + 8, rate));
}

LANES_INLINE d16 d_zero(void)
{
    __m256d z = _mm256_setzero_pd();
    return (d16){{z, z, z, z}};
}

LANES_INLINE d16 d_add_square(d16 acc, v16 v)
{
    const __m128 part[4] = {_mm256_castps256_ps128(v.a), _mm256_extractf128_ps(v.a, 1),
                            _mm256_castps256_ps128(v.b), _mm256_extractf128_ps(v.b, 1)};
    for (int i = 0; i < 4; i++) {
        __m256d x = _mm256_cvtps_pd(part[i]);
        acc.q[i] = _mm256_fmadd_pd(x, x, acc.q[i]);
    }
    return acc;
}

LANES_INLINE void d_store(double lane[ORTH_LANES], d16 v)
{
    for (int i = 0; i < 4; i++)
        _mm256_storeu_pd(lane + 4 * i, v.q[i]);
}

/* Sixteen uint32. */
typedef struct {
    __m256i a, b;
} u16;
LANES_INLINE u16 u_set(uint32_t x) { return (u16){_mm256_set1_epi32((int)x), _mm256_set1_epi32((int)x)}; }
LANES_INLINE u16 u_count(uint32_t first) /* first, first + 1, ... */
{
    __m256i n = _mm256_add_epi32(_mm256_set1_epi32((int)first), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
    return (u16){n, _mm256_add_epi32(n, _mm256_set1_epi32(8))};
}
LANES_INLINE u16 u_xor3(u16 x, u16 y, u16 z)
{
    return (u16){_mm256_xor_si256(x.a, _mm256_xor_si256(y.a, z.a)),
                 _mm256_xor_si256(x.b, _mm256_xor_si256(y.b, z.b))};
}

LANES_INLINE void u_mul8(__m256i a, __m256i m, __m256i *high, __m256i *low)
{
    __m256i even = _mm256_mul_epu32(a, m), odd = _mm256_mul_epu32(_mm256_srli_epi64(a, 32), m);
    *high = _mm256_blend_epi32(_mm256_srli_epi64(even, 32), odd, 0xaa);
    *low = _mm256_blend_epi32(even, _mm256_slli_epi64(odd, 32), 0xaa);
}

/* The halves of the 64-bit products x*m. */
LANES_INLINE void u_mul(u16 x, uint32_t m, u16 *high, u16 *low)
{
    u_mul8(x.a, _mm256_set1_epi32((int)m), &high->a, &low->a);
    u_mul8(x.b, _mm256_set1_epi32((int)m), &high->b, &low->b);
}

LANES_INLINE void u_store_8(uint32_t word[32], __m256i c0, __m256i c1, __m256i c2, __m256i c3)
{
    __m256i a = _mm256_unpacklo_epi32(c0, c1), b = _mm256_unpackhi_epi32(c0, c1);
    __m256i d = _mm256_unpacklo_epi32(c2, c3), e = _mm256_unpackhi_epi32(c2, c3);
    __m256i r0 = _mm256_unpacklo_epi64(a, d), r1 = _mm256_unpackhi_epi64(a, d); /* counters 4q, 4q + 1 */
    __m256i r2 = _mm256_unpacklo_epi64(b, e), r3 = _mm256_unpackhi_epi64(b, e); /* in half q */
    _mm256_storeu_si256((void *)word, _mm256_permute2x128_si256(r0, r1, 0x20));
    _mm256_storeu_si256((void *)(word + 8), _mm256_permute2x128_si256(r2, r3, 0x20));
    _mm256_storeu_si256((void *)(word + 16), _mm256_permute2x128_si256(r0, r1, 0x31));
    _mm256_storeu_si256((void *)(word + 24), _mm256_permute2x128_si256(r2, r3, 0x31));
}

/* word[4*l + i] = lane l of c[i]. */
LANES_INLINE void u_store_4(uint32_t word[64], const u16 c[4])
{
    u_store_8(word, c[0].a, c[1].a, c[2].a, c[3].a);
    u_store_8(word + 32, c[0].b, c[1].b, c[2].b, c[3].b);
}

/* Zeroes 64-byte aligned memory past the caches; fenced by v_stream_end. */
LANES_INLINE void v_stream_zero(float *p)
{
    _mm256_stream_ps(p, _mm256_setzero_ps());
    _mm256_stream_ps(p + 8, _mm256_setzero_ps());
}
LANES_INLINE void v_stream_end(void) { _mm_sfence(); }
