/* mixed.c -- see mixed.h. */
#include "plan/mixed.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>

#include "base/text.h"
#include "base/yaml.h"
#include "plan/goodput.h"

typedef struct {
    const char *file;
    orth_mixed *m;
    struct {
        char hardware[256], place[96];   /* place: where `hardware` was given */
        double nodes, devices;
    } written[ORTH_MAX_DEVICE_GROUPS];
    double GBps, share, latency_us;
} reading;

static const orth_described_row link_rows[] = {
    {.path = "between.GBps", .min = 0.01, .max = 1e5, .unit = "GB/s", .offset = offsetof(reading, GBps)},
    {.path = "between.share", .min = 0.05, .max = 1, .unit = "", .offset = offsetof(reading, share)},
    {.path = "between.latency_us", .max = 1e6, .unit = "us", .offset = offsetof(reading, latency_us)},
};

/* ---- is it one? ---- */

static orth_yaml_kind any_kind(void *user, const char *path)
{
    if (strcmp(path, "groups") == 0)
        *(bool *)user = true;
    return ORTH_YAML_ANY;
}

static orth_status take_nothing(orth_ctx *ctx, void *user, const char *path, const char *place, const orth_written *value)
{
    (void)ctx, (void)user, (void)path, (void)place, (void)value;
    return ORTH_OK;
}

bool orth_mixed_is(orth_ctx *ctx, const char *text, size_t num_bytes)
{
    const orth_yaml_schema schema = {"a description of hardware", "node: {devices: 8}", any_kind, take_nothing, NULL};
    bool is = false;
    if (orth_yaml_parse(ctx, &schema, &is, "", text, num_bytes) != ORTH_OK)
        orth_ctx_clear_error(ctx); /* whoever reads it says why */
    return is;
}

/* ---- reading ---- */

/* "fast" and "nodes" of "groups.fast.nodes". */
static bool cut_path(const char *path, char name[ORTH_DESCRIBED_TEXT_MAX], const char **key)
{
    static const char prefix[] = "groups.";
    if (strncmp(path, prefix, strlen(prefix)) != 0)
        return false;
    const char *begin = path + strlen(prefix), *dot = strrchr(begin, '.');
    const size_t n = dot ? (size_t)(dot - begin) : strlen(begin);
    if (n == 0 || n >= ORTH_DESCRIBED_TEXT_MAX)
        return false;
    memcpy(name, begin, n);
    name[n] = '\0';
    *key = dot ? dot + 1 : NULL;
    return true;
}

static orth_yaml_kind kind(void *user, const char *path)
{
    (void)user;
    char name[ORTH_DESCRIBED_TEXT_MAX];
    const char *key;
    if (strcmp(path, "groups") == 0 || strcmp(path, "between") == 0)
        return ORTH_YAML_SECTION;
    for (int i = 0; i < ORTH_COUNT(link_rows); i++)
        if (strcmp(path, link_rows[i].path) == 0)
            return ORTH_YAML_VALUE;
    if (!cut_path(path, name, &key))
        return ORTH_YAML_UNKNOWN;
    if (!key)
        return ORTH_YAML_SECTION;
    const bool known = strcmp(key, "hardware") == 0 || strcmp(key, "nodes") == 0 || strcmp(key, "devices") == 0;
    return known ? ORTH_YAML_VALUE : ORTH_YAML_UNKNOWN;
}

static orth_status unknown(orth_ctx *ctx, void *user, const char *place, const char *path)
{
    (void)user;
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: unknown key '%s' of a cluster of groups: it has groups.NAME.hardware, nodes and devices, and "
                     "between.GBps, share and latency_us", place, path);
}

static orth_status find_group(orth_ctx *ctx, reading *r, const char *name, const char *place, int *out)
{
    for (int i = 0; i < r->m->num_groups; i++)
        if (strcmp(r->m->group[i].name, name) == 0) {
            *out = i;
            return ORTH_OK;
        }
    if (r->m->num_groups == ORTH_MAX_DEVICE_GROUPS)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: group '%s': a cluster has at most %d groups", place, name, ORTH_MAX_DEVICE_GROUPS);
    *out = r->m->num_groups++;
    snprintf(r->m->group[*out].name, sizeof r->m->group[*out].name, "%s", name);
    return ORTH_OK;
}

