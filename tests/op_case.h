/* op_case.h -- a call of any op, drawn from its row: operands from the signature, odd sizes, attributes from op_cases.def.
 *
 *   case_draw(op, seed, compute type, which optional operands are absent) -> attributes, letters, tensors
 *
 * wide: for derivatives (test_ops_double.c) fp32 and the compute type are kept in double, and shapes are small.
 */
#ifndef ORTH_TESTS_OP_CASE_H
#define ORTH_TESTS_OP_CASE_H

#include <math.h>

#include "kernels/attention.h"
#include "kernels/signature.h"
#include "kernel_case.h"
#include "tensor/q8.h"

typedef struct {
    orth_signature sig;
    orth_attr attr;
    orth_step_values step;
    orth_dtype compute;
    uint64_t seed;
    int draws;
    int64_t value[ORTH_SIG_LETTERS]; /* -1: not drawn yet */
    uint32_t absent;                 /* bits of operands, outputs behind inputs */
    orth_tensor in[ORTH_OP_MAX_IN], out[ORTH_OP_MAX_OUT];
    int num_in, num_out;
    bool wide;                       /* fp32 and the compute type are kept in double */
    int32_t parts;                   /* of the tokens; 0: drawn */
} op_case;

static inline int64_t case_pick(op_case *c, const int64_t *choices, int n)
{
    return choices[test_rand_int(c->seed, (uint64_t)c->draws++, 0, n - 1)];
}
#define PICK(...) case_pick(c, (const int64_t[]){__VA_ARGS__}, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)))

/* ---- letters ---- */

static inline int case_letter(const op_case *c, const char *name)
{
    for (int i = 0; i < c->sig.num_letters; i++)
        if (strlen(name) == (size_t)c->sig.letter[i].size && memcmp(name, c->sig.letter[i].name, strlen(name)) == 0)
            return i;
    return -1;
}

static inline void case_force(op_case *c, const char *name, int64_t value)
{
    int i = case_letter(c, name);
    if (i >= 0)
        c->value[i] = value;
}

/* The value of a letter: of the attributes, or drawn now. */
static inline int64_t case_value(op_case *c, int i)
{
    if (c->value[i] < 0)
        c->value[i] = c->wide ? PICK(3, 7) : PICK(1, 3, 7, 17, 65, 130, 301);
    return c->value[i];
}

static inline int64_t case_sum(op_case *c, const orth_sig_dim *d)
{
    int64_t sum = 0;
    for (int term = 0; term < d->num_terms; term++) {
        int64_t product = 1;
        for (int i = 0; i < d->num_factors[term]; i++) {
            const int x = d->factor[term][i];
            product *= x < 0 ? -x : case_value(c, x);
        }
        sum += product;
    }
    return d->pieces < 0 ? sum : (sum + case_value(c, d->pieces) - 1) / case_value(c, d->pieces);
}

static inline orth_sig_operand *case_operand(op_case *c, int k)
{
    return k < c->sig.num_in ? &c->sig.in[k] : &c->sig.out[k - c->sig.num_in];
}

/* Letters that a sum decides (K=L) take its value before anything is drawn for them. */
static inline void case_solve(op_case *c)
{
    for (int k = 0; k < c->sig.num_in + c->sig.num_out; k++)
        for (int i = 0; i < case_operand(c, k)->num_dims; i++) {
            const orth_sig_dim *d = &case_operand(c, k)->dim[i];
            if (d->letter >= 0 && d->num_terms > 0)
                c->value[d->letter] = case_sum(c, d);
        }
}

/* ---- attributes ---- */

static inline void attrs_tokens(op_case *c)
{
    c->attr.num_seqs = (int32_t)PICK(1, 2, 3);
    c->attr.token_parts = c->parts ? c->parts : (int32_t)PICK(1, 2, 4);
    c->attr.seq_len = c->wide ? 4 : c->parts ? c->parts + 5 : (int32_t)PICK(4, 5, 17, 33);
    c->attr.eps = 1e-5f;
    c->attr.dropout = 0.25f;
    c->attr.nesterov = PICK(0, 1);
    c->attr.lr_factor = (float)PICK(1, 2) * 0.5f;
    c->attr.decay_factor = (float)PICK(0, 1, 2);
    c->attr.num_addends = c->sig.addends && !c->wide ? (int32_t)PICK(0, 1, 3, 12) : 0;
    case_force(c, "n", PICK(1, 17, 1000, 70001)); /* vectors */
}

