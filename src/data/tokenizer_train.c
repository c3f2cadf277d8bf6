/* tokenizer_train.c -- learning merges: again and again, join the most frequent pair of neighbours.
 *
 * Source: Sennrich et al., arXiv:1508.07909. Counts are kept up to date instead of counted anew: a merge
 * changes only the pairs beside it. A heap has the pairs by count, stale entries are put right when they
 * come up. Every heap entry knows the words that its pair was born in, so a merge visits those only.
 *
 * Order of events and ties are those of Hugging Face's BpeTrainer, so the merges are the same: the highest
 * count, then the smaller pair of ids; two pairs that spell one token share its id; a pair whose neighbours
 * changed later gets a second heap entry for the words of that change alone. None of it depends on the order
 * of the words, hence not on how they were counted.
 */
#include <string.h>

#include "data/tokenizer_impl.h"

#define NO_PAIR UINT64_MAX

typedef struct {
    uint64_t key;               /* orth_pair_key; NO_PAIR: free */
    int64_t count;
    int32_t round;              /* the last round that added words to it, and there: */
    int32_t last_word;          /*   the last word added */
    int32_t slot;               /*   its place in `fresh` */
} pair;

/* A pair in the heap. */
typedef struct {
    int64_t count;
    uint64_t key;
    int64_t words;              /* place in `places` */
    int32_t num_words;
    int32_t round;              /* that it was born in */
} entry;

typedef struct {
    uint64_t key;
    int64_t num_words, words;
} fresh_pair;

typedef struct {
    int32_t slot, word;
} change;

typedef struct {
    const char *bytes;
    uint32_t num_bytes;
} spelling;

typedef struct {
    orth_ctx *ctx;
    orth_arena arena;           /* spellings */
    /* Words: symbols of word w are sym[start[w]] ... [len[w]]. */
    int64_t num_words;
    int32_t *sym, *len;
    int64_t *start, *count;
    /* Pairs, an open table that grows. */
    pair *pairs;
    int64_t num_pairs, pair_mask;
    /* What the round found: pairs that gained words, and which; turned into heap entries at its end. */
    int32_t round;
    fresh_pair *fresh;
    int64_t num_fresh, cap_fresh;
    change *changes;
    int64_t num_changes, cap_changes;
    int32_t *places;            /* words of heap entries */
    int64_t num_places, cap_places;
    entry *heap;
    int64_t num_heap, cap_heap;
    /* Results. */
    orth_strmap by_bytes;
    spelling *tokens;           /* [vocab] */
    int64_t num_tokens;
    orth_merge *merges;
    int64_t num_merges, cap_merges;
} trainer;

