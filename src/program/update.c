/* update.c -- the end of a step: loss, gradient norm, clipping, optimizer. */
#include "program/build.h"

static orth_operand vector_of(int32_t buffer, orth_dtype dtype, int64_t n)
{
    return orth_operand_of(buffer, dtype, 1, &n);
}

static int32_t state_buffer(orth_builder *b, const char *what, orth_bind bind, int64_t index, int64_t n)
{
    orth_buffer buffer = {
        .name = orth_arena_printf(b->ctx, &b->p->arena, "%s.%s", what, b->spec->params[index].name),
        .bytes = (size_t)n * sizeof(float), .cls = ORTH_CLASS_OPTIMIZER, .persistent = true,
        .bind = bind, .index = index,
    };
    return orth_program_add_buffer(b->p, &buffer);
}

static void update_param(orth_builder *b, int64_t index, orth_operand step)
{
    const orth_param_desc *param = &b->spec->params[index];
    int64_t n = param->dim[0] * (param->num_dims > 1 ? param->dim[1] : 1);
    bool has_copy = b->copy[index] != b->master[index];
    orth_operand in[] = {vector_of(b->uses[2 * index].slot[0], ORTH_F32, n), step};
    orth_operand copy = has_copy ? vector_of(b->copy[index], b->spec->compute, n) : orth_operand_absent;
    orth_operand out[4] = {vector_of(b->master[index], ORTH_F32, n)};
    int num_out = 1;
    out[num_out++] = vector_of(state_buffer(b, "m", ORTH_BIND_M, index, n), ORTH_F32, n);
    if (b->spec->optimizer != ORTH_OP_sgd)
        out[num_out++] = vector_of(state_buffer(b, "v", ORTH_BIND_V, index, n), ORTH_F32, n);
    out[num_out++] = copy;
    orth_attr attr = {.decay = param->decay, .nesterov = b->spec->nesterov};
    orth_build_emit(b, b->spec->optimizer, &attr, 2, in, num_out, out);
}

void orth_build_update(orth_builder *b)
{
    const orth_compile_spec *s = b->spec;
    b->phase = ORTH_PHASE_UPDATE;
    b->layer = b->micro_batch = -1;
    orth_attr none = {0};
    orth_operand loss = vector_of(b->loss, ORTH_F64, 1);
    orth_operand leaves = vector_of(b->seq_loss, ORTH_F64, (int64_t)s->num_micro_batches * s->num_seqs);
    orth_build_emit(b, ORTH_OP_tree_acc_f64, &none, 1, &leaves, 1, &loss);
    if (s->mode != ORTH_MODE_TRAIN)
        return;

    int64_t num_sums = 0;
    for (int64_t i = 0; i < s->num_params; i++) {
        int64_t n = s->params[i].dim[0] * (s->params[i].num_dims > 1 ? s->params[i].dim[1] : 1);
        num_sums += orth_div_up(n, ORTH_NORM_BLOCK);
    }
    orth_buffer buffer = {.name = "grad_squares", .bytes = (size_t)num_sums * sizeof(double),
                          .cls = ORTH_CLASS_GRADS, .persistent = true};
    orth_operand sums = vector_of(orth_program_add_buffer(b->p, &buffer), ORTH_F64, num_sums);
    int64_t begin = 0;
    for (int64_t i = 0; i < s->num_params; i++) {
        int64_t n = s->params[i].dim[0] * (s->params[i].num_dims > 1 ? s->params[i].dim[1] : 1);
        int64_t count = orth_div_up(n, ORTH_NORM_BLOCK);
        orth_operand in = vector_of(b->uses[2 * i].slot[0], ORTH_F32, n);
        orth_operand out = orth_operand_rows(sums, begin, begin + count);
        orth_build_emit(b, ORTH_OP_grad_square, &none, 1, &in, 1, &out);
        begin += count;
    }
    orth_operand step = vector_of(b->data[ORTH_DATA_STEP], ORTH_U8, sizeof(orth_step_values));
    const orth_operand clip_in[] = {sums, loss};
    orth_build_emit(b, ORTH_OP_clip_scale, &none, 2, clip_in, 1, &step);
    for (int64_t i = 0; i < s->num_params; i++)
        update_param(b, i, step);
}
