"""Which GPUs, and why not."""
