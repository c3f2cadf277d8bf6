/* test_checkpoint.c -- a checkpoint comes back bit for bit, or the one before it does. */
#include "ckpt_case.h"

#include <jansson.h>

static const char tokenizer_text[] = "{\"model\": {}}\n";

static orth_checkpoint_view view_of(const model_case *m, int64_t step, orth_dtype dtype)
{
    return (orth_checkpoint_view){
        .config = m->config,
        .state = {.step = step, .next_sequence = 12 * step, .tokens = (int64_t)1 << 40, .skipped = 3,
                  .seed = -5,
                  .loss_scale = 0.1, .loss_scale_streak = 7, .tokenizer_fingerprint = 0xfedcba9876543210u,
                  .special = {.num_eos = 2, .eos = {2, 40}, .bos = 1, .pad = -1}},
        .arrays = m->arrays,
        .num_arrays = m->num_params,
        .weight_dtype = dtype,
        .run_config = "train:\n  name: \"caf\xc3\xa9\"\n",
        .tokenizer = tokenizer_text,
        .tokenizer_bytes = sizeof tokenizer_text - 1,
    };
}

/* As the saver of a run does it, all checkpoints being proven. */
static orth_status save_and_keep(orth_ctx *ctx, const char *dir, const orth_checkpoint_view *view, int64_t keep)
{
    ORTH_TRY(orth_checkpoint_save(ctx, dir, view, NULL));
    orth_checkpoint_retain(ctx, dir, keep, -1, view->state.step, -1);
    return ORTH_OK;
}

static void load_equal(orth_ctx *ctx, const char *path, const model_case *want, int64_t step)
{
    orth_checkpoint *ck;
    CHECK_OK(ctx, orth_checkpoint_open(ctx, &ck, path));
    model_case back = case_make(ctx, orth_checkpoint_config(ck), 0);
    CHECK_OK(ctx, orth_checkpoint_load(ctx, ck, back.arrays, back.num_params));
    case_check_equal(ctx, want, &back, true);
    orth_checkpoint_view v = view_of(want, step, ORTH_F32);
    const orth_checkpoint_state *s = orth_checkpoint_get_state(ck);
    assert_memory_equal(s, &v.state, sizeof *s);
    assert_string_equal(orth_checkpoint_run_config(ck), v.run_config);
    orth_checkpoint_close(ctx, ck);
    case_free(&back);
}

TEST(every_array_and_counter_comes_back_bit_for_bit)
{
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny", "qwen3-tiny"};
    static const orth_dtype types[] = {ORTH_F32, ORTH_BF16, ORTH_F16};
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(presets); i++) {
        for (int t = 0; t < ORTH_COUNT(types); t++) {
            char *dir = scratch_dir(), *path = NULL;
            orth_model_config c = case_config(ctx, presets[i]);
            model_case m = case_make(ctx, &c, 11);
            orth_checkpoint_view v = view_of(&m, 5, types[t]);
            CHECK_OK(ctx, orth_checkpoint_save(ctx, dir, &v, &path));
            load_equal(ctx, path, &m, 5);
            orth_mem_free(ctx, path);
            case_free(&m);
            scratch_free(ctx, dir);
        }
    }
    test_ctx_free(ctx);
}

static bool has_step(const char *dir, int64_t step)
{
    char path[256];
    return orth_path_exists(AT(path, "%s/step-%08d", dir, (int)step));
}