static orth_status put_count(orth_ctx *ctx, double *out, const char *path, const char *place, const char *text)
{
    const orth_described_row row = {.path = path, .min = 1, .max = 1e5, .unit = ""};
    ORTH_TRY(orth_described_number(ctx, &row, out, place, text));
    if (*out != floor(*out))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s=%s: must be a whole number", place, path, text);
    return ORTH_OK;
}

static orth_status put(orth_ctx *ctx, void *user, const char *path, const char *place, const orth_written *value)
{
    reading *r = user;
    char name[ORTH_DESCRIBED_TEXT_MAX];
    const char *key, *text = value->items[0];
    int g;
    if (value->is_list)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s takes one value, not a list", place, path);
    for (int i = 0; i < ORTH_COUNT(link_rows); i++)
        if (strcmp(path, link_rows[i].path) == 0)
            return orth_described_number(ctx, &link_rows[i], (double *)(void *)((char *)r + link_rows[i].offset), place, text);
    cut_path(path, name, &key);
    ORTH_TRY(find_group(ctx, r, name, place, &g));
    if (strcmp(key, "hardware") != 0)
        return put_count(ctx, strcmp(key, "nodes") == 0 ? &r->written[g].nodes : &r->written[g].devices, path, place, text);
    snprintf(r->written[g].hardware, sizeof r->written[g].hardware, "%s", text);
    snprintf(r->written[g].place, sizeof r->written[g].place, "%s", place);
    return ORTH_OK;
}

/* The hardware of a group, with the devices of a node that the group says. */
static orth_status load_hardware(orth_ctx *ctx, const reading *r, int i)
{
    orth_device_group *g = &r->m->group[i];
    const char *place = r->written[i].place;
    char names[512];
    bool mixed;
    orth_hardware_names(names, sizeof names);
    if (!orth_hardware_is_name(r->written[i].hardware))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: groups.%s.hardware=%s: must be a .yaml file, or one of %s", place, g->name, ORTH_SHOWN(r->written[i].hardware), names);
    ORTH_TRY(orth_hardware_find_kind(ctx, &g->own, r->written[i].hardware, &mixed));
    const bool counted = g->own.num_devices > 0, host = g->own.has_host;
    if (mixed || counted || host)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: groups.%s.hardware=%s: %s: name a description of one kind of devices; `nodes` and `devices` say how many",
                         place, g->name, r->written[i].hardware,
                         mixed ? "has groups itself" : host ? "is a machine whose ranks share it" : "has a number of devices");
    if (r->written[i].devices > 0)
        g->own.node_devices = r->written[i].devices;
    if (g->own.node_devices > 1 && g->own.node_GBps == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: groups.%s.hardware=%s: node.GBps is missing there: the %.0f devices of a node are linked", place, g->name,
                         r->written[i].hardware, g->own.node_devices);
    return ORTH_OK;
}

/* Calls that leave the group: through the slower of its network and the link between groups. */
static orth_hardware far_of(const orth_hardware *own, const reading *r)
{
    orth_hardware h = *own;
    const double link = r->GBps * r->share, net = own->network_nics * own->network_GBps * own->network_share;
    h.network_nics = 1;
    h.network_GBps = own->has_network ? fmin(link, net) : link;
    h.network_share = h.network_taper = 1;
    h.network_pod_nodes = 0;
    h.network_latency_us = own->has_network ? fmax(r->latency_us, own->network_latency_us) : r->latency_us;
    h.has_network = true;
    return h;
}

static orth_status finish_group(orth_ctx *ctx, const reading *r, int i)
{
    orth_device_group *g = &r->m->group[i];
    if (!r->written[i].hardware[0] || r->written[i].nodes == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: groups.%s.%s is missing", r->file, g->name, r->written[i].hardware[0] ? "nodes" : "hardware");
    ORTH_TRY(load_hardware(ctx, r, i));
    snprintf(g->hardware, sizeof g->hardware, "%s", r->written[i].hardware);
    g->nodes = (int64_t)r->written[i].nodes;
    g->num_devices = g->nodes * (int64_t)g->own.node_devices;
    g->first = i > 0 ? r->m->group[i - 1].first + r->m->group[i - 1].num_devices : 0;
    g->far = far_of(&g->own, r);
    if (g->nodes > 1 && !g->own.has_network)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: groups.%s.nodes=%" PRId64 ": %s has no link between nodes (section network)", r->file, g->name, g->nodes,
                         r->written[i].hardware);
    return ORTH_OK;
}

