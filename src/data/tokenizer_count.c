/* tokenizer_count.c -- the words of a corpus and their counts, in parallel.
 *
 * Spans are cut into tasks where a letter is followed by a space or a newline: all patterns cut there too,
 * whatever stands around it, and normalization does not reach across. Each worker counts into a table of its
 * own; the sums do not depend on which worker had which task.
 */
#include <string.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "base/pool.h"
#include "data/tokenizer_impl.h"

#define TASK_BYTES ((size_t)256 << 10)
#define TEXT_BLOCK_BYTES ((size_t)256 << 10)
#define WORDS_AT_ONCE 256

/* One per thread of the pool; allocates through its own ctx, which no other thread uses. */
typedef struct {
    orth_ctx ctx;
    orth_status status;
    orth_word_table table;
    orth_arena arena;           /* bytes of the words */
    char *text;
    size_t text_left;
    orth_bytes normal;
} worker;

struct orth_word_counter {
    worker *workers;            /* [num_workers]; the table of the first holds the sum at the end */
    int num_workers;
    orth_text_span *tasks;      /* [num_tasks] */
    int64_t num_tasks, cap_tasks;
    orth_scan_kind scan;
    bool nfc;
    uint8_t *classes;
    orth_arena arena;
};

/* ---- the table ---- */

static orth_status table_init(orth_ctx *ctx, orth_word_table *t, int64_t size)
{
    t->entries = ORTH_NEW_ARRAY(ctx, orth_word, size);
    t->num = 0;
    t->mask = size - 1;
    return t->entries ? ORTH_OK : ORTH_ERR_NOMEM;
}

static orth_word *table_slot(const orth_word_table *t, const char *word, size_t num_bytes, uint64_t hash)
{
    for (uint64_t i = hash & (uint64_t)t->mask;; i = (i + 1) & (uint64_t)t->mask) {
        orth_word *e = &t->entries[i];
        if (!e->word)
            return e;
        if (e->hash == hash && e->num_bytes == num_bytes && memcmp(e->word, word, num_bytes) == 0)
            return e;
    }
}

static orth_status table_grow(orth_ctx *ctx, orth_word_table *t)
{
    orth_word_table bigger;
    ORTH_TRY(table_init(ctx, &bigger, 2 * (t->mask + 1)));
    for (int64_t i = 0; i <= t->mask; i++) {
        const orth_word *e = &t->entries[i];
        if (e->word)
            *table_slot(&bigger, e->word, e->num_bytes, e->hash) = *e;
    }
    bigger.num = t->num;
    orth_mem_free(ctx, t->entries);
    *t = bigger;
    return ORTH_OK;
}

/* Adds `count`; a new word points to `word` itself if `keep`, else to a copy. */
static orth_status table_add(worker *w, const char *word, size_t num_bytes, uint64_t hash, int64_t count,
                             bool keep)
{
    orth_word *e = table_slot(&w->table, word, num_bytes, hash);
    if (e->word) {
        e->count += count;
        return ORTH_OK;
    }
    if (2 * (w->table.num + 1) > w->table.mask) {
        ORTH_TRY(table_grow(&w->ctx, &w->table));
        e = table_slot(&w->table, word, num_bytes, hash);
    }
    if (!keep) {
        if (num_bytes > w->text_left) {
            const size_t block = ORTH_MAX(num_bytes, TEXT_BLOCK_BYTES);
            w->text = orth_arena_alloc(&w->ctx, &w->arena, block);
            if (!w->text)
                return ORTH_ERR_NOMEM;
            w->text_left = block;
        }
        memcpy(w->text, word, num_bytes);
        word = w->text;
        w->text += num_bytes;
        w->text_left -= num_bytes;
    }
    *e = (orth_word){.word = word, .hash = hash, .count = count, .num_bytes = (uint32_t)num_bytes};
    w->table.num++;
    return ORTH_OK;
}

/* ---- tasks ---- */

