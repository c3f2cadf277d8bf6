/* test_offload_program.c -- the program of a run that offloads: its copies go beside computing, and one from which a copy or an event is
 * missing, or that goes elsewhere, is refused. Whole runs: test_offload.c. */
#include "plan/programs.h"
#include "program/check/check.h"
#include "program/check/check_flow.h"
#include "program/compile.h"
#include "test.h"

/* ---- pieces of the optimizer's state ---- */

static void compile_types(orth_ctx *ctx, int layers, orth_recompute_kind recompute, orth_offload offload, orth_state_types types, orth_compiled *out)
{
    orth_model_config m;
    CHECK_OK(ctx, orth_model_preset(ctx, "gpt2-tiny", &m));
    m.vocab = 131;
    m.layers = layers > 0 ? layers : m.layers;
    const orth_model_shape shape = {.mode = ORTH_MODE_TRAIN, .seq_len = 16, .num_seqs = 1, .num_micro_batches = 2, .parts = 4,
                                    .compute = ORTH_BF16, .space = ORTH_SPACE_DEVICE, .offload = offload, .optimizer = ORTH_OP_adamw,
                                    .comm = {.prefetch = 1}, .recompute = {.kind = recompute, .layers = 1}, .types = types};
    CHECK_OK(ctx, orth_compiled_build(ctx, &m, &shape, out));
}

static void compile_with(orth_ctx *ctx, int layers, orth_recompute_kind recompute, orth_offload offload, orth_compiled *out)
{
    compile_types(ctx, layers, recompute, offload, (orth_state_types){0}, out);
}

static void compile(orth_ctx *ctx, orth_tier tier, orth_compiled *out)
{
    compile_with(ctx, 0, ORTH_RECOMPUTE_NONE, (orth_offload){.optimizer = tier, .sub_group = 2000}, out);
}

static orth_status check_all(orth_ctx *ctx, const orth_program *p)
{
    orth_rank_groups alone;
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        alone.size[g] = 1, alone.pos[g] = 0;
    ORTH_TRY(orth_check(ctx, p));
    return orth_check_flow(ctx, p, 0, &alone);
}

/* The n-th instruction of the kind: an update, or a copy that brings something near or takes it back. */
typedef enum { UPDATE, NEAR, BACK } part;
static orth_instr *find(orth_program *p, part kind, int n)
{
    for (int32_t i = 0; i < p->num_instrs; i++) {
        orth_instr *x = &p->instrs[i];
        const bool copy = x->op == ORTH_OP_copy, near = copy && p->buffers[x->out[0].buffer].staging;
        const bool is = kind == UPDATE ? x->op == ORTH_OP_adamw : kind == NEAR ? near : copy && p->buffers[x->in[0].buffer].staging;
        if (is && n-- == 0)
            return x;
    }
    fail_msg("there is no such instruction");
    return NULL;
}

TEST(pieces_that_are_mixed_up_are_refused)
{
    orth_ctx *ctx = test_ctx(1);
    for (int tier = ORTH_TIER_HOST; tier <= ORTH_TIER_FILE; tier++) {
        orth_compiled c;
        compile(ctx, (orth_tier)tier, &c);
        orth_program *p = &c.program;
        CHECK_OK(ctx, check_all(ctx, p));
        orth_instr *u = find(p, UPDATE, 1), before = *u; /* the second piece of the first weight */
        assert_true(u->attr->num_pieces > 2 && u->attr->piece == 1);
        orth_program_own_attr(p, u)->piece = 2;
        CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "updated out of turn", check_all(ctx, p));
        *u = before;
        orth_operand *from = &find(p, NEAR, 0)->in[0], was = *from; /* another piece of the gradient */
        from->byte_offset += 2000 * sizeof(float);
        CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "for an update of", check_all(ctx, p));
        *from = was;
        orth_operand *to = &find(p, BACK, 0)->out[0];
        was = *to;
        to->byte_offset += 2000 * orth_dtype_bytes(to->dtype);
        CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "for an update of", check_all(ctx, p));
        *to = was;
        CHECK_OK(ctx, check_all(ctx, p));
        orth_compiled_release(&c);
    }
    test_ctx_free(ctx);
}

/* The state of about the share that was asked for is the host's, spread over the parameters; the host's updates are in its queue, all begun before
 * the device's, which wait for none of them. */
