/* What the GPUs do: the clocks, limits and byte counters of the fake library. */
#include "abi.h"

#include <stdlib.h>
#include <string.h>

static const struct {
    const char *name; /* as `gpu 0 NAME VALUE` */
    unsigned field;   /* NVML's id, where it is read so */
} WORDS[FIGURES] = {
    [MEMORY_BUSY] = {"memory_busy", 0},
    [MEMORY_TEMPERATURE] = {"memory_temperature", 82},
    [POWER_LIMIT_MW] = {"power_limit_mw", 0},
    [SM_CLOCK_MHZ] = {"sm_clock_mhz", 0},
    [MEMORY_CLOCK_MHZ] = {"memory_clock_mhz", 0},
    [NVLINK_TX_KIB] = {"nvlink_tx_kib", 138},
    [NVLINK_RX_KIB] = {"nvlink_rx_kib", 139},
    [PCIE_TX_BYTES] = {"pcie_tx_bytes", 197},
    [PCIE_RX_BYTES] = {"pcie_rx_bytes", 198},
    [COUNTER_BITS] = {"counter_bits", 0},
};

void no_figures(struct gpu *gpu) {
    for (int n = 0; n < FIGURES; n++) gpu->figures[n] = ABSENT;
}

bool set_figure(struct gpu *gpu, const char *key, const char *value) {
    for (int n = 0; n < FIGURES; n++)
        if (!strcmp(WORDS[n].name, key)) return gpu->figures[n] = strcmp(value, "-") ? atoll(value) : ABSENT, true;
    return false;
}

nvmlReturn_t figure_field(const struct gpu *gpu, unsigned field, unsigned scope, unsigned long long *value, unsigned *type) {
    for (int n = 0; n < FIGURES; n++) {
        if (!WORDS[n].field || WORDS[n].field != field) continue;
        bool link = n == NVLINK_TX_KIB || n == NVLINK_RX_KIB;
        if (gpu->figures[n] == ABSENT || (link && scope != ~0u)) return NOT_SUPPORTED; /* only of all links together */
        bool wide = n != MEMORY_TEMPERATURE && gpu->figures[COUNTER_BITS] != 32;
        *value = (unsigned long long)gpu->figures[n];
        *type = wide ? 3 : 1; /* unsigned long long, unsigned int */
        return SUCCESS;
    }
    return NOT_FOUND;
}

static nvmlReturn_t figure(const struct gpu *gpu, enum figure which, unsigned *value) {
    if (gpu->figures[which] == ABSENT) return NOT_SUPPORTED;
    *value = (unsigned)gpu->figures[which];
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t gpu, unsigned clock, unsigned *mhz) {
    ENTER(gpu, mhz);
    if (clock > 3) return INVALID_ARGUMENT;
    return clock == 1 ? figure(gpu, SM_CLOCK_MHZ, mhz) : clock == 2 ? figure(gpu, MEMORY_CLOCK_MHZ, mhz) : NOT_SUPPORTED;
}

nvmlReturn_t nvmlDeviceGetEnforcedPowerLimit(nvmlDevice_t gpu, unsigned *milliwatts) {
    ENTER(gpu, milliwatts);
    return figure(gpu, POWER_LIMIT_MW, milliwatts);
}
