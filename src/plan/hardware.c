/* hardware.c -- see hardware.h. */
#include "plan/hardware.h"

#include <inttypes.h>
#include <math.h>
#include <stddef.h>
#include <stdlib.h>

#include "base/files.h"
#include "base/text.h"
#include "plan/described.h"
#include "plan/mixed.h"

static const orth_described_row rows[] = {
    {.path = "like", .section = "", .is_text = true, .offset = offsetof(orth_hardware, like)},
#define HW_TEXT(sec, key, need, help) \
    {.path = #sec "." #key, .section = #sec, .is_text = true, .needed = need, .offset = offsetof(orth_hardware, sec##_##key)},
#define HW_NUM(sec, key, need, def, lo, hi, u, help) \
    {.path = #sec "." #key, .section = #sec, .needed = need, .default_value = def, .min = lo, .max = hi, .unit = u, \
     .offset = offsetof(orth_hardware, sec##_##key)},
#include "plan/hardware.def"
#define TIMES(sec, key, n, field) \
    {.path = #sec "." key, .section = #sec, .num_items = n, .max = 1e15, .unit = "ns", .offset = offsetof(orth_hardware, times.field)}
#define OP(name, ...) \
    TIMES(fp32_one, #name, ORTH_OP_TERMS, of[ORTH_TIMES_FP32_ONE][ORTH_OP_##name]), \
    TIMES(fp32_all, #name, ORTH_OP_TERMS, of[ORTH_TIMES_FP32_ALL][ORTH_OP_##name]), \
    TIMES(bf16_one, #name, ORTH_OP_TERMS, of[ORTH_TIMES_BF16_ONE][ORTH_OP_##name]), \
    TIMES(bf16_all, #name, ORTH_OP_TERMS, of[ORTH_TIMES_BF16_ALL][ORTH_OP_##name]),
#include "kernels/ops.def"
#undef OP
#define KIND(NAME, name, ...) TIMES(calls, name, ORTH_CALL_TERMS, call[ORTH_COMM_##NAME]),
#include "comm/kinds.def"
#undef KIND
};
_Static_assert(ORTH_COUNT(rows) <= ORTH_DESCRIBED_MAX_ROWS, "described.h has room for every row");
static const orth_described_section sections[] = {
#define HW_SECTION(name, needed, help) {#name, needed},
#define HW_TIMES(name, set, help) {#name, false},
#include "plan/hardware.def"
};
static const orth_described hardware = {"hardware", "node: {devices: 8}", rows, ORTH_COUNT(rows), sections, ORTH_COUNT(sections)};

static orth_status check_whole(orth_ctx *ctx, const orth_described_places *p, const char *path, double value)
{
    if (value == floor(value))
        return ORTH_OK;
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s=%.9g: must be a whole number", orth_described_place(p, path), path, value);
}

static orth_status set_topology(orth_ctx *ctx, orth_hardware *h, const orth_described_places *p)
{
    static const char *const names[] = {[ORTH_TOPOLOGY_SWITCH] = "switch", [ORTH_TOPOLOGY_MESH] = "mesh",
                                        [ORTH_TOPOLOGY_TORUS] = "torus", [ORTH_TOPOLOGY_BUS] = "bus"};
    h->topology = ORTH_TOPOLOGY_SWITCH;
    for (int i = 0; i < ORTH_COUNT(names); i++)
        if (strcmp(h->node_topology, names[i]) == 0) {
            h->topology = (orth_topology)i;
            return ORTH_OK;
        }
    if (!h->node_topology[0])
        return ORTH_OK;
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: node.topology=%s: must be switch, mesh, torus or bus",
                     orth_described_place(p, "node.topology"), h->node_topology);
}

/* A host and its times come together. */
static orth_status check_host(orth_ctx *ctx, orth_hardware *h, const orth_described_places *p, const char *name)
{
    static const char *const times[] = {
#define HW_TIMES(name, set, help) #name,
#include "plan/hardware.def"
        "calls"};
    bool any = false;
    h->has_host = orth_described_has(p, "host");
    for (int i = 0; i < ORTH_COUNT(times); i++) {
        any = any || (i < ORTH_COUNT(times) - 1 && orth_described_has(p, times[i]));
        if (!h->has_host && orth_described_has(p, times[i]))
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %s are times of a host, and the section `host` is missing: write the file anew with "
                             "`orthant doctor --calibrate=FILE`", name, times[i]);
    }
    if (!h->has_host)
        return ORTH_OK;
    if (!any)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: a host needs times of ops (fp32_one and so on): write the file anew with "
                         "`orthant doctor --calibrate=FILE`", name);
    ORTH_TRY(check_whole(ctx, p, "host.cores", h->host_cores));
    for (int i = ORTH_ISA_BASE; i <= ORTH_ISA_AMX; i++)
        if (strcmp(orth_isa_name((orth_isa)i), h->host_isa) == 0) {
            h->isa = (orth_isa)i;
            return ORTH_OK;
        }
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: host.isa=%s: must be base, avx2, avx512, avx512bf16 or amx", orth_described_place(p, "host.isa"),
                     h->host_isa);
}

/* What must hold between keys. */
static orth_status check_together(orth_ctx *ctx, const orth_hardware *h, const orth_described_places *p, const char *name)
{
    const char *reserved = orth_described_place(p, "device.reserved_GiB"); /* "": the default */
    ORTH_TRY(check_whole(ctx, p, "node.devices", h->node_devices));
    if (h->has_network)
        ORTH_TRY(check_whole(ctx, p, "network.nics", h->network_nics));
    if (h->node_devices > 1 && h->node_GBps == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: node.GBps is missing: the %.0f devices of a node (node.devices) are linked",
                         name, h->node_devices);
    if (h->device_reserved_GiB >= h->device_memory_GiB)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: device.reserved_GiB=%.9g: must be less than device.memory_GiB=%.9g",
                         reserved[0] ? reserved : name, h->device_reserved_GiB, h->device_memory_GiB);
    if (h->price_spot_share < 1 && (h->price_spot == 0 || !h->has_on_demand))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: price.spot_share=%.9g: price.%s is missing: some nodes are then bought at each of the two prices",
                         orth_described_place(p, "price.spot_share"), h->price_spot_share, h->price_spot == 0 ? "spot" : "on_demand");
    if (h->has_on_demand && h->price_spot > h->price_on_demand)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: price.spot=%.9g: must be at most price.on_demand=%.9g: a node that may be taken away is not dearer than one that "
                         "may not", orth_described_place(p, "price.spot"), h->price_spot, h->price_on_demand);
    if (h->device_fp32_tflops == 0 && h->device_bf16_tflops == 0 && h->device_fp16_tflops == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: device.bf16_tflops is missing: give the rate of at least one of fp32, fp16, "
                         "bf16", name);
    return ORTH_OK;
}

/* ---- files by name ---- */

static bool ends_in(const char *word, size_t n, const char *end)
{
    return n >= strlen(end) && memcmp(word + n - strlen(end), end, strlen(end)) == 0;
}

static const orth_hardware_file *known_file(const char *word, size_t n)
{
    for (const orth_hardware_file *f = orth_hardware_files(); f->name; f++)
        if (strlen(f->name) == n && memcmp(f->name, word, n) == 0)
            return f;
    return NULL;
}

void orth_hardware_names(char *out, size_t size)
{
    size_t at = 0;
    out[0] = '\0';
    for (const orth_hardware_file *f = orth_hardware_files(); f->name && at < size; f++)
        at += (size_t)snprintf(out + at, size - at, "%s%s", at ? ", " : "", f->name);
}

/* The text of configs/hardware/NAME.yaml, or of a file; *path stands for it in messages. Both are heap memory. */
static orth_status read_text(orth_ctx *ctx, const char *word, size_t n, char **path, char **text, size_t *num_bytes)
{
    const orth_hardware_file *known = known_file(word, n);
    *text = NULL;
    *path = known ? orth_mem_printf(ctx, "configs/hardware/%s.yaml", known->name) : orth_mem_printf(ctx, "%.*s", (int)n, word);
    orth_status s = *path ? ORTH_OK : ORTH_ERR_NOMEM;
    if (s == ORTH_OK && known) {
        *text = orth_mem_printf(ctx, "%s", known->text);
        *num_bytes = strlen(known->text);
        s = *text ? ORTH_OK : ORTH_ERR_NOMEM;
    } else if (s == ORTH_OK) {
        s = orth_file_read_named(ctx, *path, text, num_bytes);
    }
    if (s != ORTH_OK)
        orth_mem_free(ctx, *path);
    return s;
}

static orth_status fail_like(orth_ctx *ctx, const char *place, const char *like, const char *why)
{
    char names[512];
    orth_hardware_names(names, sizeof names);
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: like=%s: %s: name a .yaml file of one kind of devices, or one of %s", place, ORTH_SHOWN(like), why, names);
}

/* What the description says that h is like, and over it once more what its own text says. */
static orth_status read_like(orth_ctx *ctx, orth_hardware *h, orth_described_places *places, const char *name, const char *text, size_t num_bytes)
{
    char like[ORTH_DESCRIBED_TEXT_MAX], place[sizeof places->place[0]], *path, *other;
    size_t other_bytes;
    memcpy(like, h->like, sizeof like);
    snprintf(place, sizeof place, "%s", orth_described_place(places, "like"));
    const size_t n = strlen(like);
    if (!known_file(like, n) && !ends_in(like, n, ".yaml") && !ends_in(like, n, ".yml"))
        return fail_like(ctx, place, like, "is no description");
    const orth_status found = read_text(ctx, like, n, &path, &other, &other_bytes);
    if (found != ORTH_OK) {
        char why[ORTH_MESSAGE_MAX];
        memcpy(why, ctx->error.message, sizeof why);
        orth_ctx_clear_error(ctx);
        return ORTH_FAIL(ctx, found, "%s: like=%s: %s", place, ORTH_SHOWN(like), why);
    }
    *h = (orth_hardware){.num_devices = 0};
    orth_described_begin(&hardware, h, places);
    const bool groups = orth_mixed_is(ctx, other, other_bytes);
    orth_status s = groups ? fail_like(ctx, place, like, "has groups") : orth_described_read(ctx, places, path, other, other_bytes);
    if (s == ORTH_OK && h->like[0])
        s = fail_like(ctx, place, like, "is like another one itself");
    if (s == ORTH_OK)
        s = orth_described_read(ctx, places, name, text, num_bytes);
    orth_mem_free(ctx, other);
    orth_mem_free(ctx, path);
    return s;
}

/* has_groups: NULL, or where one kind of devices is wanted: groups are not read, since they may name themselves, but told. */
static orth_status parse(orth_ctx *ctx, orth_hardware *out, const char *name, const char *text, size_t num_bytes, bool *has_groups)
{
    orth_hardware h = {.num_devices = 0};
    orth_described_places places;
    const bool mixed = orth_mixed_is(ctx, text, num_bytes);
    if (has_groups)
        *has_groups = mixed;
    if (mixed && has_groups) {
        *out = h;
        return ORTH_OK;
    }
    if (mixed)
        return orth_mixed_parse(ctx, out, name, text, num_bytes);
    orth_described_begin(&hardware, &h, &places);
    ORTH_TRY(orth_described_read(ctx, &places, name, text, num_bytes));
    if (h.like[0])
        ORTH_TRY(read_like(ctx, &h, &places, name, text, num_bytes));
    ORTH_TRY(orth_described_check(ctx, &places, name));
    snprintf(h.file, sizeof h.file, "%.127s", name);
    h.has_network = orth_described_has(&places, "network");
    h.has_on_demand = orth_described_place(&places, "price.on_demand")[0] != '\0';
    ORTH_TRY(set_topology(ctx, &h, &places));
    ORTH_TRY(check_host(ctx, &h, &places, name));
    ORTH_TRY(check_together(ctx, &h, &places, name));
    *out = h;
    return ORTH_OK;
}

orth_status orth_hardware_parse(orth_ctx *ctx, orth_hardware *out, const char *name, const char *text, size_t num_bytes)
{
    return parse(ctx, out, name, text, num_bytes, NULL);
}

void orth_hardware_release(orth_ctx *ctx, orth_hardware *h)
{
    orth_mem_free(ctx, h->mixed);
    h->mixed = NULL;
}

/* ---- clusters by name ---- */

/* Cuts "-512" off `word`; false: what follows the last dash is no number of devices. */
static bool cut_count(const char *word, size_t *stem, int64_t *count)
{
    const char *dash = strrchr(word, '-');
    char *end;
    if (!dash || dash == word || !dash[1] || strspn(dash + 1, "0123456789") != strlen(dash + 1) || strlen(dash) > 8)
        return false;
    *count = strtoll(dash + 1, &end, 10);
    *stem = (size_t)(dash - word);
    return true;
}

bool orth_hardware_names_count(const char *word, size_t *stem)
{
    int64_t count;
    return !known_file(word, strlen(word)) && cut_count(word, stem, &count);
}

bool orth_hardware_is_name(const char *word)
{
    size_t n = strlen(word);
    int64_t count;
    if (!known_file(word, n))
        cut_count(word, &n, &count);
    return known_file(word, n) || ends_in(word, n, ".yaml") || ends_in(word, n, ".yml");
}

static orth_status fail_unknown(orth_ctx *ctx, const char *word)
{
    char names[512];
    orth_hardware_names(names, sizeof names);
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "cluster '%s' is not known: name a .yaml file, or one of %s, with a number of devices "
                     "as in %s-64", word, names, orth_hardware_files()->name);
}

