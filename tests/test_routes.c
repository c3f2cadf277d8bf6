/* test_routes.c -- the path of a gradient as explain prints it (program/lower/route.h) is the one that the program takes.
 *
 * The printed lines of every weight are read back: which call over which group, for each sequence, micro-batch or step, gives
 * a number of calls on this gradient. The instructions are counted by their operands, without the table.
 * ORTH_LAYOUTS: how many random layouts; ORTH_SEED: the first. */
#include <time.h>

#include "layouts.h"
#include "program/compile.h"
#include "program/lower/gradtree.h"
#include "program/lower/route.h"

/* Calls on a gradient: of the collectives, and messages to other ranks. */
typedef struct {
    int64_t calls[ORTH_NUM_GROUPS][ORTH_NUM_OPS];
    int64_t weight_gathers;     /* of the weight, by all_gather; -1: any number but 0 */
    bool sliced;                /* every rank adds a part of the exchanged gradient */
    bool empty;                 /* this rank's shard has no elements: a bucket of nothing else is not reduced over replicas */
} tally;

static const orth_op counted[] = {ORTH_OP_all_reduce, ORTH_OP_reduce_scatter, ORTH_OP_all_gather, ORTH_OP_send};

/* ---- what the lines say ---- */

/* How often a line's stage completes something in a step. */
static int64_t times(const orth_compile_spec *s, const char *line)
{
    const bool sequence = strstr(line, "  sequence ") != NULL, micro = strstr(line, "  micro-batch ") != NULL;
    return (sequence ? s->num_seqs : 1) * (sequence || micro ? s->num_micro_batches : 1);
}

/* Aligned branches of the tree that the sequences of this rank fill. */
static int64_t num_nodes(const orth_compile_spec *s, int64_t leaves_per_sequence)
{
    int64_t begin = 0, n = 0;
    for (int32_t r = 0; r < s->mesh.pos[ORTH_GROUP_DP]; r++)
        begin += s->shares[r];
    const int64_t end = (begin + s->shares[s->mesh.pos[ORTH_GROUP_DP]]) * leaves_per_sequence;
    for (int64_t at = begin * leaves_per_sequence; at < end; n++)
        at += orth_gradtree_run(at, end);
    return n;
}

/* The op that a line calls, and over which group; false: none. */
static bool read_call(const char *line, orth_op *op, orth_group *group)
{
    const char *over = strstr(line, " over ");
    char name[32];
    if (!over || !strstr(line, " ranks)") || strstr(line, "of the weight"))
        return false;
    assert_int_equal(sscanf(over, " over %31s", name), 1);
    for (*group = 0; *group < ORTH_NUM_GROUPS && strcmp(name, orth_group_name(*group)) != 0;)
        ++*group;
    assert_true(*group < ORTH_NUM_GROUPS);
    for (size_t i = 0; i < ORTH_COUNT(counted); i++)
        if (strstr(line, orth_op_name(*op = counted[i])))
            return true;
    fail_msg("what does '%s' call?", line);
    return false;
}

static void read_lines(const orth_compile_spec *s, int64_t index, char *text, tally *t)
{
    const bool head = index == s->head.param_index[0], tied = index == s->embed.param_index[0] && head;
    bool second = false;
    char *rest;
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        orth_op op;
        orth_group group;
        second = second || strcmp(line, "used by the head:") == 0;
        if (strstr(line, "of the weight"))
            t->weight_gathers += strstr(line, "  use ") ? -1 : 1;
        if (!read_call(line, &op, &group))
            continue;
        const int64_t parts = head && second == tied && s->mesh.fast ? s->head_leaves : 1;
        const int64_t nodes = strstr(line, "each node") || op == ORTH_OP_send ? num_nodes(s, parts) : 1;
        t->calls[group][op] += times(s, line) * nodes;
        t->sliced = t->sliced || strstr(line, "  slice ");
    }
}

/* ---- what the program does ---- */

/* The buffer of an operand, or that of which it is a copy. */
static const orth_buffer *buffer_of(const orth_program *p, const orth_operand *o)
{
    const int32_t of = p->buffers[o->buffer].copy_of;
    return &p->buffers[of > 0 ? of - 1 : o->buffer];
}

