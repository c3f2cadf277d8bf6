/* test_source.c -- compressed inputs, whole and damaged, and what is no text. */
#include "data/reader.h"
#include "data/source.h"
#include "text_case.h"

/* ---- compressed streams ---- */

typedef packed (*packer)(const void *, size_t);
static const packer packers[] = {gzip_of, zstd_of};

static packed joined(packed a, packed b)
{
    packed p = {malloc(a.n + b.n), a.n + b.n};
    memcpy(p.v, a.v, a.n);
    memcpy(p.v + a.n, b.v, b.n);
    return p;
}

/* Reads all, `step` bytes at a time; *out_n is what came before the end or the failure. */
static orth_status read_all(orth_ctx *ctx, packed p, size_t step, char *out, size_t room, size_t *out_n)
{
    orth_source *s = NULL;
    *out_n = 0;
    orth_status status = orth_source_from_memory(ctx, &s, "in", p.v, p.n);
    for (size_t n = step; status == ORTH_OK && n == step;) {
        char *some = malloc(step); /* of its own, so that a write past it is seen */
        status = orth_source_read(ctx, s, some, step, &n);
        if (status == ORTH_OK) {
            assert_true(*out_n + n <= room);
            memcpy(out + *out_n, some, n);
            *out_n += n;
        }
        free(some);
    }
    orth_source_close(ctx, s);
    return status;
}

TEST(compressed_streams_give_back_what_was_compressed_whatever_the_size_of_the_reads)
{
    orth_ctx *ctx = test_ctx(1);
    enum { N = 300000 };
    char *text = words_text(N, 1), *got = malloc(2 * N + 64);
    static const size_t steps[] = {1, 7, 4096, 65536, 2 * N + 64};
    for (int k = 0; k < ORTH_COUNT(packers); k++) {
        packed a = packers[k](text, N), none = packers[k]("", 0), ab = joined(a, none), twice = joined(ab, a);
        for (int i = 0; i < ORTH_COUNT(steps); i++) {
            size_t n = 0;
            const bool fine = steps[i] > 1; /* one byte at a time takes long */
            CHECK_OK(ctx, read_all(ctx, fine ? twice : a, steps[i], got, 2 * N + 64, &n));
            assert_int_equal(n, fine ? 2 * N : N);
            assert_memory_equal(got, text, N);
            assert_memory_equal(got + n - N, text, N);
        }
        free(a.v), free(none.v), free(ab.v), free(twice.v);
    }
    free(text);
    free(got);
    test_ctx_free(ctx);
}

/* `zstd --long=31` writes such frames of inputs whose size it does not know. */
TEST(a_zstd_stream_with_a_long_window_is_read)
{
    orth_ctx *ctx = test_ctx(1);
    enum { N = 20000 };
    char *text = words_text(N, 3), *got = malloc(2 * N);
    packed p = {malloc(ZSTD_compressBound(N) + 1024), 0};
    ZSTD_CCtx *c = ZSTD_createCCtx();
    assert_false(ZSTD_isError(ZSTD_CCtx_setParameter(c, ZSTD_c_windowLog, 28)));
    ZSTD_inBuffer in = {text, N, 0}, none = {NULL, 0, 0};
    ZSTD_outBuffer out = {p.v, ZSTD_compressBound(N) + 1024, 0};
    assert_int_equal(ZSTD_compressStream2(c, &out, &in, ZSTD_e_flush), 0); /* more may follow: the header has no size, but the window */
    assert_int_equal(ZSTD_compressStream2(c, &out, &none, ZSTD_e_end), 0);
    ZSTD_freeCCtx(c);
    p.n = out.pos;
    size_t n = 0;
    CHECK_OK(ctx, read_all(ctx, p, 4096, got, 2 * N, &n));
    assert_int_equal(n, N);
    assert_memory_equal(got, text, N);
    free(p.v), free(text), free(got);
    test_ctx_free(ctx);
}

