/* test_engine.c -- the compiled step against PyTorch, and against itself in other shapes. */
#include <jansson.h>

#include "engine.h"
#include "run/space/space.h"
#include "train/loss_scale.h"

/* Where kernels work: all tests run twice. */
static orth_space space = ORTH_SPACE_HOST;

/* Whose device is out of reach outside of instructions. */
static orth_ctx *engine_ctx(int threads)
{
    static const orth_space_setup guarded = {.guards_device = true};
    orth_ctx *ctx = test_ctx(threads);
    ctx->spaces = &guarded;
    return ctx;
}

typedef struct {
    int32_t *tokens, *targets, *doc;
    float *weights;
    int64_t B, T;
    double total;
} batch;

static batch batch_open(const golden *g, const char *name)
{
    batch b = {0};
    golden_shape(g, name, &b.B, &b.T);
    b.tokens = golden_ints(g, name, "input_ids", NULL);
    b.targets = golden_ints(g, name, "targets", NULL);
    b.weights = golden_tensor(g, name, "weight", NULL);
    b.doc = golden_find(g, name, "doc") ? golden_ints(g, name, "doc", NULL) : NULL;
    for (int64_t i = 0; i < b.B * b.T; i++)
        b.total += b.weights[i];
    return b;
}

static void batch_close(batch *b)
{
    free(b->tokens);
    free(b->targets);
    free(b->doc);
    free(b->weights);
}

static orth_model_shape train_shape(const batch *b, int micro, int parts, orth_dtype compute)
{
    return (orth_model_shape){.mode = ORTH_MODE_TRAIN, .num_seqs = (int32_t)(b->B / micro),
                              .num_micro_batches = micro, .seq_len = (int32_t)b->T, .parts = parts,
                              .compute = compute, .space = space, .doc_mask = b->doc != NULL, .optimizer = ORTH_OP_adamw};
}

/* One step that changes no weight (lr 0). Returns the mean loss. */
static double run_step(orth_ctx *ctx, engine *e, const batch *b)
{
    engine_fill(e, b->B, b->tokens, b->targets, b->weights, b->doc);
    engine_set_step(e, 0, (orth_step_values){.step = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8f, .loss_scale = (float)(1 / b->total)});
    CHECK_OK(ctx, orth_executor_run(ctx, e->ex));
    return engine_loss(e) / b->total;
}

/* How far from PyTorch's fp32 results may be, relatively (tensors: in the Euclidean norm). bf16: six of PyTorch's own ways of
 * doing bf16 reach 4.1e-4 for the loss and 3.2e-3 for the norm on these models. For a gradient the limit is BF16_TENSOR times
 * the worst of four of these ways on that tensor, and check_errors looks at all of them together. */
typedef struct {
    double loss, norm, grad;
} golden_limits;

#define BF16_TENSOR 1.5

static const golden_limits fp32_limits = {2e-5, 4e-5, 2e-5}, bf16_limits = {5e-4, 4e-3, 0}, fp16_limits = {5e-4 / 8, 4e-3 / 8, 0};

/* bf16: the root mean square, over all gradient tensors of the model, of their relative errors is at most that of PyTorch
 * with a model cast to bf16 (SDPA or eager attention, the larger), which rounds weights and activations as Orthant does. One
 * tensor's error is a sample of something random; this mean of 21 to 34 of them hardly is. */
static void check_errors(const golden *g, const char *name, const char *which, const orth_ctx *ctx, golden_errors e)
{
    int64_t n;
    double *theirs = golden_doubles(g, which, "bf16_rms", &n), ours = sqrt(e.squares / e.num);
    assert_int_equal(n, 4);
    const double limit = fmax(theirs[0], theirs[1]);
    free(theirs);
    if (!(ours <= limit))
        fail_msg("%s, %s, isa %d: gradients in bf16 are off by %.4g (root mean square of %d tensors), PyTorch's by %.4g", name,
                 which, (int)ctx->isa, ours, e.num, limit);
}