static orth_status load(orth_ctx *ctx, orth_hardware *out, const char *word, size_t n, bool *has_groups)
{
    char *path, *text;
    size_t bytes;
    if (!known_file(word, n) && !ends_in(word, n, ".yaml") && !ends_in(word, n, ".yml"))
        return fail_unknown(ctx, word);
    ORTH_TRY(read_text(ctx, word, n, &path, &text, &bytes));
    const orth_status s = parse(ctx, out, path, text, bytes, has_groups);
    orth_mem_free(ctx, text);
    orth_mem_free(ctx, path);
    return s;
}

orth_status orth_hardware_find(orth_ctx *ctx, orth_hardware *out, const char *word)
{
    return orth_hardware_find_kind(ctx, out, word, NULL);
}

orth_status orth_hardware_find_kind(orth_ctx *ctx, orth_hardware *out, const char *word, bool *has_groups)
{
    size_t n = strlen(word), stem;
    int64_t count = 0;
    if (!known_file(word, n) && cut_count(word, &stem, &count)) {
        if (count < 1)
            return ORTH_FAIL(ctx, ORTH_ERR_ARG, "cluster '%s': 0 devices; it has 1 at least", word);
        n = stem;
    }
    ORTH_TRY(load(ctx, out, word, n, has_groups));
    const bool mixed = out->mixed != NULL;
    if (count > 0 && mixed)
        orth_hardware_release(ctx, out);
    if (count > 0 && (out->has_host || mixed))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "cluster '%s': %s: leave the number of devices out", word,
                         mixed ? "its groups say how many devices there are" : "any number of ranks share a host");
    if (!mixed)
        out->num_devices = count;
    return ORTH_OK;
}

