/* keep_packed.c -- see keep_packed.h.
 *
 * A *run* is the products that read one weight in one way, from one change of it to the next: the micro-batches of a
 * step, the chunks of the head. The first pass over the program finds them; the second writes it anew with the packing
 * in it. Weights that ZeRO 3 gathers for each use are buffers of their own, so their runs have one product.
 */
#include "program/passes/keep_packed.h"

#include "program/passes/rewrite.h"

typedef struct {
    int32_t first, num;           /* the first product, and how many there are */
    int32_t before;               /* an earlier run on the same bytes; -1 */
    orth_operand packed;          /* buffer -1 until it is made */
} packed_run;

typedef struct {
    orth_rewrite r;
    packed_run *runs;             /* [num] */
    int32_t num;
    int32_t *run_of;              /* [r.num] of a product; -1 */
} keeper;

/* A split has no padding. */
static bool same_weight(const orth_instr *a, const orth_instr *b)
{
    const orth_operand *v = &a->in[ORTH_IN_WEIGHT], *w = &b->in[ORTH_IN_WEIGHT];
    return a->op == b->op && v->byte_offset == w->byte_offset && v->dtype == w->dtype && v->dim[0] == w->dim[0] &&
           v->dim[1] == w->dim[1] && a->attr->replica_rows == b->attr->replica_rows &&
           memcmp(&a->attr->split, &b->attr->split, sizeof a->attr->split) == 0;
}

static bool is_product(const orth_instr *n)
{
    return orth_op_packing(n->op) != ORTH_NUM_OPS;
}

/* What keeping the weight of product n takes; 0: it gains nothing. */
static size_t packed_bytes(const keeper *k, const orth_instr *n)
{
    const orth_tensor in[2] = {orth_operand_tensor(&n->in[0]), orth_operand_tensor(&n->in[ORTH_IN_WEIGHT])};
    return orth_op_packed_bytes(n->op, in, n->attr, k->r.ctx->isa);
}

/* Product i joins its run, or begins one. *newest: of those on the weight as it is now; -1. */
static void note_product(keeper *k, int32_t i, int32_t *newest)
{
    const orth_instr *n = &k->r.old[i];
    int32_t r = *newest;
    while (r >= 0 && !same_weight(&k->r.old[k->runs[r].first], n))
        r = k->runs[r].before;
    if (r < 0) {
        r = k->num++;
        k->runs[r] = (packed_run){.first = i, .before = *newest, .packed = orth_operand_absent};
        *newest = r;
    }
    k->runs[r].num++;
    k->run_of[i] = r;
}

static void find_runs(keeper *k, int32_t buffer)
{
    int32_t newest = -1;
    for (int32_t u = k->r.first_use[buffer]; u < k->r.first_use[buffer + 1]; u++) {
        const orth_use *use = &k->r.uses[u];
        const orth_instr *n = &k->r.old[use->instr];
        if (use->writes)
            newest = -1;
        else if (is_product(n) && n->in[ORTH_IN_WEIGHT].buffer == buffer && packed_bytes(k, n) > 0)
            note_product(k, use->instr, &newest);
    }
}

/* Appends the instruction that packs the weight of n, with the tags of n. */
static void pack(keeper *k, packed_run *run, const orth_instr *n)
{
    const int64_t bytes = (int64_t)packed_bytes(k, n);
    const orth_buffer buffer = {.name = "packed", .bytes = (size_t)bytes, .cls = ORTH_CLASS_WORKSPACE};
    run->packed = orth_operand_of(orth_program_add_buffer(k->r.p, &buffer), ORTH_U8, 1, &bytes);
    orth_instr *added = orth_program_add_instr(k->r.p, orth_op_packing(n->op), n->attr, 1, &n->in[ORTH_IN_WEIGHT], 1,
                                               &run->packed);
    if (added)
        orth_instr_tag_as(added, n);
}

/* Appends product n with one operand more. */
static void append_packed(keeper *k, const orth_instr *n, orth_operand packed)
{
    const int at = ORTH_IN_PACKED;
    orth_operand *in = ORTH_ARENA_ARRAY(k->r.ctx, &k->r.p->arena, orth_operand, at + 1);
    orth_instr *added = orth_program_append(k->r.p, n);
    k->r.p->failed = k->r.p->failed || !in;
    if (!in || !added)
        return;
    for (int i = 0; i < at; i++)
        in[i] = i < n->num_in ? n->in[i] : orth_operand_absent;
    in[at] = packed;
    added->in = in;
    added->num_in = at + 1;
}

static void rewrite(keeper *k)
{
    for (int32_t i = 0; i < k->r.num && !k->r.p->failed; i++) {
        orth_rewrite_reach(&k->r, i);
        const orth_instr *n = &k->r.old[i];
        packed_run *run = k->run_of[i] < 0 ? NULL : &k->runs[k->run_of[i]];
        if (!run || run->num < 2) {
            orth_program_append(k->r.p, n);
            continue;
        }
        if (run->packed.buffer < 0)
            pack(k, run, n);
        append_packed(k, n, run->packed);
    }
    orth_rewrite_reach(&k->r, k->r.num);
}

orth_status orth_keep_packed(orth_ctx *ctx, orth_program *p)
{
    const int32_t num_buffers = p->num_buffers;
    keeper k = {.num = 0};
    ORTH_TRY(orth_rewrite_begin(ctx, p, &k.r));
    k.runs = ORTH_NEW_ARRAY(ctx, packed_run, k.r.num + 1);
    k.run_of = ORTH_NEW_ARRAY(ctx, int32_t, k.r.num + 1);
    if (k.runs && k.run_of) {
        for (int32_t i = 0; i < k.r.num; i++)
            k.run_of[i] = -1;
        for (int32_t b = 0; b < num_buffers; b++)
            find_runs(&k, b);
        rewrite(&k);
    } else {
        p->failed = true;
    }
    orth_mem_free(ctx, k.runs);
    orth_mem_free(ctx, k.run_of);
    return orth_rewrite_end(&k.r);
}
