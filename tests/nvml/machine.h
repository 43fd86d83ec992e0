/* One described machine: what the description file says, ready for the NVML functions to answer from. */
#ifndef MACHINE_H
#define MACHINE_H

#include <limits.h>
#include <stdbool.h>

enum { MAX_GPUS = 32, MAX_LINKS = 36, MAX_FAILURES = 64, MAX_PROCESSES = 16, MAX_SLICES = 8, MAX_USES = 64, NAME = 96 };

/* What an absent value means everywhere below: the call answers NVML_ERROR_NOT_SUPPORTED. */
enum { ABSENT = -1 };
/* The same where -1 is a value. */
#define UNSAID LLONG_MIN

enum far_end { FAR_GPU = 0, FAR_NPU = 1, FAR_SWITCH = 2, FAR_UNKNOWN = 255 };
enum link_state { LINK_MISSING, LINK_ACTIVE, LINK_INACTIVE, LINK_HIDDEN, LINK_SLEEPING, LINK_TRAFFIC_DISABLED };
enum remote_id { REMOTE_ID, REMOTE_SENTINEL, REMOTE_EMPTY, REMOTE_UNREADABLE };

struct pci_address {
    unsigned domain, bus, device;
};

struct link {
    enum link_state state;
    enum far_end far_end;
    enum remote_id remote_id;
    struct pci_address remote;
};

struct fabric {
    int state; /* ABSENT: the call itself is not supported */
    int status;
    unsigned char cluster_uuid[16];
    unsigned clique;
    unsigned health_mask;
    unsigned char health_summary;
};

/* What a GPU does, beside what `struct gpu` has by name; activity.c has their words. */
enum figure {
    MEMORY_BUSY, MEMORY_TEMPERATURE, POWER_LIMIT_MW, SM_CLOCK_MHZ, MEMORY_CLOCK_MHZ, NVLINK_TX_KIB, NVLINK_RX_KIB, PCIE_TX_BYTES,
    PCIE_RX_BYTES, COUNTER_BITS, FIGURES
};

/* What errors.c knows; it has their words. */
enum error {
    CORRECTED_ERRORS, DRAM_CORRECTED, DRAM_UNCORRECTED, L2_CORRECTED, L2_UNCORRECTED, SRAM_CORRECTED, SRAM_UNCORRECTED, SRAM_EXCEEDED,
    ROWS_CORRECTED, BANKS_WITHOUT_SPARES, PCIE_REPLAYS, PCIE_WIDTH_NOW, MARGIN, SLOW_POWER_NS, SLOW_HEAT_NS, SLOW_HARDWARE_HEAT_NS,
    SLOW_BRAKE_NS, NVLINK_CRC, NVLINK_REPLAY, NVLINK_RECEIVE, NVLINK_UNRECOVERED, ERRORS
};

struct process {
    unsigned pid;
    long long mib; /* ABSENT: not told */
    int slice; /* the number of its MIG device on the GPU; ABSENT: none */
    char command[NAME]; /* empty: of another PID namespace */
};

/* One MIG device; mig.c has what its profile means. */
struct slice {
    struct gpu *gpu;
    char profile[24], uuid[NAME];
    int start, size, gpu_instance, compute_instance;
};

struct gpu {
    bool described;
    char name[NAME], uuid[NAME];
    struct pci_address pci;
    long long memory_mib, used_mib, reserved_mib;
    int minor; /* of the device node */
    int compute_major, compute_minor;
    unsigned long numa_nodes[2]; /* bit mask; all zero: not supported */
    unsigned long cpus[16];      /* bit mask; all zero: not supported */
    int pcie_generation, pcie_width;
    int mig, ecc;
    int memory_numa_node;
    int remap_failure, remap_pending, retired_pages_pending;
    /* slowdown: bits of the clock event reasons */
    int recovery_action, uncorrected_errors, slowdown, energy_mj;
    int utilization, temperature, power_mw;
    long long figures[FIGURES];
    long long errors[ERRORS];
    int nvlink_version;
    int process_count; /* that compute */
    struct process processes[MAX_PROCESSES];
    struct fabric fabric;
    struct link links[MAX_LINKS];
    int slice_count;
    struct slice slices[MAX_SLICES];
};

struct failure {
    char function[NAME]; /* "*": every call on this GPU but the one that finds its handle */
    unsigned long gpus;  /* bit mask */
    int code;
    double seconds; /* that pass before any answer */
};

enum { P2P_CAPS = 5 };

enum { LIMITS_NONE, LIMITS_DMEM, LIMITS_MISC };

/* Memory that the processes of one cgroup use. */
struct use {
    unsigned long gpus; /* bit mask */
    unsigned long long mib;
    char cgroup[256];
};

struct machine {
    char driver[NAME], nvml[NAME];
    int cuda;
    int init;
    int gpu_count;
    struct gpu gpus[MAX_GPUS];
    int path[MAX_GPUS][MAX_GPUS];           /* NVML topology level */
    int p2p[MAX_GPUS][MAX_GPUS][P2P_CAPS]; /* ABSENT: derived from the links */
    struct failure failures[MAX_FAILURES];
    int failure_count;
    int limits;
    int use_count;
    struct use uses[MAX_USES];
};

/* Reads the file into *machine; false, with file, line and reason on stderr, when it makes no sense. */
bool read_machine(const char *file, struct machine *machine);

/* `slice GPUS PROFILE START [UUID]`; false where the GPU has no such profile. */
bool add_slice(struct gpu *gpu, int index, const char *profile, const char *start, const char *uuid);

void no_figures(struct gpu *gpu);
/* False where the key is none of activity.c. */
bool set_figure(struct gpu *gpu, const char *key, const char *value);
/* One statement of a description; false where it is none. It is taken apart. */
bool read_statement(struct machine *machine, char *line);

/* "0,2-4" as bits; false unless every number is below `limit`. */
bool parse_set(const char *text, unsigned long *bits, int limit);

void no_errors(struct gpu *gpu);
/* NULL where the key is none of errors.c. */
long long *error_counter(struct gpu *gpu, const char *key);
void forget_volatile_errors(struct gpu *gpu);

/* Lets happen what is due by the script; false where it cannot be read. *next_seconds: until something more is due. */
bool play_script(struct machine *machine, double *next_seconds);
/* The next critical error that is due, from *read bytes of the script on. */
bool next_scripted_xid(long *read, unsigned *gpu, unsigned *xid);

/* The NVML code of a name such as GPU_IS_LOST; ABSENT if there is none. */
int nvml_code(const char *name);

#endif