/* Makes room for `extra` more elements of any of the arrays above. orth_mem_grow counts to 2^31: of places, there can be more. */
static orth_status grow(orth_ctx *ctx, void *array_of_pointer, int64_t num, int64_t *cap, size_t elem_bytes,
                        int64_t extra)
{
    if (num + extra <= *cap)
        return ORTH_OK;
    void *old;
    memcpy(&old, array_of_pointer, sizeof old);
    const int64_t more = ORTH_MAX(num + extra, ORTH_MAX(2 * *cap, 1024));
    void *p = orth_mem_realloc(ctx, old, (size_t)more * elem_bytes);
    if (!p)
        return ORTH_ERR_NOMEM;
    memcpy(array_of_pointer, &p, sizeof p);
    *cap = more;
    return ORTH_OK;
}
#define GROW(t, array, extra) \
    grow((t)->ctx, &(t)->array, (t)->num_##array, &(t)->cap_##array, sizeof *(t)->array, (extra))

/* ---- pairs ---- */

static orth_status pairs_init(trainer *t, int64_t size)
{
    t->pairs = ORTH_NEW_ARRAY(t->ctx, pair, size);
    if (!t->pairs)
        return ORTH_ERR_NOMEM;
    for (int64_t i = 0; i < size; i++)
        t->pairs[i].key = NO_PAIR;
    t->pair_mask = size - 1;
    return ORTH_OK;
}

static pair *pair_slot(const trainer *t, uint64_t key)
{
    uint64_t i = orth_pair_hash(key) & (uint64_t)t->pair_mask;
    while (t->pairs[i].key != key && t->pairs[i].key != NO_PAIR)
        i = (i + 1) & (uint64_t)t->pair_mask;
    return &t->pairs[i];
}

static orth_status pairs_grow(trainer *t)
{
    pair *old = t->pairs;
    const int64_t size = t->pair_mask + 1;
    orth_status status = pairs_init(t, 2 * size);
    if (status != ORTH_OK) {
        t->pairs = old;
        return status;
    }
    for (int64_t i = 0; i < size; i++) {
        if (old[i].key != NO_PAIR)
            *pair_slot(t, old[i].key) = old[i];
    }
    orth_mem_free(t->ctx, old);
    return ORTH_OK;
}

/* Changes the count of a pair by delta; a gain is noted with the word that has it. */
static orth_status pair_add(trainer *t, int32_t left, int32_t right, int64_t delta, int32_t word)
{
    const uint64_t key = orth_pair_key(left, right);
    pair *p = pair_slot(t, key);
    if (p->key == NO_PAIR) {
        if (2 * (t->num_pairs + 1) > t->pair_mask) {
            ORTH_TRY(pairs_grow(t));
            p = pair_slot(t, key);
        }
        *p = (pair){.key = key, .round = -1};
        t->num_pairs++;
    }
    p->count += delta;
    if (delta < 0 || (p->round == t->round && p->last_word == word))
        return ORTH_OK;
    if (p->round != t->round) {
        ORTH_TRY(GROW(t, fresh, 1));
        p->round = t->round;
        p->slot = (int32_t)t->num_fresh;
        t->fresh[t->num_fresh++] = (fresh_pair){.key = key};
    }
    p->last_word = word;
    t->fresh[p->slot].num_words++;
    ORTH_TRY(GROW(t, changes, 1));
    t->changes[t->num_changes++] = (change){.slot = p->slot, .word = word};
    return ORTH_OK;
}

/* ---- the heap ---- */

static inline bool comes_first(const entry *a, const entry *b)
{
    if (a->count != b->count)
        return a->count > b->count;
    return a->key != b->key ? a->key < b->key : a->round < b->round;
}

static void heap_sift_down(trainer *t, entry e)
{
    entry *heap = t->heap;
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < t->num_heap; i = child) {
        if (child + 1 < t->num_heap && comes_first(&heap[child + 1], &heap[child]))
            child++;
        if (!comes_first(&heap[child], &e))
            break;
        heap[i] = heap[child];
    }
    heap[i] = e;
}

static orth_status heap_push(trainer *t, entry e)
{
    ORTH_TRY(GROW(t, heap, 1));
    int64_t i = t->num_heap++;
    for (; i > 0 && comes_first(&e, &t->heap[(i - 1) / 2]); i = (i - 1) / 2)
        t->heap[i] = t->heap[(i - 1) / 2];
    t->heap[i] = e;
    return ORTH_OK;
}

static void heap_remove_top(trainer *t)
{
    const entry last = t->heap[--t->num_heap];
    if (t->num_heap > 0)
        heap_sift_down(t, last);
}

/* The next pair to merge, with its count put right; false: no pair is left. The entry leaves the heap. */
static bool next_pair(trainer *t, entry *out)
{
    while (t->num_heap > 0) {
        entry e = t->heap[0];
        const int64_t count = pair_slot(t, e.key)->count;
        if (e.count == count) {
            heap_remove_top(t);
            *out = e;
            return true;
        }
        e.count = count;
        heap_sift_down(t, e);
    }
    return false;
}