static void check_case(orth_ctx *ctx, const char *name, const char *which, int micro, int parts,
                       orth_dtype compute, const orth_kernel_fn *kernels)
{
    const golden_limits *limits = compute == ORTH_F32 ? &fp32_limits : compute == ORTH_F16 ? &fp16_limits : &bf16_limits;
    golden_errors errors = {0};
    golden g;
    engine e;
    golden_open(ctx, &g, name);
    batch b = batch_open(&g, which);
    orth_model_shape shape = train_shape(&b, micro, parts, compute);
    engine_open(ctx, &e, &g, &shape, kernels);
    double loss = run_step(ctx, &e, &b), want = golden_number(&g, which, "loss");
    double norm = engine_step_values(&e).grad_norm, want_norm = golden_number(&g, which, "grad_norm");
    if (!(fabs(loss - want) <= limits->loss * want) || !(fabs(norm - want_norm) <= limits->norm * want_norm))
        fail_msg("%s, %s: loss %.9g, PyTorch %.9g; norm %.9g, PyTorch %.9g", name, which, loss, want, norm, want_norm);
    bool grads = strcmp(which, "main") == 0 ||
                 (b.doc && (strcmp(name, "gpt2_hub") == 0 || strcmp(name, "llama_tied") == 0));
    for (int64_t i = 0; grads && i < orth_model_num_params(&e.model); i++) {
        float *grad = engine_get(&e, ORTH_BIND_GRAD, i);
        golden_check_grad(ctx, &g, &e.model, which, i, grad, limits->grad, compute == ORTH_F16 ? BF16_TENSOR / 4 : BF16_TENSOR, &errors);
        free(grad);
    }
    if (grads && compute == ORTH_BF16)
        check_errors(&g, name, which, ctx, errors);
    engine_close(ctx, &e);
    batch_close(&b);
    golden_close(ctx, &g);
}

TEST(reference_kernels_give_the_gradients_of_pytorch)
{
    orth_ctx *ctx = engine_ctx(1);
    for (int c = 0; c < GOLDEN_NUM_CASES; c++) {
        check_case(ctx, golden_cases[c], "main", 1, 1, ORTH_F32, orth_kernels_ref());
        check_case(ctx, golden_cases[c], "packed", 2, 8, ORTH_F32, orth_kernels_ref());
    }
    test_ctx_free(ctx);
}

TEST(fast_kernels_give_the_gradients_of_pytorch)
{
    orth_ctx *ctx = engine_ctx(2);
    for (int bf16x6 = 0; bf16x6 <= test_has_bf16x6(); bf16x6++) {
        if (bf16x6)
            ctx->isa = ORTH_ISA_AMX_BF16X6;
        for (int c = 0; c < GOLDEN_NUM_CASES; c++) {
            check_case(ctx, golden_cases[c], "main", 2, 1, ORTH_F32, orth_kernels_cpu());
            check_case(ctx, golden_cases[c], "main", 1, 8, ORTH_F32, orth_kernels_cpu());
            check_case(ctx, golden_cases[c], "long", 1, 4, ORTH_F32, orth_kernels_cpu());
            check_case(ctx, golden_cases[c], "packed", 1, 4, ORTH_F32, orth_kernels_cpu());
        }
    }
    test_ctx_free(ctx);
}

TEST(bf16_is_nearer_to_fp32_than_pytorchs_own_bf16)
{
    orth_ctx *ctx = engine_ctx(2);
    for (orth_isa isa = ORTH_ISA_BASE; isa <= test_top_isa(); isa++) {
        ctx->isa = isa;
        for (int c = 0; c < GOLDEN_NUM_CASES; c++) {
            check_case(ctx, golden_cases[c], "main", 1, 8, ORTH_BF16, orth_kernels_cpu());
            check_case(ctx, golden_cases[c], "packed", 2, 1, ORTH_BF16, orth_kernels_cpu());
        }
    }
    test_ctx_free(ctx);
}