TEST(the_device_updates_what_stays_while_the_host_updates_the_rest)
{
    orth_ctx *ctx = test_ctx(1);
    for (int quarter = 0; quarter <= 4; quarter++) {
        orth_compiled c;
        compile_with(ctx, 8, ORTH_RECOMPUTE_NONE, (orth_offload){.optimizer = ORTH_TIER_HOST, .stays = 0.25 * quarter, .sub_group = 2000}, &c);
        orth_program *p = &c.program;
        CHECK_OK(ctx, check_all(ctx, p));
        int64_t updated[2] = {0};
        int32_t last_of_host = -1, first_of_device = p->num_instrs;
        for (int32_t i = 0; i < p->num_instrs; i++) {
            orth_instr *n = &p->instrs[i];
            if (n->op != ORTH_OP_adamw)
                continue;
            const bool host = p->queues[n->queue].kind == ORTH_QUEUE_HOST;
            assert_true(host || n->queue == 0);
            updated[host] += orth_instr_updates(p, n).count;
            if (host)
                last_of_host = i;
            else
                first_of_device = ORTH_MIN(first_of_device, i);
            for (int k = 0; !host && k < n->num_waits; k++)
                assert_true(p->queues[n->waits[k].queue].kind != ORTH_QUEUE_HOST);
            if (host && n->num_waits > 0) {
                const int32_t num = n->num_waits;
                n->num_waits = 0;
                CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "no event says that", check_all(ctx, p));
                n->num_waits = num;
            }
        }
        assert_true(last_of_host < first_of_device);
        const double stays = (double)updated[0] / (double)(updated[0] + updated[1]);
        assert_true(stays > 0.25 * quarter - 0.1 && stays < 0.25 * quarter + 0.1);
        assert_true((quarter > 0 || updated[0] == 0) && (quarter < 4 || updated[1] == 0));
        orth_compiled_release(&c);
    }
    test_ctx_free(ctx);
}

TEST(what_is_not_in_its_memory_is_not_for_the_host)
{
    orth_ctx *ctx = test_ctx(1);
    orth_compiled c;
    compile(ctx, ORTH_TIER_HOST, &c);
    orth_program *p = &c.program;
    orth_instr *update = find(p, UPDATE, 0);
    const int32_t host = update->queue;
    int32_t i = 0;
    while (orth_op_family_of(p->instrs[i].op) != ORTH_OPS_PRODUCT)
        i++;
    p->instrs[i].queue = host;
    CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "is nothing that the host computes in its own memory", check_all(ctx, p));
    p->instrs[i].queue = 0;
    CHECK_OK(ctx, check_all(ctx, p));
    orth_compiled_release(&c);
    test_ctx_free(ctx);
}

static void compile_8bit(orth_ctx *ctx, int layers, orth_tier tier, int64_t sub_group, orth_compiled *out)
{
    compile_types(ctx, layers, ORTH_RECOMPUTE_NONE, (orth_offload){.optimizer = tier, .sub_group = sub_group},
                  (orth_state_types){.moments = ORTH_U8}, out);
}

/* A row has all of its scales in one piece, and a piece that fewer elements than a row are to have is one row. */
TEST(pieces_of_moments_in_8_bits_are_whole_rows_with_their_scales)
{
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < 4; k++) {
        const orth_tier tier = k % 2 ? ORTH_TIER_FILE : ORTH_TIER_HOST;
        const int64_t elems = k / 2 ? 2000 : 20;
        orth_compiled c;
        compile_8bit(ctx, 0, tier, elems, &c);
        orth_program *p = &c.program;
        CHECK_OK(ctx, check_all(ctx, p));
        int cut = 0;
        for (int32_t i = 0; i < p->num_instrs; i++) {
            orth_instr *n = &p->instrs[i];
            if (n->op != ORTH_OP_adamw_8bit)
                continue;
            const int64_t rows = n->out[0].dim[0], cols = n->out[0].dim[1], whole = c.blocks.spec.params[n->attr->place.param].dim[0];
            assert_int_equal(cols, c.blocks.spec.params[n->attr->place.param].dim[1]);
            assert_true(rows == whole || rows <= ORTH_MAX(elems / cols, 1));
            assert_int_equal(n->out[4].dim[0], rows);
            cut += n->attr->num_pieces > 1;
            if (cut != 1 || n->attr->piece > 0)
                continue;
            n->out[4].byte_offset += (size_t)n->out[4].dim[1] * sizeof(float); /* the scales of the next row */
            if (tier == ORTH_TIER_HOST)
                CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "for an update of", check_all(ctx, p));
            n->out[4].byte_offset -= (size_t)n->out[4].dim[1] * sizeof(float);
        }
        assert_true(cut > 10);
        for (int32_t i = 0; i < p->num_instrs && tier == ORTH_TIER_FILE; i++) {
            orth_instr *n = &p->instrs[i];
            if (n->op != ORTH_OP_copy || p->buffers[n->in[0].buffer].bind != ORTH_BIND_SCALES)
                continue;
            n->in[0].byte_offset += (size_t)n->in[0].dim[1] * sizeof(float); /* other scales come */
            CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "for an update of", check_all(ctx, p));
            n->in[0].byte_offset -= (size_t)n->in[0].dim[1] * sizeof(float);
            break;
        }
        CHECK_OK(ctx, check_all(ctx, p));
        orth_compiled_release(&c);
    }
    test_ctx_free(ctx);
}

