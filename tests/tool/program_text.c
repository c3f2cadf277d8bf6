/* program_text.c -- for developers: a hash of the program of every rank of random layouts, so that two builds can be compared
 * with diff. A change that claims to change no program shows the same lines before and after.
 *
 *   program_text [--layouts=N] [--seed=S] [--no-offsets] [--without=FIELD,FIELD...] [--text=SORT:SEED:RANK]
 *
 * SORT is one of the names below: layouts of the random tests in reproducible mode, in fast mode, with one owner, and as
 * asynchronous pipelines; then evaluation and decoding on one rank. --no-offsets leaves the programs unplaced. --without
 * leaves out fields by their names in program.h and op.h; `number`: the numbers of buffers. --text prints one program.
 */
#include <xxhash.h>

#include "layouts.h"
#include "program_text.h"
#include "program/compile.h"
#include "program/passes/place.h"

enum { SORT_PIPEDREAM = LAYOUT_OWNER + 1, SORT_EVAL, SORT_DECODE, NUM_SORTS };
static const char *const sort_names[NUM_SORTS] = {"any", "fast", "owner", "pipedream", "eval", "decode"};

typedef struct {
    uint64_t layouts, seed;
    bool place;
    const char *without;
    int text_sort, text_rank;   /* -1: hashes of all */
    uint64_t text_seed;
} options;

static void must(const orth_ctx *ctx, orth_status status)
{
    if (status == ORTH_OK)
        return;
    fprintf(stderr, "program_text: %s\n", ctx->error.message);
    exit(1);
}

static layout_case draw_case(int sort, uint64_t seed)
{
    if (sort >= SORT_EVAL) {
        layout_case c = layout_base_case(seed, (int)(seed % 2));
        c.compute = seed / 2 % 2 ? ORTH_BF16 : ORTH_F32;
        c.keep_packed = seed / 4 % 2;
        return c;
    }
    layout_case c = layout_random_case(seed, sort == SORT_PIPEDREAM ? LAYOUT_ANY : (layout_sort)sort);
    if (sort != SORT_PIPEDREAM)
        return c;
    c.layout.pipeline = "pipedream";
    c.layout.virtual_stages = 1;
    c.layout.zero = ORTH_MIN(c.layout.zero, 1);
    c.layout.keep_whole = 0;
    c.layout.dp_share = NULL;
    c.layout.num_dp_share = 0;
    c.model.tied = c.model.tied && c.layout.pp == 1;
    return c;
}

/* One line, or the whole text. */
static void show(const options *o, const program_text *t, int sort, uint64_t seed, int rank)
{
    char *text = NULL;
    size_t bytes = 0;
    program_text copy = *t;
    if (o->text_sort >= 0) {
        copy.out = stdout;
        program_text_write(&copy);
        return;
    }
    copy.out = open_memstream(&text, &bytes);
    program_text_write(&copy);
    fclose(copy.out);
    printf("%s:%" PRIu64 ":%d %d instructions %d buffers %016" PRIx64 "\n", sort_names[sort], seed, rank,
           (int)t->p->num_instrs, (int)t->p->num_buffers, (uint64_t)XXH3_64bits(text, bytes));
    free(text);
}

static void show_rank(orth_ctx *ctx, const options *o, int sort, const layout_case *c, const orth_partition *partition, int rank,
                      orth_place_memory *places)
{
    orth_chunk chunks[16];
    orth_model_blocks blocks;
    orth_program p;
    orth_model_shape shape = layout_shape(c);
    const orth_rank_groups groups = orth_partition_groups(partition, rank);
    orth_partition_shape(partition, rank, &shape, chunks);
    if (sort >= SORT_EVAL) {
        shape.mode = sort == SORT_EVAL ? ORTH_MODE_EVAL : ORTH_MODE_DECODE;
        shape.actions = NULL;
        shape.num_actions = 0;
        shape.cache_rows = shape.seq_len;
    }
    must(ctx, orth_model_blocks_build(ctx, &c->model, &shape, &blocks));
    orth_program_init(ctx, &p);
    must(ctx, orth_compile(ctx, &blocks.spec, &p));
    if (o->place)
        must(ctx, orth_place(ctx, &p, 2, ctx->isa, places));
    show(o, &(program_text){NULL, &p, &groups, o->without}, sort, c->seed, rank);
    orth_program_release(&p);
    orth_model_blocks_release(&blocks);
}

static void show_case(orth_ctx *ctx, const options *o, int sort, uint64_t seed)
{
    const layout_case c = draw_case(sort, seed);
    orth_place_memory places = {0};
    orth_partition partition;
    must(ctx, orth_partition_make(ctx, &partition, &c.layout, &c.model));
    for (int r = 0; r < partition.mesh.num_ranks; r++)
        if (o->text_sort < 0 || r == o->text_rank)
            show_rank(ctx, o, sort, &c, &partition, r, &places);
    orth_place_forget(ctx, &places);
    orth_partition_release(ctx, &partition);
}

static int sort_of(const char *name, size_t length)
{
    for (int s = 0; s < NUM_SORTS; s++)
        if (strlen(sort_names[s]) == length && strncmp(name, sort_names[s], length) == 0)
            return s;
    fprintf(stderr, "program_text: no sort of layouts is called '%.*s'\n", (int)length, name);
    exit(2);
}

static options read_options(int argc, char **argv)
{
    static char without[1024];
    options o = {.layouts = 40, .seed = 1, .place = true, .text_sort = -1};
    for (int i = 1; i < argc; i++) {
        const char *value = strchr(argv[i], '=') ? strchr(argv[i], '=') + 1 : "";
        if (strncmp(argv[i], "--layouts=", 10) == 0) {
            o.layouts = strtoull(value, NULL, 10);
        } else if (strncmp(argv[i], "--seed=", 7) == 0) {
            o.seed = strtoull(value, NULL, 10);
        } else if (strcmp(argv[i], "--no-offsets") == 0) {
            o.place = false;
        } else if (strncmp(argv[i], "--without=", 10) == 0) {
            snprintf(without, sizeof without, ",%s,", value);
            o.without = without;
        } else if (strncmp(argv[i], "--text=", 7) == 0 && sscanf(value, "%*[a-z]:%" SCNu64 ":%d", &o.text_seed, &o.text_rank) == 2) {
            o.text_sort = sort_of(value, strcspn(value, ":"));
        } else {
            fprintf(stderr, "program_text: '%s' is no option; the top of tests/tool/program_text.c lists them\n", argv[i]);
            exit(2);
        }
    }
    return o;
}

int main(int argc, char **argv)
{
    const options o = read_options(argc, argv);
    orth_ctx *ctx = test_ctx(1);
    if (o.text_sort >= 0)
        show_case(ctx, &o, o.text_sort, o.text_seed);
    for (int sort = 0; o.text_sort < 0 && sort < NUM_SORTS; sort++)
        for (uint64_t i = 0; i < (sort == LAYOUT_ANY ? o.layouts : (o.layouts + 3) / 4); i++)
            show_case(ctx, &o, sort, o.seed + i);
    test_ctx_free(ctx);
    return 0;
}