TEST(the_newest_are_kept_and_leftovers_go)
{
    orth_ctx *ctx = test_ctx(1);
    char *dir = scratch_dir(), path[256], *newest = NULL;
    orth_model_config c = case_config(ctx, "llama-tiny");
    model_case m = case_make(ctx, &c, 3);
    CHECK_OK(ctx, orth_path_make_dirs(ctx, AT(path, "%s/.tmp-step-00000001/x", dir)));
    CHECK_OK(ctx, orth_path_make_dirs(ctx, AT(path, "%s/step-1-notes", dir)));
    for (int64_t step = 10; step <= 50; step += 10) {
        orth_checkpoint_view v = view_of(&m, step, ORTH_F32);
        CHECK_OK(ctx, save_and_keep(ctx, dir, &v, 2));
    }
    assert_true(!has_step(dir, 10) && !has_step(dir, 30) && has_step(dir, 40) && has_step(dir, 50));
    assert_false(orth_path_exists(AT(path, "%s/.tmp-step-00000001", dir)));
    assert_true(orth_path_exists(AT(path, "%s/step-1-notes", dir)));
    /* Saved again, the same step is replaced; an older one that was just saved is not removed. */
    orth_checkpoint_view again = view_of(&m, 50, ORTH_F32);
    CHECK_OK(ctx, save_and_keep(ctx, dir, &again, 2));
    orth_checkpoint_view older = view_of(&m, 20, ORTH_F32);
    CHECK_OK(ctx, save_and_keep(ctx, dir, &older, 2));
    assert_true(has_step(dir, 20) && has_step(dir, 40) && has_step(dir, 50));
    CHECK_OK(ctx, orth_checkpoint_newest(ctx, dir, &newest));
    assert_non_null(strstr(newest, "step-00000050"));
    orth_mem_free(ctx, newest);
    /* Damaged ones above, which the run passed over, take no place. */
    for (int step = 90; step < 93; step++)
        CHECK_OK(ctx, orth_path_make_dirs(ctx, AT(path, "%s/step-000000%d", dir, step)));
    for (int64_t step = 60; step <= 80; step += 10) {
        orth_checkpoint_view v = view_of(&m, step, ORTH_F32);
        CHECK_OK(ctx, save_and_keep(ctx, dir, &v, 2));
    }
    assert_true(!has_step(dir, 50) && !has_step(dir, 60) && has_step(dir, 70) && has_step(dir, 80) && has_step(dir, 90) && has_step(dir, 92));
    case_free(&m);
    scratch_free(ctx, dir);
    test_ctx_free(ctx);
}

/* Step 1 is whole; the save of step 2 (and of step 1 again) fails at its n-th allocation or write, for
 * every n. Each time a valid checkpoint with the old content is there, no memory is lost, and no
 * temporary stays. */
static void fail_at_every(bool writes, int64_t second_step)
{
    orth_ctx *ctx = test_ctx(1);
    char *dir = scratch_dir(), path[256], *newest = NULL;
    ctx->log.write = quiet;
    orth_model_config c = case_config(ctx, "qwen3-tiny");
    c.layers = 1;
    model_case m = case_make(ctx, &c, 21);
    orth_checkpoint_view first = view_of(&m, 1, ORTH_F32), second = view_of(&m, second_step, ORTH_BF16);
    CHECK_OK(ctx, orth_checkpoint_save(ctx, dir, &first, NULL));
    orth_status s = ORTH_ERR_IO;
    int64_t n = 0, before = ctx->heap_bytes;
    while (s != ORTH_OK) {
        orth_faults faults = {.sticky = n % 2};
        atomic_store(writes ? &faults.write : &faults.alloc, ++n);
        ctx->faults = &faults;
        s = orth_checkpoint_save(ctx, dir, &second, NULL);
        ctx->faults = NULL;
        orth_ctx_clear_error(ctx);
        assert_int_equal(ctx->heap_bytes, before);
        assert_false(orth_path_exists(AT(path, "%s/.tmp-step-%08d", dir, (int)second_step)));
        if (s == ORTH_OK)
            break;
        assert_true(s == ORTH_ERR_NOMEM || s == ORTH_ERR_IO || s == ORTH_ERR_NOSPACE);
        load_equal(ctx, AT(path, "%s/step-00000001", dir), &m, 1);
        assert_true(n < 1000);
    }
    assert_true(n > 10);
    CHECK_OK(ctx, orth_checkpoint_newest(ctx, dir, &newest));
    load_equal(ctx, newest, &m, second_step);
    orth_mem_free(ctx, newest);
    case_free(&m);
    scratch_free(ctx, dir);
    test_ctx_free(ctx);
}

TEST(a_write_that_fails_anywhere_leaves_the_older_checkpoint)
{
    fail_at_every(true, 2);
    fail_at_every(true, 1);
}

TEST(an_allocation_that_fails_anywhere_leaves_the_older_checkpoint)
{
    fail_at_every(false, 2);
}