/* Rows of 64 elements leave almost half of each piece unused here: pieces of 126 elements, which would be few enough, are one row. */
TEST(a_step_has_a_bounded_number_of_pieces_whatever_their_size_is_to_be)
{
    orth_ctx *ctx = test_ctx(1);
    orth_compiled c;
    compile_8bit(ctx, 20, ORTH_TIER_HOST, 1, &c);
    int64_t pieces = 0;
    for (int32_t i = 0; i < c.program.num_instrs; i++)
        pieces += orth_op_family_of(c.program.instrs[i].op) == ORTH_OPS_OPTIMIZER;
    assert_in_range(pieces, ORTH_MAX_PIECES / 2, ORTH_MAX_PIECES + c.blocks.spec.num_params);
    orth_compiled_release(&c);
    test_ctx_free(ctx);
}

/* The gradient of piece k + 1 is on its way, in a queue of its own, when piece k is updated. */
TEST(the_next_piece_comes_beside_the_update_of_this_one)
{
    orth_ctx *ctx = test_ctx(1);
    for (int tier = ORTH_TIER_HOST; tier <= ORTH_TIER_FILE; tier++) {
        orth_compiled c;
        compile(ctx, (orth_tier)tier, &c);
        const orth_program *p = &c.program;
        int updates = 0, gradients = 0, total = 0;
        for (int32_t i = 0; i < p->num_instrs; i++)
            total += p->instrs[i].op == ORTH_OP_adamw;
        for (int32_t i = 0; i < p->num_instrs; i++) {
            const orth_instr *n = &p->instrs[i];
            updates += n->op == ORTH_OP_adamw;
            if (n->op == ORTH_OP_adamw)
                assert_int_equal(gradients, ORTH_MIN(updates + 1, total));
            if (n->op == ORTH_OP_copy && p->buffers[n->in[0].buffer].bind == ORTH_BIND_GRAD) {
                assert_int_equal(p->queues[n->queue].kind, ORTH_QUEUE_COPY_OUT);
                gradients++;
            }
        }
        assert_true(total > 10);
        orth_compiled_release(&c);
    }
    test_ctx_free(ctx);
}

/* ---- activations in the program ---- */

static void compile_activations(orth_ctx *ctx, int layers, orth_recompute_kind recompute, orth_tier tier, orth_compiled *out)
{
    compile_with(ctx, layers, recompute, (orth_offload){.activations = tier, .min_bytes = 256}, out);
}

static size_t peak_of(orth_ctx *ctx, int layers, orth_recompute_kind recompute, orth_tier tier)
{
    orth_compiled c;
    compile_activations(ctx, layers, recompute, tier, &c);
    const size_t bytes = c.program.transient_bytes[ORTH_SPACE_DEVICE];
    orth_compiled_release(&c);
    return bytes;
}