/* Rows in blocks; perhaps one rank's parts of the columns. */
static inline void attrs_blocks(op_case *c)
{
    attrs_tokens(c);
    const int32_t parts = (int32_t)PICK(1, 2, 4), ranks = (int32_t)PICK(1, 2);
    c->attr.split = (orth_split){ORTH_SPLIT_EVEN, parts, parts * ranks * PICK(1, 37, 300) + PICK(0, 1), 1, 1, parts * (ranks - 1), parts * ranks};
    case_force(c, "J", PICK(1, 3, 40));
}

static inline void attrs_tiles(op_case *c)
{
    attrs_tokens(c);
    orth_attr *a = &c->attr;
    a->float8 = (orth_float8)PICK(ORTH_E4M3, ORTH_E5M2);
    a->tile_rows = (int32_t)PICK(1, 1, 16, 128);
    a->tile_cols = (int32_t)PICK(16, 32, 128, 600);
    a->power_of_2 = PICK(0, 1);
    a->use = 5;
    a->first_col = PICK(0, 3, 1000);
    a->signs = (uint32_t)PICK(0, 0xa53c);
    a->row = (int32_t)PICK(0, 5);
    a->gradients = ORTH_E5M2;
    a->delayed.most_recent = PICK(0, 1);
    a->delayed.margin = (int32_t)PICK(0, 3);
    case_force(c, "J", PICK(6, 24));
    a->row_split = (orth_split){ORTH_SPLIT_EVEN, (int32_t)PICK(1, 2, 4), PICK(1, 3, 130), 1, 1, 0, 0};
    a->col_split = (orth_split){ORTH_SPLIT_EVEN, (int32_t)PICK(1, 2), PICK(3, 65, 130, 301), 1, 1, 0, 0};
    case_force(c, "N", PICK(1, 3, 130));
}

/* Tiles of tokens, or of all rows of one sequence. */
static inline void attrs_two_levels(op_case *c)
{
    attrs_tiles(c);
    orth_attr *a = &c->attr;
    a->seq_len = (int32_t)PICK(4, 17, 130);
    const bool weight = a->num_seqs == 1 && PICK(0, 1);
    a->row_split = weight ? (orth_split){ORTH_SPLIT_EVEN, 2, a->seq_len, 1, 1, 0, 0}
                          : (orth_split){ORTH_SPLIT_TOKENS, a->token_parts, a->seq_len, 1, a->num_seqs, 0, 0};
    case_force(c, "N", (int64_t)a->num_seqs * a->seq_len);
}

static inline void attrs_heads(op_case *c)
{
    attrs_tokens(c);
    orth_attr *a = &c->attr;
    a->kv_heads = (int32_t)PICK(1, 2, 3);
    a->heads = a->kv_heads * (int32_t)PICK(1, 2, 4);
    a->head_dim = c->wide ? 4 : (int32_t)PICK(8, 20, 64);
    a->head_parts = orth_attn_head_parts(a->heads, a->kv_heads, a->token_parts);
    a->scale = 1.0f / sqrtf((float)a->head_dim);
    a->dropout = (float)PICK(0, 1) * 0.25f;
    a->site = 3;
    a->split = (orth_split){ORTH_SPLIT_EVEN, a->token_parts, a->heads, 1, 1, 0, 0};
    a->seq_len = c->wide ? 4 : c->parts ? c->parts + 5 : (int32_t)PICK(4, 17, 70, 131);
    case_force(c, "S", a->seq_len + 3);
}

