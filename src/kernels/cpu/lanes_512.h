/* lanes_512.h -- lanes.h on AVX-512 (F, BW, DQ, VL). */
typedef __m512 v16;
typedef struct {
    __m512d a, b; /* lanes 0-7, 8-15 */
} d16;

LANES_INLINE __mmask16 v_mask(int k) { return (__mmask16)((1u << k) - 1); }

LANES_INLINE v16 v_set(float x) { return _mm512_set1_ps(x); }
LANES_INLINE v16 v_add(v16 a, v16 b) { return _mm512_add_ps(a, b); }
LANES_INLINE v16 v_sub(v16 a, v16 b) { return _mm512_sub_ps(a, b); }
LANES_INLINE v16 v_mul(v16 a, v16 b) { return _mm512_mul_ps(a, b); }
LANES_INLINE v16 v_div(v16 a, v16 b) { return _mm512_div_ps(a, b); }
LANES_INLINE v16 v_fma(v16 a, v16 b, v16 c) { return _mm512_fmadd_ps(a, b, c); }
LANES_INLINE v16 v_fnma(v16 a, v16 b, v16 c) { return _mm512_fnmadd_ps(a, b, c); } /* c - a*b */
LANES_INLINE v16 v_sqrt(v16 a) { return _mm512_sqrt_ps(a); }
LANES_INLINE v16 v_max(v16 a, v16 b) { return _mm512_max_ps(a, b); } /* a > b ? a : b */
LANES_INLINE v16 v_exp(v16 a) { return orth_expf_m512(a); }
LANES_INLINE v16 v_silu(v16 a) { return orth_siluf_m512(a); }
LANES_INLINE v16 v_silu_pair(v16 a, v16 *grad) { return orth_silu_pairf_m512(a, grad); }
LANES_INLINE v16 v_keep(v16 v, int k) { return k == 16 ? v : _mm512_maskz_mov_ps(v_mask(k), v); }
/* Lanes from k on become fill. */
LANES_INLINE v16 v_fill(v16 v, int k, float fill)
{
    return k == 16 ? v : _mm512_mask_mov_ps(_mm512_set1_ps(fill), v_mask(k), v);
}

LANES_INLINE v16 v_ld_f32(const float *p, int k)
{
    return k == 16 ? _mm512_loadu_ps(p) : _mm512_maskz_loadu_ps(v_mask(k), p);
}

LANES_INLINE void v_st_f32(float *p, v16 v, int k)
{
    if (k == 16)
        _mm512_storeu_ps(p, v);
    else
        _mm512_mask_storeu_ps(p, v_mask(k), v);
}

LANES_INLINE v16 v_ld_bf16(const orth_bf16 *p, int k)
{
    __m256i h = k == 16 ? _mm256_loadu_si256((const void *)p) : _mm256_maskz_loadu_epi16(v_mask(k), p);
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
}

/* As orth_bf16_from_f32, in the upper half of each lane; the lower half is rubbish. The instruction of
 * AVX512_BF16 is not used: it flushes denormals. */
LANES_INLINE __m512i v_bf16_bits(v16 v)
{
    __m512i u = _mm512_castps_si512(v);
    __m512i odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    __m512i r = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_mask_or_epi32(r, _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q), u, _mm512_set1_epi32(0x400000));
}

LANES_INLINE void v_st_bf16(orth_bf16 *p, v16 v, int k)
{
    __m256i h = _mm512_cvtepi32_epi16(_mm512_srli_epi32(v_bf16_bits(v), 16));
    if (k == 16)
        _mm256_storeu_si256((void *)p, h);
    else
        _mm256_mask_storeu_epi16(p, v_mask(k), h);
}

LANES_INLINE v16 v_round_bf16(v16 v)
{
    return _mm512_castsi512_ps(_mm512_and_si512(v_bf16_bits(v), _mm512_set1_epi32((int)0xffff0000u)));
}

LANES_INLINE v16 v_ld_f16(const orth_f16 *p, int k)
{
    return _mm512_cvtph_ps(k == 16 ? _mm256_loadu_si256((const void *)p) : _mm256_maskz_loadu_epi16(v_mask(k), p));
}

LANES_INLINE void v_st_f16(orth_f16 *p, v16 v, int k)
{
    const __m256i h = _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    if (k == 16)
        _mm256_storeu_si256((void *)p, h);
    else
        _mm256_mask_storeu_epi16(p, v_mask(k), h);
}