/* The gradient of which parameter an operand is; -1: of none. */
static int64_t gradient_of(const orth_program *p, const orth_operand *o)
{
    const orth_buffer *b = o->buffer < 0 ? NULL : buffer_of(p, o);
    const bool gradient = b && strncmp(b->name, "grad.", 5) == 0 && (b->cls == ORTH_CLASS_GRADS || strcmp(b->name, "grad.part") == 0);
    return gradient ? b->index : -1;
}

static bool is_weight(const orth_program *p, const orth_operand *o, int64_t *index)
{
    const orth_buffer *b = buffer_of(p, o);
    *index = b->index;
    return b->bind == ORTH_BIND_MASTER || b->bind == ORTH_BIND_COPY;
}

static void count_calls(const orth_program *p, tally *of)
{
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        for (size_t k = 0; k < ORTH_COUNT(counted); k++) {
            for (int32_t o = 0; n->op == counted[k] && o < n->num_in; o++) {
                int64_t weight, index = gradient_of(p, &n->in[o]);
                if (index >= 0)
                    of[index].calls[n->attr->group][n->op]++;
                else if (n->op == ORTH_OP_all_gather && is_weight(p, &n->in[o], &weight))
                    of[weight].weight_gathers++;
            }
        }
    }
}

/* ---- both ---- */

static void compare(const char *what, int rank, const orth_param_desc *param, const tally *said, const tally *done, int64_t others)
{
    for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
        for (size_t k = 0; k < ORTH_COUNT(counted); k++) {
            int64_t want = said->calls[g][counted[k]], have = done->calls[g][counted[k]];
            bool same = want == have || (done->empty && g == ORTH_GROUP_REPLICATE && have < want);
            if (counted[k] == ORTH_OP_send && want > 0) /* a message for each node and other rank that has a shard */
                same = said->sliced ? have == want * others : have % want == 0 && have <= want * others;
            if (!same)
                fail_msg("%s, rank %d, %s: %d calls of %s over %s are printed, %d are made", what, rank, param->name, (int)want,
                         orth_op_name(counted[k]), orth_group_name((orth_group)g), (int)have);
        }
    }
    if (said->weight_gathers < 0 ? done->weight_gathers == 0 : said->weight_gathers != done->weight_gathers)
        fail_msg("%s, rank %d, %s: %d gathers of the weight are printed, %d are made", what, rank, param->name,
                 (int)said->weight_gathers, (int)done->weight_gathers);
}

static void check_rank(orth_ctx *ctx, const layout_case *c, const orth_partition *partition, int rank)
{
    orth_chunk chunks[16];
    orth_model_blocks blocks;
    orth_program p;
    orth_model_shape shape = layout_shape(c);
    char what[512];
    layout_describe(c, what, sizeof what);
    orth_partition_shape(partition, rank, &shape, chunks);
    CHECK_OK(ctx, orth_model_blocks_build(ctx, &c->model, &shape, &blocks));
    orth_program_init(ctx, &p);
    CHECK_OK(ctx, orth_compile(ctx, &blocks.spec, &p));
    const int64_t n = blocks.spec.num_params;
    bool *held = calloc((size_t)n, sizeof *held);
    tally *done = calloc((size_t)n, sizeof *done);
    orth_compile_held(&blocks.spec, held);
    count_calls(&p, done);
    for (int64_t i = 0; i < n; i++) {
        tally said = {.weight_gathers = 0};
        orth_text text = {0};
        if (!held[i])
            continue;
        orth_route_print(ctx, &text, &blocks.spec, i);
        char *lines = orth_text_take(ctx, &text);
        read_lines(&blocks.spec, i, lines, &said);
        orth_mem_free(ctx, lines);
        const int32_t m = orth_program_find(&p, ORTH_BIND_M, i); /* none: another rank owns the layer (parallel.shard_by=layer) */
        done[i].empty = m >= 0 && p.buffers[m].bytes == 0;
        if (blocks.spec.async && said.weight_gathers > 0)
            said.weight_gathers *= blocks.spec.num_micro_batches;
        compare(what, rank, &blocks.spec.params[i], &said, &done[i], blocks.spec.mesh.size[ORTH_GROUP_DP] - 1);
    }
    free(held);
    free(done);
    orth_program_release(&p);
    orth_model_blocks_release(&blocks);
}

