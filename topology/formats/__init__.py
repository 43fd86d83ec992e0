"""What people and tools print: `nvidia-smi topo -m`, NCCL's XML, pictures, and the catalogue of reference machines."""
