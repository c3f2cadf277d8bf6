/* traffic.c -- see traffic.h. */
#include "plan/traffic.h"

#include <inttypes.h>
#include <stdio.h>

#include "program/ir/comm_call.h"

static void add_calls(orth_traffic *t, const orth_comm_call *call, orth_group g, int64_t times, const orth_rank_groups *groups,
                      orth_comm_method m)
{
    t->calls[g][call->kind] += times;
    t->ideal[g][call->kind] += times * orth_comm_bytes(groups->size[g], groups->pos[g], call);
    t->sent[g][call->kind] += times * orth_comm_sent_bytes(m, groups->size[g], groups->pos[g], call);
}

static void add_instr(orth_traffic *t, const orth_program *p, int32_t i, const orth_rank_groups *groups, orth_comm_method m)
{
    const orth_instr *n = &p->instrs[i];
    const orth_group g = n->attr->group;
    for (int k = 0; k < orth_instr_num_calls(n); k++) {
        const orth_comm_call call = orth_instr_call(n, i, k, groups->size[g]);
        add_calls(t, &call, g, 1, groups, m);
    }
}

orth_traffic orth_traffic_planned(const orth_program *p, const orth_rank_groups *groups, orth_comm_method m)
{
    orth_traffic t = {.calls = {{0}}};
    for (int32_t i = 0; i < p->num_instrs; i++)
        add_instr(&t, p, i, groups, m);
    return t;
}

/* ---- many ranks ---- */

struct orth_traffic_kind {
    orth_comm_call call;
    orth_group group;
    int64_t times;
};

static bool sends_alike(const orth_comm_call *a, const orth_comm_call *b)
{
    return a->kind == b->kind && a->dtype == b->dtype && a->count == b->count && a->peer == b->peer &&
           a->counts == b->counts && a->send_counts == b->send_counts;
}

static bool count_call(orth_ctx *ctx, orth_arena *arena, orth_traffic_calls *x, const orth_comm_call *call, orth_group g)
{
    int32_t i = 0;
    while (i < x->num && (x->kinds[i].group != g || !sends_alike(&x->kinds[i].call, call)))
        i++;
    if (i == x->num) {
        if ((i & (i - 1)) == 0) { /* a power of two: full */
            struct orth_traffic_kind *more = ORTH_ARENA_ARRAY(ctx, arena, struct orth_traffic_kind, 2 * (int64_t)i + 1);
            if (!more)
                return false;
            if (i > 0)
                memcpy(more, x->kinds, (size_t)i * sizeof *more);
            x->kinds = more;
        }
        x->kinds[x->num++] = (struct orth_traffic_kind){*call, g, 0};
    }
    x->kinds[i].times++;
    return true;
}

orth_status orth_traffic_count(orth_ctx *ctx, orth_arena *arena, const orth_program *p, const orth_rank_groups *sizes,
                               orth_traffic_calls *out)
{
    *out = (orth_traffic_calls){.shard = -1};
    for (int32_t i = 0, own = 0; i < p->num_instrs; i++) {
        const orth_instr *n = &p->instrs[i];
        if (own < p->num_own && p->own[own] == i) {
            out->own_groups |= orth_instr_num_calls(n) > 0 ? 1u << n->attr->group : 0;
            own++;
            continue;
        }
        for (int k = 0; k < orth_instr_num_calls(n); k++) {
            const orth_comm_call call = orth_instr_call(n, i, k, sizes->size[n->attr->group]);
            if (!count_call(ctx, arena, out, &call, n->attr->group))
                return ORTH_ERR_NOMEM;
        }
    }
    return ORTH_OK;
}

static bool is_own_known(const orth_traffic_calls *x, const orth_program *p, const orth_rank_groups *groups)
{
    bool known = x->shard == p->shard;
    for (int g = 0; g < ORTH_NUM_GROUPS; g++)
        known = known && (!(x->own_groups >> g & 1) || x->groups.pos[g] == groups->pos[g]);
    return known;
}

orth_traffic orth_traffic_of_calls(orth_traffic_calls *x, const orth_program *p, const orth_rank_groups *groups, orth_comm_method m)
{
    if (!is_own_known(x, p, groups)) {
        x->own = (orth_traffic){.calls = {{0}}};
        for (int32_t i = 0; i < p->num_own; i++)
            add_instr(&x->own, p, p->own[i], groups, m);
        x->groups = *groups;
        x->shard = p->shard;
    }
    orth_traffic t = x->own;
    for (int32_t i = 0; i < x->num; i++)
        add_calls(&t, &x->kinds[i].call, x->kinds[i].group, x->kinds[i].times, groups, m);
    return t;
}

orth_traffic orth_traffic_counted(orth_comm *const comms[ORTH_NUM_GROUPS])
{
    orth_traffic t = {.calls = {{0}}};
    for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
        if (!comms[g])
            continue;
        const orth_comm_counts c = orth_comm_counted(comms[g]);
        memcpy(t.calls[g], c.calls, sizeof c.calls);
        memcpy(t.ideal[g], c.ideal, sizeof c.ideal);
        memcpy(t.sent[g], c.sent, sizeof c.sent);
    }
    return t;
}

static bool has_calls(const orth_traffic *t, int g)
{
    bool any = false;
    for (int k = 0; k < ORTH_NUM_COMM_KINDS; k++)
        any |= t->calls[g][k] > 0;
    return any;
}

void orth_traffic_json(orth_json_out *j, const char *key, const orth_traffic *t, bool ideal)
{
    orth_json_open(j, key, '{');
    for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
        if (!has_calls(t, g))
            continue;
        orth_json_open(j, orth_group_name((orth_group)g), '{');
        for (int k = 0; k < ORTH_NUM_COMM_KINDS; k++)
            if (t->calls[g][k] > 0)
                orth_json_print(j, orth_comm_kind_name((orth_comm_kind)k), "%" PRId64, ideal ? t->ideal[g][k] : t->sent[g][k]);
        orth_json_close(j, '}');
    }
    orth_json_close(j, '}');
}

void orth_traffic_add(orth_traffic *sum, const orth_traffic *t)
{
    for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
        for (int k = 0; k < ORTH_NUM_COMM_KINDS; k++) {
            sum->calls[g][k] += t->calls[g][k];
            sum->ideal[g][k] += t->ideal[g][k];
            sum->sent[g][k] += t->sent[g][k];
        }
    }
}

orth_traffic orth_traffic_minus(const orth_traffic *a, const orth_traffic *b)
{
    orth_traffic d;
    for (int g = 0; g < ORTH_NUM_GROUPS; g++) {
        for (int k = 0; k < ORTH_NUM_COMM_KINDS; k++) {
            d.calls[g][k] = a->calls[g][k] - b->calls[g][k];
            d.ideal[g][k] = a->ideal[g][k] - b->ideal[g][k];
            d.sent[g][k] = a->sent[g][k] - b->sent[g][k];
        }
    }
    return d;
}
