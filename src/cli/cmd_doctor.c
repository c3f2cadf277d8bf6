/* cmd_doctor.c -- `orthant doctor`: what this machine has, and what Orthant makes of it. */
#include <inttypes.h>
#include <jansson.h>
#include <oniguruma.h>
#include <string.h>
#include <yaml.h>
#include <xxhash.h>

#include "base/files.h"
#include "base/json_out.h"
#include "base/machine.h"
#include "base/pool.h"
#include "cli/verbs.h"
#include "plan/probe.h"
#include "tools/calibrate.h"
#include "train/setup.h"

#define PROBE_SECONDS 0.25
#define GIB 1073741824.0

/* Rates of each probe on one thread and on all. */
typedef struct {
    bool measured;
    int num_threads;
    double one[ORTH_NUM_PROBES], all[ORTH_NUM_PROBES];
} peaks;

typedef struct {
    const char *name;
    bool on;
    const char *why;
} backend;

static const backend backends[] = {
    {"cpu", true, "fast kernels for this CPU (run.backend=cpu, the default)"},
    {"ref", true, "plain reference kernels (run.backend=ref)"},
    {"cuda", false, "not part of this version"},
    {"thread ranks", true, "the default (comm.backend=thread)"},
#if ORTH_HAVE_MPI
    {"mpi", true, "a process per rank (comm.backend=mpi, under mpirun or srun)"},
#else
    {"mpi", false, "MPI was not found, or switched off, when this program was built"},
#endif
    {"nccl", false, "no GPU back end in this version"},
};

static orth_status measure(orth_ctx *ctx, peaks *p)
{
    const orth_isa asked = ctx->isa;
    p->measured = true;
    for (int k = 0; k < ORTH_NUM_PROBES; k++) {
        ctx->isa = k == ORTH_PROBE_FP32 ? asked : orth_isa_detect(); /* what the CPU has, used or not */
        ORTH_TRY(orth_probe_measure(ctx, &p->one[k], (orth_probe)k, 1, PROBE_SECONDS));
        ORTH_TRY(orth_probe_measure(ctx, &p->all[k], (orth_probe)k, p->num_threads, PROBE_SECONDS));
    }
    ctx->isa = asked;
    return ORTH_OK;
}

static void library_versions(char *out, size_t size)
{
    snprintf(out, size, "libyaml %s, jansson %s, Oniguruma %s, xxHash %u.%u.%u", yaml_get_version_string(),
             jansson_version_str(), onig_version(), XXH_versionNumber() / 10000, XXH_versionNumber() / 100 % 100,
             XXH_versionNumber() % 100);
}

/* How a run would read and write the file of offloaded state, or why it has none. */
static void files_words(orth_ctx *ctx, const orth_config *cfg, char out[ORTH_MESSAGE_MAX])
{
    orth_scratch s;
    char how[ORTH_SCRATCH_WORDS_MAX];
    if (orth_scratch_open(ctx, &s, cfg->memory_offload_dir, 2 * ORTH_FILE_BLOCK, orth_setup_file_io(cfg)) != ORTH_OK) {
        snprintf(out, ORTH_MESSAGE_MAX, "%s", ctx->error.message);
        orth_ctx_clear_error(ctx);
        return;
    }
    orth_scratch_words(&s, how);
    snprintf(out, ORTH_MESSAGE_MAX, "in %s (memory.offload_dir) are read and written %s", s.dir, how);
    orth_scratch_close(&s);
}

static void print_text(const orth_ctx *ctx, const orth_machine *m, const peaks *p, const char *libraries, const char *files)
{
    printf("orthant      %s, %s\n", ORTH_VERSION, m->system);
    printf("cpu          %s\n", *m->cpu ? m->cpu : "unknown");
    printf("cores        %d usable of %d online, %d NUMA node%s; %d thread%s in use (run.threads)\n", m->cores,
           m->online_cpus, m->numa_nodes, m->numa_nodes == 1 ? "" : "s", p->num_threads,
           p->num_threads == 1 ? "" : "s");
    if (m->load >= 0)
        printf("load         %.1f busy threads in the last minute%s\n", m->load,
               p->measured && m->load > 0.25 * m->cores ? ": rates that are measured now are too low" : "");
    printf("isa          ");
    for (int i = 0; i <= (int)orth_isa_detect(); i++)
        printf("%s%s", i ? ", " : "", orth_isa_name((orth_isa)i));
    printf("; using %s (run.isa)%s%s\n", orth_isa_name(ctx->isa),
           orth_isa_auto() < orth_isa_detect() ? "; auto leaves out bf16 dot products, slow here" : "",
           ctx->isa == ORTH_ISA_AMX ? "; for fp32 there is precision.fp32_products=bf16x6" : "");
    for (int i = 0; i < m->num_caches; i++) {
        const orth_cache *c = &m->cache[i];
        printf("%-12s L%d %-11s %8.0f KiB, shared by %d\n", i ? "" : "caches", c->level, c->type,
               (double)c->size_bytes / 1024, c->num_cpus);
    }
    printf("memory       %.1f GiB, %.1f GiB available", (double)m->memory_total / GIB,
           (double)m->memory_available / GIB);
    if (m->memory_limit)
        printf(", container limit %.1f GiB", (double)m->memory_limit / GIB);
    printf("\nlibraries    %s\n", libraries);
    printf("files        %s\n", files);
    for (int i = 0; i < ORTH_COUNT(backends); i++)
        printf("%-12s %-13s %-4s %s\n", i ? "" : "back ends", backends[i].name, backends[i].on ? "on" : "off",
               backends[i].why);
    for (int k = 0; p->measured && k < ORTH_NUM_PROBES; k++) {
        const char *head = k ? "" : "peaks";
        if (p->all[k] == 0)
            printf("%-12s %-17s not on this CPU\n", head, orth_probe_name((orth_probe)k));
        else
            printf("%-12s %-17s %8.1f %s on 1 thread, %8.1f on %d\n", head, orth_probe_name((orth_probe)k),
                   p->one[k] / 1e9, k == ORTH_PROBE_COPY ? "GB/s   " : "GFLOP/s", p->all[k] / 1e9,
                   p->num_threads);
    }
}

