/* op.c -- the tables made from ops.def and workspace.def. */
#include "kernels/op.h"

static const char *const names[ORTH_NUM_OPS] = {
#define OP(name, in, out) [ORTH_OP_##name] = #name,
#define COMM(name, in, out) [ORTH_OP_##name] = #name,
#include "kernels/ops.def"
#undef COMM
#undef OP
};

static const orth_kernel_fn ref_kernels[ORTH_NUM_OPS] = {
#define OP(name, in, out) [ORTH_OP_##name] = orth_ref_##name,
#include "kernels/ops.def"
#undef OP
};

static const orth_kernel_fn cpu_kernels[ORTH_NUM_OPS] = {
#define OP(name, in, out) [ORTH_OP_##name] = orth_cpu_##name,
#include "kernels/ops.def"
#undef OP
};

static const orth_workspace_fn workspaces[ORTH_NUM_OPS] = {
#define WS(name) [ORTH_OP_##name] = orth_workspace_##name,
#include "kernels/workspace.def"
#undef WS
};

static const char *const group_names[ORTH_NUM_GROUPS] = {
    "tp", "kv", "cp_heads", "cp_tokens", "cp", "dp", "shard", "replicate", "pp", "pp_back", "embed", "norm"};

const char *orth_group_name(orth_group g)
{
    return group_names[g];
}

const char *orth_op_name(orth_op op)
{
    return names[op];
}

const orth_kernel_fn *orth_kernels_ref(void)
{
    return ref_kernels;
}

const orth_kernel_fn *orth_kernels_cpu(void)
{
    return cpu_kernels;
}

size_t orth_op_workspace_bytes(orth_op op, const orth_op_call *call, int num_threads, orth_isa isa)
{
    return workspaces[op] ? workspaces[op](call, num_threads, isa) : 0;
}
