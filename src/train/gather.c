/* gather.c -- see gather.h. */
#include "train/gather.h"

#include "train/weights.h"

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

void orth_gather_param(const orth_trainer *t, orth_bind bind, int64_t index, float *whole)
{
    const orth_compile_spec *spec = &t->unit.blocks.spec;
    const orth_program *p = &t->unit.program;
    int32_t m = orth_program_find(p, ORTH_BIND_M, index), b = orth_program_find(p, bind, index);
    if (m < 0 || b < 0 || !is_owner(spec, index))
        return;
    /* What this rank updates is what it has the moments of; its fp32 parameter may be all of it, and of a
     * gradient only that part is reduced. */
    const orth_buffer *mine = &p->buffers[m], *buffer = &p->buffers[b];
    float *from = orth_executor_find(t->executor, bind, index);
    orth_weights_move(&spec->params[index], mine->first_elem, (int64_t)(mine->bytes / sizeof(float)),
                      from + (mine->first_elem - buffer->first_elem), whole, true);
}

orth_status orth_gather_all(orth_ctx *ctx, const orth_trainer *t, orth_bind bind, float *whole)
{
    for (int64_t i = 0; i < orth_model_num_params(&t->model); i++) {
        orth_param p;
        ORTH_TRY(orth_model_param(ctx, &t->model, i, &p));
        orth_gather_param(t, bind, i, whole);
        whole += orth_param_elems(&p);
    }
    return ORTH_OK;
}