/* One of two ranks, each with half of the token slots. */
static inline void attrs_part(op_case *c)
{
    attrs_heads(c);
    orth_attr *a = &c->attr;
    const int rank = (int)PICK(0, 1);
    a->token_parts = 4;
    a->full_len = 4 * (c->wide ? 2 : (int32_t)PICK(3, 20));
    a->seq_len = a->full_len / 2;
    a->slot_count = 2;
    a->slot_begin = 2 * rank;
    a->head_parts = orth_attn_head_parts(a->heads, a->kv_heads, a->token_parts);
    a->shares_kv = PICK(0, 1);
}

static inline void attrs_block(op_case *c)
{
    attrs_part(c);
    orth_attr *a = &c->attr;
    a->num_seqs = ORTH_MIN(a->num_seqs, 2);
    a->head_dim = 8;
    a->full_len = 4 * ORTH_ATTN_BLOCK;
    a->seq_len = a->full_len / 2;
    a->num_keys = ORTH_ATTN_BLOCK;
    a->key_begin = ORTH_ATTN_BLOCK * (int32_t)PICK(0, 1, 2);
    const int kv = orth_signature_input(&c->sig, "kv");
    if (kv >= 0 && c->absent >> kv & 1) { /* no query of the second rank sees the last block */
        a->slot_begin = 2;
        a->key_begin = 3 * ORTH_ATTN_BLOCK;
    }
}

static inline void attrs_trade(op_case *c)
{
    attrs_tokens(c);
    case_force(c, "G", PICK(1, 2, 3));
}

static inline void attrs_cached(op_case *c)
{
    attrs_heads(c);
    c->attr.dropout = 0;
    c->attr.full = PICK(0, 1);
    case_force(c, "S", c->attr.seq_len + 70);
}

static inline void attrs_product(op_case *c)
{
    attrs_tokens(c);
    c->attr.split = (orth_split){ORTH_SPLIT_EVEN, (int32_t)PICK(1, 2, 4), c->wide ? 5 : PICK(4, 17, 65, 130), 1, 1, 0, 0};
    c->attr.act = ORTH_ACT_GELU_TANH + (orth_act)PICK(0, 1, 2);
}

static inline void attrs_product_dx(op_case *c)
{
    attrs_product(c);
    c->attr.replica_rows = PICK(0, 0, 3);
}

static inline void attrs_product_dw(op_case *c)
{
    attrs_tokens(c);
    const orth_attr *a = &c->attr;
    c->attr.split = (orth_split){ORTH_SPLIT_TOKENS, a->token_parts, a->seq_len, 1, a->num_seqs, 0, 0};
}

/* Any; one with scales of tensors above those of tiles only where the operands that say them are there. */
static inline orth_recipe case_recipe(op_case *c)
{
    orth_recipe r;
    do
        r = (orth_recipe)test_rand_int(c->seed, (uint64_t)c->draws++, 1, ORTH_NUM_RECIPES - 1);
    while (orth_recipe_of(r)->scale == ORTH_SCALE_E4M3 && (c->absent >> 4 & 3));
    return r;
}

/* Small: the plain kernel looks for the scale of each number. */
static inline void attrs_qproduct(op_case *c)
{
    attrs_product(c);
    c->attr.recipe = case_recipe(c);
    const int64_t O = PICK(3, 17, 65);
    c->attr.split_out = (orth_split){ORTH_SPLIT_EVEN, (int32_t)PICK(1, 2), O, 1, 1, 0, 0};
    c->attr.split.units = PICK(4, 17, 65, 130, 301);
    case_force(c, "O", O);
    case_force(c, "N", (int64_t)c->attr.num_seqs * c->attr.seq_len);
}

static inline void attrs_qproduct_dx(op_case *c)
{
    attrs_qproduct(c);
    c->attr.replica_rows = PICK(0, 0, 3);
    const int O = case_letter(c, "O"), K = case_letter(c, "K");
    c->value[O] = -1; /* by the split, and K by that of the columns of w */
    c->value[K] = c->attr.split_out.units;
}

static inline void attrs_qproduct_dw(op_case *c)
{
    attrs_product_dw(c);
    c->attr.recipe = case_recipe(c);
    case_force(c, "O", PICK(3, 17, 65));
    case_force(c, "K", PICK(3, 17, 65));
}

