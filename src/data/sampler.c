/* sampler.c -- see sampler.h. Letters: T tokens of a sequence, W windows of a corpus. */
#include "data/sampler.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#include "base/rng.h"
#include "tensor/parts.h"

/* Even; 4 make a Feistel network hard to tell from chance, the rest is margin for tiny corpora. */
#define PERMUTE_ROUNDS 6
#define WEIGHT_ONE ((int64_t)1 << 30)

struct orth_sampler {
    int num_corpora;
    int64_t T;
    uint64_t seed;
    bool doc_mask, natural;
    const orth_corpus **corpora;   /* [num_corpora] */
    int64_t *windows_before;       /* [num_corpora + 1]: windows of the corpora before this one */
    int64_t *weight_before;        /* [num_corpora + 1]: the same of weights, as integers */
};

/* ---- the order of an epoch ---- */

static int64_t ceil_sqrt(int64_t n)
{
    int64_t a = (int64_t)sqrt((double)n);
    while (a > 1 && (a - 1) * (a - 1) >= n)
        a--;
    while (a * a < n)
        a++;
    return a;
}

int64_t orth_permute(uint64_t seed, int corpus, int64_t epoch, int64_t n, int64_t k)
{
    /* Numbers below a*b are pairs (left, right) = (x % a, x / a). Each round adds to one half a function of
     * the other, which can be taken back: a bijection of Z_(a*b). Repeating it until the result is below n
     * (cycle walking) makes it one of [0, n); as a*b < n + a, it is repeated rarely. */
    const uint64_t a = (uint64_t)ceil_sqrt(n), b = ((uint64_t)n + a - 1) / a;
    const uint64_t what = (uint64_t)epoch << 24 | (uint64_t)(corpus & 0xFFFF) << 8;
    uint64_t x = (uint64_t)k;
    do {
        uint64_t left = x % a, right = x / a;
        for (unsigned round = 0; round < PERMUTE_ROUNDS; round++) {
            orth_rand4 r = orth_philox(seed, ORTH_STREAM_ORDER, what | round, round % 2 ? left : right);
            uint64_t f = (uint64_t)r.v[1] << 32 | r.v[0];
            if (round % 2)
                right = (right + f % b) % b;
            else
                left = (left + f % a) % a;
        }
        x = right * a + left;
    } while (x >= (uint64_t)n);
    return (int64_t)x;
}

/* ---- creation ---- */

static orth_status set_windows(orth_ctx *ctx, orth_sampler *s)
{
    for (int c = 0; c < s->num_corpora; c++) {
        const int64_t N = s->corpora[c]->num_tokens, need = s->natural ? 2 : s->T + 1;
        if (N < need)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG,
                             "%s: %" PRId64 " tokens are fewer than the %" PRId64 " of a sequence "
                             "(data.seq_len=%" PRId64 " and one to predict)",
                             s->corpora[c]->name, N, need, s->T);
        const int64_t W = s->natural ? orth_div_up(N - 1, s->T) : (N - 1) / s->T;
        s->windows_before[c + 1] = s->windows_before[c] + W;
    }
    return ORTH_OK;
}

/* Integer weights, so that shares are exact for ever. What is not 0 stays above 0. */
static orth_status set_weights(orth_ctx *ctx, orth_sampler *s, const double *weights)
{
    double sum = 0;
    bool whole = true;
    for (int c = 0; c < s->num_corpora; c++) {
        const double w = weights ? weights[c] : 1;
        if (!isfinite(w) || w < 0)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: weight %g is not a number from 0 up",
                             s->corpora[c]->name, w);
        whole = whole && w == floor(w);
        sum += weights ? w : (double)(s->windows_before[c + 1] - s->windows_before[c]);
    }
    if (!(sum > 0) || !isfinite(sum))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "data.weights sum to %g: the sum must be finite and above 0",
                         sum);
    const double scale = whole && sum <= (double)WEIGHT_ONE ? 1 : (double)WEIGHT_ONE / sum;
    for (int c = 0; c < s->num_corpora; c++) {
        const double w = weights ? weights[c] : (double)(s->windows_before[c + 1] - s->windows_before[c]);
        int64_t units = llrint(w * scale);
        s->weight_before[c + 1] = s->weight_before[c] + (w > 0 ? ORTH_MAX(units, 1) : 0);
    }
    return ORTH_OK;
}