/* Three more bits: an eighth of the error that bf16 may have, a quarter of gradients, which without a scale may lose bits. */
TEST(fp16_is_nearer_to_fp32_than_bf16)
{
    orth_ctx *ctx = engine_ctx(2);
    for (int c = 0; c < GOLDEN_NUM_CASES; c++)
        check_case(ctx, golden_cases[c], c % 2 ? "packed" : "main", 1, 8, ORTH_F16, orth_kernels_cpu());
    test_ctx_free(ctx);
}

/* Logits of a whole sequence through the decoding program, natural order. */
static void check_logits(orth_ctx *ctx, const char *name, orth_dtype compute)
{
    golden g;
    engine e;
    int64_t n;
    golden_open(ctx, &g, name);
    batch b = batch_open(&g, "main");
    orth_model_shape shape = {.mode = ORTH_MODE_DECODE, .num_seqs = (int32_t)b.B, .num_micro_batches = 1,
                              .seq_len = (int32_t)b.T, .cache_rows = b.T, .parts = 8, .compute = compute, .space = space};
    engine_open(ctx, &e, &g, &shape, orth_kernels_cpu());
    engine_fill(&e, b.B, b.tokens, b.targets, b.weights, NULL);
    int32_t *past = calloc((size_t)b.B, sizeof *past);
    engine_put(&e, ORTH_BIND_DATA, ORTH_DATA_PAST, past);
    free(past);
    CHECK_OK(ctx, orth_executor_run(ctx, e.ex));
    float *want = golden_tensor(&g, "main", "logits", &n), *got = engine_get(&e, ORTH_BIND_LOGITS, 0);
    double error = rel_error_norm(got, want, n);
    double limit = compute == ORTH_F32 ? 2e-5 : golden_number(&g, "main", "bf16_error.logits");
    if (!(error <= limit))
        fail_msg("%s: logits are off by %.3g in norm, allowed %.3g", name, error, limit);
    free(want);
    free(got);
    engine_close(ctx, &e);
    batch_close(&b);
    golden_close(ctx, &g);
}

TEST(logits_are_those_of_transformers)
{
    orth_ctx *ctx = engine_ctx(2);
    for (int c = 0; c < GOLDEN_NUM_CASES; c++) {
        check_logits(ctx, golden_cases[c], ORTH_F32);
        check_logits(ctx, golden_cases[c], ORTH_BF16);
    }
    test_ctx_free(ctx);
}

/* What ten steps of a fixture's batches should give. */
typedef struct {
    orth_factors lr, decay, freeze;
    double times;             /* the loss is multiplied by this */
    orth_dtype compute;
    double loss_error, norm_error; /* allowed: of `times`, relative; 0: those of fp32 */
    double expected_scale[10]; /* 0: not known */
    orth_loss_scale scale;
    double loss[10], norm[10]; /* norm 0: the update is left out */
    double squares;           /* sum of the squares of all parameters in the end; 0: not known */
    int64_t trained;          /* parameters that are not frozen; 0: not known */
} training;

static void check_end(const char *name, const training *t, const engine *e)
{
    double squares = 0;
    for (int64_t i = 0; i < e->compiled.blocks.spec.num_params; i++) {
        float *w = engine_get(e, ORTH_BIND_MASTER, i);
        for (int64_t k = 0; k < orth_buffer_elems(&e->compiled.program.buffers[orth_program_find(&e->compiled.program, ORTH_BIND_MASTER, i)]); k++)
            squares += (double)w[k] * w[k];
        free(w);
    }
    if (!(fabs(squares - t->squares) <= 1e-4 * t->squares))
        fail_msg("%s: the squares of all weights are %.9g, PyTorch %.9g", name, squares, t->squares);
    if (orth_model_num_trained(&e->model, e->compiled.blocks.spec.params) != t->trained)
        fail_msg("%s: %lld parameters are trained, PyTorch trains %lld", name,
                 (long long)orth_model_num_trained(&e->model, e->compiled.blocks.spec.params), (long long)t->trained);
}

