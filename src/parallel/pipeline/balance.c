/* balance.c -- see balance.h. L layers, C chunks.
 *
 * Two dynamic programs over suffixes: the least possible maximum, and then, with no chunk dearer than that,
 * the least sum of squares. Suffixes, so that reading the answer off from the front prefers small chunks in
 * front among equals. Squares are doubles; they decide between splits that are equally fast only.
 */
#include "parallel/pipeline/balance.h"

#include <inttypes.h>
#include <math.h>

typedef struct {
    int L, C;
    const int64_t *sum;   /* [L + 1] cost of the layers before each */
    int64_t embed, head;
    int64_t limit;        /* no chunk costs more */
    int64_t *least;       /* [C + 1][L + 1] least maximum of chunks c.. over layers l.. */
    double *squares;      /* [C + 1][L + 1] least sum of squares, INFINITY if none keeps the limit */
} balancer;

static int64_t chunk_cost(const balancer *b, int c, int begin, int end)
{
    return b->sum[end] - b->sum[begin] + (c == 0 ? b->embed : 0) + (c == b->C - 1 ? b->head : 0);
}

/* First layer beyond those that chunk c may hold: one layer stays for each chunk behind it, and the last
 * chunk takes all. */
static int max_end(const balancer *b, int c)
{
    return b->L - (b->C - 1 - c);
}

static int min_end(const balancer *b, int c, int begin)
{
    return c == b->C - 1 ? b->L : begin + 1;
}

static void fill_least(balancer *b)
{
    const int W = b->L + 1;
    for (int c = b->C - 1; c >= 0; c--) {
        for (int l = b->L - 1; l >= 0; l--) {
            int64_t best = INT64_MAX;
            for (int end = min_end(b, c, l); end <= max_end(b, c); end++) {
                const int64_t cost = chunk_cost(b, c, l, end);
                if (cost >= best)
                    break; /* more layers cost no less */
                best = ORTH_MIN(best, ORTH_MAX(cost, c == b->C - 1 ? 0 : b->least[(c + 1) * W + end]));
            }
            b->least[c * W + l] = best;
        }
    }
    b->limit = b->least[0];
}

/* Sum of squares if chunk c is layers [begin, end) and the rest is done best; INFINITY beyond the limit. */
static double squares_with(const balancer *b, int c, int begin, int end)
{
    const int64_t cost = chunk_cost(b, c, begin, end);
    if (cost > b->limit)
        return INFINITY;
    const double rest = c == b->C - 1 ? 0 : b->squares[(c + 1) * (b->L + 1) + end];
    return (double)cost * (double)cost + rest;
}

static void fill_squares(balancer *b)
{
    for (int c = b->C - 1; c >= 0; c--) {
        for (int l = b->L - 1; l >= 0; l--) {
            double best = INFINITY;
            for (int end = min_end(b, c, l); end <= max_end(b, c); end++)
                best = fmin(best, squares_with(b, c, l, end));
            b->squares[c * (b->L + 1) + l] = best;
        }
    }
}

static void read_off(const balancer *b, int32_t *begin)
{
    begin[0] = 0;
    for (int c = 0; c < b->C; c++) {
        int end = min_end(b, c, begin[c]);
        /* The same expression made the table, so that one end gives exactly its number. */
        while (squares_with(b, c, begin[c], end) > b->squares[c * (b->L + 1) + begin[c]])
            end++;
        begin[c + 1] = end;
    }
}

orth_status orth_balance_layers(orth_ctx *ctx, const int64_t *cost, int num_layers, int64_t embed,
                                int64_t head, int num_chunks, int32_t *begin)
{
    const int L = num_layers, C = num_chunks;
    if (C < 1 || C > L)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%d chunks for layers=%d: each needs at least one layer", C, L);
    orth_arena scratch = {0};
    int64_t *sum = ORTH_ARENA_ARRAY(ctx, &scratch, int64_t, L + 1);
    balancer b = {.L = L, .C = C, .sum = sum, .embed = embed, .head = head,
                  .least = ORTH_ARENA_ARRAY(ctx, &scratch, int64_t, (int64_t)(C + 1) * (L + 1)),
                  .squares = ORTH_ARENA_ARRAY(ctx, &scratch, double, (int64_t)(C + 1) * (L + 1))};
    orth_status status = sum && b.least && b.squares ? ORTH_OK : ORTH_ERR_NOMEM;
    for (int l = 0; l < L && status == ORTH_OK; l++) {
        if (cost[l] < 0)
            status = ORTH_FAIL(ctx, ORTH_ERR_ARG, "layer %d costs %" PRId64 ": costs are not negative", l,
                               cost[l]);
        else
            sum[l + 1] = sum[l] + cost[l];
    }
    if (status == ORTH_OK && (embed < 0 || head < 0))
        status = ORTH_FAIL(ctx, ORTH_ERR_ARG, "embedding or head costs %" PRId64 ": costs are not negative",
                           ORTH_MIN(embed, head));
    if (status == ORTH_OK) {
        fill_least(&b);
        fill_squares(&b);
        read_off(&b, begin);
    }
    orth_arena_release(ctx, &scratch);
    return status;
}

orth_status orth_balance_evenly(orth_ctx *ctx, int num_layers, int num_chunks, int32_t *begin)
{
    if (num_chunks < 1 || num_layers % num_chunks != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%d chunks for layers=%d: even stages need a divisor", num_chunks, num_layers);
    for (int c = 0; c <= num_chunks; c++)
        begin[c] = c * (num_layers / num_chunks);
    return ORTH_OK;
}

bool orth_balance_hand_fits(const double *layers_of_chunk, int64_t num_given, int64_t num_layers,
                            int64_t num_chunks, char *why, size_t size)
{
    int64_t sum = 0;
    if (num_given != num_chunks) {
        snprintf(why, size, "stage_layers has %" PRId64 " numbers, but pp x virtual_stages is %" PRId64,
                 num_given, num_chunks);
        return false;
    }
    for (int64_t c = 0; c < num_chunks; c++) {
        const double n = layers_of_chunk[c];
        if (!(n >= 1 && n <= (double)num_layers) || n != (double)(int64_t)n) {
            snprintf(why, size, "stage_layers of chunk %" PRId64 " is %g: it must be a whole number from 1 to layers=%" PRId64,
                     c, n, num_layers);
            return false;
        }
        sum += (int64_t)n;
    }
    if (sum != num_layers)
        snprintf(why, size, "stage_layers adds up to %" PRId64 ", not to layers=%" PRId64, sum,
                 num_layers);
    return sum == num_layers;
}

orth_status orth_balance_by_hand(orth_ctx *ctx, const double *layers_of_chunk, int num_given, int num_layers,
                                 int num_chunks, int32_t *begin)
{
    char why[ORTH_MESSAGE_MAX];
    if (!orth_balance_hand_fits(layers_of_chunk, num_given, num_layers, num_chunks, why, sizeof why))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s", why);
    begin[0] = 0;
    for (int c = 0; c < num_chunks; c++)
        begin[c + 1] = begin[c] + (int32_t)layers_of_chunk[c];
    return ORTH_OK;
}
