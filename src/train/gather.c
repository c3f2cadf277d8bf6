/* gather.c -- see gather.h. */
#include "train/gather.h"

#include "program/lower/route.h"
#include "train/weights.h"

/* What a rank owns of one parameter, and where that lies in the whole. Travels as it is: all ranks run one
 * program. */
typedef struct {
    int64_t index, bind;         /* of what: ranks that gather different things are noticed */
    int64_t first_elem, n;       /* of the tensor-parallel rank's share; n = 0: nothing */
    orth_param_desc desc;        /* without its name, a pointer */
} piece;

/* Whether the replicas of this parameter, if there are any, leave it to this rank. */
static bool is_owner(const orth_compile_spec *spec, int64_t index)
{
    const orth_place_in_mesh *mesh = &spec->mesh;
    orth_route first_use;
    orth_route_make(spec, index, false, &first_use);
    if (mesh->pos[ORTH_GROUP_CP] > 0 || mesh->pos[orth_route_keeps_shard(&first_use) ? ORTH_GROUP_REPLICATE : ORTH_GROUP_DP] > 0)
        return false;
    const bool tied_copy = first_use.num == 0;
    return !tied_copy && (spec->params[index].split_dim >= 0 || mesh->pos[ORTH_GROUP_TP] == 0);
}

/* The elements that this rank updates; of a frozen parameter those that it holds. Its buffer may have all of the parameter, and
 * of a gradient only these elements are reduced. */
static orth_zero_shard updated_elems(const orth_compile_spec *spec, const orth_program *p, int32_t buffer, int64_t index)
{
    orth_route first_use;
    orth_route_make(spec, index, false, &first_use);
    if (spec->params[index].frozen)
        return (orth_zero_shard){.first = p->buffers[buffer].first_elem, .count = orth_buffer_elems(&p->buffers[buffer])};
    if (!p->shard_counts || !orth_route_keeps_shard(&first_use))
        return (orth_zero_shard){.count = orth_param_elems_here(&spec->params[index])};
    orth_zero_shard own = {.count = p->shard_counts[index][p->shard]};
    for (int32_t r = 0; r < p->shard; r++)
        own.first += p->shard_counts[index][r];
    return own;
}

static piece piece_of(const orth_trainer *t, orth_bind bind, int64_t index)
{
    const orth_compile_spec *spec = &t->compiled.blocks.spec;
    const orth_program *p = &t->compiled.program;
    const int32_t buffer = orth_program_find(p, bind, index);
    if (buffer < 0 || !is_owner(spec, index))
        return (piece){.index = index, .bind = bind, .n = 0};
    const orth_zero_shard own = updated_elems(spec, p, buffer, index);
    piece mine = {.index = index, .bind = bind, .first_elem = own.first, .n = own.count, .desc = spec->params[index]};
    if (bind == ORTH_BIND_SCALES) {
        const orth_zero_shard scales = orth_shard_scales(&mine.desc, &own);
        mine.first_elem = scales.first;
        mine.n = scales.count;
        mine.desc = orth_param_scales(&mine.desc);
    }
    mine.desc.name = NULL;
    return mine;
}

/* Elements [at, at + n) of a piece on the rank that owns it. */
static orth_status read_part(orth_ctx *ctx, const orth_trainer *t, const piece *p, int64_t at, int64_t n, float *out)
{
    const int32_t b = orth_program_find(&t->compiled.program, (orth_bind)p->bind, p->index);
    const int64_t first = p->first_elem - t->compiled.program.buffers[b].first_elem + at;
    return orth_weights_read(ctx, t->executor, (orth_bind)p->bind, p->index, first, n, out);
}

/* Elements of the part that begins at `at`. */
static int64_t part_elems(const piece *p, int64_t at)
{
    return ORTH_MIN(ORTH_GATHER_CHUNK_ELEMS, p->n - at);
}

/* The message that holds elements `at`.. of a piece (-1: the piece itself). Its tag says so: of two ranks that are not at the
 * same message, the one that is behind or ahead is found. */
