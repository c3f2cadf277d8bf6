/* mesh.c -- see mesh.h. */
#include "parallel/mesh.h"

#include <inttypes.h>
#include <string.h>

static const char *const axis_names[ORTH_NUM_AXES] = {"tp", "cp", "shard", "replicate", "pp"};

/* ---- placement ---- */

/* The axes that a word of the order names, fastest first: dp is shard, then replicate. 0: none. */
static int axes_of_word(const char *word, size_t n, orth_axis out[2])
{
    if (n == 2 && memcmp(word, "dp", 2) == 0) {
        out[0] = ORTH_AXIS_SHARD;
        out[1] = ORTH_AXIS_REPLICATE;
        return 2;
    }
    for (int a = 0; a < ORTH_NUM_AXES; a++) {
        if (strlen(axis_names[a]) == n && memcmp(axis_names[a], word, n) == 0) {
            out[0] = (orth_axis)a;
            return 1;
        }
    }
    return 0;
}

static orth_status parse_order(orth_ctx *ctx, const char *text, orth_axis order[ORTH_NUM_AXES])
{
    orth_axes seen = 0;
    int n = 0;
    for (const char *at = text; *at;) {
        const size_t length = strcspn(at, ", ");
        orth_axis found[2];
        const int num = axes_of_word(at, length, found);
        if (num == 0)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG,
                             "order=%s: \"%.*s\" is not an axis; there are tp, cp, dp, pp, and "
                             "shard and replicate in place of dp", text, (int)ORTH_MIN(length, 40), at);
        for (int i = 0; i < num; i++) {
            if (seen >> found[i] & 1)
                return ORTH_FAIL(ctx, ORTH_ERR_ARG, "order=%s: %s is there twice", text,
                                 axis_names[found[i]]);
            seen |= 1u << found[i];
            order[n++] = found[i];
        }
        at += length;
        at += strspn(at, ", ");
    }
    for (int a = 0; a < ORTH_NUM_AXES; a++)
        if (!(seen >> a & 1))
            order[n++] = (orth_axis)a;
    return ORTH_OK;
}

orth_status orth_mesh_init(orth_ctx *ctx, orth_mesh *out, const orth_mesh_options *o)
{
    const struct {
        const char *name;
        int64_t size;
    } given[] = {{"dp", o->dp}, {"tp", o->tp}, {"pp", o->pp}, {"cp", o->cp}};
    orth_mesh m = {.num_ranks = 1};
    for (int i = 0; i < ORTH_COUNT(given); i++)
        if (given[i].size < 1 || given[i].size > INT32_MAX)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s=%" PRId64 ": an axis has 1 to %d ranks", given[i].name,
                             given[i].size, INT32_MAX);
    const int64_t shard = o->shard_group ? o->shard_group : o->dp;
    if (shard < 1 || o->dp % shard != 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "shard_group=%" PRId64 " does not divide dp=%" PRId64, shard,
                         o->dp);
    m.size[ORTH_AXIS_TP] = (int32_t)o->tp;
    m.size[ORTH_AXIS_CP] = (int32_t)o->cp;
    m.size[ORTH_AXIS_SHARD] = (int32_t)shard;
    m.size[ORTH_AXIS_REPLICATE] = (int32_t)(o->dp / shard);
    m.size[ORTH_AXIS_PP] = (int32_t)o->pp;
    ORTH_TRY(parse_order(ctx, o->order ? o->order : "", m.order));
    for (int i = 0; i < ORTH_NUM_AXES; i++) {
        const orth_axis a = m.order[i];
        if (m.size[a] > INT32_MAX / m.num_ranks)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "the mesh has more than %d ranks", INT32_MAX);
        m.stride[a] = m.num_ranks;
        m.num_ranks *= m.size[a];
    }
    *out = m;
    return ORTH_OK;
}

int orth_mesh_moved(const orth_mesh *m, int rank, orth_axis axis, int coord)
{
    return rank + (coord - orth_mesh_coord(m, rank, axis)) * m->stride[axis];
}

/* ---- groups ---- */

int orth_mesh_group_size(const orth_mesh *m, orth_axes axes)
{
    int n = 1;
    for (int a = 0; a < ORTH_NUM_AXES; a++)
        n *= axes >> a & 1 ? m->size[a] : 1;
    return n;
}

int orth_mesh_group_pos(const orth_mesh *m, int rank, orth_axes axes)
{
    int pos = 0, step = 1;
    for (int a = 0; a < ORTH_NUM_AXES; a++) {
        if (!(axes >> a & 1))
            continue;
        pos += orth_mesh_coord(m, rank, (orth_axis)a) * step;
        step *= m->size[a];
    }
    return pos;
}

int orth_mesh_group_member(const orth_mesh *m, int rank, orth_axes axes, int pos)
{
    for (int a = 0; a < ORTH_NUM_AXES; a++) {
        if (!(axes >> a & 1))
            continue;
        rank = orth_mesh_moved(m, rank, (orth_axis)a, pos % m->size[a]);
        pos /= m->size[a];
    }
    return rank;
}

