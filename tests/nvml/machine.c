/*
 * Reads the description of a machine. One statement per line; `#` starts a comment; GPUs are an index, a range or a
 * list (`0`, `0-3`, `0,2-4`). Everything not said has a plain default, so `gpu 0-3 name NVIDIA L4` is a machine.
 *
 *   driver VERSION | cuda MAJOR.MINOR | nvml VERSION
 *   init CODE                       what nvmlInit answers; codes are written as NVML names them: DRIVER_NOT_LOADED
 *   gpu GPUS KEY VALUE              KEY is one of
 *       name TEXT · uuid TEXT (one `%` stands for the index) · pci DOMAIN:BUS:DEVICE.0 · compute MAJOR.MINOR
 *       memory_mib N · used_mib N · reserved_mib N · numa NODES · cpus CPUS · pcie GENERATION WIDTH
 *       mig on|off · ecc on|off · memory_numa_node N · remap_failure 0|1 · remap_pending 0|1
 *       minor N (of the device node; the index by default) · retired_pages_pending 0|1 · nvlink_version N · recovery_action N · uncorrected_errors N · energy_mj N
 *       utilization PERCENT · temperature CELSIUS · power_mw N
 *       memory_busy PERCENT · memory_temperature CELSIUS · power_limit_mw N · sm_clock_mhz N · memory_clock_mhz N
 *       nvlink_tx_kib N · nvlink_rx_kib N · pcie_tx_bytes N · pcie_rx_bytes N · counter_bits 32|64 (default)
 *       corrected_errors, dram_corrected, dram_uncorrected, l2_corrected, l2_uncorrected, sram_corrected, sram_uncorrected,
 *       sram_exceeded 0|1, rows_corrected, banks_without_spares, pcie_replays, pcie_width_now, margin CELSIUS, slow_power_ns,
 *       slow_hardware_heat_ns, nvlink_crc, nvlink_replay, nvlink_receive, nvlink_unrecovered: N, as errors.c has them
 *       slowdown BITS           why the clocks are slow: 64 heat, 128 power brake
 *       process PID [COMMAND]   one more that computes; without a command nobody can tell which it is
 *       process_mib PID MIB     memory of a process that was said before; else 1024
 *       process -               the driver does not say who computes
 *       slice_process NUMBER PID [COMMAND]   the same, on a MIG device
 *       `-` as a value means that the call answers NOT_SUPPORTED
 *   slice GPUS PROFILE START [UUID] one MIG device of a profile such as 1g.10gb, 1g.10gb+me or 1c.3g.40gb, at that place of the
 *                                   memory; those with one place share a GPU instance; one `%` of the UUID stands for the index
 *   nvlink A B COUNT                COUNT direct links between GPUs A and B, on the next free link numbers of both
 *   nvswitch GPUS COUNT [FORM]      COUNT links of each GPU to NVSwitches
 *   npu GPUS COUNT                  COUNT links of each GPU to its CPU's bridge (POWER)
 *   bare GPUS COUNT                 COUNT inactive links with nothing at the far end (a card without its bridge)
 *       FORM of the far end's PCI id: `id` (default), `sentinel`, `empty`, `unreadable`; `unknown` is `unreadable`
 *       with a far end whose type is not known either, as in a virtual machine
 *   link GPU LINKS STATE            active, inactive, hidden (NOT_SUPPORTED), sleeping or traffic-disabled
 *   remote GPU LINKS FORM           how the far end of existing links reads
 *   fabric GPUS STATE [CODE [CLUSTER CLIQUE]]    STATE: none, not-started, in-progress, completed, or `-`
 *   health GPUS SUMMARY [MASK]      fabric health: 0 not supported, 1 healthy, 2 unhealthy, 3 limited
 *   path GPUS GPUS WORD             INTERNAL, PIX, PXB, PHB, NODE or SYS; default SYS
 *   p2p GPUS GPUS CAP STATUS        CAP: read, write, nvlink, atomics, pci or all; STATUS: OK, CNS, GNS, TNS, DR, NS, U
 *                                   default: OK, and nvlink OK where active links join the two
 *   fail FUNCTION GPUS CODE         that call fails for these GPUs; `*` stands for every call that takes a handle
 *   hang FUNCTION GPUS SECONDS      that call takes so long for these GPUs, and is answered then
 *   limits dmem|misc                how the driver keeps memory limits by cgroup (limits.c); without it, it knows of none
 *   use GPUS MIB CGROUP             memory that the processes of a cgroup use, for limits.c
 *   missing FUNCTION                the library has no such symbol (obeyed when it is linked, see library.py)
 */
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct word {
    const char *name;
    int value;
};