static orth_comm_call message(const piece *p, int64_t at, orth_comm_kind kind, int peer)
{
    const int64_t part = at < 0 ? 0 : 1 + at / ORTH_GATHER_CHUNK_ELEMS;
    return (orth_comm_call){.kind = kind, .dtype = at < 0 ? ORTH_U8 : ORTH_F32, .peer = peer, .instr = -1,
                            .count = at < 0 ? (int64_t)sizeof *p : part_elems(p, at),
                            .tag = ((p->bind * (INT64_C(1) << 24) + p->index) << 24) + part + 1};
}

static orth_status send_part(orth_ctx *ctx, orth_comm *all, const piece *p, int64_t at, const void *from)
{
    orth_comm_call call = message(p, at, ORTH_COMM_SEND, 0);
    call.send = from;
    return orth_comm_run(ctx, all, &call);
}

static orth_status take_part(orth_ctx *ctx, orth_comm *all, int rank, const piece *p, int64_t at, void *to)
{
    orth_comm_call call = message(p, at, ORTH_COMM_RECV, rank);
    call.recv = to;
    return orth_comm_run(ctx, all, &call);
}

static orth_status hand_in(orth_ctx *ctx, const orth_trainer *t, orth_comm *all, const piece *p, float *chunk)
{
    ORTH_TRY(send_part(ctx, all, p, -1, p));
    for (int64_t at = 0; at < p->n; at += ORTH_GATHER_CHUNK_ELEMS) {
        ORTH_TRY(read_part(ctx, t, p, at, part_elems(p, at), chunk));
        ORTH_TRY(send_part(ctx, all, p, at, chunk));
    }
    return ORTH_OK;
}

/* What rank 0 owns itself. */
static orth_status take_own(orth_ctx *ctx, const orth_trainer *t, const piece *p, float *chunk, float *whole)
{
    for (int64_t at = 0; at < p->n; at += ORTH_GATHER_CHUNK_ELEMS) {
        ORTH_TRY(read_part(ctx, t, p, at, part_elems(p, at), chunk));
        orth_weights_move(&p->desc, p->first_elem + at, part_elems(p, at), chunk, whole, true);
    }
    return ORTH_OK;
}

/* What `rank` hands in. */
static orth_status take(orth_ctx *ctx, orth_comm *all, int rank, const piece *mine, float *chunk, float *whole)
{
    piece p = {.index = -1};
    ORTH_TRY(take_part(ctx, all, rank, mine, -1, &p));
    if (p.index != mine->index || p.bind != mine->bind)
        return ORTH_FAIL(ctx, ORTH_ERR_INTERNAL, "rank %d hands in another tensor than is gathered", rank);
    for (int64_t at = 0; at < p.n; at += ORTH_GATHER_CHUNK_ELEMS) {
        ORTH_TRY(take_part(ctx, all, rank, &p, at, chunk));
        orth_weights_move(&p.desc, p.first_elem + at, part_elems(&p, at), chunk, whole, true);
    }
    return ORTH_OK;
}

orth_status orth_gather_one(orth_ctx *ctx, const orth_trainer *t, orth_comm *all, orth_bind bind, int64_t index,
                            float *chunk, float *whole)
{
    const piece mine = piece_of(t, bind, index);
    if (all && orth_comm_pos(all) > 0)
        return hand_in(ctx, t, all, &mine, chunk);
    ORTH_TRY(take_own(ctx, t, &mine, chunk, whole));
    for (int rank = 1; all && rank < orth_comm_size(all); rank++)
        ORTH_TRY(take(ctx, all, rank, &mine, chunk, whole));
    return ORTH_OK;
}

orth_status orth_gather(orth_ctx *ctx, const orth_trainer *t, orth_comm *all, orth_bind bind, float *const *whole)
{
    float *chunk = ORTH_NEW_ARRAY(ctx, float, ORTH_GATHER_CHUNK_ELEMS);
    orth_status s = chunk ? ORTH_OK : ORTH_ERR_NOMEM;
    for (int64_t i = 0; s == ORTH_OK && i < t->compiled.blocks.spec.num_params; i++)
        s = orth_gather_one(ctx, t, all, bind, i, chunk, whole ? whole[i] : NULL);
    orth_mem_free(ctx, chunk);
    return s;
}