static void check_training(orth_ctx *ctx, const char *name, training *t)
{
    golden g;
    engine e;
    golden_open(ctx, &g, name);
    batch b = batch_open(&g, "train");
    b.B = 2; /* of each of the ten steps */
    orth_model_shape shape = train_shape(&b, 2, 8, t->compute);
    const double loss_error = t->loss_error > 0 ? t->loss_error : 1e-4, norm_error = t->norm_error > 0 ? t->norm_error : 1e-3;
    shape.lr_factors = t->lr;
    shape.decay_factors = t->decay;
    shape.freeze = t->freeze;
    int32_t left_out = 0;
    engine_open(ctx, &e, &g, &shape, orth_kernels_cpu());
    for (int step = 1; step <= 10; step++) {
        int64_t at = (step - 1) * b.B * b.T;
        double total = 0;
        for (int64_t i = 0; i < b.B * b.T; i++)
            total += b.weights[at + i];
        engine_fill(&e, b.B, b.tokens + at, b.targets + at, b.weights + at, NULL);
        engine_set_step(&e, 0, (orth_step_values){
            .step = (uint64_t)step, .lr = (float)golden_number(&g, "train", "lr"),
            .beta1 = golden_number(&g, "train", "beta1"), .beta2 = golden_number(&g, "train", "beta2"),
            .eps = (float)golden_number(&g, "train", "eps"),
            .weight_decay = (float)golden_number(&g, "train", "weight_decay"),
            .clip_norm = (float)golden_number(&g, "train", "clip_norm"), .left_out = left_out,
            .loss_scale = (float)(t->times / total) * t->scale.scale, .grad_scale = t->scale.scale});
        CHECK_OK(ctx, orth_executor_run(ctx, e.ex));
        const orth_step_values got = engine_step_values(&e);
        const double loss = t->times * engine_loss(&e) / total, want = t->loss[step - 1], norm = t->norm[step - 1];
        if (t->expected_scale[step - 1] > 0 && t->expected_scale[step - 1] != t->scale.scale)
            fail_msg("%s, step %d: scale %.9g, PyTorch %.9g", name, step, (double)t->scale.scale, t->expected_scale[step - 1]);
        if (!(fabs(loss - want) <= loss_error * t->times) || got.bad != (norm == 0) ||
            !(got.bad || fabs(got.grad_norm - norm) <= norm_error * norm))
            fail_msg("%s, step %d: loss %.9g, PyTorch %.9g; norm %.9g, PyTorch %.9g", name, step, loss, want, got.grad_norm, norm);
        left_out += got.bad;
        orth_loss_scale_step(&t->scale, got.bad);
    }
    if (t->squares > 0)
        check_end(name, t, &e);
    engine_close(ctx, &e);
    batch_close(&b);
    golden_close(ctx, &g);
}

TEST(ten_adamw_steps_follow_pytorch)
{
    orth_ctx *ctx = engine_ctx(2);
    for (int c = 0; c < GOLDEN_NUM_CASES; c++) {
        golden g;
        golden_open(ctx, &g, golden_cases[c]);
        double *losses = golden_doubles(&g, "train", "loss", NULL), *norms = golden_doubles(&g, "train", "grad_norm", NULL);
        training t = {.times = 1, .scale = {.scale = 1}};
        memcpy(t.loss, losses, sizeof t.loss);
        memcpy(t.norm, norms, sizeof t.norm);
        check_training(ctx, golden_cases[c], &t);
        free(losses);
        free(norms);
        golden_close(ctx, &g);
    }
    test_ctx_free(ctx);
}

static int32_t strings_of(const json_t *list, const char **out, int32_t cap)
{
    int32_t n = 0;
    for (; n < (int32_t)json_array_size(list) && n < cap; n++)
        out[n] = json_string_value(json_array_get(list, (size_t)n));
    return n;
}

static void read_numbers(const json_t *entry, const char *key, double out[10])
{
    for (size_t i = 0; i < 10; i++)
        out[i] = json_number_value(json_array_get(json_object_get(entry, key), i));
}