static const struct word CODES[] = {
    {"SUCCESS", 0}, {"UNINITIALIZED", 1}, {"INVALID_ARGUMENT", 2}, {"NOT_SUPPORTED", 3}, {"NO_PERMISSION", 4},
    {"NOT_FOUND", 6}, {"INSUFFICIENT_SIZE", 7}, {"INSUFFICIENT_POWER", 8}, {"DRIVER_NOT_LOADED", 9}, {"TIMEOUT", 10},
    {"IRQ_ISSUE", 11}, {"LIBRARY_NOT_FOUND", 12}, {"FUNCTION_NOT_FOUND", 13}, {"CORRUPTED_INFOROM", 14},
    {"GPU_IS_LOST", 15}, {"RESET_REQUIRED", 16}, {"OPERATING_SYSTEM", 17}, {"LIB_RM_VERSION_MISMATCH", 18},
    {"IN_USE", 19}, {"MEMORY", 20}, {"NO_DATA", 21}, {"INSUFFICIENT_RESOURCES", 23}, {"ARGUMENT_VERSION_MISMATCH", 25},
    {"DEPRECATED", 26}, {"NOT_READY", 27}, {"GPU_NOT_FOUND", 28}, {"INVALID_STATE", 29}, {"UNKNOWN", 999}, {0}};
static const struct word PATHS[] = {{"INTERNAL", 0}, {"PIX", 10}, {"PXB", 20}, {"PHB", 30}, {"NODE", 40}, {"SYS", 50}, {0}};
static const struct word P2P_CAP[] = {{"read", 0}, {"write", 1}, {"nvlink", 2}, {"atomics", 3}, {"pci", 4}, {"all", 5}, {0}};
static const struct word P2P_STATUS[] = {{"OK", 0}, {"CNS", 1}, {"GNS", 2}, {"TNS", 3}, {"DR", 4}, {"NS", 5}, {"U", 6}, {0}};
static const struct word STATES[] = {{"active", LINK_ACTIVE}, {"inactive", LINK_INACTIVE}, {"hidden", LINK_HIDDEN},
                                     {"sleeping", LINK_SLEEPING}, {"traffic-disabled", LINK_TRAFFIC_DISABLED}, {0}};
static const struct word FORMS[] = {{"id", REMOTE_ID}, {"sentinel", REMOTE_SENTINEL}, {"empty", REMOTE_EMPTY},
                                    {"unreadable", REMOTE_UNREADABLE}, {"unknown", REMOTE_UNREADABLE}, {0}};
static const struct word FABRICS[] = {{"-", ABSENT}, {"none", 0}, {"not-started", 1}, {"in-progress", 2}, {"completed", 3}, {0}};
static const struct word LIMITS[] = {{"dmem", LIMITS_DMEM}, {"misc", LIMITS_MISC}, {0}};
static const struct word SWITCHES[] = {{"-", ABSENT}, {"off", 0}, {"on", 1}, {0}};

static int lookup(const struct word *words, const char *name) {
    for (; words->name; words++)
        if (strcmp(words->name, name) == 0) return words->value;
    return -2;
}

int nvml_code(const char *name) { return lookup(CODES, name); }

bool parse_set(const char *text, unsigned long *bits, int limit) {
    for (const char *at = text; *at;) {
        char *end;
        long first = strtol(at, &end, 10), last = first;
        if (end == at) return false;
        if (*end == '-') {
            at = end + 1;
            last = strtol(at, &end, 10);
            if (end == at) return false;
        }
        if (first < 0 || last < first || last >= limit) return false;
        for (long n = first; n <= last; n++) bits[n / 64] |= 1UL << (n % 64);
        if (*end == ',') end++;
        else if (*end) return false;
        at = end;
    }
    return *text != 0;
}

