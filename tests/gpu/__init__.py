"""What only a machine with NVIDIA's driver can tell: the agent's answers beside `nvidia-smi`'s. `make test-gpu` runs it."""
