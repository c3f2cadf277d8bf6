/* test_sampler.c -- the order of samples, their contents, and the thread that makes them ahead. */
#include "data_case.h"
#include "tensor/parts.h"

TEST(permutation_is_a_bijection_for_every_size_and_epoch)
{
    static const int64_t large[] = {1000, 1023, 1024, 1025, 4097, 65536, 99991};
    bool *seen = calloc(100000, sizeof *seen);
    for (int k = 1; k <= 300 + ORTH_COUNT(large); k++) {
        const int64_t n = k <= 300 ? k : large[k - 301];
        for (int epoch = 0; epoch < 3; epoch++) {
            memset(seen, 0, (size_t)n);
            for (int64_t i = 0; i < n; i++) {
                const int64_t j = orth_permute(5, epoch, epoch, n, i);
                assert_true(j >= 0 && j < n && !seen[j]);
                seen[j] = true;
            }
        }
    }
    free(seen);
}

/* Against chance: every element lands in every place about equally often over the seeds. */
TEST(permutation_of_few_is_uniform)
{
    int count[5][5] = {{0}};
    for (uint64_t seed = 0; seed < 5000; seed++)
        for (int i = 0; i < 5; i++)
            count[i][orth_permute(seed, 0, 0, 5, i)]++;
    for (int i = 0; i < 5; i++)
        for (int j = 0; j < 5; j++)
            assert_in_range(count[i][j], 850, 1150); /* 1000 expected, deviation 28 */
}

TEST(neighbours_do_not_stay_neighbours)
{
    const int64_t n = 100000;
    int64_t close = 0;
    for (int64_t i = 0; i + 1 < n; i++)
        close += llabs(orth_permute(1, 0, 0, n, i) - orth_permute(1, 0, 0, n, i + 1)) < n / 100;
    assert_in_range(close, n * 2 / 100 - 300, n * 2 / 100 + 300);
}

static orth_sampler *make_sampler(orth_ctx *ctx, const orth_corpus *const *corpora, const double *weights,
                                  int n, int64_t T, uint64_t seed, bool doc_mask, bool natural)
{
    orth_sampler *s = NULL;
    const orth_sampler_options o = {corpora, weights, n, T, seed, doc_mask, natural};
    CHECK_OK(ctx, orth_sampler_create(ctx, &s, &o));
    return s;
}

TEST(blend_gives_exact_shares_and_every_corpus_its_own_epochs)
{
    data_case c = case_begin(1);
    const int64_t lengths[] = {41, 81, 161, 21};
    const double weights[] = {0.5, 0.2, 0.3, 0};
    orth_dataset *sets[4];
    const orth_corpus *corpora[4];
    for (int i = 0; i < 4; i++) {
        char name[16];
        snprintf(name, sizeof name, "set%d", i);
        sets[i] = case_dataset(&c, name, &lengths[i], 1, 1, 300);
        corpora[i] = &sets[i]->train;
    }
    orth_sampler *s = make_sampler(c.ctx, corpora, weights, 4, 10, 3, false, false);
    int64_t count[4] = {0};
    for (int64_t i = 0; i < 10000; i++) {
        const orth_sample_origin o = orth_sampler_origin(s, i);
        const int64_t W = (lengths[o.corpus] - 1) / 10, nth = count[o.corpus]++;
        assert_int_equal(o.epoch, nth / W);
        assert_int_equal(o.window, orth_permute(3, o.corpus, o.epoch, W, nth % W));
        for (int k = 0; k < 4; k++)
            assert_true(fabs((double)count[k] - weights[k] * (double)(i + 1)) <= 2);
    }
    assert_int_equal(count[0], 5000);
    assert_int_equal(count[1], 2000);
    assert_int_equal(count[2], 3000);
    assert_int_equal(count[3], 0);
    /* Far out, without the history. */
    const int64_t far = (int64_t)1 << 56;
    assert_in_range(orth_sampler_origin(s, far).epoch, (far / 5) / 16, far);
    orth_sampler_destroy(c.ctx, s);
    /* Without weights: by size; and then the epochs end nearly together. */
    s = make_sampler(c.ctx, corpora, NULL, 4, 10, 3, false, false);
    int64_t by_size[4] = {0};
    for (int64_t i = 0; i < orth_sampler_num_windows(s); i++)
        by_size[orth_sampler_origin(s, i).corpus]++;
    for (int i = 0; i < 4; i++)
        assert_true(llabs(by_size[i] - (lengths[i] - 1) / 10) <= 2);
    orth_sampler_destroy(c.ctx, s);
    for (int i = 0; i < 4; i++)
        orth_dataset_close(c.ctx, sets[i]);
    case_end(&c);
}