static void add_caches(orth_json_out *j, const orth_machine *m)
{
    orth_json_open(j, "caches", '[');
    for (int i = 0; i < m->num_caches; i++) {
        orth_json_open(j, NULL, '{');
        orth_json_print(j, "level", "%d", m->cache[i].level);
        orth_json_string(j, "type", m->cache[i].type);
        orth_json_print(j, "bytes", "%" PRId64, m->cache[i].size_bytes);
        orth_json_print(j, "shared_by", "%d", m->cache[i].num_cpus);
        orth_json_close(j, '}');
    }
    orth_json_close(j, ']');
}

static void add_peaks(orth_json_out *j, const peaks *p)
{
    static const char *const keys[] = {"fp32_flops", "bf16_dot_flops", "amx_flops", "copy_bytes"};
    orth_json_open(j, "peaks_per_s", '{');
    for (int k = 0; k < ORTH_NUM_PROBES; k++)
        orth_json_print(j, keys[k], "[%.4g, %.4g]", p->one[k], p->all[k]);
    orth_json_close(j, '}');
}

static orth_status print_json(orth_ctx *ctx, const orth_machine *m, const peaks *p, const char *libraries, const char *files)
{
    orth_text text = {0};
    orth_json_out j = {ctx, &text, .lines = 1};
    orth_json_open(&j, NULL, '{');
    orth_json_string(&j, "version", ORTH_VERSION);
    orth_json_string(&j, "cpu", m->cpu);
    orth_json_string(&j, "system", m->system);
    orth_json_print(&j, "cores", "%d", m->cores);
    orth_json_print(&j, "threads", "%d", p->num_threads);
    orth_json_print(&j, "load", m->load < 0 ? "null" : "%.2f", m->load);
    orth_json_string(&j, "isa", orth_isa_name(ctx->isa));
    orth_json_string(&j, "isa_best", orth_isa_name(orth_isa_detect()));
    orth_json_print(&j, "memory_total", "%" PRId64, m->memory_total);
    orth_json_print(&j, "memory_available", "%" PRId64, m->memory_available);
    orth_json_print(&j, "memory_limit", "%" PRId64, m->memory_limit);
    add_caches(&j, m);
    orth_json_string(&j, "libraries", libraries);
    orth_json_string(&j, "files", files);
    orth_json_open(&j, "backends", '{');
    for (int i = 0; i < ORTH_COUNT(backends); i++)
        orth_json_bool(&j, backends[i].name, backends[i].on);
    orth_json_close(&j, '}');
    if (p->measured)
        add_peaks(&j, p);
    orth_json_close(&j, '}');
    return orth_json_show(&j, stdout);
}

static orth_status calibrate(orth_ctx *ctx, const orth_cmd *cmd)
{
    const char *given = orth_cmd_flag(cmd, "calibrate"), *path = *given ? given : "machine.yaml";
    const orth_calibrate_options options = {.file_dir = cmd->config.memory_offload_dir, .file_io = orth_setup_file_io(&cmd->config)};
    orth_hardware h;
    if (orth_cmd_flag(cmd, "json") || orth_cmd_flag(cmd, "no-peaks"))
        return ORTH_FAIL(ctx, ORTH_ERR_ARG, "doctor: --calibrate writes %s and prints nothing else: leave --json and --no-peaks out", path);
    ORTH_TRY(orth_calibrate(ctx, &options, &h));
    char *yaml = orth_calibrate_yaml(ctx, &h);
    const orth_status s = yaml ? orth_file_write(ctx, path, yaml, strlen(yaml)) : ORTH_ERR_NOMEM;
    orth_mem_free(ctx, yaml);
    if (s == ORTH_OK)
        printf("%s: %s, %s; for `orthant plan RUN.yaml --cluster=%s`, and run.hardware=%s\n", path, h.device_name, h.host_isa, path, path);
    return s;
}

orth_status orth_cmd_doctor(orth_ctx *ctx, const orth_cmd *cmd)
{
    orth_machine m;
    char libraries[256], files[ORTH_MESSAGE_MAX];
    peaks p = {.num_threads = orth_pool_num_threads(ctx->pool)};
    if (orth_cmd_flag(cmd, "calibrate"))
        return calibrate(ctx, cmd);
    orth_machine_query(&m);
    library_versions(libraries, sizeof libraries);
    files_words(ctx, &cmd->config, files);
    if (!orth_cmd_flag(cmd, "no-peaks"))
        ORTH_TRY(measure(ctx, &p));
    if (orth_cmd_flag(cmd, "json"))
        return print_json(ctx, &m, &p, libraries, files);
    print_text(ctx, &m, &p, libraries, files);
    return ORTH_OK;
}
