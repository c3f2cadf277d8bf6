/* tokenizer_added.c -- a tree of bytes that finds added tokens in text: leftmost, then longest. */
#include <string.h>

#include "data/tokenizer_impl.h"

/* The tree is owned by the tokenizer and freed with orth_mem_free(nodes). */
orth_status orth_trie_init(orth_ctx *ctx, orth_trie *t)
{
    memset(t, 0, sizeof *t);
    t->cap_nodes = 64;
    t->nodes = ORTH_NEW_ARRAY(ctx, orth_trie_node, t->cap_nodes);
    if (!t->nodes)
        return ORTH_ERR_NOMEM;
    t->nodes[0].id = -1;
    t->num_nodes = 1;
    t->only_first = -1;
    return ORTH_OK;
}

static orth_status new_child(orth_ctx *ctx, orth_trie *t, int32_t parent, uint8_t byte, int32_t *out)
{
    if (t->num_nodes == t->cap_nodes) {
        orth_trie_node *more = orth_mem_realloc(ctx, t->nodes, 2 * sizeof *more * (size_t)t->cap_nodes);
        if (!more)
            return ORTH_ERR_NOMEM;
        t->nodes = more;
        t->cap_nodes *= 2;
    }
    const int32_t n = t->num_nodes++;
    t->nodes[n] = (orth_trie_node){.sibling = t->nodes[parent].child, .id = -1, .byte = byte};
    t->nodes[parent].child = n;
    *out = n;
    return ORTH_OK;
}

static int32_t find_child(const orth_trie *t, int32_t node, uint8_t byte)
{
    int32_t n = t->nodes[node].child;
    while (n != 0 && t->nodes[n].byte != byte)
        n = t->nodes[n].sibling;
    return n;
}

orth_status orth_trie_add(orth_ctx *ctx, orth_trie *t, const char *key, size_t num_bytes, int32_t id)
{
    int32_t node = 0;
    if (num_bytes == 0)
        return ORTH_OK;
    const uint8_t start = (uint8_t)key[0];
    t->only_first = t->num_nodes == 1 || t->only_first == start ? start : -1;
    for (size_t i = 0; i < num_bytes; i++) {
        int32_t next = find_child(t, node, (uint8_t)key[i]);
        if (next == 0)
            ORTH_TRY(new_child(ctx, t, node, (uint8_t)key[i], &next));
        node = next;
    }
    t->nodes[node].id = id;
    t->first[start] = find_child(t, 0, start);
    return ORTH_OK;
}

int32_t orth_trie_get(const orth_trie *t, const char *key, size_t num_bytes)
{
    int32_t node = 0;
    for (size_t i = 0; i < num_bytes; i++)
        if ((node = find_child(t, node, (uint8_t)key[i])) == 0)
            return -1;
    return t->nodes[node].id;
}

/* Longest token that starts at p; NULL if none does. */
static const char *longest_at(const orth_trie *t, const char *p, const char *end, int32_t *out_id)
{
    const char *found = NULL;
    for (int32_t node = t->first[(uint8_t)*p]; node != 0;) {
        p++;
        if (t->nodes[node].id >= 0) {
            found = p;
            *out_id = t->nodes[node].id;
        }
        node = p < end ? find_child(t, node, (uint8_t)*p) : 0;
    }
    return found;
}

bool orth_trie_find(const orth_trie *t, const char *p, const char *end, const char **out_start,
                    const char **out_end, int32_t *out_id)
{
    if (t->num_nodes <= 1)
        return false;
    for (; p < end; p++) {
        if (t->only_first >= 0) {
            p = memchr(p, t->only_first, (size_t)(end - p));
            if (!p)
                return false;
        }
        if (t->first[(uint8_t)*p] == 0)
            continue;
        const char *stop = longest_at(t, p, end, out_id);
        if (stop) {
            *out_start = p;
            *out_end = stop;
            return true;
        }
    }
    return false;
}
