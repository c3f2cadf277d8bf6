/* attention_micro_amx.c -- the inner loops of attention whose products run on AMX tiles. */
#include "kernels/cpu/attention_vec512bf16.h"
#include "kernels/cpu/tiles.h"

#define PAIRS 1
#define OWN_PRODUCT
#define QUERIES MIN_QUERIES /* rows that a step of a product takes in any case */
#define ENTER orth_tiles_configure
#define LEAVE orth_tiles_release
#define TRANSPOSE transpose
#define PACK_TRANSPOSED pack_transposed

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/attention_tiles_amx.h"

/* Elements d... of a row, zero from D on. */
static __m512i lanes_at(const orth_bf16 *row, int64_t d, int D)
{
    const __mmask16 some = (__mmask16)((1u << ORTH_MIN(D - d, 16)) - 1);
    return _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(some, row + d));
}

static void pack_transposed(void *dst, const void *const *row, int num_rows, int D, orth_dtype type)
{
    (void)type;
    for (int r0 = 0; r0 < KB; r0 += 32)
        for (int64_t d = 0; d < D; d += 16) {
            __m512i x[16];
            for (int i = 0; i < 16; i++) {
                const int r = r0 + 2 * i;
                const __m512i even = r < num_rows ? lanes_at(row[r], d, D) : _mm512_setzero_si512();
                const __m512i odd = r + 1 < num_rows ? lanes_at(row[r + 1], d, D) : _mm512_setzero_si512();
                x[i] = _mm512_or_si512(even, _mm512_slli_epi32(odd, 16));
            }
            transpose16(x);
            for (int i = 0; i < 16; i++)
                _mm512_storeu_si512((uint32_t *)dst + (d + i) * KB / 2 + r0 / 2, x[i]);
        }
}

const orth_attn_micro orth_attn_micro_amx = ORTH_ATTN_MICRO_TABLE;
