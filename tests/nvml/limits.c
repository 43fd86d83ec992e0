/*
 * Memory limits by cgroup, as drivers from r615 have them. `limits dmem` or `limits misc` in the description says how they are kept;
 * without it the driver is older, and has no such call.
 *
 * A limit is a line of `<description>.limits`, so that all processes that play the machine see it: GPU, device and inode of the
 * cgroup's folder, soft and hard limit, path. It dies with its folder, as soon as anything is asked. What processes use stands in the description: `use`.
 */
#include "abi.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MAX_LIMITS = 4096, PATH = 512 };
#define NO_LIMIT (~0ULL)

typedef struct {
    const char *name_space;
    unsigned long long soft, hard;
} nvmlSetMemoryLimits_v1_t;

typedef struct {
    const char *name_space;
    unsigned long long soft, hard, used;
} nvmlGetMemoryLimits_v1_t;

struct limit {
    char uuid[NAME], path[PATH];
    unsigned long long device, inode, soft, hard;
};

static struct limit limits[MAX_LIMITS];
static int count;

/* Good until the call after the next. */
static const char *file_of(const char *ending) {
    static char name[2][4096];
    static int turn;
    turn = !turn;
    snprintf(name[turn], sizeof name[turn], "%s.limits%s", getenv("GPUTOPO_FAKE_NVML"), ending);
    return name[turn];
}

/* Who holds it is the only one that reads, changes and writes. */
static int lock(void) {
    int file = open(file_of(".lock"), O_RDONLY | O_CREAT | O_CLOEXEC, 0644);
    if (file >= 0) flock(file, LOCK_EX);
    return file;
}

/* Reads those whose cgroup is still the same one. */
static void read_limits(void) {
    struct limit read;
    struct stat now;
    FILE *stream = fopen(file_of(""), "re");
    for (count = 0; stream && count < MAX_LIMITS && fscanf(stream, "%95s %llu %llu %llu %llu %511[^\n]", read.uuid, &read.device,
                                                           &read.inode, &read.soft, &read.hard, read.path) == 6;)
        if (!stat(read.path, &now) && now.st_ino == read.inode && now.st_dev == read.device) limits[count++] = read;
    if (stream) fclose(stream);
}

/* All or nothing: a driver forgets no limit because the process that sets another one is killed. */
static bool write_limits(void) {
    FILE *stream = fopen(file_of(".new"), "we");
    if (!stream) return false;
    for (int n = 0; n < count; n++)
        fprintf(stream, "%s %llu %llu %llu %llu %s\n", limits[n].uuid, limits[n].device, limits[n].inode, limits[n].soft, limits[n].hard,
                limits[n].path);
    bool failed = ferror(stream);
    failed |= fclose(stream) != 0;
    return !failed && !rename(file_of(".new"), file_of(""));
}

static struct limit *limit_of(const struct gpu *gpu, const struct stat *cgroup) {
    for (int n = 0; n < count; n++)
        if (!strcmp(limits[n].uuid, gpu->uuid) && limits[n].inode == cgroup->st_ino && limits[n].device == cgroup->st_dev)
            return &limits[n];
    return NULL;
}

/* With dmem only a cgroup that has its files takes a limit. */
static nvmlReturn_t find(const char *path, struct stat *cgroup) {
    char file[PATH + 16];
    if (!path || *path != '/' || strlen(path) >= PATH) return INVALID_ARGUMENT;
    if (stat(path, cgroup) || !S_ISDIR(cgroup->st_mode)) return NOT_FOUND;
    snprintf(file, sizeof file, "%s/dmem.max", path);
    return machine.limits == LIMITS_DMEM && access(file, F_OK) ? NOT_FOUND : SUCCESS;
}

nvmlReturn_t nvmlDeviceSetMemoryLimits_v1(nvmlDevice_t gpu, const nvmlSetMemoryLimits_v1_t *wanted) {
    struct stat cgroup;
    ENTER(gpu, wanted);
    if (machine.limits == LIMITS_NONE) return FUNCTION_NOT_FOUND;
    if (gpu->mig == 1) return NOT_SUPPORTED;
    if (geteuid()) return NO_PERMISSION;
    if (wanted->soft > wanted->hard || !wanted->hard) return INVALID_ARGUMENT;
    TRY(find(wanted->name_space, &cgroup));
    int held = lock();
    if (held < 0) return UNKNOWN;
    read_limits();
    struct limit *limit = limit_of(gpu, &cgroup);
    bool clears = !wanted->soft && wanted->hard == NO_LIMIT;
    if (clears && limit) *limit = limits[--count];
    if (!clears && !limit && count < MAX_LIMITS) limit = &limits[count++];
    if (!clears && limit) {
        *limit = (struct limit){.device = cgroup.st_dev, .inode = cgroup.st_ino, .soft = wanted->soft, .hard = wanted->hard};
        snprintf(limit->uuid, sizeof limit->uuid, "%s", gpu->uuid);
        snprintf(limit->path, sizeof limit->path, "%s", wanted->name_space);
    }
    bool written = write_limits();
    close(held);
    return written && (clears || limit) ? SUCCESS : UNKNOWN;
}

static unsigned long long used_below(const struct gpu *gpu, const char *path) {
    unsigned long long bytes = 0;
    for (int n = 0; n < machine.use_count; n++) {
        const struct use *use = &machine.uses[n];
        size_t length = strlen(path);
        bool below = !strncmp(use->cgroup, path, length) && (!use->cgroup[length] || use->cgroup[length] == '/');
        if (below && use->gpus >> (gpu - machine.gpus) & 1) bytes += use->mib << 20;
    }
    return bytes;
}

nvmlReturn_t nvmlDeviceGetMemoryLimits_v1(nvmlDevice_t gpu, nvmlGetMemoryLimits_v1_t *told) {
    struct stat cgroup;
    ENTER(gpu, told);
    if (machine.limits == LIMITS_NONE) return FUNCTION_NOT_FOUND;
    if (gpu->mig == 1) return NOT_SUPPORTED;
    TRY(find(told->name_space, &cgroup));
    int held = lock();
    if (held < 0) return UNKNOWN;
    read_limits();
    write_limits();
    close(held);
    const struct limit *limit = limit_of(gpu, &cgroup);
    if (!limit && machine.limits == LIMITS_MISC) return NOT_SUPPORTED; /* so r615 says it where no limit was ever set */
    told->soft = limit ? limit->soft : 0;
    told->hard = limit ? limit->hard : NO_LIMIT;
    told->used = used_below(gpu, told->name_space);
    return SUCCESS;
}
