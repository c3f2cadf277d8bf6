/* test_schedule_text.c -- schedules that are refused, in words; the file format. */
#include "schedule_case.h"
#include "schedule_text.h"

#include "base/files.h"

/* ---- what is refused ---- */

/* Texts, and what is said of each. */
static void check_refused(const char *const (*bad)[2], int n)
{
    pipe_case k = begin();
    orth_schedule s;
    for (int i = 0; i < n; i++)
        CHECK_FAILS(k.ctx, ORTH_ERR_DATA, bad[i][1],
                    orth_schedule_parse(k.ctx, &k.arena, &s, "f", bad[i][0], strlen(bad[i][0]), 0, 0, 0));
    end(&k);
}

TEST(sizes_that_do_not_fit_are_refused_in_words)
{
    static const struct {
        const char *name;
        int p, v, m;
        const char *text;
    } bad[] = {
        {"gpip", 4, 1, 4, "pipeline=gpip: unknown; there are naive, gpipe, 1f1b, interleaved, zb-h1, zb-v, "
                          "pipedream, file:PATH"},
        {"file:", 4, 1, 4, "pipeline=file: needs a path"},
        {"gpipe", 4, 1, 0, "pipeline=gpipe: pp=4, virtual_stages=1 and 0 micro-batches must each be at least 1"},
        {"gpipe", 100000, 1, 100000, "pipeline=gpipe: pp=100000 x virtual_stages=1 x 100000 micro-batches is more than"},
        {"interleaved", 4, 1, 8, "pipeline=interleaved needs virtual_stages >= 2, not 1"},
        {"interleaved", 4, 2, 6, "pipeline=interleaved: 6 micro-batches are not a multiple of pp=4"},
        {"zb-v", 4, 1, 8, "pipeline=zb-v needs virtual_stages=2, not 1"},
        {"zb-v", 4, 3, 8, "pipeline=zb-v needs virtual_stages=2, not 3"},
        {"1f1b", 4, 2, 8, "pipeline=1f1b needs virtual_stages=1, not 2"},
    };
    pipe_case k = begin();
    orth_schedule s;
    for (int i = 0; i < ORTH_COUNT(bad); i++)
        CHECK_FAILS(k.ctx, ORTH_ERR_ARG, bad[i].text,
                    orth_schedule_make(k.ctx, &k.arena, &s, bad[i].name, bad[i].p, bad[i].v, bad[i].m));
    CHECK_OK(k.ctx, orth_schedule_make(k.ctx, &k.arena, &s, "zb-v", 1, 1, 3)); /* nothing to split */
    assert_int_equal(s.num_chunks, 1);
    end(&k);
}

#define HEAD "orthant-schedule 1\nranks 2\nmicro_batches 2\n"
#define WELL HEAD "rank 0: F0 F1 B0 B1\nrank 1: F0 B0 F1 B1\n"

TEST(lists_that_break_a_rule_are_refused_in_words)
{
    static const char *const bad[][2] = {
        {HEAD "rank 0: F0 F1 B0 B1\nrank 1: F0 B0 F1\n", "f: rank 1 has no backward of micro-batch 1 on chunk 1"},
        {HEAD "rank 0: F0 F1 B0 B1\nrank 1: F0 B0 B1 B1\n",
         "f: rank 1, action 3 (backward of micro-batch 1 on chunk 1): it is there already, as action 2"},
        {HEAD "rank 0: F0 F1 B0 B1\nrank 1: F0 B0 B1 F1\n",
         "f: rank 1, action 2 (backward of micro-batch 1 on chunk 1): it stands before the forward on chunk 1, which "
         "it needs and which is action 3"},
        {HEAD "rank 0: F0 B0 F1 B1\nrank 1: F0 F1 B0 B1\n",
         "f: deadlock of 2 ranks: rank 0, action 1 (backward of micro-batch 0 on chunk 0) waits for the backward of "
         "micro-batch 0 on chunk 1; rank 1, action 1 (forward of micro-batch 1 on chunk 1) waits for the forward of "
         "micro-batch 1 on chunk 0"},
        {HEAD "rank 0: F0 F1 I0 W0 B1\nrank 1: F0 B0 F1 B1\n",
         "f: rank 0, action 4 (backward of micro-batch 1 on chunk 0): a schedule has either backwards, or input and "
         "weight gradients"},
        {HEAD "rank 0: F0 F1 W0 I0 I1 W1\nrank 1: F0 I0 W0 F1 I1 W1\n",
         "f: rank 0, action 2 (weight gradient of micro-batch 0 on chunk 0): it stands before the input gradient on "
         "chunk 0"},
        {HEAD "rank 0: F0 F1 I0 W0 I1\nrank 1: F0 I0 W0 F1 I1 W1\n",
         "f: rank 0 has no weight gradient of micro-batch 1 on chunk 0"},
        {HEAD "rank 0: F0@1\n", "f: 1 actions for 2 chunks and 2 micro-batches, which need 8"},
        {HEAD "rank 0: F0 F1 B0 B1@1\nrank 1: F0 B0 F1 B1\n",
         "f: rank 0, action 3 (backward of micro-batch 1 on chunk 1): that chunk is on rank 1"},
        {"orthant-schedule 1\nranks 1\nmicro_batches 1\nchunks 0 0\nrank 0: F0@1 F0@0 B0@1 B0@0\n",
         "f: rank 0, action 0 (forward of micro-batch 0 on chunk 1): it stands before the forward on chunk 0, which "
         "it needs and which is action 1"},
    };
    check_refused(bad, ORTH_COUNT(bad));
}