TEST(an_allocation_that_fails_while_loading_loses_nothing)
{
    orth_ctx *ctx = test_ctx(1);
    char *dir = scratch_dir(), *path = NULL;
    orth_model_config c = case_config(ctx, "gpt2-tiny");
    c.layers = 1;
    model_case m = case_make(ctx, &c, 5);
    orth_checkpoint_view v = view_of(&m, 1, ORTH_F32);
    CHECK_OK(ctx, orth_checkpoint_save(ctx, dir, &v, &path));
    int64_t before = ctx->heap_bytes, n = 0;
    for (orth_status s = ORTH_ERR_NOMEM; s != ORTH_OK;) {
        orth_faults faults = {.alloc = ++n};
        ctx->faults = &faults;
        orth_checkpoint *ck = NULL;
        s = orth_checkpoint_open(ctx, &ck, path);
        if (s == ORTH_OK)
            s = orth_checkpoint_load(ctx, ck, m.arrays, m.num_params);
        orth_checkpoint_close(ctx, ck);
        ctx->faults = NULL;
        orth_ctx_clear_error(ctx);
        assert_true(s == ORTH_OK || s == ORTH_ERR_NOMEM);
        assert_int_equal(ctx->heap_bytes, before);
    }
    assert_true(n > 10);
    orth_mem_free(ctx, path);
    case_free(&m);
    scratch_free(ctx, dir);
    test_ctx_free(ctx);
}

/* As a killed machine or a bad disk leaves it: each file in turn cut short, one bit turned, or gone. */
static void damage(orth_ctx *ctx, const char *path, int kind)
{
    char *text;
    size_t n;
    CHECK_OK(ctx, orth_file_read(ctx, path, &text, &n));
    if (kind == 3)
        CHECK_OK(ctx, orth_path_remove(ctx, path));
    else if (kind == 2)
        text[n / 2] ^= 1;
    if (kind < 3)
        CHECK_OK(ctx, orth_file_write(ctx, path, text, kind == 0 ? n - 1 : kind == 1 ? 0 : n));
    orth_mem_free(ctx, text);
}

TEST(a_damaged_file_is_named_and_the_older_checkpoint_is_taken)
{
    static const char *const files[] = {"model.safetensors", "optimizer.safetensors", "config.json",
                                        "generation_config.json", "tokenizer.json", "state.json"};
    orth_ctx *ctx = test_ctx(1);
    orth_model_config c = case_config(ctx, "llama-tiny");
    model_case m = case_make(ctx, &c, 9);
    orth_checkpoint_view one = view_of(&m, 1, ORTH_F32), two = view_of(&m, 2, ORTH_F32);
    for (int f = 0; f < ORTH_COUNT(files); f++) {
        for (int kind = 0; kind < 4; kind++) {
            char *dir = scratch_dir(), *second = NULL, *newest = NULL, path[256], warning[1024] = "";
            CHECK_OK(ctx, orth_checkpoint_save(ctx, dir, &one, NULL));
            CHECK_OK(ctx, orth_checkpoint_save(ctx, dir, &two, &second));
            damage(ctx, AT(path, "%s/%s", second, files[f]), kind);
            orth_status s = orth_checkpoint_verify(ctx, second);
            assert_int_equal(s, ORTH_ERR_DATA);
            assert_non_null(strstr(ctx->error.message, files[f]));
            orth_ctx_clear_error(ctx);
            ctx->log.write = quiet;
            ctx->log.user = warning;
            CHECK_OK(ctx, orth_checkpoint_newest(ctx, dir, &newest));
            assert_non_null(strstr(warning, files[f]));
            assert_non_null(strstr(newest, "step-00000001"));
            load_equal(ctx, newest, &m, 1);
            orth_mem_free(ctx, newest);
            orth_mem_free(ctx, second);
            scratch_free(ctx, dir);
        }
    }
    case_free(&m);
    test_ctx_free(ctx);
}