#define MAX_T 64

typedef struct {
    int32_t tokens[MAX_T], targets[MAX_T], pos[MAX_T], doc[MAX_T];
    float weights[MAX_T];
} rows;

static orth_sample sample_of(rows *r)
{
    return (orth_sample){r->tokens, r->targets, r->weights, r->pos, r->doc};
}

/* Token i of the stream is i % vocab with vocab above the length, so tokens say where they come from. The
 * documents and the fold are worked out here anew, position by position. */
static void check_sequence(orth_ctx *ctx, const orth_sampler *s, int64_t index, int64_t T, int parts,
                           const int64_t *starts, int num_docs, int64_t N, bool doc_mask)
{
    rows r;
    int64_t weight = 0, sum = -1;
    const orth_sample out = sample_of(&r);
    const int64_t at = orth_sampler_origin(s, index).window * T;
    memset(&r, 0xAA, sizeof r);
    CHECK_OK(ctx, orth_sampler_fill(ctx, s, &out, index, &(orth_sample_rows){parts, 0, T}));
    for (int64_t row = 0; row < T; row++) {
        const int64_t pos = orth_fold_pos(T, parts, row), here = at + pos;
        const bool real = here + 1 < N;
        int64_t start = 0;
        bool crosses = false;
        for (int d = 0; d < num_docs; d++) {
            start = starts[d] <= here ? starts[d] : start;
            crosses |= starts[d] == here + 1;
        }
        assert_int_equal(r.pos[row], pos);
        assert_int_equal(r.tokens[row], real ? here : 0);
        assert_int_equal(r.targets[row], real ? here + 1 : 0);
        assert_int_equal(r.doc[row], doc_mask && real && start > at ? start - at : 0);
        const float w = real && !(doc_mask && crosses) ? 1.0f : 0.0f;
        assert_true(r.weights[row] == w);
        weight += w != 0;
    }
    CHECK_OK(ctx, orth_sampler_weight(ctx, s, &sum, index, 1));
    assert_int_equal(sum, weight);
    /* Any range of rows is a piece of the whole. */
    for (int64_t a = 0; a < T; a += 3) {
        rows piece;
        const int64_t b = ORTH_MIN(T, a + 5);
        const orth_sample part = sample_of(&piece);
        CHECK_OK(ctx, orth_sampler_fill(ctx, s, &part, index, &(orth_sample_rows){parts, a, b}));
        assert_memory_equal(piece.tokens, r.tokens + a, (size_t)(b - a) * 4);
        assert_memory_equal(piece.targets, r.targets + a, (size_t)(b - a) * 4);
        assert_memory_equal(piece.weights, r.weights + a, (size_t)(b - a) * 4);
        assert_memory_equal(piece.doc, r.doc + a, (size_t)(b - a) * 4);
    }
}