static inline void attrs_vocab(op_case *c)
{
    attrs_product(c);
    c->attr.act = ORTH_ACT_NONE;
}

static inline void attrs_squares(op_case *c)
{
    attrs_product(c);
    c->attr.block_rows = (int32_t)PICK(1, 4, 50);
    c->attr.first_part = (int32_t)PICK(0, 2);
    case_force(c, "Z", c->attr.first_part + c->attr.split.parts + 1);
}

/* ---- what operands hold ---- */

static inline orth_tensor *case_in(op_case *c, const char *name)
{
    const int k = orth_signature_input(&c->sig, name);
    return k >= 0 && c->in[k].data ? &c->in[k] : NULL;
}

static inline bool case_has_out(const op_case *c, const char *name)
{
    for (int k = 0; k < c->num_out; k++)
        if (strlen(name) == (size_t)c->sig.out[k].name_size && !memcmp(name, c->sig.out[k].name, strlen(name)))
            return c->out[k].data != NULL;
    return false;
}

static inline void case_drop(orth_tensor *t)
{
    if (!t)
        return;
    guarded_free(t->data);
    *t = (orth_tensor){.data = NULL};
}

static inline double case_get(const op_case *c, const orth_tensor *t, int64_t i)
{
    return c->wide ? ((const double *)t->data)[i] : (double)orth_load_f32(t->data, t->dtype, i);
}

static inline void case_put(const op_case *c, orth_tensor *t, int64_t i, double v)
{
    if (c->wide)
        ((double *)t->data)[i] = v;
    else
        orth_store_f32(t->data, t->dtype, i, (float)v);
}

static inline void case_make_positive(op_case *c, orth_tensor *t)
{
    for (int64_t i = 0; t && i < orth_tensor_elems(t); i++)
        case_put(c, t, i, 0.1 + fabs(case_get(c, t, i)));
}

static inline void fill_plain(op_case *c)
{
    (void)c;
}

/* Tokens of other ranks' rows, too, which only a table without positions may meet. */
static inline void fill_outside(op_case *c)
{
    orth_tensor *tok = case_in(c, "tok");
    for (int64_t i = 0; !case_in(c, "wpe") && i < tok->dim[0]; i += 3)
        ((int32_t *)tok->data)[i] += 2;
}

static inline void fill_norm(op_case *c)
{
    c->attr.norm = case_in(c, "shift") ? ORTH_NORM_LAYER : ORTH_NORM_RMS;
    if (case_in(c, "res") && !case_has_out(c, "sum")) /* what is normalised must lie somewhere */
        case_drop(&c->in[orth_signature_input(&c->sig, "res")]);
}

static inline void fill_norm_bwd(op_case *c)
{
    c->attr.norm = case_has_out(c, "dshift") ? ORTH_NORM_LAYER : ORTH_NORM_RMS;
}

/* A packed weight has the form of one instruction set: test_ops.c packs it there. */
static inline void fill_linear(op_case *c)
{
    case_drop(case_in(c, "packed"));
    c->num_in = 3;
    if (!case_has_out(c, "pre"))
        c->attr.act = ORTH_ACT_NONE;
}

/* Codes that are numbers. Scales that are bytes are near 1. The largest magnitudes of tensors are there if the recipe has them. */
static inline void case_fill_quantised(op_case *c)
{
    const orth_recipe_row *r = orth_recipe_of(c->attr.recipe);
    const int most = r->forward == ORTH_E2M1 ? 15 : ~4;
    for (int k = 4; k < 6; k++) {
        if (r->scale != ORTH_SCALE_E4M3)
            case_drop(&c->in[k]);
        else
            case_make_positive(c, &c->in[k]);
    }
    for (int k = 0; k < 4; k++) {
        orth_tensor *t = &c->in[k];
        for (int64_t i = 0; t->dtype == ORTH_U8 && i < orth_tensor_elems(t); i++)
            ((uint8_t *)t->data)[i] = k < 2 ? (uint8_t)(test_rand_int(c->seed, 1000 * (uint64_t)(k + 1) + (uint64_t)i, 0, 255) & most)
                                            : (uint8_t)test_rand_int(c->seed, 9000 * (uint64_t)k + (uint64_t)i, 120, 130);
        if (k >= 2)
            case_make_positive(c, t->dtype == ORTH_F32 ? t : NULL);
    }
}