/* A kill during the save leaves a temporary folder with some of the files: not a checkpoint. */
TEST(no_checkpoint_is_said_in_words)
{
    orth_ctx *ctx = test_ctx(1);
    char *dir = scratch_dir(), *found = (char *)1, path[256];
    CHECK_OK(ctx, orth_path_make_dirs(ctx, AT(path, "%s/.tmp-step-00000007", dir)));
    CHECK_OK(ctx, orth_checkpoint_newest(ctx, dir, &found));
    assert_null(found);
    CHECK_OK(ctx, orth_checkpoint_newest(ctx, AT(path, "%s/nowhere", dir), &found));
    assert_null(found);
    CHECK_FAILS(ctx, ORTH_ERR_DATA, "holds no valid checkpoint", orth_checkpoint_resolve(ctx, dir, &found));
    scratch_free(ctx, dir);
    test_ctx_free(ctx);
}

TEST(a_kill_while_a_step_is_replaced_leaves_the_former_one)
{
    orth_ctx *ctx = test_ctx(1);
    char *dir = scratch_dir(), path[256], aside[256], *found = NULL;
    orth_model_config c = case_config(ctx, "llama-tiny");
    model_case m = case_make(ctx, &c, 9);
    orth_checkpoint_view v = view_of(&m, 4, ORTH_F32);
    CHECK_OK(ctx, save_and_keep(ctx, dir, &v, 1));
    AT(path, "%s/step-00000004", dir);
    CHECK_OK(ctx, orth_path_rename(ctx, path, AT(aside, "%s/.old-step-00000004", dir)));
    CHECK_OK(ctx, orth_checkpoint_newest(ctx, dir, &found)); /* a reader takes it as it is */
    assert_string_equal(found, aside);
    load_equal(ctx, found, &m, 4);
    assert_true(orth_path_exists(aside) && !orth_path_exists(path));
    CHECK_OK(ctx, orth_checkpoint_tidy(ctx, dir)); /* a writer gives it its name back */
    assert_true(!orth_path_exists(aside) && orth_path_exists(path));
    CHECK_OK(ctx, orth_path_make_dirs(ctx, AT(aside, "%s/.old-step-00000004/x", dir)));
    CHECK_OK(ctx, save_and_keep(ctx, dir, &v, 1)); /* a leftover is not in the way */
    assert_false(orth_path_exists(AT(aside, "%s/.old-step-00000004", dir)));
    orth_mem_free(ctx, found);
    case_free(&m);
    scratch_free(ctx, dir);
    test_ctx_free(ctx);
}

/* ---- jansson without memory ---- */

static int64_t json_calls_left;

static void *json_memory(size_t n)
{
    return --json_calls_left == 0 ? NULL : malloc(n);
}

/* It allocates while it builds and while it writes: at whichever of these it fails, the text is whole, or there is none and the
 * status is that of a lack of memory. */
TEST(json_is_whole_or_not_written)
{
    orth_ctx *ctx = test_ctx(1);
    orth_model_config c = case_config(ctx, "llama-tiny");
    orth_checkpoint_manifest m = {.run_config = "a: 1\n", .num_files = 2, .files = {{.name = "a"}, {.name = "b"}}};
    const orth_special_tokens special = {.eos = {2, 3}, .num_eos = 2, .bos = 1, .pad = -1};
    m.state.special = special;
    c.rope_factor = 2;
    for (int what = 0; what < 2; what++) {
        char *want = NULL, *text = NULL;
        int64_t k = 0;
        for (; !text; k++) {
            json_set_alloc_funcs(json_memory, free);
            json_calls_left = k;
            text = what ? orth_hf_config_text(ctx, &c, ORTH_F32, &special) : orth_checkpoint_manifest_text(ctx, &m);
            json_set_alloc_funcs(malloc, free);
            if (k == 0) {
                want = text; /* 0: none fails */
                text = NULL;
                assert_non_null(want);
            } else if (!text) {
                assert_int_equal(ctx->error.code, ORTH_ERR_NOMEM);
                orth_ctx_clear_error(ctx);
            }
        }
        assert_string_equal(text, want);
        assert_true(k > 30);
        orth_mem_free(ctx, text);
        orth_mem_free(ctx, want);
    }
    test_ctx_free(ctx);
}

/* ---- beside a writer ---- */