/* However many layers: what stays are statistics of norms, which are small. */
TEST(the_device_has_the_activations_of_a_few_layers_at_a_time)
{
    static const orth_recompute_kind kinds[] = {ORTH_RECOMPUTE_NONE, ORTH_RECOMPUTE_SELECTIVE, ORTH_RECOMPUTE_FULL};
    orth_ctx *ctx = test_ctx(1);
    for (int k = 0; k < ORTH_COUNT(kinds); k++)
        for (int tier = ORTH_TIER_HOST; tier <= ORTH_TIER_FILE; tier++) {
            const size_t plain = peak_of(ctx, 24, kinds[k], ORTH_TIER_NONE) - peak_of(ctx, 12, kinds[k], ORTH_TIER_NONE);
            const size_t few = peak_of(ctx, 12, kinds[k], (orth_tier)tier), many = peak_of(ctx, 24, kinds[k], (orth_tier)tier);
            if (many > few + plain / 20)
                fail_msg("policy %d, tier %d: 12 layers need %zu bytes, 24 layers %zu; kept on the device 12 layers more need %zu more",
                         (int)kinds[k], tier, few, many, plain);
        }
    test_ctx_free(ctx);
}

/* Copies out stand before what computes; a copy in stands before its reader by no more than two layers' work, and never less than one
 * product. */
TEST(a_copy_travels_while_the_next_layer_computes)
{
    orth_ctx *ctx = test_ctx(1);
    orth_compiled c;
    compile_activations(ctx, 12, ORTH_RECOMPUTE_NONE, ORTH_TIER_HOST, &c);
    const orth_program *p = &c.program;
    int in = 0, out = 0;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if (n->op != ORTH_OP_copy || n->queue == 0)
            continue;
        const bool leaves = p->queues[n->queue].kind == ORTH_QUEUE_COPY_OUT;
        assert_true(leaves || p->queues[n->queue].kind == ORTH_QUEUE_COPY_IN);
        int products = 0, copies = 0;
        for (int32_t k = i + 1; k < n->until; k++) {
            products += orth_op_family_of(p->instrs[k].op) == ORTH_OPS_PRODUCT;
            copies += p->instrs[k].op == ORTH_OP_copy && p->queues[p->instrs[k].queue].kind == p->queues[n->queue].kind;
        }
        assert_in_range(products, 1, 12); /* a layer has four forward, eight backward */
        assert_in_range(copies, 0, 24);
        *(leaves ? &out : &in) += 1;
    }
    assert_true(out > 12 * 5);
    assert_int_equal(in, out);
    orth_compiled_release(&c);
    test_ctx_free(ctx);
}

/* Every event that is left is the only path between two instructions that touch the same bytes. */
TEST(without_an_event_of_a_copy_the_program_is_refused)
{
    orth_ctx *ctx = test_ctx(1);
    for (int tier = ORTH_TIER_HOST; tier <= ORTH_TIER_FILE; tier++) {
        orth_compiled c;
        int dropped = 0;
        compile_activations(ctx, 6, ORTH_RECOMPUTE_NONE, (orth_tier)tier, &c);
        orth_program *p = &c.program;
        CHECK_OK(ctx, check_all(ctx, p));
        for (int32_t i = 0; i < p->num_instrs; i++) {
            orth_instr *n = &p->instrs[i], was = *n;
            for (int k = 0; k < was.num_waits; k++) {
                orth_wait fewer[ORTH_MAX_QUEUES];
                n->num_waits = 0;
                n->waits = fewer;
                for (int w = 0; w < was.num_waits; w++)
                    if (w != k)
                        fewer[n->num_waits++] = was.waits[w];
                CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "no event says that", orth_check(ctx, p));
                *n = was;
                dropped++;
            }
        }
        assert_true(dropped > 100);
        orth_compiled_release(&c);
    }
    test_ctx_free(ctx);
}

