/*
 * MIG devices, as drivers from 535 on answer for them: profiles of an A100 or H100, eight memory slices, seven compute slices.
 *
 * A handle of a MIG device, of its GPU instance and of its compute instance all point to the same `struct slice`.
 */
#include "abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { PROFILES = 17, CI_PROFILES = 9, CI_ENGINES = 1, MEMORY_SLICES = 8 };

typedef struct slice *nvmlGpuInstance_t, *nvmlComputeInstance_t;

static const struct profile {
    int number, id; /* NVML's number of the profile, and the driver's */
    int slices, memory_slices;
    const char *attribute;
} KNOWN[] = {{0, 19, 1, 1, ""},  {7, 20, 1, 1, "+me"}, {9, 15, 1, 2, ""}, {1, 14, 2, 2, ""},
             {2, 9, 3, 4, ""},   {3, 5, 4, 4, ""},     {4, 0, 7, 8, ""}};
static const int CI_SLICES[CI_PROFILES] = {1, 2, 3, 4, 7, 8, 6, 1, 7};

static const struct profile *profile_of(const struct slice *slice) {
    const char *at = strstr(slice->profile, "c.") ? strstr(slice->profile, "c.") + 2 : slice->profile;
    const char *attribute = strchr(at, '+');
    for (size_t n = 0; n < sizeof KNOWN / sizeof *KNOWN; n++)
        if (KNOWN[n].slices == atoi(at) && KNOWN[n].memory_slices == slice->size && !strcmp(KNOWN[n].attribute, attribute ? attribute : ""))
            return &KNOWN[n];
    return NULL;
}

static int compute_slices(const struct slice *slice) { return atoi(slice->profile); }

/* A little less than its part: the driver keeps some. */
unsigned long long slice_bytes(const struct slice *slice) {
    return ((unsigned long long)slice->gpu->memory_mib * slice->size / MEMORY_SLICES - 128) << 20;
}

bool add_slice(struct gpu *gpu, int index, const char *profile, const char *start, const char *uuid) {
    const char *at = strstr(profile, "g.");
    if (gpu->slice_count == MAX_SLICES || !at) return false;
    struct slice *slice = &gpu->slices[gpu->slice_count];
    const struct slice *before = gpu->slice_count ? slice - 1 : NULL;
    int gpu_gib = (gpu->memory_mib + 1023) / 1024, gib = atoi(at + 2);
    snprintf(slice->profile, sizeof slice->profile, "%s", profile);
    slice->start = atoi(start);
    slice->size = (gib * MEMORY_SLICES + gpu_gib / 2) / gpu_gib;
    bool shares = before && before->start == slice->start;
    slice->gpu_instance = shares ? before->gpu_instance : before ? before->gpu_instance + 1 : 1;
    slice->compute_instance = shares ? before->compute_instance + 1 : 0;
    const char *mark = uuid ? strchr(uuid, '%') : NULL;
    if (mark) snprintf(slice->uuid, NAME, "%.*s%d%s", (int)(mark - uuid), uuid, index, mark + 1);
    else if (uuid) snprintf(slice->uuid, NAME, "%s", uuid);
    else snprintf(slice->uuid, NAME, "MIG-%08x-%04x-5000-8000-%012x", index, slice->gpu_instance, slice->compute_instance);
    gpu->slice_count++;
    return slice->start + slice->size <= MEMORY_SLICES && profile_of(slice);
}

struct slice *slice_of(nvmlDevice_t handle) {
    char *at = (char *)handle;
    for (int index = 0; index < machine.gpu_count; index++) {
        struct gpu *gpu = &machine.gpus[index];
        if (at < (char *)gpu->slices || at >= (char *)(gpu->slices + gpu->slice_count)) continue;
        struct slice *slice = (struct slice *)at;
        slice->gpu = gpu;
        return slice;
    }
    return NULL;
}

struct slice *slice_called(const char *uuid) {
    for (int index = 0; index < machine.gpu_count; index++)
        for (int n = 0; n < machine.gpus[index].slice_count; n++)
            if (!strcmp(machine.gpus[index].slices[n].uuid, uuid)) return slice_of((nvmlDevice_t)&machine.gpus[index].slices[n]);
    return NULL;
}

nvmlReturn_t enter_slice(const char *function, const struct slice *slice, bool pointer_given) {
    return slice ? enter(function, slice->gpu, pointer_given) : INVALID_ARGUMENT;
}

