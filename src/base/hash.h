/* hash.h -- one more number in a hash of several. */
#ifndef ORTH_BASE_HASH_H
#define ORTH_BASE_HASH_H

#include <stdint.h>
#include <xxhash.h>

static inline uint64_t orth_hash_mix(uint64_t h, uint64_t v)
{
    return XXH64(&v, sizeof v, h);
}

#endif