LANES_INLINE v16 v_round_f16(v16 v)
{
    return _mm512_cvtph_ps(_mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

/* Lanes folded in halves, as orth_lanes_fold. */
LANES_INLINE float v_sum(v16 v)
{
    __m256 h = _mm256_add_ps(_mm512_castps512_ps256(v), _mm512_extractf32x8_ps(v, 1));
    __m128 q = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    q = _mm_add_ps(q, _mm_movehl_ps(q, q));
    return _mm_cvtss_f32(_mm_add_ss(q, _mm_movehdup_ps(q)));
}

LANES_INLINE float v_max_all(v16 v) { return _mm512_reduce_max_ps(v); }

/* Thirty-two values as sixteen of even and sixteen of odd index, and back. */
LANES_INLINE void v_ld_pairs_f32(const float *p, v16 *even, v16 *odd)
{
    const __m512i e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    __m512 a = _mm512_loadu_ps(p), b = _mm512_loadu_ps(p + 16);
    *even = _mm512_permutex2var_ps(a, e, b);
    *odd = _mm512_permutex2var_ps(a, _mm512_add_epi32(e, _mm512_set1_epi32(1)), b);
}

LANES_INLINE void v_st_pairs_f32(float *p, v16 even, v16 odd)
{
    const __m512i lo = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    _mm512_storeu_ps(p, _mm512_permutex2var_ps(even, lo, odd));
    _mm512_storeu_ps(p + 16, _mm512_permutex2var_ps(even, _mm512_add_epi32(lo, _mm512_set1_epi32(8)), odd));
}

LANES_INLINE void v_ld_pairs_bf16(const orth_bf16 *p, v16 *even, v16 *odd)
{
    __m512i u = _mm512_loadu_si512(p);
    *even = _mm512_castsi512_ps(_mm512_slli_epi32(u, 16));
    *odd = _mm512_castsi512_ps(_mm512_and_si512(u, _mm512_set1_epi32((int)0xffff0000u)));
}

LANES_INLINE void v_st_pairs_bf16(orth_bf16 *p, v16 even, v16 odd)
{
    __m512i high = _mm512_and_si512(v_bf16_bits(odd), _mm512_set1_epi32((int)0xffff0000u));
    _mm512_storeu_si512(p, _mm512_or_si512(_mm512_srli_epi32(v_bf16_bits(even), 16), high));
}

/* x where orth_rand_unit(word) >= rate, else 0. */
LANES_INLINE v16 v_drop(v16 x, const uint32_t *word, float rate)
{
    __m512 u = _mm512_cvtepi32_ps(_mm512_srli_epi32(_mm512_loadu_si512(word), 8));
    u = _mm512_mul_ps(u, _mm512_set1_ps(0x1p-24f));
    return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(u, _mm512_set1_ps(rate), _CMP_GE_OQ), x);
}

LANES_INLINE d16 d_zero(void) { return (d16){_mm512_setzero_pd(), _mm512_setzero_pd()}; }

LANES_INLINE d16 d_add_square(d16 acc, v16 v)
{
    __m512d a = _mm512_cvtps_pd(_mm512_castps512_ps256(v)), b = _mm512_cvtps_pd(_mm512_extractf32x8_ps(v, 1));
    return (d16){_mm512_fmadd_pd(a, a, acc.a), _mm512_fmadd_pd(b, b, acc.b)};
}

LANES_INLINE void d_store(double lane[ORTH_LANES], d16 v)
{
    _mm512_storeu_pd(lane, v.a);
    _mm512_storeu_pd(lane + 8, v.b);
}

/* Sixteen uint32. */
typedef __m512i u16;
LANES_INLINE u16 u_set(uint32_t x) { return _mm512_set1_epi32((int)x); }
LANES_INLINE u16 u_count(uint32_t first) /* first, first + 1, ... */
{
    return _mm512_add_epi32(u_set(first),
                            _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15));
}
LANES_INLINE u16 u_xor3(u16 a, u16 b, u16 c) { return _mm512_ternarylogic_epi32(a, b, c, 0x96); }

/* The halves of the 64-bit products a*m. */
LANES_INLINE void u_mul(u16 a, uint32_t m, u16 *high, u16 *low)
{
    __m512i even = _mm512_mul_epu32(a, u_set(m)), odd = _mm512_mul_epu32(_mm512_srli_epi64(a, 32), u_set(m));
    *high = _mm512_mask_mov_epi32(_mm512_srli_epi64(even, 32), 0xaaaa, odd);
    *low = _mm512_mask_mov_epi32(even, 0xaaaa, _mm512_slli_epi64(odd, 32));
}

/* word[4*l + i] = lane l of c[i]. */
LANES_INLINE void u_store_4(uint32_t word[64], const u16 c[4])
{
    __m512i a = _mm512_unpacklo_epi32(c[0], c[1]), b = _mm512_unpackhi_epi32(c[0], c[1]);
    __m512i d = _mm512_unpacklo_epi32(c[2], c[3]), e = _mm512_unpackhi_epi32(c[2], c[3]);
    __m512i r0 = _mm512_unpacklo_epi64(a, d), r1 = _mm512_unpackhi_epi64(a, d); /* counters 4q, 4q + 1 */
    __m512i r2 = _mm512_unpacklo_epi64(b, e), r3 = _mm512_unpackhi_epi64(b, e); /* in quarter q */
    __m512i s0 = _mm512_shuffle_i32x4(r0, r1, 0x44), s1 = _mm512_shuffle_i32x4(r2, r3, 0x44);
    __m512i s2 = _mm512_shuffle_i32x4(r0, r1, 0xee), s3 = _mm512_shuffle_i32x4(r2, r3, 0xee);
    _mm512_storeu_si512(word, _mm512_shuffle_i32x4(s0, s1, 0x88));
    _mm512_storeu_si512(word + 16, _mm512_shuffle_i32x4(s0, s1, 0xdd));
    _mm512_storeu_si512(word + 32, _mm512_shuffle_i32x4(s2, s3, 0x88));
    _mm512_storeu_si512(word + 48, _mm512_shuffle_i32x4(s2, s3, 0xdd));
}

/* Zeroes 64-byte aligned memory past the caches; fenced by v_stream_end. */
LANES_INLINE void v_stream_zero(float *p) { _mm512_stream_ps(p, _mm512_setzero_ps()); }
LANES_INLINE void v_stream_end(void) { _mm_sfence(); }
