/* What is counted of a GPU's errors, heat and PCIe link: the fields and calls that health is judged by. */
#include "abi.h"

#include <limits.h>
#include <stdlib.h>
#include <string.h>

enum { LINK_FIELD = 1, VOLATILE = 2, SHORT = 4 };
enum { DRAM = 2 };

static const struct {
    const char *name; /* as `gpu 0 NAME VALUE` */
    unsigned field;   /* NVML's id, where it is read so */
    unsigned flags;   /* read of each link, of which the first two have them; counts anew after a reset; 32 bits wide */
} WORDS[ERRORS] = {
    [CORRECTED_ERRORS] = {"corrected_errors", 3, VOLATILE},
    [DRAM_CORRECTED] = {"dram_corrected", 0, 0},
    [DRAM_UNCORRECTED] = {"dram_uncorrected", 0, 0},
    [L2_CORRECTED] = {"l2_corrected", 20, 0},
    [L2_UNCORRECTED] = {"l2_uncorrected", 21, 0},
    [SRAM_CORRECTED] = {"sram_corrected", 0, 0},
    [SRAM_UNCORRECTED] = {"sram_uncorrected", 0, 0},
    [SRAM_EXCEEDED] = {"sram_exceeded", 0, 0},
    [ROWS_CORRECTED] = {"rows_corrected", 0, 0},
    [BANKS_WITHOUT_SPARES] = {"banks_without_spares", 0, 0},
    [PCIE_REPLAYS] = {"pcie_replays", 94, VOLATILE | SHORT},
    [PCIE_WIDTH_NOW] = {"pcie_width_now", 0, 0},
    [MARGIN] = {"margin", 0, 0},
    [SLOW_POWER_NS] = {"slow_power_ns", 74, VOLATILE},
    [SLOW_HEAT_NS] = {"slow_heat_ns", 269, VOLATILE},
    [SLOW_HARDWARE_HEAT_NS] = {"slow_hardware_heat_ns", 270, VOLATILE},
    [SLOW_BRAKE_NS] = {"slow_brake_ns", 271, VOLATILE},
    [NVLINK_CRC] = {"nvlink_crc", 163, LINK_FIELD | VOLATILE},
    [NVLINK_REPLAY] = {"nvlink_replay", 161, LINK_FIELD | VOLATILE},
    [NVLINK_RECEIVE] = {"nvlink_receive", 208, LINK_FIELD | VOLATILE},
    [NVLINK_UNRECOVERED] = {"nvlink_unrecovered", 214, LINK_FIELD | VOLATILE},
};

void no_errors(struct gpu *gpu) {
    for (int n = 0; n < ERRORS; n++) gpu->errors[n] = UNSAID;
}

long long *error_counter(struct gpu *gpu, const char *key) {
    for (int n = 0; n < ERRORS; n++)
        if (!strcmp(WORDS[n].name, key)) return &gpu->errors[n];
    return NULL;
}

void forget_volatile_errors(struct gpu *gpu) {
    for (int n = 0; n < ERRORS; n++)
        if (WORDS[n].flags & VOLATILE && gpu->errors[n] != UNSAID) gpu->errors[n] = 0;
}

nvmlReturn_t error_field(const struct gpu *gpu, unsigned field, unsigned scope, unsigned long long *value, unsigned *type) {
    for (int n = 0; n < ERRORS; n++) {
        if (!WORDS[n].field || WORDS[n].field != field) continue;
        if (gpu->errors[n] == UNSAID) return NOT_SUPPORTED;
        unsigned long long all = (unsigned long long)gpu->errors[n], second = all / 4;
        *value = !(WORDS[n].flags & LINK_FIELD) ? all : scope == 0 ? all - second : scope == 1 ? second : 0;
        *type = WORDS[n].flags & SHORT ? 1 : 3; /* unsigned int, unsigned long long */
        return SUCCESS;
    }
    return NOT_FOUND;
}

static nvmlReturn_t said(const struct gpu *gpu, enum error error, unsigned *into) {
    if (gpu->errors[error] == UNSAID) return NOT_SUPPORTED;
    *into = (unsigned)gpu->errors[error];
    return SUCCESS;
}

static unsigned long long or_none(long long value) { return value == UNSAID ? 0 : (unsigned long long)value; }

typedef struct {
    unsigned version;
    unsigned long long aggregate_parity, aggregate_secded, aggregate_corrected, parity, secded, corrected;
    unsigned long long l2, sm, pcie, mcu, other;
    unsigned exceeded;
} nvmlEccSramErrorStatus_v1_t;

nvmlReturn_t nvmlDeviceGetSramEccErrorStatus(nvmlDevice_t gpu, nvmlEccSramErrorStatus_v1_t *status) {
    ENTER(gpu, status);
    if (status->version != VERSION(sizeof *status, 1)) return ARGUMENT_VERSION_MISMATCH;
    if (gpu->errors[SRAM_EXCEEDED] == UNSAID) return NOT_SUPPORTED;
    status->exceeded = gpu->errors[SRAM_EXCEEDED] != 0;
    status->aggregate_parity = or_none(gpu->errors[SRAM_UNCORRECTED]) / 3;
    status->aggregate_secded = or_none(gpu->errors[SRAM_UNCORRECTED]) - status->aggregate_parity;
    status->aggregate_corrected = or_none(gpu->errors[SRAM_CORRECTED]);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetMemoryErrorCounter(nvmlDevice_t gpu, unsigned type, unsigned counter, unsigned location,
                                             unsigned long long *count) {
    ENTER(gpu, count);
    if (type > 1 || counter > 1 || location > 7) return INVALID_ARGUMENT;
    long long told = gpu->errors[type ? DRAM_UNCORRECTED : DRAM_CORRECTED];
    if (!counter || location != DRAM || told == UNSAID) return NOT_SUPPORTED;
    *count = (unsigned long long)told;
    return SUCCESS;
}

typedef struct {
    unsigned max, high, partial, low, none;
} nvmlRowRemapperHistogramValues_t;

nvmlReturn_t nvmlDeviceGetRowRemapperHistogram(nvmlDevice_t gpu, nvmlRowRemapperHistogramValues_t *banks) {
    ENTER(gpu, banks);
    *banks = (nvmlRowRemapperHistogramValues_t){.max = 640};
    return said(gpu, BANKS_WITHOUT_SPARES, &banks->none);
}

nvmlReturn_t nvmlDeviceGetCurrPcieLinkWidth(nvmlDevice_t gpu, unsigned *width) {
    ENTER(gpu, width);
    if (gpu->errors[PCIE_WIDTH_NOW] != UNSAID) return said(gpu, PCIE_WIDTH_NOW, width);
    *width = (unsigned)gpu->pcie_width;
    return SUCCESS;
}

typedef struct {
    unsigned version;
    int celsius;
} nvmlMarginTemperature_t;

nvmlReturn_t nvmlDeviceGetMarginTemperature(nvmlDevice_t gpu, nvmlMarginTemperature_t *margin) {
    ENTER(gpu, margin);
    if (margin->version != VERSION(sizeof *margin, 1)) return ARGUMENT_VERSION_MISMATCH;
    return said(gpu, MARGIN, (unsigned *)&margin->celsius);
}
