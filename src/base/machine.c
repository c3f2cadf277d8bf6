/* machine.c -- see machine.h. */
#define _GNU_SOURCE
#include "base/machine.h"

#include <dirent.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

/* First line of a small file; false if it cannot be read. */
static bool read_line(const char *path, char *out, size_t size)
{
    FILE *f = fopen(path, "r");
    if (!f)
        return false;
    bool ok = fgets(out, (int)size, f) != NULL;
    fclose(f);
    if (ok)
        out[strcspn(out, "\n")] = '\0';
    return ok;
}

/* CPUs' worth of time that the container gets; 0: no limit. */
static double cpu_quota(void)
{
    char text[64];
    double quota, period;
    if (read_line("/sys/fs/cgroup/cpu.max", text, sizeof text) &&
        sscanf(text, "%lf %lf", &quota, &period) == 2 && period > 0)
        return quota / period;
    if (read_line("/sys/fs/cgroup/cpu/cpu.cfs_quota_us", text, sizeof text) && (quota = atof(text)) > 0 &&
        read_line("/sys/fs/cgroup/cpu/cpu.cfs_period_us", text, sizeof text) && (period = atof(text)) > 0)
        return quota / period;
    return 0;
}

int orth_machine_cores(void)
{
    cpu_set_t set;
    int n = sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
    double quota = cpu_quota();
    if (quota > 0 && quota < n)
        n = (int)(quota + 0.999);
    return ORTH_MAX(n, 1);
}

bool orth_machine_cpus(int *cpus, int n)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) != 0 || CPU_COUNT(&set) != n)
        return false;
    for (int cpu = 0; n > 0; cpu++) {
        if (!CPU_ISSET(cpu, &set))
            continue;
        *cpus++ = cpu;
        n--;
    }
    return true;
}

void orth_machine_core(int cpu, int *package, int *core)
{
    char path[96], text[256];
    *package = 0;
    *core = cpu;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/physical_package_id", cpu);
    if (read_line(path, text, sizeof text))
        *package = atoi(text);
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", cpu);
    if (read_line(path, text, sizeof text))
        *core = atoi(text); /* "0,64" or "0-1" */
}

static int64_t cgroup_bytes(const char *v2, const char *v1)
{
    char text[64];
    if (!read_line(v2, text, sizeof text) && !read_line(v1, text, sizeof text))
        return 0;
    int64_t n = strtoll(text, NULL, 10); /* "max" gives 0 */
    return n >= (int64_t)1 << 60 ? 0 : n;
}

static int64_t meminfo_bytes(const char *name)
{
    char line[128];
    int64_t kib = 0;
    FILE *f = fopen("/proc/meminfo", "r");
    while (f && fgets(line, sizeof line, f))
        if (strncmp(line, name, strlen(name)) == 0)
            kib = strtoll(line + strlen(name), NULL, 10);
    if (f)
        fclose(f);
    return kib * 1024;
}

static int64_t container_limit(void)
{
    return cgroup_bytes("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes");
}

int64_t orth_machine_available_bytes(void)
{
    int64_t free_bytes = meminfo_bytes("MemAvailable:"), limit = container_limit();
    if (limit > 0) {
        int64_t used = cgroup_bytes("/sys/fs/cgroup/memory.current",
                                    "/sys/fs/cgroup/memory/memory.usage_in_bytes");
        free_bytes = ORTH_MIN(free_bytes, ORTH_MAX(limit - used, 0));
    }
    return free_bytes;
}

int64_t orth_machine_addresses_left(void)
{
    struct rlimit limit;
    char text[64];
    if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY || limit.rlim_cur > INT64_MAX ||
        !read_line("/proc/self/statm", text, sizeof text))
        return INT64_MAX;
    return ORTH_MAX((int64_t)limit.rlim_cur - strtoll(text, NULL, 10) * sysconf(_SC_PAGESIZE), 0);
}

