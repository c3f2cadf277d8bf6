/* test_ops.c -- every row of ops.def: the fast kernel equals the plain one on every instruction set, with 1, 2, 3 and 7
 * threads, with each optional operand absent in turn, in the memory of an operand where the row allows it, within guard
 * words. Calls are drawn from the signatures (op_case.h); the seed is printed, ORTH_OPS_SEED
 * repeats it; ORTH_OPS_DRAWS says how often.
 *
 * All bits are equal, but for attention of bf16 above AVX512, whose products have bits of their own and are near.
 */
#include <time.h>

#include "op_case.h"

typedef struct {
    orth_kernel_fn ref, cpu;
    orth_workspace_fn workspace;
    enum { NONE = 0, IN0 } alias;
} row;

static const row rows[] = {
#define OP(name, family, in, out, vjp, flops, sum, alias, workspace, role) \
    [ORTH_OP_##name] = {orth_ref_##name, orth_cpu_##name, orth_workspace_##workspace, alias},
#include "kernels/ops.def"
#undef OP
};

static uint64_t number(const char *name, uint64_t otherwise)
{
    const char *s = getenv(name);
    return s ? strtoull(s, NULL, 10) : otherwise;
}

static kernel_case kernel_case_of(const op_case *c)
{
    const orth_op_family family = orth_op_family_of(c->sig.op);
    kernel_case k = {.name = orth_op_name(c->sig.op), .ref = rows[c->sig.op].ref, .cpu = rows[c->sig.op].cpu,
                     .workspace = rows[c->sig.op].workspace, .num_in = c->num_in, .num_out = c->num_out, .attr = c->attr};
    k.by_isa = family == ORTH_OPS_PRODUCT;
    k.tolerance = family == ORTH_OPS_ATTENTION && c->compute == ORTH_BF16 ? 0.03f : 0;
    memcpy(k.in, c->in, sizeof k.in);
    memcpy(k.out, c->out, sizeof k.out);
    return k;
}

/* The signature accepts what is drawn from it. */
static void check_fits(const op_case *c)
{
    char why[256];
    if (!orth_signature_fits(&c->sig, &c->attr, c->in, c->num_in, c->out, c->num_out, why, sizeof why))
        fail_msg("seed %llu: %s", (unsigned long long)c->seed, why);
}

/* Optional operands absent: none, each, all. */
static uint32_t absent_of(const orth_signature *s, int variant)
{
    uint32_t all = 0;
    int seen = 0;
    for (int k = 0; k < s->num_in + s->num_out; k++) {
        if (!(k < s->num_in ? s->in[k].optional : s->out[k - s->num_in].optional))
            continue;
        all |= 1u << k;
        if (++seen == variant)
            return 1u << k;
    }
    return variant == seen + 1 ? all : 0;
}

static int num_variants(const orth_signature *s)
{
    int n = 1;
    while (absent_of(s, n))
        n++;
    return n;
}

static int check_op(case_pool *pool, orth_op op, uint64_t seed)
{
    orth_signature s;
    int calls = 0;
    orth_signature_of(op, &s);
    static const orth_dtype types[] = {ORTH_F32, ORTH_BF16, ORTH_F16};
    for (int compute = 0; compute < ORTH_COUNT(types); compute++)
        for (int v = 0; v < num_variants(&s); v++) {
            const orth_dtype type = types[compute];
            op_case c = case_draw(op, seed + (uint64_t)v, type, absent_of(&s, v), false);
            check_fits(&c);
            kernel_case k = kernel_case_of(&c);
            if (c.attr.num_addends > 0 && v % 2 == 0)
                k.alias = c.num_in; /* the last addend */
            case_check(&k, pool);
            calls++;
            if (rows[op].alias == NONE)
                continue;
            c = case_draw(op, seed + (uint64_t)v, type, absent_of(&s, v), false);
            k = kernel_case_of(&c);
            k.alias = 1;
            case_check(&k, pool);
        }
    return calls;
}

TEST(fast_kernels_equal_plain_ones)
{
    case_pool pool = case_pool_make();
    const uint64_t seed = number("ORTH_OPS_SEED", (uint64_t)time(NULL) % 100000), draws = number("ORTH_OPS_DRAWS", 2);
    int ops = 0, calls = 0;
    print_message("ORTH_OPS_SEED=%llu\n", (unsigned long long)seed);
    for (int op = 0; op < ORTH_COUNT(rows); op++) {
        if (orth_op_family_of((orth_op)op) == ORTH_OPS_PACK)
            continue; /* below */
        ops++;
        for (uint64_t draw = 0; draw < draws; draw++)
            calls += check_op(&pool, (orth_op)op, seed + 100 * draw);
    }
    print_message("%d ops, %d calls, each on %d instruction sets with 4 numbers of threads\n", ops, calls,
                  (int)orth_isa_detect() + 1);
    case_pool_free(&pool);
}

/* Packed at each instruction set and read there by its product: no bit changes. */
static void check_packed(case_pool *pool, orth_op op, orth_dtype type, uint64_t seed)
{
    for (orth_isa isa = ORTH_ISA_BASE; isa <= orth_isa_detect(); isa++) {
        op_case c = case_draw(op, seed, type, 0, false);
        kernel_case k = kernel_case_of(&c);
        const int64_t bytes = (int64_t)orth_op_packed_bytes(op, c.in, &c.attr, isa);
        orth_ctx *ctx = pool->ctx[2];
        ctx->isa = isa;
        orth_tensor plain[ORTH_OP_MAX_OUT];
        case_call_cpu(&k, ctx, isa, plain);
        if (bytes > 0) {
            orth_tensor packed = case_tensor(ORTH_U8, bytes, 0), *w = &c.in[ORTH_IN_WEIGHT];
            const orth_op_call call = {w, &packed, 1, 1, &c.attr, NULL};
            CHECK_OK(ctx, rows[orth_op_packing(op)].cpu(ctx, &call));
            guarded_check(packed.data, (size_t)bytes, "packed");
            k.in[ORTH_IN_PACKED] = packed;
            k.num_in = ORTH_IN_PACKED + 1;
            for (int t = 0; t < CASE_THREADS; t++)
                case_run_cpu(&k, pool->ctx[t], isa, plain);
            guarded_free(packed.data);
        }
        case_free(plain, k.num_out);
        case_free(c.in, 3);
        case_free(c.out, c.num_out);
    }
}

TEST(products_of_packed_weights_equal_those_of_plain_ones)
{
    case_pool pool = case_pool_make();
    int pairs = 0;
    for (int op = 0; op < ORTH_COUNT(rows); op++) {
        if (orth_op_packing((orth_op)op) == ORTH_NUM_OPS)
            continue;
        pairs++;
        orth_signature s;
        orth_signature_of((orth_op)op, &s);
        assert_int_equal(orth_signature_input(&s, "w"), ORTH_IN_WEIGHT);
        assert_int_equal(orth_signature_input(&s, "packed"), ORTH_IN_PACKED);
        for (uint64_t seed = 0; seed < 12; seed++)
            check_packed(&pool, (orth_op)op, seed % 3 == 0 ? ORTH_F32 : seed % 3 == 1 ? ORTH_BF16 : ORTH_F16, seed);
    }
    assert_int_equal(pairs, 2);
    case_pool_free(&pool);
}

/* As many pieces of a sequence as a layout may make: what folds them has room for all. (Attention over as many is a case of
 * tests/test_layouts_cp.c: the plain one takes minutes.) */
TEST(kernels_fold_as_many_parts_as_there_may_be)
{
    static const orth_op ops[] = {ORTH_OP_norm_bwd, ORTH_OP_bias_bwd, ORTH_OP_head_norm_bwd};
    case_pool pool = case_pool_make();
    for (int i = 0; i < ORTH_COUNT(ops); i++)
        for (uint64_t seed = 0; seed < 3; seed++) {
            op_case c = case_draw_parts(ops[i], seed, ORTH_F32, 0, false, ORTH_MAX_PARTS);
            check_fits(&c);
            kernel_case k = kernel_case_of(&c);
            case_check(&k, &pool);
        }
    case_pool_free(&pool);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(fast_kernels_equal_plain_ones),
        cmocka_unit_test(products_of_packed_weights_equal_those_of_plain_ones),
        cmocka_unit_test(kernels_fold_as_many_parts_as_there_may_be),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
