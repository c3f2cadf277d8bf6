/* file.c -- schedules as text: docs/formats/schedule.md.
 *
 * One pass over the lines. Actions are collected as (rank, action) in a growing block and dealt out into
 * lists at the end; what they mean together is for check.c.
 */
#include <inttypes.h>
#include <string.h>

#include "base/text.h"
#include "parallel/pipeline/emit.h"
#include "parallel/pipeline/schedule.h"

#define MAX_RANKS 65536
#define MAX_COUNT 10000000
#define SHOWN 24              /* characters of a wrong word in a message */

typedef struct {
    const char *at;
    size_t n;
} word;

typedef struct {
    int32_t rank;
    orth_action action;
} entry;

typedef struct {
    orth_ctx *ctx;
    orth_arena *arena;
    const char *place;
    const char *next, *end, *line_start;
    int line;
    int32_t num_ranks, num_micro_batches, num_chunks;  /* 0: not given yet */
    int32_t *chunk_rank;
    int32_t only_chunk;        /* of the rank of the present line; -1: it has several, or none */
    bool async, split;
    entry *entries;            /* heap */
    int64_t num_entries, cap_entries;
} parser;

#define BAD(p, w, fmt, ...)                                                                               \
    ORTH_FAIL((p)->ctx, ORTH_ERR_DATA, "%s:%d:%d: " fmt, (p)->place, (p)->line,                          \
              (int)((w).at - (p)->line_start) + 1, __VA_ARGS__)

static bool is(word w, const char *text)
{
    return w.n == strlen(text) && memcmp(w.at, text, w.n) == 0;
}

/* A word for messages: cut, and without bytes that a terminal might obey. */
static const char *show(char out[SHOWN + 4], word w)
{
    size_t n = ORTH_MIN(w.n, (size_t)SHOWN);
    for (size_t i = 0; i < n; i++)
        out[i] = w.at[i] > ' ' && w.at[i] < 127 ? w.at[i] : '?';
    strcpy(out + n, w.n > SHOWN ? "..." : "");
    return out;
}

/* The next word of the line; false at its end or at a comment. */
static bool next_word(parser *p, word *out)
{
    while (p->next < p->end && (*p->next == ' ' || *p->next == '\t' || *p->next == '\r'))
        p->next++;
    out->at = p->next;
    if (p->next < p->end && *p->next == '#')
        while (p->next < p->end && *p->next != '\n')
            p->next++;
    else
        while (p->next < p->end && *p->next != '\n' && *p->next != ' ' && *p->next != '\t' &&
               *p->next != '\r' && *p->next != '#')
            p->next++;
    out->n = (size_t)(p->next - out->at);
    return out->n > 0 && *out->at != '#';
}

/* To the beginning of the next line; false at the end of the text. */
static bool next_line(parser *p)
{
    while (p->next < p->end && *p->next != '\n')
        p->next++;
    if (p->next >= p->end)
        return false;
    p->line_start = ++p->next;
    p->line++;
    return true;
}

/* Digits at the beginning of w, up to `max`; returns how many were read, 0 if there is no such number. */
static size_t read_number(word w, int64_t max, int32_t *out)
{
    int64_t value = 0;
    size_t i = 0;
    for (; i < w.n && w.at[i] >= '0' && w.at[i] <= '9'; i++) {
        value = value * 10 + (w.at[i] - '0');
        if (value > max)
            return 0;
    }
    *out = (int32_t)value;
    return i;
}

static orth_status end_of_line(parser *p)
{
    word w;
    char shown[SHOWN + 4];
    return next_word(p, &w) ? BAD(p, w, "\"%s\" is too much on this line", show(shown, w)) : ORTH_OK;
}

/* ranks N, micro_batches N. `expected` 0: any. */
static orth_status parse_count(parser *p, word key, int32_t max, int expected, int32_t *out)
{
    word w;
    char shown[SHOWN + 4];
    int32_t value;
    if (*out)
        return BAD(p, key, "%s is given twice", show(shown, key));
    if (!next_word(p, &w) || read_number(w, max, &value) != w.n || value < 1)
        return BAD(p, w, "%.*s: \"%s\" is not a number from 1 to %d", (int)key.n, key.at, show(shown, w),
                   (int)max);
    if (expected && value != expected)
        return BAD(p, w, "%.*s %d, but the run has %d", (int)key.n, key.at, (int)value, expected);
    *out = value;
    return end_of_line(p);
}