static bool parse_pci(const char *text, struct pci_address *pci) {
    return sscanf(text, "%x:%x:%x.%*x", &pci->domain, &pci->bus, &pci->device) == 3;
}

static int number(const char *text) { return strcmp(text, "-") == 0 ? ABSENT : atoi(text); }

static struct gpu *described(struct machine *machine, int index) {
    struct gpu *gpu = &machine->gpus[index];
    if (gpu->described) return gpu;
    gpu->described = true;
    gpu->minor = index;
    snprintf(gpu->name, NAME, "NVIDIA Fake GPU");
    snprintf(gpu->uuid, NAME, "GPU-%08x-0000-4000-8000-%012x", index, index);
    gpu->pci = (struct pci_address){0, 0x10 + index, 0};
    gpu->memory_mib = 16384;
    gpu->compute_major = 7;
    gpu->pcie_generation = 4;
    gpu->pcie_width = 16;
    gpu->mig = gpu->ecc = gpu->memory_numa_node = gpu->fabric.state = ABSENT;
    gpu->recovery_action = gpu->uncorrected_errors = gpu->slowdown = gpu->energy_mj = ABSENT;
    gpu->utilization = gpu->temperature = gpu->power_mw = ABSENT;
    no_figures(gpu);
    no_errors(gpu);
    gpu->nvlink_version = 3;
    if (index >= machine->gpu_count) machine->gpu_count = index + 1;
    return gpu;
}

static bool add_process(struct gpu *gpu, const char *value, bool on_slice) {
    if (!strcmp(value, "-")) return gpu->process_count = ABSENT, true;
    if (gpu->process_count == MAX_PROCESSES) return false;
    struct process *process = &gpu->processes[gpu->process_count++];
    process->slice = ABSENT;
    process->mib = 1024;
    if (on_slice) return sscanf(value, "%d %u %95[^\n]", &process->slice, &process->pid, process->command) >= 2;
    return sscanf(value, "%u %95[^\n]", &process->pid, process->command) >= 1;
}

static bool set_process_mib(struct gpu *gpu, const char *value) {
    unsigned pid;
    char mib[32];
    if (sscanf(value, "%u %31s", &pid, mib) != 2) return false;
    for (int n = 0; n < gpu->process_count; n++)
        if (gpu->processes[n].pid == pid) return gpu->processes[n].mib = number(mib), true;
    return false;
}

static bool set_gpu(struct gpu *gpu, int index, const char *key, char *value) {
    int *plain = !strcmp(key, "remap_failure")            ? &gpu->remap_failure
                 : !strcmp(key, "remap_pending")          ? &gpu->remap_pending
                 : !strcmp(key, "retired_pages_pending")  ? &gpu->retired_pages_pending
                 : !strcmp(key, "memory_numa_node")       ? &gpu->memory_numa_node
                 : !strcmp(key, "minor")                  ? &gpu->minor
                 : !strcmp(key, "nvlink_version")         ? &gpu->nvlink_version
                 : !strcmp(key, "recovery_action")        ? &gpu->recovery_action
                 : !strcmp(key, "uncorrected_errors")     ? &gpu->uncorrected_errors
                 : !strcmp(key, "slowdown")               ? &gpu->slowdown
                 : !strcmp(key, "energy_mj")              ? &gpu->energy_mj
                 : !strcmp(key, "utilization")            ? &gpu->utilization
                 : !strcmp(key, "temperature")            ? &gpu->temperature
                 : !strcmp(key, "power_mw")               ? &gpu->power_mw
                                                          : NULL;
    long long *mib = !strcmp(key, "memory_mib")     ? &gpu->memory_mib
                     : !strcmp(key, "used_mib")     ? &gpu->used_mib
                     : !strcmp(key, "reserved_mib") ? &gpu->reserved_mib
                                                    : NULL;
    if (plain) return *plain = number(value), true;
    if (mib) return *mib = number(value), true;
    if (set_figure(gpu, key, value)) return true;
    if (error_counter(gpu, key)) return *error_counter(gpu, key) = strcmp(value, "-") ? atoll(value) : UNSAID, true;
    if (!strcmp(key, "name")) return snprintf(gpu->name, NAME, "%s", value) < NAME;
    if (!strcmp(key, "uuid")) {
        char *mark = strchr(value, '%');
        if (mark) *mark = 0;
        return snprintf(gpu->uuid, NAME, mark ? "%s%d%s" : "%s", value, index, mark ? mark + 1 : "") < NAME;
    }
    if (!strcmp(key, "process")) return add_process(gpu, value, false);
    if (!strcmp(key, "slice_process")) return add_process(gpu, value, true);
    if (!strcmp(key, "process_mib")) return set_process_mib(gpu, value);
    if (!strcmp(key, "pci")) return parse_pci(value, &gpu->pci);
    if (!strcmp(key, "compute")) return sscanf(value, "%d.%d", &gpu->compute_major, &gpu->compute_minor) == 2;
    if (!strcmp(key, "pcie")) return sscanf(value, "%d %d", &gpu->pcie_generation, &gpu->pcie_width) == 2;
    if (!strcmp(key, "numa")) return !strcmp(value, "-") || parse_set(value, gpu->numa_nodes, 128);
    if (!strcmp(key, "cpus")) return !strcmp(value, "-") || parse_set(value, gpu->cpus, 1024);
    if (!strcmp(key, "mig")) return (gpu->mig = lookup(SWITCHES, value)) >= ABSENT;
    if (!strcmp(key, "ecc")) return (gpu->ecc = lookup(SWITCHES, value)) >= ABSENT;
    return false;
}