static void check_case(orth_ctx *ctx, const layout_case *c)
{
    orth_partition partition;
    CHECK_OK(ctx, orth_partition_make(ctx, &partition, &c->layout, &c->model));
    for (int r = 0; r < partition.mesh.num_ranks; r++)
        check_rank(ctx, c, &partition, r);
    orth_partition_release(ctx, &partition);
}

TEST(the_printed_path_of_every_gradient_is_the_one_that_the_program_takes)
{
    const char *count = getenv("ORTH_LAYOUTS");
    const uint64_t seed = test_seed();
    orth_ctx *ctx = test_ctx(1);
    for (uint64_t i = 0; i < (count ? strtoull(count, NULL, 10) : 60); i++) {
        const layout_case c = layout_random_case(seed + i, i % 3 == 2 ? LAYOUT_FAST : i % 12 == 1 ? LAYOUT_OWNER : LAYOUT_ANY);
        check_case(ctx, &c);
    }
    test_ctx_free(ctx);
}

TEST(an_asynchronous_pipeline_takes_the_printed_path_in_every_micro_batch)
{
    orth_ctx *ctx = test_ctx(1);
    for (int zero = 0; zero < 2; zero++) {
        layout_case c = layout_base_case(7, zero);
        c.model.tied = false;
        c.layout.pipeline = "pipedream";
        c.layout.pp = c.layout.dp = c.layout.cp = 2;
        c.layout.zero = zero;
        check_case(ctx, &c);
    }
    test_ctx_free(ctx);
}

/* Worked by hand, as docs/design.md explains it. */
TEST(the_two_paths_of_a_tied_weight_join_before_the_update)
{
    static const char *const want =
        "used by the embedding:\n"
        "      1  sequence      whole   embed_bwd, added up in the tree over 1 sequence, transient\n"
        "      2  sequence      whole   all_reduce over cp (2 ranks), beside what is computed next\n"
        "      3  micro-batch   whole   tree_acc, added up in the tree over 1 sequence, transient\n"
        "      4  micro-batch   shard   reduce_scatter over dp (2 ranks), in a bucket, beside what is computed next\n"
        "      5  step          shard   tree_acc, added up in the tree over 4 micro-batches, kept\n"
        "      6  update        shard   tree_acc, adds the sum of the head\n"
        "      7  update        shard   grad_square, clip_scale, adamw\n"
        "      8  update        whole   all_gather of the weight over dp (2 ranks), in a bucket\n"
        "used by the head:\n"
        "      1  sequence      whole   linear_dw, added up in the tree over 4 parts of each of 1 sequence, transient\n"
        "      2  sequence      whole   all_reduce over cp (2 ranks), beside what is computed next\n"
        "      3  micro-batch   whole   tree_acc, added up in the tree over 1 sequence, transient\n"
        "      4  micro-batch   shard   reduce_scatter over dp (2 ranks), in a bucket, beside what is computed next\n"
        "      5  step          shard   tree_acc, added up in the tree over 4 micro-batches, kept\n"
        "      6  update        shard   added to the sum of the embedding\n";
    orth_ctx *ctx = test_ctx(1);
    layout_case c = layout_base_case(3, 0);
    orth_partition partition;
    orth_chunk chunks[16];
    orth_model_blocks blocks;
    orth_text text = {0};
    c.model.tied = true;
    c.layout.dp = c.layout.cp = c.layout.zero = 2;
    orth_model_shape shape = layout_shape(&c);
    CHECK_OK(ctx, orth_partition_make(ctx, &partition, &c.layout, &c.model));
    orth_partition_shape(&partition, 0, &shape, chunks);
    CHECK_OK(ctx, orth_model_blocks_build(ctx, &c.model, &shape, &blocks));
    orth_route_print(ctx, &text, &blocks.spec, blocks.spec.embed.param_index[0]);
    char *got = orth_text_take(ctx, &text);
    assert_string_equal(got, want);
    orth_mem_free(ctx, got);
    orth_model_blocks_release(&blocks);
    orth_partition_release(ctx, &partition);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_printed_path_of_every_gradient_is_the_one_that_the_program_takes),
        cmocka_unit_test(an_asynchronous_pipeline_takes_the_printed_path_in_every_micro_batch),
        cmocka_unit_test(the_two_paths_of_a_tied_weight_join_before_the_update),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