/* Every case of a fixture: `read_case` takes from its entry what loss and grad_norm do not say. */
static void check_fixture(const char *file, int cases, training (*read_case)(const json_t *entry))
{
    orth_ctx *ctx = engine_ctx(2);
    json_t *root = json_load_file(file, 0, NULL), *entry;
    const char *name;
    int num_cases = 0;
    json_object_foreach(json_object_get(root, "cases"), name, entry) {
        training t = read_case(entry);
        read_numbers(entry, "loss", t.loss);
        read_numbers(entry, "grad_norm", t.norm);
        check_training(ctx, name, &t);
        num_cases++;
    }
    assert_int_equal(num_cases, cases);
    json_decref(root);
    test_ctx_free(ctx);
}

TEST(ten_adamw_steps_with_parameter_groups_follow_pytorch)
{
    orth_ctx *ctx = engine_ctx(2);
    json_t *root = json_load_file(ORTH_TEST_DIR "/fixtures/groups.json", 0, NULL);
    const char *name;
    json_t *entry;
    int num_cases = 0;
    json_object_foreach(json_object_get(root, "cases"), name, entry) {
        const char *lr[8], *decay[8];
        training t = {.lr = {"lr", strings_of(json_object_get(entry, "lr_factors"), lr, 8), lr},
                      .decay = {"decay", strings_of(json_object_get(entry, "decay_factors"), decay, 8), decay},
                      .times = 1, .scale = {.scale = 1}};
        read_numbers(entry, "loss", t.loss);
        read_numbers(entry, "grad_norm", t.norm);
        check_training(ctx, name, &t);
        num_cases++;
    }
    assert_int_equal(num_cases, 4);
    json_decref(root);
    test_ctx_free(ctx);
}

TEST(ten_adamw_steps_with_frozen_parameters_follow_pytorch)
{
    orth_ctx *ctx = engine_ctx(2);
    json_t *root = json_load_file(ORTH_TEST_DIR "/fixtures/groups.json", 0, NULL), *entry;
    size_t i;
    json_array_foreach(json_object_get(root, "frozen"), i, entry) {
        const char *words[8];
        training t = {.freeze = {"freeze", strings_of(json_object_get(entry, "freeze"), words, 8), words}, .times = 1, .scale = {.scale = 1},
                      .squares = json_number_value(json_object_get(entry, "squares")),
                      .trained = json_integer_value(json_object_get(entry, "trained"))};
        read_numbers(entry, "loss", t.loss);
        read_numbers(entry, "grad_norm", t.norm);
        check_training(ctx, json_string_value(json_object_get(entry, "model")), &t);
    }
    assert_int_equal(i, 7);
    json_decref(root);
    test_ctx_free(ctx);
}

/* With the first layer and the embeddings frozen: nothing of their gradients, and no backward of the first layer. */
TEST(what_is_frozen_leaves_nothing_in_the_program)
{
    static const char *const words[] = {"embed.*", "pos.*", "layers.0.*", "layers.1.attn.qkv.weight"};
    orth_ctx *ctx = engine_ctx(1);
    orth_model_config c;
    orth_compiled u;
    CHECK_OK(ctx, orth_model_preset(ctx, "gpt2-tiny", &c));
    const orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .num_seqs = 2, .seq_len = 16, .num_micro_batches = 2, .parts = 4,
                                    .compute = ORTH_BF16, .optimizer = ORTH_OP_adamw, .freeze = {"freeze", 4, words}};
    CHECK_OK(ctx, orth_compiled_build(ctx, &c, &shape, &u));
    const orth_program *p = &u.program;
    const int64_t trained = orth_model_num_trained(&c, u.blocks.spec.params);
    int64_t masters = 0;
    for (int32_t b = 0; b < p->num_buffers; b++) {
        const orth_buffer *buf = &p->buffers[b];
        const bool frozen = buf->index < u.blocks.spec.num_params && u.blocks.spec.params[buf->index].frozen;
        if (buf->bind == ORTH_BIND_GRAD || buf->bind == ORTH_BIND_M || buf->bind == ORTH_BIND_V || buf->bind == ORTH_BIND_COPY)
            assert_false(frozen);
        masters += buf->bind == ORTH_BIND_MASTER && buf->cls == ORTH_CLASS_OPTIMIZER ? orth_buffer_elems(buf) : 0;
    }
    const size_t *host = p->class_bytes[ORTH_SPACE_HOST];
    assert_int_equal(host[ORTH_CLASS_OPTIMIZER], 8 * trained + 4 * masters);
    assert_true(host[ORTH_CLASS_GRADS] >= (size_t)(4 * trained) && masters < trained);
    int products = 0;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if (n->phase == ORTH_PHASE_BACKWARD && n->layer == 0)
            fail_msg("instruction %d, %s, is of the backward of layer 0", i, orth_op_name(n->op));
        products += n->layer == 1 && (n->op == ORTH_OP_linear_dx || n->op == ORTH_OP_linear_dw);
    }
    assert_int_equal(products, 2 * 7); /* of each micro-batch: of four products all but one gradient of a weight */
    orth_compiled_release(&u);
    test_ctx_free(ctx);
}