TEST(a_stream_that_is_cut_or_followed_by_something_else_is_refused_with_its_offset)
{
    orth_ctx *ctx = test_ctx(1);
    enum { N = 3000 };
    char *text = words_text(N, 2), *got = malloc(2 * N), want[96];
    for (int k = 0; k < ORTH_COUNT(packers); k++) {
        packed p = packers[k](text, N);
        size_t n = 0;
        for (size_t cut = 4; cut < p.n; cut++) {
            snprintf(want, sizeof want, "in: the %s stream is damaged at byte %zu: the file ends", k ? "zstd" : "gzip", cut);
            CHECK_FAILS(ctx, ORTH_ERR_DATA, want, read_all(ctx, (packed){p.v, cut}, 1000, got, 2 * N, &n));
        }
        packed more = joined(p, (packed){(unsigned char *)"more text behind the end", 24});
        snprintf(want, sizeof want, "at byte %zu: something that is not", p.n);
        CHECK_FAILS(ctx, ORTH_ERR_DATA, want, read_all(ctx, more, 1000, got, 2 * N, &n));
        free(p.v), free(more.v);
    }
    free(text);
    free(got);
    test_ctx_free(ctx);
}

/* A flipped bit may lie where it changes nothing (a time, a name, flags of the system): then the text is right. */
TEST(a_flipped_bit_in_a_stream_is_found_or_changes_nothing)
{
    orth_ctx *ctx = test_ctx(1);
    enum { N = 2000 };
    char *text = words_text(N, 3), *got = malloc(64 * N);
    for (int k = 0; k < ORTH_COUNT(packers); k++) {
        packed p = packers[k](text, N);
        int refused = 0;
        for (size_t bit = 32; bit < 8 * p.n; bit++) {
            size_t n = 0;
            p.v[bit / 8] ^= (unsigned char)(1 << bit % 8);
            const orth_status status = read_all(ctx, p, 1000, got, 64 * N, &n);
            p.v[bit / 8] ^= (unsigned char)(1 << bit % 8);
            refused += status != ORTH_OK;
            assert_true(status == ORTH_OK ? n == N && memcmp(got, text, N) == 0
                                          : status == ORTH_ERR_DATA && ctx->error.message[0] != 0);
            orth_ctx_clear_error(ctx);
        }
        assert_true(refused > (int)(7 * p.n));
        free(p.v);
    }
    free(text);
    free(got);
    test_ctx_free(ctx);
}

TEST(a_bomb_takes_no_more_memory_than_a_window)
{
    orth_ctx *ctx = test_ctx(1);
    const size_t n = (size_t)100 << 20;
    char *blanks = malloc(n);
    memset(blanks, 'a', n);
    for (size_t i = 70; i < n; i += 71)
        blanks[i] = '\n';
    for (int k = 0; k < ORTH_COUNT(packers); k++) {
        packed p = packers[k](blanks, n);
        assert_true(p.n < n / 200);
        orth_reader *r = NULL;
        const orth_text_options o = {.format = ORTH_TEXT_AUTO};
        static orth_document docs[256];
        int64_t got = 0, num = 1;
        CHECK_OK(ctx, orth_reader_create(ctx, &r, &o, 1));
        CHECK_OK(ctx, orth_reader_memory(ctx, r, "in", p.v, p.n));
        while (num > 0) {
            CHECK_OK(ctx, orth_reader_next(ctx, r, docs, 256, &num));
            for (int64_t i = 0; i < num; i++)
                got += (int64_t)docs[i].num_bytes;
        }
        assert_int_equal(got, n);
        orth_reader_free(ctx, r);
        free(p.v);
    }
    assert_true(ctx->heap_peak < (int64_t)20 << 20);
    free(blanks);
    test_ctx_free(ctx);
}