static orth_status init(orth_ctx *ctx, orth_sampler *s, const orth_sampler_options *o)
{
    if (o->num_corpora < 1 || o->num_corpora > 0xFFFF)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%d corpora: their number is in [1, 65535]", o->num_corpora);
    if (o->seq_len < 1 || o->seq_len > INT32_MAX)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "data.seq_len=%" PRId64 " is not in [1, 2^31-1]", o->seq_len);
    s->num_corpora = o->num_corpora;
    s->T = o->seq_len;
    s->seed = o->seed;
    s->doc_mask = o->doc_mask;
    s->natural = o->natural;
    s->corpora = ORTH_NEW_ARRAY(ctx, const orth_corpus *, o->num_corpora);
    s->windows_before = ORTH_NEW_ARRAY(ctx, int64_t, o->num_corpora + 1);
    s->weight_before = ORTH_NEW_ARRAY(ctx, int64_t, o->num_corpora + 1);
    if (!s->corpora || !s->windows_before || !s->weight_before)
        return ORTH_ERR_NOMEM;
    for (int c = 0; c < o->num_corpora; c++)
        s->corpora[c] = o->corpora[c];
    ORTH_TRY(set_windows(ctx, s));
    return set_weights(ctx, s, o->weights);
}

orth_status orth_sampler_create(orth_ctx *ctx, orth_sampler **out, const orth_sampler_options *options)
{
    orth_sampler *s = ORTH_NEW(ctx, orth_sampler);
    if (!s)
        return ORTH_ERR_NOMEM;
    orth_status status = init(ctx, s, options);
    if (status != ORTH_OK) {
        orth_sampler_destroy(ctx, s);
        return status;
    }
    *out = s;
    return ORTH_OK;
}

void orth_sampler_destroy(orth_ctx *ctx, orth_sampler *s)
{
    if (!s)
        return;
    orth_mem_free(ctx, s->corpora);
    orth_mem_free(ctx, s->windows_before);
    orth_mem_free(ctx, s->weight_before);
    orth_mem_free(ctx, s);
}

int64_t orth_sampler_seq_len(const orth_sampler *s)
{
    return s->T;
}

int64_t orth_sampler_num_windows(const orth_sampler *s)
{
    return s->windows_before[s->num_corpora];
}

/* ---- which window ---- */

/* i*A/B, rounded half up, for 0 <= A <= B < 2^31, without overflow. Not down: shares that are whole but for
 * the rounding of weights (0.2 of 10) would come out one too low. */
static int64_t share(int64_t i, int64_t A, int64_t B)
{
    return i / B * A + (2 * (i % B) * A + B) / (2 * B);
}

/* Corpus of sequence i, and how many sequences before i it got. At each node of a binary tree over the
 * corpora the left side has had round(i * left/both) of the first i, so the counts need no history. */
static int blend(const orth_sampler *s, int64_t i, int64_t *out_nth)
{
    int low = 0, high = s->num_corpora;
    const int64_t *before = s->weight_before;
    while (high - low > 1) {
        const int mid = (low + high) / 2;
        const int64_t left = before[mid] - before[low], both = before[high] - before[low];
        const int64_t had = share(i, left, both);
        if (share(i + 1, left, both) > had) {
            high = mid;
            i = had;
        } else {
            low = mid;
            i -= had;
        }
    }
    *out_nth = i;
    return low;
}

orth_sample_origin orth_sampler_origin(const orth_sampler *s, int64_t index)
{
    orth_sample_origin o = {0};
    if (s->natural) {
        while (index >= s->windows_before[o.corpus + 1] && o.corpus + 1 < s->num_corpora)
            o.corpus++;
        o.window = index - s->windows_before[o.corpus];
        return o;
    }
    int64_t nth = 0;
    o.corpus = blend(s, index, &nth);
    const int64_t W = s->windows_before[o.corpus + 1] - s->windows_before[o.corpus];
    o.epoch = nth / W;
    o.window = orth_permute(s->seed, o.corpus, o.epoch, W, nth % W);
    return o;
}

static orth_status check_index(orth_ctx *ctx, const orth_sampler *s, int64_t first, int64_t n)
{
    const int64_t limit = s->natural ? orth_sampler_num_windows(s) : INT64_MAX / s->T;
    if (first < 0 || n < 0 || first > limit - n)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG,
                         "sequences [%" PRId64 ", +%" PRId64 ") are not in [0, %" PRId64 ")", first, n,
                         limit);
    return ORTH_OK;
}

/* ---- making a sequence ---- */

