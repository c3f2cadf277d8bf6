/* attention_micro_amx_bf16x6.c -- the inner loops of attention in fp32 whose products run on AMX tiles, in pieces of
 * bf16. Queries by whole blocks: tiles of keys in three planes are loaded too often otherwise. */
#include "kernels/cpu/attention_vec512bf16x3.h"
#include "kernels/cpu/tiles.h"

#define PAIRS 1
#define PLANES 3
#define OWN_PRODUCT
#define QUERIES KB
#define ENTER orth_tiles_configure
#define LEAVE orth_tiles_release
#define TRANSPOSE transpose
#define PACK_TRANSPOSED pack_transposed

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/attention_tiles_amx.h"

const orth_attn_micro orth_attn_micro_amx_bf16x6 = ORTH_ATTN_MICRO_TABLE;