static struct link *add_link(struct gpu *gpu, enum far_end far_end, struct pci_address remote) {
    for (int n = 0; n < MAX_LINKS; n++)
        if (gpu->links[n].state == LINK_MISSING) {
            gpu->links[n] = (struct link){.state = LINK_ACTIVE, .far_end = far_end, .remote = remote};
            return &gpu->links[n];
        }
    return NULL;
}

/* `nvswitch`, `npu` and `bare`: links whose far end is no GPU. */
static bool add_links(struct gpu *gpu, const char *kind, int count, const char *form) {
    for (int n = 0; n < count; n++) {
        bool npu = !strcmp(kind, "npu"), bare = !strcmp(kind, "bare");
        struct pci_address remote = npu ? (struct pci_address){4 + n / 4, 0, n % 4} : (struct pci_address){0, 0xc0 + n / 2, 0};
        struct link *link = add_link(gpu, npu ? FAR_NPU : bare ? FAR_UNKNOWN : FAR_SWITCH, remote);
        int remote_id = lookup(FORMS, form);
        if (!link || remote_id < 0) return false;
        link->remote_id = remote_id;
        if (!strcmp(form, "unknown")) link->far_end = FAR_UNKNOWN;
        if (bare) link->state = LINK_INACTIVE;
    }
    return true;
}

static bool set_fabric(struct fabric *fabric, const char *state, const char *code, const char *cluster, const char *clique) {
    fabric->state = lookup(FABRICS, state);
    fabric->status = code ? nvml_code(code) : 0;
    fabric->clique = clique ? strtoul(clique, NULL, 10) : 0;
    for (int byte = 0; cluster && byte < 16; byte++) {
        while (*cluster == '-') cluster++;
        unsigned value;
        if (sscanf(cluster, "%2x", &value) != 1) return false;
        fabric->cluster_uuid[byte] = value;
        cluster += 2;
    }
    return fabric->state >= ABSENT && fabric->status >= 0;
}

static void set_pair(struct machine *machine, int a, int b, int level, int cap, int status) {
    if (level >= 0) machine->path[a][b] = machine->path[b][a] = level;
    for (int c = 0; c < P2P_CAPS && status >= 0; c++)
        if (cap == P2P_CAPS || cap == c) machine->p2p[a][b][c] = machine->p2p[b][a][c] = status;
}