/* ---- the best of all ---- */

static void take_more(double *best, double other)
{
    *best = fmax(*best, other);
}

static void take_less(double *best, double other)
{
    *best = fmin(*best, other);
}

static void take_better_device(orth_hardware *h, const orth_hardware *g)
{
    take_more(&h->device_memory_GiB, g->device_memory_GiB);
    take_less(&h->device_reserved_GiB, g->device_reserved_GiB);
    take_more(&h->device_memory_GBps, g->device_memory_GBps);
    take_more(&h->device_memory_share, g->device_memory_share);
    take_more(&h->device_fp32_tflops, g->device_fp32_tflops);
    take_more(&h->device_fp16_tflops, g->device_fp16_tflops);
    take_more(&h->device_bf16_tflops, g->device_bf16_tflops);
    take_more(&h->device_fp8_tflops, g->device_fp8_tflops);
    take_more(&h->device_fp4_tflops, g->device_fp4_tflops);
    take_more(&h->device_gemm_share, g->device_gemm_share);
    take_more(&h->device_attention_share, g->device_attention_share);
    take_less(&h->device_launch_us, g->device_launch_us);
    h->device_units = 0; /* no tiles */
}

/* Links as rates of a device, shares included. */
static void take_better_links(orth_hardware *h, const orth_hardware *g)
{
    take_more(&h->node_devices, g->node_devices);
    take_more(&h->node_GBps, g->node_GBps * g->node_share);
    take_less(&h->node_latency_us, g->node_latency_us);
    take_more(&h->node_host_GBps, g->node_host_GBps);
    take_more(&h->node_memory_GBps, g->node_memory_GBps);
    take_more(&h->network_GBps, g->network_GBps * g->network_share * g->network_nics / g->node_devices);
    take_less(&h->network_latency_us, g->network_latency_us);
}

/* Means over devices. A figure that one group lacks is not known of the cluster. */
static void take_means(orth_hardware *h, const orth_mixed *m)
{
    double price = 0, spot = 0, failures = 0, taken = 0;
    for (int i = 0; i < m->num_groups; i++) {
        const orth_hardware *g = &m->group[i].own;
        const double part = (double)m->group[i].num_devices / (double)h->num_devices;
        price += g->has_on_demand ? part * g->price_on_demand : NAN;
        spot += g->price_spot > 0 ? part * orth_spot_price(g) : NAN;
        failures += g->failures_device_hours > 0 ? part / g->failures_device_hours : NAN;
        taken += g->failures_spot_hours > 0 ? (double)m->group[i].nodes * g->price_spot_share / g->failures_spot_hours : NAN;
        h->failures_storage_GBps = i > 0 ? fmin(h->failures_storage_GBps, g->failures_storage_GBps) : g->failures_storage_GBps;
        h->failures_restart_s = fmax(h->failures_restart_s, g->failures_restart_s);
    }
    h->price_on_demand = isnan(price) ? 0 : price;
    h->has_on_demand = !isnan(price);
    h->price_spot = isnan(spot) ? 0 : spot;
    h->price_spot_share = 1; /* shares of groups are in the means */
    h->failures_device_hours = isnan(failures) ? 0 : 1 / failures;
    h->failures_spot_hours = isnan(taken) ? 0 : ceil((double)h->num_devices / h->node_devices) / taken; /* of as many nodes as orth_goodput_on counts */
}