/* "fast 2 x 8, slow 4 x 4": nodes and devices of groups. */
static void say_groups(const orth_mixed *m, char *out, size_t size)
{
    size_t at = 0;
    for (int i = 0; i < m->num_groups && at < size; i++)
        at += (size_t)snprintf(out + at, size - at, "%s%s %" PRId64 " x %.0f", i > 0 ? ", " : "", m->group[i].name, m->group[i].nodes,
                               m->group[i].own.node_devices);
}

static orth_status use_groups(orth_ctx *ctx, const orth_hardware *h, int64_t num_ranks)
{
    const orth_device_group *last = &h->mixed->group[h->mixed->num_groups - 1];
    char groups[512];
    if (last->first + last->num_devices == num_ranks)
        return ORTH_OK;
    say_groups(h->mixed, groups, sizeof groups);
    return ORTH_FAIL(ctx, ORTH_ERR_ARG, "the layout has %" PRId64 " ranks (parallel.dp * tp * pp * cp), the groups of --cluster have %" PRId64
                     " devices (nodes x devices: %s): they must be equal", num_ranks, last->first + last->num_devices, groups);
}

orth_status orth_hardware_use(orth_ctx *ctx, orth_hardware *h, int64_t num_ranks)
{
    if (h->mixed)
        return use_groups(ctx, h, num_ranks);
    if (h->num_devices && h->num_devices != num_ranks)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "the layout has %" PRId64 " ranks (parallel.dp * tp * pp * cp), --cluster has %" PRId64
                         " devices: they must be equal; `orthant search` finds the best layout", num_ranks, h->num_devices);
    h->num_devices = num_ranks;
    if (num_ranks > (int64_t)h->node_devices && !h->has_network)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: %" PRId64 " devices are more than one node of %.0f (node.devices), and the "
                         "description has no link between nodes: give it a section `network`", h->file, num_ranks,
                         h->node_devices);
    return ORTH_OK;
}