static orth_loss_scale scale_of(const json_t *words)
{
    return (orth_loss_scale){.on = true, .dynamic = true, .scale = (float)json_number_value(json_object_get(words, "init_scale")),
                             .growth = json_number_value(json_object_get(words, "growth_factor")),
                             .backoff = json_number_value(json_object_get(words, "backoff_factor")),
                             .interval = json_integer_value(json_object_get(words, "growth_interval"))};
}

static training read_scaled(const json_t *entry)
{
    return (training){.times = json_number_value(json_object_get(entry, "times")), .scale = scale_of(entry)};
}

/* Gradients overflow fp32 in some of the steps, whose updates are left out; the others are unscaled, clipped and counted as torch does. */
TEST(adamw_steps_with_loss_scaling_follow_pytorch)
{
    check_fixture(ORTH_TEST_DIR "/fixtures/loss_scale.json", 2, read_scaled);
}

static training read_fp16(const json_t *entry)
{
    training t = {.times = 1, .compute = ORTH_F16, .scale = scale_of(entry), .loss_error = 5e-3, .norm_error = 1e-2};
    read_numbers(entry, "scale", t.expected_scale);
    return t;
}

/* Autocast and GradScaler: gradients overflow fp16 in three of the steps. Weights, products and rounding are fp16's: 1/2048. */
TEST(adamw_steps_in_fp16_with_a_dynamic_scale_follow_pytorch)
{
    check_fixture(ORTH_TEST_DIR "/fixtures/fp16.json", 2, read_fp16);
}

TEST(loss_scales_move_as_those_of_pytorch)
{
    json_t *root = json_load_file(ORTH_TEST_DIR "/fixtures/loss_scale.json", 0, NULL), *words, *overflow;
    size_t i, step;
    assert_int_equal(json_array_size(json_object_get(root, "scales")), 3);
    json_array_foreach(json_object_get(root, "scales"), i, words) {
        orth_loss_scale s = scale_of(words);
        json_array_foreach(json_object_get(words, "overflow"), step, overflow) {
            const bool fell = orth_loss_scale_step(&s, json_integer_value(overflow) != 0);
            assert_true((double)s.scale == json_number_value(json_array_get(json_object_get(words, "scale"), step)));
            assert_true(fell == (json_integer_value(overflow) != 0));
        }
    }
    orth_loss_scale s = {.on = true, .dynamic = true, .scale = 6, .backoff = 0.5, .growth = 2, .interval = 1, .least = 4};
    assert_true(orth_loss_scale_step(&s, true) && s.scale == 4);
    assert_true(!orth_loss_scale_step(&s, true) && s.scale == 4); /* it falls no further: the overflow is the run's own */
    json_decref(root);
}

/* A random step: any odd sizes, all bits of its gradients. */
typedef struct {
    int64_t num_params, elems;
    float *grads;   /* all parameters, one after the other */
    double loss;
} outcome;