static orth_hardware best_of(const orth_mixed *m)
{
    const orth_device_group *last = &m->group[m->num_groups - 1];
    orth_hardware h = m->group[0].own;
    size_t at = 0;
    h.node_GBps = h.network_GBps = 0;
    for (int i = 0; i < m->num_groups; i++) {
        take_better_device(&h, &m->group[i].own);
        take_better_links(&h, &m->group[i].own);
        take_better_links(&h, &m->group[i].far);
        if (at < sizeof h.device_name)
            at += (size_t)snprintf(h.device_name + at, sizeof h.device_name - at, "%s%s", i > 0 ? " + " : "", m->group[i].name);
    }
    h.node_share = h.network_share = h.network_taper = 1;
    h.network_nics = h.node_devices;
    h.network_pod_nodes = 0;
    h.topology = ORTH_TOPOLOGY_SWITCH;
    h.has_network = true;
    h.num_devices = last->first + last->num_devices;
    take_means(&h, m);
    return h;
}

static orth_status finish(orth_ctx *ctx, const reading *r, orth_hardware *out)
{
    if (r->m->num_groups < 2)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: groups: %d given; a cluster of one kind of devices has no groups (docs/planning.md), others have two at "
                         "least", r->file, r->m->num_groups);
    if (r->GBps == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: between.GBps is missing: the nodes of the groups %s and %s are linked", r->file, r->m->group[0].name,
                         r->m->group[1].name);
    for (int i = 0; i < r->m->num_groups; i++)
        ORTH_TRY(finish_group(ctx, r, i));
    *out = best_of(r->m);
    return ORTH_OK;
}

orth_status orth_mixed_parse(orth_ctx *ctx, orth_hardware *out, const char *name, const char *text, size_t num_bytes)
{
    static const orth_yaml_schema schema = {"a description of hardware", "groups: {fast: {hardware: h100, nodes: 2}}", kind, put, unknown};
    reading r = {.file = name, .m = ORTH_NEW(ctx, orth_mixed), .share = 0.85, .latency_us = 10};
    if (!r.m)
        return ORTH_ERR_NOMEM;
    orth_status s = orth_yaml_parse(ctx, &schema, &r, name, text, num_bytes);
    if (s == ORTH_OK)
        s = finish(ctx, &r, out);
    if (s == ORTH_OK)
        out->mixed = r.m;
    else
        orth_mem_free(ctx, r.m);
    return s;
}

static bool has_failures(const orth_hardware *h)
{
    return h->failures_device_hours > 0;
}

static bool has_spot_hours(const orth_hardware *h)
{
    return h->failures_spot_hours > 0;
}

static bool has_price(const orth_hardware *h)
{
    return h->has_on_demand;
}

static bool has_spot_price(const orth_hardware *h)
{
    return h->price_spot > 0;
}

void orth_mixed_warn(orth_ctx *ctx, const orth_hardware *h)
{
    static const struct {
        const char *key;
        bool (*is_given)(const orth_hardware *h);
    } means[] = {{"failures.device_hours", has_failures}, {"failures.spot_hours", has_spot_hours}, {"price.on_demand", has_price},
                 {"price.spot", has_spot_price}};
    for (int k = 0; h->mixed && k < ORTH_COUNT(means); k++) {
        const orth_device_group *with = NULL, *without = NULL;
        for (int i = 0; i < h->mixed->num_groups; i++) {
            const orth_device_group *g = &h->mixed->group[i];
            *(means[k].is_given(&g->own) ? &with : &without) = g;
        }
        if (with && without)
            orth_log(ctx, ORTH_LOG_WARN, "plan", "%s is in %s (group %s), but not in %s (group %s): the cluster has none, as it would be a mean of all devices",
                     means[k].key, ORTH_SHOWN(with->hardware), with->name, ORTH_SHOWN(without->hardware), without->name);
    }
}

/* ---- where ranks lie ---- */

int orth_mixed_group_of(const orth_hardware *h, int rank)
{
    int g = 0;
    while (h->mixed && g + 1 < h->mixed->num_groups && rank >= h->mixed->group[g + 1].first)
        g++;
    return g;
}

int orth_mixed_node_of(const orth_hardware *h, int rank)
{
    const int g = orth_mixed_group_of(h, rank);
    int64_t before = 0;
    if (!h->mixed)
        return rank / (int)h->node_devices;
    for (int i = 0; i < g; i++)
        before += h->mixed->group[i].nodes;
    return (int)(before + (rank - h->mixed->group[g].first) / (int64_t)h->mixed->group[g].own.node_devices);
}