/* Of one kind of devices. */
static orth_status peak_of(orth_ctx *ctx, const orth_hardware *h, orth_dtype dtype, double *flops)
{
    const double t = dtype == ORTH_BF16 ? h->device_bf16_tflops : dtype == ORTH_F16 ? h->device_fp16_tflops
                                                                                   : h->device_fp32_tflops;
    if (t == 0)
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "%s: the description has no device.%s_tflops, and the run computes in %s "
                         "(precision.compute)", h->file, orth_dtype_name(dtype), orth_dtype_name(dtype));
    *flops = 1e12 * t;
    return ORTH_OK;
}

double orth_hardware_room(const orth_hardware *h)
{
    return 0x1p30 * (h->device_memory_GiB - h->device_reserved_GiB);
}

orth_status orth_hardware_peak(orth_ctx *ctx, const orth_hardware *h, orth_dtype dtype, double *flops)
{
    double sum = 0, devices = 0, each;
    if (!h->mixed)
        return peak_of(ctx, h, dtype, flops);
    for (int i = 0; i < h->mixed->num_groups; i++) {
        const orth_device_group *g = &h->mixed->group[i];
        ORTH_TRY(peak_of(ctx, &g->own, dtype, &each));
        sum += each * (double)g->num_devices;
        devices += (double)g->num_devices;
    }
    *flops = sum / devices;
    return ORTH_OK;
}