static inline void fill_qlinear(op_case *c)
{
    case_fill_quantised(c);
    if (!case_has_out(c, "pre"))
        c->attr.act = ORTH_ACT_NONE;
}

static inline void fill_qlinear_dw(op_case *c)
{
    case_fill_quantised(c);
}

static inline void fill_qlinear_dx(op_case *c)
{
    case_fill_quantised(c);
    if (!case_in(c, "pre"))
        c->attr.act = ORTH_ACT_NONE;
}

static inline void fill_linear_dx(op_case *c)
{
    case_drop(case_in(c, "packed"));
    c->num_in = 3;
    if (!case_in(c, "pre"))
        c->attr.act = ORTH_ACT_NONE;
}

/* Each document begins at or before its tokens. */
static inline void fill_documents(op_case *c)
{
    const orth_attr *a = &c->attr;
    const orth_attn_place l = a->full_len > 0 ? orth_attn_part(a) : orth_attn_whole(a);
    orth_tensor *doc = case_in(c, "doc");
    for (int64_t n = 0; doc && n < doc->dim[0]; n++) {
        const int64_t pos = orth_attn_pos(&l, n % l.rows);
        ((int32_t *)doc->data)[n] = (int32_t)(pos / 3 * (n / l.rows % 2 ? 3 : 1) * (pos > 4));
    }
}

/* Rows without weight, whose target means nothing; with sums of other ranks, targets of other ranks. */
static inline void fill_targets(op_case *c)
{
    orth_tensor *target = case_in(c, "target"), *weight = case_in(c, "weight");
    const bool split = case_in(c, "max") != NULL;
    const int64_t V = c->in[0].dim[1];
    c->attr.first_row = split ? V / 2 : 0;
    for (int64_t i = 0; i < target->dim[0]; i += 3) {
        ((int32_t *)target->data)[i] = split ? (int32_t)(V / 2 + i % (V + 3)) : weight ? -1 : 0;
        if (weight && i % 2 == 0)
            case_put(c, weight, i, 0);
        else if (!split)
            ((int32_t *)target->data)[i] = 0;
    }
    case_make_positive(c, case_in(c, "sums"));
}

static inline void fill_sums(op_case *c)
{
    case_make_positive(c, case_in(c, "ml"));
    case_make_positive(c, case_in(c, "sums"));
}

/* o and ml are carried together. */
static inline void fill_block(op_case *c)
{
    orth_tensor *o = case_in(c, "o"), *ml = case_in(c, "ml");
    fill_documents(c);
    fill_sums(c);
    if (orth_signature_input(&c->sig, "ml") >= 0 && (!o || !ml)) {
        case_drop(o);
        case_drop(ml);
    }
}

static inline void fill_cached(op_case *c)
{
    orth_tensor *past = case_in(c, "past");
    for (int64_t b = 0; b < past->dim[0]; b++)
        ((int32_t *)past->data)[b] = (int32_t)test_rand_int(c->seed, 900 + (uint64_t)b, 0, 70);
}

static inline void fill_moments(op_case *c)
{
    case_make_positive(c, &c->out[2]); /* v */
}

/* Numbers of all sizes, of which some are 0, infinite or not numbers. */
static inline void fill_sizes(op_case *c)
{
    static const double odd[] = {0, -0.0, INFINITY, NAN, -INFINITY, 1e-40, 3e38};
    orth_tensor *x = &c->in[0];
    for (int64_t i = 0; i < orth_tensor_elems(x); i++)
        case_put(c, x, i, case_get(c, x, i) * exp2((double)(i / 7 % 40 - 20)));
    for (int64_t i = 0; c->seed % 3 == 0 && i < orth_tensor_elems(x); i += 1 + 97 * (int64_t)(c->seed % 4))
        case_put(c, x, i, odd[i % ORTH_COUNT(odd)]);
    if (c->num_in > 1)
        case_make_positive(c, &c->in[1]);
}

