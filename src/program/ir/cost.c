/* cost.c -- see cost.h. */
#include "program/ir/cost.h"

/* Without `skip` rows of w. */
static double product_flops(const orth_operand *x, const orth_operand *w, int64_t skip)
{
    return 2.0 * (double)x->dim[0] * (double)(w->dim[0] - skip) * (double)w->dim[1];
}

/* Query-key pairs that the causal mask leaves, times head dim, over all heads and sequences; 2 FLOPs each
 * for one product. A rank that has some of the queries sees half of its share of the square, too: the fold
 * gives each rank as many from the front as from the back. */
static double attention_product(const orth_attr *a)
{
    double queries = a->seq_len, keys = a->full_len > 0 ? a->full_len : a->seq_len;
    return 2.0 * a->num_seqs * a->heads * a->head_dim * queries * keys / 2.0;
}

/* The integral of the keys of [begin, begin + keys) that queries at positions 0 .. q see. */
static double pairs_before(double q, double begin, double keys)
{
    const double past = ORTH_MAX(q - begin, 0), within = ORTH_MIN(past, keys);
    return within * within / 2 + (past - within) * keys;
}

/* The same for one block of keys. */
static double block_product(const orth_attr *a)
{
    double pairs = 0;
    for (int slot = a->slot_begin; slot < a->slot_begin + a->slot_count; slot++) {
        const int p = orth_fold_part(a->token_parts, slot);
        pairs += pairs_before((double)orth_part_begin(a->full_len, a->token_parts, p + 1), a->key_begin, a->num_keys) -
                 pairs_before((double)orth_part_begin(a->full_len, a->token_parts, p), a->key_begin, a->num_keys);
    }
    return 2.0 * a->num_seqs * a->heads * a->head_dim * pairs;
}

/* ---- flops_<name>, named by a row of ops.def ---- */

/* Replicas are made anew: work, but not the model's. */
static void flops_linear(const orth_instr *i, orth_cost *c)
{
    c->terms = (double)i->in[0].dim[1];
    c->hardware_flops = product_flops(&i->in[0], &i->in[1], 0);
    c->model_flops = product_flops(&i->in[0], &i->in[1], i->attr->replica_rows);
}

static void flops_linear_dx(const orth_instr *i, orth_cost *c)
{
    c->terms = (double)i->in[1].dim[0];
    c->hardware_flops = c->model_flops = product_flops(&i->in[0], &i->in[1], i->attr->replica_rows);
}

static void flops_linear_dw(const orth_instr *i, orth_cost *c)
{
    c->terms = (double)i->in[0].dim[0];
    c->hardware_flops = product_flops(&i->in[0], &i->out[0], 0);
    c->model_flops = product_flops(&i->in[0], &i->out[0], i->attr->replica_rows);
}

static void flops_attention(const orth_instr *i, orth_cost *c)
{
    c->hardware_flops = c->model_flops = 2 * attention_product(i->attr);
}

static void flops_attention_bwd(const orth_instr *i, orth_cost *c)
{
    c->model_flops = 4 * attention_product(i->attr);
    c->hardware_flops = 5 * attention_product(i->attr);
}

static void flops_attention_block(const orth_instr *i, orth_cost *c)
{
    c->hardware_flops = c->model_flops = 2 * block_product(i->attr);
}

static void flops_attention_block_bwd(const orth_instr *i, orth_cost *c)
{
    c->model_flops = 4 * block_product(i->attr);
    c->hardware_flops = 5 * block_product(i->attr);
}

/* Upper bound: every new token sees the whole cache. */
static void flops_attention_cached(const orth_instr *i, orth_cost *c)
{
    c->hardware_flops = c->model_flops = 4.0 * (double)i->out[0].dim[0] * i->attr->heads * i->attr->head_dim *
                                         (double)i->in[2].dim[1];
}

typedef void (*flops_fn)(const orth_instr *i, orth_cost *c);
#define flops_none NULL

static const flops_fn flops_of[ORTH_NUM_OPS] = {
#define OP(name, family, in, out, vjp, flops, ...) [ORTH_OP_##name] = flops_##flops,
#include "kernels/ops.def"
#undef OP
};

orth_cost orth_instr_cost(const orth_instr *i)
{
    orth_cost c = {0};
    if (flops_of[i->op])
        flops_of[i->op](i, &c);
    if (i->recomputed)
        c.model_flops = 0;
    for (int k = 0; k < i->num_in; k++)
        if (k != ORTH_IN_WEIGHT || !orth_instr_reads_packed(i))
            c.bytes += (double)orth_operand_bytes(&i->in[k]);
    for (int k = 0; k < i->num_out; k++)
        c.bytes += (double)orth_operand_bytes(&i->out[k]);
    return c;
}

static void add_cost(orth_cost *sum, const orth_instr *i)
{
    const orth_cost c = orth_instr_cost(i);
    sum->model_flops += c.model_flops;
    sum->hardware_flops += c.hardware_flops;
    sum->bytes += c.bytes;
}

orth_cost orth_program_cost(const orth_program *p)
{
    orth_cost sum = {0};
    for (int32_t i = 0; i < p->num_instrs; i++)
        add_cost(&sum, &p->instrs[i]);
    return sum;
}

orth_cost orth_program_cost_of_own(const orth_program *p)
{
    orth_cost sum = {0};
    for (int32_t i = 0; i < p->num_own; i++)
        add_cost(&sum, &p->instrs[p->own[i]]);
    return sum;
}
