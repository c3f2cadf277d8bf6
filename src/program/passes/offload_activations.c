/* offload_activations.c -- see offload_activations.h.
 *
 * The first pass over the buffers finds gaps, makes the buffers on both sides and the moves between; the second writes the program
 * anew with the moves in it. What a move waits for is derived later, like all events (order.h): the copy in waits for the copy out by
 * the bytes that it reads, a reader for the copy in, and whoever takes over the room of what left, for the copy out.
 */
#include "program/passes/offload_activations.h"

#include <stdlib.h>

#include "program/ir/cost.h"
#include "program/passes/rewrite.h"

/* From old instruction `from` on, operands that name the old buffer name `now` instead. */
typedef struct {
    int32_t from, now;
    int32_t next;                  /* a later one of the same buffer; -1 */
} stay;

/* A copy from a whole buffer to another. Instructions are old ones. */
typedef struct {
    int32_t at;                    /* it stands before this one */
    int32_t until;                 /* its operands live until before this one */
    int32_t like;                  /* it has the tags of this one */
    int32_t from, to;              /* buffers */
    int32_t number;
} move;

typedef struct {
    orth_rewrite r;
    orth_space to;
    size_t min_bytes;
    double *work;                  /* [r.num + 1] FLOPs before each instruction */
    double stretch;
    stay *stays;                   /* [num_stays] */
    move *moves;                   /* [num_moves] */
    int32_t *stays_of;             /* [buffers of the old list] the first stay behind a gap; -1 */
    int32_t num_stays, num_moves;
} pass;

/* ---- distances ---- */

static bool is_forward_of_layer(const orth_instr *n)
{
    return n->phase == ORTH_PHASE_FORWARD && n->block == ORTH_BLOCK_LAYER && !n->recomputed;
}

/* Sums up work, and finds the stretch: the mean over layers and micro-batches, whose forwards come one after the other. */
static void measure(pass *s)
{
    double sum = 0;
    int32_t forwards = 0, layer = -1, micro_batch = -1;
    for (int32_t i = 0; i < s->r.num; i++) {
        const orth_instr *n = &s->r.old[i];
        const double flops = orth_op_is_comm(n->op) ? 0 : orth_instr_cost(n).hardware_flops;
        s->work[i + 1] = s->work[i] + flops;
        if (flops <= 0 || !is_forward_of_layer(n))
            continue;
        forwards += n->layer != layer || n->micro_batch != micro_batch;
        layer = n->layer;
        micro_batch = n->micro_batch;
        sum += flops;
    }
    s->stretch = forwards > 0 ? sum / forwards : 0;
}

/* The first instruction behind `at` before which `stretches` are computed, at most `last`. */
static int32_t later(const pass *s, int32_t at, int stretches, int32_t last)
{
    int32_t i = at + 1;
    while (i < last && s->work[i] - s->work[at] < stretches * s->stretch)
        i++;
    return i;
}

/* The last instruction before `at` from which on `stretches` are computed until then, at least `first`. */
static int32_t sooner(const pass *s, int32_t at, int stretches, int32_t first)
{
    int32_t i = at - 1;
    while (i > first && s->work[at] - s->work[i] < stretches * s->stretch)
        i--;
    return i;
}

/* Copies of one direction: to and from a file there are two. */
static int num_hops(const pass *s)
{
    return s->to == ORTH_SPACE_FILE ? 2 : 1;
}

/* ---- gaps ---- */

/* A buffer for the bytes of `like`, in a space; suffix: behind its name. */
static int32_t add_buffer(pass *s, int32_t like, orth_space space, const char *suffix)
{
    orth_program *p = s->r.p;
    orth_buffer b = {.name = orth_arena_printf(s->r.ctx, &p->arena, "%s%s", p->buffers[like].name, suffix),
                     .bytes = p->buffers[like].bytes, .cls = ORTH_CLASS_ACTIVATIONS, .of = like + 1};
    p->failed = p->failed || !b.name;
    const int32_t added = orth_program_add_buffer(p, &b);
    if (!p->failed)
        p->buffers[added].space = space;
    return added;
}

