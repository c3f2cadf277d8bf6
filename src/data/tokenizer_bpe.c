/* tokenizer_bpe.c -- one word to ids: merge the pair of lowest rank, the leftmost of equals, again and again.
 *
 * Short words look through all their pairs for the next merge; long ones keep a heap of the pairs, so that
 * a word of a megabyte (a line of one letter, a base64 blob) is not quadratic.
 */
#include <string.h>

#include "data/tokenizer_impl.h"

/* Longest word that is merged by looking through all pairs. */
#define LINEAR_MAX 48

/* First symbols: tokens of single bytes. Bytes without a token are the unknown token, or nothing. */
static int64_t split_bytes(const orth_tokenizer *tok, int32_t *out, const char *word, size_t num_bytes)
{
    int64_t n = 0;
    bool in_unknown = false;
    for (size_t i = 0; i < num_bytes; i++) {
        const int32_t id = tok->byte_id[(uint8_t)word[i]];
        if (id >= 0)
            out[n++] = id;
        else if (tok->unk >= 0 && !(tok->fuse_unk && in_unknown))
            out[n++] = tok->unk;
        in_unknown = id < 0;
    }
    return n;
}

/* The same of characters. One without a token becomes the tokens of its bytes, if there are all of them, otherwise the
 * unknown token; that one waits for the next character with a token, so bytes go before it (as in Hugging Face's merge_word).
 * Bytes that are no character come one by one. */
static int64_t split_chars(const orth_tokenizer *tok, int32_t *out, const char *word, size_t num_bytes)
{
    int64_t n = 0;
    bool waiting = false;
    size_t length;
    for (size_t i = 0; i < num_bytes; i += length) {
        int want;
        orth_utf8_at((const unsigned char *)word + i, &want);
        const bool is_char = (size_t)want <= num_bytes - i;
        length = is_char ? (size_t)want : 1;
        const int32_t id = is_char ? orth_char_token(tok, word + i, length) : -1;
        bool bytes = id < 0 && tok->byte_fallback;
        for (size_t k = 0; k < length && bytes; k++)
            bytes = tok->byte_id[(uint8_t)word[i + k]] >= 0;
        for (size_t k = 0; k < length && bytes; k++)
            out[n++] = tok->byte_id[(uint8_t)word[i + k]];
        if (bytes || (id < 0 && tok->unk < 0))
            continue;
        if (waiting && (id >= 0 || !tok->fuse_unk))
            out[n++] = tok->unk;
        waiting = id < 0;
        if (id >= 0)
            out[n++] = id;
    }
    if (waiting)
        out[n++] = tok->unk;
    return n;
}

static int64_t merge_linear(const orth_tokenizer *tok, int32_t *sym, int64_t n)
{
    uint32_t rank[LINEAR_MAX];
    int32_t merged[LINEAR_MAX];
    for (int64_t i = 0; i + 1 < n; i++) {
        const orth_pairmap_entry *e = orth_pairmap_find(&tok->pairs, sym[i], sym[i + 1]);
        rank[i] = e ? e->rank : ORTH_NO_RANK;
        merged[i] = e ? e->id : -1;
    }
    while (n > 1) {
        int64_t best = 0;
        for (int64_t i = 1; i + 1 < n; i++) {
            if (rank[i] < rank[best])
                best = i;
        }
        if (rank[best] == ORTH_NO_RANK)
            break;
        sym[best] = merged[best];
        n--;
        for (int64_t i = best + 1; i < n; i++) {
            sym[i] = sym[i + 1];
            rank[i - 1] = rank[i];
            merged[i - 1] = merged[i];
        }
        for (int64_t i = ORTH_MAX(best - 1, 0); i <= best && i + 1 < n; i++) {
            const orth_pairmap_entry *e = orth_pairmap_find(&tok->pairs, sym[i], sym[i + 1]);
            rank[i] = e ? e->rank : ORTH_NO_RANK;
            merged[i] = e ? e->id : -1;
        }
    }
    return n;
}

