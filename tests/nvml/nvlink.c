/* The NVLink, fabric and peer-access calls of the fake library. */
#include "abi.h"

#include <stdint.h>
#include <string.h>

typedef struct {
    unsigned fieldId, scopeId;
    long long timestamp, latencyUsec;
    unsigned valueType;
    nvmlReturn_t nvmlReturn;
    union {
        double dVal;
        unsigned uiVal;
        unsigned long long ullVal;
    } value;
} nvmlFieldValue_t;

typedef struct {
    unsigned version;
    unsigned char clusterUuid[16];
    nvmlReturn_t status;
    unsigned cliqueId;
    unsigned state;
    unsigned healthMask;     /* since version 2 */
    uint8_t healthSummary; /* since version 3 */
} nvmlGpuFabricInfoV_t;

/* A link by its number: INVALID_ARGUMENT past the GPU's last one, NOT_SUPPORTED where a guest must not see it. */
static nvmlReturn_t find_link(struct gpu *gpu, unsigned number, struct link **link) {
    if (number >= MAX_LINKS) return INVALID_ARGUMENT;
    *link = &gpu->links[number];
    if (gpu->links[0].state == LINK_MISSING) return NOT_SUPPORTED; /* a GPU without NVLink */
    if ((*link)->state == LINK_MISSING) return INVALID_ARGUMENT;
    return (*link)->state == LINK_HIDDEN ? NOT_SUPPORTED : SUCCESS;
}

static bool is_active(const struct link *link) { return link->state == LINK_ACTIVE || link->state == LINK_SLEEPING; }

nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t gpu, unsigned number, unsigned *active) {
    struct link *link;
    ENTER(gpu, active);
    TRY(find_link(gpu, number, &link));
    *active = is_active(link);
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkVersion(nvmlDevice_t gpu, unsigned number, unsigned *version) {
    struct link *link;
    ENTER(gpu, version);
    TRY(find_link(gpu, number, &link));
    *version = gpu->nvlink_version;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkCapability(nvmlDevice_t gpu, unsigned number, unsigned capability, unsigned *result) {
    struct link *link;
    ENTER(gpu, result);
    if (capability > 5) return INVALID_ARGUMENT;
    TRY(find_link(gpu, number, &link));
    *result = is_active(link) && (capability != 0 || link->far_end != FAR_NPU); /* 0: peer to peer */
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemoteDeviceType(nvmlDevice_t gpu, unsigned number, unsigned *type) {
    struct link *link;
    ENTER(gpu, type);
    TRY(find_link(gpu, number, &link));
    if (!is_active(link)) return NOT_SUPPORTED;
    *type = link->far_end;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetNvLinkRemotePciInfo_v2(nvmlDevice_t gpu, unsigned number, nvmlPciInfo_t *info) {
    struct link *link;
    ENTER(gpu, info);
    TRY(find_link(gpu, number, &link));
    if (!is_active(link) || link->remote_id == REMOTE_UNREADABLE) return NOT_SUPPORTED;
    memset(info, 0, sizeof *info);
    if (link->remote_id == REMOTE_SENTINEL) write_pci(info, (struct pci_address){~0u, ~0u, ~0u});
    if (link->remote_id == REMOTE_ID) write_pci(info, link->remote);
    return SUCCESS;
}

static int count_links(const struct gpu *gpu, bool switches_only) {
    int count = 0;
    for (int n = 0; n < MAX_LINKS; n++)
        count += is_active(&gpu->links[n]) && (!switches_only || gpu->links[n].far_end == FAR_SWITCH);
    return count;
}

static nvmlReturn_t field(struct gpu *gpu, unsigned id, unsigned scope, unsigned *value) {
    static const unsigned char STATE[] = {[LINK_ACTIVE] = 1, [LINK_SLEEPING] = 2, [LINK_TRAFFIC_DISABLED] = 3};
    struct link *link;
    switch (id) {
    case 91: /* NVML_FI_DEV_NVLINK_LINK_COUNT */
        *value = count_links(gpu, false);
        return *value ? SUCCESS : NOT_SUPPORTED;
    case 147: /* NVML_FI_DEV_NVSWITCH_CONNECTED_LINK_COUNT */
        *value = count_links(gpu, true);
        return *value ? SUCCESS : NOT_SUPPORTED;
    case 165: /* NVML_FI_DEV_NVLINK_GET_STATE */
    case 166: /* NVML_FI_DEV_NVLINK_GET_VERSION */
        if (gpu->compute_major < 9) return NOT_SUPPORTED;
        TRY(find_link(gpu, scope, &link));
        *value = id == 165 ? STATE[link->state] : (unsigned)gpu->nvlink_version;
        return SUCCESS;
    case 230: /* NVML_FI_DEV_GET_GPU_RECOVERY_ACTION */
        *value = (unsigned)gpu->recovery_action;
        return gpu->recovery_action == ABSENT ? NOT_SUPPORTED : SUCCESS;
    default:
        return id > 0 && id < 300 ? NOT_SUPPORTED : INVALID_ARGUMENT;
    }
}

nvmlReturn_t nvmlDeviceGetFieldValues(nvmlDevice_t gpu, int count, nvmlFieldValue_t *values) {
    ENTER(gpu, values);
    if (count <= 0) return INVALID_ARGUMENT;
    for (int n = 0; n < count; n++) {
        unsigned value = 0, type = 3; /* unsigned long long */
        unsigned long long wide = 0;
        nvmlReturn_t code = error_field(gpu, values[n].fieldId, values[n].scopeId, &wide, &type);
        if (code == NOT_FOUND) code = figure_field(gpu, values[n].fieldId, values[n].scopeId, &wide, &type);
        bool plain = code == NOT_FOUND;
        values[n].nvmlReturn = plain ? field(gpu, values[n].fieldId, values[n].scopeId, &value) : code;
        values[n].valueType = plain ? 1 : type; /* unsigned int */
        values[n].timestamp = 1;
        values[n].value.ullVal = 0xabad1deafeedfaceULL; /* what is not said to be there may be anything */
        if (!plain && type == 3) values[n].value.ullVal = wide;
        else values[n].value.uiVal = plain ? value : (unsigned)wide;
    }
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfoV(nvmlDevice_t gpu, nvmlGpuFabricInfoV_t *info) {
    ENTER(gpu, info);
    const unsigned second = VERSION(offsetof(nvmlGpuFabricInfoV_t, healthSummary), 2), third = VERSION(sizeof *info, 3);
    if (info->version != second && info->version != third) return ARGUMENT_VERSION_MISMATCH;
    if (gpu->fabric.state == ABSENT) return NOT_SUPPORTED;
    memcpy(info->clusterUuid, gpu->fabric.cluster_uuid, 16);
    info->status = gpu->fabric.status;
    info->cliqueId = gpu->fabric.clique;
    info->state = gpu->fabric.state;
    info->healthMask = gpu->fabric.health_mask;
    if (info->version == third) info->healthSummary = gpu->fabric.health_summary;
    return SUCCESS;
}

nvmlReturn_t nvmlDeviceGetGpuFabricInfo(nvmlDevice_t gpu, void *buffer) {
    ENTER(gpu, buffer);
    nvmlGpuFabricInfoV_t full = {.version = VERSION(sizeof full, 3)};
    TRY(nvmlDeviceGetGpuFabricInfoV(gpu, &full));
    memcpy(buffer, full.clusterUuid, offsetof(nvmlGpuFabricInfoV_t, healthMask) - sizeof full.version);
    return SUCCESS;
}

/* Peer access over NVLink: by a direct link, or by the switch when no fabric says that it is not ready. */
static bool joined(const struct gpu *a, const struct gpu *b) {
    for (int n = 0; n < MAX_LINKS; n++)
        if (is_active(&a->links[n]) && a->links[n].far_end == FAR_GPU && !memcmp(&a->links[n].remote, &b->pci, sizeof b->pci))
            return true;
    bool ready_a = a->fabric.state <= 0 || (a->fabric.state == 3 && a->fabric.status == SUCCESS);
    bool ready_b = b->fabric.state <= 0 || (b->fabric.state == 3 && b->fabric.status == SUCCESS);
    return ready_a && ready_b && count_links(a, true) && count_links(b, true);
}

nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t gpu, nvmlDevice_t other, unsigned cap, unsigned *status) {
    ENTER(gpu, status);
    ENTER(other, status);
    if (cap >= P2P_CAPS) return INVALID_ARGUMENT;
    int described = machine.p2p[gpu - machine.gpus][other - machine.gpus][cap];
    *status = described != ABSENT ? described : cap != 2 || joined(gpu, other) ? 0 : 5; /* OK, or not supported */
    return SUCCESS;
}
