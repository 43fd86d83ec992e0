"""A fake NVML: a C library that plays described machines under the real `pynvml` binding."""
