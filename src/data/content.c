/* content.c -- see content.h. */
#include "data/content.h"

#include <string.h>

#define PIPED " (with data.format=jsonl for JSONL)"
#define TAKE_IT "; data.format=text takes it as it is"

/* What its first bytes say a file is, and what makes text of it. */
static const struct {
    const char *magic;
    size_t num_bytes, offset;
    const char *what, *hint;
} formats[] = {
    {"\xFD" "7zXZ\0", 6, 0, "xz", "xz -dc FILE | orthant ... -" PIPED},
    {"1AY&SY", 6, 4, "bzip2", "bzip2 -dc FILE | orthant ... -" PIPED},
    {"\x04\x22\x4D\x18", 4, 0, "lz4", "lz4 -dc FILE | orthant ... -" PIPED},
    {"\x1F\x8B\x08", 3, 0, "gzip inside of gzip or zstd", "decompress it once more"},
    {"\x28\xB5\x2F\xFD", 4, 0, "zstd inside of gzip or zstd", "decompress it once more"},
    {"PK\3\4", 4, 0, "a zip archive (or .docx, .xlsx, .npz)", "unzip it and give the text files"},
    {"7z\xBC\xAF\x27\x1C", 6, 0, "a 7z archive", "extract it and give the text files"},
    {"ustar", 5, 257, "a tar archive", "extract it and give the folder"},
    {"PAR1", 4, 0, "Parquet", "write its text column as JSONL first, for example datasets.Dataset.to_json in Python"},
    {"ARROW1", 6, 0, "Arrow", "write its text column as JSONL first, for example datasets.Dataset.to_json in Python"},
    {"\xFF\xFF\xFF\xFF", 4, 0, "an Arrow stream",
     "write its text column as JSONL first, for example datasets.Dataset.to_json in Python"},
    {"Obj\1", 4, 0, "Avro", "write its text column as JSONL first"},
    {"\x89HDF", 4, 0, "HDF5", "write its text as JSONL first"},
    {"\x93NUMPY", 6, 0, "a NumPy array", "give the text that it was made of"},
    {"SQLite format 3", 15, 0, "an SQLite database", "write its text as JSONL first"},
    {"%PDF-", 5, 0, "PDF", "pdftotext FILE makes text of it"},
    {"ORTHSHRD", 8, 0, "a token shard", "data.path takes the folder that it lies in as it is"},
    {"\xFF\xFE\0\0", 4, 0, "UTF-32 text", "iconv -f UTF-32 -t UTF-8 FILE makes UTF-8 of it"},
    {"\0\0\xFE\xFF", 4, 0, "UTF-32 text", "iconv -f UTF-32 -t UTF-8 FILE makes UTF-8 of it"},
    {"\xFF\xFE", 2, 0, "UTF-16 text", "iconv -f UTF-16 -t UTF-8 FILE makes UTF-8 of it"},
    {"\xFE\xFF", 2, 0, "UTF-16 text", "iconv -f UTF-16 -t UTF-8 FILE makes UTF-8 of it"},
    {"\x7F" "ELF", 4, 0, "a program", "inputs are text or JSONL"},
};

/* Length of the well-formed UTF-8 sequence at p; 0: there is none. */
static size_t sequence(const unsigned char *p, size_t n)
{
    const unsigned char c = p[0];
    if (c < 0x80)
        return 1;
    const size_t want = c >= 0xC2 && c <= 0xDF ? 2 : (c & 0xF0) == 0xE0 ? 3 : c >= 0xF0 && c <= 0xF4 ? 4 : 0;
    if (want == 0 || n < want)
        return 0;
    for (size_t i = 1; i < want; i++)
        if ((p[i] & 0xC0) != 0x80)
            return 0;
    const unsigned char low = c == 0xE0 ? 0xA0 : c == 0xF0 ? 0x90 : 0x80, high = c == 0xED ? 0x9F : c == 0xF4 ? 0x8F : 0xBF;
    return p[1] >= low && p[1] <= high ? want : 0;
}

/* Counts the bytes of p[0, n) that are in no well-formed sequence, up to where a sequence may go on behind them (cut) or `end`; returns where that is. */
static size_t count_invalid(orth_content *seen, size_t place, const unsigned char *p, size_t n, size_t end, bool cut)
{
    size_t i = 0;
    while (i < end) {
        const size_t k = sequence(p + i, n - i);
        if (k == 0 && cut && n - i < sizeof seen->tail)
            break;
        if (k == 0 && seen->num_bad++ == 0)
            seen->first_bad = place + i;
        i += k ? k : 1;
    }
    return i;
}

/* With the tail of what was seen before. */
static void count_on(orth_content *seen, const unsigned char *bytes, size_t n, bool cut)
{
    unsigned char joined[2 * sizeof seen->tail] = {0};
    const size_t before = seen->num_tail, more = n < sizeof seen->tail ? n : sizeof seen->tail;
    memcpy(joined, seen->tail, before);
    memcpy(joined + before, bytes, more);
    size_t at = count_invalid(seen, seen->num_bytes - before, joined, before + more, before, cut);
    if (at < before) { /* fewer bytes came than a sequence has */
        seen->num_tail = before + more - at;
        memmove(seen->tail, joined + at, seen->num_tail);
        return;
    }
    at -= before;
    at += count_invalid(seen, seen->num_bytes + at, bytes + at, n - at, n - at, cut);
    seen->num_tail = n - at;
    memcpy(seen->tail, bytes + at, seen->num_tail);
}

/* Fails if it is one of the formats. */
static orth_status fail_known(orth_ctx *ctx, const char *name, const char *bytes, size_t num_bytes)
{
    for (int i = 0; i < ORTH_COUNT(formats); i++)
        if (num_bytes >= formats[i].offset + formats[i].num_bytes &&
            memcmp(bytes + formats[i].offset, formats[i].magic, formats[i].num_bytes) == 0)
            return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: is %s, not text: %s" TAKE_IT, name, formats[i].what,
                             formats[i].hint);
    return ORTH_OK;
}

orth_status orth_content_check(orth_ctx *ctx, const char *name, orth_content *seen, const char *bytes, size_t num_bytes, bool cut)
{
    const char *nul = num_bytes ? memchr(bytes, 0, num_bytes) : NULL;
    const bool begins = seen->num_bytes == 0;
    const size_t before = seen->num_bytes;
    count_on(seen, (const unsigned char *)bytes, num_bytes, cut);
    seen->num_bytes += num_bytes;
    if (!nul && seen->num_bad * 100 <= seen->num_bytes)
        return ORTH_OK;
    if (begins)
        ORTH_TRY(fail_known(ctx, name, bytes, num_bytes)); /* letters that begin a text may be those that begin a format */
    if (nul)
        return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: is binary, not text: byte %zu is NUL" TAKE_IT, name,
                         before + (size_t)(nul - bytes));
    return ORTH_FAIL(ctx, ORTH_ERR_DATA, "%s: is not UTF-8: %zu of its first %zu bytes are not, the first at byte %zu; if "
                     "it is Latin-1, iconv -f LATIN1 -t UTF-8 FILE makes UTF-8 of it" TAKE_IT, name, seen->num_bad, seen->num_bytes,
                     seen->first_bad);
}