/* chunks R R R ...: the rank of each chunk, in model order. */
static orth_status parse_chunks(parser *p, word key)
{
    if (!p->num_ranks)
        return BAD(p, key, "%s", "chunks: a line with ranks must come before");
    if (p->num_chunks)
        return BAD(p, key, "%s", "chunks is given twice");
    /* A number takes a character and a space. */
    const int64_t room = (p->end - p->next) / 2 + 1;
    p->chunk_rank = ORTH_ARENA_ARRAY(p->ctx, p->arena, int32_t, room);
    if (!p->chunk_rank)
        return ORTH_ERR_NOMEM;
    word w;
    char shown[SHOWN + 4];
    while (next_word(p, &w)) {
        if (read_number(w, p->num_ranks - 1, &p->chunk_rank[p->num_chunks]) != w.n)
            return BAD(p, w, "chunks: \"%s\" is not a rank, which are 0 to %d", show(shown, w),
                       (int)p->num_ranks - 1);
        p->num_chunks++;
    }
    return p->num_chunks ? ORTH_OK : BAD(p, w, "%s", "chunks: at least one rank must follow");
}

static orth_status default_chunks(parser *p)
{
    if (p->num_chunks)
        return ORTH_OK;
    p->chunk_rank = ORTH_ARENA_ARRAY(p->ctx, p->arena, int32_t, p->num_ranks);
    if (!p->chunk_rank)
        return ORTH_ERR_NOMEM;
    for (int32_t c = 0; c < p->num_ranks; c++)
        p->chunk_rank[c] = c;
    p->num_chunks = p->num_ranks;
    return ORTH_OK;
}

/* F3 or F3@5: kind, micro-batch, chunk. */
static orth_status parse_action(parser *p, word w, int32_t rank, orth_action *out)
{
    char shown[SHOWN + 4];
    int kind = 0;
    while (kind < ORTH_NUM_ACTION_KINDS && orth_action_letter((orth_action_kind)kind) != *w.at)
        kind++;
    const word number = {w.at + 1, w.n - 1};
    size_t n = 0;
    out->kind = (orth_action_kind)kind;
    if (kind < ORTH_NUM_ACTION_KINDS)
        n = read_number(number, p->num_micro_batches - 1, &out->micro_batch);
    if (n == 0)
        return BAD(p, w, "\"%s\" is not an action: F, B, I or W and a micro-batch from 0 to %d",
                   show(shown, w), (int)p->num_micro_batches - 1);
    out->chunk = p->only_chunk;
    if (n < number.n) {
        const word chunk = {number.at + n + 1, number.n - n - 1};
        if (number.at[n] != '@' || chunk.n == 0 ||
            read_number(chunk, p->num_chunks - 1, &out->chunk) != chunk.n)
            return BAD(p, w, "\"%s\": after the micro-batch may come @ and a chunk from 0 to %d",
                       show(shown, w), (int)p->num_chunks - 1);
    }
    if (out->chunk < 0)
        return BAD(p, w, "\"%s\": rank %d does not hold one chunk, so that @ and a chunk must follow",
                   show(shown, w), (int)rank);
    p->split |= out->kind == ORTH_ACTION_BI || out->kind == ORTH_ACTION_W;
    return ORTH_OK;
}

static orth_status push(parser *p, int32_t rank, orth_action a)
{
    if (p->num_entries == p->cap_entries) {
        const int64_t cap = 2 * p->cap_entries + 256;
        entry *more = orth_mem_realloc(p->ctx, p->entries, (size_t)cap * sizeof *more);
        if (!more)
            return ORTH_ERR_NOMEM;
        p->entries = more;
        p->cap_entries = cap;
    }
    p->entries[p->num_entries++] = (entry){rank, a};
    return ORTH_OK;
}

/* rank R: F0 F1 ... */
static orth_status parse_rank(parser *p, word key)
{
    if (!p->num_ranks || !p->num_micro_batches)
        return BAD(p, key, "rank: a line with %s must come before", p->num_ranks ? "micro_batches" : "ranks");
    ORTH_TRY(default_chunks(p));
    word w;
    char shown[SHOWN + 4];
    int32_t rank, num_held = 0;
    const bool there = next_word(p, &w);
    const size_t n = there ? read_number(w, p->num_ranks - 1, &rank) : 0;
    if (n == 0 || n + 1 != w.n || w.at[n] != ':')
        return BAD(p, w, "rank: \"%s\" is not a number from 0 to %d and a colon", show(shown, w),
                   (int)p->num_ranks - 1);
    p->only_chunk = -1;
    for (int32_t c = 0; c < p->num_chunks; c++) {
        if (p->chunk_rank[c] == rank)
            p->only_chunk = num_held++ ? -1 : c;
    }
    while (next_word(p, &w)) {
        orth_action a = {0};
        ORTH_TRY(parse_action(p, w, rank, &a));
        ORTH_TRY(push(p, rank, a));
    }
    return ORTH_OK;
}

