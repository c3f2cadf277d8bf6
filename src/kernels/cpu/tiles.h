/* tiles.h -- AMX: all eight tile registers as 16 rows of 64 bytes.
 *
 * The compiler does not know what the tile instructions read (GCC 12: eight bytes of the configuration, nothing of
 * a tile), and leaves out or delays writes that only they would see. So the configuration is constant, and
 * memory that the same function has written is passed to orth_tiles_will_read before it is loaded.
 */
#ifndef ORTH_KERNELS_CPU_TILES_H
#define ORTH_KERNELS_CPU_TILES_H

#include <immintrin.h>
#include <stdint.h>

/* What LDTILECFG reads of palette 1; the second half of both lists is reserved. */
typedef struct {
    uint8_t palette, start_row, reserved[14];
    uint16_t bytes_per_row[16];
    uint8_t rows[16];
} orth_tile_config;

/* Tile registers belong to the thread, and a thread may come from another pool each time: around each run of tiles. */
__attribute__((target("amx-tile"))) static inline void orth_tiles_configure(void)
{
    static const orth_tile_config config = {
        .palette = 1,
        .bytes_per_row = {64, 64, 64, 64, 64, 64, 64, 64},
        .rows = {16, 16, 16, 16, 16, 16, 16, 16},
    };
    _tile_loadconfig(&config);
}

__attribute__((target("amx-tile"))) static inline void orth_tiles_release(void)
{
    _tile_release();
}

static inline void orth_tiles_will_read(const void *memory)
{
    __asm__ volatile("" : : "r"(memory) : "memory");
}

#endif
