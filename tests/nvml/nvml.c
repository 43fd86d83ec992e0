/*
 * A libnvidia-ml.so.1 that answers from the description named by GPUTOPO_FAKE_NVML (format: machine.c), read at every nvmlInit,
 * and plays the script beside it (format: script.c). While somebody has it open, so is the file `<description>.device`.
 *
 * Return codes, struct layouts, versions and the order of argument checks follow the NVML API reference; a call that the
 * described GPU would not support answers NVML_ERROR_NOT_SUPPORTED, as the driver does. One thread may ask while others wait
 * for events.
 */
#include "abi.h"

#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;

typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;

struct machine machine;
static int users, device = -1;
static pthread_mutex_t users_lock = PTHREAD_MUTEX_INITIALIZER;

static nvmlReturn_t failure_of(const char *function, int gpu) {
    for (int n = 0; n < machine.failure_count; n++) {
        const struct failure *failure = &machine.failures[n];
        bool every = !strcmp(failure->function, "*") && gpu >= 0 && strcmp(function, "nvmlDeviceGetHandleByIndex_v2");
        bool named = !strcmp(failure->function, function);
        if (!(every || named) || (gpu >= 0 && !(failure->gpus >> gpu & 1))) continue;
        if (failure->seconds > 0) usleep((useconds_t)(failure->seconds * 1e6));
        if (failure->code) return failure->code;
    }
    return SUCCESS;
}

static bool ours(const struct gpu *gpu) { return gpu >= machine.gpus && gpu < machine.gpus + machine.gpu_count; }

static double due = INFINITY; /* when the script goes on, by the monotonic clock */

static double monotonic(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + now.tv_nsec / 1e9;
}

/* What the driver is now; the lock is held. */
static nvmlReturn_t read_now(void) {
    static struct machine described;
    double next_seconds;
    if (!read_machine(getenv("GPUTOPO_FAKE_NVML"), &described) || !play_script(&described, &next_seconds)) return UNKNOWN;
    due = monotonic() + next_seconds;
    if (described.init == SUCCESS) machine = described;
    return described.init;
}

static void keep_up(void) {
    if (due == INFINITY || monotonic() < due) return;
    pthread_mutex_lock(&users_lock);
    if (monotonic() >= due) read_now();
    pthread_mutex_unlock(&users_lock);
}

nvmlReturn_t enter(const char *function, const struct gpu *gpu, bool pointer_given) {
    if (!users) return UNINITIALIZED;
    keep_up();
    if (!ours(gpu) || !pointer_given) return INVALID_ARGUMENT;
    return failure_of(function, gpu - machine.gpus);
}

nvmlReturn_t enter_system(const char *function, bool pointer_given) {
    if (!users) return UNINITIALIZED;
    keep_up();
    if (!pointer_given) return INVALID_ARGUMENT;
    return failure_of(function, -1);
}

static nvmlReturn_t answer(unsigned *out, int described) {
    if (described == ABSENT) return NOT_SUPPORTED;
    *out = described;
    return SUCCESS;
}

static nvmlReturn_t copy_text(char *buffer, unsigned length, const char *text) {
    if (strlen(text) >= length) return INSUFFICIENT_SIZE;
    strcpy(buffer, text);
    return SUCCESS;
}

/* What stands for /dev/nvidiactl: who has it open keeps the module from being unloaded. */
static const char *device_file(void) {
    static _Thread_local char name[4096];
    snprintf(name, sizeof name, "%s.device", getenv("GPUTOPO_FAKE_NVML"));
    return name;
}

nvmlReturn_t nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    pthread_mutex_lock(&users_lock);
    nvmlReturn_t code = read_now();
    users += code == SUCCESS;
    if (users && device < 0) device = open(device_file(), O_RDONLY | O_CLOEXEC); /* which need not exist */
    pthread_mutex_unlock(&users_lock);
    return code;
}

