/* op.c -- the tables made from ops.def. */
#include "kernels/op.h"

#include <stddef.h>
#include <string.h>

static const struct {
    const char *name;
    orth_op_family family;
    orth_op_role role;
} rows[ORTH_NUM_OPS] = {
#define OP(name, family, in, out, vjp, flops, sum, alias, workspace, role) [ORTH_OP_##name] = {#name, ORTH_OPS_##family, ORTH_ROLE_##role},
#define COMM(name, in, out, vjp, lower, waits, form, kind, count) [ORTH_OP_##name] = {#name, ORTH_OPS_##form, ORTH_ROLE_NONE},
#define GRAPH(name, in, out, vjp, lower, waits, role, ...) [ORTH_OP_##name] = {#name, ORTH_OPS_GRAPH, ORTH_ROLE_##role},
#include "kernels/ops.def"
#undef GRAPH
#undef COMM
#undef OP
};

static const orth_kernel_fn ref_kernels[ORTH_NUM_OPS] = {
#define OP(name, ...) [ORTH_OP_##name] = orth_ref_##name,
#include "kernels/ops.def"
#undef OP
};

static const orth_kernel_fn cpu_kernels[ORTH_NUM_OPS] = {
#define OP(name, ...) [ORTH_OP_##name] = orth_cpu_##name,
#include "kernels/ops.def"
#undef OP
};

static const orth_workspace_fn workspaces[ORTH_NUM_OPS] = {
#define OP(name, family, in, out, vjp, flops, sum, alias, workspace, role) [ORTH_OP_##name] = orth_workspace_##workspace,
#include "kernels/ops.def"
#undef OP
};

static const char *const group_names[ORTH_NUM_GROUPS] = {
    "tp", "kv", "cp_heads", "cp_tokens", "cp", "dp", "shard", "replicate", "pp", "pp_back", "embed", "norm"};

const char *orth_group_name(orth_group g)
{
    return group_names[g];
}

const char *orth_op_name(orth_op op)
{
    return rows[op].name;
}

orth_op_family orth_op_family_of(orth_op op)
{
    return rows[op].family;
}

orth_op_role orth_op_role_of(orth_op op)
{
    return rows[op].role;
}

/* Groups of attributes, in their order in orth_attr: each begins with a field of this name. */
#define ATTR_GROUPS(GROUP)      \
    GROUP(PRODUCT, act)         \
    GROUP(NORM, norm)           \
    GROUP(HEADS, heads)         \
    GROUP(KEYS, key_begin)      \
    GROUP(DROPOUT, dropout)     \
    GROUP(VOCAB, first_row)     \
    GROUP(SUMS, block_rows)     \
    GROUP(OPTIMIZER, lr_factor) \
    GROUP(QUANT, float8)        \
    GROUP(CALL, group)

enum {
#define GROUP(name, first) AT_##name,
    ATTR_GROUPS(GROUP) NUM_ATTR_GROUPS
#undef GROUP
};

enum {
#define GROUP(name, first) name = 1 << AT_##name,
    ATTR_GROUPS(GROUP) NONE = 0
#undef GROUP
};

/* CALL of an op without calls: the ranks whose sum a tree_acc completes, or among which the keys of attention are. */
static const uint16_t attrs_of[] = {
    [ORTH_OPS_PRODUCT] = PRODUCT,
    [ORTH_OPS_PACK] = NONE,
    [ORTH_OPS_EMBED] = VOCAB,
    [ORTH_OPS_NORM] = NORM | HEADS,
    [ORTH_OPS_ATTENTION] = HEADS | KEYS | DROPOUT | CALL,
    [ORTH_OPS_ROWS] = NONE,
    [ORTH_OPS_DROPOUT] = DROPOUT,
    [ORTH_OPS_LOSS] = VOCAB,
    [ORTH_OPS_QUANT] = QUANT,
    [ORTH_OPS_SUMS] = SUMS | CALL,
    [ORTH_OPS_OPTIMIZER] = OPTIMIZER,
    [ORTH_OPS_MOVE] = NONE,
    [ORTH_OPS_COLLECTIVE] = CALL | KEYS,
    [ORTH_OPS_MESSAGE] = CALL | KEYS,
    [ORTH_OPS_GRAPH] = HEADS | KEYS | DROPOUT | CALL,
};
_Static_assert(ORTH_COUNT(attrs_of) == ORTH_OPS_GRAPH + 1, "each family says which attributes it has");

orth_attr orth_attr_for(orth_op op, const orth_attr *attr)
{
    static const size_t first[NUM_ATTR_GROUPS + 1] = {
#define GROUP(name, first) [AT_##name] = offsetof(orth_attr, first),
        ATTR_GROUPS(GROUP)
#undef GROUP
        sizeof(orth_attr)};
    orth_attr out = *attr;
    for (int g = 0; g < NUM_ATTR_GROUPS; g++)
        if (!(attrs_of[rows[op].family] >> g & 1))
            memset((char *)&out + first[g], 0, first[g + 1] - first[g]);
    return out;
}

orth_op orth_op_packing(orth_op op)
{
    static const struct {
        orth_op product, packs;
    } pairs[] = {
#define OP(...)
#define PACK(product, packs) {ORTH_OP_##product, ORTH_OP_##packs},
#include "kernels/ops.def"
#undef PACK
#undef OP
    };
    for (int i = 0; i < ORTH_COUNT(pairs); i++)
        if (pairs[i].product == op)
            return pairs[i].packs;
    return ORTH_NUM_OPS;
}

const orth_kernel_fn *orth_kernels_ref(void)
{
    return ref_kernels;
}

const orth_kernel_fn *orth_kernels_cpu(void)
{
    return cpu_kernels;
}

size_t orth_workspace_none(const orth_op_call *call, int num_threads, orth_isa isa)
{
    (void)call;
    (void)num_threads;
    (void)isa;
    return 0;
}

size_t orth_op_workspace_bytes(orth_op op, const orth_op_call *call, int num_threads, orth_isa isa)
{
    return workspaces[op] ? workspaces[op](call, num_threads, isa) : 0;
}