static void query_cpu_name(orth_machine *m)
{
    char line[256];
    FILE *f = fopen("/proc/cpuinfo", "r");
    while (f && fgets(line, sizeof line, f)) {
        char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon) {
            line[strcspn(line, "\n")] = '\0';
            snprintf(m->cpu, sizeof m->cpu, "%.90s", colon + 2);
            break;
        }
    }
    if (f)
        fclose(f);
}

/* "0-3,8" -> 5 */
static int count_cpu_list(const char *s)
{
    int n = 0;
    while (*s) {
        char *end;
        long a = strtol(s, &end, 10), b = a;
        if (end == s)
            break;
        if (*end == '-')
            b = strtol(end + 1, &end, 10);
        n += (int)(b - a + 1);
        s = *end == ',' ? end + 1 : end;
    }
    return n;
}

static void query_caches(orth_machine *m)
{
    for (int i = 0; i < ORTH_COUNT(m->cache); i++) {
        char path[96], level[16] = "", type[16] = "", size[32] = "", cpus[256] = "";
        const char *const names[] = {"level", "type", "size", "shared_cpu_list"};
        char *const texts[] = {level, type, size, cpus};
        const size_t sizes[] = {sizeof level, sizeof type, sizeof size, sizeof cpus};
        for (int k = 0; k < 4; k++) {
            snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu0/cache/index%d/%s", i, names[k]);
            if (!read_line(path, texts[k], sizes[k]))
                return;
        }
        char *unit;
        orth_cache *c = &m->cache[m->num_caches++];
        c->level = atoi(level);
        c->size_bytes = strtoll(size, &unit, 10) * (*unit == 'M' ? 1 << 20 : *unit == 'K' ? 1 << 10 : 1);
        c->num_cpus = count_cpu_list(cpus);
        snprintf(c->type, sizeof c->type, "%.15s", type);
    }
}

void orth_machine_query(orth_machine *m)
{
    struct utsname u;
    char text[256];
    memset(m, 0, sizeof *m);
    if (uname(&u) == 0)
        snprintf(m->system, sizeof m->system, "%.24s %.40s %.24s", u.sysname, u.release, u.machine);
    query_cpu_name(m);
    query_caches(m);
    m->cores = orth_machine_cores();
    m->online_cpus = (int)sysconf(_SC_NPROCESSORS_ONLN);
    m->numa_nodes = read_line("/sys/devices/system/node/online", text, sizeof text) ? count_cpu_list(text) : 1;
    if (getloadavg(&m->load, 1) != 1)
        m->load = -1;
    m->memory_total = meminfo_bytes("MemTotal:");
    m->memory_available = orth_machine_available_bytes();
    m->memory_limit = container_limit();
}

/* ---- time without a CPU ---- */

/* The second of the three numbers of a thread's schedstat. */
static int64_t run_delay_ns(int tasks, const char *thread)
{
    char name[64], text[96];
    snprintf(name, sizeof name, "%.20s/schedstat", thread);
    const int f = openat(tasks, name, O_RDONLY | O_CLOEXEC);
    const ssize_t n = f < 0 ? -1 : read(f, text, sizeof text - 1);
    if (f >= 0)
        close(f);
    if (n <= 0)
        return 0; /* it has ended meanwhile */
    text[n] = '\0';
    char *second = NULL;
    strtoll(text, &second, 10);
    return strtoll(second, NULL, 10);
}

int64_t orth_machine_starved_ns(void)
{
    DIR *tasks = opendir("/proc/self/task");
    int64_t sum = 0;
    if (!tasks || faccessat(dirfd(tasks), "../schedstat", R_OK, 0) != 0)
        sum = -1;
    for (const struct dirent *d; sum >= 0 && (d = readdir(tasks));)
        if (d->d_name[0] != '.')
            sum += run_delay_ns(dirfd(tasks), d->d_name);
    if (tasks)
        closedir(tasks);
    return sum;
}