static outcome run_outcome(orth_ctx *ctx, const orth_model_config *model, int32_t sequences, int32_t micro, int32_t T,
                           int parts, orth_dtype compute, bool doc_mask)
{
    orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .num_seqs = micro, .num_micro_batches = sequences / micro,
                              .seq_len = T, .parts = parts, .compute = compute, .space = space, .doc_mask = doc_mask,
                              .optimizer = ORTH_OP_adamw};
    engine e = {.model = *model, .shape = shape};
    CHECK_OK(ctx, orth_compiled_build(ctx, model, &shape, &e.compiled));
    CHECK_OK(ctx, orth_executor_create(ctx, &e.ex, &e.compiled.program, orth_kernels_cpu(), NULL, false));
    CHECK_OK(ctx, orth_weights_init(ctx, model, &e.compiled, e.ex, 5));
    CHECK_OK(ctx, orth_setup_rope_table(ctx, e.ex, model));
    int64_t rows = (int64_t)sequences * T;
    int32_t *tokens = malloc((size_t)rows * 4), *targets = malloc((size_t)rows * 4), *doc = malloc((size_t)rows * 4);
    float *weights = malloc((size_t)rows * 4);
    for (int64_t i = 0; i < rows; i++) {
        tokens[i] = (int32_t)test_rand_int(1, (uint64_t)i, 0, model->vocab - 1);
        targets[i] = (int32_t)test_rand_int(2, (uint64_t)i, 0, model->vocab - 1);
        weights[i] = test_rand_int(3, (uint64_t)i, 0, 4) > 0;
        doc[i] = (int32_t)(i % T / 7 * 7);
    }
    engine_fill(&e, sequences, tokens, targets, weights, doc_mask ? doc : NULL);
    engine_set_step(&e, 0, (orth_step_values){.seed = 3, .step = 1, .beta1 = 0.9, .beta2 = 0.95, .eps = 1e-8f,
                                              .loss_scale = 1.0f / (float)rows});
    CHECK_OK(ctx, orth_executor_run(ctx, e.ex));
    outcome o = {.num_params = orth_model_num_params(model), .elems = orth_model_num_elems(model)};
    o.grads = malloc((size_t)o.elems * 4);
    o.loss = engine_loss(&e);
    int64_t at = 0;
    for (int64_t i = 0; i < o.num_params; i++) {
        orth_param p;
        CHECK_OK(ctx, orth_model_param(ctx, model, i, &p));
        CHECK_OK(ctx, orth_executor_read(ctx, e.ex, (orth_ref){ORTH_BIND_GRAD, i, 0, (size_t)orth_param_elems(&p) * 4}, o.grads + at));
        at += orth_param_elems(&p);
    }
    free(tokens);
    free(targets);
    free(doc);
    free(weights);
    engine_close(ctx, &e);
    return o;
}

static orth_model_config small_model(orth_ctx *ctx, int kind)
{
    static const char *const presets[] = {"gpt2-tiny", "llama-tiny", "qwen3-tiny"};
    orth_model_config c;
    CHECK_OK(ctx, orth_model_preset(ctx, presets[kind], &c));
    c.vocab = 133;
    c.dropout = c.embed_dropout = c.attn_dropout = kind == 1 ? 0 : 0.1;
    return c;
}

TEST(micro_batches_and_threads_do_not_change_a_bit)
{
    static const int32_t micros[] = {1, 2, 3, 4, 6, 12}, threads[] = {1, 2, 3, 7};
    for (int k = 0; k < 6; k++) {
        orth_dtype compute = k < 3 ? ORTH_F32 : ORTH_BF16;
        outcome first = {0};
        int parts = k % 2 ? 8 : 1;
        for (int j = 0; j < ORTH_COUNT(micros); j++) {
            orth_ctx *ctx = engine_ctx(threads[j % 4]);
            orth_model_config c = small_model(ctx, k % 3);
            outcome o = run_outcome(ctx, &c, 12, micros[j], 24, parts, compute, k % 2);
            if (j == 0) {
                first = o;
                assert_true(isfinite(o.loss) && o.loss > 0);
            } else {
                if (memcmp(&o.loss, &first.loss, 8) != 0 || memcmp(o.grads, first.grads, (size_t)o.elems * 4) != 0)
                    fail_msg("model %d, %s, micro-batch %d, %d threads: bits differ from micro-batch 1", k % 3,
                             orth_dtype_name(compute), micros[j], threads[j % 4]);
                free(o.grads);
            }
            test_ctx_free(ctx);
        }
        free(first.grads);
    }
}