nvmlReturn_t nvmlInit_v2(void) { return nvmlInitWithFlags(0); }

nvmlReturn_t nvmlShutdown(void) {
    pthread_mutex_lock(&users_lock);
    nvmlReturn_t code = users ? SUCCESS : UNINITIALIZED;
    users -= users > 0;
    if (!users && device >= 0) {
        close(device);
        device = -1;
    }
    pthread_mutex_unlock(&users_lock);
    return code;
}

const char *nvmlErrorString(nvmlReturn_t code) {
    static char text[32];
    snprintf(text, sizeof text, "fake error %d", code);
    return text;
}

nvmlReturn_t nvmlSystemGetDriverVersion(char *version, unsigned length) {
    TRY(enter_system(__func__, version));
    return copy_text(version, length, machine.driver);
}

nvmlReturn_t nvmlSystemGetNVMLVersion(char *version, unsigned length) {
    TRY(enter_system(__func__, version));
    return copy_text(version, length, machine.nvml);
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    TRY(enter_system(__func__, version));
    *version = machine.cuda;
    return SUCCESS;
}

nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    TRY(enter_system(__func__, version));
    *version = machine.cuda;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *count) {
    TRY(enter_system(__func__, count));
    *count = machine.gpu_count;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *gpu) {
    if (!users) return UNINITIALIZED;
    if (!gpu || index >= (unsigned)machine.gpu_count) return INVALID_ARGUMENT;
    TRY(failure_of(__func__, index));
    *gpu = &machine.gpus[index];
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *uuid, nvmlDevice_t *gpu) {
    TRY(enter_system(__func__, uuid && gpu));
    for (int index = 0; index < machine.gpu_count; index++)
        if (!strcmp(machine.gpus[index].uuid, uuid)) return *gpu = &machine.gpus[index], SUCCESS;
    struct slice *slice = slice_called(uuid);
    return slice ? *gpu = (nvmlDevice_t)slice, SUCCESS : NOT_FOUND;
}

nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t gpu, char *name, unsigned length) {
    ENTER(gpu, name);
    return copy_text(name, length, gpu->name);
}

nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t gpu, char *uuid, unsigned length) {
    const struct slice *slice = slice_of(gpu);
    if (slice) {
        TRY(enter_slice(__func__, slice, uuid));
        return copy_text(uuid, length, slice->uuid);
    }
    ENTER(gpu, uuid);
    return copy_text(uuid, length, gpu->uuid);
}

nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t gpu, unsigned *minor) {
    ENTER(gpu, minor);
    *minor = gpu->minor;
    return SUCCESS;
}

void write_pci(nvmlPciInfo_t *info, struct pci_address pci) {
    memset(info, 0, sizeof *info);
    info->domain = pci.domain;
    info->bus = pci.bus;
    info->device = pci.device;
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%04X:%02X:%02X.0", pci.domain & 0xffff, pci.bus & 0xff, pci.device & 0xff);
    snprintf(info->busId, sizeof info->busId, "%08X:%02X:%02X.0", pci.domain, pci.bus & 0xff, pci.device & 0xff);
}

nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t gpu, nvmlPciInfo_t *info) {
    ENTER(gpu, info);
    write_pci(info, gpu->pci);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t gpu, nvmlMemory_t *memory) {
    const struct slice *slice = slice_of(gpu);
    if (slice) {
        TRY(enter_slice(__func__, slice, memory));
        return *memory = (nvmlMemory_t){slice_bytes(slice), slice_bytes(slice), 0}, SUCCESS;
    }
    ENTER(gpu, memory);
    if (gpu->memory_mib == ABSENT) return NOT_SUPPORTED;
    memory->total = gpu->memory_mib << 20;
    memory->used = (gpu->used_mib + gpu->reserved_mib) << 20; /* version 1 counts what the driver keeps as used */
    memory->free = memory->total - memory->used;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t gpu, nvmlMemory_v2_t *memory) {
    const struct slice *slice = slice_of(gpu);
    if (slice) {
        TRY(enter_slice(__func__, slice, memory));
        if (memory->version != VERSION(sizeof *memory, 2)) return ARGUMENT_VERSION_MISMATCH;
        memory->total = memory->free = slice_bytes(slice);
        return memory->reserved = memory->used = 0, SUCCESS;
    }
    ENTER(gpu, memory);
    if (memory->version != VERSION(sizeof *memory, 2)) return ARGUMENT_VERSION_MISMATCH;
    if (gpu->memory_mib == ABSENT) return NOT_SUPPORTED;
    memory->total = gpu->memory_mib << 20;
    memory->reserved = gpu->reserved_mib << 20;
    memory->used = gpu->used_mib << 20;
    memory->free = memory->total - memory->reserved - memory->used;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t gpu, int *major, int *minor) {
    ENTER(gpu, major && minor ? major : NULL);
    *major = gpu->compute_major;
    *minor = gpu->compute_minor;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkGeneration(nvmlDevice_t gpu, unsigned *generation) {
    ENTER(gpu, generation);
    return answer(generation, gpu->pcie_generation);
}

nvmlReturn_t nvmlDeviceGetMaxPcieLinkWidth(nvmlDevice_t gpu, unsigned *width) {
    ENTER(gpu, width);
    return answer(width, gpu->pcie_width);
}

nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t gpu, unsigned *current, unsigned *pending) {
    ENTER(gpu, current && pending ? current : NULL);
    *pending = gpu->mig == 1;
    return answer(current, gpu->mig);
}

nvmlReturn_t nvmlDeviceGetEccMode(nvmlDevice_t gpu, unsigned *current, unsigned *pending) {
    ENTER(gpu, current && pending ? current : NULL);
    *pending = gpu->ecc == 1;
    return answer(current, gpu->ecc);
}

nvmlReturn_t nvmlDeviceGetRemappedRows(nvmlDevice_t gpu, unsigned *correctable, unsigned *uncorrectable,
                                       unsigned *pending, unsigned *failure) {
    ENTER(gpu, correctable && uncorrectable && pending && failure ? failure : NULL);
    if (gpu->compute_major < 8) return NOT_SUPPORTED; /* row remapping came with Ampere */
    *correctable = gpu->errors[ROWS_CORRECTED] == UNSAID ? 0 : (unsigned)gpu->errors[ROWS_CORRECTED];
    *uncorrectable = gpu->remap_pending || gpu->remap_failure;
    *pending = gpu->remap_pending;
    *failure = gpu->remap_failure;
    return SUCCESS;
}

typedef struct {
    unsigned pid;
    unsigned long long used_memory;
    unsigned gpu_instance, compute_instance;
} nvmlProcessInfo_t;

static unsigned long long process_bytes(const struct process *process) {
    return process->mib == ABSENT ? ~0ULL : (unsigned long long)process->mib << 20; /* all ones: not available */
}

nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t handle, unsigned *count, nvmlProcessInfo_t *processes) {
    const struct slice *asked = slice_of(handle);
    const struct gpu *gpu = asked ? asked->gpu : handle;
    TRY(enter(__func__, gpu, count));
    if (gpu->process_count == ABSENT) return NOT_SUPPORTED;
    unsigned room = *count, running = 0;
    for (int i = 0; i < gpu->process_count; i++) {
        const struct process *process = &gpu->processes[i];
        const struct slice *slice = process->slice < 0 ? NULL : &gpu->slices[process->slice];
        if (asked && slice != asked) continue;
        if (running++ < room && processes)
            processes[running - 1] = (nvmlProcessInfo_t){process->pid, process_bytes(process), slice ? (unsigned)slice->gpu_instance : ~0u,
                                                         slice ? (unsigned)slice->compute_instance : ~0u};
    }
    *count = running;
    return running > room ? INSUFFICIENT_SIZE : running && !processes ? INVALID_ARGUMENT : SUCCESS;
}