/* Ends a round: what it found goes into the heap, words grouped by pair. */
static orth_status end_round(trainer *t)
{
    ORTH_TRY(GROW(t, places, t->num_changes));
    for (int64_t i = 0; i < t->num_fresh; i++) {
        fresh_pair *f = &t->fresh[i];
        const int64_t count = pair_slot(t, f->key)->count;
        f->words = t->num_places;
        t->num_places += f->num_words;
        if (count > 0)
            ORTH_TRY(heap_push(t, (entry){.count = count, .key = f->key, .words = f->words,
                                          .num_words = (int32_t)f->num_words, .round = t->round}));
    }
    for (int64_t i = 0; i < t->num_changes; i++)
        t->places[t->fresh[t->changes[i].slot].words++] = t->changes[i].word;
    t->num_fresh = t->num_changes = 0;
    t->round++;
    return ORTH_OK;
}

/* ---- words ---- */

static orth_status load_words(trainer *t, const orth_word_table *table)
{
    unsigned char order[256];
    int32_t id_of[256];
    orth_byte_order(order);
    for (int i = 0; i < 256; i++)
        id_of[order[i]] = i;
    int64_t num_symbols = 0;
    for (int64_t i = 0; i <= table->mask; i++) {
        if (table->entries[i].word)
            num_symbols += table->entries[i].num_bytes;
    }
    if (table->num > INT32_MAX)
        return ORTH_FAIL(t->ctx, ORTH_ERR_ARG, "tokenizer: %lld distinct words; the limit is %d",
                         (long long)table->num, INT32_MAX);
    t->sym = ORTH_NEW_ARRAY(t->ctx, int32_t, num_symbols);
    t->len = ORTH_NEW_ARRAY(t->ctx, int32_t, table->num);
    t->start = ORTH_NEW_ARRAY(t->ctx, int64_t, table->num);
    t->count = ORTH_NEW_ARRAY(t->ctx, int64_t, table->num);
    if (!t->sym || !t->len || !t->start || !t->count)
        return ORTH_ERR_NOMEM;
    int64_t at = 0;
    for (int64_t i = 0; i <= table->mask; i++) {
        const orth_word *e = &table->entries[i];
        if (!e->word || e->num_bytes < 2)
            continue; /* no pair */
        const int64_t w = t->num_words++;
        t->start[w] = at;
        t->len[w] = (int32_t)e->num_bytes;
        t->count[w] = e->count;
        for (uint32_t k = 0; k < e->num_bytes; k++)
            t->sym[at++] = id_of[(uint8_t)e->word[k]];
    }
    return ORTH_OK;
}

static orth_status count_pairs(trainer *t)
{
    ORTH_TRY(pairs_init(t, 1 << 16));
    for (int64_t w = 0; w < t->num_words; w++) {
        const int32_t *s = t->sym + t->start[w];
        for (int32_t i = 0; i + 1 < t->len[w]; i++)
            ORTH_TRY(pair_add(t, s[i], s[i + 1], t->count[w], (int32_t)w));
    }
    return end_round(t);
}

/* Joins every (a, b) of word w into `joined`, left to right. */
static orth_status merge_in_word(trainer *t, int32_t w, int32_t a, int32_t b, int32_t joined)
{
    int32_t *s = t->sym + t->start[w];
    const int32_t n = t->len[w];
    const int64_t count = t->count[w];
    int32_t to = 0;
    for (int32_t i = 0; i < n; i++) {
        if (s[i] != a || i + 1 == n || s[i + 1] != b) {
            s[to++] = s[i];
            continue;
        }
        if (to > 0) {
            ORTH_TRY(pair_add(t, s[to - 1], a, -count, w));
            ORTH_TRY(pair_add(t, s[to - 1], joined, count, w));
        }
        i++;
        if (i + 1 < n) {
            ORTH_TRY(pair_add(t, b, s[i + 1], -count, w));
            ORTH_TRY(pair_add(t, joined, s[i + 1], count, w));
        }
        s[to++] = joined;
    }
    t->len[w] = to;
    return ORTH_OK;
}

/* ---- tokens ---- */

static orth_status add_token(trainer *t, char *bytes, uint32_t num_bytes)
{
    t->tokens[t->num_tokens] = (spelling){.bytes = bytes, .num_bytes = num_bytes};
    return orth_strmap_put(t->ctx, &t->by_bytes, bytes, num_bytes, (int32_t)t->num_tokens++);
}