static bool add_failure(struct machine *machine, const char *function, unsigned long gpus, int code, double seconds) {
    if (machine->failure_count == MAX_FAILURES || code < 0 || seconds < 0) return false;
    struct failure *failure = &machine->failures[machine->failure_count++];
    failure->gpus = gpus;
    failure->code = code;
    failure->seconds = seconds;
    return snprintf(failure->function, NAME, "%s", function) < NAME;
}

static bool add_use(struct machine *machine, char **argument) {
    if (machine->use_count == MAX_USES) return false;
    struct use *use = &machine->uses[machine->use_count++];
    use->mib = strtoull(argument[1], NULL, 10);
    return parse_set(argument[0], &use->gpus, MAX_GPUS) && snprintf(use->cgroup, sizeof use->cgroup, "%s", argument[2]) < 256;
}

/* Statements about the whole machine. */
static bool set_system(struct machine *machine, const char *word, char **argument, int count) {
    int major, minor;
    if (count == 1 && !strcmp(word, "driver")) return snprintf(machine->driver, NAME, "%s", argument[0]) < NAME;
    if (count == 1 && !strcmp(word, "nvml")) return snprintf(machine->nvml, NAME, "%s", argument[0]) < NAME;
    if (count == 1 && !strcmp(word, "init")) return (machine->init = nvml_code(argument[0])) >= 0;
    if (count == 1 && !strcmp(word, "missing")) return true;
    if (count == 1 && !strcmp(word, "limits")) return (machine->limits = lookup(LIMITS, argument[0])) > 0;
    if (count == 1 && !strcmp(word, "cuda") && sscanf(argument[0], "%d.%d", &major, &minor) == 2)
        return machine->cuda = major * 1000 + minor * 10, true;
    return false;
}

/* Statements that say something of each GPU of a set. */
static bool set_each(struct machine *machine, int index, const char *word, char **argument, int count) {
    struct gpu *gpu = described(machine, index);
    unsigned long links = 0;
    if (!strcmp(word, "nvswitch") || !strcmp(word, "npu") || !strcmp(word, "bare"))
        return count >= 2 && add_links(gpu, word, atoi(argument[1]), count > 2 ? argument[2] : "id");
    if (!strcmp(word, "slice"))
        return count >= 3 && add_slice(gpu, index, argument[1], argument[2], count > 3 ? argument[3] : NULL);
    if (!strcmp(word, "fabric"))
        return count >= 2 && set_fabric(&gpu->fabric, argument[1], count > 2 ? argument[2] : NULL,
                                        count > 4 ? argument[3] : NULL, count > 4 ? argument[4] : NULL);
    if (!strcmp(word, "health") && count >= 2) {
        gpu->fabric.health_summary = atoi(argument[1]);
        gpu->fabric.health_mask = count > 2 ? strtoul(argument[2], NULL, 0) : 0;
        return true;
    }
    if (count != 3 || !parse_set(argument[1], &links, MAX_LINKS)) return false;
    int state = !strcmp(word, "link") ? lookup(STATES, argument[2]) : 0;
    int form = !strcmp(word, "remote") ? lookup(FORMS, argument[2]) : 0;
    if (state < 0 || form < 0 || (strcmp(word, "link") && strcmp(word, "remote"))) return false;
    for (int n = 0; n < MAX_LINKS; n++) {
        if (!(links >> n & 1)) continue;
        if (gpu->links[n].state == LINK_MISSING) return false;
        if (state) gpu->links[n].state = state;
        else gpu->links[n].remote_id = form;
    }
    return true;
}

/* Statements about every pair of two sets of GPUs. */
static bool set_pairs(struct machine *machine, const char *word, char **argument, int count) {
    unsigned long first = 0, second = 0;
    bool path = !strcmp(word, "path") && count == 3, p2p = !strcmp(word, "p2p") && count == 4;
    if (!path && !p2p) return false;
    if (!parse_set(argument[0], &first, MAX_GPUS) || !parse_set(argument[1], &second, MAX_GPUS)) return false;
    int level = path ? lookup(PATHS, argument[2]) : -1;
    int cap = p2p ? lookup(P2P_CAP, argument[2]) : -1, status = p2p ? lookup(P2P_STATUS, argument[3]) : -1;
    if (path ? level < 0 : cap < 0 || status < 0) return false;
    for (int a = 0; a < MAX_GPUS; a++)
        for (int b = 0; b < MAX_GPUS; b++)
            if (a != b && first >> a & 1 && second >> b & 1) set_pair(machine, a, b, level, cap, status);
    return true;
}