/* Each rank wants its second chunk first. */
TEST(circles_of_many_ranks_are_told_in_short)
{
    char text[1024];
    size_t n = (size_t)snprintf(text, sizeof text, "orthant-schedule 1\nranks 6\nmicro_batches 1\nchunks 0 1 2 3 4 "
                                                   "5 0 1 2 3 4 5\n");
    for (int r = 0; r < 6; r++)
        n += (size_t)snprintf(text + n, sizeof text - n, "rank %d: F0@%d F0@%d B0@%d B0@%d\n", r, r + 6, r, r + 6, r);
    pipe_case k = begin();
    orth_schedule s;
    CHECK_FAILS(k.ctx, ORTH_ERR_DATA,
                "f: deadlock of 6 ranks: rank 0, action 0 (forward of micro-batch 0 on chunk 6) waits for the forward "
                "of micro-batch 0 on chunk 5; rank 5, action 0 (forward of micro-batch 0 on chunk 11) waits for the "
                "forward of micro-batch 0 on chunk 10; rank 4, ",
                orth_schedule_parse(k.ctx, &k.arena, &s, "f", text, n, 0, 0, 0));
    CHECK_FAILS(k.ctx, ORTH_ERR_DATA, "on chunk 8; and so on",
                orth_schedule_parse(k.ctx, &k.arena, &s, "f", text, n, 0, 0, 0));
    end(&k);
}

TEST(wrong_versions_and_sizes_are_refused)
{
    pipe_case k = begin();
    orth_schedule s = make(&k, "pipedream", 2, 1, 4);
    orth_action changed[8];
    orth_action_list lists[2] = {s.lists[0], {changed, 8}};
    memcpy(changed, s.lists[1].actions, sizeof changed);
    s.lists = lists;
    CHECK_OK(k.ctx, orth_schedule_check(k.ctx, &s));
    changed[2].version = 0;
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "rank 1, action 2 (forward of micro-batch 1 on chunk 1): weights of version 0, "
                "but it is version 1 that is the newest then", orth_schedule_check(k.ctx, &s));
    changed[2].version = 1;
    changed[3].version = 2;
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "weights of version 2, but it is version 1 that its forward used",
                orth_schedule_check(k.ctx, &s));
    changed[3] = (orth_action){ORTH_ACTION_B, 2, 0, 0};
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "chunks are 0 to 1", orth_schedule_check(k.ctx, &s));
    changed[3] = (orth_action){ORTH_ACTION_B, 1, 4, 0};
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "micro-batches are 0 to 3", orth_schedule_check(k.ctx, &s));
    changed[3].kind = (orth_action_kind)9;
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "rank 1, action 3: unknown kind 9", orth_schedule_check(k.ctx, &s));
    const int32_t beyond[2] = {0, 2};
    s.chunk_rank = beyond;
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "chunk 1 is on rank 2, but ranks are 0 to 1", orth_schedule_check(k.ctx, &s));
    s.num_ranks = 0;
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "0 ranks, 2 chunks, 4 micro-batches: each must be at least 1",
                orth_schedule_check(k.ctx, &s));
    end(&k);
}

