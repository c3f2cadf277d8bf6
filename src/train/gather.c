/* gather.c -- see gather.h. */
#include "train/gather.h"

#include "train/weights.h"

#define CHUNK_ELEMS ((int64_t)1 << 20)

/* What a rank owns of one parameter, and where that lies in the whole. Travels as it is: all ranks run one
 * program. */
typedef struct {
    int64_t first_elem, n;       /* of the tensor-parallel rank's share; n = 0: nothing */
    orth_param_desc desc;        /* without its name, a pointer */
} piece;

/* Whether the replicas of this parameter, if there are any, leave it to this rank. */
static bool is_owner(const orth_compile_spec *spec, int64_t index)
{
    const orth_place_in_mesh *mesh = &spec->mesh;
    if (mesh->pos[ORTH_GROUP_CP] > 0 || mesh->pos[mesh->zero == 0 ? ORTH_GROUP_DP : ORTH_GROUP_REPLICATE] > 0)
        return false;
    bool tied_copy = index == spec->embed.param_index[0] && !spec->chunks[0].embed &&
                     spec->chunks[spec->num_chunks - 1].head;
    return !tied_copy && (spec->params[index].split_dim >= 0 || mesh->pos[ORTH_GROUP_TP] == 0);
}

static piece piece_of(const orth_trainer *t, orth_bind bind, int64_t index)
{
    const orth_compile_spec *spec = &t->unit.blocks.spec;
    const orth_program *p = &t->unit.program;
    int32_t m = orth_program_find(p, ORTH_BIND_M, index);
    if (m < 0 || orth_program_find(p, bind, index) < 0 || !is_owner(spec, index))
        return (piece){.n = 0};
    /* What this rank updates is what it has the moments of; its fp32 parameter may be all of it, and of a
     * gradient only that part is reduced. */
    piece mine = {.first_elem = p->buffers[m].first_elem, .n = (int64_t)(p->buffers[m].bytes / sizeof(float)),
                  .desc = spec->params[index]};
    mine.desc.name = NULL;
    return mine;
}

/* The elements of a piece on the rank that owns it. */
static float *data_of(const orth_trainer *t, orth_bind bind, int64_t index, const piece *p)
{
    int32_t b = orth_program_find(&t->unit.program, bind, index);
    return (float *)orth_executor_find(t->executor, bind, index) + (p->first_elem - t->unit.program.buffers[b].first_elem);
}

static orth_status hand_in(orth_ctx *ctx, const orth_trainer *t, orth_comm *all, orth_bind bind, const piece *pieces,
                           int64_t num)
{
    ORTH_TRY(orth_send(ctx, all, pieces, num * (int64_t)sizeof *pieces, ORTH_U8, 0));
    for (int64_t i = 0; i < num; i++)
        for (int64_t at = 0; at < pieces[i].n; at += CHUNK_ELEMS)
            ORTH_TRY(orth_send(ctx, all, data_of(t, bind, i, &pieces[i]) + at, ORTH_MIN(CHUNK_ELEMS, pieces[i].n - at),
                               ORTH_F32, 0));
    return ORTH_OK;
}

/* All that `rank` hands in; pieces, chunk: scratch. */
static orth_status take(orth_ctx *ctx, orth_comm *all, int rank, piece *pieces, int64_t num, float *chunk,
                        float *const *whole)
{
    ORTH_TRY(orth_recv(ctx, all, pieces, num * (int64_t)sizeof *pieces, ORTH_U8, rank));
    for (int64_t i = 0; i < num; i++) {
        for (int64_t at = 0; at < pieces[i].n; at += CHUNK_ELEMS) {
            int64_t n = ORTH_MIN(CHUNK_ELEMS, pieces[i].n - at);
            ORTH_TRY(orth_recv(ctx, all, chunk, n, ORTH_F32, rank));
            orth_weights_move(&pieces[i].desc, pieces[i].first_elem + at, n, chunk, whole[i], true);
        }
    }
    return ORTH_OK;
}

orth_status orth_gather(orth_ctx *ctx, const orth_trainer *t, orth_comm *all, orth_bind bind, float *const *whole)
{
    const bool takes = !all || orth_comm_pos(all) == 0;
    const int64_t num = t->unit.blocks.spec.num_params;
    piece *pieces = ORTH_NEW_ARRAY(ctx, piece, num);
    float *chunk = takes && all ? ORTH_NEW_ARRAY(ctx, float, CHUNK_ELEMS) : NULL;
    orth_status s = pieces && (chunk || !takes || !all) ? ORTH_OK : ORTH_ERR_NOMEM;
    for (int64_t i = 0; s == ORTH_OK && i < num; i++) {
        pieces[i] = piece_of(t, bind, i);
        if (takes && pieces[i].n > 0)
            orth_weights_move(&pieces[i].desc, pieces[i].first_elem, pieces[i].n, data_of(t, bind, i, &pieces[i]),
                              whole[i], true);
    }
    if (s == ORTH_OK && !takes)
        s = hand_in(ctx, t, all, bind, pieces, num);
    for (int rank = 1; s == ORTH_OK && takes && all && rank < orth_comm_size(all); rank++)
        s = take(ctx, all, rank, pieces, num, chunk, whole);
    orth_mem_free(ctx, chunk);
    orth_mem_free(ctx, pieces);
    return s;
}