const orth_hardware *orth_mixed_device(const orth_hardware *h, int rank)
{
    return h->mixed ? &h->mixed->group[orth_mixed_group_of(h, rank)].own : h;
}

/* Of the members from i on that are in the group of the first of them, as if that group were alone; *end: behind them. */
static orth_link_place place_in(const orth_hardware *h, int g, const int *ranks, int n, int i, int *end)
{
    const orth_device_group *group = &h->mixed->group[g];
    bool ascends;
    for (*end = i; *end < n && orth_mixed_group_of(h, ranks[*end]) == g;)
        ++*end;
    return orth_link_place_in_order(&group->own, ranks + i, *end - i, (int)group->first, &ascends);
}

/* Where the canonical order comes back to a group, its pieces count as other nodes, up to as many as there must be. */
static void add_place(orth_mixed_place *p, int groups[], int g, const orth_link_place *place)
{
    int k = 0;
    while (k < p->num && groups[k] != g)
        k++;
    if (k == p->num) {
        groups[p->num++] = g;
        p->place[k] = (orth_link_place){.n = 0, .fewest = place->fewest};
    } else {
        p->place[k].fewest = 0; /* it came back: its pieces may be of one node */
    }
    p->place[k].n += place->n;
    p->place[k].num_nodes += place->num_nodes;
    p->place[k].per_node = ORTH_MAX(p->place[k].per_node, place->per_node);
    p->place[k].leaves_pod = p->place[k].leaves_pod || place->leaves_pod;
}

orth_mixed_place orth_mixed_place_of(const orth_hardware *h, const int *ranks, int n)
{
    orth_mixed_place p = {.num = 0};
    int groups[ORTH_MAX_DEVICE_GROUPS];
    int32_t nodes = 0;
    if (!h->mixed)
        return (orth_mixed_place){.num = 1, .hardware = {h}, .place = {orth_link_place_of(h, ranks, n)}};
    for (int i = 0; i < n;) {
        const int g = orth_mixed_group_of(h, ranks[i]);
        const orth_link_place place = place_in(h, g, ranks, n, i, &i);
        add_place(&p, groups, g, &place);
    }
    for (int k = 0; k < p.num; k++)
        nodes += ORTH_MIN(p.place[k].num_nodes, (p.place[k].n + p.place[k].per_node - 1) / p.place[k].per_node);
    for (int k = 0; k < p.num; k++) {
        const orth_device_group *g = &h->mixed->group[groups[k]];
        p.hardware[k] = p.num > 1 ? &g->far : &g->own;
        p.place[k] = (orth_link_place){.n = n, .per_node = p.place[k].per_node, .num_nodes = nodes, .same_node = nodes <= 1,
                                       .fewest = p.place[k].fewest, .leaves_pod = p.place[k].leaves_pod};
    }
    return p;
}

/* The slowest group, and its seconds. */
static int slowest_of(const orth_mixed_place *p, orth_comm_kind kind, double bytes, double *seconds)
{
    int slowest = 0;
    *seconds = 0;
    for (int k = 0; k < p->num; k++) {
        const double s = orth_link_seconds(p->hardware[k], kind, bytes, &p->place[k], NULL);
        slowest = s > *seconds ? k : slowest;
        *seconds = fmax(*seconds, s);
    }
    return slowest;
}

double orth_mixed_link_seconds(const orth_mixed_place *p, orth_comm_kind kind, double bytes)
{
    double seconds;
    slowest_of(p, kind, bytes, &seconds);
    return seconds;
}

void orth_mixed_link_load(const orth_mixed_place *p, orth_comm_kind kind, double bytes, double *node, double *network)
{
    double seconds;
    const int k = slowest_of(p, kind, bytes, &seconds);
    *node = *network = 0;
    if (seconds == 0)
        return;
    const orth_link_busy busy = orth_link_busy_in(p->hardware[k], kind, bytes, &p->place[k]);
    *node = fmin(1, busy.node_s / seconds);
    *network = fmin(1, busy.network_s / seconds);
}
