/* ring.c -- see ring.h. */
#include "program/lower/ring.h"

#define SUMS 2               /* of dk, dv of a block over the ranks, under way at once */

typedef struct {
    orth_builder *b;
    orth_attr attr;          /* of attention_block; the keys vary */
    int32_t ranks, me;
    orth_operand mine;       /* own keys and values: the block from the front, the one from the back */
    orth_operand arrived[2]; /* blocks of others, in turn */
    int32_t num_arrived;
    struct {
        int32_t block, call;
        orth_operand kv;
    } coming;                /* block -1: none */
    int32_t sent[2 * ORTH_MAX_RING], num_sent; /* calls */
    struct {
        orth_operand dkv;
        int32_t call;
    } sums[SUMS];
} ring;
_Static_assert(2 * ORTH_MAX_RING + 3 * ORTH_NUM_GROUPS < ORTH_MAX_QUEUES, "a ring has a queue to and one from each other rank");

static int32_t owner_of(const ring *r, int32_t block)
{
    return block < r->ranks ? block : 2 * r->ranks - 1 - block;
}

/* Whether queries of a rank see the block: those in its own block from the back see everything before. */
static bool sees(const ring *r, int32_t rank, int32_t block)
{
    return block <= 2 * r->ranks - 1 - rank;
}

static orth_operand own_half(orth_operand both, int half)
{
    return orth_operand_rows(both, half * both.dim[0] / 2, (half + 1) * both.dim[0] / 2);
}

/* Both ends say which block it is (check_ranks.h). */
static orth_attr message(ring *r, int32_t peer, int32_t block)
{
    return (orth_attr){.group = r->attr.group, .peer = peer, .key_begin = block * r->attr.num_keys, .num_keys = r->attr.num_keys};
}

/* Starts to send this rank's blocks to all that see them. */
static void start_sends(ring *r)
{
    const int32_t blocks[] = {r->me, 2 * r->ranks - 1 - r->me};
    for (int half = 0; half < 2; half++) {
        for (int32_t i = 1; i < r->ranks; i++) {
            const int32_t to = (r->me + i) % r->ranks;
            if (!sees(r, to, blocks[half]))
                continue;
            orth_operand kv = own_half(r->mine, half);
            orth_attr attr = message(r, to, blocks[half]);
            r->sent[r->num_sent++] = orth_build_start(r->b, ORTH_OP_send, &attr, 1, &kv, 0, NULL);
        }
    }
}

/* What they send may be written from here on. */
static void finish_sends(ring *r)
{
    for (int32_t i = 0; i < r->num_sent; i++)
        orth_build_until_here(r->b, r->sent[i]);
}

/* Starts to receive the first block from `block` on that is another rank's and seen here. */
static void start_receive(ring *r, int32_t block)
{
    r->coming.block = -1;
    while (block < 2 * r->ranks && owner_of(r, block) == r->me)
        block++;
    if (block >= 2 * r->ranks || !sees(r, r->me, block))
        return;
    r->coming.block = block;
    r->coming.kv = r->arrived[r->num_arrived++ % 2];
    const orth_attr attr = message(r, owner_of(r, block), block);
    r->coming.call = orth_build_start(r->b, ORTH_OP_recv, &attr, 0, NULL, 1, &r->coming.kv);
}

/* Keys and values of a block, in turn; the next one is on its way. Absent: no query here sees it. */
static orth_operand take_block(ring *r, int32_t block)
{
    if (!sees(r, r->me, block))
        return orth_operand_absent;
    if (owner_of(r, block) == r->me)
        return own_half(r->mine, block >= r->ranks);
    orth_operand kv = r->coming.kv;
    orth_build_until_here(r->b, r->coming.call);
    start_receive(r, block + 1);
    return kv;
}

static orth_operand temp_of(orth_builder *b, const char *name, orth_dtype dtype, int64_t rows, int64_t cols)
{
    const int64_t dim[] = {rows, cols};
    return orth_build_temp(b, name, orth_operand_of(-1, dtype, 2, dim));
}

/* Packs this rank's keys and values and sets everything going. */
static ring begin(orth_builder *b, const orth_attr *attr, orth_operand qkv)
{
    ring r = {.b = b, .attr = *attr, .ranks = orth_build_size(b, attr->group), .me = b->spec->mesh.pos[attr->group]};
    const int64_t N = qkv.dim[0], W = 2 * (int64_t)attr->kv_heads * attr->head_dim;
    r.attr.num_keys = attr->full_len / (2 * r.ranks);
    r.mine = temp_of(b, "kv.mine", qkv.dtype, N, W);
    for (int i = 0; i < 2; i++)
        r.arrived[i] = temp_of(b, "kv.block", qkv.dtype, N / 2, W);
    orth_build_emit(b, ORTH_OP_kv_blocks, attr, 1, &qkv, 1, &r.mine);
    start_receive(&r, 0);
    start_sends(&r);
    return r;
}