/* Both of what makes it round at random, or neither. */
static inline void fill_two_levels(op_case *c)
{
    fill_sizes(c);
    if (!c->in[2].data || !c->in[3].data) {
        case_drop(&c->in[2]);
        case_drop(&c->in[3]);
    }
}

/* Blocks, of which some are 0 or not numbers. */
static inline void fill_int8(op_case *c)
{
    static const float scales[] = {0.5f, 1e-3f, 0, NAN, 1e-40f};
    for (int64_t b = 0; b < c->in[0].dim[0]; b++) {
        orth_q8 *q = (orth_q8 *)c->in[0].data + b;
        q->scale = scales[b % ORTH_COUNT(scales)];
        for (int i = 0; i < ORTH_Q8_NUM; i++)
            q->code[i] = (int8_t)test_rand_int(c->seed, (uint64_t)(b * ORTH_Q8_NUM + i), -127, 127);
    }
}

/* A largest magnitude is never below 0; a scale of 0 was never made. */
static inline void fill_delayed(op_case *c)
{
    fill_sizes(c);
    case_make_positive(c, c->out[2].data ? &c->out[2] : NULL);
    if (c->seed % 4 == 1)
        case_put(c, &c->in[1], c->attr.row, 0);
}

/* Codes, and scales of which some are 0. */
static inline void fill_codes(op_case *c)
{
    orth_tensor *scales = &c->out[4];
    for (int k = 1; k < 3; k++)
        for (int64_t i = 0; i < orth_tensor_elems(&c->out[k]); i++)
            ((uint8_t *)c->out[k].data)[i] = (uint8_t)test_rand_int(c->seed, 1000 * (uint64_t)k + (uint64_t)i, 0, 255);
    case_make_positive(c, scales);
    for (int64_t i = 0; i < orth_tensor_elems(scales); i += 3)
        case_put(c, scales, i, 0);
}

/* ---- tensors ---- */

static inline orth_tensor case_shape(op_case *c, const orth_sig_operand *o)
{
    orth_tensor t = {.num_dims = o->step ? 1 : o->num_dims, .dim = {1, 1, 1, 1}, .dtype = ORTH_U8};
    for (int i = 0; i < o->num_dims; i++)
        t.dim[i] = o->dim[i].letter >= 0 ? case_value(c, o->dim[i].letter) : case_sum(c, &o->dim[i]);
    if (o->step)
        t.dim[0] = sizeof(orth_step_values);
    else if (o->type[0] == 'f' && o->type[1] == 'u')
        t.dtype = orth_scale_dtype(orth_recipe_of(c->attr.recipe)->scale);
    else
        t.dtype = o->type[0] == 'c'                        ? c->compute
                  : o->type[0] == 'f' || o->type[0] == 't' ? ORTH_F32
                  : o->type[0] == 'h'                      ? (c->compute == ORTH_F16 ? ORTH_F16 : ORTH_BF16)
                  : o->type[0] == 'd'                      ? ORTH_F64
                  : o->type[0] == 'i'                      ? ORTH_I32
                  : o->type[0] == 'q'                      ? ORTH_Q8
                                                           : ORTH_U8;
    return t;
}

static inline size_t case_bytes(const op_case *c, const orth_tensor *t)
{
    const bool real = t->dtype == ORTH_F32 || t->dtype == ORTH_BF16 || t->dtype == ORTH_F16;
    return c->wide && real ? (size_t)orth_tensor_elems(t) * sizeof(double) : orth_tensor_bytes(t);
}