typedef struct {
    int32_t id;                 /* -1: merged into the one before */
    int32_t prev, next;         /* -1: none */
} symbol;
typedef struct {
    uint32_t rank;
    int32_t pos, id;            /* id the pair merges to */
} candidate;

static bool before(const candidate *a, const candidate *b)
{
    return a->rank < b->rank || (a->rank == b->rank && a->pos < b->pos);
}

static void heap_push(candidate *heap, int64_t *num, candidate c)
{
    int64_t i = (*num)++;
    for (; i > 0 && before(&c, &heap[(i - 1) / 2]); i = (i - 1) / 2)
        heap[i] = heap[(i - 1) / 2];
    heap[i] = c;
}

static candidate heap_pop(candidate *heap, int64_t *num)
{
    const candidate top = heap[0], last = heap[--*num];
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < *num; i = child) {
        if (child + 1 < *num && before(&heap[child + 1], &heap[child]))
            child++;
        if (!before(&heap[child], &last))
            break;
        heap[i] = heap[child];
    }
    heap[i] = last;
    return top;
}

static void push_pair(const orth_tokenizer *tok, const symbol *s, candidate *heap, int64_t *num, int32_t pos)
{
    if (pos < 0 || s[pos].next < 0)
        return;
    const orth_pairmap_entry *e = orth_pairmap_find(&tok->pairs, s[pos].id, s[s[pos].next].id);
    if (e)
        heap_push(heap, num, (candidate){.rank = e->rank, .pos = pos, .id = e->id});
}

/* Room: n symbols and 3 n candidates (each merge removes a symbol and adds at most two). */
static int64_t merge_heap(const orth_tokenizer *tok, void *block, int32_t *sym, int64_t n)
{
    symbol *s = block;
    candidate *heap = (candidate *)(s + n);
    int64_t num = 0;
    for (int32_t i = 0; i < n; i++)
        s[i] = (symbol){.id = sym[i], .prev = i - 1, .next = i + 1 < n ? i + 1 : -1};
    for (int32_t i = 0; i + 1 < n; i++)
        push_pair(tok, s, heap, &num, i);
    while (num > 0) {
        const candidate c = heap_pop(heap, &num);
        symbol *a = &s[c.pos];
        if (a->id < 0 || a->next < 0)
            continue;
        /* The pair may have changed since it was pushed. */
        const orth_pairmap_entry *e = orth_pairmap_find(&tok->pairs, a->id, s[a->next].id);
        if (!e || e->id != c.id)
            continue;
        symbol *b = &s[a->next];
        a->id = c.id;
        a->next = b->next;
        b->id = -1;
        if (a->next >= 0)
            s[a->next].prev = c.pos;
        push_pair(tok, s, heap, &num, a->prev);
        push_pair(tok, s, heap, &num, c.pos);
    }
    int64_t left = 0;
    for (int32_t i = 0; i >= 0 && n > 0; i = s[i].next)
        sym[left++] = s[i].id;
    return left;
}

int64_t orth_bpe_word(orth_ctx *ctx, const orth_tokenizer *tok, orth_bpe_scratch *scratch, int32_t *out,
                      const char *word, size_t num_bytes)
{
    if (tok->ignore_merges) {
        const int32_t id = orth_strmap_find(&tok->by_bytes, word, num_bytes);
        if (id >= 0) {
            out[0] = id;
            return 1;
        }
    }
    const int64_t n = tok->byte_level ? split_bytes(tok, out, word, num_bytes) : split_chars(tok, out, word, num_bytes);
    if (tok->num_merges == 0)
        return n;
    if (n <= LINEAR_MAX)
        return merge_linear(tok, out, n);
    const size_t need = (size_t)n * (sizeof(symbol) + 3 * sizeof(candidate));
    if (scratch->block_bytes < need) {
        orth_mem_free(ctx, scratch->block);
        scratch->block_bytes = 0;
        scratch->block = orth_mem_alloc(ctx, need);
        if (!scratch->block)
            return -1;
        scratch->block_bytes = need;
    }
    return merge_heap(tok, scratch->block, out, n);
}
