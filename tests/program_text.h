/* program_text.h -- all of a program as text, a line for each instruction and buffer: what a change that is to change no
 * program is held against (tests/tool/program_text.c). Fields that are 0 are left out, so that a new field changes no text
 * before somebody sets it. Fields of which -1 says that there is none (layer, micro_batch, action, block, node, alias, prev, next) are
 * printed plus 1.
 */
#ifndef ORTH_TESTS_PROGRAM_TEXT_H
#define ORTH_TESTS_PROGRAM_TEXT_H

#include <inttypes.h>

#include "program/check/check_flow.h"
#include "program/ir/program.h"

typedef struct {
    FILE *out;
    const orth_program *p;
    const orth_rank_groups *groups;
    const char *without;   /* ",name,name," fields that are left out */
} program_text;

static inline bool program_text_wants(const program_text *t, const char *name)
{
    char key[64];
    if (!t->without)
        return true;
    snprintf(key, sizeof key, ",%s,", name);
    return !strstr(t->without, key);
}

static inline void program_text_int(const program_text *t, const char *name, int64_t value)
{
    if (value != 0 && program_text_wants(t, name))
        fprintf(t->out, " %s=%" PRId64, name, value);
}

static inline void program_text_real(const program_text *t, const char *name, double value)
{
    if (value != 0 && program_text_wants(t, name))
        fprintf(t->out, " %s=%a", name, value);
}

/* The names of the fields are those of the structs. */
#define PROGRAM_TEXT_INT(t, s, field) program_text_int(t, #field, (int64_t)(s)->field)
#define PROGRAM_TEXT_REAL(t, s, field) program_text_real(t, #field, (double)(s)->field)

static inline void program_text_split(const program_text *t, const char *name, const orth_split *s)
{
    if (s->parts == 0 || !program_text_wants(t, name))
        return;
    fprintf(t->out, " %s=%d:%d:%" PRId64 ":%" PRId64 ":%" PRId64 ":%d:%d", name, (int)s->kind, s->parts, s->units, s->unit,
            s->group, s->first, s->of);
}

static inline void program_text_attr(const program_text *t, const orth_attr *a)
{
    PROGRAM_TEXT_INT(t, a, num_seqs);
    PROGRAM_TEXT_INT(t, a, seq_len);
    PROGRAM_TEXT_INT(t, a, token_parts);
    PROGRAM_TEXT_INT(t, a, heads);
    PROGRAM_TEXT_INT(t, a, kv_heads);
    PROGRAM_TEXT_INT(t, a, head_dim);
    PROGRAM_TEXT_INT(t, a, first_head);
    PROGRAM_TEXT_INT(t, a, head_parts);
    PROGRAM_TEXT_INT(t, a, shares_kv);
    PROGRAM_TEXT_INT(t, a, replica_rows);
    program_text_split(t, "split", &a->split);
    program_text_split(t, "split_out", &a->split_out);
    PROGRAM_TEXT_INT(t, a, act);
    PROGRAM_TEXT_INT(t, a, norm);
    PROGRAM_TEXT_REAL(t, a, eps);
    PROGRAM_TEXT_REAL(t, a, scale);
    PROGRAM_TEXT_REAL(t, a, dropout);
    PROGRAM_TEXT_INT(t, a, site);
    PROGRAM_TEXT_INT(t, a, num_addends);
    PROGRAM_TEXT_INT(t, a, inverse);
    PROGRAM_TEXT_INT(t, a, nesterov);
    PROGRAM_TEXT_REAL(t, a, lr_factor);
    PROGRAM_TEXT_REAL(t, a, decay_factor);
    PROGRAM_TEXT_INT(t, a, piece);
    PROGRAM_TEXT_INT(t, a, num_pieces);
    PROGRAM_TEXT_INT(t, a, full_len);
    PROGRAM_TEXT_INT(t, a, slot_begin);
    PROGRAM_TEXT_INT(t, a, slot_count);
    PROGRAM_TEXT_INT(t, a, key_begin);
    PROGRAM_TEXT_INT(t, a, num_keys);
    PROGRAM_TEXT_INT(t, a, full);
    PROGRAM_TEXT_INT(t, a, first_row);
    PROGRAM_TEXT_INT(t, a, block_rows);
    PROGRAM_TEXT_INT(t, a, first_part);
    PROGRAM_TEXT_INT(t, a, group);
    PROGRAM_TEXT_INT(t, a, maximum);
    PROGRAM_TEXT_INT(t, a, peer);
    PROGRAM_TEXT_INT(t, a, nodes);
    PROGRAM_TEXT_INT(t, a, partial);
    PROGRAM_TEXT_INT(t, a, sum_leaves);
}