static orth_status parse_line(parser *p, int num_ranks, int num_micro_batches)
{
    word key;
    char shown[SHOWN + 4];
    if (!next_word(p, &key))
        return ORTH_OK;
    if (is(key, "rank"))
        return parse_rank(p, key);
    if (p->num_entries)
        return BAD(p, key, "\"%s\": only lines with rank may follow the first of them", show(shown, key));
    if (is(key, "ranks"))
        return parse_count(p, key, MAX_RANKS, num_ranks, &p->num_ranks);
    if (is(key, "micro_batches"))
        return parse_count(p, key, MAX_COUNT, num_micro_batches, &p->num_micro_batches);
    if (is(key, "chunks"))
        return parse_chunks(p, key);
    if (is(key, "async")) {
        p->async = true;
        return end_of_line(p);
    }
    return BAD(p, key, "\"%s\" is unknown; there are ranks, micro_batches, chunks, async, rank",
               show(shown, key));
}

/* The first line: orthant-schedule 1. */
static orth_status parse_magic(parser *p)
{
    word w;
    char shown[SHOWN + 4];
    if (!next_word(p, &w) || !is(w, "orthant-schedule"))
        return BAD(p, w, "\"%s\": a schedule begins with: orthant-schedule 1", show(shown, w));
    if (!next_word(p, &w) || !is(w, "1"))
        return BAD(p, w, "version \"%s\" of the format is unknown; this program reads 1", show(shown, w));
    return end_of_line(p);
}

static orth_status deal_out(parser *p, orth_action_list *lists, orth_action **actions)
{
    int32_t *count = ORTH_ARENA_ARRAY(p->ctx, p->arena, int32_t, p->num_ranks);
    orth_action *all = ORTH_ARENA_ARRAY(p->ctx, p->arena, orth_action, p->num_entries);
    if (!count || !all)
        return ORTH_ERR_NOMEM;
    for (int64_t i = 0; i < p->num_entries; i++)
        count[p->entries[i].rank]++;
    for (int32_t r = 0; r < p->num_ranks; r++) {
        lists[r] = (orth_action_list){all, count[r]};
        actions[r] = all;
        all += count[r];
        count[r] = 0;
    }
    for (int64_t i = 0; i < p->num_entries; i++) {
        const int32_t r = p->entries[i].rank;
        actions[r][count[r]++] = p->entries[i].action;
    }
    return ORTH_OK;
}

static orth_status finish(parser *p, orth_schedule *out, int virtual_stages)
{
    if (!p->num_entries)
        return ORTH_FAIL(p->ctx, ORTH_ERR_DATA, "%s:%d:1: ends without a line with rank", p->place, p->line);
    if (virtual_stages && p->num_chunks != (int64_t)p->num_ranks * virtual_stages)
        return ORTH_FAIL(p->ctx, ORTH_ERR_DATA, "%s: %d chunks, but the run has pp=%d x virtual_stages=%d",
                         p->place, (int)p->num_chunks, (int)p->num_ranks, virtual_stages);
    orth_action_list *lists = ORTH_ARENA_ARRAY(p->ctx, p->arena, orth_action_list, p->num_ranks);
    orth_action **actions = ORTH_ARENA_ARRAY(p->ctx, p->arena, orth_action *, p->num_ranks);
    if (!lists || !actions)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(deal_out(p, lists, actions));
    const orth_schedule s = {.name = orth_arena_printf(p->ctx, p->arena, "file:%s", p->place),
                             .num_ranks = p->num_ranks, .num_chunks = p->num_chunks, .lists = lists,
                             .num_micro_batches = p->num_micro_batches, .chunk_rank = p->chunk_rank,
                             .async = p->async, .split = p->split};
    if (!s.name)
        return ORTH_ERR_NOMEM;
    ORTH_TRY(orth_schedule_check_as(p->ctx, &s, ORTH_ERR_DATA, p->place, actions));
    *out = s;
    return ORTH_OK;
}

orth_status orth_schedule_parse(orth_ctx *ctx, orth_arena *arena, orth_schedule *out, const char *place,
                                const char *text, size_t num_bytes, int num_ranks, int virtual_stages,
                                int num_micro_batches)
{
    parser p = {.ctx = ctx, .arena = arena, .place = place, .next = text, .end = text + num_bytes,
                .line_start = text, .line = 1};
    orth_status status = parse_magic(&p);
    while (status == ORTH_OK && next_line(&p))
        status = parse_line(&p, num_ranks, num_micro_batches);
    if (status == ORTH_OK)
        status = finish(&p, out, virtual_stages);
    orth_mem_free(ctx, p.entries);
    return status;
}