static inline void case_fill(op_case *c, const orth_sig_operand *o, orth_tensor *t, uint64_t key)
{
    const uint64_t seed = c->seed * 64 + key;
    const int64_t n = orth_tensor_elems(t);
    if (o->step)
        memcpy(t->data, &c->step, sizeof c->step);
    for (int64_t i = 0; i < n && !o->step; i++) {
        if (t->dtype == ORTH_I32)
            ((int32_t *)t->data)[i] = (int32_t)test_rand_int(seed, (uint64_t)i, 0, o->below >= 0 ? case_value(c, o->below) - 1 : 5);
        else if (t->dtype == ORTH_F64)
            ((double *)t->data)[i] = (double)test_rand(seed, (uint64_t)i) * (i % 3 ? 1e-9 : 1);
        else if (t->dtype != ORTH_U8 && t->dtype != ORTH_Q8)
            case_put(c, t, i, 2 * (double)test_rand(seed, (uint64_t)i));
    }
}

static inline orth_tensor case_make(op_case *c, int k, bool absent)
{
    const orth_sig_operand *o = case_operand(c, k);
    if (absent)
        return (orth_tensor){.data = NULL};
    orth_tensor t = case_shape(c, o);
    t.data = guarded_alloc(case_bytes(c, &t));
    case_fill(c, o, &t, (uint64_t)k);
    return t;
}

typedef void (*case_fn)(op_case *c);
typedef struct {
    case_fn attrs, fill;
} op_rules;

#define CASE(name, attributes, filling) \
    static const op_rules orth_case_##name = {attrs_##attributes, fill_##filling};
#include "op_cases.def"
#undef CASE

/* A row of ops.def without one of op_cases.def does not compile here. */
static inline op_rules case_rules(orth_op op)
{
    switch (op) {
#define OP(name, ...) \
    case ORTH_OP_##name: return orth_case_##name;
#include "kernels/ops.def"
#undef OP
    default: fail_msg("%s has no kernels", orth_op_name(op)); return orth_case_zero;
    }
}

/* absent: bit k for input k, bit num_in + k for output k. */
static inline op_case case_draw_parts(orth_op op, uint64_t seed, orth_dtype compute, uint32_t absent, bool wide, int32_t parts)
{
    op_case all = {.compute = compute, .seed = seed, .absent = absent, .wide = wide, .parts = parts}, *c = &all;
    const op_rules rules = case_rules(op);
    c->step = (orth_step_values){.seed = 7, .step = 3, .lr = 0.01f, .weight_decay = 0.1f, .beta1 = 0.9, .beta2 = 0.95,
                                 .eps = 1e-8f, .momentum = 0.9f, .clip_norm = 1, .loss_scale = 0.125f, .clip_scale = 0.5f};
    orth_signature_of(op, &c->sig);
    for (int i = 0; i < c->sig.num_letters; i++)
        c->value[i] = -1;
    rules.attrs(c);
    c->attr = orth_attr_for(op, &c->attr); /* what a kernel reads beyond these is zero */
    if (wide) /* whole sequences, which derivatives are summed over */
        case_force(c, "N", (int64_t)c->attr.num_seqs * c->attr.seq_len);
    for (int i = 0; i < c->sig.num_letters; i++)
        if (c->sig.letter[i].attr >= 0)
            c->value[i] = orth_signature_attr(&c->attr, c->sig.letter[i].attr);
    case_solve(c);
    c->num_in = c->sig.num_in + c->attr.num_addends;
    c->num_out = c->sig.num_out;
    for (int k = 0; k < c->sig.num_in + c->num_out; k++) {
        orth_tensor *t = k < c->sig.num_in ? &c->in[k] : &c->out[k - c->sig.num_in];
        *t = case_make(c, k, absent >> k & 1);
    }
    for (int k = c->sig.num_in; k < c->num_in; k++) {
        c->in[k] = case_shape(c, &c->sig.out[0]);
        c->in[k].data = guarded_alloc(case_bytes(c, &c->in[k]));
        case_fill(c, &c->sig.out[0], &c->in[k], 40 + (uint64_t)k);
    }
    rules.fill(c);
    return all;
}

static inline op_case case_draw(orth_op op, uint64_t seed, orth_dtype compute, uint32_t absent, bool wide)
{
    return case_draw_parts(op, seed, compute, absent, wide, 0);
}

#endif
