/* text_case.h -- what the tests of reading share: text, and compressed streams of it. */
#ifndef ORTH_TESTS_TEXT_CASE_H
#define ORTH_TESTS_TEXT_CASE_H

#include <zlib.h>
#include <zstd.h>

#include "test.h"

typedef struct {
    unsigned char *v;
    size_t n;
} packed;

static inline packed gzip_of(const void *bytes, size_t n)
{
    packed p = {malloc(n + n / 100 + 4096), 0};
    z_stream z = {0};
    assert_int_equal(deflateInit2(&z, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
    z.next_in = (unsigned char *)(uintptr_t)bytes;
    z.avail_in = (uInt)n;
    z.next_out = p.v;
    z.avail_out = (uInt)(n + n / 100 + 4096);
    assert_int_equal(deflate(&z, Z_FINISH), Z_STREAM_END);
    p.n = z.total_out;
    deflateEnd(&z);
    return p;
}

/* With the checksum that `zstd` writes and the library does not by default. */
static inline packed zstd_of(const void *bytes, size_t n)
{
    packed p = {malloc(ZSTD_compressBound(n)), 0};
    ZSTD_CCtx *c = ZSTD_createCCtx();
    ZSTD_CCtx_setParameter(c, ZSTD_c_checksumFlag, 1);
    p.n = ZSTD_compress2(c, p.v, ZSTD_compressBound(n), bytes, n);
    assert_false(ZSTD_isError(p.n));
    ZSTD_freeCCtx(c);
    return p;
}

/* Words, signs, letters that are not ASCII, all kinds of line ends: n bytes or a few more. free(). */
static inline char *words_text(size_t n, uint64_t seed)
{
    static const char *const words[] = {"the", "water", "is", "over", "1913", "(that)", "river,", "it's", "end.\n", "end\n",
                                        "see.\n\n", "law\n   ", "\xC3\xA9t\xC3\xA9", "x.\n\n  Then", "\xE6\xB0\xB4", "a"};
    char *text = malloc(n + 32);
    size_t at = 0;
    for (uint64_t k = 0; at < n; k++)
        at += (size_t)sprintf(text + at, "%s ", words[test_rand_int(seed, k, 0, ORTH_COUNT(words) - 1)]);
    while (((unsigned char)text[n] & 0xC0) == 0x80)
        text[n++] = 'x'; /* not in the middle of a character; there is room */
    text[n] = 0;
    return text;
}

#endif