/* A checkpoint is removed under a name that is not a checkpoint's (test_faults.c lets that fail half-way). */
TEST(what_a_kill_left_of_a_removed_checkpoint_goes_with_the_next_save)
{
    orth_ctx *ctx = test_ctx(1);
    char *dir = scratch_dir(), path[256];
    int64_t *steps = NULL, n = 0;
    orth_model_config c = case_config(ctx, "llama-tiny");
    model_case m = case_make(ctx, &c, 9);
    orth_checkpoint_view one = view_of(&m, 1, ORTH_F32), two = view_of(&m, 2, ORTH_F32);
    CHECK_OK(ctx, save_and_keep(ctx, dir, &one, 1));
    CHECK_OK(ctx, orth_path_make_dirs(ctx, AT(path, "%s/.del-step-00000009/x", dir)));
    CHECK_OK(ctx, orth_checkpoint_list(ctx, dir, &steps, &n));
    assert_int_equal(n, 1);
    orth_mem_free(ctx, steps);
    CHECK_OK(ctx, save_and_keep(ctx, dir, &two, 1));
    assert_false(orth_path_exists(AT(path, "%s/.del-step-00000009", dir)));
    assert_true(!has_step(dir, 1) && has_step(dir, 2));
    case_free(&m);
    scratch_free(ctx, dir);
    test_ctx_free(ctx);
}

typedef struct {
    char *dir;
    orth_ctx *ctx;
    int64_t looks;
} vanishing;

/* Step `looks` is removed while it is read. */
static orth_status read_vanishing(orth_ctx *ctx, void *user, const char *folder, bool own)
{
    vanishing *v = user;
    char want[256];
    v->looks++;
    assert_true(own);
    assert_string_equal(folder, AT(want, "%s/step-%08d", v->dir, 4 - (int)v->looks));
    if (v->looks == 3)
        return ORTH_OK;
    CHECK_OK(ctx, orth_path_remove(ctx, folder));
    return ORTH_FAIL(ctx, ORTH_ERR_IO, "it went away");
}

TEST(a_reader_looks_again_when_a_checkpoint_goes_away)
{
    orth_ctx *ctx = test_ctx(1);
    vanishing v = {.dir = scratch_dir(), .ctx = ctx};
    orth_model_config c = case_config(ctx, "llama-tiny");
    model_case m = case_make(ctx, &c, 9);
    for (int64_t step = 1; step <= 3; step++) {
        orth_checkpoint_view view = view_of(&m, step, ORTH_F32);
        CHECK_OK(ctx, orth_checkpoint_save(ctx, v.dir, &view, NULL));
    }
    CHECK_OK(ctx, orth_checkpoint_read_weights(ctx, v.dir, read_vanishing, &v));
    assert_int_equal(v.looks, 3);
    case_free(&m);
    scratch_free(ctx, v.dir);
    test_ctx_free(ctx);
}

/* Saves two more steps that keep one checkpoint, while this one is read. */
static orth_status read_beside_saves(orth_ctx *ctx, void *user, const char *folder, bool own)
{
    const vanishing *v = user;
    orth_model_config c = case_config(ctx, "llama-tiny");
    model_case m = case_make(ctx, &c, 9);
    (void)own;
    for (int64_t step = 2; step <= 3; step++) {
        orth_checkpoint_view view = view_of(&m, step, ORTH_F32);
        CHECK_OK(ctx, save_and_keep(ctx, v->dir, &view, 1));
    }
    CHECK_OK(ctx, orth_checkpoint_verify(ctx, folder));
    case_free(&m);
    return ORTH_OK;
}

TEST(a_checkpoint_that_is_read_is_not_removed_before_a_later_save)
{
    orth_ctx *ctx = test_ctx(1);
    vanishing v = {.dir = scratch_dir(), .ctx = ctx};
    orth_model_config c = case_config(ctx, "llama-tiny");
    model_case m = case_make(ctx, &c, 9);
    orth_checkpoint_view view = view_of(&m, 1, ORTH_F32);
    int64_t *steps, n;
    CHECK_OK(ctx, save_and_keep(ctx, v.dir, &view, 1));
    CHECK_OK(ctx, orth_checkpoint_read_weights(ctx, v.dir, read_beside_saves, &v));
    CHECK_OK(ctx, orth_checkpoint_list(ctx, v.dir, &steps, &n));
    assert_int_equal(n, 2); /* 3, and 1 that was read; 2, which nobody read, is gone */
    assert_int_equal(steps[0], 3);
    assert_int_equal(steps[1], 1);
    orth_mem_free(ctx, steps);
    view = view_of(&m, 4, ORTH_F32);
    CHECK_OK(ctx, save_and_keep(ctx, v.dir, &view, 1));
    CHECK_OK(ctx, orth_checkpoint_list(ctx, v.dir, &steps, &n));
    assert_int_equal(n, 1);
    orth_mem_free(ctx, steps);
    case_free(&m);
    scratch_free(ctx, v.dir);
    test_ctx_free(ctx);
}