TEST(crossing_messages_are_found)
{
    static const char text[] = HEAD "rank 0: F0 F1 B0 B1\nrank 1: F1 F0 B1 B0\n";
    pipe_case k = begin();
    orth_schedule s;
    CHECK_OK(k.ctx, orth_schedule_parse(k.ctx, &k.arena, &s, "f", text, strlen(text), 0, 0, 0));
    /* Rank 0 waits for B0 while B1 was sent first; rank 1 is the other way round. The first is told. */
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG,
                "pipeline=file:f: rank 0, action 3 (backward of micro-batch 1 on chunk 0) takes what rank 1, action 2 "
                "(backward of micro-batch 1 on chunk 1) sent before a message that was taken already",
                orth_schedule_check_in_order(k.ctx, &s));
    end(&k);
}

/* ---- files ---- */

TEST(a_schedule_as_text_reads_back_equal)
{
    pipe_case k = begin();
    const orth_schedule_kind *kind;
    for (int i = 0; (kind = orth_schedule_kind_get(i)); i++) {
        const orth_schedule s = make(&k, kind->name, 4, virtual_of(kind), 8);
        char *text = schedule_text(k.ctx, &k.arena, &s);
        orth_schedule back;
        CHECK_OK(k.ctx, orth_schedule_parse(k.ctx, &k.arena, &back, "f", text, strlen(text), 4, virtual_of(kind), 8));
        assert_string_equal(back.name, "file:f");
        assert_true(back.async == s.async && back.split == s.split && back.num_chunks == s.num_chunks);
        for (int r = 0; r < 4; r++) {
            assert_int_equal(back.lists[r].num_actions, s.lists[r].num_actions);
            assert_memory_equal(back.lists[r].actions, s.lists[r].actions,
                                (size_t)s.lists[r].num_actions * sizeof(orth_action));
        }
    }
    end(&k);
}

TEST(a_schedule_is_read_from_a_file)
{
    static const char text[] = "orthant-schedule 1 # by hand\r\n\nranks\t2\nmicro_batches 2\nrank 0: F0 F1\nrank 1: F0 "
                               "B0 F1 B1\nrank 0: B0 B1 # goes on";
    pipe_case k = begin();
    orth_schedule s;
    const char *path = "test_schedule_text.tmp";
    CHECK_OK(k.ctx, orth_file_write(k.ctx, path, text, strlen(text)));
    CHECK_OK(k.ctx, orth_schedule_make(k.ctx, &k.arena, &s, "file:test_schedule_text.tmp", 2, 1, 2));
    assert_string_equal(s.name, "file:test_schedule_text.tmp");
    assert_int_equal(s.lists[0].num_actions, 4);
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "test_schedule_text.tmp:3:7: ranks 2, but the run has 3",
                orth_schedule_make(k.ctx, &k.arena, &s, "file:test_schedule_text.tmp", 3, 1, 2));
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "test_schedule_text.tmp:4:15: micro_batches 2, but the run has 4",
                orth_schedule_make(k.ctx, &k.arena, &s, "file:test_schedule_text.tmp", 2, 1, 4));
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, "test_schedule_text.tmp: 2 chunks, but the run has pp=2 x virtual_stages=2",
                orth_schedule_make(k.ctx, &k.arena, &s, "file:test_schedule_text.tmp", 2, 2, 2));
    remove(path);
    CHECK_FAILS(k.ctx, ORTH_ERR_ARG, path, orth_schedule_make(k.ctx, &k.arena, &s, "file:test_schedule_text.tmp", 2, 1, 2));
    end(&k);
}