TEST(sequences_hold_their_window_in_fold_order_for_any_parts_and_documents)
{
    data_case c = case_begin(1);
    const int64_t lengths[] = {1, 30, 2, 1, 1, 90, 16, 16, 7, 40};
    int64_t starts[10], N = 0;
    for (int d = 0; d < 10; N += lengths[d++])
        starts[d] = N;
    orth_dataset *set = case_dataset(&c, "set", lengths, 10, 3, 1000);
    const orth_corpus *corpus = &set->train;
    assert_int_equal(corpus->num_shards, 4);
    static const int64_t seq[] = {1, 5, 16, 33};
    static const int all_parts[] = {1, 2, 4, 8, 16};
    for (int mode = 0; mode < 4; mode++)
        for (int t = 0; t < 4; t++)
            for (int p = 0; p < 5; p++) {
                orth_sampler *s = make_sampler(c.ctx, &corpus, NULL, 1, seq[t], 9, mode & 1, mode & 2);
                for (int64_t i = 0; i < orth_sampler_num_windows(s); i++)
                    check_sequence(c.ctx, s, i, seq[t], all_parts[p], starts, 10, N, mode & 1);
                int64_t sum = 0;
                CHECK_OK(c.ctx, orth_sampler_weight(c.ctx, s, &sum, 0, orth_sampler_num_windows(s)));
                if (mode == 2) /* every target of the split once */
                    assert_int_equal(sum, N - 1);
                orth_sampler_destroy(c.ctx, s);
            }
    orth_dataset_close(c.ctx, set);
    case_end(&c);
}

TEST(sampler_refuses_what_it_cannot_serve)
{
    data_case c = case_begin(1);
    const int64_t length = 20;
    orth_dataset *set = case_dataset(&c, "set", &length, 1, 1, 1000);
    const orth_corpus *corpus = &set->train;
    orth_sampler *s = NULL;
    orth_sampler_options o = {&corpus, NULL, 1, 20, 1, false, false};
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "20 tokens are fewer than the 21 of a sequence (data.seq_len=20",
                orth_sampler_create(c.ctx, &s, &o));
    o.seq_len = 0;
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "data.seq_len=0", orth_sampler_create(c.ctx, &s, &o));
    o.seq_len = 4;
    o.weights = &(double){-1};
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "weight -1", orth_sampler_create(c.ctx, &s, &o));
    o.weights = &(double){0};
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "sum to 0", orth_sampler_create(c.ctx, &s, &o));
    o.weights = NULL;
    o.natural = true;
    CHECK_OK(c.ctx, orth_sampler_create(c.ctx, &s, &o));
    rows r;
    const orth_sample out = sample_of(&r);
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "sequences [5, +1) are not in [0, 5)",
                orth_sampler_fill(c.ctx, s, &out, 5, &(orth_sample_rows){1, 0, 4}));
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "rows [0, 5)",
                orth_sampler_fill(c.ctx, s, &out, 0, &(orth_sample_rows){1, 0, 5}));
    orth_sampler_destroy(c.ctx, s);
    orth_dataset_close(c.ctx, set);
    case_end(&c);
}

TEST(loader_gives_what_the_sampler_gives_without_allocating)
{
    data_case c = case_begin(1);
    const int64_t length = 5000, T = 16;
    orth_dataset *set = case_dataset(&c, "set", &length, 1, 1, 10000);
    const orth_corpus *corpus = &set->train;
    orth_sampler *s = make_sampler(c.ctx, &corpus, NULL, 1, T, 4, true, false);
    for (int buffers = 2; buffers <= 4; buffers++) {
        orth_loader *l = NULL;
        const orth_loader_options o = {s, {4, 4, 12}, 64, buffers};
        const int64_t before = c.ctx->heap_bytes;
        CHECK_OK(c.ctx, orth_loader_create(c.ctx, &l, &o));
        assert_true(c.ctx->heap_bytes - before - orth_loader_bytes(&o) < 16384);
        c.ctx->frozen = true;
        for (int64_t asked = 0, step = 0; step < 200; step++) {
            for (; asked < step + buffers - 1; asked++)
                CHECK_OK(c.ctx, orth_loader_request(c.ctx, l, (int64_t[]){asked, 1000 - asked, 2 * asked},
                                                    asked % 4));
            orth_loader_batch b;
            CHECK_OK(c.ctx, orth_loader_get(c.ctx, l, &b));
            assert_int_equal(b.num_sequences, step % 4);
            for (int64_t j = 0; j < b.num_sequences; j++) {
                rows r;
                const orth_sample out = sample_of(&r);
                assert_int_equal(b.indices[j], ((int64_t[]){step, 1000 - step, 2 * step})[j]);
                CHECK_OK(c.ctx, orth_sampler_fill(c.ctx, s, &out, b.indices[j], &o.rows));
                assert_memory_equal(b.tokens + j * 8, r.tokens, 8 * 4);
                assert_memory_equal(b.targets + j * 8, r.targets, 8 * 4);
                assert_memory_equal(b.weights + j * 8, r.weights, 8 * 4);
                assert_memory_equal(b.pos + j * 8, r.pos, 8 * 4);
                assert_memory_equal(b.doc + j * 8, r.doc, 8 * 4);
            }
        }
        c.ctx->frozen = false;
        orth_loader_destroy(c.ctx, l); /* requests are outstanding */
    }
    orth_sampler_destroy(c.ctx, s);
    orth_dataset_close(c.ctx, set);
    case_end(&c);
}