/* Not readable is not damaged: an older checkpoint is not taken for it. */
TEST(a_checkpoint_that_cannot_be_read_is_not_passed_over)
{
    orth_ctx *ctx = test_ctx(1);
    char *dir = scratch_dir(), path[256], *found = NULL;
    orth_model_config c = case_config(ctx, "llama-tiny");
    model_case m = case_make(ctx, &c, 9);
    for (int64_t step = 1; step <= 2; step++) {
        orth_checkpoint_view view = view_of(&m, step, ORTH_F32);
        CHECK_OK(ctx, orth_checkpoint_save(ctx, dir, &view, NULL));
    }
    AT(path, "%s/step-00000002/config.json", dir);
    CHECK_OK(ctx, orth_path_remove(ctx, path));
    assert_int_equal(symlink(path, path), 0); /* a loop: ELOOP, whoever reads */
    CHECK_FAILS(ctx, ORTH_ERR_IO, "step-00000002/config.json: cannot open", orth_checkpoint_newest(ctx, dir, &found));
    case_free(&m);
    scratch_free(ctx, dir);
    test_ctx_free(ctx);
}

TEST(a_run_folder_resolves_to_its_newest_checkpoint)
{
    orth_ctx *ctx = test_ctx(1);
    char *dir = scratch_dir(), path[256], *a = NULL, *b = NULL;
    orth_model_config c = case_config(ctx, "llama-tiny");
    model_case m = case_make(ctx, &c, 9);
    orth_checkpoint_view v = view_of(&m, 4, ORTH_F32);
    CHECK_OK(ctx, save_and_keep(ctx, AT(path, "%s/checkpoints", dir), &v, 1));
    CHECK_OK(ctx, orth_checkpoint_resolve(ctx, dir, &a));
    CHECK_OK(ctx, orth_checkpoint_resolve(ctx, a, &b));
    assert_string_equal(a, b);
    orth_mem_free(ctx, a);
    orth_mem_free(ctx, b);
    case_free(&m);
    scratch_free(ctx, dir);
    test_ctx_free(ctx);
}

TEST(wrong_arrays_are_refused)
{
    orth_ctx *ctx = test_ctx(1);
    char *dir = scratch_dir(), *path = NULL;
    orth_model_config c = case_config(ctx, "llama-tiny");
    model_case m = case_make(ctx, &c, 2);
    orth_checkpoint_view v = view_of(&m, 1, ORTH_F32);
    v.num_arrays--;
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "arrays given, the model has", orth_checkpoint_save(ctx, dir, &v, NULL));
    v.num_arrays++;
    m.arrays[3].index = 2;
    CHECK_FAILS(ctx, ORTH_ERR_ARG, "given twice", orth_checkpoint_save(ctx, dir, &v, NULL));
    m.arrays[3].index = 3;
    for (int64_t i = 0; i < m.num_params; i++)
        m.arrays[i].v = NULL; /* as momentum SGD has it */
    CHECK_OK(ctx, orth_checkpoint_save(ctx, dir, &v, &path));
    orth_checkpoint *ck;
    CHECK_OK(ctx, orth_checkpoint_open(ctx, &ck, path));
    CHECK_OK(ctx, orth_checkpoint_load(ctx, ck, m.arrays, m.num_params));
    m.arrays[0].v = m.p[2 * m.num_params];
    CHECK_FAILS(ctx, ORTH_ERR_DATA, "tensor 'v.embed.weight' is missing",
                orth_checkpoint_load(ctx, ck, m.arrays, m.num_params));
    orth_checkpoint_close(ctx, ck);
    orth_mem_free(ctx, path);
    case_free(&m);
    scratch_free(ctx, dir);
    test_ctx_free(ctx);
}