void orth_build_ring_forward(orth_builder *b, const orth_attr *attr, const orth_operand *in, const orth_operand *out)
{
    ring r = begin(b, attr, in[0]);
    const int64_t N = in[0].dim[0];
    const orth_operand state[] = {
        temp_of(b, "attention.sum", ORTH_F32, N, (int64_t)attr->heads * attr->head_dim),
        temp_of(b, "attention.max", ORTH_F32, N, 2 * (int64_t)attr->heads),
    };
    for (int32_t j = 0; j < 2 * r.ranks && sees(&r, r.me, j); j++) {
        const orth_operand none = orth_operand_absent;
        const orth_operand block_in[] = {in[0], take_block(&r, j), in[1], in[2], in[3], j ? state[0] : none,
                                         j ? state[1] : none};
        r.attr.key_begin = j * r.attr.num_keys;
        orth_build_emit(b, ORTH_OP_attention_block, &r.attr, 7, block_in, 2, state);
    }
    orth_build_emit(b, ORTH_OP_attention_end, attr, 2, state, 2, out);
    finish_sends(&r);
}

/* dk, dv of the block are summed from here on. */
static void finish_sum(ring *r, int32_t block)
{
    orth_build_until_here(r->b, r->sums[block % SUMS].call);
}

/* Starts to sum dk, dv of a block over all ranks, to its owner, who has room for them in `mine`. */
static void start_sum(ring *r, int32_t block, orth_operand dkv, orth_operand mine)
{
    const int32_t owner = owner_of(r, block);
    int64_t *counts = ORTH_ARENA_ARRAY(r->b->ctx, &r->b->p->arena, int64_t, r->ranks);
    if (!counts) {
        r->b->p->failed = true;
        return;
    }
    counts[owner] = dkv.dim[0] * dkv.dim[1];
    orth_operand to = owner == r->me ? own_half(mine, block >= r->ranks) : orth_operand_rows(dkv, 0, 0);
    const orth_attr attr = {.group = r->attr.group};
    const int32_t call = orth_build_start(r->b, ORTH_OP_reduce_scatter, &attr, 1, &dkv, 1, &to);
    if (call >= 0)
        r->b->p->instrs[call].counts = counts;
    r->sums[block % SUMS].call = call;
}

/* What this rank's queries add to dk, dv of a block: of its heads and, where ranks share kv heads, of all of the group.
 * slots: room for those of its heads alone; absent where there are no others. */
static void grad_block(ring *r, const orth_operand *in, const orth_operand *dq, const orth_operand *dkv,
                       const orth_operand *slots)
{
    const bool shares = r->attr.shares_kv;
    const orth_operand out[] = {*dq, shares ? *slots : *dkv};
    orth_build_emit(r->b, ORTH_OP_attention_block_bwd, &r->attr, 9, in, 2, out);
    if (!shares)
        return;
    orth_build_emit(r->b, ORTH_OP_all_reduce, &(orth_attr){.group = ORTH_GROUP_KV}, 1, slots, 1, slots);
    orth_build_emit(r->b, ORTH_OP_tree_acc, &(orth_attr){0}, 1, slots, 1, dkv);
}

void orth_build_ring_backward(orth_builder *b, const orth_attr *attr, const orth_operand *in, const orth_operand *out)
{
    ring r = begin(b, attr, in[1]);
    const int64_t N = in[1].dim[0], W = r.mine.dim[1];
    const orth_operand dq = temp_of(b, "d.q", ORTH_F32, N, (int64_t)attr->heads * attr->head_dim);
    const orth_operand mine = temp_of(b, "d.kv.mine", ORTH_F32, N, W);
    for (int i = 0; i < SUMS; i++)
        r.sums[i].dkv = temp_of(b, "d.kv.block", ORTH_F32, N / 2, W);
    const orth_operand slots = attr->shares_kv ? temp_of(b, "d.kv.slots", ORTH_F32, attr->slot_count, N / 2 * W)
                                               : orth_operand_absent;
    /* Also blocks that no query here sees: the sum of dk, dv is over all ranks, so each has a term, of zeros then. */
    for (int32_t j = 0; j < 2 * r.ranks; j++) {
        const orth_operand block_in[] = {in[0], in[1], take_block(&r, j), in[2], in[3], in[4], in[5], in[6],
                                         j ? dq : orth_operand_absent};
        r.attr.key_begin = j * r.attr.num_keys;
        const orth_operand dkv = r.sums[j % SUMS].dkv;
        if (j >= SUMS) /* the buffer is used again */
            finish_sum(&r, j - SUMS);
        grad_block(&r, block_in, &dq, &dkv, &slots);
        start_sum(&r, j, dkv, mine);
    }
    for (int32_t j = 2 * r.ranks - SUMS; j < 2 * r.ranks; j++)
        finish_sum(&r, j);
    const orth_operand grads[] = {dq, mine};
    orth_build_emit(b, ORTH_OP_kv_blocks_grad, attr, 2, grads, 1, out);
    finish_sends(&r);
}