TEST(loader_passes_an_error_to_the_get_of_its_request_and_goes_on)
{
    data_case c = case_begin(1);
    const int64_t length = 100;
    orth_dataset *set = case_dataset(&c, "set", &length, 1, 1, 1000);
    const orth_corpus *corpus = &set->train;
    orth_sampler *s = make_sampler(c.ctx, &corpus, NULL, 1, 8, 4, false, true);
    orth_loader *l = NULL;
    orth_loader_batch b;
    CHECK_OK(c.ctx, orth_loader_create(c.ctx, &l, &(orth_loader_options){s, {1, 0, 8}, 2, 0}));
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "get without a request", orth_loader_get(c.ctx, l, &b));
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "max_sequences=2",
                orth_loader_request(c.ctx, l, (int64_t[]){0, 1, 2}, 3));
    CHECK_OK(c.ctx, orth_loader_request(c.ctx, l, (int64_t[]){0, 999}, 2));
    CHECK_OK(c.ctx, orth_loader_request(c.ctx, l, (int64_t[]){1, 2}, 2));
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "all 2 buffers", orth_loader_request(c.ctx, l, (int64_t[]){0}, 1));
    CHECK_FAILS(c.ctx, ORTH_ERR_ARG, "sequences [999, +1)", orth_loader_get(c.ctx, l, &b));
    CHECK_OK(c.ctx, orth_loader_get(c.ctx, l, &b));
    assert_int_equal(b.tokens[0], 8);
    orth_loader_destroy(c.ctx, l);
    for (int64_t n = 1;; n++) { /* every allocation failing */
        orth_faults faults = {.alloc = n};
        c.ctx->faults = &faults;
        orth_status status = orth_loader_create(c.ctx, &l, &(orth_loader_options){s, {1, 0, 8}, 2, 0});
        c.ctx->faults = NULL;
        if (status == ORTH_OK)
            break;
        assert_int_equal(status, ORTH_ERR_NOMEM);
        orth_ctx_clear_error(c.ctx);
    }
    orth_loader_destroy(c.ctx, l);
    orth_sampler_destroy(c.ctx, s);
    orth_dataset_close(c.ctx, set);
    case_end(&c);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(permutation_is_a_bijection_for_every_size_and_epoch),
        cmocka_unit_test(permutation_of_few_is_uniform),
        cmocka_unit_test(neighbours_do_not_stay_neighbours),
        cmocka_unit_test(blend_gives_exact_shares_and_every_corpus_its_own_epochs),
        cmocka_unit_test(sequences_hold_their_window_in_fold_order_for_any_parts_and_documents),
        cmocka_unit_test(sampler_refuses_what_it_cannot_serve),
        cmocka_unit_test(loader_gives_what_the_sampler_gives_without_allocating),
        cmocka_unit_test(loader_passes_an_error_to_the_get_of_its_request_and_goes_on),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