/* Before it is placed, so that nothing else of it changes. */
TEST(without_a_copy_or_with_another_value_the_program_is_refused)
{
    orth_ctx *ctx = test_ctx(1);
    for (int tier = ORTH_TIER_HOST; tier <= ORTH_TIER_FILE; tier++) {
        orth_compiled c;
        compile_activations(ctx, 6, ORTH_RECOMPUTE_NONE, (orth_tier)tier, &c);
        orth_program p;
        orth_program_init(ctx, &p);
        CHECK_OK(ctx, orth_compile(ctx, &c.blocks.spec, &p));
        CHECK_OK(ctx, check_all(ctx, &p));
        int32_t before = -1, dropped = 0;
        for (int32_t i = 0; i < p.num_instrs; i++) {
            orth_instr n = p.instrs[i], *other = before >= 0 ? &p.instrs[before] : NULL;
            if (n.op != ORTH_OP_copy)
                continue;
            memmove(&p.instrs[i], &p.instrs[i + 1], (size_t)(--p.num_instrs - i) * sizeof n);
            CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "read before it is written", check_all(ctx, &p));
            memmove(&p.instrs[i + 1], &p.instrs[i], (size_t)(p.num_instrs++ - i) * sizeof n);
            p.instrs[i] = n;
            if (other && orth_operand_bytes(&other->in[0]) == orth_operand_bytes(&n.in[0]) && p.buffers[other->in[0].buffer].space == p.buffers[n.in[0].buffer].space) {
                p.instrs[i].in = other->in;
                CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "the value of another buffer", check_all(ctx, &p));
                p.instrs[i].in = n.in;
            }
            before = i;
            dropped++;
        }
        assert_true(dropped > 100);
        CHECK_OK(ctx, check_all(ctx, &p));
        orth_program_release(&p);
        orth_compiled_release(&c);
    }
    test_ctx_free(ctx);
}

/* ---- weights and gradients in the program ---- */

static orth_offload all_in(orth_tier tier)
{
    return (orth_offload){.optimizer = tier, .params = tier, .gradients = tier, .sub_group = 2000};
}

/* The program is as if the instruction had never been. */
static void cut(orth_program *p, int32_t skip)
{
    memmove(p->instrs + skip, p->instrs + skip + 1, (size_t)(p->num_instrs - skip - 1) * sizeof *p->instrs);
    p->num_instrs--;
}

/* Each copy between spaces that carries weights or gradients is left out, or goes elsewhere, once. Programs are checked as they are before
 * they are placed: their events would show it, too. */
TEST(a_copy_that_is_missing_or_goes_elsewhere_is_refused)
{
    orth_ctx *ctx = test_ctx(1);
    int damaged = 0;
    for (int tier = ORTH_TIER_HOST; tier <= ORTH_TIER_FILE; tier++) {
        orth_compiled c;
        compile_with(ctx, 0, ORTH_RECOMPUTE_NONE, all_in((orth_tier)tier), &c);
        orth_program *p = &c.program;
        CHECK_OK(ctx, check_all(ctx, p));
        p->placed = false;
        orth_instr *all = calloc((size_t)p->num_instrs, sizeof *all);
        const int32_t num = p->num_instrs;
        memcpy(all, p->instrs, (size_t)num * sizeof *all);
        for (int32_t i = 0; i < num; i++) {
            const bool carries = all[i].op == ORTH_OP_copy && (p->buffers[all[i].in[0].buffer].copy_of > 0 || p->buffers[all[i].out[0].buffer].copy_of > 0);
            if (!carries)
                continue;
            cut(p, i);
            if (check_all(ctx, p) == ORTH_OK)
                fail_msg("instruction %d, a copy of '%s', is missing, and nobody says so", (int)i, p->buffers[all[i].in[0].buffer].name);
            orth_ctx_clear_error(ctx);
            p->num_instrs = num;
            memcpy(p->instrs, all, (size_t)num * sizeof *all);
            const int32_t to = all[i].out[0].buffer;
            p->instrs[i].out[0].byte_offset += 4;
            if (check_all(ctx, p) == ORTH_OK)
                fail_msg("instruction %d, a copy to '%s', goes elsewhere, and nobody says so", (int)i, p->buffers[to].name);
            orth_ctx_clear_error(ctx);
            p->instrs[i].out[0].byte_offset -= 4;
            damaged++;
        }
        CHECK_OK(ctx, check_all(ctx, p));
        free(all);
        orth_compiled_release(&c);
    }
    assert_true(damaged > 300);
    test_ctx_free(ctx);
}

/* An event less, and two instructions are not ordered. */
TEST(an_event_of_a_copy_that_is_missing_is_refused)
{
    orth_ctx *ctx = test_ctx(1);
    orth_compiled c;
    compile_with(ctx, 0, ORTH_RECOMPUTE_NONE, all_in(ORTH_TIER_FILE), &c);
    orth_program *p = &c.program;
    int damaged = 0;
    for (int32_t i = 0; i < p->num_instrs; i++)
        for (int32_t k = 0; k < p->instrs[i].num_waits; k++) {
            orth_instr *n = &p->instrs[i];
            const orth_instr was = *n;
            orth_wait *fewer = calloc((size_t)n->num_waits, sizeof *fewer);
            for (int32_t j = 0, at = 0; j < n->num_waits; j++)
                if (j != k)
                    fewer[at++] = n->waits[j];
            n->waits = fewer;
            n->num_waits--;
            CHECK_FAILS(ctx, ORTH_ERR_INTERNAL, "", check_all(ctx, p));
            *n = was;
            free(fewer);
            damaged++;
        }
    assert_true(damaged > 100);
    CHECK_OK(ctx, check_all(ctx, p));
    orth_compiled_release(&c);
    test_ctx_free(ctx);
}