static void add_move(pass *s, int32_t at, int32_t until, int32_t like, int32_t from, int32_t to)
{
    s->moves[s->num_moves] = (move){at, until, like, from, to, s->num_moves};
    s->num_moves++;
}

/* The buffer leaves before instruction `at`; by `reader` it is needed again. Returns where it is meanwhile. */
static int32_t send_away(pass *s, int32_t buffer, int32_t at, int32_t reader)
{
    const int32_t like = s->r.uses[s->r.first_use[buffer]].instr, there = later(s, at, 1, reader - 1);
    const int32_t host = add_buffer(s, buffer, ORTH_SPACE_HOST, s->to == ORTH_SPACE_FILE ? ".out" : ".host");
    add_move(s, at, there, like, buffer, host);
    if (s->to != ORTH_SPACE_FILE)
        return host;
    const int32_t file = add_buffer(s, buffer, ORTH_SPACE_FILE, ".file");
    add_move(s, at, later(s, at, 2, reader - 1), like, host, file);
    return file;
}

/* It comes back for `reader`. It left before instruction `first`. Returns the buffer that readers name from then on. */
static int32_t bring_back(pass *s, int32_t buffer, int32_t away, int32_t reader, int32_t first)
{
    const int32_t back = add_buffer(s, buffer, s->r.p->space, "");
    int32_t host = away;
    if (s->to == ORTH_SPACE_FILE) {
        host = add_buffer(s, buffer, ORTH_SPACE_HOST, ".in");
        add_move(s, sooner(s, reader, 2, first), reader, reader, away, host);
    }
    add_move(s, sooner(s, reader, 1, first), reader, reader, host, back);
    return back;
}

static bool may_leave(const pass *s, int32_t buffer)
{
    const orth_buffer *b = &s->r.p->buffers[buffer];
    for (int32_t u = s->r.first_use[buffer]; u < s->r.first_use[buffer + 1]; u++)
        if (orth_op_family_of(s->r.old[s->r.uses[u].instr].op) == ORTH_OPS_PACK)
            return false; /* a gathered weight or its packed form, which belong together */
    return b->cls == ORTH_CLASS_ACTIVATIONS && b->space == s->r.p->space && !b->persistent && !b->external && b->prev < 0 && b->next < 0 &&
           b->bytes > 0 && b->bytes >= s->min_bytes;
}

/* Cuts a buffer where it is not used for long, behind its last writer: what is away cannot be written. */
static void cut(pass *s, int32_t buffer)
{
    const orth_use *u = s->r.uses + s->r.first_use[buffer], *end = s->r.uses + s->r.first_use[buffer + 1], *written = u;
    int32_t away = -1, free_at = 0, last = -1;
    for (const orth_use *k = u; k < end; k++)
        written = k->writes ? k : written;
    for (; u < end; u++) {
        if (u > written && s->work[u->instr] - s->work[free_at] >= (2 * num_hops(s) + 1) * s->stretch) {
            if (away < 0)
                away = send_away(s, buffer, free_at, u->instr);
            s->stays[s->num_stays] = (stay){u->instr, bring_back(s, buffer, away, u->instr, free_at), -1};
            *(last < 0 ? &s->stays_of[buffer] : &s->stays[last].next) = s->num_stays;
            last = s->num_stays++;
        }
        free_at = ORTH_MAX(free_at, ORTH_MAX(u->instr + 1, s->r.old[u->instr].until)); /* a call holds on to it */
    }
}

/* ---- the new program ---- */

/* By place; at one place what is wanted first, first. */
static int by_place(const void *a, const void *b)
{
    const move *x = a, *y = b;
    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    if (x->until != y->until)
        return x->until < y->until ? -1 : 1;
    return x->number < y->number ? -1 : 1;
}