/* As version 0.1 wrote it: one end-of-text token, no other special tokens, and no fingerprint of the data. */
TEST(a_state_that_knows_the_end_of_text_alone_is_read)
{
    static const char body[] = "{\n  \"format\": \"orthant-checkpoint\",\n  \"version\": 1,\n  \"step\": 7,\n"
                               "  \"next_sequence\": 56,\n  \"tokens\": 9,\n  \"skipped\": 0,\n  \"seed\": 1,\n"
                               "  \"loss_scale_streak\": 0,\n  \"eos_token\": %s,\n  \"loss_scale\": \"0x1p+0\",\n"
                               "  \"tokenizer_fingerprint\": \"0000000000000000\",\n  \"files\": {},\n"
                               "  \"run_config\": \"\"%s";
    static const struct {
        const char *eos, *more, *message;
        orth_special_tokens want;
    } cases[] = {
        {"299", "", NULL, {1, {299}, -1, -1}},
        {"-1", "", NULL, {0, {0}, -1, -1}},
        {"3", ", \"eos_tokens\": [3, 5], \"bos_token\": 0, \"pad_token\": -1", NULL, {2, {3, 5}, 0, -1}},
        {"3", ", \"eos_tokens\": 5", "eos_tokens is not a list", {0}},
        {"3", ", \"eos_tokens\": [3, -5]", "eos_tokens[1] is no token", {0}},
        {"3", ", \"bos_token\": -2", "bos_token=-2 is no token", {0}},
        {"5000000000", "", "eos_token=5000000000 is no token", {0}},
    };
    orth_ctx *ctx = test_ctx(1);
    for (int i = 0; i < ORTH_COUNT(cases); i++) {
        char open[1024];
        orth_checkpoint_manifest m = {0};
        AT(open, body, cases[i].eos, cases[i].more);
        char *text = orth_checkpoint_seal(ctx, open, strlen(open));
        assert_non_null(text);
        if (cases[i].message) {
            CHECK_FAILS(ctx, ORTH_ERR_DATA, cases[i].message,
                        orth_checkpoint_manifest_parse(ctx, &m, "state.json", text, strlen(text)));
        } else {
            CHECK_OK(ctx, orth_checkpoint_manifest_parse(ctx, &m, "state.json", text, strlen(text)));
            assert_int_equal(m.state.step, 7);
            assert_memory_equal(&m.state.special, &cases[i].want, sizeof cases[i].want);
            orth_checkpoint_manifest_release(ctx, &m);
        }
        orth_mem_free(ctx, text);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_state_that_knows_the_end_of_text_alone_is_read),
        cmocka_unit_test(every_array_and_counter_comes_back_bit_for_bit),
        cmocka_unit_test(the_newest_are_kept_and_leftovers_go),
        cmocka_unit_test(a_write_that_fails_anywhere_leaves_the_older_checkpoint),
        cmocka_unit_test(an_allocation_that_fails_anywhere_leaves_the_older_checkpoint),
        cmocka_unit_test(an_allocation_that_fails_while_loading_loses_nothing),
        cmocka_unit_test(a_damaged_file_is_named_and_the_older_checkpoint_is_taken),
        cmocka_unit_test(no_checkpoint_is_said_in_words),
        cmocka_unit_test(a_kill_while_a_step_is_replaced_leaves_the_former_one),
        cmocka_unit_test(json_is_whole_or_not_written),
        cmocka_unit_test(what_a_kill_left_of_a_removed_checkpoint_goes_with_the_next_save),
        cmocka_unit_test(a_reader_looks_again_when_a_checkpoint_goes_away),
        cmocka_unit_test(a_checkpoint_that_is_read_is_not_removed_before_a_later_save),
        cmocka_unit_test(a_checkpoint_that_cannot_be_read_is_not_passed_over),
        cmocka_unit_test(a_run_folder_resolves_to_its_newest_checkpoint),
        cmocka_unit_test(wrong_arrays_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
