/* What nvml.c, nvlink.c and events.c share: the codes and layouts of the NVML interface, and how every call begins. */
#ifndef ABI_H
#define ABI_H

#include "machine.h"

#include <stddef.h>

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7,
    TIMEOUT = 10, FUNCTION_NOT_FOUND = 13, ARGUMENT_VERSION_MISMATCH = 25, UNKNOWN = 999
};

typedef int nvmlReturn_t;
typedef struct gpu *nvmlDevice_t;

typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;

#define VERSION(size, number) ((unsigned)(size) | (unsigned)(number) << 24)
#define TRY(call)                             \
    do {                                      \
        nvmlReturn_t rc_ = (call);            \
        if (rc_ != SUCCESS) return rc_;       \
    } while (0)
/* Every call on a GPU begins so: library ready, handle ours, pointer given, and no failure described for it. */
#define ENTER(gpu, pointer) TRY(enter(__func__, gpu, (pointer) != NULL))

extern struct machine machine;

nvmlReturn_t enter(const char *function, const struct gpu *gpu, bool pointer_given);
nvmlReturn_t enter_system(const char *function, bool pointer_given);

/* NOT_FOUND where the field is none of activity.c. */
nvmlReturn_t figure_field(const struct gpu *gpu, unsigned field, unsigned scope, unsigned long long *value, unsigned *type);
/* NOT_FOUND where the field is none of errors.c. */
nvmlReturn_t error_field(const struct gpu *gpu, unsigned field, unsigned scope, unsigned long long *value, unsigned *type);

/* The MIG device that a handle is; NULL where it is a GPU's. */
struct slice *slice_of(nvmlDevice_t handle);
/* Every call on a MIG device or its instances begins so; failures are described for its GPU. */
nvmlReturn_t enter_slice(const char *function, const struct slice *slice, bool pointer_given);
unsigned long long slice_bytes(const struct slice *slice);
/* By UUID; NULL where there is none. */
struct slice *slice_called(const char *uuid);

void write_pci(nvmlPciInfo_t *info, struct pci_address pci);

#endif