nvmlReturn_t nvmlSystemGetProcessName(unsigned pid, char *name, unsigned length) {
    TRY(enter_system(__func__, name));
    for (int index = 0; index < machine.gpu_count; index++)
        for (int i = 0; i < machine.gpus[index].process_count; i++) {
            const struct process *process = &machine.gpus[index].processes[i];
            if (process->pid == pid && *process->command) return copy_text(name, length, process->command);
        }
    return NOT_FOUND;
}

static nvmlReturn_t answer_long(unsigned long long *into, int value) {
    if (value == ABSENT) return NOT_SUPPORTED;
    *into = (unsigned long long)value;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t gpu, int type, int counter, unsigned long long *count) {
    ENTER(gpu, count);
    if (type != 1 || counter != 1) return NOT_SUPPORTED; /* only uncorrected ones, over the life of the GPU */
    return answer_long(count, gpu->uncorrected_errors);
}

nvmlReturn_t nvmlDeviceGetCurrentClocksEventReasons(nvmlDevice_t gpu, unsigned long long *reasons) {
    ENTER(gpu, reasons);
    return answer_long(reasons, gpu->slowdown);
}

nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t gpu, unsigned long long *millijoules) {
    ENTER(gpu, millijoules);
    return answer_long(millijoules, gpu->energy_mj);
}

typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;

nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t gpu, nvmlUtilization_t *rates) {
    ENTER(gpu, rates);
    rates->memory = gpu->figures[MEMORY_BUSY] == ABSENT ? 0 : (unsigned)gpu->figures[MEMORY_BUSY];
    return answer(&rates->gpu, gpu->utilization);
}

nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t gpu, int sensor, unsigned *celsius) {
    ENTER(gpu, celsius);
    if (sensor != 0) return INVALID_ARGUMENT;
    return answer(celsius, gpu->temperature);
}

nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t gpu, unsigned *milliwatts) {
    ENTER(gpu, milliwatts);
    return answer(milliwatts, gpu->power_mw);
}

nvmlReturn_t nvmlDeviceGetRetiredPagesPendingStatus(nvmlDevice_t gpu, unsigned *pending) {
    ENTER(gpu, pending);
    if (gpu->compute_major >= 8) return NOT_SUPPORTED; /* page retirement ended with Ampere */
    *pending = gpu->retired_pages_pending;
    return SUCCESS;
}

static nvmlReturn_t copy_mask(unsigned size, unsigned long *set, unsigned scope, const unsigned long *mask, unsigned words) {
    if (size == 0 || scope > 1) return INVALID_ARGUMENT;
    unsigned long any = 0;
    for (unsigned word = 0; word < words; word++) any |= mask[word];
    if (!any) return NOT_SUPPORTED;
    for (unsigned word = 0; word < size; word++) set[word] = word < words ? mask[word] : 0;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t gpu, unsigned size, unsigned long *set, unsigned scope) {
    ENTER(gpu, set);
    return copy_mask(size, set, scope, gpu->numa_nodes, 2);
}

nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t gpu, unsigned size, unsigned long *set, unsigned scope) {
    ENTER(gpu, set);
    return copy_mask(size, set, scope, gpu->cpus, 16);
}

nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t gpu, unsigned size, unsigned long *set) {
    ENTER(gpu, set);
    return copy_mask(size, set, 0, gpu->cpus, 16);
}

nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t gpu, unsigned *node) {
    ENTER(gpu, node);
    return answer(node, gpu->memory_numa_node);
}

nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t gpu, nvmlDevice_t other, unsigned *level) {
    ENTER(gpu, level);
    ENTER(other, level);
    *level = gpu == other ? 0 : machine.path[gpu - machine.gpus][other - machine.gpus];
    return SUCCESS;
}