/* Buffers are numbered, as several may have one name. */
static inline void program_text_buffer_name(const program_text *t, int32_t buffer)
{
    fprintf(t->out, "%s", t->p->buffers[buffer].name);
    if (program_text_wants(t, "number"))
        fprintf(t->out, "#%d", buffer);
}

static inline void program_text_operand(const program_text *t, const orth_operand *o)
{
    if (o->buffer < 0) {
        fprintf(t->out, " -");
        return;
    }
    fputc(' ', t->out);
    program_text_buffer_name(t, o->buffer);
    fprintf(t->out, "+%zu%s", o->byte_offset, orth_dtype_name(o->dtype));
    for (int i = 0; i < o->num_dims; i++)
        fprintf(t->out, "%c%" PRId64, i ? 'x' : '[', o->dim[i]);
    fputc(']', t->out);
}

static inline void program_text_counts(const program_text *t, const orth_instr *n)
{
    const int rows = n->coalesced ? n->num_in + 1 : ORTH_MAX(n->num_in, n->num_out);
    const int num = n->counts ? rows * t->groups->size[n->attr->group] : 0;
    if (!program_text_wants(t, "counts"))
        return;
    for (int i = 0; i < num; i++)
        fprintf(t->out, "%s%" PRId64, i ? "," : " counts=", n->counts[i]);
}

static inline void program_text_instr(const program_text *t, const orth_instr *n)
{
    fprintf(t->out, "%s", orth_op_name(n->op));
    for (int i = 0; i < n->num_out; i++)
        program_text_operand(t, &n->out[i]);
    fprintf(t->out, " <-");
    for (int i = 0; i < n->num_in; i++)
        program_text_operand(t, &n->in[i]);
    PROGRAM_TEXT_INT(t, n, queue);
    PROGRAM_TEXT_INT(t, n, phase);
    program_text_int(t, "layer", n->layer + 1);
    program_text_int(t, "micro_batch", n->micro_batch + 1);
    program_text_int(t, "action", n->action + 1);
    program_text_int(t, "block", n->block + 1);
    program_text_int(t, "node", n->node + 1);
    PROGRAM_TEXT_INT(t, n, coalesced);
    PROGRAM_TEXT_INT(t, n, recomputed);
    program_text_attr(t, n->attr);
    program_text_counts(t, n);
    fputc('\n', t->out);
}

static inline void program_text_buffer(const program_text *t, int32_t at)
{
    const orth_buffer *b = &t->p->buffers[at];
    fprintf(t->out, "buffer ");
    program_text_buffer_name(t, at);
    PROGRAM_TEXT_INT(t, b, bytes);
    PROGRAM_TEXT_INT(t, b, space);
    PROGRAM_TEXT_INT(t, b, cls);
    PROGRAM_TEXT_INT(t, b, persistent);
    PROGRAM_TEXT_INT(t, b, external);
    PROGRAM_TEXT_INT(t, b, bind);
    PROGRAM_TEXT_INT(t, b, index);
    PROGRAM_TEXT_INT(t, b, staging);
    PROGRAM_TEXT_INT(t, b, first_elem);
    PROGRAM_TEXT_INT(t, b, first);
    PROGRAM_TEXT_INT(t, b, last);
    program_text_int(t, "alias", b->alias + 1);
    program_text_int(t, "prev", b->prev + 1);
    program_text_int(t, "next", b->next + 1);
    program_text_int(t, "offset", (int64_t)orth_buffer_begin(t->p, b));
    fputc('\n', t->out);
}

static inline void program_text_write(const program_text *t)
{
    const orth_program *p = t->p;
    for (int32_t i = 0; i < p->num_instrs; i++)
        program_text_instr(t, &p->instrs[i]);
    for (int32_t b = 0; b < p->num_buffers; b++)
        program_text_buffer(t, b);
    fprintf(t->out, "program");
    PROGRAM_TEXT_INT(t, p, workspace);
    for (int k = 0; k < ORTH_NUM_SPACES; k++) {
        program_text_int(t, "space", (int64_t)p->space_bytes[k]);
        for (int c = 0; c < ORTH_NUM_CLASSES; c++)
            program_text_int(t, "class", (int64_t)p->class_bytes[k][c]);
        program_text_int(t, "transient_offset", (int64_t)p->transient_offset[k]);
        program_text_int(t, "transient_bytes", (int64_t)p->transient_bytes[k]);
    }
    PROGRAM_TEXT_INT(t, p, lower_bound);
    PROGRAM_TEXT_INT(t, p, num_tokens);
    PROGRAM_TEXT_INT(t, p, num_updates);
    fputc('\n', t->out);
}

#endif
