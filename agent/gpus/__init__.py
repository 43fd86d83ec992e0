"""The GPUs of this machine: NVML, links, faults and XIDs."""