nvmlReturn_t nvmlDeviceGetMaxMigDeviceCount(nvmlDevice_t gpu, unsigned *count) {
    ENTER(gpu, count);
    *count = gpu->mig == ABSENT ? 0 : 7;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMigDeviceHandleByIndex(nvmlDevice_t gpu, unsigned index, nvmlDevice_t *device) {
    ENTER(gpu, device);
    if (gpu->mig == ABSENT) return NOT_SUPPORTED;
    if (index >= 7) return INVALID_ARGUMENT;
    if (gpu->mig != 1 || index >= (unsigned)gpu->slice_count) return NOT_FOUND;
    *device = (nvmlDevice_t)slice_of((nvmlDevice_t)&gpu->slices[index]);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceIsMigDeviceHandle(nvmlDevice_t device, unsigned *is_mig) {
    const struct slice *slice = slice_of(device);
    if (!slice) ENTER(device, is_mig);
    *is_mig = slice != NULL;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetDeviceHandleFromMigDeviceHandle(nvmlDevice_t device, nvmlDevice_t *gpu) {
    const struct slice *slice = slice_of(device);
    TRY(enter_slice(__func__, slice, gpu));
    *gpu = slice->gpu;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuInstanceId(nvmlDevice_t device, unsigned *id) {
    const struct slice *slice = slice_of(device);
    TRY(enter_slice(__func__, slice, id));
    *id = slice->gpu_instance;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetComputeInstanceId(nvmlDevice_t device, unsigned *id) {
    const struct slice *slice = slice_of(device);
    TRY(enter_slice(__func__, slice, id));
    *id = slice->compute_instance;
    return SUCCESS;
}

typedef struct {
    unsigned multiprocessors, copy_engines, decoders, encoders, jpegs, ofas, gpu_instance_slices, compute_instance_slices;
    unsigned long long memory_mib;
} nvmlDeviceAttributes_t;

nvmlReturn_t nvmlDeviceGetAttributes_v2(nvmlDevice_t device, nvmlDeviceAttributes_t *attributes) {
    const struct slice *slice = slice_of(device);
    TRY(enter_slice(__func__, slice, attributes));
    int slices = profile_of(slice)->slices, compute = compute_slices(slice);
    *attributes = (nvmlDeviceAttributes_t){16 * compute, slices, slices, 0, 0, *profile_of(slice)->attribute ? 1 : 0,
                                           slices, compute, slice_bytes(slice) >> 20};
    return SUCCESS;
}

typedef struct {
    nvmlDevice_t device;
    unsigned id, profile;
    struct {
        unsigned start, size;
    } placement;
} nvmlGpuInstanceInfo_t;

nvmlReturn_t nvmlDeviceGetGpuInstanceById(nvmlDevice_t gpu, unsigned id, nvmlGpuInstance_t *instance) {
    ENTER(gpu, instance);
    for (int n = 0; n < gpu->slice_count; n++)
        if (gpu->slices[n].gpu_instance == (int)id) return *instance = slice_of((nvmlDevice_t)&gpu->slices[n]), SUCCESS;
    return NOT_FOUND;
}

nvmlReturn_t nvmlGpuInstanceGetInfo(nvmlGpuInstance_t instance, nvmlGpuInstanceInfo_t *info) {
    TRY(enter_slice(__func__, instance, info));
    *info = (nvmlGpuInstanceInfo_t){instance->gpu, instance->gpu_instance, profile_of(instance)->id, {instance->start, instance->size}};
    return SUCCESS;
}

typedef struct {
    unsigned id, is_p2p, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
    unsigned long long memory_mib;
} nvmlGpuInstanceProfileInfo_t;

nvmlReturn_t nvmlDeviceGetGpuInstanceProfileInfo(nvmlDevice_t gpu, unsigned number, nvmlGpuInstanceProfileInfo_t *info) {
    ENTER(gpu, info);
    if (number >= PROFILES) return INVALID_ARGUMENT;
    for (size_t n = 0; gpu->mig != ABSENT && n < sizeof KNOWN / sizeof *KNOWN; n++) {
        const struct profile *profile = &KNOWN[n];
        if (profile->number != (int)number) continue;
        memset(info, 0, sizeof *info);
        info->id = profile->id;
        info->slices = profile->slices;
        info->instances = MEMORY_SLICES / profile->memory_slices;
        info->memory_mib = gpu->memory_mib * profile->memory_slices / MEMORY_SLICES - 128;
        return SUCCESS;
    }
    return NOT_SUPPORTED;
}

typedef struct {
    unsigned id, slices, instances, multiprocessors, copy_engines, decoders, encoders, jpegs, ofas;
} nvmlComputeInstanceProfileInfo_t;

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceProfileInfo(nvmlGpuInstance_t instance, unsigned number, unsigned engine,
                                                          nvmlComputeInstanceProfileInfo_t *info) {
    TRY(enter_slice(__func__, instance, info));
    if (number >= CI_PROFILES || engine >= CI_ENGINES) return INVALID_ARGUMENT;
    if (number == 7 || number == 8 || CI_SLICES[number] > profile_of(instance)->slices) return NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    info->id = number;
    info->slices = CI_SLICES[number];
    return SUCCESS;
}

nvmlReturn_t nvmlGpuInstanceGetComputeInstanceById(nvmlGpuInstance_t instance, unsigned id, nvmlComputeInstance_t *compute) {
    TRY(enter_slice(__func__, instance, compute));
    for (int n = 0; n < instance->gpu->slice_count; n++) {
        struct slice *slice = &instance->gpu->slices[n];
        if (slice->gpu_instance == instance->gpu_instance && slice->compute_instance == (int)id)
            return *compute = slice_of((nvmlDevice_t)slice), SUCCESS;
    }
    return NOT_FOUND;
}

typedef struct {
    nvmlDevice_t device;
    nvmlGpuInstance_t instance;
    unsigned id, profile;
    struct {
        unsigned start, size;
    } placement;
} nvmlComputeInstanceInfo_t;

nvmlReturn_t nvmlComputeInstanceGetInfo_v2(nvmlComputeInstance_t compute, nvmlComputeInstanceInfo_t *info) {
    TRY(enter_slice(__func__, compute, info));
    int number = 0;
    while (CI_SLICES[number] != compute_slices(compute)) number++;
    *info = (nvmlComputeInstanceInfo_t){compute->gpu, compute, compute->compute_instance, number, {0, CI_SLICES[number]}};
    return SUCCESS;
}