static orth_status add_bytes(trainer *t)
{
    unsigned char order[256];
    orth_byte_order(order);
    char *bytes = orth_arena_alloc(t->ctx, &t->arena, 256);
    if (!bytes)
        return ORTH_ERR_NOMEM;
    memcpy(bytes, order, 256);
    for (int i = 0; i < 256; i++)
        ORTH_TRY(add_token(t, bytes + i, 1));
    return ORTH_OK;
}

/* The token that left and right make; a new one unless another pair spells the same. */
static orth_status join_tokens(trainer *t, int32_t left, int32_t right, int32_t *out)
{
    const spelling *a = &t->tokens[left], *b = &t->tokens[right];
    const uint32_t num_bytes = a->num_bytes + b->num_bytes;
    char *bytes = orth_arena_alloc(t->ctx, &t->arena, num_bytes);
    if (!bytes)
        return ORTH_ERR_NOMEM;
    memcpy(bytes, a->bytes, a->num_bytes);
    memcpy(bytes + a->num_bytes, b->bytes, b->num_bytes);
    *out = orth_strmap_find(&t->by_bytes, bytes, num_bytes);
    if (*out >= 0)
        return ORTH_OK;
    *out = (int32_t)t->num_tokens;
    return add_token(t, bytes, num_bytes);
}

static orth_status learn(trainer *t, int64_t vocab_size, int64_t min_frequency)
{
    entry e;
    while (t->num_tokens < vocab_size && next_pair(t, &e) && e.count >= min_frequency) {
        const int32_t left = (int32_t)(e.key >> 32), right = (int32_t)(uint32_t)e.key;
        int32_t joined = 0;
        ORTH_TRY(orth_ctx_check_stop(t->ctx));
        ORTH_TRY(join_tokens(t, left, right, &joined));
        ORTH_TRY(GROW(t, merges, 1));
        t->merges[t->num_merges++] = (orth_merge){.left = left, .right = right, .id = joined};
        for (int32_t i = 0; i < e.num_words; i++)
            ORTH_TRY(merge_in_word(t, t->places[e.words + i], left, right, joined));
        ORTH_TRY(end_round(t));
    }
    return ORTH_OK;
}

static void trainer_free(orth_ctx *ctx, trainer *t)
{
    void *const blocks[] = {t->sym, t->len, t->start, t->count, t->pairs, t->fresh, t->changes, t->places,
                            t->heap, t->tokens, t->merges};
    for (int i = 0; i < ORTH_COUNT(blocks); i++)
        orth_mem_free(ctx, blocks[i]);
    orth_strmap_free(ctx, &t->by_bytes);
    orth_arena_release(ctx, &t->arena);
}

/* ---- the finished tokenizer ---- */

static const char byte_level_section[] =
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}";

static orth_status write_sections(orth_ctx *ctx, orth_tokenizer *tok, orth_tokenizer_kind kind,
                                  orth_scan_kind scan)
{
    tok->decoder_json = tok->pre_tokenizer_json = byte_level_section;
    if (kind == ORTH_TOKENIZER_GPT2)
        return ORTH_OK;
    if (kind == ORTH_TOKENIZER_QWEN)
        tok->normalizer_json = "{\"type\":\"NFC\"}";
    const char *pattern = orth_scan_pattern(scan);
    orth_bytes quoted = {0};
    orth_status status = orth_json_put_string(ctx, &quoted, pattern, strlen(pattern));
    if (status == ORTH_OK) {
        tok->pre_tokenizer_json = orth_arena_printf(
            ctx, &tok->arena,
            "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":%.*s},"
            "\"behavior\":\"Isolated\",\"invert\":false},{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
            "\"trim_offsets\":false,\"use_regex\":false}]}", (int)quoted.num, quoted.v);
        status = tok->pre_tokenizer_json ? ORTH_OK : ORTH_ERR_NOMEM;
    }
    orth_bytes_free(ctx, &quoted);
    return status;
}