TEST(batches_that_are_no_power_of_two_do_not_change_a_bit)
{
    static const int32_t totals[] = {1, 3, 5, 7, 9};
    for (int t = 0; t < ORTH_COUNT(totals); t++) {
        orth_ctx *ctx = engine_ctx(2);
        orth_model_config c = small_model(ctx, t % 3);
        outcome a = run_outcome(ctx, &c, totals[t], 1, 17, 4, ORTH_F32, false);
        outcome b = run_outcome(ctx, &c, totals[t], totals[t], 17, 4, ORTH_F32, false);
        assert_memory_equal(a.grads, b.grads, (size_t)a.elems * 4);
        assert_memory_equal(&a.loss, &b.loss, 8);
        free(a.grads);
        free(b.grads);
        test_ctx_free(ctx);
    }
}

TEST(planned_bytes_are_the_counted_bytes)
{
    orth_ctx *ctx = engine_ctx(2);
    for (int k = 0; k < 6; k++) {
        orth_model_config c = small_model(ctx, k % 3);
        orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .num_seqs = 1 + k % 2, .num_micro_batches = 3, .seq_len = 40,
                                  .parts = 4, .compute = k < 3 ? ORTH_F32 : ORTH_BF16, .space = space, .optimizer = ORTH_OP_adamw};
        engine e = {.model = c, .shape = shape};
        CHECK_OK(ctx, orth_compiled_build(ctx, &c, &shape, &e.compiled));
        CHECK_OK(ctx, orth_executor_create(ctx, &e.ex, &e.compiled.program, orth_kernels_cpu(), NULL, false));
        CHECK_OK(ctx, orth_weights_init(ctx, &c, &e.compiled, e.ex, 5));
        engine_set_step(&e, 0, (orth_step_values){.step = 1});
        CHECK_OK(ctx, orth_executor_run(ctx, e.ex));
        size_t sum = 0;
        char what[192];
        if (engine_memory_differs(ctx, &e, what, sizeof what))
            fail_msg("case %d: %s", k, what);
        for (int i = 0; i < ORTH_NUM_CLASSES; i++)
            sum += e.compiled.program.class_bytes[space][i];
        assert_int_equal(sum, e.compiled.program.space_bytes[space]);
        assert_int_equal(sum, orth_program_bytes(&e.compiled.program));
        engine_close(ctx, &e);
    }
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reference_kernels_give_the_gradients_of_pytorch),
        cmocka_unit_test(fast_kernels_give_the_gradients_of_pytorch),
        cmocka_unit_test(logits_are_those_of_transformers),
        cmocka_unit_test(ten_adamw_steps_follow_pytorch),
        cmocka_unit_test(ten_adamw_steps_with_parameter_groups_follow_pytorch),
        cmocka_unit_test(ten_adamw_steps_with_frozen_parameters_follow_pytorch),
        cmocka_unit_test(what_is_frozen_leaves_nothing_in_the_program),
        cmocka_unit_test(adamw_steps_with_loss_scaling_follow_pytorch),
        cmocka_unit_test(adamw_steps_in_fp16_with_a_dynamic_scale_follow_pytorch),
        cmocka_unit_test(loss_scales_move_as_those_of_pytorch),
        cmocka_unit_test(micro_batches_and_threads_do_not_change_a_bit),
        cmocka_unit_test(batches_that_are_no_power_of_two_do_not_change_a_bit),
        cmocka_unit_test(planned_bytes_are_the_counted_bytes),
        cmocka_unit_test(bf16_is_nearer_to_fp32_than_pytorchs_own_bf16),
        cmocka_unit_test(fp16_is_nearer_to_fp32_than_bf16),
    };
    const int in_host = cmocka_run_group_tests_name("host", tests, NULL, NULL);
    space = ORTH_SPACE_DEVICE; /* whose pages are inaccessible outside of instructions */
    return in_host + cmocka_run_group_tests_name("device", tests, NULL, NULL);
}