static bool add_nvlinks(struct machine *machine, char **argument) {
    int a = atoi(argument[0]), b = atoi(argument[1]), count = atoi(argument[2]);
    if (a < 0 || b < 0 || a >= MAX_GPUS || b >= MAX_GPUS || a == b) return false;
    struct gpu *from = described(machine, a), *to = described(machine, b);
    for (int n = 0; n < count; n++)
        if (!add_link(from, FAR_GPU, to->pci) || !add_link(to, FAR_GPU, from->pci)) return false;
    return count > 0;
}

bool read_statement(struct machine *machine, char *line) {
    char *argument[8], *rest = line;
    const char *word = strtok_r(rest, " \t", &rest);
    if (!word) return true;
    unsigned long gpus = 0;
    int count = 0;
    if (!strcmp(word, "gpu")) { /* the value is the rest of the line, blanks and all */
        const char *set = strtok_r(rest, " \t", &rest), *key = strtok_r(rest, " \t", &rest);
        if (!set || !key || !parse_set(set, &gpus, MAX_GPUS)) return false;
        for (int index = 0; index < MAX_GPUS; index++) {
            char value[NAME];
            snprintf(value, NAME, "%s", rest + strspn(rest, " \t"));
            if (gpus >> index & 1 && (!*value || !set_gpu(described(machine, index), index, key, value))) return false;
        }
        return true;
    }
    while (count < 8 && (argument[count] = strtok_r(rest, " \t", &rest))) count++;
    if (set_system(machine, word, argument, count) || set_pairs(machine, word, argument, count)) return true;
    if (!strcmp(word, "nvlink") && count == 3) return add_nvlinks(machine, argument);
    if (!strcmp(word, "use") && count == 3) return add_use(machine, argument);
    bool fail = !strcmp(word, "fail") && count == 3, hang = !strcmp(word, "hang") && count == 3;
    if (count < 2 || !parse_set(argument[fail || hang], &gpus, MAX_GPUS)) return false;
    if (fail) return add_failure(machine, argument[0], gpus, nvml_code(argument[2]), 0);
    if (hang) return add_failure(machine, argument[0], gpus, 0, atof(argument[2]));
    for (int index = 0; index < MAX_GPUS; index++)
        if (gpus >> index & 1 && !set_each(machine, index, word, argument, count)) return false;
    return true;
}

bool read_machine(const char *file, struct machine *machine) {
    memset(machine, 0, sizeof *machine);
    snprintf(machine->driver, NAME, "550.54.15");
    snprintf(machine->nvml, NAME, "12.550.54.15");
    machine->cuda = 12040;
    for (int a = 0; a < MAX_GPUS; a++)
        for (int b = 0; b < MAX_GPUS; b++) {
            machine->path[a][b] = 50;
            for (int cap = 0; cap < P2P_CAPS; cap++) machine->p2p[a][b][cap] = ABSENT;
        }
    FILE *stream = file ? fopen(file, "r") : NULL;
    if (!stream) {
        fprintf(stderr, "fake nvml: cannot read the description %s\n", file ? file : "(GPUTOPO_FAKE_NVML is not set)");
        return false;
    }
    char line[512];
    bool good = true;
    for (int at = 1; good && fgets(line, sizeof line, stream); at++) {
        line[strcspn(line, "#\r\n")] = 0;
        for (char *end = line + strlen(line); end > line && (end[-1] == ' ' || end[-1] == '\t');) *--end = 0;
        char copy[512];
        memcpy(copy, line, sizeof copy);
        if (!(good = read_statement(machine, line))) fprintf(stderr, "fake nvml: %s:%d: cannot read `%s`\n", file, at, copy);
    }
    fclose(stream);
    for (int index = 0; good && index < machine->gpu_count; index++)
        if (!(good = machine->gpus[index].described)) fprintf(stderr, "fake nvml: %s: GPU %d is not described\n", file, index);
    return good;
}