static orth_status fill(orth_ctx *ctx, orth_tokenizer *tok, const trainer *t, const char *eos)
{
    orth_bytes content = {0};
    orth_status status = ORTH_OK;
    for (int64_t id = 0; id < t->num_tokens && status == ORTH_OK; id++) {
        const spelling *s = &t->tokens[id];
        content.num = 0;
        status = orth_bytes_reserve(ctx, &content, 2 * (size_t)s->num_bytes);
        if (status != ORTH_OK)
            break;
        for (uint32_t i = 0; i < s->num_bytes; i++)
            content.num += (size_t)orth_byte_spell((unsigned char)s->bytes[i], content.v + content.num);
        status = orth_tokenizer_put(ctx, tok, id, content.v, content.num, ORTH_TOKEN_MODEL);
    }
    orth_bytes_free(ctx, &content);
    ORTH_TRY(status);
    if (t->num_merges > 0) // a text without a pair leaves no list to copy
        memcpy(tok->merges, t->merges, (size_t)t->num_merges * sizeof *t->merges);
    tok->num_merges = t->num_merges;
    tok->added[tok->num_added++] = (int32_t)t->num_tokens;
    return orth_tokenizer_put(ctx, tok, t->num_tokens, eos, strlen(eos),
                              ORTH_TOKEN_ADDED | ORTH_TOKEN_SPECIAL);
}

static orth_status build(orth_ctx *ctx, orth_tokenizer **out, const trainer *t, const char *eos,
                         orth_tokenizer_kind kind, orth_scan_kind scan)
{
    orth_tokenizer *tok;
    ORTH_TRY(orth_tokenizer_new(ctx, &tok, t->num_tokens + 1, t->num_merges, 1));
    orth_status status = fill(ctx, tok, t, eos);
    if (status == ORTH_OK)
        status = write_sections(ctx, tok, kind, scan);
    if (status == ORTH_OK)
        status = orth_tokenizer_finish(ctx, tok, "trained");
    if (status == ORTH_OK)
        *out = tok;
    else
        orth_tokenizer_free(ctx, tok);
    return status;
}

static orth_status train(trainer *t, const orth_text_span *spans, int64_t num_spans,
                         const orth_tokenizer_train_options *options, orth_scan_kind scan)
{
    orth_ctx *ctx = t->ctx;
    orth_word_counter *counter;
    ORTH_TRY(orth_words_count(ctx, &counter, spans, num_spans, scan, options->kind == ORTH_TOKENIZER_QWEN));
    orth_status status = load_words(t, orth_words_table(counter));
    orth_word_counter_free(ctx, counter);
    ORTH_TRY(status);
    t->tokens = ORTH_NEW_ARRAY(ctx, spelling, options->vocab_size);
    if (!t->tokens)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(orth_strmap_init(ctx, &t->by_bytes, options->vocab_size));
    ORTH_TRY(add_bytes(t));
    ORTH_TRY(count_pairs(t));
    return learn(t, options->vocab_size - 1, options->min_frequency > 0 ? options->min_frequency : 2);
}

orth_status orth_tokenizer_train(orth_ctx *ctx, orth_tokenizer **out, const orth_text_span *spans,
                                 int64_t num_spans, const orth_tokenizer_train_options *options)
{
    static const orth_scan_kind scans[] = {ORTH_SCAN_GPT2, ORTH_SCAN_LLAMA3, ORTH_SCAN_QWEN};
    const char *eos = options->eos ? options->eos : "<|endoftext|>";
    if (options->vocab_size < ORTH_TOKENIZER_LEAST_VOCAB || options->vocab_size > 1 << 24)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "vocab_size=%lld is not in [%d, %d] (256 bytes and %s)",
                         (long long)options->vocab_size, ORTH_TOKENIZER_LEAST_VOCAB, 1 << 24, eos);
    if (options->kind < ORTH_TOKENIZER_GPT2 || options->kind > ORTH_TOKENIZER_QWEN)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "tokenizer kind %d is unknown", (int)options->kind);
    trainer t = {.ctx = ctx};
    orth_status status = train(&t, spans, num_spans, options, scans[options->kind]);
    if (status == ORTH_OK)
        status = build(ctx, out, &t, eos, options->kind, scans[options->kind]);
    trainer_free(ctx, &t);
    return status;
}