TEST(a_document_without_end_is_refused_before_it_fills_the_memory)
{
    orth_ctx *ctx = test_ctx(1);
    const size_t n = ORTH_READER_MAX_DOCUMENT + 1;
    char *text = malloc(n);
    memset(text, 'a', n);
    packed p = zstd_of(text, n);
    free(text);
    orth_reader *r = NULL;
    const orth_text_options o = {.format = ORTH_TEXT_AUTO, .separator = "line"};
    orth_document d;
    int64_t num = 0;
    CHECK_OK(ctx, orth_reader_create(ctx, &r, &o, 1));
    CHECK_OK(ctx, orth_reader_memory(ctx, r, "in", p.v, p.n));
    CHECK_FAILS(ctx, ORTH_ERR_DATA, "in: the document at byte 0 is longer than 256 MiB", orth_reader_next(ctx, r, &d, 1, &num));
    orth_reader_free(ctx, r);
    free(p.v);
    test_ctx_free(ctx);
}

/* ---- what is no text ---- */

TEST(what_is_no_text_is_named_with_a_way_out_unless_the_format_is_given)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *message;
    } cases[] = {
        {"\xFD" "7zXZ\0rest", 10, "in: is xz, not text: xz -dc FILE | orthant ... -"},
        {"BZh91AY&SY\x80\x81\xFF\xFE", 14, "in: is bzip2"},
        {"PAR1\x15\0\x15\x80", 8, "in: is Parquet, not text: write its text column as JSONL"},
        {"ARROW1\0\0", 8, "in: is Arrow"},
        {"PK\3\4\x14\0\0\0", 8, "in: is a zip archive"},
        {"\xFF\xFEh\0i\0", 6, "in: is UTF-16 text, not text: iconv -f UTF-16 -t UTF-8 FILE"},
        {"\xFE\xFFN\x2D\x65\x87", 6, "in: is UTF-16 text"}, /* without a NUL */
        {"\xFF\xFE\0\0h\0\0\0", 8, "in: is UTF-32 text, not text: iconv -f UTF-32 -t UTF-8 FILE"},
        {"\0\0\xFE\xFF\0\0\0h", 8, "in: is UTF-32 text"},
        {"ORTHSHRD\1\0\0\0", 12, "in: is a token shard"},
        {"some\0text", 9, "in: is binary, not text: byte 4 is NUL"},
        {"caf\xE9 cr\xE8me", 10, "in: is not UTF-8: 2 of its first 10 bytes are not, the first at byte 3; if it is Latin-1"},
        {"PAR1 is the first word of this text", 35, NULL},
        {"caf\xC3\xA9 \xF0\x9F\x98\x80", 10, NULL},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++)
        for (int given = 0; given < 2; given++) {
            const orth_text_options o = {.format = given ? ORTH_TEXT_TEXT : ORTH_TEXT_AUTO};
            orth_reader *r = NULL;
            orth_document d;
            int64_t num = 0;
            CHECK_OK(ctx, orth_reader_create(ctx, &r, &o, 1));
            if (cases[i].message && !given) {
                CHECK_FAILS(ctx, ORTH_ERR_DATA, cases[i].message,
                            orth_reader_memory(ctx, r, "in", cases[i].bytes, cases[i].n));
            } else {
                CHECK_OK(ctx, orth_reader_memory(ctx, r, "in", cases[i].bytes, cases[i].n));
                CHECK_OK(ctx, orth_reader_next(ctx, r, &d, 1, &num));
                assert_int_equal(d.num_bytes, cases[i].n);
                assert_memory_equal(d.text, cases[i].bytes, cases[i].n);
            }
            orth_reader_free(ctx, r);
        }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(compressed_streams_give_back_what_was_compressed_whatever_the_size_of_the_reads),
        cmocka_unit_test(a_zstd_stream_with_a_long_window_is_read),
        cmocka_unit_test(a_stream_that_is_cut_or_followed_by_something_else_is_refused_with_its_offset),
        cmocka_unit_test(a_flipped_bit_in_a_stream_is_found_or_changes_nothing),
        cmocka_unit_test(a_bomb_takes_no_more_memory_than_a_window),
        cmocka_unit_test(a_document_without_end_is_refused_before_it_fills_the_memory),
        cmocka_unit_test(what_is_no_text_is_named_with_a_way_out_unless_the_format_is_given),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