static bool is_ascii_letter(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static orth_status cut_span(orth_ctx *ctx, orth_word_counter *c, const orth_text_span *span)
{
    const char *p = span->data, *end = p + span->num_bytes;
    while (p < end) {
        const char *cut = (size_t)(end - p) > TASK_BYTES ? p + TASK_BYTES : end;
        while (cut < end && !(is_ascii_letter(cut[-1]) && (*cut == ' ' || *cut == '\n')))
            cut++;
        if (c->num_tasks == c->cap_tasks) {
            const int64_t cap = ORTH_MAX(2 * c->cap_tasks, 64);
            orth_text_span *tasks = orth_mem_realloc(ctx, c->tasks, (size_t)cap * sizeof *tasks);
            if (!tasks)
                return ORTH_ERR_NOMEM;
            c->tasks = tasks;
            c->cap_tasks = cap;
        }
        c->tasks[c->num_tasks++] = (orth_text_span){.data = p, .num_bytes = (size_t)(cut - p)};
        p = cut;
    }
    return ORTH_OK;
}

static orth_status count_words(const orth_word_counter *c, worker *w, const char *p, size_t num_bytes)
{
    const char *end = p + num_bytes, *ends[WORDS_AT_ONCE];
    if (c->nfc) {
        bool same;
        w->normal.num = 0;
        ORTH_TRY(orth_normal_form(&w->ctx, c->classes, ORTH_NORMALIZE_NFC, &w->normal, &same, p, num_bytes));
        if (!same) {
            p = w->normal.v;
            end = p + w->normal.num;
        }
    }
    while (p < end) {
        const int n = orth_scan_words(c->scan, c->classes, p, end, ends, WORDS_AT_ONCE);
        for (int i = 0; i < n; p = ends[i++]) {
            const size_t bytes = (size_t)(ends[i] - p);
            if (bytes > INT32_MAX)
                return ORTH_FAIL(&w->ctx, ORTH_ERR_DATA, "tokenizer: a word of %zu bytes; the limit is %d",
                                 bytes, INT32_MAX);
            ORTH_TRY(table_add(w, p, bytes, XXH3_64bits(p, bytes), 1, false));
        }
    }
    return ORTH_OK;
}

static void count_task(void *arg, int64_t index, int worker_index)
{
    orth_word_counter *c = arg;
    worker *w = &c->workers[worker_index];
    if (w->status == ORTH_OK)
        w->status = orth_ctx_check_stop(&w->ctx);
    const char *p = c->tasks[index].data, *end = p + c->tasks[index].num_bytes;
    while (p < end && w->status == ORTH_OK) {
        const size_t n = orth_utf8_valid_prefix((const unsigned char *)p, (const unsigned char *)end);
        if (n > 0)
            w->status = count_words(c, w, p, n);
        p += n;
        if (p < end)
            p++; /* a byte that is no character is a word without pairs: nothing to learn from */
    }
}

/* ---- all of it ---- */

static orth_status start_workers(orth_ctx *ctx, orth_word_counter *c)
{
    c->num_workers = orth_pool_num_threads(ctx->pool);
    c->workers = ORTH_NEW_ARRAY(ctx, worker, c->num_workers);
    if (!c->workers)
        return ORTH_ERR_NOMEM;
    for (int i = 0; i < c->num_workers; i++) {
        worker *w = &c->workers[i];
        orth_ctx_work_for(&w->ctx, ctx);
        w->status = table_init(&w->ctx, &w->table, 1 << 16);
    }
    return ORTH_OK;
}

/* The first worker's error, if any, becomes the caller's. */
static orth_status check_workers(orth_ctx *ctx, const orth_word_counter *c)
{
    for (int i = 0; i < c->num_workers; i++) {
        const worker *w = &c->workers[i];
        if (w->status != ORTH_OK)
            return ORTH_FAIL(ctx, w->status, "%s", w->ctx.error.message);
    }
    return ORTH_OK;
}

static orth_status sum_tables(orth_word_counter *c)
{
    for (int i = 1; i < c->num_workers; i++) {
        const orth_word_table *t = &c->workers[i].table;
        for (int64_t k = 0; k <= t->mask; k++) {
            const orth_word *e = &t->entries[k];
            if (e->word)
                ORTH_TRY(table_add(&c->workers[0], e->word, e->num_bytes, e->hash, e->count, true));
        }
    }
    return ORTH_OK;
}

static orth_status count_all(orth_ctx *ctx, orth_word_counter *c, const orth_text_span *spans,
                             int64_t num_spans)
{
    ORTH_TRY(orth_char_classes_create(ctx, &c->arena, &c->classes));
    ORTH_TRY(start_workers(ctx, c));
    ORTH_TRY(check_workers(ctx, c));
    for (int64_t i = 0; i < num_spans; i++)
        ORTH_TRY(cut_span(ctx, c, &spans[i]));
    orth_pool_run(ctx->pool, c->num_tasks, count_task, c);
    ORTH_TRY(check_workers(ctx, c));
    c->workers[0].status = sum_tables(c);
    return check_workers(ctx, c);
}

orth_status orth_words_count(orth_ctx *ctx, orth_word_counter **out, const orth_text_span *spans,
                             int64_t num_spans, orth_scan_kind scan, bool nfc)
{
    orth_word_counter *c = ORTH_NEW(ctx, orth_word_counter);
    if (!c)
        return ORTH_ERR_NOMEM;
    c->scan = scan;
    c->nfc = nfc;
    const orth_status status = count_all(ctx, c, spans, num_spans);
    if (status == ORTH_OK)
        *out = c;
    else
        orth_word_counter_free(ctx, c);
    return status;
}

const orth_word_table *orth_words_table(const orth_word_counter *counter)
{
    return &counter->workers[0].table;
}

void orth_word_counter_free(orth_ctx *ctx, orth_word_counter *c)
{
    if (!c)
        return;
    for (int i = 0; c->workers && i < c->num_workers; i++) {
        worker *w = &c->workers[i];
        orth_mem_free(&w->ctx, w->table.entries);
        orth_bytes_free(&w->ctx, &w->normal);
        orth_arena_release(&w->ctx, &w->arena);
    }
    orth_mem_free(ctx, c->workers);
    orth_mem_free(ctx, c->tasks);
    orth_arena_release(ctx, &c->arena);
    orth_mem_free(ctx, c);
}