TEST(texts_that_are_no_schedule_are_refused_with_their_place)
{
    static const char *const bad[][2] = {
        {"", "f:1:1: \"\": a schedule begins with: orthant-schedule 1"},
        {"hello", "f:1:1: \"hello\": a schedule begins with"},
        {"orthant-schedule 2\n", "f:1:18: version \"2\" of the format is unknown; this program reads 1"},
        {"orthant-schedule 1 x\n", "f:1:20: \"x\" is too much on this line"},
        {"orthant-schedule 1\n", "f:2:1: ends without a line with rank"},
        {"orthant-schedule 1\nrank 0: F0\n", "f:2:1: rank: a line with ranks must come before"},
        {"orthant-schedule 1\nranks 2\nrank 0: F0\n", "f:3:1: rank: a line with micro_batches must come before"},
        {"orthant-schedule 1\nranks 0\n", "f:2:7: ranks: \"0\" is not a number from 1 to 65536"},
        {"orthant-schedule 1\nranks\n", "f:2:6: ranks: \"\" is not a number"},
        {"orthant-schedule 1\nranks 2x\n", "f:2:7: ranks: \"2x\" is not a number"},
        {"orthant-schedule 1\nranks 2\nranks 2\n", "f:3:1: ranks is given twice"},
        {"orthant-schedule 1\nchunks 0\n", "f:2:1: chunks: a line with ranks must come before"},
        {HEAD "chunks 0 2\n", "f:4:10: chunks: \"2\" is not a rank, which are 0 to 1"},
        {HEAD "chunks\n", "f:4:7: chunks: at least one rank must follow"},
        {HEAD "chunks 0\nchunks 0\n", "f:5:1: chunks is given twice"},
        {HEAD "async yes\n", "f:4:7: \"yes\" is too much on this line"},
        {HEAD "\x1b[2Jgo 0\n", "f:4:1: \"?[2Jgo\" is unknown; there are ranks, micro_batches, chunks, async, rank"},
        {HEAD "a_word_that_is_longer_than_any_key\n", "f:4:1: \"a_word_that_is_longer_th...\" is unknown"},
        {HEAD "rank 2: F0\n", "f:4:6: rank: \"2:\" is not a number from 0 to 1 and a colon"},
        {HEAD "rank 0 F0\n", "f:4:6: rank: \"0\" is not a number from 0 to 1 and a colon"},
        {HEAD "rank 0: G0\n", "f:4:9: \"G0\" is not an action: F, B, I or W and a micro-batch from 0 to 1"},
        {HEAD "rank 0: F\n", "f:4:9: \"F\" is not an action"},
        {HEAD "rank 0: F2\n", "f:4:9: \"F2\" is not an action"},
        {HEAD "rank 0: F99999999999999999999\n", "f:4:9: \"F99999999999999999999\" is not an action"},
        {HEAD "rank 0: F0@\n", "f:4:9: \"F0@\": after the micro-batch may come @ and a chunk from 0 to 1"},
        {HEAD "rank 0: F0@2\n", "f:4:9: \"F0@2\": after the micro-batch may come @ and a chunk from 0 to 1"},
        {HEAD "chunks 0 0\nrank 0: F0\n", "f:5:9: \"F0\": rank 0 does not hold one chunk, so that @ and a chunk must"},
        {HEAD "rank 0: F0\nranks 3\n", "f:5:1: \"ranks\": only lines with rank may follow the first of them"},
    };
    check_refused(bad, ORTH_COUNT(bad));
}

TEST(damaged_texts_give_a_schedule_or_a_message)
{
    pipe_case k = begin();
    const orth_schedule s = make(&k, "zb-v", 2, 2, 3);
    const char *text = schedule_text(k.ctx, &k.arena, &s);
    const size_t n = strlen(text);
    char *copy = malloc(n + 1);
    int accepted = 0;
    for (uint64_t i = 0; i < 3000; i++) {
        memcpy(copy, text, n + 1);
        for (int64_t e = test_rand_int(i, 0, 1, 3); e > 0; e--)
            copy[test_rand_int(i, (uint64_t)(2 * e), 0, (int64_t)n - 1)] =
                " \n0129FBIW@:#x"[test_rand_int(i, (uint64_t)(2 * e + 1), 0, 13)];
        orth_schedule out;
        orth_arena arena = {0};
        const orth_status status = orth_schedule_parse(k.ctx, &arena, &out, "f", copy, n, 0, 0, 0);
        assert_true(status == ORTH_OK || (status == ORTH_ERR_DATA && k.ctx->error.message[0]));
        accepted += status == ORTH_OK;
        orth_ctx_clear_error(k.ctx);
        orth_arena_release(k.ctx, &arena);
    }
    assert_in_range(accepted, 1, 2000); /* changes in comments */
    free(copy);
    end(&k);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_that_do_not_fit_are_refused_in_words),
        cmocka_unit_test(lists_that_break_a_rule_are_refused_in_words),
        cmocka_unit_test(circles_of_many_ranks_are_told_in_short),
        cmocka_unit_test(wrong_versions_and_sizes_are_refused),
        cmocka_unit_test(crossing_messages_are_found),
        cmocka_unit_test(a_schedule_as_text_reads_back_equal),
        cmocka_unit_test(a_schedule_is_read_from_a_file),
        cmocka_unit_test(texts_that_are_no_schedule_are_refused_with_their_place),
        cmocka_unit_test(damaged_texts_give_a_schedule_or_a_message),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
