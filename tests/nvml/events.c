/*
 * Critical events. They come from the file beside the description, `<description>.xids`, one line `GPU XID` for each: what is
 * appended while an event set exists is delivered to that set, once. And from the script (script.c), when they are due.
 */
#include "abi.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

enum { XID = 8, LOOK_EVERY_MS = 50 }; /* a driver wakes nobody in vain; this library has to look, and that should weigh little */

typedef struct {
    long read, script_read; /* bytes of the files */
    unsigned long gpus;
} *nvmlEventSet_t;

typedef struct {
    nvmlDevice_t device;
    unsigned long long type, data;
    unsigned gpu_instance, compute_instance;
} nvmlEventData_t;

static const char *events_file(void) {
    static _Thread_local char name[4096];
    snprintf(name, sizeof name, "%s.xids", getenv("GPUTOPO_FAKE_NVML"));
    return name;
}

nvmlReturn_t nvmlEventSetCreate(nvmlEventSet_t *set) {
    TRY(enter_system(__func__, set));
    struct stat file = {0};
    unsigned gpu, xid;
    if (!(*set = calloc(1, sizeof **set))) return UNKNOWN;
    if (!stat(events_file(), &file)) (*set)->read = file.st_size;
    while (next_scripted_xid(&(*set)->script_read, &gpu, &xid)) {
    } /* what was before is not told */
    return SUCCESS;
}

nvmlReturn_t nvmlEventSetFree(nvmlEventSet_t set) {
    TRY(enter_system(__func__, set));
    free(set);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetSupportedEventTypes(nvmlDevice_t gpu, unsigned long long *types) {
    ENTER(gpu, types);
    *types = XID;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceRegisterEvents(nvmlDevice_t gpu, unsigned long long types, nvmlEventSet_t set) {
    ENTER(gpu, set);
    if (types & ~XID) return NOT_SUPPORTED;
    set->gpus |= 1UL << (gpu - machine.gpus);
    return SUCCESS;
}

/* The next event that the set is registered for; false when the file has no more whole lines. */
static bool next_event(nvmlEventSet_t set, nvmlEventData_t *data) {
    struct stat told = {0};
    FILE *file = !stat(events_file(), &told) && told.st_size > set->read ? fopen(events_file(), "r") : NULL;
    char line[64];
    bool found = false;
    if (file && !fseek(file, set->read, SEEK_SET))
        while (!found && fgets(line, sizeof line, file)) {
            unsigned gpu, xid;
            if (sscanf(line, "%u %u\n", &gpu, &xid) != 2 || gpu >= MAX_GPUS) break;
            set->read = ftell(file);
            *data = (nvmlEventData_t){&machine.gpus[gpu], XID, xid, ~0u, ~0u};
            found = set->gpus >> gpu & 1;
        }
    if (file) fclose(file);
    unsigned gpu, xid;
    while (!found && next_scripted_xid(&set->script_read, &gpu, &xid)) {
        *data = (nvmlEventData_t){&machine.gpus[gpu], XID, xid, ~0u, ~0u};
        found = set->gpus >> gpu & 1;
    }
    return found;
}

nvmlReturn_t nvmlEventSetWait_v2(nvmlEventSet_t set, nvmlEventData_t *data, unsigned timeout_ms) {
    for (unsigned waited_ms = 0;; waited_ms += LOOK_EVERY_MS) {
        TRY(enter_system(__func__, set && data));
        if (next_event(set, data)) return SUCCESS;
        if (waited_ms >= timeout_ms) return TIMEOUT;
        usleep(LOOK_EVERY_MS * 1000);
    }
}