/* doc[i] and the weight of position p0 + i, for n positions whose tokens lie at `first` of the stream.
 * The last target of a document would be the first token of the next one, which it cannot foresee. */
static void mark_documents(const orth_corpus *c, const orth_sample *out, int64_t row, int64_t p0,
                           int64_t first, int64_t n)
{
    const int64_t window = first - p0;
    for (int64_t i = 0; i < n;) {
        int64_t start, end;
        orth_corpus_document(c, first + i, &start, &end);
        const int64_t stop = ORTH_MIN(n, end - first);
        for (int64_t j = i; j < stop && out->doc; j++)
            out->doc[row + j] = (int32_t)ORTH_MAX(0, start - window);
        if (out->weights && end - first <= n)
            out->weights[row + stop - 1] = 0;
        i = stop;
    }
}

/* Rows [row, row+n) of the output get positions [p0, p0+n) of the window at `window` of the stream. */
static orth_status fill_run(orth_ctx *ctx, const orth_sampler *s, const orth_corpus *c,
                            const orth_sample *out, int64_t row, int64_t window, int64_t p0, int64_t n)
{
    /* Only the last window of a natural pass reaches past the stream; there have is below n. */
    const int64_t first = window + p0, have = ORTH_MAX(0, ORTH_MIN(n, c->num_tokens - 1 - first));
    const size_t rest = (size_t)(n - have);
    if (out->tokens) {
        ORTH_TRY(orth_corpus_read(ctx, c, out->tokens + row, first, have));
        memset(out->tokens + row + have, 0, rest * sizeof *out->tokens);
    }
    if (out->targets) {
        ORTH_TRY(orth_corpus_read(ctx, c, out->targets + row, first + 1, have));
        memset(out->targets + row + have, 0, rest * sizeof *out->targets);
    }
    for (int64_t i = 0; i < n && out->weights; i++)
        out->weights[row + i] = i < have;
    for (int64_t i = 0; i < n && out->pos; i++)
        out->pos[row + i] = (int32_t)(p0 + i);
    if (out->doc)
        memset(out->doc + row, 0, (size_t)n * sizeof *out->doc);
    if (s->doc_mask)
        mark_documents(c, out, row, p0, first, have);
    return ORTH_OK;
}

orth_status orth_sampler_fill(orth_ctx *ctx, const orth_sampler *s, const orth_sample *out, int64_t index,
                              const orth_sample_rows *rows)
{
    if (rows->parts < 1 || rows->parts > ORTH_MAX_PARTS || rows->row_begin < 0 ||
        rows->row_begin > rows->row_end || rows->row_end > s->T)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG,
                         "rows [%" PRId64 ", %" PRId64 ") in %d parts of a sequence of %" PRId64,
                         rows->row_begin, rows->row_end, rows->parts, s->T);
    ORTH_TRY(check_index(ctx, s, index, 1));
    const orth_sample_origin o = orth_sampler_origin(s, index);
    int64_t row = 0; /* first storage row of the slot */
    for (int slot = 0; slot < rows->parts; slot++) {
        const int part = orth_fold_part(rows->parts, slot);
        const int64_t pos = orth_part_begin(s->T, rows->parts, part);
        const int64_t end = row + orth_part_begin(s->T, rows->parts, part + 1) - pos;
        const int64_t from = ORTH_MAX(row, rows->row_begin), to = ORTH_MIN(end, rows->row_end);
        if (from < to)
            ORTH_TRY(fill_run(ctx, s, s->corpora[o.corpus], out, from - rows->row_begin, o.window * s->T,
                              pos + from - row, to - from));
        row = end;
    }
    return ORTH_OK;
}

orth_status orth_sampler_weight(orth_ctx *ctx, const orth_sampler *s, int64_t *out, int64_t first, int64_t n)
{
    ORTH_TRY(check_index(ctx, s, first, n));
    int64_t sum = n * s->T;
    for (int64_t i = first; i < first + n && (s->doc_mask || s->natural); i++) {
        const orth_sample_origin o = orth_sampler_origin(s, i);
        const orth_corpus *c = s->corpora[o.corpus];
        const int64_t begin = o.window * s->T, have = ORTH_MIN(s->T, c->num_tokens - 1 - begin);
        sum -= s->T - have;
        if (s->doc_mask) /* targets begin+1 .. begin+have that start a document */
            sum -= orth_corpus_docs_up_to(c, begin + have) - orth_corpus_docs_up_to(c, begin);
    }
    *out = sum;
    return ORTH_OK;
}