/* The copies of block k + 1 are before the first instruction of block k. */
TEST(weights_of_the_next_block_come_while_this_one_computes)
{
    orth_ctx *ctx = test_ctx(1);
    orth_compiled c;
    compile_with(ctx, 0, ORTH_RECOMPUTE_NONE, all_in(ORTH_TIER_HOST), &c);
    const orth_program *p = &c.program;
    int found = 0, come = -1;
    for (int32_t i = 0; i < p->num_instrs && p->instrs[i].phase == ORTH_PHASE_FORWARD && p->instrs[i].micro_batch == 0; i++) {
        const orth_instr *n = &p->instrs[i];
        if (n->op == ORTH_OP_copy) {
            assert_int_equal(p->queues[n->queue].kind, ORTH_QUEUE_COPY_IN);
            come = ORTH_MAX(come, n->layer);
        } else if (n->layer >= 0 && n->layer + 1 < c.blocks.spec.num_layers) {
            assert_true(come > n->layer);
            found++;
        }
    }
    assert_true(found > 0);
    orth_compiled_release(&c);
    test_ctx_free(ctx);
}

/* Between the copy that brings a partial sum and the product that adds to it another product computes; at most one sum waits so. */
TEST(the_next_partial_sum_comes_while_the_product_before_it_computes)
{
    orth_ctx *ctx = test_ctx(1);
    orth_compiled c;
    orth_offload offload = all_in(ORTH_TIER_HOST);
    offload.params = ORTH_TIER_NONE;
    compile_with(ctx, 0, ORTH_RECOMPUTE_NONE, offload, &c);
    const orth_program *p = &c.program;
    int beside = 0, alone = 0;
    for (int32_t i = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if (n->op != ORTH_OP_copy || n->phase != ORTH_PHASE_BACKWARD || n->micro_batch != 1 || p->buffers[n->in[0].buffer].space == p->space)
            continue;
        bool reads = false, computes = false;
        for (int32_t k = i + 1; !reads; k++) {
            for (int j = 0; j < p->instrs[k].num_in; j++)
                reads = reads || p->instrs[k].in[j].buffer == n->out[0].buffer;
            computes = computes || (!reads && orth_op_family_of(p->instrs[k].op) == ORTH_OPS_PRODUCT);
        }
        *(computes ? &beside : &alone) += 1;
    }
    if (beside <= 10 || alone >= beside / 2)
        fail_msg("%d partial sums come beside a product, %d do not", beside, alone);
    orth_compiled_release(&c);
    test_ctx_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pieces_that_are_mixed_up_are_refused),
        cmocka_unit_test(the_device_updates_what_stays_while_the_host_updates_the_rest),
        cmocka_unit_test(what_is_not_in_its_memory_is_not_for_the_host),
        cmocka_unit_test(pieces_of_moments_in_8_bits_are_whole_rows_with_their_scales),
        cmocka_unit_test(a_step_has_a_bounded_number_of_pieces_whatever_their_size_is_to_be),
        cmocka_unit_test(the_next_piece_comes_beside_the_update_of_this_one),
        cmocka_unit_test(the_device_has_the_activations_of_a_few_layers_at_a_time),
        cmocka_unit_test(a_copy_travels_while_the_next_layer_computes),
        cmocka_unit_test(without_an_event_of_a_copy_the_program_is_refused),
        cmocka_unit_test(without_a_copy_or_with_another_value_the_program_is_refused),
        cmocka_unit_test(a_copy_that_is_missing_or_goes_elsewhere_is_refused),
        cmocka_unit_test(an_event_of_a_copy_that_is_missing_is_refused),
        cmocka_unit_test(weights_of_the_next_block_come_while_this_one_computes),
        cmocka_unit_test(the_next_partial_sum_comes_while_the_product_before_it_computes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