void orth_mesh_group(const orth_mesh *m, int rank, orth_axes axes, int *ranks)
{
    const int n = orth_mesh_group_size(m, axes);
    for (int pos = 0; pos < n; pos++)
        ranks[pos] = orth_mesh_group_member(m, rank, axes, pos);
}

/* ---- hosts ---- */

int orth_mesh_host(int rank, int ranks_per_host)
{
    return ranks_per_host > 0 ? rank / ranks_per_host : 0;
}

bool orth_mesh_hosts_are_alike(const orth_mesh *m, int ranks_per_host)
{
    int left = ranks_per_host; /* of a host, in groups of the axes so far */
    for (int i = 0; i < ORTH_NUM_AXES && left > 1; i++) {
        const int size = m->size[m->order[i]];
        if (size % left == 0)
            return true;
        if (left % size != 0)
            return false;
        left /= size;
    }
    return true;
}

bool orth_mesh_inside_host(const orth_mesh *m, orth_axes axes, int ranks_per_host)
{
    /* A rank and the first member of its group, for every rank: all members are then on one host. */
    for (int r = 0; r < m->num_ranks; r++)
        if (orth_mesh_host(r, ranks_per_host) !=
            orth_mesh_host(orth_mesh_group_member(m, r, axes, 0), ranks_per_host))
            return false;
    return true;
}

/* ---- explain ---- */

static void print_axis(orth_ctx *ctx, orth_text *out, const orth_mesh *m, const char *name, orth_axes axes,
                       int ranks_per_host)
{
    const int n = orth_mesh_group_size(m, axes);
    orth_text_addf(ctx, out, "  %-10s %5d ranks", name, n);
    if (n > 1) {
        orth_text_addf(ctx, out, ", as in %d %d", orth_mesh_group_member(m, 0, axes, 0),
                       orth_mesh_group_member(m, 0, axes, 1));
        if (n > 2)
            orth_text_addf(ctx, out, " %s%d", n > 3 ? "... " : "", orth_mesh_group_member(m, 0, axes, n - 1));
        if (ranks_per_host > 0)
            orth_text_add(ctx, out, orth_mesh_inside_host(m, axes, ranks_per_host) ? "; inside a host"
                                                                                   : "; across hosts");
    }
    orth_text_add(ctx, out, "\n");
}

/* dp is one axis, unless it is made of shards and replicas. */
static const char *shown_name(const orth_mesh *m, int axis)
{
    const bool of_dp = axis == ORTH_AXIS_SHARD || axis == ORTH_AXIS_REPLICATE;
    const bool split = m->size[ORTH_AXIS_SHARD] > 1 && m->size[ORTH_AXIS_REPLICATE] > 1;
    return of_dp && !split ? "dp" : axis_names[axis];
}

static void print_ranks(orth_ctx *ctx, orth_text *out, const orth_mesh *m, int ranks_per_host, int max_ranks)
{
    const int n = ORTH_MIN(m->num_ranks, max_ranks);
    if (n < 1)
        return;
    orth_text_add(ctx, out, "   rank  host");
    for (int i = ORTH_NUM_AXES - 1; i >= 0; i--)
        if (m->size[m->order[i]] > 1)
            orth_text_addf(ctx, out, " %9s", shown_name(m, m->order[i]));
    orth_text_add(ctx, out, "\n");
    for (int r = 0; r < n; r++) {
        orth_text_addf(ctx, out, " %6d %5d", r, orth_mesh_host(r, ranks_per_host));
        for (int i = ORTH_NUM_AXES - 1; i >= 0; i--)
            if (m->size[m->order[i]] > 1)
                orth_text_addf(ctx, out, " %9d", orth_mesh_coord(m, r, m->order[i]));
        orth_text_add(ctx, out, "\n");
    }
    if (n < m->num_ranks)
        orth_text_addf(ctx, out, "   ... %d more\n", m->num_ranks - n);
}

void orth_mesh_print(orth_ctx *ctx, orth_text *out, const orth_mesh *m, int ranks_per_host, int max_ranks)
{
    orth_text_addf(ctx, out, "mesh of %d ranks", m->num_ranks);
    if (ranks_per_host > 0)
        orth_text_addf(ctx, out, " on %d hosts of %d", (int)orth_div_up(m->num_ranks, ranks_per_host),
                       ranks_per_host);
    orth_text_add(ctx, out, ", fastest axis first:\n");
    for (int i = 0; i < ORTH_NUM_AXES; i++)
        if (m->size[m->order[i]] > 1)
            print_axis(ctx, out, m, shown_name(m, m->order[i]), 1u << m->order[i], ranks_per_host);
    if (m->size[ORTH_AXIS_REPLICATE] > 1 && m->size[ORTH_AXIS_SHARD] > 1)
        print_axis(ctx, out, m, "dp", ORTH_AXES_DP, ranks_per_host);
    print_ranks(ctx, out, m, ranks_per_host, max_ranks);
}