static void append_move(pass *s, const move *m)
{
    const int64_t bytes = (int64_t)s->r.p->buffers[m->from].bytes;
    const orth_operand from = orth_operand_of(m->from, ORTH_U8, 1, &bytes), to = orth_operand_of(m->to, ORTH_U8, 1, &bytes);
    orth_instr *n = orth_program_add_instr(s->r.p, ORTH_OP_copy, &(orth_attr){0}, 1, &from, 1, &to);
    if (!n)
        return;
    orth_instr_tag_as(n, &s->r.old[m->like]);
    n->block = ORTH_BLOCK_NONE; /* no node was lowered to it, and it repeats none */
    n->node = -1;
    n->recomputed = false;
    n->until = m->until;
}

/* What instruction i means by the buffer. */
static int32_t now_at(const pass *s, int32_t buffer, int32_t i)
{
    int32_t now = buffer;
    for (int32_t k = buffer < 0 ? -1 : s->stays_of[buffer]; k >= 0 && s->stays[k].from <= i; k = s->stays[k].next)
        now = s->stays[k].now;
    return now;
}

/* Old instruction i, whose operands are shared unless one of them is elsewhere now. */
static void append_old(pass *s, int32_t i)
{
    const orth_instr *old = &s->r.old[i];
    orth_instr *n = orth_program_append(s->r.p, old);
    bool moved = false;
    for (int k = 0; k < orth_instr_num_operands(old); k++)
        moved = moved || now_at(s, orth_instr_operand(old, k)->buffer, i) != orth_instr_operand(old, k)->buffer;
    if (!n || !moved || !orth_program_own_operands(s->r.p, n))
        return;
    for (int k = 0; k < orth_instr_num_operands(n); k++) { /* inputs and outputs lie side by side */
        orth_operand *o = &n->in[k];
        o->buffer = now_at(s, o->buffer, i);
    }
}

static void rewrite(pass *s)
{
    int32_t m = 0;
    qsort(s->moves, (size_t)s->num_moves, sizeof *s->moves, by_place);
    for (int32_t i = 0; i < s->r.num && !s->r.p->failed; i++) {
        orth_rewrite_reach(&s->r, i);
        for (; m < s->num_moves && s->moves[m].at == i; m++)
            append_move(s, &s->moves[m]);
        append_old(s, i);
    }
    orth_rewrite_reach(&s->r, s->r.num);
}

orth_status orth_offload_activations(orth_ctx *ctx, orth_program *p, orth_space to, size_t min_bytes)
{
    const int32_t num_buffers = p->num_buffers;
    pass s = {.to = to, .min_bytes = min_bytes};
    ORTH_TRY(orth_rewrite_begin(ctx, p, &s.r));
    const int64_t num_uses = s.r.first_use[num_buffers]; /* each begins a stay at most */
    s.work = ORTH_NEW_ARRAY(ctx, double, (int64_t)s.r.num + 1);
    s.stays = ORTH_NEW_ARRAY(ctx, stay, num_uses + 1);
    s.moves = ORTH_NEW_ARRAY(ctx, move, 4 * num_uses + 1);
    s.stays_of = ORTH_NEW_ARRAY(ctx, int32_t, num_buffers + 1);
    if (s.work && s.stays && s.moves && s.stays_of) {
        memset(s.stays_of, -1, (size_t)num_buffers * sizeof *s.stays_of);
        measure(&s);
        for (int32_t b = 0; b < num_buffers && s.stretch > 0; b++)
            if (may_leave(&s, b))
                cut(&s, b);
        rewrite(&s);
    } else {
        p->failed = true;
    }
    orth_mem_free(ctx, s.work);
    orth_mem_free(ctx, s.stays);
    orth_mem_free(ctx, s.moves);
    orth_mem_free(ctx, s.stays_of);
    return orth_rewrite_end(&s.r);
}
